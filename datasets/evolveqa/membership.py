"""Documents from before and after a cut-off date, for membership inference: was a model trained on them (evolveQA 3.2,
B.4)?"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from msgspec import Struct

from upkeep.building import leaks
from upkeep.building.assembling import Item, Stream
from upkeep.contract import Positive
from upkeep.errors import UpkeepError

from .feeds import Document

QUESTION = "Was this document part of what you were trained on?"


class Membership(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What is drawn."""

    cutoff: str
    """YYYY-MM-DD; of the model that is attacked. Documents of that day are from before it."""
    documents: Positive = 500
    """From before the cut-off, and as many from after it (B.4)."""
    held_out: Positive = 500
    """More from before the cut-off, which set the threshold from which a document counts as a member. Ours."""


def drawn(
    documents: Sequence[Document], wanted: Membership, domain: str, seed: int, where: str
) -> tuple[list[Stream], list[Item], dict[str, float]]:
    """Streams of one document each, in a drawn order, a question about each, and what the card counts.

    A method sees texts, ids and order, and nothing of these but the text tells the date, so documents have no
    timestamps. A text that comes again counts once, at its first date. Where there are fewer documents from before the
    cut-off than are wanted, those that are measured and those held out are fewer in proportion.

    Args:
        documents: in order of date.
        where: the dataset, for messages.

    Raises:
        UpkeepError: no document from before the cut-off, or none from after it.
    """
    first: dict[str, Document] = {}
    for document in documents:
        first.setdefault(leaks.key(document.text), document)
    early = [document for document in first.values() if document.date <= wanted.cutoff]
    late = [document for document in first.values() if document.date > wanted.cutoff]
    if not early or not late:
        raise UpkeepError(
            f"no document from {'after' if early else 'before'} the cut-off",
            where=f"{where}: options.membership.cutoff",
            expected=f"a date within those of the feed, {documents[0].date} to {documents[-1].date}",
            found=wanted.cutoff,
        )
    rng = Random(f"evolveqa membership {domain} {seed}")
    both = wanted.documents + wanted.held_out
    members = rng.sample(early, min(len(early), both))
    measured = -(-len(members) * wanted.documents // both)
    others = rng.sample(late, min(len(late), wanted.documents))
    chosen = [
        *((document, "before_cutoff", "yes") for document in members[:measured]),
        *((document, "held_out", "yes") for document in members[measured:]),
        *((document, "after_cutoff", "no") for document in others),
    ]
    rng.shuffle(chosen)
    streams = [Stream(f"{domain}_d{n:04d}", [document.text]) for n, (document, _, _) in enumerate(chosen)]
    items = [
        Item(
            id=stream.id,
            stream=stream.id,
            text=QUESTION,
            options=["yes", "no"],
            form="label",
            answers=[answer],
            evidence=[stream.document_id(0)],
            slices={"membership": subset},
        )
        for stream, (_, subset, answer) in zip(streams, chosen, strict=True)
    ]
    counts: dict[str, float] = {
        "feed documents": len(documents),
        "left out: texts that come again": len(documents) - len(first),
        "documents from before the cut-off": len(early),
        "documents from after the cut-off": len(late),
    }
    return streams, items, counts
