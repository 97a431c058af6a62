"""What `upkeep run` does after an edit that changes nothing that a model is asked: no engine starts, the same bytes."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from conftest import copy_repository, keep_one_figure, make_smaller, shorten_memories
from test_run import upkeep
from upkeep.contract import Manifest

SUITE = """
label: asked
summary: Cells that ask a model and an embedder.
papers: [oaks]
cells:
  - {datasets: [oaks_babi_mini], methods: [memory_scaffold/budget256, rag_dense/k1], models: [tiny]}
"""


def run(root: Path) -> str:
    done = upkeep(root, "run", "asked")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = copy_repository(tmp_path_factory.mktemp("reruns"))
    make_smaller(root)
    shorten_memories(root)
    keep_one_figure(root, "oaks")
    (root / "config/suites/asked.yaml").write_text(SUITE)
    run(root)
    assert list((root / "results/logs/engines").rglob("*.log"))
    return root


def manifests(root: Path) -> dict[str, Manifest]:
    found = (root / "results/cells").rglob("manifest.json")
    made = [msgspec.json.decode(path.read_bytes(), type=Manifest) for path in found]
    return {manifest.cell: manifest for manifest in made}


def kept(root: Path) -> dict[str, bytes]:
    """What was predicted, and every log of the record."""
    results = root / "results"
    files = [*results.glob("cells/**/predictions.jsonl"), *results.glob("record/**/*.log")]
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def code(root: Path) -> None:
    with (root / "src/upkeep/cell/runner.py").open("a") as file:
        file.write("\nUNUSED = 1\n")


def parser(root: Path) -> None:
    path = root / "src/upkeep/grading/reading.py"
    path.write_text(path.read_text() + "\n\nUNUSED = 1\n")


def renamed(root: Path) -> None:
    source = root / "src"
    (source / "upkeep/cell/tokens.py").rename(source / "upkeep/cell/chat_tokens.py")
    for file in source.rglob("*.py"):
        text = re.sub(r"\bupkeep\.cell\.tokens\b", "upkeep.cell.chat_tokens", file.read_text())
        file.write_text(text.replace('"cell/tokens.py"', '"cell/chat_tokens.py"'))


@pytest.mark.parametrize(
    ("edit", "replayed"),
    [(code, True), (parser, False), (renamed, False)],
    ids=["code of the runner", "how answers are read", "a renamed module"],
)
def test_after_an_edit_that_asks_nothing_new_no_engine_starts_and_the_bytes_are_the_same(
    finished: Path, tmp_path: Path, edit: Callable[[Path], None], replayed: bool
) -> None:
    subprocess.run(["cp", "-a", finished, root := tmp_path / "upkeep"], check=True)
    shutil.rmtree(root / "results/logs/engines")
    before, first = kept(root), manifests(root)
    edit(root)
    said = run(root)
    assert ("nothing to do" in said) == (edit is renamed)
    assert kept(root) == before
    assert not list((root / "results/logs/engines").rglob("*.log"))
    again = manifests(root)
    assert {again[cell].start != first[cell].start for cell in first} == {replayed}
    if replayed:
        asked = [again[cell].measured for cell in first]
        assert all(one["new_replies"] == 0 < one["recorded_replies"] for one in asked)
        assert [one["new_vectors"] for one in asked if "new_vectors" in one] == [0]
