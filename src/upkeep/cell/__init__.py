"""What runs inside a cell's container, and what a method imports.

    from upkeep.cell import Answer, Context, LLM, Method, Probe, Seen

It imports nothing of the suite but `upkeep.contract`, and needs nothing else in a method's container.
Its code is part of every cell's identity.
"""

from upkeep.cell.interface import LLM, Answer, Context, GeneratedToken, Message, Reply, ScoredToken, Seen, ToolCall
from upkeep.cell.method import Method, Tools
from upkeep.cell.own import OwnEngine
from upkeep.cell.training import Checkpoints, Training
from upkeep.contract import ContextUse, Course, Document, Gold, Pair, Probe, Retrieved, Sampling

__all__ = [
    "LLM",
    "Answer",
    "Checkpoints",
    "Context",
    "ContextUse",
    "Course",
    "Document",
    "GeneratedToken",
    "Gold",
    "Message",
    "Method",
    "OwnEngine",
    "Pair",
    "Probe",
    "Reply",
    "Retrieved",
    "Sampling",
    "ScoredToken",
    "Seen",
    "ToolCall",
    "Tools",
    "Training",
]
