"""Claims about replay: what a cell asks as before is answered from the record, by no engine, and to the same bytes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import yaml

from conftest import CACHE, copy_repository, make_smaller, shorten_memories
from test_record import repeated
from upkeep.batches import Batch
from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.contract import Manifest, Prediction
from upkeep.errors import UpkeepError
from upkeep.execution.batch import run_batch
from upkeep.execution.fetch import fetch
from upkeep.execution.refresh import refresh
from upkeep.execution.rounds import BuiltDataset
from upkeep.execution.supervise import run_cell
from upkeep.gateway import transfer, why
from upkeep.gateway.record import NotRecorded, engines
from upkeep.jobs import Cell, Job
from upkeep.layout import Layout
from upkeep.published import standing

BABI = "oaks_babi_mini"
CLOSED, SEARCHED, RECALLED = (
    Cell(BABI, "closed_book", "default", "tiny"),
    Cell(BABI, "rag_bm25", "k1", "tiny"),
    Cell(BABI, "memory_scaffold", "budget256", "tiny"),
)
CELLS = [CLOSED, SEARCHED, RECALLED]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a suite of three cells that have been run, on an engine of the suite's."""
    root = copy_repository(tmp_path_factory.mktemp("replay"))
    make_smaller(root)
    shorten_memories(root)
    methods = ["closed_book", "rag_bm25/k1", "memory_scaffold/budget256"]
    cells = [{"datasets": [BABI], "methods": methods, "models": ["tiny"]}]
    suite = {"label": "small", "summary": "s", "papers": [], "cells": cells}
    (root / "config/suites/small.yaml").write_text(yaml.safe_dump(suite))
    config = root / "config/config.yaml"
    settings = yaml.safe_load(config.read_text()) | {"suite": "small", "runtime": "process", "cache": str(CACHE)}
    config.write_text(yaml.safe_dump(settings))
    catalog = Catalog(root)
    build_dataset(catalog, BABI, Layout(catalog.results).dataset(BABI))
    fetch(catalog, "tiny")
    for manifest in run_batch(catalog, Batch("small", tuple(CELLS))).values():
        assert manifest.measured["new_replies"] > 0
    return root


@pytest.fixture
def catalog(done: Path, tmp_path: Path) -> Iterator[Catalog]:
    shutil.copytree(done, tmp_path / "upkeep", symlinks=True)
    yield Catalog(tmp_path / "upkeep")


def contents(catalog: Catalog) -> dict[Cell, bytes]:
    return {cell: (Layout(catalog.results).cell(cell) / "predictions.jsonl").read_bytes() for cell in CELLS}


def replayed(catalog: Catalog, job: Job, **how: object) -> Manifest:
    """Run a job again without any engine."""
    manifest = run_cell(catalog, job, force=True, ask="nothing", **how)  # type: ignore[arg-type]
    assert manifest.measured["new_replies"] == 0 < manifest.measured["recorded_replies"]
    return manifest


def test_a_cell_that_is_run_again_asks_nobody_and_gives_the_same_bytes(catalog: Catalog) -> None:
    before = contents(catalog)
    for job in CELLS:
        replayed(catalog, job)
    assert contents(catalog) == before
    assert not any(Layout(catalog.results).log("engines", job).exists() for job in CELLS)


EDITS = {
    "code of the runner": ("src/upkeep/cell/runner.py", lambda text: text + "\n\nUNUSED = 1\n"),
    "a method that is written otherwise": ("methods/closed_book/method.py", lambda text: text + "\n\nUNUSED = 1\n"),
}


def test_a_comment_in_an_engine_makes_nothing_stale_and_a_change_of_it_everything(catalog: Catalog) -> None:
    engine = catalog.root / "src/upkeep/serving/transformers_engine.py"
    engine.write_text("# another word\n" + engine.read_text())
    assert all(standing(Catalog(catalog.root), cell).manifest is not None for cell in CELLS)
    engine.write_text(engine.read_text() + "\n\nUNUSED = 1\n")
    found = refresh(Catalog(catalog.root), "small")
    assert set(found.left) == set(CELLS) and not found.current and not found.replayed


@pytest.mark.parametrize("edit", EDITS)
def test_what_an_edit_makes_stale_is_brought_up_to_date_without_an_engine(catalog: Catalog, edit: str) -> None:
    before = contents(catalog)
    path, change = EDITS[edit]
    file = catalog.root / path
    file.write_text(change(file.read_text()))
    found = refresh(Catalog(catalog.root), "small")
    assert not found.left and not found.failed and CLOSED in found.replayed
    assert (len(found.replayed) == 1) == path.startswith("methods")
    assert contents(catalog) == before
    assert not refresh(Catalog(catalog.root), "small").replayed


def test_another_prompt_is_asked_and_nothing_else(catalog: Catalog) -> None:
    own = catalog.root / "own.txt"
    own.write_text("Answer in one word. State your answer on a last line that begins with: ## Answer:")
    config = catalog.root / "config/config.yaml"
    prompt = catalog.dataset(BABI).prompt
    config.write_text(yaml.safe_dump(yaml.safe_load(config.read_text()) | {"prompts": {prompt: str(own)}}))
    catalog = Catalog(catalog.root)
    found = refresh(catalog, "small")
    assert set(found.left) == set(CELLS) and not found.failed and not found.replayed
    assert all("not in the record" in why for why in found.left.values())
    made = run_batch(catalog, Batch("asked", (CLOSED, RECALLED)))
    assert made[CLOSED].measured["new_replies"] > 0 and replayed(catalog, CLOSED).identity == made[CLOSED].identity
    # What is asked as documents arrive has no word of the dataset's prompt.
    assert made[RECALLED].measured["new_replies"] == distinct(catalog, RECALLED)


def distinct(catalog: Catalog, cell: Cell) -> int:
    """How many requests a cell's own probes make that no other of them makes: each has a prompt of its own."""
    made = msgspec.json.decode((Layout(catalog.results).cell(cell) / "manifest.json").read_bytes(), type=Manifest)
    assert made.usage.calls == made.probes
    return made.probes


def test_variants_that_ask_the_same_as_documents_arrive_ask_it_once(catalog: Catalog) -> None:
    second = Cell(BABI, "memory_scaffold", "budget256_k5", "tiny")
    first = standing(catalog, RECALLED).manifest
    assert first is not None
    made = run_cell(catalog, second)
    asked = {name: value for name, value in made.measured.items() if name.startswith("arrival_")}
    assert asked["arrival_calls"] >= 10, "every document is taken in"
    assert asked == {name: first.measured[name] for name in asked}, "as if it had asked for itself"
    assert made.measured["new_replies"] == distinct(catalog, second)
    assert first.measured["new_replies"] == distinct(catalog, RECALLED) + made.measured["recorded_replies"]
    assert repeated(Layout(catalog.results).record) == 0


@pytest.mark.parametrize(
    "edit",
    [
        ("src/upkeep/cell/lockstep.py", "\n\nUNUSED = 1\n"),
        ("containers/transformers/requirements.lock", "\n# another lock\n"),
        ("models/tiny/model.yaml", "\nthinking_tags: ['<think>', '</think>']\n"),
    ],
    ids=["code", "lock", "card"],
)
def test_another_engine_is_asked_itself(catalog: Catalog, edit: tuple[str, str]) -> None:
    path, more = edit
    with (catalog.root / path).open("a") as file:
        file.write(more)
    catalog = Catalog(catalog.root)
    with pytest.raises(NotRecorded):
        run_cell(catalog, CLOSED, ask="nothing")
    told = "\n".join(why.lines(why.why(catalog, str(CLOSED))))
    assert "no reply of the engine" in told and "it differs in" in told


def test_asked_afresh_it_says_how_many_answers_differ_and_where(
    catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    replies = Layout(catalog.results).record
    entries = sum(path.stat().st_size for path in replies.rglob("*.log"))
    path = Layout(catalog.results).cell(CLOSED) / "predictions.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    lines[3] = lines[3].replace('"response":"', '"response":"No: ')
    path.write_text("".join(lines))
    made = run_batch(Catalog(catalog.root, None, {"fresh": "true"}), Batch("afresh", (CLOSED, SEARCHED)))
    said = capsys.readouterr().out
    for cell, others in ((CLOSED, 1), (SEARCHED, 0)):
        found = made[cell].measured
        assert (found["compared_answers"], found["other_answers"]) == (made[cell].probes, others)
        assert f"{cell}: {others} of {made[cell].probes} answers differ" in said
    assert sum(path.stat().st_size for path in replies.rglob("*.log")) > entries  # the earlier ones are kept


def test_variants_and_methods_share_what_they_embed(catalog: Catalog) -> None:
    fetch(catalog, "minilm")
    first, second = (Cell(BABI, "rag_dense", variant, "tiny") for variant in ("k1", "k3"))
    made, shared = (m.measured for m in run_batch(catalog, Batch("dense", (first, second))).values())
    assert made["new_vectors"] > 0
    assert (shared["new_vectors"], shared["recorded_vectors"]) == (0, made["new_vectors"] + made["recorded_vectors"])
    before = (Layout(catalog.results).cell(first) / "predictions.jsonl").read_bytes()
    replayed(catalog, first)
    assert (Layout(catalog.results).cell(first) / "predictions.jsonl").read_bytes() == before
    assert list(transfer.prune(catalog)) == []


def test_a_record_goes_to_another_machine_and_is_verified_there(catalog: Catalog, tmp_path: Path) -> None:
    before, exported = contents(catalog), tmp_path / "record.tar"
    assert any("entries" in line for line in transfer.export(catalog, exported))
    shutil.rmtree(Layout(catalog.results).record)
    with pytest.raises(NotRecorded):
        run_cell(catalog, CLOSED, force=True, ask="nothing")
    damaged = bytearray(exported.read_bytes())
    place = damaged.find(b"\xf1upk", len(damaged) // 2) + 70
    damaged[place] ^= 1
    (tmp_path / "damaged.tar").write_bytes(damaged)
    (first,) = transfer.take_in(catalog, tmp_path / "damaged.tar")
    (second,) = transfer.take_in(catalog, exported)
    (third,) = transfer.take_in(catalog, exported)
    assert " 1 new entries" in second and " 0 new entries" in third, (first, second, third)
    for job in CELLS:
        replayed(catalog, job)
    assert contents(catalog) == before


@pytest.mark.parametrize("content", [b"", b"no tar", b"\0" * 20_000], ids=["empty", "no tar", "zeros"])
def test_what_is_no_exported_record_is_refused(catalog: Catalog, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.tar").write_bytes(content)
    try:
        assert list(transfer.take_in(catalog, tmp_path / "x.tar")) == []
    except UpkeepError as error:
        assert "no exported record" in str(error)


def test_what_no_cell_can_ask_is_removed_and_the_rest_stays(catalog: Catalog) -> None:
    record = Layout(catalog.results).record
    (mine,) = engines(record)
    assert list(transfer.prune(catalog)) == [] and "in use" in next(transfer.listing(catalog))
    with (catalog.root / "src/upkeep/cell/lockstep.py").open("a") as file:
        file.write("\n\nUNUSED = 1\n")
    catalog = Catalog(catalog.root)
    assert "of other weights, packages or code" in next(transfer.listing(catalog))
    assert [line.split()[:2] for line in transfer.prune(catalog)] == [["removed", mine.engine[:16]]]
    assert engines(record) == []


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_more_trials_ask_for_the_new_ones_alone_and_the_first_stay_what_they_are(
    catalog: Catalog, temperature: float
) -> None:
    """Greedy decoding has one reply, so its further trials ask nothing."""
    card = catalog.root / "models/tiny/model.yaml"
    settings = yaml.safe_load(card.read_text())
    settings["sampling"] = settings.get("sampling", {}) | {"temperature": temperature}
    card.write_text(yaml.safe_dump(settings))
    suite = catalog.root / "config/suites/small.yaml"

    def run(trials: int) -> tuple[Manifest, dict[tuple[str, int], bytes]]:
        suite.write_text(yaml.safe_dump(yaml.safe_load(suite.read_text()) | {"trials": trials}))
        now = Catalog(catalog.root)
        manifest = run_cell(now, CLOSED)
        lines = (Layout(now.results).cell(CLOSED) / "predictions.jsonl").read_bytes().splitlines()
        keyed = [(msgspec.json.decode(line, type=Prediction), line) for line in lines]
        return manifest, {(one.probe_id, one.trial): line for one, line in keyed}

    _, two = run(2)
    manifest, five = run(5)
    assert manifest.measured["recorded_replies"] == (2 if temperature else 5) * manifest.probes
    assert manifest.measured["new_replies"] == (3 if temperature else 0) * manifest.probes
    assert {key: line for key, line in five.items() if key[1] < 2} == two
    # The log of an engine is there where there was one to ask.
    assert Layout(catalog.results).log("engines", CLOSED).exists() == (temperature > 0)
    _, again = run(2)
    assert again == two


def test_what_a_writer_writes_is_asked_once_for_all_readers(catalog: Catalog) -> None:
    """The memory is written by a model of its own; the readers are two."""
    card = catalog.root / "models/tiny/model.yaml"
    for name, seed in (("scribe", 5), ("other", 6)):
        (catalog.root / "models" / name).mkdir()
        (catalog.root / "models" / name / "model.yaml").write_text(card.read_text().replace("seed: 0", f"seed: {seed}"))
    method = catalog.root / "methods/memory_scaffold/method.yaml"
    settings = yaml.safe_load(method.read_text())
    settings |= {"settings": ["budget"], "variants": {"written": {"budget": 32, "writer": "scribe"}}}
    method.write_text(yaml.safe_dump(settings))
    catalog = Catalog(catalog.root)
    for name in ("scribe", "other"):
        fetch(catalog, name)
    documents = len(BuiltDataset.read(Layout(catalog.results).dataset(BABI)).documents)
    first = run_cell(catalog, cell := Cell(BABI, "memory_scaffold", "written", "tiny"))
    assert first.measured["arrival_calls"] == documents
    assert first.measured["new_replies"] == documents + first.probes
    assert set(first.environment.served) == {"reader", "writer"}
    second = run_cell(catalog, Cell(BABI, "memory_scaffold", "written", "other"))
    assert (second.measured["recorded_replies"], second.measured["new_replies"]) == (documents, second.probes)
    assert replayed(catalog, cell).identity == first.identity
    assert first.identity_parts["writer_weights"] != first.identity_parts["weights"]
