"""PRELUDE: a release is read as it is, nothing is both asked and shown, and the small world can be judged."""

from __future__ import annotations

import csv
import gzip
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest
import yaml

import prelude
from conftest import ROOT, put_dataset, spec_of
from prelude import languages, library, release, synthetic
from upkeep.building import leaks, store, tokens
from upkeep.building.build import build_dataset, describe
from upkeep.building.names import Names
from upkeep.building.reading import Faults
from upkeep.building.store import validate
from upkeep.catalog import Catalog
from upkeep.contract import DatasetCard, FaultKind
from upkeep.errors import UpkeepError

PUBLISHED = ROOT / "papers" / "prelude" / "reference"
KINDS = ["consistent_core"] * 270 + ["consistent_irrelevant"] * 164 + ["contradict_local"] * 94
KINDS += ["contradict_global"] * 267


def printed(table: str) -> list[dict[str, str]]:
    with (PUBLISHED / f"{table}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def table_2() -> dict[str, dict[str, Any]]:
    """Book -> what Table 2 prints of it, with the title that the release is taken to use."""
    known = {book["id"]: book["titles"] for book in yaml.safe_load(library.BOOKS.read_text(encoding="utf-8"))}
    found: dict[str, dict[str, Any]] = {}
    for line in printed("table_2"):
        settings = dict(part.split("=") for part in line["setting"].split(";") if part)
        if settings:
            titles = known[line["subset"]]
            book = found.setdefault(line["subset"], {**settings, "title": titles[settings["language"] == "chinese"]})
            book[line["metric"]] = int(line["value"])
    return found


def items() -> list[dict[str, Any]]:
    """795 invented items with the books, characters and labels of Tables 2 and 3."""
    kinds = list(KINDS)
    Random(1).shuffle(kinds)
    rows: list[dict[str, Any]] = []
    for book in table_2().values():
        for n in range(book["instances"]):
            label, kind = kinds[len(rows)].split("_")
            english = book["language"] == "english"
            rows.append(
                {
                    "book_name": book["title"],
                    "char": f"Person {n % book['characters']}" if english else f"人物{n % book['characters']}",
                    "subject": f"Title {n}" if english else f"标题{n}",
                    "content": f"There were {n} ships in {book['title']}."
                    if english
                    else f"{book['title']}里有{n}条船。",
                    "label": label,
                    "label_type": kind,
                    "generator": "r1" if n % 2 else "gpt-4o",
                    "public": book["public"] == "yes",
                }
            )
    return rows


def put(folder: Path, rows: Sequence[Mapping[str, Any]], splits: Mapping[str, Sequence[int]] | None = None) -> Path:
    """A release of these rows; `splits` are places of rows."""
    folder.mkdir(parents=True)
    frame = pl.DataFrame(rows).drop("public", strict=False)
    frame.write_parquet(folder / "all.parquet")
    for name, places in (splits or {}).items():
        frame[list(places)].write_parquet(folder / f"{name}.parquet")
    return folder


def official(folder: Path) -> Path:
    rows = items()
    subset = Random(2).sample(range(len(rows)), 100)
    return put(folder, rows, {"subset": subset, "public": [n for n, row in enumerate(rows) if row["public"]]})


def shelf(folder: Path, titles: Sequence[str]) -> Path:
    """A folder with a short text for each title."""
    folder.mkdir()
    for title in titles:
        (folder / f"{title}.txt").write_text(f"This is {title}. " + "A ship came in and left again. " * 200)
    return folder


def catalog(folder: Path, data: dict[str, Path], faults: dict[FaultKind, str] | None = None, **options: Any) -> Catalog:
    """A repository with the dataset `prelude` under other options."""
    spec = spec_of("prelude")
    spec["options"] |= options
    spec["faults"] = spec["faults"] if faults is None else faults
    put_dataset(folder, "prelude", spec)
    (folder / "config").mkdir()
    config = {"data": {f"prelude.{name}": str(path) for name, path in data.items()}}
    (folder / "config/config.yaml").write_text(yaml.safe_dump(config))
    (folder / "papers").symlink_to(ROOT / "papers")
    return Catalog(folder)


Build = Callable[..., tuple[DatasetCard, store.Dataset]]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Builds from a release and books, and checks what was built."""
    count = iter(range(100))

    def built(
        data: dict[str, Path], faults: dict[FaultKind, str] | None = None, **options: Any
    ) -> tuple[DatasetCard, store.Dataset]:
        repository = tmp_path / f"repository{next(count)}"
        build_dataset(catalog(repository, data, faults, **options), "prelude", repository / "built")
        return validate(repository / "built"), store.load(repository / "built")

    return built


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


# ---------------------------------------------------------------- books


def test_books_are_matched_by_name_or_by_a_list_beside_them(tmp_path: Path) -> None:
    books = [library.load().book(name) for name in ("rebecca", "亮剑", "Pinball, 1973", "The Redeemer")]
    folder = tmp_path / "books"
    folder.mkdir()
    (folder / "REBECCA.txt").write_text("r")
    (folder / "pinball 1973.txt.gz").write_bytes(gzip.compress(b"p"))
    for name in ("one.txt", "two.txt", "Emma.txt", "notes.md"):
        (folder / name).write_text("x")
    (folder / library.LISTED).write_text("《亮剑》: [one.txt, two.txt]\n", encoding="utf-8")
    found, strangers = library.files_of(folder, books)
    assert {book: [path.name for path in paths] for book, paths in found.items()} == {
        "drawing_sword": ["one.txt", "two.txt"],
        "pinball_1973": ["pinball 1973.txt.gz"],
        "rebecca": ["REBECCA.txt"],
    }
    assert [path.name for path in strangers] == ["Emma.txt"]
    for wrong, problem in (("Emma: one.txt", "has not"), ("rebecca: no.txt", "not found"), ("- x", "Expected")):
        (folder / library.LISTED).write_text(wrong)
        with pytest.raises(UpkeepError, match=problem):
            library.files_of(folder, books)
    (folder / library.LISTED).unlink()
    (folder / "rebecca.txt").write_text("again")
    with pytest.raises(UpkeepError, match="two files for 'rebecca'"):
        library.files_of(folder, books)


def test_every_title_names_one_book_and_the_public_ones_are_the_papers() -> None:
    shelf = library.load()
    for book_id, book in table_2().items():
        for name in (book_id, book["title"], f"《{book['title']}》", book["title"].upper()):
            assert shelf.book(name).id == book_id
        assert shelf.book(book_id).public is (book["public"] == "yes")
    assert shelf.book("Great Expectations").id == "great_expectations"
    assert shelf.book("红楼梦").id == "红楼梦"


def test_a_passage_is_found_in_the_chunks_that_hold_it(tmp_path: Path) -> None:
    sentences = [f"In the year {n} the {n}th ship came into the harbour of Tandel." for n in range(300)]
    chinese = [f"第{n}年，第{n}条船进了港。" for n in range(300)]
    (tmp_path / "a.txt").write_text("\ufeff" + "\r\n".join(sentences), encoding="utf-8")
    (tmp_path / "b.txt").write_text("".join(chinese), encoding="utf-8")
    faults = Faults({}, Path("dataset.yaml"))
    texts = library.read({n: [tmp_path / f"{n}.txt"] for n in "ab"}, 50, tokens.load(), faults)
    for name, passages in (("a", sentences), ("b", chinese)):
        text = texts[name]
        assert len(text.chunks) > 30
        for passage in passages:
            places = text.holding(passage)
            assert places and places == list(range(places[0], places[-1] + 1))
            gap = "" if name == "b" else " "
            assert passage.replace(" ", "") in gap.join(text.chunks[p] for p in places).replace(" ", "")
            assert len(places) == 1 or passage not in text.chunks[places[0]]
    assert texts["a"].holding("no such thing") == [] == texts["a"].holding("")


def test_a_book_in_another_encoding_stops_the_build_or_is_not_at_hand(tmp_path: Path, build: Build) -> None:
    data = {"release": official(tmp_path / "r"), "books": shelf(tmp_path / "b", ["Rebecca"])}
    (tmp_path / "b/亮剑.txt").write_bytes("第一章 李云龙".encode("gb18030"))
    with pytest.raises(UpkeepError, match=r"亮剑\.txt, byte 0: not UTF-8"):
        build(data)
    card, _ = build(data, {"encoding": "skip"})
    assert card.faults == {"encoding": 1} and card.slices["book"] == {"rebecca": 82}


def test_licence_texts_are_no_part_of_a_book(tmp_path: Path, build: Build) -> None:
    data = {"release": official(tmp_path / "r"), "books": shelf(tmp_path / "b", [])}
    marks = [f"\n*** {place} OF THE PROJECT GUTENBERG EBOOK X ***\n" for place in ("START", "END")]
    text = f"Legal{marks[0]}The story.{marks[1]}More"
    (tmp_path / "b/The Count of Monte Cristo.txt").write_text(text)
    _, built = build(data)
    assert built.documents["text"].to_list() == ["The story."]


# ---------------------------------------------------------------- the small world


@pytest.fixture(scope="module")
def mini(tmp_path_factory: pytest.TempPathFactory) -> store.Dataset:
    folder = tmp_path_factory.mktemp("mini") / "built"
    build_dataset(Catalog(ROOT), "prelude_mini", folder)
    validate(folder)
    return store.load(folder)


def test_the_small_one_has_every_slice_and_even_labels(mini: store.Dataset) -> None:
    card = mini.card
    assert card.probes < 300 and card.pairs > 50
    assert mini.documents["tokens"].max() <= 128
    assert mini.documents.group_by("stream").len()["len"].max() <= 60
    for name, values in {
        "kind": {"consistent_core", "consistent_irrelevant", "contradict_local", "contradict_global"},
        "language": {"english", "chinese"},
        "public": {"public", "not_public"},
        "generator": {"r1_generated", "gpt_generated"},
    }.items():
        assert set(card.slices[name]) == values
    assert max(card.slices["label"].values()) <= 0.6 * card.probes


def test_what_decides_an_item_of_the_small_one_stands_in_its_evidence(mini: store.Dataset) -> None:
    texts = dict(mini.documents.select("document_id", "text").iter_rows())
    passages = {"consistent_core": (1, 2), "consistent_irrelevant": (0, 0), "contradict_local": (1, 1)}
    for row in mini.gold.iter_rows(named=True):
        least, most = passages.get(row["slice_kind"], (2, 2))
        assert least <= len(row["context"]) <= most
        held = "".join(texts[place] for place in row["evidence"])
        for sentence in row["context"]:
            assert "".join(sentence.split()) in "".join(held.split())


def pattern(template: str, known: Mapping[str, str]) -> re.Pattern[str]:
    """A wording of the grammar as a pattern: what is not `known` is captured by its letter."""
    parts = re.split(r"\{(\w)\}", template)
    named = [re.escape(known[p]) if p in known else f"(?P<{p}>[^.。\n]+?)" for p in parts[1::2]]
    return re.compile("".join(itertools.chain(*itertools.zip_longest(map(re.escape, parts[::2]), named, fillvalue=""))))


def judged(question: str, book: str) -> str:
    """The label of an item by a reader of its book who knows the grammar, but not how the item was made."""
    head, *lines = question.splitlines()
    language = languages.CHINESE if head == "[前传剧情设定]" else languages.ENGLISH
    _, character, title, setup = (re.split("：|: ", line, maxsplit=1)[1] for line in lines)
    topic = next(topic for topic in language.topics if topic.title == title)
    said = next(
        match.groupdict()
        for wording in topic.setups
        if (match := pattern(wording, {"a": character}).fullmatch(setup)) is not None
    )
    if topic.denied:
        denied = pattern(topic.told[0], {"a": character, **said}).search(book)
        return "consistent" if denied is None else "contradict"
    known = {"a": character} | ({"w": said["w"]} if "{w}" in topic.told[0] else {})
    for sentence in topic.told:
        match = pattern(sentence, known).search(book)
        assert match is not None, (sentence, known)
        known |= match.groupdict()
    return "consistent" if all(known[name] == value for name, value in said.items()) else "contradict"


def test_a_reader_of_the_whole_book_can_judge_every_item_of_the_small_one(mini: store.Dataset) -> None:
    for probe, gold in zip(mini.probes.iter_rows(named=True), mini.gold.iter_rows(named=True), strict=True):
        chunks = mini.documents.filter(stream=probe["stream"])["text"]
        joint = " " if gold["slice_language"] == "english" else ""
        book = joint.join(joint.join(chunks).split())
        assert judged(probe["question"], book) == gold["slice_label"], probe["question"]


def test_no_wording_of_the_small_one_gives_its_label_away(mini: store.Dataset) -> None:
    asked = zip(mini.probes["question"], mini.gold["slice_label"], mini.gold["slice_language"], strict=True)
    by_title: dict[tuple[str, str], list[str]] = {}
    for question, label, language in asked:
        by_title.setdefault((language, question.splitlines()[3]), []).append(label)
    for labels in by_title.values():
        assert len(labels) < 6 or len(set(labels)) == 2


def test_examples_and_pairs_of_the_small_one_are_about_nothing_that_is_asked(mini: store.Dataset) -> None:
    asked = {leaks.key(question.splitlines()[-1]) for question in mini.probes["question"]}
    shown = [leaks.key(pair.question.splitlines()[-1]) for pair in [*mini.pairs, *mini.examples]]
    assert not asked & set(shown)
    novels = {question.splitlines()[1] for question in mini.probes["question"]}
    assert not novels & {example.question.splitlines()[1] for example in mini.examples}


def test_the_worlds_of_training_and_of_testing_share_no_name() -> None:
    names: dict[bool, set[str]] = {}
    for held_out in (True, False):
        rng = Random(5)
        tales = synthetic.write(rng, Names(rng, held_out), languages.ChineseNames(rng, held_out), synthetic.Sizes())
        words = {item.character for tale in tales for item in tale.items} | {tale.title for tale in tales}
        names[held_out] = {word for name in words for word in name.split()}
    assert len(names[True]) > 30 and not names[True] & names[False]


def test_a_world_is_the_same_for_the_same_seed_alone(tmp_path: Path) -> None:
    def made(name: str, seed: int) -> dict[str, bytes]:
        folder = tmp_path / name
        folder.mkdir()
        synthetic.make(folder, seed, synthetic.Sizes(1, 1, 2, 10))
        return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*.txt"))}

    first = made("a", 1)
    assert len(first) == 2 and first == made("b", 1) != made("c", 2)
