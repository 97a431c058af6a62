"""Metrics of two cells: how the second is found and joined, and when it is not used."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest

from metric_cells import CLOSED, DEEP, EVOWIKI, RAG, catalog, fresh, gains, publish, scored, scores_of, verdicts
from scored_cells import suite_of
from test_graded import Counted
from upkeep import published
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.grading.measuring import beside
from upkeep.grading.metric_families import second_of
from upkeep.grading.metrics import Compared, Family, Second, shares
from upkeep.grading.scores import Scores, read_scores, score_suite
from upkeep.grading.settings import as_rows
from upkeep.grading.statistics import estimate
from upkeep.jobs import Cell

__all__ = ["catalog", "fresh", "gains"]

CLOSED_BOOK = Second("the closed book", method="closed_book", untrained=True)

# ------------------------------------------------------------------ a second cell


def test_the_gain_is_that_over_the_closed_book_question_by_question() -> None:
    slices = {"level": ["stable"] * 4, "hops": ["single_hop", "single_hop", "multi_hop", "multi_hop"]}
    own = verdicts(*({"right": right} for right in (True, True, True, False)), **slices)
    closed = verdicts(*({"right": right} for right in (True, False, False, True)))
    found = scored(EVOWIKI, own, closed.select("probe_id", "trial", "right"))
    gain = found["all", "exact_match_gain"]
    assert (gain["value"], gain["unit"], gain["questions"], gain["n"]) == (25, "percent_points", 4, 4)
    assert found["single_hop", "exact_match_gain"]["value"] == 50
    assert found["multi_hop", "exact_match_gain"]["value"] == 0
    # The two cells go together: where both are right on the same questions, the gain is sure.
    same = scored(EVOWIKI, own, own.select("probe_id", "trial", "right"))["all", "exact_match_gain"]
    assert (same["value"], same["se"], same["low"], same["high"]) == (0, 0, 0, 0)
    assert not any(metric == "exact_match_gain" for _, metric in scored(EVOWIKI, own))


def mended(joined: pl.DataFrame, retrieved: int) -> pl.DataFrame:
    """Right answers among those that are outdated in the second cell."""
    rows = joined.filter("second_outdated")
    assert retrieved == 3
    return shares(rows, mended_rate=pl.col("right"))


def test_a_ratio_of_counts_over_two_cells_has_its_interval_by_the_formula() -> None:
    compared = Family(EVOWIKI.measure, compared=[Compared(["mended_rate"], CLOSED_BOOK, mended)])
    own = verdicts(*({"right": right} for right in (True, False, True, True)), level=["a", "a", "b", "b"])
    other = verdicts(*({"outdated": outdated} for outdated in (True, True, True, False)))
    seconds = {CLOSED_BOOK: other.select("probe_id", "trial", "right", "outdated")}
    rows = scores_of(compared, own, seconds, 3).filter(pl.col("metric") == "mended_rate").rows(named=True)
    found = {row["subset"]: row for row in rows}
    assert {subset: round(row["value"], 1) for subset, row in found.items()} == {"all": 66.7, "a": 50, "b": 100}
    one_by_one = pl.DataFrame({"hits": [1.0, 0.0, 1.0], "total": 1.0, "n": 1, "subset": "all", "metric": "m"})
    wanted = estimate(one_by_one.with_columns(at=pl.lit(None, pl.Int32))).row(0, named=True)
    assert found["all"]["se"] == pytest.approx(wanted["se"]) and found["all"]["n"] == 3
    assert "mended_rate" not in set(scores_of(compared, own, {}, 3)["metric"])


def test_the_second_cell_is_joined_by_probe_and_not_by_place() -> None:
    own = verdicts(*({"right": n < 3} for n in range(6)))
    other = own.select("probe_id", "trial", "right")
    backwards = beside(own, other.reverse())
    assert backwards["second_right"].to_list() == backwards["right"].to_list()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda f: f.head(3), id="fewer probes"),
        pytest.param(lambda f: f.with_columns(probe_id=pl.col("probe_id") + "0"), id="other probes"),
        pytest.param(lambda f: f.with_columns(trial=pl.lit(1, pl.Int32)), id="another trial"),
        pytest.param(lambda f: pl.concat([f, f.with_columns(trial=pl.lit(1, pl.Int32))]), id="more trials"),
    ],
)
def test_a_second_cell_of_other_probes_gives_no_number(change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    own = verdicts(*({"right": True} for _ in range(4)))
    with pytest.raises(UpkeepError, match="other probes or trials"):
        scored(EVOWIKI, own, change(own.select("probe_id", "trial", "right")))


BEFORE = Second("before training", untrained=True)


@pytest.mark.parametrize(
    ("second", "cell", "found"),
    [
        (CLOSED_BOOK, "d/rag/k5/m", "d/closed_book/default/m"),
        (CLOSED_BOOK, "d/rag/k5/m+cpt.lora+sft.full", "d/closed_book/default/m"),
        (CLOSED_BOOK, "d/closed_book/default/m+cpt.lora", "d/closed_book/default/m"),
        (CLOSED_BOOK, "d/closed_book/default/m", None),
        (CLOSED_BOOK, "d/gold/default/none", None),
        (BEFORE, "d/rag/k5/m+cpt.lora", "d/rag/k5/m"),
        (BEFORE, "d/rag/k5/m", None),
        (Second("other", method="rag", variant="k5"), "d/rag/k30/m+cpt.lora", "d/rag/k5/m+cpt.lora"),
    ],
)
def test_how_a_second_cell_is_found(second: Second, cell: str, found: str | None) -> None:
    assert second_of(second, Cell.parse(cell)) == (found and Cell.parse(found))


def gains_of(scores: Scores) -> dict[str, float]:
    rows = scores.table.filter(pl.col("metric") == "exact_match_gain", pl.col("subset") == "all")
    return dict(rows.select("cell", "value").iter_rows())


def test_a_suite_scores_what_rests_on_two_cells(gains: Catalog) -> None:
    scores = score_suite(gains, "s")
    assert gains_of(scores) == {str(RAG): 50, str(DEEP): 0}, "and the closed book has none over itself"
    assert scores.lacking == {}
    row = scores.table.filter(pl.col("metric") == "exact_match_gain", pl.col("cell") == str(RAG)).row(0, named=True)
    assert (row["unit"], row["n"], row["setting"]) == ("percent_points", 2, as_rows((("k", "5"), ("thinking", "on"))))


def test_a_score_of_two_cells_is_stale_when_either_changes(gains: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    score_suite(gains, "s")
    publish(gains, CLOSED, "zz")
    with pytest.raises(UpkeepError, match="something has changed"):
        read_scores(Catalog(gains.root), "s")
    counted = Counted(monkeypatch)
    assert gains_of(score_suite(Catalog(gains.root), "s")) == {str(RAG): 100, str(DEEP): 50}
    assert counted.graded == [str(CLOSED)] and sorted(counted.scored) == sorted(map(str, (RAG, DEEP, CLOSED)))
    publish(gains, RAG, "xz")
    counted = Counted(monkeypatch)
    assert gains_of(score_suite(Catalog(gains.root), "s")) == {str(RAG): 50, str(DEEP): 50}
    assert set(counted.scored) == {str(RAG)}


def test_without_its_second_cell_a_metric_has_no_score_and_says_why(
    gains: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, away = gains.results / "cells" / str(CLOSED), gains.results / "away"
    score_suite(gains, "s")
    folder.rename(away)
    scores = score_suite(Catalog(gains.root), "s")
    assert gains_of(scores) == {}
    why = {"exact_match_gain": f"the closed book ({CLOSED}): not run"}
    assert scores.lacking == {str(RAG): why, str(DEEP): why}
    assert read_scores(Catalog(gains.root), "s").lacking == scores.lacking
    accuracy = scores.table.filter(pl.col("metric") == "exact_match", pl.col("subset") == "all")
    assert set(accuracy["cell"]) == {str(RAG), str(DEEP)}, "what one cell is enough for is there"
    away.rename(folder)
    assert gains_of(score_suite(Catalog(gains.root), "s")) == {str(RAG): 50, str(DEEP): 0}


def test_a_second_cell_that_is_stale_is_not_used(gains: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    score_suite(gains, "s")
    monkeypatch.setattr(published, "identity", lambda _, cell: (("1" if cell == CLOSED else "0") * 64, {}))
    scores = score_suite(Catalog(gains.root), "s")
    assert gains_of(scores) == {}
    assert "stale" in scores.lacking[str(RAG)]["exact_match_gain"]


def test_a_second_cell_that_is_damaged_asked_otherwise_or_of_no_suite_is_not_used(gains: Catalog) -> None:
    def reason() -> str:
        scores = score_suite(Catalog(gains.root), "s")
        assert gains_of(scores) == {}
        return scores.lacking[str(RAG)]["exact_match_gain"]

    publish(gains, CLOSED, "xz", trials=2)
    assert reason().endswith("asked 2 times, and not 1")
    publish(gains, CLOSED, "xz")
    path = gains.results / "cells" / str(CLOSED) / "predictions.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"z"', b'"x"'))
    assert "not the file that was written" in reason()
    publish(gains, CLOSED, "xz")
    suite_of(gains, RAG, DEEP)
    assert reason().endswith("not in this suite")
    suite_of(gains, RAG, DEEP, CLOSED)
    assert gains_of(score_suite(Catalog(gains.root), "s")) == {str(RAG): 50, str(DEEP): 0}
