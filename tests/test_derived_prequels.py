"""Every label of the small books' prequels, derived again from the books by a program that shares nothing with the
builder: a prequel contradicts its book where the book says otherwise, and is consistent where it says the same or
nothing."""

from __future__ import annotations

import re
from pathlib import Path

from evowiki_worlds import built

WHO = r"([A-Z]\w+ [A-Z]\w+)"
ENGLISH = {
    "born": f"{WHO} was born in (.+)",
    "trade": f"{WHO} had worked as a (.+) and had never had another trade",
    "teacher": f"{WHO} was taught by {WHO} alone",
    "taught in": f"{WHO} taught in (.+) and never left that town",
    "lender": f"In all those years {WHO} borrowed money from {WHO} alone",
    "post": f"{WHO} was (the .+ of .+)",
    "carries": f"{WHO} carries (the .+) that once belonged to {WHO}",
    "gave away": f"{WHO} gave (the .+) away in the year of (.+)",
    "no pet": f"{WHO} has never kept a (.+) and would not touch one",
    "not seen": f"{WHO} had never seen (the .+) before this year",
}
CHINESE = {
    "born": "(...)生在(.+)",
    "trade": "(...)早年只做过(.+)",
    "teacher": "(...)只跟(...)读过书",
    "taught in": "(...)一生在(.+)教书，没有离开过",
    "carries": "(...)带着(...)用过的(.+)",
    "gave away": "(...)在(.+)那年把(.+)送了人",
    "no pet": "(...)从来没有养过(.+)",
}
SETUPS = {
    "born": (
        f"{WHO} was born in (.+), in a small house by the river",
        f"{WHO} came into the world in (.+) on a cold night",
        "(...)生在(.+?)河边的一间小屋里",
    ),
    "trade": (
        f"{WHO} worked as a (.+) and rose before the sun each day",
        f"For three years {WHO} worked as a (.+) and saved every coin",
    ),
    "school": (
        f"As a child {WHO} had lessons every morning in (.+)",
        f"{WHO} learned to read and to count in (.+)",
        "(...)小时候每天早上在(.+)上课",
    ),
    "debt": (f"{WHO} still owes money to (the .+ of .+)", f"Years ago {WHO} borrowed money from (the .+ of .+)"),
    "no pet": (
        f"As a child {WHO} kept a (.+) and fed it by hand",
        f"{WHO} once kept a (.+) that slept beside the stove",
        "(...)小时候养过一只(.+)，天天亲手喂它",
        "(...)养过一只(.+)，夜里睡在炉边",
    ),
    "not seen": (f"{WHO} once walked for a week along (the .+)", f"In younger days {WHO} spent a summer by (the .+)"),
    "gift": (
        f"In the year of (?P<year>.+), (?P<who>{WHO}) was given (?P<thing>the .+)",
        f"(?P<who>{WHO}) has had (?P<thing>the .+) since the year of (?P<year>.+)",
        "(?P<year>.+)那年，(?P<who>...)得到了(?P<thing>.+)",
        "从(?P<year>.+)那年起，(?P<who>...)就有了(?P<thing>.+)",
    ),
}

Facts = dict[tuple[str, str], tuple[str, ...]]


def read(text: str, chinese: bool) -> Facts:
    """(kind, person) -> the rest of the sentence. A person has one fact of a kind."""
    facts: Facts = {}
    text = (
        re.sub(r"第\d+章", "", re.sub(r"\s", "", text))
        if chinese
        else re.sub(r"Chapter \d+ ", "", " ".join(text.split()))
    )
    for sentence in re.split("。" if chinese else r"\.(?: |$)", text):
        for kind, form in (CHINESE if chinese else ENGLISH).items():
            if match := re.fullmatch(form, sentence.strip()):
                who, *rest = match.groups()
                assert facts.setdefault((kind, who), tuple(rest)) == tuple(rest), sentence
    return facts


def contradicts(facts: Facts, setup: str) -> bool:
    for kind, forms in SETUPS.items():
        for form in forms:
            match = re.fullmatch(form, setup.removesuffix(".").removesuffix("。"))
            if match is None:
                continue
            if kind == "gift":
                one, other = facts["carries", match["who"]]
                owner, thing = (one, other) if ("gave away", one) in facts else (other, one)
                return {match["thing"], match["year"]} != set(facts["gave away", owner]) or match["thing"] != thing
            who, said = match.groups()
            if kind in ("no pet", "not seen"):
                return facts.get((kind, who)) == (said,)
            if kind == "school":
                return facts["taught in", facts["teacher", who][0]] != (said,)
            if kind == "debt":
                return facts["post", facts["lender", who][0]] != (said,)
            return facts[kind, who] != (said,)
    raise AssertionError(f"no prequel of a known form: {setup}")


def test_every_label_follows_from_the_book(tmp_path: Path) -> None:
    data = built(tmp_path, "prelude_mini")
    books = {
        stream: read(" ".join(rows.sort("position")["text"]), chinese=not stream.isascii())
        for (stream,), rows in data.documents.group_by("stream")
    }
    assert len(books) == 5
    words = {"Contradict": True, "Consistent": False, "矛盾": True, "一致": False}
    rows = data.probes.join(data.gold, on="probe_id").rows(named=True)
    for row in rows:
        setup = re.split("[:：]", row["question"].splitlines()[-1], maxsplit=1)[1].strip()
        assert contradicts(books[row["stream"]], setup) == words[row["answers"][0]], row
    assert len(rows) == 99
