"""What the metrics of evolveQA make of an attack's scores, held against scikit-learn and a count one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import roc_auc_score

from conftest import ROOT
from table_papers import evolveqa, reference_of
from upkeep.catalog import Catalog
from upkeep.grading.measuring import Measured, measured
from upkeep.grading.metric_families import read_family
from upkeep.grading.metrics import GRADED_SCHEMA
from upkeep.grading.resampling import Draws
from upkeep.report import waiting
from upkeep.report.specs import read_paper

FAMILY = read_family(ROOT / "papers" / "evolveqa" / "metrics.py")
SPEC = read_paper(ROOT / "papers" / "evolveqa")
Scores = Sequence[float | None]


def cell(before: Scores, after: Scores, held_out: Scores, trials: int = 1, **fields: Any) -> pl.DataFrame:
    """The verdicts of a cell whose method gave documents these scores."""
    rows: list[dict[str, Any]] = []
    for subset, scores in (("before_cutoff", before), ("after_cutoff", after), ("held_out", held_out)):
        for score in scores:
            id = f"aws_d{len(rows) // trials:04d}"
            row = {"probe_id": f"{id}@0", "question_id": id, "right": False, "outdated": False, "failed": False}
            row |= {"parse": "none", "slice_membership": subset, "value_min_k_prob": score} | fields
            rows += [row | {"trial": trial} for trial in range(trials)]
    types = {"slice_membership": pl.String(), "value_min_k_prob": pl.Float64()}
    return pl.DataFrame(rows, schema=GRADED_SCHEMA | types)


def of(graded: pl.DataFrame) -> Measured:
    """Its scores; one that measured has those of a method whose card says so."""
    family = FAMILY.of_values() if "value_min_k_prob" in graded.columns else FAMILY
    return measured(family, graded, 0, {}, Draws("d", graded["question_id"]))


def values(graded: pl.DataFrame) -> dict[tuple[str, str], float]:
    return {(s, m): value for s, m, value in of(graded).scores.select("subset", "metric", "value").iter_rows()}


def rates(graded: pl.DataFrame) -> tuple[float | None, float | None]:
    found = values(graded)
    return found.get(("before_cutoff", "mia_detection_rate")), found.get(("after_cutoff", "mia_detection_rate"))


def by_hand(graded: pl.DataFrame) -> dict[tuple[str, str], float]:
    """Document by document: threshold, shares above it, and pairs in the right order."""
    found: dict[str, list[float]] = {"before_cutoff": [], "after_cutoff": [], "held_out": []}
    for subset, score in graded.select("slice_membership", "value_min_k_prob").iter_rows():
        if score is not None:
            found[subset].append(score)
    before, after, held = (sorted(scores) for scores in found.values())
    result = {}
    if held:
        threshold = held[math.ceil(len(held) / 5) - 1]
        for subset, scores in (("before_cutoff", before), ("after_cutoff", after)):
            if scores:
                above = [score > threshold for score in scores]
                result[subset, "mia_detection_rate"] = 100 * sum(above) / len(above)
    if before and after:
        wins = sum((b > a) + (b == a) / 2 for b in before for a in after)
        result["all", "mia_auc"] = wins / (len(before) * len(after))
    return result


# ---------------------------------------------------------------- worked by hand


def test_a_member_scores_above_what_a_fifth_of_the_held_out_do_not_exceed() -> None:
    held_out = [-10.0, -9.0, -8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0]  # the threshold is -9
    assert rates(cell([-9.5, -9.0, -8.9, -1.0], [-20.0, -8.0], held_out)) == (50, 50)
    assert rates(cell(held_out, held_out, held_out)) == (80, 80)
    assert rates(cell([0.0], [-9.0], held_out)) == (100, 0)


@pytest.mark.parametrize("size", [5, 15, 35, 45, 55, 500])
def test_of_held_out_documents_with_scores_of_their_own_80_percent_are_above_the_threshold(size: int) -> None:
    held_out = [-float(n) for n in range(size)]
    assert rates(cell(held_out, [-1e6], held_out)) == (80, 0)


def test_one_held_out_document_is_the_threshold_itself() -> None:
    assert rates(cell([-1.0, -2.0, -3.0], [-3.0], [-2.0])) == pytest.approx((100 / 3, 0))


def test_equal_scores_are_all_members_or_all_not() -> None:
    assert rates(cell([-1.0] * 5, [-1.0] * 3, [-1.0] * 10)) == (0, 0)
    assert rates(cell([-1.0] * 5, [-2.0] * 3, [-1.0] * 4 + [-2.0])) == (100, 0)


def test_the_area_is_the_share_of_pairs_in_the_right_order() -> None:
    assert values(cell([-1.0, -3.0], [-2.0, -4.0], []))["all", "mia_auc"] == 0.75
    assert values(cell([-1.0, -2.0], [-2.0], []))["all", "mia_auc"] == 0.75
    assert values(cell([-1.0], [-1.0], []))["all", "mia_auc"] == 0.5
    assert values(cell([-1.0], [-2.0], []))["all", "mia_auc"] == 1
    assert values(cell([-2.0], [-1.0], []))["all", "mia_auc"] == 0


# ---------------------------------------------------------------- against others


def draw(rng: Random) -> pl.DataFrame:
    """Few or many documents, with many equal scores or none, some without any, some far out."""
    some = rng.choice([lambda: rng.gauss(-6, 2), lambda: float(rng.randint(-4, -1)), lambda: rng.choice([-1e300, 0.0])])

    def scores() -> list[float | None]:
        lost = rng.choice([0, 0, 0.3])
        return [None if rng.random() < lost else some() for _ in range(rng.choice([0, 1, 2, 7, 40]))]

    return cell([*scores(), None], scores(), scores(), trials=rng.choice([1, 3]))


@pytest.mark.parametrize("seed", range(60))
def test_every_score_is_that_of_a_count_one_by_one(seed: int) -> None:
    graded = draw(Random(seed))
    found = {key: value for key, value in values(graded).items() if key[1].startswith("mia_")}
    assert found == pytest.approx(by_hand(graded))
    assert all(0 <= value <= (1 if metric == "mia_auc" else 100) for (_, metric), value in found.items())


@pytest.mark.parametrize("seed", range(20))
def test_the_area_is_that_of_scikit_learn(seed: int) -> None:
    rng = Random(seed)
    scores = [round(rng.gauss(-6, 2), rng.choice([0, 1, 9])) for _ in range(80)]
    size = rng.randint(1, 79)
    truth = [True] * size + [False] * (80 - size)
    found = values(cell(scores[:size], scores[size:], []))["all", "mia_auc"]
    assert found == pytest.approx(roc_auc_score(truth, scores))


@pytest.mark.parametrize("seed", range(10))
def test_only_the_order_of_scores_counts(seed: int) -> None:
    graded = draw(Random(seed))
    bent = graded.with_columns(pl.col("value_min_k_prob").clip(-50) * 3 + 1)
    if graded["value_min_k_prob"].drop_nulls().min() or 0 > -50:
        assert values(graded) == values(bent)


def test_the_interval_is_that_of_documents_drawn_again_threshold_included() -> None:
    rng = Random(5)
    before, after, held_out = ([rng.gauss(mean, 1) for _ in range(60)] for mean in (-5, -6, -5))
    rows = of(cell(before, after, held_out)).scores.filter(pl.col("metric").str.starts_with("mia_")).to_dicts()
    generator = np.random.default_rng(1)
    for row in rows:
        drawn = []
        for _ in range(1000):
            parts = [generator.choice(s, len(s)).tolist() for s in (before, after, held_out)]
            drawn.append(by_hand(cell(*parts))[row["subset"], row["metric"]])
        assert row["se"] == pytest.approx(np.std(drawn), rel=0.15)
        assert (row["low"], row["high"]) == pytest.approx(np.percentile(drawn, [2.5, 97.5]), abs=2.5 * row["se"] / 3)
        assert row["questions"] == 120, "the documents that it rests on"
        assert row["n"] == (120 if row["metric"] == "mia_auc" else 60), "those that it is a share of"
        assert row["unit"] == ("ratio" if row["metric"] == "mia_auc" else "percent")
    assert len(rows) == 3


def test_both_rates_of_a_resample_have_the_same_threshold() -> None:
    """What a claim says of their difference: where both sides have the same scores, it is 0 but for who is drawn."""
    rng = Random(0)
    same = [rng.gauss(-5, 1) for _ in range(200)]
    found = of(cell(same, same, same[:25]))
    before, after = (
        found.resamples[(found.scores["subset"] == s) & (found.scores["metric"] == "mia_detection_rate")][0]
        for s in ("before_cutoff", "after_cutoff")
    )
    assert np.corrcoef(before, after)[0, 1] > 0.5


# ---------------------------------------------------------------- what has no such score


def test_a_cell_that_measures_has_no_accuracy_and_one_that_answers_has_no_rate() -> None:
    graded = cell([-1.0] * 3, [-2.0] * 3, [-1.5] * 3)
    metrics = {metric for _, metric in values(graded)}
    assert metrics == {"mia_detection_rate", "mia_auc", "error_rate"}
    answers = graded.drop("value_min_k_prob").with_columns(
        right=pl.col("slice_membership") != "after_cutoff", parse=pl.lit("whole")
    )
    found = values(answers)
    assert {metric for _, metric in found} == {
        "accuracy",
        "outdated_rate",
        "incorrect_rate",
        "parse_rate",
        "error_rate",
    }
    assert (found["before_cutoff", "accuracy"], found["after_cutoff", "accuracy"]) == (100, 0)


@pytest.mark.parametrize(("right", "accuracy"), [(False, 0), (True, 100)])
def test_the_controls_have_all_or_nothing_and_no_rate(right: bool, accuracy: float) -> None:
    graded = cell([None] * 3, [None] * 3, [None] * 3, right=right, parse="whole" if right else "none")
    found = values(graded.drop("value_min_k_prob"))
    assert {value for (_, metric), value in found.items() if metric == "accuracy"} == {accuracy}
    assert not any(metric.startswith("mia_") for _, metric in found)


def test_documents_that_failed_have_no_say_and_are_counted() -> None:
    graded = cell([-1.0, None], [-2.0, None, None], [-1.5, -1.0, -0.5, -0.6, -0.7, None])
    graded = graded.with_columns(failed=pl.col("value_min_k_prob").is_null())
    assert rates(graded) == (100, 0)
    assert values(graded)["all", "error_rate"] == pytest.approx(100 * 4 / 11)


def test_nothing_is_said_without_a_threshold_or_without_one_side() -> None:
    assert rates(cell([-1.0], [-2.0], [])) == (None, None)
    assert rates(cell([-1.0], [], [-1.5])) == (100, None)
    assert ("all", "mia_auc") not in values(cell([-1.0], [], [-1.5]))


# ---------------------------------------------------------------- the table


def test_every_place_of_table_5_is_filled_by_a_cell_of_the_papers_suite() -> None:
    (spec,) = [table for table in SPEC.tables if table.id == "table_5"]
    printed = waiting.Printed.of([reference_of("evolveqa", spec)])
    built = evolveqa("table_5", *waiting.beyond(Catalog(ROOT), [], printed, SPEC.called))
    assert [len(row.numbers) for row in built.papers] == [2, 2, 2] and not built.ours
    for row in built.papers:
        for number in row.numbers:
            assert number.state == "not run" and number.command == "./upkeep run evolveqa"
            assert number.cell.endswith("_membership/min_k_prob/k20/llama-3.1-8b-evolveqa")
    assert len({number.cell for row in built.papers for number in row.numbers}) == 3
