"""Cards and names: what is unknown or malformed is refused at the start, with file, field and remedy."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from conftest import ROOT, copy_repository
from upkeep import cli
from upkeep.catalog import Catalog
from upkeep.contract import CellChoice
from upkeep.errors import UpkeepError
from upkeep.identity import describe, plan_identity
from upkeep.jobs import Cell, TrainedModel, Training
from upkeep.operations.validate import validate_path


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog(ROOT)


def test_every_card_of_the_repository_is_valid(catalog: Catalog) -> None:
    for method in catalog.methods:
        catalog.method(method)
    for model in catalog.models:
        catalog.model(model)
    for dataset in catalog.datasets:
        catalog.dataset(dataset)
    for prompt in catalog.prompts:
        catalog.prompt(prompt)


def test_every_suite_names_known_cells_only(catalog: Catalog) -> None:
    for suite in catalog.suites:
        cells = catalog.cells(catalog.suite(suite))
        assert cells and len(set(cells)) == len(cells)


def test_every_hub_model_is_pinned_to_a_commit(catalog: Catalog) -> None:
    for name in catalog.models:
        spec = catalog.model(name)
        if spec.source == "hub":
            assert spec.revision is not None and len(spec.revision) == 40, name


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("oaks_baby_mini/closed_book/default/tiny", ["unknown dataset", "did you mean oaks_babi"]),
        ("oaks_babi_mini/closedbook/default/tiny", ["unknown method", "closed_book"]),
        ("oaks_babi_mini/rag_bm25/k999/tiny", ["no variant 'k999'", "method.yaml", "k30"]),
        ("oaks_babi_mini/rag_bm25/k5/tinny", ["unknown model", "tiny"]),
        ("oaks_babi_mini/null/default/tiny", ["calls no model", "none"]),
        ("oaks_babi_mini/closed_book/default/tiny+rag_bm25.k5", ["trains no model"]),
        ("oaks_babi_mini/closed_book/default/tiny+sft.fantasy", ["no variant 'fantasy'"]),
    ],
)
def test_an_unknown_name_is_refused_with_what_there_is(catalog: Catalog, cell: str, words: list[str]) -> None:
    with pytest.raises(UpkeepError) as error:
        catalog.check(Cell.parse(cell))
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize("text", ["", "a/b/c", "a//b/c", "a/b/c/d/e"])
def test_a_cell_has_four_names(text: str) -> None:
    with pytest.raises(UpkeepError, match="DATASET/METHOD/VARIANT/MODEL"):
        Cell.parse(text)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (("variants:", "variantz:"), ["method.yaml", "variantz", "did you mean `variants`"]),
        (("variants:", "colour: red\nvariants:"), ["`colour`", "the fields here and below are", "supervision"]),
        (("label: Closed book", "label: 2024-01-01"), ["method.yaml", "$.label", "put it in quotes"]),
        (("label: Closed book", "label: 3"), ["method.yaml", "$.label"]),
        (("variants:", "settings: [kk]\nvariants:"), ["method.yaml: settings: unknown setting 'kk'"]),
        (("label: Closed book", "label: [unclosed"), ["method.yaml", "not readable as YAML"]),
        (("label: Closed book", "label: a\nlabel: b"), ["method.yaml:2", "`label`", "given twice", "lines 1 and 2"]),
        (("variants:", "variants: &v {a: {}}\nvariants:"), ["method.yaml", "`variants`", "given twice"]),
        (("default: {}", "default: {n: {k: 1, k: 1}}"), ["method.yaml", "`k`", "given twice"]),
        (("default: {}", "default: {n: [{k: 1, k: 2}]}"), ["method.yaml", "`k`", "given twice"]),
    ],
)
def test_a_malformed_card_names_file_and_field(repository: Path, edit: tuple[str, str], words: list[str]) -> None:
    card = repository / "methods" / "closed_book" / "method.yaml"
    card.write_text(card.read_text().replace(*edit))
    with pytest.raises(UpkeepError) as error:
        Catalog(repository).method("closed_book")
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (("marker:", "markers:"), ["prompts/evowiki.yaml", "markers"]),
        (('marker: "The correct answer:"', "marker: ''"), ["prompts/evowiki.yaml", "$.marker"]),
        (("form: short", "form: long"), ["$.form", "'long'", "write one of choice, label, short"]),
        (("system: |-", "system: [1]\nclosing: |-"), ["prompts/evowiki.yaml", "$.system"]),
        ((', question: "# Question"', ""), ["prompts/evowiki.yaml", "`question`", "$.headings"]),
        (("form: short", "form: short\nasks: {long: Answer.}"), ["prompts/evowiki.yaml", "$.asks"]),
        (("form: short", "form: short\nchinese: {system: 读}"), ["prompts/evowiki.yaml", "`closed`", "$.chinese"]),
        (("form: short", "form: short\nindexed: 1"), ["prompts/evowiki.yaml", "$.indexed"]),
    ],
)
def test_a_malformed_prompt_names_file_and_field(repository: Path, edit: tuple[str, str], words: list[str]) -> None:
    file = repository / "papers/evowiki/prompts/evowiki.yaml"
    assert edit[0] in file.read_text()
    file.write_text(file.read_text().replace(*edit))
    for read in (lambda: Catalog(repository).prompt("evowiki"), lambda: validate_path(file)):
        with pytest.raises(UpkeepError) as error:
            read()
        for word in words:
            assert word in str(error.value)


def test_a_dataset_whose_prompt_there_is_none_of_is_refused_with_its_card(repository: Path) -> None:
    cell = Cell.parse("evowiki_mini/closed_book/default/tiny")
    (repository / "papers/evowiki/prompts/evowiki.yaml").rename(repository / "papers/evowiki/prompts/evowikis.yaml")
    for refused in (lambda: Catalog(repository).check(cell), lambda: describe(Catalog(repository), cell, 1)):
        with pytest.raises(UpkeepError, match="unknown prompt 'evowiki'") as error:
            refused()
        assert error.value.where == repository / "datasets/evowiki/dataset.yaml"
        assert "no papers/evowiki/prompts/evowiki.yaml" in str(error.value) and "did you mean evowikis" in str(
            error.value
        )


def test_prompts_are_listed_with_their_files(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["upkeep", "--root", str(ROOT), "list", "prompts"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    listed = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert listed == {path.stem: str(path.relative_to(ROOT)) for path in ROOT.glob("papers/*/prompts/*.yaml")}


def test_two_papers_cannot_have_prompts_of_one_name(repository: Path) -> None:
    there = repository / "papers/oaks/prompts/oaks_babi.yaml"
    second = repository / "papers/evowiki/prompts/oaks_babi.yaml"
    shutil.copy(there, second)
    with pytest.raises(UpkeepError, match="two prompts with the name 'oaks_babi'") as error:
        Catalog(repository).check(Cell.parse("oaks_novel_mini/closed_book/default/tiny"))
    assert str(there) in str(error.value) and str(second.relative_to(repository)) in str(error.value)


def test_merged_keys_may_be_given_again(repository: Path) -> None:
    card = repository / "methods" / "closed_book" / "method.yaml"
    merged = "default: &a {k: 1, n: &l [1]}\n  b: &b {<<: *a, k: 2, m: *l}\n  c: {<<: [*b, *a], k: 3}"
    card.write_text(card.read_text().replace("default: {}", merged))
    variants = Catalog(repository).method("closed_book").variants
    assert variants["b"] == {"k": 2, "n": [1], "m": [1]}
    assert variants["c"] == {"k": 3, "n": [1], "m": [1]}


def test_a_trained_model_is_named_after_base_and_training() -> None:
    assert TrainedModel.parse("qwen2.5-7b+sft.lora") == TrainedModel("qwen2.5-7b", "sft", "lora")
    assert TrainedModel.parse("qwen2.5-7b") is None


def test_a_trained_model_can_be_trained_again() -> None:
    twice = TrainedModel.parse("tiny+cpt.full+sft.lora")
    assert twice == TrainedModel("tiny+cpt.full", "sft", "lora")


def test_a_method_without_variant_in_a_suite_means_all_of_them(catalog: Catalog) -> None:
    choice = CellChoice(datasets=["oaks_babi_mini"], methods=["rag_bm25"], models=["tiny"])
    cells = list(catalog.cells_of(choice))
    assert [cell.variant for cell in cells] == list(catalog.method("rag_bm25").variants)


def test_the_environment_overrides_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPKEEP_SUITE", "oaks")
    assert Catalog(ROOT).config.suite == "oaks"
    monkeypatch.setenv("UPKEEP_RUNTIME", "abacus")
    with pytest.raises(UpkeepError, match="abacus"):
        Catalog(ROOT)


def test_what_a_command_line_chooses_holds_for_that_command_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = dict(os.environ)
    monkeypatch.setattr(sys, "argv", ["upkeep", "--root", str(ROOT), "list", "cells", "nothing"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1 and dict(os.environ) == before
    monkeypatch.setenv("UPKEEP_SUITE", "mini")
    assert Catalog(ROOT, None, {"suite": "oaks"}).config.suite == "oaks"


def test_a_users_configuration_may_not_give_a_field_twice(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("suite: oaks\nsuite: mini\n")
    with pytest.raises(UpkeepError, match="`suite` is given twice"):
        Catalog(ROOT, own)


def test_a_users_configuration_changes_the_fields_it_names_alone(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("data: {oaks_babi: /somewhere/oaks.json}\n")
    config = Catalog(ROOT, own).config
    assert config.data == {"oaks_babi": "/somewhere/oaks.json"} and config.suite == "mini"


@pytest.mark.parametrize(
    ("method", "model", "below", "engines"),
    [
        ("null", "none", "base", []),
        ("closed_book", "tiny", "base", ["transformers"]),
        ("closed_book", "tiny-vllm", "base", ["vllm-cpu"]),
        ("closed_book", "qwen3-30b", "base", ["vllm-gpu"]),
        ("closed_book", "o3-mini", "base", []),
        ("closed_book", "tiny+sft.lora", "base", ["transformers"]),
        ("rag_dense", "tiny-vllm", "base", ["vllm-cpu", "embedder-cpu"]),
        ("rag_dense", "qwen3-30b", "base", ["vllm-gpu", "embedder-gpu"]),
        ("rag_dense", "o3-mini", "base", ["embedder-cpu"]),
        ("sft", "tiny-vllm", "transformers", []),
        ("sft", "qwen3-4b", "vllm-gpu", []),
    ],
)
def test_a_method_has_an_image_without_an_engine_and_each_of_its_models_one_of_its_own(
    catalog: Catalog, method: str, model: str, below: str, engines: list[str]
) -> None:
    kind = Training if catalog.trains(method) else Cell
    job = kind("oaks_babi_mini", method, next(iter(catalog.method(method).variants)), model)
    assert catalog.images(job) == [(method, below), *((None, engine) for engine in engines)]


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (("datasets: [oaks_babi_mini", "datasets: [oaks_baby_mini"), ["unknown dataset", "did you mean oaks_babi"]),
        (("methods: [", "methods: [closedbook, "), ["unknown method", "closed_book"]),
        (("methods: [", "methods: [rag_bm25/k999, "), ["no variant 'k999'", "methods/rag_bm25/method.yaml"]),
        (("papers: []", "papers: [oask]"), ["unknown paper 'oask'", "did you mean oaks"]),
        (("models: [", "models: [tinny, "), ["unknown model", "tiny"]),
        (("models: [", "models: [gpt-4o, "), ["gpt-4o-evowiki, gpt-4o-prelude", "models/gpt-4o/model.yaml"]),
        (("models: [", "models: [tiny+rag_bm25.k5, "), ["trains no model", "tiny+rag_bm25.k5"]),
    ],
)
def test_an_unknown_name_in_a_suite_is_refused_with_the_suites_file(
    repository: Path, edit: tuple[str, str], words: list[str]
) -> None:
    suite = repository / "config" / "suites" / "own.yaml"
    text = "label: s\nsummary: s\npapers: []\ncells:\n"
    text += "- {datasets: [oaks_babi_mini], methods: [rag_bm25], models: [tiny]}"
    assert edit[0] in text
    suite.write_text(text.replace(*edit))
    catalog = Catalog(repository)
    with pytest.raises(UpkeepError) as error:
        catalog.cells(catalog.suite("own"))
    for word in [f"{suite}: ", *words]:
        assert word in str(error.value)
    with pytest.raises(UpkeepError) as told:
        validate_path(suite)
    assert str(told.value) == str(error.value)


@pytest.mark.parametrize(
    ("card", "edit", "words"),
    [
        ("datasets/evowiki/dataset.yaml", ("prompt: evowiki", "prompt: evowikki"), ["unknown prompt 'evowikki'"]),
        ("datasets/evowiki/dataset.yaml", ("metrics: evowiki", "metrics: evowikki"), ["unknown metrics 'evowikki'"]),
        (
            "datasets/evowiki/dataset.yaml",
            ("paper: evowiki", "paper: evowikki"),
            ["dataset.yaml: paper: unknown paper"],
        ),
        ("methods/rag_dense/method.yaml", ("embedder: ", "embedder: x-"), ["unknown model 'x-"]),
    ],
)
def test_a_card_is_valid_where_all_that_it_names_is_there(
    repository: Path, card: str, edit: tuple[str, str], words: list[str]
) -> None:
    path = repository / card
    assert validate_path(path).startswith(f"{path.name}: a valid ")
    path.write_text(path.read_text().replace(*edit))
    with pytest.raises(UpkeepError) as error:
        validate_path(path)
    assert all(word in str(error.value) for word in words), error.value


def test_a_suite_without_cells_has_none_to_list(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "config" / "suites" / "none.yaml").write_text("label: s\nsummary: s\npapers: []\ncells: []")
    monkeypatch.setattr(sys, "argv", ["upkeep", "--root", str(repository), "list", "cells", "none"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 0 and capsys.readouterr().out == ""


# ---------------------------------------------------------------- models by role


def choose(root: Path, **chosen: str) -> Catalog:
    """A copy of the repository in which a variant of `rag_dense` chooses models."""
    card = root / "methods/rag_dense/method.yaml"
    settings = yaml.safe_load(card.read_text())
    settings |= {"settings": ["k"], "variants": {"k5": {"k": 5}, "own": {"k": 5, **chosen}}}
    card.write_text(yaml.safe_dump(settings))
    return Catalog(root)


def test_a_variant_chooses_its_models_and_they_are_no_parameters(tmp_path: Path) -> None:
    catalog = choose(copy_repository(tmp_path), embedder="bge-large-en-v1.5", writer="tiny")
    plain, own = (Cell("oaks_babi_mini", "rag_dense", variant, "pico") for variant in ("k5", "own"))
    assert catalog.asked(plain) == {"reader": "pico", "embedder": "minilm"}
    assert catalog.asked(own) == {"reader": "pico", "writer": "tiny", "embedder": "bge-large-en-v1.5"}
    assert catalog.parameters(own) == catalog.parameters(plain) == {"k": 5}
    catalog.check(own)
    told = describe(catalog, own, 1)
    assert told.writer_spec == catalog.model("tiny") and told.parameters == {"k": 5}
    assert plan_identity(catalog, own) != plan_identity(catalog, plain)


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({"writer": "minilm"}, "role: generator"),
        ({"embedder": "pico"}, "role: embedder"),
        ({"writer": "qwen3-4b"}, "is on GPUs"),
        ({"writer": "picco"}, "did you mean pico"),
    ],
)
def test_a_model_that_cannot_play_its_role_is_refused_with_the_place(
    tmp_path: Path, chosen: dict[str, str], words: str
) -> None:
    catalog = choose(copy_repository(tmp_path), **chosen)
    with pytest.raises(UpkeepError, match=words):
        catalog.check(Cell("oaks_babi_mini", "rag_dense", "own", "pico"))
