"""What a user gets wrong is told in one message with what was expected, found, and a remedy that helps."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT, copy_repository
from suite_fakes import called
from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.errors import raised_in
from upkeep.files import hash_file
from upkeep.layout import Layout
from upkeep.lines import excerpt
from upkeep.machine.ask import Output
from upkeep.operations.plan.amounts import Disk
from upkeep.operations.plan.terminal import _disk_text
from upkeep.operations.status import queue
from upkeep.report.asked import asked
from upkeep.report.edits import edited

SUITE = "label: l\nsummary: s\npapers: []\ncells:\n  - {{datasets: {datasets}, methods: [gold]{models}}}\n{more}\n"
GOOD = {"datasets": "[town]", "models": ", models: [none]", "more": ""}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = copy_repository(tmp_path_factory.mktemp("made"))
    assert called(root, "new", "dataset", "town")[0] == 0
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UPKEEP_RUNTIME", "process")
    return Path(shutil.copytree(made, tmp_path / "root", symlinks=True))


def told(root: Path, *words: str, status: int = 1) -> str:
    code, said = called(root, *words)
    assert code == status and "Traceback" not in said, said
    return said


def test_a_runtime_that_there_is_not_is_told_with_the_nearest(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPKEEP_RUNTIME", "proces")
    said = told(root, "list", "suites")
    assert "UPKEEP_RUNTIME in the environment" in said and "found:    proces" in said
    assert "remedy:   did you mean process?" in said


@pytest.mark.parametrize(
    ("path", "remedy"),
    [
        ("nowhere", "give the path of one that there is"),
        ("nowhere.jsonl", "give the path of one that there is"),
        ("config/suites/minni.yaml", "did you mean {root}/config/suites/mini.yaml?"),
        ("docs", "give the path of a folder that holds one"),
    ],
)
def test_what_cannot_be_validated_is_told_with_a_remedy(root: Path, path: str, remedy: str) -> None:
    (root / "docs").mkdir()
    said = told(root, "validate", str(root / path))
    assert f"{root / path}: " in said and f"remedy:   {remedy.format(root=root)}" in said


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ({"more": "trials: many"}, "write a whole number, without quotes"),
        ({"more": "trials: '3'"}, "write a whole number, without quotes"),
        ({"more": "judges: pico"}, "write a list, as [one, another]"),
        ({"datasets": "town"}, "write a list, as [one, another]"),
        ({"models": ""}, "add `models`"),
        ({"more": "sed: 1"}, "did you mean `seed`?"),
    ],
)
def test_a_wrong_type_in_a_suite_is_told_with_how_it_is_written(
    root: Path, change: dict[str, str], remedy: str
) -> None:
    (root / "config/suites/mine.yaml").write_text(SUITE.format(**(GOOD | change)))
    said = told(root, "list", "cells", "mine")
    assert f"{root}/config/suites/mine.yaml: " in said and f"remedy:   {remedy}" in said


@pytest.mark.parametrize(
    ("file", "content", "problem", "remedy"),
    [
        ("documents", None, "file not found", "put it there, or mend its name"),
        ("documents", "", "no document in the file", "write a document a line into it"),
        ("questions", '{"question": 1}\n', "line 1: not a record", "mend it"),
        ("questions", "", "no question in the file", "write a question a line into it"),
    ],
)
def test_a_dataset_without_documents_or_probes_is_told_with_what_to_write(
    root: Path, file: str, content: str | None, problem: str, remedy: str
) -> None:
    path = root / f"datasets/town/{file}.jsonl"
    path.unlink()
    if content is not None:
        path.write_text(content)
    said = told(root, "dataset", "build", "town")
    assert f"{path}: {problem}" in said or f"{path}, {problem}" in said
    assert "b'" not in said and f"remedy:   {remedy}" in said


def test_a_claim_whose_query_fails_is_told_by_file_line_and_id_in_one_line(root: Path) -> None:
    (claims,) = (one for one in (root / "papers/oaks/claims").iterdir() if "- id: oaks-c2\n" in one.read_text())
    before, _, after = claims.read_text().partition("- id: oaks-c2\n")
    claims.write_text(before + "- id: oaks-c2\n" + after.replace("select ", "selekt ", 1).replace("with ", "wiht ", 1))
    line = before.count("\n") + 1
    said = told(root, "validate", str(root / "papers/oaks"))
    assert f"{claims}:{line}: oaks-c2: the query of a check fails\n" in said
    assert "found:    Parser Error: " in said and "remedy:   mend its `query`" in said and len(said.splitlines()) == 4


@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        ("tables.yaml", "rows: [model,", "rows: [modl,", "tables.yaml: table_1: unknown field 'modl'"),
        ("tables.yaml", "tables:", "called: [{where: {methd: a}, instead: {}}]\ntables:", "unknown field 'methd'"),
        ("tables.yaml", "metric: accuracy", "metric: acuracy", "unknown metric 'acuracy'"),
        ("tables.yaml", "dataset: oaks_babi}", "dataset: oaks_bab}", "unknown dataset 'oaks_bab'"),
        ("claims/*.yaml", "datasets: [", "datasets: [lamp, ", "unknown dataset 'lamp'"),
        ("claims/*.yaml", "'accuracy'", "'acuracy'", "'acuracy'"),
    ],
)
def test_what_a_paper_names_and_nothing_gives_is_refused(root: Path, file: str, old: str, new: str, told: str) -> None:
    assert called(root, "new", "paper", "bench")[0] == 0
    assert called(root, "validate", str(root / "papers/bench"))[0] == 0
    (path,) = root.glob(f"papers/bench/{file}")
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    code, said = called(root, "validate", str(path))
    assert code == 1 and told in said and "remedy:" in said, said


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("rnu mini", "did you mean run?"),
        ("describe town", "did you mean dataset describe?"),
        ("list cels", "did you mean cells or models?"),
        ("new datset town", "did you mean dataset?"),
        ("run mini --fersh", "did you mean --fresh?"),
        ("status --failled", "did you mean --failed?"),
        ("plan --gpus=h100", "did you mean --gpu?"),
        ("cell town/gold/default/none --suit mini", "did you mean --suite?"),
    ],
)
def test_a_word_or_an_option_that_there_is_not_is_told_with_the_nearest(root: Path, words: str, remedy: str) -> None:
    assert f"remedy:   {remedy}" in told(root, *words.split(), status=2)


@pytest.mark.parametrize("words", ["run --zzz", "xyzzy"])
def test_what_is_near_nothing_has_no_such_remedy(root: Path, words: str) -> None:
    assert "did you mean" not in told(root, *words.split(), status=2)


LOG = """started
Traceback (most recent call last):
  File "/code/upkeep/cell/loading.py", line 39, in load_method
    spec.loader.exec_module(module)
{frame}{error}
"""


@pytest.mark.parametrize(
    ("source", "line", "error"),
    [
        ("class Mine(Method)\n    pass\n", 1, "SyntaxError: expected ':'"),
        (
            "\nimport nowhere\n",
            2,
            "ModuleNotFoundError: No module named 'nowhere'; a package is named in methods/mine/requirements.in and "
            "locked: `./upkeep image lock mine`",
        ),
        ("from os import nothing\n", 1, "ImportError: cannot import name 'nothing' from 'os'"),
        ("\n\nraise RuntimeError('broken')\n", 3, "RuntimeError: broken"),
    ],
)
def test_an_exception_of_a_methods_code_is_told_by_file_line_and_message(
    tmp_path: Path, source: str, line: int, error: str
) -> None:
    path = tmp_path / "methods/mine/method.py"
    path.parent.mkdir(parents=True)
    path.write_text(source)
    load = f"import importlib.machinery as m; m.SourceFileLoader('mine', {str(path)!r}).load_module()"
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", load], capture_output=True, text=True)
    found = raised_in("started\n" + ran.stderr, "methods/mine")
    assert found is not None and found.startswith(f"methods/mine/method.py:{line}: {error}") and "\n" not in found


def test_a_file_without_a_method_is_told_with_what_to_write() -> None:
    error = "ValueError: /cache/1f/methods/mine/method.py: expected one subclass of Method, found 0"
    told = raised_in(LOG.format(frame="", error=error), "methods/mine")
    assert told is not None and told.startswith("methods/mine/method.py: expected one `class X(Method)`")


@pytest.mark.parametrize(
    ("frame", "error"),
    [
        ("", "RuntimeError: of the suite's own code"),
        ('  File "/methods/mine/method.py", line 2, in f\n', "killed by the machine"),
        ('  File "/methods/other/method.py", line 2, in f\n', "ValueError: of another method"),
    ],
)
def test_what_no_code_of_the_user_raised_is_told_as_it_was_printed(frame: str, error: str) -> None:
    assert raised_in(LOG.format(frame=frame, error=error), "methods/mine") is None


def test_an_endpoint_has_nothing_to_fetch_and_that_is_said(root: Path) -> None:
    out: list[str] = []
    assert called(root, "model", "fetch", "gpt-4o-prelude", out=out)[0] == 0
    assert out == [
        "gpt-4o-prelude: behind an endpoint, so there is nothing to fetch; ./upkeep doctor looks for its key\n"
    ]


def test_a_cell_that_needs_a_gpu_is_refused_before_anything_is_downloaded_or_built(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    out: list[str] = []
    code, said = called(root, "cell", "town/closed_book/default/qwen3-4b", out=out)
    assert code == 1 and "the model 'qwen3-4b' needs 1 GPU" in said and "remedy:" in said
    assert "built first" not in out[0] and not (root / "results/datasets").exists()


def test_a_paper_of_ones_own_is_no_edit_and_its_words_are_its_own(root: Path) -> None:
    shipped = [*root.glob("papers/oaks/*.yaml"), *root.glob("papers/oaks/*/*.yaml"), *root.glob("papers/oaks/*/*.csv")]
    sums = (f"{hash_file(path)}  {path.relative_to(root)}\n" for path in sorted(shipped))
    (root / "papers/SHA256SUMS").write_text("".join(sums))
    assert called(root, "new", "paper", "bench")[0] == 0
    catalog = Catalog(root)
    assert edited(catalog, "bench") == [] and asked(catalog, "bench") == ""
    assert edited(catalog, "oaks") == [] and asked(catalog, "oaks").startswith(
        "Models are asked in words of this suite"
    )
    (root / "config/config.yaml").write_text((root / "config/config.yaml").read_text().replace("prompts: {}", ""))
    mine = next((root / "papers/bench/prompts").glob("*.yaml")).stem
    with (root / "config/config.yaml").open("a") as file:
        file.write(f"prompts: {json.dumps({mine: 'mine.txt'})}\n")
    assert re.fullmatch(r"Here those of `\w+` are `mine.txt`\.", asked(Catalog(root), "bench"))


def test_the_card_in_the_docs_is_whole_and_builds(root: Path) -> None:
    text = (ROOT / "docs/add-a-dataset.md").read_text().partition("All of `dataset.yaml` for it:\n\n")[2]
    card = "".join(line[4:] for line in text.partition("\n\n")[0].splitlines(keepends=True))
    (root / "datasets/town/dataset.yaml").write_text(card + "\n")
    catalog = Catalog(root)
    assert build_dataset(catalog, "town", Layout(catalog.results).dataset("town")).probes == 10


@pytest.mark.parametrize(
    ("unknown", "text"),
    [(0, "2 images 1.5 MB"), (1, "2 images 1.5 MB and 1 of unknown size"), (2, "2 images of unknown size")],
)
def test_a_plan_says_no_size_where_it_knows_none(unknown: int, text: str) -> None:
    assert _disk_text(Disk(what="images", count=2, bytes=1.5e6 * (unknown < 2), unknown=unknown)) == text


@pytest.mark.parametrize(
    ("problem", "there"),
    [
        ("squeue is not on the PATH", False),
        ("squeue: fatal: Could not establish a configuration source", False),
        ("squeue: error: Unable to contact slurm controller", True),
    ],
)
def test_where_there_is_no_slurm_status_says_nothing_of_it(
    problem: str, there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "ask", lambda *_, **__: Output("", problem))
    assert queue.Queue.ask().there == there


def test_bytes_are_shown_as_text_is() -> None:
    assert excerpt(b'{"a": \xff') == excerpt('{"a": \xff') == "'{\"a\": \\xff'"
