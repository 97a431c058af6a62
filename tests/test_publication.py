"""Publication that is killed at any step: what is there is the old or the new."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from test_publish import LIMIT, SCOPE, draft, write
from upkeep import files
from upkeep.errors import UpkeepError
from upkeep.execution import publish
from upkeep.execution.publish import publish_cell
from upkeep.files import remove_tree, write_atomically
from upkeep.integrity import verify_folder


class Killed(BaseException):
    pass


STEPS = ("rename", "replace", "fsync", "rmdir", "unlink", "mkdir")


def count_down(monkeypatch: pytest.MonkeyPatch, step: int) -> list[int]:
    """Be killed before the `step`-th operation that changes or stores names; the list's item is what is left."""
    left = [step]

    def counted(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            return original(*arguments, **options)

        return call

    for name in STEPS:
        monkeypatch.setattr(os, name, counted(getattr(os, name)))
    monkeypatch.setattr(publish, "exchange", counted(publish.exchange))
    return left


# ---------------------------------------------------------------- publishing, step by step


@pytest.mark.parametrize("exchanges", [True, False])
def test_publication_that_is_killed_at_any_step_leaves_the_old_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchanges: bool
) -> None:
    old, new, target = tmp_path / "old.jsonl", tmp_path / "new.jsonl", tmp_path / "cell"
    write(old, seed=0)
    new.write_bytes(old.read_bytes().replace(b'"x"', b'"y"'))
    seen, step = set(), 0
    while "whole" not in seen:
        step += 1
        publish_cell(old, SCOPE, draft(), tmp_path / "staging", target, LIMIT)
        before = (target / "manifest.json").read_bytes()
        with monkeypatch.context() as patch:
            if not exchanges:
                patch.setattr(publish, "exchange", lambda *_: False)
            left = count_down(patch, step)
            with contextlib.suppress(Killed):
                publish_cell(new, SCOPE, draft(), tmp_path / "staging", target, LIMIT)
                assert left[0] > 0
                seen.add("whole")
        if target.exists():
            verify_folder(target)
            seen.add("old" if (target / "manifest.json").read_bytes() == before else "new")
        else:
            assert not exchanges, "there is no moment without a publication"
            seen.add("none")
        again = publish_cell(new, SCOPE, draft(), tmp_path / "staging", target, LIMIT)
        assert verify_folder(target) == again
    assert seen == {"old", "new", "whole"} | (set() if exchanges else {"none"})
    assert step > 8


def test_publication_is_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target, events = tmp_path / "predictions.jsonl", tmp_path / "cell", []
    write(source, seed=0)
    fsync, rename = os.fsync, os.rename

    def synced(descriptor: int) -> None:
        events.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    def renamed(*names: Any, **options: Any) -> None:
        events.append("renamed")
        rename(*names, **options)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    publish_cell(source, SCOPE, draft(), tmp_path / "staging", target, LIMIT)
    before, after = events[: events.index("renamed")], events[events.index("renamed") :]
    assert {"predictions.jsonl", "measured.parquet", "manifest.json", "folder"} <= set(before)
    assert tmp_path.name in after


@pytest.mark.parametrize("step", range(1, 4))
def test_small_file_is_old_or_new_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    path = tmp_path / "state.json"
    write_atomically(path, b"old")
    with monkeypatch.context() as patch, contextlib.suppress(Killed):
        count_down(patch, step)
        write_atomically(path, b"new", durable=True)
    assert path.read_bytes() in (b"old", b"new")
    write_atomically(path, b"newest", durable=True)
    assert path.read_bytes() == b"newest"


# ---------------------------------------------------------------- removing


def test_folders_that_resist_are_removed(tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "a" / "b").mkdir(parents=True)
    (top / "a" / "b" / "file").write_text("x")
    (top / "a" / "away").symlink_to(tmp_path)
    (top / os.fsdecode(b"\xff\n\x1b[2J")).mkdir()
    here = Path.cwd()
    os.chdir(top)
    for _ in range(2500):
        Path("deep").mkdir()
        os.chdir("deep")
    os.chdir(here)
    (tmp_path / "kept").write_text("x")
    for folder in (top / "a" / "b", top / "a", top):
        folder.chmod(0)
    remove_tree(top)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_folder_is_removed_though_a_process_that_was_killed_writes_to_it_for_a_while(tmp_path: Path) -> None:
    (tmp_path / "top").mkdir()
    source = "import os, sys, time\nend = time.time() + 2\nwhile time.time() < end:\n    os.mkdir(str(time.time_ns()))"
    with subprocess.Popen([sys.executable, "-c", source], cwd=tmp_path / "top", stderr=subprocess.DEVNULL):
        while not any((tmp_path / "top").iterdir()):
            time.sleep(0.01)
        remove_tree(tmp_path / "top")
    assert list(tmp_path.iterdir()) == []


def test_link_in_the_place_of_a_folder_is_removed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "kept").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "there")
    files.remove(tmp_path / "link")
    with pytest.raises(NotADirectoryError):
        (tmp_path / "link").symlink_to(tmp_path / "there")
        remove_tree(tmp_path / "link")
    assert (tmp_path / "there" / "kept").exists()


def test_manifest_without_its_seal_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "predictions.jsonl"
    write(source, seed=0)
    manifest = publish_cell(source, SCOPE, draft(), tmp_path / "staging", tmp_path / "cell", LIMIT)
    path = tmp_path / "cell" / "manifest.json"
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(manifest, seal=None)))
    with pytest.raises(UpkeepError, match="not the record that was written"):
        verify_folder(tmp_path / "cell")
