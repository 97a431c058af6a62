"""The papers' figures with scores in their places, for tests."""

from __future__ import annotations

from itertools import product
from typing import Any

import msgspec

from table_scores import PAPER, score
from test_paper_tables import PAPERS
from upkeep.report.specs import FigureSpec, Panel, Series, several

SPECS = {figure.id: figure for figure in PAPER.figures}
FIGURES = {(paper, figure.id): figure for paper, read in PAPERS.items() for figure in read.figures}


def spec(**fields: Any) -> FigureSpec:
    """A figure of one panel over all scores of OAKS-B."""
    common = {"id": "f", "title": "F", "caption": "c", "xlabel": "x", "ylabel": "y"}
    panels = [{"title": "p", "match": {"dataset": "oaks_babi"}}]
    return msgspec.convert(common | {"panels": panels} | fields, FigureSpec)


def asked(panel: Panel, series: Series) -> dict[str, list[str]]:
    """What a series of a panel asks for, field by field; empty where the two have a field in which they do not meet."""
    names = {**panel.match, **series.match}
    allowed = {n: [set(several(match[n])) for match in (panel.match, series.match) if n in match] for n in names}
    meeting = {name: sorted(set.intersection(*values)) for name, values in allowed.items()}
    return meeting if all(meeting.values()) else {}


def filling(spec: FigureSpec, end: str = "", **changed: Any) -> list[dict[str, Any]]:
    """A score for each series of each panel; where there is another one on the axis, that too."""
    rows = []
    for panel, series in product(spec.panels, spec.series):
        values = {name: allowed[0] for name, allowed in asked(panel, series).items()}
        if not values:
            continue
        values |= {"model": spec.models[0]} if spec.models else {}
        if series.x:
            values[series.x] = next(iter(spec.places), "3")
        if series.largest:
            values[series.largest] = "60"
        values |= changed
        settings = [name for name in values if name.startswith("setting.")]
        plain = {name: value for name, value in values.items() if name not in settings} | {
            "setting": ";".join(f"{name.removeprefix('setting.')}={values[name]}" for name in settings if values[name]),
            "cell": f"{panel.title}/{series.name}",
            "dataset_id": values["dataset"] + end,
        }
        at = [series.at] if series.at else []
        rows += [score(**plain | other) for other in [{"metric": name} for name in series.quantiles] or [{}, *at]]
    return rows
