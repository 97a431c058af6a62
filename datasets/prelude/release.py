"""The official release of PRELUDE, as Parquet splits, read into items.

Three splits are published: `full` (`all` in an earlier card), `subset` (the human-study subset) and `public`. The names
of their columns are not documented; those of the paper's prompt slots are known, others that mean the same are tried
(`COLUMNS`), and `options.columns` names any that are called otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from upkeep.building import leaks
from upkeep.building.reading import Distinct, Faults, usable
from upkeep.errors import UpkeepError

CONSISTENT, CONTRADICT = "consistent", "contradict"
LABELS: Mapping[str, Mapping[str, str]] = {
    "english": {CONSISTENT: "Consistent", CONTRADICT: "Contradict"},
    "chinese": {CONSISTENT: "一致", CONTRADICT: "矛盾"},
}
"""Language -> label -> the word that answers are given in (C.2)."""
KINDS = {"core": CONSISTENT, "irrelevant": CONSISTENT, "local": CONTRADICT, "global": CONTRADICT}
"""Kind of a label -> the label (Table 3)."""
UNKNOWN = "unknown"
"""Slice of an item of which the release does not tell."""

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "book": ("book_name", "book", "novel"),
    "character": ("char", "character"),
    "title": ("subject", "caption", "title"),
    "setup": ("content", "setup"),
    "label": ("label", "answer"),
    "kind": ("label_type", "type", "category"),
    "generator": ("generator", "model", "source"),
    "evidence": ("evidence",),
}
"""What an item has -> the columns that may hold it, the first that is there counts."""
NEEDED = ("book", "character", "setup", "label")
MOST_CHARACTERS = 20_000
"""Of a setup; the prompt asks for items of a prequel of 1,000 words (B.1)."""

_SPLIT = re.compile(r"(subset|full|all|public)(?:[-_.].*)?\.parquet")
_BLOCK = {
    "english": ("[Prequel Plot Point]", "Novel: ", "Character: ", "Title: ", "Setup: "),
    "chinese": ("[前传剧情设定]", "小说：", "人物：", "标题：", "设定："),
}
_HAN = re.compile(r"[\u4e00-\u9fff]")
_LATIN = re.compile(r"[A-Za-z]+")


@dataclass(frozen=True, slots=True)
class Entry:
    """One prequel item."""

    book: str
    """As the release names it."""
    character: str
    title: str
    """May be empty."""
    setup: str
    label: str
    kind: str
    """One of `KINDS`, or `UNKNOWN`."""
    generator: str
    """`r1_generated`, `gpt_generated` or `UNKNOWN`."""
    public: bool | None
    """Whether the public split has it; None where there is no such split."""
    subset: bool | None
    """Whether the human-study subset has it; None where there is no such split."""
    evidence: tuple[str, ...]
    """Passages of the book that decide it; the official release names none."""

    @property
    def language(self) -> str:
        return language_of(self.setup)

    @property
    def question(self) -> str:
        return block(self.language, self.book, self.character, self.title, self.setup)

    @property
    def answer(self) -> str:
        return LABELS[self.language][self.label]


def language_of(text: str) -> str:
    """`chinese` where a text has more Chinese characters than Latin words, else `english`."""
    return "chinese" if len(_HAN.findall(text)) > len(_LATIN.findall(text)) else "english"


def block(language: str, book: str, character: str, title: str, setup: str) -> str:
    """An item as the prompts show it (C.2, Figures 9 and 11), without the excerpt; no title, no line for it."""
    head, *names = _BLOCK[language]
    values = (book, character, title, setup)
    return "\n".join([head, *(f"{name}{value}" for name, value in zip(names, values, strict=True) if value)])


def split_files(folder: Path) -> dict[str, list[Path]]:
    """The files of each split, by its name: `subset.parquet`, `full-00000-of-00001.parquet`, ...

    Raises:
        UpkeepError: the folder has none of the full split.
    """
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*.parquet")):
        if match := _SPLIT.fullmatch(path.name):
            found.setdefault({"all": "full"}.get(match[1], match[1]), []).append(path)
    if "full" not in found:
        raise UpkeepError(
            "no full split of the release",
            where=folder,
            expected="all.parquet (or full.parquet), and subset.parquet and public.parquet beside it",
            found=", ".join(sorted(path.name for path in folder.iterdir())) if folder.is_dir() else "no folder",
        )
    return found


def read(
    files: Mapping[str, Sequence[Path]], columns: Mapping[str, str], values: Mapping[str, str], faults: Faults
) -> list[Entry]:
    """The items of the full split in order, each marked with the splits that have it too.

    Args:
        files: split -> its files.
        columns: what an item has -> its column, where it is none of `COLUMNS`.
        values: a label, kind or generator of the release -> what it means.

    Raises:
        UpkeepError: a file is no Parquet file or lacks a column; a smaller split has an item that the full one lacks.
    """
    full: dict[str, tuple[str, dict[str, Any]]] = {}
    distinct = Distinct(faults)
    for where, row in _rows(files["full"], columns, NEEDED):
        if distinct(_key(row), where):
            full[_key(row)] = where, row
    marked: dict[str, set[str]] = {}
    for split in [split for split in files if split != "full"]:
        marked[split] = set()
        for where, row in _rows(files[split], columns, ("book", "character", "setup")):
            if _key(row) not in full:
                raise UpkeepError(
                    f"an item of the split {split!r} that the full split lacks",
                    where=where,
                    expected="splits of one release",
                    found=_text(row["setup"])[:80],
                )
            marked[split].add(_key(row))
    entries = []
    for key, (where, row) in full.items():
        splits = {split: key in keys for split, keys in marked.items()}
        if (entry := _entry(row, where, splits, values, faults)) is not None:
            entries.append(entry)
    return entries


def _rows(
    files: Iterable[Path], columns: Mapping[str, str], needed: Sequence[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, row) of each row, under our names; rows are counted from 1."""
    for path in files:
        try:
            frame = pl.read_parquet(path)
        except (pl.exceptions.PolarsError, OSError) as error:
            raise UpkeepError(f"not readable as Parquet: {error}", where=path, remedy="get the file again") from None
        named = {}
        for field, usual in COLUMNS.items():
            candidates = (columns[field],) if field in columns else usual
            column = next((name for name in candidates if name in frame.columns), None)
            if column is not None:
                named[field] = column
            elif field in needed or field in columns:
                raise UpkeepError(
                    f"no column with the {field} of an item",
                    where=path,
                    expected=" or ".join(candidates),
                    found=", ".join(frame.columns),
                    remedy=f"set `options.columns: {{{field}: NAME}}` in dataset.yaml",
                )
        for number, row in enumerate(frame.select(**named).iter_rows(named=True), 1):
            yield f"{path}, row {number}", row


def _text(value: Any) -> str:
    return "" if value is None else str(value).strip()


def _key(row: Mapping[str, Any]) -> str:
    """The same for an item in every split, whatever its punctuation."""
    return "\n".join(leaks.key(_text(row.get(field))) for field in ("book", "character", "title", "setup"))


def _entry(
    row: Mapping[str, Any], where: str, splits: Mapping[str, bool], values: Mapping[str, str], faults: Faults
) -> Entry | None:
    book, character, setup = (_text(row[field]) for field in ("book", "character", "setup"))
    for name, value in (("book", book), ("character", character)):
        if not value:
            faults("broken_record", where, f"no {name}")
            return None
    if not usable(setup, where, faults, MOST_CHARACTERS):
        return None
    said = {field: _text(row.get(field)) for field in ("label", "kind", "generator")}
    said = {field: values.get(value, value) for field, value in said.items()}
    label, kind = _label(said["label"]), _kind(f"{said['kind']} {said['label']}")
    if label is None or KINDS.get(kind, label) != label:
        faults("broken_record", where, "not a label, or a kind of the other label", f"{said['label']} {said['kind']}")
        return None
    return Entry(
        book,
        character,
        _text(row.get("title")),
        setup,
        label,
        kind,
        _generator(said["generator"]),
        splits.get("public"),
        splits.get("subset"),
        tuple(_text(quote) for quote in row.get("evidence") or ()),
    )


def _label(text: str) -> str | None:
    """A label from its word, alone or with its kind (`contradict_local`); None for anything else."""
    word = text.casefold()
    if any(sign in word for sign in (CONTRADICT, "inconsisten", "矛盾", "不一致")):
        return CONTRADICT
    return CONSISTENT if any(sign in word for sign in ("consisten", "一致")) else None


def _kind(text: str) -> str:
    words = re.findall("[a-z]+", text.casefold())
    return next((kind for kind in KINDS if kind in words), UNKNOWN)


def _generator(text: str) -> str:
    name = text.casefold()
    return "r1_generated" if "r1" in name else "gpt_generated" if "gpt" in name else UNKNOWN
