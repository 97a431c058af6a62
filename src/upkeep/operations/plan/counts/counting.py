"""Runs the counts of a plan's jobs that are not kept yet, in a container a method."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec

from upkeep import weights
from upkeep.batches import batches
from upkeep.catalog import Catalog
from upkeep.contract import CellDescription, Resources
from upkeep.errors import UpkeepError
from upkeep.execution.detection import detect
from upkeep.execution.order import Order, order
from upkeep.execution.rounds import worked_examples
from upkeep.execution.runtimes import Launch, Runtime
from upkeep.files import digest, hash_file, open_regular, write_atomically
from upkeep.identity import IMAGE_CODE, describe
from upkeep.integrity import read_record
from upkeep.jobs import Cell, Job, untrained
from upkeep.layout import Layout
from upkeep.method_cards import sees_of, shown_of, supervision_of
from upkeep.operations.plan.counts.dataset import CountedDataset, Say
from upkeep.operations.plan.counts.extrapolation import extrapolate, extrapolate_arrival
from upkeep.operations.plan.counts.sample import IN_PASSES, PASSES, WHOLE, Sample
from upkeep.operations.plan.counts.tally import Arrival, Tally
from upkeep.serving.counting.records import Assumed, CountJob, Counts
from upkeep.sources import tree
from upkeep.sweeps import sweeps

ENGINE = "transformers"
"""The image that methods are counted in, whatever their model runs on: it has the tokenizers and is the smallest."""
TIMEOUT_S = 1800.0
UNCOUNTED = "they are not counted yet: `--count` does it, and makes the datasets and images that takes"
MAX_BYTES = 256 * 2**20
"""Of a container's counts."""


def tally(
    catalog: Catalog, jobs: Iterable[Job], assumed: Assumed, say: Say = lambda _: None, *, count: bool = True
) -> dict[Job, Tally]:
    """The counts of cells, taken from the cache or made anew. No model is loaded, no endpoint asked.

    A job that cannot be counted has its reason in `unknown`.

    Args:
        say: is told what is being done.
        count: whether what is not in the cache is counted, which builds a dataset that is not built, and the images
            that methods are counted in; else it is unknown, and nothing is made.

    Raises:
        UpkeepError: there is no runtime.
    """
    jobs = list(dict.fromkeys(jobs))
    together = batches(catalog, [job for job in jobs if isinstance(job, Cell)])
    abreast = {cell: sweep for batch in together for sweep in sweeps(catalog, batch.cells) for cell in sweep}
    counting = _Counting(catalog, assumed, say, count, abreast)
    found = {job: counting.prepare(job) for job in jobs}
    counting.run()
    return {job: key if isinstance(key, Tally) else counting.read(key) for job, key in found.items()}


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One job that is not in the cache."""

    key: str
    description: CellDescription
    chosen: Sample
    """What of the dataset is counted."""
    beside: Sequence[CellDescription]
    """`CountJob.beside`."""
    tokenizer: Path | None
    """Folder of the model's own one, where it is used."""
    tokens_per_byte: float | None
    """Used where there is none."""
    own_tokens: bool
    held: bool | None
    """`CountJob.held`."""
    order: Order
    numbers: Sequence[int] | None
    """Of each probe's pass, where passes are counted."""
    room: int | None
    """`CountJob.room`."""


class _Counting:
    """All jobs of one plan."""

    def __init__(
        self, catalog: Catalog, assumed: Assumed, say: Say, count: bool, sweeps: Mapping[Cell, Sequence[Cell]]
    ) -> None:
        self.count, self.sweeps = count, sweeps
        self.catalog, self.layout, self.assumed, self.say = catalog, Layout(catalog.results), assumed, say
        self.scratch = self.layout.work("counts", os.getpid())
        self.datasets: dict[str, CountedDataset | str] = {}
        self.wanted: dict[str, _Wanted] = {}
        self.failures: dict[str, str] = {}

    def prepare(self, job: Job) -> str | Tally:
        """The key of a job's counts; a tally where there is nothing to run."""
        dataset = self._dataset(job.dataset)
        if isinstance(dataset, str):
            return Tally(unknown=dataset)
        if job.model == "none":
            return Tally(records=dataset.card.probes)
        wanted = self._wanted(job, dataset)
        if self._kept(wanted.key) is None:
            self.wanted[wanted.key] = wanted
        return wanted.key

    def _dataset(self, name: str) -> CountedDataset | str:
        if name not in self.datasets:
            try:
                self.datasets[name] = CountedDataset(self.catalog, name, self.say if self.count else None)
            except UpkeepError as error:
                self.datasets[name] = f"no dataset {name}: {error.problem}"
        return self.datasets[name]

    def _wanted(self, job: Job, dataset: CountedDataset) -> _Wanted:
        catalog, card = self.catalog, self.catalog.method(job.method)
        told = describe(catalog, job, dataset.card.chunk_tokens)
        spec = told.model_spec
        assert spec is not None
        tokenizer, rate = self._tokenizer(job.model), None
        own = tokenizer is not None
        held = None
        shown = shown_of(card, job.variant) if isinstance(job, Cell) else None
        if not isinstance(job, Cell):
            found = Order([], held=False, together=dataset.together(told.trials, card))
        else:
            found = order(catalog, job, dataset.corpus, told.trials, self.sweeps[job])
            if shown is not None and shown.ranked and spec.endpoint is None:
                held = found.held
        beside: list[CellDescription] = []
        # What takes one at a time reads its address from the environment, of which a process has one.
        if isinstance(job, Cell) and found.sweep and not card.one_at_a_time:
            smaller = itertools.takewhile(lambda cell: cell != job, self.sweeps[job])
            beside = [describe(catalog, cell, dataset.card.chunk_tokens) for cell in smaller]
        numbers = room = None
        chosen = dataset.sample(told.trials, held, IN_PASSES if 1 < found.passes <= PASSES else WHOLE)
        if chosen.whole:
            # Then it is counted as it is asked. Where a cache holds all that counts, its size does not.
            numbers = found.numbers if found.passes > 1 else None
            room = found.room if numbers is not None or held is False else None
            held = None
        if spec.endpoint is not None:
            # What fits into its context is decided at this rate (`upkeep.cell.endpoint`).
            tokenizer, rate = None, spec.endpoint.tokens_per_byte
        elif tokenizer is None or len(chosen.asked) * told.trials > WHOLE or not chosen.whole:
            tokenizer, rate = None, dataset.tokens_per_byte(tokenizer)
        key = {
            "task": told.task,
            "dataset": digest(dataset.card.content),
            "parameters": [one.parameters for one in (told, *beside)],
            "sees": sees_of(card, job.variant),
            "streams": card.streams,
            "dense": told.embedder_spec and told.embedder_spec.context_length,
            "engine": [told.engine.name, told.engine.prefix_cache, told.engine.options, told.engine.max_in_flight],
            "trials": told.trials,
            "prompt": msgspec.to_builtins(told.prompt),
            "seed": told.seed,
            "spec": [spec.context_length, spec.sampling.max_tokens, spec.chat_template, spec.thinking, spec.trained],
            "template": [spec.template_options, spec.thinking_tags],
            "tokens": hash_file(tokenizer / "tokenizer.json") if tokenizer else rate,
            "assumed": msgspec.to_builtins(self.assumed),
            "order": [held, found.passes, found.together, numbers, room],
            "code": tree(catalog, f"methods/{job.method}", *IMAGE_CODE, "src/upkeep/operations/plan/counts"),
        }
        return _Wanted(digest(key), told, chosen, beside, tokenizer, rate, own, held, found, numbers, room)

    def _tokenizer(self, model: str) -> Path | None:
        """The folder of a model's tokenizer, where that is at hand; a plan needs no weights."""
        model = untrained(model)
        folder = weights.place(self.catalog, model, self.catalog.model(model))
        return folder if folder and (folder / "tokenizer.json").is_file() else None

    # ------------------------------------------------------------ in containers

    def run(self) -> None:
        """Count what is not known yet, a container a method."""
        if not self.count:
            self.failures = dict.fromkeys(self.wanted, UNCOUNTED)
            return
        try:
            if self.wanted:
                self._run()
        finally:
            shutil.rmtree(self.scratch, ignore_errors=True)

    def _run(self) -> None:
        runtime = detect(self.catalog)
        methods: dict[str, dict[str, _Wanted]] = {}
        for wanted in self.wanted.values():
            methods.setdefault(wanted.description.method, {})[wanted.key] = wanted
        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
            for method, tallies in zip(
                methods, pool.map(lambda m: self._method(runtime, m, list(methods[m].values())), methods), strict=True
            ):
                if isinstance(tallies, str):
                    self.failures |= dict.fromkeys(methods[method], tallies)
                    continue
                for key, found in tallies.items():
                    write_atomically(self.layout.count(key), msgspec.json.encode(found))

    def _method(self, runtime: Runtime, method: str, jobs: list[_Wanted]) -> dict[str, Tally] | str:
        """The tallies of one method's jobs, by key; why there are none."""
        self.say(f"counting {method}: {len(jobs)} {'cell' if len(jobs) == 1 else 'cells'}")
        folder = self.scratch / method
        inputs, output = folder / "cell", folder / "output"
        try:
            prepared = runtime.prepare(method, ENGINE)
            inputs.mkdir(parents=True)
            output.mkdir()
            folders = dict.fromkeys(job.tokenizer for job in jobs if job.tokenizer is not None)
            roles = {path: f"tokens{n}" for n, path in enumerate(folders)}
            given = {role: path for path, role in roles.items()}
            self._write(runtime, jobs, inputs, output, roles)
            launch = Launch(
                name=f"count-{method}-{os.getpid()}",
                inputs={"cell": inputs, **given},
                output=output,
                log=folder / "log",
                resources=Resources(memory_gb=8),
                arguments=(
                    *("-m", "upkeep.serving.counting", f"{runtime.path_of('cell', inputs)}/jobs.json"),
                    f"{runtime.path_of('output', output)}/counts.json",
                ),
            )
            handle = runtime.start(prepared, launch)
            handle.stdin.close()
            try:
                status = handle.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                return f"the method did not come to an end within {TIMEOUT_S:.0f} s"
            finally:
                if handle.poll() is None:
                    handle.kill()
            if status:
                return f"{runtime.explain(status, launch.resources)}: {handle.tail(3)}"
            with open_regular(output / "counts.json", MAX_BYTES) as file:
                counts = msgspec.json.decode(file.read(), type=list[Counts])
            return {job.key: self._tally(job, found) for job, found in zip(jobs, counts, strict=True)}
        except UpkeepError as error:
            return str(error)
        except (msgspec.MsgspecError, ValueError, KeyError) as error:
            return f"not counts: {type(error).__name__}: {error}"

    def _write(self, runtime: Runtime, jobs: list[_Wanted], folder: Path, output: Path, roles: dict[Path, str]) -> None:
        """Jobs and rounds as the container reads them."""
        files: dict[tuple[object, ...], list[str]] = {}
        told = []
        for place, job in enumerate(jobs):
            cell, dataset = job.description, self._built(job.description.dataset)
            card = self.catalog.method(cell.method)
            # A sample is one of so many trials, and a variant says what it is given.
            given = sees_of(card, cell.variant), supervision_of(card, cell.variant)
            which = (cell.dataset, cell.trials, *given, job.held, tuple(job.numbers or ()))
            if which not in files:
                files[which] = []
                for number in sorted(set(job.numbers)) if job.numbers else (0,):
                    rounds = dataset.rounds(card, cell.variant, job.chosen, job.numbers, number)
                    path = folder / f"rounds-{len(files)}-{number}.jsonl"
                    path.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in rounds))
                    files[which].append(f"{runtime.path_of('cell', folder)}/{path.name}")
            examples = worked_examples(dataset.folder, dataset.card)
            told.append(
                CountJob(
                    cell=msgspec.structs.replace(
                        cell,
                        examples=examples,
                        model_path=runtime.path_of(roles[job.tokenizer], job.tokenizer) if job.tokenizer else None,
                        output=f"{runtime.path_of('output', output)}/{place}",
                    ),
                    beside=[msgspec.structs.replace(one, examples=examples) for one in job.beside],
                    tokens_per_byte=job.tokens_per_byte,
                    passes=files[which],
                    assumed=self.assumed,
                    held=job.held,
                    room=job.room,
                )
            )
        (folder / "jobs.json").write_bytes(msgspec.json.encode(told))
        _open(folder)

    def _tally(self, job: _Wanted, counts: Counts) -> Tally:
        cell, dataset = job.description, self._built(job.description.dataset)
        if counts.error is not None:
            return Tally(unknown=counts.error)
        chosen = job.chosen
        failed = [line.error for line in counts.lines if line.error is not None]
        if failed and len(failed) == len(counts.lines):
            return Tally(unknown=f"every probe fails: {failed[0]}")
        tally = Tally(
            records=sum(len(interval.keys) for interval in chosen.intervals) * cell.trials,
            counted=sum(map(len, chosen.counted.values())) * cell.trials,
            together=job.order.together,
            passes=job.order.passes,
            own_tokens=job.own_tokens,
            bytes_per_token=1 / dataset.tokens_per_byte(None),
            failed=len(failed) / max(1, len(counts.lines)),
        )
        total = extrapolate(chosen, counts.lines, cell.trials)
        arrival = extrapolate_arrival(counts.arrivals, dataset.share(chosen))
        if cell.model_spec is not None and cell.model_spec.endpoint is not None:
            # Its rate is an upper estimate; what is expected is the dataset's own.
            likely = min(1.0, 1 / (tally.bytes_per_token * cell.model_spec.endpoint.tokens_per_byte))
            for one in (total, arrival):
                one |= {field: one[field] * likely for field in ("prompt", "computed")}
        # What another model is asked is no work of this one, and is not counted.
        asked = Arrival(key=counts.arrival, **arrival) if counts.arrivals and cell.writer_spec is None else None
        return msgspec.structs.replace(tally, arrival=asked, **total)

    def _built(self, name: str) -> CountedDataset:
        dataset = self.datasets[name]
        assert isinstance(dataset, CountedDataset)
        return dataset

    def read(self, key: str) -> Tally:
        """A job's counts, after `run`."""
        if key in self.failures:
            return Tally(unknown=self.failures[key])
        return self._kept(key) or Tally(unknown=f"its counts cannot be read: {self.layout.count(key)}")

    def _kept(self, key: str) -> Tally | None:
        """A job's counts; None where there are none, or none that can be read, so that it is counted again."""
        try:
            return read_record(self.layout.count(key), Tally)
        except UpkeepError:
            return None


def _open(folder: Path) -> None:
    """Let the container's user, who may be another one, read a folder."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
