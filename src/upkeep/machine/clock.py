"""Times of the suite's records."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> str:
    """The time, ISO 8601 in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def age(earlier: str, later: str) -> float:
    """Seconds between two times; 0 where one is no time."""
    try:
        return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()
    except (ValueError, TypeError):
        return 0.0
