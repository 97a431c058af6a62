"""Embeds texts inside a container: `python -m upkeep.serving.embed SPEC TEXTS VECTORS [WEIGHTS]`.

SPEC is a JSON file with the embedder's card, TEXTS a file with a JSON list of strings; VECTORS takes a NumPy file of
shape (texts, dimensions), float32, each row of length 1. Long texts are the mean of their windows.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import numpy as np

from upkeep.contract import ModelSpec
from upkeep.serving.embedding import load_embedder


def main(spec: str, texts: str, vectors: str, weights: str | None = None) -> None:
    embedder = load_embedder(msgspec.json.decode(Path(spec).read_bytes(), type=ModelSpec), weights)
    wanted = msgspec.json.decode(Path(texts).read_bytes(), type=list[str])
    windows = [embedder.windows(text) or [text] for text in wanted]
    rows = embedder.documents([window for parts in windows for window in parts])
    ends = np.cumsum([len(parts) for parts in windows])
    means = np.stack([part.mean(axis=0) for part in np.split(rows, ends[:-1])]) if wanted else rows
    np.save(vectors, (means / np.linalg.norm(means, axis=1, keepdims=True)).astype(np.float32))


if __name__ == "__main__":
    main(*sys.argv[1:])
