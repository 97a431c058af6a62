"""Metrics of papers, by hand and against independent computations."""

from __future__ import annotations

import random
import statistics
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.metrics import f1_score

import scored_cells
from conftest import ROOT
from metric_cells import EVOWIKI, LEVELS, OAKS, PRELUDE, in_slices, label, scored, verdicts
from scored_cells import line, manifest_of, write_cell, write_dataset
from upkeep.grading.graded import grade_cell
from upkeep.grading.key import key_in

# ------------------------------------------------------------------ PRELUDE


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
            assert found[f"{metric}_std"]["value"] == pytest.approx(statistics.stdev(values), abs=1e-9)
            assert found[f"{metric}_std"]["low"] is found[f"{metric}_std"]["se"] is None
    assert {metric for metric in found if metric.endswith("_std")} == (
        {f"{metric}_std" for metric in expected} if len(runs) > 1 else set()
    )


def test_printed_deviations_divide_by_the_number_of_runs_where_ours_divide_by_one_less() -> None:
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


GROUPS = ["popularity_0_1", "popularity_2", "popularity_3", "popularity_4", "popularity_5_6"]

# ------------------------------------------------------------------ popularity


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
    rows = grade_cell(tmp_path / "cell", manifest, scored_cells.CELL, key).with_key(key, 1)
    assert rows["right"].to_list() == [True, True, True, False, False]
    assert rows["exact"].to_list() == [True, True, False, False, False]
    found = scored(EVOWIKI, rows)
    assert found["all", "exact_match"]["value"] == pytest.approx(60)
    assert found["all", "exact_match_strict"]["value"] == pytest.approx(40)
    plain = key_in(tmp_path / "dataset", "short_answer", "## Answer:")
    rows = grade_cell(tmp_path / "cell", manifest, scored_cells.CELL, plain).rows
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
