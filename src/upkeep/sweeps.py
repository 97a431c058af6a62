"""Which cells of a batch can be asked side by side: those that find the best documents of a question in the same way
and show more or fewer of them, so that the prompts of one begin as those of the next.

An engine that keeps prompts computes of the longer one what the shorter one had not. Whether it is worth while, the
order decides (`execution.order`); what it takes, a job asks for (`needs`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from upkeep.catalog import Catalog
from upkeep.files import digest
from upkeep.jobs import Cell
from upkeep.method_cards import ranked_by, shown_of

MOST = 4
"""Cells side by side: each has a container, for whose memory the job asks."""
KEEP_NONE = ("transformers", "endpoint")
"""Engines that have little room for prompts of another cell, or of which nobody knows."""


def sweeps(catalog: Catalog, cells: Iterable[Cell]) -> list[tuple[Cell, ...]]:
    """The sweeps of some cells, each cell in exactly one, mostly by itself; those that show fewer documents first."""
    found: dict[Any, list[Cell]] = {}
    for cell in cells:
        found.setdefault(_nested(catalog, cell) or cell, []).append(cell)
    ordered = (sorted(some, key=lambda cell: _ranked(catalog, cell)) for some in found.values())
    return [tuple(some[start : start + MOST]) for some in ordered for start in range(0, len(some), MOST)]


def _nested(catalog: Catalog, cell: Cell) -> str | None:
    """What cells have in common whose prompts are nested; None where an engine keeps no prompt for another cell."""
    card = catalog.method(cell.method)
    name, shown = ranked_by(card, cell.variant), shown_of(card, cell.variant)
    # Behind what is ranked, nothing is nested.
    if name is None or shown is None or shown.latest or cell.model == "none":
        return None
    # Of a model that is a set, an engine answers with one member at a time.
    if card.holds_model or any(catalog.trainings_of(cell)) or catalog.spec(cell.model).engine in KEEP_NONE:
        return None
    rest = {key: value for key, value in card.variants[cell.variant].items() if key != name}
    trials = catalog.trials(cell, catalog.suite(catalog.config.suite))
    return digest([cell.dataset, cell.method, cell.model, trials, name, rest])


def _ranked(catalog: Catalog, cell: Cell) -> int:
    shown = shown_of(catalog.method(cell.method), cell.variant)
    return shown.ranked if shown is not None else 0
