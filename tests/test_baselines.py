"""Claims about baselines of a dataset: answers that use no model and no reading, and what is told of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

from conftest import ROOT
from reported import pages_of, report_of
from test_jsonl import lines
from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.cli import main
from upkeep.contract import Baselines, Implied, Kind, Pattern
from upkeep.errors import UpkeepError
from upkeep.grading import baselines as module
from upkeep.grading.baselines import baselines, measure
from upkeep.grading.exceeding import by_luck, excesses
from upkeep.grading.key import Key, canonical_answers
from upkeep.grading.matching import equivalence
from upkeep.grading.score import identify
from upkeep.grading.scores import score_suite
from upkeep.integrity import read_sealed
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.operations.validate import validate_path
from upkeep.report import page

DOCUMENTS = [("s", 0, "Ann lives in Bath."), ("s", 1, "Then came York, new york, and bath."), ("t", 0, "Nothing.")]


def key_of(form: str, rows: Sequence[dict[str, Any]], equal: str = "short_answer", **more: Any) -> Key:
    """A key of one form; a row has `answers`, and may have `options`, `stream`, `position` and slices."""
    ids = [f"q{number}@0" for number in range(len(rows))]
    slices = {name: [row[name] for row in rows] for name in rows[0] if name.startswith("slice_")}
    probes = pl.DataFrame(
        {
            "probe_id": ids,
            "question_id": ids,
            "stream": [row.get("stream", "s") for row in rows],
            "position": [row.get("position", 1) for row in rows],
            "form": [form] * len(rows),
            "options": [row.get("options") for row in rows],
            **slices,
        },
        schema_overrides={"position": pl.Int32, "options": pl.List(pl.String)},
    )
    answers = pl.DataFrame({"probe_id": ids, "form": form, "answer": [row["answers"] for row in rows]}).explode(
        "answer"
    )
    own = equivalence(equal)
    accepted = answers.with_columns(answer=canonical_answers(answers, own)).drop("form")
    empty = {"outdated": accepted.clear(), "gold_chunk": {}, "marker": "## Answer:", "patterns": {}, "made_of": {}}
    return Key(probes=probes, accepted=accepted, equivalence=own, **(empty | more))


def measured(key: Key, rows: Sequence[dict[str, Any]]) -> list[Kind]:
    documents = pl.DataFrame(
        DOCUMENTS, schema={"stream": pl.String, "position": pl.Int32, "text": pl.String}, orient="row"
    )
    first = pl.DataFrame({"probe_id": key.probes["probe_id"], "answer": [row["answers"][0] for row in rows]})
    return measure(key, documents, first)


def whole(form: str, rows: Sequence[dict[str, Any]], equal: str = "short_answer", **more: Any) -> Kind:
    kind, *_ = measured(key_of(form, rows, equal, **more), rows)
    assert not kind.slice
    return kind


# ---------------------------------------------------------------- by hand


def test_the_most_common_letter_is_that_of_most_questions() -> None:
    options = ["one", "two", "six"]
    rows = [{"options": options, "answers": [letter]} for letter in "BBCB"]
    kind = whole("choice", rows)
    assert kind.found["most_common"] == 75
    assert kind.chance == pytest.approx(100 / 3)
    assert kind.probes == 4


def test_the_longest_option_is_taken_and_options_of_one_length_count_in_part() -> None:
    rows = [
        {"options": ["a", "abc", "ab"], "answers": ["B"]},  # right
        {"options": ["a", "abc", "ab"], "answers": ["C"]},  # wrong
        {"options": ["abc", "xyz", "ab"], "answers": ["A"]},  # one of two
    ]
    assert whole("choice", rows).found["longest"] == pytest.approx(50)


@pytest.mark.parametrize(
    ("options", "position", "right", "score"),
    [
        (["Bath", "York"], 0, "A", 100),  # what comes later has not arrived
        (["Bath", "York"], 1, "A", 100),  # whatever its case
        (["York", "New York"], 1, "B", 100),  # of two that end at one word the longer
        (["ath", "Ann"], 1, "B", 100),  # as a whole word
        (["Leeds", "Hull"], 1, "A", 50),  # none is mentioned: both are offered as often
    ],
)
def test_the_option_that_was_mentioned_last_is_taken(
    options: list[str], position: int, right: str, score: float
) -> None:
    rows = [{"options": options, "position": position, "answers": [right]}]
    assert whole("choice", rows).found["last_mentioned"] == score


def test_where_nothing_is_mentioned_yet_the_option_that_most_questions_offer_is_taken() -> None:
    rows = [
        {"options": ["Leeds", "We cannot know."], "stream": "t", "position": 0, "answers": ["B"]},
        {"options": ["Hull", "We cannot know."], "stream": "t", "position": 0, "answers": ["B"]},
    ]
    assert whole("choice", rows).found["last_mentioned"] == 100


def test_the_option_of_a_truth_table_is_found_by_what_it_shares() -> None:
    options = ["tea, a dog, a walk", "rum, a dog, a walk", "tea, a cat, a walk", "tea, a dog, a swim"]
    assert whole("choice", [{"options": options, "answers": ["A"]}]).found["option_overlap"] == 100
    two = ["tea, a dog", "rum, a dog", "tea, a cat", "rum, a cat"]
    assert whole("choice", [{"options": two, "answers": ["A"]}]).found["option_overlap"] == 25


def test_labels_are_taken_as_they_stand_and_documents_do_not_mention_them() -> None:
    rows = [{"options": ["yes", "no"], "answers": [answer]} for answer in ("no", "no", "no", "yes")]
    kind = whole("label", rows)
    assert (kind.chance, kind.found) == (50, {"most_common": 75, "longest": 25, "option_overlap": 50})


def test_the_candidates_of_open_questions_are_the_distinct_answers_of_the_dataset() -> None:
    rows = [
        {"answers": ["three", "3 times"]},
        {"answers": ["3"]},  # the same answer
        {"answers": ["Bath"]},
        {"answers": ["New York", "York"]},
    ]
    kind = whole("short", rows)
    assert kind.chance == pytest.approx(100 / 3)
    assert kind.found == {
        "most_common": 50,
        "longest": 25,
        "last_mentioned": 25,
        "option_overlap": pytest.approx(100 / 3),
    }


def test_an_equivalence_that_finds_answers_within_others_makes_more_of_them_right() -> None:
    rows = [{"answers": ["York"]}, {"answers": ["New York"]}]
    assert whole("short", rows).chance == 50
    assert whole("short", rows, "contains").chance == 75  # `New York` names `York`


def test_a_pattern_of_the_judges_decides_here_too() -> None:
    pattern = Pattern(words=["yes", "no"], right="no", phrases=["no record of"])
    rows = [{"answers": ["There is no record of it"]}, {"answers": ["yes it is"]}]
    assert whole("short", rows).found["most_common"] == 50
    both = {name: (pattern, frozenset({"no", "abstains"})) for name in ("q0@0", "q1@0")}
    assert whole("short", rows, patterns=both).found["most_common"] == 100


def test_each_slice_is_told_with_an_answer_of_its_own_but_for_slices_of_the_answers_themselves() -> None:
    rows = [
        {"options": ["yes", "no"], "answers": [answer], "slice_family": kind, "slice_polarity": answer}
        for answer, kind in [("no", "x"), ("no", "x"), ("yes", "y"), ("no", "y"), ("yes", "y")]
    ]
    kinds = measured(key_of("label", rows), rows)
    assert [(one.slice, one.value, one.probes) for one in kinds] == [
        ("", "", 5),
        ("family", "x", 2),
        ("family", "y", 3),
    ]
    assert [one.found["most_common"] for one in kinds] == [60, 100, pytest.approx(200 / 3)]


# ---------------------------------------------------------------- chance


def test_chance_is_what_guessing_scores_in_a_simulation() -> None:
    dice = random.Random(5)
    towns = ["York", "New York", "Bath", "Old Bath", "Hull"]
    rows = [{"answers": [dice.choice(towns)]} for _ in range(40)]
    known = list(dict.fromkeys(row["answers"][0] for row in rows))
    hits = [row["answers"][0] in dice.choice(known) for _ in range(2000) for row in rows]
    assert whole("short", rows, "contains").chance == pytest.approx(100 * sum(hits) / len(hits), abs=1)


def test_where_there_are_too_many_answers_chance_is_drawn_by_a_seed_and_said_to_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [{"answers": [str(number % 50)]} for number in range(2000)]
    exact = whole("short", rows)
    assert (exact.exact, exact.chance) == (True, 2)
    monkeypatch.setattr(module, "EXACT", 40_000)
    drawn, again = whole("short", rows), whole("short", rows)
    assert not drawn.exact
    assert drawn == again
    assert drawn.chance == pytest.approx(2, abs=0.4)


# ---------------------------------------------------------------- what is told


def kind(share: float, chance: float, n: int, **of: Any) -> Kind:
    return Kind(form="choice", probes=n, chance=chance, exact=True, found={"longest": share}, **of)


def told(kinds: list[Kind], implied: Sequence[Implied] = ()) -> list[tuple[str, str]]:
    found = Baselines(dataset="d", made_of={}, kinds=kinds)
    return [(one.kind.value, one.reason) for one in excesses(found, implied, "dataset.yaml")]


def test_more_than_ten_points_above_chance_is_told_and_ten_are_not() -> None:
    assert told([kind(35.1, 25, 40)]) == [("", "")]
    assert told([kind(35, 25, 40)]) == []


def test_a_slice_is_told_where_its_form_is_not_and_luck_does_not_explain_it() -> None:
    lucky, sure = kind(60, 25, 12, slice="k", value="lucky"), kind(100, 25, 26, slice="k", value="sure")
    assert told([kind(30, 25, 100), lucky, sure]) == [("sure", "")]
    assert told([kind(45, 25, 100), lucky, sure]) == [("", "")]


def test_the_bound_on_luck_is_never_below_the_binomial_tail() -> None:
    dice = random.Random(0)
    for n, chance, share in [(11, 0.5, 1.0), (20, 0.25, 0.6), (26, 0.25, 0.5)]:
        tries = [sum(dice.random() < chance for _ in range(n)) >= share * n for _ in range(20_000)]
        assert by_luck(share, chance, n) >= sum(tries) / len(tries)
    assert by_luck(1, 0.5, 11) == pytest.approx(0.5**11)


def test_a_reason_for_a_slice_that_there_is_not_is_an_error_that_names_it() -> None:
    reason = Implied(baseline="longest", where={"famly": "x"}, reason="r")
    with pytest.raises(UpkeepError, match="famly"):
        told([kind(90, 25, 40)], [reason])


# ---------------------------------------------------------------- of a dataset that is built

LETTERS = "abcdefgh"
CARD = {
    "label": "N", "summary": "s", "paper": "evolveqa", "source": "here", "licence": "CC0-1.0", "builder": "jsonl",
    "prompt": "evolveqa", "equivalence": "contains", "metrics": "answers",
}  # fmt: skip
REASON = "the paper writes the right option out in full"


def by_form_alone(root: Path, **card: Any) -> Catalog:
    """A repository with a dataset whose right options are the longest, in letters that are dealt evenly."""
    folder = root / "datasets/news"
    folder.mkdir(parents=True)
    (root / "config").mkdir()
    (root / "config/config.yaml").write_text("{}")
    for name in ("papers", "methods", "models"):
        (root / name).symlink_to(ROOT / name)
    (folder / "dataset.yaml").write_bytes(msgspec.yaml.encode(CARD | card))
    (folder / "documents.jsonl").write_text(lines([{"id": "d", "stream": "s", "text": "It rains."}]))
    questions = []
    for number, letter in enumerate(LETTERS):
        options = [f"{letter}{word}" for word in ("no", "ne", "ni", "nu")]
        options[number % 4] += " and so on"
        answer = options[number % 4]
        questions.append({"question": f"Which {number}?", "stream": "s", "options": options, "answers": [answer]})
    (folder / "questions.jsonl").write_text(lines(questions))
    return Catalog(root)


def run(monkeypatch: pytest.MonkeyPatch, root: Path, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["upkeep", "--root", str(root), *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_a_build_warns_of_a_dataset_that_its_form_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    by_form_alone(tmp_path)
    assert run(monkeypatch, tmp_path, "dataset", "build", "news") == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: news: longest scores 100.0 on choice, chance 25.0 (n = 8): ")


def test_with_the_reason_on_its_card_it_remarks_on_it_and_does_not_warn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    by_form_alone(tmp_path, implied=[{"baseline": "longest", "where": {"form": "choice"}, "reason": REASON}])
    assert run(monkeypatch, tmp_path, "dataset", "build", "news") == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("remark: news: longest scores 100.0")
    assert line.endswith(REASON)
    assert run(monkeypatch, tmp_path, "dataset", "describe", "news") == 0
    assert REASON in capsys.readouterr().out


def test_baselines_are_printed_for_people_and_for_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    catalog = by_form_alone(tmp_path)
    build_dataset(catalog, "news", Layout(catalog.results).dataset("news"))
    assert run(monkeypatch, tmp_path, "dataset", "baselines") == 0
    head, line, *_ = capsys.readouterr().out.splitlines()
    assert " ".join(head.split()) == "dataset form n chance most common longest last mentioned option overlap"
    assert line.split()[:6] == ["news", "choice", "8", "25.0", "25.0", "100.0"]
    assert run(monkeypatch, tmp_path, "dataset", "baselines", "news", "--json") == 0
    (found,) = msgspec.json.decode(capsys.readouterr().out, type=list[Baselines])
    assert found == baselines(catalog, "news")
    assert run(monkeypatch, tmp_path, "dataset", "build") == 2


def test_they_are_kept_beside_the_dataset_and_worked_out_anew_where_they_are_gone_or_of_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = by_form_alone(tmp_path)
    layout = Layout(catalog.results)
    card = build_dataset(catalog, "news", layout.dataset("news"))
    before = {path.name: path.read_bytes() for path in layout.dataset("news").iterdir()}
    found, path = baselines(catalog, "news"), layout.baselines("news")
    assert validate_path(path) == "baselines.json: a valid Baselines"
    assert read_sealed(path, Baselines, "") == found
    assert {name: (layout.dataset("news") / name).read_bytes() for name in before} == before
    assert validate_path(layout.dataset("news"))
    assert build_dataset(catalog, "news", layout.dataset("news")) == card
    assert baselines(catalog, "news") == found

    path.write_bytes(path.read_bytes().replace(b"100.0", b"25.00"))  # damaged
    for damaged in (path, path.parent):
        with pytest.raises(UpkeepError, match=r"baselines\.json"):
            validate_path(damaged)
    assert baselines(catalog, "news") == found

    def never(*_: object) -> list[Kind]:
        raise AssertionError

    monkeypatch.setattr(module, "measure", never)
    assert baselines(Catalog(tmp_path), "news") == found
    other = tmp_path / "datasets/news/dataset.yaml"
    other.write_bytes(msgspec.yaml.encode(CARD | {"equivalence": "letter"}))
    with pytest.raises(AssertionError):
        baselines(Catalog(tmp_path), "news")


def test_a_reason_changes_neither_the_identity_of_the_dataset_nor_that_of_its_controls(tmp_path: Path) -> None:
    """`null` and `gold` are asked as before."""
    catalog = by_form_alone(tmp_path)
    card = build_dataset(catalog, "news", Layout(catalog.results).dataset("news"))
    cells = [Cell("news", method, "default", "none") for method in ("null", "gold")]
    before = [identify(catalog, cell, card) for cell in cells]
    reason = [{"baseline": "longest", "where": {"form": "choice"}, "reason": REASON}]
    (tmp_path / "datasets/news/dataset.yaml").write_bytes(msgspec.yaml.encode(CARD | {"implied": reason}))
    after = Catalog(tmp_path)
    assert after.dataset("news").implied
    assert [identify(after, cell, card) for cell in cells] == before
    assert build_dataset(after, "news", Layout(after.results).dataset("news")).content == card.content


def test_the_page_shows_them_beside_the_controls(tmp_path: Path) -> None:
    by_form_alone(tmp_path)
    (tmp_path / "config/suites").mkdir()
    (tmp_path / "config/suites/own.yaml").write_text(
        "{label: Own, summary: s, papers: [], cells: [{datasets: [news], methods: ['null'], models: [none]}]}"
    )
    catalog = Catalog(tmp_path, None, {"suite": "own"})
    page.render(catalog, score_suite(catalog, "own"))
    assert "Baselines" not in report_of(tmp_path, "own")  # the dataset is not built
    build_dataset(catalog, "news", Layout(catalog.results).dataset("news"))
    catalog = Catalog(tmp_path, None, {"suite": "own"})
    page.render(catalog, score_suite(catalog, "own"))
    controls = pages_of(tmp_path, "own")["checks.html"]
    assert '<td class="stub">news</td><td class="r">1</td><td>null</td>' in controls
    assert '<td class="stub">news</td><td>choice</td>' in controls
    assert "Warning: news: longest scores 100.0 on choice, chance 25.0 (n = 8)" in controls


def test_what_a_papers_construction_implies_is_remarked_with_its_reason(tmp_path: Path) -> None:
    name = "imprint_personal_mini"
    catalog = Catalog(ROOT, None, {"results": str(tmp_path)})
    build_dataset(catalog, name, Layout(catalog.results).dataset(name))
    found = excesses(baselines(catalog, name), catalog.dataset(name).implied, "its card")
    (above,) = (one for one in found if (one.kind.value, one.baseline) == ("comp_rel_3", "option_overlap"))
    assert above.kind.found["option_overlap"] == 100 and "truth table" in above.reason
