"""What is given away of a suite: its scores, and the predictions of its cells that count, as flat tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from upkeep.catalog import Catalog
from upkeep.contract import Manifest
from upkeep.errors import UpkeepError
from upkeep.grading.became import BECAME
from upkeep.grading.graded import graded
from upkeep.grading.key import read_key
from upkeep.grading.scores import Scores, scores_now
from upkeep.grading.settings import as_text
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.published import predictions

TEXTS = pl.List(pl.String)
PREDICTIONS: dict[str, tuple[pl.DataType | type[pl.DataType], str]] = {
    "cell": (pl.String, "DATASET/METHOD/VARIANT/MODEL"),
    "dataset": (pl.String, "what was asked about"),
    "method": (pl.String, "how the model got to the knowledge"),
    "variant": (pl.String, "the method's setting"),
    "model": (pl.String, "who answered; `none` where a method calls no model"),
    "probe_id": (pl.String, "one question at one point of a stream"),
    "question_id": (pl.String, "the question, whenever it is asked"),
    "stream": (pl.String, "the run of documents that had arrived in part"),
    "position": (pl.Int32, "of the last document that had arrived"),
    "trial": (pl.Int32, "from 0, where a probe is asked several times"),
    "question": (pl.String, "its words"),
    "form": (pl.String, "short, choice or label"),
    "response": (pl.String, "the model's raw text; null where there is none"),
    "reasoning": (pl.String, "the thinking text of a reasoning model"),
    "answer": (pl.String, "what was read in the response"),
    "parse": (pl.String, "how it was read"),
    "verdict": (pl.String, "right, outdated (it was right before), wrong, unread or failed, by the answer key's words"),
    "right": (pl.Boolean, "whether it is right"),
    "answers": (TEXTS, "what would be right"),
    "outdated_answers": (TEXTS, "what was right before"),
    "retrieved": (TEXTS, "documents that were retrieved, best first"),
    "evidence": (TEXTS, "documents that tell what is right"),
    "prompt_tokens": (pl.Int64, "of all calls behind the answer"),
    "completion_tokens": (pl.Int64, "the same, generated"),
    "error": (pl.String, "why there is no answer; null where there was no failure"),
}
"""Columns of a prediction, each with what it is."""


@dataclass(frozen=True)
class Exported:
    """A suite whose scores are as things are now."""

    scores: Scores
    cells: dict[Cell, Manifest]
    """Those that count."""

    @classmethod
    def of(cls, catalog: Catalog, suite: str) -> Exported:
        """Raises UpkeepError where no cell of the suite counts."""
        scores = scores_now(catalog, suite)
        cells = {cell: found.manifest for cell, found in scores.basis.cells.items() if found.manifest is not None}
        if not cells:
            raise UpkeepError(
                f"no cell of suite {suite!r} is complete, so there is nothing to export",
                expected="cells that count",
                remedy=f"./upkeep status {suite} says what is missing, ./upkeep run {suite} makes it",
            )
        return cls(scores, cells)

    @property
    def catalog(self) -> Catalog:
        return self.scores.basis.catalog

    @property
    def suite(self) -> str:
        return self.scores.basis.suite

    def score_rows(self) -> pl.DataFrame:
        """`score.SCORE_SCHEMA` without `table`, `setting` as text."""
        return as_text(self.scores.own.drop("table"))

    def prediction_rows(self) -> Iterator[tuple[Cell, pl.DataFrame]]:
        """Each cell with its predictions (PREDICTIONS), in the order of the suite."""
        for cell, manifest in self.cells.items():
            yield cell, _rows(self.catalog, cell, manifest)


def _rows(catalog: Catalog, cell: Cell, manifest: Manifest) -> pl.DataFrame:
    folder = Layout(catalog.results).dataset(cell.dataset)
    key = read_key(catalog, cell.dataset).asked_of(manifest)
    verdicts = graded(catalog, cell, manifest, key).with_key(key, manifest.trials).with_columns(became=BECAME)
    probes = pl.read_parquet(folder / "probes.parquet").select("probe_id", "stream", "question")
    gold = pl.read_parquet(folder / "gold.parquet").select(
        "probe_id", "answers", "evidence", outdated_answers="outdated"
    )
    said = pl.DataFrame(
        [
            (one.probe_id, one.trial, one.response, one.reasoning, [hit.id for hit in one.retrieved], one.error)
            for one in predictions(catalog, cell)
        ],
        schema={"probe_id": pl.String, "trial": pl.Int32, "response": pl.String, "reasoning": pl.String,
                "retrieved": TEXTS, "error": pl.String},
        orient="row",
    )  # fmt: skip
    names = {name: getattr(cell, name) for name in ("dataset", "method", "variant", "model")}
    return (
        verdicts.drop("verdict")
        .rename({"became": "verdict"})
        .join(probes, on="probe_id", how="left", maintain_order="left")
        .join(gold, on="probe_id", how="left", maintain_order="left")
        .join(said, on=["probe_id", "trial"], how="left", maintain_order="left")
        .with_columns(cell=pl.lit(str(cell)), **{name: pl.lit(value) for name, value in names.items()})
        .select(pl.col(name).cast(kind) for name, (kind, _) in PREDICTIONS.items())
    )
