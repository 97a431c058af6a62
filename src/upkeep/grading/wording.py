"""What the wording of options gives away: what they share, and where documents mention them."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl


def _plain(text: pl.Expr) -> pl.Expr:
    """Its words in lower case, with one space between them."""
    return text.str.to_lowercase().str.replace_all(r"[^\p{L}\p{N}]+", " ").str.strip_chars()


def overlap(options: pl.Series, groups: pl.Series) -> pl.Series:
    """How often the words and parts of each option stand in the others of its group, added up."""
    rows = pl.DataFrame({"group": groups, "option": options}).with_row_index("row")
    words = rows.select("row", "group", part=_plain(pl.col("option")).str.split(" "))
    parts = rows.select("row", "group", part=pl.col("option").str.replace_all(";", ",", literal=True).str.split(","))
    parts = parts.explode("part").with_columns(_plain(pl.col("part")))
    all_parts = pl.concat([words.explode("part"), parts]).filter(pl.col("part") != "").unique()
    shared = all_parts.with_columns(others=pl.len().over("group", "part").cast(pl.Int64) - 1)
    sums = shared.group_by("row").agg(pl.col("others").sum())
    return rows.join(sums, on="row", how="left", maintain_order="left")["others"].fill_null(0)


def mentions(documents: pl.DataFrame, terms: Sequence[str]) -> pl.DataFrame:
    """The last mention of each term in each document that has it.

    Args:
        terms: plain texts (`_plain`), each once.

    Returns:
        stream, position, term, place: of two mentions the later has the larger place; of two that end at the same word
        the longer.
    """
    padded = [f" {term} " for term in terms]
    spaced = documents.select(
        "stream", pl.col("position").cast(pl.Int64), text=pl.format(" {} ", _plain(pl.col("text")))
    )
    found = spaced.select(
        "stream",
        "position",
        at=pl.col("text").str.find_many(padded, overlapping=True),
        term=pl.col("text").str.extract_many(padded, overlapping=True),
    )
    found = found.explode("at", "term").drop_nulls("at")
    length = pl.col("term").str.len_bytes().cast(pl.Int64)
    place = pl.col("position") * 2**40 + (pl.col("at") + length) * 2**12 + length.clip(upper_bound=2**12 - 1)
    last = found.with_columns(place=place).group_by("stream", "position", "term").agg(pl.col("place").max())
    return last.with_columns(pl.col("term").str.strip_chars()).sort("position", "place")


def last_mentioned(rows: pl.DataFrame, documents: pl.DataFrame) -> pl.Series:
    """When each option was last mentioned in what had arrived; of one that was not, a negative number, the nearer to 0
    the more questions offer it.

    Args:
        rows: stream, position, option.
    """
    asked = rows.select("stream", pl.col("position").cast(pl.Int64), term=_plain(pl.col("option"))).with_row_index()
    told = mentions(documents, asked["term"].unique(maintain_order=True).to_list())
    found = asked.sort("position").join_asof(told, on="position", by=["stream", "term"], check_sortedness=False)
    offered = pl.len().over("term").cast(pl.Int64) - len(rows) - 1
    return found.with_columns(pl.col("place").fill_null(offered)).sort("index")["place"]


def last_of(answers: pl.Series, rows: pl.DataFrame, documents: pl.DataFrame) -> pl.Series:
    """The answer that was mentioned last in what had arrived at each probe; null for none."""
    terms = pl.DataFrame({"answer": answers}).with_columns(term=_plain(pl.col("answer")))
    terms = terms.filter(pl.col("term") != "").unique("term", keep="first", maintain_order=True)
    told = mentions(documents, terms["term"].to_list()).group_by("stream", "position", maintain_order=True).last()
    told = told.join(terms, on="term", how="left").sort("position")
    asked = rows.select("stream", pl.col("position").cast(pl.Int64)).with_row_index("index").sort("position")
    return asked.join_asof(told, on="position", by="stream", check_sortedness=False).sort("index")["answer"]
