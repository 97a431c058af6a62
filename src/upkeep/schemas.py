"""The JSON Schemas of every file that crosses a boundary, made from the records that the library decodes them into."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from upkeep.contract import BOUNDARY


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of one record of `contract.BOUNDARY`."""
    made = msgspec.json.schema(BOUNDARY[name])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"{name}.schema.json", **made}


def render(name: str) -> bytes:
    """The file's content."""
    return msgspec.json.format(msgspec.json.encode(schema(name)), indent=2) + b"\n"


def write(folder: Path) -> list[Path]:
    """Write every schema into a folder and remove those of records that are no more; the paths written."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.schema.json" for name in BOUNDARY]
    for name, path in zip(BOUNDARY, paths, strict=True):
        path.write_bytes(render(name))
    for old in set(folder.glob("*.schema.json")) - set(paths):
        old.unlink()
    return paths
