"""BoundAbs: identifiers in a library's manner that it has not (ImprintBench, D.2)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

from upkeep.building.assembling import Item

from .features import PARAMETER
from .questions import Entry, Writer, there

_ADDITIONS = (
    "batch",
    "pair",
    "mask",
    "weight",
    "window",
    "chunk",
    "index",
    "local",
    "joint",
    "sparse",
    "robust",
    "lazy",
)
_TRIES = 200
_PIECE = 3
"""Letters of the last word of a name that is used for others, at least."""


def boundary(entries: Sequence[Entry], writer: Writer, said: str, count: int | None, rng: Random) -> list[Item]:
    """BoundAbs: leaves that are made up of parts of the library's own and occur nowhere in what was given.

    Args:
        said: all texts of all libraries.
        count: of questions; None for as many as DirAcq has. A library has its share of DirAcq's.
    """
    known = {word.lower() for word in re.findall(r"\w+", said)}
    real = [entry for entry in entries if entry.feature.kind != PARAMETER]
    if count is not None and real:
        real = (
            [real[n * len(real) // count] for n in range(count)] if count <= len(real) else rng.choices(real, k=count)
        )
    parts: dict[tuple[str, str], list[list[str]]] = {}
    for entry in entries:
        key = entry.feature.library, entry.feature.kind
        parts.setdefault(key, []).append(split_name(entry.feature.leaf))
    found = []
    for entry in real:
        feature = entry.feature
        leaf = _invented(parts[feature.library, feature.kind], feature.leaf, known, rng)
        if leaf is None:
            writer.left_out["no name to invent"] += 1
            continue
        known.add(leaf.lower())
        path = f"{feature.namespace}.{leaf}"
        found.append(writer.item("bound_abs", path, there(feature.library, feature.kind, path), ["No"], [entry]))
    return [item for item in found if item is not None]


def split_name(leaf: str) -> list[str]:
    """The words of an identifier, with what joins them: `make_splrep` is `make`, `_splrep`."""
    return re.findall(r"_+[^_A-Z]+|[A-Z]+(?![a-z])|[A-Z][^_A-Z]*|[^_A-Z]+", leaf)


def _invented(parts: Sequence[list[str]], near: str, known: set[str], rng: Random) -> str | None:
    """A name in the manner of `near` that is not known: the beginning of it and the end of another, by whole words;
    by half words where no name has two."""
    several = [words for words in parts if len(words) > 1 and len(words[-1].strip("_")) >= _PIECE]
    for attempt in range(_TRIES):
        begin, end = split_name(near), rng.choice(several or parts)
        if several and attempt < _TRIES // 2:
            begin = begin if len(begin) > 1 else rng.choice(several)
            words = [*begin[:-1], end[-1]]
        elif attempt < _TRIES // 2:
            words = [near[: (len(near) + 1) // 2], end[0][(len(end[0]) + 1) // 2 :].lower()]
        else:
            addition = rng.choice(_ADDITIONS)
            words = [*begin, addition.capitalize() if near[:1].isupper() else f"_{addition}"]
        name = "".join(words)
        if name.lower() not in known:
            return name
    return None
