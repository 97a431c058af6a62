"""A model reads the sample of an audit: each probe with its evidence and without, and what of this is suspicious.

It is asked as cells ask it, in the dataset's prompt: with the evidence as the method `oracle` reads it, without as
`closed_book` asks. So a greedy model that has run on these is not asked again. Its answers are read and held against
the answer key's words and patterns as those of cells are; no judge is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from upkeep.catalog import Catalog
from upkeep.cell.interface import LLM, Context, Message, quoted
from upkeep.cell.prompts import Prompt, fit
from upkeep.contract import DatasetCard, Document, Probe
from upkeep.errors import UpkeepError
from upkeep.execution.host_model import HostModel, Question, Said
from upkeep.grading.graded import READ, VERDICTS, grade, read_response
from upkeep.grading.key import Key, read_key
from upkeep.layout import Layout
from upkeep.normal_form import read_examples, read_table
from upkeep.operations.audit.sample import Item

FINDINGS = {
    (False, True): "wrong with its evidence, right without",
    (False, False): "wrong with its evidence",
    (True, True): "right without its evidence, too",
    (True, False): "right with its evidence alone, as it should be",
}
"""(right with the evidence, right without it) -> what is said of the probe; the most suspicious first."""


@dataclass(frozen=True)
class Reply:
    """What a model said to a probe."""

    response: str
    """Or, where it failed, why."""
    answer: str | None
    """What was read from it; None where there was nothing to read."""
    right: bool


@dataclass(frozen=True)
class Reading:
    """A probe as a model read it."""

    given: Reply
    """With the evidence."""
    bare: Reply
    left_out: int
    """Documents of the evidence that the model could not read with the others, for their length."""

    @property
    def finding(self) -> tuple[bool, bool]:
        return self.given.right, self.bare.right


@dataclass
class _Chat:
    """A probe over a context, as far as the model can read it (`Question.chat`)."""

    prompt: Prompt
    probe: Probe
    context: Context
    left_out: int = 0

    def __call__(self, llm: LLM) -> list[Message]:
        messages, shown = fit(self.prompt, self.probe, self.context, llm)
        self.left_out = len(self.context) - len(shown)
        return messages


def read(catalog: Catalog, card: DatasetCard, items: Sequence[Item], model: str) -> dict[str, Reading]:
    """Have a model answer each probe with its evidence and without. What it was asked before, the record answers.

    Args:
        card: of the built dataset, verified.
        items: the probes that were drawn.

    Returns:
        probe_id -> what came of it; none for a probe whose evidence the dataset does not name.

    Raises:
        UpkeepError: no probe has evidence, or the model cannot be had; what it has said is on record.
    """
    folder = Layout(catalog.results).dataset(card.dataset)
    contexts = _contexts(folder, items)
    if not contexts:
        raise UpkeepError(
            "the dataset names no evidence of the probes drawn, so there is nothing to read them with",
            where=folder / "gold.parquet",
            expected="`evidence` or `context` of one probe at least",
            found=f"none of {len(items)} probes",
            remedy=f"draw more (`--sample`), or leave out `--model`: `./upkeep dataset audit {card.dataset}`",
        )
    prompt = Prompt(catalog.prompt_of(card.dataset), read_examples(folder, card))
    probes = [_probe(item) for item in items if item.probe_id in contexts]
    chats = [_Chat(prompt, probe, context) for probe in probes for context in (contexts[probe.id], Context())]
    key = read_key(catalog, card.dataset)
    with HostModel(catalog, model, "audits", card.dataset) as asked:
        said = asked.ask([Question(chat, asked.spec.sampling, chat.probe.id) for chat in chats])
    replies = _graded(key, probes, said)
    each = zip(probes, replies[::2], replies[1::2], chats[::2], strict=True)
    return {probe.id: Reading(given, bare, chat.left_out) for probe, given, bare, chat in each}


def told(readings: Mapping[str, Reading], drawn: int, model: str) -> Iterator[str]:
    """How many probes there are of each finding, a line each."""
    yield f"{model} read {len(readings)} of {drawn} probes with their evidence and without it:"
    found = Counter(reading.finding for reading in readings.values())
    yield from (f"  {found[finding]:>4} {words}" for finding, words in FINDINGS.items())
    if without := drawn - len(readings):
        yield f"  {without:>4} not asked: the dataset names no evidence of them"
    if cut := sum(reading.left_out > 0 for reading in readings.values()):
        yield f"of {cut} the model could not read all of the evidence, which was too long for it"


def suspicious_first(items: Sequence[Item], readings: Mapping[str, Reading]) -> list[Item]:
    """The probes in the order of `FINDINGS`, then those that were not asked; as they were drawn among themselves."""
    order = list(FINDINGS)

    def place(item: Item) -> int:
        reading = readings.get(item.probe_id)
        return order.index(reading.finding) if reading else len(order)

    return sorted(items, key=place)


def _probe(item: Item) -> Probe:
    return Probe(
        id=item.probe_id,
        question_id=item.question_id,
        stream=item.stream,
        position=item.position,
        question=item.question,
        options=item.options,
        form=item.form,  # type: ignore[arg-type]
    )


def _contexts(folder: Path, items: Sequence[Item]) -> dict[str, Context]:
    """The evidence of each probe that has any: its words, or else its documents that have arrived, oldest first."""
    ids = [item.probe_id for item in items]
    gold = read_table(folder, "gold").filter(pl.col("probe_id").is_in(ids))
    named = gold["evidence"].explode().drop_nulls().unique()
    documents = (
        pl.scan_parquet(folder / "documents.parquet")
        .filter(pl.col("document_id").is_in(named.implode()))
        .select("stream", "position", "timestamp", "text", id="document_id")
        .collect(engine="streaming")
        .sort("stream", "position")
    )
    known = [Document(**row) for row in documents.iter_rows(named=True)]
    rows = {row["probe_id"]: row for row in gold.iter_rows(named=True)}
    found = {}
    for item in items:
        row, last = rows[item.probe_id], item.position
        own = [one for one in known if one.stream == item.stream and one.position <= last and one.id in row["evidence"]]
        if words := row.get("context"):
            own = quoted(words, item.stream)
        if own:
            found[item.probe_id] = Context(recent=own)
    return found


def _graded(key: Key, probes: Sequence[Probe], said: Sequence[Said]) -> list[Reply]:
    """What was said to each probe twice, held against the key: in the order in which it was asked."""
    asked = [(probe, trial) for probe in probes for trial in (0, 1)]
    rows = []
    for (probe, trial), one in zip(asked, said, strict=True):
        pattern = key.patterns.get(probe.id)
        told = read_response(one.text or "", probe.form, probe.options, key.marker, pattern)
        rows.append((probe.id, trial, *told, one.text is None, None, one.prompt, one.completion))
    predictions = pl.DataFrame(rows, {name: VERDICTS[name] for name in READ}, orient="row")
    own = replace(key, probes=key.probes.filter(pl.col("probe_id").is_in([probe.id for probe in probes])))
    graded = grade(own, predictions, 2)["probe_id", "trial", "answer", "right"]
    verdicts = {(name, trial): (answer, right) for name, trial, answer, right in graded.iter_rows()}
    return [
        Reply(one.error or one.text or "", *verdicts[probe.id, trial])
        for (probe, trial), one in zip(asked, said, strict=True)
    ]
