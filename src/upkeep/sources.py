"""Hashes of the repository's source files and of a user's own files, for identities.

A catalog is a snapshot of the repository: each is worked out once for it.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from upkeep import weights
from upkeep.catalog import Catalog
from upkeep.files import digest, hash_file

MAX_SOURCE_BYTES = 256 * 2**20
"""Of a file that is code, requirements or beside them."""
_IMPORTED = re.compile(r"(?<=ImportFrom\(')upkeep[\w.]*(?=')")
"""The module of the suite that is imported from, in a syntax tree's dump."""


def tree(catalog: Catalog, *places: str, without: Collection[str] = ()) -> str:
    """Hash of source files and folders, by path and content; what Python and editors leave behind is left out."""
    return catalog.once(_tree, catalog.root, places, tuple(sorted(without)))


def _tree(root: Path, places: Sequence[str], without: Collection[str]) -> str:
    return digest([(name, hash_file(root / name, MAX_SOURCE_BYTES)) for name in _names(root, places, without)])


def wordless(catalog: Catalog, *places: str) -> str:
    """Hash of Python files by what they say: comments, layout and docstrings are no part of it, nor what the modules
    among them are called. An import of one of these counts by what that one says, so another one in its place shows."""
    return catalog.once(_wordless, catalog.root, places)


def _wordless(root: Path, places: Sequence[str]) -> str:
    names = [name for name in _names(root, places) if name.endswith(".py")]
    trees = {name: _parsed(root / name, _is_word) for name in names}
    said = {_module(name): digest(_IMPORTED.sub("", text)) for name, text in trees.items()}
    # Python itself looks for files with names such as `__main__.py`.
    parts = sorted(
        (name if "__" in name else "", _IMPORTED.sub(lambda found: said.get(found[0], found[0]), text))
        for name, text in trees.items()
    )
    return digest(parts)


def meaning(catalog: Catalog, names: Sequence[str]) -> str:
    """Hash of what modules of the suite do: comments, layout and docstrings are no part of it, nor what the suite calls
    its modules. As in `tree`, there may be none."""
    return catalog.once(_meaning, catalog.root, tuple(names))


def _meaning(root: Path, names: Sequence[str]) -> str:
    paths = [path for name in names if (path := root / "src" / "upkeep" / name).is_file()]
    return digest(sorted(_parsed(path, _is_word_or_import) for path in paths))


def listing(catalog: Catalog, place: str) -> str:
    """Hash of names, sizes and times of the files at a user's own place; of the place alone where nothing is there.

    Contents are hashed when they are taken in: they may be hundreds of gigabytes, and a plan is made in no time.
    """
    return catalog.once(_listing, catalog.root, place)


def _listing(root: Path, place: str) -> str:
    start = root / Path(place).expanduser()
    found = [(p, p.stat()) for p in (weights.files_of(start) if start.is_dir() else [start]) if p.is_file()]
    return digest([place, [(p.relative_to(start).as_posix(), s.st_size, s.st_mtime_ns) for p, s in found]])


def _names(root: Path, places: Sequence[str], without: Collection[str] = ()) -> Iterator[str]:
    for place in places:
        start = root / place
        paths = sorted(p for p in start.rglob("*") if not p.is_dir()) if start.is_dir() else [start]
        for path in paths if os.path.lexists(start) else ():
            parts = path.relative_to(root).parts
            hidden = any(part.startswith(".") or part.endswith("~") or part == "__pycache__" for part in parts)
            if not hidden and path.suffix != ".pyc" and path.name not in without:
                yield "/".join(parts)


def _module(name: str) -> str:
    """What a source file of the suite is imported as."""
    return name.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _parsed(path: Path, left_out: Callable[[ast.stmt], bool]) -> str:
    """A module's syntax tree, which has no comments and no layout, without some of its statements."""
    return _tree_of(path.read_text("utf-8"), left_out)


@lru_cache(maxsize=1024)  # other catalogs of one process have most files with the same words
def _tree_of(text: str, left_out: Callable[[ast.stmt], bool]) -> str:
    parsed = ast.parse(text)
    for node in ast.walk(parsed):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [one for one in body if not left_out(one)]  # type: ignore[attr-defined]
    return ast.dump(parsed, annotate_fields=False)


def _is_word(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_word_or_import(statement: ast.stmt) -> bool:
    imports = isinstance(statement, ast.ImportFrom) and (statement.module or "").partition(".")[0] == "upkeep"
    return imports or _is_word(statement)
