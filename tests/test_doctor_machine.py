"""`./upkeep doctor`: clusters, GPUs, disks and limits are told as they are."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import tempfile
import time
from pathlib import Path

import pytest

from doctors import catalog, clients, found, program
from upkeep.catalog import Catalog
from upkeep.operations.doctor import machine
from upkeep.operations.doctor.examination import CHECKS, examine
from upkeep.operations.doctor.findings import GIB, Facts, Finding, Nodes
from upkeep.operations.doctor.slurm import slurm as slurm_check

__all__ = ["catalog", "clients"]


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
