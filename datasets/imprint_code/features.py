"""What a release adds: an identifier with its kind, and the words of the notes that announce it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from .notes import Block

Kind = Literal["function", "class", "method", "distribution", "parameter"]
"""`distribution` is a callable object, as SciPy calls them; the paper's prompts know `function` and `parameter`."""
FUNCTION: Final = "function"
CLASS: Final = "class"
METHOD: Final = "method"
DISTRIBUTION: Final = "distribution"
PARAMETER: Final = "parameter"
PLURALS = {FUNCTION: "functions", CLASS: "classes", METHOD: "methods", DISTRIBUTION: "distributions"}


@dataclass(frozen=True, slots=True)
class Feature:
    """An identifier that a release adds."""

    library: str
    version: str
    canonical: str
    """Import path; of a parameter `<path of its function>.<name>`."""
    kind: Kind
    block: Block
    parents: tuple[str, ...] = ()
    """Of a parameter: the callables that got it, in the order of the notes."""

    @property
    def leaf(self) -> str:
        return self.canonical.rpartition(".")[2]

    @property
    def namespace(self) -> str:
        return self.canonical.rpartition(".")[0]
