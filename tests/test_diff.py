"""What `./upkeep diff` says of two cells is so: by how much they differ, whether by chance, and what was changed."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest
from scipy.stats import ttest_rel

from suite_fakes import CELLS, GUIDED, PLAIN, TRAINED, called, made, root
from upkeep.catalog import Catalog
from upkeep.contract import Manifest, Prediction
from upkeep.errors import UpkeepError
from upkeep.exit_status import DIFFER
from upkeep.grading.paired import compared, holm, side_by_side
from upkeep.integrity import fingerprint, read_sealed, write_sealed
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.operations.diff.comparing import CellDifference, difference
from upkeep.published import predictions

__all__ = ["made", "root"]


def answer(
    root: Path, cell: str, say: Callable[[str, int], bool], parts: dict[str, str] | None = None, said: str = "nothing"
) -> None:
    """Put answers in the place of a cell's: right where `say` of probe and trial says so; and other parts of its
    identity."""
    catalog = Catalog(root)
    folder = Layout(catalog.results).cell(cell)
    gold = pl.read_parquet(Layout(catalog.results).dataset("toy") / "gold.parquet")
    right = {probe: answers[0] for probe, answers in gold.select("probe_id", "answers").iter_rows()}

    def line(one: Prediction) -> bytes:
        told = right[one.probe_id] if say(one.probe_id, one.trial) else f"{said} of {one.probe_id}"
        return msgspec.json.encode(msgspec.structs.replace(one, response=f"A: {told}")) + b"\n"

    lines = [line(one) for one in predictions(catalog, Cell.parse(cell))]
    (folder / "predictions.jsonl").write_bytes(b"".join(lines))
    manifest = read_sealed(folder / "manifest.json", Manifest, "")
    files = manifest.files | {"predictions.jsonl": fingerprint(folder / "predictions.jsonl")}
    identity = manifest.identity_parts | (parts or {})
    write_sealed(folder / "manifest.json", msgspec.structs.replace(manifest, files=files, identity_parts=identity))


def one(root: Path, first: str, second: str) -> CellDifference:
    (found,) = difference(Catalog(root), first, second, None).cells
    return found


def frame(rights: dict[str, list[float]]) -> pl.DataFrame:
    rows = [(f"{q}@{n}", q, right) for q, each in rights.items() for n, right in enumerate(each)]
    return pl.DataFrame(rows, schema=["probe_id", "question_id", "right"], orient="row")


def drawn(seed: int, sizes: list[int]) -> tuple[pl.DataFrame, pl.DataFrame]:
    draw = random.Random(seed)
    levels = [(draw.random(), draw.random()) for _ in sizes]
    first, second = (
        {f"q{q}": [float(draw.random() < level[side]) for _ in range(size)] for q, (size, level) in
         enumerate(zip(sizes, levels, strict=True))}
        for side in (0, 1)
    )  # fmt: skip
    return frame(first), frame(second)


# ---------------------------------------------------------------- interval and p-value


@pytest.mark.parametrize("seed", range(6))
def test_interval_and_p_are_those_of_a_paired_t_test_of_the_questions_means(seed: int) -> None:
    first, second = drawn(seed, [7] * 30)
    found = compared(side_by_side(first, second))
    means = [rows.group_by("question_id", maintain_order=True).agg(pl.col("right").mean())["right"].to_numpy()
             for rows in (second, first)]  # fmt: skip
    test = ttest_rel(*means)
    interval = test.confidence_interval(0.95)
    assert found.p == pytest.approx(test.pvalue, rel=1e-9)
    assert (found.low, found.high) == pytest.approx((100 * interval.low, 100 * interval.high), rel=1e-3)
    assert found.difference == pytest.approx(100 * (means[0] - means[1]).mean()) == found.second - found.first


@pytest.mark.parametrize("seed", range(3))
def test_the_standard_error_of_questions_of_many_sizes_is_that_of_resampled_questions(seed: int) -> None:
    sizes = [random.Random(seed + 100).randint(1, 40) for _ in range(120)]
    probes = side_by_side(*drawn(seed, sizes))
    found = compared(probes)
    sums = probes.group_by("question_id").agg((pl.col("second") - pl.col("first")).sum().alias("d"), n=pl.len())
    d, n = sums["d"].to_numpy(), sums["n"].to_numpy()
    drawn_again = np.random.default_rng(seed).integers(0, len(d), (4000, len(d)))
    again = 100 * d[drawn_again].sum(1) / n[drawn_again].sum(1)
    assert found.se == pytest.approx(again.std(), rel=0.1)
    by_probe = 100 * (probes["second"] - probes["first"]).std() / len(probes) ** 0.5  # type: ignore[operator]
    assert found.se > 1.5 * by_probe, "as if the probes of a question were independent"


def test_chance_alone_is_called_significant_one_time_in_twenty() -> None:
    draw = random.Random(1)
    found = 0
    for _ in range(400):
        levels = [draw.random() for _ in range(25)]
        sides = [frame({f"q{q}": [float(draw.random() < level)] * 4 for q, level in enumerate(levels)}) for _ in "ab"]
        p = compared(side_by_side(*sides)).p
        found += p is not None and p < 0.05
    assert 8 <= found <= 34


def test_trials_of_one_probe_are_one_share_however_many_each_cell_has() -> None:
    first = pl.DataFrame({"probe_id": ["a"] * 4 + ["b"] * 4, "question_id": ["a"] * 4 + ["b"] * 4,
                          "right": [True, False, False, False, True, True, True, True]})  # fmt: skip
    second = pl.DataFrame({"probe_id": ["b", "a"], "question_id": ["b", "a"], "right": [True, True]})
    found = compared(side_by_side(first, second))
    assert (found.first, found.second, found.gained, found.lost) == (62.5, 100.0, 1, 0)


def test_what_nothing_can_be_said_of_has_no_p() -> None:
    single = compared(side_by_side(frame({"q": [0.0, 1.0]}), frame({"q": [1.0, 1.0]})))
    assert single.difference == 50 and single.se is single.low is single.p is None
    alike = compared(side_by_side(frame({"q": [0.0], "r": [0.0]}), frame({"q": [1.0], "r": [1.0]})))
    assert alike.se == 0 and alike.p is None
    nothing = compared(side_by_side(frame({"q": [0.0], "r": [1.0]}), frame({"q": [0.0], "r": [1.0]})))
    assert nothing.p == 1


def test_holms_p_values_are_those_of_his_procedure() -> None:
    assert holm([0.01, None, 0.04, 0.03]) == pytest.approx([0.03, None, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0] and holm([]) == []


# ---------------------------------------------------------------- what is compared


@pytest.mark.parametrize("name", [PLAIN, "mini", "results", "."])
def test_nothing_differs_from_itself(root: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    out: list[str] = []
    assert called(root, "diff", name, name, out=out) == (0, "") and out == [""]
    assert called(root, "diff", name, name, "--json", out=out)[0] == 0
    assert all(cell["moved"] == 0 and not cell["identity"] for cell in json.loads(out[1])["cells"])


def test_two_cells_differ_by_what_their_answers_do_and_each_probe_is_told(root: Path) -> None:
    answer(root, PLAIN, lambda probe, trial: probe.startswith("a"))
    answer(root, TRAINED, lambda probe, trial: probe.startswith(("a0", "b")))
    found = one(root, PLAIN, TRAINED)
    assert found.paired is not None and (found.paired.gained, found.paired.lost) == (8, 12)
    assert found.paired.difference == pytest.approx(100 * (8 - 12) / found.paired.probes)
    assert found.moved == 2 * (8 + 12), "two trials"
    (row,) = (row for row in found.probes if (row.probe, row.trial) == ("b0@1", 1))
    assert (row.first.verdict, row.second.verdict, row.second.answer) == ("wrong", "right", "A: text b1.")
    assert row.right == ["text b1."]
    out: list[str] = []
    assert called(root, "diff", PLAIN, TRAINED, "--rows", "3", out=out) == (DIFFER, "")
    assert "better in B: 8 probes; better in A: 12" in out[0] and "and 37 more" in out[0]
    assert "95% interval" in out[0] and "clustered by question; p " in out[0]


def test_which_part_of_the_identity_changed_is_told_with_both_values(root: Path) -> None:
    other = root.parent / "other"
    shutil.copytree(root, other, symlinks=True)
    answer(other, PLAIN, lambda probe, trial: True, {"parameters": '{"n":7}', "method_code": "0" * 64})
    found = difference(Catalog(root), str(root / "results"), str(other), None)
    (changed,) = (cell for cell in found.cells if not cell.same)
    assert changed.first == changed.second == PLAIN
    assert changed.identity.keys() == {"parameters.n", "method_code"}
    assert changed.identity["parameters.n"] == ("1", "7") and changed.identity["method_code"][1] == "0" * 12
    assert changed.p_holm == changed.paired.p if changed.paired else False, "one comparison"


def test_another_identity_with_the_same_bytes_is_told_as_that(root: Path) -> None:
    answer(root, PLAIN, lambda probe, trial: True)
    other = root.parent / "other"
    shutil.copytree(root, other, symlinks=True)
    answer(other, PLAIN, lambda probe, trial: True, {"requirements": "1" * 64})
    out: list[str] = []
    assert called(root, "diff", PLAIN, str(other / "results/cells" / PLAIN), out=out)[0] == DIFFER
    assert "the predictions are the same bytes" in out[0] and "requirements" in out[0] and "points" not in out[0]


def test_suites_that_differ_in_the_model_are_set_beside_each_other_by_method(root: Path) -> None:
    for name, model in (("first", "m"), ("second", "m+trainer.a")):
        suite = f"{{label: l, summary: s, papers: [], seed: 5, trials: 2, cells: [\n  {{datasets: [toy], methods: [echo/a], models: [{model}]}}]}}\n"  # noqa: E501
        (root / f"config/suites/{name}.yaml").write_text(suite)
    found = difference(Catalog(root), "first", "second", None)
    assert [(cell.first, cell.second) for cell in found.cells] == [(PLAIN, TRAINED)]
    whole = difference(Catalog(root), "first", "mini", None)
    assert [cell.first for cell in whole.cells] == [PLAIN] and set(whole.second_alone) == {*CELLS} - {PLAIN}


def test_a_cell_that_cannot_be_read_is_told_and_the_others_are_compared(root: Path) -> None:
    answer(root, TRAINED, lambda probe, trial: False)
    other = root.parent / "other"
    shutil.copytree(root, other, symlinks=True)
    (other / "results/cells" / GUIDED / "predictions.jsonl").write_text("")
    answer(other, TRAINED, lambda probe, trial: True)
    found = {cell.first: cell for cell in difference(Catalog(root), "mini", str(other), None).cells}
    assert found[GUIDED].problem == "not the file that was written" and found[PLAIN].same
    assert found[TRAINED].paired is not None and found[TRAINED].paired.difference == 100
    with pytest.raises(UpkeepError, match="not the file that was written"):
        difference(Catalog(root), GUIDED, str(other / "results/cells" / GUIDED), None)


def test_it_writes_nothing(root: Path) -> None:
    answer(root, TRAINED, lambda probe, trial: False)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    assert called(root, "diff", PLAIN, TRAINED)[0] == DIFFER
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("minni", "mini"), "remedy:   did you mean mini?"),
        ((PLAIN, "toy/echo/b/m"), "remedy:   ./upkeep cell toy/echo/b/m"),
        ((PLAIN, "toy/ehco/a/m"), "remedy:   did you mean echo?"),
        (("config", "mini"), "remedy:   give the folder of a cell, of results, or of a clone"),
        ((f"results/cells/{PLAIN}", "elsewhere"), "remedy:   leave it in its results folder"),
    ],
)
def test_what_cannot_be_compared_is_told_with_a_remedy(
    root: Path, names: tuple[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    shutil.copytree(root / "results/cells" / PLAIN, root / "elsewhere")
    status, errors = called(root, "diff", *names)
    assert status == 1 and said in errors and "Traceback" not in errors, errors
