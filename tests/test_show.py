"""Claims about `upkeep show` and `record why CELL PROBE`: the very text that a model read, and nothing else."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import polars as pl
import pytest
import yaml

from suite_fakes import called
from test_replay import BABI, CLOSED, RECALLED, SEARCHED, done
from upkeep.catalog import Catalog
from upkeep.cell.tokens import ChatTokens
from upkeep.contract import Manifest, Prediction
from upkeep.errors import UpkeepError
from upkeep.execution.supervise import run_cell
from upkeep.gateway import prompts, transfer
from upkeep.gateway import why as asking
from upkeep.gateway.calls import Records
from upkeep.gateway.record import NotRecorded, engines
from upkeep.integrity import fingerprint, read_sealed, write_sealed
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.operations.show import show
from upkeep.operations.told import One, tell
from upkeep.published import predictions
from upkeep.weights import find

__all__ = ["done"]


@pytest.fixture(scope="module")
def shown(done: Path, tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """For tests that only look."""
    shutil.copytree(done, root := tmp_path_factory.mktemp("shown") / "upkeep", symlinks=True)
    return Catalog(root)


@pytest.fixture
def catalog(done: Path, tmp_path: Path) -> Iterator[Catalog]:
    """For tests that change something."""
    shutil.copytree(done, tmp_path / "upkeep", symlinks=True)
    yield Catalog(tmp_path / "upkeep")


def text(catalog: Catalog, cell: Cell, probe: str | None = None, **how: bool) -> str:
    options = {"wrong": False, "full": True} | how
    return "\n".join(show(catalog, str(cell), probe, **options))


def said(text: str) -> str:
    """As it is shown of others' text."""
    return "\n".join(f"  | {line}".rstrip() for line in text.split("\n"))


def every(catalog: Catalog, cell: Cell) -> list[Prediction]:
    return list(predictions(catalog, cell))


def republish(catalog: Catalog, cell: Cell, change: Callable[[Prediction], Prediction]) -> None:
    """Put other predictions in the place of a cell's, as a container might have written them."""
    folder = Layout(catalog.results).cell(cell)
    lines = [msgspec.json.encode(change(one)) + b"\n" for one in every(catalog, cell)]
    (folder / "predictions.jsonl").write_bytes(b"".join(lines))
    manifest = read_sealed(folder / "manifest.json", Manifest, "")
    files = manifest.files | {"predictions.jsonl": fingerprint(folder / "predictions.jsonl")}
    write_sealed(folder / "manifest.json", msgspec.structs.replace(manifest, files=files))


# ---------------------------------------------------------------- what is shown is so


@pytest.mark.parametrize("cell", [CLOSED, SEARCHED, RECALLED], ids=str)
def test_every_call_of_every_prediction_is_named_and_kept_with_its_prompt_and_its_reply(
    shown: Catalog, cell: Cell
) -> None:
    """What is kept has the length that was booked, by the model's own tokenizer and template."""
    spec, weights = find(shown, cell.model, cell.dataset)
    tokens = ChatTokens(str(weights.path), spec)
    records, seen = Records(shown, cell), 0
    for prediction in every(shown, cell):
        assert len(prediction.calls) == prediction.usage.calls == 1
        key = bytes.fromhex(prediction.calls[0])
        (found,) = records.holding(key)
        assert found.engine.engine in records.own
        messages = prompts.prompt(records.replies(found.engine), found.prompt)
        prompt = tokens.prompt([{"role": role, "parts": parts} for role, parts in messages])
        assert prompt.length == prediction.usage.prompt
        seen += prompt.length
    assert seen


@pytest.mark.parametrize("cell", [CLOSED, SEARCHED], ids=str)
def test_a_prediction_is_shown_with_question_prompt_reply_key_and_the_verdict_of_the_scorer(
    shown: Catalog, cell: Cell
) -> None:
    folder = Layout(shown.results).dataset(BABI)
    asked = dict(pl.read_parquet(folder / "probes.parquet").select("probe_id", "question").iter_rows())
    gold = dict(pl.read_parquet(folder / "gold.parquet").select("probe_id", "answers").iter_rows())
    listed = text(shown, cell)
    for prediction in every(shown, cell)[::10]:
        found = text(shown, cell, prediction.probe_id)
        assert said(asked[prediction.probe_id]) in found and prediction.response is not None
        assert "reply: " in found and "note:" not in found
        right = found.partition("ANSWER KEY")[2].splitlines()[1].removeprefix("  right     ")
        assert right == " | ".join(gold[prediction.probe_id])
        verdict = found.rpartition("VERDICT: ")[2]
        assert re.search(rf"^  {verdict} +{re.escape(prediction.probe_id)} ", listed, re.MULTILINE)
        for hit in prediction.retrieved:
            assert re.search(rf"^ +{hit.rank} +{hit.score:.4f}  {re.escape(hit.id)}", found, re.MULTILINE)
    assert listed.startswith(f"{cell}: {len(every(shown, cell))} predictions: ")


def test_a_long_part_is_shortened_and_given_whole_when_asked_for(
    shown: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("upkeep.operations.show.PART", 100)
    probe = every(shown, SEARCHED)[-1].probe_id
    short, full = text(shown, SEARCHED, probe, full=False), text(shown, SEARCHED, probe)
    assert "--full shows them" in short and "--full" not in full and len(short) < len(full)


def test_a_listing_is_bounded_and_can_be_of_one_question_or_of_what_is_wrong(shown: Catalog) -> None:
    assert len(text(shown, CLOSED, full=False).splitlines()) <= 103
    question = every(shown, CLOSED)[0].probe_id.partition("@")[0]
    one = text(shown, CLOSED, question)
    assert len(one.splitlines()) == 2 + sum(p.probe_id.startswith(f"{question}@") for p in every(shown, CLOSED))
    wrong = [line.split()[0] for line in text(shown, CLOSED, wrong=True).splitlines()[1:-1]]
    assert wrong and "right" not in wrong


@pytest.mark.parametrize("cell", [CLOSED, SEARCHED], ids=str)
def test_programs_are_told_the_whole_prompt_and_reply_of_each_call(shown: Catalog, cell: Cell) -> None:
    probe, out = every(shown, cell)[-1].probe_id, list[str]()
    assert called(shown.root, "show", str(cell), probe, "--json", out=out) == (0, "")
    told = msgspec.json.decode(out[0], type=One)
    assert isinstance(tell(shown, str(cell), probe, wrong=False), One) and told.notes == [] and told.named == 1
    (call,) = told.calls
    assert call.reply == told.response and call.messages is not None
    lines = text(shown, cell, probe)
    for message in call.messages:
        assert said("".join(message.parts)) in lines
    assert any(told.question in "".join(message.parts) for message in call.messages)


def test_the_record_is_listed_for_programs_as_for_people(shown: Catalog) -> None:
    out: list[str] = []
    assert called(shown.root, "record", "list", "--json", out=out) == (0, "")
    (kept,) = msgspec.json.decode(out[0], type=list[transfer.Kept])
    (line,) = transfer.listing(shown)
    assert line.startswith(f"{kept.engine[:16]}  {kept.model}  {kept.package}  {kept.entries:,} entries")
    assert kept.use == "in use" and line.endswith("  in use")
    assert kept.bytes == sum(p.stat().st_size for p in (Layout(shown.results).record / kept.engine).iterdir())


# ---------------------------------------------------------------- what cannot be shown is said


def test_what_is_not_there_is_said_with_what_would_help(shown: Catalog, tmp_path: Path) -> None:
    probe = every(shown, CLOSED)[3].probe_id
    with pytest.raises(UpkeepError, match=f"the nearest: .*{re.escape(probe)}"):
        show(shown, str(CLOSED), probe + "x", wrong=False, full=False)
    with pytest.raises(UpkeepError, match=r"not published\n.*\./upkeep cell oaks_babi_mini/rag_bm25/k3/tiny"):
        show(shown, f"{BABI}/rag_bm25/k3/tiny", wrong=False, full=False)
    with pytest.raises(UpkeepError, match="no trial 1"):
        show(shown, str(CLOSED), probe, 1, wrong=False, full=False)
    status, error = called(shown.root, "show", str(CLOSED), "nothing")
    assert status == 1 and "no probe 'nothing'" in error and "Traceback" not in error
    out: list[str] = []
    status, error = called(shown.root, "show", str(CLOSED), probe, out=out)
    assert (status, error) == (0, "") and "CALL 1 of 1" in out[0]


def test_a_record_that_was_pruned_is_said_to_be(catalog: Catalog) -> None:
    shutil.rmtree(Layout(catalog.results).record)
    found = text(catalog, CLOSED, every(catalog, CLOSED)[0].probe_id)
    assert "no request with this key is on record" in found and "VERDICT: " in found


def test_a_key_of_another_prediction_is_not_passed_off_as_its_own(catalog: Catalog) -> None:
    """A container writes what it likes into its predictions."""
    mine = every(catalog, CLOSED)
    other = next(p for p in mine if p.response != mine[0].response and p.probe_id[:9] != mine[0].probe_id[:9])
    republish(catalog, CLOSED, lambda one: msgspec.structs.replace(one, calls=other.calls))
    found = text(catalog, CLOSED, mine[0].probe_id)
    assert "the question stands in none of these prompts" in found
    assert "the prediction's response is none of these replies" in found
    republish(catalog, CLOSED, lambda one: msgspec.structs.replace(one, calls=["0" * 64, *other.calls * 2]))
    found = text(catalog, CLOSED, mine[0].probe_id)
    assert "no request with this key is on record" in found and "CALL 3 of 3" in found
    assert "the question stands in none of these prompts" in found
    republish(catalog, CLOSED, lambda one: msgspec.structs.replace(one, calls=["0" * 64] * 20_000))
    found = text(catalog, CLOSED, mine[0].probe_id, full=False)
    assert "CALL 50 of 20,000" in found and "19,950 calls more" in found and len(found.splitlines()) < 300
    republish(catalog, CLOSED, lambda one: msgspec.structs.replace(one, calls=[]))
    assert "1 of the calls have no key" in text(catalog, CLOSED, mine[0].probe_id)


def test_no_control_character_of_a_model_reaches_the_terminal(catalog: Catalog) -> None:
    bad = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202eevil\r\x00VERDICT: right"

    def hostile(one: Prediction) -> Prediction:
        return msgspec.structs.replace(one, response=bad, reasoning=bad)

    republish(catalog, CLOSED, hostile)
    for found in (text(catalog, CLOSED), text(catalog, CLOSED, every(catalog, CLOSED)[0].probe_id)):
        assert all(c.isprintable() or c == "\n" for c in found)
        assert found.count("\nVERDICT: ") <= 1 and "evil" in found


@pytest.mark.parametrize("seed", range(12))
def test_a_flipped_bit_gives_the_very_text_or_none(catalog: Catalog, seed: int) -> None:
    cell = SEARCHED
    (engine,) = engines(Layout(catalog.results).record)
    before: dict[str, prompts.Messages] = {}
    for damaged in (False, True):
        if damaged:
            for log in (Layout(catalog.results).record / engine.engine).glob("*.log"):
                data = bytearray(log.read_bytes())
                for place in range(seed * 97, len(data), max(1, len(data) // 60)):
                    data[place] ^= 1 << (seed % 8)
                log.write_bytes(data)
        records, lost = Records(catalog, cell), 0
        for key in (key for one in every(catalog, cell) for key in one.calls):
            for held in records.holding(bytes.fromhex(key)):
                try:
                    messages = prompts.prompt(records.replies(held.engine), held.prompt)
                except prompts.NotReadable:
                    lost += 1
                    continue
                assert before.setdefault(key, messages) == messages
        assert bool(lost) == damaged
    text(catalog, cell, every(catalog, cell)[0].probe_id)


def test_a_cell_from_before_prompts_were_kept_is_shown_without_them(catalog: Catalog) -> None:
    """Until it is run again, which asks no model."""
    republish(catalog, CLOSED, lambda one: msgspec.structs.replace(one, calls=[]))
    probe = every(catalog, CLOSED)[0].probe_id
    assert f"./upkeep cell {CLOSED} --force" in text(catalog, CLOSED, probe)
    run_cell(catalog, CLOSED, force=True, ask="nothing")
    assert "CALL 1 of 1" in text(catalog, CLOSED, probe)


# ---------------------------------------------------------------- why it is not on record


def why(catalog: Catalog, probe: str) -> str:
    """For people; for programs it is the same, of the form that docs/json.md has."""
    printed: list[str] = []
    for option in ([], ["--json"]):
        status, errors = called(catalog.root, "record", "why", str(CLOSED), probe, *option, out=printed)
        if status:
            raise UpkeepError(errors)
    told = msgspec.json.decode(printed[1], type=asking.Why)
    assert json.loads(msgspec.json.encode(told)) == json.loads(printed[1])
    assert "\n".join(asking.lines(told)) + "\n" == printed[0]
    return printed[0]


def test_what_is_on_record_is_said_to_be(shown: Catalog) -> None:
    probe = every(shown, CLOSED)[0].probe_id
    assert "call 1 of 1: recorded by" in why(shown, probe) and "no replay" in why(shown, probe)
    with pytest.raises(UpkeepError, match="no probe 'x'"):
        why(shown, "x")


def test_the_first_difference_of_a_prompt_is_shown(catalog: Catalog) -> None:
    own = catalog.root / "own.txt"
    own.write_text("Answer in one word. State your answer on a last line that begins with: ## Answer:")
    config = catalog.root / "config/config.yaml"
    prompt = catalog.dataset(BABI).prompt
    config.write_text(yaml.safe_dump(yaml.safe_load(config.read_text()) | {"prompts": {prompt: str(own)}}))
    probe = every(catalog, CLOSED)[0].probe_id
    catalog = Catalog(catalog.root)
    with pytest.raises(NotRecorded):
        run_cell(catalog, CLOSED, ask="nothing")
    told = why(catalog, probe)
    assert "the first difference: message 1" in told
    assert "Answer in one word. State your" in told.partition("  now:")[2]
    run_cell(catalog, CLOSED)
    assert "has been answered since" in why(catalog, probe)


def test_another_way_of_decoding_is_told_from_the_same_prompt(catalog: Catalog) -> None:
    card = catalog.root / "models/tiny/model.yaml"
    fields = yaml.safe_load(card.read_text())
    fields["sampling"] = (fields.get("sampling") or {}) | {"max_tokens": 7}
    card.write_text(yaml.safe_dump(fields))
    catalog = Catalog(catalog.root)
    with pytest.raises(NotRecorded):
        run_cell(catalog, CLOSED, ask="nothing")
    told = why(catalog, every(catalog, CLOSED)[0].probe_id)
    assert "the prompt is the same" in told
    assert re.search(r"sampling: .*at most \d+ tokens on record, .*at most 7 tokens now", told)
