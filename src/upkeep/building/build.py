"""Building a dataset: its builder is found, run, and what it gives is checked and published.

A builder has a function `build(context: Context) -> Built`. It is the folder of the dataset's family, as a package, or
the module of `upkeep.building.builders` that `dataset.yaml` names.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from upkeep.errors import UpkeepError, raised_at
from upkeep.files import digest, refusal

if TYPE_CHECKING:  # polars is slow to load
    from upkeep.building.assembling import Built
    from upkeep.building.context import Context
    from upkeep.catalog import Catalog
    from upkeep.contract import DatasetCard, DatasetSpec

Build = Callable[["Context"], "Built"]
BUILD = "a function `build(context: Context) -> Built`"


def build_dataset(catalog: Catalog, name: str, folder: Path) -> DatasetCard:
    """Build or load the dataset `name` and publish it at `folder`, atomically (a folder of that name is replaced).

    Raises:
        UpkeepError: unknown dataset or builder, wrong options, missing or wrong inputs, or content that breaks a rule.
    """
    from upkeep.building import store
    from upkeep.identity import plan_dataset

    given = context(catalog, name)
    build = builder(catalog, name)
    plan = plan_dataset(catalog, name)  # before the build: what changes during it makes the dataset stale
    return store.publish(given, _built(catalog, name, build, given), folder, plan)


def _built(catalog: Catalog, name: str, build: Build, given: Context) -> Built:
    """What a builder gives; what the code of a family raises is told with its file and line.

    Raises:
        UpkeepError: it raised, or gave something else.
    """
    from upkeep.building.assembling import Built

    start = (catalog.root / "datasets" / catalog.family_of(name)).resolve()
    try:
        built = build(given)
    except UpkeepError:
        raise
    except Exception as error:  # whatever the code of others raises
        where = raised_at(error, start)
        if where is None or refusal(error, start) is not None:
            raise
        raise UpkeepError(
            f"the builder failed: {type(error).__name__}: {error}", where=where, expected=BUILD, remedy="mend it"
        ) from error
    if not isinstance(built, Built):
        place = getattr(build, "__code__", None)
        raise UpkeepError(
            "`build` returned something else",
            where=f"{place.co_filename}:{place.co_firstlineno}" if place is not None else start,
            expected=BUILD,
            found=type(built).__name__,
            remedy="return what it made: docs/add-a-dataset.md",
        )
    return built


def context(catalog: Catalog, name: str, spec: DatasetSpec | None = None) -> Context:
    """What the builder of a dataset is given; `spec` takes the place of what its card says."""
    from upkeep.building.context import Context
    from upkeep.building.reading import Faults

    spec, where = spec or catalog.dataset(name), catalog.family_card(catalog.family_of(name))
    return Context(name, spec, where, catalog, Faults(spec.faults, where))


def describe(catalog: Catalog, card: DatasetCard) -> str:
    """A dataset's counts and statistics as text, beside the paper's where the paper prints them."""
    from upkeep.building import describing
    from upkeep.card_numbers import published

    spec = catalog.dataset(card.dataset)
    return describing.describe(card, published(spec, catalog.root / "papers"), spec.changes)


# ---------------------------------------------------------------- builders


def builder(catalog: Catalog, name: str) -> Build:
    """The builder of a dataset.

    Raises:
        UpkeepError: unknown dataset or builder, or the family's code cannot be imported or has no `build`.
    """
    from upkeep.building import builders

    family = catalog.family_of(name)
    if (shared := catalog.dataset(name).builder) is not None:
        known = sorted(module.name for module in pkgutil.iter_modules(builders.__path__))
        if shared not in known:
            raise UpkeepError(
                f"unknown builder {shared!r}",
                where=f"{catalog.family_card(family)}: builder",
                expected=f"one of {', '.join(known)}; or none, and code in this folder",
            )
        found: Build = importlib.import_module(f"{builders.__name__}.{shared}").build
        return found
    module = code(catalog, family)
    if not callable(build := getattr(module, "build", None)):
        raise UpkeepError(
            "a builder without `build`",
            where=module.__file__,
            expected=BUILD,
            remedy="write it: docs/add-a-dataset.md",
        )
    return build  # type: ignore[no-any-return]


def code(catalog: Catalog, family: str, module: str = "") -> ModuleType:
    """The code of a family: its package, or a module of it. Each file is imported once.

    Raises:
        UpkeepError: there is none, or it cannot be imported.
    """
    start = catalog.root / "datasets" / family / "__init__.py"
    if not start.is_file():
        raise UpkeepError(
            "a family without a builder",
            where=start.parent,
            expected=f"`builder` in {start.parent / 'dataset.yaml'}, or code in __init__.py beside it",
            found="neither",
            remedy="docs/add-a-dataset.md",
        )
    start = start.resolve()
    try:
        package = _package(start)
        return importlib.import_module(f"{package.__name__}.{module}") if module else package
    except (Exception, SystemExit) as error:  # whatever the code of others raises
        raise UpkeepError(
            f"the builder cannot be imported: {type(error).__name__}: {error}",
            where=raised_at(error, start.parent) or start,
            expected="code that can be imported, with `build`",
            remedy="mend it",
        ) from error


def _package(start: Path) -> ModuleType:
    """A folder as a package, by the real path of its `__init__.py`.

    It has the name that Python itself finds it by, where its parent is on the path. Else it has a name that no other
    folder's code has, for each copy of the suite has families of the same names.
    """
    name = start.parent.name
    found = PathFinder.find_spec(name)
    if found is not None and found.origin is not None and Path(found.origin).resolve() == start:
        return importlib.import_module(name)
    name = f"{name}_{digest(str(start))[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, start, submodule_search_locations=[str(start.parent)])
    assert spec is not None and spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        for loaded in [one for one in sys.modules if one == name or one.startswith(f"{name}.")]:
            del sys.modules[loaded]
        raise
    return module
