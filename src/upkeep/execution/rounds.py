"""Which documents and probes a container is given, round by round.

A round holds one interval of one stream, or of several streams where one has too few probes to fill a batch. The next
one is sent when every probe of this one is answered, so a document is in the container when it has arrived, not before.
Where the slowest answers would hold up an engine, the streams are dealt to several strands: each is such a run of
rounds, and none waits for another.
"""

from __future__ import annotations

import functools
import heapq
from array import array
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from upkeep.contract import DatasetCard, Document, Gold, Pair, Probe, Round
from upkeep.errors import UpkeepError
from upkeep.scope import Answers

MIN_PROBES = 64
"""Streams are packed together until a round has so many probes."""
MAX_DOCUMENTS = 20_000
MAX_CHARACTERS = 64 * 2**20
"""Of the documents of a round. Where more have arrived, rounds without a probe bring them first: a line of JSON is held
in memory whole, several times over."""


@dataclass(frozen=True, eq=False)
class BuiltDataset:
    """A built dataset, as the host feeds it. Rows are in order of stream, then position. None is equal to another."""

    folder: Path
    documents: Sequence[Document]
    probes: Sequence[Probe]

    @classmethod
    def read(cls, folder: Path) -> BuiltDataset:
        """Read a dataset's folder.

        Raises:
            UpkeepError: a file is missing or unreadable, or a probe is asked in a stream that has no documents.
        """
        documents = [
            Document(id=i, stream=s, position=p, timestamp=t, text=x)
            for i, s, p, t, x in _rows(folder, "documents", "document_id", "stream", "position", "timestamp", "text")
        ]
        columns = ("probe_id", "question_id", "stream", "position", "question", "options", "form")
        probes = [
            Probe(id=i, question_id=q, stream=s, position=p, question=x, options=o, form=f)
            for i, q, s, p, x, o, f in _rows(folder, "probes", *columns)
        ]
        return cls(folder, documents, probes)

    def after(self, cutoff: Mapping[str, int]) -> BuiltDataset:
        """The same with those probes alone that are asked at a stream's position of `cutoff` or later."""
        kept = [probe for probe in self.probes if probe.position >= cutoff.get(probe.stream, 0)]
        return replace(self, probes=kept) if cutoff else self

    def holding(self, pairs: Iterable[Pair]) -> BuiltDataset:
        """The same with training pairs at the documents that they were made of; those that name none are at the last
        document of each stream."""
        at: dict[str | None, list[Pair]] = {}
        for pair in pairs:
            at.setdefault(pair.document, []).append(pair)
        ends = {end - 1 for _, end in self.streams.values()}
        documents = [
            msgspec.structs.replace(one, pairs=[*at.get(one.id, ()), *(at.get(None, ()) if place in ends else ())])
            for place, one in enumerate(self.documents)
        ]
        return replace(self, documents=documents)

    @functools.cached_property
    def streams(self) -> dict[str, tuple[int, int]]:
        """The half-open range of the documents of each stream, in order."""
        ranges: dict[str, tuple[int, int]] = {}
        for place, document in enumerate(self.documents):
            first, last = ranges.get(document.stream, (place, place))
            if last != place or document.position != place - first:
                raise UpkeepError(
                    f"documents out of order: {document.id!r}",
                    where=self.folder / "documents.parquet",
                    expected="rows in order of stream and position, positions from 0 without gaps",
                    found=f"stream {document.stream!r}, position {document.position}",
                    remedy="build the dataset again",
                )
            ranges[document.stream] = first, place + 1
        return ranges

    @functools.cached_property
    def intervals(self) -> list[list[RoundPlaces]]:
        """Of each stream those in which probes are asked."""
        places: dict[str, dict[int, list[int]]] = {}
        for place, probe in enumerate(self.probes):
            places.setdefault(probe.stream, {}).setdefault(probe.position, []).append(place)
        found = []
        for stream, probes_at in places.items():
            mine, sent = [], self.streams.get(stream, (0, 0))[0]
            for position in sorted(probes_at):
                _, end = self.arrived(stream, position)
                mine.append(RoundPlaces(tuple(range(sent, end)), tuple(probes_at[position])))
                sent = end
            found.append(mine)
        return found

    def arrived(self, stream: str, position: int) -> tuple[int, int]:
        """The half-open range of the documents of a stream up to a position."""
        first, last = self.streams.get(stream, (0, 0))
        if not 0 <= position < last - first:
            raise UpkeepError(
                f"no document at position {position} of stream {stream!r}",
                where=self.folder / "probes.parquet",
                expected=f"0 to {last - first - 1}",
                remedy="build the dataset again",
            )
        return first, first + position + 1

    def answers(self, trials: int) -> Answers:
        """What the predictions of a cell on this dataset must be."""
        reach = [self.arrived(probe.stream, probe.position) for probe in self.probes]
        return Answers(
            [probe.id for probe in self.probes],
            trials,
            [document.id for document in self.documents],
            array("q", [first for first, _ in reach]),
            array("q", [end for _, end in reach]),
        )

    def gold(self, sees: Literal["documents", "evidence", "answers"]) -> list[Gold] | None:
        """What of the answer key a method is given, in the order of the probes."""
        if sees == "documents":
            return None
        key = {
            i: Gold(probe_id=i, answers=a, outdated=o, evidence=e, context=c)
            for i, a, o, e, c in _rows(self.folder, "gold", "probe_id", "answers", "outdated", "evidence", "context")
        }
        gold = [key[probe.id] for probe in self.probes]
        if sees == "answers":
            return gold
        return [msgspec.structs.replace(row, answers=[], outdated=[]) for row in gold]


def worked_examples(folder: Path, card: DatasetCard) -> list[Pair]:
    """The worked examples of a built dataset, for the prompts of its cells."""
    from upkeep.normal_form import read_examples

    return read_examples(folder, card)


def _rows(folder: Path, name: str, *columns: str) -> Iterator[tuple[Any, ...]]:
    import polars as pl

    from upkeep.normal_form import read_table

    table = read_table(folder, name)
    if "context" in columns and "context" not in table.columns:
        table = table.with_columns(context=pl.lit([], pl.List(pl.String)))
    return table.select(columns).iter_rows()


@dataclass(frozen=True, slots=True)
class RoundPlaces:
    """One round, by places in the corpus."""

    documents: tuple[int, ...]
    """Those that arrive."""
    probes: tuple[int, ...]


def answering(corpus: BuiltDataset, min_probes: int = MIN_PROBES, min_streams: int = 1) -> list[RoundPlaces]:
    """The rounds in which all probes are asked: an interval of one stream each, of further streams while there are
    fewer than `min_probes`, or fewer streams than `min_streams`. A stream that is begun is in every round until its
    last probe."""
    return _pack(corpus.intervals, min_probes, min_streams)


def stranded(
    corpus: BuiltDataset, strands: int, min_probes: int = MIN_PROBES, min_streams: int = 1
) -> list[list[RoundPlaces]]:
    """The same in so many strands at most, none of them empty: each stream goes to the one with fewest probes, those
    with most probes first."""
    shares: list[list[tuple[int, list[RoundPlaces]]]] = [[] for _ in range(strands)]
    sizes = [(0, number) for number in range(strands)]  # a heap
    asked = [sum(len(step.probes) for step in stream) for stream in corpus.intervals]
    for place in sorted(range(len(asked)), key=lambda place: -asked[place]):
        size, number = sizes[0]
        heapq.heapreplace(sizes, (size + asked[place], number))
        shares[number].append((place, corpus.intervals[place]))
    packed = [_pack([stream for _, stream in sorted(share)], min_probes, min_streams) for share in shares]
    return [strand for strand in packed if strand]


def _pack(streams: list[list[RoundPlaces]], min_probes: int, min_streams: int) -> list[RoundPlaces]:
    """Merge the steps of several streams: as many side by side as fill a step, each in its own order."""
    pending, active, packed = deque(map(iter, streams)), list[Iterator[RoundPlaces]](), list[RoundPlaces]()
    while True:
        ready, active, steps, size = deque(active), [], list[RoundPlaces](), 0
        while ready or (pending and (size < min_probes or len(steps) < min_streams)):
            stream = ready.popleft() if ready else pending.popleft()
            if (step := next(stream, None)) is not None:
                active.append(stream)
                steps.append(step)
                size += len(step.probes)
        if not steps:
            return packed
        packed.append(
            RoundPlaces(tuple(d for s in steps for d in s.documents), tuple(p for s in steps for p in s.probes))
        )


@dataclass(frozen=True, slots=True)
class Task:
    """A round to send, and the keys of the records that must be on disk before the next one."""

    round: Round
    keys: tuple[int, ...]


def tasks(
    corpus: BuiltDataset,
    strands: Sequence[Sequence[RoundPlaces]],
    trials: int,
    done: Sequence[int],
    gold: Sequence[Gold] | None = None,
    again: Container[int] = (),
) -> list[Iterator[Task]]:
    """The rounds of each strand, in order, from the first document on. Documents come in the same portions whatever is
    done already, for a method may work on those that arrive together; where they are many, in rounds before the probes.

    Args:
        done: for each key (probe * trials + trial) whether its prediction is there; it is not asked for again.
        gold: the answer key as far as the method sees it, in the order of the probes.
        again: places of probes that are sent even where they are done (`MethodCard.per_question`).
    """
    makes = [partial(Round, strand=number, strands=len(strands)) for number in range(len(strands))]
    return [_tasks(make, corpus, steps, trials, done, gold, again) for make, steps in zip(makes, strands, strict=True)]


def _tasks(
    make: Callable[..., Round],
    corpus: BuiltDataset,
    steps: Sequence[RoundPlaces],
    trials: int,
    done: Sequence[int],
    gold: Sequence[Gold] | None,
    again: Container[int],
) -> Iterator[Task]:
    for number, step in enumerate(steps, 1):
        *earlier, documents = bounded(corpus.documents[place] for place in step.documents)
        for some in earlier:
            yield Task(make(documents=some, probes=[]), ())
        keys = {place: range(place * trials, (place + 1) * trials) for place in step.probes}
        asked = [place for place in step.probes if place in again or not all(done[key] for key in keys[place])]
        probes = [corpus.probes[place] for place in asked]
        told = [
            (probe.id, trial)
            for place, probe in zip(asked, probes, strict=True)
            for trial in range(trials)
            if done[place * trials + trial]
        ]
        yield Task(
            make(
                documents=documents,
                probes=probes,
                gold=[gold[place] for place in asked] if gold is not None else [],
                done=told,
                last=number == len(steps),
            ),
            tuple(key for place in asked for key in keys[place]),
        )


def bounded(documents: Iterable[Document]) -> list[list[Document]]:
    """Documents in runs of at most `MAX_DOCUMENTS`, and of at most `MAX_CHARACTERS` where a run has more than one. One
    run at least, which may be empty."""
    runs: list[list[Document]] = [[]]
    size = 0
    for document in documents:
        length = len(document.text) + sum(len(pair.question) + len(pair.answer) for pair in document.pairs)
        if runs[-1] and (len(runs[-1]) == MAX_DOCUMENTS or size + length > MAX_CHARACTERS):
            runs.append([])
            size = 0
        runs[-1].append(document)
        size += length
    return runs
