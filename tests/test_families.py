"""Claims about families: what a dataset is made of, whose code builds it, what makes it stale; one of one's own."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import evolveqa
import oaks_babi
from conftest import ROOT
from host_fakes import make_repository, write_toy
from upkeep.building import store
from upkeep.building.build import build_dataset, builder, code
from upkeep.building.builders import oaks_release
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.grading.basis import Basis
from upkeep.identity import plan_dataset

COMMON = {"summary": "s", "paper": "p", "source": "here", "licence": "CC0-1.0"}
COMMON |= {"prompt": "evolveqa", "equivalence": "contains", "metrics": "answers"}
CODE = """
from . import words
from upkeep.building import assembling, store, tokens
from upkeep.building.assembling import Built, Stream
from upkeep.building.context import Context

def build(context: Context) -> Built:
    streams = [Stream("s", [words.TEXT])]
    item = assembling.Item(id="q", stream="s", text="What?", answers=["x"], slices={})
    measure = tokens.load()
    tables = assembling.collect(streams, [item], measure)
    return Built(*tables, [], str(measure), 99, "here", {})
"""


def family(root: Path, name: str, card: Any, **files: str) -> Catalog:
    """A repository with a family more; `__init__` and other modules by their names."""
    folder = root / "datasets" / name
    folder.mkdir(parents=True)
    (folder / "dataset.yaml").write_text(card if isinstance(card, str) else yaml.safe_dump(card))
    for module, text in files.items():
        (folder / f"{module}.py").write_text(text)
    (root / "config").mkdir(exist_ok=True)
    (root / "config/config.yaml").write_text("{}")
    return Catalog(root)


# ---------------------------------------------------------------- dataset.yaml


def test_a_variant_replaces_fields_and_joins_options(tmp_path: Path) -> None:
    card = COMMON | {"label": "All", "options": {"a": 1, "b": {"c": 1}}, "faults": {"encoding": "skip"}}
    variants = {"full": None, "mini": {"label": "Small", "options": {"b": {"d": 2}, "e": 3}, "faults": {}}}
    catalog = family(tmp_path, "news", card | {"variants": variants})
    assert catalog.datasets == ["news", "news_mini"]
    full, mini = catalog.dataset("news"), catalog.dataset("news_mini")
    assert full.label == "All" and full.options == {"a": 1, "b": {"c": 1}} and full.faults == {"encoding": "skip"}
    assert mini.label == "Small" and mini.options == {"a": 1, "b": {"d": 2}, "e": 3} and mini.faults == {}
    assert mini.summary == full.summary == "s"


@pytest.mark.parametrize(
    "fields",
    [
        {"stands_for": "x"},
        {"provenance": "stand_in"},
        {"provenance": "release", "stands_for": "x"},
        {"provenance": "y"},
    ],
)
def test_a_stand_in_says_what_for_and_nothing_else_does(tmp_path: Path, fields: dict[str, str]) -> None:
    catalog = family(tmp_path, "news", COMMON | {"label": "N"} | fields)
    with pytest.raises(UpkeepError, match=r"datasets/news/dataset\.yaml") as error:
        catalog.dataset("news")
    assert "provenance" in str(error.value)


def test_a_dataset_that_says_nothing_is_none_of_any_papers(tmp_path: Path) -> None:
    assert family(tmp_path, "news", COMMON | {"label": "N"}).dataset("news").provenance == "own"


def test_a_family_without_variants_is_one_dataset(tmp_path: Path) -> None:
    assert family(tmp_path, "news", COMMON | {"label": "N"}).datasets == ["news"]


def test_a_family_need_not_have_a_dataset_of_its_own_name(tmp_path: Path) -> None:
    catalog = family(tmp_path, "news", COMMON | {"variants": {"one": {"label": "1"}, "two_mini": {"label": "2"}}})
    assert catalog.datasets == ["news_one", "news_two_mini"]
    assert {catalog.family_of(name) for name in catalog.datasets} == {"news"}
    with pytest.raises(UpkeepError, match="unknown dataset 'news'") as error:
        catalog.dataset("news")
    assert "datasets/news/dataset.yaml" in str(error.value) and "news_one" in str(error.value)


@pytest.mark.parametrize(
    ("name", "found"), [("news_no", "no such variant in datasets/news/dataset.yaml"), ("x", "no datasets/x")]
)
def test_an_unknown_dataset_is_refused_with_what_there_is(tmp_path: Path, name: str, found: str) -> None:
    catalog = family(tmp_path, "news", COMMON | {"variants": {"full": {"label": "N"}, "mini": {"label": "M"}}})
    with pytest.raises(UpkeepError) as error:
        catalog.dataset(name)
    assert found in str(error.value) and "one of news, news_mini" in str(error.value)


BROKEN: dict[str, tuple[Any, list[str]]] = {
    "a field of a wrong type": ({"variants": {"mini": {"label": 5}}}, ["variants.mini", "label"]),
    "an unknown field": ({"variants": {"mini": {"label": "N", "lable": "N"}}}, ["variants.mini", "lable"]),
    "a field that is missing": ({"variants": {"mini": {}}}, ["variants.mini", "label"]),
    "a common field of a wrong type": ({"label": "N", "paper": 5, "variants": {"mini": {}}}, ["paper"]),
    "an unknown common field": ({"label": "N", "papr": "x", "variants": {"mini": {}}}, ["papr"]),
    "a wrong field that no variant keeps": ({"label": 5, "variants": {"mini": {"label": "N"}}}, ["label"]),
    "options that are no mapping": ({"label": "N", "variants": {"mini": {"options": [1]}}}, ["variants", "options"]),
    "a variant that is no mapping": ({"label": "N", "variants": {"mini": 5}}, ["variants.mini"]),
    "variants that are no mapping": ({"label": "N", "variants": ["mini"]}, ["variants"]),
    "no variant": ({"label": "N", "variants": {}}, ["variants"]),
    "variants of variants": ({"label": "N", "variants": {"mini": {"variants": {}}}}, ["variants.mini", "variants"]),
    "a variant whose name is a path": ({"label": "N", "variants": {"../x": {}}}, ["variants"]),
    "without variants, a field that is missing": ({}, ["label"]),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_family_is_refused_with_file_variant_and_field(tmp_path: Path, what: str) -> None:
    given, words = BROKEN[what]
    catalog = family(tmp_path, "news", COMMON | given)
    with pytest.raises(UpkeepError) as error:
        catalog.dataset("news_mini")
    card = tmp_path / "datasets/news/dataset.yaml"
    assert str(error.value.where).startswith(str(card))
    assert all(word in f"{error.value.where} {error.value.problem}" for word in words), error.value


@pytest.mark.parametrize("text", ["[1]", "5", "", "variants:", "label: [", "variants: {a: {}, a: {}}"])
def test_a_file_that_is_no_family_is_refused_with_its_name(tmp_path: Path, text: str) -> None:
    catalog = family(tmp_path, "news", text)
    with pytest.raises(UpkeepError, match=re.escape(str(tmp_path / "datasets/news/dataset.yaml"))):
        catalog.dataset("news")


def test_a_dataset_of_two_families_is_refused_with_both(tmp_path: Path) -> None:
    family(tmp_path, "a", COMMON | {"label": "A", "variants": {"b_c": {}}})
    catalog = family(tmp_path, "a_b", COMMON | {"label": "B", "variants": {"c": {}}})
    with pytest.raises(UpkeepError, match="two families") as error:
        catalog.dataset("a_b_c")
    assert "datasets/a/dataset.yaml" in str(error.value) and "datasets/a_b/dataset.yaml" in str(error.value)


def test_a_broken_family_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    family(tmp_path, "broken", "label: [")
    catalog = family(tmp_path, "news", COMMON | {"label": "N"})
    assert catalog.dataset("news").label == "N"


# ---------------------------------------------------------------- the builder's code


def test_the_builder_of_the_suites_own_families_is_what_a_test_imports() -> None:
    catalog = Catalog(ROOT)
    assert builder(catalog, "oaks_babi_mini") is oaks_babi.build
    assert builder(catalog, "evolveqa_who") is evolveqa.build
    assert code(catalog, "evolveqa", "questions") is sys.modules["evolveqa.questions"]
    assert builder(catalog, "oaks_novel") is oaks_release.build


def test_each_copy_of_the_suite_has_its_own_code(tmp_path: Path) -> None:
    texts = {}
    for name in ("first", "second"):
        catalog = family(tmp_path / name, "news", COMMON | {"label": "N"}, __init__=CODE, words=f'TEXT = "the {name}"')
        build_dataset(catalog, "news", tmp_path / name / "out")
        texts[name] = store.load(tmp_path / name / "out").documents["text"].to_list()
    assert texts == {"first": ["the first"], "second": ["the second"]}


def test_a_copy_of_a_family_is_not_the_one_that_a_test_imports(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "datasets/oaks_babi", tmp_path / "datasets/oaks_babi")
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").write_text("{}")
    theirs = builder(Catalog(tmp_path), "oaks_babi_mini")
    assert theirs is not oaks_babi.build and theirs.__code__.co_filename.startswith(str(tmp_path))


def test_a_family_may_be_called_as_a_package_that_python_has(tmp_path: Path) -> None:
    catalog = family(tmp_path, "json", COMMON | {"label": "N"}, __init__=CODE, words='TEXT = "ours"')
    build_dataset(catalog, "json", tmp_path / "out")
    assert sys.modules["json"] is json and store.load(tmp_path / "out").documents["text"].to_list() == ["ours"]


MADE = """from upkeep.building.assembling import Item, Question, Stream
GIVEN = {{"id": "q", "stream": "s", "text": "Who?", "answers": ["x"], "slices": {{}}}}
def build(context):
    {}
"""
FAULTY: dict[str, tuple[dict[str, str], str, str]] = {
    "syntax": ({"__init__": "x = 1\ndef build(:\n"}, "__init__.py:2", "SyntaxError"),
    "raises": ({"__init__": "x = 1\n\nraise ValueError('not today')\n"}, "__init__.py:3", "not today"),
    "ends": ({"__init__": "import sys\nsys.exit(3)\n"}, "__init__.py:2", "SystemExit"),
    "a module of its own raises": (
        {"__init__": "from . import words\n", "words": "\n1 / 0\n"},
        "words.py:2",
        "division",
    ),
    "a module of its own is missing": ({"__init__": "from . import steps\n"}, "__init__.py:1", "steps"),
    "a package is missing": ({"__init__": "\nimport no_such_package\n"}, "__init__.py:2", "no_such_package"),
    "no build": ({"__init__": "BUILD = 1\n"}, "__init__.py", "without `build`"),
    "build is no function": ({"__init__": "build = 1\n"}, "__init__.py", "without `build`"),
    "no code": ({}, "datasets/news", "without a builder"),
    "it fails as it builds": (
        {"__init__": "def build(context):\n    return {}['x']\n"},
        "__init__.py:2",
        "KeyError: 'x'",
    ),
    "it gives nothing": ({"__init__": "\ndef build(context):\n    pass\n"}, "__init__.py:2", "returned something else"),
    "a stream's texts are a text": (
        {"__init__": MADE.format("Stream('s', 'Once.')")},
        "__init__.py:4",
        "stream 's': `texts` is a text",
    ),
    "answers at a position are a text": (
        {"__init__": MADE.format("Question('q', 's', 'Who?', ['Ann', 'Bob'], [[0], [1]], {})")},
        "__init__.py:4",
        "question 'q': `answers` is a text",
    ),
} | {
    f"an item's {name} are a text": (
        {"__init__": MADE.format(f"Item(**GIVEN | {{'{name}': 'red'}})")},
        "__init__.py:4",
        f"item 'q': `{name}` is a text, expected a list of texts: {name}=['red']",
    )
    for name in ("answers", "outdated", "evidence", "options")
}


@pytest.mark.parametrize("what", FAULTY)
def test_a_builder_that_cannot_be_used_is_refused_with_its_place(tmp_path: Path, what: str) -> None:
    files, place, word = FAULTY[what]
    catalog = family(tmp_path, "news", COMMON | {"label": "N"}, **files)
    with pytest.raises(UpkeepError) as error:
        build_dataset(catalog, "news", tmp_path / "out")
    assert str(error.value.where).endswith(place) and str(error.value.where).startswith(str(tmp_path))
    assert word in error.value.problem
    assert not (tmp_path / "out").exists()


def test_a_builder_that_was_mended_builds_in_the_same_process(tmp_path: Path) -> None:
    catalog = family(tmp_path, "news", COMMON | {"label": "N"}, __init__=CODE, words="raise OSError('full')")
    with pytest.raises(UpkeepError, match="full"):
        build_dataset(catalog, "news", tmp_path / "out")
    (tmp_path / "datasets/news/words.py").write_text('TEXT = "mended"')
    build_dataset(Catalog(tmp_path), "news", tmp_path / "out")
    assert store.load(tmp_path / "out").documents["text"].to_list() == ["mended"]


def test_an_unknown_shared_builder_is_refused_with_those_there_are(tmp_path: Path) -> None:
    catalog = family(tmp_path, "news", COMMON | {"label": "N", "builder": "nothing"}, __init__=CODE)
    with pytest.raises(UpkeepError, match="unknown builder 'nothing'") as error:
        builder(catalog, "news")
    assert "oaks_release" in str(error.value) and "news/dataset.yaml: builder" in str(error.value)


# ---------------------------------------------------------------- what makes a dataset stale


def append(path: str, text: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text((file.read_text() if file.exists() else "") + text)

    return change


def replace(old: str, new: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        card = root / "datasets/news/dataset.yaml"
        assert old in card.read_text()
        card.write_text(card.read_text().replace(old, new))

    return change


CARD = """
{summary: s, paper: p, source: here, licence: CC0, prompt: evolveqa, equivalence: contains, metrics: answers,
 options: {shared: 1}, variants: {full: {label: N, options: {own: 1}}, mini: {label: M, options: {own: 2}}}}
"""
STALE = {
    "its own options": replace("own: 2", "own: 3"),
    "options of the family": replace("shared: 1", "shared: 2"),
    "what is done about faults": replace("label: M", "label: M, faults: {encoding: skip}"),
    "another builder": replace("label: M", "label: M, builder: oaks_release"),
    "its family's code": append("datasets/news/__init__.py", "# more\n"),
    "a new module of its family": append("datasets/news/deep/new.py", "X = 1\n"),
    "its family's data": append("datasets/news/documents.jsonl", "{}\n"),
    "what builders share": append("src/upkeep/building/store.py", "# more\n"),
    "the normal form": append("src/upkeep/normal_form.py", "# more\n"),
}
VALID = {
    "another variant's options": replace("own: 1", "own: 9"),
    "another variant more": replace("full: ", "more: {label: X}, full: "),
    "its label": replace("label: M", "label: MM"),
    "the family's summary": replace("summary: s", "summary: t"),
    "its page": append("datasets/news/README.md", "words\n"),
    "another family's code": append("datasets/other/__init__.py", "# more\n"),
    "another family's card": append("datasets/other/dataset.yaml", "# more\n"),
    "how the suite reads cards": append("src/upkeep/families.py", "# more\n"),
    "grading": append("src/upkeep/grading/score.py", "# more\n"),
}


@pytest.mark.parametrize("what", [*STALE, *VALID])
def test_a_dataset_is_stale_by_its_own_variant_its_familys_code_and_what_builders_share(
    tmp_path: Path, what: str
) -> None:
    family(tmp_path, "other", COMMON | {"label": "O"}, __init__=CODE)
    append("datasets/news/README.md", "words\n")(tmp_path)
    append("datasets/news/__init__.py", CODE)(tmp_path)
    append("datasets/news/dataset.yaml", CARD)(tmp_path)
    append("src/upkeep/building/store.py", "")(tmp_path)
    before = plan_dataset(Catalog(tmp_path), "news_mini")
    (STALE | VALID)[what](tmp_path)
    assert (plan_dataset(Catalog(tmp_path), "news_mini") != before) is (what in STALE)


def test_scores_are_stale_by_the_cards_of_their_own_datasets_alone(tmp_path: Path) -> None:
    make_repository(tmp_path)
    (tmp_path / "config/suites/mini.yaml").write_text(
        "{label: l, summary: s, papers: [], cells: [{datasets: [toy], methods: [echo/a], models: [none]}]}"
    )
    card = tmp_path / "datasets/toy/dataset.yaml"
    fields = yaml.safe_load(card.read_text())

    def made_of(full: dict[str, str], other: dict[str, str]) -> dict[str, str]:
        card.write_text(yaml.safe_dump(fields | {"variants": {"full": full, "other": other}}))
        return Basis(Catalog(tmp_path), "mini").made_of()

    write_toy(Catalog(tmp_path))
    before = made_of({}, {})
    assert made_of({}, {"label": "Another", "metrics": "oaks"}) == before
    assert made_of({"label": "Another"}, {})["toy"] != before["toy"]
