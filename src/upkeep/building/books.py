"""Questions about whole books: a book is a stream of chunks, and what is asked of it is asked at its end.

What releases of such benchmarks have in common, once their files are read: books and questions are drawn, texts are cut
into chunks that do not overlap, and questions that hold their answer are left out and counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TypeVar

from msgspec import Struct

from upkeep.building import assembling, leaks, tokens
from upkeep.building.assembling import Built, Item, Stream
from upkeep.building.context import Context
from upkeep.contract import Form, Positive
from upkeep.errors import UpkeepError

T = TypeVar("T")


class BookOptions(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`options` of `dataset.yaml`."""

    books: Positive | None = None
    """How many are drawn; null for all that have a question."""
    questions: Positive | None = None
    """How many are drawn of those about these books; null for all."""
    chunk_tokens: Positive = 500
    tokenizer: str | None = None
    """A `tokenizer.json` that chunks are measured with; null for the suite's own."""
    seed: int = 0
    """Of both draws, and of the order of questions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question about a book."""

    book: str
    """Id of the book, as `collect` is given its text."""
    text: str
    answers: Sequence[str]
    """As those of an `Item`."""
    options: Sequence[str] | None = None
    form: Form = "short"
    evidence: Sequence[tuple[int, int]] = ()
    """Where in the book's text it is told what answers: characters from and to."""
    slices: Mapping[str, str] = field(default_factory=dict)
    """The same names for all questions of a dataset, beside `book` and `benchmark`, the dataset."""


def collect(
    context: Context,
    options: BookOptions,
    texts: Mapping[str, str],
    asked: Sequence[Asked],
    files: Mapping[str, Path],
    statistics: Mapping[str, float] | None = None,
) -> Built:
    """The dataset of a draw of books and of questions about them.

    Books are drawn of those with a question, in the order of their ids; then questions of those about them, in the
    order of `asked`. The same seed draws the same of the same release.

    Args:
        texts: book -> its text, of all books that `asked` is about.
        files: what it is read from, by the names that the card gives them.
        statistics: what the card says besides.

    Raises:
        UpkeepError: there is no question, or there are fewer books or questions than are to be drawn.
    """
    open_ones = [one for one in asked if one.form == "short"]
    telling = {id(one) for one in open_ones if leaks.tells(one.text, one.answers)}
    left = [one for one in asked if id(one) not in telling]
    books = set(_drawn("books", sorted({one.book for one in left}), options.books, options.seed, context))
    chosen = _drawn("questions", [one for one in left if one.book in books], options.questions, options.seed, context)
    named = [book for book in texts if book in {one.book for one in chosen}]
    measure = context.tokenizer(options.tokenizer)
    pieces = tokens.split((texts[book] for book in named), options.chunk_tokens, measure)
    streams = {book: Stream(book, chunks) for book, chunks in zip(named, pieces, strict=True)}
    spans = {book: tokens.spans(texts[book], stream.texts) for book, stream in streams.items()}
    common = {"benchmark": context.name}
    items = [_item(n, one, streams[one.book], spans[one.book], common) for n, one in enumerate(chosen)]
    return Built(
        *assembling.collect(list(streams.values()), assembling.unlabelled(items, options.seed), measure),
        pairs=[],
        tokenizer=str(measure),
        chunk_tokens=options.chunk_tokens,
        source=f"{context.spec.source}: {', '.join(files)}" if len(files) < 10 else context.spec.source,
        statistics={
            "books": len(streams),
            "books of the release": len(texts),
            "questions of the release": len(asked),
            "left out: answer in question": len(telling),
            **(statistics or {}),
            **chance(chosen),
        },
        inputs=context.inputs(files),
        seed=options.seed,
    )


def chance(asked: Sequence[Asked]) -> dict[str, float]:
    """`chance`: percent that guessing among the options is expected to score; nothing where a question has none."""
    if any(one.options is None for one in asked):
        return {}
    return {"chance": round(sum(100 / len(one.options or "?") for one in asked) / len(asked), 3)}


def _drawn(what: str, all_of_them: Sequence[T], most: int | None, seed: int, context: Context) -> Sequence[T]:
    if not all_of_them or (most is not None and most > len(all_of_them)):
        raise UpkeepError(
            f"too few {what}",
            where=f"{context.where}: options of {context.name}",
            expected="at least one" if most is None else f"{most} ({what})",
            found=len(all_of_them),
            remedy="complete the release, or name fewer" if all_of_them else "complete the release",
        )
    if most is None:
        return all_of_them
    places = sorted(Random(f"{what} {seed}").sample(range(len(all_of_them)), most))
    return [all_of_them[place] for place in places]


def _item(
    number: int, asked: Asked, stream: Stream, spans: Sequence[tuple[int, int]], common: Mapping[str, str]
) -> Item:
    places = {place for start, end in asked.evidence for place in tokens.holding(spans, start, end)}
    return Item(
        id=str(number),
        stream=stream.id,
        text=asked.text,
        form=asked.form,
        options=asked.options,
        answers=asked.answers,
        evidence=[stream.document_id(place) for place in sorted(places)],
        slices={"book": stream.id, **common, **asked.slices},
    )
