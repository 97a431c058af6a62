"""Small synthetic worlds of dated announcements, as a feed tells of them.

`cloud`: services of a cloud provider whose limits, prices, regions and tools change. `outbreak`: reports on viruses
whose advice, risk, spread and names change. In both some facts are told once and stay. Every value is told in one
sentence, "The <attribute> of <entity> is (now) <value>."
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from random import Random
from typing import Literal

from msgspec import Struct

from upkeep.building.names import Names

from .feeds import Entry, Section

Flavour = Literal["cloud", "outbreak"]


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

_FIRST, _EARLY, _LATE = date(2019, 2, 1), date(2023, 8, 1), date(2024, 12, 1)


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
