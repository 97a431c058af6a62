"""Claims about the house: what imports what, and that docs/architecture.md draws it as it is."""

from __future__ import annotations

import ast
import graphlib
import importlib.util
from pathlib import Path

import pytest

from conftest import ROOT

SPEC = importlib.util.spec_from_file_location("drawn_imports", ROOT / "docs" / "imports.py")
assert SPEC is not None and SPEC.loader is not None
drawn = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(drawn)

MOST = 400
FOLDERS = (
    *("benchmarks", "config", "containers", "datasets", "docs", "methods", "models", "papers", "profiles", "rules"),
    *("src", "tests"),
)
WRITTEN = {".cff", ".css", ".in", ".j2", ".js", ".md", ".py", ".rst", ".smk", ".toml", ".yaml"}
NAMED = {"Dockerfile", "Snakefile", "upkeep"}
FAMILIES = sorted((ROOT / "datasets").glob("*/*.py"))
METRICS = [*sorted((ROOT / "papers").glob("*/metrics.py")), ROOT / "src/upkeep/template/paper/metrics.py"]
SHARED = {"building", "contract", "errors", "files", "yaml_files"}
"""What of the suite a family may import."""


def test_no_module_imports_another_in_a_circle() -> None:
    graphlib.TopologicalSorter(drawn.imports()).prepare()


def test_no_package_imports_one_that_imports_it() -> None:
    assert len(drawn.arrows()) > 10


@pytest.mark.parametrize(("package", "allowed"), [("cell", {"cell"}), ("serving", {"cell", "serving"})])
def test_what_runs_in_containers_imports_nothing_that_is_not_there(package: str, allowed: set[str]) -> None:
    found = {one for name, wanted in drawn.imports().items() if drawn.part(name) == package for one in wanted}
    assert {one for one in found if drawn.part(one) not in allowed} <= {"upkeep", "upkeep.contract"}


def test_the_page_draws_the_imports_as_they_are_and_names_every_package() -> None:
    page = drawn.PAGE.read_text()
    assert drawn.PLACE.search(page)[0] == drawn.drawing()  # type: ignore[index]
    folders = [path.name for path in (ROOT / "src/upkeep").iterdir() if (path / "__init__.py").is_file()]
    assert all(f"\n      {name}/ " in page for name in folders), folders


def written() -> list[Path]:
    """The files of the repository that people write: code, cards, papers, pages."""
    found = [*ROOT.iterdir(), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))]
    return [path for path in found if path.is_file() and (path.suffix in WRITTEN or path.name in NAMED)]


def test_no_file_that_people_write_is_too_long() -> None:
    lines = {str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines()) for path in written()}
    assert {"src/upkeep/catalog.py", "papers/oaks/tables.yaml", "tests/conftest.py", "upkeep"} <= lines.keys()
    assert not {name: count for name, count in lines.items() if count > MOST}


def imported(path: Path) -> list[tuple[int, str]]:
    """What a file imports: level and module."""
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    named = [(0, alias.name) for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return named + [(node.level, node.module or "") for node in nodes if isinstance(node, ast.ImportFrom)]


@pytest.mark.parametrize("path", FAMILIES, ids=lambda path: str(path.relative_to(ROOT / "datasets")))
def test_a_family_imports_its_own_modules_and_what_builders_share(path: Path) -> None:
    names = {family.parent.name for family in FAMILIES}
    for level, module in imported(path):
        assert level <= 1, "a module of its own is beside it"
        assert level or module.partition(".")[0] not in names, (
            "another family, or its own by a name that it may not have"
        )
        if not level and module.partition(".")[0] == "upkeep":
            assert module.split(".")[1] in SHARED, module


@pytest.mark.parametrize("family", sorted({path.parent for path in FAMILIES}), ids=lambda family: family.name)
def test_no_module_of_a_family_imports_another_in_a_circle(family: Path) -> None:
    own = {path.stem: path for path in family.glob("*.py")}
    wanted: dict[str, set[str]] = {}
    for name, path in own.items():
        nodes = [n for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.ImportFrom) and n.level]
        named = {alias.name if node.module is None else node.module for node in nodes for alias in node.names}
        wanted[name] = {one if one in own else "__init__" for one in named}
    graphlib.TopologicalSorter(wanted).prepare()


@pytest.mark.parametrize("path", METRICS, ids=lambda path: path.parent.name)
def test_a_papers_metrics_import_what_is_offered_to_them_and_nothing_else(path: Path) -> None:
    found = {module for level, module in imported(path) if level or module.partition(".")[0] == "upkeep"}
    assert found == {"upkeep.grading.metrics"}, "what it rests on besides would not make its scores stale"


def test_nothing_of_the_suite_imports_a_family() -> None:
    names = {family.parent.name for family in FAMILIES}
    found = {
        module.partition(".")[0] for path in drawn.modules().values() for level, module in imported(path) if not level
    }
    assert not found & names
