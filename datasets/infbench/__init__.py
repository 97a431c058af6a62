"""InfiniteBench's questions about English novels, En.MC and En.QA, out of its official files.

`longbook_choice_eng.jsonl` and `longbook_qa_eng.jsonl` hold a question a line: `context`, the whole book, with other
names in it; `input`, the question; `answer`; and `options`, four of them, for multiple choice. Nothing names the
book, so the same context is the same book. An answer is a text or a list; one of En.MC is the right option, or that and
its letter.
"""

from __future__ import annotations

import hashlib
from typing import Literal

from msgspec import Struct

from upkeep.building import books, reading
from upkeep.building.assembling import LETTERS, Built
from upkeep.building.books import Asked, BookOptions
from upkeep.building.context import Context

FILES = {"choice": "longbook_choice_eng.jsonl", "qa": "longbook_qa_eng.jsonl"}


class Options(BookOptions, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`options` of `dataset.yaml`."""

    task: Literal["choice", "qa"] = "choice"
    """En.MC or En.QA."""


class Line(Struct, frozen=True):
    """A line of either file."""

    context: str
    input: str
    answer: str | list[str]
    options: list[str] = []


def build(context: Context) -> Built:
    """Read the file of the task.

    Raises:
        UpkeepError: wrong options; the file is missing or, as `faults` has it, broken.
    """
    options = context.options(Options)
    name = FILES[options.task]
    path = context.required("release", f"the folder with {name} of InfiniteBench") / name
    texts: dict[str, str] = {}
    numbers: dict[bytes, str] = {}
    asked: list[Asked] = []
    for where, line in reading.records(path, Line, context.faults):
        usable = reading.usable(line.input, where, context.faults) and reading.usable(
            line.context, where, context.faults
        )
        if not usable:
            continue
        digest = hashlib.sha256(line.context.encode()).digest()
        book = numbers.setdefault(digest, f"book_{len(numbers) + 1:03d}")
        answers = [one.strip() for one in ([line.answer] if isinstance(line.answer, str) else line.answer)]
        if options.task == "qa":
            if not all(answers) or not answers:
                context.faults("broken_record", where, "no answer", answers)
                continue
            one = Asked(book=book, text=line.input.strip(), answers=answers)
        else:
            shown = [option.strip() for option in line.options]
            if (letter := right(shown, answers)) is None:
                context.faults("broken_record", where, "the answer is none of four different options", answers)
                continue
            one = Asked(book=book, text=line.input.strip(), answers=[letter], options=shown, form="choice")
        texts[book] = line.context
        asked.append(one)
    return books.collect(context, options, texts, asked, {name: path})


def right(options: list[str], answer: list[str]) -> str | None:
    """The letter of the right option; None where the line does not say one option, once and in agreement."""
    if len(options) != 4 or len(set(options)) != 4 or not answer or answer[0] not in options:
        return None
    letter = LETTERS[options.index(answer[0])]
    return letter if answer[1:] in ([], [letter]) else None
