"""Every cell of a paper's suite scored: what of the paper then has a number of ours beside it, and what has none.

What has none is listed in `unfilled.csv` beside this file with the reason that the product gives. After a change that
fills or empties anything this writes the list anew; read what it says before you keep it:

    PYTHONPATH=src:. python tests/test_whole_papers.py > tests/unfilled.csv
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from conftest import ROOT
from release_fakes import KINDS, scores_of
from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.grading import measuring, resampling
from upkeep.grading.score import identify
from upkeep.jobs import Cell
from upkeep.report import claims, figures, papers, tabled, tables, verdicts, waiting
from upkeep.report.best import best_of
from upkeep.report.card_fields import Cards
from upkeep.report.comparing import NOT_RUN
from upkeep.report.fields import agrees, as_judged, as_printed, expanded, holds
from upkeep.report.reference import read_reference
from upkeep.report.rows import Number, Row
from upkeep.report.specs import FigureSpec, PaperSpec, read_paper, several

LIST = Path(__file__).with_name("unfilled.csv")
PAPERS = sorted(path.parent.name for path in (ROOT / "papers").glob("*/suite.yaml"))
FILLED = ("within the interval", "differs", "set alike", "set otherwise")
FEW = 20
"""Resamples for the intervals of these scores: which places are filled hangs on none of them."""
Line = tuple[str, str, str, str, str, str]
COLUMNS = ("paper", "what", "row", "state", "numbers", "reason")
"""A row of a table, a series of a figure or a finding; how many numbers (of a figure, panels) it lacks, and why."""


@dataclass
class Whole:
    """A paper with a score for each cell of its suite."""

    paper: str
    spec: PaperSpec
    cells: list[Cell]
    made_up: pl.Series
    """The values of its scores."""
    scores: pl.DataFrame
    """Its scores as the paper calls them; the value of each is its row, so that it is known wherever it stands."""
    own: pl.DataFrame
    """Those of them that its tables see."""
    tables: list[tables.Table]

    @property
    def folder(self) -> Path:
        return ROOT / "papers" / self.paper

    def numbers(self) -> Iterator[tuple[tables.Table, Row, Number]]:
        """Every place with a published number."""
        for table in self.tables:
            for row in table.papers:
                yield from ((table, row, number) for number in row.numbers if number.published)


def whole(paper: str) -> Whole:
    catalog, spec = Catalog(ROOT), read_paper(ROOT / "papers" / paper)
    cells, table = scores_of(catalog, paper)
    known = waiting.Printed.of(papers.references(catalog, paper, spec))
    made_up = as_printed(best_of(table, spec.best, spec.judge) if spec.best else table, spec.called)
    scores = made_up.with_columns(value=pl.int_range(pl.len()).cast(pl.Float64))
    own = tabled.of_paper(catalog, paper, known, scores)
    more, gaps = waiting.beyond(catalog, cells, known, spec.called)
    left, cards = as_printed(more, spec.called), Cards(catalog, paper)
    built = tables.build_all(ROOT / "papers" / paper, own, left, gaps, cards)
    return Whole(paper, spec, cells, made_up["value"], scores, own, list(built))


# ------------------------------------------------------------------ tables and figures


def unfilled_in_tables(of: Whole) -> Iterator[Line]:
    left: Counter[tuple[str, str, str, str]] = Counter()
    for table, row, number in of.numbers():
        if number.state not in FILLED:
            assert not number.command, f"{number.command} would fill {table.spec.id} {row.stub}: the suite lacks it"
            left[table.spec.id, " | ".join(filter(None, row.stub)), number.state, number.reason] += 1
    for (table, stub, state, reason), count in left.items():
        yield of.paper, table, stub, state, str(count), reason


def undrawn(of: Whole) -> Iterator[Line]:
    """Series of figures of which panels have no number of ours where the paper draws one."""
    scores, catalog = as_judged(of.own, of.spec.judge), Catalog(ROOT)
    for spec in of.spec.figures:
        references = [read_reference(of.folder / "reference" / f"{name}.csv") for name in spec.published]
        built = figures.build(spec, scores, references)
        for place, series in enumerate(spec.series):
            panels, reasons = 0, set[str]()
            for panel, traces in zip(spec.panels, built.panels, strict=True):
                match = figures._match(panel, series)
                if series.own or [] in match.values():  # the paper draws none there
                    continue
                mine = {x for one in traces if one.series == place and not one.published for x in one.x}
                printed = {x for one in traces if one.series == place and one.published for x in one.x}
                wanted = printed or (
                    set(map(float, range(len(spec.places)))) if series.x in ("method", "model") else set()
                )
                if not mine or wanted - mine:
                    panels += 1
                    lacking = [name for n, name in enumerate(spec.places) if n in wanted - mine]
                    asked = match | ({series.x: lacking} if series.x and lacking else {})
                    reasons |= set(why_undrawn(catalog, of, spec, asked))
            if panels:
                yield of.paper, spec.id, series.name, "not drawn", str(panels), "; ".join(sorted(reasons))


def why_undrawn(catalog: Catalog, of: Whole, spec: FigureSpec, asked: Mapping[str, str | list[str]]) -> Iterable[str]:
    """What the suite lacks for these numbers, or why tables say that no run gives them."""
    for table in of.spec.tables:
        if table.file.removesuffix(".csv") in spec.published and table.unfilled:
            printed = read_reference(of.folder / "reference" / table.file).filter(holds(dict(asked)))
            for row in printed.iter_rows(named=True):
                yield from [one.why for one in table.unfilled if agrees(expanded(row), one.match)][:1]
    triples = [
        (dataset, method, model)
        for dataset in several(asked.get("dataset", []))
        for method in several(asked.get("method", []))
        for model in several(asked.get("model", spec.models))
    ]
    _, gaps = waiting.beyond(catalog, [], waiting.Printed(frozenset(triples)), of.spec.called)
    yield from {gap.reason for gap in gaps.values()} - {NOT_RUN}


# ------------------------------------------------------------------ findings


def as_published(of: Whole) -> dict[float, float]:
    """Score of ours -> the published number beside it."""
    found: dict[float, float] = {}
    for table, row, number in of.numbers():
        mean = table.spec.average and agrees(dict(zip(table.spec.rows, row.key, strict=True)), table.spec.average)
        if number.own is not None and not number.source and not mean:
            assert found.setdefault(number.own, float(number.published)) == float(number.published), number
    return found


def judged(of: Whole) -> list[tuple[claims.Claim, claims.Verdict]]:
    """What the findings come to where our scores are the published numbers; all others are as they were made up."""
    printed = as_published(of)
    values = [printed.get(n, value) for n, value in zip(of.scores["value"], of.made_up, strict=True)]
    scores = of.scores.with_columns(value=pl.Series(values, dtype=pl.Float64))
    by_cell = scores.partition_by("cell", as_dict=True)
    drawn = {
        str(cell): np.repeat(rows["value"].to_numpy()[:, None], verdicts.RESAMPLES, axis=1)
        for (cell,), rows in by_cell.items()
    }
    models = {figure.id: figure.models for figure in of.spec.figures}
    ledger = claims.read_claims(of.folder)
    found = verdicts.judge(of.folder, ledger, scores, drawn.__getitem__, of.spec.judge, models)
    return [(claim, found[claim.id].release) for claim in ledger]


def undecided(of: Whole, found: Iterable[tuple[claims.Claim, claims.Verdict]]) -> Iterator[Line]:
    for claim, verdict in found:
        if verdict.outcome not in ("holds", "fails"):
            why = claim.undecidable or "; ".join(verdict.missing)
            yield of.paper, claim.id, "", verdict.outcome, "", why


# ------------------------------------------------------------------ cells

BESIDE = {"oaks": {"closed_book", "oracle"}, "evowiki": {"answer_probability"}}
"""Methods of a paper's suite that no table of its numbers has: what is known without context and with all that is
needed, and what is drawn alone."""
DRAWN = {"prelude": {"prelude_human_study"}}
"""Datasets of a paper's suite that figures without numbers are drawn of, and no table."""


def called(catalog: Catalog, cell: Cell) -> tuple[object, ...]:
    """What tables call a method on a dataset: learning rates, of which they show the best, are no part of it."""
    known_as = identify(catalog, cell, None)
    adapter, preset = dict(known_as.setting).get("adapter"), cell.model.partition("@")[2]
    return known_as.dataset_id, known_as.method, known_as.model, adapter, preset


def check_cells(of: Whole, catalog: Catalog) -> None:
    """Each method of the suite fills something, by some variant, and nothing in the row of another model."""
    filled = set()
    spelled = {
        m: one.instead["model"] for one in of.spec.called if "model" in one.instead for m in several(one.where["model"])
    }
    for table, row, number in of.numbers():
        if number.own is not None and number.cell:
            cell = Cell.parse(number.cell)
            filled.add(called(catalog, cell))
            model, label = dict(zip(table.spec.rows, row.key, strict=True)).get("model"), catalog.spec(cell.model).label
            assert not model or model in (label, spelled.get(label)), row
    idle = {
        str(cell)
        for cell in of.cells
        if called(catalog, cell) not in filled
        and cell.method not in BESIDE.get(of.paper, ())
        and cell.dataset not in DRAWN.get(of.paper, ())
    }
    assert idle == set()


def check_runs(of: Whole) -> None:
    """Findings count the scores that their tables show beside published numbers, and no others: of cells and metrics
    that tables have at all; what a dataset holds, which they show whatever ran, is no run."""
    shown: dict[str, set[tuple[str, float | None]]] = {}
    for table in of.tables:
        asked = {
            *table.spec.rows,
            *table.spec.where,
            *(n for axis in table.spec.columns for m in axis.values() for n in m),
        }
        if "method" in asked:
            shown.setdefault(table.spec.file.removesuffix(".csv"), set())
    for table, _, number in of.numbers():
        if (name := table.spec.file.removesuffix(".csv")) in shown and number.cell and number.own is not None:
            shown[name].add((number.cell, number.own))
    assert any(shown.values())
    # Reasons are judged: no run's score of them has the settings of the printed ones, which people gave.
    own = of.own.filter(pl.col("metric") != "reasoning_accuracy")
    for file, wanted in shown.items():
        counted = verdicts.runs_of(of.folder, own, (file,), of.spec.judge).filter(pl.col("cell") != "")
        assert set(counted.select("cell", "value").iter_rows()) == wanted, file


# ------------------------------------------------------------------ the tests


def listed() -> list[Line]:
    with LIST.open(encoding="utf-8", newline="") as file:
        return [tuple(line[name] for name in COLUMNS) for line in csv.DictReader(file)]  # type: ignore[misc]


@pytest.mark.parametrize("paper", PAPERS)
def test_a_papers_suite_fills_whatever_it_has_of_it_but_for_what_is_listed(
    paper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And where our scores are the published numbers, findings come out as on these."""
    catalog = Catalog(ROOT)
    monkeypatch.setattr(resampling, "DRAWS", FEW // 2)
    monkeypatch.setattr(measuring, "RESAMPLES", FEW)
    of = whole(paper)
    decided = judged(of)
    found = [*unfilled_in_tables(of), *undrawn(of), *undecided(of, decided)]
    known = [line for line in listed() if line[0] == paper]
    assert sorted(set(found) - set(known)) == [], "unfilled, and not listed"
    assert sorted(set(known) - set(found)) == [], "listed, and filled"
    assert all(reason for *_, reason in found)
    check_cells(of, catalog)
    check_runs(of)

    lines = sum(len(read_reference(path)) for path in (of.folder / "reference").glob("*.csv"))
    facts = sum(_facts(of, table.spec) for table in of.tables)
    assert sum(1 for _ in of.numbers()) + facts == lines, "every published number has one place"

    for claim, verdict in decided:
        said = verdict.so_far or verdict.outcome
        if claim.published != "no_numbers" and said in ("holds", "fails"):
            assert said == claim.published, claim.id


def _facts(of: Whole, spec: tables.TableSpec) -> int:
    """Published numbers that say something of a row."""
    reference = read_reference(of.folder / "reference" / spec.file)
    return sum(len(reference.filter(holds(fact.match))) for fact in spec.facts)


NAMED_BY_INPUTS = {"book", "library", "persona", "month"}
"""Slices whose values are what a release holds: the small ones have others."""


@pytest.mark.parametrize(
    "family", ["oaks_babi", "oaks_novel", "evowiki", "prelude", "imprint_code", "imprint_personal"]
)
def test_made_up_questions_have_the_slices_that_builders_give(family: str, tmp_path: Path) -> None:
    card = build_dataset(Catalog(ROOT), f"{family}_mini", tmp_path / family)
    for name, values in KINDS[family].items():
        assert name in card.slices
        known = set(card.slices[name]) | {"training"}  # the small one of PRELUDE asks the human study's items alone
        assert name in NAMED_BY_INPUTS or set(values) <= known, name


def test_every_finding_has_a_line_or_is_decided_and_the_list_has_no_line_twice() -> None:
    known = listed()
    assert len(set(known)) == len(known) and {line[0] for line in known} <= set(PAPERS)
    assert all(line[3] in ("partial", "not_run", "undecidable") for line in known if not line[4])


if __name__ == "__main__":
    resampling.DRAWS, measuring.RESAMPLES = FEW // 2, FEW
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    for name in PAPERS:
        made = whole(name)
        writer.writerows([*unfilled_in_tables(made), *undrawn(made), *undecided(made, judged(made))])
