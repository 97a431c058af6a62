"""The metrics of OAKS: pure functions from graded predictions to per-question counts (paper: 6.1, B.2.2, D.2)."""

from __future__ import annotations

import polars as pl

from upkeep.errors import UpkeepError
from upkeep.grading.statistics import QUESTION_SCHEMA

GRADED_SCHEMA = {
    "question_id": pl.String,
    "trial": pl.Int32,
    "position": pl.Int32,
    "phase": pl.Int32,
    "right": pl.Boolean,
    "canonical": pl.String,
    "parse": pl.String,
    "failed": pl.Boolean,
    "has_evidence": pl.Boolean,
    "rank": pl.Int32,
}
"""One row for each probe and trial, whether it was answered or not, and beside these any `slice_<name>` columns.

They are as in `graded.VERDICTS` and `key.Key`.
"""

BEHAVIOURS = {
    # (gold changed, prediction changed, right) -> behaviour (6.1, Table 5)
    (True, True, True): "adaptability_rate",
    (True, True, False): "maladaptation_rate",
    (True, False, True): "prescience_rate",
    (True, False, False): "stubbornness_rate",
    (False, True, True): "lag_rate",
    (False, True, False): "volatility_rate",
    (False, False, True): "stability_rate",
    (False, False, False): "obstinacy_rate",
}
INTRA_PHASE = ("accuracy", "acquisition_latency", "distraction_susceptibility", "phase_miss")
MAX_K = 60
"""Figure 5 ends here."""

_TRIAL = ["question_id", "trial"]


def measure(graded: pl.DataFrame, retrieved: int) -> pl.DataFrame:
    """Every OAKS score of one cell, as counts per question.

    Args:
        graded: GRADED_SCHEMA.
        retrieved: the most documents that any prediction retrieved; 0 for a method without retrieval.

    Returns:
        QUESTION_SCHEMA, for `statistics.estimate`.

    Raises:
        UpkeepError: accuracy + AL + DS + PM is not 100 for some question.
    """
    graded = graded.sort([*_TRIAL, "position"])
    intra = intra_phase(graded)
    parts = [
        by_subset(intra, graded),
        by_quarter(graded),
        behaviours(graded),
        rates(graded),
        pass_at_k(graded, min(retrieved, MAX_K)),
    ]
    return pl.concat([part.select(pl.col(c).cast(t) for c, t in QUESTION_SCHEMA.items()) for part in parts])


def intra_phase(graded: pl.DataFrame) -> pl.DataFrame:
    """Accuracy (Eq. 1), acquisition latency (2), distraction susceptibility (3) and phase miss (4) of each question.

    For a phase of length T whose first right answer is its tau-th: latency is tau - 1 intervals, distraction the wrong
    ones after tau; where no answer is right, all T are missed. Each is a share of the question's C intervals.

    Args:
        graded: GRADED_SCHEMA, in order of position.

    Returns:
        question_id, the four of INTRA_PHASE (shares, mean over trials), n.

    Raises:
        UpkeepError: the four do not sum to 1 for some question.
    """
    wrong, found, found_yet = ~pl.col("right"), pl.col("right").any(), pl.col("right").cum_sum() > 0
    phases = graded.group_by([*_TRIAL, "phase"]).agg(
        length=pl.len(),
        accuracy=pl.col("right").sum(),
        acquisition_latency=(wrong & found & ~found_yet).sum(),
        distraction_susceptibility=(wrong & found_yet).sum(),
        phase_miss=(wrong & ~found).sum(),
    )
    questions = (
        phases.group_by(_TRIAL)
        .agg(*(pl.col(m).sum() / pl.col("length").sum() for m in INTRA_PHASE), n=pl.col("length").sum())
        .group_by("question_id")
        .agg(*(pl.col(m).mean() for m in INTRA_PHASE), n=pl.col("n").sum())
        .sort("question_id")
    )
    broken = questions.filter((pl.sum_horizontal(INTRA_PHASE) - 1).abs() > 1e-8)
    if not broken.is_empty():
        raise UpkeepError(
            "accuracy, latency, distraction and phase miss of a question do not sum to 100",
            where=broken["question_id"][0],
            expected=100,
            found=100 * sum(broken.row(0, named=True)[m] for m in INTRA_PHASE),
            remedy="the dataset's phases or the scorer are broken; build the dataset again",
        )
    return questions


def by_subset(intra: pl.DataFrame, graded: pl.DataFrame) -> pl.DataFrame:
    """The four of `intra_phase` over all questions and over each slice (bins of changes, question types)."""
    slices = [name for name in graded.columns if name.startswith("slice_")]
    members = pl.concat(
        [intra.select("question_id", subset=pl.lit("all"))]
        + [graded.select("question_id", subset=pl.col(name)).drop_nulls().unique() for name in slices]
    )
    return (
        members.join(intra, on="question_id")
        .unpivot(INTRA_PHASE, index=["question_id", "subset", "n"], variable_name="metric", value_name="hits")
        .with_columns(at=None, total=1.0)
        .sort("subset", "metric", "question_id")
    )


def by_quarter(graded: pl.DataFrame) -> pl.DataFrame:
    """Accuracy in each quarter of a question's intervals (the slicing of 6.4's Figure 3 that the claims use)."""
    place = pl.int_range(pl.len()).over(_TRIAL)
    quarter = place * 4 // pl.len().over(_TRIAL) + 1
    return (
        graded.group_by("question_id", subset=pl.format("interval_q{}", quarter))
        .agg(hits=pl.col("right").mean(), n=pl.len())
        .with_columns(metric=pl.lit("accuracy"), at=None, total=1.0)
        .sort("subset", "question_id")
    )


def behaviours(graded: pl.DataFrame) -> pl.DataFrame:
    """The eight transition behaviours (6.1, Tables 5, 15, 16) and the change rate.

    Interval 1 has no transition and is left out. A prediction has changed if its canonical answer is another than one
    interval before; two right answers to the same gold answer are the same prediction in whatever form, as `Unknown`
    and `0` before a count begins, and so are two missing ones. Rates are pooled over the intervals of their gold
    scenario; `<behaviour>_by_question` is the mean of the questions' own rates, for the paper does not say which it
    prints. The change rate is the mean of the two scenarios' change rates (6.1).
    """
    transitions = (
        graded.with_columns(
            gold_changed=pl.col("phase") != pl.col("phase").shift(1).over(_TRIAL),
            other=pl.col("canonical").ne_missing(pl.col("canonical").shift(1).over(_TRIAL)),
            was_right=pl.col("right").shift(1).over(_TRIAL),
        )
        .drop_nulls("was_right")
        .with_columns(
            changed=pl.col("other") & ~(~pl.col("gold_changed") & pl.col("right") & pl.col("was_right")),
        )
    )
    kinds = pl.DataFrame(
        [(*key, name) for key, name in BEHAVIOURS.items()],
        schema=["gold_changed", "changed", "right", "metric"],
        orient="row",
    )
    scenarios = transitions.group_by("question_id", "gold_changed").agg(
        pl.len().alias("total"), moved=pl.col("changed").sum()
    )
    counts = transitions.group_by("question_id", "gold_changed", "changed", "right").agg(hits=pl.len())
    pooled = (
        scenarios.join(kinds, on="gold_changed")
        .join(counts, on=["question_id", "gold_changed", "changed", "right"], how="left")
        .with_columns(
            pl.col("hits").fill_null(0),
            n=pl.col("total"),
            at=None,
            subset=pl.when("gold_changed").then(pl.lit("gt_change")).otherwise(pl.lit("gt_stay")),
        )
        .sort("subset", "metric", "question_id")
    )
    own_mean = pooled.with_columns(
        metric=pl.col("metric") + "_by_question", hits=pl.col("hits") / pl.col("total"), total=1.0
    )
    # Each scenario weighs one half, however many intervals it has; the weights are taken as given.
    weight = 0.5 / pl.col("total").sum().over("gold_changed")
    change_rate = (
        scenarios.with_columns(weight=weight)
        .filter(pl.col("gold_changed").n_unique() == 2)
        .group_by("question_id")
        .agg(
            hits=(pl.col("moved") * pl.col("weight")).sum(),
            n=pl.col("total").sum(),
            total=(pl.col("total") * pl.col("weight")).sum(),
        )
        .with_columns(subset=pl.lit("all"), metric=pl.lit("change_rate"), at=None)
        .sort("question_id")
    )
    columns = [pl.col(c).cast(t) for c, t in QUESTION_SCHEMA.items()]
    return pl.concat([part.select(columns) for part in (pooled, own_mean, change_rate)])


def rates(graded: pl.DataFrame) -> pl.DataFrame:
    """Share of predictions whose answer could be read (`parse_rate`) and that failed or are missing (`error_rate`)."""
    return (
        graded.group_by("question_id")
        .agg(parse_rate=(pl.col("parse") != "none").sum(), error_rate=pl.col("failed").sum(), total=pl.len())
        .with_columns(n=pl.col("total"))
        .unpivot(
            ["parse_rate", "error_rate"],
            index=["question_id", "total", "n"],
            variable_name="metric",
            value_name="hits",
        )
        .with_columns(subset=pl.lit("all"), at=None)
        .sort("metric", "question_id")
    )


def pass_at_k(graded: pl.DataFrame, largest: int) -> pl.DataFrame:
    """Share of (question, interval) pairs whose gold chunk is among the first k retrieved, for k = 1..largest (D.2).

    The gold chunk is the one where the present phase began. Intervals before anything is known have none and are left
    out; a prediction that failed has retrieved nothing and is a miss.
    """
    asked = graded.filter("has_evidence")
    totals = asked.group_by("question_id").agg(total=pl.len())
    found = asked.filter(pl.col("rank") <= largest).group_by("question_id", at=pl.col("rank")).agg(new=pl.len())
    return (
        totals.join(pl.DataFrame({"at": pl.int_range(1, largest + 1, dtype=pl.Int32, eager=True)}), how="cross")
        .join(found, on=["question_id", "at"], how="left")
        .sort("question_id", "at")
        .with_columns(hits=pl.col("new").fill_null(0).cum_sum().over("question_id"))
        .with_columns(n=pl.col("total"), subset=pl.lit("all"), metric=pl.lit("pass_at_k"))
    )
