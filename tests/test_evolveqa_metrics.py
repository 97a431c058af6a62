"""The metrics of evolveQA, held against a second computation that goes through the items one by one."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest

from conftest import ROOT
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.grading.judged import decided_by_judges
from upkeep.grading.judgements import judgements_of
from upkeep.grading.measuring import measured
from upkeep.grading.metric_families import read_family
from upkeep.grading.metrics import GRADED_SCHEMA
from upkeep.grading.resampling import Draws

FAMILY = read_family(ROOT / "papers" / "evolveqa" / "metrics.py")
CUTOFFS = ("2023-08-31", "2023-12-31", "2024-04-30", "2024-05-31", "2024-07-31", "2024-08-31")
SETTINGS = {"context": ";context=on;date=off", "date": ";context=off;date=on", "both": ";context=on;date=on"}

Row = dict[str, Any]


def probe(item: str, form: str, cutoff: str, **fields: Any) -> Row:
    """One verdict: by default wrong, on a fact that changed, of a model that knows all dates."""
    ending = {"open_ended": "", "mcq": ".mcq1", "a": ".pair1a", "b": ".pair1b"}[form]
    row = {"question_id": f"{item}{ending}", "trial": 0, "position": CUTOFFS.index(cutoff), "phase": 0, "right": False}
    row |= {"outdated": False, "parse": "whole", "failed": False, "has_evidence": False, "has_outdated": True}
    row |= {"model_cutoff": "2025-01-01", "slice_cutoff": cutoff, "slice_hints": "none"}
    row |= {"slice_format": form if form in ("open_ended", "mcq") else "verifiable"}
    row |= {"slice_polarity": {"a": "yes", "b": "no"}.get(form, "no_polarity")} | fields
    return {"probe_id": f"{row['question_id']}@{row['position']}", **row}


def graded(rows: Sequence[Row]) -> pl.DataFrame:
    slices = dict.fromkeys(("slice_cutoff", "slice_format", "slice_hints", "slice_polarity"), pl.String)
    frame = pl.DataFrame(rows, schema=GRADED_SCHEMA | slices)
    return frame.with_columns(slice_change=pl.col("slice_format") + "_superseding")


def scores(rows: Sequence[Row]) -> dict[tuple[str, str], float]:
    found = measured(FAMILY, graded(rows), 0, {}, Draws("d", [row["question_id"] for row in rows])).scores
    return {
        (told(name), metric): value for name, metric, value in found.select("subset", "metric", "value").iter_rows()
    }


def told(name: str) -> str:
    """A subset with its settings."""
    placed = FAMILY.placed.get(name)
    return name if placed is None else ";".join([placed.subset, *(f"{k}={v}" for k, v in placed.settings.items())])


def world(rng: random.Random, cutoff: str | None, hints: Sequence[str] = ("none",), trials: int = 1) -> list[Row]:
    """Items that lack some formats at some dates, with verdicts at random."""
    rows = []
    for n in range(rng.randint(1, 12)):
        for date in rng.sample(CUTOFFS, rng.randint(1, 6)):
            for hint in hints:
                forms = [("open_ended",), ("mcq",), ("a", "b")]
                for form in [one for some in rng.sample(forms, rng.randint(1, 3)) for one in some]:
                    offered = rng.random() < 0.5
                    for trial in range(trials):
                        verdict = rng.choice(["right", "outdated", "wrong"])
                        row = probe(f"aws_q{n:04d}", form, date, trial=trial, model_cutoff=cutoff, has_outdated=offered)
                        row |= {"right": verdict == "right", "slice_hints": hint}
                        row["outdated"] = verdict == "outdated" and form in ("open_ended", "mcq")
                        rows.append(row | {"probe_id": f"{row['probe_id']}.{hint}"})
    return rows


def by_hand(rows: Sequence[Row]) -> dict[tuple[str, str], float]:
    """What the paper prints, worked out item by item."""
    model = rows[0]["model_cutoff"]
    dates = [date for date in {row["slice_cutoff"] for row in rows} if model is not None and date <= model]
    if not dates:
        return {}
    mine = [row for row in rows if row["slice_cutoff"] == max(dates)]
    counts: defaultdict[tuple[str, str], list[bool]] = defaultdict(list)
    choices = {(r["slice_hints"], item_of(r), r["trial"]): r for r in mine if r["slice_format"] == "mcq"}
    pairs: defaultdict[tuple[Any, ...], list[bool]] = defaultdict(list)
    for row in mine:
        ending = SETTINGS.get(row["slice_hints"], "")
        key = (row["slice_hints"], item_of(row), row["trial"])
        names = [row["slice_format"]]
        if row["slice_format"] != "verifiable" and key in choices and choices[key]["has_outdated"]:
            names.append(f"{row['slice_format']}_superseding")
        for name in names:
            counts[name + ending, "accuracy"].append(row["right"])
            counts[name + ending, "outdated_rate"].append(row["outdated"])
            counts[name + ending, "incorrect_rate"].append(not row["right"] and not row["outdated"])
            if name == "open_ended" and not ending:  # Table 10 has it once more
                counts["open_ended;context=off;date=off", "accuracy"].append(row["right"])
        if row["slice_format"] == "verifiable":
            pairs[ending, *key].append(row["right"])
        if row["slice_format"] == "open_ended" and row["outdated"] and key in choices:
            counts[f"open_ended{ending}", "mcq_correct_given_outdated"].append(choices[key]["right"])
    for (ending, *_), both in pairs.items():
        counts[f"verifiable{ending}", "hard_accuracy"].append(all(both))
    return {key: 100 * sum(held) / len(held) for key, held in counts.items()}


def item_of(row: Row) -> str:
    return str(row["question_id"].split(".")[0])


PRINTED = ("open_ended", "mcq", "verifiable")


@pytest.mark.parametrize("seed", range(40))
def test_every_score_is_that_of_a_second_computation(seed: int) -> None:
    rng = random.Random(seed)
    cutoff = rng.choice([*CUTOFFS, "2024-01-15", "2023-12", "2099-01-01", "2020-01-01", None])
    hints = rng.choice([("none",), ("context", "date", "both"), ("none", "both")])
    rows = world(rng, cutoff, hints, trials=rng.choice([1, 3]))
    whole_month = [row | {"model_cutoff": "2023-12-31" if cutoff == "2023-12" else cutoff} for row in rows]
    found = {key: value for key, value in scores(rows).items() if key[0].startswith(PRINTED)}
    assert found == pytest.approx(by_hand(whole_month))


def test_a_control_has_no_score_of_table_10_which_prints_none_of_it() -> None:
    changing = graded(world(random.Random(1), "2099-01-01"))
    control = changing.with_columns(slice_change=pl.col("slice_format") + "_static")
    has = [
        any(subset in FAMILY.placed for subset in FAMILY.measure(frame, 0)["subset"]) for frame in (changing, control)
    ]
    assert has == [True, False]


@pytest.mark.parametrize("seed", range(10))
def test_the_three_rates_sum_to_100_and_pairs_are_no_easier_than_their_questions(seed: int) -> None:
    rng = random.Random(seed)
    found = scores(world(rng, "2025-01-01", rng.choice([("none",), ("context", "both")]), trials=2))
    for subset, metric in found:
        assert 0 <= found[subset, metric] <= 100
        if metric == "outdated_rate":
            rates = [found[subset, name] for name in ("accuracy", "outdated_rate", "incorrect_rate")]
            assert sum(rates) == pytest.approx(100)
        if metric == "hard_accuracy":
            assert found[subset, metric] <= found[subset, "accuracy"]


def test_a_cell_without_a_cutoff_has_nothing_that_the_paper_prints() -> None:
    rows = world(random.Random(1), None)
    assert not any(subset.startswith(PRINTED) for subset, _ in scores(rows))
    assert {"all", "no_polarity"} <= {subset for subset, _ in scores(rows)}


@pytest.mark.parametrize(
    ("cutoff", "right"),
    [("2023-08-31", 100), ("2023-12-30", 100), ("2023-12-31", 0), ("2023-12", 0), ("2030", 0), ("2023-08-30", None)],
)
def test_a_model_is_asked_as_of_the_latest_date_that_is_not_after_its_own(cutoff: str, right: float | None) -> None:
    rows = [
        probe("aws_q0001", "open_ended", "2023-08-31", right=True, model_cutoff=cutoff),
        probe("aws_q0001", "open_ended", "2023-12-31", right=False, model_cutoff=cutoff),
    ]
    assert scores(rows).get(("open_ended", "accuracy")) == right


@pytest.mark.parametrize(("right", "accuracy"), [(False, 0), (True, 100)])
def test_the_controls_have_all_or_nothing(right: bool, accuracy: float) -> None:
    rows = [row | {"right": right, "outdated": False} for row in world(random.Random(3), "2025-01-01")]
    found = scores(rows)
    assert {value for (_, metric), value in found.items() if metric in ("accuracy", "hard_accuracy")} == {accuracy}
    assert {value for (_, metric), value in found.items() if metric == "incorrect_rate"} == {100 - accuracy}
    assert {value for (_, metric), value in found.items() if metric == "outdated_rate"} == {0}
    assert not any(metric == "mcq_correct_given_outdated" for _, metric in found)


def test_halves_of_a_pair_belong_together_whatever_follows_in_their_ids() -> None:
    def pair(number: int, ending: str, *right: bool) -> list[Row]:
        rows = [probe("who_q0007", half, CUTOFFS[-1], right=one) for half, one in zip("ab", right, strict=True)]
        ids = [f"who_q0007.pair{number}{half}{ending}" for half in "ab"]
        return [row | {"question_id": id, "probe_id": f"{id}@5"} for row, id in zip(rows, ids, strict=True)]

    rows = pair(1, "", True, False) + pair(2, "", False, True) + pair(11, f".at.{CUTOFFS[-1]}", True, True)
    assert scores(rows)["verifiable", "hard_accuracy"] == pytest.approx(100 / 3)
    assert scores(rows)["verifiable", "accuracy"] == pytest.approx(100 * 4 / 6)


@pytest.mark.parametrize("lost", ["a", "b"])
def test_half_a_pair_is_refused(lost: str) -> None:
    rows = [probe("aws_q0001", half, CUTOFFS[0], right=True) for half in "ab" if half != lost]
    with pytest.raises(UpkeepError, match="without the other half") as caught:
        scores(rows)
    assert caught.value.where == "aws_q0001.pair1"


def test_an_item_is_superseding_by_the_options_of_its_choice_and_not_by_its_open_answers() -> None:
    rows = [
        probe("aws_q0001", "open_ended", CUTOFFS[0], right=True, has_outdated=False),
        probe("aws_q0001", "mcq", CUTOFFS[0], right=True, has_outdated=True),
        probe("aws_q0002", "open_ended", CUTOFFS[0], right=False, has_outdated=True),
        probe("aws_q0002", "mcq", CUTOFFS[0], right=False, has_outdated=False),
        probe("aws_q0003", "open_ended", CUTOFFS[0], right=False, has_outdated=True),
    ]
    found = scores([row | {"model_cutoff": CUTOFFS[0]} for row in rows])
    assert found["open_ended_superseding", "accuracy"] == found["mcq_superseding", "accuracy"] == 100
    assert found["open_ended", "accuracy"] == pytest.approx(100 / 3)


def test_an_item_that_is_asked_often_counts_as_one_question() -> None:
    rows = world(random.Random(4), "2025-01-01", trials=4)
    found = measured(FAMILY, graded(rows), 0, {}, Draws("d", [row["question_id"] for row in rows])).scores
    items = {item_of(row) for row in rows}
    assert found.filter(pl.col("subset") == "all", pl.col("metric") == "accuracy")["questions"].to_list() == [
        len(items)
    ]
    assert (found["questions"] <= len(items)).all()


def test_a_judge_decides_the_share_of_incorrect_open_answers_too_and_none_of_choices() -> None:
    """One who finds every answer right leaves as few incorrect ones as one who finds every answer outdated."""
    rows = world(random.Random(5), "2025-01-01")
    decided = decided_by_judges(FAMILY, graded(rows), 0, judgements_of(Catalog(ROOT), "evolveqa_aws"))
    rates = ("accuracy", "outdated_rate", "incorrect_rate")
    assert {(subset, name) for subset, name, _ in decided if subset == "open_ended"} == {
        *(("open_ended", rate) for rate in rates),
        ("open_ended", "mcq_correct_given_outdated"),
    }
    assert not {name for subset, name, _ in decided if subset in ("mcq", "verifiable")}
