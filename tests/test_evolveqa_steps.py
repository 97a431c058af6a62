"""The steps of evolveQA's workshop: requests, clusters and questions, and what is left out on the way."""

from __future__ import annotations

import itertools
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import msgspec.yaml
import numpy as np
import pytest

from evolveqa import (
    fact_steps,
    facts,
    format_steps,
    phrasing,
    program,
    question_steps,
    questions,
    synthetic,
    workshop,
)
from evolveqa.workshop import Options, Workshop
from evolveqa_worlds import Build, Made, build, minis, world_of
from upkeep.building import assistant, embedding, leaks
from upkeep.building.assistant import Scripted, Step, Tally

__all__ = ["build", "minis"]


# ---------------------------------------------------------------- the assistant's steps


@dataclass
class Wordy:
    """Knows a world, writes its replies as a model does, and now and then something unreadable."""

    script: assistant.Script
    spoiled: int = 0
    """Of a hundred replies."""
    tallies: dict[str, Tally] = field(default_factory=dict)

    def ask(self, step: Step[Any, Any], given: Sequence[Any], trial: int = 0) -> list[Any]:
        replies = []
        for one in given:
            turns = step.prompt(one)
            text = turns if isinstance(turns, str) else turns[-1][1]
            assert isinstance(turns, str) or [role for role, _ in turns] == ["user", "assistant", "user"]
            assert "JSON" in text and "{{" not in text
            if zlib.crc32(f"{step.name} {turns}".encode()) % 100 < self.spoiled:
                replies.append(None)
                continue
            written = f"Sure:\n```json\n{msgspec.json.encode(self.script[step.name](one)).decode()}\n```"
            replies.append(assistant.read_reply(written, step.reply))
        return replies


def test_every_reply_can_be_read_from_a_models_text(
    build: Build, minis: dict[str, Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assistant, "Scripted", Wordy)
    made = build("evolveqa_who_mini")
    assert made.card.content == minis["evolveqa_who_mini"].card.content


def test_unreadable_replies_cost_their_items_alone(
    build: Build, minis: dict[str, Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assistant, "Scripted", lambda script: Wordy(script, 10))
    made = build("evolveqa_aws_control_mini")
    assert 0 < made.card.probes < minis["evolveqa_aws_control_mini"].card.probes


def test_a_question_whose_earlier_answers_nobody_judged_is_not_taken_for_one_without_outdated_ones(
    build: Build, minis: dict[str, Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    silent: list[int] = []

    def scripted(script: dict[str, Callable[[Any], Any]]) -> Scripted:
        def stale(given: question_steps.Older) -> question_steps.Stale | None:
            silent.append(len(silent))
            return None if len(silent) % 3 == 0 else script["stale"](given)

        return Scripted(script | {"stale": stale})

    monkeypatch.setattr(assistant, "Scripted", scripted)
    made, whole = build("evolveqa_aws_mini"), minis["evolveqa_aws_mini"]
    assert made.card.statistics["left out: earlier answers not judged"] == len(silent) // 3 > 0
    kinds = {row["probe_id"]: row["slice_change"] for row in whole.rows if row["form"] == "short"}
    assert all(kinds[row["probe_id"]] == row["slice_change"] for row in made.rows if row["form"] == "short")


def test_every_step_asks_for_what_it_is_given() -> None:
    about = phrasing.Topic("E1", "C1", "A1")
    evidence = question_steps.Evidence(about, (phrasing.Dated("2020-01-01", "P1"), phrasing.Dated("2021-01-01", "P2")))
    turns = question_steps.QUESTION.prompt(question_steps.Changed(evidence, "because"))
    assert not isinstance(turns, str)
    for word in ("E1", "C1", "A1", "[2020-01-01] P1\n[2021-01-01] P2"):
        assert word in turns[0][1]
    assert assistant.read_reply(turns[1][1], question_steps.Change) == question_steps.Change("yes", "because")
    text = question_steps.FINAL.prompt(
        question_steps.Answers(
            "Q?",
            (question_steps.Found(1, "2021-01-01", "new", "W2"), question_steps.Found(0, "2020-01-01", "old", "W1")),
        )
    )
    assert isinstance(text, str) and text.index("[1] 2021-01-01: new") < text.index("[0] 2020-01-01: old")


# ---------------------------------------------------------------- clusters and concepts


def shop(
    monkeypatch: pytest.MonkeyPatch,
    script: Mapping[str, Callable[[Any], Any]],
    vectors: Mapping[str, Sequence[float]] = {},
    **options: Any,
) -> Workshop:
    """A workshop with vectors of our own."""

    def embed(context: Any, embedder: str, texts: Sequence[str]) -> np.ndarray:
        if not texts:
            return np.zeros((0, 8), np.float32)
        found = np.array([vectors[text] for text in texts], np.float32)
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    monkeypatch.setattr(embedding, "embed", embed)
    settings = msgspec.convert({"domain": "aws", **options}, Options)
    return Workshop(None, settings, Scripted(script))  # type: ignore[arg-type]


SUBJECTS = ("storage limit raised", "price lowered", "region opened")


def themed(text: str) -> str:
    return next((subject for subject in SUBJECTS if subject in text), "")


LOOP: dict[str, Callable[[Any], Any]] = {
    "coherent": lambda given: phrasing.Same("yes" if len({themed(t) for t in given.texts}) == 1 else "no"),
    "label": lambda given: fact_steps.Title(f"about {themed(given.texts[0])}"),
    "merge": lambda given: fact_steps.Merge("yes" if themed(given.first) == themed(given.second) else "no"),
    "fits": lambda given: fact_steps.Fits("yes" if themed(given.label) == themed(given.concept) else "no"),
    "place": lambda given: fact_steps.Place(
        next((n for n, label in enumerate(given.labels, 1) if themed(label) == themed(given.concept)), 0)
    ),
}
KINDS = [f"group {n}" for n in range(20)]
TITLES = [f"{subject} for {kind}" for subject in SUBJECTS for kind in KINDS]


class Near(dict[str, Sequence[float]]):
    """Vectors that lie near the axis of their subject, or on one of their own."""

    def __missing__(self, text: str) -> Sequence[float]:
        noise = np.random.default_rng(zlib.crc32(text.encode())).normal(size=8) * 0.05
        axis = SUBJECTS.index(themed(text)) if themed(text) else 7
        return (np.eye(8)[axis] + noise).tolist()


def test_concepts_of_one_theme_come_under_one_label(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = shop(monkeypatch, LOOP, Near())
    labels = facts.labelled([*TITLES, *TITLES, "something of its own"], bench)
    assert labels == {title: f"about {themed(title)}" for title in TITLES}
    assert bench.counts["concepts in no cluster"] == 1 and bench.counts["concept clusters"] == 3
    assert bench.counts["concept loop: iterations"] <= 5


def test_an_incoherent_cluster_is_dissolved_and_the_loop_ends_where_nothing_is_gained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = shop(monkeypatch, {**LOOP, "coherent": lambda given: phrasing.Same("no")}, Near())
    assert facts.labelled(TITLES, bench) == {}
    assert bench.counts["concept clusters dissolved"] >= 1
    assert bench.counts["concept loop: iterations"] == 1
    assert bench.counts["concepts in no cluster"] == len(TITLES)


def test_a_misfit_leaves_its_cluster_and_is_not_offered_that_label_again(monkeypatch: pytest.MonkeyPatch) -> None:
    offered: list[fact_steps.Loose] = []

    def place(given: fact_steps.Loose) -> fact_steps.Place:
        offered.append(given)
        return fact_steps.Place(0)

    odd = TITLES[0]
    fits = LOOP["fits"]
    script = {
        **LOOP,
        "fits": lambda given: fact_steps.Fits("no") if given.concept == odd else fits(given),
        "place": place,
    }
    labels = facts.labelled(TITLES, shop(monkeypatch, script, Near()))
    assert odd not in labels
    assert all(f"about {themed(odd)}" not in one.labels for one in offered if one.concept == odd)


def test_clusters_whose_labels_name_one_concept_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = shop(
        monkeypatch, LOOP, {"about price lowered": (1, 0), "a: price lowered": (1, 0.1), "region opened": (0, 1)}
    )
    merged = facts._distinct(
        [
            facts.Cluster("a: price lowered", ["x"]),
            facts.Cluster("about price lowered", ["y", "z"]),
            facts.Cluster("region opened", ["w"]),
        ],
        bench,
    )
    assert [(cluster.label, cluster.members) for cluster in merged] == [
        ("about price lowered", ["y", "z", "x"]),
        ("region opened", ["w"]),
    ]


def test_names_of_one_thing_get_the_most_frequent_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = {
        "Amber Queue": (1, 0),
        "Amber Queue Service": (1, 0.2),
        "Amber Quay": (1, 0.1),
        "Slate": (0, 1),
        "slate": (0, 1),
    }
    asked: list[phrasing.Two] = []

    def same(given: phrasing.Two) -> phrasing.Same:
        asked.append(given)
        return phrasing.Same("yes" if "Queue" in given.first and "Queue" in given.second else "no")

    named = ["Amber Queue Service", "Amber Queue", "Amber Queue Service", "Amber Quay", "slate", "Slate", "Slate"]
    assert facts.entities(named, shop(monkeypatch, {"same_entity": same}, vectors)) == {
        "Amber Queue Service": "Amber Queue Service",
        "Amber Queue": "Amber Queue Service",
        "Amber Quay": "Amber Quay",
        "Slate": "Slate",
        "slate": "Slate",
    }
    assert len(asked) == 3, "spellings of the same words are one without asking, far names are not asked about"


@pytest.mark.parametrize("points", [0, 2, 4, 5, 6, 7, 15, 16])
def test_too_few_points_for_umap_are_clustered_with_fewer_neighbours_and_counted(
    monkeypatch: pytest.MonkeyPatch, points: int
) -> None:
    bench = shop(monkeypatch, {})
    vectors = np.random.default_rng(0).normal(size=(points, 8)).astype(np.float32)
    clusters = bench.clusters(vectors, "chunks")
    assert all(len(cluster) >= 5 for cluster in clusters)
    members = [int(n) for cluster in clusters for n in cluster]
    assert len(members) == len(set(members))
    assert bench.counts["clustering chunks: too few points"] == (points < 5)
    assert bench.counts["clustering chunks: runs with fewer than 15 neighbours"] == (5 <= points <= 15)


def test_similar_pairs_are_those_of_the_whole_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workshop, "_BLOCK", 7)
    vectors = np.random.default_rng(1).normal(size=(50, 3))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    whole = vectors @ vectors.T
    wanted = [(a, b) for a in range(50) for b in range(a + 1, 50) if whole[a, b] >= 0.8]
    assert shop(monkeypatch, {}).similar(vectors) == wanted and wanted


def test_windows_are_of_three_sentences_and_share_one() -> None:
    for size in range(1, 9):
        sentences = [f"Sentence number {n} is here." for n in range(size)]
        text = "\n".join([" ".join(sentences[:4]), " ".join(sentences[4:])]).strip()
        chunks = facts.windows(text, 7)
        assert all(" ".join(text[c.start : c.end].split()) == c.text and c.document == 7 for c in chunks)
        held = [[n for n, sentence in enumerate(sentences) if sentence in chunk.text] for chunk in chunks]
        assert sorted({n for window in held for n in window}) == list(range(size))
        assert all(len(window) == 3 for window in held[:-1])
        assert all(set(a) & set(b) == {a[-1]} for a, b in itertools.pairwise(held))
    assert facts.windows("") == []


# ---------------------------------------------------------------- questions


def test_list_questions_and_repeated_ones_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [
        "What is the limit?",
        "Which regions are there?",
        "what is the limit",
        "How high is the limit?",
        "Who leads?",
    ]
    vectors = dict.fromkeys(texts, (1, 0)) | {"Who leads?": (0, 1)}
    script: dict[str, Callable[[Any], Any]] = {
        "list_question": lambda given: question_steps.Listing("yes" if "regions" in given.text else "no"),
        "same_question": lambda given: phrasing.Same("yes" if "high" in given.second else "no"),
    }
    bench = shop(monkeypatch, script, vectors)
    assert questions.cleaned(texts, bench) == [0, 4]
    assert (bench.counts["left out: list questions"], bench.counts["left out: duplicate questions"]) == (1, 2)


REPLY = format_steps.Choice(
    "Which?", {"A": "one", "B": "two", "C": "three", "D": "four"}, "C", {"A": 1, "B": 2, "D": 3}
)


@pytest.mark.parametrize(
    ("reply", "gold"),
    [
        (None, "three"),
        (format_steps.Choice(""), "three"),
        (REPLY, "two"),
        (msgspec.structs.replace(REPLY, correct="E"), "three"),
        (msgspec.structs.replace(REPLY, options={"A": "one", "C": "three"}), "three"),
        (msgspec.structs.replace(REPLY, options={**REPLY.options, "D": "One"}), "three"),
        (msgspec.structs.replace(REPLY, options={**REPLY.options, "D": " "}), "three"),
    ],
)
def test_a_choice_that_breaks_a_rule_is_left_out(reply: format_steps.Choice | None, gold: str) -> None:
    assert questions.shuffled(reply, gold, "seed") is None


def test_options_are_shuffled_and_the_right_one_keeps_the_gold_words() -> None:
    places = Counter()
    for seed in range(200):
        made = questions.shuffled(REPLY, "Three", str(seed))
        assert made is not None and sorted(made[1]) == ["Three", "four", "one", "two"] and made[1][made[2]] == "Three"
        places[made[2]] += 1
    assert len(places) == 4 and min(places.values()) > 25


def test_the_extra_number_replaces_a_distractor_that_comes_from_no_chunk_and_no_other() -> None:
    extra = msgspec.structs.replace(REPLY, additional_distractor="nine")
    made = questions.shuffled(extra, "three", "s")
    assert made is not None and "nine" not in made[1]
    loose = msgspec.structs.replace(extra, used_chunks_for_distractors={"B": 1, "D": 2})
    made = questions.shuffled(loose, "three", "s")
    assert made is not None and sorted(made[1]) == ["four", "nine", "three", "two"]


def test_an_open_question_that_holds_its_answer_is_left_out_in_all_formats(
    build: Build, minis: dict[str, Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = program.script

    def telling(small: synthetic.World, seed: int) -> assistant.Script:
        script = dict(original(small, seed))
        first = sorted(small.lines, key=lambda line: (line.entity, line.kind.attribute))[0]
        final = script["final"]

        def merged(given: question_steps.Answers) -> question_steps.Final:
            reply = final(given)
            return question_steps.Final(first.entity, reply.answer_ids) if given.question == first.question else reply

        return {**script, "final": merged}

    monkeypatch.setattr(program, "script", telling)
    made = build("evolveqa_aws_mini")
    assert made.card.statistics["left out: answer in question"] >= 1
    assert made.card.statistics["questions kept"] == 11
    entity = sorted(line.entity for line in world_of(made).lines)[0]
    attributes = {row["context"][2] for row in made.rows if row["context"][0] == f"Entity: {entity}"}
    assert len(attributes) == 1


def test_documents_that_are_split_still_name_the_piece_with_the_answer(build: Build) -> None:
    made = build("evolveqa_aws_mini", chunk_tokens=24)
    assert made.card.documents > 100 and made.data.documents["tokens"].max() <= 24
    found = 0
    for row in made.rows:
        if row["form"] == "short" and " and " not in row["answers"][0]:
            pieces = [made.texts[document] for document in row["evidence"]]
            assert len(pieces) <= 4
            # An answer may be cut in two itself; together the pieces hold it.
            found += leaks.tells(" ".join(pieces), row["answers"])
            assert leaks.tells(" ".join(pieces), row["answers"])
    assert found > 50
