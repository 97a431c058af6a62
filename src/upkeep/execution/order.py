"""In how many passes a cell is asked and which questions in which, how many of its streams side by side, and whether
the cells of a sweep are.

All questions of an interval share what had arrived, so they are asked together, interval after interval: one pass. What
a question finds by itself stands in the prompt of the same question one interval before, and in few others. So a group
of questions is asked through all intervals, as many as the engine keeps the prompts of, and then the next group: in a
pass of its own, with a new container that is fed all documents as they arrive (`execution.passes` says which is asked
in which). Whether that takes less time follows from what the method's card says of its prompts (`shows`) and from the
model's card. It changes no answer of an engine whose answers depend on their prompts alone, and is no part of a cell's
identity.

Cells of a sweep (`upkeep.sweeps`) find the same documents in the same order, and show more or fewer of them. So they
are asked side by side, round by round, those with fewer documents first: each goes on from what the one before has had
computed.

On a GPU each step reads the weights, for one answer or for a hundred; so a round that waits for its slowest answers
wastes most of what it takes. Then the streams are dealt to several strands (`rounds.stranded`), as many as it pays to
have and as the engine has room for.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from msgspec import structs

from upkeep.catalog import Catalog
from upkeep.contract import EngineSettings, ModelSpec
from upkeep.execution.passes import by_finding, by_wording
from upkeep.execution.roofline import (
    Assumptions,
    Figures,
    Work,
    at_once,
    figures,
    gpu_of,
    read_assumptions,
    summed,
    work_s,
)
from upkeep.execution.rounds import BuiltDataset, answering
from upkeep.identity import engine_settings
from upkeep.jobs import Cell
from upkeep.method_cards import Shown, shown_of
from upkeep.normal_form import read_table

REST_TOKENS = 512
"""Of a prompt, beside its documents: rules, question, template."""
FILLED = 0.75
"""Of an engine's cache that a group may fill: what is counted in another tokenizer's tokens may be more, and a group
that does not fit finds nothing in it."""
WORTH = 0.98
"""Of an order's time: what a less simple one may take at most."""


@dataclass(frozen=True, slots=True)
class Order:
    """How a cell is asked."""

    numbers: Sequence[int]
    """Of each probe's pass, from 0."""
    held: bool
    """Whether a question's prompt is still in the engine's cache when its next one comes, or what other questions have
    in common with that one."""
    together: float
    """Records that an engine works on at a time, on average."""
    strands: int = 1
    """Streams, or packs of them, that are asked side by side."""
    sweep: bool = False
    """Whether the cells of its sweep are asked side by side with it, in the same passes."""
    room: int | None = None
    """Tokens of the engine's cache; None where that is unknown."""

    @property
    def passes(self) -> int:
        return len(set(self.numbers)) or 1


@dataclass(frozen=True, slots=True)
class _Prompts:
    """What a cell asks, as far as its method's card tells.

    Args:
        shown: None where prompts may show all that has arrived, which all questions of an interval share.
        tokens: of a document of each stream, on average.
    """

    corpus: BuiltDataset
    shown: Shown | None
    tokens: dict[str, float]
    reply: int
    trials: int
    limit: int
    """Tokens of a prompt at most."""

    def shared(self, stream: str, arrived: int) -> float:
        """Tokens that all prompts of an interval begin with."""
        if self.shown is None:
            return min(self.limit, self.tokens[stream] * arrived)
        latest = 0 if self.shown.ranked else min(self.shown.latest, arrived)
        return min(self.limit, self.tokens[stream] * latest)

    def length(self, stream: str, arrived: int) -> float:
        own = 0.0
        if self.shown is not None and self.shown.ranked:
            ranked = min(self.shown.ranked, arrived)
            own = self.tokens[stream] * (ranked + min(self.shown.latest, arrived - ranked))
        return min(self.limit, self.shared(stream, arrived) + own + REST_TOKENS)

    def longest(self, of: Callable[[str, int], float]) -> float:
        """The most that anything comes to in any stream."""
        return max(of(stream, arrived) for stream, arrived, _, _ in self._intervals())

    def work(self, *, held: bool) -> Work:
        """What an engine does.

        Args:
            held: whether it keeps the prompt that a question had before.
        """
        before: dict[tuple[str, str], int] = {}
        prompt = computed = attended = 0.0
        for stream, arrived, last, places in self._intervals():
            length = self.length(stream, arrived)
            # Of the first question, and of the others: what has arrived since stands behind what had before.
            known = [min(length, self.shared(stream, arrived))] * len(places)
            known[0] = min(length, self.shared(stream, last)) if self.shown is None else 0.0
            if held and self.shown is not None:
                for number, place in enumerate(places):
                    key = (stream, self.corpus.probes[place].question_id)
                    earlier = before.get(key, 0)
                    found = self.tokens[stream] * kept(self.shown.ranked, earlier, arrived - earlier)
                    known[number] = min(length, max(known[number], found))
                    before[key] = arrived
            prompt += length * len(places)
            computed += length * len(places) - sum(known)
            attended += (length**2 * len(places) - sum(one**2 for one in known)) / 2
        requests = len(self.corpus.probes) * self.trials
        # Further trials have the prompt of the first.
        return Work(
            requests=requests,
            prompt=prompt * self.trials,
            computed=computed,
            output=requests * self.reply,
            attended=attended,
            read=prompt * self.trials * self.reply,
        )

    def _intervals(self) -> Iterator[tuple[str, int, int, tuple[int, ...]]]:
        """Each interval of a stream: the documents that have arrived and that had at the one before, and the places of
        its probes."""
        for steps in self.corpus.intervals:
            last = 0
            for step in steps:
                first = self.corpus.probes[step.probes[0]]
                yield first.stream, first.position + 1, last, step.probes
                last = first.position + 1


@functools.cache
def kept(ranked: int, arrived: int, more: int) -> float:
    """How many documents a prompt has in common with the one before, from the first one on, where so many more have
    come to those that had arrived: each of these may as well have any rank, and what ranks before it stays."""
    total, chance = 0.0, 1.0
    for rank in range(min(ranked, arrived)):
        chance *= (arrived - rank) / (arrived + more - rank)
        total += chance
    return total


def order(catalog: Catalog, cell: Cell, corpus: BuiltDataset, trials: int, sweep: Sequence[Cell] = ()) -> Order:
    """That which takes a cell's engine least time; of such as take about the same the simplest.

    Args:
        sweep: cells that can be asked side by side, this one among them (`upkeep.sweeps`); the answer for each of them
            is the same where they are to be.
    """
    simple = Order([0] * len(corpus.probes), held=False, together=_asked(catalog, cell, corpus, trials))
    if (engine := _engine(catalog, cell, corpus, trials)) is None:
        return simple
    if len(sweep) > 1 and (found := _side_by_side(catalog, sweep, corpus, trials)) is not None:
        numbers = in_passes(catalog, sweep[-1], corpus, found.group)
        return Order(numbers, held=True, together=found.together, sweep=True, room=engine.tokens)
    found = _best(engine.choices(engine.most))
    numbers = in_passes(catalog, cell, corpus, found.group)
    return Order(numbers, found.held, found.together, found.strands, room=engine.tokens)


def in_passes(catalog: Catalog, cell: Cell, corpus: BuiltDataset, size: int) -> Sequence[int]:
    """Of each probe the number of its pass.

    Args:
        cell: of a sweep that which shows most documents.
        size: questions of a stream that are asked in a pass, in each interval; 0 for all.
    """
    if not size:
        return [0] * len(corpus.probes)
    shown = shown_of(catalog.method(cell.method), cell.variant)
    if shown is None or shown.ranker is None:
        return by_wording(corpus, size)
    return by_finding(corpus, size, shown.ranked)


def _best(choices: Iterable[_Choice]) -> _Choice:
    every = [*choices]
    quickest = min(choice.seconds for choice in every)
    return next(choice for choice in every if WORTH * choice.seconds <= quickest)


def _side_by_side(catalog: Catalog, sweep: Sequence[Cell], corpus: BuiltDataset, trials: int) -> _Choice | None:
    """The order of all cells of a sweep together, the last of which shows most; None where they take less time one
    after the other."""
    found = [_engine(catalog, cell, corpus, trials) for cell in sweep]
    engines = [engine for engine in found if engine is not None]
    if len(engines) < len(found):
        return None
    apart = sum(_best(engine.choices(engine.most)).seconds for engine in engines)
    # What the others' prompts begin with is computed once, for whichever asks first.
    works = [engine.prompts.work(held=True) for engine in engines[:-1]]
    rest, asked = REST_TOKENS * len(corpus.probes), len(corpus.probes) * trials
    more = [structs.replace(work, computed=rest, attended=rest * work.prompt / asked) for work in works]
    largest = replace(engines[-1], more=tuple(more))
    choices = [choice for choice in largest.choices(1) if choice.held]
    best = min(choices, key=lambda choice: choice.seconds, default=None)
    return best if best is not None and best.seconds <= WORTH * apart else None


def _asked(catalog: Catalog, cell: Cell, corpus: BuiltDataset, trials: int) -> float:
    """Records of a round, on average."""
    steps = answering(corpus, min_streams=catalog.method(cell.method).streams)
    return len(corpus.probes) * trials / max(1, len(steps))


def _engine(catalog: Catalog, cell: Cell, corpus: BuiltDataset, trials: int) -> _Engine | None:
    """What is asked of a cell's engine; None where no order takes less time than another, or nobody knows."""
    card, spec = catalog.method(cell.method), catalog.spec(cell.model) if cell.model != "none" else None
    # What an engine of the method's own is asked is on no record: a further pass would have it all asked again.
    if spec is None or card.holds_model or catalog.engine(cell.model) is None or not corpus.probes:
        return None
    # A CPU takes as long for each answer of a step, and the transformers engine computes one prompt at a time.
    many = spec.gpus > 0 and spec.engine != "transformers" and not card.one_at_a_time
    shown = shown_of(card, cell.variant)
    if not many and not (shown and shown.ranked):
        return None
    settings, a = engine_settings(catalog, cell, cell.model), read_assumptions(catalog)
    known, _ = figures(spec, catalog.model_card(cell.model), gpu_of(spec, a), a, settings.threads)
    if known is None or not settings.prefix_cache:
        return None
    prompts = _Prompts(corpus, shown, _tokens(corpus), reply_tokens(spec, a), trials, spec.context_length)
    steps = answering(corpus, min_streams=card.streams)
    abreast = max(len({corpus.probes[place].stream for place in step.probes}) for step in steps)
    asked, shared = _asked(catalog, cell, corpus, trials), prompts.longest(prompts.shared)
    return _Engine(spec, known, settings, a, prompts, asked, abreast, shared, many)


class _Choice(NamedTuple):
    """An order, and the seconds that it takes."""

    seconds: float
    strands: int
    together: float
    held: bool
    group: int = 0
    """Questions of a stream that a pass asks in an interval; 0 for all."""


@dataclass(frozen=True, slots=True)
class _Engine:
    """What is asked of which engine, and how long it takes in which order.

    Args:
        asked: records of a round, on average.
        abreast: streams of a round, at most.
        shared: tokens that all prompts of an interval begin with, at most.
        many: whether streams may be asked side by side.
        more: what other cells of its sweep ask besides.
    """

    spec: ModelSpec
    known: Figures
    settings: EngineSettings
    assumed: Assumptions
    prompts: _Prompts
    asked: float
    abreast: int
    shared: float
    many: bool
    more: tuple[Work, ...] = ()

    @property
    def most(self) -> int:
        """Strands that there can be."""
        return max(1, len(self.prompts.corpus.intervals) // self.abreast) if self.many else 1

    def choices(self, strands: int) -> Iterator[_Choice]:
        """Orders, the simple ones first; with so many strands at most, none of which is there in vain."""
        works = {held: summed([self.prompts.work(held=held), *self.more]) for held in (False, True)}
        questions = {(probe.stream, probe.question_id) for probe in self.prompts.corpus.probes}
        most, holds = max(Counter(stream for stream, _ in questions).values()), self._held
        groups = {1: holds // self.abreast}
        for number in range(2, strands + 1):
            if self._room(number) <= 0 or self._together(self.asked, number - 1) >= self.settings.max_in_flight:
                break
            groups[number] = holds // (self.abreast * number)
        for number, group in groups.items():
            held, together = group >= most, self._together(self.asked, number)
            yield _Choice(self._seconds(works[held], number, together), number, together, held)
        for number, group in groups.items():
            if 0 < group < most:
                passes = math.ceil(most / group)
                together = self._together(self.asked / passes, number)
                seconds = self._seconds(works[True], number, together) + self.assumed.pass_s * (passes - 1) * (
                    1 + len(self.more)
                )
                yield _Choice(seconds, number, together, True, group)

    @property
    def _held(self) -> int:
        """How many questions' prompts the engine keeps: the transformers engine, which has little room beside the
        latest one, no more than that for certain."""
        prompts = self.prompts
        if prompts.shown is None or not prompts.shown.ranked:
            return 0  # what a question finds by itself stands nowhere
        if self.spec.engine == "transformers":
            return 1
        own = prompts.reply + REST_TOKENS
        question = prompts.longest(prompts.length) - REST_TOKENS + own * (1 + len(self.more))
        return int(FILLED * self.known.room / (self.known.kv * question))

    @property
    def tokens(self) -> int:
        """Of the cache."""
        return int(self.known.room / self.known.kv)

    def _room(self, strands: int) -> float:
        """Bytes beside what all prompts of a round begin with."""
        return FILLED * self.known.room - strands * self.abreast * self.known.kv * self.shared

    def _together(self, asked: float, strands: int) -> float:
        """Records that are worked on at a time, on average: fewer than are asked, where some take longer than others,
        and where some strands end before others."""
        lasting = self.most / math.ceil(self.most / strands)
        return lasting * (at_once(asked) if self.spec.thinking == "on" else asked)

    def _seconds(self, work: Work, strands: int, together: float) -> float:
        room = self._room(strands) if strands > 1 else self.known.room
        return work_s(self.spec, replace(self.known, room=room), work, together, self.settings.max_in_flight)


def reply_tokens(spec: ModelSpec, a: Assumptions) -> int:
    """Of a reply, as plans take it."""
    thinking = a.thinking_tokens if spec.thinking == "on" else 0
    return min(spec.sampling.max_tokens, a.reply_tokens + thinking if spec.trained else spec.sampling.max_tokens)


def _tokens(corpus: BuiltDataset) -> dict[str, float]:
    counts = read_table(corpus.folder, "documents")["tokens"].to_list()
    return {stream: sum(counts[first:end]) / (end - first) for stream, (first, end) in corpus.streams.items()}
