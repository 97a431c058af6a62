"""The probability of a right answer: how it is measured, and how far training moves it (EvoWiki 4.4, Figure 4)."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scored_cells
from conftest import ROOT
from method_fakes import PROMPTS, FakeLLM, document, gold, load, probe, text_of
from metric_cells import scores_of, verdicts
from scored_cells import line, suite_of, timeline, write_cell, write_dataset
from upkeep.catalog import Catalog
from upkeep.cell import Answer, Message, ScoredToken, Seen, Tools
from upkeep.contract import CellChoice
from upkeep.errors import UpkeepError
from upkeep.grading.metric_families import read_family
from upkeep.grading.resampling import RESAMPLES
from upkeep.grading.score import tidy
from upkeep.grading.scores import Scores, score_suite
from upkeep.grading.settings import as_rows
from upkeep.jobs import Cell
from upkeep.report.claims import read_claims
from upkeep.report.fields import as_printed
from upkeep.report.specs import read_paper
from upkeep.report.verdicts import judge

catalog = scored_cells.catalog
fresh = scored_cells.fresh

EVOWIKI = read_family(ROOT / "papers/evowiki/metrics.py")
METRICS = ("probability_shift", "probability_log_ratio")
(UNTRAINED,) = {one.second for one in EVOWIKI.resampled if set(one.metrics) <= set(METRICS)}
LOGPROB = "value_first_token_logprob"

# ------------------------------------------------------------------ the method


class Scripted(FakeLLM):
    """Cuts a continuation into these tokens, each with the negative of its place as its log-probability."""

    def __init__(self, *cuts: int) -> None:
        super().__init__()
        self.cuts, self.asked = cuts, [("", "")]

    async def logprobs(self, prompt: str | Sequence[Message], continuation: str) -> list[ScoredToken]:
        assert not isinstance(prompt, str)
        self.asked.append((text_of(prompt), continuation))
        ends = [*self.cuts, len(continuation)]
        return [
            ScoredToken(start, end, -float(n)) for n, (start, end) in enumerate(zip([0, *ends], ends, strict=False))
        ]


def measured(llm: FakeLLM, answers: Sequence[str] = ("Paris",), prompt: str = "evowiki", **asked: Any) -> Answer:
    method = load("answer_probability")({}, Tools(prompt=PROMPTS[prompt]))
    return asyncio.run(method.answer(probe(0, **asked), Seen([document(0)], gold(0, answers=answers)), llm))


def test_the_prompt_is_the_closed_books_and_the_reply_is_the_one_that_it_asks_for() -> None:
    llm, book = Scripted(), FakeLLM()
    closed_book = load("closed_book")({}, Tools(prompt=PROMPTS["evowiki"]))
    asyncio.run(closed_book.answer(probe(0), Seen([document(0)]), book))
    answer = measured(llm, ["Paris", "City of Light"])
    assert llm.asked[1:] == [(book.prompts[0], "The correct answer: Paris")]
    assert (answer.response, answer.context.documents, answer.retrieved) == (None, 0, ())


@pytest.mark.parametrize(
    ("cuts", "place"),
    [
        ((19, 22), 1),  # "The correct answer:", " Pa", "ris": the token begins with the space
        ((20, 22), 1),  # the space is a token's end: "Pa"
        ((19, 20, 21), 2),  # the space is a token of its own: "P"
        ((18, 21), 1),  # one token of the marker's end and the answer's beginning: ": P"
        ((), 0),  # the tokenizer knows the whole reply as one token
    ],
)
def test_the_first_token_is_the_first_that_covers_any_of_the_answer(cuts: tuple[int, ...], place: int) -> None:
    assert measured(Scripted(*cuts)).values == {"first_token_logprob": -place}


def test_of_several_tokens_of_one_character_it_is_the_first() -> None:
    class Bytes(FakeLLM):
        async def logprobs(self, prompt: str | Sequence[Message], continuation: str) -> list[ScoredToken]:
            return [ScoredToken(0, 20, -1), ScoredToken(20, 21, -2), ScoredToken(20, 21, -3)]

    assert measured(Bytes(), ["日"]).values == {"first_token_logprob": -2}


def test_of_a_choice_it_is_the_letter() -> None:
    llm = Scripted()
    measured(llm, ["C"], "oaks_babi", form="choice", options=["a", "b", "c"])
    assert llm.asked[-1][1] == "## Answer: C" and "C. c" in llm.asked[-1][0]


def test_without_the_key_it_fails_instead_of_guessing() -> None:
    method = load("answer_probability")({}, Tools(prompt=PROMPTS["evowiki"]))
    with pytest.raises(LookupError, match="s-q@0"):
        asyncio.run(method.answer(probe(0), Seen([document(0)]), FakeLLM()))


# ------------------------------------------------------------------ who may be measured


def test_a_model_behind_an_endpoint_is_refused_before_anything_starts(catalog: Catalog) -> None:
    here = Catalog(ROOT)
    endpoint = next(name for name in here.models if here.model(name).source == "endpoint")
    with pytest.raises(UpkeepError, match="an endpoint tells none") as refused:
        here.check(Cell("evowiki_mini", "answer_probability", "default", endpoint))
    assert refused.value.found == endpoint
    here.check(Cell("evowiki_mini", "answer_probability", "default", "pico"))


def test_where_an_endpoint_takes_the_place_of_a_suites_models_nothing_of_it_is_measured() -> None:
    models = ["pico", "pico+sft.lora_tiny"]
    choice = CellChoice(datasets=["evowiki_mini"], methods=["answer_probability", "closed_book"], models=models)
    here = Catalog(ROOT)
    assert [(cell.method, cell.model) for cell in here.cells_of(choice)] == [
        (method, model) for method in choice.methods for model in models
    ]
    endpoint = next(name for name in here.models if here.model(name).source == "endpoint")
    others = Catalog(ROOT, None, {"model": endpoint})
    assert [(cell.method, cell.model) for cell in others.cells_of(choice)] == [("closed_book", endpoint)]


@pytest.mark.parametrize("more", ["trains: true, supervision: Q", "model: false"])
def test_a_card_that_measures_and_does_something_else_is_refused(catalog: Catalog, more: str) -> None:
    card = catalog.root / "methods/odd/method.yaml"
    card.parent.mkdir()
    card.write_text(
        f"{{label: O, papers: [], summary: s., reference: r, variants: {{a: {{}}}}, measures: true, {more}}}"
    )
    with pytest.raises(UpkeepError, match="measures"):
        Catalog(catalog.root).method("odd")


# ------------------------------------------------------------------ the metric


def rows_of(*probabilities: float | None, **slices: Sequence[str]) -> pl.DataFrame:
    """Verdicts of questions with these probabilities."""
    numbers = [None if p is None else math.log(p) for p in probabilities]
    frame = verdicts(*({"parse": "none", "failed": p is None} for p in probabilities), **slices)
    return frame.with_columns(pl.Series(LOGPROB, numbers, dtype=pl.Float64))


def shifts(after: pl.DataFrame, before: pl.DataFrame | None) -> dict[tuple[str, str], dict[str, Any]]:
    """(subset, metric) -> score, of METRICS."""
    assert UNTRAINED is not None
    columns = ("probe_id", "trial", "right", LOGPROB)
    seconds = {} if before is None else {UNTRAINED: before.select(c for c in before.columns if c in columns)}
    found = scores_of(EVOWIKI, after, seconds)
    return {(row["subset"], row["metric"]): row for row in found.iter_rows(named=True) if row["metric"] in METRICS}


def test_the_shift_by_hand() -> None:
    levels = {"level": ["stable", "stable", "evolved", "evolved"], "hops": ["single_hop"] * 4}
    after, before = rows_of(0.5, 0.2, 0.9, 0.01, **levels), rows_of(0.25, 0.4, 0.1, 0.001, **levels)
    found = shifts(after, before)
    whole = found["all", "probability_shift"]
    assert whole["value"] == pytest.approx((25 - 20 + 80 + 0.9) / 4)
    assert (whole["unit"], whole["n"], whole["questions"]) == ("percent_points", 4, 4)
    assert whole["low"] < whole["value"] < whole["high"]
    assert found["stable", "probability_shift"]["value"] == pytest.approx(2.5)
    assert found["evolved", "probability_shift"]["value"] == pytest.approx(40.45)
    ratio = found["all", "probability_log_ratio"]
    assert ratio["value"] == pytest.approx(math.log(2 * 0.5 * 9 * 10) / 4) and ratio["unit"] == "nats"
    assert found["stable", "probability_log_ratio"]["value"] == pytest.approx(0)


PROBABILITIES = st.floats(1e-12, 1)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(PROBABILITIES | st.none(), PROBABILITIES | st.none()), min_size=1, max_size=30))
def test_it_is_the_mean_over_questions_that_were_measured_in_both_cells(
    pairs: list[tuple[float | None, float | None]],
) -> None:
    found = shifts(rows_of(*(one for one, _ in pairs)), rows_of(*(other for _, other in pairs)))
    known = [(after, before) for after, before in pairs if after is not None and before is not None]
    if not known:
        assert found == {}
        return
    wanted = statistics.fmean(100 * (after - before) for after, before in known)
    assert found["all", "probability_shift"]["value"] == pytest.approx(wanted, abs=1e-9)
    assert found["all", "probability_shift"]["questions"] == len(known)
    logs = statistics.fmean(math.log(after) - math.log(before) for after, before in known)
    assert found["all", "probability_log_ratio"]["value"] == pytest.approx(logs, abs=1e-9)


def test_training_that_changes_nothing_shifts_nothing_for_sure() -> None:
    rows = rows_of(0.1, 0.5, 1e-9)
    for score in shifts(rows, rows).values():
        assert (score["value"], score["se"], score["low"], score["high"]) == (0, 0, 0, 0)


def test_a_probability_too_small_for_a_number_still_has_a_ratio() -> None:
    tiny = rows_of(1.0).with_columns(pl.lit(-2000.0).alias(LOGPROB))
    found = shifts(tiny, rows_of(0.5))
    assert found["all", "probability_shift"]["value"] == -50
    assert found["all", "probability_log_ratio"]["value"] == pytest.approx(-2000 + math.log(2))


def test_what_measures_nothing_or_was_not_trained_has_no_shift() -> None:
    bare, full = rows_of(0.5).drop(LOGPROB), rows_of(0.5)
    assert shifts(bare, full) == shifts(full, bare) == shifts(bare, bare) == shifts(full, None) == {}


# ------------------------------------------------------------------ in a suite

DATASET = "oaks_babi_mini"
BASE, TUNED = (Cell(DATASET, "probability", "default", model) for model in ("tiny", "tiny+tune.a"))


@pytest.fixture
def suite(catalog: Catalog, fresh: None) -> Catalog:
    """A model before and after training, measured on a dataset with EvoWiki's metrics, which crosses no slices."""
    common = "label: L, papers: [], summary: s., reference: r"
    for name, more in (
        ("probability", "sees: answers, measures: true, variants: {default: {}}"),
        ("tune", "trains: true, supervision: Q, settings: [adapter], variants: {a: {adapter: lora}}"),
    ):
        card = catalog.root / "methods" / name / "method.yaml"
        card.parent.mkdir()
        card.write_text(f"{{{common}, {more}}}")
    family = catalog.root / "papers/shifts/metrics.py"
    family.parent.mkdir()
    uncrossed = "\n\nimport dataclasses\n\nFAMILY = dataclasses.replace(FAMILY, crossed=())\n"
    family.write_text(Path(EVOWIKI.where).read_text() + uncrossed)
    card = catalog.root / f"datasets/{DATASET}/dataset.yaml"
    card.write_text(card.read_text().replace("metrics: oaks", "metrics: shifts"))
    catalog = suite_of(catalog, BASE, TUNED)
    write_dataset(catalog.results / "datasets" / DATASET, {"p": timeline("x"), "q": timeline("x")})
    publish(catalog, BASE, 0.5, 0.25)
    publish(catalog, TUNED, 0.75, 0.75)
    return Catalog(catalog.root)


def publish(catalog: Catalog, cell: Cell, *probabilities: float) -> None:
    lines = [
        line(f"{question}@0", None, values={"first_token_logprob": math.log(p)})
        for question, p in zip("pq", probabilities, strict=True)
    ]
    write_cell(catalog.results / "cells" / str(cell), lines, cell=cell)


def told(scores: Scores) -> dict[tuple[str, str], float]:
    rows = scores.table.filter(pl.col("cell") != "", pl.col("subset") == "all")
    return {(cell, metric): value for cell, metric, value in rows.select("cell", "metric", "value").rows()}


def test_a_measured_cell_has_no_score_of_answers_that_it_was_never_asked_for(suite: Catalog) -> None:
    scores = score_suite(suite, "s")
    assert told(scores) == {
        (str(BASE), "error_rate"): 0,
        (str(TUNED), "error_rate"): 0,
        (str(TUNED), "probability_shift"): pytest.approx(37.5),
        (str(TUNED), "probability_log_ratio"): pytest.approx(math.log(1.5 * 3) / 2),
    }
    assert scores.lacking == {}, "nor does it lack one of them"
    assert set(scores.table.filter(pl.col("cell") != "")["unread"]) == {0}, (
        "what was asked for no answer left none unread"
    )
    row = scores.table.filter(metric="probability_shift", subset="all").row(0, named=True)
    assert (row["method"], row["supervision"], {s["key"]: s["value"] for s in row["setting"]}["adapter"]) == (
        "tune+probability",
        "Q",
        "lora",
    )


def test_without_the_untrained_model_there_is_no_shift_and_it_is_said_why(suite: Catalog) -> None:
    suite_of(suite, TUNED)
    scores = score_suite(Catalog(suite.root), "s")
    assert told(scores) == {(str(TUNED), "error_rate"): 0}
    why = f"the same before training ({BASE}): not in this suite"
    assert scores.lacking == {str(TUNED): dict.fromkeys(METRICS, why)}


def test_a_trained_model_that_answers_lacks_no_shift_of_what_it_did_not_measure(suite: Catalog) -> None:
    card = suite.root / "methods/closed_book/method.yaml"
    card.parent.mkdir()
    card.write_text("{label: L, papers: [], summary: s., reference: r, variants: {default: {}}}")
    answering = dataclasses.replace(TUNED, method="closed_book")
    lines = [line(f"{question}@0", "x") for question in "pq"]
    write_cell(suite.results / "cells" / str(answering), lines, cell=answering)
    suite_of(suite, answering)
    scores = score_suite(Catalog(suite.root), "s")
    assert told(scores)[str(answering), "exact_match"] == 100
    assert scores.lacking[str(answering)].keys() == {"exact_match_gain"}


def test_a_method_that_answers_from_now_on_gets_its_scores(suite: Catalog) -> None:
    score_suite(suite, "s")
    card = suite.root / "methods/probability/method.yaml"
    card.write_text(card.read_text().replace("measures: true, ", ""))
    found = told(score_suite(Catalog(suite.root), "s"))
    assert found[str(BASE), "exact_match"] == found[str(TUNED), "exact_match"] == 0
    assert found[str(TUNED), "probability_shift"] == pytest.approx(37.5)


# ------------------------------------------------------------------ what the paper says of it


@pytest.mark.parametrize(("sft", "state"), [(20.0, "holds"), (1.0, "fails")])
def test_the_papers_finding_is_judged_by_what_is_measured(sft: float, state: str) -> None:
    shifts = {"cpt": 5.0, "sft": sft, "cpt_sft": 15.0, "sft_cpt": 25.0}
    rows = [
        {"model": "M", "method": f"{training}+answer_probability", "dataset": f"evowiki_{level}", "cell": training}
        | {"subset": "all", "metric": "probability_shift", "value": value, "unit": "percent_points", "questions": 99}
        | {"setting": as_rows((("adapter", "lora"), ("thinking", "off"))), "provenance": "release", "trained": True}
        for training, value in shifts.items()
        for level in ("stable", "evolved", "uncharted")
    ]
    folder = ROOT / "papers/evowiki"
    scores = as_printed(tidy(pl.DataFrame(rows)), read_paper(folder).called)
    claims = [claim for claim in read_claims(folder) if claim.id == "evowiki-c14"]
    found = judge(folder, claims, scores, lambda cell: np.full((3, RESAMPLES), shifts[cell]))
    assert found["evowiki-c14"].release.outcome == state
