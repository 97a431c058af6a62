"""Whether a number of our own agrees with the published one, or why the two are not to be compared."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Literal

State = Literal[
    "within the interval",
    "differs",
    "set alike",
    "set otherwise",
    "not run",
    "no number",
    "not comparable",
    "unpublished",
]
"""What an entry of a table is. `within the interval`: the published number lies in our 95% interval; `set alike`: it is
what cards of ours say, which no run gives; `no number`: its cell failed, or does not count; `unpublished`: the paper
has no number there, and of our own none is to be run."""

NOT_RUN = "not run"
NO_DATASET = "dataset not available"
UNRUN = (NOT_RUN, NO_DATASET)
"""Reasons why a cell has no scores that are no failure."""

EPSILON = 1e-9


def incomparable(row: Mapping[str, Any]) -> str:
    """Why a score is not to be held against any published number, whatever the two are; empty where it may be.

    Args:
        row: of `score.SCORE_SCHEMA`.
    """
    reasons = []
    if row["stand_in"]:
        reasons.append(f"on {row['dataset_id']}, which stands for {row['dataset']}")
    elif row["provenance"] == "rebuild":
        reasons.append(f"on {row['dataset_id']}, which was built anew: the questions are not the paper's")
    elif row["provenance"] != "release":
        reasons.append(f"on {row['dataset_id']}, which is no paper's")
    if row["trained"] is False:
        reasons.append("the model has random weights")
    return "; ".join(reasons)


def compare(row: Mapping[str, Any], published: str) -> tuple[State, str]:
    """What comes of a score and the number beside it: the state, and the reason where they are not comparable.

    What is counted in a dataset has no interval: it has to be the published number. That is rounded, so half a unit of
    its last digit is allowed on either side.

    Args:
        row: of `score.SCORE_SCHEMA`.
        published: the number as printed; empty where there is none.
    """
    if not published:
        return "unpublished", ""
    if reason := incomparable(row):
        return "not comparable", reason
    low, high = row["low"], row["high"]
    if low is None or high is None:
        if row["cell"]:
            return "not comparable", "our own has no interval"
        low = high = row["value"]
    printed = Decimal(published)
    exponent = printed.as_tuple().exponent
    half = float(Decimal(1).scaleb(int(exponent))) / 2 + EPSILON
    return ("within the interval" if low - half <= float(printed) <= high + half else "differs"), ""


def digits_of(published: str) -> int:
    """With how many digits a number is printed."""
    return len(Decimal(published).as_tuple().digits)


def compare_setting(own: float, published: str) -> State:
    """What comes of what a card sets and the number beside it. That may be rounded, as 262,144 tokens to 262 thousand:
    ours is held against it in as many digits."""
    return "set alike" if float(f"{own:.{digits_of(published)}g}") == float(published) else "set otherwise"
