"""A cell killed by SIGKILL at any moment and started again ends with the same bytes: none twice, none missing.

UPKEEP_KILLS says at how many moments a cell is killed that asks a model (one by default).
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from host_fakes import Forks, make_repository
from test_record import repeated
from upkeep.catalog import Catalog
from upkeep.execution.attempts import SILENT_END
from upkeep.execution.fetch import fetch
from upkeep.gateway.record import Replies, engines
from upkeep.integrity import verify_folder
from upkeep.jobs import Cell, Training
from upkeep.layout import Layout
from upkeep.published import folder_of

REPOSITORY = Path(__file__).resolve().parents[1]
CELL = "toy/echo/a/none"
TRAINING = "toy/trainer/a/none!"
EVENTS = {CELL: 165, TRAINING: 140}
"""Events of an undisturbed run at least (see `host_fakes.die_at`): the last fifth are those of the publication."""
KILLS = int(os.environ.get("UPKEEP_KILLS", "1"))
Attempt = Callable[..., bool]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("built")
    make_repository(root, trials=2)
    return root


@pytest.fixture(scope="module")
def attempt() -> Iterator[Attempt]:
    """Run in a process of its own that kills itself before its `event`-th file operation; whether it was killed."""
    forks = Forks()

    def run(root: Path, name: str, event: int = 0) -> bool:
        status = forks.run(root, name, event)
        assert status in ((0, -signal.SIGKILL) if event else (0,))
        return status != 0

    yield run
    forks.close()


def output(root: Path, name: str) -> bytes:
    """What is published, after all checks."""
    parts = name.rstrip("!").split("/")
    folder = folder_of(Catalog(root), Training(*parts) if name.endswith("!") else Cell(*parts))
    manifest = verify_folder(folder)
    return b"".join((folder / file).read_bytes() for file in sorted(manifest.files) if file != "measured.parquet")


@pytest.fixture(scope="module", params=[CELL, TRAINING])
def undisturbed(
    request: pytest.FixtureRequest, built: Path, attempt: Attempt, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, bytes]:
    root = tmp_path_factory.mktemp("undisturbed") / "root"
    shutil.copytree(built, root)
    attempt(root, request.param)
    return request.param, output(root, request.param)


@pytest.mark.parametrize("moment", [round(random.Random(seed).random(), 3) for seed in range(20)])
def test_run_that_was_killed_at_a_random_moment_ends_with_the_same_bytes(
    undisturbed: tuple[str, bytes], built: Path, attempt: Attempt, tmp_path: Path, moment: float
) -> None:
    name, expected = undisturbed
    root = tmp_path / "root"
    shutil.copytree(built, root)
    assert attempt(root, name, 1 + int(moment * EVENTS[name]))
    attempt(root, name)
    assert output(root, name) == expected


def test_run_that_is_killed_again_and_again_ends_with_the_same_bytes(
    undisturbed: tuple[str, bytes], built: Path, attempt: Attempt, tmp_path: Path
) -> None:
    name, expected = undisturbed
    root = tmp_path / "root"
    shutil.copytree(built, root)
    killed = sum(attempt(root, name, event) for event in range(4, 84, 4))
    assert killed > 10, "most of these runs are killed before all is done"
    attempt(root, name)
    assert output(root, name) == expected
    if name == CELL:
        keys = [(line["probe_id"], line["trial"]) for line in map(json.loads, expected.splitlines())]
        assert len(set(keys)) == len(keys) == 60


def test_published_cell_stays_readable_while_it_is_run_again_and_killed(
    built: Path, attempt: Attempt, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    shutil.copytree(built, root)
    attempt(root, CELL)
    before = output(root, CELL)
    (root / "methods/echo/method.py").write_text("# edited")
    assert attempt(root, CELL, 80)
    assert output(root, CELL) == before
    attempt(root, CELL)
    assert output(root, CELL) == before


def answering(built: Path, root: Path, method: str) -> str:
    """Make a repository with a model of random weights that a method asks; the cell that does it."""
    from upkeep.serving.make_model import tiny_llama

    cell = f"toy/{method}/t"
    shutil.copytree(built, root)
    dataset = root / "datasets/toy/dataset.yaml"
    dataset.write_text(dataset.read_text().replace("prompt: short", "prompt: oaks_babi"))
    shutil.copy(REPOSITORY / "papers/oaks/prompts/oaks_babi.yaml", root / "papers/toy/prompts")
    folder = root / "methods" / Cell.parse(cell).method
    shutil.copytree(REPOSITORY / "methods" / folder.name, folder)
    card = folder / "method.yaml"
    card.write_text(card.read_text().replace("{budget: 256}", "{budget: 16}"))
    (root / "models/t").mkdir(parents=True)
    sampling = "sampling: {max_tokens: 4, temperature: 0.7}"
    (root / "models/t/model.yaml").write_text(
        f"{{label: T, summary: s, source: path, location: weights, context_length: 4096, {sampling}}}"
    )
    (root / "weights").mkdir()
    tiny_llama(root / "weights", positions=4096)
    fetch(Catalog(root), "t")
    return cell


Answering = tuple[str, Path, Path]
"""A cell, a repository in which it can run, and one in which it was run undisturbed."""


@pytest.fixture(scope="module", params=["rag_bm25/k2", "memory_scaffold/budget256", "memagent/budget256"])
def answered(
    request: pytest.FixtureRequest, built: Path, attempt: Attempt, tmp_path_factory: pytest.TempPathFactory
) -> Answering:
    folder = tmp_path_factory.mktemp("answered")
    cell = answering(built, folder / "root", request.param)
    shutil.copytree(folder / "root", folder / "undisturbed")
    attempt(folder / "undisturbed", cell)
    lines = output(folder / "undisturbed", cell).splitlines()
    assert all(json.loads(line)["error"] is None for line in lines)
    return cell, folder / "root", folder / "undisturbed"


@pytest.mark.parametrize("seed", range(KILLS))
def test_real_engine_that_was_killed_ends_with_the_same_bytes_and_is_asked_nothing_twice(
    answered: Answering, attempt: Attempt, tmp_path: Path, seed: int
) -> None:
    """One of these methods asks its model as documents arrive, one keeps a memory of each question: a container that
    starts again finds their memories in the record. The engine is killed with its supervisor."""
    cell, root, undisturbed = answered
    kept = sorted(entries(undisturbed))
    # Each moment in its own share of the run: all that is kept, and at least the events of a cell without a model.
    moment = (seed + random.Random(seed).random()) / KILLS
    place = tmp_path / "root"
    shutil.copytree(root, place)
    assert attempt(place, cell, 1 + int(moment * (EVENTS[CELL] + len(kept))))
    known = len(entries(place))
    attempt(place, cell)
    print(f"seed {seed}: killed at {moment:.0%} with {known} of {len(kept)} entries kept")
    assert output(place, cell) == output(undisturbed, cell)
    assert sorted(entries(place)) == kept, "nothing else is asked than without a kill"
    assert repeated(place / "results" / "record") == 0
    manifest = verify_folder(Layout(Catalog(place).results).cell(Cell.parse(cell)))
    assert manifest.attempts[-1].lines == 60
    assert all(a.outcome == "complete" or a.reason == SILENT_END for a in manifest.attempts)


def entries(root: Path) -> list[bytes]:
    """The keys of all that is on record."""
    record = root / "results" / "record"
    return [key for one in engines(record) for _, key, _ in Replies(record, one.parts, one.model).entries()]
