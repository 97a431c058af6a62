"""A training: a method makes a new model of another one in its container, or one model after the other of a set.

What it has worked out is kept in two ways between attempts. A method's checkpoints are handed on from the folder of one
container to that of the next, and members of a set that are made are put aside. A container that made neither has done
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from upkeep.catalog import Catalog
from upkeep.contract import Course, Record
from upkeep.errors import UpkeepError
from upkeep.execution import publish, reports
from upkeep.execution.job import DOCUMENTS, PAIRS, SupervisedJob
from upkeep.execution.share import SharedEngines
from upkeep.execution.steps import Steps
from upkeep.execution.trained_on import Member, members
from upkeep.execution.watch import Failed, kind_of_status
from upkeep.files import remove, write_atomically
from upkeep.gateway.record import Asking
from upkeep.jobs import Training
from upkeep.method_cards import supervision_of

CHECKPOINTS = "checkpoints"
"""Of a container's output: what the next one goes on from."""


class TrainingJob(SupervisedJob):
    """One training."""

    kind = "trained"
    job: Training

    def __init__(
        self, catalog: Catalog, job: Training, shared: SharedEngines | None = None, ask: Asking = "unknown"
    ) -> None:
        catalog.check_training(job)
        super().__init__(catalog, job, shared, ask)
        self.made = self.work / "made"
        """Models that are done, by member."""
        self.courses = self.work / "courses"
        """How their trainings went."""

    @property
    def traces(self) -> list[Path]:
        return [self.work / "reached"]

    def _check_own_inputs(self) -> None:
        self.members = members(self.catalog, self.job)

    def _made(self, retries: int) -> Steps:
        yield from ()  # all of it is one step
        with self._engines() as shared, self._models(shared):
            for member in self.members:
                if not (self.made / (member.name or "model")).is_dir():
                    self._train(member)
        told = sorted(self.courses.glob("*")) if self.courses.is_dir() else []
        courses = {path.name: msgspec.json.decode(path.read_bytes(), type=Course) for path in told}
        draft = self._draft(courses=courses)
        self.report.end("publishing")
        source = self.made / "model" if self.members[0].name == "" else self.made
        names = [member.name for member in self.members if member.name]
        return publish.publish_model(source, names, draft, self.work / "staging", self.target, self._disk)

    def _train(self, member: Member) -> None:
        """One model; it is in `made` afterwards."""
        self.inputs["training"] = self._given(member)
        try:
            with self._started(None) as watch:
                watch.finish()
                if watch.status:
                    raise Failed(self.ended(watch.status), kind_of_status(watch.status, self._handle.starved))
        except Failed as failed:
            of = f" of {member.name!r}" if member.name else ""
            raise UpkeepError(
                f"{self.job}: the training{of} failed",
                where=self.log,
                found=failed,
                remedy="see the log; the same command goes on from its last checkpoint, `--force` from the beginning",
                kind=failed.kind,
            ) from None
        finally:
            self._reached()
        publish.require_model(self._output / "model")
        name = member.name or "model"
        if (course := reports.of_course(self._output)) is not None:
            self.courses.mkdir(exist_ok=True)
            write_atomically(self.courses / name, msgspec.json.encode(course))
        # First, for the next member is to begin at its own beginning, whenever this process is killed.
        remove(self._output / CHECKPOINTS)
        self.made.mkdir(exist_ok=True)
        (self._output / "model").rename(self.made / name)

    def _given(self, member: Member) -> Path:
        """The folder with what a container trains on: what the method's `supervision` names."""
        folder = self.work / "training"
        remove(folder)
        folder.mkdir(mode=0o755)
        given = supervision_of(self.card, self.job.variant)
        _write(folder / DOCUMENTS, member.documents if "C" in given else ())
        place = {document.id: n for n, document in enumerate(member.documents)}
        # In the order of their documents, and of each as they were; last, those that name none.
        pairs = sorted(member.pairs, key=lambda pair: place.get(pair.document or "", len(place)))
        _write(folder / PAIRS, pairs if "Q" in given else ())
        return folder

    def _hand_on(self, old: Path) -> None:
        checkpoints = old / CHECKPOINTS
        if checkpoints.is_dir() and not checkpoints.is_symlink() and not (self._output / CHECKPOINTS).exists():
            checkpoints.rename(self._output / CHECKPOINTS)

    def _reached(self) -> None:
        """Take down how far the checkpoints are, by which one sees whether an attempt got on."""
        folder = self._output / CHECKPOINTS
        if folder.is_dir() and not folder.is_symlink() and (names := sorted(path.name for path in folder.iterdir())):
            write_atomically(self.work / "reached", "\n".join(names).encode(errors="replace"))


def _write(path: Path, records: Iterable[Record]) -> None:
    with path.open("wb") as file:
        for record in records:
            file.write(msgspec.json.encode(record) + b"\n")
    path.chmod(0o644)  # the container's user may be another one
