"""A report names what of the papers' numbers and of the suites is not as it was shipped."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import ROOT
from upkeep.catalog import Catalog
from upkeep.integrity import fingerprint
from upkeep.report.edits import SUMS, edited, files_of
from upkeep.weights import content_of, place
from upkeep.weights import files_of as weights_of


def test_the_sums_are_those_of_the_files_that_are_shipped() -> None:
    told = subprocess.run(["sha256sum", "--check", "--quiet", SUMS], cwd=ROOT, capture_output=True, text=True)
    assert told.returncode == 0, f"{told.stdout}{told.stderr}CONTRIBUTING.md says how they are written anew"
    shipped = {line.split()[1] for line in (ROOT / SUMS).read_text().splitlines()}
    there = [*ROOT.glob("config/suites/*.yaml"), *(f for paper in ROOT.glob("papers/*/") for f in files_of(paper))]
    tracked = subprocess.run(["git", "ls-files", "papers", "config"], cwd=ROOT, capture_output=True, text=True).stdout
    known = set(tracked.split()) or {str(path.relative_to(ROOT)) for path in there}
    assert shipped == {name for path in there if (name := str(path.relative_to(ROOT))) in known}


def test_the_weights_that_are_shipped_are_the_pinned_ones() -> None:
    spec = Catalog(ROOT).model("pico")
    folder = place(Catalog(ROOT), "pico", spec)
    assert folder is not None
    files = {path.relative_to(folder).as_posix(): fingerprint(path) for path in weights_of(folder)}
    assert content_of(files) == spec.sha256


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("papers", "config"):
        shutil.copytree(ROOT / name, tmp_path / name)
    assert not edited(Catalog(tmp_path), "mini")
    return tmp_path


def test_each_edit_is_named_with_what_was_done(root: Path) -> None:
    reference = root / "papers/oaks/reference"
    (reference / "table_2.csv").write_text((reference / "table_2.csv").read_text().replace("36", "63", 1))
    (reference / "table_99.csv").write_text("mine")
    (reference / "table_3.csv").unlink()
    (root / "papers/prelude/tables.yaml").write_text("another paper's, which this suite does not print")
    prompt = root / "papers/oaks/prompts/oaks_babi.yaml"
    prompt.write_text(prompt.read_text().replace("Rely on the text", "Rely on it"))
    suite = root / "papers/oaks/suite.yaml"
    suite.write_text(suite.read_text() + "# mine\n")
    assert {(edit.file, edit.how) for edit in edited(Catalog(root), "oaks")} == {
        ("papers/oaks/reference/table_2.csv", "changed"),
        ("papers/oaks/reference/table_99.csv", "added"),
        ("papers/oaks/reference/table_3.csv", "gone"),
        ("papers/oaks/prompts/oaks_babi.yaml", "changed"),
        ("papers/oaks/suite.yaml", "changed"),
    }


def test_a_suite_of_ones_own_is_no_edit_and_one_that_was_shipped_and_changed_is(root: Path) -> None:
    shipped = Catalog(root).suites["mini"]
    own = root / "config/suites/mine.yaml"
    own.write_text(shipped.read_text())
    assert edited(Catalog(root), "mine") == []
    shipped.write_text(shipped.read_text() + "# mine\n")
    named = str(shipped.relative_to(root))
    assert [(edit.file, edit.how) for edit in edited(Catalog(root), "mini")] == [(named, "changed")]


@pytest.mark.parametrize("content", [b"", b"nonsense\n", b"\xff\n", b"0" * 64 + b" one space\n", None])
def test_without_sums_nobody_can_tell_and_that_is_said(root: Path, content: bytes | None) -> None:
    (root / SUMS).unlink()
    if content is not None:
        (root / SUMS).write_bytes(content)
    assert [(edit.file, edit.how) for edit in edited(Catalog(root), "mini")] == [(str(SUMS), "unreadable")]
