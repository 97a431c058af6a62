"""Lessons of the datasets' own worlds, under fresh names: what is asked at one place in one form."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from recipe import working
from recipe.lessons import ACTIVE, MOST, Lesson, probe_of, refusal_of, remembered, render
from recipe.renaming import Pools, renamer
from recipe.working import preferred
from recipe.worlds import World
from upkeep.cell.interface import Context
from upkeep.cell.prompts import Prompt
from upkeep.contract import Document, Form, Gold, Pair, Probe, PromptCard

LINES = 20
"""Of a memory of events."""


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


def groups(world: World, prompts: Mapping[str, PromptCard], *, chinese: bool = False) -> list[Group]:
    """A world's probes in groups, those in English or those in Chinese."""
    streams: dict[str, list[Document]] = {}
    for document in world.documents:
        streams.setdefault(document.stream, []).append(document)
    found: dict[tuple[str, int, Form], list[tuple[Probe, Gold]]] = {}
    for probe, gold in zip(world.probes, world.golds, strict=True):
        if probe.question.isascii() != chinese:
            found.setdefault((probe.stream, probe.position, probe.form), []).append((probe, gold))
    prompt = Prompt(prompts[world.prompt], world.examples)
    before = working.of_world(world)
    return [
        Group(world, prompt, [d for d in streams[stream] if d.position <= position], probes, before)
        for (stream, position, _), probes in found.items()
    ]


def reading(
    group: Group,
    rng: Random,
    pools: Pools,
    names: frozenset[str],
    size: Callable[[str], int],
    room: int,
    *,
    examples: float = 0.4,
) -> Lesson:
    """Questions of a group over documents that hold the answers of some of them.

    Args:
        size: tokens of a text, roughly.
        room: tokens of documents at most, but for the evidence of one question.
        examples: how often worked examples are shown: they are long, and the same again and again.
    """
    prompt = group.prompt
    if prompt.examples and rng.random() >= examples:
        prompt = replace(prompt, examples=())
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
        asked = [(probe, answer_of(group, probe, gold)) for probe, gold in chosen]
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
            yield probe, answer_of(group, probe, gold), bool(gold.evidence)
        elif not shown.intersection(gold.evidence) and not any(old in text for old in (*gold.outdated, *gold.answers)):
            if probe.form == "short":
                yield probe, refusal, False
            elif probe.options and (cannot := "We cannot answer this question at this point.") in probe.options:
                yield probe, string.ascii_uppercase[probe.options.index(cannot)], False


def answer_of(group: Group, probe: Probe, gold: Gold) -> str:
    """An identifier stands in quotes, as release notes write it: so it has the same tokens as there."""
    answer = preferred(gold.answers)
    identifier = probe.form == "short" and group.world.prompt == "imprint_code" and answer.isidentifier()
    return f"`{answer}`" if identifier else answer


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


def known(name: str, prompt: PromptCard, pairs: Sequence[Pair], rng: Random) -> Lesson:
    """Facts to know by heart, asked as the closed book asks."""
    asked = [
        (probe_of(pair.question, "short", None, 0), pair.answer)
        for pair in rng.sample(list(pairs), min(16, len(pairs)))
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
