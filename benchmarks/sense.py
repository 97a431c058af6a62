"""Whether the small run measures what it says: methods differ for the right reasons, at 95% confidence.

    ./upkeep run mini
    python benchmarks/sense.py [--suite context|training|caches] [--model pico]

Reads the cells of a suite (`mini` where none is said), prints each expectation with its numbers as a Markdown table,
and ends with 1 where one does not hold. Intervals are of means over questions (10,000 bootstrap resamples with a fixed
seed; all probes of a question are drawn together, the questions of a story apart); of a difference between methods,
over the same questions under both.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
import polars as pl

from upkeep.catalog import Catalog
from upkeep.contract import Prediction
from upkeep.errors import UpkeepError
from upkeep.grading.graded import graded
from upkeep.grading.key import read_key
from upkeep.integrity import verify_folder
from upkeep.jobs import Cell
from upkeep.layout import Layout

ROOT = Path(__file__).resolve().parents[1]
RESAMPLES = 10_000
OTHERS = (
    "evowiki_mini",
    "imprint_code_mini",
    "imprint_news_mini",
    "imprint_personal_mini",
    "evolveqa_aws_mini",
    "evolveqa_aws_control_mini",
    "prelude_mini",
)
RETRIEVING = ("evowiki_mini", "imprint_news_mini", "evolveqa_aws_mini")
"""Datasets on which `mini` runs retrieval and windows."""
OAKS = ("oaks_babi_mini", "oaks_novel_mini")
CHANGES = "oaks_novel_changes"
TAUGHT, ELSEWHERE = "evowiki_mini", "oaks_babi_mini"
"""What models of the suite `training` are trained on and asked about; and trained on, and asked about the other."""
STUDIED = "imprint_personal_mini"
"""What the suite `caches` trains prefixes on, one for each persona, and compresses caches of."""
MEMORIES, CRITICS, SUMMED, SHOWN = "oaks_babi_mini", "evowiki_mini", "imprint_news_mini", "prelude_mini"
"""What the suite `context` asks, one dataset for the methods of each paper."""
FINDS_MORE = 5.0
"""Percent of the questions whose evidence three documents hold and one does not: with fewer, they cannot help."""


@dataclass(frozen=True, slots=True)
class Mean:
    """In percent, with its 95% interval."""

    value: float
    low: float
    high: float
    questions: int

    def __str__(self) -> str:
        return f"{self.value:.1f} [{self.low:.1f}, {self.high:.1f}]"

    @property
    def gain(self) -> str:
        """The same of a difference."""
        return f"{self.value:+.1f} [{self.low:+.1f}, {self.high:+.1f}]"


@dataclass(frozen=True, slots=True)
class Expectation:
    what: str
    found: str
    holds: bool


def resampled(rows: pl.DataFrame, column: str, seed: int = 0) -> tuple[float, np.ndarray, int]:
    """Percent of a column in [0, 1], the same of each resample of the questions, and the number of questions."""
    by_question = rows.group_by("question_id", maintain_order=True).agg(pl.col(column).cast(float).sum(), n=pl.len())
    hits, counts = by_question[column].to_numpy(), by_question["n"].to_numpy()
    if not len(hits):
        return float("nan"), np.full(RESAMPLES, np.nan), 0
    drawn = np.random.default_rng(seed).integers(len(hits), size=(RESAMPLES, len(hits)))
    return 100 * hits.sum() / counts.sum(), 100 * hits[drawn].sum(1) / counts[drawn].sum(1), len(hits)


def mean(rows: pl.DataFrame, column: str) -> Mean:
    """Mean of a column in [0, 1] over questions (columns `question_id` and `column`)."""
    value, means, questions = resampled(rows, column)
    low, high = np.quantile(means, (0.025, 0.975))
    return Mean(value, float(low), float(high), questions)


def difference(first: pl.DataFrame, second: pl.DataFrame, column: str) -> Mean:
    """How much larger the mean of a column is in the first rows than in the second, which have other questions."""
    (one, ones, n), (other, others, m) = (resampled(rows, column, seed) for seed, rows in enumerate((first, second)))
    low, high = np.quantile(ones - others, (0.025, 0.975))
    return Mean(one - other, float(low), float(high), n + m)


class Run:
    """The graded predictions of a run.

    Raises:
        UpkeepError: a cell was not run, or its files do not agree.
    """

    def __init__(self, catalog: Catalog, model: str) -> None:
        self.catalog, self.model = catalog, model
        self.graded = cache(self._graded)
        self.gold = cache(self._gold)

    def _gold(self, dataset: str) -> pl.DataFrame:
        """A row a probe: evidence, and pieces of it; options, and how many of them are outdated."""
        folder = Layout(self.catalog.results).dataset(dataset)
        gold = pl.read_parquet(folder / "gold.parquet", columns=["probe_id", "evidence", "outdated"])
        options = pl.read_parquet(folder / "probes.parquet", columns=["probe_id", "options"])
        return gold.join(options, on="probe_id").select(
            "probe_id",
            "evidence",
            pieces=pl.col("evidence").list.len(),
            stale=pl.col("outdated").list.len(),
            options=pl.col("options").list.len(),
        )

    def _graded(self, dataset: str, method: str) -> pl.DataFrame:
        """A row a probe: right, outdated, slices, what `_gold` says, and documents dropped at the model's limit."""
        name, _, variant = method.partition("/")
        cell = Cell(dataset, name, variant or "default", self.model)
        layout = Layout(self.catalog.results)
        manifest = verify_folder(layout.cell(cell))
        key = read_key(self.catalog, dataset).after(manifest.cutoff)
        lines = (layout.cell(cell) / "predictions.jsonl").read_bytes().splitlines()
        decoded = [msgspec.json.decode(line, type=Prediction) for line in lines]
        shown = pl.DataFrame(
            {
                "probe_id": [p.probe_id for p in decoded],
                "dropped": [p.context.dropped for p in decoded],
                "retrieved": [[r.id for r in p.retrieved] for p in decoded],
            },
            schema_overrides={"retrieved": pl.List(pl.String)},
        )
        verdicts = graded(self.catalog, cell, manifest, key).with_key(key, manifest.trials)
        return verdicts.join(self.gold(dataset), on="probe_id").join(shown, on="probe_id")

    def paired(self, dataset: str, first: str, second: str, other: Run | None = None) -> pl.DataFrame:
        """Rows of `first` with `gain`: how much more it is right than `second`, of this run or another, in [-1, 1]."""
        a, b = self.graded(dataset, first), (other or self).graded(dataset, second)
        both = a.join(b.select("probe_id", other="right"), on="probe_id")
        return both.with_columns(gain=pl.col("right").cast(float) - pl.col("other").cast(float))

    def after(self, training: str) -> Run:
        """The same of the model after a training."""
        return Run(self.catalog, f"{self.model}+{training}")

    def found(self, dataset: str, method: str) -> float:
        """Percent of the probes with evidence of which all is among the retrieved documents."""
        rows = self.graded(dataset, method).filter(pl.col("pieces") > 0)
        missing = rows["evidence"].list.set_difference(rows["retrieved"]).list.len()
        return 100 * float((missing == 0).mean() or 0)

    def lost(self, dataset: str, window: int) -> frozenset[str]:
        """Probes of which no evidence is among the latest `window` documents."""
        folder = Layout(self.catalog.results).dataset(dataset)
        documents = pl.read_parquet(folder / "documents.parquet", columns=["document_id", "position"])
        probes = pl.read_parquet(folder / "probes.parquet", columns=["probe_id", "position"])
        evidence = self.gold(dataset).select("probe_id", document_id="evidence").explode("document_id").drop_nulls()
        latest = (
            evidence.join(documents.rename({"position": "at"}), on="document_id")
            .group_by("probe_id")
            .agg(pl.col("at").max())
            .join(probes, on="probe_id")
        )
        return frozenset(latest.filter(pl.col("at") <= pl.col("position") - window)["probe_id"])


def pooled(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Rows of several datasets in one frame."""
    return pl.concat([f.select("question_id", "right") for f in frames])


def expectations(run: Run) -> Iterator[Expectation]:
    """All of them, in the order of the table."""
    single = mean(
        pooled(run.graded(d, "oracle").filter(pl.col("pieces") == 1, pl.col("form") == "short") for d in OTHERS),
        "right",
    )
    yield Expectation(
        "`oracle`, open questions with one piece of evidence: at least 90%", str(single), single.low >= 90
    )
    for dataset in OTHERS:
        gain = mean(run.paired(dataset, "oracle", "closed_book"), "gain")
        yield Expectation(f"{dataset}: `oracle` above `closed_book`", gain.gain, gain.low > 0)
    for dataset in RETRIEVING:
        rags = ("rag_bm25/k1", "rag_bm25/k3", "rag_bm25/k10")
        best = max(rags, key=lambda method: run.graded(dataset, method)["right"].sum())
        # Where nothing holds an answer, the oracle has nothing to show: ImprintBench does not run it there (BoundAbs).
        above = mean(run.paired(dataset, "oracle", best).filter(pl.col("pieces") > 0), "gain")
        below = mean(run.paired(dataset, best, "closed_book"), "gain")
        what = f"{dataset}, probes with evidence: `oracle` above the best RAG (`{best}`)"
        yield Expectation(what, above.gain, above.low > 0)
        yield Expectation(f"{dataset}: the best RAG above `closed_book`", below.gain, below.low > 0)
        more = mean(run.paired(dataset, "rag_bm25/k3", "rag_bm25/k1"), "gain")
        most = mean(run.paired(dataset, "rag_bm25/k10", "rag_bm25/k3"), "gain")
        finds = run.found(dataset, "rag_bm25/k3") - run.found(dataset, "rag_bm25/k1")
        if finds >= FINDS_MORE:
            what = f"{dataset}: 3 documents, which hold the evidence of {finds:.0f}% more questions, help more than 1"
            yield Expectation(what, more.gain, more.low > 0)
            yield Expectation(f"{dataset}: 10 help no more than 3 by as much", most.gain, most.value < more.value)
        else:
            what = f"{dataset}: 3 documents, which hold the evidence of {finds:.0f}% more questions, do not help more"
            yield Expectation(what, more.gain, more.low <= 0)
    wiki = run.graded("evowiki_mini", "closed_book")
    new = mean(wiki.filter(pl.col("slice_level") == "uncharted"), "right")
    known = mean(wiki.filter(pl.col("slice_level") == "stable", pl.col("slice_hop_number") == "1"), "right")
    evolved = wiki.filter(pl.col("slice_level") == "evolved")
    before, after = (evolved.filter(pl.col("slice_changed") == when) for when in ("before_cutoff", "after_cutoff"))
    old, updated = mean(after, "outdated"), mean(before.filter(pl.col("slice_hop_number") == "1"), "right")
    yield Expectation(
        "evowiki_mini, uncharted: `closed_book` at most 10 points above chance (0)", str(new), new.high <= 10
    )
    yield Expectation("evowiki_mini, stable, one hop: `closed_book` at least 70%", str(known), known.low >= 70)
    what = "evowiki_mini, changed before the cut-off, one hop: `closed_book` at least 70%"
    yield Expectation(what, str(updated), updated.low >= 70)
    what = "evowiki_mini, changed after the cut-off: outdated answers of `closed_book` above 20%"
    yield Expectation(what, str(old), old.low > 20)
    for dataset in OAKS:
        lost = run.lost(dataset, 1)
        both = run.paired(dataset, "long_context", "rolling_window/w1")
        gain = mean(both.filter(pl.col("dropped") == 0, pl.col("probe_id").is_in(list(lost))), "gain")
        what = f"{dataset}: `long_context` with all in its window above `rolling_window/w1` that lost the evidence"
        yield Expectation(what, gain.gain, gain.low > 0)
    # Questions that rest on two documents are hard for that reason and mostly sparse; they would hide the changes.
    stories = run.graded(CHANGES, "long_context").filter(pl.col("pieces") == 1, pl.col("dropped") == 0)
    stories = stories.with_columns(
        gain=pl.col("right").cast(float) - 1 / pl.col("options"),
        older=pl.col("outdated").cast(float) - pl.col("stale") / (pl.col("options") - 1),
    )
    sparse, frequent = (stories.filter(pl.col("slice_changes") == changes) for changes in ("sparse", "frequent"))
    better = difference(sparse, frequent, "gain")
    what = (
        f"{CHANGES}, evidence in one document: `long_context` further above chance where changes are sparse than where"
    )
    yield Expectation(f"{what} frequent ({better.questions} questions)", better.gain, better.low > 0)
    older = mean(frequent.filter(~pl.col("right")), "older")
    what = f"{CHANGES}, the same, frequent: its wrong answers are outdated ones more often than by chance"
    yield Expectation(what, older.gain, older.low > 0)


def trained(run: Run) -> Iterator[Expectation]:
    """Of the suite `training`: what training on a dataset does to what is asked of it, and on another to what was known
    before."""
    sft, cpt = run.after("sft.lora_tiny_brief"), run.after("cpt.lora_tiny")
    asked = pl.col("slice_level") == "uncharted", pl.col("slice_hop_number") == "1"
    taught = mean(sft.paired(TAUGHT, "closed_book", "closed_book", run).filter(*asked), "gain")
    yield Expectation(
        f"{TAUGHT}, new facts of one hop: `sft` raises `closed_book` by at least 30 points",
        taught.gain,
        taught.low >= 30,
    )
    read = mean(cpt.paired(TAUGHT, "closed_book", "closed_book", run).filter(*asked), "gain")
    more = mean(sft.paired(TAUGHT, "closed_book", "closed_book", cpt).filter(*asked), "gain")
    yield Expectation(
        f"{TAUGHT}, the same: `cpt` (which gains {read.gain}) by less than `sft`", more.gain, more.low > 0
    )
    shown = mean(sft.paired(TAUGHT, "oracle", "oracle", run), "gain")
    yield Expectation(f"{TAUGHT}: `oracle` after `sft` not below `oracle`", shown.gain, shown.high >= 0)
    lora, full = (run.after(f"sft.{recipe}_tiny@{ELSEWHERE}") for recipe in ("lora", "full"))
    old = pl.col("slice_level") == "stable", pl.col("slice_hop_number") == "1"
    costs = mean(lora.paired(TAUGHT, "closed_book", "closed_book", full).filter(*old), "gain")
    what = f"{TAUGHT}, old facts of one hop: after `sft` on {ELSEWHERE} in full fewer are left than by LoRA"
    yield Expectation(what, costs.gain, costs.low > 0)
    distilled = run.after(f"sdft.lora_tiny@{ELSEWHERE}")
    kept = mean(distilled.paired(TAUGHT, "closed_book", "closed_book", lora).filter(*old), "gain")
    yield Expectation(
        f"{TAUGHT}, the same: after `sdft` by LoRA more are left than after `sft`", kept.gain, kept.low > 0
    )
    told = mean(run.after("sdft.lora_tiny").paired(ELSEWHERE, "closed_book", "closed_book", run), "gain")
    yield Expectation(f"{ELSEWHERE}: `sdft` raises `closed_book`", told.gain, told.low > 0)


def of_caches(run: Run) -> Iterator[Expectation]:
    """Those of the suite `caches`, in the order of the table."""
    held = run.after(f"cartridges.tiny@{STUDIED}.per_persona")
    gain = mean(held.paired(STUDIED, "closed_book", "closed_book", run), "gain")
    yield Expectation(f"{STUDIED}: a cartridge above `closed_book`", gain.gain, gain.low > 0)
    left = mean(run.paired(STUDIED, "oracle", "closed_book", held), "gain")
    yield Expectation(f"{STUDIED}: `oracle` above a cartridge", left.gain, left.low > 0)
    kept = mean(run.paired(STUDIED, "kvzip/ratio2", "kvzip"), "gain")
    yield Expectation(f"{STUDIED}: `kvzip` that keeps a half not below a sixteenth", kept.gain, kept.high >= 0)


def in_context(run: Run) -> Iterator[Expectation]:
    """Those of the suite `context`, in the order of the table."""
    for dataset, method in (
        (MEMORIES, "hipporag2/k2"),
        (MEMORIES, "memagent/budget64"),
        (MEMORIES, "a_mem/k3"),
        (SUMMED, "rag_agentic/k3"),
        (SHOWN, "deep_research/k3"),
    ):
        gain = mean(run.paired(dataset, method, "closed_book"), "gain")
        yield Expectation(f"{dataset}: `{method}` above `closed_book`", gain.gain, gain.low > 0)
    for dataset, loose, tight in (
        (MEMORIES, "document_summary/budget128", "document_summary/budget32"),
        (SUMMED, "chunked_summary/budget128", "chunked_summary/budget32"),
    ):
        gain = mean(run.paired(dataset, loose, tight), "gain")
        yield Expectation(f"{dataset}: the loose `{loose}` above the tight `{tight}`", gain.gain, gain.low > 0)
    for dataset, larger, smaller in (
        (SUMMED, "memory_scaffold/budget256", "memory_scaffold/budget128"),
        (CRITICS, "self_critique/oracle_oracle", "self_critique/oracle_memory"),
        (CRITICS, "few_shot/five", "closed_book"),
        (SHOWN, "many_shot/all", "closed_book"),
    ):
        gain = mean(run.paired(dataset, larger, smaller), "gain")
        yield Expectation(f"{dataset}: `{larger}` not below `{smaller}`", gain.gain, gain.high >= 0)


SUITES: dict[str, Callable[[Run], Iterator[Expectation]]] = {
    "mini": expectations,
    "context": in_context,
    "training": trained,
    "caches": of_caches,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", choices=SUITES, default="mini")
    parser.add_argument("--model", default="pico")
    parser.add_argument("--root", type=Path, default=ROOT, help="a clone of the suite that has run")
    arguments = parser.parse_args()
    print("| Expectation | Found, % [95%] | Holds |\n| --- | --- | --- |")
    missing = 0
    try:
        for one in SUITES[arguments.suite](Run(Catalog(arguments.root), arguments.model)):
            missing += not one.holds
            print(f"| {one.what} | {one.found} | {'yes' if one.holds else '**no**'} |", flush=True)
    except UpkeepError as error:
        raise SystemExit(f"{error}\n`./upkeep run {arguments.suite}` makes what is missing") from None
    return int(missing > 0)


if __name__ == "__main__":
    sys.exit(main())
