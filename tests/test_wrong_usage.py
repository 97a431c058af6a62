"""Sixty ways to use the command line wrongly: each is told in few lines, with a remedy, and by the exit status that
docs/running.md has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import ROOT
from suite_fakes import CELLS, GUIDED, PLAIN, called, make
from upkeep import __version__
from upkeep.catalog import Catalog
from upkeep.cli import _parser
from upkeep.completion import script
from upkeep.exit_status import MEANINGS
from upkeep.grading.scores import read_scores
from upkeep.integrity import Stale
from upkeep.machine.checkout import checkout

SHORT = 12
"""Lines of a message at most, without the usage that argparse puts before it."""

WRONG = [
    # words and options that there are not
    (2, "stauts"),
    (2, "rnu mini"),
    (2, "cel x"),
    (2, "diff"),
    (2, "diff mini"),
    (2, "diff mini mini mini"),
    (2, "explain"),
    (2, "export"),
    (2, "cell"),
    (2, "logs"),
    (2, "show"),
    (2, "new method"),
    (2, "new methd mine"),
    (2, "list cellss"),
    (2, "dataset bild toy"),
    (2, "image make echo"),
    (2, "model get m"),
    (2, "record drop"),
    (2, "completion fish"),
    (2, "export out --as exel"),
    (2, "run --cores 0"),
    (2, "run --cores abc"),
    (2, "run --cores -1"),
    (2, "run --limit 0"),
    (2, "run --limit ten"),
    (2, "run --limit 2 --probe a0"),
    (2, "run mini --fersh"),
    (2, "run mini --dryrun"),
    (2, "run mini other"),
    (2, "status --failled"),
    (2, "status --watch soon"),
    (2, "plan --output-tokens none"),
    (2, "show x --trial one"),
    (2, "prune --older-than week"),
    (2, "diff mini mini --rows 0"),
    # names of what there is not
    (1, "run minni"),
    (1, "plan minni"),
    (1, "status minni"),
    (1, "score minni"),
    (1, "report minni"),
    (1, "refresh minni"),
    (1, "setup minni"),
    (1, "doctor minni"),
    (1, "judge minni"),
    (1, "list cells minni"),
    (2, "list methods mini"),
    (1, "cell toy"),
    (1, "cell toy/echo/a"),
    (1, "cell tooy/echo/a/m"),
    (1, "cell toy/ehco/a/m"),
    (1, "cell toy/echo/z/m"),
    (1, "cell toy/echo/a/mm"),
    (1, "cell toy/echo/a/none"),
    (1, "cell toy/guided/a/m"),
    (1, "cell toy/trainer/a/m"),
    (1, "cell toy/echo/a/m --suite minni"),
    (1, "cell toy/guided/a/none --probe zz"),
    (1, "run mini --model gpt"),
    (1, "run mini --method ehco"),
    (1, "run mini --table table_9"),
    (1, "run mini --probe zz"),
    (1, "show toy/echo/b/m"),
    (1, "show toy/guided/a/none zz"),
    (1, "show toy/guided/a/none --trial 9"),
    (1, "show toy/guided/a/nobody"),
    (1, "logs nothing"),
    (1, "diff mini minni"),
    (1, "diff toy/echo/a/m toy/echo/b/m"),
    (1, "explain table_9"),
    (1, "explain table_1 nobody"),
    (1, "export results"),
    (2, "prune image"),
    (1, "validate nowhere"),
    (1, "validate docs"),
    (2, "dataset diff toy"),
    (1, "dataset build tooy"),
    (2, "dataset describe"),
    (2, "dataset build toy --sample 3"),
    (2, "image build"),
    (1, "image build ehco"),
    (1, "model fetch mm"),
    (1, "model train toy/echo/a/m"),
    (1, "train pcio"),
    (1, "batch nothing"),
    (2, "record why"),
    (2, "record export"),
    (1, "new method echo"),
    (1, "new method 'my method'"),
    (1, "new suite mini"),
    (2, "new suite mine --gpus 2"),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "root"
    make(root, "text")
    (root / "docs").mkdir()
    shutil.copy(ROOT / "config/gpus.yaml", root / "config")
    return root


def test_these_are_sixty_and_each_another() -> None:
    assert len({words for _, words in WRONG}) == len(WRONG) >= 60


@pytest.mark.parametrize(("status", "words"), WRONG, ids=lambda value: str(value))
def test_a_wrong_usage_is_told_in_few_lines_with_a_remedy(
    root: Path, status: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    given = [one.strip("'") for one in re.findall(r"'[^']*'|\S+", words)]
    out: list[str] = []
    code, said = called(root, *given, out=out)
    assert "Traceback" not in said + out[0], said
    assert code == status, said
    told = [line for line in said.splitlines() if line and not re.match(r"usage:| {3,}\S|note|warning", line)]
    assert "remedy:" in said and len(told) <= SHORT, said
    assert len(max(told, key=len)) < 400, said


# ---------------------------------------------------------------- what all commands have


def test_without_a_word_there_is_help(root: Path) -> None:
    out: list[str] = []
    assert called(root, out=out) == (0, "")
    assert out[0].startswith("usage: upkeep") and "explain" in out[0]


def test_the_version_is_that_of_the_package_with_the_commit_of_a_clone(root: Path, tmp_path: Path) -> None:
    out: list[str] = []
    assert called(root, "--version", out=out) == (0, "")
    assert out[0] == f"upkeep {__version__}\n"
    clone = tmp_path / "clone"
    git = ("git", "-C", str(clone), "-c", "user.name=n", "-c", "user.email=e@e")
    clone.mkdir()
    (clone / "file").write_text("one")
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "m"]):
        subprocess.run([*git, *words], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    found = checkout(clone)
    assert found is not None and (found.commit, found.changed) == (commit, False)
    (clone / "other").write_text("two")
    checkout.cache_clear()
    found = checkout(clone)
    assert found is not None and (found.commit, found.changed) == (commit, True)
    assert called(clone, "--version", out=out) == (0, "")
    assert out[1] == f"upkeep {__version__}, commit {commit[:12]}, and files were changed since\n"


def test_the_docs_have_every_exit_status_as_the_code_has_it() -> None:
    text = (ROOT / "docs/running.md").read_text()
    rows = dict(re.findall(r"^\| (\d+) \| (.*) \|$", text, re.MULTILINE))
    assert {int(status): meaning for status, meaning in rows.items()} == MEANINGS


def test_one_broken_card_keeps_nothing_else_from_being_listed(tmp_path: Path, root: Path) -> None:
    copy = Path(shutil.copytree(root, tmp_path / "copy", symlinks=True))
    (copy / "methods/keen/method.yaml").write_text("label: [")
    out: list[str] = []
    status, said = called(copy, "list", "methods", out=out)
    assert status == 1 and "methods/keen/method.yaml" in said
    assert [line.split()[0] for line in out[0].splitlines()] == ["echo", "guided", "trainer"]
    for words in (["list", "datasets"], ["list", "cells"], ["show", GUIDED], ["status"], ["score"]):
        status, said = called(copy, *words, out=out)
        assert status == 0, (words, said)


@pytest.mark.parametrize(
    "words",
    ["list methods", "list cells", "status", "explain table_1", "diff mini mini", "prune cells"],
)
def test_where_there_is_a_table_there_is_json(root: Path, words: str) -> None:
    out: list[str] = []
    given = [*words.split(), "--json"]
    status, said = called(root, *given, out=out)
    assert status == 0 and json.loads(out[0]), said


def test_a_tampered_cell_is_named_by_status_and_counts_as_one_that_is_not_done(tmp_path: Path, root: Path) -> None:
    copy = Path(shutil.copytree(root, tmp_path / "copy", symlinks=True))
    file = copy / "results/cells" / PLAIN / "predictions.jsonl"
    file.write_bytes(file.read_bytes().replace(b"text", b"tent", 1))
    out: list[str] = []
    assert called(copy, "status", "--json", out=out)[0] == 0
    found = json.loads(out[0])
    assert (found["counts"]["done"], found["counts"]["stale"]) == (2, 1)
    assert called(copy, "status", "--failed", out=out)[0] == 0
    assert PLAIN in out[1] and "not the file that was written" in out[1]


def test_report_and_score_of_another_suite_say_whose_they_are(tmp_path: Path, root: Path) -> None:
    copy = Path(shutil.copytree(root, tmp_path / "copy", symlinks=True))
    suite = (copy / "config/suites/mini.yaml").read_text()
    (copy / "config/suites/other.yaml").write_text(suite.replace("models: [m, m+trainer.a]", "models: [m]"))
    out: list[str] = []
    assert called(copy, "score", "other", out=out)[0] == 0
    assert called(copy, "report", "mini", out=out)[0] == 0, "it is scored, and not written over another's scores"
    assert called(copy, "report", "other", out=out)[0] == 0
    for name, cells in (("mini", len(CELLS)), ("other", len(CELLS) - 1)):
        assert read_scores(Catalog(copy), name).own["cell"].n_unique() == cells
        assert (copy / f"results/tables/{name}/toy/table_1.csv").is_file(), "each suite has tables of its own"
    # Scores that were put in another suite's place are refused, and made anew.
    shutil.copytree(copy / "results/scores/other", copy / "results/scores/mini", dirs_exist_ok=True)
    with pytest.raises(Stale, match="the scores of another suite"):
        read_scores(Catalog(copy), "mini")
    assert called(copy, "report", "mini", out=out)[0] == 0
    assert read_scores(Catalog(copy), "mini").basis.suite == "mini"


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/nothing"])
def test_a_cache_that_cannot_be_written_is_named_with_the_remedy(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("UPKEEP_CACHE", str(tmp_path / place))
    status, said = called(root, "image", "build", "echo")
    assert status == 1 and said.count("\n") == 4, said
    assert said.startswith(f"upkeep: {tmp_path / place}: the cache cannot be written") and "UPKEEP_CACHE" in said


# ---------------------------------------------------------------- completion


def test_completion_offers_commands_options_and_names(root: Path, tmp_path: Path) -> None:
    text = script(_parser(str(root)))
    (tmp_path / "script").write_text(text)

    def offered(*words: str) -> list[str]:
        line = " ".join(f"'{word}'" for word in words)
        program = f"""source {tmp_path}/script
COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _upkeep; printf '%s\\n' "${{COMPREPLY[@]}}" """
        done = subprocess.run(["bash", "-c", program], cwd=root, capture_output=True, text=True, check=True)
        assert not done.stderr, done.stderr
        return done.stdout.split()

    assert offered("./upkeep", "st") == ["status"]
    assert set(offered("./upkeep", "run", "--li")) == {"--limit"} and "mini" in offered("./upkeep", "run", "")
    assert offered("./upkeep", "cell", "toy/gui") == [GUIDED]
    assert set(offered("./upkeep", "export", "x", "--as", "")) == {"csv", "xlsx", "parquet", "huggingface", "ro-crate"}
    assert "mini" in offered("./upkeep", "cell", "x", "--suite", "")
