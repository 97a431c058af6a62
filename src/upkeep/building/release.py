"""The files of an official release: at hand, or downloaded."""

from __future__ import annotations

import shutil
import tempfile
import urllib.request
from pathlib import Path

from upkeep.building.context import Context, check_pin
from upkeep.errors import UpkeepError
from upkeep.files import hash_file


def release_files(context: Context) -> list[Path]:
    """The files of an official release: from the path in the config, or downloaded from the pinned address.

    Raises:
        UpkeepError: neither is there, the download fails, or a file has another hash than its pin.
    """
    remedy = f"download the release by hand and set `data: {{{context.name}: PATH}}` in config/config.yaml"
    if context.local is not None:
        files = sorted(context.local.glob("*.json")) if context.local.is_dir() else [context.local]
        if not files or not files[0].is_file():
            raise UpkeepError("no release here", where=context.local, expected="a JSON file, or a folder of them")
        return files
    spec = context.spec
    if spec.url is None or not spec.sha256:
        raise UpkeepError(
            f"dataset {context.name!r} needs the official release",
            where=context.where,
            expected="a path",
            remedy=remedy,
        )
    folder = context.catalog.cache / "downloads" / context.name / (spec.revision or "unversioned")
    base = spec.url.format(revision=spec.revision)
    return [
        download(f"{base.rstrip('/')}/{name}", pin, folder / name, context, remedy)
        for name, pin in sorted(spec.sha256.items())
    ]


def download(url: str, sha256: str, target: Path, context: Context, remedy: str) -> Path:
    """Fetch a file to `target` unless it is there with the right hash.

    Raises:
        UpkeepError: no connection is allowed or none is to be had, or the hash is wrong.
    """
    if target.is_file() and hash_file(target) == sha256:
        return target
    if context.config.offline:
        raise UpkeepError("a download is needed, and `offline` is set", where=url, remedy=remedy)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as file:
        part = Path(file.name)
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                shutil.copyfileobj(answer, file)
        except (OSError, ValueError) as error:
            part.unlink()
            raise UpkeepError(f"download failed: {error}", where=url, remedy=remedy) from None
    try:
        check_pin(part, hash_file(part), sha256, context.where)
    except UpkeepError as error:
        part.unlink()
        raise UpkeepError(error.problem, where=url, expected=error.expected, found=error.found, remedy=remedy) from None
    part.replace(target)
    return target
