"""What has no number of our own: why, and which command would give it."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from upkeep.catalog import Catalog
from upkeep.contract import DatasetCard
from upkeep.errors import UpkeepError
from upkeep.execution.status import read as status_of
from upkeep.grading.judged import has_say
from upkeep.grading.metric_families import family_of
from upkeep.grading.score import SCORE_SCHEMA, identify, printed_as, stand_in
from upkeep.grading.settings import Pairs, as_rows
from upkeep.inputs import command_of
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.report.comparing import NO_DATASET, NOT_RUN
from upkeep.report.fields import JUDGE
from upkeep.report.specs import Called, several
from upkeep.text import printable, short

_OF_CELLS = (
    "label",
    "model",
    "method",
    "supervision",
    "setting",
    "dataset",
    "dataset_id",
    "provenance",
    "stand_in",
    "trained",
)
PENDING_SCHEMA = {
    **{name: SCORE_SCHEMA[name] for name in _OF_CELLS},
    "cell": pl.String,
    "aside": pl.Boolean,
    "lacks": pl.String,
    "reason": pl.String,
    "command": pl.String,
}
"""Cells that have no scores, why, and what would give them; where `lacks` names a metric, it is that one alone that a
cell has not, for want of a second cell. What is `aside` has the settings of some of the cell's scores, and not of all:
it fills places of the paper's and makes no row of its own."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Why there is no number, and what would give it."""

    reason: str = NOT_RUN
    command: str = ""
    """Empty where none would."""
    cell: str = ""
    lacking: bool = field(default=False, compare=False)
    """Whether it is a dataset, method or model that the suite lacks."""


NAMES = ("dataset", "method", "model")
Triple = tuple[str, str, str]
"""The values of NAMES."""
Gaps = Mapping[Triple, Gap]
"""(dataset, method, model) of published numbers -> why none of ours can stand beside them as things are."""


@dataclass(frozen=True, slots=True)
class Printed:
    """What the published numbers of a paper, or of several, are called."""

    triples: frozenset[Triple] = frozenset()
    """(dataset, method, model)."""

    @classmethod
    def of(cls, references: Iterable[pl.DataFrame]) -> Printed:
        """What these tables of published numbers have."""
        return cls(frozenset(triple for one in references for triple in one.select(NAMES).unique().iter_rows()))


def pending(
    catalog: Catalog,
    cells: Iterable[Cell],
    scores: pl.DataFrame,
    refused: Mapping[str, str],
    lacking: Mapping[str, Mapping[str, str]],
    datasets: Mapping[str, DatasetCard | UpkeepError],
    suite: str = "",
    unjudged: Mapping[Cell, Mapping[str, str]] | None = None,
    printed: Printed | None = None,
    wanted: Mapping[Cell, Cell] | None = None,
) -> pl.DataFrame:
    """The cells that have no scores, or not all, with the reason of each (PENDING_SCHEMA).

    Args:
        refused: cells and datasets that are there and do not count, with the reason.
        lacking: cell -> metric -> why it has no score.
        datasets: the card of each dataset that is there.
        suite: whose cells they are; where it is said, the command is the one that runs it.
        unjudged: cell -> judge that has not judged it -> why.
        printed: what the published numbers are called.
        wanted: cell -> the one of no suite that it lacks beside it.
    """
    scored, waits = {*scores["cell"].unique()}, _Waits(catalog, printed or Printed(), datasets)
    rows: list[dict[str, object]] = []
    for cell in cells:
        reasons = lacking.get(str(cell), {})
        if str(cell) not in scored:
            reasons = {"": _reason(catalog, cell, refused.get(str(cell)) or refused.get(cell.dataset))}
        command = f"./upkeep run {suite}" if suite else command_of(cell)
        if (other := (wanted or {}).get(cell)) is not None and str(cell) in scored:
            command = f"{command_of(other)} --suite {suite}" if suite else command_of(other)
        rows += waits.rows(cell, reasons, command)
        for judge, reason in (unjudged or {}).get(cell, {}).items():
            told = {"": f"not judged by {judge}: {reason}"}
            rows += waits.rows(cell, told, f"./upkeep judge {suite}".rstrip(), ((JUDGE, judge),))
    return pl.DataFrame(rows, schema=PENDING_SCHEMA)


class _Waits:
    """Cells that wait, as tables call them."""

    def __init__(
        self, catalog: Catalog, printed: Printed, datasets: Mapping[str, DatasetCard | UpkeepError] | None = None
    ) -> None:
        """Arguments as of `pending`."""
        self._catalog, self._printed = catalog, printed
        self._built = {name: card for name, card in (datasets or {}).items() if isinstance(card, DatasetCard)}
        self._called: dict[str, list[tuple[str, Pairs]]] = {}

    def rows(self, cell: Cell, reasons: Mapping[str, str], command: str, by: Pairs = ()) -> Iterator[dict[str, object]]:
        """The rows of a cell (PENDING_SCHEMA); `reasons` are by the metric that it lacks."""
        if not reasons:
            return
        built = self._built.get(cell.dataset)
        identity = identify(self._catalog, cell, built)
        known = {name: getattr(identity, name) for name in PENDING_SCHEMA if hasattr(identity, name)}
        if cell.dataset not in self._called:
            self._called[cell.dataset] = _called(self._catalog, cell.dataset, identity.dataset, built, self._printed)
        for dataset, setting in self._called[cell.dataset]:
            named = known | {"dataset": dataset, "cell": str(cell), "aside": bool(setting)}
            named["setting"] = as_rows((*identity.setting, *setting, *by))
            for metric, reason in reasons.items():
                yield named | {"lacks": metric, "reason": reason, "command": command}


def _called(
    catalog: Catalog, dataset: str, name: str, card: DatasetCard | None, printed: Printed
) -> list[tuple[str, Pairs]]:
    """What tables call a dataset: by its name, and by the names and settings that its metrics give to slices of it.

    A dataset that is not there has the slices that published numbers have.
    """
    try:
        family = family_of(catalog, dataset)
    except UpkeepError:  # the reason of all of its cells
        return [(name, ())]
    is_part = name != (catalog.dataset(dataset).stands_for or dataset)
    if is_part and family.settings[1:]:  # all of its scores have such settings
        return [(name, tuple(given.items())) for given in family.settings[1:]]
    slices = card.slices if card else {}
    found: dict[tuple[str, Pairs], None] = {(name, ()): None}
    found |= {(name, tuple(given.items())): None for given in family.settings[:1]}
    for pair in family.crossed:
        if pair.into == "dataset":
            values = set(slices.get(pair.by, {}))
            values |= {d.removeprefix(f"{name}_") for d, _, _ in printed.triples if d.startswith(f"{name}_")}
            found |= {(f"{name}_{value}", ()): None for value in sorted(values)}
    return list(found)


def _reason(catalog: Catalog, cell: Cell, refused: str | None) -> str:
    """Why a cell has no scores: its own failure before that of a job that it waits for."""
    layout = Layout(catalog.results)
    for what, kind, name in _jobs(catalog, cell):
        status = status_of(layout.status(kind, name))
        if status is not None and status.state == "failed":
            reason = f" ({status.kind})" if status.kind else ""
            return f"failed{reason}: {what}{printable(short(status.message))}"
    if refused:
        return f"refused: {refused}"
    if not (layout.dataset(cell.dataset) / "card.json").is_file():
        return NO_DATASET
    return NOT_RUN


def _jobs(catalog: Catalog, cell: Cell) -> Iterator[tuple[str, str, object]]:
    """(what to call it, kind, name) of a cell and of the jobs that it waits for."""
    yield "", "cells", cell
    for training in catalog.trainings_of(cell):
        yield f"training {training}: ", "trained", training
    yield "its dataset: ", "datasets", cell.dataset


# ---------------------------------------------------------------- what no suite has asked for


def beyond(
    catalog: Catalog, cells: Iterable[Cell], printed: Printed, called: Sequence[Called] = ()
) -> tuple[pl.DataFrame, Gaps]:
    """The cells outside a suite that published numbers could stand beside, and which numbers none could.

    Args:
        cells: the suite's own.
        printed: what the published numbers are called.
        called: what the paper calls our scores.

    Returns:
        PENDING_SCHEMA, first what is in other suites; and the gaps.

    Raises:
        UpkeepError: a card or a suite cannot be read.
    """
    search, waits = catalog.once(_Search, catalog), _Waits(catalog, printed)
    own, gaps = set(cells), {}
    found: dict[Cell, None] = {}
    for triple in sorted(printed.triples):
        names = _own_names(triple, called)
        gaps[triple] = min((search.gap(*name) for name in names), key=lambda gap: gap.lacking)
        found |= dict.fromkeys(cell for name in names for cell in search.cells(*name) if cell not in own)
    suites, rows = search.suites, list[dict[str, object]]()
    for cell in sorted(found, key=lambda cell: cell not in suites):  # stable: a method's first variant stays first
        command = f"./upkeep run {suites[cell]}" if cell in suites else _by_itself(catalog, cell)
        rows += waits.rows(cell, {"": NOT_RUN}, command)
    return pl.DataFrame(rows, schema=PENDING_SCHEMA), gaps


def _by_itself(catalog: Catalog, cell: Cell) -> str:
    """The commands that give the scores of a cell of no suite: it is asked as often as its paper has cells asked, and
    judged by whom it has judge."""
    paper, often, judge = catalog.dataset(cell.dataset).paper, "", ""
    with contextlib.suppress(UpkeepError):  # a suite that names what there is not says nothing
        suite = catalog.suite(paper)
        often = f" --suite {paper}" if catalog.trials(cell, suite) > 1 else ""
        judge = f" && ./upkeep judge {paper}" if any(has_say(catalog, cell, one) for one in suite.judges) else ""
    return f"{command_of(cell)}{often}{judge}"


def _own_names(triple: Triple, called: Sequence[Called]) -> list[Triple]:
    """What our scores may be called that a paper calls by these names; these first."""
    found = [triple]
    for one in reversed(called):
        if not one.instead.keys() & set(NAMES):
            continue
        given = [one.instead.get(name) for name in NAMES]
        for names in list(found):
            if all(value in (None, name) for value, name in zip(given, names, strict=True)):
                datasets, methods, models = (several(one.where.get(f, [n])) for f, n in zip(NAMES, names, strict=True))
                found += itertools.product(datasets, methods, models)
    return list(dict.fromkeys(found))


class _Search:
    """From what the papers call things to what this suite has of that name."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._models: dict[str, list[str]] = {}
        for name in catalog.models:
            self._models.setdefault(catalog.model(name).label, []).append(name)
        self._datasets: dict[str, list[str]] = {}
        """Of these names, what a paper ran: no stand-ins, and the whole before its parts."""
        self._crossed: dict[str, list[str]] = {}
        """The same of those of which slices have names of their own."""
        for name in catalog.datasets:
            spec = catalog.dataset(name)
            if not stand_in(name, spec):
                whole = printed_as(catalog, name)
                self._datasets.setdefault(whole, []).append(name)
                with contextlib.suppress(UpkeepError):  # the reason of all cells of that dataset
                    if any(pair.into == "dataset" for pair in family_of(catalog, name).crossed):
                        self._crossed.setdefault(whole, []).append(name)

    @functools.cached_property
    def suites(self) -> dict[Cell, str]:
        """The first suite that has a cell; one that names what there is not has none to offer."""
        found: dict[Cell, str] = {}
        for name in sorted(self._catalog.suites):
            with contextlib.suppress(UpkeepError):
                for cell in self._catalog.cells(self._catalog.suite(name)):
                    found.setdefault(cell, name)
        return found

    def gap(self, dataset: str, method: str, model: str) -> Gap:
        """Why no cell gives a number of this dataset, method and model with the settings that are asked for."""
        parts = [dataset] if method or model else dataset.split("+")  # counts of several datasets are summed
        for part in parts:
            if not self._ids(part):
                return Gap(f"no dataset {part or '(none is said)'} in datasets/", lacking=True)
        if not method and not model:
            return Gap(NOT_RUN, " && ".join(f"./upkeep dataset build {self._ids(part)[0]}" for part in parts))
        for name in method.split("+"):
            if name not in self._catalog.methods:
                return Gap(f"no method {name or '(none is said)'} in methods/", lacking=True)
        if self._catalog.method(method.rpartition("+")[2]).model and model not in self._models:
            return Gap(f"no model is called {model or '(none is said)'} in models/", lacking=True)
        return Gap(f"no variant of {method} has these settings")

    def cells(self, dataset: str, method: str, model: str) -> Iterator[Cell]:
        """The cells of a dataset, method and model, of whatever variant."""
        trainer, _, asked = method.rpartition("+")
        if any(name not in self._catalog.methods for name in filter(None, (trainer, asked))) or not asked:
            return
        if self._catalog.trains(asked):  # asked by itself, a trained model is asked without any document
            trainer, asked = asked, "closed_book"
        if asked not in self._catalog.methods or (trainer and not self._catalog.trains(trainer)):
            return
        models = self._models.get(model, []) if self._catalog.method(asked).model else ["none"]
        trainings = [f"+{trainer}.{v}" for v in self._catalog.method(trainer).variants] if trainer else [""]
        for name, variant, one, made in itertools.product(
            self._ids(dataset), self._catalog.method(asked).variants, models, trainings
        ):
            cell = Cell(name, asked, variant, one + made)
            with contextlib.suppress(UpkeepError):  # one that cannot be run, as a training behind an endpoint
                self._catalog.check(cell)
                yield cell

    def _ids(self, dataset: str) -> list[str]:
        found = (names for whole, names in self._crossed.items() if dataset.startswith(f"{whole}_"))
        return self._datasets.get(dataset, []) or list(itertools.chain.from_iterable(found))
