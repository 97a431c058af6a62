"""`./upkeep dataset baselines`: what answers without a model and without reading score, and which exceed chance."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from upkeep.catalog import Catalog
from upkeep.contract import Baselines
from upkeep.grading.baselines import baselines
from upkeep.grading.exceeding import ORDER, Excess, excesses, words
from upkeep.layout import Layout


def show(catalog: Catalog, name: str | None, *, as_json: bool) -> None:
    """Print the baselines of a dataset; where none is named, of all that are built.

    Raises:
        UpkeepError: there is no such dataset, or it is not built.
    """
    if name is not None:
        catalog.dataset(name)
    layout = Layout(catalog.results)
    names = [name] if name else [one for one in catalog.datasets if (layout.dataset(one) / "card.json").exists()]
    found = [baselines(catalog, one) for one in names]
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        print("\n".join(lines(catalog, found)))


def lines(catalog: Catalog, found: Iterable[Baselines]) -> list[str]:
    """A table, a line a dataset and form, and below it which exceed chance, slices too."""
    rows = [("dataset", "form", "n", "chance", *map(words, ORDER))]
    told = []
    for one in found:
        for kind in one.kinds:
            if not kind.slice:
                values = (f"{kind.found[name]:.1f}" if name in kind.found else "–" for name in ORDER)
                chance = f"{kind.chance:.1f}" if kind.exact else f"~{kind.chance:.1f}"
                rows.append((one.dataset, kind.form, f"{kind.probes:,}", chance, *values))
        told += [f"{one.dataset}: {excess.told()}" for excess in _excesses(catalog, one)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = [
        "  ".join(
            text.ljust(w) if place < 2 else text.rjust(w)
            for place, (text, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return table + ([""] if told else []) + told


def warnings(catalog: Catalog, found: Baselines) -> list[str]:
    """What a build says of a dataset's baselines: a warning each, or a remark where the card has the reason."""
    return [
        f"{'remark' if one.reason else 'warning'}: {found.dataset}: {one.told()}" for one in _excesses(catalog, found)
    ]


def _excesses(catalog: Catalog, found: Baselines) -> list[Excess]:
    where = catalog.family_card(catalog.family_of(found.dataset))
    return excesses(found, catalog.dataset(found.dataset).implied, where)
