"""A dataset in words: its counts and statistics, beside those that the paper prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from upkeep.card_numbers import numbers
from upkeep.contract import DatasetCard
from upkeep.files import digest


def describe(card: DatasetCard, paper: Mapping[str, float], changes: Sequence[str] = ()) -> str:
    """Counts and statistics as text, beside the paper's (`card_numbers.published`).

    Args:
        changes: what changed with each version, as `dataset.yaml` says it.
    """
    own = numbers(card)
    rows = [("", "own", "paper")]
    rows += [(name, _number(own.get(name)), _number(paper.get(name))) for name in own | dict(paper)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [f"{name:<{widths[0]}}  {mine:>{widths[1]}}  {theirs:>{widths[2]}}".rstrip() for name, mine, theirs in rows]
    head = [f"{card.label} ({card.dataset})", f"source: {card.source}", f"tokenizer: {card.tokenizer}"]
    head.append(f"provenance: {card.provenance}" + (f", for {card.stands_for}" if card.stands_for else ""))
    why = ["", *changes][card.dataset_version - 1 :][:1]
    head.append(", ".join([f"version: {card.dataset_version}", *filter(None, why)]))
    return "\n".join(
        [*head, f"content: sha256 {digest(card.content)}", "", *lines, *(f"\nnote: {n}" for n in card.notes)]
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}".removesuffix(".0")
