"""Apptainer's options and images: every restriction, the same files the same bytes, nothing damaged is started."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import subprocess
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from apptainer_programs import PRELUDE
from conftest import CACHE, ROOT, copy_repository, make_smaller
from container_launches import RECORD
from ordinary_user import OrdinaryUser, ordinary_user, smaller_user
from test_door_cells import PROGRAM, bring
from upkeep.batches import Batch
from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.contract import Resources
from upkeep.errors import UpkeepError
from upkeep.execution import detection
from upkeep.execution.apptainer import Apptainer
from upkeep.execution.batch import run_batch
from upkeep.execution.fetch import fetch
from upkeep.execution.runtimes import Launch, Prepared
from upkeep.files import hash_file, remove_tree
from upkeep.images import apptainer, sif_bases, sif_files
from upkeep.images.apptainer import CommandLine
from upkeep.integrity import verify_folder
from upkeep.jobs import Cell
from upkeep.layout import Layout

__all__ = ["ordinary_user", "smaller_user"]

FILES = (Path("/cache/sif/base-0.sif"), Path("/cache/sif/null-base-0.sqsh"))


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    (tmp_path / "cell").mkdir()
    (tmp_path / "output").mkdir()
    return Launch(
        name="oaks/null",
        inputs={"cell": tmp_path / "cell"},
        output=tmp_path / "output",
        log=tmp_path / "log",
        resources=Resources(cpus=1, memory_gb=2, pids=64, disk_gb=1),
    )


def runtime(*, delegated: bool = False) -> Apptainer:
    client = CommandLine("/usr/bin/apptainer")
    client.__dict__["delegated"] = delegated
    return Apptainer(Catalog(ROOT), client, "for a test")


def words(launch: Launch, *, delegated: bool = False) -> list[str]:
    prepared = Prepared(RECORD, files=FILES)
    return runtime(delegated=delegated).command(prepared, launch, ["-m", "upkeep.cell"], Path("/scratch"))


def options(launch: Launch) -> list[tuple[str, str]]:
    """Every word of the command with the one after it."""
    command = words(launch)
    return list(zip(command, [*command[1:], ""], strict=True))


# ---------------------------------------------------------------- the command line


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--net", "--network"),
        ("--network", "none"),
        ("--userns", "--containall"),
        ("--containall", "--cleanenv"),
        ("--workdir", "/scratch"),
        ("--overlay", f"{FILES[1]}:ro"),
    ],
)
def test_a_container_is_started_with_every_restriction(launch: Launch, option: str, value: str) -> None:
    assert (option, value) in options(launch)


def test_only_the_output_is_writable(launch: Launch) -> None:
    mounts = [next(csv.reader([value])) for option, value in options(launch) if option == "--mount"]
    assert [each[2] for each in mounts if "readonly" not in each] == ["target=/output"]


def test_control_groups_that_the_user_may_change_are_never_shown(launch: Launch) -> None:
    assert "sys" in dict(options(launch))["--no-mount"].split(",")
    with_gpus = options(replace(launch, gpus=1))
    assert [value for option, value in with_gpus if option == "--mount" and "target=/sys/fs/cgroup,readonly" in value]


def test_a_cpu_cell_gets_no_gpu_and_a_gpu_cell_the_ones_it_was_given(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seen(launch: Launch) -> tuple[bool, str | None]:
        command = words(launch)
        settings = next(json.loads(word) for word in command if word.startswith('{"tasks"'))
        return "--nv" in command, settings["variables"].get("CUDA_VISIBLE_DEVICES")

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    assert seen(launch) == (False, None)
    assert seen(replace(launch, gpus=2)) == (True, "4,5")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert seen(replace(launch, gpus=2)) == (True, "0,1")


def test_where_control_groups_are_delegated_they_bound_memory_and_processes(launch: Launch) -> None:
    assert "--pids-limit" not in words(launch)
    command = words(launch, delegated=True)
    assert command[command.index("--memory") + 1] == command[command.index("--memory-swap") + 1] == "2G"
    assert command[command.index("--pids-limit") + 1] == "64"


def test_a_setting_of_the_host_that_opens_containers_reaches_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("APPTAINER_BIND", "SINGULARITY_BIND", "APPTAINERENV_HF_TOKEN", "HF_TOKEN", "APPTAINER_NO_MOUNT"):
        monkeypatch.setenv(name, "x")
    assert not [name for name, value in apptainer.environment({}).items() if value == "x"]


@pytest.mark.parametrize(
    ("release", "everyone"), [("6.1.0-18-amd64", False), ("5.14.0-427.el9", False), ("4.18.0-553.el8_10", True)]
)
def test_where_an_old_kernel_counts_all_of_a_users_processes_they_are_not_taken_from_the_cells(
    launch: Launch, monkeypatch: pytest.MonkeyPatch, release: str, everyone: bool
) -> None:
    monkeypatch.setattr("platform.release", lambda: release)
    settings = next(json.loads(word) for word in words(launch) if word.startswith('{"tasks"'))
    assert (settings["tasks"] > 64) == everyone


def test_root_is_sent_to_an_ordinary_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "ordinary user" in (CommandLine("/usr/bin/apptainer").answers() or "")


def test_apptainer_that_cannot_cut_the_network_is_refused_and_never_used_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuses = tmp_path / "apptainer"
    refuses.write_text("#!/bin/sh\necho 'FATAL: no network namespace for this user' >&2\nexit 255\n")
    refuses.chmod(0o755)
    monkeypatch.setenv("UPKEEP_APPTAINER", str(refuses))
    monkeypatch.setenv("UPKEEP_RUNTIME", "apptainer")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(apptainer, "mksquashfs", lambda: "mksquashfs")
    monkeypatch.setattr(apptainer, "squash", lambda *_, **__: None)
    with pytest.raises(UpkeepError, match="no network namespace for this user"):
        detection.detect(Catalog(ROOT))


# ---------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("name", "pulled"),
    [
        ("python:3.11-slim@sha256:ab", "docker://python@sha256:ab"),
        ("quay.io:443/a/python:3.11@sha256:ab", "docker://quay.io:443/a/python@sha256:ab"),
        ("mine:1", "docker://mine:1"),
        ("oci-archive:/x.tar", "oci-archive:/x.tar"),
        ("docker://a/b:1", "docker://a/b:1"),
    ],
)
def test_a_base_image_is_pulled_by_its_digest(name: str, pulled: str) -> None:
    assert sif_bases._pullable(name) == pulled


@pytest.mark.parametrize(("name", "source"), [("b.sif", "{}"), ("b.tar", "docker-archive:{}"), ("folder", "{}")])
def test_a_base_image_that_the_configuration_names_is_known_by_what_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: str
) -> None:
    def base(top: str, content: str) -> sif_bases.Base:
        path = tmp_path / top / name
        path.parent.mkdir()
        if name == "folder":
            path.mkdir()
            (path / "link").symlink_to("/nowhere")
            (path / "file").write_text(content)
        else:
            path.write_text(content)
        monkeypatch.setenv("UPKEEP_BASE_IMAGE", str(path))
        found = sif_bases.base_at_hand(Catalog(ROOT), "base")
        assert found is not None and found.source == source.format(path)
        return found

    first, same, other = base("a", "x"), base("b", "x"), base("c", "y")
    assert first.identity == same.identity != other.identity


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "root" / "opt").mkdir(parents=True)
    (tmp_path / "root" / "opt" / "file").write_text("content")
    return tmp_path / "root"


@pytest.mark.mksquashfs
def test_the_same_files_make_the_same_image_at_any_time(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sif_files.write_sif(folder, tmp_path / "one.sif", "ab" * 32)
    os.utime(folder / "opt" / "file", (1, 1))
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    sif_files.write_sif(folder, tmp_path / "two.sif", "ab" * 32)
    assert (tmp_path / "one.sif").read_bytes() == (tmp_path / "two.sif").read_bytes()
    (folder / "opt" / "file").write_text("changed")
    sif_files.write_sif(folder, tmp_path / "three.sif", "ab" * 32)
    assert (tmp_path / "three.sif").read_bytes() != (tmp_path / "two.sif").read_bytes()


@pytest.fixture
def image(tmp_path: Path) -> Path:
    (tmp_path / "partial").write_bytes(b"x" * 5000)
    sif_files.seal(tmp_path / "partial", tmp_path / "image.sif")
    return tmp_path / "image.sif"


def test_a_file_that_was_copied_whole_is_what_was_built(image: Path) -> None:
    first = sif_files.sealed(image)
    os.utime(image)
    assert sif_files.sealed(image) == first
    assert first is not None and first.sha256 == hash_file(image)


@pytest.mark.parametrize("content", [b"x" * 4999, b"x" * 4999 + b"y", b""])
def test_a_file_that_is_not_what_was_built_is_refused_with_a_remedy(image: Path, content: bytes) -> None:
    image.write_bytes(content)
    with pytest.raises(UpkeepError, match=f"remove it \\({image}\\)"):
        sif_files.sealed(image)


def test_a_file_without_its_seal_is_not_there_yet(image: Path) -> None:
    image.with_name("image.sif.json").unlink()
    assert sif_files.sealed(image) is None


def trial(user: OrdinaryUser, program: str, **arguments: object) -> Any:
    """What a program as that user leaves in `answer`."""
    program = PRELUDE + textwrap.dedent(program) + "\nprint(json.dumps(answer))\n"
    done = user.run("python", "-c", program, json.dumps(arguments), env={"UPKEEP_RUNTIME": "apptainer"})
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.apptainer
def test_two_that_start_at_once_build_an_image_once(ordinary_user: OrdinaryUser, tmp_path: Path) -> None:
    """A method of the user's own, so that its layer is not there yet."""
    method = ordinary_user.clone / "methods" / "null" / "method.py"
    original = method.read_text()
    method.write_text(f"{original}\n# {time.time_ns()}\n")
    try:
        env = {"UPKEEP_RUNTIME": "apptainer"}
        program = PRELUDE + "print(prepared.record.digest)"
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        both = [ordinary_user.start("python", "-c", program, env=env, **pipes) for _ in range(2)]
        said = [process.communicate(timeout=300) for process in both]
    finally:
        method.write_text(original)
    assert [process.returncode for process in both] == [0, 0], said
    assert said[0][0] == said[1][0]
    assert "".join(error for _, error in said).count("upkeep: building") == 1


ANEW = """
from upkeep.execution.apptainer import Apptainer

def with_files(*paths):
    # A cache of its own, with these files of the other.
    cache = folder / "cache"
    for name in ("sif", "images"):
        (cache / name).mkdir(parents=True)
    (cache / "wheels").symlink_to(catalog.cache / "wheels")
    for path in paths:
        for file in (path, sif_files._seal_of(path), catalog.cache / "images" / f"{path.name}.json"):
            if file.exists():
                shutil.copy2(file, cache / file.relative_to(catalog.cache))
    os.environ["UPKEEP_CACHE"] = str(cache)
    anew = Apptainer(Catalog(Path.cwd()), runtime.client, "")
    anew.catalog.results = folder / "results"
    return anew

base = Path(sif_bases.base_at_hand(catalog, "base").source)
"""


@pytest.mark.apptainer
def test_two_builds_of_one_plan_are_the_same_bytes(ordinary_user: OrdinaryUser) -> None:
    code = """
again = with_files(base).prepare("null", "base")
same = all(one.read_bytes() == other.read_bytes() for one, other in zip(prepared.files, again.files, strict=True))
answer = [same, set(prepared.files) & set(again.files) == set(), prepared.record.digest == again.record.digest]
shutil.rmtree(folder)
"""
    assert trial(ordinary_user, ANEW + code) == [True, True, True]


@pytest.mark.apptainer
def test_a_truncated_image_is_refused_before_a_cell_starts(ordinary_user: OrdinaryUser) -> None:
    code = """
anew = with_files(base, *prepared.files)
files = anew.prepare("null", "base").files
with files[0].open("r+b") as file:
    file.truncate(10_000_000)
try:
    anew.prepare("null", "base")
except UpkeepError as error:
    answer = [str(error), str(files[0]), anew.catalog.cache == folder / "cache"]
shutil.rmtree(folder)
"""
    said, path, own = trial(ordinary_user, ANEW + code)
    assert own and f"remove it ({path})" in said


CELLS = [
    "oaks_babi_mini/null/default/none",
    "oaks_babi_mini/closed_book/default/tiny",
    "oaks_babi_mini/rag_bm25/k3/tiny",
    "oaks_babi_mini/rag_dense/k1/tiny",
    "oaks_babi_mini/brought/default/tiny",  # a program, through the door
]
RUN = """
import sys
from pathlib import Path
from upkeep.batches import Batch
from upkeep.catalog import Catalog
from upkeep.integrity import verify_folder
from upkeep.jobs import Cell
from upkeep.building.build import build_dataset
from upkeep.execution.batch import run_batch
from upkeep.layout import Layout
from upkeep.execution.fetch import fetch

catalog = Catalog(Path.cwd())
build_dataset(catalog, "oaks_babi_mini", Layout(catalog.results).dataset("oaks_babi_mini"))
fetch(catalog, "tiny")
fetch(catalog, "minilm")
batch = Batch("cells", tuple(Cell(*name.split("/")) for name in sys.argv[1:]))
print("DIGESTS", *(manifest.environment.digest for manifest in run_batch(catalog, batch).values()))
"""


@pytest.mark.apptainer
@pytest.mark.docker
def test_cells_answer_byte_for_byte_as_under_docker(
    smaller_user: OrdinaryUser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring(Catalog(smaller_user.clone), "brought", ["python", "program"], PROGRAM)
    done = smaller_user.run("python", "-c", RUN, *CELLS, env={"UPKEEP_RUNTIME": "apptainer"}, timeout=1800)
    remove_tree(smaller_user.clone / "methods/brought")
    assert len(set(done.stdout.partition("DIGESTS ")[2].split())) == len(CELLS)
    monkeypatch.setenv("UPKEEP_RUNTIME", "docker")
    monkeypatch.setenv("UPKEEP_CACHE", str(CACHE))
    make_smaller(root := copy_repository(tmp_path))
    docker = bring(Catalog(root), "brought", ["python", "program"], PROGRAM)
    build_dataset(docker, "oaks_babi_mini", Layout(docker.results).dataset("oaks_babi_mini"))
    fetch(docker, "tiny")
    fetch(docker, "minilm")
    cells = [Cell(*name.split("/")) for name in CELLS]
    run_batch(docker, Batch("cells", tuple(cells)))
    for cell in cells:
        theirs = Layout(smaller_user.clone / "results").cell(cell) / "predictions.jsonl"
        assert theirs.read_bytes() == (Layout(docker.results).cell(cell) / "predictions.jsonl").read_bytes(), cell


@pytest.mark.apptainer
def test_an_engine_that_stands_still_is_named_and_ended_and_the_cell_goes_on_with_a_new_one(
    smaller_user: OrdinaryUser,
) -> None:
    cell = Cell("oaks_babi_mini", "long_context", "default", "tiny")
    code = RUN.replace("run_batch(catalog, batch)", "run_batch(catalog, batch, limits=Limits(engine_s=5.0))")
    code = "from upkeep.execution.watch import Limits\n" + code
    told = Layout(smaller_user.clone / "results").work("cells", cell) / "predictions.jsonl"
    command = ("python", "-c", code, str(cell))
    stopped: list[psutil.Process] = []
    with smaller_user.start(*command, env={"UPKEEP_RUNTIME": "apptainer"}, stdout=subprocess.DEVNULL) as host:
        while host.poll() is None and not stopped:
            if told.exists() and told.read_bytes().count(b"\n") >= 20:
                for process in psutil.Process(host.pid).children(recursive=True):  # others' tests have engines as well
                    with contextlib.suppress(psutil.NoSuchProcess):
                        if "upkeep.serving" in " ".join(process.cmdline()):
                            process.suspend()
                            stopped.append(process)
            time.sleep(0.005)
    assert stopped and host.returncode == 0
    assert not any(process.is_running() for process in stopped)
    first, *_, last = verify_folder(Layout(smaller_user.clone / "results").cell(cell)).attempts
    assert "the engine of 'tiny' hung: no reply and no sign of work for 5 s" in str(first.reason)
    assert last.outcome == "complete"
