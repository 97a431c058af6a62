"""The forms in which a library keeps its notes: a file a release, one file for all releases, or GitHub's list of them.

Keep a Changelog (keepachangelog.com) and the news that towncrier renders are files of the second form: a heading a
release, with its version and mostly its date.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from upkeep.building import reading
from upkeep.building.reading import Faults

from .paths import PACKAGES

_ONE = re.compile(r"(?:(?:release|version)[-_]?)?(?P<version>v?\d[\w.+]*?)(?:-notes)?\.(?:rst|md)\Z")
_ALL = re.compile(
    r"(?:change[-_ ]?logs?|changes|history|news|release[-_ ]?notes|releases|version[-_ ]?history"
    r"|what'?s?[-_ ]?new)\.(?:rst|md)\Z"
)
_RELEASES = "releases.json"
_HEADING = re.compile(
    r"(?:\[?(?:version|release|v\.?)?[ ]*|[A-Za-z][\w.-]*[ ]+(?:version[ ]+)?)"
    r"\[?v?(?P<version>\d+(?:\.\w+)+)\b(?P<rest>.*)",
    re.IGNORECASE,
)
"""A heading that names a release: `[1.2.0] - 2031-05-08`, `lib 1.2.0 (2031-05-08)`, `Version 1.2`."""
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}|\d{1,2} [A-Z][a-z]+ \d{4}|[A-Z][a-z]+ \d{1,2}, \d{4}")
_TARGET = re.compile(r"(?m)^(?:\[[^\]\n]+\]:[ \t]*\S+|\.\.[ \t]+_[^:\n]+:[ \t]*\S+|\.\.[ \t]+\|[^|\n]+\|[ \t].*).*$")
"""What links of the whole file refer to."""
_ATX = re.compile(r"(?P<level>#{1,6})[ \t]+(?P<title>.*?)[ \t#]*\Z")
_BOLD = re.compile(r"\*\*(?P<title>[^*]+)\*\*[ \t]*\Z")
"""A line in bold that stands for a heading."""
_RULE = re.compile(r"([!-/:-@\[-`{-~])\1{2,}[ \t]*\Z")
_FENCE = re.compile(r"[ ]{0,3}(?P<fence>`{3,}|~{3,})")
_TAG = re.compile(r"(?:(?P<of>[A-Za-z][\w.-]*?)[-_/@ ])?v?(?P<version>\d+(?:\.\w+)*(?:[-.+]\w+)*)\Z")


@dataclass(frozen=True)
class Text:
    """One release's notes as they are written."""

    version: str
    text: str
    suffix: str
    """`.rst` or `.md`."""
    date: str | None
    """As the form gives it, in any writing; None where the notes themselves may."""
    where: str


class _Release(msgspec.Struct):
    """A release as GitHub's interface gives it; `body` and `published_at` may be null."""

    tag_name: str
    body: str | None = None
    published_at: str | None = None
    draft: bool = False


def is_notes(name: str) -> bool:
    """Whether a file of this name holds notes."""
    return name == _RELEASES or bool(_ONE.match(name) or _ALL.match(name.lower()))


def read(path: Path, library: str, faults: Faults) -> Iterator[Text]:
    """The releases that a file holds, in its order; what is wrong with it is counted or refused.

    Args:
        library: of which the notes are; of GitHub's releases, those of another package of its repository are not read.
    """
    text = reading.text(path, faults)
    if text is None or not reading.usable(text, str(path), faults):
        return
    if path.name == _RELEASES:
        yield from _listed(text, path, library, faults)
    elif one := _ONE.match(path.name):
        yield Text(one["version"].removeprefix("v"), text, path.suffix, None, str(path))
    else:
        yield from split(text, path.suffix, str(path))


def split(text: str, suffix: str, where: str) -> Iterator[Text]:
    """The releases of one file, each with what all links refer to. What stands before the first is left out."""
    lines = text.splitlines()
    heads = [(at, end, found) for at, end, title in _headings(lines, suffix) if (found := _HEADING.match(title))]
    targets = "\n".join(found[0] for found in _TARGET.finditer(text))
    for n, (_, end, found) in enumerate(heads):
        stop = heads[n + 1][0] if n + 1 < len(heads) else len(lines)
        date = _DATE.search(found["rest"])
        body = "\n".join(lines[end:stop]).strip()
        if body:
            yield Text(found["version"], f"{body}\n\n{targets}\n", suffix, date[0] if date else None, where)


def _headings(lines: list[str], suffix: str) -> Iterator[tuple[int, int, str]]:
    """(first line, line behind, title) of the headings of the level at which the first release stands."""
    found = list(_markdown(lines) if suffix == ".md" else _rst(lines))
    level = next((level for _, _, level, title in found if _HEADING.match(title)), None)
    return ((at, end, title) for at, end, own, title in found if own == level)


def _markdown(lines: list[str]) -> Iterator[tuple[int, int, str, str]]:
    fence = ""
    for at, line in enumerate(lines):
        if mark := _FENCE.match(line):
            if not fence:
                fence = mark["fence"]
            elif mark["fence"].startswith(fence) and line.strip() == mark["fence"]:
                fence = ""
        elif not fence and (heading := _ATX.match(line)):
            yield at, at + 1, heading["level"], heading["title"]
        elif not fence and at and re.fullmatch(r"(?:=+|-+)\s*", line) and re.match(r"\S", lines[at - 1]):
            yield at - 1, at + 1, line[0], lines[at - 1].strip()


def _rst(lines: list[str]) -> Iterator[tuple[int, int, str, str]]:
    for at in range(len(lines)):
        if bold := _BOLD.match(lines[at]):
            yield at, at + 1, "**", bold["title"]
        title = lines[at - 1] if at else ""
        if _RULE.match(lines[at]) and re.match(r"\s*[^\W_]|\s*\[", title) and not _RULE.match(title):
            over = at > 1 and lines[at - 2].rstrip() == lines[at].rstrip()
            if over or len(lines[at].rstrip()) >= len(title.strip()) - 4:
                yield at - 1 - over, at + 1, lines[at][0] + "^" * over, title.strip()


def _listed(text: str, path: Path, library: str, faults: Faults) -> Iterator[Text]:
    try:
        given = list(_records(text))
    except (ValueError, RecursionError) as error:  # msgspec's and json's errors are ValueErrors
        faults("broken_record", str(path), f"no list of releases {{tag_name, body}}: {error}")
        return
    own = {"", "py", "python", "release", "version", library, f"py-{library}", PACKAGES.get(library, library)}
    for number, record in enumerate(given, 1):
        where = f"{path}, release {number}"
        try:
            release = msgspec.convert(record, _Release)
        except msgspec.ValidationError as error:
            faults("broken_record", where, f"no release {{tag_name, body}}: {error}")
            continue
        tag = _TAG.match(release.tag_name)
        if release.draft or (tag and (tag["of"] or "").lower() not in own):
            continue
        if tag is None:
            faults("broken_record", where, "a tag without a version", release.tag_name)
        elif reading.usable(release.body or "", where, faults):
            yield Text(tag["version"], release.body or "", ".md", release.published_at, where)


def _records(text: str) -> Iterator[object]:
    """The releases of a list, or of its pages: a list of lists, or one list behind the other.

    GitHub gives a hundred at most at once; its command line client writes pages in either way.

    Raises:
        ValueError: it is something else.
    """
    at = 0
    while at < len(text.rstrip()):
        start = at + len(text[at:]) - len(text[at:].lstrip())
        at = json.JSONDecoder().raw_decode(text, start)[1]
        page = msgspec.json.decode(text[start:at])
        if not isinstance(page, list):
            raise ValueError(f"a JSON {type(page).__name__}, not a list")
        for one in page:
            yield from one if isinstance(one, list) else [one]
