"""The inputs of the builder: a folder of release notes, and what may be given beside it.

<notes>/<library>/<version>-notes.rst      or <version>.rst, v<version>.rst; .md
<notes>/<library>/CHANGELOG.md             or CHANGES.rst and the like: all releases, a heading each
<notes>/<library>/releases.json            GitHub's list of releases: [{tag_name, body, published_at}]
<notes>/dates.yaml                         optional: {<library>: {<version>: <date>}}
<docs>/<library>/<canonical path>.rst      or .md, .txt: a page of the documentation
<snippets>                                 JSON lines {library, identifier, code, url}
<pulls>                                    JSON lines {library, number, title, body, files}
<packages>/<library>/<name>-<version>.tar.gz   or .zip, .whl: source distributions or wheels
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from upkeep.building import reading
from upkeep.building.reading import Distinct, Faults
from upkeep.errors import UpkeepError
from upkeep.yaml_files import INPUT, convert, load

from . import forms, markdown, rst
from .notes import Block

READERS = {".rst": rst.read, ".md": markdown.read}
FORM = "a folder with <library>/<version>-notes.rst or .md, <library>/CHANGELOG.md or <library>/releases.json"
_DATED = re.compile(
    r"(?im)^\W*(?:release[d ]*(?:on|date)?|date)\W*(?:on\s+)?"
    r"(?P<date>\d{4}-\d{2}-\d{2}|\d{1,2} [A-Z][a-z]+ \d{4}|[A-Z][a-z]+ \d{1,2}, \d{4})\W*$"
    r"|^#*\s*\S[^\n]{0,60}\((?P<titled>\d{4}-\d{2}-\d{2}|[A-Z][a-z]+ \d{1,2}, \d{4})\)\s*$"
)
_ARCHIVE = re.compile(r"[\w.-]+?-v?(?P<version>\d+(?:\.\w+)*)(?:-[\w.-]+)?\.(?:tar\.gz|zip|whl)\Z")
_HEAD = 2000
"""Characters at the beginning of notes where their date is looked for."""


class UsageSnippet(msgspec.Struct, frozen=True):
    """A line of the snippets: code, or a whole file, that uses an identifier."""

    library: str
    identifier: str
    """Canonical path."""
    code: str
    url: str = ""


class Pull(msgspec.Struct, frozen=True):
    """A line of the pull requests."""

    library: str
    number: int
    title: str
    body: str = ""
    files: list[str] = []

    @property
    def text(self) -> str:
        changed = f"\nChanged files: {', '.join(self.files)}" if self.files else ""
        return f"#{self.number}: {self.title}\n{self.body.strip()}".rstrip() + changed


@dataclass(frozen=True)
class Release:
    """One release's notes."""

    library: str
    version: str
    date: str | None
    """YYYY-MM-DD."""
    blocks: list[Block]
    text: str


@dataclass
class Sources:
    """All that was given."""

    releases: list[Release] = field(default_factory=list)
    """By library, then in the order of versions."""
    docs: dict[tuple[str, str], str] = field(default_factory=dict)
    """(library, canonical path) -> page."""
    snippets: list[UsageSnippet] = field(default_factory=list)
    pulls: dict[tuple[str, int], Pull] = field(default_factory=dict)
    packages: dict[str, dict[str, Path]] = field(default_factory=dict)
    """Distributions of each library, by version."""
    files: dict[str, Path] = field(default_factory=dict)
    """Everything that was read, by the name that the card gives it."""

    def distributions(self, library: str, version: str) -> tuple[Path, Path] | None:
        """Those of a release and of the one before it: the last below it. None where one of them is not given.

        Of `1.2`, the first that begins so is the release's own.
        """
        given = self.packages.get(library, {})
        own = version_key(version)
        ordered = sorted(given, key=version_key)
        mine = [one for one in ordered if version_key(one) >= own and version_key(one)[0][:2] == own[0][:2]]
        before = [one for one in ordered if version_key(one) < own]
        return (given[mine[0]], given[before[-1]]) if mine and before else None


def version_key(version: str) -> tuple[tuple[int, ...], int, str]:
    """Orders the versions of a library: 1.9 before 1.10, 2.0rc1 before 2.0."""
    numbers = re.match(r"v?(\d+(?:\.\d+)*)", version)
    release = tuple(int(part) for part in numbers[1].split(".")) if numbers else ()
    while release and release[-1] == 0:
        release = release[:-1]
    rest = version[numbers.end() :] if numbers else version
    return release, 0 if re.match(r"\.?(?:a|b|rc|dev|alpha|beta)", rest) else 1, rest


def read(given: Mapping[str, Path], faults: Faults) -> Sources:
    """Read what was given.

    Args:
        given: `notes`, and any of `dates`, `docs`, `snippets`, `pulls`, `packages`.

    Raises:
        UpkeepError: there are no notes, or a file has a fault that is refused.
    """
    sources = Sources()
    dates = _dates(given.get("dates") or given["notes"] / "dates.yaml", sources, faults)
    seen = Distinct(faults)
    for folder in sorted(path for path in given["notes"].iterdir() if path.is_dir()):
        found: list[forms.Text] = []
        for path in sorted(path for path in folder.iterdir() if forms.is_notes(path.name)):
            sources.files[f"notes/{folder.name}/{path.name}"] = path
            found += forms.read(path, folder.name, faults)
        for one in sorted(found, key=lambda one: version_key(one.version)):
            if seen(f"{folder.name} {one.version}", one.where):
                date = dates.get((folder.name, one.version)) or _date_in(one, faults)
                sources.releases.append(
                    Release(folder.name, one.version, date, READERS[one.suffix](one.text), one.text)
                )
    if not sources.releases:
        raise UpkeepError("no release notes here", where=given["notes"], expected=FORM)
    if "docs" in given:
        _read_docs(given["docs"], sources, faults)
    if "packages" in given:
        _read_packages(given["packages"], sources)
    if "snippets" in given:
        sources.files["snippets"] = given["snippets"]
        for where, snippet in reading.records(given["snippets"], UsageSnippet, faults):
            if reading.usable(snippet.code, where, faults):
                sources.snippets.append(snippet)
    if "pulls" in given:
        sources.files["pulls"] = given["pulls"]
        distinct = Distinct(faults)
        for where, pull in reading.records(given["pulls"], Pull, faults):
            if distinct(f"{pull.library} #{pull.number}", where):
                sources.pulls[pull.library, pull.number] = pull
    return sources


def _read_docs(folder: Path, sources: Sources, faults: Faults) -> None:
    seen = Distinct(faults)
    pages = [path for path in folder.glob("*/*") if path.suffix in (".rst", ".md", ".txt")]
    for path in sorted(pages):
        sources.files[f"docs/{path.parent.name}/{path.name}"] = path
        text = reading.text(path, faults)
        if text is None or not reading.usable(text, str(path), faults):
            continue
        if seen(f"{path.parent.name} {path.stem}", str(path)):
            sources.docs[path.parent.name, path.stem] = text.strip()


def _read_packages(folder: Path, sources: Sources) -> None:
    for path in sorted(folder.glob("*/*")):
        if found := _ARCHIVE.match(path.name):
            sources.files[f"packages/{path.parent.name}/{path.name}"] = path
            sources.packages.setdefault(path.parent.name, {})[found["version"]] = path


def _dates(path: Path, sources: Sources, faults: Faults) -> dict[tuple[str, str], str]:
    if not path.is_file():
        return {}
    sources.files["dates"] = path
    form = "{<library>: {<version>: <date>}}"
    given = load(path, INPUT, plain=True) or {}
    listed = convert(given, dict[str, dict[str, str]], path, expected=form)
    dates = {}
    for library, versions in listed.items():
        for version, text in versions.items():
            if (date := reading.iso_date(text, f"{path}: {library} {version}", faults)) is not None:
                dates[library, version] = date
    return dates


def _date_in(notes: forms.Text, faults: Faults) -> str | None:
    """The date that notes give for themselves: in their heading or list, or near their beginning."""
    if notes.date:
        return reading.iso_date(notes.date, notes.where, faults)
    found = _DATED.search(notes.text[:_HEAD])
    return reading.iso_date(found["date"] or found["titled"], notes.where, faults) if found else None
