"""The program that replies in the assistant's place: it writes and audits from what a step gives it alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from random import Random

from upkeep.building import leaks
from upkeep.building.assistant import Script

from . import author, compositions, frames, implicit, recall, supervision, unknown, updates
from .attributes import ATTRIBUTES, BY_NAME, Attribute
from .author import OPTIONS
from .frames import Frame
from .synthetic import World, claim

_CLAIM = re.compile(r"(?:In [^,]+, )?(?P<name>[^']+)'s (?P<attribute>.+?) is (?P<value>.+)\Z")
_FORMS = {
    "dir_acq": "What is {}'s {attribute}?",
    "new_info": "Which {attribute} has {} told the assistant about?",
    "changed_info": "What is {}'s {attribute} now?",
}
_PAIRS = (
    "Tell me {}'s {attribute}.",
    "Do you remember the {attribute} of {}?",
    "What would {} name as the {attribute}?",
    "How does the sentence end: The {attribute} of {} is",
)


def parsed(text: str) -> tuple[str, str, str]:
    """Name, attribute and value of a claim."""
    match = _CLAIM.match(text)
    if match is None:
        raise ValueError(f"not a claim of this world: {text}")
    return match["name"], match["attribute"], match["value"]


def script(world: World) -> Script:
    """For each step what it replies about the users of this world."""
    users = [user.name for user in (*world.personamem, *world.horizonbench)]
    return {
        frames.FRAME.name: _framed,
        recall.EXPLICIT.name: _explicit,
        recall.RECALL.name: _recall,
        recall.CONTRACT.name: _contract,
        updates.NEW_INFO.name: _new_info,
        updates.CHANGED.name: _changed,
        unknown.UNKNOWN.name: _unknown,
        implicit.APPLY.name: _apply,
        implicit.FROM_FACTS.name: lambda given: _from_facts(given, users),
        implicit.APPLICATION.name: _application,
        implicit.UNIVERSAL.name: lambda given: _universal(given, users),
        compositions.COMPOSE.name: _compose,
        compositions.CHOOSE.name: lambda given: _only(_matrix(given)),
        compositions.APPEAL.name: lambda given: _popular_option(given.options),
        compositions.MATRIX.name: lambda given: compositions.MatrixVerdict(_matrix(given), compositions.SEVERAL),
        author.BLIND.name: lambda given: "I don't know.",
        author.FORCED.name: lambda given: _guess(given, users),
        author.JUDGED.name: _judged,
        supervision.DISTIL.name: _distil,
    }


def _framed(given: frames.FactGiven) -> Frame:
    name, attribute, value = parsed(given.claim)
    known = BY_NAME.get(attribute)
    return Frame(
        normalized_claim=claim(name, attribute, value),
        attribute=attribute,
        value=value,
        polarity="positive",
        domains=[known.topic if known else "health"],
        constraint_dimension=known.dimension if known else "health",
        task_affordances=list(known.affordances) if known else [],
        decision_levers=[known.dimension] if known else [],
        surface_forms=[value, value.split()[-1]],
    )


def _explicit(given: recall.Explicit) -> str:
    _, attribute, value = parsed(given.claim)
    if f"{attribute} is {value}" in given.turn:
        return "A"
    return "C" if leaks.tells(given.turn, [value]) else "D"


def _recall(given: recall.Recall) -> author.Candidate:
    attribute = BY_NAME[given.frame.attribute]
    direct = _FORMS["dir_acq"].format(given.user, attribute=attribute.name)
    question = direct if given.family == "dir_acq" else attribute.paraphrase.format(given.user)
    return author.Candidate(question, given.frame.value)


def _contract(given: recall.Contract) -> recall.ContractVerdict:
    plain = given.frame.attribute in given.question
    return recall.ContractVerdict(plain == (given.family == "dir_acq"), given.answer == given.frame.value)


def _new_info(given: updates.NewInfo) -> author.Candidate:
    _, attribute, value = parsed(given.claim)
    return author.Candidate(_FORMS["new_info"].format(given.user, attribute=attribute), value)


def _changed(given: updates.Changed) -> author.Candidate:
    _, attribute, value = parsed(given.new)
    return author.Candidate(_FORMS["changed_info"].format(given.user, attribute=attribute), value)


def _unknown(given: unknown.Unknown) -> unknown.Asked:
    _, attribute, _ = parsed(given.claim)
    return unknown.Asked(_FORMS["dir_acq"].format(given.user, attribute=attribute))


def _apply(given: implicit.Apply) -> implicit.Applied:
    attribute = BY_NAME[given.target.attribute]
    return implicit.Applied(attribute.applied.format(given.user), attribute.advice[given.target.value])


def _asked(question: str, users: Sequence[str]) -> tuple[Attribute, bool] | None:
    """Which attribute a question is about, and whether it asks for the advice."""
    name = next((user for user in users if user in question), "")
    for attribute in ATTRIBUTES:
        if question == attribute.applied.format(name):
            return attribute, True
        forms = [form.format(name, attribute=attribute.name) for form in _FORMS.values()]
        if question in (*forms, attribute.paraphrase.format(name)):
            return attribute, False
    return None


def _from_facts(given: implicit.FromFacts, users: Sequence[str]) -> str:
    about = _asked(given.question, users)
    known = {attribute: value for _, attribute, value in map(parsed, given.facts)}
    if about is None or about[0].name not in known:
        return "I don't know"
    value = known[about[0].name]
    return about[0].advice[value] if about[1] else value


def _application(given: implicit.Application) -> implicit.ApplicationVerdict:
    _, _, value = parsed(given.facts[0])
    return implicit.ApplicationVerdict("should" in given.question, given.answer == value)


def _universal(given: implicit.Universal, users: Sequence[str]) -> implicit.UniversalVerdict:
    about = _asked(given.question, users)
    usual = about is not None and given.answer == about[0].advice[about[0].values[0]]
    return implicit.UniversalVerdict("YES" if usual else "NO")


def _compose(given: compositions.Compose) -> compositions.Composed:
    attributes = [BY_NAME[frame.attribute] for frame in given.frames]
    rights = [frame.value for frame in given.frames]
    rng = Random(" ".join([given.stem, *rights]))
    wrongs = [rng.choice([value for value in a.values if value != r]) for a, r in zip(attributes, rights, strict=True)]
    table = compositions.truth_table(len(rights))
    options = {
        mark: ", ".join(
            a.offer.format(right if met else wrong)
            for a, right, wrong, met in zip(attributes, rights, wrongs, row, strict=True)
        )
        for mark, row in zip(OPTIONS, table, strict=True)
    }
    return compositions.Composed(options, "A", dict(zip(OPTIONS, table, strict=True)))


def _matrix(given: compositions.Choose) -> dict[str, list[bool]]:
    offers = [BY_NAME[attribute].offer.format(value) for _, attribute, value in map(parsed, given.facts)]
    return {
        mark: [offer in option.split(", ") for offer in offers]
        for mark, option in zip(OPTIONS, given.options, strict=True)
    }


def _only(matrix: Mapping[str, Sequence[bool]]) -> str:
    fitting = [mark for mark, row in matrix.items() if all(row)]
    return fitting[0] if len(fitting) == 1 else "uncertain"


_POPULAR = frozenset(attribute.offer.format(attribute.values[0]) for attribute in ATTRIBUTES)


def _popular_option(options: Sequence[str]) -> str:
    """The option with most of what most people like; the first of several."""
    liked = [sum(offer in _POPULAR for offer in option.split(", ")) for option in options]
    return OPTIONS[liked.index(max(liked))]


def _guess(given: author.Blind, users: Sequence[str]) -> str:
    if given.options:
        return _popular_option(given.options)
    about = _asked(given.question, users)
    if about is None:
        return "something"
    attribute, advised = about
    return attribute.advice[attribute.values[0]] if advised else attribute.values[0]


def _judged(given: author.Judged) -> str:
    if leaks.tells(given.response, ["I don't know"]):
        return "REFUSAL"
    return "MATCH" if leaks.tells(given.response, [given.expected]) else "NONMATCH"


def _distil(given: supervision.Distil) -> list[author.Candidate]:
    answer = f"{given.frame.normalized_claim}."
    return [
        author.Candidate(form.format(given.user, attribute=given.frame.attribute), answer)
        for form in _PAIRS[: given.count]
    ]
