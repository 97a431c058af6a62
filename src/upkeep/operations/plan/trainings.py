"""What trainings take on GPUs, from their recipes and what they learn from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from upkeep.catalog import Catalog
from upkeep.cell.interface import Context
from upkeep.cell.processes import processes_of, shares
from upkeep.cell.prompts import Prompt
from upkeep.contract import Pair, Positive, Probe
from upkeep.errors import UpkeepError
from upkeep.execution.roofline import Assumptions
from upkeep.execution.trained_on import members
from upkeep.jobs import Training
from upkeep.method_cards import supervision_of
from upkeep.operations.plan.amounts import TrainingPlan
from upkeep.operations.plan.counts.dataset import CountedDataset, Say
from upkeep.operations.plan.training import lacking, memory, operations

FINE_TUNING = re.compile(r"upkeep\.cell(\.| import )finetuning\b")
"""The import of a method whose training is counted; one without it has a trainer of its own."""


class _Recipe(Struct):
    """What the formula needs of every recipe."""

    epochs: Annotated[float, Meta(gt=0)]
    batch: Positive
    device_batch: Positive
    max_tokens: Positive | None = None
    train_whole: list[str] | None = None


class _OfPieces(Struct):
    piece_tokens: Positive


class _OfAdapter(Struct):
    lora_rank: Positive
    lora_dropout: Annotated[float, Meta(ge=0)]


@dataclass(frozen=True, slots=True)
class Rows:
    """The samples that a stage learns from."""

    longest: int
    """Tokens."""
    tokens: float | None
    """Of all together; None where the dataset is not at hand."""


class Trainings:
    """Plans the trainings of a suite; each dataset is read once."""

    def __init__(self, catalog: Catalog, assumptions: Assumptions, say: Say | None) -> None:
        """Args: say: as `CountedDataset` has it."""
        self.catalog, self.assumptions, self.say = catalog, assumptions, say
        self._datasets: dict[str, CountedDataset | None] = {}

    def plan(self, job: Training, gpu: str) -> tuple[TrainingPlan | None, float | None, list[str]]:
        """Memory on a GPU at the peak, GPU-hours, and what is not known with its reason.

        Args:
            gpu: which one of the assumed.
        """
        spec, card = self.catalog.spec(job.model), self.catalog.model_card(job.model)
        recipe = self.catalog.method(job.method).variants[job.variant]
        devices = spec.gpus  # a training runs on one node
        if lost := lacking(spec):
            return None, None, [f"memory and hours of training: {card} has no {' and no '.join(lost)}"]
        if not self._fine_tunes(job.method):
            return None, None, [f"memory and hours of training: {job.method} has a trainer of its own"]
        try:
            stages = list(self._stages(job, recipe))
        except UpkeepError as error:
            return None, None, [f"memory and hours of training: {error.problem}"]
        processes = processes_of(spec, [given for given, _ in stages])
        found = []
        for given, rows in stages:
            at_once, parts = shares(given["batch"], given["device_batch"], processes)
            took = memory(spec, given, at_once, parts, rows.longest, devices=devices)
            found.append(
                TrainingPlan(gpus=devices, gpu=gpu, at_once=at_once, parts=parts, longest=rows.longest, memory=took)
            )
        most = max(found, key=lambda one: one.memory.peak)
        one, unknown = self.assumptions.gpus[gpu], list[str]()
        if most.memory.peak > (room := one.memory_gb * 1e9):
            unknown.append(
                f"it does not fit: {most.memory.peak / 1e9:.0f} GB on each of {devices} {gpu}, which has"
                f" {room / 1e9:.0f} GB; it needs more GPUs (`gpus` of {card}), or a smaller `device_batch`"
            )
        if any(rows.tokens is None for _, rows in stages):
            return most, None, [*unknown, f"hours of training: {job.dataset} is not at hand"]
        steps = sum(operations(spec, given, given["epochs"] * (rows.tokens or 0)) for given, rows in stages)
        return most, steps / (one.tflops * 1e12 * self.assumptions.prefill_share) / 3600, unknown

    def _fine_tunes(self, method: str) -> bool:
        """Whether a method's code imports the trainer whose memory and time are known."""
        code = (self.catalog.root / "methods" / method).glob("*.py")
        return any(FINE_TUNING.search(path.read_text("utf-8", "replace")) for path in code)

    def _stages(self, job: Training, recipe: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Rows]]:
        """Recipe and samples of each run of the trainer. One on documents and pairs together has rows of both.

        Raises:
            UpkeepError: a recipe lacks what is counted by, or there is nothing that it could learn from.
        """
        of = {"cpt": "C", "sft": "Q"}
        parts = [(of[name], recipe | recipe[name]) for name in of if isinstance(recipe.get(name), Mapping)]
        card = self.catalog.method(job.method)
        for kinds, given in parts or [(supervision_of(card, job.variant), recipe)]:
            _require(given, kinds, job)
            rows = [self._documents(job, given)] if "C" in kinds else []
            rows += [self._pairs(job, given)] if "Q" in kinds else []
            known = [one.tokens for one in rows if one.tokens is not None]
            yield given, Rows(max(one.longest for one in rows), sum(known) if len(known) == len(rows) else None)

    def _dataset(self, name: str) -> CountedDataset | None:
        if name not in self._datasets:
            try:
                self._datasets[name] = CountedDataset(self.catalog, name, self.say)
            except UpkeepError:  # the plan of its cells says why
                self._datasets[name] = None
        return self._datasets[name]

    def _documents(self, job: Training, recipe: Mapping[str, Any]) -> Rows:
        most = min(recipe["piece_tokens"], self.catalog.spec(job.model).context_length)
        if (dataset := self._dataset(job.dataset)) is None:
            return Rows(most, None)
        rate = dataset.tokens_per_byte(None)
        sizes = [len(one.text.encode()) * rate for member in members(self.catalog, job) for one in member.documents]
        return Rows(min(most, round(max(sizes, default=0))), sum(sizes))

    def _pairs(self, job: Training, recipe: Mapping[str, Any]) -> Rows:
        most = recipe.get("max_tokens") or self.catalog.spec(job.model).context_length
        if (dataset := self._dataset(job.dataset)) is None:
            return Rows(min(most, self.assumptions.pair_tokens), None)
        rate, prompt = dataset.tokens_per_byte(None), Prompt(self.catalog.prompt_of(job.dataset))
        sizes = [min(most, rate * _bytes(prompt, one)) for member in members(self.catalog, job) for one in member.pairs]
        return Rows(round(max(sizes, default=0)), sum(sizes))


def _require(recipe: Mapping[str, Any], kinds: str, job: Training) -> None:
    """Raises UpkeepError where a recipe lacks what the formula needs."""
    needed: list[type[Struct]] = [
        _Recipe,
        *([_OfPieces] if "C" in kinds else []),
        *([_OfAdapter] if recipe.get("adapter") == "lora" else []),
    ]
    for kind in needed:
        try:
            msgspec.convert(recipe, kind)
        except msgspec.ValidationError as error:
            raise UpkeepError(f"the recipe {job.method}/{job.variant}: {error}") from None


def _bytes(prompt: Prompt, pair: Pair) -> int:
    """Of a pair as it is learnt."""
    probe = Probe(id="", question_id="", stream="", position=0, question=pair.question, options=None, form=prompt.form)
    asked = "".join("".join(message["parts"]) for message in prompt.messages(probe, Context()))
    return len((asked + prompt.target(pair.answer)).encode())
