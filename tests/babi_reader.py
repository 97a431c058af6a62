"""A second opinion on OAKS-BABI: a reader of the documents' text alone, who answers the questions."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from conftest import put_dataset, spec_of
from upkeep.building import store
from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog


def catalog(
    folder: Path, name: str, *, options: dict[str, Any] | None = None, data: dict[str, str] | None = None
) -> Catalog:
    """A repository with one dataset, that of the suite with some options changed."""
    spec = spec_of(name)
    spec["options"] = spec.get("options", {}) | (options or {})
    put_dataset(folder, name, spec)
    (folder / "config").mkdir()
    (folder / "config" / "config.yaml").write_text(yaml.safe_dump({"data": data or {}}))
    return Catalog(folder)


def built(folder: Path, name: str, **how: Any) -> store.Dataset:
    build_dataset(catalog(folder, name, **how), name, folder / "out" / name)
    return store.load(folder / "out" / name)


MOVES, TAKES = {"went", "moved", "journeyed", "travelled"}, {"picked", "took", "grabbed", "got"}
DROPS, GIVES = {"dropped", "discarded", "left", "put"}, {"gave", "handed", "passed"}
Event = tuple[str, str, str, str | None]


def read_events(text: str, ordinary: set[str]) -> list[Event]:
    """What happens in a text: sentences of invented names. Written apart from the product's parser."""
    events: list[Event] = []
    for sentence in re.findall(r"[A-Z][^.!?]*\.", text):
        heard = sentence.rstrip(".").split()
        if heard[0].lower() in ordinary:
            continue
        verb = heard[1]
        if verb in MOVES:
            events.append(("move", heard[0], heard[-1], None))
        elif verb in TAKES:
            events.append(("take", heard[0], heard[-1], None))
        elif verb in DROPS:
            events.append(("drop", heard[0], heard[-1], None))
        else:
            assert verb in GIVES, sentence
            events.append(("give", heard[0], heard[3], heard[-1]))
    return events


def locations(events: list[Event]) -> list[dict[str, str]]:
    """Where everybody is during each event."""
    now: dict[str, str] = {}
    places = []
    for kind, who, what, _ in events:
        if kind == "move":
            now[who] = what
        places.append(dict(now))
    return places


def last(values: list[str]) -> str:
    return values[-1] if values else "Unknown"


def count(events: list[Event], kind: str, **asked: str) -> int:
    fields = {"who": 1, "what": 2, "to": 3}
    return sum(e[0] == kind and all(e[fields[f]] == v for f, v in asked.items()) for e in events)


def versus(first: str, n: int, second: str, m: int) -> str:
    return "Unknown|Same" if n == m == 0 else "Same" if n == m else first if n > m else second


def holder(events: list[Event], thing: str) -> str:
    answer = "Unknown"
    for kind, who, what, to in events:
        if what == thing and kind in ("take", "drop", "give"):
            answer = {"take": who, "drop": "Nobody", "give": to or ""}[kind]
    return answer


def gained(events: list[Event], who: str, thing: str) -> list[int]:
    return [
        i
        for i, (kind, s, o, r) in enumerate(events)
        if o == thing and ((kind == "take" and s == who) or (kind == "give" and r == who))
    ]


def lost(events: list[Event], who: str, thing: str) -> list[int]:
    return [i for i, e in enumerate(events) if e[:3] == ("drop", who, thing)]


def moved_since(events: list[Event], who: str, since: list[int]) -> str:
    return last(
        [o for i, (kind, s, o, _) in enumerate(events) if since and i > since[0] and (kind, s) == ("move", who)]
    )


def straight(events: list[Event], start: str, end: str) -> str:
    answer, at = "Unknown", {}
    for kind, who, what, _ in events:
        if kind == "move":
            if (at.get(who), what) == (start, end):
                answer = who
            at[who] = what
    return answer


def at_move(events: list[Event], a: str, b: str, place: str) -> str:
    where = locations(events)
    return last([where[i].get(a, "Unknown") for i, e in enumerate(events) if e[:3] == ("move", b, place)])


def at_events(events: list[Event], who: str, which: list[int]) -> str:
    where = locations(events)
    return last([where[i].get(who, "Unknown") for i in which])


def kinds(events: list[Event], kind: str, who: str) -> int:
    return len({o for k, s, o, _ in events if (k, s) == (kind, who)})


W = r"(\w+)"
READINGS: list[tuple[str, Callable[..., str | int]]] = [
    (rf"Where is {W} now\?", lambda e, a: last([o for k, s, o, _ in e if (k, s) == ("move", a)])),
    (rf"Who is holding the {W} now\?", holder),
    (
        rf"Who was the last to give the {W} to somebody else\?",
        lambda e, o: last([s for k, s, x, _ in e if (k, x) == ("give", o)]),
    ),
    (rf"How many times has {W} moved to the {W}\?", lambda e, a, p: count(e, "move", who=a, what=p)),
    (rf"How many times has {W} moved, to any place\?", lambda e, a: count(e, "move", who=a)),
    (
        rf"How many different people have been to the {W}\?",
        lambda e, p: len({s for k, s, o, _ in e if (k, o) == ("move", p)}),
    ),
    (rf"How many times has (?!anyone){W} picked up the {W}\?", lambda e, a, o: count(e, "take", who=a, what=o)),
    (rf"How many different objects has {W} picked up\?", lambda e, a: kinds(e, "take", a)),
    (rf"How many times has (?!anyone){W} dropped the {W}\?", lambda e, a, o: count(e, "drop", who=a, what=o)),
    (rf"How many different objects has {W} dropped\?", lambda e, a: kinds(e, "drop", a)),
    (rf"How many times has anyone picked up the {W}\?", lambda e, o: count(e, "take", what=o)),
    (
        rf"How many different people have held the {W}\?",
        lambda e, o: len({r or s for k, s, x, r in e if x == o and k in ("take", "give")}),
    ),
    (rf"How many times has anyone dropped the {W}\?", lambda e, o: count(e, "drop", what=o)),
    (
        rf"How many different people have dropped the {W}\?",
        lambda e, o: len({s for k, s, x, _ in e if (k, x) == ("drop", o)}),
    ),
    (rf"How many times has {W} been given something, by anyone\?", lambda e, a: count(e, "give", to=a)),
    (rf"How many different people have given {W} something\?", lambda e, a: len({s for _, s, _, r in e if r == a})),
    (rf"How many times has {W} given an object to {W}\?", lambda e, a, b: count(e, "give", who=a, to=b)),
    (rf"Who was the last to go straight from the {W} to the {W}\?", straight),
    (rf"Where was {W} when {W} last moved to the {W}\?", at_move),
    (
        rf"What is the latest place that {W} moved to at any time after picking up or being given the {W}\?",
        lambda e, a, o: moved_since(e, a, gained(e, a, o)),
    ),
    (
        rf"What is the latest place that {W} moved to at any time after dropping the {W}\?",
        lambda e, a, o: moved_since(e, a, lost(e, a, o)),
    ),
    (
        rf"Where did {W} last pick up the {W} or get it from somebody\?",
        lambda e, a, o: at_events(e, a, gained(e, a, o)),
    ),
    (rf"Where did {W} last drop the {W}\?", lambda e, a, o: at_events(e, a, lost(e, a, o))),
    (
        rf"Who has visited more different places, {W} or {W}\?",
        lambda e, a, b: versus(a, kinds(e, "move", a), b, kinds(e, "move", b)),
    ),
    (
        rf"Which place has {W} visited more often, the {W} or the {W}\?",
        lambda e, a, p, q: versus(p, count(e, "move", who=a, what=p), q, count(e, "move", who=a, what=q)),
    ),
    (
        rf"Who has picked up more different objects, {W} or {W}\?",
        lambda e, a, b: versus(a, kinds(e, "take", a), b, kinds(e, "take", b)),
    ),
    (
        rf"Who has dropped more different objects, {W} or {W}\?",
        lambda e, a, b: versus(a, kinds(e, "drop", a), b, kinds(e, "drop", b)),
    ),
    (
        rf"Who has picked up objects more often, {W} or {W}\?",
        lambda e, a, b: versus(a, count(e, "take", who=a), b, count(e, "take", who=b)),
    ),
    (
        rf"Who has dropped objects more often, {W} or {W}\?",
        lambda e, a, b: versus(a, count(e, "drop", who=a), b, count(e, "drop", who=b)),
    ),
]


def second_opinion(question: str, events: list[Event]) -> str:
    """The answer of a reader who goes through all events anew; `|` between what is accepted."""
    found = [(read, match) for pattern, read in READINGS if (match := re.fullmatch(pattern, question))]
    assert len(found) == 1, question
    read, match = found[0]
    answer = read(events, *match.groups())
    return "Unknown|0" if answer == 0 else str(answer)
