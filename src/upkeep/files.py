"""Small tools for files of our own. What others may have written is read by `upkeep.lines`."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Iterator
from io import BufferedReader, BufferedWriter, FileIO
from pathlib import Path

from upkeep.errors import UpkeepError

WHOLE_BYTES = 2**20
"""Files up to this size are read at once."""
WRITERS_S = 30.0
"""What a killed process is given to end its writing to a folder that is being removed."""
MEND = "mend what wrote this, then run it again"
_RENAME_EXCHANGE = 2
_LIBC = ctypes.CDLL(None, use_errno=True)


_sorted = json.JSONEncoder(sort_keys=True).encode


def digest(value: object) -> str:
    """SHA-256 of a JSON value, the same whatever the order of keys."""
    return hashlib.sha256(_sorted(value).encode()).hexdigest()


def hash_file(path: Path, max_bytes: int | None = None, *, links: bool = True) -> str:
    """SHA-256 of a regular file; see `open_regular`."""
    with open_regular(path, max_bytes, links=links) as file:
        return hash_open(file)


def hash_open(file: BufferedReader) -> str:
    """SHA-256 of the rest of an open file."""
    if os.fstat(file.fileno()).st_size <= WHOLE_BYTES:
        return hashlib.sha256(file.read()).hexdigest()  # half the time of a large file's way
    return hashlib.file_digest(file, "sha256").hexdigest()


# ---------------------------------------------------------------- reading


def open_regular(path: Path, max_bytes: int | None = None, *, links: bool = False) -> BufferedReader:
    """Open a file for reading, and only a regular one: no pipe is waited for.

    Args:
        max_bytes: a larger one is refused.
        links: a symbolic link is followed: users may lay out their own files so, nobody what the suite has made.

    Raises:
        UpkeepError: it is missing, a link, a pipe, a device or a folder, unreadable, or larger than `max_bytes`.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        raise refusal(error, path) or _unreadable(path, _obstacle(path, error)) from None
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise _unreadable(path, kind_of_file(found.st_mode))
    if max_bytes is not None and found.st_size > max_bytes:
        os.close(descriptor)
        raise UpkeepError(
            "file too large",
            where=path,
            expected=f"at most {max_bytes:,} bytes",
            found=f"{found.st_size:,} bytes",
            remedy="see what wrote it; what a cell may write is `resources.disk_gb` in its method.yaml",
            kind="output",
        )
    return BufferedReader(FileIO(descriptor), 1 << 20)


def _unreadable(path: Path, found: str) -> UpkeepError:
    expected = "a regular file"
    return UpkeepError("cannot be read", where=path, expected=expected, found=found, remedy=MEND, kind="output")


def _obstacle(path: Path, error: OSError) -> str:
    """Why a file cannot be opened."""
    if error.errno == errno.EAGAIN:
        return "a lease on it, so that it opens for nobody else"
    try:
        mode = path.lstat().st_mode
    except OSError:
        mode = stat.S_IFREG
    return os.strerror(error.errno or 0) if stat.S_ISREG(mode) else kind_of_file(mode)


def folders_with(parent: Path, name: str) -> list[str]:
    """The names of the folders that hold a file of this name, in their order."""
    # A file that cannot be read, as a link to nowhere, is told when it is read.
    return sorted(path.name for path in parent.glob("*") if os.path.lexists(path / name))


def kind_of_file(mode: int) -> str:
    """What a file is by its mode, in words."""
    kinds = {
        stat.S_IFREG: "another file",
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFIFO: "a pipe",
        stat.S_IFDIR: "a folder",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")


# ---------------------------------------------------------------- writing


@contextlib.contextmanager
def storing(path: Path) -> Iterator[None]:
    """Say what a file system's refusal means, and what to do about it.

    Raises:
        UpkeepError: in place of the error of a file system that is full, over quota, read-only, broken or gone.
    """
    try:
        yield
    except Exception as error:  # libraries that are not written in Python have errors of their own
        if (told := refusal(error, path)) is None:
            raise
        raise told from error


def refusal(error: Exception, path: Path) -> UpkeepError | None:
    """What a file system's refusal to store `path` means; None where it is not about the file system."""
    number = (error.errno or 0) if isinstance(error, OSError) else 0
    if not number and (told := re.search(r"\(os error (\d+)\)", str(error))):
        number = int(told[1])
    if isinstance(error, OSError) and isinstance(error.filename, str):
        path = Path(error.filename)
    if number in (errno.ENOSPC, errno.EDQUOT):
        place = next((p for p in (path, *path.parents) if p.is_dir()), Path("/"))
        full = os.statvfs(place)
        return UpkeepError(
            "no space left" if number == errno.ENOSPC else "the quota is used up",
            where=path,
            found=f"{full.f_bavail * full.f_frsize:,} bytes and {full.f_favail:,} files are free there",
            remedy="make space, or name another place (`results`, `cache`); then the same command continues",
            kind="machine",
        )
    if number in (errno.EROFS, errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT):
        return UpkeepError(
            "the file system fails",
            where=path,
            found=os.strerror(number),
            remedy="see to the mount (`findmnt -T`, the kernel's log); then the same command continues",
            kind="machine",
        )
    return None


def write_atomically(path: Path, content: bytes | memoryview, *, durable: bool = False) -> None:
    """Replace a file's content, as `replacing`."""
    with replacing(path, durable=durable) as file:
        file.write(content)


@contextlib.contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[BufferedWriter]:
    """Write a file that takes its place when the block ends: a reader sees the old or the new content, whoever else
    writes it; where it is `durable`, after the machine has lost its power, too.

    Raises:
        UpkeepError: it cannot be stored.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.partial")
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                yield file
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            try:
                temporary.replace(path)
            except IsADirectoryError:
                raise UpkeepError(
                    "a folder is in the place of this file", where=path, remedy="remove it; the same command continues"
                ) from None
            if durable:
                sync(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Bring a file's content or a folder's list of names to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def exchange(one: Path, other: Path) -> bool:
    """Let two files or folders change places in one step; False where the file system cannot (NFS)."""
    if not _LIBC.renameat2(-100, os.fsencode(one), -100, os.fsencode(other), _RENAME_EXCHANGE):
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
        return False
    raise OSError(number, os.strerror(number), str(one), None, str(other))


# ---------------------------------------------------------------- removing


def remove_tree(folder: Path) -> None:
    """Remove a folder and all in it, whatever was done against that: folders that nobody may enter, deeper ones than a
    path can name, names in no encoding. Links are not followed. What a killed process is still writing there goes too,
    if it ends within `WRITERS_S`.

    Raises:
        OSError: something is not ours to remove, is written without end, or there is no such folder.
    """
    deadline = time.monotonic() + WRITERS_S
    while True:
        try:
            return _remove_tree(folder)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY or time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def _remove_tree(folder: Path) -> None:
    top = _enter(folder.name, _open(folder.parent))
    try:
        # Folders within folders are moved up, so that nothing is ever two levels down.
        waiting, mark, count = _remove_files(top), os.urandom(6).hex(), 0
        while waiting:
            name = waiting.pop()
            inner = _enter(name, os.dup(top))
            try:
                for child in _remove_files(inner):
                    os.close(_enter(child, os.dup(inner)))  # to be moved, it must be ours to write to
                    count += 1
                    os.rename(child, f"{mark}-{count}", src_dir_fd=inner, dst_dir_fd=top)
                    waiting.append(f"{mark}-{count}")
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    folder.rmdir()


def _open(folder: Path) -> int:
    return os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def _enter(name: str, parent: int) -> int:
    """A folder's descriptor, after making it accessible; closes the parent's."""
    try:
        place = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    finally:
        os.close(parent)
    try:
        here = Path(f"/proc/self/fd/{place}")
        if here.stat().st_mode & 0o700 != 0o700:
            here.chmod(0o700)
        return os.open(here, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(place)


def _remove_files(folder: int) -> list[str]:
    """Remove what is no folder; the names of the folders."""
    with os.scandir(folder) as entries:
        found = list(entries)
    for entry in found:
        if not entry.is_dir(follow_symlinks=False):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(entry.name, dir_fd=folder)
    return [entry.name for entry in found if entry.is_dir(follow_symlinks=False)]


def remove(path: Path) -> None:
    """Remove whatever is at a path, as `remove_tree`; nothing may be there."""
    if path.is_dir() and not path.is_symlink():
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)
