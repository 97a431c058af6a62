"""What a builder is given: the dataset to build, its options, and the files that it is built from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from upkeep.building.reading import Faults
from upkeep.building.tokens import Tokens
from upkeep.building.tokens import load as load_tokens
from upkeep.contract import Config, DatasetSpec
from upkeep.errors import UpkeepError
from upkeep.files import hash_file

if TYPE_CHECKING:
    from upkeep.catalog import Catalog


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Context:
    """What a builder is given."""

    name: str
    spec: DatasetSpec
    where: Path
    """The `dataset.yaml`, for messages."""
    catalog: Catalog
    faults: Faults
    """Takes note of what is wrong with the inputs."""

    @property
    def root(self) -> Path:
        """The repository."""
        return self.catalog.root

    @property
    def config(self) -> Config:
        return self.catalog.config

    @property
    def local(self) -> Path | None:
        """The local path of an official release, where the config names one."""
        return self._configured(self.name)

    @property
    def prose(self) -> Path | None:
        """The local path of prose, where the config names one (`data: {<dataset>.prose: PATH}`)."""
        return self.given("prose")

    def given(self, what: str) -> Path | None:
        """The local path of one of several inputs, where the config names it (`data: {<dataset>.<what>: PATH}`)."""
        return self._configured(f"{self.name}.{what}")

    def required(self, what: str, expected: str) -> Path:
        """As `given`.

        Raises:
            UpkeepError: the config names none, or there is nothing at that path.
        """
        path = self.given(what)
        if path is None or not path.exists():
            raise UpkeepError(
                f"dataset {self.name!r} is built from files of your own",
                where=self.where if path is None else path,
                expected=expected,
                found="no path in the config" if path is None else "nothing there",
                remedy=f"set `data: {{{self.name}.{what}: PATH}}` in config/config.yaml",
            )
        return path

    def _configured(self, key: str) -> Path | None:
        named = self.config.data.get(key)
        return self.path(named) if named else None

    def path(self, text: str) -> Path:
        """A path as a user writes it: relative ones start at the repository."""
        return self.root / Path(text).expanduser()

    def tokenizer(self, named: str | None) -> Tokens:
        """The tokenizer of a builder's option `tokenizer`: a `tokenizer.json`, or the suite's own.

        Raises:
            UpkeepError: the file is missing or is no tokenizer.
        """
        return load_tokens(self.path(named) if named else None)

    def options(self, kind: type[T]) -> T:
        """The options of `dataset.yaml` as a typed record.

        Raises:
            UpkeepError: an option is unknown or of a wrong type.
        """
        try:
            return msgspec.convert(self.spec.options, kind)
        except msgspec.ValidationError as error:
            known = ", ".join(f.name for f in msgspec.structs.fields(kind))  # type: ignore[arg-type]
            raise UpkeepError(
                str(error), where=f"{self.where}: options of {self.name}", expected=f"options among {known}"
            ) from None

    def inputs(self, files: Sequence[Path] | Mapping[str, Path]) -> dict[str, str]:
        """sha256 of each file, by name, checked against the pins of `dataset.yaml`.

        Args:
            files: by the names that pins and card give them, where the files' own do not tell them apart.

        Raises:
            UpkeepError: a file has another hash than its pin; a pinned file is missing.
        """
        named = files if isinstance(files, Mapping) else {file.name: file for file in files}
        found = {name: hash_file(file) for name, file in named.items()}
        if len(found) < len(files):
            raise UpkeepError("two input files of one name", where=self.where, expected="a name for each", found=files)
        if missing := sorted(self.spec.sha256.keys() - found.keys()):
            raise UpkeepError(
                f"pinned file missing: {', '.join(missing)}",
                where=next(iter(named.values())).parent if named else self.where,
                expected=f"the files pinned in {self.where}",
                found=", ".join(found) or "none",
            )
        for name, file in named.items():
            check_pin(file, found[name], self.spec.sha256.get(name), self.where)
        return found


def check_pin(path: Path, found: str, expected: str | None, pinned_in: Path) -> None:
    """Stop where a file has another hash than its pin (none: anything goes).

    Raises:
        UpkeepError: with both hashes.
    """
    if expected is not None and found != expected:
        raise UpkeepError(
            "wrong sha256",
            where=path,
            expected=f"{expected} (pinned in {pinned_in})",
            found=found,
            remedy="get the file again, or change the pin if this is the release you mean",
        )
