"""What a job asked of an endpoint, request by request: a file of JSON lines that is only appended to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from upkeep.cell.endpoint import Seed
from upkeep.contract import Count
from upkeep.gateway.endpoints.replies import Reply
from upkeep.machine.clock import now

Outcome = Literal["answered", "refused", "failed"]
Source = Literal["endpoint", "cache"]


@dataclass
class Try:
    """One attempt."""

    status: int | None = None
    """HTTP's; None where there was no answer."""
    problem: str | None = None
    request_id: str | None = None
    """The provider's."""
    usd: float = 0.0
    """What it cost; the most that it can have cost, where there is no readable answer."""
    seconds: float = 0.0


class Request(Struct, frozen=True, kw_only=True):
    """A line of the record: one request."""

    at: str
    """When it ended, ISO 8601."""
    key: str
    """Of the reply (`replies.key_of`)."""
    source: Source
    """`cache` where the answer was there already."""
    outcome: Outcome
    model: str
    """As the answer names it."""
    request_id: str | None
    version: str | None = None
    """`replies.Reply.version`."""
    attempts: list[Try]
    prompt: Count
    completion: Count
    cached: Count
    usd: float
    """Of all attempts."""
    latency_s: float
    seed: Seed


class Record:
    """A job's record, open for writing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        data = path.read_bytes() if path.exists() else b""
        self._file = path.open("ab")
        self._file.truncate(data.rfind(b"\n") + 1)  # a torn last line, of a process that was killed
        self.answered = any(request.outcome == "answered" for request in read(path))
        """Whether the endpoint has answered any request of this job yet."""

    def note(
        self,
        reply: Reply,
        seed: int,
        *,
        source: Source,
        outcome: Outcome | None = None,
        tries: Sequence[Try] = (),
        seconds: float = 0.0,
    ) -> None:
        """Add a request."""
        line = Request(
            at=now(),
            key=reply.key,
            source=source,
            outcome=outcome or ("answered" if reply.refused is None else "refused"),
            model=reply.model,
            request_id=reply.request_id,
            version=reply.version,
            attempts=list(tries),
            prompt=reply.prompt,
            completion=reply.completion,
            cached=reply.cached,
            usd=sum(one.usd for one in tries),
            latency_s=seconds,
            seed=seed,
        )
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read(path: Path) -> list[Request]:
    """A record's whole lines; none where there is no record."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    decoder = msgspec.json.Decoder(Request)
    return [decoder.decode(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]


def measured(path: Path, since: str) -> dict[str, float]:
    """Sums over a job's requests since a time (ISO 8601), for its manifest.

    Returns:
        `cost_usd`, `requests` (sent, repeated ones included), `retries`, `cached_replies`, and `versions`: how many
        the replies name, where the provider names any.
    """
    requests = [request for request in read(path) if request.at >= since]
    versions = {request.version for request in requests if request.version is not None}
    named = {"versions": float(len(versions))} if versions else {}
    return named | {
        "cost_usd": sum((request.usd for request in requests), 0.0),
        "requests": float(sum(len(request.attempts) for request in requests)),
        "retries": float(sum(max(0, len(request.attempts) - 1) for request in requests)),
        "cached_replies": float(sum(request.source == "cache" for request in requests)),
    }
