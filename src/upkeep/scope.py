"""Which records a file must hold, each exactly once: above all the predictions of a cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn, Protocol, TypeVar

from upkeep.contract import Prediction, Record, Retrieved
from upkeep.lines import Refused, excerpt

R_contra = TypeVar("R_contra", bound=Record, contravariant=True)


class Scope(Protocol[R_contra]):
    """Which records a file must hold, each exactly once. They are numbered from 0 to `size` - 1, the order of
    publication; the number is called a key."""

    @property
    def size(self) -> int: ...

    def key(self, record: R_contra) -> int:
        """The number of a record. Raises Refused where it does not belong here or contradicts the dataset."""
        ...

    def name(self, key: int) -> str:
        """A record's name in messages."""
        ...


@dataclass(frozen=True)
class Answers:
    """The predictions of a cell: one for each probe and trial.

    Args:
        probes: probe ids in their order.
        trials: answers to each probe.
        documents: ids in the dataset's order (stream, position); None where they are unknown, so that retrieved ids
            go unchecked.
        first, end: for each probe, the half-open range of the documents that had arrived in its stream.
    """

    probes: Sequence[str]
    trials: int = 1
    documents: Sequence[str] | None = None
    first: Sequence[int] = ()
    end: Sequence[int] = ()
    _places: dict[str, int] = field(init=False, repr=False)
    _documents: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_places", {probe: i for i, probe in enumerate(self.probes)})
        object.__setattr__(self, "_documents", {document: i for i, document in enumerate(self.documents or ())})

    def __reduce__(self) -> tuple[type[Answers], tuple[object, ...]]:
        return Answers, (self.probes, self.trials, self.documents, self.first, self.end)

    @property
    def size(self) -> int:
        return len(self.probes) * self.trials

    def name(self, key: int) -> str:
        probe, trial = divmod(key, self.trials)
        return f"probe {self.probes[probe]!r}, trial {trial}"

    def key(self, record: Prediction) -> int:
        probe = self._places.get(record.probe_id)
        if probe is None:
            raise Refused(
                "field `probe_id`: unknown probe",
                expected="a probe of the dataset that the cell was asked",
                found=excerpt(record.probe_id),
            )
        if record.trial >= self.trials:
            raise Refused(
                "field `trial`: no such trial", expected=f"0 to {self.trials - 1}", found=excerpt(record.trial)
            )
        if record.retrieved:
            self._check_retrieved(probe, record.retrieved)
        return probe * self.trials + record.trial

    def _check_retrieved(self, probe: int, retrieved: list[Retrieved]) -> None:
        place: Callable[[str, int], int] = self._documents.get if self.documents is not None else _nowhere
        first, end = (self.first[probe], self.end[probe]) if self.documents is not None else (-1, 0)
        # The loop that decides how fast a file is read.
        for rank, one in enumerate(retrieved, 1):
            if one.rank != rank or not first <= place(one.id, -1) < end:
                self._refuse_retrieved(rank, one)

    def _refuse_retrieved(self, rank: int, one: Retrieved) -> NoReturn:
        field = f"field `retrieved[{rank - 1}]"
        if one.rank != rank:
            raise Refused(f"{field}.rank`: ranks must count up from 1", expected=rank, found=one.rank)
        known = one.id in self._documents
        raise Refused(
            f"{field}.id`: " + ("this document had not arrived in the probe's stream" if known else "unknown document"),
            expected="a document of the probe's stream up to its position",
            found=excerpt(one.id),
        )


def _nowhere(_: str, default: int) -> int:
    """The place of a document where documents are unknown."""
    return default
