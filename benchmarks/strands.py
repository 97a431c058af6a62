"""What waiting for the slowest answers costs a GPU: `python benchmarks/strands.py`.

Cells on several streams of OAKS-BABI are asked by the suite's own runner, with an engine in the model's place that
computes nothing and keeps a clock: prompt tokens take what the arithmetic of a GPU allows, each step of decoding what
reading the weights and all contexts takes (`upkeep.execution.roofline`), and answers are of log-normal lengths, the
same ones in each order. One strand is what a cell had without them, `strands` what the suite chooses, and the bound
is the same requests without any rounds: all known from the beginning, as many at a time. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import tempfile
from asyncio import Future, new_event_loop
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import cycle, islice, zip_longest
from pathlib import Path

import msgspec
from order import DATASET, stream

from upkeep.catalog import Catalog
from upkeep.cell.loading import make_method
from upkeep.cell.lockstep import Engine, Generate, Generated, Outcome, Request, lockstep
from upkeep.cell.runner import AnswerTask
from upkeep.cell.strands import Strands
from upkeep.contract import CellDescription, ModelSpec, Round
from upkeep.execution.order import order
from upkeep.execution.roofline import Figures, figures, gpu_of, read_assumptions, weights_read
from upkeep.execution.rounds import BuiltDataset, stranded, tasks
from upkeep.identity import describe
from upkeep.inputs import dataset
from upkeep.jobs import Cell
from upkeep.operations.plan.counts.dataset import CountedDataset
from upkeep.serving.counting.byte_tokens import ByteTokens
from upkeep.serving.counting.forms import FormTokens
from upkeep.serving.counting.reuse import Segments


class SimulatedGpu(Engine):
    """Batches continuously, first come, first served, as long as keys and values fit; `clock` is in seconds.

    Args:
        mean, sigma: of the answers' tokens, and of their logarithm.
        rows: answers that it works on at a time, at most.
    """

    name, version = "simulated", "1"

    def __init__(self, tokens: FormTokens, spec: ModelSpec, known: Figures, mean: int, sigma: float, rows: int) -> None:
        super().__init__(tokens, spec.context_length)
        self.clock, self.requests = 0.0, list[Generate]()
        self._spec, self._known, self._rows = spec, known, rows
        self._mu, self._sigma = math.log(mean) - sigma**2 / 2, sigma
        self._kept, self._words = Segments(None), tokens.encode("so ")
        self._waiting: deque[tuple[Generate, int, int]] = deque()
        self._running: list[tuple[int, int, Generate, int, int]] = []
        self._steps = self._context = self._used = self._admitted = 0

    def add(self, request: Request) -> None:
        assert isinstance(request, Generate)
        self.requests.append(request)
        length = random.Random(request.seed).lognormvariate(self._mu, self._sigma)
        reply = max(1, min(round(length), self.context_length - request.prompt.length))
        self._waiting.append((request, self._kept.reused(request.prompt), reply))

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._running)

    def reset(self) -> None:
        self._kept.forget()

    def step(self) -> Iterable[tuple[Request, Outcome]]:
        self._admit()
        known, rows = self._known, len(self._running)
        more = self._running[0][0] - self._steps
        read = more * self._context + rows * more * (more - 1) / 2
        assert known.bandwidth is not None
        self.clock += (more * weights_read(self._spec, known, rows) + known.kv * read) / known.bandwidth
        self._steps += more
        self._context += rows * more
        done: list[tuple[Request, Outcome]] = []
        while self._running and self._running[0][0] == self._steps:
            _, _, request, reused, reply = heapq.heappop(self._running)
            self._context -= request.prompt.length + reply
            self._used -= request.prompt.length - reused + reply
            done.append((request, Generated([*islice(cycle(self._words), reply)], "stop", reused)))
        return done

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self._rows:
            request, reused, reply = self._waiting[0]
            length = request.prompt.length
            takes = length - reused + reply
            if self._running and (self._used + takes) * self._known.kv > self._known.room:
                return
            self._waiting.popleft()
            attended = (length**2 - reused**2) / 2
            work = self._known.token * (length - reused) + self._known.pair * attended
            self.clock += work / self._known.arithmetic
            self._used += takes
            self._context += length
            self._admitted += 1
            heapq.heappush(self._running, (self._steps + reply, self._admitted, request, reused, reply))


def asked(corpus: BuiltDataset, strands: int, streams: int) -> Iterator[Round]:
    """The rounds of a cell, those of its strands in turn."""
    fed = tasks(corpus, stranded(corpus, strands, min_streams=streams), 1, bytes(len(corpus.probes)))
    return (task.round for some in zip_longest(*fed) for task in some if task is not None)


def answered(catalog: Catalog, told: CellDescription, engine: SimulatedGpu, rounds: Iterator[Round]) -> float:
    """Seconds until a cell is answered."""
    method = make_method(told, catalog.root / "methods", None, threads=1)
    with tempfile.TemporaryDirectory() as output, lockstep(engine) as loop:
        task = AnswerTask(msgspec.structs.replace(told, output=output), method, engine, Path(output))
        loop.run(task.rounds(Strands(rounds)))
        loop.run(method.close())
    return engine.clock


def without_rounds(requests: Iterable[Generate], engine: SimulatedGpu) -> float:
    """Seconds until requests are answered that are all there from the beginning."""
    loop = new_event_loop()
    for request in requests:
        future: Future[Generated] = loop.create_future()
        engine.add(Generate(request.prompt, request.sampling, request.seed, future))
    while engine.busy:
        engine.advance()
    loop.close()
    return engine.clock


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="qwen3-8b-thinking")
    parser.add_argument("--methods", nargs="+", default=["closed_book/default", "rag_bm25/k5", "rolling_window/w30"])
    parser.add_argument("--streams", type=int, default=12)
    parser.add_argument("--intervals", type=int, default=65)
    parser.add_argument("--questions", type=int, default=102, help="of a stream")
    parser.add_argument("--mean", type=int, default=2500, help="tokens of an answer, with its reasoning")
    parser.add_argument("--sigma", type=float, default=1.0, help="standard deviation of the logarithm of its length")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        catalog = stream(Path(folder), arguments.intervals, arguments.questions, arguments.streams)
        counted, assumed = CountedDataset(catalog, DATASET, None), read_assumptions(catalog)
        corpus, spec = counted.corpus, catalog.spec(arguments.model)
        gpu = gpu_of(spec, assumed)
        known, why = figures(spec, arguments.model, gpu, assumed)
        if known is None or known.bandwidth is None:
            parser.error(why or f"{arguments.model} runs on no GPU")
        print(f"| method | probes | strands | hours on {gpu} | of the bound |\n| --- | ---: | --- | ---: | ---: |")
        for name in arguments.methods:
            cell = Cell(DATASET, *name.split("/"), arguments.model)
            told = describe(catalog, cell, dataset(catalog, DATASET).chunk_tokens)

            def engine(rows: int = told.engine.max_in_flight) -> SimulatedGpu:
                tokens = FormTokens(ByteTokens(counted.tokens_per_byte(None)), None)
                return SimulatedGpu(tokens, spec, known, arguments.mean, arguments.sigma, rows)

            least, streams = catalog.method(cell.method).streams, order(catalog, cell, corpus, 1).strands
            first = engine()
            seconds = {"1": answered(catalog, told, first, asked(corpus, 1, least))}
            seconds[str(streams)] = answered(catalog, told, engine(), asked(corpus, streams, least))
            bound = without_rounds(first.requests, engine())
            for strands, took in [*seconds.items(), ("no rounds", bound)]:
                probes = f"{len(corpus.probes):,}"
                print(f"| `{name}` | {probes} | {strands} | {took / 3600:.2f} | {took / bound:.3f} |", flush=True)


if __name__ == "__main__":
    main()
