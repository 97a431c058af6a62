"""What is run, by name: cells, trainings, and the models that trainings make."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from upkeep.errors import UpkeepError


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """The name of a model that a training method makes: `<base>+<method>.<variant>`, trained on the dataset that it is
    asked about, or `<base>+<method>.<variant>@<dataset>[.<set>]`."""

    base: str
    method: str
    variant: str
    dataset: str = ""
    """What it is trained on; empty for what it is asked about."""
    set: str = ""
    """A set under `training` of the dataset's card; empty for all documents and pairs."""

    @classmethod
    @functools.cache
    def parse(cls, name: str) -> TrainedModel | None:
        """None where the name is that of a plain model."""
        base, plus, rest = name.rpartition("+")
        made, _, source = rest.partition("@")
        method, dot, variant = made.partition(".")
        dataset, _, chosen = source.partition(".")
        return cls(base, method, variant, dataset, chosen) if plus and dot else None


@functools.cache
def untrained(model: str) -> str:
    """The model that one was made of in the beginning; a plain model itself."""
    while (trained := TrainedModel.parse(model)) is not None:
        model = trained.base
    return model


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """What one job runs and one command re-runs."""

    dataset: str
    method: str
    variant: str
    model: str

    @classmethod
    def parse(cls, text: str) -> Cell:
        parts = text.strip("/").split("/")
        if len(parts) != 4 or not all(parts):
            raise UpkeepError(
                "not the name of a cell",
                expected="DATASET/METHOD/VARIANT/MODEL, as in oaks_babi_mini/rag_dense/k3/pico",
                found=repr(text),
                remedy="`./upkeep list cells` shows those of a suite",
            )
        return cls(*parts)

    def __str__(self) -> str:
        return f"{self.dataset}/{self.method}/{self.variant}/{self.model}"


@dataclass(frozen=True, slots=True, order=True)
class Training:
    """The job that trains a model, which other cells then use."""

    dataset: str
    """What it is trained on."""
    method: str
    variant: str
    model: str
    set: str = ""
    """A set under `training` of the dataset's card; empty for all documents and pairs."""

    @classmethod
    def parse(cls, text: str) -> Training:
        """Raises UpkeepError where it is no name of one: `DATASET[.SET]/METHOD/VARIANT/MODEL`."""
        cell = Cell.parse(text)
        dataset, _, chosen = cell.dataset.partition(".")
        return cls(dataset, cell.method, cell.variant, cell.model, chosen)

    def __str__(self) -> str:
        source = f"{self.dataset}.{self.set}" if self.set else self.dataset
        return f"{source}/{self.method}/{self.variant}/{self.model}"


Job = Cell | Training
"""What has results of its own."""
