"""Vectors of texts for the builders that cluster or de-duplicate.

`lsa` is built in: TF-IDF over words and pairs of words, reduced by a truncated SVD, fitted on the texts themselves. It
needs no weights and no engine and always gives the same vectors, so the small datasets use it. Any embedder of
`models/` takes its place; it runs in a container.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from upkeep.errors import UpkeepError

if TYPE_CHECKING:
    from upkeep.building.context import Context

DIMENSIONS = 128
"""Of `lsa`, at most."""


def embed(context: Context, embedder: str, texts: Sequence[str]) -> np.ndarray:
    """(n, d) float32, each row of length 1. Vectors of one call can be compared, those of two calls with `lsa` cannot.

    Raises:
        UpkeepError: there is no such embedder, or it cannot be run.
    """
    if not texts:
        return np.zeros((0, DIMENSIONS), np.float32)
    return _lsa(texts) if embedder == "lsa" else _by_model(context, embedder, texts)


def _lsa(texts: Sequence[str]) -> np.ndarray:
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    if not any(re.search(r"\w", text) for text in texts):
        return np.ones((len(texts), 1), np.float32)  # nothing tells them apart
    counted = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), token_pattern=r"(?u)\b\w+\b").fit_transform(texts)
    wanted = min(DIMENSIONS, counted.shape[0] - 1, counted.shape[1] - 1)
    vectors = TruncatedSVD(wanted, random_state=0).fit_transform(counted) if wanted >= 2 else counted.toarray()
    return _unit(vectors)


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Rows of length 1; a row without any direction (a text without words) gets one of its own kind: the first axis."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    blank = lengths[:, 0] < 1e-12
    vectors, lengths = (
        np.where(blank[:, None], np.eye(1, vectors.shape[1]), vectors),
        np.where(blank[:, None], 1, lengths),
    )
    return (vectors / lengths).astype(np.float32)


def _by_model(context: Context, embedder: str, texts: Sequence[str]) -> np.ndarray:
    from upkeep.execution.detection import detect
    from upkeep.execution.fetch import fetch

    catalog = context.catalog
    spec = catalog.model(embedder)
    if spec.role != "embedder":
        raise UpkeepError(f"{embedder!r} is no embedder", where=context.where, expected="`lsa` or an embedder's id")
    record = fetch(catalog, embedder)
    runtime = detect(catalog)
    prepared = runtime.prepare(None, "embedder-cpu")
    with tempfile.TemporaryDirectory(prefix="upkeep-") as scratch:
        given, output = Path(scratch) / "given", Path(scratch) / "output"
        for folder in (given, output):
            folder.mkdir()
            folder.chmod(0o755)
        (given / "spec.json").write_bytes(msgspec.json.encode(spec))
        (given / "texts.json").write_bytes(msgspec.json.encode(list(texts)))
        inputs = {"cell": given} | ({"embedder": Path(record.path)} if record.path else {})
        places = [f"{runtime.path_of('cell', given)}/{name}" for name in ("spec.json", "texts.json")]
        arguments = ["-m", "upkeep.serving.embed", *places, f"{runtime.path_of('output', output)}/vectors.npy"]
        arguments += [runtime.path_of("embedder", Path(record.path))] if record.path else []
        runtime.run_tool(prepared, arguments, inputs=inputs, output=output, resources=spec.resources)
        vectors = np.load(output / "vectors.npy", allow_pickle=False)
    if vectors.dtype != np.float32 or vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
        raise UpkeepError(
            f"the embedder {embedder!r} gave no proper vectors",
            expected=f"({len(texts)}, d) finite float32",
            found=f"{vectors.shape} {vectors.dtype}",
        )
    return _unit(vectors)
