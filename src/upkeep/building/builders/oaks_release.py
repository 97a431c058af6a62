"""Loader of the official OAKS release (adobe-research/OAKS), for OAKS-BABI and OAKS-Novel.

A file of the release is a JSON array, one element a document (a stream, in our words): `meta` {`bid`, `num_chunks`,
`num_qas`} and `data` {`chunks` {index: text}, `facts` {index: [sentence]}, `qas` {question: {...}}}. A question has
`question_id`, `chunk_to_answer` {index: what is right after that chunk} and, in OAKS-BABI, `question_type`; in
OAKS-Novel `options` and `option_sources` {option: {index: [sentence]}}. Indices start at 0. An answer of OAKS-BABI is a
list of accepted texts and whole numbers, one of OAKS-Novel an option.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct

from upkeep.building import assembling, prose, release, tokens
from upkeep.building.assembling import LETTERS, Built, Question, Stream
from upkeep.building.context import Context
from upkeep.errors import UpkeepError
from upkeep.grading import matching

T = TypeVar("T")

TYPES = {"simple_facts": "tracking", "counting": "counting", "bridge": "bridge", "comparison": "comparison"}
BABI_BINS, NOVEL_BINS = (3, 5), (3, 4)
"""Most phases of a sparse and of a moderate question (B.1.1)."""
UNKNOWN = "Unknown"
CANNOT_ANSWER = "We cannot answer this question at this point"


class _Meta(Struct):
    bid: str | int
    num_chunks: int
    num_qas: int


class _Data(Struct):
    chunks: dict[str, str]
    qas: dict[str, msgspec.Raw]
    facts: dict[str, list[str]] | None = None


class _Document(Struct):
    meta: _Meta
    data: _Data


class _BabiQuestion(Struct):
    question_id: str
    question_type: str
    chunk_to_answer: dict[str, list[str | int]]


class _NovelQuestion(Struct):
    question_id: str
    options: list[str]
    chunk_to_answer: dict[str, str]
    option_sources: dict[str, dict[str, list[str] | str]] = {}


def _decode(raw: bytes | msgspec.Raw, kind: type[T], where: str) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        raise UpkeepError(str(error), where=where, expected="fields of the official OAKS release") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UpkeepError(f"not JSON: {error}", where=where, expected="a JSON array of documents") from None


def _indexed(values: Mapping[str, T], where: str, below: int | None = None) -> dict[int, T]:
    """Chunk indices as numbers, in order; `below` is the number of chunks."""
    try:
        found = {int(index): value for index, value in values.items()}
    except ValueError as error:
        raise UpkeepError("not a chunk index", where=where, expected="whole numbers", found=str(error)) from None
    if below is not None and (wrong := [index for index in found if not 0 <= index < below]):
        raise UpkeepError("no such chunk", where=where, expected=f"0 to {below - 1}", found=wrong[0])
    return dict(sorted(found.items()))


def _filled(values: Mapping[str, T], chunks: int, where: str) -> tuple[list[T], int]:
    """The answer at each chunk, and how many were not given: an answer holds until the next one."""
    given = _indexed(values, where, chunks)
    if 0 not in given:
        raise UpkeepError("no answer at the first chunk", where=where, expected="index 0", found=str([*given][:5]))
    answers = [given[0]]
    for position in range(1, chunks):
        answers.append(given.get(position, answers[-1]))
    return answers, chunks - len(given)


def _evidence(
    answers: Sequence[Sequence[str]], known: Sequence[bool], sources: Sequence[Sequence[int]]
) -> list[list[int]]:
    """At each chunk the one where the phase began, after those of `sources` before it; none where nothing is known."""
    evidence: list[list[int]] = []
    began = 0
    for position, accepted in enumerate(answers):
        if position and accepted != answers[position - 1]:
            began = position
        before = {source for source in sources[position] if source < began}
        evidence.append([*sorted(before), began] if known[position] else [])
    return evidence


_FUNCTION_WORDS = prose.words(["a an and at back down from got in is of off on out put the there to up was with"])


def _babi_question(
    raw: msgspec.Raw, text: str, stream: Stream, facts: Mapping[int, list[str]], form: matching.Canonical, where: str
) -> Question:
    q = _decode(raw, _BabiQuestion, where)
    if q.question_type not in TYPES:
        raise UpkeepError(
            "unknown type", where=f"{where}, question_type", expected=" or ".join(TYPES), found=q.question_type
        )
    given, _ = _filled(q.chunk_to_answer, len(stream.texts), f"{where}, chunk_to_answer")
    if [] in given:
        raise UpkeepError("no accepted answer", where=f"{where}, chunk_to_answer", found=f"[] at {given.index([])}")
    # What is graded alike is one answer, however it is written: it is kept as it stands first, so it is one phase.
    forms = [frozenset(form(str(one)) for one in accepted) for accepted in given]
    written: dict[frozenset[str], list[str]] = {}
    answers = [written.setdefault(f, list(map(str, one))) for f, one in zip(forms, given, strict=True)]
    # The release marks no evidence; chunks with a fact that shares a name with the question hold all there is.
    named = prose.words([text]) - _FUNCTION_WORDS
    telling = [index for index, sentences in facts.items() if named & (prose.words(sentences) - _FUNCTION_WORDS)]
    evidence = _evidence(answers, [form(UNKNOWN) not in one for one in forms], [telling] * len(answers))
    slices = {"changes": _bin(answers, BABI_BINS), "question_type": TYPES[q.question_type]}
    return Question(q.question_id, stream.id, text, answers, evidence, slices)


def _novel_question(raw: msgspec.Raw, text: str, stream: Stream, where: str) -> Question:
    q = _decode(raw, _NovelQuestion, where)
    if not 2 <= len(q.options) <= len(LETTERS) or len(set(q.options)) < len(q.options):
        raise UpkeepError(
            "not a list of options", where=f"{where}, options", expected="2 to 26 different ones", found=q.options
        )
    letters = dict(zip(q.options, LETTERS, strict=False))
    chosen, _ = _filled(q.chunk_to_answer, len(stream.texts), f"{where}, chunk_to_answer")
    if unknown := [answer for answer in chosen if answer not in letters]:
        raise UpkeepError(
            "not an option", where=f"{where}, chunk_to_answer", expected=f"one of {q.options}", found=unknown[0]
        )
    by_option = {
        option: _indexed(sources, f"{where}, option_sources", len(stream.texts))
        for option, sources in q.option_sources.items()
    }
    answers = [[letters[answer]] for answer in chosen]
    known = [re.match(CANNOT_ANSWER, answer, re.IGNORECASE) is None for answer in chosen]
    evidence = _evidence(answers, known, [[*by_option.get(answer, {})] for answer in chosen])
    quotes = [
        [quote for source in there for quote in _sentences(by_option.get(answer, {}).get(source, []))]
        for answer, there in zip(chosen, evidence, strict=True)
    ]
    slices = {"changes": _bin(answers, NOVEL_BINS)}
    return Question(q.question_id, stream.id, text, answers, evidence, slices, q.options, quotes)


def _sentences(given: list[str] | str) -> list[str]:
    return [text for text in ([given] if isinstance(given, str) else given) if text.strip()]


def _bin(answers: Sequence[Sequence[str]], edges: tuple[int, int]) -> str:
    return assembling.bin_of(assembling.phases_of(answers)[-1] + 1, *edges)


def _stream(document: _Document, where: str) -> Stream:
    chunks = _indexed(document.data.chunks, f"{where}, data.chunks")
    if [*chunks] != list(range(len(chunks))) or not chunks:
        raise UpkeepError("chunks have a gap", where=f"{where}, data.chunks", expected="0, 1, 2, ...", found=[*chunks])
    return Stream(str(document.meta.bid), list(chunks.values()))


def _miscounted(document: _Document) -> list[str]:
    """The counts in `meta` that are not those of the data."""
    meta, data = document.meta, document.data
    counts = (("num_chunks", meta.num_chunks, len(data.chunks)), ("num_qas", meta.num_qas, len(data.qas)))
    return [f"{meta.bid} {field} {said} (found {found})" for field, said, found in counts if said != found]


class Options(Struct, frozen=True):
    """The options that the loader reads; a builder's others are of no concern where a release is loaded."""

    tokenizer: str | None = None


def build(context: Context) -> Built:
    """Load the official release of the dataset.

    Raises:
        UpkeepError: it is not there, has another hash than its pin, or breaks the format: with file, document, question
            and field.
    """
    files = release.release_files(context)
    inputs = context.inputs(files)
    streams: list[Stream] = []
    questions: list[Question] = []
    kinds: set[str] = set()
    form = matching.equivalence(context.spec.equivalence).canonical
    miscounted: list[str] = []
    given, asked = 0, 0
    for file in files:
        for n, raw in enumerate(_decode(file.read_bytes(), list[msgspec.Raw], str(file))):
            where = f"{file}, document {n}"
            document = _decode(raw, _Document, where)
            stream = _stream(document, where)
            if stream.id in {other.id for other in streams}:
                raise UpkeepError("a document twice", where=f"{where}, meta.bid", found=stream.id)
            streams.append(stream)
            miscounted += _miscounted(document)
            facts = _indexed(document.data.facts or {}, f"{where}, data.facts", len(stream.texts))
            for text, question in document.data.qas.items():
                at = f"{where}, question {text!r}"
                fields = _decode(question, dict[str, msgspec.Raw], at)
                kinds.add("choice" if "options" in fields else "short")
                questions.append(
                    _novel_question(question, text, stream, at)
                    if "options" in fields
                    else _babi_question(question, text, stream, facts, form, at)
                )
                given += len(_decode(fields["chunk_to_answer"], dict[str, msgspec.Raw], at))
                asked += len(stream.texts)
    if not questions:
        raise UpkeepError("no questions", where=", ".join(map(str, files)), expected="documents with `qas`")
    if len(kinds) > 1:
        raise UpkeepError("open and multiple-choice questions in one dataset", where=", ".join(map(str, files)))
    measure = _tokenizer(context)
    tables = assembling.assemble(streams, questions, measure)
    statistics = assembling.common_statistics(tables)
    if kinds == {"choice"}:
        statistics["options_per_question"] = round(sum(len(q.options or []) for q in questions) / len(questions), 3)
    notes = ["documents are as released; their tokens are counted by the tokenizer above"]
    if given < asked:
        notes.append(f"{asked - given} of {asked} answers are not given and are those of the chunk before")
    if miscounted:
        notes.append(f"counts in `meta` are off, and those of the data are used: {', '.join(miscounted)}")
    return Built(
        *tables,
        pairs=[],
        tokenizer=str(measure),
        chunk_tokens=max(2000, *tables[0]["tokens"]),
        source=f"official OAKS release: {', '.join(file.name for file in files)}",
        statistics=statistics,
        inputs=inputs,
        notes=notes,
    )


def _tokenizer(context: Context) -> tokens.Tokens:
    named = msgspec.convert(context.spec.options, Options).tokenizer
    return tokens.load(context.path(named) if named else None)
