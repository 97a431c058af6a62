"""The command line of Apptainer."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from upkeep.errors import UpkeepError
from upkeep.images.docker import host_root
from upkeep.images.sif_files import mksquashfs, squash

CONTAINED = ("--userns", "--containall", "--cleanenv", "--no-home", "--no-eval", "--net", "--network", "none")
"""No network, nothing of the host's files, processes or variables, in a user namespace: as an ordinary user."""


@dataclass(frozen=True)
class CommandLine:
    """The command line of Apptainer."""

    path: str

    def run(
        self, *arguments: str | Path, input: str | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.path, "--quiet", *map(str, arguments)],
            input=input,
            capture_output=True,
            text=True,
            env=environment(env or {}),
            umask=0o022,
        )

    def answers(self) -> str | None:
        """None where it runs a contained program here, without network and from a squashed file; else why not."""
        if not os.geteuid():
            return "apptainer: not as root, who would be root in the container, too: start as an ordinary user"
        if mksquashfs() is None:
            return "apptainer: mksquashfs is missing (install squashfs-tools)"
        try:
            done = self._try()
        except (OSError, UpkeepError) as error:
            return f"apptainer: {error}"
        return f"apptainer: {last_line(done.stderr)}" if done.returncode else None

    @functools.cached_property
    def delegated(self) -> bool:
        """Whether this user may bound memory and processes of a container (cgroups v2, delegated by systemd)."""
        return not self._try("--memory", "1G", "--memory-swap", "1G", "--pids-limit", "64").returncode

    def _try(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Run /usr/bin/true of the host in a container, in all else as a cell."""
        with host_root() as root:
            layer = root.with_name("layer")
            layer.mkdir()
            squash(layer, image := layer.with_suffix(".sqsh"))
            binds = ["--no-mount", "bind-paths", "--bind", "/usr:/usr:ro"]
            return self.run("exec", *CONTAINED, *options, *binds, *overlays([root, image]), "/usr/bin/true")


def environment(inside: Mapping[str, str]) -> dict[str, str]:
    """The environment of an Apptainer command: `inside` for the container, and of the host's no setting that opens it
    (APPTAINER_BIND and its like)."""
    names = ("HOME", "PATH", "TMPDIR", "LANG", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "CUDA_VISIBLE_DEVICES")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    return kept | {f"APPTAINERENV_{name}": value for name, value in inside.items()}


def find_apptainer() -> CommandLine | None:
    """UPKEEP_APPTAINER, else the one on the PATH."""
    path = os.environ.get("UPKEEP_APPTAINER") or shutil.which("apptainer")
    return CommandLine(path) if path else None


def overlays(files: Sequence[Path]) -> list[str]:
    """The last words of a command: what is laid over the packages, and those."""
    packages, *layers = map(str, files)
    return [word for layer in layers for word in ("--overlay", f"{layer}:ro")] + [packages]


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no answer"])[-1]
