"""What is exported opens in R, pandas, polars and spreadsheets as what it is: whatever a model has said."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree
from zipfile import ZipFile

import msgspec
import polars as pl
import pytest

from suite_fakes import PLAIN, called, make
from upkeep.catalog import Catalog
from upkeep.contract import Manifest
from upkeep.integrity import fingerprint, read_sealed, write_sealed
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.operations.export import sheet
from upkeep.operations.export.rows import TEXTS, Exported
from upkeep.published import predictions

SAID = [
    '=HYPERLINK("http://nowhere", "x")', "+1+1", "-2-3", "@SUM(A1)", "\t=1", "1-2", "2024-05-01", "3/4", "007", "1e5",
    "NA", "null", "None", "NaN", "TRUE", "", " ", "a,b;c", 'say "so"', "'tis", "# no comment", "two\nlines",
    "cr\rlf\r\nend", "nul \x00 and \x1b[31m", "\ufeffmark", "ünï 😀 \u2028", "_x0041_", "<b>&amp;</b>",
    "]]>", "long " * 8000,
]  # fmt: skip
"""Answers that a reader of another format could take for something else."""
RESERVED = {
    *("if", "else", "repeat", "while", "function", "for", "next", "break", "TRUE", "FALSE", "NULL", "Inf", "NaN", "NA"),
    *("in",),
}
"""Words of R, which are no names."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "root"
    make(root, "text")
    catalog = Catalog(root)
    folder = Layout(catalog.results).cell(Cell.parse(PLAIN))
    said = [
        msgspec.structs.replace(one, response=SAID[n % len(SAID)], reasoning=f"A: {SAID[n % len(SAID)]}")
        for n, one in enumerate(predictions(catalog, Cell.parse(PLAIN)))
    ]
    assert len(said) >= len(SAID)
    (folder / "predictions.jsonl").write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in said))
    manifest = read_sealed(folder / "manifest.json", Manifest, "")
    files = manifest.files | {"predictions.jsonl": fingerprint(folder / "predictions.jsonl")}
    write_sealed(folder / "manifest.json", msgspec.structs.replace(manifest, files=files))
    for form in ("csv", "xlsx"):
        assert called(root, "export", str(root / form), "--as", form) == (0, "")
    return root


@pytest.fixture(scope="module")
def truth(root: Path) -> dict[str, pl.DataFrame]:
    """What is exported, as the suite has it."""
    exported = Exported.of(Catalog(root), "mini")
    rows = pl.concat([rows for _, rows in exported.prediction_rows()])
    assert set(SAID) <= set(rows["response"])
    return {"predictions": rows, "scores": exported.score_rows()}


def as_csv(frame: pl.DataFrame) -> list[list[str | None]]:
    """The values as a CSV file has them; None where it has nothing."""

    def told(value: object) -> str | None:
        if isinstance(value, list):
            return msgspec.json.encode(value).decode()
        if isinstance(value, bool):
            return str(value).upper()
        return None if value is None else str(value).replace("\x00", "\ufffd")

    return [[told(value) for value in row] for row in frame.iter_rows()]


# ---------------------------------------------------------------- CSV


def read_as_r(content: str) -> list[list[str]]:
    """As R's `read.csv` reads: a quote counts at a field's start alone, and is doubled within; no comments."""
    rows: list[list[str]] = [[]]
    at = 0
    while at < len(content):
        if content[at] == '"':
            end = at + 1
            while not (content[end] == '"' and content[end + 1 : end + 2] != '"'):
                end += 2 if content[end] == '"' else 1
            field, at = content[at + 1 : end].replace('""', '"'), end + 1
        else:
            end = at
            while content[end] not in ",\n":
                assert content[end] != '"', "R would take it for the beginning of a quoted part"
                end += 1
            field, at = content[at:end], end
        rows[-1].append(field)
        assert content[at] in ",\n"
        if content[at] == "\n" and at + 1 < len(content):
            rows.append([])
        at += 1
        if content[at - 1] == "," and content[at] in ",\n":
            continue
    return rows


FILES = ["csv/predictions.csv", "csv/scores.csv", "results/tables/mini/toy/table_1.csv",
         "results/tables/mini/toy/other_scores.csv", "results/tables/mini/toy/claims.csv"]  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_csv_file_is_what_r_expects_of_one(root: Path, name: str) -> None:
    if name.startswith("results"):
        assert called(root, "report")[0] == 0
    content = (root / name).read_bytes()
    assert not content.startswith(b"\xef\xbb\xbf") and b"\x00" not in content and content.endswith(b"\n")
    text = content.decode("utf-8")
    rows = read_as_r(text)
    assert rows == list(csv.reader(io.StringIO(text, newline="")))
    head, *rest = rows
    assert len(set(head)) == len(head) and {len(row) for row in rest} <= {len(head)}
    for column in head:
        assert re.fullmatch(r"([A-Za-z]|\.(?!\d))[\w.]*", column, re.ASCII) and column not in RESERVED, column
    assert not re.search(r"\r(?!\n)|\r\n", re.sub(r'"(?:[^"]|"")*"', "", text)), "lines end in LF"


@pytest.mark.parametrize("name", ["predictions", "scores"])
def test_numbers_have_a_point_booleans_are_those_of_r_and_what_is_missing_is_empty(
    root: Path, truth: dict[str, pl.DataFrame], name: str
) -> None:
    _, *rows = read_as_r((root / f"csv/{name}.csv").read_bytes().decode())
    frame = truth[name]
    for (column, kind), values in zip(frame.schema.items(), zip(*rows, strict=True), strict=True):
        if kind.is_numeric():
            assert all(re.fullmatch(r"-?\d+(\.\d+)?(e[+-]?\d+)?|", value) for value in values), column
            told = [None if value == "" else float(value) for value in values]
            assert told == [None if value is None else float(value) for value in frame[column]], column
        elif kind == pl.Boolean:
            assert set(values) <= {"TRUE", "FALSE", ""}, f"{column}: R takes `true` for a text"


@pytest.mark.parametrize("name", ["predictions", "scores"])
def test_pandas_and_polars_read_every_text_to_the_letter(root: Path, truth: dict[str, pl.DataFrame], name: str) -> None:
    path, wanted = root / f"csv/{name}.csv", as_csv(truth[name])
    read = pl.read_csv(path, infer_schema=False)
    texts = [n for n, kind in enumerate(truth[name].dtypes) if kind in (pl.String, TEXTS)]
    expected = [[row[n] for n in texts] for row in wanted]
    assert [[row[n] for n in texts] for row in read.rows()] == expected
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(path, keep_default_na=False, na_values="", dtype=str, lineterminator="\n")
    assert list(frame.columns) == truth[name].columns
    # pandas has no text that is empty and not missing.
    found = [[None if pandas.isna(row[n]) else row[n] for n in texts] for row in frame.values.tolist()]
    assert found == [[value or None for value in row] for row in expected]
    typed = pandas.read_csv(path, keep_default_na=False, na_values="")
    for column, kind in truth[name].schema.items():
        if kind.is_numeric() and truth[name][column].null_count() < len(truth[name]):
            assert typed[column].dtype.kind in "iuf", column
        if kind == pl.Boolean:
            assert typed[column].dtype.kind == "b", column
    assert {column for column, kind in pl.read_csv(path).schema.items() if kind == pl.Boolean} == {
        column for column, kind in truth[name].schema.items() if kind == pl.Boolean
    }


# ---------------------------------------------------------------- a workbook

SPACE = {"m": "http://schemas.openxmlformats.org/spreadsheetml/2006/main"}


def cells(path: Path, number: int) -> Iterator[list[object]]:
    """The rows of a sheet, each cell as what it says that it is."""
    with ZipFile(path) as file, file.open(f"xl/worksheets/sheet{number}.xml") as content:
        for row in ElementTree.parse(content).iterfind(".//m:row", SPACE):
            yield [_value(cell) for cell in row]


def _value(cell: ElementTree.Element) -> object:
    assert cell.find("m:f", SPACE) is None, "a formula"
    kind, value, text = cell.get("t"), cell.findtext("m:v", None, SPACE), cell.find("m:is/m:t", SPACE)
    if kind == "inlineStr":
        assert text is not None
        return re.sub(r"_x([0-9A-Fa-f]{4})_", lambda found: chr(int(found[1], 16)), text.text or "")
    if value is None:
        return None
    return value == "1" if kind == "b" else float(value)


@pytest.mark.parametrize(("number", "name"), [(1, "scores"), (2, "predictions")])
def test_each_cell_of_a_workbook_says_what_it_is(
    root: Path, truth: dict[str, pl.DataFrame], number: int, name: str
) -> None:
    head, *rows = cells(root / "xlsx/upkeep.xlsx", number)
    frame = truth[name]
    assert head == frame.columns and len(rows) == len(frame)
    for row, wanted in zip(rows, frame.iter_rows(), strict=True):
        for value, expected in zip(row, wanted, strict=True):
            if isinstance(expected, str) and len(expected) > sheet.CHARACTERS:
                assert isinstance(value, str) and len(value) == sheet.CHARACTERS and "--as csv" in value
                continue
            told = "\n".join(expected) if isinstance(expected, list) else expected
            if isinstance(told, str):
                told = re.sub("[\x00\x1b]", "\ufffd", told.replace("\r\n", "\n").replace("\r", "\n"))
            assert value == told and isinstance(value, str | None) == isinstance(told, str | None)


def test_a_workbook_names_its_sheets_and_holds_more_rows_than_one_of_them_may(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sheet, "ROWS", 100)
    exported = Exported.of(Catalog(root), "mini")
    (path,) = sheet.to_xlsx(exported, tmp_path)
    many = math.ceil(sum(len(rows) for _, rows in exported.prediction_rows()) / 99)
    with ZipFile(path) as file:
        assert file.testzip() is None
        names = [
            one.get("name")
            for one in ElementTree.fromstring(file.read("xl/workbook.xml")).iter()
            if one.get("r") is None
        ]
        parts = set(file.namelist())
    named = [name for name in names if name]
    predicted = [name for name in named if name.startswith("predictions")]
    assert len(predicted) == many > 1 and predicted[:2] == ["predictions", "predictions 2"]
    assert {f"xl/worksheets/sheet{n}.xml" for n in range(1, len(named) + 1)} <= parts
    found = [list(cells(path, n)) for n in range(len(named) - many + 1, len(named) + 1)]
    assert {tuple(rows[0]) for rows in found} == {tuple(found[0][0])} and max(map(len, found)) == 100
    whole = list(cells(root / "xlsx/upkeep.xlsx", 2))
    assert [row for rows in found for row in rows[1:]] == whole[1:]
