"""One published prediction in reading order: what was asked, what had arrived, what the model read and said, how that
was read, and what would have been right. Or all predictions of a cell, one a line.

It reads what is published and on record, and needs neither container nor model. Text of datasets and models stands
behind a bar, and no control character of it reaches the terminal.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import polars as pl

from upkeep.catalog import Catalog
from upkeep.cell.lockstep import call_seed
from upkeep.contract import Prediction
from upkeep.errors import UpkeepError
from upkeep.gateway.calls import Call, Calls
from upkeep.inputs import command_of
from upkeep.layout import Layout
from upkeep.published import predictions
from upkeep.report.shown import CALLS, FORMS, PARSES, UNASKED, UNKEPT, Shown
from upkeep.text import printable

LISTED = 100
"""Lines of a listing, without `full`."""
PART = 700
"""Characters of a part of a prompt, without `full`: of a longer one its beginning and its end."""
FIELD = 48
"""Characters of an answer in a listing."""
NEWEST = 10
"""Documents that are named of those that have arrived."""
LOOKED = 10_000
"""Calls of a prediction that are looked up at most."""


def show(
    catalog: Catalog, name: str, probe: str | None = None, trial: int | None = None, *, wrong: bool, full: bool
) -> Iterator[str]:
    """The lines about a cell, a question of it, or one prediction.

    Args:
        probe: a probe's id; or a question's, for all its probes.
        trial: one trial alone; of a single prediction by default the first.
        wrong: of a listing, only what is not right.
        full: everything, however long.

    Raises:
        UpkeepError: there is no such cell, probe or trial, or it is not published.
    """
    cell = Shown.read(catalog, name)
    if trial is not None and not 0 <= trial < cell.manifest.trials:
        times = cell.manifest.trials
        expected = f"0 to {times - 1}" if times > 1 else "0: each probe was asked once"
        raise UpkeepError(f"no trial {trial}", where=name, expected=expected, remedy="leave `--trial` out for all")
    if probe is None or probe in set(cell.graded["question_id"]):
        return listing(cell, probe, trial, wrong=wrong, full=full)
    ids = cell.graded["probe_id"].unique(maintain_order=True).to_list()
    if probe not in ids:
        near = difflib.get_close_matches(probe, ids, 5, 0.0)
        raise UpkeepError(
            f"no probe {probe!r}",
            where=name,
            expected=f"a probe or a question; the nearest: {', '.join(near)}",
            remedy=f"./upkeep show {name} lists them",
        )
    return one(cell, probe, trial or 0, full=full)


# ---------------------------------------------------------------- a listing


def listing(cell: Shown, question: str | None, trial: int | None, *, wrong: bool, full: bool) -> Iterator[str]:
    """A line for each prediction: verdict, probe, answer and what would be right."""
    rows = cell.graded
    if question is not None:
        rows = rows.filter(pl.col("question_id") == question)
    if trial is not None:
        rows = rows.filter(pl.col("trial") == trial)
    counts = ", ".join(f"{count:,} {verdict}" for verdict, count in rows["verdict"].value_counts(sort=True).iter_rows())
    yield f"{cell.name}: {len(rows):,} predictions: {counts}"
    if cell.stale:
        yield f"note: {_plain(cell.stale)}"
    if wrong:
        rows = rows.filter(~pl.col("right"))
    gold = dict(cell.gold.select("probe_id", "answers").iter_rows())
    shown = rows if full else rows.head(LISTED)
    columns = ["probe_id", "trial", "verdict", "answer"]
    width = max((len(probe) for probe in shown["probe_id"]), default=0)
    for probe, of_trial, verdict, answer in shown.select(columns).iter_rows():
        place = f"{_plain(probe):{width}}" + (f"  trial {of_trial}" if cell.manifest.trials > 1 else "")
        told = "(none)" if answer is None else _line(answer, FIELD)
        yield f"  {verdict:8}  {place}  {told:{FIELD // 2}}  right: {_line(' | '.join(gold[probe]), FIELD)}"
    if len(shown) < len(rows):
        yield f"  ... and {len(rows) - len(shown):,} more: --full lists all, --wrong what is not right"
    if len(shown):
        yield f"one of them: ./upkeep show {cell.name} {_plain(shown['probe_id'][0])}"


# ---------------------------------------------------------------- one prediction


def one(cell: Shown, probe: str, trial: int, *, full: bool) -> Iterator[str]:
    """Everything of one prediction."""
    prediction = next(p for p in predictions(cell.catalog, cell.cell) if (p.probe_id, p.trial) == (probe, trial))
    graded = cell.graded.row(by_predicate=(pl.col("probe_id") == probe) & (pl.col("trial") == trial), named=True)
    gold = cell.gold.row(by_predicate=pl.col("probe_id") == probe, named=True)
    probes = pl.read_parquet(Layout(cell.catalog.results).dataset(cell.cell.dataset) / "probes.parquet")
    asked = probes.row(by_predicate=pl.col("probe_id") == probe, named=True)
    trials = f", trial {trial} of {cell.manifest.trials}" if cell.manifest.trials > 1 else ""
    yield f"{cell.name}  {_plain(probe)}{trials}: {graded['verdict']}"
    if cell.stale:
        yield f"note: {_plain(cell.stale)}"
    yield from _question(asked, graded)
    yield from _arrived(cell, asked, prediction, gold)
    yield from _calls(cell, prediction, asked["question"], full=full)
    yield from _read(prediction, graded, full=full)
    yield ""
    yield "ANSWER KEY"
    yield f"  right     {_either(gold['answers'])}"
    if gold["outdated"]:
        yield f"  outdated  {_either(gold['outdated'])}"
    found = {one.id: one.rank for one in prediction.retrieved}
    for document in gold["evidence"]:
        at = f"retrieved, rank {found[document]}" if document in found else "not retrieved" if found else ""
        yield f"  evidence  {_plain(document)}  {at}".rstrip()
    yield from (judges := list(_judges(cell, probe, trial)))
    yield ""
    yield f"VERDICT: {graded['verdict']}" + (" (by the answer key's words)" if judges else "")


def _judges(cell: Shown, probe: str, trial: int) -> Iterator[str]:
    """What judges said of the response, whatever suite they judge in."""
    lines = []
    for judge, said in cell.judges():
        if isinstance(said, UpkeepError):
            lines.append(f"  {judge}: {_plain(said.problem)}")
            continue
        here = said.rows.filter((pl.col("probe_id") == probe) & (pl.col("trial") == trial))
        for decides, word, meaning in here.select("decides", "verdict", "meaning").iter_rows():
            lines.append(f"  {judge}, {decides}: {meaning or UNASKED}" + (f" ({_plain(word)})" if word else ""))
    if lines:
        yield ""
        yield "JUDGES"
        yield from lines


def _question(asked: dict[str, Any], graded: dict[str, Any]) -> Iterator[str]:
    yield ""
    yield "QUESTION"
    yield from _quoted(asked["question"])
    for letter, option in zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", asked["options"] or [], strict=False):
        yield from _quoted(f"{letter}. {option}" if asked["form"] == "choice" else option)
    slices = [f"{name.removeprefix('slice_')} {value}" for name, value in graded.items() if name.startswith("slice_")]
    yield f"  asked for: {FORMS.get(asked['form'], asked['form'])}. {_plain(', '.join(slices))}".rstrip(" .")


def _arrived(cell: Shown, asked: dict[str, Any], prediction: Prediction, gold: dict[str, Any]) -> Iterator[str]:
    path = Layout(cell.catalog.results).dataset(cell.cell.dataset) / "documents.parquet"
    here = (pl.col("stream") == asked["stream"]) & (pl.col("position") <= asked["position"])
    names = pl.scan_parquet(path).filter(here).sort("position", descending=True).select("document_id").collect()
    ids = names["document_id"].to_list()
    more = f", and {len(ids) - NEWEST:,} before" if len(ids) > NEWEST else ""
    yield ""
    yield f"ARRIVED  {len(ids):,} documents of stream {_plain(asked['stream'])}"
    yield f"  newest first: {', '.join(map(_plain, ids[:NEWEST]))}{more}"
    used = prediction.context
    yield f"  in the prompt: {used.documents:,}" + (
        f"; left out for want of room: {used.dropped:,}" * bool(used.dropped)
    )
    if not prediction.retrieved:
        return
    yield ""
    yield "RETRIEVED"
    for hit in prediction.retrieved:
        yield f"  {hit.rank:>3}  {hit.score:10.4f}  {_plain(hit.id)}" + "  evidence" * (hit.id in gold["evidence"])


def _read(prediction: Prediction, graded: dict[str, Any], *, full: bool) -> Iterator[str]:
    yield ""
    yield "READ"
    if prediction.error is not None:
        yield "  it failed:"
        yield from _quoted(prediction.error, None if full else PART)
        return
    yield f"  {PARSES[graded['parse']]}"
    if graded["said"] is not None:
        yield f"  decided by a rule on its words (judges.yaml): {_plain(graded['said'])}"
    if graded["answer"] is not None:
        yield from _quoted(graded["answer"], None if full else PART)


# ---------------------------------------------------------------- calls


def _calls(cell: Shown, prediction: Prediction, question: str, *, full: bool) -> Iterator[str]:
    """The calls of a prediction, and what shows that they are not its own."""
    usage, total = prediction.usage, len(prediction.calls)
    calls, told = Calls(cell.catalog, cell.cell), list[Call]()
    for number, key in enumerate(prediction.calls[:LOOKED], 1):
        if (call := calls.find(key)) is not None:
            told.append(call)
        if number > CALLS and not full:
            continue
        yield ""
        yield f"CALL {number:,} of {total:,}  {key[:16]}"
        if call is None:
            yield from (f"  {line}" for line in UNKEPT)
        else:
            yield from _call(call, full=full)
    if total > CALLS and not full:
        yield f"  ... and {total - CALLS:,} calls more: --full shows them"
    yield ""
    booked = f"{usage.calls:,} {'call' if usage.calls == 1 else 'calls'}"
    yield f"BOOKED  {booked}, {usage.prompt:,} tokens of prompts, {usage.completion:,} generated"
    if "own_code" in cell.manifest.identity_parts:
        yield "  note: the method runs its model itself, so what it asks is on no record"
    elif usage.calls > total:
        yield f"  note: {usage.calls - total:,} of the calls have no key: no reply came, or no record was in between;"
        yield f"        `{command_of(cell.cell)} --force` runs it again, from the record"
    if told:
        yield from _doubts(cell, prediction, question, told)


def _doubts(cell: Shown, prediction: Prediction, question: str, told: Sequence[Call]) -> Iterator[str]:
    """What does not fit. A method may well ask other things than the question, or answer in other words."""
    texts = ["".join(itertools.chain(*(parts for _, parts in call.messages or ()))) for call in told]
    if not any(question in text for text in texts):
        yield "  note: the question stands in none of these prompts"
    if prediction.response is not None and prediction.response not in [call.answer for call in told]:
        yield "  note: the prediction's response is none of these replies:"
        yield from _quoted(prediction.response, PART)
    booked = sum(call.prompt or 0 for call in told), sum(call.completion or 0 for call in told)
    if booked != (prediction.usage.prompt, prediction.usage.completion):
        yield f"  note: by the record these calls have {booked[0]:,} tokens of prompts and {booked[1]:,} generated"
    calls = range(min(prediction.usage.calls, LOOKED))
    own = {call_seed(cell.manifest.seed, prediction.probe_id, prediction.trial, call) for call in calls}
    if any(call.seed is not None and call.seed not in own for call in told):
        yield "  note: a reply was sampled with a seed that is not this prediction's"


def _call(call: Call, *, full: bool) -> Iterator[str]:
    yield f"  {call.source}; {call.decoding}" + (f"; seed {call.seed}" if call.seed is not None else "")
    if call.messages is None:
        yield f"  {call.problem}"
    for role, parts in call.messages or ():
        yield f"  {_plain(role) or 'text'}:"
        yield from _quoted("".join(part if full else _cut(part, PART) for part in parts))
    if call.reasoning is not None:
        yield "  reasoning:"
        yield from _quoted(call.reasoning, None if full else PART)
    count = "" if call.prompt is None else f"; the prompt has {call.prompt:,} tokens"
    yield f"  reply: {call.ended}{count}"
    if call.answer is not None:
        yield from _quoted(call.answer, None if full else PART)


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
