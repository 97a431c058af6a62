"""What a suite's report says, for tests, and whether its pages hold together."""

from __future__ import annotations

import itertools
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = ("answer.js", "report.css", "report.js", "tables.js")


def pages_of(root: Path, suite: str) -> dict[str, str]:
    """Place -> text of each page of a report, in order of place."""
    folder = root / "results" / "report" / suite
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in sorted(folder.rglob("*.html"))}


def report_of(root: Path, suite: str) -> str:
    """All that the pages of a report say."""
    return "\n".join(pages_of(root, suite).values())


class Page(HTMLParser):
    """What a page loads, where its links lead, its ids, and whether its elements are closed."""

    VOID = frozenset({"meta", "br", "hr", "img", "link", "path", "use", "rect", "col", "input", "wbr"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.tags.append(tag)
        assert not any(name.startswith("on") for name in given), "a script within the page"
        if tag in ("script", "img", "iframe", "link"):
            self.loaded.append(given.get("src") or given.get("href") or "in the page")
        elif tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if given.get("id"):
            self.ids.append(given["id"])
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def require_whole(folder: Path) -> None:
    """Fail where a page of a report loads what is not its own, leads nowhere, or is not well formed, or where what its
    scripts load and lead to is not there."""
    shown = json.loads((folder / "cells.js").read_text("utf-8").partition(", ")[2].removesuffix(");\n"))
    for cell, name in itertools.product(shown, ("index.html", "index.js", "answers-0.js", "paired.js")):
        assert (folder / "cells" / cell / name).is_file(), f"{cell}: {name}"
    pages = {path: Page(path.read_text("utf-8")) for path in folder.rglob("*.html")}
    assert folder / "index.html" in pages
    for path, page in pages.items():
        assert page.open == [], path
        assert len(page.ids) == len(set(page.ids)), path
        assert not re.search(r"(?:@import|url\s*\((?!#))", path.read_text("utf-8")), path
        for one in page.loaded:
            assert (path.parent / one).resolve().parent == folder.resolve() and one.rpartition("/")[2] in LOADED, one
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https"):
                continue  # a source that a README names; nothing is loaded from there
            assert not parts.scheme and not parts.netloc, link
            target = path.parent / unquote(parts.path) if parts.path else path
            assert target.exists(), f"{path}: {link}"
            if parts.fragment:
                assert parts.fragment in pages[target.resolve()].ids, f"{path}: {link}"
