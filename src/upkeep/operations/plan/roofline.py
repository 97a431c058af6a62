"""Time on GPUs, as a roofline. Prompt tokens are bound by arithmetic,

    (2 * active parameters * computed tokens + 4 * layers * heads * head size * attended pairs) / arithmetic

and generated tokens by memory, each step reading the weights once and every answer's own context,

    (steps * weights read + 2 * layers * kv heads * head size * 2 bytes * context tokens read) / bandwidth

each at a share of the peak that `config/gpus.yaml` assumes. The attention terms are those of the layers that attend to
the whole context.
"""

from __future__ import annotations

from upkeep.contract import ModelSpec
from upkeep.operations.needs import weight_bytes
from upkeep.operations.plan.assumptions import Assumptions
from upkeep.operations.plan.counts.tally import Tally
from upkeep.serving.lanes import LANE_TOKENS, LANES

KV_BYTES = 2
"""Of a value in the key-value cache on GPUs."""


def start_s(spec: ModelSpec, jobs: int, jobs_per_start: int, a: Assumptions) -> float:
    """Seconds that each of so many jobs of a model has to bear of its engine's starts."""
    weights = weight_bytes(spec)
    if not spec.gpus or weights is None:
        return 0.0
    seconds = a.start_s + weights / (1e9 * a.load_gb_s)
    return -(-jobs // jobs_per_start) * seconds / jobs


def gpu_hours(
    spec: ModelSpec, card: str, found: Tally, gpu: str, in_flight: int, start_s: float, a: Assumptions
) -> tuple[float | None, str]:
    """GPU-hours of a job, or None and why they are not known.

    Args:
        card: the model's, for messages.
        found: what the job asks.
        gpu: which one of the assumed.
        in_flight: requests that its engine works on at a time, at most.
        start_s: of its engine, beside the work.
    """
    weights, shape, gpus, one = weight_bytes(spec), spec.attention, spec.gpus * spec.nodes, a.gpus[gpu]
    if spec.parameters_b is None or weights is None or shape is None:
        fields = " and ".join(f for f in ("parameters_b", "attention") if getattr(spec, f) is None)
        return None, f"{card} has no {fields}"
    # A head is kept whole on each GPU, so with more GPUs than heads some are kept several times.
    kv = 2 * shape.layers * max(shape.kv_heads, gpus) * shape.head_size * KV_BYTES
    room = gpus * one.memory_gb * 1e9 * a.memory_share - weights
    if room <= 0:
        return None, f"{weights / 1e9:.0f} GB of weights do not fit into {gpus} {gpu}"
    own = (found.computed + found.output) / max(1.0, found.requests)
    if spec.engine == "transformers":
        in_flight = LANES if found.prompt + found.output <= LANE_TOKENS * found.requests else 1
    batch = max(1.0, min(found.together, in_flight, room / (kv * max(1.0, own))))
    active = spec.active_b or spec.parameters_b
    # Which experts a step reads: each of its tokens chooses for itself.
    touched = weights * (1 - (1 - active / spec.parameters_b) ** batch)
    arithmetic, bandwidth = gpus * one.tflops * 1e12 * a.prefill_share, gpus * one.bandwidth_gb_s * 1e9
    attention = 4 * shape.layers * shape.heads * shape.head_size
    prefill = (2e9 * active * found.computed + attention * found.attended) / arithmetic
    decode = (found.output / batch * touched + kv * found.read) / (bandwidth * a.decode_share)
    return (prefill + decode + start_s) * gpus / 3600, ""
