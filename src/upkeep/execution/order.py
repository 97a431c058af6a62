"""In how many passes a cell is asked, and which questions in which.

All questions of an interval share what had arrived, so they are asked together, interval after interval: one pass. What
a question finds by itself stands in the prompt of the same question one interval before, and in no other. So a group of
questions is asked through all intervals, as many as the engine keeps the prompts of, and then the next group: in a pass
of its own, with a new container that is fed all documents as they arrive. Whether that takes less time follows from
what the method's card says of its prompts (`shows`) and from the model's card. It changes no answer of an engine whose
answers depend on their prompts alone, and is no part of a cell's identity.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from upkeep.catalog import Catalog
from upkeep.contract import ModelSpec
from upkeep.execution.roofline import Assumptions, Figures, Work, figures, gpu_of, read_assumptions, work_s
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


@dataclass(frozen=True, slots=True)
class Order:
    """The passes of a cell."""

    numbers: Sequence[int]
    """Of each probe's pass, from 0."""
    held: bool
    """Whether a question's prompt is still in the engine's cache when its next one comes."""

    @property
    def passes(self) -> int:
        return len(set(self.numbers)) or 1


@dataclass(frozen=True, slots=True)
class _Prompts:
    """What a cell asks, as far as its method's card tells.

    Args:
        tokens: of a document of each stream, on average.
    """

    corpus: BuiltDataset
    shown: Shown
    tokens: dict[str, float]
    reply: int
    trials: int
    limit: int
    """Tokens of a prompt at most."""

    def length(self, stream: str, arrived: int) -> float:
        ranked = min(self.shown.ranked, arrived)
        latest = min(self.shown.latest, arrived - ranked)
        return min(self.limit, self.tokens[stream] * (ranked + latest) + REST_TOKENS)

    @property
    def longest(self) -> float:
        """With its reply."""
        sizes = {stream: end - first for stream, (first, end) in self.corpus.streams.items()}
        return self.reply + max(self.length(probe.stream, sizes[probe.stream]) for probe in self.corpus.probes)

    def work(self, *, held: bool) -> Work:
        """What an engine does.

        Args:
            held: whether it keeps the prompt that a question had before.
        """
        before: dict[tuple[str, str], int] = {}
        prompt = computed = attended = 0.0
        for probe in self.corpus.probes:
            key, arrived = (probe.stream, probe.question_id), probe.position + 1
            length, known = self.length(probe.stream, arrived), 0.0
            if held and (last := before.get(key)) is not None:
                known = min(length, self.tokens[probe.stream] * kept(self.shown.ranked, last, arrived - last))
            before[key] = arrived
            prompt += length
            computed += length - known
            attended += (length**2 - known**2) / 2
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


@functools.cache
def kept(ranked: int, arrived: int, more: int) -> float:
    """How many documents a prompt has in common with the one before, from the first one on, where so many more have
    come to those that had arrived: each of these may as well have any rank, and what ranks before it stays."""
    total, chance = 0.0, 1.0
    for rank in range(min(ranked, arrived)):
        chance *= (arrived - rank) / (arrived + more - rank)
        total += chance
    return total


def order(catalog: Catalog, cell: Cell, corpus: BuiltDataset, trials: int) -> Order:
    """The passes in which a cell's probes are asked that take its engine least time."""
    card, spec = catalog.method(cell.method), catalog.spec(cell.model) if cell.model != "none" else None
    one = Order([0] * len(corpus.probes), held=False)
    shown = shown_of(card, cell.variant)
    # What an engine of the method's own is asked is on no record: a further pass would have it all asked again.
    if shown is None or spec is None or card.holds_model or catalog.engine(cell.model) is None or not corpus.probes:
        return one
    settings, a = engine_settings(catalog, cell, cell.model), read_assumptions(catalog)
    known, _ = figures(spec, catalog.model_card(cell.model), gpu_of(spec, a), a, settings.threads)
    if known is None or not settings.prefix_cache:
        return one
    prompts = _Prompts(corpus, shown, _tokens(corpus), reply_tokens(spec, a), trials, spec.context_length)
    steps = answering(corpus, min_streams=card.streams)
    abreast = max(len({corpus.probes[place].stream for place in step.probes}) for step in steps)
    group = _held(spec, known, prompts) // abreast
    questions = by_wording(corpus)
    most = max(Counter(stream for stream, _ in questions).values())
    if group >= most:
        return Order(one.numbers, held=True)
    if not group:
        return one
    numbers = [questions[probe.stream, probe.question_id] // group for probe in corpus.probes]
    passes, together = math.ceil(most / group), len(numbers) * trials / len(steps)
    now = work_s(spec, known, prompts.work(held=False), together, settings.max_in_flight)
    then = work_s(spec, known, prompts.work(held=True), together / passes, settings.max_in_flight)
    return Order(numbers, held=True) if then + a.pass_s * (passes - 1) < now else one


def reply_tokens(spec: ModelSpec, a: Assumptions) -> int:
    """Of a reply, as plans take it."""
    thinking = a.thinking_tokens if spec.thinking == "on" else 0
    return min(spec.sampling.max_tokens, a.reply_tokens + thinking if spec.trained else spec.sampling.max_tokens)


def _held(spec: ModelSpec, known: Figures, prompts: _Prompts) -> int:
    """How many prompts an engine keeps: the transformers engine its latest one."""
    return 1 if spec.engine == "transformers" else int(FILLED * known.room / (known.kv * prompts.longest))


def by_wording(corpus: BuiltDataset) -> dict[tuple[str, str], int]:
    """The place of each question among those of its stream, next to those that are worded alike and find alike."""
    texts = {(probe.stream, probe.question_id): probe.question for probe in corpus.probes}
    seen: Counter[str] = Counter()
    places = {}
    for key in sorted(texts, key=lambda key: (texts[key], key)):
        places[key] = seen[key[0]]
        seen[key[0]] += 1
    return places


def _tokens(corpus: BuiltDataset) -> dict[str, float]:
    counts = read_table(corpus.folder, "documents")["tokens"].to_list()
    return {stream: sum(counts[first:end]) / (end - first) for stream, (first, end) in corpus.streams.items()}
