"""Three dumps, pages and views become questions of every level."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from conftest import ROOT, put_dataset, spec_of
from upkeep.building import store
from upkeep.building.build import build_dataset
from upkeep.building.store import validate
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from wikidata_dumps import dump, entity, human, statement, write, xml

TIMES = ("init", "cutoff", "current")
PEOPLE, MOVED, CAME = range(100, 140), range(100, 115), range(130, 140)
"""Numbers of people: all, those whose employer changes, and those whose residence is new at the current time."""


def name(number: int) -> str:
    syllables = "ba de fi go lu ma ne po ri su".split()  # noqa: SIM905
    first, last = (syllables[number // 10 % 10] + syllables[number % 10] for number in (number, number + 57))
    return f"{first.capitalize()}n {last.capitalize()}sky"


def employer(number: int, time: str) -> int:
    """The number of an employer; half of the changes are before the cut-off, half after."""
    changed = TIMES.index(time) >= (1 if number % 2 else 2)
    return 10 + number % 5 + (5 if number in MOVED and changed else 0)


def world(folder: Path, time: str) -> dict[str, Path]:
    """The dump and the pages of one time, with something wrong in either."""
    things, pages = [], dict[str, str]()
    for n in PEOPLE:
        id, spouse = f"Q{n}", PEOPLE[0] + (n - PEOPLE[0] + 20) % len(PEOPLE)
        mine = [
            human(id),
            statement(id, "P26", f"Q{spouse}"),
            statement(id, "P108", f"Q{employer(n, time)}"),
            statement(id, "P108", "Q29", "deprecated", number=2),
            statement(id, "P19", None),
        ]
        text = f"{name(n)} works for Firm {employer(n, time)}. The spouse of {name(n)} is {name(spouse)}."
        if n in CAME and time == "current":
            mine.append(statement(id, "P551", f"Q{30 + n % 3}"))
            text += f" In spring the family went to Town {30 + n % 3}."
        things.append(entity(id, name(n), mine, name(n)))
        pages[name(n)] = text
    things += [entity(f"Q{n}", f"Firm {n}") for n in range(10, 30)]
    things += [entity(f"Q{n}", f"Town {n}") for n in range(30, 33)]
    things.append(entity("Q50", None, [human("Q50")]))
    broken = [json.dumps(things[0]).encode()[:99], json.dumps(things[1]).encode()]
    packing = {"init": "json.gz", "cutoff": "json.bz2", "current": "json"}[time]
    wikidata = dump(folder / f"{time}.{packing}", [*things[:5], *broken, *things[5:]])
    others = {f"Rain {n}": f"Rain number {n} falls on hills." for n in range(9)}
    form = {"init": "pages.xml.bz2", "cutoff": "pages.jsonl.gz", "current": "pages.parquet"}[time]
    place = folder / f"pages_{time}"
    place.mkdir()
    write(place, form, pages | others)
    if time == "init":
        redirect = xml([("Firm 10", "#REDIRECT [[Firm]]", '<ns>0</ns><redirect title="Firm" />')])
        (place / "a.xml").write_text(redirect)
    if time == "cutoff":
        (place / "z.jsonl").write_text('{"title": "Rain 0", "te\n{"title": "Rain 1", "text": "again"}\n')
    return {f"evowiki.wikidata_{time}": wikidata, f"evowiki.wikipedia_{time}": place}


def repository(folder: Path, **options: Any) -> Catalog:
    """A repository whose dataset `evowiki` reads the three times from files."""
    spec = spec_of("evowiki")
    spec["options"] |= options
    data = {key: str(path) for time in TIMES for key, path in world(folder, time).items()}
    views = folder / "views.csv"
    views.write_text("title,views\n" + "".join(f"{name(n).replace(' ', '_')},{3 * n}\n" for n in PEOPLE))
    data |= {"evowiki.views": str(views), "evowiki.distractors": data["evowiki.wikipedia_current"]}
    (folder / "config").mkdir()
    (folder / "config/config.yaml").write_text(yaml.safe_dump({"data": data}))
    put_dataset(folder, "evowiki", spec)
    (folder / "papers").symlink_to(ROOT / "papers")
    return Catalog(folder)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> store.Dataset:
    folder = tmp_path_factory.mktemp("evowiki")
    build_dataset(repository(folder, distractors=6, hops=2), "evowiki", folder / "built")
    validate(folder / "built")
    return store.load(folder / "built")


def single(built: store.Dataset, level: str) -> dict[str, tuple[list[str], list[str]]]:
    """Question -> answers and outdated answers, of one hop."""
    rows = built.probes.join(built.gold, on="probe_id").filter(
        pl.col("slice_level") == level, pl.col("slice_hop_number") == "1"
    )
    return {q: (a, o) for q, a, o in rows.select("question", "answers", "outdated").rows()}


def test_three_dumps_become_questions_of_all_levels_with_old_answers(built: store.Dataset) -> None:
    spouses = {f"Who is the spouse of {name(n)}?": ([name(100 + (n - 80) % 40)], []) for n in PEOPLE}
    settled = [n for n in PEOPLE if n not in MOVED]
    firms = {f"What is the employer of {name(n)}?": ([f"Firm {employer(n, 'current')}"], []) for n in settled}
    assert single(built, "stable") == spouses | firms
    assert single(built, "evolved") == {
        f"What is the employer of {name(n)}?": ([f"Firm {employer(n, 'current')}"], [f"Firm {employer(n, 'init')}"])
        for n in MOVED
    }
    assert single(built, "uncharted") == {
        f"What is the residence of {name(n)}?": ([f"Town {30 + n % 3}"], []) for n in CAME
    }


def test_two_hops_go_over_a_person(built: store.Dataset) -> None:
    rows = built.probes.join(built.gold, on="probe_id").filter(pl.col("slice_hop_number") == "2")
    asked = dict(rows.select("question", "answers").rows())
    n = MOVED[3]
    question = f"What is the employer of the spouse of {name((n - 100 - 20) % 40 + 100)}?"
    assert asked[question] == [f"Firm {employer(n, 'current')}"]


def test_what_is_wrong_with_the_files_is_counted_and_what_is_read_is_on_record(built: store.Dataset) -> None:
    assert built.card.faults == {"broken_record": 4, "duplicate_id": 3}
    assert any("line 7" in note for note in built.card.notes)
    names = {"init.json.gz", "cutoff.json.bz2", "current.json", "views.csv"}
    assert names | {"a.xml", "pages.xml.bz2", "pages.jsonl.gz", "z.jsonl", "pages.parquet"} == built.card.inputs.keys()


def test_distractors_stand_beside_the_golden_pages(built: store.Dataset) -> None:
    titles = built.documents["text"].str.split("\n").list.first()
    assert titles.str.starts_with("Rain").sum() == 6
    assert set(titles) >= {name(n) for n in PEOPLE}
    evidence = set(built.gold["evidence"].explode())
    rain = built.documents.filter(pl.col("text").str.starts_with("Rain"))["document_id"]
    assert not evidence & set(rain)


def test_views_give_the_popularity(built: store.Dataset) -> None:
    assert built.card.slices["popularity"].keys() == {"popularity_2"}, "300 to 417 views"


def test_the_same_files_give_the_same_dataset(built: store.Dataset, tmp_path: Path) -> None:
    card = build_dataset(repository(tmp_path, distractors=6, hops=2), "evowiki", tmp_path / "built")
    assert card.content == built.card.content


def test_a_missing_dump_is_named_with_the_line_of_the_config(tmp_path: Path) -> None:
    catalog = repository(tmp_path)
    (tmp_path / "cutoff.json.bz2").unlink()
    with pytest.raises(UpkeepError, match=r"cutoff\.json\.bz2"):
        build_dataset(catalog, "evowiki", tmp_path / "built")
