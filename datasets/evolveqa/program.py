"""The program that replies in the assistant's place: it reads a synthetic world's sentences back from the texts."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from random import Random

from upkeep.building import leaks
from upkeep.building.assistant import Script

from . import fact_steps, format_steps, phrasing, question_steps
from .synthetic import LANGUAGES, Theme, World

_ACTS = tuple(
    f"{manner} {act} the"
    for manner in ("Official", "Short", "Recent", "Detailed")
    for act in ("notice about", "report on", "change of", "news about")
)
"""What the titles of a concept differ in."""
_TOLD = re.compile(r"\b(The|A second) ([a-z ]+?) of (.+?) is (?:now )?(.+?)\.")


def script(world: World, seed: int) -> Script:
    """For each step what a perfect assistant would reply about texts of this world."""
    language = LANGUAGES[world.flavour]
    themes = [*language.changing, language.calm]
    lines = {(line.entity, line.kind.attribute): line for line in (*world.lines, *world.calm)}
    asked = {line.question: line for line in lines.values()}
    kinds = {kind.attribute: kind for theme in themes for kind in theme.kinds}

    def theme_of(title: str) -> Theme | None:
        return next((theme for theme in themes if theme.title in title), None)

    def told(text: str) -> tuple[str, str, str, bool] | None:
        """Attribute, entity, value and whether it is a second one."""
        match = _TOLD.search(text)
        return None if match is None else (match[2], match[3], match[4], match[1] == "A second")

    def subject(text: str) -> str:
        """The attribute that a passage speaks of."""
        return next((attribute for attribute in kinds if f" {attribute} " in f" {leaks.key(text)} "), "")

    def yes(value: bool) -> phrasing.Verdict:
        return "yes" if value else "no"

    def concepts(page: fact_steps.Page) -> dict[str, fact_steps.Concept]:
        found = told(page.text)
        if found is None:
            return {}
        line = lines[found[1], found[0]]
        act = _ACTS[zlib.crc32(page.text.encode()) % len(_ACTS)]
        replies = [fact_steps.Concept(f"{act} {line.theme.title}", line.entity)]
        if world.flavour == "outbreak":
            replies.append(fact_steps.Concept("Publication of a bulletin by an authority", "World Health Office"))
        return {str(n): reply for n, reply in enumerate(replies, 1)}

    def fits(label: str, concept: str) -> bool:
        return theme_of(label) is not None and theme_of(label) is theme_of(concept)

    def place(given: fact_steps.Loose) -> fact_steps.Place:
        return fact_steps.Place(next((n for n, label in enumerate(given.labels, 1) if fits(label, given.concept)), 0))

    def coherent(given: fact_steps.Texts) -> phrasing.Same:
        found = {theme.title if (theme := theme_of(text)) else "" for text in given.texts}
        return phrasing.Same(yes(len(found) == 1 and "" not in found))

    def label(given: fact_steps.Texts) -> fact_steps.Title:
        theme = theme_of(given.texts[0])
        return fact_steps.Title(given.texts[0] if theme is None else f"Any {theme.title}")

    def attribute(given: fact_steps.Passages) -> fact_steps.Attribute:
        subjects = [subject(text) for text in given.texts]
        return fact_steps.Attribute(subjects[0] if len(set(subjects)) == 1 else "")

    def change(given: question_steps.Evidence) -> question_steps.Change:
        values = [found for passage in given.passages if (found := told(passage.text)) is not None]
        replaced = [found[2] for n, found in enumerate(values) if n == 0 or not found[3]]
        if len(set(replaced)) < 2:
            return question_steps.Change("no")
        return question_steps.Change("yes", f"It was {replaced[0]} and is {replaced[-1]}.")

    def question(given: question_steps.Changed) -> question_steps.Asked:
        about = given.evidence.about
        return question_steps.Asked(lines[about.entity, about.attribute].question)

    def relevant(given: question_steps.Source) -> question_steps.Relevant:
        line, found = asked[given.question], told(given.document.text)
        return question_steps.Relevant(yes(found is not None and found[:2] == (line.kind.attribute, line.entity)))

    def extract(given: question_steps.Source) -> question_steps.Extracted:
        found = told(given.document.text)
        return question_steps.Extracted("" if found is None else found[2])

    def evolves(given: question_steps.Answers) -> question_steps.Evolves:
        return question_steps.Evolves(yes(len({answer.answer for answer in given.answers}) > 1))

    def final(given: question_steps.Answers) -> question_steps.Final:
        used: list[question_steps.Found] = []
        for answer in given.answers:
            used.append(answer)
            if "A second " not in answer.context:
                break
        return question_steps.Final(" and ".join(a.answer for a in reversed(used)), [a.id for a in reversed(used)])

    def stale(given: question_steps.Older) -> question_steps.Stale:
        right = given.answer.split(" and ")
        return question_steps.Stale([n for n, old in enumerate(given.older, 1) if old not in right])

    def wrong_values(question: str, answer: str, first: Sequence[str] = ()) -> list[str]:
        """Values of the same kind: those told beside the fact, `first`, others; none of them part of the answer."""
        line = asked[question]
        others = [
            version.value
            for other in (*world.lines, *world.calm)
            if other.kind.values == line.kind.values
            for version in (other.before, *other.changes)
        ]
        drawn = sorted({*line.kind.listed, *others})
        Random(f"{seed} {question} {answer}").shuffle(drawn)
        drawn.sort(
            key=lambda value: (abs(len(value) - len(answer)), -len(value))
        )  # stable: of a length, so that it tells nothing
        return [
            value for value in dict.fromkeys([*line.rejected, *first, *drawn]) if value not in answer.split(" and ")
        ]

    def alike(answer: str, wrong: Sequence[str]) -> list[str]:
        """Wrong values two at a time where the right ones are two, so that the right one does not stand out."""
        if " and " not in answer:
            return list(wrong)
        return [f"{a} and {b}" for a, b in zip(wrong, [*wrong[1:], *wrong[:1]], strict=True)] if len(wrong) > 1 else []

    def choice(given: format_steps.Sheet) -> format_steps.Choice:
        line = asked[given.question]
        kind, own = line.kind.values, {version.value for version in (line.before, *line.changes)}
        seen = {
            found[2]: n
            for n, text in reversed(list(enumerate(given.chunks, 1)))
            if (found := told(text)) is not None and kinds[found[0]].values == kind
        }
        # What was right before in the order of its chunks; of the others those about as long, which tells nothing.
        first = sorted(seen, key=lambda v: (0, seen[v]) if v in own else (1, abs(len(v) - len(given.answer)), -len(v)))
        wrong = wrong_values(given.question, given.answer, first)[:3]
        if len(wrong) < 3:
            return format_steps.Choice("")
        options = dict(zip("ABCD", [given.answer, *alike(given.answer, wrong)], strict=True))
        used = {letter: seen[value] for letter, value in zip("BCD", wrong, strict=True) if value in seen}
        return format_steps.Choice(given.question, options, "A", used)

    def pair(given: format_steps.Answered) -> format_steps.Pair:
        line = asked[given.question]
        wrong = alike(given.answer, wrong_values(given.question, given.answer))[:1]
        if not wrong:
            return format_steps.Pair("", "", "There is no other value.")
        return format_steps.Pair(line.claim(given.answer), line.claim(wrong[0]))

    def static(given: question_steps.Calm) -> question_steps.Static:
        found = told(given.document.text)
        line = None if found is None else lines[found[1], found[0]]
        if found is None or line is None or line.theme is not language.calm:
            return question_steps.Static("")
        return question_steps.Static(line.question, found[2], found[0])

    return {
        "concepts": concepts,
        "same_entity": lambda given: phrasing.Same(yes(given.first == given.second)),
        "virus": lambda given: fact_steps.Virus(yes(given.text.endswith(" virus"))),
        "coherent": coherent,
        "label": label,
        "merge": lambda given: fact_steps.Merge(yes(fits(given.first, given.second))),
        "fits": lambda given: fact_steps.Fits(yes(fits(given.label, given.concept))),
        "place": place,
        "attribute": attribute,
        "change": change,
        "question": question,
        "list_question": lambda given: question_steps.Listing("no"),
        "same_question": lambda given: phrasing.Same(yes(leaks.key(given.first) == leaks.key(given.second))),
        "relevant": relevant,
        "extract": extract,
        "evolves": evolves,
        "final": final,
        "stale": stale,
        "choice": choice,
        "pair": pair,
        "static": static,
    }
