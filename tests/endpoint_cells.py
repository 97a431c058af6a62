"""What tests of models behind endpoints share: a fake endpoint, questions to it, and what they leave."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from endpoint_fakes import (
    CELL,
    KEY,
    MODEL,
    FakeEndpoint,
    be_quick,
    fake_endpoint,
)
from host_fakes import RunnerRuntime
from upkeep.catalog import Catalog
from upkeep.cell.endpoint import (
    Ask,
    Endpoint,
    EndpointHandle,
)
from upkeep.contract import Prediction, Sampling
from upkeep.execution.supervise import run_cell
from upkeep.gateway.endpoints.client import Client
from upkeep.gateway.endpoints.record import Request, read
from upkeep.gateway.endpoints.replies import Reply, parts_of
from upkeep.gateway.record import Replies as Record
from upkeep.layout import Layout


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    be_quick(monkeypatch)


@pytest.fixture
def server() -> Iterator[FakeEndpoint]:
    with fake_endpoint() as server:
        yield server


def asks(n: int, text: str = "question") -> list[Ask]:
    return [Ask(i, [("user", [f"{text} ", str(i)])], Sampling(max_tokens=20), seed=i) for i in range(n)]


def record_of(catalog: Catalog) -> Path:
    return Layout(catalog.results).requests(MODEL, "cells", CELL)


def ask_all(catalog: Catalog, questions: Sequence[Ask]) -> list[Reply | BaseException]:
    async def run() -> list[Reply | BaseException]:
        async with Client(catalog, MODEL, record_of(catalog)) as client:
            return await asyncio.gather(*map(client.answer, questions), return_exceptions=True)

    return asyncio.run(run())


def requests(catalog: Catalog) -> list[Request]:
    return read(record_of(catalog))


def predictions(catalog: Catalog) -> bytes:
    return (Layout(catalog.results).cell(CELL) / "predictions.jsonl").read_bytes()


def lines(catalog: Catalog) -> list[Prediction]:
    return [msgspec.json.decode(line, type=Prediction) for line in predictions(catalog).splitlines()]


def no_key_under(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert KEY.encode() not in data and KEY.replace("-", "\\u002d").encode() not in data, path


def run(catalog: Catalog, **options: Any) -> Any:
    return run_cell(catalog, CELL, runtime=RunnerRuntime(), **options)


def kept(catalog: Catalog) -> set[str]:
    """Keys of the replies that are on record and whole."""
    found = set()
    for _, key, value in Record(Layout(catalog.results).record, parts_of(MODEL), MODEL).entries():
        with contextlib.suppress(msgspec.MsgspecError):
            if msgspec.msgpack.decode(value, type=Reply).key == key.hex():
                found.add(key.hex())
    return found


def handle(catalog: Catalog, path: Path) -> EndpointHandle:
    return EndpointHandle(None, catalog.model(MODEL), 0, "p", endpoint=Endpoint(str(path / "engine.sock")))
