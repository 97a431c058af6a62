"""YAML that users write: cards, papers' tables and claims, configuration, inputs of builders.

Whatever such a file holds, it is read in little time and memory, or refused with file, line and remedy. What a few
lines can make of each other (depth, aliases of aliases) is counted from the parser's events, before anything is built.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec
import yaml

from upkeep.errors import UpkeepError
from upkeep.files import kind_of_file, refusal
from upkeep.text import printable, short

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a file may take."""

    bytes: int
    nodes: int
    """Values and keys, with what aliases stand for."""


CARD = Limits(2 * 2**20, 50_000)
INPUT = Limits(32 * 2**20, 2_000_000)
"""Of what a builder reads."""
MAX_DEPTH = 50
MAX_DIRECTIVES = 10
"""The parser compares each directive with all before it."""
MAX_NUMBER = 100
"""Characters of a number or a date: the time that reading one takes grows with their square."""

_PREFIX = "tag:yaml.org,2002:"
_TEXT, _MERGE = f"{_PREFIX}str", f"{_PREFIX}merge"
_KINDS = {
    _TEXT: "text",
    f"{_PREFIX}int": "an integer of at most 64 bits",
    f"{_PREFIX}float": "a finite number",
    f"{_PREFIX}bool": "true or false",
    f"{_PREFIX}null": "null",
    f"{_PREFIX}timestamp": "a date of the calendar",
    f"{_PREFIX}seq": "a list",
    f"{_PREFIX}map": "a mapping",
}
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x84\x86-\x9f]")
_TYPED: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PLAIN: type[Any] = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def read_yaml(
    path: Path,
    kind: type[T],
    *,
    expected: str | None = None,
    limits: Limits = CARD,
    strict: bool = True,
) -> T:
    """Decode a YAML file into a record, or another type that msgspec knows.

    Args:
        expected: the form of the file, for messages; by default the record's.
        strict: whether `"1"` is no number.

    Raises:
        UpkeepError: the file is missing, is not YAML or goes beyond `limits`, or a field is missing, given twice,
            unknown or of a wrong type.
    """
    name = getattr(kind, "__name__", str(kind))
    value = load(path, limits, expected=expected or f"a {name} in YAML")
    return convert(value, kind, path, expected=expected or f"fields as in schema/ ({name})", strict=strict)


def convert(value: Any, kind: type[T], where: Path | str, *, expected: str, strict: bool = True) -> T:
    """What `load` gave, as a record.

    Raises:
        UpkeepError: a field is missing, unknown or of a wrong type.
    """
    try:
        return msgspec.convert(value, kind, strict=strict, builtin_types=(datetime, date))
    except msgspec.ValidationError as error:
        problem = short(printable(str(error)))
        raise UpkeepError(problem, where=where, expected=expected, remedy=mended(str(error), kind)) from None


_WRITTEN = {
    "array": "a list, as [one, another]",
    "bool": "true or false, without quotes",
    "float": "a number, without quotes",
    "int": "a whole number, without quotes",
    "object": "a mapping, as {name: value}",
    "str": "text, in quotes where it looks like something else",
}
"""How what msgspec expects is written."""


def mended(problem: str, kind: type[Any]) -> str:
    """What to do about what msgspec has found."""
    if lacking := re.search(r"missing required field `(.*?)`", problem):
        return f"add `{lacking[1]}`"
    if value := re.search(r"Invalid enum value '(.*?)'", problem):
        field = re.search(r"(\w+)[^\w`]*`$", problem)
        words = _words(msgspec.inspect.type_info(kind), field[1] if field else "")
        if close := difflib.get_close_matches(value[1], words, n=3):
            return f"did you mean {' or '.join(close)}?"
        return f"write one of {', '.join(sorted(words))}"
    if name := re.search(r"unknown field `(.*?)`", problem):
        known = _fields(msgspec.inspect.type_info(kind))
        if close := difflib.get_close_matches(name[1], known, n=3):
            return f"did you mean {' or '.join(f'`{one}`' for one in close)}? Or remove it"
        return f"remove it; the fields here and below are {', '.join(sorted(known))}"
    if re.search(r"Expected `str`, got `(date|datetime|int|float|bool)", problem):
        return "put it in quotes"
    if (wanted := re.match(r"Expected `(\w+)[^`]*`, got", problem)) and wanted[1] in _WRITTEN:
        return f"write {_WRITTEN[wanted[1]]}"
    return "mend this field"


def _fields(kind: Any) -> set[str]:
    """The names of a record's fields, and of those within it."""
    structs = (one for one in _types(kind) if isinstance(one, msgspec.inspect.StructType))
    return {field.encode_name for one in structs for field in one.fields}


def _words(kind: Any, name: str) -> set[str]:
    """The words that a field is chosen from, of a record or of those within it; where none has it, those of all."""
    structs = [one for one in _types(kind) if isinstance(one, msgspec.inspect.StructType)]
    own = [
        inner for one in structs for field in one.fields if field.encode_name == name for inner in _types(field.type)
    ]
    literals = [one for one in own if isinstance(one, msgspec.inspect.LiteralType)]
    literals = literals or [one for one in _types(kind) if isinstance(one, msgspec.inspect.LiteralType)]
    return {word for one in literals for word in one.values if isinstance(word, str)}


def _types(kind: Any) -> Iterator[Any]:
    """A type and all within it, each record once."""
    waiting, known = [kind], set()
    while waiting:
        one = waiting.pop()
        if isinstance(one, msgspec.inspect.StructType):
            if one.cls in known:
                continue
            known.add(one.cls)
            waiting += [field.type for field in one.fields]
        waiting += [inner for name in ("types", "item_types") for inner in getattr(one, name, ())]
        waiting += [getattr(one, name) for name in ("item_type", "key_type", "value_type") if hasattr(one, name)]
        yield one


def load(path: Path, limits: Limits = CARD, *, plain: bool = False, expected: str = "a YAML file") -> Any:
    """A YAML file as texts, numbers, dates, lists and mappings from texts; None where it is empty.

    Args:
        plain: leave every number, date and word as the text that it is written as.
        expected: the form of the file, for messages.

    Raises:
        UpkeepError: it is missing or no regular file, is not YAML, or goes beyond `limits`.
    """
    text = _text(path, limits, expected)
    try:
        _measure(path, text, limits)
        return _build(path, text, plain)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        _refuse(path, line, f"not readable as YAML: {short(printable(problem))}", expected="YAML 1.1")
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1 if isinstance(error.position, int) else 1
        _refuse(path, line, f"not readable as YAML: {error.reason}", expected="YAML 1.1")


def _refuse(path: Path, line: int, problem: str, **told: Any) -> NoReturn:
    raise UpkeepError(problem, where=f"{path}:{line}", **{"remedy": "mend this line", **told})


# ---------------------------------------------------------------- bytes


def _text(path: Path, limits: Limits, expected: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe is not waited for
    except FileNotFoundError:
        raise UpkeepError(
            "file not found", where=path, expected=expected, remedy="put it back, or name another file"
        ) from None
    except OSError as error:
        raise refusal(error, path) or _unreadable(path, expected, error.strerror) from None
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise _unreadable(path, expected, kind_of_file(mode))
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(limits.bytes + 1)
    finally:
        os.close(descriptor)
    if len(content) > limits.bytes:
        raise UpkeepError(
            "file too large",
            where=path,
            expected=f"at most {limits.bytes:,} bytes",
            found="more",
            remedy="keep what belongs there alone",
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        _refuse(path, line, "not UTF-8", expected="UTF-8", found=repr(content[error.start : error.start + 8])[1:])
    if found := _CONTROL.search(text):
        _refuse_control(path, text.count("\n", 0, found.start()) + 1, found[0])
    if len(directives := list(re.finditer(r"^%", text, re.MULTILINE))) > MAX_DIRECTIVES:
        line = text.count("\n", 0, directives[MAX_DIRECTIVES].start()) + 1
        _refuse(path, line, "too many directives", expected=f"at most {MAX_DIRECTIVES} lines that begin with %")
    return text


def _unreadable(path: Path, expected: str, found: str | None) -> UpkeepError:
    return UpkeepError("cannot be read", where=path, expected=expected, found=found, remedy="put the file there")


def _shown(text: str) -> str:
    """What the file says, for a message."""
    return printable(text if len(text) <= 80 else f"{text[:79]}…")


def _refuse_control(path: Path, line: int, found: str) -> NoReturn:
    _refuse(path, line, "a control character", expected="text that can be printed", found=ascii(found))


# ---------------------------------------------------------------- size


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end has not come yet."""

    anchor: str | None
    before: int
    """Nodes before it."""
    height: int = 1
    """Levels that it has so far, itself included."""


def _measure(path: Path, text: str, limits: Limits) -> None:
    """Refuse what is too deep or too much once aliases are followed, and what is no single document."""
    within: list[_Open] = []
    known: dict[str, tuple[int, int] | None] = {}  # anchor -> nodes and levels; None while it is open
    nodes = documents = 0
    event: Any
    for event in yaml.parse(text, Loader=_TYPED):
        line, levels = event.start_mark.line + 1, 0
        anchor: Any = getattr(event, "anchor", None)
        match event:
            case yaml.DocumentStartEvent():
                documents += 1
                if documents > 1:
                    _refuse(path, line, "a second document", expected="one document a file", remedy="remove its `---`")
            case yaml.CollectionStartEvent():
                within.append(_Open(anchor, nodes))
                nodes += 1
                if anchor is not None:
                    known[anchor] = None
            case yaml.CollectionEndEvent():
                done = within.pop()
                if within:
                    within[-1].height = max(within[-1].height, done.height + 1)
                if done.anchor is not None:
                    known[done.anchor] = nodes - done.before, done.height
            case yaml.ScalarEvent():
                nodes += 1
                if anchor is not None:
                    known[anchor] = 1, 0
            case yaml.AliasEvent():
                if (meant := known.get(anchor, (0, 0))) is None:
                    _refuse(
                        path, line, f"the alias *{_shown(anchor)} is within what it stands for",
                        expected="an alias of something that ends before it", remedy="write out what is meant",
                    )  # fmt: skip
                nodes, levels = nodes + meant[0], meant[1]
                if within:
                    within[-1].height = max(within[-1].height, levels + 1)
        if len(within) + levels > MAX_DEPTH:
            _refuse(path, line, "nested too deep", expected=f"at most {MAX_DEPTH} levels", found="more")
        if nodes > limits.nodes:
            _refuse(
                path, line, "too much in one file",
                expected=f"at most {limits.nodes:,} values and keys, with what aliases stand for", found="more",
            )  # fmt: skip


# ---------------------------------------------------------------- values


def _build(path: Path, text: str, plain: bool) -> Any:
    loader = (_PLAIN if plain else _TYPED)(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return None
        for node in _nodes(root):
            if node.tag not in _KINDS:
                _refuse(
                    path, node.start_mark.line + 1, f"{_shown(node.tag)!r} cannot be read",
                    expected="text, numbers, dates, lists and mappings", remedy="remove the tag, or quote the text",
                )  # fmt: skip
            if isinstance(node, yaml.MappingNode):
                _check_keys(path, node)
            elif isinstance(node, yaml.ScalarNode):
                _check_scalar(path, node, loader)
        return loader.construct_document(root)
    finally:
        loader.dispose()


def _nodes(root: yaml.Node) -> Iterator[yaml.Node]:
    """Every node once, but for the sign of a merge (`<<`)."""
    waiting, known = [root], {id(root)}
    while waiting:
        node = waiting.pop()
        yield node
        inner: list[yaml.Node] = []
        if isinstance(node, yaml.SequenceNode):
            inner = node.value
        elif isinstance(node, yaml.MappingNode):
            inner = [one for key, value in node.value for one in (key, value) if one is value or key.tag != _MERGE]
        fresh = [n for n in inner if id(n) not in known]  # an alias leads to a node that is known
        known.update(map(id, fresh))
        waiting += fresh


def _check_keys(path: Path, node: yaml.MappingNode) -> None:
    """YAML forbids a key twice in one mapping; the parser would silently take the last one."""
    lines: dict[str, int] = {}
    for key, _ in node.value:
        line = key.start_mark.line + 1
        if key.tag == _MERGE:
            continue
        if not isinstance(key, yaml.ScalarNode) or key.tag != _TEXT:
            found = _shown(key.value) if isinstance(key, yaml.ScalarNode) else _KINDS.get(key.tag)
            _refuse(path, line, "a key that is no text", expected="text", found=found, remedy="put it in quotes")
        if key.value in lines:
            raise UpkeepError(
                f"the key `{_shown(key.value)}` is given twice",
                where=f"{path}:{line}",
                expected="each key once in a mapping",
                found=f"lines {lines[key.value]} and {line}",
                remedy="keep one of them",
            )
        lines[key.value] = line


def _check_scalar(path: Path, node: yaml.ScalarNode, loader: Any) -> None:
    """Refuse a text with control characters, and what looks like a number, a date or a word of YAML's and is none."""
    line = node.start_mark.line + 1
    if found := _CONTROL.search(node.value):
        _refuse_control(path, line, found[0])
    if node.tag == _TEXT:
        return
    value = None
    if fits := len(node.value) <= MAX_NUMBER:
        try:
            value = loader.construct_object(node)
        except (yaml.YAMLError, ValueError, ArithmeticError, LookupError, AttributeError):
            fits = False
    if isinstance(value, int):
        fits = -(2**63) <= value < 2**63
    elif isinstance(value, float):
        fits = math.isfinite(value)
    if not fits:
        _refuse(
            path, line, "not what it looks like", expected=_KINDS[node.tag],
            found=_shown(node.value), remedy="mend it, or put it in quotes if text is meant",
        )  # fmt: skip
