"""What `./upkeep new method` writes works at once, and the page on methods names all that one can use."""

from __future__ import annotations

import ast
import asyncio
import re
from pathlib import Path

import msgspec
import pytest

from method_fakes import ROOT, FakeLLM, document, gold, load, probe
from method_runs import Run, make, shown, stream
from upkeep import cell
from upkeep.catalog import Catalog
from upkeep.cell import Seen
from upkeep.errors import UpkeepError
from upkeep.new import RESERVED, TEMPLATES, new_method

# ---------------------------------------------------------------- upkeep new method


def test_a_new_method_works_at_once(repository: Path) -> None:
    written = new_method(repository, "my_method2")
    assert {p.relative_to(repository).as_posix() for p in written} == {
        f"methods/my_method2/{f}" for f in ("method.yaml", "method.py", "README.md")
    }
    assert load("my_method2", repository).__name__ == "MyMethod2"
    assert "my_method2" in Catalog(repository).methods
    run = Run("my_method2", "w3", stream(), root=repository)
    assert shown(run)[-1] == {4, 5, 6}
    for path in written:
        assert not re.search(r"new_method|NewMethod|long_context|LongContext", path.read_text()), path


@pytest.mark.parametrize(
    "name",
    [
        "",
        "2x",
        "My",
        "a-b",
        "a b",
        "../x",
        "a/b",
        "class",
        "x" * 61,
        "é",
        "a\n",
        "_a",
        "none",
        "true",
        "on",
        "answer",
        "context",
        "document",
        "llm",
        "l_l_m",
        "method",
        "probe",
        "seen",
        "seen_",
    ],
)
def test_a_bad_name_is_refused_and_nothing_written(repository: Path, name: str) -> None:
    before = set(repository.rglob("*"))
    with pytest.raises(UpkeepError, match="no name for a method"):
        new_method(repository, name)
    assert set(repository.rglob("*")) == before


def test_a_new_methods_class_never_shadows_an_import(repository: Path) -> None:
    imported = {
        alias.name.lower()
        for node in ast.walk(ast.parse((TEMPLATES / "method" / "method.py").read_text()))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported and imported <= RESERVED


def test_a_new_name_that_holds_the_templates_is_written_as_given(repository: Path) -> None:
    new_method(repository, "long_context_new_method")
    assert load("long_context_new_method", repository).__name__ == "LongContextNewMethod"


def test_nothing_is_overwritten(repository: Path) -> None:
    new_method(repository, "mine")
    (repository / "methods" / "mine" / "method.py").write_text("my work")
    for taken in ("mine", "transformers"):  # the second names an image
        with pytest.raises(UpkeepError, match="there already"):
            new_method(repository, taken)
    assert (repository / "methods" / "mine" / "method.py").read_text() == "my work"
    with pytest.raises(UpkeepError, match="there already"):
        new_method(repository, "rag_dense")


def test_oracle_reads_the_golden_words_in_place_of_whole_documents_where_there_are_any() -> None:
    golden = msgspec.structs.replace(gold(1), context=["Mira has the lamp.", "So it is."])
    seen = Seen([document(0), document(1)], gold=golden)
    llm = FakeLLM()
    asyncio.run(make("oracle", "default").answer(probe(1), seen, llm))
    (shown,) = llm.prompts
    assert "Mira has the lamp.\nSo it is." in shown
    assert document(1).text not in shown


# ---------------------------------------------------------------- what a method is given, in the docs


def test_the_page_names_all_that_a_method_can_use() -> None:
    """Every public name of what a method sees and says, in its row of the table."""
    page = (ROOT / "docs" / "add-a-method.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.M))
    described = {
        kind: set(getattr(kind, "__struct_fields__", ())) | set(vars(kind)) | set(getattr(kind, "__annotations__", ()))
        for kind in (
            cell.Probe, cell.Document, cell.Seen, cell.Context, cell.Answer, cell.Retrieved, cell.ContextUse, cell.LLM,
            cell.Message, cell.Reply, cell.Method, cell.Tools,
        )
    }  # fmt: skip
    assert {kind.__name__ for kind in described} == rows.keys()
    for kind, names in described.items():
        missing = [
            name for name in names if not name.startswith("_") and not re.search(rf"\b{name}\b", rows[kind.__name__])
        ]
        assert not missing, (kind.__name__, missing)
