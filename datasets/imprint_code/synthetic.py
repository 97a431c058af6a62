"""A small synthetic world of invented libraries: notes of their releases in three styles, documentation, usage.

All families are built from it by the same code as from real notes; a program replies in the assistant's place
(`program`).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import msgspec

from upkeep.building.names import Names

from .features import CLASS, FUNCTION, METHOD, PARAMETER
from .sources import Pull, UsageSnippet

VERBS = [
    "sorts",
    "counts",
    "joins",
    "splits",
    "copies",
    "rounds",
    "scales",
    "merges",
    "checks",
    "prints",
    "turns",
    "shows",
]
OBJECTS = [
    "the rows of a table",
    "the cells of a grid",
    "the pages of a book",
    "the points of a line",
    "the words of a text",
    "the keys of a map",
    "the parts of a name",
    "the days of a year",
]
MANNERS = [
    "by size",
    "by weight",
    "by age",
    "in pairs",
    "one by one",
    "from the end",
]
SETTINGS = [
    "the number of steps",
    "the size of a step",
    "the first row",
    "the last row",
    "the order of the rows",
    "the color of the output",
    "the name of the output",
    "the limit of the sum",
    "the speed of the search",
    "the depth of the search",
    "the start of the count",
    "the end of the count",
]
VALUES = ('["red", "green", "blue"]', "[3, 1, 2]", '["one", "two"]', "[10, 20, 30, 40]")


@dataclass(frozen=True)
class Sizes:
    """How much there is of what."""

    libraries: int = 3
    releases: int = 2
    """Of each library."""
    functions: int = 4
    """New ones a release; a class, a method of it and two parameters come with them."""


@dataclass(frozen=True)
class Fact:
    """Something in a library."""

    library: str
    version: str
    """That added it; empty for what was there before the first release."""
    path: str
    kind: str
    does: str

    @property
    def leaf(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def owner(self) -> str:
        return self.path.rpartition(".")[0]


@dataclass
class World:
    """Everything that is written about the libraries, and the facts behind it."""

    files: dict[str, str] = field(default_factory=dict)
    """Path below the notes' folder -> text."""
    docs: dict[str, str] = field(default_factory=dict)
    """Path below the documentation's folder -> text."""
    pulls: list[Pull] = field(default_factory=list)
    snippets: list[UsageSnippet] = field(default_factory=list)
    new: list[Fact] = field(default_factory=list)
    """What the releases add."""
    old: list[Fact] = field(default_factory=list)
    """What was there before: a model may know it."""

    def write(self, folder: Path) -> dict[str, Path]:
        """Put everything into files, as a user would give them. Returns the builder's inputs."""
        for below, texts in (("notes", self.files), ("docs", self.docs)):
            for name, text in texts.items():
                path = folder / below / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
        encode = msgspec.json.Encoder().encode_lines
        (folder / "snippets.jsonl").write_bytes(encode(self.snippets))
        (folder / "pulls.jsonl").write_bytes(encode(self.pulls))
        given = {name: folder / name for name in ("notes", "docs")}
        return given | {name: folder / f"{name}.jsonl" for name in ("snippets", "pulls")}


def make(rng: Random, names: Names, sizes: Sizes) -> World:
    """Invent libraries and write about them.

    Args:
        rng: decides everything.
        names: of libraries, modules and identifiers.
    """
    world = World()
    deeds = [" ".join(words) for words in itertools.product(VERBS, OBJECTS, MANNERS)]
    rng.shuffle(deeds)
    settings = itertools.cycle(rng.sample(SETTINGS, len(SETTINGS)))
    told = iter(deeds)
    number = itertools.count(101)
    for place in range(sizes.libraries):
        library = names.word()
        modules = [f"{library}.{names.word()}" for _ in range(2)]
        before = [Fact(library, "", f"{rng.choice(modules)}.{names.word()}", FUNCTION, next(told)) for _ in range(6)]
        world.old += before
        owners = iter(rng.sample(before, len(before)) * sizes.releases)
        for turn in range(sizes.releases):
            version = f"{2 + turn}.{place}"
            date = f"203{1 + turn}-0{1 + 3 * (place % 3)}-{rng.randrange(10, 29)}"
            new = [
                Fact(library, version, f"{rng.choice(modules)}.{names.word()}", FUNCTION, next(told))
                for _ in range(sizes.functions)
            ]
            box = Fact(library, version, f"{rng.choice(modules)}.{names.thing()}", CLASS, next(told))
            new += [box, Fact(library, version, f"{box.path}.{names.word()}", METHOD, next(told))]
            for _ in range(2):
                path = f"{next(owners).path}.{names.word()}"
                new.append(Fact(library, version, path, PARAMETER, f"sets {next(settings)}"))
            rng.shuffle(new)
            world.new += new
            pulls = {fact.path: next(number) for fact in new}
            suffix, text = _STYLES[place % len(_STYLES)](library, version, date, new, before, pulls)
            world.files[f"{library}/{version}-notes.{suffix}"] = text
            for fact in new:
                if fact.kind in (FUNCTION, CLASS) and rng.random() < 0.7:
                    world.docs[f"{library}/{fact.path}.md"] = f"`{fact.leaf}(rows)` gives one value.\n"
                elif rng.random() < 0.5:
                    world.pulls.append(Pull(library, pulls[fact.path], f"Add {fact.leaf}"))
                world.snippets += _snippets(fact, rng)
    return world


# ---------------------------------------------------------------- release notes


def _line(text: str, rule: str) -> str:
    return f"{text}\n{rule * len(text)}\n"


def _bullets(
    library: str, version: str, date: str, new: list[Fact], before: list[Fact], pulls: dict[str, int]
) -> tuple[str, str]:
    """reStructuredText, a bullet for each under the name of its module."""
    parts = [_line(f"{library} {version} Release Notes", "="), f"Released on {date}.\n", _line("New features", "=")]
    groups = sorted({".".join(fact.path.split(".")[:2]) for fact in new})
    for module in groups:
        parts.append(_line(f"`{module}`", "-"))
        lines = [f"- {_announced(fact, '`', '``')} (:pr:`{pulls[fact.path]}`)" for fact in _of(new, module)]
        lines += [f"- `{fact.path}` is now faster." for fact in _of(before, module)]
        parts.append("\n".join(lines) + "\n")
    parts.append(f"- Added the ``{library.upper()}_DEBUG`` environment variable.\n")
    parts += [_line("Deprecated features", "="), f"- `{before[0].path}` is deprecated.\n"]
    return "rst", "\n".join(parts)


def _of(facts: list[Fact], module: str) -> list[Fact]:
    return [fact for fact in facts if fact.path.startswith(f"{module}.")]


def _announced(fact: Fact, name: str, literal: str) -> str:
    """A sentence that announces a fact; the marks are those around full names and around bare ones."""
    if fact.kind == PARAMETER:
        return f"Added parameter {literal}{fact.leaf}{literal} to {name}{fact.owner}{name}, which {fact.does}."
    return f"The new {fact.kind} {name}{fact.path}{name} {fact.does}."


def _markdown(
    library: str, version: str, date: str, new: list[Fact], before: list[Fact], pulls: dict[str, int]
) -> tuple[str, str]:
    """Markdown in the manner of a release on a forge."""
    lines = [f"# {library} {version} ({date})", "", "## Performance improvements", ""]
    lines += [f"- Make `{fact.path}` faster" for fact in before[:2]]
    lines += ["", "## Enhancements", ""]
    for fact in new:
        if fact.kind == PARAMETER:
            told = f"Add `{fact.leaf}` parameter to `{fact.owner}`, which {fact.does}"
        else:
            told = f"Add {fact.kind} `{fact.path}`, which {fact.does}"
        lines.append(f"- {told} (#{pulls[fact.path]})")
    lines += [f"- Add build flag `-D{library}_debug`", "", "## Bug fixes", ""]
    lines += [f"- Fix a bug in `{fact.path}`" for fact in before[2:4]]
    return "md", "\n".join(lines) + "\n"


def _sections(
    library: str, version: str, date: str, new: list[Fact], before: list[Fact], pulls: dict[str, int]
) -> tuple[str, str]:
    """reStructuredText, a section for each with a paragraph and the pull request below it."""
    parts = [_line(f"{library} {version} Release Notes", "="), f":Date: {date}\n", _line("New Features", "=")]
    for fact in new:
        if fact.kind == PARAMETER:
            parts.append(_line(f"A new ``{fact.leaf}`` argument", "-"))
            parts.append(f"The ``{fact.leaf}`` argument was added to `~{fact.owner}`. It {fact.does}.\n")
        else:
            parts.append(_line(f"A new ``{fact.leaf}`` {fact.kind}", "-"))
            parts.append(f"`~{fact.path}` was added. It {fact.does}.\n")
        parts.append(f"(`gh-{pulls[fact.path]} <https://example.org/pull/{pulls[fact.path]}>`__)\n")
    parts.append(_line("Compatibility notes", "="))
    parts += [f"- `{fact.path}` now returns one value.\n" for fact in before[:2]]
    return "rst", "\n".join(parts)


_STYLES = (_bullets, _markdown, _sections)


# ---------------------------------------------------------------- code


def _snippets(fact: Fact, rng: Random) -> list[UsageSnippet]:
    """Code that uses a fact, and now and then some that does not."""
    values = rng.choice(VALUES)
    module, name = fact.owner, fact.leaf
    if fact.kind == PARAMETER:
        where, call = fact.owner.rpartition(".")[::2][0], fact.owner.rpartition(".")[2]
        code = f"import {where}\n\nrows = {values}\nresult = {where}.{call}(rows, {name}=2)\nprint(result)"
    elif fact.kind == METHOD:
        where, box = fact.owner.rpartition(".")[0], fact.owner.rpartition(".")[2]
        code = f"from {where} import {box}\n\nbox = {box}({values})\nresult = box.{name}()\nprint(result)"
    elif rng.random() < 0.5:
        code = f"import {module} as lib\n\nrows = {values}\nresult = lib.{name}(rows)\nprint(result)"
    else:
        code = f"from {module} import {name}\n\nrows = {values}\nresult = {name}(rows)\nprint(result)"
    found = [UsageSnippet(fact.library, fact.path, code, f"https://example.org/{fact.library}-user/{name}.py")]
    if rng.random() < 0.15:
        found.append(UsageSnippet(fact.library, fact.path, f"def {name}(rows):\n    return rows"))
    if rng.random() < 0.1:
        url = f"https://example.org/user/site-packages/{name}.py"
        found.append(UsageSnippet(fact.library, fact.path, code, url))
    return found
