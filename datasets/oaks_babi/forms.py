"""The forms in which an answer is accepted (OAKS, B.2.1)."""

from __future__ import annotations

from .timelines import Special, Value

_BELOW_TWENTY = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen"""
_ROUND = "- - twenty thirty forty fifty sixty seventy eighty ninety"
_TIMES = {1: ["once", "one time", "1 time"], 2: ["twice"], 3: ["thrice"]}


def number_forms(number: int) -> list[str]:
    """The forms in which a count is accepted, digits first (B.2.1, cases i and ii).

    Raises:
        ValueError: the number is negative or above 99.
    """
    if not 0 <= number < 100:
        raise ValueError(f"no forms for {number}")
    if number == 0:
        return ["Unknown", "0", "zero", "never", "none", "0 times", "zero times"]
    tens, unit = divmod(number, 10)
    below_twenty = _BELOW_TWENTY.split()
    word = below_twenty[number] if number < 20 else _ROUND.split()[tens] + (f"-{below_twenty[unit]}" if unit else "")
    several = [] if number == 1 else [f"{word} times", f"{number} times"]
    return [str(number), word, *_TIMES.get(number, []), *several]


def forms(value: Value) -> list[str]:
    """Every accepted form of an answer."""
    if isinstance(value, Special):
        return list(value.forms)
    return number_forms(value) if isinstance(value, int) else [value]
