"""Counts cells: the method of each is run against the counting engine."""

from __future__ import annotations

import hashlib
import os
import resource
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from upkeep.cell.loading import make_method
from upkeep.cell.lockstep import Handle, lockstep
from upkeep.cell.method import Method
from upkeep.cell.mistakes import describe
from upkeep.cell.runner import AnswerTask
from upkeep.cell.tokens import ChatTokens
from upkeep.contract import CellDescription, Prediction, Round
from upkeep.serving.counting.byte_tokens import ByteTokens
from upkeep.serving.counting.engine import CountingEngine
from upkeep.serving.counting.forms import FormTokens
from upkeep.serving.counting.hashed_words import HashedWords
from upkeep.serving.counting.records import CountJob, Counts, Line
from upkeep.serving.counting.reuse import reuse

CALLS_A_RECORD = 1000
"""Calls for one probe or document, on average, after which a method is taken to go round in circles."""


def count(jobs: Sequence[CountJob], methods: Path) -> list[Counts]:
    """Run each job's method against the counting engine. One that fails as a whole says why; the others go on."""
    found = []
    for job in jobs:
        try:
            found.append(_count(job, methods))
        except Exception as error:
            traceback.print_exc()
            found.append(Counts(lines=[], error=describe(error, f"methods/{job.cell.method}")))
    return found


def _count(job: CountJob, methods: Path) -> Counts:
    cell, spec = job.cell, job.cell.model_spec
    if spec is None:
        raise ValueError("a cell without a model has nothing to count")
    if spec.endpoint is not None and spec.tool_calls is None:  # it is the endpoint that reads the model's calls
        spec = msgspec.structs.replace(spec, tool_calls="hermes")
        cell = msgspec.structs.replace(cell, model_spec=spec)
    tokens = ByteTokens(job.tokens_per_byte) if job.tokens_per_byte else ChatTokens(cell.model_path or "", spec)
    forms, reads = FormTokens(tokens, spec.tool_calls), cell.embedder_spec
    embedder = HashedWords(reads.context_length) if reads is not None else None
    lines: list[Line] = []
    arrivals: list[Mapping[str, Handle]] = []
    for number, path in enumerate(job.passes):
        rounds = [msgspec.json.decode(line, type=Round) for line in Path(path).read_bytes().splitlines()]
        records = sum(len(one.probes) * cell.trials + len(one.documents) for one in rounds) * (1 + len(job.beside))
        engine = CountingEngine(
            forms, spec, reuse(cell, job.held, job.room), job.assumed, CALLS_A_RECORD * max(1, records)
        )
        folder = Path(cell.output) / str(number)
        task, *others = (
            _task(told, make_method(told, methods, embedder, threads=1), engine, folder / str(place))
            for place, told in enumerate((cell, *job.beside))
        )
        with lockstep(engine) as loop:
            for one in rounds:
                # What is asked as documents arrive is counted where none has asked it yet.
                loop.run(task.round(msgspec.structs.replace(one, probes=[], gold=[])))
                for other in others:
                    loop.run(other.round(one))
                loop.run(task.round(msgspec.structs.replace(one, documents=[])))
            for each in (task, *others):
                loop.run(each.method.close())
        lines += _answered(folder / "0" / "predictions.jsonl")
        arrivals.append(task.arrivals)
    first = arrivals[0]  # a further pass has them from the record
    return Counts(
        lines=lines,
        arrivals=[
            Line(key=stream, usage=llm.usage, cached=llm.cached_tokens) for stream, llm in first.items() if llm.calls
        ],
        arrival=_asked(first),
    )


def _task(cell: CellDescription, method: Method, engine: CountingEngine, output: Path) -> AnswerTask:
    output.mkdir(parents=True)
    return AnswerTask(cell, method, engine, output)


def _asked(arrivals: Mapping[str, Handle]) -> str:
    """Hash of what was asked as documents arrived, by stream: a handle of arrivals counts it, for its seeds."""
    asked = [[stream, sorted((llm.asked_before or {}).items())] for stream, llm in sorted(arrivals.items())]
    return hashlib.sha256(msgspec.json.encode(asked)).hexdigest()


def _answered(path: Path) -> Iterator[Line]:
    for line in path.read_bytes().splitlines():
        found = msgspec.json.decode(line, type=Prediction)
        cached = found.measured.cached if found.measured else 0
        yield Line(key=found.probe_id, trial=found.trial, usage=found.usage, cached=cached, error=found.error)


def main(arguments: list[str]) -> int:
    if not 2 <= len(arguments) <= 3:
        print("usage: python -m upkeep.serving.counting JOBS.JSON COUNTS.JSON [METHODS-FOLDER]", file=sys.stderr)
        return 2
    # Each pass of each cell holds a file open.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    jobs = msgspec.json.decode(Path(arguments[0]).read_bytes(), type=list[CountJob])
    methods = Path(arguments[2] if len(arguments) == 3 else os.environ.get("UPKEEP_METHODS", "/methods"))
    Path(arguments[1]).write_bytes(msgspec.json.encode(count(jobs, methods)))
    return 0
