"""`./upkeep logs`: where logs lie and how they end, whole, and without what would steer a terminal."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from host_fakes import ScriptedRuntime
from status_files import ECHO, catalog, look, upkeep, write
from upkeep.batches import batches
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.execution.supervise import run_cell
from upkeep.layout import Layout
from upkeep.operations import logs
from upkeep.operations.status.states import Survey
from upkeep.text import printable, short

__all__ = ["catalog"]


# ---------------------------------------------------------------- logs


def leave_log(catalog: Catalog, content: bytes, cell: object = ECHO, of: str = "cells") -> Path:
    log = Layout(catalog.results).log(of, cell)
    path = log.with_name(f"{log.stem}.container.log")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def shown(catalog: Catalog, cell: str = str(ECHO), full: bool = False) -> list[str]:
    return list(logs.lines(catalog, cell, full=full, following=False))


def test_logs_say_where_they_lie_and_how_they_end(catalog: Catalog) -> None:
    with pytest.raises(UpkeepError):
        run_cell(catalog, ECHO, runtime=ScriptedRuntime("die", 10), retries=0)
    lines = shown(catalog)
    assert "failed" in lines[0] and "method:" in lines[0]
    assert any(line.endswith("none.container.log") for line in lines)
    assert lines[-1] == "something broke"


def test_escape_sequences_of_a_log_do_not_reach_the_terminal(catalog: Catalog) -> None:
    hostile = b"\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b]52;c;cGF3bmVk\x1b\\ \x9b2J"
    hostile += b"\x00\x08\x7f \xe2\x80\xae \xff\n10%\r20%\n"
    leave_log(catalog, hostile)
    for text in (
        "\n".join(shown(catalog)),
        "\n".join(shown(catalog, full=True)),
        upkeep(catalog, "logs", "echo/a").stdout,
    ):
        assert "red" in text and "20%" in text
        assert all(c.isprintable() or c in "\n\t" for c in text)
        assert "pawned" not in text and "cGF3" not in text and "title" not in text


def test_the_end_of_a_huge_log_is_shown_without_reading_it_all(catalog: Catalog) -> None:
    path = leave_log(catalog, b"first\n" + b"x" * 10_000_000 + b"\nlast\n")
    with path.open("ab") as file:
        file.truncate(50_000_000_000)  # sparse
    assert len("".join(logs.tail(path))) <= logs.BLOCK_BYTES


def test_the_whole_log_is_whole_whatever_its_lines(catalog: Catalog) -> None:
    content = b"a" * 200_000 + b"\n" + b"b\n" * 100_000 + b"\n\n" + b"c" * 70_000
    path = leave_log(catalog, content)
    assert "".join(logs.tail(path, None)).encode() == content.replace(b"\n", b"")


def test_a_part_of_a_name_is_enough_where_it_fits_one_alone(catalog: Catalog) -> None:
    leave_log(catalog, b"x", "toy/gone/a/none")
    assert logs.find(catalog, "toy/echo/a/none") == "toy/echo/a/none"
    assert logs.find(catalog, "echo/b") == "toy/echo/b/none"
    assert logs.find(catalog, "toy/gone") == "toy/gone/a/none"
    with pytest.raises(UpkeepError, match="2 jobs match"):
        logs.find(catalog, "echo")
    with pytest.raises(UpkeepError, match="did you mean toy/echo/a/none"):
        logs.find(catalog, "toy/ecoh/a/none")
    with pytest.raises(UpkeepError, match="6 jobs match"):
        logs.find(catalog, "")


def test_a_name_that_is_a_suffix_of_one_cell_means_that_cell(catalog: Catalog) -> None:
    leave_log(catalog, b"x", "toy/echo/a/none+sft.q")
    assert logs.find(catalog, "echo/a/none") == "toy/echo/a/none"


def test_a_cell_and_a_training_of_one_name_are_both_shown(catalog: Catalog) -> None:
    leave_log(catalog, b"of the cell\n", "toy/trainer/a/none")
    leave_log(catalog, b"of the training\n", "toy/trainer/a/none", "trained")
    lines = shown(catalog, "toy/trainer/a/none")
    assert "of the cell" in lines and "of the training" in lines


def test_a_cell_that_was_not_begun_says_so(catalog: Catalog) -> None:
    with pytest.raises(UpkeepError, match="not been begun"):
        shown(catalog)


def test_the_logs_of_batch_engine_and_slurm_job_are_shown(catalog: Catalog) -> None:
    layout = Layout(catalog.results)
    (batch,) = batches(catalog, catalog.cells(catalog.suite("mini")))
    slurm = catalog.root / ".snakemake/slurm_logs/rule_batch x/17.log"
    for path, text in (
        (layout.log("batches", batch.name), "of the batch"),
        (layout.log("engines", batch.name), "of the engine"),
        (slurm, "of the SLURM job"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    write(catalog, state="failed", job="17")
    assert {"of the batch", "of the engine", "of the SLURM job"} <= set(shown(catalog))


def test_following_ends_with_the_job_and_misses_nothing(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "POLL_S", 0.01)
    path = leave_log(catalog, b"before\n")
    write(catalog)
    lines: list[str] = []
    seen = threading.Event()

    def read_on(source: Iterator[str]) -> None:
        for line in source:
            lines.append(line)
            if line in ("before", "one", "anew"):
                seen.set()

    thread = threading.Thread(
        target=read_on, args=(logs.lines(catalog, str(ECHO), full=False, following=True),), daemon=True
    )
    thread.start()
    for step in (b"one\n", None, b"last"):
        assert seen.wait(30)
        seen.clear()
        if step is None:
            path.write_bytes(b"anew\n")  # the next attempt begins the log anew
        else:
            with path.open("ab") as file:
                file.write(step)
    write(catalog, state="done")
    thread.join(30)
    assert not thread.is_alive()
    assert [line for line in lines if line in ("before", "one", "anew", "last")] == ["before", "one", "anew", "last"]


# ---------------------------------------------------------------- text


def test_printable_text_has_nothing_but_characters() -> None:
    every = "".join(map(chr, range(0x300))) + "".join(map(chr, range(0x2000, 0x2100)))
    assert all(c.isprintable() or c in "\n\t" for c in printable(every))
    assert printable("Grüße, 世界\tend\r\nnext") == "Grüße, 世界\tend\nnext"


def test_a_long_reason_is_cut_and_an_empty_one_is_said() -> None:
    assert len(short("x" * 10_000)) == 400
    assert short("") == short("\n \n") == "no reason given"
    assert short("first\n  found: last\n  remedy:   mend it") == "first (found: last)"


def test_json_of_a_survey_is_read_back(catalog: Catalog) -> None:
    write(catalog, done=1)
    found = look(catalog)
    assert msgspec.convert(json.loads(msgspec.json.encode(found)), Survey) == found
