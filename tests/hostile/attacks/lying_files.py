"""Attacks on the files that the host reads: others in their place, changes while it reads."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from upkeep.cell import Probe

from .tools import AT_THE_END, ATTACKS, GIB, Attack, attack, hang, output, prediction, predictions


def replace(path: Path, how: str) -> None:
    place, path = path, path.with_name("other")
    match how:
        case "nothing":
            place.unlink()
            return
        case "link":
            path.symlink_to("/etc/passwd")
        case "pipe":
            os.mkfifo(path)
        case "socket":
            os.chdir(path.parent)  # its address is a short one
            socket.socket(socket.AF_UNIX).bind(path.name)
        case "folder":
            path.mkdir()
        case "device":
            os.mknod(path, 0o20600, os.makedev(1, 5))  # /dev/zero
        case "hard link":
            os.link(sys.argv[1], path)
        case "loop":
            path.symlink_to(place.name)
    if how == "folder":
        place.unlink()
    path.rename(place)


def _replaces(name: str, how: str) -> Attack:
    def replacing(_p: dict[str, Any], probe: Probe) -> None:
        replace(output() / f"{name}", how)
        if name == "predictions.jsonl":
            hang()

    return replacing


for _how in ("link", "pipe", "socket", "folder", "device", "hard link", "loop", "nothing"):
    for _name in ("predictions.jsonl", "engine.json"):
        ATTACKS[f"{_name.partition('.')[0]}_as_{_how.replace(' ', '_')}"] = _replaces(_name, _how)


@attack
def engine_as_lease(_p: dict[str, Any], _: Probe) -> None:
    """Whoever opens a leased file waits until the lease is given up."""
    path = output() / "engine.json"
    descriptor = os.open(path, os.O_RDONLY)
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGCONT)


@attack
def engine_without_end(_p: dict[str, Any], _: Probe) -> None:
    (output() / "engine.json").write_bytes(b'{"engine": "' + b"x" * (64 << 20))


@attack
def engine_beyond_numbers(_p: dict[str, Any], _: Probe) -> None:
    hardware = '{"a": 1' + "0" * 4000 + ', "b": ' + "[" * 900 + "]" * 900 + "}"
    fields = f'{{"engine": "none", "engine_version": "", "packages": {{}}, "hardware": {hardware}}}'
    (output() / "engine.json").write_text(fields)


@attack
def shrinking(_p: dict[str, Any], _: Probe) -> None:
    with predictions().open("ab") as file:
        file.write(json.dumps(prediction(_.id)).encode() + b"\n")
    time.sleep(0.5)
    os.truncate(predictions(), 5)
    hang()


@attack
def rewriting(p: dict[str, Any], _: Probe) -> None:
    """Another process changes, all the time, what the host has taken already."""

    AT_THE_END.append(lambda: time.sleep(2))
    if os.fork() == 0:
        time.sleep(1)
        while True:
            with contextlib.suppress(OSError), predictions().open("r+b") as file:
                file.seek(2)
                file.write(b"PROBE_ID")
            time.sleep(0.01)


@attack
def line_without_end(_p: dict[str, Any], _: Probe) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with contextlib.suppress(OSError), predictions().open("ab") as file:
        while True:
            file.write(b'{"probe_id": "' + b"x" * (4 << 20))
    hang()


@attack
def hole_of_two_gigabytes(_p: dict[str, Any], _: Probe) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    os.truncate(predictions(), 2 * GIB)
    hang()


@attack
def endless_predictions(_p: dict[str, Any], probe: Probe) -> None:
    line = json.dumps(prediction(probe.id)).encode() + b"\n"
    with predictions().open("ab") as file:
        while True:
            file.write(line * 1000)


@attack
def exit_with_nothing(_p: dict[str, Any], _: Probe) -> None:
    os._exit(0)


@attack
def forged_publication(_p: dict[str, Any], _: Probe) -> None:
    """Everything that a published cell has, and the success is reported."""
    manifest = {"version": 1, "cell": "x", "identity": "0" * 64, "outcomes": {"answered": 60}, "files": {}}
    (output() / "manifest.json").write_text(json.dumps(manifest))
    (output() / "measured.parquet").write_bytes(b"PAR1")
    (output() / "done").touch()
    os._exit(0)
