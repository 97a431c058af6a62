"""A dataset's answer key, ready for grading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from upkeep import inputs
from upkeep.catalog import Catalog
from upkeep.contract import Form, Manifest, Pattern
from upkeep.fields import plain
from upkeep.grading.judgements import NONE, RIGHT, Judgements, judgements_of, right_verdicts
from upkeep.grading.matching import Equivalence, canonical
from upkeep.grading.matching import equivalence as named
from upkeep.integrity import NOTHING_KNOWN, Hashes
from upkeep.layout import Layout
from upkeep.normal_form import check_subsets
from upkeep.samples import asked_in

GRADED_ON = ("probes", "answers", "outdated", "evidence")
"""The parts of a dataset's content that verdicts depend on (`DatasetCard.content`); slices are for scores alone."""


@dataclass(frozen=True, slots=True)
class Key:
    """A dataset's answer key."""

    probes: pl.DataFrame
    """probe_id, question_id, stream, position, form, options, phase, slice_*, has_evidence, has_outdated,
    accepted_answers, arrived_tokens: one row a probe. `has_outdated` is whether the key lists answers that were right
    before, `accepted_answers` how many it accepts; `arrived_tokens` are those of the stream's documents up to the
    probe's position, by the dataset's tokenizer."""
    accepted: pl.DataFrame
    """probe_id, answer: every accepted answer in canonical form, each once."""
    outdated: pl.DataFrame
    """probe_id, answer: the same of answers that were right before."""
    gold_chunk: Mapping[str, str]
    """probe_id -> document where the present answer began; absent before anything is known."""
    equivalence: Equivalence
    marker: str
    """What the prompt demands before an answer."""
    patterns: Mapping[str, tuple[Pattern, frozenset[str]]]
    """probe_id -> the rule on words that its response is held against, and which of its verdicts are right."""
    made_of: Mapping[str, str]
    """What decides all of this: parts of the dataset by their hashes, the equivalence, the marker, the patterns."""

    def after(self, cutoff: Mapping[str, int]) -> Key:
        """The same for a cell that was asked about each stream of `cutoff` at that position or later alone
        (`Manifest.cutoff`)."""
        if not cutoff:
            return self
        first = pl.col("stream").replace_strict(dict(cutoff), default=0, return_dtype=pl.Int32)
        return replace(self, probes=self.probes.filter(pl.col("position") >= first))

    def asked_of(self, manifest: Manifest) -> Key:
        """The same of the probes that a published cell was asked."""
        sampled = asked_in(manifest, self.probes.select("probe_id", "question_id").rows())
        key = self.after(manifest.cutoff)
        if sampled is None:
            return key
        return replace(key, probes=key.probes.filter(pl.col("probe_id").is_in(list(sampled))))

    def forms(self) -> dict[str, tuple[Form, Sequence[str] | None]]:
        """probe_id -> the form of its answer, and its options."""
        return {name: (form, options) for name, form, options in self.probes["probe_id", "form", "options"].iter_rows()}


def read_key(catalog: Catalog, dataset: str) -> Key:
    """Read the answer key of a dataset.

    Raises:
        Missing, Damaged: the dataset is not there, or not what was built.
        UpkeepError: its card names an equivalence or a prompt that there is not, the prompt's card is wrong, or slices
            share a value.
    """
    spec = catalog.dataset(dataset)
    folder = Layout(catalog.results).dataset(dataset)
    marker, judged = catalog.prompt_of(dataset).marker, judgements_of(catalog, dataset)
    return key_in(folder, spec.equivalence, marker, judged, catalog.hashes)


def key_in(
    folder: Path, equivalence: str, marker: str, judged: Judgements = NONE, hashes: Hashes = NOTHING_KNOWN
) -> Key:
    """As `read_key`, of the folder of a built dataset.

    Args:
        equivalence: name of one of `matching.EQUIVALENCES`.
        marker: what the prompt demands before an answer.
        judged: what is decided otherwise than by the words of the answer key.
    """
    card, equal = inputs.verify_dataset(folder, hashes), named(equivalence)
    gold, probes = pl.read_parquet(folder / "gold.parquet"), pl.read_parquet(folder / "probes.parquet")
    check_subsets(gold, folder / "gold.parquet")
    made_of = {"equivalence": equivalence, "marker": marker, **{part: card.content[part] for part in GRADED_ON}}
    made_of |= {"patterns": plain(judged.patterns)} if judged.patterns else {}

    def column(name: str) -> pl.DataFrame:
        listed = gold.select("probe_id", answer=name).explode("answer").drop_nulls()
        formed = listed.join(probes.select("probe_id", "form"), on="probe_id", how="left", maintain_order="left")
        rows = formed.with_columns(answer=canonical_answers(formed, equal))
        return rows.select("probe_id", "answer").unique(maintain_order=True)

    evident = gold.filter(pl.col("evidence").list.len() > 0).select("probe_id", pl.col("evidence").list.last())
    slices = [name for name in gold.columns if name.startswith("slice_")]
    return Key(
        probes=probes.select("probe_id", "question_id", "stream", "position", "form", "options")
        .join(
            gold.select(
                "probe_id",
                "phase",
                *slices,
                has_evidence=pl.col("evidence").list.len() > 0,
                has_outdated=pl.col("outdated").list.len() > 0,
                accepted_answers=pl.col("answers").list.len().cast(pl.Int32),
            ),
            on="probe_id",
            how="left",
            maintain_order="left",
        )
        .with_columns(arrived_tokens=_arrived(probes, folder)),
        accepted=column("answers"),
        outdated=column("outdated"),
        gold_chunk=dict(evident.iter_rows()),
        equivalence=equal,
        marker=marker,
        patterns=_patterns(judged, probes, gold),
        made_of=made_of,
    )


def _patterns(
    judged: Judgements, probes: pl.DataFrame, gold: pl.DataFrame
) -> dict[str, tuple[Pattern, frozenset[str]]]:
    if not judged.patterns:
        return {}
    rows = probes.select("probe_id", "form").join(gold, on="probe_id")
    placed = judged.placed(rows).join(rows.select("probe_id", "answers"), on="probe_id").drop_nulls(RIGHT)
    found = {}
    for probe, place, answers in placed.select("probe_id", RIGHT, "answers").iter_rows():
        if (pattern := judged.of[place].pattern) is not None:
            found[probe] = pattern, right_verdicts(pattern, answers)
    return found


def _arrived(probes: pl.DataFrame, folder: Path) -> pl.Series:
    """Tokens of the documents of each probe's stream that have arrived when it is asked."""
    documents = pl.read_parquet(folder / "documents.parquet", columns=["stream", "position", "tokens"])
    place = (pl.col("stream"), pl.col("position").cast(pl.Int32))
    so_far = pl.col("tokens").cast(pl.Int64).cum_sum().over("stream")
    arrived = documents.sort("stream", "position").select(*place, so_far)
    asked = probes.select(*place).join(arrived, on=["stream", "position"], how="left", maintain_order="left")
    return asked["tokens"].fill_null(0)


def canonical_answers(rows: pl.DataFrame, equal: Equivalence) -> pl.Series:
    """The column `answer` in canonical form where `form` is `short`; letters and labels stay."""
    own = canonical(rows["answer"], equal.canonical)
    return rows.select(pl.when(pl.col("form") == "short").then(own).otherwise("answer")).to_series()
