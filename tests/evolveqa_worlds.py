"""Small datasets of the family and feeds of their worlds, for tests of evolveQA."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from html import escape
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import msgspec.yaml
import pytest
import yaml

from conftest import ROOT, put_dataset, spec_of
from evolveqa import (
    synthetic,
)
from evolveqa.feeds import Entry
from evolveqa.workshop import Options
from upkeep.building import store
from upkeep.building.build import build_dataset
from upkeep.building.names import Names
from upkeep.building.store import validate
from upkeep.catalog import Catalog
from upkeep.contract import DatasetCard

FAMILY = {name: spec for name, spec in Catalog(ROOT).family("evolveqa").items() if "membership" not in name}
"""Those that ask about facts; of the others, tests/test_membership.py."""
MINIS = sorted(name for name in FAMILY if name.endswith("_mini"))


@dataclass(frozen=True)
class Made:
    """A built dataset with a row a probe."""

    card: DatasetCard
    data: store.Dataset
    rows: list[dict[str, Any]]
    spec: dict[str, Any]

    @property
    def dates(self) -> dict[str, str]:
        return dict(self.data.documents.select("document_id", "timestamp").iter_rows())

    @property
    def texts(self) -> dict[str, str]:
        return dict(self.data.documents.select("document_id", "text").iter_rows())


def repository(folder: Path, name: str, data: Mapping[str, Path] | None = None, **changed: Any) -> Catalog:
    """A repository with one dataset under other options; `faults` is its policy."""
    spec = spec_of(name)
    spec["faults"] = changed.pop("faults", spec.get("faults", {}))
    spec["options"] |= changed
    put_dataset(folder, name, spec)
    (folder / "config").mkdir()
    config = {"data": {key: str(path) for key, path in (data or {}).items()}}
    (folder / "config/config.yaml").write_text(yaml.safe_dump(config))
    (folder / "papers").symlink_to(ROOT / "papers")
    return Catalog(folder)


Build = Callable[..., Made]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    def built(name: str, data: Mapping[str, Path] | None = None, **changed: Any) -> Made:
        folder = tmp_path_factory.mktemp("repository")
        catalog = repository(folder, name, data, **changed)
        build_dataset(catalog, name, folder / "built")
        card, loaded = validate(folder / "built"), store.load(folder / "built")
        rows = loaded.probes.join(loaded.gold, on="probe_id", maintain_order="left").to_dicts()
        return Made(card, loaded, rows, msgspec.to_builtins(catalog.dataset(name)))

    return built


@pytest.fixture(scope="module")
def minis(build: Build) -> dict[str, Made]:
    return {name: build(name) for name in MINIS}


def world_of(made: Made) -> synthetic.World:
    """The world that a mini dataset was made from, generated again."""
    options = msgspec.convert(made.spec["options"], Options)
    rng = Random(f"evolveqa {options.domain} {options.seed}")
    flavour: synthetic.Flavour = "outbreak" if options.domain == "who" else "cloud"
    return synthetic.generate(rng, Names(rng, held_out=True), flavour, options.sizes)


def json_lines(entries: Sequence[Entry], file: Path) -> Path:
    file.write_bytes(msgspec.json.Encoder().encode_lines(entries))
    return file


def html(entry: Entry) -> str:
    return "".join(
        f"<h2>{escape(s.title)}</h2><p>{escape(s.text)}</p>" if s.title else f"<p>{escape(s.text)}</p>"
        for s in entry.sections or []
    )


def rss(entries: Sequence[Entry], file: Path) -> Path:
    items = "".join(
        f"<item><title>{escape(entry.title)}</title><guid>{entry.id}</guid>"
        f"<pubDate>{date.fromisoformat(str(entry.date)).strftime('%a, %d %b %Y')} 09:00:00 +0000</pubDate>"
        f"<description>{escape(html(entry))}</description></item>"
        for entry in entries
    )
    file.write_text(f'<?xml version="1.0"?><rss version="2.0"><channel><title>x</title>{items}</channel></rss>')
    return file
