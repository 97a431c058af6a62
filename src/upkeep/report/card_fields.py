"""What cards of models, methods and datasets set, where a paper prints the same of its own runs: no run gives it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from upkeep.catalog import Catalog
from upkeep.contract import Record
from upkeep.errors import UpkeepError, unknown
from upkeep.families import CARD
from upkeep.report.fields import agrees, expanded
from upkeep.report.reference import read_reference
from upkeep.report.specs import TABLES, CardField, TableSpec, read_paper

_HELD = {"parameters_b": 1e9, "active_b": 1e9}
"""Fields of a model's card that are in another unit than one."""
_PRINTED = {"thousand": 1e3, "million": 1e6, "billion": 1e9}
"""First word of a published number's unit -> how many of what a card counts it is (`thousand_tokens`)."""


@dataclass(frozen=True, slots=True)
class Said:
    """What cards say of one place of a table."""

    value: float | None = None
    """In the unit of the published number; None where they say nothing, or not all of them the same."""
    source: str = ""
    """Field, value and files, where there is one."""
    reason: str = ""
    """Why there is none."""


@dataclass(frozen=True, slots=True)
class _Found:
    file: str
    name: str
    """The variant, preset or dataset of that file; empty where it is all of it."""
    value: float | None
    held: float = 1
    """The unit that the field is in."""


class Cards:
    """The cards that a paper's tables name."""

    def __init__(self, catalog: Catalog, paper: str) -> None:
        self._catalog = catalog
        self._tables = catalog.root / "papers" / paper / TABLES

    def of(self, table: TableSpec, line: Mapping[str, Any]) -> Said | None:
        """What cards say of a published number; None where its table asks no card. A card that lacks what is asked of
        it, or cannot be read, keeps no report from being written: then that is the reason.

        Args:
            line: of the file of published numbers, with `setting.<key>` for each of its settings.
        """
        one = next((one for one in table.cards if agrees(line, one.match)), None)
        if one is None:
            return None
        try:
            found = list(self._found(table, one, line))
        except UpkeepError as error:
            return Said(reason=" ".join(str(error).replace(f"{self._catalog.root}/", "").split()))
        return _said(one, found, line)

    def check(self, table: TableSpec) -> None:
        """Refuse a table that asks a card for what it does not have, or for numbers that the paper does not print.

        Raises:
            UpkeepError: with file, line and what there is.
        """
        printed = [expanded(row) for row in read_reference(self._tables.parent / "reference" / table.file).to_dicts()]
        for one in table.cards:
            if not any(agrees(line, one.match) for line in printed):
                raise UpkeepError(
                    "`cards` speaks of no published number",
                    where=self._place(table, one.field),
                    expected=f"a line of reference/{table.file}",
                    found=", ".join(f"{name}: {value}" for name, value in one.match.items()),
                )
            for _ in self._found(table, one):
                pass

    def files(self, tables: Iterable[TableSpec]) -> list[str]:
        """The cards that tables name and that are there, relative to the repository."""
        found: dict[str, None] = {}
        for one in (one for table in tables for one in table.cards):
            for kind, names in (("model", one.models), ("method", one.methods), ("dataset", one.datasets)):
                found |= dict.fromkeys(file for name in names if (file := self._file(kind, name)))
        return list(found)

    def _file(self, kind: str, name: str) -> str:
        if kind == "method":
            return f"methods/{name}/method.yaml"
        try:
            if kind == "model":
                return self._catalog.model_card(name)
            return f"datasets/{self._catalog.family_of(name)}/{CARD}"
        except UpkeepError:
            return ""

    # ------------------------------------------------------------ reading

    def _found(self, table: TableSpec, one: CardField, line: Mapping[str, Any] | None = None) -> Iterator[_Found]:
        """What each card says; of models, those that are called as the line's is and think as it does.

        Raises:
            UpkeepError: a card lacks what is asked of it, which is told of the tables' file, or it cannot be read.
        """
        catalog = self._catalog
        for name in one.models:
            spec = self._card(catalog.model, table, name)
            thinking = (line or {}).get("setting.thinking") or spec.thinking
            if line is None or (line["model"], thinking) == (spec.label, spec.thinking):
                file = catalog.model_card(name)
                value = self._number(table, one.field, spec, f"{file} has it not")
                yield _Found(file, "" if Path(file).parent.name == name else name, value, _HELD.get(one.field, 1))
        for name, variants in one.methods.items():
            file = self._file("method", name)
            known = self._card(catalog.method, table, name).variants
            for variant in variants:
                if variant not in known:
                    raise unknown("variant", variant, known, f"{file} has it not").at(self._place(table, variant))
                lacking = f"variant {variant} in {file} has it not"
                yield _Found(file, variant, self._number(table, one.field, known[variant], lacking))
        for name in one.datasets:
            dataset, file = self._card(catalog.dataset, table, name), self._file("dataset", name)
            yield _Found(file, name, self._number(table, one.field, dataset, f"{name} in {file} has it not"))

    def _card(self, read: Any, table: TableSpec, name: str) -> Any:
        try:
            return read(name)
        except UpkeepError as error:
            raise (error if error.where is not None else error.at(self._place(table, name))) from None

    def _number(self, table: TableSpec, field: str, card: object, lacking: str) -> float | None:
        """A field, one within another after a dot; None where it is null, or what it is within."""
        value: Any = card
        for part in field.split("."):
            if value is None:
                return None
            known = (
                {name: getattr(value, name) for name in value.__struct_fields__} if isinstance(value, Record) else value
            )
            if not isinstance(known, dict) or part not in known:
                raise unknown("field", field, known if isinstance(known, dict) else (), lacking).at(
                    self._place(table, field)
                )
            value = known[part]
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise UpkeepError(
                f"the field {field!r} is no number",
                where=self._place(table, field),
                expected="a field that is one",
                found=f"{value!r} in {lacking.removesuffix(' has it not')}",
            )
        return None if value is None else float(value)

    def _place(self, table: TableSpec, word: str) -> str:
        """File and line of a word in what the tables' file says of a table, for messages."""
        lines = self._tables.read_text("utf-8").splitlines()
        starts = [n for n, line in enumerate(lines) if re.match(r"\s*(- |-? *\{)\s*id:", line)]
        first = next((n for n in starts if re.search(rf"id:\s*[\"']?{re.escape(table.id)}\b", lines[n])), 0)
        last = next((n for n in starts if n > first), len(lines))
        first = next((n for n in range(first, last) if re.match(r"\s*cards:", lines[n])), first)
        named = re.compile(rf"(?<![\w.-]){re.escape(word)}(?![\w.-])")
        line = next((n for n in range(first, last) if named.search(lines[n])), first)
        return f"{self._tables}:{line + 1}: {table.id}"


def _said(one: CardField, found: list[_Found], line: Mapping[str, Any]) -> Said:
    if not found:
        thinking = line.get("setting.thinking")
        return Said(reason=f"no model of ours is called {line['model']}" + (f" (thinking {thinking})" * bool(thinking)))
    by_value: dict[float | None, list[_Found]] = {}
    for each in found:
        by_value.setdefault(each.value, []).append(each)
    if len(by_value) > 1:
        differing = (f"{_named(value)} in {_files(of)}" for value, of in by_value.items())
        return Said(reason=f"our cards differ in {one.field}: {'; '.join(differing)}")
    ((value, of),) = by_value.items()
    if value is None:
        return Said(reason=f"{_files(of)} does not say it ({one.field})")
    per = found[0].held / _PRINTED.get(str(line["unit"]).partition("_")[0], 1)
    return Said(value * per, f"{one.field}: {_named(value)} in {_files(of)}")


def _named(value: float | None) -> str:
    return "nothing" if value is None else in_short(value, 12)


def _files(found: Iterable[_Found]) -> str:
    """These files, each with its variants; those that have the same ones together."""
    by_file: dict[str, list[str]] = {}
    for one in found:
        by_file.setdefault(one.file, []).extend([one.name] if one.name else [])
    by_names: dict[str, list[str]] = {}
    for file, names in by_file.items():
        by_names.setdefault(", ".join(names), []).append(file)
    return ", ".join(", ".join(files) + (f" ({names})" if names else "") for names, files in by_names.items())


def in_short(value: float, digits: int = 6) -> str:
    """A number in full, or rounded to so many digits: `262.144`, `5e-6`."""
    return re.sub(r"e([+-])0*", lambda one: f"e{one[1].strip('+')}", f"{value:.{digits}g}")


def cards_of(catalog: Catalog, papers: Iterable[str]) -> list[str]:
    """The cards that the tables of papers read, relative to the repository; of what cannot be read, none."""
    found: set[str] = set()
    for paper in papers:
        with contextlib.suppress(UpkeepError):
            found.update(Cards(catalog, paper).files(read_paper(catalog.root / "papers" / paper).tables))
    return sorted(found)
