"""Why the record does not answer what a prediction's method asks: what tells it from the nearest request on record."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from upkeep.catalog import Catalog
from upkeep.cell import wire
from upkeep.contract import Prediction
from upkeep.gateway import prompts
from upkeep.gateway.calls import Records, decoded
from upkeep.gateway.record import Replies
from upkeep.jobs import Cell
from upkeep.text import printable

AROUND = 60
"""Characters before the first difference of two parts that are shown."""
SHOWN = 240
"""Characters of a part that are shown."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A request that is on record."""

    name: str
    prompt: bytes
    asked: prompts.Asked
    messages: prompts.Messages


def why(catalog: Catalog, cell: Cell, predictions: Sequence[Prediction]) -> Iterator[str]:
    """Which engine's record answers the calls of predictions; and, where the cell's last replay ended at something that
    is not on record, what tells that from the nearest of these calls.

    Args:
        predictions: of the published cell, in one trial or several.
    """
    records = Records(catalog, cell)
    known: list[_Kept] = []
    for prediction in predictions:
        if not prediction.calls:
            yield f"{_of(prediction)}: names no calls"
        for number, key in enumerate(map(bytes.fromhex, prediction.calls), 1):
            name = f"{_of(prediction)}, call {number} of {len(prediction.calls)}"
            engine = next(records.holding(key), None)
            if engine is None:
                yield f"{name}: no request with the key {key.hex()[:16]} is on record"
                continue
            replies = records.replies(engine)
            own = "the engine that answers this cell" if engine.engine in records.own else "another engine"
            state = "recorded" if replies.get(key) is not None else "asked, and without a reply,"
            yield f"{name}: {state} by {engine.engine[:16]} ({engine.model}), {own}"
            known += _kept(replies, name, key)
    own_engine = next((one for one in records.known if one.engine in records.own), None)
    if own_engine is not None:
        yield from _missed(records.replies(own_engine), str(cell), known)


def _of(prediction: Prediction) -> str:
    return f"{printable(prediction.probe_id)}, trial {prediction.trial}"


def _kept(replies: Replies, name: str, key: bytes) -> Iterator[_Kept]:
    if (found := prompts.request(replies, key)) is not None:
        try:
            yield _Kept(name, *found, prompts.prompt(replies, found[0]))
        except prompts.NotReadable:
            return


def _missed(replies: Replies, job: str, known: Sequence[_Kept]) -> Iterator[str]:
    """What the cell's last replay ended at, beside the nearest of the requests that are on record."""
    if (missed := prompts.missed(replies, job)) is None:
        yield "no replay of this cell has ended at something that is not on record; `./upkeep refresh` replays it"
        return
    prompt, wanted = missed
    if replies.get(wanted if wanted else prompt) is not None:
        yield "what its last replay ended at has been answered since"
        return
    try:
        messages = prompts.prompt(replies, prompt)
    except prompts.NotReadable as error:
        yield f"its last replay ended at a prompt that cannot be shown: {error}"
        return
    if not known:
        yield "its last replay ended at a prompt that is not on record; nothing is there to compare it with"
        return
    parts = set(_parts(messages))
    near = max(known, key=lambda one: (one.prompt == prompt, len(parts.intersection(_parts(one.messages)))))
    yield f"its last replay ended at a request that is not on record; the nearest of these is {near.name}"
    asked = prompts.request(replies, wanted) if wanted else None
    yield from _difference(near.messages, messages)
    if asked is not None:
        yield from _decoding(near.asked, asked[1])


def _parts(messages: prompts.Messages) -> Iterable[str]:
    return itertools.chain.from_iterable(parts for _, parts in messages)


def _difference(before: prompts.Messages, now: prompts.Messages) -> Iterator[str]:
    """The first part in which two prompts differ."""
    none: tuple[str, list[str]] = ("(none)", [])
    pairs = itertools.zip_longest(before, now, fillvalue=none)
    for number, ((role_before, parts_before), (role_now, parts_now)) in enumerate(pairs, 1):
        where = f"message {number} ({printable(role_now)})"
        if role_before != role_now:
            yield f"  {where}: role {printable(role_before)} on record, {printable(role_now)} now"
            return
        for part, (old, new) in enumerate(itertools.zip_longest(parts_before, parts_now), 1):
            if old == new:
                continue
            yield f"  the first difference: {where}, part {part} of {len(parts_now)}"
            at = next((i for i, (a, b) in enumerate(zip(old or "", new or "", strict=False)) if a != b), None)
            start = max(0, (min(len(old or ""), len(new or "")) if at is None else at) - AROUND)
            yield from _excerpt("on record", old, start)
            yield from _excerpt("now", new, start)
            return
    yield "  the prompt is the same"


def _excerpt(what: str, part: str | None, start: int) -> Iterator[str]:
    if part is None:
        yield f"  {what}: (no such part)"
        return
    yield f"  {what}:" + (f" from character {start:,} on" if start else "")
    text = part[start : start + SHOWN] + (" [...]" if len(part) > start + SHOWN else "")
    for line in printable(text).split("\n"):
        yield f"  | {line}".rstrip()


def _decoding(before: prompts.Asked, now: prompts.Asked) -> Iterator[str]:
    if not isinstance(before, wire.Generate) or not isinstance(now, wire.Generate):
        if before != now:
            yield "  another continuation is to be scored, or one is to be scored and not written"
        return
    if before.sampling != now.sampling:
        yield f"  sampling: {decoded(before.sampling)} on record, {decoded(now.sampling)} now"
    if before.seed != now.seed:
        yield f"  seed: {before.seed} on record, {now.seed} now"
