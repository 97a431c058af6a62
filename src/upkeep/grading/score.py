"""One cell to scores: its verdicts, measured, in one tidy table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from upkeep.catalog import Catalog
from upkeep.contract import DatasetCard, DatasetSpec, Manifest, Provenance
from upkeep.grading.graded import Graded, counted
from upkeep.grading.judged import Judged, decided_by_judges
from upkeep.grading.judgements import NONE, WORDS, Judgements
from upkeep.grading.key import Key
from upkeep.grading.measuring import Place, crossed, measured
from upkeep.grading.metrics import Family, Second
from upkeep.grading.resampling import Draws, Floats
from upkeep.grading.settings import SETTING, Pairs, column
from upkeep.grading.statistics import KEYS
from upkeep.jobs import Cell, TrainedModel
from upkeep.method_cards import supervision_of

SCORE_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "table": pl.String,
    "label": pl.String,
    "model": pl.String,
    "method": pl.String,
    "supervision": pl.String,
    "setting": SETTING,
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
    "provenance": pl.String,
    "stand_in": pl.String,
    "trained": pl.Boolean,
    "predictions": pl.Int64,
    "unread": pl.Int64,
    "failed": pl.Int64,
}
"""`results/scores/<suite>/scores.parquet`: the columns of papers/FORMAT.md (`table` empty, `setting` as pairs), then
`n` predictions and `questions` behind the value, standard error and 95% interval (`statistics`), the cell, the dataset
that was really run (`dataset` is the paper's one that it stands for), its provenance (`contract.Provenance`), which
stand-in it is (`mini`; empty for what is none), whether the model is a trained one, and how many predictions the whole
cell has, how many of them hold no answer that can be read, of a method that answers, and how many failed."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What the rows of one cell have in common."""

    label: str
    model: str
    method: str
    supervision: str
    setting: Pairs
    dataset: str
    dataset_id: str
    provenance: Provenance
    stand_in: str
    trained: bool
    cutoff: str | None = None
    """The model's knowledge cut-off, ISO 8601."""
    measures: bool = False
    """Whether the method measures in place of answering."""


def identify(catalog: Catalog, cell: Cell, built: DatasetCard | None) -> Identity:
    """What a cell is called in a table: the ids and settings of papers/FORMAT.md.

    The model of `qwen3-4b+sft.lora` is `Qwen3-4B` with the method `sft+<method>` and the setting `adapter=lora`, as
    the papers print it. A named training set is the setting `scope`, another dataset than the cell's `trained_on`, an
    embedder that a variant chooses, or that is not the paper's, `retriever`.

    Args:
        built: the card of its dataset; without one, its provenance is what `dataset.yaml` says that it would be.
    """
    card = catalog.method(cell.method)
    dataset = catalog.dataset(cell.dataset)
    method, supervision = cell.method, supervision_of(card, cell.variant)
    setting = settings(card.settings, card.variants[cell.variant])
    label, model, is_trained, cutoff = card.label, "", True, None
    if card.model:
        chosen = card.variants[cell.variant].keys() & {"embedder", "embedder_gpu"}
        embedder, papers = catalog.asked(cell).get("embedder"), card.embedder_gpu or card.embedder
        if embedder and (chosen or embedder != papers):
            setting.append(("retriever", catalog.spec(embedder).label))
        trained = TrainedModel.parse(cell.model)
        if trained:
            trainer = catalog.method(trained.method)
            method, supervision = f"{trained.method}+{method}", supervision_of(trainer, trained.variant)
            label = f"{trainer.label} + {label}"
            setting = settings(trainer.settings, trainer.variants[trained.variant]) + setting
            setting += [("trained_on", trained.dataset)] if trained.dataset not in ("", cell.dataset) else []
            setting += [("scope", trained.set)] if trained.set else []
        spec = catalog.spec(cell.model)
        model, is_trained, cutoff = spec.label, spec.trained, spec.cutoff
        setting.append(("thinking", spec.thinking))
    return Identity(
        label=label,
        model=model,
        method=method,
        supervision=supervision,
        setting=tuple(setting),
        dataset=printed_as(catalog, cell.dataset),
        dataset_id=cell.dataset,
        provenance=built.provenance if built else dataset.provenance,
        stand_in=stand_in(cell.dataset, dataset),
        trained=is_trained,
        cutoff=cutoff,
        measures=card.measures,
    )


def printed_as(catalog: Catalog, dataset: str) -> str:
    """The paper's dataset that tables print a dataset's scores under: the one that it stands for, and where that is a
    part of another one, the whole."""
    own = catalog.dataset(dataset).stands_for or dataset
    return (catalog.dataset(own).part_of if catalog.has_dataset(own) else None) or own


def stand_in(name: str, spec: DatasetSpec) -> str:
    """Which stand-in for a paper's dataset one is: `mini` for `oaks_babi_mini`, empty for the dataset itself."""
    return "" if spec.stands_for is None else name.removeprefix(spec.stands_for).strip("_-")


def settings(names: Iterable[str], parameters: Mapping[str, object]) -> list[tuple[str, str]]:
    """The parameters that tables print; those that a variant does not set are left out."""
    return [(name, _printed(parameters[name])) for name in names if parameters.get(name) is not None]


def _printed(value: object) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class Scored:
    """The scores of a cell."""

    rows: pl.DataFrame
    """SCORE_SCHEMA."""
    resamples: Floats
    """(rows, RESAMPLES): their values on resamples of the questions (`measuring.Measured`)."""


def score_cell(
    found: Graded,
    manifest: Manifest,
    cell: Cell,
    identity: Identity,
    key: Key,
    family: Family,
    draws: Draws,
    seconds: Mapping[Second, Graded] | None = None,
    of: Judgements = NONE,
    judges: Mapping[str, Judged] | None = None,
) -> Scored:
    """Score one published cell.

    A score that a judge decides has the setting `judge`: who it was, or WORDS where the answer key's words said what is
    right. Metrics that set a second cell beside this one are by its words alone.

    Args:
        found: its verdicts.
        manifest: its manifest, verified (`published`).
        key: answer key of its dataset (`read_key`).
        family: its dataset's metrics (`metric_families.family_of`).
        draws: of its dataset's questions.
        seconds: verdicts of the cells that metrics set beside it; a metric whose second cell is not there has no row.
        of: its dataset's judgements.
        judges: what each judge said of it.

    Raises:
        UpkeepError: a metric fails, or gives something else than it should; or a second cell has other probes.
    """
    rows = found.with_key(key, manifest.trials).with_columns(model_cutoff=pl.lit(identity.cutoff, pl.String))
    graded, places = crossed(family, rows)
    beside = {second: verdicts.rows for second, verdicts in (seconds or {}).items()}
    decided = decided_by_judges(family, graded, found.retrieved, of)
    parts = [(WORDS, measured(family, graded, found.retrieved, beside, draws))]
    for judge, said in (judges or {}).items():
        by_judge = measured(family, said.over(graded), found.retrieved, {}, draws)
        parts.append((judge, by_judge.only(decided)))
    tables = []
    for judge, made in parts:
        keys = made.scores.select(KEYS).rows()
        at = [() if k is None else (("at", str(k)),) for _, _, k in keys]
        by = [(("judge", judge),) if name in decided else () for name in keys]
        found_at = [places.get(subset) or Place(subset) for subset, _, _ in keys]
        pairs = zip(found_at, by, at, strict=True)
        tables.append(
            made.scores.with_columns(
                setting=column(identity.setting + place.setting + who + k for place, who, k in pairs),
                dataset=pl.Series([identity.dataset + place.dataset for place in found_at], dtype=pl.String),
                subset=pl.Series([place.subset for place in found_at], dtype=pl.String),
            )
        )
    became = counted(graded) | ({"unread": 0} if identity.measures else {})
    rows = tidy(
        pl.concat(tables).with_columns(
            label=pl.lit(identity.label),
            model=pl.lit(identity.model),
            method=pl.lit(identity.method),
            supervision=pl.lit(identity.supervision),
            dataset_id=pl.lit(identity.dataset_id),
            provenance=pl.lit(identity.provenance),
            stand_in=pl.lit(identity.stand_in),
            cell=pl.lit(str(cell)),
            trained=pl.lit(identity.trained),
            predictions=pl.lit(len(graded)),
            **{name: pl.lit(count) for name, count in became.items()},
        )
    )
    return Scored(rows, np.concatenate([made.resamples for _, made in parts]))


def tidy(rows: pl.DataFrame) -> pl.DataFrame:
    """Bring a frame to SCORE_SCHEMA; a text column that it lacks is empty, a number null, and there are no settings."""
    empty = {"setting": pl.lit([], SETTING)}
    return rows.select(
        (
            pl.col(name)
            if name in rows.columns
            else empty.get(name, pl.lit("" if kind == pl.String else None)).alias(name)
        ).cast(kind)
        for name, kind in SCORE_SCHEMA.items()
    )
