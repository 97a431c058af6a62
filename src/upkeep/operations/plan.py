"""What a suite will take, before anything is spent; and afterwards, what it took.

Requests and tokens are counted (`upkeep.operations.count`). Time on GPUs is a roofline. Prompt tokens are bound by
arithmetic,

    (2 * active parameters * computed tokens + 4 * layers * heads * head size * attended pairs) / arithmetic

and generated tokens by memory, each step reading the weights once and every answer's own context,

    (steps * weights read + 2 * layers * kv heads * head size * 2 bytes * context tokens read) / bandwidth

each at a share of the peak that `config/gpus.yaml` assumes. The attention terms are those of the layers that attend to
the whole context. A figure that is not known stays unknown: it is never taken as zero, nor made up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

from upkeep.catalog import Catalog, Cell, Job, Training
from upkeep.contract import Count, Manifest, ModelSpec, Positive, Record, Seconds
from upkeep.errors import UpkeepError
from upkeep.identity import describe
from upkeep.images.environments import packages_of
from upkeep.images.images import ImageRecord
from upkeep.integrity import read_sealed
from upkeep.layout import Layout
from upkeep.machine.clock import now
from upkeep.operations.count import Say, Tally, tally, with_arrivals
from upkeep.published import command_of, folder_of
from upkeep.serving.counting import Assumed
from upkeep.serving.lanes import LANE_TOKENS, LANES
from upkeep.yaml_files import read_yaml

if TYPE_CHECKING:
    from rich.console import RenderableType

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
KV_BYTES = 2
"""Of a value in the key-value cache on GPUs."""
LINE_BYTES = 1600
"""Of a prediction without its reply, retrieved documents included."""
CHARACTERS = 4
"""Of a generated token in a prediction."""

Share = Annotated[float, Meta(gt=0, le=1)]
Above0 = Annotated[float, Meta(gt=0)]


class Gpu(Record, frozen=True, kw_only=True):
    """One kind of GPU."""

    tflops: Above0
    """Dense bfloat16 peak, in 10^12 operations a second."""
    bandwidth_gb_s: Above0
    """Of its memory, in 10^9 bytes a second."""
    memory_gb: Above0
    """In 10^9 bytes."""
    source: str


class Assumptions(Record, frozen=True, kw_only=True):
    """`config/gpus.yaml`."""

    default: str
    gpus: dict[str, Gpu]
    prefill_share: Share
    decode_share: Share
    memory_share: Share
    """Of a GPU's memory that weights and key-value cache fill."""
    start_s: Seconds
    """Of an engine, beside reading the weights."""
    load_gb_s: Above0
    """At which weights are read."""
    reply_tokens: Positive
    thinking_tokens: Count


class Amounts(Record, frozen=True, kw_only=True):
    """What a job takes. Null where it is not known; 0 where there is none of it."""

    requests: float | None = None
    prompt_tokens: float | None = None
    computed_tokens: float | None = None
    """Prompt tokens that are not reused from the engine's prefix cache."""
    output_tokens: float | None = None
    gpu_hours: float | None = None
    cpu_hours: float | None = None
    """Wall-clock hours of models that run on a CPU."""
    usd: float | None = None
    usd_at_most: float | None = None
    """Nothing reused, replies as long as they may be, text in the endpoint's most tokens a byte."""


AMOUNTS = Amounts.__struct_fields__
TOKENS = AMOUNTS[:4]
NONE = Amounts(**dict.fromkeys(AMOUNTS, 0.0))


class JobPlan(Record, frozen=True, kw_only=True):
    """One cell or training."""

    job: str
    kind: Literal["cell", "training"]
    model: str
    plan: Amounts
    counted: str
    """How its requests were counted."""
    unknown: list[str] = msgspec.field(default_factory=list)
    """What is not known, and why."""
    actual: Amounts | None = None
    """What it took; null where it is not complete."""


class Sum(Record, frozen=True, kw_only=True):
    """Several jobs together. Of an amount that is unknown for some of them, it is the sum of the others'."""

    name: str
    jobs: Count
    plan: Amounts
    incomplete: dict[str, Count] = msgspec.field(default_factory=dict)
    """Amount -> for how many jobs it is unknown."""


class Disk(Record, frozen=True, kw_only=True):
    """What lies on disk at the end."""

    what: str
    count: Count
    bytes: float
    unknown: Count = 0
    """How many of them have no known size."""


class Plan(Record, frozen=True, kw_only=True):
    """What a suite takes; `--json` writes it."""

    version: Literal[1] = 1
    suite: str
    made: str
    gpu: str
    jobs: list[JobPlan]
    models: list[Sum]
    total: Sum
    disk: list[Disk]
    assumptions: list[str]


@dataclass(frozen=True, slots=True)
class Options:
    """What a user may set in place of `config/gpus.yaml`."""

    gpu: str | None = None
    output_tokens: int | None = None
    thinking_tokens: int | None = None


def make_plan(catalog: Catalog, suite: str, options: Options = Options(), say: Say = lambda _: None) -> Plan:
    """Plan a suite: count what is not counted yet, and estimate.

    Raises:
        UpkeepError: unknown suite or GPU, or there is no runtime to count in.
    """
    assumptions = read_yaml(catalog.root / "config" / "gpus.yaml", Assumptions)
    if options.gpu is not None and options.gpu not in assumptions.gpus:
        raise UpkeepError(
            f"unknown GPU {options.gpu!r}",
            expected=f"one of {', '.join(assumptions.gpus)}",
            remedy="add its peak figures to config/gpus.yaml",
        )
    if options.output_tokens is not None:
        assumptions = msgspec.structs.replace(assumptions, reply_tokens=options.output_tokens)
    if options.thinking_tokens is not None:
        assumptions = msgspec.structs.replace(assumptions, thinking_tokens=options.thinking_tokens)
    return _Planner(catalog, suite, assumptions, options.gpu, say).plan()


# ---------------------------------------------------------------- planning


class _Planner:
    def __init__(self, catalog: Catalog, suite: str, assumptions: Assumptions, gpu: str | None, say: Say) -> None:
        self.catalog, self.layout, self.suite = catalog, Layout(catalog.results), suite
        self.assumptions, self.gpu = assumptions, gpu
        self.cells = catalog.cells(catalog.suite(suite))
        assumed = Assumed(reply=assumptions.reply_tokens, thinking=assumptions.thinking_tokens)
        self.jobs = jobs_of(catalog, self.cells)
        asking = [job for job, kind in self.jobs.items() if kind != "training"]
        self.tallies = with_arrivals(tally(catalog, asking, assumed, say))
        self.manifests = {job: read_manifest(catalog, job) for job in self.jobs}
        self.speeds = speeds(catalog)

    def plan(self) -> Plan:
        on_engine: dict[str, list[Job]] = {}
        for job, kind in self.jobs.items():
            if kind != "training" and job.model != "none":
                on_engine.setdefault(job.model, []).append(job)
        self.starts = {model: self._starts(model, len(jobs)) for model, jobs in on_engine.items()}
        plans = [self._job(job, kind) for job, kind in self.jobs.items()]
        models = [sum_of(m, [p for p in plans if p.model == m]) for m in dict.fromkeys(p.model for p in plans)]
        return Plan(
            suite=self.suite,
            made=now(),
            gpu=self.gpu or self.assumptions.default,
            jobs=plans,
            models=models,
            total=sum_of("total", plans),
            disk=self._disk(),
            assumptions=self._said(),
        )

    def _starts(self, model: str, jobs: int) -> float:
        """Seconds that a job of a model has to bear of its engine's starts."""
        spec = self.catalog.spec(model)
        if not spec.gpus or spec.parameters_b is None:
            return 0.0
        seconds = self.assumptions.start_s + _weight_bytes(spec) / (1e9 * self.assumptions.load_gb_s)
        return -(-jobs // self.catalog.config.cells_per_job) * seconds / jobs

    def _job(self, job: Job, kind: Literal["cell", "training"]) -> JobPlan:
        manifest = self.manifests[job]
        actual = took(self.catalog, job, manifest) if manifest else None
        if kind == "training":
            return self._training(job, actual)
        if job.model == "none":
            return JobPlan(job=str(job), kind=kind, model=job.model, plan=NONE, counted="no model", actual=actual)
        found, spec, unknown = self.tallies[job], self.catalog.spec(job.model), list[str]()
        if found.unknown is not None:
            reason = f"requests: {found.unknown}"
            concerned = [*TOKENS, *_spent(spec)]
            plan = msgspec.structs.replace(NONE, **dict.fromkeys(concerned))
            return JobPlan(
                job=str(job), kind=kind, model=job.model, plan=plan, counted="", unknown=[reason], actual=actual
            )
        plan = msgspec.structs.replace(
            NONE,
            requests=found.requests,
            prompt_tokens=found.prompt,
            computed_tokens=found.computed,
            output_tokens=found.output,
        )
        if spec.engine == "endpoint":
            money = self._money(spec, found)
            plan = msgspec.structs.replace(plan, usd=money[0], usd_at_most=money[1])
        elif spec.gpus:
            hours, why = self._gpu_hours(job, spec, found)
            plan = msgspec.structs.replace(plan, gpu_hours=hours)
            unknown += [f"GPU-hours: {why}"] * (hours is None)
        else:
            speed = self.speeds.get(job.model)
            hours = (found.computed + found.output) / speed / 3600 if speed else None
            plan = msgspec.structs.replace(plan, cpu_hours=hours)
            unknown += ["CPU-hours: no cell of this model has been run here yet"] * (hours is None)
        if writer := self.catalog.asked(job).get("writer"):
            unknown.append(f"requests to its writer {writer}: they are not counted")
        counted = "whole" if found.counted == found.records else f"{found.counted:,} of {found.records:,}"
        if found.failed:
            counted += f", {found.failed:.0%} of these failed"
        return JobPlan(
            job=str(job), kind=kind, model=job.model, plan=plan, counted=counted, unknown=unknown, actual=actual
        )

    def _training(self, job: Job, actual: Amounts | None) -> JobPlan:
        """A training asks nothing; how long it takes is known from an earlier one alone."""
        (which,) = _spent(self.catalog.spec(job.model))
        hours = getattr(actual, which) if actual else None
        return JobPlan(
            job=str(job),
            kind="training",
            model=job.model,
            plan=msgspec.structs.replace(NONE, **{which: hours}),
            counted="" if hours is None else "as the last time",
            unknown=["hours of training: it has not been run here yet"] if hours is None else [],
            actual=actual,
        )

    # ------------------------------------------------------------ time

    def _gpu_hours(self, job: Job, spec: ModelSpec, found: Tally) -> tuple[float | None, str]:
        if spec.parameters_b is None or spec.attention is None:
            fields = " and ".join(f for f in ("parameters_b", "attention") if getattr(spec, f) is None)
            return None, f"{self.catalog.model_card(job.model)} has no {fields}"
        gpu, gpus = self._gpu_of(spec), spec.gpus * spec.nodes
        one, a, shape = self.assumptions.gpus[gpu], self.assumptions, spec.attention
        weights = _weight_bytes(spec)
        # A head is kept whole on each GPU, so with more GPUs than heads some are kept several times.
        kv = 2 * shape.layers * max(shape.kv_heads, gpus) * shape.head_size * KV_BYTES
        room = gpus * one.memory_gb * 1e9 * a.memory_share - weights
        if room <= 0:
            return None, f"{weights / 1e9:.0f} GB of weights do not fit into {gpus} {gpu}"
        own = (found.computed + found.output) / max(1.0, found.requests)
        in_flight = describe(self.catalog, job, 1).engine.max_in_flight
        if spec.engine == "transformers":
            in_flight = LANES if found.prompt + found.output <= LANE_TOKENS * found.requests else 1
        batch = max(1.0, min(found.together, in_flight, room / (kv * max(1.0, own))))
        active = spec.active_b or spec.parameters_b
        # Which experts a step reads: each of its tokens chooses for itself.
        touched = weights * (1 - (1 - active / spec.parameters_b) ** batch)
        arithmetic, bandwidth = gpus * one.tflops * 1e12 * a.prefill_share, gpus * one.bandwidth_gb_s * 1e9
        attention = 4 * shape.layers * shape.heads * shape.head_size
        prefill = (2e9 * active * found.computed + attention * found.attended) / arithmetic
        decode = (found.output / batch * touched + kv * found.read) / (bandwidth * a.decode_share)
        return (prefill + decode + self.starts[job.model]) * gpus / 3600, ""

    def _gpu_of(self, spec: ModelSpec) -> str:
        named = spec.resources.gpu_type if spec.resources else None
        return self.gpu or (named if named in self.assumptions.gpus else None) or self.assumptions.default

    def _money(self, spec: ModelSpec, found: Tally) -> tuple[float | None, float | None]:
        """US dollars: as estimated, and at most."""
        if spec.endpoint is None:
            return None, None
        price, cached = spec.endpoint.price, found.prompt - found.computed
        reused = price.prompt if price.cached is None else price.cached
        estimate = found.computed * price.prompt + cached * reused + found.output * price.completion
        longest = found.prompt * max(1.0, spec.endpoint.tokens_per_byte * found.bytes_per_token)
        most = longest * price.prompt + max(found.output, found.requests * spec.sampling.max_tokens) * price.completion
        return estimate / 1e6, most / 1e6

    # ------------------------------------------------------------ disk

    def _disk(self) -> list[Disk]:
        layout, catalog = self.layout, self.catalog
        datasets = dict.fromkeys(cell.dataset for cell in self.cells)
        images = dict.fromkeys(image for job in self.jobs for image in catalog.images(job))
        models = dict.fromkeys(
            name for job in self.jobs for name in catalog.asked(job).values() or [job.model] if name != "none"
        )
        answers = [t for job, t in self.tallies.items() if isinstance(job, Cell)]
        written = [t.records * LINE_BYTES + t.output * CHARACTERS for t in answers if t.unknown is None]
        return [
            _disk("datasets", [_size(layout.dataset(name)) for name in datasets]),
            _images([(packages_of(engine), layout.image(method, engine)) for method, engine in images]),
            _disk("weights", [self._weights_size(name) for name in models]),
            Disk(what="predictions", count=len(answers), bytes=sum(written), unknown=len(answers) - len(written)),
        ]

    def _weights_size(self, model: str) -> float | None:
        spec = self.catalog.spec(model)
        if spec.source in ("endpoint", "package"):
            return 0.0
        return _weight_bytes(spec) if spec.parameters_b is not None else None

    # ------------------------------------------------------------ in words

    def _said(self) -> list[str]:
        a, tallies = self.assumptions, [t for t in self.tallies.values() if t.unknown is None and t.requests]
        specs = [self.catalog.spec(job.model) for job in self.tallies if job.model != "none"]
        said = [
            f"Replies: {a.reply_tokens} tokens (--output-tokens); half of the bound where a method sets one itself; all"
            " that they may be for models with random weights.",
        ]
        if any(spec.thinking == "on" for spec in specs):
            said.append(f"Models that think: {a.thinking_tokens:,} tokens more (--thinking-tokens).")
        if any(t.counted < t.records for t in tallies):
            said.append(
                "Large datasets are counted on some streams, of each some intervals, of each its first probe and a few"
                " others; between them by the tokens that have arrived."
            )
        if any(not t.own_tokens for t in tallies):
            said.append(
                "Tokens of models whose weights are not here yet: as many a byte as the dataset's own tokenizer makes"
                " of its documents."
            )
        if any(describe(self.catalog, job, 1).embedder_spec for job in self.tallies if job.model != "none"):
            said.append("Dense retrieval ranks by hashed words: which documents it finds differs, how many does not.")
        if any(spec.engine != "transformers" for spec in specs):
            said.append("Reuse: vLLM keeps every prefix of a cell; an endpoint keeps prefixes from 1,024 tokens on.")
        if any(spec.gpus for spec in specs):
            kinds = dict.fromkeys(self._gpu_of(spec) for spec in specs if spec.gpus)
            said += [
                f"{name}: {(g := a.gpus[name]).tflops:g} TFLOP/s (bfloat16, dense), {g.bandwidth_gb_s:,g} GB/s,"
                f" {g.memory_gb:g} GB ({g.source}); --gpu chooses another."
                for name in kinds
            ]
            said += [
                f"GPU time: {a.prefill_share:.0%} of peak arithmetic for prompts, {a.decode_share:.0%} of peak"
                " bandwidth for replies, each of which reads its own whole context.",
                f"An engine starts in {a.start_s:g} s and reads its weights at {a.load_gb_s:g} GB/s, once for"
                f" {self.catalog.config.cells_per_job} cells of a model (cells_per_job); a cell bears its share.",
                "Weights take their parameters times the bytes of the card's dtype; quantised ones take less.",
            ]
        if any(not spec.gpus and spec.engine != "endpoint" for spec in specs):
            said.append("CPU time: from the tokens a second of this model's cells that were run here before.")
        if any(spec.engine == "endpoint" for spec in specs):
            said.append(
                "Money at most: nothing reused, replies as long as they may be, as many tokens as the card's"
                " tokens_per_byte says."
            )
        said.append(f"A prediction takes {LINE_BYTES:,} bytes, and {CHARACTERS} for each token of its reply.")
        return said


def jobs_of(catalog: Catalog, cells: Iterable[Cell]) -> dict[Job, Literal["cell", "training"]]:
    """A suite's cells, and before each one what has to be prepared for it; each job once."""
    jobs: dict[Job, Literal["cell", "training"]] = {}

    def add(job: Job) -> None:
        if training := catalog.training_of(job):
            add_training(training)

    def add_training(training: Training) -> None:
        add(training)
        jobs.setdefault(training, "training")

    for cell in cells:
        add(cell)
        jobs[cell] = "cell"
    return jobs


def sum_of(name: str, jobs: Sequence[JobPlan], of: Callable[[JobPlan], Amounts | None] = lambda job: job.plan) -> Sum:
    """Jobs together; those whose amounts are null are left out."""
    amounts = [found for job in jobs if (found := of(job)) is not None]
    columns = {field: [getattr(one, field) for one in amounts] for field in AMOUNTS}
    return Sum(
        name=name,
        jobs=len(amounts),
        plan=Amounts(**{f: _total(values) for f, values in columns.items()}),
        incomplete={f: n for f, values in columns.items() if (n := values.count(None))},
    )


def _total(values: Sequence[float | None]) -> float | None:
    """The sum of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return math.fsum(known) if known or not values else None


def _spent(spec: ModelSpec) -> tuple[str, ...]:
    """The amounts beside requests and tokens that a model takes."""
    if spec.engine == "endpoint":
        return "usd", "usd_at_most"
    return ("gpu_hours",) if spec.gpus else ("cpu_hours",)


def _weight_bytes(spec: ModelSpec) -> float:
    assert spec.parameters_b is not None
    return spec.parameters_b * 1e9 * BYTES[spec.dtype]


def _disk(what: str, sizes: Sequence[float | None]) -> Disk:
    known = [size for size in sizes if size is not None]
    return Disk(what=what, count=len(sizes), bytes=sum(known), unknown=len(sizes) - len(known))


def _size(folder: Path) -> float | None:
    return float(sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())) if folder.is_dir() else None


def _images(records: Sequence[tuple[str, Path]]) -> Disk:
    """Images, by the packages below and record; unknown is the size of one that is not built, or is an environment.

    Images that are built on the same share its layers, so beyond the smallest one only what is added counts.
    """
    sizes: dict[str, list[int]] = {}
    for engine, path in records:
        try:
            size = read_sealed(path, ImageRecord, "").size
        except UpkeepError:
            continue  # not there, or made again by the next run
        if size:
            sizes.setdefault(engine, []).append(size)
    added = sum(sum(of_engine) - min(of_engine) * (len(of_engine) - 1) for of_engine in sizes.values())
    unknown = len(records) - sum(map(len, sizes.values()))
    return Disk(what="images", count=len(records), bytes=added, unknown=unknown)


# ---------------------------------------------------------------- what it took


def read_manifest(catalog: Catalog, job: Job) -> Manifest | None:
    """The manifest of a job that is complete."""
    try:
        return read_sealed(folder_of(catalog, job) / "manifest.json", Manifest, command_of(job))
    except UpkeepError:
        return None  # not there, or damaged: then it is made again


def took(catalog: Catalog, job: Job, manifest: Manifest) -> Amounts:
    """What a complete job took, as its manifest says."""
    measured, hours = manifest.measured, wall_s(manifest) / 3600
    none = job.model == "none"
    spec = None if none else catalog.spec(job.model)
    facts = manifest.environment.job
    gpus = 0 if spec is None else (len(facts.gpus) if facts and facts.gpus else spec.gpus) * spec.nodes
    paid = spec is not None and spec.engine == "endpoint"
    return Amounts(
        requests=float(manifest.usage.calls),
        prompt_tokens=float(manifest.usage.prompt),
        computed_tokens=measured.get("computed_prompt_tokens", None if manifest.usage.calls else 0.0),
        output_tokens=float(manifest.usage.completion),
        gpu_hours=hours * gpus,
        cpu_hours=0.0 if gpus or paid or none else hours,
        usd=measured.get("cost_usd") if paid else 0.0,
        usd_at_most=measured.get("cost_usd") if paid else 0.0,
    )


def wall_s(manifest: Manifest) -> float:
    """Seconds in which a job was being worked on, over all its attempts."""
    spans = [(attempt.start, attempt.end) for attempt in manifest.attempts if attempt.end is not None]
    return sum((datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds() for start, end in spans)


def speeds(catalog: Catalog) -> dict[str, float]:
    """Model -> tokens a second (computed prompt and generated ones), over all its cells that were run here."""
    tokens: dict[str, float] = {}
    seconds: dict[str, float] = {}
    for path in (catalog.results / "cells").glob("*/*/*/*/manifest.json"):
        try:
            manifest = read_sealed(path, Manifest, "")
        except UpkeepError:
            continue  # it is not scored either, and the report says why
        model = path.parent.name
        used = manifest.measured.get("computed_prompt_tokens", 0.0) + manifest.usage.completion
        tokens[model] = tokens.get(model, 0.0) + used
        seconds[model] = seconds.get(model, 0.0) + wall_s(manifest)
    return {model: tokens[model] / spent for model, spent in seconds.items() if spent and tokens[model]}


# ---------------------------------------------------------------- on the terminal

_HEADS = {
    "requests": "requests",
    "prompt_tokens": "prompt tokens",
    "computed_tokens": "not reused",
    "output_tokens": "output tokens",
    "gpu_hours": "GPU-h",
    "cpu_hours": "CPU-h",
    "usd": "US$",
    "usd_at_most": "at most",
}


def render(plan: Plan, cells: bool = False) -> RenderableType:
    """The plan as a table: a line a model (a cell, with `cells`), the total, disk, what is unknown, assumptions."""
    from rich.console import Group

    shown = [f for f in AMOUNTS if f in TOKENS or f in plan.total.incomplete or getattr(plan.total.plan, f)]
    table = _table(f"plan of {plan.suite}", ["jobs", *(_HEADS[f] for f in shown)])
    for model in plan.models:
        if cells:
            for job in plan.jobs:
                if job.model == model.name:
                    marks = [_cell(f, getattr(job.plan, f), False) for f in shown]
                    table.add_row(_name(job), "", *marks)
        table.add_row(*_sum_row(model, shown), end_section=cells, style="bold" if cells else "")
    table.add_section()
    table.add_row(*_sum_row(plan.total, shown), style="bold")
    return Group(table, *_below(plan))


def render_actual(plan: Plan, cells: bool = False) -> RenderableType:
    """Plan, actual and their ratio of the jobs that are complete, a line a model (a cell, with `cells`)."""
    from rich.console import Group

    done = [job for job in plan.jobs if job.actual is not None]
    shown = [f for f in AMOUNTS if f != "usd_at_most" and any(getattr(j.actual, f) for j in done)]
    table = _table(f"{plan.suite}: plan, actual, actual / plan", ["jobs", *(_HEADS[f] for f in shown)])
    for model in dict.fromkeys(job.model for job in done):
        mine = [job for job in done if job.model == model]
        for job in mine if cells else ():
            table.add_row(_name(job), "", *_compared([job], shown))
        table.add_row(model, str(len(mine)), *_compared(mine, shown), style="bold" if cells else "", end_section=cells)
    table.add_section()
    table.add_row("total", str(len(done)), *_compared(done, shown), style="bold")
    left = len(plan.jobs) - len(done)
    more = f"; the other {left} are not in this table" if left else ""
    return Group(table, f"{len(done)} of {len(plan.jobs)} jobs are complete{more}")


def _table(title: str, heads: Sequence[str]):  # type: ignore[no-untyped-def]
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("", no_wrap=True)
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    return table


def _name(job: JobPlan) -> str:
    return job.job if job.kind == "cell" else f"{job.job} ({job.kind})"


def _sum_row(of: Sum, shown: Sequence[str]) -> list[str]:
    return [of.name, str(of.jobs), *(_cell(f, getattr(of.plan, f), f in of.incomplete) for f in shown)]


def _cell(field: str, value: float | None, incomplete: bool) -> str:
    if value is None:
        return "unknown"
    more = " +?" if incomplete else ""
    if field.startswith("usd"):
        return f"{value:,.2f}{more}"
    if field.endswith("hours"):
        return f"{value:,.1f}{more}" if value >= 10 or not value else f"{value:.2g}{more}"
    return f"{value:,.0f}{more}"


def _compared(jobs: Sequence[JobPlan], shown: Sequence[str]) -> list[str]:
    """Plan, actual, ratio over the jobs where both are known."""
    texts = []
    for field in shown:
        pairs = [(getattr(job.plan, field), getattr(job.actual, field)) for job in jobs]
        both = [(p, a) for p, a in pairs if p is not None and a is not None]
        planned, actual = math.fsum(p for p, _ in both), math.fsum(a for _, a in both)
        if not both:
            texts.append("unknown")
            continue
        ratio = f"{actual / planned:.2f}" if planned else ("1.00" if not actual else "-")
        texts.append(f"{_cell(field, planned, False)}  {_cell(field, actual, len(both) < len(pairs))}  {ratio}")
    return texts


def _below(plan: Plan) -> list[str]:
    unknown: dict[str, int] = {}
    for job in plan.jobs:
        for reason in job.unknown:
            unknown[reason] = unknown.get(reason, 0) + 1
    lines = [f"disk: {', '.join(_disk_text(disk) for disk in plan.disk)}"]
    if unknown:
        lines += ["", "unknown (+? marks a sum that is without them):"]
        lines += [f"- {n} {'job' if n == 1 else 'jobs'}: {reason}" for reason, n in unknown.items()]
    return [*lines, "", "assumptions:", *(f"- {text}" for text in plan.assumptions)]


def _disk_text(disk: Disk) -> str:
    from rich.filesize import decimal

    more = f" and {disk.unknown} of unknown size" if disk.unknown else ""
    return f"{disk.count} {disk.what} {decimal(int(disk.bytes))}{more}"
