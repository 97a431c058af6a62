"""A method whose predictions fail: every number says how many, and more than half of them end a run with a status of
their own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import CACHE, copy_repository
from reported import report_of

METHOD = """
from upkeep.cell import LLM, Answer, Method, Probe, Seen


class {name}(Method):
    async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
        if {condition}:
            return 5
        return Answer(response="")
"""
SUITE = """
label: failing
summary: A method that fails now and then, and one that always does.
papers: [oaks]
cells:
  - {datasets: [oaks_babi_mini], methods: [sometimes, always], models: [none]}
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = copy_repository(tmp_path_factory.mktemp("failing"))
    (root / "config" / "suites" / "failing.yaml").write_text(SUITE)
    for name, condition in (("sometimes", "probe.position == 0"), ("always", "True")):
        shutil.copytree(root / "methods" / "null", root / "methods" / name)
        (root / "methods" / name / "method.py").write_text(METHOD.format(name=name.title(), condition=condition))
        card = root / "methods" / name / "method.yaml"
        card.write_text(card.read_text().replace("Null (control)", name.title()))
    return root


def upkeep(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    told = {"UPKEEP_RUNTIME": "process", "UPKEEP_CACHE": str(CACHE), "PYTHONPATH": str(root / "src")}
    command = [sys.executable, "-m", "upkeep", "--root", str(root), *words]
    return subprocess.run(command, env=os.environ | told, capture_output=True, text=True, check=False, cwd=root)


def test_failed_predictions_stand_beside_every_number_and_most_of_them_are_an_exit_status(root: Path) -> None:
    done = upkeep(root, "run", "failing")
    assert done.returncode == 3, done.stdout + done.stderr
    failed = {}
    for job in json.loads(upkeep(root, "status", "failing", "--json").stdout)["jobs"]:
        assert job["state"] == "done"
        failed[job["name"].split("/")[1]] = job["failed"], job["total"], job["mostly_failed"]
    few, all_of_them = failed["sometimes"], failed["always"]
    assert 0 < few[0] < few[1] / 2 and not few[2]
    assert all_of_them[0] == all_of_them[1] == few[1] and all_of_them[2]

    assert f"({few[0]} failed)" in done.stdout and f"({few[1]} failed)" in done.stdout
    assert f"{few[0]} of {few[1]} predictions failed, {few[0]} of them: " in done.stderr
    assert re.search(
        r"of them: TypeError: methods/\w+/method.py: `answer` returned int, expected an Answer", done.stderr
    )
    assert "its numbers say nothing about the method" in done.stderr
    assert "./upkeep logs oaks_babi_mini/always/default/none" in done.stderr
    report = report_of(root, "failing")
    assert f"{few[1]} of {few[1]} predictions of oaks_babi_mini/always/default/none failed" in report
    assert f"{few[0]} failed" in report
    shown = upkeep(root, "status", "failing").stdout
    assert f"oaks_babi_mini/sometimes/default/none: {few[0]} of {few[1]}" in shown
    assert "more than half" in shown


def test_one_cell_says_it_too(root: Path) -> None:
    always = upkeep(root, "cell", "oaks_babi_mini/always/default/none")
    assert always.returncode == 3 and "say nothing about the method" in always.stderr
    assert upkeep(root, "cell", "oaks_babi_mini/sometimes/default/none").returncode == 0
