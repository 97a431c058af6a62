"""The suite `public` runs on a model that people make ready themselves, under its own terms, and never unasked."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from conftest import DATA, ROOT
from upkeep.building import store
from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.execution.fetch import fetch
from upkeep.operations.plan.estimate import make_plan

MODEL, SAMPLE = "gemma-3-270m", "evowiki_legislators_sample"
FOLDER = ROOT / "models" / MODEL


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(ROOT, None, {"results": str(tmp_path / "results"), "cache": str(tmp_path / "cache")})


def converter() -> ModuleType:
    spec = importlib.util.spec_from_file_location("convert_gemma", FOLDER / "convert.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_other_suite_asks_the_model_and_the_suite_is_not_the_configured_one(catalog: Catalog) -> None:
    asking = {name for name in catalog.suites for cell in catalog.cells(catalog.suite(name)) if MODEL in cell.model}
    assert asking == {"public"} != {yaml.safe_load((ROOT / "config/config.yaml").read_text())["suite"]}
    assert "Gemma" in catalog.model(MODEL).licence and "ai.google.dev/gemma/terms" in (FOLDER / "README.md").read_text()


def test_it_asks_a_sample_of_real_facts_and_two_minis_with_and_without_evidence(catalog: Catalog) -> None:
    cells = catalog.cells(catalog.suite("public"))
    asked = {(cell.dataset, cell.method) for cell in cells if cell.model == MODEL}
    datasets = {dataset for dataset, _ in asked}
    assert SAMPLE in datasets and len(datasets) == 3
    methods = ("closed_book", "oracle", "rag_bm25", "long_context")
    assert asked == {(dataset, method) for dataset in datasets for method in methods}


def test_its_plan_makes_nothing_and_says_what_is_missing(catalog: Catalog) -> None:
    plan = make_plan(catalog, "public", count=False)
    assert Counter(job.model for job in plan.jobs) == {MODEL: 12, "none": 6}
    assert any(SAMPLE in " ".join(job.unknown) for job in plan.jobs)
    assert not catalog.results.exists() and not catalog.cache.exists()


def test_weights_that_nobody_has_made_are_asked_for_and_not_fetched(catalog: Catalog, tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(f"models: {{{MODEL}: {tmp_path / 'weights'}}}")
    with pytest.raises(UpkeepError, match=f"no weights of the model '{MODEL}'"):
        fetch(Catalog(ROOT, own, {"results": str(tmp_path / "results")}), MODEL)


def test_nothing_is_converted_before_the_terms_are_agreed_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module, done = converter(), list[Path]()
    package = ModuleType(module.PACKAGE)
    package.__file__, package.assemble = str(tmp_path / "package/__init__.py"), print  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.PACKAGE, package)
    monkeypatch.setattr(module, "convert", lambda _, folder: done.append(folder))
    monkeypatch.setattr("sys.argv", ["convert.py", str(tmp_path / "out")])
    assert module.main() == 1 and done == []
    said = capsys.readouterr().out
    assert "Gemma Terms of Use" in said and str(tmp_path / "package/data/GEMMA_TERMS.html") in said
    monkeypatch.setattr("sys.argv", ["convert.py", str(tmp_path / "out"), "--i-agree"])
    assert module.main() == 0 and done == [tmp_path / "out"]
    assert ROOT / Catalog(ROOT).model(MODEL).location == module.FOLDER


@pytest.mark.data
def test_the_sample_has_as_many_questions_of_each_level_and_fits_a_small_machine(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(f"data: {{{SAMPLE}.snapshots: {DATA / 'legislators'}}}")
    catalog = Catalog(ROOT, own, {"results": str(tmp_path / "results")})
    card = build_dataset(catalog, SAMPLE, tmp_path / SAMPLE)
    assert card.probes == 72 and 72 < card.documents < 500
    levels = store.load(tmp_path / SAMPLE).gold["slice_level"].value_counts().rows()
    assert dict(levels) == dict.fromkeys(("stable", "evolved", "uncharted"), 24)
