"""The metrics of ImprintBench: pure functions from verdicts to counts per question (paper: C.3, D.1 to D.3).

The paper samples eight answers to each question. What it defines for eight is no score of cells with another number of
trials: it gives no estimate of these from fewer.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from upkeep.grading.metrics import (
    Described,
    Family,
    Floats,
    Resampled,
    Second,
    UpkeepError,
    as_counts,
    levelled,
    pass_at_k,
    rates,
    shares,
    slices_of,
)

TRIALS = 8
AVERAGED = {
    # a slice that one setting alone has -> the families that its Avg. is over (Tables 1 to 3)
    "month": ("dir_acq", "temp_upd", "comp_rel", "imp_rel", "bound_abs"),
    "library": ("dir_acq", "ref_res", "comp_rel", "imp_rel"),
    "persona": ("temp_upd", "ref_res", "comp_rel", "imp_rel", "bound_abs"),
}
"""World News, Code Changelogs and Personalization. BoundAbs of Code and DirAcq of Personalization are described, but no
table has numbers of them; `imp_rel_unmerged` and `comp_rel_no_import` are not the paper's."""
BY_NAME = "imp_rel_by_name"
"""ImpRel of Code as if questions of the same words were asked for each of their names alone: `imp_rel_unmerged`, and of
`imp_rel` those that accept one name. (The paper's scores fit the merged ones.)"""
BEST_BY = "all_but_dir_acq"
"""What a learning rate is chosen by: the mean over families, DirAcq left out (captions of Tables 1 to 3)."""


def measure(graded: pl.DataFrame, retrieved: int) -> pl.DataFrame:
    """Every score of one cell, as counts per question.

    - `pass_at_1`: mean share of a question's answers that are right (C.3), for any number of trials.
    - `pass_at_8`, `all_correct_at_8`: share of questions of which at least one of eight answers is right, and of which
      all are (C.3); no score where there are not eight. `all_correct_at_8` <= `pass_at_1` <= `pass_at_8`.
    - subset `all` of these: the plain mean over the families of Avg. (AVERAGED) that have a question, whatever their
      sizes; `all_but_dir_acq` the same without DirAcq. A family, or any other slice: the mean over its questions, where
      there are personas the mean over those that have one of the mean over theirs (D.3).
    - subset BY_NAME, where there are questions that were not merged: the mean over these and those of one name.
    - `<metric>_pooled`: the same three, every question of the dataset or slice with the same weight.
    - `accuracy`, `outdated_rate`: shares of predictions over all questions and over each slice, as all papers' reports
      have them; `parse_rate`, `error_rate`, `pass_at_k` as `upkeep.grading.metrics` has them.

    What is right is said by the verdicts, those of `judges.yaml` among them. The control `gold` has 100 and `null` 0 in
    all that are about right answers, BoundAbs included. Intervals take the weights of questions as given,
    and what sets the families of a mean apart is no uncertainty (`levelled`).

    Args:
        graded: `upkeep.grading.metrics.GRADED_SCHEMA` with a slice `family`.
        retrieved: the most documents that any prediction retrieved; 0 for a method without retrieval.

    Returns:
        `upkeep.grading.metrics.COUNTS_SCHEMA`.

    Raises:
        UpkeepError: the dataset has no slice `family`.
    """
    if "slice_family" not in graded.columns:
        raise UpkeepError("no families to take the mean of", expected="a slice `family`", found=slices_of(graded))
    asked = by_probe(graded)
    return as_counts(
        weighted(of_slices(asked)),
        weighted(by_name(asked)),
        levelled(weighted(of_averages(asked)), "stratum"),
        weighted(pooled(asked)),
        shares(graded, accuracy=pl.col("right"), outdated_rate=pl.col("outdated")),
        rates(graded),
        pass_at_k(graded, retrieved),
    )


def by_probe(graded: pl.DataFrame) -> pl.DataFrame:
    """One row a probe: its slices, `persona` (empty where there are none), `accepted_answers`, `pass_at_1`, with eight
    trials the two of eight, and `n` trials."""
    right = pl.col("right")
    metrics = {"pass_at_1": right.mean()}
    if graded["trial"].n_unique() == TRIALS:
        metrics |= {"pass_at_8": right.any().cast(pl.Float64), "all_correct_at_8": right.all().cast(pl.Float64)}
    asked = graded.group_by("probe_id", "question_id", "accepted_answers", *slices_of(graded), maintain_order=True)
    persona = pl.col("slice_persona") if "slice_persona" in graded.columns else pl.lit("")
    return asked.agg(**metrics, n=pl.len()).with_columns(persona=persona)


def of_slices(asked: pl.DataFrame) -> pl.DataFrame:
    """Probes by the value of each slice that they have, in which every persona has the same `weight` of one."""
    members = [asked.with_columns(subset=name).drop_nulls("subset") for name in slices_of(asked)]
    return pl.concat(members).with_columns(weight=1 / pl.len().over("subset", "persona"))


def by_name(asked: pl.DataFrame) -> pl.DataFrame:
    """Probes of BY_NAME, all of one `weight`; none where all are merged."""
    family, alone = pl.col("slice_family"), pl.col("accepted_answers") == 1
    members = asked.filter((family == "imp_rel_unmerged") | ((family == "imp_rel") & alone))
    return members.filter((family == "imp_rel_unmerged").any()).with_columns(subset=pl.lit(BY_NAME), weight=1.0)


def of_averages(asked: pl.DataFrame) -> pl.DataFrame:
    """Probes of the families of Avg., in which every family has the same `weight` of one: subset `all`; and all of
    these but DirAcq."""
    known = [families for name, families in AVERAGED.items() if f"slice_{name}" in asked.columns]
    families = known[0] if known else tuple(asked["slice_family"].unique())
    personas = pl.col("persona").n_unique().over("slice_family")
    members = asked.filter(pl.col("slice_family").is_in(families)).with_columns(
        weight=1 / (pl.len().over("slice_family", "persona") * personas)
    )
    others = members.filter(pl.col("slice_family") != "dir_acq")
    return pl.concat([members.with_columns(subset=pl.lit("all")), others.with_columns(subset=pl.lit(BEST_BY))])


def pooled(asked: pl.DataFrame) -> pl.DataFrame:
    """Probes of the whole dataset and of each slice, all of one `weight`, with metrics named `<metric>_pooled`."""
    everywhere = asked.with_columns(subset=pl.lit("all"))
    members = pl.concat([everywhere, of_slices(asked).drop("weight")]).with_columns(weight=1.0)
    return members.rename({name: f"{name}_pooled" for name in _metrics(asked)})


def _metrics(asked: pl.DataFrame) -> list[str]:
    return [name for name in asked.columns if name.startswith(("pass_at_", "all_correct_at_"))]


def weighted(members: pl.DataFrame) -> pl.DataFrame:
    """The mean of each metric over the probes of each subset, by `weight`, as counts per question."""
    metrics = _metrics(members)
    return (
        members.group_by("subset", "question_id", maintain_order=True)
        .agg(
            *((pl.col(name) * pl.col("weight")).sum() for name in metrics),
            total=pl.col("weight").sum(),
            n=pl.col("n").sum(),
            stratum=pl.format("{} {}", "slice_family", "persona").unique().sort().str.join(", "),
        )
        .unpivot(
            metrics, index=["subset", "question_id", "stratum", "total", "n"], variable_name="metric", value_name="hits"
        )
        .with_columns(at=None)
        .sort("subset", "metric", "question_id")
    )


# ---------------------------------------------------------------- what is no share: tokens, and their ratio


def spent(graded: pl.DataFrame) -> pl.DataFrame:
    """Tokens of the answered probes, by question: of the prompts and of what was generated."""
    answered = graded.filter(~pl.col("failed")).with_columns(answers=pl.lit(1))
    return answered.select("question_id", "answers", context="prompt_tokens", generated="completion_tokens")


def mean_tokens(sums: Mapping[str, Floats]) -> Mapping[str, Floats]:
    """`context_tokens` (Figures 3 and 11) and `generation_tokens` (dashed in Figure 12): means over answers."""
    return {
        "context_tokens": sums["context"] / sums["answers"],
        "generation_tokens": sums["generated"] / sums["answers"],
    }


GENERATED = tuple(f"generation_tokens_{part}" for part in ("whisker_low", "p25", "p50", "p75", "whisker_high"))
"""What a box of Figure 12 is made of, from its lower to its upper whisker."""
KEPT = "value_kept_share"
"""What `kvzip` says it has kept of the keys and values of a prompt."""
REACH = 1.5
"""How far whiskers reach at most, in lengths of their box (Figure 12)."""


def spread(graded: pl.DataFrame) -> dict[str, float]:
    """GENERATED: quartiles of the tokens that answers took, linearly interpolated, and the last of these numbers within
    REACH times the distance of the quartiles on either side. Every sample of a question is an answer; nothing without
    any."""
    tokens = graded.filter(~pl.col("failed"))["completion_tokens"].drop_nulls().to_numpy()
    if not tokens.size:
        return {}
    lower, middle, upper = (float(np.quantile(tokens, share)) for share in (0.25, 0.5, 0.75))
    reach = REACH * (upper - lower)
    low, high = float(tokens[tokens >= lower - reach].min()), float(tokens[tokens <= upper + reach].max())
    # An interpolated quartile may lie beyond all numbers within reach: then there is no whisker.
    return dict(zip(GENERATED, (min(low, lower), lower, middle, upper, max(high, upper)), strict=True))


def compressed(joined: pl.DataFrame) -> pl.DataFrame:
    """Tokens of the corpus that a probe is asked about, and of that in its prompt: those that the closed book, which
    is asked the same in the same words, does not need; of a compressed cache, the share of them that is kept."""
    answered = joined.filter(~pl.col("failed"), ~pl.col("second_failed"))
    kept = pl.col(KEPT).fill_null(1.0) if KEPT in joined.columns else 1.0
    return answered.select(
        "question_id", corpus="arrived_tokens", shown=(pl.col("prompt_tokens") - pl.col("second_prompt_tokens")) * kept
    )


def compression(sums: Mapping[str, Floats]) -> Mapping[str, Floats]:
    """`compression_ratio`: corpus tokens over those in context (C.3). Where none are shown it is not finite: no score.

    The corpus is counted by the dataset's tokenizer, the context by the model's.
    """
    return {"compression_ratio": sums["corpus"] / sums["shown"].clip(min=0)}


FAMILY = Family(
    measure,
    resampled=[
        Resampled(("context_tokens", "generation_tokens"), spent, mean_tokens, unit="tokens", ends=(0, np.inf)),
        Resampled(
            ("compression_ratio",),
            compressed,
            compression,
            second=Second("the closed book", method="closed_book"),
            unit="ratio",
            ends=(0, np.inf),
        ),
    ],
    described=[Described(GENERATED, spread, unit="tokens")],
)
