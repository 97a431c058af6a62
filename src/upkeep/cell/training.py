"""The task `train`: a method makes a new model of another one."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, TypeVar

import msgspec

from upkeep.cell.interface import LLM
from upkeep.cell.processes import is_first, together, wait
from upkeep.contract import CellDescription, Course, Document, ModelSpec, Pair, Record

R = TypeVar("R", bound=Record)
T = TypeVar("T")
POINTS = 200
"""Of a loss curve at most."""


class Ask(Protocol):
    """Asks the model that a training starts from."""

    def __call__(self, study: Callable[[LLM], Awaitable[T]]) -> T:
        """What a coroutine returns that is given the model. When it has returned, the model's engine ends, and what it
        held of the machine is free."""


class Checkpoints:
    """What a training goes on from when it was killed, or its time was up. Only the latest is kept."""

    def __init__(self, folder: Path) -> None:
        """`folder` is made where it is missing."""
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self._writing = folder / ".writing"
        shutil.rmtree(self._writing, ignore_errors=True)

    @property
    def latest(self) -> Path | None:
        """The folder of the latest one that is whole; None where training begins."""
        found = sorted(path for path in self.folder.iterdir() if path != self._writing)
        return found[-1] if found else None

    def save(self, step: int, write: Callable[[Path], None]) -> None:
        """Keep what `write` puts into an empty folder, in place of the one before. A kill leaves one of the two.

        Args:
            step: grows from one to the next.

        Raises:
            ValueError: it does not grow.
        """
        before, name = sorted(self.folder.iterdir()), f"step-{step:012d}"
        if before and before[-1].name >= name:
            raise ValueError(f"checkpoint {name} after {before[-1].name}")
        self._writing.mkdir()
        write(self._writing)
        for path in [*self._writing.rglob("*"), self._writing]:
            _to_disk(path)
        self._writing.rename(self.folder / name)
        _to_disk(self.folder)
        for old in before:
            shutil.rmtree(old)


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def move(made: Path, folder: Path) -> None:
    """Put what is in one folder into another that is there."""
    shutil.copytree(made, folder, dirs_exist_ok=True)
    shutil.rmtree(made)


def keeping(checkpoints: Checkpoints, minutes: float, put: Callable[[Path, Path], None] = move, before: int = 0) -> Any:
    """A callback of transformers' trainers: keeps a checkpoint of theirs after the step in which so much time has gone
    since the last one.

    Args:
        put: moves what the trainer has written into the folder that is kept.
        before: steps of trainers that went before.
    """
    from transformers import TrainerCallback

    class Keeping(TrainerCallback):  # type: ignore[misc]
        kept = time.monotonic()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_save = together(time.monotonic() - self.kept >= 60 * minutes)

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            made = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            wait()
            if is_first():
                checkpoints.save(before + state.global_step, lambda folder: put(made, folder))
            wait()
            self.kept = time.monotonic()

    return Keeping()


def course_of(trainer: Any, tokens: int) -> Course:
    """How a training with one of transformers' trainers went, whose log has each step.

    Args:
        tokens: that were read, in all epochs together.
    """
    state = trainer.state
    losses = [(one["step"], one["loss"]) for one in state.log_history if "loss" in one]
    return Course(steps=state.global_step, tokens=tokens, losses=thinned(losses, POINTS))


def thinned(losses: Sequence[tuple[int, float]], most: int) -> list[tuple[int, float]]:
    """At most so many points: means over equally many steps, each at its last one."""
    width = max(1, -(-len(losses) // most))
    spans = [losses[start : start + width] for start in range(0, len(losses), width)]
    return [(span[-1][0], sum(loss for _, loss in span) / len(span)) for span in spans]


@dataclass(frozen=True)
class Training:
    """What a training is given."""

    spec: ModelSpec
    """Its card; `sampling` is the card's where the method `asks`, and otherwise says nothing."""
    weights: Path
    """Folder of the model that it starts from, in the transformers format. Adapters that it has are merged into it."""
    documents: Sequence[Document]
    """In order of stream and position; none where the method's `supervision` has no C."""
    pairs: Sequence[Pair]
    """In the order of the documents that they were made of, of which each has the id; last, those that name none. None
    where the `supervision` has no Q."""
    output: Path
    """Where the new model goes, a folder that is not there: a whole one in the transformers format, or an adapter in
    that of PEFT, which is served with the model that it was trained on."""
    checkpoints: Checkpoints
    ask: Ask
    """For a method whose card says `asks`."""


class Trains(Protocol):
    """What is needed of a method."""

    def train(self, training: Training) -> Course | None: ...


def train(cell: CellDescription, method: Trains, ask: Ask) -> None:
    """Have a method make a new model in `<output>/model`; what it tells of its course is `<output>/course.json`.

    Raises:
        ValueError: the cell names no base model or nothing to train on.
    """
    if cell.model_spec is None or cell.model_path is None or cell.documents is None or cell.pairs is None:
        raise ValueError("the task `train` needs a base model, documents and pairs")
    output = Path(cell.output)
    with TemporaryDirectory() as scratch:
        weights = Path(cell.model_path)
        if cell.adapters:
            import torch

            from upkeep.cell.adapters import merge

            if cell.model_spec.gpus > 1:
                # Several processes may be forked of this one, and OpenMP's threads do not come along: once it has any,
                # what is forked waits for them without end. A trainer in one process sets its threads itself.
                torch.set_num_threads(1)
            merge(weights, [Path(adapter) for adapter in cell.adapters], Path(scratch))
            weights = Path(scratch)
        course = method.train(
            Training(
                spec=cell.model_spec,
                weights=weights,
                documents=_read(cell.documents, Document),
                pairs=_read(cell.pairs, Pair),
                output=output / "model",
                checkpoints=Checkpoints(output / "checkpoints"),
                ask=ask,
            )
        )
    if course is not None:
        (output / "course.json").write_bytes(msgspec.json.encode(course))


def _read(path: str, kind: type[R]) -> list[R]:
    return msgspec.json.Decoder(kind).decode_lines(Path(path).read_bytes())
