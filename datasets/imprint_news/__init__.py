"""The World News part of ImprintBench (2, D.1), built from dated articles: corpus, questions, supervision pairs."""

from .builder import Options, build

__all__ = ["Options", "build"]
