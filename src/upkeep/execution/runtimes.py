"""What runs cells: Docker or Podman (`containers`), Apptainer (`apptainer`), or a plain process (`process`).

All give a cell the same: a description, read-only inputs, one writable folder, a standard input to read rounds from.
The containers also cut the network, the rest of the file system and all privileges; a process does not, and says so
(`isolated`).
"""

from __future__ import annotations

import os
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from upkeep.catalog import Catalog
from upkeep.contract import Environment, Job, Resources
from upkeep.errors import UpkeepError
from upkeep.execution.handle import Handle
from upkeep.images.environments import EnvironmentRecord
from upkeep.images.records import ImageRecord, known_record
from upkeep.integrity import sealed, write_sealed
from upkeep.layout import Layout
from upkeep.machine.scratch import Scratch

TMP_GB = 2
"""Size of a container's /tmp, part of its memory limit."""
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_NO_USAGE_STATS": "1",
}
QUIET = {"TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
FIXED = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "USER": "cell", "LOGNAME": "cell"}


@dataclass(frozen=True, slots=True)
class Prepared:
    """The image or environment of a method or an engine, ready to start."""

    record: ImageRecord
    environment: EnvironmentRecord | None = None
    """For the plain process."""
    files: tuple[Path, ...] = ()
    """For Apptainer: the SIF of its packages, and what is laid over it."""

    def describe(self) -> str:
        place = self.record.tag or "environment"
        return f"{place} ({self.record.digest[:19]}, {len(self.record.packages)} packages)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One start of a cell."""

    name: str
    """Unique among what runs on this machine; a container that is left over from an earlier start is removed by it."""
    inputs: Mapping[str, Path]
    """Read-only files and folders by role (`cell`, `model`, `embedder`, ...): where a cell sees one is `path_of(role)`.
    `cell` is the folder with `cell.json`."""
    output: Path
    """The one writable folder: role `output`."""
    log: Path
    """Takes standard output and error, up to LOG_BYTES."""
    resources: Resources = field(default_factory=Resources)
    gpus: int = 0
    env: Mapping[str, str] = field(default_factory=dict)
    arguments: Sequence[str] = ()
    """Arguments for Python; by default `-m upkeep.cell <cell>/cell.json`."""


class Runtime(ABC):
    """One way to run cells."""

    name: Literal["docker", "podman", "apptainer", "process"]
    isolated: bool

    def __init__(self, catalog: Catalog, reason: str) -> None:
        self.catalog = catalog
        self.reason = reason
        """Why this one, in words for the user."""

    def describe(self) -> str:
        return f"{self.name} ({self.reason})"

    def prepare(self, method: str | None, engine: str) -> Prepared:
        """Make an image or environment where it is missing, and write its record to `results/images/`.

        Args:
            method: the method in it; None for an engine's own.
            engine: the folder of `containers/` that it is built on.

        Raises:
            UpkeepError: it cannot be made.
        """
        prepared = self._prepare(method, engine)
        path = Layout(self.catalog.results).image(method, engine)
        if known_record(path) != sealed(prepared.record):
            write_sealed(path, prepared.record)
        return prepared

    def has_base(self) -> bool:
        """Whether the base image of CPU images is on this machine."""
        return True

    def ensure_base(self) -> None:
        """Get or make the base image of CPU images.

        Raises:
            UpkeepError: it can neither be pulled nor made.
        """
        return

    def sweep(self) -> None:
        """End what killed supervisors of these results have left running on this machine."""
        return

    @abstractmethod
    def _prepare(self, method: str | None, engine: str) -> Prepared: ...

    @abstractmethod
    def path_of(self, role: str, path: Path) -> str:
        """How a cell sees the file or folder `path` that it is given in a role (`cell`, `model`, `output`, ...)."""

    @abstractmethod
    def _start(self, prepared: Prepared, launch: Launch, arguments: Sequence[str]) -> Handle: ...

    def start(self, prepared: Prepared, launch: Launch) -> Handle:
        """Start a cell. Call from a thread that lives as long as the cell: a process ends with the thread.

        Raises:
            UpkeepError: an input is missing or not readable by the user that cells run as, or nothing can be started.
        """
        for role, path in {**launch.inputs, "output": launch.output}.items():
            if not path.exists():
                raise UpkeepError(f"the cell's {role} is missing", where=path)
        arguments = launch.arguments
        if not arguments:
            arguments = ("-m", "upkeep.cell", f"{self.path_of('cell', launch.inputs['cell'])}/cell.json")
        return self._start(prepared, launch, arguments)

    def run_tool(
        self,
        prepared: Prepared,
        arguments: Sequence[str],
        *,
        inputs: Mapping[str, Path] | None = None,
        output: Path,
        resources: Resources | None = None,
    ) -> str:
        """Run Python with these arguments as a cell would run, and wait; returns the end of what it printed.

        The arguments name folders as the tool sees them: `path_of("output", output)` is the writable one.

        Raises:
            UpkeepError: it fails; with the end of its output.
        """
        with Scratch() as folder:
            launch = Launch(
                name=f"tool-{os.getpid()}-{threading.get_native_id()}",
                inputs=inputs or {},
                output=output,
                log=folder / "log",
                resources=resources or Resources(),
                arguments=tuple(arguments),
            )
            handle = self.start(prepared, launch)
            handle.stdin.close()
            status = handle.wait()
            if status:
                raise UpkeepError(
                    f"a tool failed: {self.explain(status, launch.resources, handle.starved)}",
                    where=" ".join(arguments)[:200],
                    found=handle.tail(),
                )
            return handle.tail(1000)

    def environment(
        self, prepared: Prepared, engine: str, hardware: Mapping[str, Any], job: Job | None = None
    ) -> Environment:
        """The manifest's entry. `engine` is the package that generates (`vllm`, `transformers`, `none`)."""
        packages = prepared.record.packages
        version = next((packages[n] for n in (engine, f"{engine}-cpu") if n in packages), "")
        return Environment(
            runtime=self.name,
            isolated=self.isolated,
            image=prepared.record.tag,
            digest=prepared.record.digest,
            engine=engine,
            engine_version=version,
            packages=packages,
            hardware=dict(hardware),
            job=job,
        )

    def explain(self, status: int, resources: Resources, starved: bool | None = None) -> str:
        """An exit status in words; `starved` is the handle's."""
        if status in (137, -signal.SIGKILL):
            memory = f"out of memory (limit {resources.memory_gb} GB)"
            return {
                True: f"killed: most likely {memory}",
                False: "killed from outside (SIGKILL); the kernel ended nothing for want of memory meanwhile",
                None: f"killed (SIGKILL): {memory}, or from outside",
            }[starved]
        if status < 0 or status > 128:
            number = -status if status < 0 else status - 128
            known = number in signal.valid_signals()
            return f"killed by {signal.Signals(number).name if known else f'signal {number}'}"
        return f"exit status {status}"
