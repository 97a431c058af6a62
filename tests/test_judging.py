"""Judges: what they are asked, what is kept, and what becomes of their verdicts."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

from endpoint_fakes import KEY, MODEL, VARIABLE, FakeEndpoint
from judged_cells import ECHO, JUDGES, PROBES, _quick, judged_by, of_content, opinion, repository, server
from upkeep import cli, judging
from upkeep.catalog import Catalog
from upkeep.commands import suite as suite_commands
from upkeep.contract import Suite
from upkeep.errors import UpkeepError
from upkeep.grading.agreement import agreement, agreements, work
from upkeep.grading.basis import Basis
from upkeep.grading.judged import judged
from upkeep.grading.scores import read_scores, score_suite
from upkeep.integrity import Missing, Stale
from upkeep.jobs import Cell
from upkeep.judges import judges_by_cell, judges_of
from upkeep.layout import Layout
from upkeep.operations.plan.judging import judgings
from upkeep.serving.counting.records import Assumed

__all__ = ["_quick", "server"]


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


# ---------------------------------------------------------------- at work


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
    cells, assumed = catalog.cells(catalog.suite("mini")), Assumed(reply=50, thinking=0)
    found = judgings(catalog, "mini", assumed, cells)[MODEL, "toy"]
    assert (found.requests, found.output) == (PROBES, 4 * PROBES)
    gold = pl.read_parquet(tmp_path / "results/datasets/toy/gold.parquet")["answers"].to_list()
    texts = ["Judge {gold}.", "{question} | {gold} | {response}", "Question 0?"]
    expected = sum(sum(map(len, [*texts, *answers])) / 4 + 50 for answers in gold)
    assert found.prompt == found.computed == pytest.approx(expected)
    judged_by(catalog)
    sent = sum(len(m["content"]) for body in server.bodies for m in body["messages"])
    assert sent / 4 < found.prompt, "a response is assumed to have fifty tokens"
    (tmp_path / "results/datasets/toy/card.json").unlink()
    assert judgings(Catalog(tmp_path), "mini", assumed, cells)[MODEL, "toy"].unknown is not None
    assert not judgings(Catalog(tmp_path), "mini", assumed, []), "of cells that are not planned it is asked nothing"


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
    assert command("judge", "mini", "--only", MODEL) == 0, "as the workflow says it"
    assert (tmp_path / "results/judged" / MODEL / "mini.json").is_file()
    told = capsys.readouterr().out
    assert f"{ECHO}: {PROBES} verdicts, {PROBES} questions to {MODEL}" in told
    probe = pl.read_parquet(tmp_path / "results/datasets/toy/probes.parquet")["probe_id"][0]
    assert command("show", str(ECHO), probe) == 0
    assert f"  {MODEL}, right: " in capsys.readouterr().out
