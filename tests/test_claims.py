"""Claims: every one gives on the published numbers what its file says, and on our own what the scores say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from upkeep.errors import UpkeepError
from upkeep.grading.score import SCORE_SCHEMA
from upkeep.report import claims, tables

PAPERS = Path(__file__).resolve().parents[1] / "papers"
LEDGERS = {path.parent.name: claims.read_claims(path.parent) for path in sorted(PAPERS.glob("*/claims.yaml"))}
SHIPPED = ("oaks", "imprintbench", "evolveqa", "prelude", "evowiki")


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


@pytest.mark.parametrize("paper", LEDGERS)
def test_claims_without_scores_are_not_run(paper: str) -> None:
    verdicts = claims.own(pl.DataFrame(schema=SCORE_SCHEMA), LEDGERS[paper])
    assert {verdict.outcome for verdict in verdicts.values()} == {"not_run"}


def claim(*queries: str, op: str = ">", quantifier: str = "all") -> claims.Claim:
    return claims.Claim(
        id="x",
        where="",
        statement="",
        checks=[claims.Check(query=q, op=op, quantifier=quantifier, rows=0, table="t") for q in queries],  # type: ignore[arg-type]
        published="holds",
        needs={},
    )


def outcome(tested: claims.Claim, scores: pl.DataFrame | None = None) -> str:
    return claims.own(pl.DataFrame(schema=SCORE_SCHEMA) if scores is None else scores, [tested])["x"].outcome


def values(*pairs: tuple[object, object]) -> str:
    return "SELECT * FROM (VALUES " + ", ".join(f"('c', {a}, {b})" for a, b in pairs) + ") AS t(name, lhs, rhs)"


def test_all_means_every_row_and_most_more_than_half() -> None:
    half, more = values((2, 1), (1, 2)), values((2, 1), (2, 1), (1, 2))
    assert outcome(claim(values((2, 1), (3, 1)))) == "holds"
    assert outcome(claim(more)) == "fails"
    assert outcome(claim(more, quantifier="most")) == "holds"
    assert outcome(claim(half, quantifier="most")) == "fails"


@pytest.mark.parametrize(("op", "equal"), [(">", "fails"), (">=", "holds"), ("<", "fails"), ("<=", "holds")])
def test_equal_sides(op: str, equal: str) -> None:
    assert outcome(claim(values((1, 1)), op=op)) == equal


def test_a_claim_holds_when_all_checks_do_and_is_not_run_when_one_has_no_rows() -> None:
    yes, no, nothing = values((2, 1)), values((1, 2)), "SELECT 1.0 AS lhs, 2.0 AS rhs WHERE false"
    assert outcome(claim(yes, yes)) == "holds"
    assert outcome(claim(yes, nothing)) == "not_run"
    assert outcome(claim(no, nothing)) == "fails"


def test_a_row_with_a_missing_side_is_no_case() -> None:
    assert outcome(claim(values(("NULL::DOUBLE", 1), ("'nan'::DOUBLE", 1)))) == "not_run"
    assert outcome(claim(values(("NULL::DOUBLE", 1), (2, 1)))) == "holds"


def row(**fields: Any) -> dict[str, Any]:
    given = dict.fromkeys(SCORE_SCHEMA, "") | dict.fromkeys(
        ["n", "questions", "se", "low", "high", "predictions", "unread", "failed"]
    )
    given |= {
        "dataset": "oaks_babi",
        "dataset_id": "oaks_babi",
        "method": "long_context",
        "value": 1.0,
        "trained": True,
    }
    return given | fields


def test_the_view_has_settings_by_key_and_empty_strings() -> None:
    scores = pl.DataFrame([row(setting="k=30;thinking=on", value=5.0)], schema=SCORE_SCHEMA)
    read = "SELECT value AS lhs, 4.0 AS rhs FROM scores WHERE opt(setting, 'thinking') = 'on' AND model = ''"
    assert outcome(claim(read), scores) == "holds"
    assert outcome(claim(read.replace("'thinking'", "'hinking'")), scores) == "not_run"
    assert outcome(claim(read.replace("'thinking') = 'on'", "'window') = ''")), scores) == "holds"


def test_only_trained_models_on_the_papers_datasets_speak_about_a_claim() -> None:
    rows = [row(model="real"), row(model="tiny", trained=False), row(model="mini", dataset_id="oaks_babi_mini")]
    scores = pl.DataFrame([*rows, row(method="", metric="question_count")], schema=SCORE_SCHEMA)
    assert claims.comparable(scores)["model"].to_list() == ["real"]
    assert claims.on_stand_ins(scores)["model"].to_list() == ["mini"]


def test_a_query_cannot_reach_files_or_the_network(tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("lhs,rhs\n2,1\n")
    with pytest.raises(UpkeepError, match="query of a check fails"):
        outcome(claim(f"SELECT lhs, rhs FROM read_csv('{tmp_path}/secret.csv')"))


def test_a_broken_query_names_its_claim() -> None:
    with pytest.raises(UpkeepError, match=r"(?s)x: the query of a check fails"):
        outcome(claim("SELECT lhs FROM nowhere"))
    with pytest.raises(UpkeepError, match="lacks a side"):
        outcome(claim("SELECT 1.0 AS lhs"))


def test_a_misspelt_claim_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "claims.yaml").write_text("- {id: a, statment: b}\n")
    with pytest.raises(UpkeepError, match="statment"):
        claims.read_claims(tmp_path)
    with pytest.raises(UpkeepError, match="not found"):
        claims.read_claims(tmp_path / "nowhere")


@pytest.mark.parametrize("paper", LEDGERS)
def test_reference_files_are_named_after_their_table(paper: str) -> None:
    for path in sorted((PAPERS / paper / "reference").glob("*.csv")):
        frame = tables.read_reference(path)
        assert len(frame) > 0
        assert frame["value"].cast(pl.Float64, strict=True).is_not_null().all()
        assert set(frame["table"]) == {path.stem}, path
