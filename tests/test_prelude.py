"""PRELUDE: a release is read as it is, and nothing is both asked and shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

import prelude
from prelude import library, release
from prelude_releases import Build, build, catalog, items, official, printed, put, shelf, table_2
from upkeep.building.build import build_dataset, describe
from upkeep.building.reading import Faults
from upkeep.contract import FaultKind
from upkeep.errors import UpkeepError

__all__ = ["build"]


# ---------------------------------------------------------------- the official release


def test_tables_2_and_3_come_out_of_the_card_beside_the_papers(tmp_path: Path, build: Build) -> None:
    repository = tmp_path / "mine"
    data = {"release": official(tmp_path / "release"), "books": shelf(tmp_path / "books", ["Rebecca", "亮剑"])}
    mine = catalog(repository, data)
    card = build_dataset(mine, "prelude", repository / "built")
    for line in [*printed("table_2"), *printed("table_3")]:
        own = card.statistics[f"{line['metric']}: {line['subset']}"]
        # The rows of Table 2 add up to 38 characters, its total and the text say 40.
        assert own == (38 if (line["metric"], line["subset"]) == ("characters", "all") else float(line["value"]))
    assert round(card.statistics["nonlocal_share"]) == 88
    assert card.statistics["instances: human_study"] == 100
    lines = describe(mine, card).splitlines()
    assert any(line.split() == ["instances:", "contradict_global", "267", "267"] for line in lines)


def test_only_items_whose_book_is_at_hand_are_asked_and_the_others_are_counted(tmp_path: Path, build: Build) -> None:
    data = {"release": official(tmp_path / "release"), "books": shelf(tmp_path / "books", ["rebecca", "亮剑"])}
    card, built = build(data)
    assert card.slices["book"] == {"drawing_sword": 70, "rebecca": 82}
    assert card.statistics["left out: book not at hand"] == 795 - 152
    assert sum("not at hand" in note for note in card.notes) == 11
    assert card.slices["language"] == {"chinese": 70, "english": 82}
    assert card.slices["public"] == {"not_public": 152}
    assert card.pairs == 0
    assert built.documents["tokens"].max() <= 500
    ends = built.documents.group_by("stream").agg(pl.max("position"))
    assert built.probes.join(ends, on=["stream", "position"]).height == 152


def test_an_item_is_asked_as_its_block_in_its_language(tmp_path: Path, build: Build) -> None:
    data = {"release": official(tmp_path / "release"), "books": shelf(tmp_path / "books", ["rebecca", "亮剑"])}
    _, built = build(data)
    english, chinese = (built.probes.filter(stream=book).row(0, named=True) for book in ("rebecca", "drawing_sword"))
    assert english["question"] == (
        "[Prequel Plot Point]\nNovel: Rebecca\nCharacter: Person 0\nTitle: Title 0\n"
        "Setup: There were 0 ships in Rebecca."
    )
    assert chinese["question"] == "[前传剧情设定]\n小说：亮剑\n人物：人物0\n标题：标题0\n设定：亮剑里有0条船。"
    assert (english["options"], chinese["options"]) == (["Consistent", "Contradict"], ["一致", "矛盾"])
    assert set(built.probes["form"]) == {"label"}
    for row in built.gold.join(built.probes, on="probe_id").iter_rows(named=True):
        assert row["answers"] == [row["options"][row["slice_label"] == "contradict"]]


def test_the_subset_is_asked_where_the_others_are_training_pairs(tmp_path: Path, build: Build) -> None:
    titles = [book["title"] for book in table_2().values()]
    data = {"release": official(tmp_path / "release"), "books": shelf(tmp_path / "books", titles)}
    card, built = build(data, evaluate="subset")
    assert (card.probes, card.pairs) == (100, 695)
    assert card.slices["study"] == {"human_study": 100}
    assert not {pair.question for pair in built.pairs} & set(built.probes["question"])
    assert {pair.answer for pair in built.pairs} == {"Consistent", "Contradict", "一致", "矛盾"}
    full, _ = build(data)
    assert (full.probes, full.pairs, full.slices["study"]) == (795, 0, {"human_study": 100, "training": 695})


def test_a_pair_with_the_setup_of_an_asked_item_is_left_out(tmp_path: Path, build: Build) -> None:
    row = {
        "book_name": "Rebecca",
        "char": "Mrs. Danvers",
        "subject": "A",
        "content": "She came.",
        "label": "consistent",
    }
    rows = [row, row | {"subject": "B", "content": "she CAME!"}, row | {"content": "He went.", "label": "contradict"}]
    data = {"release": put(tmp_path / "r", rows, {"subset": [0]}), "books": shelf(tmp_path / "b", ["Rebecca"])}
    card, built = build(data, evaluate="subset")
    assert [pair.answer for pair in built.pairs] == ["Contradict"]
    assert card.statistics["left out: pair repeats an asked setup"] == 1


def test_an_example_that_is_asked_stops_the_build_whoever_it_is_about(tmp_path: Path, build: Build) -> None:
    shown = yaml.safe_load(prelude.EXAMPLES.read_text(encoding="utf-8"))[3]["setup"]
    rows = [{"book_name": "Rebecca", "char": "Favell", "content": f" {shown.upper()}", "label": "consistent"}]
    data = {"release": put(tmp_path / "r", rows), "books": shelf(tmp_path / "b", ["Rebecca"])}
    with pytest.raises(UpkeepError, match="an example is asked"):
        build(data)


def test_runs_without_context_can_have_the_items_of_missing_books(tmp_path: Path, build: Build) -> None:
    data = {"release": official(tmp_path / "release"), "books": shelf(tmp_path / "books", ["Rebecca"])}
    card, built = build(data, missing_books="name_only")
    assert card.probes == 795
    assert card.slices["book_text"] == {"at_hand": 82, "named_only": 713}
    assert built.documents.filter(stream="drawing_sword")["text"].to_list() == ["亮剑"]
    assert any("Rebecca" not in note and "drawing_sword" in note for note in card.notes)
    alone, _ = build({"release": data["release"]}, missing_books="name_only")
    assert alone.slices["book_text"] == {"named_only": 795}
    with pytest.raises(UpkeepError, match=r"prelude\.books: PATH"):
        build({"release": data["release"]})


def test_the_examples_are_five_a_language_in_the_papers_order_of_rules(tmp_path: Path, build: Build) -> None:
    data = {"release": official(tmp_path / "release"), "books": shelf(tmp_path / "books", ["Rebecca"])}
    _, built = build(data)
    verdicts = [example.answer.rpartition("Answer: ")[2] for example in built.examples]
    assert verdicts == ["Contradict"] * 3 + ["Consistent"] * 2 + ["矛盾"] * 3 + ["一致"] * 2
    assert [e.answer.split("Think: ")[0] for e in built.examples] == ["[Output]\n"] * 5 + ["[输出]\n"] * 5
    heads = [example.question.splitlines()[0] for example in built.examples]
    assert heads == ["[Prequel Plot Point]"] * 5 + ["[前传剧情设定]"] * 5
    named = [[line.partition(": ")[2] for line in e.question.splitlines()[1:3]] for e in built.examples[:5]]
    assert named == [
        ["The Chronicles of Narnia", "Eustace Scrubb"],
        ["The Chronicles of Narnia", "Eustace Scrubb"],
        ["Romance of the Three Kingdoms", "Xiahou Yuan"],
        ["Harry Potter", "Sirius Black"],
        ["Journey to the West", "Yellow Lion Demon"],
    ]
    people = [example.question.splitlines()[2] for example in built.examples[5:]]
    assert people == [f"人物：{name}" for name in ("金角大王与银角大王", "黄狮精", "夏侯渊", "徐庶", "黄狮精")]


def test_a_split_may_be_in_shards_and_the_full_one_may_be_called_either_way(tmp_path: Path, build: Build) -> None:
    rows = items()[:60]
    frame = pl.DataFrame(rows).drop("public")
    (tmp_path / "r" / "data").mkdir(parents=True)
    frame[:30].write_parquet(tmp_path / "r/data/full-00000-of-00002.parquet")
    frame[30:].write_parquet(tmp_path / "r/data/full-00001-of-00002.parquet")
    titles = [book["title"] for book in table_2().values()]
    card, _ = build({"release": tmp_path / "r", "books": shelf(tmp_path / "b", titles)})
    assert card.probes == 60
    assert card.slices["study"] == {"study_unknown": 60}
    assert card.slices["public"] == {"not_public": 6, "public": 54}  # by the list of books


@pytest.mark.parametrize(
    ("label", "kind", "wanted"),
    [
        ("contradict", "", ("contradict", "kind_unknown")),
        ("Contradict", "Local", ("contradict", "contradict_local")),
        ("contradict_global_II", None, ("contradict", "contradict_global")),
        ("inconsistent", None, ("contradict", "kind_unknown")),
        ("不一致", None, ("contradict", "kind_unknown")),
        ("矛盾", "global", ("contradict", "contradict_global")),
        ("一致", None, ("consistent", "kind_unknown")),
        ("CONSISTENT", "core", ("consistent", "consistent_core")),
        ("consistent", "irrelevant", ("consistent", "consistent_irrelevant")),
        ("0", None, ("consistent", "kind_unknown")),
        ("1", "typ_l", ("contradict", "contradict_local")),
        ("2", None, None),
        ("", None, None),
        (None, "core", None),
        ("consistent", "local", None),
        ("contradict", "core", None),
    ],
)
def test_labels_are_read_as_they_may_be_written(
    tmp_path: Path, label: str | None, kind: str | None, wanted: tuple[str, str] | None
) -> None:
    base = {"book_name": "B", "char": "C"}
    rows = [base | {"content": "It was so.", "label": label, "type": kind}]
    files = release.split_files(put(tmp_path / "r", [*rows, base | {"content": "x", "label": "一致", "type": "core"}]))
    faults = Faults({"broken_record": "skip"}, Path("dataset.yaml"))
    entries = release.read(files, {}, {"0": "consistent", "1": "contradict", "typ_l": "local"}, faults)
    assert len(entries) == 1 + (wanted is not None)
    if wanted is None:
        assert faults.counts == {"broken_record": 1} and "row 1" in faults.places["broken_record"][0]
    else:
        slices = prelude._slices(entries[0], library.load())
        assert (slices["label"], slices["kind"]) == wanted


def test_columns_of_other_names_are_named_in_the_options(tmp_path: Path, build: Build) -> None:
    rows = [{"b": "Rebecca", "who": "Favell", "caption": None, "story": "He came.", "label": "consistent"}]
    data = {"release": put(tmp_path / "r", rows), "books": shelf(tmp_path / "b", ["Rebecca"])}
    with pytest.raises(UpkeepError, match=r"no column with the book(.|\n)*found: +b, who(.|\n)*options\.columns"):
        build(data)
    _, built = build(data, columns={"book": "b", "character": "who", "setup": "story"})
    assert built.probes["question"][0] == "[Prequel Plot Point]\nNovel: Rebecca\nCharacter: Favell\nSetup: He came."
    with pytest.raises(UpkeepError, match="no column with the kind"):
        build(data, columns={"book": "b", "character": "who", "setup": "story", "kind": "nowhere"})


# ---------------------------------------------------------------- what is wrong with inputs


def faulty() -> list[dict[str, Any]]:
    row = {"book_name": "Rebecca", "char": "Favell", "subject": "T", "content": "He came.", "label": "consistent"}
    return [
        row,
        row | {"content": "HE came"},
        row | {"content": "  "},
        row | {"content": "x" * 20_001},
        row | {"content": "No label.", "label": None},
        row | {"content": "No book.", "book_name": None},
        row | {"content": "Nobody.", "char": ""},
        row | {"content": "He went.", "label": "contradict"},
    ]


def test_broken_rows_are_left_out_named_and_counted(tmp_path: Path, build: Build) -> None:
    data = {"release": put(tmp_path / "r", faulty()), "books": shelf(tmp_path / "b", ["Rebecca"])}
    card, _ = build(data)
    assert card.faults == {"broken_record": 3, "duplicate_id": 1, "empty_text": 1, "too_long": 1}
    assert card.probes == 2
    for kind, row in (("broken_record", 5), ("duplicate_id", 2), ("empty_text", 3), ("too_long", 4)):
        assert any(f"({kind})" in note and f"all.parquet, row {row}:" in note for note in card.notes)


@pytest.mark.parametrize(
    ("kind", "row"), [("duplicate_id", 2), ("empty_text", 3), ("too_long", 4), ("broken_record", 5)]
)
def test_where_a_kind_is_refused_the_build_stops_at_the_row(
    tmp_path: Path, build: Build, kind: FaultKind, row: int
) -> None:
    kinds: list[FaultKind] = ["broken_record", "duplicate_id", "empty_text", "too_long"]
    faults = {other: "skip" for other in kinds if other != kind}
    data = {"release": put(tmp_path / "r", faulty()), "books": shelf(tmp_path / "b", ["Rebecca"])}
    with pytest.raises(UpkeepError, match=rf"all\.parquet, row {row}\b"):
        build(data, faults)


def test_splits_of_two_releases_are_refused(tmp_path: Path, build: Build) -> None:
    data = {"release": official(tmp_path / "r"), "books": shelf(tmp_path / "b", ["Rebecca"])}
    frame = pl.read_parquet(tmp_path / "r/subset.parquet")
    frame.with_columns(content=pl.lit("Something else.")).write_parquet(tmp_path / "r/subset.parquet")
    with pytest.raises(UpkeepError, match=r"subset\.parquet, row 1: .* that the full split lacks"):
        build(data)


def test_a_release_that_is_none_is_refused(tmp_path: Path, build: Build) -> None:
    books = shelf(tmp_path / "b", ["Rebecca"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UpkeepError, match="no full split"):
        build({"release": tmp_path / "empty", "books": books})
    (tmp_path / "empty/all.parquet").write_bytes(b"not a table")
    with pytest.raises(UpkeepError, match=r"all\.parquet: not readable as Parquet"):
        build({"release": tmp_path / "empty", "books": books})
    with pytest.raises(UpkeepError, match="no human-study subset"):
        build({"release": put(tmp_path / "r", items()), "books": books}, evaluate="subset")
    with pytest.raises(UpkeepError, match="no item is left to ask"):
        build({"release": tmp_path / "r", "books": shelf(tmp_path / "other", ["Middlemarch"])})
