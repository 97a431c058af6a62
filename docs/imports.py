"""Draws what the packages of `src/upkeep` import of each other; `python docs/imports.py` writes it into the page.

A package stands for all its modules; the modules beside the packages are `records` (what the rest is written in terms
of) or `commands` (what starts the rest). An arrow that follows from two others is left out.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"
COMMANDS = frozenset({"__main__", "cli", "new", "schemas", "workflow"})
PLACE = re.compile(r"(?<=<!-- drawn by docs/imports.py -->\n).*?(?=<!-- end -->)", re.S)


@functools.cache
def modules() -> dict[str, Path]:
    """Every module of the suite, by its dotted name."""
    source = ROOT / "src"
    paths = [path for path in sorted((source / "upkeep").rglob("*.py")) if "template" not in path.parts]
    return {".".join(p.relative_to(source).with_suffix("").parts).removesuffix(".__init__"): p for p in paths}


def _run(node: ast.AST) -> Iterator[ast.AST]:
    """All that is run of a module, functions included; not what only a type checker reads."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield child
            yield from _run(child)


@functools.cache
def imports() -> dict[str, set[str]]:
    """By module, those of the suite that it imports, at its top or within a function."""
    known = modules()
    found: dict[str, set[str]] = {}
    for name, path in known.items():
        nodes = [node for node in _run(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.ImportFrom)]
        wanted = [(node.module or "", alias.name) for node in nodes for alias in node.names]
        both = {f"{module}.{one}" if f"{module}.{one}" in known else module for module, one in wanted}
        found[name] = (both & known.keys()) - {name}
    return found


def part(module: str) -> str:
    """The package of a module."""
    _, _, rest = module.partition(".")
    if (ROOT / "src" / "upkeep" / rest.partition(".")[0]).is_dir() and rest:
        return rest.partition(".")[0]
    return "commands" if rest in COMMANDS else "records"


def arrows() -> dict[str, set[str]]:
    """By package, those that it imports.

    Raises:
        graphlib.CycleError: some import each other in a circle.
    """
    found: dict[str, set[str]] = {}
    for module, wanted in imports().items():
        if module != "upkeep":
            found.setdefault(part(module), set()).update(part(one) for one in wanted if one != "upkeep")
    found = {name: wanted - {name} for name, wanted in found.items()}
    TopologicalSorter(found).prepare()
    return found


def reached(graph: dict[str, set[str]], start: str) -> set[str]:
    """Everything that can be come to."""
    return graph[start].union(*(reached(graph, one) for one in graph[start]))


def drawing() -> str:
    graph = arrows()
    lines = ["```mermaid", "flowchart TD"]
    for name in sorted(graph):
        beyond = set().union(*(reached(graph, one) for one in graph[name]))
        lines += [f"    {name} --> {one}" for one in sorted(graph[name] - beyond)]
    return "\n".join([*lines, "```", ""])


if __name__ == "__main__":
    PAGE.write_text(PLACE.sub(lambda _: drawing(), PAGE.read_text("utf-8")), "utf-8")
