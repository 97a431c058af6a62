"""Finds out what runs containers on this machine."""

from __future__ import annotations

import json

import msgspec

from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.execution.apptainer import Apptainer
from upkeep.execution.containers import Containers
from upkeep.execution.process import Process
from upkeep.execution.runtimes import Runtime
from upkeep.files import write_atomically
from upkeep.images.apptainer import find_apptainer
from upkeep.images.docker import find_client
from upkeep.images.plans import pinned_base

ENGINES = ("docker", "podman", "apptainer")
"""Container engines, in the order in which `auto` tries them."""


def detect(catalog: Catalog) -> Runtime:
    """The runtime that the configuration asks for; `auto` takes Docker, Podman, Apptainer or a plain process.

    `auto` takes an engine that answers and that a base image can be had for. Where that failed once, it is not tried
    again as long as `<cache>/runtime.json` is there.

    Raises:
        UpkeepError: the engine that is asked for does not answer.
    """
    wanted = catalog.config.runtime
    if wanted == "process":
        return Process(catalog, "as configured; not isolated")
    if wanted != "auto":
        runtime = _engine(catalog, wanted, "as configured")
        if isinstance(runtime, Runtime):
            return runtime
        raise UpkeepError(
            f"the configured runtime {wanted} does not work",
            found=runtime,
            remedy=f"start {wanted}, or set runtime to auto (UPKEEP_RUNTIME=auto)",
            kind="machine",
        )
    problems = []
    for name in ENGINES:
        runtime = _engine(catalog, name, "found on this machine")
        problem = _no_base(runtime) if isinstance(runtime, Runtime) else runtime
        if isinstance(runtime, Runtime) and problem is None:
            return runtime
        problems.append(problem)
    return Process(catalog, f"no container engine: {'; '.join(map(str, problems))}. Cells run without isolation")


def _engine(catalog: Catalog, name: str, reason: str) -> Runtime | str:
    """A container engine that answers on this machine; else why there is none."""
    if name == "apptainer":
        apptainer = find_apptainer()
        return f"no {name}" if apptainer is None else apptainer.answers() or Apptainer(catalog, apptainer, reason)
    client = find_client(name)
    return f"no {name}" if client is None else client.answers() or Containers(catalog, client, reason)


def _no_base(runtime: Runtime) -> str | None:
    """Why no base image can be had, None where one can. A failure is remembered: trying takes minutes."""
    reference = pinned_base(runtime.catalog, "base")
    note = runtime.catalog.cache / "runtime.json"
    try:
        known = msgspec.json.decode(note.read_bytes(), type=dict[str, dict[str, str]])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        known = {}  # nothing is noted, or nobody can read it
    if known.get(runtime.name, {}).get("base") == reference and not runtime.has_base():
        return known[runtime.name].get("problem", "")
    try:
        runtime.ensure_base()
    except UpkeepError as error:
        problem = f"{runtime.name} has no base image ({error.problem}: {error.found}; tried again without {note})"
        write_atomically(note, json.dumps(known | {runtime.name: {"base": reference, "problem": problem}}).encode())
        return problem
    return None
