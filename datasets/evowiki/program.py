"""Programs that reply in the assistant's place: about a synthetic world, and about the pages of legislators, whose
sentences are regular, too."""

from __future__ import annotations

import re

from upkeep.building.assistant import Script

from . import questions
from .synthetic import ALL

_TOLD = {
    re.compile(re.escape(relation.told).replace(r"\{0\}", "(.+?)").replace(r"\{1\}", "([^.]+)")): relation.asked
    for relation in ALL.values()
}


_SENATOR = r"(.+?)\.(?: The | {page}'|$)"
"""A name, up to the next sentence of a state's page: a name may have full stops of its own."""
_CONGRESS = (
    (r"{page} is an American politician from (.+?)\. {page} is ", "Which state or territory is {page} from?"),
    (r"{page} is .*?a member of (the Senate|the House of Representatives)\.", "In which chamber does {page} sit?"),
    (r"There {page} speaks for (.+?)\. {page} ", "Which constituency does {page} speak for?"),
    (r"{page} belongs to the (.+?)\. ", "Of which party is {page} a member?"),
    (r"{page} was born on (\w+ \d+, \d+)\.", "When was {page} born?"),
    (r"The office address of {page} is (.+?)\. The present term of ", "At what address is the office of {page}?"),
    (r"The present term of {page} began on (\w+ \d+, \d+)\.", "On what day did the present term of {page} begin?"),
    (r"The senior senator of {page} is " + _SENATOR, "Who speaks for {page} as its senior senator?"),
    (r"The junior senator of {page} is " + _SENATOR, "Who speaks for {page} as its junior senator?"),
    (r"The representative of {page} is (.+?)\.$", "Who speaks for {page}?"),
    (r"The {post} is held by (.+?)\.$", "By whom is the {post} held?"),
)
"""What a page of `legislators` says, once in its life, and the question to it. Of what a person has several, committees
and posts, nothing is asked: a pair has one answer."""


def of_world() -> Script:
    """For each step what it replies, from what it is given alone."""
    return {questions.REWRITE.name: _rewrite, questions.PAIRS.name: _pairs}


def of_congress() -> Script:
    """It puts no question into other words."""
    return {questions.PAIRS.name: _pairs_of_congress}


def _rewrite(chain: questions.Chain) -> questions.Rewritten:
    _, _, asked = chain.template.removesuffix("?").partition(" is ")
    return questions.Rewritten(f"Please name {asked}.", chain.answers[0])


def _pairs(passage: questions.Passage) -> list[questions.Written]:
    found = []
    for sentence in re.findall(r"[^.\n]+\.", passage.context):
        for form, asked in _TOLD.items():
            if match := form.fullmatch(sentence.strip()):
                found.append(questions.Written(asked.format(*match.groups()), match[2]))
    return found[: passage.count]


def _pairs_of_congress(passage: questions.Passage) -> list[questions.Written]:
    """Of a page of a person, state, district or post; of none whose title has an identifier, for two bear the name."""
    title = passage.title
    if title.endswith(")"):
        return []
    names = {"page": title, "post": title[0].lower() + title[1:]}
    forms = {name: re.escape(said) for name, said in names.items()}
    return [
        questions.Written(asked.format(**names), match[1])
        for told, asked in _CONGRESS
        if (match := re.search(told.format(**forms), passage.context))
    ][: passage.count]
