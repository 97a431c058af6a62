"""A cell is fed round by round, whatever is done already."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upkeep.contract import Document, Probe
from upkeep.execution import rounds
from upkeep.execution.rounds import BuiltDataset, answering, tasks


@st.composite
def corpora(draw: st.DrawFn) -> BuiltDataset:
    documents, probes = [], []
    for s in range(draw(st.integers(0, 5))):
        length = draw(st.integers(1, 6))
        documents += [
            Document(id=f"{s}.{t}", stream=f"s{s}", position=t, timestamp=None, text="") for t in range(length)
        ]
        for t in draw(st.lists(st.integers(0, length - 1), max_size=8).map(sorted)):
            probes.append(
                Probe(
                    id=f"p{len(probes)}",
                    question_id="q",
                    stream=f"s{s}",
                    position=t,
                    question="",
                    options=None,
                    form="short",
                )
            )
    return BuiltDataset(Path(), documents, probes)


# ---------------------------------------------------------------- rounds


@settings(max_examples=200, deadline=None)
@given(corpora(), st.integers(1, 8), st.integers(1, 4), st.integers(1, 3), st.randoms(use_true_random=False))
def test_rounds_ask_for_what_is_open_and_bring_the_same_documents_whatever_is_done(
    corpus: BuiltDataset, least: int, streams: int, trials: int, rng: object
) -> None:
    done = [rng.random() < 0.6 for _ in corpus.probes for _ in range(trials)]  # type: ignore[attr-defined]
    steps = answering(corpus, least, streams)
    (anew,) = tasks(corpus, [steps], trials, bytes(len(done)))
    again = list(*tasks(corpus, [steps], trials, done))
    assert [task.round.documents for task in again] == [task.round.documents for task in anew]
    keys = [(probe.id, trial) for probe in corpus.probes for trial in range(trials)]
    asked: list[tuple[str, int]] = []
    heads: dict[str, int] = {}
    for task in again:
        for document in task.round.documents:
            assert document.position == heads.get(document.stream, -1) + 1, "documents come in order, each once"
            heads[document.stream] = document.position
        told = set(task.round.done)
        for probe in task.round.probes:
            assert heads[probe.stream] == probe.position, "exactly what has arrived is in the container"
            missing = [(probe.id, trial) for trial in range(trials) if (probe.id, trial) not in told]
            assert missing, "a probe of which every trial is there is not in the round"
            asked += missing
        assert told <= {(probe.id, trial) for probe in task.round.probes for trial in range(trials)}
        assert sorted(task.keys) == [n for n, key in enumerate(keys) if key[0] in {p.id for p in task.round.probes}]
    assert sorted(asked) == sorted(key for key, there in zip(keys, done, strict=True) if not there)


@settings(max_examples=50, deadline=None)
@given(corpora(), st.integers(1, 8), st.integers(1, 3), st.randoms(use_true_random=False))
def test_of_what_is_kept_of_questions_all_probes_come_again_and_it_is_said_which_are_done(
    corpus: BuiltDataset, least: int, trials: int, rng: object
) -> None:
    done = [rng.random() < 0.6 for _ in corpus.probes for _ in range(trials)]  # type: ignore[attr-defined]
    steps = [answering(corpus, least)]
    anew = list(*tasks(corpus, steps, trials, bytes(len(done))))
    again = list(*tasks(corpus, steps, trials, done, again=range(len(corpus.probes))))
    assert [task.round.probes for task in again] == [task.round.probes for task in anew]
    assert [task.keys for task in again] == [task.keys for task in anew]
    keys = [(probe.id, trial) for probe in corpus.probes for trial in range(trials)]
    told = {key for task in again for key in task.round.done}
    assert told == {key for key, there in zip(keys, done, strict=True) if there}


@settings(max_examples=100, deadline=None)
@given(corpora(), st.integers(1, 8), st.integers(1, 4))
def test_round_is_filled_while_there_are_streams_left(corpus: BuiltDataset, least: int, side: int) -> None:
    steps = answering(corpus, least, side)
    begun: set[str] = set()
    everything = {p.stream for p in corpus.probes}
    for step in steps:
        streams = {corpus.probes[p].stream for p in step.probes}
        begun |= streams
        assert len({(corpus.probes[p].stream, corpus.probes[p].position) for p in step.probes}) == len(streams)
        assert (len(step.probes) >= least and len(streams) >= side) or begun == everything
    assert sorted(p for step in steps for p in step.probes) == list(range(len(corpus.probes)))


@settings(max_examples=100, deadline=None)
@given(corpora(), st.integers(1, 8), st.integers(1, 4), st.integers(0, 5))
def test_many_documents_come_in_rounds_of_their_own_before_the_probes(
    corpus: BuiltDataset, least: int, most: int, characters: int
) -> None:
    """What is asked, in which order, and after which documents, is as without a bound."""
    texts = [msgspec.structs.replace(d, text="x" * (n % 4)) for n, d in enumerate(corpus.documents)]
    corpus = BuiltDataset(Path(), texts, corpus.probes)
    done = bytes(len(corpus.probes))
    steps = [answering(corpus, least)]
    whole = list(*tasks(corpus, steps, 1, done))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "MAX_DOCUMENTS", most)
        patch.setattr(rounds, "MAX_CHARACTERS", characters)
        split = list(*tasks(corpus, steps, 1, done))
    arrived: list[Document] = []
    asked = iter(whole)
    for task in split:
        documents = task.round.documents
        assert len(documents) <= most
        assert len(documents) <= 1 or sum(len(d.text) for d in documents) <= characters
        arrived += documents
        if not task.round.probes:
            assert documents, "a round brings something"
            assert task.keys == ()
            continue
        expected = next(asked)
        assert arrived == expected.round.documents
        assert (task.round.probes, task.keys) == (expected.round.probes, expected.keys)
        arrived = []
    assert next(asked, None) is None
    assert not arrived


def test_question_of_full_size_is_a_round_of_its_own() -> None:
    documents = [Document(id=f"{s}{t}", stream=s, position=t, timestamp=None, text="") for s in "ab" for t in range(3)]
    probes = [
        Probe(id=f"{s}{t}{q}", question_id="q", stream=s, position=t, question="", options=None, form="short")
        for s in "ab" for t in range(3) for q in range(100)
    ]  # fmt: skip
    steps = answering(BuiltDataset(Path(), documents, probes))
    assert [(len(s.documents), len(s.probes)) for s in steps] == [(1, 100)] * 6
