"""World News: what is asked can be read in the articles, and the same articles always give the same questions."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import Any, get_args

import msgspec
import numpy as np
import polars as pl
import pytest
import yaml

from conftest import ROOT, put_dataset, spec_of
from imprint_news import builder, cheating, compositions, corpus, program, sampling, steps, synthetic
from imprint_news.candidates import Candidate
from imprint_news.chains import Graph, Link
from imprint_news.chains import Path as Chain
from imprint_news.claims import dir_acq
from imprint_news.events import imp_rel
from imprint_news.papers import JUNK_ABOVE, JUNK_BELOW, Paper, pages, press
from imprint_news.updates import AXES, temp_upd
from upkeep import card_numbers
from upkeep.building import annotator, assistant, describing, leaks, names, store, tokens
from upkeep.building.build import build_dataset
from upkeep.building.reading import Faults
from upkeep.catalog import Catalog
from upkeep.contract import FaultKind
from upkeep.errors import UpkeepError

FORGIVING = Faults(dict.fromkeys(get_args(FaultKind), "skip"), Path())
MINI = "imprint_news_mini"
FULL = "imprint_news"


def catalog(folder: Path, name: str, *, options: dict[str, Any] | None = None, **changes: Any) -> Catalog:
    """A repository with one dataset, that of the suite with some things changed."""
    spec = spec_of(name)
    data = changes.pop("data", {})
    spec |= changes
    spec["options"] |= options or {}
    put_dataset(folder, name, spec)
    (folder / "config").mkdir()
    (folder / "config" / "config.yaml").write_text(yaml.safe_dump({"data": data}))
    return Catalog(folder)


def build(folder: Path, name: str, **how: Any) -> store.Dataset:
    build_dataset(catalog(folder, name, **how), name, folder / "out" / name)
    return store.load(folder / "out" / name)


def mini_again(seed: int = 0) -> tuple[synthetic.World, list[Paper]]:
    """The small world with its papers, made again."""
    rng = Random(f"imprint_news {seed}")
    world = synthetic.make(rng, names.Names(rng), 10)
    return world, press(world, rng)


def mini_program() -> assistant.Scripted:
    return assistant.Scripted(program.script(*mini_again()))


@pytest.fixture(scope="module")
def mini(tmp_path_factory: pytest.TempPathFactory) -> store.Dataset:
    return build(tmp_path_factory.mktemp("mini"), MINI)


@pytest.fixture(scope="module")
def asked(mini: store.Dataset) -> list[dict[str, Any]]:
    return joined(mini)


def joined(built: store.Dataset) -> list[dict[str, Any]]:
    """Each probe with its gold."""
    return list(built.probes.join(built.gold, on="probe_id", maintain_order="left").iter_rows(named=True))


def of(asked: Sequence[dict[str, Any]], family: str) -> list[dict[str, Any]]:
    found = [one for one in asked if one["slice_family"] == family]
    assert found
    return found


# ---------------------------------------------------------------- the small one


def test_the_small_one_is_small_and_has_every_family_axis_and_number_of_hops(mini: store.Dataset) -> None:
    assert len(mini.probes) < 300
    assert mini.documents["stream"].unique().to_list() == ["news"]
    assert len(mini.documents) <= 60
    assert mini.documents["tokens"].max() <= 128
    slices = mini.card.slices
    assert slices["family"].keys() == {"dir_acq", "temp_upd", "comp_rel", "imp_rel", "bound_abs"}
    assert slices["temp_upd"].keys() - {"no_temp_upd"} == {f"temp_upd_{axis}" for axis in AXES}
    assert slices["comp_rel"].keys() - {"no_comp_rel"} == {f"comp_rel_{n}hop" for n in (2, 3, 4)}
    assert slices["comp_rel_kind"].keys() - {"no_comp_rel_kind"} == set(compositions.KINDS)
    assert slices["bound_abs"].keys() - {"no_bound_abs"} == {f"bound_abs_{one}" for one in steps.STRATEGIES}
    assert slices["month"].keys() == {"2026-02", "2026-03"}
    assert slices["difficulty"].keys() - {"no_difficulty"} == {"denied", "unmentioned"}


def test_no_answer_is_that_of_most_questions_of_a_form(asked: list[dict[str, Any]]) -> None:
    for form in ("short", "label"):
        answers = Counter(one["answers"][0] for one in asked if one["form"] == form)
        assert max(answers.values()) <= 0.6 * answers.total()


def test_every_open_answer_stands_in_what_the_question_was_made_from(
    mini: store.Dataset, asked: list[dict[str, Any]]
) -> None:
    texts = dict(mini.documents.select("document_id", "text").iter_rows())
    for one in asked:
        if one["slice_family"] == "bound_abs":
            assert not one["evidence"]
            assert not one["context"]
            continue
        held = leaks.key(" ".join(one["context"]))
        read = leaks.key(" ".join(texts[id] for id in one["evidence"]))
        assert read
        assert all(word in held for word in read.split())
        if one["form"] == "short":
            assert any(f" {leaks.key(answer)} " in f" {held} " for answer in one["answers"]), one["question"]


def test_documents_are_bodies_in_order_of_time_without_what_stood_around_them(mini: store.Dataset) -> None:
    days = mini.documents["timestamp"].to_list()
    assert days == sorted(days)
    text = "\n".join(mini.documents["text"])
    assert not [junk for junk in (*JUNK_ABOVE, *JUNK_BELOW) if junk in text]


def test_of_near_duplicates_the_earliest_is_kept(mini: store.Dataset) -> None:
    fetched = [raw for _, raw in pages(mini_again()[1])]
    copies = [raw for raw in fetched if (raw.id or "").endswith("b")]
    assert len(copies) > 5
    assert mini.card.statistics["articles before de-duplication"] == len(fetched)
    assert mini.card.statistics["articles"] == len(fetched) - len(copies)
    assert set(mini.documents["timestamp"]) == {raw.date for raw in fetched if raw not in copies}


# ---------------------------------------------------------------- a second opinion, from the documents alone

SENTENCES = (
    (r"On (?P<day>.+?), (?P<new>.+?) replaced (?P<old>.+?) as (?P<relation>\w+) of (?P<subject>\w+)", None),
    (r"On (?P<day>.+?), the firm (?P<subject>\w+) moved its seat from (?P<old>\w+) to (?P<new>\w+)", "seat"),
    (r"On (?P<day>.+?), the bridge toll of (?P<subject>\w+) changed from (?P<old>.+?) to (?P<new>.+?)", "bridge toll"),
    (r"(?P<new>[A-Z]\w+ [A-Z]\w+) is the (?P<relation>mayor|chief|governor) of (?P<subject>\w+)", None),
    (r"The firm (?P<subject>\w+) has its seat in (?P<new>\w+)", "seat"),
    (r"The bridge toll of (?P<subject>\w+) is (?P<new>.+?)", "bridge toll"),
    (r"(?P<subject>\w+) lies in the province of (?P<new>\w+)", "province"),
    (r"(?P<subject>\w+ \w+) was born in (?P<new>\w+)", "birthplace"),
)
MONTHS = {"February": "02", "March": "03"}


def iso(day: str) -> str:
    number, month, year = day.split()
    return f"{year}-{MONTHS[month]}-{int(number):02d}"


class Reader:
    """What a reader of the documents, and of nothing else, takes every relation to be."""

    def __init__(self, told: Sequence[tuple[str, str]]) -> None:
        """(day, text), in order of time."""
        self.told: dict[tuple[str, str], list[tuple[str, str]]] = {}
        self.changes: list[tuple[str, str, str, str, str]] = []
        called = r"People call (\w+) the (\w+ \w+)"
        self.aliases = {name: who for _, text in told for who, name in re.findall(called, text)}
        for day, text in told:
            for sentence in re.split(r"(?<=\.)\s", text):
                self._take(day, sentence.removesuffix("."))

    def _take(self, day: str, sentence: str) -> None:
        for form, relation in SENTENCES:
            if found := re.fullmatch(form, sentence):
                parts = found.groupdict()
                key = parts["subject"], relation or parts["relation"]
                self.told.setdefault(key, []).append((day, parts["new"]))
                if "old" in parts:
                    self.changes.append((iso(parts["day"]), *key, parts["old"], parts["new"]))
                return

    def at(self, subject: str, relation: str, day: str = "9999") -> str | None:
        """What held at the end of a day: what was told last, or else what a later change says was there before."""
        turns = sorted(change for change in self.changes if change[1:3] == (subject, relation))
        past = [change[4] for change in turns if change[0] <= day]
        if past:
            return past[-1]
        if turns:
            return turns[0][3]
        values = self.told.get((subject, relation), [])
        return values[-1][1] if values else None

    def without(self, day: str, relation: str) -> Reader:
        """As if nothing had changed a relation on a day."""
        other = Reader([])
        other.told, other.aliases = self.told, self.aliases
        other.changes = [
            (when, subject, of, old, old if (when, of) == (day, relation) else new)
            for when, subject, of, old, new in self.changes
        ]
        return other

    def follow(self, start: str, relations: Sequence[str], day: str = "9999") -> str | None:
        value: str | None = self.aliases.get(start, start)
        for relation in relations:
            value = None if value is None else self.at(value, relation, day)
        return value

    def answer(self, kind: str, question: str) -> str | None:
        """To a question over a chain; None where some link of it is told nowhere."""
        start, relations = nested(question)
        day = iso(re.search(r"\d+ \w+ \d{4}", question)[0])  # type: ignore[index]
        if kind == "temporal":
            return self.follow(start, relations, str(date.fromisoformat(day) - timedelta(1)))
        if kind == "counterfactual":
            return self.without(day, re.search(r"Had the (.+) not changed", question)[1]).follow(start, relations)  # type: ignore[index]
        return self.follow(start, relations)


def reader_of(built: store.Dataset) -> Reader:
    articles: dict[str, list[str]] = {}
    for day, text in built.documents.select("timestamp", "text").iter_rows():
        articles.setdefault(day, []).append(text)
    return Reader([(day, " ".join(texts)) for day, texts in articles.items()])


@pytest.fixture(scope="module")
def reader(mini: store.Dataset) -> Reader:
    return reader_of(mini)


def nested(question: str) -> tuple[str, list[str]]:
    """The start and the relations, in order, of `the mayor of the seat of X`."""
    chain = question[: question.rindex("?")]
    *relations, start = re.split(r" of (?:the )?", re.split(r"(?:is|was|be) the ", chain, maxsplit=1)[1])
    return start, relations[::-1]


def answered_from_the_documents(reader: Reader, asked: Sequence[dict[str, Any]]) -> Counter[str]:
    """Check the composed questions, all of which are asked when everything has arrived; how many of each kind."""
    checked = Counter[str]()
    for one in of(asked, "comp_rel"):
        kind, question = one["slice_comp_rel_kind"], one["question"]
        assert len(nested(question)[1]) == int(one["slice_comp_rel"].removeprefix("comp_rel_").removesuffix("hop"))
        assert [reader.answer(kind, question)] == one["answers"], question
        checked[kind] += 1
    return checked


def test_a_reader_of_the_documents_alone_gives_the_same_answers_to_composed_questions(
    reader: Reader, asked: list[dict[str, Any]]
) -> None:
    checked = answered_from_the_documents(reader, asked)
    assert min(checked[kind] for kind in compositions.KINDS) >= 2


def test_outdated_answers_are_what_a_change_took_the_place_of(reader: Reader, asked: list[dict[str, Any]]) -> None:
    changed = [one for one in of(asked, "comp_rel") if one["outdated"]]
    assert len(changed) >= 2
    for one in changed:
        chain = nested(one["question"])
        old = {reader.without(day, relation).follow(*chain) for day, _, relation, _, _ in reader.changes}
        assert one["outdated"][0] in old - {reader.follow(*chain)}


def test_a_reader_gives_the_same_answers_about_changes(reader: Reader, asked: list[dict[str, Any]]) -> None:
    turns = {(day, subject, relation): (old, new) for day, subject, relation, old, new in reader.changes}
    for one in of(asked, "temp_upd"):
        axis, question = one["slice_temp_upd"].removeprefix("temp_upd_"), one["question"]
        if axis == "prior_identity":
            holder = re.search("what is (.+) known", question)
            assert holder is not None
            was = re.search(f"Before that, {holder[1]} was the ([^.]+)", " ".join(one["context"]))
            assert was is not None
            assert one["answers"] == [was[1]]
            continue
        day, subject = iso(question.split(",")[0].removeprefix("As of ")), re.search(r"of (\w+)[ ?]", question)
        relation = re.search(r"the (mayor|governor|chief|seat|bridge toll) of (\w+)", question)
        assert subject is not None
        assert relation is not None
        old, new = turns[day, relation[2], relation[1]]
        if axis == "negation":
            assert old in question
            assert (one["answers"], one["outdated"]) == (["no"], ["yes"])
        else:
            assert (one["answers"], one["outdated"]) == ([new], [old] if axis == "forward" else [])
            assert (old in question) == (axis == "backward")


def test_a_reader_finds_what_the_broad_questions_ask_for(mini: store.Dataset, asked: list[dict[str, Any]]) -> None:
    text = " ".join(mini.documents["text"])
    for one in of(asked, "imp_rel"):
        kind, province, month = re.fullmatch(
            r"What major (\w+)s happened in the province of (\w+) in (\w+) 2026\?", one["question"]
        ).groups()  # type: ignore[union-attr]
        events = re.findall(rf"The (\w+ {kind}) began on \d+ {month} 2026", text)
        there = {name for name in events if f"{name.split()[0]} lies in the province of {province}" in text}
        assert there == {one["answers"][0]}


def test_half_of_the_direct_questions_are_true_and_the_others_change_one_element(asked: list[dict[str, Any]]) -> None:
    direct = of(asked, "dir_acq")
    assert Counter(one["answers"][0] for one in direct) == {"yes": 30, "no": 30}
    for one in direct:
        stated = one["question"].removesuffix("?").split()
        held = set(re.sub(r"[.,]", "", " ".join(one["context"])).split())
        missing = [word for word in stated[1:] if word[0].isupper() and word not in held and word not in MONTHS]
        if one["answers"] == ["yes"]:
            assert not missing, one


def test_abstaining_is_the_answer_to_what_never_was(mini: store.Dataset, asked: list[dict[str, Any]]) -> None:
    for one in of(asked, "bound_abs"):
        assert one["answers"][0] == "No, the corpus contains no record of"
        counts = dict(re.findall(r"(affirm|deny|unrelated)(\d+)", one["slice_verdicts"]))
        assert sum(map(int, counts.values())) == 10
        assert (counts["deny"] != "0") == (one["slice_difficulty"] == "denied")
    sizes = Counter(raw.market for _, raw in pages(mini_again()[1]) if raw.market.startswith("e"))
    assert mini.card.slices["salience"].keys() - {"no_salience"} == {"salience_1", "salience_2_4"}
    assert max(sizes.values()) >= 3


# ---------------------------------------------------------------- filter, budget, pairs


def test_the_filter_finds_what_leaks_and_what_is_wrong(mini: store.Dataset) -> None:
    statistics = mini.card.statistics
    assert statistics["left out: dir_acq, right without the article"] > 0
    assert statistics["left out: dir_acq, wrong with the article"] > 0
    assert "left out: comp_rel, wrong with the article" not in statistics  # the graph and the world agree
    assert statistics["candidates: dir_acq"] == 180  # three times as many as are wanted


def test_no_question_of_the_evaluation_is_trained_on(mini: store.Dataset) -> None:
    questions = {leaks.key(question) for question in mini.probes["question"]}
    trained = [leaks.key(pair.question) for pair in mini.pairs]
    assert len(trained) == len(set(trained)) > 100
    assert not questions & set(trained)
    assert mini.card.statistics["left out: pairs, asked in the evaluation"] > 0


def candidate(question: str = "Who?", answers: Sequence[str] = ("Ann",), article: int = 0, **more: Any) -> Candidate:
    given: dict[str, Any] = {"family": "f", "stratum": "s", "evidence": (0,)} | more
    return Candidate(question=question, answers=tuple(answers), article=article, **given)


def test_a_question_that_is_asked_twice_or_tells_or_has_two_answers_is_left_out() -> None:
    left = Counter[str]()
    given = [
        candidate("Who won?"),
        candidate("who won"),
        candidate("Who lost?", ["Ann"]),
        candidate("Who lost?", ["Ben"]),
        candidate("Did Ann win, or who?"),
        candidate("Is yes right?", ["yes"], options=("yes", "no")),
        candidate("?!"),
    ]
    assert [one.question for one in cheating.unambiguous(given, left)] == ["Who won?", "Is yes right?"]
    assert left == {
        "f, asked twice": 1,
        "f, asked with two answers": 2,
        "f, answer in question": 1,
        "f, empty question": 1,
    }


def tiny_corpus(*texts: str, chunk_tokens: int = 100) -> corpus.Corpus:
    articles = [
        corpus.Article(f"a{n}", "", f"2026-02-{n + 1:02d}", text, "", f"2026-02-{n + 1:02d}", f"line {n}")
        for n, text in enumerate(texts)
    ]
    return corpus.Corpus(articles, chunk_tokens, tokens.load())


def scripted(**script: Callable[[Any], Any]) -> assistant.Scripted:
    return assistant.Scripted({f"imprint_news.{name}": answer for name, answer in script.items()})


def test_the_filter_keeps_what_needs_the_article_and_can_be_answered_with_it() -> None:
    label = {"options": ("yes", "no")}
    given = {
        "known": candidate("known", ["Ann"]),
        "judged": candidate("judged", ["Ann"]),
        "unread": candidate("unread", ["Ann"]),
        "hard": candidate("hard", ["Ann"]),
        "good": candidate("good", ["Ann"]),
        "guessed": candidate("guessed", ["yes"], **label),
        "silent": candidate("silent", ["yes"], **label),
        "denied": candidate("denied", ["yes"], **label),
    }
    blind = {
        "known": "That was Ann, of course.", "judged": "Anna", "unread": None, "guessed": "Yes, I think. No?",
        "silent": "Who knows", "denied": "No. Or yes?",
    }  # fmt: skip
    context = {"hard": "Ben", "good": "ann!", "silent": "YES", "denied": "eyes and noses"}
    helper = scripted(
        blind=lambda one: blind.get(one.question, "unknown"),
        with_context=lambda one: context[one.question],
        agrees=lambda one: steps.Agrees(one.response == "Anna"),
    )
    left = Counter[str]()
    kept = cheating.fair(list(given.values()), tiny_corpus("Ann won."), helper, 1, 1, left)
    assert [one.question for one in kept] == ["good", "silent"]
    assert left == {"f, right without the article": 3, "f, wrong with the article": 2}
    assert cheating.fair(list(given.values()), tiny_corpus("Ann won."), helper, 0, 0, left) == list(given.values())


class Changeable(assistant.Scripted):
    """Says another thing at its third trial."""

    def ask(self, step: Any, given: Sequence[Any], trial: int = 0) -> list[Any]:
        return ["yes" if trial == 2 else "no" for _ in given] if step is steps.BLIND else []


@pytest.mark.parametrize(("trials", "kept"), [(2, 1), (3, 0)])
def test_every_trial_of_the_filter_counts(trials: int, kept: int) -> None:
    one = candidate("q", ["yes"], options=("yes", "no"))
    assert len(cheating.fair([one], tiny_corpus("x"), Changeable({}), trials, 0, Counter())) == kept


@pytest.mark.parametrize("wanted", [0, 1, 7, 30, 1000])
def test_an_articles_budget_grows_with_its_length(wanted: int) -> None:
    sizes = [100, 300, 600, 50]
    given = [(article, n) for n in range(20) for article in range(3)]
    taken = sampling.apportion(given, lambda one: one[0], sizes, wanted, Random(1))
    assert len(taken) == min(wanted, len(given))
    assert taken == [one for one in given if one in set(taken)]
    if wanted == 30:  # 1000 tokens in all, 3 for each hundred: 3, 9, 18
        assert Counter(article for article, _ in taken) == {0: 3, 1: 9, 2: 18}


def test_families_share_their_number_evenly_among_labels_and_axes() -> None:
    strata = builder.Wanted(dir_acq=5, temp_upd=6).strata()
    assert (strata["dir_acq_yes"], strata["dir_acq_no"]) == (3, 2)
    assert [strata[f"temp_upd_{axis}"] for axis in AXES] == [2, 2, 1, 1]
    assert builder.Wanted().strata()["comp_rel_3hop"] == 150


# ---------------------------------------------------------------- corpus


def test_leaders_are_the_same_in_blocks_of_any_size_as_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(12, 8))
    vectors = centres[rng.integers(0, 12, 200)] + 0.3 * rng.normal(size=(200, 8))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    expected: list[int] = []
    for n, vector in enumerate(vectors):
        first = next((m for m in sorted(set(expected)) if float(vectors[m] @ vector) >= 0.9), n)
        expected.append(first)
    for block in (1, 7, 64, 1024):
        monkeypatch.setattr(corpus, "BLOCK", block)
        assert corpus.leaders(vectors, 0.9) == expected
    assert 12 <= len(set(expected)) < 200


def test_a_quote_is_found_in_the_documents_that_hold_it_whatever_its_case_and_punctuation() -> None:
    sentences = [f"Town {n} has {n} bridges and a mayor." for n in range(40)]
    made = tiny_corpus("Short one.", " ".join(sentences), chunk_tokens=30)
    assert len(made.pieces[1]) > 5
    across = 0
    for sentence in sentences:
        found = made.find(1, sentence.upper().replace(".", "!"))
        assert 1 <= len(found) <= 2
        across += len(found) == 2
        assert leaks.key(sentence) in leaks.key(" ".join(made.stream.texts[n] for n in found))
        assert leaks.key(sentence) in leaks.key(made.passages(found)[0])
    assert across
    assert made.find(1, " ".join(sentences)) == tuple(made.pieces[1])
    assert made.find(1, "Town 41 has") == made.find(1, "") == made.find(1, "...") == made.find(0, sentences[0]) == ()
    assert made.find(1, "wn 3 has") == ()
    assert len(made.passages((0, 1, 2, 4))) == 3


FAULTY = {
    "broken_record": b'{"id": "x1", "text": "Cut off',
    "encoding": '{"id": "x2", "text": "Café news.", "date": "2026-02-03"}'.encode("latin-1"),
    "missing_date": b'{"id": "x3", "text": "Some news."}',
    "bad_date": b'{"id": "x4", "text": "Some news.", "date": "03/02/2026"}',
    "duplicate_id": b'{"id": "a000", "text": "Again.", "date": "2026-02-03"}',
    "empty_text": b'{"id": "x5", "text": "  ", "date": "2026-02-03"}',
    "too_long": b'{"id": "x6", "text": "' + b"long " * 20_000 + b'", "date": "2026-02-03"}',
}


def articles_file(path: Path, faulty: Sequence[bytes] = ()) -> Path:
    """The small world's pages as a user would have them, with dates in three forms and faults in the middle."""
    lines: list[bytes] = []
    for n, (_, raw) in enumerate(pages(mini_again()[1])):
        row = {key: value for key, value in msgspec.to_builtins(raw).items() if value is not None}
        year, month, day = row["date"].split("-")
        row["date"] = [
            row["date"],
            f"{row['date']}T08:30:00Z",
            f"{int(day)} {'Feb' if month == '02' else 'March'} {year}",
        ][n % 3]
        lines.append(json.dumps(row, ensure_ascii=False).encode())
    path.write_bytes(b"\n".join([*lines[:20], *faulty, *lines[20:]]))
    return path


def from_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch, faulty: Sequence[bytes] = (), **changes: Any
) -> tuple[store.Dataset, Catalog]:
    """The full dataset's builder over the small world's files; the world is the hired assistant."""
    mini_options = spec_of(MINI)["options"]
    options = mini_options | {"source": "files", "embedder": "lsa", "assistant": "the-world"}
    relations = folder / "relations.jsonl"
    known = [one for _, one in mini_again()[0].encyclopedia(FORGIVING)]
    relations.write_bytes(msgspec.json.Encoder().encode_lines(known))
    articles = articles_file(folder / "articles.jsonl", faulty)
    data = {f"{FULL}.articles": str(articles), f"{FULL}.relations": str(relations)}
    monkeypatch.setattr(annotator, "hire", lambda context, model: nullcontext(mini_program()))
    made = catalog(folder, FULL, options=options, data=data, **changes)
    build_dataset(made, FULL, folder / "out")
    return store.load(folder / "out"), made


def test_files_give_the_very_same_questions_and_faulty_lines_are_named_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mini: store.Dataset
) -> None:
    found, _ = from_files(tmp_path, monkeypatch, list(FAULTY.values()))
    assert found.card.content == mini.card.content
    assert found.card.faults == dict.fromkeys(FAULTY, 1)
    assert found.card.inputs.keys() == {"articles.jsonl", "relations.jsonl"}
    for line, kind in enumerate(FAULTY, 21):
        note = next(note for note in found.card.notes if f"({kind})" in note)
        assert f"articles.jsonl, line {line}" in note


@pytest.mark.parametrize("kind", FAULTY)
def test_a_fault_that_is_refused_stops_the_build_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    with pytest.raises(UpkeepError) as caught:
        from_files(tmp_path, monkeypatch, [FAULTY[kind]], faults={kind: "refuse"})
    assert "articles.jsonl, line 21" in str(caught.value)


def test_describe_shows_the_papers_numbers_beside_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, made = from_files(tmp_path, monkeypatch)
    text = describing.describe(found.card, card_numbers.published(made.dataset(FULL), ROOT / "papers"))
    rows = {name: (own, paper) for name, own, paper in re.findall(r"^(\S.*?)  +(\S*)  +(\S+)$", text, re.MULTILINE)}
    papers = {name: paper for name, (_, paper) in rows.items()}
    assert papers["articles"] == "678"
    assert papers["training pairs"] == "16,667"
    assert papers["C+Q tokens"] == "1,403,214"
    assert papers["2026-03: article tokens, mean"] == "1,046"
    assert papers["comp_rel: comp_rel_4hop"] == "93"
    assert papers["supporting tokens: temp_upd"] == "572"
    spec = made.dataset(FULL)
    assert not [name for name in spec.published if not rows.get(name, ("",))[0]], "a published number without ours"


def test_a_line_without_id_and_url_is_broken_and_a_url_serves_as_id() -> None:
    faults = Faults({"broken_record": "skip", "bad_date": "skip", "duplicate_id": "skip"}, Path("d.yaml"))
    day = "2026-02-03"
    lines = [
        ("1", corpus.Raw(text="News.", date=day)),
        ("2", corpus.Raw(text="News.", date=day, url="http://b")),
        ("3", corpus.Raw(text="News.", date=day, url="http://b", id="a", spike="4 Feb 2026", market=" m ")),
        ("4", corpus.Raw(text="News.", date=day, id="a")),
        ("5", corpus.Raw(text="News.", date=day, id="c", spike="soon")),
    ]
    found = corpus.articles(lines, 100, faults)
    assert [(one.id, one.spike, one.market) for one in found] == [("a", "2026-02-04", "m"), ("http://b", day, "")]
    assert faults.counts == {"broken_record": 1, "duplicate_id": 1, "bad_date": 1}


def test_a_body_that_the_page_does_not_have_is_a_fault() -> None:
    faults = Faults({"unread_reply": "skip", "empty_text": "skip"}, Path("d.yaml"))
    pages = [
        corpus.Article(str(n), "", "2026-02-03", "Menu\nA dog barked.\nAds", "", "", f"line {n}") for n in range(4)
    ]
    replies = iter(["A dog barked. ", "The cat sat on the mat.", " \n", None])
    found = corpus.clean(pages, scripted(clean=lambda _: next(replies)), faults)
    assert [one.text for one in found] == ["A dog barked."]
    assert faults.counts == {"unread_reply": 1, "empty_text": 1}


def test_an_encyclopedia_is_followed_from_what_the_corpus_names_in_one_pass_a_step(tmp_path: Path) -> None:
    told = [("Ann", "born in", "Oak"), ("Oak", "lies in", "Elm"), ("Elm", "lies in", "Fir"), ("Yew", "lies in", "Elm")]
    told += [("Ann", "born in", "Ash"), ("oak", "", "Elm"), ("Ann", "born in", "Oak")]
    lines = [json.dumps(dict(zip(("subject", "relation", "object"), one, strict=True))) for one in told]
    (tmp_path / "r.jsonl").write_text("\n".join([*lines, "broken"]))
    passes: list[Faults] = []

    def encyclopedia(faults: Faults) -> Any:
        passes.append(faults)
        return corpus.in_files([tmp_path / "r.jsonl"])(faults)

    expected = [[], [0, 4], [0, 4, 1], [0, 4, 1, 2], [0, 4, 1, 2]]
    for steps_on, places in enumerate(expected):
        passes.clear()
        faults = Faults({"broken_record": "skip"}, Path("d.yaml"))
        found = corpus.relations(encyclopedia, ["ann"], steps_on, faults)
        assert [(one.subject, one.relation, one.object) for one in found] == [told[n] for n in places]
        assert len(passes) == steps_on
        assert faults.counts["broken_record"] == (2 if steps_on else 0)


def test_a_folder_of_files_is_read_in_order_and_an_empty_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UpkeepError, match="no files"):
        corpus.files_at(tmp_path)
    for name in ("b.jsonl", "a.jsonl.gz", "c.txt"):
        (tmp_path / name).touch()
    assert [file.name for file in corpus.files_at(tmp_path)] == ["a.jsonl.gz", "b.jsonl"]
    assert corpus.files_at(tmp_path / "c.txt") == [tmp_path / "c.txt"]


def test_days_are_written_in_english_whatever_the_locale() -> None:
    assert corpus.written("2026-02-03") == "3 February 2026"
    assert corpus.written("2025-12-31") == "31 December 2025"


# ---------------------------------------------------------------- changes and chains


def update(**given: Any) -> steps.Update:
    base = {
        "kind": "A",
        "role": "mayor of Oak",
        "before": "Ben Day",
        "after": "Ann Lee",
        "quote": "Ann Lee won.",
        "person": True,
    }
    return msgspec.convert(base | given, steps.Update)


def axes(text: str, *updates: steps.Update) -> tuple[list[Candidate], Counter[str]]:
    left = Counter[str]()
    made = tiny_corpus(text, "Other news. Ann Lee won.")
    given = iter([list(updates), list(updates[:1])])
    return temp_upd(made, scripted(updates=lambda _: next(given)), left), left


def test_a_new_holder_gives_four_questions_and_a_new_value_two() -> None:
    text = "Ann Lee won. She was a judge of Elm. The toll of Oak is 7."
    prior = {"prior": "judge of Elm", "prior_quote": "She was a judge of Elm."}
    value = update(kind="B", role="the toll of Oak", before="5", after="7", quote="The toll of Oak is 7.")
    found, left = axes(text, update(**prior), value)
    assert [(one.question, one.answers, one.outdated) for one in found] == [
        ("As of 1 February 2026, who is the mayor of Oak?", ("Ann Lee",), ("Ben Day",)),
        ("As of 1 February 2026, is Ben Day still the mayor of Oak?", ("no",), ("yes",)),
        ("As of 1 February 2026, who replaced Ben Day as the mayor of Oak?", ("Ann Lee",), ()),
        ("Apart from being the mayor of Oak, what is Ann Lee known for?", ("judge of Elm",), ()),
        ("As of 1 February 2026, what is the toll of Oak?", ("7",), ("5",)),
        ("As of 1 February 2026, is the toll of Oak still 5?", ("no",), ("yes",)),
    ]
    assert left == {"temp_upd, told before": 1}


def test_a_prior_role_that_the_article_does_not_tell_is_not_asked_for() -> None:
    made_up = update(prior="judge of Elm", prior_quote="She was a judge of Elm.")
    found, _ = axes("Ann Lee won.", made_up)
    assert [one.stratum for one in found] == ["temp_upd_forward", "temp_upd_negation", "temp_upd_backward"]


def test_a_change_without_a_change_or_without_its_words_is_left_out() -> None:
    found, left = axes("Ann Lee won.", update(before="ann lee!"), update(quote="Ben lost."), update(role=" "))
    assert found == []
    assert left == {"temp_upd, nothing changed": 3, "temp_upd, quote not in the article": 1}


def link(
    subject: str, relation: str, object: str, day: str = "", article: int | None = 0, before: str | None = None
) -> Link:
    return Link(
        subject, relation, object, f"{relation} of {subject}: {object}", day, article if day else None, (0,), before
    )


def test_a_claim_whose_answer_does_not_fit_what_was_changed_is_left_out() -> None:
    claims = [
        steps.Claim("Did Ann win?", "yes", "nothing", "ann won"),
        steps.Claim("Did Ben win?", "no", "entity", "Ann won."),
        steps.Claim("Did Kim win?", "yes", "entity", "Ann won."),
        steps.Claim("Did Zed win?", "no", "nothing", "Ann won."),
        steps.Claim("Did Ann lose?", "no", "relation", "Ann lost."),
    ]
    left = Counter[str]()
    found = dir_acq(tiny_corpus("Ann won."), scripted(claims=lambda _: claims), left)
    assert [(one.question, one.stratum) for one in found] == [
        ("Did Ann win?", "dir_acq_yes"),
        ("Did Ben win?", "dir_acq_no"),
    ]
    assert left == {"dir_acq, answer against what was changed": 2, "dir_acq, quote not in the article": 1}


def test_the_graph_knows_what_held_when() -> None:
    graph = Graph(
        [
            link("Oak", "mayor", "Zed"),
            link("Oak", "mayor", "Ben", "2026-02-01", 0),
            link("Oak", "mayor", "Ann", "2026-02-10", 1, before="Ben"),
            link("oak", "Mayor", "ann", "2026-02-20", 2),
            link("Elm", "child", "Kim"),
            link("Elm", "child", "Lee"),
            link("Fir", "seat", "Oak", "2026-02-05", 3, before="Elm"),
            link("Ash", "seat", "Oak", "2026-02-05", 3),
            link("Ash", "seat", "Elm", "2026-02-05", 4),
        ]
    )

    def at(subject: str, relation: str, before: str | None = None) -> tuple[str, int | None] | None:
        found = graph.at((subject, relation), before)
        return found and (found.object, found.article)

    assert at("oak", "mayor") == ("Ann", 1)  # the article that tells of the change, not its echo
    assert at("oak", "mayor", "2026-02-10") == ("Ben", 0)
    assert at("oak", "mayor", "2026-02-01") == ("Zed", None)
    assert at("elm", "child") is None
    assert at("fir", "seat", "2026-02-05") == ("Elm", 3)
    assert at("ash", "seat") is None
    assert at("ash", "seat", "2026-02-05") is None
    assert at("nobody", "mayor") is None


def test_a_value_that_comes_back_rests_on_the_article_that_brought_it_back() -> None:
    days = ("2026-02-01", "2026-02-02", "2026-02-03")
    graph = Graph([link("Oak", "mayor", who, day, n) for n, (who, day) in enumerate(zip("ABA", days, strict=True))])
    found = graph.at(("oak", "mayor"))
    assert found is not None
    assert (found.object, found.article) == ("A", 2)


def test_chains_have_a_fact_of_the_corpus_no_place_twice_and_their_number_of_hops() -> None:
    rng = Random(0)
    nodes = [f"N{n}" for n in range(30)]
    links = [link(node, f"r{n}", rng.choice(nodes)) for node in nodes for n in range(3)]
    links += [link(node, "c", rng.choice(nodes), "2026-02-01", n) for n, node in enumerate(nodes[:10])]
    graph = Graph(links)
    for hops in (2, 3, 4):
        paths = graph.paths(hops, 8, Random(1))
        assert paths == graph.paths(hops, 8, Random(1))
        assert len({path.asked for path in paths}) == len(paths) > 10
        for path in paths:
            assert len(path.links) == hops
            assert any(one.article is not None for one in path.links)
            assert len({path.links[0].subject, *path.nodes}) == hops + 1
            for one, following in itertools.pairwise(path.links):
                assert one.object == following.subject


def test_a_change_taken_back_and_the_time_before_it_are_two_things() -> None:
    graph = Graph(
        [
            link("Fir", "seat", "Oak", "2026-02-10", 1, before="Elm"),
            link("Oak", "mayor", "Ann"),
            link("Elm", "mayor", "Ben", "2026-02-01", 0),
            link("Elm", "mayor", "Kim", "2026-02-20", 2, before="Ben"),
            link("Yew", "seat", "Oak", "2026-02-10", 3),
        ]
    )
    paths = {path.links[0].subject: path for path in graph.paths(2, 8, Random(0))}
    assert paths["Fir"].answer == "Ann"
    undone, earlier = graph.undone(paths["Fir"]), graph.earlier(paths["Fir"])
    assert undone is not None
    assert earlier is not None
    assert (undone.answer, earlier.answer) == ("Kim", "Ben")
    assert undone.changed == earlier.changed == 0
    assert graph.undone(paths["Yew"]) is graph.earlier(paths["Yew"]) is None
    assert Chain(paths["Fir"].links).article == 1


def test_the_time_before_a_change_is_not_asked_about_where_no_article_tells_of_it() -> None:
    links = [
        link("Fir", "seat", "Elm"),
        link("Fir", "seat", "Oak", "2026-02-20", 2),
        link("Oak", "mayor", "Ann", "2026-02-10", 1, before="Zed"),
        link("Elm", "mayor", "Ben"),
    ]
    for told, answer in ((links, None), ([*links[:3], link("Elm", "mayor", "Ben", "2026-02-01", 0)], "Ben")):
        graph = Graph(told)
        path = next(path for path in graph.paths(2, 8, Random(0)) if path.links[0].subject == "Fir")
        assert path.answer == "Ann"
        earlier = graph.earlier(path)
        assert (earlier and earlier.answer) == answer


def test_a_composed_question_that_names_its_chain_or_a_false_quote_is_left_out() -> None:
    made = tiny_corpus("Fir sits in Oak. Ann leads Oak. Ben is of Ann.")
    facts = [
        ("Fir", "seat", "Oak", "Fir sits in Oak"),
        ("Oak", "mayor", "Ann", "Ann leads Oak"),
        ("Ann", "son", "Ben", "Ben is of Ann"),
    ]
    replies = iter(
        [
            steps.Composed("Who is the mayor of Oak, seat of Fir?"),
            steps.Composed("Who leads the seat of the tree?", ("Fir is a tree.",)),
            steps.Composed("Who is the son of the mayor of the seat of Fir?"),
        ]
    )
    helper = scripted(facts=lambda _: [steps.FactReply(*fact) for fact in facts], compose=lambda _: next(replies))
    left = Counter[str]()
    found = compositions.comp_rel(made, lambda _: [], helper, {2: 5, 3: 5, 4: 5}, 8, Random(0), left, FORGIVING)
    assert [(one.stratum, one.answers) for one in found] == [("comp_rel_3hop", ("Ben",))]
    assert left == {
        "comp_rel, the question names what lies on the chain": 1,
        "comp_rel, quote not in the articles": 1,
    }


def test_answers_that_name_one_event_become_one_question_and_its_salience() -> None:
    made = tiny_corpus("A flood came.", "The flood stayed.", "A strike began.")
    events = {
        "A flood came.": ("Oak flood", "A flood came."),
        "The flood stayed.": ("Oak flood", "The flood stayed."),
        "A strike began.": ("Elm strike", "A strike began."),
    }

    def reply(spike: steps.Spike) -> list[steps.Event]:
        answer, quote = events[spike.passages[0]]
        return [
            steps.Event(f"What happened {spike.date}?", answer, quote),
            steps.Event("Made up?", "Nothing", "Never told."),
        ]

    def embed(texts: Sequence[str]) -> np.ndarray:
        return np.array([[1.0, 0.0] if "flood" in text else [0.0, 1.0] for text in texts], dtype=np.float32)

    left = Counter[str]()
    found, clusters = imp_rel(made, scripted(events=reply), embed, 0.82, left)
    assert [(one.question, one.slices["salience"]) for one in found] == [
        ("What happened 1 February 2026?", "salience_2_4"),
        ("What happened 3 February 2026?", "salience_1"),
    ]
    assert [(one.answer, one.articles, one.size) for one in clusters] == [
        ("Oak flood", (0, 1), 2),
        ("Elm strike", (2,), 1),
    ]
    assert left == {"imp_rel, quote not in the articles": 3}


# ---------------------------------------------------------------- requests, determinism, training


def test_every_request_is_put_into_words_and_every_reply_can_be_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Counter[str]()
    ask = assistant.Scripted.ask

    def spying(self: assistant.Scripted, step: Any, given: Sequence[Any], trial: int = 0) -> list[Any]:
        replies = ask(self, step, given, trial)
        for one, reply in list(zip(given, replies, strict=True))[:20]:
            prompt = step.prompt(one)
            for name in one.__struct_fields__:
                value = getattr(one, name)
                if isinstance(value, str) and name not in ("strategy", "kind", "changed", "market"):
                    assert value in prompt, (step.name, name)
                if name == "passages":
                    assert all(passage in prompt for passage in value)
            said = reply if isinstance(reply, str) else f"Here it is: {msgspec.json.encode(reply).decode()} Done."
            assert assistant.read_reply(said, step.reply) == reply
        seen[step.name] += len(given)
        return replies

    monkeypatch.setattr(assistant.Scripted, "ask", spying)
    build(tmp_path, MINI)
    defined = {step.name for step in vars(steps).values() if isinstance(step, assistant.Step)}
    assert seen.keys() == defined


def test_building_twice_gives_the_same_and_another_seed_another(tmp_path: Path, mini: store.Dataset) -> None:
    again = build(tmp_path / "again", MINI)
    assert again.card.content == mini.card.content
    other = build(tmp_path / "other", MINI, options={"seed": 1})
    assert other.card.content != mini.card.content


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("towns", [6, 9, 11])
def test_worlds_of_every_size_can_be_built(tmp_path: Path, seed: int, towns: int) -> None:
    found = build(tmp_path, MINI, options={"seed": seed, "towns": towns})
    assert "left out: comp_rel, wrong with the article" not in found.card.statistics
    assert answered_from_the_documents(reader_of(found), joined(found))
    assert len(found.card.slices["family"]) == 5
    assert not store.validate(tmp_path / "out" / MINI).faults


def test_a_world_to_train_on_shares_no_name_and_keeps_what_was_before() -> None:
    rng = Random(3)
    trained = synthetic.make(rng, names.Names(rng, held_out=False), 10)
    mine = {word for kind in trained.things.values() for name in kind for word in name.split()}
    evaluated = {word for kind in mini_again()[0].things.values() for name in kind for word in name.split()}
    assert not mine & evaluated
    for change in trained.changes:
        assert trained.before[change.subject, change.relation] == change.before
        assert trained.at(change.subject, change.relation) == change.after


def test_a_world_of_another_size_is_refused() -> None:
    rng = Random(0)
    with pytest.raises(UpkeepError, match="size"):
        synthetic.make(rng, names.Names(rng), 12)


def test_files_without_an_assistant_are_refused(tmp_path: Path) -> None:
    data = {f"{FULL}.articles": str(articles_file(tmp_path / "articles.jsonl"))}
    with pytest.raises(UpkeepError, match="no assistant"):
        build(tmp_path / "repository", FULL, data=data, options={"assistant": None})


def test_articles_that_are_not_named_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UpkeepError, match="from files of your own"):
        build(tmp_path, FULL)


def test_nothing_usable_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "articles.jsonl").write_text('{"id": "a", "text": ""}\n')
    monkeypatch.setattr(annotator, "hire", lambda context, model: nullcontext(mini_program()))
    data = {f"{FULL}.articles": str(tmp_path / "articles.jsonl")}
    with pytest.raises(UpkeepError, match="no usable article"):
        build(tmp_path / "repository", FULL, data=data, options={"embedder": "lsa"})


def test_evidence_is_of_the_month_of_its_article(mini: store.Dataset, asked: list[dict[str, Any]]) -> None:
    days = dict(mini.documents.select("document_id", "timestamp").iter_rows())
    for one in asked:
        if one["slice_family"] in ("dir_acq", "temp_upd", "imp_rel"):
            assert {days[id][:7] for id in one["evidence"]} == {one["slice_month"]}
    assert mini.gold.filter(pl.col("slice_month") == "").is_empty()


def test_neither_ids_nor_their_order_tell_the_family(asked: list[dict[str, Any]]) -> None:
    assert all(re.fullmatch(r"q\d{4}", one["question_id"]) for one in asked)
    half = Counter(one["slice_family"] for one in asked[: len(asked) // 2])
    whole = Counter(one["slice_family"] for one in asked)
    assert all(0.2 < half[family] / whole[family] < 0.8 for family in whole)
