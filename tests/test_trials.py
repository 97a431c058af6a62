"""How often each probe of a cell is asked: as the choices of a suite say, and no cell is stale for another's sake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import ROOT
from host_fakes import ScriptedRuntime, make_repository
from suite_fakes import called
from upkeep.catalog import Catalog
from upkeep.contract import Suite
from upkeep.errors import UpkeepError
from upkeep.execution.supervise import run_cell
from upkeep.identity import describe, identity, plan_identity
from upkeep.jobs import Cell
from upkeep.operations.plan import judging
from upkeep.operations.plan.counts.tally import Tally
from upkeep.operations.validate import validate_path
from upkeep.published import read_published, standing
from upkeep.serving.counting.records import Assumed

A, B, KEEN = (Cell("toy", method, variant, "none") for method, variant in (("echo", "a"), ("echo", "b"), ("keen", "a")))


def suite_of(root: Path, *choices: str, more: str = "") -> Catalog:
    """The suite `mini` of these choices of cells."""
    (root / "config/suites/mini.yaml").write_text(
        f"label: l\nsummary: s\npapers: []\nseed: 5\n{more}cells: [{', '.join(f'{{{one}}}' for one in choices)}]\n"
    )
    return Catalog(root)


def choice(methods: str, more: str = "", models: str = "none") -> str:
    return f"datasets: [toy], methods: [{methods}], models: [{models}]{', ' if more else ''}{more}"


def asked(catalog: Catalog, *cells: Cell) -> list[int]:
    return [describe(catalog, cell, 3).trials for cell in cells]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_repository(tmp_path)
    return tmp_path


def test_a_choice_of_cells_says_how_often_they_are_asked_and_the_suite_where_it_does_not(root: Path) -> None:
    catalog = suite_of(root, choice("echo/a", "trials: 8"), choice("echo/b"), more="trials: 3\n")
    assert catalog.cells(catalog.suite("mini")) == [A, B]
    assert asked(catalog, A, B, KEEN) == [8, 3, 3], "what it has not is asked as the suite says"
    assert asked(suite_of(root, choice("echo")), A, B) == [1, 1]
    assert asked(suite_of(root, choice("echo", "trials: 2")), A, B) == [2, 2], "all variants of a method"


@pytest.mark.parametrize("trials", ["0", "-1", "1.5", "many"])
def test_no_trials_are_refused(root: Path, trials: str) -> None:
    with pytest.raises(UpkeepError, match="trials"):
        suite_of(root, choice("echo", f"trials: {trials}")).suite("mini")


def test_two_choices_that_give_a_cell_other_numbers_are_refused_before_anything_starts(root: Path) -> None:
    file = root / "config/suites/mini.yaml"
    both = choice("keen"), choice("echo/a", "trials: 8"), choice("echo")
    catalog = suite_of(root, *both, more="trials: 3\n")
    with pytest.raises(UpkeepError) as error:
        catalog.cells(catalog.suite("mini"))
    said = str(error.value)
    for words in (
        f"{file}: ",
        "toy/echo/a/none",
        "choice 2: trials 8;",
        "choice 3: trials 3 (the suite says it)",
        "give both the same",
    ):
        assert words in said, said
    for command in ("run", "status", "score"):
        status, errors = called(root, command)
        assert status == 1 and "a different number of times" in errors and "Traceback" not in errors
    alike = suite_of(root, choice("echo/a", "trials: 3"), choice("echo"), more="trials: 3\n")
    assert asked(alike, *alike.cells(alike.suite("mini"))) == [3, 3], "twice the same is no contradiction"


def test_a_suite_that_contradicts_itself_is_not_valid(repository: Path) -> None:
    file = repository / "config/suites/own.yaml"
    cells = "datasets: [oaks_babi_mini], models: [pico-sampled]"
    text = "label: l\nsummary: s\npapers: []\ncells:\n"
    text += f"- {{{cells}, methods: [rag_bm25/k3], trials: 4}}\n- {{{cells}, methods: [M]}}\n"
    file.write_text(text.replace("M", "rag_bm25/k1"))
    assert "a valid suite" in validate_path(file)
    file.write_text(text.replace("M", "rag_bm25"))
    with pytest.raises(UpkeepError, match=r"two choices of cells ask oaks_babi_mini/rag_bm25/k3/pico-sampled") as error:
        validate_path(file)
    assert error.value.where == file


def test_where_one_model_takes_the_place_of_several_it_is_asked_as_often_as_any(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for model in ("m", "n", "other"):
        (root / f"models/{model}").mkdir(parents=True)
        (root / f"models/{model}/model.yaml").write_text(
            "{label: M, summary: s, source: path, location: weights, context_length: 100}"
        )
    card = root / "methods/echo/method.yaml"
    card.write_text(card.read_text().replace("model: false", "model: true"))
    choices = choice("echo", models="m"), choice("echo/a", "trials: 8", models="n")
    catalog = suite_of(root, *choices)
    m, n = (Cell("toy", "echo", "a", model) for model in ("m", "n"))
    assert [catalog.trials(cell, catalog.suite("mini")) for cell in (m, n)] == [1, 8]
    monkeypatch.setenv("UPKEEP_MODEL", "other")
    catalog = suite_of(root, *choices)
    cells = catalog.cells(catalog.suite("mini"))
    found = {cell.variant: catalog.trials(cell, catalog.suite("mini")) for cell in cells}
    assert found == {"a": 8, "b": 1} and {cell.model for cell in cells} == {"other"}


# ---------------------------------------------------------------- identity


def test_a_number_that_is_said_in_another_place_makes_no_cell_stale(root: Path) -> None:
    def both(catalog: Catalog) -> tuple[str, str]:
        return identity(catalog, A)[0], plan_identity(catalog, A)

    before = both(suite_of(root, choice("echo")))
    for catalog in (
        suite_of(root, choice("echo", "trials: 1")),
        suite_of(root, choice("echo/a"), choice("echo/b, keen", "trials: 8")),
        suite_of(root, choice("echo", "trials: 1"), more="trials: 4\n"),
        suite_of(root, choice("keen")),
    ):
        assert both(catalog) == before
    assert both(suite_of(root, choice("echo", "trials: 2"))) == both(suite_of(root, choice("echo"), more="trials: 2\n"))
    assert both(suite_of(root, choice("echo", "trials: 2"))) != before


def test_a_cell_is_run_as_its_choice_says_and_its_neighbours_stay_what_they_are(root: Path) -> None:
    catalog, runtime = suite_of(root, choice("echo")), ScriptedRuntime()
    for cell in (A, B):
        assert run_cell(catalog, cell, runtime=runtime).trials == 1
    catalog = suite_of(root, choice("echo/a"), choice("echo/b", "trials: 3"))
    assert standing(catalog, A).manifest is not None
    assert "what differs: trials" in str(standing(catalog, B).problem)
    starts = runtime.starts
    assert run_cell(catalog, A, runtime=runtime).trials == 1 and runtime.starts == starts, "reused"
    manifest = run_cell(catalog, B, runtime=runtime)
    assert (manifest.trials, manifest.predictions) == (3, 3 * manifest.probes)
    printed: list[str] = []
    assert called(root, "status", "--json", out=printed)[0] == 0
    jobs = {job["name"]: job["total"] for job in json.loads(printed[0])["jobs"]}
    assert jobs == {str(A): manifest.probes, str(B): 3 * manifest.probes}
    assert called(root, "list", "cells", "mini", out=printed)[0] == 0
    assert printed[1].splitlines() == ["toy/echo/a/none", "toy/echo/b/none    [3 trials]"]


def test_only_seed_and_trials_may_be_another_suites(root: Path) -> None:
    """Of a cell that is looked at as it was asked."""
    run_cell(suite_of(root, choice("echo", "trials: 2")), A, runtime=ScriptedRuntime())
    catalog = suite_of(root, more="trials: 1\n")
    with pytest.raises(UpkeepError, match="stale"):
        read_published(catalog, A)
    assert read_published(catalog, A, as_asked=True).trials == 2
    card = root / "methods/echo/method.yaml"
    card.write_text(card.read_text().replace("a: {n: 1}", "a: {n: 9}"))
    with pytest.raises(UpkeepError, match=r"what differs: .*parameters") as error:
        read_published(Catalog(root), A, as_asked=True)
    assert "trials" not in str(error.value.found)


def test_a_judge_is_planned_to_be_asked_about_every_trial(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = suite_of(root, choice("echo/a", "trials: 8"), choice("echo/b, keen"))
    found: list[int] = []
    monkeypatch.setattr(judging, "judges_by_cell", lambda *_: {cell: ["j"] for cell in (A, B, KEEN)})
    monkeypatch.setattr(judging, "has_say", lambda *_: True)
    monkeypatch.setattr(judging, "_tally", lambda *given: found.append(given[3]) or Tally())
    judging.judgings(catalog, "mini", Assumed(reply=1, thinking=0), (A, B, KEEN))
    assert found == [10]


# ---------------------------------------------------------------- the suites that there are


def of(suite: str) -> tuple[Catalog, Suite]:
    catalog = Catalog(ROOT, None, {"suite": suite})
    return catalog, catalog.suite(suite)


@pytest.mark.parametrize("suite", sorted(Catalog(ROOT).suites))
def test_whatever_is_asked_several_times_samples(suite: str) -> None:
    """A greedy model says the same again."""
    catalog, chosen = of(suite)
    several = {cell.model for cell in catalog.cells(chosen) if catalog.trials(cell, chosen) > 1} - {"none"}
    greedy = [model for model in several if catalog.spec(model).sampling.temperature == 0]
    assert greedy == []


def test_papers_are_asked_as_often_as_they_say() -> None:
    found = {}
    for paper in ("evolveqa", "evowiki", "imprintbench", "oaks", "prelude"):
        catalog, suite = of(paper)
        found[paper] = {catalog.trials(cell, suite) for cell in catalog.cells(suite)}
    assert found == {"evolveqa": {1}, "evowiki": {1}, "imprintbench": {8}, "oaks": {1}, "prelude": {1, 3}}
    catalog, suite = of("prelude")
    once = [cell for cell in catalog.cells(suite) if catalog.trials(cell, suite) == 1]
    beside = ("infbench_mc", "detectiveqa", "narrativeqa", "nocha_public")
    assert {str(cell).rpartition("/")[0] for cell in once} == {
        "prelude/rag_dense/k40_qwen3-8b_arrival",
        "prelude/rag_dense/k40_bge-m3",
        "prelude_long_chunks/rag_dense/k20_qwen3-8b",
        "prelude_long_chunks/rag_dense/k20_bge-m3",
        *(f"{name}/{method}" for name in beside for method in ("closed_book/default", "rag_dense/k20_qwen3-8b")),
    }, "Tables 6 and 7 have no deviations; the other rows of Table 6 are those of Table 4"
