"""Which features are new by the judgement of the assistant, and what it is shown of them (ImprintBench, D.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from upkeep.building.assistant import Assistant

from . import steps
from .features import PARAMETER, Feature
from .sources import Sources

PULL_CHARACTERS = 4000
"""Of a pull request's text that the assistant and the documents are given."""


def accepted(
    features: Sequence[Feature],
    read: Sources,
    helper: Assistant,
    judge_trials: int,
    novelty_trials: int,
    left_out: Counter[str],
) -> list[Feature]:
    """Those that Judge 1 accepts under one path every time, and Judge 2 finds novel every time (D.2).

    Args:
        judge_trials: how often Judge 1 is asked.
        novelty_trials: how often Judge 2 is asked.
        left_out: counts those that are not accepted, by judge.
    """
    given = [about(feature, read) for feature in features]
    verdicts = [helper.ask(steps.CANONICAL, given, trial) for trial in range(judge_trials)]
    kept: list[Feature] = []
    taken: set[tuple[bool, str]] = set()
    for place, feature in enumerate(features):
        first = verdicts[0][place]
        agreed = first if all(replies[place] == first for replies in verdicts) else None
        if agreed is None or not agreed.new or agreed.path.rpartition(".")[2] != feature.leaf:
            left_out["judge 1"] += 1
            continue
        is_parameter = agreed.kind == PARAMETER
        if is_parameter != (feature.kind == PARAMETER) or (is_parameter, agreed.path) in taken:
            left_out["judge 1"] += 1
            continue
        taken.add((is_parameter, agreed.path))
        parents = tuple(dict.fromkeys([agreed.path.rpartition(".")[0], *feature.parents[1:]])) if is_parameter else ()
        kept.append(replace(feature, canonical=agreed.path, kind=agreed.kind, parents=parents))
    for trial in range(novelty_trials):
        replies = helper.ask(steps.NOVEL, [about(feature, read) for feature in kept], trial)
        novel = [feature for feature, r in zip(kept, replies, strict=True) if r is not None and r.novel]
        left_out["judge 2"] += len(kept) - len(novel)
        kept = novel
    return kept


def about(feature: Feature, read: Sources) -> steps.About:
    """What the assistant is shown of a feature."""
    page = read.docs.get((feature.library, feature.canonical))
    if page is None and feature.parents:
        page = read.docs.get((feature.library, feature.parents[0]))
    pulls = [read.pulls[key] for n in feature.block.pulls if (key := (feature.library, n)) in read.pulls]
    return steps.About(
        library=feature.library,
        version=feature.version,
        path=feature.canonical,
        kind=feature.kind,
        heading=" / ".join(title.plain for title in feature.block.titles),
        bullet=feature.block.text,
        pulls=[pull.text[:PULL_CHARACTERS] for pull in pulls],
        documentation=page or "",
    )
