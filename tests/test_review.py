"""`./upkeep review` says whether a suite is what the release recorded, and names each number that is not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import msgspec
import polars as pl
import pytest

from host_fakes import ScriptedRuntime
from suite_fakes import CELLS, GUIDED, PLAIN, TRAINED, called, make
from test_diff import answer
from upkeep.catalog import Catalog
from upkeep.execution.supervise import run_cell
from upkeep.jobs import Cell
from upkeep.operations.review import comparing, release
from upkeep.operations.review.release import Processor


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "root"
    make(root, "text")
    out: list[str] = []
    assert called(root, "review", "--record", out=out) == (0, "") and f"{len(CELLS)} cells" in out[0]
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "root", symlinks=True))


def reviewed(root: Path) -> tuple[int, str, str]:
    """Exit status, what was named, and the page."""
    out: list[str] = []
    status, said = called(root, "review", "--as-is", out=out)
    page = Path(out[0].splitlines()[-1])
    assert ("review passed" if status == 0 else "review failed") in out[0]
    return status, said, page.read_text()


def test_what_is_as_it_was_recorded_passes_and_the_page_has_every_cell(root: Path) -> None:
    status, said, page = reviewed(root)
    assert (status, said) == (0, "")
    assert all(f"| {cell} |" in page for cell in CELLS)
    assert "The review passed: 3 cells" in page and "This machine" in page and "Nothing." in page


def one_prediction(root: Path) -> None:
    path = root / f"results/cells/{PLAIN}/predictions.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    said = msgspec.json.decode(lines[3])
    lines[3] = msgspec.json.encode(said | {"response": "something else"}) + b"\n"
    path.write_bytes(b"".join(lines))


def one_prediction_and_what_vouches_for_it(root: Path) -> None:
    answer(root, PLAIN, lambda probe, trial: True)


def one_method_line(root: Path) -> None:
    path = root / "methods/echo/method.py"
    path.write_text(path.read_text() + "\nLATER = 1\n")


def one_weight(root: Path) -> None:
    path = root / "weights/model.safetensors"
    path.write_text(path.read_text().replace("text", "tExt"))


def one_published_number(root: Path) -> None:
    path = root / "papers/toy/reference/table_1.csv"
    path.write_text(path.read_text().replace("61.5", "61.6"))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (one_prediction, [PLAIN, "not the file that was written: ", "@", "trial"]),
        (one_prediction_and_what_vouches_for_it, [f"{PLAIN}: accuracy", "recorded", "answers", "are others"]),
        (one_method_line, [PLAIN, TRAINED, "method_code"]),
        (one_weight, [PLAIN, "model.safetensors"]),
        (one_published_number, ["papers/toy/reference/table_1.csv", "changed"]),
        (lambda root: shutil.rmtree(root / f"results/cells/{GUIDED}"), [GUIDED, "it was not run"]),
    ],
    ids=lambda given: given.__name__ if callable(given) else "",
)  # fmt: skip
def test_what_was_changed_fails_and_is_named(root: Path, change: Callable[[Path], None], named: list[str]) -> None:
    change(root)
    status, said, page = reviewed(root)
    assert status == 1
    for word in named:
        assert word in said and word.replace("|", "\\|") in page, (word, said)


def test_a_line_of_a_method_is_named_also_where_no_answer_is_another(root: Path) -> None:
    one_method_line(root)
    run_cell(Catalog(root), Cell.parse(PLAIN), runtime=ScriptedRuntime())
    run_cell(Catalog(root), Cell.parse(TRAINED), runtime=ScriptedRuntime())
    status, said, _ = reviewed(root)
    assert status == 1 and f"{PLAIN}: method: recorded" in said and "answers" not in said


def test_on_another_kind_of_processor_a_model_may_say_else_within_the_recorded_interval(root: Path) -> None:
    catalog = Catalog(root)
    was, scores, answers = release.read(catalog, "mini")
    asked = {name: msgspec.structs.replace(cell, packages="a" * 16) for name, cell in was.cells.items()}
    there = msgspec.structs.replace(was, cells=asked)
    elsewhere = msgspec.structs.replace(there, processor=Processor(machine="another", features=[]))
    value = scores.filter(cell=PLAIN, metric="accuracy", subset="all")["value"][0]
    answer(root, PLAIN, lambda probe, trial: True)

    def found(of: release.Release, low: float, high: float) -> dict[str, bool]:
        wide = scores.with_columns(low=pl.lit(low), high=pl.lit(high))
        with mock.patch.object(comparing, "recorded", lambda manifest, marks: msgspec.structs.replace(
            release.recorded(manifest, marks), packages="a" * 16
        )):  # fmt: skip
            review = comparing.compare(Catalog(root), of, wide, answers)
        return {one.what: one.fails for one in review.differences if one.what in (PLAIN, f"{PLAIN}: accuracy")}

    assert value < 100
    assert found(elsewhere, 0.0, 100.0) == {PLAIN: False, f"{PLAIN}: accuracy": False}
    assert found(elsewhere, 0.0, 99.0) == {PLAIN: False, f"{PLAIN}: accuracy": True}
    assert found(there, 0.0, 100.0) == {PLAIN: True, f"{PLAIN}: accuracy": True}


def test_without_what_was_recorded_there_is_no_review_and_the_remedy_is_told(root: Path) -> None:
    shutil.rmtree(root / "releases")
    status, said = called(root, "review", "--as-is")
    assert status == 1 and "releases/mini/release.json" in said and "review mini --record" in said


def test_nothing_is_recorded_of_a_suite_that_is_not_complete(root: Path) -> None:
    shutil.rmtree(root / f"results/cells/{GUIDED}")
    status, said = called(root, "review", "--record")
    assert status == 1 and GUIDED in said and "./upkeep run mini" in said
