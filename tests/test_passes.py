"""Claims about which probes are asked in which pass: as many as an engine keeps the prompts of, those together that
find the same documents, and by nothing that has not arrived."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import yaml

from conftest import copy_repository
from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.cell.retrieval import Bm25
from upkeep.errors import UpkeepError
from upkeep.execution import order
from upkeep.execution.passes import by_finding, by_wording
from upkeep.execution.rounds import BuiltDataset
from upkeep.jobs import Cell
from upkeep.layout import Layout

DATASET = "oaks_babi_stream"
RETRIEVES = Cell(DATASET, "rag_bm25", "k3", "tiny")
K = 3
"""Documents of a prompt."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with two short streams."""
    root = copy_repository(tmp_path_factory.mktemp("passes"))
    card = root / "datasets/oaks_babi/dataset.yaml"
    family = yaml.safe_load(card.read_text())
    small = {"streams": 2, "chunks": 14, "chunk_tokens": 100, "questions": 40, "facts": 60}
    family["variants"]["stream"]["options"] |= small
    card.write_text(yaml.safe_dump(family | {"published": {}}))
    catalog = Catalog(root)
    build_dataset(catalog, DATASET, Layout(catalog.results).dataset(DATASET))
    return root


@pytest.fixture(scope="module")
def corpus(root: Path) -> BuiltDataset:
    return BuiltDataset.read(Layout(root / "results").dataset(DATASET))


def most(corpus: BuiltDataset) -> int:
    """Probes of a stream's interval, at most."""
    return max(Counter((probe.stream, probe.position) for probe in corpus.probes).values())


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_a_pass_asks_so_many_probes_of_an_interval_at_most_and_there_are_no_more_passes_than_that_takes(
    corpus: BuiltDataset, size: int
) -> None:
    for numbers in (by_finding(corpus, size, K), by_wording(corpus, size)):
        asked = Counter((n, p.stream, p.position) for n, p in zip(numbers, corpus.probes, strict=True))
        assert max(asked.values()) <= size
        assert {*numbers} == {*range(-(-most(corpus) // size))}


def test_questions_that_are_worded_alike_stay_together(corpus: BuiltDataset) -> None:
    found = defaultdict(set)
    for number, probe in zip(by_wording(corpus, 5), corpus.probes, strict=True):
        found[probe.stream, probe.question].add(number)
    assert all(len(numbers) == 1 for numbers in found.values())
    for stream in corpus.streams:
        mine = sorted(question for of, question in found if of == stream)
        assert [min(found[stream, question]) for question in mine] == [place // 5 for place in range(len(mine))]


def new(corpus: BuiltDataset, numbers: Sequence[int]) -> int:
    """Documents of all prompts that no prompt of the same pass has had behind the same ones, in this interval or in the
    one before."""
    index, found = Bm25(), 0
    for steps in corpus.intervals:
        kept: dict[int, set[tuple[str, ...]]] = defaultdict(set)
        for step in steps:
            index.add(corpus.documents[place] for place in step.documents)
            now: dict[int, set[tuple[str, ...]]] = defaultdict(set)
            for place in step.probes:
                ids = [one.id for one in index.search(corpus.probes[place], K)]
                beginnings = {*itertools.accumulate((id,) for id in ids)}
                found += len(beginnings - kept[numbers[place]] - now[numbers[place]])
                now[numbers[place]] |= beginnings
            kept = now
    return found


def test_probes_that_find_the_same_are_asked_together(corpus: BuiltDataset) -> None:
    for size in (3, 5, 8):
        mine, worded = (new(corpus, by(corpus, size)) for by in (lambda c, n: by_finding(c, n, K), by_wording))
        assert mine < worded, size


def test_what_has_not_arrived_decides_nothing(corpus: BuiltDataset) -> None:
    """With other documents, and none of its later probes, a stream's probes are dealt as before up to there."""
    numbers = by_finding(corpus, 5, K)
    for last in (0, 6, 9):
        earlier = [place for place, probe in enumerate(corpus.probes) if probe.position <= last]
        assert 0 < len(earlier) < len(corpus.probes)
        other = [d if d.position <= last else msgspec.structs.replace(d, text="Nothing.") for d in corpus.documents]
        until = replace(corpus, documents=other, probes=[corpus.probes[place] for place in earlier])
        # As many passes as before, which follow from the number of questions.
        assert most(until) == most(corpus)
        assert by_finding(until, 5, K) == [numbers[place] for place in earlier]


def test_a_card_says_whether_it_is_known_what_a_question_finds(root: Path, corpus: BuiltDataset) -> None:
    catalog = Catalog(root)
    assert order.in_passes(catalog, RETRIEVES, corpus, 4) == by_finding(corpus, 4, K) != by_wording(corpus, 4)
    for unknown in (
        replace(RETRIEVES, method="rag_dense"),
        replace(RETRIEVES, method="closed_book", variant="default"),
    ):
        assert order.in_passes(catalog, unknown, corpus, 4) == by_wording(corpus, 4)
    assert {*order.in_passes(catalog, RETRIEVES, corpus, 0)} == {0}


def test_a_method_that_keeps_something_of_a_question_is_asked_it_in_one_pass(
    tmp_path: Path, corpus: BuiltDataset
) -> None:
    copied = copy_repository(tmp_path)
    card = copied / "methods/rag_bm25/method.yaml"
    card.write_text(yaml.safe_dump(yaml.safe_load(card.read_text()) | {"per_question": True}))
    assert order.in_passes(Catalog(copied), RETRIEVES, corpus, 4) == by_wording(corpus, 4)


@pytest.mark.parametrize(
    ("shows", "told"),
    [
        pytest.param({"ranked": "k", "ranker": "bm26"}, "did you mean bm25", id="another ranker"),
        pytest.param({"ranked": "k", "ranker": "k"}, "unknown ranker 'k'", id="a parameter"),
        pytest.param({"ranker": "bm25"}, "beside `ranked`", id="of nothing"),
        pytest.param({"ranked": "k", "ranker": ["bm25"]}, "expected: one of bm25", id="a list"),
    ],
)
def test_a_ranker_that_there_is_not_is_refused(root: Path, tmp_path: Path, shows: object, told: str) -> None:
    copied = copy_repository(tmp_path)
    card = copied / "methods/rag_bm25/method.yaml"
    card.write_text(yaml.safe_dump(yaml.safe_load(card.read_text()) | {"shows": shows}))
    with pytest.raises(UpkeepError) as refused:
        Catalog(copied).method("rag_bm25")
    assert told in str(refused.value) and "method.yaml" in str(refused.value)
