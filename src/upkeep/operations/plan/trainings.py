"""What trainings take on GPUs, from their recipes and what they learn from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from upkeep.catalog import Catalog
from upkeep.cell.interface import Context, quoted
from upkeep.cell.processes import processes_of, shares
from upkeep.cell.prompts import Prompt
from upkeep.contract import Count, ModelSpec, Pair, Positive, Probe
from upkeep.errors import UpkeepError
from upkeep.execution.roofline import Assumptions
from upkeep.execution.trained_on import members
from upkeep.jobs import Training
from upkeep.method_cards import supervision_of
from upkeep.operations.plan.amounts import Memory, TrainingPlan
from upkeep.operations.plan.counts.dataset import CountedDataset, Say
from upkeep.operations.plan.distilling import cartridge, self_distillation
from upkeep.operations.plan.training import lacking, memory, operations


class _Recipe(Struct):
    """What the formula needs of every recipe."""

    epochs: Annotated[float, Meta(gt=0)]
    batch: Positive
    device_batch: Positive
    max_tokens: Positive | None = None
    train_whole: list[str] | None = None


class _OfPieces(Struct):
    piece_tokens: Positive


class _OfRank(Struct):
    lora_rank: Positive


class _OfAdapter(_OfRank):
    lora_dropout: Annotated[float, Meta(ge=0)]


class _OfAnswers(Struct):
    completion_tokens: Positive


class _OfPrefix(Struct):
    prefix: Positive
    studies: Count
    completion: Positive


@dataclass(frozen=True, slots=True)
class Rows:
    """The samples that a stage learns from."""

    longest: int
    """Tokens."""
    tokens: float | None
    """Of all together; None where the dataset is not at hand."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a trainer on GPUs."""

    at_once: int
    parts: int
    longest: int
    memory: Memory
    operations: float | None
    """None where the dataset is not at hand."""


Trainer = Callable[[Training, ModelSpec, Mapping[str, Any]], Iterator[Run]]
"""The runs of a training, one after the other. It raises UpkeepError where a recipe lacks what is counted by."""


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
        if lost := lacking(spec):
            return None, None, [f"memory and hours of training: {card} has no {' and no '.join(lost)}"]
        runs = self._trainer(job.method)
        if runs is None:
            return None, None, [f"memory and hours of training: {job.method} has a trainer of its own"]
        try:
            found = list(runs(job, spec, recipe))
        except UpkeepError as error:
            return None, None, [f"memory and hours of training: {error.problem}"]
        most = max(found, key=lambda run: run.memory.peak)
        plan = TrainingPlan(
            gpus=spec.gpus,  # a training runs on one node
            gpu=gpu,
            at_once=most.at_once,
            parts=most.parts,
            longest=most.longest,
            memory=most.memory,
        )
        one, unknown = self.assumptions.gpus[gpu], list[str]()
        if most.memory.peak > (room := one.memory_gb * 1e9):
            unknown.append(
                f"it does not fit: {most.memory.peak / 1e9:.0f} GB on each of {spec.gpus} {gpu}, which has"
                f" {room / 1e9:.0f} GB; it needs more GPUs (`gpus` of {card}), or a smaller `device_batch`"
            )
        known = [run.operations for run in found if run.operations is not None]
        if self._dataset(job.dataset) is None:
            return plan, None, [*unknown, f"hours of training: {job.dataset} is not at hand"]
        if len(known) < len(found):
            return plan, None, [*unknown, f"hours of training: what {job.method} has the model say is not counted"]
        return plan, sum(known) / (one.tflops * 1e12 * self.assumptions.prefill_share) / 3600, unknown

    def _trainer(self, method: str) -> Trainer | None:
        """Whose memory is known, by what a method's code imports; None of any other."""
        folder = self.catalog.root / "methods" / method
        code = "\n".join(path.read_text("utf-8", "replace") for path in sorted(folder.glob("*.py")))
        known: dict[str, Trainer] = {
            r"upkeep\.cell(\.| import )finetuning\b": self._fine_tuning,
            r"\btrl\.experimental\.sdft\b": self._self_distillation,
            r"\bpeft import .*\bCartridgeConfig\b": self._prefix,
        }
        return next((runs for imported, runs in known.items() if re.search(imported, code)), None)

    def _fine_tuning(self, job: Training, spec: ModelSpec, recipe: Mapping[str, Any]) -> Iterator[Run]:
        stages = list(self._stages(job, recipe))
        processes = processes_of(spec, [given for given, _ in stages])
        for given, rows in stages:
            at_once, parts = shares(given["batch"], given["device_batch"], processes)
            took = memory(spec, given, at_once, parts, rows.longest, devices=spec.gpus)
            done = None if rows.tokens is None else operations(spec, given, given["epochs"] * rows.tokens)
            yield Run(at_once, parts, rows.longest, took, done)

    def _self_distillation(self, job: Training, spec: ModelSpec, recipe: Mapping[str, Any]) -> Iterator[Run]:
        """The student reads a question, the teacher its document and the pair besides."""
        _require(recipe, job, _Recipe, _OfAnswers, *([_OfRank] if recipe.get("adapter") == "lora" else []))
        room = spec.context_length - recipe["completion_tokens"]
        asked, batch = self.assumptions.pair_tokens, recipe["batch"]
        shown = asked + self.assumptions.document_tokens
        if (dataset := self._dataset(job.dataset)) is not None:
            rate, prompt = dataset.tokens_per_byte(None), Prompt(self.catalog.prompt_of(job.dataset))
            both = []
            for member in members(self.catalog, job):
                texts = {document.id: document.text for document in member.documents}
                for one in member.pairs:
                    told = [texts[one.document]] if one.document is not None else []
                    told.append(f"Question: {one.question}\nAnswer: {one.answer}")
                    both.append((_asked(prompt, one), _asked(prompt, one, told)))
                batch = min(batch, len(member.pairs)) or batch
            asked, shown = (round(rate * max((sizes[n] for sizes in both), default=0)) for n in (0, 1))
        at_once = next(n for n in range(min(recipe["device_batch"], batch), 0, -1) if batch % n == 0)
        took = self_distillation(
            spec, recipe, at_once, batch // at_once, min(asked, room), min(shown, room), devices=spec.gpus
        )
        yield Run(at_once, batch // at_once, min(shown, room) + recipe["completion_tokens"], took, None)

    def _prefix(self, job: Training, spec: ModelSpec, recipe: Mapping[str, Any]) -> Iterator[Run]:
        """A sample is a question, of a pair or as long as the model's own may be, and a reply."""
        _require(recipe, job, _Recipe, _OfPrefix)
        reply = recipe["completion"]
        asked, prefix = self.assumptions.pair_tokens, recipe["prefix"]
        if (dataset := self._dataset(job.dataset)) is not None:
            rate, prompt = dataset.tokens_per_byte(None), Prompt(self.catalog.prompt_of(job.dataset))
            pairs = [one for member in members(self.catalog, job) for one in member.pairs]
            given = [rate * _asked(prompt, one) for one in pairs]
            own = rate * _asked(prompt, Pair(question="", answer="")) + reply
            asked = round(max([*given, *([own] if recipe["studies"] else [])], default=0))
            texts = [sum(len(d.text.encode()) for d in member.documents) for member in members(self.catalog, job)]
            prefix = min(prefix, round(rate * max(texts, default=0)))
        at_once = min(recipe["device_batch"], recipe["batch"])
        parts = -(-recipe["batch"] // at_once)
        took = cartridge(spec, at_once, parts, asked + reply, reply, prefix, devices=spec.gpus)
        yield Run(at_once, parts, asked + reply, took, None)

    def _stages(self, job: Training, recipe: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Rows]]:
        """Recipe and samples of each run of the trainer. One on documents and pairs together has rows of both.

        Raises:
            UpkeepError: a recipe lacks what is counted by, or there is nothing that it could learn from.
        """
        of = {"cpt": "C", "sft": "Q"}
        parts = [(of[name], recipe | recipe[name]) for name in of if isinstance(recipe.get(name), Mapping)]
        card = self.catalog.method(job.method)
        for kinds, given in parts or [(supervision_of(card, job.variant), recipe)]:
            needed = [_OfPieces] if "C" in kinds else list[type[Struct]]()
            _require(given, job, _Recipe, *needed, *([_OfAdapter] if given.get("adapter") == "lora" else []))
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


def _require(recipe: Mapping[str, Any], job: Training, *needed: type[Struct]) -> None:
    """Raises UpkeepError where a recipe lacks what the formula needs."""
    for kind in needed:
        try:
            msgspec.convert(recipe, kind)
        except msgspec.ValidationError as error:
            raise UpkeepError(f"the recipe {job.method}/{job.variant}: {error}") from None


def _bytes(prompt: Prompt, pair: Pair) -> int:
    """Of a pair as it is learnt."""
    return _asked(prompt, pair) + len(prompt.target(pair.answer).encode())


def _asked(prompt: Prompt, pair: Pair, shown: Sequence[str] = ()) -> int:
    """Bytes of a pair's question as the dataset's prompt puts it, over what is shown."""
    probe = Probe(id="", question_id="", stream="", position=0, question=pair.question, options=None, form=prompt.form)
    messages = prompt.messages(probe, Context(recent=quoted(shown, stream="")))
    return len("".join("".join(message["parts"]) for message in messages).encode())
