"""World News: articles and an encyclopedia are read from files, and what is wrong in them is named and counted."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from conftest import ROOT, spec_of
from imprint_news import corpus
from news_worlds import (
    FORGIVING,
    FULL,
    MINI,
    articles_file,
    catalog,
    mini,
    mini_again,
    mini_program,
    scripted,
    tiny_corpus,
)
from upkeep import card_numbers
from upkeep.building import annotator, describing, leaks, store
from upkeep.building.build import build_dataset
from upkeep.building.reading import Faults
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError

__all__ = ["mini"]


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
