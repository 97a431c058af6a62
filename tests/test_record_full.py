"""The record of replies on a file system that is full: no torn or wrong reply, at most the last one lost, and with room
the same command goes on.

The file system is a small one of memory, mounted where the record lies, in a mount namespace of the test's own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from test_disk_full import in_small_disk

ROOMS = (2, 4, 6)
"""Pages of memory that are free when a cell begins: each file takes whole ones."""

METHOD = """
from upkeep.cell import Context, Method


class All(Method):
    async def answer(self, probe, seen, llm):
        return await self.read(probe, llm, Context(recent=seen.documents))
"""

ENGINE = """
import os, sys, zlib
from array import array

from upkeep.cell.lockstep import Engine, Generated
from upkeep.cell.tokens import TokenPrompt
from upkeep.serving import serve

said = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)


class Words:
    def prompt(self, messages, tools=()):
        return TokenPrompt.of([array("i", [zlib.crc32(repr(messages).encode()) >> 1])])

    def count(self, text):
        return 1

    def decode(self, ids):
        return bytes(ids).decode()


class Digests(Engine):
    name, version = "digests", "1"

    def __init__(self, cell):
        super().__init__(Words(), cell.model_spec.context_length)
        self.waiting = []

    def add(self, request):
        self.waiting.append(request)

    @property
    def busy(self):
        return bool(self.waiting)

    def step(self):
        request = self.waiting.pop(0)
        os.write(said, b".")
        text = f"A: {request.prompt.ids()}. " * 40
        return [(request, Generated(list(text.encode()), "stop", 0))]

    def reset(self):
        self.waiting = []


serve.load_engine = Digests
sys.exit(serve.main(sys.argv[1:2]))
"""
"""Replies to a prompt with its digest, at some length, one a step, and leaves a mark for each."""

RUN = """
import json, shutil, sys
from dataclasses import replace
from pathlib import Path

from host_fakes import RunnerRuntime
from suite_fakes import PLAIN, make
from test_record import repeated
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.execution import share
from upkeep.execution.supervise import run_cell
from upkeep.gateway.record import _HEAD, Replies, engines
from upkeep.jobs import Cell
from upkeep.layout import Layout

root, rooms, method, engine = Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3], sys.argv[4]
make(root, "text")
(root / "methods/echo/method.py").write_text(method)
card = root / "models/m/model.yaml"
card.write_text(card.read_text().replace("context_length: 100", "context_length: 1000, sampling: {max_tokens: 9}"))
catalog, cell = Catalog(root), Cell.parse(PLAIN)
layout = Layout(catalog.results)
record, published, work = layout.record, layout.cell(cell), layout.work("cells", cell)
marks, filler = root / "marks", record / "filler"
share.LOSS_S = 0.2  # what a dead engine would be waited for: this one lives


class Runtime(RunnerRuntime):
    def start(self, prepared, launch):
        if launch.arguments:
            launch = replace(launch, arguments=("-c", engine, launch.arguments[-1], str(marks)))
        return super().start(prepared, launch)


def fill(pages):
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
        file.truncate(file.tell() - pages * 4096)


def run():
    "Run the cell: its error, the number of replies that its engine gave, and what is on record then."
    marks.write_bytes(b"")
    error = None
    try:
        run_cell(catalog, cell, runtime=Runtime())
    except UpkeepError as raised:
        error = str(raised)
    return {"error": error, "given": marks.stat().st_size, **on_record()}


def on_record():
    found, sizes = {}, 0
    for _, key, value in Replies(record, parts, "m").entries():
        found[key.hex()] = value.hex()
        sizes += _HEAD.size + len(value)
    accepted = lines(work)
    return {
        "kept": len(calls & found.keys()),
        "all": found == truth,
        "right": found.items() <= truth.items(),
        "torn": sum(log.stat().st_size for log in record.glob("*/*.log")) - sizes,
        "accepted": len(accepted),
        "accepted right": all(responses[one["probe_id"], one["trial"]] == one["response"] for one in accepted),
        "accepted kept": {key for one in accepted for key in one["calls"]} <= found.keys(),
    }


def lines(folder):
    path = folder / "predictions.jsonl"
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


shutil.rmtree(published)
run_cell(catalog, cell, runtime=Runtime())
(known,) = engines(record)
parts, expected = known.parts, (published / "predictions.jsonl").read_bytes()
truth = {key.hex(): value.hex() for _, key, value in Replies(record, parts, "m").entries()}
calls = {key for one in lines(published) for key in one["calls"]}
responses = {(one["probe_id"], one["trial"]): one["response"] for one in lines(published)}
for pages in rooms:
    shutil.rmtree(published)
    shutil.rmtree(record / known.engine)
    fill(pages)
    full, still = run(), run()
    filler.unlink()
    end = run() | {"repeated": repeated(record), "same": (published / "predictions.jsonl").read_bytes() == expected}
    print(json.dumps([full, still, end]))
"""


@pytest.mark.mounts
def test_a_full_record_tears_nothing_loses_the_last_reply_alone_and_goes_on_with_room(tmp_path: Path) -> None:
    root = tmp_path / "suite"
    record = root / "results" / "record"
    record.mkdir(parents=True)
    command = [sys.executable, "-c", RUN, str(root), json.dumps(ROOMS), METHOD, ENGINE]
    lost, some = 0, 0
    for line in in_small_disk(record, command, "size=1m").splitlines():
        full, still, end = steps = json.loads(line)
        for step in (full, still):
            assert "no space left" in step["error"] and str(record) in step["error"], step
            assert "make space" in step["error"] and "the same command continues" in step["error"], step
        assert end["error"] is None and end["same"] and end["all"] and not end["repeated"], steps
        before = 0
        for step in steps:
            assert step["right"] and step["torn"] == 0, steps
            assert step["accepted right"] and step["accepted kept"], steps
            assert step["given"] - (step["kept"] - before) in (0, 1), steps
            lost += step["given"] - (step["kept"] - before)
            before = step["kept"]
        some += 0 < full["kept"] < end["kept"]
    assert some >= 2 and lost >= 1, "it ran full amid replies, and within one"
