"""What decides the weights: the recipe, and what the training is given."""

from __future__ import annotations

import msgspec

from recipe.renaming import Pools
from upkeep.contract import Pair, PromptCard


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
