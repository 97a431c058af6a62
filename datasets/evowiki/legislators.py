"""The members of the United States Congress at a date, from the YAML files of `unitedstates/congress-legislators`.

A snapshot is three files, `legislators-DATE.yaml`, `committees-DATE.yaml` and `committee-membership-DATE.yaml`: the
project's `legislators-current.yaml`, `committees-current.yaml` and `committee-membership-current.yaml` as they were on
that date. Pages are written from the records in regular sentences: one for each person, state, district, committee and
post, so that a page names what its facts say and no more.
"""

from __future__ import annotations

import calendar
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import polars as pl

from upkeep.building.reading import Distinct, Faults
from upkeep.errors import UpkeepError
from upkeep.yaml_files import INPUT, read_yaml

from .facts import ENTITIES, FACTS, RELATIONS, Snapshot, Written
from .views import page_views

T = TypeVar("T")

FORM = "records of the documented form"
KINDS = ("legislators", "committees", "committee-membership")
PARTIES = {"Democrat": "Democratic Party", "Republican": "Republican Party"}
"""Others are named as the records name them."""
POSTS = (("Vice", "vice chair"), ("Chair", "chair"), ("Ranking", "ranking member"), ("Cochair", "co-chair"))
"""How a title in a committee begins, and the post that it means."""
RELATIONS_OF = {
    "party": ("party", False),
    "state": ("state", False),
    "district": ("district", False),
    "office": ("office address", False),
    "born": ("date of birth", False),
    "seniority": ("rank among the state's two senators", False),
    "committee": ("full committee, or one of the full committees,", False),
    "senior_senator": ("senior senator", True),
    "junior_senator": ("junior senator", True),
    "representative": ("representative", True),
    "holder": ("holder", True),
    "parent": ("parent committee", False),
}
"""Relation -> label, and whether its objects are persons. A label says what is meant where the word alone has several
meanings (an office, seniority), and that one of several right answers is enough (a committee)."""


class Id(msgspec.Struct, frozen=True):
    bioguide: str
    wikipedia: str | None = None
    """Title of the page in English Wikipedia."""


class Name(msgspec.Struct, frozen=True):
    first: str
    last: str
    official_full: str | None = None


class Bio(msgspec.Struct, frozen=True):
    birthday: str | None = None


class Term(msgspec.Struct, frozen=True):
    type: str
    start: str
    end: str
    state: str
    party: str | None = None
    district: int | None = None
    state_rank: str | None = None
    office: str | None = None


class Role(msgspec.Struct, frozen=True):
    title: str
    start: str
    end: str | None = None


class Person(msgspec.Struct, frozen=True):
    """A record of `legislators`."""

    id: Id
    name: Name
    terms: list[Term]
    bio: Bio = Bio()
    leadership_roles: list[Role] = []

    @property
    def label(self) -> str:
        return self.name.official_full or f"{self.name.first} {self.name.last}"


class Part(msgspec.Struct, frozen=True):
    """A subcommittee."""

    name: str
    thomas_id: str


class Committee(msgspec.Struct, frozen=True):
    """A record of `committees`."""

    name: str
    thomas_id: str
    type: str
    jurisdiction: str = ""
    subcommittees: list[Part] = []


class Member(msgspec.Struct, frozen=True):
    """A seat in a committee."""

    bioguide: str
    name: str
    title: str | None = None


# ---------------------------------------------------------------- files


def files(folder: Path, date: str) -> list[Path]:
    """The three files of a snapshot.

    Raises:
        UpkeepError: one is missing; says which dates there are.
    """
    found = [folder / f"{kind}-{date}.yaml" for kind in KINDS]
    for file in found:
        if not file.is_file():
            there = sorted(f.stem.removeprefix("legislators-") for f in folder.glob("legislators-*.yaml"))
            raise UpkeepError(
                "no snapshot of this date",
                where=file,
                expected=f"a date of {', '.join(there) or 'some files'}, as options init, cutoff and current name it",
                found=date,
            )
    return found


def _records(path: Path, kind: type[T], faults: Faults) -> Iterator[tuple[str, T]]:
    """(place, record) of a YAML list; a record of another form is a fault."""
    for n, raw in enumerate(read_yaml(path, list[dict[str, Any]], expected=FORM, limits=INPUT), 1):
        try:
            yield f"{path}, item {n}", msgspec.convert(raw, kind)
        except msgspec.ValidationError as error:
            faults("broken_record", f"{path}, item {n}", f"not a record: {error}", str(raw)[:80])


# ---------------------------------------------------------------- words


def state_name(code: str) -> str:
    """`Ohio` for `OH`; territories too."""
    return STATES.get(code, code)


def ordinal(n: int) -> str:
    """`13th`."""
    ending = "th" if 10 <= n % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"


def district_name(state: str, number: int) -> str:
    """`Ohio's 13th congressional district`; number 0 is a whole state."""
    place = state_name(state)
    owner = f"{place}'" if place.endswith("Islands") else f"{place}'s"
    return f"{owner} {ordinal(number) if number else 'at-large'} congressional district"


def written_date(iso: str) -> str:
    """`November 9, 1952`."""
    year, month, day = (int(part) for part in iso.split("-"))
    return f"{calendar.month_name[month]} {day}, {year}"


def listed(names: Iterable[str]) -> str:
    """`A, B and C`."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


# ---------------------------------------------------------------- a snapshot


class _Base:
    """Grows a snapshot: facts, entities, and the sentences of each page."""

    def __init__(self) -> None:
        self.facts: list[tuple[str, str, str, str]] = []
        self.entities: dict[str, tuple[str, str | None, bool]] = {}
        self.pages: dict[str, list[str]] = {}

    def entity(self, id: str, label: str, title: str | None = None, human: bool = False) -> str:
        self.entities.setdefault(id, (label, title, human))
        return id

    def fact(self, subject: str, relation: str, object: str, nth: int | str = "") -> None:
        """`nth` tells several statements of a subject and relation apart; none is needed where there is but one."""
        self.facts.append((f"{subject}|{relation}|{nth}".removesuffix("|"), subject, relation, object))

    def tell(self, entity: str, sentence: str) -> None:
        title = self.entities[entity][1]
        assert title is not None, "only what has a page is told of"
        self.pages.setdefault(title, []).append(sentence)

    def snapshot(self, date: str, views: Mapping[str, int]) -> Snapshot:
        rows = [(id, *said, views.get(id)) for id, said in sorted(self.entities.items())]
        used = {relation for _, _, relation, _ in self.facts}
        return Snapshot(
            date,
            pl.DataFrame(sorted(self.facts), schema=FACTS, orient="row"),
            pl.DataFrame(rows, schema=ENTITIES, orient="row"),
            pl.DataFrame(
                [(relation, *said) for relation, said in RELATIONS_OF.items() if relation in used],
                schema=RELATIONS,
                orient="row",
            ),
            Written({title: " ".join(sentences) for title, sentences in sorted(self.pages.items())}),
        )


def read(folder: Path, date: str, faults: Faults, views: Path | None = None) -> Snapshot:
    """The snapshot of a date.

    Args:
        views: page views (see `page_views`) of the persons' pages in Wikipedia; what else there is has none.

    Raises:
        UpkeepError: a file is missing or broken, or a fault is refused.
    """
    people_file, committees_file, seats_file = files(folder, date)
    base, distinct = _Base(), Distinct(faults)
    people = [p for where, p in _records(people_file, Person, faults) if distinct(p.id.bioguide, where)]
    committees = [c for where, c in _records(committees_file, Committee, faults) if distinct(c.thomas_id, where)]
    seats = read_yaml(seats_file, dict[str, list[Member]], expected=FORM, limits=INPUT, strict=False)
    titles = _titles(people)
    for person in people:
        if person.terms:
            _tell_person(base, person, titles[person.id.bioguide])
        else:
            faults("broken_record", f"{people_file}, {person.id.bioguide}", "no term of office")
    known = {person.id.bioguide: person for person in people if person.terms}
    for committee in committees:
        _tell_committee(base, committee, seats, known)
    _tell_roles(base, list(known.values()), date)
    return base.snapshot(date, _viewed(people, views) if views else {})


def _viewed(people: list[Person], views: Path) -> dict[str, int]:
    """Person -> views of his or her page in Wikipedia."""
    pages = {p.id.bioguide: p.id.wikipedia.replace("_", " ") for p in people if p.id.wikipedia}
    seen = dict(page_views(views, pl.Series(pages.values(), dtype=pl.String)).rows())
    return {person: seen[page] for person, page in pages.items() if page in seen}


def _titles(people: list[Person]) -> dict[str, str]:
    """The page of each person: the name, with the identifier where two have it."""
    names = [person.label for person in people]
    return {p.id.bioguide: p.label if names.count(p.label) == 1 else f"{p.label} ({p.id.bioguide})" for p in people}


def _tell_person(base: _Base, person: Person, title: str) -> None:
    """A person's page, and what the pages of state and district say of it."""
    term, name = person.terms[-1], person.label
    me = base.entity(person.id.bioguide, name, title, human=True)
    place = state_name(term.state)
    state = base.entity(f"state {term.state}", place, place)
    base.tell(me, f"{name} is an American politician from {place}.")
    base.fact(me, "state", state)
    if term.type == "sen":
        base.tell(me, f"{name} is the {term.state_rank} senator of that state, and so a member of the Senate.")
        if term.state_rank in ("senior", "junior"):
            base.fact(me, "seniority", base.entity(f"rank {term.state_rank}", term.state_rank))
            base.fact(state, f"{term.state_rank}_senator", me)
            base.tell(state, f"The {term.state_rank} senator of {place} is {name}.")
    else:
        base.tell(me, f"{name} is a member of the House of Representatives.")
        if term.district is not None:
            where = district_name(term.state, term.district)
            district = base.entity(f"district {term.state} {term.district}", where, where)
            base.tell(me, f"There {name} speaks for {where}.")
            base.fact(me, "district", district)
            base.fact(district, "representative", me)
            base.fact(district, "state", state)
            base.tell(district, f"{where} is a constituency of the House of Representatives in {place}.")
            base.tell(district, f"The representative of {where} is {name}.")
            base.tell(state, f"{where} is one of the constituencies of {place}.")
    if term.party:
        party = PARTIES.get(term.party, term.party)
        base.fact(me, "party", base.entity(f"party {term.party}", party))
        base.tell(me, f"{name} belongs to the {party}." if term.party in PARTIES else f"{name} sits as an {party}.")
    if person.bio.birthday:
        born = written_date(person.bio.birthday)
        base.fact(me, "born", born)
        base.tell(me, f"{name} was born on {born}.")
    if term.office:
        base.fact(me, "office", term.office)
        base.tell(me, f"The office address of {name} is {term.office}.")
    base.tell(me, f"The present term of {name} began on {written_date(term.start)}.")


def _tell_committee(
    base: _Base, committee: Committee, seats: Mapping[str, list[Member]], people: Mapping[str, Person]
) -> None:
    """A committee's page, those of its subcommittees and of their posts, and the members' own sentences.

    A committee's page names no members: who was a member and becomes chair would have been named there before.
    """
    me = base.entity(f"committee {committee.thomas_id}", committee.name, committee.name)
    base.tell(me, f"The {committee.name} is a body of the United States Congress.")
    if committee.jurisdiction:
        base.tell(me, " ".join(committee.jurisdiction.split()))
    members = [member for member in seats.get(committee.thomas_id, []) if member.bioguide in people]
    seen = dict.fromkeys(member.bioguide for member in members)
    for person in seen:
        base.fact(person, "committee", me, committee.thomas_id)
        base.tell(person, f"{people[person].label} sits on the {committee.name}.")
    _tell_posts(base, committee.thomas_id, committee.name, seats.get(committee.thomas_id, []), people)
    for part in committee.subcommittees:
        name = f"Subcommittee on {part.name} of the {committee.name}"
        # Numbers are used again for other subcommittees, so the name is a part of the identifier.
        code = f"{committee.thomas_id}{part.thomas_id}"
        mine = base.entity(f"committee {code} {part.name}", name, name)
        base.fact(mine, "parent", me)
        base.tell(mine, f"The {name} is a body of the United States Congress.")
        _tell_posts(base, f"{code} {part.name}", name, seats.get(code, []), people)


def _tell_posts(base: _Base, id: str, body: str, members: list[Member], people: Mapping[str, Person]) -> None:
    holders: dict[str, list[str]] = {}
    for member in members:
        title = next((post for start, post in POSTS if (member.title or "").startswith(start)), None)
        if title and member.bioguide in people:
            holders.setdefault(title, []).append(member.bioguide)
    for title, persons in holders.items():
        _tell_post(base, f"post {id} {title}", f"post of {title} of the {body}", persons, people)


def _tell_roles(base: _Base, people: list[Person], date: str) -> None:
    """Posts in the leadership of a chamber."""
    holders: dict[str, list[str]] = {}
    known = {person.id.bioguide: person for person in people}
    for person in people:
        for role in person.leadership_roles:
            if role.start <= date and (role.end is None or date < role.end):
                holders.setdefault(role.title, []).append(person.id.bioguide)
    for title, persons in sorted(holders.items()):
        _tell_post(base, f"post {title}", f"post of {title}", persons, known)


def _tell_post(base: _Base, id: str, name: str, persons: list[str], people: Mapping[str, Person]) -> None:
    """A post's page, and the holders' own sentence, so that a post is named by its holders alone."""
    me = base.entity(id, f"the {name}", name[0].upper() + name[1:])
    for nth, person in enumerate(dict.fromkeys(persons)):
        base.fact(me, "holder", person, nth)
        base.tell(person, f"{people[person].label} holds the {name}.")
    holders = listed(people[person].label for person in dict.fromkeys(persons))
    base.tell(me, f"The {name} is a post in the United States Congress.")
    base.tell(me, f"The {name} is held by {holders}.")


STATES = {
    "AL": "Alabama", "AK": "Alaska", "AS": "American Samoa", "AZ": "Arizona", "AR": "Arkansas", "CA": "California",
    "CO": "Colorado", "CT": "Connecticut", "DE": "Delaware", "DC": "District of Columbia", "FL": "Florida",
    "GA": "Georgia", "GU": "Guam", "HI": "Hawaii", "ID": "Idaho", "IL": "Illinois", "IN": "Indiana", "IA": "Iowa",
    "KS": "Kansas", "KY": "Kentucky", "LA": "Louisiana", "ME": "Maine", "MD": "Maryland", "MA": "Massachusetts",
    "MI": "Michigan", "MN": "Minnesota", "MS": "Mississippi", "MO": "Missouri", "MT": "Montana", "NE": "Nebraska",
    "NV": "Nevada", "NH": "New Hampshire", "NJ": "New Jersey", "NM": "New Mexico", "NY": "New York",
    "NC": "North Carolina", "ND": "North Dakota", "MP": "Northern Mariana Islands", "OH": "Ohio", "OK": "Oklahoma",
    "OR": "Oregon", "PA": "Pennsylvania", "PR": "Puerto Rico", "RI": "Rhode Island", "SC": "South Carolina",
    "SD": "South Dakota", "TN": "Tennessee", "TX": "Texas", "UT": "Utah", "VT": "Vermont",
    "VI": "Virgin Islands", "VA": "Virginia", "WA": "Washington", "WV": "West Virginia", "WI": "Wisconsin",
    "WY": "Wyoming",
}  # fmt: skip
