"""`cell.json`: all that a container is told."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from upkeep.contract.base import Count, Name, Positive, Record
from upkeep.contract.models import ModelSpec
from upkeep.contract.prompts import PromptCard
from upkeep.contract.rounds import Pair

Role = Literal["reader", "writer", "embedder"]
"""What a model is to a cell: it answers; it writes what a method keeps as documents arrive; it makes vectors."""


class EngineSettings(Record, frozen=True, kw_only=True):
    """How the engine of a cell is started."""

    name: Literal["transformers", "vllm", "endpoint", "own", "none"]
    """`own`: the method's (`engine: own` in its card)."""
    threads: Positive = 1
    max_in_flight: Positive = 256
    """Probes that are answered at the same time."""
    prefix_cache: bool = True
    shuffle: bool = False
    """Benchmarks only: send requests in random order."""
    options: dict[str, Any] = {}


DoorRole = Literal["reader", "embedder", "embedder_query"]
"""What code from elsewhere may ask for (`upkeep.cell.door`): the language model; the embedder, of documents, of
queries. What the embedder's card puts before each is put there."""

Aliases = dict[Annotated[str, Meta(min_length=1, max_length=200)], DoorRole]


class CellDescription(Record, frozen=True, kw_only=True):
    """`cell.json`: all that a container is told. Paths are as the container sees them."""

    task: Literal["answer", "train"]
    dataset: Name
    method: Name
    variant: Name
    model: Name
    parameters: dict[str, Any]
    """The variant's parameters."""
    command: list[str] = []
    """The method's program, where it is none of Python's."""
    aliases: Aliases = {}
    one_at_a_time: bool = False
    per_question: bool = False
    """Probes that are done are answered again, and not written again, so that the method knows of each question what it
    knew."""
    max_calls: Positive = 10_000
    """Of a unit through the door."""
    model_spec: ModelSpec | None
    """None for a method that calls no model."""
    model_path: str | None
    adapters: list[str] = []
    """Folders of adapters that the model at `model_path` is asked or trained with, in the order in which they were
    trained; each in the format of PEFT."""
    writer_spec: ModelSpec | None = None
    """Of the model that is asked as documents arrive; null where that is the reader."""
    writer_socket: str | None = None
    """Unix socket of the way to it."""
    embedder_spec: ModelSpec | None = None
    embedder_socket: str | None = None
    """Unix socket of the embedder, which is outside this container."""
    engine: EngineSettings
    trials: Positive = 1
    seed: Count = 0
    chunk_tokens: Positive
    """Tokens of a document at most, by the dataset's tokenizer."""
    prompt: PromptCard
    """The dataset's, with the user's own text where there is one."""
    examples: list[Pair] = []
    """The dataset's worked examples, for the prompt."""
    output: str
    """The writable folder."""
    documents: str | None = None
    """`train`: file of documents (JSON Lines of Document), in order of stream and position."""
    pairs: str | None = None
    """`train`: file of training pairs (JSON Lines of Pair)."""
    socket: str | None = None
    """Unix socket of the way to the model; null for a method that calls none, and for training. In an engine's own
    container, where it listens."""
