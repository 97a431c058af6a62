"""An engine in a container of its own, which the cells of a batch use one after the other, those of a sweep in turns.

Loading a large model takes longer than many a cell; so it is loaded once, when there is first something to ask it. Only
the gateway reaches it (`upkeep.gateway.cells`), through a Unix socket in a folder of the host's.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import msgspec

from upkeep import weights
from upkeep.catalog import Catalog
from upkeep.contract import CellDescription, Resources, Role
from upkeep.errors import UpkeepError
from upkeep.execution.handle import Handle
from upkeep.execution.runtimes import Launch, Prepared
from upkeep.execution.watch import Limits
from upkeep.gateway.record import Replies
from upkeep.gateway.shared_connection import SharedConnections, held
from upkeep.gateway.upstream import SOCKET
from upkeep.gateway.watched import Patience
from upkeep.machine.scratch import Scratch, place_for_socket

ADAPTER, MEMBER = "adapter", "member"
"""What the folders of adapters are among a container's inputs, before their numbers: of those that lie on one another,
and of those of which an engine answers with one or another."""
POLL_S = 0.02
LOSS_S = 5.0
"""How long an engine whose cell has failed may take to end, if it is to be blamed."""
END_S = 20.0
"""What an engine is given to end by itself."""


def inputs_of(weights: Path | None, adapters: Sequence[Path]) -> dict[str, Path]:
    """What of a model a container is given, by name.

    Args:
        weights: None where a package of the image carries them.
    """
    given = {} if weights is None else {"model": weights}
    return given | {f"{ADAPTER}{number}": path for number, path in enumerate(adapters)}


def adapters_in(paths: Mapping[str, str]) -> list[str]:
    """The adapters among what a container is given, in order."""
    return [path for name, path in paths.items() if name.startswith(ADAPTER)]


class Starter(Protocol):
    """What is needed of a runtime."""

    def prepare(self, method: str | None, engine: str) -> Prepared: ...

    def path_of(self, role: str, path: Path) -> str: ...

    def start(self, prepared: Prepared, launch: Launch) -> Handle: ...

    def explain(self, status: int, resources: Resources, starved: bool | None = None) -> str: ...


@dataclass(frozen=True)
class Wanted:
    """The engine that a cell needs."""

    description: CellDescription
    """The cell's; its engine settings and its model are the engine's."""
    weights: Path | None
    """None where a package of the image carries them."""
    image: str
    """What serves it: a folder of `containers/`."""
    resources: Resources
    gpus: int
    module: str = "upkeep.serving.serve"
    """What serves it."""
    adapters: tuple[Path, ...] = ()
    """On the weights, in the order in which they were trained."""
    members: tuple[Path, ...] = ()
    """Adapters on these, of which the engine has them all and answers a cell with one; none for an engine without."""
    member: int = 0
    """Which of them is the cell's."""

    @property
    def place(self) -> Path:
        """Where its socket lies in the engine's folder."""
        return Path(str(self.member), SOCKET) if self.members else Path(SOCKET)

    def same_engine(self, other: Wanted) -> bool:
        """Whether one engine serves both."""
        mine, yours = self.description, other.description
        ours = (self.image, self.module, self.weights, self.adapters, self.members)
        theirs = (other.image, other.module, other.weights, other.adapters, other.members)
        return (mine.engine, mine.model_spec, *ours) == (yours.engine, yours.model_spec, *theirs)


def with_its_set(catalog: Catalog, alone: Wanted, dataset: str, member: str) -> Wanted:
    """In place of the engine of a set's member, an adapter, the one of all its members where they lie on the same."""
    model = alone.description.model
    names = weights.members(catalog, model, dataset)
    found = [weights.find(catalog, model, dataset, name)[1].adapters for name in names]
    if any(adapters[:-1] != alone.adapters[:-1] for adapters in found):
        return alone  # each was trained on a member of another set
    return replace(
        alone,
        module="upkeep.serving.several",
        adapters=alone.adapters[:-1],
        members=tuple(adapters[-1] for adapters in found),
        member=names.index(member),
    )


class SharedEngines:
    """The engines that the cells of a batch share, by role. Use as a context manager.

    Args:
        name: of their containers, after the role.
        log: takes what the reader prints; those of other roles have their own beside it.
        limits: how long one may take to load, and to show a sign of work.
    """

    def __init__(self, name: str, runtime: Starter, log: Path, limits: Limits) -> None:
        self._name, self._runtime, self._log, self._limits = name, runtime, log, limits
        self._stack = contextlib.ExitStack()
        self._engines: dict[Role, SharedEngine] = {}

    def __enter__(self) -> SharedEngines:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def of(self, role: Role) -> SharedEngine:
        """The engine of a role; none is started by that."""
        if role not in self._engines:
            log = self._log if role == "reader" else self._log.with_name(f"{self._log.stem}.{role}.log")
            engine = SharedEngine(f"{role}-{self._name}", self._runtime, log, self._limits)
            self._engines[role] = self._stack.enter_context(engine)
        return self._engines[role]


class SharedEngine:
    """Started when the first cell needs it, and again where it has died or hung. Use as a context manager."""

    def __init__(self, name: str, runtime: Starter, log: Path, limits: Limits) -> None:
        """Args:
        name: of its container.
        log: takes what it prints.
        limits: how long it may take to load the model, and to show a sign of work.
        """
        self.name, self.log = name, log
        self._runtime, self._limits = runtime, limits
        self.connections = SharedConnections(Patience(limits.engine_s, self._hung))
        self._wanted: Wanted | None = None
        self._handle: Handle | None = None
        self.prepared: Prepared | None = None
        """What it runs in, or ran in before it ended."""
        self._made = Scratch(place_for_socket(f"99/9999/{SOCKET}"))
        self._scratch = self._made.path
        self._scratch.chmod(0o755)
        self._starts = 0
        self._lock = threading.Lock()
        self._replies: Replies | None = None

    def __enter__(self) -> SharedEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._made.close()
        if self._replies is not None:
            self._replies.close()

    def replies(self, record: Path, parts: dict[str, str], model: str) -> Replies:
        """The kept replies of the engine that `parts` describe."""
        if self._replies is None or self._replies.parts != parts:
            if self._replies is not None:
                self._replies.close()
            self._replies = Replies(record, parts, model)
        self._replies.refresh()
        return self._replies

    def folder(self, wanted: Wanted, given_up: Callable[[], bool] = lambda: False) -> Path:
        """The folder with the socket of the engine that a cell needs, which is ready to answer.

        Args:
            given_up: whether nobody waits for it any more.

        Raises:
            UpkeepError: it does not start, with the end of what it printed; or nobody waits any more.
        """
        with held(self._lock, given_up):  # cells that are asked side by side may want it at the same time
            if self._wanted is None or not self._wanted.same_engine(wanted) or self._ended():
                self._stop()
                self._start(wanted)
            self._await(wanted, given_up)
            return (self._output / wanted.place).parent

    def release(self) -> None:
        """End the engine, which nobody asks for some time: what it holds of the machine is free then."""
        self._stop()

    def _ended(self) -> bool:
        return self._handle is None or self._handle.poll() is not None

    @property
    def lost(self) -> bool:
        """Whether the engine that cells were given has ended, or ends at this moment."""
        if self._handle is None:
            return False
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._handle.process.wait(LOSS_S)
        return self._ended()

    def _hung(self) -> UpkeepError:
        """End the engine, which owes a reply and does not work for it. It has died then, as for any other reason."""
        assert self._wanted is not None
        if (handle := self._handle) is not None:  # else it is being ended
            handle.kill()
        return UpkeepError(
            f"the engine of {self._wanted.description.model!r} hung: no reply and no sign of work for "
            f"{self._limits.engine_s:g} s; it was ended",
            where=self.log,
            kind="engine",
        )

    def _start(self, wanted: Wanted) -> None:
        self.prepared = self._runtime.prepare(None, wanted.image)
        self._starts += 1
        self._output = self._scratch / str(self._starts)
        self._output.mkdir()
        place = self._runtime.path_of("output", self._output)
        cell = self._scratch / f"cell-{self._starts}"
        cell.mkdir(mode=0o755)
        given = inputs_of(wanted.weights, wanted.adapters)
        members = {f"{MEMBER}{number}": path for number, path in enumerate(wanted.members)}
        paths = {name: self._runtime.path_of(name, path) for name, path in given.items()}
        description = msgspec.structs.replace(
            wanted.description,
            model_path=paths.get("model"),
            adapters=adapters_in(paths),
            output=place,
            socket=f"{place}/{SOCKET}",
        )
        (cell / "cell.json").write_bytes(msgspec.json.encode(description))
        (cell / "cell.json").chmod(0o644)
        self._wanted = wanted
        self._handle = self._runtime.start(
            self.prepared,
            Launch(
                name=self.name,
                inputs={"cell": cell} | given | members,
                output=self._output,
                log=self.log,
                resources=wanted.resources,
                gpus=wanted.gpus,
                arguments=(
                    "-m",
                    wanted.module,
                    f"{self._runtime.path_of('cell', cell)}/cell.json",
                    *([str(wanted.member)] if members else []),
                    *(self._runtime.path_of(name, path) for name, path in members.items()),
                ),
            ),
        )

    def _await(self, wanted: Wanted, given_up: Callable[[], bool]) -> None:
        """Wait until the socket is there, which is when the model is loaded."""
        assert self._handle is not None
        deadline = time.monotonic() + self._limits.stall_s
        while not os.path.lexists(self._output / wanted.place):
            if (status := self._handle.poll()) is not None:
                self._handle.wait()
                reason = self._runtime.explain(status, wanted.resources, self._handle.starved)
                raise UpkeepError(
                    f"the engine of {wanted.description.model!r} did not start",
                    where=self.log,
                    found=f"{reason}\n{self._handle.tail(15)}",
                    kind="engine",
                )
            if given_up():
                raise UpkeepError(f"nobody waits for the engine of {wanted.description.model!r}", kind="interrupted")
            if time.monotonic() > deadline:
                found = self._handle.tail(15)
                self._stop()
                raise UpkeepError(
                    f"the engine of {wanted.description.model!r} did not start in {self._limits.stall_s:g} s",
                    where=self.log,
                    found=found or "it printed nothing",
                    kind="engine",
                )
            time.sleep(POLL_S)

    def _stop(self) -> None:
        if self._handle is None:
            return
        handle, self._handle = self._handle, None
        with contextlib.suppress(OSError):
            handle.stdin.close()
        try:
            handle.wait(END_S)
        except subprocess.TimeoutExpired:
            handle.kill()
