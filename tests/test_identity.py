"""A cell's identity changes with what determines its answers, and with nothing else."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest

from conftest import ROOT
from host_fakes import write_toy
from identity_root import BEFORE, ECHO, both, edit, engine, later_field, root, weights
from upkeep import fields as module
from upkeep.building.content import PARTS
from upkeep.catalog import Catalog
from upkeep.contract import (
    CellDescription,
    Config,
    DatasetCard,
    DatasetSpec,
    Endpoint,
    MethodCard,
    ModelSpec,
    PromptCard,
)
from upkeep.errors import UpkeepError
from upkeep.files import digest
from upkeep.identity import (
    describe,
    identity,
    plan_identity,
    plan_training,
)
from upkeep.integrity import read_sealed, write_sealed
from upkeep.jobs import Cell, Job, Training
from upkeep.layout import Layout

__all__ = ["engine", "root"]


@pytest.mark.parametrize(
    ("record", "fields"),
    [
        (CellDescription, module.DESCRIPTION),
        (PromptCard, module.PROMPT),
        (ModelSpec, module.MODEL),
        (Endpoint, module.ENDPOINT),
        (Config, module.CONFIG),
        (MethodCard, module.METHOD),
        (DatasetSpec, module.DATASET),
    ],
)
def test_every_field_is_classed_as_part_of_the_identity_or_not(
    record: type[msgspec.Struct], fields: module.Fields
) -> None:
    assert set(fields) == set(record.__struct_fields__), "class new fields in upkeep/fields.py"


ASKED = """
import json, sys
from upkeep.cell import wire
from upkeep.contract import DatasetSpec, EngineSettings, ModelSpec, Sampling
from upkeep.fields import DATASET, MODEL, hashed, part, plain
from upkeep.gateway.prompts import reply_key
more = json.loads(sys.argv[1])
sampling = Sampling(**more)
card = {"label": "l", "summary": "s", "source": "hub", "location": "p", "context_length": 9, "licence": "x"}
model = ModelSpec(**card, sampling=sampling, **more)
data = {"label": "l", "summary": "s", "paper": "p", "source": "world", "licence": "x", "prompt": "p"}
dataset = DatasetSpec(**data, equivalence="words", metrics="m", **more)
print(json.dumps([
    plain(part(model, MODEL, "in")),
    plain(part(dataset, DATASET, "in")),
    plain(hashed(EngineSettings(name="vllm", **more))),
    reply_key(b"p", wire.Generate(0, 0, sampling, 0)).hex(),
]))
"""


def test_a_field_that_records_are_given_later_loses_no_reply_and_makes_nothing_stale(tmp_path: Path) -> None:
    def keys(before: str | None, **more: int) -> list[str]:
        root = Path(tempfile.mkdtemp(dir=tmp_path))
        shutil.copytree(ROOT / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__"))
        if before is not None:
            later_field(root, before)
        command = [sys.executable, "-c", ASKED, json.dumps(more)]
        told: list[str] = json.loads(subprocess.check_output(command, env={"PYTHONPATH": str(root / "src")}))
        return told

    now = keys(None)
    assert keys(BEFORE) == now, "what was so before is in no hash"
    for other in (keys(BEFORE, novel=1), keys("{}")):
        assert [a == b for a, b in zip(now, other, strict=True)] == [False] * len(now)


SHORT = "papers/toy/prompts/short.yaml"
CHANGES = {
    "method's code": ("methods/echo/method.py", "# echo", "# echo!"),
    "variant's parameters": ("methods/echo/method.yaml", "a: {n: 1}", "a: {n: 3}"),
    "what the method sees": ("methods/echo/method.yaml", "sees: documents", "sees: evidence"),
    "embedder": ("methods/echo/method.yaml", "papers:", "embedder: e\npapers:"),
    "names of models": ("methods/echo/method.yaml", "papers:", "aliases: {gpt-4o-mini: reader}\npapers:"),
    "one client": ("methods/echo/method.yaml", "papers:", "one_at_a_time: true\npapers:"),
    "limit of calls": ("methods/echo/method.yaml", "papers:", "max_calls: 9\npapers:"),
    "threads": ("methods/echo/method.yaml", "{disk_gb: 1}", "{cpus: 2}"),
    "locked requirements": ("methods/echo/requirements.lock", "", "a==1"),
    "requirements of the slim base": ("containers/base/requirements.lock", "", "b==1"),
    "engine's requirements": ("containers/transformers/requirements.lock", "", "b==1"),
    "build of methods' images": ("containers/method/Dockerfile", "", "USER 0"),
    "code in the container": ("src/upkeep/cell/runner.py", "", "new = 1\n"),
    "contract": ("src/upkeep/contract/__init__.py", "", "new = 1\n"),
    "order of rounds": ("src/upkeep/execution/rounds.py", "", "new = 1\n"),
    "sampling": ("models/m/model.yaml", "summary: s", "summary: s\nsampling: {temperature: 0.7}"),
    "chat template": ("models/m/model.yaml", "summary: s", "summary: s\nchat_template: x"),
    "context length": ("models/m/model.yaml", "length: 100", "length: 101"),
    "another prompt": ("datasets/toy/dataset.yaml", "prompt: short", "prompt: other"),
    "prompt's text": (SHORT, "system: Read.", "system: Read it."),
    "prompt's text without a context": (SHORT, "closed: Say.", "closed: Say it."),
    "what a prompt asks for": (SHORT, "closed:", "asks: {label: Choose.}\nclosed:"),
    "prompt's usual form": (SHORT, "form: short", "form: choice"),
    "prompt's marker": (SHORT, '"A:"', '"B:"'),
    "prompt's headings": (SHORT, "question: Q", "question: ''"),
    "prompt's texts in Chinese": (SHORT, "closed:", "chinese: {system: 读, closed: 说}\nclosed:"),
    "whether a prompt names the newest document": (SHORT, "closed:", "indexed: true\nclosed:"),
    "streams side by side": ("methods/echo/method.yaml", "papers:", "streams: 8\npapers:"),
    "seed": ("config/suites/mini.yaml", "seed: 5", "seed: 6"),
    "trials": ("config/suites/mini.yaml", "trials: 1", "trials: 2"),
}
NO_CHANGES = {
    "a comment in the container's code": ("src/upkeep/cell/runner.py", "", "# new"),
    "words of a contract": ("src/upkeep/contract/__init__.py", "", '"""New."""'),
    "method's label": ("methods/echo/method.yaml", "label: Echo", "label: Other"),
    "another variant": ("methods/echo/method.yaml", "b: {n: 2}", "b: {n: 9}, c: {}"),
    "time limit": ("methods/echo/method.yaml", "{disk_gb: 1}", "{disk_gb: 1, minutes: 9}"),
    "another method": ("methods/guided/method.py", "# guided", "# edited"),
    "another method's image": ("methods/guided/requirements.lock", "", "c==1"),
    "model's label": ("models/m/model.yaml", "label: M", "label: N"),
    "model's memory": ("models/m/model.yaml", "summary: s", "summary: s\nresources: {memory_gb: 9, minutes: 1}"),
    "licence and cut-off": ("models/m/model.yaml", "summary: s", "summary: t\nlicence: MIT\ncutoff: '2024-01-01'"),
    "runtime": ("config/config.yaml", "process", "docker"),
    "a prompt's comments": (SHORT, "# Nobody's.", "# By hand."),
    "a prompt's layout": (SHORT, "closed: Say.", "indexed: false\nclosed: |-\n  Say."),
    "another dataset's prompt": ("papers/toy/prompts/other.yaml", "Read all.", "Read nothing."),
    "scoring": ("datasets/toy/dataset.yaml", "metrics: none", "metrics: oaks"),
    "suite's words": ("config/suites/mini.yaml", "label: l", "label: another"),
}


def test_what_the_suite_calls_its_modules_is_no_part_of_the_identity_but_which_one_is_imported_is(engine: Path) -> None:
    cell = engine / "src/upkeep/cell"
    for name in ("one", "other"):
        (cell / f"{name}.py").write_text(f"def said(): return {name!r}\n")
    (cell / "user.py").write_text("from upkeep.cell.one import said\n")
    before = both(engine)
    edit(engine, "src/upkeep/cell/user.py", "one", "other")
    assert all(a != b for a, b in zip(before, both(engine), strict=True))
    edit(engine, "src/upkeep/cell/user.py", "other", "renamed")
    (cell / "one.py").rename(cell / "renamed.py")
    assert both(engine) == before
    (cell / "user.py").rename(cell / "__main__.py")
    assert all(a != b for a, b in zip(before, both(engine), strict=True)), "Python looks for it by this name"


@pytest.mark.parametrize("change", CHANGES)
def test_what_determines_answers_changes_the_identity(engine: Path, change: str) -> None:
    before = both(engine)
    file, old, new = CHANGES[change]
    edit(engine, file, old, new)
    assert all(a != b for a, b in zip(before, both(engine), strict=True))


@pytest.mark.parametrize("change", NO_CHANGES)
def test_what_does_not_determine_answers_leaves_the_identity(engine: Path, change: str) -> None:
    before = both(engine)
    file, old, new = NO_CHANGES[change]
    edit(engine, file, old, new)
    assert before == both(engine)


def test_readme_bytecode_and_place_are_no_part_of_the_identity(
    engine: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    before = both(engine)
    (engine / "methods/echo/README.md").write_text("words")
    (engine / "methods/echo/__pycache__").mkdir()
    (engine / "methods/echo/__pycache__/method.cpython-311.pyc").write_bytes(b"x")
    (engine / "methods/echo/.method.py.swp").touch()
    assert both(engine) == before
    moved = tmp_path_factory.mktemp("moved") / "elsewhere"
    shutil.copytree(engine, moved)
    assert both(moved) == before


def test_weights_and_dataset_enter_by_their_content(root: Path) -> None:
    before = identity(Catalog(root), ECHO)
    weights(Catalog(root), "m", "1" * 64)
    after = identity(Catalog(root), ECHO)
    assert {name for name in before[1] if before[1][name] != after[1][name]} == {"weights"}
    write_toy(Catalog(root), "other text")
    third = identity(Catalog(root), ECHO)
    assert {name for name in after[1] if after[1][name] != third[1][name]} == {"documents"}
    assert len({before[0], after[0], third[0]}) == 3


READERS = {
    "documents": {"echo", "guided", "keen"},
    "probes": {"echo", "guided", "keen"},
    "examples": {"echo", "guided", "keen", "trainer"},
    "evidence": {"guided", "keen"},
    "answers": {"keen"},
    "outdated": {"keen"},
    "pairs": {"trainer"},
    "slices": set(),
}


@pytest.mark.parametrize("part", PARTS)
def test_a_job_is_stale_by_the_parts_of_a_dataset_that_it_reads(root: Path, part: str) -> None:
    jobs = {
        "echo": ECHO,
        "guided": Cell("toy", "guided", "a", "m"),
        "keen": Cell("toy", "keen", "a", "none"),
        "trainer": Training("toy", "trainer", "a", "m"),
    }
    before = {name: identity(Catalog(root), job) for name, job in jobs.items()}
    path = Layout(Catalog(root).results).dataset("toy") / "card.json"
    card = read_sealed(path, DatasetCard, "")
    write_sealed(path, msgspec.structs.replace(card, content=card.content | {part: "f" * 64}))
    after = {name: identity(Catalog(root), job) for name, job in jobs.items()}
    assert {name for name in jobs if before[name][0] != after[name][0]} == READERS[part]
    for name in READERS[part]:
        assert {one for one, value in after[name][1].items() if before[name][1][one] != value} == {part}


def test_an_edited_prompt_makes_stale_the_cells_of_the_datasets_that_use_it_and_a_new_one_none(root: Path) -> None:
    for name, prompt in (("second", "short"), ("third", "other")):
        (root / "datasets" / name).mkdir()
        text = (root / "datasets/toy/dataset.yaml").read_text()
        (root / "datasets" / name / "dataset.yaml").write_text(text.replace("prompt: short", f"prompt: {prompt}"))
    jobs = [
        kind(dataset, method, variant, "m")
        for dataset in ("toy", "second", "third")
        for kind, method, variant in ((Cell, "echo", "a"), (Cell, "echo", "b"), (Training, "trainer", "a"))
    ]

    def plans() -> dict[Job, str]:
        catalog = Catalog(root)
        return {job: (plan_training if isinstance(job, Training) else plan_identity)(catalog, job) for job in jobs}

    before = plans()
    edit(root, SHORT, "Read.", "Read it.")
    after = plans()
    assert {job for job in jobs if before[job] != after[job]} == {job for job in jobs if job.dataset != "third"}
    (root / "papers/new/prompts").mkdir(parents=True)
    (root / "papers/new/prompts/new.yaml").write_text((root / SHORT).read_text())
    assert plans() == after


def test_prompt_of_the_user_enters_by_its_text(root: Path) -> None:
    before = both(root)
    (root / "mine.txt").write_text("Answer.")
    edit(root, "config/config.yaml", "process", "process, prompts: {short: mine.txt}")
    first = both(root)
    (root / "mine.txt").write_text("Answer!")
    second = both(root)
    assert len({before[0], first[0], second[0]}) == len({before[1], first[1], second[1]}) == 3
    (root / "mine.txt").unlink()
    with pytest.raises(UpkeepError, match="prompt 'short'"):
        both(root)


def test_identity_is_the_hash_of_its_parts(root: Path) -> None:
    sha, parts = identity(Catalog(root), ECHO)
    assert sha == digest(parts)
    assert all(isinstance(value, str) for value in parts.values())


def test_description_tells_nothing_of_the_machine(root: Path) -> None:
    told = msgspec.json.encode(describe(Catalog(root), ECHO, 3)).decode()
    assert str(root) not in told
