"""What judges said of a cell's responses, kept beside its verdicts, and what becomes of these with it.

`results/judged/<judge>/<cell>/`: one judge's verdicts, with what they were made of. `upkeep.judging` asks for them.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from typing import Any

import polars as pl

from upkeep import inputs
from upkeep.catalog import Catalog
from upkeep.contract import Count, Fingerprint, Manifest, Sealed
from upkeep.fields import MODEL, part, plain
from upkeep.files import digest, write_atomically
from upkeep.grading.judgements import RIGHT, Judgements, judgements_of
from upkeep.grading.key import GRADED_ON
from upkeep.grading.measuring import numbers
from upkeep.grading.metrics import Family
from upkeep.identity import ENGINE_CODE, plan_weights
from upkeep.integrity import Stale, fingerprint, read_sealed, verify_files, write_sealed
from upkeep.jobs import Cell
from upkeep.judges import is_itself
from upkeep.layout import Layout
from upkeep.sources import meaning

CODE = ("judging/judge.py", "grading/judgements.py", "grading/markers.py")
"""What decides which question a judge is asked, and how its reply is read."""
JUDGED = {"probe_id": pl.String, "trial": pl.Int32, "decides": pl.String, "verdict": pl.String, "meaning": pl.String}
"""`verdicts.parquet`: a row for each probe, trial and thing that a judge decides. `verdict` is its word, null where no
reply could be read and where it was not asked; `meaning` is `right`, `outdated`, `wrong`, `unread` (which counts as
wrong), or null where the answer key's words stand."""


class JudgedRecord(Sealed, frozen=True, kw_only=True):
    """`judged.json`: what the verdicts beside it are."""

    cell: str
    judge: str
    made_of: dict[str, str]
    """Predictions, answer key, questions to the judge, judge and code, each with its hash."""
    asked: Count
    """Questions to the judge; of a reply that could not be read, both."""
    files: dict[str, Fingerprint]


@dataclass(frozen=True)
class Judged:
    """A judge's verdicts on a cell."""

    rows: pl.DataFrame
    """JUDGED."""
    asked: int
    seal: str

    @property
    def unread(self) -> int:
        """Responses of which the judge said nothing that can be read."""
        return self.rows.filter(pl.col("meaning") == "unread").height

    def over(self, verdicts: pl.DataFrame) -> pl.DataFrame:
        """A cell's verdicts (with `graded.VERDICTS`) with those of the judge in their place, and a column
        `judged_<name>` for each other thing that it decides, null where it decides nothing."""
        for name in sorted(self.rows["decides"].unique()):
            said = self.rows.filter(pl.col("decides") == name).drop_nulls("meaning")
            said = said.select("probe_id", "trial", said="verdict", meaning="meaning")
            rows = verdicts.join(said, on=["probe_id", "trial"], how="left", maintain_order="left")
            is_judged, is_right = pl.col("meaning").is_not_null(), pl.col("meaning") == "right"
            if name == RIGHT:
                taken = {
                    "verdict": pl.col("said"),
                    "right": is_right,
                    "exact": is_right,
                    "outdated": pl.col("meaning") == "outdated",
                }
            else:
                rows = rows.with_columns(pl.lit(None, pl.Boolean).alias(f"judged_{name}"))
                taken = {f"judged_{name}": is_right}
            chosen = {column: pl.when(is_judged).then(value).otherwise(column) for column, value in taken.items()}
            verdicts = rows.with_columns(**chosen).drop("said", "meaning")
        return verdicts


def decided_by_judges(
    family: Family, graded: pl.DataFrame, retrieved: int, of: Judgements
) -> frozenset[tuple[Any, ...]]:
    """The scores (by `statistics.KEYS`) that a judge decides: those that are not the same of one who finds every
    response right, one who finds every one outdated and one who finds every one wrong. All others are, whoever judges.

    Args:
        graded: `metrics.GRADED_SCHEMA` of a cell.
        of: the dataset's judgements.
    """
    if not of.rubrics:
        return frozenset()
    is_judged = of.placed(graded.unique("probe_id", maintain_order=True))
    by_model = [place for place, one in enumerate(of.of) if one.rubric is not None]
    found = []
    for right, outdated in ((True, False), (False, True), (False, False)):
        rows = graded
        for name in of.decided:
            here = is_judged.filter(pl.col(name).is_in(by_model))["probe_id"]
            meant = pl.col("probe_id").is_in(here.implode())
            said = (
                {"right": right, "exact": right, "outdated": outdated} if name == RIGHT else {f"judged_{name}": right}
            )
            if name != RIGHT:
                rows = rows.with_columns(pl.lit(None, pl.Boolean).alias(f"judged_{name}"))
            taken = {column: pl.when(meant).then(pl.lit(one)).otherwise(column) for column, one in said.items()}
            rows = rows.with_columns(**taken)
        found.append(numbers(family, rows, retrieved))
    first, *others = found
    names = set[tuple[Any, ...]]().union(*found)
    return frozenset(
        name for name in names if any(_differ(first.get(name, math.nan), one.get(name, math.nan)) for one in others)
    )


def _differ(one: float, other: float) -> bool:
    return one != other and not (math.isnan(one) and math.isnan(other))


def judged(catalog: Catalog, cell: Cell, judge: str, manifest: Manifest) -> Judged:
    """A judge's verdicts on a published cell.

    Raises:
        Missing: it has not judged this cell.
        Damaged: the file or its record is not what was written.
        Stale: predictions, answer key, questions, judge or code are others now.
    """
    path, remedy = Layout(catalog.results).judged(judge, cell), f"./upkeep judge {judge}"
    record = read_sealed(path.with_name("judged.json"), JudgedRecord, remedy)
    verify_files(path.parent, record.files, remedy, catalog.hashes)
    now = made_of(catalog, cell, judge, manifest)
    if changed := sorted(name for name in now | record.made_of if now.get(name) != record.made_of.get(name)):
        raise Stale(
            "something has changed since these responses were judged",
            where=path,
            expected="verdicts on what is there now",
            found=f"other {', '.join(changed)}",
            remedy=remedy,
        )
    return Judged(pl.read_parquet(path), record.asked, record.seal or "")


def keep(catalog: Catalog, cell: Cell, judge: str, manifest: Manifest, rows: pl.DataFrame, asked: int) -> None:
    """Write a judge's verdicts (JUDGED) on a cell."""
    path, content = Layout(catalog.results).judged(judge, cell), io.BytesIO()
    rows.select(pl.col(name).cast(kind) for name, kind in JUDGED.items()).write_parquet(content, statistics=False)
    write_atomically(path, content.getbuffer())
    made = made_of(catalog, cell, judge, manifest)
    files = {path.name: fingerprint(path)}
    record = JudgedRecord(cell=str(cell), judge=judge, made_of=made, asked=asked, files=files)
    write_sealed(path.with_name("judged.json"), record)


def made_of(catalog: Catalog, cell: Cell, judge: str, manifest: Manifest) -> dict[str, str]:
    """`JudgedRecord.made_of` as things are now."""
    card, spec = inputs.dataset(catalog, cell.dataset), catalog.dataset(cell.dataset)
    rubrics = [one.rubric for one in judgements_of(catalog, cell.dataset).rubrics if one.rubric]
    parts = [*GRADED_ON, "slices"]
    if any(rubric.passages for rubric in rubrics):
        parts.append("documents")
    key = [spec.equivalence, catalog.prompt_of(cell.dataset).marker, *(card.content[name] for name in parts)]
    return {
        "predictions": manifest.files["predictions.jsonl"].sha256,
        "key": digest(key),
        "questions": questions_of(catalog, cell.dataset),
        **judge_parts(catalog, judge),
    }


def questions_of(catalog: Catalog, dataset: str) -> str:
    """Hash of what a judge is asked about a dataset's responses."""
    return digest(plain(judgements_of(catalog, dataset).of))


def judge_parts(catalog: Catalog, judge: str) -> dict[str, str]:
    """What determines what a judge says, by name."""
    return {
        "judge": digest([plain(part(catalog.model(judge), MODEL, "in")), plan_weights(catalog, judge)]),
        "judge_code": "" if catalog.engine(judge) is None else meaning(catalog, ENGINE_CODE),
        "code": meaning(catalog, CODE),
    }


def has_say(catalog: Catalog, cell: Cell, judge: str) -> bool:
    """Whether a judge has something to say about a cell.

    Raises:
        UpkeepError: the dataset's judgements cannot be read.
    """
    rubrics = [one.rubric for one in judgements_of(catalog, cell.dataset).rubrics if one.rubric]
    return any(not (rubric.others_only and is_itself(catalog, judge, cell.model)) for rubric in rubrics)
