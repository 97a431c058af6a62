"""Checks of this machine: Python and its packages, GPUs, memory, processors, limits, clock."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import resource
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
from packaging.requirements import Requirement

from upkeep.catalog import Catalog
from upkeep.machine.ask import ask
from upkeep.machine.gpus import visible_gpus
from upkeep.operations.doctor.findings import EVERY_SUITE, GIB, Facts, Finding, missing, ok, warning


def python(catalog: Catalog, suite: str, facts: Facts) -> Iterator[Finding]:
    group, version = "Python", f"{platform.python_version()} in {sys.prefix}"
    anew = "remove .venv; ./upkeep makes it anew"
    if (3, 11) <= sys.version_info[:2] <= (3, 13):
        facts.runtimes["process"] = None
        yield ok(group, "interpreter", version)
    else:
        facts.runtimes["process"] = f"Python {version}"
        yield missing(group, "interpreter", version, EVERY_SUITE, f"install Python 3.11, 3.12 or 3.13; {anew}")
    pins = re.findall(r"^([A-Za-z0-9][^\\\n]*?)\s*\\?$", (catalog.root / "requirements.lock").read_text(), re.M)
    locked = [pin for pin in map(Requirement, pins) if pin.marker is None or pin.marker.evaluate()]
    wrong = [pin.name for pin in locked if not pin.specifier.contains(_installed(pin.name) or "0", prereleases=True)]
    if wrong:
        found = f"{len(wrong)} of {len(locked)} not installed as locked: {', '.join(wrong[:5])}"
        yield warning(group, "packages", found, "saying which versions made a result", anew)
    else:
        yield ok(group, "packages", f"{len(locked)}, as locked")


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def gpus(catalog: Catalog, suite: str, facts: Facts) -> Iterator[Finding]:
    group, what = "GPUs", "models with `gpus` above 0 on this machine; those on the CPU run"
    fields = "index,name,memory.total,driver_version,mig.mode.current"
    answer = ask("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits")
    if not answer:
        there = shutil.which("nvidia-smi") is not None
        remedy = "see to the driver (nvidia-smi)" if there else "a machine with an NVIDIA GPU and its driver"
        yield missing(group, "nvidia-smi", str(answer.problem), what, remedy)
        return
    rows = [[part.strip() for part in line.split(",")] for line in answer.out.splitlines()]
    rows = [row for row in rows if len(row) == 5 and row[0].isdigit()]
    if not rows:
        found = (answer.out.strip().splitlines() or ["lists none"])[0][:200]
        yield missing(group, "nvidia-smi", found, what, "see to the driver (nvidia-smi)")
        return
    cuda = re.search(r"CUDA Version:\s*([\d.]+)", ask("nvidia-smi").out)
    yield ok(group, "driver", f"{rows[0][3]}{f', CUDA {cuda[1]}' if cuda else ''}")
    for index, name, memory, _, mig in rows:
        size = f"{int(memory) / 1024:,.0f} GiB" if memory.isdigit() else memory
        shared = ", MIG on: jobs get its parts" if mig.lower() == "enabled" else ""
        yield ok(group, f"GPU {index}", f"{name}, {size}{shared}")
    facts.gpus = len(rows)
    if (chosen := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        facts.gpus = visible_gpus()
        found = f"{chosen!r}: {facts.gpus} of them"
        if facts.gpus:
            yield ok(group, "visible", found)
        else:
            yield warning(group, "visible", found, what, "unset CUDA_VISIBLE_DEVICES")


def machine(catalog: Catalog, suite: str, facts: Facts) -> Iterator[Finding]:
    group, limits, memory = "Machine", cgroup(), psutil.virtual_memory()
    bound = min(memory.total, limits.get("memory.max", memory.total))
    facts.memory_gb = bound / GIB * 1.05  # a machine of 16 GiB shows somewhat less, and is meant by `memory_gb: 16`
    text = f"{memory.total / GIB:,.1f} GiB, {memory.available / GIB:,.1f} free"
    if bound < memory.total:
        text += f"; this process may use {bound / GIB:,.1f} GiB (cgroup)"
        yield warning(group, "memory", text, "cells that ask for more", "ask your batch system for more")
    else:
        yield ok(group, "memory", text)
    cores = os.cpu_count() or 1
    mine = min(len(os.sched_getaffinity(0)), limits.get("cpu.max", cores))
    yield ok(group, "processors", f"{cores}" if mine >= cores else f"{cores}, of which this process may use {mine:g}")
    if (pids := limits.get("pids.max")) is not None:
        found = f"{pids:,.0f} at most (cgroup)"
        remedy = "raise pids.max of this session"
        yield (
            ok(group, "processes", found)
            if pids >= 1024
            else warning(group, "processes", found, "several cells at a time", remedy)
        )
    shm = shutil.disk_usage("/dev/shm").total if Path("/dev/shm").is_dir() else 0
    remedy = "make it larger (--shm-size, where this is a container)"
    what = "vLLM over several GPUs as a plain process"
    found = f"{shm / GIB:,.1f} GiB"
    yield ok(group, "/dev/shm", found) if shm >= GIB else warning(group, "/dev/shm", found, what, remedy)
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY or files >= 1024:
        yield ok(group, "open files", "no limit" if files == resource.RLIM_INFINITY else f"{files:,}")
    else:
        yield warning(group, "open files", f"{files:,}", "many jobs at a time", "ulimit -n 4096")
    size, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if size != resource.RLIM_INFINITY:
        yield warning(group, "size of a file", f"{size:,} bytes", "images and weights", "ulimit -f unlimited")
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    if time.time() < (catalog.root / "requirements.lock").stat().st_mtime - 60:
        what, remedy = "knowing what is newer: jobs run again, or not", "set it (timedatectl set-ntp true)"
        yield warning(group, "clock", f"{shown}, before this copy of the suite was made", what, remedy)
    else:
        yield ok(group, "clock", shown)


def cgroup() -> dict[str, float]:
    """Limits of this process's control groups (version 2) and of those above: memory.max in bytes, pids.max, and
    cpu.max in processors."""
    top, found = Path("/sys/fs/cgroup"), dict[str, float]()
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, _, place = line.split(":", 2)
        folder = top / place.strip("/")
        while number == "0" and folder.is_relative_to(top):
            for name in ("memory.max", "pids.max", "cpu.max"):
                file = folder / name
                words = file.read_text().split() if file.is_file() else []
                if words and words[0].isdigit():
                    value = int(words[0]) / (int(words[1]) if len(words) == 2 else 1)
                    found[name] = min(value, found.get(name, value))
            folder = folder.parent
    return found
