"""Which engine of the record answers a cell, and why none does: what tells it from the nearest engine, and a request of
a prediction from the nearest one on record."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from upkeep.catalog import Catalog
from upkeep.cell import wire
from upkeep.contract import Prediction, Record
from upkeep.errors import UpkeepError
from upkeep.gateway import prompts
from upkeep.gateway.calls import Holding, Records, decoded
from upkeep.gateway.engines import reader_parts
from upkeep.gateway.record import Replies, engines
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.published import predictions
from upkeep.text import printable

AROUND = 60
"""Characters before the first difference of two parts that are shown."""
SHOWN = 240
"""Characters of a part that are shown."""


class Nearest(Record, frozen=True, kw_only=True):
    """The engine on record that is nearest to one that is not."""

    engine: str
    model: str
    differs: dict[str, tuple[str | None, str]]
    """Part of its identity -> on record, now."""


class Answering(Record, frozen=True, kw_only=True):
    """An engine that would answer the cell as things are."""

    engine: str
    """What its replies are kept by."""
    entries: int | None
    """On record; null where there is none of this engine."""
    nearest: Nearest | None
    """Null where its own are there, or none at all."""


class NamedCall(Record, frozen=True, kw_only=True):
    """A call that a prediction names."""

    key: str
    engine: str | None
    """Whose record has the request; null where none has."""
    model: str | None
    own: bool
    """Whether that is an engine that answers the cell as things are."""
    replied: bool
    """Whether a reply to it is on record."""


class Asked(Record, frozen=True, kw_only=True):
    """A prediction, and what it asked."""

    probe_id: str
    trial: int
    calls: list[NamedCall]


class PartDifference(Record, frozen=True, kw_only=True):
    """The first part in which two prompts differ."""

    message: int
    """From 1 on."""
    roles: tuple[str, str]
    """On record, now; where they differ, that is all."""
    part: int | None
    """Of the message, from 1 on; null where the roles differ."""
    parts: int
    """Of the message now."""
    at: int
    """The first character that differs, from 0 on."""
    was: str | None
    """On record; null where it has no such part."""
    now: str | None


class Missed(Record, frozen=True, kw_only=True):
    """What the cell's last replay ended at."""

    state: Literal["none", "answered", "unreadable", "alone", "near"]
    """No replay has ended at anything; it has been answered since; its prompt cannot be shown; nothing is there to
    compare it with; the nearest is told."""
    problem: str = ""
    """Why its prompt cannot be shown."""
    nearest: str = ""
    """The call that is nearest: its prediction and number."""
    prompt: PartDifference | None = None
    """Null where the prompt is the same."""
    decoding: dict[str, tuple[str, str]] = msgspec.field(default_factory=dict)
    """What else differs: on record, now."""


class Why(Record, frozen=True, kw_only=True):
    """What `./upkeep record why CELL [PROBE] --json` prints."""

    cell: str
    engines: list[Answering]
    asked: list[Asked]
    """The predictions of a probe, where one is named."""
    missed: Missed | None
    """Null where no probe is named, or nothing of this cell's own engine is on record."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A request that is on record."""

    name: str
    prompt: bytes
    asked: prompts.Asked
    messages: prompts.Messages


def why(catalog: Catalog, name: str, probe: str | None = None) -> Why:
    """Which engine of the record answers a cell; where none does, what tells the nearest one from the cell's.

    Args:
        probe: of the published cell; the same of its requests, and what tells one that is not on record from them.

    Raises:
        UpkeepError: there is no such cell or probe, or its model is asked otherwise.
    """
    cell = Cell.parse(name)
    catalog.check(cell)
    readers = reader_parts(catalog, cell)
    if not readers:
        raise UpkeepError(
            "no engine of the suite answers this cell",
            where=name,
            expected="a model of the suite's own engines; what an endpoint answers is kept by the request alone",
            remedy=f"`./upkeep show {name}` has what it answered",
        )
    record = Layout(catalog.results).record
    answering = [_answering(record, wanted, cell.model) for wanted in readers]
    if probe is None:
        return Why(cell=name, engines=answering, asked=[], missed=None)
    found = [one for one in predictions(catalog, cell) if one.probe_id == probe]
    if not found:
        raise UpkeepError(f"no probe {probe!r}", where=cell, remedy=f"./upkeep show {cell} lists them")
    records = Records(catalog, cell)
    known: list[_Kept] = []
    asked = [Asked(probe_id=one.probe_id, trial=one.trial, calls=list(_calls(records, one, known))) for one in found]
    own = next((one for one in records.known if one.engine in records.own), None)
    missed = None if own is None else _missed(records.replies(own), str(cell), known)
    return Why(cell=name, engines=answering, asked=asked, missed=missed)


def _answering(record: Path, wanted: dict[str, str], model: str) -> Answering:
    known, replies = engines(record), Replies(record, wanted, model)
    if any(one.engine == replies.engine for one in known):
        return Answering(engine=replies.engine, entries=len(replies), nearest=None)
    if not known:
        return Answering(engine=replies.engine, entries=None, nearest=None)
    near = max(known, key=lambda one: sum(one.parts.get(part) == value for part, value in wanted.items()))
    differs = {part: (near.parts.get(part), now) for part, now in wanted.items() if near.parts.get(part) != now}
    nearest = Nearest(engine=near.engine, model=near.model, differs=differs)
    return Answering(engine=replies.engine, entries=None, nearest=nearest)


def _calls(records: Records, prediction: Prediction, known: list[_Kept]) -> Iterator[NamedCall]:
    """The calls of a prediction; those that are on record are added to what is known."""
    for number, key in enumerate(map(bytes.fromhex, prediction.calls), 1):
        found = next(records.holding(key), None)
        if found is None:
            yield NamedCall(key=key.hex(), engine=None, model=None, own=False, replied=False)
            continue
        engine, replies = found.engine, records.replies(found.engine)
        yield NamedCall(
            key=key.hex(),
            engine=engine.engine,
            model=engine.model,
            own=engine.engine in records.own,
            replied=replies.get(key) is not None,
        )
        name = _call(prediction.probe_id, prediction.trial, number, len(prediction.calls))
        known += _kept(replies, name, found)


def _call(probe_id: str, trial: int, number: int, calls: int) -> str:
    return f"{printable(probe_id)}, trial {trial}, call {number} of {calls}"


def _kept(replies: Replies, name: str, found: Holding) -> Iterator[_Kept]:
    try:
        yield _Kept(name, found.prompt, found.asked, prompts.prompt(replies, found.prompt))
    except prompts.NotReadable:
        return


def _missed(replies: Replies, job: str, known: Sequence[_Kept]) -> Missed:
    """What the cell's last replay ended at, beside the nearest of the requests that are on record."""
    if (missed := prompts.missed(replies, job)) is None:
        return Missed(state="none")
    prompt, wanted = missed
    if replies.get(wanted if wanted else prompt) is not None:
        return Missed(state="answered")
    try:
        messages = prompts.prompt(replies, prompt)
    except prompts.NotReadable as error:
        return Missed(state="unreadable", problem=str(error))
    if not known:
        return Missed(state="alone")
    parts = set(_parts(messages))
    near = max(known, key=lambda one: (one.prompt == prompt, len(parts.intersection(_parts(one.messages)))))
    asked = prompts.request(replies, wanted) if wanted else None
    decoding = {} if asked is None else _decoding(near.asked, asked[1])
    return Missed(state="near", nearest=near.name, prompt=_difference(near.messages, messages), decoding=decoding)


def _parts(messages: prompts.Messages) -> Iterable[str]:
    return itertools.chain.from_iterable(parts for _, parts in messages)


def _difference(before: prompts.Messages, now: prompts.Messages) -> PartDifference | None:
    """The first part in which two prompts differ."""
    none: tuple[str, list[str]] = ("(none)", [])
    pairs = itertools.zip_longest(before, now, fillvalue=none)
    for number, ((role_before, parts_before), (role_now, parts_now)) in enumerate(pairs, 1):
        roles, count = (role_before, role_now), len(parts_now)
        if role_before != role_now:
            return PartDifference(message=number, roles=roles, part=None, parts=count, at=0, was=None, now=None)
        for part, (old, new) in enumerate(itertools.zip_longest(parts_before, parts_now), 1):
            if old != new:
                at = next((i for i, (a, b) in enumerate(zip(old or "", new or "", strict=False)) if a != b), None)
                at = min(len(old or ""), len(new or "")) if at is None else at
                return PartDifference(message=number, roles=roles, part=part, parts=count, at=at, was=old, now=new)
    return None


def _decoding(before: prompts.Asked, now: prompts.Asked) -> dict[str, tuple[str, str]]:
    if not isinstance(before, wire.Generate) or not isinstance(now, wire.Generate):
        was, new = ("written" if isinstance(one, wire.Generate) else "scored" for one in (before, now))
        return {} if before == now else {"continuation": (was, new if new != was else f"another one {new}")}
    found = {}
    if before.sampling != now.sampling:
        found["sampling"] = decoded(before.sampling), decoded(now.sampling)
    if before.seed != now.seed:
        found["seed"] = str(before.seed), str(now.seed)
    return found


# ---------------------------------------------------------------- on the terminal


def lines(found: Why) -> Iterator[str]:
    """The same for people."""
    for one in found.engines:
        if one.entries is not None:
            yield f"answered by {one.engine}: {one.entries:,} entries"
            continue
        yield f"no reply of the engine {one.engine} is on record"
        if one.nearest is not None:
            yield f"the nearest is {one.nearest.engine} ({one.nearest.model}); it differs in:"
            yield from (f"  {part}: {was} on record, {now} now" for part, (was, now) in one.nearest.differs.items())
    for asked in found.asked:
        if not asked.calls:
            yield f"{printable(asked.probe_id)}, trial {asked.trial}: names no calls"
        for number, call in enumerate(asked.calls, 1):
            name = _call(asked.probe_id, asked.trial, number, len(asked.calls))
            if call.engine is None:
                yield f"{name}: no request with the key {call.key[:16]} is on record"
                continue
            own = "the engine that answers this cell" if call.own else "another engine"
            state = "recorded" if call.replied else "asked, and without a reply,"
            yield f"{name}: {state} by {call.engine[:16]} ({call.model}), {own}"
    if found.missed is not None:
        yield from _told(found.missed)


def _told(missed: Missed) -> Iterator[str]:
    match missed.state:
        case "none":
            yield "no replay of this cell has ended at something that is not on record; `./upkeep refresh` replays it"
        case "answered":
            yield "what its last replay ended at has been answered since"
        case "unreadable":
            yield f"its last replay ended at a prompt that cannot be shown: {missed.problem}"
        case "alone":
            yield "its last replay ended at a prompt that is not on record; nothing is there to compare it with"
        case _:
            yield f"its last replay ended at a request that is not on record; the nearest of these is {missed.nearest}"
            yield from _prompt(missed.prompt)
            yield from (f"  {name}: {was} on record, {now} now" for name, (was, now) in missed.decoding.items())


def _prompt(one: PartDifference | None) -> Iterator[str]:
    if one is None:
        yield "  the prompt is the same"
        return
    was, now = map(printable, one.roles)
    if one.part is None:
        yield f"  message {one.message} ({now}): role {was} on record, {now} now"
        return
    yield f"  the first difference: message {one.message} ({now}), part {one.part} of {one.parts}"
    start = max(0, one.at - AROUND)
    yield from _excerpt("on record", one.was, start)
    yield from _excerpt("now", one.now, start)


def _excerpt(what: str, part: str | None, start: int) -> Iterator[str]:
    if part is None:
        yield f"  {what}: (no such part)"
        return
    yield f"  {what}:" + (f" from character {start:,} on" if start else "")
    text = part[start : start + SHOWN] + (" [...]" if len(part) > start + SHOWN else "")
    for line in printable(text).split("\n"):
        yield f"  | {line}".rstrip()
