"""OAKS-BABI built anew: Algorithm 1 of the paper over a simulated world (OAKS, B.1.2, Tables 8 and 9).

Facts are spread through long prose, the prose is cut into chunks, and each question has the answer that is right after
each chunk. Where the config names a copy of the official release, that is loaded instead.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from upkeep.building import prose, store, synthetic, tokens
from upkeep.building.builders import oaks_release
from upkeep.building.store import Built, Context, Question, Stream
from upkeep.building.synthetic import Group
from upkeep.contract import Pair
from upkeep.errors import UpkeepError

SPARSE, MODERATE, MOST = 3, 5, 20
"""Most phases of a sparse, a moderate and any question (B.1.1)."""
TYPES = {"tracking": 0.07, "counting": 0.28, "bridge": 0.30, "comparison": 0.35}
"""Share of each question type (Table 9)."""
BINS = {"sparse": 0.40, "moderate": 0.35, "frequent": 0.25}
"""Share of each bin. Table 7 prints 40, 25, 35; the paper's Table 2 fits 40, 35, 25 only."""
BINS_PRINTED = {"sparse": 0.40, "moderate": 0.25, "frequent": 0.35}
PHASES, TRACKING_PHASES = 4.7, 8.8
"""Mean phases of a question, and of a tracking question (B.1.2, 6.3)."""

Counts = npt.NDArray[np.int_]
Shares = npt.NDArray[np.float64]


class Options(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`options` of `dataset.yaml`."""

    streams: int = 12
    chunks: int = 65
    """Chunks a stream."""
    chunk_tokens: int = 2000
    questions: int = 1224
    """Questions in all."""
    facts: int = 87
    """Facts a stream, on average."""
    facts_spread: int = 12
    """Streams have up to so many facts more or fewer, evenly spread."""
    people: int = 5
    places: int = 7
    objects: int = 4
    seed: int = 0
    prose: str | list[str] | None = None
    """Text files, or folders of them; null for generated prose."""
    tokenizer: str | None = None
    """A `tokenizer.json`; null for the suite's own."""
    pairs: int = 0
    """Training pairs, from questions that are not asked."""


# ---------------------------------------------------------------- 1. the state log (Algorithm 1, lines 1 to 11)


class Entry(NamedTuple):
    """A logged action: the number of the fact, from 0, and who did what to what."""

    fact: int
    subject: str
    object: str
    recipient: str | None


GET = "get"
"""The action that a transfer is to its recipient."""


class Log:
    """Entity -> action -> what happened to it, in order of the facts."""

    def __init__(self, sentences: Iterable[str]) -> None:
        self._state: dict[str, dict[str, list[Entry]]] = defaultdict(lambda: defaultdict(list))
        for number, sentence in enumerate(sentences):
            fact = synthetic.parse(sentence)
            entry = Entry(number, fact.subject, fact.object, fact.recipient)
            self._state[fact.subject][fact.group].append(entry)
            self._state[fact.object][fact.group].append(entry)
            if fact.recipient is not None:
                self._state[fact.recipient][GET].append(entry)
        movers = {entry.subject for actions in self._state.values() for entry in actions[Group.MOVE]}
        self.people = sorted(movers | {e.recipient for a in self._state.values() for e in a[GET] if e.recipient})
        self.places = sorted({e.object for person in self.people for e in self(person, Group.MOVE)})
        self.objects = sorted(self._state.keys() - {*self.people, *self.places})

    def __call__(self, entity: str, action: str) -> list[Entry]:
        """What is logged for an entity under an action."""
        return self._state[entity][action]

    def move_before(self, person: str, fact: int) -> Entry | None:
        """The move that brought a person to where they are when a fact happens."""
        moves = self(person, Group.MOVE)
        n = bisect_right(moves, fact, key=lambda entry: entry.fact)
        return moves[n - 1] if n else None

    def acquired(self, person: str, thing: str) -> list[Entry]:
        """When a person came to hold an object: by picking it up or being given it."""
        return _merge(_of(self(person, Group.ACQUIRE), thing), _of(self(person, GET), thing))


def _of(entries: Iterable[Entry], thing: str) -> list[Entry]:
    return [entry for entry in entries if entry.object == thing]


def _merge(*lists: Iterable[Entry]) -> list[Entry]:
    return list(heapq.merge(*lists))


# ---------------------------------------------------------------- 2. timelines


class Special(NamedTuple):
    """An answer that is no name and no number."""

    forms: tuple[str, ...]


UNKNOWN = Special(("Unknown",))
NOBODY = Special(("Nobody", "No one", "None", "Unknown"))
SAME = Special(("Same",))
UNKNOWN_OR_SAME = Special(("Unknown", "Same"))
Value = str | int | Special


class Step(NamedTuple):
    """From this fact on the answer is `value`, and the facts of `evidence` (ascending) tell so."""

    fact: int
    value: Value
    evidence: tuple[int, ...]


Steps = Iterator[Step]


def _latest(entries: Iterable[Entry], value: Callable[[Entry], Value]) -> Steps:
    for entry in entries:
        yield Step(entry.fact, value(entry), (entry.fact,))


def _tally(entries: Iterable[Entry]) -> Steps:
    seen: tuple[int, ...] = ()
    for entry in entries:
        seen += (entry.fact,)
        yield Step(entry.fact, len(seen), seen)


def _firsts(entries: Iterable[Entry], key: Callable[[Entry], str | None]) -> list[Entry]:
    """The first entry of each key: what a count of different ones counts."""
    return list({key(entry): entry for entry in reversed(list(entries))}.values())[::-1]


def _distinct(entries: Iterable[Entry], key: Callable[[Entry], str | None]) -> Steps:
    return _tally(sorted(_firsts(entries, key)))


def _more(first: str, of_first: Iterable[Entry], second: str, of_second: Iterable[Entry]) -> Steps:
    """Who or what has more entries; Same where both have as many."""
    seen: tuple[int, ...] = ()
    lead = 0
    for fact, sign in sorted([(e.fact, 1) for e in of_first] + [(e.fact, -1) for e in of_second]):
        seen += (fact,)
        lead += sign
        yield Step(fact, first if lead > 0 else second if lead < 0 else SAME, seen)


def _subject(entry: Entry) -> str:
    return entry.subject


def _object(entry: Entry) -> str:
    return entry.object


def _where(log: Log, person: str, entries: Iterable[Entry]) -> Steps:
    """Where a person was at each of the entries."""
    for entry in entries:
        move = log.move_before(person, entry.fact)
        evidence = (entry.fact,) if move is None else tuple(sorted({move.fact, entry.fact}))
        yield Step(entry.fact, UNKNOWN if move is None else move.object, evidence)


def _moved_after(log: Log, person: str, entries: Sequence[Entry]) -> Steps:
    """Where a person moved after the first of the entries."""
    if entries:
        for move in log(person, Group.MOVE):
            if move.fact > entries[0].fact:
                yield Step(move.fact, move.object, (entries[0].fact, move.fact))


def _holder(log: Log, thing: str) -> Steps:
    def value(entry: Entry) -> Value:
        if entry in dropped:
            return NOBODY
        return entry.recipient or entry.subject

    dropped = set(log(thing, Group.DISCARD))
    return _latest(_merge(log(thing, Group.ACQUIRE), log(thing, Group.TRANSFER), log(thing, Group.DISCARD)), value)


def _held(log: Log, thing: str) -> Steps:
    entries = _merge(log(thing, Group.ACQUIRE), log(thing, Group.TRANSFER))
    return _distinct(entries, lambda entry: entry.recipient or entry.subject)


def _straight(log: Log, start: str, end: str) -> Steps:
    steps = [
        Step(after.fact, after.subject, (before.fact, after.fact))
        for person in log.people
        for before, after in itertools.pairwise(log(person, Group.MOVE))
        if (before.object, after.object) == (start, end)
    ]
    return iter(sorted(steps, key=lambda step: step.fact))


@dataclass(frozen=True, slots=True)
class Template:
    """A question template: its words are ours, its meaning that of Table 8."""

    type: str
    text: str
    slots: str
    """What fills {0}, {1}, ...: a letter each, p(erson), l(ocation) or o(bject)."""
    steps: Callable[..., Steps]
    """(log, *entities) -> how the answer changes."""
    either_way: bool = False
    """Whether the two slots of the same kind can be swapped without asking another question."""

    def fillings(self, log: Log) -> Iterator[tuple[str, ...]]:
        """All ways to fill the slots with different entities; one of both where they can be swapped."""
        kinds = {"p": log.people, "l": log.places, "o": log.objects}
        for names in itertools.product(*(kinds[slot] for slot in self.slots)):
            if len(set(names)) == len(names) and not (self.either_way and names[-2] > names[-1]):
                yield names


TEMPLATES = (
    Template("tracking", "Where is {0} now?", "p", lambda s, a: _latest(s(a, Group.MOVE), _object)),
    Template("tracking", "Who is holding the {0} now?", "o", _holder),
    Template(
        "tracking",
        "Who was the last to give the {0} to somebody else?",
        "o",
        lambda s, o: _latest(s(o, Group.TRANSFER), _subject),
    ),
    Template(
        "counting",
        "How many times has {0} moved to the {1}?",
        "pl",
        lambda s, a, p: _tally(_of(s(a, Group.MOVE), p)),
    ),
    Template("counting", "How many times has {0} moved, to any place?", "p", lambda s, a: _tally(s(a, Group.MOVE))),
    Template(
        "counting",
        "How many different people have been to the {0}?",
        "l",
        lambda s, p: _distinct(s(p, Group.MOVE), _subject),
    ),
    Template(
        "counting",
        "How many times has {0} picked up the {1}?",
        "po",
        lambda s, a, o: _tally(_of(s(a, Group.ACQUIRE), o)),
    ),
    Template(
        "counting",
        "How many different objects has {0} picked up?",
        "p",
        lambda s, a: _distinct(s(a, Group.ACQUIRE), _object),
    ),
    Template(
        "counting",
        "How many times has {0} dropped the {1}?",
        "po",
        lambda s, a, o: _tally(_of(s(a, Group.DISCARD), o)),
    ),
    Template(
        "counting",
        "How many different objects has {0} dropped?",
        "p",
        lambda s, a: _distinct(s(a, Group.DISCARD), _object),
    ),
    Template("counting", "How many times has anyone picked up the {0}?", "o", lambda s, o: _tally(s(o, Group.ACQUIRE))),
    Template("counting", "How many different people have held the {0}?", "o", _held),
    Template("counting", "How many times has anyone dropped the {0}?", "o", lambda s, o: _tally(s(o, Group.DISCARD))),
    Template(
        "counting",
        "How many different people have dropped the {0}?",
        "o",
        lambda s, o: _distinct(s(o, Group.DISCARD), _subject),
    ),
    Template(
        "counting", "How many times has {0} been given something, by anyone?", "p", lambda s, a: _tally(s(a, GET))
    ),
    Template(
        "counting",
        "How many different people have given {0} something?",
        "p",
        lambda s, a: _distinct(s(a, GET), _subject),
    ),
    Template(
        "counting",
        "How many times has {0} given an object to {1}?",
        "pp",
        lambda s, a, b: _tally(entry for entry in s(b, GET) if entry.subject == a),
    ),
    Template("bridge", "Who was the last to go straight from the {0} to the {1}?", "ll", _straight),
    Template(
        "bridge",
        "Where was {0} when {1} last moved to the {2}?",
        "ppl",
        lambda s, a, b, p: _where(s, a, _of(s(b, Group.MOVE), p)),
    ),
    Template(
        "bridge",
        "What is the latest place that {0} moved to at any time after acquiring the {1}?",
        "po",
        lambda s, a, o: _moved_after(s, a, s.acquired(a, o)),
    ),
    Template(
        "bridge",
        "What is the latest place that {0} moved to at any time after dropping the {1}?",
        "po",
        lambda s, a, o: _moved_after(s, a, _of(s(a, Group.DISCARD), o)),
    ),
    Template("bridge", "Where did {0} last acquire the {1}?", "po", lambda s, a, o: _where(s, a, s.acquired(a, o))),
    Template(
        "bridge",
        "Where did {0} last drop the {1}?",
        "po",
        lambda s, a, o: _where(s, a, _of(s(a, Group.DISCARD), o)),
    ),
    Template(
        "comparison",
        "Who has visited more different places, {0} or {1}?",
        "pp",
        lambda s, a, b: _more(a, _firsts(s(a, Group.MOVE), _object), b, _firsts(s(b, Group.MOVE), _object)),
        either_way=True,
    ),
    Template(
        "comparison",
        "Which place has {0} visited more often, the {1} or the {2}?",
        "pll",
        lambda s, a, p, q: _more(p, _of(s(a, Group.MOVE), p), q, _of(s(a, Group.MOVE), q)),
        either_way=True,
    ),
    Template(
        "comparison",
        "Who has picked up more different objects, {0} or {1}?",
        "pp",
        lambda s, a, b: _more(a, _firsts(s(a, Group.ACQUIRE), _object), b, _firsts(s(b, Group.ACQUIRE), _object)),
        either_way=True,
    ),
    Template(
        "comparison",
        "Who has dropped more different objects, {0} or {1}?",
        "pp",
        lambda s, a, b: _more(a, _firsts(s(a, Group.DISCARD), _object), b, _firsts(s(b, Group.DISCARD), _object)),
        either_way=True,
    ),
    Template(
        "comparison",
        "Who has picked up objects more often, {0} or {1}?",
        "pp",
        lambda s, a, b: _more(a, s(a, Group.ACQUIRE), b, s(b, Group.ACQUIRE)),
        either_way=True,
    ),
    Template(
        "comparison",
        "Who has dropped objects more often, {0} or {1}?",
        "pp",
        lambda s, a, b: _more(a, s(a, Group.DISCARD), b, s(b, Group.DISCARD)),
        either_way=True,
    ),
)
"""Table 8: 3 tracking, 14 counting, 6 bridge, 6 comparison. To pick up is to take what lies there; to acquire is that
or to be given it (Algorithm 1, line 9)."""

BEFORE: dict[str, Value] = {"tracking": UNKNOWN, "counting": 0, "bridge": UNKNOWN, "comparison": UNKNOWN_OR_SAME}
"""The answer before any fact that the question is about (B.2.1)."""

_BELOW_TWENTY = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen"""
_ROUND = "- - twenty thirty forty fifty sixty seventy eighty ninety"
_TIMES = {1: ["once", "one time", "1 time"], 2: ["twice"], 3: ["thrice"]}


def number_forms(number: int) -> list[str]:
    """The forms in which a count is accepted, digits first (B.2.1, cases i and ii).

    Raises:
        ValueError: the number is negative or above 99.
    """
    if not 0 <= number < 100:
        raise ValueError(f"no forms for {number}")
    if number == 0:
        return ["Unknown", "0", "zero", "never", "none", "0 times", "zero times"]
    tens, unit = divmod(number, 10)
    below_twenty = _BELOW_TWENTY.split()
    word = below_twenty[number] if number < 20 else _ROUND.split()[tens] + (f"-{below_twenty[unit]}" if unit else "")
    several = [] if number == 1 else [f"{word} times", f"{number} times"]
    return [str(number), word, *_TIMES.get(number, []), *several]


def forms(value: Value) -> list[str]:
    """Every accepted form of an answer."""
    if isinstance(value, Special):
        return list(value.forms)
    return number_forms(value) if isinstance(value, int) else [value]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A filled template with the answer at each chunk."""

    stream: int
    type: str
    text: str
    answers: list[list[str]]
    evidence: list[list[int]]
    phases: int

    @property
    def bin(self) -> str:
        """Its bin by number of phases."""
        return store.bin_of(self.phases, SPARSE, MODERATE)


def chunk_timeline(
    steps: Iterable[Step], before: Value, chunk_of: Sequence[int], chunks: int
) -> tuple[list[Value], list[list[int]]]:
    """The answer after the last fact of each chunk, and the chunks of the facts that tell so.

    A phase keeps the evidence that it began with: that is enough, and its last chunk is where the phase began.

    Args:
        chunk_of: the chunk of each fact, ascending.
    """
    values, evidence = [before] * chunks, [[] for _ in range(chunks)]  # type: list[Value], list[list[int]]
    pending = iter(steps)
    step = next(pending, None)
    for chunk in range(chunks):
        value, shown = (values[chunk - 1], evidence[chunk - 1]) if chunk else (before, [])
        last: Step | None = None
        while step is not None and chunk_of[step.fact] <= chunk:
            last, step = step, next(pending, None)
        if last is not None and last.value != value:
            value, shown = last.value, sorted({chunk_of[fact] for fact in last.evidence})
        values[chunk], evidence[chunk] = value, shown
    return values, evidence


def candidates(stream: int, facts: Sequence[str], chunk_of: Sequence[int], chunks: int, rng: Random) -> list[Candidate]:
    """All questions about a stream whose answer changes, 2 to 20 phases each (Algorithm 1, lines 12 to 25).

    Args:
        facts: their sentences, in order.
        chunk_of: the chunk of each fact.
        rng: decides which of two things that are compared is named first.
    """
    log = Log(facts)
    found: list[Candidate] = []
    for template in TEMPLATES:
        for names in template.fillings(log):
            before = BEFORE[template.type]
            values, evidence = chunk_timeline(template.steps(log, *names), before, chunk_of, chunks)
            phases = 1 + sum(a != b for a, b in itertools.pairwise(values))
            if 2 <= phases <= MOST:
                swap = template.either_way and rng.random() < 0.5
                text = template.text.format(*((*names[:-2], names[-1], names[-2]) if swap else names))
                answers = [forms(value) for value in values]
                found.append(Candidate(stream, template.type, text, answers, evidence, phases))
    return found


# ---------------------------------------------------------------- the draw


def draw(pools: Sequence[Sequence[Candidate]], questions: int, rng: Random) -> list[list[Candidate]]:
    """Draw questions so that their types have the shares of Table 9, their bins those of Table 7, and their phases the
    paper's mean, as nearly as the candidates allow; as many from each stream.

    The paper does not say how its 1,224 questions were drawn; this draw is ours.

    Args:
        pools: the candidates of each stream.

    Raises:
        UpkeepError: there are fewer candidates of a type than its share asks for.
    """
    owed = np.zeros((len(TYPES), len(BINS)))
    drawn: list[list[Candidate]] = []
    for n, pool in enumerate(pools):
        keys = {candidate.text: rng.random() for candidate in pool}
        cells = [[[c for c in pool if (c.type, c.bin) == (t, b)] for b in BINS] for t in TYPES]
        room = np.array([[len(cell) for cell in row] for row in cells])
        per_stream = (n + 1) * questions // len(pools) - n * questions // len(pools)
        owed += _fit(room, per_stream)
        by_type = _round(owed.sum(axis=1), room.sum(axis=1), per_stream)
        counts = np.array([_round(*row) for row in zip(owed, room, by_type, strict=True)])
        owed -= counts
        drawn.append(_tilted(cells, counts, keys))
    return drawn


def _fit(room: Counts, questions: int) -> Shares:
    """(types, bins): how many questions of each, in fractions: as the candidates have them, fitted to both shares by
    iterative proportional fitting. Types are met exactly, bins as far as there are candidates."""
    rows, columns = questions * np.array([*TYPES.values()]), questions * np.array([*BINS.values()])
    for kind, wanted, there in zip(TYPES, rows, room.sum(axis=1), strict=True):
        if there < wanted:
            raise UpkeepError(
                f"too few {kind} questions in a stream",
                expected=f"{wanted:.1f}",
                found=int(there),
                remedy="ask for fewer `questions`, or for more `facts`, `people`, `places` or `objects`",
            )
    table = room.astype(float)
    for _ in range(200):
        for axis, wanted in ((0, columns), (1, rows)):
            sums = table.sum(axis=axis)
            scale = np.divide(wanted, sums, out=np.zeros_like(sums), where=sums > 0)
            table = np.minimum(room, table * np.expand_dims(scale, axis))
    return table


def _round(owed: Shares, room: Counts, total: int) -> Counts:
    """Whole numbers near `owed`, none above `room`, that sum to `total`."""
    counts = np.clip(np.floor(owed), 0, room).astype(int)
    while (short := total - int(counts.sum())) != 0:
        step = 1 if short > 0 else -1
        possible = counts < room if short > 0 else counts > 0
        counts[int(np.where(possible, step * (owed - counts), -np.inf).argmax())] += step
    return counts


def _tilted(cells: list[list[list[Candidate]]], counts: Counts, keys: Mapping[str, float]) -> list[Candidate]:
    """Draw from each cell at random, leaning towards many or few phases as far as the paper's means ask for.

    Weighted sampling without replacement by exponential keys (Efraimidis and Spirakis 2006), weight exp(lean * phases).
    """

    def pick(kinds: slice, lean: float) -> list[Candidate]:
        return [
            candidate
            for row, numbers in zip(cells[kinds], counts[kinds], strict=True)
            for cell, number in zip(row, numbers, strict=True)
            for candidate in sorted(cell, key=lambda c: np.log(-np.log(keys[c.text])) - lean * c.phases)[:number]
        ]

    def nearest(kinds: slice, phases: float) -> list[Candidate]:
        """A pick whose phases sum to nearly `phases`."""
        low, high = -3.0, 3.0
        for _ in range(12):
            middle = (low + high) / 2
            few = sum(candidate.phases for candidate in pick(kinds, middle)) < phases
            low, high = (middle, high) if few else (low, middle)
        return pick(kinds, (low + high) / 2)

    tracking = nearest(slice(0, 1), TRACKING_PHASES * int(counts[0].sum()))
    return tracking + nearest(slice(1, None), PHASES * int(counts.sum()) - sum(c.phases for c in tracking))


# ---------------------------------------------------------------- the streams


_MOST_SKIPPED = 20_000
"""Prose is without end; so many long sentences on end mean that there are no short ones."""


def spread(
    facts: Sequence[str], sentences: Iterable[str], options: Options, measure: tokens.Tokens, rng: Random
) -> tuple[list[str], list[int]]:
    """Put facts between the sentences of prose, at places drawn evenly, and cut all of it into chunks.

    Every sentence is whole in one chunk; a sentence of the prose longer than half a chunk is left out.

    Args:
        sentences: prose without end.

    Returns:
        The chunks' texts; the chunk of each fact.

    Raises:
        UpkeepError: the facts do not fit into the chunks, or the tokenizer does not add up.
    """
    limit = options.chunk_tokens
    places = sorted(rng.uniform(0, (options.chunks - 0.5) * limit) for _ in facts)
    sizes = measure.count([f" {fact}" for fact in facts])
    waiting = iter(zip(places, facts, sizes, strict=True))
    fact = next(waiting, None)
    packer = tokens.Packer(limit)
    chunk_of: list[int] = []
    skipped = 0
    for piece, size in measure.stream(sentences):
        while fact is not None and fact[0] <= packer.offset:
            chunk_of.append(packer.add(f" {fact[1]}", fact[2]))
            fact = next(waiting, None)
        if len(packer.chunks) >= options.chunks and not packer.fits(size):
            break
        if size <= limit // 2:
            packer.add(piece, size)
            skipped = 0
        elif (skipped := skipped + 1) > _MOST_SKIPPED:
            raise UpkeepError(
                "the prose's sentences are too long for the chunks",
                expected=f"sentences of at most {limit // 2} tokens, half a chunk",
                found=f"none among {skipped}",
                remedy="more `chunk_tokens`, or other prose",
            )
    if fact is not None or len(packer.chunks) != options.chunks:
        raise UpkeepError(
            "the facts do not fit into the chunks",
            expected=f"{len(facts)} facts in {options.chunks} chunks of {limit} tokens",
            found=f"{len(chunk_of)} facts fit",
            remedy="fewer `facts`, or more `chunks` or `chunk_tokens`",
        )
    return packer.texts(measure), chunk_of


def build(context: Context) -> Built:
    """Build OAKS-BABI, or load the official release where the config names a copy of it.

    Raises:
        UpkeepError: wrong options or inputs.
    """
    if context.local is not None or context.spec.url is not None:
        return oaks_release.build(context)
    options = context.options(Options)
    measure = context.tokenizer(options.tokenizer)
    files = _prose_files(context, options)
    rng = Random(f"oaks_babi {options.seed}")
    words, own_prose = prose.vocabulary(), None
    if files:
        own_prose = [piece for file in files for piece in prose.read_sentences(prose.read_text(file))]
        words = prose.words(own_prose)
    answers = itertools.chain(*map(forms, range(100)), *(special.forms for special in (UNKNOWN, NOBODY, SAME)))
    taken = words | prose.words(itertools.chain(answers, (template.text for template in TEMPLATES)))

    streams: list[Stream] = []
    pools: list[list[Candidate]] = []
    facts_told = 0
    for n in range(options.streams):
        cast = synthetic.cast(rng, options.people, options.places, options.objects, taken)
        more = round(options.facts_spread * (2 * n / (options.streams - 1) - 1)) if options.streams > 1 else 0
        facts = synthetic.tell(synthetic.simulate(cast, options.facts + more, rng), rng)
        if own_prose is not None:
            sentences = prose.endless(own_prose, n / options.streams, files)
        else:
            sentences = prose.generate(Random(f"prose {options.seed} {n}"))
        texts, chunk_of = spread(facts, sentences, options, measure, rng)
        streams.append(Stream(f"babi{n:02d}", texts))
        pools.append(candidates(n, facts, chunk_of, options.chunks, rng))
        facts_told += len(facts)

    drawn = draw(pools, options.questions, rng)
    questions = [
        Question(
            id=f"{streams[c.stream].id}_q{number}",
            stream=streams[c.stream].id,
            text=c.text,
            answers=c.answers,
            evidence=c.evidence,
            slices={"changes": c.bin, "question_type": c.type},
        )
        for chosen in drawn
        for number, c in enumerate(rng.sample(chosen, len(chosen)))
    ]
    tables = store.assemble(streams, questions, measure)
    statistics = store.common_statistics(tables) | {
        "facts_per_stream": round(facts_told / options.streams, 3),
        "candidates": float(sum(map(len, pools))),
        **distances([c for chosen in drawn for c in chosen]),
    }
    notes = [] if files else ["prose: generated by a seeded grammar"]
    if own_prose is not None:
        passes = statistics["tokens_per_stream"] / max(1, sum(measure.count(own_prose)))
        statistics["prose_passes_per_stream"] = round(passes, 3)
        notes.append("streams begin at different places of the same prose and share parts of it")
    return Built(
        *tables,
        pairs=_pairs(pools, drawn, options, rng),
        tokenizer=str(measure),
        chunk_tokens=options.chunk_tokens,
        source=context.spec.source,
        statistics=statistics,
        inputs=context.inputs(files),
        seed=options.seed,
        notes=notes,
    )


def distances(drawn: Sequence[Candidate]) -> dict[str, float]:
    """How far the drawn shares are from the paper's: half the sum of absolute differences, in percentage points."""

    def distance(shares: Mapping[str, float], of: Callable[[Candidate], str]) -> float:
        found = [of(candidate) for candidate in drawn]
        gaps = [abs(found.count(name) / len(found) - share) for name, share in shares.items()]
        return round(100 * sum(gaps) / 2, 3)

    return {
        "distance_types_table_9": distance(TYPES, lambda c: c.type),
        "distance_bins_40_35_25": distance(BINS, lambda c: c.bin),
        "distance_bins_table_7_as_printed": distance(BINS_PRINTED, lambda c: c.bin),
    }


def _prose_files(context: Context, options: Options) -> list[Path]:
    if context.prose is not None:
        return prose.text_files(context.prose)
    named = [options.prose] if isinstance(options.prose, str) else options.prose or []
    return [file for path in named for file in prose.text_files(context.path(path))]


def _pairs(
    pools: Sequence[Sequence[Candidate]], drawn: Sequence[Sequence[Candidate]], options: Options, rng: Random
) -> list[Pair]:
    """Training pairs with the answer at the end of the stream, from questions that are not among the probes."""
    texts = {candidate.text for chosen in drawn for candidate in chosen}
    others = [candidate for pool in pools for candidate in pool if candidate.text not in texts]
    if options.pairs > len(others):
        raise UpkeepError("too few questions for the training pairs", expected=options.pairs, found=len(others))
    return [Pair(question=c.text, answer=c.answers[-1][0]) for c in rng.sample(others, options.pairs)]
