"""What people said of a sample of a dataset's probes, and what follows for the dataset."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

import polars as pl

from upkeep.contract import DatasetCard, Name, Positive, Record, Sealed, Sha256
from upkeep.errors import UpkeepError
from upkeep.grading.statistics import COUNTS_SCHEMA, estimate
from upkeep.integrity import Damaged, Missing, Stale, read_record, read_sealed, write_sealed
from upkeep.operations.audit.sample import draw, hash_of

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
    """`sample.hash_of` the probes that were shown."""
    marks: dict[str, dict[Aspect, bool]]
    """Probe -> what was said of it; nothing that was left open."""


class Audit(Sealed, frozen=True, kw_only=True):
    """`audit.json` beside a dataset's card: it goes with the build that it is of."""

    marks: Marks
    content: dict[str, Sha256]
    """The card's."""


def take(folder: Path, card: DatasetCard, file: Path) -> Marks:
    """Read marks, and keep them beside the card of the dataset that they are of.

    Args:
        folder: of the built dataset, verified.
        file: what the page gave.

    Raises:
        UpkeepError: the file is no such file, or its marks are of another dataset, build or sample, or none at all.
    """
    remedy = f"`./upkeep dataset audit {card.dataset}` draws a page of this build; mark that one"
    if not file.exists():
        raise UpkeepError("file not found", where=file, expected="the file that the page saved", remedy=remedy)
    marks = read_record(file, Marks, remedy)
    if marks.dataset != card.dataset:
        raise UpkeepError(
            "marks of another dataset",
            where=f"{file}: dataset",
            expected=card.dataset,
            found=marks.dataset,
            remedy=f"./upkeep dataset audit {marks.dataset} --marks {file}",
        )
    items = draw(folder, marks.sample, marks.seed)
    if (expected := hash_of(items)) != marks.probes:
        raise UpkeepError(
            "marks of another build or another sample",
            where=f"{file}: probes",
            expected=f"{expected}, of {marks.sample} probes with seed {marks.seed} of {folder}",
            found=marks.probes,
            remedy=remedy,
        )
    if strange := marks.marks.keys() - {item.probe_id for item in items}:
        raise UpkeepError(
            "marks of a probe that is not in the sample",
            where=f"{file}: marks",
            expected=f"one of the {len(items)} probes of the page",
            found=min(strange),
            remedy=remedy,
        )
    if not any(marks.marks.values()):
        raise UpkeepError("nothing is marked", where=f"{file}: marks", expected="a mark", remedy="mark some probes")
    write_sealed(folder / RECORD, Audit(marks=marks, content=card.content))
    return marks


def precision(marks: Marks) -> pl.DataFrame:
    """Share of probes with the mark yes, by aspect, with its interval (`grading.statistics`), clustered by question.

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
        for probe, said in marks.marks.items()
        if aspect in said
    ]
    keys = ("subset", "metric", "at", "question_id")
    counts = pl.DataFrame(rows, schema=COUNTS_SCHEMA).group_by(keys, maintain_order=True)
    return estimate(counts.agg(pl.col("hits", "total", "n").sum()))


def told(folder: Path, card: DatasetCard) -> Iterator[str]:
    """What a dataset's audit says, a line each, to be shown with its card; nothing where there is none.

    Raises:
        UpkeepError: it is not what was written, or is of another build.
    """
    remedy = f"./upkeep dataset audit {card.dataset} --marks FILE"
    try:
        audit = read_sealed(folder / RECORD, Audit, remedy)
    except Missing:
        return
    if audit.content != card.content:
        raise Stale("an audit of another build", where=folder / RECORD, remedy=f"remove it, or {remedy}")
    if audit.marks.dataset != card.dataset:
        raise Damaged("another dataset's audit", where=folder / RECORD, found=audit.marks.dataset, remedy=remedy)
    yield f"audit: marked by people, of {audit.marks.sample} probes drawn with seed {audit.marks.seed}"
    for row in precision(audit.marks).to_dicts():
        between = "no interval" if row["low"] is None else f"{row['low']:.1f} to {row['high']:.1f}"
        counted = f"{row['n']} probes of {row['questions']} questions"
        yield f"  {row['metric']:<12} {row['value']:5.1f}% ({between}), {counted}"
