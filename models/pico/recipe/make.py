"""`./upkeep train pico`: makes the worlds that the model learns from, and trains its stages inside an engine's
environment."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from recipe.card import card, skills
from recipe.inputs import BASE, DATASETS, SEEDS, write_inputs
from recipe.measured import ITEMS, below, costs, measure
from recipe.settings import Given, Stage
from recipe.stages import STAGES
from upkeep import weights
from upkeep.catalog import Catalog
from upkeep.contract import Resources
from upkeep.errors import UpkeepError, unknown
from upkeep.execution.runtimes import Prepared, Runtime
from upkeep.file_locks import locked
from upkeep.files import write_atomically
from upkeep.integrity import fingerprint
from upkeep.layout import Layout

HERE = Path(__file__).resolve().parent
NO_WEIGHT = ("__main__", "card", "evaluate", "inputs", "make", "measured", "stages")
"""Modules that decide no weight; what `inputs` and `stages` give counts by its content."""
SHIPPED = HERE.parent
"""The model that the suite comes with."""
TRAINED = HERE / "trained"
"""What the stages before the last have made, in a folder by each one's name."""
OTHERS = HERE / "other_seeds.json"
"""What the shipped model's last stage has reached with other seeds."""
WITH = "rag_agentic"
"""A method with all the packages that those of the lessons need, to retrieve above all."""
RECORD, LOG, REPLIES = "training.json", "log.jsonl", "replies.jsonl"


def train(catalog: Catalog, output: Path, start: str | None, changes: Mapping[str, Any]) -> None:
    """Train all stages after `start`, each from the weights of the one before, and put the last at `output`, with
    `training.json` (what it was made of, how well it does), `log.jsonl` (recipe and curve) and the model card. What was
    begun with the same code, stage, weights and worlds is gone on with. At its place in the suite, the hash of what was
    made is pinned in `models/pico/model.yaml`, and what the stages before made is kept, too. What the shipped model's
    last stage reaches with another seed stands on the shipped card from then on, wherever that model is put.

    Args:
        start: the stage whose weights are at hand, in `recipe/trained`, in `models/pico` or where an earlier call left
            them; None begins with nothing.
        changes: fields of `recipe.settings.Stage` for the last stage, where others are wanted than its own.

    Raises:
        UpkeepError: there is no such stage, its weights are not at hand, a world cannot be built, the training fails,
            or a stage costs an earlier skill more than it may.
        Held: another process of this copy of the suite trains.
    """
    from upkeep.execution.detection import detect

    names = [stage.name for stage in STAGES]
    if start is not None and start not in names[:-1]:
        raise unknown("stage to go on from", start, names[:-1], "none of them, or the last one")
    first = 0 if start is None else names.index(start) + 1
    made = {} if start is None else {start: _weights_of(catalog, start)}
    runtime = detect(catalog)
    with locked(_inputs(catalog)):
        prepared = runtime.prepare(WITH, "transformers")
        base = next(iter(made.values()), None)
        for n, stage in enumerate(STAGES[first:], start=first):
            chosen = msgspec.structs.replace(stage, **changes) if stage is STAGES[-1] else stage
            base = made[stage.name] = _trained(catalog, runtime, prepared, chosen, STAGES[:n], base)
        _put(catalog, made, output)


def _put(catalog: Catalog, made: Mapping[str, Path], output: Path) -> None:
    """Put the last of some stages' models at `output`, with its card. At its place in the suite, its hash is pinned,
    and what it went on from kept."""
    *before, latest = made
    spec = catalog.model("pico")
    pinned = spec.sha256 if output.resolve() == weights.place(catalog, "pico", spec) else None
    for name in before if pinned else ():
        if made[name] != TRAINED / name:
            _copy(made[name], TRAINED / name)
    _copy(made[latest], output)
    if pinned:
        sha = weights.content_of({p.relative_to(output).as_posix(): fingerprint(p) for p in weights.files_of(output)})
        path = catalog.root / catalog.model_card("pico")
        write_atomically(path, path.read_bytes().replace(pinned.encode(), sha.encode()))
    _write_card(output)


def _write_card(folder: Path) -> None:
    """The card of a model; on that of the shipped one stands what other seeds have reached."""
    record = json.loads((folder / RECORD).read_text())
    (folder / "README.md").write_text(card(record, folder / LOG, _others(_last(record))))


def _last(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The last stage's line of a record; empty in one without any."""
    stages: Sequence[Mapping[str, Any]] = record.get("stages", [{}])
    return stages[-1]


def _others(line: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What other seeds have reached of the stage of a record's line, where it is the shipped one."""
    known = json.loads(OTHERS.read_text()) if OTHERS.is_file() else []
    return [one for one in known if one["shipped_data_sha256"] == line.get("data_sha256")]


def _note_other_seed(inputs: Path, work: Path, lost: Sequence[str]) -> None:
    """Where a trained stage is the shipped model's last one but for its seed (the same worlds, lessons and weights to
    begin with), keep what it has reached beside that model, and put it on the card.

    Args:
        lost: the skills that it costs more than it may.
    """
    record = json.loads((work / RECORD).read_text())
    told = json.loads((SHIPPED / RECORD).read_text()) if (SHIPPED / RECORD).is_file() else {}
    line, shipped = _last(record), _last(told)
    made_of = shipped.get("data_sha256")
    if made_of is None or line["seed"] == shipped["seed"] or made_of != _key(inputs, shipped["seed"]):
        return
    right = {skill: found["right"] for skill, found in record["accuracy"].items()}
    kept = {name: line[name] for name in ("seed", "seconds", "loss")}
    others = {one["seed"]: one for one in _others(shipped)}
    others[line["seed"]] = {**kept, "right": right, "lost": [*lost], "shipped_data_sha256": made_of}
    OTHERS.write_text(json.dumps([others[seed] for seed in sorted(others)], indent=1) + "\n")
    _write_card(SHIPPED)


def _copy(made: Path, output: Path) -> None:
    """A stage's model with its log and its record, without which it is none: that comes last."""
    output.mkdir(parents=True, exist_ok=True)
    (output / RECORD).unlink(missing_ok=True)
    for name in (*BASE, LOG, RECORD):
        shutil.copyfile(made / name, output / name)


def evaluate(catalog: Catalog, folder: Path) -> str:
    """What the weights of a folder can do now: the card's table of skills."""
    from upkeep.execution.detection import detect

    runtime = detect(catalog)
    prepared = runtime.prepare(WITH, "transformers")
    done = stages_of(folder)
    inputs = Layout(catalog.results).weights("pico-evaluation")
    place = [stage.name for stage in STAGES].index(done[-1])
    write_inputs(catalog, inputs, STAGES[place], STAGES[:place], None)
    work = Layout(catalog.results).weights("pico-evaluated")
    work.mkdir(parents=True, exist_ok=True)
    _evaluated(runtime, prepared, inputs, folder, work, REPLIES)
    return skills(measure(work / REPLIES), [stage.name for stage in STAGES], DATASETS)


def stages_of(folder: Path) -> list[str]:
    """The stages that made a model; what was trained before there were several is of the first."""
    record = json.loads((folder / RECORD).read_text())
    return [one["stage"] for one in record.get("stages", ({"stage": STAGES[0].name},))]


def _weights_of(catalog: Catalog, stage: str) -> Path:
    for folder in (TRAINED / stage, SHIPPED, *_left(catalog, stage)):
        if (folder / RECORD).is_file() and stages_of(folder)[-1] == stage:
            return folder
    raise UpkeepError(
        f"the weights of the stage {stage!r} are not at hand",
        where=TRAINED,
        expected=f"a folder {stage!r} with its model",
        remedy="`./upkeep train pico --output FOLDER` trains all stages from nothing, and leaves each one's weights",
    )


def _left(catalog: Catalog, stage: str) -> list[Path]:
    """Where earlier calls have trained a stage."""
    return sorted(Layout(catalog.results).weights("pico").parent.glob(f"pico-{stage}-*"))


def _inputs(catalog: Catalog) -> Path:
    return Layout(catalog.results).weights("pico-inputs")


def _trained(
    catalog: Catalog,
    runtime: Runtime,
    prepared: Prepared,
    stage: Stage,
    earlier: Sequence[Stage],
    base: Path | None,
) -> Path:
    """The folder of a trained stage, with its record."""
    inputs = _inputs(catalog)
    write_inputs(catalog, inputs, stage, earlier, base)
    key = _key(inputs)
    work = Layout(catalog.results).weights(f"pico-{stage.name}-{key[:16]}")
    work.mkdir(parents=True, exist_ok=True)
    given = {"cell": inputs, "recipe": HERE}
    place = {name: runtime.path_of(name, path) for name, path in (given | {"output": work}).items()}
    before = work / f"before.{_asked(inputs)[:16]}.{REPLIES}"
    if base is not None and not before.is_file():
        _evaluated(runtime, prepared, inputs, base, work, before.name)
    resources = Resources(cpus=2, memory_gb=16, minutes=360)
    call = [place["recipe"], "train", place["cell"], place["output"]]
    runtime.run_tool(prepared, call, inputs=given, output=work, resources=resources)
    _evaluated(runtime, prepared, inputs, work, work, REPLIES)
    _record(inputs, work, stage, earlier, base, before)
    lost: Mapping[str, tuple[float, float]] = {}
    if base is not None:
        asked = measure(before)
        # Items of one list are right or wrong together, so that they say less than as many questions.
        guarded = [s for s in asked if s.partition(": ")[0] not in DATASETS and not s.endswith(ITEMS)]
        lost = costs(before, work / REPLIES, guarded)
    _note_other_seed(inputs, work, [*lost])
    if lost:
        raise UpkeepError(
            f"the stage {stage.name!r} costs earlier skills more than two points",
            where=work,
            expected="as many right answers to the same questions as before it",
            found="; ".join(f"{skill}: {100 * a:.0f}% before, {100 * b:.0f}% after" for skill, (a, b) in lost.items()),
            remedy="let earlier lessons come back more often (`replay` in recipe/stages.py), or train fewer steps",
        )
    return work


def _key(inputs: Path, seed: int | None = None) -> str:
    """What the weights are made of.

    Args:
        seed: as if it were this one.
    """
    given = (inputs / "given.json").read_bytes()
    if seed is not None:
        told = msgspec.json.decode(given, type=Given)
        stage = msgspec.structs.replace(told.stage, seed=seed)
        given = msgspec.json.encode(msgspec.structs.replace(told, stage=stage))
    code = sorted(path for path in HERE.glob("*.py") if path.stem not in NO_WEIGHT)
    asked = sorted((inputs / "methods").glob("*/method.py"))
    base = sorted(path for path in (inputs / "base").iterdir() if path.name in BASE)
    rest = b"".join(path.read_bytes() for path in (*code, *asked, *base))
    return hashlib.sha256((inputs / "worlds.jsonl").read_bytes() + given + rest).hexdigest()


def _asked(inputs: Path) -> str:
    """What models are asked, besides what their weights are made of: of the same stage both are asked the same."""
    parts = (HERE / "evaluate.py", inputs / "held_out.jsonl", inputs / "unseen.jsonl")
    return hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()


def _evaluated(runtime: Runtime, prepared: Prepared, inputs: Path, model: Path, work: Path, name: str) -> None:
    given = {"cell": inputs, "recipe": HERE, "model": model}
    place = {role: runtime.path_of(role, path) for role, path in (given | {"output": work}).items()}
    call = [place["recipe"], "evaluate", place["cell"], place["model"], f"{place['output']}/{name}"]
    resources = Resources(cpus=2, memory_gb=16, minutes=360)
    runtime.run_tool(prepared, call, inputs=given, output=work, resources=resources)


def _record(
    inputs: Path,
    work: Path,
    stage: Stage,
    earlier: Sequence[Stage],
    base: Path | None,
    before_file: Path,
) -> None:
    """Write down what a stage was made of, and what came of it.

    Args:
        before_file: replies of the model that it goes on from.
    """
    last = [json.loads(line) for line in (work / LOG).read_text().splitlines() if '"step"' in line][-1:]
    after = measure(work / REPLIES)
    before = measure(before_file) if base is not None else {}
    line = {
        "stage": stage.name,
        "after": stage.after,
        "seed": stage.seed,
        "data_sha256": _key(inputs),
        "steps": stage.steps,
        "tokens": sum(one["tokens"] for one in last) * stage.workers,
        "seconds": sum(one["seconds"] for one in last),
        "loss": last[0]["loss"] if last else None,
        "below_floors": below(after, {k: v for one in (*earlier, stage) for k, v in one.floors.items()}),
        "before": {skill: before[skill]["right"] for skill in before if ": " not in skill},
        "right": {skill: after[skill]["right"] for skill in after if ": " not in skill},
    }
    earlier_lines = json.loads((base / RECORD).read_text()).get("stages") if base is not None else []
    record = {
        "datasets": list(DATASETS),
        "seeds": [SEEDS.start, SEEDS.stop - 1],
        "worlds_sha256": hashlib.sha256((inputs / "worlds.jsonl").read_bytes()).hexdigest(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "accuracy": after,
        "stages": [*(earlier_lines if earlier_lines is not None else [{"stage": STAGES[0].name}]), line],
    }
    (work / RECORD).write_text(json.dumps(record, indent=1) + "\n")
