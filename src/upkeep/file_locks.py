"""Locks between processes, on one machine or on several that share a file system. They are `flock`'s: whoever ends,
however it does, lets go of them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path

from upkeep.errors import UpkeepError
from upkeep.files import storing

WAIT_S = 1.0
"""Between two looks at a lock that another process holds."""


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold `path` as a lock between processes; released when the process ends, however it ends.

    Raises:
        UpkeepError: the file system has no locks, or has no room for one.
    """
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w")
    with file:
        flock(file.fileno(), fcntl.LOCK_EX, path)
        yield


class Held(UpkeepError):
    """Another process has the lock."""


@contextlib.contextmanager
def locked(folder: Path, patience_s: float = 0.0) -> Iterator[None]:
    """Hold a folder's lock, the file `lock` in it; the system lets go of it when this process ends, however it does.

    The file by itself means nothing: one that was left behind blocks nobody.

    Args:
        patience_s: how long to wait for another process that holds it.

    Raises:
        Held: another process holds it (it is named).
        UpkeepError: the file system has no locks, or has no room for one.
    """
    deadline = time.monotonic() + patience_s
    descriptor = None
    while descriptor is None:
        try:
            descriptor = _lock(folder)
        except Held:
            if time.monotonic() >= deadline:
                raise
            time.sleep(WAIT_S)
    try:
        with contextlib.suppress(OSError):  # who holds it is a courtesy: a full disk does not matter here
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {platform.node()}".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _lock(folder: Path) -> int | None:
    """The lock's open file; None where the folder was removed meanwhile by the one who held it."""
    lock = folder / "lock"
    with storing(lock):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except FileNotFoundError:
            return None
    try:
        flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, lock)
        if os.fstat(descriptor).st_ino == lock.stat().st_ino:
            return descriptor
    except BlockingIOError:
        holder = os.pread(descriptor, 200, 0).decode(errors="replace") or "it does not say who it is"
        os.close(descriptor)
        raise Held(
            "another process is at work on this",
            where=folder,
            found=holder,
            remedy="wait for its end, or end it; a node that is dead holds its locks until the file server gives it up",
            kind="machine",
        ) from None
    except FileNotFoundError:
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def flock(descriptor: int, operation: int, path: Path) -> None:
    """Lock an open file, `path` by name, and say what it means where the file system cannot."""
    try:
        fcntl.flock(descriptor, operation)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        raise UpkeepError(
            "this file system has no locks",
            where=path,
            expected="locks, so that no two processes write the same files",
            found=os.strerror(error.errno),
            remedy="mount it with them (NFS: not with `nolock`; Lustre: with `flock`), or name another place"
            " (`results`, `cache`)",
            kind="machine",
        ) from None
