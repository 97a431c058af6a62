"""The metrics of PRELUDE: pure functions from verdicts to counts and sums per question (paper: 4 and 5.1)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from upkeep.grading.metrics import (
    COUNTS_SCHEMA,
    Family,
    Floats,
    Resampled,
    as_counts,
    pass_at_k,
    rates,
    shares,
    slices_of,
)

CLASSES = ("consistent", "contradict")


def measure(graded: pl.DataFrame, retrieved: int) -> pl.DataFrame:
    """Every share of one cell, as counts per question, over all questions and over each slice.

    - `accuracy`: share of right labels. Each run has the same items, so that of all is the mean of the runs'.
    - `reasoning_accuracy`, where a judge has looked at reasons: share of all items with right label and right reasons,
      in the run with the most right labels (5.1), of equals the first. The run is chosen for each slice by itself: the
      paper's runs were asked the human study's items alone. A proxy: in the paper people look. `gold` gives no reasons.
    - `parse_rate`, `error_rate`, `pass_at_k`: as `upkeep.grading.metrics` has them.

    From 0 to 100 percent. `gold` has 100 in accuracy, `null` 0.

    Args:
        graded: `upkeep.grading.metrics.GRADED_SCHEMA`.
        retrieved: the most documents that any prediction retrieved; 0 for a method without retrieval.

    Returns:
        `upkeep.grading.metrics.COUNTS_SCHEMA`.
    """
    return as_counts(
        shares(graded, accuracy=pl.col("right")), reasoned(graded), rates(graded), pass_at_k(graded, retrieved)
    )


def reasoned(graded: pl.DataFrame) -> pl.DataFrame:
    """`reasoning_accuracy` of a judge; nothing where none has looked."""
    if "judged_reasoning" not in graded.columns:
        return pl.DataFrame(schema=COUNTS_SCHEMA)
    subsets = [pl.lit("all"), *(pl.col(name) for name in slices_of(graded))]
    members = pl.concat([graded.with_columns(subset=subset).drop_nulls("subset") for subset in subsets])
    runs = members.group_by("subset", "trial").agg(pl.col("right").sum())
    best = runs.sort("right", "trial", descending=[True, False]).unique("subset", keep="first", maintain_order=True)
    sound = pl.col("right") & pl.col("judged_reasoning").fill_null(value=False)
    counts = (
        members.join(best.select("subset", "trial"), on=["subset", "trial"])
        .group_by("subset", "question_id")
        .agg(hits=sound.sum(), total=pl.len(), n=pl.len())
    )
    counts = counts.with_columns(metric=pl.lit("reasoning_accuracy"), at=None)
    return as_counts(counts.sort("subset", "question_id"))


def confusion(graded: pl.DataFrame) -> pl.DataFrame:
    """For each run the items that are asked and right; of each class those that are of it, said to be of it, and both.

    An answer that cannot be read is of neither class. The slice `label` is the right one; there are two, so an answer
    that is read and wrong is the other one. Of the benchmarks that PRELUDE is set beside, which have none, nothing.
    """
    if "slice_label" not in graded.columns:
        return graded.select("question_id", asked=1)
    columns: dict[str, pl.Expr] = {}
    right, read = pl.col("right"), pl.col("canonical").is_not_null()
    for trial in sorted(graded["trial"].unique()):
        here = pl.col("trial") == trial
        columns |= {f"{trial} asked": here, f"{trial} right": here & right}
        for name in CLASSES:
            of_it = pl.col("slice_label") == name
            columns |= {
                f"{trial} {name} items": here & of_it,
                f"{trial} {name} said": here & read & (of_it == right),
                f"{trial} {name} right": here & of_it & right,
            }
    return graded.select("question_id", **columns)


def each_run(sums: Mapping[str, Floats]) -> Mapping[str, Floats]:
    """F1 of each class, their mean and the accuracy in percent, a row for each run; F1 where items of both classes are.

    F1 of a class is twice the items that are of it and said to be, over those that are of it and those that are said to
    be: 0 where it is never said.
    """
    runs = sorted(name.split()[0] for name in sums if name.endswith(" asked"))
    found: dict[str, Floats] = {}
    if not runs:
        return found
    for name in CLASSES:
        parts = ("items", "said", "right")
        of_it, said, right = (np.stack([sums[f"{n} {name} {part}"] for n in runs]) for part in parts)
        found[f"f1_{name}"] = np.where(of_it > 0, 200 * right / (of_it + said), np.nan)
    macro = np.mean(list(found.values()), axis=0)
    found = {name: np.where(np.isnan(macro), np.nan, one) for name, one in found.items()} | {"macro_f1": macro}
    accuracy = np.stack([100 * sums[f"{n} right"] / sums[f"{n} asked"] for n in runs])
    return found | {"accuracy": accuracy}


F1 = ("f1_consistent", "f1_contradict", "macro_f1")
SPREAD = (*F1, "accuracy")


def f1(sums: Mapping[str, Floats]) -> Mapping[str, Floats]:
    """`f1_consistent`, `f1_contradict`, and `macro_f1`, their mean: means over the runs (Tables 4 to 6).

    From 0 to 100 percent. `gold` has 100, `null`, of which no answer can be read, 0.
    """
    found = each_run(sums)
    return {name: found[name].mean(axis=0) for name in F1 if name in found}


def deviation(sums: Mapping[str, Floats]) -> Mapping[str, Floats]:
    """`<metric>_std`: standard deviation over the runs of each of these and of the accuracy (Table 5).

    Table 5 does not say what it divides by. Accuracies of its 100 items are whole, and with three of them each printed
    deviation is one divided by the number of runs, and 15 of 19 are none divided by one less: ours divide by the number
    of runs. From 0 on, in points of a percentage; none of a single run. `gold` and `null` answer alike in each run: 0.
    """
    found = each_run(sums)
    if not found or len(found["accuracy"]) < 2:
        return {}
    return {f"{name}_std": found[name].std(axis=0) for name in SPREAD}


TOKEN_F1 = "token_f1"


def shared_words(graded: pl.DataFrame) -> pl.DataFrame:
    """Predictions with how many words each shares with an accepted answer."""
    return graded.select("question_id", shared=pl.col(f"value_{TOKEN_F1}").fill_null(0.0), asked=1)


def mean_shared(sums: Mapping[str, Floats]) -> Mapping[str, Floats]:
    """`token_f1`: its mean over predictions, in percent (A, Table 7, whose score of NarrativeQA has no name).

    `gold` has 100, `null` 0.
    """
    return {TOKEN_F1: 100 * sums["shared"] / sums["asked"]}


PEOPLE = {
    "infbench_mc": (100.0, 25.0),
    "detectiveqa": (94.0, 25.0),
    "narrativeqa": (64.3, 7.1),
    "nocha_public": (97.0, 50.0),
}
"""Benchmark that PRELUDE is set beside -> what people score and what chance gives (Table 7)."""


def beside_people(graded: pl.DataFrame) -> pl.DataFrame:
    """Of each such benchmark the sum of scores and how many predictions it is of."""
    measured = f"value_{TOKEN_F1}"
    score = pl.col(measured).fill_null(0.0) if measured in graded.columns else pl.col("right").cast(pl.Float64)
    columns: dict[str, pl.Expr] = {}
    for name in PEOPLE if "slice_benchmark" in graded.columns else ():
        of_it = pl.col("slice_benchmark") == name
        columns |= {f"{name} score": pl.when(of_it).then(score).otherwise(0.0), f"{name} asked": of_it}
    return graded.select("question_id", questions=1, **columns)


def distance(sums: Mapping[str, Floats]) -> Mapping[str, Floats]:
    """`distance_from_people`: (h - s) / (h - r) in percent, where s is the score, h what people score and r what chance
    gives (A, Table 7: of the closed book it is the quantile of memorization). 0 is as people, 100 as chance; larger is
    better for a benchmark. `gold` has 0 or less, `null` 100 or more."""
    found: dict[str, Floats] = {}
    for name, (people, chance) in PEOPLE.items():
        if f"{name} asked" in sums and (sums[f"{name} asked"] > 0).all():
            score = 100 * sums[f"{name} score"] / sums[f"{name} asked"]
            found["distance_from_people"] = 100 * (people - score) / (people - chance)
    return found


FAMILY = Family(
    measure,
    resampled=[
        Resampled(F1, confusion, f1),
        Resampled([TOKEN_F1], shared_words, mean_shared, values=[TOKEN_F1], ends=(0, 100)),
        Resampled(["distance_from_people"], beside_people, distance),
        # The spread of runs is no estimate over questions, so it has no interval.
        Resampled([f"{name}_std" for name in SPREAD], confusion, deviation, interval=False),
    ],
)
