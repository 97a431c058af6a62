"""What baselines that use no model and read nothing score on the datasets of a suite, for the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from upkeep.catalog import Catalog
from upkeep.contract import DatasetCard, Kind
from upkeep.grading.baselines import baselines
from upkeep.grading.exceeding import ORDER, Excess, excesses, words
from upkeep.grading.scores import Scores


@dataclass(frozen=True, slots=True)
class Row:
    """One form of a dataset's questions."""

    dataset: str
    kind: Kind
    above: Mapping[str, Excess]
    """Baseline -> what is told of it, where it is above chance."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What the page has of them."""

    names: Mapping[str, str] = field(default_factory=lambda: {name: words(name) for name in ORDER})
    """Baseline -> what readers know it by."""
    rows: list[Row] = field(default_factory=list)
    above: list[tuple[str, Excess]] = field(default_factory=list)
    """(dataset, what is above chance), slices too."""


def shown(catalog: Catalog, scores: Scores) -> Shown:
    """Those of the suite's datasets that are built and can be scored."""
    page = Shown()
    for name in dict.fromkeys(cell.dataset for cell in scores.basis.cells):
        if name in scores.refused or not isinstance(scores.basis.datasets[name], DatasetCard):
            continue
        found, card = baselines(catalog, name), catalog.family_card(catalog.family_of(name))
        above = excesses(found, catalog.dataset(name).implied, card)
        page.above.extend((name, one) for one in above)
        page.rows.extend(
            Row(name, kind, {one.baseline: one for one in above if one.kind is kind})
            for kind in found.kinds
            if not kind.slice
        )
    return page
