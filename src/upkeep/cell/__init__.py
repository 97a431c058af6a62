"""What runs inside a cell's container, and what a method imports.

    from upkeep.cell import Answer, Context, LLM, Method, Probe, Seen

This package and `upkeep.contract` are all of the suite that an image holds; it imports no other module of `upkeep`.
Its code is part of every cell's identity.
"""

from upkeep.cell.method import (
    LLM,
    Answer,
    Context,
    GeneratedToken,
    Message,
    Method,
    Reply,
    ScoredToken,
    Seen,
    ToolCall,
    Tools,
)
from upkeep.contract import ContextUse, Document, Gold, Pair, Probe, Retrieved, Sampling

__all__ = [
    "LLM",
    "Answer",
    "Context",
    "ContextUse",
    "Document",
    "GeneratedToken",
    "Gold",
    "Message",
    "Method",
    "Pair",
    "Probe",
    "Reply",
    "Retrieved",
    "Sampling",
    "ScoredToken",
    "Seen",
    "ToolCall",
    "Tools",
]
