"""Where cells run: Docker, Podman, Apptainer (in `apptainer.py`), or a plain process in an environment of its own.

All give a cell the same: a description, read-only inputs, one writable folder, a standard input to read rounds from.
The containers also cut the network, the rest of the file system and all privileges; a process does not, and says so
(`isolated`).
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
import re
import signal
import stat
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from upkeep.catalog import Catalog
from upkeep.contract import Environment, Job, Resources
from upkeep.errors import UpkeepError
from upkeep.files import digest
from upkeep.images.environments import EnvironmentRecord, ensure_environment
from upkeep.images.images import (
    Base,
    Client,
    ImageRecord,
    ensure_base,
    ensure_image,
    known_record,
    pinned_base,
)
from upkeep.integrity import sealed, write_sealed
from upkeep.layout import Layout
from upkeep.machine.lifeline import has_ended, this_process
from upkeep.machine.reaper import kept
from upkeep.machine.resource_watchdog import Bounds, Guard, oom_kills
from upkeep.machine.scratch import Scratch

LOG_BYTES = 16 * 1024 * 1024
"""What is kept of a cell's standard output and error; the rest is read and thrown away."""
UNPRIVILEGED = 65534
"""User and group of cells where the host runs as root (`nobody`)."""
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


class Handle:
    """A cell that runs. Close `stdin` to let it end; `kill` ends it at once."""

    def __init__(
        self, process: subprocess.Popen[bytes], log: Path, stop: Callable[[], None], bounds: Bounds | None = None
    ) -> None:
        """`stop` ends it, and does nothing where it has ended; `bounds` are watched here, where nothing else does."""
        assert process.stdin is not None and process.stdout is not None
        self.process = process
        self.stdin: IO[bytes] = process.stdin
        self.log = log
        self.starved: bool | None = None
        """Whether it was killed for memory, or something was meanwhile; None where nothing tells, or while it runs."""
        self._stop = stop
        self._oom_kills = oom_kills()
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_bytes(b"")
        except OSError:
            stop()
            raise
        self._pump = threading.Thread(target=_pump, args=(process.stdout, log), daemon=True)
        self._pump.start()
        self._guard = Guard(process.pid, bounds, stop) if bounds is not None else None

    @property
    def pid(self) -> int:
        return self.process.pid

    def poll(self) -> int | None:
        """The exit status, None while it runs."""
        return self.process.poll()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit status; where the watchdog ended it, one that tells why.

        Raises:
            subprocess.TimeoutExpired: it still runs after `timeout` seconds.
        """
        status = self.process.wait(timeout)
        with contextlib.suppress(OSError):
            self.stdin.close()
        # Whatever a cell left running must not write on after its end.
        self._stop()
        self._pump.join(timeout=10)
        if self._oom_kills is not None and (now := oom_kills()) is not None:
            self.starved = now > self._oom_kills
        if self._guard is None or (passed := self._guard.close()) is None:
            return status
        self.starved = passed.signal == signal.SIGKILL
        with self.log.open("ab") as file:
            file.write(f"\n[{passed.reason}]\n".encode())
        return 128 + passed.signal

    def kill(self) -> int:
        """End it and everything it started; returns the exit status."""
        self._stop()
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        return self.wait()

    def tail(self, lines: int = 20) -> str:
        """The last lines of its output, for messages; unprintable characters are replaced."""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - 16_384))
            text = file.read().decode("utf-8", "replace")
        kept = "\n".join(text.splitlines()[-lines:])
        return "".join(c if c.isprintable() or c in "\n\t" else "�" for c in kept)


def _pump(source: IO[bytes], log: Path) -> None:
    left = LOG_BYTES
    with log.open("wb", buffering=0) as file, source:
        while block := source.read1(65536):  # type: ignore[attr-defined]
            if left:
                # A log that finds no room must not hold up the cell, which waits for its output to be read.
                with contextlib.suppress(OSError):
                    file.write(block[:left])
                    if left <= len(block):
                        file.write(f"\n[output above {LOG_BYTES} bytes is left out]\n".encode())
            left = max(0, left - len(block))


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


# ---------------------------------------------------------------- containers


class Containers(Runtime):
    """Docker or Podman."""

    isolated = True

    def __init__(self, catalog: Catalog, client: Client, reason: str) -> None:
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
            mode = path.stat().st_mode
            wanted = 0o005 if stat.S_ISDIR(mode) else 0o004
            if uid == UNPRIVILEGED and mode & wanted != wanted:
                raise UpkeepError(
                    f"cells cannot read the {role}: they run as an unprivileged user",
                    where=path,
                    expected="readable by everyone",
                    found=stat.filemode(mode),
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


# ---------------------------------------------------------------- plain process

STOP_S = 15.0
"""How long a reaper may take to end what it keeps."""


def limits_of(launch: Launch) -> dict[str, int]:
    """Limits of every process of a cell: no core files, the size of a file, and memory of its own."""
    limits = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": launch.resources.disk_gb * 2**30}
    # A GPU's driver maps far more than it uses.
    return limits if launch.gpus else limits | {"RLIMIT_DATA": launch.resources.memory_gb * 2**30}


def start_kept(
    command: Sequence[str],
    environment: Mapping[str, str],
    launch: Launch,
    scratch: Scratch,
    limits: Mapping[str, int],
    bounds: Bounds,
) -> Handle:
    """Start a command that ends with this thread, however it ends, with all that it started; `scratch` goes with it."""
    process = subprocess.Popen(
        kept(command, scratch.path, limits),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=scratch.path,
        env=environment,
        umask=0o022,
        start_new_session=True,
    )

    def stop() -> None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
        if process.returncode is None or process.returncode < 0:  # it hangs or was killed, so what it kept is left
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        scratch.close()

    return Handle(process, launch.log, stop, bounds)


class Process(Runtime):
    """A plain process in a virtual environment: no network, file or memory isolation."""

    name = "process"
    isolated = False

    def _prepare(self, method: str | None, engine: str) -> Prepared:
        made = ensure_environment(self.catalog, method, engine)
        record = sealed(
            ImageRecord(
                method=method,
                engine=engine,
                runtime="process",
                tag=None,
                digest=f"sha256:{made.digest}",
                inputs=made.inputs,
                content=None,
                size=0,
                base=None,
                base_digest=None,
                packages=made.packages,
                python=made.version,
                seconds=0.0,
            )
        )
        return Prepared(record, made)

    def path_of(self, role: str, path: Path) -> str:
        return str(path.resolve())

    def _start(self, prepared: Prepared, launch: Launch, arguments: Sequence[str]) -> Handle:
        made = prepared.environment
        assert made is not None
        scratch = Scratch()
        home = str(scratch.path)
        # Nothing of the host's environment enters, so no token or setting does either.
        environment = {
            **OFFLINE,
            **QUIET,
            **FIXED,
            "PATH": f"{made.python.parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": home,
            "TMPDIR": home,
            "PYTHONPATH": os.pathsep.join(map(str, made.path)),
            "UPKEEP_METHODS": str(made.methods),
            "OMP_NUM_THREADS": str(min(launch.resources.cpus, os.cpu_count() or 1)),
            **{k: v for k in ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH") if (v := os.environ.get(k)) is not None},
            **launch.env,
        }
        command = [str(made.python), *arguments]
        bounds = Bounds(memory_gb=launch.resources.memory_gb, tasks=launch.resources.pids)
        return start_kept(command, environment, launch, scratch, limits_of(launch), bounds)
