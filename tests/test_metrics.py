"""What families of metrics are given and give: crossed slices, settings, the order of verdicts, what they count by."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import get_args, get_type_hints

import numpy as np
import polars as pl
import pytest

import scored_cells
from conftest import ROOT
from metric_cells import BABI, EVOWIKI, LEVELS, OAKS, PRELUDE, catalog, fresh, in_slices, label, scored, verdicts
from scored_cells import key_of, line, manifest_of, suite_of, timeline, write_cell, write_dataset
from upkeep.catalog import Catalog
from upkeep.commands.results import tell_alike, tell_refused
from upkeep.contract import Usage
from upkeep.errors import UpkeepError
from upkeep.grading.graded import Graded, grade, read_predictions
from upkeep.grading.measuring import Place, crossed, measured
from upkeep.grading.metric_families import read_family
from upkeep.grading.metrics import GRADED_SCHEMA, Crossed, Family, Placed, Resampled, as_counts, shares
from upkeep.grading.resampling import FEWEST_MEASURED, HALVES, Draws, Floats
from upkeep.grading.score import score_cell, tidy
from upkeep.grading.scores import Scores, score_suite
from upkeep.grading.settings import SETTING, as_rows
from upkeep.jobs import Cell

__all__ = ["catalog", "fresh"]


def test_a_metric_whose_columns_depend_on_answers_goes_by_answers() -> None:
    """Those that none of the measured answers has are no reason to take it for one that does not go by them."""

    def by_answer(graded: pl.DataFrame) -> pl.DataFrame:
        right = {"right": pl.col("right")} if graded["right"].any() else {}
        return graded.select("question_id", asked=1, **right)

    def rate(sums: Mapping[str, Floats]) -> Mapping[str, Floats]:
        return {"rate": 100 * sums.get("right", 0 * sums["asked"]) / sums["asked"]}

    family = Family(OAKS.measure, resampled=[Resampled(["rate"], by_answer, rate)])
    graded = verdicts(*({"question_id": f"q{n}", "right": False} for n in range(FEWEST_MEASURED - 2)))
    found = measured(family, graded, 0, {}, Draws("d", graded["question_id"]))
    place = found.scores["metric"].to_list().index("rate")
    assert found.scores["value"][place] == 0 and (found.resamples[place] == 0).all()


# ------------------------------------------------------------------ crossed slices


def test_levels_are_crossed_with_hops_as_the_published_numbers_of_evowiki_are(tmp_path: Path) -> None:
    scores = in_slices(tmp_path, EVOWIKI, **LEVELS).filter(pl.col("metric") == "exact_match")
    found = {(dataset, subset): value for dataset, subset, value in scores.select("dataset", "subset", "value").rows()}
    assert found["oaks_babi_stable", "single_hop"] == 100
    assert found["oaks_babi_evolved", "single_hop"] == found["oaks_babi_stable", "multi_hop"] == 0
    assert found["oaks_babi", "single_hop"] == found["oaks_babi", "stable"] == 50
    assert found["oaks_babi", "all"] == 25
    assert (found["oaks_babi_stable", "all"], found["oaks_babi_evolved", "all"]) == (50, 0)
    assert len(found) == 4 + 2 + 4 + 1
    assert set(scores["dataset_id"]) == {"oaks_babi_mini"} and set(scores["stand_in"]) == {"mini"}


def test_metrics_are_given_tokens_what_has_arrived_and_the_models_cutoff(tmp_path: Path) -> None:
    given: list[pl.DataFrame] = []

    def measure(graded: pl.DataFrame, retrieved: int) -> pl.DataFrame:
        given.append(graded)
        return shares(graded, accuracy=pl.col("right"))

    write_dataset(tmp_path / "dataset", {"a": timeline("xyz"), "b": timeline("x")})
    lines = [line(f"a@{n}", "x", usage=Usage(prompt=100 + n, completion=n, calls=1)) for n in (0, 1)]
    write_cell(tmp_path / "cell", lines, probes=4)
    manifest, key = manifest_of(tmp_path / "cell"), key_of(tmp_path / "dataset")
    found = Graded(grade(key, read_predictions(tmp_path / "cell", manifest, key)[0], 1), 0)
    known = dataclasses.replace(scored_cells.IDENTITY, cutoff="2024-04-30")
    score_cell(found, manifest, scored_cells.CELL, known, key, Family(measure), Draws("d", key.probes["question_id"]))
    columns = ["probe_id", "arrived_tokens", "prompt_tokens", "completion_tokens", "has_outdated", "accepted_answers"]
    columns += ["model_cutoff"]
    assert given[0].select(columns).sort("probe_id").rows() == [
        ("a@0", 10, 100, 0, False, 1, "2024-04-30"),
        ("a@1", 20, 101, 1, False, 1, "2024-04-30"),
        ("a@2", 30, None, None, False, 1, "2024-04-30"),
        ("b@0", 10, None, None, False, 1, "2024-04-30"),
    ]
    assert set(given[0].columns) == {*GRADED_SCHEMA, "slice_changes"}
    key = dataclasses.replace(key, probes=key.probes.with_columns(has_outdated=pl.col("question_id") == "a"))
    draws = Draws("d", key.probes["question_id"])
    score_cell(found, manifest, scored_cells.CELL, scored_cells.IDENTITY, key, Family(measure), draws)
    assert given[1]["has_outdated"].sum() == 3 and given[1]["model_cutoff"].null_count() == 4


def test_a_subset_that_a_metric_names_may_have_settings(tmp_path: Path) -> None:
    def measure(graded: pl.DataFrame, retrieved: int) -> pl.DataFrame:
        counts = shares(graded.select(pl.exclude("^slice_.*$")), accuracy=pl.col("right"))
        return counts.with_columns(subset=pl.lit("mcq with context"))

    placed = {"mcq with context": Placed("mcq", {"context": "on", "date": "off"})}
    scores = in_slices(tmp_path, Family(measure, placed=placed), format=["mcq"] * 4)
    assert set(scores["subset"]) == {"mcq"}
    wanted = (*scored_cells.IDENTITY.setting, ("context", "on"), ("date", "off"))
    assert all(setting == as_rows(wanted) for setting in scores["setting"].to_list())
    graded = verdicts({}, {}, level=["a", "a"], hops=["b", "b"])
    with pytest.raises(UpkeepError, match="one name for two subsets"):
        crossed(Family(EVOWIKI.measure, crossed=[Crossed("level", by="hops")], placed={"a+b": Placed("a", {})}), graded)


def test_what_is_said_to_go_nowhere_stays_in_the_subset() -> None:
    graded, places = crossed(
        Family(EVOWIKI.measure, crossed=[Crossed("hops", by="level")]), verdicts(*[{}] * 4, **LEVELS)
    )
    assert graded["slice_hops+level"].to_list() == [
        f"{h}+{v}" for h, v in zip(LEVELS["hops"], LEVELS["level"], strict=True)
    ]
    assert places["single_hop+stable"] == Place("single_hop+stable")


def test_a_pair_of_slices_goes_nowhere_but_where_some_papers_go_or_where_nothing_is_said() -> None:
    used = {pair.into for path in (ROOT / "papers").glob("*/metrics.py") for pair in read_family(path).crossed}
    assert set(get_args(get_type_hints(Crossed)["into"])) == used | {Crossed(None, by="level").into}


def test_slices_that_are_not_there_or_share_a_name_are_not_crossed() -> None:
    graded = verdicts(*[{}] * 2, level=["a", "a+b"], hops=["b+c", "c"])
    with pytest.raises(UpkeepError, match="one name for two subsets"):
        crossed(Family(EVOWIKI.measure, crossed=[Crossed("level", by="hops")]), graded)
    with pytest.raises(UpkeepError, match="cross a slice 'level' that the dataset does not have") as caught:
        crossed(EVOWIKI, graded.drop("slice_level"))
    assert caught.value.where == EVOWIKI.where and caught.value.expected == "one of hops"


def test_slices_that_share_a_value_are_refused_where_the_key_is_read(tmp_path: Path) -> None:
    write_dataset(tmp_path, {"p": timeline("x"), "q": timeline("x")}, {"p": "sparse", "q": "all"})
    with pytest.raises(UpkeepError, match=r"gold\.parquet, column `slice_changes`: one name for two subsets"):
        key_of(tmp_path)


@pytest.mark.usefixtures("fresh")
def test_a_dataset_whose_key_cannot_be_read_keeps_no_other_from_being_scored(catalog: Catalog) -> None:
    catalog = suite_of(catalog, *(Cell(name, "rag_dense", "k5", "tiny") for name in (BABI, "oaks_novel")))
    write_dataset(catalog.results / "datasets" / BABI, {"q": timeline("x")}, {"q": "all"})
    write_dataset(catalog.results / "datasets" / "oaks_novel", {"q": timeline("x")}, name="oaks_novel")
    scores = score_suite(catalog, "s")
    assert scores.refused == {BABI: "one name for two subsets"}
    assert set(scores.table["dataset_id"]) == {"oaks_novel"}


def test_the_order_of_verdicts_changes_no_score() -> None:
    rng = random.Random(5)
    rows = [label(rng.choice("CD"), rng.choice(["C", "D", None])) for _ in range(40)]
    graded = verdicts(*rows, label=[rng.choice(["consistent", "contradict"]) for _ in rows])
    shuffled = graded.sample(fraction=1, shuffle=True, seed=1)
    assert scored(PRELUDE, graded) == scored(PRELUDE, shuffled)


def told_apart(*cells: tuple[str, str, list[dict[str, str]]]) -> Scores:
    """Scores of some cells, each with its model's label and its settings."""
    rows = [
        {"cell": cell, "label": "RAG", "model": model, "setting": setting, "subset": subset, "metric": "accuracy"}
        for cell, model, setting in cells
        for subset in ("all", "sparse")
    ]
    return Scores(tidy(pl.DataFrame(rows, schema_overrides={"setting": SETTING})), None, {}, {}, {})  # type: ignore[arg-type]


def test_cells_that_no_table_can_tell_apart_are_named() -> None:
    k3, k5 = as_rows((("k", "3"),)), as_rows((("k", "5"),))
    assert told_apart(("a", "M", k3), ("b", "M", k5), ("c", "N", k3)).alike() == []
    assert told_apart(("a", "M", k3), ("b", "N", k3), ("c", "M", k3), ("d", "M", k3)).alike() == [["a", "c", "d"]]


def test_what_has_no_scores_is_told_with_where_to_look(capsys: pytest.CaptureFixture[str]) -> None:
    found = told_apart(("a", "M", []), ("b", "M", []))
    refused = {"x": "a metric fails: NameError", "y": "a metric fails: NameError"}
    tell_refused(dataclasses.replace(found, refused=refused, basis=SimpleNamespace(suite="mini")))
    tell_alike(found)
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "no scores of x and 1 more: a metric fails: NameError (./upkeep score mini says where)"
    assert said[1].startswith("a and b have the same names and settings")


def test_every_column_that_a_metric_is_given_is_in_the_page_on_metrics() -> None:
    page = (ROOT / "papers" / "FORMAT.md").read_text()
    rows = page.partition("`graded` has a row")[2].partition("An edit of the file")[0]
    named = {
        name for line in rows.splitlines() for name in re.findall(r"`(\w+)`", line.partition("|")[2].partition("|")[0])
    }
    assert named == set(GRADED_SCHEMA)


def test_what_a_metric_counts_by_is_what_is_drawn_and_in_the_same_way_in_all_cells() -> None:
    questions = [f"{item}.{form}" for item in "abcdefghijkl" for form in ("open", "mcq")]
    draws, again = Draws("d", questions), Draws("d", reversed(questions))
    assert draws.of(questions[:3]) is draws
    items = [*"abcdefghijkl"]
    parts = np.arange(12.0)[:, None]
    assert (draws.of(items).sums(items, parts) == again.of(reversed(items)).sums(items, parts)).all()

    def measure(graded: pl.DataFrame, retrieved: int) -> pl.DataFrame:
        by_item = graded.with_columns(question_id=pl.col("question_id").str.head(1))
        by_item = shares(by_item.select(pl.exclude("^slice_.*$")), item_accuracy=pl.col("right"))
        return as_counts(shares(graded, accuracy=pl.col("right")), by_item)

    rows = [{"question_id": name, "right": name < "e"} for name in questions]
    made = measured(Family(measure), verdicts(*rows), 0, {}, draws)
    both = {row["metric"]: made.resamples[place] for place, row in enumerate(made.scores.iter_rows(named=True))}
    assert made.scores["value"].to_list() == pytest.approx([100 / 3] * 2)
    assert both["item_accuracy"].std() > both["accuracy"].std() > 0, "fewer units, less is known"


# ------------------------------------------------------------------ the question that was not asked


def test_of_answers_one_more_is_worth_anything_and_of_what_is_measured_twice_the_furthest() -> None:
    def tokens(graded: pl.DataFrame) -> pl.DataFrame:
        return graded.select("question_id", spent="completion_tokens", asked=1)

    def mean(sums: Mapping[str, Floats]) -> Mapping[str, Floats]:
        return {"spent": sums["spent"] / sums["asked"]}

    family = Family(OAKS.measure, resampled=[*PRELUDE.resampled[:1], Resampled(["spent"], tokens, mean, unit="tokens")])

    def drawn(questions: int) -> dict[str, np.ndarray]:
        rows = [label("CD"[n % 2], "CD"[n % 2]) | {"completion_tokens": 100 + n} for n in range(questions)]
        graded = verdicts(*rows, label=["consistent", "contradict"] * (questions // 2))
        found = measured(family, graded, 0, {}, Draws("d", graded["question_id"]))
        of_all = found.scores.with_row_index().filter(pl.col("subset") == "all")
        return {metric: found.resamples[row] for metric, row in of_all.select("metric", "index").rows()}

    lower, higher = HALVES
    few, more = drawn(FEWEST_MEASURED - 2), drawn(FEWEST_MEASURED)
    assert np.isnan(few["spent"]).all() and not np.isnan(more["spent"]).any()
    assert more["spent"][lower].mean() < 109 and more["spent"][higher].mean() > 110
    for found in (few, more):  # all answers are right, and the next may be wrong
        assert np.allclose(found["macro_f1"][higher], 100) and np.quantile(found["macro_f1"][lower], 0.05) < 90
