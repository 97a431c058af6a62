"""Families of metrics: a paper's own, `papers/<paper>/metrics.py`, and the one that all share, `answers`."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import polars as pl

from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError, raised_at
from upkeep.files import digest
from upkeep.grading import answers
from upkeep.grading.metrics import Family, Second
from upkeep.jobs import Cell, untrained
from upkeep.sources import tree

FILE = "metrics.py"
SHARED = {"answers": answers.FAMILY}
"""Families of no paper, by the name that `dataset.yaml` gives in `metrics`."""
REMEDY = "mend it: papers/FORMAT.md, `metrics.py`"


def family_of(catalog: Catalog, dataset: str) -> Family:
    """The metrics that a dataset's card names.

    Raises:
        UpkeepError: there are none of that name, or their code cannot be imported or has no FAMILY.
    """
    if (name := metrics_of(catalog, dataset)) in SHARED:
        return SHARED[name]
    path = Path(name)
    if not path.is_file():
        known = sorted({*SHARED, *(found.parent.name for found in (catalog.root / "papers").glob(f"*/{FILE}"))})
        raise UpkeepError(
            f"unknown metrics {catalog.dataset(dataset).metrics!r}",
            where=f"{catalog.family_card(catalog.family_of(dataset))}: metrics",
            expected=f"one of {', '.join(known)}",
            found=f"no {path.relative_to(catalog.root)}",
        )
    return catalog.once(read_family, path)


def metrics_of(catalog: Catalog, dataset: str) -> str:
    """What `family_at` knows a dataset's metrics by: the name of those that all share, or else a file."""
    name = catalog.dataset(dataset).metrics
    return name if name in SHARED else str(catalog.root / "papers" / name / FILE)


def family_at(metrics: str) -> Family:
    """The metrics that `metrics_of` tells of, wherever a process has them from.

    Raises:
        UpkeepError: as `read_family`.
    """
    return SHARED[metrics] if metrics in SHARED else read_family(Path(metrics))


def code_of(catalog: Catalog, dataset: str) -> str:
    """Hash of a dataset's metrics, where they are a paper's; what all share is hashed with the rest of grading."""
    return tree(catalog, f"papers/{catalog.dataset(dataset).metrics}/{FILE}")


def read_family(path: Path) -> Family:
    """The family in a file.

    Raises:
        UpkeepError: it cannot be imported, or has no FAMILY; with file and line.
    """
    with told("the metrics cannot be imported", path):
        module = _imported(path)
    family = getattr(module, "FAMILY", None)
    if not isinstance(family, Family):
        raise UpkeepError(
            "metrics without FAMILY", where=path, expected="FAMILY = Family(measure)", found=repr(family), remedy=REMEDY
        )
    return replace(family, where=str(path))


def _imported(path: Path) -> ModuleType:
    """A file as a module, once for each content that it has had; Python's own cache goes by its time.

    Its name is one that no other file's code has, for each copy of the suite has papers of the same names.
    """
    source = path.read_bytes()
    name = f"{path.parent.name}_metrics_{digest([str(path.resolve()), hashlib.sha256(source).hexdigest()])[:16]}"
    if name not in sys.modules:
        module = ModuleType(name)
        module.__file__ = str(path)
        sys.modules[name] = module
        try:
            exec(compile(source, path, "exec"), module.__dict__)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def second_of(second: Second, cell: Cell) -> Cell | None:
    """The cell that a metric sets beside another one; None where that has none."""
    if cell.model == "none":
        return None
    method, variant = (cell.method, cell.variant) if second.method is None else (second.method, second.variant)
    model = untrained(cell.model) if second.untrained else cell.model
    found = Cell(cell.dataset, method, variant, model)
    return None if found == cell else found


# ---------------------------------------------------------------- what goes wrong in them


def checked(
    found: object, schema: Mapping[str, type[pl.DataType]], family: Family, function: Callable[..., object]
) -> pl.DataFrame:
    """What a function of a family gave, in these columns.

    Raises:
        UpkeepError: it is no frame, lacks a column, or has values of another type; with the function's place.
    """
    columns = found.columns if isinstance(found, pl.DataFrame) else type(found).__name__
    problem = "a metric gives no counts"
    if isinstance(found, pl.DataFrame) and schema.keys() <= set(columns):
        try:
            return found.select(pl.col(name).cast(kind) for name, kind in schema.items())
        except pl.exceptions.PolarsError as error:
            problem += f": {_first(error)}"
    raise UpkeepError(
        problem,
        where=_line(family.where, function),
        expected=f"a frame with {', '.join(schema)}",
        found=columns,
        remedy=REMEDY,
    )


@contextmanager
def told(problem: str, place: str | Path, function: Callable[..., object] | None = None) -> Iterator[None]:
    """What the code of a paper raises is told with its file and line; what the suite's own does stays as it is."""
    try:
        yield
    except UpkeepError:
        raise
    except (Exception, SystemExit) as error:  # whatever the code of others raises
        if not place:
            raise
        raise UpkeepError(
            f"{problem}: {type(error).__name__}: {_first(error)}",
            where=raised_at(error, Path(place)) or _line(place, function),
            remedy=REMEDY,
        ) from error


def _first(error: BaseException) -> str:
    """The first line of what an error says; Polars says pages."""
    return (str(error).splitlines() or [""])[0]


def _line(place: str | Path, function: Callable[..., object] | None) -> str:
    code = getattr(function, "__code__", None)
    return f"{place}:{code.co_firstlineno}" if code is not None and code.co_filename == str(place) else str(place)
