"""A job near its time limit goes back into the queue if it got further, and fails if it did not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from upkeep.errors import UpkeepError
from upkeep.file_locks import Held, locked
from upkeep.machine import slurm
from upkeep.machine.lifeline import patience_s


@pytest.fixture
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `scontrol` that tells of a job of ten seconds of which nine are over, and notes what it is asked; its notes."""
    notes, programs = tmp_path / "notes", tmp_path / "bin"
    programs.mkdir()
    start = datetime.now().replace(microsecond=0) - timedelta(seconds=9)
    times = f"StartTime={start.isoformat()} EndTime={(start + timedelta(seconds=10)).isoformat()}"
    (programs / "scontrol").write_text(f'#!/bin/sh\necho "$*" >> {notes}\necho "JobId=7 Restarts=2 {times}"\n')
    (programs / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr(slurm, "KILL_S", 0.0)
    monkeypatch.setattr(slurm, "PATIENCE_S", 0.0)
    slurm._described.cache_clear()
    return notes


def work(file: Path, lines: int) -> None:
    """Append lines, then stand still until the time is up."""
    with file.open("a") as out:
        out.write("line\n" * lines)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        time.sleep(0.01)


def test_job_that_got_further_goes_back_into_the_queue(scontrol: Path, tmp_path: Path) -> None:
    with pytest.raises(UpkeepError, match="did not put it back") as raised, slurm.continued([tmp_path / "made"]):
        work(tmp_path / "made", 1)
    assert "requeue 7" in scontrol.read_text().splitlines()
    assert raised.value.kind == "time", "a job that was put back is ended by SLURM; this one was not"


def test_job_that_did_nothing_fails_and_is_not_started_again(scontrol: Path, tmp_path: Path) -> None:
    with pytest.raises(UpkeepError, match="nothing had been done"), slurm.continued([tmp_path / "made"]):
        work(tmp_path / "made", 0)
    with pytest.raises(UpkeepError, match="nothing had been done"), slurm.continued([tmp_path / "made"]):
        os.utime(tmp_path / "made")
        work(tmp_path / "made", 0)
    assert "requeue 7" not in scontrol.read_text().splitlines()


def test_job_that_is_done_in_time_is_left_alone(scontrol: Path, tmp_path: Path) -> None:
    with slurm.continued([tmp_path / "made"]):
        pass
    time.sleep(1.5)  # past the limit
    assert scontrol.read_text().splitlines() == ["--oneliner show job 7"]


def test_outside_of_a_job_there_is_no_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with slurm.continued([tmp_path / "made"]):
        pass
    assert slurm.this_job() is None and patience_s() == 0


def test_job_says_where_it_runs(scontrol: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SLURMD_NODENAME": "n4", "SLURM_JOB_PARTITION": "gpu", "CUDA_VISIBLE_DEVICES": "2,3"}.items():
        monkeypatch.setenv(name, value)
    job = slurm.this_job()
    assert job is not None
    assert (job.id, job.node, job.partition, job.gpus, job.restarts) == ("7", "n4", "gpu", ["2", "3"], 2)


def test_second_start_of_a_job_waits_for_the_first(tmp_path: Path) -> None:
    holder = "import sys, time; from pathlib import Path; from upkeep.file_locks import locked\n"
    holder += (
        "with locked(Path(sys.argv[1])): print('held', flush=True); time.sleep(1); Path(sys.argv[1], 'done').touch()"
    )
    with subprocess.Popen([sys.executable, "-c", holder, tmp_path / "work"], stdout=subprocess.PIPE) as first:
        assert first.stdout is not None and first.stdout.readline() == b"held\n"
        with pytest.raises(Held), locked(tmp_path / "work"):
            pass
        with locked(tmp_path / "work", patience_s=60):
            assert (tmp_path / "work" / "done").exists()
