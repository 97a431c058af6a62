"""PRELUDE: books are matched by name or by a list, and a passage is found in the chunks that hold it."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from prelude import library
from prelude_releases import Build, build, official, shelf, table_2
from upkeep.building import tokens
from upkeep.building.reading import Faults
from upkeep.errors import UpkeepError

__all__ = ["build"]


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
