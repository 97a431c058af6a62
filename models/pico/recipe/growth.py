"""How a stage's model begins as that of the stage before: with more pieces in its vocabulary, or fewer, and with more
layers.

A new piece begins as the mean of those that spelled it. A new layer begins as one that adds nothing, so that the larger
model says at first what the smaller one said. Width does not grow: it would change what every gain of the network is
of, and a model that is wider is better trained from nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from random import Random

import torch
from safetensors.torch import load_file
from tokenizers import AddedToken, Tokenizer

from recipe import tokenizer
from recipe.network import Llama
from recipe.teacher import Teacher

DRAWN = 400
"""Times that lessons are drawn to see what is in them."""
FIXED = 20
"""Characters that a line has more than, to be worth a piece of its own."""
_KEY = re.compile(r'"\w+":')


def extend(tokens: Tokenizer, teacher: Teacher, rng: Random) -> None:
    """Add what the stage's lessons have again and again: long lines of system texts and keys of JSON, a piece each, and
    every character that is not ASCII. From here on what is quoted is read as what is not (`tokenizer.quote`)."""
    lines, characters = Counter[str](), set[str]()
    for _ in range(DRAWN):
        for lesson in teacher.lessons(rng, teacher.curriculum.level, 1.0):
            texts = (lesson.prefix, *(text for turn in lesson.turns for text in turn))
            characters.update(char for text in texts if not text.isascii() for char in text if not char.isascii())
            system = lesson.prefix.partition("<|end|>")[0].partition("<|system|>")[2].partition("<example_1>")[0]
            # What is asked in the first line of a user's message alone has no system text.
            head = system or lesson.prefix.partition("<|user|>")[2].partition("\n")[0]
            lines.update({line for line in head.splitlines() if len(line) > FIXED})
            lines.update({key for _, reply in lesson.turns for key in _KEY.findall(reply)})
    known = tokens.get_vocab(with_added_tokens=True)
    new = [line for line in sorted(lines) if lines[line] > 1 and line not in known]
    new += [char for char in sorted(characters) if char not in known]
    tokens.add_tokens([AddedToken(text, normalized=False, special=False) for text in new])
    tokenizer.quote(tokens)


@torch.no_grad()  # type: ignore[untyped-decorator]
def begin(network: Llama, base: Path, tokens: Tokenizer) -> None:
    """Give a network the weights of a smaller one.

    Args:
        base: the folder of its model.
        tokens: the network's own tokenizer, made of the base's (`extend`, `tokenizer.pruned`).
    """
    before = Tokenizer.from_file(str(base / "tokenizer.json"))
    given = {name.removeprefix("model."): w.float() for name, w in load_file(base / "model.safetensors").items()}
    small = given.pop("embed_tokens.weight")
    whole = network.embed_tokens.weight
    for piece, id in tokens.get_vocab(with_added_tokens=True).items():
        same = before.token_to_id(piece)
        whole[id] = small[before.encode(piece, add_special_tokens=False).ids if same is None else [same]].mean(0)
    own = dict(network.named_parameters())
    for name, weight in given.items():
        own[name].copy_(weight)
    for name, parameter in own.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")) and name not in given:
            parameter.zero_()
