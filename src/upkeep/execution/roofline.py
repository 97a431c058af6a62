"""How long an engine works, as a roofline. On GPUs prompt tokens are bound by arithmetic,

    (2 * active parameters * computed tokens + 4 * layers * heads * head size * attended pairs) / arithmetic

and generated tokens by memory, each step reading the weights once and every answer's own context,

    (steps * weights read + 2 * layers * kv heads * head size * 2 bytes * context tokens read) / bandwidth

each at a share of the peak that `config/gpus.yaml` assumes. The attention terms are those of the layers that attend to
the whole context. On CPUs all of it is taken for arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from upkeep.catalog import Catalog
from upkeep.contract import Count, ModelSpec, Positive, Record, Seconds
from upkeep.serving.lanes import LANE_TOKENS, LANES, ROWS, fewest
from upkeep.yaml_files import read_yaml

Share = Annotated[float, Meta(gt=0, le=1)]
Above0 = Annotated[float, Meta(gt=0)]


class Gpu(Record, frozen=True, kw_only=True):
    """One kind of GPU."""

    tflops: Above0
    """Dense bfloat16 peak, in 10^12 operations a second."""
    bandwidth_gb_s: Above0
    """Of its memory, in 10^9 bytes a second."""
    memory_gb: Above0
    """In 10^9 bytes."""
    source: str


class Assumptions(Record, frozen=True, kw_only=True):
    """`config/gpus.yaml`."""

    default: str
    gpus: dict[str, Gpu]
    prefill_share: Share
    decode_share: Share
    memory_share: Share
    """Of a GPU's memory that weights and key-value cache fill."""
    start_s: Seconds
    """Of an engine, beside reading the weights."""
    load_gb_s: Above0
    """At which weights are read."""
    reply_tokens: Positive
    thinking_tokens: Count
    pair_tokens: Positive
    """Of a question-answer pair with its prompt, where the dataset is not at hand."""
    document_tokens: Positive
    """Of a document that a teacher reads with a pair, where the dataset is not at hand."""
    cpu_gflops: Above0
    """Arithmetic of an engine on a core, in 10^9 operations a second."""
    pass_s: Seconds
    """What it takes to start a cell's container once more and to feed it all documents, in which its engine waits."""


def read_assumptions(catalog: Catalog) -> Assumptions:
    """What `config/gpus.yaml` says.

    Raises:
        UpkeepError: it is wrong.
    """
    return read_yaml(catalog.root / "config" / "gpus.yaml", Assumptions)


class Work(Record, frozen=True, kw_only=True):
    """What is asked of a model."""

    requests: float = 0.0
    prompt: float = 0.0
    """Prompt tokens sent."""
    computed: float = 0.0
    """Of these not in the engine's prefix cache."""
    output: float = 0.0
    """Tokens generated."""
    attended: float = 0.0
    """Pairs of a computed prompt token and a token that it attends to."""
    read: float = 0.0
    """Context tokens whose keys and values are read, summed over the generated tokens."""


def summed(works: Iterable[Work]) -> Work:
    """All of some work."""
    every = [*works]
    return Work(**{name: sum(getattr(work, name) for work in every) for name in Work.__struct_fields__})


BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
KV_BYTES = 2
"""Of a value in the key-value cache on GPUs."""
CPU_CACHE_BYTES = 2**30
"""What vLLM keeps keys and values in on a CPU (`kv_cache_gib` of `upkeep.serving.vllm_engine`)."""


def weight_bytes(spec: ModelSpec) -> float | None:
    """Bytes of a model's weights in the card's dtype; None where the card does not say how many there are."""
    return spec.parameters_b * 1e9 * BYTES[spec.dtype] if spec.parameters_b is not None else None


def start_s(spec: ModelSpec, jobs: int, jobs_per_start: int, a: Assumptions) -> float:
    """Seconds that each of so many jobs of a model has to bear of its engine's starts."""
    weights = weight_bytes(spec)
    if not spec.gpus or weights is None:
        return 0.0
    seconds = a.start_s + weights / (1e9 * a.load_gb_s)
    return -(-jobs // jobs_per_start) * seconds / jobs


@dataclass(frozen=True, slots=True)
class Figures:
    """What the numbers of a model's card come to on the machine that is assumed."""

    weights: float
    """Bytes."""
    room: float
    """Bytes that are left for keys and values."""
    kv: float
    """Bytes that the keys and values of a token take."""
    arithmetic: float
    """Operations a second."""
    bandwidth: float | None
    """Bytes a second; None on CPUs, where arithmetic decides."""
    token: float
    """Operations of a token, but for what it attends to."""
    pair: float
    """Operations of a token and one that it attends to."""


def figures(spec: ModelSpec, card: str, gpu: str, a: Assumptions, threads: int = 1) -> tuple[Figures | None, str]:
    """A model's figures, or None and why they are not known.

    Args:
        card: the model's, for messages.
        gpu: which one of the assumed.
        threads: of an engine on a CPU.
    """
    weights, shape, gpus = weight_bytes(spec), spec.attention, spec.gpus * spec.nodes
    if spec.parameters_b is None or weights is None or shape is None:
        fields = " and ".join(f for f in ("parameters_b", "attention") if getattr(spec, f) is None)
        return None, f"{card} has no {fields}"
    token = 2e9 * (spec.active_b or spec.parameters_b)
    pair = 4.0 * shape.layers * shape.heads * shape.head_size
    if not gpus:
        kv = 2.0 * shape.layers * shape.kv_heads * shape.head_size * BYTES[spec.dtype]
        return Figures(weights, CPU_CACHE_BYTES, kv, threads * a.cpu_gflops * 1e9, None, token, pair), ""
    one = a.gpus[gpu]
    # A head is kept whole on each GPU, so with more GPUs than heads some are kept several times.
    kv = 2.0 * shape.layers * max(shape.kv_heads, gpus) * shape.head_size * KV_BYTES
    room = gpus * one.memory_gb * 1e9 * a.memory_share - weights
    if room <= 0:
        return None, f"{weights / 1e9:.0f} GB of weights do not fit into {gpus} {gpu}"
    arithmetic, bandwidth = gpus * one.tflops * 1e12 * a.prefill_share, gpus * one.bandwidth_gb_s * 1e9
    return Figures(weights, room, kv, arithmetic, bandwidth * a.decode_share, token, pair), ""


def at_once(asked: float) -> float:
    """Of records that are asked together and reasoned on, those that are worked on at a time, on average until the last
    is answered: n / H(n), with H the harmonic numbers. That is so where lengths are exponential: the longest of n is
    H(n) times the mean then."""
    return asked / sum(1 / number for number in range(1, math.ceil(asked) + 1)) if asked > 1 else asked


def work_s(spec: ModelSpec, known: Figures, found: Work, together: float, in_flight: int) -> float:
    """Seconds that an engine works.

    Args:
        found: what it is asked.
        together: records of a round, on average.
        in_flight: requests that it works on at a time, at most.
    """
    own = (found.computed + found.output) / max(1.0, found.requests)
    lanes = LANES if found.prompt + found.output <= LANE_TOKENS * found.requests else 1
    if spec.engine == "transformers":
        in_flight = lanes
    batch = max(1.0, min(together, in_flight, known.room / (known.kv * max(1.0, own))))
    prefill = known.token * found.computed + known.pair * found.attended
    if known.bandwidth is None:
        # A step decodes empty rows, too. What drafts cost and what they save are taken for alike.
        rows = fewest(ROWS, batch) / batch if spec.engine == "transformers" and lanes > 1 else 1.0
        return (prefill + rows * known.token * found.output + known.pair * found.read) / known.arithmetic
    read = found.output / batch * weights_read(spec, known, batch) + known.kv * found.read
    return prefill / known.arithmetic + read / known.bandwidth


def weights_read(spec: ModelSpec, known: Figures, batch: float) -> float:
    """Bytes of the weights that a step of decoding reads: of experts, each of its answers chooses for itself."""
    active = spec.active_b or spec.parameters_b
    assert active is not None and spec.parameters_b is not None
    return known.weights * (1 - math.pow(1 - active / spec.parameters_b, batch))


def gpu_hours(
    spec: ModelSpec, card: str, found: Work, together: float, gpu: str, in_flight: int, start_s: float, a: Assumptions
) -> tuple[float | None, str]:
    """GPU-hours of a job, or None and why they are not known.

    Args:
        card: the model's, for messages.
        found: what the job asks.
        together: records of a round, on average.
        gpu: which one of the assumed.
        in_flight: requests that its engine works on at a time, at most.
        start_s: of its engine, beside the work.
    """
    known, why = figures(spec, card, gpu, a)
    if known is None:
        return None, why
    seconds = work_s(spec, known, found, together, in_flight) + start_s
    return seconds * spec.gpus * spec.nodes / 3600, ""


def gpu_of(spec: ModelSpec, a: Assumptions, chosen: str | None = None) -> str:
    """The GPU that a model is assumed to run on: the one that a user chose, or its card names, or the usual one."""
    named = spec.resources.gpu_type if spec.resources else None
    return chosen or (named if named in a.gpus else None) or a.default
