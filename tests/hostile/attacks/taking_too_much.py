"""Attacks that take too much: processes, memory, disk, output, time."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
from pathlib import Path
from typing import Any

from upkeep.cell import Probe

from .tools import GIB, attack, call, end, hang, output


@attack
def fork_bomb(_p: dict[str, Any], _: Probe) -> None:
    """Every process forks for ever; the first error of the system is shown once."""
    shown = False
    while True:
        try:
            if os.fork() == 0:
                shown = True
        except OSError as error:
            if not shown:
                print(f"prevented: {error}", flush=True)
                shown = True


@attack
def memory_bomb(_p: dict[str, Any], _: Probe) -> None:
    held = [bytearray(b"x") * (16 << 20) for _i in range(4 * 64)]
    print("BREACH", len(held), flush=True)


@attack
def memory_files(_p: dict[str, Any], _: Probe) -> None:
    """Memory by way of file systems that lie in it."""
    for folder in ("/tmp", "/dev/shm"):
        for name in range(40):
            with contextlib.suppress(OSError):
                Path(folder, f"big{name}").write_bytes(b"x" * (64 << 20))
    end("prevented: no more memory to be had from /tmp and /dev/shm")


@attack
def many_threads(_p: dict[str, Any], _: Probe) -> None:
    for _i in range(5000):
        threading.Thread(target=hang, daemon=True).start()
    print("BREACH", flush=True)


@attack
def processor_hog(_p: dict[str, Any], _: Probe) -> None:
    for _i in range(6):
        if os.fork() == 0:
            while True:
                pass
    while True:
        pass


@attack
def disk_one_file(_p: dict[str, Any], _: Probe) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with (output() / "big").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 2 * GIB)
    print("BREACH", flush=True)


@attack
def disk_sparse(_p: dict[str, Any], _: Probe) -> None:
    for name in range(3):
        with (output() / f"sparse{name}").open("wb") as file:
            file.truncate(GIB - 1)
    hang()


@attack
def disk_beyond_the_end(_p: dict[str, Any], _: Probe) -> None:
    """Blocks after a file's end, which its size does not tell."""
    for name in range(3):
        with (output() / f"empty{name}").open("wb") as file:
            call("fallocate", file.fileno(), 1, ctypes.c_long(0), ctypes.c_long(GIB - 1))  # FALLOC_FL_KEEP_SIZE
    hang()


@attack
def disk_deleted(_p: dict[str, Any], _: Probe) -> None:
    """Files without a name, which no listing shows."""
    held = []
    for name in range(3):
        file = (output() / f"gone{name}").open("wb")
        (output() / f"gone{name}").unlink()
        os.posix_fallocate(file.fileno(), 0, GIB - 1)
        held.append(file)
    hang()


@attack
def many_files(_p: dict[str, Any], _: Probe) -> None:
    for name in range(30_000):
        os.close(os.open(output() / f"f{name}", os.O_CREAT))
    hang()


@attack
def deep_folders(_p: dict[str, Any], _: Probe) -> None:
    """Deeper than a path can name."""
    os.chdir(output())
    for _i in range(3000):
        os.mkdir("deep")
        os.chdir("deep")
    hang()


@attack
def unreadable_folders(_p: dict[str, Any], _: Probe) -> None:
    folder = output() / "a" / "b"
    folder.mkdir(parents=True)
    (folder / "c").write_text("x")
    for place in (folder / "c", folder, folder.parent, output()):
        place.chmod(0)
    end("left: folders that nobody may enter")


@attack
def hidden_folders(_p: dict[str, Any], _: Probe) -> None:
    """As before, and it stays in there to write on."""
    folder = output() / "a"
    folder.mkdir()
    os.chdir(folder)
    folder.chmod(0o300)
    (Path("more")).write_bytes(b"x")
    hang()


@attack
def odd_names(_p: dict[str, Any], _: Probe) -> None:
    for name in (b"line\nbreak", b"\xff\xfe", b"\x1b[2J\x07", b"-rf", b"*", "\u202egnp.exe".encode(), b" ", b"x" * 255):
        (Path(os.fsdecode(os.fsencode(output()) + b"/" + name))).mkdir()
    end("left: \x1b[2J\x1b[31m\x07odd\x00 names\u202e \x9b31m\r\n")


@attack
def endless_printing(_p: dict[str, Any], _: Probe) -> None:
    while True:
        os.write(1, b"\x1b]0;x\x07" * 8000)


@attack
def never_answers(_p: dict[str, Any], _: Probe) -> None:
    hang()
