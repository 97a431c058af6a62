"""Code Changelogs: every judge can reject, and code is masked and compared by its names."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import imprint_code
from code_worlds import NAME, asked, built, made, mini, on_disk
from imprint_code import notes, program, snippets, sources, steps, synthetic
from imprint_code.features import Feature
from imprint_code.pairs import distinct
from upkeep.building import annotator, tokens
from upkeep.building.assistant import Scripted
from upkeep.contract import Pair

__all__ = ["asked", "mini"]

Script = dict[str, Callable[[Any], Any]]


@contextlib.contextmanager
def lent(helper: Scripted) -> Iterator[Scripted]:
    yield helper


def hiring(monkeypatch: pytest.MonkeyPatch, **helpers: Scripted) -> None:
    """Let `hire` lend these programs, by the model's name."""
    monkeypatch.setattr(annotator, "hire", lambda context, model: lent(helpers[model]))


# ---------------------------------------------------------------- the assistant


def test_the_same_world_from_files_with_an_assistant_gives_the_same_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    its = made()
    hiring(monkeypatch, helper=Scripted(program.script(its)))
    data = built(tmp_path, NAME, {"assistant": "helper", "pairs": 4}, data=on_disk(tmp_path / "in", its))
    assert data.card.slices["family"].keys() >= set(imprint_code.FAMILIES)
    assert data.card.statistics["asked: imprint_code.canonical"] == 3 * len(its.new)
    assert data.card.statistics["asked: imprint_code.novel"] == 5 * len(its.new)
    assert data.card.statistics["features with a pull request"] > 0
    assert data.card.statistics["left out: snippet: defines the name itself"] > 0


def test_judges_can_reject_and_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    its = made()
    functions = [fact.path for fact in its.new if fact.kind == "function"]
    rejected, wavering, moved, stale, astray = functions[:5]
    script: Script = dict(program.script(its))
    calls: Counter[str] = Counter()

    def canonical(given: steps.About) -> steps.Verdict:
        calls[given.path] += 1
        paths = {moved: f"{given.library}.{moved.rpartition('.')[2]}", astray: f"{given.library}.another"}
        new = given.path != rejected and not (given.path == wavering and calls[given.path] == 2)
        return steps.Verdict(new, paths.get(given.path, given.path), given.kind)

    script[steps.CANONICAL.name] = canonical
    script[steps.NOVEL.name] = lambda given: steps.Novelty(given.path != stale)
    for step in (steps.DESCRIBE, steps.ASK, steps.PAIRS):
        old = script[step.name]
        script[step.name] = lambda given, old=old: None if given.path not in functions else old(given)
    hiring(monkeypatch, helper=Scripted(script))
    data = built(tmp_path, NAME, {"assistant": "helper"}, data=on_disk(tmp_path / "in", its))
    texts = "\n".join(data.probes["question"])
    library = moved.partition(".")[0]
    assert f"at {library}.{moved.rpartition('.')[2]}?" in texts
    for path in (rejected, wavering, stale, astray):
        assert f"at {path}?" not in texts
    assert data.card.statistics["left out: judge 1"] == 3
    assert data.card.statistics["left out: judge 2"] == 1
    assert data.card.statistics["left out: no description"] > 0


@pytest.mark.parametrize(
    ("step", "reply", "reason"),
    [
        (steps.AUDIT, steps.Audit(True, False), "snippet: audit"),
        (steps.QUALITY, steps.Quality(True, True, False), "snippet: quality"),
        (steps.VALIDATE, steps.Faithful(True, True, True), "snippet: validator"),
        (steps.VALIDATE, None, "snippet: validator"),
        (steps.ASK, None, "snippet: no question"),
    ],
)
def test_every_judge_of_snippets_can_reject(
    step: Any, reply: Any, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    its = made(libraries=1, releases=1)
    hiring(monkeypatch, helper=Scripted(dict(program.script(its)) | {step.name: lambda given: reply}))
    data = built(tmp_path, NAME, {"assistant": "helper"}, data=on_disk(tmp_path / "in", its))
    assert "comp_rel" not in data.card.slices["family"]
    assert data.card.statistics[f"left out: {reason}"] > 0


def test_a_question_that_tells_its_answer_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    its = made(libraries=1, releases=1)
    tell = {
        steps.DESCRIBE.name: lambda given: steps.Description(f"is {given.path.rpartition('.')[2]}"),
        steps.ASK.name: lambda given: steps.Question(f"What is {given.path.rpartition('.')[2]}?"),
    }
    hiring(monkeypatch, helper=Scripted(dict(program.script(its)) | tell))
    data = built(tmp_path, NAME, {"assistant": "helper"}, data=on_disk(tmp_path / "in", its))
    assert not {"ref_res", "comp_rel"} & data.card.slices["family"].keys()
    assert data.card.statistics["left out: answer in question"] > 0


def test_the_golden_subset_is_what_the_base_model_never_and_the_solver_always_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    its = made(libraries=1, releases=1)
    by_question = {f"{fact.does} in this code?": fact for fact in its.new}

    def answer(text: str) -> synthetic.Fact:
        return next(fact for end, fact in by_question.items() if end in text)

    known, hard = sorted(fact.path for fact in its.new if fact.kind == "function")[:2]
    tries: Counter[str] = Counter()

    def base(given: steps.Trial) -> str:
        fact = answer(given.question)
        tries[fact.path] += 1
        return f"`{fact.path}()`" if fact.path == known and tries[fact.path] == 8 else "sorted"

    def solver(given: steps.Trial) -> str:
        fact = answer(given.question)
        return "no idea" if fact.path == hard else fact.path

    hiring(
        monkeypatch,
        helper=Scripted(program.script(its)),
        base=Scripted({steps.ATTEMPT.name: base}),
        solver=Scripted({steps.ATTEMPT.name: solver}),
    )
    models = {"assistant": "helper", "base": "base", "solver": "solver"}
    data = built(tmp_path, NAME, models, data=on_disk(tmp_path / "in", its))
    left = {
        family: sorted(data.gold.filter(pl.col("slice_family") == family)["answers"].list.first())
        for family in ("comp_rel", "comp_rel_no_import")
    }
    assert left["comp_rel"] == sorted(fact.leaf for fact in its.new if fact.path not in (known, hard))
    assert left["comp_rel_no_import"]
    assert set(left["comp_rel_no_import"]) <= set(left["comp_rel"])
    assert data.card.statistics["left out: known to the base model"] == 1
    assert data.card.statistics["left out: not solved"] == 1


def test_a_long_file_is_cut_and_its_calls_stay_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    its = made(libraries=1, releases=1)
    long = sources.UsageSnippet(its.new[0].library, its.new[0].path, "\n".join(["pass"] * 30 + [its.snippets[0].code]))
    good, bad = long.code.splitlines()[-6:], ["pass"] * 6
    fact = its.new[0]
    its.snippets = [sources.UsageSnippet(fact.library, fact.path, "\n".join(["pass"] * 30 + good))]
    for piece, expected in ((good, 1), (bad, 0), (good[:2], 0)):
        script = dict(program.script(its)) | {steps.CUT.name: lambda given, piece=piece: steps.Cut("\n".join(piece))}
        hiring(monkeypatch, helper=Scripted(script))
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        data = built(folder, NAME, {"assistant": "helper"}, data=on_disk(folder / "in", its))
        assert data.card.slices["family"].get("comp_rel", 0) == expected
        assert data.card.statistics.get("left out: snippet: badly cut", 0) == 1 - expected


def test_summaries_are_part_of_the_documents(tmp_path: Path) -> None:
    plain = built(tmp_path / "a", f"{NAME}_mini")
    told = built(tmp_path / "b", f"{NAME}_mini", {"summaries": True})
    assert sum(told.documents["tokens"]) > sum(plain.documents["tokens"])
    assert told.card.statistics["asked: imprint_code.summary"] == told.card.statistics["articles"]


def test_every_prompt_holds_what_is_known_of_the_feature() -> None:
    about = steps.About(
        library="lib", version="1.0", path="lib.x.fold", kind="function", heading="New", bullet="It folds.",
        pulls=["#7: Fold"], documentation="Folds things.",
    )  # fmt: skip
    snippet = steps.Snippet(
        library="lib", path="lib.x.fold", kind="function", code="fold(1)", masked="<MASK>(1)", documentation="Folds.",
        question="Which?",
    )  # fmt: skip
    for step in (steps.CANONICAL, steps.NOVEL, steps.DESCRIBE, steps.SUMMARY):
        assert all(part in step.prompt(about) for part in ("lib.x.fold", "It folds.", "#7: Fold", "Folds things."))
    assert "<MASK>(1)" in steps.ASK.prompt(snippet)
    assert "Which?" in steps.VALIDATE.prompt(snippet)
    for judge in (steps.ASK, steps.VALIDATE):
        assert "fold(1)" not in str(judge.prompt(snippet)).replace("<MASK>(1)", "")


# ---------------------------------------------------------------- code


def feature(path: str, kind: Any = "function") -> Feature:
    block = notes.Block((), (), notes.Phrase("x"), True, ())
    return Feature("lib", "1.0", path, kind, block, (path.rpartition(".")[0],) if kind == "parameter" else ())


def test_a_callable_is_masked_as_a_word_and_a_parameter_where_it_is_given() -> None:
    code = "fold(x, fold_size=3)\nunfold(fold)"
    assert snippets.mask(code, feature("lib.fold")) == "<MASK>(x, fold_size=3)\nunfold(<MASK>)"
    assert snippets.mask("f(size = 3, b=size == 3)", feature("lib.f.size", "parameter")) == "f(<MASK> = 3, b=size == 3)"
    assert snippets.mask("other(1)", feature("lib.fold")) is None
    assert snippets.mask("f(size)", feature("lib.f.size", "parameter")) is None


@pytest.mark.parametrize(
    ("code", "bare"),
    [
        ("import lib.x as l\nimport os\n\nl.<MASK>(os.name)", "<MASK>(name)"),
        ("from lib import <MASK>\n\ny = <MASK>(1)", "y = <MASK>(1)"),
        ("from lib import Box\n\nBox().<MASK>()", "from lib import Box\n\nBox().<MASK>()"),
        ("import lib\n\ndef f(a):\n    return lib.<MASK>(é='ü', b=lib.y)", "def f(a):\n    return <MASK>(é='ü', b=y)"),
        ("from lib import (\n    a,\n    b,\n)\n\n<MASK>(1)", "<MASK>(1)"),
    ],
)  # fmt: skip
def test_prefixes_and_dead_imports_are_taken_out(code: str, bare: str) -> None:
    assert snippets.without_imports(code) == bare


def test_code_that_is_no_python_has_no_variant() -> None:
    assert snippets.without_imports("lib.<MASK>(") is None


@pytest.mark.parametrize(
    ("reply", "right"),
    [("fold", True), ("`l.x.fold`", True), ("fold(a, b)", True), ("fold=", True), ("unfold", False), ("a fold", False)],
)  # fmt: skip
def test_a_reply_is_right_where_its_last_part_is_the_name(reply: str, right: bool) -> None:
    assert snippets.is_name(reply, "fold") == right


def test_pairs_with_several_answers_or_given_twice_are_left_out() -> None:
    pairs = [Pair(question=q, answer=a) for q, a in [("A?", "1"), ("a", "1"), ("B?", "1"), ("b?", "2"), ("C?", "3")]]
    kept, dropped = distinct(pairs, [])
    assert [pair.question for pair in kept] == ["A?", "C?"]
    assert dropped == {"pairs given twice": 1, "pairs with several answers": 2}


def test_the_boundary_has_as_many_questions_as_are_wanted(tmp_path: Path) -> None:
    for count in (3, 100):
        data = built(tmp_path / str(count), f"{NAME}_mini", {"boundary": count})
        assert data.card.slices["family"]["bound_abs"] == count
    assert tokens.load().count(["x"]) == [1]


def test_a_token_of_many_groups_stays_one() -> None:
    writer = notes.Written()
    writer.code("lib.{a,b}.{c,d}")
    assert [token.text for token in writer.tokens] == ["lib.a.c", "lib.a.d", "lib.b.c", "lib.b.d"]
    writer.code("lib." + "{a,b}" * 60)
    assert len(writer.tokens) == 5


def test_neither_ids_nor_their_order_tell_name_or_family(asked: list[dict[str, Any]]) -> None:
    assert all(re.fullmatch(r"q\d{4}", row["question_id"]) for row in asked)
    half = [row["slice_family"] for row in asked[: len(asked) // 2]]
    assert {"dir_acq", "bound_abs"} <= set(half)
    assert 0.3 < half.count("dir_acq") / (half.count("dir_acq") + half.count("bound_abs")) < 0.7
