"""What `pico` is taught: contexts laid out as the methods lay them out, each with many questions.

A lesson is one context and several questions about it. A question sees the context and itself, so that one question
alone, as a method asks it, looks the same.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from recipe import working
from recipe.working import NO_INFORMATION
from upkeep.cell.interface import Context
from upkeep.cell.prompts import Prompt
from upkeep.contract import Form, Probe

MOST = 12
"""Questions of a lesson."""
ACTIVE = "## Active\n"
"""How a memory begins."""
REFUSALS: Mapping[str, str] = {"oaks_babi": "Unknown", "evowiki": "unknown"}
"""What is said where nothing tells; other prompts ask for `no information about it`."""


Read = Literal["answer", "after a colon", "whole", "json", "lines", "query", "critique", "verdict"]
"""How a reply is held against what is right (`recipe.measured`)."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """A context and questions about it, as texts with the template's tokens."""

    skill: str
    prefix: str
    turns: Sequence[tuple[str, str]]
    """(the rest of the prompt, the reply)"""
    read: Read = "whole"
    """How the first reply is held against what is right (`recipe.measured`)."""
    accepted: Sequence[str] = ()
    """What is right in the first reply, where it is not all of it."""


def render(
    name: str,
    prompt: Prompt,
    context: Context,
    asked: Sequence[tuple[Probe, str]],
    skill: str,
    before: Mapping[tuple[int, str], str] | None = None,
) -> Lesson:
    """The lesson that asks these probes, all of one form, over one context; each comes with its answer.

    Where there is something to read, what it tells is said before it is judged: a choice gives the option's text before
    its letter, a label the value that holds. So both are found as an open answer is, and compared after that.

    Args:
        name: the prompt's.
        before: what comes before the answer where it is told, by position and question (`working`).
    """
    turns = []
    prefix = ""
    for probe, answer in asked:
        system, user = prompt.messages(probe, context)
        *shown, question = user["parts"]
        prefix = f"<|system|>{''.join(system['parts'])}<|end|><|user|>{''.join(shown)}"
        told = (before or {}).get((probe.position, probe.question)) if answer != refusal_of(name) else None
        reply = written(name, prompt, probe, answer, told) if context else prompt.target(answer)
        turns.append((f"{question}<|end|><|assistant|>", f"{reply}<|end|>"))
    return Lesson(skill, prefix, turns)


def written(name: str, prompt: Prompt, probe: Probe, answer: str, before: str | None) -> str:
    """The reply where there is something to read.

    Args:
        name: the prompt's.
        before: what comes before the answer, of what is no choice.
    """
    if probe.form == "choice" and probe.options:
        before = working.walked(probe.options, probe.options[string.ascii_uppercase.index(answer)])
    reason = f"{'Think:' if name == 'prelude' else ''} {before}\n" if before else ""
    return f"{reason}{prompt.target(answer)}"


def remembered(memory_system: str, before: str, text: str, after: str, skill: str) -> Lesson:
    """The lesson that asks `memory_scaffold`'s question."""
    prefix = f"<|system|>{memory_system}<|end|><|user|># Memory so far\n{before}\n\n# Next text\n{text}"
    return Lesson(skill, prefix, [("<|end|><|assistant|>", f"{after}<|end|>")])


def refusal_of(prompt: str) -> str:
    """What is said where nothing tells."""
    return REFUSALS.get(prompt, NO_INFORMATION)


def probe_of(question: str, form: Form, options: list[str] | None, position: int) -> Probe:
    """A question by itself."""
    return Probe(id="", question_id="", stream="", position=position, question=question, options=options, form=form)
