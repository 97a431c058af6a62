"""Runs a cell or prepares an artifact: checks, starts the container, feeds it, watches it, publishes what it made.

What a container writes is taken over line by line, as soon as it is checked, into a file of the host's own, which no
container ever has. So whenever either of the two is killed, what the host has accepted is good in itself, and the next
attempt is given a copy of it to continue from, in a folder that nothing left over from before can write to.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec

from upkeep import weights
from upkeep.catalog import ArtifactCell, Catalog, Cell
from upkeep.contract import (
    MAX_LINE_BYTES,
    Attempt,
    CellDescription,
    Environment,
    Manifest,
    Memory,
    Prediction,
    Record,
    Resources,
    Usage,
)
from upkeep.errors import UpkeepError
from upkeep.host import publish
from upkeep.host.feed import Corpus, Task, answer_tasks, memory_tasks
from upkeep.host.runtimes import Handle, Launch, Prepared, detect
from upkeep.host.status import Reporter, now, write_atomically
from upkeep.identity import dataset_card, describe, digest, identity, model_spec
from upkeep.paths import Layout
from upkeep.validate import (
    Refused,
    Scope,
    check_file,
    decode,
    duplicate,
    hash_file,
    open_regular,
    overlong,
    torn,
    verify_folder,
)

R = TypeVar("R", bound=Record)

Kind = Literal["cells", "memories", "trained"]

RETRIES = 2
"""Further attempts after one that ended early but got further than the one before."""
POLL_S = 0.01
MINUTE_S = 60.0
MAX_FILES = 10_000
"""Files in a container's writable folder at most."""


class Runtime(Protocol):
    """What the supervisor needs of a runtime."""

    def prepare(self, method: str | None, engine: str) -> Prepared: ...

    def path_of(self, role: str, path: Path) -> str: ...

    def start(self, prepared: Prepared, launch: Launch) -> Handle: ...

    def environment(
        self, prepared: Prepared, engine: str, hardware: dict[str, Any], job: str | None = None
    ) -> Environment: ...

    def explain(self, status: int, resources: Resources) -> str: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a job may take; the rest is in the method's card."""

    stall_s: float = 3600.0
    """Without a new line. The first one waits for the engine's start."""
    exit_s: float = 120.0
    """From the end of its input to the container's own end."""


class Failed(Exception):
    """An attempt that ended early; another may continue."""


def run_cell(
    catalog: Catalog,
    cell: Cell,
    force: bool = False,
    *,
    runtime: Runtime | None = None,
    limits: Limits | None = None,
    retries: int = RETRIES,
) -> Manifest:
    """Run a cell and publish it; a published one of the same identity is reused.

    An interrupted run is continued after its last whole line, whatever interrupted it.

    Args:
        force: run it from the beginning, though it is published.
        runtime: where it runs; by default what the configuration asks for.

    Raises:
        UpkeepError: an input is missing or wrong (nothing is started), the container's output was refused, or it
            ended before every probe was answered. Nothing is published then.
    """
    return _Job(catalog, cell).run(force, runtime, limits or Limits(), retries)


def run_artifact(
    catalog: Catalog,
    artifact: ArtifactCell,
    force: bool = False,
    *,
    runtime: Runtime | None = None,
    limits: Limits | None = None,
    retries: int = RETRIES,
) -> Manifest:
    """Make a memory or train a model, and publish it; as `run_cell`."""
    return _Job(catalog, artifact).run(force, runtime, limits or Limits(), retries)


# ---------------------------------------------------------------- the job


class _State(Record, frozen=True, kw_only=True):
    """`state.json` of a work folder: what outlives the supervisor."""

    identity: str
    attempts: list[Attempt] = msgspec.field(default_factory=list)
    hardware: dict[str, Any] = msgspec.field(default_factory=dict)


class _Reported(Record, frozen=True, kw_only=True):
    """`engine.json`, as a container reports what it runs with."""

    engine: str
    engine_version: str
    packages: dict[str, str]
    hardware: dict[str, Any]


class _Job:
    """One cell or artifact from its inputs to its publication."""

    def __init__(self, catalog: Catalog, job: Cell | ArtifactCell) -> None:
        self.catalog, self.job, self.layout = catalog, job, Layout(catalog.results)
        variant = job.key if isinstance(job, ArtifactCell) else job.variant
        catalog.check(Cell(job.dataset, job.method, variant, job.model))
        self.card = catalog.method(job.method)
        self.kind: Kind
        if isinstance(job, Cell):
            self.kind, self.target = "cells", self.layout.cell(job)
        elif self.card.artifact is None:
            raise UpkeepError(f"method {job.method!r} prepares no artifact", remedy=f"./upkeep cell {job}")
        elif self.card.artifact.kind == "model":
            self.kind, self.target = "trained", self.layout.trained(job)
        else:
            self.kind, self.target = "memories", self.layout.memory(job)
        self.work = self.layout.work(self.kind, job)

    def run(self, force: bool, runtime: Runtime | None, limits: Limits, retries: int) -> Manifest:
        with locked(self.work), stoppable():
            self.report = Reporter(self.layout.status(self.kind, self.job), str(self.job), os.getpid())
            try:
                self._check_inputs()
                if not force and (published := self._published()) is not None:
                    manifest = published
                    records = published.probes * published.trials
                    self.report.say("reused", records, records, "complete already")
                else:
                    manifest = self._produce(force, runtime or detect(self.catalog), limits, retries)
                    self.report.end("done")
            except UpkeepError as error:
                self.report.end("failed", str(error))
                raise
            except KeyboardInterrupt:
                self.report.end("stopped", "interrupted; the same command continues")
                raise
            shutil.rmtree(self.work)
        return manifest

    # ------------------------------------------------------------ before anything starts

    def _check_inputs(self) -> None:
        """Find everything that the container is given, and the job's identity."""
        job = self.job
        card = dataset_card(self.catalog, job.dataset)
        self.dataset = self.layout.dataset(job.dataset)
        for name, expected in card.files.items():
            if (found := hash_file(self.dataset / name)) != expected:
                raise UpkeepError(
                    "not the file that was built",
                    where=self.dataset / name,
                    expected=f"sha256 {expected}",
                    found=f"sha256 {found}",
                    remedy=f"./upkeep dataset build {job.dataset}",
                )
        self.inputs: dict[str, Path] = {}
        self.gpus = 0
        if self.card.model:
            self._add_weights("model", job.model)
            self.gpus = model_spec(self.catalog, job.model).gpus
            if self.gpus > (there := visible_gpus()):
                raise UpkeepError(
                    f"the model {job.model!r} needs {self.gpus} GPU{'s' if self.gpus > 1 else ''}",
                    where=job,
                    expected=f"{self.gpus} of nvidia-smi's list (of CUDA_VISIBLE_DEVICES, where it is set)",
                    found=there,
                    remedy="run it where they are, or choose a model that runs on the CPU",
                )
        if embedder := self.catalog.embedder(job.method, job.model):
            self._add_weights("embedder", embedder)
        if self.kind == "trained":
            if not card.pairs:
                raise UpkeepError(f"the dataset {job.dataset!r} has no pairs to train on", where=self.dataset)
            self.inputs["pairs"] = self.dataset / "pairs.jsonl"
        self.description = describe(self.catalog, job, card.chunk_tokens)
        self.identity, self.parts = identity(self.catalog, job)

    def _add_weights(self, role: str, model: str) -> None:
        _, record = weights.find(self.catalog, model, self.job.dataset)
        if record.path is None:
            return
        folder = Path(record.path)
        if not folder.is_dir() or not any(folder.iterdir()):
            raise UpkeepError(
                f"no weights of the model {model!r}", where=folder, remedy=f"./upkeep model fetch {model}"
            )
        self.inputs[role] = folder

    def _published(self) -> Manifest | None:
        """The published manifest, if it is of the same identity and its files are as it says."""
        try:
            manifest = verify_folder(self.target)
        except UpkeepError:
            return None  # not there, or not what it says: it is made again
        return manifest if manifest.identity == self.identity else None

    # ------------------------------------------------------------ attempts

    def _produce(self, force: bool, runtime: Runtime, limits: Limits, retries: int) -> Manifest:
        self.state = self._resume(force)
        self.runtime, self.limits = runtime, limits
        engine = self.catalog.engine(self.job.method, self.job.model)
        self.report.end("starting", f"preparing the image of {self.job.method}")
        self.prepared = runtime.prepare(self.job.method, engine)
        self.deadline = time.monotonic() + MINUTE_S * self.card.resources.minutes
        if self.kind == "trained":
            return self._train()
        corpus = Corpus.read(self.dataset)
        if self.kind == "memories":
            memories = corpus.memories()
            with Collected(self.work / "memory.jsonl", Memory, memories) as collected:
                self._complete(collected, lambda: memory_tasks(corpus, collected.done), retries)
            return self._publish(publish.publish_memories, collected.path, memories)
        answers = corpus.answers(self.description.trials)
        gold, known = corpus.gold(self.card.sees), self._memories(corpus)
        with Collected(self.work / "predictions.jsonl", Prediction, answers) as results:
            self._complete(results, lambda: answer_tasks(corpus, answers.trials, results.done, gold, known), retries)
        return self._publish(publish.publish_cell, results.path, answers)

    def _resume(self, force: bool) -> _State:
        """What an earlier run of the same identity left; anything else in the work folder is removed."""
        try:
            state = msgspec.json.decode((self.work / "state.json").read_bytes(), type=_State)
        except (FileNotFoundError, msgspec.MsgspecError):
            state = None
        if state is None or force or state.identity != self.identity:
            _clear(self.work)
            return _State(identity=self.identity)
        if state.attempts and state.attempts[-1].outcome == "running":
            last = msgspec.structs.replace(state.attempts[-1], outcome="killed", reason="its supervisor was killed")
            return msgspec.structs.replace(state, attempts=[*state.attempts[:-1], last])
        return state

    def _memories(self, corpus: Corpus) -> dict[tuple[str, int], Memory] | None:
        """The memories that the cell's method reads, by stream and position."""
        if not isinstance(self.job, Cell) or (artifact := self.catalog.artifact_of(self.job)) is None:
            return None
        folder = self.layout.memory(artifact)
        verify_folder(folder)
        index = check_file(folder / "memory.jsonl", Memory, corpus.memories())
        index.require_complete()
        decoder = msgspec.json.Decoder(Memory)
        return {(m.stream, m.position): m for m in map(decoder.decode, index.lines_in_order())}

    def _complete(self, collected: Collected[R], tasks: Callable[[], Iterator[Task]], retries: int) -> None:
        """Make attempts until every record is there."""
        for attempt in range(retries + 1):
            if collected.complete:
                return
            before = collected.count
            try:
                with self._started(collected) as watch:
                    watch.feed(tasks())
            except Failed as failed:
                if attempt < retries and collected.count > before:
                    self.say(collected, f"continuing after: {failed}")
                    continue
                command = "cell" if self.kind == "cells" else "artifact"
                raise UpkeepError(
                    f"{self.job}: ended early, with {collected.count:,} of {collected.scope.size:,} records done",
                    where=self.log,
                    expected="all of them",
                    found=failed,
                    remedy=f"see the log; `./upkeep {command} {self.job}` continues",
                ) from None

    def _train(self) -> Manifest:
        try:
            with self._started(None) as watch:
                watch.finish()
                if watch.status:
                    raise Failed(self.ended(watch.status))
        except Failed as failed:
            raise UpkeepError(f"{self.job}: the training failed", where=self.log, found=failed) from None
        return self._publish(publish.publish_model, self._output / "model")

    @property
    def log(self) -> Path:
        log = self.layout.log(self.kind, self.job)
        return log.with_name(f"{log.stem}.container.log")

    def ended(self, status: int) -> str:
        return f"{self.runtime.explain(status, self.card.resources)}\n{self._handle.tail(15)}".rstrip()

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
            resources=self.card.resources,
            gpus=self.gpus,
        )
        self._record(Attempt(start=now(), end=None, outcome="running"))
        outcome: Literal["complete", "failed", "killed"] = "complete"
        reason: str | None = None
        try:
            self._handle = self.runtime.start(self.prepared, launch)
            watch = Watch(self._handle, self._output, collected, self)
            try:
                yield watch
                reason = watch.remark
            finally:
                watch.close()
        except KeyboardInterrupt:
            outcome, reason = "killed", "interrupted"
            raise
        except (Failed, UpkeepError) as error:
            outcome, reason = "failed", str(error)
            raise
        finally:
            done = collected.count if collected is not None else 0
            last = msgspec.structs.replace(
                self.state.attempts[-1], end=now(), outcome=outcome, reason=reason, lines=done
            )
            self._record(last, new=False)

    def _record(self, attempt: Attempt, new: bool = True) -> None:
        attempts = [*(self.state.attempts if new else self.state.attempts[:-1]), attempt]
        self.state = msgspec.structs.replace(self.state, attempts=attempts)
        write_atomically(self.work / "state.json", msgspec.json.encode(self.state))

    def _prepare_folders(self, collected: Collected[Any] | None) -> None:
        """An output folder of a new name, with what is done in it, and the description."""
        for old in self.work.glob("output-*"):
            shutil.rmtree(old)
        self._output = self.work / f"output-{len(self.state.attempts) + 1}-{os.urandom(4).hex()}"
        self._output.mkdir()
        if collected is not None:
            shutil.copyfile(collected.path, self._output / collected.path.name)
        paths = {role: self.runtime.path_of(role, path) for role, path in self.inputs.items()}
        description: CellDescription = msgspec.structs.replace(
            self.description,
            model_path=paths.get("model"),
            embedder_path=paths.get("embedder"),
            pairs=paths.get("pairs"),
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
                found = decode(file.read(), msgspec.json.Decoder(_Reported))
            except Refused as refused:
                raise refused.fault.error(path) from None
        self.state = msgspec.structs.replace(self.state, hardware=found.hardware)

    # ------------------------------------------------------------ afterwards

    def _publish(self, how: Callable[..., Manifest], source: Path, *scope: Scope[Any]) -> Manifest:
        attempts = self.state.attempts
        engine = self.description.engine.name
        draft = Manifest(
            cell=str(self.job),
            identity=self.identity,
            identity_parts=self.parts,
            environment=self.runtime.environment(
                self.prepared, engine, self.state.hardware, os.environ.get("SLURM_JOB_ID")
            ),
            seed=self.description.seed,
            start=attempts[0].start if attempts else now(),
            end=now(),
            attempts=attempts,
            probes=0,
            trials=self.description.trials,
            outcomes={},
            usage=Usage(),
            measured={},
            files={},
        )
        self.report.end("publishing")
        limit = self.card.resources.disk_gb * 2**30
        return how(source, *scope, draft, self.work / "staging", self.target, limit)


# ---------------------------------------------------------------- watching


class Collected(Generic[R]):
    """The records that the host has accepted, in a file of its own in which each line is whole and checked.

    Raises:
        UpkeepError: the file is not what was written to it.
    """

    def __init__(self, path: Path, record: type[R], scope: Scope[R]) -> None:
        self.path, self.scope = path, scope
        self.decoder = msgspec.json.Decoder(record)
        self._file = path.open("ab")
        self._cut_torn_line()
        index = check_file(path, record, scope)
        self.done = bytearray(offset >= 0 for offset in index.offsets)
        self.count = index.lines
        self._asked = bytearray(scope.size)

    def __enter__(self) -> Collected[R]:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def complete(self) -> bool:
        return self.count == self.scope.size

    def ask(self, keys: Iterable[int]) -> None:
        """Accept these records from now on."""
        for key in keys:
            self._asked[key] = 1

    def add(self, lines: Iterable[bytes], first: int, where: Path) -> int:
        """Check lines and keep them, those before a refused one too; how many.

        Args:
            first: number of the first of them in the container's file.
            where: that file, for messages.

        Raises:
            UpkeepError: a line is refused.
        """
        kept = []
        try:
            for line in lines:
                key = self._accept(line)
                self.done[key] = 1
                kept.append(line)
        except Refused as refused:
            raise refused.fault.error(f"{where}:{first + len(kept)}") from None
        finally:
            self._file.write(b"".join(kept))
            self._file.flush()
            self.count += len(kept)
        return len(kept)

    def _accept(self, line: bytes) -> int:
        key = self.scope.key(decode(line, self.decoder))
        if self.done[key]:
            fault = duplicate(self.scope, key, "there already")
            raise Refused(fault.problem, expected=fault.expected, found=fault.found)
        if not self._asked[key]:
            raise Refused(f"a line for {self.scope.name(key)}", expected="what has been asked", found="not asked yet")
        return key

    def _cut_torn_line(self) -> None:
        """Killed while it wrote, the host leaves a torn last line."""
        with self.path.open("rb") as file:
            size = end = file.seek(0, os.SEEK_END)
            while end > 0:
                start = max(0, end - MAX_LINE_BYTES)
                file.seek(start)
                if (newline := file.read(end - start).rfind(b"\n")) >= 0:
                    end = start + newline + 1
                    break
                end = start
        if end < size:
            os.truncate(self.path, end)


class Tail:
    """Follows a file that a container appends to."""

    def __init__(self, path: Path, limit: int, lines: int) -> None:
        """Args:
        limit: bytes at most.
        lines: lines that are there already; they are ours and not read.
        """
        self.path, self._limit = path, limit
        self._file = open_regular(path)
        self._file.seek(0, os.SEEK_END)
        self.place, self._rest = self._file.tell(), b""
        self.lines = lines

    def new(self) -> list[bytes]:
        """The lines that have become whole since the last call, as far as one reading holds them.

        Raises:
            UpkeepError: a line or the file is too long, or the file has shrunk.
        """
        size = os.fstat(self._file.fileno()).st_size
        if size > self._limit:
            expected = f"at most {self._limit:,} bytes"
            raise UpkeepError("the output is too large", where=self.path, expected=expected, found=f"{size:,} bytes")
        if size < self.place:
            raise UpkeepError("the output has shrunk", where=self.path, expected="a file that is only appended to")
        block = os.pread(self._file.fileno(), min(size - self.place, MAX_LINE_BYTES), self.place)
        self.place += len(block)
        *lines, self._rest = (self._rest + block).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            raise overlong().fault.error(f"{self.path}:{self.lines + len(lines) + 1}")
        self.lines += len(lines)
        return [line + b"\n" for line in lines]

    def require_whole(self) -> None:
        """Raises UpkeepError where a line was begun that did not become whole."""
        if self._rest:
            raise torn(self._rest).fault.error(f"{self.path}:{self.lines + 1}")

    def close(self) -> None:
        self._file.close()


class Watch:
    """A running container: what it is sent, what it writes, and the bounds of both."""

    def __init__(self, handle: Handle, output: Path, collected: Collected[Any] | None, job: _Job) -> None:
        self._handle, self._output, self._collected, self._job = handle, output, collected, job
        self._unsent = memoryview(b"")
        self._limit = job.card.resources.disk_gb * 2**30
        self._tail = Tail(output / collected.path.name, self._limit, collected.count) if collected is not None else None
        self._progress = self._measured = time.monotonic()
        self._noted = False
        self.status: int | None = None
        self.remark: str | None = None
        os.set_blocking(handle.stdin.fileno(), False)

    def feed(self, tasks: Iterator[Task]) -> None:
        """Send round after round, each when the one before is on disk, then wait for the end.

        Raises:
            Failed: the container ended or stood still before all was there.
            UpkeepError: its output is refused, or a bound is broken.
        """
        collected = self._collected
        assert collected is not None
        for task in tasks:
            collected.ask(task.keys)
            self._unsent = memoryview(msgspec.json.encode(task.round) + b"\n")
            waiting = [key for key in task.keys if not collected.done[key]]
            while waiting:
                self._turn()
                while waiting and collected.done[waiting[-1]]:
                    waiting.pop()
                if waiting and self.status is not None:
                    raise Failed(self._job.ended(self.status))
        self.finish()
        if self._tail is not None:
            self._tail.require_whole()

    def finish(self) -> None:
        """Close the container's input and wait for its end; where records were expected, not for long."""
        if self.status is None:
            with contextlib.suppress(OSError):
                self._handle.stdin.close()
        self._unsent = memoryview(b"")
        patience = time.monotonic() + self._job.limits.exit_s
        while self.status is None:
            self._turn()
            if self._collected is not None and self.status is None and time.monotonic() > patience:
                self.remark = f"did not end within {self._job.limits.exit_s:g} s after the last record"
                self.status = self._handle.kill()
        self._note_engine()
        if self.status and self.remark is None:
            self.remark = f"after the last record: {self._job.ended(self.status)}"

    def close(self) -> None:
        """End the container, if it has not ended."""
        if self.status is None:
            self.status = self._handle.kill()
        if self._tail is not None:
            self._tail.close()

    def _turn(self) -> None:
        """Send and read what can be without waiting, look at the bounds, and rest where nothing happened."""
        if self.status is not None:
            return
        ended = self._handle.poll() is not None
        self._send()
        busy = self._read()
        if ended:
            while self._read():
                pass
            self.status = self._handle.wait()
            return
        moment = time.monotonic()
        if busy:
            self._progress = moment
        self._check_bounds(moment)
        self._job.say(self._collected)
        if not busy:
            time.sleep(POLL_S)

    def _send(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._handle.stdin.fileno(), self._unsent) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._unsent = memoryview(b"")  # it is ending, as a later turn will see

    def _read(self) -> bool:
        """Take over what is new; whether anything was."""
        if self._tail is None or self._collected is None:
            return False
        before, first = self._tail.place, self._tail.lines + 1
        if lines := self._tail.new():
            self._collected.add(lines, first, self._tail.path)
            self._note_engine()
        return self._tail.place > before

    def _note_engine(self) -> None:
        if not self._noted:
            self._noted = True
            self._job.reported()

    def _check_bounds(self, moment: float) -> None:
        job = self._job
        if moment > job.deadline:
            raise UpkeepError(
                f"{job.job}: not done in time",
                where=job.log,
                expected=f"{job.card.resources.minutes} minutes (`resources.minutes` of the method's card)",
                remedy="the same command continues; raise the bound where it is too low",
            )
        if self._collected is not None and moment - self._progress > job.limits.stall_s:
            raise Failed(f"nothing new for {job.limits.stall_s:g} s\n{self._handle.tail(15)}")
        if moment - self._measured > 2.0:
            self._measured = moment
            _check_folder(self._output, self._limit)


def _check_folder(folder: Path, limit: int) -> None:
    """Refuse a writable folder that grows without bound. What vanishes meanwhile does not count."""
    size = files = 0
    for parent, folders, names in os.walk(folder):
        files += len(names) + len(folders)
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                size += os.lstat(Path(parent) / name).st_size
        if size > limit or files > MAX_FILES:
            raise UpkeepError(
                "the writable folder is too large",
                where=folder,
                expected=f"at most {limit:,} bytes (`resources.disk_gb` of the method's card) in {MAX_FILES:,} files",
                found=f"{size:,} bytes, {files:,} files",
            )


# ---------------------------------------------------------------- the machine


def visible_gpus() -> int:
    """GPUs that a job may use: those of CUDA_VISIBLE_DEVICES where it is set, else all that nvidia-smi lists."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return len([device for device in chosen.split(",") if device.strip() not in {"", "-1"}])
    if (program := shutil.which("nvidia-smi")) is None:
        return 0
    listed = subprocess.run([program, "--list-gpus"], capture_output=True, text=True, check=False)
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines()) if listed.returncode == 0 else 0


def _clear(work: Path) -> None:
    for path in work.iterdir():
        if path.name == "lock":
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder's lock; the system lets go of it when this process ends, however that happens.

    Raises:
        UpkeepError: another process holds it.
    """
    descriptor = None
    while descriptor is None:
        descriptor = _lock(folder)
    try:
        yield
    finally:
        os.close(descriptor)


def _lock(folder: Path) -> int | None:
    """The lock's open file; None where the folder was removed meanwhile by the one who held it."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = folder / "lock"
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_ino == lock.stat().st_ino:
            return descriptor
    except BlockingIOError:
        os.close(descriptor)
        remedy = "wait for its end, or end it"
        raise UpkeepError("another process is at work on this", where=folder, remedy=remedy) from None
    except FileNotFoundError:
        pass
    os.close(descriptor)
    return None


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM and SIGHUP interrupt as Ctrl-C does, so that the container is ended; a second signal does not disturb."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    stopped = False

    def stop(number: int, _: FrameType | None) -> None:
        nonlocal stopped
        if not stopped:
            stopped = True
            raise KeyboardInterrupt(signal.Signals(number).name)

    before = [signal.signal(number, stop) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
