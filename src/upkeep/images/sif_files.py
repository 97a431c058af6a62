"""Files of the cache that are images: SIF files and squashed layers. The same content gives the same bytes, and beside
each stands what it must be."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

import msgspec

from upkeep.contract import Count, Record, Sha256
from upkeep.errors import UpkeepError
from upkeep.files import hash_file, write_atomically
from upkeep.images.plans import EPOCH

SQUASH = ("-noappend", "-all-root", "-no-xattrs", "-comp", "gzip", "-Xcompression-level", "4")
SQUASH_TIMES = ("-mkfs-time", str(EPOCH), "-all-time", str(EPOCH))
DATA = 8192
"""Where a SIF's file system begins: behind one page with the header and one with its only descriptor."""


class Seal(Record, frozen=True):
    """What lies beside a file of the cache: what it must be."""

    sha256: Sha256
    size: Count


def mksquashfs() -> str | None:
    return shutil.which("mksquashfs", path=f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin")


def squash(folder: Path, target: Path, *, offset: int = 0) -> None:
    """Write a folder as a squashed file system, the same bytes for the same content.

    Raises:
        UpkeepError: mksquashfs fails.
    """
    command = [mksquashfs() or "mksquashfs", str(folder), str(target), *SQUASH, *SQUASH_TIMES, "-offset", str(offset)]
    command += ["-quiet", "-no-progress", "-processors", str(len(os.sched_getaffinity(0)))]
    # It takes the time from the variable or from its options, and never from both.
    variables = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    done = subprocess.run(command, capture_output=True, text=True, env=variables, umask=0o022)
    if done.returncode:
        raise UpkeepError("an image cannot be squashed", where=target, found=done.stderr.strip()[-2000:], kind="image")


def write_sif(folder: Path, target: Path, identity: str) -> None:
    """Write a root file system as a SIF file (version 1, x86-64) whose bytes depend on nothing but its content.

    Apptainer's own `build` writes the time of day and a random id. Layout: https://github.com/apptainer/sif.

    Args:
        identity: hex digits, of which the first 32 become the file's id.

    Raises:
        UpkeepError: mksquashfs fails.
    """
    squash(folder, target, offset=DATA)
    size = target.stat().st_size - DATA
    header = struct.pack(
        "<32s10s3s3s16s8q",
        b"#!/usr/bin/env run-singularity\n",
        b"SIF_MAGIC",
        b"01",
        b"02",  # x86-64
        bytes.fromhex(identity[:32]),
        *(EPOCH, EPOCH),  # created, modified
        *(0, 1, 4096, 585),  # descriptors: free, all, where, bytes
        *(DATA, size),
    )
    partition = struct.pack(
        "<i?III7q128si i3s373x",
        0x4004,  # a partition
        *(True, 1, 0xF0000001, 0),  # used, id, group, link
        *(DATA, size, size, EPOCH, EPOCH, 0, 0),  # where, bytes, padded, created, modified, user, group
        b"",
        *(1, 2, b"02"),  # squashed, the system's own, x86-64
    )
    with target.open("r+b") as file:
        file.write(header)
        file.seek(4096)
        file.write(partition)


def seal(partial: Path, target: Path) -> Seal:
    """Move a finished file to its place, with what it must be beside it."""
    made = Seal(hash_file(partial), partial.stat().st_size)
    partial.chmod(0o644)
    os.utime(partial, (EPOCH, EPOCH))
    write_atomically(_seal_of(target), msgspec.json.encode(made))
    partial.replace(target)
    return made


def _seal_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def sealed(path: Path) -> Seal | None:
    """What a file of the cache is; None where there is none.

    Its bytes are read only where its size is right and its time another than the one all these files have.

    Raises:
        UpkeepError: it is not what was built.
    """
    try:
        expected = msgspec.json.decode(_seal_of(path).read_bytes(), type=Seal)
        found = path.stat()
    except FileNotFoundError:
        return None
    if found.st_size == expected.size and (found.st_mtime == EPOCH or hash_file(path) == expected.sha256):
        return expected
    raise UpkeepError(
        "an image is not what was built",
        where=path,
        expected=f"{expected.size:,} bytes, sha256 {expected.sha256}",
        found=f"{found.st_size:,} bytes" if found.st_size != expected.size else "other content",
        remedy=f"remove it ({path}), and it is built again",
        kind="image",
    )
