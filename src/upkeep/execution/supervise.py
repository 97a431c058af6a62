"""Runs a cell or trains a model: checks, starts the container, feeds it, watches it, publishes what it made.

What a container writes is taken over line by line, as soon as it is checked, into a file of the host's own, which no
container ever has. So whenever either of the two is killed, what the host has accepted is good in itself. The next
attempt begins in an empty folder: it is fed all documents again, and asked for what is missing alone.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from upkeep import inputs, weights
from upkeep.catalog import Catalog, Cell, Job
from upkeep.contract import (
    Attempt,
    CellDescription,
    EngineSettings,
    Environment,
    Manifest,
    Prediction,
    Record,
    Reported,
    Resources,
    Role,
    Sealed,
    Spent,
    Usage,
)
from upkeep.contract import (
    Job as JobRecord,
)
from upkeep.errors import UpkeepError, kind_of
from upkeep.execution import publish
from upkeep.execution.collected import Collected
from upkeep.execution.detection import detect
from upkeep.execution.rounds import Corpus, Task, tasks, worked_examples
from upkeep.execution.runtimes import Handle, Launch, Prepared
from upkeep.execution.share import SharedEngines, Wanted
from upkeep.execution.status import Reporter
from upkeep.execution.watch import Failed, Limits, Watch, kind_of_status
from upkeep.execution.way import ToEndpoint, ToEngine, Way
from upkeep.files import digest, locked, open_regular, remove, storing
from upkeep.gateway.endpoints.terms import endpoint_version, require_endpoint
from upkeep.gateway.engines import embedder_resources, served_parts
from upkeep.gateway.record import Asking, NotRecorded
from upkeep.identity import describe, engine_settings, identity, resources
from upkeep.integrity import read_sealed, write_sealed
from upkeep.layout import Layout
from upkeep.machine import slurm
from upkeep.machine.clock import now
from upkeep.machine.gpus import require_gpus
from upkeep.machine.lifeline import patience_s, stoppable
from upkeep.published import command_of, folder_of, require_fresh, standing
from upkeep.validate import Refused, Scope, decode

R = TypeVar("R", bound=Record)

Kind = Literal["cells", "trained"]

RETRIES = 2
"""Further attempts after one that ended early but got further than the one before."""
MINUTE_S = 60.0
SOCKETS: dict[Role, str] = {"reader": "engine", "writer": "writer", "embedder": "embedder"}
"""What the folders with the sockets of models are among a container's inputs."""
TOLD = 20
"""Answers that differ from those before, of a cell, which are named."""
SILENT_END = "it ended without a word: its supervisor was killed, or could not write its end, as on a disk without room"


class Runtime(Protocol):
    """What the supervisor needs of a runtime."""

    def prepare(self, method: str | None, engine: str) -> Prepared: ...

    def path_of(self, role: str, path: Path) -> str: ...

    def start(self, prepared: Prepared, launch: Launch) -> Handle: ...

    def environment(
        self, prepared: Prepared, engine: str, hardware: dict[str, Any], job: JobRecord | None = None
    ) -> Environment: ...

    def explain(self, status: int, resources: Resources, starved: bool | None = None) -> str: ...


def run_cell(
    catalog: Catalog,
    cell: Job,
    force: bool = False,
    *,
    runtime: Runtime | None = None,
    limits: Limits | None = None,
    retries: int = RETRIES,
    shared: SharedEngines | None = None,
    ask: Asking | None = None,
) -> Manifest:
    """Run a cell (or train a model) and publish it; what is published of the same identity is reused.

    An interrupted run is continued after its last whole line, whatever interrupted it.

    Args:
        force: run it from the beginning, though it is published.
        runtime: where it runs; by default what the configuration asks for.
        shared: the engine that it shares with others; by default it has one of its own.
        ask: what its models are asked: what the record of replies does not know, everything again, or nothing. By
            default the configuration says it (`fresh`).

    Raises:
        UpkeepError: an input is missing or wrong (nothing is started), the container's output was refused, or it
            ended before every probe was answered. Nothing is published then.
    """
    ask = ask or ("everything" if catalog.config.fresh else "unknown")
    return _Job(catalog, cell, shared, ask).run(force or ask == "everything", runtime, limits or Limits(), retries)


def traces(catalog: Catalog, job: Job) -> list[Path]:
    """The files that change as a job gets on."""
    made = _Job(catalog, job)
    return [made.work / "predictions.jsonl", made.target / "manifest.json"]


# ---------------------------------------------------------------- the job


class _State(Sealed, frozen=True, kw_only=True):
    """`state.json` of a work folder: what outlives the supervisor."""

    identity: str
    key: str
    """Of the sums that show damage to what was accepted (`execution.collected`)."""
    attempts: list[Attempt] = msgspec.field(default_factory=list)
    hardware: dict[str, Any] = msgspec.field(default_factory=dict)


class _Job:
    """One cell or training from its inputs to its publication."""

    def __init__(
        self, catalog: Catalog, job: Job, shared: SharedEngines | None = None, ask: Asking = "unknown"
    ) -> None:
        self.catalog, self.job, self.shared, self.layout = catalog, job, shared, Layout(catalog.results)
        self.ask = ask
        self.ways: dict[Role, Way] = {}
        catalog.check(Cell(job.dataset, job.method, job.variant, job.model))
        self.name = str(job)
        self.card = catalog.method(job.method)
        self.resources = resources(catalog, job.method, job.model)
        self.kind: Kind = "cells" if isinstance(job, Cell) else "trained"
        if self.kind == "trained" and not self.card.trains:
            raise UpkeepError(f"method {job.method!r} trains no model", remedy=f"./upkeep cell {job}")
        self.target = folder_of(catalog, job)
        self.work = self.layout.work(self.kind, job)

    def run(self, force: bool, runtime: Runtime | None, limits: Limits, retries: int) -> Manifest:
        with locked(self.work, patience_s()), stoppable():
            self.report = Reporter(self.layout.status(self.kind, self.job), str(self.job))
            try:
                with storing(self.work):
                    manifest = self._reuse_or_produce(force, runtime, limits, retries)
            except UpkeepError as error:
                self.report.end("failed", str(error), error.kind)
                raise
            except KeyboardInterrupt:
                self.report.end("stopped", "interrupted; the same command continues", "interrupted")
                raise
            except BaseException as error:
                self.report.end("failed", f"{type(error).__name__}: {error}", kind_of(error))
                raise
            _clear(self.work)
            (self.work / "lock").unlink()
        with contextlib.suppress(OSError):  # another process may have come to it
            self.work.rmdir()
        return manifest

    def _reuse_or_produce(self, force: bool, runtime: Runtime | None, limits: Limits, retries: int) -> Manifest:
        self._check_inputs()
        if not force and (published := self._published()) is not None:
            self._touch(published)
            records = published.probes * published.trials
            self.report.say("reused", records, records, "complete already")
            return published
        manifest = self._produce(force, runtime or detect(self.catalog), limits, retries)
        self.report.end("done")
        return manifest

    # ------------------------------------------------------------ before anything starts

    def _check_inputs(self) -> None:
        """Find everything that the container is given, and the job's identity."""
        job = self.job
        require_fresh(self.catalog, job)
        card = inputs.dataset(self.catalog, job.dataset)
        self.dataset = self.layout.dataset(job.dataset)
        self.inputs: dict[str, Path] = {}
        self.gpus = 0
        if self.card.model:
            spec = self.catalog.spec(job.model)
            if spec.nodes > 1:
                raise UpkeepError(
                    f"the model {job.model!r} wants {spec.nodes} nodes; an engine of the suite runs on one",
                    where=self.catalog.root / self.catalog.model_card(job.model),
                    remedy="start a server over the nodes yourself, and name it as an endpoint (docs/endpoints.md)",
                    kind="machine",
                )
            if self.kind == "trained":
                self.gpus = spec.gpus
                require_gpus(self.gpus, f"the model {job.model!r}")
        self.weights = {model: self._weights(model) for model in self.catalog.asked(job).values()}
        if self.kind == "trained":
            if self.card.model and (folder := self._weights(job.model)) is not None:
                self.inputs["model"] = folder
            if not card.pairs:
                raise UpkeepError(f"the dataset {job.dataset!r} has no pairs to train on", where=self.dataset)
            self.inputs["pairs"] = self.dataset / "pairs.jsonl"
        self.description = msgspec.structs.replace(
            describe(self.catalog, job, card.chunk_tokens), examples=worked_examples(self.dataset, card)
        )
        self.identity, self.parts = identity(self.catalog, job)

    def _weights(self, model: str) -> Path | None:
        """Folder of a model's weights; None where there is none of it here."""
        return weights.find(self.catalog, model, self.job.dataset)[1].path

    def _published(self) -> Manifest | None:
        """The published manifest, if it counts; anything else is made again."""
        return standing(self.catalog, self.job).manifest

    def _touch(self, published: Manifest) -> None:
        """Make reused files newer than their inputs, so that who compares times does not ask for them again."""
        for name in [*published.files, "manifest.json"]:
            os.utime(self.target / name)

    # ------------------------------------------------------------ attempts

    def _produce(self, force: bool, runtime: Runtime, limits: Limits, retries: int) -> Manifest:
        self.state = self._resume(force)
        self.runtime, self.limits = runtime, limits
        for model in self.catalog.asked(self.job).values():
            if self.ask != "nothing" and self.catalog.spec(model).engine == "endpoint":
                require_endpoint(self.catalog, model)
        if self.kind == "trained" and self.ask == "nothing":
            raise NotRecorded(self.job.model, self.job)
        self.report.end("starting", f"preparing the image of {self.job.method}")
        self.prepared = runtime.prepare(self.job.method, self.catalog.below(self.job.method, self.job.model))
        self.deadline = time.monotonic() + MINUTE_S * self.resources.minutes
        if self.kind == "trained":
            return self._train()
        with self._models():
            return self._feed(Corpus.read(self.dataset), retries)

    def _way(self, role: Role, model: str, shared: SharedEngines) -> Way:
        """To one of the job's models."""
        catalog, job = self.catalog, self.job
        if (image := catalog.engine(model)) is None:
            return ToEndpoint(catalog, model, self.layout.requests(model, self.kind, job), self.ask)
        if role == "embedder":
            needs, module = embedder_resources(catalog, job, model), "upkeep.serving.embedder"
            settings = EngineSettings(name="none", threads=needs.cpus)
        else:
            needs, module = resources(catalog, job.method, model), "upkeep.serving.serve"
            settings = engine_settings(catalog, job, model)
        spec = catalog.spec(model)
        told = msgspec.structs.replace(self.description, model=model, model_spec=spec, engine=settings)
        wanted = Wanted(told, self.weights[model], image, needs, spec.gpus, module)
        parts = served_parts(catalog, job, role, model)
        return ToEngine(catalog, job, role, model, wanted, parts, self.ask, shared.of(role))

    @contextlib.contextmanager
    def _models(self) -> Iterator[None]:
        """The ways to the job's models, among what its container is given."""
        with contextlib.ExitStack() as stack:
            shared = self.shared
            if shared is None:
                name = f"{self.kind}-{digest(str(self.work))[:12]}"
                log = self.layout.log("engines", self.job)
                shared = stack.enter_context(SharedEngines(name, self.runtime, log, self.limits.stall_s))
            self.ways = {role: self._way(role, model, shared) for role, model in self.catalog.asked(self.job).items()}
            for role, way in self.ways.items():
                self.inputs[SOCKETS[role]] = stack.enter_context(way.open())
            yield

    def _feed(self, corpus: Corpus, retries: int) -> Manifest:
        answers, gold = corpus.answers(self.description.trials), corpus.gold(self.card.sees)
        with Collected(self.work / "predictions.jsonl", Prediction, answers, self.state.key) as results:
            feed = partial(tasks, corpus, answers.trials, results.done, gold, self.card.streams)
            self._complete(results, feed, retries)
        return self._publish(publish.publish_cell, results.path, answers)

    def _resume(self, force: bool) -> _State:
        """What an earlier run of the same identity left; anything else in the work folder is removed."""
        try:
            state = read_sealed(self.work / "state.json", _State, "none is needed")
        except UpkeepError:
            state = None  # there is none, or nobody can tell what it was: all is done again
        if state is None or force or state.identity != self.identity:
            _clear(self.work)
            return _State(identity=self.identity, key=os.urandom(16).hex())
        if state.attempts and state.attempts[-1].outcome == "running":
            last = msgspec.structs.replace(
                state.attempts[-1], outcome="killed", reason=SILENT_END, lines=self._accepted()
            )
            return msgspec.structs.replace(state, attempts=[*state.attempts[:-1], last])
        return state

    def _accepted(self) -> int:
        """Whole lines that an earlier supervisor had accepted."""
        path = self.work / "predictions.jsonl"
        if not path.is_file():
            return 0
        with path.open("rb") as file:
            return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))

    def _complete(self, collected: Collected[R], feed: Callable[[], Iterator[Task]], retries: int) -> None:
        """Make attempts until every record is there."""
        for attempt in range(retries + 1):
            if collected.complete:
                return
            before = collected.count
            try:
                with self._started(collected) as watch:
                    watch.feed(feed())
            except Failed as failed:
                blameless = any(way.lost for way in self.ways.values())
                if attempt < retries and (collected.count > before or blameless):
                    self.say(collected, f"continuing after: {failed}")
                    continue
                raise UpkeepError(
                    f"{self.job}: ended early, with {collected.count:,} of {collected.scope.size:,} records done",
                    where=self.log,
                    expected="all of them",
                    found=failed,
                    remedy=f"see the log; `{command_of(self.job)}` continues",
                    kind=failed.kind,
                ) from None

    def _train(self) -> Manifest:
        try:
            with self._started(None) as watch:
                watch.finish()
                if watch.status:
                    raise Failed(self.ended(watch.status), kind_of_status(watch.status, self._handle.starved))
        except Failed as failed:
            raise UpkeepError(
                f"{self.job}: the training failed", where=self.log, found=failed, kind=failed.kind
            ) from None
        return self._publish(publish.publish_model, self._output / "model")

    @property
    def progress(self) -> int:
        """Grows with each request to the job's models that is answered."""
        return sum(way.progress for way in self.ways.values())

    @property
    def log(self) -> Path:
        log = self.layout.log(self.kind, self.job)
        return log.with_name(f"{log.stem}.container.log")

    def ended(self, status: int) -> str:
        return f"{self.runtime.explain(status, self.resources, self._handle.starved)}\n{self._handle.tail(15)}".rstrip()

    def say(self, collected: Collected[Any] | None, message: str = "") -> None:
        done, total = (collected.count, collected.scope.size) if collected is not None else (0, 0)
        self.report.say("running", done, total, message)

    @contextlib.contextmanager
    def _started(self, collected: Collected[Any] | None) -> Iterator[Watch]:
        """One attempt: a container that is running, and however it ends, is gone afterwards and on record."""
        self._prepare_folders(collected)
        launch = Launch(
            name=f"{self.kind}-{str(self.job).replace('/', '-')[:120]}-{digest(str(self.work))[:8]}",
            inputs=self.inputs | {"cell": self.work / "cell"},
            output=self._output,
            log=self.log,
            # Beside a shared engine, a cell needs what its method needs.
            resources=self.card.resources if "engine" in self.inputs else self.resources,
            gpus=self.gpus,
        )
        self._record(Attempt(start=now(), end=None, outcome="running"))
        outcome: Literal["complete", "failed", "killed"] = "failed"
        reason: str | None = None
        try:
            self._handle = self.runtime.start(self.prepared, launch)
            watch = Watch(self._handle, self._output, collected, self)
            try:
                yield watch
                outcome, reason = "complete", watch.remark
            finally:
                watch.close()
        except slurm.TimeIsUp:
            outcome, reason = "killed", "the time limit of its job was near"
            raise
        except KeyboardInterrupt:
            outcome, reason = "killed", "interrupted"
            raise
        except (Failed, UpkeepError) as error:
            reason = str(error)
            raise
        except BaseException as error:
            reason = f"{type(error).__name__}: {error}"
            raise
        finally:
            done = collected.count if collected is not None else 0
            last = msgspec.structs.replace(
                self.state.attempts[-1], end=now(), outcome=outcome, reason=reason, lines=done
            )
            self._record(last, new=False)

    def _record(self, attempt: Attempt, new: bool = True) -> None:
        attempts = [*(self.state.attempts if new else self.state.attempts[:-1]), attempt]
        state = msgspec.structs.replace(self.state, attempts=attempts)
        self.state = write_sealed(self.work / "state.json", state, durable=True)

    def _prepare_folders(self, collected: Collected[Any] | None) -> None:
        """A new output folder with nothing in it, and the description."""
        for old in self.work.glob("output-*"):
            remove(old)
        self._output = self.work / f"output-{len(self.state.attempts) + 1}-{os.urandom(4).hex()}"
        self._output.mkdir()
        if collected is not None:
            (self._output / collected.path.name).touch()
        paths = {role: self.runtime.path_of(role, path) for role, path in self.inputs.items()}
        description: CellDescription = msgspec.structs.replace(
            self.description,
            model_path=paths.get("model"),
            writer_socket=f"{paths['writer']}/engine.sock" if "writer" in paths else None,
            embedder_socket=f"{paths['embedder']}/engine.sock" if "embedder" in paths else None,
            pairs=paths.get("pairs"),
            socket=f"{paths['engine']}/engine.sock" if "engine" in paths else None,
            output=self.runtime.path_of("output", self._output),
        )
        folder = self.work / "cell"
        folder.mkdir(exist_ok=True)
        # The container's user may be another one.
        folder.chmod(0o755)
        (folder / "cell.json").write_bytes(msgspec.json.format(msgspec.json.encode(description)) + b"\n")
        (folder / "cell.json").chmod(0o644)

    def reported(self) -> None:
        """Take down what the container reports about its hardware."""
        path = self._output / "engine.json"
        if not os.path.lexists(path):
            return
        with open_regular(path, 1 << 20) as file:
            try:
                found = decode(file.read(), msgspec.json.Decoder(Reported))
            except Refused as refused:
                raise refused.fault.error(path) from None
        self.state = msgspec.structs.replace(self.state, hardware=found.hardware)

    def _spent(self) -> dict[str, float]:
        """What the last attempt's container says it has used; nothing where it did not get to say it."""
        path = next(self.work.glob("output-*/usage.json"), None)
        if path is None:
            return {}
        with open_regular(path, 1 << 16) as file:
            try:
                found = decode(file.read(), msgspec.json.Decoder(Spent))
            except Refused as refused:
                raise refused.fault.error(path) from None
        spent = msgspec.structs.asdict(found)
        used = msgspec.structs.asdict(spent.pop("arrival"))
        spent |= {f"arrival_{name}": value for name, value in used.items() if found.arrival.calls}
        return {name: float(value) for name, value in spent.items()}

    # ------------------------------------------------------------ afterwards

    def _publish(self, how: Callable[..., Manifest], source: Path, *scope: Scope[Any]) -> Manifest:
        attempts = self.state.attempts
        engine = self.description.engine.name
        again = self._compared(source) if self.ask == "everything" and self.kind == "cells" else {}
        asked: dict[str, float] = {}
        for way in self.ways.values():
            for name, value in way.measured(attempts).items():
                asked[name] = asked.get(name, 0.0) + value
        draft = Manifest(
            cell=str(self.job),
            identity=self.identity,
            identity_parts=self.parts,
            environment=self._environment(engine),
            seed=self.description.seed,
            start=attempts[0].start if attempts else now(),
            end=now(),
            attempts=attempts,
            probes=0,
            trials=self.description.trials,
            outcomes={},
            usage=Usage(),
            measured=asked | again | self._spent(),
            files={},
        )
        self.report.end("publishing")
        limit = self.resources.disk_gb * 2**30
        return how(source, *scope, draft, self.work / "staging", self.target, limit)

    def _environment(self, engine: str) -> Environment:
        found = self.runtime.environment(self.prepared, engine, self.state.hardware, slurm.this_job())
        served = {role: told for role, way in self.ways.items() if (told := way.served()) is not None}
        if engine == "endpoint":
            version = endpoint_version(self.catalog.spec(self.job.model))
        else:
            version = served["reader"].engine_version if "reader" in served else found.engine_version
        return msgspec.structs.replace(found, engine_version=version, served=served)

    def _compared(self, source: Path) -> dict[str, float]:
        """How many answers differ from those that were published before, where the model was asked everything again."""
        try:
            before = answers_of(self.target / source.name)
        except FileNotFoundError:
            return {}
        now = answers_of(source)
        other = [key for key, answer in now.items() if key in before and before[key] != answer]
        both = len(before.keys() & now.keys())
        print(f"{self.job}: {len(other)} of {both} answers differ from those before", flush=True)
        for probe, trial in other[:TOLD]:
            print(f"  {probe}, trial {trial}", flush=True)
        return {"compared_answers": float(both), "other_answers": float(len(other))}


def answers_of(path: Path) -> dict[tuple[str, int], tuple[str | None, str | None]]:
    """Response and reasoning of each prediction in a file, by probe and trial.

    Raises:
        FileNotFoundError: there is no such file.
        msgspec.DecodeError: a line is no prediction.
    """
    lines = map(msgspec.json.Decoder(Prediction).decode, path.read_bytes().splitlines())
    return {(p.probe_id, p.trial): (p.response, p.reasoning) for p in lines}


# ---------------------------------------------------------------- the work folder


def _clear(work: Path) -> None:
    for path in work.iterdir():
        if path.name != "lock":
            remove(path)
