"""What is found: exactly the arrived documents, in one order, whatever else is asked."""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from method_fakes import ROOT, FakeEmbedder, document, probe
from upkeep.catalog import Catalog
from upkeep.cell.retrieval import RRF_K, Bm25, Dense, Hybrid
from upkeep.contract import Document, Retrieved
from upkeep.serving.embedding import load_embedder, package_folder

RETRIEVERS: dict[str, Callable[[], Any]] = {
    "bm25": Bm25,
    "dense": lambda: Dense(FakeEmbedder()),
    "hybrid": lambda: Hybrid(FakeEmbedder()),
}
TEXTS = ["Mira took the lamp", "rain fell on the hills", "Mira left the lamp in the attic", "", "a", "lamp lamp lamp"]


@pytest.fixture(params=RETRIEVERS)
def new(request: pytest.FixtureRequest) -> Callable[[], Any]:
    return RETRIEVERS[request.param]


def stream(texts: list[str], name: str = "s") -> list[Document]:
    return [
        Document(id=f"{name}-{p}", stream=name, position=p, timestamp=None, text=text) for p, text in enumerate(texts)
    ]


def ids(found: list[Retrieved]) -> list[str]:
    return [r.id for r in found]


def test_ranks_count_from_one_in_order_of_score(new: Callable[[], Any]) -> None:
    index = new()
    index.add(stream(TEXTS))
    found = index.search(probe(5, "Where is the lamp of Mira?"), 4)
    assert [r.rank for r in found] == [1, 2, 3, 4]
    assert [r.score for r in found] == sorted((r.score for r in found), reverse=True)
    assert all(np.isfinite(r.score) for r in found)


def test_all_documents_are_found_where_there_are_fewer_than_k(new: Callable[[], Any]) -> None:
    index = new()
    index.add(stream(TEXTS))
    assert sorted(ids(index.search(probe(5), 60))) == [f"s-{p}" for p in range(6)]


def test_documents_after_the_probe_do_not_exist_for_it(new: Callable[[], Any]) -> None:
    """Not in the result, and not in any score either."""
    whole, part = new(), new()
    whole.add(stream(TEXTS))
    part.add(stream(TEXTS)[:3])
    asked = probe(2, "Where is the lamp?")
    assert whole.search(asked, 10) == part.search(asked, 10)


def test_words_of_documents_that_came_later_change_nothing_for_an_earlier_probe(new: Callable[[], Any]) -> None:
    """Though the index of the earlier documents was built before they came."""
    index = new()
    index.add(stream(TEXTS)[:3])
    asked = probe(2, "Where is the astrolabe of Mira?")
    before = index.search(asked, 10)
    index.add(stream([*TEXTS[:3], "an astrolabe, an astrolabe"])[3:])
    assert index.search(asked, 10) == before


def test_growing_one_by_one_is_the_same_as_all_at_once(new: Callable[[], Any]) -> None:
    grown, at_once = new(), new()
    at_once.add(stream(TEXTS))
    for d in stream(TEXTS):
        grown.add([d])
        asked = probe(d.position, "Where is the lamp?")
        assert grown.search(asked, 10) == at_once.search(asked, 10)


def test_streams_do_not_mix(new: Callable[[], Any]) -> None:
    alone, both = new(), new()
    alone.add(stream(TEXTS))
    both.add([d for pair in zip(stream(TEXTS), stream(TEXTS[::-1], "other"), strict=True) for d in pair])
    asked = probe(5, "Where is the lamp?")
    assert both.search(asked, 10) == alone.search(asked, 10)


def test_nothing_arrived_nothing_found(new: Callable[[], Any]) -> None:
    index = new()
    assert index.search(probe(3), 5) == []
    index.add([document(4)])
    assert index.search(probe(3), 5) == []


def test_a_bound_before_the_probe_holds(new: Callable[[], Any]) -> None:
    index = new()
    index.add(stream(TEXTS))
    found = index.search(probe(5, "Where is the lamp?"), 10, last=1)
    assert sorted(ids(found)) == ["s-0", "s-1"]


def test_a_bound_after_the_probe_does_not_widen_it(new: Callable[[], Any]) -> None:
    index = new()
    index.add(stream(TEXTS))
    assert sorted(ids(index.search(probe(1), 10, last=99))) == ["s-0", "s-1"]


def test_equal_scores_go_by_position(new: Callable[[], Any]) -> None:
    index = new()
    index.add(stream(["same words here"] * 12))
    if new is RETRIEVERS["bm25"]:
        assert ids(index.search(probe(11, "words"), 12)) == [f"s-{p}" for p in range(12)]
    nothing = new()
    nothing.add(stream([""] * 4))
    assert len(nothing.search(probe(3, "the of ?"), 4)) == 4


def test_out_of_order_arrival_is_refused(new: Callable[[], Any]) -> None:
    index = new()
    index.add([document(3)])
    for position in (3, 2):
        with pytest.raises(ValueError, match="comes after 3"):
            index.add([document(position)])


def test_positions_may_have_gaps(new: Callable[[], Any]) -> None:
    index = new()
    index.add([document(2), document(10), document(11)])
    assert sorted(ids(index.search(probe(10), 5))) == ["s-10", "s-2"]


def test_the_same_question_gives_the_same_whatever_was_asked_before(new: Callable[[], Any]) -> None:
    questions = ["Where is the lamp?", "Who is in the attic?", "rain", "", "?"]
    results = []
    for seed in (0, 1):
        index = new()
        index.add(stream(TEXTS))
        order = random.Random(seed).sample(questions, len(questions))
        found = {q: index.search(probe(5, q), 6) for q in order}
        results.append([found[q] for q in questions])
    assert results[0] == results[1]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.text(max_size=30), min_size=1, max_size=8), st.text(max_size=30), st.integers(0, 9), st.integers(1, 9)
)
def test_any_text_is_searched_and_nothing_late_is_found(texts: list[str], question: str, at: int, k: int) -> None:
    for new in RETRIEVERS.values():
        index = new()
        index.add(stream(texts))
        found = ids(index.search(probe(at, question), k))
        arrived = [f"s-{p}" for p in range(min(at + 1, len(texts)))]
        assert set(found) <= set(arrived)
        assert len(found) == len(set(found)) == min(k, len(arrived))


def test_bm25_prefers_the_rare_word() -> None:
    index = Bm25()
    index.add(stream(["lamp lamp here", "lamp and astrolabe", "lamp there"]))
    assert ids(index.search(probe(2, "lamp astrolabe"), 1)) == ["s-1"]


def test_bm25_does_not_reward_the_chunk_index() -> None:
    index = Bm25()
    index.add(stream(["lamp in the attic", "rain on hills"]))
    assert ids(index.search(probe(1, "Where is the lamp?"), 1)) == ["s-0"]


def test_dense_entries_and_queries_have_the_papers_form() -> None:
    embedder = FakeEmbedder()
    asked: list[str] = []
    embedder.queries = lambda texts: (asked.extend(texts), FakeEmbedder.queries(embedder, texts))[1]  # type: ignore
    index = Dense(embedder)
    index.add(stream(["a lamp"]))
    index.search(probe(0, "Where?"), 1)
    assert embedder.seen == ["# chunk index : 0, context: a lamp"]
    assert asked == ["# chunk index : 0, question: Where?"]
    index.search(probe(0, "Where?"), 1)
    assert len(asked) == 1, "the same query is embedded once"


def test_a_long_document_is_scored_by_its_best_window_under_its_own_id() -> None:
    index = Dense(FakeEmbedder())
    filler = "filler words " * 200
    index.add(stream([filler, filler + "Where is the astrolabe of Mira question " + filler, filler]))
    found = index.search(probe(2, "Where is the astrolabe of Mira"), 3)
    assert sorted(ids(found)) == ["s-0", "s-1", "s-2"]
    assert found[0].id == "s-1"


def test_dense_without_an_embedder_says_what_is_missing() -> None:
    with pytest.raises(ValueError, match="embedder"):
        Dense(None)


def test_an_embedder_that_gives_no_numbers_is_found_out() -> None:
    class Broken(FakeEmbedder):
        def _vector(self, text: str) -> np.ndarray:
            return np.full(8, np.nan, dtype=np.float32)

    index = Dense(Broken())
    index.add(stream(["a"]))
    with pytest.raises(ValueError, match="not numbers"):
        index.search(probe(0), 1)


def test_hybrid_sums_reciprocal_ranks() -> None:
    texts = ["Mira took the lamp", "rain fell", "lamp lamp"]
    parts = {}
    for name, index in {"bm25": Bm25(), "dense": Dense(FakeEmbedder()), "hybrid": Hybrid(FakeEmbedder())}.items():
        index.add(stream(texts))
        parts[name] = {r.id: r for r in index.search(probe(2, "Where is the lamp?"), 3)}
    for id, fused in parts["hybrid"].items():
        expected = 1 / (RRF_K + parts["dense"][id].rank)
        if parts["bm25"][id].score > 0:
            expected += 1 / (RRF_K + parts["bm25"][id].rank)
        assert fused.score == pytest.approx(expected)
    assert parts["bm25"]["s-1"].score == 0


class Plain(FakeEmbedder):
    """Vectors of random directions, many of them the same."""

    def _vector(self, text: str) -> np.ndarray:
        rng = np.random.default_rng(zlib.crc32(text.rpartition(":")[2].encode()) % 50)
        vector = rng.standard_normal(24).astype(np.float32)
        return vector / np.linalg.norm(vector)


@pytest.mark.parametrize("k", [1, 7, 100, 399, 400, 1000])
@pytest.mark.parametrize("name", RETRIEVERS)
def test_the_k_best_are_the_first_k_of_all_in_order_of_score_then_position(name: str, k: int) -> None:
    """With far more documents than are found, most of them in ties."""
    rng = random.Random(k)
    words = ["lamp", "attic", "rain", "hills", "Mira"]
    index = {"bm25": Bm25, "dense": lambda: Dense(Plain()), "hybrid": lambda: Hybrid(Plain())}[name]()
    index.add(stream([" ".join(rng.choices(words, k=rng.randint(0, 3))) for _ in range(400)]))
    asked = probe(399, "Where is the lamp of Mira, and the rain?")
    everything = index.search(asked, 400)
    position = {f"s-{p}": p for p in range(400)}
    assert [r.id for r in everything] == [r.id for r in sorted(everything, key=lambda r: (-r.score, position[r.id]))], (
        "best first, of equals the older first"
    )
    assert index.search(asked, k) == everything[:k]


def test_bm25_is_lucenes_formula() -> None:
    """Against the formula written down anew, over documents of many lengths."""
    rng = random.Random(0)
    words = [f"word{n}" for n in range(30)]
    documents = [rng.choices(words, k=rng.randint(0, 40)) for _ in range(60)]
    index = Bm25()
    index.add(stream([" ".join(document) for document in documents]))
    question = ["word1", "word2", "word2", "word29"]
    mean = sum(map(len, documents)) / len(documents)

    def score(document: list[str]) -> float:
        total = 0.0
        for word in question:
            holding = sum(word in other for other in documents)
            idf = math.log(1 + (len(documents) - holding + 0.5) / (holding + 0.5))
            count = document.count(word)
            total += idf * count / (1.5 * (0.25 + 0.75 * len(document) / mean) + count)
        return total

    found = {r.id: r.score for r in index.search(probe(59, " ".join(question)), 60)}
    assert found == pytest.approx({f"s-{p}": score(d) for p, d in enumerate(documents)}, rel=1e-5)


# ---------------------------------------------------------------- a real embedder


@pytest.fixture(scope="module")
def minilm() -> Any:
    spec = Catalog(ROOT).model("minilm")
    return load_embedder(spec, None)


def test_real_vectors_have_length_one_and_near_texts_are_near(minilm: Any) -> None:
    vectors = minilm.documents(
        ["The lamp is in the attic.", "A light stands under the roof.", "Shares fell on Monday."]
    )
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]


def test_windows_are_read_whole_and_make_up_the_text(minilm: Any) -> None:
    rng = random.Random(0)
    words = ["lamp", "attic,", "Mira's", "unforeseeably", "été", "日本語", "x" * 300, "\n", "1234567", "🙂"]
    for text in [
        " ".join(rng.choices(words, k=1500)),
        "",
        "a",
        "y" * 5000,
        "ab" * 50_000,
        "日" * 3000,
        "\x00\x01 \ud7ff",
    ]:
        windows = minilm.windows(text)
        assert "".join(windows) == text
        for window in windows:
            assert len(minilm._model.tokenizer(window, truncation=False, verbose=False)["input_ids"]) <= 256


def test_a_vector_does_not_depend_on_the_other_documents(minilm: Any) -> None:
    texts = ["The lamp is in the attic.", "rain " * 400]
    together, alone = Dense(minilm), Dense(minilm)
    together.add(stream(texts))
    alone.add(stream(texts)[:1])
    asked = probe(0, "Where is the lamp?")
    assert together.search(asked, 5) == alone.search(asked, 5)


def test_the_wrong_kind_of_model_is_refused() -> None:
    spec = Catalog(ROOT).model("qwen3-4b")
    with pytest.raises(ValueError, match="not an embedder"):
        load_embedder(spec, None)


def test_a_missing_package_or_folder_is_named(tmp_path: Any) -> None:
    with pytest.raises(FileNotFoundError, match="no-such-package"):
        package_folder("no-such-package")
    spec = Catalog(ROOT).model("minilm")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load_embedder(spec, tmp_path / "nowhere")
