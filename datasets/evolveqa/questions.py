"""From facts to questions, their answers at each cut-off date, and the three formats (evolveQA 2.2)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from upkeep.building import leaks

from . import format_steps, phrasing, question_steps
from .facts import Corpus, Fact
from .workshop import Workshop, centrality, distinct, nearest

DISTRACTOR_CHUNKS = 4
OPTIONS = 4


@dataclass(frozen=True, slots=True)
class Answer:
    """What a document answers to a question."""

    document: int
    date: str
    text: str
    chunk: int
    """Place in `Corpus.chunks` of the words that it was found by."""


@dataclass(frozen=True, slots=True)
class State:
    """What is right at a cut-off date."""

    cutoff: str
    answer: str
    used: tuple[Answer, ...]
    """The answers that it was merged from, in order of time."""
    history: tuple[Answer, ...]
    """All dated answers up to the cut-off, in order of time."""
    outdated: tuple[str, ...]
    """Earlier answers that are wrong now, in order of time."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its states in order of their cut-offs."""

    topic: phrasing.Topic
    text: str
    sources: tuple[int, ...]
    """Documents that it may be answered from."""
    states: tuple[State, ...]


@dataclass(frozen=True, slots=True)
class Forms:
    """Multiple choice and yes/no pair for one gold answer; None where none could be made."""

    choice: tuple[str, tuple[str, ...], int] | None
    """Question, options, place of the right one."""
    pair: format_steps.Pair | None


def evolving(corpus: Corpus, shop: Workshop) -> tuple[list[Question], dict[str, int]]:
    """The questions about facts that change, and for each concept the number of tuples with evidence of change."""
    changed, conflicts = _changes(corpus, shop)
    asked = shop.ask(question_steps.QUESTION, [question_steps.Changed(evidence, why) for _, evidence, why in changed])
    texts = ["" if reply is None else " ".join(reply.question.split()) for reply in asked]
    shop.counts["left out: no question about the change"] += texts.count("")
    kept = [n for n, text in enumerate(texts) if text]
    kept = [kept[n] for n in cleaned([texts[n] for n in kept], shop)]
    pairs = [(changed[n][0], texts[n]) for n in kept]
    shop.counts["questions before answers"] = len(pairs)
    answers = _answers(corpus, pairs, shop)
    states = _states(corpus, [text for _, text in pairs], answers, shop)
    found = [
        Question(fact.topic, text, tuple(sorted({corpus.chunks[c].document for c in fact.chunks})), tuple(mine))
        for (fact, text), mine in zip(pairs, states, strict=True)
        if mine
    ]
    return found, conflicts


def _changes(corpus: Corpus, shop: Workshop) -> tuple[list[tuple[Fact, question_steps.Evidence, str]], dict[str, int]]:
    given: list[tuple[Fact, question_steps.Evidence]] = []
    for fact in corpus.facts:
        passages = _passages(fact, corpus, shop.options.passages)
        if len(passages) < 2:
            shop.counts["left out: facts of one date"] += 1
        else:
            given.append((fact, question_steps.Evidence(fact.topic, passages)))
    conflicts: defaultdict[str, int] = defaultdict(int)
    found = []
    replies = shop.ask(question_steps.CHANGE, [evidence for _, evidence in given])
    for (fact, evidence), reply in zip(given, replies, strict=True):
        if reply is not None and reply.evolving_knowledge == "yes":
            conflicts[fact.topic.concept] += 1
            found.append((fact, evidence, reply.reasoning))
    shop.counts["facts with evidence of change"] = len(found)
    return found, dict(conflicts)


def _passages(fact: Fact, corpus: Corpus, most: int) -> tuple[phrasing.Dated, ...]:
    """The most central chunks, each of another document and another date, in order of time."""
    documents: set[int] = set()
    dates: dict[str, str] = {}
    for n in fact.chunks:
        chunk = corpus.chunks[n]
        date = corpus.documents[chunk.document].date
        if chunk.document not in documents and date not in dates and len(dates) < most:
            documents.add(chunk.document)
            dates[date] = chunk.text
    return tuple(phrasing.Dated(date, dates[date]) for date in sorted(dates))


def cleaned(texts: Sequence[str], shop: Workshop) -> list[int]:
    """Places of the questions that ask for no list and repeat none before them (2.2.1)."""
    lists = shop.agreed(
        question_steps.LISTING, [phrasing.One(text) for text in texts], lambda reply: reply.list == "yes"
    )
    shop.counts["left out: list questions"] += lists.count(True)
    kept = [n for n, one in enumerate(lists) if not one]
    near = shop.similar(shop.embed([texts[n] for n in kept]))
    exact = [(a, b) for a, b in near if leaks.key(texts[kept[a]]) == leaks.key(texts[kept[b]])]
    unsure = sorted(set(near) - set(exact))
    pairs = [phrasing.Two(texts[kept[a]], texts[kept[b]]) for a, b in unsure]
    same = shop.agreed(question_steps.SAME_QUESTION, pairs, lambda reply: reply.same == "yes")
    doubled = {later for _, later in exact} | {later for (_, later), one in zip(unsure, same, strict=True) if one}
    shop.counts["left out: duplicate questions"] += len(doubled)
    return [n for place, n in enumerate(kept) if place not in doubled]


# ---------------------------------------------------------------- gold answers


def _answers(corpus: Corpus, pairs: Sequence[tuple[Fact, str]], shop: Workshop) -> list[list[Answer]]:
    """For each question the answers of its documents, in order of time."""
    candidates = [
        (n, document)
        for n, (fact, _) in enumerate(pairs)
        for document in sorted({corpus.chunks[c].document for c in fact.chunks})
    ]

    def source(n: int, document: int) -> question_steps.Source:
        entry = corpus.documents[document]
        return question_steps.Source(pairs[n][1], phrasing.Dated(entry.date, entry.text))

    relevant = shop.agreed(
        question_steps.RELEVANT, [source(*one) for one in candidates], lambda reply: reply.relevant == "yes"
    )
    candidates = [one for one, yes in zip(candidates, relevant, strict=True) if yes]
    found: list[list[Answer]] = [[] for _ in pairs]
    replies = shop.ask(question_steps.EXTRACT, [source(*one) for one in candidates])
    for (n, document), reply in zip(candidates, replies, strict=True):
        text = "" if reply is None else " ".join(reply.answer.split())
        if leaks.key(text):
            mine = [c for c in pairs[n][0].chunks if corpus.chunks[c].document == document]
            found[n].append(Answer(document, corpus.documents[document].date, text, _telling(corpus, mine, text)))
    return found


def _telling(corpus: Corpus, chunks: Sequence[int], answer: str) -> int:
    """The first of some chunks that holds an answer, else the first."""
    return next((c for c in chunks if leaks.tells(corpus.chunks[c].text, [answer])), chunks[0])


def _states(
    corpus: Corpus, texts: Sequence[str], answers: Sequence[Sequence[Answer]], shop: Workshop
) -> list[list[State]]:
    """For each question what is right at each cut-off (2.2.2).

    The answers up to a cut-off are a beginning of all; what follows from each beginning is asked once.
    """
    reached = {
        (n, sum(answer.date <= cutoff for answer in mine))
        for n, mine in enumerate(answers)
        for cutoff in shop.options.cutoffs
    }
    # Fewer than two different answers: nothing has changed by then.
    asked = sorted((n, size) for n, size in reached if len(distinct([a.text for a in answers[n][:size]])) > 1)
    shop.counts["left out: a single answer up to the cut-off"] += len(reached) - len(asked)
    given = [_newest_first(corpus, texts[n], answers[n][:size]) for n, size in asked]
    changed = shop.agreed(question_steps.EVOLVES, given, lambda reply: reply.changed == "yes")
    shop.counts["left out: no change of knowledge"] += changed.count(False)
    live = [place for place, one in enumerate(changed) if one]
    finals: dict[tuple[int, int], tuple[str, tuple[Answer, ...]]] = {}
    replies = shop.ask(question_steps.FINAL, [given[place] for place in live])
    for place, reply in zip(live, replies, strict=True):
        n, size = asked[place]
        merged = "" if reply is None else " ".join(reply.final_answer.split())
        used = sorted({id for id in reply.answer_ids if 0 <= id < size}) if reply is not None else []
        if not leaks.key(merged) or not used:
            shop.counts["left out: no final answer"] += 1
        elif leaks.tells(texts[n], [merged]):
            shop.counts["left out: answer in question"] += 1
        else:
            finals[n, size] = merged, tuple(answers[n][id] for id in used)
    older = {
        key: [text for text in distinct([a.text for a in answers[key[0]][: key[1]]]) if leaks.key(text) != leaks.key(m)]
        for key, (m, _) in finals.items()
    }
    keys = [key for key in finals if older[key]]
    stale = shop.ask(
        question_steps.STALE, [question_steps.Older(texts[n], finals[n, s][0], tuple(older[n, s])) for n, s in keys]
    )
    outdated: dict[tuple[int, int], tuple[str, ...]] = {}
    for key, judged in zip(keys, stale, strict=True):
        if judged is None:  # else it would be taken for a fact that was only added to
            shop.counts["left out: earlier answers not judged"] += 1
            del finals[key]
        else:
            outdated[key] = tuple(older[key][i - 1] for i in sorted(set(judged.outdated)) if 1 <= i <= len(older[key]))
    states: list[list[State]] = [[] for _ in texts]
    for n, mine in enumerate(answers):
        for cutoff in shop.options.cutoffs:
            size = sum(answer.date <= cutoff for answer in mine)
            if (n, size) in finals:
                merged, used_answers = finals[n, size]
                wrong = outdated.get((n, size), ())
                states[n].append(State(cutoff, merged, used_answers, tuple(mine[:size]), wrong))
    return states


def _newest_first(corpus: Corpus, question: str, answers: Sequence[Answer]) -> question_steps.Answers:
    found = [question_steps.Found(n, a.date, a.text, corpus.chunks[a.chunk].text) for n, a in enumerate(answers)]
    return question_steps.Answers(question, tuple(reversed(found)))


# ---------------------------------------------------------------- formats


def forms(corpus: Corpus, questions: Sequence[Question], shop: Workshop) -> dict[tuple[int, str], Forms]:
    """The other two formats for each question and each of its gold answers, by (place, key of the answer)."""
    first: dict[tuple[int, str], State] = {}
    for n, question in enumerate(questions):
        for state in question.states:
            first.setdefault((n, leaks.key(state.answer)), state)
    keys = list(first)
    wanted = shop.options.formats
    choices: list[tuple[str, tuple[str, ...], int] | None] = [None] * len(keys)
    if "mcq" in wanted:
        related = _related(corpus, questions)
        sheets = []
        for n, key in keys:
            state = first[n, key]
            past = [corpus.chunks[a.chunk].text for a in reversed(state.history) if a.text in state.outdated]
            chunks = list(dict.fromkeys([*past, *related[n]]))[:DISTRACTOR_CHUNKS]
            sheets.append(format_steps.Sheet(questions[n].text, state.answer, tuple(chunks)))
        replies = shop.ask(format_steps.CHOICE, sheets)
        choices = [
            shuffled(reply, sheet.answer, f"{shop.options.seed} {sheet.question} {sheet.answer}")
            for sheet, reply in zip(sheets, replies, strict=True)
        ]
        shop.counts["left out: no multiple choice"] += choices.count(None)
    pairs: list[format_steps.Pair | None] = [None] * len(keys)
    if "verifiable" in wanted:
        answered = [format_steps.Answered(questions[n].text, first[n, key].answer) for n, key in keys]
        pairs = [_usable(reply) for reply in shop.ask(format_steps.PAIR, answered)]
        shop.counts["left out: no yes/no pair"] += pairs.count(None)
    return {key: Forms(choice, pair) for key, choice, pair in zip(keys, choices, pairs, strict=True)}


def _related(corpus: Corpus, questions: Sequence[Question]) -> list[list[str]]:
    """For each question the chunks nearest to those that it was made from, each of another foreign document."""
    if not len(corpus.chunks):
        return [[] for _ in questions]
    owner = np.array([chunk.document for chunk in corpus.chunks])
    found = []
    for question in questions:
        mine = sorted({answer.chunk for state in question.states for answer in state.history})
        foreign = np.flatnonzero(~np.isin(owner, question.sources))
        texts: dict[int, str] = {}
        for n in foreign[nearest(corpus.vectors[foreign], corpus.vectors[mine].mean(axis=0))]:
            texts.setdefault(int(owner[n]), corpus.chunks[n].text)
            if len(texts) == DISTRACTOR_CHUNKS:
                break
        found.append(list(texts.values()))
    return found


def shuffled(reply: format_steps.Choice | None, gold: str, seed: str) -> tuple[str, tuple[str, ...], int] | None:
    """Question, options in a seeded order and the place of the right one; None where the reply breaks a rule.

    The right letter has to point at the gold answer. The extra number takes the place of a distractor that comes from
    no chunk, where there is one.
    """
    if reply is None or not leaks.key(reply.question) or len(reply.options) != OPTIONS:
        return None
    if leaks.key(reply.options.get(reply.correct, "")) != leaks.key(gold):
        return None
    wrong = [letter for letter in sorted(reply.options) if letter != reply.correct]
    wrong.sort(key=lambda letter: letter not in reply.used_chunks_for_distractors)  # stable: grounded ones first
    texts = [" ".join(reply.options[letter].split()) for letter in wrong]
    if leaks.key(reply.additional_distractor) and wrong[-1] not in reply.used_chunks_for_distractors:
        texts[-1] = " ".join(reply.additional_distractor.split())
    options = [gold, *texts]
    if len(distinct(options)) < OPTIONS or not all(leaks.key(option) for option in options):
        return None
    Random(seed).shuffle(options)
    return " ".join(reply.question.split()), tuple(options), options.index(gold)


def _usable(pair: format_steps.Pair | None) -> format_steps.Pair | None:
    """The pair with single spaces; None where a question is missing or both are the same."""
    if pair is None:
        return None
    yes, no = " ".join(pair.yes_question.split()), " ".join(pair.no_question.split())
    keys = leaks.key(yes), leaks.key(no)
    return format_steps.Pair(yes, no) if all(keys) and keys[0] != keys[1] else None


# ---------------------------------------------------------------- control set


def static(corpus: Corpus, changing: Sequence[Question], conflicts: dict[str, int], shop: Workshop) -> list[Question]:
    """Questions about facts that do not change, from documents that no changing fact is in (4.1)."""
    options, counts = shop.options, shop.counts
    ranked = sorted(conflicts, key=lambda concept: (-conflicts[concept], concept))[: options.conflicts]
    counts["control: concepts left out"] = len(ranked)
    barred = {mention.document for mention in corpus.mentions if mention.concept in ranked}
    counts["control: documents of these"] = len(barred)
    behind = {document for question in changing for document in question.sources}
    counts["control: documents behind questions"] = len(behind - barred)
    topics: dict[int, tuple[str, str]] = {}
    for mention in corpus.mentions:
        topics.setdefault(mention.document, (mention.entity, mention.concept))
    last = options.cutoffs[-1]
    free = [n for n in sorted(topics.keys() - barred - behind) if corpus.documents[n].date <= last]
    rng = Random(f"evolveqa control {options.seed}")
    drawn = sorted(rng.sample(free, min(len(free), options.control_documents)))
    counts["control: documents to draw from"], counts["control: documents drawn"] = len(free), len(drawn)
    given = [
        question_steps.Calm(phrasing.Dated(corpus.documents[n].date, corpus.documents[n].text), *topics[n])
        for n in drawn
    ]
    replies = shop.ask(question_steps.STATIC, given)
    of: defaultdict[int, list[int]] = defaultdict(list)
    for n, chunk in enumerate(corpus.chunks):
        of[chunk.document].append(n)
    found: list[Question] = []
    for n, reply in zip(drawn, replies, strict=True):
        question, answer, attribute = (
            (" ".join(text.split()) for text in (reply.question, reply.answer, reply.attribute))
            if reply is not None
            else ("", "", "")
        )
        if not all(leaks.key(text) for text in (question, answer, attribute)):
            counts["left out: documents without a static fact"] += 1
            continue
        if leaks.tells(question, [answer]):
            counts["left out: answer in question"] += 1
            continue
        date = corpus.documents[n].date
        rows = [of[n][row] for row in centrality(corpus.vectors[of[n]])]
        only = (Answer(n, date, answer, _telling(corpus, rows, answer)),)
        states = tuple(State(cutoff, answer, only, only, ()) for cutoff in options.cutoffs if date <= cutoff)
        found.append(Question(phrasing.Topic(*topics[n], attribute), question, (n,), states))
    return [found[n] for n in cleaned([question.text for question in found], shop)]
