"""The claims about isolation, tested from inside real containers."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import CACHE
from container_launches import ROOT, launch, script, until
from upkeep.catalog import Catalog
from upkeep.contract import Resources
from upkeep.execution import detection
from upkeep.execution.containers import Containers, container_name
from upkeep.execution.handle import Handle
from upkeep.execution.runtimes import Launch, Prepared
from upkeep.images import oci, plans
from upkeep.images.docker import CommandLine

__all__ = ["launch"]

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


# ---------------------------------------------------------------- real containers


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
