"""What a function's source says of its parameters beyond its signature."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Mapping

_SECTION = re.compile(r"\s*(?:other |keyword )?(?:parameters|args|arguments)\s*:?\s*\Z", re.IGNORECASE)
_HEADING = re.compile(r"[A-Z][\w ]*:?\Z")
_FIELD = re.compile(r":(?:param|parameter|keyword|kwarg|key|arg|argument)\s+(?:[^:\n]*?\s)?\*{0,2}(\w+)\s*:")
_ENTRY = re.compile(r"\*{0,2}(?P<names>[A-Za-z_]\w*(?:, ?\*{0,2}\w+)*)(?:\s*\([^)]*\))?\s*(?::(?!:)|\Z)")
_OLDER = re.compile("deprecat|renam", re.IGNORECASE)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def told(node: Function | ast.ClassDef) -> set[str]:
    """The parameters that a documentation string lists, and those that are taken from `**kwargs` by name."""
    found = _documented(ast.get_docstring(node, clean=False) or "")
    if isinstance(node, Function) and node.args.kwarg is not None:
        for call in ast.walk(node):
            match call:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id=of), attr="pop" | "get" | "setdefault"),
                    args=[ast.Constant(value=str(name)), *_],
                ) if of == node.args.kwarg.arg:
                    found.add(name)
    return found


def _documented(text: str) -> set[str]:
    """Parameters as NumPy, Google and Sphinx write them."""
    found = set(_FIELD.findall(text))
    lines = inspect.cleandoc(text).split("\n")
    indent: int | None = None
    inside = False
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        depth = len(line) - len(line.lstrip())
        if _SECTION.match(line):
            inside, indent = True, None
        elif inside and line.strip() and not set(line.strip()) <= {"-"}:
            indent = depth if indent is None else indent
            if re.match(r"\s*-{3,}\s*\Z", below) or (depth < indent and _HEADING.match(line.strip())):
                inside = False
            elif depth == indent and (entry := _ENTRY.match(line.strip())):
                found.update(re.findall(r"\w+", entry["names"]))
    return found


def successors(node: Function, source: str, parameters: Mapping[str, str]) -> dict[str, set[str]]:
    """Each parameter that stands for an older one: a decorator that deprecates or renames names both, of which one is
    no parameter any more; or it is given the other's value where that is said to be deprecated."""
    if not _OLDER.search(source):
        return {}
    found: dict[str, set[str]] = {}
    for mark in node.decorator_list:
        if isinstance(mark, ast.Call) and _OLDER.search(ast.unparse(mark.func)):
            said = _words(mark)
            for name in said & parameters.keys():
                found.setdefault(name, set()).update(said - parameters.keys())
    for branch in ast.walk(node):
        if isinstance(branch, ast.If) and _OLDER.search(ast.unparse(branch)):
            tested = _words(branch.test)
            for one in ast.walk(branch):
                match one:
                    case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in parameters:
                        found.setdefault(name, set()).update(_words(value) & tested - {name})
    return found


def _words(node: ast.AST) -> set[str]:
    """The names in an expression, and its texts."""
    found = set()
    for one in ast.walk(node):
        match one:
            case ast.Name(id=word) | ast.Constant(value=str(word)) | ast.keyword(arg=str(word)):
                found.add(word)
    return found
