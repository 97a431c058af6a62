"""NarrativeQA's questions about books, out of its official files.

`documents.csv` has a story a line: `document_id`, `set` (`train`, `valid` or `test`), `kind` (`gutenberg`, a book, or
`movie`, a script), `wiki_title` and more. `qaps.csv` has a question a line: `document_id`, `set`, `question`, `answer1`
and `answer2`, and tokenized forms. Their script puts each story into `tmp/<document_id>.content`. Scripts of movies are
web pages and are not read.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from upkeep.building import books, prose, reading
from upkeep.building.assembling import Built
from upkeep.building.books import Asked, BookOptions
from upkeep.building.context import Context
from upkeep.building.reading import Distinct, Faults
from upkeep.errors import UpkeepError

DOCUMENTS, QUESTIONS, STORIES = "documents.csv", "qaps.csv", "tmp"
BOOK = "gutenberg"


class Options(BookOptions, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`options` of `dataset.yaml`."""

    set: Literal["train", "valid", "test"] = "valid"
    """The part of the release: `valid` is the development set."""


def build(context: Context) -> Built:
    """Read the books that are at hand, and what is asked about them.

    Raises:
        UpkeepError: wrong options; a file is missing or lacks a column; a line or book, as `faults` has it, is broken.
    """
    options = context.options(Options)
    folder = context.required("release", f"the folder of NarrativeQA, with {DOCUMENTS}, {QUESTIONS} and {STORIES}/")
    titles, texts, away = {}, {}, 0
    files = {name: folder / name for name in (DOCUMENTS, QUESTIONS)}
    distinct = Distinct(context.faults)
    for where, row in rows(folder / DOCUMENTS, ("document_id", "set", "kind", "wiki_title"), context.faults):
        book = row["document_id"]
        if row["set"] != options.set or row["kind"] != BOOK or not distinct(book, where):
            continue
        path = folder / STORIES / f"{book}.content"
        if not path.is_file():
            away += 1
            continue
        text = reading.text(path, context.faults)
        if text is None or not reading.usable(text := prose.strip_boilerplate(text), str(path), context.faults):
            continue
        titles[book], texts[book] = row["wiki_title"].strip(), text.replace("\r\n", "\n").strip()
        files[f"{STORIES}/{path.name}"] = path
    if not texts:
        raise UpkeepError(
            f"no book of the set {options.set!r} is at hand",
            where=folder / STORIES,
            expected="<document_id>.content of the stories of kind gutenberg",
            found=f"none of {away}",
            remedy="run download_stories.sh of google-deepmind/narrativeqa in that folder",
        )
    asked = []
    needed = ("document_id", "question", "answer1", "answer2")
    for where, row in rows(folder / QUESTIONS, needed, context.faults):
        book = row["document_id"]
        answers = list(dict.fromkeys(answer for name in needed[2:] if (answer := row[name].strip())))
        if book not in texts or not reading.usable(row["question"], where, context.faults):
            continue
        if not answers:
            context.faults("broken_record", where, "no answer")
            continue
        asked.append(Asked(book=book, text=f"Book: {titles[book]}\n{row['question'].strip()}", answers=answers))
    return books.collect(context, options, texts, asked, files, {"left out: book not at hand": away})


def rows(path: Path, needed: Sequence[str], faults: Faults) -> Iterator[tuple[str, dict[str, str]]]:
    """(place, row) of each line of a CSV file with a header.

    Raises:
        UpkeepError: the file is missing or lacks one of the columns.
    """
    if (content := reading.text(path, faults)) is None:
        return
    lines = csv.DictReader(io.StringIO(content, newline=""))
    names = list(lines.fieldnames or ())
    if missing := [name for name in needed if name not in names]:
        raise UpkeepError(
            f"no column {', '.join(missing)}",
            where=path,
            expected=f"the columns {', '.join(needed)}",
            found=", ".join(names) or "an empty file",
            remedy="get the file again from google-deepmind/narrativeqa",
        )
    try:
        for row in lines:
            where = f"{path}, line {lines.line_num}"
            if any(row[name] is None for name in needed):
                faults("broken_record", where, "fewer fields than the header has columns")
            else:
                yield where, {name: row[name] for name in needed}
    except csv.Error as error:
        raise UpkeepError(f"not CSV: {error}", where=f"{path}, line {lines.line_num}") from None
