"""Claims about the runner: trainings and their checkpoints, and cells on vLLM."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from runner_bench import CHAT, SRC, Bench, bench, documents, model, rounds, tiny, unmeasured
from upkeep.cell.training import Checkpoints
from upkeep.contract import (
    EngineSettings,
    Pair,
    Prediction,
)

__all__ = ["bench", "tiny"]

TRAINER = """
class Trainer(Method):
    def train(self, t):
        t.output.mkdir()
        known = t.checkpoints.latest.name if t.checkpoints.latest else None
        t.checkpoints.save(9 if known else 7, lambda folder: (folder / "state").write_text("x"))
        pairs, documents = [p.answer for p in t.pairs], [d.text for d in t.documents]
        (t.output / "log").write_text(f"{t.spec.label} {t.weights.name} {pairs} {documents} {known}")
"""


def lines_of(path: Path, records: Iterable[msgspec.Struct]) -> str:
    path.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))
    return str(path)


# ---------------------------------------------------------------- training


def test_training_gets_what_it_is_to_learn_and_a_place_for_the_new_model(
    bench: Bench, tiny: Path, tmp_path: Path
) -> None:
    bench.method(TRAINER)
    given = {
        "pairs": lines_of(tmp_path / "pairs.jsonl", [Pair(question="q", answer=a) for a in "xy"]),
        "documents": lines_of(tmp_path / "documents.jsonl", documents([0])),
    }
    log = bench.output / "model" / "log"
    for known in ("None", "step-000000000007"):
        bench.run([], task="train", **given, **model(tiny))
        assert log.read_text() == f"tiny {tiny.name} ['x', 'y'] ['{documents([0])[0].text}'] {known}"
        shutil.rmtree(log.parent)
    assert (bench.output / "engine.json").is_file()


ASKING = """
class Trainer(Method):
    def train(self, t):
        async def study(llm):
            replies = [await llm.chat([{"role": "user", "parts": [d.text]}]) for d in t.documents]
            return [r.text for r in replies]
        t.output.mkdir()
        (t.output / "log").write_text("\\n--\\n".join(t.ask(study)))
"""


def test_a_training_that_does_not_say_so_asks_no_model(bench: Bench, tiny: Path, tmp_path: Path) -> None:
    bench.method(ASKING)
    given = {name: lines_of(tmp_path / name, []) for name in ("pairs", "documents")}
    with pytest.raises(ValueError, match="its card does not say"):
        bench.run([], task="train", **given, **model(tiny))


def test_a_checkpoint_is_whole_or_not_there(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "checkpoints")
    kept.save(1, lambda folder: (folder / "state").write_text("one"))

    def fails(folder: Path) -> None:
        (folder / "state").write_text("tw")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kept.save(2, fails)
    again = Checkpoints(tmp_path / "checkpoints")
    assert again.latest is not None and (again.latest / "state").read_text() == "one"
    again.save(10, lambda folder: (folder / "state").write_text("ten"))
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step-000000000010"]


# ---------------------------------------------------------------- vLLM


@pytest.mark.vllm
def test_vllm_answers_the_same_when_it_goes_on_shares_prefixes_and_agrees_with_transformers(
    bench: Bench, tiny: Path, vllm_python: Path
) -> None:
    bench.method(CHAT)
    work = rounds(4, [f"q{i}" for i in range(6)])
    path = bench.output / "predictions.jsonl"
    bench.run(work, **model(tiny))
    reference = {p.probe_id: p.response for p in bench.predictions()}

    setup = model(tiny) | {"engine": EngineSettings(name="vllm", options={"kv_cache_gib": 0.25})}
    (bench.output / "cell.json").write_bytes(msgspec.json.encode(bench.cell(**setup)))
    runs: list[list[Prediction]] = []
    for attempt in ("whole", "resumed"):
        kept = bench.predictions()[::3] if attempt == "resumed" else []
        path.unlink()
        done = {p.probe_id for p in kept}
        fed = [msgspec.structs.replace(r, probes=[p for p in r.probes if p.id not in done]) for r in work]
        subprocess.run(
            [vllm_python, "-m", "upkeep.serving.alone", str(bench.output / "cell.json"), str(bench.methods)],
            input=b"".join(msgspec.json.encode(r) + b"\n" for r in fed),
            env=os.environ | {"PYTHONPATH": str(SRC)},
            check=True,
        )
        runs.append([*kept, *bench.predictions()])
    first, resumed = runs
    assert unmeasured(first) == unmeasured(resumed)
    same = sum(reference[p.probe_id] == p.response for p in first)
    assert same >= 0.8 * len(first)
    prompt = sum(p.usage.prompt for p in first)
    cached = sum(p.measured.cached for p in first if p.measured)
    assert cached > 0.6 * prompt
