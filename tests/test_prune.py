"""What could be removed is said by kind, and nothing is removed that was not asked for."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from suite_fakes import CELLS, GUIDED, PLAIN, called, made
from upkeep.catalog import Catalog
from upkeep.files import digest
from upkeep.images.debian import MADE_BASE
from upkeep.images.environments import code_files, file_hashes
from upkeep.layout import Layout
from upkeep.operations import prune
from upkeep.operations.prune import Item

__all__ = ["made"]

LOCK = "numpy==2.4.6 --hash=sha256:" + "a" * 64 + "\n"


@pytest.fixture
def root(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(prune, "find_client", lambda _: None)
    root = Path(shutil.copytree(made, tmp_path / "root", symlinks=True))
    (root / "containers/vllm-cpu").mkdir()
    (root / "containers/vllm-cpu/requirements.lock").write_text(LOCK)
    (root / "src/upkeep/__init__.py").touch()
    catalog = Catalog(root)
    shutil.rmtree(catalog.cache, ignore_errors=True)
    used = digest(file_hashes(code_files(catalog, "echo", "base")))[:32]
    for place in (f"code/{used}/file", "code/" + "0" * 32 + "/file", "envs/" + "1" * 32 + "/lib/file"):
        put(catalog.cache / place)
    put(catalog.cache / "wheels" / ("a" * 64) / "numpy.whl")
    put(catalog.cache / "wheels" / ("b" * 64) / "older.whl")
    put(root / "results/samples/limit2/cells/file")
    folder = Layout(catalog.results).cell(GUIDED)
    (folder / "predictions.jsonl").write_text("")
    return root


def put(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(50_000))


def found(root: Path, *words: str, status: int = 0) -> list[Item]:
    out: list[str] = []
    code, errors = called(root, "prune", *words, "--json", out=out)
    assert code == status and not errors, errors
    return [Item(**item) for item in json.loads(out[0])["chosen"]]


def test_what_is_unused_is_told_by_kind_and_what_is_in_use_is_kept(root: Path) -> None:
    assert {(item.kind, item.name) for item in found(root)} == {
        ("environments", "code/" + "0" * 32),
        ("environments", "envs/" + "1" * 32),
        ("wheels", "older.whl"),
        ("cells", GUIDED),
        ("samples", "limit2"),
    }
    (cell,) = (item for item in found(root, "cells"))
    assert cell.why == "not the file that was written"
    assert all(item.bytes >= 50_000 for item in found(root, "wheels", "samples"))
    assert {item.name for item in found(root, "--used")} > {"numpy.whl"}


def test_nothing_is_removed_without_being_asked_for(root: Path) -> None:
    before = sorted(root.rglob("*"))
    out: list[str] = []
    assert called(root, "prune", "--used", out=out) == (0, "")
    assert sorted(root.rglob("*")) == before and "nothing was removed; --delete removes" in out[0]


def test_what_is_removed_is_what_was_told_and_the_rest_is_untouched(root: Path) -> None:
    told = {item.place for item in found(root)}
    out: list[str] = []
    assert called(root, "prune", "--delete", out=out) == (0, "")
    assert "removed 5:" in out[0] and "freed" in out[0]
    assert not any(Path(place).exists() for place in told)
    catalog = Catalog(root)
    assert (catalog.cache / "wheels" / ("a" * 64) / "numpy.whl").is_file()
    assert not (root / "results/graded" / GUIDED).exists()
    for cell in {*CELLS} - {GUIDED}:
        assert (root / "results/cells" / cell / "manifest.json").is_file()
    assert found(root) == []


def test_only_what_is_old_enough_is_told(root: Path) -> None:
    old = Catalog(root).cache / "wheels" / ("b" * 64)
    then = time.time() - 40 * 86400
    os.utime(old, (then, then))
    assert [item.name for item in found(root, "--older-than", "30")] == ["older.whl"]
    assert found(root, "--older-than", "50") == []


def test_images_of_an_engine_are_told_by_their_tags_and_removed_by_them(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "docker"
    log = tmp_path / "log"
    program.write_text(
        f"""#!/bin/sh
echo "$*" >> {log}
case "$1 $2" in
"image ls") printf 'sha256:a\\nsha256:b\\nsha256:c\\n' ;;
"image inspect") cat {tmp_path}/known ;;
"image history") cat {tmp_path}/"$7" ;;
"image rm") exit 0 ;;
esac
"""
    )
    program.chmod(0o755)
    tags = {"sha256:a": "upkeep/echo-base:0123456789abcdef", "sha256:b": "postgres:16", "sha256:c": f"{MADE_BASE}:1"}
    known = [
        {"Id": id, "RepoTags": [tag], "Size": 2_000_000_000, "Created": "2026-01-01T00:00:00.5Z"}
        for id, tag in tags.items()
    ]
    (tmp_path / "known").write_text(json.dumps(known))
    from upkeep.images.docker import CommandLine

    monkeypatch.setattr(prune, "find_client", lambda n: CommandLine(n, str(program)) if n == "docker" else None)
    (image,) = found(root, "images")
    assert (image.place, image.bytes) == ("docker:upkeep/echo-base:0123456789abcdef", 2_000_000_000)
    assert image.days > 300 and "image rm" not in log.read_text()
    out: list[str] = []
    assert called(root, "prune", "images", "--delete", out=out)[0] == 0
    assert "removed 1: 2.00 GB freed" in out[0]
    assert "image rm upkeep/echo-base:0123456789abcdef" in log.read_text() and "rm postgres" not in log.read_text()


DOCKER = {
    "a": [(0, '"USER 0:0"'), (7, '"RUN make"'), (0, '"WORKDIR /tmp"'), (100, '"RUN install"'), (1000, '""')],
    "b": [(9, '"COPY code /code # buildkit"'), (0, '"WORKDIR /tmp"'), (100, '"RUN install"'), (1000, '""')],
    "c": [(5, '"RUN other"'), (1000, '""')],
}
"""Image -> what `history` says of it, the newest first: bytes, and what made the layer, if it made one."""
_ADD, _MADE = ("1 kB", "/bin/sh -c #(nop) ADD file:1 in /"), ("0.1 kB", "|1 A=b /bin/sh -c install")
_SET, _AS = ("0 B", "/bin/sh -c #(nop) WORKDIR /tmp"), ("0 B", "/bin/sh -c #(nop) USER 0:0")
PODMAN = {
    "a": [_AS, ("7 B", "/bin/sh -c make"), _SET, _MADE, _ADD],
    "b": [("9 B", "/bin/sh -c #(nop) COPY dir:1 in /code"), _SET, _MADE, _ADD],
    "c": [("5 B", "/bin/sh -c other"), _ADD],
}
"""The same as Podman says it, for which what sets a folder makes no layer."""


@pytest.mark.parametrize("name", ["docker", "podman"])
@pytest.mark.parametrize(("third", "freed"), [("upkeep/third:1", 1000 + 100 + 7 + 9 + 5), ("postgres:16", 100 + 7 + 9)])
def test_a_layer_that_images_share_counts_once_and_not_where_another_image_has_it(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, third: str, freed: int
) -> None:
    from upkeep.images.docker import CommandLine

    layers = {"a": ["base", "venv", "tmp", "made"], "b": ["base", "venv", "tmp", "code"], "c": ["base", "other"]}
    tags = {"a": ["upkeep/one:1"], "b": ["upkeep/two:1"], "c": [third]}
    for id, said in (DOCKER if name == "docker" else PODMAN).items():
        lines = [f"{size} {by if name == 'docker' else json.dumps(by)}\n" for size, by in said]
        (tmp_path / id).write_text("".join(lines))
        if name == "podman":
            layers[id] = [layer for layer in layers[id] if layer != "tmp"]
    known = [
        {"Id": id, "RepoTags": tags[id], "Size": 10**6, "Created": "2026-01-01", "RootFS": {"Layers": layers[id]}}
        for id in layers
    ]
    (tmp_path / "known").write_text(json.dumps(known))
    program = tmp_path / name
    program.write_text(
        f"""#!/bin/sh
case "$1 $2" in
"image ls") printf 'a\\nb\\nc\\n' ;;
"image inspect") cat {tmp_path}/known ;;
"image history") cat {tmp_path}/"$7" ;;
"image rm") [ "$3" != upkeep/two:1 ] ;;
esac
"""
    )
    program.chmod(0o755)
    monkeypatch.setattr(prune, "find_client", lambda n: CommandLine(n, str(program)) if n == name else None)
    out: list[str] = []
    assert called(root, "prune", "images", "--json", out=out)[0] == 0
    assert json.loads(out[0])["frees"] == freed and json.loads(out[0])["freed"] == 0
    assert called(root, "prune", "images", "--delete", "--json", out=(out := []))[0] == 1
    # One of the two stays, and with it what they share: this, too, where nothing else would keep it.
    assert json.loads(out[0])["freed"] == 7 + (5 if "upkeep" in third else 0)


def test_an_engine_that_does_not_answer_is_told(root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from upkeep.images.docker import CommandLine

    monkeypatch.setattr(prune, "find_client", lambda n: CommandLine(n, str(tmp_path / "nowhere")))
    out: list[str] = []
    assert called(root, "prune", "images", out=out) == (0, "")
    assert "docker did not say which images it has" in out[0]


def test_what_cannot_be_removed_is_told_and_the_rest_is_removed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remove = prune.remove

    def fails(path: Path) -> None:
        if path.name == "b" * 64:
            raise PermissionError(13, "Permission denied", str(path))
        remove(path)

    monkeypatch.setattr(prune, "remove", fails)
    out: list[str] = []
    assert called(root, "prune", "--delete", out=out)[0] == 1
    assert "not removed: " in out[0] and "Permission denied" in out[0] and "removed 4:" in out[0]


def test_a_kind_that_there_is_not_is_told_with_the_nearest(root: Path) -> None:
    status, errors = called(root, "prune", "image")
    assert status == 2 and "did you mean images?" in errors
    assert (root / "results/cells" / PLAIN).is_dir()
