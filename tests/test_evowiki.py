"""Facts at three dates become stable, evolved and uncharted questions whose answers are in the pages, and no others."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from conftest import spec_of
from evowiki import popularity, synthetic
from evowiki_worlds import asked, built, mini
from upkeep.building import leaks, store
from upkeep.building.names import Names, is_held_out
from upkeep.errors import UpkeepError

__all__ = ["mini"]


# ---------------------------------------------------------------- the built dataset


@pytest.mark.parametrize(
    ("views", "group"),
    [
        (None, "unknown"),
        (0, "0_1"),
        (99, "0_1"),
        (100, "2"),
        (9999, "3"),
        (10_000, "4"),
        (10**5, "5_6"),
        (10**9, "5_6"),
    ],
)
def test_popularity_is_the_magnitude_of_the_views(views: int | None, group: str) -> None:
    assert popularity(views) == f"popularity_{group}"


def test_the_mini_dataset_is_small_varied_and_of_all_slices(mini: store.Dataset) -> None:
    rows = asked(mini)
    assert 150 <= len(rows) < 300
    assert len(mini.documents) <= 60
    assert mini.documents["tokens"].max() <= 128  # type: ignore[operator]
    for name, values in {
        "level": {"stable", "evolved", "uncharted"},
        "hops": {"single_hop", "multi_hop"},
        "hop_number": {"1", "2", "3"},
        "changed": {"before_cutoff", "after_cutoff", "none"},
        "popularity": {f"popularity_{group}" for group in ("0_1", "2", "3", "4", "5_6")},
    }.items():
        assert set(rows[f"slice_{name}"]) == values
    assert any(len(answers) > 1 for answers in rows["answers"])
    first = Counter(answers[0] for answers in rows["answers"])
    assert first.most_common(1)[0][1] < 0.2 * len(rows)
    assert len(mini.pairs) > 100


def test_the_mini_datasets_old_state_is_wrong_for_what_evolved_and_right_for_what_did_not(mini: store.Dataset) -> None:
    rng = Random("evowiki 0")
    states = synthetic.make(rng, Names(rng, held_out=True), synthetic.Sizes()).states
    rows = {row["question"]: row for row in asked(mini).filter(slice_hop_number="1").iter_rows(named=True)}
    for time, state in enumerate(states):
        known = {pair.question: pair.answer for pair in synthetic.known(state)}
        for question, row in rows.items():
            if row["slice_level"] == "uncharted":
                assert (question in known) == (time == 2)
                continue
            right = leaks.tells(known[question], row["answers"])
            turn = {"none": 0, "before_cutoff": 1, "after_cutoff": 2}[row["slice_changed"]]
            assert right == (time >= turn), (question, time)
            assert right or leaks.tells(known[question], row["outdated"])


def test_the_worlds_generator_draws_from_either_half_of_the_names() -> None:
    rng = Random(7)
    made = synthetic.make(rng, Names(rng, held_out=False), synthetic.Sizes(people=6, newcomers=2, places=3))
    assert len(made.kinds) == 6 + 2 + 3 + 3
    towns = [name for name, kind in made.kinds.items() if kind == "towns"]
    assert not any(is_held_out(town) for town in towns)


def test_the_small_worlds_questions_can_be_rewritten(tmp_path: Path) -> None:
    data = built(tmp_path, "evowiki_mini", options={"rewrite": True, "pairs": False})
    assert all(question.startswith("Please name the ") for question in data.probes["question"])
    assert not data.pairs


def test_the_same_options_give_the_same_bytes_and_another_seed_another_world(
    mini: store.Dataset, tmp_path: Path
) -> None:
    again = built(tmp_path / "a", "evowiki_mini")
    assert again.card.content == mini.card.content
    assert built(tmp_path / "b", "evowiki_mini", options={"seed": 1}).card.content != mini.card.content


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"hops": 4}, "wrong number of hops"),
        ({"hops": 0}, "wrong number of hops"),
        ({"cutoff": "2020-01-01"}, "dates out of order"),
        ({"most": {"stable": [1]}}, "wrong limits"),
        ({"most": {"fresh": [1, 1, 1]}}, "wrong limits"),
        ({"most": {"stable": [0, 0, 0], "evolved": [0, 0, 0], "uncharted": [0, 0, 0]}}, "no question comes out"),
        ({"source": "wikidata"}, "no assistant"),
        ({"source": "wikidata", "pairs": False}, "is built from files of your own"),
        ({"colour": "red"}, "unknown field"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], problem: str, tmp_path: Path) -> None:
    with pytest.raises(UpkeepError, match=problem):
        built(tmp_path, "evowiki_mini", options=options)


# ---------------------------------------------------------------- Wikidata and Wikipedia, through the builder


def wikidata_files(folder: Path) -> dict[str, str]:
    """Three dumps in the official form, three Wikipedias in JSON lines, views, and pages to distract."""

    def item(id: str, label: str, claims: Mapping[str, str]) -> dict[str, Any]:
        def claim(relation: str, object: str) -> dict[str, Any]:
            value = {"value": {"entity-type": "item", "id": object}, "type": "wikibase-entityid"}
            snak = {"snaktype": "value", "property": relation, "datavalue": value}
            return {"id": f"{id}${relation}", "rank": "normal", "type": "statement", "mainsnak": snak}

        return {
            "id": id,
            "type": "item",
            "labels": {"en": {"language": "en", "value": label}},
            "claims": {relation: [claim(relation, object)] for relation, object in claims.items()},
            "sitelinks": {"enwiki": {"site": "enwiki", "title": label}},
        }

    data: dict[str, str] = {}
    employers = {"init": ("Q10", "Acme"), "cutoff": ("Q10", "Acme"), "current": ("Q11", "Bolt")}
    for time, (firm, name) in employers.items():
        person = {"P31": "Q5"}
        items = [
            item("Q1", "Ann Abel", person | {"P108": firm, "P26": "Q2"}),
            item("Q2", "Bob Abel", person | {"P26": "Q1"}),
            item("Q10", "Acme", {}),
            item("Q11", "Bolt", {}),
        ]
        dump = folder / f"wikidata-{time}.json"
        dump.write_text("[\n" + ",\n".join(json.dumps(one) for one in items) + "\n]\n")
        pages = {"Ann Abel": f"Ann works at {name}. She married Bob Abel.", "Bob Abel": "Bob is married to Ann Abel."}
        wiki = folder / f"wikipedia-{time}.jsonl"
        wiki.write_text("".join(json.dumps({"title": t, "text": x}) + "\n" for t, x in pages.items()))
        data |= {f"evowiki.wikidata_{time}": str(dump), f"evowiki.wikipedia_{time}": str(wiki)}
    others = folder / "others.jsonl"
    others.write_text("".join(json.dumps({"title": f"Page {n}", "text": "Nothing."}) + "\n" for n in range(9)))
    (folder / "views.csv").write_text("title,views\nAnn_Abel,1234\n")
    return data | {"evowiki.distractors": str(others), "evowiki.views": str(folder / "views.csv")}


def test_dumps_of_wikidata_and_wikipedia_become_questions(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    data = built(tmp_path / "r", "evowiki", options={"distractors": 3}, data=wikidata_files(tmp_path / "data"))
    rows = {row["question"]: row for row in asked(data).iter_rows(named=True)}
    assert set(rows) == {
        "What is the employer of Ann Abel?",
        "Who is the spouse of Ann Abel?",
        "Who is the spouse of Bob Abel?",
        "What is the employer of the spouse of Bob Abel?",
    }
    job = rows["What is the employer of the spouse of Bob Abel?"]
    assert (job["answers"], job["outdated"], job["slice_level"]) == (["Bolt"], ["Acme"], "evolved")
    assert job["context"] == ["Bob is married to Ann Abel.", "Ann works at Bolt."]
    assert job["slice_popularity"] == "popularity_unknown"
    assert rows["What is the employer of Ann Abel?"]["slice_popularity"] == "popularity_3"
    assert data.documents["text"][0] == "Ann Abel\nAnn works at Bolt. She married Bob Abel."
    assert len(data.documents) == 2 + 3
    assert data.card.statistics["pages added"] == 3


def test_the_large_corpus_is_the_whole_and_more_pages_beneath_the_same_questions(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    data = wikidata_files(tmp_path / "data")
    whole = built(tmp_path / "whole", "evowiki", data=data)
    large = built(tmp_path / "large", "evowiki_large", options={"distractors": 5}, data=data)
    later = ["probe_id", "position"]  # all is asked at the end, which comes later
    assert asked(large).drop(later).equals(asked(whole).drop(later))
    columns = ["document_id", "text"]
    assert large.documents.select(columns).head(len(whole.documents)).equals(whole.documents.select(columns))
    assert len(large.documents) == len(whole.documents) + 5
    one, other = (spec_of(name)["options"] for name in ("evowiki", "evowiki_large"))
    assert other == one | {"distractors": 370_000}
