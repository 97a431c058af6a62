"""The folder of a report: pages, their data and what they share. It is opened as files, and may be moved: of what pages
link, only a cell's own files lie elsewhere."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

from upkeep.files import remove, write_atomically
from upkeep.jobs import Cell
from upkeep.pages import templates
from upkeep.published import asked
from upkeep.text import duration

FIRST = "index.html"
SHARED = ("report.css", "report.js", "answer.js", "tables.js")
"""What pages load, beside their data."""
_CODE = re.compile(r"`([^`\n]+)`")


class Site:
    """Writes a folder, and leaves nothing in it that was not written or kept this time."""

    def __init__(self, folder: Path, **shared: Any) -> None:
        """`shared` is what every page is given."""
        self.folder = folder
        self._shared = shared
        self._there: set[str] = set()
        self._environment = templates(
            "upkeep.report",
            thousands=thousands,
            asked=asked,
            number=decimal,
            duration=duration,
            broken=broken,
            coded=coded,
            markdown=markdown,
        )

    def page(self, place: str, template: str, **given: Any) -> None:
        """Write a page.

        Args:
            place: relative to the folder; the page has it, and the way back to the folder, as `root`.
        """
        page = self._environment.get_template(template)
        text = page.render(self._shared, place=place, root="../" * place.count("/"), **given)
        self.file(place, text.encode())

    def file(self, place: str, content: bytes) -> Path:
        """Write a file, unless it is there with this content. The first page is always written: it dates the report."""
        path = self.folder / place
        self._there.add(place)
        if place == FIRST or not path.is_file() or path.read_bytes() != content:
            if path.is_dir():
                remove(path)
            write_atomically(path, content)
        return path

    def data(self, place: str, value: object) -> Path:
        """Write data for a page: a script, for a page that was opened as a file may read nothing else."""
        content = msgspec.json.encode(value).replace(b"<", b"\\u003c")
        return self.file(f"{place}.js", b"upkeep.put(%s, %s);\n" % (msgspec.json.encode(place), content))

    def keep(self, places: Iterable[str]) -> None:
        """Leave files that an earlier report wrote."""
        self._there.update(places)

    def share(self) -> None:
        """Write what pages load."""
        for name in SHARED:
            self.file(name, (Path(__file__).parent / "templates" / name).read_bytes())

    def finish(self) -> None:
        """Remove what is not of this report."""
        for top, folders, files in os.walk(self.folder, topdown=False):
            above = "" if (here := os.path.relpath(top, self.folder)) == "." else f"{here}/"
            for name in files:
                if above + name not in self._there:
                    remove(Path(top, name))
            for name in folders:
                path = Path(top, name)
                if path.is_symlink() or not any(path.iterdir()):
                    remove(path)


def place_of(kind: str, name: object) -> str:
    """Where the page of a thing lies: a method, dataset, model or paper; or a cell."""
    return f"cells/{name}/{FIRST}" if kind == "cell" else f"{kind}s/{name}.html"


def link_of(kind: str, name: object) -> str:
    """The same, as pages link it; a name may have characters that mean something in an address."""
    return quote(place_of(kind, name))


def folder_of(cell: Cell | str) -> str:
    """Where a cell's page and its data lie."""
    return f"cells/{cell}"


# ---------------------------------------------------------------- text


def thousands(number: float) -> str:
    """`12,345`."""
    return f"{number:,.0f}"


def decimal(number: float, digits: int = 1) -> str:
    """`12.3`."""
    return f"{number:.{digits}f}"


def coded(text: str) -> Markup:
    """Text of ours with `code` in it."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))


def broken(cell: object) -> Markup:
    """The name of a cell, which may be broken where its parts end."""
    return Markup("/<wbr>").join(str(cell).split("/"))


def markdown(text: str) -> Markup:
    """A README as a part of a page: without its title and links within the repository, and with any HTML as text."""
    parser = _parser()
    tokens = parser.parse(text)
    shown: list[Token] = []
    title = False
    for place, token in enumerate(tokens):
        if token.type == "table_open":
            token.attrSet("tabindex", "0")  # it scrolls where it is wider than the page
        if token.type == "th_open" and not tokens[place + 1].content:
            token.tag = tokens[place + 2].tag = "td"
        if token.type in ("heading_open", "heading_close"):
            if token.tag == "h1":
                title = token.type == "heading_open"
                continue
            token.tag = f"h{min(6, int(token.tag[1:]) + 1)}"
        if not title:
            shown.append(token)
        if token.children:
            token.children = list(_without_links(token.children))
    return Markup(parser.renderer.render(shown, parser.options, {}))


@functools.cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable("table")


def _without_links(tokens: Iterable[Token]) -> Iterable[Token]:
    """Inline parts of a text, without links to what does not lie beside the report, and without pictures."""
    kept: list[bool] = []
    for token in tokens:
        if token.type == "link_open":
            kept.append(str(token.attrGet("href") or "").startswith(("https://", "http://")))
            if not kept[-1]:
                continue
        if token.type == "link_close" and not kept.pop():
            continue
        if token.type != "image":
            yield token
