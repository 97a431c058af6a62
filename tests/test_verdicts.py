"""Claims on our own scores: what is certain, what is not, what was not run, and which data speak of a paper."""

from __future__ import annotations

import math
import runpy
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from conftest import ROOT
from test_claims import LEDGERS, PAPERS, REFERENCE, SHIPPED
from upkeep.grading import resampling
from upkeep.grading.resampling import FEWEST, RESAMPLES, Draws
from upkeep.grading.score import SCORE_SCHEMA
from upkeep.grading.settings import as_rows, pairs
from upkeep.report import claims, verdicts
from upkeep.report.view import COLUMNS, View, same

Answers = NDArray[np.float64]
"""Right (1) or wrong (0), a place for each question."""
BETTER = """
    select one.model, one.value as lhs, other.value as rhs
    from scores as one join scores as other using (model, dataset, subset, metric)
    where one.method = 'rag_dense' and other.method = 'long_context' and metric = 'accuracy'
"""


def claim(*queries: str, **fields: Any) -> claims.Claim:
    check = {"op": fields.pop("op", ">"), "quantifier": fields.pop("quantifier", "all"), "rows": fields.pop("rows", 1)}
    made = [claims.Check(query=query, table="t", **check) for query in queries or [BETTER]]
    given = {"where": "", "statement": "", "published": "holds"}
    given["needs"] = claims.Needs(datasets=["d"], methods=["rag_dense", "long_context"])
    return claims.Claim(id="x", checks=made, **given | fields)


class Study:
    """Cells over the questions of datasets, scored as the suite does: a mean and its values on resamples."""

    def __init__(self, folder: Path, printed: Iterable[str] = ("m,long_context", "m,rag_dense")) -> None:
        self.folder = folder
        (folder / "reference").mkdir(exist_ok=True)
        split = [(text + ",").split(",")[:3] for text in printed]
        rows = [f"t,L,{model},{method},,{setting},d,all,accuracy,50,percent\n" for model, method, setting in split]
        (folder / "reference/t.csv").write_text(REFERENCE + "".join(rows))
        self._rows: list[dict[str, Any]] = []
        self._drawn: dict[str, Answers] = {}

    def add(self, method: str, answers: Answers, **fields: Any) -> Study:
        empty = {name: "" if kind == pl.String else None for name, kind in SCORE_SCHEMA.items()}
        row = empty | {"model": "m", "dataset": "d", "dataset_id": "d", "subset": "all", "metric": "accuracy"}
        row |= {"provenance": "release", "trained": True, "setting": "", "method": method} | fields
        row |= {
            "value": 100 * float(answers.mean()),
            "questions": len(answers),
            "setting": as_rows(pairs(row["setting"])),
        }
        row["cell"] = f"{row['dataset_id']}/{method}/{len(self._rows)}/{row['model']}"
        names = [f"q{n:05}" for n in range(len(answers))]
        drawn = Draws(row["dataset_id"], names).ratios(names, answers[:, None], np.ones((len(answers), 1)))
        self._drawn[row["cell"]] = 100 * drawn.T if len(answers) >= FEWEST else np.full((1, RESAMPLES), np.nan)
        self._rows.append(row)
        return self

    @property
    def scores(self) -> pl.DataFrame:
        return pl.DataFrame(self._rows, schema=SCORE_SCHEMA)

    def judge(self, tested: claims.Claim | None = None, drawn: verdicts.Drawn = verdicts.EMPTY) -> verdicts.Judged:
        resamples = self._drawn.__getitem__
        return verdicts.judge(self.folder, [tested or claim()], self.scores, resamples, drawn=drawn)["x"]


def answers(right: int, of: int = 200) -> Answers:
    return np.array([1.0] * right + [0.0] * (of - right))


# ---------------------------------------------------------------- holds, fails, undecided


def test_a_clear_finding_holds_its_opposite_fails_and_a_small_study_is_undecided(tmp_path: Path) -> None:
    clear = Study(tmp_path).add("rag_dense", answers(140)).add("long_context", answers(60)).judge().release
    assert clear.outcome == "holds" and clear.cases[0][0].share == 1 and not clear.missing
    against = Study(tmp_path).add("rag_dense", answers(60)).add("long_context", answers(140)).judge().release
    assert against.outcome == "fails"
    rng = np.random.default_rng(1)
    small = Study(tmp_path).add("rag_dense", rng.permutation(answers(9, 16))).add("long_context", answers(7, 16))
    assert small.judge().release.outcome == "undecided"


def test_scores_of_fewer_than_ten_questions_decide_nothing(tmp_path: Path) -> None:
    for questions, wanted in ((FEWEST - 1, "undecided"), (FEWEST, "holds")):
        study = Study(tmp_path).add("rag_dense", np.ones(questions)).add("long_context", np.zeros(questions))
        assert study.judge().release.outcome == wanted


# ---------------------------------------------------------------- resamples


def test_two_cells_of_equal_answers_say_nothing_of_which_is_ahead_and_pairs_are_compared_by_question(
    tmp_path: Path,
) -> None:
    given = np.random.default_rng(0).permutation(answers(100))
    same_answers = Study(tmp_path).add("rag_dense", given).add("long_context", given)
    (case,) = same_answers.judge().release.cases[0]
    assert case.share == 0
    for op in (">", ">=", "<", "<="):  # the question that would tell them apart was not among these
        assert same_answers.judge(claim(op=op)).release.outcome == "undecided"
    apart = claim(BETTER.replace(" as rhs", " - 5 as rhs"))
    assert same_answers.judge(apart).release.outcome == "holds", "but they are no five points apart"
    better = given.copy()
    better[np.flatnonzero(given == 0)[:8]] = 1  # right where the other is, and eight times besides
    assert Study(tmp_path).add("rag_dense", better).add("long_context", given).judge().release.outcome == "holds"


def test_the_draws_are_those_of_their_dataset_and_have_the_variance_of_a_mean() -> None:
    names = [f"q{n}" for n in range(40)]
    one, again, other = Draws("a", names), Draws("a", [*reversed(names), "q3"]), Draws("b", names)
    numbers = np.random.default_rng(0).random((40, 1))
    assert (one.sums(names, numbers) == again.sums(names, numbers)).all()
    assert np.corrcoef(one.sums(names, numbers)[:, 0], other.sums(names, numbers)[:, 0])[0, 1] < 0.15
    means = one.sums(names, numbers)[:, 0] / one.sums(names, np.ones((40, 1)))[:, 0]
    assert means.mean() == pytest.approx(numbers.mean(), abs=0.02)
    assert means.std() * math.sqrt(41 / 39) == pytest.approx(numbers.std(ddof=1) / math.sqrt(40), rel=0.1)
    shuffled = np.random.default_rng(1).permutation(40)
    assert one.sums([names[n] for n in shuffled], numbers[shuffled]) == pytest.approx(one.sums(names, numbers))
    assert one.sums(names[:3], numbers[:3]).shape == (resampling.DRAWS, 1)


def numbers_of(check: claims.Check, paper: str) -> pl.DataFrame:
    return claims.printed(PAPERS / paper, check.tables)


@pytest.mark.parametrize("paper", SHIPPED)
def test_asking_for_all_resamples_at_once_says_what_asking_for_each_does(paper: str) -> None:
    rng = np.random.default_rng(0)
    for tested in LEDGERS[paper]:
        for check in tested.checks:
            numbers = numbers_of(check, paper)
            if numbers.is_empty():
                continue
            with View(numbers) as view:
                values = view.values[:, None] + rng.normal(0, 10, (len(numbers), 3))
                values[rng.random(values.shape) < 0.02] = np.nan
                values[rng.random(values.shape) < 0.02] = np.inf  # not there
                together = list(view.sides_of(check.query, tested.id, values))
            for time, found in enumerate(together):
                kept = ~np.isinf(values[:, time])
                changed = numbers.with_columns(value=pl.Series(values[:, time])).filter(pl.Series(kept))
                with View(changed) as alone:
                    assert same(found, alone.sides(check.query, tested.id)), tested.id


def test_a_query_that_cannot_be_asked_of_all_resamples_at_once_is_asked_of_each() -> None:
    rows = [dict.fromkeys(COLUMNS, "") | {"model": m, "value": 1.0, "setting": []} for m in "ab"]
    numbers = pl.DataFrame(rows).with_columns(setting=pl.Series([as_rows(())] * 2, dtype=SCORE_SCHEMA["setting"]))
    query = "SELECT random() * 0 + max(value) AS lhs, (SELECT count(*) FROM given) AS rhs FROM scores"
    values = np.array([[5.0, np.inf], [6.0, 7.0]])
    with View(numbers) as view:
        assert [found[""] for found in view.sides_of(query, "x", values)] == [(6, 2), (7, 2)]
        assert [view._once(query, "x", values[:, n])[""] for n in range(2)] == [(6, 2), (7, 2)]


# ---------------------------------------------------------------- partial, not run, undecidable


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    printed = ["m,long_context", "m,rag_dense,k=30;thinking=off", "n,long_context", "n,rag_dense,k=30;thinking=off"]
    tested = claim(rows=2)
    none = Study(tmp_path, printed).judge(tested).release
    assert none.outcome == "not_run" and none.missing == ["rag_dense on d", "long_context on d"]
    asked = "k=30;thinking=off"
    half = Study(tmp_path, printed).add("rag_dense", answers(140), setting=asked).add("long_context", answers(60))
    found = half.judge(tested).release
    assert (found.outcome, found.so_far) == ("partial", "holds")
    assert found.missing == ["long_context on d: n", "rag_dense on d (k=30, thinking=off): n"]
    whole = half.add("rag_dense", answers(140), model="n", setting=asked).add("long_context", answers(60), model="n")
    assert whole.judge(tested).release.outcome == "holds"
    for setting in ("k=5", "k=30", f"{asked};adapter=lora", ""):
        half.add("rag_dense", answers(10), model="n", setting=setting)
        assert half.judge(tested).release.outcome == "holds", "with other settings it is another experiment"


def test_a_mean_over_fewer_models_than_are_printed_is_partial(tmp_path: Path) -> None:
    mean = "select method, avg(value) as lhs, 40 as rhs from scores where method = 'rag_dense' group by method"
    study = Study(tmp_path, ["m,rag_dense", "n,rag_dense", "n,long_context"]).add("rag_dense", answers(140))
    found = study.judge(claim(mean)).release
    assert found.outcome == "partial" and found.missing == ["rag_dense on d: n"]
    assert study.add("rag_dense", answers(60), model="n").judge(claim(mean)).release.outcome == "holds"


def test_a_check_without_published_numbers_needs_what_it_says(tmp_path: Path) -> None:
    study = Study(tmp_path, []).add("rag_dense", answers(140), setting="thinking=off").add("long_context", answers(60))
    settings = [{"thinking": "off"}, {"k": "3", "l": "4"}]
    more = claims.Needs(datasets=["d"], methods=["rag_dense", "oracle"], settings=settings, models=["o"])
    found = study.judge(claim(rows=0, needs=more)).release
    assert found.outcome == "partial" and found.missing == ["oracle on d", "a run with k=3, l=4", "the model o"]
    assert study.judge(claim(rows=0)).release.outcome == "holds"


def test_an_undecidable_finding_is_never_decided(tmp_path: Path) -> None:
    study = Study(tmp_path).add("rag_dense", answers(140)).add("long_context", answers(60))
    found = study.judge(claim(undecidable="people")).release
    assert (found.outcome, found.so_far) == ("undecidable", "holds")
    assert Study(tmp_path).judge(claim(undecidable="people")).release.outcome == "undecidable"


def test_people_are_not_asked_again_and_that_is_marked(tmp_path: Path) -> None:
    compared = BETTER.replace("using (model, dataset", "using (dataset").replace("'long_context'", "'human'")
    study = Study(tmp_path, [",human", "m,rag_dense"]).add("rag_dense", answers(140))
    found = study.judge(claim(compared)).release
    assert found.outcome == "holds" and found.borrowed
    assert not study.add("long_context", answers(60)).judge().release.borrowed
    small = Study(tmp_path, [",human", "m,rag_dense"]).add("rag_dense", answers(140), provenance="stand_in")
    assert small.judge(claim(compared)).stand_in.outcome == "not_run"


# ---------------------------------------------------------------- which data, and whose runs


def test_only_scores_on_the_release_speak_of_the_paper(tmp_path: Path) -> None:
    for provenance in ("release", "rebuild", "stand_in", "own"):
        study = Study(tmp_path).add("rag_dense", answers(140), provenance=provenance)
        judged = study.add("long_context", answers(60), provenance=provenance).judge()
        found = {name: getattr(judged, name).outcome for name in ("release", "rebuild", "stand_in")}
        assert found == dict.fromkeys(found, "not_run") | ({} if provenance == "own" else {provenance: "holds"})


def test_untrained_models_speak_on_stand_ins_alone(tmp_path: Path) -> None:
    for provenance, wanted in (("release", "not_run"), ("stand_in", "holds")):
        study = Study(tmp_path).add("rag_dense", answers(140), provenance=provenance, trained=False)
        judged = study.add("long_context", answers(60), provenance=provenance, trained=False).judge()
        assert getattr(judged, provenance).outcome == wanted


def test_models_that_no_table_prints_have_a_verdict_of_their_own(tmp_path: Path) -> None:
    study = Study(tmp_path).add("rag_dense", answers(60)).add("long_context", answers(140))
    assert study.judge().others == {}
    judged = study.add("rag_dense", answers(140), model="ours").add("long_context", answers(60), model="ours").judge()
    assert judged.release.outcome == "fails" and [case.name for case in judged.release.cases[0]] == ["m"]
    other = judged.others["release"]
    assert other.outcome == "holds" and [case.name for case in other.cases[0]] == ["ours"]
    study.add("rag_dense", answers(140), setting="thinking=on").add("long_context", answers(60), setting="thinking=on")
    assert study.judge().release.outcome == "fails", "the table does not have that setting"


@pytest.mark.parametrize("foreign", ["trained_on=other", "retriever=Another", "order=position"])
def test_a_run_with_a_setting_that_the_tables_do_not_have_is_no_run_of_theirs(tmp_path: Path, foreign: str) -> None:
    """Tables set it aside, so it decides nothing of the paper, and does not stand in for the run that they print."""
    study = Study(tmp_path, ["m,long_context", "m,rag_dense,k=5", "m,rag_dense,k=1"])
    study.add("long_context", answers(60)).add("rag_dense", answers(140), setting=f"k=5;{foreign}")
    judged = study.judge()
    assert judged.release.outcome == "not_run" and any("rag_dense" in name for name in judged.release.missing)
    study.add("rag_dense", answers(20), setting="k=5")
    (case,) = study.judge().release.cases[0]
    assert (case.lhs, case.rhs) == (10, 30)


def test_of_a_figure_without_numbers_the_runs_of_the_models_that_it_draws_decide(tmp_path: Path) -> None:
    (folder := tmp_path / "papers").mkdir()
    study = Study(folder)
    (folder / "reference/t.csv").unlink()
    for model, better in (("m", 140), ("another", 20)):
        study.add("rag_dense", answers(better), model=model).add("long_context", answers(60), model=model)
    every = study.judge(claim(rows=0))
    assert every.release.outcome == "fails" and len(every.release.cases[0]) == 2
    drawn = study.judge(claim(rows=0), {"t": ["m"]})
    assert drawn.release.outcome == "holds" and drawn.others["release"].outcome == "fails"


def test_the_supervision_counts_where_it_is_printed(tmp_path: Path) -> None:
    """Our retrieval has its documents as supervision; three of the papers print none of any method without training."""
    study = (
        Study(tmp_path)
        .add("rag_dense", answers(140), supervision="C")
        .add("long_context", answers(60), supervision="C")
    )
    assert study.judge().release.outcome == "holds" and not study.judge().others
    table = tmp_path / "reference/t.csv"
    table.write_text(table.read_text().replace("m,rag_dense,,", "m,rag_dense,C+Q,"))
    assert study.judge().release.outcome == "not_run"
    table.write_text(table.read_text().replace("m,rag_dense,C+Q,", "m,rag_dense,C,"))
    assert study.judge().release.outcome == "holds"


def test_rows_that_belong_to_no_method_are_seen(tmp_path: Path) -> None:
    read = "select model, value as lhs, 40 as rhs from scores where metric = 'accuracy' and method = ''"
    study = Study(tmp_path, ["m,"]).add("", answers(140))
    assert study.judge(claim(read, needs=claims.Needs(datasets=["d"]))).release.outcome == "holds"


# ---------------------------------------------------------------- the shipped claims


def as_own(paper: str, spread: float) -> tuple[pl.DataFrame, Callable[[str], Answers]]:
    """A paper's published numbers as if they were scores of ours, each uncertain by so much."""
    frames = [
        claims.printed(PAPERS / paper, [path.stem]) for path in sorted((PAPERS / paper / "reference").glob("*.csv"))
    ]
    rows = pl.concat(frames).unique(maintain_order=True).filter(pl.col("method") != "human")
    cells = pl.format("{}/own", pl.int_range(pl.len()))
    own = {"cell": cells, "provenance": pl.lit("release"), "trained": pl.lit(True), "questions": pl.lit(600, pl.Int64)}
    rows = rows.with_columns(pl.col("value").cast(pl.Float64), **own)
    scores = pl.concat([pl.DataFrame(schema=SCORE_SCHEMA), rows], how="diagonal")
    known: Mapping[str, float] = dict(rows.select("cell", "value").iter_rows())
    rng = np.random.default_rng(0)
    return scores, lambda cell: known[cell] + spread * rng.standard_normal((1, RESAMPLES))


@pytest.mark.parametrize("paper", SHIPPED)
def test_every_claim_says_of_the_published_numbers_as_scores_of_ours_what_it_says_of_them(paper: str) -> None:
    scores, resamples = as_own(paper, 0.0)
    judged = verdicts.judge(PAPERS / paper, LEDGERS[paper], scores, resamples)
    for tested in LEDGERS[paper]:
        found = judged[tested.id].release
        if tested.undecidable or all(check.rows for check in tested.checks):
            assert found.outcome == ("undecidable" if tested.undecidable else tested.published), tested.id
            assert found.so_far in ("", tested.published) and not found.missing, tested.id
        assert judged[tested.id].rebuild.outcome == ("undecidable" if tested.undecidable else "not_run")


@pytest.mark.parametrize(("paper", "name", "size"), [("imprintbench", "imprint-c15", 60), ("oaks", "oaks-c16", 6000)])
def test_the_benchmark_of_findings_decides_as_the_report_does(paper: str, name: str, size: int) -> None:
    """In studies of which some hold and some do not; one check is of a distance."""
    findings = runpy.run_path(str(ROOT / "benchmarks/findings.py"))
    (tested,) = (one for one in LEDGERS[paper] if one.id == name)
    sides = [findings["Sides"](check, name, claims.printed(PAPERS / paper, check.tables)) for check in tested.checks]
    numbers = pl.concat([one.numbers for one in sides]).unique(maintain_order=True)
    places = {key: place for place, key in enumerate(findings["_keys"](numbers))}
    values = numbers["value"].cast(pl.Float64).to_numpy()
    drawn = findings["resampled"](numbers, values, np.random.default_rng(5), size, "as the report does")
    own = [one.certain(drawn[[places[key] for key in findings["_keys"](one.numbers)]]) for one in sides]
    scores, as_printed = as_own(paper, 0.0)
    of_cell = dict(zip(scores["cell"], findings["_keys"](scores), strict=True))
    outcomes = []
    for study in range(12):

        def resamples(cell: str, study: int = study) -> Answers:
            place = places.get(of_cell[cell])
            return as_printed(cell) if place is None else drawn[place, :, study][None]

        outcomes.append(verdicts.judge(PAPERS / paper, [tested], scores, resamples)[name].release.outcome == "holds")
    assert outcomes == np.all(own, axis=0)[:12].tolist() and 0 < sum(outcomes) < 12


def test_the_findings_of_oaks_are_partial_with_one_dataset_or_without_some_models() -> None:
    scores, resamples = as_own("oaks", 0.0)
    speaks = {"oaks-c1", "oaks-c2", "oaks-c3", "oaks-c4", "oaks-c5", "oaks-c9"}
    speaks |= {"oaks-c12", "oaks-c13", "oaks-c15", "oaks-c17"}
    ledger = [tested for tested in LEDGERS["oaks"] if tested.id in speaks]

    def partial(kept: pl.Expr) -> set[str]:
        judged = verdicts.judge(PAPERS / "oaks", ledger, scores.filter(kept), resamples)
        return {name.removeprefix("oaks-") for name, one in judged.items() if one.release.outcome == "partial"}

    assert {"c4", "c5", "c12"} <= partial(pl.col("dataset") == "oaks_babi")
    without = partial(~pl.col("model").str.starts_with("Gemini"))
    assert {"c1", "c2", "c9", "c13", "c15", "c17"} <= without and "c3" not in without
    without_gemini = scores.filter(~pl.col("model").str.contains("Gemini"))
    judged = verdicts.judge(PAPERS / "oaks", ledger[:1], without_gemini, resamples)
    missing = judged["oaks-c1"].release.missing
    models = "Gemini 2.5 Flash, Gemini 2.5 Pro, Gemini 3 Pro"
    assert missing == [f"long_context on oaks_babi (thinking=on): {models}"]


@pytest.mark.parametrize("paper", LEDGERS)
def test_claims_without_scores_are_not_run(paper: str) -> None:
    judged = verdicts.judge(PAPERS / paper, LEDGERS[paper], pl.DataFrame(schema=SCORE_SCHEMA), {}.__getitem__)
    for tested in LEDGERS[paper]:
        one = judged[tested.id]
        wanted = "undecidable" if tested.undecidable else "not_run"
        assert {one.release.outcome, one.rebuild.outcome, one.stand_in.outcome} == {wanted}
        assert one.release.missing, tested.id
