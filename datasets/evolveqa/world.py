"""Small invented worlds of dated announcements, and what they know of themselves (a stand-in for the assistant).

`cloud`: services of a cloud provider whose limits, prices, regions and tools change. `outbreak`: reports on viruses
whose advice, risk, spread and names change. In both some facts are told once and stay. Every value is told in one
sentence, "The <attribute> of <entity> is (now) <value>.", and read back from it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from random import Random
from typing import Any, Literal

from msgspec import Struct

from upkeep.building import leaks
from upkeep.building.names import Names

from . import steps
from .feeds import Entry, Section

Flavour = Literal["cloud", "outbreak"]
Script = Mapping[str, Callable[[Any], Any]]
"""Step -> what answers it."""


class Sizes(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Of a world."""

    entities: int = 6
    """With facts that change, two each."""
    versions: int = 4
    """Of such a fact, the first included."""
    calm: int = 6
    """Entities with one fact that stays."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A property of an entity. Values split by `|`, or `places`, `names`, `people` for invented ones."""

    attribute: str
    values: str
    grows: bool = False
    """Whether its first change adds a second value beside the first."""


@dataclass(frozen=True, slots=True)
class Theme:
    """A concept with its properties: `title` is what documents of it have in common."""

    title: str
    kinds: tuple[Kind, ...]


@dataclass(frozen=True, slots=True)
class Language:
    """The wording of a flavour. {e} is an entity, {a} an attribute, {v} a value."""

    entity: str
    changing: tuple[Theme, ...]
    calm: Theme
    users: str
    office: str


_CLOUD = Language(
    entity="{}",
    changing=(
        Theme(
            "limit on the use of a service",
            (
                Kind("maximum file size", "5 MB|10 MB|20 MB|40 MB|80 MB|160 MB|250 MB|500 MB"),
                Kind("storage time", "3 days|7 days|14 days|30 days|60 days|90 days|180 days|365 days"),
            ),
        ),
        Theme(
            "price that customers pay",
            (
                Kind("monthly price", "4 dollars|6 dollars|9 dollars|12 dollars|15 dollars|18 dollars|25 dollars"),
                Kind("setup fee", "1 dollar|2 dollars|3 dollars|5 dollars|8 dollars|10 dollars|20 dollars"),
            ),
        ),
        Theme("place where data are kept", (Kind("home region", "places"), Kind("backup region", "places", True))),
        Theme("official name of a tool", (Kind("command line tool", "names"), Kind("web console", "names"))),
    ),
    calm=Theme(
        "launch with fixed origins",
        (Kind("inventor", "people"), Kind("test town", "places"), Kind("logo colour", "red|blue|green|white|yellow")),
    ),
    users="customers",
    office="help desk",
)
_OUTBREAK = Language(
    entity="{} virus",
    changing=(
        Theme(
            "public health advice for travellers",
            (
                Kind("quarantine time", "3 days|5 days|7 days|10 days|14 days|21 days|28 days"),
                Kind("safe distance", "1 metre|2 metres|3 metres|4 metres|5 metres|6 metres|8 metres"),
            ),
        ),
        Theme(
            "assessment of global risk",
            (
                Kind("risk level", "minor|low|moderate|high|severe"),
                Kind("alert colour", "green|yellow|orange|red|purple"),
            ),
        ),
        Theme("region most affected by cases", (Kind("main region", "places"), Kind("border town", "places", True))),
        Theme("vaccine recommended against infection", (Kind("standard vaccine", "names"), Kind("booster", "names"))),
    ),
    calm=Theme(
        "first description and its origin",
        (Kind("discoverer", "people"), Kind("native town", "places"), Kind("animal host", "bat|rat|pig|hen|camel")),
    ),
    users="patients",
    office="health office",
)
LANGUAGES: Mapping[Flavour, Language] = {"cloud": _CLOUD, "outbreak": _OUTBREAK}

_ACTS = tuple(
    f"{manner} {act} the"
    for manner in ("Official", "Short", "Recent", "Detailed")
    for act in ("notice about", "report on", "change of", "news about")
)
"""What the titles of a concept differ in."""
_FIRST, _EARLY, _LATE = date(2019, 2, 1), date(2023, 8, 1), date(2024, 12, 1)
_TOLD = re.compile(r"\b(The|A second) ([a-z ]+?) of (.+?) is (?:now )?(.+?)\.")
_ASKED = re.compile(r"What is the (.+?) of (.+)\?")


@dataclass(frozen=True, slots=True)
class Version:
    """A value from a date on; `adds` where the values before stay right."""

    date: date
    value: str
    adds: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """One property of one entity: what it was at first, and what it became."""

    entity: str
    theme: Theme
    kind: Kind
    before: Version
    changes: tuple[Version, ...] = ()

    @property
    def question(self) -> str:
        return f"What is the {self.kind.attribute} of {self.entity}?"


@dataclass(frozen=True, slots=True)
class World:
    """Entities whose properties change, and others that stay as they are."""

    flavour: Flavour
    lines: tuple[Line, ...]
    calm: tuple[Line, ...]

    def entries(self) -> list[Entry]:
        """The feed in order of time. In `outbreak` a report tells of both properties of a virus, a section each."""
        language = LANGUAGES[self.flavour]
        told = [(v, line, v is line.before) for line in (*self.lines, *self.calm) for v in (line.before, *line.changes)]
        reports: dict[tuple[date, str, str], list[Section]] = {}
        for version, line, first in told:
            subject = "" if self.flavour == "outbreak" else line.kind.attribute
            section = _section(language, line, version, first)
            reports.setdefault((version.date, line.entity, subject), []).append(section)
        return [
            Entry(id=f"news-{n:03d}", date=key[0].isoformat(), title=f"{key[1]} news", sections=reports[key])
            for n, key in enumerate(sorted(reports), 1)
        ]


def generate(rng: Random, names: Names, flavour: Flavour, sizes: Sizes) -> World:
    """A world with names of its own; every entity has the properties of one theme.

    First values come before 2022. About three of four facts change once before September 2023, so that they have
    changed by the first cut-off; the other changes come after it, some after the last cut-off.
    """
    language = LANGUAGES[flavour]
    lines: list[Line] = []
    for n in range(sizes.entities):
        theme = language.changing[n % len(language.changing)]
        entity = language.entity.format(names.thing())
        shared = _days(rng, sizes.versions, early=n % 4 != 3)
        for kind in theme.kinds:
            values = _values(kind, sizes.versions, rng, names)
            days = shared if flavour == "outbreak" else _days(rng, sizes.versions, early=rng.random() < 0.75)
            told = zip(days, values, strict=True)
            versions = [Version(day, value, kind.grows and place == 1) for place, (day, value) in enumerate(told)]
            lines.append(Line(entity, theme, kind, versions[0], tuple(versions[1:])))
    calm = []
    for n in range(sizes.calm):
        kind = language.calm.kinds[n % len(language.calm.kinds)]
        entity = language.entity.format(names.thing())
        day = _FIRST + timedelta(days=rng.randrange((_LATE - _FIRST).days))
        calm.append(Line(entity, language.calm, kind, Version(day, _values(kind, 1, rng, names)[0])))
    return World(flavour, tuple(lines), tuple(calm))


def _values(kind: Kind, count: int, rng: Random, names: Names) -> list[str]:
    """Values in order of time, none of them among the two before it."""
    makers: dict[str, Callable[[], str]] = {"places": names.place, "names": names.thing, "people": names.person}
    if kind.values in makers:
        return [makers[kind.values]() for _ in range(count)]
    listed = kind.values.split("|")
    found: list[str] = []
    while len(found) < count:
        found.append(rng.choice([value for value in listed if value not in found[-2:]]))
    return found


def _days(rng: Random, versions: int, early: bool) -> list[date]:
    """Ascending dates of a fact's versions."""
    middle = date(2022, 1, 1)
    draws = [(_FIRST, middle), (middle, _EARLY) if early else (_EARLY + timedelta(days=40), date(2024, 3, 1))]
    found = [start + timedelta(days=rng.randrange((end - start).days)) for start, end in draws[:versions]]
    later = max(found[-1], _EARLY) + timedelta(days=20)
    while len(found) < versions:
        found = sorted({*found, later + timedelta(days=rng.randrange((_LATE - later).days))})
    return found


def _section(language: Language, line: Line, version: Version, first: bool) -> Section:
    a, e = line.kind.attribute, line.entity
    if line.theme is language.calm:
        opening, told, after = f"Here is a note on {e}.", f"The {a} of {e} is {version.value}.", "This will not change."
    elif first:
        opening, told = f"A first {a} is set for {e}.", f"The {a} of {e} is {version.value}."
        after = f"This {a} holds for all {language.users}."
    elif version.adds:
        opening, told = f"A {a} is added for {e}.", f"A second {a} of {e} is now {version.value}."
        after = f"The {a} from before stays."
    else:
        opening, told = f"The {a} changes for {e}.", f"The {a} of {e} is now {version.value}."
        after = f"The {a} from before no longer holds."
    # With the title five sentences, the value in the third: both windows of three hold it.
    closing = f"Ask the {language.office} about the {a} of {e}."
    return Section("" if language is _CLOUD else a, f"{opening} {told} {after} {closing}")


# ---------------------------------------------------------------- what the world knows


def script(world: World, seed: int) -> Script:
    """For each step of `steps` what a perfect assistant would reply about texts of this world."""
    language = LANGUAGES[world.flavour]
    themes = [*language.changing, language.calm]
    lines = {(line.entity, line.kind.attribute): line for line in (*world.lines, *world.calm)}
    kinds = {kind.attribute: kind for theme in themes for kind in theme.kinds}

    def theme_of(title: str) -> Theme | None:
        return next((theme for theme in themes if theme.title in title), None)

    def told(text: str) -> tuple[str, str, str, bool] | None:
        """Attribute, entity, value and whether it is a second one."""
        match = _TOLD.search(text)
        return None if match is None else (match[2], match[3], match[4], match[1] == "A second")

    def subject(text: str) -> str:
        """The attribute that a passage speaks of."""
        return next((attribute for attribute in kinds if f" {attribute} " in f" {leaks.key(text)} "), "")

    def asked(question: str) -> Line:
        match = _ASKED.fullmatch(question)
        assert match is not None, question
        return lines[match[2], match[1]]

    def yes(value: bool) -> steps.Verdict:
        return "yes" if value else "no"

    def concepts(page: steps.Page) -> dict[str, steps.Concept]:
        found = told(page.text)
        if found is None:
            return {}
        line = lines[found[1], found[0]]
        act = _ACTS[zlib.crc32(page.text.encode()) % len(_ACTS)]
        replies = [steps.Concept(f"{act} {line.theme.title}", line.entity)]
        if world.flavour == "outbreak":
            replies.append(steps.Concept("Publication of a bulletin by an authority", "World Health Office"))
        return {str(n): reply for n, reply in enumerate(replies, 1)}

    def fits(label: str, concept: str) -> bool:
        return theme_of(label) is not None and theme_of(label) is theme_of(concept)

    def place(given: steps.Loose) -> steps.Place:
        return steps.Place(next((n for n, label in enumerate(given.labels, 1) if fits(label, given.concept)), 0))

    def coherent(given: steps.Texts) -> steps.Same:
        found = {theme.title if (theme := theme_of(text)) else "" for text in given.texts}
        return steps.Same(yes(len(found) == 1 and "" not in found))

    def label(given: steps.Texts) -> steps.Title:
        theme = theme_of(given.texts[0])
        return steps.Title(given.texts[0] if theme is None else f"Any {theme.title}")

    def attribute(given: steps.Passages) -> steps.Attribute:
        subjects = [subject(text) for text in given.texts]
        return steps.Attribute(subjects[0] if len(set(subjects)) == 1 else "")

    def change(given: steps.Evidence) -> steps.Change:
        values = [found for passage in given.passages if (found := told(passage.text)) is not None]
        replaced = [found[2] for n, found in enumerate(values) if n == 0 or not found[3]]
        if len(set(replaced)) < 2:
            return steps.Change("no")
        return steps.Change("yes", f"It was {replaced[0]} and is {replaced[-1]}.")

    def question(given: steps.Changed) -> steps.Asked:
        about = given.evidence.about
        return steps.Asked(lines[about.entity, about.attribute].question)

    def relevant(given: steps.Source) -> steps.Relevant:
        line, found = asked(given.question), told(given.document.text)
        return steps.Relevant(yes(found is not None and found[:2] == (line.kind.attribute, line.entity)))

    def extract(given: steps.Source) -> steps.Extracted:
        found = told(given.document.text)
        return steps.Extracted("" if found is None else found[2])

    def evolves(given: steps.Answers) -> steps.Evolves:
        return steps.Evolves(yes(len({answer.answer for answer in given.answers}) > 1))

    def final(given: steps.Answers) -> steps.Final:
        used: list[steps.Found] = []
        for answer in given.answers:
            used.append(answer)
            if "A second " not in answer.context:
                break
        return steps.Final(" and ".join(a.answer for a in reversed(used)), [a.id for a in reversed(used)])

    def stale(given: steps.Older) -> steps.Stale:
        right = given.answer.split(" and ")
        return steps.Stale([n for n, old in enumerate(given.older, 1) if old not in right])

    def wrong_values(question: str, answer: str, first: Sequence[str] = ()) -> list[str]:
        """Values of the same kind, `first` before others, none of them part of the answer."""
        line = asked(question)
        listed = [] if line.kind.values in ("places", "names", "people") else line.kind.values.split("|")
        others = [
            version.value
            for other in (*world.lines, *world.calm)
            if other.kind.values == line.kind.values
            for version in (other.before, *other.changes)
        ]
        drawn = sorted({*listed, *others})
        Random(f"{seed} {question} {answer}").shuffle(drawn)
        return [value for value in dict.fromkeys([*first, *drawn]) if value not in answer.split(" and ")]

    def alike(answer: str, wrong: Sequence[str]) -> list[str]:
        """Wrong values two at a time where the right ones are two, so that the right one does not stand out."""
        if " and " not in answer:
            return list(wrong)
        return [f"{a} and {b}" for a, b in zip(wrong, [*wrong[1:], *wrong[:1]], strict=True)] if len(wrong) > 1 else []

    def choice(given: steps.Sheet) -> steps.Choice:
        kind = asked(given.question).kind.values
        seen = {
            found[2]: n
            for n, text in reversed(list(enumerate(given.chunks, 1)))
            if (found := told(text)) is not None and kinds[found[0]].values == kind
        }
        first = sorted(seen, key=lambda value: seen[value])
        wrong = wrong_values(given.question, given.answer, first)[:3]
        if len(wrong) < 3:
            return steps.Choice("")
        options = dict(zip("ABCD", [given.answer, *alike(given.answer, wrong)], strict=True))
        used = {letter: seen[value] for letter, value in zip("BCD", wrong, strict=True) if value in seen}
        return steps.Choice(given.question, options, "A", used)

    def pair(given: steps.Answered) -> steps.Pair:
        line = asked(given.question)
        wrong = alike(given.answer, wrong_values(given.question, given.answer))[:1]
        if not wrong:
            return steps.Pair("", "", "There is no other value.")
        about = f"the {line.kind.attribute} of {line.entity}?"
        return steps.Pair(f"Is {given.answer} {about}", f"Is {wrong[0]} {about}")

    def static(given: steps.Calm) -> steps.Static:
        found = told(given.document.text)
        line = None if found is None else lines[found[1], found[0]]
        if found is None or line is None or line.theme is not language.calm:
            return steps.Static("")
        return steps.Static(line.question, found[2], found[0])

    return {
        "concepts": concepts,
        "same_entity": lambda given: steps.Same(yes(given.first == given.second)),
        "virus": lambda given: steps.Virus(yes(given.text.endswith(" virus"))),
        "coherent": coherent,
        "label": label,
        "merge": lambda given: steps.Merge(yes(fits(given.first, given.second))),
        "fits": lambda given: steps.Fits(yes(fits(given.label, given.concept))),
        "place": place,
        "attribute": attribute,
        "change": change,
        "question": question,
        "list_question": lambda given: steps.Listing("no"),
        "same_question": lambda given: steps.Same(yes(leaks.key(given.first) == leaks.key(given.second))),
        "relevant": relevant,
        "extract": extract,
        "evolves": evolves,
        "final": final,
        "stale": stale,
        "choice": choice,
        "pair": pair,
        "static": static,
    }
