"""How well it does: what was replied, held against what is accepted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from upkeep.contract import Form
from upkeep.grading.reading import read_answer

IN_FORMAT = "an answer after the prompt's format token"


class _Replied(msgspec.Struct):
    """`recipe.evaluate.Asked`, which is where torch is."""

    skill: str
    accepted: list[str]
    outdated: list[str]
    read: Literal["answer", "after a colon", "whole"]
    form: Form
    options: list[str] | None
    exact: bool
    also: str
    marker: str
    reply: str

    @property
    def answer(self) -> str:
        """What the reply says, in lower case."""
        if self.read == "answer":
            return (read_answer(self.reply, self.form, self.options, self.marker)[0] or "").lower()
        return (self.reply.rpartition(":")[2] if self.read == "after a colon" else self.reply).strip().lower()


def measure(replies: Path) -> dict[str, dict[str, float]]:
    """Share of right and of outdated answers, by skill."""
    found: dict[str, list[tuple[bool, bool]]] = defaultdict(list)
    for one in msgspec.json.Decoder(_Replied).decode_lines(replies.read_bytes()):
        if one.marker:
            found[IN_FORMAT].append((one.marker in one.reply, False))
        right, old = (_said(one.answer, accepted, one.exact) for accepted in (one.accepted, one.outdated))
        for skill in filter(None, (one.skill, one.also)):
            found[skill].append((right, old and not right))
    return {
        skill: {
            "right": round(sum(r for r, _ in rows) / len(rows), 4),
            "outdated": round(sum(o for _, o in rows) / len(rows), 4),
            "asked": len(rows),
        }
        for skill, rows in sorted(found.items())
    }


def _said(answer: str, accepted: Sequence[str], exact: bool) -> bool:
    said = " ".join(answer.split())
    right = [" ".join(one.lower().split()) for one in accepted]
    return any(said == one or (not exact and one in said) for one in right)
