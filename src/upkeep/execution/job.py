"""What cells and trainings have in common: inputs, attempts, what is kept between them, and the way to publication.

One attempt is one container. However it ends, it is gone afterwards and on record (`state.json`), and the next one
begins in an empty folder.
"""

from __future__ import annotations

import contextlib
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import msgspec

from upkeep import inputs, weights
from upkeep.catalog import Catalog
from upkeep.contract import Attempt, CellDescription, EngineSettings, Environment, Manifest, Resources, Role, Usage
from upkeep.contract import Job as JobRecord
from upkeep.errors import UpkeepError, kind_of, raised_in
from upkeep.execution import attempts, reports
from upkeep.execution.collected import Collected
from upkeep.execution.detection import detect
from upkeep.execution.handle import Handle
from upkeep.execution.rounds import worked_examples
from upkeep.execution.runtimes import Launch, Prepared
from upkeep.execution.share import SharedEngines, Wanted, adapters_in, inputs_of, with_its_set
from upkeep.execution.status import Reporter
from upkeep.execution.steps import Steps
from upkeep.execution.watch import Failed, Limits, Watch
from upkeep.execution.way import ToEndpoint, ToEngine, Way
from upkeep.file_locks import locked
from upkeep.files import digest, remove, storing
from upkeep.gateway.endpoints.terms import endpoint_version, require_endpoint
from upkeep.gateway.engines import answers_for_its_set, served_parts
from upkeep.gateway.record import Asking, NotRecorded
from upkeep.identity import describe, engine_settings, identity, resources
from upkeep.jobs import Job
from upkeep.layout import Layout
from upkeep.machine import slurm
from upkeep.machine.checkout import checkout
from upkeep.machine.clock import now
from upkeep.machine.gpus import require_gpus
from upkeep.machine.lifeline import patience_s, stoppable
from upkeep.needs import embedder_resources
from upkeep.published import folder_of, require_fresh, standing

Kind = Literal["cells", "trained"]

DOCUMENTS, PAIRS = "documents.jsonl", "pairs.jsonl"
"""What a container trains on, in the folder `training`."""
RETRIES = 2
"""Further attempts after one that ended early but got further than the one before."""
MINUTE_S = 60.0
SOCKETS: dict[Role, str] = {"reader": "engine", "writer": "writer", "embedder": "embedder"}
"""What the folders with the sockets of models are among a container's inputs."""


class Runtime(Protocol):
    """What the supervisor needs of a runtime."""

    def prepare(self, method: str | None, engine: str) -> Prepared: ...

    def path_of(self, role: str, path: Path) -> str: ...

    def start(self, prepared: Prepared, launch: Launch) -> Handle: ...

    def environment(
        self, prepared: Prepared, engine: str, hardware: dict[str, Any], job: JobRecord | None = None
    ) -> Environment: ...

    def explain(self, status: int, resources: Resources, starved: bool | None = None) -> str: ...


# ---------------------------------------------------------------- the job


class SupervisedJob(ABC):
    """One job from its inputs to its publication."""

    kind: ClassVar[Kind]

    def __init__(
        self, catalog: Catalog, job: Job, shared: SharedEngines | None = None, ask: Asking = "unknown"
    ) -> None:
        self.catalog, self.job, self.shared, self.layout = catalog, job, shared, Layout(catalog.results)
        self.ask = ask
        self.ways: dict[Role, Way] = {}
        self.asked: list[tuple[str, Role, Way]] = []
        """All ways so far, with the member of a set that the model was."""
        self.gpus = 0
        self.name = str(job)
        self.card = catalog.method(job.method)
        self.resources = resources(catalog, job.method, job.model)
        self.target = folder_of(catalog, job)
        self.work = self.layout.work(self.kind, job)

    def steps(self, force: bool, runtime: Runtime | None, limits: Limits, retries: int) -> Steps:
        """Run it, step by step."""
        # Who has several jobs is stoppable already.
        with locked(self.work, patience_s()), stoppable() if self.shared is None else contextlib.nullcontext():
            self.report = Reporter(self.layout.status(self.kind, self.job), str(self.job))
            try:
                with storing(self.work):
                    manifest = yield from self._reuse_or_produce(force, runtime, limits, retries)
            except UpkeepError as error:
                self.report.end("failed", str(error), error.kind)
                raise
            except KeyboardInterrupt:
                self.report.end("stopped", "interrupted; the same command continues", "interrupted")
                raise
            except BaseException as error:
                self.report.end("failed", f"{type(error).__name__}: {error}", kind_of(error))
                raise
            attempts.clear(self.work)
            (self.work / "lock").unlink()
        with contextlib.suppress(OSError):  # another process may have come to it
            self.work.rmdir()
        return manifest

    def _reuse_or_produce(self, force: bool, runtime: Runtime | None, limits: Limits, retries: int) -> Steps:
        self._check_inputs()
        if not force and (published := self._published()) is not None:
            self._touch(published)
            records = published.probes * published.trials
            self.report.say("reused", records, records, "complete already")
            return published
        manifest = yield from self._produce(force, runtime or detect(self.catalog), limits, retries)
        self.report.end("done")
        return manifest

    # ------------------------------------------------------------ before anything starts

    def _check_inputs(self) -> None:
        """Find everything that the container is given, and the job's identity."""
        job = self.job
        require_fresh(self.catalog, job)
        self.dataset_card = inputs.dataset(self.catalog, job.dataset)
        self.dataset = self.layout.dataset(job.dataset)
        self.inputs: dict[str, Path] = {}
        if self.card.model and (nodes := self.catalog.spec(job.model).nodes) > 1:
            raise UpkeepError(
                f"the model {job.model!r} wants {nodes} nodes; an engine of the suite runs on one",
                where=self.catalog.root / self.catalog.model_card(job.model),
                remedy="start a server over the nodes yourself, and name it as an endpoint (docs/endpoints.md)",
                kind="machine",
            )
        self._check_own_inputs()
        self.description = msgspec.structs.replace(
            describe(self.catalog, job, self.dataset_card.chunk_tokens),
            examples=worked_examples(self.dataset, self.dataset_card),
        )
        self.identity, self.parts = identity(self.catalog, job)

    @property
    @abstractmethod
    def traces(self) -> list[Path]:
        """Files that change as the job gets on."""

    def _check_own_inputs(self) -> None:
        """What a job of this kind is given besides."""
        return

    def _published(self) -> Manifest | None:
        """The published manifest, if it counts; anything else is made again."""
        return standing(self.catalog, self.job).manifest

    def _touch(self, published: Manifest) -> None:
        """Make reused files newer than their inputs, so that who compares times does not ask for them again."""
        for name in [*published.files, "manifest.json"]:
            os.utime(self.target / name)

    # ------------------------------------------------------------ attempts

    def _produce(self, force: bool, runtime: Runtime, limits: Limits, retries: int) -> Steps:
        if self.card.holds_model:
            if self.ask == "nothing":  # what its own container computes is not recorded
                raise NotRecorded(self.job.model, self.job)
            self.gpus = self.catalog.spec(self.job.model).gpus
            require_gpus(self.gpus, f"the model {self.job.model!r}")
        self.state = attempts.resume(self.work, self.identity, force=force, accepted=self._accepted)
        self.runtime, self.limits = runtime, limits
        for model in self.catalog.asked(self.job).values():
            if self.ask != "nothing" and self.catalog.spec(model).engine == "endpoint":
                require_endpoint(self.catalog, model)
        self.report.end("starting", f"preparing the image of {self.job.method}")
        self.prepared = runtime.prepare(self.job.method, self.catalog.below(self.job.method, self.job.model))
        self.deadline = time.monotonic() + MINUTE_S * self.resources.minutes
        return (yield from self._made(retries))

    @abstractmethod
    def _made(self, retries: int) -> Steps:
        """Make attempts until all is there, and publish it."""

    def _way(self, role: Role, model: str, shared: SharedEngines, member: str) -> Way:
        """To one of the job's models; to a member of it, where that is the reader and a set."""
        catalog, job = self.catalog, self.job
        if (image := catalog.engine(model)) is None:
            return ToEndpoint(catalog, model, self.layout.requests(model, self.kind, job), self.ask)
        found = weights.find(catalog, model, job.dataset, member if role == "reader" else "")[1]
        if role == "embedder":
            needs, module = embedder_resources(catalog, job, model), "upkeep.serving.embedder"
            settings = EngineSettings(name="none", threads=needs.cpus)
        else:
            needs, module = resources(catalog, job.method, model), "upkeep.serving.serve"
            settings = engine_settings(catalog, job, model)
        spec = catalog.spec(model)
        told = msgspec.structs.replace(self.description, model=model, model_spec=spec, engine=settings)
        wanted = Wanted(told, found.path, image, needs, spec.gpus, module, found.adapters)
        if role == "reader" and answers_for_its_set(found.adapters, member):
            wanted = with_its_set(catalog, wanted, job.dataset, member)
        parts = served_parts(catalog, job, role, model, member if role == "reader" else "")
        release = self.kind == "trained"  # what is trained afterwards wants the room
        return ToEngine(catalog, job, role, model, wanted, parts, self.ask, shared.of(role), release)

    @contextlib.contextmanager
    def _models(self, shared: SharedEngines, member: str = "") -> Iterator[None]:
        """The ways to the job's models, and the weights of the one that it holds, among what its container is given."""
        if self.card.holds_model:
            held = weights.find(self.catalog, self.job.model, self.job.dataset, member)[1]
            self.inputs |= inputs_of(held.path, held.adapters)
        with contextlib.ExitStack() as stack:
            self.ways = {
                role: self._way(role, name, shared, member) for role, name in self.catalog.asked(self.job).items()
            }
            self.asked += [(member, role, way) for role, way in self.ways.items()]
            for role, way in self.ways.items():
                self.inputs[SOCKETS[role]] = stack.enter_context(way.open())
            yield

    @contextlib.contextmanager
    def _engines(self) -> Iterator[SharedEngines]:
        """Those that it shares with others, or its own."""
        if self.shared is not None:
            yield self.shared
            return
        name = f"{self.kind}-{digest(str(self.work))[:12]}"
        log = self.layout.log("engines", self.job)
        with SharedEngines(name, self.runtime, log, self.limits) as own:
            yield own

    def _accepted(self) -> int:
        """Records that an earlier supervisor had accepted."""
        return 0

    @property
    def progress(self) -> int:
        """Grows with each request to the job's models that is answered."""
        return sum(way.progress for way in self.ways.values())

    def owed(self) -> str | None:
        """Which models have not answered what it asked, in words; their engines are ended, for they may never do."""
        return "\n".join(told for way in self.ways.values() if (told := way.give_up()) is not None) or None

    @property
    def log(self) -> Path:
        log = self.layout.log(self.kind, self.job)
        return log.with_name(f"{log.stem}.container.log")

    def ended(self, status: int) -> str:
        raised = raised_in(self._handle.tail(100), f"methods/{self.job.method}")
        told = raised or self._handle.tail(15)
        return f"{self.runtime.explain(status, self.resources, self._handle.starved)}\n{told}".rstrip()

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
            resources=self.card.resources if "engine" in self.inputs and self.kind == "cells" else self.resources,
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
        self.state = attempts.record(self.work, self.state, attempt, new=new)

    def _prepare_folders(self, collected: Collected[Any] | None) -> None:
        """A new output folder with nothing in it but what is handed on to it, and the description."""
        self._output = self.work / f"output-{len(self.state.attempts) + 1}-{os.urandom(4).hex()}"
        earlier = sorted(self.work.glob("output-*"), key=lambda old: int(old.name.split("-")[1]), reverse=True)
        self._output.mkdir()
        for old in earlier:
            self._hand_on(old)
            remove(old)
        if collected is not None:
            (self._output / collected.path.name).touch()
        paths = {role: self.runtime.path_of(role, path) for role, path in self.inputs.items()}
        description: CellDescription = msgspec.structs.replace(
            self.description,
            model_path=paths.get("model"),
            adapters=adapters_in(paths),
            writer_socket=f"{paths['writer']}/engine.sock" if "writer" in paths else None,
            embedder_socket=f"{paths['embedder']}/engine.sock" if "embedder" in paths else None,
            documents=f"{paths['training']}/{DOCUMENTS}" if "training" in paths else None,
            pairs=f"{paths['training']}/{PAIRS}" if "training" in paths else None,
            socket=f"{paths['engine']}/engine.sock" if "engine" in paths else None,
            output=self.runtime.path_of("output", self._output),
        )
        folder = self.work / "cell"
        folder.mkdir(exist_ok=True)
        # The container's user may be another one.
        folder.chmod(0o755)
        (folder / "cell.json").write_bytes(msgspec.json.format(msgspec.json.encode(description)) + b"\n")
        (folder / "cell.json").chmod(0o644)

    def _hand_on(self, old: Path) -> None:
        """Move what the next container goes on from out of the folder of an earlier one: of a cell nothing, for no
        container may know what a later document says."""
        return

    def reported(self) -> None:
        """Take down what the container reports about its hardware."""
        if (found := reports.of_engine(self._output)) is not None:
            self.state = msgspec.structs.replace(self.state, hardware=found.hardware)

    # ------------------------------------------------------------ afterwards

    def _draft(self, **more: Any) -> Manifest:
        """The manifest but for what is known when all is published: counts, totals, hashes."""
        made = self.state.attempts
        asked: dict[str, float] = {}
        # What an endpoint was asked is in one file, by whatever way.
        for way in {getattr(way, "record", number): way for number, (*_, way) in enumerate(self.asked)}.values():
            for name, value in way.measured(made).items():
                asked[name] = asked.get(name, 0.0) + value
        return Manifest(
            cell=str(self.job),
            identity=self.identity,
            identity_parts=self.parts,
            environment=self._environment(self.description.engine.name),
            seed=self.description.seed,
            checkout=checkout(self.catalog.root),
            start=made[0].start if made else now(),
            end=now(),
            attempts=made,
            probes=0,
            trials=self.description.trials,
            outcomes={},
            usage=Usage(),
            measured=asked | more.pop("measured", {}) | reports.spent(self.work),
            files={},
            **more,
        )

    @property
    def _disk(self) -> int:
        """Bytes that a container may write."""
        return self.resources.disk_gb * 2**30

    def _environment(self, engine: str) -> Environment:
        found = self.runtime.environment(self.prepared, engine, self.state.hardware, slurm.this_job())
        names = ((f"{role}.{member}" if member and role == "reader" else role, way) for member, role, way in self.asked)
        served = {name: told for name, way in names if (told := way.served()) is not None}
        if engine == "endpoint":
            version = endpoint_version(self.catalog.spec(self.job.model))
        else:
            readers = [told.engine_version for name, told in served.items() if name.partition(".")[0] == "reader"]
            version = readers[0] if readers else found.engine_version
        return msgspec.structs.replace(found, engine_version=version, served=served)
