"""Counts what cells would ask of their models, by running their methods against an engine that runs none.

A method is run as a cell runs, isolated, in its own image, over a sample of the dataset's rounds, and what it asks for
is laid out over the whole dataset. So a new method is planned like any other, with nothing declared about it. Counts
are kept in `results/plans/counts/`, each under the hash of all that it depends on.

The sample: a dataset of up to `WHOLE` predictions is counted whole, hence exactly. Of a larger one some streams are
taken, spread over their sizes; of each stream `KNOTS` intervals, first and last among them, each after the interval
before it, so that what is reused from one to the next shows; of each interval its first probe, which pays for what is
new, and a few others. Between intervals counts are interpolated by the tokens that have arrived. What is asked as
documents arrive is counted over all documents of the chosen streams, and laid out by the number of documents.

Tokens are those of the model's own tokenizer where it is at hand and the dataset is counted whole. Else bytes are
counted, at the rate that the model's tokenizer has on the dataset's documents, or, without it, the dataset's own.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import os
import shutil
import subprocess
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from upkeep import inputs, weights
from upkeep.catalog import Catalog, Job, TrainedModel
from upkeep.contract import CellDescription, Count, MethodCard, Record, Resources, Round
from upkeep.errors import UpkeepError
from upkeep.execution.detection import detect
from upkeep.execution.rounds import Corpus, answering
from upkeep.execution.runtimes import Launch, Runtime
from upkeep.files import digest, hash_file, open_regular, write_atomically
from upkeep.identity import IMAGE_CODE, describe, plan_dataset, tree
from upkeep.integrity import read_record
from upkeep.layout import Layout
from upkeep.serving.counting import Assumed, CountJob, Counts, Line

WHOLE = 2000
"""Predictions of a dataset that is counted whole."""
SAMPLED = 200
"""Predictions of a larger one that are counted, about."""
KNOTS = 10
"""Intervals of a sampled stream."""
OTHERS = 4
"""Probes of a sampled interval beside its first one."""
CALIBRATED = 50
"""Documents that a tokenizer's rate is measured on."""
ENGINE = "transformers"
"""The image that methods are counted in, whatever their model runs on: it has the tokenizers and is the smallest."""
TIMEOUT_S = 1800.0
MAX_BYTES = 256 * 2**20
"""Of a container's counts."""

Say = Callable[[str], None]


class Work(Record, frozen=True, kw_only=True):
    """What is asked of a model."""

    requests: float = 0.0
    prompt: float = 0.0
    """Prompt tokens sent."""
    computed: float = 0.0
    """Of these not in the engine's prefix cache."""
    output: float = 0.0
    """Tokens generated."""
    attended: float = 0.0
    """Pairs of a computed prompt token and a token that it attends to."""
    read: float = 0.0
    """Context tokens whose keys and values are read, summed over the generated tokens."""


class Arrival(Work, frozen=True, kw_only=True):
    """What is asked of a model as documents arrive."""

    key: str
    """Hash of it: cells in which it is equal ask it once."""


class Tally(Work, frozen=True, kw_only=True):
    """What a job asks of its model in all, over the whole dataset; without what it asks as documents arrive."""

    arrival: Arrival | None = None
    records: Count = 0
    """Predictions."""
    counted: Count = 0
    """How many of them were counted; the others are inferred."""
    together: float = 0.0
    """Records of a round on average: what an engine can work on at a time."""
    own_tokens: bool = False
    """Whether the model's own tokenizer is at hand."""
    bytes_per_token: float = 0.0
    """Of the dataset's documents."""
    failed: float = 0.0
    """Share of the counted records that ended with an error."""
    unknown: str | None = None
    """Why there are no counts."""


def tally(catalog: Catalog, jobs: Iterable[Job], assumed: Assumed, say: Say = lambda _: None) -> dict[Job, Tally]:
    """The counts of cells, taken from the cache or made anew. No model is loaded, no endpoint asked.

    A dataset that is not built is built. A job that cannot be counted has its reason in `unknown`.

    Args:
        say: is told what is being done.

    Raises:
        UpkeepError: there is no runtime.
    """
    counting = _Counting(catalog, assumed, say)
    found = {job: counting.prepare(job) for job in dict.fromkeys(jobs)}
    counting.run()
    return {job: key if isinstance(key, Tally) else counting.read(key) for job, key in found.items()}


# ---------------------------------------------------------------- the sample


@dataclass(frozen=True, slots=True)
class Interval:
    """The probes of one stream at one position."""

    stream: str
    arrived: int
    """Tokens of the documents that have arrived, by the dataset's tokenizer."""
    keys: tuple[str, ...]
    """Ids of the probes in order."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What of a dataset is counted, and how it stands for the rest."""

    intervals: Sequence[Interval]
    """All of the dataset."""
    counted: dict[int, tuple[str, ...]]
    """Place of an interval -> its keys that are counted, its first one first."""
    asked: frozenset[str]
    """All keys that are sent: those, and some before them that fill the engine's cache."""

    @property
    def whole(self) -> bool:
        return len(self.counted) == len(self.intervals) and all(
            len(self.intervals[place].keys) == len(keys) for place, keys in self.counted.items()
        )

    @property
    def streams(self) -> set[str]:
        return {self.intervals[place].stream for place in self.counted}


def sample(intervals: Sequence[Interval], trials: int) -> Sample:
    """Choose what to count; see the module's text. Intervals are in order of stream, then position."""
    every = {place: interval.keys for place, interval in enumerate(intervals)}
    if sum(len(keys) for keys in every.values()) * trials <= WHOLE:
        return Sample(intervals, every, frozenset(key for keys in every.values() for key in keys))
    streams: dict[str, list[int]] = {}
    for place, interval in enumerate(intervals):
        streams.setdefault(interval.stream, []).append(place)
    by_size = sorted(streams.values(), key=lambda places: (intervals[places[-1]].arrived, places))
    middle = by_size[len(by_size) // 2]
    each = min(len(middle), KNOTS) * min(len(intervals[middle[-1]].keys), 1 + OTHERS)
    chosen = _spread(by_size, max(2, -(-SAMPLED // each)))
    counted: dict[int, tuple[str, ...]] = {}
    before: list[str] = []
    for places in chosen:
        for n in _spread(range(len(places)), KNOTS):
            first, *others = intervals[places[n]].keys
            counted[places[n]] = (first, *_spread(others, OTHERS))
            if n > 0:
                before.append(intervals[places[n - 1]].keys[-1])
    asked = itertools.chain(before, *counted.values())
    return Sample(intervals, dict(sorted(counted.items())), frozenset(asked))


def _spread(items: Sequence[Any], n: int) -> list[Any]:
    """`n` of the items, the first and the last one among them, evenly between; all where there are fewer."""
    if len(items) <= n:
        return list(items)
    return [items[round(i * (len(items) - 1) / (n - 1))] for i in range(n)] if n > 1 else [items[-1]]


# ---------------------------------------------------------------- from the sample to the whole

_Vector = tuple[float, ...]
_FIELDS = Work.__struct_fields__


def _vector(line: Line) -> _Vector:
    """A line as the numbers that are summed; where it has several calls, they are taken to be alike."""
    n = line.usage.calls
    if not n:
        return (0.0,) * len(_FIELDS)
    prompt, cached, output = line.usage.prompt, line.cached, line.usage.completion
    attended = (prompt**2 - cached**2) / (2 * n)
    return n, prompt, prompt - cached, output, attended, (output * prompt + output**2 / 2) / n


def extrapolate(sample: Sample, lines: Iterable[Line], trials: int) -> dict[str, float]:
    """Totals over all intervals, by field of `Tally`."""
    by_key: dict[str, list[_Vector]] = {}
    for line in lines:
        by_key.setdefault(line.key, []).append(_vector(line))
    total = array("d", [0.0] * len(_FIELDS))
    firsts: list[tuple[int, _Vector]] = []
    others: list[tuple[int, _Vector]] = []
    for place, keys in sample.counted.items():
        interval = sample.intervals[place]
        first, *rest = (vector for key in keys for vector in by_key[key])
        if len(keys) == len(interval.keys):
            _add(total, first, 1)
            for vector in rest:
                _add(total, vector, 1)
        else:
            _add(total, first, 1)
            _add(total, _mean(rest), len(interval.keys) * trials - 1)
        firsts.append((interval.arrived, first))
        if rest:
            others.append((interval.arrived, _mean(rest)))
    if len(sample.counted) < len(sample.intervals):
        first_at, other_at = _Curve(firsts), _Curve(others or firsts)
        for place, interval in enumerate(sample.intervals):
            if place not in sample.counted:
                _add(total, first_at(interval.arrived), 1)
                _add(total, other_at(interval.arrived), len(interval.keys) * trials - 1)
    return dict(zip(_FIELDS, total, strict=True))


def with_arrivals(tallies: Mapping[Job, Tally]) -> dict[Job, Tally]:
    """The counts with what is asked as documents arrive, which of several cells that ask the same the first one pays:
    the others find it in the record."""
    paid: set[tuple[str, str]] = set()
    found = {}
    for job, tally in tallies.items():
        arrival = tally.arrival
        if arrival is not None and (job.model, arrival.key) not in paid:
            paid.add((job.model, arrival.key))
            sums = {field: getattr(tally, field) + getattr(arrival, field) for field in _FIELDS}
            tally = msgspec.structs.replace(tally, **sums)
        found[job] = tally
    return found


def extrapolate_arrival(lines: Iterable[Line], share: float) -> dict[str, float]:
    """Totals by field of `Work`, where lines stand for this share of the documents."""
    total = array("d", [0.0] * len(_FIELDS))
    for line in lines:
        _add(total, _vector(line), 1)
    return {name: value / share for name, value in zip(_FIELDS, total, strict=True)}


def _add(total: array[float], vector: _Vector, times: int) -> None:
    for i, value in enumerate(vector):
        total[i] += times * value


def _mean(vectors: Sequence[_Vector]) -> _Vector:
    return tuple(sum(values) / len(vectors) for values in zip(*vectors, strict=True))


class _Curve:
    """Linear between points, constant beyond them; points at one place are averaged."""

    def __init__(self, points: Iterable[tuple[int, _Vector]]) -> None:
        at: dict[int, list[_Vector]] = {}
        for x, vector in points:
            at.setdefault(x, []).append(vector)
        self._xs = sorted(at)
        self._ys = [_mean(at[x]) for x in self._xs]

    def __call__(self, x: int) -> _Vector:
        right = bisect.bisect_left(self._xs, x)
        if right == len(self._xs):
            return self._ys[-1]
        if right == 0 or self._xs[right] == x:
            return self._ys[right]
        low, high = self._xs[right - 1], self._xs[right]
        share = (x - low) / (high - low)
        return tuple(a + share * (b - a) for a, b in zip(self._ys[right - 1], self._ys[right], strict=True))


# ---------------------------------------------------------------- a dataset


class _Dataset:
    """A built dataset with what is counted of it."""

    def __init__(self, catalog: Catalog, name: str, say: Say) -> None:
        from upkeep.building.build import build_dataset

        self.folder = Layout(catalog.results).dataset(name)
        try:
            card = inputs.dataset(catalog, name)
        except UpkeepError:
            card = None  # not there, or damaged
        if card is None or card.plan != plan_dataset(catalog, name):
            say(f"building the dataset {name}")
            card = build_dataset(catalog, name, self.folder)
        self.card = card

    @functools.cached_property
    def corpus(self) -> Corpus:
        return Corpus.read(self.folder)

    @functools.cached_property
    def arrived(self) -> list[int]:
        """For each document, how many tokens its stream has with it."""
        from upkeep.normal_form import read_table

        arrived: list[int] = []
        for document, tokens in zip(self.corpus.documents, read_table(self.folder, "documents")["tokens"], strict=True):
            arrived.append(tokens + (arrived[-1] if document.position else 0))
        return arrived

    @functools.cached_property
    def asked(self) -> list[Interval]:
        """The intervals in which probes are asked."""
        at = itertools.groupby(self.corpus.probes, key=lambda probe: (probe.stream, probe.position))
        return [
            Interval(stream, self.arrived[self.corpus.arrived(stream, t)[1] - 1], tuple(p.id for p in probes))
            for (stream, t), probes in at
        ]

    @functools.cache  # noqa: B019 (a dataset lives as long as the plan)
    def tokens_per_byte(self, tokenizer: Path | None) -> float:
        """Of the dataset's documents: by its own tokenizer, or by a model's in the first documents."""
        if tokenizer is None:
            tokens = sum(self.arrived[end - 1] for _, end in self.corpus.streams.values())
            texts = [document.text for document in self.corpus.documents]
        else:
            from upkeep.building.tokens import load

            texts = [document.text for document in self.corpus.documents[:CALIBRATED]]
            tokens = sum(load(tokenizer / "tokenizer.json").count(texts))
        return tokens / max(1, sum(len(text.encode()) for text in texts))

    @functools.cache  # noqa: B019
    def sample(self, trials: int) -> Sample:
        return sample(self.asked, trials)

    def together(self, trials: int, card: MethodCard) -> float:
        steps = answering(self.corpus, min_streams=card.streams)
        return len(self.corpus.probes) * trials / max(1, len(steps))

    def share(self, sample: Sample) -> float:
        """Of the documents that ever arrive, those of the sample's streams."""
        last = {interval.stream: self.corpus.arrived(interval.stream, 0)[0] for interval in sample.intervals}
        for probe in self.corpus.probes:
            last[probe.stream] = max(last[probe.stream], self.corpus.arrived(probe.stream, probe.position)[1])
        sizes = {stream: end - self.corpus.streams[stream][0] for stream, end in last.items()}
        return sum(sizes[stream] for stream in sample.streams) / max(1, sum(sizes.values()))

    def rounds(self, card: MethodCard, sample: Sample) -> Iterator[Round]:
        """The rounds of a cell, with what is in the sample of each."""
        corpus, streams, gold = self.corpus, sample.streams, self.corpus.gold(card.sees)
        for step in answering(corpus, min_streams=card.streams):
            documents = [d for place in step.documents if (d := corpus.documents[place]).stream in streams]
            places = [place for place in step.probes if corpus.probes[place].id in sample.asked]
            if documents or places:
                yield Round(
                    documents=documents,
                    probes=[corpus.probes[place] for place in places],
                    gold=[gold[place] for place in places] if gold is not None else [],
                )


# ---------------------------------------------------------------- running


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One job that is not in the cache."""

    key: str
    description: CellDescription
    tokenizer: Path | None
    """Folder of the model's own one, where it is used."""
    tokens_per_byte: float | None
    """Used where there is none."""
    own_tokens: bool


class _Counting:
    """All jobs of one plan."""

    def __init__(self, catalog: Catalog, assumed: Assumed, say: Say) -> None:
        self.catalog, self.layout, self.assumed, self.say = catalog, Layout(catalog.results), assumed, say
        self.scratch = self.layout.work("counts", os.getpid())
        self.datasets: dict[str, _Dataset | str] = {}
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

    def _dataset(self, name: str) -> _Dataset | str:
        if name not in self.datasets:
            try:
                self.datasets[name] = _Dataset(self.catalog, name, self.say)
            except UpkeepError as error:
                self.datasets[name] = f"no dataset {name}: {error.problem}"
        return self.datasets[name]

    def _wanted(self, job: Job, dataset: _Dataset) -> _Wanted:
        catalog, card = self.catalog, self.catalog.method(job.method)
        told = describe(catalog, job, dataset.card.chunk_tokens)
        spec = told.model_spec
        assert spec is not None
        tokenizer, rate = self._tokenizer(job.model), None
        own = tokenizer is not None
        if spec.endpoint is not None:
            # What fits into its context is decided at this rate (`upkeep.cell.endpoint`).
            tokenizer, rate = None, spec.endpoint.tokens_per_byte
        elif tokenizer is None or not dataset.sample(told.trials).whole:
            tokenizer, rate = None, dataset.tokens_per_byte(tokenizer)
        key = {
            "task": told.task,
            "dataset": digest(dataset.card.content),
            "parameters": told.parameters,
            "sees": card.sees,
            "streams": card.streams,
            "dense": told.embedder_spec is not None,
            "engine": [told.engine.name, told.engine.prefix_cache, told.engine.options, told.engine.max_in_flight],
            "trials": told.trials,
            "prompt": msgspec.to_builtins(told.prompt),
            "seed": told.seed,
            "spec": [spec.context_length, spec.sampling.max_tokens, spec.chat_template, spec.thinking, spec.trained],
            "template": [spec.template_options, spec.thinking_tags],
            "tokens": hash_file(tokenizer / "tokenizer.json") if tokenizer else rate,
            "assumed": msgspec.to_builtins(self.assumed),
            "code": tree(catalog, f"methods/{job.method}", *IMAGE_CODE, "src/upkeep/operations/count.py"),
        }
        return _Wanted(digest(key), told, tokenizer, rate, own)

    def _tokenizer(self, model: str) -> Path | None:
        """The folder of a model's tokenizer, where that is at hand; a plan needs no weights."""
        while trained := TrainedModel.parse(model):
            model = trained.base
        folder = weights.place(self.catalog, model, self.catalog.model(model))
        return folder if folder and (folder / "tokenizer.json").is_file() else None

    # ------------------------------------------------------------ in containers

    def run(self) -> None:
        """Count what is not known yet, a container a method."""
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
        files: dict[str, str] = {}
        told = []
        for place, job in enumerate(jobs):
            cell = job.description
            if cell.dataset not in files:
                files[cell.dataset] = f"rounds-{len(files)}.jsonl"
                dataset = self._built(cell.dataset)
                rounds = dataset.rounds(self.catalog.method(cell.method), dataset.sample(cell.trials))
                (folder / files[cell.dataset]).write_bytes(b"".join(msgspec.json.encode(r) + b"\n" for r in rounds))
            told.append(
                CountJob(
                    cell=msgspec.structs.replace(
                        cell,
                        model_path=runtime.path_of(roles[job.tokenizer], job.tokenizer) if job.tokenizer else None,
                        output=f"{runtime.path_of('output', output)}/{place}",
                    ),
                    tokens_per_byte=job.tokens_per_byte,
                    rounds=f"{runtime.path_of('cell', folder)}/{files[cell.dataset]}",
                    assumed=self.assumed,
                )
            )
        (folder / "jobs.json").write_bytes(msgspec.json.encode(told))
        _open(folder)

    def _tally(self, job: _Wanted, counts: Counts) -> Tally:
        cell, dataset = job.description, self._built(job.description.dataset)
        if counts.error is not None:
            return Tally(unknown=counts.error)
        chosen = dataset.sample(cell.trials)
        failed = [line.error for line in counts.lines if line.error is not None]
        if failed and len(failed) == len(counts.lines):
            return Tally(unknown=f"every probe fails: {failed[0]}")
        tally = Tally(
            records=sum(len(interval.keys) for interval in chosen.intervals) * cell.trials,
            counted=sum(map(len, chosen.counted.values())) * cell.trials,
            together=dataset.together(cell.trials, self.catalog.method(cell.method)),
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

    def _built(self, name: str) -> _Dataset:
        dataset = self.datasets[name]
        assert isinstance(dataset, _Dataset)
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
