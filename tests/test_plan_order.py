"""Claims about counting a cell whose prompts go by their questions: what the order of asking saves is counted."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from test_plan_counting import description, intervals
from upkeep.cell.tokens import TokenPrompt, shared_segments
from upkeep.contract import EngineSettings
from upkeep.operations.plan.counts.sample import sample
from upkeep.serving.counting.reuse import Latest, Segments, reuse


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
def test_whole_segments_of_every_earlier_prompt_are_kept_and_never_the_last(prompts: list[list[list[int]]]) -> None:
    engine = Segments()
    earlier: list[list[array[int]]] = []
    for parts in prompts:
        segments = [array("i", part) for part in parts]
        most = max((shared_segments(one[:-1], segments[:-1]) for one in earlier), default=0)
        assert engine.reused(TokenPrompt.of(segments)) == sum(map(len, segments[:most]))
        earlier.append(segments)


@pytest.mark.parametrize(("held", "kind"), [(None, Latest), (False, Latest), (True, Segments)])
def test_the_transformers_engine_keeps_a_question_s_prompts_where_it_is_asked_by_itself(
    held: bool | None, kind: type
) -> None:
    assert type(reuse(description(engine=EngineSettings(name="transformers")), held)) is kind
