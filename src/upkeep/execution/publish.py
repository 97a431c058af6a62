"""The last check of a container's output, and its publication by one atomic rename.

What is published is made by the host: a copy is taken, the copy is read afresh as a hostile file, and from it the
published files are written anew. So nothing that happens to the output afterwards can matter, and bytes depend on the
records alone.
"""

from __future__ import annotations

import io
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from upkeep.contract import Manifest, Prediction, Usage
from upkeep.errors import UpkeepError
from upkeep.files import exchange, kind_of_file, open_regular, remove, sync
from upkeep.integrity import fingerprint, write_sealed
from upkeep.lines import excerpt
from upkeep.record_files import check_file
from upkeep.scope import Answers
from upkeep.weights import ADAPTER

MODEL_FILES = frozenset({".json", ".safetensors", ".txt", ".model", ".jinja"})
"""What is taken over of a trained model: data alone. Pickles run code when they are read."""


def publish_cell(source: Path, scope: Answers, draft: Manifest, staging: Path, target: Path, limit: int) -> Manifest:
    """Publish predictions.jsonl (in the order of the probes, canonical bytes), measured.parquet and manifest.json.

    Args:
        source: the predictions as they were collected.
        draft: the manifest without counts, totals and hashes.
        staging: a folder of the host on the file system of `target`; emptied.
        target: replaced, if it is there.
        limit: bytes of `source` at most.

    Raises:
        UpkeepError: a line is refused or missing; then nothing is published.
    """
    copied = _copy_aside(source, staging, limit)
    index = check_file(copied, Prediction, scope)
    index.require_complete()
    folder = _empty(staging / "folder")
    decoder, encoder = msgspec.json.Decoder(Prediction), msgspec.json.Encoder()
    outcomes = {"answered": 0, "error": 0}
    prompt = completion = calls = cached = 0
    seconds = 0.0
    measured: dict[str, list[object]] = {"probe_id": [], "trial": [], "latency_s": [], "cached": []}
    with (folder / "predictions.jsonl").open("wb") as file:
        for line in index.lines_in_order():
            prediction = decoder.decode(line)
            file.write(encoder.encode(msgspec.structs.replace(prediction, measured=None)) + b"\n")
            outcomes["answered" if prediction.error is None else "error"] += 1
            prompt += prediction.usage.prompt
            completion += prediction.usage.completion
            calls += prediction.usage.calls
            latency, hits = (m.latency_s, m.cached) if (m := prediction.measured) else (None, None)
            cached += hits or 0
            seconds += latency or 0.0
            row = (prediction.probe_id, prediction.trial, latency, hits)
            for column, value in zip(measured.values(), row, strict=True):
                column.append(value)
    _write_measured(measured, folder / "measured.parquet")
    totals = {"cached_prompt_tokens": cached, "computed_prompt_tokens": prompt - cached, "latency_s": seconds}
    manifest = msgspec.structs.replace(
        draft,
        probes=len(scope.probes),
        trials=scope.trials,
        outcomes=outcomes,
        usage=Usage(prompt=prompt, completion=completion, calls=calls),
        measured=draft.measured | {name: float(value) for name, value in totals.items()},
    )
    return _finish(folder, manifest, staging, target)


def _write_measured(columns: dict[str, list[object]], path: Path) -> None:
    import polars as pl

    schema = {"probe_id": pl.String, "trial": pl.Int64, "latency_s": pl.Float64, "cached": pl.Int64}
    content = io.BytesIO()
    pl.DataFrame(columns, schema=schema).write_parquet(content)
    path.write_bytes(content.getbuffer())


def publish_model(
    source: Path, members: Sequence[str], draft: Manifest, staging: Path, target: Path, limit: int
) -> Manifest:
    """Publish a trained model as model/ and manifest.json.

    Taken over are regular files of the kinds in `MODEL_FILES`.

    Args:
        source: the model's folder, or that of a set's members.
        members: names of the folders of a set's members; none for one model.

    Raises:
        UpkeepError: there is a link, pipe or device, more than `limit` bytes, or neither a model in the transformers
            format nor an adapter in that of PEFT.
    """
    folder = _empty(staging / "folder")
    left = limit
    for path in _walk(source):
        if path.suffix in MODEL_FILES:
            left -= _copy(path, folder / "model" / path.relative_to(source), left)
    for made in [folder / "model" / member for member in members] or [folder / "model"]:
        require_model(made)
    return _finish(folder, draft, staging, target)


def require_model(folder: Path) -> None:
    """Refuse what holds neither a model nor an adapter.

    Raises:
        UpkeepError: it does not.
    """
    described = any((folder / name).is_file() for name in ("config.json", ADAPTER))
    if not described or not any(folder.glob("*.safetensors")):
        raise UpkeepError(
            "the training left no model",
            where=folder,
            expected=f"config.json (of an adapter {ADAPTER}) and *.safetensors, as transformers and PEFT write them",
            found=", ".join(excerpt(path.name) for path in sorted(folder.iterdir())[:10])
            if folder.is_dir()
            else "nothing",
            remedy="see the log of the training",
            kind="output",
        )


def _walk(folder: Path) -> Iterator[Path]:
    """Regular files under a folder; anything else but folders is refused."""
    if not folder.is_dir() or folder.is_symlink():
        return
    for path in sorted(folder.iterdir()):
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            yield from _walk(path)
        elif stat.S_ISREG(mode):
            yield path
        else:
            raise UpkeepError(
                f"neither file nor folder: {kind_of_file(mode)}",
                where=excerpt(str(path)),
                expected="regular files alone in a model's folder",
                kind="output",
            )


def _copy_aside(source: Path, staging: Path, limit: int) -> Path:
    _empty(staging)
    copied = staging / source.name
    _copy(source, copied, limit)
    return copied


def _copy(source: Path, target: Path, limit: int) -> int:
    """Copy a regular file of at most `limit` bytes, however it changes meanwhile; its size."""
    target.parent.mkdir(parents=True, exist_ok=True)
    copied = 0
    with open_regular(source, limit) as reader, target.open("xb") as writer:
        while block := reader.read(1 << 20):
            copied += len(block)
            if copied > limit:
                raise UpkeepError("file too large", where=source, expected=f"at most {limit:,} bytes", kind="disk")
            writer.write(block)
    return copied


def _empty(folder: Path) -> Path:
    remove(folder)
    folder.mkdir(parents=True)
    return folder


def _finish(folder: Path, manifest: Manifest, staging: Path, target: Path) -> Manifest:
    """Hash the files, write the manifest and move the folder to its place."""
    files = {p.relative_to(folder).as_posix(): fingerprint(p) for p in sorted(folder.rglob("*")) if p.is_file()}
    manifest = msgspec.structs.replace(manifest, files=files)
    try:
        manifest = write_sealed(folder / "manifest.json", manifest)
    except msgspec.ValidationError as error:
        raise UpkeepError(
            f"totals beyond what a manifest holds: {error}",
            where=target,
            remedy="mend the counts of the method",
            kind="output",
        ) from None
    _sync(folder)
    _swap(folder, staging / "replaced", target)
    remove(staging)
    return manifest


def _sync(folder: Path) -> None:
    """Bring a folder and all in it to disk."""
    for path in [*folder.rglob("*"), folder]:
        sync(path)


def _swap(folder: Path, aside: Path, target: Path) -> None:
    """Put `folder` in the place of `target`, so that one of the two is there at every moment; durable.

    Where the file system has no exchange (NFS), a kill between the two renames leaves none; never half of one.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        folder.rename(target)
    elif not exchange(folder, target):
        target.rename(aside)
        folder.rename(target)
    sync(target.parent)
