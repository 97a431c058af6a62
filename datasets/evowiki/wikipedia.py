"""The text of Wikipedia's pages, article by article, out of any of three forms; little is held.

- JSON lines of `{"title": ..., "text": ...}` (`.json`, `.jsonl`, `.ndjson`, packed or not);
- Parquet with columns `title` and `text` (`.parquet`);
- the official `pages-articles` XML (`.xml.bz2`, or the many files that it comes in), whose markup is taken out.

A path is a file of one of these, or a folder of them.
"""

from __future__ import annotations

import hashlib
import heapq
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import mwparserfromhell
import polars as pl

from upkeep.building.reading import Distinct, Faults, open_packed, records, usable, whole
from upkeep.contract import FaultKind
from upkeep.errors import UpkeepError

ROWS = 2000
"""Articles of a Parquet file that are held at a time."""
_PACKED = (".gz", ".bz2", ".xz")
_MEDIA = ("file", "image", "category")
"""Links that are shown as something else than their words."""
_ASIDES = ("ref", "table", "style")
"""Tags whose contents stand apart from the text; further ones the library leaves out by itself."""


@dataclass(frozen=True, slots=True)
class _Raw:
    """An article as its file has it."""

    where: str
    title: str
    body: str
    markup: bool

    def text(self) -> str:
        """What a reader sees."""
        return strip(self.body) if self.markup else self.body.strip()


class Wikipedia:
    """Pages at one date, as `facts.Pages`.

    Args:
        path: see the module.
        faults: takes note of broken records and, of the articles that are asked for, of empty and repeated ones; each
            once, however often the pages are read.

    Raises:
        UpkeepError: there is nothing there in any of the forms.
    """

    def __init__(self, path: Path, faults: Faults) -> None:
        self._files = files(path)
        self._faults = _Once(faults)

    def read(self, titles: Collection[str]) -> Iterator[tuple[str, str]]:
        """(title, text) of those of the titles that have a page, each once, in the files' order.

        Raises:
            UpkeepError: a file is damaged, or a fault is refused.
        """
        wanted, distinct = frozenset(titles), Distinct(self._faults)
        for raw in self._articles():
            if raw.title in wanted and distinct(raw.title, raw.where):
                text = raw.text()
                if usable(text, raw.where, self._faults):
                    yield raw.title, text

    def sample(self, count: int, seed: int, without: Collection[str] = ()) -> Iterator[tuple[str, str]]:
        """(title, text) of articles drawn at random, in the files' order: those of the lowest hash of title and seed.

        The files are read twice, first for the titles alone. Fewer come where there are fewer, or where an article is
        empty once its markup is out.

        Args:
            without: titles that are not drawn.
        """
        drawn = lowest((raw.title for raw in self._articles() if raw.body.strip()), count, seed, without)
        return self.read(drawn)

    def _articles(self) -> Iterator[_Raw]:
        for file in self._files:
            yield from _form(file)(file, self._faults)


def lowest(titles: Iterable[str], count: int, seed: int, without: Collection[str] = ()) -> frozenset[str]:
    """Titles drawn at random: the `count` of the lowest hash of seed and title. The order and the number of times in
    which they come make no difference."""
    left_out = frozenset(without)
    heap: list[tuple[int, str]] = []  # the highest first
    drawn = set[str]()
    for title in titles:
        if title in left_out or title in drawn:
            continue
        digest = hashlib.sha256(f"{seed}\0{title}".encode(errors="surrogatepass")).digest()
        entry = (-int.from_bytes(digest[:16]), title)
        if len(heap) < count:
            heapq.heappush(heap, entry)
        elif heap and entry > heap[0]:
            drawn.discard(heapq.heapreplace(heap, entry)[1])
        else:
            continue
        drawn.add(title)
    return frozenset(drawn)


def files(path: Path) -> list[Path]:
    """The files of articles at a path, by name.

    Raises:
        UpkeepError: there is none.
    """
    found = [path] if path.is_file() else sorted(f for f in path.glob("*") if f.is_file() and _suffix(f) is not None)
    if not found or _suffix(found[0]) is None:
        raise UpkeepError(
            "no articles here",
            where=path,
            expected=f"files of the forms {', '.join(_FORMS)}, packed as {', '.join(_PACKED)} or not",
        )
    return found


# ---------------------------------------------------------------- the forms


class _Article(msgspec.Struct, gc=False):
    title: str
    text: str


def _json(path: Path, faults: Faults) -> Iterator[_Raw]:
    for where, article in records(path, _Article, faults):
        yield _Raw(where, _title(article.title), article.text, False)


def _parquet(path: Path, faults: Faults) -> Iterator[_Raw]:
    row = 0
    try:
        frame = pl.scan_parquet(path).select(pl.col("title", "text").cast(pl.String))
        for batch in frame.collect_batches(chunk_size=ROWS, engine="streaming"):
            for title, text in batch.iter_rows():
                row += 1
                where = f"{path}, row {row}"
                if title is None or text is None:
                    faults("broken_record", where, "no title or no text")
                else:
                    yield _Raw(where, _title(title), text, False)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise UpkeepError(f"not readable: {error}", where=path, expected="Parquet with columns title, text") from None


def _xml(path: Path, faults: Faults) -> Iterator[_Raw]:
    """Articles of an official dump; pages of other namespaces and redirects are passed over."""
    with whole(path), open_packed(path) as file:
        try:
            events = ElementTree.iterparse(file, events=("start", "end"))
            _, root = next(events)
            number = 0
            for event, element in events:
                if event != "end" or not element.tag.endswith("}page"):
                    continue
                number += 1
                page = {child.tag.rpartition("}")[2]: child for child in element}
                if "redirect" not in page and (page["ns"].text if "ns" in page else "0") == "0":
                    body = element.findtext("{*}revision/{*}text")
                    title = page["title"].text if "title" in page else None
                    where = f"{path}, page {number}"
                    if title is None or body is None:
                        faults("broken_record", where, "no title or no text")
                    else:
                        yield _Raw(where, _title(title), body, True)
                root.clear()  # pages that are done would stay in the tree
        except (ElementTree.ParseError, StopIteration) as error:
            raise UpkeepError(
                f"not XML any further: {error}",
                where=path,
                expected="a whole pages-articles dump",
                remedy="get the file again",
            ) from None


def _title(title: str) -> str:
    return title.replace("_", " ").strip()


_FORMS: dict[str, Callable[[Path, Faults], Iterator[_Raw]]] = {
    ".json": _json,
    ".jsonl": _json,
    ".ndjson": _json,
    ".parquet": _parquet,
    ".xml": _xml,
}


def _suffix(path: Path) -> str | None:
    """Which form a file is of, by its name: `pages-articles1.xml-p1p41242.bz2` is XML."""
    inner = path.with_suffix("") if path.suffix in _PACKED else path
    suffix = inner.suffix.partition("-")[0]
    return suffix if suffix in _FORMS else None


def _form(path: Path) -> Callable[[Path, Faults], Iterator[_Raw]]:
    suffix = _suffix(path)
    assert suffix is not None, "`files` gives no others"
    return _FORMS[suffix]


# ---------------------------------------------------------------- markup


def strip(markup: str) -> str:
    """Wikitext as plain text: no templates, references, tables, pictures or categories; headings stay as lines."""
    code = mwparserfromhell.parse(markup, skip_style_tags=True)
    for link in code.filter_wikilinks(matches=_is_media):
        link.text = ""
    for tag in code.filter_tags(matches=_is_aside):
        tag.contents = ""
    text = str(code.strip_code(normalize=True, collapse=True)).replace("'''", "").replace("''", "")
    lines = (" ".join(line.split()) for line in text.splitlines())
    paragraphs: list[str] = []
    for line in lines:
        if line or (paragraphs and paragraphs[-1]):
            paragraphs.append(line)
    return "\n".join(paragraphs).strip()


def _is_media(link: mwparserfromhell.nodes.Wikilink) -> bool:
    namespace, colon, _ = str(link.title).partition(":")
    return bool(colon) and namespace.strip().lower() in _MEDIA


def _is_aside(tag: mwparserfromhell.nodes.Tag) -> bool:
    return str(tag.tag).strip().lower() in _ASIDES


class _Once(Faults):
    """Passes on each fault the first time alone, for files that are read more than once."""

    def __init__(self, faults: Faults) -> None:
        self._inner = faults
        self._told = set[tuple[FaultKind, str]]()

    def __call__(self, kind: FaultKind, where: str, problem: str, found: object = None) -> None:
        if (kind, where) not in self._told:
            self._inner(kind, where, problem, found)
            self._told.add((kind, where))
