"""Scores and predictions as a workbook of Office Open XML (ECMA-376), which spreadsheets open as it is.

Of a CSV file a spreadsheet guesses what each cell is: a model's `=1+1` becomes a formula, `1-2` a date, `007` a number.
Here each cell says whether it is a text, a number or a boolean, so nothing is guessed, and nothing is computed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any
from xml.sax.saxutils import escape
from zipfile import ZIP_DEFLATED, ZipFile

import polars as pl

from upkeep.operations.export.rows import Exported

ROWS = 1_048_576
"""Of a sheet, at most; what is more goes into a further one."""
CHARACTERS = 32_767
"""Of a cell, at most, as UTF-16 counts them."""
_TOLD = " [cut here: a cell holds no more; `--as csv` has all]"
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_ESCAPED = re.compile("_(?=x[0-9A-Fa-f]{4}_)")
"""What would be read as an escaped character (22.9.2.19)."""

_MAIN = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_DOCUMENT = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_FROZEN = '<pane ySplit="1" topLeftCell="A2" state="frozen"/>'
_BEFORE = f'<sheetViews><sheetView workbookViewId="0">{_FROZEN}</sheetView></sheetViews><sheetData>'


def to_xlsx(exported: Exported, folder: Path) -> Iterator[Path]:
    """`upkeep.xlsx`, with the sheets `scores` and `predictions`; lists are texts with a line for each value."""
    path = folder / "upkeep.xlsx"
    with ZipFile(path, "w", ZIP_DEFLATED) as file:
        sheets = [*_sheets(file, "scores", [exported.score_rows()], 1)]
        sheets += _sheets(file, "predictions", (rows for _, rows in exported.prediction_rows()), len(sheets) + 1)
        for name, content in _parts(sheets):
            file.writestr(name, _XML + content)
    yield path


def _sheets(file: ZipFile, name: str, frames: Iterable[pl.DataFrame], number: int) -> Iterator[str]:
    """Write a table into as many sheets as it takes, numbered on from `number`; gives their names."""
    rows = ((frame.columns, row) for frame in frames for row in frame.iter_rows())
    ahead, part = next(rows, None), 1
    while ahead is not None or part == 1:
        with file.open(f"xl/worksheets/sheet{number}.xml", "w", force_zip64=True) as sheet:
            _say(sheet, f"{_XML}<worksheet {_MAIN}>{_BEFORE}")
            if ahead is not None:
                _say(sheet, _row(ahead[0]))
            for _ in range(ROWS - 1):
                if ahead is None:
                    break
                _say(sheet, _row(ahead[1]))
                ahead = next(rows, None)
            _say(sheet, "</sheetData></worksheet>")
        yield name if part == 1 else f"{name} {part}"
        number, part = number + 1, part + 1


def _say(file: IO[bytes], text: str) -> None:
    file.write(text.encode())


def _row(values: Iterable[Any]) -> str:
    return f"<row>{''.join(map(_cell, values))}</row>"


def _cell(value: Any) -> str:
    """A cell: empty for null, else of the kind that the value is of."""
    if value is None:
        return "<c/>"
    if isinstance(value, bool):
        return f'<c t="b"><v>{int(value)}</v></c>'
    if isinstance(value, int | float) and math.isfinite(value):
        return f"<c><v>{value!r}</v></c>"
    text = _fitting("\n".join(value) if isinstance(value, list) else str(value))
    return f'<c t="inlineStr"><is><t xml:space="preserve">{escape(text)}</t></is></c>'


def _fitting(text: str) -> str:
    """A text as a cell can hold it; what XML has no character for is replaced."""
    text = _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n").replace("\r", "\n"))
    units = text.encode("utf-16-le")
    if len(units) > 2 * CHARACTERS:
        text = units[: 2 * (CHARACTERS - len(_TOLD))].decode("utf-16-le", "ignore") + _TOLD
    return _ESCAPED.sub("_x005F_", text)


def _parts(sheets: list[str]) -> Iterator[tuple[str, str]]:
    """What a workbook has beside its sheets: which parts there are, and how they refer to each other."""
    numbers = range(1, len(sheets) + 1)
    part = '<Override PartName="/xl/{}.xml" ContentType="{}.{}+xml"/>'
    parts = [part.format(f"worksheets/sheet{n}", _TYPE, "worksheet") for n in numbers]
    relation = '<Relationship Id="rId{}" Type="{}/{}" Target="{}"/>'
    relations = [relation.format(n, _DOCUMENT, "worksheet", f"worksheets/sheet{n}.xml") for n in numbers]
    named = [f'<sheet name="{escape(sheets[n - 1])}" sheetId="{n}" r:id="rId{n}"/>' for n in numbers]
    yield (
        "[Content_Types].xml",
        (
            f'<Types xmlns="{_PACKAGE}/content-types">'
            '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            f"{part.format('workbook', _TYPE, 'sheet.main')}{''.join(parts)}</Types>"
        ),
    )
    main = relation.format(1, _DOCUMENT, "officeDocument", "xl/workbook.xml")
    yield "_rels/.rels", f'<Relationships xmlns="{_PACKAGE}/relationships">{main}</Relationships>'
    yield (
        "xl/_rels/workbook.xml.rels",
        (f'<Relationships xmlns="{_PACKAGE}/relationships">{"".join(relations)}</Relationships>'),
    )
    yield "xl/workbook.xml", (f'<workbook {_MAIN} xmlns:r="{_DOCUMENT}"><sheets>{"".join(named)}</sheets></workbook>')
