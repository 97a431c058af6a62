"""Small plotted stories with multiple-choice questions, in the manner of OAKS-Novel (OAKS, B.1.3).

The novels of OAKS-Novel were annotated by people and cannot be made anew; the official release is loaded by
`oaks_release`. These stories are ours and keep its rules: exactly one option is right at each chunk; the option "We
cannot answer this question at this point" is right only before the first answerable chunk; a flashback changes no
state; options are shuffled.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from msgspec import Struct

from upkeep.building import assembling, prose, synthetic, tokens
from upkeep.building.assembling import LETTERS, Built, Question, Stream
from upkeep.building.builders import oaks_release
from upkeep.building.builders.oaks_release import CANNOT_ANSWER, NOVEL_BINS
from upkeep.building.context import Context
from upkeep.building.dealing import Deal
from upkeep.errors import UpkeepError


class Options(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`options` of `dataset.yaml`."""

    streams: int = 2
    chunks: int = 10
    """Chunks a stream."""
    chunk_tokens: int = 120
    seed: int = 0
    tokenizer: str | None = None
    """A `tokenizer.json`; null for the suite's own."""


@dataclass(frozen=True, slots=True)
class Aspect:
    """Something about the story that changes. {0} is the hero, {1} the new state."""

    question: str
    states: str
    """The states it can take, split by `|`; `people` or `places` for invented names."""
    told: tuple[str, ...]
    """Sentences that tell of a change."""
    recalled: tuple[str, ...]
    """Sentences that name a state and change nothing."""


TOWN = Aspect(
    "In which town is {0} at this point?",
    "places",
    ("{0} came to {1} and took a room there.", "By the next day {0} had reached {1}.", "The road led {0} to {1}."),
    ("Long ago, as a child, {0} had lived in {1}.", "{0} told a stranger of {1}."),
)
LETTER = Aspect(
    "Who has the sealed letter at this point?",
    "people",
    (
        "The sealed letter passed into the hands of {1}.",
        "It was {1} who now kept the sealed letter.",
        "In secret the sealed letter was entrusted to {1}.",
    ),
    ("The sealed letter, people said, had once been written by {1}.", "Of such a sealed letter {1} had once spoken."),
)
ASPECTS = (
    TOWN,
    LETTER,
    Aspect(
        "How is {0} travelling at this point?",
        "on horseback|by mail coach|by river barge|on foot|in a fishing boat|by sledge",
        ("From then on {0} travelled {1}.", "So the journey of {0} continued {1}."),
        ("Years before, {0} had crossed the same country {1}.", "Others went {1}, and {0} watched them pass."),
    ),
    Aspect(
        "Whom does {0} trust most at this point?",
        "people",
        ("{0} now trusted {1} above all others.", "After that night {0} relied on {1} and on nobody else."),
        ("In former days {0} had trusted {1}.", "What {1} thought of {0}, nobody knew."),
    ),
    Aspect(
        "Whom does {0} suspect of the theft at this point?",
        "people",
        ("Now {0} was certain that the thief was {1}.", "All signs pointed to {1}, and {0} suspected nobody else."),
        ("Once, in another affair, {0} had suspected {1}.", "On the day of the theft {1} had been seen with {0}."),
    ),
    Aspect(
        "What is {0} disguised as at this point?",
        "a friar|a sailor|a pedlar|a juggler|a charcoal burner|a notary",
        ("To pass unseen, {0} dressed as {1}.", "{0} changed clothes and went about as {1}."),
        ("For a carnival, years before, {0} had dressed as {1}.", "At the gate {0} was asked about {1}."),
    ),
    Aspect(
        "What does {0} intend at this point?",
        "to find the lost map|to free the prisoner|to warn the duke|to win the wager|to return home|to buy the ship",
        ("{0} now had one aim only, {1}.", "Everything had changed: {0} resolved {1}."),
        ("When young, {0} had sworn {1}.", "It was left to others, {0} said, {1}."),
    ),
    Aspect(
        "Who commands the garrison at this point?",
        "people",
        ("Command of the garrison was given to {1}.", "The garrison now obeyed {1}."),
        ("Before the war the garrison had been commanded by {1}.", "The garrison remembered {1} well."),
    ),
)
DERIVED = "In which town was {0} when the sealed letter last changed hands?"
REACHED = 4
"""States of an aspect that the story reaches; the others are wrong options and asides."""
EARLY = 0.75
"""Share of aspects that are mentioned before they are told of."""
PHASES = (3, 4, 5, 2, 6, 4, 3, 5)
"""Phases of the aspects, before they are shuffled: all bins are there."""


@dataclass(frozen=True, slots=True)
class Event:
    """A change that the story tells of."""

    chunk: int
    aspect: Aspect
    state: str
    sentence: str


@dataclass(frozen=True, slots=True)
class State:
    """What is so from some point on, and the chunks that tell so."""

    value: str | None = None
    evidence: tuple[int, ...] = ()
    quotes: tuple[str, ...] = ()
    """What is told there, word for word."""


def plot(hero: str, states: dict[Aspect, list[str]], chunks: int, rng: Random) -> list[Event]:
    """The changes of all aspects in the order of the story. A state may come back, but not at once."""
    events: list[Event] = []
    for aspect, phases in zip(ASPECTS, rng.sample(PHASES, len(PHASES)), strict=True):
        from_start = rng.random() < 0.2
        # The first comes early: else "cannot answer" is right most often where little changes.
        first = rng.randint(1, min(chunks // 3, chunks - phases + 1))
        places = [first, *sorted(rng.sample(range(first + 1, chunks), phases - 2))]
        state = None
        for chunk in [0, *places] if from_start else places:
            state = rng.choice([other for other in states[aspect][:REACHED] if other != state])
            events.append(Event(chunk, aspect, state, rng.choice(aspect.told).format(hero, state)))
    rng.shuffle(events)
    return sorted(events, key=lambda event: event.chunk)


def timelines(events: Sequence[Event], chunks: int) -> list[tuple[Aspect | None, list[State]]]:
    """The state of each aspect, and of the derived question (None), after each chunk."""
    now: dict[Aspect | None, State] = dict.fromkeys([*ASPECTS, None], State())
    lines: dict[Aspect | None, list[State]] = {aspect: [] for aspect in now}
    waiting = iter([*events, None])
    event = next(waiting)
    for chunk in range(chunks):
        before = dict(now)
        while event is not None and event.chunk == chunk:
            now[event.aspect] = State(event.state, (chunk,), (event.sentence,))
            town = now[TOWN]
            if event.aspect is LETTER and town.value is not None:
                now[None] = State(town.value, tuple(sorted({*town.evidence, chunk})), (*town.quotes, event.sentence))
            event = next(waiting)
        for aspect, line in lines.items():
            # An answer that is the same at the end of the chunk keeps its phase, hence its evidence.
            if now[aspect].value == before[aspect].value:
                now[aspect] = before[aspect]
            line.append(now[aspect])
    return list(lines.items())


def _told(
    hero: str,
    states: dict[Aspect, list[str]],
    events: Sequence[Event],
    options: Options,
    measure: tokens.Tokens,
    rng: Random,
) -> list[list[str]]:
    """What each chunk tells, in order: its events and, after each, an aside on the same aspect that names another of
    its states. Most aspects have one before they are told of, too.

    An aside changes nothing: it waits for a chunk with room, or until its aspect changes again. So the state that holds
    is the one that was named last about as often as chance has it.
    """
    waiting = dict.fromkeys([aspect for aspect in ASPECTS if rng.random() < EARLY], 0)
    now: dict[Aspect, str] = {}
    chunks: list[list[str]] = []
    for chunk in range(options.chunks):
        own = [event for event in events if event.chunk == chunk]
        told = [(float(place), event.sentence) for place, event in enumerate(own)]
        waiting |= {event.aspect: place + 1 for place, event in enumerate(own)}
        now |= {event.aspect: event.state for event in own}
        for aspect in rng.sample(list(waiting), len(waiting)):
            place = rng.uniform(waiting[aspect] - 1, len(own))
            others = [state for state in states[aspect] if state != now.get(aspect)]
            aside = rng.choice(aspect.recalled).format(hero, rng.choice(others))
            if _size([*(sentence for _, sentence in told), aside], measure) <= options.chunk_tokens:
                told.append((place, aside))
                del waiting[aspect]
        waiting = dict.fromkeys(waiting, 0)
        chunks.append([sentence for _, sentence in sorted(told)])
    return chunks


def _write(
    hero: str,
    states: dict[Aspect, list[str]],
    events: Sequence[Event],
    options: Options,
    measure: tokens.Tokens,
    rng: Random,
) -> list[str]:
    """The story: what each chunk tells, and prose between the sentences up to the limit."""
    filler = measure.stream(prose.generate(Random(f"filler {hero} {options.seed}")))
    texts: list[str] = []
    for told in _told(hero, states, events, options, measure, rng):
        room = options.chunk_tokens - _size(told, measure)
        if room < 0:
            raise UpkeepError(
                "the events do not fit into a chunk",
                expected=f"{options.chunk_tokens} tokens",
                found=options.chunk_tokens - room,
                remedy="more `chunk_tokens`",
            )
        pieces: list[str] = []
        while (following := next(filler))[1] <= room:
            pieces.append(following[0])
            room -= following[1]
        places = sorted(rng.randrange(len(pieces) + 1) for _ in told)
        for before, (place, sentence) in enumerate(zip(places, told, strict=True)):
            pieces.insert(place + before, f" {sentence}")
        texts.append("".join(pieces).strip())
    return texts


def _size(sentences: Sequence[str], measure: tokens.Tokens) -> int:
    return sum(measure.count([f" {sentence}" for sentence in sentences]))


def _question(
    stream: Stream, n: int, text: str, states: list[str], line: list[State], rng: Random, deal: Deal
) -> Question:
    """A question with its options dealt: the states that were, some that never were, and "cannot answer"."""
    used = list(dict.fromkeys(state.value for state in line if state.value is not None))
    never = [state for state in states if state not in used]
    options = [*used, *rng.sample(never, min(len(never), max(1, 4 - len(used)))), f"{CANNOT_ANSWER}."]
    right = [state.value or f"{CANNOT_ANSWER}." for state in line]
    phases = assembling.phases_of([[option] for option in right])[-1] + 1
    slices = {"changes": assembling.bin_of(phases, *NOVEL_BINS)}
    order = deal.order(len(options), [(options.index(option), slices) for option in right])
    options = [options[place] for place in order]
    answers = [[LETTERS[options.index(option)]] for option in right]
    evidence = [list(state.evidence) for state in line]
    quotes = [state.quotes for state in line]
    return Question(f"{stream.id}_q{n}", stream.id, text, answers, evidence, slices, options, quotes)


def build(context: Context) -> Built:
    """Write the stories, or load the official release where the config names a copy of it.

    Raises:
        UpkeepError: wrong options or inputs.
    """
    if context.local is not None:
        return oaks_release.build(context)
    options = context.options(Options)
    if options.chunks < max(PHASES):
        raise UpkeepError(
            "too few chunks for the plot", where=context.where, expected=f"at least {max(PHASES)}", found=options.chunks
        )
    measure = context.tokenizer(options.tokenizer)
    rng, deal = Random(f"oaks_novel {options.seed}"), Deal(f"oaks_novel options {options.seed}")
    told = itertools.chain.from_iterable((a.question, a.states, *a.recalled, *a.told) for a in ASPECTS)
    taken = prose.vocabulary() | prose.words(told)
    streams: list[Stream] = []
    questions: list[Question] = []
    for n in range(options.streams):
        cast = synthetic.cast(rng, 6, 5, 0, taken)
        hero, *others = cast.people
        named = {"people": others, "places": list(cast.places)}
        states = {aspect: rng.sample(named.get(aspect.states) or aspect.states.split("|"), 5) for aspect in ASPECTS}
        events = plot(hero, states, options.chunks, rng)
        stream = Stream(f"story{n:02d}", _write(hero, states, events, options, measure, rng))
        streams.append(stream)
        # The derived question takes the place of the last aspect's, which is told all the same.
        lines = [line for line in timelines(events, options.chunks) if line[0] is not ASPECTS[-1]]
        for number, (aspect, line) in enumerate(lines):
            if any(state.value for state in line):
                text = (aspect.question if aspect else DERIVED).format(hero)
                questions.append(_question(stream, number, text, states[aspect or TOWN], line, rng, deal))
    tables = assembling.assemble(streams, questions, measure)
    statistics = assembling.common_statistics(tables)
    statistics["options_per_question"] = round(sum(len(q.options or []) for q in questions) / len(questions), 3)
    return Built(
        *tables,
        pairs=[],
        tokenizer=str(measure),
        # The first word of a chunk, without the white space before it, may have a token more than was counted.
        chunk_tokens=max(options.chunk_tokens, *tables[0]["tokens"]),
        source=context.spec.source,
        statistics=statistics,
        seed=options.seed,
        notes=["stories: generated by a seeded grammar"],
    )
