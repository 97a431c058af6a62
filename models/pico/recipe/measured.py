"""How well it does: what was replied, held against what is accepted; and whether a stage has cost a skill anything."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import sqrt
from pathlib import Path
from typing import Any

import msgspec

from upkeep.cell.asking import json_object
from upkeep.contract import Form
from upkeep.grading.reading import read_answer

IN_FORMAT = "an answer after the prompt's format token"
PARSES = "JSON that parses"
ITEMS = " (item by item)"
"""Said after a skill that is to fill a list, for the share of what belongs there that is there. The skill by itself is
right where all of it is, and nothing else."""
COST = 0.02
"""Share of right answers that a stage may cost an earlier skill."""
SURE = 1.96
"""Standard errors: an interval of 95%; a cost is one where it is above `COST` by as many."""


class _Replied(msgspec.Struct):
    """`recipe.evaluate.Asked`, which is where torch is."""

    skill: str
    accepted: list[str]
    outdated: list[str]
    read: str
    form: Form
    options: list[str] | None
    exact: bool
    also: str
    marker: str
    structured: bool
    reply: str

    @property
    def answer(self) -> str:
        """What the reply says, in lower case."""
        match self.read:
            case "answer":
                said = read_answer(self.reply, self.form, self.options, self.marker)[0] or ""
            case "after a colon":
                said = self.reply.rpartition(":")[2]
            case "json":
                said = _canonical(json_object(self.reply))
            case "query":
                said = _query(self.reply)
            case "critique":
                said = f"{self.reply.partition(':')[0]} {self.reply.rpartition(':')[2].strip()}"
            case "verdict":
                told = json_object(self.reply)
                said = str(told.get("verdict")) if told else self.reply.split()[-1] if self.reply.split() else ""
            case _:
                said = self.reply
        return said.strip().lower()

    @property
    def right(self) -> list[bool]:
        """Whether it is right; of a text that is to keep sentences, whether it has each of them."""
        if self.read == "lines":
            said = " ".join(self.reply.lower().split())
            return [" ".join(line.lower().split()) in said for line in self.accepted]
        accepted = [_canonical(json_object(one)) for one in self.accepted] if self.read == "json" else self.accepted
        return [_said(self.answer, accepted, self.exact)]

    @property
    def items(self) -> list[bool]:
        """Of what belongs in the lists of JSON, whether it is there."""
        wanted, told = (_lists(json_object(one)) for one in (self.accepted[0], self.reply))
        return [item in told.get(key, ()) for key, items in wanted.items() for item in items]


def _canonical(found: Any) -> str:
    """JSON of which lists have no order, but for those within lists (triples)."""
    if not isinstance(found, dict):
        return "" if found is None else json.dumps(found)
    return json.dumps(
        {key: sorted(map(json.dumps, value)) if isinstance(value, list) else value for key, value in found.items()},
        sort_keys=True,
    )


def _lists(found: Any) -> dict[str, list[str]]:
    """The lists of a JSON object, each item as text in lower case."""
    if not isinstance(found, dict):
        return {}
    return {
        key: [json.dumps(item).lower() for item in value] for key, value in found.items() if isinstance(value, list)
    }


def _query(reply: str) -> str:
    """The words of a search, as a call of a tool or as a line."""
    if "<tool_call>" not in reply:
        return reply.partition(":")[2]
    arguments = (json_object(reply) or {}).get("arguments")
    return str(arguments.get("query", "")) if isinstance(arguments, dict) else ""


def read(replies: Path) -> dict[str, list[tuple[bool, bool]]]:
    """Of every skill whether each of its items is right, and whether it is outdated, in the order in which all models
    are asked them."""
    found: dict[str, list[tuple[bool, bool]]] = defaultdict(list)
    for one in msgspec.json.Decoder(_Replied).decode_lines(replies.read_bytes()):
        if one.marker:
            found[IN_FORMAT].append((one.marker in one.reply, False))
        if one.structured:
            found[PARSES].append((json_object(one.reply) is not None, False))
        old = _said(one.answer, one.outdated, one.exact)
        if one.read == "json" and (items := one.items):
            found[one.skill + ITEMS] += [(there, False) for there in items]
        for skill in filter(None, (one.skill, one.also)):
            found[skill] += [(right, old and not right) for right in one.right]
    return dict(sorted(found.items()))


def measure(replies: Path) -> dict[str, dict[str, float]]:
    """Share of right and of outdated answers, by skill."""
    return {
        skill: {
            "right": round(sum(r for r, _ in rows) / len(rows), 4),
            "outdated": round(sum(o for _, o in rows) / len(rows), 4),
            "asked": len(rows),
        }
        for skill, rows in read(replies).items()
    }


def interval(right: float, asked: float) -> tuple[float, float]:
    """Wilson's interval of a share, at 95%."""
    square = SURE * SURE / asked
    middle = right + square / 2
    half = SURE * sqrt(right * (1 - right) / asked + square / (4 * asked))
    return max(0.0, (middle - half) / (1 + square)), min(1.0, (middle + half) / (1 + square))


def difference(one: float, other: float, asked: float) -> float:
    """By how much two shares of right answers to as many questions may differ by chance: `SURE` standard errors."""
    return SURE * sqrt((one * (1 - one) + other * (1 - other)) / asked)


def costs(before: Path, after: Path, skills: Sequence[str]) -> dict[str, tuple[float, float]]:
    """The skills that a stage has cost more than `COST`, with the shares right before and after.

    Both models were asked the same, so that items are compared one by one: with `lost` that were right and no longer
    are and `won` the other way round, of n, the cost is (lost - won) / n, and its variance, that of a mean of n numbers
    of which each is 1, 0 or -1, ((lost + won) / n - cost^2) / n. It counts where it is above `COST` by `SURE` standard
    errors: a single item that changes is none.
    """
    first, second = read(before), read(after)
    found = {}
    for skill in skills:
        pairs = [(a, b) for (a, _), (b, _) in zip(first.get(skill, ()), second.get(skill, ()), strict=True)]
        if not pairs:
            continue
        n, lost, won = len(pairs), sum(a and not b for a, b in pairs), sum(b and not a for a, b in pairs)
        cost = (lost - won) / n
        if cost - SURE * sqrt(max(0.0, (lost + won) / n - cost * cost) / n) > COST:
            found[skill] = (sum(a for a, _ in pairs) / n, sum(b for _, b in pairs) / n)
    return found


def below(accuracy: Mapping[str, Mapping[str, float]], floors: Mapping[str, float]) -> list[str]:
    """The skills that do not reach their floors."""
    return [skill for skill, floor in floors.items() if accuracy.get(skill, {"right": 0.0})["right"] < floor]


def _said(answer: str, accepted: Sequence[str], exact: bool) -> bool:
    said = " ".join(answer.split())
    right = [" ".join(one.lower().split()) for one in accepted]
    return any(said == one or (not exact and one in said) for one in right)
