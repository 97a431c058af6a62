"""The candidate questions of each family (ImprintBench 2, D.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

import numpy as np

from upkeep.building import leaks
from upkeep.building.assistant import Assistant
from upkeep.building.reading import Faults

from . import steps
from .chains import Graph, Link, Path
from .corpus import Corpus, Encyclopedia, Relation, leaders, relations, written
from .sampling import apportion

T = TypeVar("T")

Embed = Callable[[Sequence[str]], np.ndarray]
"""Texts to (n, d) rows of length 1; rows of one call can be compared."""

YES_NO = ("yes", "no")
CLAIMS_PER_ARTICLE = 10
EVENTS_PER_SPIKE = 3
HOPS = (2, 3, 4)
AXES = ("forward", "negation", "prior_identity", "backward")
KINDS: tuple[steps.ChainKind, ...] = ("counterfactual", "temporal", "composition", "indirect", "alias")
ABSTENTIONS = (
    "No, the corpus contains no record of",
    "insufficient information",
    "no record of",
    "not in my reference",
    "not mentioned",
    "not covered",
    "no information about",
    "cannot find",
)
"""What counts as abstaining, the gold prefix first (E.1)."""
SHOWN_ARTICLES, SHOWN_CHARACTERS = 8, 3000
"""What a request shows of the articles of a spike or of an event at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A question that may come to be asked."""

    family: str
    stratum: str
    """What shares a number of questions with it: a label, an axis, a number of hops."""
    question: str
    answers: tuple[str, ...]
    article: int
    """The one against whose budget it counts."""
    evidence: tuple[int, ...]
    """Positions of the documents that it was made from."""
    facts: tuple[str, ...] = ()
    """What it rests on besides: facts of the encyclopedia."""
    outdated: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    """The permitted labels; empty for an open question."""
    slices: Mapping[str, str] = field(default_factory=dict)

    def passages(self, corpus: Corpus) -> tuple[str, ...]:
        """All that it was made from."""
        return (*corpus.passages(self.evidence), *self.facts)


def dir_acq(corpus: Corpus, helper: Assistant, left: Counter[str]) -> list[Candidate]:
    """Ten yes/no questions an article, half of them about a statement with one element exchanged."""
    replies = helper.ask(steps.CLAIMS, [article.story(CLAIMS_PER_ARTICLE) for article in corpus.articles])
    found: list[Candidate] = []
    for n, claim in _each(replies):
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


# ---------------------------------------------------------------- TempUpd


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
    for n, update in _each(replies):
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


# ---------------------------------------------------------------- CompRel


def comp_rel(
    corpus: Corpus,
    encyclopedia: Encyclopedia,
    helper: Assistant,
    wanted: Mapping[int, int],
    tries: int,
    rng: Random,
    left: Counter[str],
    faults: Faults,
) -> list[Candidate]:
    """Questions over chains of 2, 3 and 4 facts.

    Args:
        wanted: hops -> chains that are put into words.
        tries: random chains through each fact of the corpus.
    """
    facts = list(_facts(corpus, helper, left))
    named = {leaks.key(name) for fact in facts for name in (fact.subject, fact.object)}
    graph = Graph([*facts, *map(_looked_up, relations(encyclopedia, named, max(HOPS) - 1, faults))])
    chosen: list[tuple[steps.ChainKind, Path, Path]] = []
    for hops in HOPS:
        paths = graph.paths(hops, tries, rng)
        picked = apportion(paths, lambda path: path.article, corpus.tokens, wanted[hops], rng)
        chosen += _kinds(graph, picked)
    last = corpus.articles[-1].date
    given = []
    for kind, _, path in chosen:
        turn = None if path.changed is None else path.links[path.changed]
        given.append(
            steps.Chain(
                kind,
                tuple(steps.LinkGiven(link.subject, link.relation, link.object, link.text) for link in path.links),
                path.answer,
                written(last if turn is None else turn.date),
                "" if turn is None else turn.relation,
                tuple(corpus.articles[n].text for n in _articles(path)),
            )
        )
    replies = helper.ask(steps.COMPOSE, given)
    found: list[Candidate] = []
    for (kind, now, path), reply in zip(chosen, replies, strict=True):
        if reply is None:
            continue
        places = [next(filter(None, (corpus.find(n, quote) for n in _articles(path))), ()) for quote in reply.quotes]
        if not leaks.key(reply.question):
            left["comp_rel, no question could be made"] += 1
        elif leaks.tells(reply.question, path.nodes):
            left["comp_rel, the question names what lies on the chain"] += 1
        elif not all(places):
            left["comp_rel, quote not in the articles"] += 1
        else:
            name = f"comp_rel_{len(path.links)}hop"
            evidence = {place for link in path.links for place in link.evidence}
            evidence |= {position for place in places for position in place}
            undone = graph.undone(now) if path.changed is None else None
            found.append(
                Candidate(
                    family="comp_rel",
                    stratum=name,
                    question=reply.question,
                    answers=(path.answer,),
                    article=path.article,
                    evidence=tuple(sorted(evidence)),
                    facts=tuple(link.text for link in path.links if link.article is None),
                    outdated=() if undone is None else (undone.answer,),
                    slices={"comp_rel": name, "comp_rel_kind": kind},
                )
            )
    return found


def _kinds(graph: Graph, paths: Sequence[Path]) -> Iterator[tuple[steps.ChainKind, Path, Path]]:
    """Each chain's kind, with the path as it is and the path asked about.

    Kinds take turns, by themselves among the chains that the same kinds suit: else those that suit few would get all
    the chains on which something changed.
    """
    turns: Counter[tuple[steps.ChainKind, ...]] = Counter()
    for path in paths:
        asked = {"counterfactual": graph.undone(path), "temporal": graph.earlier(path)}
        suited = tuple(kind for kind in KINDS if asked.get(kind, path) is not None)
        kind = suited[turns[suited] % len(suited)]
        turns[suited] += 1
        yield kind, path, asked.get(kind) or path


def _articles(path: Path) -> list[int]:
    return sorted({link.article for link in path.links if link.article is not None})


def _looked_up(one: Relation) -> Link:
    return Link(one.subject, one.relation, one.object, f"The {one.relation} of {one.subject} is {one.object}.")


def _facts(corpus: Corpus, helper: Assistant, left: Counter[str]) -> Iterator[Link]:
    replies = helper.ask(steps.FACTS, [article.story() for article in corpus.articles])
    for n, fact in _each(replies):
        evidence = corpus.find(n, fact.quote)
        if not all(map(leaks.key, (fact.subject, fact.relation, fact.object))):
            left["comp_rel, empty fact"] += 1
        elif not evidence:
            left["comp_rel, quote not in the article"] += 1
        else:
            before = fact.before if fact.before and leaks.key(fact.before) != leaks.key(fact.object) else None
            day = corpus.articles[n].date
            yield Link(fact.subject, fact.relation, fact.object, fact.quote, day, n, evidence, before)


# ---------------------------------------------------------------- ImpRel and BoundAbs


@dataclass(frozen=True, slots=True)
class Cluster:
    """Candidate answers that name one event."""

    answer: str
    """That of the earliest."""
    article: int
    """The article that tells of it first."""
    articles: tuple[int, ...]
    """All that were found to tell of it."""
    size: int
    """Candidate answers in it: how salient the event is."""


def salience(size: int) -> str:
    """The bin of a cluster's size."""
    return "salience_1" if size == 1 else "salience_2_4" if size <= 4 else "salience_5_up"


def imp_rel(
    corpus: Corpus, helper: Assistant, embed: Embed, threshold: float, left: Counter[str]
) -> tuple[list[Candidate], list[Cluster]]:
    """One broad question for each event that the spikes name, and the clusters of their candidate answers."""
    spikes: dict[tuple[str, str], list[int]] = {}
    for n, article in enumerate(corpus.articles):
        spikes.setdefault((article.spike, article.market), []).append(n)
    groups = sorted(spikes.items())
    given = [
        steps.Spike(market, written(day), shown(corpus, members), EVENTS_PER_SPIKE) for (day, market), members in groups
    ]
    events: list[tuple[steps.Event, int, tuple[int, ...]]] = []
    replies = helper.ask(steps.EVENTS, given)
    for n, event in _each(replies):
        places = ((member, corpus.find(member, event.quote)) for member in groups[n][1])
        member, evidence = next((place for place in places if place[1]), (0, ()))
        if not evidence:
            left["imp_rel, quote not in the articles"] += 1
        elif not leaks.key(event.answer):
            left["imp_rel, no answer"] += 1
        else:
            events.append((event, member, evidence))
    alike: dict[int, list[int]] = {}
    for n, leader in enumerate(leaders(embed([event.answer for event, _, _ in events]), threshold)):
        alike.setdefault(leader, []).append(n)
    found: list[Candidate] = []
    clusters: list[Cluster] = []
    for leader, members in alike.items():
        event, told_in, evidence = events[leader]
        clusters.append(Cluster(event.answer, told_in, tuple(sorted({events[n][1] for n in members})), len(members)))
        found.append(
            Candidate(
                family="imp_rel",
                stratum="imp_rel",
                question=event.question,
                answers=tuple(dict.fromkeys([event.answer, *filter(leaks.key, event.accepted)])),
                article=told_in,
                evidence=evidence,
                slices={"salience": salience(len(members))},
            )
        )
    return found, clusters


def shown(corpus: Corpus, articles: Sequence[int]) -> tuple[str, ...]:
    """What a request shows of some articles."""
    return tuple(corpus.articles[n].text[:SHOWN_CHARACTERS] for n in articles[:SHOWN_ARTICLES])


def bound_abs(
    corpus: Corpus, clusters: Sequence[Cluster], helper: Assistant, embed: Embed, nearest: int
) -> tuple[list[Candidate], Counter[str]]:
    """A question by each of four strategies about each event; all are kept, with what the nearest articles say.

    Returns:
        The questions, and how many of all verdicts are `affirm`, `deny` and `unrelated`.
    """
    topics = [(cluster, strategy) for cluster in clusters for strategy in steps.STRATEGIES]
    given = [
        steps.Boundary(
            event=cluster.answer,
            date=written(corpus.articles[cluster.article].date),
            strategy=strategy,
            passages=shown(corpus, cluster.articles),
        )
        for cluster, strategy in topics
    ]
    replies = helper.ask(steps.ABSENT, given)
    asked = [
        (*topic, reply.question)
        for topic, reply in zip(topics, replies, strict=True)
        if reply is not None and leaks.key(reply.question)
    ]
    bodies = [article.text for article in corpus.articles]
    vectors = embed([*bodies, *(question for _, _, question in asked)])
    likeness = vectors[len(bodies) :] @ vectors[: len(bodies)].T
    near = np.argsort(-likeness, axis=1, kind="stable")[:, :nearest].tolist()
    retrieved = [
        steps.Retrieved(question, bodies[n]) for (_, _, question), row in zip(asked, near, strict=True) for n in row
    ]
    judged = helper.ask(steps.VERDICT, retrieved)
    said = iter(judged)
    found: list[Candidate] = []
    total: Counter[str] = Counter({"affirm": 0, "deny": 0, "unrelated": 0})
    for (cluster, strategy, question), row in zip(asked, near, strict=True):
        verdicts: Counter[str] = Counter(one.verdict for one in (next(said) for _ in row) if one is not None)
        total.update(verdicts)
        difficulty = "affirmed" if verdicts["affirm"] else "denied" if verdicts["deny"] else "unmentioned"
        found.append(
            Candidate(
                family="bound_abs",
                stratum="bound_abs",
                question=question,
                answers=ABSTENTIONS,
                article=cluster.article,
                evidence=(),
                slices={
                    "bound_abs": f"bound_abs_{strategy}",
                    "difficulty": difficulty,
                    "verdicts": "_".join(f"{verdict}{verdicts[verdict]}" for verdict in total),
                    "salience": salience(cluster.size),
                },
            )
        )
    return found, total


def _each(replies: Sequence[Sequence[T] | None]) -> Iterator[tuple[int, T]]:
    """(place of the request, one thing of its reply); a request without a readable reply has none."""
    for n, reply in enumerate(replies):
        for one in reply or ():
            yield n, one
