"""OAKS-BABI: the answers that Algorithm 1 gives are those that a reader of the documents' text would give."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from pathlib import Path
from random import Random

import polars as pl
import pytest

from babi_reader import READINGS, Event, built, read_events, second_opinion
from conftest import DATA
from oaks_babi import candidates
from oaks_babi.templates import TEMPLATES
from upkeep.building import prose, store, synthetic, tokens

NOVELS = DATA / "novels"


@pytest.fixture(scope="module")
def mini(tmp_path_factory: pytest.TempPathFactory) -> store.Dataset:
    return built(tmp_path_factory.mktemp("mini"), "oaks_babi_mini")


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> store.Dataset:
    """Two streams of full size."""
    return built(tmp_path_factory.mktemp("full"), "oaks_babi", options={"streams": 2, "questions": 204})


# ---------------------------------------------------------------- a second opinion, from the text alone


def agree(answers: list[str], opinion: str) -> bool:
    if opinion == "Nobody":
        return answers == ["Nobody", "No one", "None", "Unknown"]
    if opinion.isdigit():
        return answers[0] == opinion and "Unknown" not in answers
    if opinion == "Unknown|0":
        return answers[:2] == ["Unknown", "0"]
    return answers == opinion.split("|")


def events_by_chunk(data: store.Dataset, stream: str, ordinary: set[str]) -> list[list[Event]]:
    return [read_events(text, ordinary) for text in data.documents.filter(stream=stream)["text"]]


def asked(data: store.Dataset) -> pl.DataFrame:
    return data.probes.join(data.gold, on="probe_id")


def check_answers(data: store.Dataset, share: float) -> int:
    ordinary = prose.vocabulary()
    draw = Random(0)
    chunks = {s: events_by_chunk(data, s, ordinary) for s in data.documents["stream"].unique()}
    checked = 0
    for row in asked(data).iter_rows(named=True):
        if draw.random() < share:
            events = list(itertools.chain(*chunks[row["stream"]][: row["position"] + 1]))
            opinion = second_opinion(row["question"], events)
            assert agree(row["answers"], opinion), (row["probe_id"], row["question"], row["answers"], opinion)
            checked += 1
    return checked


def test_a_second_reading_of_the_text_gives_the_same_answer_to_every_probe_of_the_mini_dataset(
    mini: store.Dataset,
) -> None:
    assert check_answers(mini, 1) == len(mini.probes)


def test_a_second_reading_of_the_text_gives_the_same_answer_to_a_sample_of_a_full_stream(full: store.Dataset) -> None:
    assert check_answers(full, 0.15) > 1500


def test_the_evidence_alone_gives_the_same_answer(full: store.Dataset) -> None:
    ordinary = prose.vocabulary()
    chunks = {s: events_by_chunk(full, s, ordinary) for s in full.documents["stream"].unique()}
    for row in asked(full).sample(2000, seed=1).iter_rows(named=True):
        positions = [int(document.rpartition("_c")[2]) for document in row["evidence"]]
        events = list(itertools.chain(*(chunks[row["stream"]][p] for p in positions)))
        assert agree(row["answers"], second_opinion(row["question"], events)), (
            row["question"],
            row["answers"],
            positions,
        )


def test_every_candidate_of_every_template_agrees_with_the_second_reading() -> None:
    """Beyond what was drawn: all questions of small worlds with every kind of fact, after every single fact."""
    seen: Counter[str] = Counter()
    for seed in range(4):
        rng = Random(seed)
        cast = synthetic.cast(rng, 4, 4, 3, set())
        facts = synthetic.tell(synthetic.simulate(cast, 60, rng), rng)
        events = read_events(" ".join(facts), set())
        for c in candidates.of_stream(0, facts, range(60), 60, rng):
            template = next(p for p, _ in READINGS if re.fullmatch(p, c.text))
            seen[template] += 1
            for position, answers in enumerate(c.answers):
                assert agree(answers, second_opinion(c.text, events[: position + 1])), (c.text, position)
    assert len(seen) == 29


# ---------------------------------------------------------------- the dataset


def test_a_full_stream_has_65_chunks_of_at_most_2000_tokens(full: store.Dataset) -> None:
    assert full.documents.group_by("stream").len()["len"].to_list() == [65, 65]
    measure = tokens.load()
    assert full.documents["tokens"].to_list() == measure.count(full.documents["text"].to_list())
    assert full.documents["tokens"].min() > 1900 and full.documents["tokens"].max() <= 2000  # type: ignore[operator]


def test_about_87_facts_are_spread_through_a_stream(full: store.Dataset) -> None:
    ordinary = prose.vocabulary()
    facts = [[len(e) for e in events_by_chunk(full, s, ordinary)] for s in ("babi00", "babi01")]
    assert sum(map(sum, facts)) == 2 * 87
    assert all(sum(half) > 20 for per_chunk in facts for half in (per_chunk[:32], per_chunk[32:]))
    assert max(map(max, facts)) < 10


def test_types_and_bins_come_out_in_the_papers_shares(full: store.Dataset) -> None:
    slices = full.card.slices
    assert slices["question_type"] == {"bridge": 61, "comparison": 72, "counting": 57, "tracking": 14}
    assert slices["changes"].keys() == {"sparse", "moderate", "frequent"}
    assert full.card.statistics["distance_bins_40_35_25"] < 3
    assert abs(full.card.statistics["phases_per_question"] - 4.7) < 0.1
    assert abs(full.card.statistics["quiet_share"] - 94) < 1


def test_every_template_is_asked_and_none_takes_the_place_of_the_others_of_its_type(full: store.Dataset) -> None:
    """Alone, "Where was X when Y last moved to Z?" would be two of three bridge questions: it has most fillings."""
    questions = full.probes.unique("question_id")["question"]
    asked_by = Counter(next(n for n, (p, _) in enumerate(READINGS) if re.fullmatch(p, text)) for text in questions)
    assert len(asked_by) == len(TEMPLATES)
    for kind, total in full.card.slices["question_type"].items():
        alike = [asked_by[n] for n, template in enumerate(TEMPLATES) if template.type == kind]
        assert sum(alike) == total and max(alike) <= 2.5 * total / len(alike), (kind, alike)


def test_bins_and_phases_fit(mini: store.Dataset, full: store.Dataset) -> None:
    for data in (mini, full):
        by_question = asked(data).group_by("question_id").agg(pl.max("phase") + 1, pl.first("slice_changes"))
        for _, phases, name in by_question.iter_rows():
            assert 2 <= phases <= 20
            assert name == ("sparse" if phases <= 3 else "moderate" if phases <= 5 else "frequent")


def test_the_mini_dataset_is_small_and_has_every_type_and_bin(mini: store.Dataset) -> None:
    assert len(mini.probes) <= 320
    assert mini.card.slices["question_type"].keys() == {"tracking", "counting", "bridge", "comparison"}
    assert mini.card.slices["changes"].keys() == {"sparse", "moderate", "frequent"}
    assert mini.card.stands_for == "oaks_babi"


def test_the_last_document_of_the_evidence_is_where_the_phase_began(full: store.Dataset) -> None:
    for _, rows in asked(full).group_by("question_id", maintain_order=True):
        began = 0
        for row in rows.sort("position").iter_rows(named=True):
            began = row["position"] if row["position"] and row["phase"] != phase else began  # noqa: F821
            phase = row["phase"]  # noqa: F841
            if row["evidence"]:
                assert row["evidence"][-1] == f"{row['stream']}_c{began}"
            else:
                assert "Unknown" in row["answers"]


def test_outdated_answers_were_right_before_and_are_not_now(mini: store.Dataset) -> None:
    for _, rows in asked(mini).group_by("question_id", maintain_order=True):
        earlier: list[str] = []
        for answers, outdated in rows.sort("position").select("answers", "outdated").iter_rows():
            assert outdated == [a for a in dict.fromkeys(earlier) if a not in answers]
            earlier.append(answers[0])


def test_training_pairs_are_answers_at_the_end_and_none_is_of_a_probe(mini: store.Dataset) -> None:
    ordinary = prose.vocabulary()
    ends = [list(itertools.chain(*events_by_chunk(mini, s, ordinary))) for s in sorted(set(mini.documents["stream"]))]
    probes = set(mini.probes["question"])
    assert not any(pair.question in probes for pair in mini.pairs)
    assert len(mini.pairs) == 32
    for pair in mini.pairs:
        assert any(pair.answer in second_opinion(pair.question, events) for events in ends), pair


def test_the_same_input_gives_the_same_bytes(mini: store.Dataset, tmp_path: Path) -> None:
    again = built(tmp_path, "oaks_babi_mini")
    assert again.card == mini.card


def test_another_seed_gives_other_rows(mini: store.Dataset, tmp_path: Path) -> None:
    other = built(tmp_path, "oaks_babi_mini", options={"seed": 1})
    assert other.card.content != mini.card.content


def test_no_invented_name_is_a_word_of_the_prose() -> None:
    taken = prose.vocabulary()
    cast = synthetic.cast(Random(0), 50, 50, 50, set(taken))
    names = [*cast.people, *cast.places, *cast.objects]
    assert len(set(names)) == 150
    assert not taken & {name.lower() for name in names}


@pytest.mark.data
def test_real_novels_carry_the_facts(tmp_path: Path) -> None:
    small = {"streams": 2, "chunks": 12, "chunk_tokens": 500, "questions": 24, "prose": str(NOVELS)}
    data = built(tmp_path, "oaks_babi", options=small)
    assert data.card.inputs.keys() == {file.name for file in NOVELS.glob("*.txt")}
    text = " ".join(data.documents["text"])
    assert "Gutenberg" not in text
    ordinary = prose.words(prose.read_text(file) for file in NOVELS.glob("*.txt"))
    names = {word for q in data.probes["question"].unique() for word in re.findall(r"\w+", q)[1:]} - prose.words(
        template.text for template in TEMPLATES
    )
    invented = {name for name in names if name[0].isupper()} - {"Where", "Who", "How", "What", "Which"}
    assert len(invented) > 10 and not ordinary & {name.lower() for name in invented}
