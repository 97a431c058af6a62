"""The pages of cells: every answer is there with all that stands behind it, whatever it says, and in bounds."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import polars as pl
import pytest

from reported import Page, pages_of, require_whole
from scored_cells import fresh, line, write_cell
from test_baselines import by_form_alone, lines
from test_replay import CELLS, CLOSED, SEARCHED, done
from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.contract import Retrieved
from upkeep.errors import UpkeepError
from upkeep.gateway.calls import Calls
from upkeep.grading.scores import score_suite
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.operations.diff.comparing import difference
from upkeep.operations.diff.terminal import lines as lines_of
from upkeep.published import predictions
from upkeep.report import answers, beside, page, site
from upkeep.report.shown import Shown

__all__ = ["done", "fresh"]
TAGS = "</script><script>alert(1)</script><img src=x onerror=alert(2)> ]]>"
HOSTILE = TAGS + "\u2028\u202e\x00'\"`${1}` &amp; 模型"


def folder_of(catalog: Catalog, suite: str) -> Path:
    return Layout(catalog.results).report(suite).parent


def put(path: Path) -> Any:
    """What a script of data gives a page."""
    found = re.fullmatch(r'upkeep\.put\(("(?:[^"\\]|\\.)*"), (.*)\);\n', path.read_text("utf-8"), re.S)
    assert found is not None
    place = json.loads(found[1])
    assert path.as_posix().endswith(f"/{place}.js"), "a page waits for it under this name"
    return json.loads(found[2])


class Told:
    """The data of a cell's page, as the page reads them."""

    def __init__(self, folder: Path, cell: Cell) -> None:
        self.folder = folder / "cells" / str(cell)
        self.index = put(self.folder / "index.js")
        files = sorted(self.folder.glob("answers-*.js"), key=lambda path: int(path.stem.partition("-")[2]))
        self.answers = [one for file in files for one in put(file)]
        files = sorted(self.folder.glob("texts-*.js"), key=lambda path: int(path.stem.partition("-")[2]))
        self.texts = [text for file in files for text in put(file)]

    def text(self, ref: Any) -> Any:
        return self.texts[ref] if isinstance(ref, int) else ref

    def row(self, name: str, row: int) -> Any:
        """A value of the table."""
        return self.index["known"][name][self.index["rows"][name][row]]


@pytest.fixture(scope="module")
def reported(done: Path, tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    shutil.copytree(done, root := tmp_path_factory.mktemp("reported") / "upkeep", symlinks=True)
    page.render(Catalog(root), score_suite(Catalog(root), "small"))
    return Catalog(root)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_the_page_of_a_cell_has_every_answer_with_the_very_prompt_and_reply(reported: Catalog, cell: Cell) -> None:
    told, shown, calls = (
        Told(folder_of(reported, "small"), cell),
        Shown.read(reported, str(cell)),
        Calls(reported, cell),
    )
    own = list(predictions(reported, cell))
    assert len(told.answers) == len(own) == len(told.index["rows"]["question"]) > 20
    verdicts = {(row["probe_id"], row["trial"]): row for row in shown.graded.iter_rows(named=True)}
    gold = {row["probe_id"]: row for row in shown.gold.iter_rows(named=True)}
    for place, (prediction, one) in enumerate(zip(own, told.answers, strict=True)):
        graded, key = verdicts[prediction.probe_id, prediction.trial], gold[prediction.probe_id]
        question, position = told.index["questions"][told.index["rows"]["question"][place]], prediction.probe_id
        assert position == f"{question[0]}@{told.index['rows']['position'][place]}"
        assert told.index["verdicts"][told.index["rows"]["verdict"][place]] == graded["verdict"]
        assert told.row("answer", place) == (graded["answer"] or "")[:300]
        assert (one["right"], one["outdated"], one["evidence"]) == (key["answers"], key["outdated"], key["evidence"])
        assert told.text(one["response"]) == prediction.response and told.text(one["answer"]) == graded["answer"]
        assert [tuple(hit) for hit in one["retrieved"]] == [(h.rank, h.score, h.id) for h in prediction.retrieved]
        assert len(one["calls"]) == len(prediction.calls) > 0
        for call, name in zip(one["calls"], prediction.calls, strict=True):
            found = calls.find(name)
            assert found is not None and found.messages
            assert [(role, [told.text(part) for part in parts]) for role, parts in call["messages"]] == found.messages
            assert told.text(call["answer"]) == found.answer
    assert told.index["retrieves"] == (cell == SEARCHED)


def test_the_page_of_two_cells_says_of_them_what_diff_says(reported: Catalog) -> None:
    folder, shown = folder_of(reported, "small"), [cell for cell in CELLS if cell.dataset == SEARCHED.dataset]
    for cell, other in itertools.permutations(shown, 2):
        told = put(folder / f"cells/{cell}/paired.js")
        assert set(told) == {str(one) for one in shown} - {str(cell)}
        printed = [line.strip() for line in lines_of(difference(reported, str(cell), str(other), 0))]
        assert len(told[str(other)]) == 3 and set(told[str(other)]) <= set(printed)
    assert len(shown) > 1


def test_an_answer_that_is_not_right_says_where_it_went_wrong_as_far_as_that_is_known(reported: Catalog) -> None:
    told = Told(folder_of(reported, "small"), SEARCHED)
    causes = Counter[str]()
    for place, one in enumerate(told.answers):
        verdict = told.index["verdicts"][told.index["rows"]["verdict"][place]]
        cause = told.index["causes"][told.index["rows"]["cause"][place]]
        retrieved = {name for _, _, name in one["retrieved"]}
        if verdict == "right":
            assert cause == ""
        elif verdict in ("failed", "unread"):
            assert cause == {"failed": "failed", "unread": "reading"}[verdict]
        elif one["evidence"] and retrieved and not set(one["evidence"]) <= retrieved:
            assert cause == "retrieval"
        else:
            assert cause == ("reasoning" if one["evidence"] and retrieved and not one["context"][1] else "")
        causes[cause] += 1
    assert len(causes) > 1
    closed = Told(folder_of(reported, "small"), CLOSED).index
    assert not {closed["causes"].index(one) for one in ("retrieval", "reasoning")} & set(closed["rows"]["cause"])


def test_documents_that_had_arrived_lead_to_their_text(reported: Catalog) -> None:
    folder = folder_of(reported, "small")
    documents = put(folder / "datasets/oaks_babi_mini/documents.js")
    texts = [text for file in sorted((folder / "datasets/oaks_babi_mini").glob("texts-*.js")) for text in put(file)]
    for one in Told(folder, SEARCHED).answers:
        names = [name for _, name, _ in documents["streams"][one["stream"]][: one["arrived"]]]
        assert {name for _, _, name in one["retrieved"]} <= set(names) and set(one["evidence"]) <= set(names)
    assert all(isinstance(texts[ref], str) for stream in documents["streams"].values() for _, _, ref in stream)


def test_the_pages_hold_together_and_numbers_lead_to_their_cells(reported: Catalog) -> None:
    require_whole(folder_of(reported, "small"))
    pages = pages_of(reported.root, "small")
    links = Page(pages["index.html"]).links
    assert {f"cells/{cell}/index.html" for cell in CELLS} <= set(links)
    assert "methods/rag_bm25.html" in links and "datasets/oaks_babi_mini.html" in links
    assert f'data-cells="[&#34;{CLOSED}&#34;]"' in pages[f"cells/{CLOSED}/index.html"]


def test_what_has_not_changed_is_not_looked_up_again(reported: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("looked up")

    folder = folder_of(reported, "small")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    monkeypatch.setattr(Calls, "find", never)
    catalog = Catalog(reported.root)
    page.render(catalog, score_suite(catalog, "small"))
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


# ---------------------------------------------------------------- hostile text, many cells

CARD = {"label": "Many", "papers": [], "summary": f"S {TAGS}", "reference": "r", "settings": ["k"], "model": False}


def many(root: Path, variants: int, said: str = "Paris") -> Catalog:
    """A suite of as many cells, all published, whose dataset, method and answers say what they like."""
    by_form_alone(root)
    stream = [{"id": f"d{n}", "stream": "s", "text": f"{HOSTILE} document {n} {'x' * 300}"} for n in range(5)]
    (root / "datasets/news/documents.jsonl").write_text(lines(stream))
    asked = [
        {"question": f"{n}? {HOSTILE}", "stream": "s", "answers": ["</script><b>Paris", "Paris"]} for n in range(10)
    ]
    (root / "datasets/news/questions.jsonl").write_text(lines(asked))
    (root / "methods").unlink()
    (root / "methods/many").mkdir(parents=True)
    card = CARD | {"variants": {f"k{k}": {"k": k} for k in range(1, variants + 1)}}
    (root / "methods/many/method.yaml").write_bytes(msgspec.yaml.encode(card))
    (root / "methods/many/README.md").write_text(f"# t\n\n{HOSTILE}\n\n[in](../x.md) [out](https://example.org/a)\n")
    (root / "config/suites").mkdir()
    (root / "config/suites/own.yaml").write_text(
        "{label: Own, summary: s, papers: [], cells: [{datasets: [news], methods: [many], models: [none]}]}"
    )
    catalog = Catalog(root)
    layout = Layout(catalog.results)
    build_dataset(catalog, "news", layout.dataset("news"))
    probes = pl.read_parquet(layout.dataset("news") / "probes.parquet")["probe_id"].to_list()
    hits = [Retrieved(id="d1", score=1.5, rank=1)]
    for k in range(1, variants + 1):
        cell = Cell("news", "many", f"k{k}", "none")
        write_cell(layout.cell(cell), [line(probe, said, retrieved=hits) for probe in probes], cell=cell)
    return Catalog(root)


@pytest.mark.usefixtures("fresh")
def test_hostile_text_is_text_on_every_page(tmp_path: Path) -> None:
    catalog = many(tmp_path, 1, HOSTILE)
    page.render(catalog, score_suite(catalog, "own"))
    folder = folder_of(catalog, "own")
    require_whole(folder)
    for place, text in pages_of(tmp_path, "own").items():
        tags = Page(text).tags
        loads = 2 if place.startswith(("cells/", "compare")) else int("sorts" in text)
        assert tags.count("script") == loads and "img" not in tags, place
        assert "<script>" not in text and "onerror=alert" not in re.sub(r"&lt;img.*?&gt;", "", text)
    scripts = [path for path in folder.rglob("*.js") if path.parent != folder]
    assert len(scripts) >= 4
    assert all(b"<" not in path.read_bytes() and put(path) is not None for path in scripts)
    told = Told(folder, Cell("news", "many", "k1", "none"))
    assert all(told.text(one["response"]) == HOSTILE for one in told.answers)
    assert 'href="https://example.org/a"' in pages_of(tmp_path, "own")["methods/many.html"]
    for name in ("report.js", "answer.js", "tables.js"):
        code = (folder / name).read_text()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|fetch\(", code)


@pytest.mark.usefixtures("fresh")
def test_the_report_of_many_cells_is_small_and_has_the_answers_that_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, folder = many(tmp_path, 60), tmp_path / "results/report/own"
    scores = score_suite(catalog, "own")

    def with_answers(*named: str) -> list[str]:
        page.render(catalog, scores, named)
        return sorted(
            path.parent.relative_to(folder / "cells").parts[2] for path in folder.rglob("cells/*/*/*/*/index.js")
        )

    assert len(with_answers()) == 60
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert size < 60 * 60_000, "of a cell with ten answers, a page and its data"
    monkeypatch.setattr(page, "MOST", 599)
    assert len(with_answers("none")) == 0
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert size < 60 * 12_000
    assert with_answers() == [] and "./upkeep report own --answers CELL" in pages_of(tmp_path, "own")["index.html"]
    assert with_answers("news/many/k7/none") == ["k7"]
    assert with_answers() == ["k7"], "until they are asked for no more"
    assert with_answers("news/many/k9/none") == ["k7", "k9"]
    assert len(with_answers("all")) == 60
    with pytest.raises(UpkeepError, match="no complete cell of the report"):
        with_answers("news/many/k61/none")


@pytest.mark.usefixtures("fresh")
def test_settings_stand_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    catalog = many(tmp_path, 11)
    page.render(catalog, score_suite(catalog, "own"))
    shown = pages_of(tmp_path, "own")["index.html"]
    assert re.findall(r'<span class="muted">k=(\d+)</span>', shown) == [str(k) for k in range(1, 12)]
    variants = pages_of(tmp_path, "own")["methods/many.html"]
    assert re.findall(r'<td class="stub">k(\d+)</td>', variants) == [str(k) for k in range(1, 12)]


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(
    ("module", "reader"), [(beside, "read_key"), (answers, "read_table")], ids=["key", "documents"]
)
def test_cells_whose_key_or_documents_cannot_be_read_have_no_answers_and_the_reason_and_the_report_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, reader: str
) -> None:
    catalog = many(tmp_path, 2)
    scores = score_suite(catalog, "own")

    def unreadable(of: object, name: str) -> None:
        raise UpkeepError("the key of news is broken", remedy="mend it")

    monkeypatch.setattr(module, reader, unreadable)
    page.render(catalog, scores)
    require_whole(folder_of(catalog, "own"))
    pages = pages_of(tmp_path, "own")
    for k in (1, 2):
        assert "the key of news is broken" in pages[f"cells/news/many/k{k}/none/index.html"]
    beside.write_pairs(catalog, "news", {}, site.Site(tmp_path / "empty"))  # asks nothing of the key


@pytest.mark.usefixtures("fresh")
def test_what_an_earlier_version_left_where_suites_have_their_folders_is_removed(tmp_path: Path) -> None:
    catalog = many(tmp_path, 1)
    layout = Layout(catalog.results)
    scores = layout.scores("own").parent
    left = [layout.tables("own") / "table_4.csv", layout.figures("own") / "figure_1.svg"]
    left += [scores.parent / name for name in ("scores.parquet", "scores.json", "resamples/news/many.npy")]
    kept = [layout.tables("own") / "paper/table_4.csv", layout.scores("other")]
    for path in (*left, *kept):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("old")
    page.render(catalog, score_suite(catalog, "own"))
    assert not any(path.exists() for path in left) and not (scores.parent / "resamples").exists()
    assert all(path.is_file() for path in (*kept, layout.scores("own"), layout.scores_record("own")))
