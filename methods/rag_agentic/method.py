"""The model searches for documents itself, one a search, before it answers."""

from upkeep.cell.searching import Searching


class RagAgentic(Searching):
    """A search finds one document, so k searches show k (ImprintBench 3.1)."""
