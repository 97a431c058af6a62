"""`./upkeep doctor`: every machine is told apart, and nothing that is broken in it keeps the doctor from telling."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from conftest import ROOT
from doctors import catalog, clients, found, program
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.operations.doctor.examination import CHECKS, Report, examine
from upkeep.operations.doctor.findings import Facts, Finding
from upkeep.operations.doctor.models import models
from upkeep.operations.doctor.terminal import drawn

__all__ = ["catalog", "clients"]


CLIENTS = [
    *("docker", "podman", "apptainer", "mksquashfs", "unshare", "mmdebstrap", "nvidia-smi", "quota"),
    *("sinfo", "sbatch", "squeue", "scontrol", "scancel", "sacct"),
]
BROKEN = {
    "hangs": "exec /bin/sleep 1000",
    "hangs with a child": "/bin/sleep 1000 & wait",
    "fails": "exit 1",
    "fails with a page of text": "for i in 1 2 3 4 5 6 7 8 9; do echo 'no such \033[31m thing' >&2; done; exit 3",
    "says nothing": "exit 0",
    "says garbage": "/usr/bin/head -c 5000 /dev/urandom",
    "says half a table": "echo 'gpu|up|'; echo '0, NVIDIA'; echo 'PARTITION=|||'",
    "says without end": "exec /bin/cat /dev/zero",
    "is killed": "kill -9 $$",
    "closes its output and stays": "exec /bin/sleep 1000 >&- 2>&-",
}


def told(report: Report) -> str:
    console = Console(width=300, color_system=None, force_terminal=False)
    with console.capture() as text:
        console.print(drawn(report))
    return text.get() + msgspec.json.encode(report).decode()


# ---------------------------------------------------------------- the machine as it is


def test_every_finding_that_is_not_good_says_what_it_rules_out_and_what_to_do(catalog: Catalog) -> None:
    report = examine(catalog, "mini", patience_s=30)
    assert {f.group for f in report.findings} >= {group for group, *_ in CHECKS} - {"Weights"}
    for finding in report.findings:
        assert finding.found and finding.group and finding.name
        assert finding.state == "ok" or (finding.rules_out and finding.remedy), finding
    assert told(report)


def test_a_machine_without_anything_runs_the_small_suite_as_a_plain_process(catalog: Catalog, clients: Path) -> None:
    report = examine(catalog, "mini")
    assert report.can_run and report.runtime == "process" and report.runtime_problem is None
    states = {f.name: f.state for f in report.findings}
    assert states["docker"] == states["podman"] == states["apptainer"] == states["nvidia-smi"] == "missing"
    assert "cells are not isolated" in told(report)


def test_a_suite_for_gpus_is_said_not_to_run_here_and_why(catalog: Catalog, clients: Path) -> None:
    report = examine(catalog, "oaks")
    suites = {suite.suite: suite for suite in report.suites}
    assert not report.can_run and suites["oaks"].here < suites["oaks"].cells
    assert any("GPU" in what for what in suites["oaks"].obstacles)
    assert suites["mini"].here == suites["mini"].cells


# ---------------------------------------------------------------- broken clients


@pytest.mark.parametrize("how", BROKEN)
def test_broken_clients_are_findings_and_hold_up_nothing(catalog: Catalog, clients: Path, how: str) -> None:
    for name in CLIENTS:
        program(clients, name, BROKEN[how])
    report = examine(catalog, "mini", patience_s=2)
    assert report.can_run, "a plain process needs none of them"
    assert {f.group for f in report.findings} >= {"Container engines", "Apptainer", "SLURM", "GPUs", "Machine", "Disk"}
    assert next(s for s in report.suites if s.suite == "oaks").cluster is None
    text = told(report)
    assert all(c.isprintable() or c == "\n" for c in text)
    for finding in report.findings:
        assert finding.state == "ok" or len(finding.found) < 1000


def test_a_program_of_another_machine_is_a_finding(catalog: Catalog, clients: Path) -> None:
    for name in CLIENTS:
        (clients / name).write_bytes(b"\x7fELF\x02\x01\x01nonsense")
        (clients / name).chmod(0o755)
    assert examine(catalog, "mini").can_run


def test_a_configured_runtime_that_is_broken_fails_the_command(
    catalog: Catalog, clients: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPKEEP_RUNTIME", "docker")
    program(clients, "docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    report = examine(Catalog(catalog.root), "mini")
    assert not report.can_run and "Cannot connect" in str(report.runtime_problem)
    assert "cannot run here" in told(report)


def test_auto_takes_the_first_engine_that_works(
    catalog: Catalog, clients: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPKEEP_RUNTIME", "auto")
    program(clients, "docker", "exit 1")
    program(clients, "podman", 'case "$1" in image) exit 1;; *) echo "podman version 5.0.0";; esac')
    report = examine(Catalog(catalog.root), "mini")
    assert (report.runtime, report.can_run) == ("podman", True)
    assert {f.name: f.state for f in report.findings}["podman: base image"] == "warning"


def test_an_engine_that_answers_and_runs_nothing_is_not_taken(
    catalog: Catalog, clients: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPKEEP_RUNTIME", "podman")
    program(clients, "podman", 'case "$1" in run) echo "cgroups not supported" >&2; exit 126;; *) echo 5.0;; esac')
    report = examine(Catalog(catalog.root), "mini")
    assert not report.can_run and "cgroups not supported" in str(report.runtime_problem)


# ---------------------------------------------------------------- broken checks


def test_a_check_that_raises_and_one_that_hangs_are_findings(catalog: Catalog) -> None:
    release = threading.Event()

    def raises(*_: object) -> Iterator[Finding]:
        yield Finding("G", "before", "ok", "x")
        raise OSError(errno.ESTALE, "Stale file handle \x1b[2J")

    def hangs(*_: object) -> Iterator[Finding]:
        yield Finding("H", "before", "ok", "x")
        release.wait(600)

    report = examine(catalog, "mini", [("G", "raises", raises), ("H", "hangs", hangs)], patience_s=0.2)
    release.set()
    names = [(f.name, f.state) for f in report.findings]
    assert names == [("before", "ok"), ("raises", "warning"), ("before", "ok"), ("hangs", "warning")]
    assert "Stale file handle" in report.findings[1].found and "\x1b" not in report.findings[1].found
    assert "no answer" in report.findings[3].found


def test_a_runtime_that_was_not_heard_of_in_time_is_not_taken_for_working(catalog: Catalog) -> None:
    assert not examine(catalog, "mini", []).can_run


def test_an_unknown_suite_is_said_at_once(catalog: Catalog) -> None:
    with pytest.raises(UpkeepError, match="unknown suite"):
        examine(catalog, "mnii")


# ---------------------------------------------------------------- keys and weights


def add_endpoint(catalog: Catalog) -> Catalog:
    card = catalog.root / "models/cloud/model.yaml"
    card.parent.mkdir()
    card.write_text(
        "{label: Cloud, summary: s, source: endpoint, location: 'https://api.example.org/v1', context_length: 1000,"
        " engine: endpoint, endpoint: {model: m, key: CLOUD_SECRET_KEY, price: {prompt: 1, completion: 1}}}"
    )
    (catalog.root / "config/suites/mini.yaml").write_text(
        "{label: l, summary: s, papers: [],"
        " cells: [{datasets: [oaks_babi_mini], methods: [closed_book], models: [tiny, cloud]}]}"
    )
    return Catalog(catalog.root)


def test_of_a_key_the_name_is_told_and_never_the_value(
    catalog: Catalog, clients: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUD_SECRET_KEY", "sk-5up3r-53cr37")
    report = examine(add_endpoint(catalog), "mini")
    text = told(report)
    assert report.can_run
    assert "CLOUD_SECRET_KEY" in text and "sk-5up3r" not in text and "53cr37" not in text


@pytest.mark.parametrize("value", [None, ""])
def test_a_key_that_is_not_there_rules_its_model_out(
    catalog: Catalog, clients: Path, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.delenv("CLOUD_SECRET_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("CLOUD_SECRET_KEY", value)
    report = examine(add_endpoint(catalog), "mini")
    assert not report.can_run
    assert report.suites[0].here == 1 and report.suites[0].obstacles == {"the key CLOUD_SECRET_KEY": 1}
    assert "export CLOUD_SECRET_KEY=..." in told(report)


def test_weights_that_cannot_be_had_rule_their_model_out(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = Facts()
    oaks = list(models(catalog, "oaks", facts))
    assert {f.state for f in oaks if f.name.startswith("qwen3")} == {"warning"}
    assert "qwen3-4b" not in facts.models
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "missing" in {f.state for f in models(catalog, "oaks", facts)}
    assert facts.models["qwen3-4b"] == "the weights of qwen3-4b"


def test_a_record_of_weights_that_are_gone_does_not_count(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPKEEP_MODEL", "tiny")
    catalog = Catalog(catalog.root)
    record = catalog.results / "models" / "tiny.json"
    record.parent.mkdir(parents=True)
    for content in (b"{", b"", b'{"model": "tiny", "sha256": "x"}'):
        record.write_bytes(content)
        assert found(models, catalog)["tiny"].found == "./upkeep setup makes them on the spot"


# ---------------------------------------------------------------- the command


def test_the_command_ends_soon_and_leaves_nothing_running(catalog: Catalog, clients: Path, tmp_path: Path) -> None:
    for name in CLIENTS:
        program(clients, name, f"echo $$ >> {tmp_path}/started; exec /bin/sleep 1000")
    environment = os.environ | {"PATH": str(clients), "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-m", "upkeep", "--root", str(catalog.root), "doctor", "--json"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    report = msgspec.json.decode(done.stdout, type=Report)
    assert any("no answer" in f.found or "does not answer" in f.found for f in report.findings)
    started = (tmp_path / "started").read_text().split()
    assert started and not [pid for pid in started if runs(pid)]


def runs(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
