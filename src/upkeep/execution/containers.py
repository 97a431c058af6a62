"""Cells in containers of Docker or Podman: no network, no file of the host but the inputs, no privileges."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import re
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path

from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.execution.handle import Handle
from upkeep.execution.runtimes import FIXED, OFFLINE, QUIET, TMP_GB, Launch, Prepared, Runtime
from upkeep.files import digest
from upkeep.images.docker import CommandLine
from upkeep.images.oci import Base, ensure_base, ensure_image
from upkeep.images.plans import pinned_base
from upkeep.machine.lifeline import has_ended, this_process
from upkeep.machine.scratch import Scratch

UNPRIVILEGED = 65534
"""User and group of cells where the host runs as root (`nobody`)."""


class Containers(Runtime):
    """Docker or Podman."""

    isolated = True

    def __init__(self, catalog: Catalog, client: CommandLine, reason: str) -> None:
        super().__init__(catalog, reason)
        self.client = client
        self.name = "docker" if client.name == "docker" else "podman"
        self._labels = {"upkeep.results": digest(str(catalog.results)), "upkeep.owner": this_process()}
        self._bases: dict[str, Base] = {}
        self._swept = False

    def has_base(self) -> bool:
        return self.client.inspect(pinned_base(self.catalog, "base")) is not None

    def ensure_base(self) -> None:
        ensure_base(self.catalog, "base", self.client)

    def _prepare(self, method: str | None, engine: str) -> Prepared:
        reference = pinned_base(self.catalog, engine)
        if reference not in self._bases:
            self._bases[reference] = ensure_base(self.catalog, engine, self.client)
        return Prepared(ensure_image(self.catalog, method, engine, self.client, self._bases[reference]))

    def path_of(self, role: str, path: Path) -> str:
        return f"/{role}"

    def user(self) -> tuple[int, int]:
        """User and group that cells run as: never root."""
        return (os.getuid(), os.getgid()) if os.getuid() else (UNPRIVILEGED, UNPRIVILEGED)

    def command(self, prepared: Prepared, launch: Launch, arguments: Sequence[str]) -> list[str]:
        """The whole command line that starts a cell's container."""
        uid, gid = self.user()
        resources = launch.resources
        cpus = min(resources.cpus, os.cpu_count() or 1)
        command = [self.client.path, "run", "--interactive", "--rm", "--init", "--name", container_name(launch.name)]
        command += [word for label in self._labels.items() for word in ("--label", "=".join(label))]
        command += ["--label", "upkeep=cell", "--network", "none", "--user", f"{uid}:{gid}", "--read-only"]
        command += ["--tmpfs", f"/tmp:rw,exec,nosuid,nodev,size={TMP_GB}g,mode=1777", "--shm-size", "1g"]
        command += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--log-driver", "none"]
        command += ["--memory", f"{resources.memory_gb}g", "--memory-swap", f"{resources.memory_gb}g"]
        command += ["--pids-limit", str(resources.pids), "--cpus", str(cpus)]
        command += ["--ulimit", "core=0:0", "--ulimit", f"fsize={(size := resources.disk_gb * 2**30)}:{size}"]
        command += self.client.limits
        if self.name == "podman":
            # A read-only root gets writable folders in memory by default, beside the one that it has here.
            command += ["--read-only-tmpfs=false"]
            # The host user keeps its number inside, so that it owns what the cell writes; labels stay as they are.
            command += ["--security-opt", "label=disable", *(["--userns", "keep-id"] if os.getuid() else [])]
        if launch.gpus:
            command += self._gpus(launch.gpus)
        for role, path in launch.inputs.items():
            command += ["--mount", mount(path, self.path_of(role, path), readonly=True)]
        command += ["--mount", mount(launch.output, "/output", readonly=False)]
        environment = {**OFFLINE, **QUIET, **FIXED, "HOME": "/tmp", "OMP_NUM_THREADS": str(cpus), **launch.env}
        for name, value in environment.items():
            command += ["--env", f"{name}={value}"]
        return [*command, prepared.record.digest, "python", *arguments]

    def _gpus(self, count: int) -> list[str]:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        if self.name == "podman":
            devices = visible.split(",")[:count] if visible else [str(i) for i in range(count)]
            return [word for device in devices for word in ("--device", f"nvidia.com/gpu={device}")]
        # Docker reads the value as CSV, and a list of devices holds commas.
        return ["--gpus", f'"device={",".join(visible.split(",")[:count])}"' if visible else str(count)]

    def sweep(self) -> None:
        """As it is said of all. A container ends with its supervisor where it reads the end of its input; others do
        not, and theirs cannot end it when it is killed. So each says by its labels whose it is."""
        self._swept = True
        results = f"label=upkeep.results={self._labels['upkeep.results']}"
        listed = self.client.run("ps", "--all", "--quiet", "--filter", results).stdout.split()
        owners = '{{.Id}} {{index .Config.Labels "upkeep.owner"}}'
        told = self.client.run("inspect", "--type", "container", "--format", owners, *listed).stdout if listed else ""
        for container, _, owner in (line.partition(" ") for line in told.splitlines()):
            if has_ended(owner):
                self.client.run("rm", "--force", "--volumes", container)

    def _start(self, prepared: Prepared, launch: Launch, arguments: Sequence[str]) -> Handle:
        uid, gid = self.user()
        for role, path in launch.inputs.items():
            if uid == UNPRIVILEGED and (hidden := hidden_in(path)) is not None:
                raise UpkeepError(
                    f"cells cannot read the {role}: they run as an unprivileged user",
                    where=hidden,
                    expected="readable by everyone",
                    found=stat.filemode(hidden.stat().st_mode),
                    remedy=f"chmod -R o+rX {path}",
                    kind="machine",
                )
        if not os.getuid():
            _give(launch.output, uid, gid)
        if not self._swept:
            self.sweep()
        name = container_name(launch.name)
        self.client.run("rm", "--force", "--volumes", name)
        # Podman leaves an empty file `oom` where it was started when a container is killed for memory.
        scratch = Scratch()
        process = subprocess.Popen(
            self.command(prepared, launch, arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=scratch.path,
            start_new_session=True,
        )

        def stop() -> None:
            self.client.run("rm", "--force", "--volumes", name)
            scratch.close()

        return Handle(process, launch.log, stop)


def hidden_in(path: Path) -> Path | None:
    """The first of a path and what lies below it that not everyone may read, or enter; None where they may."""
    below = sorted(path.rglob("*")) if path.is_dir() else []
    for found in (path, *below):
        with contextlib.suppress(FileNotFoundError):  # a link to nowhere is nobody's to read
            mode = found.stat().st_mode
            wanted = 0o005 if stat.S_ISDIR(mode) else 0o004
            if mode & wanted != wanted:
                return found
    return None


def container_name(name: str) -> str:
    """A container's name for a launch's, in the characters that engines allow."""
    return "upkeep-" + re.sub(r"[^A-Za-z0-9_.-]", "-", name)[:200]


def mount(source: Path, target: str, *, readonly: bool) -> str:
    """The value of `--mount`, which engines read as CSV: a path may hold commas and quotes."""
    text = io.StringIO()
    fields = ["type=bind", f"source={source.resolve()}", f"target={target}"]
    csv.writer(text, lineterminator="").writerow([*fields, "readonly"] if readonly else fields)
    return text.getvalue()


def _give(folder: Path, uid: int, gid: int) -> None:
    """Make a folder and what lies in it the cell user's own; links are not followed."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, uid, gid, follow_symlinks=False)
