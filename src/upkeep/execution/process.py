"""Cells as plain processes, each in an environment of its own, on machines without a container engine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from upkeep.execution.handle import Handle
from upkeep.execution.kept import limits_of, start_kept
from upkeep.execution.runtimes import FIXED, OFFLINE, QUIET, Launch, Prepared, Runtime
from upkeep.images.environments import ensure_environment
from upkeep.images.records import ImageRecord
from upkeep.integrity import sealed
from upkeep.machine.resource_watchdog import Bounds
from upkeep.machine.scratch import Scratch


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
