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
from upkeep.batches import batches
from upkeep.building import store
from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.execution.fetch import fetch
from upkeep.identity import resources
from upkeep.operations.plan.estimate import make_plan

MODEL, SAMPLE, NOTES = "gemma-3-270m", "evowiki_legislators_sample", "imprint_code_rules_sample"
SMALL = {"evowiki_mini_sample": ("evowiki_mini", 24), "prelude_mini_sample": ("prelude_mini", 36)}
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


def test_it_asks_samples_of_real_facts_of_notes_and_of_two_worlds_with_and_without_evidence(catalog: Catalog) -> None:
    cells = catalog.cells(catalog.suite("public"))
    asked = {(cell.dataset, cell.method) for cell in cells if cell.model == MODEL}
    datasets = {dataset for dataset, _ in asked}
    assert datasets == {SAMPLE, NOTES, *SMALL}
    methods = ("closed_book", "oracle", "rag_bm25", "long_context")
    assert asked == {(dataset, method) for dataset in datasets for method in methods}


def test_its_plan_makes_nothing_and_says_what_is_missing(catalog: Catalog) -> None:
    plan = make_plan(catalog, "public", count=False)
    assert Counter(job.model for job in plan.jobs) == {MODEL: 16, "none": 8}
    unknown = " ".join(" ".join(job.unknown) for job in plan.jobs)
    assert SAMPLE in unknown and NOTES in unknown
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


@pytest.mark.data
def test_the_sample_of_release_notes_has_a_few_questions_of_each_family_over_all_documents(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(f"data: {{{NOTES}.notes: {DATA / 'changelogs'}, imprint_code_rules.notes: {DATA / 'changelogs'}}}")
    catalog = Catalog(ROOT, own, {"results": str(tmp_path / "results")})
    card = build_dataset(catalog, NOTES, tmp_path / NOTES)
    whole = build_dataset(catalog, "imprint_code_rules", tmp_path / "whole")
    assert card.documents == whole.documents and card.slices["family"] == dict.fromkeys(whole.slices["family"], 4)
    asked, all_of_them = (store.load(tmp_path / name).probes["question"] for name in (NOTES, "whole"))
    assert set(asked) < set(all_of_them)


@pytest.mark.parametrize("name", SMALL)
def test_a_sample_of_a_world_has_few_questions_and_keeps_all_rules(name: str, catalog: Catalog, tmp_path: Path) -> None:
    mini, asked = SMALL[name]
    card = build_dataset(catalog, name, tmp_path / name)
    store.validate(tmp_path / name)
    assert card.probes == asked and card.stands_for == catalog.dataset(mini).stands_for and not card.faults


def test_the_two_jobs_of_the_model_are_short_ones_of_a_thread_each(catalog: Catalog) -> None:
    jobs = [job for job in batches(catalog, catalog.cells(catalog.suite("public"))) if job.model == MODEL]
    assert [len(job.cells) for job in jobs] == [10, 6]
    assert {resources(catalog, cell.method, cell.model).cpus for job in jobs for cell in job.cells} == {1}
