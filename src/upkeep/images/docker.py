"""The command line of Docker or Podman."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import resource
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from upkeep.files import digest
from upkeep.machine.ask import ask
from upkeep.machine.scratch import Scratch

_MAKES_LAYER = re.compile(r'"(?:(?:\|\d+ .*)?/bin/sh -c (?!#)|(?:/bin/sh -c #\(nop\) +)?(?:RUN|COPY|ADD|WORKDIR)\b)')
_UNITS = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
PODMAN_PROCESSES = 32_768
"""Podman lowers its own limit of processes to this, and can give none that is higher."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The command line of Docker or Podman."""

    name: str
    """docker or podman"""
    path: str

    def run(
        self, *arguments: str, input: str | None = None, env: dict[str, str] | None = None, timeout: float | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.path, *arguments],
            input=input,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=os.environ | (env or {}),
        )

    def answers(self) -> str | None:
        """None where the engine answers; else why not."""
        query = "{{.Server.Version}}" if self.name == "docker" else "{{.Client.Version}}"
        try:
            done = self.run("version", "--format", query, timeout=20)
            if not done.returncode and self.name == "podman":
                done = self._try()
        except (subprocess.TimeoutExpired, OSError) as error:
            return f"{self.name}: {error}"
        if done.returncode:
            return f"{self.name}: {(done.stderr.strip() or 'no answer').splitlines()[-1]}"
        return None

    def _try(self) -> subprocess.CompletedProcess[str]:
        """Run a program of the host in a container with limits. Podman has no server that would know without trying."""
        bounds = ["--memory", "1g", "--pids-limit", "64", *self.limits, "--security-opt", "label=disable"]
        with host_root() as root:
            options = ["--rm", "--network", "none", "--log-driver", "none", "--volume", "/usr:/usr:ro"]
            return self.run("run", *options, *bounds, "--rootfs", str(root), "/usr/bin/true", timeout=60)

    @property
    def limits(self) -> list[str]:
        """Options for containers and builds: limits that this user may set. Podman's defaults raise them, which needs a
        capability; processes are bounded by other means."""
        if self.name != "podman":
            return []
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        processes = min(limit for limit in (*resource.getrlimit(resource.RLIMIT_NPROC), PODMAN_PROCESSES) if limit > 0)
        return ["--ulimit", f"nofile={files}:{files}", "--ulimit", f"nproc={processes}:{processes}"]

    def inspect(self, image: str) -> dict[str, object] | None:
        """What the engine knows of a local image; None where there is no such image."""
        done = self.run("image", "inspect", image)
        return None if done.returncode else json.loads(done.stdout)[0]

    def layers(self, known: Mapping[str, Any]) -> dict[str, int]:
        """Bytes of an image by layer, as `layer_names` names them: by the same name in each image that shares it.

        Args:
            known: what `inspect` gives. What a layer takes the engine says of each line of a Dockerfile alone, and
                some make none. Where it is not clear which, the image counts as one layer.
        """
        form = "{{.Size}} {{json .CreatedBy}}"
        done = self.run("image", "history", "--no-trunc", "--human=false", "--format", form, str(known["Id"]))
        lines = [re.match(r"([\d.]+) ?(\w*) (.*)", line) for line in reversed(done.stdout.splitlines())]
        made = [(round(float(one[1]) * _UNITS[one[2]]), one[3]) for one in lines if one]  # Podman knows no other form
        named = layer_names(known)
        sizes = [size for size, by in made if size or _MAKES_LAYER.match(by)]
        if len(sizes) != len(named):
            sizes = [size for size in sizes if size]
        if not named or len(sizes) != len(named):
            return {str(known["Id"]): int(known.get("Size") or 0)}
        return dict(zip(named, sizes, strict=True))


def layer_names(known: Mapping[str, Any]) -> list[str]:
    """The layers of an image, from the lowest on, each named by what it holds and all that it lies on.

    Args:
        known: what `CommandLine.inspect` gives.
    """
    layers = (known.get("RootFS") or {}).get("Layers") or []
    return [digest(layers[: n + 1]) for n in range(len(layers))]


@contextlib.contextmanager
def host_root() -> Iterator[Path]:
    """A root file system with nothing in it but a place for the host's /usr: to try whether containers run at all."""
    with Scratch() as folder:
        root = folder / "root"
        for name in ("dev", "etc", "proc", "run", "sys", "tmp", "usr"):
            (root / name).mkdir(parents=True)
        for link in (Path("/bin"), Path("/lib"), Path("/lib64")):
            if link.is_symlink():
                (root / link.name).symlink_to(link.readlink())
        yield root


@functools.cache
def find_client(name: str) -> CommandLine | None:
    """The client to use: UPKEEP_DOCKER (or UPKEEP_PODMAN), else the first on the PATH that can build.

    Docker's clients since 23 build through a plug-in (buildx) that may be missing; older ones need none.
    """
    if chosen := os.environ.get(f"UPKEEP_{name.upper()}"):
        return CommandLine(name, chosen)
    paths = (Path(folder) / name for folder in os.environ.get("PATH", "").split(os.pathsep) if folder)
    clients = [CommandLine(name, str(path)) for path in paths if os.access(path, os.X_OK) and path.is_file()]
    return next((client for client in clients if _builds(client)), clients[0] if clients else None)


def _builds(client: CommandLine) -> bool:
    if client.name != "docker":
        return True
    version = re.search(r"version (\d+)", ask(client.path, "--version", timeout_s=20).out)
    return (version is not None and int(version[1]) < 23) or bool(ask(client.path, "buildx", "version", timeout_s=20))
