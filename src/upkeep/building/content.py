"""Hashes of what a dataset holds, part by part: whoever reads one part is not stale by another."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import polars as pl

from upkeep.contract import Pair

PARTS = ("documents", "probes", "answers", "outdated", "evidence", "slices", "pairs", "examples")
GOLD = {"answers": ["answers"], "outdated": ["outdated"], "evidence": ["evidence", "context"]}
"""Parts of the answer key, with their columns; all others (`phase`, `quotes`, `slice_<name>`), and slices of documents,
are the part `slices`."""


def content(
    documents: pl.DataFrame,
    probes: pl.DataFrame,
    gold: pl.DataFrame,
    pairs: Sequence[Pair],
    examples: Sequence[Pair] = (),
) -> dict[str, str]:
    """Hash of each of PARTS.

    They depend on names, types and values of the columns and on the order of rows, not on how a file stores them
    (compression, row groups, dictionaries).
    """
    named = {"probe_id", *itertools.chain(*GOLD.values())}
    rest = [column for column in gold.columns if column not in named]
    sliced = sorted(column for column in documents.columns if column.startswith("slice_"))
    parts = {"documents": _columns(documents.drop(sliced)), "probes": _columns(probes)}
    parts |= {name: _columns(gold.select("probe_id", *_there(gold, columns))) for name, columns in GOLD.items()}
    parts["slices"] = _columns(gold.select("probe_id", *sorted(rest)))
    if sliced:
        of_documents = _columns(documents.select("document_id", *sliced))
        parts["slices"] = hashlib.sha256(f"{parts['slices']}\n{of_documents}".encode()).hexdigest()
    return parts | {"pairs": _pairs(pairs), "examples": _pairs(examples)}


def _there(frame: pl.DataFrame, columns: Sequence[str]) -> list[str]:
    return [column for column in columns if column in frame.columns]


def _columns(frame: pl.DataFrame) -> str:
    digest = hashlib.sha256()
    for column in frame.columns:
        digest.update(f"{column}:{frame[column].dtype}:{len(frame)}\n".encode())
        _hash_values(digest, frame[column])
    return digest.hexdigest()


def _pairs(pairs: Sequence[Pair]) -> str:
    said = ([pair.question, pair.answer, *([pair.document] if pair.document else [])] for pair in pairs)
    lines = (msgspec.json.encode(one) + b"\n" for one in said)
    return hashlib.sha256(b"".join(lines)).hexdigest()


def _hash_values(digest: Any, values: pl.Series) -> None:
    digest.update(np.packbits(values.is_null().to_numpy()).tobytes())
    if isinstance(values.dtype, pl.List):
        digest.update(values.list.len().fill_null(0).cast(pl.Int64).to_numpy().astype("<i8").tobytes())
        lists = values.drop_nulls()
        _hash_values(digest, lists.filter(lists.list.len() > 0).explode())
    elif values.dtype == pl.String:
        texts = values.fill_null("")
        digest.update(texts.str.len_bytes().cast(pl.Int64).to_numpy().astype("<i8").tobytes())
        digest.update("".join(texts.to_list()).encode())
    else:
        digest.update(values.fill_null(0).cast(pl.Int64).to_numpy().astype("<i8").tobytes())
