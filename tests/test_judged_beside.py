"""A cell of no suite whose scores a judge decides: run by itself, beside a suite of its paper."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from endpoint_fakes import MODEL, FakeEndpoint
from judged_cells import ECHO, PROBES, SUITE, _quick, repository, server
from upkeep.catalog import Catalog
from upkeep.grading.basis import Basis
from upkeep.grading.judged import judged
from upkeep.grading.scores import read_scores, score_suite
from upkeep.grading.settings import option
from upkeep.judging.suite import judge_suite

__all__ = ["_quick", "server"]


def suite(root: Path, judges: str = MODEL, papers: str = "toy") -> Catalog:
    """Of another cell of the toy than the one that was run."""
    (root / "papers/toy/reference").mkdir(exist_ok=True)
    (root / "papers/toy/tables.yaml").write_text("{label: Toy, citation: Nobody., tables: []}")
    text = SUITE.replace("echo/a", "echo/b").replace("papers: []", f"papers: [{papers}]")
    (root / "config/suites/mini.yaml").write_text(text.replace("judges: [there]", f"judges: [{judges}]"))
    return Catalog(root)


def decided(catalog: Catalog) -> dict[str, float]:
    """Who decides an accuracy of the cell -> its value."""
    rows = score_suite(catalog, "mini").table.filter(
        pl.col("cell") == str(ECHO), pl.col("metric") == "accuracy", pl.col("subset") == "all"
    )
    return dict(rows.select(option("judge"), "value").iter_rows())


def test_it_is_judged_with_the_suite_once_and_scored_by_judge_and_by_words(
    tmp_path: Path, server: FakeEndpoint
) -> None:
    repository(tmp_path, server.url)
    catalog = suite(tmp_path)
    assert set(decided(catalog)) == {"words"} and score_suite(catalog, "mini").basis.unjudged == {}
    lines = list(judge_suite(catalog, "mini", MODEL))
    assert lines[-1] == f"{MODEL}: 1 cells judged; 1 are not run" and lines[0].startswith(f"{ECHO}: {PROBES} verdicts")
    asked = len(server.bodies)
    manifest = Basis(catalog, "mini").beside[ECHO].manifest
    assert manifest is not None
    right = judged(catalog, ECHO, MODEL, manifest).rows.filter(pl.col("meaning") == "right").height
    found = decided(catalog)
    assert set(found) == {"words", MODEL} and found[MODEL] == pytest.approx(100 * right / PROBES)
    list(judge_suite(Catalog(tmp_path), "mini", MODEL))
    assert len(server.bodies) == asked, "nothing is asked again"
    assert read_scores(catalog, "mini").table.equals(score_suite(catalog, "mini").table)


def test_who_has_judged_it_counts_in_a_suite_that_names_nobody_and_not_where_the_user_has_another(
    tmp_path: Path, server: FakeEndpoint
) -> None:
    repository(tmp_path, server.url)
    list(judge_suite(suite(tmp_path), "mini", MODEL))
    assert set(decided(suite(tmp_path, judges=""))) == {"words", MODEL}
    suite(tmp_path)
    assert set(decided(Catalog(tmp_path, None, {"judge": "none"}))) == {"words"}


def test_a_suite_without_the_paper_has_nothing_of_it_judged(tmp_path: Path, server: FakeEndpoint) -> None:
    repository(tmp_path, server.url)
    catalog = suite(tmp_path, papers="")
    assert list(judge_suite(catalog, "mini", MODEL)) == [f"{MODEL}: 0 cells judged; 1 are not run"]
    assert server.bodies == [] and decided(catalog) == {}


def test_verdicts_on_other_answers_do_not_count(tmp_path: Path, server: FakeEndpoint) -> None:
    """The judge's rubric is another one since: its old verdicts are none, and the cell waits beside for new ones."""
    repository(tmp_path, server.url)
    list(judge_suite(suite(tmp_path), "mini", MODEL))
    path = tmp_path / "papers/toy/judges.yaml"
    path.write_text(path.read_text().replace("Judge {gold}.", "Judge {gold} well."))
    assert set(decided(Catalog(tmp_path))) == {"words"}
    list(judge_suite(Catalog(tmp_path), "mini", MODEL))
    assert set(decided(Catalog(tmp_path))) == {"words", MODEL}
