"""Claims about the runner: what survives interruptions, and what is booked of a model's answers."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from runner_bench import CHAT, ECHO, SRC, Bench, bench, documents, model, probes, rounds, tiny, unmeasured
from upkeep.cell.runner import Log
from upkeep.contract import (
    EngineSettings,
    Prediction,
    Round,
    Sampling,
)

__all__ = ["bench", "tiny"]


# ---------------------------------------------------------------- resuming


@pytest.mark.parametrize("trials", [1, 3])
def test_what_is_done_is_not_done_again(bench: Bench, trials: int) -> None:
    bench.method(ECHO)
    bench.run(rounds(3), trials=trials)
    whole = bench.predictions()
    for seed in range(10):
        kept = random.Random(seed).sample(whole, len(whole) // 2)
        found = bench.again(rounds(3), kept, trials=trials)
        assert len(found) == len(whole)
        assert unmeasured(found) == unmeasured(whole)
    assert len(bench.again(rounds(3), whole, trials=trials)) == len(whole)
    assert bench.predictions() == []


def test_a_probe_named_twice_in_a_round_is_answered_once(bench: Bench) -> None:
    bench.method(ECHO)
    bench.run([Round(documents=documents([0]), probes=probes(0) + probes(0))])
    assert len(bench.predictions()) == 2


def test_a_whole_line_that_is_no_prediction_stops_the_cell(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_bytes(b'{"probe_id": 1}\n')
    with pytest.raises(msgspec.DecodeError):
        Log(tmp_path / "p.jsonl", Prediction)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_order_and_interruption_never_change_a_prediction(bench: Bench, tiny: Path, temperature: float) -> None:
    bench.method(CHAT)
    setup = model(tiny, sampling=Sampling(temperature=temperature, max_tokens=6))
    bench.run(rounds(4), **setup)
    undisturbed = unmeasured(bench.predictions())
    assert len({p.response for p in bench.predictions()}) > 1

    kept = bench.predictions()[::3]
    assert unmeasured(bench.again(rounds(4), kept, **setup)) == undisturbed

    bench.empty()
    shuffled = EngineSettings(name="transformers", shuffle=True, max_in_flight=3)
    everything = Round(documents=documents(range(4)), probes=[p for t in range(4) for p in probes(t)])
    bench.run([everything], **(setup | {"engine": shuffled}))
    assert unmeasured(bench.predictions()) == undisturbed


def test_a_cell_killed_at_any_moment_ends_with_the_same_predictions(bench: Bench, tiny: Path) -> None:
    bench.method(CHAT)
    work = rounds(3, ["a", "b", "c"])
    bench.run(work, **model(tiny))
    path = bench.output / "predictions.jsonl"
    undisturbed = unmeasured(bench.predictions())
    path.unlink()

    (bench.output / "cell.json").write_bytes(msgspec.json.encode(bench.cell(**model(tiny))))
    command = [sys.executable, "-m", "upkeep.serving.alone", str(bench.output / "cell.json")]
    environment = os.environ | {"PYTHONPATH": str(SRC), "UPKEEP_METHODS": str(bench.methods)}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(work[0]) + b"\n")
    process.stdin.flush()
    while not path.exists() or not path.read_bytes().count(b"\n"):
        assert process.poll() is None
    process.kill()
    process.wait()
    process.stdin.close()
    path.write_bytes(path.read_bytes()[: path.read_bytes().rindex(b"\n") + 1])
    kept = bench.predictions()
    assert 1 <= len(kept) <= 3
    assert unmeasured(bench.again(work, kept, **model(tiny))) == undisturbed


def test_a_cell_that_is_asked_to_end_ends_at_once(bench: Bench) -> None:
    bench.method(ECHO)
    (bench.output / "cell.json").write_bytes(msgspec.json.encode(bench.cell()))
    command = [sys.executable, "-m", "upkeep.cell", str(bench.output / "cell.json"), str(bench.methods)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(SRC)})
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(rounds(1)[0]) + b"\n")
    process.stdin.flush()
    path = bench.output / "predictions.jsonl"
    while not path.exists() or path.read_bytes().count(b"\n") < 2:
        assert process.poll() is None
    process.terminate()
    assert process.wait() == 143
    process.stdin.close()


# ---------------------------------------------------------------- models


def test_usage_and_finish_reason_are_booked(bench: Bench, tiny: Path) -> None:
    bench.method(CHAT)
    bench.run(rounds(2), **model(tiny))
    found = bench.predictions()
    assert all(p.usage.calls == 1 and p.usage.completion == 6 and p.finish_reason == "length" for p in found)
    assert all(p.context.documents == int(p.probe_id[-1]) + 1 for p in found)
    measured = [p.measured for p in found if p.measured is not None]
    assert [m.cached > 0 for m in measured] == [False, True, True, True]
    assert all(m.latency_s > 0 for m in measured)


def test_reasoning_is_kept_apart(bench: Bench, tiny: Path) -> None:
    bench.method(CHAT)
    bench.run(rounds(1, ["a"]), **model(tiny))
    text = bench.predictions()[0].response or ""
    tag = text[2:4]
    (bench.output / "predictions.jsonl").unlink()
    bench.run(rounds(1, ["a"]), **model(tiny, thinking_tags=("<none>", tag)))
    (found,) = bench.predictions()
    assert found.reasoning == text.partition(tag)[0].strip()
    assert found.response == text.partition(tag)[2].lstrip("\n")


def test_reasoning_that_did_not_end_is_no_answer(bench: Bench, tiny: Path) -> None:
    bench.method(CHAT)
    bench.run(rounds(1, ["a"]), **model(tiny, thinking="on", thinking_tags=("<none>", "</none>")))
    (found,) = bench.predictions()
    assert (found.response, found.error) == ("", None)
    assert found.reasoning


def test_a_prompt_that_cannot_fit_is_a_failure_of_its_probe(bench: Bench, tiny: Path) -> None:
    bench.method(CHAT)
    bench.run(rounds(1, ["a"]), **model(tiny, context_length=20))
    assert (bench.predictions()[0].error or "").startswith("PromptTooLong")
