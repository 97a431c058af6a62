"""What a language model is asked for: judgements on features and snippets, descriptions, questions, training pairs.

Rules of the prompts: ImprintBench, D.2 and E; the wording is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from upkeep.building.assistant import GREEDY, Step
from upkeep.contract import Sampling

from .features import Kind

MASK = "<MASK>"
SAMPLED = Sampling(temperature=0.7, top_p=0.95, top_k=20, max_tokens=2048)
"""For what is judged several times: with greedy decoding all judgements would be one."""
EVALUATED = Sampling(temperature=0.7, top_p=0.95, top_k=20, max_tokens=4096)
"""The paper's decoding (C.3), for models that try a question."""


class About(Struct, frozen=True, kw_only=True):
    """A feature as the notes and whatever else was given tell of it."""

    library: str
    version: str
    path: str
    kind: Kind
    heading: str
    bullet: str
    pulls: list[str] = []
    """Title, body and changed files of each pull request."""
    documentation: str = ""


class Snippet(Struct, frozen=True, kw_only=True):
    """Code that uses a feature."""

    library: str
    path: str
    kind: Kind
    code: str
    masked: str = ""
    documentation: str = ""
    question: str = ""


class PairsOf(Struct, frozen=True, kw_only=True):
    """A feature's document, to make training pairs from."""

    library: str
    path: str
    kind: Kind
    document: str
    count: int


class Trial(Struct, frozen=True, kw_only=True):
    """A question as it is evaluated."""

    question: str


class Verdict(Struct, frozen=True):
    """Judge 1."""

    new: bool
    path: str
    kind: Kind


class Novelty(Struct, frozen=True):
    """Judge 2."""

    novel: bool


class Description(Struct, frozen=True):
    description: str


class Audit(Struct, frozen=True):
    uses: bool
    self_contained: bool


class Cut(Struct, frozen=True):
    snippet: str


class Quality(Struct, frozen=True):
    library_used: bool
    right_name: bool
    name_hidden: bool


class Question(Struct, frozen=True):
    question: str


class Faithful(Struct, frozen=True):
    operations_are_there: bool
    gives_away: bool
    fits: bool


class TrainingPair(Struct, frozen=True):
    kind: Literal["recall", "reference", "usage"]
    question: str
    answer: str


def _evidence(given: About) -> str:
    parts = [
        f"Library: {given.library} {given.version}",
        f"Identifier: {given.path} ({given.kind})",
        f"Heading in the release notes: {given.heading}",
        f"Entry of the release notes:\n{given.bullet}",
        *(f"Pull request:\n{pull}" for pull in given.pulls),
    ]
    if given.documentation:
        parts.append(f"Documentation:\n{given.documentation}")
    return "\n\n".join(parts)


def _canonical(given: About) -> str:
    return (
        f"{_evidence(given)}\n\nDoes this release truly add the identifier as something that a Python program can"
        " call (a function, class, method or callable object), or, where it is given as a parameter, truly add that"
        " parameter to a callable? A faster, fixed or extended old one is not new. Judge by the evidence above alone."
        " Give the full path by which users import it, its last part being the identifier itself; a parameter's path is"
        " that of its callable with the parameter's name after it.\n"
        'Reply in JSON: {"new": true or false, "path": "...",'
        ' "kind": "function", "class", "method", "distribution" or "parameter"}'
    )


def _novel(given: About) -> str:
    return (
        f"{_evidence(given)}\n\nIs the name itself new? It is not where the release merely ports, renames or aliases"
        " something that the library, or a namespace beside it, had before under the same last word."
        '\nReply in JSON: {"novel": true or false}'
    )


def _describe(given: About) -> str:
    return (
        f"{_evidence(given)}\n\nSay in one clause what it does, so that somebody who knows the library can tell it from"
        " everything else there. Begin with a verb in the third person. Do not name it, nor any word of its name that"
        ' can be avoided. No full stop at the end.\nReply in JSON: {"description": "..."}'
    )


def _audit(given: Snippet) -> str:
    return (
        f"Library: {given.library}\nIdentifier: {given.path}\n\nA file:\n\n{given.code}\n\nDoes the file really use"
        " this identifier of this library, and not something else of the same name? Can a short piece that shows the"
        " use be cut out so that it is understood by itself?\n"
        'Reply in JSON: {"uses": true or false, "self_contained": true or false}'
    )


def _cut(given: Snippet) -> str:
    return (
        f"Library: {given.library}\nIdentifier: {given.path}\n\nA file:\n\n{given.code}\n\nCut out a piece of 5 to 30"
        " lines that shows how the identifier is used. The lines with the use stay exactly as they are.\n"
        'Reply in JSON: {"snippet": "..."}'
    )


def _quality(given: Snippet) -> str:
    return (
        f"Library: {given.library}\nIdentifier: {given.path}\n\nCode:\n\n{given.code}\n\nThe same with the"
        f" identifier masked:\n\n{given.masked}\n\nJudge three things. library_used: the code really uses this"
        " library. right_name: what is masked is this identifier and not another of the same name. name_hidden: the"
        " name cannot be read from comments, docstrings or names of variables that are left.\n"
        'Reply in JSON: {"library_used": true or false, "right_name": true or false, "name_hidden": true or false}'
    )


def _masked(given: Snippet) -> str:
    return (
        f"Library: {given.library}\n\nCode with one identifier replaced by {MASK}:\n\n{given.masked}\n\nDocumentation"
        f" of the identifier:\n{given.documentation or '(none)'}"
    )


def _ask(given: Snippet) -> str:
    name = given.path.rpartition(".")[2]
    return (
        f"{_masked(given)}\n\nWrite one question whose only answer is the identifier"
        f" at {MASK}: about what this code does, so that it cannot be answered without knowing the library. Never write"
        f" `{name}` and no light rewording of it; technical terms that cannot be avoided are allowed.\n"
        'Reply in JSON: {"question": "..."}'
    )


def _validate(given: Snippet) -> str:
    return (
        f"{_masked(given)}\n\nA question about it:\n{given.question}\n\nJudge three"
        " things. operations_are_there: every operation that the question speaks of is in the code. gives_away: the"
        " question contains or nearly contains the identifier. fits: the question belongs to this code and not merely"
        " to some code.\nReply in JSON:"
        ' {"operations_are_there": true or false, "gives_away": true or false, "fits": true or false}'
    )


def _pairs(given: PairsOf) -> str:
    return (
        f"Library: {given.library}\nIdentifier: {given.path} ({given.kind})\n\n{given.document}\n\nWrite {given.count}"
        " short questions with short answers that teach this change, in three kinds, about equally many of each: recall"
        " (asks for a fact about the identifier by its name), reference (describes it without its name, the answer is"
        " the name), usage (asks what to write in a program, the answer is a name or an expression). Every question"
        " names the library and stands by itself; no two ask the same.\nReply in JSON, a list of"
        ' {"kind": "recall", "reference" or "usage", "question": "...", "answer": "..."}'
    )


def _summary(given: About) -> str:
    return (
        f"{_evidence(given)}\n\nTell in one paragraph of plain prose what is new, what it is for and how it is used."
        " Only what stands above; full names of identifiers. Reply with the paragraph alone."
    )


def _attempt(given: Trial) -> Sequence[tuple[str, str]]:
    return [("user", f"{given.question}\n\nReply with the identifier alone, as it would stand in the code.")]


CANONICAL = Step("imprint_code.canonical", Verdict, _canonical, sampling=SAMPLED)
NOVEL = Step("imprint_code.novel", Novelty, _novel, sampling=SAMPLED)
DESCRIBE = Step("imprint_code.describe", Description, _describe, sampling=GREEDY)
AUDIT = Step("imprint_code.audit", Audit, _audit, sampling=GREEDY)
CUT = Step("imprint_code.cut", Cut, _cut, sampling=GREEDY)
QUALITY = Step("imprint_code.quality", Quality, _quality, sampling=SAMPLED)
ASK = Step("imprint_code.ask", Question, _ask, sampling=GREEDY)
VALIDATE = Step("imprint_code.validate", Faithful, _validate, sampling=GREEDY)
PAIRS = Step("imprint_code.pairs", list[TrainingPair], _pairs, sampling=GREEDY)
SUMMARY = Step("imprint_code.summary", str, _summary, sampling=GREEDY)
ATTEMPT = Step("imprint_code.attempt", str, _attempt, sampling=EVALUATED)
