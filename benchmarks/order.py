"""Prompt tokens that retrieval computes, by the order in which it is asked: `python benchmarks/order.py`.

The cells' own methods answer a whole stream of `oaks_babi_stream`, with an engine in the model's place that computes
nothing (`upkeep.serving.counting`). Of the prompts that they make, what an engine computes whose cache keeps as much as
some questions take: asked interval by interval; in passes of so many questions, each through the whole stream, which
are those of the suite (`upkeep.execution.passes`); and the least that any order could reach, were nothing to arrive. A
cell that retrieves by vectors takes its embedder, query by query. With `--sweep` the methods are one sweep
(`upkeep.sweeps`): its cells one after the other, each in passes, and side by side, with a cache that holds some
questions of the last and largest of them. Tokens are bytes, at the rate of the dataset's tokenizer. With `--engine`
they are the model's, and the cells are run, too, in these orders, with vLLM on the CPU and a cache of that size: what
it says it computed stands in further rows, and the predictions must be the same; what two cells ask alike counts once,
for the second is answered from the record. What a plan says is computed stands in a row of its own. Prints a Markdown
table.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import polars as pl
import yaml
from shared import ROOT, copy

from upkeep.batches import Batch
from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.cell.loading import make_method
from upkeep.cell.lockstep import lockstep
from upkeep.cell.runner import AnswerTask
from upkeep.cell.tokens import ChatTokens, TokenPrompt
from upkeep.contract import EngineSettings, Prediction, Round
from upkeep.execution import cell_job
from upkeep.execution.batch import run_batch
from upkeep.execution.fetch import fetch
from upkeep.execution.order import Order, in_passes
from upkeep.execution.rounds import BuiltDataset, answering
from upkeep.identity import describe, engine_settings
from upkeep.inputs import dataset
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.operations.plan.counts import counting
from upkeep.operations.plan.counts.dataset import CountedDataset
from upkeep.serving.counting.byte_tokens import ByteTokens
from upkeep.serving.counting.engine import CountingEngine
from upkeep.serving.counting.forms import FormTokens
from upkeep.serving.counting.records import Assumed
from upkeep.serving.counting.reuse import BLOCK, Blocks, Nothing, computed, least
from upkeep.serving.embedding import load_embedder

DATASET, MODEL = "oaks_babi_stream", "tiny-vllm"


@dataclass(frozen=True, slots=True)
class Ran:
    """What cells have left, one after the other."""

    predictions: list[list[bytes]]
    computed: list[dict[str, int]]
    """Prompt tokens by request, those of a recorded reply as when it was made."""

    @property
    def together(self) -> int:
        """Prompt tokens computed of all requests, each once."""
        return sum({request: tokens for one in self.computed for request, tokens in one.items()}.values())


class Noted(Nothing):
    """Reuses nothing, and notes the prompts in the order in which they come."""

    def __init__(self) -> None:
        self.prompts: list[TokenPrompt] = []

    def reused(self, prompt: TokenPrompt) -> int:
        self.prompts.append(prompt)
        return 0


def prompts(catalog: Catalog, cell: Cell, corpus: BuiltDataset, rate: float | None) -> list[TokenPrompt]:
    """What a cell asks, a prompt a probe, in the order of the probes.

    Args:
        rate: tokens a byte; None for the model's own.
    """
    told = describe(catalog, cell, dataset(catalog, cell.dataset).chunk_tokens)
    assert told.model_spec is not None
    noted = Noted()
    own = ByteTokens(rate) if rate is not None else ChatTokens(str(fetch(catalog, MODEL).path), told.model_spec)
    tokens = FormTokens(own, None)
    engine = CountingEngine(tokens, told.model_spec, noted, Assumed(reply=1, thinking=0), len(corpus.probes))
    embedder = load_embedder(told.embedder_spec, None) if told.embedder_spec is not None else None
    method = make_method(told, catalog.root / "methods", embedder, threads=1)
    with tempfile.TemporaryDirectory() as output, lockstep(engine) as loop:
        task = AnswerTask(msgspec.structs.replace(told, output=output), method, engine, Path(output))
        for step in answering(corpus):
            documents = [corpus.documents[place] for place in step.documents]
            loop.run(task.round(Round(documents=documents, probes=[corpus.probes[place] for place in step.probes])))
        loop.run(method.close())
    assert len(noted.prompts) == len(corpus.probes), "each probe takes one prompt"
    return noted.prompts


def by_pass(numbers: Sequence[int]) -> list[int]:
    """The places of the probes, a pass after the other."""
    return sorted(range(len(numbers)), key=lambda place: (numbers[place], place))


def holding(asked: Sequence[TokenPrompt], held: int) -> int:
    """Tokens of a cache that holds the prompts of so many questions."""
    return held * (max(prompt.length for prompt in asked) + BLOCK)


def rows(asked: Sequence[TokenPrompt], numbers: Sequence[int], held: int) -> Iterator[tuple[str, int]]:
    """What is computed in each order, with a cache that holds so many questions.

    Args:
        numbers: of each probe's pass.
    """
    room = holding(asked, held)
    yield "by interval", computed(asked, Blocks(BLOCK, room))
    yield f"in passes of {held}", computed((asked[place] for place in by_pass(numbers)), Blocks(BLOCK, room))
    yield "the least", least(asked, BLOCK)


def sweep_rows(
    asked: Sequence[Sequence[TokenPrompt]], corpus: BuiltDataset, numbers: Sequence[int], held: int
) -> Iterator[tuple[str, int]]:
    """What is computed of a sweep, whose largest member is the last, with a cache that holds so many questions.

    Args:
        numbers: of each probe's pass.
    """
    room = holding(asked[-1], held)
    order = by_pass(numbers)
    apart = [computed((prompts[place] for place in order), Blocks(BLOCK, room)) for prompts in asked]
    yield "the largest", apart[-1]
    yield "one after the other", sum(apart)
    rounds = itertools.groupby(order, key=lambda place: (numbers[place], corpus.probes[place].position))
    turns = (prompts[place] for _, places in rounds for one in [[*places]] for prompts in asked for place in one)
    yield "side by side", computed(turns, Blocks(BLOCK, room))


def planned(catalog: Catalog, cells: Sequence[Cell], numbers: Sequence[int], room: int, *, sweep: bool = False) -> int:
    """What `upkeep plan --count` says is computed of cells in these passes.

    Args:
        room: tokens that the cache holds.
        sweep: whether they are asked side by side.
    """
    found = Order(numbers, held=True, together=1, sweep=sweep, room=room)
    with patch.object(counting, "order", lambda *_: found):
        tallies = counting.tally(catalog, cells, Assumed(reply=1, thinking=0))
    reasons = [tally.unknown for tally in tallies.values() if tally.unknown]
    assert not reasons, reasons
    return round(sum(tally.computed for tally in tallies.values()))


def run(catalog: Catalog, cells: Sequence[Cell], numbers: Sequence[int], room: int, *, sweep: bool = False) -> Ran:
    """Cells that are asked in these passes.

    Args:
        room: bytes of the engine's cache.
        sweep: whether they are asked side by side.
    """

    def settings(*of: Any) -> EngineSettings:
        return msgspec.structs.replace(engine_settings(*of), options={"kv_cache_gib": room / 2**30})

    found = Order(numbers, held=True, together=1, sweep=sweep)
    with (
        patch("upkeep.identity.engine_settings", settings),
        patch("upkeep.execution.job.engine_settings", settings),
        patch.object(cell_job, "order", lambda *_: found),
    ):
        run_batch(catalog, Batch("benchmark", tuple(cells)))
    folders = [Layout(catalog.results).cell(cell) for cell in cells]
    lines = [(folder / "predictions.jsonl").read_bytes().splitlines() for folder in folders]
    computed = [_computed(*one) for one in zip(folders, lines, strict=True)]
    for name in ("cells", "record"):
        shutil.rmtree(catalog.results / name)
    return Ran(lines, computed)


def cached(catalog: Catalog, held: int, longest: int) -> tuple[Catalog, int]:
    """The repository with a model whose context holds the longest prompt; bytes of a cache that holds so many."""
    card = catalog.root / "models/tiny/model.yaml"
    spec = yaml.safe_load(card.read_text())
    card.write_text(yaml.safe_dump(spec | {"context_length": longest + 64}))  # all of it has to fit into the cache
    catalog = Catalog(catalog.root)
    found = catalog.spec(MODEL)
    shape = found.attention
    assert shape is not None
    tokens = held * (longest + found.sampling.max_tokens + BLOCK)  # a prompt with its answer, or some wait for room
    return catalog, tokens * 2 * 4 * shape.layers * shape.kv_heads * shape.head_size


def engine_rows(
    catalog: Catalog, cell: Cell, corpus: BuiltDataset, held: int, longest: int
) -> Iterator[tuple[str, int]]:
    """What vLLM computes in each order, with a cache that holds so many questions."""
    catalog, room = cached(catalog, held, longest)
    orders = [0] * len(corpus.probes), in_passes(catalog, cell, corpus, held)
    first, second = (run(catalog, [cell], numbers, room) for numbers in orders)
    assert first.predictions == second.predictions, "the order changes no prediction"
    yield "by interval, vLLM", first.together
    yield f"in passes of {held}, vLLM", second.together


def sweep_engine_rows(
    catalog: Catalog, cells: Sequence[Cell], corpus: BuiltDataset, held: int, longest: int
) -> Iterator[tuple[str, int]]:
    """What vLLM computes of a sweep, with a cache that holds so many questions."""
    catalog, room = cached(catalog, held, longest)
    numbers = in_passes(catalog, cells[-1], corpus, held)
    apart, beside = (run(catalog, cells, numbers, room, sweep=sweep) for sweep in (False, True))
    assert apart.predictions == beside.predictions, "the order changes no prediction"
    yield "the largest, vLLM", sum(apart.computed[-1].values())
    yield "one after the other, vLLM", apart.together
    yield "side by side, vLLM", beside.together


def _computed(folder: Path, lines: Sequence[bytes]) -> dict[str, int]:
    """Of each request of a published cell, a call a prediction, the prompt tokens that were computed of it."""
    cached = pl.read_parquet(folder / "measured.parquet")["cached"]
    found = (msgspec.json.decode(line, type=Prediction) for line in lines)
    return {one.calls[0]: one.usage.prompt - hits for one, hits in zip(found, cached, strict=True)}


def stream(root: Path, intervals: int, questions: int, streams: int = 1, seed: int = 0) -> Catalog:
    """A repository with the dataset in it, of this size.

    Args:
        questions: of a stream.
        seed: of another story; 0: the dataset's own.
    """
    copy(root)
    card = root / "datasets/oaks_babi/dataset.yaml"
    family = yaml.safe_load(card.read_text())
    size = {"streams": streams, "chunks": intervals, "questions": streams * questions, "seed": seed}
    family["variants"]["stream"]["options"] |= size
    card.write_text(yaml.safe_dump(family))
    catalog = Catalog(root)
    build_dataset(catalog, DATASET, Layout(catalog.results).dataset(DATASET))
    return catalog


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--intervals", type=int, default=65)
    parser.add_argument("--questions", type=int, default=102)
    parser.add_argument("--held", type=int, default=10, help="questions that the cache holds")
    parser.add_argument("--methods", nargs="+", default=["rag_bm25/k5", "rag_bm25/k30"])
    parser.add_argument("--seed", type=int, default=0, help="of another story than the dataset's own")
    parser.add_argument("--sweep", action="store_true", help="the methods are one sweep, the largest the last")
    parser.add_argument("--engine", action="store_true", help="run the cells with vLLM, too")
    arguments = parser.parse_args()
    os.environ["UPKEEP_RUNTIME"] = "process"
    os.environ.setdefault("UPKEEP_CACHE", str(ROOT / "results" / "cache"))
    with tempfile.TemporaryDirectory() as folder:
        catalog = stream(Path(folder), arguments.intervals, arguments.questions, seed=arguments.seed)
        counted = CountedDataset(catalog, DATASET, None)
        corpus = counted.corpus
        rate = None if arguments.engine else counted.tokens_per_byte(None)
        cells = [Cell(DATASET, *name.split("/"), MODEL) for name in arguments.methods]
        if arguments.sweep:
            print_sweep(catalog, cells, corpus, rate, arguments.held)
            return
        print("| method | order | probes | prompt tokens | computed | of the first | of the least |")
        print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
        for cell, name in zip(cells, arguments.methods, strict=True):
            asked = prompts(catalog, cell, corpus, rate)
            numbers = in_passes(catalog, cell, corpus, arguments.held)
            found = dict(rows(asked, numbers, arguments.held))
            present, *_, floor = found.values()
            found[f"in passes of {arguments.held}, as planned"] = planned(
                catalog, [cell], numbers, holding(asked, arguments.held)
            )
            if arguments.engine:
                longest = max(prompt.length for prompt in asked)
                found |= engine_rows(catalog, cell, corpus, arguments.held, longest)
            sent = f"{len(asked):,} | {sum(prompt.length for prompt in asked):,}"
            for order, tokens in found.items():
                shares = f"{tokens / present:.3f} | {tokens / floor:.3f}"
                print(f"| `{name}` | {order} | {sent} | {tokens:,} | {shares} |", flush=True)


def print_sweep(catalog: Catalog, cells: Sequence[Cell], corpus: BuiltDataset, rate: float | None, held: int) -> None:
    """The table of a sweep."""
    asked = [prompts(catalog, cell, corpus, rate) for cell in cells]
    numbers, room = in_passes(catalog, cells[-1], corpus, held), holding(asked[-1], held)
    found = dict(sweep_rows(asked, corpus, numbers, held))
    largest = found["the largest"]
    found["side by side, as planned"] = planned(catalog, cells, numbers, room, sweep=True)
    if rate is None:
        longest = max(prompt.length for prompt in asked[-1])
        found |= sweep_engine_rows(catalog, cells, corpus, held, longest)
    print("| cells | how | probes | prompt tokens | computed | of the largest |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for how, tokens in found.items():
        some = asked[-1:] if how.startswith("the largest") else asked
        sent = f"{sum(map(len, some)):,} | {sum(prompt.length for prompts in some for prompt in prompts):,}"
        names = ", ".join(f"`{cell.variant}`" for cell in (cells[-1:] if some is not asked else cells))
        print(f"| `{cells[0].method}`: {names} | {how} | {sent} | {tokens:,} | {tokens / largest:.3f} |", flush=True)


if __name__ == "__main__":
    main()
