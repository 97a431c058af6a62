"""What the assistant is asked for (ImprintBench, D.1). The paper prints none of these prompts; the wording is ours."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from upkeep.building.assistant import Step
from upkeep.contract import Sampling

YesNo = Literal["yes", "no"]

_WRITER = "You prepare questions that test whether a reader has taken in the news. You reply with JSON alone."
_JUDGE = "You are a careful judge. You reply with JSON alone."
_LONG = Sampling(temperature=0.0, max_tokens=8192)
_BODY = Sampling(temperature=0.0, max_tokens=16384)


def _story(date: str, title: str, text: str) -> str:
    return f"Date of the article: {date}\nTitle: {title}\n\nArticle:\n{text}\n\n"


def _passages(passages: tuple[str, ...]) -> str:
    return "".join(f"Passage {n}:\n{passage}\n\n" for n, passage in enumerate(passages, 1))


# ---------------------------------------------------------------- the corpus


class Page(Struct, frozen=True):
    """An article as it was fetched, with all that stood around it."""

    title: str
    text: str


CLEAN: Step[Page, str] = Step(
    "imprint_news.clean",
    str,
    lambda page: (
        "Below is the text of a web page with a news article. Copy the body of the article word for word, and leave "
        "out all else: navigation, advertising, side bars, lists of other articles, buttons, captions, author and "
        "publication data. Do not shorten, correct or comment. Reply with the body alone.\n\n"
        f"Title: {page.title}\n\nPage:\n{page.text}"
    ),
    sampling=_BODY,
)


class Story(Struct, frozen=True):
    """A cleaned article."""

    date: str
    """As in `3 February 2026`."""
    title: str
    text: str
    count: int = 0
    """How many things are wanted of it, where that is limited."""


class PairReply(Struct, frozen=True):
    """A training pair."""

    question: str
    answer: str


PAIRS: Step[Story, list[PairReply]] = Step(
    "imprint_news.pairs",
    list[PairReply],
    lambda story: (
        _story(story.date, story.title, story.text)
        + f"Write {story.count} questions with answers that together hold all that the article tells. Each question "
        "stands alone: full names, the date where it matters, no mention of an article. Each answer is a few words and "
        'follows from the article. JSON: [{"question": ..., "answer": ...}, ...]'
    ),
    system=_WRITER,
    sampling=_LONG,
)


# ---------------------------------------------------------------- DirAcq


class Claim(Struct, frozen=True):
    """A yes/no question about one statement."""

    question: str
    answer: YesNo
    changed: Literal["nothing", "entity", "date", "quantity", "relation"]
    """What was exchanged to make a false statement."""
    quote: str
    """The words of the article that decide it."""


CLAIMS: Step[Story, list[Claim]] = Step(
    "imprint_news.claims",
    list[Claim],
    lambda story: (
        _story(story.date, story.title, story.text)
        + f"Write {story.count} yes/no questions about the article. Half of them ask about a statement that the "
        "article makes (answer yes, changed nothing). The other half ask about a plausible false one, made from a "
        "statement of the article by exchanging one element: an entity, a date, a quantity or a relation (answer no). "
        "Each question stands alone: explicit date, full names, clear scope, no mention of an article, and common "
        "knowledge must not suffice to answer it. `quote` is the sentence of the article, word for word, that decides "
        'it. JSON: [{"question": ..., "answer": "yes" or "no", "changed": "nothing", "entity", "date", "quantity" or '
        '"relation", "quote": ...}, ...]'
    ),
    system=_WRITER,
    sampling=_LONG,
)


# ---------------------------------------------------------------- TempUpd


class Update(Struct, frozen=True):
    """Something that took the place of something else."""

    kind: Literal["A", "B"]
    """A: a named entity follows another; B: a state or value changes."""
    role: str
    """For A the role without its holder (`mayor of Brovale`); for B what has the value (`the toll of Brovale`)."""
    before: str
    after: str
    quote: str
    person: bool = False
    """For A: whether the role is held by persons."""
    prior: str | None = None
    """For A: what the new holder was known for apart from the role, where the article tells."""
    prior_quote: str | None = None


UPDATES: Step[Story, list[Update]] = Step(
    "imprint_news.updates",
    list[Update],
    lambda story: (
        _story(story.date, story.title, story.text)
        + "List every change that the article reports in which something new takes the place of something old, and "
        "both are named. Kind A: one named entity (person, organisation, place) follows another in a role; `role` is "
        "the role without its holder, such as `mayor of Brovale`, and `person` tells whether its holders are persons. "
        "Kind B: a state or value changes; `role` is what has the value, with an article, such as `the toll of "
        "Brovale`. `before` and `after` are a few words each. `quote` is the sentence, word for word, that tells of "
        "the change. For kind A, and only where the article itself tells what the new entity was known for before, "
        "give that as `prior` and the sentence as `prior_quote`. Reply with an empty list where there is no such "
        'change. JSON: [{"kind": "A" or "B", "role": ..., "before": ..., "after": ..., "quote": ..., '
        '"person": true or false, "prior": ... or null, "prior_quote": ... or null}, ...]'
    ),
    system=_WRITER,
)


# ---------------------------------------------------------------- CompRel


class FactReply(Struct, frozen=True):
    """A fact of an article: `object` is the `relation` of `subject`."""

    subject: str
    relation: str
    object: str
    quote: str
    before: str | None = None
    """What `object` replaced, where the article tells."""


FACTS: Step[Story, list[FactReply]] = Step(
    "imprint_news.facts",
    list[FactReply],
    lambda story: (
        _story(story.date, story.title, story.text)
        + "List the facts of the article that connect two named things, each such that `object` is the `relation` "
        "of `subject`: subject Brovale, relation mayor, object Kara Winson. Full names as the article writes them; the "
        "relation is a noun or short noun phrase that has one object at a time. Where the article tells what the "
        "object replaced, give that as `before`. `quote` is the sentence, word for word. JSON: "
        '[{"subject": ..., "relation": ..., "object": ..., "before": ... or null, "quote": ...}, ...]'
    ),
    system=_WRITER,
)

ChainKind = Literal["composition", "counterfactual", "indirect", "temporal", "alias"]


class LinkGiven(Struct, frozen=True):
    """A fact of a chain."""

    subject: str
    relation: str
    object: str
    text: str
    """The sentence that tells it."""


class Chain(Struct, frozen=True):
    """Facts, each about the object of the one before; the answer is the object of the last."""

    kind: ChainKind
    links: tuple[LinkGiven, ...]
    answer: str
    date: str
    """The day as of which it is asked; for `counterfactual` and `temporal` the day of the change."""
    changed: str
    """For `counterfactual` and `temporal` the relation that changed on that day; else empty."""
    passages: tuple[str, ...]
    """The articles that the facts come from."""


class Composed(Struct, frozen=True):
    """A question over a chain."""

    question: str
    """Empty where none can be made."""
    quotes: tuple[str, ...] = ()
    """Sentences of the articles that it rests on beside those of the chain."""


_KINDS: dict[ChainKind, str] = {
    "composition": "Ask for the answer plainly, as of the date.",
    "counterfactual": (
        "Ask what would be the case now if the change of `{changed}` on the date had not happened. The chain below is "
        "the one that would hold then."
    ),
    "indirect": "Ask a broad question on the topic, as of the date, to which the answer comes up of itself.",
    "temporal": "Ask how it was just before the change of `{changed}` on the date. The chain below held then.",
    "alias": (
        "Ask as of the date, and in place of the first subject's name use another name or a description that the "
        "articles give for it; add the sentence that gives it to `quotes`."
    ),
}


def _compose(chain: Chain) -> str:
    facts = "\n".join(f"{n}. {f.relation} of {f.subject}: {f.object}" for n, f in enumerate(chain.links, 1))
    return (
        _passages(chain.passages)
        + f"Chain of facts:\n{facts}\n\nDate: {chain.date}\nAnswer: {chain.answer}\n\n"
        + "Write one question that needs every fact of the chain and has this answer and no other. It names nothing "
        "of the chain but the first subject: neither what lies between nor the answer. It stands alone and has an "
        f"explicit date. {_KINDS[chain.kind].format(changed=chain.changed)} Leave the question empty where that "
        "cannot be done. "
        'JSON: {"question": ..., "quotes": [...]}'
    )


COMPOSE: Step[Chain, Composed] = Step("imprint_news.compose", Composed, _compose, system=_WRITER)


# ---------------------------------------------------------------- ImpRel and BoundAbs


class Spike(Struct, frozen=True):
    """Articles that belong to one movement of a market."""

    market: str
    date: str
    passages: tuple[str, ...]
    count: int


class Event(Struct, frozen=True):
    """A broad question with the event that answers it."""

    question: str
    answer: str
    quote: str
    accepted: tuple[str, ...] = ()
    """Other names of the event."""


EVENTS: Step[Spike, list[Event]] = Step(
    "imprint_news.events",
    list[Event],
    lambda spike: (
        _passages(spike.passages)
        + f"These articles were found when the market `{spike.market}` moved on {spike.date}. Write up to "
        f"{spike.count} questions of the form: What major <kind of event, plural> happened in <scope> <time>? Scope "
        "and time are broad (a country or field; a month), and the question names none of the event's own details. The "
        "answer is one event as a whole under the name that it would be remembered by: no list, no detail of it. "
        "`accepted` are other names of it. `quote` is a sentence of the passages, word for word, that tells of it. "
        'JSON: [{"question": ..., "answer": ..., "accepted": [...], "quote": ...}, ...]'
    ),
    system=_WRITER,
)

Strategy = Literal["actor", "subevent", "quote", "consequence"]
STRATEGIES: dict[Strategy, str] = {
    "actor": "a named actor did something in connection with the event (in truth, that actor did not)",
    "subevent": "a certain part of the event took place (in truth, it did not)",
    "quote": "a named person said certain words about the event (in truth, nobody did)",
    "consequence": "the event had a certain consequence (in truth, it did not follow)",
}


class Boundary(Struct, frozen=True):
    """An event about which something is asked that never was."""

    event: str
    date: str
    strategy: Strategy
    passages: tuple[str, ...]


class Absent(Struct, frozen=True):
    """A question about what never was."""

    question: str


ABSENT: Step[Boundary, Absent] = Step(
    "imprint_news.absent",
    Absent,
    lambda boundary: (
        _passages(boundary.passages)
        + f"Event: {boundary.event} ({boundary.date})\n\nWrite one plausible yes/no question that asks whether "
        f"{STRATEGIES[boundary.strategy]}. The true answer is no, and the passages give no reason to say yes. It "
        'stands alone, with full names and an explicit date. JSON: {"question": ...}'
    ),
    system=_WRITER,
)


class Retrieved(Struct, frozen=True):
    """A question with an article that retrieval brings for it."""

    question: str
    passage: str


class Verdict(Struct, frozen=True):
    """What an article says to a question."""

    verdict: Literal["affirm", "deny", "unrelated"]


VERDICT: Step[Retrieved, Verdict] = Step(
    "imprint_news.verdict",
    Verdict,
    lambda given: (
        f"Article:\n{given.passage}\n\nQuestion: {given.question}\n\nDoes the article say that the answer is yes "
        "(`affirm`), does it say that the answer is no (`deny`), or neither (`unrelated`)? JSON: "
        '{"verdict": "affirm", "deny" or "unrelated"}'
    ),
    system=_JUDGE,
)


# ---------------------------------------------------------------- the filter


class Asked(Struct, frozen=True):
    """A question by itself, or with what it was made from."""

    question: str
    options: tuple[str, ...] = ()
    passages: tuple[str, ...] = ()


class Graded(Struct, frozen=True):
    """A reply beside the right answer."""

    question: str
    gold: str
    response: str


class Agrees(Struct, frozen=True):
    """Whether they are the same answer."""

    agrees: bool


def _asked(given: Asked) -> str:
    form = f"Reply with one of: {', '.join(given.options)}." if given.options else "Reply with a few words."
    return f"{_passages(given.passages)}Question: {given.question}\n\n{form}"


BLIND: Step[Asked, str] = Step(
    "imprint_news.blind",
    str,
    _asked,
    system="Answer from what you know. Where you do not know, say `unknown`.",
)
WITH_CONTEXT: Step[Asked, str] = Step(
    "imprint_news.with_context",
    str,
    _asked,
    system="Answer from the passages alone. Where they do not decide the question, say `unknown`.",
)
AGREES: Step[Graded, Agrees] = Step(
    "imprint_news.agrees",
    Agrees,
    lambda given: (
        f"Question: {given.question}\nRight answer: {given.gold}\nResponse: {given.response}\n\nDoes the response give "
        "the right answer? The wording may differ; a response that does not try to answer does not give it. JSON: "
        '{"agrees": true or false}'
    ),
    system=_JUDGE,
)
