"""Draws lessons, harder ones as the easier go well."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from recipe import chores, facts, groups, tokenizer, worlds
from recipe.batches import Batch, Encoded, Encoder
from recipe.lessons import Lesson
from recipe.renaming import invented
from recipe.settings import Given
from upkeep.contract import Form, PromptCard

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


class Teacher:
    """Draws lessons."""

    def __init__(self, found: Sequence[worlds.World], given: Given, encoder: Encoder) -> None:
        self.recipe, self.pools, self.known, self.encoder = given.recipe, given.names, given.known, encoder
        self.memory_system, self.prompts = given.memory_system, given.prompts
        self.names = invented_in(found, given.prompts)
        self.curriculum = Curriculum()
        self.groups: dict[str, list[list[groups.Group]]] = defaultdict(list)
        for world in found:
            forms: dict[str, list[groups.Group]] = defaultdict(list)
            for group in groups.groups(world, self.prompts):
                forms[group.probes[0][0].form].append(group)
            for form, of_form in sorted(forms.items()):
                self.groups[f"{world.dataset} {form}"].append(of_form)
        self.kinds = sorted(self.groups)
        self.shares = [SHARES[form] * HARD.get(name, 1.0) for name, _, form in (k.partition(" ") for k in self.kinds)]

    def draw(self, rng: Random, progress: float) -> Lesson:
        level = self.curriculum.level
        # To write down what is told is to copy it, which all else builds on.
        if rng.random() < (0.25 if level < 1 else 0.04):
            return facts.notes(rng, self.pools, rng.randint(1, 8), self.memory_system)
        if level >= 1 and rng.random() < 0.05:
            return chores.chore(rng, self.pools, rng.randint(2, 8), rng.choice(list(chores.CHORES)))
        if level < PLAIN or rng.random() < max(0.15, 0.55 - progress):
            # Easier levels come back now and then.
            count = LEVELS[min(level, len(LEVELS) - 1)] if rng.random() < 0.7 else rng.choice(LEVELS[: level + 1])
            count = max(2, count - rng.randrange(1 + count // 3))
            form: Form = rng.choices(("short", "choice", "label"), (4, 2, 2))[0] if level else "short"
            if form != "short":  # first to find and then to judge is learned of few facts
                count = min(count, rng.choice((2, 3, 4, 8)))
            if level < PLAIN:
                return facts.facts(rng, self.pools, self.prompts, count, 0.0, 0.0, form, plain=True)
            return facts.facts(rng, self.pools, self.prompts, count, rng.choice((0.0, 0.0, 0.4)), 0.12, form)
        if self.known and rng.random() < 0.08:
            prompt, pairs = rng.choice(self.known)
            return groups.known(prompt, self.prompts[prompt], pairs, rng)
        group = rng.choice(rng.choice(self.groups[rng.choices(self.kinds, self.shares)[0]]))
        if group.world.prompt.startswith("oaks") and rng.random() < 0.05:
            return groups.chronicle(group, rng, self.pools, self.names, self.memory_system)
        if rng.random() < 0.08:
            return groups.closed(group, rng, self.pools, self.names)
        room = round(self.recipe.room * min(1.0, 0.3 + 1.5 * progress))
        room = rng.choice((room // 4, room // 2, room)) if rng.random() < 0.93 or progress < 0.5 else 3 * room
        return groups.reading(group, rng, self.pools, self.names, self.encoder.size, room)

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


def invented_in(found: Sequence[worlds.World], prompts: Mapping[str, PromptCard]) -> frozenset[str]:
    """The invented names of the worlds."""
    fixed = [p.system + p.closed + "".join(p.asks.values()) for p in prompts.values()]
    return invented(found, [*facts.wording(), *fixed, *tokenizer.HEADINGS, "unknown Unknown no information"])
