"""The page on which a person marks a sample of probes: one file, nothing is loaded or sent."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from upkeep.contract import DatasetCard
from upkeep.files import write_atomically
from upkeep.operations.audit.marks import ASPECTS
from upkeep.operations.audit.sample import Item, draw, hash_of
from upkeep.pages import templates


def write_page(folder: Path, card: DatasetCard, count: int, seed: int, out: Path) -> int:
    """Draw a sample of a dataset and write its page; returns how many probes are on it.

    Args:
        folder: of the built dataset, verified.

    Raises:
        UpkeepError: a file cannot be read, or the page cannot be written.
    """
    items = draw(folder, count, seed)
    write_atomically(out, render(items, card, count, seed).encode())
    return len(items)


def render(items: list[Item], card: DatasetCard, count: int, seed: int) -> str:
    """The page. What a dataset says is text in it, whatever it looks like; the one script that may run is ours."""
    environment = templates("upkeep.operations.audit", marked=marked)
    script = environment.loader.get_source(environment, "audit.js")[0]  # type: ignore[union-attr]
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("audit.html.j2").render(
        items=items,
        card=card,
        count=count,
        seed=seed,
        probes=hash_of(items),
        aspects=ASPECTS,
        script=Markup(script),
        allowed=allowed,
    )


def marked(text: str, words: Sequence[str]) -> list[tuple[str, bool]]:
    """A text in pieces, and whether each is one of these words."""
    if not words:
        return [(text, False)]
    pattern = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    pieces = re.split(f"({pattern})", text)
    return [(piece, bool(place % 2)) for place, piece in enumerate(pieces) if piece]
