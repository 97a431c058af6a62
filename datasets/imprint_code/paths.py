"""The names of a library: what they look like in notes, and the import paths that they stand for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from . import patterns
from .notes import MARK, Block, Phrase, Token, phrases

ALIASES = {"numpy": "np", "pandas": "pd", "polars": "pl", "scipy": "sp"}
"""What a library's users call it in code."""
PACKAGES = {
    "beautifulsoup4": "bs4",
    "pillow": "PIL",
    "pytorch": "torch",
    "pyyaml": "yaml",
    "scikit-image": "skimage",
    "scikit-learn": "sklearn",
}
"""Libraries that are imported by another name."""
DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\Z")
CAMEL = re.compile(r"_?[A-Z]+[a-z0-9]|_?[A-Z][A-Z0-9]*\Z")
VALUES = frozenset(
    {
        "None",
        "True",
        "False",
        "NaN",
        "nan",
        "inf",
        "int",
        "float",
        "str",
        "bool",
        "bytes",
        "list",
        "tuple",
        "dict",
        "set",
    }
    | {"object", "complex", "self", "cls", "axis", "args", "kwargs", "Ellipsis", "NotImplemented", "ValueError"}
    | {"TypeError", "RuntimeError", "Python", "NumPy", "SciPy", "PyTorch"}
)
"""Words of code that name nothing of a library."""


_SOME = 20
"""Names from which on a library is said to have a habit."""
CALLABLE_ROLES = frozenset({"class", "exc", "func", "meth"})


def clean(text: str) -> str:
    """A token as a dotted name: without the marks of a role, without call brackets."""
    return re.sub(r"\(.*\)\Z", "", text.strip().lstrip("~!.@")).rstrip(".:,").removesuffix(".__init__")


class Names:
    """What a library's notes tell of its names, whatever part of them they stand in.

    Args:
        library: the folder's name.
        blocks: of all its notes.
        pages: full names that its documentation has a page for.
    """

    def __init__(self, library: str, blocks: Iterable[Block], pages: Iterable[str] = ()) -> None:
        self.root = PACKAGES.get(library, library.replace("-", "_"))
        self._aliases = {self.root, ALIASES.get(library, self.root)}
        self._known: dict[str, set[str]] = {}
        """Last part of a name -> full names that end in it."""
        self.modules: set[str] = {self.root}
        self.objects: set[str] = set()
        """Full names that are said to have methods, so are no functions."""
        blocks = list(blocks)
        said = list(dict.fromkeys(phrases(blocks)))
        tokens = [token for phrase in said for token in phrase.tokens]
        dotted = [token.text for token in tokens if re.match(r"[a-z]\w*[.(]", token.text)]
        in_full = sum(self.full(text) is not None for text in dotted)
        self.in_full = 2 * in_full > len(dotted) and len(dotted) >= _SOME
        """Whether the notes write most names with the library before them."""
        for text in [*pages, *(self._of_role(token) for token in tokens)]:
            if (full := self.full(text)) is not None:
                parts = full.split(".")
                for end in range(2, len(parts) + 1):
                    self._known.setdefault(parts[end - 1], set()).add(".".join(parts[:end]))
        for block in blocks:
            self._known_below(block)
        for token in tokens:
            parts = (self.full(token.text) or self.root).split(".")
            self.modules.update(".".join(parts[:end]) for end in range(1, len(parts)) if _is_module(parts[:end]))
        for phrase in said:
            for found in patterns.METHODS_OF.finditer(phrase.marked):
                for mark in re.findall(MARK, found["of"]):
                    if (full := self.resolve(phrase.token(mark).text, self.root)) is not None:
                        self.objects.add(full)
            for one, other in patterns.IS_MODULE.findall(phrase.marked):
                if (full := self.full(phrase.token(one or other).text)) is not None and _is_module(full.split(".")):
                    self.modules.add(full)
        self.modules -= self.objects

    def _known_below(self, block: Block) -> None:
        """Classes that a block names by a part of their module, below a heading with the rest of it."""
        module = self.module(block.titles)
        for token in block.phrase.tokens if module != self.root else ():
            parts = clean(token.text).split(".")
            at = next((n for n, part in enumerate(parts) if CAMEL.match(part)), 0)
            if at and DOTTED.match(clean(token.text)) and _is_module(parts[:at]) and parts[0] not in self._aliases:
                full = f"{self.root}.{'.'.join(parts[: at + 1])}"
                if f"{self.root}.{parts[0]}" not in self.modules and parts[0] != module.rpartition(".")[2]:
                    full = f"{module}.{'.'.join(parts[: at + 1])}"
                self._known.setdefault(parts[at], set()).add(full)

    def _of_role(self, token: Token) -> str:
        """A token's text; with the library before it where a role says that it is one of its callables."""
        name = clean(token.text)
        bare = token.role in CALLABLE_ROLES and name.partition(".")[0] not in self._aliases
        return f"{self.root}.{name}" if bare else token.text

    def full(self, text: str) -> str | None:
        """A name that is written with its library, with the library's own name."""
        name = clean(text)
        head, dot, rest = name.partition(".")
        if not dot or head not in self._aliases or not DOTTED.match(name):
            return None
        return f"{self.root}.{rest}"

    def is_known(self, full: str) -> bool:
        """Whether the notes write this full name anywhere."""
        return full in self._known.get(full.rpartition(".")[2], ())

    def resolve(self, text: str, module: str, container: str | None = None, new: bool = False) -> str | None:
        """The import path of a name as it is written; None where it is none.

        Args:
            module: that the heading speaks of.
            container: the class or module that the sentence puts it in.
            new: it is announced, so an unknown name lies in `module`; else it must be known.
        """
        name = clean(text)
        if not DOTTED.match(name):
            return None
        if (full := self.full(name)) is not None:
            return full
        head, _, rest = name.partition(".")
        if container is not None and not (rest and CAMEL.match(head) and head != container.rpartition(".")[2]):
            tail = container.rpartition(".")[2]
            return f"{container}.{rest}" if rest and head == tail else f"{container}.{name}"
        end = f".{rest}" if rest else ""
        places = self._places(head)
        inside = [full for full in places if full.startswith(f"{module}.")]
        if inside:
            return inside[0] + end
        if len(places) == 1 and (rest or module == self.root or CAMEL.match(head)):
            return places[0] + end
        if rest and head == module.rpartition(".")[2]:
            return f"{module}{end}"
        if rest and f"{self.root}.{head}" in self.modules:
            return f"{self.root}.{name}"
        if new or rest or module != self.root or CAMEL.match(head):
            return f"{module}.{name}"
        return None

    def _places(self, leaf: str) -> list[str]:
        """Full names that end in `leaf`, the shortest first."""
        return sorted(self._known.get(leaf, ()), key=lambda full: (full.count("."), full))

    def module(self, titles: Sequence[Phrase]) -> str:
        """The module that the innermost heading speaks of; the library where none does."""
        for title in reversed(titles):
            words = [token.text for token in title.tokens] + re.findall(r"[A-Za-z_]\w*(?:\.\w+)+", title.marked)
            for word in words:
                if (full := self.full(word)) is not None and full in self.modules | {f"{self.root}.{clean(word)}"}:
                    return full
                if (full := self.full(word)) is not None and _is_module(full.split(".")) and full not in self.objects:
                    return full
        return self.root


def _is_module(parts: Sequence[str]) -> bool:
    return all(part == part.lower() for part in parts)


def is_public(full: str) -> bool:
    """Whether a full name is one that users may write."""
    parts = full.split(".")
    return len(parts) > 1 and parts[-1] not in VALUES and not any(part.startswith("_") for part in parts)
