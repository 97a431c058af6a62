"""Whole cells through the door, in real images and environments: any program is a method, and the record knows it."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from door_clients import ALIASES, UPSTREAM
from runner_bench import Bench, bench, documents, model, probes, rounds, tiny
from test_end_to_end import BABI, PROBES, catalog, content, predictions, repository_in
from upkeep.catalog import Catalog
from upkeep.contract import EngineSettings, Prediction, Round
from upkeep.errors import UpkeepError
from upkeep.execution.fetch import fetch
from upkeep.execution.supervise import run_cell
from upkeep.jobs import Cell

__all__ = ["bench", "catalog", "repository_in", "tiny"]

PROGRAM = """
import json
import sys
import threading
import urllib.request


def answer(line):
    body = json.dumps({"model": "gpt-4o-mini", "messages": line["messages"]}).encode()
    headers = {"Authorization": "Bearer " + line["api_key"], "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(line["base_url"] + "/chat/completions", body, headers)) as reply:
        text = json.load(reply)["choices"][0]["message"]["content"]
    said = {"type": "answer", "id": line["id"], "trial": line["trial"], "response": text}
    sys.stdout.write(json.dumps(said) + "\\n")
    sys.stdout.flush()


for line in map(json.loads, sys.stdin):
    if line["type"] == "documents":
        print(json.dumps({"type": "arrived", "stream": line["stream"], "position": line["position"]}), flush=True)
    elif line["type"] == "probe":
        threading.Thread(target=answer, args=[line]).start()
"""


def bring(catalog: Catalog, name: str, command: list[str], code: str) -> Catalog:
    """The repository with one more method: a program."""
    folder = catalog.root / "methods" / name
    shutil.copytree(catalog.root / "methods/closed_book", folder)
    (folder / "method.py").unlink()
    (folder / command[-1]).write_text(code)
    with (folder / "method.yaml").open("a") as card:
        card.write(f"command: {command}\naliases: {{gpt-4o-mini: reader}}\n")
    return Catalog(catalog.root)


def test_a_program_gives_the_bytes_of_closed_book_and_the_record_answers_it(catalog: Catalog) -> None:
    fetch(catalog, "pico")
    own = Cell(BABI, "closed_book", "default", "pico")
    run_cell(catalog, own)
    brought = bring(catalog, "brought", ["python", "program"], PROGRAM)
    manifest = run_cell(brought, theirs := Cell(BABI, "brought", "default", "pico"))
    assert content(brought, theirs) == content(catalog, own)
    assert manifest.outcomes["error"] == 0 and manifest.usage.calls == len(predictions(brought, theirs))
    # What it asks was asked before, word for word.
    assert manifest.measured["new_replies"] == 0 and manifest.measured["recorded_replies"] > PROBES / 2


def test_a_program_that_is_not_in_its_image_is_named_in_the_error(catalog: Catalog) -> None:
    broken = bring(catalog, "unbrought", ["no-such-program", "program"], "")
    with pytest.raises(UpkeepError, match=r"no-such-program program.* cannot be started"):
        run_cell(broken, Cell(BABI, "unbrought", "default", "pico"))


# ---------------------------------------------------------------- the end of a cell


def test_a_cell_ends_when_its_rounds_end_though_a_thread_goes_on(bench: Bench) -> None:
    bench.method(
        """
import threading
class Endless(Method):
    async def answer(self, probe, seen, llm):
        async with self.tools.door.open(llm):
            asyncio.get_running_loop().run_in_executor(None, threading.Event().wait, 5)
        return Answer("## Answer: park")
"""
    )
    bench.run(rounds(2, ["a"]), engine=EngineSettings(name="none"))
    assert [p.response for p in bench.predictions()] == ["## Answer: park"] * 2


KEEPING = """
    KEPT.append(client := OpenAI(base_url=base_url, api_key=api_key))
    if client:"""


def test_connections_that_are_open_at_the_end_leave_no_traceback_in_the_log(
    bench: Bench, tiny: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    kept = UPSTREAM.replace("    with OpenAI(base_url=base_url, api_key=api_key) as client:", KEEPING)
    assert kept != UPSTREAM
    bench.method("KEPT = []\n" + kept)
    bench.run(rounds(1, ["a"]), **model(tiny), **ALIASES)
    assert bench.predictions()[0].error is None
    assert "Traceback" not in capfd.readouterr().err + caplog.text


def test_a_method_without_a_model_is_told_so(bench: Bench) -> None:
    bench.method(UPSTREAM)
    bench.run([Round(documents=documents([0]), probes=probes(0, ["a"]))], **ALIASES)
    (line,) = bench.predictions()
    assert line.error is not None and "call no model" in line.error
    assert msgspec.json.decode(msgspec.json.encode(line), type=Prediction) == line
