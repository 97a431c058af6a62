"""How fast predictions are validated, in one run beside what else there is: `jsonschema`, and merely `json.loads`.

    python benchmarks/validation.py [PREDICTIONS]

Writes a file of predictions (about 1.6 kB, 30 retrieved ids each; a million by default) into a temporary folder, checks
it as a cell's output is checked before publication (schema, ranks, retrieved ids against what had arrived, each exactly
once), and prints a Markdown table. Peak memory is that of the process and its helpers together.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import Callable
from pathlib import Path

import jsonschema
import msgspec

from upkeep.contract import ContextUse, Measured, Prediction, Retrieved, Usage
from upkeep.record_files import check_file
from upkeep.schemas import schema
from upkeep.scope import Answers

STREAMS, INTERVALS, RETRIEVED, SAMPLE = 12, 65, 30, 4000


def write(path: Path, predictions: int) -> Answers:
    """Write predictions as rounds come: stream by stream, interval by interval; the scope that they fill."""
    rng = random.Random(0)
    documents = [f"s{s:02}.{t:03}" for s in range(STREAMS) for t in range(INTERVALS)]
    questions = -(-predictions // (STREAMS * INTERVALS))
    probes, firsts, ends = list[str](), array("q"), array("q")
    encoder = msgspec.json.Encoder()
    with path.open("wb") as file:
        for n in range(predictions):
            interval, question = divmod(n, questions)
            first, last = interval // INTERVALS * INTERVALS, interval + 1
            probes.append(f"q{question:04}@{interval}")
            firsts.append(first)
            ends.append(last)
            ids = rng.choices(documents[first:last], k=RETRIEVED)
            prediction = Prediction(
                probe_id=probes[-1],
                trial=0,
                response="The kitchen.",
                reasoning=None,
                finish_reason="stop",
                retrieved=[Retrieved(id=d, score=round(rng.random(), 6), rank=r) for r, d in enumerate(ids, 1)],
                usage=Usage(prompt=60_000, completion=5, calls=1),
                context=ContextUse(documents=RETRIEVED),
                error=None,
                measured=Measured(latency_s=0.25, cached=58_000),
            )
            file.write(encoder.encode(prediction) + b"\n")
    return Answers(probes, 1, documents, firsts, ends)


def rss() -> int:
    """Resident bytes of this process and its descendants (pages that they share counted once each)."""
    total, wanted = 0, {os.getpid()}
    parents = {int(p.name): p for p in Path("/proc").iterdir() if p.name.isdigit()}
    for pid in sorted(parents):
        try:
            fields = (parents[pid] / "stat").read_text().rpartition(")")[2].split()
            if pid in wanted or int(fields[1]) in wanted:
                wanted.add(pid)
                total += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            continue
    return total


def timed(work: Callable[[], object]) -> tuple[float, int]:
    """Seconds, and peak resident bytes meanwhile (sampled every 50 ms)."""
    peak, done = rss(), threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.05):
            peak = max(peak, rss())

    watcher = threading.Thread(target=watch)
    watcher.start()
    begin = time.perf_counter()
    try:
        work()
        return time.perf_counter() - begin, peak
    finally:
        done.set()
        watcher.join()


def main() -> None:
    predictions = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "predictions.jsonl"
        scope = write(path, predictions)
        size = path.stat().st_size
        with path.open("rb") as file:
            sample = [file.readline() for _ in range(min(SAMPLE, predictions))]

        def ours() -> None:
            check_file(path, Prediction, scope).require_complete()

        validator = jsonschema.Draft202012Validator(schema("prediction"))
        rows = []
        for name, work, lines in (
            ("`upkeep` (schema, ids, completeness)", ours, predictions),
            ("`json.loads`, no check", lambda: [json.loads(line) for line in sample], len(sample)),
            ("`json.loads` + `jsonschema`", lambda: [validator.validate(json.loads(li)) for li in sample], len(sample)),
        ):
            seconds, peak = timed(work)
            rows.append((name, lines, seconds, lines / seconds, peak))
    print(
        f"{predictions:,} predictions of {size / predictions:,.0f} bytes, {len(os.sched_getaffinity(0))} processors\n"
    )
    print("| validator | predictions | seconds | a second | `upkeep` is | peak RSS |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, lines, seconds, rate, peak in rows:
        times = f"{rows[0][3] / rate:,.1f} times as fast" if name != rows[0][0] else ""
        memory = f"{peak / 2**30:.2f} GiB" if name == rows[0][0] else ""
        print(f"| {name} | {lines:,} | {seconds:.2f} | {rate:,.0f} | {times} | {memory} |")


if __name__ == "__main__":
    main()
