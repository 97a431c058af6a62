"""Draws probes of a built dataset, with all that a person needs to judge them."""

from __future__ import annotations

from pathlib import Path
from random import Random

import msgspec
import polars as pl

from upkeep.contract import Record
from upkeep.files import digest
from upkeep.normal_form import OPTIONAL, read_table


class Shown(Record, frozen=True, kw_only=True):
    """A document of the evidence."""

    document_id: str
    timestamp: str | None
    text: str


class Item(Record, frozen=True, kw_only=True):
    """A probe as it is shown."""

    probe_id: str
    question_id: str
    stream: str
    position: int
    form: str
    question: str
    options: list[str] | None
    answers: list[str]
    outdated: list[str]
    slices: dict[str, str]
    words: list[str]
    """What the question was made from, and what tells the answer: marked in the documents, where it stands there."""
    evidence: list[Shown]


def draw(folder: Path, count: int, seed: int) -> list[Item]:
    """A sample of a dataset's probes, each as likely as any other.

    The probes are set in order of form and slices, within these by chance, and taken at even distances: so every kind
    has its share of the sample, one probe more or less.

    Args:
        folder: of a built dataset, verified.
        count: how many are drawn; all, where there are fewer.

    Raises:
        UpkeepError: a file cannot be read.
    """
    probes, gold = read_table(folder, "probes"), read_table(folder, "gold")
    slices = sorted(column for column in gold.columns if column.startswith("slice_"))
    chance = Random(seed)
    order = list(range(len(probes)))
    chance.shuffle(order)
    kinds = probes.select("probe_id", "form").join(gold.select("probe_id", *slices), on="probe_id")
    kinds = kinds.join(probes.select("probe_id", _chance=pl.Series(order)), on="probe_id")
    kinds = kinds.sort("form", *slices, "_chance")
    count = min(count, len(kinds))
    start = chance.random()
    taken = kinds["probe_id"].gather([int((place + start) * len(kinds) / count) for place in range(count)])
    drawn = probes.join(gold, on="probe_id").filter(pl.col("probe_id").is_in(taken.implode()))
    named = drawn["evidence"].explode().drop_nulls().unique()
    texts = (
        pl.scan_parquet(folder / "documents.parquet")
        .filter(pl.col("document_id").is_in(named.implode()))
        .select(Shown.__struct_fields__)
        .collect(engine="streaming")
    )
    documents = {row["document_id"]: Shown(**row) for row in texts.to_dicts()}
    return [
        Item(
            **{name: row[name] for name in _PLAIN},
            slices={column.removeprefix("slice_"): row[column] for column in slices},
            words=list(dict.fromkeys(word for name in OPTIONAL for word in row.get(name) or [] if word)),
            evidence=[documents[one] for one in row["evidence"]],
        )
        for row in drawn.sort("stream", "position", "probe_id").to_dicts()
    ]


_PLAIN = ("probe_id", "question_id", "stream", "position", "form", "question", "options", "answers", "outdated")


def hash_of(items: list[Item]) -> str:
    """Hash of all that is shown of a sample: marks are of these words alone."""
    return digest(msgspec.to_builtins(items))
