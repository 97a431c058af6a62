"""Two sides compared: by cell with interval and p-value, by probe, and what of the identity changed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import polars as pl

from upkeep.catalog import Catalog
from upkeep.contract import Manifest, Record
from upkeep.errors import UpkeepError
from upkeep.grading.paired import Paired, compared, holm, side_by_side
from upkeep.machine.checkout import told
from upkeep.operations.diff.sides import Published, pairs, side

_HASH = re.compile(r"[0-9a-f]{64}")
SHOWN = 12
"""Hex digits of a hash that are told."""


class Answered(Record, frozen=True, kw_only=True):
    """What one cell said to a probe."""

    verdict: str
    answer: str | None


class Moved(Record, frozen=True, kw_only=True):
    """A probe whose verdict or answer is another one."""

    probe: str
    trial: int
    first: Answered
    second: Answered
    right: list[str]


class CellDifference(Record, frozen=True, kw_only=True):
    """Two cells."""

    first: str
    second: str
    identity: dict[str, tuple[str, str]]
    """What of the identity differs, part by part."""
    commits: tuple[str, str] | None = None
    """Of the suite, where both are known and differ."""
    same_predictions: bool
    """Whether the predictions are the same bytes."""
    paired: Paired | None = None
    p_holm: float | None = None
    """p for as many comparisons as there are here."""
    moved: int = 0
    """Predictions whose verdict or answer is another one."""
    probes: list[Moved] = msgspec.field(default_factory=list)
    """The first of them, those first whose verdict is another; all, where all were asked for."""
    problem: str | None = None
    """Why the two cannot be compared."""

    @property
    def same(self) -> bool:
        return self.same_predictions and not self.identity and self.problem is None


class Difference(Record, frozen=True, kw_only=True):
    """Two sides."""

    first: str
    second: str
    cells: list[CellDifference]
    first_alone: list[str]
    """Cells that the second has none beside."""
    second_alone: list[str]

    @property
    def same(self) -> bool:
        return not self.first_alone and not self.second_alone and all(cell.same for cell in self.cells)


def difference(catalog: Catalog, first: str, second: str, limit: int | None) -> Difference:
    """Compare two sides, as `sides.side` reads their names.

    Args:
        limit: probes that are told, of each pair of cells; None for all.

    Raises:
        UpkeepError: a name is none, nothing of the two belongs together, or two cells that were named have no probe
            in common, or cannot be read. In suites and folders such a cell is told with its problem.
    """
    sides = side(catalog, first), side(catalog, second)
    found, used = list[CellDifference](), (set[str](), set[str]())
    named = sides[0].single and sides[1].single
    for one, other in pairs(*sides):
        for names, published in zip(used, (one, other), strict=True):
            names.add(str(published.cell))
        try:
            found.append(between(one, other, limit))
        except UpkeepError as error:
            if named:
                raise
            empty = CellDifference(first=str(one.cell), second=str(other.cell), identity={}, same_predictions=False)
            found.append(msgspec.structs.replace(empty, problem=error.problem))
    chances = holm([None if one.paired is None or one.same_predictions else one.paired.p for one in found])
    found = [msgspec.structs.replace(one, p_holm=p) for one, p in zip(found, chances, strict=True)]
    # Beside one cell the rest of a suite is not what was asked for.
    whole = not (sides[0].single or sides[1].single)
    alone = [[n for n in s.cells if n not in names] if whole else [] for s, names in zip(sides, used, strict=True)]
    return Difference(first=first, second=second, cells=found, first_alone=alone[0], second_alone=alone[1])


def between(one: Published, other: Published, limit: int | None) -> CellDifference:
    """Compare two cells.

    Raises:
        UpkeepError: one is not published or damaged, its dataset is not there, or they share no probe.
    """
    manifests = one.manifest(), other.manifest()
    prints = [manifest.files["predictions.jsonl"].sha256 for manifest in manifests]
    found = CellDifference(
        first=str(one.cell),
        second=str(other.cell),
        identity=dict(changed(*manifests)),
        commits=_commits(*manifests),
        same_predictions=prints[0] == prints[1],
    )
    if found.same:
        return found
    rows = one.verdicts(manifests[0]), other.verdicts(manifests[1])
    probes = side_by_side(*rows)
    if probes.is_empty():
        raise UpkeepError(
            "the two cells were asked no probe in common",
            expected="cells on one dataset, or on two builds of it whose probes have the same ids",
            found=f"{one.cell} and {other.cell}",
            remedy="compare cells of one dataset",
        )
    moved = _moved(*rows)
    right = other.right()
    told = moved if limit is None else moved.head(limit)
    return msgspec.structs.replace(
        found,
        paired=compared(probes),
        moved=len(moved),
        probes=[
            Moved(
                probe=row["probe_id"],
                trial=row["trial"],
                first=Answered(verdict=row["became"], answer=row["answer"]),
                second=Answered(verdict=row["became_second"], answer=row["answer_second"]),
                right=right.get(row["probe_id"], []),
            )
            for row in told.iter_rows(named=True)
        ],
    )


def _moved(first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    """Predictions whose answer or verdict is another: what changes a number comes first."""
    keys = ["probe_id", "trial"]
    columns = [*keys, "right", "became", "answer"]
    both = first.select(columns).join(second.select(columns), on=keys, suffix="_second", maintain_order="left")
    other = (pl.col("became") != pl.col("became_second")) | pl.col("answer").ne_missing(pl.col("answer_second"))
    turned = (pl.col("right") != pl.col("right_second")).cast(pl.Int8)
    return both.filter(other).sort(turned, descending=True, maintain_order=True)


# ---------------------------------------------------------------- identities


def changed(first: Manifest, second: Manifest) -> Iterator[tuple[str, tuple[str, str]]]:
    """The parts of two identities that differ, each with both values; of a part with fields, these."""
    parts = first.identity_parts, second.identity_parts
    for name in dict.fromkeys((*parts[0], *parts[1])):
        values = [_fields(name, side[name]) if name in side else {} for side in parts]
        for field in dict.fromkeys((*values[0], *values[1])):
            one, other = (side.get(field) for side in values)
            if one != other:
                yield field, (_told(one), _told(other))


def _commits(first: Manifest, second: Manifest) -> tuple[str, str] | None:
    if first.checkout is None or second.checkout is None or first.checkout == second.checkout:
        return None
    return told(first.checkout), told(second.checkout)


def _fields(name: str, value: str) -> dict[str, Any]:
    """A part's fields by their names; of one that has none, itself."""
    try:
        found = msgspec.json.decode(value)
    except msgspec.DecodeError:
        found = value
    return dict(_flat(name, found)) if isinstance(found, dict) else {name: value}


def _flat(name: str, value: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield from _flat(f"{name}.{key}", inner)
        else:
            yield f"{name}.{key}", inner


def _told(value: Any) -> str:
    if value is None:
        return "none"
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text[:SHOWN] if _HASH.fullmatch(text) else text
