"""Claims about plans: counts are those of a real run, sums are sums, what is unknown stays so, and nothing is spent."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from conftest import copy_repository, make_smaller
from planning import (
    ASSUMED,
    DOCUMENTS,
    PROBES,
    TALLY,
    LocalRuntime,
    add_model,
    cell,
    environment,
    publish,
    root,
    runtime,
    suite,
    text,
)
from upkeep.catalog import Catalog
from upkeep.contract import (
    Prediction,
    Usage,
)
from upkeep.execution.rounds import BuiltDataset, answering, tasks, worked_examples
from upkeep.identity import describe
from upkeep.inputs import verify_dataset
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.method_cards import sees_of
from upkeep.operations.plan.amounts import NONE, Plan, sum_of
from upkeep.operations.plan.counts import counting as host_counting
from upkeep.operations.plan.counts.counting import tally
from upkeep.operations.plan.counts.tally import Arrival, with_arrivals
from upkeep.operations.plan.estimate import make_plan
from upkeep.operations.plan.taken import speeds
from upkeep.operations.plan.terminal import render, render_actual

__all__ = ["root", "runtime"]


# ---------------------------------------------------------------- counts and real runs


def really(root: Path, which: Cell, folder: Path) -> dict[str, tuple[int, int, int, int]]:
    """Run a cell with its model; by probe: calls, prompt tokens, generated ones, reused ones."""
    catalog = Catalog(root)
    corpus = BuiltDataset.read(Layout(catalog.results).dataset(which.dataset))
    told = msgspec.structs.replace(
        describe(catalog, which, 120),
        examples=worked_examples(corpus.folder, verify_dataset(corpus.folder)),
        model_path=str(root / "tiny-whole"),
        output=str(folder),
    )
    gold = corpus.gold(sees_of(catalog.method(which.method), which.variant))
    (strand,) = tasks(corpus, [answering(corpus)], 1, bytes(len(corpus.probes)), gold)
    rounds = [task.round for task in strand]
    (folder / "cell.json").write_bytes(msgspec.json.encode(told))
    done = subprocess.run(
        [sys.executable, "-m", "upkeep.serving.alone", str(folder / "cell.json")],
        input=b"".join(msgspec.json.encode(round) + b"\n" for round in rounds),
        env=environment(root),
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode()
    lines = (folder / "predictions.jsonl").read_bytes().splitlines()
    predictions = [msgspec.json.decode(line, type=Prediction) for line in lines]
    return {
        p.probe_id: (p.usage.calls, p.usage.prompt, p.usage.completion, p.measured.cached if p.measured else -1)
        for p in predictions
    }


@pytest.mark.parametrize("which", [cell("long_context"), cell("closed_book", dataset="prelude_mini")], ids=str)
def test_counts_are_those_of_a_real_run_where_the_tokenizer_is_the_models(
    root: Path, runtime: LocalRuntime, tmp_path: Path, which: Cell
) -> None:
    found = tally(Catalog(root), [which], ASSUMED)[which]
    real = really(root, which, tmp_path).values()
    assert found.unknown is None
    assert found.own_tokens and found.counted == found.records == len(real)
    assert found.requests == sum(calls for calls, _, _, _ in real)
    assert found.prompt == sum(prompt for _, prompt, _, _ in real)
    assert found.computed == sum(prompt - cached for _, prompt, _, cached in real)
    assert found.output >= sum(completion for _, _, completion, _ in real), "random weights may stop early"


def test_a_model_without_a_tokenizer_is_counted_by_bytes_not_far_off(root: Path, runtime: LocalRuntime) -> None:
    add_model(root, "elsewhere", context_length=262144, sampling={"max_tokens": 2})
    method = "rolling_window/w3"
    both = tally(Catalog(root), [cell(method), cell(method, "elsewhere")], ASSUMED)
    ours, other = both[cell(method)], both[cell(method, "elsewhere")]
    assert ours.own_tokens and not other.own_tokens
    rate = Layout(Catalog(root).results).dataset("oaks_babi_mini")
    documents = BuiltDataset.read(rate).documents
    from upkeep.building.tokens import load

    texts = [d.text for d in documents]
    ratio = sum(load(root / "tiny" / "tokenizer.json").count(texts)) / sum(load().count(texts))
    assert other.requests == ours.requests
    assert other.prompt * ratio == pytest.approx(ours.prompt, rel=0.1)


def test_what_is_asked_as_documents_arrive_is_counted_apart_and_once(root: Path, runtime: LocalRuntime) -> None:
    first, second, plain = cell("memory_scaffold/budget256"), cell("memory_scaffold/budget256_k5"), cell("closed_book")
    larger = cell("memory_scaffold/budget1024")
    found = tally(Catalog(root), [plain, first, second, larger], ASSUMED)
    assert found[plain].arrival is None
    arrivals = [found[which].arrival for which in (first, second, larger)]
    assert all(arrivals) and arrivals[0] == arrivals[1]
    assert arrivals[0] and arrivals[2] and arrivals[0].key != arrivals[2].key
    assert arrivals[0].requests == DOCUMENTS
    assert arrivals[0].output == DOCUMENTS * 512, "random weights fill what the method allows"
    assert found[first].requests == PROBES
    assert found[first].prompt > found[plain].prompt + PROBES * 100, "the memory is in the prompt"
    paid = with_arrivals(found)
    assert {which: one.requests for which, one in paid.items()} == {
        plain: PROBES, first: PROBES + DOCUMENTS, second: PROBES, larger: PROBES + DOCUMENTS,
    }  # fmt: skip
    assert paid[first].output == found[first].output + arrivals[0].output


def test_cells_of_two_models_each_pay_for_what_they_ask_as_documents_arrive() -> None:
    arrival = Arrival(key="k", requests=7, output=3)
    jobs = [cell("memory_scaffold/budget256", model) for model in ("a", "b")]
    paid = with_arrivals(dict.fromkeys(jobs, msgspec.structs.replace(TALLY, arrival=arrival)))
    assert {one.requests for one in paid.values()} == {TALLY.requests + 7}


def test_dense_retrieval_is_counted_without_an_embedder(root: Path, runtime: LocalRuntime) -> None:
    found = tally(Catalog(root), [cell("rag_dense/k3")], ASSUMED)[cell("rag_dense/k3")]
    assert found.unknown is None
    assert found.requests == PROBES


def test_counts_are_kept_and_only_what_changed_is_counted_again(
    root: Path, runtime: LocalRuntime, tmp_path: Path
) -> None:
    asked = [cell("closed_book"), cell("rolling_window/w1")]
    first = tally(Catalog(root), asked, ASSUMED)
    runtime.launches.clear()
    assert tally(Catalog(root), asked, ASSUMED) == first
    assert not runtime.launches
    source = root / "methods" / "rolling_window" / "method.py"
    before = source.read_text()
    source.write_text(before + "\n# another way to say it\n")
    try:
        assert tally(Catalog(root), asked, ASSUMED) == first
    finally:
        source.write_text(before)
    assert [launch.name.split("-")[1] for launch in runtime.launches] == ["rolling_window"]


def test_models_that_differ_in_weights_alone_share_their_counts(root: Path, runtime: LocalRuntime) -> None:
    add_model(root, "small", context_length=6000, gpus=1, engine="vllm", parameters_b=1)
    add_model(root, "large", context_length=6000, gpus=8, engine="vllm", parameters_b=90, dtype="bfloat16")
    add_model(root, "short", context_length=4500, gpus=1, engine="vllm", parameters_b=1)
    before = len(list((root / "results" / "plans" / "counts").glob("*")))
    found = tally(Catalog(root), [cell("long_context", m) for m in ("small", "large", "short")], ASSUMED)
    assert len(runtime.launches) == 1
    small, large, short = found.values()
    assert small == large
    assert small.prompt > short.prompt, "a shorter context shows fewer documents"
    assert len(list((root / "results" / "plans" / "counts").iterdir())) - before == 2


# ---------------------------------------------------------------- what cannot be counted


def test_a_dataset_that_is_not_at_hand_leaves_its_cells_unknown(root: Path, runtime: LocalRuntime) -> None:
    catalog = suite(root, "absent", cell("long_context", dataset="oaks_novel"), cell("long_context"))
    plan = make_plan(catalog, "absent")
    novel, babi = plan.jobs
    assert novel.plan.requests is None and novel.plan.prompt_tokens is None and novel.plan.cpu_hours is None
    assert "oaks_novel" in novel.unknown[0]
    assert plan.total.plan.requests == babi.plan.requests == PROBES
    assert plan.total.incomplete["requests"] == 1
    shown = text(render(plan))
    assert f"{PROBES} +?" in shown and "no dataset oaks_novel" in shown


def test_a_dataset_that_is_not_built_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = copy_repository(tmp_path)
    make_smaller(root)
    said: list[str] = []
    monkeypatch.setattr(host_counting, "detect", lambda _: LocalRuntime(root))
    found = tally(Catalog(root), [cell("closed_book")], ASSUMED, said.append)
    assert found[cell("closed_book")].requests == PROBES
    assert "building the dataset oaks_babi_mini" in said


BROKEN = {
    "raises": ("raise LookupError('no such thing')", "every probe fails: LookupError: no such thing"),
    "exits": ("import os; os._exit(7)", "exit status 7"),
}


@pytest.mark.parametrize("how", list(BROKEN))
def test_a_method_that_cannot_be_counted_is_unknown_and_the_others_are_not(
    root: Path, runtime: LocalRuntime, how: str
) -> None:
    body, expected = BROKEN[how]
    folder = root / "methods" / f"broken_{how}"
    shutil.copytree(root / "methods" / "closed_book", folder)
    (folder / "method.py").write_text(
        "from upkeep.cell import Method\n\n\nclass Broken(Method):\n"
        f"    async def answer(self, probe, seen, llm):\n        {body}\n"
    )
    try:
        found = tally(Catalog(root), [cell(f"broken_{how}"), cell("closed_book")], ASSUMED)
    finally:
        shutil.rmtree(folder)
    assert expected in (found[cell(f"broken_{how}")].unknown or "")
    assert found[cell("closed_book")].unknown is None
    assert not list((root / "results" / "work" / "counts").iterdir()), "nothing is left behind"


# ---------------------------------------------------------------- nothing is spent


def test_no_weights_are_read_and_no_model_is_built(root: Path, runtime: LocalRuntime) -> None:
    assert not list((root / "tiny").glob("*.safetensors")), "the fixture has none, and all counts above were made so"
    assert tally(Catalog(root), [cell("closed_book")], ASSUMED)[cell("closed_book")].unknown is None
    for launch in runtime.launches:
        assert set(launch.inputs) <= {"cell", "tokens0"}


# ---------------------------------------------------------------- estimates


def test_models_and_total_of_a_plan_are_sums_of_its_jobs(root: Path, runtime: LocalRuntime) -> None:
    cells = [cell("null", "none"), cell("closed_book"), cell("long_context"), cell("memory_scaffold/budget256")]
    plan = make_plan(suite(root, "several", *cells), "several")
    assert [job.kind for job in plan.jobs] == ["cell"] * 4
    assert plan.total == sum_of("total", plan.jobs)
    for field in ("requests", "prompt_tokens", "computed_tokens", "output_tokens"):
        assert getattr(plan.total.plan, field) == sum(getattr(model.plan, field) for model in plan.models)
    assert plan.total.plan.requests == 3 * PROBES + DOCUMENTS
    assert plan.total.incomplete == {"cpu_hours": 3}, "no cell of the model has been run here"
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan


# ---------------------------------------------------------------- afterwards


def test_plan_and_actual_stand_side_by_side(root: Path, runtime: LocalRuntime) -> None:
    done, left = cell("rolling_window/w1"), cell("rolling_window/w2")
    catalog = suite(root, "half", done, left)
    first = make_plan(catalog, "half").jobs[0].plan
    assert first.prompt_tokens and first.computed_tokens and first.cpu_hours is None
    usage = Usage(prompt=int(first.prompt_tokens * 2), completion=2560, calls=PROBES)
    publish(root, done, 200, usage, cached=1000)
    try:
        plan = make_plan(Catalog(root), "half")
        assert [job.actual is not None for job in plan.jobs] == [True, False]
        actual = plan.jobs[0].actual
        assert actual is not None
        assert actual.prompt_tokens == 2 * first.prompt_tokens
        assert actual.cpu_hours == pytest.approx(200 / 3600)
        assert actual.gpu_hours == actual.usd == 0
        speed = speeds(catalog)["tiny"]
        assert speed == pytest.approx((usage.prompt - 1000 + 2560) / 200)
        planned_hours = (first.computed_tokens + (first.output_tokens or 0)) / speed / 3600
        assert plan.jobs[0].plan.cpu_hours == pytest.approx(planned_hours)
        shown = text(render_actual(plan, cells=True))
        assert "2.00" in shown and "1 of 2 jobs are complete; the other 1" in shown
    finally:
        shutil.rmtree(root / "results" / "cells")


def test_what_a_cell_asked_as_documents_arrived_is_in_what_it_took_unless_another_pays_for_it(
    root: Path, runtime: LocalRuntime
) -> None:
    first, second = cell("memory_scaffold/budget256"), cell("memory_scaffold/budget256_k5")
    memory = {"arrival_calls": DOCUMENTS, "arrival_prompt": 700, "arrival_completion": 70}
    for one in (first, second):
        publish(root, one, 100, Usage(prompt=5000, completion=500, calls=PROBES), 1000, memory)
    try:
        plan = make_plan(suite(root, "memories", first, second), "memories")
        told = [(job.plan.requests, a.requests, a.prompt_tokens, a.output_tokens, a.computed_tokens)
                for job in plan.jobs if (a := job.actual)]  # fmt: skip
        assert told == [
            (PROBES + DOCUMENTS, PROBES + DOCUMENTS, 5700, 570, None),
            (PROBES, PROBES, 5000, 500, 4000),
        ], "how much of a memory's prompts was in the engine's cache is not known"
        assert speeds(Catalog(root))["tiny"] == pytest.approx((4000 + 700 + 570) / 100)
    finally:
        shutil.rmtree(root / "results" / "cells")


def test_what_the_record_answered_is_no_speed_of_the_model(root: Path, runtime: LocalRuntime) -> None:
    """A cell that is made anew from the record takes seconds, for prompts that took hours."""
    asked, half, replayed = (cell(f"rolling_window/w{n}") for n in (1, 2, 3))
    usage = Usage(prompt=5000, completion=500, calls=PROBES)
    publish(root, asked, 100, usage, 1000, {"new_replies": PROBES, "recorded_replies": 0})
    publish(root, replayed, 2, usage, 1000, {"new_replies": 0, "recorded_replies": PROBES})
    try:
        assert speeds(Catalog(root))["tiny"] == pytest.approx(4500 / 100)
        publish(root, half, 50, usage, 1000, {"new_replies": 10, "recorded_replies": 10})
        assert speeds(Catalog(root))["tiny"] == pytest.approx((4500 + 2250) / 150)
        # What an attempt that was killed had computed was answered by the record, and its seconds count.
        publish(root, half, 50, usage, 1000, {"new_replies": 0, "recorded_replies": 20}, killed=True)
        assert speeds(Catalog(root))["tiny"] == pytest.approx((4500 + 4500) / 150)
    finally:
        shutil.rmtree(root / "results" / "cells")


# ---------------------------------------------------------------- nothing is made unasked


def test_without_being_asked_to_count_a_plan_makes_nothing_and_says_what_it_does_not_know(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_counting, "detect", lambda _: pytest.fail("a runtime was looked for"))
    absent = cell("long_context", dataset="evowiki_mini")
    catalog = suite(root, "unasked", cell("rolling_window/w5"), absent)  # which no other test counts
    before = sorted((root / "results").rglob("*"))
    plan = make_plan(catalog, "unasked", count=False)
    assert sorted((root / "results").rglob("*")) == before
    unknown = {job.job: " ".join(job.unknown) for job in plan.jobs}
    assert "--count" in unknown[str(cell("rolling_window/w5"))]
    assert "no dataset evowiki_mini" in unknown[str(absent)]
    assert plan.total.plan.requests is None and plan.total.incomplete["requests"] == 2


def test_what_was_counted_once_is_known_without_counting(root: Path, runtime: LocalRuntime) -> None:
    catalog = suite(root, "once", cell("closed_book"))
    counted = make_plan(catalog, "once").total.plan
    launched = len(runtime.launches)
    assert make_plan(Catalog(root), "once", count=False).total.plan == counted and counted.requests
    assert len(runtime.launches) == launched


# ---------------------------------------------------------------- cards, command line


def test_the_command_prints_a_table_with_its_assumptions_and_writes_what_programs_read(
    root: Path, tmp_path: Path
) -> None:
    suite(root, "controls", cell("null", "none"), cell("gold", "none"))
    done = subprocess.run(
        [sys.executable, "-m", "upkeep", "--root", str(root), "plan", "controls", "--method", "gold",
         "--json", str(tmp_path / "p.json")],
        env=environment(root),
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "plan of controls" in done.stdout and "assumptions:" in done.stdout
    plan = msgspec.json.decode((tmp_path / "p.json").read_bytes(), type=Plan)
    assert [job.job for job in plan.jobs] == [str(cell("gold", "none"))]
    assert plan.total.plan == NONE


def test_a_number_of_tokens_below_one_is_refused(root: Path) -> None:
    command = [sys.executable, "-m", "upkeep", "--root", str(root), "plan", "mini", "--output-tokens", "0"]
    done = subprocess.run(command, env=environment(root), capture_output=True, text=True)
    assert done.returncode == 2
    assert "--output-tokens" in done.stderr
