"""A file system like a cluster's: every operation takes its time, a removed file that is open leaves another name, and
it can be full, over quota or gone. `python shared_filesystem.py FOLDER MOUNTPOINT CONTROL` shows FOLDER at MOUNTPOINT
until it is unmounted (FUSE).

CONTROL is a JSON file of `Control`, looked at before each operation.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import mfusepy


class Shared(mfusepy.Operations):  # type: ignore[misc]
    use_ns = True

    def __init__(self, folder: Path, control: Path) -> None:
        self.folder, self.control = folder, control
        self.seen, self.count = "", 0

    def at(self, path: str, grows: bool = False, every: bool = False) -> str:
        """The path below, after waiting, and after failing where the control says so.

        Args:
            grows: it needs room.
            every: it is counted where all operations are to fail, too.
        """
        text = self.control.read_text()
        if text != self.seen:
            self.seen, self.count = text, 0
        control = json.loads(text)
        time.sleep(control.get("latency_s", 0))
        if (grows or (every and control.get("every"))) and control.get("only", "") in path:
            self.count += 1
            if self.count >= control.get("fails_from", 1 << 60):
                raise mfusepy.FuseOSError(control["errno"])
        return str(self.folder / path.lstrip("/"))

    def getattr(self, path: str, fh: Any = None) -> dict[str, Any]:
        found = os.fstat(fh) if fh is not None else os.lstat(self.at(path))
        names = ("st_mode", "st_nlink", "st_uid", "st_gid", "st_size", "st_blocks")
        times = {f"st_{name}time": getattr(found, f"st_{name}time_ns") for name in "amc"}
        return {name: getattr(found, name) for name in names} | times

    def readdir(self, path: str, fh: Any) -> list[str]:
        return [".", "..", *os.listdir(self.at(path))]

    def statfs(self, path: str) -> dict[str, int]:
        found = os.statvfs(self.at(path))
        names = (
            "f_bavail",
            "f_bfree",
            "f_blocks",
            "f_bsize",
            "f_favail",
            "f_ffree",
            "f_files",
            "f_frsize",
            "f_namemax",
        )
        return {name: getattr(found, name) for name in names}

    def access(self, path: str, mode: int) -> None:
        self.at(path)

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        return os.open(self.at(path, grows=True), os.O_RDWR | os.O_CREAT | os.O_TRUNC, mode)

    def open(self, path: str, flags: int) -> int:
        return os.open(self.at(path, every=True), flags & ~os.O_CREAT)

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return os.pread(fh, size, offset)

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        self.at(path, grows=True)
        return os.pwrite(fh, data, offset)

    def truncate(self, path: str, length: int, fh: Any = None) -> None:
        os.truncate(self.at(path, every=True), length)

    def flush(self, path: str, fh: int) -> None:
        self.at(path)

    def fsync(self, path: str, datasync: int, fh: int) -> None:
        self.at(path, every=True)
        os.fsync(fh)

    def release(self, path: str, fh: int) -> None:
        os.close(fh)

    def mkdir(self, path: str, mode: int) -> None:
        os.mkdir(self.at(path, grows=True), mode)

    def rmdir(self, path: str) -> None:
        os.rmdir(self.at(path))

    def unlink(self, path: str) -> None:
        os.unlink(self.at(path))

    def rename(self, old: str, new: str) -> None:
        os.rename(self.at(old, every=True), self.at(new))

    def symlink(self, target: str, source: str) -> None:
        os.symlink(source, self.at(target, grows=True))

    def readlink(self, path: str) -> str:
        return os.readlink(self.at(path))

    def chmod(self, path: str, mode: int) -> None:
        os.chmod(self.at(path), mode)

    def chown(self, path: str, uid: int, gid: int) -> None:
        os.chown(self.at(path), uid, gid, follow_symlinks=False)

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> None:
        os.utime(self.at(path), ns=times)


class Mount(mfusepy.FUSE):  # type: ignore[misc]
    def rename_fuse_3(self, old: bytes, new: bytes, flags: int) -> int:
        """Refuse to exchange, as NFS does: the library would drop the flags and rename. (FUSE 2 knows no flags.)"""
        return -errno.EINVAL if flags else int(super().rename_fuse_3(old, new, flags) or 0)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        Mount(Shared(Path(sys.argv[1]), Path(sys.argv[3])), sys.argv[2], foreground=True, nothreads=True)
