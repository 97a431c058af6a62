"""Embedders: sentence-transformers models, read from a local folder, never from a network.

A text's vector is of the text alone: it is computed by itself, so nothing that is embedded beside it changes a bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from upkeep.cell.embedder import pieces
from upkeep.cell.packages import package_folder
from upkeep.contract import ModelSpec


def load_embedder(spec: ModelSpec, path: str | Path | None, threads: int = 1) -> SentenceEmbedder:
    """Load an embedder, on the GPU if it needs one.

    Args:
        path: the folder of the weights; None or empty for a model that an installed package carries.
        threads: CPU threads.

    Raises:
        FileNotFoundError: there are no weights.
        ValueError: the spec is not that of an embedder.
    """
    if spec.role != "embedder":
        raise ValueError(f"{spec.location} is a {spec.role}, not an embedder")
    return SentenceEmbedder(spec, Path(path) if path else package_folder(spec.location), threads)


class SentenceEmbedder:
    """A sentence-transformers model as an `Embedder`."""

    def __init__(self, spec: ModelSpec, path: Path, threads: int) -> None:
        import torch
        from sentence_transformers import SentenceTransformer

        if not path.is_dir():
            raise FileNotFoundError(f"no weights of the embedder at {path}")
        torch.set_num_threads(threads)
        self._spec = spec
        self._model = SentenceTransformer(
            str(path),
            device="cuda" if spec.gpus else "cpu",
            local_files_only=True,
            trust_remote_code=False,
            model_kwargs={"dtype": getattr(torch, spec.dtype)},
        )
        # Only the card's prefixes count: a prompt in the model's own files would be an instruction unseen.
        self._model.default_prompt_name = None
        own_limit = self._model.max_seq_length or spec.context_length
        self._model.max_seq_length = min(own_limit, spec.context_length)
        tokenizer = self._model.tokenizer
        prefix = len(tokenizer(spec.document_prefix, add_special_tokens=False)["input_ids"])
        self._room: int = self._model.max_seq_length - tokenizer.num_special_tokens_to_add() - prefix

    def documents(self, texts: Sequence[str]) -> np.ndarray:
        """(n, d) float32, each row of length 1."""
        return self.encode([self._spec.document_prefix + text for text in texts])

    def queries(self, texts: Sequence[str]) -> np.ndarray:
        """(n, d) float32, each row of length 1."""
        return self.encode([self._spec.query_prefix + text for text in texts])

    def windows(self, text: str) -> list[str]:
        """The text cut into pieces that the embedder reads whole; at the starts of words where it can be."""
        return pieces(text, self.cuts(text))

    def cuts(self, text: str) -> list[int]:
        """Where the pieces of a text begin (`windows`), but the first, in characters."""
        encoded = self._model.tokenizer(
            text, add_special_tokens=False, truncation=False, return_offsets_mapping=True, verbose=False
        )
        starts = [start for start, _ in encoded["offset_mapping"]]
        words = encoded.word_ids()
        cuts: list[int] = []
        at = 0
        while len(starts) - at > self._room:
            end = at + self._room
            cut = end
            while cut > at and words[cut] == words[cut - 1]:
                cut -= 1
            at = cut if cut > at else end
            cuts.append(starts[at])
        return cuts

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors of texts as they are, without the card's prefixes: (n, d) float32, each row of length 1."""
        vectors = self._model.encode(
            list(texts), batch_size=1, normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False
        )
        return np.asarray(vectors, dtype=np.float32)
