"""What a paper prints of its runs' settings, and what our cards set: beside it in its tables, read and never run."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest

from conftest import ROOT
from host_fakes import make_repository
from suite_fakes import called, made, root, workflow
from table_papers import PAPERS, SPECS_OF, reference_of
from table_scores import NO_SCORES, NOTHING_WAITS, place
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.report import parts, tables
from upkeep.report.card_fields import Cards, cards_of, in_short
from upkeep.report.comparing import compare_setting
from upkeep.report.naming import check_tables
from upkeep.report.reference import read_reference
from upkeep.report.specs import read_paper

__all__ = ["made", "root"]

ASKING = [(paper, spec.id) for (paper, _), spec in SPECS_OF.items() if spec.cards]
HEADER = "table,label,model,method,supervision,setting,dataset,subset,metric,value,unit"
MODEL = "{{label: {label}, summary: s, source: path, location: w, context_length: {length}, {more}}}"
TABLE = """
  - {id: table_9, title: Table 9, caption: c, rows: [model, setting.thinking, metric],
     stub: [{field: metric, heading: What}, {field: model, heading: Model}], columns: [{Value: {}}],
     cards: CARDS}
"""


def built(paper: str, name: str) -> tables.Table:
    """A table of the suite's, without any score."""
    spec, cards = SPECS_OF[paper, name], Cards(Catalog(ROOT), paper)
    return tables.build(spec, PAPERS[paper], reference_of(paper, spec), NO_SCORES, NOTHING_WAITS, cards=cards)


# ------------------------------------------------------------------ the papers of the suite


@pytest.mark.parametrize(("paper", "name"), ASKING)
def test_ours_are_set_as_the_papers_and_every_number_names_its_card(paper: str, name: str) -> None:
    table = built(paper, name)
    numbers = [number for row in table.papers for number in row.numbers if number.source]
    assert numbers and [n for n in numbers if n.state != "set alike"] == []
    for number in numbers:
        assert (number.low, number.high, number.n, number.cell, number.command) == (None, None, None, "", "")
        files = re.findall(r"(?:models|methods|datasets)/\S+?\.yaml", number.source)
        assert files and all((ROOT / file).is_file() for file in files)
    rest = {(n.state, n.command) for row in table.papers for n in row.numbers if not n.published}
    assert rest <= {("unpublished", "")} and not table.filled and table.ours == []
    assert any("no run gives" in note for note in table.notes)


def test_a_setting_reads_as_it_is_printed_and_tells_where_it_stands() -> None:
    table = built("imprintbench", "table_11")
    number = place(table, "Learning rate full 2", "NTP, SFT, NTP + SFT")
    assert parts.pair_text(number, table.spec.digits, published_row=True) == "5e-6 / 5e-6 ≡"
    assert number.own == 5e-6 and "methods/mixed_ft/method.yaml (full_lr5e-6, full_by_date_lr5e-6)" in number.source
    assert parts.told(number, 1) == f"set alike; {number.source}"
    used = place(built("oaks", "table_11"), "Qwen3-4B-Instruct-2507 off dense gqa", "Context | Used")
    assert (used.own, parts.own_text(used, 1)) == (262.144, "262")
    assert used.source == "context_length: 262144 in models/qwen3-4b/model.yaml" and "+0.144" in parts.told(used, 1)
    cap = place(built("imprintbench", "table_12"), "Tokens generated at most", "Memory scaffold | gpt-4.1-mini")
    assert cap.source == "sampling.max_tokens: 8192 in models/gpt-4.1-mini/model.yaml (gpt-4.1-mini-imprintbench)"


def test_what_no_card_says_stays_without_a_number_and_with_its_reason() -> None:
    table = built("oaks", "table_11")
    default = place(table, "Qwen2.5-7B-Instruct off dense gqa", "Context | Default")
    assert (default.own, default.state, default.source) == (None, "no number", "")
    assert "`context_length` in `models/<model>/model.yaml` is what is used" in default.reason
    code = place(built("imprintbench", "table_12"), "Tokens of a chunk (thousands)", "Chunked summary | gpt-5.4-mini")
    assert code.own is None and "methods/chunked_summary/method.py" in code.reason


@pytest.mark.parametrize("paper", sorted({paper for paper, _ in ASKING}))
def test_the_suites_tables_ask_cards_for_what_they_have(paper: str) -> None:
    check_tables(ROOT / "papers" / paper, PAPERS[paper])
    assert len(cards_of(Catalog(ROOT), [paper])) > 1


# ------------------------------------------------------------------ made-up ones


def paper(at: Path, cards: str, *lines: str, **models: str) -> Cards:
    """A repository whose paper prints these lines of settings, and a table of them that asks cards."""
    if not (at / "methods").is_dir():
        make_repository(at)
    folder = at / "papers/toy"
    text = 'label: Toy\ncitation: "A toy."\ntables:' + TABLE.replace("CARDS", cards)
    files = {"papers/toy/tables.yaml": text, "Snakefile": ""}
    files["papers/toy/reference/table_9.csv"] = "\n".join([HEADER, *(f"table_9,{line}" for line in lines), ""])
    files |= {f"models/{name}/model.yaml": card for name, card in models.items()}
    for name, content in files.items():
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        (at / name).write_text(content)
    return Cards(Catalog(at), folder.name)


def numbers(at: Path, cards: Cards) -> list[tuple[str, str, str]]:
    """(as it is shown, state, source or reason) of each place of that table."""
    read = read_paper(at / "papers/toy")
    (spec,) = read.tables
    printed = read_reference(at / "papers/toy/reference/table_9.csv")
    table = tables.build(spec, read, printed, NO_SCORES, NOTHING_WAITS, cards=cards)
    return [(parts.own_text(n, 1), n.state, n.source or n.reason) for row in table.papers for n in row.numbers]


N_OF = ",M,,,thinking=off,,all,context,{value},{unit}"
TWO = "[{match: {metric: n}, field: n, methods: {echo: [a, b]}}]"


@pytest.mark.parametrize(
    ("value", "unit", "shown", "state"),
    [
        ("262", "thousand_tokens", "262", "set alike"),
        ("262.1", "thousand_tokens", "262.1", "set alike"),
        ("263", "thousand_tokens", "262.144", "set otherwise"),
        ("0.3", "million_tokens", "0.3", "set alike"),
        ("262144", "tokens", "262144", "set alike"),
        ("262000", "tokens", "262144", "set otherwise"),
    ],
)
def test_units_are_converted_and_ours_is_rounded_as_the_papers(
    tmp_path: Path, value: str, unit: str, shown: str, state: str
) -> None:
    asked = "[{match: {metric: context}, field: context_length, models: [m]}]"
    cards = paper(
        tmp_path, asked, N_OF.format(value=value, unit=unit), m=MODEL.format(label="M", length=262144, more="")
    )
    ((text, found, source),) = numbers(tmp_path, cards)
    assert (text, found) == (shown, state) and source == "context_length: 262144 in models/m/model.yaml"


@pytest.mark.parametrize(
    ("own", "published", "alike"),
    [
        (1e-5, "1e-5", True),
        (5e-6, "1e-5", False),  # within half a unit of the printed digit, and another setting
        (2e-2, "2e-2", True),
        (0.1, "0.1", True),
        (0.14, "0.1", True),
        (9.6, "10", False),
        (0.0, "0", True),
        (0.3, "0", False),
    ],
)
def test_a_setting_is_alike_in_as_many_digits_as_are_printed(own: float, published: str, *, alike: bool) -> None:
    assert compare_setting(own, published) == ("set alike" if alike else "set otherwise")


def test_numbers_are_written_short() -> None:
    assert [in_short(n) for n in (5e-6, 262.144, 64.0, 0.02)] == ["5e-6", "262.144", "64", "0.02"]
    assert (in_short(1048576, 12), in_short(2.5e12)) == ("1048576", "2.5e12")


def test_a_rows_models_are_those_of_its_name_that_think_as_it_does(tmp_path: Path) -> None:
    asked = "[{match: {metric: context}, field: context_length, models: [m, m-long, n]}]"
    more = 'sampling: {}, presets: {long: {context_length: 200, thinking: "on"}}'
    lines = [f",{m},,,{setting},,all,context,100,tokens" for m, setting in (
        ("M", "thinking=off"), ("M", "thinking=on"), ("N", ""), ("O", "thinking=on"))]  # fmt: skip
    cards = paper(
        tmp_path,
        asked,
        *lines,
        m=MODEL.format(label="M", length=100, more=more),
        n=MODEL.format(label="N", length=100, more=""),
    )
    assert numbers(tmp_path, cards) == [
        ("100", "set alike", "context_length: 100 in models/m/model.yaml"),
        ("200", "set otherwise", "context_length: 200 in models/m/model.yaml (m-long)"),
        ("100", "set alike", "context_length: 100 in models/n/model.yaml"),
        ("✗", "no number", "no model of ours is called O (thinking on)"),
    ]


def test_cards_that_do_not_agree_give_no_number_and_say_who_says_what(tmp_path: Path) -> None:
    cards = paper(tmp_path, TWO, ",,echo,,,,all,n,1,count")
    ((shown, state, reason),) = numbers(tmp_path, cards)
    assert (shown, state) == ("✗", "no number")
    assert reason == ("our cards differ in n: 1 in methods/echo/method.yaml (a); 2 in methods/echo/method.yaml (b)")
    alike = TWO.replace("echo: [a, b]", "echo: [b], guided: [b]")
    ((shown, state, source),) = numbers(tmp_path, paper(tmp_path, alike, ",,echo,,,,all,n,2,count"))
    assert (shown, state) == ("2", "set alike")
    assert source == "n: 2 in methods/echo/method.yaml, methods/guided/method.yaml (b)"


def test_a_field_that_is_null_is_no_number(tmp_path: Path) -> None:
    asked = "[{match: {metric: context}, field: parameters_b, models: [m]}]"
    line = N_OF.format(value=7, unit="billion_parameters")
    cards = paper(tmp_path, asked, line, m=MODEL.format(label="M", length=1, more=""))
    assert numbers(tmp_path, cards) == [("✗", "no number", "models/m/model.yaml does not say it (parameters_b)")]
    known = MODEL.format(label="M", length=1, more="parameters_b: 7.25")
    assert numbers(tmp_path, paper(tmp_path, asked, line, m=known))[0][:2] == ("7", "set alike")
    in_millions = N_OF.format(value=7250, unit="million_parameters")
    assert numbers(tmp_path, paper(tmp_path, asked, in_millions, m=known))[0][:2] == ("7250", "set alike")


WRONG = {
    "no such variant": ("field: n, methods: {echo: [a, c]}", "unknown variant 'c'", "one of a, b"),
    "no such parameter": ("field: m, methods: {echo: [a]}", "unknown field 'm'", "one of n"),
    "no such method": ("field: n, methods: {ecco: [a]}", "unknown method 'ecco'", "one of echo"),
    "no such model": ("field: context_length, models: [q]", "unknown model 'q'", "one of"),
    "no such field": ("field: context_lenght, models: [m]", "unknown field 'context_lenght'", "context_length"),
    "none within it": ("field: sampling.max, models: [m]", "unknown field 'sampling.max'", "max_tokens"),
    "none within a number": ("field: context_length.x, models: [m]", "unknown field 'context_length.x'", "one of"),
    "a text": ("field: summary, models: [m]", "the field 'summary' is no number", "a field that is one"),
    "no such dataset": ("field: options.n, datasets: [toi]", "unknown dataset 'toi'", "one of toy"),
    "no such option": ("field: options.n, datasets: [toy]", "unknown field 'options.n'", "one of"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_a_card_lacks_is_refused_with_file_line_and_what_there_is_and_the_report_goes_on(
    tmp_path: Path, wrong: str
) -> None:
    asked, problem, there_is = WRONG[wrong]
    card = MODEL.format(label="M", length=1, more="")
    cards = paper(tmp_path, f"[{{match: {{metric: n}}, {asked}}}]", ",M,,,,,all,n,1,count", m=card)
    with pytest.raises(UpkeepError) as found:
        check_tables(tmp_path / "papers/toy", read_paper(tmp_path / "papers/toy"))
    text = (tmp_path / "papers/toy/tables.yaml").read_text().splitlines()
    line = next(n for n, one in enumerate(text, 1) if "cards:" in one)
    assert str(found.value.where) == f"{tmp_path}/papers/toy/tables.yaml:{line}: table_9"
    assert problem in found.value.problem and there_is in str(found.value.expected)
    ((shown, state, reason),) = numbers(tmp_path, cards)
    assert (shown, state) == ("✗", "no number")
    assert reason.startswith(f"papers/toy/tables.yaml:{line}: table_9: {problem}") and there_is in reason


def test_an_entry_that_speaks_of_no_published_number_is_refused(tmp_path: Path) -> None:
    paper(tmp_path, TWO.replace("metric: n}", "metric: n, model: M}"), ",,echo,,,,all,n,1,count")
    with pytest.raises(UpkeepError, match="speaks of no published number"):
        check_tables(tmp_path / "papers/toy", read_paper(tmp_path / "papers/toy"))


@pytest.mark.parametrize("whose", ["", "models: [m], methods: {echo: [a]}"])
def test_an_entry_says_whose_field_it_is_once(tmp_path: Path, whose: str) -> None:
    paper(tmp_path, f"[{{{', '.join(filter(None, ['field: n', whose]))}}}]", ",,echo,,,,all,n,1,count")
    with pytest.raises(UpkeepError, match="one of `models`, `methods` and `datasets`"):
        read_paper(tmp_path / "papers/toy")


def test_a_card_that_cannot_be_read_is_the_reason_and_no_end(tmp_path: Path) -> None:
    cards = paper(tmp_path, TWO, ",,echo,,,,all,n,1,count")
    (tmp_path / "methods/echo/method.yaml").write_text("label: [")
    ((shown, _, reason),) = numbers(tmp_path, cards)
    assert shown == "✗" and "methods/echo/method.yaml:" in reason


# ------------------------------------------------------------------ a suite that has run


def ask(root: Path) -> None:
    """Have its paper print a setting of `echo`, too."""
    with (root / "papers/toy/tables.yaml").open("a") as file:
        file.write(TABLE.replace("CARDS", "[{match: {metric: n}, field: n, methods: {echo: [b]}}]").strip("\n") + "\n")
    (root / "papers/toy/reference/table_9.csv").write_text(f"{HEADER}\ntable_9,,M,echo,,,,all,n,2,count\n")


def told_of_papers(root: Path) -> list[str]:
    """What the report's first page says of published numbers."""
    text = " ".join((root / "results/report/mini/index.html").read_text().split())
    found = re.findall(r"[^.<>]*published number[^.<>]*", text)
    assert found
    return found


def test_a_setting_is_no_score_and_decides_nothing(root: Path) -> None:
    assert called(root, "report")[0] == 0
    kept = ("scores/mini/scores.parquet", "tables/mini/toy/table_1.csv", "tables/mini/toy/claims.csv")
    overview = told_of_papers(root)
    before = [(root / "results" / name).read_bytes() for name in kept]
    ask(root)
    assert called(root, "score")[0] == called(root, "report")[0] == 0
    assert [(root / "results" / name).read_bytes() for name in kept] == before
    pages = list((root / "results/report/mini").rglob("*.html"))
    lines = list(csv.DictReader(io.StringIO((root / "results/tables/mini/toy/table_9.csv").read_text())))
    (line,) = [line for line in lines if line["part"] == "paper"]
    assert (line["own"], line["published"], line["state"], line["low"], line["cell"]) == ("2", "2", "set alike", "", "")
    assert line["source"] == "n: 2 in methods/echo/method.yaml (b)"
    assert "2 / 2 ≡" in (root / "results/tables/mini/toy/table_9.md").read_text()
    (page,) = (text for path in pages if "toy-table_9" in (text := path.read_text()))
    assert 'title="set alike; n: 2 in methods/echo/method.yaml (b)"' in page
    assert told_of_papers(root) == overview


def test_a_place_of_a_setting_is_explained_by_its_card(root: Path) -> None:
    ask(root)
    out: list[str] = []
    assert called(root, "explain", "table_9", "1", "1", out=out) == (0, "")
    assert "ours       2\n" in out[0] and "set by     n: 2 in methods/echo/method.yaml (b)" in out[0]
    assert "state      set alike" in out[0]
    assert called(root, "explain", "table_9", "1", "1", "--json", out=out) == (0, "")
    (found,) = json.loads(out[1])
    assert (found["source"], found["behind"]) == ("n: 2 in methods/echo/method.yaml (b)", None)


def test_a_report_is_written_again_when_a_card_changes_that_a_table_reads(root: Path) -> None:
    ask(root)
    card = root / "methods/guided/method.yaml"
    plan = root / workflow(root).plan_of_report(None)
    before = plan.read_text()
    card.write_text(card.read_text() + "# a word\n")
    workflow(root).plan_of_report(None)
    assert plan.read_text() == before
    read = root / "methods/echo/method.yaml"
    read.write_text(read.read_text().replace("b: {n: 2}", "b: {n: 3}"))
    workflow(root).plan_of_report(None)
    assert plan.read_text() != before
    assert cards_of(Catalog(root), ["toy", "nobody"]) == ["methods/echo/method.yaml"]
