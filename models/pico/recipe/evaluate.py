"""What `pico` is asked to see how well it does: worlds with held-out names, as the methods ask, and facts at large.

`python models/pico/recipe evaluate INPUTS MODEL FILE` writes an `Asked` a line. Whether replies are right is said on
the host (`recipe.measured`), where answers are read. Every model is asked the same.
"""

from __future__ import annotations

import asyncio
import sys
from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace as replaced
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from recipe import chores, facts, groups, teacher, working, worlds
from recipe.lessons import Lesson, Read
from recipe.passages import by_dataset
from recipe.playing import Room
from recipe.settings import Given
from recipe.tokenizer import POSITIONS
from upkeep.cell.interface import Context, Message
from upkeep.cell.lockstep import Generate, Generated
from upkeep.cell.prompts import Prompt, fit
from upkeep.cell.retrieval import Bm25
from upkeep.cell.tokens import SEGMENT_TOKENS, TokenPrompt
from upkeep.contract import Document, EngineSettings, Form, Gold, ModelSpec, Probe, Sampling

REPLY, LONG_REPLY = 96, 320
"""Tokens of a reply at most, as the model's card has it; and of what methods ask for at greater length."""
LENGTHY = (1000, 1400)
"""Tokens of documents in a long context, and at most 1,500 with what stands around them."""
TOGETHER = 64
"""Prompts that a process is given at a time."""
METHODS = ("closed_book", "oracle", "long_context", "rolling_w1", "rag_k1", "rag_k3", "rag_k10")
LESSONS = 30
"""Of each number of facts at large."""
PROBES = 40
"""Of each dataset and method, and of what is known by heart; of each world, of each kind of count and chain."""
QUESTIONS = 150
"""Of each skill that is asked as methods and judges ask, and of those over worlds that no lesson is of."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt with what is right."""

    skill: str
    prompt: str
    accepted: Sequence[str]
    outdated: Sequence[str] = ()
    read: Read
    """Where the answer stands in the reply: where the suite reads one of `form`, or so."""
    form: Form = "short"
    options: Sequence[str] | None = None
    exact: bool
    """Whether the answer must be an accepted one, or may name it among other words."""
    also: str = ""
    """A second skill that it counts for."""
    marker: str = ""
    """What the prompt wants before the answer."""
    structured: bool = False
    """Whether JSON is asked for, so that it counts whether it can be read."""
    room: int = REPLY
    """Tokens of the reply at most."""
    reply: str = ""


class Model:
    """The model's files, as the suite's own engine reads and asks them."""

    context_length = POSITIONS

    def __init__(self, folder: Path, sampling: Sampling) -> None:
        from upkeep.serving.transformers_engine import TransformersEngine

        form = {"label": "pico", "summary": "", "source": "path", "location": ".", "dtype": "float32"}
        spec = msgspec.convert(form | {"context_length": POSITIONS}, ModelSpec)
        self.engine = TransformersEngine(str(folder), spec, EngineSettings(name="transformers", threads=1))
        self.tokens = self.engine.chat_tokens
        self.sampling = sampling

    def count(self, text: str) -> int:
        return self.tokens.count(text)

    def count_prompt(self, messages: Sequence[Message]) -> int:
        return self.tokens.prompt(messages).length

    def render(self, messages: Sequence[Message]) -> str:
        chat = [{"role": m["role"], "content": "".join(m["parts"])} for m in messages]
        text: str = self.tokens.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        return text

    def reply(self, prompts: Sequence[str], room: int = REPLY, workers: int = 1) -> list[str]:
        """Greedy replies, the same for any number of workers: processes of one thread, and no reply depends on what
        else is asked.

        Args:
            room: tokens of a reply at most; a prompt loses its beginning where that leaves too few for it.
        """
        jobs = [(prompts[first : first + TOGETHER], room) for first in range(0, len(prompts), TOGETHER)]
        if workers == 1:
            return [reply for job in jobs for reply in self._replies(*job)]
        with get_context("fork").Pool(workers, _of.append, (self,)) as pool:
            return [reply for replied in pool.map(_replies, jobs, chunksize=1) for reply in replied]

    def _replies(self, prompts: Sequence[str], room: int) -> list[str]:
        async def ask() -> list[str]:
            waiting = []
            for prompt in prompts:
                ids = array("i", self.tokens.encode(prompt)[-(POSITIONS - room) :])
                segments = [ids[n : n + SEGMENT_TOKENS] for n in range(0, len(ids), SEGMENT_TOKENS)]
                future = asyncio.get_running_loop().create_future()
                waiting.append(Generate(TokenPrompt.of(segments), Sampling(max_tokens=room), 0, future))
                self.engine.add(waiting[-1])
            replied: dict[int, str] = {}
            while self.engine.busy:
                for request, outcome in self.engine.step():
                    assert isinstance(outcome, Generated), outcome
                    replied[id(request)] = self.tokens.decode(outcome.ids)
            return [replied[id(request)] for request in waiting]

        return asyncio.run(ask())


_of: list[Model] = []
"""The model of a process that replies."""


def _replies(job: tuple[Sequence[str], int]) -> list[str]:
    return _of[-1]._replies(*job)


def at_large(rng: Random, given: Given, count: int) -> Iterator[Asked]:
    """Lessons about facts at large, a prompt for each question, and memories of them that are written anew.

    Args:
        count: of each kind.
    """
    pools = given.held_out
    kinds: Sequence[tuple[Form, int, float]] = [
        ("short", 4, 0.0), ("short", 14, 0.0), ("short", 14, 0.5), ("choice", 4, 0.0), ("label", 4, 0.0)
    ]  # fmt: skip
    for form, told, changes in kinds:
        for _ in range(count):
            lesson = facts.facts(rng, pools, given.prompts, told, changes, 0.15, form)
            for question, reply in lesson.turns[:4]:
                answer = reply.removesuffix("<|end|>").rpartition(":")[2].strip()
                kind = "refusal" if answer.endswith(("nknown", working.NO_INFORMATION)) else lesson.skill
                skill = f"{kind}, {told} facts{', some changed' if changes else ''}"
                yield Asked(
                    skill=skill, prompt=lesson.prefix + question, accepted=[answer], read="after a colon", exact=True
                )
    for _ in range(count):
        lesson = facts.notes(rng, pools, 3, given.memory_system)
        yield from _whole(lesson, "a memory of up to 3 facts written anew")
    for task, skill in chores.CHORES.items():
        for _ in range(count):
            yield from _whole(chores.chore(rng, pools, 4, task), skill)


def _whole(lesson: Lesson, skill: str) -> Iterator[Asked]:
    """The first turn of a lesson whose reply is right if it is the same."""
    question, reply = lesson.turns[0]
    right = [reply.removesuffix("<|end|>")]
    yield Asked(skill=skill, prompt=lesson.prefix + question, accepted=right, read="whole", exact=True)


def as_methods(world: worlds.World, prompt: Prompt, model: Model, probes: int, rng: Random) -> Iterator[Asked]:
    """Probes of a world as the methods ask them."""
    streams: dict[str, list[Document]] = defaultdict(list)
    for document in world.documents:
        streams[document.stream].append(document)
    indices = {name: Bm25() for name in streams}
    for name, documents in streams.items():
        indices[name].add(documents)
    pairs = list(zip(world.probes, world.golds, strict=True))
    pairs = [(p, g) for p, g in pairs if p.question.isascii()]
    for probe, gold in rng.sample(pairs, min(probes, len(pairs))):
        documents = [d for d in streams[probe.stream] if d.position <= probe.position]
        by_id = {d.id: d for d in documents}
        for method in METHODS:
            name, _, number = method.partition("_k") if method.startswith("rag") else method.partition("_w")
            match name:
                case "closed_book":
                    context = Context()
                case "oracle":
                    context = evidence(gold, documents)
                case "long_context":
                    context = Context(recent=documents)
                case "rolling":
                    context = Context(recent=documents[-int(number) :])
                case "rag":
                    found = indices[probe.stream].search(probe, int(number), last=probe.position)
                    context = Context(retrieved=[by_id[r.id] for r in found])
                case _:
                    raise ValueError(f"unknown method {method!r}")
            asked = _asked(f"{world.dataset}: {method}", world, prompt, probe, gold, context, model)
            if method == "oracle" and gold.evidence:
                pieces = len(gold.evidence)
                many = "one document" if pieces == 1 else "two documents" if pieces == 2 else "more documents"
                asked = replace(asked, also=f"the small datasets: {_FORMS[probe.form]} from {many}")
            yield asked


def closer(world: worlds.World, prompt: Prompt, model: Model, most: int, rng: Random) -> Iterator[Asked]:
    """Skills that `as_methods` does not tell apart, from up to `most` probes each, as the oracle asks them: counts of
    events, and chains of hops."""
    found: dict[str, list[tuple[Probe, Gold]]] = defaultdict(list)
    for probe, gold in zip(world.probes, world.golds, strict=True):
        answer = gold.answers[0]
        if gold.evidence and world.prompt == "oaks_babi" and answer.isdigit():
            found["a count of events, up to 2" if int(answer) <= 2 else "a count of events, 3 or more"].append(
                (probe, gold)
            )
        elif gold.evidence and world.prompt == "evowiki":
            hops = len(gold.evidence)
            found[f"a chain of {hops} hop{'s' if hops > 1 else ''}"].append((probe, gold))
    for skill, pairs in sorted(found.items()):
        for probe, gold in rng.sample(pairs, min(most, len(pairs))):
            documents = [d for d in world.documents if d.stream == probe.stream and d.position <= probe.position]
            yield _asked(skill, world, prompt, probe, gold, evidence(gold, documents), model)


def rooms(inputs: Path, given: Given, unseen: Sequence[worlds.World]) -> Iterator[Room]:
    """What methods are asked with: invented statements, and the texts of worlds that nothing was learned from."""
    # The size of a text in bytes, so that a larger vocabulary is asked the same.
    plain = Room(given.held_out, given.prompts, given.rubrics, inputs / "methods", lambda text: len(text.encode()) // 3)
    yield plain
    names = teacher.invented_in([*worlds.read(inputs / "worlds.jsonl"), *unseen], given.prompts)
    named = by_dataset(group for world in unseen for group in groups.groups(world, given.prompts))
    yield replaced(plain, groups=named, names=names, share=1.0)


def as_asked(rng: Random, room: Room, items: int) -> Iterator[Asked]:
    """What methods and judges ask besides: up to `items` of each skill, from texts with held-out names."""
    for name, make in teacher.ASKED.items():
        if room.share and name in teacher.INVENTED:
            continue
        found: dict[str, int] = defaultdict(int)
        for _ in range(4 * items):
            for lesson in make(rng, room):
                if found[lesson.skill] < items:
                    found[lesson.skill] += 1
                    yield Asked(
                        skill=lesson.skill,
                        prompt=lesson.prefix + lesson.turns[0][0],
                        accepted=lesson.accepted,
                        read=lesson.read,
                        exact=True,
                        also="judging" if lesson.skill.startswith("judging") else "",
                        structured="{" in lesson.turns[0][1],
                        room=LONG_REPLY,
                    )


def harder(found: Sequence[worlds.World], given: Given, model: Model, most: int, rng: Random) -> Iterator[Asked]:
    """Skills over worlds that no lesson is of: up to `most` of each."""
    pools: dict[str, list[tuple[worlds.World, Prompt, Probe, Gold, bool]]] = defaultdict(list)
    for world in found:
        plain, full = (Prompt(given.prompts[world.prompt], shown) for shown in ((), world.examples))
        for probe, gold in zip(world.probes, world.golds, strict=True):
            if not gold.evidence:
                continue
            if not probe.question.isascii():
                pools["a label in Chinese"].append((world, plain, probe, gold, False))
                continue
            if teacher.counts(probe, gold) and int(gold.answers[0]) >= 3:
                pools["a count of events, 3 to 6"].append((world, plain, probe, gold, False))
            if len(set(gold.evidence)) == 3:
                pools["an answer from three documents"].append((world, plain, probe, gold, False))
            if world.examples:
                pools["a label after five worked examples"].append((world, full, probe, gold, False))
            elif len(gold.evidence) == 1:
                pools["an answer from 1,000 to 1,500 tokens"].append((world, plain, probe, gold, True))
    for skill, cases in sorted(pools.items()):
        for world, prompt, probe, gold, long in rng.sample(cases, min(most, len(cases))):
            documents = [d for d in world.documents if d.stream == probe.stream and d.position <= probe.position]
            context = _long(gold, documents, model, rng) if long else evidence(gold, documents)
            yield _asked(skill, world, prompt, probe, gold, context, model)


def _long(gold: Gold, documents: Sequence[Document], model: Model, rng: Random) -> Context:
    """The evidence among other documents, in order, as many as make a long context."""
    told = set(gold.evidence)
    room = rng.randint(*LENGTHY) - sum(model.count(d.text) for d in documents if d.id in told)
    for document in rng.sample(documents, len(documents)):
        if document.id not in told and (size := model.count(document.text)) <= room:
            told.add(document.id)
            room -= size
    return Context(recent=[d for d in documents if d.id in told])


_FORMS: dict[Form, str] = {"short": "open answers", "choice": "letters", "label": "labels"}


def evidence(gold: Gold, documents: Sequence[Document]) -> Context:
    """What the oracle shows: the golden words, or else the documents that hold the answer."""
    words = [
        Document(id=str(n), stream="", position=n, timestamp=None, text=text) for n, text in enumerate(gold.context)
    ]
    return Context(recent=words or [d for d in documents if d.id in set(gold.evidence)])


def _asked(
    skill: str, world: worlds.World, prompt: Prompt, probe: Probe, gold: Gold, context: Context, model: Any
) -> Asked:
    messages, _ = fit(prompt, probe, context, model)
    return Asked(
        skill=skill,
        prompt=model.render(messages),
        accepted=gold.answers,
        outdated=gold.outdated,
        read="answer",
        form=probe.form,
        options=probe.options,
        exact=probe.form != "short" or world.prompt == "oaks_babi",
        marker=prompt.marker,
    )


def main(arguments: list[str]) -> int:
    inputs, folder, file = map(Path, arguments)
    given = msgspec.json.decode((inputs / "given.json").read_bytes(), type=Given)
    model = Model(folder, Sampling(max_tokens=REPLY))
    rng = Random("pico evaluation")
    asked = list(at_large(rng, given, LESSONS))
    for name, pairs in given.known:
        for pair in rng.sample(pairs, min(PROBES, len(pairs))):
            lesson = groups.known(name, given.prompts[name], [pair], rng)
            text = lesson.prefix + lesson.turns[0][0]
            asked.append(
                Asked(
                    skill=f"known by heart: {name}",
                    prompt=text,
                    accepted=[pair.answer],
                    read="after a colon",
                    exact=False,
                )
            )
    for world in worlds.read(inputs / "held_out.jsonl"):
        prompt = Prompt(given.prompts[world.prompt], world.examples)
        asked += as_methods(world, prompt, model, PROBES, rng)
        asked += closer(world, prompt, model, PROBES, rng)
    unseen = worlds.read(inputs / "unseen.jsonl")
    rng = Random("pico evaluation of methods")
    for room in rooms(inputs, given, unseen):
        asked += as_asked(rng, room, QUESTIONS)
    asked += harder(unseen, given, model, QUESTIONS, rng)
    # The small datasets alone ask for 29 counts up to two: six of them that go the other way look like 20 points lost.
    for world in unseen:
        asked += closer(world, Prompt(given.prompts[world.prompt], world.examples), model, PROBES, rng)
    replies: dict[int, str] = {}
    for most in (REPLY, LONG_REPLY):
        chosen = [n for n, one in enumerate(asked) if one.room == most]
        replies |= zip(chosen, model.reply([asked[n].prompt for n in chosen], most, given.stage.workers), strict=True)
    answered = [replace(one, reply=replies[n]) for n, one in enumerate(asked)]
    file.write_bytes(msgspec.json.Encoder().encode_lines(answered))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
