"""What people said of a sample of a dataset's probes (`operations.audit` asks them)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

import polars as pl

from upkeep.contract import DatasetCard, Name, Positive, Record, Sealed, Sha256
from upkeep.grading.statistics import COUNTS_SCHEMA, estimate
from upkeep.integrity import Damaged, Missing, Stale, read_sealed

Aspect = Literal["right", "answerable", "unambiguous", "natural"]
"""The answer key is right; the evidence is enough to answer; one answer is meant; somebody could ask it so."""
ASPECTS: tuple[Aspect, ...] = get_args(Aspect)
RECORD = "audit.json"


class Marks(Record, frozen=True, kw_only=True):
    """The file that the page gives."""

    version: Literal[1] = 1
    dataset: Name
    sample: Positive
    """How many probes were asked for."""
    seed: int
    probes: Sha256
    """`operations.audit.sample.hash_of` the probes that were shown."""
    marks: dict[str, dict[Aspect, bool]]
    """Probe -> what was said of it; nothing that was left open."""


class Audit(Sealed, frozen=True, kw_only=True):
    """`audit.json` beside a dataset's card: it goes with the build that it is of."""

    marks: Marks
    content: dict[str, Sha256]
    """The card's."""


def audit_of(folder: Path, card: DatasetCard) -> Audit | None:
    """A dataset's audit; None where there is none.

    Raises:
        Damaged, Stale: it is not what was written, or is of another build or dataset.
    """
    remedy = f"./upkeep dataset audit {card.dataset} --marks FILE"
    try:
        audit = read_sealed(folder / RECORD, Audit, remedy)
    except Missing:
        return None
    if audit.content != card.content:
        raise Stale("an audit of another build", where=folder / RECORD, remedy=f"remove it, or {remedy}")
    if audit.marks.dataset != card.dataset:
        raise Damaged("another dataset's audit", where=folder / RECORD, found=audit.marks.dataset, remedy=remedy)
    return audit


def precision(marks: Mapping[str, Mapping[Aspect, bool]]) -> pl.DataFrame:
    """Share of probes with the mark yes, by aspect, with its interval (`grading.statistics`), clustered by question.

    Args:
        marks: probe -> what was said of it, as `Marks` has it.

    Returns:
        Rows of `estimate`, `metric` the aspect; no row for one that is never marked.
    """
    rows = [
        {
            "subset": "all",
            "metric": aspect,
            "at": None,
            "question_id": probe.rpartition("@")[0],
            "hits": float(said[aspect]),
            "total": 1.0,
            "n": 1,
        }
        for aspect in ASPECTS
        for probe, said in marks.items()
        if aspect in said
    ]
    keys = ("subset", "metric", "at", "question_id")
    counts = pl.DataFrame(rows, schema=COUNTS_SCHEMA).group_by(keys, maintain_order=True)
    return estimate(counts.agg(pl.col("hits", "total", "n").sum()))
