"""One cell to scores: grade its predictions against the answer key, measure, in one tidy table."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import polars as pl
from msgspec import Struct

from upkeep import inputs
from upkeep.catalog import Catalog, Cell, TrainedModel
from upkeep.contract import DatasetSpec, Manifest
from upkeep.errors import UpkeepError
from upkeep.files import open_regular
from upkeep.grading import answers, oaks
from upkeep.grading.matching import Equivalence, canonical
from upkeep.grading.statistics import estimate
from upkeep.integrity import NOTHING_KNOWN, Damaged, Hashes

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
    "failed": pl.Int64,
}
"""`results/scores/scores.parquet`: the columns of papers/FORMAT.md (`table` empty), then
`n` predictions and `questions` behind the value, standard error and 95% interval (`statistics`), the cell, the dataset
that was really run (`dataset` is the paper's one that it stands for), whether the model is a trained one, and how many
predictions the whole cell has and how many of them failed."""

METRICS: Mapping[str, Callable[[pl.DataFrame, int], pl.DataFrame]] = {"oaks": oaks.measure, "answers": answers.measure}
"""Metric families, by the name that `dataset.yaml` gives in `metrics`."""

_BLOCK = 1 << 16
"""Bytes of predictions that are decoded at once: few enough to stay in a processor's cache."""


class _Hit(Struct, gc=False):
    id: str
    rank: int


class _Line(Struct, gc=False):
    """The fields of a prediction that scoring needs; the others are skipped without being built."""

    probe_id: str
    trial: int
    answer: str | None
    parse: str
    error: str | None
    retrieved: list[_Hit]


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


@dataclass(frozen=True, slots=True)
class Key:
    """A dataset's answer key, ready for grading."""

    probes: pl.DataFrame
    """probe_id, question_id, position, form, phase, slice_*, has_evidence: one row a probe."""
    accepted: pl.DataFrame
    """probe_id, answer: every accepted answer in canonical form, each once."""
    outdated: pl.DataFrame
    """probe_id, answer: the same of answers that were right before."""
    gold_chunk: dict[str, str]
    """probe_id -> document where the present answer began; absent before anything is known."""
    equivalence: Equivalence


def read_key(folder: Path, equivalence: Equivalence, hashes: Hashes = NOTHING_KNOWN) -> Key:
    """Read a dataset's answer key.

    Raises:
        Missing, Damaged: the dataset is not there, or not what was built.
    """
    inputs.verify_dataset(folder, hashes)
    gold = pl.read_parquet(folder / "gold.parquet")
    probes = pl.read_parquet(folder / "probes.parquet", columns=["probe_id", "question_id", "position", "form"])

    def column(name: str) -> pl.DataFrame:
        listed = gold.select("probe_id", answer=name).explode("answer").drop_nulls()
        formed = listed.join(probes.select("probe_id", "form"), on="probe_id", how="left", maintain_order="left")
        return canonical_answers(formed, equivalence).select("probe_id", "answer").unique(maintain_order=True)

    evident = gold.filter(pl.col("evidence").list.len() > 0).select("probe_id", pl.col("evidence").list.last())
    slices = [name for name in gold.columns if name.startswith("slice_")]
    return Key(
        probes=probes.join(
            gold.select("probe_id", "phase", *slices, has_evidence=pl.col("evidence").list.len() > 0),
            on="probe_id",
            how="left",
            maintain_order="left",
        ),
        accepted=column("answers"),
        outdated=column("outdated"),
        gold_chunk=dict(evident.iter_rows()),
        equivalence=equivalence,
    )


def canonical_answers(rows: pl.DataFrame, equivalence: Equivalence) -> pl.DataFrame:
    """`rows` with the column `answer` in canonical form where `form` is `short`; letters and labels stay."""
    own = canonical(rows["answer"], equivalence.canonical)
    return rows.with_columns(answer=pl.when(pl.col("form") == "short").then(own).otherwise("answer"))


def read_predictions(folder: Path, manifest: Manifest, gold_chunk: Mapping[str, str]) -> tuple[pl.DataFrame, int]:
    """Read a published cell's predictions in one pass, hashing as it goes.

    Returns:
        A frame of probe_id, trial, answer, parsed, failed and rank (of the gold chunk among the retrieved ones), and
        the most documents that any prediction retrieved.

    Raises:
        UpkeepError: the file is not there or not the one that the manifest describes, or a line is no prediction.
    """
    path = folder / "predictions.jsonl"
    decoder = msgspec.json.Decoder(_Line)
    digest = hashlib.sha256()
    ids: list[str] = []
    trials: list[int] = []
    answers: list[str | None] = []
    parsed: list[bool] = []
    failed: list[bool] = []
    ranks: list[int | None] = []
    most = 0
    with open_regular(path) as file:
        while lines := file.readlines(_BLOCK):
            block = b"".join(lines)
            digest.update(block)
            try:
                records = decoder.decode_lines(block)
            except (msgspec.DecodeError, UnicodeDecodeError):
                raise _not_a_prediction(decoder, lines, len(ids), path) from None
            ids += [record.probe_id for record in records]
            trials += [record.trial for record in records]
            answers += [record.answer for record in records]
            parsed += [record.parse != "none" and record.answer is not None for record in records]
            failed += [record.error is not None for record in records]
            ranks += [_rank(record.retrieved, gold_chunk.get(record.probe_id)) for record in records]
            most = max(most, max((len(record.retrieved) for record in records), default=0))
    # Once more, for it may have changed since the cell was verified.
    wanted = manifest.files.get(path.name)
    if wanted is None or wanted.sha256 != digest.hexdigest():
        raise Damaged(
            "the predictions are not the ones that the manifest describes",
            where=path,
            expected=f"sha256 {wanted.sha256 if wanted else 'of a file that is not named'}",
            found=f"sha256 {digest.hexdigest()}",
            remedy="run the cell again with --force",
        )
    columns = {"probe_id": ids, "trial": trials, "answer": answers, "parsed": parsed, "failed": failed, "rank": ranks}
    schema = {"trial": pl.Int32, "rank": pl.Int32, "answer": pl.String}
    return pl.DataFrame(columns, schema_overrides=schema), most


def _rank(retrieved: list[_Hit], document: str | None) -> int | None:
    """Rank of a document among the retrieved ones."""
    for hit in retrieved:
        if hit.id == document:
            return hit.rank
    return None


def _not_a_prediction(
    decoder: msgspec.json.Decoder[_Line], lines: Iterable[bytes], before: int, path: Path
) -> UpkeepError:
    """The error that names the first broken line of a block."""
    for number, line in enumerate(lines, before + 1):
        try:
            decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            problem = f"line {number} is no prediction: {error}"
            return UpkeepError(problem, where=path, remedy="run the cell again with --force")
    return UpkeepError(f"not readable from line {before + 1} on", where=path, remedy="run the cell again with --force")


def grade(key: Key, predictions: pl.DataFrame, trials: int) -> pl.DataFrame:
    """Join predictions to the answer key: one row for each probe and trial (oaks.GRADED_SCHEMA).

    A probe without a prediction gets a row that is wrong, unparsed and failed: nothing leaves the denominator. A
    prediction with an error is wrong whatever its answer.

    Raises:
        UpkeepError: a prediction for a probe or trial that does not exist, or two for the same.
    """
    expected = key.probes.join(pl.DataFrame({"trial": pl.int_range(trials, dtype=pl.Int32, eager=True)}), how="cross")
    keys = ["probe_id", "trial"]
    unknown = predictions.join(expected, on=keys, how="anti")
    if not unknown.is_empty():
        raise UpkeepError("a prediction for an unknown probe or trial", found=unknown.select(keys).row(0))
    twice = predictions.filter(pl.struct(keys).is_duplicated())
    if not twice.is_empty():
        raise UpkeepError("two predictions for the same probe and trial", found=twice.select(keys).row(0))
    given = predictions.with_columns(answer=pl.when(~pl.col("failed")).then("answer"))
    graded = canonical_answers(expected.join(given, on=keys, how="left", maintain_order="left"), key.equivalence)
    right = _matches(graded, key.accepted, key.equivalence)
    return graded.with_columns(
        right=right,
        outdated=_matches(graded, key.outdated, key.equivalence) & ~right,
        parsed=pl.col("parsed").fill_null(value=False),
        failed=pl.col("failed").fill_null(value=True),
    )


def _matches(graded: pl.DataFrame, answers: pl.DataFrame, equivalence: Equivalence) -> pl.Series:
    """Whether each answer is one of those listed for its probe, or names one of them."""
    listed = answers.rename({"answer": "listed"})
    pairs = graded.select("probe_id", "answer", "form").with_row_index("row").join(listed, on="probe_id")
    hit = pl.col("answer") == pl.col("listed")
    if equivalence.within:
        named = pl.format(" {} ", "answer").str.contains(pl.format(" {} ", "listed"), literal=True)
        hit |= (pl.col("form") == "short") & named
    rows = pairs.filter(hit & (pl.col("listed") != ""))["row"].unique()
    found = (
        pl.Series("found", [False]).new_from_index(0, len(graded)) if len(graded) else pl.Series([], dtype=pl.Boolean)
    )
    return found.scatter(rows, True) if len(rows) else found


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
    folder: Path, manifest: Manifest, cell: Cell, identity: Identity, key: Key, spec: DatasetSpec
) -> pl.DataFrame:
    """Score one published cell.

    Args:
        folder: the cell's published folder.
        manifest: its manifest, verified (`published`).
        key: answer key of its dataset (`read_key`).

    Returns:
        SCORE_SCHEMA.

    Raises:
        UpkeepError: the cell's manifest and files, or the manifest and the dataset, do not agree.
    """
    predictions, retrieved = read_predictions(folder, manifest, key.gold_chunk)
    for what, expected, found in (
        ("name", manifest.cell, str(cell)),
        ("number of predictions", manifest.probes * manifest.trials, len(predictions)),
        ("number of probes", manifest.probes, len(key.probes)),
    ):
        if expected != found:
            raise UpkeepError(
                f"manifest and files do not agree: {what}",
                where=folder / "manifest.json",
                expected=expected,
                found=found,
                remedy="run the cell again with --force",
            )
    if spec.metrics not in METRICS:
        raise UpkeepError(f"unknown metric family {spec.metrics!r}", expected=f"one of {', '.join(METRICS)}")
    graded = grade(key, predictions, manifest.trials)
    scores = estimate(METRICS[spec.metrics](graded, retrieved))
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
            failed=pl.lit(graded["failed"].sum()),
        )
    )


def tidy(rows: pl.DataFrame) -> pl.DataFrame:
    """Bring a frame to SCORE_SCHEMA; a text column that it lacks is empty, a number null."""
    return rows.select(
        (pl.col(name) if name in rows.columns else pl.lit("" if kind == pl.String else None).alias(name)).cast(kind)
        for name, kind in SCORE_SCHEMA.items()
    )
