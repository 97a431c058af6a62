"""Documents and questions as they are written down, in files of JSON lines beside `dataset.yaml`.

    documents.jsonl  {"id": "d1", "stream": "s", "text": "...", "timestamp": "2024-05-08"}
    questions.jsonl  {"question": "...", "stream": "s", "after": "d1", "answers": ["..."], "outdated": ["..."],
                      "options": ["...", "..."], "form": "choice", "evidence": ["d1"], "slices": {"kind": "old"}}
    pairs.jsonl      {"question": "...", "answer": "...", "document": "d1"}

A document needs `id`, `stream` and `text`; the documents of a stream arrive in the order of the file. A question needs
`question`, `stream` and `answers`. It is asked when the document `after` has arrived, given by its id or its position
in the stream (from 0); without it, when all have. With `options` its answers, outdated ones too, are options as they
stand there; the form is then `choice`, unless it is said to be `label`. What is asked again, later, is one question.
Pairs are to train on, where `pairs` names a file of them; none of them may be asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from msgspec import Struct

from upkeep.building import assembling, leaks, reading
from upkeep.building.assembling import LETTERS, Built, Item, Stream
from upkeep.building.context import Context
from upkeep.building.reading import Distinct, Faults
from upkeep.contract import Form, Pair
from upkeep.errors import UpkeepError


class Options(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`options` of `dataset.yaml`."""

    documents: str = "documents.jsonl"
    questions: str = "questions.jsonl"
    """Files beside it."""
    pairs: str | None = None
    """Another one, with question-answer pairs to train on."""
    tokenizer: str | None = None
    """A `tokenizer.json` that documents are measured with; the suite's own where there is none."""
    seed: int = 0
    """Of the order in which questions are asked at one point."""


class Document(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A line of the documents."""

    id: str
    stream: str
    text: str
    timestamp: str | None = None


class Asked(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A line of the questions."""

    question: str
    stream: str
    answers: list[str]
    after: str | int | None = None
    outdated: list[str] = []
    options: list[str] | None = None
    form: Form | None = None
    evidence: list[str] = []
    slices: dict[str, str] = {}


class _Wrong(Exception):
    """What is wrong with a question, and what was found."""

    def __init__(self, problem: str, found: object = None) -> None:
        super().__init__(problem)
        self.problem, self.found = problem, found


def build(context: Context) -> Built:
    """Read the files.

    Raises:
        UpkeepError: a file is missing or holds nothing, or a line has a fault that is not to be skipped.
    """
    options = context.options(Options)
    measure = context.tokenizer(options.tokenizer)
    documents, questions = (context.where.parent / name for name in (options.documents, options.questions))
    taught = None if options.pairs is None else context.where.parent / options.pairs
    if not (streams := _streams(documents, context.faults)):
        raise _nothing("document", documents)
    if not (items := list(_items(questions, streams, context.faults))):
        raise _nothing("question", questions)
    tables = assembling.collect(list(streams.values()), assembling.unlabelled(items, options.seed), measure)
    return Built(
        *tables,
        pairs=[] if taught is None else [pair for _, pair in reading.records(taught, Pair, context.faults)],
        tokenizer=str(measure),
        chunk_tokens=max(tables[0]["tokens"]),
        source=context.spec.source,
        statistics=assembling.common_statistics(tables),
        inputs=context.inputs([documents, questions, *([] if taught is None else [taught])]),
        seed=options.seed,
    )


def _nothing(what: str, path: Path) -> UpkeepError:
    return UpkeepError(
        f"no {what} in the file",
        where=path,
        expected="at least one",
        remedy=f"write a {what} a line into it (docs/add-a-dataset.md)",
    )


def _streams(path: Path, faults: Faults) -> dict[str, Stream]:
    """The streams, in the order of their first documents."""
    found: dict[str, list[tuple[Document, str | None]]] = {}
    distinct = Distinct(faults)
    for where, document in reading.records(path, Document, faults):
        if not document.id.strip() or not document.stream.strip():
            faults("broken_record", where, "a document without id or stream")
            continue
        date = None
        if document.timestamp is not None:
            date = reading.iso_date(document.timestamp, where, faults)
            if date is None:
                continue
        if reading.usable(document.text, where, faults) and distinct(document.id, where):
            found.setdefault(document.stream, []).append((document, date))
    return {
        name: Stream(name, [one.text for one, _ in told], [date for _, date in told], ids=[one.id for one, _ in told])
        for name, told in found.items()
    }


def _items(path: Path, streams: Mapping[str, Stream], faults: Faults) -> Iterator[Item]:
    """The questions, but for those that are skipped."""
    places = {name: {id: place for place, id in enumerate(stream.ids or ())} for name, stream in streams.items()}
    numbers: dict[object, int] = {}
    asked: set[tuple[str, int | None]] = set()
    subsets = {"all": "the name of all questions"}  # no two slices may share a value
    slices: list[str] | None = None
    read: list[tuple[str, Item]] = []
    for where, line in reading.records(path, Asked, faults):
        if not reading.usable(line.question, where, faults):
            continue
        try:
            if line.stream not in places:
                raise _Wrong("a stream without documents", line.stream)
            item = _item(line, places[line.stream])
            if slices is not None and sorted(item.slices) != slices:
                raise _Wrong(f"other slices than the first question, which has {', '.join(slices) or 'none'}")
            own = {value: f"a value of `{name}`" for name, value in item.slices.items()}
            if len(own) < len(item.slices) or any(subsets.get(value, what) != what for value, what in own.items()):
                raise _Wrong("a slice with a value that is another's, or `all`", item.slices)
        except _Wrong as wrong:
            faults("broken_record", where, wrong.problem, wrong.found)
            continue
        slices, subsets = sorted(item.slices), subsets | own
        key = (item.stream, item.text, tuple(item.options or ()), item.form)
        item = replace(item, id=str(numbers.setdefault(key, len(numbers))))
        if (item.id, item.position) in asked:
            faults("duplicate_id", where, "a question that is asked twice at one point", item.text)
            continue
        asked.add((item.id, item.position))
        read.append((where, item))
    yield from _untold(read, faults)


def _item(line: Asked, places: Mapping[str, int]) -> Item:
    """A question, without an id.

    Args:
        places: of the documents of its stream, by id.
    """
    after = len(places) - 1 if line.after is None else line.after
    if isinstance(after, str):
        after = places.get(after, -1)
    if not 0 <= after < len(places):
        raise _Wrong("`after` names no document of the stream", line.after)
    for id in line.evidence:
        if id not in places:
            raise _Wrong("`evidence` names no document of the stream", id)
        if places[id] > after:
            raise _Wrong("`evidence` that has not arrived when the question is asked", id)
    if not line.answers or not all(text.strip() for text in (*line.answers, *line.outdated)):
        raise _Wrong("no answer, or an empty one", line.answers)
    if not all(name.isidentifier() and value.strip() for name, value in line.slices.items()):
        raise _Wrong("a slice whose name is no word, or without a value", line.slices)
    form: Form = line.form or ("choice" if line.options else "short")
    answers, outdated = line.answers, line.outdated
    if form == "short":
        if line.options is not None:
            raise _Wrong("options of an open question", line.options)
    else:
        given = line.options or []
        distinct = {text for text in given if text.strip()}
        if not 2 <= len(given) <= len(LETTERS) or len(distinct) < len(given):
            raise _Wrong(f"not 2 to {len(LETTERS)} different options", line.options)
        if other := [text for text in (*answers, *outdated) if text not in given]:
            raise _Wrong("an answer that is none of the options", other[0])
        if form == "choice":
            letters = dict(zip(given, LETTERS, strict=False))
            answers, outdated = ([letters[text] for text in texts] for texts in (answers, outdated))
    return Item(
        id="",
        stream=line.stream,
        text=line.question,
        answers=answers,
        outdated=outdated,
        evidence=sorted(set(line.evidence), key=lambda id: places[id]),
        options=line.options,
        form=form,
        position=after,
        slices=line.slices,
    )


def _untold(read: list[tuple[str, Item]], faults: Faults) -> Iterator[Item]:
    """All but the open questions that hold their answer, whenever they are asked."""
    told: dict[str, bool] = {}
    for _, item in read:
        tells = item.form == "short" and all(leaks.tells(item.text, [answer]) for answer in item.answers)
        told[item.text] = told.get(item.text, True) and tells
    for where, item in read:
        if told[item.text]:
            faults("broken_record", where, "a question that holds its answer", item.text)
        else:
            yield item
