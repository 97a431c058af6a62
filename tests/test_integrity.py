"""Fingerprints, seals, and hashes that are computed once for each state of a file."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from io import BufferedReader
from pathlib import Path
from typing import Any

import msgspec
import pytest

from upkeep import integrity
from upkeep.contract import Fingerprint, Sealed
from upkeep.files import hash_file, hash_open
from upkeep.integrity import (
    Damaged,
    Hashes,
    Missing,
    fingerprint,
    read_sealed,
    verified_once,
    verify_files,
    write_sealed,
)

LONG_AGO = 10**18


class Sealing(Sealed, frozen=True, kw_only=True):
    number: float
    files: dict[str, Fingerprint] = msgspec.field(default_factory=dict)


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hashes of what is read, one after the other; all files count as large."""
    read: list[str] = []

    def counting(file: BufferedReader) -> str:
        read.append(hash_open(file))
        return read[-1]

    monkeypatch.setattr(integrity, "hash_open", counting)
    monkeypatch.setattr(integrity, "REMEMBERED_BYTES", 1)
    monkeypatch.setattr(integrity, "SETTLED_NS", -(10**12))
    return read


def test_a_large_file_is_read_once_for_all_processes_until_it_changes(tmp_path: Path, hashed: list[str]) -> None:
    weights, known = tmp_path / "weights", tmp_path / "hashes"
    weights.write_bytes(b"one")
    first = Hashes(known).of(weights)
    assert Hashes(known).of(weights) == first == hash_file(weights)
    assert len(hashed) == 1
    stat = weights.stat()
    weights.write_bytes(b"two")
    os.utime(weights, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # the same size and time: the time of change tells
    assert Hashes(known).of(weights) == hash_file(weights) != first
    assert len(hashed) == 2
    assert Hashes(None).of(weights) == hash_file(weights)
    assert len(hashed) == 3, "with --verify nothing is believed"


@pytest.mark.parametrize("folder", [None, "hashes"])
def test_a_file_is_opened_once_to_be_hashed(
    tmp_path: Path, folder: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "small"
    path.write_bytes(b"one")
    opened: list[Path] = []

    def counting(given: Path, *more: Any, opening: Callable[..., int] = os.open, **named: Any) -> int:
        opened.append(given)
        return opening(given, *more, **named)

    monkeypatch.setattr(os, "open", counting)
    assert Hashes(None if folder is None else tmp_path / folder).of(path) == hashlib.sha256(b"one").hexdigest()
    assert opened == [path]


def test_a_file_that_has_just_changed_is_read_again(
    tmp_path: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integrity, "SETTLED_NS", 2 * 10**9)
    hashes, path = Hashes(tmp_path / "hashes"), tmp_path / "new"
    path.write_bytes(b"one")
    assert hashes.of(path) == hashes.of(path)
    assert len(hashed) == 2


@pytest.mark.parametrize("content", [b"", b"{}", b"nonsense", None])
def test_a_damaged_note_of_a_hash_is_no_hash(tmp_path: Path, hashed: list[str], content: bytes | None) -> None:
    path, known = tmp_path / "weights", tmp_path / "hashes"
    path.write_bytes(b"one")
    Hashes(known).of(path)
    (note,) = known.rglob("*.json")
    note.write_bytes(note.read_bytes().replace(b"a", b"b") if content is None else content)
    assert Hashes(known).of(path) == hash_file(path)
    assert len(hashed) == 2


def test_many_small_files_are_known_again_by_one_note_until_one_changes(
    tmp_path: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integrity, "REMEMBERED_BYTES", 100)
    folder, known = tmp_path / "folder", tmp_path / "hashes"
    folder.mkdir()
    paths = [folder / name for name in ("one", "two", "new", "link")]
    for path in paths[:3]:
        path.write_bytes(path.name.encode())
    paths[3].symlink_to(paths[0])
    files = {path: fingerprint(path) for path in paths[:3]} | {paths[3]: Fingerprint(size=3, sha256="0" * 64)}
    Hashes(known).keep(folder, files)
    paths[1].write_bytes(b"owt")
    paths[2].unlink()
    paths[2].write_bytes(b"wen")
    hashed.clear()
    again = Hashes(known)
    again.recall(folder)
    assert again.of(paths[0]) == files[paths[0]].sha256
    assert not hashed, "what has not changed is not read"
    assert [again.of(path) for path in paths[1:3]] == hashed == [hash_file(path) for path in paths[1:3]]
    assert again.of(paths[3], links=True) == hash_file(paths[0]), "of a link nothing was kept"
    (note,) = known.rglob("*.json")
    note.write_bytes(note.read_bytes().replace(b"one", b"own"))
    hashed.clear()
    damaged = Hashes(known)
    damaged.recall(folder)
    assert damaged.of(paths[0]) == hash_file(paths[0])
    assert len(hashed) == 1


def test_nothing_is_kept_where_every_file_is_to_be_hashed_or_one_was_just_written(
    tmp_path: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "one"
    path.write_bytes(b"one")
    what = {path: fingerprint(path)}
    Hashes(None).keep(tmp_path, what)
    Hashes(None).recall(tmp_path)
    monkeypatch.setattr(integrity, "SETTLED_NS", 2 * 10**9)
    monkeypatch.setattr(integrity, "REMEMBERED_BYTES", 100)
    Hashes(tmp_path / "hashes").keep(tmp_path, what)
    hashed.clear()
    for hashes in (Hashes(None), Hashes(tmp_path / "hashes")):
        hashes.recall(tmp_path)
        assert hashes.of(path) == what[path].sha256
    assert len(hashed) == 2


def test_a_note_of_another_file_says_nothing_of_this_one(tmp_path: Path, hashed: list[str]) -> None:
    one, two, known = tmp_path / "one", tmp_path / "two", Hashes(tmp_path / "hashes")
    one.write_bytes(b"one")
    two.write_bytes(b"two")
    known.of(one), known.of(two)
    first, second = (tmp_path / "hashes").rglob("*.json")
    a, b = first.read_bytes(), second.read_bytes()
    first.write_bytes(b), second.write_bytes(a)
    again = Hashes(tmp_path / "hashes")
    assert (again.of(one), again.of(two)) == (hash_file(one), hash_file(two))


@pytest.mark.parametrize("number", [3, 3.0, 0.1, -0.0, 1e300])
def test_what_is_sealed_is_read_again(tmp_path: Path, number: float) -> None:
    written = write_sealed(tmp_path / "record.json", Sealing(number=number))
    assert read_sealed(tmp_path / "record.json", Sealing, "remedy") == written


def test_a_record_that_was_changed_names_the_way_to_make_it_again(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_sealed(path, Sealing(number=1.5))
    path.write_bytes(path.read_bytes().replace(b"1.5", b"2.5"))
    with pytest.raises(Damaged, match="not the record that was written") as caught:
        read_sealed(path, Sealing, "./upkeep again")
    assert caught.value.remedy == "./upkeep again"
    path.unlink()
    with pytest.raises(Missing):
        read_sealed(path, Sealing, "./upkeep again")


def test_a_file_of_another_size_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    files = {"file": fingerprint(path)}
    verify_files(tmp_path, files, "remedy")
    monkeypatch.setattr(integrity, "hash_open", lambda *_, **__: pytest.fail("it was read"))
    os.truncate(path, 1 << 40)
    with pytest.raises(Damaged, match="not the file that was written"):
        verify_files(tmp_path, files, "remedy")


@pytest.mark.parametrize("name", ["../file", "/etc/passwd", "a/../../file"])
def test_no_record_leads_out_of_its_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(Damaged, match="outside the folder"):
        verify_files(tmp_path, {name: Fingerprint(size=0, sha256="0" * 64)}, "remedy")


def test_a_value_that_no_record_holds_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(msgspec.ValidationError):
        write_sealed(tmp_path / "r.json", Sealing(number=1.0, files={"a": Fingerprint(size=-1, sha256="0" * 64)}))
    assert not (tmp_path / "r.json").exists()


def test_what_many_jobs_share_is_verified_once_for_one_purpose_and_again_for_the_next() -> None:
    class Holder:
        hashes = Hashes(None)

    asked, broken = [], {"bad"}

    @verified_once
    def look(catalog: Holder, name: str) -> str:
        asked.append(name)
        if name in broken:
            raise Damaged("not what was written", where=name)
        return name

    catalog = Holder()
    for _ in range(2):
        with catalog.hashes.at_once():
            assert [look(catalog, name) for name in "aba"] == [*"aba"]
            with catalog.hashes.at_once():
                assert look(catalog, "b") == "b"
            for _ in range(2):
                with pytest.raises(Damaged):
                    look(catalog, "bad")
    assert asked == ["a", "b", "bad", "bad"] * 2
    assert [look(catalog, "a"), look(catalog, "a")] == ["a", "a"] and asked[-2:] == ["a", "a"]


AT_ONCE = """
import json, sys, threading
import msgspec
from upkeep import integrity
sys.setswitchinterval(1e-6)
for number in range(300):
    parts = [(f"part{n}", msgspec.defstruct(f"Part{number}_{n}", [("x", int, 0)]) | None, None) for n in range(8)]
    record = msgspec.defstruct(f"Record{number}", parts)
    data = json.dumps({f"part{n}": {"x": 1} for n in reversed(range(8))}).encode()
    both = threading.Barrier(2)
    def read():
        both.wait()
        assert integrity._decoder(record).decode(data).part7.x == 1
    threads = [threading.Thread(target=read) for _ in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
"""


def test_threads_that_are_the_first_to_read_a_kind_of_record_do_not_end_the_process() -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(integrity.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", AT_ONCE], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
