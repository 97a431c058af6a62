"""What judges are asked in a suite: counted from the datasets, with replies assumed."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import polars as pl

from upkeep import inputs
from upkeep.catalog import Catalog
from upkeep.contract import Rubric
from upkeep.errors import UpkeepError
from upkeep.grading.judged import has_say
from upkeep.grading.judgements import judgements_of
from upkeep.jobs import Cell, Job
from upkeep.judges import judges_by_cell
from upkeep.layout import Layout
from upkeep.operations.plan.counts.tally import Tally
from upkeep.serving.counting.records import Assumed

BYTES_A_TOKEN = 4.0
"""Of the texts that a judge reads, for no tokenizer of a judge behind an endpoint is at hand."""
WORD_TOKENS = 4
"""Of a reply that is one word."""
UNASKED = frozenset({"null"})
"""Methods whose responses need no question: they are empty."""


def judgings(catalog: Catalog, suite: str, assumed: Assumed, planned: Container[Job]) -> dict[tuple[str, str], Tally]:
    """(judge, dataset) -> what it is asked over the planned cells of a suite, at most: of rubrics about right or wrong
    responses alone, nobody knows how many these are. A reply that cannot be read is asked again; that is not counted.

    Raises:
        UpkeepError: the dataset's judgements cannot be read.
    """
    cells: dict[tuple[str, str], list[Cell]] = {}
    chosen = catalog.suite(suite)
    for cell, judges in judges_by_cell(catalog, chosen).items():
        for judge in judges if cell in planned else ():
            if has_say(catalog, cell, judge) and cell.method not in UNASKED:
                cells.setdefault((judge, cell.dataset), []).append(cell)
    return {
        (judge, dataset): _tally(catalog, judge, dataset, sum(catalog.trials(cell, chosen) for cell in of), assumed)
        for (judge, dataset), of in cells.items()
    }


def _tally(catalog: Catalog, judge: str, dataset: str, times: int, assumed: Assumed) -> Tally:
    try:
        card = inputs.dataset(catalog, dataset)
    except UpkeepError as error:
        return Tally(unknown=f"the dataset {dataset}: {error.problem}")
    folder, of = Layout(catalog.results).dataset(dataset), judgements_of(catalog, dataset)
    probes, gold = pl.read_parquet(folder / "probes.parquet"), pl.read_parquet(folder / "gold.parquet")
    rows = probes.join(gold, on="probe_id", how="left")
    placed = {row["probe_id"]: row for row in of.placed(rows).iter_rows(named=True)}
    thinks = catalog.model(judge).thinking == "on"
    requests = prompt = output = attended = read = 0.0
    for row in rows.iter_rows(named=True):
        for name in of.decided:
            place = placed[row["probe_id"]][name]
            if place is None or (rubric := of.of[place].rubric) is None:
                continue
            asked = len(row["answers"]) if rubric.each else 1
            tokens = _prompt(rubric, row, assumed) + rubric.passages * card.chunk_tokens
            said = WORD_TOKENS if rubric.read == "only" else min(rubric.max_tokens, assumed.reply)
            said += assumed.thinking if thinks else 0
            requests += asked
            prompt += asked * tokens
            output += asked * said
            attended += asked * tokens**2 / 2
            read += asked * said * tokens
    return Tally(
        requests=times * requests,
        prompt=times * prompt,
        computed=times * prompt,
        output=times * output,
        attended=times * attended,
        read=times * read,
        records=int(times * requests),
        counted=int(times * requests),
        together=times * requests,
        bytes_per_token=BYTES_A_TOKEN,
    )


def _prompt(rubric: Rubric, row: Mapping[str, object], assumed: Assumed) -> float:
    """Tokens of a question to a judge, without passages."""
    texts: list[object] = [rubric.system, rubric.user, row["question"]]
    for name, slot in (("answers", ""), ("options", ""), ("context", "{context}"), ("quotes", "{evidence}")):
        if isinstance(given := row.get(name), Sequence) and slot in rubric.user:
            texts += given
    return sum(len(str(text).encode()) for text in texts) / BYTES_A_TOKEN + assumed.reply
