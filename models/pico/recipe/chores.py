"""Lessons of tasks other than a dataset's questions: summaries, JSON, searches."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from random import Random

from recipe.facts import RELATIONS, tell
from recipe.lessons import MOST, Lesson
from recipe.renaming import Pools

SUMMARY = """\
Sum up what the text says of one subject: what holds where the text ends, a short sentence for each fact, and no more.\
"""
RECORD = """\
Write down as one JSON object what the text says of one subject: the value of each attribute where the text ends.\
"""
SEARCH = """\
Answer the question by searching. To search, write one call in this form and wait for what it finds:
<tool_call>
{"name": "search", "arguments": {"query": "<words>"}}
</tool_call>
Once what was found tells the answer, end with a line `## Answer: <answer>`.\
"""
CHORES: Mapping[str, str] = {
    SUMMARY: "a short summary",
    RECORD: "short JSON",
    SEARCH: "a search as a tool call",
}
"""The skill of each task other than a dataset's questions, by its text, which is ours: no method asks it yet."""
_ATTRIBUTE = re.compile(r"(?:What|Who) is the (.+) of \{0\}\?")


def chore(rng: Random, pools: Pools, count: int, task: str) -> Lesson:
    """A task of `CHORES` over statements about few subjects.

    Args:
        count: statements, at least.
    """
    told = tell(rng, pools, count)
    latest = {(relation, subject): value for relation, subject, value in told}
    named = {r: m[1] for r in RELATIONS for asked in r.asked if (m := _ATTRIBUTE.fullmatch(asked))}
    attributes = {key: named[key[0]] for key in latest if key[0] in named}
    if not attributes:
        return chore(rng, pools, count, task)
    text = " ".join(relation.told.format(subject, value) for relation, subject, value in told)
    turns = []
    system, shown = f"<|system|>{task}<|end|><|user|>", f"# Text\n{text}\n\n# Subject"
    if task == SEARCH:
        shown = ""
        for (relation, subject), attribute in attributes.items():
            question = rng.choice(relation.asked).format(subject)
            call = json.dumps({"name": "search", "arguments": {"query": f"{attribute} of {subject}"}})
            turns.append((f"# Question\n{question}<|end|><|assistant|>", f"<tool_call>\n{call}\n</tool_call><|end|>"))
    else:
        for subject in dict.fromkeys(subject for _, subject in attributes):
            mine = {key[0]: value for key, value in latest.items() if key[1] == subject}
            if task == SUMMARY:
                reply = " ".join(relation.told.format(subject, value) for relation, value in mine.items())
            else:
                reply = json.dumps({named[relation]: value for relation, value in mine.items() if relation in named})
            turns.append((f"\n{subject}<|end|><|assistant|>", f"{reply}<|end|>"))
    return Lesson(CHORES[task], system + shown, turns[:MOST])
