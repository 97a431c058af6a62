"""Training of `pico`: `python -m upkeep.serving.pico.train INPUTS FOLDER`.

The order of lessons, the first weights and so every step come from the seed; the length of training is counted in
steps and not in time. So the same seed and number of threads give the same weights on the same machine.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional as F

from upkeep.contract import Form, Pair, PromptCard
from upkeep.serving.pico import lessons, tokenizer, worlds
from upkeep.serving.pico.lessons import Lesson
from upkeep.serving.pico.network import Llama, Shape
from upkeep.serving.pico.renaming import Pools, invented, renamer, texts


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All that decides the weights, besides the worlds."""

    seed: int = 0
    workers: int = 2
    """Processes of one thread each."""
    steps: int = 9400
    batch_tokens: int = 3072
    learning_rate: float = 2e-3
    """AdamW's, of the embedding and the gains."""
    muon_rate: float = 0.02
    warmup: int = 100
    fade: int = 500
    """Steps after which the learning rates are half of what they were: they go as 1 / (1 + step / fade). High ones find
    the way to look things up, and lose it again once there are many skills to learn."""
    decay: float = 0.3
    """Share of the steps at the end in which the learning rates fall to a twentieth of that."""
    weight_decay: float = 0.05
    hidden: int = 128
    layers: int = 4
    heads: int = 4
    feed_forward: int = 384
    room: int = 600
    """Tokens of documents in a lesson at most, at the end of the curriculum; some lessons have more."""
    passes: float = 0.9
    """Share of right answers at which the curriculum goes on to more facts."""


class Given(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`given.json`, beside `worlds.jsonl` (and `held_out.jsonl`, for the evaluation) in the folder of inputs."""

    recipe: Recipe
    memory_system: str
    """The system text of `memory_scaffold`."""
    prompts: dict[str, PromptCard]
    """Of the worlds, by name."""
    known: list[tuple[str, list[Pair]]]
    names: Pools
    """Those that training may use."""
    held_out: Pools
    """Those of the evaluation."""
    probes: int = 40
    """Of each dataset and method, in the evaluation."""


GATE = "facts short"
"""The skill that decides when the curriculum goes on."""
PLAIN = 2
"""Levels with nothing but facts at large, in order; the first of them has nothing but open questions."""
SHARES = {"short": 3.0, "choice": 2.5, "label": 2.0}
"""How often a dataset's probes of a form are asked: what is read comes before what is judged."""
HARD = {"oaks_babi_mini": 2.0, "imprint_news_mini": 1.5, "prelude_mini": 2.0, "evolveqa_aws_control_mini": 0.4}
"""Datasets that are asked more or less often than others."""
LEVELS = (4, 8, 14, 22)
"""Facts of a lesson at large, from first to last."""


@dataclass(slots=True)
class Curriculum:
    """What comes next, from how well the last went."""

    level: int = 0
    right: float = 0.0
    """Moving share of right answers to questions about facts at large."""
    since: int = 0

    def saw(self, right: float, passes: float) -> None:
        self.since += 1
        self.right += (right - self.right) * 0.05
        if self.level < len(LEVELS) and self.right >= passes and self.since >= 20:
            self.level, self.right, self.since = self.level + 1, 0.5, 0


@dataclass(slots=True)
class Encoded:
    """A lesson as tokens: one after the other the context and the turns."""

    skill: str
    ids: list[int]
    positions: list[int]
    parts: list[int]
    """0 for the context, then the number of the turn."""
    wanted: list[tuple[int, int]] = field(default_factory=list)
    """(where a reply's token is predicted, the turn)"""


class Encoder:
    def __init__(self, tokens: Tokenizer) -> None:
        self.tokens = tokens

    def size(self, text: str) -> int:
        return len(self.tokens.encode(text, add_special_tokens=False))

    def __call__(self, lesson: Lesson) -> Encoded:
        flat = [lesson.prefix, *itertools.chain.from_iterable(lesson.turns)]
        prefix, *rest = [e.ids for e in self.tokens.encode_batch_fast(flat, add_special_tokens=False)]
        encoded = Encoded(lesson.skill, list(prefix), list(range(len(prefix))), [0] * len(prefix))
        for turn, (question, reply) in enumerate(zip(rest[::2], rest[1::2], strict=True), start=1):
            start = len(encoded.ids)
            encoded.ids += [*question, *reply]
            encoded.positions += range(len(prefix), len(prefix) + len(question) + len(reply))
            encoded.parts += [turn] * (len(question) + len(reply))
            first = start + len(question) - 1
            encoded.wanted += [(first + n, turn) for n in range(len(reply))]
        return encoded


@dataclass(slots=True)
class Batch:
    ids: Tensor
    positions: Tensor
    mask: Tensor
    at: tuple[Tensor, Tensor]
    """Rows and columns of the places before a reply's tokens; at the end some that count for nothing."""
    turns: list[tuple[int, int]]
    """Of each place: (row, turn)."""
    skills: list[str]

    @classmethod
    def of(cls, rows: Sequence[Encoded]) -> Batch:
        length = _rounded(max(len(row.ids) for row in rows))

        def padded(values: list[int], filler: int) -> list[int]:
            return values + [filler] * (length - len(values))

        ids = torch.tensor([padded(row.ids, 0) for row in rows])
        positions = torch.tensor([padded(row.positions, 0) for row in rows])
        parts = torch.tensor([padded(row.parts, -1) for row in rows])
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        mask = causal & ((parts[:, None, :] == 0) | (parts[:, None, :] == parts[:, :, None]))
        places = [(n, at, turn) for n, row in enumerate(rows) for at, turn in row.wanted]
        filler = [0] * (_rounded(len(places)) - len(places))
        at = (torch.tensor([p[0] for p in places] + filler), torch.tensor([p[1] for p in places] + filler))
        return cls(ids, positions, mask[:, None], at, [(n, turn) for n, _, turn in places], [r.skill for r in rows])

    def run(self, network: Llama) -> tuple[Tensor, dict[str, list[float]]]:
        """Loss, and whether each turn's reply was right, by skill."""
        logits = network(self.ids, self.positions, self.mask, self.at)[: len(self.turns)]
        target = self.ids[self.at[0], self.at[1] + 1][: len(self.turns)]
        sizes = Counter(self.turns)
        # A long reply counts for more than a short one, but not for as much more as it has tokens.
        weights = torch.tensor([sizes[turn] ** -0.25 for turn in self.turns])
        loss = (F.cross_entropy(logits, target, reduction="none") * weights).sum() / weights.sum()
        hits = (logits.argmax(-1) == target).tolist()
        right: dict[tuple[int, int], bool] = {}
        for turn, hit in zip(self.turns, hits, strict=True):
            right[turn] = right.get(turn, True) and hit
        by_skill: dict[str, list[float]] = defaultdict(list)
        for (row, _), good in right.items():
            by_skill[self.skills[row]].append(float(good))
        return loss, by_skill


def _rounded(length: int) -> int:
    """The next of few lengths: every new one costs a CPU as much as a step does, for it is compiled for."""
    step = 64 if length <= 512 else 128
    return -(-length // step) * step


class Teacher:
    """Draws lessons."""

    def __init__(self, found: Sequence[worlds.World], given: Given, encoder: Encoder) -> None:
        self.recipe, self.pools, self.known, self.encoder = given.recipe, given.names, given.known, encoder
        self.memory_system, self.prompts = given.memory_system, given.prompts
        self.names = invented_in(found, given.prompts)
        self.curriculum = Curriculum()
        self.groups: dict[str, list[list[lessons.Group]]] = defaultdict(list)
        for world in found:
            forms: dict[str, list[lessons.Group]] = defaultdict(list)
            for group in lessons.groups(world, self.prompts):
                forms[group.probes[0][0].form].append(group)
            for form, groups in sorted(forms.items()):
                self.groups[f"{world.dataset} {form}"].append(groups)
        self.kinds = sorted(self.groups)
        self.shares = [SHARES[form] * HARD.get(name, 1.0) for name, _, form in (k.partition(" ") for k in self.kinds)]

    def draw(self, rng: Random, progress: float) -> Lesson:
        level = self.curriculum.level
        # To write down what is told is to copy it, which all else builds on.
        if rng.random() < (0.25 if level < 1 else 0.04):
            return lessons.notes(rng, self.pools, rng.randint(1, 8), self.memory_system)
        if level >= 1 and rng.random() < 0.05:
            return lessons.chore(rng, self.pools, rng.randint(2, 8), rng.choice(list(lessons.CHORES)))
        if level < PLAIN or rng.random() < max(0.15, 0.55 - progress):
            # Easier levels come back now and then.
            count = LEVELS[min(level, len(LEVELS) - 1)] if rng.random() < 0.7 else rng.choice(LEVELS[: level + 1])
            count = max(2, count - rng.randrange(1 + count // 3))
            form: Form = rng.choices(("short", "choice", "label"), (4, 2, 2))[0] if level else "short"
            if form != "short":  # first to find and then to judge is learned of few facts
                count = min(count, rng.choice((2, 3, 4, 8)))
            if level < PLAIN:
                return lessons.facts(rng, self.pools, self.prompts, count, 0.0, 0.0, form, plain=True)
            return lessons.facts(rng, self.pools, self.prompts, count, rng.choice((0.0, 0.0, 0.4)), 0.12, form)
        if self.known and rng.random() < 0.08:
            prompt, pairs = rng.choice(self.known)
            return lessons.known(prompt, self.prompts[prompt], pairs, rng)
        group = rng.choice(rng.choice(self.groups[rng.choices(self.kinds, self.shares)[0]]))
        if group.world.prompt.startswith("oaks") and rng.random() < 0.05:
            return lessons.chronicle(group, rng, self.pools, self.names, self.memory_system)
        if rng.random() < 0.08:
            return lessons.closed(group, rng, self.pools, self.names)
        room = round(self.recipe.room * min(1.0, 0.3 + 1.5 * progress))
        room = rng.choice((room // 4, room // 2, room)) if rng.random() < 0.93 or progress < 0.5 else 3 * room
        return lessons.reading(group, rng, self.pools, self.names, self.encoder.size, room)

    def batches(self, rng: Random, progress: Callable[[], float]) -> Iterator[Batch]:
        """Lessons of like length together, so that little is padding."""
        while True:
            rows = []
            total = 0
            while total < 4 * self.recipe.batch_tokens:
                row = self.encoder(self.draw(rng, progress()))
                if len(row.ids) <= 1900:
                    rows.append(row)
                    total += len(row.ids)
            rows.sort(key=lambda row: len(row.ids))
            packs: list[list[Encoded]] = [[]]
            for row in rows:
                if packs[-1] and (len(packs[-1]) + 1) * len(row.ids) > self.recipe.batch_tokens:
                    packs.append([])
                packs[-1].append(row)
            rng.shuffle(packs)
            yield from map(Batch.of, packs)


def pace(step: int, recipe: Recipe) -> float:
    """Of the learning rates: a warm-up, a slow fade, and a linear fall at the end."""
    start = recipe.steps * (1 - recipe.decay)
    fall = 1 - 0.95 * max(0.0, (step - start) / (recipe.steps - start))
    return min(1.0, (step + 1) / recipe.warmup) * fall / (1 + step / recipe.fade)


def optimizers_of(network: Llama, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, which learn in half of the steps by it, and AdamW for the others."""
    named = dict(network.named_parameters())
    inner = [p for name, p in named.items() if p.dim() == 2 and name.startswith("layers")]
    embedding = [named["embed_tokens.weight"]]
    gains = [p for p in named.values() if p.dim() < 2]
    adam = torch.optim.AdamW(
        [{"params": embedding, "weight_decay": recipe.weight_decay}, {"params": gains, "weight_decay": 0.0}],
        lr=recipe.learning_rate,
        betas=(0.9, 0.98),
        eps=1e-9,
        fused=True,
    )
    muon = torch.optim.Muon(inner, lr=recipe.muon_rate, weight_decay=recipe.weight_decay)
    optimizers: list[torch.optim.Optimizer] = [muon, adam]
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
    return optimizers


def invented_in(found: Sequence[worlds.World], prompts: Mapping[str, PromptCard]) -> frozenset[str]:
    """The invented names of the worlds."""
    fixed = [p.system + p.closed + "".join(p.asks.values()) for p in prompts.values()]
    return invented(found, [*lessons.wording(), *fixed, *tokenizer.HEADINGS, "unknown Unknown no information"])


def prepare(found: Sequence[worlds.World], given: Given, folder: Path) -> None:
    """Write the tokenizer, made of the worlds' texts under fresh names."""
    if (folder / "tokenizer.json").is_file():
        return
    rng = Random(f"pico names {given.recipe.seed}")
    names = invented_in(found, given.prompts)
    corpus = lessons.wording() * 20
    for world in found:
        rename = renamer(given.names, names, rng)
        corpus += [rename(text) for text in texts(world) if text.isascii()]
    some = (lessons.facts(rng, given.names, given.prompts, 12, 0.3, 0.1) for _ in range(1500))
    corpus += [lesson.prefix.partition("<|user|>")[2] for lesson in some]
    chores = (lessons.chore(rng, given.names, 6, rng.choice(list(lessons.CHORES))) for _ in range(300))
    corpus += [reply.removesuffix("<|end|>") for lesson in chores for _, reply in lesson.turns]
    fixed = tokenizer.fixed_lines([given.memory_system, *lessons.CHORES], given.prompts.values())
    tokenizer.save(tokenizer.train(corpus, fixed), folder)


def main(arguments: list[str]) -> int:
    inputs, folder = map(Path, arguments)
    given = msgspec.json.decode((inputs / "given.json").read_bytes(), type=Given)
    folder.mkdir(parents=True, exist_ok=True)
    prepare(worlds.read(inputs / "worlds.jsonl"), given, folder)
    with TemporaryDirectory() as meeting:
        where = (f"file://{meeting}/group", inputs, folder)
        torch.multiprocessing.spawn(work, where, nprocs=given.recipe.workers)
    return 0


def work(rank: int, meeting: str, inputs: Path, folder: Path) -> None:
    """One of the processes that train together: each has one thread and lessons of its own, and after every step all
    have the same weights."""
    given = msgspec.json.decode((inputs / "given.json").read_bytes(), type=Given)
    recipe = given.recipe
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=recipe.workers)
    torch.set_num_threads(1)
    torch.manual_seed(recipe.seed)
    tokens = Tokenizer.from_file(str(folder / "tokenizer.json"))
    teacher = Teacher(worlds.read(inputs / "worlds.jsonl"), given, Encoder(tokens))
    shape = Shape(tokens.get_vocab_size(), recipe.hidden, recipe.layers, recipe.heads, recipe.feed_forward)
    network = Llama(shape)
    parameters = list(network.parameters())
    optimizers = optimizers_of(network, recipe)
    end = tokens.encode("<|end|>", add_special_tokens=False).ids[0]
    state = folder / "state.pt"
    step = resumed = 0
    spent = (0, 0.0)
    saved: dict[str, Any]
    if state.is_file():
        saved = torch.load(state, weights_only=False)
        network.load_state_dict(saved["network"])
        for optimizer, held in zip(optimizers, saved["optimizers"], strict=True):
            optimizer.load_state_dict(held)
        teacher.curriculum = saved["curriculum"]
        step = resumed = saved["step"]
        spent = saved.get("spent", spent)
    log = Log(folder / "log.jsonl", rank, spent)
    if rank == 0:
        log.write(
            {
                "parameters": sum(p.numel() for p in parameters),
                "shape": asdict(shape),
                "recipe": msgspec.to_builtins(recipe),
                "kinds": teacher.kinds,
            }
        )
    batches = teacher.batches(Random(f"pico lessons {recipe.seed} {rank} {resumed}"), lambda: step / recipe.steps)
    while step < recipe.steps:
        batch = next(batches)
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
        if rank == 0 and (step % 200 == 0 or step == recipe.steps):
            network.save(folder, end)
            saved = {
                "network": network.state_dict(),
                "optimizers": [o.state_dict() for o in optimizers],
            }
            spent = (log.tokens, time.monotonic() - log.started)
            saved |= {"step": step, "spent": spent, "curriculum": teacher.curriculum}
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
