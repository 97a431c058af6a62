"""When requests are sent: so many a minute, and again after a pause that grows, or that the endpoint names."""

from __future__ import annotations

import asyncio
import email.utils
import time

import tenacity

BACKOFF_S = 1.0
"""The first pause; it doubles up to LONGEST_BACKOFF_S and is drawn at random below that."""
LONGEST_BACKOFF_S = 60.0
LONGEST_PAUSE_S = 600.0
"""An endpoint that asks for a longer pause is given up; the cell can be continued later."""


class Again(Exception):
    """An attempt that failed by the endpoint's fault: the request is sent again."""

    def __init__(self, reason: str, pause_s: float | None = None) -> None:
        super().__init__(reason)
        self.pause_s = pause_s


class Pace:
    """Holds what is sent to so many a minute, evenly spaced, and to the pauses that the endpoint asks for."""

    def __init__(self, per_minute: int | None) -> None:
        self._interval = 60.0 / per_minute if per_minute else 0.0
        self._free = 0.0

    async def take(self, amount: int = 1) -> None:
        """Wait for one's turn."""
        moment = asyncio.get_running_loop().time()
        start = max(moment, self._free)
        self._free = start + amount * self._interval
        await asyncio.sleep(start - moment)

    def pause(self, seconds: float) -> None:
        """Let nobody begin for so long."""
        self._free = max(self._free, asyncio.get_running_loop().time() + seconds)


def pause_before_next(state: tenacity.RetryCallState) -> float:
    """Seconds until a request is sent again: what the endpoint asks for, and a random time that grows."""
    asked = error.pause_s if state.outcome and isinstance(error := state.outcome.exception(), Again) else None
    drawn = tenacity.wait_random_exponential(multiplier=BACKOFF_S, max=LONGEST_BACKOFF_S)(state)
    return (asked or 0.0) + drawn


def retry_after(value: str | None) -> float | None:
    """Seconds, of a header that gives seconds or a date; None where it gives neither."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if seconds == seconds else None
