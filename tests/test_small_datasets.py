"""Every dataset of the suite has its page and its numbers, and every small one builds and keeps all rules."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import yaml

from reading_texts import ROOT
from upkeep import card_numbers
from upkeep.building import (
    leaks,
    store,
)
from upkeep.building.build import build_dataset, describe
from upkeep.building.store import validate
from upkeep.catalog import Catalog
from upkeep.contract import DatasetCard
from upkeep.errors import UpkeepError
from upkeep.grading.baselines import baselines
from upkeep.grading.exceeding import excesses
from upkeep.layout import Layout
from upkeep.operations import contents

DATASETS = Catalog(ROOT).datasets
MINIS = [name for name in DATASETS if name.endswith("_mini")]
ONE_EACH = sorted({Catalog(ROOT).family_of(name): name for name in MINIS}.values())
"""A small dataset of each family."""

# ---------------------------------------------------------------- all datasets of the repository


@pytest.mark.parametrize("name", DATASETS)
def test_every_published_number_of_a_dataset_is_found_in_its_paper(name: str) -> None:
    spec = Catalog(ROOT).dataset(name)
    assert card_numbers.published(spec, ROOT / "papers").keys() == spec.published.keys()


@pytest.mark.parametrize("name", DATASETS)
def test_every_dataset_is_on_its_familys_page_and_has_a_prompt(name: str) -> None:
    from upkeep.grading.matching import EQUIVALENCES

    spec = Catalog(ROOT).dataset(name)
    page = (ROOT / "datasets" / Catalog(ROOT).family_of(name) / "README.md").read_text(encoding="utf-8")
    assert f"`{name}`" in page and len(page.split()) > 30
    assert spec.prompt in Catalog(ROOT).prompts and spec.equivalence in EQUIVALENCES
    assert spec.stands_for is None or spec.stands_for in DATASETS


def test_every_dataset_of_the_suite_says_its_provenance() -> None:
    found: dict[str, set[str]] = {}
    for name in DATASETS:
        found.setdefault(Catalog(ROOT).dataset(name).provenance, set()).add(name)
    beside = {"infbench_mc", "infbench_qa", "detectiveqa", "narrativeqa", "nocha_public"}
    assert found["release"] == {"oaks_novel", "prelude", "prelude_long_chunks", "prelude_human_study", *beside}
    assert found["own"] == {"oaks_novel_changes", "evowiki_legislators", "evowiki_legislators_sample"}
    assert found["stand_in"] == {*MINIS, "oaks_babi_stream", "evowiki_mini_sample", "prelude_mini_sample"}
    assert {"oaks_babi", "evowiki", "imprint_news", "evolveqa_aws", "evolveqa_who_control"} < found["rebuild"]


@pytest.mark.parametrize("where", ["{metric: nothing}", "{}"])
def test_a_published_number_that_is_none_or_several_is_refused(where: str) -> None:
    spec = Catalog(ROOT).dataset("prelude")
    wrong = {"x": {"table": "table_2", "where": yaml.safe_load(where)}}
    changed = msgspec.convert(msgspec.to_builtins(spec) | {"published": wrong}, type(spec))
    with pytest.raises(UpkeepError, match=r"`published: x` does not name one number"):
        card_numbers.published(changed, ROOT / "papers")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[DatasetCard, Path]]:
    """Builds a small dataset once for all tests of this file."""
    made: dict[str, tuple[DatasetCard, Path]] = {}

    def get(name: str) -> tuple[DatasetCard, Path]:
        if name not in made:
            folder = Layout(tmp_path_factory.mktemp(name)).dataset(name)
            made[name] = build_dataset(Catalog(ROOT), name, folder), folder
        return made[name]

    return get


Small = Callable[[str], tuple[DatasetCard, Path]]


@pytest.mark.parametrize("name", MINIS)
def test_a_small_dataset_builds_is_small_and_keeps_all_rules(name: str, small: Small) -> None:
    card, folder = small(name)
    validate(folder)
    assert 0 < card.probes <= 320
    assert card.stands_for == name.removesuffix("_mini") and not card.faults
    data = store.load(folder)
    assert data.documents["tokens"].max() <= 128
    assert data.documents.group_by("stream").len()["len"].max() <= 60
    assert describe(Catalog(ROOT), card).count("\n") > 10


def test_the_many_stories_build_and_are_asked_of_every_bin(small: Small) -> None:
    card, folder = small("oaks_novel_changes")
    validate(folder)
    assert card.stands_for is None and card.questions > 400 and not card.faults
    assert min(card.slices["changes"].values()) > 80


@pytest.mark.parametrize("name", [*MINIS, "oaks_novel_changes"])
def test_a_small_dataset_holds_what_its_version_is_recorded_to_hold(name: str, small: Small) -> None:
    """One that fails has other rules than before: `contents.check` says how its version is raised."""
    catalog = Catalog(ROOT)
    known = contents.read(contents.path_of(catalog))
    assert (name, catalog.dataset(name).version) in known, f"./upkeep dataset record {name}"
    contents.check(catalog, small(name)[0], known)


@pytest.mark.parametrize("name", [*MINIS, "oaks_novel_changes"])
def test_nothing_that_reads_no_meaning_is_above_chance_but_for_what_the_card_gives_a_reason_for(
    name: str, small: Small
) -> None:
    catalog = Catalog(ROOT)
    catalog.results = small(name)[1].parents[1]
    found = excesses(baselines(catalog, name), catalog.dataset(name).implied, name)
    assert [one.told() for one in found if not one.reason] == []


@pytest.mark.parametrize("name", ONE_EACH)
def test_a_small_dataset_is_the_same_when_it_is_built_again(name: str, small: Small, tmp_path: Path) -> None:
    card, _ = small(name)
    again = build_dataset(Catalog(ROOT), name, tmp_path / "again")
    assert again.content == card.content
    assert again.statistics == card.statistics and again.notes == card.notes


@pytest.mark.parametrize("name", MINIS)
def test_no_answer_of_a_small_dataset_is_that_of_most_questions(name: str, small: Small) -> None:
    data = store.load(small(name)[1])
    rows = data.gold.join(data.probes.select("probe_id", "form"), on="probe_id")
    for (form,), of_form in rows.group_by("form"):
        first = of_form["answers"].list.first().value_counts(sort=True)
        assert len(of_form) < 5 or first["count"][0] <= 0.6 * len(of_form), (form, first)


@pytest.mark.parametrize("name", [name for name in MINIS if not name.startswith("oaks")])
def test_what_a_small_dataset_asks_can_be_read_in_its_documents(name: str, small: Small) -> None:
    """An open answer, or each part of one, stands in the evidence or the context, unless it is that nothing is told."""
    data = store.load(small(name)[1])
    texts = dict(data.documents.select("document_id", "text").iter_rows())
    rows = data.gold.join(data.probes.select("probe_id", "form"), on="probe_id").filter(form="short")
    for row in rows.iter_rows(named=True):
        read = f" {leaks.key(' '.join([*(texts[id] for id in row['evidence']), *row.get('context', [])]))} "
        parts = [re.split(" and |, ", answer) for answer in row["answers"]]
        told = any(all(f" {leaks.key(part)} " in read for part in answer) for answer in parts)
        assert told or any("no information" in answer for answer in row["answers"]), row
