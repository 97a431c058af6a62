"""A sample is asked apart: the same questions for every cell, in no score, table or report of the whole."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from host_fakes import ScriptedRuntime
from suite_fakes import CELLS, GUIDED, PLAIN, TRAINED, called, made, root, workflow
from upkeep.catalog import Catalog
from upkeep.contract import Sample
from upkeep.errors import UpkeepError
from upkeep.execution.supervise import run_cell
from upkeep.grading.scores import score_suite
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.operations.diff.comparing import difference
from upkeep.operations.validate import validate_path
from upkeep.published import predictions, standing
from upkeep.samples import asked

__all__ = ["made", "root"]

PROBES = [(f"q{q}@{t}", f"q{q}") for q in range(40) for t in range(3)]


def sampled(root: Path, **chosen: str) -> Catalog:
    return Catalog(root, chosen=chosen)


def drawn(limit: int, dataset: str = "d", seed: int = 0) -> set[str]:
    return asked(Sample(limit=limit), dataset, seed, PROBES)


def test_a_sample_has_whole_questions_and_is_part_of_every_larger_one() -> None:
    before: set[str] = set()
    for limit in (1, 5, 20, 40, 100):
        found = drawn(limit)
        assert before <= found and len(found) == 3 * min(limit, 40)
        before = found
    assert {one.partition("@")[0] for one in drawn(5)} == {one[:-2] for one in drawn(5)}


def test_another_seed_or_dataset_draws_others_and_the_order_of_probes_does_not_matter() -> None:
    assert drawn(5) == asked(Sample(limit=5), "d", 0, PROBES[::-1])
    assert drawn(5) != drawn(5, seed=1) and drawn(5) != drawn(5, dataset="e")


def test_one_probe_is_asked_or_one_question_at_all_its_positions() -> None:
    assert asked(Sample(probe="q3@1"), "d", 0, PROBES) == {"q3@1"}
    assert asked(Sample(probe="q3"), "d", 0, PROBES) == {"q3@0", "q3@1", "q3@2"}
    with pytest.raises(UpkeepError, match=r"no probe or question 'q3@9'(.|\n)*did you mean .*q3@"):
        asked(Sample(probe="q3@9"), "d", 0, PROBES)


@pytest.mark.parametrize(
    ("chosen", "folder", "count"), [({"limit": "2"}, "limit2", None), ({"probe": "a0"}, "probe-a0", 12)]
)
def test_a_sampled_cell_lies_apart_and_touches_nothing_of_the_whole(
    root: Path, chosen: dict[str, str], folder: str, count: int | None
) -> None:
    whole = {path: path.read_bytes() for path in (root / "results/cells").rglob("*") if path.is_file()}
    catalog = sampled(root, **chosen)
    manifest = run_cell(catalog, Cell.parse(PLAIN), runtime=ScriptedRuntime())
    there = [one.probe_id for one in predictions(catalog, Cell.parse(PLAIN))]
    assert len(there) == manifest.predictions
    assert count in (None, len(there)) and len({one.partition("@")[0] for one in there}) == (2 if count is None else 1)
    assert (root / "results/samples" / folder / "cells" / PLAIN / "manifest.json").is_file()
    assert not any((root / "results/samples" / folder).glob("datasets"))
    assert {path: path.read_bytes() for path in whole} == whole
    assert standing(catalog, Cell.parse(PLAIN)).manifest == manifest, "and it is reused"
    parts = standing(Catalog(root), Cell.parse(PLAIN)).manifest
    assert parts is not None
    assert {**parts.identity_parts, "sample": manifest.identity_parts["sample"]} == manifest.identity_parts
    assert "complete" in validate_path(root / "results/samples" / folder / "cells" / PLAIN)


def test_a_sample_is_fed_all_documents_and_the_answers_are_those_of_the_whole(root: Path) -> None:
    catalog = sampled(root, limit="3")
    run_cell(catalog, Cell.parse(GUIDED), runtime=ScriptedRuntime())
    whole = {(one.probe_id, one.trial): one.response for one in predictions(Catalog(root), Cell.parse(GUIDED))}
    some = {(one.probe_id, one.trial): one.response for one in predictions(catalog, Cell.parse(GUIDED))}
    assert some and some.items() < whole.items()


def test_scores_of_a_sample_are_no_scores_of_the_whole(root: Path) -> None:
    score_suite(Catalog(root), "mini")
    before = (root / "results/scores/mini/scores.json").read_bytes()
    catalog = sampled(root, limit="2")
    for cell in CELLS:
        run_cell(catalog, Cell.parse(cell), runtime=ScriptedRuntime())
    scores = score_suite(catalog, "mini").table.filter(pl.col("metric") == "accuracy", pl.col("subset") == "all")
    assert set(scores["questions"]) == {2}
    assert (root / "results/scores/mini/scores.json").read_bytes() == before
    whole = pl.read_parquet(root / "results/scores/mini/scores.parquet")
    assert set(whole.filter(pl.col("metric") == "accuracy", pl.col("subset") == "all")["questions"]) == {6}


def test_there_is_no_report_of_a_sample(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPKEEP_LIMIT", "2")
    status, errors = called(root, "report")
    assert status == 1 and "a sample: 2 questions of each dataset is in no table" in errors
    assert "remedy:   `./upkeep report` without it" in errors and not (root / "results/report").exists()


def test_the_workflow_of_a_sample_makes_its_cells_and_no_report(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert workflow(root).wanted[-1] == "results/report/mini/index.html"
    monkeypatch.setenv("UPKEEP_LIMIT", "2")
    made = workflow(root)
    wanted = [f"results/samples/limit2/cells/{batch.cells[0]}/predictions.jsonl" for batch in made.batches]
    assert made.wanted == wanted and {str(cell) for batch in made.batches for cell in batch.cells} == {*CELLS}
    assert made.dataset("toy") == "results/datasets/toy/card.json"
    inputs = [file for batch in made.batches for file in made.inputs_of_batch(batch)(None)]
    assert {f"results/samples/limit2/plans/batches/{batch.name}/plan" for batch in made.batches} < {*inputs}
    assert not any("samples" in file for file in inputs if "plans/batches" not in file)
    monkeypatch.delenv("UPKEEP_LIMIT")
    monkeypatch.setenv("UPKEEP_PROBE", "a0@1")
    assert len(workflow(root).cells) == len(CELLS)
    monkeypatch.setenv("UPKEEP_PROBE", "z")
    with pytest.raises(UpkeepError, match="no probe or question 'z'"):
        workflow(root)


def test_a_cell_shows_the_probe_that_it_was_asked(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upkeep.execution.job.detect", lambda _: ScriptedRuntime())
    out: list[str] = []
    status, errors = called(root, "cell", GUIDED, "--probe", "a0@1", out=out)
    assert status == 0, errors
    assert "a sample: a0@1 alone; in no table" in out[0] and "Question 0?" in out[0] and "VERDICT" in out[0]
    assert called(root, "cell", GUIDED, "--probe", "a0@1", out=out)[0] == 0
    assert "so nothing was run (--force runs it again)" in out[1]
    folder = next((root / "results/samples").glob(f"*/cells/{GUIDED}"))
    assert called(root, "show", str(folder), out=out)[0] == 0
    assert out[2].startswith(f"{GUIDED}: 2 predictions") and "note:" not in out[2]


def test_a_sample_is_compared_with_the_whole_by_the_probes_of_both(root: Path) -> None:
    catalog = sampled(root, limit="4")
    run_cell(catalog, Cell.parse(TRAINED), runtime=ScriptedRuntime())
    folder = Layout(catalog.results).cell(TRAINED)
    (found,) = difference(Catalog(root), TRAINED, str(folder), None).cells
    assert found.paired is not None and found.paired.questions <= 4 and found.paired.difference == 0
    assert found.moved == 0 and found.identity == {"sample.limit": ("none", "4")}


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--limit", "2", "--probe", "a0"), 2, "not allowed with"),
        (("--limit", "0"), 2, "expected a whole number from 1"),
        (("--probe", "a0@99"), 1, "did you mean a0@"),
    ],
)
def test_a_sample_that_is_none_is_told(root: Path, words: tuple[str, ...], status: int, said: str) -> None:
    code, errors = called(root, "cell", GUIDED, *words)
    assert code == status and said in errors and "Traceback" not in errors, errors
