"""The page for reviewers lists what the papers print as the cards, suites and specs have it."""

from __future__ import annotations

import importlib.util
import re

import pytest

from conftest import ROOT
from upkeep.catalog import Catalog
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


def test_every_badge_has_its_conditions_and_every_command_is_one_that_there_is() -> None:
    from upkeep.cli import _parser

    page = artifacts.PAGE.read_text("utf-8")
    for badge in ("Available", "Functional", "Reusable", "Results Reproduced", "Results Replicated"):
        assert re.search(rf"\| [\w ,]*{badge} \|", page)
    commands = {words for found in re.findall(r"`(\./upkeep [^`]+)`", page) for words in found.split(" && ")}
    assert len(commands) > 30
    for words in commands:
        given = [word for word in words.split()[1:] if word != "PAPER"]
        _parser(".").parse_args([*given, "method", "tried"] if given == ["new"] else given)
