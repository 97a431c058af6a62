"""DetectiveQA's English questions about detective novels, out of its official files.

`anno_data_en/human_anno/<novel_id>.json` and `anno_data_en/AIsup_anno/<novel_id>.json`, of people and of people with a
model's help, are lists with a novel each: `novel_id` and `questions`, each with `question`, `options` (`A` to `D`),
`answer` (a letter), `clue_position` and more. `novel_data_en/<novel_id>-<title>.txt` is the novel, its paragraphs
numbered `[1]`, `[2]`, ..., each at the beginning of a line; a clue's position is such a number, or -1 for what no
paragraph tells.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct

from upkeep.building import books, reading
from upkeep.building.assembling import LETTERS, Built
from upkeep.building.books import Asked, BookOptions
from upkeep.building.context import Context
from upkeep.building.reading import Faults
from upkeep.errors import UpkeepError

ANNOTATIONS = {"by_people": "anno_data_en/human_anno", "model_assisted": "anno_data_en/AIsup_anno"}
"""Slice -> folder of the annotations that were made in this way."""
NOVELS = "novel_data_en"
_NOVEL = re.compile(r"(\d+)-(.+)\.txt")
_NUMBER = re.compile(r"^[ \t]*\[(\d+)\][ \t]*", re.MULTILINE)


class Question(Struct, frozen=True):
    """A question of an annotation."""

    question: str
    options: dict[str, str]
    answer: str
    clue_position: list[int] = []


class Annotation(Struct, frozen=True):
    """What was asked about a novel."""

    novel_id: int
    questions: list[Question]


@dataclass(frozen=True, slots=True)
class Novel:
    """A novel without the numbers of its paragraphs."""

    title: str
    text: str
    spans: dict[int, tuple[int, int]]
    """Number of a paragraph -> where in the text it lies."""


def build(context: Context) -> Built:
    """Read annotations and the novels that they are about.

    Raises:
        UpkeepError: wrong options; a folder is missing; a file, as `faults` has it, is broken; a novel is missing.
    """
    options = context.options(BookOptions)
    folder = context.required("release", f"the folder of DetectiveQA, with anno_data_en/ and {NOVELS}/")
    paths = novels_in(folder / NOVELS)
    files: dict[str, Path] = {}
    novels: dict[int, Novel | None] = {}
    asked: list[Asked] = []
    seen: set[tuple[int, str]] = set()
    for how, place in ANNOTATIONS.items():
        for path in sorted((folder / place).glob("*.json"), key=lambda path: (len(path.stem), path.stem)):
            files[f"{place}/{path.name}"] = path
            for annotation in annotated(path, context.faults):
                number = annotation.novel_id
                if number not in paths:
                    raise UpkeepError(
                        "a novel that is not at hand",
                        where=path,
                        expected=f"{folder / NOVELS}/{number}-<title>.txt",
                        remedy="get all of Phospheneser/DetectiveQA",
                    )
                if number not in novels:
                    files[f"{NOVELS}/{paths[number].name}"] = paths[number]
                    novels[number] = novel(paths[number], context.faults)
                if (told := novels[number]) is None:
                    continue
                for place_in, question in enumerate(annotation.questions, 1):
                    where = f"{path}, question {place_in}"
                    if (one := _asked(question, how, number, told, where, context.faults)) is None:
                        continue
                    if (number, one.text) in seen:
                        context.faults("duplicate_id", where, "a question of this novel given before", one.text)
                        continue
                    seen.add((number, one.text))
                    asked.append(one)
    texts = {_book(number): told.text for number, told in sorted(novels.items()) if told is not None}
    return books.collect(context, options, texts, asked, files)


def _book(number: int) -> str:
    return f"novel_{number:03d}"


def novels_in(folder: Path) -> dict[int, Path]:
    """Number -> the file of the novel.

    Raises:
        UpkeepError: there is none, or two are of one number.
    """
    found: dict[int, Path] = {}
    for path in sorted(folder.glob("*.txt")):
        if match := _NOVEL.fullmatch(path.name):
            if (number := int(match[1])) in found:
                raise UpkeepError(f"two novels of the number {number}", where=path, found=found[number])
            found[number] = path
    if not found:
        raise UpkeepError(
            "no novels", where=folder, expected="<novel_id>-<title>.txt", remedy="get all of Phospheneser/DetectiveQA"
        )
    return found


def annotated(path: Path, faults: Faults) -> Iterator[Annotation]:
    """What an annotation file holds; nothing where it is broken and such files are skipped."""
    if (text := reading.text(path, faults)) is None:
        return
    try:
        yield from msgspec.json.decode(text, type=list[Annotation])
    except (msgspec.MsgspecError, RecursionError) as error:
        faults("broken_record", str(path), f"not a list of annotated novels: {error}")


def novel(path: Path, faults: Faults) -> Novel | None:
    """A novel; None where its file is broken and such files are skipped."""
    if (raw := reading.text(path, faults)) is None:
        return None
    marks = list(_NUMBER.finditer(raw))
    ends = [*(mark.start() for mark in marks), len(raw)][1:]
    parts = [raw[mark.end() : end].strip() for mark, end in zip(marks, ends, strict=True)]
    numbers = [int(mark[1]) for mark in marks]
    if not any(parts) or len(set(numbers)) < len(numbers):
        faults("broken_record", str(path), "no numbered paragraphs, or two of one number")
        return None
    spans, text = {}, ""
    for number, part in zip(numbers, parts, strict=True):
        text += "\n" * bool(text)
        spans[number] = len(text), len(text) + len(part)
        text += part
    match = _NOVEL.fullmatch(path.name)
    return Novel(match[2].strip() if match else path.stem, text, spans)


def _asked(question: Question, how: str, number: int, told: Novel, where: str, faults: Faults) -> Asked | None:
    letters = list(LETTERS[: len(question.options)])
    options = [question.options.get(letter, "").strip() for letter in letters]
    answer = question.answer.strip()
    if not reading.usable(question.question, where, faults):
        return None
    if len(options) < 2 or not all(options) or len(set(options)) < len(options) or answer not in letters:
        faults("broken_record", where, "no options from A on that differ, or an answer that is none of them", answer)
        return None
    return Asked(
        book=_book(number),
        text=f"Book: {told.title}\n{question.question.strip()}",
        options=options,
        answers=[answer],
        form="choice",
        evidence=[told.spans[place] for place in dict.fromkeys(question.clue_position) if place in told.spans],
        slices={"annotated": how},
    )
