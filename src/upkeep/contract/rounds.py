"""What a container is given round by round: documents, probes, and of the answer key what its method may see."""

from upkeep.contract.base import Count, Positive, Record
from upkeep.contract.predictions import Form


class Pair(Record, frozen=True, kw_only=True):
    """A question with its answer, to train on or to show as an example."""

    question: str
    answer: str
    document: str | None = None
    """Id of the document that it was made of, where there is one."""


class Document(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A unit of a corpus."""

    id: str
    stream: str
    position: Count
    """Place in its stream, from 0."""
    timestamp: str | None
    """ISO 8601, where the stream has dates."""
    text: str
    pairs: list[Pair] = []
    """Training pairs made of it, for a variant whose `supervision` has Q. Those that name no document come with the
    last one of each stream."""


class Probe(Record, frozen=True, kw_only=True):
    """One question at one point of a stream, as a method sees it: nothing in it tells the answer."""

    id: str
    question_id: str
    stream: str
    position: Count
    """The last document that has arrived when the question is asked."""
    question: str
    options: list[str] | None
    """Multiple choice: the options in order, A first; the permitted labels; null for open questions."""
    form: Form
    """How the answer is asked for."""


class Gold(Record, frozen=True, kw_only=True):
    """The answer key of a probe, given to a method that sees answers (`gold`), or without them evidence (`oracle`)."""

    probe_id: str
    answers: list[str]
    """Every accepted answer (an option's letter for multiple choice)."""
    outdated: list[str]
    """Answers that were right before and no longer are."""
    evidence: list[str]
    """Ids of the documents that hold the evidence; the last one is where the present answer began."""
    context: list[str] = []
    """The words that the question was made from, where the paper's oracle reads them in place of whole documents."""


class Round(Record, frozen=True, kw_only=True):
    """A line that the host writes to the container: documents that arrive now, then the probes to answer.

    The next round of a strand is sent when every probe of this one is answered, so what has not arrived is not in the
    container. Each stream is in one strand.
    """

    documents: list[Document]
    probes: list[Probe]
    gold: list[Gold] = []
    done: list[tuple[str, Count]] = []
    """Probes of this round, by id and trial, that an earlier container has answered: they are not asked again."""
    strand: Count = 0
    strands: Positive = 1
    """How many there are; their first rounds are sent at once."""
    last: bool = False
    """Whether it is its strand's last."""
