"""The metrics of evolveQA: pure functions from verdicts to counts per question (paper: 3.2, 4, B.4, C.1 and C.2).

A model is asked as of its own knowledge cut-off (3.2): the latest of the dataset's dates that is not after its card's.
What the paper prints is over those questions alone, and a cell without such a date (a card that has none, a control)
has none of it; over all dates pooled, every cell has the metrics of slices.

Documents of a `membership` dataset have metrics of their own: what an attack says of them, by their scores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import polars as pl

from upkeep.grading.metrics import (
    Family,
    Floats,
    Placed,
    Resampled,
    UpkeepError,
    as_counts,
    pass_at_k,
    rates,
    shares,
    slices_of,
)

FORMATS = ("open_ended", "mcq", "verifiable")
SUPERSEDING = "_superseding"
"""What the subset of a format's superseding items is called by, after the format."""
HINTS = {
    # slice `hints` -> what Table 10 calls it: entity, concept and attribute in the question, and a date
    "context": {"context": "on", "date": "off"},
    "date": {"context": "off", "date": "on"},
    "both": {"context": "on", "date": "on"},
}
WITHOUT = "without"
NO_HINTS = {"context": "off", "date": "off"}
PLACED = {
    f"{subset}, {hints}": Placed(subset, settings)
    for subset in (*FORMATS, *(f"{name}{SUPERSEDING}" for name in FORMATS))
    for hints, settings in ({WITHOUT: NO_HINTS} | HINTS).items()
}
"""What subsets with these settings are called while they are counted."""
_ASKED = ["item", "slice_cutoff", "slice_hints", "trial"]
"""What the formats of a question have in common when they are asked of one fact at one date."""
BEFORE, AFTER, HELD_OUT = "before_cutoff", "after_cutoff", "held_out"
"""The slice `membership` of documents: from before the cut-off and from after it, and those that set the threshold."""
SCORE = "min_k_prob"
"""What the method of that name measures of a document: how likely its least likely tokens are."""
_SCORE = f"value_{SCORE}"
_HALF = r"^(.*\.pair\d+)([ab])(.*)$"
"""The id of a yes/no question: that of its pair, with the half before what tells two cut-offs apart."""


def measure(graded: pl.DataFrame, retrieved: int) -> pl.DataFrame:
    """Every score of one cell, as counts per question, which is that of an item: all formats of it, at all dates.

    Over the questions at the model's own cut-off, by format (`open_ended`, `mcq`, `verifiable`); those of the hints
    with the settings `context` and `date` (Table 10), whose row without either is the main run's accuracy, once more:

    - `accuracy`: share of right answers, the newest before the cut-off.
    - `outdated_rate`: share of answers that were right before and are not now; of yes/no questions it is 0.
    - `incorrect_rate`: share of all others, unread and failed ones too. The three sum to 100.
    - `hard_accuracy` of `verifiable`: share of pairs of which both the yes and the no question are answered rightly; at
      most the accuracy of the pairs' questions.
    - `mcq_correct_given_outdated` of `open_ended`: of items whose open answer is outdated, and that have a
      multiple-choice form, the share whose choice is right. No score where no answer is outdated.
    - all of `mcq_superseding` and `open_ended_superseding`: items whose multiple-choice form offers an outdated answer
      (C.2, Table 9).

    Over all questions, and over each other slice, at whatever date: `accuracy`, `outdated_rate`, `incorrect_rate`; and
    `parse_rate`, `error_rate` and `pass_at_k` as `upkeep.grading.metrics` has them. The control `null` has accuracy 0,
    outdated 0 and incorrect 100, `gold` has 100, 0 and 0.

    A `membership` dataset asks of each document whether it was trained on: who answers has the metrics of slices alone.

    Args:
        graded: `upkeep.grading.metrics.GRADED_SCHEMA`.
        retrieved: the most documents that any prediction retrieved; 0 for a method without retrieval.

    Returns:
        `upkeep.grading.metrics.COUNTS_SCHEMA`.

    Raises:
        UpkeepError: a yes/no question lacks the other half of its pair.
    """
    if "slice_membership" in graded.columns:
        return as_counts(shares(graded, **_rates_of_answers()), rates(graded))
    graded = graded.with_columns(item=pl.col("question_id").str.extract(r"^([^.]+)"))
    pooled = graded.drop("slice_format", "slice_change").with_columns(question_id="item")
    own = as_of(graded)
    parts = [shares(pooled, **_rates_of_answers()), rates(pooled), pass_at_k(graded, retrieved)]
    for (hints,), rows in sorted(own.partition_by("slice_hints", as_dict=True).items()):
        counts = as_counts(by_format(rows), hard_accuracy(rows), known_although_outdated(rows))
        if hints in HINTS:
            parts.append(_moved(counts, str(hints)))
            continue
        parts.append(counts)
        if not rows["slice_change"].str.ends_with("_static").any():  # of no control
            is_in_table_10 = (pl.col("subset") == "open_ended") & (pl.col("metric") == "accuracy")
            parts.append(_moved(counts.filter(is_in_table_10), WITHOUT))
    return as_counts(*parts)


def as_of(graded: pl.DataFrame) -> pl.DataFrame:
    """The questions at the model's own cut-off; none where it has no date, or one before all of the dataset's.

    Dates are ISO 8601 and compared as text; a card's may be a month (`2023-12`), which ends before none of its days.
    """
    # "~" comes after every digit and "-": the whole month counts where a card names no day.
    latest = pl.col("slice_cutoff").filter(pl.col("slice_cutoff") <= pl.col("model_cutoff") + "~").max()
    return graded.filter(pl.col("slice_cutoff") == latest)


def _rates_of_answers() -> dict[str, pl.Expr]:
    right, outdated = pl.col("right"), pl.col("outdated")
    return {"accuracy": right, "outdated_rate": outdated, "incorrect_rate": ~right & ~outdated}


def by_format(rows: pl.DataFrame) -> pl.DataFrame:
    """The three rates of each format, and of its superseding items where it is open-ended or multiple choice (C.2).

    Args:
        rows: as `measure`, with `item`, of one cut-off.
    """
    offering = rows.filter(pl.col("slice_format") == "mcq", "has_outdated").select(_ASKED).unique()
    superseding = rows.filter(pl.col("slice_format").is_in(["open_ended", "mcq"])).join(offering, on=_ASKED, how="semi")
    subsets = [rows, superseding.with_columns(slice_format=pl.col("slice_format") + SUPERSEDING)]
    named = pl.concat(subsets).drop([name for name in slices_of(rows) if name != "slice_format"])
    return shares(named.with_columns(question_id="item"), **_rates_of_answers()).filter(pl.col("subset") != "all")


def hard_accuracy(rows: pl.DataFrame) -> pl.DataFrame:
    """Pairs of yes/no questions that are answered rightly as a whole (4.1).

    The two have the same id, but for `a` and `b` after the number of the pair (datasets/evolveqa, "Ids").

    Raises:
        UpkeepError: a question without its other half.
    """
    halves = rows.filter(pl.col("slice_format") == "verifiable").with_columns(
        pair=pl.col("question_id").str.replace(_HALF, "${1}${3}"), half=pl.col("question_id").str.extract(_HALF, 2)
    )
    pairs = halves.group_by("item", "pair", "position", "trial").agg(
        both=pl.col("right").all(), halves=pl.col("half").sort()
    )
    alone = pairs.filter(pl.col("halves").list.join("").fill_null("") != "ab")
    if not alone.is_empty():
        raise UpkeepError(
            "a yes/no question without the other half of its pair",
            where=str(alone["pair"].min()),
            expected="two questions, whose ids have `a` and `b` after the number of the pair",
            found=f"halves {alone['halves'].to_list()[0]}",
            remedy="build the dataset again",
        )
    counts = pairs.group_by("item").agg(hits=pl.col("both").sum(), total=pl.len()).sort("item")
    return _named(counts, "verifiable", "hard_accuracy").with_columns(n=2 * pl.col("total"))


def known_although_outdated(rows: pl.DataFrame) -> pl.DataFrame:
    """Of items whose open answer is outdated, those whose multiple-choice question is answered rightly (4.2)."""
    chosen = rows.filter(pl.col("slice_format") == "mcq").select(*_ASKED, chosen="right")
    known = rows.filter(pl.col("slice_format") == "open_ended", "outdated").join(chosen, on=_ASKED)
    counts = known.group_by("item").agg(hits=pl.col("chosen").sum(), total=pl.len()).sort("item")
    return _named(counts, "open_ended", "mcq_correct_given_outdated")


def _named(counts: pl.DataFrame, subset: str, metric: str) -> pl.DataFrame:
    """`hits` and `total` of each item as counts of one metric."""
    named = {"subset": pl.lit(subset), "metric": pl.lit(metric), "question_id": pl.col("item")}
    return counts.with_columns(**named, at=None, n=pl.col("total"))


def _moved(counts: pl.DataFrame, hints: str) -> pl.DataFrame:
    """Counts whose scores have settings of their own (PLACED)."""
    return counts.with_columns(subset=pl.format("{}, {}", "subset", pl.lit(hints)))


# ---------------------------------------------------------------- membership inference (3.2, B.4, Table 5)


def by_score(*subsets: str) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """The documents of some subsets by their scores: a column `<subset> <place>` for each score that one of them has,
    with places from 1, the lowest score, and equal ones in one place. A document without a score has no say.

    So the sums over documents say how many of a subset have each score, which is all that a threshold or a rank needs,
    and a resample of the documents has a threshold of its own.
    """

    def sums(graded: pl.DataFrame) -> pl.DataFrame:
        if "slice_membership" not in graded.columns:
            return graded.select("question_id")
        scored = graded.filter(pl.col("slice_membership").is_in(subsets)).drop_nulls(_SCORE)
        place = pl.format("{} {}", "slice_membership", pl.col(_SCORE).rank("dense"))
        counted = scored.select("question_id", place=place, one=1)
        return counted.pivot("place", index="question_id", values="one", aggregate_function="sum").fill_null(0)

    return sums


def _of(subset: str, sums: Mapping[str, Floats]) -> Floats:
    """How many documents of a subset have each score, the lowest first: (scores, resamples)."""
    places = sorted({int(name.rpartition(" ")[2]) for name in sums})
    none = np.zeros_like(next(iter(sums.values())))
    return np.stack([sums.get(f"{subset} {place}", none) for place in places])


def detection_rate(subset: str) -> Callable[[Mapping[str, Floats]], Mapping[str, Floats]]:
    """`mia_detection_rate`: the share of documents of a subset that the attack calls members (Table 5).

    A member is what scores above a threshold, which the paper does not give. Ours is the lowest score that at least a
    fifth of the held-out documents do not exceed: of documents from before the cut-off, of which none is counted, about
    80 percent are called members, as the paper has it of its own. From 0 to 100 percent; no score where none is held
    out, or nothing is measured, as by the controls `gold` and `null`.
    """

    def value(sums: Mapping[str, Floats]) -> Mapping[str, Floats]:
        if not sums:
            return {}
        held_out, measured = _of(HELD_OUT, sums), _of(subset, sums)
        below, held = held_out.cumsum(axis=0) - held_out, held_out.sum(axis=0)
        members = np.where(5 * below >= held, measured, 0).sum(axis=0)
        return {"mia_detection_rate": np.where(held > 0, 100 * members / measured.sum(axis=0), np.nan)}

    return value


def area(sums: Mapping[str, Floats]) -> Mapping[str, Floats]:
    """`mia_auc`: how often a document from before the cut-off has a higher score than one from after it, equal scores
    counting half: the area under the curve of true against false members over all thresholds. Ours; the paper has none.

    From 0 to 1, at 0.5 by chance; no score of `gold` and `null`.
    """
    if not sums:
        return {}
    before, after = _of(BEFORE, sums), _of(AFTER, sums)
    lower = after.cumsum(axis=0) - after / 2
    return {"mia_auc": (before * lower).sum(axis=0) / (before.sum(axis=0) * after.sum(axis=0))}


FAMILY = Family(
    measure,
    resampled=[
        *(
            Resampled(
                ["mia_detection_rate"],
                by_score(subset, HELD_OUT),
                detection_rate(subset),
                values=[SCORE],
                subset=subset,
            )
            for subset in (BEFORE, AFTER)
        ),
        Resampled(["mia_auc"], by_score(BEFORE, AFTER), area, values=[SCORE], unit="ratio", subset="all"),
    ],
    placed=PLACED,
    settings=[NO_HINTS, *HINTS.values()],
)
