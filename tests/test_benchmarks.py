"""Every benchmark runs and prints its table: each is started at its smallest size. How fast it is is not judged."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from conftest import CACHE, ROOT, copy_repository, make_smaller
from scored_cells import line, write_cell
from upkeep.building.content import PARTS
from upkeep.catalog import Catalog
from upkeep.contract import ContextUse, DatasetCard, Prediction, Retrieved
from upkeep.integrity import fingerprint, write_sealed
from upkeep.jobs import Cell
from upkeep.layout import Layout

FOLDER = ROOT / "benchmarks"
ORDER = ["--intervals", "3", "--questions", "8", "--held", "2"]
STRANDS = ["--streams", "2", "--intervals", "2", "--questions", "70"]
PREFIX = ["--intervals", "2", "--questions", "3", "--chunk-tokens", "100", "--orders"]


def start(name: str, *options: str | Path, python: str | Path = sys.executable) -> tuple[int, list[list[str]]]:
    """A benchmark's exit status and the rows of its first table."""
    done = subprocess.run(
        [python, FOLDER / f"{name}.py", *options],
        capture_output=True,
        text=True,
        env=os.environ | {"UPKEEP_CACHE": str(CACHE), "PYTHONPATH": str(ROOT / "src")},
        timeout=900,
    )
    assert "Traceback" not in done.stderr, done.stdout[-2000:] + done.stderr[-4000:]
    lines = done.stdout[done.stdout.find("|") :].partition("\n\n")[0].splitlines()
    head, rule, *rows = [[value.strip() for value in one.strip("|").split("|")] for one in lines]
    assert all(re.fullmatch(":?-+:?", value) for value in rule), done.stdout
    assert rows and all(len(row) == len(head) for row in rows), done.stdout
    return done.returncode, rows


def number(text: str) -> float:
    """The number that a value begins with: `8.9`, `1,014,000`, `100.0%`."""
    return float(text.split()[0].rstrip("%").replace(",", ""))


@pytest.mark.parametrize(
    ("name", "options", "rows", "columns"),
    [
        ("validation", ["2000"], 3, (1, 2, 3)),
        ("scoring", ["--predictions", "1", "--streams", "1", "--cells", "2"], 4, (1, 3, 4, 5, 6)),
        ("dag", ["--cells", "1"], 1, (0, 1, 2)),
        ("rescoring", ["--cells", "3"], 4, (0, 2, 3)),
        ("report", ["--cells", "3", "--answers", "2"], 3, (2, 4, 5)),
        ("claims", ["--papers", "evowiki"], 1, (1, 2, 3, 5)),
        ("intervals", ["--studies", "20", "--questions", "30"], 13, (1, 2, 4)),
        ("intervals", ["--studies", "100", "--questions", "10"], 13, (1, 2, 4)),
        ("findings", ["--studies", "50", "--questions", "60", "--findings", "imprint-c15"], 1, (1, 2, 3)),
        ("record", ["--replies", "2000"], 1, (0, 2, 4)),
        ("replay", ["--intervals", "2", "--questions", "8"], 2, (1, 2, 3, 4, 6)),
        ("loading", ["--repeats", "1"], 2, (1, 2, 3)),
        ("lanes", ["--requests", "9", "--documents", "1"], 5, (3, 4, 5, 6)),
        ("order", [*ORDER, "--methods", "rag_bm25/k2"], 4, (2, 3, 4, 5, 6)),
        ("order", [*ORDER, "--sweep", "--methods", "rag_bm25/k1", "rag_bm25/k2"], 4, (2, 3, 4, 5)),
        ("strands", [*STRANDS, "--methods", "closed_book/default"], 3, (1, 3, 4)),
        ("prefix", [*PREFIX, "the suite's order", "random order"], 2, (1, 2, 3, 4)),
        pytest.param(
            "prefix", [*PREFIX, "no prefix cache", "--engine", "vllm"], 1, (1, 2, 3, 4), marks=pytest.mark.vllm
        ),
        ("shared", ["--runtime", "process", "--model", "tiny", "--datasets", "1", "--questions", "4"], 2, (0, 2, 3)),
        ("starts", ["--runtime", "process", "--repeats", "1"], 3, (2, 3, 4)),
        pytest.param(
            "memories",
            ["--streams", "2", "--questions", "8", "--documents", "1", "--budget", "4"],
            4,
            (2, 3, 4, 5),
            marks=pytest.mark.vllm,
        ),
        pytest.param("cluster", ["--few", "1", "--cells", "2"], 3, (0, 2, 3, 4), marks=pytest.mark.slurm),
    ],
    ids=lambda value: "vllm" if "vllm" in str(value) else None,
)
def test_every_benchmark_prints_a_table_of_positive_numbers(
    request: pytest.FixtureRequest, name: str, options: list[str], rows: int, columns: tuple[int, ...]
) -> None:
    python = request.getfixturevalue("vllm_python") if "vllm" in options else sys.executable
    status, found = start(name, *options, python=python)
    assert status == 0 and len(found) == rows
    assert all(number(row[column]) > 0 for row in found for column in columns), found


@pytest.mark.vllm
def test_cells_of_a_sweep_side_by_side_have_vllm_compute_little_more_than_the_largest_alone() -> None:
    """By its own count and by the benchmark's; the predictions are the same."""
    size = ["--intervals", "6", "--questions", "6", "--held", "3"]
    status, rows = start("order", *size, "--engine", "--sweep", "--methods", "rag_bm25/k1", "rag_bm25/k3")
    assert status == 0 and len(rows) == 7
    *computed, planned = (number(row[4]) for row in (*rows[:3], *rows[4:], rows[3]))
    for largest, apart, beside in (computed[:3], computed[3:]):
        assert beside <= 1.2 * largest and beside < 0.95 * apart, rows
        assert planned == pytest.approx(beside, rel=0.05), rows


@pytest.mark.vllm
def test_every_peer_gives_the_replies_of_the_suite() -> None:
    size = ["--intervals", "4", "--questions", "8", "--chunk-tokens", "250"]
    status, (ours, *others) = start("peers", "--models", "tiny", *size)
    assert status == 0 and ours[4] == "1.00" and len(others) == 5
    for how in others:
        assert number(how[6]) >= 90 and number(how[4]) > 0 and not how[7], how


def test_no_benchmark_is_left_out_here_or_on_the_page() -> None:
    there = {path.stem for path in FOLDER.glob("*.py")}
    assert there == set(re.findall(r"benchmarks/([a-z]+)\.py", (FOLDER / "README.md").read_text()))
    assert there == {name for name in there if f'"{name}"' in Path(__file__).read_text()}


def test_each_index_of_the_corpus_holds_the_pieces_that_the_articles_gave() -> None:
    status, found = start("corpus", "--gigabytes", "0.001", "--articles", "40", "--embedded", "3")
    figures = {(step, what): number(value) for step, _, what, value in found}
    assert status == 0 and {step for step, _ in figures} == {"dump", "chunks", "bm25", "dense"}
    assert figures["dump", "facts"] > 100
    assert figures["chunks", "pieces"] == figures["bm25", "pieces"] == figures["dense", "pieces"] >= 40
    assert figures["dense", "vectors a piece"] >= 1 and min(figures.values()) >= 0


def test_a_false_finding_about_few_questions_is_called_certain_in_at_most_one_study_of_twenty() -> None:
    """As simulated: 5% and what 400 studies exceed by chance once in a thousand."""
    status, found = start("verdicts", "--studies", "400", "--questions", "10")
    assert status == 0 and len(found) == 37
    shares = [row[column] for row in found for column in (3, 4) if row[column]]  # nearness has one side
    assert len(shares) == 72 and max(map(number, shares)) <= 8.4, found


def test_a_finding_that_is_true_by_a_clear_size_is_called_so_more_often_the_more_questions_there_are() -> None:
    status, found = start("verdicts", "--clear", "--studies", "20", "--questions", "20", "300")
    assert status == 0 and len(found) == 12
    for few, many in zip(found[::2], found[1::2], strict=True):
        assert number(few[3]) <= number(many[3]) and number(many[3]) >= 95, (few, many)


@pytest.mark.vllm
def test_both_engines_reply_the_same(tmp_path: Path) -> None:
    root = copy_repository(tmp_path)
    make_smaller(root)
    status, found = start("engines", "--runtime", "process", "--root", root, "--datasets", "oaks_babi_mini")
    assert (status, found) == (0, [["oaks_babi_mini", "80", "100.0%"]])


# ---------------------------------------------------------------- whether methods differ for the right reasons

QUESTIONS = 40
KNOWN = {
    ("stable", "none"): "right",
    ("evolved", "before_cutoff"): "right",
    ("evolved", "after_cutoff"): "old",
    ("uncharted", "none"): "wrong",
}
"""Of questions of a level that changed then, what the model says that is asked without any document."""
FOUND = {"rag_bm25/k1": 10, "rag_bm25/k3": 25, "rag_bm25/k10": 27}
"""Of the questions, those whose evidence a method retrieves."""


def write_dataset(root: Path, name: str) -> None:
    """Questions with one piece of evidence each, in the first of two documents."""
    folder = Layout(root / "results").dataset(name)
    folder.mkdir(parents=True)
    ids = [f"q{n:02}@1" for n in range(QUESTIONS)]
    kinds = [list(KNOWN)[n % len(KNOWN)] for n in range(QUESTIONS)]
    choices = [["right", "old", "wrong"]] * QUESTIONS if name == "oaks_novel_changes" else [None] * QUESTIONS
    documents = {"document_id": ["d0", "d1"], "stream": "s", "position": [0, 1], "tokens": 1}
    pl.DataFrame(documents).write_parquet(folder / "documents.parquet")
    pl.DataFrame(
        {
            "probe_id": ids,
            "question_id": [id[:3] for id in ids],
            "stream": "s",
            "position": 1,
            "form": "short",
            "options": choices,
        },
        schema_overrides={"options": pl.List(pl.String)},
    ).write_parquet(folder / "probes.parquet")
    pl.DataFrame(
        {
            "probe_id": ids,
            "answers": [["right"]] * QUESTIONS,
            "outdated": [["old"]] * QUESTIONS,
            "evidence": [["d0"]] * QUESTIONS,
            "phase": 1,
            "slice_level": [level for level, _ in kinds],
            "slice_changed": [changed for _, changed in kinds],
            "slice_hop_number": "1",
            "slice_changes": ["sparse" if n % 2 else "frequent" for n in range(QUESTIONS)],
        }
    ).write_parquet(folder / "gold.parquet")
    card = DatasetCard(
        dataset=name,
        label="",
        source="",
        licence="",
        tokenizer="",
        chunk_tokens=1,
        streams=1,
        documents=2,
        probes=QUESTIONS,
        questions=QUESTIONS,
        slices={},
        statistics={},
        stands_for=None,
        content=dict.fromkeys(PARTS, "0" * 64),
        files={path.name: fingerprint(path) for path in folder.glob("*.parquet")},
    )
    write_sealed(folder / "card.json", card)


def reply(dataset: str, method: str, n: int) -> Prediction:
    """What a method that reads well says to a question."""
    retrieved = [Retrieved(id="d0", score=1.0, rank=1)] if n < FOUND.get(method, 0) else []
    if dataset == "oaks_novel_changes":
        answer = "right" if n % 2 else "old"
    elif method in ("oracle/default", "long_context/default") or retrieved:
        answer = "right"
    else:
        answer = KNOWN[list(KNOWN)[n % len(KNOWN)]] if dataset == "evowiki_mini" else "wrong"
    return line(f"q{n:02}@1", answer, retrieved=retrieved, context=ContextUse(documents=1))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone whose suite `mini` has run."""
    root = copy_repository(tmp_path_factory.mktemp("sense"))
    for card in root.glob("datasets/*/dataset.yaml"):  # what is made up has no families of questions to judge
        card.write_text(re.sub(r"^judges: .*\n", "", card.read_text(), flags=re.M))
    catalog = Catalog(root)
    cells = [cell for cell in catalog.cells(catalog.suite("mini")) if cell.model == "pico"]
    for dataset in {cell.dataset for cell in cells}:
        write_dataset(root, dataset)
    for cell in cells:
        answer(root, cell, f"{cell.method}/{cell.variant}")
    return root


def answer(root: Path, cell: Cell, method: str) -> None:
    """Publish a cell that answers as a method does."""
    replies = [reply(cell.dataset, method, n) for n in range(QUESTIONS)]
    write_cell(Layout(root / "results").cell(cell), replies, cell=cell)


def test_methods_that_differ_for_the_right_reasons_are_seen_to(finished: Path) -> None:
    status, found = start("sense", "--root", finished)
    assert [row for row in found if row[-1] != "yes"] == [] and status == 0
    assert len(found) == 28


def test_a_cell_that_was_not_run_ends_the_table_without_a_traceback(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, root := tmp_path / "root")
    shutil.rmtree(root / "results/cells/oaks_novel_changes")
    status, found = start("sense", "--root", root)
    assert (status, len(found)) == (1, 26)


def test_methods_that_do_not_differ_are_seen_not_to(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, root := tmp_path / "root")
    for folder in (root / "results/cells").glob("*/closed_book/default/pico"):
        answer(root, Cell.parse(folder.relative_to(root / "results/cells").as_posix()), "oracle/default")
    status, found = start("sense", "--root", root)
    assert status == 1
    above = [row for row in found if "`oracle` above `closed_book`" in row[0]]
    assert len(above) == 7 and all(row[1:] == ["+0.0 [+0.0, +0.0]", "**no**"] for row in above)


@pytest.mark.parametrize(
    ("like", "half", "holds"),
    [
        ("oracle/default", "oracle/default", ["yes", "**no**", "yes"]),
        ("closed_book", "closed_book", ["**no**", "yes", "**no**"]),
    ],
)
def test_a_cache_is_seen_to_be_as_good_as_it_is(
    finished: Path, tmp_path: Path, like: str, half: str, holds: list[str]
) -> None:
    """A prefix that answers like one method, and half of a cache like another, beside a sixteenth like the oracle."""
    shutil.copytree(finished, root := tmp_path / "root")
    catalog = Catalog(root)
    for cell in catalog.cells(catalog.suite("caches")):
        if "+" in cell.model or cell.method == "kvzip":
            answer(root, cell, like if "+" in cell.model else half if cell.variant == "ratio2" else "oracle/default")
    status, found = start("sense", "--suite", "caches", "--root", root)
    assert status == 1 and [row[-1] for row in found] == holds


@pytest.mark.parametrize(
    ("good", "failing"),
    [
        ((), 7),
        (("hipporag2", "memagent", "a_mem", "rag_agentic", "deep_research", "y/budget128"), 0),
        (("closed_book", "d/budget128", "oracle_memory"), 11),
    ],
    ids=["none is better than another", "those that should be are better", "the others are better"],
)
def test_methods_that_work_through_the_context_are_seen_to_be_as_good_as_they_are(
    finished: Path, tmp_path: Path, good: tuple[str, ...], failing: int
) -> None:
    shutil.copytree(finished, root := tmp_path / "root")
    catalog = Catalog(root)
    for cell in catalog.cells(catalog.suite("context")):
        right = any(name in str(cell) for name in good)
        answer(root, cell, "oracle/default" if right else "few_shot/five")
    status, found = start("sense", "--suite", "context", "--root", root)
    assert (status, len(found)) == (int(failing > 0), 11)
    assert [row[-1] for row in found].count("**no**") == failing


def test_a_plan_is_within_a_fifth_of_what_a_model_that_follows_its_orders_is_asked(tmp_path: Path) -> None:
    cells = ["a_mem/default", "hipporag2/k2", "kvzip/default", "memagent/budget64", "rag_agentic/k3"]
    cells.append("chunked_summary/budget128_q")
    status, rows = start("costs", "--results", tmp_path, "--cells", *cells)
    assert status == 0 and [row[0] for row in rows] == cells
    assert all(0.8 <= number(value) <= 1.25 for row in rows for value in row[-2:])


def test_each_method_that_asks_a_model_has_its_costs_on_the_page_of_plans() -> None:
    catalog = Catalog(ROOT)
    cards = {name: catalog.method(name) for name in catalog.methods}
    asking = {name for name, c in cards.items() if c.model and c.sees == "documents" and not (c.trains or c.measures)}
    page, code = (ROOT / "docs/plan.md").read_text(), (FOLDER / "costs.py").read_text()
    rows = set(re.findall(r"^\| (\w+/\w+) \|", page, re.MULTILINE))
    assert {row.partition("/")[0] for row in rows} == asking
    assert rows == set(re.findall(r'"(\w+/\w+)"', code[code.index("CELLS = (") : code.index("# fmt: skip")]))
