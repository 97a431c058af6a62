"""World News: what held when, which changes are asked about, and how facts are chained."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec
import numpy as np

from imprint_news import compositions, steps
from imprint_news.candidates import Candidate
from imprint_news.chains import Graph, Link
from imprint_news.chains import Path as Chain
from imprint_news.claims import dir_acq
from imprint_news.events import imp_rel
from imprint_news.updates import temp_upd
from news_worlds import FORGIVING, scripted, tiny_corpus


def update(**given: Any) -> steps.Update:
    base = {
        "kind": "A",
        "role": "mayor of Oak",
        "before": "Ben Day",
        "after": "Ann Lee",
        "quote": "Ann Lee won.",
        "person": True,
    }
    return msgspec.convert(base | given, steps.Update)


def axes(text: str, *updates: steps.Update) -> tuple[list[Candidate], Counter[str]]:
    left = Counter[str]()
    made = tiny_corpus(text, "Other news. Ann Lee won.")
    given = iter([list(updates), list(updates[:1])])
    return temp_upd(made, scripted(updates=lambda _: next(given)), left), left


def test_a_new_holder_gives_four_questions_and_a_new_value_two() -> None:
    text = "Ann Lee won. She was a judge of Elm. The toll of Oak is 7."
    prior = {"prior": "judge of Elm", "prior_quote": "She was a judge of Elm."}
    value = update(kind="B", role="the toll of Oak", before="5", after="7", quote="The toll of Oak is 7.")
    found, left = axes(text, update(**prior), value)
    assert [(one.question, one.answers, one.outdated) for one in found] == [
        ("As of 1 February 2026, who is the mayor of Oak?", ("Ann Lee",), ("Ben Day",)),
        ("As of 1 February 2026, is Ben Day still the mayor of Oak?", ("no",), ("yes",)),
        ("As of 1 February 2026, who replaced Ben Day as the mayor of Oak?", ("Ann Lee",), ()),
        ("Apart from being the mayor of Oak, what is Ann Lee known for?", ("judge of Elm",), ()),
        ("As of 1 February 2026, what is the toll of Oak?", ("7",), ("5",)),
        ("As of 1 February 2026, is the toll of Oak still 5?", ("no",), ("yes",)),
    ]
    assert left == {"temp_upd, told before": 1}


def test_a_prior_role_that_the_article_does_not_tell_is_not_asked_for() -> None:
    made_up = update(prior="judge of Elm", prior_quote="She was a judge of Elm.")
    found, _ = axes("Ann Lee won.", made_up)
    assert [one.stratum for one in found] == ["temp_upd_forward", "temp_upd_negation", "temp_upd_backward"]


def test_a_change_without_a_change_or_without_its_words_is_left_out() -> None:
    found, left = axes("Ann Lee won.", update(before="ann lee!"), update(quote="Ben lost."), update(role=" "))
    assert found == []
    assert left == {"temp_upd, nothing changed": 3, "temp_upd, quote not in the article": 1}


def link(
    subject: str, relation: str, object: str, day: str = "", article: int | None = 0, before: str | None = None
) -> Link:
    return Link(
        subject, relation, object, f"{relation} of {subject}: {object}", day, article if day else None, (0,), before
    )


def test_a_claim_whose_answer_does_not_fit_what_was_changed_is_left_out() -> None:
    claims = [
        steps.Claim("Did Ann win?", "yes", "nothing", "ann won"),
        steps.Claim("Did Ben win?", "no", "entity", "Ann won."),
        steps.Claim("Did Kim win?", "yes", "entity", "Ann won."),
        steps.Claim("Did Zed win?", "no", "nothing", "Ann won."),
        steps.Claim("Did Ann lose?", "no", "relation", "Ann lost."),
    ]
    left = Counter[str]()
    found = dir_acq(tiny_corpus("Ann won."), scripted(claims=lambda _: claims), left)
    assert [(one.question, one.stratum) for one in found] == [
        ("Did Ann win?", "dir_acq_yes"),
        ("Did Ben win?", "dir_acq_no"),
    ]
    assert left == {"dir_acq, answer against what was changed": 2, "dir_acq, quote not in the article": 1}


def test_the_graph_knows_what_held_when() -> None:
    graph = Graph(
        [
            link("Oak", "mayor", "Zed"),
            link("Oak", "mayor", "Ben", "2026-02-01", 0),
            link("Oak", "mayor", "Ann", "2026-02-10", 1, before="Ben"),
            link("oak", "Mayor", "ann", "2026-02-20", 2),
            link("Elm", "child", "Kim"),
            link("Elm", "child", "Lee"),
            link("Fir", "seat", "Oak", "2026-02-05", 3, before="Elm"),
            link("Ash", "seat", "Oak", "2026-02-05", 3),
            link("Ash", "seat", "Elm", "2026-02-05", 4),
        ]
    )

    def at(subject: str, relation: str, before: str | None = None) -> tuple[str, int | None] | None:
        found = graph.at((subject, relation), before)
        return found and (found.object, found.article)

    assert at("oak", "mayor") == ("Ann", 1)  # the article that tells of the change, not its echo
    assert at("oak", "mayor", "2026-02-10") == ("Ben", 0)
    assert at("oak", "mayor", "2026-02-01") == ("Zed", None)
    assert at("elm", "child") is None
    assert at("fir", "seat", "2026-02-05") == ("Elm", 3)
    assert at("ash", "seat") is None
    assert at("ash", "seat", "2026-02-05") is None
    assert at("nobody", "mayor") is None


def test_a_value_that_comes_back_rests_on_the_article_that_brought_it_back() -> None:
    days = ("2026-02-01", "2026-02-02", "2026-02-03")
    graph = Graph([link("Oak", "mayor", who, day, n) for n, (who, day) in enumerate(zip("ABA", days, strict=True))])
    found = graph.at(("oak", "mayor"))
    assert found is not None
    assert (found.object, found.article) == ("A", 2)


def test_chains_have_a_fact_of_the_corpus_no_place_twice_and_their_number_of_hops() -> None:
    rng = Random(0)
    nodes = [f"N{n}" for n in range(30)]
    links = [link(node, f"r{n}", rng.choice(nodes)) for node in nodes for n in range(3)]
    links += [link(node, "c", rng.choice(nodes), "2026-02-01", n) for n, node in enumerate(nodes[:10])]
    graph = Graph(links)
    for hops in (2, 3, 4):
        paths = graph.paths(hops, 8, Random(1))
        assert paths == graph.paths(hops, 8, Random(1))
        assert len({path.asked for path in paths}) == len(paths) > 10
        for path in paths:
            assert len(path.links) == hops
            assert any(one.article is not None for one in path.links)
            assert len({path.links[0].subject, *path.nodes}) == hops + 1
            for one, following in itertools.pairwise(path.links):
                assert one.object == following.subject


def test_a_change_taken_back_and_the_time_before_it_are_two_things() -> None:
    graph = Graph(
        [
            link("Fir", "seat", "Oak", "2026-02-10", 1, before="Elm"),
            link("Oak", "mayor", "Ann"),
            link("Elm", "mayor", "Ben", "2026-02-01", 0),
            link("Elm", "mayor", "Kim", "2026-02-20", 2, before="Ben"),
            link("Yew", "seat", "Oak", "2026-02-10", 3),
        ]
    )
    paths = {path.links[0].subject: path for path in graph.paths(2, 8, Random(0))}
    assert paths["Fir"].answer == "Ann"
    undone, earlier = graph.undone(paths["Fir"]), graph.earlier(paths["Fir"])
    assert undone is not None
    assert earlier is not None
    assert (undone.answer, earlier.answer) == ("Kim", "Ben")
    assert undone.changed == earlier.changed == 0
    assert graph.undone(paths["Yew"]) is graph.earlier(paths["Yew"]) is None
    assert Chain(paths["Fir"].links).article == 1


def test_the_time_before_a_change_is_not_asked_about_where_no_article_tells_of_it() -> None:
    links = [
        link("Fir", "seat", "Elm"),
        link("Fir", "seat", "Oak", "2026-02-20", 2),
        link("Oak", "mayor", "Ann", "2026-02-10", 1, before="Zed"),
        link("Elm", "mayor", "Ben"),
    ]
    for told, answer in ((links, None), ([*links[:3], link("Elm", "mayor", "Ben", "2026-02-01", 0)], "Ben")):
        graph = Graph(told)
        path = next(path for path in graph.paths(2, 8, Random(0)) if path.links[0].subject == "Fir")
        assert path.answer == "Ann"
        earlier = graph.earlier(path)
        assert (earlier and earlier.answer) == answer


def test_a_composed_question_that_names_its_chain_or_a_false_quote_is_left_out() -> None:
    made = tiny_corpus("Fir sits in Oak. Ann leads Oak. Ben is of Ann.")
    facts = [
        ("Fir", "seat", "Oak", "Fir sits in Oak"),
        ("Oak", "mayor", "Ann", "Ann leads Oak"),
        ("Ann", "son", "Ben", "Ben is of Ann"),
    ]
    replies = iter(
        [
            steps.Composed("Who is the mayor of Oak, seat of Fir?"),
            steps.Composed("Who leads the seat of the tree?", ("Fir is a tree.",)),
            steps.Composed("Who is the son of the mayor of the seat of Fir?"),
        ]
    )
    helper = scripted(facts=lambda _: [steps.FactReply(*fact) for fact in facts], compose=lambda _: next(replies))
    left = Counter[str]()
    found = compositions.comp_rel(made, lambda _: [], helper, {2: 5, 3: 5, 4: 5}, 8, Random(0), left, FORGIVING)
    assert [(one.stratum, one.answers) for one in found] == [("comp_rel_3hop", ("Ben",))]
    assert left == {
        "comp_rel, the question names what lies on the chain": 1,
        "comp_rel, quote not in the articles": 1,
    }


def test_answers_that_name_one_event_become_one_question_and_its_salience() -> None:
    made = tiny_corpus("A flood came.", "The flood stayed.", "A strike began.")
    events = {
        "A flood came.": ("Oak flood", "A flood came."),
        "The flood stayed.": ("Oak flood", "The flood stayed."),
        "A strike began.": ("Elm strike", "A strike began."),
    }

    def reply(spike: steps.Spike) -> list[steps.Event]:
        answer, quote = events[spike.passages[0]]
        return [
            steps.Event(f"What happened {spike.date}?", answer, quote),
            steps.Event("Made up?", "Nothing", "Never told."),
        ]

    def embed(texts: Sequence[str]) -> np.ndarray:
        return np.array([[1.0, 0.0] if "flood" in text else [0.0, 1.0] for text in texts], dtype=np.float32)

    left = Counter[str]()
    found, clusters = imp_rel(made, scripted(events=reply), embed, 0.82, left)
    assert [(one.question, one.slices["salience"]) for one in found] == [
        ("What happened 1 February 2026?", "salience_2_4"),
        ("What happened 3 February 2026?", "salience_1"),
    ]
    assert [(one.answer, one.articles, one.size) for one in clusters] == [
        ("Oak flood", (0, 1), 2),
        ("Elm strike", (2,), 1),
    ]
    assert left == {"imp_rel, quote not in the articles": 3}
