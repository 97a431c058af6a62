"""The model researches a question in the documents, search after search, before it answers."""

from upkeep.cell.searching import Searching


class DeepResearch(Searching):
    each = 5
    rules = (
        "\n\nResearch the question before you answer. Think of what speaks for each answer and what against it, and"
        " look for both. You may search for documents up to {k} times; each search finds five that were not found"
        " before. Answer when nothing more is to be found out."
    )
