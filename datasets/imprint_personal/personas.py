"""Users as both releases tell of them: conversation sessions, and what is true of a user."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Literal

from msgspec import Struct

from upkeep.building import leaks
from upkeep.building.reading import Faults, usable
from upkeep.errors import UpkeepError

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


ROW_FAULTS: tuple[Literal["broken_record", "encoding"], ...] = ("broken_record", "encoding")
"""What a second pass over a table need not take note of again."""


def in_sessions(
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


def best_turn(persona: Persona, fact: Fact, sessions: Sequence[int] | None = None) -> str:
    """The user's message that shares most words with a fact, the first of several.

    Args:
        sessions: to look in; all that tell the fact where it is not given.
    """
    places = fact.sessions if sessions is None else sessions
    turns = [turn.content for at in places for turn in persona.sessions[at].turns if turn.role == "user"]
    return max(turns, key=lambda turn: overlap(fact.claim, turn), default="")
