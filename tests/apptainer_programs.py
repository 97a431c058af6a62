"""Programs that tests run as an ordinary user, to start cells in Apptainer containers."""

from __future__ import annotations

PRELUDE = """
import json, os, shutil, sys, tempfile, textwrap
from pathlib import Path
from upkeep.catalog import Catalog
from upkeep.contract import Resources
from upkeep.errors import UpkeepError
from upkeep.images import sif_bases, sif_files
from upkeep.execution.detection import detect
from upkeep.execution.runtimes import Launch

catalog = Catalog(Path.cwd())
runtime = detect(catalog)
folder = Path(tempfile.mkdtemp())
for name in ("cell", "output", "results"):
    (folder / name).mkdir()
catalog.results = folder / "results"
prepared = runtime.prepare("null", "base")

def start(code, **resources):
    resources = {"cpus": 1, "memory_gb": 1, "pids": 64, "disk_gb": 1} | resources
    return runtime.start(prepared, Launch(
        name="trial", inputs={"cell": folder / "cell"}, output=folder / "output", log=folder / "log",
        arguments=("-c", code), resources=Resources(**resources)))

"""
