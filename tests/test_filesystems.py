"""Shared file systems: slow ones, full ones, ones that fail, ones without locks. Clear errors, no corruption, and the
same command goes on to the same bytes.

The file system is one of our own (`shared_filesystem.py`, FUSE): it is as slow as told and fails where told. Like NFS
it exchanges no folders, and an open file that is removed stays in its folder under another name.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT
from host_fakes import TRAINED_FILES, ScriptedRuntime, make_repository, training
from upkeep import cli, files
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.execution.status import read_all
from upkeep.execution.supervise import run_cell
from upkeep.file_locks import exclusive, locked
from upkeep.files import remove_tree
from upkeep.integrity import verify_folder
from upkeep.jobs import Cell, Training
from upkeep.layout import Layout
from upkeep.published import folder_of

ECHO = Cell("toy", "echo", "a", "none")
TRAINING = Training("toy", "trainer", "a", "none")


class Shared:
    """A mounted file system, and how it is to behave."""

    def __init__(self, folder: Path) -> None:
        self.path, self._control, below = folder / "shared", folder / "control.json", folder / "below"
        self.path.mkdir()
        below.mkdir()
        self.behave()
        command = [sys.executable, ROOT / "tests" / "shared_filesystem.py", below, self.path, self._control]
        self._process = subprocess.Popen(command)
        deadline = time.monotonic() + 30
        while not self.path.is_mount():
            assert self._process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)

    def behave(self, **control: object) -> None:
        self._control.with_suffix(".new").write_text(json.dumps(control | {"mark": os.urandom(4).hex()}))
        self._control.with_suffix(".new").replace(self._control)

    def close(self) -> None:
        subprocess.run(["fusermount3", "-u", "-z", self.path], check=True)
        self._process.wait(30)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    mounted = Shared(tmp_path_factory.mktemp("fuse"))
    yield mounted
    mounted.close()


@pytest.fixture
def catalog(shared: Shared) -> Iterator[Catalog]:
    """A repository on the shared file system."""
    shared.behave()
    root = shared.path / os.urandom(4).hex()
    root.mkdir()
    yield make_repository(root)
    shared.behave()
    remove_tree(root)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What a local disk gives."""
    catalog = make_repository(tmp_path_factory.mktemp("local"))
    return {str(job): made(catalog, job) for job in (ECHO, TRAINING)}


def made(catalog: Catalog, job: Cell | Training) -> bytes:
    run_cell(catalog, job, runtime=runtime_of(job))
    folder = folder_of(catalog, job)
    manifest = verify_folder(folder)
    kind = "trained" if isinstance(job, Training) else "cells"
    assert not Layout(catalog.results).work(kind, job).exists()
    return b"".join((folder / name).read_bytes() for name in sorted(manifest.files) if name != "measured.parquet")


def runtime_of(job: Cell | Training) -> ScriptedRuntime:
    return training(TRAINED_FILES) if isinstance(job, Training) else ScriptedRuntime()


# ---------------------------------------------------------------- slow, full, broken


@pytest.mark.fuse
@pytest.mark.parametrize("job", [ECHO, TRAINING], ids=str)
def test_slow_file_system_gives_the_same_bytes(
    shared: Shared, catalog: Catalog, expected: dict[str, bytes], job: Cell | Training
) -> None:
    shared.behave(latency_s=0.002)
    assert made(catalog, job) == expected[str(job)]


@pytest.mark.fuse
def test_what_is_published_is_replaced_where_folders_cannot_be_exchanged(
    shared: Shared, catalog: Catalog, expected: dict[str, bytes]
) -> None:
    assert not files.exchange(catalog.root / "methods", catalog.root / "datasets")
    made(catalog, ECHO)
    manifest = run_cell(catalog, ECHO, force=True, runtime=ScriptedRuntime())
    assert verify_folder(Layout(catalog.results).cell(ECHO)) == manifest
    assert made(catalog, ECHO) == expected[str(ECHO)]


def run_until_it_fails(shared: Shared, catalog: Catalog, job: Cell | Training, control: dict[str, Any]) -> str | None:
    """The error's text; None where the run succeeds."""
    shared.behave(**control)
    try:
        run_cell(catalog, job, runtime=runtime_of(job), retries=0)
    except OSError as error:  # from before the job's own: the command line tells it in the same words
        return str(files.refusal(error, catalog.root))
    except UpkeepError as error:
        words = os.strerror(int(control["errno"]))
        assert error.kind == "machine" or "ended early" in error.problem or words in error.problem, error
        return str(error)
    return None


POINTS = [*range(1, 30, 2), *range(30, 90, 9)]


@pytest.mark.fuse
@pytest.mark.parametrize(("number", "words"), [(errno.ENOSPC, "no space left"), (errno.EDQUOT, "the quota is used up")])
@pytest.mark.parametrize("job", [ECHO, TRAINING], ids=str)
def test_full_disk_is_told_wherever_it_is_met_and_the_same_command_goes_on(
    shared: Shared, catalog: Catalog, expected: dict[str, bytes], number: int, words: str, job: Cell | Training
) -> None:
    failures = 0
    for point in POINTS if number == errno.ENOSPC else POINTS[::4]:
        told = run_until_it_fails(shared, catalog, job, {"fails_from": point, "errno": number})
        if told is not None:
            failures += 1
            # The container meets it first where it writes first; it ends, and says so.
            assert (words in told and "bytes and" in told and "make space" in told) or os.strerror(number) in told, told
            assert str(catalog.root) in told
        shared.behave()
        folder = folder_of(catalog, job)
        if folder.exists():
            verify_folder(folder)
        assert made(catalog, job) == expected[str(job)]
        shutil.rmtree(folder)
    assert failures >= 5


@pytest.mark.fuse
@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO])
def test_file_system_that_fails_is_told_and_the_same_command_goes_on(
    shared: Shared, catalog: Catalog, expected: dict[str, bytes], number: int
) -> None:
    failures = 0
    for point in range(1, 60, 3):
        told = run_until_it_fails(shared, catalog, ECHO, {"fails_from": point, "errno": number, "every": True})
        if told is not None:
            failures += 1
            assert "the file system fails" in told or os.strerror(number) in told, told
        shared.behave()
        assert made(catalog, ECHO) == expected[str(ECHO)]
        shutil.rmtree(Layout(catalog.results).cell(ECHO))
    assert failures > 3


@pytest.mark.fuse
def test_status_that_finds_no_room_ends_no_cell(shared: Shared, catalog: Catalog, expected: dict[str, bytes]) -> None:
    shared.behave(fails_from=1, errno=errno.ENOSPC, only="/status/")
    assert made(catalog, ECHO) == expected[str(ECHO)]
    shared.behave()
    assert not list(read_all(catalog.results / "status"))


@pytest.mark.fuse
def test_log_that_finds_no_room_ends_no_cell(shared: Shared, catalog: Catalog, expected: dict[str, bytes]) -> None:
    shared.behave(fails_from=2, errno=errno.ENOSPC, only="container.log")
    runtime = ScriptedRuntime(extra="print('x' * 5_000_000, flush=True)")
    run_cell(catalog, ECHO, runtime=runtime)
    shared.behave()
    assert made(catalog, ECHO) == expected[str(ECHO)]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.ESTALE])
def test_every_command_tells_a_full_disk_in_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, number: int
) -> None:
    def write(_: object) -> int:
        raise OSError(number, os.strerror(number), str(tmp_path / "scores.parquet"))

    monkeypatch.setattr("upkeep.commands.questions.listing", write)
    monkeypatch.setattr(cli, "_parser", cli._parser.__wrapped__)  # one that knows it
    monkeypatch.setattr(sys, "argv", ["upkeep", "--root", str(ROOT), "list", "methods"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    told = capsys.readouterr().err
    assert ended.value.code == 1
    assert f"upkeep: {tmp_path / 'scores.parquet'}: " in told and "remedy:" in told


def test_error_of_a_library_that_knows_no_errno_is_understood(tmp_path: Path) -> None:
    told = files.refusal(OSError("No space left on device (os error 28)"), tmp_path)
    assert told is not None and told.problem == "no space left"
    assert files.refusal(OSError("anything else"), tmp_path) is None


# ---------------------------------------------------------------- locks


def test_lock_of_a_living_process_is_refused_and_its_holder_named(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from upkeep.file_locks import locked\n" \
        "with locked(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"  # fmt: skip
    holder = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path / "work"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    )
    assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
    with pytest.raises(UpkeepError, match="another process") as caught, locked(tmp_path / "work"):
        pass
    assert f"process {holder.pid} on " in str(caught.value.found)
    holder.kill()
    holder.wait()
    with locked(tmp_path / "work"):  # what a dead process leaves is a file that means nothing
        assert (tmp_path / "work" / "lock").read_text().startswith(f"process {os.getpid()} on ")


@pytest.mark.parametrize("take", [locked, lambda folder: exclusive(folder / "lock")], ids=["folder", "file"])
@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS])
def test_file_system_without_locks_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, take: Callable[[Path], Any], number: int
) -> None:
    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(UpkeepError, match="this file system has no locks") as caught, take(tmp_path):
        pass
    assert "nolock" in str(caught.value.remedy)
