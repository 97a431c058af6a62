"""How responses are judged where the answer key's words alone do not say what is right."""

import re
from typing import Annotated, Literal

from msgspec import Meta

from upkeep.contract.base import Count, Name, Positive, Record

Meaning = Literal["right", "outdated", "wrong"]
"""What a verdict says of a response; what is outdated was right before, and is not now."""


SLOTS = ("question", "gold", "response", "context", "evidence", "passages")
"""What a rubric's texts may ask for, in braces."""


class Pattern(Record, frozen=True, kw_only=True):
    """A rule on the words of a response. It needs no model, so it counts wherever answers are graded."""

    words: Annotated[list[str], Meta(min_length=1)]
    """Looked for as whole words, whatever their case. The first that stands in the response is the verdict."""
    right: str | None = None
    """The word that is right; null for the one that the answer key has."""
    phrases: list[str] = []
    """Each is right as well, whatever its case, where it begins within the first `within` characters."""
    within: Positive = 600


class Rubric(Record, frozen=True, kw_only=True):
    """A question to a model that judges.

    Texts are taken to the letter, but for slots in braces: `{question}`, `{gold}` (the accepted answers, or the one
    that is looked for), `{response}`, `{context}` (what the question was made from), `{evidence}` (the sentences that
    tell the right answer; about a probe without any nothing is asked), `{passages}`.
    """

    system: str
    user: str
    verdicts: Annotated[dict[str, Meaning], Meta(min_length=2)]
    """What the judge may say, word for word."""
    read: Literal["only", "last", "json"]
    """Where its verdict stands: the one word of `verdicts` in its reply; the last one; the field `verdict` of its JSON
    object."""
    max_tokens: Positive = 512
    each: bool = False
    """Whether it is asked about each accepted answer by itself; the response is right if any of them is found."""
    about: Literal["all", "right", "wrong"] = "all"
    """Which responses it is asked about, as the answer key has them: with `wrong`, those that are right there stay
    right; with `right`, those that are wrong there stay wrong."""
    reasoned: bool = False
    """Whether it is asked about no response but those that say more than an answer: others have no verdict."""
    passages: Count = 0
    """How many of the stream's documents it sees: those nearest to question and right answer, by tf-idf."""
    others_only: bool = False
    """Whether it judges no response of its own model."""

    def __post_init__(self) -> None:
        asked = set(re.findall(r"\{([a-z_]+)\}", self.system + self.user))
        if unknown := sorted(asked - set(SLOTS)):
            raise ValueError(f"no slot {{{unknown[0]}}}: there are {', '.join(f'{{{slot}}}' for slot in SLOTS)}")
        if "response" not in asked:
            raise ValueError("a rubric that does not show the judge the {response}")


class Judgement(Record, frozen=True, kw_only=True):
    """Some of a dataset's probes and who judges their responses: an item of a list in `papers/<paper>/judges.yaml`."""

    where: dict[str, list[str]] = {}
    """Slice -> the values that it is about; `form` -> forms of answers. All probes where nothing is said."""
    decides: Name = "right"
    """`right`: the verdict takes the place of what the answer key's words say. Anything else is a verdict beside that,
    which metrics see as the column `judged_<name>`."""
    pattern: Pattern | None = None
    rubric: Rubric | None = None

    def __post_init__(self) -> None:
        if (self.pattern is None) == (self.rubric is None):
            raise ValueError("a judgement is by a `pattern` or by a `rubric`: found both, or neither")
        if self.pattern is not None and self.decides != "right":
            raise ValueError(f"a `pattern` decides what is right: found `decides: {self.decides}`")
