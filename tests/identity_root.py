"""What tests of identities share: a repository with one cell and its weights."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from pathlib import Path

import pytest

from host_fakes import make_repository
from upkeep.catalog import Catalog
from upkeep.identity import (
    identity,
    plan_identity,
)
from upkeep.integrity import write_sealed
from upkeep.jobs import Cell
from upkeep.weights import WeightsRecord

ECHO = Cell("toy", "echo", "a", "m")
CARD = """label: M
summary: s
source: package
location: weights
context_length: 100
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    catalog = make_repository(tmp_path)
    for model, card in (("m", CARD), ("e", CARD + "role: embedder\n")):
        (tmp_path / "models" / model).mkdir(parents=True)
        (tmp_path / "models" / model / "model.yaml").write_text(card)
    for method in ("echo", "guided", "trainer"):
        edit(tmp_path, f"methods/{method}/method.yaml", "model: false", "model: true")
    weights(catalog, "m", "0" * 64)
    weights(catalog, "e", "e" * 64)
    return tmp_path


def weights(catalog: Catalog, model: str, sha256: str) -> None:
    folder = catalog.results / "models"
    folder.mkdir(parents=True, exist_ok=True)
    write_sealed(folder / f"{model}.json", WeightsRecord(model=model, sha256=sha256, files={}))


def edit(root: Path, file: str, old: str, new: str) -> None:
    text = (root / file).read_text()
    assert old in text
    (root / file).write_text(text.replace(old, new))


GIVEN = ("ModelSpec", "DatasetSpec", "EngineSettings", "Sampling")
BEFORE = str({record: {"novel": 0} for record in GIVEN})


def later_field(root: Path, before: str, records: Collection[str] = GIVEN) -> None:
    """Give records a field, of which LATER says `before`."""
    for file in (root / "src/upkeep/contract").glob("*.py"):
        lines = file.read_text().splitlines(keepends=True)
        classes = [node for node in ast.parse("".join(lines)).body if isinstance(node, ast.ClassDef)]
        for node in reversed([node for node in classes if node.name in records]):
            lines.insert(node.body[0].end_lineno or 0, "    novel: int = 0\n")
        file.write_text("".join(lines))
    fields = root / "src/upkeep/fields.py"
    text = re.sub(r"(?m)^((?:MODEL|DATASET): Fields = \{)", r'\1\n    "novel": "in",', fields.read_text())
    fields.write_text(text.replace("Mapping[str, Any]] = {", f"Mapping[str, Any]] = {{**{before}, ", 1))


def both(root: Path, cell: Cell = ECHO) -> tuple[str, str]:
    catalog = Catalog(root)
    return identity(catalog, cell)[0], plan_identity(catalog, cell)


@pytest.fixture
def engine(root: Path) -> Path:
    for place in ("transformers/requirements.lock", "method/Dockerfile"):
        (root / "containers" / place).parent.mkdir()
        (root / "containers" / place).touch()
    return root
