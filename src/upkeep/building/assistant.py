"""The language model that helps to make a dataset: it extracts, rewrites, judges, in small steps.

A step is a prompt and the form of its reply. Every reply is kept as soon as it is there, so a build that was killed
goes on where it was, and a second build asks nothing. What a step's replies cost is counted in the card.

    CONCEPTS = Step("concepts", Concepts, _concepts_prompt)
    with answering.by(context, options.assistant, script) as helper:
        replies = helper.ask(CONCEPTS, [Document(...), ...])   # one reply, or None, for each
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from upkeep.contract import Sampling
from upkeep.errors import UpkeepError

Given = TypeVar("Given", bound=msgspec.Struct)
Reply = TypeVar("Reply")

GREEDY = Sampling(temperature=0.0, max_tokens=2048)


@dataclass(frozen=True)
class Step(Generic[Given, Reply]):
    """One kind of request.

    Args:
        name: as in the card and in the costs (`imprint_news.blind`).
        reply: the type of the reply: `str` for free text, else a type that msgspec decodes from the first JSON value
            in the model's text.
        prompt: for what is given, the user message, or the (role, text) turns of a conversation that ends with the
            user's. It carries the paper's rules in our own words.
        system: the system message; empty for none.
        sampling: how it is decoded.
    """

    name: str
    reply: type[Reply]
    prompt: Callable[[Given], str | Sequence[tuple[str, str]]]
    system: str = ""
    sampling: Sampling = GREEDY


@dataclass
class Tally:
    """What a step has asked for."""

    requests: int = 0
    unread: int = 0
    """Replies in another form than demanded."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0
    """What its replies cost when they were made."""


class Assistant(Protocol):
    """Answers the steps of a builder."""

    tallies: dict[str, Tally]
    """Step -> what it has asked for, kept replies included: the same for every build of the same inputs."""

    def ask(self, step: Step[Given, Reply], given: Sequence[Given], trial: int = 0) -> list[Reply | None]:
        """The reply to each request, in order; None where there is none of the demanded form, which the assistant
        has noted as a fault.

        Args:
            trial: asks the same again with another seed, where several judgements of one thing are wanted.
        """
        ...


Script = Mapping[str, Callable[[Any], Any]]
"""Name of a step -> the function that replies to what the step is given."""


@dataclass
class Scripted:
    """An assistant that is a program: what a synthetic world knows of itself, one function a step.

    Raises:
        UpkeepError: a step has no function.
    """

    steps: Script
    tallies: dict[str, Tally] = field(default_factory=dict)

    def ask(self, step: Step[Given, Reply], given: Sequence[Given], trial: int = 0) -> list[Reply | None]:
        if step.name not in self.steps:
            raise UpkeepError(f"no script for the step {step.name!r}", expected=f"one of {', '.join(self.steps)}")
        self.tallies.setdefault(step.name, Tally()).requests += len(given)
        return [self.steps[step.name](one) for one in given]


def read_reply(text: str, kind: type[Reply]) -> Reply:
    """A model's text as the form that was demanded: the first JSON value in it that has the form.

    Raises:
        msgspec.MsgspecError: there is none.
    """
    if kind is str:
        return text.strip()  # type: ignore[return-value]
    fault: msgspec.MsgspecError = msgspec.DecodeError("no JSON value in the reply")
    for start, end in _values(text):
        try:
            return msgspec.json.decode(text[start:end].encode("utf-8", "replace"), type=kind)
        except msgspec.MsgspecError as error:
            fault = error
        except RecursionError:
            fault = msgspec.DecodeError("nested too deeply")
    raise fault


def _values(text: str) -> list[tuple[int, int]]:
    """Where the outermost JSON objects and arrays of a text may lie; linear in its length.

    A bracket without its partner counts for nothing, and a quotation ends with its line, as in JSON.
    """
    found: list[tuple[int, int]] = []
    opened: list[int] = []
    pending = {"{": 0, "[": 0}
    quoted = escaped = False
    for place, character in enumerate(text):
        if quoted:
            quoted = character != "\n" and (escaped or character != '"')
            escaped = character == "\\" and not escaped
        elif character == '"' and opened:
            quoted = True
        elif character in "{[":
            opened.append(place)
            pending[character] += 1
        elif character in "}]" and pending[partner := "{" if character == "}" else "["]:
            while text[start := opened.pop()] != partner:
                pending[text[start]] -= 1
            pending[partner] -= 1
            while found and found[-1][0] > start:
                found.pop()
            found.append((start, place + 1))
    return found


def statistics(assistant: Assistant) -> dict[str, float]:
    """Requests and tokens of each step, for the card."""
    found: dict[str, float] = {}
    for name, tally in sorted(assistant.tallies.items()):
        found[f"asked: {name}"] = tally.requests
        if tally.unread:
            found[f"unread: {name}"] = tally.unread
    for tokens in ("prompt_tokens", "completion_tokens"):
        if total := sum(getattr(tally, tokens) for tally in assistant.tallies.values()):
            found[f"asked: {tokens}"] = total
    if usd := sum(tally.usd for tally in assistant.tallies.values()):
        found["asked: usd"] = round(usd, 6)
    return found
