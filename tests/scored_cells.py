"""What tests of scores share: small datasets, cells and their predictions, graded and scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

from conftest import ROOT
from host_fakes import PROMPT
from upkeep import published
from upkeep.building.content import content
from upkeep.catalog import Catalog
from upkeep.contract import (
    ContextUse,
    DatasetCard,
    Environment,
    Manifest,
    Prediction,
    Usage,
)
from upkeep.grading import score
from upkeep.grading.graded import grade_cell
from upkeep.grading.key import Key, key_in
from upkeep.grading.metric_families import read_family
from upkeep.grading.resampling import Draws
from upkeep.grading.settings import option
from upkeep.integrity import fingerprint, read_sealed, write_sealed
from upkeep.jobs import Cell

CELL = Cell("oaks_babi", "rag_dense", "k30", "m")
SETTING = (("k", "30"), ("thinking", "off"))
IDENTITY = score.Identity("RAG", "M", "rag_dense", "", SETTING, "oaks_babi", "oaks_babi_mini", "stand_in", "mini", True)
OAKS = read_family(ROOT / "papers/oaks/metrics.py")
Question = Sequence[tuple[list[str], list[str]]]
"""Accepted answers and evidence of a question, one pair an interval."""
ARRIVING = {"stream": pl.String, "position": pl.Int32, "tokens": pl.Int32}
"""What scores ask of documents."""


def write_dataset(
    folder: Path,
    questions: Mapping[str, Question],
    slices: Mapping[str, str] | None = None,
    name: str = "oaks_babi_mini",
) -> None:
    """A built dataset. A new phase begins where the accepted answers change."""
    probes, gold = [], []
    for question, timeline in questions.items():
        phase = 0
        for t, (answers, evidence) in enumerate(timeline):
            phase += t > 0 and answers != timeline[t - 1][0]
            probes.append({"probe_id": f"{question}@{t}", "question_id": question, "stream": "s", "position": t})
            gold.append(
                {
                    "probe_id": f"{question}@{t}",
                    "answers": answers,
                    "outdated": [],
                    "evidence": evidence,
                    "phase": phase,
                    "slice_changes": (slices or {}).get(question),
                }
            )
    folder.mkdir(parents=True, exist_ok=True)
    types = {"phase": pl.Int32, "position": pl.Int32, "slice_changes": pl.String}
    lists = {"answers": pl.List(pl.String), "outdated": pl.List(pl.String), "evidence": pl.List(pl.String)}
    table = pl.DataFrame(probes, schema_overrides={"position": pl.Int32}).with_columns(
        form=pl.lit("short"), options=pl.lit(None, pl.List(pl.String))
    )
    table.write_parquet(folder / "probes.parquet")
    key = pl.DataFrame(gold, schema_overrides={k: v for k, v in {**types, **lists}.items() if k != "position"})
    key.write_parquet(folder / "gold.parquet")
    last = max((len(timeline) for timeline in questions.values()), default=0)
    documents = pl.DataFrame([("s", n, 10) for n in range(last)], schema=ARRIVING, orient="row")
    documents.write_parquet(folder / "documents.parquet")
    card = DatasetCard(
        dataset=name,
        label="OAKS-B mini",
        source="test",
        licence="none",
        tokenizer="none",
        chunk_tokens=10,
        streams=1,
        documents=1,
        probes=len(probes),
        questions=len(questions),
        slices={"changes": {"sparse": 3, "frequent": 1}},
        statistics={},
        provenance="stand_in" if name == "oaks_babi_mini" else "own",
        stands_for="oaks_babi" if name == "oaks_babi_mini" else None,
        content=content(documents, table, key, []),
        files={f"{name}.parquet": fingerprint(folder / f"{name}.parquet") for name in ("gold", "probes", "documents")},
    )
    write_sealed(folder / "card.json", card)


def line(probe: str, answer: str | None, **fields: Any) -> Prediction:
    given = {
        "trial": 0,
        "response": answer,
        "reasoning": None,
        "finish_reason": "stop",
        "retrieved": [],
        "usage": Usage(),
        "context": ContextUse(),
        "error": None,
    }
    return Prediction(probe_id=probe, **given | fields)


def write_cell(
    folder: Path, lines: Sequence[Prediction], probes: int | None = None, trials: int = 1, cell: Cell = CELL
) -> None:
    data = b"".join(msgspec.json.encode(p) + b"\n" for p in lines)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "predictions.jsonl").write_bytes(data)
    environment = Environment(
        runtime="process",
        isolated=False,
        image=None,
        digest=None,
        engine="none",
        engine_version="0",
        packages={},
        hardware={},
    )
    manifest = Manifest(
        cell=str(cell),
        identity="0" * 64,
        identity_parts={},
        environment=environment,
        seed=0,
        start="2026-01-01T00:00:00Z",
        end="2026-01-01T00:00:01Z",
        attempts=[],
        probes=probes if probes is not None else len(lines) // trials,
        trials=trials,
        outcomes={"answered": len(lines)},
        usage=Usage(),
        measured={},
        files={"predictions.jsonl": fingerprint(folder / "predictions.jsonl")},
    )
    write_sealed(folder / "manifest.json", manifest)


def manifest_of(cell: Path) -> Manifest:
    return read_sealed(cell / "manifest.json", Manifest, "")


def key_of(folder: Path) -> Key:
    return key_in(folder, "short_answer", "## Answer:")


def scored(tmp: Path, cell: Cell = CELL) -> pl.DataFrame:
    """The scores of the cell in `tmp` on the dataset there."""
    key, manifest = key_of(tmp / "dataset"), manifest_of(tmp / "cell")
    found, draws = grade_cell(tmp / "cell", manifest, cell, key), Draws(cell.dataset, key.probes["question_id"])
    return score.score_cell(found, manifest, cell, IDENTITY, key, OAKS, draws).rows


def scores_of(
    tmp: Path,
    questions: Mapping[str, Question],
    lines: Sequence[Prediction],
    slices: Mapping[str, str] | None = None,
    trials: int = 1,
) -> dict[tuple[str, str], dict[str, Any]]:
    """(subset, metric) -> row; `pass_at_<k>` is the metric of pass@k, `<metric>_<n>` any other at n."""
    write_dataset(tmp / "dataset", questions, slices)
    write_cell(tmp / "cell", lines, trials=trials)
    frame = scored(tmp)
    rows = list(frame.with_columns(at=option("at")).iter_rows(named=True))
    named = {(row["subset"], f"{row['metric']}_{row['at']}" if row["at"] else row["metric"]): row for row in rows}
    return {(subset, name.replace("pass_at_k_", "pass_at_")): row for (subset, name), row in named.items()}


def timeline(answers: str) -> list[tuple[list[str], list[str]]]:
    """One accepted answer an interval, one letter each."""
    return [([letter], []) for letter in answers]


def answered(name: str, answers: str, **fields: Any) -> list[Prediction]:
    """One answer an interval; `.` is none."""
    return [line(f"{name}@{t}", None if a == "." else a, **fields) for t, a in enumerate(answers)]


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """A small suite: two datasets, of which one is not built, a trained model, and a control."""
    files = {
        "config/config.yaml": "suite: x",
        "papers/oaks/metrics.py": Path(OAKS.where).read_text(),
        "papers/oaks/prompts/short.yaml": PROMPT,
        "datasets/oaks_babi_mini/dataset.yaml": "{label: B, summary: s, paper: oaks, source: s, licence: l, "
        "provenance: stand_in, stands_for: oaks_babi, prompt: short, equivalence: short_answer, metrics: oaks}",
        "datasets/oaks_novel/dataset.yaml": "{label: N, summary: s, paper: oaks, source: s, licence: l, "
        "prompt: short, equivalence: letter, metrics: oaks}",
        "methods/gold/method.yaml": "{label: Gold, papers: [oaks], summary: s, reference: r, variants: {default: {}}, "
        "model: false, sees: answers}",
        "methods/rag_dense/method.yaml": "{label: RAG, papers: [oaks], summary: s, reference: r, settings: [k], "
        "variants: {k5: {k: 5}, k30: {k: 30}}}",
        "methods/sft/method.yaml": "{label: SFT, papers: [], summary: s, reference: r, settings: [adapter], "
        "supervision: Q, variants: {lora: {adapter: lora}}, trains: true}",
        "models/tiny/model.yaml": "{label: Tiny, summary: s, source: rule, location: tiny, context_length: 100, "
        "trained: false, thinking: 'on'}",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return Catalog(tmp_path)


def suite_of(catalog: Catalog, *cells: Cell) -> Catalog:
    """The same with a suite `s` of these cells."""
    choices = [f"{{datasets: [{c.dataset}], methods: [{c.method}/{c.variant}], models: [{c.model}]}}" for c in cells]
    path = catalog.root / "config" / "suites" / "s.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{{label: s, summary: s, papers: [], cells: [{', '.join(choices)}]}}")
    return Catalog(catalog.root)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Datasets are of the present code, and cells of the identity that they say."""
    monkeypatch.setattr(published, "require_fresh", lambda *_: None)
    monkeypatch.setattr(published, "identity", lambda *_: ("0" * 64, {}))
