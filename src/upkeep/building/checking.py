"""The rules of the normal form (docs/architecture.md, "Datasets"), and whether the rows of a dataset keep them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import polars as pl

from upkeep.building import leaks
from upkeep.building.assembling import LETTERS
from upkeep.contract import Pair
from upkeep.errors import UpkeepError
from upkeep.normal_form import EXAMPLES, OPTIONAL, PAIRS, check_schema, check_subsets

FORMS = ("short", "choice", "label")


class Rows(Protocol):
    """What a dataset holds, whether it was just built or read."""

    @property
    def documents(self) -> pl.DataFrame: ...
    @property
    def probes(self) -> pl.DataFrame: ...
    @property
    def gold(self) -> pl.DataFrame: ...
    @property
    def pairs(self) -> Sequence[Pair]: ...
    @property
    def examples(self) -> Sequence[Pair]: ...


def check(data: Rows, chunk_tokens: int, where: str) -> None:
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
    for column in ("answers", "outdated", "evidence", *(column for column in OPTIONAL if column in gold.columns)):
        blank = gold.filter(pl.col(column).list.eval(pl.element().is_null() | (pl.element() == "")).list.any())
        refuse("gold", column, blank, "an empty entry", "some text")
    refuse("gold", "answers", gold.filter(pl.col("answers").list.len() == 0), "no accepted answer", "at least one")
    stale = gold.filter(pl.col("outdated").list.set_intersection("answers").list.len() > 0)
    refuse("gold", "outdated", stale, "an outdated answer that is accepted", "answers that are wrong now")
    for column in (c for c in gold.columns if c.startswith("slice_")):
        refuse("gold", column, gold.filter(pl.col(column) == ""), "empty slice", "a subset's name")
    check_subsets(data.gold, f"{where}/gold.parquet")

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


def _check_leaks(data: Rows, asked: pl.DataFrame, refuse: Callable[..., None]) -> None:
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
    known = set(data.documents["document_id"])
    for number, pair in enumerate(data.pairs):
        if pair.document is not None and pair.document not in known:
            raise UpkeepError(
                "a training pair of a document that there is not",
                where=f"{PAIRS}, line {number + 1}",
                expected="the id of a document, or none",
                found=pair.document,
            )
    for file, pairs in ((PAIRS, data.pairs), (EXAMPLES, data.examples)):
        for line in leaks.shared(questions, [pair.question for pair in pairs]):
            raise UpkeepError(
                "a question of the evaluation",
                where=f"{file}, line {line + 1}",
                expected="questions that are not asked",
                found=pairs[line].question,
            )
