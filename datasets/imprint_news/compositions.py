"""CompRel: questions over chains of facts (ImprintBench 2, D.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from random import Random

from upkeep.building import leaks
from upkeep.building.assistant import Assistant
from upkeep.building.reading import Faults

from . import steps
from .candidates import Candidate, each
from .chains import Graph, Link, Path
from .corpus import Corpus, Encyclopedia, Relation, relations, written
from .sampling import apportion

HOPS = (2, 3, 4)
KINDS: tuple[steps.ChainKind, ...] = ("counterfactual", "temporal", "composition", "indirect", "alias")


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
    for n, fact in each(replies):
        evidence = corpus.find(n, fact.quote)
        if not all(map(leaks.key, (fact.subject, fact.relation, fact.object))):
            left["comp_rel, empty fact"] += 1
        elif not evidence:
            left["comp_rel, quote not in the article"] += 1
        else:
            before = fact.before if fact.before and leaks.key(fact.before) != leaks.key(fact.object) else None
            day = corpus.articles[n].date
            yield Link(fact.subject, fact.relation, fact.object, fact.quote, day, n, evidence, before)
