"""The uncertainty of scores, and the table of all scores: datasets and what papers print of them."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import polars as pl
import pytest

from conftest import ROOT
from scored_cells import key_of, timeline, write_dataset
from upkeep.contract import (
    DatasetCard,
    DatasetSpec,
    Published,
)
from upkeep.errors import UpkeepError
from upkeep.grading import metrics, score, statistics
from upkeep.grading.dataset_scores import score_dataset
from upkeep.grading.settings import printed
from upkeep.integrity import read_sealed

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


def counts(*pairs: tuple[float, float]) -> pl.DataFrame:
    return pl.DataFrame(
        [("all", "m", None, f"q{i}", hits, total, int(total)) for i, (hits, total) in enumerate(pairs)],
        schema=metrics.COUNTS_SCHEMA,
        orient="row",
    )


# ------------------------------------------------------------------ uncertainty


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
