"""What decides the weights: a stage, and what its training is given."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from recipe.renaming import Pools
from upkeep.contract import Pair, PromptCard, Rubric


class Stage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One training, and what has to come of it. All that decides its weights, besides the worlds and the weights that
    it begins with."""

    name: str
    after: str | None = None
    """The stage whose weights it goes on from; None begins with nothing."""
    lessons: Mapping[str, float]
    """Its own lessons, by how often each is drawn (`recipe.teacher.Teacher`)."""
    replay: float = 0.0
    """Share of lessons of earlier stages, each of which is drawn from as often as the others; methods run over this
    stage's texts in them, too."""
    passages: float = 0.0
    """How often the text that a method runs over in a lesson is a small dataset's, not one of invented statements."""
    merges: int | None = None
    """How many of the tokenizer's merges names may have, the most frequent ones; None: all (`tokenizer.pruned`)."""
    floors: Mapping[str, float]
    """The least share right of each skill that it teaches, written before it is trained."""
    seed: int = 0
    workers: int = 2
    """Processes of one thread each."""
    steps: int
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
    """Not fewer than those of the stage before; those that it adds begin as if they were not there."""
    heads: int = 4
    feed_forward: int = 384
    room: int = 600
    """Tokens of documents in a lesson at most, at the end of the curriculum; some lessons have more."""
    passes: float = 0.9
    """Share of right answers at which the curriculum goes on to more facts."""


class Given(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`given.json`, in the folder of inputs beside `worlds.jsonl`, `held_out.jsonl` (for the evaluation), `methods/`
    (their code) and `base/` (the model that the stage goes on from)."""

    stage: Stage
    earlier: list[Stage]
    """Whose lessons are replayed."""
    memory_system: str
    """The system text of `memory_scaffold`."""
    prompts: dict[str, PromptCard]
    """Of the worlds, by name."""
    rubrics: list[tuple[str, Rubric]]
    """Of the judges, each with its paper."""
    known: list[tuple[str, list[Pair]]]
    names: Pools
    """Those that training may use."""
    held_out: Pools
    """Those of the evaluation."""
    checkpoint: int = 200
    """Steps from one checkpoint to the next, which no weight depends on."""
