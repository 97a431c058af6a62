"""What the Snakemake rules ask: which file, which inputs, which resources. The rules themselves hold no logic."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from upkeep import identity
from upkeep.catalog import ArtifactCell, Catalog, Cell, TrainedModel
from upkeep.files import write_atomically
from upkeep.paths import Layout


class Workflow:
    """One suite as Snakemake sees it. All paths are relative to the repository, as the targets that users type."""

    NAME = r"[A-Za-z0-9][A-Za-z0-9._+-]*"

    def __init__(self, root: str, config: Mapping[str, Any]) -> None:
        # The jobs' commands take these from the environment, so that no path is part of a job.
        if "suite" in config:
            os.environ["UPKEEP_SUITE"] = str(config["suite"])
        os.environ["UPKEEP_ROOT"] = str(Path(root).resolve())
        os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        self.catalog = Catalog(Path(root).resolve())
        self.layout = Layout(Path(self.catalog.config.results))
        self.name = self.catalog.config.suite
        self.cells = self.catalog.cells(self.catalog.suite(self.name))

    # ------------------------------------------------------------ files

    def dataset(self, name: str) -> str:
        return str(self.layout.dataset(name) / "card.json")

    def image(self, method: str, engine: str) -> str:
        return str(self.layout.image(method, engine))

    def weights(self, model: str) -> str:
        return str(self.layout.weights_record(model))

    def memory(self, name: str) -> str:
        return str(self.layout.memory(name) / "manifest.json")

    def trained(self, name: str) -> str:
        return str(self.layout.trained(name) / "manifest.json")

    def cell(self, name: str, file: str) -> str:
        return str(self.layout.cell(name) / file)

    def log(self, name: str) -> str:
        return str(self.layout.results / "logs" / f"{name}.log")

    @property
    def scores(self) -> str:
        return str(self.layout.scores)

    @property
    def report(self) -> str:
        return str(self.layout.report)

    @functools.cached_property
    def manifests(self) -> list[str]:
        return [self.cell(str(cell), "manifest.json") for cell in self.cells]

    @functools.cached_property
    def prepared(self) -> list[str]:
        """Everything that could need a network: datasets, images, weights."""
        jobs = [(cell.dataset, cell.method, cell.model) for cell in self.cells]
        for cell in self.cells:
            training = self.catalog.training_of(cell)
            while training is not None:
                jobs.append((training.dataset, training.method, training.model))
                training = self.catalog.training_of(Cell(training.dataset, training.method, "", training.model))
        made = str(self.layout.results / "trained")
        files = [file for job in jobs for file in self._prepared(*job) if not file.startswith(made)]
        return list(dict.fromkeys(files))

    # ------------------------------------------------------------ what a job needs

    def _prepared(self, dataset: str, method: str, model: str) -> list[str]:
        """Dataset, image and weights of a job."""
        files = [self.dataset(dataset), self.image(method, self.catalog.engine(method, model))]
        card = self.catalog.method(method)
        if card.model:
            trained = TrainedModel.parse(model)
            if trained:
                files.append(self.trained(f"{dataset}/{trained.method}/{trained.variant}/{trained.base}"))
            else:
                files.append(self.weights(model))
            if embedder := self.catalog.embedder(method, model):
                files.append(self.weights(embedder))
        return files

    def inputs_of_cell(self, wildcards: Any) -> list[str]:
        cell = Cell(*_names(wildcards))
        self.catalog.check(cell)
        files = self._prepared(cell.dataset, cell.method, cell.model)
        if artifact := self.catalog.artifact_of(cell):
            files.append(self.memory(str(artifact)))
        return [*files, self._plan(f"cells/{cell}", identity.plan_identity(self.catalog, cell))]

    def inputs_of_artifact(self, wildcards: Any) -> list[str]:
        artifact = ArtifactCell(*_names(wildcards))
        files = self._prepared(artifact.dataset, artifact.method, artifact.model)
        return [*files, self._plan(f"artifacts/{artifact}", identity.plan_artifact(self.catalog, artifact))]

    @functools.cached_property
    def scored_by(self) -> list[str]:
        """What decides the scores beside the cells: the code, and the cards of what is scored."""
        cards = {f"datasets/{c.dataset}/dataset.yaml" for c in self.cells}
        cards |= {f"methods/{c.method}/method.yaml" for c in self.cells}
        cards |= {f"models/{model}.yaml" for c in self.cells if (model := c.model.partition("+")[0]) != "none"}
        return sorted(cards) + self._sources("src/upkeep/scoring")

    @functools.cached_property
    def reported_by(self) -> list[str]:
        """What decides the report beside the scores: the papers' numbers and claims, and the code."""
        papers = [f"papers/{paper}" for paper in self.catalog.suite(self.name).papers]
        return self._sources("src/upkeep/report", *papers)

    def _sources(self, *folders: str) -> list[str]:
        files = [f for folder in folders for f in sorted((self.catalog.root / folder).rglob("*.*")) if f.is_file()]
        return [str(f.relative_to(self.catalog.root)) for f in files if "__pycache__" not in f.parts]

    # ------------------------------------------------------------ when a job runs again

    def _plan(self, name: str, plan: str) -> str:
        """A file that changes when what a job is made from changes, and only then.

        Snakemake runs a job again when an input is newer than its output. Modification times of sources say too much
        (a comment in another file, a fresh clone) and its own metadata is lost with `.snakemake`; so what determines a
        job is hashed (`upkeep.identity`), and the hash is an input.
        """
        path = self.catalog.root / self.layout.plan(name)
        if not path.is_file() or path.read_text() != plan:
            write_atomically(path, plan.encode())
        return str(self.layout.plan(name))

    def plan_of_dataset(self, wildcards: Any) -> str:
        name = wildcards.dataset
        return self._plan(f"datasets/{name}", identity.plan_dataset(self.catalog, name))

    def plan_of_image(self, wildcards: Any) -> str:
        method, engine = wildcards.method, wildcards.engine
        return self._plan(f"images/{method}.{engine}", identity.plan_image(self.catalog, method, engine))

    def plan_of_weights(self, wildcards: Any) -> str:
        name = wildcards.model
        return self._plan(f"models/{name}", identity.plan_weights(self.catalog, name))

    # ------------------------------------------------------------ resources

    def threads(self, wildcards: Any) -> int:
        return identity.resources(self.catalog, wildcards.method, wildcards.model).cpus

    def mem_mb(self, wildcards: Any) -> int:
        return identity.resources(self.catalog, wildcards.method, wildcards.model).memory_gb * 1024

    def gpus(self, wildcards: Any) -> int:
        return 0 if wildcards.model == "none" else self.catalog.spec(wildcards.model).gpus

    def gpu_jobs(self, wildcards: Any) -> int:
        return min(1, self.gpus(wildcards))


def _names(wildcards: Any) -> tuple[str, str, str, str]:
    return wildcards.dataset, wildcards.method, wildcards.variant, wildcards.model
