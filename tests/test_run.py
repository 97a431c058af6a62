"""`upkeep run` from end to end with the two controls: what runs, what is reused, what a failure leaves."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from conftest import CACHE, copy_repository, keep_one_figure
from reported import report_of
from upkeep.contract import Manifest
from upkeep.file_locks import locked
from upkeep.report.terminal import Ran

SUITE = """
label: controls
summary: The two controls.
papers: [oaks]
cells:
  - {datasets: [oaks_babi_mini], methods: ["null", gold], models: [none]}
"""


@dataclass(frozen=True)
class Finished:
    """A repository whose suite has run, and what the run printed."""

    root: Path
    out: str


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    root = copy_repository(tmp_path_factory.mktemp("run"))
    (root / "config" / "suites" / "controls.yaml").write_text(SUITE)
    keep_one_figure(root, "oaks")
    return Finished(root, run(root))


@pytest.fixture
def root(finished: Finished, tmp_path: Path) -> Path:
    """A copy, to be changed. With times, by which Snakemake goes."""
    subprocess.run(["cp", "-a", finished.root, tmp_path / "upkeep"], check=True)
    return tmp_path / "upkeep"


def upkeep(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "UPKEEP_RUNTIME": "process",
        "UPKEEP_CACHE": str(CACHE),
        "PYTHONPATH": str(root / "src"),
    }
    command = [sys.executable, "-m", "upkeep", "--root", str(root), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=root)


def starts(root: Path) -> dict[str, str]:
    """When each published cell was run."""
    found = {}
    for path in sorted((root / "results" / "cells").rglob("manifest.json")):
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
        found[manifest.cell.split("/")[1]] = manifest.start
    return found


def run(root: Path) -> str:
    result = upkeep(root, "run", "controls")
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_a_run_ends_with_tables_and_the_place_of_the_report(finished: Finished) -> None:
    root, out = finished.root, finished.out
    assert "runtime: process" in out and "not isolated" in out
    assert "100.0" in out and "Report:" in out
    page = report_of(root, "controls")
    assert "as it must be" in page and "not isolated" in page


def test_a_run_says_for_programs_what_it_ends_with_and_nothing_else_there(root: Path, finished: Finished) -> None:
    shutil.rmtree(root / "results" / "cells" / "oaks_babi_mini" / "gold")
    result = upkeep(root, "run", "controls", "--json")
    assert result.returncode == 0, result.stderr
    told = msgspec.json.decode(result.stdout, type=Ran)
    assert json.loads(result.stdout).keys() == {*Ran.__struct_fields__}
    assert (told.suite, told.cells, told.complete, told.sample, told.refused) == ("controls", 2, 2, "", {})
    assert {one.cell.split("/")[1]: (one.value, one.trials, one.n) for one in told.accuracies} == {
        "null": (0.0, 1, 320),
        "gold": (100.0, 1, 320),
    }
    assert told.report is not None and Path(told.report).is_file()
    # What people read goes elsewhere, as it was.
    assert all(line in result.stderr for line in finished.out.splitlines() if "gold/" in line and "100.0" in line)
    assert "Report:" in result.stderr and "runtime: process" in result.stderr


def test_a_second_run_does_nothing_and_says_so(root: Path) -> None:
    before = starts(root)
    assert "nothing to do" in run(root)
    assert starts(root) == before


def test_a_cell_that_another_suite_has_asked_otherwise_is_had_again_by_the_next_run(root: Path) -> None:
    before = starts(root)
    (root / "config" / "suites" / "others.yaml").write_text(SUITE + "seed: 7\n")
    assert upkeep(root, "cell", "oaks_babi_mini/gold/default/none", "--suite", "others").returncode == 0
    between = starts(root)
    assert "nothing to do" not in run(root)
    after = starts(root)
    assert before["gold"] != between["gold"] != after["gold"] and after["null"] == before["null"]
    assert "nothing to do" in run(root)


@pytest.mark.parametrize("metadata", ["kept", "lost"])
def test_editing_a_method_runs_its_cells_again_and_no_others(root: Path, metadata: str) -> None:
    before = starts(root)
    with (root / "methods" / "null" / "method.py").open("a") as file:
        file.write(f"# edited, Snakemake's records {metadata}\n")
    if metadata == "lost":
        shutil.rmtree(root / ".snakemake")
    run(root)
    after = starts(root)
    assert after["null"] != before["null"] and after["gold"] == before["gold"]


def test_editing_a_prompts_words_runs_its_cells_again_and_its_comments_none(root: Path) -> None:
    before = starts(root)
    prompt, other = (root / "papers/oaks/prompts" / f"{name}.yaml" for name in ("oaks_babi", "oaks_novel"))
    prompt.write_text(f"# Mine.\n{prompt.read_text()}")
    other.write_text(other.read_text().replace("Choose", "Take"))
    run(root)
    assert starts(root) == before
    prompt.write_text(prompt.read_text().replace("Rely on the text", "Rely on it"))
    run(root)
    after = starts(root)
    assert after["null"] != before["null"] and after["gold"] != before["gold"]


def test_editing_what_only_people_read_runs_nothing_again(root: Path) -> None:
    before = starts(root)
    readme = root / "methods" / "gold" / "README.md"
    readme.write_text(readme.read_text() + "\nMore.\n")
    run(root)
    assert starts(root) == before


def test_a_failed_cell_is_named_with_its_reason_and_the_others_are_reported(root: Path) -> None:
    method = root / "methods" / "null" / "method.py"
    method.write_text("raise RuntimeError('broken on purpose')\n")
    result = upkeep(root, "run", "controls")
    assert result.returncode != 0
    said = result.stdout + result.stderr
    assert "broken on purpose" in said and "null" in said
    assert "100.0" in result.stdout
    page = report_of(root, "controls")
    assert "broken on purpose" in page


def test_a_batch_that_fails_keeps_the_cells_that_it_has_published(root: Path) -> None:
    shutil.rmtree(root / "results" / "cells")
    method = root / "methods" / "gold" / "method.py"
    good = method.read_text()
    method.write_text("raise RuntimeError('broken on purpose')\n")
    assert upkeep(root, "run", "controls").returncode != 0
    before = starts(root)
    assert list(before) == ["null"]
    method.write_text(good)
    run(root)
    assert starts(root)["null"] == before["null"]


DAMAGED = {
    "results and inputs": {
        "results/cells/oaks_babi_mini/gold/default/none/predictions.jsonl": {"gold"},
        "results/datasets/oaks_babi_mini/gold.parquet": set[str](),
    },
    "a plan": {"results/plans/batches/none.base.1cpu.0/plan": set[str]()},
}
"""Files that are damaged at once -> the cells that are run again for each."""


@pytest.mark.parametrize("what", DAMAGED)
def test_what_is_damaged_is_made_again_by_the_next_run_and_nothing_else(
    finished: Finished, root: Path, what: str
) -> None:
    table = [line for line in finished.out.splitlines() if "/default/none  " in line]
    assert len(table) == 2
    before = starts(root)
    for file in DAMAGED[what]:
        good = (root / file).read_bytes()
        (root / file).write_bytes(bytes(9) + good[9:])
    out = run(root)
    # A plan is written again before anything is asked for, with what it said before.
    assert ("nothing to do" in out) == (what == "a plan")
    assert [line for line in out.splitlines() if "/default/none  " in line] == table
    after = starts(root)
    assert {cell for cell in after if after[cell] != before[cell]} == set().union(*DAMAGED[what].values())
    assert all((root / file).read_bytes()[:9] != bytes(9) for file in DAMAGED[what])
    assert "nothing to do" in run(root)


def test_a_cell_that_has_lost_any_of_its_files_is_run_again(root: Path) -> None:
    cells, before = root / "results/cells/oaks_babi_mini", starts(root)
    (cells / "gold/default/none/manifest.json").unlink()
    (cells / "null/default/none/measured.parquet").unlink()
    run(root)
    after = starts(root)
    assert after["gold"] != before["gold"] and after["null"] != before["null"]
    assert "nothing to do" in run(root)


def test_one_cell_can_be_run_again_by_its_name(root: Path) -> None:
    before = starts(root)
    result = upkeep(root, "cell", "oaks_babi_mini/gold/default/none", "--force")
    assert result.returncode == 0, result.stderr
    after = starts(root)
    assert after["gold"] != before["gold"] and after["null"] == before["null"]
    assert upkeep(root, "validate", "results/cells/oaks_babi_mini/gold/default/none").returncode == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "minni"], ["unknown suite", "mini"]),
        (["run", "oaks"], ["GPU"]),
        (["cell", "oaks_babi_mini/rag_bm25/k999/tiny"], ["no variant", "method.yaml", "remedy"]),
        (["cell", "oaks_novel/gold/default/none"], ["oaks_novel", "remedy"]),
        (["dataset", "build", "oaks_novel"], ["remedy"]),
        (["validate", "nowhere"], ["nowhere"]),
        (["new", "method", "gold"], ["gold"]),
    ],
)
def test_what_a_user_gets_wrong_is_said_without_a_traceback(root: Path, words: list[str], said: list[str]) -> None:
    result = upkeep(root, *words)
    assert result.returncode == 1 and "Traceback" not in result.stderr
    for word in said:
        assert word in result.stderr


def test_snakemake_alone_knows_the_same_workflow(root: Path) -> None:
    target = "results/cells/oaks_babi_mini/gold/default/none/predictions.jsonl"
    environment = os.environ | {"PYTHONPATH": str(root / "src"), "UPKEEP_RUNTIME": "process"}
    snakemake = [sys.executable, "-m", "snakemake", "--profile", "profiles/local", "--config", "suite=controls"]
    for rest in (["-n", "all"], ["-n", "--until", "score"], ["-n", target]):
        result = subprocess.run([*snakemake, *rest], env=environment, capture_output=True, text=True, cwd=root)
        assert result.returncode == 0, result.stderr
        assert "Nothing to be done" in result.stderr + result.stdout


def test_cells_of_several_batches_are_asked_for_by_their_files_wherever_results_are(root: Path, tmp_path: Path) -> None:
    elsewhere = {"UPKEEP_RESULTS": str(tmp_path / "elsewhere"), "UPKEEP_CELLS_PER_JOB": "1"}
    environment = os.environ | {"PYTHONPATH": str(root / "src"), "UPKEEP_RUNTIME": "process"} | elsewhere
    snakemake = [sys.executable, "-m", "snakemake", "--profile", "profiles/local", "--config", "suite=controls", "-n"]
    cells = [f"{tmp_path}/elsewhere/cells/oaks_babi_mini/{name}/default/none" for name in ("null", "gold")]
    files = [f"{cell}/predictions.jsonl" for cell in cells]
    result = subprocess.run([*snakemake, *files], env=environment, capture_output=True, text=True, cwd=root)
    assert result.returncode == 0, result.stderr
    assert all(f"batch none.base.1cpu.{n}" in result.stdout + result.stderr for n in (0, 1))


def test_a_second_run_beside_a_live_one_is_refused_and_changes_nothing(root: Path) -> None:
    shutil.rmtree(root / "results" / "cells" / "oaks_babi_mini" / "gold")
    before = {path: path.stat().st_mtime_ns for path in (root / "results").rglob("*") if path.name != "lock"}
    snakemake = [sys.executable, "-m", "snakemake", "all", "--profile", "profiles/local", "--config", "suite=controls"]
    environment = os.environ | {"PYTHONPATH": str(root / "src"), "UPKEEP_RUNTIME": "process"}
    with locked(root / "results" / "run"):
        said = [
            upkeep(root, "run", "controls"),
            upkeep(root, "setup", "controls"),
            subprocess.run(snakemake, env=environment, capture_output=True, text=True, cwd=root),
        ]
        assert upkeep(root, "run", "controls", "--dry-run").returncode == 0, "looking is allowed"
    for result in said:
        assert result.returncode == 1
        assert "another run is at work" in result.stderr and f"process {os.getpid()} on" in result.stderr
        assert "Traceback" not in result.stderr
    after = {path: path.stat().st_mtime_ns for path in (root / "results").rglob("*") if path.name != "lock"}
    assert after == before


def test_a_deleted_cell_is_run_again_alone_and_a_lock_that_a_killed_snakemake_left_blocks_nobody(root: Path) -> None:
    before = starts(root)
    shutil.rmtree(root / "results" / "cells" / "oaks_babi_mini" / "gold")
    lock = root / ".snakemake" / "locks" / "0.output.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.write_text("results/cells/oaks_babi_mini/gold/default/none/predictions.jsonl\n")
    run(root)
    after = starts(root)
    assert after["null"] == before["null"] and after["gold"] != before["gold"]
