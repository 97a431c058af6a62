"""What the books of a synthetic world are made of, in English and in Chinese: topics, everyday scenes, names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from upkeep.building.names import is_held_out


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
