"""Facts at three dates become stable, evolved and uncharted questions whose answers are in the pages, and no others."""

from __future__ import annotations

import calendar
import functools
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest
import yaml

from conftest import DATA, ROOT, put_dataset, spec_of
from evowiki import legislators, popularity, questions, synthetic
from evowiki.facts import ENTITIES, FACTS, RELATIONS, Snapshot, Written
from evowiki.levels import Levels, find, fold, levels, naming_sentences
from upkeep.building import leaks, store, tokens
from upkeep.building.assistant import Scripted
from upkeep.building.build import build_dataset
from upkeep.building.names import Names, is_held_out
from upkeep.building.reading import Faults
from upkeep.building.store import validate
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError

LEGISLATORS = DATA / "legislators"
DATES = ("2021-09-01", "2024-01-01", "2024-05-01")


def catalog(
    folder: Path, name: str, options: dict[str, Any] | None = None, data: dict[str, str] | None = None
) -> Catalog:
    """A repository with one dataset, that of the suite with some options changed."""
    spec = spec_of(name)
    spec["options"] = spec["options"] | (options or {})
    put_dataset(folder, name, spec)
    (folder / "config").mkdir()
    (folder / "config" / "config.yaml").write_text(yaml.safe_dump({"data": data or {}}))
    return Catalog(folder)


def built(folder: Path, name: str, **how: Any) -> store.Dataset:
    build_dataset(catalog(folder, name, **how), name, folder / "out")
    validate(folder / "out")
    return store.load(folder / "out")


def asked(data: store.Dataset) -> pl.DataFrame:
    return data.probes.join(data.gold, on="probe_id")


@pytest.fixture(scope="module")
def mini(tmp_path_factory: pytest.TempPathFactory) -> store.Dataset:
    return built(tmp_path_factory.mktemp("mini"), "evowiki_mini")


@pytest.fixture(scope="module")
def congress(tmp_path_factory: pytest.TempPathFactory) -> store.Dataset:
    data = {"evowiki_legislators.snapshots": str(LEGISLATORS)}
    return built(tmp_path_factory.mktemp("congress"), "evowiki_legislators", data=data)


# ---------------------------------------------------------------- small fact bases, by hand

Facts = Iterable[tuple[str, str, str, str]]
"""(statement, subject, relation, object)."""


def snapshot(date: str, facts: Facts, pages: Mapping[str, str], people: Iterable[str] = (), **labels: str) -> Snapshot:
    """Entities are what facts name in capitals; label and page have the entity's name unless `labels` says another."""
    rows = list(facts)
    names = sorted({end for _, subject, _, object in rows for end in (subject, object) if end[0].isupper()})
    humans = set(people)
    return Snapshot(
        date,
        pl.DataFrame(rows, schema=FACTS, orient="row"),
        pl.DataFrame(
            [(name, labels.get(name, name), name, name in humans, None) for name in names],
            schema=ENTITIES,
            orient="row",
        ),
        pl.DataFrame(
            [(r, r, r in ("mentor", "head")) for r in sorted({r for _, _, r, _ in rows})],
            schema=RELATIONS,
            orient="row",
        ),
        Written(dict(pages)),
    )


def history(*objects: str | None, relation: str = "town", named: tuple[str, str, str] | None = None) -> Levels:
    """Ann's town at three times, and what her page says at each; by default just that."""
    told = named or tuple(f"Ann is in {object}." if object else "Ann is away." for object in objects)
    return levels(
        [
            snapshot(date, [("1", "Ann", relation, object)] if object else [("0", "Bob", "town", "Zoo")], {"Ann": text})
            for date, object, text in zip(DATES, objects, told, strict=True)
        ]
    )


def level_of(found: Levels, subject: str = "Ann", relation: str = "town") -> str | None:
    mine = found.levels.filter(pl.col("subject") == subject, pl.col("relation") == relation)["level"]
    return mine[0] if len(mine) else None


def ask(
    found: Levels, current: Snapshot, hops: int = 3, humans: bool = False, **most: list[int]
) -> dict[str, questions.Asked]:
    return {one.text: one for one in questions.questions(found, current, hops, humans, most, 0)[0]}


# ---------------------------------------------------------------- levels


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        (("Ulm", "Ulm", "Ulm"), "stable"),
        (("Ulm", "Ulm", "Bonn"), "evolved"),
        (("Ulm", "Bonn", "Bonn"), "evolved"),
        (("Ulm", "Bonn", "Kiel"), "evolved"),
        ((None, None, "Ulm"), "uncharted"),
        ((None, "Ulm", "Ulm"), None),
        (("Ulm", None, "Ulm"), None),
        (("Ulm", None, "Bonn"), None),
        (("Ulm", "Bonn", "Ulm"), None),
        (("Ulm", "Ulm", None), None),
    ],
)
def test_a_statements_level_follows_from_its_values_at_the_three_times(
    objects: tuple[str | None, ...], expected: str | None
) -> None:
    assert level_of(history(*objects)) == expected


@pytest.mark.parametrize(
    ("objects", "named", "expected"),
    [
        (("Ulm", "Ulm", "Ulm"), ("Ulm", "Ulm", "Ulm"), "stable"),
        (("Ulm", "Ulm", "Ulm"), ("Ulm", "-", "Ulm"), None),
        (("Ulm", "Ulm", "Ulm"), ("-", "Ulm", "Ulm"), None),
        (("Ulm", "Ulm", "Ulm"), ("Ulm", "Ulm", "-"), None),
        (("Ulm", "Ulm", "Bonn"), ("Ulm", "Ulm", "Bonn, once Ulm"), "evolved"),
        (("Ulm", "Ulm", "Bonn"), ("-", "Ulm", "Bonn"), None),
        (("Ulm", "Ulm", "Bonn"), ("Ulm", "-", "Bonn"), None),
        (("Ulm", "Ulm", "Bonn"), ("Ulm", "Ulm", "Ulm"), None),
        (("Ulm", "Ulm", "Bonn"), ("Ulm", "Ulm, soon Bonn", "Bonn"), None),
        (("Ulm", "Ulm", "Bonn"), ("Ulm, born in Bonn", "Ulm", "Bonn"), None),
        (("Ulm", "Bonn", "Bonn"), ("Ulm", "-", "Bonn"), None),
        (("Ulm", "Bonn", "Bonn"), ("Ulm and Bonn", "Bonn", "Bonn"), None),
        (("Ulm", "Bonn", "Kiel"), ("Ulm", "Bonn", "Kiel"), "evolved"),
        (("Ulm", "Bonn", "Kiel"), ("Ulm", "Bonn or Kiel", "Kiel"), None),
        (("Ulm", "Bonn", "Kiel"), ("Ulm, Bonn", "Bonn", "Kiel"), None),
        ((None, None, "Ulm"), ("-", "-", "Ulm"), "uncharted"),
        ((None, None, "Ulm"), ("-", "-", "-"), None),
        ((None, None, "Ulm"), ("-", "Ulm", "Ulm"), None),
        ((None, None, "Ulm"), ("Ulm", "-", "Ulm"), None),
    ],
)
def test_a_level_demands_that_the_pages_name_each_value_from_its_time_on_and_not_before(
    objects: tuple[str | None, ...], named: tuple[str, str, str], expected: str | None
) -> None:
    assert level_of(history(*objects, named=named)) == expected


def test_the_objects_page_supports_a_fact_by_naming_the_subject() -> None:
    facts = [("1", "Ann", "town", "Ulm")]
    pages = {"Ann": "She has a page.", "Ulm": "It has 120,000 people. Among them is Ann. It lies on the Danube."}
    found = levels([snapshot(date, facts, pages) for date in DATES])
    assert level_of(found) == "stable"
    assert found.support.rows(named=True) == [
        {"subject": "Ann", "relation": "town", "object": "Ulm", "title": "Ulm", "sentence": "Among them is Ann."}
    ]


def test_a_literal_is_its_own_label() -> None:
    found = levels(
        [snapshot(date, [("1", "Ann", "born", "9 May 1999")], {"Ann": "Born 9 May 1999."}) for date in DATES]
    )
    assert level_of(found, relation="born") == "stable"


def several(*per_time: Mapping[str, str], page: str = "Ulm, Bonn, Kiel, Trier.") -> Levels:
    return levels(
        [
            snapshot(date, [(id, "Ann", "town", town) for id, town in sorted(now.items())], {"Ann": page})
            for date, now in zip(DATES, per_time, strict=True)
        ]
    )


def test_of_several_objects_those_stay_that_the_page_names() -> None:
    now = {"1": "Ulm", "2": "Bonn", "3": "Wien"}
    found = several(now, now, now)
    assert level_of(found) == "stable"
    [row] = found.facts["current"].rows(named=True)
    assert row["objects"] == ["Bonn", "Ulm"]
    assert not row["single"], "the fact base has three, however many are named"


def test_a_fact_whose_statements_differ_in_level_has_none() -> None:
    pages = [{"Ann": "Ulm."}, {"Ann": "Ulm."}, {"Ann": "Ulm and Bonn."}]
    towns = [["Ulm"], ["Ulm"], ["Ulm", "Bonn"]]
    found = levels(
        [
            snapshot(date, [(town, "Ann", "town", town) for town in there], page)
            for date, there, page in zip(DATES, towns, pages, strict=True)
        ]
    )
    assert level_of(found) is None
    assert found.statistics["left out: fact of several levels or with a statement gone"] == 1


def test_a_fact_that_lost_a_statement_has_no_level() -> None:
    both = {"1": "Ulm", "2": "Bonn"}
    assert level_of(several(both, both, both)) == "stable"
    assert level_of(several(both, both, {"1": "Ulm"})) is None


def test_a_statement_in_the_place_of_another_counts_as_the_same_where_that_is_asked_for() -> None:
    snapshots = [
        snapshot(date, [(id, "Ann", "town", town)], {"Ann": f"In {town}."})
        for date, id, town in zip(DATES, "112", ("Ulm", "Ulm", "Bonn"), strict=True)
    ]
    assert level_of(levels(snapshots)) is None
    assert level_of(levels(snapshots, replaced=True)) == "evolved"


def test_replaced_statements_are_told_apart_where_a_fact_ever_has_two_at_once() -> None:
    towns = ({"1": "Ulm"}, {"1": "Ulm"}, {"1": "Ulm", "2": "Bonn"})
    snapshots = [
        snapshot(
            date, [(id, "Ann", "town", town) for id, town in now.items()], {"Ann": f"In {', '.join(now.values())}."}
        )
        for date, now in zip(DATES, towns, strict=True)
    ]
    assert level_of(levels(snapshots, replaced=True)) is None, "one is stable and one uncharted"


# ---------------------------------------------------------------- mentions


@pytest.mark.parametrize(
    ("text", "label", "named"),
    [
        ("Ann lives in Ulm.", "Ulm", True),
        ("Ann lives in Ulmer Weg.", "Ulm", False),
        ("She is a Politician.", "politician", True),
        ("Kulm, Ulm-Wiblingen", "Ulm", True),
        ("Kulm and Ulmen", "Ulm", False),
        ("aaaa aaa", "aaa", True),
        ("İstanbul, then Ulm", "Ulm", True),
        ("in 19991", "1999", False),
        ("by St. Louis today", "St. Louis", True),
        ('She sang "(What?)" there.', "(What?)", True),
        ("", "Ulm", False),
    ],
)
def test_labels_are_found_as_whole_words(text: str, label: str, named: bool) -> None:
    assert (find(fold(text), fold(label)) >= 0) is named
    sentences = naming_sentences(text, [label])
    assert (label in sentences) is named
    assert all(leaks.key(label) in leaks.key(sentence) for sentence in sentences.values())


@pytest.mark.parametrize(
    ("text", "label", "sentence"),
    [
        ("One. Ann is in Ulm. Two.", "Ulm", "Ann is in Ulm."),
        ("One. Ann met J. F. Bach, Jr. and Dr. Ulm there. Two.", "Ulm", "Ann met J. F. Bach, Jr. and Dr. Ulm there."),
        ("Life\nAnn is in Ulm\nDeath", "Ulm", "Ann is in Ulm"),
        ("Was it Ulm? Yes!", "Ulm", "Was it Ulm?"),
        ('He said "to Ulm." Then he left.', "Ulm", 'He said "to Ulm."'),
        ("It cost 1.5 marks in Ulm. Ée.", "Ulm", "It cost 1.5 marks in Ulm."),
        ("Ulm", "Ulm", "Ulm"),
        ("A b. Go to Foo. Bar today. C d.", "Foo. Bar", "Go to Foo. Bar today."),
    ],
)
def test_the_sentence_with_the_mention_is_the_golden_context(text: str, label: str, sentence: str) -> None:
    assert naming_sentences(text, [label])[label] == sentence


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


# ---------------------------------------------------------------- the built dataset


@pytest.mark.parametrize(
    ("views", "group"),
    [
        (None, "unknown"),
        (0, "0_1"),
        (99, "0_1"),
        (100, "2"),
        (9999, "3"),
        (10_000, "4"),
        (10**5, "5_6"),
        (10**9, "5_6"),
    ],
)
def test_popularity_is_the_magnitude_of_the_views(views: int | None, group: str) -> None:
    assert popularity(views) == f"popularity_{group}"


@pytest.mark.parametrize("name", ["mini", pytest.param("congress", marks=pytest.mark.data)])
def test_evidence_holds_the_golden_sentences_and_these_an_answer(name: str, request: pytest.FixtureRequest) -> None:
    data: store.Dataset = request.getfixturevalue(name)
    text = dict(data.documents.select("document_id", "text").iter_rows())
    for row in asked(data).iter_rows(named=True):
        there = leaks.key(" ".join(text[id] for id in row["evidence"]))
        assert all(leaks.key(sentence) in there for sentence in row["context"]), row
        assert leaks.tells(" ".join(row["context"]), row["answers"]), row
        assert len(row["context"]) >= int(row["slice_hop_number"])
        assert (row["slice_level"] == "evolved") == bool(row["outdated"]) == (row["slice_changed"] != "none")


def test_the_mini_dataset_is_small_varied_and_of_all_slices(mini: store.Dataset) -> None:
    rows = asked(mini)
    assert 150 <= len(rows) < 300
    assert len(mini.documents) <= 60
    assert mini.documents["tokens"].max() <= 128  # type: ignore[operator]
    for name, values in {
        "level": {"stable", "evolved", "uncharted"},
        "hops": {"single_hop", "multi_hop"},
        "hop_number": {"1", "2", "3"},
        "changed": {"before_cutoff", "after_cutoff", "none"},
        "popularity": {f"popularity_{group}" for group in ("0_1", "2", "3", "4", "5_6")},
    }.items():
        assert set(rows[f"slice_{name}"]) == values
    assert any(len(answers) > 1 for answers in rows["answers"])
    first = Counter(answers[0] for answers in rows["answers"])
    assert first.most_common(1)[0][1] < 0.2 * len(rows)
    assert len(mini.pairs) > 100


def test_the_mini_datasets_old_state_is_wrong_for_what_evolved_and_right_for_what_did_not(mini: store.Dataset) -> None:
    rng = Random("evowiki 0")
    states = synthetic.make(rng, Names(rng, held_out=True), synthetic.Sizes()).states
    rows = {row["question"]: row for row in asked(mini).filter(slice_hop_number="1").iter_rows(named=True)}
    for time, state in enumerate(states):
        known = {pair.question: pair.answer for pair in synthetic.known(state)}
        for question, row in rows.items():
            if row["slice_level"] == "uncharted":
                assert (question in known) == (time == 2)
                continue
            right = leaks.tells(known[question], row["answers"])
            turn = {"none": 0, "before_cutoff": 1, "after_cutoff": 2}[row["slice_changed"]]
            assert right == (time >= turn), (question, time)
            assert right or leaks.tells(known[question], row["outdated"])


def test_the_worlds_generator_draws_from_either_half_of_the_names() -> None:
    rng = Random(7)
    made = synthetic.make(rng, Names(rng, held_out=False), synthetic.Sizes(people=6, newcomers=2, places=3))
    assert len(made.kinds) == 6 + 2 + 3 + 3
    towns = [name for name, kind in made.kinds.items() if kind == "towns"]
    assert not any(is_held_out(town) for town in towns)


def test_the_small_worlds_questions_can_be_rewritten(tmp_path: Path) -> None:
    data = built(tmp_path, "evowiki_mini", options={"rewrite": True, "pairs": False})
    assert all(question.startswith("Please name the ") for question in data.probes["question"])
    assert not data.pairs


def test_the_same_options_give_the_same_bytes_and_another_seed_another_world(
    mini: store.Dataset, tmp_path: Path
) -> None:
    again = built(tmp_path / "a", "evowiki_mini")
    assert again.card.content == mini.card.content
    assert built(tmp_path / "b", "evowiki_mini", options={"seed": 1}).card.content != mini.card.content


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"hops": 4}, "wrong number of hops"),
        ({"hops": 0}, "wrong number of hops"),
        ({"cutoff": "2020-01-01"}, "dates out of order"),
        ({"most": {"stable": [1]}}, "wrong limits"),
        ({"most": {"fresh": [1, 1, 1]}}, "wrong limits"),
        ({"most": {"stable": [0, 0, 0], "evolved": [0, 0, 0], "uncharted": [0, 0, 0]}}, "no question comes out"),
        ({"source": "wikidata"}, "no assistant"),
        ({"source": "wikidata", "pairs": False}, "is built from files of your own"),
        ({"colour": "red"}, "unknown field"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], problem: str, tmp_path: Path) -> None:
    with pytest.raises(UpkeepError, match=problem):
        built(tmp_path, "evowiki_mini", options=options)


# ---------------------------------------------------------------- Wikidata and Wikipedia, through the builder


def wikidata_files(folder: Path) -> dict[str, str]:
    """Three dumps in the official form, three Wikipedias in JSON lines, views, and pages to distract."""

    def item(id: str, label: str, claims: Mapping[str, str]) -> dict[str, Any]:
        def claim(relation: str, object: str) -> dict[str, Any]:
            value = {"value": {"entity-type": "item", "id": object}, "type": "wikibase-entityid"}
            snak = {"snaktype": "value", "property": relation, "datavalue": value}
            return {"id": f"{id}${relation}", "rank": "normal", "type": "statement", "mainsnak": snak}

        return {
            "id": id,
            "type": "item",
            "labels": {"en": {"language": "en", "value": label}},
            "claims": {relation: [claim(relation, object)] for relation, object in claims.items()},
            "sitelinks": {"enwiki": {"site": "enwiki", "title": label}},
        }

    data: dict[str, str] = {}
    employers = {"init": ("Q10", "Acme"), "cutoff": ("Q10", "Acme"), "current": ("Q11", "Bolt")}
    for time, (firm, name) in employers.items():
        person = {"P31": "Q5"}
        items = [
            item("Q1", "Ann Abel", person | {"P108": firm, "P26": "Q2"}),
            item("Q2", "Bob Abel", person | {"P26": "Q1"}),
            item("Q10", "Acme", {}),
            item("Q11", "Bolt", {}),
        ]
        dump = folder / f"wikidata-{time}.json"
        dump.write_text("[\n" + ",\n".join(json.dumps(one) for one in items) + "\n]\n")
        pages = {"Ann Abel": f"Ann works at {name}. She married Bob Abel.", "Bob Abel": "Bob is married to Ann Abel."}
        wiki = folder / f"wikipedia-{time}.jsonl"
        wiki.write_text("".join(json.dumps({"title": t, "text": x}) + "\n" for t, x in pages.items()))
        data |= {f"evowiki.wikidata_{time}": str(dump), f"evowiki.wikipedia_{time}": str(wiki)}
    others = folder / "others.jsonl"
    others.write_text("".join(json.dumps({"title": f"Page {n}", "text": "Nothing."}) + "\n" for n in range(9)))
    (folder / "views.csv").write_text("title,views\nAnn_Abel,1234\n")
    return data | {"evowiki.distractors": str(others), "evowiki.views": str(folder / "views.csv")}


def test_dumps_of_wikidata_and_wikipedia_become_questions(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    data = built(tmp_path / "r", "evowiki", options={"distractors": 3}, data=wikidata_files(tmp_path / "data"))
    rows = {row["question"]: row for row in asked(data).iter_rows(named=True)}
    assert set(rows) == {
        "What is the employer of Ann Abel?",
        "Who is the spouse of Ann Abel?",
        "Who is the spouse of Bob Abel?",
        "What is the employer of the spouse of Bob Abel?",
    }
    job = rows["What is the employer of the spouse of Bob Abel?"]
    assert (job["answers"], job["outdated"], job["slice_level"]) == (["Bolt"], ["Acme"], "evolved")
    assert job["context"] == ["Bob is married to Ann Abel.", "Ann works at Bolt."]
    assert job["slice_popularity"] == "popularity_unknown"
    assert rows["What is the employer of Ann Abel?"]["slice_popularity"] == "popularity_3"
    assert data.documents["text"][0] == "Ann Abel\nAnn works at Bolt. She married Bob Abel."
    assert len(data.documents) == 2 + 3
    assert data.card.statistics["pages added"] == 3


def test_the_large_corpus_is_the_whole_and_more_pages_beneath_the_same_questions(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    data = wikidata_files(tmp_path / "data")
    whole = built(tmp_path / "whole", "evowiki", data=data)
    large = built(tmp_path / "large", "evowiki_large", options={"distractors": 5}, data=data)
    later = ["probe_id", "position"]  # all is asked at the end, which comes later
    assert asked(large).drop(later).equals(asked(whole).drop(later))
    columns = ["document_id", "text"]
    assert large.documents.select(columns).head(len(whole.documents)).equals(whole.documents.select(columns))
    assert len(large.documents) == len(whole.documents) + 5
    one, other = (spec_of(name)["options"] for name in ("evowiki", "evowiki_large"))
    assert other == one | {"distractors": 370_000}


# ---------------------------------------------------------------- legislators


@pytest.mark.data
def test_the_congress_gives_enough_questions_of_every_level_and_number_of_hops(congress: store.Dataset) -> None:
    rows = asked(congress)
    assert len(rows) >= 2000
    counts = rows.group_by("slice_level", "slice_hop_number").len()
    assert len(counts) == 9
    assert counts["len"].min() >= 100  # type: ignore[operator]
    assert congress.documents["tokens"].max() <= 256  # type: ignore[operator]


@functools.cache
def records(date: str) -> Records:
    return Records(date)


class Records:
    """The raw files of a date, read and understood apart from the builder: who is what, relation by relation."""

    def __init__(self, date: str) -> None:
        def load(kind: str) -> Any:
            text = (LEGISLATORS / f"{kind}-{date}.yaml").read_text(encoding="utf-8")
            return yaml.load(text, Loader=yaml.CSafeLoader)

        self.date = date
        self.people = {one["id"]["bioguide"]: one for one in load("legislators")}
        self.members: dict[str, list[dict[str, Any]]] = load("committee-membership")
        self.bodies: dict[str, tuple[str, str | None]] = {}
        """Code -> name and parent's code."""
        for one in load("committees"):
            self.bodies[one["thomas_id"]] = (one["name"], None)
            for part in one.get("subcommittees", []):
                name = f"Subcommittee on {part['name']} of the {one['name']}"
                self.bodies[one["thomas_id"] + part["thomas_id"]] = (name, one["thomas_id"])

    def term(self, who: str) -> dict[str, Any]:
        return self.people[who]["terms"][-1]  # type: ignore[no-any-return]

    def name(self, node: str) -> str:
        """What an object is called at this date."""
        kind, _, rest = node.partition(":")
        if kind == "person":
            names = self.people[rest]["name"]
            return names.get("official_full") or f"{names['first']} {names['last']}"
        if kind == "district":
            state, number = rest.split("-")
            place, n = PLACES[state], int(number)
            ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
            whose = f"{place}'" if place in ("Virgin Islands", "Northern Mariana Islands") else f"{place}'s"
            return f"{whose} {f'{n}{ending}' if n else 'at-large'} congressional district"
        if kind == "body":
            return self.bodies[rest][0]
        return PLACES[rest] if kind == "state" else rest

    def subject(self, label: str) -> str | None:
        """The thing of a question's words; None where it is not there at this date."""
        if label.startswith("the post of "):
            return self._post(label.removeprefix("the post of "))
        for code in PLACES:
            if PLACES[code] == label:
                return f"state:{code}"
        if label.endswith(" congressional district"):
            seats = {f"district:{t['state']}-{t['district']}" for t in map(self.term, self.people) if "district" in t}
            return next((seat for seat in seats if self.name(seat) == label), None)
        for who in self.people:
            if self.name(f"person:{who}") == label:
                return f"person:{who}"
        return next((f"body:{code}" for code, (name, _) in self.bodies.items() if name == label), None)

    def step(self, node: str, relation: str) -> list[str]:
        """Where a relation leads from a thing at this date."""
        kind, _, rest = node.partition(":")
        if kind == "person" and rest in self.people:
            return self._of_person(rest, relation)
        if kind == "post" and relation == "holder":
            return self._holders(rest)
        if kind == "body" and relation == "parent committee" and rest in self.bodies and self.bodies[rest][1]:
            return [f"body:{self.bodies[rest][1]}"]
        if kind == "state" and relation in ("senior senator", "junior senator"):
            rank = relation.split()[0]
            mine = [w for w in self.people if (self.term(w)["state"], self.term(w).get("state_rank")) == (rest, rank)]
            return [f"person:{who}" for who in mine if self.term(who)["type"] == "sen"]
        if kind == "district":
            state, number = rest.split("-")
            mine = [
                w for w in self.people if (self.term(w)["state"], str(self.term(w).get("district"))) == (state, number)
            ]
            return {"representative": [f"person:{w}" for w in mine], "state": [f"state:{state}"] if mine else []}[
                relation
            ]
        return []

    def _of_person(self, who: str, relation: str) -> list[str]:
        term = self.term(who)
        if relation == "party":
            written = {"Democrat": "Democratic Party", "Republican": "Republican Party"}
            return [f"party:{written.get(term['party'], term['party'])}"]
        if relation == "state":
            return [f"state:{term['state']}"]
        if relation == "district":
            return [f"district:{term['state']}-{term['district']}"] if term["type"] == "rep" else []
        if relation == "office address":
            return [f"office:{term['office']}"] if term.get("office") else []
        if relation == "rank among the state's two senators":
            return [f"rank:{term['state_rank']}"] if term["type"] == "sen" else []
        if relation == "date of birth":
            year, month, day = self.people[who]["bio"]["birthday"].split("-")
            return [f"day:{MONTHS[int(month)]} {int(day)}, {year}"]
        if relation == "full committee, or one of the full committees,":
            sits = [code for code, seats in self.members.items() if any(s["bioguide"] == who for s in seats)]
            return [f"body:{code}" for code in sits if code in self.bodies and self.bodies[code][1] is None]
        return []

    def _post(self, words: str) -> str:
        """A post in a committee by title and code. A committee is the same under another name; the number of a
        subcommittee is used again for others, so its name belongs to it."""
        for title in TITLES:
            if words.startswith(f"{title} of the "):
                for code, (body, parent) in self.bodies.items():
                    if body == words.removeprefix(f"{title} of the "):
                        return f"post:{title}|{code}|{body.partition(' of the ')[0] if parent else ''}"
        return f"post:{words}"

    def _holders(self, post: str) -> list[str]:
        if "|" in post:
            title, code, part = post.split("|")
            if code not in self.bodies or (part and not self.bodies[code][0].startswith(f"{part} of the ")):
                return []
            seats = self.members.get(code, [])
            return [f"person:{s['bioguide']}" for s in seats if s.get("title", "").startswith(TITLES[title])]
        return [
            f"person:{who}"
            for who, person in self.people.items()
            for role in person.get("leadership_roles", [])
            if role["title"] == post and role["start"] <= self.date < role.get("end", "9999")
        ]

    def follow(self, start: str, relations: list[str]) -> list[str] | None:
        """Where a chain leads; None where it leads nowhere, or forks before its end."""
        ends = [start]
        for relation in relations:
            if len(ends) != 1:
                return None
            ends = sorted(set(self.step(ends[0], relation)))
        return ends or None


PLACES = dict(
    pair.split("=")
    for pair in """AL=Alabama|AK=Alaska|AS=American Samoa|AZ=Arizona|AR=Arkansas|CA=California|CO=Colorado|
CT=Connecticut|DE=Delaware|DC=District of Columbia|FL=Florida|GA=Georgia|GU=Guam|HI=Hawaii|ID=Idaho|IL=Illinois|
IN=Indiana|IA=Iowa|KS=Kansas|KY=Kentucky|LA=Louisiana|ME=Maine|MD=Maryland|MA=Massachusetts|MI=Michigan|
MN=Minnesota|MS=Mississippi|MO=Missouri|MT=Montana|NE=Nebraska|NV=Nevada|NH=New Hampshire|NJ=New Jersey|
NM=New Mexico|NY=New York|NC=North Carolina|ND=North Dakota|MP=Northern Mariana Islands|OH=Ohio|
OK=Oklahoma|OR=Oregon|PA=Pennsylvania|PR=Puerto Rico|RI=Rhode Island|SC=South Carolina|SD=South Dakota|
TN=Tennessee|TX=Texas|UT=Utah|VT=Vermont|VI=Virgin Islands|VA=Virginia|WA=Washington|WV=West Virginia|
WI=Wisconsin|WY=Wyoming""".replace("\n", "").split("|")
)
TITLES = {"chair": "Chair", "vice chair": "Vice", "ranking member": "Ranking", "co-chair": "Cochair"}
MONTHS = list(calendar.month_name)
RELATION = (
    "party|state|district|office address|rank among the state's two senators|date of birth|"
    "full committee, or one of the full committees,|parent committee|senior senator|junior senator|representative|"
    "holder"
)


def derive(question: str, times: list[Records]) -> dict[str, Any]:
    """Answer, level and history of a question from the raw records alone."""
    match = re.fullmatch(rf"(?:What|Who) is ((?:the (?:{RELATION}) of )+)(.+)\?", question)
    assert match is not None, question
    relations = re.findall(rf"the ({RELATION}) of ", match[1])[::-1]
    # A person is the same under a new name, so the present identifier is followed at all times.
    start = times[-1].subject(match[2])
    assert start is not None, question
    ways = [[then.follow(start, relations[:n]) for n in range(1, len(relations) + 1)] for then in times]
    ends = [way[-1] for way in ways]
    now = ends[-1]
    assert now is not None, question
    names = [{then.name(end) for end in there or ()} for then, there in zip(times, ends, strict=True)]
    turn = next((n for n in range(len(relations)) if not ways[0][n] == ways[1][n] == ways[2][n]), None)
    if turn is None:
        level = "stable"
    elif ways[0][turn] is None and ways[1][turn] is None:
        level = "uncharted"
    else:
        assert None not in ends and not set(ends[0] or ()) & set(now), question
        level = "evolved"
    changed = "none" if level != "evolved" else "before_cutoff" if ends[1] == now else "after_cutoff"
    return {"answers": names[2], "outdated": (names[0] | names[1]) - names[2], "level": level, "changed": changed}


@pytest.mark.data
def test_a_program_of_its_own_derives_the_same_answers_from_the_raw_files(congress: store.Dataset) -> None:
    options = spec_of("evowiki_legislators")["options"]
    times = [records(options[time]) for time in ("init", "cutoff", "current")]
    rows = asked(congress)
    rng = Random("two hundred")
    drawn: list[dict[str, Any]] = []
    for _, group in sorted(rows.group_by("slice_level", "slice_hop_number", maintain_order=True)):
        drawn += rng.sample(group.rows(named=True), 23)
    assert len(drawn) >= 200
    for row in drawn:
        found = derive(row["question"], times)
        assert found == {
            "answers": set(row["answers"]),
            "outdated": set(row["outdated"]),
            "level": row["slice_level"],
            "changed": row["slice_changed"],
        }, row["question"]


@pytest.mark.data
def test_the_records_give_every_post_and_seat_and_no_more(congress: store.Dataset) -> None:
    date = spec_of("evowiki_legislators")["options"]["current"]
    mine, facts = records(date), legislators.read(LEGISLATORS, date, Faults({}, Path("d"))).facts
    seats = [seat for code, there in mine.members.items() if code in mine.bodies for seat in there]
    titled = [seat for seat in seats if seat.get("title", "").startswith(tuple(TITLES.values()))]
    roles = [
        role
        for person in mine.people.values()
        for role in person.get("leadership_roles", [])
        if role["start"] <= date < role.get("end", "9999")
    ]
    assert (facts["relation"] == "holder").sum() == len(titled) + len(roles)
    whole = {(s["bioguide"], code) for code, there in mine.members.items() for s in there if code in mine.bodies}
    whole = {(who, code) for who, code in whole if mine.bodies[code][1] is None}
    assert (facts["relation"] == "committee").sum() == len(whole)
    assert (facts["relation"] == "state").sum() == len(mine.people) + len(
        set(facts.filter(relation="representative")["subject"])
    )
    assert facts["statement"].n_unique() == len(facts)


def legislator_files(folder: Path, date: str, people: str, seats: str = "{}") -> None:
    (folder / f"legislators-{date}.yaml").write_text(people)
    (folder / f"committees-{date}.yaml").write_text("[]")
    (folder / f"committee-membership-{date}.yaml").write_text(seats)


PERSON = """- id: {bioguide: A000001}
  name: {first: Ann, last: Abel}
  terms: [{type: rep, start: '2021-01-03', end: '2023-01-03', state: VI, district: 0, party: Independent}]
"""


def test_a_person_without_a_full_name_is_called_by_first_and_last(tmp_path: Path) -> None:
    legislator_files(tmp_path, "2022-01-01", PERSON)
    base = legislators.read(tmp_path, "2022-01-01", Faults({}, Path("d")))
    [(_, text)] = base.pages.read(["Ann Abel"])
    assert text.startswith("Ann Abel is an American politician from")
    assert "Ann Abel sits as an Independent." in text
    assert "Virgin Islands' at-large congressional district" in text
    assert "born" not in base.facts["relation"]


def test_a_post_is_held_from_its_first_day_to_the_one_before_its_last(tmp_path: Path) -> None:
    role = "  leadership_roles: [{title: Whip, start: '2022-01-01', end: '2022-02-01'}]\n"
    for date, holders in {"2021-12-31": 0, "2022-01-01": 1, "2022-01-31": 1, "2022-02-01": 0}.items():
        legislator_files(tmp_path, date, PERSON + role)
        facts = legislators.read(tmp_path, date, Faults({}, Path("d"))).facts
        assert (facts["relation"] == "holder").sum() == holders, date


@pytest.mark.parametrize(
    ("people", "seats", "problem", "where"),
    [
        (PERSON + "- id: [\n", "{}", "not readable as YAML", "legislators-2022-01-01.yaml:"),
        (PERSON + "- name: {first: Bob, last: Bell}\n", "{}", "not a record", "item 2"),
        (PERSON + PERSON, "{}", "id given before", "item 2"),
        (PERSON, "HSAG: [{name: Ann}]", "Object missing required field", "committee-membership-2022-01-01.yaml"),
        ("- just words\n", "{}", "Expected `object`", "legislators-2022-01-01.yaml"),
    ],
)
def test_faults_of_the_records_are_named_by_file_and_place(
    tmp_path: Path, people: str, seats: str, problem: str, where: str
) -> None:
    legislator_files(tmp_path, "2022-01-01", people, seats)
    with pytest.raises(UpkeepError, match=problem) as caught:
        legislators.read(tmp_path, "2022-01-01", Faults({}, Path("d")))
    assert where in str(caught.value)


def test_a_file_in_another_encoding_is_refused_by_name(tmp_path: Path) -> None:
    legislator_files(tmp_path, "2022-01-01", PERSON)
    (tmp_path / "legislators-2022-01-01.yaml").write_bytes(PERSON.replace("Ann", "Zoé").encode("latin-1"))
    with pytest.raises(UpkeepError, match="not UTF-8"):
        legislators.read(tmp_path, "2022-01-01", Faults({}, Path("d")))


def test_a_missing_date_is_refused_with_those_that_are_there(tmp_path: Path) -> None:
    legislator_files(tmp_path, "2022-01-01", PERSON)
    with pytest.raises(UpkeepError, match="2022-01-01"):
        legislators.read(tmp_path, "2023-01-01", Faults({}, Path("d")))


def test_broken_records_are_skipped_and_counted_where_the_dataset_says_so(tmp_path: Path) -> None:
    legislator_files(tmp_path, "2022-01-01", "- {id: {bioguide: X}}\n" + PERSON + PERSON)
    faults = Faults({"broken_record": "skip", "duplicate_id": "skip"}, Path("d"))
    base = legislators.read(tmp_path, "2022-01-01", faults)
    assert faults.counts == {"broken_record": 1, "duplicate_id": 1}
    assert base.entities.filter("human")["label"].to_list() == ["Ann Abel"]


HOUSE = """- id: {{bioguide: A000001, wikipedia: Ann_Abel (politician)}}
  name: {{first: Ann, last: Abel}}
  terms: [{{type: rep, start: '2021-01-03', end: '2027-01-03', state: OH, district: 1, party: {party}}}]
- id: {{bioguide: B000002, wikipedia: Bob Bell}}
  name: {{first: Bob, last: Bell}}
  terms: [{{type: rep, start: '2021-01-03', end: '2027-01-03', state: OH, district: 2, party: Democrat}}]
- id: {{bioguide: C000003}}
  name: {{first: Cid, last: Cole}}
  terms: [{{type: rep, start: '2021-01-03', end: '2027-01-03', state: OH, district: 3, party: Democrat}}]
"""


def of_a_house(folder: Path, **more: str) -> store.Dataset:
    """Three persons of whom one changes the party, with whatever else the user gives."""
    times = {"init": "2021-09-01", "cutoff": "2024-01-01", "current": "2024-05-01"}
    for date, party in zip(times.values(), ("Democrat", "Democrat", "Republican"), strict=True):
        legislator_files(folder, date, HOUSE.format(party=party))
    data = {"evowiki_legislators.snapshots": str(folder)} | more
    return built(folder / "r", "evowiki_legislators", options={**times, "hops": 2, "most": {}}, data=data)


def test_views_of_legislators_pages_give_their_questions_popularity_and_others_none(tmp_path: Path) -> None:
    (tmp_path / "views.csv").write_text(
        "title,views\nAnn_Abel_(politician),900\nAnn Abel (politician),200\nBob_Bell,7\nOhio,50000\nCid Cole,3\n"
    )
    data = of_a_house(tmp_path, **{"evowiki_legislators.views": str(tmp_path / "views.csv")})
    groups = {"Ann Abel": "3", "Bob Bell": "0_1", "Cid Cole": "unknown"}  # no record says which page is Cid Cole's
    for row in asked(data).iter_rows(named=True):
        first = row["question"].removesuffix("?").rpartition(" of ")[2]
        assert row["slice_popularity"] == f"popularity_{groups.get(first, 'unknown')}", row["question"]
    assert data.card.slices["popularity"].keys() == {"popularity_0_1", "popularity_3", "popularity_unknown"}
    assert data.card.statistics["popularity_mean: evolved"] == 1100
    assert 7 <= data.card.statistics["popularity_mean: stable"] <= 1100
    assert "views.csv" in data.card.inputs


def test_without_views_legislators_have_no_popularity_and_the_same_questions(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "views.csv").write_text("title,views\nBob Bell,7\n")
    without = of_a_house(tmp_path / "one")
    viewed = of_a_house(tmp_path / "two", **{"evowiki_legislators.views": str(tmp_path / "views.csv")})
    assert "popularity" not in without.card.slices
    assert not [name for name in without.card.statistics if name.startswith("popularity")]
    assert viewed.gold.drop("slice_popularity").equals(without.gold)
    assert viewed.probes.equals(without.probes) and viewed.documents.equals(without.documents)


def test_long_pages_are_split_and_the_evidence_is_the_piece_with_the_sentence(
    mini: store.Dataset, tmp_path: Path
) -> None:
    data = built(tmp_path, "evowiki_mini", options={"chunk_tokens": 16, "pairs": False})
    assert len(data.documents) > len(mini.documents)
    assert data.documents["tokens"].max() <= 16  # type: ignore[operator]
    text = dict(data.documents.select("document_id", "text").iter_rows())
    for row in asked(data).iter_rows(named=True):
        there = leaks.key(" ".join(text[id] for id in row["evidence"]))
        assert all(leaks.key(sentence) in there for sentence in row["context"])
    assert tokens.load().count([data.documents["text"][0]])[0] <= 16


def test_neither_ids_nor_their_order_tell_the_level(tmp_path: Path) -> None:
    catalog = Catalog(ROOT)
    build_dataset(catalog, "evowiki_mini", tmp_path / "out")
    levels = store.load(tmp_path / "out").gold["slice_level"].to_list()
    half = levels[: len(levels) // 2]
    assert all(0.25 < half.count(level) / levels.count(level) < 0.75 for level in set(levels))
