"""What a dataset is made of, as scores: its questions by slice, and what its paper prints of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import polars as pl

from upkeep.card_numbers import Read, numbers, places
from upkeep.contract import DatasetCard, DatasetSpec
from upkeep.errors import UpkeepError
from upkeep.grading.key import Key
from upkeep.grading.score import SCORE_SCHEMA, stand_in, tidy
from upkeep.grading.settings import Pairs, as_rows, pairs


def score_dataset(
    name: str, spec: DatasetSpec, card: DatasetCard, key: Key, papers: Path, read: Read | None = None
) -> pl.DataFrame:
    """`question_count`, `question_share` of each slice (OAKS, Tables 7 and 9), `questions_by_phases`: how many
    questions have how many phases (OAKS, Figure 4); and each statistic of the card that the paper prints.

    A statistic is found by the names that the paper's line has (`published` in `dataset.yaml`); where the paper prints
    it in several tables, once for each label and setting. One that the paper prints of another dataset, beside which
    this one is only described, is no score.

    Args:
        key: its answer key.
        papers: the folder `papers/`.
        read: as in `card_numbers.places`.

    Raises:
        UpkeepError: `published` names no place, or several, or the paper's files cannot be read.
    """
    rows = [*_questions(spec.stands_for or name, spec.label, key), *_printed(name, spec, card, papers, read)]
    return tidy(
        pl.DataFrame(rows, schema={column: SCORE_SCHEMA[column] for column in rows[0]}).with_columns(
            dataset_id=pl.lit(name),
            provenance=pl.lit(card.provenance),
            stand_in=pl.lit(stand_in(name, spec)),
            n=pl.lit(card.questions),
            questions=pl.lit(card.questions),
            trained=pl.lit(value=True),
        )
    )


def _row(
    label: str, dataset: str, subset: str, metric: str, value: float, unit: str, setting: Pairs = ()
) -> dict[str, object]:
    return {"label": label, "dataset": dataset, "subset": subset, "metric": metric, "value": value, "unit": unit} | {
        "setting": as_rows(setting)
    }


def _questions(dataset: str, label: str, key: Key) -> Iterator[dict[str, object]]:
    firsts = key.probes.unique("question_id", keep="first", maintain_order=True)
    yield _row(label, dataset, "all", "question_count", float(len(firsts)), "count")
    for column in (column for column in firsts.columns if column.startswith("slice_")):
        counts = firsts[column].drop_nulls().value_counts().sort(column)
        for value, count in counts.iter_rows():
            share = 100 * count / counts["count"].sum()
            yield _row(label, dataset, value, "question_share", share, "percent")
    phases = key.probes.group_by("question_id").agg(pl.col("phase").n_unique())["phase"].value_counts().sort("phase")
    for number, count in phases.iter_rows():
        setting = (("phases", str(number)),)
        yield _row(label, dataset, "all", "questions_by_phases", float(count), "count", setting)


def _printed(
    name: str, spec: DatasetSpec, card: DatasetCard, papers: Path, read: Read | None
) -> Iterator[dict[str, object]]:
    own, whose, given = numbers(card), spec.stands_for or name, set()
    for statistic, lines in places(spec, papers, read).items():
        for line in lines:
            known_as = tuple(line[column] for column in ("label", "setting", "dataset", "subset", "metric"))
            ours = line["dataset"] == whose or line["dataset"].startswith(f"{whose}_")
            if statistic in own and ours and known_as not in given:
                given.add(known_as)
                place = (line["label"], line["dataset"], line["subset"], line["metric"])
                yield _row(*place, float(own[statistic]), line["unit"], _setting(line, papers / spec.paper))


def _setting(line: Mapping[str, str], paper: Path) -> Pairs:
    try:
        return pairs(line["setting"])
    except ValueError as error:
        problem, where = f"not a setting: {error}", paper / "reference" / f"{line['table']}.csv"
        raise UpkeepError(problem, where=where, expected="`key=value` joined by `;`", found=line["setting"]) from None
