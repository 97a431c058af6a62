"""World News: which candidates become questions, and which are left out and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from imprint_news import builder, cheating, sampling, steps
from imprint_news.candidates import Candidate
from imprint_news.updates import AXES
from news_worlds import mini, scripted, tiny_corpus
from upkeep.building import assistant, leaks, store

__all__ = ["mini"]


def test_the_filter_finds_what_leaks_and_what_is_wrong(mini: store.Dataset) -> None:
    statistics = mini.card.statistics
    assert statistics["left out: dir_acq, right without the article"] > 0
    assert statistics["left out: dir_acq, wrong with the article"] > 0
    assert "left out: comp_rel, wrong with the article" not in statistics  # the graph and the world agree
    assert statistics["candidates: dir_acq"] == 180  # three times as many as are wanted


def test_no_question_of_the_evaluation_is_trained_on(mini: store.Dataset) -> None:
    questions = {leaks.key(question) for question in mini.probes["question"]}
    trained = [leaks.key(pair.question) for pair in mini.pairs]
    assert len(trained) == len(set(trained)) > 100
    assert not questions & set(trained)
    assert mini.card.statistics["left out: pairs, asked in the evaluation"] > 0


def candidate(question: str = "Who?", answers: Sequence[str] = ("Ann",), article: int = 0, **more: Any) -> Candidate:
    given: dict[str, Any] = {"family": "f", "stratum": "s", "evidence": (0,)} | more
    return Candidate(question=question, answers=tuple(answers), article=article, **given)


def test_a_question_that_is_asked_twice_or_tells_or_has_two_answers_is_left_out() -> None:
    left = Counter[str]()
    given = [
        candidate("Who won?"),
        candidate("who won"),
        candidate("Who lost?", ["Ann"]),
        candidate("Who lost?", ["Ben"]),
        candidate("Did Ann win, or who?"),
        candidate("Is yes right?", ["yes"], options=("yes", "no")),
        candidate("?!"),
    ]
    assert [one.question for one in cheating.unambiguous(given, left)] == ["Who won?", "Is yes right?"]
    assert left == {
        "f, asked twice": 1,
        "f, asked with two answers": 2,
        "f, answer in question": 1,
        "f, empty question": 1,
    }


def test_the_filter_keeps_what_needs_the_article_and_can_be_answered_with_it() -> None:
    label = {"options": ("yes", "no")}
    given = {
        "known": candidate("known", ["Ann"]),
        "judged": candidate("judged", ["Ann"]),
        "unread": candidate("unread", ["Ann"]),
        "hard": candidate("hard", ["Ann"]),
        "good": candidate("good", ["Ann"]),
        "guessed": candidate("guessed", ["yes"], **label),
        "silent": candidate("silent", ["yes"], **label),
        "denied": candidate("denied", ["yes"], **label),
    }
    blind = {
        "known": "That was Ann, of course.", "judged": "Anna", "unread": None, "guessed": "Yes, I think. No?",
        "silent": "Who knows", "denied": "No. Or yes?",
    }  # fmt: skip
    context = {"hard": "Ben", "good": "ann!", "silent": "YES", "denied": "eyes and noses"}
    helper = scripted(
        blind=lambda one: blind.get(one.question, "unknown"),
        with_context=lambda one: context[one.question],
        agrees=lambda one: steps.Agrees(one.response == "Anna"),
    )
    left = Counter[str]()
    kept = cheating.fair(list(given.values()), tiny_corpus("Ann won."), helper, 1, 1, left)
    assert [one.question for one in kept] == ["good", "silent"]
    assert left == {"f, right without the article": 3, "f, wrong with the article": 2}
    assert cheating.fair(list(given.values()), tiny_corpus("Ann won."), helper, 0, 0, left) == list(given.values())


class Changeable(assistant.Scripted):
    """Says another thing at its third trial."""

    def ask(self, step: Any, given: Sequence[Any], trial: int = 0) -> list[Any]:
        return ["yes" if trial == 2 else "no" for _ in given] if step is steps.BLIND else []


@pytest.mark.parametrize(("trials", "kept"), [(2, 1), (3, 0)])
def test_every_trial_of_the_filter_counts(trials: int, kept: int) -> None:
    one = candidate("q", ["yes"], options=("yes", "no"))
    assert len(cheating.fair([one], tiny_corpus("x"), Changeable({}), trials, 0, Counter())) == kept


@pytest.mark.parametrize("wanted", [0, 1, 7, 30, 1000])
def test_an_articles_budget_grows_with_its_length(wanted: int) -> None:
    sizes = [100, 300, 600, 50]
    given = [(article, n) for n in range(20) for article in range(3)]
    taken = sampling.apportion(given, lambda one: one[0], sizes, wanted, Random(1))
    assert len(taken) == min(wanted, len(given))
    assert taken == [one for one in given if one in set(taken)]
    if wanted == 30:  # 1000 tokens in all, 3 for each hundred: 3, 9, 18
        assert Counter(article for article, _ in taken) == {0: 3, 1: 9, 2: 18}


def test_families_share_their_number_evenly_among_labels_and_axes() -> None:
    strata = builder.Wanted(dir_acq=5, temp_upd=6).strata()
    assert (strata["dir_acq_yes"], strata["dir_acq_no"]) == (3, 2)
    assert [strata[f"temp_upd_{axis}"] for axis in AXES] == [2, 2, 1, 1]
    assert builder.Wanted().strata()["comp_rel_3hop"] == 150
