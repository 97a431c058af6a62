"""What tests of the building of datasets share."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from hypothesis import strategies as st

from upkeep.building import (
    tokens,
)
from upkeep.building.reading import Faults
from upkeep.contract import FaultKind

ROOT = Path(__file__).resolve().parents[1]
KINDS: tuple[FaultKind, ...] = get_args(FaultKind)
EVERY = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


def skipping(*kinds: FaultKind) -> Faults:
    """Faults of these kinds (all, where none is named) are skipped."""
    return Faults(dict.fromkeys(kinds or KINDS, "skip"), Path("dataset.yaml"))


MEASURE = tokens.load()
