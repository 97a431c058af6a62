"""How trainings went: the losses of a trained model, on its page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from upkeep.catalog import Catalog
from upkeep.contract import Course
from upkeep.jobs import Training
from upkeep.layout import Layout
from upkeep.published import standing
from upkeep.report import drawing
from upkeep.report.drawn import Drawn
from upkeep.report.figures import Trace
from upkeep.report.papers import inline
from upkeep.report.specs import FigureSpec, Panel

NAME = "course"
"""Of the figure's files, in a folder for each training."""


@dataclass(frozen=True, slots=True)
class Went:
    """A training as a model's page shows it."""

    training: Training
    courses: Mapping[str, Course] = field(default_factory=dict)
    """By member of a set, else under `model`; empty where it is not made, or its method told nothing."""
    svg: str = ""


def went(catalog: Catalog, training: Training) -> Went:
    """How a training went. Its losses are drawn to `results/courses/<training>/`, a line for each member; a
    model that does not count is shown without any."""
    manifest = standing(catalog, training, as_asked=True).manifest
    courses = manifest.courses if manifest else {}
    traces = [_trace(name, number, course) for number, (name, course) in enumerate(courses.items()) if course.losses]
    drawn = Drawn(Layout(catalog.results).course(training))
    if not traces:
        return Went(training, courses)
    spec = FigureSpec(
        id=NAME,
        title=str(training),
        caption="",
        xlabel="steps",
        ylabel="loss (mean since the point before)",
        top=None,
        panels=[Panel(title=f"{training.method}/{training.variant}", match={})],
        series=[],
    )
    salt = f"trained/{training}"
    drawn.figure(NAME, (spec, traces, salt), drawing.draw, spec, [traces], salt)
    drawn.keep()
    return Went(training, courses, inline(drawn.svg(NAME), "-".join([NAME, *str(training).split("/")])))


def _trace(name: str, number: int, course: Course) -> Trace:
    steps, losses = [float(step) for step, _ in course.losses], [loss for _, loss in course.losses]
    return Trace(name=name, series=number, x=steps, y=losses, low=losses, high=losses)
