"""Texts of the small datasets' worlds, under fresh names, for methods to run over.

Worlds do not say what a sentence tells, so it is read off its words: names are what the generators invent, and the
first of a sentence is its subject.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random

from msgspec.structs import replace

from recipe import working
from recipe.groups import Group, answer_of
from recipe.lessons import refusal_of, written
from recipe.renaming import Pools, renamer
from recipe.statements import STREAM, Question, Sentence, Text
from upkeep.cell.prompts import Prompt
from upkeep.contract import Document, Form, Gold, Probe, PromptCard

OF = ", of a small dataset's text"
"""Said after a skill."""
LONGEST = 700
"""Tokens of a passage at most."""
UNNAMED = ("imprint_code", "imprint_personal")
"""Prompts of worlds of which most sentences have no name: code, and what somebody says of themselves."""
_WORD = re.compile(r"[A-Za-z]{3,}")
_OF = re.compile(r"^The ([a-z ]+) of ([^.]+?) is (?:now )?([^.]+)\.$")
_ASKED = re.compile(r"[A-Za-z]{3,}|\d+")
_EMPTY = re.compile(
    "what|who|which|where|whom|whose|when|how|are|was|were|been|being|did|does|has|had|have|the|and|for|from|with|now"
    "|this|that|than|point|its|any"
)
"""Words of a question that nothing is found by."""
WORDS = 4
"""Of a question besides its names, at most, to search by."""
_UNIT = re.compile(r"(?:\d+ )?\w+$")
_COUNTED = re.compile(r"(^|\s)\d+\. |\w+: \d+\.")


def by_dataset(groups: Iterable[Group]) -> list[list[Group]]:
    """The groups whose sentences have names, those of a dataset together."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        if group.world.prompt not in UNNAMED:
            found.setdefault(group.world.dataset, []).append(group)
    return [of_one for _, of_one in sorted(found.items())]


def passage(
    rng: Random,
    prompts: Mapping[str, PromptCard],
    groups: Sequence[Sequence[Group]],
    pools: Pools,
    names: frozenset[str],
    size: Callable[[str], int],
    documents: int,
    questions: int,
    form: Form | None = None,
) -> Text:
    """Some documents of a world, with questions that they answer.

    Args:
        groups: those of each dataset, each as likely (`by_dataset`).
        names: the invented words of worlds.
        documents: as many, or as many as the questions rest on.
        form: of the questions; default: any.
    """
    while True:
        group = rng.choice(rng.choice(groups))
        if form not in (None, group.probes[0][0].form):
            continue
        prompt, by_id = Prompt(prompts[group.world.prompt]), {d.id: d for d in group.documents}
        found: list[tuple[Probe, Gold, list[str]]] = []
        shown: set[str] = set()
        for probe, gold in rng.sample(list(group.probes), min(4 * questions, len(group.probes))):
            told = sorted((by_id[id] for id in set(gold.evidence) if id in by_id), key=lambda d: d.position)
            lines = told_by(group, probe, gold, told, names)
            if lines and len(found) < questions and all(probe.question != other.question for other, *_ in found):
                found.append((probe, gold, lines))
                shown |= {document.id for document in told}
        others = [d.id for d in group.documents if d.id not in shown]
        shown |= set(rng.sample(others, min(len(others), max(0, documents - len(shown)))))
        kept = [d for d in group.documents if d.id in shown]
        if found and sum(size(d.text) for d in kept) <= LONGEST:
            break
    rename = renamer(pools, names, rng)
    # Each line once: a name always becomes the same one, and a sentence is itself wherever it stands.
    triples = {line: _triple(line, names) for d in kept for line in _lines(d.text)}
    said = {line: _said(line, triple, names, rename) for line, triple in triples.items() if triple}
    return Text(
        documents=[replace(d, stream=STREAM, text=rename(d.text)) for d in kept],
        told=[[said[line] for line in _lines(d.text) if line in said] for d in kept],
        prompt=group.world.prompt,
        questions=[
            _question(group, prompt, probe, gold, [said[line] for line in lines], names, rename)
            for probe, gold, lines in found
        ],
        of=OF,
    )


def _question(
    group: Group,
    prompt: Prompt,
    probe: Probe,
    gold: Gold,
    told: Sequence[Sentence],
    names: frozenset[str],
    rename: Callable[[str], str],
) -> Question:
    """A probe under fresh names."""
    name = group.world.prompt
    before = rename(group.before.get((probe.position, probe.question), ""))
    options = probe.options and [*map(rename, probe.options)]
    asked = replace(probe, stream=STREAM, question=rename(probe.question), options=options)
    answer = rename(answer_of(group, probe, gold))
    return Question(
        probe=asked,
        told_by=told,
        words=[*map(rename, words_of(probe.question, names))],
        answer=answer,
        reply=written(name, prompt, asked, answer, before),
        refusal=prompt.target(refusal_of(name)) if probe.form == "short" else "",
    )


def told_by(group: Group, probe: Probe, gold: Gold, documents: Sequence[Document], names: frozenset[str]) -> list[str]:
    """The sentences that tell an answer: those that are written before it, or else the only one that has it together
    with the names of the question; none, where there is none of these, or one says nothing by itself, or counts twice.

    Args:
        documents: the evidence, in order.
    """
    lines = [line for document in documents for line in _lines(document.text)]
    before = group.before.get((probe.position, probe.question), "")
    written_down = [line for line in working.sentences([_COUNTED.sub(r"\1", before).strip()]) if line]
    if written_down and set(written_down) <= set(lines):
        once = len(set(written_down)) == len(written_down)
        return written_down if once and all(_triple(line, names) for line in written_down) else []
    options, answer = probe.options or [], answer_of(group, probe, gold).strip("`")
    if probe.form == "choice":
        answer = options[string.ascii_uppercase.index(answer)]
    elif probe.form == "label":
        answer = before
    asked = [name for name in _names(probe.question, names) if name != answer]
    # What somebody had done is no news.
    telling = [line for line in lines if answer and answer in line and " had " not in line]
    telling = [line for line in telling if asked and all(name in line for name in asked)]
    return telling[:1] if len(set(telling)) == 1 and _triple(telling[0], names) else []


def words_of(question: str, names: frozenset[str]) -> list[str]:
    """What to search for: the names of a question, and the first of its other words that say something."""
    told = question.rpartition(": ")[2]  # of several lines the last
    found = _names(told, names)
    parts = {word for name in found for word in name.split()}
    others = [w for w in _ASKED.findall(told) if w not in parts and not _EMPTY.fullmatch(w.lower())][:WORDS]
    return [*found, *([" ".join(others)] if others else [])]


def _triple(line: str, names: frozenset[str]) -> tuple[str, ...]:
    """Subject, relation and object of a sentence: its attribute; or its first name, and what comes after it up to the
    last name or word; none, where it has no such parts."""
    if told := _OF.match(line):
        return (told[2], told[1], told[3])
    found = _names(line, names)
    if not found or line[-1] not in ".?!”":  # a title says nothing
        return ()
    after = line.partition(found[0])[2].strip(" ,.?!”")
    unit = _UNIT.search(after)
    last = found[-1] if after.endswith(found[-1]) else unit[0] if unit else ""
    relation = after.removesuffix(last).strip()
    return (found[0], relation, last) if last and relation else ()


def _said(line: str, triple: tuple[str, ...], names: frozenset[str], rename: Callable[[str], str]) -> Sentence:
    """A sentence under fresh names. What a later one takes the place of is known of attributes alone."""
    key = triple[:2] if _OF.match(line) else (line,)

    def renamed(parts: Iterable[str]) -> tuple[str, ...]:
        return tuple(map(rename, parts))

    return Sentence(rename(line), renamed(_names(line, names)), renamed(triple), renamed(key))


def _lines(text: str) -> list[str]:
    return working.sentences(text.split("\n"))


def _names(text: str, names: frozenset[str]) -> list[str]:
    """The invented words of a text, those together that stand together, once each."""
    found: list[str] = []
    end = -2  # nothing stands before the first
    for match in _WORD.finditer(text):
        if match[0].lower() in names:
            if match.start() == end + 1 and text[end] == " ":
                found[-1] += f" {match[0]}"
            else:
                found.append(match[0])
            end = match.end()
    return list(dict.fromkeys(found))
