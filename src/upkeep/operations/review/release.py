"""What a release records of a suite: every score, and of every prediction what it was, in a few bytes."""

from __future__ import annotations

import contextlib
import io
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import msgspec
import polars as pl

from upkeep import __version__
from upkeep.catalog import Catalog
from upkeep.cell.machine import _cpu_model
from upkeep.contract import Checkout, Count, Fingerprint, Manifest, Prediction, Record, Sealed, Sha256
from upkeep.errors import UpkeepError
from upkeep.files import digest, open_regular, write_atomically
from upkeep.grading.scores import Scores, scores_now
from upkeep.grading.settings import as_text
from upkeep.integrity import fingerprint, read_sealed, verify_files, write_sealed
from upkeep.machine.checkout import checkout
from upkeep.published import predictions

SCORES, ANSWERS, RELEASE = "scores.parquet", "answers.parquet", "release.json"
KEY = ("cell", "dataset", "subset", "metric", "setting")
"""What tells a score of a suite from every other; its settings are text (`settings.printed`)."""
NUMBERS = ("value", "low", "high")
DECIDED: dict[str, tuple[str, ...]] = {
    "method": (
        *("method_code", "parameters", "command", "aliases", "one_at_a_time", "per_question", "max_calls", "sees"),
        "streams",
    ),
    "data": (
        *("documents", "probes", "examples", "evidence", "answers", "outdated", "slices", "pairs", "chunk_tokens"),
        "dataset_version",
    ),
    "prompt": ("prompt",),
    "model": ("model_spec", "writer_spec", "embedder_spec", "engine"),
    "weights": ("weights", "writer_weights", "embedder_weights"),
    "asking": ("seed", "trials"),
}
"""What decides a cell's answers, each with the parts of an identity (`upkeep.identity`) that it is."""
CODE = "code"
"""The rest of them: the suite's own code that all cells share, and locked packages."""
FEATURES = ("avx", "avx2", "fma", "avx512f", "avx512_bf16", "avx512_vnni", "amx_tile", "asimd")
"""Instructions by which a library for matrices chooses how it adds."""
SHORT = 16
"""Hex digits of a hash that tells two things apart and protects against nobody."""
MARK = pl.col("said").str.slice(0, 4).str.to_integer(base=16, dtype=pl.UInt16)
"""What is kept of an answer's hash: it says where a cell that its whole hash tells from another differs."""


class Processor(Record, frozen=True, kw_only=True):
    """What decides in which order a CPU adds, so whether answers are the same bytes."""

    machine: str
    features: list[str]


class RecordedCell(Record, frozen=True, kw_only=True):
    """A cell as it was."""

    predictions: Count
    answers: Sha256
    """Hash of all of them (`hash_of`)."""
    decided: dict[str, str]
    """What decided them (DECIDED, and CODE), each with a hash."""
    packages: str
    """Hash of the packages of what served it; empty where no model was asked."""
    processor: Processor | None
    """Of the machine that served it, where that is known: null where no model was asked, or one behind an endpoint, or
    on GPUs, or on another CPU than that of the machine that looks."""


class Release(Sealed, frozen=True, kw_only=True):
    """`releases/<suite>/release.json`."""

    version: Literal[1] = 1
    suite: str
    upkeep: str
    checkout: Checkout | None
    cells: dict[str, RecordedCell]
    files: dict[str, Fingerprint]
    """`scores.parquet` (KEY, NUMBERS, n) and `answers.parquet` (cell, probe_id, trial, mark)."""


def read(catalog: Catalog, suite: str) -> tuple[Release, pl.DataFrame, pl.DataFrame]:
    """What was recorded, its scores, and the marks of its answers.

    Raises:
        Missing: nothing was.
        Damaged: it is not what was written.
    """
    folder, remedy = catalog.release(suite), f"./upkeep review {suite} --record, or take the release's files"
    release = read_sealed(folder / RELEASE, Release, remedy)
    verify_files(folder, release.files, remedy)
    return release, pl.read_parquet(folder / SCORES), pl.read_parquet(folder / ANSWERS)


def record(catalog: Catalog, suite: str) -> Release:
    """Write down a suite as it stands.

    Raises:
        UpkeepError: a cell of it does not count, or nothing tells two of its scores apart.
    """
    at = checkout(catalog.root)  # before a file of the release is there, which git would call a change
    scores = scores_now(catalog, suite)
    found = {str(cell): (cell, one.manifest) for cell, one in scores.basis.cells.items() if one.manifest is not None}
    if lacking := [str(cell) for cell in scores.basis.cells if str(cell) not in found] + scores.unscored:
        raise UpkeepError(
            f"{len(lacking)} cells of suite {suite!r} have no scores, so there is no release to record",
            found=", ".join(lacking[:5]),
            remedy=f"./upkeep run {suite}",
        )
    numbers, folder = numbers_of(scores), catalog.release(suite)
    folder.mkdir(parents=True, exist_ok=True)
    cells, marked = {}, []
    for name, (cell, manifest) in found.items():
        marks = marks_of(predictions(catalog, cell))
        cells[name] = recorded(manifest, marks)
        marked.append(marks.select(pl.lit(name).alias("cell"), "probe_id", "trial", mark=MARK))
    answers = pl.concat(marked)
    for name, table in ((SCORES, numbers), (ANSWERS, answers)):
        content = io.BytesIO()
        table.write_parquet(content, compression="zstd", compression_level=19)
        write_atomically(folder / name, content.getbuffer())
    release = Release(
        suite=suite,
        upkeep=__version__,
        checkout=at,
        cells=cells,
        files={name: fingerprint(folder / name) for name in (SCORES, ANSWERS)},
    )
    return write_sealed(folder / RELEASE, release)


def numbers_of(scores: Scores) -> pl.DataFrame:
    """The scores of a suite's own cells: KEY, NUMBERS, n.

    Raises:
        UpkeepError: nothing tells two of them apart.
    """
    found = as_text(scores.own).select(*KEY, *NUMBERS, "n")
    if len(twice := found.filter(pl.struct(KEY).is_duplicated())):
        raise UpkeepError(
            f"suite {scores.basis.suite!r} has {len(twice)} scores that nothing tells from another one",
            expected=f"one number for each {', '.join(KEY)}",
            found=", ".join(twice.row(0)[: len(KEY)]),
            remedy="name the metric, its subset or its setting otherwise in the paper's metrics.py",
        )
    return found


def marks_of(said: Iterable[Prediction]) -> pl.DataFrame:
    """(probe_id, trial, said) of predictions: a hash of what a model said and what was retrieved for it, in order."""
    rows = [(one.probe_id, one.trial, _mark(one)) for one in said]
    return pl.DataFrame(rows, schema={"probe_id": pl.String, "trial": pl.Int32, "said": pl.String}, orient="row")


def _mark(one: Prediction) -> str:
    hits = [hit.id for hit in one.retrieved]
    return digest([one.response, one.reasoning, hits, one.error is not None, one.values])[:SHORT]


def recorded(manifest: Manifest, marks: pl.DataFrame) -> RecordedCell:
    """A cell by its manifest and the marks of its answers."""
    served = manifest.environment.served
    asked = bool(served) or manifest.environment.engine == "endpoint"
    return RecordedCell(
        predictions=len(marks),
        answers=digest(marks.rows()),
        decided=decided(manifest),
        packages=digest([one.packages for _, one in sorted(served.items())])[:SHORT] if asked else "",
        processor=processor() if served and all(_on_this_cpu(one.hardware) for one in served.values()) else None,
    )


def _on_this_cpu(hardware: Mapping[str, object]) -> bool:
    """Whether an engine says that it ran without GPUs, on the CPU of this machine as a cell would name it."""
    return hardware.get("gpus") == [] and hardware.get("cpu") == _cpu_model()


def decided(manifest: Manifest) -> dict[str, str]:
    """What decided a cell's answers, each with a hash."""
    left = dict(manifest.identity_parts)
    for name in ("task", "dataset", "method", "variant", "model"):
        left.pop(name, None)
    found = {name: {part: left.pop(part) for part in parts if part in left} for name, parts in DECIDED.items()}
    return {name: digest(parts)[:SHORT] for name, parts in (*found.items(), (CODE, left)) if parts}


def processor() -> Processor:
    """This machine's."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features"))), [])
    return Processor(machine=platform.machine(), features=[name for name in FEATURES if name in flags])


def lying(folder: Path) -> Iterable[Prediction]:
    """What lies in a published folder, whether or not it is what was written; lines that are none are left out."""
    decoder = msgspec.json.Decoder(Prediction)
    with contextlib.suppress(UpkeepError), open_regular(folder / "predictions.jsonl") as file:
        for line in file:
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                yield decoder.decode(line)
