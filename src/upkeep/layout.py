"""Where everything lies under `results/`. The only place that knows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from upkeep.jobs import Cell, Training

SAMPLES = "samples"
"""The folder of results of which cells were asked a sample alone (`upkeep.samples`)."""
_OWN = frozenset({"batches", "cells", "engines", "judged", "scores"})
"""Of jobs and their plans, those that a sample has for itself."""


@dataclass(frozen=True, slots=True)
class Layout:
    results: Path

    @property
    def shared(self) -> Path:
        """What a sample has in common with the whole: datasets, images, weights, trained models, replies, the lock."""
        return self.results.parents[1] if self.results.parent.name == SAMPLES else self.results

    def _of(self, kind: str) -> Path:
        return self.results if kind.partition("/")[0] in _OWN else self.shared

    def dataset(self, name: str) -> Path:
        """Folder of documents.parquet, probes.parquet, gold.parquet, card.json."""
        return self.shared / "datasets" / name

    def baselines(self, name: str) -> Path:
        """What answers without a model and without reading score on a dataset."""
        return self.dataset(name) / "baselines.json"

    def audit(self, name: str) -> Path:
        """The page on which people mark a sample of a dataset's probes."""
        return self.shared / "audits" / f"{name}.html"

    def image(self, method: str | None, engine: str) -> Path:
        """Record of a built image or environment: of a method, or of an engine."""
        return self.shared / "images" / (f"{method}.{engine}.json" if method is not None else f"{engine}.json")

    def weights(self, model: str) -> Path:
        """Folder of a model's weights, where the suite holds them itself."""
        return self.shared / "models" / model

    def weights_record(self, model: str) -> Path:
        """Where a model's weights lie, and their hash."""
        return self.shared / "models" / f"{model}.json"

    def plan(self, name: str) -> Path:
        """Hash of what determines a job; an input of it."""
        return self._of(name) / "plans" / name

    def count(self, key: str) -> Path:
        """What a method asks of a model, counted for a plan."""
        return self.shared / "plans" / "counts" / f"{key}.json"

    def trained(self, training: Training | str) -> Path:
        """Published folder of a model made by a training method: manifest.json and model/."""
        return self.shared / "trained" / str(training)

    def course(self, training: Training) -> Path:
        """Folder of the figure of how a training went."""
        return self.results / "courses" / str(training)

    def cell(self, cell: Cell | str) -> Path:
        """Published folder: predictions.jsonl, measured.parquet, manifest.json."""
        return self.results / "cells" / str(cell)

    def cells_of(self, dataset: str) -> list[Cell]:
        """The cells of a dataset that anything is published of, in order of name."""
        found = (self.results / "cells" / dataset).glob("*/*/*/manifest.json")
        return sorted(Cell(dataset, *path.parent.parts[-3:]) for path in found)

    def work(self, kind: str, name: object) -> Path:
        """Folder of an attempt under way; `kind` is cells or trained."""
        return self._of(kind) / "work" / kind / str(name)

    def status(self, kind: str, name: object) -> Path:
        """Where a job says how far it is."""
        return self._of(kind) / "status" / kind / f"{name}.json"

    @property
    def run(self) -> Path:
        """Folder of the lock that a run on one machine holds."""
        return self.shared / "run"

    @property
    def record(self) -> Path:
        """The record of replies: what engines and endpoints answered, by content of the requests."""
        return self.shared / "record"

    def ledger(self, model: str) -> Path:
        """What a model's endpoint has cost, request by request, over all runs."""
        return self.shared / "endpoints" / model / "ledger.jsonl"

    def requests(self, model: str, kind: str, name: object) -> Path:
        """Record of a job's requests to its model's endpoint."""
        return self._of(kind) / "endpoints" / model / "requests" / kind / f"{name}.jsonl"

    def log(self, kind: str, name: object) -> Path:
        return self._of(kind) / "logs" / kind / f"{name}.log"

    def verdicts(self, cell: Cell | str) -> Path:
        """How a cell's predictions were graded; beside it what that was made of, `graded.json`."""
        return self.results / "graded" / str(cell) / "verdicts.parquet"

    def judged(self, judge: str, cell: Cell | str) -> Path:
        """What a judge said of a cell's responses; beside it what that was made of, `judged.json`."""
        return self.results / "judged" / judge / str(cell) / "verdicts.parquet"

    def judges_of(self, cell: Cell | str) -> list[str]:
        """Who has said anything of a cell's responses, in order of name."""
        return sorted(path.name for path in (self.results / "judged").glob("*") if (path / str(cell)).is_dir())

    def judging(self, judge: str, suite: str) -> Path:
        """Which cells of a suite a judge has judged."""
        return self.results / "judged" / judge / f"{suite}.json"

    def scores(self, suite: str) -> Path:
        return self.results / "scores" / suite / "scores.parquet"

    def resamples(self, suite: str, cell: Cell | str) -> Path:
        """A cell's scores on resamples of its questions: (rows of the cell, resamples), numbers of 4 bytes."""
        return self.results / "scores" / suite / "resamples" / f"{cell}.npy"

    def scores_record(self, suite: str) -> Path:
        """What a suite's scores are, and what they were made of."""
        return self.results / "scores" / suite / "scores.json"

    @property
    def outgrown(self) -> list[Path]:
        """What an earlier version wrote of its one suite, where each suite has a folder now; its record last."""
        folder = self.results / "scores"
        names = ("resamples", "scores.parquet", "scores.json")
        return [folder / name for name in names] if (folder / names[-1]).is_file() else []

    @property
    def reports(self) -> Path:
        """The page that leads to the report of each suite."""
        return self.results / "report" / "index.html"

    def report(self, suite: str) -> Path:
        """The first page of a suite's report; the folder is all of it."""
        return self.results / "report" / suite / "index.html"

    def tables(self, suite: str) -> Path:
        """Folder of a suite's tables, one a paper."""
        return self.results / "tables" / suite

    def figures(self, suite: str) -> Path:
        """Folder of a suite's figures, one a paper."""
        return self.results / "figures" / suite

    def astray(self, suite: str) -> list[Path]:
        """Files of a suite's tables and figures in no paper's folder: an earlier version wrote a paper's so."""
        folders = (self.tables(suite), self.figures(suite))
        return [path for folder in folders for path in folder.glob("*") if path.is_file()]

    def review(self, suite: str) -> Path:
        """The page of a suite's review."""
        return self.results / "review" / f"{suite}.md"
