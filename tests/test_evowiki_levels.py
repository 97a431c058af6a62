"""What happened to a fact between three dates follows from its statements and from the sentences that name it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from evowiki.levels import Levels, find, fold, levels, naming_sentences
from evowiki_worlds import DATES, level_of, snapshot
from upkeep.building import leaks


def history(*objects: str | None, relation: str = "town", named: tuple[str, str, str] | None = None) -> Levels:
    """Ann's town at three times, and what her page says at each; by default just that."""
    told = named or tuple(f"Ann is in {object}." if object else "Ann is away." for object in objects)
    return levels(
        [
            snapshot(date, [("1", "Ann", relation, object)] if object else [("0", "Bob", "town", "Zoo")], {"Ann": text})
            for date, object, text in zip(DATES, objects, told, strict=True)
        ]
    )


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
