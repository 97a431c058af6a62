"""The books that prequels belong to: what they are called, and their texts from the user's files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct

from upkeep.building import leaks, prose, reading, tokens
from upkeep.building.reading import Faults
from upkeep.errors import UpkeepError
from upkeep.yaml_files import INPUT, read_yaml

BOOKS = Path(__file__).parent / "books.yaml"
LISTED = "books.yaml"
"""In a folder of texts: a book's id or title -> its file, or its files in order."""


class Book(Struct, frozen=True, forbid_unknown_fields=True):
    """A book of the benchmark."""

    id: str
    titles: tuple[str, ...]
    public: bool | None = None
    """Whether the paper counts it as public; None where it does not say."""


class Shelf:
    """The books by any of their names.

    Args:
        books: those that are known beforehand.
    """

    def __init__(self, books: Iterable[Book]) -> None:
        self._by_name = {leaks.key(name): book for book in books for name in (book.id, *book.titles)}

    def book(self, name: str) -> Book:
        """The book of that id or title; a new one is made for an unknown title."""
        key = leaks.key(name)
        if key not in self._by_name:
            self._by_name[key] = Book("_".join(re.findall(r"\w+", name.casefold())) or name, (name,))
        return self._by_name[key]


def load(path: Path = BOOKS) -> Shelf:
    """The shelf of a YAML list of books."""
    return Shelf(read_yaml(path, list[Book], limits=INPUT))


def files_of(folder: Path, books: Sequence[Book]) -> tuple[dict[str, list[Path]], list[Path]]:
    """The text files of each book, and those of no book.

    A file belongs to the book whose id or title its name is, case and punctuation aside (`In Search of the
    Castaways.txt`, `亮剑.txt.gz`). `books.yaml` in the folder names any that are called otherwise.

    Raises:
        UpkeepError: `books.yaml` names an unknown book or a missing file; two files have one book's name.
    """
    names = {leaks.key(name): book.id for book in books for name in (book.id, *book.titles)}
    found: dict[str, list[Path]] = {}
    listed = folder / LISTED
    if listed.is_file():
        for name, given in _listed(listed).items():
            paths = [folder / file for file in ([given] if isinstance(given, str) else given)]
            missing = [path for path in paths if not path.is_file()]
            if leaks.key(name) not in names or missing:
                raise UpkeepError(
                    "a book that the release has not" if not missing else "file not found",
                    where=f"{listed}: {name}",
                    expected="files of this folder" if missing else f"one of {', '.join(book.id for book in books)}",
                    found=missing or name,
                )
            found[names[leaks.key(name)]] = paths
    taken = {path for paths in found.values() for path in paths}
    strangers = []
    for path in sorted(folder.iterdir()):
        stem, dot, ending = path.name.partition(".txt")
        if not dot or ending not in ("", ".gz", ".bz2", ".xz") or path in taken:
            continue
        if (book_id := names.get(leaks.key(stem))) is None:
            strangers.append(path)
        elif book_id in found:
            raise UpkeepError(
                f"two files for {book_id!r}",
                where=path,
                expected=f"one, or the files in order in {LISTED}",
                found=found[book_id],
            )
        else:
            found[book_id] = [path]
    return found, strangers


def _listed(path: Path) -> dict[str, str | list[str]]:
    form = "`title: file`, or `title: [file, file]`"
    return read_yaml(path, dict[str, str | list[str]], expected=form, limits=INPUT)


@dataclass(frozen=True, slots=True)
class Text:
    """A book's text in chunks that do not overlap."""

    whole: str
    chunks: Sequence[str]
    spans: Sequence[tuple[int, int]]
    """Where in `whole` each chunk lies."""

    def holding(self, passage: str) -> list[int]:
        """The positions of the chunks that hold the first occurrence of a passage; none where it does not occur."""
        if (start := self.whole.find(passage)) < 0 or not passage:
            return []
        return tokens.holding(self.spans, start, start + len(passage))


def read(files: Mapping[str, Sequence[Path]], limit: int, measure: tokens.Tokens, faults: Faults) -> dict[str, Text]:
    """Book -> its text in chunks of at most `limit` tokens (4). A book with a faulty file has no text."""
    texts: dict[str, str] = {}
    for book_id, paths in files.items():
        parts = [reading.text(path, faults) for path in paths]
        if None not in parts:
            whole = "\n\n".join(prose.strip_boilerplate(part.replace("\r\n", "\n")) for part in parts if part)
            if reading.usable(whole, ", ".join(map(str, paths)), faults):
                texts[book_id] = whole
    pieces = tokens.split(texts.values(), limit, measure)
    return {
        book_id: Text(whole, chunks, tokens.spans(whole, chunks))
        for (book_id, whole), chunks in zip(texts.items(), pieces, strict=True)
    }
