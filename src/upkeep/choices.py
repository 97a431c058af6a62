"""Which cells the choices of a suite name, and how often each is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from upkeep.contract import CellChoice, MethodCard, Suite
from upkeep.errors import UpkeepError
from upkeep.jobs import Cell

Card = Callable[[str], MethodCard]
"""A method -> its card."""
Models = Callable[[CellChoice, MethodCard], Iterable[str]]
"""Which models a choice has a method asked with that calls one."""


def each(choice: CellChoice, card: Card, models: Models) -> Iterator[Cell]:
    """The cells of a choice, in its order."""
    for dataset in choice.datasets:
        for method_and_variant in choice.methods:
            method, _, variant = method_and_variant.partition("/")
            for v in [variant] if variant else card(method).variants:
                for model in models(choice, card(method)) if card(method).model else ["none"]:
                    yield Cell(dataset, method, v, model)


def has(choice: CellChoice, cell: Cell, card: Card, models: Models) -> bool:
    """Whether a cell is of a choice; whatever else that names need not be there."""
    if cell.dataset not in choice.datasets or {cell.method, f"{cell.method}/{cell.variant}"}.isdisjoint(choice.methods):
        return False
    own = card(cell.method)
    return not own.model or cell.model in models(choice, own)


def asked_by(choice: CellChoice, suite: Suite) -> int:
    """How often a choice of a suite has each probe asked."""
    return suite.trials if choice.trials is None else choice.trials


def require_one_number(suite: Suite, card: Card) -> None:
    """Refuse a suite of which two choices give one cell different numbers of trials.

    Raises:
        UpkeepError: two do; or a choice names a method that there is not.
    """
    if all(choice.trials is None for choice in suite.cells):
        return
    first: dict[Cell, int] = {}
    for number, choice in enumerate(suite.cells):
        # As the file has it: where one model takes the place of all, choices meet that are no contradiction.
        for cell in each(choice, card, lambda own, _: own.models):
            other = first.setdefault(cell, number)
            if (one := asked_by(suite.cells[other], suite)) != (two := asked_by(choice, suite)):
                raise UpkeepError(
                    f"two choices of cells ask {cell} a different number of times",
                    expected="one number of trials for each cell",
                    found=f"`cells`, choice {other + 1}: {_said(suite.cells[other], one)}; "
                    f"choice {number + 1}: {_said(choice, two)}",
                    remedy="give both the same `trials`, or leave the cell to one of them",
                )


def _said(choice: CellChoice, trials: int) -> str:
    return f"trials {trials}{' (the suite says it)' if choice.trials is None else ''}"
