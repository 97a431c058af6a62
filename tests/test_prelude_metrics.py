"""What PRELUDE rests on a judge's look at reasons, held against counting by hand; and what its criteria are."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest

from conftest import ROOT
from metric_cells import PRELUDE, scored, verdicts
from upkeep.grading.judged import Judged

Run = Sequence[tuple[bool, bool | None]]
"""Of each item whether the label is right, and what the judge said of the reasons; None where it was not asked."""

LABEL = pl.lit("consistent")


def runs_of(*runs: Run, **slices: Sequence[str]) -> pl.DataFrame:
    """Judged verdicts of these runs on the same items."""
    rows = [
        {"question_id": f"q{n:02}", "trial": trial, "right": right, "parse": "whole"}
        for trial, run in enumerate(runs)
        for n, (right, _) in enumerate(run)
    ]
    sound = [said for run in runs for _, said in run]
    graded = verdicts(*rows, **{name: [*values] * len(runs) for name, values in slices.items()})
    return graded.with_columns(judged_reasoning=pl.Series(sound, dtype=pl.Boolean), slice_label=LABEL)


def reasoning(graded: pl.DataFrame) -> dict[str, Any]:
    """Subset -> the score; of the label, which all items have, none."""
    found = {subset: row for (subset, metric), row in scored(PRELUDE, graded).items() if metric == "reasoning_accuracy"}
    return {subset: row for subset, row in found.items() if subset != "consistent"}


def test_a_right_label_and_sound_reasons_count_over_all_items() -> None:
    found = reasoning(runs_of([(True, True), (True, False), (True, None), (False, True), (False, False)]))["all"]
    assert (found["value"], found["n"], found["questions"]) == (20, 5, 5)
    assert found["low"] <= 20 <= found["high"]


@pytest.mark.parametrize("said", [False, None])
def test_reasons_that_are_unsound_or_that_nobody_judged_count_for_nothing(said: bool | None) -> None:
    assert reasoning(runs_of([(True, said)] * 4))["all"]["value"] == 0


def test_where_no_judge_has_looked_there_is_no_score() -> None:
    assert reasoning(runs_of([(True, True)] * 4).drop("judged_reasoning")) == {}


def test_the_run_with_the_most_right_labels_counts_and_not_the_one_with_the_best_reasons() -> None:
    fewer, most = [(True, True), (True, True), (False, None)], [(True, True), (True, False), (True, False)]
    for runs in ([fewer, most], [most, fewer], [fewer, most, fewer]):
        found = reasoning(runs_of(*runs))["all"]
        assert found["value"] == pytest.approx(100 / 3) and found["n"] == 3


def test_of_runs_with_as_many_right_labels_the_first_counts_in_whatever_order_they_come() -> None:
    graded = runs_of([(False, None)] * 2, [(True, True), (False, None)], [(False, None), (True, False)])
    for seed in range(5):
        assert reasoning(graded.sample(fraction=1, shuffle=True, seed=seed))["all"]["value"] == 50


def test_the_best_run_on_the_human_studys_items_is_the_papers_whatever_it_does_on_others() -> None:
    study = ["human_study"] * 2 + ["training"] * 3
    one: Run = [(True, True), (True, True), (False, None), (False, None), (False, None)]
    other: Run = [(True, False), (False, None), (True, True), (True, True), (True, False)]
    found = reasoning(runs_of(one, other, study=study))
    values = {subset: row["value"] for subset, row in found.items()}
    assert values == {"all": pytest.approx(40), "human_study": 100, "training": pytest.approx(200 / 3)}
    alone = runs_of(one[:2], other[:2])
    assert reasoning(alone)["all"]["value"] == values["human_study"], "as if they alone were asked"


def test_a_response_that_failed_is_an_item_without_right_reasons() -> None:
    graded = runs_of([(True, True), (False, None)]).with_columns(failed=~pl.col("right"))
    assert (reasoning(graded)["all"]["value"], reasoning(graded)["all"]["n"]) == (50, 2)


def test_of_the_controls_one_gives_no_reasons_and_the_other_no_labels() -> None:
    gold, null = runs_of([(True, False)] * 6), runs_of([(False, None)] * 6)
    for graded, accuracy in ((gold, 100), (null, 0)):
        found = scored(PRELUDE, graded)
        assert (found["all", "accuracy"]["value"], found["all", "reasoning_accuracy"]["value"]) == (accuracy, 0)


@pytest.mark.parametrize("seed", range(20))
def test_a_second_computation_over_random_runs_agrees(seed: int) -> None:
    rng = random.Random(seed)
    items, trials = rng.randint(1, 12), rng.randint(1, 4)
    runs = [[(rng.random() < 0.6, rng.choice([True, False, None])) for _ in range(items)] for _ in range(trials)]
    books = [rng.choice(["a", "b"]) for _ in range(items)]
    wanted = {}
    for subset in {"all", *books}:
        members = [n for n in range(items) if subset in ("all", books[n])]
        best = max(runs, key=lambda run: sum(run[n][0] for n in members))
        wanted[subset] = 100 * sum(best[n] == (True, True) for n in members) / len(members)
    found = {subset: row["value"] for subset, row in reasoning(runs_of(*runs, book=books)).items()}
    assert found == pytest.approx(wanted)


def test_what_a_judge_says_reaches_the_metric_and_a_reply_that_cannot_be_read_is_unsound() -> None:
    graded = verdicts(*({"right": True} for _ in range(4)), {"right": False}).with_columns(slice_label=LABEL)
    meanings = ["right", "wrong", "unread", None, None]
    said = graded.select("probe_id", "trial").with_columns(
        decides=pl.lit("reasoning"),
        meaning=pl.Series(meanings, dtype=pl.String),
        verdict=pl.lit("SOUND"),
    )
    judged = Judged(said, asked=4, seal="").over(graded)
    assert judged["judged_reasoning"].to_list() == [True, False, False, None, None]
    assert reasoning(judged)["all"]["value"] == 20


# ------------------------------------------------------------------ the five criteria (A, Table 7)


def measures(dataset: str) -> dict[str, float]:
    """What Table 7 prints of a benchmark: the measures by their letters in its note, and what is derived from them."""
    printed = pl.read_csv(ROOT / "papers/prelude/reference/table_7.csv", infer_schema=False)
    of = printed.filter(pl.col("dataset") == dataset).with_columns(pl.col("value").cast(pl.Float64))
    by_label = dict(of.select("label", "value").iter_rows())
    letters = {
        "h": "Human Performance",
        "r": "Random",
        "m": "Memorization Performance",
        "u": "RAG (qa-top20)",
        "s": "RAG (best one from qa-top20)",
        "strong": "QwQ-32B w/ RAG qa-top20",
        "w": "Qwen2.5-7B w/ RAG qa-top20",
        "c": "RAG over chunks (max-10K)",
        "d": "RAG over chunk summaries (max-10K)",
    }
    derived = of.filter(~pl.col("metric").is_in(["score", "human_score", "random_score", "document_length_mean"]))
    return {letter: by_label[label] for letter, label in letters.items()} | dict(
        derived.select("metric", "value").iter_rows()
    )


@pytest.mark.parametrize("dataset", ["infbench_mc", "detectiveqa", "narrativeqa", "nocha_public", "prelude"])
def test_the_formulas_that_table_7_is_noted_with_fit_all_that_it_prints(dataset: str) -> None:
    of = measures(dataset)
    h, r, m, u, c, d = (of[letter] for letter in "hrmucd")
    best = max(m, c, d)
    derived = {
        "human_random_gap": h - r,
        "quantile_memorization": 100 * (h - m) / (h - r),
        "quantile_best_one": 100 * (u - of["s"]) / (u - r),
        "quantile_depth": 100 * (of["strong"] - of["w"]) / (of["strong"] - r),
        "relative_improvement": 100 * (c - d) / d,
        "best_machine_score": best,
        "quantile_machine": 100 * (h - best) / (h - r),
    }
    assert {name: of[name] for name in derived} == pytest.approx(derived, abs=0.25)
    assert of.keys() - derived.keys() == {*"hrmuswcd", "strong"}, "and nothing that is derived is left out"
