"""Claims on the published numbers: every one gives what its file says."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from upkeep.errors import UpkeepError
from upkeep.grading.settings import as_rows, pairs
from upkeep.report import claims
from upkeep.report.reference import read_reference
from upkeep.report.view import COLUMNS, View

PAPERS = Path(__file__).resolve().parents[1] / "papers"
LEDGERS = {path.parent.name: claims.read_claims(path.parent) for path in sorted(PAPERS.glob("*/claims"))}
SHIPPED = ("oaks", "imprintbench", "evolveqa", "prelude", "evowiki")
CLAIM = "id: x, where: '', statement: '', published: holds, needs: {}"
ROW = "t,Base,m,long_context,C,k=30;thinking=on,oaks_babi,all,accuracy,5,percent\n"
REFERENCE = "table,label,model,method,supervision,setting,dataset,subset,metric,value,unit\n"


def test_there_are_90_claims_of_the_five_papers_and_all_have_ids_of_their_own() -> None:
    ids = [claim.id for ledger in LEDGERS.values() for claim in ledger]
    assert len(ids) == len(set(ids))
    assert sum(len(LEDGERS[paper]) for paper in SHIPPED) == 90


@pytest.mark.parametrize("paper", LEDGERS)
def test_claims_on_the_published_numbers_give_what_their_file_says(paper: str) -> None:
    verdicts = claims.published(PAPERS / paper, LEDGERS[paper])
    for claim in LEDGERS[paper]:
        assert verdicts[claim.id].outcome == claim.published, claim.id
        assert [len(rows) for rows in verdicts[claim.id].cases] == [check.rows for check in claim.checks], claim.id


def test_the_findings_that_no_run_can_decide_say_why() -> None:
    undecidable = {claim.id for ledger in LEDGERS.values() for claim in ledger if claim.undecidable}
    assert undecidable == {"evolveqa-c19", *(f"prelude-c{n}" for n in (1, 2, 9, 10, 12))}


def outcome(folder: Path, *queries: str, op: str = ">", quantifier: str = "all") -> str:
    """What comes of checks on a table of one row, of value 5."""
    (folder / "reference").mkdir(exist_ok=True)
    (folder / "reference/t.csv").write_text(REFERENCE + ROW)
    checks = [claims.Check(query=q, op=op, quantifier=quantifier, rows=0, table="t") for q in queries]  # type: ignore[arg-type]
    claim = claims.Claim(id="x", where="", statement="", checks=checks, published="holds", needs=claims.Needs())
    return claims.published(folder, [claim])["x"].outcome


def put(folder: Path, name: str, text: str) -> Path:
    """A file of a paper's claims."""
    (folder / "claims").mkdir(exist_ok=True)
    (folder / "claims" / f"{name}.yaml").write_text(text)
    return folder / "claims" / f"{name}.yaml"


def values(*sides: tuple[object, object]) -> str:
    rows = ", ".join(f"('c{n}', {a}, {b})" for n, (a, b) in enumerate(sides))
    return f"SELECT * FROM (VALUES {rows}) AS t(name, lhs, rhs)"


def test_all_means_every_row_most_more_than_half_and_some_one(tmp_path: Path) -> None:
    half, more = values((2, 1), (1, 2)), values((2, 1), (2, 1), (1, 2))
    assert outcome(tmp_path, values((2, 1), (3, 1))) == "holds"
    assert outcome(tmp_path, more) == "fails"
    assert outcome(tmp_path, more, quantifier="most") == "holds"
    assert outcome(tmp_path, half, quantifier="most") == "fails"
    assert outcome(tmp_path, half, quantifier="some") == "holds"
    assert outcome(tmp_path, values((1, 2), (1, 3)), quantifier="some") == "fails"


@pytest.mark.parametrize(("op", "equal"), [(">", "fails"), (">=", "holds"), ("<", "fails"), ("<=", "holds")])
@pytest.mark.parametrize("sides", [(1, 1), ("0.1::double + 0.2::double", "0.3::double")])
def test_equal_sides(tmp_path: Path, op: str, equal: str, sides: tuple[object, object]) -> None:
    assert outcome(tmp_path, values(sides), op=op) == equal


@pytest.mark.parametrize(
    ("lhs", "nearer", "as_near"), [(6, True, True), (7, False, True), (3, False, True), (8, False, False)]
)
def test_sides_may_be_asked_how_far_they_are_from_each_other(lhs: float, nearer: bool, as_near: bool) -> None:
    for op, expected in (("<", nearer), ("<=", as_near), (">", not as_near), (">=", not nearer)):
        check = claims.Check(query="", op=op, within=2, rows=0, table="t")  # type: ignore[arg-type]
        assert check.satisfied(lhs, 5) is check.satisfied(5, lhs) is expected


def test_what_is_to_be_ahead_or_near_by_so_much_stands_on_two_sides() -> None:
    """A side that stays where it is when all scores rise is a distance: the question that was not asked would be taken
    against both of its scores in the same direction (`report.deciding`)."""
    found = set()
    for paper, ledger in LEDGERS.items():
        for claim in ledger:
            for check in claim.checks:
                rows = claims.printed(PAPERS / paper, check.tables)
                risen = rows.with_columns(value=pl.col("value").cast(pl.Float64) + 7)
                with View(rows.select(COLUMNS)) as seen, View(risen.select(COLUMNS)) as higher:
                    before, after = (view.sides(check.query, claim.id) for view in (seen, higher))
                if any(before[name][0] == pytest.approx(after[name][0]) for name in before.keys() & after.keys()):
                    found.add(claim.id)
    assert not found


def test_a_claim_holds_when_all_checks_do_and_has_no_numbers_when_one_has_no_rows(tmp_path: Path) -> None:
    yes, no, nothing = values((2, 1)), values((1, 2)), "SELECT 1.0 AS lhs, 2.0 AS rhs WHERE false"
    assert outcome(tmp_path, yes, yes) == "holds"
    assert outcome(tmp_path, yes, nothing) == "no_numbers"
    assert outcome(tmp_path, no, nothing) == "fails"


def test_a_row_with_a_missing_side_is_no_case(tmp_path: Path) -> None:
    assert outcome(tmp_path, values(("NULL::DOUBLE", 1), ("'nan'::DOUBLE", 1))) == "no_numbers"
    assert outcome(tmp_path, values(("NULL::DOUBLE", 1), (2, 1))) == "holds"


def test_the_view_has_settings_by_key_and_empty_strings(tmp_path: Path) -> None:
    read = "SELECT value AS lhs, 4.0 AS rhs FROM scores WHERE opt(setting, 'thinking') = 'on' AND unit <> ''"
    assert outcome(tmp_path, read) == "holds"
    assert outcome(tmp_path, read.replace("'thinking'", "'hinking'")) == "no_numbers"
    assert outcome(tmp_path, read.replace("'thinking') = 'on'", "'window') = ''")) == "holds"
    assert outcome(tmp_path, read.replace("opt(setting, 'thinking')", "setting['thinking']")) == "holds"


def test_a_query_cannot_reach_files_or_the_network(tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("lhs,rhs\n2,1\n")
    with pytest.raises(UpkeepError, match="query of a check fails"):
        outcome(tmp_path, f"SELECT lhs, rhs FROM read_csv('{tmp_path}/secret.csv')")


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("SELECT lhs FROM nowhere", r"(?s)x: the query of a check fails"),
        ("SELECT 1.0 AS lhs", "lacks a side"),
        ("SELECT 'a' AS lhs, 1.0 AS rhs", "no number"),
    ],
)
def test_a_broken_query_names_its_claim(tmp_path: Path, query: str, problem: str) -> None:
    with pytest.raises(UpkeepError, match=problem) as error:
        outcome(tmp_path, query)
    assert error.value.where == f"{tmp_path / 'claims'}: x", "one that no file has"
    (tmp_path / "reference/table_1.csv").write_text(REFERENCE + ROW)
    file = put(tmp_path, "second", f"- {{{CLAIM}, checks: [{{query: {query!r}, op: '>', rows: 1, table: table_1}}]}}\n")
    put(tmp_path, "first", "[]\n")
    with pytest.raises(UpkeepError, match=problem) as error:
        claims.published(tmp_path, claims.read_claims(tmp_path))
    assert error.value.where == f"{file}:1: x"


def test_cases_of_one_name_are_cases_all_the_same(tmp_path: Path) -> None:
    assert outcome(tmp_path, "SELECT 'c', unnest([3, 2]) AS lhs, 1 AS rhs") == "holds"
    assert outcome(tmp_path, "SELECT 'c', unnest([3, 1]) AS lhs, 1 AS rhs") == "fails"


def test_a_misspelt_claim_file_is_refused(tmp_path: Path) -> None:
    file = put(tmp_path, "any", "- {id: a, statment: b}\n")
    with pytest.raises(UpkeepError, match="statment") as error:
        claims.read_claims(tmp_path)
    assert error.value.where == file
    with pytest.raises(UpkeepError, match="no claims"):
        claims.read_claims(tmp_path / "nowhere")


def test_claims_stand_in_the_order_of_their_ids_whichever_file_has_them(tmp_path: Path) -> None:
    for name, ids in {"a": (10, 2), "b": (1, 11)}.items():
        put(tmp_path, name, "".join(f"- {{{CLAIM.replace('x', f'p-c{n}', 1)}, checks: []}}\n" for n in ids))
    assert [claim.id for claim in claims.read_claims(tmp_path)] == ["p-c1", "p-c2", "p-c10", "p-c11"]


def test_an_id_that_two_claims_have_is_refused_with_both_files(tmp_path: Path) -> None:
    one, other = (put(tmp_path, name, f"- {{{CLAIM}, checks: []}}\n") for name in ("one", "other"))
    with pytest.raises(UpkeepError, match="two claims have the id 'x'") as error:
        claims.read_claims(tmp_path)
    assert error.value.where == f"{other}: x" and str(one) in str(error.value.found)


@pytest.mark.parametrize("paper", LEDGERS)
def test_reference_files_are_named_after_their_table(paper: str) -> None:
    for path in sorted((PAPERS / paper / "reference").glob("*.csv")):
        frame = read_reference(path)
        assert len(frame) > 0
        assert frame["value"].cast(pl.Float64, strict=True).is_not_null().all()
        assert set(frame["table"]) == {path.stem}, path


def test_the_view_takes_rows_in_their_order() -> None:
    rows = [
        dict.fromkeys(COLUMNS, "") | {"model": str(n), "value": n, "setting": as_rows(pairs(f"k={n}"))} for n in (3, 1)
    ]
    with View(pl.DataFrame(rows, strict=False)) as view:
        assert view.values.tolist() == [3, 1]
        query = "SELECT model, value AS lhs, opt(setting, 'k')::int AS rhs FROM scores"
        assert view.sides(query, "x") == {"1": (1, 1), "3": (3, 3)}
