"""Baselines of a dataset: answers that use no model and no reading, held against its answer key as a model's are.

What they score says how far the form of a dataset gives its answers away:

- `random`, whose expectation is the chance that the others are set beside: one of the options or, where a question
  gives none, of the dataset's distinct answers (the first accepted one of each question), each as likely;
- `most_common`: the answer that is right most often in a kind of question; of options their place or their label, which
  may be of several languages;
- `longest`: the option with the most characters;
- `last_mentioned`: the option that the documents which have arrived mention last, as whole words; where they mention
  none, the one that most questions offer (that it cannot be known yet). Not of labels, which documents do not name;
- `option_overlap`: the option that shares the most words and parts (between commas or semicolons) with the others.

Where options tie, each counts in part, so nothing hangs on their order. They are read and graded as responses are, by
the answer key's words and the patterns of `judges.yaml`; no judge is asked. Kept beside the dataset, and worked out
anew where the dataset, the graders or these rules have changed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import polars as pl

from upkeep import inputs
from upkeep.catalog import Catalog
from upkeep.contract import Baseline, Baselines, Form, Kind
from upkeep.grading import wording
from upkeep.grading.graded import CODE, grade, read_response
from upkeep.grading.key import Key, canonical_answers, read_key
from upkeep.integrity import Damaged, Missing, read_sealed, write_sealed
from upkeep.layout import Layout
from upkeep.sources import meaning

EXACT = 1_000_000
"""Answers of one baseline to one form that are graded at most; where there are more, a seeded draw of so many is."""
SEED = 0
_BETWEEN = "\x1f"


def baselines(catalog: Catalog, name: str) -> Baselines:
    """The baselines of a built dataset: those that are kept, if they are of this dataset and this code.

    Raises:
        Missing, Damaged: the dataset is not there, or not what was built.
        UpkeepError: as `key.read_key`.
    """
    card, key = inputs.dataset(catalog, name), read_key(catalog, name)
    layout = Layout(catalog.results)
    made_of = {
        **key.made_of,
        **{part: card.content[part] for part in ("documents", "slices")},
        "code": meaning(catalog, (*CODE, "grading/baselines.py", "grading/wording.py")),
    }
    try:
        kept = read_sealed(layout.baselines(name), Baselines, "")
        if (kept.dataset, kept.made_of) == (name, made_of):
            return kept
    except (Missing, Damaged):  # it follows from what is there
        pass
    folder = layout.dataset(name)
    documents = pl.read_parquet(folder / "documents.parquet", columns=["stream", "position", "text"])
    first = pl.read_parquet(folder / "gold.parquet", columns=["probe_id", "answers"])
    kinds = measure(key, documents, first.select("probe_id", answer=pl.col("answers").list.first()))
    return write_sealed(layout.baselines(name), Baselines(dataset=name, made_of=made_of, kinds=kinds))


def measure(key: Key, documents: pl.DataFrame, first: pl.DataFrame) -> list[Kind]:
    """What the baselines score on each form and each of its slices.

    Args:
        documents: stream, position, text.
        first: probe_id, answer: the first accepted answer of each probe, as the key writes it.
    """
    kinds = []
    forms: tuple[Form, ...] = ("choice", "label", "short")
    for form in forms:
        own = replace(key, probes=key.probes.filter(form=form))
        if not own.probes.is_empty():
            found = _open(own, documents, first) if form == "short" else _of_options(own, documents, form)
            kinds += _kinds(form, own.probes, found)
    return kinds


@dataclass(frozen=True)
class _Found:
    """What is known of one form's probes."""

    shares: pl.DataFrame
    """A row a probe, in their order: `chance` and the baselines but for `most_common`, each the share of its tied
    answers that are right."""
    common: pl.DataFrame
    """slice, value, share: what the most common answer scores; slice and value are empty for all of the form."""
    exact: bool


def _kinds(form: Form, probes: pl.DataFrame, found: _Found) -> list[Kind]:
    common = {(name, value): share for name, value, share in found.common.iter_rows()}
    kinds, rows = [], probes.hstack(found.shares)
    for name in found.common["slice"].unique(maintain_order=True):
        column = pl.col(f"slice_{name}") if name else pl.lit("")
        means = rows.group_by(value=column).agg(pl.len(), *(pl.col(one).mean() for one in found.shares.columns))
        for row in means.sort("value").iter_rows(named=True):
            shares = {one: row[one] for one in found.shares.columns if one != "chance"}
            shares = {"most_common": common[name, row["value"]], **shares}
            kinds.append(
                Kind(
                    form=form,
                    slice=name,
                    value=row["value"],
                    probes=row["len"],
                    chance=round(100 * row["chance"], 6),
                    exact=found.exact,
                    found={cast("Baseline", one): round(100 * share, 6) for one, share in shares.items()},
                )
            )
    return kinds


def _slices(answered: pl.DataFrame) -> dict[str, pl.Expr]:
    """All probes under the empty name, then each slice that parts them: its name -> its values.

    A slice that parts them by their answers alone (evolveQA's polarity) is none: of its values one answer is right.

    Args:
        answered: slices, and `which`, the answer or the place of the right option.
    """
    names = [name for name in answered.columns if name.startswith("slice_") and answered[name].n_unique() > 1]
    parting = [name for name in names if answered.group_by(name).agg(pl.col("which").n_unique())["which"].max() != 1]
    return {"": pl.lit(""), **{name.removeprefix("slice_"): pl.col(name) for name in parting}}


# ---------------------------------------------------------------- grading


def right(key: Key, guesses: pl.DataFrame) -> pl.Series:
    """Whether each guess is right, read and graded as a response that gives it after the prompt's marker.

    Args:
        key: of the probes that are guessed at, alone.
        guesses: probe_id, trial, guess (a letter, a label or an answer); no probe and trial twice.
    """
    patterns = list({id(pattern): pattern for pattern in key.patterns.values()}.values())
    places = {id(pattern): place for place, pattern in enumerate(patterns)}
    has = {probe: places[id(pattern)] for probe, pattern in key.patterns.items()}
    asked = key.probes.select(
        "probe_id",
        "form",
        labels=pl.when(pl.col("form") == "label").then(pl.col("options").list.join(_BETWEEN)).otherwise(pl.lit("")),
        pattern=pl.col("probe_id").replace_strict(has, default=-1, return_dtype=pl.Int32),
    )
    rows = guesses.join(asked, on="probe_id", how="left", maintain_order="left")
    alike = ["form", "labels", "pattern", "guess"]
    distinct = rows.select(alike).unique(maintain_order=True)  # each is read once
    read = [
        read_response(
            f"{key.marker} {guess}",
            form,
            labels.split(_BETWEEN) if labels else None,
            key.marker,
            None if pattern < 0 else patterns[pattern],
        )
        for form, labels, pattern, guess in distinct.iter_rows()
    ]
    types = {"answer": pl.String, "parse": pl.String, "verdict": pl.String, "right": pl.Boolean}
    said = distinct.hstack(pl.DataFrame(read, schema=types, orient="row"))
    nothing = {"failed": pl.lit(value=False), "rank": pl.lit(None), "prompt_tokens": pl.lit(0)}
    predictions = rows.join(said, on=alike, how="left", maintain_order="left").select(
        "probe_id", "trial", *types, **nothing, completion_tokens=pl.lit(0)
    )
    trials = cast("int", guesses["trial"].max()) + 1
    verdicts = grade(key, predictions, trials).select("probe_id", "trial", "right")
    return guesses.join(verdicts, on=["probe_id", "trial"], how="left", maintain_order="left")["right"]


# ---------------------------------------------------------------- questions with options


def _of_options(key: Key, documents: pl.DataFrame, form: str) -> _Found:
    rows = key.probes.with_columns(trial=pl.int_ranges(0, pl.col("options").list.len(), dtype=pl.Int32))
    rows = rows.explode("options", "trial").rename({"options": "option"})
    letters = pl.col("trial").map_elements(lambda place: chr(ord("A") + place), return_dtype=pl.String)
    rows = rows.with_columns(guess=letters if form == "choice" else pl.col("option"))
    rows = rows.with_columns(right=right(key, rows.select("probe_id", "trial", "guess")))
    rows = rows.with_columns(
        chance=pl.lit(0),
        longest=pl.col("option").str.len_chars(),
        option_overlap=wording.overlap(rows["option"], rows["probe_id"]),
    )
    names = ["chance", "longest", "option_overlap"]
    if form == "choice":
        rows = rows.with_columns(last_mentioned=wording.last_mentioned(rows, documents))
        names.append("last_mentioned")
    picks = (
        pl.col("right").filter(pl.col(name) == pl.col(name).max()).mean().alias(name) for name in names
    )  # all that tie for the most
    shares = rows.group_by("probe_id", maintain_order=True).agg(*picks)
    common, place = [], pl.col("trial").filter("right").first().alias("which")
    answered = key.probes.hstack(rows.group_by("probe_id", maintain_order=True).agg(place).select("which"))
    for name, column in _slices(answered).items():
        sums = [rows.group_by(as_, value=column).agg(pl.sum("right")).drop(as_) for as_ in ("guess", "trial")]
        of = key.probes.group_by(value=column).len().join(pl.concat(sums).group_by("value").max(), on="value")
        common.append(of.select(slice=pl.lit(name), value="value", share=pl.col("right") / pl.col("len")))
    return _Found(shares.drop("probe_id"), pl.concat(common), exact=True)


# ---------------------------------------------------------------- open questions


def _open(key: Key, documents: pl.DataFrame, first: pl.DataFrame) -> _Found:
    rows = key.probes.join(first, on="probe_id", how="left", maintain_order="left").with_row_index("row")
    rows = rows.with_columns(canonical=canonical_answers(rows, key.equivalence))
    answers = rows.drop_nulls("canonical").unique("canonical", keep="first", maintain_order=True)["answer"]
    share, exact = _expected(key, answers)
    shares = {"chance": share}
    for name, score in (
        ("longest", answers.str.len_chars()),
        ("option_overlap", wording.overlap(answers, pl.repeat("", len(answers), eager=True))),
    ):
        best = answers.filter(score == score.max())
        shares[name] = share if len(best) == len(answers) else _expected(key, best)[0]
    last = wording.last_of(answers, rows, documents)
    guesses = pl.DataFrame({"probe_id": rows["probe_id"], "trial": pl.repeat(0, len(rows), dtype=pl.Int32, eager=True)})
    hit = right(key, guesses.with_columns(guess=last.fill_null(""))).cast(pl.Float64)
    shares["last_mentioned"] = pl.select(pl.when(last.is_null()).then(share).otherwise(hit)).to_series()
    return _Found(pl.DataFrame(shares), _common(key, rows), exact)


def _expected(key: Key, answers: pl.Series) -> tuple[pl.Series, bool]:
    """For each probe the share of answers that are right, and whether all were graded."""
    probes, exact = key.probes["probe_id"], len(key.probes) * len(answers) <= EXACT
    each = len(answers) if exact else max(1, EXACT // len(probes))
    if exact:
        chosen = np.tile(np.arange(len(answers)), len(probes))
    else:
        chosen = np.random.default_rng(SEED).integers(len(answers), size=each * len(probes))
    guesses = pl.DataFrame(
        {
            "probe_id": probes.gather(np.repeat(np.arange(len(probes)), each)),
            "trial": np.tile(np.arange(each, dtype=np.int32), len(probes)),
            "guess": answers.gather(chosen),
        }
    )
    return pl.Series(right(key, guesses).to_numpy().reshape(len(probes), each).mean(axis=1)), exact


def _common(key: Key, rows: pl.DataFrame) -> pl.DataFrame:
    """What the most common answer of each slice scores there; of several the one that is asked for first."""
    guesses, slices = [], _slices(rows.with_columns(which="canonical"))
    for trial, column in enumerate(slices.values()):
        counted = rows.group_by("canonical", value=column).agg(pl.len(), pl.first("row"), pl.first("answer"))
        best = counted.sort("len", "row", descending=[True, False]).group_by("value", maintain_order=True).first()
        asked = rows.select("probe_id", value=column).join(best.select("value", guess="answer"), on="value", how="left")
        guesses.append(asked.with_columns(trial=pl.lit(trial, pl.Int32)))
    found = pl.concat(guesses)
    found = found.with_columns(right=right(key, found.select("probe_id", "trial", "guess")))
    names = list(slices)
    shares = found.group_by("trial", "value").agg(share=pl.col("right").mean())
    name = pl.col("trial").replace_strict(range(len(names)), names, return_dtype=pl.String)
    return shares.sort("trial", "value").select(name.alias("slice"), "value", "share")
