"""Lists what commands print with `--json`; `python docs/json_forms.py` writes it into the two pages.

The forms are the records that the commands encode, with the words that stand beside their fields.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import textwrap
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from upkeep.commands.questions import Listed
from upkeep.contract import Baselines, Record
from upkeep.gateway.transfer import Kept
from upkeep.gateway.why import Why
from upkeep.operations import dataset_diff
from upkeep.operations.described import Described
from upkeep.operations.diff.comparing import Difference
from upkeep.operations.doctor.examination import Report
from upkeep.operations.explain import Place
from upkeep.operations.logs import ToldJob
from upkeep.operations.plan.amounts import Plan
from upkeep.operations.prune import Pruning
from upkeep.operations.status.states import Survey
from upkeep.operations.told import Listing, One
from upkeep.report.terminal import Ran

DOCS = Path(__file__).resolve().parent
PLACE = re.compile(r"(?<=<!-- written by docs/json_forms.py -->\n).*?(?=<!-- end -->)", re.S)
ANSWERS: dict[str, Any] = {
    "show CELL": Listing,
    "show CELL PROBE": One,
    "explain TABLE": list[Place],
    "diff A B": Difference,
    "logs CELL": list[ToldJob],
    "record list": list[Kept],
    "record why CELL": Why,
}
SUITES: dict[str, Any] = {
    "run": Ran,
    "status": Survey,
    "plan --json -": Plan,
    "doctor": Report,
    "list WHAT": list[Listed],
    "prune": Pruning,
    "dataset describe NAME, dataset build NAME": Described,
    "dataset diff A B": dataset_diff.Difference,
    "dataset baselines": list[Baselines],
}
FORMS = ANSWERS | SUITES
"""Command -> the type of what it prints."""
PAGES = {DOCS / "json.md": ANSWERS, DOCS / "json-suites.md": SUITES}


def listing(forms: dict[str, Any]) -> str:
    """Each command's form, and the records that it is made of."""
    lines: list[str] = []
    for command, form in forms.items():
        a_list = "a list of " if typing.get_origin(form) is list else ""
        lines += [f"\n## {command}\n", "| key | | |", "| --- | --- | --- |"]
        for number, record in enumerate(records(form)):
            name = f"{'' if number else a_list}**{record.__name__}**"
            lines.append(f"| {name} | | {_cell(_words(record.__doc__))} |")
            for names, kind, said in rows(record):
                lines.append(f"| {', '.join(f'`{one}`' for one in names)} | {kind} | {said} |")
    return "\n".join([*lines, ""])


def records(form: Any) -> Iterator[type[Record]]:
    """The records that a type is made of, each once: those first that are nearest to it."""
    waiting, seen = [form], list[Any]()
    while waiting:
        one = waiting.pop(0)
        if one in seen:
            continue
        seen.append(one)
        if isinstance(one, type) and issubclass(one, Record):
            yield one
            waiting += typing.get_type_hints(one).values()
        elif typing.get_origin(one) is not Literal:
            waiting += typing.get_args(one)


def rows(record: type[Record]) -> Iterator[tuple[list[str], str, str]]:
    """(keys, type, what they are) of a record, in the order in which they are printed; keys of one type that need no
    word stand together."""
    kinds, words = typing.get_type_hints(record), _said(record)
    for (kind, said), group in itertools.groupby(
        record.__struct_fields__, lambda name: (_kind(kinds[name]), _cell(words.get(name, "")))
    ):
        names = list(group)
        yield from ([([name], kind, said) for name in names] if said else [(names, kind, said)])


def _said(record: type[Record]) -> dict[str, str]:
    """What stands below each field in the code."""
    found: dict[str, str] = {}
    for one in (one for one in reversed(record.__mro__) if issubclass(one, Record)):
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(one))).body
        assert isinstance(body, ast.ClassDef)
        for statement, after in itertools.pairwise(body.body):
            told = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and after.value.value
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and told:
                found[statement.target.id] = _words(str(told))
    return found


NAMES = {str: "text", int: "whole number", float: "number", bool: "boolean", type(None): "null", Any: "anything"}


def _kind(form: Any) -> str:
    """A type as JSON has it."""
    of, parts = typing.get_origin(form), typing.get_args(form)
    if form in NAMES:
        return NAMES[form]
    if of is Literal:
        return " or ".join(f"`{part}`" for part in parts)
    if of is dict:
        return f"object of {_kind(parts[1])}"
    if of is list:
        return f"list of {_kind(parts[0])}"
    if of is tuple:
        return f"list of {', '.join(map(_kind, parts))}"
    return " or ".join(map(_kind, parts)) if parts else f"**{form.__name__}**"


def _words(text: str | None) -> str:
    return " ".join((text or "").split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("None", "null")


if __name__ == "__main__":
    for page, forms in PAGES.items():
        page.write_text(PLACE.sub(lambda _, forms=forms: listing(forms), page.read_text("utf-8")), "utf-8")
