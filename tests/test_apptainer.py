"""Cells in Apptainer containers, as an ordinary user: the contract seen from inside."""

from __future__ import annotations

import ast
import json
import subprocess
import textwrap
from collections.abc import Callable, Iterator

import psutil
import pytest

from apptainer_programs import PRELUDE
from ordinary_user import OrdinaryUser, ordinary_user

__all__ = ["ordinary_user"]

HOST = """
for line in sys.stdin:
    given = json.loads(line)
    shutil.rmtree(folder / "output")
    (folder / "output").mkdir()
    handle = start(given["code"], **given["resources"])
    handle.stdin.close()
    status = handle.wait(120)
    print("TOLD", json.dumps([status, runtime.explain(status, Resources(memory_gb=1)), handle.tail(50)]), flush=True)
"""
Inside = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def inside(ordinary_user: OrdinaryUser) -> Iterator[Inside]:
    """Runs a program in a cell's container, each in its own: exit status, in numbers and words, and output.

    What starts them is one process of that user, for it takes as long to start as a container does.
    """
    env, pipes = {"UPKEEP_RUNTIME": "apptainer"}, {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with ordinary_user.start("python", "-c", PRELUDE + HOST, env=env, **pipes) as host:
        assert host.stdin is not None and host.stdout is not None

        def inside(code: str, **resources: int) -> tuple[int, str, str]:
            print(json.dumps({"code": textwrap.dedent(code), "resources": resources}), file=host.stdin, flush=True)
            while not (line := host.stdout.readline()).startswith("TOLD "):
                assert line, "what starts the containers is no more"
            status, words, said = json.loads(line.removeprefix("TOLD "))
            return status, words, said

        yield inside
        host.stdin.close()


@pytest.fixture
def sleeper(ordinary_user: OrdinaryUser) -> Callable[[str], tuple[subprocess.Popen[str], set[psutil.Process]]]:
    """Starts a cell that ignores signals and leaves daemons, and gives the host's process and all below it."""

    def start(end: str) -> tuple[subprocess.Popen[str], set[psutil.Process]]:
        code = """
            import os, signal, time
            for number in set(range(1, 32)) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
                signal.signal(number, signal.SIG_IGN)
            for _ in range(2):
                if os.fork() == 0:
                    os.setsid()
            print("up", flush=True)
            time.sleep(1000)
        """
        program = PRELUDE + textwrap.dedent(
            f"""
            import time
            handle = start({textwrap.dedent(code)!r})
            while "up" not in handle.tail():
                assert handle.poll() is None, handle.tail()
                time.sleep(0.02)
            print("up", flush=True)
            {end}
            """
        )
        env = {"UPKEEP_RUNTIME": "apptainer"}
        host = ordinary_user.start("python", "-c", program, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert host.stdout is not None and host.stdout.readline() == "up\n"
        return host, set(psutil.Process(host.pid).children(recursive=True))

    return start


# ---------------------------------------------------------------- real containers


@pytest.mark.apptainer
def test_a_cell_has_no_network(inside: Inside) -> None:
    code = """
        import socket
        print([name for _, name in socket.if_nameindex()])
        try:
            socket.create_connection(("10.0.2.2", 80), 5)
        except OSError as error:
            print(error.strerror)
    """
    assert inside(code)[2] == "['lo']\nNetwork is unreachable"


@pytest.mark.apptainer
def test_a_cell_is_an_ordinary_user_without_capabilities_or_a_way_to_any(inside: Inside) -> None:
    code = """
        import ctypes, os
        status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines())
        print(os.getuid() != 0, int(status["CapEff"], 16), int(status["CapBnd"], 16), status["NoNewPrivs"])
        libc = ctypes.CDLL(None, use_errno=True)
        print(libc.unshare(0x10000000), libc.syscall(56, 0x10000011, 0, 0, 0, 0), libc.syscall(319, b"x", 0))
        print(libc.mount(b"x", b"/tmp", b"tmpfs", 0, None), os.strerror(ctypes.get_errno()))
    """
    expected = "True 0 0 1\n-1 -1 -1\n-1 Operation not permitted"
    assert inside(code)[2] == expected


@pytest.mark.apptainer
def test_a_cell_can_write_to_its_output_and_to_nothing_else_that_lasts(inside: Inside) -> None:
    code = """
        import os
        writable = []
        for folder in "/ /cell /methods /opt/upkeep /opt/venv /etc /output /tmp /usr /sys/devices/system".split():
            try:
                open(os.path.join(folder, "probe"), "w").close()
                writable.append(folder)
            except OSError:
                pass
        print(writable)
    """
    assert inside(code)[2] == "['/output', '/tmp']"


@pytest.mark.apptainer
def test_a_cell_sees_neither_the_hosts_files_nor_its_processes_nor_its_variables(
    ordinary_user: OrdinaryUser, inside: Inside
) -> None:
    code = f"""
        import os, socket
        print([path for path in ({str(ordinary_user.home)!r}, {str(ordinary_user.clone)!r}, "/sys/fs/cgroup")
               if os.path.exists(path)])
        print(sum(name.isdigit() for name in os.listdir("/proc")) < 10, socket.gethostname(), os.getcwd())
        print(sorted(name for name in os.environ if name.startswith(("APPTAINER", "SINGULARITY", "UPKEEP", "PIP"))))
    """
    assert inside(code)[2] == "[]\nTrue localhost /tmp\n['UPKEEP_METHODS']"


@pytest.mark.apptainer
def test_the_image_holds_the_cell_code_compiled_and_the_method(inside: Inside) -> None:
    code = """
        import os, upkeep.contract, numpy, msgspec
        compiled = [os.path.exists(module.__cached__) for module in (upkeep, numpy)]
        print(upkeep.__file__, *compiled, os.listdir("/methods"))
    """
    assert inside(code)[2] == "/opt/upkeep/upkeep/__init__.py True True ['null']"


@pytest.mark.apptainer
def test_one_process_that_takes_too_much_memory_fails_by_itself(inside: Inside) -> None:
    status, _, said = inside("x = b'x' * (3 * 2**29)\nprint('survived')")
    assert status == 1 and said.endswith("MemoryError")


@pytest.mark.apptainer
@pytest.mark.parametrize(
    "hold",
    ["x = b'x' * (600 * 2**20)", "open(f'/dev/shm/{os.getpid()}', 'wb').write(b'x' * (600 * 2**20))"],
    ids=["in memory", "in shared memory"],
)
def test_several_that_take_too_much_together_are_killed_and_the_reason_given(inside: Inside, hold: str) -> None:
    code = f"""
        import os, time
        for _ in range(2):
            if os.fork() == 0:
                {hold}
                time.sleep(60)
        time.sleep(60)
    """
    status, words, said = inside(code)
    assert status == 137 and "limit 1 GB" in words
    assert "killed: out of memory" in said


@pytest.mark.apptainer
def test_a_cell_cannot_start_processes_without_end(inside: Inside) -> None:
    code = """
        import os, time
        for count in range(1000):
            try:
                if os.fork() == 0:
                    time.sleep(60)
            except OSError:
                break
        print(count < 64, flush=True)
        os._exit(0)
    """
    assert inside(code)[::2] == (0, "True")


@pytest.mark.apptainer
def test_tmp_is_larger_than_apptainers_own_and_not_without_end(inside: Inside) -> None:
    code = """
        import os, time
        block = b"x" * 2**20
        for name in "abcd":
            with open(f"/tmp/{name}", "wb") as file:
                for _ in range(800):
                    file.write(block)
            print(name, flush=True)
        time.sleep(60)
    """
    _, words, said = inside(code)
    assert "SIGXFSZ" in words
    assert "killed: more than 2 GB in /tmp" in said and "b" in said


@pytest.mark.apptainer
def test_a_file_larger_than_the_limit_cannot_be_written(inside: Inside) -> None:
    assert "File too large" in inside("open('/output/big', 'wb').truncate(2**30 + 1)")[2]


def all_gone(processes: set[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=30)
    return not [process for process in alive if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.apptainer
def test_killing_a_cell_leaves_no_process_and_no_file(
    sleeper: Callable[[str], tuple[subprocess.Popen[str], set[psutil.Process]]],
) -> None:
    scratch = "[str(p) for p in Path(tempfile.gettempdir()).glob('upkeep-*') if p.owner() == Path.home().name]"
    host, below = sleeper(f"sys.stdin.readline(); b = {scratch}; print(handle.kill()); print(b, {scratch}, sep='|')")
    assert len(below) >= 5
    output, _ = host.communicate("go\n", timeout=60)
    status, _, folders = output.partition("\n")
    assert status == "137"
    before, after = (set(ast.literal_eval(names)) for names in folders.strip().split("|"))
    assert before - after, "what the cell had is gone; another test may have made its own since"
    assert all_gone(below)


@pytest.mark.apptainer
def test_a_cell_ends_when_its_host_is_killed(
    sleeper: Callable[[str], tuple[subprocess.Popen[str], set[psutil.Process]]],
) -> None:
    host, below = sleeper("sys.stdin.readline()")
    host.kill()
    host.wait()
    assert all_gone(below)
