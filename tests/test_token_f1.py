"""How many words an open answer shares with an accepted one, and what is made of it."""

from __future__ import annotations

import csv
from pathlib import Path

import polars as pl
import pytest

from conftest import ROOT
from metric_cells import PRELUDE, scored, verdicts
from test_books import Released
from upkeep.errors import UpkeepError
from upkeep.grading import graded
from upkeep.grading.key import key_in


def by_hand(answer: str, accepted: str) -> float:
    """2PR / (P + R) over words, as SQuAD's and InfiniteBench's programs have it."""
    own, wanted = (
        [word for word in "".join(c for c in text.lower() if c.isalnum() or c == " ").split() if word not in ARTICLES]
        for text in (answer, accepted)
    )
    common = sum(min(own.count(word), wanted.count(word)) for word in set(own))
    if not common:
        return 0.0
    precision, recall = common / len(own), common / len(wanted)
    return 2 * precision * recall / (precision + recall)


ARTICLES = ("a", "an", "the")


def test_an_answer_scores_the_words_that_it_shares_with_the_nearest_accepted_one(tmp_path: Path) -> None:
    released = Released("narrativeqa", tmp_path)
    _, data = released.build(books=None)
    key = key_in(tmp_path / "1/built", "token_f1", "Answer:")
    gold = dict(data.gold.select("probe_id", "answers").iter_rows())
    said = ["{0}", "It was {0}", "the keeper, the keeper!", "nobody", None, "{0} {0} did"]
    rows = []
    for place, (probe, accepted) in enumerate(gold.items()):
        answer = said[place % len(said)]
        answer = answer and answer.format(accepted[0].split()[0])
        rows.append({"probe_id": probe, "trial": 0, "answer": answer, "parse": "whole", "failed": False})
    rows[-1]["failed"] = True
    predictions = pl.DataFrame(rows, schema={name: graded.VERDICTS[name] for name in graded.READ})
    found = graded.grade(key, predictions, 1)
    for row, asked in zip(found.iter_rows(named=True), rows, strict=True):
        accepted, answer = gold[row["probe_id"]], "" if asked["failed"] else asked["answer"] or ""
        assert row["value_token_f1"] == pytest.approx(max(by_hand(answer, one) for one in accepted))
    assert 0 < found["value_token_f1"].mean() < 1  # type: ignore[operator]
    with pytest.raises(UpkeepError, match=r"a value 'token_f1'(.|\n)*another name"):
        graded.grade(key, predictions.with_columns(value_token_f1=pl.lit(0.9)), 1)


@pytest.mark.parametrize("benchmark", ["narrativeqa", "infbench_mc", "infbench_qa"])
def test_the_distance_from_people_is_that_of_table_7(benchmark: str) -> None:
    slices = {"benchmark": [benchmark] * 20}
    rows = verdicts(*({"right": n < 11} for n in range(20)), **slices)
    if benchmark != "infbench_mc":
        rows = rows.with_columns(value_token_f1=pl.Series([0.5] * 10 + [0.222] * 10))
    found = {metric: row["value"] for (subset, metric), row in scored(PRELUDE, rows).items() if subset == "all"}
    printed = {row["metric"]: float(row["value"]) for row in table_7(benchmark)}
    assert found["accuracy"] == pytest.approx(55) and "macro_f1" not in found
    if benchmark == "infbench_qa":
        assert "distance_from_people" not in found and found["token_f1"] == pytest.approx(36.1)
    else:
        people, chance = printed["human_score"], printed["random_score"]
        score = found.get("token_f1", found["accuracy"])
        assert found["distance_from_people"] == pytest.approx(100 * (people - score) / (people - chance))
    if benchmark == "narrativeqa":  # a score of 36.1 is what the paper prints, and its quantile
        assert found["token_f1"] == pytest.approx(36.1)
        assert round(found["distance_from_people"], 1) == printed["quantile_memorization"]


def table_7(benchmark: str) -> list[dict[str, str]]:
    with (ROOT / "papers/prelude/reference/table_7.csv").open(encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["dataset"] == benchmark]
