"""Scoring: answer equivalence, the metrics of OAKS, their uncertainty, and the refusal of cells that do not agree."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import ROOT
from host_fakes import PROMPT
from upkeep import published
from upkeep.building.content import content
from upkeep.catalog import Catalog
from upkeep.contract import (
    ContextUse,
    DatasetCard,
    DatasetSpec,
    Environment,
    Manifest,
    Prediction,
    Published,
    Retrieved,
    Usage,
)
from upkeep.errors import UpkeepError
from upkeep.grading import metrics, score, statistics
from upkeep.grading.dataset_scores import score_dataset
from upkeep.grading.graded import READ, VERDICTS, grade, grade_cell
from upkeep.grading.key import Key, key_in
from upkeep.grading.matching import EQUIVALENCES, canonical, equivalence, letter, short_answer
from upkeep.grading.metric_families import read_family
from upkeep.grading.resampling import RESAMPLES, Draws
from upkeep.grading.scores import read_scores, score_suite
from upkeep.grading.settings import as_rows, option, printed
from upkeep.integrity import fingerprint, read_sealed, write_sealed
from upkeep.jobs import Cell

CELL = Cell("oaks_babi", "rag_dense", "k30", "m")
SETTING = (("k", "30"), ("thinking", "off"))
IDENTITY = score.Identity("RAG", "M", "rag_dense", "", SETTING, "oaks_babi", "oaks_babi_mini", "stand_in", "mini", True)
SPEC = DatasetSpec(
    label="x",
    summary="x",
    paper="oaks",
    source="x",
    licence="x",
    prompt="x",
    equivalence="short_answer",
    metrics="oaks",
)

OAKS = read_family(ROOT / "papers/oaks/metrics.py")
oaks = sys.modules[OAKS.measure.__module__]

Question = Sequence[tuple[list[str], list[str]]]
"""Accepted answers and evidence of a question, one pair an interval."""


ARRIVING = {"stream": pl.String, "position": pl.Int32, "tokens": pl.Int32}
"""What scores ask of documents."""


def write_dataset(
    folder: Path,
    questions: Mapping[str, Question],
    slices: Mapping[str, str] | None = None,
    name: str = "oaks_babi_mini",
) -> None:
    """A built dataset. A new phase begins where the accepted answers change."""
    probes, gold = [], []
    for question, timeline in questions.items():
        phase = 0
        for t, (answers, evidence) in enumerate(timeline):
            phase += t > 0 and answers != timeline[t - 1][0]
            probes.append({"probe_id": f"{question}@{t}", "question_id": question, "stream": "s", "position": t})
            gold.append(
                {
                    "probe_id": f"{question}@{t}",
                    "answers": answers,
                    "outdated": [],
                    "evidence": evidence,
                    "phase": phase,
                    "slice_changes": (slices or {}).get(question),
                }
            )
    folder.mkdir(parents=True, exist_ok=True)
    types = {"phase": pl.Int32, "position": pl.Int32, "slice_changes": pl.String}
    lists = {"answers": pl.List(pl.String), "outdated": pl.List(pl.String), "evidence": pl.List(pl.String)}
    table = pl.DataFrame(probes, schema_overrides={"position": pl.Int32}).with_columns(
        form=pl.lit("short"), options=pl.lit(None, pl.List(pl.String))
    )
    table.write_parquet(folder / "probes.parquet")
    key = pl.DataFrame(gold, schema_overrides={k: v for k, v in {**types, **lists}.items() if k != "position"})
    key.write_parquet(folder / "gold.parquet")
    last = max((len(timeline) for timeline in questions.values()), default=0)
    documents = pl.DataFrame([("s", n, 10) for n in range(last)], schema=ARRIVING, orient="row")
    documents.write_parquet(folder / "documents.parquet")
    card = DatasetCard(
        dataset=name,
        label="OAKS-B mini",
        source="test",
        licence="none",
        tokenizer="none",
        chunk_tokens=10,
        streams=1,
        documents=1,
        probes=len(probes),
        questions=len(questions),
        slices={"changes": {"sparse": 3, "frequent": 1}},
        statistics={},
        provenance="stand_in" if name == "oaks_babi_mini" else "own",
        stands_for="oaks_babi" if name == "oaks_babi_mini" else None,
        content=content(documents, table, key, []),
        files={f"{name}.parquet": fingerprint(folder / f"{name}.parquet") for name in ("gold", "probes", "documents")},
    )
    write_sealed(folder / "card.json", card)


def line(probe: str, answer: str | None, **fields: Any) -> Prediction:
    given = {
        "trial": 0,
        "response": answer,
        "reasoning": None,
        "finish_reason": "stop",
        "retrieved": [],
        "usage": Usage(),
        "context": ContextUse(),
        "error": None,
    }
    return Prediction(probe_id=probe, **given | fields)


def write_cell(
    folder: Path, lines: Sequence[Prediction], probes: int | None = None, trials: int = 1, cell: Cell = CELL
) -> None:
    data = b"".join(msgspec.json.encode(p) + b"\n" for p in lines)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "predictions.jsonl").write_bytes(data)
    environment = Environment(
        runtime="process",
        isolated=False,
        image=None,
        digest=None,
        engine="none",
        engine_version="0",
        packages={},
        hardware={},
    )
    manifest = Manifest(
        cell=str(cell),
        identity="0" * 64,
        identity_parts={},
        environment=environment,
        seed=0,
        start="2026-01-01T00:00:00Z",
        end="2026-01-01T00:00:01Z",
        attempts=[],
        probes=probes if probes is not None else len(lines) // trials,
        trials=trials,
        outcomes={"answered": len(lines)},
        usage=Usage(),
        measured={},
        files={"predictions.jsonl": fingerprint(folder / "predictions.jsonl")},
    )
    write_sealed(folder / "manifest.json", manifest)


def manifest_of(cell: Path) -> Manifest:
    return read_sealed(cell / "manifest.json", Manifest, "")


def key_of(folder: Path) -> Key:
    return key_in(folder, "short_answer", "## Answer:")


def scored(tmp: Path, cell: Cell = CELL) -> pl.DataFrame:
    """The scores of the cell in `tmp` on the dataset there."""
    key, manifest = key_of(tmp / "dataset"), manifest_of(tmp / "cell")
    found, draws = grade_cell(tmp / "cell", manifest, cell, key), Draws(cell.dataset, key.probes["question_id"])
    return score.score_cell(found, manifest, cell, IDENTITY, key, OAKS, draws).rows


def scores_of(
    tmp: Path,
    questions: Mapping[str, Question],
    lines: Sequence[Prediction],
    slices: Mapping[str, str] | None = None,
    trials: int = 1,
) -> dict[tuple[str, str], dict[str, Any]]:
    """(subset, metric) -> row; `pass_at_<k>` is the metric of pass@k, `<metric>_<n>` any other at n."""
    write_dataset(tmp / "dataset", questions, slices)
    write_cell(tmp / "cell", lines, trials=trials)
    frame = scored(tmp)
    rows = list(frame.with_columns(at=option("at")).iter_rows(named=True))
    named = {(row["subset"], f"{row['metric']}_{row['at']}" if row["at"] else row["metric"]): row for row in rows}
    return {(subset, name.replace("pass_at_k_", "pass_at_")): row for (subset, name), row in named.items()}


def timeline(answers: str) -> list[tuple[list[str], list[str]]]:
    """One accepted answer an interval, one letter each."""
    return [([letter], []) for letter in answers]


def answered(name: str, answers: str, **fields: Any) -> list[Prediction]:
    """One answer an interval; `.` is none."""
    return [line(f"{name}@{t}", None if a == "." else a, **fields) for t, a in enumerate(answers)]


# ------------------------------------------------------------------ equivalence


@pytest.mark.parametrize("text", ["3", "three", "Three.", "3 times", "three times", "thrice", " THREE  times! ", "03"])
def test_ways_to_write_a_number_are_one_answer(text: str) -> None:
    assert short_answer(text) == "3"


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        *[("zero", "0"), ("never", "0"), ("once", "1"), ("one time", "1"), ("Twice", "2"), ("twenty-three", "23")],
        *[("twenty three times", "23"), ("Twentythree", "23"), ("ninety-nine", "99"), ("1,000", "1000"), ("0", "0")],
    ],
)
def test_number_words_are_read(text: str, digits: str) -> None:
    assert short_answer(text) == digits


def test_articles_punctuation_case_and_spaces_do_not_matter() -> None:
    assert short_answer("  The  Kitchen. ") == short_answer("kitchen") == short_answer("“a kitchen”") == "kitchen"


def test_different_answers_stay_different() -> None:
    texts = ["unknown", "same", "0", "30", "3.0", "theatre", "atheist", "two kitchens", "kitchen", "one kitchen"]
    assert len({short_answer(text) for text in texts}) == len(texts)


@pytest.mark.parametrize("text", ["A", "The", "an", "?!", "—"])
def test_normalising_leaves_no_answer_empty(text: str) -> None:
    assert short_answer(text)


def test_letters_are_compared_as_they_are() -> None:
    assert letter("A") == "A"
    assert letter("a") != letter("A")


@given(st.text(max_size=30))
def test_canonical_form_is_stable(text: str) -> None:
    assert short_answer(short_answer(text)) == short_answer(text)


def test_canonical_column_keeps_order_and_nulls() -> None:
    column = pl.Series(["Three", None, "x", "three times"])
    assert canonical(column, short_answer).to_list() == ["3", None, "x", "3"]
    assert canonical(pl.Series([None, None], dtype=pl.String), short_answer).to_list() == [None, None]


def test_unknown_equivalence_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UpkeepError, match="short_answer"):
        equivalence("exact")
    assert equivalence("letter") is EQUIVALENCES["letter"]


# ------------------------------------------------------------------ hand-computed metrics


def test_latency_distraction_and_miss_by_hand(tmp_path: Path) -> None:
    # Phase x: wrong, right, wrong, right -> latency 1, distraction 1. Phase y: never right -> 3 missed.
    # Phase x again is a new phase: right at once -> nothing. 10 intervals.
    result = scores_of(tmp_path, {"q": timeline("xxxxyyyxxx")}, answered("q", "zxzxxxxxxx"))
    assert result["all", "accuracy"]["value"] == pytest.approx(50)
    assert result["all", "acquisition_latency"]["value"] == pytest.approx(10)
    assert result["all", "distraction_susceptibility"]["value"] == pytest.approx(10)
    assert result["all", "phase_miss"]["value"] == pytest.approx(30)


def test_means_are_over_intervals_first_then_over_questions(tmp_path: Path) -> None:
    questions = {"long": timeline("xxxxxxxx"), "short": timeline("xx")}
    result = scores_of(tmp_path, questions, answered("long", "xxxxxxxx") + answered("short", "zz"))
    assert result["all", "accuracy"]["value"] == pytest.approx(50)  # pooled it would be 80


def test_the_eight_behaviours_by_hand(tmp_path: Path) -> None:
    # gold       x  x  x  x  x  x  x | y  y  y | z  z | x | y | x
    # predicted  a  b  b  x  x  z  x | y  y  x | x  z | x | x | y      (a, b wrong)
    gold, predicted = "xxxxxxxyyyzzxyx", "abbxxzxyyxxzxxy"
    result = scores_of(tmp_path, {"q": timeline(gold)}, answered("q", predicted))
    stay = {"volatility_rate": 3, "obstinacy_rate": 1, "lag_rate": 3, "stability_rate": 2}
    change = {"adaptability_rate": 2, "stubbornness_rate": 2, "maladaptation_rate": 1, "prescience_rate": 0}
    for metric, count in stay.items():
        assert result["gt_stay", metric]["value"] == pytest.approx(100 * count / 9), metric
        assert result["gt_stay", metric]["n"] == 9
    for metric, count in change.items():
        assert result["gt_change", metric]["value"] == pytest.approx(100 * count / 5), metric
        assert result["gt_change", metric]["n"] == 5
    assert result["all", "change_rate"]["value"] == pytest.approx((100 * 3 / 5 + 100 * 6 / 9) / 2)


def test_prescience_is_the_new_answer_given_before_it_was_right(tmp_path: Path) -> None:
    result = scores_of(tmp_path, {"q": timeline("xy")}, answered("q", "yy"))
    assert result["gt_change", "prescience_rate"]["value"] == 100


def test_behaviours_are_pooled_and_by_question_is_the_mean_of_the_questions(tmp_path: Path) -> None:
    questions = {"p": timeline("xyxyx"), "q": timeline("xy")}
    result = scores_of(tmp_path, questions, answered("p", "xyxyx") + answered("q", "xx"))
    assert result["gt_change", "adaptability_rate"]["value"] == pytest.approx(80)
    assert result["gt_change", "adaptability_rate_by_question"]["value"] == pytest.approx(50)


def test_equivalent_forms_are_the_same_prediction(tmp_path: Path) -> None:
    question = [(["Unknown", "0"], []), (["Unknown", "0"], []), (["3"], []), (["3"], [])]
    lines = [line(f"q@{t}", a) for t, a in enumerate(["unknown", "0", "three", "3 times"])]
    result = scores_of(tmp_path, {"q": question}, lines)
    assert result["all", "accuracy"]["value"] == 100
    assert result["gt_stay", "stability_rate"]["value"] == 100
    assert result["gt_change", "adaptability_rate"]["value"] == 100


def test_holding_on_to_zero_when_the_count_begins_is_stubborn(tmp_path: Path) -> None:
    question = [(["Unknown", "0"], []), (["1"], [])]
    result = scores_of(tmp_path, {"q": question}, [line("q@0", "0"), line("q@1", "zero")])
    assert result["gt_change", "stubbornness_rate"]["value"] == 100


def test_no_answer_twice_is_no_change(tmp_path: Path) -> None:
    result = scores_of(tmp_path, {"q": timeline("xx")}, answered("q", ".."))
    assert result["gt_stay", "obstinacy_rate"]["value"] == 100
    result = scores_of(tmp_path, {"q": timeline("xx")}, answered("q", ".z"))
    assert result["gt_stay", "volatility_rate"]["value"] == 100


def test_a_question_that_never_changes_gives_no_rates_of_change(tmp_path: Path) -> None:
    result = scores_of(tmp_path, {"q": timeline("xx")}, answered("q", "xx"))
    assert not any(subset == "gt_change" for subset, _ in result)
    assert ("all", "change_rate") not in result


def test_subsets_hold_their_own_questions_only(tmp_path: Path) -> None:
    questions = {"p": timeline("xx"), "q": timeline("xx"), "r": timeline("xx")}
    lines = answered("p", "xx") + answered("q", "xz") + answered("r", "zz")
    result = scores_of(tmp_path, questions, lines, slices={"p": "sparse", "q": "sparse", "r": "frequent"})
    assert result["sparse", "accuracy"]["value"] == pytest.approx(75)
    assert result["frequent", "accuracy"]["value"] == 0
    assert result["frequent", "phase_miss"]["value"] == 100
    assert result["all", "accuracy"]["value"] == pytest.approx(50)


def test_quarters_cut_the_intervals_of_a_question_in_four(tmp_path: Path) -> None:
    result = scores_of(tmp_path, {"q": timeline("xxxxxxxx")}, answered("q", "xxxzzxzz"))
    assert [result[f"interval_q{i}", "accuracy"]["value"] for i in (1, 2, 3, 4)] == [100, 50, 50, 0]


# ------------------------------------------------------------------ failures and completeness


def test_an_error_counts_as_wrong_whatever_the_answer(tmp_path: Path) -> None:
    lines = [line("q@0", "x"), line("q@1", "x", error="out of memory")]
    result = scores_of(tmp_path, {"q": timeline("xx")}, lines)
    assert result["all", "accuracy"]["value"] == 50
    assert result["all", "accuracy"]["n"] == 2
    assert result["all", "error_rate"]["value"] == 50


def test_an_unread_answer_counts_as_wrong_and_lowers_the_parse_rate(tmp_path: Path) -> None:
    result = scores_of(tmp_path, {"q": timeline("xxxx")}, answered("q", "xx.."))
    assert result["all", "accuracy"]["value"] == 50
    assert result["all", "parse_rate"]["value"] == 50
    assert result["all", "error_rate"]["value"] == 0


def test_a_missing_prediction_counts_as_wrong(tmp_path: Path) -> None:
    write_dataset(tmp_path, {"q": timeline("xxxx")})
    key = key_of(tmp_path)
    values = ("q@0", 0, "x", "marker", None, None, False, None, 7, 1)
    predictions = pl.DataFrame(
        {name: [value] for name, value in zip(READ, values, strict=True)},
        schema_overrides={name: VERDICTS[name] for name in READ},
    )
    graded = grade(key, predictions, trials=1)
    assert graded["right"].to_list() == [True, False, False, False]
    assert graded["failed"].to_list() == [False, True, True, True]
    assert graded["prompt_tokens"].to_list() == [7, None, None, None]


@pytest.mark.parametrize(
    ("probe", "message"), [("q@9", "unknown probe"), ("q@0", "two predictions")], ids=["unknown", "twice"]
)
def test_grading_refuses_what_does_not_belong(tmp_path: Path, probe: str, message: str) -> None:
    write_dataset(tmp_path, {"q": timeline("xx")})
    predictions = pl.DataFrame(
        {
            "probe_id": ["q@0", probe],
            "trial": [0, 0],
            "answer": ["x"] * 2,
            "parse": ["whole"] * 2,
            "failed": [False] * 2,
        },
        schema_overrides={"trial": pl.Int32},
    ).with_columns(rank=pl.lit(None, pl.Int32))
    with pytest.raises(UpkeepError, match=message):
        grade(key_of(tmp_path), predictions, trials=1)


def test_trials_are_averaged(tmp_path: Path) -> None:
    lines = answered("q", "xx") + answered("q", "xz", trial=1) + answered("q", "zz", trial=2)
    result = scores_of(tmp_path, {"q": timeline("xx")}, lines, trials=3)
    assert result["all", "accuracy"]["value"] == pytest.approx(50)
    assert result["all", "accuracy"]["n"] == 6
    assert result["gt_stay", "stability_rate"]["value"] == pytest.approx(100 / 3)
    assert result["gt_stay", "obstinacy_rate"]["value"] == pytest.approx(100 / 3)
    assert result["gt_stay", "volatility_rate"]["value"] == pytest.approx(100 / 3)


def test_changed_predictions_are_refused(tmp_path: Path) -> None:
    write_dataset(tmp_path / "dataset", {"q": timeline("xx")})
    write_cell(tmp_path / "cell", answered("q", "xz"))
    path = tmp_path / "cell" / "predictions.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"z"', b'"x"'))
    with pytest.raises(UpkeepError, match="not the ones that the manifest describes"):
        scored(tmp_path)


def test_a_manifest_of_another_cell_is_refused(tmp_path: Path) -> None:
    write_dataset(tmp_path / "dataset", {"q": timeline("xx")})
    write_cell(tmp_path / "cell", answered("q", "xz"))
    other = Cell("oaks_babi", "rag_dense", "k5", "m")
    with pytest.raises(UpkeepError, match="do not agree: name"):
        scored(tmp_path, other)


def test_a_cell_of_an_older_dataset_is_refused(tmp_path: Path) -> None:
    write_dataset(tmp_path / "dataset", {"q": timeline("xxx")})
    write_cell(tmp_path / "cell", answered("q", "xz"))
    with pytest.raises(UpkeepError, match="number of probes"):
        scored(tmp_path)


def test_a_torn_line_is_named(tmp_path: Path) -> None:
    write_dataset(tmp_path / "dataset", {"q": timeline("xx")})
    write_cell(tmp_path / "cell", answered("q", "xz"))
    path = tmp_path / "cell" / "predictions.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UpkeepError, match="line 2"):
        scored(tmp_path)


def test_a_broken_line_is_named_far_into_the_file(tmp_path: Path) -> None:
    write_dataset(tmp_path / "dataset", {"q": timeline("x" * 2000)})
    write_cell(tmp_path / "cell", answered("q", "x" * 2000))
    path = tmp_path / "cell" / "predictions.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"q@1234"', b'"q@1234'))
    with pytest.raises(UpkeepError, match="line 1235"):
        scored(tmp_path)


def test_an_added_blank_line_is_refused(tmp_path: Path) -> None:
    write_dataset(tmp_path / "dataset", {"q": timeline("xx")})
    write_cell(tmp_path / "cell", answered("q", "xz"))
    with (tmp_path / "cell" / "predictions.jsonl").open("ab") as file:
        file.write(b"\n" * 100_000)
    with pytest.raises(UpkeepError, match="not the ones that the manifest describes"):
        scored(tmp_path)


def test_a_changed_answer_key_is_refused(tmp_path: Path) -> None:
    write_dataset(tmp_path, {"q": timeline("xx")})
    gold = pl.read_parquet(tmp_path / "gold.parquet").with_columns(answers=pl.lit(["z"]))
    gold.write_parquet(tmp_path / "gold.parquet")
    with pytest.raises(UpkeepError, match=r"gold\.parquet: not the file that was written"):
        key_of(tmp_path)


# ------------------------------------------------------------------ retrieval


def test_pass_at_k_counts_intervals_with_evidence_only(tmp_path: Path) -> None:
    question = [(["Unknown"], []), (["x"], ["c0", "c1"]), (["x"], ["c0", "c1"]), (["x"], ["c0", "c1"])]

    def found(*ids: str) -> list[Retrieved]:
        return [Retrieved(id=name, score=1.0 / rank, rank=rank) for rank, name in enumerate(ids, 1)]

    lines = [
        line("q@0", "x", retrieved=found("c0")),
        line("q@1", "x", retrieved=found("c1", "c0")),
        line("q@2", "x", retrieved=found("c0", "c2", "c1")),  # c0 is older evidence, not the gold chunk
        line("q@3", None, error="failed"),
    ]
    result = scores_of(tmp_path, {"q": question}, lines)
    assert [result["all", f"pass_at_{k}"]["value"] for k in (1, 2, 3)] == pytest.approx([100 / 3, 100 / 3, 200 / 3])
    assert result["all", "pass_at_3"]["n"] == 3
    assert result["all", "pass_at_3"]["setting"] == as_rows((*SETTING, ("at", "3")))
    assert ("all", "pass_at_4") not in result


def test_a_method_without_retrieval_has_no_pass_at_k(tmp_path: Path) -> None:
    result = scores_of(tmp_path, {"q": [(["x"], ["c0"])]}, answered("q", "x"))
    assert not any(metric.startswith("pass_at") for _, metric in result)


# ------------------------------------------------------------------ any predictions at all

answers = st.sampled_from([None, "x", "y", "z", "3", "three", "Unknown", "0"])
accepted = st.sampled_from([["x"], ["y"], ["3"], ["Unknown", "0"]])
a_question = st.lists(st.tuples(accepted, answers), min_size=1, max_size=12)
questions_and_answers = st.lists(a_question, min_size=1, max_size=4)


def graded_frame(questions: Sequence[Sequence[tuple[list[str], str | None]]]) -> pl.DataFrame:
    rows = []
    for q, question in enumerate(questions):
        phase = 0
        for t, (gold, answer) in enumerate(question):
            phase += t > 0 and gold != question[t - 1][0]
            form = None if answer is None else short_answer(answer)
            rows.append(
                {
                    "probe_id": f"q{q}@{t}",
                    "question_id": f"q{q}",
                    "trial": 0,
                    "position": t,
                    "phase": phase,
                    "right": form is not None and form in {short_answer(g) for g in gold},
                    "outdated": False,
                    "answer": answer,
                    "canonical": form,
                    "parse": "none" if form is None else "marker",
                    "failed": False,
                    "has_evidence": False,
                    "rank": None,
                }
            )
    return pl.DataFrame(rows, schema=metrics.GRADED_SCHEMA)


def values(graded: pl.DataFrame) -> dict[tuple[str, str], float]:
    frame = statistics.estimate(oaks.measure(graded, 0))
    return {(row["subset"], row["metric"]): row["value"] for row in frame.iter_rows(named=True)}


@settings(max_examples=60, deadline=None)
@given(questions_and_answers)
def test_the_four_sum_to_100_for_any_predictions(questions: list[list[tuple[list[str], str | None]]]) -> None:
    result = values(graded_frame(questions))
    assert sum(result["all", metric] for metric in oaks.INTRA_PHASE) == pytest.approx(100)
    for subset in ("gt_change", "gt_stay"):
        rates = [result[subset, m] for key, m in oaks.BEHAVIOURS.items() if (subset, m) in result]
        assert not rates or sum(rates) == pytest.approx(100)


@settings(max_examples=60, deadline=None)
@given(questions_and_answers)
def test_plain_loops_over_the_definitions_agree(questions: list[list[tuple[list[str], str | None]]]) -> None:
    result = values(graded_frame(questions))
    four = [0.0] * 4
    for question in questions:
        right = [a is not None and short_answer(a) in {short_answer(g) for g in gold} for gold, a in question]
        starts = [t for t in range(len(question)) if t == 0 or question[t][0] != question[t - 1][0]]
        latency = distraction = miss = 0
        for begin, end in zip(starts, [*starts[1:], len(question)], strict=True):
            phase = right[begin:end]
            if True in phase:
                tau = phase.index(True) + 1
                latency += tau - 1
                distraction += sum(1 for r in phase[tau:] if not r)
            else:
                miss += len(phase)
        for i, count in enumerate((sum(right), latency, distraction, miss)):
            four[i] += 100 * count / len(question) / len(questions)
    assert [result["all", metric] for metric in oaks.INTRA_PHASE] == pytest.approx(four)

    counts: dict[str, int] = {}
    totals = {True: 0, False: 0}
    for question in questions:
        for (gold_before, before), (gold, now) in itertools.pairwise(question):
            forms = [None if a is None else short_answer(a) for a in (before, now)]
            right_before = forms[0] in {short_answer(g) for g in gold_before}
            right = forms[1] in {short_answer(g) for g in gold}
            moved = gold != gold_before
            changed = forms[0] != forms[1] and not (not moved and right and right_before)
            name = oaks.BEHAVIOURS[moved, changed, right]
            counts[name] = counts.get(name, 0) + 1
            totals[moved] += 1
    for (moved, _, _), name in oaks.BEHAVIOURS.items():
        key = ("gt_change" if moved else "gt_stay", name)
        if totals[moved]:
            assert result[key] == pytest.approx(100 * counts.get(name, 0) / totals[moved])
        else:
            assert key not in result

    # 6.1: the mean of the rates at which predictions change where the right answer does and where it does not.
    if all(totals.values()):
        moves = {moved: sum(counts.get(oaks.BEHAVIOURS[moved, True, r], 0) for r in (True, False)) for moved in totals}
        rate = sum(100 * moves[moved] / totals[moved] for moved in totals) / 2
        assert result["all", "change_rate"] == pytest.approx(rate)
    else:
        assert ("all", "change_rate") not in result


hits = st.tuples(st.booleans(), st.one_of(st.none(), st.integers(1, 70)))
"""Whether an interval has a gold chunk, and where among the retrieved ones it stands."""


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(hits, min_size=1, max_size=6), min_size=1, max_size=4), st.integers(0, 70))
def test_plain_loops_over_the_definition_of_pass_at_k_agree(
    questions: list[list[tuple[bool, int | None]]], retrieved: int
) -> None:
    ranks = [(known, rank if known and rank and rank <= retrieved else None) for q in questions for known, rank in q]
    frame = graded_frame([[(["x"], "x") for _ in question] for question in questions]).with_columns(
        has_evidence=pl.Series([known for known, _ in ranks]), rank=pl.Series([r for _, r in ranks], dtype=pl.Int32)
    )
    found = statistics.estimate(oaks.measure(frame, retrieved)).filter(pl.col("metric") == "pass_at_k")
    assert set(found["subset"]) <= {"all"}
    # D.2: of the intervals that have a gold chunk the share that has it among the first k; k ends at 60 (Figure 5).
    asked = [rank for known, rank in ranks if known]
    wanted = {
        k: 100 * sum(rank is not None and rank <= k for rank in asked) / len(asked)
        for k in range(1, min(retrieved, 60) + 1)
        if asked
    }
    assert dict(found.select("at", "value").iter_rows()) == pytest.approx(wanted)
    assert set(found["n"]) <= {len(asked)}


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(accepted, min_size=1, max_size=8), min_size=1, max_size=4))
def test_null_scores_0_and_gold_scores_100(questions: list[list[list[str]]]) -> None:
    null = values(graded_frame([[(gold, None) for gold in question] for question in questions]))
    gold = values(graded_frame([[(gold, gold[-1]) for gold in question] for question in questions]))
    assert null["all", "accuracy"] == 0
    assert null["all", "phase_miss"] == pytest.approx(100)
    assert gold["all", "accuracy"] == pytest.approx(100)
    assert all(value == 0 for (_, metric), value in gold.items() if metric in oaks.INTRA_PHASE[1:])


def test_broken_phases_are_found_out() -> None:
    frame = graded_frame([[(["x"], "x"), (["x"], None)]])
    whole = oaks.intra_phase(frame)
    assert whole.select(pl.sum_horizontal(oaks.INTRA_PHASE)).item() == pytest.approx(1)
    with pytest.raises(UpkeepError, match="do not sum to 100"):
        oaks.intra_phase(frame.with_columns(right=pl.Series([True, None])))


# ------------------------------------------------------------------ uncertainty


def counts(*pairs: tuple[float, float]) -> pl.DataFrame:
    return pl.DataFrame(
        [("all", "m", None, f"q{i}", hits, total, int(total)) for i, (hits, total) in enumerate(pairs)],
        schema=metrics.COUNTS_SCHEMA,
        orient="row",
    )


def test_a_mean_over_questions_has_the_familiar_standard_error() -> None:
    row = statistics.estimate(counts((0.2, 1), (0.4, 1), (0.9, 1), (0.5, 1))).row(0, named=True)
    sd = math.sqrt(sum((x - 0.5) ** 2 for x in (0.2, 0.4, 0.9, 0.5)) / 3)
    assert row["value"] == pytest.approx(50)
    assert row["se"] == pytest.approx(100 * sd / 2)
    assert row["low"] == pytest.approx(max(0, 50 - statistics.t_quantile(3) * 100 * sd / 2))


def test_a_pooled_rate_is_clustered_by_question() -> None:
    pairs = [(1.0, 4.0), (10.0, 20.0), (3.0, 6.0)]
    row = statistics.estimate(counts(*pairs)).row(0, named=True)
    rate = 14 / 30
    variance = 3 / 2 * sum((h - rate * t) ** 2 for h, t in pairs) / 30**2
    assert row["value"] == pytest.approx(100 * rate)
    assert row["se"] == pytest.approx(100 * math.sqrt(variance))
    assert (row["n"], row["questions"]) == (30, 3)


def test_one_question_has_no_standard_error() -> None:
    row = statistics.estimate(counts((0.5, 1))).row(0, named=True)
    assert row["value"] == 50
    assert row["se"] is row["low"] is row["high"] is None


def test_intervals_stay_within_0_and_100() -> None:
    row = statistics.estimate(counts((1, 1), (1, 1), (0, 1))).row(0, named=True)
    assert 0 <= row["low"] < row["value"] < row["high"] <= 100


@pytest.mark.parametrize(
    ("df", "printed"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (10, 2.228), (30, 2.042), (1200, 1.962)],
)
def test_t_quantile_is_that_of_the_printed_tables(df: int, printed: float) -> None:
    assert statistics.t_quantile(df) == pytest.approx(printed, rel=1.3e-3)


# ------------------------------------------------------------------ the table of all scores


def test_a_dataset_card_gives_counts_and_shares(tmp_path: Path) -> None:
    slices = {"p": "sparse", "q": "sparse", "r": "sparse", "s": "frequent"}
    write_dataset(tmp_path, {name: timeline("x") for name in slices}, slices)
    spec = msgspec.structs.replace(SPEC, provenance="stand_in", stands_for="oaks_babi")
    card = read_sealed(tmp_path / "card.json", DatasetCard, "")
    frame = score_dataset("oaks_babi_mini", spec, card, key_of(tmp_path), ROOT / "papers")
    rows = {(r["metric"], r["subset"]): r for r in frame.iter_rows(named=True)}
    assert rows["question_count", "all"]["value"] == 4
    assert rows["question_share", "sparse"]["value"] == 75
    assert rows["questions_by_phases", "all"]["setting"] == [{"key": "phases", "value": "1"}]
    assert rows["questions_by_phases", "all"]["value"] == 4
    assert rows["question_share", "frequent"]["dataset"] == "oaks_babi"
    assert rows["question_share", "frequent"]["dataset_id"] == "oaks_babi_mini"
    assert set(frame["provenance"]) == {"stand_in"} and set(frame["stand_in"]) == {"mini"}
    assert dict(frame.schema) == score.SCORE_SCHEMA


def test_questions_are_counted_by_their_phases(tmp_path: Path) -> None:
    timelines = {"p": "xx", "q": "xxyy", "r": "xyx", "s": "xyyx"}
    write_dataset(tmp_path, {name: timeline(answers) for name, answers in timelines.items()})
    card = read_sealed(tmp_path / "card.json", DatasetCard, "")
    scores = score_dataset("oaks_babi", SPEC, card, key_of(tmp_path), tmp_path / "papers")
    rows = scores.filter(pl.col("metric") == "questions_by_phases")
    assert [(s[0]["value"], v) for s, v in rows.select("setting", "value").iter_rows()] == [
        ("1", 1),
        ("2", 1),
        ("3", 2),
    ]


HEAD = "table,label,model,method,supervision,setting,dataset,subset,metric,value,unit"
REFERENCE = {
    "table_1": ["Book,,,,genre=old,oaks_babi_one,a,items,7,count", "All,,,,,oaks_babi,all,items,9,count"],
    "table_2": ["A book,,,,,oaks_babi_one,a,items,7,count", "A model,M,asked,,,oaks_babi_one,a,items,1,count"],
    "table_3": ["Others',,,,,other,all,items,5,count", "Length,,human,,,oaks_babi,all,length,3,thousand"],
}


@pytest.mark.parametrize(
    ("name", "stands_for", "stand_in"), [("oaks_babi", None, ""), ("x_mini", "oaks_babi", "x_mini")]
)
def test_what_a_paper_prints_of_a_dataset_is_a_score_in_each_of_its_tables(
    tmp_path: Path, name: str, stands_for: str | None, stand_in: str
) -> None:
    for table, lines in REFERENCE.items():
        path = tmp_path / "papers/oaks/reference" / f"{table}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([HEAD, *(f"{table},{line}" for line in lines)]) + "\n")
    write_dataset(tmp_path / "data", {"p": timeline("x")}, name=name)
    statistics = {"one": 6.5, "whole": 8, "others": 4, "length": 2}
    card = msgspec.structs.replace(read_sealed(tmp_path / "data/card.json", DatasetCard, ""), statistics=statistics)
    places = {
        "one": Published(table="table_1", where={"subset": "a"}),
        "whole": Published(table="table_1", where={"subset": "all"}),
        "others": Published(table="table_3", where={"dataset": "other"}),
        "not counted": Published(table="table_3", where={"metric": "length"}),
        "length": Published(table="table_3", where={"metric": "length"}),
        "pages": 3.0,
    }
    provenance = "stand_in" if stands_for else "release"
    spec = msgspec.structs.replace(SPEC, provenance=provenance, stands_for=stands_for, published=places)
    frame = score_dataset(name, spec, card, key_of(tmp_path / "data"), tmp_path / "papers")
    frame = frame.filter(~pl.col("metric").str.starts_with("question"))
    columns = ["label", "dataset", "subset", "metric", "value", "unit", "stand_in"]
    assert [(*row, printed(setting)) for *row, setting in frame.select(*columns, "setting").rows()] == [
        ("Book", "oaks_babi_one", "a", "items", 6.5, "count", stand_in, "genre=old"),
        ("A book", "oaks_babi_one", "a", "items", 6.5, "count", stand_in, ""),
        ("All", "oaks_babi", "all", "items", 8, "count", stand_in, ""),
        ("Length", "oaks_babi", "all", "length", 2, "thousand", stand_in, ""),
    ]
    assert set(frame["method"]) == set(frame["model"]) == set(frame["cell"]) == {""}


@pytest.mark.parametrize(
    ("text", "where", "problem"),
    [
        (None, {}, "cannot be read"),
        (b"\xff\xfe", {}, "published numbers that cannot be read"),
        (b"a,b\n1,2\n", {}, "no column 'table'"),
        (f"{HEAD}\n".encode(), {"metric": "items"}, "does not name one number"),
        (f"{HEAD}\n".encode(), {"metrics": "items"}, "names no column"),
        (f"{HEAD}\nt,A,,,,k=1;k=2,oaks_babi,all,items,1,count\n".encode(), {"metric": "items"}, "a key twice"),
    ],
)
def test_published_numbers_that_cannot_be_read_are_told_with_their_file(
    tmp_path: Path, text: bytes | None, where: dict[str, str], problem: str
) -> None:
    folder = tmp_path / "papers/oaks/reference"
    folder.mkdir(parents=True)
    if text is not None:
        (folder / "t.csv").write_bytes(text)
    write_dataset(tmp_path / "data", {"p": timeline("x")}, name="oaks_babi")
    card = read_sealed(tmp_path / "data/card.json", DatasetCard, "")
    spec = msgspec.structs.replace(SPEC, stands_for=None, published={"probes": Published(table="t", where=where)})
    with pytest.raises(UpkeepError, match=problem) as caught:
        score_dataset("oaks_babi", spec, card, key_of(tmp_path / "data"), tmp_path / "papers")
    assert str(caught.value.where) == str(folder / "t.csv")


def test_settings_are_printed_in_the_order_of_the_card() -> None:
    parameters = {"window": 15, "k": 15, "adapter": None, "rerank": True}
    assert score.settings(["k", "window", "adapter", "rerank", "absent"], parameters) == [
        ("k", "15"),
        ("window", "15"),
        ("rerank", "on"),
    ]


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """A small suite: two datasets, of which one is not built, a trained model, and a control."""
    files = {
        "config/config.yaml": "suite: x",
        "papers/oaks/metrics.py": Path(OAKS.where).read_text(),
        "papers/oaks/prompts/short.yaml": PROMPT,
        "datasets/oaks_babi_mini/dataset.yaml": "{label: B, summary: s, paper: oaks, source: s, licence: l, "
        "provenance: stand_in, stands_for: oaks_babi, prompt: short, equivalence: short_answer, metrics: oaks}",
        "datasets/oaks_novel/dataset.yaml": "{label: N, summary: s, paper: oaks, source: s, licence: l, "
        "prompt: short, equivalence: letter, metrics: oaks}",
        "methods/gold/method.yaml": "{label: Gold, papers: [oaks], summary: s, reference: r, variants: {default: {}}, "
        "model: false, sees: answers}",
        "methods/rag_dense/method.yaml": "{label: RAG, papers: [oaks], summary: s, reference: r, settings: [k], "
        "variants: {k5: {k: 5}, k30: {k: 30}}}",
        "methods/sft/method.yaml": "{label: SFT, papers: [], summary: s, reference: r, settings: [adapter], "
        "supervision: Q, variants: {lora: {adapter: lora}}, trains: true}",
        "models/tiny/model.yaml": "{label: Tiny, summary: s, source: rule, location: tiny, context_length: 100, "
        "trained: false, thinking: 'on'}",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return Catalog(tmp_path)


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


def suite_of(catalog: Catalog, *cells: Cell) -> Catalog:
    """The same with a suite `s` of these cells."""
    choices = [f"{{datasets: [{c.dataset}], methods: [{c.method}/{c.variant}], models: [{c.model}]}}" for c in cells]
    path = catalog.root / "config" / "suites" / "s.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{{label: s, summary: s, papers: [], cells: [{', '.join(choices)}]}}")
    return Catalog(catalog.root)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Datasets are of the present code, and cells of the identity that they say."""
    monkeypatch.setattr(published, "require_fresh", lambda *_: None)
    monkeypatch.setattr(published, "identity", lambda *_: ("0" * 64, {}))


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
    path = both.results / "scores" / "resamples" / f"{cells[0]}.npy"
    for damage in (path.unlink, lambda: path.write_bytes(path.read_bytes()[:-1])):
        damage()
        with pytest.raises(UpkeepError, match=r"k5/tiny\.npy") as caught:
            read_scores(both, "s").resamples(str(cells[0]))
        assert caught.value.remedy == "./upkeep score s"
        assert np.array_equal(score_suite(both, "s").resamples(str(cells[0])), kept[str(cells[0])], equal_nan=True)
    score_suite(suite_of(catalog, cells[1]), "s")
    assert not path.exists() and path.parent.parent.joinpath("k30/tiny.npy").exists()


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
    path = catalog.results / "scores" / "scores.parquet"
    pl.read_parquet(path).with_columns(value=pl.lit(100.0)).write_parquet(path)
    with pytest.raises(UpkeepError, match="not the file that was written"):
        read_scores(catalog, "s")
