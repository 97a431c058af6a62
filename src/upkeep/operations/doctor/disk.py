"""Checks of the folders that the suite writes to: their room, and whether files can be written, locked and replaced."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from upkeep.catalog import Catalog
from upkeep.machine.ask import ask
from upkeep.operations.doctor.findings import EVERY_SUITE, Check, Facts, Finding, missing, ok, warning

GB = 10**9
NETWORKED = re.compile(r"nfs|lustre|gpfs|beegfs|ceph|cifs|smb|panfs|orangefs|afs|9p|fuse\.", re.I)
RESULTS_GB, CACHE_GB, TMP_GB = 5, 20, 1
"""Free space below which a suite may come to an end before its time: predictions and logs; images and
wheels; scratch."""


def _folder(name: str, place: Callable[[Catalog], Path], wanted_gb: float) -> Check:
    def check(catalog: Catalog, suite: str, facts: Facts) -> Iterator[Finding]:
        group, path = "Disk", place(catalog)
        folder = next(p for p in (path, *path.parents) if os.path.lexists(p))
        if not folder.is_dir():
            yield missing(group, name, f"{folder} is no folder", EVERY_SUITE, "move it away, or name another place")
            return
        space, kind = os.statvfs(folder), file_system(folder)
        free = space.f_bavail * space.f_frsize
        found = f"{path}: {free / GB:,.1f} GB free, {kind}{' (network)' if NETWORKED.search(kind) else ''}"
        other = "name another place (TMPDIR)" if name == "TMPDIR" else f"name another place (`{name}`)"
        if free < wanted_gb * GB:
            yield warning(group, name, found, f"what needs more; {wanted_gb:g} GB are wanted", f"make room, or {other}")
        else:
            yield ok(group, name, found)
        if space.f_files and space.f_favail < 10_000:
            found = f"{space.f_favail:,} free"
            yield warning(
                group, f"{name}: inodes", found, "new files", f"remove files, whatever their size, or {other}"
            )
        yield from _works(group, name, folder, other)

    return check


results = _folder("results", lambda catalog: catalog.results, RESULTS_GB)
cache = _folder("cache", lambda catalog: catalog.cache, CACHE_GB)
temporary = _folder("TMPDIR", lambda _: Path(tempfile.gettempdir()), TMP_GB)


def _works(group: str, name: str, folder: Path, other: str) -> Iterator[Finding]:
    """Whether files can be written, locked and replaced in a folder, and whether its clock is this machine's."""
    try:
        with tempfile.TemporaryDirectory(prefix=".upkeep-doctor-", dir=folder) as inside:
            one, two = Path(inside) / "one", Path(inside) / "two"
            before = time.time()
            one.write_bytes(b"1" * 65536)
            written, after = one.stat().st_mtime, time.time()
            two.write_bytes(b"2")
            one.replace(two)
            replaced, locks = two.read_bytes()[:1] == b"1", _locks(two)
    except OSError as error:
        remedy = f"see to permissions, quota (quota -s) and mount options, or {other}"
        yield missing(group, f"{name}: writing", f"{folder}: {error.strerror}", EVERY_SUITE, remedy)
        return
    remedy = f"mount it with locks (NFS: without nolock; Lustre: with flock), or {other}"
    if locks or not replaced:
        found = locks or "a replaced file is read as it was"
        yield missing(group, f"{name}: locks", found, "two jobs at a time that share a folder", remedy)
    else:
        yield ok(group, f"{name}: locks", "files are written, locked and replaced as they should be")
    if (off := max(before - written, written - after)) > 2:
        found = f"{off:,.0f} s from this machine's"
        yield warning(group, f"{name}: clock", found, "knowing what is newer", "set both clocks (NTP)")


def _locks(path: Path) -> str:
    """Why locks do not work; empty where they do."""
    with path.open("rb") as first, path.open("rb") as second:
        try:
            fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return f"no lock can be had: {error.strerror}"
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return ""
    return "two hold one lock at the same time"


def file_system(path: Path) -> str:
    """The kind of file system that a path is on (`ext4`, `nfs4`)."""
    path, best, kind = path.resolve(), "", "unknown"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        mount = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), left.split()[4])
        if path.is_relative_to(mount) and len(mount) >= len(best):
            best, kind = mount, right.split()[0]
    return kind


def quota(catalog: Catalog, suite: str, facts: Facts) -> Iterator[Finding]:
    if shutil.which("quota") is None:
        return
    lines = ask("quota", "--no-wrap", "--human-readable").out.splitlines()
    for row in (line.split() for line in lines if "*" in line):
        yield warning("Disk", "quota", f"used up on {row[0]}: {' '.join(row[1:])}", "new files there", "make room")
