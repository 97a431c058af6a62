"""Small datasets of Code Changelogs and notes on disk, for tests."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

import imprint_code
from conftest import put_dataset, spec_of
from imprint_code import sources, synthetic
from imprint_code.features import Feature
from upkeep.building import reading, store
from upkeep.building.build import build_dataset
from upkeep.building.names import Names
from upkeep.catalog import Catalog

NAME = "imprint_code"


def catalog(
    folder: Path, name: str, options: dict[str, Any], data: dict[str, str], faults: dict[str, str] | None = None
) -> Catalog:
    spec = spec_of(name)
    spec["options"] |= options
    spec["faults"] = spec.get("faults", {}) | (faults or {})
    put_dataset(folder, name, spec)
    (folder / "config").mkdir()
    (folder / "config" / "config.yaml").write_text(yaml.safe_dump({"data": data}))
    return Catalog(folder)


def built(folder: Path, name: str, options: dict[str, Any] | None = None, **how: Any) -> store.Dataset:
    build_dataset(catalog(folder, name, options or {}, how.pop("data", {}), **how), name, folder / "out" / name)
    return store.load(folder / "out" / name)


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def found(folder: Path, files: dict[str, str]) -> list[Feature]:
    given = {"notes": written(folder, files)}
    return imprint_code.find(sources.read(given, reading.Faults({}, Path("test")))).features


def said(features: list[Feature]) -> set[str]:
    return {f"{feature.kind} {feature.canonical}" for feature in features}


def made(seed: int = 5, **sizes: int) -> synthetic.World:
    rng = Random(seed)
    return synthetic.make(rng, Names(rng), synthetic.Sizes(**sizes))


def on_disk(folder: Path, its: synthetic.World) -> dict[str, str]:
    return {f"{NAME}.{what}": str(path) for what, path in its.write(folder).items()}


@pytest.fixture(scope="module")
def mini(tmp_path_factory: pytest.TempPathFactory) -> store.Dataset:
    return built(tmp_path_factory.mktemp("mini"), f"{NAME}_mini")


@pytest.fixture(scope="module")
def asked(mini: store.Dataset) -> list[dict[str, Any]]:
    """Probes with their gold and the texts of their evidence."""
    texts = dict(mini.documents.select("document_id", "text").iter_rows())
    rows = mini.probes.join(mini.gold, on="probe_id", maintain_order="left").to_dicts()
    return [row | {"texts": [texts[id] for id in row["evidence"]]} for row in rows]
