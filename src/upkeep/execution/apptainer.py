"""Cells in Apptainer containers: for machines, clusters above all, where one has neither root nor Docker.

All is done as an ordinary user, in a user namespace: no network, no file of the host but the inputs, a read-only root,
processes of its own that end together, no privileges and no way to new ones. To bound the memory and the processes of a
group is root's; it is asked of systemd where that delegates it (cgroups v2). Everywhere, each process has limits of its
own, and a watchdog watches their sum.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path

import psutil

from upkeep.catalog import Catalog
from upkeep.contract import Resources
from upkeep.execution.containers import mount
from upkeep.execution.handle import Handle
from upkeep.execution.kept import limits_of, start_kept
from upkeep.execution.runtimes import FIXED, OFFLINE, QUIET, TMP_GB, Launch, Prepared, Runtime
from upkeep.images.apptainer import CONTAINED, CommandLine, environment, overlays
from upkeep.images.sif import PYTHON, VARIABLES, ensure_sif
from upkeep.images.sif_bases import base_at_hand, ensure_base_sif
from upkeep.machine import seccomp
from upkeep.machine.resource_watchdog import Bounds
from upkeep.machine.scratch import Scratch

SECCOMP = Path(seccomp.__file__)
NOT_MOUNTED = "bind-paths,cwd,devpts,hostfs"
"""What Apptainer's settings would show of the host: its time zone and names, folders, terminals, disks."""


class Apptainer(Runtime):
    """Apptainer, as an ordinary user."""

    name = "apptainer"
    isolated = True

    def __init__(self, catalog: Catalog, client: CommandLine, reason: str) -> None:
        super().__init__(catalog, reason)
        self.client = client

    def has_base(self) -> bool:
        return base_at_hand(self.catalog, "base") is not None

    def ensure_base(self) -> None:
        ensure_base_sif(self.catalog, "base", self.client)

    def _prepare(self, method: str | None, engine: str) -> Prepared:
        record, files = ensure_sif(self.catalog, method, engine, self.client)
        return Prepared(record, files=files)

    def path_of(self, role: str, path: Path) -> str:
        return f"/{role}"

    def command(self, prepared: Prepared, launch: Launch, arguments: Sequence[str], scratch: Path) -> list[str]:
        """The whole command line that starts a cell's container; `scratch` becomes its /tmp."""
        resources = launch.resources
        command = [self.client.path, "--quiet", "exec", *CONTAINED, "--hostname", "localhost", "--cwd", "/tmp"]
        command += ["--workdir", str(scratch)]
        if self.client.delegated:
            memory = f"{resources.memory_gb}G"
            command += ["--memory", memory, "--memory-swap", memory, "--pids-limit", str(resources.pids)]
        if launch.gpus:
            # Libraries look for GPUs in /sys; control groups, which might be the user's own to change, lie there, too.
            command += ["--nv", "--no-mount", NOT_MOUNTED]
            command += ["--mount", mount(scratch / "empty", "/sys/fs/cgroup", readonly=True)]
        else:
            command += ["--no-mount", f"{NOT_MOUNTED},sys"]
            command += ["--mount", mount(Path("/sys/devices/system"), "/sys/devices/system", readonly=True)]
        for role, path in launch.inputs.items():
            command += ["--mount", mount(path, self.path_of(role, path), readonly=True)]
        command += ["--mount", mount(launch.output, "/output", readonly=False)]
        settings = {"tasks": _task_limit(resources.pids), "variables": self._variables(launch)}
        confined = [PYTHON, "-I", "-S", "-c", SECCOMP.read_text(), json.dumps(settings)]
        return [*command, *overlays(prepared.files), *confined, PYTHON, *arguments]

    def _variables(self, launch: Launch) -> dict[str, str]:
        threads = str(min(launch.resources.cpus, os.cpu_count() or 1))
        variables = {**VARIABLES, **OFFLINE, **QUIET, **FIXED, "HOME": "/tmp", "OMP_NUM_THREADS": threads}
        if launch.gpus:
            visible = os.environ.get("CUDA_VISIBLE_DEVICES")
            devices = visible.split(",") if visible else [str(number) for number in range(launch.gpus)]
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(devices[: launch.gpus])
        return {**variables, **launch.env}

    def _start(self, prepared: Prepared, launch: Launch, arguments: Sequence[str]) -> Handle:
        scratch = Scratch()
        (scratch.path / "empty").mkdir()
        bounds = Bounds(
            memory_gb=launch.resources.memory_gb,
            tasks=launch.resources.pids,
            scratch=scratch.path,
            scratch_gb=TMP_GB,
            own_shm=True,
        )
        command = self.command(prepared, launch, arguments, scratch.path)
        return start_kept(command, environment({}), launch, scratch, limits_of(launch), bounds)

    def explain(self, status: int, resources: Resources, starved: bool | None = None) -> str:
        if status == 255:
            return "exit status 255: its own, or Apptainer could not start the container"
        return super().explain(status, resources, starved)


def _task_limit(pids: int) -> int:
    """What RLIMIT_NPROC must be for `pids` processes and threads in a container.

    Since Linux 5.14 it counts those of a user in its user namespace; before, all of the user on the machine.
    """
    release = re.match(r"(\d+)\.(\d+)", platform.release())
    if release is not None and (int(release[1]), int(release[2])) >= (5, 14):
        return pids
    everyones = (process.info for process in psutil.process_iter(["uids", "num_threads"]))
    mine = (each["num_threads"] or 0 for each in everyones if each["uids"] and each["uids"].real == os.getuid())
    return pids + sum(mine)
