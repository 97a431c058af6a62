"""OAKS-BABI: the world keeps its own rules, and what cannot be built of its prose and options is refused."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from babi_reader import built
from oaks_babi import candidates
from oaks_babi.forms import number_forms
from oaks_babi.log import Log
from oaks_babi.templates import TEMPLATES
from oaks_babi.timelines import UNKNOWN, Change
from upkeep.building import prose, synthetic, tokens
from upkeep.errors import UpkeepError

# ---------------------------------------------------------------- the world and the log


def test_there_are_29_templates_three_fourteen_six_and_six() -> None:
    assert Counter(t.type for t in TEMPLATES) == {"tracking": 3, "counting": 14, "bridge": 6, "comparison": 6}
    assert len({t.text for t in TEMPLATES}) == 29


@pytest.mark.parametrize("group", synthetic.Group)
def test_a_fact_is_read_from_its_sentence_with_every_verb_of_its_group(group: synthetic.Group) -> None:
    fact = synthetic.Fact(group, "Tavan", "Broldance", "Mirel" if group is synthetic.Group.TRANSFER else None)
    assert all(synthetic.parse(fact.sentence(verb)) == fact for verb in synthetic.VERBS[group])


@pytest.mark.parametrize("sentence", ["Tavan sang.", "Tavan went to Broldance.", "tavan gave the orle.", ""])
def test_a_sentence_that_is_no_fact_is_refused(sentence: str) -> None:
    with pytest.raises(UpkeepError, match="not a fact"):
        synthetic.parse(sentence)


def test_a_recipient_has_acquired_what_was_given() -> None:
    log = Log(["A moved to the P.", "A took the o.", "B went to the P.", "A gave the o to B."])
    assert [entry.fact for entry in log.acquired("B", "o")] == [3]
    assert (log.people, log.places, log.objects) == (["A", "B"], ["P"], ["o"])


def test_nobody_acts_where_they_cannot() -> None:
    rng = Random(5)
    facts = synthetic.simulate(synthetic.cast(rng, 4, 5, 3, set()), 500, rng)
    at: dict[str, str] = {}
    held: dict[str, str] = {}
    lies: dict[str, str] = {}
    for fact in facts:
        match fact.group:
            case synthetic.Group.MOVE:
                assert at.get(fact.subject) != fact.object
                at[fact.subject] = fact.object
            case synthetic.Group.ACQUIRE:
                assert fact.object not in held and lies.get(fact.object, at[fact.subject]) == at[fact.subject]
                held[fact.object] = fact.subject
            case synthetic.Group.DISCARD:
                assert held.pop(fact.object) == fact.subject
                lies[fact.object] = at[fact.subject]
            case synthetic.Group.TRANSFER:
                assert fact.recipient and at[fact.subject] == at[fact.recipient] and held[fact.object] == fact.subject
                held[fact.object] = fact.recipient


def test_counts_are_accepted_as_digits_and_words() -> None:
    assert number_forms(0)[:3] == ["Unknown", "0", "zero"]
    assert {"1", "one", "once"} <= set(number_forms(1))
    assert {"2", "two", "twice"} <= set(number_forms(2))
    assert {"3", "three", "three times", "3 times"} <= set(number_forms(3))
    assert {"20", "twenty"} <= set(number_forms(20))
    assert {"21", "twenty-one", "twenty-one times"} <= set(number_forms(21))
    assert len({form for n in range(1, 100) for form in number_forms(n)}) == sum(
        len(number_forms(n)) for n in range(1, 100)
    )


def test_the_chunk_timeline_is_the_answer_after_the_last_fact_of_each_chunk() -> None:
    changes = [Change(0, "A", (0,)), Change(1, "B", (1,)), Change(3, "A", (2, 3))]
    values, evidence = candidates.chunk_timeline(changes, UNKNOWN, [1, 1, 2, 4], 6)
    assert values == [UNKNOWN, "B", "B", "B", "A", "A"]
    assert evidence == [[], [1], [1], [1], [2, 4], [2, 4]]


def test_a_change_and_back_within_one_chunk_begins_no_phase() -> None:
    changes = [Change(0, "A", (0,)), Change(1, "B", (1,)), Change(2, "A", (2,))]
    values, evidence = candidates.chunk_timeline(changes, UNKNOWN, [0, 1, 1], 3)
    assert values == ["A", "A", "A"] and evidence == [[0], [0], [0]]


# ---------------------------------------------------------------- prose and tokens


def test_the_gutenberg_frame_is_cut_off_and_other_text_kept() -> None:
    book = "licence\n"
    book += "*** START OF THIS PROJECT GUTENBERG EBOOK X ***\nTitle\n\n"
    book += "It began. It went on.\n\nEnd of Project Gutenberg's X\nmore"
    assert prose.read_sentences(book) == ["\n\nIt began.", " It went on."]
    assert prose.read_sentences("No frame here.\n\nNone at all.") == ["\n\nNo frame here.", "\n\nNone at all."]


def test_titles_do_not_end_a_sentence() -> None:
    assert prose.split_sentences("He met Mr. Gray. “Who is it?” asked Mrs. Low. Nobody knew.") == [
        "He met Mr. Gray.",
        "“Who is it?” asked Mrs. Low.",
        "Nobody knew.",
    ]


def test_every_generated_word_is_in_the_vocabulary() -> None:
    words = prose.words(itertools.islice(prose.generate(Random(0)), 3000))
    assert not words - prose.vocabulary() - {"an"}


def test_prose_that_is_not_there_or_not_utf8_or_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"caf\xe9.")
    (tmp_path / "empty.txt").write_text("")
    for place, problem in (("nowhere", "no prose"), ("bad.txt", "not UTF-8"), ("empty.txt", "no sentence")):
        folder = tmp_path / f"for {place}"
        folder.mkdir()
        with pytest.raises(UpkeepError, match=problem):
            built(folder, "oaks_babi_mini", options={"prose": str(tmp_path / place)})


def test_facts_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UpkeepError, match="do not fit"):
        built(tmp_path, "oaks_babi_mini", options={"facts": 400})


def test_prose_whose_sentences_fill_a_chunk_is_refused(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("And " * 300 + "so on.")
    with pytest.raises(UpkeepError, match="too long for the chunks"):
        built(tmp_path, "oaks_babi_mini", options={"prose": str(tmp_path / "long.txt")})


def test_more_questions_than_there_are_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UpkeepError, match="too few tracking questions"):
        built(tmp_path, "oaks_babi_mini", options={"questions": 1000})


@pytest.mark.parametrize("options", [{"stream": 2}, {"streams": "two"}])
def test_an_unknown_or_wrong_option_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UpkeepError, match="options"):
        built(tmp_path, "oaks_babi_mini", options=options)


def test_a_users_tokenizer_is_recorded(tmp_path: Path) -> None:
    raw = tokens.DEFAULT.read_bytes()
    (tmp_path / "mine.json").write_bytes(raw)
    data = built(tmp_path, "oaks_babi_mini", options={"tokenizer": str(tmp_path / "mine.json")})
    assert data.card.tokenizer.startswith("mine.json (sha256 ")


@pytest.mark.parametrize(("content", "problem"), [(None, "not found"), (b"{}", "not a tokenizer")])
def test_a_tokenizer_that_is_none_is_refused(tmp_path: Path, content: bytes | None, problem: str) -> None:
    if content is not None:
        (tmp_path / "t.json").write_bytes(content)
    with pytest.raises(UpkeepError, match=problem):
        tokens.load(tmp_path / "t.json")


def test_the_suites_tokenizer_is_made_again_byte_for_byte(tmp_path: Path) -> None:
    assert tokens.train(tmp_path / "tokenizer.json").sha256 == tokens.load().sha256
    assert tokens.DEFAULT.stat().st_size < 300_000


def test_a_chunk_whose_first_word_costs_more_without_its_space_keeps_the_space() -> None:
    measure = tokens.load()
    dearer = next(w for w in sorted(prose.vocabulary()) if measure.count([w])[0] > measure.count([f" {w}"])[0])
    size = measure.count([f" {dearer}"])[0]
    packer = tokens.Packer(size)
    packer.add(f" {dearer}", size)
    assert packer.texts(measure) == [f" {dearer}"]
