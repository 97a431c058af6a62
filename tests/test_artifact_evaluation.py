"""The page for reviewers lists what the papers print as the cards, suites and specs have it."""

from __future__ import annotations

import importlib.util
import re
import shlex

import pytest

from conftest import ROOT
from upkeep.catalog import Catalog
from upkeep.jobs import Cell
from upkeep.report.claims import read_claims
from upkeep.report.specs import read_paper

SPEC = importlib.util.spec_from_file_location("listed_artifacts", ROOT / "docs" / "artifacts.py")
assert SPEC is not None and SPEC.loader is not None
artifacts = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(artifacts)
CATALOG = Catalog(ROOT)


def test_the_page_is_as_its_program_writes_it() -> None:
    page = artifacts.PAGE.read_text("utf-8")
    assert artifacts.PLACE.search(page)[0] == artifacts.listing(), "python docs/artifacts.py writes it anew"


@pytest.mark.parametrize("paper", CATALOG.papers)
def test_every_table_figure_and_finding_of_a_paper_has_a_line(paper: str) -> None:
    spec, claims = read_paper(ROOT / "papers" / paper), read_claims(ROOT / "papers" / paper)
    _, _, section = artifacts.PAGE.read_text("utf-8").partition(f"\n## {spec.label}\n")
    lines = [line.split(" | ")[0].removeprefix("| ") for line in section.partition("\n## ")[0].splitlines()]
    for name in [*(one.title for one in [*spec.tables, *spec.figures]), *(claim.id for claim in claims)]:
        assert name in lines


def test_each_question_takes_as_many_clicks_or_commands_as_its_steps_are_and_at_most_five() -> None:
    section = artifacts.PAGE.read_text("utf-8").partition("\n## Ten questions")[2].partition("\n## ")[0]
    rows = [
        line.strip("| ").split(" | ") for line in section.splitlines() if re.search(r"\d (click|command)s? \|$", line)
    ]
    assert len(rows) == 10
    report = "".join(
        path.read_text("utf-8") for path in (ROOT / "src/upkeep/report").rglob("*.*") if path.suffix != ".pyc"
    )
    for _, steps, takes in rows:
        if "click" in takes:
            found = sum(2 if step.startswith("choose ") else 1 for step in steps.split("; "))
            # What is to be clicked bears these words; single ones also say which column is meant.
            assert all(f'"{word}"' in report or f">{word}<" in report for word in re.findall(r"\*([^*]+)\*", steps)), (
                steps
            )
        else:
            found = len(re.findall(r"`\./upkeep |the first again", steps))
        assert found == int(takes.split()[0]) <= 5, steps


def test_the_cell_that_the_questions_run_again_is_one_of_mini_by_the_name_that_they_explain() -> None:
    page = artifacts.PAGE.read_text("utf-8")
    found = re.search(r'explain oaks/table_4 "(.+) \(k=(\d)\)" All`; `\./upkeep cell (\S+) ', page)
    assert found is not None
    cell = Cell.parse(found[3])
    assert cell in CATALOG.cells(CATALOG.suite("mini")) and cell.variant == f"k{found[2]}"
    assert CATALOG.method(cell.method).label == found[1]


def test_every_badge_has_its_conditions_and_every_command_is_one_that_there_is() -> None:
    from upkeep.cli import _parser

    page = artifacts.PAGE.read_text("utf-8")
    for badge in ("Available", "Functional", "Reusable", "Results Reproduced", "Results Replicated"):
        assert re.search(rf"\| [\w ,]*{badge} \|", page)
    commands = {words for found in re.findall(r"`(\./upkeep [^`]+)`", page) for words in found.split(" && ")}
    assert len(commands) > 30
    for words in commands:
        given = [word for word in shlex.split(words)[1:] if word != "PAPER"]
        _parser(".").parse_args([*given, "method", "tried"] if given == ["new"] else given)
