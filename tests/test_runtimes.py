"""Where cells run: the options of containers, which engine is taken, and what an exit status means."""

from __future__ import annotations

import csv
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from container_launches import RECORD, ROOT, containers, launch
from upkeep.catalog import Catalog
from upkeep.contract import Resources
from upkeep.errors import UpkeepError
from upkeep.execution import containers as in_containers
from upkeep.execution import detection
from upkeep.execution.containers import container_name, hidden_in, mount
from upkeep.execution.runtimes import Launch, Prepared
from upkeep.images import oci
from upkeep.images.docker import CommandLine

__all__ = ["launch"]


def options(launch: Launch, name: str = "docker") -> list[tuple[str, str]]:
    """Every word of the command with the one after it."""
    command = containers(name).command(Prepared(RECORD), launch, ["-m", "upkeep.cell"])
    assert command[-4:] == [RECORD.digest, "python", "-m", "upkeep.cell"]
    return list(zip(command, [*command[1:], ""], strict=True))


# ---------------------------------------------------------------- the command line of a container


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


@pytest.mark.parametrize("hidden", ["", "weights", "weights/model.safetensors"])
def test_inputs_that_cells_could_not_read_are_refused_with_a_remedy(
    launch: Launch, monkeypatch: pytest.MonkeyPatch, hidden: str
) -> None:
    folder = launch.inputs["cell"]
    (folder / "weights").mkdir(mode=0o755)
    (folder / "weights/model.safetensors").write_bytes(b"")
    (folder / "weights/model.safetensors").chmod(0o644)
    (folder / "weights/link").symlink_to("/nowhere")
    runtime = containers()
    monkeypatch.setattr(runtime, "user", lambda: (65534, 65534))
    assert hidden_in(folder) is None
    (folder / hidden).chmod(0o600)
    with pytest.raises(UpkeepError, match=rf"(?s){folder / hidden}: cells cannot.*chmod -R o\+rX {folder}\b"):
        runtime.start(Prepared(RECORD), launch)


def test_a_missing_input_is_refused_before_anything_starts(launch: Launch, tmp_path: Path) -> None:
    gone = replace(launch, inputs={**launch.inputs, "model": tmp_path / "gone"})
    with pytest.raises(UpkeepError, match="the cell's model is missing"):
        containers().start(Prepared(RECORD), gone)


def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: str) -> Catalog:
    monkeypatch.setenv("UPKEEP_RUNTIME", runtime)
    monkeypatch.setenv("UPKEEP_CACHE", str(tmp_path / "cache"))
    return Catalog(ROOT)


# ---------------------------------------------------------------- choosing


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
