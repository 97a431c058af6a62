"""What baselines that use no model and read nothing score on the datasets of a suite, and what people who marked a
sample said of these, for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from upkeep import inputs
from upkeep.catalog import Catalog
from upkeep.contract import DatasetCard, Kind
from upkeep.errors import UpkeepError
from upkeep.grading.audited import ASPECTS, Aspect, audit_of, precision
from upkeep.grading.baselines import baselines
from upkeep.grading.exceeding import ORDER, Excess, excesses, words
from upkeep.grading.scores import Scores
from upkeep.layout import Layout
from upkeep.normal_form import read_table


@dataclass(frozen=True, slots=True)
class Row:
    """One form of a dataset's questions."""

    dataset: str
    kind: Kind
    above: Mapping[str, Excess]
    """Baseline -> what is told of it, where it is above chance."""
    marked: Mapping[str, Mapping[str, Any]]
    """Aspect -> the share of probes that were marked so, with its interval (`audited.precision`)."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What the page has of them."""

    names: Mapping[str, str] = field(default_factory=lambda: {name: words(name) for name in ORDER})
    """Baseline -> what readers know it by."""
    rows: list[Row] = field(default_factory=list)
    above: list[tuple[str, Excess]] = field(default_factory=list)
    """(dataset, what is above chance), slices too."""
    faults: list[UpkeepError] = field(default_factory=list)
    """Audits that do not count, and why."""

    @property
    def aspects(self) -> Sequence[str]:
        """Those that anybody has marked a dataset for."""
        return [aspect for aspect in ASPECTS if any(aspect in row.marked for row in self.rows)]


def shown(catalog: Catalog, scores: Scores) -> Shown:
    """Those of the suite's datasets that are built and can be scored."""
    page = Shown()
    for name in dict.fromkeys(cell.dataset for cell in scores.basis.cells):
        if name in scores.refused or not isinstance(scores.basis.datasets[name], DatasetCard):
            continue
        found, card = baselines(catalog, name), catalog.family_card(catalog.family_of(name))
        above = excesses(found, catalog.dataset(name).implied, card)
        page.above.extend((name, one) for one in above)
        marked = _marked(catalog, name, page.faults)
        page.rows.extend(
            Row(name, kind, {one.baseline: one for one in above if one.kind is kind}, marked.get(kind.form, {}))
            for kind in found.kinds
            if not kind.slice
        )
    return page


def _marked(catalog: Catalog, name: str, faults: list[UpkeepError]) -> dict[str, dict[str, dict[str, Any]]]:
    """Form -> aspect -> row of `precision`; empty where nobody has marked the dataset, or the marks do not count."""
    folder = Layout(catalog.results).dataset(name)
    try:
        audit = audit_of(folder, inputs.dataset(catalog, name))
    except UpkeepError as fault:
        faults.append(fault)
        return {}
    if audit is None:
        return {}
    forms = dict(read_table(folder, "probes").select("probe_id", "form").iter_rows())
    marks: dict[str, dict[str, Mapping[Aspect, bool]]] = {}
    for probe, said in audit.marks.marks.items():
        marks.setdefault(forms[probe], {})[probe] = said
    return {form: {row["metric"]: row for row in precision(own).to_dicts()} for form, own in marks.items()}
