"""Attacks that reach out: for what comes later, the host, its network, its secrets, its rights."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from upkeep.cell import Probe

from .tools import attack, call, end, output, try_all


@attack
def reads_ahead(_p: dict[str, Any], _: Probe) -> None:
    """What has not arrived, in its own input: by the descriptor, and in what Python holds of it."""

    def descriptor() -> None:
        os.set_blocking(0, False)
        os.read(0, 1)

    def held() -> None:
        if not sys.stdin.buffer.peek(1):  # type: ignore[attr-defined]
            raise ValueError("nothing more has come")

    try_all([descriptor, held])


def search(p: dict[str, Any]) -> None:
    """What comes later, anywhere that can be read: files, what other processes hold open, their environment."""
    text = p["future"][::-1].encode()

    def look(path: Path) -> None:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as file:
            if text not in (file.read(16 * 2**20) or b""):
                raise ValueError("nothing of what comes")

    def everything() -> Iterator[Path]:
        for top in p["search"]:
            for folder, inner, files in os.walk(top):
                inner[:] = [name for name in inner if os.path.join(folder, name) not in ("/proc", "/sys", "/dev")]
                yield from (path for name in files if stat.S_ISREG((path := Path(folder, name)).lstat().st_mode))
        for process in Path(p["processes"]).glob("[0-9]*"):
            yield process / "environ"
            with contextlib.suppress(OSError):
                yield from (process / "fd").iterdir()

    def ahead() -> None:
        for process in ("self", os.getppid()):  # of a program this is the runner of cells
            if text in os.read(os.open(f"/proc/{process}/fd/0", os.O_RDONLY | os.O_NONBLOCK), 2**20):
                return
        raise ValueError("nothing of what comes")

    try_all([ahead, *(lambda path=path: look(path) for path in everything())])


@attack
def search_at_a_probe(p: dict[str, Any], _: Probe) -> None:
    search(p)


@attack
def search_as_documents_arrive(p: dict[str, Any], _: None) -> None:
    search(p)


@attack
def search_by_a_program(p: dict[str, Any], _: None) -> None:
    search(p)


@attack
def network(p: dict[str, Any], _: Probe) -> None:
    """The host's own ports, its neighbours, the world, and names."""

    def connect(host: str, port: int) -> None:
        socket.create_connection((host, port), timeout=1).close()

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.sendto(b"x", ("192.0.2.1", 53))

    places = [("127.0.0.1", p["port"]), ("172.17.0.1", p["port"]), ("192.0.2.1", 80)]
    try_all([*(lambda place=place: connect(*place) for place in places), send])


@attack
def names(_p: dict[str, Any], _: Probe) -> None:
    try_all([lambda: socket.getaddrinfo("example.org", 443)])


@attack
def raw_sockets(_p: dict[str, Any], _: Probe) -> None:
    kinds = ((socket.AF_PACKET, socket.SOCK_RAW, 0), (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
    try_all([lambda kind=kind: socket.socket(*kind) for kind in kinds])


@attack
def listening(p: dict[str, Any], _: Probe) -> None:
    with socket.create_server(("0.0.0.0", p["listen"])) as server:
        server.settimeout(2)
        try_all([server.accept])


@attack
def read_host(p: dict[str, Any], _: Probe) -> None:
    """The answer key, another cell's predictions, the home of whoever runs the suite."""
    try_all([lambda path=path: Path(path).read_bytes() for path in p["private"]])


@attack
def secrets(_p: dict[str, Any], _: Probe) -> None:
    def search(path: Path) -> None:
        if b"UPKEEP_CANARY" not in path.read_bytes():
            raise ValueError("no secret")

    try_all([lambda path=path: search(path) for path in Path("/proc").glob("[0-9]*/environ")])


@attack
def write_outside(p: dict[str, Any], _: Probe) -> None:
    folders = [
        *p["writable"],
        *("/", "/etc", "/usr/bin", "/opt/upkeep", "/methods", "/root", "/home", "/proc/sys/kernel"),
    ]
    if p["isolated"]:
        try_all([lambda folder=folder: (Path(folder) / "evil").touch() for folder in folders])
    else:
        try_all([lambda folder=folder: (Path(folder) / "evil").touch() for folder in p["writable"]])


@attack
def write_inputs(_p: dict[str, Any], _: Probe) -> None:
    cell = Path(sys.argv[1])
    try_all([
        lambda: cell.write_text("{}"),
        lambda: cell.chmod(0o777),
        lambda: cell.unlink(),
        lambda: cell.rename(cell.with_name("other")),
        lambda: (cell.parent / "evil").symlink_to("/"),
        lambda: call("mount", None, str(cell.parent).encode(), None, 0x20 | 0x1000, None),  # MS_REMOUNT, MS_BIND
    ])  # fmt: skip


@attack
def kill_others(p: dict[str, Any], _: Probe) -> None:
    try_all([
        lambda: os.kill(p["victim"], signal.SIGKILL),
        lambda: call("ptrace", 16, p["victim"], 0, 0),  # PTRACE_ATTACH
    ])  # fmt: skip


@attack
def mount(_p: dict[str, Any], _: Probe) -> None:
    try_all([
        lambda: call("mount", b"none", b"/tmp", b"tmpfs", 0, None),
        lambda: call("mount", b"/", b"/tmp", None, 0x1000, None),
        lambda: call("umount2", str(output()).encode(), 2),
        lambda: call("chroot", b"/tmp"),
        lambda: call("pivot_root", b"/tmp", b"/tmp"),
    ])  # fmt: skip


@attack
def namespaces(p: dict[str, Any], probe: Probe) -> None:
    """In namespaces of its own it is root: that must not get it out."""
    try:
        call("unshare", 0x10000000 | 0x20000)  # CLONE_NEWUSER, CLONE_NEWNS
    except OSError as error:
        end(f"prevented: {error}")
    cell = Path(sys.argv[1])
    with contextlib.suppress(OSError):
        call("mount", None, str(cell.parent).encode(), None, 0x20 | 0x1000, None)
    try_all([
        lambda: cell.write_text("{}"),
        lambda: socket.create_connection(("127.0.0.1", p["port"]), timeout=1),
        lambda: os.kill(p["victim"], signal.SIGKILL),
        *(lambda path=path: Path(path).read_bytes() for path in p["private"]),
    ])  # fmt: skip


@attack
def clock(_p: dict[str, Any], _: Probe) -> None:
    past = (ctypes.c_long * 2)(1, 0)
    try_all([lambda: time.clock_settime(time.CLOCK_REALTIME, 1.0), lambda: call("settimeofday", past, None)])


@attack
def privileges(_p: dict[str, Any], _: Probe) -> None:
    try_all([
        lambda: os.setuid(0),
        lambda: os.setgroups([0]),
        lambda: os.chown(output(), 0, 0),
        lambda: os.nice(-5),
        lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1)),
        lambda: call("init_module", b"", 0, b""),
        lambda: call("swapoff", b"/swap"),
    ])  # fmt: skip


@attack
def devices(_p: dict[str, Any], _: Probe) -> None:
    places = ("mem", "kmsg", "sda", "vda", "nvme0n1", "kvm")
    try_all([
        lambda: os.mknod(output() / "disk", 0o60600, os.makedev(254, 0)),
        lambda: os.mknod("/tmp/memory", 0o20600, os.makedev(1, 1)),
        *(lambda place=place: os.close(os.open(f"/dev/{place}", os.O_RDWR)) for place in places),
    ])  # fmt: skip


@attack
def engine_socket(_p: dict[str, Any], _: Probe) -> None:
    places = ("/var/run/docker.sock", "/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock")
    try_all([lambda place=place: socket.socket(socket.AF_UNIX).connect(place) for place in places])
