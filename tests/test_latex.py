"""The LaTeX of every paper's tables, typeset: one document of all of them, whatever things are called."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import polars as pl
import pytest

from table_papers import HOSTILE, PAPERS, TABLES, as_scores, reference_of
from table_scores import NOTHING_WAITS
from upkeep.report import tables
from upkeep.report.latex import to_latex

HEAD = r"""\documentclass[a4paper]{article}
\usepackage{array,booktabs,adjustbox,caption,fontspec}
\usepackage[margin=2cm]{geometry}
\begin{document}
"""
BEYOND_LATIN = "模型"


def typeset(folder: Path, texts: list[str]) -> str:
    """The log of a document with each text on a page of its own."""
    (folder / "all.tex").write_text(HEAD + "\n\\clearpage\n".join(texts) + "\\end{document}\n")
    command = ["lualatex", "-halt-on-error", "-interaction=nonstopmode", "all.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:]
    return (folder / "all.log").read_text(errors="replace")


def latex(paper: str, name: str, *, hostile: bool) -> str:
    """A table that is filled with the published numbers, and rows of a stand-in and of a model of a strange name."""
    spec = next(spec for spec in PAPERS[paper].tables if spec.id == name)
    own = as_scores(reference_of(paper, spec))
    few = own.gather_every(max(1, len(own) // 8))  # each is a row of its own
    mini = few.with_columns(stand_in=pl.lit("mini"), trained=pl.lit(value=False))
    odd = few.with_columns(model=pl.lit(HOSTILE if hostile else "Qwen_3 & co"), label=pl.lit("[1em]* 100%"))
    return to_latex(
        tables.build(spec, PAPERS[paper], reference_of(paper, spec), pl.concat([own, mini, odd]), NOTHING_WAITS), paper
    )


@pytest.mark.latex
@pytest.mark.parametrize("hostile", [False, True])
def test_all_tables_of_all_papers_are_typeset_on_their_pages(tmp_path: Path, *, hostile: bool) -> None:
    texts = [latex(*table, hostile=hostile) for table in TABLES]
    labels = [label for text in texts for label in re.findall(r"\\label\{(.*)\}", text)]
    assert len(labels) == len(set(labels)) == 2 * len(TABLES), "papers number their tables alike"
    log = typeset(tmp_path, texts)
    pages = re.search(r"Output written on all.pdf \((\d+) pages", log)
    assert pages is not None and int(pages[1]) >= len(TABLES)
    missing = set(re.findall(r"Missing character: There is no (.)", log))
    assert missing <= set(BEYOND_LATIN if hostile else "")
    for fault in ("Float too large", "Overfull \\vbox"):
        assert fault not in log, re.search(f".*{re.escape(fault)}.*", log)[0]  # type: ignore[index]
