"""A congress of real records gives questions of every level, and another program finds their answers in its files."""

from __future__ import annotations

import calendar
import functools
import re
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from conftest import DATA, spec_of
from evowiki import legislators
from evowiki_worlds import asked, built, mini
from upkeep.building import leaks, store
from upkeep.building.reading import Faults

__all__ = ["mini"]


LEGISLATORS = DATA / "legislators"


@pytest.fixture(scope="module")
def congress(tmp_path_factory: pytest.TempPathFactory) -> store.Dataset:
    data = {"evowiki_legislators.snapshots": str(LEGISLATORS)}
    return built(tmp_path_factory.mktemp("congress"), "evowiki_legislators", data=data)


# ---------------------------------------------------------------- the built dataset


@pytest.mark.parametrize("name", ["mini", pytest.param("congress", marks=pytest.mark.data)])
def test_evidence_holds_the_golden_sentences_and_these_an_answer(name: str, request: pytest.FixtureRequest) -> None:
    data: store.Dataset = request.getfixturevalue(name)
    text = dict(data.documents.select("document_id", "text").iter_rows())
    for row in asked(data).iter_rows(named=True):
        there = leaks.key(" ".join(text[id] for id in row["evidence"]))
        assert all(leaks.key(sentence) in there for sentence in row["context"]), row
        assert leaks.tells(" ".join(row["context"]), row["answers"]), row
        assert len(row["context"]) >= int(row["slice_hop_number"])
        assert (row["slice_level"] == "evolved") == bool(row["outdated"]) == (row["slice_changed"] != "none")


# ---------------------------------------------------------------- legislators


@pytest.mark.data
def test_the_congress_gives_enough_questions_of_every_level_and_number_of_hops(congress: store.Dataset) -> None:
    rows = asked(congress)
    assert len(rows) >= 2000
    counts = rows.group_by("slice_level", "slice_hop_number").len()
    assert len(counts) == 9
    assert counts["len"].min() >= 100  # type: ignore[operator]
    assert congress.documents["tokens"].max() <= 256  # type: ignore[operator]


@functools.cache
def records(date: str) -> Records:
    return Records(date)


class Records:
    """The raw files of a date, read and understood apart from the builder: who is what, relation by relation."""

    def __init__(self, date: str) -> None:
        def load(kind: str) -> Any:
            text = (LEGISLATORS / f"{kind}-{date}.yaml").read_text(encoding="utf-8")
            return yaml.load(text, Loader=yaml.CSafeLoader)

        self.date = date
        self.people = {one["id"]["bioguide"]: one for one in load("legislators")}
        self.members: dict[str, list[dict[str, Any]]] = load("committee-membership")
        self.bodies: dict[str, tuple[str, str | None]] = {}
        """Code -> name and parent's code."""
        for one in load("committees"):
            self.bodies[one["thomas_id"]] = (one["name"], None)
            for part in one.get("subcommittees", []):
                name = f"Subcommittee on {part['name']} of the {one['name']}"
                self.bodies[one["thomas_id"] + part["thomas_id"]] = (name, one["thomas_id"])

    def term(self, who: str) -> dict[str, Any]:
        return self.people[who]["terms"][-1]  # type: ignore[no-any-return]

    def name(self, node: str) -> str:
        """What an object is called at this date."""
        kind, _, rest = node.partition(":")
        if kind == "person":
            names = self.people[rest]["name"]
            return names.get("official_full") or f"{names['first']} {names['last']}"
        if kind == "district":
            state, number = rest.split("-")
            place, n = PLACES[state], int(number)
            ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
            whose = f"{place}'" if place in ("Virgin Islands", "Northern Mariana Islands") else f"{place}'s"
            return f"{whose} {f'{n}{ending}' if n else 'at-large'} congressional district"
        if kind == "body":
            return self.bodies[rest][0]
        return PLACES[rest] if kind == "state" else rest

    def subject(self, label: str) -> str | None:
        """The thing of a question's words; None where it is not there at this date."""
        if label.startswith("the post of "):
            return self._post(label.removeprefix("the post of "))
        for code in PLACES:
            if PLACES[code] == label:
                return f"state:{code}"
        if label.endswith(" congressional district"):
            seats = {f"district:{t['state']}-{t['district']}" for t in map(self.term, self.people) if "district" in t}
            return next((seat for seat in seats if self.name(seat) == label), None)
        for who in self.people:
            if self.name(f"person:{who}") == label:
                return f"person:{who}"
        return next((f"body:{code}" for code, (name, _) in self.bodies.items() if name == label), None)

    def step(self, node: str, relation: str) -> list[str]:
        """Where a relation leads from a thing at this date."""
        kind, _, rest = node.partition(":")
        if kind == "person" and rest in self.people:
            return self._of_person(rest, relation)
        if kind == "post" and relation == "holder":
            return self._holders(rest)
        if kind == "body" and relation == "parent committee" and rest in self.bodies and self.bodies[rest][1]:
            return [f"body:{self.bodies[rest][1]}"]
        if kind == "state" and relation in ("senior senator", "junior senator"):
            rank = relation.split()[0]
            mine = [w for w in self.people if (self.term(w)["state"], self.term(w).get("state_rank")) == (rest, rank)]
            return [f"person:{who}" for who in mine if self.term(who)["type"] == "sen"]
        if kind == "district":
            state, number = rest.split("-")
            mine = [
                w for w in self.people if (self.term(w)["state"], str(self.term(w).get("district"))) == (state, number)
            ]
            return {"representative": [f"person:{w}" for w in mine], "state": [f"state:{state}"] if mine else []}[
                relation
            ]
        return []

    def _of_person(self, who: str, relation: str) -> list[str]:
        term = self.term(who)
        if relation == "party":
            written = {"Democrat": "Democratic Party", "Republican": "Republican Party"}
            return [f"party:{written.get(term['party'], term['party'])}"]
        if relation == "state":
            return [f"state:{term['state']}"]
        if relation == "district":
            return [f"district:{term['state']}-{term['district']}"] if term["type"] == "rep" else []
        if relation == "office address":
            return [f"office:{term['office']}"] if term.get("office") else []
        if relation == "rank among the state's two senators":
            return [f"rank:{term['state_rank']}"] if term["type"] == "sen" else []
        if relation == "date of birth":
            year, month, day = self.people[who]["bio"]["birthday"].split("-")
            return [f"day:{MONTHS[int(month)]} {int(day)}, {year}"]
        if relation == "full committee, or one of the full committees,":
            sits = [code for code, seats in self.members.items() if any(s["bioguide"] == who for s in seats)]
            return [f"body:{code}" for code in sits if code in self.bodies and self.bodies[code][1] is None]
        return []

    def _post(self, words: str) -> str:
        """A post in a committee by title and code. A committee is the same under another name; the number of a
        subcommittee is used again for others, so its name belongs to it."""
        for title in TITLES:
            if words.startswith(f"{title} of the "):
                for code, (body, parent) in self.bodies.items():
                    if body == words.removeprefix(f"{title} of the "):
                        return f"post:{title}|{code}|{body.partition(' of the ')[0] if parent else ''}"
        return f"post:{words}"

    def _holders(self, post: str) -> list[str]:
        if "|" in post:
            title, code, part = post.split("|")
            if code not in self.bodies or (part and not self.bodies[code][0].startswith(f"{part} of the ")):
                return []
            seats = self.members.get(code, [])
            return [f"person:{s['bioguide']}" for s in seats if s.get("title", "").startswith(TITLES[title])]
        return [
            f"person:{who}"
            for who, person in self.people.items()
            for role in person.get("leadership_roles", [])
            if role["title"] == post and role["start"] <= self.date < role.get("end", "9999")
        ]

    def follow(self, start: str, relations: list[str]) -> list[str] | None:
        """Where a chain leads; None where it leads nowhere, or forks before its end."""
        ends = [start]
        for relation in relations:
            if len(ends) != 1:
                return None
            ends = sorted(set(self.step(ends[0], relation)))
        return ends or None


PLACES = dict(
    pair.split("=")
    for pair in """AL=Alabama|AK=Alaska|AS=American Samoa|AZ=Arizona|AR=Arkansas|CA=California|CO=Colorado|
CT=Connecticut|DE=Delaware|DC=District of Columbia|FL=Florida|GA=Georgia|GU=Guam|HI=Hawaii|ID=Idaho|IL=Illinois|
IN=Indiana|IA=Iowa|KS=Kansas|KY=Kentucky|LA=Louisiana|ME=Maine|MD=Maryland|MA=Massachusetts|MI=Michigan|
MN=Minnesota|MS=Mississippi|MO=Missouri|MT=Montana|NE=Nebraska|NV=Nevada|NH=New Hampshire|NJ=New Jersey|
NM=New Mexico|NY=New York|NC=North Carolina|ND=North Dakota|MP=Northern Mariana Islands|OH=Ohio|
OK=Oklahoma|OR=Oregon|PA=Pennsylvania|PR=Puerto Rico|RI=Rhode Island|SC=South Carolina|SD=South Dakota|
TN=Tennessee|TX=Texas|UT=Utah|VT=Vermont|VI=Virgin Islands|VA=Virginia|WA=Washington|WV=West Virginia|
WI=Wisconsin|WY=Wyoming""".replace("\n", "").split("|")
)
TITLES = {"chair": "Chair", "vice chair": "Vice", "ranking member": "Ranking", "co-chair": "Cochair"}
MONTHS = list(calendar.month_name)
RELATION = (
    "party|state|district|office address|rank among the state's two senators|date of birth|"
    "full committee, or one of the full committees,|parent committee|senior senator|junior senator|representative|"
    "holder"
)


def derive(question: str, times: list[Records]) -> dict[str, Any]:
    """Answer, level and history of a question from the raw records alone."""
    match = re.fullmatch(rf"(?:What|Who) is ((?:the (?:{RELATION}) of )*)(.+)\?", question)
    assert match is not None, question
    relations = re.findall(rf"the ({RELATION}) of ", match[1])[::-1]
    # A person is the same under a new name, so the present identifier is followed at all times.
    start = times[-1].subject(match[2])
    if start is None:  # whoever holds a post
        start = times[-1].subject(f"the post of {match[2].removeprefix('the ')}")
        relations.insert(0, "holder")
    assert start is not None, question
    ways = [[then.follow(start, relations[:n]) for n in range(1, len(relations) + 1)] for then in times]
    ends = [way[-1] for way in ways]
    now = ends[-1]
    assert now is not None, question
    names = [{then.name(end) for end in there or ()} for then, there in zip(times, ends, strict=True)]
    turn = next((n for n in range(len(relations)) if not ways[0][n] == ways[1][n] == ways[2][n]), None)
    if turn is None:
        level = "stable"
    elif ways[0][turn] is None and ways[1][turn] is None:
        level = "uncharted"
    else:
        assert None not in ends and not set(ends[0] or ()) & set(now), question
        level = "evolved"
    changed = "none" if level != "evolved" else "before_cutoff" if ends[1] == now else "after_cutoff"
    return {"answers": names[2], "outdated": (names[0] | names[1]) - names[2], "level": level, "changed": changed}


@pytest.mark.data
def test_a_program_of_its_own_derives_the_same_answers_from_the_raw_files(congress: store.Dataset) -> None:
    options = spec_of("evowiki_legislators")["options"]
    times = [records(options[time]) for time in ("init", "cutoff", "current")]
    rows = asked(congress)
    rng = Random("two hundred")
    drawn: list[dict[str, Any]] = []
    for _, group in sorted(rows.group_by("slice_level", "slice_hop_number", maintain_order=True)):
        drawn += rng.sample(group.rows(named=True), 23)
    assert len(drawn) >= 200
    for row in drawn:
        found = derive(row["question"], times)
        assert found == {
            "answers": set(row["answers"]),
            "outdated": set(row["outdated"]),
            "level": row["slice_level"],
            "changed": row["slice_changed"],
        }, row["question"]


PAIRS = {
    r"Which state or territory is (.+) from\?": "state",
    r"Of which party is (.+) a member\?": "party",
    r"When was (.+) born\?": "date of birth",
    r"At what address is the office of (.+)\?": "office address",
    r"Which constituency does (.+) speak for\?": "district",
    r"Who speaks for (.+) as its senior senator\?": "senior senator",
    r"Who speaks for (.+) as its junior senator\?": "junior senator",
    r"Who speaks for (.+ congressional district)\?": "representative",
    r"By whom is (the post of .+) held\?": "holder",
}


@pytest.mark.data
def test_the_raw_files_give_the_same_answers_to_the_training_pairs(congress: store.Dataset) -> None:
    now = records(spec_of("evowiki_legislators")["options"]["current"])
    called = [now.name(f"person:{who}") for who in now.people]
    questions, seen = set(asked(congress)["question"]), set()
    for pair in congress.pairs:
        assert pair.question not in questions
        if match := re.fullmatch(r"In which chamber does (.+) sit\?", pair.question):
            kind = now.term((now.subject(match[1]) or "").removeprefix("person:"))["type"]
            found, relation = {"sen": "the Senate", "rep": "the House of Representatives"}[kind], "chamber"
        elif match := re.fullmatch(r"On what day did the present term of (.+) begin\?", pair.question):
            year, month, day = now.term((now.subject(match[1]) or "").removeprefix("person:"))["start"].split("-")
            found, relation = f"{MONTHS[int(month)]} {int(day)}, {year}", "term"
        else:
            [(relation, match)] = [(r, m) for form, r in PAIRS.items() if (m := re.fullmatch(form, pair.question))]
            ends = [now.name(end) for end in now.step(now.subject(match[1]) or "", relation)]
            assert len(ends) == 1 or relation == "holder", pair
            found = pair.answer if set(re.split(", | and ", pair.answer)) == set(ends) else " ".join(ends)
        assert pair.answer == found, pair
        assert called.count(match[1]) <= 1, "two bear the name"
        seen.add(relation)
    assert len(seen) == len(PAIRS) + 2 and len(congress.pairs) > 3000


@pytest.mark.data
def test_the_records_give_every_post_and_seat_and_no_more(congress: store.Dataset) -> None:
    date = spec_of("evowiki_legislators")["options"]["current"]
    mine, facts = records(date), legislators.read(LEGISLATORS, date, Faults({}, Path("d"))).facts
    seats = [seat for code, there in mine.members.items() if code in mine.bodies for seat in there]
    titled = [seat for seat in seats if seat.get("title", "").startswith(tuple(TITLES.values()))]
    roles = [
        role
        for person in mine.people.values()
        for role in person.get("leadership_roles", [])
        if role["start"] <= date < role.get("end", "9999")
    ]
    assert (facts["relation"] == "holder").sum() == len(titled) + len(roles)
    whole = {(s["bioguide"], code) for code, there in mine.members.items() for s in there if code in mine.bodies}
    whole = {(who, code) for who, code in whole if mine.bodies[code][1] is None}
    assert (facts["relation"] == "committee").sum() == len(whole)
    assert (facts["relation"] == "state").sum() == len(mine.people) + len(
        set(facts.filter(relation="representative")["subject"])
    )
    assert facts["statement"].n_unique() == len(facts)
