"""`./upkeep doctor`: every machine is told apart, and nothing that is broken in it keeps the doctor from telling."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from conftest import ROOT
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.images.docker import find_client
from upkeep.operations.doctor import examination, machine
from upkeep.operations.doctor.examination import CHECKS, Report, examine
from upkeep.operations.doctor.findings import GIB, Check, Facts, Finding, Nodes
from upkeep.operations.doctor.models import models
from upkeep.operations.doctor.slurm import slurm as slurm_check
from upkeep.operations.doctor.terminal import drawn

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


@pytest.fixture
def catalog(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    shutil.copy(ROOT / "requirements.lock", repository)
    monkeypatch.setenv("UPKEEP_RUNTIME", "process")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return Catalog(repository)


@pytest.fixture
def clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that is the whole PATH."""
    folder = tmp_path / "clients"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    for name in ("UPKEEP_DOCKER", "UPKEEP_PODMAN", "UPKEEP_APPTAINER"):
        monkeypatch.delenv(name, raising=False)
    find_client.cache_clear()
    yield folder
    examination.release()
    find_client.cache_clear()


def program(clients: Path, name: str, script: str) -> None:
    path = clients / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def found(check: Check, catalog: Catalog, facts: Facts | None = None) -> dict[str, Finding]:
    return {f.name: f for f in check(catalog, "mini", facts if facts is not None else Facts())}


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


# ---------------------------------------------------------------- SLURM and GPUs


SINFO = """\
cpu|up|1-00:00:00|10|idle|64|257000|(null)
gpu|up|2-00:00:00|3|mixed|32|1031000|gpu:a100:8(S:0-1)
gpu|up|2-00:00:00|1|drained*|32|1031000|gpu:a100:8(S:0-1)
gpu|up|2-00:00:00|2|idle|32|515000|gpu:h100:4,gpu:a40:2
old|down|infinite|5|idle|8|32000|gpu:2
nonsense
"""


def slurm(clients: Path) -> None:
    for name in ("sbatch", "squeue", "scancel"):
        program(clients, name, "exit 0")
    program(clients, "sinfo", f"/bin/cat <<'END'\n{SINFO}END")
    program(
        clients,
        "scontrol",
        "echo 'AccountingStorageType   = accounting_storage/none'; echo 'Parameters   =';"
        " echo 'PreemptType = preempt/partition_prio';"
        " echo 'PreemptParameters = '; echo 'PreemptMode = REQUEUE'; echo 'SLURM_VERSION = 22.05.8'",
    )


def test_partitions_are_told_with_nodes_gpus_and_time_limits(catalog: Catalog, clients: Path) -> None:
    slurm(clients)
    facts = Facts()
    seen = found(slurm_check, catalog, facts)
    assert seen["partition gpu"].found == "5 of 6 nodes take jobs, 44 GPUs, time limit 2-00:00:00"
    assert seen["partition old"].state == "warning" and seen["partition cpu"].state == "ok"
    assert seen["preemption"].found == "REQUEUE" and seen["accounting"].found.startswith("none")
    assert "22.05.8" in seen["controller"].found and "apptainer" in seen["the profile takes"].found
    assert Nodes(3, 8, 1031000 / 1024) in facts.cluster and Nodes(2, 6, 515000 / 1024) in facts.cluster
    assert not any(node.gpus == 2 for node in facts.cluster), "nodes that take no jobs are none"


def test_what_this_machine_lacks_the_cluster_may_have(
    catalog: Catalog, clients: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm(clients)
    for model in map(catalog.model, catalog.models):
        if model.endpoint and model.endpoint.key:
            monkeypatch.setenv(model.endpoint.key, "present")
    report = examine(catalog, "oaks")
    oaks = report.suites[0]
    assert oaks.cluster == oaks.cells > oaks.here and report.can_run


def test_a_profile_that_names_no_partition_of_the_cluster_is_said(catalog: Catalog, clients: Path) -> None:
    slurm(clients)
    profile = catalog.root / "profiles/slurm/cluster.yaml"
    profile.write_text(re.sub(r"gpu_partition: \S+", "gpu_partition: a100", profile.read_text()))
    assert "no partition 'a100'" in found(slurm_check, catalog)["the profile takes"].found


def nvidia(clients: Path, *rows: str) -> None:
    lines = "\n".join(rows)
    program(
        clients,
        "nvidia-smi",
        f'case "$*" in\n*query*) /bin/cat <<END\n{lines}\nEND\n;;\n'
        "*) echo '| NVIDIA-SMI 570.1   Driver Version: 570.1   CUDA Version: 12.8 |' ;;\nesac",
    )


def test_gpus_are_told_with_memory_driver_and_mig(
    catalog: Catalog, clients: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvidia(clients, "0, NVIDIA H200, 143771, 570.1, Disabled", "1, NVIDIA A100, 81920, 570.1, Enabled")
    facts = Facts()
    seen = found(machine.gpus, catalog, facts)
    assert facts.gpus == 2 and seen["driver"].found == "570.1, CUDA 12.8"
    assert seen["GPU 0"].found == "NVIDIA H200, 140 GiB" and "MIG on" in seen["GPU 1"].found
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    found(machine.gpus, catalog, facts)
    assert facts.gpus == 1
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert found(machine.gpus, catalog, facts)["visible"].state == "warning" and facts.gpus == 0


def test_a_driver_without_devices_is_no_gpu(catalog: Catalog, clients: Path) -> None:
    nvidia(clients, "No devices were found")
    facts = Facts()
    seen = found(machine.gpus, catalog, facts)
    assert facts.gpus == 0 and seen["nvidia-smi"].found == "No devices were found"


# ---------------------------------------------------------------- disk and limits


def results(catalog: Catalog) -> dict[str, Finding]:
    return found(next(check for group, name, check in CHECKS if name == "results"), catalog)


def test_results_that_do_not_exist_yet_are_looked_at_where_they_will_lie(catalog: Catalog) -> None:
    assert not catalog.results.exists()
    assert results(catalog)["results: locks"].state == "ok"
    assert not catalog.results.exists(), "and nothing is left there"


@pytest.mark.parametrize("fault", ["none are had", "all are had"])
def test_a_file_system_without_locks_is_told(catalog: Catalog, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    def flock(*_: object) -> None:
        if fault == "none are had":
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    finding = results(catalog)["results: locks"]
    assert finding.state == "missing" and "nolock" in finding.remedy


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EDQUOT, errno.ENOSPC, errno.ESTALE])
def test_a_folder_that_cannot_be_written_is_told(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    finding = results(catalog)["results: writing"]
    assert finding.state == "missing" and os.strerror(number) in finding.found


@pytest.mark.parametrize("what", ["a file", "a dangling link"])
def test_what_is_no_folder_in_the_place_of_the_results_rules_everything_out(
    catalog: Catalog, clients: Path, what: str
) -> None:
    if what == "a file":
        catalog.results.write_text("no folder")
    else:
        catalog.results.symlink_to("nowhere")
    assert "is no folder" in results(catalog)["results"].found
    assert not examine(catalog, "mini").can_run


def test_a_file_server_whose_clock_is_off_is_told(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    actual = time.time
    monkeypatch.setattr(time, "time", lambda: actual() - 3600)
    assert "3,600 s" in results(catalog)["results: clock"].found


def test_a_clock_of_before_the_suite_was_written_is_told(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert found(machine.machine, catalog)["clock"].state == "warning"


def test_limits_of_a_control_group_bound_what_can_run(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cgroup", lambda: {"memory.max": 2 * GIB, "pids.max": 64, "cpu.max": 0.5})
    facts = Facts()
    seen = found(machine.machine, catalog, facts)
    assert seen["memory"].state == seen["processes"].state == "warning" and "2.0 GiB" in seen["memory"].found
    assert "0.5" in seen["processors"].found
    assert facts.memory_gb is not None and facts.memory_gb < 3


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
