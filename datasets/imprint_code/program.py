"""The program that replies in the assistant's place: it answers from the facts of a synthetic world."""

from __future__ import annotations

from upkeep.building.assistant import Script

from . import steps
from .features import METHOD, PARAMETER
from .synthetic import World


def script(world: World) -> Script:
    """For each step what it replies about the features of this world."""
    facts = {fact.path: fact for fact in world.new}

    def canonical(given: steps.About) -> steps.Verdict:
        return steps.Verdict(given.path in facts, given.path, given.kind)

    def question(given: steps.Snippet) -> steps.Question:
        fact = facts[given.path]
        where = f" of {fact.owner}" if fact.kind in (PARAMETER, METHOD) else f" of {fact.library}"
        return steps.Question(f"Which {fact.kind}{where} {fact.does} in this code?")

    def faithful(given: steps.Snippet) -> steps.Faithful:
        fact = facts[given.path]
        return steps.Faithful(steps.MASK in given.masked, fact.leaf in given.question, fact.does in given.question)

    def quality(given: steps.Snippet) -> steps.Quality:
        leaf = given.path.rpartition(".")[2]
        return steps.Quality(given.library in given.code, steps.MASK in given.masked, leaf not in given.masked)

    def pairs(given: steps.PairsOf) -> list[steps.TrainingPair]:
        fact = facts[given.path]
        return [
            steps.TrainingPair("recall", f"What does {fact.path} do?", f"It {fact.does}"),
            steps.TrainingPair("reference", f"What {fact.kind} in {fact.library} {fact.does}?", fact.leaf),
            steps.TrainingPair("reference", f"Name the {fact.kind} in {fact.library} that {fact.does}", fact.leaf),
            steps.TrainingPair("usage", f"In {fact.library}, what do I write for code that {fact.does}?", fact.path),
        ][: given.count]

    return {
        steps.CANONICAL.name: canonical,
        steps.NOVEL.name: lambda given: steps.Novelty(given.path in facts),
        steps.DESCRIBE.name: lambda given: steps.Description(facts[given.path].does),
        steps.AUDIT.name: lambda given: steps.Audit(given.library in given.code, True),
        steps.CUT.name: lambda given: steps.Cut("\n".join(given.code.splitlines()[-7:])),
        steps.QUALITY.name: quality,
        steps.ASK.name: question,
        steps.VALIDATE.name: faithful,
        steps.PAIRS.name: pairs,
        steps.SUMMARY.name: lambda given: f"{given.path} {facts[given.path].does}.",
    }
