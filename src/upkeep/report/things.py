"""Pages of methods, datasets and models: what their folders say of them, and the suite's cells that have them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from upkeep.card_numbers import numbers, published
from upkeep.catalog import Catalog
from upkeep.contract import DatasetCard, DatasetSpec, MethodCard, ModelSpec
from upkeep.errors import UpkeepError
from upkeep.jobs import TrainedModel, Training, untrained
from upkeep.layout import Layout
from upkeep.published import asked
from upkeep.report.courses import went
from upkeep.report.overview import natural
from upkeep.report.ran import CellRow
from upkeep.report.site import Site, place_of

EXAMPLES = 5
"""Questions of a dataset that its page shows."""
SHOWN = 600
"""Characters of a document beside such a question."""


@dataclass(frozen=True, slots=True)
class Example:
    """A question of a dataset, and where its answer stands."""

    form: str
    question: str
    options: list[str]
    right: list[str]
    outdated: list[str]
    evidence: list[tuple[str, str]]
    """(document, the beginning of its text)."""


def write_things(catalog: Catalog, rows: Sequence[CellRow], site: Site, cards: Mapping[str, Any]) -> None:
    """Write the page of each method, dataset and model of these cells.

    Args:
        cards: the card of each dataset that is there, or why it is not.
    """
    for method in _each(row.cell.method for row in rows):
        own = sorted(
            (row for row in rows if row.cell.method == method),
            key=lambda row: (row.cell.dataset, natural(row.cell.variant), row.cell.model),
        )
        card: MethodCard = catalog.method(method)
        variants = sorted(card.variants.items(), key=lambda item: natural(item[0]))
        readme = _readme(catalog.root / "methods" / method)
        site.page(
            place_of("method", method), "method.html.j2", name=method, card=card, variants=variants, rows=own,
            readme=readme, **_cost(own),
        )  # fmt: skip
    for dataset in _each(row.cell.dataset for row in rows):
        found = cards.get(dataset)
        built = found if isinstance(found, DatasetCard) else None
        spec = catalog.dataset(dataset)
        own = [row for row in rows if row.cell.dataset == dataset]
        site.page(
            place_of("dataset", dataset), "dataset.html.j2", name=dataset, spec=spec, card=built,
            missing="" if built else str(found or "it is not built"), rows=own, numbers=_numbers(catalog, spec, built),
            readme=_readme(catalog.root / "datasets" / catalog.family_of(dataset)),
            examples=list(_examples(Layout(catalog.results).dataset(dataset))) if built else [],
        )  # fmt: skip
    for model in _each(row.cell.model for row in rows):
        if model != "none":
            _write_model(catalog, model, [row for row in rows if row.cell.model == model], site)


def _write_model(catalog: Catalog, model: str, rows: Sequence[CellRow], site: Site) -> None:
    spec: ModelSpec = catalog.spec(model)
    trained = TrainedModel.parse(model)
    trainings: list[Training] = list(_each(t for row in rows for t in catalog.trainings_of(row.cell)))
    folder = (catalog.root / catalog.model_card(model)).parent
    site.page(
        place_of("model", model), "model.html.j2", name=model, base=untrained(model), spec=spec, trained=trained,
        trainings=[went(catalog, one) for one in trainings], rows=rows, readme=_readme(folder), **_cost(rows),
    )  # fmt: skip


def _each(values: Iterable[Any]) -> Iterator[Any]:
    return iter(dict.fromkeys(values))


def _readme(folder: Path) -> str:
    path = folder / "README.md"
    return path.read_text("utf-8", errors="replace") if path.is_file() else ""


def _cost(rows: Iterable[CellRow]) -> dict[str, Any]:
    """What answers of these cells cost: tokens and calls for one, over all of them."""
    manifests = [row.manifest for row in rows if row.manifest]
    answers = sum(m.predictions for m in manifests)
    return {
        "answers": answers,
        "calls": sum(asked(m).calls for m in manifests),
        "prompt": sum(asked(m).prompt for m in manifests),
        "completion": sum(asked(m).completion for m in manifests),
    }


def _numbers(catalog: Catalog, spec: DatasetSpec, card: DatasetCard | None) -> list[tuple[str, float | None, Any]]:
    """(statistic, ours, the paper's) of a dataset."""
    own = numbers(card) if card else {}
    try:
        theirs = published(spec, catalog.root / "papers")
    except UpkeepError:  # `./upkeep dataset` tells it
        theirs = {}
    return [(name, own.get(name), theirs.get(name)) for name in own | theirs]


def _examples(folder: Path) -> Iterator[Example]:
    """Questions from all over a dataset, each different."""
    probes = pl.read_parquet(folder / "probes.parquet")
    gold = pl.read_parquet(folder / "gold.parquet", columns=["probe_id", "answers", "outdated", "evidence"])
    known = probes.join(gold, on="probe_id", how="left", maintain_order="left")
    known = known.filter(pl.col("evidence").list.len() > 0) if known["evidence"].list.len().sum() else known
    last = known.unique("question_id", keep="last", maintain_order=True)
    chosen = last.gather_every(max(1, len(last) // EXAMPLES)).head(EXAMPLES)
    wanted = chosen["evidence"].explode().drop_nulls().unique()
    documents = pl.scan_parquet(folder / "documents.parquet").filter(pl.col("document_id").is_in(wanted.implode()))
    texts = dict(documents.select("document_id", "text").collect().iter_rows())
    for row in chosen.iter_rows(named=True):
        yield Example(
            row["form"],
            row["question"],
            row["options"] or [],
            row["answers"],
            row["outdated"],
            [(name, _beginning(texts[name])) for name in row["evidence"][-2:] if name in texts],
        )


def _beginning(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]} …"
