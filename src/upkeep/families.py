"""`datasets/<family>/dataset.yaml`: what the datasets of a family have in common, and how each of them differs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from upkeep.contract import DatasetFamily, DatasetFields, DatasetSpec
from upkeep.yaml_files import convert, load

CARD = "dataset.yaml"
FULL = "full"
"""The variant that bears the name of its family; a file that names no variants has this one."""


def dataset_id(family: str, variant: str) -> str:
    """The id of a variant: the family's name, or `<family>_<variant>`."""
    return family if variant == FULL else f"{family}_{variant}"


def that_may_have(dataset: str, families: Iterable[str]) -> list[str]:
    """Of some families those that by their names may have a dataset of this id."""
    return [name for name in families if dataset == name or dataset.startswith(f"{name}_")]


def read_family(path: Path) -> dict[str, DatasetSpec]:
    """The datasets of a family, by id.

    A field of a variant takes the place of the family's; `options` are joined key by key. A variant without fields is
    the family as it stands.

    Args:
        path: its `dataset.yaml`.

    Raises:
        UpkeepError: the file is missing or not YAML, or a field is missing, unknown or of a wrong type; with the file,
            the variant and the field.
    """
    given = load(path, expected="a family of datasets in YAML")
    variants = given.get("variants", {FULL: None}) if isinstance(given, dict) else None
    if not isinstance(variants, dict):
        return _check(given, DatasetFamily, str(path))  # type: ignore[no-any-return]  # says what is wrong with it
    common = {name: value for name, value in given.items() if name != "variants"}
    _check(common | {"variants": dict.fromkeys(variants)}, DatasetFamily, str(path))
    places = {name: f"{path}: variants.{name}" if "variants" in given else str(path) for name in variants}
    for name, own in variants.items():  # one by one, for the message would not name it
        _check(own, DatasetFields | None, places[name])
    return {
        dataset_id(path.parent.name, name): _check(_joined(common, own or {}), DatasetSpec, places[name])
        for name, own in variants.items()
    }


def _joined(common: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """The fields of a variant."""
    return common | own | {"options": common.get("options", {}) | own.get("options", {})}


def _check(value: object, kind: Any, where: str) -> Any:
    return convert(value, kind, where, expected="fields as in schema/ (dataset)")
