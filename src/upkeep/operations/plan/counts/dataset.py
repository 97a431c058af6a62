"""A dataset as it is counted: the probes of its sample, the rounds that they come in, the bytes of its documents."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from upkeep import inputs
from upkeep.catalog import Catalog
from upkeep.contract import MethodCard, Round
from upkeep.errors import UpkeepError
from upkeep.execution.rounds import BuiltDataset, answering
from upkeep.identity import plan_dataset
from upkeep.layout import Layout
from upkeep.method_cards import sees_of, supervision_of
from upkeep.normal_form import read_pairs
from upkeep.operations.plan.counts.sample import WHOLE, Interval, Sample, sample

Say = Callable[[str], None]
CALIBRATED = 50
"""Documents that a tokenizer's rate is measured on."""


class CountedDataset:
    """A built dataset with what is counted of it."""

    def __init__(self, catalog: Catalog, name: str, say: Say | None) -> None:
        """Args: say: is told that it is built, where it is not there; None where nothing may be built."""
        from upkeep.building.build import build_dataset

        self.folder = Layout(catalog.results).dataset(name)
        try:
            card = inputs.dataset(catalog, name)
        except UpkeepError:
            card = None  # not there, or damaged
        if card is None or card.plan != plan_dataset(catalog, name):
            if say is None:
                raise UpkeepError(
                    "it is not built as it would be now",
                    where=self.folder,
                    remedy=f"./upkeep dataset build {name}, or `--count`",
                )
            say(f"building the dataset {name}")
            card = build_dataset(catalog, name, self.folder)
        self.card = card

    @functools.cached_property
    def corpus(self) -> BuiltDataset:
        return BuiltDataset.read(self.folder)

    @functools.cached_property
    def arrived(self) -> list[int]:
        """For each document, how many tokens its stream has with it."""
        from upkeep.normal_form import read_table

        arrived: list[int] = []
        for document, tokens in zip(self.corpus.documents, read_table(self.folder, "documents")["tokens"], strict=True):
            arrived.append(tokens + (arrived[-1] if document.position else 0))
        return arrived

    @functools.cached_property
    def asked(self) -> list[Interval]:
        """The intervals in which probes are asked."""
        at = itertools.groupby(self.corpus.probes, key=lambda probe: (probe.stream, probe.position))
        return [
            Interval(stream, self.arrived[self.corpus.arrived(stream, t)[1] - 1], tuple(p.id for p in probes))
            for (stream, t), probes in at
        ]

    @functools.cache  # noqa: B019 (a dataset lives as long as the plan)
    def tokens_per_byte(self, tokenizer: Path | None) -> float:
        """Of the dataset's documents: by its own tokenizer, or by a model's in the first documents."""
        if tokenizer is None:
            tokens = sum(self.arrived[end - 1] for _, end in self.corpus.streams.values())
            texts = [document.text for document in self.corpus.documents]
        else:
            from upkeep.building.tokens import load

            texts = [document.text for document in self.corpus.documents[:CALIBRATED]]
            tokens = sum(load(tokenizer / "tokenizer.json").count(texts))
        return tokens / max(1, sum(len(text.encode()) for text in texts))

    @functools.cache  # noqa: B019
    def sample(self, trials: int, held: bool | None, whole: int = WHOLE) -> Sample:
        return sample(self.asked, trials, held, whole)

    def together(self, trials: int, card: MethodCard) -> float:
        steps = answering(self.corpus, min_streams=card.streams)
        return len(self.corpus.probes) * trials / max(1, len(steps))

    def share(self, sample: Sample) -> float:
        """Of the documents that ever arrive, those of the sample's streams."""
        last = {interval.stream: self.corpus.arrived(interval.stream, 0)[0] for interval in sample.intervals}
        for probe in self.corpus.probes:
            last[probe.stream] = max(last[probe.stream], self.corpus.arrived(probe.stream, probe.position)[1])
        sizes = {stream: end - self.corpus.streams[stream][0] for stream, end in last.items()}
        return sum(sizes[stream] for stream in sample.streams) / max(1, sum(sizes.values()))

    def rounds(
        self, card: MethodCard, variant: str, sample: Sample, numbers: Sequence[int] | None = None, number: int = 0
    ) -> Iterator[Round]:
        """The rounds of a cell, with what is in the sample of each.

        Args:
            numbers: of each probe's pass; None where one pass asks all.
            number: of the pass whose rounds they are.
        """
        corpus, streams, gold = self.corpus, sample.streams, self.corpus.gold(sees_of(card, variant))
        if "Q" in supervision_of(card, variant):
            corpus = corpus.holding(read_pairs(corpus.folder, self.card))
        for step in answering(corpus, min_streams=card.streams):
            documents = [d for place in step.documents if (d := corpus.documents[place]).stream in streams]
            mine = [place for place in step.probes if numbers is None or numbers[place] == number]
            places = [place for place in mine if corpus.probes[place].id in sample.asked]
            if documents or places:
                yield Round(
                    documents=documents,
                    probes=[corpus.probes[place] for place in places],
                    gold=[gold[place] for place in places] if gold is not None else [],
                )
