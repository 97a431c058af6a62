"""Who decides about which response: the lists of `papers/<paper>/judges.yaml`, their patterns and their questions.

Patterns and judges read the whole response, not the answer that was read out of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

import msgspec
import polars as pl

from upkeep.catalog import Catalog
from upkeep.contract import SLOTS, Judgement, Pattern, Rubric
from upkeep.errors import UpkeepError, unknown
from upkeep.yaml_files import read_yaml

FILE = "judges.yaml"
RIGHT = "right"
"""What is decided in place of the answer key's words."""
WORDS = "words"
"""What stands in the place of a judge where the answer key's words say what is right."""
ABSTAINS = "abstains"
"""The verdict of a pattern on a response with one of its phrases."""
_SLOT = re.compile(rf"\{{({'|'.join(SLOTS)})\}}")


@dataclass(frozen=True, slots=True)
class Judgements:
    """Those of a dataset, in order: a probe has the first that is about it, for each thing that is decided."""

    of: Sequence[Judgement]
    where: str = ""
    """Their file and name, for messages."""

    @property
    def patterns(self) -> list[Judgement]:
        return [one for one in self.of if one.pattern is not None]

    @property
    def rubrics(self) -> list[Judgement]:
        """What a model is to say; none where it needs no judge."""
        return [one for one in self.of if one.rubric is not None]

    @property
    def decided(self) -> list[str]:
        """What is decided by them, each once."""
        return list(dict.fromkeys(one.decides for one in self.of))

    def placed(self, probes: pl.DataFrame) -> pl.DataFrame:
        """Which judgement each probe has: `probe_id`, and for each thing that is decided a column with its place in
        `of`, null where there is none.

        Args:
            probes: with `probe_id`, `form` and the slices.

        Raises:
            UpkeepError: one names a slice that the dataset lacks.
        """
        columns = {}
        for name in self.decided:
            chosen = pl.lit(None, pl.Int32)
            for place in reversed(range(len(self.of))):
                if self.of[place].decides == name:
                    chosen = (
                        pl.when(self._about(self.of[place], probes)).then(pl.lit(place, pl.Int32)).otherwise(chosen)
                    )
            columns[name] = chosen
        return probes.select("probe_id", **columns)

    def _about(self, one: Judgement, probes: pl.DataFrame) -> pl.Expr:
        asked = [pl.lit(value=True)]
        for name, values in one.where.items():
            column = "form" if name == "form" else f"slice_{name}"
            if column not in probes.columns:
                raise UpkeepError(
                    f"a judgement is about a slice {name!r} that the dataset does not have",
                    where=self.where,
                    expected="form, or one of "
                    + ", ".join(sorted(c.removeprefix("slice_") for c in probes.columns if c.startswith("slice_"))),
                )
            asked.append(pl.col(column).is_in(values).fill_null(value=False))
        return pl.all_horizontal(*asked)


NONE = Judgements(())
_read: WeakKeyDictionary[Catalog, dict[Path, dict[str, list[Judgement]]]] = WeakKeyDictionary()
"""Each file is read once for a catalog, as its own are: every cell of a suite asks for it."""


def judgements_of(catalog: Catalog, dataset: str) -> Judgements:
    """The judgements that a dataset's card names; none where it names none.

    Raises:
        UpkeepError: there is no such list, or its file is wrong.
    """
    spec = catalog.dataset(dataset)
    if spec.judges is None:
        return NONE
    path = catalog.root / "papers" / spec.paper / FILE
    read = _read.setdefault(catalog, {})
    if path not in read:
        read[path] = read_lists(path)
    known = read[path]
    if spec.judges not in known:
        raise unknown(
            "list of judgements", spec.judges, known, f"none of this name in {path.relative_to(catalog.root)}"
        )
    return Judgements(known[spec.judges], f"{path}: {spec.judges}")


def read_lists(path: Path) -> dict[str, list[Judgement]]:
    """The lists of a `judges.yaml`, by name.

    Raises:
        UpkeepError: it is missing, no YAML, or a field is wrong.
    """
    return read_yaml(path, dict[str, list[Judgement]], expected="lists of judgements as in docs/judges.md")


# ---------------------------------------------------------------- patterns


def spotted(pattern: Pattern, response: str) -> str | None:
    """The verdict of a pattern on a response: ABSTAINS, the first of its words, or None where it has none of them."""
    begin = response[: pattern.within + max(map(len, pattern.phrases), default=0)].lower()
    if any(0 <= begin.find(phrase.lower()) < pattern.within for phrase in pattern.phrases):
        return ABSTAINS
    words = "|".join(re.escape(word) for word in pattern.words)
    found = re.search(rf"\b(?:{words})\b", response, re.IGNORECASE)
    return found.group().lower() if found else None


def right_verdicts(pattern: Pattern, answers: Sequence[str]) -> frozenset[str]:
    """The verdicts that are right of a probe with these accepted answers."""
    words = answers if pattern.right is None else [pattern.right]
    return frozenset({*(word.lower() for word in words), ABSTAINS})


# ---------------------------------------------------------------- questions to judges, and their replies


def filled(text: str, slots: Mapping[str, str]) -> str:
    """A rubric's text with its slots filled; what is put in is not looked at for slots."""
    return _SLOT.sub(lambda found: slots[found.group(1)], text)


def verdict(rubric: Rubric, reply: str) -> str | None:
    """What a judge says: one of the rubric's verdicts, or None where its reply cannot be read.

    A reply that says two things is none, but for `last`, where it may reason before.
    """
    if rubric.read == "json":
        return _of_json(rubric, reply)
    words = "|".join(re.escape(word) for word in sorted(rubric.verdicts, key=len, reverse=True))
    found: list[str] = re.findall(rf"(?<![^\W_])(?:{words})(?![^\W_])", reply)
    if rubric.read == "last":
        return found[-1] if found else None
    return found[0] if len(set(found)) == 1 else None


def _of_json(rubric: Rubric, reply: str) -> str | None:
    begin, end = reply.find("{"), reply.rfind("}")
    try:
        said = msgspec.json.decode(reply[begin : end + 1].encode()) if 0 <= begin < end else None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    word = said.get("verdict") if isinstance(said, dict) else None
    return word if isinstance(word, str) and word in rubric.verdicts else None
