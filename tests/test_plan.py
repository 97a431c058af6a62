"""Claims about plans: counts are those of a real run, sums are sums, what is unknown stays so, and nothing is spent."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import upkeep
from conftest import ROOT, copy_repository, make_smaller
from method_fakes import PROMPTS
from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.cell.interface import Message
from upkeep.cell.tokens import TokenPrompt
from upkeep.contract import (
    Attempt,
    CellDescription,
    Document,
    EngineSettings,
    Environment,
    Manifest,
    ModelSpec,
    Prediction,
    Probe,
    Round,
    Sampling,
    Usage,
)
from upkeep.errors import UpkeepError
from upkeep.execution.handle import Handle
from upkeep.execution.rounds import BuiltDataset, tasks, worked_examples
from upkeep.execution.runtimes import Launch, Prepared
from upkeep.files import digest
from upkeep.identity import describe
from upkeep.inputs import verify_dataset
from upkeep.integrity import write_sealed
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.operations.plan.amounts import AMOUNTS, NONE, Amounts, JobPlan, Plan, sum_of
from upkeep.operations.plan.assumptions import Assumptions, Options
from upkeep.operations.plan.counts import counting as host_counting
from upkeep.operations.plan.counts.counting import tally
from upkeep.operations.plan.counts.extrapolation import extrapolate, extrapolate_arrival
from upkeep.operations.plan.counts.sample import KNOTS, WHOLE, Interval, Sample, sample
from upkeep.operations.plan.counts.tally import Arrival, Tally, with_arrivals
from upkeep.operations.plan.estimate import Estimate, dollars, make_plan
from upkeep.operations.plan.taken import speeds, took
from upkeep.operations.plan.terminal import render, render_actual
from upkeep.serving.counting import cells as counting
from upkeep.serving.counting.byte_tokens import ByteTokens
from upkeep.serving.counting.engine import FILLER
from upkeep.serving.counting.records import Assumed, CountJob, Counts, Line
from upkeep.serving.counting.reuse import Blocks, Latest
from upkeep.yaml_files import read_yaml

ASSUMED = Assumed(reply=20, thinking=30)
PROBES = 80
DOCUMENTS = 10
"""Of `oaks_babi_mini`, made smaller."""


class LocalRuntime:
    """Starts what a container would run as a process beside the tests, with the methods of a repository."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.launches: list[Launch] = []

    def prepare(self, method: str | None, engine: str) -> Prepared:
        return Prepared(record=None)  # type: ignore[arg-type]

    def path_of(self, role: str, path: Path) -> str:
        return str(path)

    def start(self, prepared: Prepared, launch: Launch) -> Handle:
        self.launches.append(launch)
        process = subprocess.Popen(
            [sys.executable, *launch.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment(self.root),
        )
        return Handle(process, launch.log, process.kill)

    def explain(self, status: int, resources: object, starved: bool | None = None) -> str:
        return f"exit status {status}"


def environment(root: Path) -> dict[str, str]:
    fixed = {"PYTHONPATH": str(Path(upkeep.__file__).parents[1]), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    return os.environ | fixed | {"UPKEEP_METHODS": str(root / "methods")}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a built dataset and the tokenizer of `tiny`; its weights are not there."""
    from upkeep.serving.make_model import tiny_llama

    root = copy_repository(tmp_path_factory.mktemp("plan"))
    make_smaller(root)
    card = root / "models" / "tiny" / "model.yaml"
    card.write_text(card.read_text().replace("max_tokens: 16", "max_tokens: 2"))  # what is generated is not the point
    catalog = Catalog(root)
    layout = Layout(catalog.results)
    for name in ("oaks_babi_mini", "prelude_mini"):  # prompts of the second have worked examples
        build_dataset(catalog, name, layout.dataset(name))
    weights = root / "tiny"
    tiny_llama(weights)
    shutil.copytree(weights, root / "tiny-whole")
    (weights / "model.safetensors").unlink()
    config = root / "config" / "config.yaml"
    config.write_text(config.read_text().replace("models: {}", "models: {tiny: tiny}"))
    return root


@pytest.fixture
def runtime(root: Path, monkeypatch: pytest.MonkeyPatch) -> LocalRuntime:
    local = LocalRuntime(root)
    monkeypatch.setattr(host_counting, "detect", lambda _: local)
    return local


def cell(method: str, model: str = "tiny", dataset: str = "oaks_babi_mini") -> Cell:
    name, _, variant = method.partition("/")
    return Cell(dataset, name, variant or "default", model)


def suite(root: Path, name: str, *cells: Cell) -> Catalog:
    """A catalog of the repository with a suite of these cells."""
    choices = [{"datasets": [c.dataset], "methods": [f"{c.method}/{c.variant}"], "models": [c.model]} for c in cells]
    told = {"label": name, "summary": name, "papers": [], "cells": choices}
    (root / "config" / "suites" / f"{name}.yaml").write_text(yaml.safe_dump(told))
    return Catalog(root)


def add_model(root: Path, name: str, **fields: Any) -> None:
    told = {"label": name, "summary": name, "source": "hub", "location": "a/b", "revision": "1", "context_length": 4000}
    (root / "models" / name).mkdir(exist_ok=True)
    (root / "models" / name / "model.yaml").write_text(yaml.safe_dump(told | fields))


# ---------------------------------------------------------------- counts and real runs


def really(root: Path, which: Cell, folder: Path) -> dict[str, tuple[int, int, int, int]]:
    """Run a cell with its model; by probe: calls, prompt tokens, generated ones, reused ones."""
    catalog = Catalog(root)
    corpus = BuiltDataset.read(Layout(catalog.results).dataset(which.dataset))
    told = msgspec.structs.replace(
        describe(catalog, which, 120),
        examples=worked_examples(corpus.folder, verify_dataset(corpus.folder)),
        model_path=str(root / "tiny-whole"),
        output=str(folder),
    )
    gold = corpus.gold(catalog.method(which.method).sees)
    rounds = [task.round for task in tasks(corpus, 1, bytes(len(corpus.probes)), gold)]
    (folder / "cell.json").write_bytes(msgspec.json.encode(told))
    done = subprocess.run(
        [sys.executable, "-m", "upkeep.serving.alone", str(folder / "cell.json")],
        input=b"".join(msgspec.json.encode(round) + b"\n" for round in rounds),
        env=environment(root),
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode()
    lines = (folder / "predictions.jsonl").read_bytes().splitlines()
    predictions = [msgspec.json.decode(line, type=Prediction) for line in lines]
    return {
        p.probe_id: (p.usage.calls, p.usage.prompt, p.usage.completion, p.measured.cached if p.measured else -1)
        for p in predictions
    }


@pytest.mark.parametrize(
    "which", [cell("long_context"), cell("oracle"), cell("closed_book", dataset="prelude_mini")], ids=str
)
def test_counts_are_those_of_a_real_run_where_the_tokenizer_is_the_models(
    root: Path, runtime: LocalRuntime, tmp_path: Path, which: Cell
) -> None:
    found = tally(Catalog(root), [which], ASSUMED)[which]
    real = really(root, which, tmp_path).values()
    assert found.unknown is None
    assert found.own_tokens and found.counted == found.records == len(real)
    assert found.requests == sum(calls for calls, _, _, _ in real)
    assert found.prompt == sum(prompt for _, prompt, _, _ in real)
    assert found.computed == sum(prompt - cached for _, prompt, _, cached in real)
    assert found.output >= sum(completion for _, _, completion, _ in real), "random weights may stop early"


def test_a_model_without_a_tokenizer_is_counted_by_bytes_not_far_off(root: Path, runtime: LocalRuntime) -> None:
    add_model(root, "elsewhere", context_length=262144, sampling={"max_tokens": 2})
    method = "rolling_window/w3"
    both = tally(Catalog(root), [cell(method), cell(method, "elsewhere")], ASSUMED)
    ours, other = both[cell(method)], both[cell(method, "elsewhere")]
    assert ours.own_tokens and not other.own_tokens
    rate = Layout(Catalog(root).results).dataset("oaks_babi_mini")
    documents = BuiltDataset.read(rate).documents
    from upkeep.building.tokens import load

    texts = [d.text for d in documents]
    ratio = sum(load(root / "tiny" / "tokenizer.json").count(texts)) / sum(load().count(texts))
    assert other.requests == ours.requests
    assert other.prompt * ratio == pytest.approx(ours.prompt, rel=0.1)


def test_what_is_asked_as_documents_arrive_is_counted_apart_and_once(root: Path, runtime: LocalRuntime) -> None:
    first, second, plain = cell("memory_scaffold/budget256"), cell("memory_scaffold/budget256_k5"), cell("closed_book")
    larger = cell("memory_scaffold/budget1024")
    found = tally(Catalog(root), [plain, first, second, larger], ASSUMED)
    assert found[plain].arrival is None
    arrivals = [found[which].arrival for which in (first, second, larger)]
    assert all(arrivals) and arrivals[0] == arrivals[1]
    assert arrivals[0] and arrivals[2] and arrivals[0].key != arrivals[2].key
    assert arrivals[0].requests == DOCUMENTS
    assert arrivals[0].output == DOCUMENTS * 512, "random weights fill what the method allows"
    assert found[first].requests == PROBES
    assert found[first].prompt > found[plain].prompt + PROBES * 100, "the memory is in the prompt"
    paid = with_arrivals(found)
    assert {which: one.requests for which, one in paid.items()} == {
        plain: PROBES, first: PROBES + DOCUMENTS, second: PROBES, larger: PROBES + DOCUMENTS,
    }  # fmt: skip
    assert paid[first].output == found[first].output + arrivals[0].output


def test_cells_of_two_models_each_pay_for_what_they_ask_as_documents_arrive() -> None:
    arrival = Arrival(key="k", requests=7, output=3)
    jobs = [cell("memory_scaffold/budget256", model) for model in ("a", "b")]
    paid = with_arrivals(dict.fromkeys(jobs, msgspec.structs.replace(TALLY, arrival=arrival)))
    assert {one.requests for one in paid.values()} == {TALLY.requests + 7}


def test_dense_retrieval_is_counted_without_an_embedder(root: Path, runtime: LocalRuntime) -> None:
    found = tally(Catalog(root), [cell("rag_dense/k3")], ASSUMED)[cell("rag_dense/k3")]
    assert found.unknown is None
    assert found.requests == PROBES


def test_counts_are_kept_and_only_what_changed_is_counted_again(
    root: Path, runtime: LocalRuntime, tmp_path: Path
) -> None:
    asked = [cell("closed_book"), cell("rolling_window/w1")]
    first = tally(Catalog(root), asked, ASSUMED)
    runtime.launches.clear()
    assert tally(Catalog(root), asked, ASSUMED) == first
    assert not runtime.launches
    source = root / "methods" / "rolling_window" / "method.py"
    before = source.read_text()
    source.write_text(before + "\n# another way to say it\n")
    try:
        assert tally(Catalog(root), asked, ASSUMED) == first
    finally:
        source.write_text(before)
    assert [launch.name.split("-")[1] for launch in runtime.launches] == ["rolling_window"]


def test_models_that_differ_in_weights_alone_share_their_counts(root: Path, runtime: LocalRuntime) -> None:
    add_model(root, "small", context_length=6000, gpus=1, engine="vllm", parameters_b=1)
    add_model(root, "large", context_length=6000, gpus=8, engine="vllm", parameters_b=90, dtype="bfloat16")
    add_model(root, "short", context_length=4500, gpus=1, engine="vllm", parameters_b=1)
    before = len(list((root / "results" / "plans" / "counts").glob("*")))
    found = tally(Catalog(root), [cell("long_context", m) for m in ("small", "large", "short")], ASSUMED)
    assert len(runtime.launches) == 1
    small, large, short = found.values()
    assert small == large
    assert small.prompt > short.prompt, "a shorter context shows fewer documents"
    assert len(list((root / "results" / "plans" / "counts").iterdir())) - before == 2


# ---------------------------------------------------------------- what cannot be counted


def test_a_dataset_that_is_not_at_hand_leaves_its_cells_unknown(root: Path, runtime: LocalRuntime) -> None:
    catalog = suite(root, "absent", cell("long_context", dataset="oaks_novel"), cell("long_context"))
    plan = make_plan(catalog, "absent")
    novel, babi = plan.jobs
    assert novel.plan.requests is None and novel.plan.prompt_tokens is None and novel.plan.cpu_hours is None
    assert "oaks_novel" in novel.unknown[0]
    assert plan.total.plan.requests == babi.plan.requests == PROBES
    assert plan.total.incomplete["requests"] == 1
    shown = text(render(plan))
    assert f"{PROBES} +?" in shown and "no dataset oaks_novel" in shown


def test_a_dataset_that_is_not_built_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = copy_repository(tmp_path)
    make_smaller(root)
    said: list[str] = []
    monkeypatch.setattr(host_counting, "detect", lambda _: LocalRuntime(root))
    found = tally(Catalog(root), [cell("closed_book")], ASSUMED, said.append)
    assert found[cell("closed_book")].requests == PROBES
    assert "building the dataset oaks_babi_mini" in said


BROKEN = {
    "raises": ("raise LookupError('no such thing')", "every probe fails: LookupError: no such thing"),
    "exits": ("import os; os._exit(7)", "exit status 7"),
}


@pytest.mark.parametrize("how", list(BROKEN))
def test_a_method_that_cannot_be_counted_is_unknown_and_the_others_are_not(
    root: Path, runtime: LocalRuntime, how: str
) -> None:
    body, expected = BROKEN[how]
    folder = root / "methods" / f"broken_{how}"
    shutil.copytree(root / "methods" / "closed_book", folder)
    (folder / "method.py").write_text(
        "from upkeep.cell import Method\n\n\nclass Broken(Method):\n"
        f"    async def answer(self, probe, seen, llm):\n        {body}\n"
    )
    try:
        found = tally(Catalog(root), [cell(f"broken_{how}"), cell("closed_book")], ASSUMED)
    finally:
        shutil.rmtree(folder)
    assert expected in (found[cell(f"broken_{how}")].unknown or "")
    assert found[cell("closed_book")].unknown is None
    assert not list((root / "results" / "work" / "counts").iterdir()), "nothing is left behind"


# ---------------------------------------------------------------- nothing is spent


def description(**changes: Any) -> CellDescription:
    spec = {
        "label": "x",
        "summary": "",
        "source": "endpoint",
        "location": "https://nowhere.invalid/v1",
        "context_length": 5000,
        "engine": "endpoint",
    }
    fields: dict[str, Any] = {
        "task": "answer",
        "dataset": "d",
        "method": "long_context",
        "variant": "default",
        "model": "x",
        "parameters": {},
        "model_spec": ModelSpec(**spec),  # type: ignore[arg-type]
        "model_path": None,
        "engine": EngineSettings(name="endpoint"),
        "chunk_tokens": 100,
        "prompt": PROMPTS["oaks_babi"].card,
        "output": "/nowhere",
    }
    return CellDescription(**(fields | changes))


def rounds_file(path: Path, intervals: int = 4, probes: int = 3) -> Path:
    rounds = []
    for t in range(intervals):
        text = f"In part {t} the lamp was carried from room {t} to room {t + 1}. " * 20
        document = Document(id=f"s_c{t}", stream="s", position=t, timestamp=None, text=text)
        asked = [
            Probe(
                id=f"q{q}@{t}", question_id=f"q{q}", stream="s", position=t, question=f"Where is {q}?",
                options=None, form="short",
            )
            for q in range(probes)
        ]  # fmt: skip
        rounds.append(Round(documents=[document], probes=asked))
    path.write_bytes(b"".join(msgspec.json.encode(round) + b"\n" for round in rounds))
    return path


def counted(tmp_path: Path, methods: Path = ROOT / "methods", **changes: Any) -> Counts:
    told = description(output=str(tmp_path / "out"), **changes)
    job = CountJob(cell=told, rounds=str(rounds_file(tmp_path / "r")), tokens_per_byte=0.25, assumed=ASSUMED)
    return counting.count([job], methods)[0]


def test_an_endpoint_is_counted_without_a_connection_or_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a plan connects to nothing")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    found = counted(tmp_path)
    assert found.error is None
    assert len(found.lines) == 12
    assert all(line.usage.calls == 1 and line.usage.completion == ASSUMED.reply for line in found.lines)


def test_no_weights_are_read_and_no_model_is_built(root: Path, runtime: LocalRuntime) -> None:
    assert not list((root / "tiny").glob("*.safetensors")), "the fixture has none, and all counts above were made so"
    assert tally(Catalog(root), [cell("closed_book")], ASSUMED)[cell("closed_book")].unknown is None
    for launch in runtime.launches:
        assert set(launch.inputs) <= {"cell", "tokens0"}


@pytest.mark.parametrize(
    ("changes", "sampling", "thinking", "expected"),
    [
        ({}, 4096, "off", ASSUMED.reply),
        ({}, 8, "off", 8),
        ({"trained": False}, 64, "off", 64),
        ({"thinking_tags": ("<think>", "</think>")}, 4096, "on", ASSUMED.reply + ASSUMED.thinking),
    ],
)
def test_replies_are_as_long_as_is_assumed(
    tmp_path: Path, changes: dict[str, Any], sampling: int, thinking: str, expected: int
) -> None:
    spec = description().model_spec
    assert spec is not None
    spec = msgspec.structs.replace(spec, sampling=Sampling(max_tokens=sampling), thinking=thinking, **changes)
    found = counted(tmp_path, model_spec=spec)
    lengths = {line.usage.completion for line in found.lines}
    assert len(lengths) == 1
    (length,) = lengths
    assert expected <= length <= expected + 8, "and the tag that closes the reasoning"
    lines = (tmp_path / "out" / "predictions.jsonl").read_bytes().splitlines()
    for prediction in (msgspec.json.decode(line, type=Prediction) for line in lines):
        assert prediction.response
        assert bool(prediction.reasoning) == (thinking == "on")


def test_a_method_that_goes_round_in_circles_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "CALLS_A_RECORD", 5)
    (tmp_path / "methods" / "circles").mkdir(parents=True)
    (tmp_path / "methods" / "circles" / "method.py").write_text(
        "from upkeep.cell import Method\n\n\nclass Circles(Method):\n"
        "    async def answer(self, probe, seen, llm):\n"
        "        while True:\n            await llm.chat([{'role': 'user', 'parts': ['x']}])\n"
    )
    assert "more and more calls" in (counted(tmp_path, tmp_path / "methods", method="circles").error or "")


# ---------------------------------------------------------------- what is reused


def prompt(*segments: Sequence[int]) -> TokenPrompt:
    return TokenPrompt.of([array("i", segment) for segment in segments if segment])


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=24), min_size=1, max_size=12),
    st.integers(1, 6),
)
def test_blocks_are_shared_with_every_earlier_prompt(prompts: list[list[int]], size: int) -> None:
    engine = Blocks(size)
    for n, ids in enumerate(prompts):
        longest = 0
        for earlier in prompts[:n]:
            common = 0
            for a, b in zip(ids, earlier, strict=False):
                if a != b:
                    break
                common += 1
            # Of the last, unfinished block of an earlier prompt nothing is kept.
            longest = max(longest, common // size * size)
        assert engine.reused(prompt(ids)) == min(longest, (len(ids) - 1) // size * size)


def test_an_answer_is_reused_by_the_prompt_that_goes_on_from_it() -> None:
    engine = Blocks(4)
    assert engine.reused(prompt(range(8))) == 0
    engine.generated(prompt(range(8)), [8, 9, 10, 11, 12])
    assert engine.reused(prompt(range(16))) == 12
    engine.forget()
    assert engine.reused(prompt(range(16))) == 0


def test_the_latest_prompt_alone_is_reused_by_whole_segments_and_never_the_last() -> None:
    engine = Latest()
    assert engine.reused(prompt([1, 2], [3], [4])) == 0
    assert engine.reused(prompt([1, 2], [3], [4])) == 3
    assert engine.reused(prompt([9], [9])) == 0
    assert engine.reused(prompt([1, 2], [3], [4])) == 0


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


@settings(deadline=None)
@given(st.lists(TEXTS, max_size=6), TEXTS, st.floats(0.1, 1.5))
def test_a_longer_context_extends_the_tokens_of_a_shorter_one(parts: list[str], question: str, rate: float) -> None:
    tokens = ByteTokens(rate)

    def ids(shown: list[str]) -> list[int]:
        return tokens.prompt([Message(role="user", parts=[*shown, question])]).ids()

    for n in range(len(parts)):
        documents = tokens.prompt([Message(role="user", parts=parts[:n])]).ids()[: -len(ByteTokens.HEADER)]
        assert ids(parts)[: len(documents)] == documents
    assert len(ids(parts)) == sum(map(tokens.count, [*parts, question])) + 2 * len(ByteTokens.HEADER)


@given(st.floats(0.1, 0.9))
def test_made_up_tokens_read_as_the_text_that_they_were_made_of(rate: float) -> None:
    tokens = ByteTokens(rate)
    ids = tokens.encode(FILLER)
    assert tokens.decode(ids) == FILLER
    assert len(ids) == tokens.count(FILLER)


# ---------------------------------------------------------------- the sample


def intervals(streams: Sequence[int], probes: int, tokens: int = 100) -> list[Interval]:
    """Streams of so many intervals, each with so many probes."""
    return [
        Interval(f"s{s}", tokens * (t + 1), tuple(f"s{s}q{q}@{t}" for q in range(probes)))
        for s, length in enumerate(streams)
        for t in range(length)
    ]


def lines(of: Sample, trials: int, first: int, other: int, slope: int) -> Iterator[Line]:
    """What a method would use whose prompts grow with what has arrived, and whose first probe pays for the new."""
    for interval in of.intervals:
        for n, key in enumerate(interval.keys):
            if key in of.asked:
                for trial in range(trials):
                    new = first if n == trial == 0 else other
                    size = new + slope * interval.arrived
                    yield Line(key=key, trial=trial, usage=Usage(prompt=size, completion=7, calls=1), cached=size - new)


SHAPES = st.lists(st.integers(1, 80), min_size=1, max_size=40)


@settings(deadline=None, max_examples=60)
@given(SHAPES, st.integers(1, 120), st.integers(1, 3), st.integers(0, 50), st.integers(0, 50), st.integers(0, 9))
def test_what_grows_with_the_context_is_inferred_exactly(
    streams: list[int], probes: int, trials: int, first: int, other: int, slope: int
) -> None:
    of = sample(intervals(streams, probes), trials)
    found = extrapolate(of, lines(of, trials, first, other, slope), trials)
    records = sum(streams) * probes * trials
    news = sum(streams) * first + (records - sum(streams)) * other
    assert found["requests"] == pytest.approx(records)
    assert found["output"] == pytest.approx(7 * records)
    assert found["computed"] == pytest.approx(news, abs=1e-6)
    grown = sum(slope * interval.arrived * probes * trials for interval in of.intervals)
    assert found["prompt"] == pytest.approx(news + grown, abs=1e-6)


@settings(deadline=None)
@given(SHAPES, st.integers(1, 200), st.integers(1, 3))
def test_a_sample_is_small_and_has_the_ends_and_what_comes_before(streams: list[int], probes: int, trials: int) -> None:
    every = intervals(streams, probes)
    of = sample(every, trials)
    assert of.whole == (sum(streams) * probes * trials <= WHOLE) or len(of.asked) == sum(streams) * probes
    if of.whole:
        return
    assert len(of.asked) <= 2 * WHOLE
    longest = max(streams)
    assert any(every[place].arrived == 100 * longest for place in of.counted), "nothing is inferred beyond the longest"
    places = {key: place for place, interval in enumerate(every) for key in interval.keys}
    sent = {places[key] for key in of.asked}
    for place, keys in of.counted.items():
        assert keys[0] == every[place].keys[0]
        if place and every[place - 1].stream == every[place].stream:
            assert place - 1 in sent
    by_stream: dict[str, int] = {}
    for place in of.counted:
        by_stream[every[place].stream] = by_stream.get(every[place].stream, 0) + 1
    assert max(by_stream.values()) <= KNOTS


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 99)), min_size=1, max_size=9), st.integers(1, 4))
def test_what_is_asked_as_documents_arrive_stands_for_all_documents(each: list[tuple[int, int]], part: int) -> None:
    asked = [
        Line(key=f"s{n}", usage=Usage(prompt=calls * size, completion=calls, calls=calls), cached=0)
        for n, (calls, size) in enumerate(each)
    ]
    found = extrapolate_arrival(asked, 1 / part)
    assert found["requests"] == found["output"] == pytest.approx(part * sum(calls for calls, _ in each))
    assert found["prompt"] == found["computed"] == pytest.approx(part * sum(calls * size for calls, size in each))


# ---------------------------------------------------------------- estimates


def planned(root: Path, model: str, found: Tally, **assumptions: Any) -> Plan:
    """A plan over one cell with these counts."""
    which = cell("closed_book", model)
    catalog = suite(root, "estimate", which)
    told = read_yaml(root / "config" / "gpus.yaml", Assumptions)
    told = msgspec.structs.replace(told, **assumptions)
    return Estimate(catalog, told, None, {which: "cell"}, {which: found}, {}, {}, {}).plan("estimate")


TALLY = Tally(
    records=100, counted=100, requests=100, prompt=1e6, computed=4e5, output=2e4, attended=5e9, read=2e8,
    together=10, own_tokens=True, bytes_per_token=4,
)  # fmt: skip
SHAPE = {"layers": 10, "heads": 8, "kv_heads": 2, "head_size": 64}


def test_gpu_hours_are_the_roofline(root: Path) -> None:
    add_model(root, "dense", gpus=2, engine="vllm", dtype="bfloat16", parameters_b=5, attention=SHAPE)
    share = {"prefill_share": 0.5, "decode_share": 0.25, "start_s": 100, "load_gb_s": 2.0}
    plan = planned(root, "dense", TALLY, **share)
    prefill = (2 * 5e9 * 4e5 + 4 * 10 * 8 * 64 * 5e9) / (2 * 989e12 * 0.5)
    decode = (2e4 / 10 * 10e9 + 2 * 10 * 2 * 64 * 2 * 2e8) / (2 * 3350e9 * 0.25)
    start = 100 + 10e9 / 2e9
    assert plan.jobs[0].plan.gpu_hours == pytest.approx(2 * (prefill + decode + start) / 3600)


def test_the_transformers_engine_decodes_few_sequences_at_a_time_and_long_ones_alone(root: Path) -> None:
    common = {"gpus": 2, "dtype": "bfloat16", "parameters_b": 50, "attention": SHAPE}
    add_model(root, "batched", **common, engine="vllm")
    add_model(root, "laned", **common, engine="transformers")
    many = msgspec.structs.replace(TALLY, together=100, prompt=1e5, computed=1e5)
    hours = [
        planned(root, model, tally, start_s=0, load_gb_s=1e9).jobs[0].plan.gpu_hours or 0
        for tally in (many, msgspec.structs.replace(many, prompt=1e6))
        for model in ("batched", "laned")
    ]
    batched, laned, batched_long, alone = hours
    assert batched < laned < alone
    assert batched == batched_long


def test_fewer_active_parameters_take_less_time_and_as_much_room(root: Path) -> None:
    common = {"gpus": 2, "engine": "vllm", "dtype": "bfloat16", "parameters_b": 50, "attention": SHAPE}
    add_model(root, "dense", **common)
    add_model(root, "sparse", **common, active_b=3)
    dense, sparse = planned(root, "dense", TALLY), planned(root, "sparse", TALLY)
    assert (sparse.jobs[0].plan.gpu_hours or 0) < (dense.jobs[0].plan.gpu_hours or 0)
    sizes = [next(d.bytes for d in plan.disk if d.what == "weights") for plan in (dense, sparse)]
    assert sizes == [100e9, 100e9]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"attention": SHAPE}, "has no parameters_b"),
        ({"parameters_b": 5}, "has no attention"),
        ({}, "has no parameters_b and attention"),
        ({"parameters_b": 500, "attention": SHAPE}, "do not fit into 1 h100"),
    ],
)
def test_gpu_hours_that_cannot_be_known_are_unknown_and_say_why(
    root: Path, fields: dict[str, Any], reason: str
) -> None:
    add_model(root, "vague", gpus=1, engine="vllm", dtype="bfloat16", **fields)
    plan = planned(root, "vague", TALLY)
    (job,) = plan.jobs
    assert job.plan.gpu_hours is None and plan.total.plan.gpu_hours is None
    assert reason in job.unknown[0]
    assert job.plan.requests == 100, "what is known is said all the same"
    assert "unknown" in text(render(plan))


def test_an_unknown_gpu_is_refused_with_those_that_are_known(root: Path) -> None:
    with pytest.raises(UpkeepError, match="h100"):
        make_plan(suite(root, "controls", cell("null", "none")), "controls", Options(gpu="h1000"))


@settings(deadline=None)
@given(
    st.floats(0, 100), st.floats(0, 100), st.none() | st.floats(0, 1), st.floats(0.01, 4), st.floats(0, 1),
    st.integers(0, 4096),
)  # fmt: skip
def test_money_is_never_more_than_at_most(
    price: float, completion: float, discount: float | None, rate: float, reused: float, reply: int
) -> None:
    spec = msgspec.convert(
        {
            **{"label": "x", "summary": "", "source": "endpoint", "location": "x", "context_length": 1000},
            "engine": "endpoint",
            "endpoint": {
                "model": "x",
                "key": None,
                "tokens_per_byte": rate,
                "price": {"prompt": price, "completion": completion, "cached": discount and discount * price},
            },
        },
        ModelSpec,
    )
    found = msgspec.structs.replace(TALLY, computed=TALLY.prompt * (1 - reused), output=TALLY.requests * reply)
    estimate, most = dollars(spec, found)
    assert estimate is not None and most is not None
    assert 0 <= estimate <= most * (1 + 1e-9)


def test_money_counts_what_is_reused_at_its_own_price(root: Path) -> None:
    price = {"prompt": 2.0, "completion": 8.0, "cached": 0.5}
    endpoint = {"model": "x", "key": "KEY", "price": price}
    place = "https://nowhere.invalid/v1"
    add_model(root, "paid", source="endpoint", engine="endpoint", location=place, revision=None, endpoint=endpoint)
    plan = planned(root, "paid", TALLY)
    assert plan.jobs[0].plan.usd == pytest.approx(0.4 * 2 + 0.6 * 0.5 + 0.02 * 8)
    # 0.35 tokens a byte at most, against 0.25 that were counted; 4,096 tokens of each reply.
    assert plan.jobs[0].plan.usd_at_most == pytest.approx(1.4 * 2 + 100 * 4096 / 1e6 * 8)
    assert plan.jobs[0].plan.gpu_hours == plan.jobs[0].plan.cpu_hours == 0


AMOUNT = st.none() | st.floats(0, 1e9)


@given(st.lists(st.builds(Amounts, **dict.fromkeys(AMOUNTS, AMOUNT)), max_size=8))
def test_totals_are_the_sums_of_what_is_known_and_say_what_is_not(amounts: list[Amounts]) -> None:
    jobs = [JobPlan(job=str(n), kind="cell", model="m", plan=plan, counted="") for n, plan in enumerate(amounts)]
    total = sum_of("total", jobs)
    for field in AMOUNTS:
        values = [getattr(plan, field) for plan in amounts]
        known = [value for value in values if value is not None]
        assert getattr(total.plan, field) == (pytest.approx(sum(known)) if known or not values else None)
        assert total.incomplete.get(field, 0) == len(values) - len(known)


def test_models_and_total_of_a_plan_are_sums_of_its_jobs(root: Path, runtime: LocalRuntime) -> None:
    cells = [cell("null", "none"), cell("closed_book"), cell("long_context"), cell("memory_scaffold/budget256")]
    plan = make_plan(suite(root, "several", *cells), "several")
    assert [job.kind for job in plan.jobs] == ["cell"] * 4
    assert plan.total == sum_of("total", plan.jobs)
    for field in ("requests", "prompt_tokens", "computed_tokens", "output_tokens"):
        assert getattr(plan.total.plan, field) == sum(getattr(model.plan, field) for model in plan.models)
    assert plan.total.plan.requests == 3 * PROBES + DOCUMENTS
    assert plan.total.incomplete == {"cpu_hours": 3}, "no cell of the model has been run here"
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan


# ---------------------------------------------------------------- afterwards


def publish(root: Path, which: Cell, seconds: int, usage: Usage, cached: int) -> None:
    """A manifest as a cell of two attempts leaves it, with an hour between them in which nobody worked."""
    half = seconds // 2
    spans = [("08:00:00", f"08:{half // 60:02}:{half % 60:02}"), ("12:00:00", f"12:{half // 60:02}:{half % 60:02}")]
    manifest = Manifest(
        cell=str(which),
        identity=digest("x"),
        identity_parts={},
        environment=Environment(
            runtime="process", isolated=False, image=None, digest=None, engine="transformers", engine_version="",
            packages={}, hardware={},
        ),
        seed=0,
        start="2026-01-01T08:00:00+00:00",
        end="2026-01-01T13:00:00+00:00",
        attempts=[
            Attempt(start=f"2026-01-01T{a}+00:00", end=f"2026-01-01T{b}+00:00", outcome="complete") for a, b in spans
        ],
        probes=PROBES,
        trials=1,
        outcomes={},
        usage=usage,
        measured={"cached_prompt_tokens": cached, "computed_prompt_tokens": usage.prompt - cached, "latency_s": 1.0},
        files={},
    )  # fmt: skip
    folder = Layout(root / "results").cell(which)
    folder.mkdir(parents=True, exist_ok=True)
    write_sealed(folder / "manifest.json", manifest)


def test_plan_and_actual_stand_side_by_side(root: Path, runtime: LocalRuntime) -> None:
    done, left = cell("rolling_window/w1"), cell("rolling_window/w2")
    catalog = suite(root, "half", done, left)
    first = make_plan(catalog, "half").jobs[0].plan
    assert first.prompt_tokens and first.computed_tokens and first.cpu_hours is None
    usage = Usage(prompt=int(first.prompt_tokens * 2), completion=2560, calls=PROBES)
    publish(root, done, 200, usage, cached=1000)
    try:
        plan = make_plan(Catalog(root), "half")
        assert [job.actual is not None for job in plan.jobs] == [True, False]
        actual = plan.jobs[0].actual
        assert actual is not None
        assert actual.prompt_tokens == 2 * first.prompt_tokens
        assert actual.cpu_hours == pytest.approx(200 / 3600)
        assert actual.gpu_hours == actual.usd == 0
        speed = speeds(catalog)["tiny"]
        assert speed == pytest.approx((usage.prompt - 1000 + 2560) / 200)
        planned_hours = (first.computed_tokens + (first.output_tokens or 0)) / speed / 3600
        assert plan.jobs[0].plan.cpu_hours == pytest.approx(planned_hours)
        shown = text(render_actual(plan, cells=True))
        assert "2.00" in shown and "1 of 2 jobs are complete; the other 1" in shown
    finally:
        shutil.rmtree(root / "results" / "cells")


def test_what_a_job_took_is_read_from_its_manifest(root: Path) -> None:
    add_model(root, "onfour", gpus=4, engine="vllm")
    which = cell("closed_book", "onfour")
    publish(root, which, 1800, Usage(prompt=10, completion=5, calls=2), cached=4)
    manifest = msgspec.json.decode((Layout(root / "results").cell(which) / "manifest.json").read_bytes(), type=Manifest)
    shutil.rmtree(root / "results" / "cells")
    found = took(Catalog(root), which, manifest)
    assert found == msgspec.structs.replace(
        NONE, requests=2.0, prompt_tokens=10.0, computed_tokens=6.0, output_tokens=5.0, gpu_hours=2.0
    )


# ---------------------------------------------------------------- cards, command line


LATENT_ATTENTION = {"deepseek-r1", "deepseek-v3"}
"""Models whose cost the record `Attention` cannot say: the plan calls their GPU hours unknown."""


def test_every_model_on_gpus_has_what_an_estimate_needs_and_fits() -> None:
    catalog = Catalog(ROOT)
    told = read_yaml(ROOT / "config" / "gpus.yaml", Assumptions)
    assert told.default in told.gpus
    assert all("data sheet" in gpu.source for gpu in told.gpus.values())
    for name in catalog.models:
        spec = catalog.model(name)
        if spec.role == "generator" and spec.gpus:
            assert spec.parameters_b is not None, name
            assert spec.active_b is None or spec.active_b < spec.parameters_b
            if name in LATENT_ATTENTION:
                continue
            assert spec.attention is not None, name
            gpu = told.gpus[(spec.resources.gpu_type if spec.resources else None) or told.default]
            assert spec.parameters_b * 2 < spec.gpus * spec.nodes * gpu.memory_gb * told.memory_share, name


def text(renderable: Any) -> str:
    from rich.console import Console

    console = Console(width=250, record=True, file=open(os.devnull, "w"))  # noqa: PTH123, SIM115
    console.print(renderable, highlight=False)
    return console.export_text()


def test_the_command_prints_a_table_with_its_assumptions_and_writes_what_programs_read(
    root: Path, tmp_path: Path
) -> None:
    suite(root, "controls", cell("null", "none"), cell("gold", "none"))
    done = subprocess.run(
        [sys.executable, "-m", "upkeep", "--root", str(root), "plan", "controls", "--json", str(tmp_path / "p.json")],
        env=environment(root),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "plan of controls" in done.stdout and "assumptions:" in done.stdout
    plan = msgspec.json.decode((tmp_path / "p.json").read_bytes(), type=Plan)
    assert len(plan.jobs) == 2
    assert plan.total.plan == NONE


def test_a_number_of_tokens_below_one_is_refused(root: Path) -> None:
    command = [sys.executable, "-m", "upkeep", "--root", str(root), "plan", "mini", "--output-tokens", "0"]
    done = subprocess.run(command, env=environment(root), capture_output=True, text=True)
    assert done.returncode == 2
    assert "--output-tokens" in done.stderr
