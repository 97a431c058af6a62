"""Lists what the papers print with what it takes; `python docs/artifacts.py` writes it into the page.

Nothing is run: cells and commands are those of the suites, hardware and weights those of the cards.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from upkeep.catalog import Catalog
from upkeep.grading.scores import Scores, scores_now
from upkeep.jobs import Cell
from upkeep.needs import gpus_of
from upkeep.report.claims import Claim, read_claims
from upkeep.report.rows import Number
from upkeep.report.specs import FigureSpec, read_paper
from upkeep.report.tabled import tables_of
from upkeep.report.tables import Table

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "artifact-evaluation.md"
PLACE = re.compile(r"(?<=<!-- written by docs/artifacts.py -->\n).*?(?=<!-- end -->)", re.S)
BYTES = 2
"""Of a parameter in 16 bits, as weights are kept."""
EXPECTED = {"holds": "holds", "fails": "does not hold", "no_numbers": "no numbers printed"}


def listing() -> str:
    """Each paper's tables, figures and findings."""
    lines: list[str] = []
    # As on a machine that has run nothing: what lies under somebody's results is no part of the page.
    with tempfile.TemporaryDirectory() as results:
        catalog = Catalog(ROOT, None, {"results": results})
        for paper in catalog.papers:
            lines += _paper(catalog, scores_now(catalog, paper), paper)
    return "\n".join([*lines, ""])


def _paper(catalog: Catalog, scores: Scores, paper: str) -> Iterator[str]:
    folder = ROOT / "papers" / paper
    spec, cells = read_paper(folder), list(scores.basis.cells)
    yield f"\n## {spec.label}\n"
    yield f"All of it: `./upkeep run {paper}`, {len(cells):,} cells; {_takes(catalog, cells)}.\n"
    yield "| table | published | cells | takes | what there is to expect | command |"
    yield "| --- | ---: | ---: | --- | --- | --- |"
    for table in tables_of(scores, paper):
        yield _row(_table(catalog, paper, table))
    if spec.figures:
        yield "\n| figure | shows | beside it |"
        yield "| --- | --- | --- |"
        yield from (_row(_figure(figure)) for figure in spec.figures)
    yield "\n| finding | says | in the paper; numbers of | by these it |"
    yield "| --- | --- | --- | --- |"
    yield from (_row(_finding(claim)) for claim in read_claims(folder))


def _table(catalog: Catalog, paper: str, table: Table) -> tuple[str, ...]:
    places = [number for row in table.rows if row.published for number in row.numbers if number.published]
    cells = [Cell.parse(name) for name in dict.fromkeys(one.cell for one in places if one.cell)]
    never = [one for one in places if not one.command and not one.source]
    read = [one for one in places if one.source]
    commands = dict.fromkeys(one.command for one in places if one.command)
    command = f"./upkeep run {paper} --table {paper}/{table.spec.id}"
    if not any(one.startswith(f"./upkeep run {paper}") for one in commands):
        command = " && ".join(dict.fromkeys(part for one in commands for part in one.split(" && ")))
    title, printed = table.spec.title, str(len(places))
    if read and not command:
        expected = f"what our cards set{_left(never)}"
        return title, printed, "", "CPU, no run", expected, f"`./upkeep explain {paper}/{table.spec.id}`"
    if len(never) == len(places) or not command:
        expected = f"nothing: {next((one.reason for one in places if one.reason), 'no run of ours fills it')}"
        return title, printed, "", "", expected, ""
    kinds = {catalog.dataset(cell.dataset).provenance for cell in cells}
    expected = "the published counts" if not cells else "the published number within our interval"
    if "rebuild" in kinds:
        expected += "; on rebuilt data beside it, not compared"
    if read:
        expected += f"; in {len(read)} of the places what our cards set"
    expected += _left(never)
    count, takes = (str(len(cells)), _takes(catalog, cells)) if cells else ("", "CPU, the dataset alone")
    return title, printed, count, takes, expected, f"`{command}`"


def _left(never: list[Number]) -> str:
    return f"; {len(never)} of the places stay{'s' if len(never) == 1 else ''} empty" if never else ""


def _figure(figure: FigureSpec) -> tuple[str, ...]:
    beside = f"the numbers of {', '.join(figure.published)}" if figure.published else "none are printed"
    return figure.title, figure.caption, beside


def _finding(claim: Claim) -> tuple[str, ...]:
    tables = list(dict.fromkeys(name for check in claim.checks for name in check.tables))
    outcome = f"cannot be decided: {claim.undecidable}" if claim.undecidable else EXPECTED[claim.published]
    return claim.id, claim.statement, f"{claim.where}; {', '.join(tables)}", outcome


def _takes(catalog: Catalog, cells: Iterable[Cell]) -> str:
    """What cells ask of a machine: the most GPUs that one of them needs, what is paid for, and the weights."""
    cells = list(cells)
    models = {model for cell in cells for model in [cell.model, *catalog.asked(cell).values()] if model != "none"}
    own = {model.partition("+")[0] for model in models}
    gpus = max((gpus_of(catalog, cell) for cell in cells), default=0)
    paid = sorted(model for model in own if catalog.spec(model).engine == "endpoint")
    cards = {(catalog.model(m).location, catalog.model(m).parameters_b) for m in own - {*paid}}
    known = [size for _, size in cards if size]
    told = [f"{gpus} GPU{'s' if gpus > 1 else ''} at most" if gpus else "CPU"]
    told += [f"{BYTES * sum(known):,.0f} GB of weights"] if known else []
    told += [f"money for {len(paid)} API{'s' if len(paid) > 1 else ''}"] if paid else []
    return ", ".join(told)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    PAGE.write_text(PLACE.sub(lambda _: listing(), PAGE.read_text("utf-8")), "utf-8")
