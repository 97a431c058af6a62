"""Every table is LaTeX that can be typeset, whatever things are called."""

from __future__ import annotations

import csv
import io
import re

import msgspec
import polars as pl
import pytest

from table_papers import HOSTILE, PAPERS, TABLES, as_scores, only, reference_of
from table_scores import NO_SCORES, frame, score, table
from upkeep.report import tables, waiting
from upkeep.report.latex import latex_escape, to_latex
from upkeep.report.specs import PaperSpec
from upkeep.report.written import to_csv, to_markdown


def columns_of(form: str) -> int:
    return len(re.findall(r"[lcr]|p\{[^}]*\}", re.sub(r">\{[^}]*\}", "", form)))


def check_latex(text: str) -> None:
    """Environments and braces are balanced, specials escaped, all rows of a table as wide as it is."""
    lines = [line for line in text.splitlines() if not line.startswith("%")]
    body = "\n".join(lines)
    assert not re.search(r"\n[ \t]*\n", body), "a paragraph's end is an error in a caption"
    opened: list[str] = []
    for kind, name in re.findall(r"\\(begin|end)\{([a-z]+)\}", body):
        if kind == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert not opened
    plain = re.sub(r"\\label\{[^}]*\}", "", body)
    plain = re.sub(r"\\\\|\\[&%$#_{}]", "", plain)
    depth = 0
    for character in plain:
        depth += (character == "{") - (character == "}")
        assert depth >= 0
    assert depth == 0
    assert plain.count("$") % 2 == 0
    outside = re.sub(r"\$[^$]*\$", "", plain)
    assert not re.search(r"[%#_^~]", outside), re.search(r".*[%#_^~].*", outside)
    known = {"begin", "end", "centering", "caption", "toprule", "midrule", "bottomrule", "multicolumn"}
    known |= {"cmidrule", "par", "footnotesize", "textwidth", "textbackslash", "textasciitilde", "textasciicircum"}
    known |= {"textless", "textgreater", "textbar", "ldots", "dag", "texttt", "textheight", "smallskip", "scriptsize"}
    known |= {"setlength", "tabcolsep", "raggedright", "arraybackslash", "ContinuedFloat", "clearpage"}
    known |= {"captionsetup", "renewcommand", "thetable"}
    assert set(re.findall(r"\\([a-zA-Z]+)", outside)) <= known
    assert all(character.isprintable() or character == "\n" for character in text)
    for form, inner in re.findall(r"\\begin\{tabular\}\{((?:[^{}]|\{[^{}]*\})*)\}\n(.*?)\\end\{tabular\}", body, re.S):
        width = columns_of(form)
        rows = [line for line in inner.splitlines() if line not in ("\\toprule", "\\midrule", "\\bottomrule")]
        assert rows
        for row in rows:
            content, end, rules = row.rpartition(r" \\")
            assert end and re.fullmatch(r"(\\cmidrule\(lr\)\{\d+-\d+\})*", rules), row
            cells = re.split(r"(?<!\\)&", content.replace(r"\\", ""))
            spans = [int(span[1]) if (span := re.match(r"\s*\\multicolumn\{(\d+)\}", cell)) else 1 for cell in cells]
            assert sum(spans) == width, row
            assert not re.match(r"\s*[\[*]", row), "after the end of a row these are its options"
            for first, last in re.findall(r"\{(\d+)-(\d+)\}", rules):
                assert 1 <= int(first) <= int(last) <= width


@pytest.mark.parametrize(("paper", "name"), TABLES)
def test_every_table_is_latex_whatever_things_are_called(paper: str, name: str) -> None:
    whole = PAPERS[paper]
    spec = next(spec for spec in whole.tables if spec.id == name)
    reference = reference_of(paper, spec)
    hostile = only(spec, caption=HOSTILE, notes=[*spec.notes, HOSTILE], title=f"{spec.title} {HOSTILE}")
    named: PaperSpec = msgspec.structs.replace(whole, names=whole.names | {"off": HOSTILE})
    own = as_scores(reference)
    odd = own.with_columns(model=pl.lit(HOSTILE), label=pl.lit("[1em]*" + HOSTILE))
    extra = [[{"key": "k_%", "value": HOSTILE}, *setting] for setting in own["setting"].to_list()]
    other = own.with_columns(pl.Series("setting", extra, dtype=own.schema["setting"]))
    mini = own.with_columns(stand_in=pl.lit("[x]"), trained=pl.lit(value=False))
    failed = odd.with_columns(lacks=pl.lit(""), reason=pl.lit(HOSTILE), command=pl.lit(HOSTILE), aside=False)
    pending = failed.select(list(waiting.PENDING_SCHEMA))
    for scores in (NO_SCORES, own, pl.concat([own, odd, other, mini])):
        built = tables.build(hostile, named, reference, scores, pending)
        check_latex(to_latex(built))
        for line in to_markdown(built).splitlines():
            if line.startswith("| "):
                assert len(re.findall(r"(?<!\\)\|", line)) in {
                    len(built.columns) + 1 + len(spec.stub) + n for n in (0, len(spec.facts), 1, 2)
                }
        rows = list(csv.DictReader(io.StringIO(to_csv(built))))
        assert len(rows) == len(built.rows) * len(built.columns)


def test_the_check_of_latex_finds_what_is_wrong() -> None:
    good = to_latex(table("table_2", frame(score(), score(model="Mine"))))
    check_latex(good)
    for old, new in (
        ("\\end{tabular}", ""),
        ("35.8", "35_8"),
        ("35.8", "35.8 & 1"),
        ("35.8", "35.8}"),
        ("35.8", "\\unknown{}"),
        ("Qwen3-4B", "[Qwen3-4B"),
        ("Qwen3-4B", "Qwen3\n\n4B"),
        ("\\multicolumn{8}", "\\multicolumn{7}"),
    ):
        assert old in good
        with pytest.raises(AssertionError):
            check_latex(good.replace(old, new, 1))


def test_special_characters_are_escaped() -> None:
    assert latex_escape("a_b & 50% \\ {x}") == r"a\_b \& 50\% \textbackslash{} \{x\}"
    assert latex_escape("[1em] *\n\nx") == "{[}1em{]} {*} x"


def test_the_papers_number_is_the_only_one_in_captions_and_references() -> None:
    text = to_latex(table("table_2", frame(score())), "oaks")
    assert text.count("\\begin{table}") == text.count("labelformat=empty") == text.count("\\thetable}{Table 2}")
    assert "\\caption{Table 2. " in text
