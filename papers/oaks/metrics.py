"""The metrics of OAKS: pure functions from graded predictions to per-question counts (paper: 6.1, B.2.2, D.2)."""

from __future__ import annotations

import polars as pl

from upkeep.grading.metrics import Family, UpkeepError, as_counts, pass_at_k, rates, shares, slices_of

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
_TRIAL = ["question_id", "trial"]


def measure(graded: pl.DataFrame, retrieved: int) -> pl.DataFrame:
    """Every OAKS score of one cell, as counts per question.

    Args:
        graded: `upkeep.grading.metrics.GRADED_SCHEMA`.
        retrieved: the most documents that any prediction retrieved; 0 for a method without retrieval.

    Returns:
        `upkeep.grading.metrics.COUNTS_SCHEMA`.

    Raises:
        UpkeepError: accuracy + AL + DS + PM is not 100 for some question.
    """
    graded = graded.sort([*_TRIAL, "position"])
    intra = intra_phase(graded)
    return as_counts(
        by_subset(intra, graded),
        by_quarter(graded),
        by_tenth(graded),
        behaviours(graded),
        rates(graded),
        pass_at_k(graded, retrieved),
        *([by_evidence(graded)] if "judged_evidence" in graded.columns else []),
    )


def by_evidence(graded: pl.DataFrame) -> pl.DataFrame:
    """Answer and evidence together, right or wrong each (E.2), where a judge has looked at what responses rest on:
    `both_right_rate`, `both_wrong_rate`, `right_on_other_evidence_rate`, `wrong_on_right_evidence_rate`.

    Shares of the responses that give reasons, of probes that have evidence; the four sum to 100. Pooled over intervals,
    for the paper speaks of cases. Over all questions and each bin; of `gold` and `null`, which give no reasons, none.
    """
    right, sound = pl.col("right"), pl.col("judged_evidence")
    return shares(
        graded.drop_nulls("judged_evidence"),
        both_right_rate=right & sound,
        both_wrong_rate=~right & ~sound,
        right_on_other_evidence_rate=right & ~sound,
        wrong_on_right_evidence_rate=~right & sound,
    )


def intra_phase(graded: pl.DataFrame) -> pl.DataFrame:
    """Accuracy (Eq. 1), acquisition latency (2), distraction susceptibility (3) and phase miss (4) of each question.

    For a phase of length T whose first right answer is its tau-th: latency is tau - 1 intervals, distraction the wrong
    ones after tau; where no answer is right, all T are missed. Each is a share of the question's C intervals.

    Args:
        graded: as `measure`, in order of position.

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
    members = pl.concat(
        [intra.select("question_id", subset=pl.lit("all"))]
        + [graded.select("question_id", subset=pl.col(name)).drop_nulls().unique() for name in slices_of(graded)]
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


def by_tenth(graded: pl.DataFrame) -> pl.DataFrame:
    """`accuracy_in_tenth`: accuracy in each tenth of a question's intervals, over all questions and over each slice
    (6.4, Figure 3). `at` is the tenth, from 1; a stream of fewer than ten intervals leaves some out."""
    place = pl.int_range(pl.len()).over(_TRIAL)
    placed = graded.with_columns(at=place * 10 // pl.len().over(_TRIAL) + 1)
    subsets = [pl.lit("all"), *(pl.col(name) for name in slices_of(graded))]
    members = pl.concat([placed.with_columns(subset=subset).drop_nulls("subset") for subset in subsets])
    return (
        members.group_by("subset", "at", "question_id")
        .agg(hits=pl.col("right").mean(), n=pl.len())
        .with_columns(metric=pl.lit("accuracy_in_tenth"), total=1.0)
        .sort("subset", "at", "question_id")
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
    return as_counts(pooled, own_mean, change_rate)


FAMILY = Family(measure)
