"""ImprintBench, Personalization: what is asked of a user is what the conversations say, and every audit can reject."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

from conftest import ROOT, spec_of
from imprint_personal import (
    attributes,
    author,
    compositions,
    families,
    frames,
    implicit,
    personas,
    program,
    recall,
    supervision,
    synthetic,
    unknown,
    updates,
)
from personal_worlds import NAME, asked, built, from_files, mini, releases_on_disk
from upkeep import card_numbers
from upkeep.building import leaks, store
from upkeep.building.assistant import Step
from upkeep.building.names import Names, is_held_out
from upkeep.catalog import Catalog

__all__ = ["asked", "mini", "releases_on_disk"]


# ---------------------------------------------------------------- the small world


def test_the_small_one_has_all_families_and_subtypes_and_keeps_its_limits(mini: store.Dataset) -> None:
    slices = mini.card.slices
    assert set(slices["family"]) == set(families.FAMILIES)
    assert {"new_info", "changed_info", "comp_rel_2", "comp_rel_3"} <= set(slices["subtype"])
    assert len(slices["persona"]) == 8 and set(slices["source"]) == {"personamem_v2", "horizonbench"}
    assert len(mini.probes) < 300
    assert mini.documents["tokens"].max() <= 128  # type: ignore[operator]
    assert mini.documents.group_by("stream").len()["len"].max() <= 60  # type: ignore[operator]


def test_no_answer_is_that_of_most_questions_of_a_form(asked: list[dict[str, Any]]) -> None:
    for form in ("short", "choice"):
        golds = Counter(row["answers"][0] for row in asked if row["form"] == form)
        assert golds.most_common(1)[0][1] < 0.6 * golds.total(), form


def test_a_reader_of_the_conversations_alone_gives_the_same_answers(
    mini: store.Dataset, asked: list[dict[str, Any]]
) -> None:
    last: dict[tuple[str, str], str] = {}
    for stream, text in mini.documents.select("stream", "text").iter_rows():
        for attribute, value in re.findall(r"[Mm]y ([a-z ]+) is (.+?)(?: now)?\.", text):
            last[stream, attribute] = value
    checked = 0
    for row in asked:
        direct = re.fullmatch(r"What is [^']+'s (.+?)(?: now)?\?", row["question"])
        if direct and row["slice_family"] in ("dir_acq", "temp_upd"):
            assert row["answers"][0] == last[row["stream"], direct[1]], row["question"]
            checked += 1
    assert checked > 40


def test_answers_are_in_the_evidence_and_old_ones_are_told_before_it(
    mini: store.Dataset, asked: list[dict[str, Any]]
) -> None:
    before: dict[str, str] = {}
    for stream, text in mini.documents.select("stream", "text").iter_rows():
        before[stream] = before.get(stream, "") + "\n" + text
    for row in asked:
        if row["form"] == "short" and row["slice_family"] != "bound_abs":
            assert any(leaks.tells(text, row["answers"]) for text in row["texts"]), row["probe_id"]
            assert all(row["outdated"][0] in before[row["stream"]] for _ in row["outdated"][:1])
        elif row["form"] == "choice":
            right = row["options"]["ABCD".index(row["answers"][0])].split(", ")
            assert len(row["texts"]) == int(row["slice_subtype"][-1]) == len(right)


def test_changed_questions_know_the_old_answer_and_new_ones_have_none(asked: list[dict[str, Any]]) -> None:
    for row in asked:
        if row["slice_subtype"] == "changed_info":
            assert row["outdated"] and row["outdated"][0] != row["answers"][0]
        if row["slice_subtype"] == "new_info":
            assert not row["outdated"]


def test_what_a_user_wanted_forgotten_or_never_said_is_asked_only_to_be_declined(
    asked: list[dict[str, Any]],
) -> None:
    for row in asked:
        forgotten = any("Please forget what I told you about my" in text for text in row["texts"])
        private = any("My illness" in text for text in row["texts"])
        if forgotten or private:
            assert row["slice_family"] == "bound_abs"
        if row["slice_family"] == "bound_abs":
            assert row["answers"] == list(unknown.ABSTENTIONS) and row["form"] == "short"
    kinds = [row["texts"] for row in asked if row["slice_family"] == "bound_abs"]
    assert any(len(texts) == 2 for texts in kinds) and any(not texts for texts in kinds)


def test_unknown_things_of_other_users_are_unknown_of_this_one(
    mini: store.Dataset, asked: list[dict[str, Any]]
) -> None:
    said = {stream: "\n".join(group["text"]) for (stream,), group in mini.documents.group_by("stream")}
    for row in asked:
        if row["slice_family"] == "bound_abs" and not row["texts"]:
            attribute = re.fullmatch(r"What is [^']+'s (.+)\?", row["question"])[1]  # type: ignore[index]
            assert attribute not in said[row["stream"]]
            known = next(a for a in attributes.ATTRIBUTES if a.name == attribute)
            assert not any(known.implied.format(value) in said[row["stream"]] for value in known.values)


def test_options_realise_the_truth_table_and_the_gold_moves(asked: list[dict[str, Any]]) -> None:
    letters = Counter()
    for row in (row for row in asked if row["form"] == "choice"):
        letters[row["answers"][0]] += 1
        gold = row["options"]["ABCD".index(row["answers"][0])].split(", ")
        met = sorted([offer in option.split(", ") for offer in gold] for option in row["options"])
        assert met == sorted(compositions.truth_table(len(gold)))
    assert set(letters) == set("ABCD")


def test_the_truth_tables_are_those_of_the_paper() -> None:
    t, f = True, False
    assert compositions.truth_table(2) == [[t, t], [f, t], [t, f], [f, f]]
    assert compositions.truth_table(3) == [[t, t, t], [f, t, t], [t, f, t], [t, t, f]]


def test_all_questions_come_after_the_last_session(mini: store.Dataset) -> None:
    ends = mini.documents.group_by("stream").agg(pl.max("position").alias("end"))
    assert mini.probes.join(ends, on="stream").filter(pl.col("position") != pl.col("end")).is_empty()


def test_pairs_are_not_asked_and_teach_only_what_still_holds(mini: store.Dataset, asked: list[dict[str, Any]]) -> None:
    assert not leaks.shared((row["question"] for row in asked), [pair.question for pair in mini.pairs])
    assert len({pair.question for pair in mini.pairs}) == len(mini.pairs) > 200
    changed = {
        re.fullmatch(r"What is (.+'s .+) now\?", row["question"])[1]: row["outdated"][1]  # type: ignore[index]
        for row in asked
        if row["slice_subtype"] == "changed_info"
    }
    answers = {pair.answer.removesuffix(".") for pair in mini.pairs}
    assert changed and not answers & set(changed.values())
    assert all(any(answer.startswith(f"{what} is ") for answer in answers) for what in changed)


def test_a_world_keeps_what_was_true_before_and_uses_names_of_either_half() -> None:
    for held_out in (True, False):
        users = synthetic.make(Random(1), Names(Random(1), held_out=held_out), synthetic.Sizes(2, 1)).personamem
        for user in users:
            assert all(is_held_out(word) == held_out for word in user.name.split())
            changed = [trait for trait in user.traits if trait.before]
            assert len(changed) == 4 and all(trait.before != trait.now for trait in changed)
            assert all({trait.before, trait.now} <= set(trait.attribute.values) for trait in changed)


def test_another_seed_gives_another_world_and_the_same_seed_the_same(tmp_path: Path, mini: store.Dataset) -> None:
    assert built(tmp_path / "a", f"{NAME}_mini").card.content == mini.card.content
    assert built(tmp_path / "b", f"{NAME}_mini", {"seed": 1}).card.content != mini.card.content


def test_the_papers_statistics_are_in_the_card(mini: store.Dataset) -> None:
    own = set(mini.card.statistics) | {f"{s}: {v}" for s, values in mini.card.slices.items() for v in values}
    assert set(spec_of(NAME)["published"]) <= own
    numbers = card_numbers.published(Catalog(ROOT).dataset(NAME), ROOT / "papers")
    assert numbers["corpus_tokens"] == 1_933_409 and numbers["family: temp_upd"] == 1111
    assert numbers["article_tokens_mean: horizonbench"] == 37_710
    statistics = mini.card.statistics
    assert statistics["articles"] == 4 + 4 * 4
    assert statistics["cq_tokens"] == sum(statistics[k] for k in ("corpus_tokens", "question_tokens", "answer_tokens"))


# ---------------------------------------------------------------- audits


def rejecting(
    tmp_path: Path, paths: dict[str, Path], monkeypatch: pytest.MonkeyPatch, step: Step[Any, Any], reply: Any
) -> store.Dataset:
    return from_files(tmp_path / "built", paths, monkeypatch, {step.name: lambda given: reply})


@pytest.mark.parametrize(
    ("step", "reply", "family", "reason"),
    [
        (recall.CONTRACT, recall.ContractVerdict(True, False), "dir_acq", "contract audit"),
        (recall.CONTRACT, None, "ref_res", "contract audit"),
        (implicit.FROM_FACTS, "I don't know", "imp_rel", "fact-list oracle"),
        (implicit.APPLICATION, implicit.ApplicationVerdict(True, True), "imp_rel", "application audit"),
        (implicit.UNIVERSAL, implicit.UniversalVerdict("YES"), "imp_rel", "universality audit"),
        (compositions.CHOOSE, "uncertain", "comp_rel", "fact-list oracle"),
        (
            compositions.MATRIX,
            compositions.MatrixVerdict({}, compositions.SEVERAL),
            "comp_rel",
            "matrix and family audit",
        ),
        (compositions.COMPOSE, None, "comp_rel", "no candidate of the truth table"),
        (author.JUDGED, "MATCH", "temp_upd", "answered blind"),
        (recall.RECALL, author.Candidate("What is it?", " "), "dir_acq", "no candidate"),
    ],
)
def test_an_audit_that_fails_leaves_no_question_of_its_family(
    tmp_path: Path,
    releases_on_disk: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    step: Step[Any, Any],
    reply: Any,
    family: str,
    reason: str,
) -> None:
    data = rejecting(tmp_path, releases_on_disk, monkeypatch, step, reply)
    assert family not in data.card.slices["family"] and "bound_abs" in data.card.slices["family"]
    assert data.card.statistics[f"left out: {family}, {reason}"] > 0


def test_a_matrix_that_differs_in_one_cell_is_rejected(
    tmp_path: Path, releases_on_disk: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def matrix(given: compositions.Choose) -> compositions.MatrixVerdict:
        found = program._matrix(given)
        found["A"][0] = not found["A"][0]
        return compositions.MatrixVerdict(found, compositions.SEVERAL)

    data = from_files(tmp_path / "built", releases_on_disk, monkeypatch, {compositions.MATRIX.name: matrix})
    assert "comp_rel" not in data.card.slices["family"]


def test_options_that_appeal_to_everybody_are_rejected(
    tmp_path: Path, releases_on_disk: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    appealing: dict[frozenset[str], str] = {}

    def third(given: Any) -> str:
        appealing[frozenset(given.options)] = given.options[2]
        return "C"

    data = from_files(tmp_path / "built", releases_on_disk, monkeypatch, {compositions.APPEAL.name: third})
    asked = data.probes.join(data.gold, on="probe_id").filter(pl.col("form") == "choice")
    assert len(asked)
    for options, (letter,) in asked.select("options", "answers").iter_rows():  # dealt anew after they were judged
        assert options["ABCD".index(letter)] != appealing[frozenset(options)]


def test_questions_that_hold_their_answer_or_a_fact_are_left_out(
    tmp_path: Path, releases_on_disk: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def telling(given: Any) -> Any:
        name, attribute, value = program.parsed(given.claim)
        return author.Candidate(f"Is {value} the {attribute} of {name}?", value)

    def naming(given: implicit.Apply) -> implicit.Applied:
        return implicit.Applied(f"What should be suggested, with {given.distractors[0].value}?", "the harbour grill")

    script = {updates.NEW_INFO.name: telling, implicit.APPLY.name: naming}
    data = from_files(tmp_path / "built", releases_on_disk, monkeypatch, script)
    assert "new_info" not in data.card.slices["subtype"] and "imp_rel" not in data.card.slices["family"]
    assert data.card.statistics["left out: temp_upd, answer in question"] > 0
    assert data.card.statistics["left out: imp_rel, answer or fact in question"] > 0


def test_a_pair_that_is_asked_is_dropped_and_counted(
    tmp_path: Path, releases_on_disk: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def distil(given: supervision.Distil) -> list[author.Candidate]:
        taken = author.Candidate(f"what is {given.user}'s  {given.frame.attribute}", given.frame.value)
        return [taken, *program._distil(given)[:1]]

    data = from_files(tmp_path / "built", releases_on_disk, monkeypatch, {supervision.DISTIL.name: distil})
    assert data.card.statistics["left out: pairs, asked in the evaluation"] > 0
    assert all(not pair.question.startswith("Which") for pair in data.pairs) and data.pairs


def test_direct_is_by_shared_words_and_else_by_the_explicitness_step(
    tmp_path: Path, releases_on_disk: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[recall.Explicit] = []

    def unrelated(one: recall.Explicit) -> str:
        given.append(one)
        return "D"

    data = from_files(tmp_path / "built", releases_on_disk, monkeypatch, {recall.EXPLICIT.name: unrelated})
    assert given and all(personas.overlap(one.claim, one.turn) < 0.8 for one in given)
    assert data.card.statistics["left out: facts, message does not show it"] == len(given)
    assert personas.overlap("Ada's favourite food is soup", "I am Ada. My favourite food is soup.") == 1
    assert personas.overlap("", "anything") == 0


@pytest.mark.parametrize(
    ("reply", "letter"), [("B", "B"), ("The answer is C.", "C"), ("A or B", None), ("uncertain", None), (None, None)]
)
def test_a_letter_counts_only_where_it_is_the_only_one(reply: str | None, letter: str | None) -> None:
    assert author.letter(reply) == letter


def test_the_judges_last_word_counts() -> None:
    assert author.verdict("It is a MATCH? No: NONMATCH") == "NONMATCH"
    assert author.verdict("nothing") is None


@pytest.mark.parametrize(
    "change",
    [
        {"gold_option": "E"},
        {"gold_option": "B"},
        {"options": {"A": "a", "B": "a", "C": "c", "D": "d"}},
        {"options": {"A": "a", "B": "b", "C": "c"}},
        {"satisfaction": {mark: [True, True] for mark in "ABCD"}},
    ],
)
def test_options_that_break_the_truth_table_are_no_candidates(change: dict[str, Any]) -> None:
    good: dict[str, Any] = {
        "options": {mark: f"option {mark}" for mark in "ABCD"},
        "gold_option": "A",
        "satisfaction": dict(zip("ABCD", compositions.truth_table(2), strict=True)),
    }
    assert compositions._well_formed(compositions.Composed(**good), 2)
    assert not compositions._well_formed(compositions.Composed(**(good | change)), 2)


def test_every_prompt_shows_what_its_step_is_given() -> None:
    frame = program._framed(frames.FactGiven("Ada Byron's usual drink is tea", "k", "t", "Ada Byron"))
    options = ["one", "two", "three", "four"]
    shown: list[tuple[Step[Any, Any], Any, list[str]]] = [
        (
            frames.FRAME,
            frames.FactGiven("a claim", "a kind", "a topic", "Ada"),
            ["a claim", "a kind", "a topic", "Ada"],
        ),
        (recall.EXPLICIT, recall.Explicit("a claim", "a turn"), ["a claim", "a turn"]),
        (recall.RECALL, recall.Recall(frame, "ref_res", "Ada"), ["usual drink", "paraphrase", "Ada"]),
        (recall.CONTRACT, recall.Contract(frame, "dir_acq", "Why?", "so"), ["dir_acq", "Why?", "so", "usual drink"]),
        (updates.CHANGED, updates.Changed("old", "new", "topic", "Ada"), ["old", "new", "topic"]),
        (implicit.APPLY, implicit.Apply(frame, [frame], "meal", ["tea"], "Ada"), ["meal", "usual drink", "Ada"]),
        (
            compositions.COMPOSE,
            compositions.Compose([frame, frame], "meal", "Which?", ["tea"]),
            ["Which?", "['F', 'T']"],
        ),
        (
            compositions.CHOOSE,
            compositions.Choose(["fact"], "Which?", options),
            ["- fact", "A. one", "D. four", "uncertain"],
        ),
        (author.BLIND, author.Blind("Why?"), ["Why?"]),
        (author.FORCED, author.Blind("Why?", options), ["Why?", "B. two"]),
        (supervision.DISTIL, supervision.Distil(frame, 7, "Ada"), ["7", "usual drink"]),
    ]
    for step, given, parts in shown:
        prompt = step.prompt(given)
        assert isinstance(prompt, str) and all(part in prompt for part in parts), step.name
