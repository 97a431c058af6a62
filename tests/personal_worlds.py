"""Small datasets of Personalization and their audits, for tests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from conftest import put_dataset, spec_of
from imprint_personal import (
    program,
    synthetic,
    synthetic_releases,
)
from upkeep.building import annotator, assistant, store
from upkeep.building.build import build_dataset
from upkeep.building.names import Names
from upkeep.catalog import Catalog

NAME = "imprint_personal"
TABLE = "benchmark/text/benchmark.csv"
Script = dict[str, Callable[[Any], Any]]


def catalog(
    folder: Path, name: str, options: dict[str, Any], data: dict[str, str], faults: dict[str, str] | None = None
) -> Catalog:
    spec = spec_of(name)
    spec["options"] |= options
    spec["faults"] |= faults or {}
    put_dataset(folder, name, spec)
    (folder / "config").mkdir()
    (folder / "config" / "config.yaml").write_text(yaml.safe_dump({"data": data}))
    return Catalog(folder)


def built(folder: Path, name: str, options: dict[str, Any] | None = None, **how: Any) -> store.Dataset:
    build_dataset(catalog(folder, name, options or {}, how.pop("data", {}), **how), name, folder / "out" / name)
    return store.load(folder / "out" / name)


@pytest.fixture(scope="module")
def mini(tmp_path_factory: pytest.TempPathFactory) -> store.Dataset:
    return built(tmp_path_factory.mktemp("mini"), f"{NAME}_mini")


@pytest.fixture(scope="module")
def asked(mini: store.Dataset) -> list[dict[str, Any]]:
    """Probes with their gold and the texts of their evidence."""
    texts = dict(mini.documents.select("document_id", "text").iter_rows())
    rows = mini.probes.join(mini.gold, on="probe_id", maintain_order="left").to_dicts()
    return [row | {"texts": [texts[id] for id in row["evidence"]]} for row in rows]


def made(personamem: int = 3, horizonbench: int = 2, seed: int = 5) -> synthetic.World:
    sizes = synthetic.Sizes(personamem=personamem, horizonbench=horizonbench)
    return synthetic.make(Random(seed), Names(Random(seed)), sizes)


@pytest.fixture
def releases_on_disk(tmp_path: Path) -> dict[str, Path]:
    return synthetic_releases.write(made(), tmp_path / "data", TABLE)


def from_files(
    folder: Path,
    paths: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    script: Script | None = None,
    options: dict[str, Any] | None = None,
    faults: dict[str, str] | None = None,
) -> store.Dataset:
    """The full dataset out of files, with a program in the model's place."""
    helper = assistant.Scripted({**program.script(made()), **(script or {})})
    monkeypatch.setattr(annotator, "hire", lambda context, model: nullcontext(helper))
    data = {f"{NAME}.personamem": str(paths["personamem_v2"]), f"{NAME}.horizonbench": str(paths["horizonbench"])}
    sizes = {"personamem": 3, "horizonbench": 2, "assistant": "some-model"}
    return built(folder, NAME, sizes | (options or {}), data=data, faults=faults)
