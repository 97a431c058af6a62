"""What a model is trained on, or a method given in pairs, and what either may therefore be asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from upkeep import inputs, weights
from upkeep.catalog import Catalog
from upkeep.contract import STREAM, Document, Pair, TrainingSet
from upkeep.errors import UpkeepError
from upkeep.execution.rounds import BuiltDataset
from upkeep.jobs import Cell, Training
from upkeep.layout import Layout
from upkeep.method_cards import supervision_of
from upkeep.normal_form import read_pairs, read_table
from upkeep.questions import shared


@dataclass(frozen=True)
class Member:
    """What one model is trained on."""

    name: str
    """The value of the stream or slice; empty for a model that is no member of a set."""
    documents: Sequence[Document]
    """In order of stream and position."""
    pairs: Sequence[Pair]


def members(catalog: Catalog, training: Training) -> list[Member]:
    """What each model of a training is trained on, in order of their names.

    Raises:
        UpkeepError: the set is empty; a document has no date or a pair no document that it is chosen by; the set is
            keyed by a slice that the documents do not have.
    """
    folder = Layout(catalog.results).dataset(training.dataset)
    chosen, where = catalog.training_set(training), folder / "card.json"
    corpus = BuiltDataset.read(folder)
    documents = [corpus.documents[place] for place in _places(corpus, chosen, where)]
    pairs = read_pairs(folder, inputs.dataset(catalog, training.dataset))
    known = {document.id for document in documents}
    if chosen != TrainingSet():
        if any(pair.document is None for pair in pairs):
            raise UpkeepError(
                f"training set {training.set!r}: a pair does not say which document it was made of",
                where=folder / "pairs.jsonl",
                expected="`document` in every pair, for pairs come with their documents",
                remedy="train on all of the dataset, or have its builder name them",
            )
        pairs = [pair for pair in pairs if pair.document in known]
    given = supervision_of(catalog.method(training.method), training.variant)
    found = list(_split(documents, pairs, chosen, folder))
    for member in found:
        lacking = [name for letter, name in (("C", "documents"), ("Q", "pairs")) if letter in given]
        if empty := [name for name in lacking if not getattr(member, name)]:
            of = f" of {member.name!r}" if member.name else ""
            raise UpkeepError(
                f"there are no {' and no '.join(empty)}{of} to train on",
                where=where,
                expected=f"some, for {training.method!r} has `supervision: {given}`",
                remedy="choose another dataset or set (`training` in its card: `until` may leave none)",
            )
    return found


def _places(corpus: BuiltDataset, chosen: TrainingSet, where: Path) -> Iterator[int]:
    """The places of the documents of a set."""
    for first, end in corpus.streams.values():
        if isinstance(chosen.until, float):
            yield from range(first, first + int(chosen.until * (end - first)))
            continue
        for place in range(first, end):
            stamp = corpus.documents[place].timestamp
            if isinstance(chosen.until, str) and stamp is None:
                raise UpkeepError(
                    f"document {corpus.documents[place].id!r} has no date, and the training set is chosen by dates",
                    where=where,
                    expected="dated documents, or a share of each stream (`until: 0.5`)",
                )
            if not isinstance(chosen.until, str) or (stamp or "") < chosen.until:
                yield place


def _split(documents: Sequence[Document], pairs: Sequence[Pair], chosen: TrainingSet, folder: Path) -> Iterator[Member]:
    if chosen.by is None:
        yield Member("", documents, pairs)
        return
    value = {document.id: document.stream for document in documents}
    if chosen.by != STREAM:
        value = _slice(read_table(folder, "documents"), chosen.by, folder / "documents.parquet", "document_id")
    for name in sorted({value[document.id] for document in documents}):
        mine = [document for document in documents if value[document.id] == name]
        yield Member(name, mine, [pair for pair in pairs if value[str(pair.document)] == name])


def _slice(table: pl.DataFrame, name: str, where: Path, key: str) -> dict[str, str]:
    if (column := f"slice_{name}") not in table.columns:
        there = [one.removeprefix("slice_") for one in table.columns if one.startswith("slice_")]
        raise UpkeepError(
            f"no slice {name!r}",
            where=where,
            expected=f"one of {', '.join([STREAM, *there])}",
            remedy="mend `by` under `training` in the dataset's card",
        )
    return dict(table.select(key, column).iter_rows())


def with_pairs(catalog: Catalog, cell: Cell, corpus: BuiltDataset) -> tuple[BuiltDataset, dict[str, int]]:
    """A cell's dataset as its method gets it, where the variant is given pairs: each comes with its document.

    Returns:
        The dataset, and the position of each stream from which on it may be asked: any, unless a pair names no
        document. Such a pair was made of all and comes at a stream's end; before, its method would know the future.

    Raises:
        UpkeepError: there are no pairs, or no probe that may be asked.
    """
    if "Q" not in supervision_of(catalog.method(cell.method), cell.variant):
        return corpus, {}
    if not (pairs := read_pairs(corpus.folder, inputs.dataset(catalog, cell.dataset))):
        raise UpkeepError(
            f"{cell.dataset!r} has no training pairs, and {cell.method}/{cell.variant} is given some",
            where=corpus.folder / "card.json",
            expected="a dataset with pairs",
            remedy="`./upkeep list datasets` names those; or choose a variant with `supervision: C`",
        )
    ends = {stream: end - first - 1 for stream, (first, end) in corpus.streams.items()}
    late = ends if any(pair.document is None for pair in pairs) else {}
    if corpus.probes and not corpus.after(late).probes:
        raise UpkeepError(
            f"every probe of {cell.dataset!r} is asked before its stream has ended, and a pair names no document",
            where=corpus.folder / "pairs.jsonl",
            expected="`document` in every pair",
            remedy="have the dataset's builder name them",
        )
    return corpus.holding(pairs), late


def members_of(catalog: Catalog, cell: Cell, corpus: BuiltDataset) -> list[str]:
    """The member of a set of models that answers each probe; empty where the cell's model is no set.

    Raises:
        UpkeepError: a probe has none.
    """
    training = catalog.training_of(cell)
    if training is None or (by := catalog.training_set(training).by) is None:
        return []
    there = weights.members(catalog, cell.model, cell.dataset)
    value = {probe.id: probe.stream for probe in corpus.probes}
    if by != STREAM:
        value = _slice(read_table(corpus.folder, "gold"), by, corpus.folder / "gold.parquet", "probe_id")
    found = [value[probe.id] for probe in corpus.probes]
    if lost := next((probe for probe, name in zip(corpus.probes, found, strict=True) if name not in there), None):
        raise UpkeepError(
            f"no member of {cell.model!r} answers probe {lost.id!r}",
            where=corpus.folder,
            expected=f"{by} among {', '.join(there)}",
            found=value[lost.id],
            remedy="ask it about a dataset that has the values which it was trained on",
        )
    return found


Taught = Sequence[tuple[Training, Sequence[Member]]]
"""The trainings behind a model, each with what it was trained on."""


def cutoff(catalog: Catalog, cell: Cell, corpus: BuiltDataset, taught: Taught) -> dict[str, int]:
    """From which position on a trained model may be asked about a stream, where that is not the first: the last of the
    stream's documents that it was trained on. Before, it would know the future.

    Args:
        taught: of the cell's model.

    Raises:
        UpkeepError: there is no probe that it may be asked.
    """
    texts = {text for training, found in taught for text in _texts(catalog, training, found)}
    found: dict[str, int] = {}
    for document in corpus.documents:
        if document.position and document.text in texts:
            found[document.stream] = document.position
    if corpus.probes and not corpus.after(found).probes:
        raise UpkeepError(
            f"every probe of {cell.dataset!r} is asked before the last document that {cell.model!r} was trained on",
            where=corpus.folder / "probes.parquet",
            expected="probes at the end of what it was trained on, or later",
            remedy="name a smaller set under `training` in the dataset's card (`until: 0.5`), and train on that",
        )
    return found


def _texts(catalog: Catalog, training: Training, found: Sequence[Member]) -> Iterator[str]:
    """The texts of the documents that a training knows: those it is given, or which its pairs were made of."""
    given = supervision_of(catalog.method(training.method), training.variant)
    for member in found:
        sources = {pair.document for pair in member.pairs}
        every = "C" in given or None in sources
        yield from (one.text for one in member.documents if every or one.id in sources)


def require_apart(catalog: Catalog, cell: Cell, corpus: BuiltDataset, taught: Taught) -> None:
    """Refuse a cell that asks what its model was trained to answer.

    Args:
        taught: of the cell's model.

    Raises:
        UpkeepError: a question is among the training pairs.
    """
    asked = [probe.question for probe in corpus.probes]
    for training, found in taught:
        if "Q" not in supervision_of(catalog.method(training.method), training.variant):
            continue
        questions = [pair.question for member in found for pair in member.pairs]
        if same := shared(asked, questions):
            raise UpkeepError(
                f"{len(same)} training pairs of {training} are questions that {cell.dataset!r} asks",
                where=Layout(catalog.results).dataset(training.dataset) / "pairs.jsonl",
                expected="none of them",
                found=f"line {same[0] + 1}: {questions[same[0]]}"[:300],
                remedy="train on another dataset or set",
            )
