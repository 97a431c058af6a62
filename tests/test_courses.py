"""A trained model's page shows how its trainings went: steps, tokens, and losses that are drawn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from host_fakes import TRAINED_FILES, training
from reported import Page
from trainings import TRAINING, catalog
from upkeep.catalog import Catalog
from upkeep.execution.supervise import run_cell
from upkeep.integrity import Damaged
from upkeep.jobs import TrainedModel, Training
from upkeep.layout import Layout
from upkeep.published import standing
from upkeep.report import courses, drawing
from upkeep.report.figures import Trace
from upkeep.report.site import Site

__all__ = ["catalog"]

TOLD = """
import json
course = {"steps": 40, "tokens": 1234567, "losses": LOSSES}
open(os.path.join(cell["output"], "course.json"), "w").write(json.dumps(course))
"""
LOSSES = [(step, 3 / step) for step in range(1, 41)]


def run(catalog: Catalog, job: Training = TRAINING, losses: object = LOSSES) -> None:
    told = TOLD.replace("LOSSES", repr(losses))
    run_cell(catalog, job, runtime=training(TRAINED_FILES, told), force=True)


def page(catalog: Catalog, *jobs: Training) -> str:
    """What the template makes of these trainings."""
    site = Site(catalog.results / "report" / "s", seconds=len, computed=len, link=lambda kind, name: name)
    path = catalog.root / "models" / "m" / "model.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{label: M, summary: s, source: path, location: weights, context_length: 100}")
    site.page(
        "models/m.html", "model.html.j2", name="m", base="m", spec=Catalog(catalog.root).spec("m"), rows=[], papers=[],
        trained=TrainedModel("b", "trainer", "a"), trainings=[courses.went(catalog, job) for job in jobs], readme="",
        answers=0, calls=0, prompt=0, completion=0, suite_name="s", suite={"label": "s"},
    )  # fmt: skip
    return (site.folder / "models/m.html").read_text()


def test_the_losses_that_are_drawn_are_those_of_the_manifest(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    run(catalog)
    drawn: list[Trace] = []
    draw = drawing.draw
    monkeypatch.setattr(
        drawing, "draw", lambda spec, panels, salt: (drawn.extend(panels[0]), draw(spec, panels, salt))[1]
    )
    text = page(catalog, TRAINING)
    assert [list(zip(trace.x, trace.y, strict=True)) for trace in drawn] == [LOSSES]
    assert ">40</td>" in text and ">1,234,567</td>" in text and ">3.000</td>" in text and ">0.075</td>" in text
    assert text.count("<svg") == 1 and len(set(Page(text).ids)) == len(Page(text).ids)
    folder = Layout(catalog.results).course(TRAINING)
    assert catalog.results / "figures" not in folder.parents, "suites have theirs there, under any name"
    assert {path.name for path in folder.iterdir()} == {"course.svg", "course.png", "drawn.json"}


def test_members_of_a_set_are_lines_of_one_figure(catalog: Catalog) -> None:
    by_stream = replace(TRAINING, set="streams")
    run(catalog, by_stream)
    found = courses.went(catalog, by_stream)
    assert list(found.courses) == ["a", "b", "c"] and found.svg.count("<svg") == 1
    assert page(catalog, by_stream, TRAINING).count("<svg") == 1, "what is not trained has no figure"


def test_figures_of_two_trainings_share_no_id(catalog: Catalog) -> None:
    by_stream = replace(TRAINING, set="streams")
    run(catalog)
    run(catalog, by_stream)
    ids = Page(page(catalog, TRAINING, by_stream)).ids
    assert len(set(ids)) == len(ids) > 10


def test_a_figure_is_drawn_again_when_its_training_went_otherwise_and_only_then(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(catalog)
    first = courses.went(catalog, TRAINING).svg
    monkeypatch.setattr(drawing, "draw", lambda *given: pytest.fail("drawn again"))
    assert courses.went(catalog, TRAINING).svg == first
    monkeypatch.undo()
    run(catalog, losses=[(step, 2.0) for step in range(1, 41)])
    assert courses.went(Catalog(catalog.root), TRAINING).svg not in ("", first)


@pytest.mark.parametrize("losses", [None, []])
def test_a_training_that_told_no_loss_has_no_figure(catalog: Catalog, losses: list[object] | None) -> None:
    if losses is None:
        run_cell(catalog, TRAINING, runtime=training(TRAINED_FILES))
    else:
        run(catalog, losses=losses)
    text = page(catalog, TRAINING)
    assert "<svg" not in text
    assert ("nothing is told of how it went" if losses is None else "not told") in text


def test_losses_of_a_model_that_was_tampered_with_are_not_shown(catalog: Catalog) -> None:
    run(catalog)
    manifest: Path = Layout(catalog.results).trained(TRAINING) / "manifest.json"
    manifest.write_text(manifest.read_text().replace("1234567", "1234568"))
    assert isinstance(standing(catalog, TRAINING).problem, Damaged)
    assert courses.went(Catalog(catalog.root), TRAINING).svg == ""
