"""Questions over one or more facts have the answers that their chains lead to, in words that keep the rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import polars as pl
import pytest

from evowiki import questions
from evowiki.facts import Snapshot
from evowiki.levels import Levels, levels
from evowiki_worlds import DATES, level_of, snapshot
from upkeep.building.assistant import Scripted


def ask(
    found: Levels, current: Snapshot, hops: int = 3, humans: bool = False, **most: list[int]
) -> dict[str, questions.Asked]:
    return {one.text: one for one in questions.questions(found, current, hops, humans, most, 0)[0]}


# ---------------------------------------------------------------- chains


def chained(*states: Mapping[tuple[str, str], str | tuple[str, ...]]) -> tuple[Levels, Snapshot]:
    """Snapshots whose pages tell each fact in a sentence."""
    made = []
    for date, state in zip(DATES, states, strict=True):
        rows, pages = [], dict[str, str]()
        for (subject, relation), objects in state.items():
            for n, object in enumerate((objects,) if isinstance(objects, str) else objects):
                rows.append((f"{subject}|{relation}|{n}", subject, relation, object))
                pages[subject] = f"{pages.get(subject, '')} The {relation} is {object}.".strip()
        made.append(snapshot(date, rows, pages, people=["Ann", "Bob", "Cid"]))
    return levels(made), made[-1]


BASE: dict[tuple[str, str], str | tuple[str, ...]] = {
    ("Ann", "firm"): "Acme",
    ("Acme", "head"): "Bob",
    ("Bob", "town"): "Ulm",
    ("Bob", "mentor"): "Cid",
    ("Cid", "town"): "Wien",
}


def test_a_chain_of_stable_facts_is_stable_and_asks_for_the_last_object() -> None:
    found = ask(*chained(BASE, BASE, BASE))
    assert found["Who is the head of the firm of Ann?"].answers == ("Bob",)
    three = found["What is the town of the head of the firm of Ann?"]
    assert three.answers == ("Ulm",)
    assert three.hops == (("Ann", "firm"), ("Acme", "head"), ("Bob", "town"))
    assert {one.level for one in found.values()} == {"stable"}
    assert max(len(one.hops) for one in found.values()) == 3, "Ann, Acme, Bob, Cid and Wien would be four"


def test_the_first_hop_that_changed_decides_and_the_old_answer_is_that_of_the_old_way() -> None:
    later = BASE | {("Acme", "head"): "Dan", ("Dan", "town"): "Bonn", ("Bob", "town"): "Trier"}
    found = ask(*chained(BASE, later, later))
    two = found["What is the town of the head of Acme?"]
    assert (two.level, two.answers, two.outdated, two.changed) == ("evolved", ("Bonn",), ("Ulm",), "before_cutoff")
    assert found["What is the town of the head of the firm of Ann?"].outdated == ("Ulm",)
    found = ask(*chained(BASE, BASE, later))
    assert found["What is the town of the head of Acme?"].changed == "after_cutoff"


def test_all_outdated_answers_are_kept_and_the_last_change_names_the_interval() -> None:
    states = [BASE | {("Bob", "town"): town} for town in ("Ulm", "Bonn", "Kiel")]
    one = ask(*chained(*states))["What is the town of Bob?"]
    assert (one.answers, one.outdated, one.changed) == (("Kiel",), ("Ulm", "Bonn"), "after_cutoff")


def test_a_chain_that_changed_its_way_and_not_its_answer_is_not_asked() -> None:
    later = BASE | {("Acme", "head"): "Dan", ("Dan", "town"): "Ulm"}
    found, current = chained(BASE, BASE, later)
    made, counts = questions.questions(found, current, 3, False, {}, 0)
    assert "What is the town of the head of Acme?" not in {one.text for one in made}
    assert counts["left out: evolved chain with the same answer"] == 2


@pytest.mark.parametrize("time", [0, 1])
@pytest.mark.parametrize("heads", ["Dan", ("Bob", "Dan")], ids=["of no town", "two"])
def test_a_chain_that_led_nowhere_or_forked_at_an_earlier_time_is_not_asked(
    time: int, heads: str | tuple[str, ...]
) -> None:
    later = BASE | {("Acme", "head"): "Eve", ("Eve", "town"): "Bonn"}
    states = [BASE, BASE, later]
    assert "What is the town of the head of Acme?" in ask(*chained(*states))
    states[time] = BASE | {("Acme", "head"): heads}
    found, current = chained(*states)
    if heads != "Dan":  # a second statement that goes would take the level of the first hop
        found.levels.vstack(
            pl.DataFrame({"subject": ["Acme"], "relation": ["head"], "level": ["evolved"]}), in_place=True
        )
    made, counts = questions.questions(found, current, 2, False, {}, 0)
    assert "What is the town of the head of Acme?" not in {one.text for one in made}
    assert counts["left out: evolved chain led nowhere at an earlier time"] == 1


def test_a_chain_that_kept_one_of_its_answers_is_not_asked() -> None:
    before = BASE | {("Bob", "town"): ("Ulm", "Bonn")}
    later = before | {("Acme", "head"): "Dan", ("Dan", "town"): ("Ulm", "Kiel")}
    found, current = chained(before, before, later)
    made, counts = questions.questions(found, current, 2, False, {}, 0)
    assert "What is the town of the head of Acme?" not in {one.text for one in made}
    assert counts["left out: evolved chain with an answer that stayed"] == 1


def test_an_old_answer_that_would_be_taken_for_the_question_or_for_the_answer_is_not_asked_about() -> None:
    before = {("Ann", "firm"): "Acme", ("Acme", "head"): "Ann", ("Dan", "town"): "West Ulm"}
    later = {("Ann", "firm"): "Acme", ("Acme", "head"): "Bob", ("Dan", "town"): "Ulm"}
    found, current = chained(before, before, later)
    made, counts = questions.questions(found, current, 3, False, {}, 0)
    assert {one.text for one in made} == {"What is the firm of Ann?", "Who is the head of Acme?"}
    assert counts["left out: outdated answer in question"] == 1
    assert level_of(found, "Dan") is None, "West Ulm names Ulm"


def test_what_changed_its_name_is_asked_about_and_is_no_answer() -> None:
    states = [
        {("Ann", "firm"): "Acme", ("Acme", "head"): head, (head, "town"): "Ulm"} for head in ("Bob", "Bob", "Dan")
    ]
    snapshots = []
    for state, label in zip(states, ("Ulm", "Ulm", "Neu-Ulm"), strict=True):
        facts = [(f"{s}|{r}", s, r, o) for (s, r), o in state.items()]
        pages = {s: f"It is {label if o == 'Ulm' else o}." for (s, _), o in state.items()}
        snapshots.append(snapshot("2024-01-01", facts, pages, Ulm=label))
    made, counts = questions.questions(levels(snapshots), snapshots[-1], 3, False, {}, 0)
    assert "Who is the head of Acme?" in {one.text for one in made}
    assert "Ulm" not in {answer for one in made for answer in (*one.answers, *one.outdated)}
    assert counts["left out: answer that changed its name"] == 1


def test_a_chain_through_a_new_fact_is_uncharted_whatever_follows() -> None:
    later = BASE | {("Eve", "firm"): "Acme", ("Acme", "head"): "Dan", ("Dan", "town"): "Bonn"}
    found = ask(*chained(BASE, BASE, later))
    for text in ("What is the firm of Eve?", "Who is the head of the firm of Eve?"):
        assert (found[text].level, found[text].outdated, found[text].changed) == ("uncharted", (), "none")


def test_a_chain_goes_on_through_single_objects_only_and_ends_with_all() -> None:
    base = BASE | {("Ann", "firm"): ("Acme", "Bolt"), ("Bolt", "head"): "Cid", ("Bob", "town"): ("Ulm", "Bonn")}
    found = ask(*chained(base, base, base))
    assert found["What is the firm of Ann?"].answers == ("Acme", "Bolt")
    assert found["What is the town of the head of Acme?"].answers == ("Bonn", "Ulm")
    assert not any("firm of Ann" in text for text in found if text != "What is the firm of Ann?")


def test_a_middle_hop_with_a_second_object_that_no_page_names_is_not_single() -> None:
    facts = [("1", "Ann", "firm", "Acme"), ("2", "Ann", "firm", "Bolt"), ("3", "Acme", "head", "Bob")]
    pages = {"Ann": "She works at Acme.", "Acme": "Bob leads it."}
    snapshots = [snapshot(date, facts, pages) for date in DATES]
    found = ask(levels(snapshots), snapshots[-1])
    assert set(found) == {"What is the firm of Ann?", "Who is the head of Acme?"}


def test_every_hop_needs_a_page_that_names_it() -> None:
    facts = [("1", "Ann", "firm", "Acme"), ("3", "Acme", "head", "Bob")]
    snapshots = [snapshot(date, facts, {"Ann": "She works at Acme.", "Acme": "It is old."}) for date in DATES]
    assert set(ask(levels(snapshots), snapshots[-1])) == {"What is the firm of Ann?"}


def test_no_chain_comes_back_to_where_it_was() -> None:
    base = {("Ann", "mentor"): "Bob", ("Bob", "mentor"): "Ann"}
    assert set(ask(*chained(base, base, base))) == {"Who is the mentor of Ann?", "Who is the mentor of Bob?"}


def test_only_people_begin_where_that_is_asked_for() -> None:
    found = ask(*chained(BASE, BASE, BASE), humans=True)
    assert {one.subject for one in found.values()} == {"Ann", "Bob", "Cid"}


def test_hops_and_questions_are_limited_as_the_options_say() -> None:
    assert {len(one.hops) for one in ask(*chained(BASE, BASE, BASE), hops=1).values()} == {1}
    found = ask(*chained(BASE, BASE, BASE), stable=[2, 1, 0])
    assert Counter(len(one.hops) for one in found.values()) == {1: 2, 2: 1}


def test_names_of_two_entities_and_answers_in_questions_are_left_out() -> None:
    facts = [("1", "Ann", "firm", "Acme"), ("2", "Anne", "firm", "Bolt"), ("3", "Acme Works", "owner", "Acme")]
    pages = {"Ann": "At Acme.", "Anne": "At Bolt.", "Acme Works": "Of Acme."}
    snapshots = [snapshot(date, facts, pages, Anne="Ann") for date in DATES]
    made, counts = questions.questions(levels(snapshots), snapshots[-1], 1, False, {}, 0)
    assert made == []
    assert counts["left out: several entities of the subject's name"] == 2
    assert counts["left out: answer in question"] == 1


# ---------------------------------------------------------------- steps of the language model


def rewritten(reply: questions.Rewritten | None) -> tuple[list[questions.Asked], dict[str, float]]:
    found, current = chained(BASE, BASE, BASE)
    [one] = [a for a in ask(found, current).values() if a.text == "What is the town of the head of the firm of Ann?"]
    helper = Scripted({questions.REWRITE.name: lambda chain: reply})
    return questions.rewrite([one], found, current, helper)


def test_a_question_takes_the_language_models_words() -> None:
    [one], counts = rewritten(questions.Rewritten("In which town is  the head of Ann's firm?", "ulm"))
    assert one.text == "In which town is the head of Ann's firm?"
    assert counts == {"questions rewritten": 1}


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        (None, "unread"),
        (questions.Rewritten("In which town is the head of her firm?", "Ulm"), "subject not named"),
        (questions.Rewritten("Is the head of Ann's firm in Ulm?", "Ulm"), "answer named"),
        (questions.Rewritten("Where is Bob, the head of Ann's firm?", "Ulm"), "object between named"),
        (questions.Rewritten("Where is the head of Ann's firm?", "Bonn"), "other answer"),
    ],
)
def test_a_rewriting_that_breaks_a_rule_leaves_the_template(reply: questions.Rewritten | None, fault: str) -> None:
    [one], counts = rewritten(reply)
    assert one.text == "What is the town of the head of the firm of Ann?"
    assert counts == {f"rewriting kept the template: {fault}": 1}


def test_two_questions_do_not_become_one() -> None:
    found, current = chained(BASE, BASE, BASE)
    helper = Scripted({questions.REWRITE.name: lambda chain: questions.Rewritten("Where of Bob?", chain.answers[0])})
    mine = [one for one in ask(found, current, hops=1).values() if one.subject == "Bob"]
    texts = [one.text for one in questions.rewrite(mine, found, current, helper)[0]]
    assert len(texts) == 2
    assert texts.count("Where of Bob?") == 1


def test_pairs_are_neither_unsure_nor_asked_nor_told_nor_twice_and_no_more_than_wanted() -> None:
    replies = [
        questions.Written("What is the town of Bob?", "Ulm"),
        questions.Written(None, None),
        questions.Written("None", "None"),
        questions.Written("Does Bob live in Ulm?", "Ulm"),
        questions.Written("Where does Bob live?", "Ulm"),
        questions.Written("where does bob live", "Ulm"),
        questions.Written("Where does Cid live?", "Wien"),
    ]
    helper = Scripted({questions.PAIRS.name: lambda passage: replies})
    found, counts = questions.pairs([questions.Passage("Bob", "...", 6)], ["What is the town of Bob?"], helper)
    assert [(pair.question, pair.answer) for pair in found] == [("Where does Bob live?", "Ulm")]
    assert counts == {
        "pairs left out: answer in question": 1,
        "pairs left out: asked": 1,
        "pairs left out: none": 2,
        "pairs left out: written already": 1,
    }


def test_prompts_carry_what_their_step_is_given() -> None:
    chain = questions.Chain(2, ["(Ann, firm, Acme)", "(Acme, head, Bob)"], ["Bob"], "Who is the head ...?", "Ann")
    text = questions.REWRITE.prompt(chain)
    assert isinstance(text, str)
    assert all(part in text for part in ("2 hop", *chain.triples, chain.template))
    text = questions.PAIRS.prompt(questions.Passage("Ulm", "It lies on the Danube.", 6))
    assert isinstance(text, str)
    assert all(part in text for part in ("# Title\nUlm", "# Context\nIt lies", "6 hard questions", "# Response"))
