"""OAKS-BABI: the answers that Algorithm 1 gives are those that a reader of the documents' text would give."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest
import yaml

from conftest import DATA, put_dataset, spec_of
from oaks_babi import candidates
from oaks_babi.forms import number_forms
from oaks_babi.log import Log
from oaks_babi.templates import TEMPLATES
from oaks_babi.timelines import UNKNOWN, Change
from upkeep.building import prose, store, synthetic, tokens
from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError

NOVELS = DATA / "novels"


def catalog(
    folder: Path, name: str, *, options: dict[str, Any] | None = None, data: dict[str, str] | None = None
) -> Catalog:
    """A repository with one dataset, that of the suite with some options changed."""
    spec = spec_of(name)
    spec["options"] = spec.get("options", {}) | (options or {})
    put_dataset(folder, name, spec)
    (folder / "config").mkdir()
    (folder / "config" / "config.yaml").write_text(yaml.safe_dump({"data": data or {}}))
    return Catalog(folder)


def built(folder: Path, name: str, **how: Any) -> store.Dataset:
    build_dataset(catalog(folder, name, **how), name, folder / "out" / name)
    return store.load(folder / "out" / name)


@pytest.fixture(scope="module")
def mini(tmp_path_factory: pytest.TempPathFactory) -> store.Dataset:
    return built(tmp_path_factory.mktemp("mini"), "oaks_babi_mini")


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> store.Dataset:
    """Two streams of full size."""
    return built(tmp_path_factory.mktemp("full"), "oaks_babi", options={"streams": 2, "questions": 204})


# ---------------------------------------------------------------- a second opinion, from the text alone

MOVES, TAKES = {"went", "moved", "journeyed", "travelled"}, {"picked", "took", "grabbed", "got"}
DROPS, GIVES = {"dropped", "discarded", "left", "put"}, {"gave", "handed", "passed"}
Event = tuple[str, str, str, str | None]


def read_events(text: str, ordinary: set[str]) -> list[Event]:
    """What happens in a text: sentences of invented names. Written apart from the product's parser."""
    events: list[Event] = []
    for sentence in re.findall(r"[A-Z][^.!?]*\.", text):
        heard = sentence.rstrip(".").split()
        if heard[0].lower() in ordinary:
            continue
        verb = heard[1]
        if verb in MOVES:
            events.append(("move", heard[0], heard[-1], None))
        elif verb in TAKES:
            events.append(("take", heard[0], heard[-1], None))
        elif verb in DROPS:
            events.append(("drop", heard[0], heard[-1], None))
        else:
            assert verb in GIVES, sentence
            events.append(("give", heard[0], heard[3], heard[-1]))
    return events


def locations(events: list[Event]) -> list[dict[str, str]]:
    """Where everybody is during each event."""
    now: dict[str, str] = {}
    places = []
    for kind, who, what, _ in events:
        if kind == "move":
            now[who] = what
        places.append(dict(now))
    return places


def last(values: list[str]) -> str:
    return values[-1] if values else "Unknown"


def count(events: list[Event], kind: str, **asked: str) -> int:
    fields = {"who": 1, "what": 2, "to": 3}
    return sum(e[0] == kind and all(e[fields[f]] == v for f, v in asked.items()) for e in events)


def versus(first: str, n: int, second: str, m: int) -> str:
    return "Unknown|Same" if n == m == 0 else "Same" if n == m else first if n > m else second


def holder(events: list[Event], thing: str) -> str:
    answer = "Unknown"
    for kind, who, what, to in events:
        if what == thing and kind in ("take", "drop", "give"):
            answer = {"take": who, "drop": "Nobody", "give": to or ""}[kind]
    return answer


def gained(events: list[Event], who: str, thing: str) -> list[int]:
    return [
        i
        for i, (kind, s, o, r) in enumerate(events)
        if o == thing and ((kind == "take" and s == who) or (kind == "give" and r == who))
    ]


def lost(events: list[Event], who: str, thing: str) -> list[int]:
    return [i for i, e in enumerate(events) if e[:3] == ("drop", who, thing)]


def moved_since(events: list[Event], who: str, since: list[int]) -> str:
    return last(
        [o for i, (kind, s, o, _) in enumerate(events) if since and i > since[0] and (kind, s) == ("move", who)]
    )


def straight(events: list[Event], start: str, end: str) -> str:
    answer, at = "Unknown", {}
    for kind, who, what, _ in events:
        if kind == "move":
            if (at.get(who), what) == (start, end):
                answer = who
            at[who] = what
    return answer


def at_move(events: list[Event], a: str, b: str, place: str) -> str:
    where = locations(events)
    return last([where[i].get(a, "Unknown") for i, e in enumerate(events) if e[:3] == ("move", b, place)])


def at_events(events: list[Event], who: str, which: list[int]) -> str:
    where = locations(events)
    return last([where[i].get(who, "Unknown") for i in which])


def kinds(events: list[Event], kind: str, who: str) -> int:
    return len({o for k, s, o, _ in events if (k, s) == (kind, who)})


W = r"(\w+)"
READINGS: list[tuple[str, Callable[..., str | int]]] = [
    (rf"Where is {W} now\?", lambda e, a: last([o for k, s, o, _ in e if (k, s) == ("move", a)])),
    (rf"Who is holding the {W} now\?", holder),
    (
        rf"Who was the last to give the {W} to somebody else\?",
        lambda e, o: last([s for k, s, x, _ in e if (k, x) == ("give", o)]),
    ),
    (rf"How many times has {W} moved to the {W}\?", lambda e, a, p: count(e, "move", who=a, what=p)),
    (rf"How many times has {W} moved, to any place\?", lambda e, a: count(e, "move", who=a)),
    (
        rf"How many different people have been to the {W}\?",
        lambda e, p: len({s for k, s, o, _ in e if (k, o) == ("move", p)}),
    ),
    (rf"How many times has (?!anyone){W} picked up the {W}\?", lambda e, a, o: count(e, "take", who=a, what=o)),
    (rf"How many different objects has {W} picked up\?", lambda e, a: kinds(e, "take", a)),
    (rf"How many times has (?!anyone){W} dropped the {W}\?", lambda e, a, o: count(e, "drop", who=a, what=o)),
    (rf"How many different objects has {W} dropped\?", lambda e, a: kinds(e, "drop", a)),
    (rf"How many times has anyone picked up the {W}\?", lambda e, o: count(e, "take", what=o)),
    (
        rf"How many different people have held the {W}\?",
        lambda e, o: len({r or s for k, s, x, r in e if x == o and k in ("take", "give")}),
    ),
    (rf"How many times has anyone dropped the {W}\?", lambda e, o: count(e, "drop", what=o)),
    (
        rf"How many different people have dropped the {W}\?",
        lambda e, o: len({s for k, s, x, _ in e if (k, x) == ("drop", o)}),
    ),
    (rf"How many times has {W} been given something, by anyone\?", lambda e, a: count(e, "give", to=a)),
    (rf"How many different people have given {W} something\?", lambda e, a: len({s for _, s, _, r in e if r == a})),
    (rf"How many times has {W} given an object to {W}\?", lambda e, a, b: count(e, "give", who=a, to=b)),
    (rf"Who was the last to go straight from the {W} to the {W}\?", straight),
    (rf"Where was {W} when {W} last moved to the {W}\?", at_move),
    (
        rf"What is the latest place that {W} moved to at any time after acquiring the {W}\?",
        lambda e, a, o: moved_since(e, a, gained(e, a, o)),
    ),
    (
        rf"What is the latest place that {W} moved to at any time after dropping the {W}\?",
        lambda e, a, o: moved_since(e, a, lost(e, a, o)),
    ),
    (rf"Where did {W} last acquire the {W}\?", lambda e, a, o: at_events(e, a, gained(e, a, o))),
    (rf"Where did {W} last drop the {W}\?", lambda e, a, o: at_events(e, a, lost(e, a, o))),
    (
        rf"Who has visited more different places, {W} or {W}\?",
        lambda e, a, b: versus(a, kinds(e, "move", a), b, kinds(e, "move", b)),
    ),
    (
        rf"Which place has {W} visited more often, the {W} or the {W}\?",
        lambda e, a, p, q: versus(p, count(e, "move", who=a, what=p), q, count(e, "move", who=a, what=q)),
    ),
    (
        rf"Who has picked up more different objects, {W} or {W}\?",
        lambda e, a, b: versus(a, kinds(e, "take", a), b, kinds(e, "take", b)),
    ),
    (
        rf"Who has dropped more different objects, {W} or {W}\?",
        lambda e, a, b: versus(a, kinds(e, "drop", a), b, kinds(e, "drop", b)),
    ),
    (
        rf"Who has picked up objects more often, {W} or {W}\?",
        lambda e, a, b: versus(a, count(e, "take", who=a), b, count(e, "take", who=b)),
    ),
    (
        rf"Who has dropped objects more often, {W} or {W}\?",
        lambda e, a, b: versus(a, count(e, "drop", who=a), b, count(e, "drop", who=b)),
    ),
]


def second_opinion(question: str, events: list[Event]) -> str:
    """The answer of a reader who goes through all events anew; `|` between what is accepted."""
    found = [(read, match) for pattern, read in READINGS if (match := re.fullmatch(pattern, question))]
    assert len(found) == 1, question
    read, match = found[0]
    answer = read(events, *match.groups())
    return "Unknown|0" if answer == 0 else str(answer)


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


# ---------------------------------------------------------------- the world and the log


def test_there_are_29_templates_three_fourteen_six_and_six() -> None:
    assert Counter(t.type for t in TEMPLATES) == {"tracking": 3, "counting": 14, "bridge": 6, "comparison": 6}
    assert len({t.text for t in TEMPLATES}) == 29


@pytest.mark.parametrize("group", synthetic.Group)
def test_a_fact_is_read_from_its_sentence_with_every_verb_of_its_group(group: synthetic.Group) -> None:
    fact = synthetic.Fact(group, "Tavan", "Broldance", "Mirel" if group is synthetic.Group.TRANSFER else None)
    assert all(synthetic.parse(fact.sentence(verb)) == fact for verb in synthetic.VERBS[group])


@pytest.mark.parametrize("sentence", ["Tavan sang.", "Tavan went to Broldance.", "tavan gave the orle.", ""])
def test_a_sentence_that_is_no_fact_is_refused(sentence: str) -> None:
    with pytest.raises(UpkeepError, match="not a fact"):
        synthetic.parse(sentence)


def test_a_recipient_has_acquired_what_was_given() -> None:
    log = Log(["A moved to the P.", "A took the o.", "B went to the P.", "A gave the o to B."])
    assert [entry.fact for entry in log.acquired("B", "o")] == [3]
    assert (log.people, log.places, log.objects) == (["A", "B"], ["P"], ["o"])


def test_nobody_acts_where_they_cannot() -> None:
    rng = Random(5)
    facts = synthetic.simulate(synthetic.cast(rng, 4, 5, 3, set()), 500, rng)
    at: dict[str, str] = {}
    held: dict[str, str] = {}
    lies: dict[str, str] = {}
    for fact in facts:
        match fact.group:
            case synthetic.Group.MOVE:
                assert at.get(fact.subject) != fact.object
                at[fact.subject] = fact.object
            case synthetic.Group.ACQUIRE:
                assert fact.object not in held and lies.get(fact.object, at[fact.subject]) == at[fact.subject]
                held[fact.object] = fact.subject
            case synthetic.Group.DISCARD:
                assert held.pop(fact.object) == fact.subject
                lies[fact.object] = at[fact.subject]
            case synthetic.Group.TRANSFER:
                assert fact.recipient and at[fact.subject] == at[fact.recipient] and held[fact.object] == fact.subject
                held[fact.object] = fact.recipient


def test_counts_are_accepted_as_digits_and_words() -> None:
    assert number_forms(0)[:3] == ["Unknown", "0", "zero"]
    assert {"1", "one", "once"} <= set(number_forms(1))
    assert {"2", "two", "twice"} <= set(number_forms(2))
    assert {"3", "three", "three times", "3 times"} <= set(number_forms(3))
    assert {"20", "twenty"} <= set(number_forms(20))
    assert {"21", "twenty-one", "twenty-one times"} <= set(number_forms(21))
    assert len({form for n in range(1, 100) for form in number_forms(n)}) == sum(
        len(number_forms(n)) for n in range(1, 100)
    )


def test_the_chunk_timeline_is_the_answer_after_the_last_fact_of_each_chunk() -> None:
    changes = [Change(0, "A", (0,)), Change(1, "B", (1,)), Change(3, "A", (2, 3))]
    values, evidence = candidates.chunk_timeline(changes, UNKNOWN, [1, 1, 2, 4], 6)
    assert values == [UNKNOWN, "B", "B", "B", "A", "A"]
    assert evidence == [[], [1], [1], [1], [2, 4], [2, 4]]


def test_a_change_and_back_within_one_chunk_begins_no_phase() -> None:
    changes = [Change(0, "A", (0,)), Change(1, "B", (1,)), Change(2, "A", (2,))]
    values, evidence = candidates.chunk_timeline(changes, UNKNOWN, [0, 1, 1], 3)
    assert values == ["A", "A", "A"] and evidence == [[0], [0], [0]]


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


# ---------------------------------------------------------------- prose and tokens


def test_the_gutenberg_frame_is_cut_off_and_other_text_kept() -> None:
    book = "licence\n"
    book += "*** START OF THIS PROJECT GUTENBERG EBOOK X ***\nTitle\n\n"
    book += "It began. It went on.\n\nEnd of Project Gutenberg's X\nmore"
    assert prose.read_sentences(book) == ["\n\nIt began.", " It went on."]
    assert prose.read_sentences("No frame here.\n\nNone at all.") == ["\n\nNo frame here.", "\n\nNone at all."]


def test_titles_do_not_end_a_sentence() -> None:
    assert prose.split_sentences("He met Mr. Gray. “Who is it?” asked Mrs. Low. Nobody knew.") == [
        "He met Mr. Gray.",
        "“Who is it?” asked Mrs. Low.",
        "Nobody knew.",
    ]


def test_every_generated_word_is_in_the_vocabulary() -> None:
    words = prose.words(itertools.islice(prose.generate(Random(0)), 3000))
    assert not words - prose.vocabulary() - {"an"}


def test_prose_that_is_not_there_or_not_utf8_or_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"caf\xe9.")
    (tmp_path / "empty.txt").write_text("")
    for place, problem in (("nowhere", "no prose"), ("bad.txt", "not UTF-8"), ("empty.txt", "no sentence")):
        folder = tmp_path / f"for {place}"
        folder.mkdir()
        with pytest.raises(UpkeepError, match=problem):
            built(folder, "oaks_babi_mini", options={"prose": str(tmp_path / place)})


def test_facts_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UpkeepError, match="do not fit"):
        built(tmp_path, "oaks_babi_mini", options={"facts": 400})


def test_prose_whose_sentences_fill_a_chunk_is_refused(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("And " * 300 + "so on.")
    with pytest.raises(UpkeepError, match="too long for the chunks"):
        built(tmp_path, "oaks_babi_mini", options={"prose": str(tmp_path / "long.txt")})


def test_more_questions_than_there_are_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UpkeepError, match="too few tracking questions"):
        built(tmp_path, "oaks_babi_mini", options={"questions": 1000})


@pytest.mark.parametrize("options", [{"stream": 2}, {"streams": "two"}])
def test_an_unknown_or_wrong_option_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UpkeepError, match="options"):
        built(tmp_path, "oaks_babi_mini", options=options)


def test_a_users_tokenizer_is_recorded(tmp_path: Path) -> None:
    raw = tokens.DEFAULT.read_bytes()
    (tmp_path / "mine.json").write_bytes(raw)
    data = built(tmp_path, "oaks_babi_mini", options={"tokenizer": str(tmp_path / "mine.json")})
    assert data.card.tokenizer.startswith("mine.json (sha256 ")


@pytest.mark.parametrize(("content", "problem"), [(None, "not found"), (b"{}", "not a tokenizer")])
def test_a_tokenizer_that_is_none_is_refused(tmp_path: Path, content: bytes | None, problem: str) -> None:
    if content is not None:
        (tmp_path / "t.json").write_bytes(content)
    with pytest.raises(UpkeepError, match=problem):
        tokens.load(tmp_path / "t.json")


def test_the_suites_tokenizer_is_made_again_byte_for_byte(tmp_path: Path) -> None:
    assert tokens.train(tmp_path / "tokenizer.json").sha256 == tokens.load().sha256
    assert tokens.DEFAULT.stat().st_size < 300_000


def test_a_chunk_whose_first_word_costs_more_without_its_space_keeps_the_space() -> None:
    measure = tokens.load()
    dearer = next(w for w in sorted(prose.vocabulary()) if measure.count([w])[0] > measure.count([f" {w}"])[0])
    size = measure.count([f" {dearer}"])[0]
    packer = tokens.Packer(size)
    packer.add(f" {dearer}", size)
    assert packer.texts(measure) == [f" {dearer}"]
