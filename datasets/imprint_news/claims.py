"""DirAcq: whether the news makes a statement (ImprintBench 2, D.1)."""

from __future__ import annotations

from collections import Counter

from upkeep.building.assistant import Assistant

from . import steps
from .candidates import YES_NO, Candidate, each
from .corpus import Corpus

CLAIMS_PER_ARTICLE = 10


def dir_acq(corpus: Corpus, helper: Assistant, left: Counter[str]) -> list[Candidate]:
    """Ten yes/no questions an article, half of them about a statement with one element exchanged."""
    replies = helper.ask(steps.CLAIMS, [article.story(CLAIMS_PER_ARTICLE) for article in corpus.articles])
    found: list[Candidate] = []
    for n, claim in each(replies):
        evidence = corpus.find(n, claim.quote)
        if not evidence:
            left["dir_acq, quote not in the article"] += 1
        elif (claim.answer == "yes") != (claim.changed == "nothing"):
            left["dir_acq, answer against what was changed"] += 1
        else:
            found.append(
                Candidate(
                    family="dir_acq",
                    stratum=f"dir_acq_{claim.answer}",
                    question=claim.question,
                    answers=(claim.answer,),
                    article=n,
                    evidence=evidence,
                    options=YES_NO,
                )
            )
    return found
