"""The page of a suite: whole without results, the same bytes each time, and why a place is empty."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

from reported import pages_of, report_of, require_whole
from scored_cells import line, manifest_of, write_cell
from table_scores import NO_SCORES, NOTHING_WAITS, OAKS, PAPER, ROOT, SPECS, frame, score
from upkeep.catalog import Catalog
from upkeep.contract import DatasetCard, Usage
from upkeep.grading.score import SCORE_SCHEMA
from upkeep.grading.scores import score_suite
from upkeep.jobs import Cell
from upkeep.report import overview, page, ran, site, tables
from upkeep.report.reference import read_reference
from upkeep.report.specs import FigureSpec, PaperSpec, TableSpec, read_paper
from upkeep.report.terminal import accuracies, outcomes, summary, told_findings
from upkeep.report.waiting import pending
from upkeep.text import duration


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.yaml").write_text("suite: mini\n")
    for name in ("methods", "datasets", "models", "papers"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "config" / "suites").mkdir()
    (tmp_path / "config" / "suites" / "mini.yaml").write_text(
        "{label: Mini <suite>, summary: s, papers: [oaks], cells: [{datasets: [oaks_babi], "
        "methods: ['null', gold], models: [none]}]}"
    )
    return Catalog(tmp_path)


def test_the_report_of_a_suite_without_results_is_whole_and_says_what_to_run(catalog: Catalog) -> None:
    page.render(catalog, score_suite(catalog, "mini"))
    require_whole(catalog.results / "report" / "mini")
    text = report_of(catalog.root, "mini")
    assert "Mini &lt;suite&gt;" in text and "<b>No cell is complete.</b>" in text
    for words in (">Release</th><th>Rebuild</th><th>Stand-in</th>", "release, to be run:", ">not run<", "at 95%"):
        assert words in text
    cell = pages_of(catalog.root, "mini")["cells/oaks_babi/gold/default/none/index.html"]
    assert "It has no scores: dataset not available" in cell and "<code>./upkeep run mini</code>" in cell
    assert {path.name for path in (catalog.results / "tables" / "mini" / "oaks").iterdir()} == {
        "claims.csv",
        "other_scores.csv",
        *(f"{name}.{kind}" for name in SPECS for kind in ("md", "tex", "csv")),
    }
    assert (catalog.results / "figures" / "mini" / "oaks" / "figure_5.svg").is_file()


def test_each_table_says_in_whose_words_models_were_asked(catalog: Catalog) -> None:
    def told(catalog: Catalog) -> dict[Path, str]:
        page.render(catalog, score_suite(catalog, "mini"))
        files = [
            catalog.results / "report/mini/papers/oaks.html",
            *(catalog.results / "tables" / "mini" / "oaks").glob("*.[mt]*"),
        ]
        return {file: file.read_text() for file in files}

    ours = told(catalog)
    assert len(ours) == 1 + 2 * len(SPECS)
    assert all(text.count("words of this suite") == 1 and "their place word for word" in text for text in ours.values())
    assert not any("Here those of" in text for text in ours.values())
    (catalog.root / "config" / "config.yaml").write_text("suite: mini\nprompts: {oaks_novel: paper.txt, prelude: x}\n")
    theirs = told(Catalog(catalog.root))
    assert theirs.keys() == ours.keys()
    assert all(re.search(r"Here those of \S+oaks\S+ are \S+paper.txt\S+\.", text) for text in theirs.values())
    assert not any("prelude" in re.sub(r"<nav.*?</nav>", "", text, flags=re.S) for text in theirs.values())


def test_the_report_is_the_same_bytes_each_time_and_nothing_else_stays_in_its_folder(catalog: Catalog) -> None:
    scores, folder = score_suite(catalog, "mini"), catalog.results / "report" / "mini"

    def written() -> dict[str, bytes]:
        page.render(catalog, scores)
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    first = written()
    (folder / "cells" / "gone").mkdir()
    (folder / "cells" / "gone" / "index.html").write_text("of a cell that is no longer there")
    assert written() == first and not (folder / "cells" / "gone").exists()


def test_each_suite_has_a_report_of_its_own_and_one_page_leads_to_all(catalog: Catalog) -> None:
    for name in ("mini", "other"):
        suite = catalog.root / "config/suites" / f"{name}.yaml"
        suite.write_text(f"{{label: {name}, summary: s, papers: [], cells: []}}")
        page.render(Catalog(catalog.root), score_suite(Catalog(catalog.root), name))
    leads = (catalog.results / "report" / "index.html").read_text()
    assert re.findall(r'href="([^"]+)"', leads) == ["mini/index.html", "other/index.html"]
    assert "upkeep: other" in report_of(catalog.root, "other") and "upkeep: other" not in report_of(
        catalog.root, "mini"
    )


def test_what_a_memory_asked_as_documents_arrived_is_in_the_sums(tmp_path: Path) -> None:
    write_cell(tmp_path, [line("q@1", "x")])
    manifest = manifest_of(tmp_path)
    memory = {"arrival_calls": 3.0, "arrival_prompt": 700.0, "arrival_completion": 70.0, "computed_prompt_tokens": 5.0}
    used = Usage(prompt=8, completion=2, calls=1)
    both = [msgspec.structs.replace(manifest, usage=used, measured=measured) for measured in (memory, {})]
    rows = [ran.CellRow(Cell.parse("d/m/v/x"), ran.COMPLETE, "", one, 0, None) for one in both]
    sums = ran.totals(rows)
    assert [sums[name] for name in ("calls", "prompt", "completion", "computed")] == [3 + 2, 716, 74, 705 + 8]


def status_of(state: str, message: str) -> bytes:
    told = {"name": "x", "done": 0, "total": 1, "started": "2026-01-01", "updated": "2026-01-01"}
    return json.dumps(told | {"state": state, "message": message}).encode()


def test_cells_without_scores_have_a_reason(catalog: Catalog) -> None:
    cells = catalog.cells(catalog.suite("mini"))
    waiting = pending(catalog, cells, NO_SCORES, {}, {}, {})
    assert waiting["reason"].to_list() == ["dataset not available"] * 2
    status = catalog.results / "status" / "cells" / f"{cells[0]}.json"
    status.parent.mkdir(parents=True)
    status.write_bytes(status_of("failed", "out of memory\n  remedy: more"))
    assert pending(catalog, cells, NO_SCORES, {}, {}, {})["reason"][0] == "failed: out of memory"


@pytest.mark.parametrize(
    ("kind", "name", "reason"),
    [
        ("trained", "oaks_babi/sft/lora/tiny", "failed: training oaks_babi/sft/lora/tiny: out of memory"),
        ("datasets", "oaks_babi", "failed: its dataset: out of memory"),
    ],
)
def test_a_cell_whose_inputs_failed_says_which(catalog: Catalog, kind: str, name: str, reason: str) -> None:
    cell = Cell("oaks_babi", "memory_scaffold", "budget256_k5", "tiny+sft.lora")
    other = Cell("oaks_novel", "closed_book", "default", "tiny")
    status = catalog.results / "status" / kind / f"{name}.json"
    status.parent.mkdir(parents=True)
    status.write_bytes(status_of("running", ""))
    assert pending(catalog, [cell], NO_SCORES, {}, {}, {})["reason"].to_list() == ["dataset not available"]
    status.write_bytes(status_of("failed", "out of memory\n  remedy: more"))
    found = pending(catalog, [cell, other], NO_SCORES, {}, {}, {})
    assert found["reason"].to_list() == [reason, "dataset not available"] and set(found["lacks"]) == {""}


def test_a_score_without_its_second_cell_says_which_that_is(catalog: Catalog) -> None:
    cell = Cell("oaks_babi", "long_context", "default", "pico")
    why = "the closed book (oaks_babi/closed_book/default/pico): not run"
    waiting = pending(catalog, [cell], frame(score(cell=str(cell))), {}, {str(cell): {"gain": why}}, {})
    assert waiting.select("lacks", "reason").rows() == [("gain", why)]
    columns = [{"Own": {"metric": "accuracy"}, "Gain": {"metric": "gain"}}]
    spec = msgspec.structs.replace(SPECS["table_3"], columns=columns)
    (row,) = [
        row
        for row in tables.build(spec, PAPER, read_reference(OAKS / "reference/table_3.csv"), NO_SCORES, waiting).rows
        if not row.published
    ]
    assert [(number.state, number.reason) for number in row.numbers] == [
        ("unpublished", "the paper prints no number here, and no cell of the suite gives one"),
        ("no number", why),
    ]


def test_what_waits_is_found_by_each_name_that_its_scores_would_have(catalog: Catalog) -> None:
    cell = Cell("evowiki_mini", "closed_book", "default", "pico")
    counts = dict.fromkeys(("chunk_tokens", "streams", "documents", "probes", "questions"), 1)
    texts = dict.fromkeys(("dataset", "label", "source", "licence", "tokenizer"), "")
    slices = {"level": {"evolved": 1, "stable": 1}, "hops": {"single_hop": 2}}
    built = DatasetCard(**counts, **texts, slices=slices, statistics={}, stands_for=None, content={}, files={})
    found = pending(catalog, [cell], NO_SCORES, {}, {}, {"evowiki_mini": built})
    assert found["dataset"].to_list() == ["evowiki", "evowiki_evolved", "evowiki_stable"]
    assert set(found["stand_in"]) == {"mini"} and len(set(found["reason"])) == 1
    assert pending(catalog, [cell], NO_SCORES, {}, {}, {})["dataset"].to_list() == ["evowiki"]


def test_the_first_page_says_which_method_is_the_best_and_names_none_where_two_are(catalog: Catalog) -> None:
    def told(*rows: dict[str, Any]) -> list[str]:
        found = overview.grid(frame(*rows))
        return overview.sentences(catalog, found, len(rows), 7, Counter({"failed: no memory": 2}), [])

    def row(method: str, value: float, dataset: str = "oaks_babi") -> dict[str, Any]:
        return score(method=method, label=method, value=value, dataset=dataset, cell=f"{dataset}/{method}/default/m")

    best = [row("long_context", 40.0), row("closed_book", 10.0), row("oracle", 90.0)]
    first, second = told(*best, row("closed_book", 50.0, "oaks_novel"), row("long_context", 20.0, "oaks_novel"))
    assert first == "5 of 7 cells are complete: 3 methods on 2 datasets, 7 answers; 2 failed."
    assert second.startswith("Of the methods that must find the answer, ") and "oracle" not in second
    assert "1 of 2 datasets" in second and "long_context" in second and "closed_book" in second
    assert len(told(row("long_context", 10.0), row("closed_book", 10.0))) == 1, "neither is the best"
    assert len(told(row("long_context", 10.0))) == 1, "nothing to compare it with"


def test_text_of_cards_and_pages_is_shown_as_such_but_for_code_and_sources() -> None:
    assert site.coded("`a<b` & c") == "<code>a&lt;b</code> &amp; c"
    links = "[here](../x.md) [there](https://a.org) <b>x</b> ![p](q.png)"
    shown = site.markdown(f"# Title\n\n## Part\n\n{links}\n\n| a |\n|-|\n| 1 |\n")
    assert "Title" not in shown and "<h3>Part</h3>" in shown and "<td>1</td>" in shown
    assert '<a href="https://a.org">there</a>' in shown and "here" in shown and "x.md" not in shown
    assert "&lt;b&gt;" in shown and "<img" not in shown
    assert "javascript:" not in str(site.markdown("[a](javascript:alert(1))")).replace("[a](javascript:alert(1))", "")
    assert site.broken("a/<b>/c/d") == "a/<wbr>&lt;b&gt;/<wbr>c/<wbr>d"


def test_controls_must_hold_on_every_slice() -> None:
    cells = [Cell("oaks_babi", "null", "default", "none"), Cell("oaks_babi", "gold", "default", "none")]
    own = {"model": "", "setting": "", "label": "c"}
    good = frame(score(**own, method="null", value=0.0), score(**own, method="gold", value=100.0))
    assert [control.passed for control in overview.controls(cells, good)] == [True, True]
    bad = pl.concat([good, frame(score(**own, method="gold", subset="sparse", value=99.0))])
    assert [control.passed for control in overview.controls(cells, bad)] == [True, False]
    assert [control.passed for control in overview.controls(cells, NO_SCORES)] == [None, None]


def test_the_summary_has_methods_by_datasets() -> None:
    scores = frame(
        score(cell="oaks_babi/long_context/default/m"),
        score(dataset="oaks_novel", value=50.0, low=None, high=None, cell="oaks_novel/long_context/default/m"),
        score(method="rag_dense", setting="k=30", value=40.0, cell="oaks_babi/rag_dense/k30/m"),
    )
    asked = {row["cell"]: 1 for row in scores.iter_rows(named=True)}
    rows = [line.split() for line in summary(accuracies(scores, asked)).splitlines()]
    assert ["long_context/default/m", "36.2", "±", "1.0", "50.0"] in rows
    assert ["rag_dense/k30/m", "40.0", "±", "1.0", "–"] in rows
    asked["oaks_babi/rag_dense/k30/m"] = 3
    rows = [line.split() for line in summary(accuracies(scores, asked)).splitlines()]
    assert ["rag_dense/k30/m", "3", "40.0", "±", "1.0", "–"] in rows and "trials" in rows[2]
    assert summary(accuracies(NO_SCORES, {})) == "no scores"


def test_many_datasets_are_shown_in_several_tables_and_no_number_is_cut() -> None:
    names = [f"a_dataset_with_a_name_{n}" for n in range(20)]
    scores = frame(*(score(dataset=name, cell=f"{name}/long_context/default/m") for name in names))
    told = summary(accuracies(scores, {}))
    assert all(len(line) <= 120 for line in told.splitlines()) and "…" not in told
    assert told.count("36.2 ± 1.0") == 20 and all(name in told for name in names)


def test_the_terminal_counts_what_came_of_each_papers_findings(tmp_path: Path) -> None:
    (tmp_path / "oaks").mkdir()
    lines = ["claim,where,published,release,rebuild,stand_in", *(f"c{n},t,holds,not_run,not_run,holds" for n in (1, 2))]
    (tmp_path / "oaks/claims.csv").write_text("\n".join([*lines, "c3,t,holds,not_run,undecidable,no_numbers"]) + "\n")
    assert list(told_findings(outcomes(tmp_path, ["oaks", "not_written_yet"]))) == [
        "findings of oaks on small stand-ins: holds 2, no numbers 1"
    ]


@pytest.mark.parametrize(("value", "text"), [(4.21, "4.2 s"), (192.0, "3 min 12 s"), (18_420.0, "5 h 7 min")])
def test_durations_are_readable(value: float, text: str) -> None:
    assert duration(value) == text


def test_every_key_of_a_papers_tables_is_explained() -> None:
    page = (OAKS.parent / "FORMAT.md").read_text()
    layout = page[page.index("## Layout") :]
    parts = re.split(r"\n\| key of (?:`tables.yaml`|a table|a figure) \| meaning \|\n", layout)[1:]
    for part, record in zip(parts, (PaperSpec, TableSpec, FigureSpec), strict=True):
        rows = re.findall(r"^\| (`.*?`) \|", part.partition("\n\n")[0], re.M)
        named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
        assert named == set(record.__struct_fields__), record.__name__


@pytest.mark.parametrize(("paper", "name"), [("imprintbench", "table_5"), ("evowiki", "table_3")])
def test_where_rows_are_metrics_a_score_of_another_is_no_variant_of_them(paper: str, name: str) -> None:
    folder = OAKS.parent / paper
    whole = read_paper(folder)
    spec = next(spec for spec in whole.tables if spec.id == name)
    reference = read_reference(folder / "reference" / spec.file)
    first = {key: value for key, value in reference.row(0, named=True).items() if key in SCORE_SCHEMA}
    same = score(**first | {"value": 1.0, "setting": "", "stand_in": "mini", "cell": "a/b/c/d"})
    built = [
        tables.build(spec, whole, reference, frame(same | {"metric": metric}), NOTHING_WAITS)
        for metric in (first["metric"], "another_metric")
    ]
    assert [(len(one.ours), len(one.placed)) for one in built] == [(1, 1), (0, 0)]
