"""Claims about streams side by side: none waits for another, nothing arrives early, no answer changes."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import ROOT
from engine_models import Recorder
from host_fakes import RunnerRuntime, ScriptedRuntime
from runner_bench import CHAT, Bench, bench, documents, model, probes, tiny, unmeasured
from supervised_cells import ECHO, RECORDS, catalog, predictions
from test_rounds import corpora
from upkeep.catalog import Catalog
from upkeep.cell.lockstep import Outcome, Request
from upkeep.cell.strands import Strands
from upkeep.cell.tokens import ChatTokens
from upkeep.contract import Round
from upkeep.execution import cell_job
from upkeep.execution import order as orders
from upkeep.execution.order import Order, order
from upkeep.execution.rounds import BuiltDataset, answering, stranded, tasks
from upkeep.execution.supervise import run_cell
from upkeep.jobs import Cell

__all__ = ["bench", "catalog", "tiny"]


def corpus_of(streams: dict[str, int], questions: Sequence[str] = ("a", "b")) -> BuiltDataset:
    held = [one for stream, length in streams.items() for one in documents(range(length), stream)]
    asked = [one for stream, length in streams.items() for at in range(length) for one in probes(at, questions, stream)]
    return BuiltDataset(Path(), held, asked)


# ---------------------------------------------------------------- how streams are dealt


@settings(max_examples=200, deadline=None)
@given(corpora(), st.integers(1, 4), st.integers(1, 8), st.integers(1, 3))
def test_each_stream_is_in_one_strand_whole_and_no_strand_has_far_more_than_another(
    corpus: BuiltDataset, most: int, least: int, side: int
) -> None:
    found = stranded(corpus, most, least, side)
    assert len(found) <= most and all(found)
    if most == 1:
        assert found == [steps for steps in [answering(corpus, least, side)] if steps]
    sizes = {stream: sum(probe.stream == stream for probe in corpus.probes) for stream in corpus.streams}
    loads, seen = [], list[str]()
    for strand, steps in zip(tasks(corpus, found, 1, bytes(len(corpus.probes))), found, strict=True):
        rounds = [task.round for task in strand]
        assert [round.last for round in rounds] == [False] * (len(rounds) - 1) + [True]
        assert {(round.strand, round.strands) for round in rounds} == {(found.index(steps), len(found))}
        streams = {probe.stream for round in rounds for probe in round.probes}
        seen += streams
        loads.append(sum(sizes[stream] for stream in streams))
    assert sorted(seen) == sorted({probe.stream for probe in corpus.probes})
    if loads:
        assert max(loads) - min(loads) <= max(sizes.values())


class Host(Iterator[Round]):
    """Sends what it may: of each strand the first round, and a further one once that before it has ended."""

    def __init__(self, lengths: Sequence[int], drawn: random.Random, empty: float = 0.0) -> None:
        self.lengths, self.drawn, self.empty = lengths, drawn, empty
        self.sent, self.ended = [0] * len(lengths), [0] * len(lengths)

    def __next__(self) -> Round:
        ready = [n for n, most in enumerate(self.lengths) if self.sent[n] < most and self.sent[n] <= self.ended[n]]
        assert ready or self.sent == [*self.lengths], "the container waits for what is never sent"
        if not ready:
            raise StopIteration
        strand = self.drawn.choice(ready)
        self.sent[strand] += 1
        if self.drawn.random() < self.empty:  # a round without probes is done when it is sent
            self.ended[strand] += 1
        last = self.sent[strand] == self.lengths[strand]
        return Round(documents=[], probes=[], strand=strand, strands=len(self.lengths), last=last)


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4), st.sampled_from([0.0, 0.5, 1.0]), st.integers(), st.integers()
)
def test_what_is_begun_depends_on_what_has_ended_and_not_on_the_order_in_which_it_is_sent(
    lengths: list[int], empty: float, ends: int, sends: int
) -> None:
    def begun(drawn: random.Random) -> list[list[int]]:
        host, order = Host(lengths, drawn, empty), random.Random(ends)
        strands = Strands(host)
        found, under_way = [strands.first()], list[Round]()
        while True:
            under_way += found[-1]
            if not under_way:
                return [[round.strand for round in some] for some in found]
            ended = order.sample(sorted(under_way, key=lambda one: one.strand), order.randint(1, len(under_way)))
            for round in ended:
                under_way.remove(round)
                host.ended[round.strand] += 1
            found.append(strands.next([round.strand for round in ended if not round.last]))

    assert begun(random.Random(sends)) == begun(random.Random(sends + 1))


# ---------------------------------------------------------------- in a container


def sent(corpus: BuiltDataset, strands: int) -> list[Round]:
    """All rounds, those of the strands in turn."""
    fed = [list(strand) for strand in tasks(corpus, stranded(corpus, strands, 1), 1, bytes(len(corpus.probes)))]
    return [task.round for place in range(max(map(len, fed))) for strand in fed for task in strand[place : place + 1]]


@pytest.mark.parametrize("one_at_a_time", [False, True])
def test_answers_are_the_same_bytes_however_many_strands_there_are(
    bench: Bench, tiny: Path, one_at_a_time: bool
) -> None:
    bench.method(CHAT)
    corpus = corpus_of({"s": 3, "t": 2, "u": 1})
    bench.run(sent(corpus, 1), **model(tiny))
    expected = unmeasured(bench.predictions())
    assert len(expected) == len(corpus.probes)
    bench.empty()
    bench.run(sent(corpus, 3), one_at_a_time=one_at_a_time, **model(tiny))
    assert unmeasured(bench.predictions()) == expected


class Slow(Recorder):
    """Answers one question last of all that it is asked."""

    def step(self) -> list[tuple[Request, Outcome]]:  # type: ignore[override]
        texts = [self.tokens.decode(request.prompt.ids()) for request in self.queue]
        quick = [request for request, text in zip(self.queue, texts, strict=True) if "Where is slow?" not in text]
        waiting = [request for request in self.queue if request not in quick] if quick else []
        self.queue = quick or self.queue
        found = super().step()
        self.queue = waiting
        return found  # type: ignore[return-value]


@pytest.mark.parametrize("strands", [1, 2])
def test_a_stream_goes_on_while_the_slowest_answer_of_another_is_awaited(
    bench: Bench, tiny: Path, monkeypatch: pytest.MonkeyPatch, strands: int
) -> None:
    bench.method(CHAT)
    first, second = corpus_of({"s": 4}, ["slow"]), corpus_of({"t": 4}, ["quick"])
    corpus = BuiltDataset(Path(), [*first.documents, *second.documents], [*first.probes, *second.probes])
    setup = model(tiny)
    engine = Slow(ChatTokens(str(tiny), setup["model_spec"]))
    monkeypatch.setattr("upkeep.serving.alone.load_engine", lambda _: engine)
    bench.run(sent(corpus, strands), **setup)
    found = [prediction.probe_id for prediction in bench.predictions()]
    slow, quick = [f"sslow@{n}" for n in range(4)], [f"tquick@{n}" for n in range(4)]
    assert found == (slow + quick if strands == 1 else quick + slow)


# ---------------------------------------------------------------- on the host


def in_strands(number: int) -> Any:
    return lambda catalog, cell, corpus, *_: Order([0] * len(corpus.probes), False, 1.0, number)


@pytest.mark.parametrize("fault", ["none", "die"])
@pytest.mark.parametrize("strands", [2, 3])
def test_a_container_is_sent_each_strand_as_far_as_it_has_answered_it(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, strands: int, fault: str
) -> None:
    """The scripted container refuses a probe before its documents have come, or after any later one."""
    monkeypatch.setattr("upkeep.execution.rounds.stranded.__defaults__", (4, 1))
    run_cell(catalog, ECHO, runtime=ScriptedRuntime())
    expected = predictions(catalog)
    shutil.rmtree(catalog.results / "cells")
    monkeypatch.setattr(cell_job, "order", in_strands(strands))
    runtime = ScriptedRuntime(fault, 7, once=True)
    manifest = run_cell(catalog, ECHO, runtime=runtime)
    assert [{**p, "measured": None} for p in predictions(catalog)] == [{**p, "measured": None} for p in expected]
    assert [attempt.lines for attempt in manifest.attempts] == ([RECORDS] if fault == "none" else [7, RECORDS])


def test_what_is_asked_in_strands_is_published_as_without(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    (catalog.root / "methods/echo/method.py").write_text(
        "from upkeep.cell import Answer, Method\n\n\nclass Echo(Method):\n"
        "    async def answer(self, probe, seen, llm):\n"
        "        return Answer(' '.join(document.id for document in seen.documents))\n"
    )
    found = []
    for strands in (1, 3):
        monkeypatch.setattr(cell_job, "order", in_strands(strands))
        manifest = run_cell(catalog, ECHO, force=True, runtime=RunnerRuntime())
        found.append((manifest.identity, predictions(catalog)))
    assert found[0][0] == found[1][0]
    assert [{**p, "measured": None} for p in found[0][1]] == [{**p, "measured": None} for p in found[1][1]]


# ---------------------------------------------------------------- how many


def chosen(method: str, name: str, streams: int = 12, *, once: bool = False, **changes: Any) -> Order:
    """For streams of 65 documents with 2,000 tokens each, after each of which 102 questions are asked, on an H100.

    Args:
        once: whether they are new ones each time.
    """
    found = Catalog(ROOT)
    corpus = corpus_of({f"s{n}": 65 for n in range(streams)}, [str(n) for n in range(102)])
    if once:
        probes = [msgspec.structs.replace(probe, question_id=probe.id) for probe in corpus.probes]
        corpus = BuiltDataset(Path(), corpus.documents, probes)
    spec = msgspec.structs.replace(found.spec(name), **changes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(orders, "_tokens", lambda corpus: dict.fromkeys(corpus.streams, 2000.0))
        patch.setattr(Catalog, "spec", lambda self, model: spec)
        return order(found, Cell("oaks_babi", *method.split("/"), name), corpus, 1)


def test_there_are_as_many_strands_as_an_engine_has_room_for_where_a_model_reasons() -> None:
    closed = chosen("closed_book/default", "qwen3-8b-thinking")
    assert closed.strands == 6 and closed.passes == 1, "88 fit, and of 102 that are asked 20 are worked on at a time"
    assert chosen("closed_book/default", "qwen3-8b").strands < closed.strands, "no answer takes long"
    whole = chosen("long_context/default", "qwen3-8b-thinking")
    assert whole.strands <= 2, "the documents of a third stream do not fit"
    assert closed.together > whole.together


def test_passes_spare_nothing_where_no_question_is_asked_again() -> None:
    assert chosen("rag_bm25/k5", "qwen3-8b").passes > 1
    assert chosen("rag_bm25/k5", "qwen3-8b", once=True).passes == 1


def test_there_is_one_strand_where_a_step_takes_as_long_as_its_answers_are_many() -> None:
    for changes in ({"gpus": 0}, {"engine": "transformers"}):
        assert chosen("closed_book/default", "qwen3-8b-thinking", **changes).strands == 1
    assert chosen("closed_book/default", "qwen3-8b-thinking", streams=1).strands == 1
