"""A training that is killed, at whatever moment, ends with the same weights to the bit: each method that trains.

UPKEEP_TRAINING_KILLS says how often each one is killed at least (three times by default).
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from method_runs import card
from test_methods import METHODS
from upkeep.execution.publish import MODEL_FILES
from upkeep.serving.make_model import tiny_llama

SRC, TESTS = Path(__file__).resolve().parents[1] / "src", Path(__file__).resolve().parent
KILLS = int(os.environ.get("UPKEEP_TRAINING_KILLS", "3"))
"""All methods keep and find their checkpoints by the same code."""
STUCK = 40
"""Kills after which a training does not get on."""
WHOLE = {"cpt", "cpt_sft", "sdft"}
"""Methods that are tried with all weights trained, too: one of one stage, one of two, and one that answers itself."""

# Everything is loaded; each training is a process of its own, forked from here.
TRAINING = """
import os, shutil, sys, traceback
from pathlib import Path

import torch, peft, transformers, peft.tuners.cartridge.utils, trl.experimental.sdft
from finetunings import LORA, SMALL, given, trained
from host_fakes import die_at

base = Path(sys.argv[1])
for line in sys.stdin:
    method, kind, folder, event = line.split()
    folder = Path(folder)
    if (child := os.fork()) == 0:
        status = 1
        try:
            shutil.rmtree(folder / "model", ignore_errors=True)  # a container begins with nothing but checkpoints
            training = given(base, folder / "model")
            if int(event):
                die_at(int(event), training.checkpoints.folder)
            recipe = SMALL | {"piece_tokens": 24} | (LORA if kind == "lora" else {})
            course = trained(method, recipe, training, seed=3)
            (folder / "course").write_text(repr(course))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    print("ENDED", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
Train = Callable[[str, str, Path, int], int]


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Train]:
    """Trains by a method in a folder, is killed at an event (0: never), and gives the exit status."""
    base = tmp_path_factory.mktemp("base")
    tiny_llama(base, vocabulary=512)
    with subprocess.Popen(
        [sys.executable, "-c", TRAINING, base],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(SRC), str(TESTS)]), "OMP_NUM_THREADS": "1"},
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        said, heard = process.stdin, process.stdout

        def one(method: str, kind: str, folder: Path, event: int) -> int:
            folder.mkdir(exist_ok=True)
            print(method, kind, folder, event, file=said, flush=True)
            while not (line := heard.readline()).startswith("ENDED"):
                assert line, "it has gone"
            return int(line.split()[1])

        yield one
        said.close()


def of(folder: Path) -> dict[str, bytes]:
    """Everything of a training that is published, and what it told."""
    made = [path for path in (folder / "model").iterdir() if path.suffix in MODEL_FILES]
    return {path.name: path.read_bytes() for path in [*made, folder / "course"]}


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        (method, kind)
        for method in METHODS
        if card(method).trains
        for kind in ("lora", "whole")[: 1 + (method in WHOLE)]
    ],
)
def test_a_training_that_is_killed_anywhere_ends_with_the_same_weights(
    method: str, kind: str, train: Train, tmp_path: Path
) -> None:
    assert train(method, kind, tmp_path / "undisturbed", 0) == 0
    expected = of(tmp_path / "undisturbed")
    assert any(name.endswith(".safetensors") for name in expected)
    chance, killed, resumed = random.Random(7), 0, 0
    for attempt in itertools.count():
        if killed >= KILLS and resumed:
            break
        assert attempt < 10 * KILLS, "none went on from a checkpoint"
        folder, before = tmp_path / f"attempt_{attempt}", killed
        while (status := train(method, kind, folder, chance.randrange(5, 150))) != 0:
            assert status == -9
            killed += 1
            resumed += any((folder / "model.kept").iterdir())
            assert killed - before <= STUCK, f"it does not get on: {list((folder / 'model.kept').iterdir())}"
        assert of(folder) == expected
