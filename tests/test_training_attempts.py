"""A training goes on from where it was killed, and what it publishes is asked, of a set member by member."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import yaml

from host_fakes import TRAINED_FILES, ScriptedRuntime, training
from trainings import TRAINING, built, catalog, predictions_of, with_model
from upkeep import files, weights
from upkeep.building.assembling import Built
from upkeep.catalog import Catalog
from upkeep.contract import Course
from upkeep.errors import UpkeepError
from upkeep.execution.supervise import run_cell, traces
from upkeep.integrity import Damaged, Missing
from upkeep.jobs import Cell, Training
from upkeep.layout import Layout

__all__ = ["catalog", "with_model"]


STEPS = """
folder = os.path.join(cell["output"], "checkpoints")
os.makedirs(folder, exist_ok=True)
first = 1 + max([int(name) for name in os.listdir(folder)] or [0])
for step in range(first, 6):
    os.mkdir(os.path.join(folder, str(step)))
    if step == DIES:
        os.kill(os.getpid(), signal.SIGKILL)
open(os.path.join(model, "tokenizer.json"), "w").write(str(first))
"""


def steps(dies: int = 0) -> ScriptedRuntime:
    return training(TRAINED_FILES, STEPS.replace("DIES", str(dies)))


def test_a_training_goes_on_from_where_it_was_killed(catalog: Catalog) -> None:
    for dies in (2, 4):
        with pytest.raises(UpkeepError, match="the training failed") as caught:
            run_cell(catalog, TRAINING, runtime=steps(dies))
        assert "goes on from its last checkpoint" in str(caught.value.remedy)
    manifest = run_cell(catalog, TRAINING, runtime=steps())
    assert [one.outcome for one in manifest.attempts] == ["failed", "failed", "complete"]
    assert (Layout(catalog.results).trained(TRAINING) / "model/tokenizer.json").read_text() == "5"


def test_force_begins_at_the_beginning_and_so_does_another_identity(catalog: Catalog) -> None:
    for again in ("force", "identity"):
        with pytest.raises(UpkeepError):
            run_cell(catalog, TRAINING, runtime=steps(4), force=True)
        if again == "identity":
            (catalog.root / "methods/trainer/method.py").write_text("# edited")
            catalog = Catalog(catalog.root)
        run_cell(catalog, TRAINING, runtime=steps(), force=again == "force")
        assert (Layout(catalog.results).trained(TRAINING) / "model/tokenizer.json").read_text() == "1"


def test_what_a_training_has_reached_shows_and_one_that_gets_nowhere_too(catalog: Catalog) -> None:
    mark = traces(catalog, TRAINING)[0]
    with pytest.raises(UpkeepError):
        run_cell(catalog, TRAINING, runtime=training(TRAINED_FILES, "os.kill(os.getpid(), signal.SIGKILL)"))
    assert not mark.exists()
    marks = []
    for dies in (2, 4):
        with pytest.raises(UpkeepError):
            run_cell(catalog, TRAINING, runtime=steps(dies))
        marks.append((mark.stat().st_ino, mark.read_text()))
    assert len(set(marks)) == 2


def test_a_link_in_place_of_checkpoints_is_not_handed_on(catalog: Catalog) -> None:
    link = 'os.symlink("/etc", os.path.join(cell["output"], "checkpoints")); os.kill(os.getpid(), signal.SIGKILL)'
    with pytest.raises(UpkeepError):
        run_cell(catalog, TRAINING, runtime=training(TRAINED_FILES, link))
    run_cell(catalog, TRAINING, runtime=steps())
    assert (Layout(catalog.results).trained(TRAINING) / "model/tokenizer.json").read_text() == "1"


NAMED = 'open(os.path.join(model, "config.json"), "w").write(open(cell["documents"]).read()[:40])\n'


def test_members_that_are_done_are_not_trained_again(catalog: Catalog) -> None:
    job = Training("toy", "trainer", "a", "none", "streams")
    second = 'if "b_c0" in open(cell["documents"]).read(): os.kill(os.getpid(), signal.SIGKILL)'
    broken = training(TRAINED_FILES, f"{NAMED}\n{second}")
    with pytest.raises(UpkeepError, match="the training of 'b' failed"):
        run_cell(catalog, job, runtime=broken)
    assert broken.starts == 2
    whole = training(TRAINED_FILES, NAMED)
    manifest = run_cell(catalog, job, runtime=whole)
    assert whole.starts == 2, "the first member was there"
    assert {name.split("/")[1] for name in manifest.files} == {"a", "b", "c"}
    for name in "abc":
        assert f"{name}_c0" in (Layout(catalog.results).trained(job) / f"model/{name}/config.json").read_text()


def test_no_member_goes_on_from_anothers_checkpoint(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Training("toy", "trainer", "a", "none", "streams")

    def killed(path: Path) -> None:
        if path.name == "checkpoints":
            raise KeyboardInterrupt
        files.remove(path)

    with monkeypatch.context() as patched:
        patched.setattr("upkeep.execution.training_job.remove", killed)
        with pytest.raises(KeyboardInterrupt):
            run_cell(catalog, job, runtime=steps())
    run_cell(catalog, job, runtime=steps())
    begun = {
        name: (Layout(catalog.results).trained(job) / f"model/{name}/tokenizer.json").read_text() for name in "abc"
    }
    assert begun == {"a": "6", "b": "1", "c": "1"}


def test_an_adapter_is_published_and_found_on_what_it_was_trained_on(with_model: Catalog) -> None:
    job = Training("toy", "trainer", "a", "m")
    run_cell(with_model, job, runtime=training({"adapter_config.json": "{}", "adapter_model.safetensors": "w"}))
    over = Training("toy", "trainer", "a", "m+trainer.a")
    run_cell(with_model, over, runtime=training({"adapter_config.json": "{1}", "adapter_model.safetensors": "v"}))
    layout = Layout(with_model.results)
    found = weights.find(with_model, "m+trainer.a+trainer.a", "toy")[1]
    assert found.path == with_model.root / "weights"
    assert found.adapters == (layout.trained(job) / "model", layout.trained(over) / "model")
    first = weights.find(with_model, "m+trainer.a", "toy")[1]
    assert len({found.sha256, first.sha256, weights.find(with_model, "m", "toy")[1].sha256}) == 3
    (layout.trained(job) / "model/adapter_model.safetensors").write_text("x")
    with pytest.raises(Damaged):
        weights.find(with_model, "m+trainer.a+trainer.a", "toy")


def test_a_base_that_is_missing_or_another_than_was_taken_in_is_refused_before_anything_starts(
    with_model: Catalog,
) -> None:
    job, runtime = Training("toy", "trainer", "a", "m"), training(TRAINED_FILES)
    over = Training("toy", "trainer", "a", "m+trainer.a")
    with pytest.raises(Missing, match="the trained model is not there"):
        run_cell(with_model, over, runtime=runtime)
    (with_model.root / "weights/config.json").write_text("[]")
    with pytest.raises(Damaged, match="not the file that was written"):
        run_cell(Catalog(with_model.root), job, runtime=runtime)
    Layout(with_model.results).weights_record("m").unlink()
    with pytest.raises(Missing, match="no weights of the model 'm'"):
        run_cell(Catalog(with_model.root), job, runtime=runtime)
    assert runtime.starts == 0


def test_a_set_is_answered_member_by_member(with_model: Catalog) -> None:
    job = Training("toy", "trainer", "a", "m", "streams")
    run_cell(with_model, job, runtime=training(TRAINED_FILES, NAMED))
    runtime = ScriptedRuntime()
    cell = Cell("toy", "echo", "a", "m+trainer.a@toy.streams")
    manifest = run_cell(with_model, cell, runtime=runtime)
    assert manifest.probes == 6 == len(predictions_of(with_model, cell)), "each stream is asked at its end"
    assert [launch.inputs["model"].name for launch in runtime.engines] == ["a", "b", "c"]
    assert runtime.starts == 3, "a container of its own for each: none knows what another's model says"


def test_a_probe_that_no_member_answers_is_named(with_model: Catalog) -> None:
    run_cell(with_model, Training("toy", "trainer", "a", "m", "kinds"), runtime=training(TRAINED_FILES))

    def third(one: Built) -> Built:
        return replace(one, gold=one.gold.with_columns(slice_kind=pl.lit("third")))

    built(with_model, "toy_later", third)
    with pytest.raises(UpkeepError, match=r"no member of .m[+]trainer.a@toy.kinds. answers probe") as caught:
        run_cell(with_model, Cell("toy_later", "echo", "a", "m+trainer.a@toy.kinds"), runtime=ScriptedRuntime())
    assert caught.value.found == "third" and "first, second" in str(caught.value.expected)


@pytest.mark.parametrize("until", ["soon", "01.03.2025", 1.5, 0])
def test_a_set_until_no_date_and_no_share_is_refused(catalog: Catalog, until: object) -> None:
    card = catalog.root / "datasets/toy/dataset.yaml"
    given = yaml.safe_load(card.read_text()) | {"training": {"half": {"until": until}}}
    card.write_text(yaml.safe_dump(given))
    with pytest.raises(UpkeepError, match="until"):
        Catalog(catalog.root).check_training(Training.parse("toy.half/trainer/a/none"))


TELLS = 'open(os.path.join(cell["output"], "course.json"), "w").write(TOLD)\n'


def tells(told: str, more: str = "") -> ScriptedRuntime:
    return training(TRAINED_FILES, TELLS.replace("TOLD", told) + more)


def test_how_a_training_went_stands_in_its_manifest_and_of_a_set_by_member(catalog: Catalog) -> None:
    told = '{"steps": 3, "tokens": 40, "losses": [[1, 2.5], [3, 1.25]]}'
    assert run_cell(catalog, TRAINING, runtime=tells(repr(told))).courses == {
        "model": Course(steps=3, tokens=40, losses=[(1, 2.5), (3, 1.25)])
    }
    by_stream = replace(TRAINING, set="streams")
    lines = 'json.dumps({"steps": len(open(cell["documents"]).readlines()), "tokens": 1})'
    second = 'if "b_c0" in open(cell["documents"]).read(): os.kill(os.getpid(), signal.SIGKILL)'
    with pytest.raises(UpkeepError, match="the training of 'b' failed"):
        run_cell(catalog, by_stream, runtime=tells(lines, second))
    courses = run_cell(catalog, by_stream, runtime=tells(lines)).courses
    assert {name: course.steps for name, course in courses.items()} == {"a": 6, "b": 4, "c": 5}


@pytest.mark.parametrize("told", ['"no JSON"', """'{"steps": -1, "tokens": 1}'""", """'{"steps": 1}'""", '"[" * 2**21'])
def test_what_a_training_cannot_have_told_is_refused(catalog: Catalog, told: str) -> None:
    with pytest.raises(UpkeepError) as caught:
        run_cell(catalog, TRAINING, runtime=tells(told))
    assert "course.json" in str(caught.value)
    assert not (Layout(catalog.results).trained(TRAINING) / "manifest.json").exists()


def test_pairs_come_in_the_order_of_their_documents(catalog: Catalog) -> None:
    def turned(one: Built) -> Built:
        return replace(one, pairs=one.pairs[::-1])

    built(catalog, "toy", turned)
    read = 'open(os.path.join(model, "config.json"), "w").write(open(cell["pairs"]).read())'
    run_cell(catalog, TRAINING, runtime=training(TRAINED_FILES, read))
    lines = (Layout(catalog.results).trained(TRAINING) / "model/config.json").read_text().splitlines()
    documents = [json.loads(line)["document"] for line in lines]
    assert documents == sorted(documents) and len(set(documents)) == len(documents) / 2
