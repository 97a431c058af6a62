"""Small synthetic worlds of dated announcements, as a feed tells of them.

`cloud`: services of a cloud provider whose limits, prices, regions and tools change. `outbreak`: reports on viruses
whose advice, risk, spread and names change. In both some facts are told once and stay. Every value is told in one
sentence, "The <attribute> of <entity> is (now) <value>."
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
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
    asks: str = ""
    """Another question than the usual one: of an attribute that grows, one that fits one value and two. {e} is the
    entity."""
    claims: str = ""
    """The yes-no question to it, {v} the value."""
    spare: str = ""
    """More listed values, for where the others have all been told."""

    @property
    def listed(self) -> list[str]:
        """All listed values; none where they are invented."""
        return "|".join(filter(None, (self.values, self.spare))).split("|") if "|" in self.values else []

    @property
    def grows(self) -> bool:
        """Whether its first change adds a second value beside the first."""
        return bool(self.asks)


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


_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
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
                Kind(
                    "monthly price",
                    "4 dollars|6 dollars|9 dollars|12 dollars|15 dollars|18 dollars|25 dollars",
                    spare="30 dollars|40 dollars",
                ),
                Kind(
                    "setup fee",
                    "1 dollar|2 dollars|3 dollars|5 dollars|8 dollars|10 dollars|20 dollars",
                    spare="7 dollars",
                ),
            ),
        ),
        Theme(
            "place where data are kept",
            (
                Kind("home region", "places"),
                Kind("backup region", "places", "Where are backups of {e} kept?", "Are backups of {e} kept in {v}?"),
            ),
        ),
        Theme("official name of a tool", (Kind("command line tool", "names"), Kind("web console", "names"))),
    ),
    calm=Theme(
        "launch with fixed origins",
        (
            Kind("inventor", "people"),
            Kind("test town", "places"),
            Kind("logo colour", "red|blue|green|white|yellow", spare="brown|purple|pink|black|grey"),
        ),
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
                Kind(
                    "quarantine time", "3 days|5 days|7 days|10 days|14 days|21 days|28 days", spare="35 days|42 days"
                ),
                Kind(
                    "safe distance",
                    "1 metre|2 metres|3 metres|4 metres|5 metres|6 metres|8 metres",
                    spare="9 metres|10 metres",
                ),
            ),
        ),
        Theme(
            "assessment of global risk",
            (
                Kind("risk level", "minor|mild|low|moderate|high|grave|severe|extreme"),
                Kind("alert colour", "green|yellow|orange|red|purple|white|blue|black"),
            ),
        ),
        Theme(
            "region most affected by cases",
            (
                Kind("main region", "places"),
                Kind(
                    "treatment town",
                    "places",
                    "Where are patients with {e} treated?",
                    "Are patients with {e} treated in {v}?",
                ),
            ),
        ),
        Theme("vaccine recommended against infection", (Kind("standard vaccine", "names"), Kind("booster", "names"))),
    ),
    calm=Theme(
        "first description and its origin",
        (Kind("discoverer", "people"), Kind("source town", "places"), Kind("discovery month", _MONTHS)),
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
    named_last: bool = True
    """Whether its document names no other value after it."""


@dataclass(frozen=True, slots=True)
class Line:
    """One property of one entity: what it was at first, and what it became."""

    entity: str
    theme: Theme
    kind: Kind
    before: Version
    changes: tuple[Version, ...] = ()
    rejected: tuple[str, ...] = ()
    """Values that a fact that stays might have had, told beside it."""

    @property
    def question(self) -> str:
        who = "Who" if self.kind.values == "people" else "What"
        return self.kind.asks.format(e=self.entity) or f"{who} is the {self.kind.attribute} of {self.entity}?"

    def claim(self, value: str) -> str:
        """The yes-no question whether it is this value."""
        subject = f"the {self.kind.attribute} of {self.entity}"
        if self.kind.claims:
            return self.kind.claims.format(e=self.entity, v=value)
        return f"Is {subject} {value}?" if "|" in self.kind.values else f"Is {value} {subject}?"


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
    language, used = LANGUAGES[flavour], Counter[str]()
    more = Random()  # of its own: `rng` draws the same entities, dates and values whatever is told beside them
    more.setstate(rng.getstate())
    named_last, calm_last = _one_in(4, more), _one_in(5, more)
    lines: list[Line] = []
    for n in range(sizes.entities):
        theme = language.changing[n % len(language.changing)]
        entity = language.entity.format(names.thing())
        shared = _days(rng, sizes.versions, early=n % 4 != 3)
        for kind in theme.kinds:
            values = _values(kind, sizes.versions, rng, names, used, more)
            days = shared if flavour == "outbreak" else _days(rng, sizes.versions, early=rng.random() < 0.75)
            told = zip(days, values, strict=True)
            versions = [
                Version(day, value, kind.grows and place == 1, next(named_last))
                for place, (day, value) in enumerate(told)
            ]
            lines.append(Line(entity, theme, kind, versions[0], tuple(versions[1:])))
    calm = []
    for n in range(sizes.calm):
        kind = language.calm.kinds[n % len(language.calm.kinds)]
        entity = language.entity.format(names.thing())
        day = _FIRST + timedelta(days=rng.randrange((_LATE - _FIRST).days))
        (value,) = _values(kind, 1, rng, names, used, more)
        calm.append(Line(entity, language.calm, kind, Version(day, value, named_last=next(calm_last))))
    calm = [replace(one, rejected=_rejected(one, names, more)) for one in calm]
    return World(flavour, tuple(lines), tuple(calm))


def _one_in(count: int, rng: Random) -> Iterator[bool]:
    """True once in each so many: who takes the value that was named last is right about as often as one who guesses."""
    while True:
        yield from rng.sample([True, *[False] * (count - 1)], count)


def _values(kind: Kind, count: int, rng: Random, names: Names, used: Counter[str], more: Random) -> list[str]:
    """Values in order of time, none of them among the two before it. A listed one that was told more often than another
    gives way to one that was told least."""
    if not kind.listed:
        return [_invented(kind, names) for _ in range(count)]
    found: list[str] = []
    while len(found) < count:
        value = rng.choice([value for value in kind.values.split("|") if value not in found[-2:]])
        others = [other for other in kind.listed if other not in found[-2:]]
        rarest = min(used[other] for other in others)
        if used[value] > rarest:
            value = more.choice([other for other in others if used[other] == rarest])
        found.append(value)
        used[found[-1]] += 1
    return found


def _rejected(line: Line, names: Names, rng: Random) -> tuple[str, ...]:
    """Three other values of a fact that stays, about as long as the right one."""
    value = line.before.value
    others = [other for other in line.kind.listed if other != value]
    pool = rng.sample(others, len(others)) or [_invented(line.kind, names) for _ in range(12)]
    return tuple(sorted(pool, key=lambda other: (abs(len(other) - len(value)), -len(other)))[:3])


def _invented(kind: Kind, names: Names) -> str:
    makers: dict[str, Callable[[], str]] = {"places": names.place, "names": names.thing, "people": names.person}
    return makers[kind.values]()


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
        considered = "{}, {} or {}".format(*line.rejected)
        if version.named_last:
            opening = f"For {e} there had been talk of {considered}."
        else:
            after = f"It was not to be {considered}."
    elif first:
        opening, told = f"A first {a} is set for {e}.", f"The {a} of {e} is {version.value}."
        after = f"This {a} holds for all {language.users}."
    elif version.adds:
        opening, told = f"A {a} is added for {e}.", f"A second {a} of {e} is now {version.value}."
        after = f"The {a} from before stays."
    else:
        opening, told = f"The {a} changes for {e}.", f"The {a} of {e} is now {version.value}."
        held: list[str] = []
        for one in (line.before, *line.changes)[: line.changes.index(version) + 1]:
            held = [*held, one.value] if one.adds else [one.value]
        former = "" if version.named_last else f", {' and '.join(held)},"
        after = (
            f"The {a}s from before{former} no longer hold."
            if line.kind.grows
            else f"The {a} from before{former} no longer holds."
        )
    # With the title five sentences, the value in the third: both windows of three hold it.
    closing = f"Ask the {language.office} about the {a} of {e}."
    return Section("" if language is _CLOUD else a, f"{opening} {told} {after} {closing}")
