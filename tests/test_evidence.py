"""OAKS, E.2: whether answers rest on the evidence that people marked, as a judge sees it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from conftest import ROOT
from endpoint_fakes import FakeEndpoint, be_quick
from judged_cells import JUDGES, PROBES, judged_by, repository, server
from metric_cells import OAKS, scored, verdicts
from upkeep.building.build import build_dataset
from upkeep.building.store import load
from upkeep.catalog import Catalog
from upkeep.contract import Document, Gold, Probe
from upkeep.grading.judged import decided_by_judges
from upkeep.grading.judgements import judgements_of
from upkeep.grading.markers import has_reasons
from upkeep.grading.metric_families import read_family

__all__ = ["server"]

RATES = ("both_right_rate", "both_wrong_rate", "right_on_other_evidence_rate", "wrong_on_right_evidence_rate")
EVIDENCE = JUDGES.replace('user: "{question}', 'reasoned: true\n      user: "{evidence} {question}')
REASONED = "{'response': 'For it is told so there.\\n## Answer: x'}"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    be_quick(monkeypatch)


# ---------------------------------------------------------------- what is judged


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("She says that he left.\n## Answer: C", True),
        ("## Answer: C", False),
        ("**Final Answer:** C", False),
        ("The answer: C", False),
        ("C", False),
        ("", False),
        ('{"answer": "C"}', False),
        ("He came by train, as the porter tells his wife.", True),
        ("The first answer: A. But later he takes the ship.\n## Answer: C", True),
        ("x" * 100_000, False),
    ],
)
def test_reasons_are_some_words_before_the_answer(response: str, expected: bool) -> None:
    assert has_reasons(response) is expected


def test_a_judge_is_shown_the_sentences_and_asked_where_there_are_any(tmp_path: Path, server: FakeEndpoint) -> None:
    rows, _ = judged_by(repository(tmp_path, server.url, EVIDENCE, REASONED, quoted=True))
    told = [body["messages"][1]["content"] for body in server.bodies]
    asked = {probe for probe in rows["probe_id"] if f"It tells {probe}." in " ".join(told)}
    assert asked == set(rows["probe_id"]) and {probe[1] for probe in asked} == {"0"}
    assert 0 < len(rows) == len(told) < PROBES


@pytest.mark.parametrize(
    "more", ["{'response': '## Answer: x'}", "{'response': ''}", "{'response': None, 'error': 'e'}"]
)
def test_responses_without_reasons_have_no_verdict(tmp_path: Path, server: FakeEndpoint, more: str) -> None:
    rows, _ = judged_by(repository(tmp_path, server.url, EVIDENCE, more, quoted=True))
    assert rows.is_empty() and server.bodies == []


def test_nothing_that_a_method_can_get_holds_the_sentences() -> None:
    sent = {name for record in (Document, Probe, Gold) for name in record.__struct_fields__}
    assert "evidence" in sent and "quotes" not in sent


def test_the_small_stories_tell_each_answer_in_the_words_that_are_kept(tmp_path: Path) -> None:
    build_dataset(Catalog(ROOT), "oaks_novel_mini", tmp_path / "out")
    data = load(tmp_path / "out")
    texts = dict(data.documents.select("document_id", "text").iter_rows())
    for evidence, quotes in data.gold.select("evidence", "quotes").iter_rows():
        assert bool(quotes) is bool(evidence)
        whole = " ".join(texts[name] for name in evidence)
        assert all(quote in whole for quote in quotes)


# ---------------------------------------------------------------- what becomes of it


def judged(*cases: tuple[bool, bool | None]) -> dict[str, Any]:
    """Metric -> its score over all questions, where these are right and rest on the evidence."""
    graded = verdicts(*({"right": right, "has_evidence": True, "canonical": "A"} for right, _ in cases))
    graded = graded.with_columns(judged_evidence=pl.Series([said for _, said in cases], dtype=pl.Boolean))
    return {metric: row for (subset, metric), row in scored(OAKS, graded).items() if subset == "all"}


def test_the_four_are_shares_of_the_judged_responses_and_sum_to_100() -> None:
    found = judged((True, True), (True, False), (True, None), (False, True), (False, False), (False, False))
    assert [found[name]["value"] for name in RATES] == [20, 40, 20, 20]
    assert {found[name]["n"] for name in RATES} == {5}


def test_where_no_response_was_judged_there_is_no_such_score() -> None:
    assert not set(RATES) & set(judged((True, None), (False, None)))
    assert judged((True, None))["accuracy"]["value"] == 100


def test_the_judge_decides_these_scores_and_no_other() -> None:
    of = judgements_of(Catalog(ROOT), "oaks_novel")
    graded = verdicts(
        *({"right": n % 2 == 0, "has_evidence": True, "canonical": "A", "form": "choice"} for n in range(4))
    )
    assert {metric for _, metric, _ in decided_by_judges(OAKS, graded, 0, of)} == set(RATES)


def test_what_is_neither_right_nor_outdated_is_decided_by_a_judge_as_well() -> None:
    family, of = read_family(ROOT / "papers/evolveqa/metrics.py"), judgements_of(Catalog(ROOT), "evolveqa_aws")
    slices = {"format": "open_ended", "cutoff": "2024-07-31", "change": "open_ended_superseding", "hints": "none"}
    graded = verdicts(
        {"right": True, "form": "short", "model_cutoff": "2024-08-18"}, **{k: [v] for k, v in slices.items()}
    )
    decided = {metric for subset, metric, _ in decided_by_judges(family, graded, 0, of) if subset == "open_ended"}
    assert decided == {"accuracy", "outdated_rate", "incorrect_rate"}
