"""What the sources of a release and of the one before it say is new: in the one, and in the other under no name."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property

from .definitions import Definition
from .interface import Interface

_DEPRECATES = re.compile("deprecat", re.IGNORECASE)
_QUOTED = re.compile(r"(?s)(\"{3}|'{3}).*?\1")
"""Documentation, which is often copied."""
_TELLING = 3
"""Words from which on a line of source tells one definition from another."""


@dataclass(frozen=True)
class Change:
    """Two interfaces of a library: of a release, and of the one before."""

    new: Interface
    old: Interface

    def is_fresh(self, path: str) -> bool:
        return path in self.new.members and path not in self.old.members

    def is_alias(self, path: str) -> bool:
        """Whether a path is a new one of something old, or in a class that has such a path."""
        namespace = path.rpartition(".")[0]
        if namespace in self.new.members:
            return self.is_alias(namespace)
        return self.is_fresh(path) and self.new.members[path].home in self._homes

    def is_renamed(self, path: str) -> bool:
        """Whether what has a new path was there under another: of the same name and gone, or with much of the same
        source and of the same name, gone or deprecated now."""
        made = self.new.members[path]
        leaf = path.rpartition(".")[2]
        inside = path.rpartition(".")[0]
        if inside in self.new.members:
            return any(one.rpartition(".")[0] == inside and is_alike(made, old) for one, old in self._left.items())
        older = [one for one in {*self._left, *self.old.leaves.get(leaf, ())} if self._is_like(one, path)]
        return any(self._is_moved(one, leaf) or is_alike(made, self.old.members[one]) for one in older)

    def parameters(self, path: str) -> set[str]:
        """The parameters that a callable got, but for new names of what it had; none of one that is new itself."""
        new, old = self.new.members.get(path), self.old.members.get(path)
        return set() if new is None or old is None else _got(new, old) - _new_names(new, old)

    @cached_property
    def got(self) -> dict[str, list[str]]:
        """The names of all parameters that old callables got -> the paths of these, the shortest first."""
        found: dict[str, list[str]] = {}
        for path in sorted(self.new.members, key=lambda path: (path.count("."), path)):
            for name in self.parameters(path):
                found.setdefault(name, []).append(path)
        return found

    @cached_property
    def _homes(self) -> set[str]:
        """Where what has an old path is defined."""
        return {made.home for path, made in self.new.members.items() if path in self.old.members}

    @cached_property
    def _left(self) -> dict[str, Definition]:
        """What is gone, or deprecated now, as it was."""
        return {path: old for path, old in self.old.members.items() if self._is_left(path, old)}

    def _is_left(self, path: str, old: Definition) -> bool:
        new = self.new.members.get(path)
        return new is None or (_is_deprecated(new) and not _is_deprecated(old))

    def _is_moved(self, old: str, leaf: str) -> bool:
        """Whether an old path is gone, and what it named has this name."""
        return old not in self.new.members and old.rpartition(".")[2] == leaf

    def _is_like(self, old: str, path: str) -> bool:
        """Whether an old path is no member of a class, and names the same kind of thing as a new one."""
        return not self._is_inside(old) and self.old.members[old].kind == self.new.members[path].kind

    def _is_inside(self, path: str) -> bool:
        """Whether an old path lies in a class."""
        return path.rpartition(".")[0] in self.old.members


def _is_deprecated(made: Definition) -> bool:
    """Whether a definition speaks of deprecation before its first method, if it has any."""
    return bool(_DEPRECATES.search(re.split(r"\n\s+def (?!__)", made.source, maxsplit=1)[0]))


def is_alike(one: Definition, other: Definition) -> bool:
    """Whether two definitions share most lines, and more than one, whatever they are called."""
    ours, theirs = _lines(one), _lines(other)
    shared = (ours & theirs).total()
    return shared > 1 and 2 * shared > max(ours.total(), theirs.total())


def _lines(made: Definition) -> Counter[str]:
    text = re.sub(rf"\b{re.escape(made.home.rpartition('.')[2])}\b", "_", _QUOTED.sub("", made.source))
    return Counter(line for line in map(str.strip, text.splitlines()) if len(re.findall(r"\w+", line)) >= _TELLING)


def _got(new: Definition, old: Definition) -> set[str]:
    return new.parameters.keys() - old.parameters.keys()


def _new_names(new: Definition, old: Definition) -> set[str]:
    """The parameters of a callable that stand for one that it had: in the place and with the default of one that is
    gone, or called so by a decorator that deprecates the other, or given its value."""
    if not _got(new, old):
        return set()
    found = {name for name in _got(new, old) if new.successors.get(name, set()) & old.parameters.keys()}
    before, after = list(old.parameters), list(new.parameters)
    for kind, start, end, first, last in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "replace":
            pairs = zip(before[start:end], after[first:last], strict=False)
            found |= {name for gone, name in pairs if old.parameters[gone] == new.parameters[name]}
    return found & _got(new, old)
