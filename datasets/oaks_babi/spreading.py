"""Facts put between the sentences of prose, and all of it cut into chunks (OAKS, B.1.2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from upkeep.building import tokens
from upkeep.errors import UpkeepError

_MOST_SKIPPED = 20_000
"""Prose is without end; so many long sentences on end mean that there are no short ones."""


def spread(
    facts: Sequence[str], sentences: Iterable[str], chunks: int, limit: int, measure: tokens.Tokens, rng: Random
) -> tuple[list[str], list[int]]:
    """Put facts between the sentences of prose, at places drawn evenly, and cut all of it into chunks.

    Every sentence is whole in one chunk; a sentence of the prose longer than half a chunk is left out.

    Args:
        sentences: prose without end.
        chunks: so many are made.
        limit: tokens of a chunk, at most.

    Returns:
        The chunks' texts; the chunk of each fact.

    Raises:
        UpkeepError: the facts do not fit into the chunks, or the tokenizer does not add up.
    """
    places = sorted(rng.uniform(0, (chunks - 0.5) * limit) for _ in facts)
    sizes = measure.count([f" {fact}" for fact in facts])
    waiting = iter(zip(places, facts, sizes, strict=True))
    fact = next(waiting, None)
    packer = tokens.Packer(limit)
    chunk_of: list[int] = []
    skipped = 0
    for piece, size in measure.stream(sentences):
        while fact is not None and fact[0] <= packer.offset:
            chunk_of.append(packer.add(f" {fact[1]}", fact[2]))
            fact = next(waiting, None)
        if len(packer.chunks) >= chunks and not packer.fits(size):
            break
        if size <= limit // 2:
            packer.add(piece, size)
            skipped = 0
        elif (skipped := skipped + 1) > _MOST_SKIPPED:
            raise UpkeepError(
                "the prose's sentences are too long for the chunks",
                expected=f"sentences of at most {limit // 2} tokens, half a chunk",
                found=f"none among {skipped}",
                remedy="more `chunk_tokens`, or other prose",
            )
    if fact is not None or len(packer.chunks) != chunks:
        raise UpkeepError(
            "the facts do not fit into the chunks",
            expected=f"{len(facts)} facts in {chunks} chunks of {limit} tokens",
            found=f"{len(chunk_of)} facts fit",
            remedy="fewer `facts`, or more `chunks` or `chunk_tokens`",
        )
    return packer.texts(measure), chunk_of
