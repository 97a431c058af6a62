"""How cells of a dataset differ in accuracy, and whether by chance: what the page of two side by side says of them.

`cells/<cell>/paired.js` has it of the cell and each other whose answers the report has, as `upkeep diff` tells it.
"""

from __future__ import annotations

from collections.abc import Mapping

from upkeep.catalog import Catalog
from upkeep.contract import Manifest
from upkeep.grading.graded import graded
from upkeep.grading.key import read_key
from upkeep.grading.paired import each_pair, sentences, shares
from upkeep.jobs import Cell
from upkeep.report.site import Site, folder_of


def write_pairs(catalog: Catalog, dataset: str, cells: Mapping[Cell, Manifest], site: Site) -> None:
    """Write for each of some cells of a dataset how each other differs from it.

    Args:
        cells: published ones that count, with their manifests.

    Raises:
        UpkeepError: a cell or the dataset is not what was published.
    """
    if not cells:
        return
    own = read_key(catalog, dataset)
    rights = {}
    for cell, manifest in cells.items():
        if catalog.method(cell.method).measures:  # it answers nothing that is right or wrong
            continue
        key = own.asked_of(manifest)
        rights[str(cell)] = shares(graded(catalog, cell, manifest, key).with_key(key, manifest.trials))
    told: dict[str, dict[str, list[str]]] = {str(cell): {} for cell in cells}
    for one, other, found in each_pair(rights):
        told[one][other] = list(sentences(found))
    for name, others in told.items():
        site.data(f"{folder_of(name)}/paired", others)
