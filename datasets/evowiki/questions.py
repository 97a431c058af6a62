"""Questions of one to three hops over levelled facts, and the language model's two steps (EvoWiki, 3.2 and E)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

import polars as pl
from msgspec import Struct

from upkeep.building import leaks
from upkeep.building.assistant import Assistant, Step
from upkeep.contract import Pair, Sampling

from .facts import Snapshot
from .levels import FACT, LEVELS, Levels, within_names

MAX_HOPS = 3
MOST_PATHS = 50_000
"""Paths of a level and length that are looked at and followed further; of more, a seeded sample."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, before it has an id."""

    hops: tuple[tuple[str, str], ...]
    """(subject, relation) of each hop, ids."""
    level: str
    changed: str
    """`before_cutoff`, `after_cutoff` or `none`."""
    text: str
    answers: tuple[str, ...]
    outdated: tuple[str, ...]
    subject: str
    """Label of the first subject."""


# ---------------------------------------------------------------- paths


def paths(levels: Levels, starts: pl.DataFrame | None, hops: int, seed: int) -> list[pl.DataFrame]:
    """Chains of facts, by their number of hops.

    A chain goes on through facts with one object, each hop supported by the current pages, and never
    comes back to an entity. Up to its first fact that is not stable a chain is the same at all times, so the level of
    that one is the chain's; what follows is as it is at the current time.

    Args:
        starts: `subject`s that a chain may begin with; None for any.

    Returns:
        For 1 to `hops`: columns s1, r1, ... (ids of each hop's subject and relation), `level`, `objects`, `single`.
    """
    present, level_of = levels.facts["current"], levels.levels
    first = present.join(level_of, on=FACT)
    if starts is not None:
        first = first.join(starts, on="subject", how="semi")
    first = (
        first.rename({"subject": "s1", "relation": "r1"})
        .filter(~pl.col("objects").list.contains(pl.col("s1")))
        .select("s1", "r1", "level", "objects", "single")
        .sort("s1", "r1")
    )
    found = [_sampled(first, f"{seed} paths 1")]
    nexts = present.join(level_of, on=FACT, how="left").rename({"level": "own", "single": "last", "objects": "ends"})
    for n in range(2, hops + 1):
        subject, relation = f"s{n}", f"r{n}"
        before = [pl.col(f"s{m}") for m in range(1, n)]
        grown = (
            found[-1]
            .filter("single")
            .with_columns(pl.col("objects").list.first().alias(subject))
            .join(nexts.rename({"subject": subject, "relation": relation}), on=subject)
            .with_columns(level=pl.when(pl.col("level") == "stable").then("own").otherwise("level"))
            .filter(
                pl.col("level").is_not_null(),
                ~pl.any_horizontal(pl.col("ends").list.contains(s) for s in [*before, pl.col(subject)]),
            )
        )
        keys = [name for m in range(1, n + 1) for name in (f"s{m}", f"r{m}")]
        grown = grown.select(*keys, "level", pl.col("ends").alias("objects"), pl.col("last").alias("single"))
        found.append(_sampled(grown.sort(keys), f"{seed} paths {n}"))
    return found


def _sampled(chains: pl.DataFrame, seed: str) -> pl.DataFrame:
    """At most `MOST_PATHS` of each level, in order; drawn by Python's generator, the same in every version."""
    rows = chains.with_row_index("row")
    kept: list[int] = []
    for level in LEVELS:
        mine = rows.filter(pl.col("level") == level)["row"].to_list()
        kept += Random(f"{seed} {level}").sample(mine, min(MOST_PATHS, len(mine)))
    return chains[sorted(kept)]


def objects_at(chains: pl.DataFrame, facts: pl.DataFrame, hops: int) -> pl.DataFrame:
    """What the chains led to at another time: `chains` with `then`, null where they did not lead anywhere."""
    chains = chains.with_columns(at="s1")
    for n in range(1, hops + 1):
        step = facts if n == hops else facts.filter("single")
        step = step.select(at="subject", relation="relation", found="objects")
        chains = chains.join(
            step, left_on=["at", f"r{n}"], right_on=["at", "relation"], how="left", maintain_order="left"
        )
        if n < hops:
            chains = chains.with_columns(at=pl.col("found").list.first()).drop("found")
    return chains.drop("at").rename({"found": "then"})


# ---------------------------------------------------------------- questions


def questions(
    levels: Levels,
    current: Snapshot,
    hops: int,
    humans: bool,
    most: Mapping[str, Sequence[int]],
    seed: int,
    apart: bool = False,
) -> tuple[list[Asked], dict[str, float]]:
    """The questions that are asked, and why others are not.

    Args:
        hops: 1 to 3.
        humans: whether the first subject has to be a person.
        most: level -> at most so many questions of 1, 2, 3 hops, drawn at random; a level without is not limited.
        apart: whether a question is left out that has an answer within the name of another object of its last relation
            (`Virginia`, where `West Virginia` would count as right).
    """
    starts = current.entities.filter("human").select(subject="entity") if humans else None
    label = levels.labels["current"]
    relation = {
        id: (name, person) for id, name, person in current.relations.select("relation", "label", "person").rows()
    }
    shared = Counter(leaks.key(name) for name in current.entities["label"])
    within = within_names(levels) if apart else {}
    left: Counter[str] = Counter()
    made: list[Asked] = []
    for n, chains in enumerate(paths(levels, starts, hops, seed), 1):
        chains = _with_history(chains, levels, n)
        for row in chains.iter_rows(named=True):
            steps = tuple((row[f"s{m}"], row[f"r{m}"]) for m in range(1, n + 1))
            subject = label[steps[0][0]]
            asked = Asked(
                steps,
                row["level"],
                "none",
                template(subject, [relation[r] for _, r in steps]),
                _distinct(label.get(o, o) for o in row["objects"]),
                (),
                subject,
            )
            if row["level"] == "evolved":
                changed = _changed(asked, row, levels)
                if isinstance(changed, str):
                    left[changed] += 1
                    continue
                asked = changed
            if any(_renamed(o, levels) for o in row["objects"]):
                left["left out: answer that changed its name"] += 1
            elif shared[leaks.key(subject)] > 1:
                left["left out: several entities of the subject's name"] += 1
            elif any(leaks.key(answer) in within.get(steps[-1][1], ()) for answer in asked.answers):
                left["left out: answer within another object's name"] += 1
            elif leaks.tells(asked.text, asked.answers):
                left["left out: answer in question"] += 1
            elif leaks.tells(asked.text, asked.outdated):
                left["left out: outdated answer in question"] += 1
            elif any(leaks.tells(old, asked.answers) for old in asked.outdated):
                left["left out: answer within an outdated one"] += 1
            else:
                made.append(asked)
    doubled = Counter(leaks.key(asked.text) for asked in made)
    unique = [asked for asked in made if doubled[leaks.key(asked.text)] == 1]
    left["left out: question with several readings"] += len(made) - len(unique)
    drawn = [asked for level in LEVELS for n in range(1, hops + 1) for asked in _draw(unique, level, n, most, seed)]
    statistics: dict[str, float] = {name: left[name] for name in sorted(left)}
    return drawn, statistics | {"candidates": len(unique), "left out: drawn others": len(unique) - len(drawn)}


def _with_history(chains: pl.DataFrame, levels: Levels, hops: int) -> pl.DataFrame:
    for time in ("init", "cutoff"):
        chains = objects_at(chains, levels.facts[time], hops).rename({"then": time})
    return chains


def _changed(asked: Asked, row: Mapping[str, list[str] | None], levels: Levels) -> Asked | str:
    """An evolved question with its history, or why it has none: all that was right before has to be wrong now."""
    now, before = row["objects"] or [], [row["init"], row["cutoff"]]
    if before[0] is None or before[1] is None:
        return "left out: evolved chain led nowhere at an earlier time"
    if before[0] == before[1] == now:
        return "left out: evolved chain with the same answer"
    accepted = {leaks.key(answer) for answer in asked.answers}
    outdated = []
    for time, objects in zip(("init", "cutoff"), before, strict=True):
        if objects == now and time == "cutoff":
            continue
        names = [levels.labels[time].get(o, o) for o in objects or ()]
        if any(leaks.key(name) in accepted for name in names):
            return "left out: evolved chain with an answer that stayed"
        outdated += names
    after = before[1] != now
    return replace(asked, outdated=_distinct(outdated), changed="after_cutoff" if after else "before_cutoff")


def _renamed(object: str, levels: Levels) -> bool:
    """Whether a thing had another name before: neither right nor outdated would be a fair word for that one."""
    return len({leaks.key(labels.get(object, object)) for labels in levels.labels.values()}) > 1


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    found: dict[str, str] = {}
    for name in names:
        found.setdefault(leaks.key(name) or name, name)
    return tuple(found.values())


def _draw(made: Sequence[Asked], level: str, hops: int, most: Mapping[str, Sequence[int]], seed: int) -> list[Asked]:
    mine = [asked for asked in made if asked.level == level and len(asked.hops) == hops]
    limit = most[level][hops - 1] if level in most else len(mine)
    if len(mine) <= limit:
        return mine
    return [mine[n] for n in sorted(Random(f"{seed} {level} {hops}").sample(range(len(mine)), limit))]


def template(subject: str, relations: Sequence[tuple[str, bool]]) -> str:
    """The question for the last object of a chain (3.2).

    Args:
        relations: (label, whether its objects are persons), the first hop's first.
    """
    asks = "Who" if relations[-1][1] else "What"
    text = f"{asks} is {' of '.join(f'the {name}' for name, _ in reversed(relations))} of {subject}?"
    # Nobody asks for the holder of the post of chair, but for the chair (`legislators.py` has posts).
    return text.replace("the holder of the post of ", "the ")


# ---------------------------------------------------------------- steps of the language model


class Chain(Struct, frozen=True):
    """What the question writer is given (E.1)."""

    hops: int
    triples: list[str]
    answers: list[str]
    template: str
    subject: str


class Rewritten(Struct, frozen=True):
    """Its reply."""

    question: str
    answer: str


def _rewrite_prompt(chain: Chain) -> str:
    triples = "\n".join(f"- {triple}" for triple in chain.triples)
    return f"""Write one question that takes {chain.hops} hop(s) through facts of a knowledge base.

Facts, each as (subject, relation, object), in order:
{triples}
Right answers: {"; ".join(chain.answers)}
A question made by a template: {chain.template}

Rules:
- Of all entities name only the first subject, {chain.subject}, and name it in full; do not name any object.
- Use the relations of all the hops together.
- The question has to be answerable by one of the right answers.
- Say what the template says in natural words, and add nothing to it.

First read the facts in a sentence. Then end with a JSON object:
{{"question": "...", "answer": "..."}}"""


REWRITE = Step("evowiki.rewrite", Rewritten, _rewrite_prompt, sampling=Sampling(temperature=0.0, max_tokens=512))


class Passage(Struct, frozen=True):
    """What the writer of training pairs is given (E.2)."""

    title: str
    context: str
    count: int
    document: str | None = None
    """Id of the last document of its page."""


class Written(Struct, frozen=True):
    """A pair of the reply; `None` in either field where it is unsure."""

    question: str | None
    answer: str | None


def _pairs_prompt(passage: Passage) -> str:
    return f"""# Title
{passage.title}

# Context
{passage.context}

# Task
You are an expert in writing questions. Write {passage.count} hard questions with their answers from the context.
- A question stands by itself: whoever reads it sees neither title nor context, so it says enough of the background.
- It can be answered only by somebody who has learnt what the context says.
- It has one right answer, of a few words.
- Where you are unsure of a question or its answer, write None for both.

# Response
A JSON list and nothing else: [{{"question": "...", "answer": "..."}}, ...]"""


PAIRS: Step[Passage, list[Written]] = Step(
    "evowiki.pairs", list[Written], _pairs_prompt, sampling=Sampling(temperature=0.0, max_tokens=2048)
)


def rewrite(
    asked: Sequence[Asked], levels: Levels, current: Snapshot, assistant: Assistant
) -> tuple[list[Asked], dict[str, float]]:
    """The questions in a language model's words; where these break a rule the template stays, which is counted."""
    label = levels.labels["current"]
    relation = dict(current.relations.select("relation", "label").iter_rows())
    given = []
    for one in asked:
        ends = [[label[s]] for s, _ in one.hops[1:]] + [list(one.answers)]
        triples = [
            f"({label[s]}, {relation[r]}, {'; '.join(objects)})" for (s, r), objects in zip(one.hops, ends, strict=True)
        ]
        given.append(Chain(len(one.hops), triples, list(one.answers), one.text, one.subject))
    replies = assistant.ask(REWRITE, given)
    outcome: Counter[str] = Counter()
    taken = {leaks.key(one.text) for one in asked}
    found = []
    for one, reply in zip(asked, replies, strict=True):
        fault = "unread" if reply is None else _broken(reply, one, [label[s] for s, _ in one.hops[1:]], taken)
        if reply is not None and fault is None:
            one = replace(one, text=" ".join(reply.question.split()))
            taken.add(leaks.key(one.text))
        outcome[f"rewriting kept the template: {fault}" if fault else "questions rewritten"] += 1
        found.append(one)
    return found, {name: outcome[name] for name in sorted(outcome)}


def _broken(reply: Rewritten, one: Asked, between: Sequence[str], taken: set[str]) -> str | None:
    """Which rule of E.1 a question breaks."""
    if not leaks.tells(reply.question, [one.subject]):
        return "subject not named"
    if leaks.tells(reply.question, [*one.answers, *one.outdated]):
        return "answer named"
    if leaks.tells(reply.question, between):
        return "object between named"
    if leaks.key(reply.answer) not in {leaks.key(answer) for answer in one.answers}:
        return "other answer"
    if leaks.key(reply.question) in taken and leaks.key(reply.question) != leaks.key(one.text):
        return "asked already"
    return None


def pairs(
    passages: Sequence[Passage], asked: Sequence[str], assistant: Assistant
) -> tuple[list[Pair], dict[str, float]]:
    """Question-answer pairs to train on, made from pieces of the documents (4.1, E.2).

    Args:
        asked: the questions of the evaluation, which are left out.
    """
    found: dict[str, Pair] = {}
    left: Counter[str] = Counter()
    known = {leaks.key(question) for question in asked}
    replies = assistant.ask(PAIRS, passages)
    for passage, reply in zip(passages, replies, strict=True):
        for one in (reply or [])[: passage.count]:
            question, answer = (one.question or "").strip(), (one.answer or "").strip()
            if {question.lower().strip("."), answer.lower().strip(".")} & {"", "none"}:
                left["pairs left out: none"] += 1
            elif leaks.key(question) in known:
                left["pairs left out: asked"] += 1
            elif leaks.tells(question, [answer]):
                left["pairs left out: answer in question"] += 1
            elif leaks.key(question) in found:
                left["pairs left out: written already"] += 1
            else:
                found[leaks.key(question)] = Pair(question=question, answer=answer, document=passage.document)
    return list(found.values()), {name: left[name] for name in sorted(left)}
