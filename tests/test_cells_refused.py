"""Cells that can have no answers are refused before anything starts, with what to ask in their place."""

from __future__ import annotations

import pytest

from conftest import ROOT
from upkeep.catalog import Catalog
from upkeep.cli import main
from upkeep.errors import UpkeepError
from upkeep.jobs import Cell, Training

REFUSED = {
    "oaks_babi_mini/sft/lora_tiny/pico": (
        "'sft' trains a model, and answers nothing itself",
        "./upkeep cell oaks_babi_mini/closed_book/default/pico+sft.lora_tiny",
    ),
    "oaks_babi_mini/closed_book/default/minilm": ("'minilm' embeds texts", "./upkeep list models"),
    "oaks_babi_mini/closed_book/default/none": ("'closed_book' asks a model", "./upkeep list models"),
    "oaks_babi_mini/closed_book/default/tiny-vllm+cartridges.tiny": (
        "'cartridges' makes a prefix, which the transformers engine alone serves",
        "models/README.md",
    ),
    "oaks_babi_mini/closed_book/default/pico+cartridges.tiny+sft.lora_tiny": (
        "nothing is trained on a prefix",
        "train before the prefix is made",
    ),
    "oaks_babi_mini/null/default/pico": ("'null' calls no model", "./upkeep cell oaks_babi_mini/null/default/none"),
}


@pytest.mark.parametrize("cell", REFUSED)
def test_a_cell_that_can_have_no_answers_is_refused_with_one_that_can(cell: str) -> None:
    problem, remedy = REFUSED[cell]
    catalog = Catalog(ROOT)
    with pytest.raises(UpkeepError, match=problem) as refused:
        catalog.check(Cell.parse(cell))
    assert refused.value.remedy is not None and remedy in refused.value.remedy
    if "cell " in remedy:
        catalog.check(Cell.parse(remedy.split()[2]))


def test_a_training_is_no_such_cell() -> None:
    Catalog(ROOT).check_training(Training("oaks_babi_mini", "sft", "lora_tiny", "pico"))


@pytest.mark.parametrize("cores", ["zero", "0", "-1", "1.5", ""])
def test_a_number_of_cores_that_is_none_is_refused_before_anything_starts(
    cores: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["upkeep", "run", f"--cores={cores}"])
    with pytest.raises(SystemExit):
        main()
    assert f"--cores: expected a number from 1, or `all`; found {cores!r}" in capsys.readouterr().err
