"""Small fact bases by hand and datasets of the family, for tests of evowiki."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from conftest import put_dataset, spec_of
from evowiki.facts import ENTITIES, FACTS, RELATIONS, Snapshot, Written
from evowiki.levels import Levels
from upkeep.building import store
from upkeep.building.build import build_dataset
from upkeep.building.store import validate
from upkeep.catalog import Catalog

DATES = ("2021-09-01", "2024-01-01", "2024-05-01")


def catalog(
    folder: Path, name: str, options: dict[str, Any] | None = None, data: dict[str, str] | None = None
) -> Catalog:
    """A repository with one dataset, that of the suite with some options changed."""
    spec = spec_of(name)
    spec["options"] = spec["options"] | (options or {})
    put_dataset(folder, name, spec)
    (folder / "config").mkdir()
    (folder / "config" / "config.yaml").write_text(yaml.safe_dump({"data": data or {}}))
    return Catalog(folder)


def built(folder: Path, name: str, **how: Any) -> store.Dataset:
    build_dataset(catalog(folder, name, **how), name, folder / "out")
    validate(folder / "out")
    return store.load(folder / "out")


def asked(data: store.Dataset) -> pl.DataFrame:
    return data.probes.join(data.gold, on="probe_id")


@pytest.fixture(scope="module")
def mini(tmp_path_factory: pytest.TempPathFactory) -> store.Dataset:
    return built(tmp_path_factory.mktemp("mini"), "evowiki_mini")


Facts = Iterable[tuple[str, str, str, str]]
"""(statement, subject, relation, object)."""


def snapshot(date: str, facts: Facts, pages: Mapping[str, str], people: Iterable[str] = (), **labels: str) -> Snapshot:
    """Entities are what facts name in capitals; label and page have the entity's name unless `labels` says another."""
    rows = list(facts)
    names = sorted({end for _, subject, _, object in rows for end in (subject, object) if end[0].isupper()})
    humans = set(people)
    return Snapshot(
        date,
        pl.DataFrame(rows, schema=FACTS, orient="row"),
        pl.DataFrame(
            [(name, labels.get(name, name), name, name in humans, None) for name in names],
            schema=ENTITIES,
            orient="row",
        ),
        pl.DataFrame(
            [(r, r, r in ("mentor", "head")) for r in sorted({r for _, _, r, _ in rows})],
            schema=RELATIONS,
            orient="row",
        ),
        Written(dict(pages)),
    )


def level_of(found: Levels, subject: str = "Ann", relation: str = "town") -> str | None:
    mine = found.levels.filter(pl.col("subject") == subject, pl.col("relation") == relation)["level"]
    return mine[0] if len(mine) else None
