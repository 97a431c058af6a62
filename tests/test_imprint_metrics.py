"""The metrics of ImprintBench, held against sums over families, personas and samples that are written out."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
from matplotlib.cbook import boxplot_stats

from conftest import ROOT
from upkeep.errors import UpkeepError
from upkeep.grading.measuring import measured
from upkeep.grading.metric_families import read_family
from upkeep.grading.metrics import GRADED_SCHEMA
from upkeep.grading.resampling import Draws

FAMILY = read_family(ROOT / "papers" / "imprintbench" / "metrics.py")
SECOND = FAMILY.resampled[1].second
FAMILIES = ("dir_acq", "temp_upd", "ref_res", "comp_rel", "imp_rel", "bound_abs", "imp_rel_unmerged")
AVERAGED = {
    "month": {"dir_acq", "temp_upd", "comp_rel", "imp_rel", "bound_abs"},
    "library": {"dir_acq", "ref_res", "comp_rel", "imp_rel"},
    "persona": {"temp_upd", "ref_res", "comp_rel", "imp_rel", "bound_abs"},
}
"""The columns of Tables 1, 2 and 3, by a slice that one setting alone has."""
OF_EIGHT = ("pass_at_8", "all_correct_at_8")

Row = dict[str, Any]


def rows_of(questions: Sequence[tuple[Mapping[str, str], Sequence[bool]]], **fields: Any) -> list[Row]:
    """A verdict for each sample of each question: its slices, and which of its samples are right. Every other question
    accepts one answer alone, the first among them."""
    common = {"position": 0, "phase": 0, "outdated": False, "parse": "whole", "failed": False, "has_evidence": False}
    common |= {"arrived_tokens": 1000, "prompt_tokens": 100, "completion_tokens": 7}
    return [
        common | {f"slice_{name}": value for name, value in slices.items()} | fields
        | {"question_id": f"q{n}", "probe_id": f"q{n}@0", "trial": trial, "right": right, "accepted_answers": 1 + n % 2}
        for n, (slices, samples) in enumerate(questions)
        for trial, right in enumerate(samples)
    ]  # fmt: skip


def graded(rows: Sequence[Row]) -> pl.DataFrame:
    more = {"slice_": pl.String, "value_": pl.Float64}
    columns = {k: kind for k in rows[0] for start, kind in more.items() if k.startswith(start)}
    return pl.DataFrame(rows, schema=GRADED_SCHEMA | columns)


def scores(rows: Sequence[Row], closed: Sequence[Row] = ()) -> dict[tuple[str, str], float]:
    second = {SECOND: graded(closed)} if closed and SECOND is not None else {}
    found = measured(FAMILY, graded(rows), 0, second, Draws("d", [row["question_id"] for row in rows])).scores
    return {(subset, metric): value for subset, metric, value in found.select("subset", "metric", "value").iter_rows()}


def mean(values: Iterable[Fraction]) -> Fraction:
    listed = list(values)
    return sum(listed, Fraction(0)) / len(listed)


def by_hand(
    questions: Sequence[tuple[Mapping[str, str], Sequence[bool]]], setting: str
) -> dict[tuple[str, str], float]:
    """What C.3 and D.3 define, in exact arithmetic."""
    found: dict[tuple[str, str], float] = {}
    trials = len(questions[0][1])
    points = {"pass_at_1": [Fraction(sum(samples), trials) for _, samples in questions]}
    if trials == 8:
        points |= {"pass_at_8": [Fraction(sum(samples) >= 1) for _, samples in questions]}
        points |= {"all_correct_at_8": [Fraction(sum(samples) == 8) for _, samples in questions]}
    for metric, each in points.items():

        def over(name: str, value: str, each: Sequence[Fraction] = each) -> Fraction:
            mine = [(slices.get("persona", ""), p) for (slices, _), p in zip(questions, each, strict=True)
                    if slices[name] == value]  # fmt: skip
            return mean(mean(p for who, p in mine if who == one) for one in {who for who, _ in mine})

        for name in questions[0][0]:
            for value in {slices[name] for slices, _ in questions}:
                found[value, metric] = float(over(name, value) * 100)
                members = [p for (slices, _), p in zip(questions, each, strict=True) if slices[name] == value]
                found[value, f"{metric}_pooled"] = float(mean(members) * 100)
        found["all", f"{metric}_pooled"] = float(mean(each) * 100)
        of = [(slices["family"], n, p) for n, ((slices, _), p) in enumerate(zip(questions, each, strict=True))]
        if any(family == "imp_rel_unmerged" for family, _, _ in of):
            alone = [p for family, n, p in of if family == "imp_rel_unmerged" or (family == "imp_rel" and n % 2 == 0)]
            found["imp_rel_by_name", metric] = float(mean(alone) * 100)
        there = {slices["family"] for slices, _ in questions} & AVERAGED.get(setting, set(FAMILIES))
        for subset, families in (("all", there), ("all_but_dir_acq", there - {"dir_acq"})):
            if families:
                found[subset, metric] = float(mean(over("family", family) for family in families) * 100)
    return found


def world(rng: random.Random, setting: str, trials: int) -> list[tuple[dict[str, str], list[bool]]]:
    kinds = rng.sample(FAMILIES, rng.randint(1, len(FAMILIES)))
    return [
        (
            {"family": rng.choice(kinds), setting: f"{setting}_{rng.randint(0, 3)}"},
            rng.choice([[True] * trials, [False] * trials, [rng.random() < 0.5 for _ in range(trials)]]),
        )
        for _ in range(rng.randint(1, 30))
    ]


@pytest.mark.parametrize("setting", ["month", "library", "persona", "none_of_the_papers"])
@pytest.mark.parametrize("seed", range(12))
def test_every_mean_is_that_of_a_second_computation(seed: int, setting: str) -> None:
    rng = random.Random(f"{seed} {setting}")
    questions = world(rng, setting, rng.choice([1, 3, 8, 8, 9]))
    found = {key: value for key, value in scores(rows_of(questions)).items() if key[1].startswith(("pass_", "all_c"))}
    assert found == pytest.approx(by_hand(questions, setting))


@pytest.mark.parametrize("seed", range(8))
def test_all_right_is_no_more_than_the_mean_and_that_no_more_than_any_right(seed: int) -> None:
    found = scores(rows_of(world(random.Random(seed), "month", 8)))
    subsets = {subset for subset, metric in found if metric == "pass_at_1"}
    for subset in subsets:
        for pooled in ("", "_pooled") if subset not in ("all_but_dir_acq", "imp_rel_by_name") else ("",):
            low, middle, high = (found[subset, f"{name}{pooled}"] for name in (OF_EIGHT[1], "pass_at_1", OF_EIGHT[0]))
            assert 0 <= low <= middle + 1e-9 and middle <= high + 1e-9 and high <= 100 + 1e-9


@pytest.mark.parametrize("trials", [1, 2, 7, 9, 16])
def test_what_is_defined_for_eight_samples_needs_eight(trials: int) -> None:
    found = scores(rows_of([({"family": "dir_acq"}, [True] * trials), ({"family": "imp_rel"}, [False] * trials)]))
    assert found["all", "pass_at_1"] == 50
    assert not any(metric.startswith(OF_EIGHT) for _, metric in found)


def test_families_weigh_the_same_whatever_their_sizes_and_so_do_personas() -> None:
    ann, bob = {"family": "ref_res", "persona": "ann"}, {"family": "ref_res", "persona": "bob"}
    other = {"family": "comp_rel", "persona": "bob"}
    questions = [(ann, [True] * 8)] + [(bob, [False] * 8)] * 9 + [(other, [True] * 8)]
    found = scores(rows_of(questions))
    assert found["ref_res", "pass_at_1"] == pytest.approx(50)
    assert found["ref_res", "pass_at_1_pooled"] == pytest.approx(10)
    assert found["all", "pass_at_1"] == pytest.approx(75)
    assert found["all", "accuracy"] == found["all", "pass_at_1_pooled"] == pytest.approx(100 * 2 / 11)


@pytest.mark.parametrize(
    ("setting", "left_out"),
    [("library", "bound_abs"), ("persona", "dir_acq"), ("month", "ref_res"), ("month", "other")],
)
def test_families_that_the_papers_tables_do_not_have_are_no_part_of_their_mean(setting: str, left_out: str) -> None:
    questions = [({"family": "imp_rel", setting: "x"}, [True] * 8), ({"family": left_out, setting: "x"}, [False] * 8)]
    found = scores(rows_of(questions))
    assert (found["all", "pass_at_1"], found[left_out, "pass_at_1"]) == (100, 0)


@pytest.mark.parametrize(("right", "value"), [(False, 0), (True, 100)])
def test_the_controls_have_all_or_nothing(right: bool, value: float) -> None:
    questions = [(slices, [right] * 8) for slices, _ in world(random.Random(2), "persona", 8)]
    found = scores(rows_of(questions))
    about = [v for (_, metric), v in found.items() if metric.startswith(("pass_", "all_correct", "accuracy"))]
    assert about == pytest.approx([value] * len(about))


def test_imp_rel_by_name_counts_merged_questions_that_accept_one_name_and_each_name_of_the_others() -> None:
    merged, each = ({"family": family, "library": "numpy"} for family in ("imp_rel", "imp_rel_unmerged"))
    alone = rows_of([(merged, [True] * 8), (merged, [True] * 8)])  # the second accepts two names, asked for below
    names = rows_of([(merged, [True] * 8)] * 2 + [(each, [False] * 8), (each, [True] * 4 + [False] * 4)])
    assert scores(names)["imp_rel_by_name", "pass_at_1"] == pytest.approx(50)
    assert scores(names)["imp_rel", "pass_at_1"] == scores(names)["all", "pass_at_1"] == 100
    assert ("imp_rel_by_name", "pass_at_1") not in scores(alone)


def test_a_dataset_without_families_is_refused() -> None:
    with pytest.raises(UpkeepError, match="no families"):
        scores(rows_of([({"month": "2026-02"}, [True])]))


# ------------------------------------------------------------------ tokens


def test_compression_is_the_corpus_over_what_the_closed_book_does_not_need() -> None:
    questions = [({"family": "dir_acq"}, [True] * 8), ({"family": "imp_rel"}, [False] * 8)]
    open_book, closed = rows_of(questions, arrived_tokens=30_000), rows_of(questions, prompt_tokens=40)
    for row in open_book:
        row["prompt_tokens"] = 640 if row["question_id"] == "q0" else 240
    found = scores(open_book, closed)
    assert found["all", "compression_ratio"] == pytest.approx((30_000 + 30_000) / (600 + 200))
    assert found["dir_acq", "compression_ratio"] == pytest.approx(50)
    assert found["all", "context_tokens"] == pytest.approx(440)
    assert found["imp_rel", "context_tokens"] == pytest.approx(240)
    assert found["all", "generation_tokens"] == 7


def test_of_a_compressed_cache_the_context_is_what_is_kept_of_it() -> None:
    questions = [({"family": "dir_acq"}, [True] * 8)] * 2
    mine = rows_of(questions, prompt_tokens=8_040, arrived_tokens=8_000)
    for row in mine:
        row["value_kept_share"] = 1 / 16
    found = scores(mine, rows_of(questions, prompt_tokens=40))
    assert found["all", "compression_ratio"] == pytest.approx(16)
    assert found["all", "context_tokens"] == 8_040, "the prompt is read whole"


@pytest.mark.parametrize("prompt", [40, 39, 0])
def test_a_context_without_anything_of_the_corpus_has_no_ratio(prompt: int) -> None:
    questions = [({"family": "dir_acq"}, [True] * 8)] * 3
    found = scores(rows_of(questions, prompt_tokens=prompt), rows_of(questions, prompt_tokens=40))
    assert ("all", "compression_ratio") not in found and found["all", "context_tokens"] == prompt


def test_answers_that_failed_in_either_cell_have_no_say_in_tokens() -> None:
    questions = [({"family": "dir_acq"}, [True, True, True])] * 2
    mine, closed = rows_of(questions, prompt_tokens=140), rows_of(questions, prompt_tokens=40)
    mine[0] |= {"failed": True, "prompt_tokens": None, "completion_tokens": None}
    closed[1] |= {"failed": True, "prompt_tokens": 0}
    found = scores(mine, closed)
    assert found["all", "compression_ratio"] == pytest.approx(10)
    assert (found["all", "context_tokens"], found["all", "generation_tokens"]) == (140, 7)
    everything_failed = [row | {"failed": True, "prompt_tokens": None, "completion_tokens": None} for row in mine]
    assert not any(metric.endswith(("_tokens", "_ratio")) for _, metric in scores(everything_failed, closed))


PARTS = {"whisker_low": "whislo", "p25": "q1", "p50": "med", "p75": "q3", "whisker_high": "whishi"}
"""What Figure 12 draws -> what Matplotlib calls it."""


@pytest.mark.parametrize("seed", range(30))
def test_boxes_of_what_is_generated_are_those_of_matplotlib_and_quartiles_those_of_numpy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    families = ["dir_acq", "comp_rel"][: rng.integers(1, 3)]
    questions = [({"family": families[n % len(families)]}, [True] * 8) for n in range(rng.integers(1, 20))]
    rows = rows_of(questions)
    for row in rows:
        row["completion_tokens"] = int(rng.choice([rng.integers(1, 30), rng.lognormal(4, 2), 4096, 7]))
        if rng.random() < 0.1:
            row |= {"failed": True, "completion_tokens": None}
    found = scores(rows)
    for subset in ("all", *families):
        members = [row for row in rows if subset in ("all", row["slice_family"]) and not row["failed"]]
        if not members:
            assert (subset, "generation_tokens_p50") not in found
            continue
        tokens = [row["completion_tokens"] for row in members]
        (box,) = boxplot_stats(tokens)
        for name, theirs in PARTS.items():
            assert found[subset, f"generation_tokens_{name}"] == pytest.approx(box[theirs]), (subset, name)
        quartiles = [found[subset, f"generation_tokens_{name}"] for name in ("p25", "p50", "p75")]
        assert quartiles == pytest.approx(np.percentile(tokens, [25, 50, 75]))
        assert found[subset, "generation_tokens"] == pytest.approx(np.mean(tokens))


def test_a_spread_has_no_interval_and_decides_no_claim() -> None:
    rows = rows_of([({"family": "dir_acq"}, [True] * 8)] * 20)
    made = measured(FAMILY, graded(rows), 0, {}, Draws("d", [row["question_id"] for row in rows]))
    places = [n for n, name in enumerate(made.scores["metric"]) if name.startswith("generation_tokens_")]
    assert len(places) == 5 * 2 and np.isnan(made.resamples[places]).all()
    kept = made.scores[places]
    assert kept.select("se", "low", "high").null_count().row(0) == (10, 10, 10)
    assert set(kept["unit"]) == {"tokens"} and set(kept["n"]) == {160} and set(kept["questions"]) == {20}


def test_everything_that_failed_has_no_spread() -> None:
    rows = rows_of([({"family": "dir_acq"}, [False] * 8)], failed=True, completion_tokens=None)
    assert not any(metric.startswith("generation_tokens") for _, metric in scores(rows))
