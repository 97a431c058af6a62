"""One published prediction in reading order: what was asked, what had arrived, what the model read and said, how that
was read, and what would have been right. Or all predictions of a cell, one a line.

Text of datasets and models stands behind a bar, and no control character of it reaches the terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from upkeep.catalog import Catalog
from upkeep.operations.told import UNSAID, Judged, Listing, One, ToldCall, tell
from upkeep.report.shown import CALLS, FORMS, PARSES, UNKEPT
from upkeep.text import printable

LISTED = 100
"""Lines of a listing, without `full`."""
PART = 700
"""Characters of a part of a prompt, without `full`: of a longer one its beginning and its end."""
FIELD = 48
"""Characters of an answer in a listing."""
NEWEST = 10
"""Documents that are named of those that have arrived."""


def show(
    catalog: Catalog, name: str, probe: str | None = None, trial: int | None = None, *, wrong: bool, full: bool
) -> Iterator[str]:
    """The lines about what `tell` tells.

    Args:
        full: everything, however long.

    Raises:
        UpkeepError: there is no such cell, probe or trial, or it is not published.
    """
    return lines(tell(catalog, name, probe, trial, wrong=wrong), full=full)


def lines(told: Listing | One, *, full: bool) -> Iterator[str]:
    """What is told, for people.

    Args:
        full: everything, however long.
    """
    return listing(told, full=full) if isinstance(told, Listing) else one(told, full=full)


# ---------------------------------------------------------------- a listing


def listing(told: Listing, *, full: bool) -> Iterator[str]:
    """A line for each prediction: verdict, probe, answer and what would be right."""
    counts = ", ".join(f"{count:,} {verdict}" for verdict, count in told.verdicts.items())
    yield f"{told.cell}: {sum(told.verdicts.values()):,} predictions: {counts}"
    if told.stale:
        yield f"note: {_plain(told.stale)}"
    shown = told.predictions if full else told.predictions[:LISTED]
    width = max((len(row.probe_id) for row in shown), default=0)
    for row in shown:
        place = f"{_plain(row.probe_id):{width}}" + (f"  trial {row.trial}" if told.trials > 1 else "")
        answer = "(none)" if row.answer is None else _line(row.answer, FIELD)
        yield f"  {row.verdict:8}  {place}  {answer:{FIELD // 2}}  right: {_line(' | '.join(row.right), FIELD)}"
    if len(shown) < len(told.predictions):
        yield f"  ... and {len(told.predictions) - len(shown):,} more: --full lists all, --wrong what is not right"
    if shown:
        yield f"one of them: ./upkeep show {told.cell} {_plain(shown[0].probe_id)}"


# ---------------------------------------------------------------- one prediction


def one(told: One, *, full: bool) -> Iterator[str]:
    """Everything of one prediction."""
    trials = f", trial {told.trial} of {told.trials}" if told.trials > 1 else ""
    yield f"{told.cell}  {_plain(told.probe_id)}{trials}: {told.verdict}"
    if told.stale:
        yield f"note: {_plain(told.stale)}"
    yield from _question(told)
    yield from _arrived(told)
    yield from _calls(told, full=full)
    yield from _read(told, full=full)
    yield ""
    yield "ANSWER KEY"
    yield f"  right     {_either(told.right)}"
    if told.outdated:
        yield f"  outdated  {_either(told.outdated)}"
    found = {hit.id: hit.rank for hit in told.retrieved}
    for document in told.evidence:
        at = f"retrieved, rank {found[document]}" if document in found else "not retrieved" if found else ""
        yield f"  evidence  {_plain(document)}  {at}".rstrip()
    if told.judges:
        yield ""
        yield "JUDGES"
        yield from map(_judge, told.judges)
    yield ""
    yield f"VERDICT: {told.verdict}" + (" (by the answer key's words)" if told.judges else "")


def _judge(said: Judged) -> str:
    if said.problem is not None:
        return f"  {said.judge}: {_plain(said.problem)}"
    return f"  {said.judge}, {said.decides}: {said.meaning}" + (f" ({_plain(said.word)})" if said.word else "")


def _question(told: One) -> Iterator[str]:
    yield ""
    yield "QUESTION"
    yield from _quoted(told.question)
    for letter, option in zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", told.options, strict=False):
        yield from _quoted(f"{letter}. {option}" if told.form == "choice" else option)
    slices = ", ".join(f"{name} {value}" for name, value in told.slices.items())
    yield f"  asked for: {FORMS.get(told.form, told.form)}. {_plain(slices)}".rstrip(" .")


def _arrived(told: One) -> Iterator[str]:
    ids = told.arrived
    more = f", and {len(ids) - NEWEST:,} before" if len(ids) > NEWEST else ""
    yield ""
    yield f"ARRIVED  {len(ids):,} documents of stream {_plain(told.stream)}"
    yield f"  newest first: {', '.join(map(_plain, ids[:NEWEST]))}{more}"
    yield f"  in the prompt: {told.in_prompt:,}" + (
        f"; left out for want of room: {told.dropped:,}" if told.dropped else ""
    )
    if not told.retrieved:
        return
    yield ""
    yield "RETRIEVED"
    for hit in told.retrieved:
        yield f"  {hit.rank:>3}  {hit.score:10.4f}  {_plain(hit.id)}" + "  evidence" * (hit.id in told.evidence)


def _read(told: One, *, full: bool) -> Iterator[str]:
    yield ""
    yield "READ"
    if told.error is not None:
        yield "  it failed:"
        yield from _quoted(told.error, None if full else PART)
        return
    yield f"  {PARSES[told.parse]}"
    if told.rule is not None:
        yield f"  decided by a rule on its words (judges.yaml): {_plain(told.rule)}"
    if told.answer is not None:
        yield from _quoted(told.answer, None if full else PART)


# ---------------------------------------------------------------- calls


def _calls(told: One, *, full: bool) -> Iterator[str]:
    """The calls of a prediction, and what shows that they are not its own."""
    booked, total = told.booked, told.named
    for number, call in enumerate(told.calls if full else told.calls[:CALLS], 1):
        yield ""
        yield f"CALL {number:,} of {total:,}  {call.key[:16]}"
        if call.source is None:
            yield from (f"  {line}" for line in UNKEPT)
        else:
            yield from _call(call, call.source, full=full)
    if total > CALLS and not full:
        yield f"  ... and {total - CALLS:,} calls more: --full shows them"
    yield ""
    calls = f"{booked.calls:,} {'call' if booked.calls == 1 else 'calls'}"
    yield f"BOOKED  {calls}, {booked.prompt_tokens:,} tokens of prompts, {booked.completion_tokens:,} generated"
    for note in told.notes:
        if note == UNSAID:
            yield f"  note: {note}:"
            yield from _quoted(told.response or "", PART)
        else:
            yield f"  note: {note}"


def _call(call: ToldCall, source: str, *, full: bool) -> Iterator[str]:
    yield f"  {source}; {call.decoding}" + (f"; seed {call.seed}" if call.seed is not None else "")
    if call.messages is None:
        yield f"  {call.problem}"
    for message in call.messages or ():
        yield f"  {_plain(message.role) or 'text'}:"
        yield from _quoted("".join(part if full else _cut(part, PART) for part in message.parts))
    if call.reasoning is not None:
        yield "  reasoning:"
        yield from _quoted(call.reasoning, None if full else PART)
    count = "" if call.prompt_tokens is None else f"; the prompt has {call.prompt_tokens:,} tokens"
    yield f"  reply: {call.ended}{count}"
    if call.reply is not None:
        yield from _quoted(call.reply, None if full else PART)


# ---------------------------------------------------------------- text of others


def _plain(text: str) -> str:
    """In one line, fit for a terminal."""
    return " ".join(printable(text).split())


def _line(text: str, limit: int) -> str:
    line = _plain(text[: 4 * limit])
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _either(answers: Iterable[str]) -> str:
    return " | ".join(map(_plain, answers)) or "(nothing)"


def _cut(text: str, limit: int | None) -> str:
    """A text without its middle, where it is longer than a limit."""
    if limit is None or len(text) <= limit:
        return text
    begin, end = text[: 2 * limit // 3], text[-limit // 3 :]
    return f"{begin} [... {len(text) - len(begin) - len(end):,} characters: --full shows them ...] {end}"


def _quoted(text: str, limit: int | None = None) -> Iterator[str]:
    """Text of others, each line behind a bar."""
    for line in printable(_cut(text, limit)).split("\n"):
        yield f"  | {line}".rstrip()
