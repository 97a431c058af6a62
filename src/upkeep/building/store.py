"""A dataset's folder: how it is published, written, read, and checked whole."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import polars as pl

from upkeep import inputs
from upkeep.building.assembling import Built
from upkeep.building.checking import check
from upkeep.building.content import content
from upkeep.building.context import Context
from upkeep.contract import DatasetCard, DatasetSpec, FaultKind, Pair
from upkeep.errors import UpkeepError
from upkeep.files import storing
from upkeep.integrity import fingerprint, read_sealed, write_sealed
from upkeep.normal_form import EXAMPLES, PAIRS, TABLES, read_examples, read_pairs, read_table

CARD = "card.json"


def publish(context: Context, built: Built, folder: Path, plan: str = "") -> DatasetCard:
    """Check a built dataset and put it at `folder` in one step; what stood there is replaced.

    Args:
        plan: hash of what it was built from (`upkeep.identity.plan_dataset`).

    Raises:
        UpkeepError: the content breaks a rule of the normal form (see `checking.check`).
    """
    check(built, built.chunk_tokens, str(context.where.parent))
    notes = [*built.notes, *context.faults.notes()]
    with storing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
            new, old = Path(temporary) / "new", Path(temporary) / "old"
            new.mkdir()
            card = write(new, replace(built, notes=notes), context.name, context.spec, plan, context.faults.counts)
            if folder.exists():
                folder.rename(old)
            new.rename(folder)
    return card


def write(
    folder: Path,
    built: Built,
    name: str,
    spec: DatasetSpec,
    plan: str = "",
    faults: Mapping[FaultKind, int] | None = None,
) -> DatasetCard:
    """Write the files of a dataset and its card into an empty folder. Nothing is checked."""
    for table in TABLES:
        built.table(table).write_parquet(folder / f"{table}.parquet", compression="zstd", statistics=False)
    files = [f"{table}.parquet" for table in TABLES]
    for file, pairs in ((PAIRS, built.pairs), (EXAMPLES, built.examples)):
        if pairs:
            (folder / file).write_bytes(msgspec.json.Encoder().encode_lines(pairs))
            files.append(file)
    card = DatasetCard(
        dataset=name,
        label=spec.label,
        source=built.source,
        licence=spec.licence,
        tokenizer=built.tokenizer,
        chunk_tokens=built.chunk_tokens,
        streams=built.documents["stream"].n_unique(),
        documents=len(built.documents),
        probes=len(built.probes),
        questions=built.probes["question_id"].n_unique(),
        pairs=len(built.pairs),
        slices=_slices(built),
        statistics=dict(built.statistics),
        dataset_version=spec.version,
        provenance=built.provenance or spec.provenance,
        stands_for=spec.stands_for,
        content=content(built.documents, built.probes, built.gold, built.pairs, built.examples),
        files={file: fingerprint(folder / file) for file in files},
        examples=len(built.examples),
        faults=dict(sorted((faults or {}).items())),
        inputs=dict(built.inputs),
        plan=plan,
        seed=built.seed,
        notes=list(built.notes),
    )
    return write_sealed(folder / CARD, card)


def _slices(built: Built) -> dict[str, dict[str, int]]:
    """Questions by slice value; a value is that of the question's first probe."""
    firsts = built.probes.select("probe_id", "question_id").unique("question_id", keep="first", maintain_order=True)
    gold = firsts.join(built.gold, on="probe_id", maintain_order="left")
    return {
        column.removeprefix("slice_"): dict(sorted(Counter(gold[column].to_list()).items()))
        for column in gold.columns
        if column.startswith("slice_")
    }


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset as read from its folder."""

    card: DatasetCard
    documents: pl.DataFrame
    probes: pl.DataFrame
    gold: pl.DataFrame
    pairs: list[Pair]
    examples: list[Pair] = field(default_factory=list)


def load(folder: Path) -> Dataset:
    """Read a built dataset. Columns are checked, rows are not (see `validate`).

    Raises:
        UpkeepError: a file is missing, unreadable, or lacks a column.
    """
    card = read_sealed(folder / CARD, DatasetCard, f"./upkeep dataset build {folder.name}")
    frames = {table: read_table(folder, table) for table in TABLES}
    pairs, examples = read_pairs(folder, card), read_examples(folder, card)
    return Dataset(card, frames["documents"], frames["probes"], frames["gold"], pairs, examples)


def validate(folder: Path) -> DatasetCard:
    """Check a built dataset whole: files against the card's hashes, rows against the rules of the normal form.

    Raises:
        UpkeepError: with file, row (from 0) and column of the first fault.
    """
    card = inputs.verify_dataset(folder)
    expected = {f"{table}.parquet" for table in TABLES}
    expected |= ({PAIRS} if card.pairs else set()) | ({EXAMPLES} if card.examples else set())
    if card.files.keys() != expected:
        raise UpkeepError(
            "wrong list of files",
            where=f"{folder / CARD}: files",
            expected=", ".join(sorted(expected)),
            found=", ".join(sorted(card.files)),
        )
    data = load(folder)
    check(data, card.chunk_tokens, str(folder))
    counted = {
        "streams": data.documents["stream"].n_unique(),
        "documents": len(data.documents),
        "probes": len(data.probes),
        "questions": data.probes["question_id"].n_unique(),
        "pairs": len(data.pairs),
        "examples": len(data.examples),
        "content": content(data.documents, data.probes, data.gold, data.pairs, data.examples),
    }
    for name, value in counted.items():
        if getattr(card, name) != value:
            raise UpkeepError(
                "the card does not fit the rows",
                where=f"{folder / CARD}: {name}",
                expected=getattr(card, name),
                found=value,
            )
    return card
