"""A method that holds the sockets of a model, a writer and an embedder, or a door to them, learns nothing by them.

Each cell runs twice: on an empty record, and when another cell has asked the very same, what a later document says
included. What it hears is the same to the byte: what the models say, and nothing of who asked before.
"""

from __future__ import annotations

import functools
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import CACHE, copy_repository
from host_fakes import write_toy
from hostile_trials import DATASET, LAST, TEXT
from upkeep.catalog import Catalog
from upkeep.contract import Manifest
from upkeep.execution.detection import detect
from upkeep.execution.fetch import fetch
from upkeep.execution.supervise import run_cell
from upkeep.jobs import Cell
from upkeep.layout import Layout

HERE = Path(__file__).resolve().parent
RUNTIMES = [pytest.param("docker", marks=pytest.mark.docker), "process"]
FUTURE = LAST.strip()


@pytest.fixture(scope="module")
def temporary() -> Iterator[Path]:
    """Where the sockets of these cells lie."""
    with tempfile.TemporaryDirectory(prefix="pry-") as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", name)
        yield Path(name)


@pytest.fixture(scope="module")
def repository_in(temporary: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Catalog]:
    @functools.cache
    def made(runtime: str) -> Catalog:
        root = copy_repository(tmp_path_factory.mktemp(runtime))
        config = root / "config/config.yaml"
        changed = {"runtime": runtime, "cache": str(CACHE)}
        config.write_text(yaml.safe_dump(yaml.safe_load(config.read_text()) | changed))
        tiny = root / "models/tiny/model.yaml"
        tiny.write_text(tiny.read_text() + "  other: {label: Other, summary: s, sampling: {max_tokens: 3}}\n")
        # A plain process can read what its user can: there it finds what it looks for, by other ways than its sockets.
        search = ["/"] if runtime == "docker" else [str(root / "results"), str(temporary)]
        parameters = {"future": FUTURE[::-1], "search": search, "writer": "tiny-other"}
        card = {
            "label": "Prying",
            "papers": [],
            "summary": "s",
            "reference": "r",
            "embedder": "minilm",
            "variants": {"before": parameters, "after": parameters},
        }
        aliases = {"gpt-4o-mini": "reader", "text-embedding-3-small": "embedder"}
        for name, file, more in (
            ("prying", "method.py", {}),
            ("prying_program", "prying.py", {"command": ["python3", "prying.py"], "aliases": aliases}),
        ):
            folder = root / "methods" / name
            folder.mkdir()
            shutil.copy(HERE / "prying_method.py", folder / file)
            (folder / "method.yaml").write_text(json.dumps(card | more))
        (root / "datasets/toy").mkdir()
        (root / "datasets/toy/dataset.yaml").write_text(DATASET)
        catalog = Catalog(root)
        write_toy(catalog, TEXT)
        record = Layout(catalog.results).record
        record.mkdir()
        (record / "planted").write_text(LAST)  # else what is there is compressed
        for model in ("tiny", "tiny-other", "minilm"):
            fetch(catalog, model)
        return catalog

    return made


def run(catalog: Catalog, method: str, variant: str) -> tuple[bytes, dict[str, Any], Manifest, str]:
    """What a cell's predictions are, what it heard, its manifest, and what it printed."""
    cell, layout = Cell("toy", method, variant, "tiny"), Layout(catalog.results)
    manifest = run_cell(catalog, cell, runtime=detect(catalog), retries=0)
    raw = (layout.cell(cell) / "predictions.jsonl").read_bytes()
    lines = [json.loads(line) for line in raw.splitlines()]
    assert all(line["error"] is None for line in lines), [line["error"] for line in lines]
    (heard,) = [json.loads(line["response"]) for line in lines if line["response"] is not None]
    log = layout.log("cells", cell)
    return raw, heard, manifest, log.with_name(f"{log.stem}.container.log").read_text()


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_by_its_sockets_a_method_hears_what_the_models_say_and_nothing_of_who_asked_before(
    repository_in: Callable[[str], Catalog], runtime: str
) -> None:
    catalog = repository_in(runtime)
    alone, heard, cold, said = run(catalog, "prying", "before")
    after, _, warm, said_after = run(catalog, "prying", "after")
    assert after == alone
    # It did ask, the second time what another cell had asked before: the models answered at first, the record then.
    assert cold.measured["new_replies"] >= 6 and cold.measured["new_vectors"] >= 2
    assert warm.measured["new_replies"] == warm.measured["new_vectors"] == 0
    assert warm.measured["recorded_replies"] >= 6
    # By the count of computed tokens alone it can tell (docs/hostile.md).
    assert computed(said) > 0 == computed(said_after)
    for socket, answers in heard.items():
        known = answers.pop("known")
        assert len(known) == (3 if socket == "embedder_socket" else 6), "each honest question is answered"
        assert {name: told[1:] for name, told in answers.items()} == {name: ["hung up"] for name in answers}, socket
        assert FUTURE not in json.dumps([answers, known])
    (found,) = [json.loads(line[6:]) for line in said.splitlines() if line.startswith("FOUND ")]
    reached = runtime == "process"  # where nothing hinders it
    assert found == {"telling": reached, "sockets": reached, "writable": reached, "beside": ["engine.sock"]}


def computed(said: str) -> int:
    return sum(int(line.split()[1]) for line in said.splitlines() if line.startswith("COMPUTED "))


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_by_its_door_a_program_hears_what_the_models_say_and_nothing_of_who_asked_before(
    repository_in: Callable[[str], Catalog], runtime: str
) -> None:
    catalog = repository_in(runtime)
    alone, heard, cold, _ = run(catalog, "prying_program", "before")
    after, _, warm, _ = run(catalog, "prying_program", "after")
    assert after == alone
    assert cold.measured["new_replies"] + cold.measured["recorded_replies"] == 1
    assert (warm.measured["new_replies"], warm.measured["new_vectors"]) == (0, 0)
    answered = {name for name, told in heard.items() if not (isinstance(told, list) and told and told[0] in range(600))}
    assert answered == {"models", "guessed", "embedded"}
    assert {told[0] for name, told in heard.items() if name not in answered} <= {401, 404, 405}
    assert FUTURE not in json.dumps(heard)
