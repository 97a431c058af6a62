"""How fast predictions are validated, graded and scored, on synthetic data of OAKS-B's full size.

    python benchmarks/scoring.py [--predictions 1000000] [--streams 12] [--cells 128] [--keep FOLDER]

Prints a Markdown table: 78,000 predictions (6,500 a stream) of 1.6 kB with 30 retrieved ids each graded and scored,
reading and hashing included; at least the given number of such predictions validated, strictly, and as many graded; and
the verdicts of the given number of such cells scored, as they are when no cell has changed. Each measurement runs in a
process of its own, whose peak memory is the one in the table, with that of its largest helper once for each core.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from upkeep.building.content import PARTS
from upkeep.contract import (
    ContextUse,
    DatasetCard,
    Environment,
    Manifest,
    Prediction,
    Retrieved,
    Usage,
)
from upkeep.grading.graded import Graded, grade_cell
from upkeep.grading.key import key_in
from upkeep.grading.metric_families import read_family
from upkeep.grading.resampling import Draws
from upkeep.grading.score import Identity, score_cell
from upkeep.integrity import fingerprint, verify_folder, write_sealed
from upkeep.jobs import Cell

QUESTIONS, INTERVALS, RETRIEVED = 100, 65, 30
CELL = Cell("oaks_babi", "rag_dense", "k30", "synthetic")
WORDS = "the lantern stood upon a table near the window while rain came over the hills and nobody spoke".split()  # noqa: SIM905


def make_dataset(folder: Path, streams: int) -> None:
    """An answer key as OAKS-B's, which has 12 streams: of each 65 documents and 100 questions."""
    rng = random.Random(0)
    bins, kinds = ["sparse", "moderate", "frequent"], ["tracking", "counting", "bridge", "comparison"]
    probes: list[dict[str, Any]] = []
    gold: list[dict[str, Any]] = []
    for s in range(streams):
        changes = {q: sorted(rng.sample(range(1, INTERVALS), rng.randint(1, 8))) for q in range(QUESTIONS)}
        for t in range(INTERVALS):
            for q in range(QUESTIONS):
                phase = sum(c <= t for c in changes[q])
                probe = f"s{s:02}_q{q:03}@{t}"
                probes.append(
                    {"probe_id": probe, "question_id": f"s{s:02}_q{q:03}", "stream": f"s{s:02}", "position": t}
                )
                evidence = [f"s{s:02}_c{c:03}" for c in changes[q] if c <= t]
                gold.append(
                    {
                        "probe_id": probe,
                        "answers": [str(phase), "three"] if phase else ["Unknown", "0"],
                        "outdated": [],
                        "evidence": evidence,
                        "phase": phase,
                        "slice_changes": bins[q % 3],
                        "slice_type": kinds[q % 4],
                    }
                )
    folder.mkdir(parents=True)
    table = pl.DataFrame(probes, schema_overrides={"position": pl.Int32}).with_columns(
        form=pl.lit("short"), options=pl.lit(None, pl.List(pl.String))
    )
    table.write_parquet(folder / "probes.parquet")
    pl.DataFrame(gold, schema_overrides={"phase": pl.Int32, "outdated": pl.List(pl.String)}).write_parquet(
        folder / "gold.parquet"
    )
    places = [(f"s{s:02}", t, 2000) for s in range(streams) for t in range(INTERVALS)]
    documents = pl.DataFrame(places, {"stream": pl.String, "position": pl.Int32, "tokens": pl.Int32}, orient="row")
    documents.write_parquet(folder / "documents.parquet")
    card = DatasetCard(
        dataset="oaks_babi",
        label="synthetic",
        source="benchmark",
        licence="none",
        tokenizer="none",
        chunk_tokens=2000,
        streams=streams,
        documents=streams * INTERVALS,
        probes=len(probes),
        questions=streams * QUESTIONS,
        slices={},
        statistics={},
        stands_for=None,
        content=dict.fromkeys(PARTS, "0" * 64),
        files={path.name: fingerprint(path) for path in folder.glob("*.parquet")},
    )
    write_sealed(folder / "card.json", card)


def make_cell(dataset: Path, folder: Path, count: int | None = None) -> None:
    """A published cell with one prediction a probe, or at least `count` in as many trials as that takes."""
    rng = random.Random(1)
    probes = pl.read_parquet(dataset / "probes.parquet")
    gold = pl.read_parquet(dataset / "gold.parquet", columns=["answers"])["answers"].to_list()
    trials = -(-(count or 1) // len(probes))
    count = trials * len(probes)
    folder.mkdir(parents=True)
    encode = msgspec.json.Encoder().encode
    path = folder / "predictions.jsonl"
    rows = list(probes.select("probe_id", "position").iter_rows())
    with path.open("wb", buffering=1 << 22) as file:
        for n in range(count):
            probe, position = rows[n % len(rows)]
            chunks = rng.sample(range(position + 1), min(RETRIEVED, position + 1))
            chunks += [0] * (RETRIEVED - len(chunks))
            line = Prediction(
                probe_id=probe,
                trial=n // len(rows),
                response=" ".join(rng.choices(WORDS, k=20))
                + f"\n## Answer: {rng.choice([*gold[n % len(rows)], 'somewhere', 'Unknown'])}",
                reasoning=None,
                finish_reason="stop",
                retrieved=[
                    Retrieved(id=f"{probe[:3]}_c{c:03}", score=round(rng.random(), 4), rank=r)
                    for r, c in enumerate(chunks, 1)
                ],
                usage=Usage(prompt=61_000, completion=40, calls=1),
                context=ContextUse(documents=30),
                error=None,
            )
            file.write(encode(line) + b"\n")
    manifest = Manifest(
        cell=str(CELL),
        identity="0" * 64,
        identity_parts={},
        environment=Environment(
            runtime="process",
            isolated=False,
            image=None,
            digest=None,
            engine="none",
            engine_version="0",
            packages={},
            hardware={},
        ),
        seed=0,
        start="2026-01-01T00:00:00Z",
        end="2026-01-01T00:00:00Z",
        attempts=[],
        probes=len(rows),
        trials=trials,
        outcomes={"answered": count},
        usage=Usage(),
        measured={},
        files={"predictions.jsonl": fingerprint(path)},
    )
    write_sealed(folder / "manifest.json", manifest)


def score(dataset: Path, cell: Path) -> int:
    family = read_family(Path(__file__).resolve().parents[1] / "papers/oaks/metrics.py")
    names = ("RAG", "synthetic", "rag_dense", "", (("k", "30"),), "oaks_babi", "oaks_babi")
    identity = Identity(*names, "release", "", True)
    key, manifest = key_in(dataset, "short_answer", "## Answer:"), verify_folder(cell)
    draws = Draws(CELL.dataset, key.probes["question_id"])
    paths = sorted(_verdicts(cell).glob("*"))
    found = (Graded(pl.read_parquet(path), RETRIEVED) for path in paths) if paths else [grade_it(dataset, cell)]
    count = 0
    for verdicts in found:
        count += len(verdicts.rows)
        assert len(score_cell(verdicts, manifest, CELL, identity, key, family, draws).rows) == 165
    return count


def grade_it(dataset: Path, cell: Path) -> Graded:
    return grade_cell(cell, verify_folder(cell), CELL, key_in(dataset, "short_answer", "## Answer:"))


def grade(dataset: Path, cell: Path) -> int:
    return len(grade_it(dataset, cell).rows)


def keep_verdicts(dataset: Path, run: Path, folder: Path, cells: int) -> None:
    """A folder as `run` with the verdicts of so many cells, each read from a file of its own."""
    folder.mkdir()
    _verdicts(folder).mkdir()
    for path in run.iterdir():
        os.link(path, folder / path.name)
    first = _verdicts(folder) / "0.parquet"
    grade_it(dataset, run).rows.write_parquet(first, compression="zstd", statistics=False)
    for number in range(1, cells):
        os.link(first, first.with_name(f"{number}.parquet"))


def _verdicts(cell: Path) -> Path:
    return cell.with_name(f"{cell.name}.verdicts")


def validate(dataset: Path, cell: Path) -> int:
    from upkeep.record_files import check_file
    from upkeep.scope import Answers

    probes = pl.read_parquet(dataset / "probes.parquet", columns=["probe_id"])["probe_id"].to_list()
    trials = verify_folder(cell).trials
    index = check_file(cell / "predictions.jsonl", Prediction, Answers(probes, trials))
    index.require_complete()
    return len(probes) * trials


def measured(work: Callable[[Path, Path], int], dataset: Path, cell: Path) -> tuple[int, float, float, float]:
    """(predictions, seconds, those of processors, peak GiB) of the work in a fresh process, imports not counted."""
    receive, send = multiprocessing.get_context("spawn").Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=_measure, args=(work, dataset, cell, send))
    process.start()
    send.close()
    result: tuple[int, float, float, float] = receive.recv()
    process.join()
    return result


def _measure(work: Callable[[Path, Path], int], dataset: Path, cell: Path, send: Any) -> None:
    begin, before = time.perf_counter(), sum(os.times()[:4])
    count = work(dataset, cell)
    seconds, spent = time.perf_counter() - begin, sum(os.times()[:4]) - before
    largest_child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (os.cpu_count() or 1)
    send.send((count, seconds, spent, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + largest_child) / 2**20))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--predictions", type=int, default=1_000_000, help="how many to validate")
    parser.add_argument("--streams", type=int, default=12, help="how many of 6,500 predictions to score")
    parser.add_argument("--cells", type=int, default=128, help="how many cells' verdicts to score")
    parser.add_argument("--keep", type=Path, help="make the data here, or use what is here, and leave it")
    arguments = parser.parse_args()
    folder = arguments.keep or Path(tempfile.mkdtemp())
    dataset, run, many = folder / "dataset", folder / "run", folder / f"many-{arguments.predictions}"
    try:
        if not dataset.exists():
            make_dataset(dataset, arguments.streams)
        for cell, count in ((run, None), (many, arguments.predictions)):
            if not cell.exists():
                make_cell(dataset, cell, count)
        kept = folder / f"kept-{arguments.cells}"
        if not kept.exists():
            keep_verdicts(dataset, run, kept, arguments.cells)
        print(f"{os.cpu_count()} cores\n")
        print("| what | predictions | MB | seconds | of processors | predictions/s | peak GiB |")
        print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
        for what, work, cell in (
            ("grade and score one run", score, run),
            ("validate", validate, many),
            ("grade", grade, many),
            ("score what is graded", score, kept),
        ):
            count, seconds, spent, peak = measured(work, dataset, cell)
            read = _verdicts(cell).glob("*") if cell == kept else [cell / "predictions.jsonl"]
            size = sum(path.stat().st_size for path in read) / 1e6
            spent_on = f"{seconds:.2f} | {spent:.2f} | {count / seconds:,.0f} | {peak:.2f}"
            print(f"| {what} | {count:,} | {size:,.0f} | {spent_on} |", flush=True)
    finally:
        if not arguments.keep:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
