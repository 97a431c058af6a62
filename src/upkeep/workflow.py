"""What the Snakemake rules ask: which file, which inputs, which resources. The rules themselves hold no logic."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from upkeep import identity, inputs, samples, weights
from upkeep.batches import Batch, batches
from upkeep.beforehand import remarks, require_cells
from upkeep.catalog import Catalog
from upkeep.contract import Cluster
from upkeep.errors import UpkeepError
from upkeep.files import digest, open_regular, remove, write_atomically
from upkeep.images.records import ImageRecord
from upkeep.integrity import Damaged, Missing, Stale, read_sealed
from upkeep.jobs import Cell, Job, Training
from upkeep.judges import each_of, judges_by_cell
from upkeep.layout import Layout
from upkeep.machine import lifeline, slurm
from upkeep.needs import Needs, models_of, needs_of
from upkeep.published import MadeOtherwise, Standing, standing
from upkeep.sources import tree

ANSWERS = "predictions.jsonl"
"""Of what a cell publishes, the file that Snakemake knows: a plan of many cells takes longer with each more."""
MAX_PLAN_BYTES = 1000
LONG_AGO = 1
"""A time before anything was made, in seconds."""
START_MINUTES = 10
"""What a job takes beside its cells: images that are fetched, engines that are loaded."""
RESOURCES = (
    *("mem_mb", "runtime", "gpu", "gpu_jobs", "gpu_model", "nodes", "constraint"),
    *("slurm_account", "slurm_partition", "qos"),
)
"""What a job asks for, in Snakemake's words."""


class Workflow:
    """One suite as Snakemake sees it. All paths are relative to the repository, as the targets that users type."""

    NAME = r"[A-Za-z0-9][A-Za-z0-9._+@-]*"

    def __init__(self, root: str, config: Mapping[str, Any]) -> None:
        # The jobs' commands take these from the environment, so that no path is part of a job.
        for name in ("suite", "model", "judge"):
            if name in config:
                os.environ[f"UPKEEP_{name.upper()}"] = str(config[name])
        os.environ["UPKEEP_ROOT"] = str(Path(root).resolve())
        os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        self.cluster = _cluster(config)
        if self.cluster is not None:
            os.environ.setdefault("UPKEEP_RUNTIME", self.cluster.runtime)
        self.catalog = Catalog(Path(root).resolve())
        self.layout = Layout(Path(self.catalog.config.results))
        self.name = self.catalog.config.suite
        self.cells = samples.cells(self.catalog, self.catalog.suite(self.name))
        self.batches = batches(self.catalog, self.cells)
        self._judged_by = judges_by_cell(self.catalog, self.catalog.suite(self.name))
        self.judges = each_of(self._judged_by)
        self._held = contextlib.ExitStack()

    def begin(self) -> None:
        """Before the first job: on this machine all jobs end with this Snakemake, and it with `./upkeep run`. Jobs of
        a cluster do not.

        Raises:
            UpkeepError: another run is at work on the same results; or the suite has no cells.
        """
        if lifeline.HEAD in os.environ:
            lifeline.follow(signal.SIGKILL)
        elif not slurm.in_job():
            if self.cluster is None:
                self._held.enter_context(lifeline.leading(Layout(self.catalog.results).run))
            for line in remarks(self.catalog, self.name, require_cells(self.catalog, self.name)):
                print(f"warning: {line}", file=sys.stderr, flush=True)

    # ------------------------------------------------------------ files

    @functools.cache  # noqa: B019 - one workflow a process
    def dataset(self, name: str) -> str:
        return str(self.layout.dataset(name) / "card.json")

    @functools.cache  # noqa: B019 - one workflow a process
    def image(self, method: str | None, engine: str) -> str:
        return str(self.layout.image(method, engine))

    @functools.cache  # noqa: B019 - one workflow a process
    def weights(self, model: str) -> str:
        return str(self.layout.weights_record(model))

    def trained(self, name: str) -> str:
        return str(self.layout.trained(name) / "manifest.json")

    def cell(self, cell: Cell) -> str:
        return str(self.layout.cell(cell) / ANSWERS)

    def log(self, name: str) -> str:
        return str(self.layout.results / "logs" / f"{name}.log")

    def judging(self, judge: str) -> str:
        return str(self.layout.judging(judge, self.name))

    @property
    def judgements(self) -> list[str]:
        return [self.judging(judge) for judge in self.judges]

    @property
    def scores(self) -> list[str]:
        return [str(self.layout.scores(self.name)), str(self.layout.scores_record(self.name))]

    @property
    def report(self) -> str:
        return str(self.layout.report(self.name))

    @functools.cached_property
    def answers(self) -> list[str]:
        """Of each batch one cell, for a plan takes longer with each file more: one that is not there, or the latest."""
        return [max(self.files_of_batch(batch), key=self._time) for batch in self.batches]

    def _time(self, file: str) -> float:
        """When a file was made; of one that is not there to be seen, later than any."""
        try:
            return (self.catalog.root / file).stat().st_mtime
        except OSError:
            return math.inf

    @property
    def wanted(self) -> list[str]:
        """The cells and their report; of a sample, which is in no table, the cells alone."""
        return [*self.answers, *([] if samples.of_config(self.catalog.config) else [self.report])]

    @functools.cached_property
    def prepared(self) -> list[str]:
        """Everything that could need a network: datasets, images, weights."""
        jobs: list[Job] = [*self.cells, *(t for cell in self.cells for t in self.catalog.trainings_of(cell))]
        made = str(self.layout.shared / "trained")
        files = dict.fromkeys(file for job in jobs for file in self._prepared(job) if not file.startswith(made))
        return list(files | dict.fromkeys(file for judge in self.judges for file in self._model(judge)))

    # ------------------------------------------------------------ what a job needs

    def _prepared(self, job: Job) -> list[str]:
        """Dataset, images and weights of a job."""
        files = [self.dataset(job.dataset), *(self.image(*image) for image in self.catalog.images(job))]
        for model in models_of(self.catalog, job):
            training = self.catalog.made_by(model, job.dataset)
            files.append(self.weights(model) if training is None else self.trained(str(training)))
        return files

    def _model(self, judge: str) -> list[str]:
        """What a judge needs: its weights and its engine."""
        engine = self.catalog.engine(judge)
        return [self.weights(judge), *([self.image(None, engine)] if engine is not None else [])]

    def inputs_of_judge(self, judge: str) -> Callable[[Any], list[str]]:
        """What a judge's verdicts are made from; looked up when it is asked for."""

        def inputs(wildcards: Any) -> list[str]:
            from upkeep.grading.judged import has_say, judge_parts, questions_of  # polars is slow to load

            cells = [
                cell for cell in self.cells if judge in self._judged_by[cell] and has_say(self.catalog, cell, judge)
            ]
            whole = all(self._is_judged(cell, judge) for cell in cells)
            questions = [questions_of(self.catalog, dataset) for dataset in sorted({cell.dataset for cell in cells})]
            plan = self._plan(f"judged/{judge}", digest([judge_parts(self.catalog, judge), questions]), whole)
            done = whole and all(self._standing(cell).manifest for cell in cells) and self._has_judged(judge)
            data = dict.fromkeys(self.dataset(cell.dataset) for cell in cells)
            needed = [] if done else [*data, *self._model(judge)]
            return [*map(self.cell, cells), *needed, plan]

        return inputs

    def _is_judged(self, cell: Cell, judge: str) -> bool:
        """Whether a judge's verdicts on a cell need not be made again, as `_counts`."""
        from upkeep.grading.judged import judged

        if (manifest := self._standing(cell).manifest) is None or not self._has_judged(judge):
            return True
        return _whole(lambda: judged(self.catalog, cell, judge, manifest), (Damaged, Missing, Stale))

    def _has_judged(self, judge: str) -> bool:
        return (self.catalog.root / self.judging(judge)).is_file()

    def files_of_batch(self, batch: Batch) -> list[str]:
        return list(map(self.cell, batch.cells))

    def inputs_of_batch(self, batch: Batch) -> Callable[[Any], list[str]]:
        """What the cells of a batch are made from; looked up when it is asked for."""

        def inputs(wildcards: Any) -> list[str]:
            plan = digest([identity.plan_identity(self.catalog, cell) for cell in batch.cells])
            # In a folder of its own: Snakemake lists a folder once, and then takes a later file for missing.
            return self._inputs(f"batches/{batch.name}/plan", plan, batch.cells, self.files_of_batch(batch))

        return inputs

    def inputs_of_training(self, wildcards: Any) -> list[str]:
        training = _training(wildcards)
        plan, made = identity.plan_training(self.catalog, training), self.trained(str(training))
        return self._inputs(f"trainings/{training}", plan, [training], [made])

    def _inputs(self, name: str, plan: str, jobs: Sequence[Job], made: Sequence[str]) -> list[str]:
        """What jobs that are done together are made from; for what counts, and is not asked anew, nothing need be made.

        Args:
            made: their files that Snakemake knows.
        """
        left = [job for job in jobs if self._standing(job).manifest is None]
        asked = jobs if self.catalog.config.fresh else left
        needed = dict.fromkeys(file for job in asked for file in self._prepared(job))
        return [*needed, self._plan(name, plan, all(map(self._counts, jobs)), () if left else made)]

    # ------------------------------------------------------------ when a job runs again

    def _counts(self, job: Job) -> bool:
        """Whether what a job has published need not be made again: nothing is there, which Snakemake sees, or it is
        whole, and made as it would be now. (Whether its dataset or model is, their own plans say.)"""
        problem, file = self._standing(job).problem, self.catalog.root / self.layout.cell(str(job)) / ANSWERS
        torn = isinstance(problem, Missing) and os.path.lexists(file)
        return not torn and not isinstance(problem, Damaged | MadeOtherwise)

    @functools.cache  # noqa: B019 - one workflow a process, and each job is verified once for it
    def _standing(self, job: Job) -> Standing:
        return standing(self.catalog, job)

    def _plan(self, name: str, plan: str, whole: bool = True, made: Sequence[str] = ()) -> str:
        """A file that is newer than what a job has made where that is made from something else now, or damaged.

        Snakemake runs a job again when an input is newer than its output. Modification times of sources say too much
        (a comment in another file, a fresh clone) and its own metadata is lost with `.snakemake`; so what determines a
        job is hashed (`upkeep.identity`), and the hash is an input.

        Args:
            whole: whether nothing that it has made is damaged or made otherwise.
            made: its files, where all of them are there and count, whatever made them: none of them is older.
        """
        path = self.catalog.root / self.layout.plan(name)
        try:
            with open_regular(path, MAX_PLAN_BYTES) as file:
                same = file.readline().rstrip(b"\n") == plan.encode()
        except UpkeepError:
            same = False
        if not same or not whole:
            if path.is_dir():
                remove(path)
            # Snakemake takes a small file of another time and the same content for the same.
            again = "" if whole else f"\nmade again at {time.time_ns()}\n"
            write_atomically(path, (plan + again).encode())
        if made and path.stat().st_mtime > min(map(self._time, made)):
            os.utime(path, (LONG_AGO, LONG_AGO))
        return str(self.layout.plan(name))

    def plan_of_dataset(self, wildcards: Any) -> str:
        name = wildcards.dataset
        whole = _whole(lambda: inputs.dataset(self.catalog, name))
        return self._plan(f"datasets/{name}", identity.plan_dataset(self.catalog, name), whole)

    def plan_of_image(self, wildcards: Any) -> str:
        return self._plan_of_image(wildcards.method, wildcards.engine)

    def plan_of_engine(self, wildcards: Any) -> str:
        return self._plan_of_image(None, wildcards.engine)

    def _plan_of_image(self, method: str | None, engine: str) -> str:
        record = self.layout.image(method, engine)
        whole = _whole(lambda: read_sealed(record, ImageRecord, ""))
        return self._plan(f"images/{record.stem}", identity.plan_image(self.catalog, method, engine), whole)

    def plan_of_weights(self, wildcards: Any) -> str:
        name = wildcards.model
        whole = _whole(lambda: weights.find(self.catalog, name, ""))
        return self._plan(f"models/{name}", identity.plan_weights(self.catalog, name), whole)

    def plan_of_scores(self, wildcards: Any) -> str:
        from upkeep.grading.scores import read_scores  # polars is slow to load

        plan = digest([str(cell) for cell in self.cells])
        # Where a cell is to be run, its answers will be newer than the scores.
        waiting = any(self._standing(cell).manifest is None for cell in self.cells)
        return self._plan(f"scores/{self.name}", plan, waiting or _whole(lambda: read_scores(self.catalog, self.name)))

    def plan_of_report(self, wildcards: Any) -> str:
        """What decides the report beside the scores: papers' numbers and claims, cards that tables read, the code."""
        from upkeep.report.card_fields import cards_of  # with polars

        papers = self.catalog.suite(self.name).papers
        places = ("src/upkeep/report", *(f"papers/{paper}" for paper in papers), *cards_of(self.catalog, papers))
        return self._plan(f"reports/{self.name}", tree(self.catalog, *places))

    # ------------------------------------------------------------ resources

    def needs(self, jobs: Iterable[Cell | Training]) -> Needs:
        return needs_of(self.catalog, list(jobs))

    def needs_of_training(self, wildcards: Any) -> Needs:
        return self.needs([_training(wildcards)])

    def needs_of_judge(self, judge: str) -> Needs:
        return Needs.of_model(self.catalog.model(judge))

    def resources_of_judge(self, judge: str) -> dict[str, Any]:
        options = self._options(lambda _: f"judge {judge}")
        return {**self._resources(self.needs_of_judge(judge)), "slurm_extra": options}

    def resources_of_batch(self, batch: Batch) -> dict[str, Any]:
        options = self._options(lambda _: f"batch {batch.name}")
        return {**self._resources(self.needs(batch.cells)), "slurm_extra": options}

    def resources_of_training(self) -> dict[str, Callable[..., int | str | None]]:
        def of(name: str) -> Callable[[Any], int | str | None]:
            return lambda wildcards: self._resources(self.needs_of_training(wildcards))[name]

        options = self._options(lambda wildcards: f"train_wildcards_{'_'.join(_names(wildcards))}")
        return {**{name: of(name) for name in RESOURCES}, "slurm_extra": options}

    def _resources(self, needs: Needs) -> dict[str, int | str | None]:
        """A job's resources as Snakemake and its executor for clusters name them (RESOURCES); None is nothing asked."""
        cluster = self.cluster or Cluster()
        kind = needs.gpu_type and cluster.gpu_types.get(needs.gpu_type, needs.gpu_type)
        return {
            "mem_mb": needs.mem_mb,
            "runtime": min(START_MINUTES + needs.minutes, cluster.max_minutes),
            "gpu": needs.gpus * needs.nodes,
            "gpu_jobs": min(1, needs.gpus),
            "gpu_model": kind if needs.gpus else None,
            "nodes": needs.nodes,
            "constraint": needs.constraint if cluster.constraints else None,
            "slurm_account": cluster.account,
            "slurm_partition": (cluster.gpu_partition if needs.gpus else None) or cluster.partition,
            "qos": cluster.qos,
        }

    def _options(self, rule: Callable[[Any], str]) -> Callable[[Any, int], str | None]:
        """Further options of sbatch.

        Where an earlier Snakemake was killed and has left this job in the queue or running, the new one begins after
        it, and finds its cells done.

        Args:
            rule: how the executor calls a job, by its wildcards.
        """

        def options(wildcards: Any, attempt: int) -> str | None:
            if self.cluster is None or slurm.in_job():
                return None
            # In a further attempt, that job may be forgotten.
            earlier = slurm.earlier_jobs(self.catalog.root).get(rule(wildcards)) if attempt == 1 else None
            found = [self.cluster.options, f"--dependency=afterany:{earlier}" if earlier else ""]
            return " ".join(filter(None, found)) or None

        return options


def _whole(read: Callable[[], object], lost: tuple[type[UpkeepError], ...] = (Damaged, Stale)) -> bool:
    """Whether something is what was written, or is not there yet; `lost` are the errors that say that it is not."""
    try:
        read()
    except lost:
        return False
    except UpkeepError:
        return True  # what is wrong is not a matter of making it again
    return True


def _cluster(config: Mapping[str, Any]) -> Cluster | None:
    """What the profile for clusters adds to Snakemake's configuration."""
    if "cluster" not in config:
        return None
    try:
        return msgspec.convert(config["cluster"], Cluster)
    except msgspec.ValidationError as error:
        raise UpkeepError(str(error), where="`cluster` in profiles/slurm/cluster.yaml") from None


def _training(wildcards: Any) -> Training:
    return Training.parse("/".join(_names(wildcards)))


def _names(wildcards: Any) -> tuple[str, str, str, str]:
    return wildcards.dataset, wildcards.method, wildcards.variant, wildcards.model
