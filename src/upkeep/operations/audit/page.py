"""The page on which a person marks a sample of probes: one file, nothing is loaded or sent."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from upkeep.contract import DatasetCard
from upkeep.grading.audited import ASPECTS
from upkeep.operations.audit.readings import FINDINGS, Reading, suspicious_first
from upkeep.operations.audit.sample import Item, hash_of
from upkeep.pages import templates


@dataclass(frozen=True)
class Read:
    """The sample as a model read it."""

    model: str
    of: Mapping[str, Reading]
    """probe_id -> Reading."""


def render(items: list[Item], card: DatasetCard, count: int, seed: int, read: Read | None = None) -> str:
    """The page. What dataset and model say is text in it, whatever it looks like; the one script that may run is ours.

    Args:
        items: the sample of so many probes that was drawn with this seed (`sample.draw`).
        read: where a model has read it; then what is suspicious stands first. Marks are of the same words all the same.
    """
    environment = templates("upkeep.operations.audit", marked=marked)
    script = environment.loader.get_source(environment, "audit.js")[0]  # type: ignore[union-attr]
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("audit.html.j2").render(
        items=suspicious_first(items, read.of) if read else items,
        read=read,
        findings=FINDINGS,
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
