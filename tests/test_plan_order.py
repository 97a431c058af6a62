"""Claims about counting cells in the order in which they are asked: what that saves is counted."""

from __future__ import annotations

import tempfile
import uuid
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planning import ASSUMED, PROBES, LocalRuntime, add_model, cell, root, runtime
from test_plan_counting import ROOT, description, intervals, rounds_file
from upkeep.catalog import Catalog
from upkeep.cell.tokens import TokenPrompt, shared_segments
from upkeep.contract import EngineSettings, Round
from upkeep.execution.order import Order
from upkeep.execution.passes import by_wording
from upkeep.execution.rounds import BuiltDataset
from upkeep.jobs import Job
from upkeep.operations.plan.counts import counting
from upkeep.operations.plan.counts.sample import sample
from upkeep.operations.plan.counts.tally import Tally
from upkeep.serving.counting.cells import count
from upkeep.serving.counting.records import Assumed, CountJob, Counts, Line
from upkeep.serving.counting.reuse import BLOCK, Segments, reuse
from upkeep.serving.lanes import KEPT_TOKENS

__all__ = ["root", "runtime"]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(2, 80), min_size=1, max_size=20), st.integers(1, 120))
def test_before_each_counted_probe_comes_that_of_its_question_where_an_engine_keeps_it(
    streams: list[int], probes: int
) -> None:
    every = intervals(streams, probes)
    kept, lost = sample(every, 1, held=True), sample(every, 1, held=False)
    assert kept.counted == lost.counted
    counted = {key for keys in kept.counted.values() for key in keys}
    assert lost.asked == counted <= kept.asked
    for place, keys in kept.counted.items():
        if place and every[place - 1].stream == every[place].stream:
            for key in keys:
                question, _, position = key.rpartition("@")
                assert f"{question}@{int(position) - 1}" in kept.asked


@given(st.lists(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=2), min_size=1, max_size=4), max_size=8))
def test_whole_segments_of_every_earlier_prompt_are_reused_and_the_last_is_always_computed(
    prompts: list[list[list[int]]],
) -> None:
    engine = Segments(None)
    earlier: list[list[array[int]]] = []
    for parts in prompts:
        segments = [array("i", part) for part in parts]
        most = max((shared_segments(one, segments[:-1]) for one in earlier), default=0)
        assert engine.reused(TokenPrompt.of(segments)) == sum(map(len, segments[:most]))
        earlier.append(segments)


@pytest.mark.parametrize(("held", "third", "whole"), [(None, True, False), (False, False, False), (True, True, True)])
def test_of_a_sample_the_transformers_engine_keeps_what_its_order_says(
    held: bool | None, third: bool, whole: bool
) -> None:
    """Whether a prompt is found again after another one, where each takes a third of the room, and all of it."""
    for size, again in ((KEPT_TOKENS // 3, third), (KEPT_TOKENS, whole)):
        kept = reuse(description(engine=EngineSettings(name="transformers")), held)
        one, other = (TokenPrompt.of([array("i", [first] * size), array("i", [1])]) for first in (1, 2))
        assert [kept.reused(prompt) for prompt in (one, other, one, one)] == [0, 0, size if again else 0, size]


# ---------------------------------------------------------------- counted as it is asked


def counted(
    folder: Path, parameters: dict[str, Any], passes: Sequence[Path], *beside: dict[str, Any],
    method: str = "rag_bm25", room: int | None = None,
) -> Counts:  # fmt: skip
    """What a method on vLLM is counted to ask, and beside it with other parameters."""
    first, *others = (
        description(
            method=method, parameters=one, engine=EngineSettings(name="vllm"), output=str(folder / str(uuid.uuid4()))
        )
        for one in (parameters, *beside)
    )
    files = [str(path) for path in passes]
    assumed = Assumed(reply=1, thinking=0)
    job = CountJob(cell=first, beside=others, passes=files, tokens_per_byte=0.25, assumed=assumed, room=room)
    (found,) = count([job], ROOT / "methods")
    assert found.error is None and all(line.error is None for line in found.lines)
    return found


def computed(lines: Sequence[Line]) -> int:
    return sum(line.usage.prompt - line.cached for line in lines)


def split(path: Path, folder: Path) -> list[Path]:
    """The rounds of each question by itself."""
    rounds = [msgspec.json.decode(line, type=Round) for line in path.read_bytes().splitlines()]
    every = sorted({probe.question_id for one in rounds for probe in one.probes})
    files = []
    for question in every:
        files.append(folder / question)
        mine = ([probe for probe in one.probes if probe.question_id == question] for one in rounds)
        told = (msgspec.structs.replace(one, probes=probes) for one, probes in zip(rounds, mine, strict=True))
        files[-1].write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in told))
    return files


def test_each_pass_is_counted_with_an_engine_that_has_kept_nothing(tmp_path: Path) -> None:
    whole = rounds_file(tmp_path / "r", intervals=6, probes=4)
    passes = split(whole, tmp_path)
    together, apart = (counted(tmp_path, {"k": 2}, files) for files in ([whole], passes))
    assert sorted(line.key for line in apart.lines) == sorted(line.key for line in together.lines)
    each = [computed(counted(tmp_path, {"k": 2}, [one]).lines) for one in passes]
    assert computed(apart.lines) == sum(each) > computed(together.lines) > 0


@settings(deadline=None, max_examples=20)
@given(st.one_of(st.integers(1, 5000), st.just(50_000)))
def test_an_engine_with_less_room_computes_what_it_has_not_kept(room: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        whole = rounds_file(Path(folder) / "r", intervals=5, probes=3)
        few, every = (counted(Path(folder), {"k": 3}, [whole], room=tokens).lines for tokens in (room, None))
    assert computed(few) >= computed(every)
    if room < BLOCK:
        assert not any(line.cached for line in few)
    if room >= sum(line.usage.prompt + BLOCK for line in every):
        assert few == every


def test_of_what_was_asked_beside_a_cell_no_more_than_the_last_block_is_computed_again(tmp_path: Path) -> None:
    whole = rounds_file(tmp_path / "r", intervals=6, probes=4)
    ways: list[list[dict[str, Any]]] = [[], [{"k": 1}, {"k": 2}], [{"k": 4}]]
    alone, after, same = (counted(tmp_path, {"k": 4}, [whole], *beside).lines for beside in ways)
    assert all(line.usage.prompt - line.cached <= BLOCK for line in same)
    assert computed(same) <= computed(after) < computed(alone)
    assert [line.usage for line in alone] == [line.usage for line in after] == [line.usage for line in same]


def test_what_is_asked_as_documents_arrive_is_counted_once_and_as_where_none_has_asked_it(tmp_path: Path) -> None:
    whole = rounds_file(tmp_path / "r", intervals=6, probes=4)
    memory = {"method": "memory_scaffold"}
    few, more = {"budget": 32}, {"budget": 32, "k": 2}
    alone = counted(tmp_path, more, [whole], **memory)
    beside = counted(tmp_path, more, split(whole, tmp_path), few, **memory)
    assert (beside.arrival, beside.arrivals) == (alone.arrival, alone.arrivals) and computed(alone.arrivals) > 0


@pytest.mark.parametrize("method", ["rag_bm25", "rag_dense"])
def test_cells_are_counted_in_the_passes_and_beside_the_cells_in_which_they_are_asked(
    root: Path, runtime: LocalRuntime, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    add_model(root, "held", context_length=6000, gpus=1, engine="vllm", parameters_b=1)
    few, some, most = cells = [cell(f"{method}/k{k}", "held") for k in (1, 2, 3)]

    def counted(size: int, *, sweep: bool = False) -> dict[Job, Tally]:
        """Of cells that are asked so many questions of a stream in a pass."""

        def order(_catalog: object, _cell: object, corpus: BuiltDataset, *_: object) -> Order:
            return Order(by_wording(corpus, size), held=True, together=1, sweep=sweep)

        monkeypatch.setattr(counting, "order", order)
        return counting.tally(Catalog(root), cells, ASSUMED)

    whole, passes, beside = counted(PROBES), counted(1), counted(1, sweep=True)
    assert all(found.counted == found.records == PROBES for one in (whole, passes, beside) for found in one.values())
    for which in cells:
        assert whole[which].prompt == passes[which].prompt == beside[which].prompt
        assert (whole[which].passes, passes[which].passes) == (1, beside[which].passes)
        assert whole[which].computed < passes[which].computed, "a pass finds nothing of the one before"
    assert beside[few] == passes[few] and passes[few].passes > 1
    assert beside[some].computed < passes[some].computed
    assert beside[most].computed < passes[most].computed - passes[some].computed / 2
    monkeypatch.setattr(counting, "WHOLE", 1)
    assert counted(1) == passes, "what probes of a pass share is counted whole"
    for limit in ("IN_PASSES", "PASSES"):
        with monkeypatch.context() as patch:
            patch.setattr(counting, limit, 1)
            assert all(0 < found.counted < found.records == PROBES for found in counted(1).values())
