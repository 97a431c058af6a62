"""A paper is a folder: `upkeep new paper` makes one that works at once, and nothing else names it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest

from conftest import copy_repository
from reported import report_of
from test_run import upkeep
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.grading.scores import read_scores
from upkeep.new import new_paper
from upkeep.report import verdicts


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_repository(tmp_path_factory.mktemp("papers"))


def test_a_new_paper_works_at_once(root: Path) -> None:
    made = upkeep(root, "new", "paper", "trial_1")
    assert made.returncode == 0 and "./upkeep run trial_1" in made.stdout
    written = [Path(line) for line in made.stdout.splitlines()[:-1]]
    assert {path.relative_to(root / "papers/trial_1").as_posix() for path in written} == {
        "README.md", "suite.yaml", "tables.yaml", "claims/accuracy.yaml", "metrics.py", "prompts/trial_1.yaml",
        "reference/table_1.csv",
    }  # fmt: skip
    for path in written:
        assert not re.search(r"new_paper|NewPaper", path.read_text()), path
    folder = root / "papers" / "trial_1"
    told = upkeep(root, "validate", str(folder))
    assert told.returncode == 0 and all(
        name in told.stdout for name in ("suite", "tables", "claims", "prompt", "metrics")
    ), told
    with (folder / "metrics.py").open("a") as file:
        whole = (folder / "metrics.py").read_text()
        file.write("\n\nFAMILY = measure(\n")
    told = upkeep(root, "validate", str(folder))
    assert told.returncode == 1 and re.search(r"metrics.py:\d+: the metrics cannot be imported: Syn", told.stderr), told
    (folder / "metrics.py").write_text(whole)

    done = upkeep(root, "run", "trial_1")
    assert done.returncode == 0, done.stdout + done.stderr
    table = (root / "results/tables/trial_1/trial_1/table_1.md").read_text()
    published, own = (
        next(line for line in table.splitlines() if start in line) for start in ("| pico |", "pico [mini]")
    )
    assert "0.0" in published and "100.0" in published
    assert re.search(r"\d\d\.\d", own)
    scores = read_scores(Catalog(root), "trial_1")

    def finding(without: str = "") -> verdicts.Finding:
        kept = scores.table.filter(pl.col("method") != without)
        (found,) = verdicts.findings(folder, kept, scores.resamples)
        return found

    found, lacking = finding(), ["closed_book on oaks_babi", "oracle on oaks_babi"]
    assert (found.published.outcome, found.own.stand_in.outcome) == ("holds", "holds")
    ((case,),) = found.own.stand_in.cases
    overall = scores.table.filter(pl.col("subset") == "all", pl.col("metric") == "accuracy")
    accuracy = dict(overall.select("method", "value").iter_rows())
    assert (case.name, case.lhs, case.rhs) == ("pico", accuracy["oracle"], accuracy["closed_book"])
    assert all(one.outcome == "not_run" and one.missing == lacking for one in (found.own.release, found.own.rebuild))
    alone = finding(without="oracle").own.stand_in
    assert (alone.outcome, alone.missing) == ("not_run", lacking[1:])
    page = report_of(root, "trial_1")
    assert "Trial1" in page and "With the text that holds the answer" in page and "as it must be" in page
    assert "papers/trial_1/tables.yaml: added" not in page, "a paper of one's own was never shipped"

    ours = folder / "claims/accuracy.yaml"
    ours.write_text(ours.read_text().replace('op: ">"', 'op: "<"').replace("published: holds", "published: fails"))
    found = finding()
    assert (found.published.outcome, found.own.stand_in.outcome) == ("fails", "fails"), "as a user states it"


def test_a_new_papers_prompt_is_asked_in_by_the_datasets_that_name_it(root: Path) -> None:
    new_paper(root, "asked")
    card = root / "datasets/oaks_babi/dataset.yaml"
    card.write_text(card.read_text().replace("prompt: oaks_babi", "prompt: asked"))
    done = upkeep(root, "cell", "oaks_babi_mini/gold/default/none")
    assert done.returncode == 0, done.stderr
    lines = (root / "results/cells/oaks_babi_mini/gold/default/none/predictions.jsonl").read_text().splitlines()
    assert lines and all(json.loads(line)["response"].startswith("Answer: ") for line in lines)


def test_a_new_papers_metric_is_scored_on_the_datasets_that_name_it(root: Path) -> None:
    new_paper(root, "measured")
    card = root / "datasets/oaks_babi/dataset.yaml"
    card.write_text(card.read_text().replace("metrics: oaks", "metrics: measured"))
    done = upkeep(root, "cell", "oaks_babi_mini/gold/default/none")
    assert done.returncode == 0, done.stderr
    assert upkeep(root, "score", "measured").returncode == 0
    scores = pl.read_parquet(root / "results/scores/measured/scores.parquet").filter(pl.col("subset") == "all")
    values = dict(scores.filter(pl.col("method") == "gold").select("metric", "value").iter_rows())
    assert values == {"accuracy": 100, "wrong_answer_rate": 0, "parse_rate": 100, "error_rate": 0}

    with (root / "papers/measured/metrics.py").open("a") as file:
        file.write("\n\nraise OSError('no such number')\n")
    told = upkeep(root, "score", "measured")
    assert re.search(r"papers/measured/metrics.py:\d+: the metrics cannot be imported: OSError: no such", told.stderr)
    assert "Traceback" not in told.stderr
    ran = upkeep(root, "run", "measured")
    assert ran.returncode == 1 and "Traceback" not in ran.stdout + ran.stderr, "complete cells without scores"
    assert "the metrics cannot be imported: OSError: no such number" in ran.stderr
    assert "cannot be imported" in report_of(root, "measured")


@pytest.mark.parametrize(
    "name", ["answers", "", "2x", "My", "a-b", "../x", "a/b", "x" * 61, "é", "a\n", "_a", "on", "null", "yes"]
)
def test_a_bad_name_is_refused_and_nothing_written(repository: Path, name: str) -> None:
    before = set(repository.rglob("*"))
    with pytest.raises(UpkeepError, match="no name for a paper"):
        new_paper(repository, name)
    assert set(repository.rglob("*")) == before


@pytest.mark.parametrize("taken", ["oaks", "mini", "oaks_babi", "mine"])
def test_no_paper_takes_the_name_of_another_a_suite_or_a_prompt(repository: Path, taken: str) -> None:
    new_paper(repository, "mine")
    before = {path: path.read_bytes() for path in (repository / "papers").rglob("*") if path.is_file()}
    with pytest.raises(UpkeepError, match=f"'{taken}' is there already"):
        new_paper(repository, taken)
    assert before == {path: path.read_bytes() for path in (repository / "papers").rglob("*") if path.is_file()}


def test_a_name_that_holds_the_templates_is_written_as_given(repository: Path) -> None:
    new_paper(repository, "a_new_paper")
    assert Catalog(repository).suite("a_new_paper").papers == ["a_new_paper"]
    assert "a_new_paper" in Catalog(repository).prompts
    assert Catalog(repository).suite("a_new_paper").label == "ANewPaper"
