"""PRELUDE: does a prequel item agree with the book? (PRELUDE, 3; the official release, with books from local files.)

A stream is a book, its documents are chunks of 500 tokens that do not overlap (4), and every item about its characters
is asked at its end. With `evaluate: full` all items are asked, and there are no training pairs; with `evaluate: subset`
those of the human study are asked, and the others are the training pairs (C.1): no item is ever both.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Literal

from msgspec import Struct

from upkeep.building import assembling, leaks
from upkeep.building.assembling import Built, Stream
from upkeep.building.context import Context
from upkeep.contract import Pair
from upkeep.errors import UpkeepError
from upkeep.yaml_files import INPUT, read_yaml

from . import library, release, synthetic
from .library import Shelf, Text
from .release import CONSISTENT, LABELS, UNKNOWN, Entry

EXAMPLES = Path(__file__).parent / "examples.yaml"


class Options(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`options` of `dataset.yaml`."""

    source: Literal["files", "world"] = "files"
    """The official release and books from the user's files, or a small world of ours."""
    evaluate: Literal["full", "subset"] = "full"
    """What is asked: every item, or the human-study subset, with the others as training pairs."""
    missing_books: Literal["leave_out", "name_only"] = "leave_out"
    """What becomes of items whose book is not at hand: left out, or asked over one document that names the book, for
    runs without context alone; a slice `book_text` then tells them apart."""
    chunk_tokens: int = 500
    tokenizer: str | None = None
    """A `tokenizer.json` (the paper counts with the embedding model's); null for the suite's own."""
    columns: dict[str, str] = {}
    """book, character, title, setup, label, kind, generator -> the release's column, where it has another name than
    `release.COLUMNS`."""
    values: dict[str, str] = {}
    """A label, kind or generator as the release writes it -> what it means, such as `consistent`, `local`, `r1`."""
    seed: int = 0
    """Of the world."""
    world: synthetic.Sizes = synthetic.Sizes()


class Example(Struct, forbid_unknown_fields=True, frozen=True):
    """A worked example as `examples.yaml` has it."""

    language: Literal["english", "chinese"]
    novel: str
    character: str
    title: str
    setup: str
    think: str
    label: Literal["consistent", "contradict"]

    def pair(self) -> Pair:
        """The item's block, and reasoning and answer in the form that the prompt demands (C.2)."""
        question = release.block(self.language, self.novel, self.character, self.title, self.setup)
        head = {"english": "[Output]", "chinese": "[输出]"}[self.language]
        answer = f"{head}\nThink: {self.think.strip()}\nAnswer: {LABELS[self.language][self.label]}"
        return Pair(question=question, answer=answer)


def build(context: Context) -> Built:
    """Load the release with its books, or make a small world and load that.

    Raises:
        UpkeepError: wrong options or inputs.
    """
    options = context.options(Options)
    if options.source == "files":
        expected = "the folder of the release (all.parquet, subset.parquet, public.parquet)"
        if options.missing_books == "leave_out":
            books: Path | None = context.required("books", "a folder with the books as .txt files")
        else:
            books = context.given("books")
        return _load(context, options, context.required("release", expected), books, EXAMPLES)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        synthetic.make(folder, options.seed, options.world)
        return _load(context, options, folder / "release", folder / "books", folder / "examples.yaml")


def _load(context: Context, options: Options, folder: Path, books: Path | None, shown: Path) -> Built:
    made = options.source == "world"
    splits = release.split_files(folder)
    if options.evaluate == "subset" and "subset" not in splits:
        raise UpkeepError("no human-study subset", where=folder, expected="subset.parquet")
    shelf = library.load()
    entries = release.read(splits, options.columns, options.values, context.faults)
    known = list({shelf.book(entry.book).id: shelf.book(entry.book) for entry in entries}.values())
    files, strangers = library.files_of(books, known) if books is not None else ({}, [])
    measure = context.tokenizer(options.tokenizer)
    texts = library.read(files, options.chunk_tokens, measure, context.faults)

    named_only = options.missing_books == "name_only"
    places: Counter[str] = Counter()
    streams: dict[str, Stream] = {}
    items: list[assembling.Item] = []
    aside: list[Entry] = []
    away: Counter[str] = Counter()
    for entry in entries:
        book = shelf.book(entry.book).id
        places[book] += 1
        if options.evaluate == "subset" and not entry.subset:
            aside.append(entry)
        elif book in texts or named_only:
            text = texts.get(book)
            if book not in streams:
                streams[book] = Stream(book, text.chunks if text else [entry.book])
            items.append(_item(entry, f"{book}_{places[book]:03d}", streams[book], text, shelf, named_only))
        else:
            away[book] += 1
    if not items:
        raise UpkeepError(
            "no item is left to ask",
            where=books or folder,
            expected=f"texts of {', '.join(book.id for book in known)}",
            found=f"{len(files)} books, {len(entries)} items",
        )
    asked = {leaks.key(entry.setup) for entry in entries if options.evaluate == "full" or entry.subset}
    pairs = [entry for entry in aside if leaks.key(entry.setup) not in asked]
    statistics = _statistics(entries, shelf)
    statistics |= {
        "chunks_per_book": round(sum(len(s.texts) for s in streams.values()) / len(streams), 3),
        "left out: book not at hand": away.total(),
        "left out: pair repeats an asked setup": len(aside) - len(pairs),
    }
    notes = [f"the book of {n} items is not at hand, they are left out: {book}" for book, n in sorted(away.items())]
    if named_only and (bare := sorted(streams.keys() - texts.keys())):
        notes.append(f"no text, only its name, for runs without context: {', '.join(bare)}")
    notes += [f"a file of no book of the release: {path.name}" for path in strangers]
    if made:
        notes.append("books and items: generated by a seeded grammar")
    taken = [path for paths in (*splits.values(), *files.values()) for path in paths]
    return Built(
        *assembling.collect(list(streams.values()), items, measure),
        pairs=[Pair(question=entry.question, answer=entry.answer) for entry in pairs],
        tokenizer=str(measure),
        chunk_tokens=options.chunk_tokens,
        source=context.spec.source if made else f"{context.spec.source}: {', '.join(p.name for p in taken)}",
        statistics=statistics,
        inputs={} if made else context.inputs(taken),
        seed=options.seed if made else None,
        notes=notes,
        examples=_examples(shown, asked),
    )


def _examples(path: Path, asked: Set[str]) -> list[Pair]:
    """The worked examples.

    Raises:
        UpkeepError: one has the setup of an item that is asked (keys of these: `asked`), whoever it is about.
    """
    examples = read_yaml(path, list[Example], limits=INPUT)
    for number, example in enumerate(examples, 1):
        if leaks.key(example.setup) in asked:
            raise UpkeepError("an example is asked", where=f"{path}, example {number}", found=example.setup)
    return [example.pair() for example in examples]


def _item(
    entry: Entry, item_id: str, stream: Stream, text: Text | None, shelf: Shelf, named_only: bool
) -> assembling.Item:
    positions = {position for quote in entry.evidence for position in (text.holding(quote) if text else ())}
    return assembling.Item(
        id=item_id,
        stream=stream.id,
        text=entry.question,
        form="label",
        options=list(LABELS[entry.language].values()),
        answers=[entry.answer],
        evidence=[stream.document_id(position) for position in sorted(positions)],
        context=entry.evidence,
        slices=_slices(entry, shelf) | ({"book_text": "at_hand" if text else "named_only"} if named_only else {}),
    )


def _slices(entry: Entry, shelf: Shelf) -> dict[str, str]:
    """Slice -> the subset that the paper's tables have the item in (Tables 2 to 6 and 9)."""
    book = shelf.book(entry.book)
    return {
        "label": entry.label,
        "kind": "kind_unknown" if entry.kind == UNKNOWN else f"{entry.label}_{entry.kind}",
        "language": entry.language,
        "generator": "generator_unknown" if entry.generator == UNKNOWN else entry.generator,
        "public": _named("public", book.public if entry.public is None else entry.public, "public", "not_public"),
        "study": _named("study", entry.subset, "human_study", "training"),
        "book": book.id,
    }


def _named(slice: str, flag: bool | None, yes: str, no: str) -> str:
    return f"{slice}_unknown" if flag is None else yes if flag else no


def _statistics(entries: Sequence[Entry], shelf: Shelf) -> dict[str, float]:
    """Tables 2 and 3 over the whole release, whatever of it is asked; `nonlocal_share` in percent (abstract)."""
    items: Counter[str] = Counter()
    people: dict[str, set[tuple[str, str]]] = {}
    for entry in entries:
        slices: Mapping[str, str] = _slices(entry, shelf)
        for value in ("all", *slices.values()):
            items[value] += 1
            people.setdefault(value, set()).add((slices["book"], leaks.key(entry.character)))
    books = sorted({shelf.book(entry.book).id for entry in entries})
    totals = [value for value in ("english", "chinese", "public") if items[value]]
    kinds = [value for value in people if value.startswith((CONSISTENT, release.CONTRADICT))]
    found: dict[str, float] = {"books": len(books)}
    for value in ["all", *totals, *books]:
        found |= {f"characters: {value}": len(people[value]), f"instances: {value}": items[value]}
    found |= {f"instances: {value}": items[value] for value in sorted(kinds)}
    found |= {f"instances: {value}": items[value] for value in ("human_study", "r1_generated", "gpt_generated")}
    if items["contradict_local"]:
        found["nonlocal_share"] = round(100 - 100 * items["contradict_local"] / len(entries), 3)
    return found
