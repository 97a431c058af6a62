"""Claims about the order in which a cell is asked: passes change what is computed and no answer, each of them knows
what has arrived alone, and they are taken where they save time."""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import copy_repository
from host_fakes import RunnerRuntime, ScriptedRuntime
from supervised_cells import ECHO, RECORDS, catalog, predictions
from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.contract import Manifest
from upkeep.errors import UpkeepError
from upkeep.execution import cell_job
from upkeep.execution.fetch import fetch
from upkeep.execution.handle import Handle
from upkeep.execution.order import Order, kept, order
from upkeep.execution.passes import by_finding
from upkeep.execution.rounds import BuiltDataset
from upkeep.execution.runtimes import Launch, Prepared
from upkeep.execution.supervise import run_cell
from upkeep.jobs import Cell
from upkeep.layout import Layout

__all__ = ["catalog"]

DATASET, QUESTIONS, INTERVALS = "oaks_babi_stream", 4, 12
RETRIEVES = Cell(DATASET, "rag_bm25", "k3", "tiny")
REMEMBERS = Cell(DATASET, "memory_scaffold", "both", "tiny")
"""Asks its model as documents arrive, too."""


def assume(root: Path, **figures: float) -> Catalog:
    path = root / "config/gpus.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | figures))
    return Catalog(root)


@pytest.fixture(scope="module")
def one_pass(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with two cells on one short stream, asked interval by interval."""
    root = copy_repository(tmp_path_factory.mktemp("order"))
    card = root / "datasets/oaks_babi/dataset.yaml"
    family = yaml.safe_load(card.read_text())
    small = {"chunks": INTERVALS, "chunk_tokens": 100, "questions": QUESTIONS, "facts": 12}
    family["variants"]["stream"]["options"] |= small
    card.write_text(yaml.safe_dump(family | {"published": {}}))
    card = root / "methods/memory_scaffold/method.yaml"
    method = yaml.safe_load(card.read_text())
    method["variants"] |= {"both": {"budget": 32, "k": 2, "shows": {"ranked": "k"}}}
    card.write_text(yaml.safe_dump(method))
    found = assume(root, pass_s=1e9)
    build_dataset(found, DATASET, Layout(found.results).dataset(DATASET))
    fetch(found, "tiny")
    return root


def asked(root: Path, cell: Cell, runtime: ScriptedRuntime, *, force: bool = False) -> tuple[bytes, Manifest]:
    manifest = run_cell(Catalog(root), cell, force, runtime=runtime)
    return (Layout(root / "results").cell(cell) / "predictions.jsonl").read_bytes(), manifest


def copied(root: Path, to: Path) -> Path:
    """The repository without what was asked, where passes cost nothing."""
    shutil.copytree(root, to, ignore=shutil.ignore_patterns("cells", "record", "status", "logs"))
    assume(to, pass_s=0, cpu_gflops=1e-3)
    return to


# ---------------------------------------------------------------- what it changes


@pytest.mark.parametrize("cell", [RETRIEVES, REMEMBERS], ids=["retrieval", "memory"])
def test_passes_give_the_same_bytes_without_a_further_request(one_pass: Path, tmp_path: Path, cell: Cell) -> None:
    """They spare nothing where the engine keeps the prompts of all questions."""
    first, by_interval = asked(one_pass, cell, RunnerRuntime())
    second, by_question = asked(copied(one_pass, tmp_path / "root"), cell, RunnerRuntime())
    assert first == second
    assert (len(by_interval.attempts), len(by_question.attempts)) == (1, QUESTIONS)
    assert by_question.measured["passes"] == QUESTIONS and "passes" not in by_interval.measured
    assert by_question.measured["new_replies"] == by_interval.measured["new_replies"]
    assert by_question.measured["computed_prompt_tokens"] >= by_interval.measured["computed_prompt_tokens"]
    assert by_question.identity == by_interval.identity


def test_a_cell_that_is_on_record_is_replayed_in_one_pass(one_pass: Path, tmp_path: Path) -> None:
    root = copied(one_pass, tmp_path / "root")
    first, _ = asked(root, RETRIEVES, RunnerRuntime())
    second, again = asked(root, RETRIEVES, runtime := RunnerRuntime(), force=True)
    assert first == second and again.measured["new_replies"] == 0
    assert len(again.attempts) == 1 and not runtime.engines


class Ends(RunnerRuntime):
    """The host is told to stop when the container of some pass is to start."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.left = number

    def start(self, prepared: Prepared, launch: Launch) -> Handle:
        if not launch.arguments:
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
        return super().start(prepared, launch)


def test_a_cell_that_is_stopped_between_passes_goes_on_with_the_next_one(one_pass: Path, tmp_path: Path) -> None:
    expected, _ = asked(one_pass, RETRIEVES, RunnerRuntime())
    root = copied(one_pass, tmp_path / "root")
    with pytest.raises(KeyboardInterrupt):
        asked(root, RETRIEVES, Ends(2))
    found, manifest = asked(root, RETRIEVES, RunnerRuntime())
    assert found == expected
    assert [attempt.outcome for attempt in manifest.attempts] == ["complete"] * 2 + ["killed"] + ["complete"] * 2


def by_what_is_found(_catalog: Catalog, _cell: Cell, corpus: BuiltDataset, *_: object) -> Order:
    return Order(by_finding(corpus, 3, 3), held=True, together=1)


def test_a_question_whose_probes_are_in_several_passes_gives_the_same_bytes_when_it_is_stopped_between_them(
    one_pass: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, _ = asked(one_pass, RETRIEVES, RunnerRuntime())
    corpus = BuiltDataset.read(Layout(one_pass / "results").dataset(DATASET))
    passes = {*zip((p.question_id for p in corpus.probes), by_finding(corpus, 3, 3), strict=True)}
    assert len(passes) > QUESTIONS
    monkeypatch.setattr(cell_job, "order", by_what_is_found)
    root = copied(one_pass, tmp_path / "root")
    with pytest.raises(KeyboardInterrupt):
        asked(root, RETRIEVES, Ends(1))
    found, manifest = asked(root, RETRIEVES, RunnerRuntime())
    assert found == expected and manifest.measured["passes"] == 2
    assert [attempt.outcome for attempt in manifest.attempts] == ["complete", "killed", "complete"]


# ---------------------------------------------------------------- what a pass knows


def by_question(_catalog: Catalog, _cell: Cell, corpus: BuiltDataset, *_: object) -> Order:
    """Passes of the toy dataset, whose streams have 3, 2 and 1 questions."""
    return Order([int(probe.question_id[1:]) for probe in corpus.probes], held=True, together=1)


@pytest.mark.parametrize("fault", ["none", "die"])
def test_each_pass_has_a_new_container_that_is_fed_what_has_arrived_and_asked_its_own_questions(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """The scripted container refuses a probe before its documents have come, or after any later one, and what an
    earlier container has left. One that dies is followed by another one of the same pass."""
    run_cell(catalog, ECHO, runtime=ScriptedRuntime())
    expected = predictions(catalog)
    shutil.rmtree(catalog.results / "cells")
    monkeypatch.setattr(cell_job, "order", by_question)
    runtime = ScriptedRuntime(fault, 7, once=True)
    manifest = run_cell(catalog, ECHO, runtime=runtime)
    found = predictions(catalog)
    assert [{**p, "measured": None} for p in found] == [{**p, "measured": None} for p in expected]
    assert manifest.measured["passes"] == 3
    assert runtime.starts == len(manifest.attempts) == 3 + (fault == "die")
    done = [attempt.lines for attempt in manifest.attempts]
    assert done == sorted(done) and done[-1] == RECORDS and len(set(done)) == len(done)
    folders = {str(launch.output) for launch in runtime.launches}
    assert len(folders) == runtime.starts


# ---------------------------------------------------------------- when it is taken


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 3))
def test_what_a_prompt_keeps_is_the_mean_over_all_ranks_that_newcomers_may_have(
    ranked: int, arrived: int, more: int
) -> None:
    def common(ranking: Sequence[int]) -> int:
        before = [document for document in ranking if document < arrived][:ranked]
        return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(before, ranking[:ranked])))  # noqa: B905

    every = list(itertools.permutations(range(arrived + more)))
    assert kept(ranked, arrived, more) == pytest.approx(sum(map(common, every)) / len(every))


def passes(root: Path, method: str, model: str, **figures: float) -> Order:
    found = assume(root, **figures) if figures else Catalog(root)
    corpus = BuiltDataset.read(Layout(found.results).dataset(DATASET))
    name, variant = method.split("/")
    return order(found, Cell(DATASET, name, variant, model), corpus, 1)


def test_passes_are_taken_for_prompts_of_a_question_where_they_cost_less_than_they_save(
    one_pass: Path, tmp_path: Path
) -> None:
    root = copied(one_pass, tmp_path / "root")
    assert passes(root, "rag_bm25/k3", "tiny").passes == QUESTIONS
    assert passes(root, "long_context/default", "tiny").passes == 1
    assert passes(root, "rag_bm25/k3", "gpt-4o-mini").passes == 1, "nobody knows what an endpoint keeps"
    whole = passes(root, "rag_bm25/k3", "tiny-vllm")
    assert whole.passes == 1 and whole.held, "its cache holds all questions"
    dear = passes(root, "rag_bm25/k3", "tiny", pass_s=1e9)
    assert dear.passes == 1 and not dear.held


def test_a_group_is_as_large_as_the_cache(one_pass: Path, tmp_path: Path) -> None:
    """A GPU with room for two or three questions beside the weights."""
    root = copied(one_pass, tmp_path / "root")
    gpus = {"small": {"tflops": 1e-6, "bandwidth_gb_s": 1e9, "memory_gb": 0.0031, "source": "x"}}
    card = root / "models/tiny/model.yaml"
    card.write_text(card.read_text().replace("engine: transformers", "engine: vllm\ngpus: 1"))
    found = passes(root, "rag_bm25/k3", "tiny", gpus=gpus, default="small", memory_share=1.0)  # type: ignore[arg-type]
    assert 1 < found.passes < QUESTIONS and found.held
    probes = BuiltDataset.read(Layout(root / "results").dataset(DATASET)).probes
    asked = Counter((number, probe.position) for number, probe in zip(found.numbers, probes, strict=True))
    assert max(asked.values()) in (2, 3)


@pytest.mark.parametrize(
    ("shows", "found"),
    [("k", "k"), ({"latest": "n"}, "'n'"), ({"ranked": "n"}, "'n'"), ({"ranked": "k", "best": "k"}, "best")],
)
def test_what_a_card_says_of_prompts_is_refused_where_it_names_no_number(
    one_pass: Path, tmp_path: Path, shows: object, found: str
) -> None:
    root = tmp_path / "root"
    shutil.copytree(one_pass, root, ignore=shutil.ignore_patterns("results"))
    card = root / "methods/rag_bm25/method.yaml"
    method = yaml.safe_load(card.read_text())
    method["variants"]["k3"]["shows"] = shows
    card.write_text(yaml.safe_dump(method))
    with pytest.raises(UpkeepError, match=r"k3") as refused:
        Catalog(root).method("rag_bm25")
    assert (found in str(refused.value) and "ranked" in str(refused.value)) or "whole number" in str(refused.value)
