"""What runs inside a cell's container, and what a method imports.

    from upkeep.cell import Answer, Context, LLM, Method, Probe, Seen

This package and `upkeep.contract` are all of the suite that an image holds; it imports no other module of `upkeep`.
Its code is part of every cell's identity.
"""

from upkeep.cell.method import LLM, Answer, Context, Message, Method, Reply, Seen, Tools
from upkeep.contract import ContextUse, Document, Gold, Memory, Pair, Probe, Retrieved, Sampling

__all__ = [
    "LLM",
    "Answer",
    "Context",
    "ContextUse",
    "Document",
    "Gold",
    "Memory",
    "Message",
    "Method",
    "Pair",
    "Probe",
    "Reply",
    "Retrieved",
    "Sampling",
    "Seen",
    "Tools",
]
