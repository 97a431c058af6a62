"""Benchmarks of questions about whole books (PRELUDE, Table 7), read from files of the official form."""

from __future__ import annotations

import csv
import json
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from conftest import ROOT, put_dataset, spec_of
from upkeep.building import store
from upkeep.building.build import build_dataset
from upkeep.building.store import validate
from upkeep.catalog import Catalog
from upkeep.contract import DatasetCard
from upkeep.errors import UpkeepError
from upkeep.files import hash_file

BOOKS = 4
FAMILIES = {"infbench_mc": "infbench", "infbench_qa": "infbench", "nocha_public": "nocha"}


def sentence(book: int, number: int) -> str:
    return (
        f"On day {number} of year {book} the keeper named Kelm{book}x{number} went down to the harbour and came back."
    )


def novel(book: int) -> list[str]:
    return [sentence(book, number) for number in range(60)]


def infbench(folder: Path, task: str) -> None:
    rows: list[dict[str, Any]] = []
    for number in range(12):
        book, keepers = number % BOOKS, [f"Kelm{number % BOOKS}x{n}" for n in (number, 20, 30, 40)]
        row = {"id": number, "context": " ".join(novel(book)), "input": f"Who went down on day {number}?"}
        answers = [keepers[:1], [keepers[0], "A"], keepers[0]]  # all of these forms are in use
        if task == "choice":
            rows.append(row | {"answer": answers[number % 3], "options": keepers})
        else:
            rows.append(row | {"answer": [keepers[0], "the keeper"], "options": []})
    name = {"choice": "longbook_choice_eng", "qa": "longbook_qa_eng"}[task]
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def detectiveqa(folder: Path) -> None:
    for name in ("anno_data_en/human_anno", "anno_data_en/AIsup_anno", "novel_data_en"):
        (folder / name).mkdir(parents=True)
    for book in range(BOOKS):
        text = "\n".join(f"[{number}] {one}" for number, one in enumerate(novel(book), 1))
        (folder / f"novel_data_en/{book + 7}-标题-作者.txt").write_text("\ufeff" + text, encoding="utf-8")
        questions = [
            {
                "question": f" Who went down on day {number}? ( )",
                "options": {letter: f"Kelm{book}x{n}" for letter, n in zip("ABCD", (20, number, 30, 40), strict=True)},
                "answer": "B",
                "distraction": {},
                "reasoning": ["He came back."],
                "clue_position": [number + 1, -1],
                "answer_position": 60,
            }
            for number in range(3)
        ]
        part = "human_anno" if book == 0 else "AIsup_anno"
        found = [{"novel_id": book + 7, "num_paragraphs": 60, "time_cost": "1h", "questions": questions}]
        (folder / f"anno_data_en/{part}/{book + 7}.json").write_text(json.dumps(found))


def narrativeqa(folder: Path) -> None:
    (folder / "tmp").mkdir()
    kinds = [("valid", "gutenberg")] * BOOKS + [("valid", "movie"), ("test", "gutenberg"), ("valid", "gutenberg")]
    head = "document_id,set,kind,story_url,story_file_size,wiki_url,wiki_title,story_word_count,story_start,story_end"
    with (folder / "documents.csv").open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(head.split(","))
        for book, (part, kind) in enumerate(kinds):
            lines.writerow([f"id{book}", part, kind, "u", 1, "w", f"The Harbour, part {book}", 1, "On", "back ."])
            if book < len(kinds) - 1:  # the last was not fetched
                frame = f"*** START OF THE PROJECT GUTENBERG EBOOK ***\r\n{' '.join(novel(book))}\r\n"
                (folder / f"tmp/id{book}.content").write_bytes(
                    (frame + "*** END OF THE PROJECT GUTENBERG EBOOK ***\r\nlicence").encode()
                )
    with (folder / "qaps.csv").open("w", newline="") as file:
        lines = csv.writer(file)
        names = ("question", "answer1", "answer2")
        lines.writerow(["document_id", "set", *names, *(f"{name}_tokenized" for name in names)])
        for book, (part, _) in enumerate(kinds):
            for day in range(3):
                keeper = f"Kelm{book}x{day}"
                row = [f"Who, if any, went down on day {day}?", f"{keeper} did.", f"It was the keeper, {keeper}."]
                lines.writerow([f"id{book}", part, *row, *row])


def nocha(folder: Path) -> None:
    titles = [f"the_harbour_{book}_ann_tell" for book in range(BOOKS)]
    claims = [
        {
            "book_title": titles[index % BOOKS],
            "claim": f"On day {index} it was Kelm{index % BOOKS}x{index if label else 50} who went down.",
            "type": ("True" if label else "False") if index < 2 else label,
            "index": index,
            "false-claim-explanation": "Another.",
            "response-x": "<answer>FALSE</answer>",
        }
        for index in range(8)
        for label in (True, False)
    ]
    (folder / "data_sample.json").write_text(json.dumps(claims))
    texts = {
        title: f"title: The Harbour {n}\nauthor: Ann Tell\n\n\n" + " ".join(novel(n)) for n, title in enumerate(titles)
    }
    (folder / "classic_books.pkl").write_bytes(pickle.dumps(texts))


RELEASES: Mapping[str, Callable[[Path], None]] = {
    "infbench_mc": lambda folder: infbench(folder, "choice"),
    "infbench_qa": lambda folder: infbench(folder, "qa"),
    "detectiveqa": detectiveqa,
    "narrativeqa": narrativeqa,
    "nocha_public": nocha,
}
SMALL = {"books": 3, "questions": None, "chunk_tokens": 100}


class Released:
    """An official release of one of them, invented, and what is built from it."""

    def __init__(self, name: str, place: Path) -> None:
        self.name, self.place, self.builds = name, place, 0
        self.folder = place / "release"
        self.folder.mkdir()
        RELEASES[name](self.folder)

    def build(self, faults: dict[str, str] | None = None, **options: Any) -> tuple[DatasetCard, store.Dataset]:
        self.builds += 1
        root, spec = self.place / str(self.builds), spec_of(self.name)
        spec["options"] |= SMALL | options
        spec["faults"] = spec["faults"] if faults is None else faults
        put_dataset(root, self.name, spec, FAMILIES.get(self.name))
        (root / "config").mkdir()
        config = {"data": {f"{self.name}.release": str(self.folder)}}
        (root / "config/config.yaml").write_text(yaml.safe_dump(config))
        (root / "papers").symlink_to(ROOT / "papers")
        build_dataset(Catalog(root), self.name, root / "built")
        return validate(root / "built"), store.load(root / "built")


@pytest.fixture(params=RELEASES)
def released(request: pytest.FixtureRequest, tmp_path: Path) -> Released:
    return Released(request.param, tmp_path)


def told(text: str) -> str:
    """The day that a question speaks of."""
    return text.partition("day ")[2].split("?")[0].split()[0]


def test_a_release_is_read_whole_and_each_key_follows_from_its_book(released: Released) -> None:
    card, data = released.build(books=None)
    counts = {"infbench_mc": 12, "infbench_qa": 12, "detectiveqa": 12, "narrativeqa": 12, "nocha_public": 16}
    assert (card.streams, card.probes, card.pairs) == (BOOKS, counts[released.name], 0)
    assert card.statistics["questions of the release"] == card.probes
    assert card.statistics.get("chance") == {"infbench_mc": 25, "detectiveqa": 25, "nocha_public": 50}.get(
        released.name
    )
    texts = dict(data.documents.group_by("stream", maintain_order=True).agg(pl.col("text").str.join(" ")).rows())
    ends = dict(data.documents.group_by("stream").agg(pl.max("position")).iter_rows())
    assert data.documents["tokens"].max() <= 100  # type: ignore[operator]
    assert "licence" not in "".join(texts.values()) and "[1]" not in "".join(texts.values())
    for probe in data.probes.join(data.gold, on="probe_id").iter_rows(named=True):
        assert probe["position"] == ends[probe["stream"]]
        text, question, answer = " ".join(texts[probe["stream"]].split()), probe["question"], probe["answers"][0]
        day = told(question)
        right = text.partition(f"On day {day} of")[2].partition("named ")[2].split()[0]
        if probe["form"] == "choice":
            assert probe["options"]["ABCD".index(answer)] == right and len(probe["options"]) == 4
        elif probe["form"] == "label":
            assert probe["options"] == ["True", "False"] and answer == str(f" {right} " in question)
            assert probe["slice_claim"] == f"{answer.lower()}_claim"
        else:
            assert right in answer and len(probe["answers"]) == 2


def test_the_book_is_named_where_the_release_names_it(released: Released) -> None:
    _, data = released.build()
    wanted = {
        "detectiveqa": "Book: 标题-作者\n",
        "narrativeqa": "Book: The Harbour, part ",
        "nocha_public": "Book: The Harbour ",
    }
    heads = {question[:11] for question in data.probes["question"]}
    assert heads == ({wanted[released.name][:11]} if released.name in wanted else {"Who went do"})


def test_books_and_questions_are_drawn_by_the_seed_and_the_same_again(released: Released) -> None:
    card, data = released.build(questions=5)
    again, _ = released.build(questions=5)
    assert (card.streams, card.probes) == (len(set(data.probes["stream"])), 5) and card.streams <= 3
    assert card.content == again.content
    drawn = {tuple(sorted(released.build(books=2, seed=seed)[0].slices["book"])) for seed in range(6)}
    assert len(drawn) > 1 and all(len(books) == 2 for books in drawn)
    with pytest.raises(UpkeepError, match=r"too few books(.|\n)*expected: +5"):
        released.build(books=5)
    with pytest.raises(UpkeepError, match=r"too few questions(.|\n)*expected: +99"):
        released.build(questions=99)


@pytest.mark.parametrize("option", ["books", "questions", "chunk_tokens"])
@pytest.mark.parametrize("number", [0, -1])
def test_a_number_of_nothing_is_refused_by_its_name(tmp_path: Path, option: str, number: int) -> None:
    with pytest.raises(UpkeepError, match=rf">= 1(.|\n)*{option}"):
        Released("infbench_mc", tmp_path).build(**{option: number})


def test_the_card_has_the_hash_of_each_file_that_was_read(released: Released) -> None:
    card, _ = released.build()
    assert card.inputs and all(hash_file(released.folder / name) == found for name, found in card.inputs.items())


def test_a_missing_file_is_named_with_what_helps(released: Released) -> None:
    needed = {
        "infbench_mc": "longbook_choice_eng.jsonl",
        "infbench_qa": "longbook_qa_eng.jsonl",
        "detectiveqa": "novel_data_en/8-标题-作者.txt",
        "narrativeqa": "qaps.csv",
        "nocha_public": "classic_books.pkl",
    }[released.name]
    (released.folder / needed).unlink()
    with pytest.raises(UpkeepError, match=r"file not found|a novel that is not at hand") as error:
        released.build(books=None)
    assert Path(needed).name.split("-")[0] in str(error.value) and "remedy" in str(error.value)


BROKEN: list[tuple[str, str, Callable[[str], str], str]] = [
    ("infbench_mc", "longbook_choice_eng.jsonl", lambda s: "{\n" + s, "line 1: not a record"),
    (
        "infbench_mc",
        "longbook_choice_eng.jsonl",
        lambda s: s.replace('"A"', '"B"', 1),
        "none of four different options",
    ),
    ("infbench_mc", "longbook_choice_eng.jsonl", lambda s: s.replace('"Kelm0x40"', '"Kelm0x30"', 1), "none of four"),
    ("infbench_qa", "longbook_qa_eng.jsonl", lambda s: s.replace('"Kelm0x0"', '""', 1), "no answer"),
    ("detectiveqa", "anno_data_en/AIsup_anno/8.json", lambda s: s[:-1], "not a list of annotated novels"),
    (
        "detectiveqa",
        "anno_data_en/AIsup_anno/8.json",
        lambda s: s.replace('"answer": "B"', '"answer": "E"', 1),
        "none of",
    ),
    ("detectiveqa", "novel_data_en/8-标题-作者.txt", lambda s: s.replace("[2]", "[1]"), "two of one number"),
    ("detectiveqa", "novel_data_en/8-标题-作者.txt", lambda s: s.replace("[", "("), "no numbered paragraphs"),
    ("narrativeqa", "qaps.csv", lambda s: s + "id0,valid\n", "fewer fields"),
    ("nocha_public", "data_sample.json", lambda s: s.replace("true", '"perhaps"', 1), "not true or false"),
    ("nocha_public", "data_sample.json", lambda s: s.replace("the_harbour_1", "x", 1), "a book that"),
]


@pytest.mark.parametrize(("name", "file", "change", "problem"), BROKEN)
def test_what_is_broken_is_left_out_named_and_counted_or_refused(
    tmp_path: Path, name: str, file: str, change: Callable[[str], str], problem: str
) -> None:
    released = Released(name, tmp_path)
    before, _ = released.build(books=None)
    path = released.folder / file
    text = path.read_text(encoding="utf-8")
    assert change(text) != text
    path.write_text(change(text), encoding="utf-8")
    card, _ = released.build(books=None)
    assert 0 < before.probes - card.probes <= 3 or "not a record" in problem or "fewer" in problem
    assert any(problem in note for note in card.notes)
    with pytest.raises(UpkeepError, match=problem):
        released.build({}, books=None)


def test_a_question_that_is_given_twice_is_asked_once(tmp_path: Path) -> None:
    released = Released("detectiveqa", tmp_path)
    other = released.folder / "anno_data_en/human_anno/8.json"
    other.write_bytes((released.folder / "anno_data_en/AIsup_anno/8.json").read_bytes())
    card, _ = released.build(books=None)
    assert card.probes == 12 and card.slices["annotated"] == {"by_people": 6, "model_assisted": 6}


def test_an_open_question_that_holds_its_answer_is_left_out_and_counted(tmp_path: Path) -> None:
    released = Released("narrativeqa", tmp_path)
    path = released.folder / "qaps.csv"
    path.write_text(path.read_text() + "id0,valid,What was Kelm0x7 named?,Kelm0x7,Kelm0x7,a,b,c\n")
    card, _ = released.build(books=None)
    assert (card.probes, card.statistics["left out: answer in question"]) == (12, 1)
    assert card.statistics["left out: book not at hand"] == 1


def test_evidence_is_the_chunks_that_hold_a_clue(tmp_path: Path) -> None:
    _, data = Released("detectiveqa", tmp_path).build(books=None)
    texts = dict(data.documents.select("document_id", "text").iter_rows())
    for probe in data.probes.join(data.gold, on="probe_id").iter_rows(named=True):
        assert f"On day {told(probe['question'])} of" in " ".join(texts[one] for one in probe["evidence"])
        assert len(probe["evidence"]) <= 2


@pytest.mark.parametrize("column", ["answer2", "document_id"])
def test_a_table_without_a_column_stops_the_build(tmp_path: Path, column: str) -> None:
    released = Released("narrativeqa", tmp_path)
    path = released.folder / "qaps.csv"
    path.write_text(path.read_text().replace(column, "other", 1))
    with pytest.raises(UpkeepError, match=rf"no column {column}(.|\n)*google-deepmind/narrativeqa"):
        released.build()


class Opened:
    """What runs when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.mark,)


@pytest.mark.parametrize("kind", ["code", "a list", "cut short", "no pickle"])
def test_a_pickle_that_is_more_or_less_than_texts_is_refused_and_runs_nothing(tmp_path: Path, kind: str) -> None:
    released = Released("nocha_public", tmp_path)
    path, mark = released.folder / "classic_books.pkl", tmp_path / "mark"
    texts = path.read_bytes()
    path.write_bytes(
        {
            "code": pickle.dumps({"a": Opened(mark)}),
            "a list": pickle.dumps(["a"]),
            "cut short": texts[: len(texts) // 2],
            "no pickle": b"once upon a time",
        }[kind]
    )
    with pytest.raises(UpkeepError, match=r"not the books of NoCha(.|\n)*nothing besides"):
        released.build()
    assert not mark.exists()
