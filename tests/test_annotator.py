"""A model as the assistant of a builder: what is asked, kept, counted, and refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import numpy as np
import pytest

from conftest import CACHE, put_dataset, spec_of
from endpoint_fakes import KEY, MODEL, VARIABLE, FakeEndpoint, be_quick, fake_endpoint, make_endpoint_repository
from upkeep.building import assistant, store
from upkeep.building.annotator import hire
from upkeep.building.assistant import Step
from upkeep.building.context import Context
from upkeep.building.embedding import embed
from upkeep.building.reading import Faults
from upkeep.catalog import Catalog
from upkeep.contract import Sampling
from upkeep.errors import UpkeepError
from upkeep.execution.share import SharedEngine
from upkeep.files import remove_tree
from upkeep.gateway import transfer
from upkeep.layout import Layout

BABI = "oaks_babi_mini"


class Text(msgspec.Struct):
    text: str


class Verdict(msgspec.Struct):
    verdict: str


JUDGE = Step("judge", Verdict, lambda given: f"Judge: {given.text}", sampling=Sampling(max_tokens=20))
TALK = Step(
    "talk",
    str,
    lambda given: [("user", "first"), ("assistant", "reply"), ("user", given.text)],
    system="be brief",
    sampling=Sampling(max_tokens=20),
)


def says(content: str) -> str:
    return "set:" + json.dumps({"choices.0.message.content": content})


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    be_quick(monkeypatch)


@pytest.fixture
def server() -> Iterator[FakeEndpoint]:
    with fake_endpoint() as server:
        yield server


@pytest.fixture
def catalog(tmp_path: Path, server: FakeEndpoint) -> Catalog:
    return make_endpoint_repository(tmp_path, server.url)


def context(catalog: Catalog, policy: str = "skip") -> Context:
    where = catalog.root / "datasets/toy/dataset.yaml"
    return Context("toy", catalog.dataset("toy"), where, catalog, Faults({"unread_reply": policy}, where))


def test_a_reply_is_asked_for_once_and_kept_for_every_later_build(catalog: Catalog, server: FakeEndpoint) -> None:
    server.act = lambda number, body: says(f'Well: {{"verdict": "{body["messages"][-1]["content"]}"}} so.')
    given = [Text("a"), Text("b"), Text("a")]
    tallies = []
    for _ in range(2):
        with hire(context(catalog), MODEL) as helper:
            assert helper.ask(JUDGE, given) == [Verdict("Judge: a"), Verdict("Judge: b"), Verdict("Judge: a")]
            tallies.append(assistant.statistics(helper))
    assert len(server.bodies) == 2
    assert tallies[0] == tallies[1] and tallies[0]["asked: judge"] == 3 and tallies[0]["asked: usd"] > 0


def test_replies_on_record_need_neither_key_nor_budget(
    tmp_path: Path, server: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hire(context(make_endpoint_repository(tmp_path, server.url)), MODEL) as helper:
        said = helper.ask(TALK, [Text("a"), Text("b")])
    monkeypatch.delenv(VARIABLE)
    (tmp_path / "config/config.yaml").write_text("{runtime: process}")
    with hire(context(Catalog(tmp_path)), MODEL) as helper:
        assert helper.ask(TALK, [Text("b"), Text("a")]) == said[::-1]
        with pytest.raises(UpkeepError, match="needs a key"):
            helper.ask(TALK, [Text("a"), Text("c")])
    assert len(server.bodies) == 2


def test_another_trial_and_another_wording_are_asked_anew(catalog: Catalog, server: FakeEndpoint) -> None:
    with hire(context(catalog), MODEL) as helper:
        helper.ask(TALK, [Text("a")])
        helper.ask(TALK, [Text("a")], trial=1)
        helper.ask(TALK, [Text("b")])
    assert len(server.bodies) == 3
    assert [m["role"] for m in server.bodies[0]["messages"]] == ["system", "user", "assistant", "user"]
    assert len({body["seed"] for body in server.bodies}) == 3


def test_a_reply_in_another_form_is_counted_and_named_or_refused(catalog: Catalog, server: FakeEndpoint) -> None:
    server.act = lambda number, body: says("I would rather not.")
    skipping = context(catalog)
    with hire(skipping, MODEL) as helper:
        assert helper.ask(JUDGE, [Text("a")]) == [None]
        assert assistant.statistics(helper)["unread: judge"] == 1
    assert skipping.faults.counts == {"unread_reply": 1} and "judge 1" in skipping.faults.notes()[0]
    with pytest.raises(UpkeepError, match="no JSON value") as caught, hire(context(catalog, "refuse"), MODEL) as helper:
        helper.ask(JUDGE, [Text("a")])
    assert "faults: {unread_reply: skip}" in str(caught.value)
    assert len(server.bodies) == 1, "the kept reply is read again, not asked for again"


def test_an_endpoint_that_fails_ends_the_build_and_nothing_kept_is_lost(catalog: Catalog, server: FakeEndpoint) -> None:
    server.act = lambda number, body: "status:500" if body["messages"][-1]["content"] == "bad" else "good"
    with hire(context(catalog), MODEL) as helper:
        helper.ask(TALK, [Text("a")])
        with pytest.raises(UpkeepError):
            helper.ask(TALK, [Text("bad")])
    before = len(server.bodies)
    server.act = lambda number, body: "good"
    with hire(context(catalog), MODEL) as helper:
        assert None not in helper.ask(TALK, [Text("a"), Text("bad")])
    assert len(server.bodies) == before + 1


def test_the_budget_holds_and_no_key_is_written(tmp_path: Path, server: FakeEndpoint) -> None:
    catalog = make_endpoint_repository(tmp_path, server.url, budget="0.5")
    with pytest.raises(UpkeepError, match="budget"), hire(context(catalog), MODEL) as helper:
        helper.ask(TALK, [Text(f"{n} " + "x" * 200) for n in range(40)])
    assert server.charged <= 0.5
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files and not any(KEY.encode() in path.read_bytes() for path in files)


KILLED = """
import os, signal, sys
sys.path[:0] = [{tests!r}, {src!r}]
from pathlib import Path
from upkeep.catalog import Catalog
import test_annotator as t
with t.hire(t.context(Catalog(Path({root!r}))), t.MODEL) as helper:
    helper.ask(t.TALK, [t.Text("a"), t.Text("b")])
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_build_that_was_killed_asks_only_for_what_is_missing(
    tmp_path: Path, catalog: Catalog, server: FakeEndpoint
) -> None:
    code = KILLED.format(tests=str(Path(__file__).parent), src=str(Path(store.__file__).parents[2]), root=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], env=os.environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    (log,) = Layout(catalog.results).record.rglob("*.log")
    with log.open("ab") as file:
        file.write(b"\xf1upk torn")
    with hire(context(catalog), MODEL) as helper:
        assert None not in helper.ask(TALK, [Text("a"), Text("b"), Text("c")])
    assert len(server.bodies) == 3


def test_two_builds_at_once_pay_once(catalog: Catalog, server: FakeEndpoint) -> None:
    def build(_: int) -> list[str | None]:
        with hire(context(Catalog(catalog.root)), MODEL) as helper:
            return helper.ask(TALK, [Text("a"), Text("b")])

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(build, range(2))
    assert first == second and len(server.bodies) == 2


def test_an_embedder_is_no_assistant(repository: Path) -> None:
    catalog = Catalog(repository)
    where = repository / "datasets/oaks_babi/dataset.yaml"
    given = Context("oaks_babi_mini", catalog.dataset("oaks_babi_mini"), where, catalog, Faults({}, where))
    with pytest.raises(UpkeepError, match="embedder"):
        hire(given, "minilm")


def test_a_local_model_answers_the_same_whether_asked_at_once_or_one_by_one_and_is_not_asked_again(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPKEEP_RUNTIME", "process")
    monkeypatch.setenv("UPKEEP_CACHE", str(CACHE))
    put_dataset(repository, "helped", spec_of(BABI) | {"options": {"assistant": "tiny"}}, "oaks_babi")
    catalog = Catalog(repository)
    where = repository / "datasets/helped/dataset.yaml"
    record = Layout(catalog.results).record
    step = Step("free", str, lambda one: one.text, sampling=Sampling(max_tokens=8))
    texts = [Text("Where is the lamp?"), Text("Who has it?"), Text("x")]

    def said(*portions: list[Text]) -> list[str | None]:
        with hire(Context("helped", catalog.dataset("helped"), where, catalog, Faults({}, where)), "tiny") as helper:
            return [reply for portion in portions for reply in helper.ask(step, portion)]

    at_once = said(texts)
    assert all(at_once)
    remove_tree(record)
    assert said(*([one] for one in texts)) == at_once

    assert list(transfer.prune(catalog)) == [] and "in use" in next(transfer.listing(catalog))
    monkeypatch.setattr(SharedEngine, "folder", None)  # no engine can be had
    assert said(texts) == at_once
    remove_tree(record)
    assert said([]) == []


def test_vectors_are_of_length_one_and_nearer_for_nearer_texts(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPKEEP_RUNTIME", "process")
    monkeypatch.setenv("UPKEEP_CACHE", str(CACHE))
    catalog = Catalog(repository)
    where = repository / "datasets/oaks_babi/dataset.yaml"
    given = Context(BABI, catalog.dataset(BABI), where, catalog, Faults({}, where))
    vectors = embed(given, "minilm", ["a cat sat", "the weather report", "a cat sat down"])
    assert vectors.shape == (3, 384) and vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert vectors[0] @ vectors[2] > vectors[0] @ vectors[1] + 0.3


def test_the_builtin_vectors_are_the_same_each_time_and_find_the_nearer_text(repository: Path) -> None:
    catalog = Catalog(repository)
    where = repository / "datasets/oaks_babi/dataset.yaml"
    given = Context("oaks_babi_mini", catalog.dataset("oaks_babi_mini"), where, catalog, Faults({}, where))
    texts = ["the storage service has a new limit", "a new limit of the storage service", "outbreak in the north", "!?"]
    vectors = embed(given, "lsa", texts)
    assert np.array_equal(vectors, embed(given, "lsa", texts))
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.3
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert embed(given, "lsa", []).shape[0] == 0
