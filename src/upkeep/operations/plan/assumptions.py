"""What a plan takes for granted: `config/gpus.yaml`, and what a user sets in its place."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import msgspec

from upkeep.catalog import Catalog
from upkeep.contract import ModelSpec
from upkeep.errors import UpkeepError
from upkeep.execution.roofline import Assumptions, read_assumptions
from upkeep.operations.plan.counts.tally import Tally
from upkeep.operations.plan.disk import CHARACTERS, LINE_BYTES


@dataclass(frozen=True, slots=True)
class Options:
    """What a user may set in place of `config/gpus.yaml`."""

    gpu: str | None = None
    output_tokens: int | None = None
    thinking_tokens: int | None = None


def assume(catalog: Catalog, options: Options) -> Assumptions:
    """The assumptions of `config/gpus.yaml`, with a user's in their place.

    Raises:
        UpkeepError: the file is wrong, or the GPU is not in it.
    """
    assumptions = read_assumptions(catalog)
    if options.gpu is not None and options.gpu not in assumptions.gpus:
        raise UpkeepError(
            f"unknown GPU {options.gpu!r}",
            expected=f"one of {', '.join(assumptions.gpus)}",
            remedy="add its peak figures to config/gpus.yaml",
        )
    if options.output_tokens is not None:
        assumptions = msgspec.structs.replace(assumptions, reply_tokens=options.output_tokens)
    if options.thinking_tokens is not None:
        assumptions = msgspec.structs.replace(assumptions, thinking_tokens=options.thinking_tokens)
    return assumptions


def in_words(
    a: Assumptions,
    specs: Collection[ModelSpec],
    tallies: Collection[Tally],
    gpus: Collection[str],
    cells_per_job: int,
    dense: bool,
    own: bool = False,
    trains: bool = False,
) -> list[str]:
    """The assumptions that a plan rests on, a sentence each.

    Args:
        specs: of the models that are asked.
        tallies: of what is asked of them.
        gpus: those that it is made for.
        dense: whether a method retrieves by vectors.
        own: whether a method has an engine of its own.
        trains: whether a model on GPUs is trained.
    """
    said = [
        f"Replies: {a.reply_tokens} tokens (--output-tokens); half of the bound where a method sets one itself; all"
        " that they may be for models with random weights.",
    ]
    if any(spec.thinking == "on" for spec in specs):
        said.append(f"Models that think: {a.thinking_tokens:,} tokens more (--thinking-tokens).")
    if any(t.counted < t.records for t in tallies):
        said.append(
            "Large datasets are counted on some streams, of each some intervals, of each its first probe and a few"
            " others; between them by the tokens that have arrived."
        )
    if any(not t.own_tokens for t in tallies):
        said.append(
            "Tokens of models whose weights are not here yet: as many a byte as the dataset's own tokenizer makes"
            " of its documents."
        )
    if dense:
        said += [
            "Dense retrieval ranks by hashed words: which documents it finds differs, how many does not.",
            "Time of embedders is not counted, nor that for which a job holds a GPU for its embedder alone.",
        ]
    if own:
        said.append(
            "Engines of a method's own: loaded for each cell, one answer after the other; what stands before a question"
            " is kept for the next one, and on GPUs takes as many passes as the method's card says."
        )
    if any(spec.engine != "transformers" for spec in specs):
        said.append("Reuse: vLLM keeps every prefix of a pass; an endpoint keeps prefixes from 1,024 tokens on.")
    if any(spec.gpus for spec in specs):
        said += [
            f"{name}: {(g := a.gpus[name]).tflops:g} TFLOP/s (bfloat16, dense), {g.bandwidth_gb_s:,g} GB/s,"
            f" {g.memory_gb:g} GB ({g.source}); --gpu chooses another."
            for name in gpus
        ]
        said += [
            f"GPU time: {a.prefill_share:.0%} of peak arithmetic for prompts, {a.decode_share:.0%} of peak"
            " bandwidth for replies, each of which reads its own whole context.",
            f"An engine starts in {a.start_s:g} s and reads its weights at {a.load_gb_s:g} GB/s, once for"
            f" {cells_per_job} cells of a model (cells_per_job); a cell bears its share.",
            "Weights take their parameters times the bytes of the card's dtype; quantised ones take less.",
        ]
    if any(not spec.gpus and spec.engine != "endpoint" for spec in specs):
        said.append("CPU time: from the tokens a second of this model's cells that were run here before.")
    if any(spec.engine == "endpoint" for spec in specs):
        said.append(
            "Money at most: nothing reused, replies as long as they may be, as many tokens as the card's"
            " tokens_per_byte says."
        )
    if trains:
        said.append(
            f"Trainings: {a.prefill_share:.0%} of peak arithmetic; layers keep their inputs and are computed again;"
            " weights, optimizer and gradients are divided among the GPUs; pairs of datasets that are not at hand"
            f" take {a.pair_tokens} tokens, and a document that a teacher reads with one {a.document_tokens:,}."
        )
    said.append(f"A prediction takes {LINE_BYTES:,} bytes, and {CHARACTERS} for each token of its reply.")
    return said
