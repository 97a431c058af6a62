"""Makes a plan: counts what a suite asks, and estimates what that takes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from upkeep.catalog import Catalog
from upkeep.contract import EngineSettings, Manifest, ModelSpec
from upkeep.execution.roofline import Assumptions, gpu_hours, gpu_of, start_s
from upkeep.identity import describe
from upkeep.jobs import Cell, Job, Training
from upkeep.machine.clock import now
from upkeep.operations.plan.amounts import NONE, TOKENS, Amounts, JobPlan, Plan, sum_of
from upkeep.operations.plan.assumptions import Options, assume, in_words
from upkeep.operations.plan.counts.counting import tally
from upkeep.operations.plan.counts.dataset import Say
from upkeep.operations.plan.counts.tally import Tally, with_arrivals
from upkeep.operations.plan.disk import on_disk
from upkeep.operations.plan.judging import judgings
from upkeep.operations.plan.taken import read_manifest, speeds, took
from upkeep.operations.plan.trainings import Planned, Trainings
from upkeep.serving.counting.records import Assumed

Kind = Literal["cell", "training"]


def make_plan(
    catalog: Catalog,
    suite: str,
    options: Options | None = None,
    say: Say = lambda _: None,
    *,
    cells: Sequence[Cell] | None = None,
    count: bool = True,
) -> Plan:
    """Plan a suite: count what is not counted yet, and estimate.

    Args:
        options: what takes the place of `config/gpus.yaml`.
        say: is told what is being done.
        cells: of the suite, those that are planned; by default all.
        count: whether datasets and images may be made to count what is not counted yet; else that is unknown.

    Raises:
        UpkeepError: unknown suite or GPU, or there is no runtime to count in.
    """
    options = options or Options()
    assumptions = assume(catalog, options)
    jobs = jobs_of(catalog, catalog.cells(catalog.suite(suite)) if cells is None else cells)
    asked = {job for job, kind in jobs.items() if kind == "cell"}
    asking = [job for job, kind in jobs.items() if kind != "training"]
    assumed = Assumed(reply=assumptions.reply_tokens, thinking=assumptions.thinking_tokens)
    return Estimate(
        catalog,
        assumptions,
        options.gpu,
        jobs,
        with_arrivals(tally(catalog, asking, assumed, say, count=count)),
        {job: found for job in jobs if (found := read_manifest(catalog, job)) is not None},
        speeds(catalog),
        judgings(catalog, suite, assumed, asked),
        Trainings(catalog, assumptions, say if count else None),
    ).plan(suite)


def jobs_of(catalog: Catalog, cells: Iterable[Cell]) -> dict[Job, Kind]:
    """A suite's cells, and before each one what has to be prepared for it; each job once."""
    jobs: dict[Job, Kind] = {}
    for cell in cells:
        for training in reversed(list(catalog.trainings_of(cell))):
            jobs.setdefault(training, "training")
        jobs[cell] = "cell"
    return jobs


@dataclass(frozen=True, slots=True)
class Estimate:
    """What jobs take, from what they ask."""

    catalog: Catalog
    assumptions: Assumptions
    gpu: str | None
    """The one that a user chose."""
    jobs: Mapping[Job, Kind]
    tallies: Mapping[Job, Tally]
    """Of the cells."""
    manifests: Mapping[Job, Manifest]
    """Of the jobs that are complete."""
    speeds: Mapping[str, float]
    """Model -> tokens a second, where it is known; by an engine of a method's own, method/model."""
    judgings: Mapping[tuple[str, str], Tally]
    """(judge, dataset) -> what it is asked."""
    trainings: Trainings

    def plan(self, suite: str) -> Plan:
        """The plan of the suite of this name."""
        on_engine = Counter(job.model for job, kind in self.jobs.items() if kind != "training" and job.model != "none")
        starts = {
            model: start_s(self.catalog.spec(model), jobs, self.catalog.config.cells_per_job, self.assumptions)
            for model, jobs in on_engine.items()
        }
        plans = [self._job(job, kind, starts.get(job.model, 0.0)) for job, kind in self.jobs.items()]
        plans += [self._judging(judge, dataset, found) for (judge, dataset), found in self.judgings.items()]
        models = [sum_of(m, [p for p in plans if p.model == m]) for m in dict.fromkeys(p.model for p in plans)]
        return Plan(
            suite=suite,
            made=now(),
            gpu=self.gpu or self.assumptions.default,
            jobs=plans,
            models=models,
            total=sum_of("total", plans),
            disk=on_disk(self.catalog, self.tallies, self.jobs),
            assumptions=self._said(),
        )

    def _job(self, job: Job, kind: Kind, start: float) -> JobPlan:
        manifest = self.manifests.get(job)
        pays = (tally := self.tallies.get(job)) is None or tally.unknown is not None or tally.arrival is not None
        actual = took(self.catalog, job, manifest, arrivals=pays) if manifest else None
        if isinstance(job, Training):
            return self._training(job, actual)
        if job.model == "none":
            return JobPlan(job=str(job), kind=kind, model=job.model, plan=NONE, counted="no model", actual=actual)
        found, in_flight = self.tallies[job], describe(self.catalog, job, 1).engine.max_in_flight
        own = self.catalog.method(job.method).engine == "own"
        if own:  # it is loaded for this cell alone, and answers one after the other
            in_flight, start = 1, start_s(self.catalog.spec(job.model), 1, 1, self.assumptions)
        start += self.assumptions.pass_s * (found.passes - 1)
        plan, unknown = self._amounts(job.model, found, in_flight, start, job.method if own else None)
        if found.unknown is not None:
            return JobPlan(
                job=str(job), kind=kind, model=job.model, plan=plan, counted="", unknown=unknown, actual=actual
            )
        if writer := self.catalog.asked(job).get("writer"):
            unknown.append(f"requests to its writer {writer}: they are not counted")
        counted = "whole" if found.counted == found.records else f"{found.counted:,} of {found.records:,}"
        if found.failed:
            counted += f", {found.failed:.0%} of these failed"
        return JobPlan(
            job=str(job), kind=kind, model=job.model, plan=plan, counted=counted, unknown=unknown, actual=actual
        )

    def _judging(self, judge: str, dataset: str, found: Tally) -> JobPlan:
        """What a judge does on a dataset; beside a batch of cells its engine is started once more."""
        spec, in_flight = self.catalog.model(judge), EngineSettings(name="none").max_in_flight
        start = start_s(spec, 1, self.catalog.config.cells_per_job, self.assumptions)
        plan, unknown = self._amounts(judge, found, in_flight, start)
        counted = "" if found.unknown is not None else "at most, replies assumed"
        return JobPlan(
            job=f"{judge} on {dataset}", kind="judging", model=judge, plan=plan, counted=counted, unknown=unknown
        )

    def _amounts(
        self, model: str, found: Tally, in_flight: int, start: float, own: str | None = None
    ) -> tuple[Amounts, list[str]]:
        """What a model's requests take, and what of it is not known.

        Args:
            own: the method that runs the model with an engine of its own.
        """
        spec, unknown = self.catalog.spec(model), list[str]()
        if found.unknown is not None:
            concerned = [*TOKENS, *_spent(spec)]
            return msgspec.structs.replace(NONE, **dict.fromkeys(concerned)), [f"requests: {found.unknown}"]
        plan = msgspec.structs.replace(
            NONE,
            requests=found.requests,
            prompt_tokens=found.prompt,
            computed_tokens=found.computed,
            output_tokens=found.output,
        )
        if spec.engine == "endpoint":
            money = dollars(spec, found)
            plan = msgspec.structs.replace(plan, usd=money[0], usd_at_most=money[1])
        elif spec.gpus:
            card, gpu = self.catalog.model_card(model), self._gpu_of(spec)
            passes = self.catalog.method(own).passes if own else 1
            worked = msgspec.structs.replace(found, computed=passes * found.computed, attended=passes * found.attended)
            hours, why = gpu_hours(spec, card, worked, found.together, gpu, in_flight, start, self.assumptions)
            plan = msgspec.structs.replace(plan, gpu_hours=hours)
            unknown += [f"GPU-hours: {why}"] * (hours is None)
        else:
            speed = self.speeds.get(f"{own}/{model}" if own else model)
            hours = (found.computed + found.output) / speed / 3600 if speed else None
            plan = msgspec.structs.replace(plan, cpu_hours=hours)
            unknown += [f"CPU-hours: no cell of this model{' by this method' if own else ''} has been run here yet"] * (
                hours is None
            )
        return plan, unknown

    def _training(self, job: Training, actual: Amounts | None) -> JobPlan:
        """How long a training takes: on a CPU that is known from an earlier one alone."""
        spec, planned = self.catalog.spec(job.model), Planned()
        (which,) = _spent(spec)
        hours, counted = getattr(actual, which) if actual else None, "as the last time"
        unknown = ["hours of training: it has not been run here yet"] if hours is None else []
        if spec.gpus:
            planned = self.trainings.plan(job, self._gpu_of(spec))
            hours, counted, unknown = planned.hours, "operations", [*planned.unknown]
        plan = msgspec.structs.replace(NONE, **{which: hours})
        if self.catalog.method(job.method).asks:
            asked = self.trainings.asked(job)
            amounts = {
                name: None if asked is None else math.fsum(getattr(one, of) for one in asked)
                for name, of in zip(TOKENS, ("requests", "prompt", "computed", "output"), strict=True)
            }
            plan = msgspec.structs.replace(plan, **amounts)
            unknown += [] if asked else [f"requests: what it asks {job.model} before it trains is not counted"]
        return JobPlan(
            job=str(job),
            kind="training",
            model=job.model,
            plan=plan,
            counted="" if hours is None else counted,
            unknown=unknown,
            actual=actual,
            training=planned.training,
        )

    def _gpu_of(self, spec: ModelSpec) -> str:
        return gpu_of(spec, self.assumptions, self.gpu)

    def _said(self) -> list[str]:
        asking = [job for job in self.tallies if job.model != "none"]
        specs = [self.catalog.spec(job.model) for job in asking]
        return in_words(
            self.assumptions,
            specs,
            [t for t in self.tallies.values() if t.unknown is None and t.requests],
            list(dict.fromkeys(self._gpu_of(spec) for spec in specs if spec.gpus)),
            self.catalog.config.cells_per_job,
            any(describe(self.catalog, job, 1).embedder_spec for job in asking),
            any(self.catalog.method(job.method).engine == "own" for job in asking),
            any(isinstance(job, Training) and self.catalog.spec(job.model).gpus for job in self.jobs),
        )


def _spent(spec: ModelSpec) -> tuple[str, ...]:
    """The amounts beside requests and tokens that a model takes."""
    if spec.engine == "endpoint":
        return "usd", "usd_at_most"
    return ("gpu_hours",) if spec.gpus else ("cpu_hours",)


def dollars(spec: ModelSpec, found: Tally) -> tuple[float | None, float | None]:
    """US dollars: as estimated, and at most."""
    if spec.endpoint is None:
        return None, None
    price, cached = spec.endpoint.price, found.prompt - found.computed
    reused = price.prompt if price.cached is None else price.cached
    estimate = found.computed * price.prompt + cached * reused + found.output * price.completion
    longest = found.prompt * max(1.0, spec.endpoint.tokens_per_byte * found.bytes_per_token)
    most = longest * price.prompt + max(found.output, found.requests * spec.sampling.max_tokens) * price.completion
    return estimate / 1e6, most / 1e6
