"""Personas from a release of PersonaMem-v2.

Format: `datasets/imprint_personal/README.md` says what of it was verified.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from upkeep.building.reading import Faults, text
from upkeep.errors import UpkeepError

from .personas import ROW_FAULTS, Fact, Hidden, Persona, Read, Turn, chosen, in_sessions
from .tables import files, rows, within

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


def read(path: Path, table: str, count: int, seed: int, faults: Faults, most: int) -> Read:
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
        for row in rows(file, PERSONAMEM_COLUMNS, Faults(dict.fromkeys(ROW_FAULTS, "skip"), file), set(picked)):
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
    sessions, at_session = in_sessions([said[a:b] for a, b in itertools.pairwise(bounds)], None, id, faults, most)
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
