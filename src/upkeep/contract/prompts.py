"""How a dataset's probes are put to a model."""

from typing import Annotated

from msgspec import Meta

from upkeep.contract.base import Record
from upkeep.contract.predictions import Form


class Rules(Record, frozen=True, kw_only=True):
    """System texts, word for word."""

    system: str
    """Where the model reads a context."""
    closed: str
    """Where it is asked without one: a rule to rely on the text alone would forbid any answer."""


class Headings(Record, frozen=True, kw_only=True):
    """Lines above the parts of what the user says; an empty one is left out."""

    context: str
    question: str


class PromptCard(Rules, frozen=True, kw_only=True):
    """`papers/<paper>/prompts/<prompt>.yaml`: how a dataset's probes are put to a model (`upkeep.cell.prompts`)."""

    form: Form
    """The usual form of an answer, and that of training pairs."""
    marker: Annotated[str, Meta(min_length=1)]
    """What the reply is to put before the answer."""
    headings: Headings
    asks: dict[Form, str] = {}
    """What follows the system text for each form of answer, where the dataset has several."""
    chinese: Rules | None = None
    """The system texts for questions in Chinese, where they are others."""
    indexed: bool = False
    """Whether the question names the newest document's index where documents are shown with theirs."""
