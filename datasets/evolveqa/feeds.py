"""Dated documents out of a feed: JSON lines, CSV, RSS or Atom (evolveQA 3.1, B.3).

A feed is a file or a folder of files, each plain or packed (.gz, .bz2, .xz). What an entry may have:

| | `.json`, `.jsonl`, `.csv` | `.rss`, `.atom`, `.xml` |
| --- | --- | --- |
| id (else file and place) | `id` | `guid` or `id`, else `link` |
| publication date | `date` | `pubDate`, `published`, else `updated` |
| title (may be missing) | `title` | `title` |
| text, plain or HTML | `text` | `content`, else `description` or `summary` |
| sections | JSON alone: `sections`, a list of `{"title": ..., "text": ...}` | |

JSON holds one entry a line (an array with an entry a line will do). A text's sections are those given, else what its
HTML headings divide.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

from msgspec import Struct

from upkeep.building.reading import Distinct, Faults, iso_date, open_packed, records, usable, whole
from upkeep.errors import UpkeepError

_READ = (".json", ".jsonl", ".csv", ".rss", ".atom", ".xml")
_PACKED = (".gz", ".bz2", ".xz")
_MARKUP = re.compile(r"</?(?:p|div|br|h[1-6]|ul|ol|li|a|b|i|em|strong|span|table|tr|td|section|article)\b[^<>]*>", re.I)
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_INLINE = frozenset({"a", "b", "i", "em", "strong", "span", "sub", "sup", "u", "code", "small", "abbr", "font"})
_UNSEEN = frozenset({"script", "style", "template"})


class Section(Struct, frozen=True):
    """A part of a text under a heading; the heading may be empty."""

    title: str = ""
    text: str = ""


class Entry(Struct, frozen=True, kw_only=True):
    """An entry of a feed as it stands there."""

    id: str | int | None = None
    date: str | None = None
    title: str | None = None
    text: str | None = None
    sections: list[Section] | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """A dated text: title and body, one paragraph a line, single spaces between words."""

    id: str
    date: str
    """YYYY-MM-DD."""
    text: str


def read(path: Path, by_section: bool, most: int, faults: Faults) -> tuple[list[Document], list[Path]]:
    """The documents of a feed in order of date, and the files that it consists of.

    Args:
        by_section: every section is a document of its own (as for WHO).
        most: characters of a document.

    Raises:
        UpkeepError: no file of a known kind, or a fault that is refused.
    """
    files = sorted(f for f in path.iterdir() if _kind(f) in _READ) if path.is_dir() else [path]
    if not files or _kind(files[0]) not in _READ:
        raise UpkeepError(
            "no feed here", where=path, expected=f"a file, or a folder of files, among {', '.join(_READ)}"
        )
    entries = (entry for file in files for entry in _entries(file, faults))
    return documents(entries, by_section, most, faults), files


def documents(entries: Iterable[tuple[str, Entry]], by_section: bool, most: int, faults: Faults) -> list[Document]:
    """The documents of (place, entry) pairs in order of date; of one date, in order of the feed.

    What has no date, no text, an id given before or more than `most` characters is a fault.
    """
    new = Distinct(faults)
    found: list[Document] = []
    for where, entry in entries:
        id = where.rpartition("/")[2] if entry.id in (None, "") else str(entry.id)
        if not new(id, where) or (date := iso_date(entry.date, where, faults)) is None:
            continue
        title = _clean(entry.title or "")
        given = entry.sections or [Section("", entry.text or "")]
        sections = [part for section in given for part in _sections(section.text, section.title)]
        sections = [section for section in sections if section.text]
        if not by_section:
            sections = [Section("", "\n".join(line for s in sections for line in (s.title, s.text) if line))]
        elif not sections:
            sections = [Section()]
        for n, section in enumerate(sections):
            if usable(section.text, where, faults, most):
                head = ": ".join(part for part in (title, section.title) if part)
                text = "\n".join(part for part in (head, section.text) if part)
                found.append(Document(f"{id}#{n}" if by_section else id, date, text))
    return sorted(found, key=lambda document: document.date)


# ---------------------------------------------------------------- kinds of files


def _kind(file: Path) -> str:
    return (Path(file.stem) if file.suffix in _PACKED else file).suffix.lower()


def _entries(file: Path, faults: Faults) -> Iterator[tuple[str, Entry]]:
    kind = _kind(file)
    if kind == ".csv":
        return _from_csv(file, faults)
    return records(file, Entry, faults) if kind in (".json", ".jsonl") else _from_xml(file, faults)


def _from_csv(file: Path, faults: Faults) -> Iterator[tuple[str, Entry]]:
    """Rows of a CSV file with a header. Bytes that are not UTF-8 spoil their own row alone."""
    with whole(file), open_packed(file) as raw:
        rows = csv.reader((line.decode("utf-8-sig", "surrogateescape") for line in raw), strict=True)
        header: list[str] | None = None
        while True:
            where = f"{file}, line {rows.line_num + 1}"
            try:
                row = next(rows)
            except StopIteration:
                return
            except csv.Error as error:
                faults("broken_record", where, f"not a row: {error}")
                continue
            if not row:
                continue
            if header is None:
                header = [name.strip().lower() for name in row]
                if missing := [name for name in ("date", "text") if name not in header]:
                    raise UpkeepError(
                        f"no column {' and '.join(missing)}", where=where, expected="date, text; may be: id, title"
                    )
            elif any("\udc80" <= character <= "\udcff" for value in row for character in value):
                faults("encoding", where, "not UTF-8")
            elif len(row) != len(header):
                faults("broken_record", where, f"{len(row)} fields in place of {len(header)}", row[0][:80])
            else:
                fields = dict(zip(header, row, strict=True))
                yield (
                    where,
                    Entry(id=fields.get("id"), date=fields["date"], title=fields.get("title", ""), text=fields["text"]),
                )


def _from_xml(file: Path, faults: Faults) -> Iterator[tuple[str, Entry]]:
    """Entries of an RSS or Atom feed. After damage feedparser reads on as well as it can."""
    import feedparser

    with whole(file), open_packed(file) as raw:
        feed = feedparser.parse(raw.read())
    fault = feed.get("bozo_exception")
    if isinstance(fault, feedparser.CharacterEncodingOverride | feedparser.CharacterEncodingUnknown):
        faults("encoding", str(file), f"not in the encoding that it declares: {fault}")
    elif fault is not None:
        line = fault.getLineNumber() if hasattr(fault, "getLineNumber") else 1
        faults("broken_record", f"{file}, line {line}", f"not well-formed: {fault}")
    for n, item in enumerate(feed.entries, 1):
        body = item["content"][0]["value"] if item.get("content") else item.get("summary", "")
        yield (
            f"{file}, entry {n}",
            Entry(
                id=item.get("id") or item.get("link"),
                date=item.get("published") or item.get("updated"),
                title=_lines(item.get("title", "")),
                text=body,
            ),
        )


# ---------------------------------------------------------------- texts


def _sections(text: str, title: str = "") -> list[Section]:
    """What the headings of an HTML text divide; a plain text is one section."""
    parser = _Reader()
    parser.feed(text if _MARKUP.search(text) else text.replace("&", "&amp;").replace("<", "&lt;"))
    parser.close()
    return [
        Section(heading or title, "\n".join(clean for line in "".join(body).split("\n") if (clean := _clean(line))))
        for heading, body in parser.found
    ]


def _lines(text: str) -> str:
    return " ".join(section.text.replace("\n", " ") for section in _sections(text)).strip()


def _clean(line: str) -> str:
    return " ".join(line.split())


class _Reader(HTMLParser):
    """Collects (heading, pieces of text); block elements and line breaks begin a new line."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, list[str]]] = [("", [])]
        self._heading: list[str] | None = None
        self._unseen = 0

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        if tag in _UNSEEN:
            self._unseen += 1
        elif tag in _HEADINGS:
            self._heading = []
        elif tag not in _INLINE:
            self.found[-1][1].append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in _UNSEEN:
            self._unseen = max(0, self._unseen - 1)
        elif tag in _HEADINGS and self._heading is not None:
            self.found.append((_clean("".join(self._heading)), []))
            self._heading = None
        elif tag not in _INLINE:
            self.found[-1][1].append("\n")

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            (self.found[-1][1] if self._heading is None else self._heading).append(data)
