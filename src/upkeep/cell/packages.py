"""Models that installed packages carry."""

from __future__ import annotations

import importlib.util
from pathlib import Path


def package_folder(package: str) -> Path:
    """The folder of the model that an installed package carries, found without importing it.

    Raises:
        FileNotFoundError: the package is not installed or carries no model.
    """
    module = importlib.util.find_spec(package.replace("-", "_"))
    folders = [Path(p) / "model" for p in (module.submodule_search_locations or ())] if module else []
    for folder in folders:
        if (folder / "modules.json").is_file():
            return folder
    raise FileNotFoundError(f"package {package!r} is not installed or carries no sentence-transformers model")
