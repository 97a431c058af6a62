"""`./upkeep review` says whether a suite is what the release recorded, and names each number that is not."""

from __future__ import annotations

import dataclasses
import math
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import msgspec
import polars as pl
import pytest
from msgspec.structs import replace

from host_fakes import ScriptedRuntime
from suite_fakes import CELLS, GUIDED, PLAIN, TRAINED, called, make, root
from test_diff import answer
from upkeep.catalog import Catalog
from upkeep.cell import machine
from upkeep.contract import Manifest, Served
from upkeep.errors import UpkeepError
from upkeep.execution.supervise import run_cell
from upkeep.grading.scores import scores_now
from upkeep.integrity import fingerprint, read_sealed, write_sealed
from upkeep.jobs import Cell
from upkeep.operations.review import comparing, release
from upkeep.operations.review.release import Processor
from upkeep.published import predictions

__all__ = ["root"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "root"
    make(root, "text")
    out: list[str] = []
    assert called(root, "review", "--record", out=out) == (0, "") and f"{len(CELLS)} cells" in out[0]
    return root


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


def test_the_release_of_a_clean_clone_names_its_commit_and_no_change(root: Path) -> None:
    shutil.rmtree(root / "releases")
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    for words in (("init", "--quiet"), ("add", "--all"), (*who, "commit", "--quiet", "--message", "all of it")):
        subprocess.run(["git", *words], cwd=root, check=True)
    found = release.record(Catalog(root), "mini").checkout
    assert found is not None and found.changed is False


def test_a_line_of_a_method_is_named_also_where_no_answer_is_another(root: Path) -> None:
    one_method_line(root)
    run_cell(Catalog(root), Cell.parse(PLAIN), runtime=ScriptedRuntime())
    run_cell(Catalog(root), Cell.parse(TRAINED), runtime=ScriptedRuntime())
    status, said, _ = reviewed(root)
    assert status == 1 and f"{PLAIN}: method: recorded" in said and "answers" not in said


def test_on_another_kind_of_processor_or_an_unknown_one_a_model_may_say_else_within_the_recorded_interval(
    root: Path,
) -> None:
    was, scores, answers = release.read(Catalog(root), "mini")
    answer(root, PLAIN, lambda probe, trial: True)  # its accuracy is 100 now
    here, elsewhere = Processor(machine="this", features=["fma"]), Processor(machine="another", features=[])

    def fails(
        before: Processor | None, now: Processor | None, *interval: float | None, value: float | None = 10.0
    ) -> tuple[bool, bool]:
        """Whether another answer does, and another accuracy."""
        asked = {name: replace(cell, packages="a" * 16, processor=before) for name, cell in was.cells.items()}
        told = zip(release.NUMBERS, (value, *interval), strict=True)
        numbers = scores.with_columns(pl.lit(one, pl.Float64).alias(name) for name, one in told)
        with mock.patch.object(comparing, "recorded", lambda manifest, marks: replace(
            release.recorded(manifest, marks), packages="a" * 16, processor=now
        )):  # fmt: skip
            review = comparing.compare(Catalog(root), replace(was, cells=asked), numbers, answers)
        found = {one.what: one.fails for one in review.differences}
        return found[PLAIN], found[f"{PLAIN}: accuracy with thinking=off"]

    assert fails(elsewhere, here, 0.0, 100.0) == fails(None, None, 0.0, 100.0) == (False, False)
    assert fails(elsewhere, here, 0.0, 99.0) == (False, True)
    assert fails(elsewhere, here, None, None) == (False, False), "the spread of trials is another, too"
    assert fails(elsewhere, here, None, None, value=None) == (False, True)
    assert fails(here, here, 0.0, 100.0) == fails(here, here, None, None) == (True, True)


def test_a_model_that_was_trained_elsewhere_has_numbers_whose_intervals_overlap(root: Path) -> None:
    was, scores, answers = release.read(Catalog(root), "mini")
    answer(root, TRAINED, lambda probe, trial: probe.startswith("a") or probe[1] == "0")
    (own,) = (
        release.numbers_of(scores_now(Catalog(root), "mini"))
        .filter(pl.col("cell") == TRAINED, pl.col("metric") == "accuracy", pl.col("subset") == "all")
        .rows(named=True)
    )
    low, value = own["low"], own["value"]
    name = comparing._name(own | {"whole": True})

    def fails(most: float, *, elsewhere: bool = True) -> bool:
        """Whether it does, with a recorded interval up to `most`."""
        there = replace(was.cells[TRAINED], packages="a" * 16, processor=Processor(machine="another", features=[]))
        there = replace(there, decided=there.decided | ({"weights": "0" * 16} if elsewhere else {}))
        told = zip(release.NUMBERS, (0.0, 0.0, most), strict=True)
        numbers = scores.with_columns(pl.lit(one, pl.Float64).alias(name) for name, one in told)
        with mock.patch.object(comparing, "recorded", lambda manifest, marks: replace(
            release.recorded(manifest, marks), packages="a" * 16
        )):  # fmt: skip
            review = comparing.compare(
                Catalog(root), replace(was, cells=was.cells | {TRAINED: there}), numbers, answers
            )
        return {one.what: one.fails for one in review.differences}[name]

    assert low < value - 1, "its interval is more than a point"
    assert not fails(low) and not fails(value), "they touch"
    assert fails(low - 0.1)
    assert fails(low, elsewhere=False) and not fails(value, elsewhere=False), "its own interval counts for nothing"


@pytest.mark.parametrize(
    ("numbers", "apart", "by", "metric", "may"),
    [
        (20, 1, 5.0, "accuracy_in_tenth", True),
        (19, 1, 5.0, "accuracy_in_tenth", False),
        (39, 2, 5.0, "accuracy_in_tenth", False),
        (40, 2, 5.0, "accuracy_in_tenth", True),
        (40, 1, 5.1, "accuracy_in_tenth", False),
        (40, 1, 0.1, "accuracy", False),
        (40, 0, 0.0, "accuracy", True),
    ],
)
def test_few_numbers_of_a_model_trained_elsewhere_may_lie_apart_and_by_little(
    numbers: int, apart: int, by: float, metric: str, may: bool
) -> None:
    """Of intervals of ten points, or less."""
    plain = {"cell": "a", "metric": "other", "subset": "all", "whole": True}
    rows = [
        plain | {"low": 0.0, "high": 10.0, "low_now": 10.0, "high_now": 15.0},
        *[plain | {"metric": metric, "low": 0.0, "high": 8.0, "low_now": 8.0 + by, "high_now": 18.0 + by}] * apart,
    ]
    rows += rows[:1] * (numbers - len(rows))
    unknown = [plain | dict.fromkeys(("low", "high", "low_now", "high_now"), value) for value in (None, math.nan)]
    both = pl.DataFrame([*rows, *unknown, *({**row, "cell": "b"} for row in rows)])
    assert comparing._may_be_apart(both, {"a"}) == ({"a"} if may else set())


def test_what_ran_on_gpus_or_another_cpu_or_behind_an_endpoint_is_not_known_to_be_of_one_kind(root: Path) -> None:
    manifest = read_sealed(root / f"results/cells/{PLAIN}/manifest.json", Manifest, "")
    marks = release.marks_of([])

    def of(engine: str = "", **hardware: object) -> release.RecordedCell:
        named = dict.fromkeys(("engine", "engine_version"), "x")
        one = Served(record="0" * 64, image=None, digest=None, packages={}, hardware=hardware, **named)
        environment = replace(manifest.environment, engine=engine, served={"reader": one} if hardware else {})
        return release.recorded(replace(manifest, environment=environment), marks)

    cpu = machine._cpu_model()
    assert of(cpu=cpu, gpus=[]).processor == release.processor()
    for unlike in (of(cpu=cpu, gpus=["A"]), of(cpu="another", gpus=[]), of(cpu=cpu), of("endpoint")):
        assert unlike.processor is None and not comparing._must_be_same(unlike, unlike)
    assert comparing._must_be_same(of(), of()), "no model was asked"


def three_documents(root: Path) -> None:
    """Put three retrieved documents into each prediction of a cell, the one with the answer first."""
    folder, catalog = root / f"results/cells/{PLAIN}", Catalog(root)
    lines = [
        msgspec.json.encode(replace(one, retrieved=[
            *one.retrieved, *(replace(one.retrieved[0], id=f"other{rank}", rank=rank) for rank in (2, 3))
        ])) + b"\n"
        for one in predictions(catalog, Cell.parse(PLAIN))
    ]  # fmt: skip
    (folder / "predictions.jsonl").write_bytes(b"".join(lines))
    manifest = read_sealed(folder / "manifest.json", Manifest, "")
    files = manifest.files | {"predictions.jsonl": fingerprint(folder / "predictions.jsonl")}
    write_sealed(folder / "manifest.json", replace(manifest, files=files))


def test_a_score_at_each_k_is_a_number_of_its_own(root: Path) -> None:
    three_documents(root)
    assert called(root, "review", "mini", "--record") == (0, "")
    was, scores, answers = release.read(Catalog(root), "mini")
    at = scores.filter(cell=PLAIN, metric="pass_at_k")["setting"].to_list()
    assert at == ["thinking=off, at=1", "thinking=off, at=2", "thinking=off, at=3"]
    assert reviewed(root)[:2] == (0, "")
    changed = pl.col("cell").eq(PLAIN) & pl.col("setting").eq(at[1])
    other = scores.with_columns(value=pl.when(changed).then(1.5).otherwise("value"))
    review = comparing.compare(Catalog(root), was, other, answers)
    assert [(one.what, one.recorded[:3]) for one in review.failures] == [(f"{PLAIN}: pass_at_k with {at[1]}", "1.5")]


def test_scores_that_nothing_tells_apart_are_not_recorded(root: Path) -> None:
    scores = scores_now(Catalog(root), "mini")
    twice = dataclasses.replace(scores, table=pl.concat([scores.table, scores.table.filter(cell=PLAIN).head(1)]))
    with (
        mock.patch.object(release, "scores_now", lambda catalog, suite: twice),
        pytest.raises(UpkeepError, match="2 scores that nothing tells from another"),
    ):
        release.record(Catalog(root), "mini")


def test_without_what_was_recorded_there_is_no_review_and_the_remedy_is_told(root: Path) -> None:
    shutil.rmtree(root / "releases")
    status, said = called(root, "review", "--as-is")
    assert status == 1 and "releases/mini/release.json" in said and "review mini --record" in said


def test_nothing_is_recorded_of_a_suite_that_is_not_complete(root: Path) -> None:
    shutil.rmtree(root / f"results/cells/{GUIDED}")
    status, said = called(root, "review", "--record")
    assert status == 1 and GUIDED in said and "./upkeep run mini" in said
