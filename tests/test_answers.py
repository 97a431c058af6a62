"""Grading and scores of datasets whose questions are asked once."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from upkeep.building.content import PARTS
from upkeep.contract import DatasetCard
from upkeep.grading import answers
from upkeep.grading.graded import Graded, grade
from upkeep.grading.key import Key, key_in
from upkeep.grading.statistics import estimate
from upkeep.integrity import fingerprint, write_sealed

PROBES = [
    # question, form, accepted, outdated, level
    ("q1", "short", ["Lena Orwick", "Orwick"], ["Tam Berg"], "evolved"),
    ("q2", "short", ["scipy.stats.fit_tail"], [], "stable"),
    ("q3", "label", ["no"], [], "stable"),
    ("q4", "choice", ["B"], [], "stable"),
    ("q5", "short", ["no record of"], [], "stable"),
]


def key(folder: Path, name: str = "contains") -> Key:
    ids = [f"{q}@0" for q, *_ in PROBES]
    pl.DataFrame(
        {
            "probe_id": ids,
            "question_id": [p[0] for p in PROBES],
            "stream": "s",
            "position": 0,
            "form": [p[1] for p in PROBES],
            "options": None,
        },
        schema_overrides={"position": pl.Int32, "options": pl.List(pl.String)},
    ).write_parquet(folder / "probes.parquet")
    texts = pl.List(pl.String)
    pl.DataFrame(
        {
            "probe_id": ids,
            "answers": [p[2] for p in PROBES],
            "outdated": [p[3] for p in PROBES],
            "evidence": [["d0"] for _ in PROBES],
            "phase": 0,
            "slice_level": [p[4] for p in PROBES],
        },
        schema_overrides={"phase": pl.Int32, "answers": texts, "outdated": texts, "evidence": texts},
    ).write_parquet(folder / "gold.parquet")
    documents = pl.DataFrame({"stream": ["s"], "position": [0], "tokens": [1]}, schema_overrides={"position": pl.Int32})
    documents.write_parquet(folder / "documents.parquet")
    card = DatasetCard(
        dataset="d",
        label="",
        source="",
        licence="",
        tokenizer="",
        chunk_tokens=1,
        streams=1,
        documents=1,
        probes=5,
        questions=5,
        slices={},
        statistics={},
        stands_for=None,
        content=dict.fromkeys(PARTS, "0" * 64),
        files={name: fingerprint(folder / name) for name in ("gold.parquet", "probes.parquet")},
    )
    write_sealed(folder / "card.json", card)
    return key_in(folder, name, "## Answer:")


def graded(folder: Path, given: dict[str, str | None], name: str = "contains") -> pl.DataFrame:
    predictions = pl.DataFrame(
        {
            "probe_id": [f"{q}@0" for q in given],
            "trial": 0,
            "answer": list(given.values()),
            "parse": ["none" if answer is None else "marker" for answer in given.values()],
            "verdict": None,
            "right": None,
            "failed": False,
            "rank": None,
            "prompt_tokens": 10,
            "completion_tokens": 1,
        },
        schema_overrides={
            "trial": pl.Int32,
            "rank": pl.Int32,
            "answer": pl.String,
            "verdict": pl.String,
            "right": pl.Boolean,
        },
    )
    answer_key = key(folder, name)
    return Graded(grade(answer_key, predictions, trials=1), 0).with_key(answer_key, 1)


@pytest.mark.parametrize(
    ("question", "answer", "right", "outdated"),
    [
        ("q1", "It is Lena  ORWICK, since May.", True, False),
        ("q1", "orwick", True, False),
        ("q1", "Orwickson", False, False),
        ("q1", "Tam Berg", False, True),
        ("q1", "First Tam Berg, now Lena Orwick", True, False),
        ("q1", "", False, False),
        ("q1", None, False, False),
        ("q2", "`fit_tail`", False, False),
        ("q2", "use scipy.stats.fit_tail()", True, False),
        ("q2", "scipy.stats.fit_tails", False, False),
        ("q3", "no", True, False),
        ("q3", "yes", False, False),
        ("q4", "B", True, False),
        ("q4", "A B", False, False),
        ("q5", "No, the corpus contains no record of that.", True, False),
    ],
)
def test_an_open_answer_is_right_that_names_an_accepted_one_as_whole_words(
    tmp_path: Path, question: str, answer: str | None, right: bool, outdated: bool
) -> None:
    row = graded(tmp_path, {question: answer}).filter(question_id=question).row(0, named=True)
    assert (row["right"], row["outdated"]) == (right, outdated)


def test_without_within_the_whole_answer_counts(tmp_path: Path) -> None:
    frame = graded(tmp_path, {"q1": "It is Orwick", "q4": "B"}, "short_answer")
    assert dict(frame.select("question_id", "right").iter_rows())["q1"] is False
    assert frame.filter(question_id="q4")["right"][0] is True


def test_what_is_not_answered_stays_in_the_denominator_of_every_subset(tmp_path: Path) -> None:
    scores = estimate(answers.measure(graded(tmp_path, {"q1": "Tam Berg", "q3": "no"}), 0))
    found = {
        (subset, metric): (value, n)
        for subset, metric, value, n in scores.select("subset", "metric", "value", "n").iter_rows()
    }
    assert found["all", "accuracy"] == (20.0, 5)
    assert found["evolved", "outdated_rate"] == (100.0, 1)
    assert found["stable", "accuracy"] == (25.0, 4)
    assert found["all", "parse_rate"] == (40.0, 5)
    assert found["all", "error_rate"] == (60.0, 5)
