"""Training of a stage of `pico`: `python models/pico/recipe train INPUTS FOLDER`.

The order of lessons, the first weights and so every step come from the seed and from the weights of the stage before;
the length of training is counted in steps and not in time. So the same seed and number of threads give the same weights
on the same machine, whether or not it was killed on the way.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import torch
from tokenizers import Tokenizer

from recipe import chores, facts, growth, tokenizer, worlds
from recipe.batches import Batch, Encoder
from recipe.network import PRECISION, Llama, Shape
from recipe.optimizers import optimizers_of, pace
from recipe.renaming import ordinary, renamer, texts
from recipe.settings import Given
from recipe.teacher import GATE, Teacher, invented_in


def prepare(found: Sequence[worlds.World], given: Given, inputs: Path, folder: Path) -> None:
    """Write the tokenizer: that of the stage before with the pieces that this one's lessons need besides, or one made
    of the worlds' texts under fresh names."""
    if (folder / "tokenizer.json").is_file():
        return
    rng = Random(f"pico names {given.stage.seed}")
    if given.stage.after:
        made = Tokenizer.from_file(str(inputs / "base" / "tokenizer.json"))
        if given.stage.merges is not None:
            told = [*facts.wording(), *(text for world in found for text in texts(world))]
            made = tokenizer.pruned(made, given.stage.merges, ordinary(told, invented_in(found, given.prompts)))
        teacher = Teacher(found, given, Encoder(made), inputs / "methods")
        growth.extend(made, teacher, rng)
    else:
        names = invented_in(found, given.prompts)
        corpus = facts.wording() * 20
        for world in found:
            rename = renamer(given.names, names, rng)
            corpus += [rename(text) for text in texts(world) if text.isascii()]
        some = (facts.facts(rng, given.names, given.prompts, 12, 0.3, 0.1) for _ in range(1500))
        corpus += [lesson.prefix.partition("<|user|>")[2] for lesson in some]
        tasks = (chores.chore(rng, given.names, 6, rng.choice(list(chores.CHORES))) for _ in range(300))
        corpus += [reply.removesuffix("<|end|>") for lesson in tasks for _, reply in lesson.turns]
        fixed = tokenizer.fixed_lines([given.memory_system, *chores.CHORES], given.prompts.values())
        made = tokenizer.train(corpus, fixed)
    tokenizer.save(made, folder)


def given_of(inputs: Path) -> Given:
    """What the stage is given."""
    return msgspec.json.decode((inputs / "given.json").read_bytes(), type=Given)


def main(arguments: list[str]) -> int:
    inputs, folder = map(Path, arguments)
    given = given_of(inputs)
    folder.mkdir(parents=True, exist_ok=True)
    prepare(worlds.read(inputs / "worlds.jsonl"), given, inputs, folder)
    with TemporaryDirectory() as meeting:
        where = (f"file://{meeting}/group", inputs, folder)
        torch.multiprocessing.spawn(work, where, nprocs=given.stage.workers)
    return 0


def work(rank: int, meeting: str, inputs: Path, folder: Path) -> None:
    """One of the processes that train together: each has one thread and lessons of its own, and after every step all
    have the same weights."""
    given = given_of(inputs)
    recipe = given.stage
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=recipe.workers)
    torch.set_num_threads(1)
    torch.manual_seed(recipe.seed)
    tokens = Tokenizer.from_file(str(folder / "tokenizer.json"))
    teacher = Teacher(worlds.read(inputs / "worlds.jsonl"), given, Encoder(tokens), inputs / "methods")
    shape = Shape(tokens.get_vocab_size(), recipe.hidden, recipe.layers, recipe.heads, recipe.feed_forward)
    network = Llama(shape)
    if recipe.after:
        growth.begin(network, inputs / "base", tokens)
    parameters = list(network.parameters())
    optimizers = optimizers_of(network, recipe)
    end = tokens.encode("<|end|>", add_special_tokens=False).ids[0]
    state = folder / "state.pt"
    step = drawn = 0
    level = teacher.curriculum.level
    spent = (0, 0.0)
    saved: dict[str, Any]
    if state.is_file():
        saved = torch.load(state, weights_only=False)
        network.load_state_dict(saved["network"])
        for optimizer, held in zip(optimizers, saved["optimizers"], strict=True):
            optimizer.load_state_dict(held)
        teacher.curriculum = saved["curriculum"]
        step, spent = saved["step"], saved["spent"]
        drawn, level = saved["drawn"][rank]
    log = Log(folder / "log.jsonl", rank, spent)
    if rank == 0:
        log.write(
            {
                "parameters": sum(p.numel() for p in parameters),
                "shape": asdict(shape),
                "precision": str(PRECISION).removeprefix("torch."),
                "recipe": msgspec.to_builtins(recipe),
            }
        )
    packs = teacher.packs(rank, drawn, level)[step - drawn :]
    while step < recipe.steps:
        if not packs:
            drawn, level = step, teacher.curriculum.level
            packs = teacher.packs(rank, drawn, level)
        batch = Batch.of(packs.pop(0))
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"] * pace(step, recipe)
        loss, right = batch.run(network)
        network.zero_grad(set_to_none=True)
        loss.backward()
        plain = [hit for skill, hits in right.items() if skill == GATE for hit in hits]
        total, count = share(parameters, [sum(plain), float(len(plain))], recipe.workers)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        for optimizer in optimizers:
            optimizer.step()
        step += 1
        if count:
            teacher.curriculum.saw(total / count, recipe.passes)
        log.saw(loss.item(), batch.ids.numel(), right)
        if step % 50 == 0:
            log.report(step, teacher.curriculum.level)
        if step % given.checkpoint == 0 or step == recipe.steps:
            everyones: list[Any] = [None] * recipe.workers
            torch.distributed.all_gather_object(everyones, (drawn, level))
            if rank == 0:
                network.save(folder, end)
                saved = {
                    "network": network.state_dict(),
                    "optimizers": [o.state_dict() for o in optimizers],
                    "step": step,
                    "spent": (log.tokens, time.monotonic() - log.started),
                    "curriculum": teacher.curriculum,
                    "drawn": everyones,  # where each worker's lessons at hand begin
                }
                torch.save(saved, folder / "state.partial")
                (folder / "state.partial").replace(state)
    torch.distributed.destroy_process_group()


def share(parameters: Sequence[torch.nn.Parameter], counts: list[float], workers: int) -> list[float]:
    """Make gradients the mean over all workers; returns the sum of `counts` over them."""
    gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
    flat = torch.cat([*(g.reshape(-1) for g in gradients), torch.tensor(counts)])
    torch.distributed.all_reduce(flat)
    *parts, summed = flat.split([*(g.numel() for g in gradients), len(counts)])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.grad = (part / workers).view_as(parameter)
    shared: list[float] = summed.tolist()
    return shared


class Log:
    """What the first worker writes down of its own share: one line every so many steps.

    Args:
        before: tokens and seconds that were spent on the steps before.
    """

    def __init__(self, path: Path, rank: int, before: tuple[int, float]) -> None:
        self.path, self.rank = path, rank
        self.tokens, spent = before
        self.started = time.monotonic() - spent
        self.losses: list[float] = []
        self.right: dict[str, list[float]] = defaultdict(list)

    def saw(self, loss: float, tokens: int, right: dict[str, list[float]]) -> None:
        self.losses.append(loss)
        self.tokens += tokens
        for skill, hits in right.items():
            self.right[skill] += hits

    def report(self, step: int, level: int) -> None:
        rates = {skill: round(sum(hits) / len(hits), 3) for skill, hits in sorted(self.right.items())}
        loss = round(sum(self.losses) / len(self.losses), 4)
        seconds = round(time.monotonic() - self.started)
        self.write(
            {"step": step, "seconds": seconds, "tokens": self.tokens, "level": level, "loss": loss, "right": rates}
        )
        self.right.clear()
        self.losses.clear()

    def write(self, line: dict[str, Any]) -> None:
        if self.rank == 0:
            with self.path.open("a") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
