"""A method's card."""

from typing import Any, Literal

from upkeep.contract.base import Name, Positive, Record
from upkeep.contract.cells import Aliases
from upkeep.contract.models import Resources

Supervision = Literal["", "C", "Q", "C+Q"]
Sees = Literal["documents", "evidence", "answers"]
"""What of the answer key a method is given."""


class MethodCard(Record, frozen=True, kw_only=True):
    """`methods/<method>/method.yaml`."""

    label: str
    papers: list[str]
    summary: str
    reference: str
    """Paper and section, or the publication that it comes from."""
    variants: dict[Name, dict[str, Any]]
    """Parameters of each named setting. `writer`, `embedder` and `embedder_gpu` are none, but the models of these roles
    in this setting; nor are `sees` and `shows`. `supervision` is one, and decides what is handed in."""
    settings: list[str] = []
    """The parameters that tables print in their `setting` column, in order."""
    supervision: Supervision = ""
    """What a method is given, unless a variant says so: C documents, Q question-answer pairs. Of a method that does not
    train it has documents in any case, and pairs come with theirs."""
    command: list[str] = []
    """A program to be run in the method's folder in place of `method.py`, in words: `[sh, answer.sh]`."""
    aliases: Aliases = {}
    """Names that upstream code gives to models: `gpt-4o-mini: reader`."""
    one_at_a_time: bool = False
    """Whether one probe, or one stream at one position, is worked on at a time: for code with one client or with
    state of its own."""
    per_question: bool = False
    """Whether it keeps something of a question from one probe to the next, as a memory of its own. A container that
    takes over is then asked again, too, what an earlier one has answered; the record knows the replies."""
    max_calls: Positive = 10_000
    """Model calls through the door that one probe in one trial, or one stream at one position, may make."""
    model: bool = True
    """Whether it talks to a model."""
    engine: Literal["", "own"] = ""
    """`own`: it brings what runs its model, whose weights are in its own container (`upkeep.cell.own`)."""
    passes: Positive = 1
    """How often an engine of its own computes a prompt that it has not kept, for plans."""
    embedder: str | None = None
    """The embedder, for methods with dense retrieval: a small one, which runs on the CPU as the model does."""
    embedder_gpu: str | None = None
    """The paper's embedder: beside a model on GPUs, and on a paper's own dataset beside one behind an endpoint."""
    sees: Sees = "documents"
    """What of the answer key it is given, unless a variant says so: only upper bounds, controls, and what measures, see
    any."""
    measures: bool = False
    """Whether it measures what probabilities a model gives, in place of answering: its predictions have `values` and no
    response, its cells scores of these values alone. No endpoint tells the probability of a given text."""
    trains: bool = False
    """Whether it makes a model of another one, in place of answering."""
    asks: bool = False
    """Whether a training asks the model that it starts from, before it trains."""
    prefix: bool = False
    """Whether a training makes a prefix, which the transformers engine alone serves and nothing is trained on."""
    shows: dict[str, Any] | None = None
    """What its prompts show, unless a variant says so (`upkeep.method_cards.shown_of`)."""
    streams: Positive = 1
    """Streams that are fed side by side at least, where there are so many: more than one for a method that asks a model
    about documents one after the other, which would keep an engine waiting."""
    resources: Resources = Resources()

    @property
    def holds_model(self) -> bool:
        """Whether it has its model in its own container: it trains it, or brings what runs it."""
        return self.model and (self.trains or self.engine == "own")
