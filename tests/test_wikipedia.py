"""Wikipedia's pages are read in every form, faults by name, and distractors depend on titles and seed alone."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from evowiki.wikipedia import Wikipedia, lowest, strip
from upkeep.errors import UpkeepError
from wikidata_dumps import noted, strict, write, xml

# ---------------------------------------------------------------- pages


FORMS = [
    *("a.jsonl", "a.json.gz", "a.ndjson.bz2", "a.parquet", "pages-articles.xml"),
    *("pages-articles.xml.bz2", "pages-articles1.xml-p1p41242.bz2"),
]


@pytest.mark.parametrize("form", FORMS)
def test_the_wanted_pages_come_in_the_files_order(tmp_path: Path, form: str) -> None:
    pages = Wikipedia(write(tmp_path, form), strict())
    wanted = ["Über", "No Such Page", "Ada Lovelace"]
    assert list(pages.read(wanted)) == [("Ada Lovelace", "She wrote notes."), ("Über", "Ein Wort.")]
    assert list(pages.read([])) == []


def test_a_folder_of_files_is_read_by_name(tmp_path: Path) -> None:
    write(tmp_path, "pages-articles2.xml-p2p3.bz2", {"B": "two"})
    write(tmp_path, "pages-articles1.xml-p1p1.bz2", {"A": "one"})
    (tmp_path / "md5sums.txt").write_text("not a form")
    assert list(Wikipedia(tmp_path, strict()).read(["A", "B"])) == [("A", "one"), ("B", "two")]


def test_nothing_of_any_form_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    for path in (tmp_path, tmp_path / "a.txt", tmp_path / "missing"):
        with pytest.raises(UpkeepError, match="no articles"):
            Wikipedia(path, strict())


def test_redirects_and_other_namespaces_are_no_articles(tmp_path: Path) -> None:
    path = tmp_path / "w.xml"
    path.write_text(
        xml([
            ("Ada", "#REDIRECT [[Ada Lovelace]]", '<ns>0</ns><redirect title="Ada Lovelace" />'),
            ("Talk:Ada Lovelace", "talk", "<ns>1</ns>"),
            ("Ada Lovelace", "notes", "<ns>0</ns>"),
        ])
    )  # fmt: skip
    assert list(Wikipedia(path, strict()).read(["Ada", "Talk:Ada Lovelace", "Ada Lovelace"])) == [
        ("Ada Lovelace", "notes")
    ]


def test_markup_becomes_the_text_that_a_reader_sees() -> None:
    markup = (
        "{{Infobox person|name=Ada}}\n'''Ada''' (10 [[December]] 1815) was an [[England|English]] ''writer''."
        "<ref>A [[book]] {{cite}}</ref> She wrote.<ref name=x />\n[[File:A.jpg|thumb|A [[portrait]]]]\n"
        '{| class="wikitable"\n! a !! b\n|-\n| 1 || 2\n|}\n\n\n\n== Life ==\n* one\n* two<!-- hidden -->'
        "\n[[Category:Writers]]"
    )
    assert strip(markup) == "Ada (10 December 1815) was an English writer. She wrote.\n\nLife\none\ntwo"
    for odd in ("", "[[", "{{{", "<ref>", "'''''", "{|", "[[File:", "== ==", "\x00"):
        assert isinstance(strip(odd), str)


FAULTY = {
    "broken_record": b'{"title": "Rain"\n',
    "encoding": b'{"title": "Rain", "text": "\xff\xfe"}\n',
    "duplicate_id": b'{"title": "Lamp", "text": "again"}\n',
    "empty_text": b'{"title": "Rain", "text": " \\n"}\n',
}


@pytest.mark.parametrize("kind", FAULTY)
def test_a_fault_of_a_page_is_named_once_however_often_it_is_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"title": "Lamp", "text": "shines"}\n' + FAULTY[kind] + b'{"title": "End", "text": "."}\n')
    faults = noted()
    pages = Wikipedia(path, faults)
    for _ in range(2):
        assert list(pages.read(["Lamp", "Rain", "End"])) == [("Lamp", "shines"), ("End", ".")]
    assert faults.counts == {kind: 1}
    assert "line 2" in faults.notes()[0]
    with pytest.raises(UpkeepError, match="line 2"):
        list(Wikipedia(path, strict()).read(["Lamp", "Rain", "End"]))


def test_a_row_without_text_is_a_broken_record(tmp_path: Path) -> None:
    pl.DataFrame({"title": ["A", None, "C"], "text": ["a", "b", None]}).write_parquet(tmp_path / "a.parquet")
    faults = noted()
    assert list(Wikipedia(tmp_path / "a.parquet", faults).read(["A", "C"])) == [("A", "a")]
    assert faults.counts == {"broken_record": 2}


@pytest.mark.parametrize("form", ["a.xml", "a.xml.bz2", "a.jsonl.gz", "a.parquet"])
def test_damaged_files_of_pages_are_refused_by_name(tmp_path: Path, form: str) -> None:
    many = {f"Title {n}": f"text {n * 7919 % 10007}" for n in range(500)}
    path = write(tmp_path, form, many)
    path.write_bytes(path.read_bytes()[: -path.stat().st_size // 3])
    with pytest.raises(UpkeepError, match=form):
        list(Wikipedia(path, noted()).read(["Title 1"]))


def test_parquet_without_the_columns_is_refused(tmp_path: Path) -> None:
    pl.DataFrame({"name": ["A"]}).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(UpkeepError, match="title, text"):
        list(Wikipedia(tmp_path / "a.parquet", strict()).read(["A"]))


# ---------------------------------------------------------------- distractors


def test_a_sample_depends_on_titles_and_seed_alone() -> None:
    titles = [f"T{n}" for n in range(200)]
    drawn = lowest(titles, 50, 7)
    assert len(drawn) == 50
    assert drawn == lowest(reversed(titles * 3), 50, 7)
    assert drawn != lowest(titles, 50, 8)
    assert lowest(titles, 10, 7) < drawn, "a smaller sample is part of a larger one"
    assert lowest(titles, 500, 7) == frozenset(titles)
    assert lowest(titles, 0, 7) == frozenset()
    left = sorted(drawn)[:20]
    assert not lowest(titles, 50, 7, left) & set(left)
    assert drawn - set(left) < lowest(titles, 50, 7, left)


def test_a_sample_is_drawn_evenly() -> None:
    """Over 300 seeds a title of 10 is among 3 drawn in 30% of them, give or take four standard deviations."""
    titles = [f"T{n}" for n in range(10)]
    counts = dict.fromkeys(titles, 0)
    for seed in range(300):
        for title in lowest(titles, 3, seed):
            counts[title] += 1
    assert all(58 <= count <= 122 for count in counts.values())


@pytest.mark.parametrize("form", ["a.jsonl", "a.parquet", "a.xml.bz2"])
def test_distractors_are_the_same_in_every_form_and_never_golden(tmp_path: Path, form: str) -> None:
    many = {f"Title {n}": f"text {n}" for n in range(60)} | {"Empty": " "}
    path = write(tmp_path, form, many)
    golden = [f"Title {n}" for n in range(20)]
    found = list(Wikipedia(path, strict()).sample(15, 3, golden))
    assert {title for title, _ in found} == lowest(many.keys() - {"Empty"}, 15, 3, golden)
    assert all(many[title] == text for title, text in found)
    assert [t for t, _ in found] == [t for t in many if t in dict(found)]
