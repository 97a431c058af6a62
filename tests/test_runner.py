"""Claims about the runner: what a method sees, and what is written."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys

import msgspec
import pytest

from host_fakes import answer_of
from runner_bench import ECHO, SRC, Bench, bench, documents, probes, rounds
from upkeep.cell.loading import load_method
from upkeep.cell.mistakes import describe
from upkeep.cell.runner import run
from upkeep.contract import (
    EngineSettings,
    Gold,
    Round,
)

__all__ = ["bench"]

FIRST = """
import importlib, sys
for name in sys.argv[1:]:
    for known in [known for known in sys.modules if known.partition(".")[0] == "upkeep"]:
        del sys.modules[known]
    importlib.import_module(name)
"""

# ---------------------------------------------------------------- the package


def test_every_module_of_a_container_can_be_the_first_that_is_imported() -> None:
    """Then none imports another in a circle. Those of engines that are not installed here are left out."""
    paths = sorted(path for part in ("cell", "serving") for path in (SRC / "upkeep" / part).rglob("*.py"))
    names = [".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__") for path in paths]
    names = [name for name in names if not name.endswith("__main__") and "vllm" not in name]
    subprocess.run([sys.executable, "-c", FIRST, *names], check=True, env=os.environ | {"PYTHONPATH": str(SRC)})


# ---------------------------------------------------------------- what a method sees


def test_a_method_sees_the_documents_up_to_its_probe_and_no_later_one(bench: Bench) -> None:
    bench.method(ECHO)
    bench.run(rounds(3))
    seen = {p.probe_id: answer_of(p) for p in bench.predictions()}
    assert seen["sa@0"] == "s0"
    assert seen["sb@2"] == "s0,s1,s2"


def test_a_probe_about_the_past_does_not_see_what_arrived_since(bench: Bench) -> None:
    bench.method(ECHO)
    bench.run([Round(documents=documents(range(4)), probes=probes(1) + probes(3))])
    seen = {p.probe_id: answer_of(p) for p in bench.predictions()}
    assert (seen["sa@1"], seen["sa@3"]) == ("s0,s1", "s0,s1,s2,s3")


def test_a_method_sees_its_own_stream_alone(bench: Bench) -> None:
    bench.method(ECHO)
    bench.run([Round(documents=documents([0]) + documents([0], "t"), probes=probes(0) + probes(0, stream="t"))])
    assert {p.probe_id: answer_of(p) for p in bench.predictions()}["ta@0"] == "t0"


def test_the_next_round_is_read_when_the_predictions_of_this_one_are_on_disk(bench: Bench) -> None:
    bench.method(ECHO)
    path = bench.output / "predictions.jsonl"
    on_disk = []

    class Host(io.BytesIO):
        def readline(self, size: int | None = -1, /) -> bytes:
            on_disk.append(path.read_bytes().count(b"\n"))
            return super().readline(size)

    lines = b"".join(msgspec.json.encode(r) + b"\n" for r in rounds(3))
    run(bench.cell(), bench.methods, Host(lines))
    assert on_disk == [0, 2, 4, 6]


def test_a_probe_about_a_document_that_has_not_arrived_stops_the_cell(bench: Bench) -> None:
    bench.method(ECHO)
    with pytest.raises(ValueError, match="1 documents"):
        bench.run([Round(documents=documents([0]), probes=probes(1))])
    assert bench.predictions() == []


def test_documents_out_of_order_stop_the_cell(bench: Bench) -> None:
    bench.method(ECHO)
    with pytest.raises(ValueError, match="position 2"):
        bench.run([Round(documents=documents([0, 2]), probes=[])])


def test_the_answer_key_reaches_only_the_probe_it_belongs_to(bench: Bench) -> None:
    bench.method(
        """
class Key(Method):
    async def answer(self, probe, seen, llm):
        return Answer("## Answer: " + (seen.gold.answers[0] if seen.gold else "nothing"))
"""
    )
    gold = Gold(probe_id="sa@0", answers=["park"], outdated=[], evidence=[])
    bench.run([Round(documents=documents([0]), probes=probes(0), gold=[gold])])
    assert {p.probe_id: answer_of(p) for p in bench.predictions()} == {"sa@0": "park", "sb@0": "nothing"}


def test_documents_arrive_before_their_probes_are_answered(bench: Bench) -> None:
    bench.method(
        """
class Count(Method):
    n = 0
    async def arrive(self, stream, documents, llm):
        self.n += len(documents)
    async def answer(self, probe, seen, llm):
        return Answer(f"## Answer: {self.n}")
"""
    )
    bench.run(rounds(3, ["a"]))
    assert [answer_of(p) for p in bench.predictions()] == ["1", "2", "3"]


# ---------------------------------------------------------------- what is written


def test_a_method_that_raises_gives_a_line_with_its_error_and_the_cell_goes_on(bench: Bench) -> None:
    bench.method(
        """
class Broken(Method):
    async def answer(self, probe, seen, llm):
        if probe.question_id == "sa":
            raise KeyError("lamp \\ud800")
        return Answer("## Answer: park")
"""
    )
    bench.run(rounds(1))
    failed, fine = bench.predictions()
    assert failed.error is not None
    assert failed.error.startswith("KeyError:") and failed.error.endswith(" (methods/m/method.py:9)")
    assert (failed.response, failed.finish_reason) == (None, "none")
    assert (fine.error, fine.response) == (None, "## Answer: park")


@pytest.mark.parametrize(
    "answer",
    [
        "Answer(5)",
        'Answer("\\ud800")',
        "Answer('x', retrieved=[Retrieved(id='s0', score=float('nan'), rank=1)])",
        "Answer('x', retrieved=[Retrieved(id='s0', score=1.0, rank=0)])",
        "Answer('x' * 1_000_001)",
    ],
)
def test_an_answer_that_breaks_the_contract_is_a_failure_with_a_line(bench: Bench, answer: str) -> None:
    bench.method(
        f"""
from upkeep.cell import Retrieved
class Odd(Method):
    async def answer(self, probe, seen, llm):
        return {answer}
"""
    )
    bench.run(rounds(1, ["a"]))
    (line,) = bench.predictions()
    assert line.error
    assert answer_of(line) is None


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("async def answer(self, *_): return 'park'", "returned str, expected an Answer: `return Answer(text)`"),
        ("async def answer(self, *_): pass", "returned NoneType, expected an Answer: `return Answer(text)`"),
        (
            "async def answer(self, *_): return asyncio.sleep(0)",
            "returned what it did not wait for: write `return await",
        ),
        ("def answer(self, *_): return Answer('park')", "is no coroutine: write `async def answer("),
        ("def answer(self, *_): return 'park'", "is no coroutine: write `async def answer("),
    ],
)
def test_what_is_no_answer_is_told_with_what_to_write(bench: Bench, answer: str, told: str) -> None:
    bench.method(f"class Odd(Method):\n    {answer}\n")
    bench.run(rounds(1, ["a"]))
    (line,) = bench.predictions()
    assert (line.error or "").startswith(f"TypeError: methods/m/method.py: `answer` {told}")


def test_numbers_that_a_method_measured_are_in_its_prediction(bench: Bench) -> None:
    bench.method("""
class Values(Method):
    async def answer(self, probe, seen, llm):
        return Answer(None, values={"score": -2.5, "bad": float(self.parameters["bad"])})
""")
    bench.run(rounds(1), parameters={"bad": "7"})
    assert {tuple(p.values.items()) for p in bench.predictions()} == {(("score", -2.5), ("bad", 7.0))}
    (bench.output / "predictions.jsonl").unlink()
    for bad in ("nan", "inf"):
        bench.run(rounds(1), parameters={"bad": bad})
        assert all("values" in (p.error or "") and not p.values for p in bench.predictions()), bad
        (bench.output / "predictions.jsonl").unlink()


def test_every_probe_is_answered_in_every_trial(bench: Bench) -> None:
    bench.method(ECHO)
    bench.run(rounds(2), trials=3)
    keys = [(p.probe_id, p.trial) for p in bench.predictions()]
    assert len(keys) == len(set(keys)) == 12


def test_predictions_are_in_the_order_of_the_round(bench: Bench) -> None:
    bench.method(ECHO)
    names = [f"q{i}" for i in range(40)]
    bench.run(rounds(1, names), engine=EngineSettings(name="none", max_in_flight=3))
    assert [p.probe_id for p in bench.predictions()] == [f"s{n}@0" for n in names]


def test_no_more_probes_are_in_flight_than_allowed(bench: Bench) -> None:
    bench.method(
        """
class Busy(Method):
    now = most = 0
    async def answer(self, probe, seen, llm):
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        return Answer(f"## Answer: {self.most}")
"""
    )
    bench.run(rounds(1, [f"q{i}" for i in range(20)]), engine=EngineSettings(name="none", max_in_flight=4))
    assert answer_of(bench.predictions()[-1]) == "4"


def test_environment_is_on_record(bench: Bench) -> None:
    bench.method(ECHO)
    bench.run([])
    found = json.loads((bench.output / "engine.json").read_text())
    assert found["engine"] == "none"
    assert "msgspec" in found["packages"]
    assert found["hardware"]["cores"] >= 1


def test_an_error_is_cut_to_what_the_contract_allows() -> None:
    assert len(describe(ValueError("x" * 50_000), "tests")) == 10_000
    try:
        raise ValueError("x" * 50_000)
    except ValueError as error:
        found = describe(error, "tests")
    assert len(found) == 10_000 and re.search(r"x \(tests/test_runner\.py:\d+\)$", found)


@pytest.mark.parametrize("code", ["", ECHO + ECHO.replace("Echo", "Again")])
def test_a_method_file_defines_exactly_one_method(bench: Bench, code: str) -> None:
    bench.method(code)
    with pytest.raises(ValueError, match="one subclass"):
        load_method(bench.methods, "m")
