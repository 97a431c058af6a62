"""Fine-tuning by transformers' Trainer and PEFT: what the methods that train weights have in common.

A method says what it learns from, stage by stage; the parameters of its variant are the recipe of a stage:

| parameter | what it says |
| --- | --- |
| `epochs`, `batch` | samples that a step learns from: on all devices and in all accumulated parts together |
| `device_batch` | of these, at most so many at once on a device |
| `learning_rate`, `schedule` | `cosine` where it is not said; or `constant`, `linear` |
| `warmup` | share of the steps in which the rate grows; 0 where it is not said |
| `order: arrival` | samples in the order of their documents, in every epoch; else a random one |
| `adapter: lora` | with `lora_rank`, `lora_alpha`, `lora_dropout`, on all linear layers; else all weights are trained |
| `train_whole` | layers that are trained whole beside the adapter, which is then merged |
| `piece_tokens`, `max_tokens` | see `upkeep.cell.samples` |
| `checkpoint_minutes` | after so many minutes, what is done is kept |

AdamW (0.9, 0.999, 1e-8) without weight decay, gradients clipped at 1 (ImprintBench, C.2).
"""

from __future__ import annotations

import errno
import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from upkeep.cell.method import Tools
from upkeep.cell.processes import is_first, on_each, processes_of, shares
from upkeep.cell.samples import Material, Recipe, Sample
from upkeep.cell.training import POINTS, Checkpoints, Training, course_of, keeping, thinned
from upkeep.contract import Course

TRAINER, MADE = "trainer", "made"
"""Of a checkpoint: the Trainer's, and what the stages before have made."""
FULL = 2**20
"""Bytes that a disk without room may still have."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One run of the Trainer."""

    samples: Callable[[Material, Recipe], list[Sample]]
    recipe: Recipe


def finetune(training: Training, tools: Tools, *stages: Stage) -> Course:
    """Train stage after stage, each on what the one before made, and write the model to `training.output`.

    Adapters of several stages become one, whose rank is the sum of theirs.

    Returns:
        Steps, tokens and losses of all stages.

    Raises:
        ValueError: there is nothing to learn, a sample cannot be used, or a loss is no number.
        OSError: a disk without room; the last checkpoint is as it was.
        RuntimeError: either of these in one of several processes, which it names with what it said.
    """
    import torch

    processes = processes_of(training.spec, [stage.recipe for stage in stages])
    torch.set_num_threads(tools.threads if processes == 1 else 1)  # a process that is forked has no threads
    # Beside the model: what is moved from there into a checkpoint is not written twice.
    scratch = training.output.with_name(f"{training.output.name}.scratch")
    shutil.rmtree(scratch, ignore_errors=True)
    made, latest = scratch / MADE, training.checkpoints.latest
    made.mkdir(parents=True)
    if latest is not None:
        _link(latest / MADE, made)
    for number, stage in enumerate(stages):
        if not (made / f"{number}.json").exists():
            resumed = latest / TRAINER if latest is not None and number == len(_courses(latest / MADE)) else None
            with _room(training.checkpoints):
                weights = _weights(training, _folders(made), scratch / "weights")
            run = partial(_fit, training, tools, stage, weights, scratch, resumed, processes)
            on_each(processes, partial(run, made / str(number)))
    with _room(training.checkpoints):
        _write(training, [made / str(number) for number in range(len(stages))])
    told = _joined(_courses(made))
    shutil.rmtree(scratch)
    return told


def _fit(
    training: Training,
    tools: Tools,
    stage: Stage,
    weights: Path,
    scratch: Path,
    resumed: Path | None,
    processes: int,
    target: Path,
) -> None:
    """Train a stage, in each of so many processes."""
    import torch
    from transformers import AutoTokenizer

    torch.set_num_threads(tools.threads)
    tokenizer = AutoTokenizer.from_pretrained(training.weights, local_files_only=True, padding_side="right")
    if training.spec.chat_template is not None:
        tokenizer.chat_template = training.spec.chat_template
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    samples = stage.samples(Material(training, tools.prompt, tokenizer), stage.recipe)
    if not samples:
        raise ValueError("there is nothing to learn: no document and no pair with more than one token")
    run = _Run(training, tools, tokenizer, stage.recipe, weights, scratch, processes)
    with _room(training.checkpoints):
        course = run.fit(samples, target, resumed)
        if is_first():
            target.with_name(f"{target.name}.json").write_bytes(msgspec.json.encode(course))


class _Run:
    """One stage."""

    def __init__(
        self,
        training: Training,
        tools: Tools,
        tokenizer: Any,
        recipe: Recipe,
        weights: Path,
        scratch: Path,
        processes: int,
    ) -> None:
        self.training, self.tools, self.tokenizer, self.recipe = training, tools, tokenizer, recipe
        self.weights, self.scratch, self.processes = weights, scratch, processes

    def fit(self, samples: Sequence[Sample], target: Path, resumed: Path | None) -> Course:
        """Train, and write what was trained to `target`: whole weights or an adapter."""
        import torch
        from transformers import DataCollatorForSeq2Seq, PrinterCallback, Trainer, set_seed

        set_seed(self.tools.seed, deterministic=True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # costs half of the time and finds bugs only
        trainer = Trainer(
            model=self._network(),
            args=self._arguments(),
            train_dataset=[sample.row() for sample in samples],
            data_collator=DataCollatorForSeq2Seq(self.tokenizer),
            processing_class=self.tokenizer,
            callbacks=[_watching(self.training.checkpoints, self.recipe), self._keeping()],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train(resume_from_checkpoint=None if resumed is None else str(resumed))
        trained = trainer.model
        if self._lora and self.recipe.get("train_whole"):
            trained = trained.merge_and_unload()  # whole layers are no adapter that an engine could add
        elif self._lora:
            trained.peft_config[
                "default"
            ].base_model_name_or_path = self.training.spec.location  # not where it lies here
        state = trainer.accelerator.get_state_dict(trainer.model) if trainer.is_fsdp_enabled else None
        if is_first():
            trained.save_pretrained(target, state_dict=state, safe_serialization=True)
            self.tokenizer.save_pretrained(target)
        return course_of(trainer, self.recipe["epochs"] * sum(len(sample.tokens) for sample in samples))

    def _keeping(self) -> Any:
        made = self.scratch / MADE

        def put(written: Path, folder: Path) -> None:
            written.rename(folder / TRAINER)
            _link(made, folder / MADE)

        before = sum(course.steps for course in _courses(made))
        return keeping(self.training.checkpoints, self.recipe["checkpoint_minutes"], put, before)

    @property
    def _lora(self) -> bool:
        return bool(self.recipe.get("adapter") == "lora")

    def _network(self) -> Any:
        """The model that the stages before have made, with a new adapter where one is trained."""
        import torch
        from transformers import AutoModelForCausalLM

        spec, p = self.training.spec, self.recipe
        network = AutoModelForCausalLM.from_pretrained(
            self.weights,
            dtype=getattr(torch, spec.dtype),
            # Several GPUs and one process: each GPU has a share of the layers.
            device_map="auto" if spec.gpus > self.processes else None,
            local_files_only=True,
            use_safetensors=True,
        )
        if not self._lora:
            return network
        from peft import LoraConfig, get_peft_model

        config = LoraConfig(
            task_type="CAUSAL_LM",
            r=p["lora_rank"],
            lora_alpha=p["lora_alpha"],
            lora_dropout=p["lora_dropout"],
            target_modules="all-linear",
            modules_to_save=p.get("train_whole"),
        )
        return get_peft_model(network, config)

    def _arguments(self) -> Any:
        from transformers import TrainingArguments

        spec, p = self.training.spec, self.recipe
        at_once, parts = shares(p["batch"], p["device_batch"], self.processes)
        return TrainingArguments(
            output_dir=str(self.scratch / TRAINER),
            num_train_epochs=p["epochs"],
            learning_rate=p["learning_rate"],
            per_device_train_batch_size=at_once,
            gradient_accumulation_steps=parts,
            optim="adamw_torch",
            adam_beta1=0.9,
            adam_beta2=0.999,
            adam_epsilon=1e-8,
            weight_decay=0.0,
            lr_scheduler_type=p.get("schedule", "cosine"),
            warmup_steps=p.get("warmup", 0),
            max_grad_norm=1.0,
            train_sampling_strategy="sequential" if p.get("order") == "arrival" else "random",
            # Of several processes' weights accelerate would make float32: they stay what they are, and no layer casts.
            bf16=spec.dtype == "bfloat16" and self.processes == 1,
            use_cpu=spec.gpus == 0,
            gradient_checkpointing=spec.gpus > 0 and self.processes == 1,
            gradient_checkpointing_kwargs={"use_reentrant": False},
            # Weights, gradients and optimizer are divided among the processes.
            fsdp=self.processes > 1,
            fsdp_config={"activation_checkpointing": spec.gpus > 0} if self.processes > 1 else None,
            seed=self.tools.seed,
            data_seed=self.tools.seed,
            logging_steps=1,
            logging_nan_inf_filter=False,
            save_strategy="no",
            remove_unused_columns=False,
            report_to="none",
            disable_tqdm=True,
        )


# ---------------------------------------------------------------- what is kept


def _watching(checkpoints: Checkpoints, recipe: Recipe) -> Any:
    """Ends a training whose loss is no number before it could be kept."""
    from transformers import TrainerCallback

    class Watching(TrainerCallback):  # type: ignore[misc]
        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **_: Any) -> None:
            wrong = [name for name in ("loss", "grad_norm") if not math.isfinite(logs.get(name, 0.0))]
            if wrong:
                raise ValueError(
                    f"step {state.global_step}: {wrong[0]} is {logs[wrong[0]]}; what was kept before is as it was "
                    f"({_told(checkpoints)}). Choose a lower `learning_rate` than {recipe['learning_rate']}"
                )

    return Watching()


@contextmanager
def _room(checkpoints: Checkpoints) -> Iterator[None]:
    """Say of a disk without room that it has none: libraries that are not written in Python have ways of their own."""
    try:
        yield
    except Exception as error:
        place = os.statvfs(checkpoints.folder)
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        if not full and place.f_bavail * place.f_frsize > FULL:
            raise
        told = f"no space left to keep what is trained ({_told(checkpoints)} is as it was)"
        raise OSError(errno.ENOSPC, told, str(checkpoints.folder)) from error


def _told(checkpoints: Checkpoints) -> str:
    latest = checkpoints.latest
    return f"checkpoint {latest.name}" if latest is not None else "there is no checkpoint yet"


def _link(source: Path, target: Path) -> None:
    """The same files at another place, without another copy of what is in them."""
    shutil.copytree(source, target, copy_function=os.link, dirs_exist_ok=True)


# ---------------------------------------------------------------- what is made


def _courses(made: Path) -> list[Course]:
    """Of the stages that are done, in their order."""
    files = sorted(made.glob("*.json"), key=lambda path: int(path.stem))
    return [msgspec.json.decode(path.read_bytes(), type=Course) for path in files]


def _folders(made: Path) -> list[Path]:
    """What the stages that are done have made."""
    return [made / str(number) for number in range(len(_courses(made)))]


def _joined(courses: Sequence[Course]) -> Course:
    """One after the other, with as many points of each as there is room for."""
    most, steps = POINTS // len(courses), 0
    losses: list[tuple[int, float]] = []
    for course in courses:
        losses += [(steps + step, loss) for step, loss in thinned(course.losses, most)]
        steps += course.steps
    return Course(steps=steps, tokens=sum(course.tokens for course in courses), losses=losses)


def _split(training: Training, made: Sequence[Path]) -> tuple[Path, list[Path]]:
    """The last whole weights, and the adapters that were trained on them since."""
    base, adapters = training.weights, list[Path]()
    for folder in made:
        if (folder / "adapter_config.json").exists():
            adapters.append(folder)
        else:
            base, adapters = folder, list[Path]()
    return base, adapters


def _weights(training: Training, made: Sequence[Path], place: Path) -> Path:
    """Whole weights that a stage starts from: those of the stages before, with their adapters merged."""
    from upkeep.cell.adapters import merge

    base, adapters = _split(training, made)
    if not adapters:
        return base
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    merge(base, adapters, place)
    return place


def _write(training: Training, made: Sequence[Path]) -> None:
    """The model as it is published: an adapter of the model that was given where all stages trained one."""
    from upkeep.cell.adapters import join, merge

    base, adapters = _split(training, made)
    output = training.output
    if not adapters:
        base.rename(output)
    elif base == training.weights:
        join(adapters, output)
    else:
        output.mkdir()
        merge(base, adapters, output)
    for file in output.iterdir():
        file.chmod(0o644)  # weights are written for their owner alone, and other containers have other users
