"""The metrics of OAKS by hand, by plain loops over their definitions, and for any predictions."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scored_cells import OAKS, SETTING, answered, line, scores_of, timeline
from upkeep.contract import (
    Retrieved,
)
from upkeep.errors import UpkeepError
from upkeep.grading import metrics, statistics
from upkeep.grading.matching import short_answer
from upkeep.grading.settings import as_rows

oaks = sys.modules[OAKS.measure.__module__]

# ------------------------------------------------------------------ hand-computed metrics


def test_latency_distraction_and_miss_by_hand(tmp_path: Path) -> None:
    # Phase x: wrong, right, wrong, right -> latency 1, distraction 1. Phase y: never right -> 3 missed.
    # Phase x again is a new phase: right at once -> nothing. 10 intervals.
    result = scores_of(tmp_path, {"q": timeline("xxxxyyyxxx")}, answered("q", "zxzxxxxxxx"))
    assert result["all", "accuracy"]["value"] == pytest.approx(50)
    assert result["all", "acquisition_latency"]["value"] == pytest.approx(10)
    assert result["all", "distraction_susceptibility"]["value"] == pytest.approx(10)
    assert result["all", "phase_miss"]["value"] == pytest.approx(30)


def test_means_are_over_intervals_first_then_over_questions(tmp_path: Path) -> None:
    questions = {"long": timeline("xxxxxxxx"), "short": timeline("xx")}
    result = scores_of(tmp_path, questions, answered("long", "xxxxxxxx") + answered("short", "zz"))
    assert result["all", "accuracy"]["value"] == pytest.approx(50)  # pooled it would be 80


def test_the_eight_behaviours_by_hand(tmp_path: Path) -> None:
    # gold       x  x  x  x  x  x  x | y  y  y | z  z | x | y | x
    # predicted  a  b  b  x  x  z  x | y  y  x | x  z | x | x | y      (a, b wrong)
    gold, predicted = "xxxxxxxyyyzzxyx", "abbxxzxyyxxzxxy"
    result = scores_of(tmp_path, {"q": timeline(gold)}, answered("q", predicted))
    stay = {"volatility_rate": 3, "obstinacy_rate": 1, "lag_rate": 3, "stability_rate": 2}
    change = {"adaptability_rate": 2, "stubbornness_rate": 2, "maladaptation_rate": 1, "prescience_rate": 0}
    for metric, count in stay.items():
        assert result["gt_stay", metric]["value"] == pytest.approx(100 * count / 9), metric
        assert result["gt_stay", metric]["n"] == 9
    for metric, count in change.items():
        assert result["gt_change", metric]["value"] == pytest.approx(100 * count / 5), metric
        assert result["gt_change", metric]["n"] == 5
    assert result["all", "change_rate"]["value"] == pytest.approx((100 * 3 / 5 + 100 * 6 / 9) / 2)


def test_prescience_is_the_new_answer_given_before_it_was_right(tmp_path: Path) -> None:
    result = scores_of(tmp_path, {"q": timeline("xy")}, answered("q", "yy"))
    assert result["gt_change", "prescience_rate"]["value"] == 100


def test_behaviours_are_pooled_and_by_question_is_the_mean_of_the_questions(tmp_path: Path) -> None:
    questions = {"p": timeline("xyxyx"), "q": timeline("xy")}
    result = scores_of(tmp_path, questions, answered("p", "xyxyx") + answered("q", "xx"))
    assert result["gt_change", "adaptability_rate"]["value"] == pytest.approx(80)
    assert result["gt_change", "adaptability_rate_by_question"]["value"] == pytest.approx(50)


def test_equivalent_forms_are_the_same_prediction(tmp_path: Path) -> None:
    question = [(["Unknown", "0"], []), (["Unknown", "0"], []), (["3"], []), (["3"], [])]
    lines = [line(f"q@{t}", a) for t, a in enumerate(["unknown", "0", "three", "3 times"])]
    result = scores_of(tmp_path, {"q": question}, lines)
    assert result["all", "accuracy"]["value"] == 100
    assert result["gt_stay", "stability_rate"]["value"] == 100
    assert result["gt_change", "adaptability_rate"]["value"] == 100


def test_holding_on_to_zero_when_the_count_begins_is_stubborn(tmp_path: Path) -> None:
    question = [(["Unknown", "0"], []), (["1"], [])]
    result = scores_of(tmp_path, {"q": question}, [line("q@0", "0"), line("q@1", "zero")])
    assert result["gt_change", "stubbornness_rate"]["value"] == 100


def test_no_answer_twice_is_no_change(tmp_path: Path) -> None:
    result = scores_of(tmp_path, {"q": timeline("xx")}, answered("q", ".."))
    assert result["gt_stay", "obstinacy_rate"]["value"] == 100
    result = scores_of(tmp_path, {"q": timeline("xx")}, answered("q", ".z"))
    assert result["gt_stay", "volatility_rate"]["value"] == 100


def test_a_question_that_never_changes_gives_no_rates_of_change(tmp_path: Path) -> None:
    result = scores_of(tmp_path, {"q": timeline("xx")}, answered("q", "xx"))
    assert not any(subset == "gt_change" for subset, _ in result)
    assert ("all", "change_rate") not in result


def test_subsets_hold_their_own_questions_only(tmp_path: Path) -> None:
    questions = {"p": timeline("xx"), "q": timeline("xx"), "r": timeline("xx")}
    lines = answered("p", "xx") + answered("q", "xz") + answered("r", "zz")
    result = scores_of(tmp_path, questions, lines, slices={"p": "sparse", "q": "sparse", "r": "frequent"})
    assert result["sparse", "accuracy"]["value"] == pytest.approx(75)
    assert result["frequent", "accuracy"]["value"] == 0
    assert result["frequent", "phase_miss"]["value"] == 100
    assert result["all", "accuracy"]["value"] == pytest.approx(50)


def test_quarters_cut_the_intervals_of_a_question_in_four(tmp_path: Path) -> None:
    result = scores_of(tmp_path, {"q": timeline("xxxxxxxx")}, answered("q", "xxxzzxzz"))
    assert [result[f"interval_q{i}", "accuracy"]["value"] for i in (1, 2, 3, 4)] == [100, 50, 50, 0]


# ------------------------------------------------------------------ retrieval


def test_pass_at_k_counts_intervals_with_evidence_only(tmp_path: Path) -> None:
    question = [(["Unknown"], []), (["x"], ["c0", "c1"]), (["x"], ["c0", "c1"]), (["x"], ["c0", "c1"])]

    def found(*ids: str) -> list[Retrieved]:
        return [Retrieved(id=name, score=1.0 / rank, rank=rank) for rank, name in enumerate(ids, 1)]

    lines = [
        line("q@0", "x", retrieved=found("c0")),
        line("q@1", "x", retrieved=found("c1", "c0")),
        line("q@2", "x", retrieved=found("c0", "c2", "c1")),  # c0 is older evidence, not the gold chunk
        line("q@3", None, error="failed"),
    ]
    result = scores_of(tmp_path, {"q": question}, lines)
    assert [result["all", f"pass_at_{k}"]["value"] for k in (1, 2, 3)] == pytest.approx([100 / 3, 100 / 3, 200 / 3])
    assert result["all", "pass_at_3"]["n"] == 3
    assert result["all", "pass_at_3"]["setting"] == as_rows((*SETTING, ("at", "3")))
    assert ("all", "pass_at_4") not in result


def test_a_method_without_retrieval_has_no_pass_at_k(tmp_path: Path) -> None:
    result = scores_of(tmp_path, {"q": [(["x"], ["c0"])]}, answered("q", "x"))
    assert not any(metric.startswith("pass_at") for _, metric in result)


answers = st.sampled_from([None, "x", "y", "z", "3", "three", "Unknown", "0"])
accepted = st.sampled_from([["x"], ["y"], ["3"], ["Unknown", "0"]])
a_question = st.lists(st.tuples(accepted, answers), min_size=1, max_size=12)
questions_and_answers = st.lists(a_question, min_size=1, max_size=4)


def graded_frame(questions: Sequence[Sequence[tuple[list[str], str | None]]]) -> pl.DataFrame:
    rows = []
    for q, question in enumerate(questions):
        phase = 0
        for t, (gold, answer) in enumerate(question):
            phase += t > 0 and gold != question[t - 1][0]
            form = None if answer is None else short_answer(answer)
            rows.append(
                {
                    "probe_id": f"q{q}@{t}",
                    "question_id": f"q{q}",
                    "trial": 0,
                    "position": t,
                    "phase": phase,
                    "right": form is not None and form in {short_answer(g) for g in gold},
                    "outdated": False,
                    "answer": answer,
                    "canonical": form,
                    "parse": "none" if form is None else "marker",
                    "failed": False,
                    "has_evidence": False,
                    "rank": None,
                }
            )
    return pl.DataFrame(rows, schema=metrics.GRADED_SCHEMA)


def values(graded: pl.DataFrame) -> dict[tuple[str, str], float]:
    frame = statistics.estimate(oaks.measure(graded, 0))
    return {(row["subset"], row["metric"]): row["value"] for row in frame.iter_rows(named=True)}


# ------------------------------------------------------------------ any predictions at all


@settings(max_examples=60, deadline=None)
@given(questions_and_answers)
def test_the_four_sum_to_100_for_any_predictions(questions: list[list[tuple[list[str], str | None]]]) -> None:
    result = values(graded_frame(questions))
    assert sum(result["all", metric] for metric in oaks.INTRA_PHASE) == pytest.approx(100)
    for subset in ("gt_change", "gt_stay"):
        rates = [result[subset, m] for key, m in oaks.BEHAVIOURS.items() if (subset, m) in result]
        assert not rates or sum(rates) == pytest.approx(100)


@settings(max_examples=60, deadline=None)
@given(questions_and_answers)
def test_plain_loops_over_the_definitions_agree(questions: list[list[tuple[list[str], str | None]]]) -> None:
    result = values(graded_frame(questions))
    four = [0.0] * 4
    for question in questions:
        right = [a is not None and short_answer(a) in {short_answer(g) for g in gold} for gold, a in question]
        starts = [t for t in range(len(question)) if t == 0 or question[t][0] != question[t - 1][0]]
        latency = distraction = miss = 0
        for begin, end in zip(starts, [*starts[1:], len(question)], strict=True):
            phase = right[begin:end]
            if True in phase:
                tau = phase.index(True) + 1
                latency += tau - 1
                distraction += sum(1 for r in phase[tau:] if not r)
            else:
                miss += len(phase)
        for i, count in enumerate((sum(right), latency, distraction, miss)):
            four[i] += 100 * count / len(question) / len(questions)
    assert [result["all", metric] for metric in oaks.INTRA_PHASE] == pytest.approx(four)

    counts: dict[str, int] = {}
    totals = {True: 0, False: 0}
    for question in questions:
        for (gold_before, before), (gold, now) in itertools.pairwise(question):
            forms = [None if a is None else short_answer(a) for a in (before, now)]
            right_before = forms[0] in {short_answer(g) for g in gold_before}
            right = forms[1] in {short_answer(g) for g in gold}
            moved = gold != gold_before
            changed = forms[0] != forms[1] and not (not moved and right and right_before)
            name = oaks.BEHAVIOURS[moved, changed, right]
            counts[name] = counts.get(name, 0) + 1
            totals[moved] += 1
    for (moved, _, _), name in oaks.BEHAVIOURS.items():
        key = ("gt_change" if moved else "gt_stay", name)
        if totals[moved]:
            assert result[key] == pytest.approx(100 * counts.get(name, 0) / totals[moved])
        else:
            assert key not in result

    # 6.1: the mean of the rates at which predictions change where the right answer does and where it does not.
    if all(totals.values()):
        moves = {moved: sum(counts.get(oaks.BEHAVIOURS[moved, True, r], 0) for r in (True, False)) for moved in totals}
        rate = sum(100 * moves[moved] / totals[moved] for moved in totals) / 2
        assert result["all", "change_rate"] == pytest.approx(rate)
    else:
        assert ("all", "change_rate") not in result


hits = st.tuples(st.booleans(), st.one_of(st.none(), st.integers(1, 70)))
"""Whether an interval has a gold chunk, and where among the retrieved ones it stands."""


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(hits, min_size=1, max_size=6), min_size=1, max_size=4), st.integers(0, 70))
def test_plain_loops_over_the_definition_of_pass_at_k_agree(
    questions: list[list[tuple[bool, int | None]]], retrieved: int
) -> None:
    ranks = [(known, rank if known and rank and rank <= retrieved else None) for q in questions for known, rank in q]
    frame = graded_frame([[(["x"], "x") for _ in question] for question in questions]).with_columns(
        has_evidence=pl.Series([known for known, _ in ranks]), rank=pl.Series([r for _, r in ranks], dtype=pl.Int32)
    )
    found = statistics.estimate(oaks.measure(frame, retrieved)).filter(pl.col("metric") == "pass_at_k")
    assert set(found["subset"]) <= {"all"}
    # D.2: of the intervals that have a gold chunk the share that has it among the first k; k ends at 60 (Figure 5).
    asked = [rank for known, rank in ranks if known]
    wanted = {
        k: 100 * sum(rank is not None and rank <= k for rank in asked) / len(asked)
        for k in range(1, min(retrieved, 60) + 1)
        if asked
    }
    assert dict(found.select("at", "value").iter_rows()) == pytest.approx(wanted)
    assert set(found["n"]) <= {len(asked)}


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(accepted, min_size=1, max_size=8), min_size=1, max_size=4))
def test_null_scores_0_and_gold_scores_100(questions: list[list[list[str]]]) -> None:
    null = values(graded_frame([[(gold, None) for gold in question] for question in questions]))
    gold = values(graded_frame([[(gold, gold[-1]) for gold in question] for question in questions]))
    assert null["all", "accuracy"] == 0
    assert null["all", "phase_miss"] == pytest.approx(100)
    assert gold["all", "accuracy"] == pytest.approx(100)
    assert all(value == 0 for (_, metric), value in gold.items() if metric in oaks.INTRA_PHASE[1:])


def test_broken_phases_are_found_out() -> None:
    frame = graded_frame([[(["x"], "x"), (["x"], None)]])
    whole = oaks.intra_phase(frame)
    assert whole.select(pl.sum_horizontal(oaks.INTRA_PHASE)).item() == pytest.approx(1)
    with pytest.raises(UpkeepError, match="do not sum to 100"):
        oaks.intra_phase(frame.with_columns(right=pl.Series([True, None])))
