"""`./upkeep dataset baselines`: what answers without a model and without reading score, and which exceed chance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from upkeep.catalog import Catalog
from upkeep.contract import Baselines
from upkeep.grading.baselines import baselines
from upkeep.grading.exceeding import ORDER, excesses, words
from upkeep.layout import Layout


def of(catalog: Catalog, name: str | None) -> list[Baselines]:
    """The baselines of a dataset; where none is named, of all that are built.

    Raises:
        UpkeepError: there is no such dataset, or it is not built.
    """
    if name is not None:
        catalog.dataset(name)
    layout = Layout(catalog.results)
    names = [name] if name else [one for one in catalog.datasets if (layout.dataset(one) / "card.json").exists()]
    return [baselines(catalog, one) for one in names]


def lines(catalog: Catalog, found: Sequence[Baselines]) -> list[str]:
    """A table of baselines, and what is remarkable of them."""
    told = [line for one in found for line in warnings(catalog, one)]
    return [*table(found), *(["", *told] if told else [])]


def table(found: Iterable[Baselines]) -> list[str]:
    """A line a dataset and form, in percent; `~` where chance is by draws, `–` where a form has no such baseline."""
    rows = [("dataset", "form", "n", "chance", *map(words, ORDER))]
    for one in found:
        for kind in one.kinds:
            if not kind.slice:
                values = (f"{kind.found[name]:.1f}" if name in kind.found else "–" for name in ORDER)
                chance = f"{'' if kind.exact else '~'}{kind.chance:.1f}"
                rows.append((one.dataset, kind.form, f"{kind.probes:,}", chance, *values))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([f"{text:<{w}}" for text, w in pairs[:2]] + [f"{text:>{w}}" for text, w in pairs[2:]])
        for pairs in (list(zip(row, widths, strict=True)) for row in rows)
    ]


def warnings(catalog: Catalog, found: Baselines) -> list[str]:
    """A line for each baseline above chance, of slices too: a warning, or a remark where the card has the reason."""
    where = catalog.family_card(catalog.family_of(found.dataset))
    above = excesses(found, catalog.dataset(found.dataset).implied, where)
    return [f"{'remark' if one.reason else 'warning'}: {found.dataset}: {one.told()}" for one in above]
