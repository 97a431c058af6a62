"""`hipporag2`: the calls of a stream, the graph that they make, and its ranking against an independent one."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import networkx
import numpy as np
import pytest

from method_fakes import FakeEmbedder, load
from method_runs import sentinels
from test_context_methods import DOCUMENTS, Scripted, led

NAMES = vars(load("hipporag2"))["__init__"].__globals__
"""What the method's module defines."""
Graph, pagerank = NAMES["Graph"], NAMES["pagerank"]


def told(prompt: str, kept: str = '{"facts": [1]}') -> str:
    """A model that finds in each document that Mira is in the room that it names."""
    (position,) = sentinels(prompt) if "# Text" in prompt else (0,)
    if "List the named entities" in prompt:
        return f'Here: {{"entities": ["Mira", "room {position}"]}}'
    if "as triples" in prompt:
        return json.dumps({"triples": [["Mira", "is in", f"Room {position}"], ["broken"], "no triple"]})
    return kept if "numbered facts" in prompt else "## Answer: x"


def test_two_calls_a_document_and_two_a_probe_with_what_the_paper_has_in_them() -> None:
    llm = Scripted(told)
    _, answers = led("hipporag2", "k1", llm)
    kinds = ["entities" if "List the named" in p else "triples" if "as triples" in p else "other" for p in llm.prompts]
    assert kinds == ["entities", "triples", "other", "other"] * 5
    for position in range(5):
        entities, triples, chosen, read = llm.prompts[4 * position : 4 * position + 4]
        assert sentinels(entities) == sentinels(triples) == {position}
        assert f'["Mira", "room {position}"]' in triples
        assert chosen.count("mira is in room") == position + 1
        assert "sentinel" not in chosen and "Where is Mira?" in chosen
        assert len(sentinels(read)) == 1
    assert all(answer.values == {"unread_documents": 0.0, "unread_filter": 0.0} for answer in answers)
    assert [len(answer.retrieved) for answer in answers] == [1] * 5
    assert llm.longest[:3] == [2048, 2048, 16]


@pytest.mark.parametrize("reply", ["", "no json", "[1]", '{"entities": 3}', '{"entities": ["a"'])
def test_a_document_whose_facts_cannot_be_read_has_none_and_is_counted(reply: str) -> None:
    def script(prompt: str) -> str:
        return reply if "List the named" in prompt and 1 in sentinels(prompt) else told(prompt)

    method: Any
    method, answers = led("hipporag2", "k1", Scripted(script))
    assert [answer.values["unread_documents"] for answer in answers] == [0, 1, 1, 1, 1]
    assert method.graphs["s"].passages[1] == set()


@pytest.mark.parametrize(("reply", "unread"), [('{"facts": []}', 0), ("none of them", 1)])
def test_without_a_kept_fact_documents_are_ranked_by_likeness(reply: str, unread: int) -> None:
    _, answers = led("hipporag2", "k2", Scripted(lambda p: told(p, reply)))
    _, dense = led("rag_dense", "k2", Scripted(lambda _: "## Answer: x"))
    assert [answer.retrieved for answer in answers] == [answer.retrieved for answer in dense]
    assert {answer.values["unread_filter"] for answer in answers} == {unread}


def test_a_fact_leads_to_the_documents_of_its_entities() -> None:
    """One document alone tells of the fact that is kept."""

    def script(prompt: str) -> str:
        if "numbered facts" in prompt:
            facts = prompt.split("# Facts\n")[1].splitlines()
            return json.dumps({"facts": [n for n, fact in enumerate(facts, start=1) if "room 3" in fact]})
        if "as triples" in prompt:
            (position,) = sentinels(prompt)
            return json.dumps({"triples": [["Mira", "is in", f"room {position}"]]})
        return told(prompt)

    _, answers = led("hipporag2", "k1", Scripted(script), [(0, 1, 2, 3, 4)])
    assert [one.id for one in answers[-1].retrieved] == [DOCUMENTS[3].id]


def random_graph(seed: int, n: int = 40) -> tuple[list[tuple[int, int, float]], np.ndarray]:
    """Edges, some of them twice, some nodes with none, and where walks begin: at some nodes."""
    rng = random.Random(seed)
    edges = [(*rng.sample(range(n - 5), 2), rng.random() + 0.01) for _ in range(3 * n)]
    start = np.array([rng.random() if rng.random() < 0.3 else 0.0 for _ in range(n)])
    start[0] = 1.0
    return edges, start


@pytest.mark.parametrize("seed", range(20))
def test_the_ranking_is_that_of_an_independent_personalised_pagerank(seed: int) -> None:
    edges, start = random_graph(seed)
    graph = networkx.MultiGraph()
    graph.add_nodes_from(range(len(start)))
    graph.add_weighted_edges_from(edges)
    expected = networkx.pagerank(graph, alpha=0.5, personalization=dict(enumerate(start)), tol=1e-15, max_iter=1000)
    np.testing.assert_allclose(pagerank(edges, start), [expected[n] for n in range(len(start))], atol=1e-9)


def test_a_walk_that_starts_nowhere_goes_nowhere() -> None:
    assert pagerank([(0, 1, 1.0)], np.zeros(3)).tolist() == [0.0, 0.0, 0.0]


def test_the_whole_of_a_graphs_walk_equals_networkx_on_the_graph_that_the_paper_describes() -> None:
    graph, embedder = Graph(), FakeEmbedder()
    told = [[("Mira", "is in", "the attic")], [("Mira", "knows", "Olaf")], [("Olaf", "is in", "The Attic!")], None]
    for triples in told:
        graph.add(triples, embedder)
    assert graph.facts == [("mira", "is in", "the attic"), ("mira", "knows", "olaf"), ("olaf", "is in", "the attic")]
    assert graph.unread == 1
    likeness, near = np.array([0.1, 0.9, 0.5, 0.1]), [(0, 1.0), (1, 0.5)]
    known = networkx.Graph()
    known.add_nodes_from(["mira", "the attic", "olaf", 0, 1, 2, 3])
    known.add_weighted_edges_from([("mira", "the attic", 2), ("mira", "olaf", 2), ("olaf", "the attic", 2)])
    known.add_weighted_edges_from(
        [(0, "mira", 1), (0, "the attic", 1), (1, "mira", 1), (1, "olaf", 1), (2, "olaf", 1), (2, "the attic", 1)]
    )
    # Mira: facts of 1 and 0.5, in two passages; the attic: 1, in two; Olaf: 0.5, in two.
    start = {"mira": 0.75 / 2, "the attic": 1 / 2, "olaf": 0.5 / 2, 0: 0.0, 1: 0.05, 2: 0.025, 3: 0.0}
    expected = networkx.pagerank(known, alpha=0.5, personalization=start, tol=1e-15, max_iter=1000)
    np.testing.assert_allclose(graph.walk(near, likeness), [expected[n] for n in range(4)], atol=1e-9)


def test_entities_that_are_alike_are_joined_and_others_are_not() -> None:
    class Likeness(FakeEmbedder):
        vectors: Callable[[str], list[float]] = {  # type: ignore[assignment]
            "olaf": [1.0, 0.0], "olaf the red": [0.8, 0.6], "mira": [0.0, 1.0], "ol": [0.8, 0.6]
        }.get  # fmt: skip

        def documents(self, texts: Any) -> np.ndarray:
            return np.array([self.vectors(text) or [0.6, -0.8] for text in texts], dtype=np.float32)

    graph = Graph()
    graph.add([("Olaf", "met", "Mira")], Likeness())
    graph.add([("Olaf the Red", "left", "Mira")], Likeness())
    graph.add([("Olaf", "is", "Ol")], Likeness())
    names = list(graph.entities)
    told = {(names[a], names[b]): weight for (a, b), weight in graph.told.items()}
    assert told == {
        edge: 1 for a, b in (("olaf", "mira"), ("olaf the red", "mira"), ("olaf", "ol")) for edge in ((a, b), (b, a))
    }
    assert {(names[a], names[b]): round(weight, 3) for (a, b), weight in graph.alike.items()} == {
        ("olaf", "olaf the red"): 0.8,
        ("olaf the red", "olaf"): 0.8,
        ("olaf", "ol"): 0.8,
        ("olaf the red", "ol"): 1.0,
    }, "from a name of two letters none"
