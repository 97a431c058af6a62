"""What a module defines: its callables and what it imports from others, read from the source. Nothing is run."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from . import arguments
from .features import CLASS, DISTRIBUTION, FUNCTION, METHOD, Kind

_KEEPS = frozenset({"staticmethod", "classmethod", "abstractmethod", "overload", "final", "override", "cache"})
"""Decorators that leave a signature as it is."""
_VALUES = re.compile(r"property|^(?:setter|deleter|getter)\Z", re.IGNORECASE)
"""Decorators of what is no method but a value."""
_FIELDS = re.compile(r"dataclass|attr|define|frozen|NamedTuple|TypedDict|Model\Z|Struct|Schema\Z")
"""Decorators and bases by which annotated names of a class are parameters of its constructor."""
_HEAD = re.compile(
    r"(?m)^(?P<indent>[ \t]*)(?:(?:cpdef|def)[ \t]+(?:[\w\[\], .*&]*?[ \t*])?(?P<function>\w+)[ \t]*\("
    r"|(?:cdef[ \t]+)?class[ \t]+(?P<class>\w+))"
)
"""What Cython defines for Python."""


@dataclass
class Definition:
    """A callable, or a name that stands for another."""

    kind: Kind
    home: str
    """Where it is defined: module and name, private ones too."""
    parameters: dict[str, str] = field(default_factory=dict)
    """Name -> default as it is written, empty where there is none; in their order."""
    bases: list[str] = field(default_factory=list)
    members: dict[str, Definition | Reference] = field(default_factory=dict)
    """Of a class."""
    source: str = ""
    """With its decorators; empty in Cython."""
    successors: dict[str, set[str]] = field(default_factory=dict)
    """Parameter -> names of older ones that it stands for."""
    marks: tuple[str, ...] = ()
    """Decorators that may make it something else."""


@dataclass(frozen=True)
class Reference:
    """A name that stands for what another module defines, or the module itself (`name` is empty)."""

    module: str
    name: str


@dataclass
class Module:
    name: str
    is_package: bool
    names: dict[str, Definition | Reference] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    """Modules of which everything is imported."""
    exported: set[str] | None = None
    """`__all__`, where it is written out."""
    lines: list[str] = field(default_factory=list)
    """Of the file that is read."""

    def relative(self, level: int, module: str | None) -> str:
        parts = self.name.split(".") if level else []
        parts = parts[: len(parts) - level + self.is_package] if level else parts
        return ".".join([*parts, *([module] if module else [])])


def read(module: Module, source: str, in_python: bool) -> None:
    """Add what a source file says to its module; a stub may follow the module itself.

    Args:
        in_python: else it is Cython, of which only the heads of definitions are read.

    Raises:
        SyntaxError, ValueError, RecursionError: the source cannot be read.
    """
    if in_python:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module.lines = source.split("\n")
            _body(module, ast.parse(source).body)
            module.lines = []
    else:
        _cython(module, source)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements with those below conditions."""
    for statement in body:
        if isinstance(statement, ast.If | ast.Try | ast.With):
            yield from _statements(statement.body)
            yield from _statements(getattr(statement, "orelse", []))
            for handler in getattr(statement, "handlers", []):
                yield from _statements(handler.body)
        else:
            yield statement


def _body(module: Module, body: list[ast.stmt]) -> None:
    for statement in _statements(body):
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            _add(module.names, statement.name, _function(statement, module.name, FUNCTION, module.lines))
        elif isinstance(statement, ast.ClassDef):
            _add(module.names, statement.name, _class(statement, module.name, module.lines))
        elif isinstance(statement, ast.ImportFrom):
            source = module.relative(statement.level, statement.module)
            for one in statement.names:
                if one.name == "*":
                    module.stars.append(source)
                else:
                    module.names.setdefault(one.asname or one.name, Reference(source, one.name))
        elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
            _assigned(module, statement)


def _assigned(module: Module, statement: ast.Assign | ast.AnnAssign | ast.AugAssign) -> None:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    value = statement.value
    for target in targets:
        if not isinstance(target, ast.Name) or value is None:
            continue
        if target.id == "__all__":
            listed = {one.value for one in ast.walk(value) if isinstance(one, ast.Constant) and type(one.value) is str}
            if isinstance(value, ast.List | ast.Tuple | ast.BinOp):
                module.exported = (module.exported or set()) | listed
        elif isinstance(value, ast.Name):
            module.names.setdefault(target.id, Reference(module.name, value.id))
        elif isinstance(value, ast.Call) and not target.id.isupper():
            maker = _last(value.func)
            kind: Kind = DISTRIBUTION if maker.endswith("_gen") else CLASS if maker == "namedtuple" else FUNCTION
            if kind == FUNCTION and not re.search(r"partial|ufunc|vectorize|deprecat|wrap|decorat|factory|make", maker):
                continue  # a value, for all that the source says
            _add(module.names, target.id, Definition(kind, f"{module.name}.{target.id}"))


def _add(names: dict[str, Definition | Reference], name: str, new: Definition) -> None:
    """Take a definition; one that is overloaded or defined twice has the parameters of all."""
    old = names.get(name)
    if isinstance(old, Definition):
        old.parameters |= new.parameters
        old.bases += new.bases
        old.successors |= new.successors
        old.source = old.source or new.source
        for one, member in new.members.items():
            _add(old.members, one, member) if isinstance(member, Definition) else old.members.setdefault(one, member)
    else:
        names[name] = new


def _last(node: ast.expr | None) -> str:
    """The last name of `a.b(c)`, `a.b[c]` or `a.b`."""
    while isinstance(node, ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _function(
    node: ast.FunctionDef | ast.AsyncFunctionDef, inside: str, kind: Kind, lines: Sequence[str]
) -> Definition:
    given = node.args
    plain = [*given.posonlyargs, *given.args]
    defaults = [*[None] * (len(plain) - len(given.defaults)), *given.defaults, *given.kw_defaults]
    parameters = {
        one.arg: ast.unparse(default) if default is not None else ""
        for one, default in zip([*plain, *given.kwonlyargs], defaults, strict=True)
        if one.arg not in ("self", "cls")
    }
    marks = tuple(name for one in node.decorator_list if (name := _last(one)) not in _KEEPS)
    made = Definition(kind, f"{inside}.{node.name}", parameters, source=_source(node, lines), marks=marks)
    made.successors = arguments.successors(node, made.source, parameters)
    if marks or given.kwarg is not None:  # it may take more than its signature says
        made.parameters |= dict.fromkeys(sorted(arguments.told(node) - parameters.keys()), "")
    return made


def _source(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, lines: Sequence[str]) -> str:
    start = min(one.lineno for one in (node, *node.decorator_list))
    return "\n".join(lines[start - 1 : node.end_lineno])


def _class(node: ast.ClassDef, inside: str, lines: Sequence[str]) -> Definition:
    made = Definition(CLASS, f"{inside}.{node.name}", bases=[ast.unparse(base) for base in node.bases])
    made.source = _source(node, lines)
    fields = any(_FIELDS.search(_last(one)) for one in (*node.decorator_list, *node.bases))
    for one in _statements(node.body):
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            if any(_VALUES.search(_last(mark)) for mark in one.decorator_list):
                if named := _named(one.returns):  # `str` of a series: what it gives has methods
                    made.members.setdefault(one.name, Reference(inside, named))
            else:
                _add(made.members, one.name, _function(one, made.home, METHOD, lines))
        elif isinstance(one, ast.ClassDef):
            _add(made.members, one.name, _class(one, made.home, lines))
        elif isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            if fields:
                made.parameters[one.target.id] = ast.unparse(one.value) if one.value is not None else ""
        elif isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name):
            _attribute(made, one.targets[0].id, one.value, inside)
    maker = next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)
    if maker is None or maker.args.kwarg is not None:
        made.parameters |= dict.fromkeys(sorted(arguments.told(node) - made.parameters.keys()), "")
    return made


def _attribute(made: Definition, name: str, value: ast.expr, inside: str) -> None:
    """`explode = old_name`, `str = CachedAccessor("str", StringMethods)`."""
    if isinstance(value, ast.Name) and isinstance(of := made.members.get(value.id), Definition):
        made.members.setdefault(name, of)
    elif isinstance(value, ast.Call):
        for argument in value.args:
            if named := _named(argument):
                made.members.setdefault(name, Reference(inside, named))


def _named(node: ast.expr | None) -> str:
    """The class that an expression names; empty where it names none in CamelCase."""
    name = node.value if isinstance(node, ast.Constant) else _last(node)
    return name if isinstance(name, str) and re.fullmatch(r"[A-Z]\w*[a-z]\w*", name) else ""


def _cython(module: Module, source: str) -> None:
    inside: tuple[int, Definition] | None = None
    for head in _HEAD.finditer(source):
        indent = len(head["indent"])
        if inside is not None and indent <= inside[0]:
            inside = None
        if head["class"] and indent == 0:
            made = Definition(CLASS, f"{module.name}.{head['class']}")
            _add(module.names, head["class"], made)
            inside = (indent, made)
        elif head["function"] and (indent == 0 or inside is not None):
            end = _closing(source, head.end())
            found = re.findall(r"(\w+)\s*(?:=([^,]*))?(?:,|\Z)", source[head.end() : end])
            names = {name: default.strip() for name, default in found if name not in ("self", "cls")}
            where, home = (inside[1].members, inside[1].home) if inside and indent else (module.names, module.name)
            kind: Kind = METHOD if inside and indent else FUNCTION
            _add(where, head["function"], Definition(kind, f"{home}.{head['function']}", names))


def _closing(source: str, start: int) -> int:
    depth = 1
    for at in range(start, min(len(source), start + 5000)):
        depth += {"(": 1, ")": -1}.get(source[at], 0)
        if not depth:
            return at
    return start
