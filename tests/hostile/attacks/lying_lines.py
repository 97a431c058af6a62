"""Attacks in the lines of predictions: whole, and not what was asked for."""

from __future__ import annotations

import json
from typing import Any

from upkeep.cell import Probe

from .tools import AT_THE_END, attack, hang, lie, lie_about, prediction


@attack
def probe_not_asked(_p: dict[str, Any], probe: Probe) -> None:
    lie_about(f"{probe.question_id}@5")


@attack
def probe_of_another_cell(_p: dict[str, Any], _: Probe) -> None:
    lie_about("q1_1@3")


@attack
def trial_not_asked(_p: dict[str, Any], probe: Probe) -> None:
    lie_about(probe.id, trial=7)


@attack
def document_of_the_future(_p: dict[str, Any], probe: Probe) -> None:
    lie_about(probe.id, retrieved=[{"id": f"{probe.stream}_c5", "score": 1.0, "rank": 1}])


@attack
def not_a_number(_p: dict[str, Any], probe: Probe) -> None:
    lie_about(probe.id, retrieved=[{"id": f"{probe.stream}_c0", "score": float("nan"), "rank": 1}])


@attack
def infinity(_p: dict[str, Any], probe: Probe) -> None:
    lie_about(probe.id, measured={"latency_s": float("-inf"), "cached": 0})


@attack
def error_of_10_mb(_p: dict[str, Any], probe: Probe) -> None:
    lie_about(probe.id, error="x" * 10_000_000)


@attack
def error_of_1_mb(_p: dict[str, Any], probe: Probe) -> None:
    lie_about(probe.id, error="\x1b[31m" * 200_000)


@attack
def escape_sequences(_p: dict[str, Any], _: Probe) -> None:
    lie_about("\x1b]0;owned\x07\x1b[2J\r\u202e")


@attack
def invalid_utf8(_p: dict[str, Any], probe: Probe) -> None:
    lie(json.dumps(prediction(probe.id, response="@@")).encode().replace(b"@@", b"\xff\xfe") + b"\n")


@attack
def duplicate_keys(_p: dict[str, Any], probe: Probe) -> None:
    lie(json.dumps(prediction(probe.id)).encode()[:-1] + b', "response": "two faces"}\n')


@attack
def nesting(_p: dict[str, Any], probe: Probe) -> None:
    lie(b'{"probe_id":' + b'{"a":[' * 500_000 + b"\n")


@attack
def same_probe_twice(_p: dict[str, Any], probe: Probe) -> None:
    lie(2 * (json.dumps(prediction(probe.id)).encode() + b"\n"))


@attack
def hangs_after_the_last_record(_p: dict[str, Any], _: Probe) -> None:
    """Honest but for its end."""
    AT_THE_END.append(hang)
