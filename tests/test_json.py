"""What commands print with `--json` is one value of the form that docs/json.md has, and on standard output alone."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conftest import ROOT
from suite_fakes import BEGUN, GUIDED, PLAIN, called, make
from upkeep.cli import _parser
from upkeep.exit_status import DIFFER

SPEC = importlib.util.spec_from_file_location("json_forms", ROOT / "docs" / "json_forms.py")
assert SPEC is not None and SPEC.loader is not None
json_forms = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(json_forms)

DATASET = "dataset describe NAME, dataset build NAME"
PRINTED = {
    f"show {PLAIN}": "show CELL",
    f"show {PLAIN} --wrong": "show CELL",
    f"show {PLAIN} a0": "show CELL",
    f"show {PLAIN} a0@1": "show CELL PROBE",
    f"show {GUIDED} a0@5 --trial 1": "show CELL PROBE",
    f"logs {PLAIN}": "logs CELL",
    f"logs {BEGUN} --full": "logs CELL",
    "record": "record list",
    "record list": "record list",
    f"record why {PLAIN}": "record why CELL",
    f"record why {PLAIN} a0@1": "record why CELL",
    "list methods": "list WHAT",
    "list models": "list WHAT",
    "list datasets": "list WHAT",
    "list papers": "list WHAT",
    "list prompts": "list WHAT",
    "list suites": "list WHAT",
    "list cells": "list WHAT",
    "status": "status",
    "doctor": "doctor",
    "explain table_1": "explain TABLE",
    "explain table_1 1 1": "explain TABLE",
    f"diff {PLAIN} {PLAIN}": "diff A B",
    f"diff {PLAIN} {GUIDED}": "diff A B",
    "prune cells samples": "prune",
    "plan": "plan --json -",
    "dataset describe toy": DATASET,
    "dataset diff toy toy": "dataset diff A B",
    "dataset baselines toy": "dataset baselines",
}
"""Command line -> which of the forms it has."""
REFUSED = [
    (1, "show toy/guided/a/none zz"),
    (1, "show toy/echo/b/m"),
    (1, "show toy/guided/a/none --trial 9"),
    (1, "logs nothing"),
    (2, f"logs {PLAIN} --follow"),
    (1, f"record why {GUIDED}"),
    (2, "record prune"),
    (2, "run -n"),
    (2, "run mini --table table_1"),
    (2, "run --method guided"),
    (1, "list cells minni"),
    (2, "list methods mini"),
    (1, "status minni"),
    (1, "doctor minni"),
    (1, "explain table_9"),
    (1, "diff mini minni"),
    (2, "prune image"),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import scipy.stats  # noqa: F401  # slow to load, which is not to count as a command's time

    root = tmp_path_factory.mktemp("made") / "root"
    make(root, "text")
    shutil.copy(ROOT / "config/gpus.yaml", root / "config")
    log = root / "results/logs/cells" / f"{BEGUN}.container.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b'\x1b[31mred\x1b[0m \xff "quoted"\n' * 60)
    return root


def printed(root: Path, words: str) -> tuple[int, str, str]:
    out: list[str] = []
    option = ["--json", "-"] if words.startswith("plan") else ["--json"]
    status, said = called(root, *words.split(), *option, out=out)
    return status, out[0], said


@pytest.mark.parametrize("page", json_forms.PAGES, ids=lambda page: page.name)
def test_a_page_has_the_forms_as_the_commands_have_them(page: Path) -> None:
    found = json_forms.PLACE.search(page.read_text("utf-8"))
    assert found is not None and found[0] == json_forms.listing(json_forms.PAGES[page]), "python docs/json_forms.py"


def test_every_command_that_takes_json_has_its_form_on_the_page_and_is_tried_here() -> None:
    (commands,) = (one.choices for one in _parser(".")._actions if one.choices and "status" in one.choices)
    taking = {name for name, one in commands.items() if "--json" in one._option_string_actions}
    assert taking == {form.split()[0] for form in json_forms.FORMS}
    # What a run prints, which takes its time, is read in tests/test_run.py.
    assert set(PRINTED.values()) == {*json_forms.FORMS} - {"run"}


@pytest.mark.parametrize(("words", "form"), PRINTED.items(), ids=PRINTED)
def test_what_is_printed_is_one_value_of_its_form_with_every_key(root: Path, words: str, form: str) -> None:
    status, text, said = printed(root, words)
    assert status == 0 or (words.split()[0], status) in (("diff", DIFFER), ("doctor", 1)), said
    kind: Any = json_forms.FORMS[form]
    # A key that the form has not is refused, and one that is not printed is missed when it is encoded again.
    again = json.loads(msgspec.json.encode(msgspec.json.decode(text, type=kind)))
    assert again == json.loads(text)
    assert all(c.isprintable() or c == "\n" for c in text)


@pytest.mark.parametrize(("status", "words"), REFUSED, ids=lambda value: str(value))
def test_where_something_is_wrong_nothing_is_printed_and_the_error_is_told_as_elsewhere(
    root: Path, status: int, words: str
) -> None:
    code, text, said = printed(root, words)
    assert (code, text) == (status, "") and "remedy:" in said and "Traceback" not in said
    plain: list[str] = []
    if "--json" not in said and status == 1:
        assert called(root, *words.split(), out=plain) == (code, said)


def test_a_dataset_that_is_built_is_told_as_it_is_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("UPKEEP_RESULTS", str(tmp_path))
    told: list[Any] = []
    for what in ("build", "describe"):
        arguments = _parser(str(ROOT)).parse_args(["dataset", what, "evowiki_mini_sample", "--json"])
        assert arguments.run(arguments) == 0
        told.append(msgspec.json.decode(capsys.readouterr().out, type=json_forms.FORMS[DATASET]))
    assert told[0] == told[1] and told[0].dataset == "evowiki_mini_sample"
    assert (tmp_path / "datasets/evowiki_mini_sample/card.json").exists()


def test_a_listing_says_what_its_lines_say(root: Path) -> None:
    lines: list[str] = []
    assert called(root, "show", PLAIN, out=lines)[0] == 0
    found = json.loads(printed(root, f"show {PLAIN}")[1])
    told = [re.match(r"  (\w+) +(\S+)  trial (\d)", line) for line in lines[0].splitlines()]
    rows = [(one["verdict"], one["probe_id"], str(one["trial"])) for one in found["predictions"]]
    assert [one.groups() for one in told if one] == rows and found["cell"] == PLAIN
    assert sum(found["verdicts"].values()) == len(rows)
    wrong = json.loads(printed(root, f"show {PLAIN} --wrong")[1])
    assert wrong["predictions"] == [one for one in found["predictions"] if one["verdict"] != "right"]
    assert wrong["verdicts"] == found["verdicts"]


def test_a_log_is_told_to_programs_as_to_people(root: Path) -> None:
    (job,) = json.loads(printed(root, f"logs {BEGUN} --full")[1])
    assert (job["name"], job["of"], job["state"]) == (BEGUN, "cells", "failed")
    last = job["logs"][-1]
    assert last["what"] == "container" and last["there"] and len(last["lines"]) == 60
    assert set(last["lines"]) == {'red \ufffd "quoted"'}
    (short,) = json.loads(printed(root, f"logs {BEGUN}")[1])
    assert len(short["logs"][-1]["lines"]) == 40
    text: list[str] = []
    assert called(root, "logs", BEGUN, "--full", out=text)[0] == 0
    assert text[0].splitlines()[-60:] == last["lines"]
