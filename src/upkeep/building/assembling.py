"""What a builder makes, streams and questions, and how it becomes the tables of the normal form
(docs/architecture.md, "Datasets")."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import polars as pl

from upkeep.building.tokens import Tokens
from upkeep.contract import Form, Pair, Provenance
from upkeep.errors import UpkeepError
from upkeep.normal_form import SCHEMAS, TEXTS

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _require_lists(what: str, **fields: object) -> None:
    """Refuse a text where a list of texts belongs: taken for one, it would be a list of letters.

    Raises:
        TypeError: naming what it is, and the field.
    """
    for name, value in fields.items():
        if isinstance(value, str):
            raise TypeError(f"{what}: `{name}` is a text, expected a list of texts: {name}=[{value[:40]!r}]")


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream as a builder makes it: the texts of its documents in order."""

    id: str
    texts: Sequence[str]
    timestamps: Sequence[str | None] | None = None
    ids: Sequence[str] | None = None
    """Of its documents; made of its own where there are none."""
    slices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Name -> the value of each document, for training sets that are keyed by it."""

    def __post_init__(self) -> None:
        _require_lists(f"stream {self.id!r}", texts=self.texts, timestamps=self.timestamps, ids=self.ids)

    def document_id(self, position: int) -> str:
        return f"{self.id}_c{position}" if self.ids is None else self.ids[position]


@dataclass(frozen=True, slots=True)
class Question:
    """A question with what is right at each position of its stream."""

    id: str
    stream: str
    text: str
    answers: Sequence[Sequence[str]]
    """Accepted answers at each position, the usual form first."""
    evidence: Sequence[Sequence[int]]
    """At each position, the positions of the documents that suffice to answer, ascending."""
    slices: Mapping[str, str]
    options: Sequence[str] | None = None
    quotes: Sequence[Sequence[str]] | None = None
    """At each position the sentences that tell what is right there; no method gets them. All questions of a dataset
    have them, or none."""

    def __post_init__(self) -> None:
        wrong = next((one for one in self.answers if isinstance(one, str)), None)
        given = self.answers if wrong is None else wrong
        _require_lists(f"question {self.id!r}", answers=given, evidence=self.evidence, options=self.options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A question that is asked at one point of a stream."""

    id: str
    """Of the question; items that share it ask the same at several positions. Methods see it: see `unlabelled`."""
    stream: str
    text: str
    answers: Sequence[str]
    """Accepted answers, the usual form first; one letter for `choice`, one of the options for `label`."""
    slices: Mapping[str, str]
    """The same names for all items of a dataset."""
    outdated: Sequence[str] = ()
    """Answers that were right before and no longer are."""
    evidence: Sequence[str] = ()
    """Ids of the documents that suffice to answer, in order of arrival."""
    context: Sequence[str] = ()
    """The very sentences that the question was made from, where the paper's oracle reads these."""
    options: Sequence[str] | None = None
    form: Form = "short"
    position: int | None = None
    """The last document that has arrived when it is asked; None for the stream's last."""

    def __post_init__(self) -> None:
        lists = {"answers": self.answers, "outdated": self.outdated, "evidence": self.evidence}
        _require_lists(f"item {self.id!r}", **lists, context=self.context, options=self.options)


@dataclass(frozen=True, slots=True)
class Built:
    """What a builder returns."""

    documents: pl.DataFrame
    probes: pl.DataFrame
    gold: pl.DataFrame
    pairs: Sequence[Pair]
    tokenizer: str
    chunk_tokens: int
    source: str
    statistics: Mapping[str, float]
    inputs: Mapping[str, str] = field(default_factory=dict)
    seed: int | None = None
    notes: Sequence[str] = ()
    examples: Sequence[Pair] = ()
    """Worked examples for few-shot prompts."""
    provenance: Provenance | None = None
    """Where it is another than `dataset.yaml` says: the official release, loaded in the place of a rebuild."""

    def table(self, name: str) -> pl.DataFrame:
        """`documents`, `probes` or `gold`."""
        return {"documents": self.documents, "probes": self.probes, "gold": self.gold}[name]


def phases_of(answers: Sequence[Sequence[str]]) -> list[int]:
    """The phase at each position, from 0: it grows where the set of accepted answers changes (OAKS, Figure 1)."""
    phases: list[int] = []
    for position, accepted in enumerate(answers):
        changed = position > 0 and set(accepted) != set(answers[position - 1])
        phases.append(phases[-1] + changed if phases else 0)
    return phases


def bin_of(phases: int, sparse: int, moderate: int) -> str:
    """The bin of a question by its number of phases: up to `sparse`, up to `moderate`, or more (OAKS, B.1.1)."""
    return "sparse" if phases <= sparse else "moderate" if phases <= moderate else "frequent"


def assemble(
    streams: Sequence[Stream], questions: Sequence[Question], tokens: Tokens
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """The three tables: every question asked at every position of its stream.

    `outdated` holds the usual form of each earlier answer of the question that is not accepted any more.
    """
    documents = documents_table(streams, tokens)
    asked: dict[str, list[Question]] = {stream.id: [] for stream in streams}
    for question in questions:
        asked[question.stream].append(question)
    slices = sorted({name for question in questions for name in question.slices})
    quoted = ["quotes"] if any(question.quotes is not None for question in questions) else []
    probes: dict[str, list[Any]] = {column: [] for column in SCHEMAS["probes"]}
    gold: dict[str, list[Any]] = {column: [] for column in [*SCHEMAS["gold"], *quoted, *(f"slice_{s}" for s in slices)]}
    for stream in streams:
        mine = asked[stream.id]
        history: list[dict[str, None]] = [{} for _ in mine]
        phases = [phases_of(question.answers) for question in mine]
        for position in range(len(stream.texts)):
            for n, question in enumerate(mine):
                accepted = list(question.answers[position])
                probe_id = f"{question.id}@{position}"
                row = (probe_id, question.id, stream.id, position, question.text)
                form = "choice" if question.options else "short"
                for column, value in zip(probes, (*row, question.options, form), strict=True):
                    probes[column].append(value)
                gold["probe_id"].append(probe_id)
                gold["answers"].append(accepted)
                gold["outdated"].append([old for old in history[n] if old not in accepted])
                gold["evidence"].append([stream.document_id(p) for p in question.evidence[position]])
                gold["phase"].append(phases[n][position])
                for name in quoted:
                    gold[name].append(list(question.quotes[position]) if question.quotes else [])
                for name in slices:
                    gold[f"slice_{name}"].append(question.slices[name])
                history[n].setdefault(accepted[0])
    schema = SCHEMAS["gold"] | dict.fromkeys(quoted, TEXTS) | {f"slice_{name}": pl.String for name in slices}
    return documents, pl.DataFrame(probes, schema=SCHEMAS["probes"]), pl.DataFrame(gold, schema=schema)


def documents_table(streams: Sequence[Stream], tokens: Tokens) -> pl.DataFrame:
    """`documents`: the texts of the streams, in order, with their slices where they have any."""
    texts = [text for stream in streams for text in stream.texts]
    table = pl.DataFrame(
        {
            "document_id": [s.document_id(p) for s in streams for p in range(len(s.texts))],
            "stream": [s.id for s in streams for _ in s.texts],
            "position": [p for s in streams for p in range(len(s.texts))],
            "timestamp": [t for s in streams for t in s.timestamps or itertools.repeat(None, len(s.texts))],
            "text": texts,
            "tokens": tokens.count(texts),
        },
        schema=SCHEMAS["documents"],
    )
    names = sorted({name for stream in streams for name in stream.slices})
    return table.with_columns(
        pl.Series(f"slice_{name}", [value for s in streams for value in s.slices[name]], pl.String) for name in names
    )


def collect(
    streams: Sequence[Stream], items: Sequence[Item], tokens: Tokens
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """The three tables: each item asked once, at its own position.

    Probes are put in order of stream and position, and keep the order of `items` beyond that. Phases count the changes
    of a question's accepted answers from one of its positions to the next.

    Raises:
        UpkeepError: an item names an unknown stream, or has other slices than the first.
    """
    documents = documents_table(streams, tokens)
    lengths = {stream.id: len(stream.texts) for stream in streams}
    places = {stream.id: n for n, stream in enumerate(streams)}
    names = sorted(items[0].slices) if items else []
    for item in items:
        if item.stream not in lengths:
            raise UpkeepError("unknown stream", where=item.id, expected="one of the dataset's", found=item.stream)
        if sorted(item.slices) != names:
            raise UpkeepError("other slices than the first item", where=item.id, expected=names, found=item.slices)
    at = [lengths[item.stream] - 1 if item.position is None else item.position for item in items]
    order = sorted(range(len(items)), key=lambda n: (places[items[n].stream], at[n]))
    items, at = [items[n] for n in order], [at[n] for n in order]
    last: dict[str, tuple[frozenset[str], int]] = {}
    phases = []
    for item in items:
        accepted = frozenset(item.answers)
        before, phase = last.get(item.id, (accepted, 0))
        last[item.id] = accepted, phase + (accepted != before)
        phases.append(last[item.id][1])
    ids = [f"{item.id}@{position}" for item, position in zip(items, at, strict=True)]
    probes = pl.DataFrame(
        {
            "probe_id": ids,
            "question_id": [item.id for item in items],
            "stream": [item.stream for item in items],
            "position": at,
            "question": [item.text for item in items],
            "options": [None if item.options is None else list(item.options) for item in items],
            "form": [item.form for item in items],
        },
        schema=SCHEMAS["probes"],
    )
    columns: dict[str, list[Any]] = {
        "probe_id": ids,
        "answers": [list(item.answers) for item in items],
        "outdated": [[old for old in item.outdated if old not in item.answers] for item in items],
        "evidence": [list(item.evidence) for item in items],
        "phase": phases,
    }
    schema = dict(SCHEMAS["gold"])
    if any(item.context for item in items):
        columns["context"], schema["context"] = [list(item.context) for item in items], TEXTS
    for name in names:
        columns[f"slice_{name}"], schema[f"slice_{name}"] = [item.slices[name] for item in items], pl.String()
    return documents, probes, pl.DataFrame(columns, schema=schema)


def unlabelled(items: Sequence[Item], seed: int) -> list[Item]:
    """The items in a drawn order, under ids that tell nothing of them (`q0000`, `q0001`, ...).

    A method sees the id of a probe and the order of questions. Where these told the family, they would tell that the
    answer is to abstain; made of the answer, they would tell that. Items that share an id share the new one.
    """
    drawn = list(items)
    Random(f"order {seed}").shuffle(drawn)
    numbers: dict[str, int] = {}
    for item in drawn:
        numbers.setdefault(item.id, len(numbers))
    return [replace(item, id=f"q{numbers[item.id]:04d}") for item in drawn]


def common_statistics(built: tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]) -> dict[str, float]:
    """What is worth knowing of any dataset of streams.

    Returns:
        chunks_per_stream, tokens_per_stream, tokens_per_document: means; phases_per_question: mean, by the slice
        `question_type` too where there is one; quiet_share: percent of intervals from the second on without a change
        of the answer (OAKS, 6.1: 94).
    """
    documents, probes, gold = built
    streams = documents.group_by("stream").agg(pl.len(), pl.sum("tokens"))
    joined = probes.select("probe_id", "question_id", "position").join(gold, on="probe_id", maintain_order="left")
    by_question = joined.group_by("question_id").agg(
        (pl.max("phase") + 1).alias("phases"), pl.len().alias("asked"), pl.first("^slice_question_type$")
    )
    steps = int((by_question["asked"] - 1).sum())
    changes = int((by_question["phases"] - 1).sum())
    statistics = {
        "chunks_per_stream": _mean(streams["len"]),
        "tokens_per_stream": _mean(streams["tokens"]),
        "tokens_per_document": _mean(documents["tokens"]),
        "phases_per_question": _mean(by_question["phases"]),
        "quiet_share": round(100 * (1 - changes / steps), 3) if steps else 100.0,
    }
    if "slice_question_type" in by_question.columns:
        for (kind,), group in sorted(by_question.group_by("slice_question_type")):
            statistics[f"phases_{kind}"] = _mean(group["phases"])
    return statistics


def _mean(values: pl.Series) -> float:
    return round(float(values.cast(pl.Float64).to_numpy().mean()), 3) if len(values) else 0.0
