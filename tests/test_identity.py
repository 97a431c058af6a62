"""A cell's identity changes with what determines its answers, and with nothing else."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from conftest import ROOT
from host_fakes import make_repository, write_toy
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
    Resources,
)
from upkeep.errors import UpkeepError
from upkeep.execution import fetch as fetching
from upkeep.files import digest
from upkeep.identity import (
    describe,
    identity,
    plan_dataset,
    plan_identity,
    plan_image,
    plan_training,
    plan_weights,
    resources,
)
from upkeep.integrity import fingerprint, read_sealed, write_sealed
from upkeep.jobs import Cell, Job, Training
from upkeep.layout import Layout
from upkeep.weights import Weights, WeightsRecord, content_of, files_of

ECHO = Cell("toy", "echo", "a", "m")
CARD = """label: M
summary: s
source: package
location: weights
context_length: 100
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    catalog = make_repository(tmp_path)
    for model, card in (("m", CARD), ("e", CARD + "role: embedder\n")):
        (tmp_path / "models" / model).mkdir(parents=True)
        (tmp_path / "models" / model / "model.yaml").write_text(card)
    for method in ("echo", "guided", "trainer"):
        edit(tmp_path, f"methods/{method}/method.yaml", "model: false", "model: true")
    weights(catalog, "m", "0" * 64)
    weights(catalog, "e", "e" * 64)
    return tmp_path


def weights(catalog: Catalog, model: str, sha256: str) -> None:
    folder = catalog.results / "models"
    folder.mkdir(parents=True, exist_ok=True)
    write_sealed(folder / f"{model}.json", WeightsRecord(model=model, sha256=sha256, files={}))


def edit(root: Path, file: str, old: str, new: str) -> None:
    text = (root / file).read_text()
    assert old in text
    (root / file).write_text(text.replace(old, new))


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
GIVEN = ("ModelSpec", "DatasetSpec", "EngineSettings", "Sampling")
BEFORE = str({record: {"novel": 0} for record in GIVEN})


def later_field(root: Path, before: str, records: Collection[str] = GIVEN) -> None:
    """Give records a field, of which LATER says `before`."""
    for file in (root / "src/upkeep/contract").glob("*.py"):
        lines = file.read_text().splitlines(keepends=True)
        classes = [node for node in ast.parse("".join(lines)).body if isinstance(node, ast.ClassDef)]
        for node in reversed([node for node in classes if node.name in records]):
            lines.insert(node.body[0].end_lineno or 0, "    novel: int = 0\n")
        file.write_text("".join(lines))
    fields = root / "src/upkeep/fields.py"
    text = re.sub(r"(?m)^((?:MODEL|DATASET): Fields = \{)", r'\1\n    "novel": "in",', fields.read_text())
    fields.write_text(text.replace("Mapping[str, Any]] = {}", f"Mapping[str, Any]] = {before}", 1))


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
    "code in the container": ("src/upkeep/cell/runner.py", "", "# new"),
    "contract": ("src/upkeep/contract/__init__.py", "", "# new"),
    "order of rounds": ("src/upkeep/execution/rounds.py", "", "# new"),
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


def both(root: Path, cell: Cell = ECHO) -> tuple[str, str]:
    catalog = Catalog(root)
    return identity(catalog, cell)[0], plan_identity(catalog, cell)


@pytest.fixture
def engine(root: Path) -> Path:
    for place in ("transformers/requirements.lock", "method/Dockerfile"):
        (root / "containers" / place).parent.mkdir()
        (root / "containers" / place).touch()
    return root


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


def test_trained_model_is_planned_by_its_training(root: Path) -> None:
    trained = Cell("toy", "echo", "a", "m+trainer.a")
    before = plan_identity(Catalog(root), trained), plan_identity(Catalog(root), ECHO)
    (root / "methods/trainer/method.py").write_text("# another training")
    after = plan_identity(Catalog(root), trained), plan_identity(Catalog(root), ECHO)
    assert before[0] != after[0]
    assert before[1] == after[1]
    with pytest.raises(UpkeepError, match="the trained model is not there"):
        identity(Catalog(root), trained)


def test_plans_need_nothing_built(root: Path) -> None:
    shutil.rmtree(root / "results")
    catalog = Catalog(root)
    plans = [
        plan_identity(catalog, ECHO),
        plan_dataset(catalog, "toy"),
        plan_image(catalog, "echo", "base"),
        plan_image(catalog, None, "transformers"),
        plan_weights(catalog, "m"),
    ]
    assert len(set(plans)) == 5


def test_image_is_planned_by_the_code_that_is_in_it(root: Path) -> None:
    def plans() -> dict[str | None, str]:
        return {m: plan_image(Catalog(root), m, "base") for m in ("echo", "guided", None)}

    first = plans()
    (root / "methods/echo/method.py").write_text("# edited")
    second = plans()
    assert {m for m in first if first[m] != second[m]} == {"echo"}
    (root / "src/upkeep/cell/runner.py").write_text("# edited")
    assert {m for m, plan in plans().items() if plan != second[m]} == {"echo", "guided", None}


def test_job_gets_the_larger_of_what_method_and_model_ask_for(root: Path) -> None:
    edit(root, "methods/echo/method.yaml", "{disk_gb: 1}", "{cpus: 4, memory_gb: 2, minutes: 9, disk_gb: 1}")
    asked_for = "resources: {cpus: 2, memory_gb: 9, minutes: 5, pids: 700}"
    edit(root, "models/m/model.yaml", "summary: s", f"summary: s\n{asked_for}")
    for model in ("m", "m+trainer.a"):
        asked = resources(Catalog(root), "echo", model)
        assert asked == Resources(cpus=4, memory_gb=9, minutes=9, pids=700, disk_gb=10)
    assert describe(Catalog(root), ECHO, 3).engine.threads == 4


def test_threads_enter_the_identity_on_a_cpu_alone(engine: Path) -> None:
    for gpus, changes in ((0, True), (1, False)):
        (engine / "models/m/model.yaml").write_text(CARD + f"gpus: {gpus}\n")
        before = both(engine)
        (engine / "models/m/model.yaml").write_text(CARD + f"gpus: {gpus}\nresources: {{cpus: 8}}\n")
        assert describe(Catalog(engine), ECHO, 3).engine.threads == 8
        assert (both(engine) != before) == changes


PRESETS = """sampling: {temperature: 0.1}
presets:
  cold: {sampling: {temperature: 0.2}}
  warm: {sampling: {temperature: 0.3}, label: W}
"""


@pytest.mark.parametrize(
    ("old", "new", "stale"),
    [
        ("0.1", "0.4", {"m"}),
        ("0.2", "0.4", {"m-cold"}),
        ("0.3", "0.4", {"m-warm"}),
        ("label: W", "label: V", set()),
        ("label: W", "thinking: 'on'", {"m-warm"}),
        ("length: 100", "length: 101", {"m", "m-cold", "m-warm"}),
        ("presets:", "presets:\n  new: {}", set()),
    ],
)
def test_an_edit_of_a_preset_makes_the_cells_of_that_preset_stale_and_no_others(
    root: Path, old: str, new: str, stale: set[str]
) -> None:
    edit(root, "models/m/model.yaml", CARD, CARD + PRESETS)
    cells = {model: Cell("toy", "echo", "a", model) for model in ("m", "m-cold", "m-warm")}
    for model in ("m-cold", "m-warm"):
        weights(Catalog(root), model, "0" * 64)
    before = {model: both(root, cell) for model, cell in cells.items()}
    assert len(set(before.values())) == 3
    edit(root, "models/m/model.yaml", old, new)
    after = {model: both(root, cell) for model, cell in cells.items()}
    for model in cells:
        changed = [one != other for one, other in zip(before[model], after[model], strict=True)]
        assert changed == [model in stale] * 2, model


def test_files_at_a_place_of_the_user_enter_the_plans(root: Path) -> None:
    (root / "mine").mkdir()
    (root / "mine/config.json").write_text("{}")
    edit(root, "config/config.yaml", "process", "process, data: {toy: mine}, models: {m: mine}")

    def plans() -> tuple[str, str]:
        return plan_dataset(Catalog(root), "toy"), plan_weights(Catalog(root), "m")

    before = plans()
    (root / "mine/.cache").mkdir()
    (root / "mine/.cache/lock").touch()
    assert plans() == before
    os.utime(root / "mine/config.json", ns=(1, 1))
    touched = plans()
    (root / "mine/config.json").write_text("{} ")
    os.utime(root / "mine/config.json", ns=(1, 1))
    assert len({*before, *touched, *plans()}) == 6


def test_hash_of_weights_leaves_out_what_a_downloader_hides_and_what_is_written_about_them(tmp_path: Path) -> None:
    def hash_folder(folder: Path) -> str:
        return content_of({path.relative_to(folder).as_posix(): fingerprint(path) for path in files_of(folder)})

    (tmp_path / "model.safetensors").write_text("w")
    before = hash_folder(tmp_path)
    (tmp_path / ".cache/huggingface").mkdir(parents=True)
    (tmp_path / ".cache/huggingface/model.metadata").write_text("when")
    (tmp_path / ".complete").touch()
    (tmp_path / "README.md").write_text("about it")
    (tmp_path / "model.yaml").write_text("label: the card")
    assert hash_folder(tmp_path) == before
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "model.yaml").write_text("no card of ours")
    assert hash_folder(tmp_path) != before
    shutil.rmtree(tmp_path / "deeper")
    (tmp_path / "model.safetensors").rename(tmp_path / "other.safetensors")
    assert hash_folder(tmp_path) != before


def test_two_models_of_one_recipe_are_made_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = CARD.replace("source: package\nlocation: weights", "source: rule\nlocation: small")
    for model in ("m", "e"):
        (root / f"models/{model}/model.yaml").write_text(rule)
    (root / "src/upkeep/serving").mkdir()
    (root / "src/upkeep/serving/make_model.py").write_text("# recipe")
    both_asked = threading.Barrier(2)
    made: list[Path] = []

    class Maker:
        def prepare(self, method: None, engine: str) -> None: ...

        def path_of(self, role: str, path: Path) -> str:
            return str(path)

        def run_tool(self, prepared: None, arguments: list[str], output: Path) -> None:
            made.append(output)
            (output / "config.json").write_text("{}")

    monkeypatch.setattr(fetching, "detect", lambda _: Maker())

    def fetch(model: str) -> Weights:
        both_asked.wait(10)
        return fetching.fetch(Catalog(root), model)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(fetch, ("m", "e"))
    assert len(made) == 1
    assert (first.path, first.sha256) == (second.path, second.sha256)
    assert first.path is not None and (first.path / "config.json").is_file()


def test_five_thousand_identities_read_each_file_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edit(
        root,
        "methods/echo/method.yaml",
        "{a: {n: 1}",
        "{" + ", ".join(f"v{i}: {{n: {i}}}" for i in range(5000)) + ", a: {n: 1}",
    )
    catalog = Catalog(root)
    read: list[Path] = []
    original = Path.open
    monkeypatch.setattr(Path, "open", lambda path, *how, **more: (read.append(path), original(path, *how, **more))[1])
    plans = {plan_identity(catalog, Cell("toy", "echo", f"v{i}", "m")) for i in range(5000)}
    assert len(plans) == 5000
    assert len(read) == len(set(read))


def test_a_dataset_is_made_again_when_the_files_that_it_shares_with_another_are_others(root: Path) -> None:
    for name in ("toy_control", "other"):
        (root / "datasets" / name).mkdir()
        (root / "datasets" / name / "dataset.yaml").write_text((root / "datasets/toy/dataset.yaml").read_text())
    before = {name: plan_dataset(Catalog(root), name) for name in ("toy", "toy_control", "other")}
    edit(root, "config/config.yaml", "process", "process, data: {toy.feed: mine}")
    after = {name: plan_dataset(Catalog(root), name) for name in before}
    assert [name for name in before if before[name] != after[name]] == ["toy", "toy_control"]
    (root / "datasets/other/examples.yaml").write_text("[]")
    assert plan_dataset(Catalog(root), "other") != after["other"]


@pytest.mark.parametrize(
    ("path", "more", "stale"),
    [
        ("src/upkeep/cell/runner.py", "X = 1\n", False),
        ("src/upkeep/cell/training.py", "# a comment\n", False),
        ("src/upkeep/cell/training.py", "X = 1\n", True),
        ("methods/trainer/method.py", "X = 1\n", True),
    ],
)
def test_a_training_is_stale_by_what_it_runs_alone(root: Path, path: str, more: str, stale: bool) -> None:
    """It is not replayed, so it costs hours to make it again."""
    (root / "src/upkeep/cell/training.py").write_text("Y = 1\n")
    training = Training("toy", "trainer", "a", "m")
    before = plan_training(Catalog(root), training)
    file = root / path
    file.write_text(file.read_text() + more)
    assert (plan_training(Catalog(root), training) != before) is stale
