"""The file of marks that the page of an audit gives, taken in; and what follows for the dataset, told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from upkeep.contract import DatasetCard
from upkeep.errors import UpkeepError
from upkeep.grading.audited import RECORD, Audit, Marks, audit_of, precision
from upkeep.integrity import read_record, write_sealed
from upkeep.operations.audit.sample import draw, hash_of


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


def told(folder: Path, card: DatasetCard) -> Iterator[str]:
    """What a dataset's audit says, a line each, to be shown with its card; nothing where there is none.

    Raises:
        UpkeepError: it is not what was written, or is of another build.
    """
    if (audit := audit_of(folder, card)) is None:
        return
    yield f"audit: read and marked, of {audit.marks.sample} probes drawn with seed {audit.marks.seed}"
    for row in precision(audit.marks.marks).to_dicts():
        between = "no interval" if row["low"] is None else f"{row['low']:.1f} to {row['high']:.1f}"
        counted = f"{row['n']} probes of {row['questions']} questions"
        yield f"  {row['metric']:<12} {row['value']:5.1f}% ({between}), {counted}"
