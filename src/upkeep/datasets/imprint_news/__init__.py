"""The World News part of ImprintBench (2, D.1), built from dated articles: corpus, questions, supervision pairs."""

from upkeep.datasets.imprint_news.builder import build

__all__ = ["build"]
