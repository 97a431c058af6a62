"""Claims about counting one cell: nobody is asked, what is reused is found, and a sample stands for all of it."""

from __future__ import annotations

import random
import socket
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import ROOT
from method_fakes import PROMPTS
from planning import ASSUMED
from upkeep.cell.interface import Message
from upkeep.cell.tokens import TokenPrompt
from upkeep.contract import (
    CellDescription,
    Document,
    EngineSettings,
    ModelSpec,
    Prediction,
    Probe,
    Round,
    Sampling,
    Usage,
)
from upkeep.operations.plan.counts.extrapolation import extrapolate, extrapolate_arrival
from upkeep.operations.plan.counts.sample import KNOTS, WHOLE, Interval, Sample, sample
from upkeep.serving.counting import cells as counting
from upkeep.serving.counting.byte_tokens import ByteTokens
from upkeep.serving.counting.engine import FILLER
from upkeep.serving.counting.hashed_words import HashedWords
from upkeep.serving.counting.records import CountJob, Counts, Line
from upkeep.serving.counting.reuse import Blocks, Segments, computed, least

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
    job = CountJob(cell=told, passes=[str(rounds_file(tmp_path / "r"))], tokens_per_byte=0.25, assumed=ASSUMED)
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
    lines = (tmp_path / "out/0/0/predictions.jsonl").read_bytes().splitlines()
    for prediction in (msgspec.json.decode(line, type=Prediction) for line in lines):
        assert prediction.response
        assert bool(prediction.reasoning) == (thinking == "on")


TEXT = {"source": "path", "location": "m", "engine": "transformers"}
NATIVE = TEXT | {"tool_calls": "json"}


@pytest.mark.parametrize(
    ("method", "parameters", "model", "arriving", "asking"),
    [
        ("hipporag2", {"k": 2}, {}, 2 * 4, 2),
        ("a_mem", {}, {}, 1 + 2 * 3, 2),
        ("memagent", {}, {}, 0, 2),
        ("memory_scaffold", {"target_ratio": 8}, {}, 4, 1),
        ("document_summary", {"budget": 32}, {}, 4, 1),
        ("rag_agentic", {"k": 3}, {}, 0, 3 + 1),
        ("rag_agentic", {"k": 3}, NATIVE, 0, 3 + 1),
        ("rag_agentic", {"k": 3}, TEXT, 0, 3 + 1),
        ("deep_research", {"k": 3}, TEXT, 0, 3 + 1),
    ],
)
def test_replies_have_the_form_that_a_prompt_asks_for_so_all_calls_are_counted(
    tmp_path: Path, method: str, parameters: dict[str, Any], model: dict[str, Any], arriving: int, asking: int
) -> None:
    spec = description().model_spec
    assert spec is not None
    spec = msgspec.structs.replace(spec, **{"sampling": Sampling(max_tokens=300), **model})
    found = counted(tmp_path, method=method, parameters=parameters, model_spec=spec, embedder_spec=spec)
    assert sum(line.usage.calls for line in found.arrivals) == arriving
    assert {(line.usage.calls, line.error) for line in found.lines} == {(asking, None)}
    lines = (tmp_path / "out/0/0/predictions.jsonl").read_bytes().splitlines()
    values = [msgspec.json.decode(line, type=Prediction).values for line in lines]
    assert not any(value for one in values for name, value in one.items() if "unread" in name)


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


def begun(ids: Sequence[int], size: int) -> list[tuple[int, ...]]:
    """The beginnings of a prompt that are whole blocks, the shortest first."""
    return [tuple(ids[:end]) for end in range(size, len(ids) + 1, size)]


PROMPTS_OF_TWO = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=12), max_size=12)


@given(PROMPTS_OF_TWO, st.integers(1, 4), st.integers(0, 30))
def test_where_room_is_short_the_blocks_go_that_were_not_asked_for_longest(
    prompts: list[list[int]], size: int, room: int
) -> None:
    engine, held = Blocks(size, room), list[tuple[int, ...]]()
    for ids in prompts:
        blocks = begun(ids, size)
        known = next((n for n, block in enumerate(blocks) if block not in held), len(blocks))
        assert engine.reused(prompt(ids)) == min(known, (len(ids) - 1) // size) * size
        held = [block for block in held if block not in blocks] + blocks[::-1]
        held = held[max(0, len(held) - room // size) :]


@given(PROMPTS_OF_TWO, st.integers(1, 4), st.randoms(use_true_random=False))
def test_no_order_and_no_cache_computes_less_than_the_least(
    prompts: list[list[int]], size: int, rng: random.Random
) -> None:
    asked = [prompt(ids) for ids in prompts]
    floor = least(asked, size)
    # What several begin with once; of a prompt that ends with a block, this block whenever another has computed it.
    blocks = {block for ids in prompts for block in begun(ids, size)}
    ending = [tuple(ids) for ids in prompts if len(ids) % size == 0]
    rest = sum(len(ids) % size for ids in prompts) + size * (len(ending) - len(set(ending)))
    assert floor == size * len(blocks) + rest
    rng.shuffle(asked)
    assert floor <= computed(asked, Blocks(size, rng.choice([None, *range(40)])))


def test_an_answer_is_reused_by_the_prompt_that_goes_on_from_it() -> None:
    engine = Blocks(4)
    assert engine.reused(prompt(range(8))) == 0
    engine.generated(prompt(range(8)), [8, 9, 10, 11, 12])
    assert engine.reused(prompt(range(16))) == 12
    engine.forget()
    assert engine.reused(prompt(range(16))) == 0


def test_without_room_the_latest_prompt_alone_is_reused_by_whole_segments_and_never_the_last() -> None:
    engine = Segments(0)
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


# ---------------------------------------------------------------- in place of an embedder


def test_what_stands_in_for_an_embedder_reads_as_much_at_a_time_and_minds_which_words_there_are() -> None:
    short, long = HashedWords(4), HashedWords(4000)
    assert short.windows("a b  c d\ne f g") == ["a b c", "d e f", "g"] and short.windows("") == [""]
    assert long.windows("a b  c d\ne f g") == ["a b c d e f g"]
    found = long.documents(["the cat and the hat", "the hat and a Cat", "cat and the hat", "", "the dog"])
    assert np.linalg.norm(found, axis=1) == pytest.approx(1)
    assert (found[0] == found[2]).all() and (found[0] != found[1]).any()
    near = found @ found[0]
    assert near[2] > near[1] > near[4] > near[3]
