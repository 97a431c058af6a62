"""Families of metrics: papers' own code, metrics of two cells, resampled intervals, crossed slices."""

from __future__ import annotations

import dataclasses
import math
import os
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.metrics import f1_score

import test_scoring
from conftest import ROOT
from test_graded import Counted
from test_scoring import answered, key_of, line, manifest_of, suite_of, timeline, write_cell, write_dataset
from upkeep import published
from upkeep.catalog import Catalog
from upkeep.commands.results import tell_alike, tell_refused
from upkeep.contract import Usage
from upkeep.errors import UpkeepError
from upkeep.grading import answers, resampling
from upkeep.grading.graded import Graded, grade, grade_cell, read_predictions
from upkeep.grading.key import key_in
from upkeep.grading.measuring import Place, beside, crossed, measured, numbers, place_of
from upkeep.grading.metric_families import family_of, read_family, second_of
from upkeep.grading.metrics import GRADED_SCHEMA, Compared, Crossed, Family, Second, as_counts, shares, under
from upkeep.grading.resampling import FEWEST, Draws
from upkeep.grading.score import score_cell, tidy
from upkeep.grading.scores import Scores, read_scores, score_suite
from upkeep.grading.settings import SETTING, as_rows
from upkeep.grading.statistics import estimate
from upkeep.jobs import Cell

catalog = test_scoring.catalog
fresh = test_scoring.fresh

EVOWIKI, PRELUDE, OAKS = (
    read_family(ROOT / "papers" / paper / "metrics.py") for paper in ("evowiki", "prelude", "oaks")
)


def verdicts(*rows: Mapping[str, Any], **slices: Sequence[str]) -> pl.DataFrame:
    """GRADED_SCHEMA with these slices; a question for each row that does not name one."""
    common = {"trial": 0, "position": 0, "phase": 0, "right": False, "exact": False, "outdated": False}
    common |= {"parse": "whole"}
    common |= {"failed": False, "has_evidence": False}
    named = [{"question_id": f"q{n:03}"} | common | row for n, row in enumerate(rows)]
    for row in named:
        row.setdefault("probe_id", f"{row['question_id']}@{row['position']}")
    frame = pl.DataFrame(named, schema=GRADED_SCHEMA)
    return frame.with_columns(pl.Series(f"slice_{name}", values, dtype=pl.String) for name, values in slices.items())


def scores_of(
    family: Family, graded: pl.DataFrame, seconds: dict[Second, pl.DataFrame], retrieved: int = 0
) -> pl.DataFrame:
    """What a family measures."""
    return measured(family, graded, retrieved, seconds, Draws("d", graded["question_id"])).scores


def scored(family: Family, graded: pl.DataFrame, second: pl.DataFrame | None = None) -> dict[tuple[str, str], Any]:
    """(subset, metric) -> its score."""
    seconds = {} if second is None else {one.second: second for one in family.resampled if one.second}
    rows = scores_of(family, graded, seconds).iter_rows(named=True)
    return {(row["subset"], row["metric"]): row for row in rows}


# ------------------------------------------------------------------ resampling


def mean(sums: Mapping[str, resampling.Floats]) -> Mapping[str, resampling.Floats]:
    return {"mean": 100 * sums["hits"] / sums["total"]}


def resampled(parts: np.ndarray) -> resampling.Estimate:
    return resampling.estimates(["hits", "total"], parts.astype(float), mean)["mean"]


def test_the_same_verdicts_give_the_same_interval() -> None:
    parts = np.column_stack([np.arange(50) % 3 == 0, np.ones(50)])
    first, second = resampled(parts), resampled(parts)
    assert first == second
    assert first.low is not None and first.high is not None and first.low < first.value < first.high


def test_resampling_agrees_with_the_formula_where_there_is_one() -> None:
    rng = np.random.default_rng(7)
    total = rng.integers(1, 9, 400)
    parts = np.column_stack([rng.binomial(total, rng.uniform(0.1, 0.9, 400)), total])
    own = resampled(parts)
    counts = pl.DataFrame(parts, schema=["hits", "total"]).with_columns(
        subset=pl.lit("all"), metric=pl.lit("m"), at=pl.lit(None, pl.Int32), n=pl.lit(1)
    )
    wanted = estimate(counts).row(0, named=True)
    assert own.value == pytest.approx(wanted["value"])
    assert own.se == pytest.approx(wanted["se"], rel=0.08)
    assert own.low == pytest.approx(wanted["low"], abs=wanted["se"] / 3)
    assert own.high == pytest.approx(wanted["high"], abs=wanted["se"] / 3)


def test_nineteen_of_twenty_intervals_hold_the_truth() -> None:
    """Questions of four predictions each that go together: the interval of single predictions would be too narrow."""
    rng, held, naive, trials, questions = np.random.default_rng(3), 0, 0, 300, 80
    for _ in range(trials):
        chance = rng.beta(0.6, 1.4, questions)  # mean 30 percent
        own = resampled(np.column_stack([rng.binomial(4, chance), np.full(questions, 4)]))
        assert own.low is not None and own.high is not None
        held += own.low <= 30 <= own.high
        naive += abs(own.value - 30) <= 1.96 * 100 * np.sqrt(0.3 * 0.7 / (4 * questions))
    assert 0.915 <= held / trials <= 0.975
    assert naive / trials < 0.85


def test_more_predictions_of_the_same_question_make_no_score_surer() -> None:
    rng = np.random.default_rng(1)
    once = np.column_stack([rng.integers(0, 2, 60), np.ones(60)])
    assert resampled(once * 10) == resampled(once)


def test_one_question_and_undefined_values_have_no_interval() -> None:
    assert resampled(np.array([[1.0, 2.0]])) == resampling.Estimate(50, None, None, None)
    assert resampling.estimates(["hits", "total"], np.zeros((5, 2)), mean) == {}
    # Defined on the questions themselves, and not on every draw of them.
    rare = resampled(np.array([[0.0, 0.0]] * 4 + [[1.0, 1.0]]))
    assert (rare.value, rare.low, rare.high) == (100, 100, 100)


def test_a_thousand_resamples_of_ten_thousand_questions_take_well_under_a_second() -> None:
    parts = np.column_stack([np.arange(10_000) % 3 == 0, np.ones(10_000)])
    resampled(parts[:10])
    begin = time.process_time()
    resampled(parts)
    assert time.process_time() - begin < 1


# ------------------------------------------------------------------ PRELUDE


def label(right_one: str, said: str | None) -> dict[str, Any]:
    return {"right": right_one == said, "canonical": said, "answer": said, "parse": "none" if said is None else "whole"}


def test_f1_by_hand() -> None:
    pairs = [("C", "C"), ("C", "C"), ("C", "D"), ("D", "D"), ("D", None)]
    names = {"C": "consistent", "D": "contradict"}
    graded = verdicts(
        *(label(*pair) for pair in pairs),
        label=[names[gold] for gold, _ in pairs],
        language=["english", "chinese", "chinese", "chinese", "english"],
    )
    found = scored(PRELUDE, graded)
    assert found["all", "f1_consistent"]["value"] == pytest.approx(80)  # 2 of 3 items, 2 said
    assert found["all", "f1_contradict"]["value"] == pytest.approx(50)  # 1 of 2 items, 2 said
    assert found["all", "macro_f1"]["value"] == pytest.approx(65)
    assert found["all", "macro_f1"]["questions"] == found["all", "macro_f1"]["n"] == 5
    assert found["all", "macro_f1"]["low"] <= 65 <= found["all", "macro_f1"]["high"]
    assert found["chinese", "macro_f1"]["value"] == pytest.approx((200 / 3 + 200 / 3) / 2)
    assert found["english", "f1_contradict"]["value"] == 0
    assert found["all", "accuracy"]["value"] == pytest.approx(60)
    assert not any(subset in names.values() and "f1" in metric for subset, metric in found), "no F1 of one class alone"


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("CD"), st.sampled_from(["C", "D", None])), min_size=2, max_size=30))
def test_f1_is_what_everybody_calls_so(pairs: list[tuple[str, str | None]]) -> None:
    names = {"C": "consistent", "D": "contradict"}
    graded = verdicts(*(label(*pair) for pair in pairs), label=[names[gold] for gold, _ in pairs])
    found = {metric: row["value"] for (subset, metric), row in scored(PRELUDE, graded).items() if subset == "all"}
    gold, said = [gold for gold, _ in pairs], [said or "neither" for _, said in pairs]
    if len(set(gold)) < 2:
        assert "macro_f1" not in found
        return
    each = f1_score(gold, said, labels=["C", "D"], average=None, zero_division=0)
    assert [found["f1_consistent"], found["f1_contradict"]] == pytest.approx(100 * each)
    assert found["macro_f1"] == pytest.approx(50 * each.sum())


RUNS = st.integers(2, 15).flatmap(
    lambda items: st.tuples(
        st.lists(st.sampled_from("CD"), min_size=items, max_size=items),
        st.lists(st.lists(st.sampled_from(["C", "D", None]), min_size=items, max_size=items), min_size=1, max_size=4),
    )
)


@settings(max_examples=40, deadline=None)
@given(RUNS, st.randoms(use_true_random=False))
def test_over_runs_a_score_is_their_mean_and_has_their_deviation(
    given_runs: tuple[list[str], list[list[str | None]]], rng: random.Random
) -> None:
    gold, runs = given_runs
    names = {"C": "consistent", "D": "contradict"}
    rows = [
        label(right_one, said) | {"question_id": f"q{n}", "trial": trial, "slice": names[right_one]}
        for trial, answers in enumerate(runs)
        for n, (right_one, said) in enumerate(zip(gold, answers, strict=True))
    ]
    rng.shuffle(rows)
    graded = verdicts(
        *({k: v for k, v in row.items() if k != "slice"} for row in rows), label=[r["slice"] for r in rows]
    )
    found = {metric: row for (subset, metric), row in scored(PRELUDE, graded).items() if subset == "all"}
    said = [[one or "neither" for one in answers] for answers in runs]
    each = [100 * f1_score(gold, one, labels=["C", "D"], average=None, zero_division=0) for one in said]
    expected = {"accuracy": [100 * np.mean([g == s for g, s in zip(gold, one, strict=True)]) for one in said]}
    if len(set(gold)) == 2:
        expected |= {"f1_consistent": [f[0] for f in each], "f1_contradict": [f[1] for f in each]}
        expected["macro_f1"] = [f.mean() for f in each]
    for metric, values in expected.items():
        assert found[metric]["value"] == pytest.approx(np.mean(values))
        if len(runs) > 1:
            assert found[f"{metric}_std"]["value"] == pytest.approx(np.std(values), abs=1e-9)
            assert found[f"{metric}_std"]["low"] is found[f"{metric}_std"]["se"] is None
    assert {metric for metric in found if metric.endswith("_std")} == (
        {f"{metric}_std" for metric in expected} if len(runs) > 1 else set()
    )


def test_the_paper_divides_deviations_by_the_number_of_runs() -> None:
    """Table 5's accuracies are of 100 items, so those of three runs are whole numbers."""
    printed = pl.read_csv(ROOT / "papers/prelude/reference/table_5.csv", infer_schema=False).fill_null("")
    of = {
        metric: {row["label"] + row["model"] + row["method"]: row["value"] for row in rows.iter_rows(named=True)}
        for (metric,), rows in printed.partition_by("metric", as_dict=True).items()
    }
    runs = np.array([(a, b, c) for a in range(40, 101) for b in range(a, 101) for c in range(b, min(a + 20, 101))])
    fitting = {0: 0, 1: 0}
    for name, deviation in of["accuracy_std"].items():
        mean = of["accuracy"][name]
        near = abs(runs.mean(axis=1) - float(mean)) <= 0.5 * 10.0 ** -len(mean.partition(".")[2]) + 1e-9
        for ddof in fitting:
            fitting[ddof] += bool((abs(runs.std(axis=1, ddof=ddof) - float(deviation))[near] <= 0.05 + 1e-9).any())
    assert (len(of["accuracy_std"]), fitting) == (19, {0: 19, 1: 4})


# ------------------------------------------------------------------ popularity

GROUPS = ["popularity_0_1", "popularity_2", "popularity_3", "popularity_4", "popularity_5_6"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([*GROUPS, "popularity_unknown"]), st.booleans()), min_size=1, max_size=40))
def test_the_correlation_with_popularity_is_spearmans(items: list[tuple[str, bool]]) -> None:
    graded = verdicts(*({"right": right} for _, right in items), popularity=[group for group, _ in items])
    found = scored(EVOWIKI, graded)
    known = [(GROUPS.index(group), right) for group, right in items if group in GROUPS]
    if len({group for group, _ in known}) < 2 or len({right for _, right in known}) < 2:
        assert ("all", "popularity_correlation") not in found
        return
    own = found["all", "popularity_correlation"]
    assert own["value"] == pytest.approx(spearmanr(*zip(*known, strict=True)).statistic, abs=1e-12)
    assert -1 <= own["low"] <= own["high"] <= 1 and own["unit"] == "ratio"


def test_ten_thousand_questions_of_one_group_have_no_correlation_nor_those_without_views() -> None:
    rows = [{"right": n % 3 == 0} for n in range(10_001)]
    for slices in (
        {"popularity": ["popularity_3"] * len(rows)},
        {"popularity": ["popularity_unknown"] * len(rows)},
        {},
    ):
        found = scored(EVOWIKI, verdicts(*rows, **slices))
        assert not [subset for subset, metric in found if metric == "popularity_correlation"]


def test_popularity_is_crossed_with_levels_where_a_dataset_has_views(tmp_path: Path) -> None:
    views = {"popularity": ["popularity_3", "popularity_2"] * 2}
    scores = in_slices(tmp_path, EVOWIKI, **LEVELS, **views).filter(pl.col("metric") == "exact_match")
    found = {(dataset, subset): value for dataset, subset, value in scores.select("dataset", "subset", "value").rows()}
    assert found["oaks_babi_stable", "popularity_3"] == 100 and found["oaks_babi_evolved", "popularity_3"] == 0


# ------------------------------------------------------------------ exact matches


def test_controls_have_what_the_papers_metrics_say_of_them() -> None:
    labels = ["consistent", "contradict"] * 2
    right = [{"right": True, "exact": True, "canonical": one, "trial": t} for t, one in enumerate(labels)]
    unread = [{"trial": t, "parse": "none"} for t in range(4)]
    for rows, number in ((right, 100), (unread, 0)):
        rows = [row | {"question_id": f"q{n % 2}"} for n, row in enumerate(rows)]
        rows = [row | {"trial": n // 2} for n, row in enumerate(rows)]
        of_prelude = scored(PRELUDE, verdicts(*rows, label=labels))
        for metric in ("accuracy", "f1_consistent", "f1_contradict", "macro_f1"):
            assert of_prelude["all", metric]["value"] == number
            assert of_prelude["all", f"{metric}_std"]["value"] == 0
        of_evowiki = scored(EVOWIKI, verdicts(*rows, popularity=["popularity_2", "popularity_3"] * 2))
        for metric in ("accuracy", "exact_match", "exact_match_strict", "exact_match_or_outdated"):
            assert of_evowiki["all", metric]["value"] == number
        assert of_evowiki["all", "outdated_rate"]["value"] == 0
        assert ("all", "popularity_correlation") not in of_evowiki


def test_strict_matches_are_answers_that_hold_nothing_else(tmp_path: Path) -> None:
    """EvoWiki, 4.1: right is whoever names an accepted label; strictly, whoever says nothing besides."""
    said = {
        "a": "Ada Lovelace",
        "b": "the  ada lovelace.",
        "c": "It was Ada Lovelace",
        "d": "Ada",
        "e": "Adam Lovelace",
    }
    write_dataset(tmp_path / "dataset", {name: [(["Ada Lovelace"], [])] for name in said})
    write_cell(tmp_path / "cell", [line(f"{name}@0", text) for name, text in said.items()])
    key, manifest = key_in(tmp_path / "dataset", "contains", "## Answer:"), manifest_of(tmp_path / "cell")
    rows = grade_cell(tmp_path / "cell", manifest, test_scoring.CELL, key).with_key(key, 1)
    assert rows["right"].to_list() == [True, True, True, False, False]
    assert rows["exact"].to_list() == [True, True, False, False, False]
    found = scored(EVOWIKI, rows)
    assert found["all", "exact_match"]["value"] == pytest.approx(60)
    assert found["all", "exact_match_strict"]["value"] == pytest.approx(40)
    plain = key_in(tmp_path / "dataset", "short_answer", "## Answer:")
    rows = grade_cell(tmp_path / "cell", manifest, test_scoring.CELL, plain).rows
    assert rows["exact"].to_list() == rows["right"].to_list() == [True, True, False, False, False]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_shares_of_evowiki_are_counted_shares_and_lie_in_their_order(items: list[tuple[bool, bool, bool]]) -> None:
    rows = [{"right": right, "exact": right and exact, "outdated": old and not right} for right, exact, old in items]
    found = {
        metric: row["value"] for (subset, metric), row in scored(EVOWIKI, verdicts(*rows)).items() if subset == "all"
    }
    each = {name: 100 * sum(row[name] for row in rows) / len(rows) for name in ("right", "exact", "outdated")}
    assert found["exact_match"] == found["accuracy"] == pytest.approx(each["right"])
    assert found["exact_match_strict"] == pytest.approx(each["exact"])
    assert found["outdated_rate"] == pytest.approx(each["outdated"])
    assert found["exact_match_or_outdated"] == pytest.approx(each["right"] + each["outdated"])
    assert 0 <= found["exact_match_strict"] <= found["exact_match"] <= found["exact_match_or_outdated"] <= 100


# ------------------------------------------------------------------ OAKS along the stream


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.lists(st.booleans(), min_size=1, max_size=43)), min_size=1, max_size=5)
)
def test_accuracy_in_each_tenth_is_what_counting_by_hand_gives(questions: list[tuple[str, list[bool]]]) -> None:
    rows = [
        {"question_id": f"q{q}", "position": 3 * t + q, "right": right, "answer": "x"}
        for q, (_, stream) in enumerate(questions)
        for t, right in enumerate(stream)
    ]
    kinds = [kind for kind, stream in questions for _ in stream]
    graded = verdicts(*rows, kind=kinds)
    found = {
        (row["subset"], row["at"]): row["value"]
        for row in OAKS.measure(graded, 0)
        .filter(pl.col("metric") == "accuracy_in_tenth")
        .group_by("subset", "at")
        .agg(value=100 * pl.col("hits").sum() / pl.col("total").sum())
        .iter_rows(named=True)
    }
    wanted: dict[tuple[str, int], list[float]] = {}
    for kind, stream in questions:
        tenths: dict[int, list[bool]] = {}
        for t, right in enumerate(stream):
            tenths.setdefault(int(t / len(stream) * 10 + 1e-9) + 1, []).append(right)
        for tenth, hits in tenths.items():
            for subset in ("all", kind):
                wanted.setdefault((subset, tenth), []).append(sum(hits) / len(hits))
    assert found.keys() == wanted.keys()
    assert all(found[key] == pytest.approx(100 * sum(v) / len(v)) for key, v in wanted.items())


# ------------------------------------------------------------------ a second cell

CLOSED_BOOK = Second("the closed book", method="closed_book", untrained=True)


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


BABI = "oaks_babi_mini"
RAG, DEEP, CLOSED = (
    Cell(BABI, method, variant, "tiny")
    for method, variant in (("rag_dense", "k5"), ("rag_dense", "k30"), ("closed_book", "default"))
)


@pytest.fixture
def gains(catalog: Catalog, fresh: None) -> Catalog:
    """A suite of three cells on a dataset with EvoWiki's metrics, which crosses no slices; the closed book is run."""
    card = catalog.root / "methods/closed_book/method.yaml"
    card.parent.mkdir()
    card.write_text("{label: Closed, papers: [], summary: s, reference: r, variants: {default: {}}}")
    family = catalog.root / "papers/gains/metrics.py"
    family.parent.mkdir()
    uncrossed = "\n\nimport dataclasses\n\nFAMILY = dataclasses.replace(FAMILY, crossed=())\n"
    family.write_text(Path(EVOWIKI.where).read_text() + uncrossed)
    card = catalog.root / f"datasets/{BABI}/dataset.yaml"
    card.write_text(card.read_text().replace("metrics: oaks", "metrics: gains"))
    catalog = suite_of(catalog, RAG, DEEP, CLOSED)
    write_dataset(catalog.results / "datasets" / BABI, {"p": timeline("x"), "q": timeline("x")})
    publish(catalog, RAG, "xx")
    publish(catalog, DEEP, "xz")
    publish(catalog, CLOSED, "xz")
    return Catalog(catalog.root)


def publish(catalog: Catalog, cell: Cell, answers: str, trials: int = 1) -> None:
    lines = [one for t in range(trials) for q, a in zip("pq", answers, strict=True) for one in answered(q, a, trial=t)]
    write_cell(catalog.results / "cells" / str(cell), lines, trials=trials, cell=cell)


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


@pytest.mark.parametrize("measures", [EVOWIKI, PRELUDE, answers.FAMILY], ids=["evowiki", "prelude", "answers"])
def test_a_score_on_a_resample_is_the_score_of_the_questions_that_were_drawn(measures: Family) -> None:
    rng = np.random.default_rng(0)
    rows = [
        {"question_id": f"q{n:02}", "right": bool(rng.random() < 0.6), "outdated": bool(rng.random() < 0.3)}
        | {"canonical": "read" if rng.random() < 0.9 else None, "trial": trial}
        for n in range(30)
        for trial in range(2)
    ]
    kinds = {
        "label": [("consistent", "contradict")[n // 2 % 2] for n in range(60)],
        "rarity": ["rare" if n < 8 else "common" for n in range(60)],
    }
    graded = verdicts(*rows, **kinds)
    draws = Draws("d", graded["question_id"])
    names = sorted(set(graded["question_id"]))
    times = draws.sums(names, np.eye(len(names)))
    found = measured(measures, graded, 0, {}, draws)
    for resample in (0, 7, 999):
        drawn = [
            graded.filter(pl.col("question_id") == name).with_columns(
                question_id=pl.format("{}-{}", "question_id", copy), probe_id=pl.format("{}-{}", "probe_id", copy)
            )
            for name, count in zip(names, times[resample], strict=True)
            for copy in map(pl.lit, range(int(count)))
        ]
        alone = scores_of(measures, pl.concat(drawn), {})
        values = {row[:3]: row[3:] for row in alone.select("subset", "metric", "at", "value", "n").rows()}
        resampled = {metric for one in measures.resampled for metric in one.metrics}
        right, wrong = 2 * draws.unseen[resample]  # of two predictions, as every question is
        checked = 0
        for at, row in enumerate(found.scores.select("subset", "metric", "at", "questions").rows()):
            value = found.resamples[at, resample]
            if row[3] < FEWEST:
                assert math.isnan(value)
                continue
            expected, n = values.get(row[:3], (math.nan, 0))
            if row[1] not in resampled:
                expected = (expected * n + 100 * right) / (n + right + wrong)
            assert value == pytest.approx(expected, nan_ok=True), row
            checked += 1
        assert checked >= 3


# ------------------------------------------------------------------ crossed slices


def in_slices(tmp_path: Path, family: Family, **slices: Sequence[str]) -> pl.DataFrame:
    """Scores of a cell that is right on the first of four questions."""
    write_dataset(tmp_path / "dataset", {name: timeline("x") for name in "abcd"})
    write_cell(tmp_path / "cell", [one for name in "abcd" for one in answered(name, "x" if name == "a" else "z")])
    key = key_of(tmp_path / "dataset")
    columns = [pl.Series(f"slice_{name}", values) for name, values in slices.items()]
    key = dataclasses.replace(key, probes=key.probes.drop("slice_changes").with_columns(columns))
    manifest = manifest_of(tmp_path / "cell")
    found = grade_cell(tmp_path / "cell", manifest, test_scoring.CELL, key)
    draws = Draws("d", key.probes["question_id"])
    return score_cell(found, manifest, test_scoring.CELL, test_scoring.IDENTITY, key, family, draws).rows


LEVELS = {"level": ["stable", "stable", "evolved", "evolved"], "hops": ["single_hop", "multi_hop"] * 2}


def test_levels_are_crossed_with_hops_as_the_published_numbers_of_evowiki_are(tmp_path: Path) -> None:
    scores = in_slices(tmp_path, EVOWIKI, **LEVELS).filter(pl.col("metric") == "exact_match")
    found = {(dataset, subset): value for dataset, subset, value in scores.select("dataset", "subset", "value").rows()}
    assert found["oaks_babi_stable", "single_hop"] == 100
    assert found["oaks_babi_evolved", "single_hop"] == found["oaks_babi_stable", "multi_hop"] == 0
    assert found["oaks_babi", "single_hop"] == found["oaks_babi", "stable"] == 50
    assert found["oaks_babi", "all"] == 25
    assert (found["oaks_babi_stable", "all"], found["oaks_babi_evolved", "all"]) == (50, 0)
    assert len(found) == 4 + 2 + 4 + 1
    assert set(scores["dataset_id"]) == {"oaks_babi_mini"} and set(scores["stand_in"]) == {"mini"}


def test_metrics_are_given_tokens_what_has_arrived_and_the_models_cutoff(tmp_path: Path) -> None:
    given: list[pl.DataFrame] = []

    def measure(graded: pl.DataFrame, retrieved: int) -> pl.DataFrame:
        given.append(graded)
        return shares(graded, accuracy=pl.col("right"))

    write_dataset(tmp_path / "dataset", {"a": timeline("xyz"), "b": timeline("x")})
    lines = [line(f"a@{n}", "x", usage=Usage(prompt=100 + n, completion=n, calls=1)) for n in (0, 1)]
    write_cell(tmp_path / "cell", lines, probes=4)
    manifest, key = manifest_of(tmp_path / "cell"), key_of(tmp_path / "dataset")
    found = Graded(grade(key, read_predictions(tmp_path / "cell", manifest, key)[0], 1), 0)
    known = dataclasses.replace(test_scoring.IDENTITY, cutoff="2024-04-30")
    score_cell(found, manifest, test_scoring.CELL, known, key, Family(measure), Draws("d", key.probes["question_id"]))
    columns = ["probe_id", "arrived_tokens", "prompt_tokens", "completion_tokens", "has_outdated", "model_cutoff"]
    assert given[0].select(columns).sort("probe_id").rows() == [
        ("a@0", 10, 100, 0, False, "2024-04-30"),
        ("a@1", 20, 101, 1, False, "2024-04-30"),
        ("a@2", 30, None, None, False, "2024-04-30"),
        ("b@0", 10, None, None, False, "2024-04-30"),
    ]
    assert set(given[0].columns) == {*GRADED_SCHEMA, "slice_changes"}
    key = dataclasses.replace(key, probes=key.probes.with_columns(has_outdated=pl.col("question_id") == "a"))
    draws = Draws("d", key.probes["question_id"])
    score_cell(found, manifest, test_scoring.CELL, test_scoring.IDENTITY, key, Family(measure), draws)
    assert given[1]["has_outdated"].sum() == 3 and given[1]["model_cutoff"].null_count() == 4


def test_a_subset_that_a_metric_names_may_have_settings(tmp_path: Path) -> None:
    def measure(graded: pl.DataFrame, retrieved: int) -> pl.DataFrame:
        counts = shares(graded.select(pl.exclude("^slice_.*$")), accuracy=pl.col("right"))
        return counts.with_columns(subset=pl.lit(under("mcq", context="on", date="off")))

    scores = in_slices(tmp_path, Family(measure), format=["mcq"] * 4)
    assert set(scores["subset"]) == {"mcq"}
    wanted = (*test_scoring.IDENTITY.setting, ("context", "on"), ("date", "off"))
    assert all(setting == as_rows(wanted) for setting in scores["setting"].to_list())
    assert place_of("mcq") == Place("mcq")
    for wrong in ("mcq;context", "mcq;=on", "mcq;a=1;a=2"):
        with pytest.raises(UpkeepError, match="a setting that is none"):
            place_of(wrong)


def test_what_is_said_to_go_nowhere_stays_in_the_subset() -> None:
    graded, places = crossed(
        Family(EVOWIKI.measure, crossed=[Crossed("hops", by="level")]), verdicts(*[{}] * 4, **LEVELS)
    )
    assert graded["slice_hops+level"].to_list() == [
        f"{h}+{v}" for h, v in zip(LEVELS["hops"], LEVELS["level"], strict=True)
    ]
    assert places["single_hop+stable"] == Place("single_hop+stable")


def test_a_pair_of_slices_goes_nowhere_but_where_some_papers_go_or_where_nothing_is_said() -> None:
    used = {pair.into for path in (ROOT / "papers").glob("*/metrics.py") for pair in read_family(path).crossed}
    assert set(get_args(get_type_hints(Crossed)["into"])) == used | {Crossed(None, by="level").into}


def test_slices_that_are_not_there_or_share_a_name_are_not_crossed() -> None:
    graded = verdicts(*[{}] * 2, level=["a", "a+b"], hops=["b+c", "c"])
    with pytest.raises(UpkeepError, match="one name for two subsets"):
        crossed(Family(EVOWIKI.measure, crossed=[Crossed("level", by="hops")]), graded)
    with pytest.raises(UpkeepError, match="cross a slice 'level' that the dataset does not have") as caught:
        crossed(EVOWIKI, graded.drop("slice_level"))
    assert caught.value.where == EVOWIKI.where and caught.value.expected == "one of hops"


def test_slices_that_share_a_value_are_refused_where_the_key_is_read(tmp_path: Path) -> None:
    write_dataset(tmp_path, {"p": timeline("x"), "q": timeline("x")}, {"p": "sparse", "q": "all"})
    with pytest.raises(UpkeepError, match=r"gold\.parquet, column `slice_changes`: one name for two subsets"):
        key_of(tmp_path)


@pytest.mark.usefixtures("fresh")
def test_a_dataset_whose_key_cannot_be_read_keeps_no_other_from_being_scored(catalog: Catalog) -> None:
    catalog = suite_of(catalog, *(Cell(name, "rag_dense", "k5", "tiny") for name in (BABI, "oaks_novel")))
    write_dataset(catalog.results / "datasets" / BABI, {"q": timeline("x")}, {"q": "all"})
    write_dataset(catalog.results / "datasets" / "oaks_novel", {"q": timeline("x")}, name="oaks_novel")
    scores = score_suite(catalog, "s")
    assert scores.refused == {BABI: "one name for two subsets"}
    assert set(scores.table["dataset_id"]) == {"oaks_novel"}


# ------------------------------------------------------------------ code that is wrong

HEAD = "import polars as pl\nfrom upkeep.grading.metrics import *\n"
GOOD = HEAD + "def measure(graded, retrieved):\n    return shares(graded, accuracy=pl.col('right'))\n"
TAIL = "\nFAMILY = Family(measure)\n"


def family(tmp_path: Path, text: str) -> Family:
    (tmp_path / "metrics.py").write_text(text)
    return read_family(tmp_path / "metrics.py")


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("import polars\nx = = 1\n", ":2", "SyntaxError: invalid syntax"),
        ("\n\nimport no_such_package\n", ":3", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("def f():\n    raise SystemExit('no')\nf()\n", ":2", "SystemExit: no"),
        ("FAMILY = 3\n", "", "metrics without FAMILY"),
        (GOOD, "", "metrics without FAMILY"),
        ("x = 1\0\n", "", "null bytes"),
    ],
)
def test_code_that_cannot_be_imported_is_told_with_its_line(tmp_path: Path, text: str, line: str, problem: str) -> None:
    with pytest.raises(UpkeepError) as caught:
        family(tmp_path, text)
    assert str(caught.value.where) == f"{tmp_path}/metrics.py{line}"
    assert problem in caught.value.problem and "\n" not in caught.value.problem
    assert caught.value.remedy is not None and "papers/FORMAT.md" in caught.value.remedy


@pytest.mark.parametrize(
    ("body", "line", "problem"),
    [
        ("    return 1 / 0\n", ":4", "a metric fails: ZeroDivisionError: division by zero"),
        ("    return graded.select('no_such')\n", ":4", "a metric fails: ColumnNotFoundError"),
        ("    return graded\n", ":3", "a metric gives no counts"),
        ("    return None\n", ":3", "a metric gives no counts"),
        (
            "    return shares(graded, a=pl.col('right')).with_columns(hits=pl.lit('many'))\n",
            ":3",
            "a metric gives no counts: conversion from",
        ),
    ],
)
def test_a_metric_that_fails_is_told_with_its_line(tmp_path: Path, body: str, line: str, problem: str) -> None:
    broken = family(tmp_path, HEAD + "def measure(graded, retrieved):\n" + body + TAIL)
    with pytest.raises(UpkeepError) as caught:
        scores_of(broken, verdicts({}, {}), {})
    assert caught.value.where == f"{tmp_path}/metrics.py{line}"
    assert caught.value.problem.startswith(problem) and "\n" not in caught.value.problem


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("lambda sums: {'other': sums['one']}", "not named: other"),
        ("lambda sums: {'m': sums['one'].sum()}", "m: () in place of a number for each of 1 resamples"),
        ("lambda sums: {'m': sums['two']}", "KeyError: 'two'"),
        ("lambda sums: 1", "AttributeError"),
    ],
)
def test_a_resampled_metric_that_fails_is_told_with_its_file(tmp_path: Path, code: str, problem: str) -> None:
    sums = "lambda graded: graded.select('question_id', one=pl.lit(1))"
    broken = family(tmp_path, GOOD + f"FAMILY = Family(measure, resampled=[Resampled(['m'], {sums}, {code})])\n")
    with pytest.raises(UpkeepError) as caught:
        scores_of(broken, verdicts({}, {}), {})
    assert str(caught.value.where).startswith(f"{tmp_path}/metrics.py") and problem in caught.value.problem


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("lambda graded: {'other': 1}", "not named: other"),
        ("lambda graded: {'m': 'many'}", "ValueError: could not convert"),
        ("lambda graded: {'m': graded['no_such'].sum()}", "ColumnNotFoundError"),
        ("lambda graded: 1", "AttributeError"),
        ("lambda graded: {'accuracy': 1}", "not named: accuracy"),
    ],
)
def test_a_described_metric_that_fails_is_told_with_its_file(tmp_path: Path, code: str, problem: str) -> None:
    broken = family(tmp_path, GOOD + f"FAMILY = Family(measure, described=[Described(['m'], {code}, 'tokens')])\n")
    with pytest.raises(UpkeepError) as caught:
        scores_of(broken, verdicts({}, {}), {})
    assert str(caught.value.where).startswith(f"{tmp_path}/metrics.py") and problem in caught.value.problem


def test_a_described_metric_that_a_judge_decides_is_known_to_be(tmp_path: Path) -> None:
    value = "lambda graded: {'m': graded['right'].mean()}"
    mine = family(tmp_path, GOOD + f"FAMILY = Family(measure, described=[Described(['m'], {value}, 'ratio')])\n")
    for right in (True, False):
        assert numbers(mine, verdicts({"right": right}), 0)["all", "m", None] == right


def test_a_score_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    twice = (
        "def measure(graded, retrieved):\n    one = shares(graded, m=pl.col('right'))\n    return as_counts(one, one)\n"
    )
    with pytest.raises(UpkeepError, match=r"metrics\.py: metrics give a score twice(.|\n)*all, m"):
        scores_of(family(tmp_path, HEAD + twice + TAIL), verdicts({}, {}), {})
    sums = "lambda graded: graded.select('question_id', one=pl.lit(1))"
    also = (
        f"FAMILY = Family(measure, resampled=[Resampled(['accuracy'], {sums}, lambda s: {{'accuracy': s['one']}})])\n"
    )
    with pytest.raises(UpkeepError, match="metrics give a score twice"):
        scores_of(family(tmp_path, GOOD + also), verdicts({}, {}), {})


def test_a_mended_file_is_read_anew_and_each_copy_has_its_own(tmp_path: Path) -> None:
    found = []
    for folder, metric in (("one", "aaa"), ("one", "bbb"), ("two", "ccc")):
        (tmp_path / folder).mkdir(exist_ok=True)
        path = tmp_path / folder / "metrics.py"
        path.write_text(GOOD.replace("accuracy", metric) + TAIL)
        os.utime(path, (1, 1))  # as old as before, and as long
        found.append(read_family(path))
    names = [list(dict.fromkeys(one.measure(verdicts({}), 0)["metric"])) for one in found]
    assert names == [["aaa"], ["bbb"], ["ccc"]]
    assert not (tmp_path / "one" / "__pycache__").exists()


@pytest.mark.usefixtures("fresh")
def test_a_dataset_whose_metrics_are_not_there_or_broken_keeps_no_other_from_being_scored(
    catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = [Cell(name, "rag_dense", "k5", "tiny") for name in ("oaks_babi_mini", "oaks_novel")]
    catalog = suite_of(catalog, *cells)
    for cell in cells:
        write_dataset(catalog.results / "datasets" / cell.dataset, {"q": timeline("xx")}, name=cell.dataset)
        write_cell(catalog.results / "cells" / str(cell), answered("q", "xz"), cell=cell)
    card = catalog.root / "datasets/oaks_novel/dataset.yaml"
    card.write_text(card.read_text().replace("metrics: oaks", "metrics: mine"))
    scores = score_suite(Catalog(catalog.root), "s")
    assert set(scores.table["dataset_id"]) == {BABI}
    assert scores.refused == {"oaks_novel": "unknown metrics 'mine'"}
    with pytest.raises(UpkeepError) as caught:
        family_of(Catalog(catalog.root), "oaks_novel")
    assert caught.value.where == f"{card}: metrics" and caught.value.expected == "one of answers, oaks"
    assert caught.value.found == "no papers/mine/metrics.py"

    own = catalog.root / "papers/mine/metrics.py"
    own.parent.mkdir()
    own.write_text(GOOD.replace("return", "retrun") + TAIL)
    scores = score_suite(Catalog(catalog.root), "s")
    assert "cannot be imported: SyntaxError" in scores.refused["oaks_novel"]
    assert f"{own}:4" in capsys.readouterr().err
    own.write_text(GOOD + TAIL)
    scores = score_suite(Catalog(catalog.root), "s")
    assert scores.refused == {} and set(scores.table["dataset_id"]) == {BABI, "oaks_novel"}


def test_the_order_of_verdicts_changes_no_score() -> None:
    rng = random.Random(5)
    rows = [label(rng.choice("CD"), rng.choice(["C", "D", None])) for _ in range(40)]
    graded = verdicts(*rows, label=[rng.choice(["consistent", "contradict"]) for _ in rows])
    shuffled = graded.sample(fraction=1, shuffle=True, seed=1)
    assert scored(PRELUDE, graded) == scored(PRELUDE, shuffled)


def told_apart(*cells: tuple[str, str, list[dict[str, str]]]) -> Scores:
    """Scores of some cells, each with its model's label and its settings."""
    rows = [
        {"cell": cell, "label": "RAG", "model": model, "setting": setting, "subset": subset, "metric": "accuracy"}
        for cell, model, setting in cells
        for subset in ("all", "sparse")
    ]
    return Scores(tidy(pl.DataFrame(rows, schema_overrides={"setting": SETTING})), None, {}, {}, {})  # type: ignore[arg-type]


def test_cells_that_no_table_can_tell_apart_are_named() -> None:
    k3, k5 = as_rows((("k", "3"),)), as_rows((("k", "5"),))
    assert told_apart(("a", "M", k3), ("b", "M", k5), ("c", "N", k3)).alike() == []
    assert told_apart(("a", "M", k3), ("b", "N", k3), ("c", "M", k3), ("d", "M", k3)).alike() == [
        ("a", "c"),
        ("a", "d"),
    ]


def test_what_has_no_scores_is_told_with_where_to_look(capsys: pytest.CaptureFixture[str]) -> None:
    found = told_apart(("a", "M", []), ("b", "M", []))
    refused = {"x": "a metric fails: NameError", "y": "a metric fails: NameError"}
    tell_refused(dataclasses.replace(found, refused=refused, basis=SimpleNamespace(suite="mini")))
    tell_alike(found)
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "no scores of x and 1 more: a metric fails: NameError (./upkeep score mini says where)"
    assert said[1].startswith("a and b have the same names and settings")


def test_every_column_that_a_metric_is_given_is_in_the_page_on_metrics() -> None:
    page = (ROOT / "papers" / "FORMAT.md").read_text()
    rows = page.partition("`graded` has a row")[2].partition("An edit of the file")[0]
    named = {
        name for line in rows.splitlines() for name in re.findall(r"`(\w+)`", line.partition("|")[2].partition("|")[0])
    }
    assert named == set(GRADED_SCHEMA)


def test_what_a_metric_counts_by_is_what_is_drawn_and_in_the_same_way_in_all_cells() -> None:
    questions = [f"{item}.{form}" for item in "abcdefghijkl" for form in ("open", "mcq")]
    draws, again = Draws("d", questions), Draws("d", reversed(questions))
    one = np.ones((len(questions), 1))
    assert draws.of(questions[:3]) is draws
    items = [*"abcdefghijkl"]
    assert (draws.of(items).sums(items, one[:12]) == 11).all(), "one item fewer than there are"
    parts = np.arange(12.0)[:, None]
    assert (draws.of(items).sums(items, parts) == again.of(reversed(items)).sums(items, parts)).all()

    def measure(graded: pl.DataFrame, retrieved: int) -> pl.DataFrame:
        by_item = graded.with_columns(question_id=pl.col("question_id").str.head(1))
        by_item = shares(by_item.select(pl.exclude("^slice_.*$")), item_accuracy=pl.col("right"))
        return as_counts(shares(graded, accuracy=pl.col("right")), by_item)

    rows = [{"question_id": name, "right": name < "e"} for name in questions]
    made = measured(Family(measure), verdicts(*rows), 0, {}, draws)
    both = {row["metric"]: made.resamples[place] for place, row in enumerate(made.scores.iter_rows(named=True))}
    assert made.scores["value"].to_list() == pytest.approx([100 / 3] * 2)
    assert both["item_accuracy"].std() > both["accuracy"].std() > 0, "fewer units, less is known"
