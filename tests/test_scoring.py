"""Scoring a suite: what is complete is scored, and what does not agree is refused."""

from __future__ import annotations

import os
import shutil

import numpy as np
import polars as pl
import pytest

from scored_cells import answered, catalog, fresh, suite_of, timeline, write_cell, write_dataset
from upkeep import published
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.grading import score, scorers, scores
from upkeep.grading.resampling import RESAMPLES
from upkeep.grading.scores import read_scores, score_suite
from upkeep.grading.settings import as_rows
from upkeep.helpers import MOST, Helpers
from upkeep.jobs import Cell

__all__ = ["catalog", "fresh"]


def test_settings_are_printed_in_the_order_of_the_card() -> None:
    parameters = {"window": 15, "k": 15, "adapter": None, "rerank": True}
    assert score.settings(["k", "window", "adapter", "rerank", "absent"], parameters) == [
        ("k", "15"),
        ("window", "15"),
        ("rerank", "on"),
    ]


def test_a_trained_model_is_its_base_with_a_combined_method(catalog: Catalog) -> None:
    identity = score.identify(catalog, Cell("oaks_babi_mini", "rag_dense", "k30", "tiny+sft.lora"), None)
    assert identity == score.Identity(
        label="SFT + RAG",
        model="Tiny",
        method="sft+rag_dense",
        supervision="Q",
        setting=(("adapter", "lora"), ("k", "30"), ("thinking", "on")),
        dataset="oaks_babi",
        dataset_id="oaks_babi_mini",
        provenance="stand_in",
        stand_in="mini",
        trained=False,
    )


def test_an_embedder_that_a_variant_chooses_is_named_and_the_methods_own_is_not(catalog: Catalog) -> None:
    small = "{label: Small, role: embedder, summary: s, source: package, location: small, context_length: 9}"
    for name in ("own", "other"):
        (catalog.root / "models" / name).mkdir()
        (catalog.root / "models" / name / "model.yaml").write_text(small.replace("Small", name.title()))
    (catalog.root / "methods/rag_dense/method.yaml").write_text(
        "{label: RAG, papers: [], summary: s, reference: r, settings: [k], embedder: own, "
        "variants: {a: {k: 5}, b: {k: 5, embedder: other}, c: {k: 5, embedder_gpu: other}}}"
    )
    found = {v: score.identify(Catalog(catalog.root), Cell("oaks_novel", "rag_dense", v, "tiny"), None) for v in "abc"}
    assert found["a"].setting == found["c"].setting == (("k", "5"), ("thinking", "on"))
    assert found["b"].setting == (("k", "5"), ("retriever", "Other"), ("thinking", "on"))


def test_a_control_has_no_model_and_no_thinking(catalog: Catalog) -> None:
    identity = score.identify(catalog, Cell("oaks_novel", "gold", "default", "none"), None)
    assert (identity.model, identity.setting, identity.trained) == ("", (), True)


@pytest.mark.usefixtures("fresh")
def test_scoring_a_suite_takes_what_is_complete_and_refuses_what_does_not_agree(
    catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = [
        Cell("oaks_babi_mini", "rag_dense", "k5", "tiny"),
        Cell("oaks_babi_mini", "rag_dense", "k30", "tiny"),
        Cell("oaks_novel", "gold", "default", "none"),
    ]
    catalog = suite_of(catalog, *cells)
    results = catalog.results
    write_dataset(results / "datasets" / "oaks_babi_mini", {"q": timeline("xx")})
    write_cell(results / "cells" / str(cells[0]), answered("q", "xz"), cell=cells[0])
    write_cell(results / "cells" / str(cells[1]), answered("q", "xz"), cell=cells[0])  # its manifest names another cell
    scores = score_suite(catalog, "s")
    assert set(scores.table["cell"]) == {"", str(cells[0])}
    assert scores.table.equals(read_scores(catalog, "s").table)
    assert list(read_scores(catalog, "s").refused) == [str(cells[1])]
    assert "the results of another job" in capsys.readouterr().err
    accuracy = scores.table.filter(pl.col("metric") == "accuracy", pl.col("subset") == "all").row(0, named=True)
    assert (accuracy["value"], accuracy["model"]) == (50, "Tiny")
    assert accuracy["setting"] == as_rows((("k", "5"), ("thinking", "on")))
    assert (accuracy["predictions"], accuracy["failed"]) == (2, 0)


def test_a_cell_made_with_something_else_than_is_here_now_is_refused(
    catalog: Catalog, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = Cell("oaks_babi_mini", "rag_dense", "k5", "tiny")
    catalog = suite_of(catalog, cell)
    write_dataset(catalog.results / "datasets" / "oaks_babi_mini", {"q": timeline("xx")})
    write_cell(catalog.results / "cells" / str(cell), answered("q", "xz"), cell=cell)
    monkeypatch.setattr(published, "require_fresh", lambda *_: None)

    def missing(*_: object) -> tuple[str, dict[str, str]]:
        raise UpkeepError("the weights are not there")

    for identity, reason in (
        (lambda *_: ("1" * 64, {"cell_code": "new"}), "stale: made with other code, data or settings; run it again"),
        (missing, "the weights are not there"),
    ):
        monkeypatch.setattr(published, "identity", identity)
        scores = score_suite(catalog, "s")
        assert set(scores.table["cell"]) == {""}
        assert scores.refused == {str(cell): reason}
    assert "what differs: cell_code" in capsys.readouterr().err


@pytest.mark.usefixtures("fresh")
def test_a_damaged_dataset_keeps_its_own_cells_from_being_scored_and_no_others(catalog: Catalog) -> None:
    cells = [Cell(name, "rag_dense", "k5", "tiny") for name in ("oaks_babi_mini", "oaks_novel")]
    catalog = suite_of(catalog, *cells)
    for cell in cells:
        write_dataset(catalog.results / "datasets" / cell.dataset, {"q": timeline("xx")}, name=cell.dataset)
        write_cell(catalog.results / "cells" / str(cell), answered("q", "xz"), cell=cell)
    (catalog.results / "datasets" / "oaks_novel" / "gold.parquet").unlink()
    scores = score_suite(catalog, "s")
    assert set(scores.table["dataset_id"]) == {"oaks_babi_mini"}
    assert scores.refused["oaks_novel"] == "file not found"


@pytest.mark.usefixtures("fresh")
def test_scores_on_resamples_are_kept_with_their_cell_and_made_anew_where_they_are_lost(catalog: Catalog) -> None:
    cells = [Cell("oaks_babi_mini", "rag_dense", variant, "tiny") for variant in ("k5", "k30")]
    both = suite_of(catalog, *cells)
    names = [f"q{n:02}" for n in range(20)]
    write_dataset(both.results / "datasets" / "oaks_babi_mini", {name: timeline("xx") for name in names})
    for cell in cells:
        lines = [one for n, name in enumerate(names) for one in answered(name, "xz" if n % 3 else "xx")]
        write_cell(both.results / "cells" / str(cell), lines, cell=cell)
    score_suite(both, "s")
    scores = read_scores(both, "s")
    kept = {str(cell): scores.resamples(str(cell)).copy() for cell in cells}
    for cell, drawn in kept.items():
        rows = scores.table.filter(pl.col("cell") == cell)
        assert drawn.shape == (len(rows), RESAMPLES)
        (at,) = rows.with_row_index().filter(pl.col("metric") == "accuracy", pl.col("subset") == "all")["index"]
        assert drawn[at].mean() == pytest.approx(rows["value"][at], abs=3)
        assert drawn[at].std() == pytest.approx(rows["se"][at], rel=0.25)
    assert np.array_equal(*kept.values(), equal_nan=True), "the same answers, the same draws"
    path = both.results / "scores" / "s" / "resamples" / f"{cells[0]}.npy"
    for damage in (path.unlink, lambda: path.write_bytes(path.read_bytes()[:-1])):
        damage()
        with pytest.raises(UpkeepError, match=r"k5/tiny\.npy") as caught:
            read_scores(both, "s").resamples(str(cells[0]))
        assert caught.value.remedy == "./upkeep score s"
        assert np.array_equal(score_suite(both, "s").resamples(str(cells[0])), kept[str(cells[0])], equal_nan=True)
    score_suite(suite_of(catalog, cells[1]), "s")
    assert not path.exists() and path.parent.parent.joinpath("k30/tiny.npy").exists()


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("killed", [False, True], ids=["alive", "killed"])
def test_other_processes_score_as_this_one_does(
    catalog: Catalog, killed: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A metric that fails is told as it is here; and what a process that ends had begun is done here."""
    cells = [Cell(name, "rag_dense", k, "tiny") for name in ("oaks_babi_mini", "oaks_novel") for k in ("k5", "k30")]
    metrics = catalog.root / "papers" / "oaks" / "metrics.py"
    for name, path in (("LETTERS", "oaks_novel"), ("WORDS", "oaks_babi_mini")):
        write_dataset(catalog.results / "datasets" / path, {name: timeline("xx")}, name=path)
    whoever = (
        "import os, sys\ndef measure(graded, retrieved):\n    print('measured by', os.getpid(), file=sys.stderr)\n"
    )
    ends = "    if os.getpid() != HERE: os._exit(1)\n".replace("HERE", str(os.getpid())) if killed else ""
    fails = "    if 'LETTERS' in graded['question_id']: raise UpkeepError('no letters')\n"
    text = (
        metrics.read_text()
        .replace("def measure(", "def oaks(")
        .replace("FAMILY =", f"{whoever}{ends}{fails}    return oaks(graded, retrieved)\nFAMILY =")
    )
    metrics.write_text(text)
    catalog = suite_of(catalog, *cells)
    for cell in cells:
        name = "LETTERS" if cell.dataset == "oaks_novel" else "WORDS"
        write_cell(catalog.results / "cells" / str(cell), answered(name, "xz"), cell=cell)
    here = score_suite(catalog, "s")
    kept = {cell: here.resamples(cell).copy() for cell in map(str, cells[:2])}
    capfd.readouterr()
    shutil.rmtree(catalog.results / "scores")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(scores, "MANY", 4)
    monkeypatch.setattr(scorers, "TOGETHER", 1)
    there = score_suite(Catalog(catalog.root), "s")
    assert (there.table.equals(here.table), there.refused) == (True, here.refused)
    assert here.refused == dict.fromkeys(map(str, cells[2:]), "no letters")
    assert all(np.array_equal(there.resamples(cell), of, equal_nan=True) for cell, of in kept.items())
    by = {line for line in capfd.readouterr().err.splitlines() if line.startswith("measured by")}
    assert len(by) == 2, "some by this process, and some by another"


@pytest.mark.usefixtures("fresh")
def test_other_processes_are_had_where_many_cells_are_to_be_scored(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it is the metrics or the answer key that has changed."""
    had: list[int] = []
    monkeypatch.setattr(scores, "Helpers", lambda most: had.append(most) or Helpers(0))
    monkeypatch.setattr(scores, "MANY", 2)
    cells = [Cell("oaks_babi_mini", "rag_dense", variant, "tiny") for variant in ("k5", "k30")]
    catalog = suite_of(catalog, *cells)
    dataset = catalog.results / "datasets" / "oaks_babi_mini"
    write_dataset(dataset, {"q": timeline("xx")})
    for cell in cells:
        write_cell(catalog.results / "cells" / str(cell), answered("q", "xz"), cell=cell)
    metrics = catalog.root / "papers" / "oaks" / "metrics.py"
    for change in (
        lambda: None,
        lambda: None,
        lambda: metrics.write_text(f"{metrics.read_text()}# other\n"),
        lambda: write_cell(catalog.results / "cells" / str(cells[0]), answered("q", "xx"), cell=cells[0]),
        lambda: write_dataset(dataset, {"q": timeline("zz")}),
    ):
        change()
        score_suite(Catalog(catalog.root), "s")
    assert had == [MOST, 0, MOST, 0, MOST]


def test_scoring_nothing_gives_an_empty_table(catalog: Catalog) -> None:
    assert score_suite(suite_of(catalog), "s").table.is_empty()


@pytest.mark.usefixtures("fresh")
def test_scores_that_are_not_of_what_is_there_now_are_no_scores(catalog: Catalog) -> None:
    cells = [Cell("oaks_babi_mini", "rag_dense", variant, "tiny") for variant in ("k5", "k30")]
    catalog = suite_of(catalog, *cells)
    with pytest.raises(UpkeepError, match=r"scores\.json: file not found") as caught:
        read_scores(catalog, "s")
    assert caught.value.remedy == "./upkeep score s"
    write_dataset(catalog.results / "datasets" / "oaks_babi_mini", {"q": timeline("xx")})
    write_cell(catalog.results / "cells" / str(cells[0]), answered("q", "xz"), cell=cells[0])
    score_suite(catalog, "s")
    read_scores(catalog, "s")
    write_cell(catalog.results / "cells" / str(cells[1]), answered("q", "xx"), cell=cells[1])
    with pytest.raises(UpkeepError, match="something has changed") as caught:
        read_scores(catalog, "s")
    assert str(cells[1]) in str(caught.value.found)
    score_suite(catalog, "s")
    path = catalog.results / "scores" / "s" / "scores.parquet"
    pl.read_parquet(path).with_columns(value=pl.lit(100.0)).write_parquet(path)
    with pytest.raises(UpkeepError, match="not the file that was written"):
        read_scores(catalog, "s")
