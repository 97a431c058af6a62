"""The budget of an endpoint holds, no reply that is kept is paid again, and no key leaves the host."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import upkeep
from endpoint_cells import _quick, ask_all, asks, kept, lines, no_key_under, predictions, run, server
from endpoint_fakes import (
    KEY,
    MODEL,
    USD_A_TOKEN,
    VARIABLE,
    Act,
    FakeEndpoint,
    make_endpoint_repository,
)
from upkeep.errors import UpkeepError
from upkeep.gateway import transfer
from upkeep.gateway.endpoints import ledger as ledger_module
from upkeep.gateway.endpoints.ledger import Ledger
from upkeep.gateway.endpoints.replies import Replies, Reply
from upkeep.gateway.endpoints.terms import require_endpoint, spent
from upkeep.layout import Layout

__all__ = ["_quick", "server"]

TESTS, SRC = Path(__file__).parent, Path(upkeep.__file__).parents[1]


def act_slowly(server: FakeEndpoint) -> Act:
    server.latency_s = 0.02
    return lambda number, body: "good"


# ---------------------------------------------------------------- the budget


@pytest.mark.parametrize("budget", [0.0, 0.5, 1.5, 2.0, 5.0])
def test_the_budget_is_never_passed_with_sixteen_in_flight(tmp_path: Path, server: FakeEndpoint, budget: float) -> None:
    server.act = act_slowly(server)
    catalog = make_endpoint_repository(tmp_path, server.url, budget=str(budget))
    replies = ask_all(catalog, asks(100))
    assert server.charged <= budget
    refused = [reply for reply in replies if isinstance(reply, UpkeepError)]
    assert refused and all(error.kind == "budget" for error in refused)
    found = spent(catalog.results, MODEL)
    assert found.settled == pytest.approx(server.charged) and found.reserved == 0
    # Whatever is left is less than the most that one request can cost.
    assert budget - server.charged < 2.0


def test_the_budget_is_never_passed_by_two_processes(tmp_path: Path, server: FakeEndpoint) -> None:
    server.act = act_slowly(server)
    catalog = make_endpoint_repository(tmp_path, server.url, budget="3.0")
    script = (
        "import sys; from pathlib import Path; import endpoint_cells as t; from upkeep.catalog import Catalog\n"
        "catalog = Catalog(Path(sys.argv[1]))\n"
        "t.record_of = lambda catalog: Path(sys.argv[1]) / sys.argv[2]\n"
        "t.ask_all(catalog, t.asks(40, sys.argv[2]))\n"
    )
    both = [start(script, tmp_path, name) for name in ("one", "two")]
    assert [process.wait(60) for process in both] == [0, 0]
    assert 0 < server.charged <= 3.0
    assert spent(catalog.results, MODEL).settled == pytest.approx(server.charged)
    assert {Path(tmp_path / name).exists() for name in ("one", "two")} == {True}


def start(script: str, *arguments: object) -> subprocess.Popen[bytes]:
    paths = os.pathsep.join([str(TESTS), str(SRC)])
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)], env=os.environ | {"PYTHONPATH": paths}
    )


def test_a_lying_endpoint_is_counted_by_what_it_says(tmp_path: Path, server: FakeEndpoint) -> None:
    server.act = lambda number, body: 'set:{"usage.completion_tokens": 3000}'
    catalog = make_endpoint_repository(tmp_path, server.url)
    ask_all(catalog, asks(1))
    assert spent(catalog.results, MODEL).settled >= 4 * 3000 * USD_A_TOKEN


def test_a_reservation_of_a_killed_process_counts_for_good(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    assert Ledger(path, "m", 10.0, patience_s=0.0).reserve(6.0)
    again = Ledger(path, "m", 10.0, patience_s=0.0)
    with pytest.raises(UpkeepError, match=r"\$6.0000 reserved"):
        again.reserve(5.0)
    number = again.reserve(4.0)
    assert number is not None
    again.settle(number, 1.0)
    assert ledger_module.read(path) == ledger_module.Spent(1.0, 6.0)


def test_a_request_waits_for_the_room_that_others_hold(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl", "m", 10.0, patience_s=60.0)
    number = ledger.reserve(6.0)
    assert number is not None
    assert ledger.reserve(5.0) is None
    ledger.settle(number, 2.0)
    assert ledger.reserve(5.0) is not None


@pytest.mark.parametrize("cut", range(1, 40, 6))
def test_a_torn_last_line_of_the_ledger_is_cut_off(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path, "m", 10.0, 60.0)
    number = ledger.reserve(2.0)
    assert number is not None
    ledger.settle(number, 1.0)
    whole = path.read_bytes()
    path.write_bytes(whole + whole.splitlines(keepends=True)[0][:cut])
    assert ledger_module.read(path).total == 1.0
    assert Ledger(path, "m", 10.0, 60.0).reserve(3.0)
    assert ledger_module.read(path).total == 4.0


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[5:],
        lambda data: data.replace(b"settled", b"stolen"),
        lambda data: data + data.splitlines(keepends=True)[1],
        lambda data: data.replace(b'"usd":1.0', b'"usd":-1.0'),
        lambda data: b"\xff\n" + data,
    ],
)
def test_a_damaged_ledger_stops_all_spending(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path, "m", 10.0, 60.0)
    number = ledger.reserve(2.0)
    assert number is not None
    ledger.settle(number, 1.0)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UpkeepError, match="damaged"):
        Ledger(path, "m", 10.0, 60.0).reserve(1.0)


def test_a_ledger_that_shrinks_under_a_running_job_stops_it(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl", "m", 10.0, 60.0)
    ledger.reserve(1.0)
    ledger.reserve(1.0)
    ledger.path.write_bytes(b"")
    with pytest.raises(UpkeepError, match="gone"):
        ledger.reserve(1.0)


# ---------------------------------------------------------------- what is kept


@pytest.mark.parametrize(
    "damage",
    [lambda d: b"", lambda d: d[:-20], lambda d: d.replace(b"Answer", b"answer")],
    ids=["gone", "torn", "other"],
)
def test_a_damaged_reply_is_asked_again(tmp_path: Path, server: FakeEndpoint, damage: Callable[[bytes], bytes]) -> None:
    catalog = make_endpoint_repository(tmp_path, server.url)
    (first,) = ask_all(catalog, asks(1))
    (log,) = Layout(catalog.results).record.rglob("*.log")
    log.write_bytes(damage(log.read_bytes()))
    (again,) = ask_all(catalog, asks(1))
    assert isinstance(first, Reply) and isinstance(again, Reply) and again.text == first.text
    assert len(server.bodies) == 2 and kept(catalog) == {first.key}


def test_what_another_job_was_answered_meanwhile_is_not_paid_again(
    tmp_path: Path, server: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("upkeep.gateway.endpoints.replies.LOOK_S", 0.0)
    catalog = make_endpoint_repository(tmp_path, server.url)
    ours = Replies(Layout(catalog.results).record, MODEL)
    (theirs,) = ask_all(catalog, asks(1))
    assert isinstance(theirs, Reply) and ours.get(theirs.key) == theirs


def test_what_was_paid_for_goes_to_another_machine_and_is_never_pruned(tmp_path: Path, server: FakeEndpoint) -> None:
    catalog = make_endpoint_repository(tmp_path / "ours", server.url)
    run(catalog)
    asked, answers = len(server.bodies), predictions(catalog)
    assert not list(transfer.prune(catalog))
    list(transfer.export(catalog, tmp_path / "record.tar"))
    there = make_endpoint_repository(tmp_path / "theirs", server.url)
    list(transfer.take_in(there, tmp_path / "record.tar"))
    (line,) = transfer.listing(there)
    assert MODEL in line and "in use" in line
    run(there)
    assert predictions(there) == answers and len(server.bodies) == asked


RUN_CELL = """
import sys
from pathlib import Path
import endpoint_cells as t
from upkeep.catalog import Catalog
t.run(Catalog(Path(sys.argv[1])))
"""


@pytest.mark.parametrize("at", [3, 11, 19, 27])
def test_killed_at_any_moment_no_kept_reply_is_paid_again(tmp_path: Path, server: FakeEndpoint, at: int) -> None:
    server.latency_s = 0.02
    catalog = make_endpoint_repository(tmp_path, server.url, more="max_in_flight: 3")
    process = start(RUN_CELL, tmp_path)
    deadline = time.monotonic() + 60
    while len(kept(catalog)) < at and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before, asked = kept(catalog), len(server.bodies)
    assert at <= len(before) <= asked
    manifest = run(catalog)
    assert manifest.outcomes["answered"] == 30
    assert len(server.bodies) == asked + 30 - len(before), "each answer that was not kept is asked for, and no other"
    assert asked - len(before) <= 3, "and those were in flight"
    found = spent(catalog.results, MODEL)
    assert found.total >= server.charged - 1e-9
    assert found.total > found.settled or asked == len(before)


# ---------------------------------------------------------------- the key


def test_the_key_is_in_no_file_and_no_output(
    tmp_path: Path, server: FakeEndpoint, capfd: pytest.CaptureFixture[str]
) -> None:
    acts = ["keyed", "status:400", "status:500", "nonsense", f"other:{KEY}", "good"]
    server.act = lambda number, body: acts[number % len(acts)]
    catalog = make_endpoint_repository(tmp_path, server.url, more="retries: 9")
    run(catalog)
    assert any("[key]" in str(line.response) for line in lines(catalog))
    assert any("[key]" in str(line.reasoning) for line in lines(catalog))
    server.act = lambda number, body: "status:401"
    (failed,) = ask_all(catalog, asks(1))
    assert KEY not in str(failed)
    no_key_under(tmp_path)
    assert KEY not in "".join(capfd.readouterr())


def test_a_key_that_is_no_header_is_refused_without_being_shown(
    tmp_path: Path, server: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = make_endpoint_repository(tmp_path, server.url)
    for key in ("sk-secret\nX-Other: 1", "sk-sécret-0123", "sk secret 0123", "sk-\x07secret-012"):
        monkeypatch.setenv(VARIABLE, key)
        with pytest.raises(UpkeepError) as error:
            require_endpoint(catalog, MODEL)
        assert "secret" not in str(error.value) and "sécret" not in str(error.value)
