"""Personas from the releases of PersonaMem-v2 and HorizonBench: their conversation sessions and what is true of them.

Formats: `datasets/imprint_personal/README.md` says what of them was verified.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, Literal

import msgspec
from msgspec import Struct

from upkeep.building import leaks
from upkeep.building.reading import Distinct, Faults, iso_date, text, usable
from upkeep.building.tokens import Tokens
from upkeep.errors import UpkeepError

from .tables import files, rows, within

Hidden = Literal["", "forget", "sensitive", "untold"]
"""Why an assistant must not know a fact: the user asked to forget it, it is private, or no session tells it."""


class Turn(Struct, frozen=True):
    """A message of a conversation."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Session:
    """A conversation without a break: what retrieval finds as one (spec 13.8)."""

    turns: tuple[Turn, ...]
    date: str | None = None


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that is, or was, true of a user."""

    claim: str
    kind: str
    """The release's category of preference."""
    topic: str
    sessions: tuple[int, ...] = ()
    """Positions of the sessions that tell it, ascending."""
    previous: str | None = None
    """The claim that it replaced."""
    current: bool = True
    """Whether nothing replaced it."""
    hidden: Hidden = ""


@dataclass(frozen=True, slots=True)
class Persona:
    """A user with everything that was said, in order."""

    id: str
    source: str
    name: str
    """How questions call the user."""
    sessions: tuple[Session, ...]
    facts: tuple[Fact, ...]
    chunks: tuple[int, ...]
    """The chunk of each session, ascending from 0 (K=1 for PersonaMem-v2, K=4 for HorizonBench)."""


@dataclass
class Read:
    """What came out of a release."""

    personas: list[Persona] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def chosen(ids: Sequence[str], count: int, seed: str, where: Path) -> list[str]:
    """A seeded choice of `count` ids, ascending.

    Raises:
        UpkeepError: there are fewer.
    """
    if len(ids) < count:
        raise UpkeepError("too few personas", where=where, expected=f"at least {count}", found=len(ids))
    return sorted(Random(seed).sample(sorted(ids), count))


def words(text: str) -> list[str]:
    """A text's words that carry meaning, in lower case."""
    return [word for word in leaks.key(text).split() if word not in _STOP]


_STOP = {
    "a", "an", "and", "are", "as", "at", "be", "by", "for", "he", "her", "his", "i", "in", "is", "it", "its", "me",
    "my", "of", "on", "or", "s", "she", "the", "their", "to", "user",
}  # fmt: skip


def overlap(claim: str, turn: str) -> float:
    """The share of a claim's words that are in a turn (D.3: 0.8 or more is direct)."""
    said = set(words(turn))
    asked = words(claim)
    return sum(word in said for word in asked) / len(asked) if asked else 0.0


# ---------------------------------------------------------------- PersonaMem-v2

PERSONAMEM_COLUMNS = (
    "persona_id",
    "chat_history_32k_link",
    "expanded_persona",
    "preference",
    "topic_preference",
    "pref_type",
    "related_conversation_snippet",
    "who",
    "updated",
    "prev_pref",
    "sensitive_info",
)
_FORGET = re.compile(r"do not remember ['\"](?P<claim>.+)['\"] in memory", re.IGNORECASE | re.DOTALL)


class _History(Struct, frozen=True):
    chat_history: list[Turn]


class _Profile(Struct, frozen=True):
    name: str = ""


def personamem(path: Path, table: str, count: int, seed: int, faults: Faults, most: int) -> Read:
    """The personas of a PersonaMem-v2 release.

    Sessions are the table's `related_conversation_snippet` as they are found in the history; what lies between two of
    them is one session too. The history's system message, the generator's own profile of the persona, is left out.

    Args:
        path: the folder of the release.
        table: the table within it, such as `benchmark/text/benchmark.csv`.
        most: characters of a session; a longer one is left out.

    Raises:
        UpkeepError: a file or a column is missing, or there are too few personas.
    """
    tables = files(path / table)
    read = Read(files=list(tables))
    ids = dict.fromkeys(
        str(row["persona_id"])
        for file in tables
        for row in rows(file, ["persona_id"], faults, None, PERSONAMEM_COLUMNS)
    )
    picked = chosen([i for i in ids if i.strip()], count, f"imprint_personal personamem_v2 {seed}", path / table)
    by_persona: dict[str, list[dict[str, Any]]] = {id: [] for id in picked}
    for file in tables:
        # Faults of the file's rows were taken note of above.
        for row in rows(file, PERSONAMEM_COLUMNS, Faults(dict.fromkeys(_ROW_FAULTS, "skip"), file), set(picked)):
            by_persona[str(row["persona_id"])].append(row)
    for id, mine in by_persona.items():
        link = path / str(mine[0]["chat_history_32k_link"])
        if not link.is_file():
            raise UpkeepError(
                "chat history not found", where=link, expected="the file that the table names", found=mine[0][""]
            )
        read.files.append(link)
        body = text(link, faults)
        history = None if body is None else within(body, _History | list[Turn], str(link), faults)
        if history is not None:
            turns = history.chat_history if isinstance(history, _History) else history
            read.personas.append(_personamem_persona(id, mine, turns, faults, most, read.left_out))
    return read


_ROW_FAULTS: tuple[Literal["broken_record", "encoding"], ...] = ("broken_record", "encoding")


def _personamem_persona(
    id: str, mine: Sequence[Mapping[str, Any]], turns: Sequence[Turn], faults: Faults, most: int, left_out: Counter[str]
) -> Persona:
    said = [turn for turn in turns if turn.role != "system"]
    plain = [" ".join(turn.content.split()) for turn in said]
    places: dict[str, list[int]] = {}
    for place, content in enumerate(plain):
        places.setdefault(content, []).append(place)
    told: list[tuple[Mapping[str, Any], int]] = []
    cuts = {0, len(said)}
    for row in mine:
        snippet = within(row["related_conversation_snippet"] or "[]", list[Turn], row[""], faults)
        if snippet is None:
            continue
        talk = [" ".join(turn.content.split()) for turn in snippet if turn.role != "system"]
        at = max(places.get(talk[0], []) if talk else [], key=lambda p: (_run(plain, p, talk), -p), default=None)
        if at is not None:
            cuts |= {at, at + _run(plain, at, talk)}
        told.append((row, -1 if at is None else at))
    bounds = sorted(cuts)
    sessions, at_session = _sessions([said[a:b] for a, b in itertools.pairwise(bounds)], None, id, faults, most)
    position = {start: at_session[n] for n, start in enumerate(bounds[:-1])}
    return Persona(
        id=f"personamem_{id}",
        source="personamem_v2",
        name=_personamem_name(mine[0]),
        sessions=tuple(sessions),
        facts=tuple(_personamem_facts(told, position, left_out)),
        chunks=(0,) * len(sessions),
    )


def _run(plain: Sequence[str], at: int, talk: Sequence[str]) -> int:
    """How many turns of `talk` follow one another from place `at`."""
    length = 0
    while length < len(talk) and at + length < len(plain) and plain[at + length] == talk[length]:
        length += 1
    return length


def _personamem_name(row: Mapping[str, Any]) -> str:
    try:
        return msgspec.json.decode(str(row["expanded_persona"]), type=_Profile).name.strip() or "the user"
    except msgspec.MsgspecError:
        return "the user"


def _personamem_facts(
    told: Sequence[tuple[Mapping[str, Any], int]], position: Mapping[int, int | None], left_out: Counter[str]
) -> list[Fact]:
    facts: dict[str, Fact] = {}
    forgotten: set[str] = set()
    for row, at in told:
        if str(row["who"]).strip().lower() not in ("self", ""):
            left_out["not about the user"] += 1
            continue
        claim = str(row["preference"] or "").strip()
        hidden: Hidden = "sensitive" if _true(row["sensitive_info"]) else ""
        if row["pref_type"] == "ask_to_forget" or claim.lower().startswith("do not remember"):
            match = _FORGET.search(claim)
            claim, hidden = match["claim"].strip() if match else "", "forget"
            forgotten.add(claim)
        if not claim or claim == "sensitive_info":
            left_out["no claim"] += 1
            continue
        session = position.get(at)
        known = facts.get(claim)
        where = () if session is None else (session,)
        if known:
            facts[claim] = replace(
                known, sessions=tuple(sorted({*known.sessions, *where})), hidden=known.hidden or hidden
            )
            continue
        previous = str(row["prev_pref"] or "").strip() if _true(row["updated"]) else ""
        kind, topic = str(row["pref_type"] or ""), str(row["topic_preference"] or "")
        facts[claim] = Fact(claim, kind, topic, where, previous or None, hidden=hidden)
    replaced = {fact.previous for fact in facts.values()}
    kept = []
    for fact in facts.values():
        hidden = "forget" if fact.claim in forgotten else fact.hidden
        if not fact.sessions and not hidden:
            left_out["conversation not in the history"] += 1
        else:
            kept.append(replace(fact, hidden=hidden, current=fact.claim not in replaced))
    return kept


def _true(value: Any) -> bool:
    return str(value).strip().lower() == "true"


# ---------------------------------------------------------------- HorizonBench

HORIZONBENCH_COLUMNS = ("user_id", "user_profile", "preference_record", "conversations")


class _Talk(Struct, frozen=True):
    turns: list[Turn] = []
    scenario: str = ""


class _Dated(Struct, frozen=True):
    conversation: _Talk
    date: str = ""
    event_id: str = ""


class _Evolution(Struct, frozen=True):
    date: str | None = None
    event_name: str | None = None
    attribute_changes: dict[str, dict[str, Any]] = {}


class _Preference(Struct, frozen=True):
    structure_id: str
    attributes: dict[str, Any]
    evolution_history: list[_Evolution] = []


class _User(Struct, frozen=True):
    first_name: str = ""
    last_name: str = ""


@dataclass
class _State:
    value: str
    dates: list[str]


def horizonbench(path: Path, count: int, chunks: int, seed: int, faults: Faults, tokens: Tokens, most: int) -> Read:
    """The personas of a HorizonBench release, from its table `mental_state_graphs`.

    A fact is an attribute of a preference (`communication_intimacy`, `formality`): its value at each date of
    `preference_record` is told by the conversations of that date, and a change also by the conversation of the event
    that caused it (`evolution_history`).

    Args:
        path: the table, a folder of its parts, or a folder that holds `mental_state_graphs/`.
        chunks: that a persona's sessions are divided into, of about as many tokens each.
        most: characters of a session; a longer one is left out.

    Raises:
        UpkeepError: a file or a column is missing, or there are too few personas.
    """
    named = path / "mental_state_graphs"
    tables = files(named if named.is_dir() else path)
    read = Read(files=list(tables))
    distinct = Distinct(faults)
    ids = [
        id
        for file in tables
        for row in rows(file, ["user_id"], faults, None, HORIZONBENCH_COLUMNS)
        if row["user_id"] is not None and (id := str(row["user_id"])).strip() and distinct(id, row[""])
    ]
    picked = set(chosen(ids, count, f"imprint_personal horizonbench {seed}", path))
    for file in tables:
        again = Faults(dict.fromkeys(_ROW_FAULTS, "skip"), file)  # faults of the file's rows were taken note of above
        for row in rows(file, HORIZONBENCH_COLUMNS, again, picked):
            if (id := str(row["user_id"])) in picked:
                picked.remove(id)
                if persona := _horizonbench_persona(row, chunks, faults, tokens, most, read.left_out):
                    read.personas.append(persona)
    read.personas.sort(key=lambda persona: persona.id)
    return read


def _horizonbench_persona(
    row: Mapping[str, Any], chunks: int, faults: Faults, tokens: Tokens, most: int, left_out: Counter[str]
) -> Persona | None:
    where = str(row[""])
    talks = within(row["conversations"], list[_Dated], where, faults)
    record = within(row["preference_record"], dict[str, dict[str, _Preference]], where, faults)
    user = within(row["user_profile"], _User, where, faults)
    if talks is None or record is None or user is None:
        return None
    name = f"{user.first_name} {user.last_name}".strip() or "the user"
    dated = [(date, talk) for n, talk in enumerate(talks) if (date := _day(talk, f"{where}, conversation {n}", faults))]
    dated.sort(key=lambda pair: pair[1].date)
    raw = [[turn for turn in talk.conversation.turns if turn.role != "system"] for _, talk in dated]
    sessions, place = _sessions(raw, [date for date, _ in dated], where, faults, most)
    by_date: dict[str, list[int]] = {}
    by_event: dict[tuple[str, str], list[int]] = {}
    for n, (_, talk) in enumerate(dated):
        if (at := place[n]) is not None:
            if not talk.event_id.startswith(_EVOLUTION):
                by_date.setdefault(talk.date, []).append(at)
            by_event.setdefault((talk.date, talk.event_id.removeprefix(_EVOLUTION)), []).append(at)
    sizes = tokens.count([written(session) for session in sessions])
    return Persona(
        id=f"horizonbench_{str(row['user_id']).replace('/', '_')}",
        source="horizonbench",
        name=name,
        sessions=tuple(sessions),
        facts=tuple(_horizonbench_facts(record, name, by_date, by_event, left_out)),
        chunks=divided(sizes, chunks),
    )


_EVOLUTION = "evolution_event_"


def _day(talk: _Dated, where: str, faults: Faults) -> str | None:
    return iso_date(talk.date, where, faults)


def _horizonbench_facts(
    record: Mapping[str, Mapping[str, _Preference]],
    name: str,
    by_date: Mapping[str, list[int]],
    by_event: Mapping[tuple[str, str], list[int]],
    left_out: Counter[str],
) -> list[Fact]:
    states: dict[tuple[str, str], list[_State]] = {}
    topics: dict[tuple[str, str], str] = {}
    causes: dict[tuple[str, str, str], list[int]] = {}
    for date in sorted(record):
        for id, preference in sorted(record[date].items()):
            for attribute, value in sorted(preference.attributes.items()):
                line = states.setdefault((id, attribute), [])
                topics[id, attribute] = preference.structure_id
                if not line or line[-1].value != _text(value):
                    line.append(_State(_text(value), []))
                line[-1].dates.append(date)
            for evolution in preference.evolution_history:
                at = by_event.get((evolution.date or "", evolution.event_name or ""), [])
                for attribute, change in sorted(evolution.attribute_changes.items()):
                    causes.setdefault((id, attribute, _text(change.get("to"))), []).extend(at)
    facts: list[Fact] = []
    for (id, attribute), line in states.items():
        topic = topics[id, attribute].replace("_", " ")
        told: list[Fact] = []
        for state in line:
            claim = f"In {topic}, {name}'s {attribute.replace('_', ' ')} is {state.value}"
            places = {place for date in state.dates for place in by_date.get(date, [])}
            places |= set(causes.get((id, attribute, state.value), []))
            hidden: Hidden = "" if places else "untold"
            told.append(Fact(claim, "preference", topic, tuple(sorted(places)), hidden=hidden))
        if len(told) > 1 and told[-1].hidden:
            left_out["change that no session tells"] += 1
            continue
        # Values that no session tells are not known to have been replaced; one that comes back is not a new one.
        heard = [fact for fact in told if not fact.hidden] or told[-1:]
        facts += [
            replace(fact, previous=heard[n - 1].claim if n else None, current=n == len(heard) - 1)
            for n, fact in enumerate(heard)
            if n == len(heard) - 1 or fact.claim != heard[-1].claim
        ]
    return facts


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list):
        return ", ".join(_text(one) for one in value)
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


# ---------------------------------------------------------------- sessions


def _sessions(
    talks: Sequence[Sequence[Turn]], dates: Sequence[str] | None, where: str, faults: Faults, most: int
) -> tuple[list[Session], list[int | None]]:
    """Sessions out of runs of turns, and the position of each run's session; None for one that is left out."""
    sessions: list[Session] = []
    positions: list[int | None] = []
    for n, talk in enumerate(talks):
        good = usable("".join(turn.content for turn in talk), f"{where}, session {n}", faults, most)
        positions.append(len(sessions) if good else None)
        if good:
            sessions.append(Session(tuple(talk), dates[n] if dates else None))
    return sessions, positions


def written(session: Session) -> str:
    """A session as text: a line for its date, and each turn with who speaks."""
    head = [f"Date: {session.date}"] if session.date else []
    return "\n".join([*head, *(f"{turn.role.capitalize()}: {turn.content}" for turn in session.turns)])


def divided(sizes: Sequence[int], chunks: int) -> tuple[int, ...]:
    """The chunk of each session, so that the chunks have about as many tokens each and sessions stay whole."""
    total = max(1, sum(sizes))
    found: list[int] = []
    before = 0
    for size in sizes:
        middle = before + size / 2
        found.append(min(chunks - 1, int(chunks * middle / total)))
        before += size
    return tuple(found)
