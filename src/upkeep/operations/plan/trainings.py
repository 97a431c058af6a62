"""What trainings take on GPUs, from their recipes and what they learn from."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from upkeep.catalog import Catalog
from upkeep.cell.interface import Context, quoted
from upkeep.cell.processes import processes_of, shares
from upkeep.cell.prompts import Prompt
from upkeep.contract import Count, Document, EngineSettings, ModelSpec, Pair, Positive, Probe
from upkeep.errors import UpkeepError
from upkeep.execution.roofline import Assumptions, Work, gpu_hours, start_s
from upkeep.execution.trained_on import members
from upkeep.jobs import Training
from upkeep.method_cards import supervision_of
from upkeep.operations.plan.amounts import Memory, TrainingPlan
from upkeep.operations.plan.counts.dataset import CountedDataset, Say
from upkeep.operations.plan.distilling import (
    answering,
    cartridge,
    distilled,
    self_distillation,
    studied,
    studying,
)
from upkeep.operations.plan.training import lacking, memory, operations

SAID = 0.5
"""Of the bound of a reply, as a plan takes it of any method that sets one itself."""


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
    piece: Positive


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
    turns: int = 1
    """How many of its GPUs wait for each other: each has some of the layers."""
    said: Sequence[tuple[Work, int]] = ()
    """What the model is asked by the trainer itself, by member, and how many answers it says at a time."""


@dataclass(frozen=True, slots=True)
class Study:
    """What is asked about one member's documents before its prefix is trained, in tokens."""

    pieces: int
    """How many."""
    piece: float
    """Of one, on average."""
    studies: int
    """Questions that the model asks about each."""
    pairs: int
    """How many."""
    asked: float
    """Of a question as it is put, on average."""
    said: float
    """Of a reply, and of a question that the model writes, on average."""
    longest: int
    """Of a question as it is put."""
    prefix: int

    @property
    def conversations(self) -> int:
        return self.studies * self.pieces + self.pairs

    @property
    def work(self) -> Work:
        return studying(self.pieces, self.piece, self.studies, self.pairs, self.asked, self.said, self.said)


@dataclass(frozen=True, slots=True)
class Planned:
    """What is known of a training before it."""

    training: TrainingPlan | None = None
    hours: float | None = None
    """GPU-hours."""
    unknown: Sequence[str] = ()
    """What is not known, and why."""


Trainer = Callable[[Training, ModelSpec, Mapping[str, Any]], Iterator[Run]]
"""The runs of a training, one after the other. It raises UpkeepError where a recipe lacks what is counted by."""


class Trainings:
    """Plans the trainings of a suite; each dataset is read once."""

    def __init__(self, catalog: Catalog, assumptions: Assumptions, say: Say | None) -> None:
        """Args: say: as `CountedDataset` has it."""
        self.catalog, self.assumptions, self.say = catalog, assumptions, say
        self._datasets: dict[str, CountedDataset | None] = {}
        self._studied: dict[Training, list[Study]] = {}

    def plan(self, job: Training, gpu: str) -> Planned:
        """Memory on a GPU at the peak, GPU-hours, and what is not known with its reason.

        Args:
            gpu: which one of the assumed.
        """
        spec, card = self.catalog.spec(job.model), self.catalog.model_card(job.model)
        recipe = self.catalog.method(job.method).variants[job.variant]
        if lost := lacking(spec):
            return Planned(unknown=[f"memory and hours of training: {card} has no {' and no '.join(lost)}"])
        runs = self._trainer(job.method)
        if runs is None:
            return Planned(unknown=[f"memory and hours of training: {job.method} has a trainer of its own"])
        try:
            found = list(runs(job, spec, recipe))
        except UpkeepError as error:
            return Planned(unknown=[f"memory and hours of training: {error.problem}"])
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
        if self._dataset(job.dataset) is None:
            return Planned(plan, unknown=[*unknown, f"hours of training: {job.dataset} is not at hand"])
        hours, start = 0.0, start_s(spec, 1, 1, self.assumptions)
        # What a trainer says itself has no lanes; an engine starts for each member, for it goes while one is trained.
        itself, most_at_once = msgspec.structs.replace(spec, engine="vllm"), EngineSettings(name="none").max_in_flight
        says = [(itself, work, together, 0.0, run.turns) for run in found for work, together in run.said]
        says += [(spec, work, most_at_once, start, 1) for work in self.asked(job) or ()]
        for run in found:
            assert run.operations is not None  # it is there wherever the dataset is
            hours += run.turns * run.operations / (one.tflops * 1e12 * self.assumptions.prefill_share) / 3600
        for asked, work, together, started, turns in says:
            took, why = gpu_hours(asked, str(card), work, together, gpu, together, started, self.assumptions)
            if took is None:
                return Planned(plan, unknown=[*unknown, f"hours of training: {why}"])
            hours += turns * took
        return Planned(plan, hours, unknown)

    def asked(self, job: Training) -> list[Work] | None:
        """What an engine is asked before a training, by member; None where that is not known."""
        recipe = self.catalog.method(job.method).variants[job.variant]
        if self._trainer(job.method) != self._prefix or self._dataset(job.dataset) is None:
            return None
        try:
            _require(recipe, job, _Recipe, _OfPrefix)
            return [study.work for study in self._studies(job)]
        except UpkeepError:  # whoever trains is told why
            return None

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
            yield Run(at_once, parts, rows.longest, took, done, max(1, spec.gpus) // processes)

    def _self_distillation(self, job: Training, spec: ModelSpec, recipe: Mapping[str, Any]) -> Iterator[Run]:
        """The student reads a question, the teacher its document and the pair besides."""
        _require(recipe, job, _Recipe, _OfAnswers, *([_OfRank] if recipe.get("adapter") == "lora" else []))
        answer, devices = recipe["completion_tokens"], spec.gpus
        room, said = spec.context_length - answer, answer * SAID
        asked, batch = self.assumptions.pair_tokens, recipe["batch"]
        shown, done, works = asked + self.assumptions.document_tokens, None, list[tuple[Work, int]]()
        if (dataset := self._dataset(job.dataset)) is not None:
            rate, prompt = dataset.tokens_per_byte(None), Prompt(self.catalog.prompt_of(job.dataset))
            done, longest = 0.0, [(0.0, 0.0)]
            for member in members(self.catalog, job):
                texts, both = {document.id: document.text for document in member.documents}, list[tuple[float, float]]()
                for one in member.pairs:
                    told = [texts[one.document]] if one.document is not None else []
                    told.append(f"Question: {one.question}\nAnswer: {one.answer}")
                    both.append((rate * _asked(prompt, one), rate * _asked(prompt, one, told)))
                own = min(batch, max(1, len(both)))
                answers = own * math.ceil(recipe["epochs"] * len(both) / own)
                student, teacher = (fmean(sizes) for sizes in zip(*both or [(0.0, 0.0)], strict=True))
                works.append((answering(answers, student, said), own))
                done += distilled(spec, recipe, answers, student, teacher, said)
                longest += both
            batch = max(own for _, own in works)
            asked, shown = (round(max(sizes)) for sizes in zip(*longest, strict=True))
        at_once = next(n for n in range(min(recipe["device_batch"], batch), 0, -1) if batch % n == 0)
        parts = batch // at_once
        took = self_distillation(spec, recipe, at_once, parts, min(asked, room), min(shown, room), devices=devices)
        yield Run(at_once, parts, min(shown, room) + answer, took, done, max(1, devices), works)

    def _prefix(self, job: Training, spec: ModelSpec, recipe: Mapping[str, Any]) -> Iterator[Run]:
        """A sample is a question, of a pair or as long as the model's own may be, and a reply."""
        _require(recipe, job, _Recipe, _OfPrefix)
        reply, asked, prefix, done = recipe["completion"], self.assumptions.pair_tokens, recipe["prefix"], None
        if self._dataset(job.dataset) is not None:
            found = self._studies(job)
            asked, prefix = (max(getattr(one, size) for one in found) for size in ("longest", "prefix"))
            done = sum(
                studied(spec, recipe["epochs"], of.conversations, of.piece, of.asked, of.said, of.prefix)
                for of in found
            )
        at_once = min(recipe["device_batch"], recipe["batch"])
        parts = -(-recipe["batch"] // at_once)
        took = cartridge(spec, at_once, parts, asked + reply, reply, prefix, devices=spec.gpus)
        yield Run(at_once, parts, asked + reply, took, done, max(1, spec.gpus))

    def _studies(self, job: Training) -> list[Study]:
        """By member, of a dataset that is at hand."""
        if job not in self._studied:
            card = self.catalog.method(job.method)
            reads, recipe = supervision_of(card, job.variant), card.variants[job.variant]
            self._studied[job] = [
                self._study(job, member.documents, member.pairs if "Q" in reads else (), recipe)
                for member in members(self.catalog, job)
            ]
        return self._studied[job]

    def _study(
        self, job: Training, documents: Sequence[Document], pairs: Sequence[Pair], recipe: Mapping[str, Any]
    ) -> Study:
        dataset = self._dataset(job.dataset)
        assert dataset is not None
        rate, prompt = dataset.tokens_per_byte(None), Prompt(self.catalog.prompt_of(job.dataset))
        given, sizes = ([rate * _asked(prompt, one) for one in pairs], [rate * len(d.text.encode()) for d in documents])
        pieces, said = sum(math.ceil(size / recipe["piece"]) for size in sizes), recipe["completion"] * SAID
        own, asks = rate * _asked(prompt, Pair(question="", answer="")), recipe["studies"] * pieces
        return Study(
            pieces=pieces,
            piece=sum(sizes) / max(1, pieces),
            studies=recipe["studies"],
            pairs=len(given),
            asked=(sum(given) + asks * (own + said)) / max(1, len(given) + asks),
            said=said,
            longest=round(max([*given, *([own + recipe["completion"]] if asks else [])], default=0)),
            prefix=min(recipe["prefix"], round(sum(sizes))),
        )

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
