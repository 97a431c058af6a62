"""Lessons of facts at large: sentences of one fact each, asked about, or written down in a memory."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from recipe.lessons import ACTIVE, MOST, Lesson, probe_of, refusal_of, remembered, render
from recipe.renaming import Pools
from upkeep.cell.interface import Context
from upkeep.cell.prompts import Prompt
from upkeep.contract import Document, Form, Probe, PromptCard


@dataclass(frozen=True, slots=True)
class Relation:
    """{0} is the subject, {1} the value."""

    subject: str
    values: str
    """`person`, `place`, `thing`, or values split by `|`."""
    told: str
    asked: tuple[str, ...]
    claimed: str
    """A yes-or-no question."""


def _attribute(subject: str, name: str, values: str) -> Relation:
    told = f"The {name} of {{0}} is {{1}}."
    return Relation(subject, values, told, (f"What is the {name} of {{0}}?",), f"Is the {name} of {{0}} {{1}}?")


_CLOSED = (
    "chess|fishing|dancing|painting|sailing|cooking|singing|hunting|riding|swimming|climbing|gardening",
    "red|blue|green|white|yellow|orange|purple|black",
    "3 days|5 days|7 days|14 days|21 days|30 days|60 days|90 days",
    "4 dollars|6 dollars|9 dollars|12 dollars|15 dollars|18 dollars|25 dollars",
    "law|history|science|music|medicine|trade|art|farming|building|writing",
    "11 crowns|14 crowns|18 crowns|23 crowns|27 crowns|33 crowns|38 crowns",
)
RELATIONS = (
    Relation("person", "thing", "{0} works for {1}.", ("What is the employer of {0}?",
             "For which company does {0} work?"),
             "Does {0} work for {1}?"),
    Relation("person", "place", "{0} lives in {1}.", ("What is the home town of {0}?", "In which town does {0} live?"),
             "Does {0} live in {1}?"),
    Relation("person", "person", "{0} learns from {1}.", ("Who is the mentor of {0}?", "From whom does {0} learn?"),
             "Does {0} learn from {1}?"),
    Relation("thing", "person", "{0} is led by {1}.", ("Who is the director of {0}?", "By whom is {0} led?"),
             "Is {0} led by {1}?"),
    Relation("person", "place", "{0} was born in {1}.", ("What is the birthplace of {0}?", "Where was {0} born?"),
             "Was {0} born in {1}?"),
    Relation("thing", "place", "The firm {0} has its seat in {1}.", ("Where does the firm {0} have its seat?",),
             "Does the firm {0} have its seat in {1}?"),
    Relation("person", "place", "{0} went to the {1}.", ("Where is {0} now?",), "Is {0} in the {1} now?"),
    Relation("place", "person", "{1} is the mayor of {0}.", ("Who is the mayor of {0}?",), "Is {1} the mayor of {0}?"),
    Relation("place", "place", "{0} lies in the province of {1}.", ("What is the province of {0}?",),
             "Does {0} lie in the province of {1}?"),
    Relation("person", _CLOSED[0], "{0} likes {1}.", ("What does {0} like?", "What is the hobby of {0}?"),
             "Does {0} like {1}?"),
    Relation("person", _CLOSED[4], "{0} reads books about {1}.", ("What is the field of study of {0}?",),
             "Does {0} read books about {1}?"),
    *(_attribute("thing", name, "thing") for name in ("command line tool", "web console", "standard vaccine")),
    *(_attribute("thing", name, "place") for name in ("home region", "test town")),
    Relation("thing", "place", "The backup region of {0} is {1}.", ("Where are backups of {0} kept?",),
             "Are backups of {0} kept in {1}?"),
    Relation("thing", "person", "The inventor of {0} is {1}.", ("Who is the inventor of {0}?",),
             "Is {1} the inventor of {0}?"),
    _attribute("thing", "logo colour", _CLOSED[1]),
    _attribute("thing", "storage time", _CLOSED[2]),
    _attribute("thing", "monthly price", _CLOSED[3]),
    _attribute("place", "bridge toll", _CLOSED[5]),
)  # fmt: skip
_OPEN = ("oaks_babi", "evowiki", "imprint_news", "imprint_code", "imprint_personal", "evolveqa")
_TESTED = ("imprint_news", "imprint_code", "imprint_personal", "evolveqa")
"""Prompts with labels and options."""


def facts(
    rng: Random,
    pools: Pools,
    prompts: Mapping[str, PromptCard],
    count: int,
    changes: float,
    refusals: float,
    form: Form = "short",
    plain: bool = False,
) -> Lesson:
    """Sentences of one fact each, in documents, and a question for each fact.

    Args:
        count: facts, those told twice counted once.
        changes: share of the facts that are told again with another value.
        refusals: share of questions about what is not told.
        plain: whether all documents come in order.
    """
    used = set[str]()

    def name(kind: str) -> str:
        while (new := _named(kind, pools, rng)) in used:
            pass
        used.add(new)
        return new

    relations = rng.sample(RELATIONS, min(len(RELATIONS), rng.choice((2, 4, 8, 12))))
    subjects: dict[str, list[str]] = {}
    told: list[tuple[Relation, str, str]] = []
    value_of: dict[tuple[str, str], str] = {}
    values: dict[str, list[str]] = {}

    def value(relation: Relation) -> str:
        new = _value(relation, rng, name)
        values.setdefault(relation.values, []).append(new)
        return new

    while len(value_of) < count:
        relation = rng.choice(relations)
        mine = subjects.setdefault(relation.subject, [])
        subject = rng.choice(mine) if mine and rng.random() < 0.4 else name(relation.subject)
        if (subject, relation.told) in value_of:
            continue
        mine.append(subject)
        value_of[subject, relation.told] = new = value(relation)
        told.append((relation, subject, new))
    lines = list(told)
    for last in rng.sample(told, round(changes * count)):
        relation, subject, _ = last
        for _ in range(rng.choice((1, 1, 2, 3))):
            if (new := value(relation)) == value_of[subject, relation.told]:
                continue
            at = next(n for n in reversed(range(len(lines))) if lines[n] == last)
            last = (relation, subject, new)
            lines.insert(rng.randint(at + 1, len(lines)), last)
            value_of[subject, relation.told] = new
    sentences = []
    known = set[tuple[str, str]]()
    for relation, subject, new in lines:
        text = relation.told.format(subject, new)
        if (subject, relation.told) in known and rng.random() < 0.7:
            text = text.replace(" is ", " is now ", 1) if " of " in text else text
        known.add((subject, relation.told))
        sentences.append(text)
    size = rng.choice((1, 2, 3, 5))
    groups = [" ".join(sentences[n : n + size]) for n in range(0, len(sentences), size)]
    first = rng.randrange(20)
    documents = [
        Document(id=str(n), stream="", position=first + n, timestamp=None, text=text) for n, text in enumerate(groups)
    ]
    prompt_name = rng.choice(_OPEN if form == "short" else _TESTED if form == "label" else (*_TESTED, "oaks_novel"))
    asked: list[tuple[Probe, str]] = []
    holds: dict[tuple[int, str], str] = {}
    for relation, subject, _ in rng.sample(told, min(MOST, len(told))):
        answer: str | None = value_of[subject, relation.told]
        refuse = rng.random() < refusals
        if refuse:
            subject, answer = name(relation.subject), None
        question = rng.choice(relation.asked).format(subject)
        options: list[str] | None = None
        if form == "short":
            reply = answer or refusal_of(prompt_name)
        elif form == "label":
            if answer is None:
                continue
            options = ["yes", "no"]
            others = [v for v in values[relation.values] if v != answer]
            yes = rng.random() < 0.5 or not others
            question = relation.claimed.format(subject, answer if yes else rng.choice(others))
            holds[documents[-1].position, question] = answer
            reply = "yes" if yes else "no"
        else:
            others = sorted({v for v in values[relation.values] if v != answer})
            others = rng.sample(others, min(len(others), rng.randint(2, 4)))
            while len(others) < 2:
                others.append(_named(rng.choice(("person", "place", "thing")), pools, rng))
            unknown = "We cannot answer this question at this point."
            options = [*others, *([answer] if answer else []), unknown]
            rng.shuffle(options)
            reply = string.ascii_uppercase[options.index(answer or unknown)]
        asked.append((probe_of(question, form, options, documents[-1].position), reply))
    if not asked:
        return facts(rng, pools, prompts, count, changes, refusals, form, plain)
    layout = rng.random()
    if plain or layout < 0.6 or (changes and layout >= 0.7):  # out of order, the latest value cannot be told
        context = Context(recent=documents)
    elif layout < 0.7:
        latest = {(subject, relation.told): relation.told.format(subject, new) for relation, subject, new in lines}
        context = Context(memory=ACTIVE + "\n".join(latest.values()))
    else:
        rng.shuffle(documents)
        context = Context(retrieved=documents)
    return render(prompt_name, Prompt(prompts[prompt_name]), context, asked, f"facts {form}", holds)


def _value(relation: Relation, rng: Random, name: Callable[[str], str]) -> str:
    return rng.choice(relation.values.split("|")) if "|" in relation.values else name(relation.values)


def tell(rng: Random, pools: Pools, count: int) -> list[tuple[Relation, str, str]]:
    """Relation, subject and value of statements; a later one may change an earlier one."""
    told: list[tuple[Relation, str, str]] = []
    relations = rng.sample(RELATIONS, 6)
    subjects: dict[str, list[str]] = {}
    while len(told) < count:
        relation = rng.choice(relations)
        mine = subjects.setdefault(relation.subject, [])
        subject = rng.choice(mine) if mine and rng.random() < 0.5 else _named(relation.subject, pools, rng)
        mine.append(subject)
        told.append((relation, subject, _value(relation, rng, lambda kind: _named(kind, pools, rng))))
    return told


def notes(rng: Random, pools: Pools, count: int, memory_system: str) -> Lesson:
    """A memory of facts at large that is written anew: what is new is added, what has changed is replaced.

    Args:
        count: facts, those of the memory and those of the next text together.
    """
    told = [
        ((subject, relation.told), relation.told.format(subject, value))
        for relation, subject, value in tell(rng, pools, count)
    ]
    lesson_facts: dict[tuple[str, str], str] = {}
    cut = rng.randint(0, count - 1)
    for key, line in told[:cut]:
        lesson_facts.pop(key, None)
        lesson_facts[key] = line
    before = ACTIVE + "\n".join(lesson_facts.values()) if lesson_facts else "(empty)"
    for key, line in told[cut:]:
        lesson_facts.pop(key, None)
        lesson_facts[key] = line
    text = " ".join(line for _, line in told[cut:])
    return remembered(memory_system, before, text, ACTIVE + "\n".join(lesson_facts.values()), "notes")


def _named(kind: str, pools: Pools, rng: Random) -> str:
    match kind:
        case "person":
            first = pools.fresh("ba", rng).capitalize()
            return first if rng.random() < 0.3 else f"{first} {pools.fresh(rng.choice(_FAMILY), rng).capitalize()}"
        case "place":
            return pools.fresh(rng.choice(_TOWN), rng).capitalize()
        case _:
            return pools.fresh("ba", rng).capitalize()


_FAMILY = ("son", "berg", "wick", "ford", "mere", "dale", "ley", "stone", "strom", "vale")
_TOWN = ("ville", "ton", "port", "field", "bridge", "haven", "burg", "stead", "mouth", "holm")


def wording() -> list[str]:
    """The words of the facts at large, once each."""
    return [text for r in RELATIONS for text in (r.told, *r.asked, r.claimed, r.values)]
