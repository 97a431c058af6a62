"""World News: what is asked can be read in the articles, and the same articles always give the same questions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import polars as pl
import pytest

from imprint_news import compositions, steps, synthetic
from imprint_news.papers import JUNK_ABOVE, JUNK_BELOW, pages
from imprint_news.updates import AXES
from news_worlds import FULL, MINI, articles_file, build, mini, mini_again, mini_program
from upkeep.building import annotator, assistant, leaks, names, store
from upkeep.errors import UpkeepError

__all__ = ["mini"]


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
