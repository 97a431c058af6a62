"""Lessons of judging, in the formats of the papers' judges (`papers/*/judges.yaml`)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from random import Random

from recipe.lessons import Lesson
from recipe.playing import Room, Said, lesson_of
from recipe.statements import OPEN, Statement, latest, statements
from upkeep.cell import Message
from upkeep.cell.prompts import Prompt
from upkeep.contract import Rubric

JUDGED = "judging"
_SLOT = re.compile(r"\{(\w+)\}")


def judging(rng: Random, room: Room) -> list[Lesson]:
    """One response judged by one rubric, of which each is as likely."""
    paper, rubric = rng.choice(room.rubrics)
    (told,) = statements(rng, room.pools, 1, 6)
    wanted, other = rng.choice(latest(told)), rng.choice(told)
    code = "identifier" if "identifiers" in rubric.system else "list" if "TARGET" in rubric.user else ""
    if code:
        slots, verdict = _identifiers(rng, room, code)
    elif "{evidence}" in rubric.user or "{passages}" in rubric.user:
        slots, reply, verdict = _reasoned(rng, rubric, wanted, other, latest(told))
        return [_lesson(paper, rubric, slots, reply, verdict)]
    else:
        slots, verdict = _answered(rng, room, rubric, wanted, other)
    reply = verdict
    if rubric.read == "json":
        told_why = {
            "isolated_evolving_fact_from_gold_answer": slots["gold"],
            "classification_reasoning": slots["response"],
        }
        reply = json.dumps({"verdict": verdict, "rationale": told_why}, ensure_ascii=False)
    return [_lesson(paper, rubric, slots, reply, verdict)]


def _lesson(paper: str, rubric: Rubric, slots: Mapping[str, str], reply: str, verdict: str) -> Lesson:
    def filled(text: str) -> str:  # as upkeep.grading.judgements, which is not where lessons are drawn
        return _SLOT.sub(lambda slot: slots.get(slot[1], slot[0]), text).strip()

    chat = [
        Message(role="system", parts=[filled(rubric.system)]),
        Message(role="user", parts=[filled(rubric.user)]),
    ]
    return lesson_of(chat, reply, Said(reply, f"{JUDGED}, {paper}", "verdict", (verdict,)))


def _answered(
    rng: Random, room: Room, rubric: Rubric, wanted: Statement, other: Statement
) -> tuple[dict[str, str], str]:
    """A response to an open question: right, that of another sentence, or a refusal; an older one where that counts."""
    words: dict[str, list[str]] = {
        meaning: [w for w, m in rubric.verdicts.items() if m == meaning] for meaning in rubric.verdicts.values()
    }
    kind = rng.choice(("right", "right", "wrong", "refusal", *(["outdated"] if "outdated" in words else [])))
    before = _another(rng, room, wanted)
    wrong = other.value if other.value not in (wanted.value, before) else _another(rng, room, wanted, before)
    said = {"right": wanted.value, "wrong": wrong, "outdated": before, "refusal": "no information about it"}[kind]
    if rng.random() < 0.6:
        said = Prompt(room.prompts[rng.choice(OPEN)]).target(said)
    elif kind in ("right", "wrong") and rng.random() < 0.5:
        said = wanted.relation.told.format(wanted.subject, said)
    context = f"Entity: {wanted.subject}\nAttribute: {wanted.name}\nBefore: {before}\nNow: {wanted.value}"
    slots = {
        "question": rng.choice(wanted.relation.asked).format(wanted.subject),
        "gold": wanted.value,
        "response": said,
        "context": context,
    }
    if kind == "refusal" and "REFUSAL" in rubric.verdicts:
        return slots, "REFUSAL"
    plain = [w for w in words["wrong"] if w != "REFUSAL"]
    return slots, (words[kind] if kind in ("right", "outdated") else plain)[0]


def _another(rng: Random, room: Room, wanted: Statement, *not_these: str) -> str:
    """Another value of the same kind."""
    values = wanted.relation.values
    while True:
        new = rng.choice(values.split("|")) if "|" in values else room.pools.fresh("ba", rng).capitalize()
        if new not in (wanted.value, *not_these):
            return new


def _identifiers(rng: Random, room: Room, kind: str) -> tuple[dict[str, str], str]:
    """A name of a library that is, or is not, the last of a dotted one; or one of a list."""
    names = [room.pools.fresh("ba", rng) for _ in range(6)]
    gold, right = names[0], rng.random() < 0.5
    if kind == "list":
        others = names[1 : rng.randint(3, 5)]
        said = rng.sample([*others, *([f"{names[5]}.{gold}"] if right else [])], len(others) + right)
        return {"gold": gold, "response": ", ".join(said)}, "YES" if right else "NO"
    last = gold if right else names[1]
    response = rng.choice((last, f"`{last}`", f"{names[2]}.{last}", f"{last}()", f"{names[2]}.{last}(x)"))
    return {"gold": rng.choice((gold, f"{names[3]}.{gold}")), "response": response}, "YES" if right else "NO"


def _reasoned(
    rng: Random, rubric: Rubric, wanted: Statement, other: Statement, told: list[Statement]
) -> tuple[dict[str, str], str, str]:
    """Reasons that rest on what is told, or on something else: slots, reply, verdict."""
    right = rng.random() < 0.5 or other.line == wanted.line
    good, bad = (next(w for w, m in rubric.verdicts.items() if m == meaning) for meaning in ("right", "wrong"))
    shown = [s.line for s in told if right or s.line != wanted.line]
    reason = wanted.line
    if "{evidence}" in rubric.user:
        shown, reason = [wanted.line], wanted.line if right else other.line
    slots = {
        "question": rng.choice(wanted.relation.asked).format(wanted.subject),
        "evidence": "\n".join(shown),
        "passages": "\n\n".join(shown),
        "gold": "Consistent",
        "response": f"Think: {reason}\nAnswer: Consistent" if "{passages}" in rubric.user else reason,
    }
    verdict = good if right else bad
    reply = verdict
    if "{evidence}" in rubric.user:
        same = "They are the same." if right else "They are not the same."
        reply = f"The sentences say: {wanted.line} The response says: {reason} {same}\nVerdict: {verdict}"
    return slots, reply, verdict
