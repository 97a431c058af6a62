"""From what a sample asked to what the whole dataset asks.

Between intervals counts are interpolated by the tokens that have arrived. What is asked as documents arrive is counted
over all documents of the chosen streams, and laid out by the number of documents.
"""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Iterable, Sequence

from upkeep.operations.plan.counts.sample import Sample
from upkeep.operations.plan.counts.tally import FIELDS
from upkeep.serving.counting.records import Line

_Vector = tuple[float, ...]


def _vector(line: Line) -> _Vector:
    """A line as the numbers that are summed; where it has several calls, they are taken to be alike."""
    n = line.usage.calls
    if not n:
        return (0.0,) * len(FIELDS)
    prompt, cached, output = line.usage.prompt, line.cached, line.usage.completion
    attended = (prompt**2 - cached**2) / (2 * n)
    return n, prompt, prompt - cached, output, attended, (output * prompt + output**2 / 2) / n


def extrapolate(sample: Sample, lines: Iterable[Line], trials: int) -> dict[str, float]:
    """Totals over all intervals, by field of `Tally`."""
    by_key: dict[str, list[_Vector]] = {}
    for line in lines:
        by_key.setdefault(line.key, []).append(_vector(line))
    total = array("d", [0.0] * len(FIELDS))
    firsts: list[tuple[int, _Vector]] = []
    others: list[tuple[int, _Vector]] = []
    for place, keys in sample.counted.items():
        interval = sample.intervals[place]
        first, *rest = (vector for key in keys for vector in by_key[key])
        if len(keys) == len(interval.keys):
            _add(total, first, 1)
            for vector in rest:
                _add(total, vector, 1)
        else:
            _add(total, first, 1)
            _add(total, _mean(rest), len(interval.keys) * trials - 1)
        firsts.append((interval.arrived, first))
        if rest:
            others.append((interval.arrived, _mean(rest)))
    if len(sample.counted) < len(sample.intervals):
        first_at, other_at = _Curve(firsts), _Curve(others or firsts)
        for place, interval in enumerate(sample.intervals):
            if place not in sample.counted:
                _add(total, first_at(interval.arrived), 1)
                _add(total, other_at(interval.arrived), len(interval.keys) * trials - 1)
    return dict(zip(FIELDS, total, strict=True))


def extrapolate_arrival(lines: Iterable[Line], share: float) -> dict[str, float]:
    """Totals by field of `Work`, where lines stand for this share of the documents."""
    total = array("d", [0.0] * len(FIELDS))
    for line in lines:
        _add(total, _vector(line), 1)
    return {name: value / share for name, value in zip(FIELDS, total, strict=True)}


def _add(total: array[float], vector: _Vector, times: int) -> None:
    for i, value in enumerate(vector):
        total[i] += times * value


def _mean(vectors: Sequence[_Vector]) -> _Vector:
    return tuple(sum(values) / len(vectors) for values in zip(*vectors, strict=True))


class _Curve:
    """Linear between points, constant beyond them; points at one place are averaged."""

    def __init__(self, points: Iterable[tuple[int, _Vector]]) -> None:
        at: dict[int, list[_Vector]] = {}
        for x, vector in points:
            at.setdefault(x, []).append(vector)
        self._xs = sorted(at)
        self._ys = [_mean(at[x]) for x in self._xs]

    def __call__(self, x: int) -> _Vector:
        right = bisect.bisect_left(self._xs, x)
        if right == len(self._xs):
            return self._ys[-1]
        if right == 0 or self._xs[right] == x:
            return self._ys[right]
        low, high = self._xs[right - 1], self._xs[right]
        share = (x - low) / (high - low)
        return tuple(a + share * (b - a) for a, b in zip(self._ys[right - 1], self._ys[right], strict=True))
