"""Models behind endpoints: nothing is paid twice, the budget holds, no key leaves, and no fault of the endpoint becomes
a wrong answer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from endpoint_cells import _quick, lines, predictions, requests, run, server
from endpoint_fakes import (
    CELL,
    KEY,
    MODEL,
    NAME,
    VARIABLE,
    FakeEndpoint,
    make_endpoint_repository,
    write_card,
)
from host_fakes import RunnerRuntime, answer_of
from upkeep.catalog import Catalog
from upkeep.contract import Prediction
from upkeep.errors import UpkeepError
from upkeep.execution.supervise import run_cell
from upkeep.gateway.calls import Calls
from upkeep.gateway.endpoints.terms import spent
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.published import told

__all__ = ["_quick", "server"]


# ---------------------------------------------------------------- whole cells


def test_a_cell_is_answered_by_the_endpoint_and_says_what_it_cost(tmp_path: Path, server: FakeEndpoint) -> None:
    catalog = make_endpoint_repository(tmp_path, server.url)
    manifest = run(catalog)
    assert manifest.outcomes == {"answered": 30, "error": 0}
    assert manifest.environment.engine == "endpoint"
    assert manifest.environment.engine_version == f"{NAME} at {server.url.split('/')[2]}"
    assert manifest.measured["cost_usd"] == pytest.approx(server.charged)
    assert (manifest.measured["requests"], manifest.measured["retries"]) == (30, 0)
    assert manifest.usage.calls == 30
    assert spent(catalog.results, MODEL).total == pytest.approx(server.charged)
    assert {(line.finish_reason, line.error) for line in lines(catalog)} == {("stop", None)}
    assert all(answer_of(line) and answer_of(line).isdigit() for line in lines(catalog))


def test_each_prediction_leads_to_what_the_endpoint_was_asked_and_to_what_it_answered(
    tmp_path: Path, server: FakeEndpoint
) -> None:
    catalog = make_endpoint_repository(tmp_path, server.url)
    run(catalog)
    calls = Calls(catalog, CELL)
    bodies = [[(one["role"], one["content"]) for one in body["messages"]] for body in server.bodies]
    asked = []
    for line in lines(catalog):
        (key,) = line.calls
        call = calls.find(key)
        assert call is not None and call.messages is not None and MODEL in call.source
        assert (call.answer, call.prompt, call.completion) == (line.response, line.usage.prompt, line.usage.completion)
        asked.append([(role, "".join(parts)) for role, parts in call.messages])
    assert sorted(asked) == sorted(bodies) and len(asked) == 30
    record = Layout(catalog.results).record
    before, size = predictions(catalog), sum(path.stat().st_size for path in record.rglob("*"))
    run(catalog, force=True)
    assert predictions(catalog) == before and sum(path.stat().st_size for path in record.rglob("*.log")) <= size
    shutil.rmtree(record)
    assert Calls(catalog, CELL).find(lines(catalog)[0].calls[0]) is None


def test_the_version_that_a_provider_names_is_kept_and_a_cell_of_two_says_so(
    tmp_path: Path, server: FakeEndpoint
) -> None:
    server.act = lambda number, body: "version:fp_a" if number < 20 else "version:fp_b"
    catalog = make_endpoint_repository(tmp_path, server.url)
    manifest = run(catalog)
    assert manifest.measured["versions"] == 2 and "answered by 2 versions" in told(manifest)
    calls = [Calls(catalog, CELL).find(line.calls[0]) for line in lines(catalog)]
    found = [call.source.rpartition(", version ")[2] for call in calls if call is not None]
    assert sorted(found) == ["fp_a"] * 20 + ["fp_b"] * 10
    manifest = run(catalog, force=True)
    assert manifest.measured["versions"] == 2, "known of what is kept, too"
    assert manifest.measured["requests"] == 0
    server.act = lambda number, body: "version:fp_c"
    assert "versions of the model" not in told(run(catalog, ask="everything"))


def test_a_refused_request_can_be_shown(tmp_path: Path, server: FakeEndpoint) -> None:
    server.act = lambda number, body: "status:400" if number % 3 == 2 else "good"
    catalog = make_endpoint_repository(tmp_path, server.url)
    run(catalog)
    calls = Calls(catalog, CELL)
    failed = [calls.find(line.calls[0]) for line in lines(catalog) if line.error]
    assert failed and all(call and call.messages and call.ended.startswith("refused: ") for call in failed)


def test_what_is_asked_again_costs_nothing_and_gives_the_same_bytes(tmp_path: Path, server: FakeEndpoint) -> None:
    catalog = make_endpoint_repository(tmp_path, server.url, trials=2)
    run(catalog)
    first, cost, asked = predictions(catalog), server.charged, len(server.bodies)
    manifest = run(catalog, force=True)
    assert predictions(catalog) == first
    assert (server.charged, len(server.bodies)) == (cost, asked)
    assert manifest.measured["cost_usd"] == 0.0
    assert manifest.measured["cached_replies"] == 60
    assert {request.source for request in requests(catalog)[-60:]} == {"cache"}


def test_trials_of_one_probe_are_asked_separately(tmp_path: Path, server: FakeEndpoint) -> None:
    run(make_endpoint_repository(tmp_path, server.url, more="omit: [seed]", trials=3))
    assert len(server.bodies) == 90
    assert len({json.dumps(body) for body in server.bodies}) == 30


def test_a_cell_whose_endpoint_fails_for_good_is_no_wrong_answer_and_continues(
    tmp_path: Path, server: FakeEndpoint
) -> None:
    catalog = make_endpoint_repository(tmp_path, server.url)
    server.act = lambda number, body: "good" if number < 10 else "status:503"
    with pytest.raises(UpkeepError, match="503") as error:
        run(catalog)
    assert error.value.kind == "endpoint"
    assert KEY not in str(error.value)
    assert not Layout(catalog.results).cell(CELL).exists()
    # 10 answers, and what was in flight four times each.
    assert len(server.bodies) <= 10 + 4 * 16
    server.act, before = lambda number, body: "good", len(server.bodies)
    manifest = run(catalog)
    assert manifest.outcomes == {"answered": 30, "error": 0}
    assert len(server.bodies) - before <= 20
    assert manifest.measured["retries"] > 0


def test_a_refused_probe_is_an_error_line_and_stays_one(tmp_path: Path, server: FakeEndpoint) -> None:
    catalog = make_endpoint_repository(tmp_path, server.url)
    bad = "status:400"
    server.act = lambda number, body: bad if "Question 2?" in body["messages"][-1]["content"] else "good"
    manifest = run(catalog)
    assert manifest.outcomes == {"answered": 24, "error": 6}
    refused = [line for line in lines(catalog) if line.error]
    assert all("HTTP 400" in str(line.error) and KEY not in str(line.error) for line in refused)
    first, asked = predictions(catalog), len(server.bodies)
    run(catalog, force=True)
    assert (predictions(catalog), len(server.bodies)) == (first, asked)


def test_an_endpoint_that_refuses_everything_fails_the_cell(tmp_path: Path, server: FakeEndpoint) -> None:
    catalog = make_endpoint_repository(tmp_path, server.url)
    server.act = lambda number, body: "status:400"
    with pytest.raises(UpkeepError, match="refuses every request") as error:
        run(catalog)
    assert "`omit`" in str(error.value.remedy)
    server.act = lambda number, body: "good"
    write_card(tmp_path, server.url)
    assert run(catalog).outcomes["error"] == 0


def test_a_spent_budget_ends_the_cell_and_a_larger_one_continues_it(tmp_path: Path, server: FakeEndpoint) -> None:
    catalog = make_endpoint_repository(tmp_path, server.url, budget="6.0")
    with pytest.raises(UpkeepError, match="could pass its budget") as error:
        run(catalog)
    assert error.value.kind == "budget"
    assert "$6.0000" in str(error.value) and "spent" in str(error.value) and f"budget: {{{MODEL}" in str(error.value)
    assert 0 < server.charged <= 6.0
    paid = len(server.bodies)
    (tmp_path / "config/config.yaml").write_text(f"{{runtime: process, budget: {{{MODEL}: 1000}}}}")
    assert run(Catalog(tmp_path)).outcomes["answered"] == 30
    assert paid < 30 and len(server.bodies) == 30, "nothing that was answered is asked again"


@pytest.mark.parametrize(
    ("variable", "budget", "names"),
    [("", "9", VARIABLE), ("short", "9", VARIABLE), (KEY, "", f"budget: {{{MODEL}")],
)
def test_without_a_key_or_a_budget_nothing_is_sent(
    tmp_path: Path,
    server: FakeEndpoint,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    budget: str,
    names: str,
) -> None:
    monkeypatch.setenv(VARIABLE, variable)
    catalog = make_endpoint_repository(tmp_path, server.url, budget=budget)
    with pytest.raises(UpkeepError) as error:
        run(catalog)
    assert names in str(error.value)
    assert not server.bodies


def test_a_published_cell_is_reused_without_a_key(
    tmp_path: Path, server: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = make_endpoint_repository(tmp_path, server.url)
    first = run(catalog)
    monkeypatch.delenv(VARIABLE)
    assert run(catalog) == first


def test_an_endpoint_that_costs_nothing_and_asks_for_no_key_needs_neither(
    tmp_path: Path, server: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE)
    catalog = make_endpoint_repository(tmp_path, server.url, budget="")
    card = tmp_path / f"models/{MODEL}/model.yaml"
    text = card.read_text().replace(f"key: {VARIABLE}", "key: null").replace("1000", "0")
    card.write_text(text)
    catalog = Catalog(tmp_path)
    assert run(catalog).measured["cost_usd"] == 0.0
    assert all("Authorization" not in headers for headers in server.headers)
    assert not Layout(catalog.results).ledger(MODEL).exists()


NOTES = """
from upkeep.cell import Answer, Method

class Notes(Method):
    def __init__(self, parameters, tools):
        super().__init__(parameters, tools)
        self.notes = {}

    async def arrive(self, stream, documents, llm):
        for document in documents:
            reply = await llm.chat([{"role": "user", "parts": [self.notes.get(stream, ""), document.text]}])
            self.notes[stream] = self.notes.get(stream, "")[-100:] + reply.text

    async def answer(self, probe, seen, llm):
        return Answer(self.notes[probe.stream])
"""


def test_an_endpoint_is_asked_as_documents_arrive_too_and_once_for_all_cells(
    tmp_path: Path, server: FakeEndpoint
) -> None:
    catalog = make_endpoint_repository(tmp_path, server.url)
    (tmp_path / "methods/echo/method.py").write_text(NOTES)
    card = tmp_path / "methods/echo/method.yaml"
    card.write_text(card.read_text().replace("model: false", "model: true"))
    first, second = (Cell("toy", "echo", variant, MODEL) for variant in "ab")
    manifest = run_cell(Catalog(tmp_path), first, runtime=RunnerRuntime())
    assert manifest.outcomes["error"] == 0 and manifest.usage.calls == 0
    assert manifest.measured["arrival_calls"] == 15
    assert manifest.measured["cost_usd"] == pytest.approx(server.charged)
    data = (Layout(catalog.results).cell(first) / "predictions.jsonl").read_bytes()
    assert all("Answer" in str(msgspec.json.decode(line, type=Prediction).response) for line in data.splitlines())
    charged = server.charged
    again = run_cell(Catalog(tmp_path), second, runtime=RunnerRuntime())
    assert again.measured["arrival_calls"] == 15 and again.measured["cost_usd"] == 0.0
    assert server.charged == charged
    assert (Layout(catalog.results).cell(second) / "predictions.jsonl").read_bytes() == data
