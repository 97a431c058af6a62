"""PRELUDE: the small world can be judged by a reader of its whole book, and by nothing less."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest

from conftest import ROOT
from prelude import languages, synthetic
from upkeep.building import leaks, store
from upkeep.building.build import build_dataset
from upkeep.building.names import Names
from upkeep.building.store import validate
from upkeep.catalog import Catalog


@pytest.fixture(scope="module")
def mini(tmp_path_factory: pytest.TempPathFactory) -> store.Dataset:
    folder = tmp_path_factory.mktemp("mini") / "built"
    build_dataset(Catalog(ROOT), "prelude_mini", folder)
    validate(folder)
    return store.load(folder)


def test_the_small_one_has_every_slice_and_even_labels(mini: store.Dataset) -> None:
    card = mini.card
    assert card.probes < 300 and card.pairs > 50
    assert mini.documents["tokens"].max() <= 128
    assert mini.documents.group_by("stream").len()["len"].max() <= 60
    for name, values in {
        "kind": {"consistent_core", "consistent_irrelevant", "contradict_local", "contradict_global"},
        "language": {"english", "chinese"},
        "public": {"public", "not_public"},
        "generator": {"r1_generated", "gpt_generated"},
    }.items():
        assert set(card.slices[name]) == values
    assert max(card.slices["label"].values()) <= 0.6 * card.probes


def test_what_decides_an_item_of_the_small_one_stands_in_its_evidence(mini: store.Dataset) -> None:
    texts = dict(mini.documents.select("document_id", "text").iter_rows())
    passages = {"consistent_core": (1, 2), "consistent_irrelevant": (0, 0), "contradict_local": (1, 1)}
    for row in mini.gold.iter_rows(named=True):
        least, most = passages.get(row["slice_kind"], (2, 2))
        assert least <= len(row["context"]) <= most
        held = "".join(texts[place] for place in row["evidence"])
        for sentence in row["context"]:
            assert "".join(sentence.split()) in "".join(held.split())


def pattern(template: str, known: Mapping[str, str]) -> re.Pattern[str]:
    """A wording of the grammar as a pattern: what is not `known` is captured by its letter."""
    parts = re.split(r"\{(\w)\}", template)
    named = [re.escape(known[p]) if p in known else f"(?P<{p}>[^.。\n]+?)" for p in parts[1::2]]
    return re.compile("".join(itertools.chain(*itertools.zip_longest(map(re.escape, parts[::2]), named, fillvalue=""))))


def judged(question: str, book: str) -> str:
    """The label of an item by a reader of its book who knows the grammar, but not how the item was made."""
    head, *lines = question.splitlines()
    language = languages.CHINESE if head == "[前传剧情设定]" else languages.ENGLISH
    _, character, title, setup = (re.split("：|: ", line, maxsplit=1)[1] for line in lines)
    topic = next(topic for topic in language.topics if topic.title == title)
    said = next(
        match.groupdict()
        for wording in topic.setups
        if (match := pattern(wording, {"a": character}).fullmatch(setup)) is not None
    )
    if topic.denied:
        denied = pattern(topic.told[0], {"a": character, **said}).search(book)
        return "consistent" if denied is None else "contradict"
    known = {"a": character} | ({"w": said["w"]} if "{w}" in topic.told[0] else {})
    for sentence in topic.told:
        match = pattern(sentence, known).search(book)
        assert match is not None, (sentence, known)
        known |= match.groupdict()
    return "consistent" if all(known[name] == value for name, value in said.items()) else "contradict"


def test_a_reader_of_the_whole_book_can_judge_every_item_of_the_small_one(mini: store.Dataset) -> None:
    for probe, gold in zip(mini.probes.iter_rows(named=True), mini.gold.iter_rows(named=True), strict=True):
        chunks = mini.documents.filter(stream=probe["stream"])["text"]
        joint = " " if gold["slice_language"] == "english" else ""
        book = joint.join(joint.join(chunks).split())
        assert judged(probe["question"], book) == gold["slice_label"], probe["question"]


def test_no_wording_of_the_small_one_gives_its_label_away(mini: store.Dataset) -> None:
    asked = zip(mini.probes["question"], mini.gold["slice_label"], mini.gold["slice_language"], strict=True)
    by_title: dict[tuple[str, str], list[str]] = {}
    for question, label, language in asked:
        by_title.setdefault((language, question.splitlines()[3]), []).append(label)
    for labels in by_title.values():
        assert len(labels) < 6 or len(set(labels)) == 2


def test_examples_and_pairs_of_the_small_one_are_about_nothing_that_is_asked(mini: store.Dataset) -> None:
    asked = {leaks.key(question.splitlines()[-1]) for question in mini.probes["question"]}
    shown = [leaks.key(pair.question.splitlines()[-1]) for pair in [*mini.pairs, *mini.examples]]
    assert not asked & set(shown)
    novels = {question.splitlines()[1] for question in mini.probes["question"]}
    assert not novels & {example.question.splitlines()[1] for example in mini.examples}


def test_the_worlds_of_training_and_of_testing_share_no_name() -> None:
    names: dict[bool, set[str]] = {}
    for held_out in (True, False):
        rng = Random(5)
        tales = synthetic.write(rng, Names(rng, held_out), languages.ChineseNames(rng, held_out), synthetic.Sizes())
        words = {item.character for tale in tales for item in tale.items} | {tale.title for tale in tales}
        names[held_out] = {word for name in words for word in name.split()}
    assert len(names[True]) > 30 and not names[True] & names[False]


def test_a_world_is_the_same_for_the_same_seed_alone(tmp_path: Path) -> None:
    def made(name: str, seed: int) -> dict[str, bytes]:
        folder = tmp_path / name
        folder.mkdir()
        synthetic.make(folder, seed, synthetic.Sizes(1, 1, 2, 10))
        return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*.txt"))}

    first = made("a", 1)
    assert len(first) == 2 and first == made("b", 1) != made("c", 2)
