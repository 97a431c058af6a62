"""Identities of plans: of trained models, images, presets, files of the user's; and how often they are read."""

from __future__ import annotations

import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from identity_root import CARD, ECHO, both, edit, engine, root, weights
from upkeep.catalog import Catalog
from upkeep.contract import (
    Resources,
    Sampling,
)
from upkeep.errors import UpkeepError
from upkeep.execution import fetch as fetching
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
from upkeep.integrity import fingerprint
from upkeep.jobs import Cell, Training
from upkeep.weights import Weights, content_of, files_of

__all__ = ["engine", "root"]


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


@pytest.mark.parametrize(("more", "stale"), [("", False), ("asks: true\n", True)])
def test_how_a_base_decodes_is_part_of_a_training_that_asks_it(root: Path, more: str, stale: bool) -> None:
    """And of what asks the trained model, whoever trained it."""
    card, training = root / "methods/trainer/method.yaml", Training("toy", "trainer", "a", "m")
    card.write_text(card.read_text() + more)

    def told() -> tuple[str, Sampling, str]:
        catalog = Catalog(root)
        spec = describe(catalog, training, chunk_tokens=1).model_spec
        assert spec is not None
        return (
            plan_training(catalog, training),
            spec.sampling,
            plan_identity(catalog, Cell("toy", "echo", "a", "m+trainer.a")),
        )

    before = told()
    edit(root, "models/m/model.yaml", "context_length: 100", "context_length: 100\nsampling: {max_tokens: 7}")
    after = told()
    assert (after[0] != before[0]) is stale and (after[1] != before[1]) is stale
    assert after[2] != before[2]
    edit(root, "models/m/model.yaml", "context_length: 100", "context_length: 99")
    assert told()[0] != after[0], "what a training reads of the card"
