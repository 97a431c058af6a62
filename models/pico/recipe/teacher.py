"""Draws lessons, harder ones as the easier go well."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random

from recipe import chores, extraction, facts, groups, judging, memories, searching, tokenizer, worlds
from recipe.batches import Encoded, Encoder
from recipe.lessons import Lesson
from recipe.passages import by_dataset
from recipe.playing import Room
from recipe.renaming import invented
from recipe.settings import Given
from upkeep.contract import Form, Gold, Probe, PromptCard

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
LONG = 1500
"""Tokens of documents in a long lesson."""
LONGEST = 1900
"""Tokens of a lesson at most."""
ASKED: Mapping[str, Callable[[Random, Room], list[Lesson]]] = {
    "graph": extraction.graph,
    "notes": extraction.notes,
    "rewriting": memories.rewriting,
    "questioning": memories.questioning,
    "summing": memories.summing,
    "searching": searching.searching,
    "critique": searching.critique,
    "judging": judging.judging,
}
"""Lessons of what methods and judges ask besides a dataset's questions."""
INVENTED = ("judging",)
"""Those of invented statements alone."""


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
    """Draws lessons. Kinds of them, which a stage names:

    - `worlds`: facts at large and the small datasets' worlds, easy ones first;
    - those of `ASKED`;
    - `examples`, `chinese`, `counts`, `three documents`, `long`: questions of the small datasets' worlds that have five
      worked examples, are Chinese, count to six, rest on three documents or more, or come after long contexts.

    Args:
        methods: the folder of their code.
    """

    def __init__(self, found: Sequence[worlds.World], given: Given, encoder: Encoder, methods: Path) -> None:
        self.stage, self.pools, self.known, self.encoder = given.stage, given.names, given.known, encoder
        self.earlier = given.earlier
        self.memory_system, self.prompts = given.memory_system, given.prompts
        self.names = invented_in(found, given.prompts)
        self.curriculum = Curriculum(level=len(LEVELS) if given.stage.after else 0)
        self.groups: dict[str, list[list[groups.Group]]] = defaultdict(list)
        for world in found:
            forms: dict[str, list[groups.Group]] = defaultdict(list)
            for group in groups.groups(world, self.prompts):
                forms[group.probes[0][0].form].append(group)
            for form, of_form in sorted(forms.items()):
                self.groups[f"{world.dataset} {form}"].append(of_form)
        self.kinds = sorted(self.groups)
        self.shares = [SHARES[form] * HARD.get(name, 1.0) for name, _, form in (k.partition(" ") for k in self.kinds)]
        every = [group for of_kind in self.groups.values() for of_world in of_kind for group in of_world]
        named, share = by_dataset(every), given.stage.passages
        self.room = Room(given.names, given.prompts, given.rubrics, methods, encoder.size, named, self.names, share)
        chinese = [group for world in found for group in groups.groups(world, self.prompts, chinese=True)]
        self.draws: dict[str, Callable[[Random, int, float], Sequence[Lesson]]] = {
            "worlds": lambda rng, level, progress: [self.draw(rng, level, progress)],
            **{name: partial(self._asked, make) for name, make in ASKED.items()},
            "examples": partial(self._read, [g for g in every if g.prompt.examples], 1.0, 700),
            "chinese": partial(self._read, chinese, 0.2, 700),
            "counts": partial(self._read, only(every, counts), 0.0, 800),
            "three documents": partial(self._read, only(every, rests_on_three), 0.2, 900),
            "long": partial(self._read, every, 0.2, LONG),
        }

    def lessons(self, rng: Random, level: int, progress: float) -> Sequence[Lesson]:
        """Some of the stage's own lessons, or of an earlier one's."""
        stage = rng.choice(self.earlier) if self.earlier and rng.random() < self.stage.replay else self.stage
        kind = rng.choices(list(stage.lessons), list(stage.lessons.values()))[0]
        return self.draws[kind](rng, level, progress)

    def _asked(
        self, make: Callable[[Random, Room], list[Lesson]], rng: Random, level: int, progress: float
    ) -> Sequence[Lesson]:
        return make(rng, self.room)

    def _read(
        self, found: Sequence[groups.Group], examples: float, room: int, rng: Random, level: int, progress: float
    ) -> Sequence[Lesson]:
        group = rng.choice(found)
        if rng.random() >= examples:
            group = replace(group, prompt=replace(group.prompt, examples=()))
        return [groups.reading(group, rng, self.pools, self.names, self.encoder.size, room, examples=1.0)]

    def draw(self, rng: Random, level: int, progress: float) -> Lesson:
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
        room = round(self.stage.room * min(1.0, 0.3 + 1.5 * progress))
        room = rng.choice((room // 4, room // 2, room)) if rng.random() < 0.93 or progress < 0.5 else 3 * room
        return groups.reading(group, rng, self.pools, self.names, self.encoder.size, room)

    def packs(self, rank: int, step: int, level: int) -> list[list[Encoded]]:
        """The lessons of the next few steps of one worker, those of like length together, so that little is padding.

        Args:
            level: of the curriculum at that step.
        """
        rng = Random(f"pico lessons {self.stage.seed} {rank} {step}")
        rows: list[Encoded] = []
        total = 0
        while total < 4 * self.stage.batch_tokens:
            for row in map(self.encoder, self.lessons(rng, level, step / self.stage.steps)):
                if len(row.ids) <= LONGEST:
                    rows.append(row)
                    total += len(row.ids)
        rows.sort(key=lambda row: len(row.ids))
        packs: list[list[Encoded]] = [[]]
        for row in rows:
            if packs[-1] and (len(packs[-1]) + 1) * len(row.ids) > self.stage.batch_tokens:
                packs.append([])
            packs[-1].append(row)
        rng.shuffle(packs)
        return packs


def only(found: Sequence[groups.Group], wanted: Callable[[Probe, Gold], bool]) -> list[groups.Group]:
    """The groups with those of their probes that are wanted; those that have any."""
    chosen = (replace(g, probes=[(probe, gold) for probe, gold in g.probes if wanted(probe, gold)]) for g in found)
    return [group for group in chosen if group.probes]


def counts(probe: Probe, gold: Gold) -> bool:
    """Whether a question counts events, up to six."""
    answer = gold.answers[0]
    return probe.form == "short" and answer.isdigit() and 1 <= int(answer) <= 6 and bool(gold.evidence)


def rests_on_three(probe: Probe, gold: Gold) -> bool:
    """Whether a question rests on three documents or more."""
    return len(gold.evidence) >= 3


def invented_in(found: Sequence[worlds.World], prompts: Mapping[str, PromptCard]) -> frozenset[str]:
    """The invented names of the worlds."""
    fixed = [p.system + p.closed + "".join(p.asks.values()) for p in prompts.values()]
    return invented(found, [*facts.wording(), *fixed, *tokenizer.HEADINGS, "unknown Unknown no information"])
