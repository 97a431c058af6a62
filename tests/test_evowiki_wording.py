"""What the questions about legislators ask for: one thing, and by a name that no other answer holds."""

from __future__ import annotations

import polars as pl
import pytest

from evowiki import questions
from evowiki.facts import Snapshot
from evowiki.levels import levels
from evowiki_worlds import asked, snapshot
from test_evowiki_congress import congress  # noqa: F401  (a fixture)
from upkeep.building import store
from upkeep.questions import key


def two_virginias() -> list[Snapshot]:
    homes = {"Ann": "Virginia", "Ben": "West Virginia", "Cal": "Ohio"}
    facts = [(name, name, "home", place) for name, place in homes.items()]
    pages = {name: f"{name} is from {place}." for name, place in homes.items()}
    return [snapshot(date, facts, pages, people=homes) for date in ("2021-01-01", "2022-01-01", "2023-01-01")]


@pytest.mark.parametrize(("apart", "subjects"), [(False, {"Ann", "Ben", "Cal"}), (True, {"Ben", "Cal"})])
def test_an_answer_that_lies_within_another_ones_name_is_not_asked_for(apart: bool, subjects: set[str]) -> None:
    times = two_virginias()
    found, counts = questions.questions(levels(times), times[-1], 1, True, {}, 0, apart)
    assert {one.subject for one in found} == subjects
    assert counts.get("left out: answer within another object's name", 0) == 3 - len(subjects)


@pytest.mark.data
def test_no_question_about_legislators_accepts_a_wrong_place_or_means_a_room_by_an_office(
    congress: store.Dataset,  # noqa: F811
) -> None:
    rows = asked(congress)
    states = rows.filter(pl.col("question").str.starts_with("What is the state "))
    places = set(states["answers"].explode())
    assert len(places) > 30
    for name in places:
        assert not any(f" {key(name)} " in f" {key(other)} " for other in places - {name}), name
    words = rows["question"].str
    assert not words.contains(r"the (office|seniority|committee) of").any()
    assert words.contains("the office address of").sum() > 100


@pytest.mark.data
def test_the_rank_of_a_senator_is_never_in_the_question(congress: store.Dataset) -> None:  # noqa: F811
    ranks = asked(congress).filter(pl.col("question").str.contains("the rank among the state's two senators of"))
    assert len(ranks) > 20
    for question, answers in ranks.select("question", "answers").iter_rows():
        assert answers in (["senior"], ["junior"]) and answers[0] not in question.replace("senators", "").split()
