"""Lessons as tokens, and those that are learned from in one step."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional as F

from recipe.lessons import Lesson
from recipe.network import Llama


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
