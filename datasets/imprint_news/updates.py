"""TempUpd: what took the place of something else, asked along four axes (ImprintBench 2, D.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from upkeep.building import leaks
from upkeep.building.assistant import Assistant

from . import steps
from .candidates import YES_NO, Candidate, each
from .corpus import Corpus, written

AXES = ("forward", "negation", "prior_identity", "backward")


def forward(update: steps.Update, day: str) -> str:
    """T1: what holds now."""
    if update.kind == "B":
        return f"As of {day}, what is {update.role}?"
    return f"As of {day}, {_who(update)} is {_the(update.role)}?"


def negation(update: steps.Update, day: str) -> str:
    """T2: whether the old still holds."""
    if update.kind == "B":
        return f"As of {day}, is {update.role} still {update.before}?"
    return f"As of {day}, is {update.before} still {_the(update.role)}?"


def prior_identity(update: steps.Update) -> str:
    """T3: what the new entity is known for besides."""
    return f"Apart from being {_the(update.role)}, what is {update.after} known for?"


def backward(update: steps.Update, day: str) -> str:
    """T4: what followed the old."""
    return f"As of {day}, {_who(update)} replaced {update.before} as {_the(update.role)}?"


def _who(update: steps.Update) -> str:
    return "who" if update.person else "what"


def _the(role: str) -> str:
    return role if role.lower().startswith("the ") else f"the {role}"


def temp_upd(corpus: Corpus, helper: Assistant, left: Counter[str]) -> list[Candidate]:
    """Questions along four axes for each change: T1 to T4 for kind A, T1 and T2 for kind B.

    A change that several articles report counts for the first of them.
    """
    replies = helper.ask(steps.UPDATES, [article.story() for article in corpus.articles])
    seen: set[tuple[str, str]] = set()
    found: list[Candidate] = []
    for n, update in each(replies):
        evidence = corpus.find(n, update.quote)
        told = leaks.key(_the(update.role)), leaks.key(update.after)
        if not evidence:
            left["temp_upd, quote not in the article"] += 1
        elif not all(map(leaks.key, (update.role, update.before, update.after))) or told[1] == leaks.key(update.before):
            left["temp_upd, nothing changed"] += 1
        elif told in seen:
            left["temp_upd, told before"] += 1
        else:
            seen.add(told)
            found += _axes(update, corpus, n, evidence)
    return found


def _axes(update: steps.Update, corpus: Corpus, n: int, evidence: tuple[int, ...]) -> Iterator[Candidate]:
    day = written(corpus.articles[n].date)

    def candidate(axis: str, question: str, answer: str, outdated: tuple[str, ...], of: tuple[int, ...]) -> Candidate:
        name = f"temp_upd_{axis}"
        return Candidate(
            family="temp_upd",
            stratum=name,
            question=question,
            answers=(answer,),
            article=n,
            evidence=of,
            outdated=outdated,
            options=YES_NO if axis == "negation" else (),
            slices={"temp_upd": name},
        )

    old = (update.before,)
    yield candidate("forward", forward(update, day), update.after, old, evidence)
    yield candidate("negation", negation(update, day), "no", ("yes",), evidence)
    if update.kind == "A":
        # Nobody was the right answer before: who held the role is named in the question.
        yield candidate("backward", backward(update, day), update.after, (), evidence)
        # Only where the corpus tells it, so that nothing is made up.
        if update.prior and (place := corpus.find(n, update.prior_quote or "")):
            both = tuple(sorted({*evidence, *place}))
            yield candidate("prior_identity", prior_identity(update), update.prior, (), both)
