"""A prediction as a line of a file, whole or changed, for tests of what is validated."""

from __future__ import annotations

import msgspec

from upkeep.contract import ContextUse, Measured, Prediction, Retrieved, Usage
from upkeep.scope import Answers

PROBES = [f"q{q}@{t}" for t in range(4) for q in range(3)]
DOCUMENTS = [f"d{i}" for i in range(8)]  # two streams of four
SCOPE = Answers(PROBES, 1, DOCUMENTS, [0] * 12, [t + 1 for t in range(4) for _ in range(3)])


def prediction(probe: str, trial: int = 0, retrieved: tuple[str, ...] = ("d0",)) -> Prediction:
    return Prediction(
        probe_id=probe,
        trial=trial,
        response="It is in the kitchen.",
        reasoning=None,
        finish_reason="stop",
        retrieved=[Retrieved(id=d, score=1.5, rank=rank) for rank, d in enumerate(retrieved, 1)],
        usage=Usage(prompt=12, completion=3, calls=1),
        context=ContextUse(documents=1),
        error=None,
        values={"min_k_20%": -3.5},
        measured=Measured(latency_s=0.25, cached=4),
    )


def lines() -> list[bytes]:
    return [msgspec.json.encode(prediction(p)) + b"\n" for p in PROBES]


BASE = lines()[4]
