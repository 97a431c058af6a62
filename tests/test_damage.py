"""Damage to any file that a step reads, of any kind: refused by name, or healed, or without effect on a number.

Every file is damaged in every fourth way (with UPKEEP_DAMAGE=all in every one), each time in a fresh copy of one small
repository with a complete suite; then the commands are called that read it. None may end in a traceback, take long, or
print another number than before.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import polars as pl
import pytest

from host_fakes import TRAINED_FILES, ScriptedRuntime, training
from suite_fakes import (
    BEGUN,
    CELLS,
    IMAGE_RECORD,
    PLAIN,
    TRAINING,
    called,
    make,
    numbers,
    printed,
    with_begun,
    workflow,
)
from upkeep.contract import DatasetCard, Manifest
from upkeep.errors import UpkeepError
from upkeep.grading.scores import ScoresRecord
from upkeep.images.records import ImageRecord
from upkeep.integrity import fingerprint, write_sealed
from upkeep.layout import Layout
from upkeep.weights import WeightsRecord

CELL = "results/cells/toy/echo/a/m"
WORK = str(Layout(Path("results")).work("cells", "toy/echo/b/m"))
FILES = {
    "weights": "weights/model.safetensors",
    "tokenizer": "weights/tokenizer.json",
    "model record": "results/models/m.json",
    "model card": "models/m/model.yaml",
    "documents": "results/datasets/toy/documents.parquet",
    "probes": "results/datasets/toy/probes.parquet",
    "gold": "results/datasets/toy/gold.parquet",
    "pairs": "results/datasets/toy/pairs.jsonl",
    "card": "results/datasets/toy/card.json",
    "dataset.yaml": "datasets/toy/dataset.yaml",
    "method code": "methods/echo/method.py",
    "method card": "methods/echo/method.yaml",
    "requirements": "methods/echo/requirements.lock",
    "image record": IMAGE_RECORD,
    "predictions": f"{CELL}/predictions.jsonl",
    "measured": f"{CELL}/measured.parquet",
    "manifest": f"{CELL}/manifest.json",
    "state": f"{WORK}/state.json",
    "accepted": f"{WORK}/predictions.jsonl",
    "accepted sums": f"{WORK}/predictions.sums",
    "trained model": "results/trained/toy/trainer/a/m/model/model.safetensors",
    "trained manifest": "results/trained/toy/trainer/a/m/manifest.json",
    "status": f"results/status/cells/{PLAIN}.json",
    "plan": "results/plans/batches/m.transformers.1cpu.0/plan",
    "scores": "results/scores/mini/scores.parquet",
    "scores and refusals": "results/scores/mini/scores.json",
    "resamples": "results/scores/mini/resamples/toy/echo/a/m.npy",
    "suite": "config/suites/mini.yaml",
    "tables": "papers/toy/tables.yaml",
    "claims": "papers/toy/claims/toy.yaml",
    "prompt": "papers/toy/prompts/short.yaml",
    "reference": "papers/toy/reference/table_1.csv",
    "sums of the papers": "papers/SHA256SUMS",
}
USERS = ("suite", "tables", "claims", "prompt", "reference")
"""Files that are the user's to edit: a report names the change."""
RECORDS: dict[str, type[msgspec.Struct]] = {
    "model record": WeightsRecord,
    "card": DatasetCard,
    "image record": ImageRecord,
    "manifest": Manifest,
    "trained manifest": Manifest,
    "scores and refusals": ScoresRecord,
}
ABOVE = {"weights": FILES["model record"], "tokenizer": FILES["model record"], "model record": FILES["weights"]}
"""The record of a file, where it lies in another folder, and the other way round."""
SIBLINGS = {
    "weights/model.safetensors": "weights/tokenizer.json",
    "weights/tokenizer.json": "weights/config.json",
    "models/m/model.yaml": "methods/echo/method.yaml",
}


@dataclass(frozen=True)
class Repository:
    """A complete one, and the same as it was in an earlier version."""

    now: Path
    before: Path


# ---------------------------------------------------------------- the repository


@pytest.fixture(scope="module")
def repository() -> Iterator[Repository]:
    place = Path(tempfile.mkdtemp(prefix="damage-"))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("UPKEEP_SUITE", "UPKEEP_CACHE", "UPKEEP_LIFELINE"):
            patch.delenv(name, raising=False)
        for name, text in (("now", "text"), ("before", "older")):
            (place / name).mkdir()
            make(place / name, text)
            assert called(place / name, "score") == called(place / name, "report") == (0, "")
    yield Repository(place / "now", place / "before")
    shutil.rmtree(place)


# ---------------------------------------------------------------- damage


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def mend(path: Path, file: str, root: Path) -> None:
    """Edit a file, and the hash of it that stands one level up. What has none is edited alone."""
    if record := RECORDS.get(file):
        found = json.loads(path.read_bytes())
        edits = {
            "questions": 99,
            "usage": {"prompt": 1, "completion": 1, "calls": 1},
            "refused": {},
            "packages": {"a": "1"},
        }
        found |= {name: value for name, value in edits.items() if name in found}
        found |= {"outcomes": {"answered": 1}} if "outcomes" in found else {}
        found |= {"sha256": "1" * 64} if file == "model record" else {}
        write_sealed(path, msgspec.convert(found | {"seal": None}, record))  # type: ignore[arg-type]
        return
    if path.suffix == ".parquet":
        frame = pl.read_parquet(path)
        edits_of = {
            "gold": pl.lit(["text"]).alias("answers"), "probes": pl.lit("q").alias("question_id"),
            "documents": pl.lit("other").alias("text"), "scores": pl.lit(100.0).alias("value"),
            "measured": pl.lit(1.0).alias("latency_s"),
        }  # fmt: skip
        frame.with_columns(edits_of[path.stem]).write_parquet(path)
    else:
        content = path.read_bytes()
        edited = re.sub(rb"text (\w\d)", rb"texT \1", content)
        path.write_bytes(edited if edited != content else content + b" ")
    for parent in path.parents:
        for name in ("card.json", "manifest.json", "scores.json"):
            if (parent / name).is_file() and root in parent.parents:
                record_of = json.loads((parent / name).read_bytes())
                key = path.relative_to(parent).as_posix()
                if key in record_of.get("files", {}):
                    now = fingerprint(path)
                    record_of["files"][key] = {"size": now.size, "sha256": now.sha256}
                    (parent / name).write_text(json.dumps(record_of))
    if file in ("weights", "tokenizer"):
        model = json.loads((root / FILES["model record"]).read_bytes())
        model["files"][path.name] = {"size": path.stat().st_size, "sha256": fingerprint(path).sha256}
        (root / FILES["model record"]).write_text(json.dumps(model))
    if file in USERS:
        sums = root / FILES["sums of the papers"]
        sums.write_text(sums.read_text().replace("0", "1", 1))


def swap(path: Path, file: str, root: Path) -> None:
    """Put a file of the same folder, or of the next one, in its place."""
    sibling = SIBLINGS.get(str(path.relative_to(root)))
    others = [root / sibling] if sibling else sorted(p for p in path.parent.iterdir() if p.is_file() and p != path)
    others = others or sorted(p for p in path.parents[1].rglob("*") if p.is_file() and p != path)
    path.write_bytes((others or [root / "models/m/model.yaml"])[0].read_bytes())


def older(path: Path, file: str, root: Path) -> None:
    path.write_bytes((root.parent / "before" / path.relative_to(root)).read_bytes())


def link(path: Path, file: str, root: Path) -> None:
    aside = root / "aside"
    path.rename(aside)
    flip(aside) if aside.stat().st_size else aside.write_bytes(b"x")
    path.symlink_to(aside)


def replace_by(make: Callable[[Path], object]) -> Callable[[Path, str, Path], None]:
    def damage(path: Path, file: str, root: Path) -> None:
        path.unlink()
        make(path)

    return damage


def unreadable(path: Path, file: str, root: Path) -> None:
    path.chmod(0)


DAMAGES: dict[str, Callable[[Path, str, Path], None]] = {
    "one bit": lambda path, *_: flip(path) if path.stat().st_size else path.write_bytes(b"x"),
    "truncated": lambda path, *_: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path, *_: os.truncate(path, 0),
    "a sibling's": swap,
    "older": older,
    "edited with the hash above mended": mend,
    "a link": link,
    "a link to nowhere": replace_by(lambda path: path.symlink_to("/nowhere")),
    "a pipe": replace_by(os.mkfifo),
    "a folder": replace_by(Path.mkdir),
    "unreadable": unreadable,
    "huge": lambda path, *_: os.truncate(path, 1 << 40),
    "gone": lambda path, *_: path.unlink(),
}
REMADE = {"accepted", "accepted sums", "state"}
EVERY = [(file, damage) for file in FILES for damage in DAMAGES]
COMBINATIONS = EVERY if os.environ.get("UPKEEP_DAMAGE") == "all" else EVERY[::4]
"""Those that are tried: about a quarter of each file's and of each damage's, as the number of damages is odd, and which
quarter changes from file to file."""


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


@contextlib.contextmanager
def ordinary_reader() -> Iterator[None]:
    """Let the bits of a file's mode count for root, too: without the capabilities that pass over them."""
    header, sets, libc = _Header(0x20080522, 0), (_Sets * 2)(), ctypes.CDLL(None, use_errno=True)
    assert libc.capget(ctypes.byref(header), sets) == 0
    before = sets[0].effective
    sets[0].effective &= ~0b110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    assert libc.capset(ctypes.byref(header), sets) == 0
    yield
    sets[0].effective = before
    assert libc.capset(ctypes.byref(header), sets) == 0


@pytest.fixture
def copy(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in ("UPKEEP_SUITE", "UPKEEP_CACHE", "UPKEEP_LIFELINE"):
        monkeypatch.delenv(name, raising=False)
    root = repository.now.parent / "copy"
    # With times: Snakemake and the cache of hashes go by them.
    subprocess.run(["cp", "-a", str(repository.now), str(root)], check=True)
    with ordinary_reader():
        yield root
    subprocess.run(["rm", "-rf", str(root)], check=True)


def test_there_are_enough_combinations() -> None:
    assert len(EVERY) >= 250 and len(DAMAGES) % 2
    assert {file for file, _ in COMBINATIONS} == set(FILES)
    tried = Counter(damage for _, damage in COMBINATIONS)
    assert all(tried[damage] >= len(FILES) // 4 for damage in DAMAGES)


@pytest.mark.parametrize(("file", "damage"), COMBINATIONS)
def test_no_damage_changes_a_number(
    copy: Path, repository: Repository, file: str, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth, shown = numbers(copy), printed(copy)
    path = copy / FILES[file]
    untouched = path.read_bytes()
    DAMAGES[damage](path, file, copy)
    monkeypatch.setattr("upkeep.execution.job.detect", lambda _: ScriptedRuntime())
    said: list[tuple[str, int, str]] = []

    def call(*words: str, out: list[str] | None = None) -> int:
        status, errors = called(copy, *words, out=out)
        said.append((" ".join(words), status, errors))
        assert status in (0, 1), said
        assert "Traceback" not in errors
        if status:
            assert "remedy:" in errors or "expected:" in errors, said
        return status

    def told() -> str:
        return "\n".join(errors for _, _, errors in said)

    def look() -> None:
        """Status, report as it is, scores, report: whatever ends well says what was true before."""
        seen: list[str] = []
        done = set[str]()
        if not call("status", "--json", out=seen):
            done = {job["name"] for job in json.loads(seen[0])["jobs"] if job["state"] == "done"}
        if not call("report"):
            assert set(printed(copy)) <= set(shown), said
        if not call("score"):
            found, known = numbers(copy), with_begun(truth)
            assert all(known[name] == value for name, value in found.items()), said
            counted = {name.split()[0] for name in found if not name.startswith(" ")}
            assert done & set(CELLS) <= counted, f"status says done of what is not counted: {done - counted}"
            if not call("report"):
                assert set(printed(copy)) <= set(shown), said

    look()
    try:
        workflow(copy)  # what `run` looks at before it starts anything
    except UpkeepError as error:
        said.append(("workflow", 1, str(error)))
    monkeypatch.setattr("upkeep.execution.job.detect", lambda _: training(TRAINED_FILES))
    call("model", "train", TRAINING)
    monkeypatch.setattr("upkeep.execution.job.detect", lambda _: ScriptedRuntime())
    for cell in (*CELLS, BEGUN):
        call("cell", cell)
    look()
    try:
        same = path.is_file() and path.stat().st_size == len(untouched) and path.read_bytes() == untouched
    except OSError:
        same = False
    # Where a record and its files contradict each other, either may be named.
    places = [str(place) for place in (path, path.parent, ABOVE.get(file), f"no {FILES[file]}") if place]
    named = any(f"{place}{after}" in told() for place in places for after in ("/", ":", "\n"))
    ended = dict(zip(("score", "report"), [status for _, status, _ in said[-2:]], strict=True))
    healed = not any(ended.values()) and numbers(copy).items() >= truth.items() and set(printed(copy)) == set(shown)
    assert named or same or healed, f"neither refused by its name, nor healed, nor without effect: {said}"
    if file in USERS and said[-1][0] == "report" and said[-1][1] == 0 and not same:
        assert FILES[file] in said[-1][2] or FILES["sums of the papers"] in said[-1][2], "the report names the change"
    begun = copy / "results/cells" / BEGUN / "predictions.jsonl"
    if begun.is_file() and file in REMADE:
        whole = (copy / CELL / "predictions.jsonl").read_bytes()
        assert begun.read_bytes() == whole, "what was accepted of an interrupted cell and damaged came into its result"
