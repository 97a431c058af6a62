"""What `pico` is taught: contexts laid out as the methods lay them out, each with many questions.

A lesson is one context and several questions about it. A question sees the context and itself, so that one question
alone, as a method asks it, looks the same.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from upkeep.cell.interface import Context
from upkeep.cell.prompts import Prompt
from upkeep.contract import Document, Form, Gold, Pair, Probe, PromptCard
from upkeep.serving.pico import working
from upkeep.serving.pico.renaming import Pools, renamer
from upkeep.serving.pico.working import NO_INFORMATION, preferred
from upkeep.serving.pico.worlds import World

MOST = 12
"""Questions of a lesson."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """A context and questions about it, as texts with the template's tokens."""

    skill: str
    prefix: str
    turns: Sequence[tuple[str, str]]
    """(the rest of the prompt, the reply)"""


def render(
    name: str,
    prompt: Prompt,
    context: Context,
    asked: Sequence[tuple[Probe, str]],
    skill: str,
    before: Mapping[tuple[int, str], str] | None = None,
) -> Lesson:
    """The lesson that asks these probes, all of one form, over one context; each comes with its answer.

    Where there is something to read, what it tells is said before it is judged: a choice gives the option's text before
    its letter, a label the value that holds. So both are found as an open answer is, and compared after that.

    Args:
        name: the prompt's.
        before: what comes before the answer where it is told, by position and question (`working`).
    """
    turns = []
    prefix = ""
    for probe, answer in asked:
        system, user = prompt.messages(probe, context)
        *shown, question = user["parts"]
        prefix = f"<|system|>{''.join(system['parts'])}<|end|><|user|>{''.join(shown)}"
        found: str | None = None
        if probe.form == "choice" and probe.options:
            found = working.walked(probe.options, probe.options[string.ascii_uppercase.index(answer)])
        elif answer != refusal_of(name):
            found = (before or {}).get((probe.position, probe.question))
        reason = f"{'Think:' if name == 'prelude' else ''} {found}\n" if found and context else ""
        turns.append((f"{question}<|end|><|assistant|>", f"{reason}{prompt.target(answer)}<|end|>"))
    return Lesson(skill, prefix, turns)


# ---------------------------------------------------------------- facts at large


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
    *(_attribute("thing", name, "place") for name in ("home region", "backup region", "test town")),
    _attribute("thing", "inventor", "person"),
    _attribute("thing", "logo colour", _CLOSED[1]),
    _attribute("thing", "storage time", _CLOSED[2]),
    _attribute("thing", "monthly price", _CLOSED[3]),
    _attribute("place", "bridge toll", _CLOSED[5]),
)  # fmt: skip
_OPEN = ("oaks_babi", "evowiki", "imprint_news", "imprint_code", "imprint_personal", "evolveqa")
_TESTED = ("imprint_news", "imprint_code", "imprint_personal", "evolveqa")
"""Prompts with labels and options."""
REFUSALS: Mapping[str, str] = {"oaks_babi": "Unknown", "evowiki": "unknown"}
"""What is said where nothing tells; other prompts ask for `no information about it`."""


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
        asked.append((_probe(question, form, options, documents[-1].position), reply))
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


ACTIVE = "## Active\n"


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


def remembered(memory_system: str, before: str, text: str, after: str, skill: str) -> Lesson:
    """The lesson that asks `memory_scaffold`'s question."""
    prefix = f"<|system|>{memory_system}<|end|><|user|># Memory so far\n{before}\n\n# Next text\n{text}"
    return Lesson(skill, prefix, [("<|end|><|assistant|>", f"{after}<|end|>")])


SUMMARY = """\
Sum up what the text says of one subject: what holds where the text ends, a short sentence for each fact, and no more.\
"""
RECORD = """\
Write down as one JSON object what the text says of one subject: the value of each attribute where the text ends.\
"""
SEARCH = """\
Answer the question by searching. To search, write one call in this form and wait for what it finds:
<tool_call>
{"name": "search", "arguments": {"query": "<words>"}}
</tool_call>
Once what was found tells the answer, end with a line `## Answer: <answer>`.\
"""
CHORES: Mapping[str, str] = {
    SUMMARY: "a short summary",
    RECORD: "short JSON",
    SEARCH: "a search as a tool call",
}
"""The skill of each task other than a dataset's questions, by its text, which is ours: no method asks it yet."""
_ATTRIBUTE = re.compile(r"(?:What|Who) is the (.+) of \{0\}\?")


def chore(rng: Random, pools: Pools, count: int, task: str) -> Lesson:
    """A task of `CHORES` over statements about few subjects.

    Args:
        count: statements, at least.
    """
    told = tell(rng, pools, count)
    latest = {(relation, subject): value for relation, subject, value in told}
    named = {r: m[1] for r in RELATIONS for asked in r.asked if (m := _ATTRIBUTE.fullmatch(asked))}
    attributes = {key: named[key[0]] for key in latest if key[0] in named}
    if not attributes:
        return chore(rng, pools, count, task)
    text = " ".join(relation.told.format(subject, value) for relation, subject, value in told)
    turns = []
    system, shown = f"<|system|>{task}<|end|><|user|>", f"# Text\n{text}\n\n# Subject"
    if task == SEARCH:
        shown = ""
        for (relation, subject), attribute in attributes.items():
            question = rng.choice(relation.asked).format(subject)
            call = json.dumps({"name": "search", "arguments": {"query": f"{attribute} of {subject}"}})
            turns.append((f"# Question\n{question}<|end|><|assistant|>", f"<tool_call>\n{call}\n</tool_call><|end|>"))
    else:
        for subject in dict.fromkeys(subject for _, subject in attributes):
            mine = {key[0]: value for key, value in latest.items() if key[1] == subject}
            if task == SUMMARY:
                reply = " ".join(relation.told.format(subject, value) for relation, value in mine.items())
            else:
                reply = json.dumps({named[relation]: value for relation, value in mine.items() if relation in named})
            turns.append((f"\n{subject}<|end|><|assistant|>", f"{reply}<|end|>"))
    return Lesson(CHORES[task], system + shown, turns[:MOST])


LINES = 20
"""Of a memory of events."""


def chronicle(group: Group, rng: Random, pools: Pools, names: frozenset[str], memory_system: str) -> Lesson:
    """The memory of a story's events in order, the latest `LINES` of them: sentences with an invented name."""

    def events(documents: Sequence[Document]) -> list[str]:
        lines = working.sentences(d.text for d in documents)
        return [line for line in lines if any(word.lower() in names for word in re.findall(r"[A-Za-z]{3,}", line))]

    n = rng.randrange(len(group.documents))
    before, after = events(group.documents[:n])[-LINES:], events(group.documents[: n + 1])[-LINES:]
    memory, new = (ACTIVE + "\n".join(lines) if lines else "(empty)" for lines in (before, after))
    lesson = remembered(memory_system, memory, group.documents[n].text, new, f"{group.world.dataset} notes")
    return _renamed(lesson, renamer(pools, names, rng))


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


def _probe(question: str, form: Form, options: list[str] | None, position: int) -> Probe:
    return Probe(id="", question_id="", stream="", position=position, question=question, options=options, form=form)


# ---------------------------------------------------------------- the datasets' own worlds


@dataclass(frozen=True, slots=True)
class Group:
    """Probes of one world that are asked at one place in one form."""

    world: World
    prompt: Prompt
    documents: Sequence[Document]
    """Those that have arrived."""
    probes: Sequence[tuple[Probe, Gold]]
    before: Mapping[tuple[int, str], str]
    """What comes before an answer, by the position and the text of its question."""


def groups(world: World, prompts: Mapping[str, PromptCard]) -> list[Group]:
    """A world's probes in groups; those in Chinese are left out."""
    streams: dict[str, list[Document]] = {}
    for document in world.documents:
        streams.setdefault(document.stream, []).append(document)
    found: dict[tuple[str, int, Form], list[tuple[Probe, Gold]]] = {}
    for probe, gold in zip(world.probes, world.golds, strict=True):
        if probe.question.isascii():
            found.setdefault((probe.stream, probe.position, probe.form), []).append((probe, gold))
    prompt = Prompt(prompts[world.prompt], world.examples)
    before = working.of_world(world)
    return [
        Group(world, prompt, [d for d in streams[stream] if d.position <= position], probes, before)
        for (stream, position, _), probes in found.items()
    ]


def reading(
    group: Group, rng: Random, pools: Pools, names: frozenset[str], size: Callable[[str], int], room: int
) -> Lesson:
    """Questions of a group over documents that hold the answers of some of them.

    Args:
        size: tokens of a text, roughly.
        room: tokens of documents at most, but for the evidence of one question.
    """
    prompt = group.prompt
    if prompt.examples and rng.random() < 0.6:
        prompt = replace(prompt, examples=())  # they are long, and the same again and again
    full = sum(size(d.text) for d in group.documents) <= room
    style = rng.random()
    with_words = [(p, g) for p, g in group.probes if g.context]
    skill = f"{group.world.dataset} {group.probes[0][0].form}"
    if with_words and style < 0.4:  # as the oracle reads
        chosen = rng.sample(with_words, min(len(with_words), rng.choice((1, 2, 3, 6))))
        chosen = list({probe.question: (probe, gold) for probe, gold in chosen}.values())
        words = list(dict.fromkeys(text for _, gold in chosen for text in gold.context))
        if sum(map(size, words)) > room:
            chosen = chosen[:1]
            words = list(chosen[0][1].context)
        if len(chosen) > 1:
            rng.shuffle(words) if rng.random() < 0.5 and not _ordered(group) else None
        documents = [
            Document(id=f"context {n}", stream="", position=n, timestamp=None, text=text)
            for n, text in enumerate(words)
        ]
        context = Context(recent=documents)
        asked = [(probe, _reply(group, probe, gold)) for probe, gold in chosen]
        skill += " oracle"
    else:
        shown: dict[str, Document] = {}
        by_id = {d.id: d for d in group.documents}
        used = 0
        if full and style > 0.8:
            shown = by_id
        else:
            for _, gold in rng.sample(list(group.probes), len(group.probes)):
                new = [by_id[id] for id in gold.evidence if id in by_id and id not in shown]
                cost = sum(size(d.text) for d in new)
                if not shown or used + cost <= room * 0.6:
                    shown |= {d.id: d for d in new}
                    used += cost
                if used > room * 0.4:
                    break
            others = [d for d in group.documents if d.id not in shown]
            for document in rng.sample(others, min(len(others), rng.choice((0, 1, 2, 4, 8, 16)))):
                if used + size(document.text) <= room:
                    shown[document.id] = document
                    used += size(document.text)
        documents = sorted(shown.values(), key=lambda d: d.position)
        layout = rng.random()
        if layout < 0.5 or not documents:
            context = Context(recent=documents)
        elif layout < 0.85:
            ranked = rng.sample(documents, len(documents))
            context = Context(retrieved=ranked)
        else:
            cut = rng.randint(0, len(documents) - 1)
            context = Context(retrieved=rng.sample(documents[:cut], cut), recent=documents[cut:])
        askable = list(_askable(group, {d.id for d in documents}, " ".join(d.text for d in documents)))
        rng.shuffle(askable)
        # Not more refusals than answers.
        told = [(probe, answer) for probe, answer, answered in askable if answered][:MOST]
        untold = [(probe, answer) for probe, answer, answered in askable if not answered]
        asked = [*told, *untold[: max(1, len(told) // 3)]]
    if not asked:
        return closed(group, rng, pools, names)
    return _renamed(render(group.world.prompt, prompt, context, asked, skill, group.before), renamer(pools, names, rng))


def _ordered(group: Group) -> bool:
    """Whether the order of what is told matters."""
    return group.world.prompt not in ("evowiki", "prelude")


def _askable(group: Group, shown: set[str], text: str) -> Iterator[tuple[Probe, str, bool]]:
    """Probes that the shown documents answer, and those of which they tell nothing, with the reply to give and
    whether they are answered."""
    refusal = refusal_of(group.world.prompt)
    for probe, gold in group.probes:
        if set(gold.evidence) <= shown:
            yield probe, _reply(group, probe, gold), bool(gold.evidence)
        elif not shown.intersection(gold.evidence) and not any(old in text for old in (*gold.outdated, *gold.answers)):
            if probe.form == "short":
                yield probe, refusal, False
            elif probe.options and (cannot := "We cannot answer this question at this point.") in probe.options:
                yield probe, string.ascii_uppercase[probe.options.index(cannot)], False


def _reply(group: Group, probe: Probe, gold: Gold) -> str:
    """An identifier stands in quotes, as release notes write it: so it has the same tokens as there."""
    answer = preferred(gold.answers)
    identifier = probe.form == "short" and group.world.prompt == "imprint_code" and answer.isidentifier()
    return f"`{answer}`" if identifier else answer


def refusal_of(prompt: str) -> str:
    """What is said where nothing tells."""
    return REFUSALS.get(prompt, NO_INFORMATION)


def closed(group: Group, rng: Random, pools: Pools, names: frozenset[str]) -> Lesson:
    """Questions of a group without any context: of names never met nothing is known, and a choice is a guess."""
    asked = []
    for probe, _ in rng.sample(list(group.probes), min(MOST, len(group.probes))):
        options = probe.options or []
        if probe.form == "short":
            reply = refusal_of(group.world.prompt)
        else:
            reply = rng.choice(string.ascii_uppercase[: len(options)] if probe.form == "choice" else options)
        asked.append((probe, reply))
    lesson = render(group.world.prompt, group.prompt, Context(), asked, "closed")
    return _renamed(lesson, renamer(pools, names, rng))


def known(name: str, prompt: PromptCard, pairs: Sequence[Pair], rng: Random) -> Lesson:
    """Facts to know by heart, asked as the closed book asks."""
    asked = [
        (_probe(pair.question, "short", None, 0), pair.answer) for pair in rng.sample(list(pairs), min(16, len(pairs)))
    ]
    return render(name, Prompt(prompt), Context(), asked, "known")


def _renamed(lesson: Lesson, rename: Callable[[str], str]) -> Lesson:
    marker = "<|user|>"
    system, _, shown = lesson.prefix.partition(marker)
    examples = system.find("<example_1>")
    if examples >= 0:
        system = system[:examples] + rename(system[examples:])
    turns = [(rename(question), rename(reply)) for question, reply in lesson.turns]
    return replace(lesson, prefix=system + marker + rename(shown), turns=turns)


def wording() -> list[str]:
    """The words of the facts at large, once each."""
    return [text for r in RELATIONS for text in (r.told, *r.asked, r.claimed, r.values)]
