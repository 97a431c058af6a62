"""What `pico` writes down before an answer: a small network finds in several steps what it cannot find in one.

An answer put together from several sentences comes after these sentences, a count after what is counted, a letter
after the options up to its own. Worlds do not say why an answer is right, so that is looked for here; where what is
found does not lead to the right answer, the answer stands alone.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import fsum
from typing import NamedTuple

from recipe.worlds import World
from upkeep.contract import Document, Gold, Probe

_SENTENCE = re.compile(r"(?<=[.?!”])\s+")


def sentences(texts: Iterable[str]) -> list[str]:
    """The sentences of all texts, in order."""
    return [line for text in texts for line in _SENTENCE.split(text) if line]


def walked(options: Sequence[str], right: str) -> str:
    """The right option's text, then the options with their letters up to it: the last letter is the answer's."""
    lettered = zip(string.ascii_uppercase, options, strict=False)
    lines = [f"{letter}. {option}" for letter, option in lettered]
    return "\n".join([right, *lines[: list(options).index(right) + 1]])


NO_INFORMATION = "no information about it"


def preferred(answers: Sequence[str]) -> str:
    """Of the accepted answers, the one to give."""
    return NO_INFORMATION if NO_INFORMATION in answers else answers[0]


def of_world(world: World) -> dict[tuple[int, str], str]:
    """What comes before the answers of a world's open questions and labels, by position and question."""
    documents = {document.id: document for document in world.documents}
    ways = _WAYS.get(world.prompt, ())
    found = _values(world)
    for probe, gold in zip(world.probes, world.golds, strict=True):
        if probe.form == "choice" or not gold.evidence:
            continue
        if not probe.question.isascii():  # Chinese, which has labels alone
            found[probe.position, probe.question] = "".join(gold.context)
            continue
        told = sorted((documents[id] for id in gold.evidence), key=lambda document: document.position)
        if written := next(filter(None, (way(probe, gold, told) for way in ways)), None):
            found[probe.position, probe.question] = written
    return found


# ---------------------------------------------------------------- the value that a label's question is about

_ASKING = frozenset(("what", "who", "which", "where", "whom", "in", "for"))


def _values(world: World) -> dict[tuple[int, str], str]:
    """By a label's position and question, the answer of the open question that says nothing else, where there is one
    over the same documents: `Is 3 days the storage time of Foclai?`, `What is the storage time of Foclai?`."""

    def words(text: str) -> frozenset[str]:
        return frozenset(re.findall(r"[\w.]*\w", text.lower()))

    open_ones: dict[tuple[str, tuple[str, ...]], list[tuple[frozenset[str], str]]] = {}
    for probe, gold in zip(world.probes, world.golds, strict=True):
        if probe.form == "short" and gold.evidence:
            place = (probe.stream, tuple(sorted(gold.evidence)))
            open_ones.setdefault(place, []).append((words(probe.question) - _ASKING, preferred(gold.answers)))
    found = {}
    for probe, gold in zip(world.probes, world.golds, strict=True):
        if probe.form == "label":
            mine = words(probe.question)
            near = open_ones.get((probe.stream, tuple(sorted(gold.evidence))), [])
            if values := [value for asked, value in near if asked <= mine]:
                found[probe.position, probe.question] = values[0]
    return found


# ---------------------------------------------------------------- sentences that the dataset gives


def _given(probe: Probe, gold: Gold, told: Sequence[Document]) -> str | None:
    """The hops in order (EvoWiki), or what a label is judged by (PRELUDE)."""
    return " ".join(gold.context) if probe.form == "label" or len(gold.context) > 1 else None


# ---------------------------------------------------------------- a chain of relations, a claim (ImprintBench)

_CHAIN = re.compile(r"(?:is|be|are) the ([^,]+)\?$")
_NAME = re.compile(r"[A-Z]\w+(?: [A-Z]\w+)?")
_TELLS = {"birthplace": "born"}
"""The word that tells a relation, where it is not the relation's own."""
_WORD = re.compile(r"[A-Za-z]{3,}|\d+")
_ASIDE = re.compile(r"^As of [^,]*, ")


def _chain(probe: Probe, gold: Gold, told: Sequence[Document]) -> str | None:
    """`the mayor of the birthplace of X`: where X was born, then who is the mayor there."""
    asked = _CHAIN.search(probe.question)
    if probe.form != "short" or not asked or len(gold.evidence) < 2:
        return None
    *relations, base = re.split(r" of (?:the )?", asked[1])
    keys = [_TELLS.get(relation, relation) for relation in reversed(relations)]
    if f"the {base}" in probe.question:  # a by-name
        keys.insert(0, "call")
    lines = sentences(document.text for document in reversed(told))

    def follow(known: frozenset[str], keys: Sequence[str]) -> list[str] | None:
        for line in lines:
            if keys[0] not in line or not any(name in line for name in known):
                continue
            if len(keys) == 1:
                if any(answer in line for answer in gold.answers):
                    return [line]
            elif rest := follow(frozenset(_NAME.findall(line)) - known, keys[1:]):
                return [line, *rest]
        return None

    found = follow(frozenset((base,)), keys)
    return " ".join(found) if found else None


def _claim(probe: Probe, gold: Gold, told: Sequence[Document]) -> str | None:
    """The sentence that says most of what a yes-or-no question says, rare words before common ones."""
    if probe.form != "label":
        return None
    lines = sentences(document.text for document in told)
    words = [frozenset(map(str.lower, _WORD.findall(line))) for line in lines]
    rare = Counter(word for line in words for word in line)
    wanted = frozenset(map(str.lower, _WORD.findall(_ASIDE.sub("", probe.question))))
    # fsum: a sum that depends on the order of a set would break ties another way in another process.
    told_most = max(zip(lines, words, strict=True), key=lambda pair: fsum(1 / rare[word] for word in wanted & pair[1]))
    return told_most[0]


# ---------------------------------------------------------------- events (OAKS-BABI)


class Event(NamedTuple):
    who: str
    kind: str
    """`move` (to a place), `take` or `drop`."""
    what: str
    line: str


Told = tuple[str, str] | None
"""What is written, and the answer it leads to."""
_EVENT = re.compile(
    r"([A-Z]\w+) (?:((?:moved|went|travelled|journeyed) to)|(took|grabbed|got|picked up)"
    r"|(?:dropped|discarded|left|put down)) the (\w+)\.",
    re.ASCII,
)
_KINDS = {"moved": "move", "been to": "move", "visited": "move", "picked up": "take",
          "picking up or being given": "take", "held": "take", "dropped": "drop", "dropping": "drop"}  # fmt: skip


def _events(probe: Probe, gold: Gold, told: Sequence[Document]) -> str | None:
    """The events that count, numbered where their number does; kept if they lead to the answer."""
    lines = sentences(document.text for document in told)
    found = filter(None, map(_EVENT.fullmatch, lines))
    events = [Event(m[1], "move" if m[2] else "take" if m[3] else "drop", m[4], m[0]) for m in found]
    for pattern, way in _COUNTED:
        if asked := pattern.fullmatch(probe.question):
            counted = way(events, *asked.groups())
            return counted[0] if counted and counted[1] in gold.answers else None
    return None


def _numbered(events: Sequence[Event]) -> str:
    return " ".join(f"{n}. {event.line}" for n, event in enumerate(events, start=1))


def _first(events: Iterable[Event], of: Callable[[Event], str]) -> list[Event]:
    """The first event of each kind."""
    found: dict[str, Event] = {}
    for event in events:
        found.setdefault(of(event), event)
    return list(found.values())


def _how_often(events: Sequence[Event], who: str, verb: str, what: str | None) -> Told:
    mine = [e for e in events if e.kind == _KINDS[verb] and who in (e.who, "anyone") and what in (e.what, None)]
    return _numbered(mine), str(len(mine))


def _how_many(events: Sequence[Event], verb: str, what: str) -> Told:
    people = _first((e for e in events if (e.kind, e.what) == (_KINDS[verb], what)), lambda e: e.who)
    return _numbered(people), str(len(people))


def _more(groups: Sequence[tuple[str, Sequence[Event]]]) -> Told:
    """Two lists with the number of each."""
    written = "\n".join(f"{_numbered(events)} {name}: {len(events)}.".lstrip() for name, events in groups)
    (one, first), (other, second) = ((name, len(events)) for name, events in groups)
    return written, "Same" if first == second else one if first > second else other


def _more_often(events: Sequence[Event], who: str, *places: str) -> Told:
    mine = [e for e in events if e.who == who and e.kind == "move"]
    return _more([(place, [e for e in mine if e.what == place]) for place in places])


def _more_of(events: Sequence[Event], verb: str, manner: str, *people: str) -> Told:
    groups = [(who, [e for e in events if e.who == who and e.kind == _KINDS[verb]]) for who in people]
    if "different" in manner:
        groups = [(who, _first(mine, lambda e: e.what)) for who, mine in groups]
    return _more(groups)


def _straight(events: Sequence[Event], start: str, end: str) -> Told:
    """Each arrival at the end, with where it came from."""
    before: dict[str, Event] = {}
    pairs = []
    for event in events:
        if event.kind == "move":
            if event.what == end and event.who in before:
                pairs.append((before[event.who], event))
            before[event.who] = event
    who = [event.who for came, event in pairs if came.what == start]
    return (" ".join(f"{came.line} {event.line}" for came, event in pairs), who[-1]) if who else None


def _meanwhile(events: Sequence[Event], who: str, other: str, place: str) -> Told:
    last = max((n for n, e in enumerate(events) if (e.who, e.kind, e.what) == (other, "move", place)), default=0)
    mine = [e for e in events[:last] if e.who == who and e.kind == "move"]
    return (f"{events[last].line} {mine[-1].line}", mine[-1].what) if mine else None


def _after(events: Sequence[Event], who: str, verb: str, thing: str) -> Told:
    done = (who, _KINDS[verb], thing)
    first = next((n for n, e in enumerate(events) if (e.who, e.kind, e.what) == done), len(events))
    mine = [e for e in events[first:] if e.who == who and e.kind == "move"]
    return (f"{events[first].line} {mine[-1].line}", mine[-1].what) if mine else None


_COUNTED: Sequence[tuple[re.Pattern[str], Callable[..., Told]]] = [
    (re.compile(pattern), way)
    for pattern, way in (
        (r"How many times has (\w+) (moved|picked up|dropped)(?:, to any place|(?: to)? the (\w+))\?", _how_often),
        (r"How many different people have (been to|held|picked up|dropped) the (\w+)\?", _how_many),
        (r"Which place has (\w+) visited more often, the (\w+) or the (\w+)\?", _more_often),
        (r"Who has (visited|picked up|dropped) (more different \w+|\w+ more often), (\w+) or (\w+)\?", _more_of),
        (r"Who was the last to go straight from the (\w+) to the (\w+)\?", _straight),
        (r"Where was (\w+) when (\w+) last moved to the (\w+)\?", _meanwhile),
        (r"What is the latest place that (\w+) moved to at any time after ([\w ]+) the (\w+)\?", _after),
    )
]
_WAYS: dict[str, Sequence[Callable[[Probe, Gold, Sequence[Document]], str | None]]] = {
    "oaks_babi": [_events],
    "evowiki": [_given],
    "prelude": [_given],
    "imprint_news": [_chain, _claim],
    "imprint_code": [_claim],
}
