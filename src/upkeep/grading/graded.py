"""One cell's predictions to verdicts: each answer read from its response and held against the answer key.

The verdicts of a cell are kept in `results/graded/<cell>/` with what they were made of, so that a mended reader, form
or gold answer grades again what it touches, and asks no model. They are worked out anew where they are gone or damaged.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import polars as pl
from msgspec import Struct

from upkeep.catalog import Catalog
from upkeep.contract import MAX_VALUES, Count, Fingerprint, Form, Manifest, Measurement, Pattern, Sealed
from upkeep.errors import UpkeepError
from upkeep.files import open_regular, write_atomically
from upkeep.grading.judgements import spotted
from upkeep.grading.key import Key, canonical_answers
from upkeep.grading.matching import token_f1
from upkeep.grading.reading import Parse, read_answer
from upkeep.integrity import Damaged, Missing, fingerprint, read_sealed, verify_files, write_sealed
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.sources import meaning

READING = ("grading/markers.py", "grading/reading.py")
"""What verdicts alone are made with: where they come out the same, so do the scores."""
CODE = (*(f"grading/{name}.py" for name in ("graded", "judgements", "key", "matching")), *READING)
"""What decides a verdict, beside the key."""
AGAIN = "run the cell again with --force"
VERDICTS = {
    "probe_id": pl.String,
    "trial": pl.Int32,
    "answer": pl.String,
    "canonical": pl.String,
    "parse": pl.String,
    "verdict": pl.String,
    "right": pl.Boolean,
    "exact": pl.Boolean,
    "outdated": pl.Boolean,
    "failed": pl.Boolean,
    "rank": pl.Int32,
    "prompt_tokens": pl.Int64,
    "completion_tokens": pl.Int64,
}
"""`results/graded/<cell>/verdicts.parquet`: one row for each probe and trial, in the order of the key.

`answer` is what was read from the response, `canonical` the same as it is compared, both null where there is none;
`parse` is how it was read (`reading.Parse`); `verdict`, where a pattern or a judge and not the answer key's words say
what is right (`judgements`), what it said, null where that was nothing; `exact`, right and nothing besides, where an
equivalence takes an answer among other words; `outdated`, right before and not now; `failed`, no response for an error;
`rank` is that of the gold chunk among the retrieved ones, null where it is not among them; the tokens are those of all
calls of a model behind the answer (`contract.Usage`), null where there is no prediction.

After these stands a column VALUE + name, Float64, for each name of a number that the cell's predictions have
(`contract.Prediction.values`), in the order of names: null where a prediction has none of that name, failed or is
missing. A cell without such numbers has no such columns. Of datasets whose equivalence says how many words an answer
shares with an accepted one, VALUE + TOKEN_F1, the last column, has it for each open question.
"""

VALUE = "value_"
"""What the name of a column of measured numbers begins with."""
TOKEN_F1 = "token_f1"
"""How many words an answer shares with the accepted one that is nearest (`matching.token_f1`); 0 without an answer."""
READ = tuple(name for name in VERDICTS if name not in ("canonical", "exact", "outdated"))
"""Those of VERDICTS that a prediction says without the answer key's words; `right` where a pattern says it."""

_BLOCK = 1 << 16
"""Bytes of predictions that are decoded at once: few enough to stay in a processor's cache."""


class GradedRecord(Sealed, frozen=True, kw_only=True):
    """`results/graded/<cell>/graded.json`: what the verdicts beside it are."""

    cell: str
    made_of: dict[str, str]
    """Predictions, key and code, each with its hash."""
    retrieved: Count
    """The most documents that any prediction retrieved."""
    files: dict[str, Fingerprint]


@dataclass(frozen=True)
class Graded:
    """The verdicts of a cell."""

    rows: pl.DataFrame
    """VERDICTS, and columns of values."""
    retrieved: int
    """The most documents that any prediction retrieved; 0 for a method without retrieval."""
    sha256: str = ""
    """Of the file in which they are kept; empty where they are not."""

    def among(self, key: Key) -> Graded:
        """Those of a key's probes alone: another cell may have been asked fewer (`Manifest.cutoff`)."""
        asked = pl.col("probe_id").is_in(key.probes["probe_id"].implode())
        whole = len(key.probes) == self.rows["probe_id"].n_unique()
        return self if whole else replace(self, rows=self.rows.filter(asked))

    def with_key(self, key: Key, trials: int) -> pl.DataFrame:
        """`rows` beside the columns of `Key.probes` but for the options, in the same order."""
        return _expected(key, trials).drop("options", "stream").hstack(self.rows.drop("probe_id", "trial"))


class _Hit(Struct, gc=False):
    id: str
    rank: int


class _Usage(Struct, gc=False):
    prompt: int
    completion: int


class _Line(Struct, gc=False):
    """The fields of a prediction that grading needs; the others are skipped without being built."""

    probe_id: str
    trial: int
    response: str | None
    error: str | None
    retrieved: list[_Hit]
    usage: _Usage
    values: dict[str, Measurement] = {}


# ---------------------------------------------------------------- kept by cell


def graded(catalog: Catalog, cell: Cell, manifest: Manifest, key: Key) -> Graded:
    """The verdicts of a published cell: those that are kept, if they are of these predictions, this key and this code.

    Args:
        manifest: the cell's, verified.
        key: the answer key of its dataset, of the probes that it was asked (`Key.after`).

    Raises:
        UpkeepError: the cell's manifest and its files, or these and the dataset, do not agree.
    """
    layout = Layout(catalog.results)
    path, folder = layout.verdicts(cell), layout.cell(cell)
    made_of = {
        **key.made_of,
        "code": meaning(catalog, CODE),
        "predictions": _fingerprint(manifest, folder).sha256,
        "trials": str(manifest.trials),
    }
    record_path = path.with_name("graded.json")
    try:
        record = read_sealed(record_path, GradedRecord, "")
        if record.made_of == made_of:
            verify_files(path.parent, record.files, "", catalog.hashes)
            return Graded(pl.read_parquet(path), record.retrieved, record.files[path.name].sha256)
    except (Missing, Damaged):  # it follows from what is there
        pass
    found, content = grade_cell(folder, manifest, cell, key), io.BytesIO()
    found.rows.write_parquet(content, compression="zstd", statistics=False)
    write_atomically(path, content.getbuffer())
    mark = fingerprint(path)
    record = GradedRecord(cell=str(cell), made_of=made_of, retrieved=found.retrieved, files={path.name: mark})
    write_sealed(record_path, record)
    return replace(found, sha256=mark.sha256)


def grade_cell(folder: Path, manifest: Manifest, cell: Cell, key: Key) -> Graded:
    """Grade the predictions of a published cell.

    Args:
        folder: where it is published.

    Raises:
        UpkeepError: as `graded`.
    """
    predictions, retrieved = read_predictions(folder, manifest, key)
    for what, expected, found in (
        ("name", manifest.cell, str(cell)),
        ("number of predictions", manifest.probes * manifest.trials, len(predictions)),
        ("number of probes", manifest.probes, len(key.probes)),
    ):
        if expected != found:
            raise UpkeepError(
                f"manifest and files do not agree: {what}",
                where=folder / "manifest.json",
                expected=expected,
                found=found,
                remedy=AGAIN,
            )
    return Graded(grade(key, predictions, manifest.trials), retrieved)


# ---------------------------------------------------------------- reading


def read_predictions(folder: Path, manifest: Manifest, key: Key) -> tuple[pl.DataFrame, int]:
    """Read a published cell's predictions in one pass, hashing as it goes, and the answer in each response.

    Returns:
        A frame of READ with columns of values, and the most documents that any prediction retrieved.

    Raises:
        UpkeepError: the file is not there or not the one that the manifest describes, a line is no prediction, or the
            predictions have more than MAX_VALUES names of values between them.
    """
    path, wanted = folder / "predictions.jsonl", _fingerprint(manifest, folder)
    columns: dict[str, list[object]] = {name: [] for name in READ}
    measured: dict[str, dict[int, float]] = {}
    """Name of a value -> row -> number."""
    lists, forms, most = list(columns.values()), key.forms(), 0
    for place, record in enumerate(_lines(path, wanted)):
        # A prediction for an unknown probe is told apart by `grade`.
        form, options = forms.get(record.probe_id, ("short", None))
        failed = record.error is not None
        told: tuple[object, ...] = (None, "none", None, None)
        if record.response is not None and not failed:
            told = read_response(record.response, form, options, key.marker, key.patterns.get(record.probe_id))
        rank = _rank(record.retrieved, key.gold_chunk.get(record.probe_id))
        usage = record.usage
        row = (record.probe_id, record.trial, *told, failed, rank, usage.prompt, usage.completion)
        for column, value in zip(lists, row, strict=True):
            column.append(value)
        if record.values and not failed:
            _take(measured, place, record.values, path)
        most = max(most, len(record.retrieved))
    types = {name: VERDICTS[name] for name in columns}
    numbers = (
        pl.Series(VALUE + name, [found.get(row) for row in range(len(lists[0]))], dtype=pl.Float64)
        for name, found in sorted(measured.items())
    )
    return pl.DataFrame(columns, schema=types).with_columns(numbers), most


def read_response(
    response: str,
    form: Form,
    options: Sequence[str] | None,
    marker: str,
    pattern: tuple[Pattern, frozenset[str]] | None,
) -> tuple[str | None, Parse, str | None, bool | None]:
    """What a response says, before it is held against the answer key's words.

    Args:
        form, options, marker: as in `read_answer`.
        pattern: of its probe, as `Key.patterns` has it.

    Returns:
        `answer`, `parse`, `verdict` and `right` of VERDICTS.
    """
    answer, parse = read_answer(response, form, options, marker)
    if pattern is None:
        return answer, parse, None, None
    said = spotted(pattern[0], response)
    return answer, parse, said, said in pattern[1]


def _take(measured: dict[str, dict[int, float]], row: int, values: Mapping[str, float], path: Path) -> None:
    """Add the values of one prediction to those of a cell."""
    for name, number in values.items():
        measured.setdefault(name, {})[row] = number
    if len(measured) > MAX_VALUES:
        raise UpkeepError(
            "the predictions have too many names of values",
            where=path,
            expected=f"at most {MAX_VALUES} names in a cell, the same for all of its predictions",
            found=", ".join(sorted(measured)[:5]) + ", ...",
            remedy="let the method name what it measures, and not what it measures it of",
        )


def _lines(path: Path, wanted: Fingerprint) -> Iterator[_Line]:
    decoder, digest, before = msgspec.json.Decoder(_Line), hashlib.sha256(), 0
    with open_regular(path) as file:
        while lines := file.readlines(_BLOCK):
            block = b"".join(lines)
            digest.update(block)
            try:
                yield from decoder.decode_lines(block)
            except (msgspec.DecodeError, UnicodeDecodeError):
                raise _not_a_prediction(decoder, lines, before, path) from None
            before += len(lines)
    # Once more, for it may have changed since the cell was verified.
    if wanted.sha256 != digest.hexdigest():
        raise _other(path, wanted.sha256, digest.hexdigest())


def _fingerprint(manifest: Manifest, folder: Path) -> Fingerprint:
    path = folder / "predictions.jsonl"
    if (wanted := manifest.files.get(path.name)) is None:
        raise _other(path, "of a file that is not named", "a file")
    return wanted


def _other(path: Path, expected: str, found: str) -> Damaged:
    return Damaged(
        "the predictions are not the ones that the manifest describes",
        where=path,
        expected=f"sha256 {expected}",
        found=f"sha256 {found}",
        remedy=AGAIN,
    )


def _rank(retrieved: list[_Hit], document: str | None) -> int | None:
    """Rank of a document among the retrieved ones."""
    for hit in retrieved:
        if hit.id == document:
            return hit.rank
    return None


def _not_a_prediction(
    decoder: msgspec.json.Decoder[_Line], lines: Iterable[bytes], before: int, path: Path
) -> UpkeepError:
    """The error that names the first broken line of a block."""
    for number, line in enumerate(lines, before + 1):
        try:
            decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return UpkeepError(f"line {number} is no prediction: {error}", where=path, remedy=AGAIN)
    return UpkeepError(f"not readable from line {before + 1} on", where=path, remedy=AGAIN)


# ---------------------------------------------------------------- grading


def grade(key: Key, predictions: pl.DataFrame, trials: int) -> pl.DataFrame:
    """Hold predictions against the answer key: VERDICTS, and the columns of values that the predictions have.

    A probe without a prediction gets a row that is wrong, unread and failed: nothing leaves the denominator. A
    prediction with an error is wrong whatever its answer.

    Raises:
        UpkeepError: an unknown probe or trial, two predictions for one, or a value that is worked out here.
    """
    expected, keys = _expected(key, trials).select("probe_id", "trial", "form"), ["probe_id", "trial"]
    unknown = predictions.join(expected, on=keys, how="anti")
    if not unknown.is_empty():
        raise UpkeepError("a prediction for an unknown probe or trial", found=unknown.select(keys).row(0))
    twice = predictions.filter(pl.struct(keys).is_duplicated())
    if not twice.is_empty():
        raise UpkeepError("two predictions for the same probe and trial", found=twice.select(keys).row(0))
    given = predictions.with_columns(answer=pl.when(~pl.col("failed")).then("answer"))
    rows = expected.join(given, on=keys, how="left", maintain_order="left")
    rows = rows.with_columns(canonical=canonical_answers(rows, key.equivalence))
    within = key.equivalence.within
    right = _matches(rows, key.accepted, within=within)
    exact = _matches(rows, key.accepted, within=False) if within else right
    outdated = _matches(rows, key.outdated, within=within)
    if key.equivalence.overlap:
        if VALUE + TOKEN_F1 in rows.columns:
            raise UpkeepError(
                f"predictions have a value {TOKEN_F1!r}, which the dataset's equivalence gives each open answer",
                remedy="let the method give what it measures another name",
            )
        rows = rows.with_columns(_overlap(rows, key.accepted).alias(VALUE + TOKEN_F1))
    by_words = {"right": right, "exact": exact}
    decided = {name: pl.coalesce("right", pl.lit(words)) for name, words in by_words.items()}
    return rows.with_columns(
        **decided,
        outdated=pl.lit(outdated) & ~decided["right"],
        parse=pl.col("parse").fill_null("none"),
        failed=pl.col("failed").fill_null(value=True),
    ).select(*(pl.col(name).cast(kind) for name, kind in VERDICTS.items()), pl.col(f"^{VALUE}.*$"))


def _expected(key: Key, trials: int) -> pl.DataFrame:
    return key.probes.join(pl.DataFrame({"trial": pl.int_range(trials, dtype=pl.Int32, eager=True)}), how="cross")


def _matches(rows: pl.DataFrame, answers: pl.DataFrame, *, within: bool) -> pl.Series:
    """Whether each answer is one of those listed for its probe, or, `within`, names one of them."""
    listed = answers.rename({"answer": "listed"})
    pairs = rows.select("probe_id", "canonical", "form").with_row_index("row").join(listed, on="probe_id")
    hit = pl.col("canonical") == pl.col("listed")
    if within:
        named = pl.format(" {} ", "canonical").str.contains(pl.format(" {} ", "listed"), literal=True)
        hit |= (pl.col("form") == "short") & named
    found = pairs.filter(hit & (pl.col("listed") != ""))["row"].unique()
    return pl.int_range(len(rows), eager=True, dtype=pl.UInt32).is_in(found.implode())


def _overlap(rows: pl.DataFrame, answers: pl.DataFrame) -> pl.Series:
    """TOKEN_F1 of each answer to an open question; null for other forms."""
    pairs = rows.select("probe_id", "canonical").with_row_index("row").drop_nulls()
    pairs = pairs.join(answers.rename({"answer": "listed"}), on="probe_id")
    shared = [token_f1(own, listed) for own, listed in pairs.select("canonical", "listed").iter_rows()]
    best = pairs.with_columns(shared=pl.Series(shared, dtype=pl.Float64)).group_by("row").agg(pl.max("shared"))
    joined = rows.select("form").with_row_index("row").join(best, on="row", how="left", maintain_order="left")
    return joined.select(pl.when(pl.col("form") == "short").then(pl.col("shared").fill_null(0.0))).to_series()


def counted(rows: pl.DataFrame) -> dict[str, int]:
    """Predictions by what became of them: `unread` of those that did not fail, and `failed`."""
    unread = rows.select((~pl.col("failed") & (pl.col("parse") == "none")).sum()).item()
    return {"unread": unread, "failed": rows["failed"].sum()}
