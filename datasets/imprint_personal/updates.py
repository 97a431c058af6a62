"""TempUpd: what was not known of a user before, and what replaced something else (D.3)."""

from __future__ import annotations

from msgspec import Struct

from upkeep.building.assistant import Step

from .author import Author, Candidate, Draft, alternating
from .personas import Fact, Persona


class NewInfo(Struct, frozen=True):
    claim: str
    kind: str
    topic: str
    user: str


def _new_info(given: NewInfo) -> str:
    return f"""Something is newly known of {given.user}:

{given.claim}
Category: {given.kind}
Topic: {given.topic}

Write one short, natural question about {given.user} that can be answered from this alone and gives no hint at the
answer, and its answer in a few words. Give one JSON object: {{"question": "...", "expected_answer": "..."}}"""


NEW_INFO = Step("imprint_personal.new_info", Candidate, _new_info)


class Changed(Struct, frozen=True):
    old: str
    new: str
    topic: str
    user: str


def _changed(given: Changed) -> str:
    return f"""What was known of {given.user} has changed.

Before: {given.old}
Now: {given.new}
Topic: {given.topic}

Write one short, natural question about how it is now with {given.user}. Before and after the change its answer
must differ clearly, and it must hint at neither. The answer, in a few words, is the one that is right now. Give
one JSON object: {{"question": "...", "expected_answer": "..."}}"""


CHANGED = Step("imprint_personal.changed_info", Candidate, _changed)


def write(author: Author) -> list[Draft]:
    """NEW-INFO asks for what was not known before, CHANGED-INFO for what replaced something else."""
    new: list[tuple[Persona, Fact, str]] = []
    changed: list[tuple[Persona, Fact, str]] = []
    for p in author.personas:
        facts = author.shuffled("temp_upd", p, author.usable(p))
        fresh = [(p, fact, "temp_upd") for fact in facts if not fact.previous]
        after = [(p, fact, "temp_upd") for fact in facts if (p.id, fact.previous) in author.frames]
        mixed = list(alternating(after, fresh))[: author.limit("temp_upd")]
        new += [one for one in mixed if not one[1].previous]
        changed += [one for one in mixed if one[1].previous]
    asked = [NewInfo(f.claim, f.kind, f.topic, p.name) for p, f, _ in new]
    replies = author.helper.ask(NEW_INFO, asked)
    drafts = author.drafted(new, replies, subtype="new_info")
    differing = [Changed(f.previous or "", f.claim, f.topic, p.name) for p, f, _ in changed]
    replies = author.helper.ask(CHANGED, differing)
    later = author.drafted(changed, replies, subtype="changed_info")
    alike = author.kept(later, [bool(d.outdated) for d in later], "old and new alike")
    survived = author.without_user(alike + drafts)
    both = [[d for d in survived if d.subtype == kind] for kind in ("changed_info", "new_info")]
    return list(alternating(*both))
