"""Judges: what they are asked, how they are read, what is kept, and what becomes of scores."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

from conftest import ROOT
from endpoint_fakes import KEY, MODEL, VARIABLE, FakeEndpoint, be_quick, fake_endpoint, make_endpoint_repository
from host_fakes import ScriptedRuntime, write_toy
from upkeep import cli, judging
from upkeep.catalog import Catalog
from upkeep.commands import suite as suite_commands
from upkeep.contract import Judgement, Pattern, Rubric, Suite
from upkeep.errors import UpkeepError
from upkeep.execution.supervise import run_cell
from upkeep.grading.agreement import agreement, agreements, work
from upkeep.grading.basis import Basis
from upkeep.grading.judged import judged
from upkeep.grading.judgements import ABSTAINS, Judgements, filled, right_verdicts, spotted, verdict
from upkeep.grading.scores import read_scores, score_suite
from upkeep.integrity import Missing, Stale
from upkeep.jobs import Cell
from upkeep.judges import judges_by_cell, judges_of
from upkeep.judging.nearest import Nearest
from upkeep.judging.suite import judge_suite
from upkeep.layout import Layout
from upkeep.operations.plan.judging import judgings
from upkeep.operations.validate import validate_path
from upkeep.serving.counting.records import Assumed
from upkeep.yaml_files import read_yaml

ECHO = Cell("toy", "echo", "a", "none")
PROBES = 30
"""Of the dataset `toy`, one of which has its question at each position."""
SUITE = """{label: l, summary: s, papers: [], judges: [there], seed: 5, trials: 1, cells: [
  {datasets: [toy], methods: [echo/a], models: [none]}]}
"""
JUDGES = """
strict:
  - rubric: &strict
      read: only
      verdicts: {"Y": right, "O": outdated, "N": wrong}
      system: Judge {gold}.
      user: "{question} | {gold} | {response}"
"""


RUBRIC = {
    "system": 'Say {"verdict": "Y"}.',
    "user": "{response}",
    "verdicts": {"Y": "right", "O": "outdated", "N": "wrong"},
    "read": "only",
}


def rubric(read: str = "only", **fields: Any) -> Rubric:
    return msgspec.convert(RUBRIC | {"read": read} | fields, Rubric)


# ---------------------------------------------------------------- patterns

YES_NO = Pattern(words=["yes", "no"])
DENIES = Pattern(words=["yes", "no"], right="no", phrases=["no record of", "not mentioned"], within=20)


@pytest.mark.parametrize(
    ("pattern", "response", "expected"),
    [
        (YES_NO, "Yes, and then no.", "yes"),
        (YES_NO, "It is so: NO.", "no"),
        (YES_NO, "Nobody knows, nor yesterday.", None),
        (YES_NO, "yes_no", None),
        (YES_NO, "", None),
        (YES_NO, "## Answer: *no*", "no"),
        (DENIES, "There is No Record Of it. Yes!", ABSTAINS),
        (DENIES, "Yes. It is so long that it is not mentioned where one looks.", "yes"),
        (DENIES, "x" * 19 + "not mentioned", ABSTAINS),
        (DENIES, "x" * 20 + "not mentioned", None),
        (DENIES, "no" * 100_000, None),
    ],
)
def test_a_pattern_finds_the_first_word_or_a_phrase_near_the_beginning(
    pattern: Pattern, response: str, expected: str | None
) -> None:
    assert spotted(pattern, response) == expected


@pytest.mark.parametrize(
    ("response", "right"),
    [
        ("No", True),
        ("no.", True),
        ("No, it did not reach the harbour", True),
        ("It did not; no, never. Yes?", True),
        ("Yes, but there is no record of it", True),
        ("Yes", False),
        ("Yes, and no one knows why", False),
        ("It did not", False),
        ("Norway", False),
        ("not", False),
        ("", False),
    ],
)
def test_of_what_never_was_in_the_news_a_first_no_is_right_and_to_abstain(response: str, right: bool) -> None:
    of = read_yaml(ROOT / "papers/imprintbench/judges.yaml", dict[str, list[Judgement]])["world_news"]
    (pattern,) = [one.pattern for one in of if one.where == {"family": ["bound_abs"]}]
    assert pattern is not None
    assert (spotted(pattern, response) in right_verdicts(pattern, ["No, the corpus contains no record of"])) is right


def test_right_is_the_answer_keys_word_or_the_patterns_own_and_to_abstain() -> None:
    assert right_verdicts(YES_NO, ["Yes"]) == {"yes", ABSTAINS}
    assert right_verdicts(DENIES, ["whatever the key says"]) == {"no", ABSTAINS}


# ---------------------------------------------------------------- replies


@pytest.mark.parametrize(
    ("read", "reply", "expected"),
    [
        ("only", "Y", "Y"),
        ("only", " **N**.\n", "N"),
        ("only", "Y Y Y", "Y"),
        ("only", "Y or N?", None),
        ("only", "y", None),
        ("only", "", None),
        ("only", "Yes", None),
        ("last", "It could be Y. But no: N", "N"),
        ("last", "nothing", None),
        ("json", '{"verdict": "Y", "rationale": {"x": "N"}}', "Y"),
        ("json", 'Well: ```json\n{"verdict": "O"}\n```', "O"),
        ("json", '{"verdict": "maybe"}', None),
        ("json", '{"verdict": ["Y"]}', None),
        ("json", '{"verdict": "Y"', None),
        ("json", "}{", None),
        ("json", '["Y"]', None),
        ("json", "[" * 100_000, None),
        ("json", '{"verdict": "Y"} {"verdict": "N"}', None),
    ],
)
def test_a_reply_is_read_strictly_and_never_guessed(read: str, reply: str, expected: str | None) -> None:
    assert verdict(rubric(read), reply) == expected


def test_a_verdict_is_not_found_in_another_that_holds_it() -> None:
    words = {"MATCH": "right", "NONMATCH": "wrong"}
    assert verdict(rubric("last", verdicts=words), "So NONMATCH") == "NONMATCH"
    assert verdict(rubric("only", verdicts=words), "NONMATCH") == "NONMATCH"


def test_what_a_response_says_is_taken_for_no_slot() -> None:
    slots = {"question": "{gold}", "gold": "G", "response": "{question} {context}", "context": "C", "passages": ""}
    assert filled("{question} {response} {other} {gold}", slots) == "{gold} {question} {context} {other} G"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, "found both, or neither"),
        ({"pattern": {"words": ["a"]}, "decides": "reasoning"}, "decides what is right"),
        ({"rubric": RUBRIC | {"verdicts": {"Y": "right"}}}, "length >= 2"),
        ({"rubric": RUBRIC | {"verdicts": {"Y": "good", "N": "wrong"}}}, "good"),
        ({"rubric": RUBRIC | {"user": "{response} {answer}"}}, "no slot {answer}"),
        ({"rubric": RUBRIC | {"user": "{question}"}}, "does not show the judge"),
    ],
)
def test_a_judgement_that_is_none_is_refused(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=told):
        msgspec.convert(fields, Judgement)


def test_every_list_of_the_papers_is_read_and_every_dataset_finds_its_own() -> None:
    lists = {path: read_yaml(path, dict[str, list[Judgement]]) for path in ROOT.glob("papers/*/judges.yaml")}
    assert len(lists) == 4
    assert all("valid judgements" in validate_path(path) for path in lists)
    catalog, used = Catalog(ROOT), set[tuple[Path, str]]()
    for name in catalog.datasets:
        spec = catalog.dataset(name)
        if spec.judges is not None:
            used.add((ROOT / "papers" / spec.paper / "judges.yaml", spec.judges))
    assert used == {(path, name) for path, known in lists.items() for name in known}


def test_a_probe_has_the_first_judgement_that_is_about_it() -> None:
    of = [
        msgspec.convert({"where": {"family": ["a"]}, "pattern": {"words": ["x"]}}, Judgement),
        Judgement(rubric=rubric(), where={"form": ["short"]}),
        Judgement(rubric=rubric(), decides="reasons"),
    ]
    probes = pl.DataFrame(
        {"probe_id": ["1", "2", "3"], "form": ["short", "short", "choice"], "slice_family": ["a", "b", None]}
    )
    assert Judgements(of).placed(probes).rows() == [("1", 0, 2), ("2", 1, 2), ("3", None, 2)]
    with pytest.raises(UpkeepError, match="'family' that the dataset does not have"):
        Judgements(of, "judges.yaml: x").placed(probes.drop("slice_family"))


def test_the_nearest_passages_come_in_the_order_of_the_book() -> None:
    texts = ["the fox slept", "a hen was kept", "the fox ate the hen", "狐狸吃了母鸡", "nothing here"]
    nearest = Nearest(texts)
    assert nearest.passages("did the fox eat a hen?", 2) == ["a hen was kept", "the fox ate the hen"]
    assert nearest.passages("狐狸", 1) == ["狐狸吃了母鸡"]
    assert nearest.passages("fox", 99) == texts


# ---------------------------------------------------------------- at work


def of_content(content: str) -> str:
    return "set:" + json.dumps({"choices.0.message.content": content})


def opinion(body: dict[str, Any]) -> str:
    """What the scripted judge thinks: the same of a response whenever it is asked."""
    asked = next(m["content"] for m in body["messages"] if m["role"] == "user")
    return "YON"[sum(asked.encode()) % 3]


def steady(number: int, body: dict[str, Any]) -> str:
    return of_content(opinion(body))


class Unsteady:
    """A judge that thinks as `steady`, and says so badly at first: malformed, contradictory, empty, refused for now."""

    def __init__(self) -> None:
        self.lock, self.seen = threading.Lock(), Counter[str]()

    def __call__(self, number: int, body: dict[str, Any]) -> str:
        asked = next(m["content"] for m in body["messages"] if m["role"] == "user")
        retold = body["messages"][-1]["content"] != asked
        with self.lock:
            self.seen[asked] += 1
            first = self.seen[asked] == 1
        if retold:
            return of_content(opinion(body))
        kind = sum(asked.encode()) // 3 % 5
        if first and kind == 0:
            return "status:429"
        return of_content({1: "Y or N", 2: "", 3: "I would say yes!"}.get(kind, opinion(body)))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    be_quick(monkeypatch)


@pytest.fixture
def server() -> Iterator[FakeEndpoint]:
    with fake_endpoint(steady) as server:
        yield server


CHANGED = """
as_it_is = append
def append(record):
    as_it_is(record | {more})
"""


def repository(root: Path, url: str, judges: str = JUDGES, more: str = "{}", *, quoted: bool = False) -> Catalog:
    """A suite of one cell whose responses the model `there` judges; `more` are fields of its predictions."""
    make_endpoint_repository(root, url)
    (root / "papers/toy/judges.yaml").write_text(judges)
    (root / "config/suites/mini.yaml").write_text(SUITE)
    (root / "src/upkeep/judging").mkdir(parents=True)
    dataset = root / "datasets/toy/dataset.yaml"
    text = dataset.read_text().replace("exact", "short_answer").replace("metrics: none", "metrics: answers")
    dataset.write_text(text.replace("}", ", judges: strict}"))
    catalog = Catalog(root)
    write_toy(catalog, quoted=quoted)
    run_cell(catalog, ECHO, runtime=ScriptedRuntime(extra=CHANGED.format(more=more)))
    return Catalog(root)


def judged_by(catalog: Catalog) -> tuple[pl.DataFrame, list[str]]:
    """The verdicts of the suite's one judge, and what the command tells."""
    lines = list(judge_suite(catalog, "mini", MODEL))
    manifest = Basis(catalog, "mini").cells[ECHO].manifest
    assert manifest is not None
    return judged(catalog, ECHO, MODEL, manifest).rows, lines


def test_every_response_is_judged_once_and_a_second_command_asks_nothing(tmp_path: Path, server: FakeEndpoint) -> None:
    catalog = repository(tmp_path, server.url)
    rows, lines = judged_by(catalog)
    assert len(rows) == PROBES == len(server.bodies)
    assert set(rows["meaning"]) == {"right", "outdated", "wrong"}
    assert lines[-1] == f"{MODEL}: 1 cells judged"
    texts = [[m["content"] for m in body["messages"]] for body in server.bodies]
    assert all(len(each) == 2 and "{" not in each[0] and each[1].startswith("Question ") for each in texts)
    assert all(body["temperature"] == 0 for body in server.bodies)
    again, lines = judged_by(catalog)
    assert again.equals(rows) and len(server.bodies) == PROBES and len(lines) == 1
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(KEY.encode() in path.read_bytes() for path in files)


def test_a_judge_that_stammers_comes_to_the_same_verdicts_and_is_paid_once(
    tmp_path: Path, server: FakeEndpoint
) -> None:
    undisturbed, _ = judged_by(repository(tmp_path / "a", server.url))
    server.act = unsteady = Unsteady()
    catalog = repository(tmp_path / "b", server.url)
    rows, _ = judged_by(catalog)
    assert rows.equals(undisturbed)
    asked = sum(unsteady.seen.values())
    Layout(catalog.results).judged(MODEL, ECHO).unlink()
    again, _ = judged_by(catalog)
    assert again.equals(rows) and sum(unsteady.seen.values()) == asked, "from the record"


def test_a_judge_that_never_says_anything_counts_as_wrong_and_as_unread(tmp_path: Path, server: FakeEndpoint) -> None:
    server.act = lambda number, body: of_content("I would rather not say.")
    rows, lines = judged_by(repository(tmp_path, server.url))
    assert set(rows["meaning"]) == {"unread"} and rows["verdict"].null_count() == PROBES
    assert len(server.bodies) == 2 * PROBES and f"{PROBES} not read" in lines[0]
    told = server.bodies[-1]["messages"][-2:]
    assert (
        told[0] == {"role": "assistant", "content": "I would rather not say."} and "Y or O or N" in told[1]["content"]
    )


KILLED = """
import os, signal, sys
sys.path[:0] = [{tests!r}, {src!r}]
from pathlib import Path
from upkeep.catalog import Catalog
from upkeep.commands import suite as suite_commands
from upkeep.gateway.endpoints import replies
from upkeep.judging import judge
from upkeep.judging.suite import judge_suite
judge.PART = 7
settle, left = judge.Judge._settle, [3]
def counted(self, cases, rows):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return settle(self, cases, rows)
judge.Judge._settle = counted
list(judge_suite(Catalog(Path({root!r})), "mini", "there"))
"""


def test_killed_in_the_middle_it_goes_on_and_asks_only_for_what_is_missing(
    tmp_path: Path, server: FakeEndpoint
) -> None:
    undisturbed, _ = judged_by(repository(tmp_path / "a", server.url))
    catalog, before = repository(tmp_path / "b", server.url), len(server.bodies)
    source = str(Path(judging.__file__).parents[2])
    code = KILLED.format(tests=str(Path(__file__).parent), src=source, root=str(tmp_path / "b"))
    done = subprocess.run([sys.executable, "-c", code], env=os.environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert 7 <= len(server.bodies) - before < PROBES
    rows, _ = judged_by(catalog)
    assert rows.equals(undisturbed)
    assert len(server.bodies) - before == PROBES


@pytest.mark.parametrize(
    ("more", "asked"),
    [
        ("{'response': ' '}", 0),
        ("{'response': None, 'error': 'e', 'finish_reason': 'none'}", 0),
        ("{'response': 'the same'}", None),
    ],
)
def test_empty_and_failed_responses_are_wrong_without_a_question_and_equal_questions_are_one(
    tmp_path: Path, server: FakeEndpoint, more: str, asked: int | None
) -> None:
    rows, _ = judged_by(repository(tmp_path, server.url, more=more))
    texts = {body["messages"][1]["content"] for body in server.bodies}
    assert len(rows) == PROBES and len(server.bodies) == (len(texts) if asked is None else asked)
    if asked == 0:
        assert set(rows["meaning"]) == {"wrong"}


@pytest.mark.parametrize("about", ["all", "right", "wrong"])
def test_a_rubric_is_asked_about_the_responses_that_it_is_about(
    tmp_path: Path, server: FakeEndpoint, about: str
) -> None:
    judges = JUDGES.replace("read: only", f"read: only\n      about: {about}")
    catalog = repository(tmp_path, server.url, judges, "{'response': 'answer ' + record['probe_id'][1]}")
    rows, _ = judged_by(catalog)
    by_words = pl.read_parquet(Layout(catalog.results).verdicts(ECHO))["right"]
    assert by_words.any() and not by_words.all()
    expected = {"all": PROBES, "right": by_words.sum(), "wrong": (~by_words).sum()}[about]
    assert rows.filter(pl.col("verdict").is_not_null()).height == expected
    others = {"right": {"wrong"}, "wrong": {None}}.get(about, set())
    assert set(rows.filter(pl.col("verdict").is_null())["meaning"]) == others


def test_a_judge_of_each_answer_finds_any_of_them(tmp_path: Path, server: FakeEndpoint) -> None:
    judges = JUDGES.replace("read: only", "read: only\n      each: true")
    server.act = lambda number, body: of_content("Y" if "| answer 1 |" in body["messages"][1]["content"] else "N")
    rows, _ = judged_by(repository(tmp_path, server.url, judges))
    assert rows.filter(pl.col("meaning") == "right")["probe_id"].str.slice(1, 1).unique().to_list() == ["1"]


def test_what_has_changed_since_is_stale_and_a_lost_file_costs_nothing(tmp_path: Path, server: FakeEndpoint) -> None:
    catalog = repository(tmp_path, server.url)
    manifest = Basis(catalog, "mini").cells[ECHO].manifest
    assert manifest is not None
    with pytest.raises(Missing):
        judged(catalog, ECHO, MODEL, manifest)
    judged_by(catalog)
    path = tmp_path / "papers/toy/judges.yaml"
    path.write_text(JUDGES.replace("Judge {gold}", "Judge strictly {gold}"))
    with pytest.raises(Stale, match="changed since these responses were judged"):
        judged(Catalog(tmp_path), ECHO, MODEL, manifest)
    path.write_text(JUDGES + "\n# a comment\n")
    judged(Catalog(tmp_path), ECHO, MODEL, manifest)
    Layout(catalog.results).judged(MODEL, ECHO).write_bytes(b"damaged")
    asked = len(server.bodies)
    judged_by(Catalog(tmp_path))
    assert len(server.bodies) == asked


# ---------------------------------------------------------------- scores


def test_a_score_that_a_judge_decides_names_it_and_no_other_does(tmp_path: Path, server: FakeEndpoint) -> None:
    catalog = repository(tmp_path, server.url)
    rows, _ = judged_by(catalog)
    table = score_suite(catalog, "mini").table.filter(pl.col("cell") == str(ECHO))
    setting = {(row["metric"], str({p["key"]: p["value"] for p in row["setting"]}.get("judge"))) for row in
               table.iter_rows(named=True)}  # fmt: skip
    assert {("accuracy", "words"), ("accuracy", MODEL), ("outdated_rate", MODEL), ("parse_rate", "None")} <= setting
    assert ("parse_rate", MODEL) not in setting and ("accuracy", "None") not in setting
    values = {
        row["metric"]: row["value"]
        for row in table.iter_rows(named=True)
        if {"key": "judge", "value": MODEL} in row["setting"] and row["subset"] == "all"
    }
    for metric, meaning in (("accuracy", "right"), ("outdated_rate", "outdated")):
        expected = 100 * rows.filter(pl.col("meaning") == meaning).height / PROBES
        assert values[metric] == pytest.approx(expected)
    assert read_scores(catalog, "mini").table.equals(score_suite(catalog, "mini").table)


def test_scores_without_the_judges_verdicts_say_that_these_are_missing(tmp_path: Path, server: FakeEndpoint) -> None:
    catalog = repository(tmp_path, server.url)
    scores = score_suite(catalog, "mini")
    assert scores.basis.unjudged == {ECHO: {MODEL: scores.basis.unjudged[ECHO][MODEL]}}
    judged_by(catalog)
    with pytest.raises(Stale):
        read_scores(Catalog(tmp_path), "mini")


def test_the_user_may_have_another_judge_or_none(tmp_path: Path, server: FakeEndpoint) -> None:
    repository(tmp_path, server.url)
    suite = Catalog(tmp_path).suite("mini")
    assert judges_of(Catalog(tmp_path), suite) == [MODEL]
    assert judges_of(Catalog(tmp_path, None, {"judge": "none"}), suite) == []
    some = msgspec.convert(
        {"label": "l", "summary": "s", "papers": [], "judges": []}
        | {"cells": [{"datasets": ["toy"], "methods": [f"echo/{v}"], "models": ["none"]} for v in "ab"]},
        Suite,
    )
    both = [ECHO, Cell("toy", "echo", "b", "none")]
    chosen = Catalog(tmp_path, None, {"judge": MODEL})
    assert judges_by_cell(chosen, some) == {cell: [MODEL] for cell in both}, "a suite without judges: all of its cells"
    first = msgspec.structs.replace(some.cells[0], judges=["another"])
    of_one = msgspec.structs.replace(some, cells=[first, some.cells[1]])
    assert judges_by_cell(chosen, of_one) == {both[0]: [MODEL], both[1]: []}, "no cell that nobody was to judge"
    with pytest.raises(UpkeepError, match="nobody"):
        judges_of(Catalog(tmp_path, None, {"judge": "nobody"}), suite)


# ---------------------------------------------------------------- agreement


def test_agreement_is_that_of_an_independent_computation() -> None:
    from sklearn.metrics import cohen_kappa_score

    draw = random.Random(3)
    for _ in range(20):
        pairs = [(draw.choice("abc"), draw.choice("abcc")) for _ in range(200)]
        share, kappa = agreement(Counter(pairs))
        assert share == pytest.approx(sum(a == b for a, b in pairs) / 2)
        assert kappa == pytest.approx(cohen_kappa_score(*zip(*pairs, strict=True)))
    # By hand: 20 both yes, 15 both no, 5 and 10 otherwise; chance 0.5, so (0.7 - 0.5) / 0.5.
    by_hand = {("yes", "yes"): 20, ("yes", "no"): 5, ("no", "yes"): 10, ("no", "no"): 15}
    assert agreement(by_hand) == (pytest.approx(70), pytest.approx(0.4))
    assert agreement({("yes", "yes"): 3}) == (100, None)


def test_two_judges_and_the_key_are_held_against_each_other(tmp_path: Path, server: FakeEndpoint) -> None:
    catalog = repository(tmp_path, server.url)
    rows, _ = judged_by(catalog)
    basis = Basis(Catalog(tmp_path), "mini")
    (found,) = agreements(basis)
    words = pl.read_parquet(Layout(catalog.results).verdicts(ECHO))
    same = rows.join(words, on=["probe_id", "trial"]).filter((pl.col("meaning") == "right") == pl.col("right"))
    assert (found.dataset, found.first, found.second, found.responses) == ("toy", "words", MODEL, PROBES)
    assert found.share <= 100 * same.height / PROBES
    (one,) = work(basis)
    assert (one.judge, one.responses, one.asked, one.unread) == (MODEL, PROBES, PROBES, 0)


# ---------------------------------------------------------------- commands


def test_a_plan_books_what_a_judge_is_asked(tmp_path: Path, server: FakeEndpoint) -> None:
    catalog = repository(tmp_path, server.url)
    found = judgings(catalog, "mini", Assumed(reply=50, thinking=0))[MODEL, "toy"]
    assert (found.requests, found.output) == (PROBES, 4 * PROBES)
    gold = pl.read_parquet(tmp_path / "results/datasets/toy/gold.parquet")["answers"].to_list()
    texts = ["Judge {gold}.", "{question} | {gold} | {response}", "Question 0?"]
    expected = sum(sum(map(len, [*texts, *answers])) / 4 + 50 for answers in gold)
    assert found.prompt == found.computed == pytest.approx(expected)
    judged_by(catalog)
    sent = sum(len(m["content"]) for body in server.bodies for m in body["messages"])
    assert sent / 4 < found.prompt, "a response is assumed to have fifty tokens"
    (tmp_path / "results/datasets/toy/card.json").unlink()
    assert judgings(Catalog(tmp_path), "mini", Assumed(reply=50, thinking=0))[MODEL, "toy"].unknown is not None


def test_the_command_judges_what_has_been_run_and_says_what_it_lacks(
    tmp_path: Path, server: FakeEndpoint, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repository(tmp_path, server.url)

    def command(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["upkeep", "--root", str(tmp_path), *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return int(str(ended.value.code))

    assert command("judge", "mini", "--only", "echo") == 1
    assert MODEL in capsys.readouterr().err
    assert command("judge", "mini", "--judge", "none") == 0
    assert "has no judges" in capsys.readouterr().out and not server.bodies
    monkeypatch.delenv(VARIABLE)
    assert command("judge", "mini") == 1
    assert f"export {VARIABLE}=" in capsys.readouterr().err and not server.bodies
    suite_commands._tell_judges(Catalog(tmp_path), Catalog(tmp_path).suite("mini"))
    assert "`--judge none` runs the suite without one" in capsys.readouterr().err
    monkeypatch.setenv(VARIABLE, KEY)
    assert command("judge", "mini") == 0
    told = capsys.readouterr().out
    assert f"{ECHO}: {PROBES} verdicts, {PROBES} questions to {MODEL}" in told
    probe = pl.read_parquet(tmp_path / "results/datasets/toy/probes.parquet")["probe_id"][0]
    assert command("show", str(ECHO), probe) == 0
    assert f"  {MODEL}, right: " in capsys.readouterr().out
