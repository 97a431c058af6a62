"""Small synthetic books with prequels of their characters, in English and Chinese, written as a release of PRELUDE is.

A book tells facts about its characters among everyday scenes. A prequel item takes up one fact: `local` items clash
with one passage, `global` ones only with two passages taken together; consistent ones agree with the passages and add
to them (`core`) or stand beside the book (`irrelevant`). Every wording is used for both labels, so that an item cannot
be judged without the book. Nothing in a book changes, so all that it tells has been true before it begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import polars as pl

from upkeep.building.names import Names

from .languages import CHINESE, ENGLISH, ChineseNames, Language, Topic
from .release import CONSISTENT, CONTRADICT


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is written."""

    english: int = 4
    """Books."""
    chinese: int = 1
    characters: int = 6
    """Of a book; even, so that labels are balanced."""
    scenes: int = 90
    """Sentences of everyday scenes in an English book; a third of it in a Chinese one, which has more tokens a word."""


@dataclass(frozen=True, slots=True)
class Item:
    """A prequel item with what the book tells of it."""

    character: str
    topic: Topic
    setup: str
    label: str
    kind: str
    told: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tale:
    """A book with the items about its characters."""

    language: Language
    title: str
    text: str
    items: tuple[Item, ...]


def write(rng: Random, names: Names, chinese: ChineseNames, sizes: Sizes) -> list[Tale]:
    """The books, English ones first."""
    tales = [_tale(ENGLISH, names, rng, sizes.characters, sizes.scenes) for _ in range(sizes.english)]
    return tales + [_tale(CHINESE, chinese, rng, sizes.characters, sizes.scenes // 3) for _ in range(sizes.chinese)]


def _tale(language: Language, names: Names | ChineseNames, rng: Random, characters: int, scenes: int) -> Tale:
    people = [names.person() for _ in range(characters)]
    towns = tuple(names.place() for _ in range(6))
    lists = {**language.lists, "towns": towns}
    items: list[Item] = []
    for topic in language.topics:
        labels = [CONSISTENT, CONTRADICT] * (characters // 2)
        rng.shuffle(labels)
        # A word of its own for each character, as long as there are enough: a thing has one owner.
        words = rng.sample(lists[topic.word], min(characters, len(lists[topic.word]))) if topic.word else [""]
        for n, (person, label) in enumerate(zip(people, labels, strict=True)):
            items.append(_item(topic, person, names.person(), words[n % len(words)], label, lists[topic.value], rng))
    facts = [item.told for item in items]
    lines = [rng.choice(language.scenes) for _ in range(scenes)]
    scene = [line.format(a=a, b=b, t=rng.choice(towns)) for line in lines for a, b in [rng.sample(people, 2)]]
    title = names.thing()
    return Tale(language, title, _told(language, scene, facts, rng), tuple(items))


def _item(topic: Topic, person: str, other: str, word: str, label: str, values: Sequence[str], rng: Random) -> Item:
    said, true = rng.sample(values, 2)
    setup = rng.choice(topic.setups)
    if topic.denied:
        kind = "irrelevant" if label == CONSISTENT else topic.kind
        told = () if label == CONSISTENT else topic.told
        true = said
    else:
        kind = "core" if label == CONSISTENT else topic.kind
        told = topic.told
        true = said if label == CONSISTENT else true
    given = {"a": person, "o": other, "w": word}
    return Item(
        person,
        topic,
        setup.format(v=said, **given),
        label,
        kind,
        tuple(sentence.format(v=true, **given) for sentence in told),
    )


def _told(language: Language, scenes: Sequence[str], facts: Sequence[Sequence[str]], rng: Random) -> str:
    """The book: facts among the scenes, the two passages of a fact in different halves, in chapters and paragraphs."""
    halves: list[list[str]] = [[*scenes[: len(scenes) // 2]], [*scenes[len(scenes) // 2 :]]]
    for sentences in facts:
        first = rng.randrange(2)
        for n, sentence in enumerate(sentences):
            halves[(first + n) % 2].append(sentence)
    for half in halves:
        rng.shuffle(half)
    body = halves[0] + halves[1]
    paragraphs = [language.joint.join(body[n : n + 6]) for n in range(0, len(body), 6)]
    chapters = [
        "\n".join([language.chapter.format(n=n // 5 + 1), *paragraphs[n : n + 5]]) for n in range(0, len(paragraphs), 5)
    ]
    return "\n\n".join(chapters) + "\n"


def examples(tale: Tale) -> list[dict[str, str]]:
    """Five worked examples from a book of their own: a local clash, two global ones, core, irrelevant."""
    found: list[Item] = []
    for kind in ("local", "global", "global", "core", "irrelevant"):
        topics = [item.topic for item in found if item.kind == kind]
        found.append(next(item for item in tale.items if item.kind == kind and item.topic not in topics))
    language = tale.language
    shown = []
    for item in found:
        told = language.quoted.format(told=language.joint.join(item.told)) if item.told else language.silent
        shown.append(
            {
                "language": language.name,
                "novel": tale.title,
                "character": item.character,
                "title": item.topic.title,
                "setup": item.setup,
                "think": language.verdicts[item.kind].format(told=told),
                "label": item.label,
            }
        )
    return shown


def release(folder: Path, tales: Sequence[Tale], rng: Random) -> None:
    """Write a release (`release/*.parquet`) and the books (`books/*.txt`). Half of the items are its subset, and every
    second book is public."""
    rows: list[dict[str, Any]] = []
    for place, tale in enumerate(tales):
        mine = list(tale.items)
        rng.shuffle(mine)
        for n, item in enumerate(mine):
            rows.append(
                {
                    "book_name": tale.title,
                    "char": item.character,
                    "subject": item.topic.title,
                    "content": item.setup,
                    "label": item.label,
                    "label_type": item.kind,
                    "generator": ("DeepSeek-R1", "GPT-4o")[rng.randrange(2)],
                    "evidence": list(item.told),
                    "in_subset": n % 2 == 0,
                    "in_public": place % 2 == 0,
                }
            )
    schema = {name: pl.List(pl.String) if name == "evidence" else None for name in rows[0]}
    frame = pl.DataFrame(rows, schema=schema)
    (folder / "release").mkdir()
    (folder / "books").mkdir()
    plain = [name for name in frame.columns if not name.startswith("in_")]
    splits: dict[str, Callable[[pl.DataFrame], pl.DataFrame]] = {
        "all": lambda f: f,
        "subset": lambda f: f.filter("in_subset"),
        "public": lambda f: f.filter("in_public"),
    }
    for split, chosen in splits.items():
        chosen(frame).select(plain).write_parquet(folder / "release" / f"{split}.parquet")
    for tale in tales:
        (folder / "books" / f"{tale.title}.txt").write_text(tale.text, encoding="utf-8")


def make(folder: Path, seed: int, sizes: Sizes, held_out: bool = True) -> None:
    """Write a world: `release/`, `books/`, and its `examples.yaml`, which are about books that nobody is asked about.

    Args:
        held_out: which half of the names it draws from.
    """
    rng = Random(f"prelude {seed}")
    names, chinese = Names(rng, held_out), ChineseNames(rng, held_out)
    tales = write(rng, names, chinese, sizes)
    release(folder, tales, rng)
    shown = write(rng, names, chinese, Sizes(1, 1, sizes.characters, 0))
    (folder / "examples.yaml").write_bytes(msgspec.yaml.encode([one for tale in shown for one in examples(tale)]))
