"""Folders for a while, that go with the process that made them, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from upkeep.file_locks import flock
from upkeep.files import remove_tree, storing

PREFIX, LOCK = "upkeep-", ".lock"
LONGEST_SOCKET = 100
"""Bytes that a Unix socket's path may have (107, less what we do not count on)."""


class Scratch:
    """A new folder `upkeep-...`, removed when it is closed; use as a context manager, which gives its path.

    Its maker holds the lock `upkeep-....lock` beside it. A process that is killed lets go of the lock, so whoever makes
    or closes a folder in the same place next removes what nobody holds. A program that the maker starts and that makes
    the folder anew when it is gone must hold the lock too: it is given `descriptor` (`pass_fds` of `subprocess`).
    """

    def __init__(self, place: Path | None = None) -> None:
        """Args:
        place: where; by default the folder for temporary files.

        Raises:
            UpkeepError: it cannot be stored there, or there are no locks.
        """
        place = place or Path(tempfile.gettempdir())
        with storing(place):
            sweep(place)
            while (held := _new_lock(place)) is None:
                pass
            self._lock, self.descriptor = held
            self.path = self._lock.with_suffix("")
            self.path.mkdir(mode=0o700)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove it, and what others have left there meanwhile. What cannot be removed now is left to the next."""
        if self.descriptor >= 0:
            _remove(self._lock)
            os.close(self.descriptor)
            self.descriptor = -1
            sweep(self._lock.parent)


@contextlib.contextmanager
def folder_for_socket(name: str) -> Iterator[Path]:
    """A folder for a Unix socket, which a container's user can use, in one that no one else here can look into."""
    with Scratch(place_for_socket(f"engine/{name}")) as folder:
        inner = folder / "engine"
        inner.mkdir()
        inner.chmod(0o755)
        yield inner


def place_for_socket(path: str) -> Path:
    """Where a scratch folder must lie for a Unix socket in it: the folder for temporary files, if its path is not too
    long.

    Args:
        path: the socket's, in the scratch folder.
    """
    place = tempfile.gettempdir()
    longest = f"{place}/{PREFIX}12345678/{path}"
    return Path(place if len(os.fsencode(longest)) <= LONGEST_SOCKET else "/tmp")


def sweep(place: Path) -> None:
    """Remove this user's folders whose maker is gone."""
    for lock in place.glob(f"{PREFIX}*{LOCK}"):
        with contextlib.suppress(OSError):  # held, gone meanwhile, or another user's
            descriptor = os.open(lock, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                found = os.fstat(descriptor)
                if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
                    continue
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(descriptor).st_nlink:
                    _remove(lock)
            finally:
                os.close(descriptor)


def _new_lock(place: Path) -> tuple[Path, int] | None:
    """A lock of a new name, held; None where somebody's sweep was quicker."""
    lock = place / f"{PREFIX}{secrets.token_hex(4)}{LOCK}"
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        flock(descriptor, fcntl.LOCK_EX, lock)
    except BaseException:
        os.close(descriptor)
        lock.unlink(missing_ok=True)
        raise
    if os.fstat(descriptor).st_nlink:
        return lock, descriptor
    os.close(descriptor)
    return None


def _remove(lock: Path) -> None:
    """Remove the folder of a lock that is held, then the lock."""
    folder = lock.with_suffix("")
    with contextlib.suppress(OSError):
        remove_tree(folder)
    if not os.path.lexists(folder):
        lock.unlink(missing_ok=True)
