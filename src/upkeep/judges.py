"""Which models judge responses in a suite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from upkeep.catalog import Catalog
from upkeep.contract import Suite
from upkeep.errors import UpkeepError
from upkeep.jobs import Cell

NOBODY = "none"
"""What a user says in place of a judge for no judge at all."""


def judges_by_cell(catalog: Catalog, suite: Suite) -> dict[Cell, list[str]]:
    """The models that judge each cell of a suite: those of its file, or the one that the user has judge in their place;
    in a suite that names none, that one judges all cells.

    Raises:
        UpkeepError: one is not there, or generates no text.
    """
    found: dict[Cell, list[str]] = {}
    for choice in suite.cells:
        named = _named(catalog, suite, suite.judges if choice.judges is None else choice.judges)
        for cell in catalog.cells_of(choice):
            judges = found.setdefault(cell, [])
            judges += [judge for judge in named if judge not in judges]
    _require_generators(catalog, each_of(found))
    return found


def judges_beside(catalog: Catalog, suite: Suite) -> list[str]:
    """The models that judge cells which are not of a suite, where it is asked to: those that it names for all of its
    own; raises as `judges_by_cell`."""
    found = _named(catalog, suite, suite.judges)
    _require_generators(catalog, found)
    return found


def _named(catalog: Catalog, suite: Suite, named: list[str]) -> list[str]:
    """These judges, or what the user has in their place."""
    chosen = catalog.config.judge
    nobody = not suite.judges and not any(choice.judges for choice in suite.cells)
    if chosen is not None and (named or nobody):
        return [] if chosen == NOBODY else [chosen]
    return list(dict.fromkeys(named))


def _require_generators(catalog: Catalog, judges: Iterable[str]) -> None:
    for judge in judges:
        if (role := catalog.model(judge).role) != "generator":
            raise UpkeepError(f"{judge!r} is an {role}", where="judges", expected="a model that generates text")


def judges_of(catalog: Catalog, suite: Suite) -> list[str]:
    """All models that judge in a suite; raises as `judges_by_cell`."""
    return each_of(judges_by_cell(catalog, suite))


def each_of(by_cell: Mapping[Cell, Iterable[str]]) -> list[str]:
    """The judges of all cells, each once."""
    return list(dict.fromkeys(judge for judges in by_cell.values() for judge in judges))


def called(catalog: Catalog, judges: Iterable[str]) -> dict[str, str]:
    """What tables call judges: by their cards, whatever the preset; two of one card by their own ids."""
    cards = {judge: Path(catalog.model_card(judge)).parent.name for judge in judges}
    shared = Counter(cards.values())
    return {judge: card if shared[card] == 1 else judge for judge, card in cards.items()}


def is_itself(catalog: Catalog, judge: str, model: str) -> bool:
    """Whether a judge is of the card of the model that it would judge: another preset, or what it was trained from."""
    return model != NOBODY and catalog.model_card(judge) == catalog.model_card(model)
