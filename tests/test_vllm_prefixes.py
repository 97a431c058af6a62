"""Claims about what vLLM is told of prompts that begin alike: what it would have made of each by itself."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upkeep.cell.tokens import TokenPrompt
from upkeep.serving import vllm_prefixes
from upkeep.serving.vllm_prefixes import Prefixes


@dataclass
class Request:
    """As vLLM's, in what concerns its hashes."""

    prompt_token_ids: list[int]
    adapter: str
    block_hashes: list[int] = field(default_factory=list)


@dataclass
class Hasher:
    """Hashes the blocks that a request has no hash of, each with the one before; counts them."""

    block: int
    hashed: int = 0

    def __call__(self, request: Request) -> list[int]:
        found: list[int] = []
        last = request.block_hashes[-1] if request.block_hashes else 0
        ids = request.prompt_token_ids
        for start in range(len(request.block_hashes) * self.block, len(ids) - self.block + 1, self.block):
            last = hash((last, request.adapter, tuple(ids[start : start + self.block])))
            found.append(last)
        self.hashed += len(found)
        return found


SEGMENTS = [array("i", ids) for ids in ([1], [1, 2], [2, 2, 2], [3] * 5, [1, 2, 3, 4, 5, 6, 7])]
ASKED = st.tuples(
    st.lists(st.sampled_from(SEGMENTS), min_size=1, max_size=6),
    st.lists(st.integers(1, 3), max_size=3),
    st.sampled_from(["", "a"]),
    st.booleans(),
)


@pytest.mark.parametrize("held", [0, 20, 1_000_000])
@settings(max_examples=150, deadline=None)
@given(st.lists(ASKED, max_size=12), st.integers(1, 4))
def test_each_prompt_has_the_tokens_and_hashes_that_it_has_by_itself(
    held: int, asked: list[tuple[list[array[int]], list[int], str, bool]], block: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vllm_prefixes, "HELD_TOKENS", held)
        patch.setattr(vllm_prefixes, "HELD", 3)
        patch.setattr(vllm_prefixes, "LONG", 4)
        prefixes = Prefixes(block, Hasher(block))
        for segments, more, adapter, refused in asked:
            prompt = TokenPrompt.of(segments)
            ids = prefixes.ids(prompt, more, adapter)
            assert ids == [*prompt.ids(), *more]
            if refused:  # vLLM has not come to hash it
                continue
            request = Request(ids, adapter)
            for _ in range(2):  # the second time it goes on
                request.block_hashes.extend(prefixes.hashes(request))
                assert request.block_hashes == Hasher(block)(Request(ids, adapter))
            ids.append(9)
            request.block_hashes.extend(prefixes.hashes(request))
            assert request.block_hashes == Hasher(block)(Request(ids, adapter))
            ids.pop()


def test_of_a_streams_prompts_each_block_is_hashed_once() -> None:
    documents = [array("i", range(n, n + 4096)) for n in range(10)]
    hasher = Hasher(16)
    prefixes = Prefixes(16, hasher)
    for arrived in range(1, 11):
        for question in range(5):
            prompt = TokenPrompt.of([*documents[:arrived], array("i", [question] * 16)])
            request = Request(prefixes.ids(prompt), "")
            request.block_hashes.extend(prefixes.hashes(request))
    assert hasher.hashed == 10 * 256 + 10 * 5


def test_a_question_that_is_asked_by_itself_finds_its_own_prompt_among_others() -> None:
    hasher = Hasher(16)
    prefixes = Prefixes(16, hasher)
    found = [[array("i", [question] * 1024) for _ in range(4)] for question in range(20)]
    for interval in range(3):
        for segments in found:
            request = Request(prefixes.ids(TokenPrompt.of([*segments, array("i", [interval] * 16)])), "")
            request.block_hashes.extend(prefixes.hashes(request))
    assert hasher.hashed == 20 * 257 + 2 * 20 * 1


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it is found sooner than it is made."""
    looked = []
    monkeypatch.setattr(vllm_prefixes, "shared_segments", lambda a, b: looked.append(1) or 0)
    prefixes = Prefixes(16, Hasher(16))
    for length in (vllm_prefixes.LONG - 1, vllm_prefixes.LONG):
        looked.clear()
        for number in range(200):
            request = Request(prefixes.ids(TokenPrompt.of([array("i", [number] * length)])), "")
            request.block_hashes.extend(prefixes.hashes(request))
        assert bool(looked) == (length >= vllm_prefixes.LONG) and len(looked) <= 200 * vllm_prefixes.HELD
