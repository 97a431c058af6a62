"""The configuration: what the repository says, and what takes its place."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from upkeep.contract import Config
from upkeep.errors import UpkeepError
from upkeep.layout import SAMPLES
from upkeep.yaml_files import convert, load, mended, read_yaml

_SINGLE = [
    f.name for f in msgspec.structs.fields(Config) if f.default_factory is msgspec.NODEFAULT and f.name != "proxy"
]
"""Fields of one value; a proxy is what the configuration says, and no variable."""


def read_config(root: Path, config_file: Path | None, chosen: Mapping[str, str]) -> Config:
    """The defaults in `config/config.yaml`, a user's file (`config_file` or `UPKEEP_CONFIG`), `UPKEEP_<FIELD>` in the
    environment (of fields of one value), and `chosen`: each takes the place of those before it, field by field.

    Raises:
        UpkeepError: a field is unknown or of a wrong type.
    """
    file = config_file or (Path(p) if (p := os.environ.get("UPKEEP_CONFIG")) else None)
    config = read_yaml(root / "config" / "config.yaml", Config)
    if file is not None:
        config = msgspec.structs.replace(config, **_given(file))
    overrides = {name: value for name in _SINGLE if (value := os.environ.get(f"UPKEEP_{name.upper()}"))}
    try:
        return _apart(msgspec.convert(msgspec.to_builtins(config) | overrides | chosen, Config, strict=False))
    except msgspec.ValidationError as error:
        name = str(error).rpartition("`$.")[2].rstrip("`")
        own = name in overrides and name not in chosen
        told = f"UPKEEP_{name.upper()} in the environment" if own else "the configuration"
        given = chosen.get(name, overrides.get(name))
        raise UpkeepError(str(error), where=told, found=given, remedy=mended(str(error), Config)) from None


def _apart(config: Config) -> Config:
    """A sample's results lie in a folder of their own.

    Raises:
        UpkeepError: both kinds of samples are asked for.
    """
    if config.limit is None and config.probe is None:
        return config
    if config.limit is not None and config.probe is not None:
        raise UpkeepError(
            "a sample is so many questions, or one probe",
            expected="`--limit N` or `--probe ID`",
            found="both",
            remedy="leave one of them out",
        )
    name = (
        f"limit{config.limit}" if config.probe is None else f"probe-{re.sub(r'[^A-Za-z0-9._@+-]', '_', config.probe)}"
    )
    return msgspec.structs.replace(config, results=f"{config.results}/{SAMPLES}/{name[:100]}")


def _given(path: Path) -> dict[str, object]:
    """The fields that a partial configuration file sets, checked."""
    given = load(path, expected="a Config in YAML")
    checked = convert(given, Config, path, expected="fields as in schema/ (Config)")
    return {name: getattr(checked, name) for name in given}
