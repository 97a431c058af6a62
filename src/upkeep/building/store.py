"""The normal form of a dataset: how it is assembled, written, read and checked (docs/architecture.md, "Datasets")."""

from __future__ import annotations

import functools
import itertools
import shutil
import tempfile
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import polars as pl

from upkeep import inputs
from upkeep.building import leaks
from upkeep.building.content import content
from upkeep.building.reading import Faults
from upkeep.building.tokens import Tokens
from upkeep.building.tokens import load as load_tokens
from upkeep.contract import Config, DatasetCard, DatasetSpec, FaultKind, Form, Pair, Published
from upkeep.errors import UpkeepError
from upkeep.files import digest, hash_file, storing
from upkeep.integrity import fingerprint, read_sealed, write_sealed
from upkeep.normal_form import (
    EXAMPLES,
    PAIRS,
    SCHEMAS,
    TABLES,
    TEXTS,
    check_schema,
    read_examples,
    read_pairs,
    read_table,
)

if TYPE_CHECKING:
    from upkeep.catalog import Catalog

T = TypeVar("T")

FORMS = ("short", "choice", "label")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
CARD = "card.json"


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


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream as a builder makes it: the texts of its documents in order."""

    id: str
    texts: Sequence[str]
    timestamps: Sequence[str | None] | None = None
    ids: Sequence[str] | None = None
    """Of its documents; made of its own where there are none."""

    def document_id(self, position: int) -> str:
        return f"{self.id}_c{position}" if self.ids is None else self.ids[position]


@dataclass(frozen=True, slots=True)
class Question:
    """A question with what is right at each position of its stream."""

    id: str
    stream: str
    text: str
    answers: Sequence[Sequence[str]]
    """Accepted answers at each position, the usual form first."""
    evidence: Sequence[Sequence[int]]
    """At each position, the positions of the documents that suffice to answer, ascending."""
    slices: Mapping[str, str]
    options: Sequence[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A question that is asked at one point of a stream."""

    id: str
    """Of the question; items that share it ask the same at several positions. Methods see it: see `unlabelled`."""
    stream: str
    text: str
    answers: Sequence[str]
    """Accepted answers, the usual form first; one letter for `choice`, one of the options for `label`."""
    slices: Mapping[str, str]
    """The same names for all items of a dataset."""
    outdated: Sequence[str] = ()
    """Answers that were right before and no longer are."""
    evidence: Sequence[str] = ()
    """Ids of the documents that suffice to answer, in order of arrival."""
    context: Sequence[str] = ()
    """The very sentences that the question was made from, where the paper's oracle reads these."""
    options: Sequence[str] | None = None
    form: Form = "short"
    position: int | None = None
    """The last document that has arrived when it is asked; None for the stream's last."""


@dataclass(frozen=True, slots=True)
class Built:
    """What a builder returns."""

    documents: pl.DataFrame
    probes: pl.DataFrame
    gold: pl.DataFrame
    pairs: Sequence[Pair]
    tokenizer: str
    chunk_tokens: int
    source: str
    statistics: Mapping[str, float]
    inputs: Mapping[str, str] = field(default_factory=dict)
    seed: int | None = None
    notes: Sequence[str] = ()
    examples: Sequence[Pair] = ()
    """Worked examples for few-shot prompts."""

    def table(self, name: str) -> pl.DataFrame:
        """`documents`, `probes` or `gold`."""
        return {"documents": self.documents, "probes": self.probes, "gold": self.gold}[name]


# ---------------------------------------------------------------- assembling


def phases_of(answers: Sequence[Sequence[str]]) -> list[int]:
    """The phase at each position, from 0: it grows where the set of accepted answers changes (OAKS, Figure 1)."""
    phases: list[int] = []
    for position, accepted in enumerate(answers):
        changed = position > 0 and set(accepted) != set(answers[position - 1])
        phases.append(phases[-1] + changed if phases else 0)
    return phases


def bin_of(phases: int, sparse: int, moderate: int) -> str:
    """The bin of a question by its number of phases: up to `sparse`, up to `moderate`, or more (OAKS, B.1.1)."""
    return "sparse" if phases <= sparse else "moderate" if phases <= moderate else "frequent"


def assemble(
    streams: Sequence[Stream], questions: Sequence[Question], tokens: Tokens
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """The three tables: every question asked at every position of its stream.

    `outdated` holds the usual form of each earlier answer of the question that is not accepted any more.
    """
    documents = documents_table(streams, tokens)
    asked: dict[str, list[Question]] = {stream.id: [] for stream in streams}
    for question in questions:
        asked[question.stream].append(question)
    slices = sorted({name for question in questions for name in question.slices})
    probes: dict[str, list[Any]] = {column: [] for column in SCHEMAS["probes"]}
    gold: dict[str, list[Any]] = {column: [] for column in [*SCHEMAS["gold"], *(f"slice_{s}" for s in slices)]}
    for stream in streams:
        mine = asked[stream.id]
        history: list[dict[str, None]] = [{} for _ in mine]
        phases = [phases_of(question.answers) for question in mine]
        for position in range(len(stream.texts)):
            for n, question in enumerate(mine):
                accepted = list(question.answers[position])
                probe_id = f"{question.id}@{position}"
                row = (probe_id, question.id, stream.id, position, question.text)
                form = "choice" if question.options else "short"
                for column, value in zip(probes, (*row, question.options, form), strict=True):
                    probes[column].append(value)
                gold["probe_id"].append(probe_id)
                gold["answers"].append(accepted)
                gold["outdated"].append([old for old in history[n] if old not in accepted])
                gold["evidence"].append([stream.document_id(p) for p in question.evidence[position]])
                gold["phase"].append(phases[n][position])
                for name in slices:
                    gold[f"slice_{name}"].append(question.slices[name])
                history[n].setdefault(accepted[0])
    schema = SCHEMAS["gold"] | {f"slice_{name}": pl.String for name in slices}
    return documents, pl.DataFrame(probes, schema=SCHEMAS["probes"]), pl.DataFrame(gold, schema=schema)


def documents_table(streams: Sequence[Stream], tokens: Tokens) -> pl.DataFrame:
    """`documents`: the texts of the streams, in order."""
    texts = [text for stream in streams for text in stream.texts]
    return pl.DataFrame(
        {
            "document_id": [s.document_id(p) for s in streams for p in range(len(s.texts))],
            "stream": [s.id for s in streams for _ in s.texts],
            "position": [p for s in streams for p in range(len(s.texts))],
            "timestamp": [t for s in streams for t in s.timestamps or itertools.repeat(None, len(s.texts))],
            "text": texts,
            "tokens": tokens.count(texts),
        },
        schema=SCHEMAS["documents"],
    )


def collect(
    streams: Sequence[Stream], items: Sequence[Item], tokens: Tokens
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """The three tables: each item asked once, at its own position.

    Probes are put in order of stream and position, and keep the order of `items` beyond that. Phases count the changes
    of a question's accepted answers from one of its positions to the next.

    Raises:
        UpkeepError: an item names an unknown stream, or has other slices than the first.
    """
    documents = documents_table(streams, tokens)
    lengths = {stream.id: len(stream.texts) for stream in streams}
    places = {stream.id: n for n, stream in enumerate(streams)}
    names = sorted(items[0].slices) if items else []
    for item in items:
        if item.stream not in lengths:
            raise UpkeepError("unknown stream", where=item.id, expected="one of the dataset's", found=item.stream)
        if sorted(item.slices) != names:
            raise UpkeepError("other slices than the first item", where=item.id, expected=names, found=item.slices)
    at = [lengths[item.stream] - 1 if item.position is None else item.position for item in items]
    order = sorted(range(len(items)), key=lambda n: (places[items[n].stream], at[n]))
    items, at = [items[n] for n in order], [at[n] for n in order]
    last: dict[str, tuple[frozenset[str], int]] = {}
    phases = []
    for item in items:
        accepted = frozenset(item.answers)
        before, phase = last.get(item.id, (accepted, 0))
        last[item.id] = accepted, phase + (accepted != before)
        phases.append(last[item.id][1])
    ids = [f"{item.id}@{position}" for item, position in zip(items, at, strict=True)]
    probes = pl.DataFrame(
        {
            "probe_id": ids,
            "question_id": [item.id for item in items],
            "stream": [item.stream for item in items],
            "position": at,
            "question": [item.text for item in items],
            "options": [None if item.options is None else list(item.options) for item in items],
            "form": [item.form for item in items],
        },
        schema=SCHEMAS["probes"],
    )
    columns: dict[str, list[Any]] = {
        "probe_id": ids,
        "answers": [list(item.answers) for item in items],
        "outdated": [[old for old in item.outdated if old not in item.answers] for item in items],
        "evidence": [list(item.evidence) for item in items],
        "phase": phases,
    }
    schema = dict(SCHEMAS["gold"])
    if any(item.context for item in items):
        columns["context"], schema["context"] = [list(item.context) for item in items], TEXTS
    for name in names:
        columns[f"slice_{name}"], schema[f"slice_{name}"] = [item.slices[name] for item in items], pl.String()
    return documents, probes, pl.DataFrame(columns, schema=schema)


def unlabelled(items: Sequence[Item], seed: int) -> list[Item]:
    """The items in a drawn order, under ids that tell nothing of them (`q0000`, `q0001`, ...).

    A method sees the id of a probe and the order of questions. Where these told the family, they would tell that the
    answer is to abstain; made of the answer, they would tell that. Items that share an id share the new one.
    """
    drawn = list(items)
    Random(f"order {seed}").shuffle(drawn)
    numbers: dict[str, int] = {}
    for item in drawn:
        numbers.setdefault(item.id, len(numbers))
    return [replace(item, id=f"q{numbers[item.id]:04d}") for item in drawn]


def common_statistics(built: tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]) -> dict[str, float]:
    """What is worth knowing of any dataset of streams.

    Returns:
        chunks_per_stream, tokens_per_stream, tokens_per_document: means; phases_per_question: mean, by the slice
        `question_type` too where there is one; quiet_share: percent of intervals from the second on without a change
        of the answer (OAKS, 6.1: 94).
    """
    documents, probes, gold = built
    streams = documents.group_by("stream").agg(pl.len(), pl.sum("tokens"))
    joined = probes.select("probe_id", "question_id", "position").join(gold, on="probe_id", maintain_order="left")
    by_question = joined.group_by("question_id").agg(
        (pl.max("phase") + 1).alias("phases"), pl.len().alias("asked"), pl.first("^slice_question_type$")
    )
    steps = int((by_question["asked"] - 1).sum())
    changes = int((by_question["phases"] - 1).sum())
    statistics = {
        "chunks_per_stream": _mean(streams["len"]),
        "tokens_per_stream": _mean(streams["tokens"]),
        "tokens_per_document": _mean(documents["tokens"]),
        "phases_per_question": _mean(by_question["phases"]),
        "quiet_share": round(100 * (1 - changes / steps), 3) if steps else 100.0,
    }
    if "slice_question_type" in by_question.columns:
        for (kind,), group in sorted(by_question.group_by("slice_question_type")):
            statistics[f"phases_{kind}"] = _mean(group["phases"])
    return statistics


def _mean(values: pl.Series) -> float:
    return round(float(values.cast(pl.Float64).to_numpy().mean()), 3) if len(values) else 0.0


# ---------------------------------------------------------------- hashes


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


# ---------------------------------------------------------------- inputs


def release_files(context: Context) -> list[Path]:
    """The files of an official release: from the path in the config, or downloaded from the pinned address.

    Raises:
        UpkeepError: neither is there, the download fails, or a file has another hash than its pin.
    """
    remedy = f"download the release by hand and set `data: {{{context.name}: PATH}}` in config/config.yaml"
    if context.local is not None:
        files = sorted(context.local.glob("*.json")) if context.local.is_dir() else [context.local]
        if not files or not files[0].is_file():
            raise UpkeepError("no release here", where=context.local, expected="a JSON file, or a folder of them")
        return files
    spec = context.spec
    if spec.url is None or not spec.sha256:
        raise UpkeepError(
            f"dataset {context.name!r} needs the official release",
            where=context.where,
            expected="a path",
            remedy=remedy,
        )
    folder = context.catalog.cache / "downloads" / context.name / (spec.revision or "unversioned")
    base = spec.url.format(revision=spec.revision)
    return [
        download(f"{base.rstrip('/')}/{name}", pin, folder / name, context, remedy)
        for name, pin in sorted(spec.sha256.items())
    ]


def download(url: str, sha256: str, target: Path, context: Context, remedy: str) -> Path:
    """Fetch a file to `target` unless it is there with the right hash.

    Raises:
        UpkeepError: no connection is allowed or none is to be had, or the hash is wrong.
    """
    if target.is_file() and hash_file(target) == sha256:
        return target
    if context.config.offline:
        raise UpkeepError("a download is needed, and `offline` is set", where=url, remedy=remedy)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as file:
        part = Path(file.name)
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                shutil.copyfileobj(answer, file)
        except (OSError, ValueError) as error:
            part.unlink()
            raise UpkeepError(f"download failed: {error}", where=url, remedy=remedy) from None
    try:
        check_pin(part, hash_file(part), sha256, context.where)
    except UpkeepError as error:
        part.unlink()
        raise UpkeepError(error.problem, where=url, expected=error.expected, found=error.found, remedy=remedy) from None
    part.replace(target)
    return target


# ---------------------------------------------------------------- writing and reading


def publish(context: Context, built: Built, folder: Path, plan: str = "") -> DatasetCard:
    """Check a built dataset and put it at `folder` in one step; what stood there is replaced.

    Args:
        plan: hash of what it was built from (`upkeep.identity.plan_dataset`).

    Raises:
        UpkeepError: the content breaks a rule of the normal form (see `check`).
    """
    check(built, built.chunk_tokens, str(context.where.parent))
    notes = [*built.notes, *context.faults.notes()]
    with storing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
            new, old = Path(temporary) / "new", Path(temporary) / "old"
            new.mkdir()
            card = write(new, replace(built, notes=notes), context.name, context.spec, plan, context.faults.counts)
            if folder.exists():
                folder.rename(old)
            new.rename(folder)
    return card


def write(
    folder: Path,
    built: Built,
    name: str,
    spec: DatasetSpec,
    plan: str = "",
    faults: Mapping[FaultKind, int] | None = None,
) -> DatasetCard:
    """Write the files of a dataset and its card into an empty folder. Nothing is checked."""
    for table in TABLES:
        built.table(table).write_parquet(folder / f"{table}.parquet", compression="zstd", statistics=False)
    files = [f"{table}.parquet" for table in TABLES]
    for file, pairs in ((PAIRS, built.pairs), (EXAMPLES, built.examples)):
        if pairs:
            (folder / file).write_bytes(msgspec.json.Encoder().encode_lines(pairs))
            files.append(file)
    card = DatasetCard(
        dataset=name,
        label=spec.label,
        source=built.source,
        licence=spec.licence,
        tokenizer=built.tokenizer,
        chunk_tokens=built.chunk_tokens,
        streams=built.documents["stream"].n_unique(),
        documents=len(built.documents),
        probes=len(built.probes),
        questions=built.probes["question_id"].n_unique(),
        pairs=len(built.pairs),
        slices=_slices(built),
        statistics=dict(built.statistics),
        stands_for=spec.stands_for,
        content=content(built.documents, built.probes, built.gold, built.pairs, built.examples),
        files={file: fingerprint(folder / file) for file in files},
        examples=len(built.examples),
        faults=dict(sorted((faults or {}).items())),
        inputs=dict(built.inputs),
        plan=plan,
        seed=built.seed,
        notes=list(built.notes),
    )
    return write_sealed(folder / CARD, card)


def _slices(built: Built) -> dict[str, dict[str, int]]:
    """Questions by slice value; a value is that of the question's first probe."""
    firsts = built.probes.select("probe_id", "question_id").unique("question_id", keep="first", maintain_order=True)
    gold = firsts.join(built.gold, on="probe_id", maintain_order="left")
    return {
        column.removeprefix("slice_"): dict(sorted(Counter(gold[column].to_list()).items()))
        for column in gold.columns
        if column.startswith("slice_")
    }


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset as read from its folder."""

    card: DatasetCard
    documents: pl.DataFrame
    probes: pl.DataFrame
    gold: pl.DataFrame
    pairs: list[Pair]
    examples: list[Pair] = field(default_factory=list)


def load(folder: Path) -> Dataset:
    """Read a built dataset. Columns are checked, rows are not (see `validate`).

    Raises:
        UpkeepError: a file is missing, unreadable, or lacks a column.
    """
    card = read_sealed(folder / CARD, DatasetCard, f"./upkeep dataset build {folder.name}")
    frames = {table: read_table(folder, table) for table in TABLES}
    pairs, examples = read_pairs(folder, card), read_examples(folder, card)
    return Dataset(card, frames["documents"], frames["probes"], frames["gold"], pairs, examples)


# ---------------------------------------------------------------- checking


def validate(folder: Path) -> DatasetCard:
    """Check a built dataset whole: files against the card's hashes, rows against the rules of the normal form.

    Raises:
        UpkeepError: with file, row (from 0) and column of the first fault.
    """
    card = inputs.verify_dataset(folder)
    expected = {f"{table}.parquet" for table in TABLES}
    expected |= ({PAIRS} if card.pairs else set()) | ({EXAMPLES} if card.examples else set())
    if card.files.keys() != expected:
        raise UpkeepError(
            "wrong list of files",
            where=f"{folder / CARD}: files",
            expected=", ".join(sorted(expected)),
            found=", ".join(sorted(card.files)),
        )
    data = load(folder)
    check(data, card.chunk_tokens, str(folder))
    counted = {
        "streams": data.documents["stream"].n_unique(),
        "documents": len(data.documents),
        "probes": len(data.probes),
        "questions": data.probes["question_id"].n_unique(),
        "pairs": len(data.pairs),
        "examples": len(data.examples),
        "content": content(data.documents, data.probes, data.gold, data.pairs, data.examples),
    }
    for name, value in counted.items():
        if getattr(card, name) != value:
            raise UpkeepError(
                "the card does not fit the rows",
                where=f"{folder / CARD}: {name}",
                expected=getattr(card, name),
                found=value,
            )
    return card


def check(data: Built | Dataset, chunk_tokens: int, where: str) -> None:
    """Check the rows of a dataset against the rules of the normal form.

    Raises:
        UpkeepError: with file, row (from 0) and column of the first fault.
    """
    frames = {"documents": data.documents, "probes": data.probes, "gold": data.gold}
    for table, frame in frames.items():
        check_schema(table, frame, Path(where) / f"{table}.parquet")
        if frame.is_empty() and table == "documents":
            raise UpkeepError("no rows", where=f"{where}/{table}.parquet", expected="at least one document")
    rows = {table: frame.with_row_index("row") for table, frame in frames.items()}

    def refuse(table: str, column: str, bad: pl.DataFrame, problem: str, expected: str) -> None:
        """Stop at the first of `bad`, the rows of a table that break a rule."""
        if not bad.is_empty():
            first = bad.sort("row").row(0, named=True)
            raise UpkeepError(
                problem,
                where=f"{where}/{table}.parquet, row {first['row']}, column `{column}`",
                expected=expected,
                found=repr(first["found"] if "found" in first else first[column]),
            )

    documents, probes, gold = rows["documents"], rows["probes"], rows["gold"]
    for table, column in (("documents", "document_id"), ("probes", "probe_id"), ("gold", "probe_id")):
        doubled = rows[table].filter(pl.col(column).is_duplicated())
        refuse(table, column, doubled, "id given more than once", "every id once")
    for table, column in (("documents", "text"), ("probes", "question"), ("probes", "question_id")):
        blank = rows[table].filter(pl.col(column).str.strip_chars() == "")
        refuse(table, column, blank, "empty text", "some text")

    in_order = documents.with_columns(
        wanted=pl.when(pl.col("stream") == pl.col("stream").shift(1))
        .then(pl.col("position").shift(1) + 1)
        .otherwise(0)
        .cast(pl.Int32)
    ).filter(pl.col("position") != pl.col("wanted"))
    if not in_order.is_empty():
        refuse("documents", "position", in_order, "positions have a gap", f"{in_order['wanted'][0]}")
    starts = documents.filter(pl.col("stream").ne_missing(pl.col("stream").shift(1)))
    again = starts.filter(~pl.col("stream").is_first_distinct())
    refuse("documents", "stream", again, "a stream in two places", "the documents of a stream one after the other")
    long = documents.filter(~pl.col("tokens").is_between(1, chunk_tokens))
    refuse("documents", "tokens", long, "a document of a wrong size", f"1 to {chunk_tokens} tokens (the card's limit)")

    ends = documents.group_by("stream").agg(length=pl.len(), place=pl.min("row"))
    at = probes.join(ends, on="stream", how="left", maintain_order="left")
    refuse("probes", "stream", at.filter(pl.col("length").is_null()), "unknown stream", "a stream of documents.parquet")
    outside = at.filter(~pl.col("position").is_between(0, pl.col("length") - 1))
    refuse("probes", "position", outside, "no document at this position", "a position of the stream")
    moved = at.filter(
        (pl.col("place") < pl.col("place").shift(1))
        | ((pl.col("place") == pl.col("place").shift(1)) & (pl.col("position") < pl.col("position").shift(1)))
    )
    refuse("probes", "position", moved, "probes out of order", "the order of stream, then position")
    named = pl.format("{}@{}", "question_id", "position")
    refuse("probes", "probe_id", probes.filter(pl.col("probe_id") != named), "wrong id", "<question_id>@<position>")
    refuse("probes", "form", probes.filter(~pl.col("form").is_in(FORMS)), "unknown form", ", ".join(FORMS))
    options = pl.col("options").list.len()
    few = probes.filter((pl.col("form") != "short") & ~options.fill_null(0).is_between(2, len(LETTERS)))
    refuse("probes", "options", few, "too few or too many options", f"2 to {len(LETTERS)} options, unless `short`")
    many = probes.filter((pl.col("form") == "short") & options.is_not_null())
    refuse("probes", "options", many, "options of an open question", "null for `short`")
    same = probes.filter(pl.col("options").list.n_unique() != options)
    refuse("probes", "options", same, "an option twice", "each option once")
    changed = probes.group_by("question_id").agg(
        row=pl.max("row"),
        found=pl.struct("stream", "question").last(),
        kinds=pl.struct("stream", "question", "options", "form").n_unique(),
    )
    refuse("probes", "question_id", changed.filter(pl.col("kinds") > 1), "one id for two questions", "one text an id")

    lost = probes.join(gold, on="probe_id", how="anti")
    refuse("probes", "probe_id", lost, "a probe without gold", "one row of gold.parquet for each probe")
    extra = gold.join(probes, on="probe_id", how="anti")
    refuse("gold", "probe_id", extra, "gold of no probe", "a probe of probes.parquet")
    shuffled = gold.with_columns(other=probes["probe_id"]).filter(pl.col("probe_id") != pl.col("other"))
    refuse("gold", "probe_id", shuffled, "gold out of order", "the order of probes.parquet")
    for column in ("answers", "outdated", "evidence", *(["context"] if "context" in gold.columns else [])):
        blank = gold.filter(pl.col(column).list.eval(pl.element().is_null() | (pl.element() == "")).list.any())
        refuse("gold", column, blank, "an empty entry", "some text")
    refuse("gold", "answers", gold.filter(pl.col("answers").list.len() == 0), "no accepted answer", "at least one")
    stale = gold.filter(pl.col("outdated").list.set_intersection("answers").list.len() > 0)
    refuse("gold", "outdated", stale, "an outdated answer that is accepted", "answers that are wrong now")
    for column in (c for c in gold.columns if c.startswith("slice_")):
        refuse("gold", column, gold.filter(pl.col(column) == ""), "empty slice", "a subset's name")
    _check_subsets(data.gold, f"{where}/gold.parquet")

    asked = gold.with_columns(probes.select("question_id", "stream", "position", "question", "options", "form"))
    letters = asked.filter(pl.col("form") == "choice").select("row", "options", found="answers").explode("found")
    place = pl.col("found").replace_strict(list(LETTERS), range(len(LETTERS)), default=None, return_dtype=pl.Int32)
    wrong = letters.filter(place.is_null() | (place >= pl.col("options").list.len()))
    refuse("gold", "answers", wrong, "not the letter of an option", "a letter from A to the last option")
    labels = asked.filter(pl.col("form") == "label").select("row", "options", found="answers").explode("found")
    unlisted = labels.filter(~pl.col("found").is_in(pl.col("options")))
    refuse("gold", "answers", unlisted, "not one of the options", "one of the probe's options")
    _check_leaks(data, asked, refuse)

    cited = asked.select("row", "stream", "position", found="evidence").explode("found").drop_nulls("found")
    known = documents.select(found="document_id", of="stream", arrived="position")
    cited = cited.join(known, on="found", how="left", maintain_order="left")
    refuse("gold", "evidence", cited.filter(pl.col("of").is_null()), "unknown document", "an id of documents.parquet")
    other = cited.filter(pl.col("of") != pl.col("stream"))
    refuse("gold", "evidence", other, "evidence from another stream", "a document of the probe's stream")
    later = cited.filter(pl.col("arrived") > pl.col("position"))
    refuse("gold", "evidence", later, "evidence from the future", "a document that has arrived")

    before = pl.col("phase").shift(1).over("question_id")
    turn = pl.col("answers").list.sort() != pl.col("answers").list.sort().shift(1).over("question_id")
    wanted = pl.when(before.is_null()).then(0).otherwise(before + turn.cast(pl.Int32))
    phase = asked.with_columns(wanted=wanted).filter(pl.col("phase") != pl.col("wanted"))
    refuse("gold", "phase", phase, "wrong phase", "0 at first, one more where the accepted answers change")


def _check_subsets(gold: pl.DataFrame, where: str) -> None:
    """A score says its subset and not the slice that it is of, so no two slices may share a value."""
    owners = {"all": "the name of all questions"}
    for column in (c for c in gold.columns if c.startswith("slice_")):
        for value in sorted(gold[column].unique()):
            if value in owners:
                raise UpkeepError(
                    "one name for two subsets",
                    where=f"{where}, column `{column}`",
                    expected="values that no other slice has",
                    found=f"{value!r}, which is {owners[value]}",
                    remedy=f"name the subset after its slice, as in {column.removeprefix('slice_')}_{value}",
                )
            owners[value] = f"a value of column `{column}`, too"


def _check_leaks(data: Built | Dataset, asked: pl.DataFrame, refuse: Callable[..., None]) -> None:
    """No open question holds its own answer, no id tells one; no example and no training pair asks what is evaluated.

    A question that is asked again and again and holds its answer at some of the times only does not tell it.
    """
    open_ones = asked.filter(pl.col("form") == "short").select("row", "question_id", "question", found="answers")
    distinct = open_ones.unique(["question", "found"], keep="first", maintain_order=True)
    told = [leaks.tells(question, answers) for question, answers in distinct.select("question", "found").iter_rows()]
    telling = distinct.with_columns(told=pl.Series(told, dtype=pl.Boolean)).filter(
        pl.col("told").all().over("question")
    )
    refuse("gold", "answers", telling, "the question holds its answer", "a question that does not tell its answer")
    written = asked.filter(pl.col("form") != "choice").select("row", "stream", "answers", found="question_id")
    distinct = written.unique(["found", "answers"], keep="first", maintain_order=True)
    told = [leaks.named(id, stream, answers) for _, stream, answers, id in distinct.iter_rows()]
    telling = distinct.with_columns(told=pl.Series(told, dtype=pl.Boolean)).filter(pl.col("told").all().over("found"))
    refuse("probes", "question_id", telling, "the id tells the answer", "an id that says nothing of it")
    questions = data.probes["question"].unique().to_list()
    for file, pairs in ((PAIRS, data.pairs), (EXAMPLES, data.examples)):
        for line in leaks.shared(questions, [pair.question for pair in pairs]):
            raise UpkeepError(
                "a question of the evaluation",
                where=f"{file}, line {line + 1}",
                expected="questions that are not asked",
                found=pairs[line].question,
            )


# ---------------------------------------------------------------- describing


def published(spec: DatasetSpec, papers: Path) -> dict[str, float]:
    """What the paper prints for statistics of a dataset's card.

    Args:
        papers: the folder `papers/`.

    Raises:
        UpkeepError: a place in its tables does not name exactly one number.
    """
    found: dict[str, float] = {}
    for name, given in spec.published.items():
        if not isinstance(given, Published):
            found[name] = given
            continue
        path = papers / spec.paper / "reference" / f"{given.table}.csv"
        numbers = _reference(path).filter(*(pl.col(column) == value for column, value in given.where.items()))
        if len(numbers) != 1:
            raise UpkeepError(
                f"`published: {name}` does not name one number",
                where=path,
                expected="one line with " + ", ".join(f"{k}={v}" for k, v in given.where.items()),
                found=f"{len(numbers)} lines",
            )
        found[name] = float(numbers["value"][0])
    return found


@functools.cache
def _reference(path: Path) -> pl.DataFrame:
    return pl.read_csv(path, infer_schema=False).fill_null("")


def describe(card: DatasetCard, paper: Mapping[str, float]) -> str:
    """Counts and statistics as text, beside the paper's (`published`); slices in questions and percent."""
    own: dict[str, float] = {"streams": card.streams, "documents": card.documents, "questions": card.questions}
    own |= {"probes": card.probes, "training pairs": card.pairs} | card.statistics
    for name, values in card.slices.items():
        for value, n in values.items():
            own |= {f"{name}: {value}": n, f"{name}: {value}, percent": 100 * n / card.questions}
    rows = [("", "own", "paper")]
    rows += [(name, _number(own.get(name)), _number(paper.get(name))) for name in own | dict(paper)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [f"{name:<{widths[0]}}  {mine:>{widths[1]}}  {theirs:>{widths[2]}}".rstrip() for name, mine, theirs in rows]
    head = [f"{card.label} ({card.dataset})", f"source: {card.source}", f"tokenizer: {card.tokenizer}"]
    if card.stands_for:
        head.append(f"stands for: {card.stands_for}, on a small scale")
    return "\n".join(
        [*head, f"content: sha256 {digest(card.content)}", "", *lines, *(f"\nnote: {n}" for n in card.notes)]
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}".removesuffix(".0")
