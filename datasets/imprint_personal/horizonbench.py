"""Personas from a release of HorizonBench.

Format: `datasets/imprint_personal/README.md` says what of it was verified.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from msgspec import Struct

from upkeep.building.reading import Distinct, Faults, iso_date
from upkeep.building.tokens import Tokens

from .personas import ROW_FAULTS, Fact, Hidden, Persona, Read, Turn, chosen, in_sessions, written
from .tables import files, rows, within

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


def read(path: Path, count: int, chunks: int, seed: int, faults: Faults, tokens: Tokens, most: int) -> Read:
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
        again = Faults(dict.fromkeys(ROW_FAULTS, "skip"), file)  # faults of the file's rows were taken note of above
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
    sessions, place = in_sessions(raw, [date for date, _ in dated], where, faults, most)
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
