"""Small books with prequels of their characters, in English and Chinese, written as a release of PRELUDE is.

A book tells facts about its characters among everyday scenes. A prequel item takes up one fact: `local` items clash
with one passage, `global` ones only with two passages taken together; consistent ones agree with the passages and add
to them (`core`) or stand beside the book (`irrelevant`). Every wording is used for both labels, so that an item cannot
be judged without the book. Nothing in a book changes, so all that it tells has been true before it begins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import polars as pl

from upkeep.building.names import Names, is_held_out

from .release import CONSISTENT, CONTRADICT


@dataclass(frozen=True, slots=True)
class Topic:
    """What facts and items can be about. {a} is the character, {v} the value, {w} another word, {o} a person met in no
    scene."""

    kind: str
    """Of a contradiction: `local` or `global`."""
    value: str
    """The list that the value is drawn from, a new one for a contradiction."""
    word: str
    """The list of the other word; empty for none."""
    title: str
    told: tuple[str, ...]
    """Sentences of the book, far apart."""
    setups: tuple[str, ...]
    """Wordings of the item."""
    denied: bool = False
    """The book tells against it, or nothing at all."""


@dataclass(frozen=True, slots=True)
class Language:
    """What a book is made of in one language."""

    name: str
    topics: tuple[Topic, ...]
    lists: Mapping[str, tuple[str, ...]]
    scenes: tuple[str, ...]
    """Sentences of everyday scenes; {a} and {b} are characters, {t} a town."""
    chapter: str
    joint: str
    """Between two sentences."""
    quoted: str
    silent: str
    verdicts: Mapping[str, str]
    """Kind -> the reasoning in an example. {told} is what the book says."""


ENGLISH = Language(
    "english",
    (
        Topic(
            "local",
            "towns",
            "",
            "Birth",
            ("{a} was born in {v}.",),
            ("{a} was born in {v}, in a small house by the river.", "{a} came into the world in {v} on a cold night."),
        ),
        Topic(
            "local",
            "trades",
            "",
            "First work",
            ("{a} had worked as a {v} and had never had another trade.",),
            (
                "For three years {a} worked as a {v} and saved every coin.",
                "{a} worked as a {v} and rose before the sun each day.",
            ),
        ),
        Topic(
            "local",
            "animals",
            "",
            "A friend in childhood",
            ("{a} has never kept a {v} and would not touch one.",),
            ("As a child {a} kept a {v} and fed it by hand.", "{a} once kept a {v} that slept beside the stove."),
            denied=True,
        ),
        Topic(
            "local",
            "waters",
            "",
            "A journey",
            ("{a} had never seen the {v} before this year.",),
            ("In younger days {a} spent a summer by the {v}.", "{a} once walked for a week along the {v}."),
            denied=True,
        ),
        Topic(
            "global",
            "towns",
            "",
            "School",
            ("{a} was taught by {o} alone.", "{o} taught in {v} and never left that town."),
            ("As a child {a} had lessons every morning in {v}.", "{a} learned to read and to count in {v}."),
        ),
        Topic(
            "global",
            "years",
            "things",
            "A gift",
            ("{a} carries the {w} that once belonged to {o}.", "{o} gave the {w} away in the year of the {v}."),
            ("In the year of the {v}, {a} was given the {w}.", "{a} has had the {w} since the year of the {v}."),
        ),
        Topic(
            "global",
            "trades",
            "towns",
            "A debt",
            ("In all those years {a} borrowed money from {o} alone.", "{o} was the {v} of {w}."),
            ("Years ago {a} borrowed money from the {v} of {w}.", "{a} still owes money to the {v} of {w}."),
        ),
    ),
    {
        "trades": ("baker", "smith", "tailor", "miller", "potter", "weaver", "cooper", "mason"),
        "animals": ("dog", "cat", "goat", "crow", "fox", "hare"),
        "waters": ("northern sea", "great lake", "long canal", "white falls"),
        "years": ("great flood", "red comet", "long drought", "early snow", "big fire", "two harvests"),
        "things": ("silver ring", "copper bell", "wooden flute", "brass key", "blue scarf", "glass cup"),
    },
    (
        "{a} walked to the market of {t} with {b}.",
        "At noon {a} and {b} sat under the old tree.",
        "{a} told {b} a story about the weather.",
        "In the evening {a} cooked soup for {b}.",
        "{a} waited for {b} by the bridge.",
        "It rained the whole night.",
        "{b} asked {a} about the letter.",
        "{a} read the letter twice and put it away.",
        "{a} and {b} came to {t} on a clear morning.",
        "{a} shared a loaf of bread with {b}.",
        "The road to {t} was empty.",
        "{b} laughed, and {a} said nothing.",
    ),
    "Chapter {n}",
    " ",
    "The book says: {told}",
    "The book tells nothing of this.",
    {
        "local": "{told} The setup says otherwise, which is rule 1.",
        "global": "{told} Taken together this leaves no room for the setup, which is rule 2.",
        "core": "{told} The setup agrees with it and adds to it.",
        "irrelevant": "{told} The setup clashes with no passage.",
    },
)

CHINESE = Language(
    "chinese",
    (
        Topic(
            "local",
            "towns",
            "",
            "出生",
            ("{a}生在{v}。",),
            ("{a}生在{v}河边的一间小屋里。", "一个寒冷的夜里，{a}在{v}出生。"),
        ),
        Topic(
            "local",
            "trades",
            "",
            "早年谋生",
            ("{a}早年只做过{v}。",),
            ("{a}做了三年{v}，把钱都存了下来。", "{a}做{v}的时候，每天天不亮就起床。"),
        ),
        Topic(
            "local",
            "animals",
            "",
            "儿时的伴",
            ("{a}从来没有养过{v}。",),
            ("{a}小时候养过一只{v}，天天亲手喂它。", "{a}养过一只{v}，夜里睡在炉边。"),
            denied=True,
        ),
        Topic(
            "global",
            "towns",
            "",
            "读书",
            ("{a}只跟{o}读过书。", "{o}一生在{v}教书，没有离开过。"),
            ("{a}小时候每天早上在{v}上课。", "{a}在{v}学会了认字和算数。"),
        ),
        Topic(
            "global",
            "years",
            "things",
            "信物",
            ("{a}带着{o}用过的{w}。", "{o}在{v}那年把{w}送了人。"),
            ("{v}那年，{a}得到了{w}。", "从{v}那年起，{a}就有了{w}。"),
        ),
    ),
    {
        "trades": ("铁匠", "木匠", "裁缝", "船夫", "厨子", "猎户"),
        "animals": ("狗", "猫", "羊", "鹅", "兔子"),
        "years": ("大水", "大旱", "早雪", "大火", "红星"),
        "things": ("银戒指", "铜铃", "木笛", "铜钥匙"),
    },
    (
        "{a}和{b}去了{t}的集市。",
        "中午，{a}和{b}坐在树下。",
        "{a}给{b}讲了一个故事。",
        "晚上，{a}给{b}煮了汤。",
        "{a}在桥边等{b}。",
        "雨下了一夜。",
        "{b}问起那封信。",
        "{a}把信读了两遍。",
    ),
    "第{n}章",
    "",
    "书中写道：{told}",
    "书中没有提到此事。",
    {
        "local": "{told}这一设定与此不同，符合规则第一条。",
        "global": "{told}合起来看，这一设定不可能成立，符合规则第二条。",
        "core": "{told}这一设定与此相合，补上了细节。",
        "irrelevant": "{told}这一设定与原书没有冲突。",
    },
)

_FAMILIES = "钟袁葛卫沈蒋韩杨朱秦"
_GIVEN = "安柏承达恩方光和嘉凯兰明宁平青然书同文晓"
_TOWN = ("青白黑红长南北东", "石水山风林桥沙柳", "镇村城")


class ChineseNames:
    """Draws invented Chinese names, each once; the two halves share none. Arguments as of `names.Names`."""

    def __init__(self, rng: Random, held_out: bool | None = True) -> None:
        self._rng, self._held_out, self._taken = rng, held_out, set[str]()

    def _draw(self, *parts: str) -> str:
        while True:
            word = "".join(self._rng.choice(part) for part in parts)
            right_half = self._held_out is None or is_held_out(word) == self._held_out
            if right_half and word not in self._taken:
                self._taken.add(word)
                return word

    def person(self) -> str:
        return self._draw(_FAMILIES, _GIVEN, _GIVEN)

    def place(self) -> str:
        return self._draw(*_TOWN)

    def thing(self) -> str:
        return self.place()


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
