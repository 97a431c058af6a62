"""One cell to scores: its verdicts, measured, in one tidy table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import polars as pl

from upkeep.catalog import Catalog, Cell, TrainedModel
from upkeep.contract import DatasetSpec, Manifest
from upkeep.errors import UpkeepError
from upkeep.grading import answers, oaks
from upkeep.grading.graded import Graded, counted
from upkeep.grading.key import Key
from upkeep.grading.statistics import estimate

SCORE_SCHEMA = {
    "table": pl.String,
    "label": pl.String,
    "model": pl.String,
    "method": pl.String,
    "supervision": pl.String,
    "setting": pl.String,
    "dataset": pl.String,
    "subset": pl.String,
    "metric": pl.String,
    "value": pl.Float64,
    "unit": pl.String,
    "n": pl.Int64,
    "questions": pl.Int64,
    "se": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "cell": pl.String,
    "dataset_id": pl.String,
    "trained": pl.Boolean,
    "predictions": pl.Int64,
    "unread": pl.Int64,
    "failed": pl.Int64,
}
"""`results/scores/scores.parquet`: the columns of papers/FORMAT.md (`table` empty), then
`n` predictions and `questions` behind the value, standard error and 95% interval (`statistics`), the cell, the dataset
that was really run (`dataset` is the paper's one that it stands for), whether the model is a trained one, and how many
predictions the whole cell has, how many of them hold no answer that can be read, and how many failed."""

METRICS: Mapping[str, Callable[[pl.DataFrame, int], pl.DataFrame]] = {"oaks": oaks.measure, "answers": answers.measure}
"""Metric families, by the name that `dataset.yaml` gives in `metrics`."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What the rows of one cell have in common."""

    label: str
    model: str
    method: str
    supervision: str
    setting: str
    dataset: str
    dataset_id: str
    trained: bool


def identify(catalog: Catalog, cell: Cell) -> Identity:
    """What a cell is called in a table: the ids and settings of papers/FORMAT.md.

    The model of `qwen3-4b+sft.lora` is `Qwen3-4B` with the method `sft+<method>` and the setting `adapter=lora`, as
    the papers print it.
    """
    card = catalog.method(cell.method)
    dataset = catalog.dataset(cell.dataset)
    method, supervision = cell.method, card.supervision
    setting = settings(card.settings, card.variants[cell.variant])
    label, model, is_trained = card.label, "", True
    if card.model:
        trained = TrainedModel.parse(cell.model)
        if trained:
            trainer = catalog.method(trained.method)
            method, supervision = f"{trained.method}+{method}", trainer.supervision
            label = f"{trainer.label} + {label}"
            setting = settings(trainer.settings, trainer.variants[trained.variant]) + setting
        spec = catalog.spec(cell.model)
        model, is_trained = spec.label, spec.trained
        setting.append(f"thinking={spec.thinking}")
    return Identity(
        label=label,
        model=model,
        method=method,
        supervision=supervision,
        setting=";".join(setting),
        dataset=dataset.stands_for or cell.dataset,
        dataset_id=cell.dataset,
        trained=is_trained,
    )


def settings(names: Iterable[str], parameters: Mapping[str, object]) -> list[str]:
    """`key=value` of the parameters that tables print; those that a variant does not set are left out."""
    return [f"{name}={_printed(parameters[name])}" for name in names if parameters.get(name) is not None]


def _printed(value: object) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def score_cell(
    found: Graded, manifest: Manifest, cell: Cell, identity: Identity, key: Key, spec: DatasetSpec
) -> pl.DataFrame:
    """Score one published cell.

    Args:
        found: its verdicts.
        manifest: its manifest, verified (`published`).
        key: answer key of its dataset (`read_key`).

    Returns:
        SCORE_SCHEMA.

    Raises:
        UpkeepError: there is no such family of metrics.
    """
    if spec.metrics not in METRICS:
        raise UpkeepError(f"unknown metric family {spec.metrics!r}", expected=f"one of {', '.join(METRICS)}")
    graded = found.with_key(key, manifest.trials)
    scores = estimate(METRICS[spec.metrics](graded, found.retrieved))
    at = pl.when(pl.col("at").is_null()).then(pl.lit("")).otherwise(pl.format(";at={}", "at"))
    return tidy(
        scores.with_columns(
            label=pl.lit(identity.label),
            model=pl.lit(identity.model),
            method=pl.lit(identity.method),
            supervision=pl.lit(identity.supervision),
            setting=(pl.lit(identity.setting) + at).str.strip_chars(";"),
            dataset=pl.lit(identity.dataset),
            dataset_id=pl.lit(identity.dataset_id),
            unit=pl.lit("percent"),
            cell=pl.lit(str(cell)),
            trained=pl.lit(identity.trained),
            predictions=pl.lit(len(graded)),
            **{name: pl.lit(count) for name, count in counted(graded).items()},
        )
    )


def tidy(rows: pl.DataFrame) -> pl.DataFrame:
    """Bring a frame to SCORE_SCHEMA; a text column that it lacks is empty, a number null."""
    return rows.select(
        (pl.col(name) if name in rows.columns else pl.lit("" if kind == pl.String else None).alias(name)).cast(kind)
        for name, kind in SCORE_SCHEMA.items()
    )
