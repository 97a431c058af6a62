"""An ordinary user's clone with a suite of its own, and what is run of it on a cluster."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml
from tests.cluster import Cluster

from conftest import CACHE, docker_reason
from ordinary_user import OrdinaryUser

DATASET = "oaks_babi_mini"


class Repository:
    """An ordinary user's clone, with a suite of its own, and the cluster that it is run on."""

    def __init__(self, user: OrdinaryUser, folder: Path, cluster: Cluster, runtime: str) -> None:
        shutil.copytree(user.clone, folder, symlinks=True, ignore=shutil.ignore_patterns("results", ".snakemake"))
        self.user, self.cluster, self.runtime = dataclasses.replace(user, clone=folder), cluster, runtime
        self.folder = folder
        self.edit("profiles/slurm/config.yaml", {"upkeep-slurm-init-seconds-before-status-checks": 2})
        self.edit("profiles/slurm/config.yaml", {"seconds-between-status-checks": 2, "latency-wait": 10})

    def edit(self, name: str, changes: dict[str, Any]) -> None:
        """Change fields of a YAML file."""
        path = self.folder / name
        path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | changes))

    def write(self, name: str, content: str | dict[str, Any]) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))

    def write_cluster(self, **fields: Any) -> None:
        """What is particular to the test's cluster."""
        path = self.folder / "profiles/slurm/cluster.yaml"
        given = yaml.safe_load(path.read_text())["cluster"]
        path.write_text(yaml.safe_dump({"cluster": given | {"runtime": self.runtime} | fields}))

    def write_suite(self, *choices: tuple[list[str], list[str]], cells_per_job: int = 1) -> None:
        """Choices are (methods, models)."""
        cells = [{"datasets": [DATASET], "methods": methods, "models": models} for methods, models in choices]
        self.write("config/suites/trial.yaml", {"label": "t", "summary": "s", "papers": ["oaks"], "cells": cells})
        self.edit("config/config.yaml", {"suite": "trial", "cells_per_job": cells_per_job})
        self.user.own(self.folder)

    @property
    def environment(self) -> dict[str, str]:
        path = f"{self.cluster.path}:{self.user.environment()['PATH']}"
        return {**self.cluster.environment, "PATH": path, "PYTHONPATH": str(self.folder / "src")}

    def command(self, *more: str) -> list[str]:
        return ["python", "-m", "snakemake", "--profile", "profiles/slurm", *more, "all"]

    def manifests(self) -> dict[str, dict[str, Any]]:
        found = (json.loads(path.read_bytes()) for path in self.folder.glob("results/cells/*/*/*/*/manifest.json"))
        return {manifest["cell"]: manifest for manifest in found}

    def predictions(self, cell: str) -> bytes:
        return (self.folder / "results/cells" / cell / "predictions.jsonl").read_bytes()

    def run_locally(self, cells: list[str], results: Path) -> dict[str, bytes]:
        """The predictions of some cells on this machine, without SLURM: in Docker, where it is."""
        runtime = "docker" if docker_reason() is None else self.runtime
        environment = os.environ | {
            "UPKEEP_RUNTIME": runtime,
            "UPKEEP_RESULTS": str(results),
            "UPKEEP_CACHE": str(CACHE if runtime == "docker" else self.user.cache),
            "UPKEEP_SUITE": "trial",
            "PYTHONPATH": str(self.folder / "src"),
            "PATH": f"/usr/bin:{self.user.venv / 'bin'}:{os.environ['PATH']}",
            "CUDA_VISIBLE_DEVICES": "",
        }
        targets = [f"{results}/cells/{cell}/predictions.jsonl" for cell in cells]
        command = [
            self.user.venv / "bin/python",
            "-m",
            "snakemake",
            "--profile",
            "profiles/local",
            "--nolock",
            *targets,
        ]
        if runtime == "docker":
            done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr[-3000:]
        else:
            results.mkdir()
            self.user.own(results)
            self.user.run(*command, env=environment)
        return {cell: (results / "cells" / cell / "predictions.jsonl").read_bytes() for cell in cells}
