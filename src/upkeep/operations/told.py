"""What is told of a published cell: its predictions, one a row; or all of one, from the question to the verdict.

It reads what is published and on record, and needs neither container nor model. `show` prints it for people.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from upkeep.catalog import Catalog
from upkeep.cell.lockstep import call_seed
from upkeep.contract import Prediction, Record, Retrieved
from upkeep.errors import UpkeepError
from upkeep.gateway.calls import Call, Calls
from upkeep.inputs import command_of
from upkeep.layout import Layout
from upkeep.published import predictions
from upkeep.report.shown import UNASKED, UNKEPT, Shown

LOOKED = 10_000
"""Calls of a prediction that are looked up at most."""
UNSAID = "the prediction's response is none of these replies"
"""A note of `One`."""


class Row(Record, frozen=True, kw_only=True):
    """A prediction in a listing."""

    probe_id: str
    question_id: str
    trial: int
    verdict: str
    """`right`, `outdated`, `wrong`, `unread` or `failed`."""
    answer: str | None
    """What was read in the response; null where nothing was."""
    right: list[str]
    """Each of the answers that would be right."""


class Listing(Record, frozen=True, kw_only=True):
    """What `./upkeep show CELL --json` prints."""

    cell: str
    trials: int
    stale: str | None
    """Why the cell does not count as things are now; null where it does."""
    verdicts: dict[str, int]
    """Verdict -> how many, also of those that `--wrong` leaves out."""
    predictions: list[Row]
    """In the order of the probes; all of them, with `--wrong` those that are not right."""


class Message(Record, frozen=True, kw_only=True):
    """A message of a prompt."""

    role: str
    """Empty for a text without a template."""
    parts: list[str]
    """Its text, in the parts that the method put together."""


class ToldCall(Record, frozen=True, kw_only=True):
    """A call of a model."""

    key: str
    source: str | None
    """Who was asked; null where no request with this key is on record."""
    decoding: str | None = None
    """How, in words."""
    seed: int | None = None
    """Of a sampled reply."""
    messages: list[Message] | None = None
    """The prompt as the model read it, template aside; null where `problem` says why it is not there."""
    prompt_tokens: int | None = None
    completion_tokens: int = 0
    """Reasoning included."""
    reasoning: str | None = None
    reply: str | None = None
    ended: str | None = None
    """How the reply ended, or why there is none."""
    problem: str | None = None


class Judged(Record, frozen=True, kw_only=True):
    """What a judge said of a response."""

    judge: str
    decides: str = ""
    word: str = ""
    """The judge's own."""
    meaning: str = ""
    problem: str | None = None
    """Why it does not count."""


class Booked(Record, frozen=True, kw_only=True):
    """What a prediction took, as its container said."""

    calls: int
    prompt_tokens: int
    completion_tokens: int


class One(Record, frozen=True, kw_only=True):
    """What `./upkeep show CELL PROBE --json` prints."""

    cell: str
    stale: str | None
    """Why the cell does not count as things are now; null where it does."""
    probe_id: str
    question_id: str
    trial: int
    trials: int
    verdict: str
    """`right`, `outdated`, `wrong`, `unread` or `failed`, by the answer key's words."""
    question: str
    form: str
    """`short`, `choice` or `label`."""
    options: list[str]
    slices: dict[str, str]
    stream: str
    position: int
    """Of the newest document that had arrived."""
    arrived: list[str]
    """Documents that had arrived, newest first."""
    in_prompt: int
    """How many of them stood in the prompt."""
    dropped: int
    """How many were left out for want of room."""
    retrieved: list[Retrieved]
    named: int
    """How many calls the prediction names."""
    calls: list[ToldCall]
    """The first 10,000 of them."""
    booked: Booked
    notes: list[str]
    """What of the calls does not fit the prediction."""
    response: str | None
    reasoning: str | None
    error: str | None
    """Why there is no answer; null where there was no failure."""
    parse: str
    """How the response was read: `marker`, `lenient`, `whole` or `none`."""
    answer: str | None
    rule: str | None
    """What a rule on the response's words decided (judges.yaml); null where none did."""
    values: dict[str, float]
    """What the method measured."""
    right: list[str]
    """Each of the answers that would be right."""
    outdated: list[str]
    evidence: list[str]
    judges: list[Judged]


def tell(
    catalog: Catalog, name: str, probe: str | None = None, trial: int | None = None, *, wrong: bool
) -> Listing | One:
    """What there is to tell of a cell, of a question of it, or of one prediction.

    Args:
        probe: a probe's id; or a question's, for all its probes.
        trial: one trial alone; of a single prediction by default the first.
        wrong: of a listing, only what is not right.

    Raises:
        UpkeepError: there is no such cell, probe or trial, or it is not published.
    """
    cell = Shown.read(catalog, name)
    if trial is not None and not 0 <= trial < cell.manifest.trials:
        times = cell.manifest.trials
        expected = f"0 to {times - 1}" if times > 1 else "0: each probe was asked once"
        raise UpkeepError(f"no trial {trial}", where=name, expected=expected, remedy="leave `--trial` out for all")
    if probe is None or probe in set(cell.graded["question_id"]):
        return _listing(cell, probe, trial, wrong=wrong)
    ids = cell.graded["probe_id"].unique(maintain_order=True).to_list()
    if probe not in ids:
        near = difflib.get_close_matches(probe, ids, 5, 0.0)
        raise UpkeepError(
            f"no probe {probe!r}",
            where=name,
            expected=f"a probe or a question; the nearest: {', '.join(near)}",
            remedy=f"./upkeep show {name} lists them",
        )
    return _one(cell, probe, trial or 0)


def _listing(cell: Shown, question: str | None, trial: int | None, *, wrong: bool) -> Listing:
    rows = cell.graded
    if question is not None:
        rows = rows.filter(pl.col("question_id") == question)
    if trial is not None:
        rows = rows.filter(pl.col("trial") == trial)
    verdicts = dict(rows["verdict"].value_counts(sort=True).iter_rows())
    if wrong:
        rows = rows.filter(~pl.col("right"))
    gold = dict(cell.gold.select("probe_id", "answers").iter_rows())
    found = rows.select("probe_id", "question_id", "trial", "verdict", "answer").iter_rows(named=True)
    predicted = [Row(**row, right=gold[row["probe_id"]]) for row in found]
    return Listing(
        cell=cell.name, trials=cell.manifest.trials, stale=cell.stale, verdicts=verdicts, predictions=predicted
    )


# ---------------------------------------------------------------- one prediction


def _one(cell: Shown, probe: str, trial: int) -> One:
    """Everything of one prediction."""
    prediction = next(p for p in predictions(cell.catalog, cell.cell) if (p.probe_id, p.trial) == (probe, trial))
    graded = cell.graded.row(by_predicate=(pl.col("probe_id") == probe) & (pl.col("trial") == trial), named=True)
    gold = cell.gold.row(by_predicate=pl.col("probe_id") == probe, named=True)
    probes = pl.read_parquet(Layout(cell.catalog.results).dataset(cell.cell.dataset) / "probes.parquet")
    asked = probes.row(by_predicate=pl.col("probe_id") == probe, named=True)
    calls, usage = list(_calls(cell, prediction)), prediction.usage
    return One(
        cell=cell.name,
        stale=cell.stale,
        probe_id=probe,
        question_id=asked["question_id"],
        trial=trial,
        trials=cell.manifest.trials,
        verdict=graded["verdict"],
        question=asked["question"],
        form=asked["form"],
        options=asked["options"] or [],
        slices={name.removeprefix("slice_"): value for name, value in graded.items() if name.startswith("slice_")},
        stream=asked["stream"],
        position=asked["position"],
        arrived=_arrived(cell, asked),
        in_prompt=prediction.context.documents,
        dropped=prediction.context.dropped,
        retrieved=prediction.retrieved,
        named=len(prediction.calls),
        calls=calls,
        booked=Booked(calls=usage.calls, prompt_tokens=usage.prompt, completion_tokens=usage.completion),
        notes=[*_keyless(cell, prediction), *_doubts(cell, prediction, asked["question"], calls)],
        response=prediction.response,
        reasoning=prediction.reasoning,
        error=prediction.error,
        parse=graded["parse"],
        answer=graded["answer"],
        rule=graded["said"],
        values=prediction.values,
        right=gold["answers"],
        outdated=gold["outdated"],
        evidence=gold["evidence"],
        judges=list(_judges(cell, probe, trial)),
    )


def _arrived(cell: Shown, asked: dict[str, Any]) -> list[str]:
    path = Layout(cell.catalog.results).dataset(cell.cell.dataset) / "documents.parquet"
    here = (pl.col("stream") == asked["stream"]) & (pl.col("position") <= asked["position"])
    names = pl.scan_parquet(path).filter(here).sort("position", descending=True).select("document_id").collect()
    return names["document_id"].to_list()


def _judges(cell: Shown, probe: str, trial: int) -> Iterator[Judged]:
    """What judges said of the response, whatever suite they judge in."""
    for judge, said in cell.judges():
        if isinstance(said, UpkeepError):
            yield Judged(judge=judge, problem=said.problem)
            continue
        here = said.rows.filter((pl.col("probe_id") == probe) & (pl.col("trial") == trial))
        for decides, word, meaning in here.select("decides", "verdict", "meaning").iter_rows():
            yield Judged(judge=judge, decides=decides, word=word or "", meaning=meaning or UNASKED)


# ---------------------------------------------------------------- calls


def _calls(cell: Shown, prediction: Prediction) -> Iterator[ToldCall]:
    calls = Calls(cell.catalog, cell.cell)
    for key in prediction.calls[:LOOKED]:
        call = calls.find(key)
        yield ToldCall(key=key, source=None, problem=" ".join(UNKEPT)) if call is None else _call(key, call)


def _call(key: str, call: Call) -> ToldCall:
    messages = None
    if call.messages is not None:
        messages = [Message(role=role, parts=parts) for role, parts in call.messages]
    return ToldCall(
        key=key,
        source=call.source,
        decoding=call.decoding,
        seed=call.seed,
        messages=messages,
        prompt_tokens=call.prompt,
        completion_tokens=call.completion,
        reasoning=call.reasoning,
        reply=call.answer,
        ended=call.ended,
        problem=call.problem,
    )


def _keyless(cell: Shown, prediction: Prediction) -> Iterator[str]:
    if "own_code" in cell.manifest.identity_parts:
        yield "the method runs its model itself, so what it asks is on no record"
    elif (missing := prediction.usage.calls - len(prediction.calls)) > 0:
        again = f"`{command_of(cell.cell)} --force` runs it again, from the record"
        yield f"{missing:,} of the calls have no key: no reply came, or no record was in between; {again}"


def _doubts(cell: Shown, prediction: Prediction, question: str, calls: Sequence[ToldCall]) -> Iterator[str]:
    """What does not fit. A method may well ask other things than the question, or answer in other words."""
    told = [call for call in calls if call.source is not None]
    if not told:
        return
    texts = ["".join(itertools.chain(*(one.parts for one in call.messages or ()))) for call in told]
    if not any(question in text for text in texts):
        yield "the question stands in none of these prompts"
    if prediction.response is not None and prediction.response not in [call.reply for call in told]:
        yield UNSAID
    booked = sum(call.prompt_tokens or 0 for call in told), sum(call.completion_tokens for call in told)
    if booked != (prediction.usage.prompt, prediction.usage.completion):
        yield f"by the record these calls have {booked[0]:,} tokens of prompts and {booked[1]:,} generated"
    made = range(min(prediction.usage.calls, LOOKED))
    own = {call_seed(cell.manifest.seed, prediction.probe_id, prediction.trial, call) for call in made}
    if any(call.seed is not None and call.seed not in own for call in told):
        yield "a reply was sampled with a seed that is not this prediction's"
