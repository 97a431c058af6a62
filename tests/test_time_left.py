"""What a run says of the time that is left is what is left, whatever kinds of jobs it has done so far."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake_interface_logger_plugins.common import LogEvent

import snakemake_logger_plugin_upkeep as plugin

KINDS = {
    "dataset": (12, 2.0),
    "image": (6, 5.0),
    "weights": (1, 1.0),
    "batch": (14, 90.0),
    "score": (1, 20.0),
    "report": (1, 10.0),
}
"""Kind -> how many, and seconds of each."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(plugin, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def told(clock: list[float], cores: int) -> Iterator[tuple[float, str]]:
    """When each job ends, and what is said then."""
    settings = SimpleNamespace(stdout=False, dryrun=False, quiet=None, nocolor=True)
    handler = plugin.LogHandler.__new__(plugin.LogHandler)
    handler.common_settings = settings
    handler.__post_init__()

    def emit(event: LogEvent, **fields: Any) -> None:
        handler.emit(SimpleNamespace(event=event, levelno=20, **fields))  # type: ignore[arg-type]

    stats = {f"{kind} x" if kind == "batch" else kind: count for kind, (count, _) in KINDS.items()}
    emit(LogEvent.RUN_INFO, stats={**stats, "all": 1, "total": sum(stats.values()) + 1})
    jobs = [(kind, seconds) for kind, (count, seconds) in KINDS.items() for _ in range(count)]
    busy: list[tuple[float, int]] = []
    for number, (kind, seconds) in enumerate([*jobs, ("all", 0.0)]):
        if len(busy) == cores or kind in ("score", "report", "all"):
            while busy and (len(busy) >= cores or kind in ("score", "report", "all")):
                clock[0], ended = heapq.heappop(busy)
                emit(LogEvent.JOB_FINISHED, job_id=ended)
                yield clock[0], handler._left()
        emit(LogEvent.JOB_INFO, jobid=number, rule_name=f"{kind} x" if kind == "batch" else kind)
        emit(LogEvent.JOB_STARTED, jobs=[number])
        heapq.heappush(busy, (clock[0] + seconds, number))


def seconds(text: str) -> float:
    _, number, unit, _ = text.removeprefix("  ").replace("more than", "more").split()
    return float(number) * (60 if unit == "min" else 1)


@pytest.mark.parametrize("cores", [1, 2, 4])
def test_the_time_left_is_never_off_by_a_factor_of_two_once_a_batch_has_ended(clock: list[float], cores: int) -> None:
    begin = clock[0]
    said = list(told(clock, cores))
    end, known = clock[0], 0
    for moment, text in said:
        if not text:
            continue
        left = end - moment
        if "about" in text and left > 60:
            known += 1
            assert left / 2 < seconds(text) < 2 * left, (moment - begin, text, left)
        elif "more than" in text:
            assert seconds(text) <= 1.2 * left + 5, (moment - begin, text, left)
    assert known > 3


def test_before_any_batch_has_ended_it_is_called_a_lower_bound(clock: list[float]) -> None:
    said = [text for _, text in told(clock, 2)]
    assert said[0].startswith("  more than") and any(text.startswith("  about") for text in said[-8:])
