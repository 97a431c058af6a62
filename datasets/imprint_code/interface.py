"""What a release can be called by: the public import paths of a source distribution or wheel, and their parameters."""

from __future__ import annotations

import re
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from upkeep.errors import UpkeepError

from . import definitions
from .definitions import Definition, Module, Reference
from .features import CLASS

_SUFFIXES = (".py", ".pyi", ".pyx")
_LARGEST = 8 << 20
"""Bytes of a source file that is read."""
_NOT_LIBRARY = re.compile(
    r"(?:tests?|test_\w+|\w+_tests?|conftest|benchmarks?|docs?|examples?|_?vendor(?:ed)?|_?extern(?:al|als)?|setup)\Z"
)
_DEEPEST = 2
"""Classes that hang on each other (`Series.str.casefold`)."""


@dataclass
class Interface:
    """Public paths of one release."""

    root: str
    members: dict[str, Definition] = field(default_factory=dict)
    modules: set[str] = field(default_factory=set)
    leaves: dict[str, list[str]] = field(default_factory=dict)
    """Last part of a path -> paths that end in it, the shortest first."""
    defined: set[str] = field(default_factory=set)
    """Names of all functions and classes of all modules, private ones too."""


def read(path: Path, library: str) -> Interface:
    """The interface of a distribution. No code of it is run and no file of it is written.

    Args:
        library: its folder's name, as imported; where the distribution has no such package, its first one is read.

    Raises:
        UpkeepError: it is no archive, or holds no package.
    """
    files = dict(_files(path))
    root = _root([PurePosixPath(name) for name in files], library)
    if root is None:
        raise UpkeepError("no Python package in it", where=path, expected=f"{library}/__init__.py")
    modules: dict[str, Module] = {}
    for name in sorted(files, key=lambda name: (name.endswith(".pyi"), name)):
        place = PurePosixPath(name)
        if not place.is_relative_to(root.parent) or (place != root and not place.is_relative_to(root)):
            continue
        parts = [*place.relative_to(root.parent).parent.parts, *([] if place.stem == "__init__" else [place.stem])]
        if any(map(_NOT_LIBRARY.match, parts[1:])):
            continue
        module = modules.setdefault(".".join(parts), Module(".".join(parts), place.stem == "__init__"))
        try:
            definitions.read(module, files[name].decode("utf-8", "replace"), place.suffix != ".pyx")
        except (SyntaxError, ValueError, RecursionError):
            continue  # a template, or another version of the language
    return _Exposed(root.stem, modules).interface()


def _files(path: Path) -> Iterator[tuple[str, bytes]]:
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as packed:
                for entry in packed.infolist():
                    if entry.filename.endswith(_SUFFIXES) and entry.file_size <= _LARGEST:
                        yield entry.filename, packed.read(entry)
        else:
            with tarfile.open(path) as tar:
                for member in tar:
                    if member.isfile() and member.name.endswith(_SUFFIXES) and member.size <= _LARGEST:
                        source = tar.extractfile(member)
                        if source is not None:
                            yield member.name, source.read()
    except (tarfile.TarError, zipfile.BadZipFile, OSError, EOFError) as error:
        raise UpkeepError(
            "not readable as a source distribution or wheel",
            where=path,
            expected="an archive as `pip download --no-deps NAME==VERSION` saves it",
            found=str(error),
        ) from error


def _root(names: list[PurePosixPath], library: str) -> PurePosixPath | None:
    """The folder of the package, or its one file."""
    packages = [name.parent for name in names if name.stem == "__init__" and not _NOT_LIBRARY.match(name.parent.name)]
    files = [name for name in names if name.suffix == ".py" and name.stem.lower() == library.lower()]
    called = [name for name in packages if name.name.lower() == library.lower()]
    for found in (called, files, packages):
        if found:
            return min(found, key=lambda name: (len(name.parts), str(name)))
    return None


class _Exposed:
    """Finds what the public modules expose."""

    def __init__(self, root: str, modules: dict[str, Module]) -> None:
        self._modules = modules
        self._found = Interface(root)

    def interface(self) -> Interface:
        for module in self._modules.values():
            self._found.defined.update(name for name, one in module.names.items() if isinstance(one, Definition))
        for name in sorted(self._modules, key=lambda name: (name.count("."), name)):
            if any(part.startswith("_") for part in name.split(".")[1:]):
                continue
            self._found.modules.add(name)
            module = self._modules[name]
            for one in self._names(name, set()):
                exported = module.exported is not None and one in module.exported
                if one.startswith("_") or not (exported or self._shows(module, one)):
                    continue
                if (made := self._resolve(name, one, set())) is not None:
                    self._take(f"{name}.{one}", made, 0)
        for path in sorted(self._found.members, key=lambda path: (path.count("."), path)):
            self._found.leaves.setdefault(path.rpartition(".")[2], []).append(path)
        return self._found

    @staticmethod
    def _shows(module: Module, name: str) -> bool:
        """Whether a module without `__all__` shows a name: it defines it, or is a package that imports it."""
        if module.exported is not None and not module.is_package:
            return False
        return module.is_package or isinstance(module.names.get(name), Definition)

    def _names(self, name: str, seen: set[str]) -> set[str]:
        module = self._modules.get(name)
        if module is None or name in seen:
            return set()
        seen.add(name)
        names = set(module.names)
        for star in module.stars:
            other = self._modules.get(star)
            inside = self._names(star, seen)
            names |= inside if other is None or other.exported is None else inside & other.exported
        return names

    def _resolve(self, module: str, name: str, seen: set[tuple[str, str]]) -> Definition | None:
        if (module, name) in seen or (own := self._modules.get(module)) is None:
            return None
        seen.add((module, name))
        one = own.names.get(name)
        if isinstance(one, Definition):
            return one
        if one is not None and (found := self._resolve(one.module, one.name, seen)) is not None:
            return found
        return next(filter(None, (self._resolve(star, name, seen) for star in own.stars)), None)

    def _take(self, path: str, made: Definition, depth: int) -> None:
        self._found.members[path] = made
        if made.kind != CLASS:
            return
        whole = self._inherited(made, set())
        made.parameters, made.successors = whole.parameters, whole.successors
        for name, member in whole.members.items():
            if name.startswith("_"):
                continue
            if isinstance(member, Reference):
                of = self._resolve(member.module, member.name, set()) if depth < _DEEPEST else None
                if of is not None and of.kind == CLASS and of is not made:
                    for inner, method in self._inherited(of, set()).members.items():
                        if isinstance(method, Definition) and not inner.startswith("_"):
                            self._found.members[f"{path}.{name}.{inner}"] = method
            elif not any(self._is_value(member, mark) for mark in member.marks):
                self._found.members[f"{path}.{name}"] = member

    def _is_value(self, method: Definition, mark: str) -> bool:
        """Whether a decorator of the library's own makes a value of a method: it is a descriptor."""
        parts = method.home.split(".")
        module = next(name for end in range(len(parts), 0, -1) if (name := ".".join(parts[:end])) in self._modules)
        made = self._resolve(module, mark, set())
        return made is not None and made.kind == CLASS and "__get__" in self._inherited(made, set()).members

    def _inherited(self, made: Definition, seen: set[str]) -> Definition:
        """A class with what it inherits inside the library."""
        whole = Definition(CLASS, made.home, dict(made.parameters), members=dict(made.members))
        whole.source, whole.successors = made.source, dict(made.successors)
        if made.home in seen:
            return whole
        maker = made.members.get("__init__") or made.members.get("__new__")
        if isinstance(maker, Definition):
            whole.parameters |= maker.parameters
            whole.successors |= maker.successors
        for base in made.bases:
            name = re.sub(r"\[.*", "", base).rpartition(".")[2]
            parent = self._resolve(made.home.rpartition(".")[0], name, set())
            if parent is None or parent.kind != CLASS:
                continue
            above = self._inherited(parent, seen | {made.home})
            whole.members = {**above.members, **whole.members}
            if not isinstance(maker, Definition):
                whole.parameters |= above.parameters
                whole.successors |= above.successors
        return whole
