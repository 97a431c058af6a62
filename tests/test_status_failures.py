"""`./upkeep status`: a failure has its kind, its reason and advice that names what to do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from host_fakes import ScriptedRuntime, make_repository
from status_files import ECHO, SUITE, catalog, drawn, look, view, write
from upkeep.catalog import Catalog
from upkeep.errors import KINDS, UpkeepError
from upkeep.execution.status import read, read_all
from upkeep.execution.supervise import run_cell
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.operations import logs
from upkeep.report import waiting

__all__ = ["catalog"]


@pytest.mark.parametrize(
    ("runtime", "kind"),
    [
        (ScriptedRuntime("die", 10), "method"),
        (ScriptedRuntime("fill", 10), "disk"),
        (ScriptedRuntime("raw", 10, raw="b'{}\\n'"), "output"),
        (ScriptedRuntime("shrink", 10), "output"),
    ],
)
def test_a_failure_has_its_kind(catalog: Catalog, runtime: ScriptedRuntime, kind: str) -> None:
    with pytest.raises(UpkeepError) as raised:
        run_cell(catalog, ECHO, runtime=runtime, retries=0)
    assert raised.value.kind == kind
    found = view(look(catalog))
    assert (found.state, found.kind) == ("failed", kind)
    assert found.reason and str(ECHO) not in found.reason


def test_a_kill_from_outside_is_no_failure_of_the_method(catalog: Catalog) -> None:
    with pytest.raises(UpkeepError) as raised:
        run_cell(catalog, ECHO, runtime=ScriptedRuntime(extra="os.kill(os.getpid(), 9)"), retries=0)
    assert raised.value.kind == "interrupted"
    assert view(look(catalog)).state == "interrupted"


def test_a_missing_input_is_a_failure_of_that_kind(catalog: Catalog) -> None:
    (Layout(catalog.results).dataset("toy") / "card.json").unlink()
    with pytest.raises(UpkeepError):
        run_cell(catalog, ECHO, runtime=ScriptedRuntime())
    assert view(look(catalog)).kind == "input"


def test_a_mistake_of_the_suite_is_of_no_other_kind(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = ScriptedRuntime()
    monkeypatch.setattr(runtime, "start", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run_cell(catalog, ECHO, runtime=runtime)
    assert view(look(catalog)).kind == "other"


def test_failures_with_one_reason_are_shown_together_and_each_where_asked(catalog: Catalog) -> None:
    for name in ("a", "b"):
        cell = Cell("toy", "echo", name, "none")
        write(catalog, cell, state="failed", kind="memory", message=f"{cell}: killed\n  found: x")
    found = look(catalog)
    together, each = drawn(found), drawn(found, each=True)
    assert together.count("killed") == 1 and "2 jobs" in together
    assert each.count("killed") == 2 and "toy/echo/b/none" in each
    assert "resources.memory_gb in methods/echo/method.yaml" in together and "models/" not in together


def test_advice_names_the_card_that_a_preset_is_in(tmp_path: Path) -> None:
    make_repository(tmp_path)
    (tmp_path / "config/suites/mini.yaml").write_text(SUITE.replace("none", "m-p").replace(", guided", ""))
    method = tmp_path / "methods/echo/method.yaml"
    method.write_text(method.read_text().replace("model: false", "model: true"))
    card = tmp_path / "models/m/model.yaml"
    card.parent.mkdir(parents=True)
    card.write_text(
        "{label: M, summary: s, source: path, location: w, context_length: 9, presets: {p: {sampling: {}}}}"
    )
    catalog = Catalog(tmp_path)
    write(catalog, cell := Cell("toy", "echo", "a", "m-p"), state="failed", kind="memory", message=f"{cell}: killed")
    assert "methods/echo/method.yaml or models/m/model.yaml" in " ".join(look(catalog).next)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_advice_that_names_the_cell_it_is_about(catalog: Catalog, kind: str) -> None:
    state = "stopped" if kind == "interrupted" else "failed"
    write(catalog, state=state, kind=kind, message="x")
    found = look(catalog)
    assert view(found).state == ("interrupted" if kind == "interrupted" else "failed")
    assert found.next and all("{" not in line.replace("{none: US dollars}", "") for line in found.next)


def test_what_a_method_wrote_neither_styles_nor_steers_the_terminal(catalog: Catalog) -> None:
    write(catalog, state="failed", kind="method", message="[red]x[/red] [/] \x1b[2J\x1b]0;title\x07 \x9b31m \u202e")
    text = drawn(look(catalog), each=True)
    assert "[red]x[/red] [/]" in text
    assert not any(c in text for c in "\x1b\x07\x9b\u202e") and "title" not in text


def test_the_report_names_the_kind_too(catalog: Catalog) -> None:
    write(catalog, state="failed", kind="memory", message=f"{ECHO}: killed\x1b[31m")
    assert waiting._reason(catalog, ECHO, None) == f"failed (memory): {ECHO}: killed"


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "content",
    [
        *(b"", b'{"state": "fai', b"[]", b"7", b"null", b"{}", b"\xff", b"[" * 200_000, b'{"name":' * 200_000),
        *(b'{"state": "failed", "message": 5}', b'{"state": "failed", "message": "x"}', "pipe", "folder", "nowhere"),
    ],
    ids=lambda content: repr(content[:36]),
)
def test_a_status_that_is_none_tells_nothing_and_stops_nothing(catalog: Catalog, content: bytes | str) -> None:
    path = write(catalog)
    path.unlink()
    match content:
        case bytes():
            path.write_bytes(content)
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case _:
            path.symlink_to("/nowhere/at/all")
    assert read(path) is None and list(read_all(path.parent)) == []
    assert view(look(catalog)).state == "not begun"
    assert waiting._reason(catalog, ECHO, None).startswith(("not run", "dataset not available"))
    assert all(job.status is None for job in logs.logs_of(catalog, str(ECHO)))


def test_a_fresh_publication_counts_more_than_a_failure_of_before(catalog: Catalog) -> None:
    run_cell(catalog, ECHO, runtime=ScriptedRuntime())
    write(catalog, state="failed", kind="machine", message="disk full")
    assert view(look(catalog)).state == "done"
