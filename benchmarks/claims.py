"""What it takes to check papers' claims with uncertainty: `python benchmarks/claims.py [--papers oaks evowiki]`.

The papers' published numbers are taken for scores of a full run on the papers' own data, each with the spread of a few
hundred questions; so every claim has all of its cases, and is judged on 500 resamples, either side
taken for lower and for higher. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl

from upkeep.grading.resampling import DRAWS, Floats
from upkeep.grading.score import SCORE_SCHEMA
from upkeep.report.claims import printed, read_claims
from upkeep.report.verdicts import judge

PAPERS = Path(__file__).resolve().parents[1] / "papers"
SHIPPED = ("oaks", "imprintbench", "evolveqa", "prelude", "evowiki")
SPREAD = 2.0
"""Standard error in points: that of a rate over some 600 questions."""


def scores_of(folder: Path) -> pl.DataFrame:
    """The published numbers of a paper as scores of ours, each of a cell of its own."""
    tables = sorted(path.stem for path in (folder / "reference").glob("*.csv"))
    rows = printed(folder, tables).with_columns(
        pl.col("value").cast(pl.Float64),
        cell=pl.format("cell {}", pl.int_range(pl.len())),
        provenance=pl.lit("release"),
        trained=True,
        questions=pl.lit(600, pl.Int64),
    )
    return pl.concat([pl.DataFrame(schema=SCORE_SCHEMA), rows], how="diagonal")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--papers", nargs="+", default=SHIPPED, choices=SHIPPED)
    print("| paper | claims | scores | seconds | a claim | holds | fails | undecided | other |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    took = []
    for paper in parser.parse_args().papers:
        folder = PAPERS / paper
        claims, scores = read_claims(folder), scores_of(folder)
        known = dict(scores.select("cell", "value").iter_rows())
        drawn = dict(zip(known, np.tile(np.random.default_rng(0).standard_normal((len(known), DRAWS)), 2), strict=True))

        def resamples(cell: str, known: dict[str, float] = known, drawn: dict[str, Floats] = drawn) -> Floats:
            return known[cell] + SPREAD * drawn[cell][None]

        begin = time.perf_counter()
        judged = judge(folder, claims, scores, resamples)
        took.append(time.perf_counter() - begin)
        found = Counter(one.release.outcome for one in judged.values())
        named = [found.pop(name, 0) for name in ("holds", "fails", "undecided")]
        numbers = [f"{took[-1]:.1f}", f"{took[-1] / len(claims):.2f}", *named, sum(found.values())]
        print(f"| {paper} | {len(claims)} | {len(scores):,} | {' | '.join(map(str, numbers))} |")
    print(f"\n{sum(took):.0f} s for all")


if __name__ == "__main__":
    main()
