"""Made-up verdicts for every cell of a paper's suite on its release, scored by the suite's own code.

Questions have the slices that the datasets' builders give, a dozen of each kind; nobody has answered them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from zlib import crc32

import numpy as np
import polars as pl

from upkeep.card_numbers import files_read_once
from upkeep.catalog import Catalog
from upkeep.contract import DatasetCard, DatasetSpec, Manifest, Published
from upkeep.grading import counted, score
from upkeep.grading.dataset_scores import score_dataset
from upkeep.grading.graded import TOKEN_F1, VALUE, VERDICTS, Graded
from upkeep.grading.judged import JUDGED, Judged, decided_by_judges, has_say
from upkeep.grading.judgements import Judgements, judgements_of
from upkeep.grading.key import Key
from upkeep.grading.matching import equivalence
from upkeep.grading.measuring import measured
from upkeep.grading.metric_families import family_of, second_of
from upkeep.grading.resampling import Draws
from upkeep.grading.score import SCORE_SCHEMA, identify
from upkeep.jobs import Cell
from upkeep.judges import called, each_of, judges_by_cell

EACH = 12
"""Questions of each kind: enough for an interval."""
INTERVALS = 10
"""Of a question that is asked again and again."""
CUTOFFS = ("2023-08-31", "2023-12-31", "2024-04-30", "2024-05-31", "2024-07-31", "2024-08-31")
CHANGES = {"sparse": 1, "moderate": 4, "frequent": 7}
BOOKS = (
    "the_count_of_monte_cristo", "demi_gods_and_semi_devils", "the_return_of_the_condor_heroes",
    "investiture_of_the_gods", "romance_of_the_three_kingdoms", "love_in_the_time_of_cholera", "pinball_1973",
    "rebecca", "in_search_of_the_castaways", "the_redeemer", "drawing_sword", "dwelling_narrowness", "distant_saviour",
)  # fmt: skip
KINDS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "oaks_babi": {"question_type": ["tracking", "counting", "bridge", "comparison"], "changes": list(CHANGES)},
    "oaks_novel": {"changes": list(CHANGES)},
    "evowiki": {
        "level": ["stable", "evolved", "uncharted"],
        "popularity": ["popularity_0_1", "popularity_2", "popularity_3", "popularity_4", "popularity_5_6"],
        "hops": ["single_hop", "multi_hop"],
        "changed": ["none", "before_cutoff", "after_cutoff"],
    },
    "prelude": {
        "book": BOOKS,
        "label": ["consistent", "contradict"],
        "study": ["human_study", "training"],
        "language": ["english", "chinese"],
        "generator": ["r1_generated", "gpt_generated"],
        "public": ["public", "not_public"],
    },
    "imprint_news": {
        "family": ["dir_acq", "temp_upd", "comp_rel", "imp_rel", "bound_abs"],
        "temp_upd": ["temp_upd_forward", "temp_upd_backward", "temp_upd_negation", "temp_upd_prior_identity"],
        "month": ["2026-02", "2026-03"],
    },
    "imprint_code": {
        "family": ["dir_acq", "ref_res", "comp_rel", "imp_rel", "bound_abs", "comp_rel_no_import", "imp_rel_unmerged"],
        "library": ["a", "b"],
    },
    "imprint_personal": {
        "family": ["dir_acq", "temp_upd", "ref_res", "comp_rel", "imp_rel", "bound_abs"],
        "persona": ["p", "q"],
        "source": ["personamem_v2", "horizonbench"],
    },
    "infbench": {"benchmark": ["infbench_mc"], "book": ["book_001", "book_002"]},
    "detectiveqa": {"benchmark": ["detectiveqa"], "book": ["novel_001"], "annotated": ["by_people", "model_assisted"]},
    "narrativeqa": {"benchmark": ["narrativeqa"], "book": ["a", "b"]},
    "nocha": {"benchmark": ["nocha_public"], "book": ["a", "b"], "claim": ["true_claim", "false_claim"]},
    "evolveqa_membership": {"membership": ["before_cutoff", "after_cutoff", "held_out"]},
}
"""Whose questions -> their slices. There are a dozen questions of each value of the first; those of the others come in
turn, each half as fast as the one before, or slower."""


def kind_of(catalog: Catalog, dataset: str) -> str:
    """Whose questions a dataset has."""
    family = catalog.family_of(dataset)
    return "evolveqa_membership" if dataset.endswith("_membership") else family


def _questions(catalog: Catalog, dataset: str) -> Iterator[dict[str, Any]]:
    kind = kind_of(catalog, dataset)
    if kind == "evolveqa":
        yield from _evolving(catalog.dataset(dataset).options)
        return
    first, *others = KINDS[kind].items()
    for place, value in enumerate(value for value in first[1] for _ in range(EACH)):
        slices, turn = {first[0]: value}, place
        for name, values in others:
            slices[name], turn = values[turn % len(values)], turn // len(values)
        if kind == "prelude":
            slices["kind"] = f"{slices['label']}_" + ("core" if slices["label"] == "consistent" else "local")
        yield {"question_id": f"q{place:03}", "slices": slices}


def _evolving(options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for n, cutoff in itertools.product(range(2 * EACH), CUTOFFS):
        for format, hint in itertools.product(
            options.get("formats", ["open_ended", "mcq", "verifiable"]), options.get("hints", ["none"])
        ):
            kind = "static" if options.get("control") else "superseding" if n % 4 else "additive"
            for half in ("a", "b") if format == "verifiable" else ("",):
                polarity = {"a": "yes", "b": "no"}.get(half, "no_polarity")
                slices = {"format": format, "cutoff": cutoff, "change": f"{format}_{kind}"}
                yield {
                    "question_id": f"item{n}.{format}" + (f".pair0{half}" if half else "") + f".{cutoff}.{hint}",
                    "slices": slices | {"polarity": polarity, "hints": hint},
                    "has_outdated": kind == "superseding",
                }


def key_of(catalog: Catalog, dataset: str) -> Key:
    """The answer key of a dataset, as far as scores need it."""
    spec, kind = catalog.dataset(dataset), kind_of(catalog, dataset)
    asked_again = kind.startswith("oaks")
    rows = []
    for place, question in enumerate(_questions(catalog, dataset)):
        slices = question["slices"]
        if slices.get("study") == "training" and spec.options.get("evaluate") == "subset":
            continue
        for position in range(INTERVALS if asked_again else 1):
            row = {"probe_id": f"{question['question_id']}@{position}", "question_id": question["question_id"]}
            row |= {"stream": f"s{place % 3}", "position": position, "form": "short", "options": None}
            phases = CHANGES.get(slices.get("changes", ""), 1)
            row |= {"phase": position * phases // INTERVALS, "has_evidence": True, "arrived_tokens": 100_000}
            row |= {"has_outdated": question.get("has_outdated", slices.get("level") == "evolved")}
            row |= {"accepted_answers": 1 + place % 2}
            rows.append(row | {f"slice_{name}": value for name, value in slices.items()})
    return Key(
        probes=pl.DataFrame(
            rows,
            schema={
                **dict.fromkeys(rows[0], pl.String()),
                **dict.fromkeys(("position", "phase", "accepted_answers"), pl.Int32()),
                **dict.fromkeys(("has_evidence", "has_outdated"), pl.Boolean()),
                "options": pl.List(pl.String),
                "arrived_tokens": pl.Int64(),
            },
        ),
        accepted=pl.DataFrame(),
        outdated=pl.DataFrame(),
        gold_chunk={},
        equivalence=equivalence(spec.equivalence),
        marker="",
        patterns={},
        made_of={},
    )


def card_of(dataset: str, spec: DatasetSpec, key: Key) -> DatasetCard:
    """The card of a dataset that was read from its release: each statistic that its paper prints is what is printed."""
    questions = key.probes.unique("question_id", keep="first", maintain_order=True)
    names = {name for name, printed in spec.published.items() if isinstance(printed, Published)}
    return DatasetCard(
        dataset=dataset,
        label=spec.label,
        source="",
        licence="",
        tokenizer="",
        chunk_tokens=1,
        streams=1,
        documents=1,
        probes=len(key.probes),
        questions=len(questions),
        slices={
            name.removeprefix("slice_"): dict(questions[name].value_counts().iter_rows())
            for name in questions.columns
            if name.startswith("slice_")
        },
        statistics=dict.fromkeys(sorted(names), 1.0),
        provenance="release",
        stands_for=None,
        content={},
        files={},
    )


def verdicts_of(catalog: Catalog, cell: Cell, key: Key, trials: int) -> Graded:
    """Verdicts on a cell, drawn by its dataset, method and depth: some right, some outdated, some neither."""
    card = catalog.method(cell.method)
    retrieved = int(card.variants[cell.variant].get("k", 0) or 0)
    rng = np.random.default_rng(crc32(f"{cell.dataset}/{cell.method}/{retrieved}".encode()))
    rows = key.probes.select("probe_id", "has_outdated").join(
        pl.DataFrame({"trial": pl.int_range(trials, dtype=pl.Int32, eager=True)}), how="cross"
    )
    right = rng.random(len(rows)) < rng.uniform(0.3, 0.7)
    outdated = ~right & rows["has_outdated"].to_numpy() & (rng.random(len(rows)) < 0.5)
    columns = {
        "answer": rng.choice(["a", "b", "c"], len(rows)),
        "parse": "whole",
        "right": right,
        "exact": right,
        "outdated": outdated,
        "failed": False,
        "rank": rng.integers(1, 9, len(rows)) if retrieved else None,
        "prompt_tokens": rng.integers(100, 200, len(rows)) + (0 if cell.method == "closed_book" else 1000),
        "completion_tokens": rng.integers(1, 50, len(rows)),
    }
    made = rows.select("probe_id", "trial").with_columns(
        **{
            name: pl.Series(value) if isinstance(value, np.ndarray) else pl.lit(value)
            for name, value in columns.items()
        }
    )
    made = made.with_columns(canonical="answer", verdict=pl.lit(None, pl.String))
    made = made.select(pl.col(name).cast(kind) for name, kind in VERDICTS.items())
    if card.measures:
        name = {"min_k_prob": "min_k_prob", "answer_probability": "first_token_logprob"}[cell.method]
        made = made.with_columns(pl.Series(f"{VALUE}{name}", -5 * rng.random(len(rows))))
    if key.equivalence.overlap:
        made = made.with_columns(pl.Series(f"{VALUE}{TOKEN_F1}", rng.random(len(rows))))
    return Graded(made, retrieved)


def judged_by(of: Judgements, key: Key, trials: int, name: str) -> Judged:
    """What a judge says of each response that it is asked about."""
    rng = np.random.default_rng(crc32(name.encode()))
    placed = of.placed(key.probes)
    parts = []
    for decides in of.decided:
        rubrics = {n: one.rubric for n, one in enumerate(of.of) if one.rubric is not None and one.decides == decides}
        meanings = sorted({meaning for rubric in rubrics.values() for meaning in rubric.verdicts.values()})
        probes = placed.filter(pl.col(decides).is_in(list(rubrics))).select("probe_id")
        rows = probes.join(pl.DataFrame({"trial": pl.int_range(trials, dtype=pl.Int32, eager=True)}), how="cross")
        parts.append(
            rows.with_columns(
                decides=pl.lit(decides),
                verdict=pl.lit("Y"),
                meaning=pl.Series(rng.choice(meanings, len(rows)), dtype=pl.String),
            )
        )
    return Judged(pl.concat(parts).select(pl.col(n).cast(kind) for n, kind in JUDGED.items()), 0, "")


def once(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of verdicts, worked out once for the same: those of cells that differ in their model alone are."""
    known: dict[object, Any] = {}

    def name(value: object) -> object:
        if isinstance(value, pl.DataFrame):
            return (*value.columns, len(value), value.hash_rows().sum())
        return tuple((key, name(one)) for key, one in value.items()) if isinstance(value, dict) else value

    def asked(*given: Any) -> Any:
        key = tuple(name(one) for one in given if isinstance(one, (pl.DataFrame, dict, int)))
        if key not in known:
            known[key] = function(*given)
        return known[key]

    return asked


def scores_of(catalog: Catalog, suite: str) -> tuple[list[Cell], pl.DataFrame]:
    """The cells of a suite that ask a model, and the scores (SCORE_SCHEMA) of all of them and of their datasets, as
    `upkeep.grading.scores` works them out; every dataset as if it were its paper's release."""
    spec = catalog.suite(suite)
    cells, judges = [c for c in catalog.cells(spec) if c.model != "none"], judges_by_cell(catalog, spec)
    names, trials = called(catalog, each_of(judges)), spec.trials
    read, papers = files_read_once(), catalog.root / "papers"
    asked: Any = SimpleNamespace(trials=trials)
    manifest: Manifest = asked
    parts = [pl.DataFrame(schema=SCORE_SCHEMA)]
    for dataset in dict.fromkeys(cell.dataset for cell in cells):
        of, key = catalog.dataset(dataset), key_of(catalog, dataset)
        card, draws = card_of(dataset, of, key), Draws(dataset, key.probes["question_id"].unique())
        parts.append(score_dataset(dataset, of, card, key, papers, read))
        family, judgements = family_of(catalog, dataset), judgements_of(catalog, dataset)
        with patch.multiple(score, measured=once(measured), decided_by_judges=once(decided_by_judges)):
            for cell in (cell for cell in cells if cell.dataset == dataset):
                known_as = identify(catalog, cell, card)
                metrics = family.of_values() if known_as.measures else family
                others = {second: second_of(second, cell) for second, _ in metrics.of_two}
                beside = {
                    second: verdicts_of(catalog, other, key, trials)
                    for second, other in others.items()
                    if other is not None and other in judges
                }
                said = {
                    names[judge]: judged_by(judgements, key, trials, f"{judge} {dataset}")
                    for judge in judges[cell]
                    if has_say(catalog, cell, judge)
                }
                found = verdicts_of(catalog, cell, key, trials)
                scored = score.score_cell(
                    found, manifest, cell, known_as, key, metrics, draws, beside, judgements, said
                )
                parts.append(scored.rows)
    table = pl.concat(parts)
    return cells, pl.concat([table, counted.sums(table, counted.joined(catalog, spec.papers, read))])
