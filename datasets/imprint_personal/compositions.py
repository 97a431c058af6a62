"""CompRel: a choice among options for which several facts about a user have to be combined (D.3)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from random import Random

from msgspec import Struct

from upkeep.building import leaks
from upkeep.building.assistant import Step

from .author import OPTIONS, Author, Draft, alternating, distinct, grouped, letter, lettered, listed
from .frames import Frame, all_as_json
from .personas import Fact, Persona

STEM = "Which option is the best fit for {user}?"


class Compose(Struct, frozen=True):
    frames: list[Frame]
    affordance: str
    stem: str
    banned: list[str]


class Composed(Struct, frozen=True):
    options: dict[str, str]
    """Letter -> option."""
    gold_option: str
    satisfaction: dict[str, list[bool]]
    """Letter -> whether the option meets each fact, in their order."""
    question: str = ""
    violations: dict[str, str] = {}
    explanation: str = ""


def truth_table(facts: int) -> list[list[bool]]:
    """What the four options meet, the gold one first (D.3)."""
    one_broken = [[n != broken for n in range(facts)] for broken in range(facts)]
    return [[True] * facts, *one_broken, *([[False, False]] if facts == 2 else [])]


def _compose(given: Compose) -> str:
    table = "\n".join(str(["T" if met else "F" for met in row]) for row in truth_table(len(given.frames)))
    return f"""Write a multiple-choice question that several facts about a user have to be combined for.

The facts, in order:
{all_as_json(given.frames)}

Task: {given.affordance}
The question: {given.stem}
Not to be used in the question: {", ".join(given.banned)}

Invent one realistic decision of this task and four options, alike in length and appeal, so that their judgements
against the facts are, one option each:
{table}
Exactly one option meets every fact. The question stays as general as the one above, has fewer than 15 words and
hints at no fact.

Give one JSON object with the keys question, options (an object with the letters A to D), gold_option (a letter),
satisfaction (for each letter a list of true and false, one a fact, in order), violations (for each wrong letter
what it breaks), explanation."""


COMPOSE = Step("imprint_personal.comp_rel", Composed, _compose)


class Choose(Struct, frozen=True):
    facts: list[str]
    question: str
    options: list[str]


def _choose(given: Choose) -> str:
    return f"""What is known of a user:
{listed(given.facts)}

Question: {given.question}
{lettered(given.options)}

Answer with one letter from A to D. Where the facts do not decide on one option, answer "uncertain"."""


CHOOSE = Step("imprint_personal.comp_rel_oracle", str, _choose)


class Appeal(Struct, frozen=True):
    question: str
    options: list[str]


def _appeal(given: Appeal) -> str:
    return f"""Nothing is known of a user. Choose the option that an average person would like best, going by the
options alone.

Question: {given.question}
{lettered(given.options)}

Answer with one letter from A to D."""


APPEAL = Step("imprint_personal.comp_rel_option_bias_audit", str, _appeal)


class MatrixVerdict(Struct, frozen=True):
    satisfaction: dict[str, list[bool]]
    label: str


SEVERAL = "several facts"


def _matrix(given: Choose) -> str:
    return f"""Facts about a user, in order:
{listed(given.facts)}

Question: {given.question}
{lettered(given.options)}

Say for each option and each fact whether the option clearly meets the fact. Then say what makes the question hard:
"one fact", "{SEVERAL}", "temporal update", "paraphrased recall", "direct recall" or "abstention". Give one JSON
object with the keys satisfaction (for each letter from A to D a list of true and false, one a fact, in order)
and label."""


MATRIX = Step("imprint_personal.comp_rel_matrix_audit", MatrixVerdict, _matrix)


def write(author: Author) -> list[Draft]:
    """A choice among four options, of which one meets two or three facts."""
    plan: list[tuple[Persona, tuple[Fact, ...], Compose]] = []
    for p in author.personas:
        pool = [(fact, author.frame(p, fact)) for fact in author.shuffled("comp_rel", p, author.usable(p))]
        for affordance, chosen in itertools.islice(_tuples(pool), author.limit("comp_rel")):
            frames = [frame for _, frame in chosen]
            banned = distinct([form for frame in frames for form in frame.surface_forms])
            compose = Compose(frames, affordance, STEM.format(user=p.name), list(banned))
            plan.append((p, tuple(fact for fact, _ in chosen), compose))
    drafts: list[Draft] = []
    matrices: dict[Draft, dict[str, list[bool]]] = {}
    replies = author.helper.ask(COMPOSE, [compose for _, _, compose in plan])
    for (p, facts, compose), reply in zip(plan, replies, strict=True):
        if reply is None or not _well_formed(reply, len(facts)):
            author.left_out["comp_rel, no candidate of the truth table"] += 1
            continue
        # Writers put the right option first more often than not, so the letters are drawn anew.
        order = list(OPTIONS)
        Random(f"{author.seed} {p.id} {sorted(reply.options.values())}").shuffle(order)
        gold = OPTIONS[order.index(reply.gold_option.strip())]
        options = tuple(reply.options[mark].strip() for mark in order)
        draft = Draft(p, "comp_rel", compose.stem, (gold,), facts, f"comp_rel_{len(facts)}", options=options)
        drafts.append(draft)
        matrices[draft] = {mark: list(reply.satisfaction[was]) for mark, was in zip(OPTIONS, order, strict=True)}
    drafts = author.without_user(drafts)
    given = {d: Choose(_claims(author, d), d.question, list(d.options)) for d in drafts}
    letters = author.helper.ask(CHOOSE, [given[d] for d in drafts])
    sure = [letter(reply) == d.answers[0] for d, reply in zip(drafts, letters, strict=True)]
    drafts = author.kept(drafts, sure, "fact-list oracle")
    letters = author.helper.ask(APPEAL, [Appeal(d.question, list(d.options)) for d in drafts])
    fair = [letter(reply) != d.answers[0] for d, reply in zip(drafts, letters, strict=True)]
    drafts = author.kept(drafts, fair, "option-bias audit")
    verdicts = author.helper.ask(MATRIX, [given[d] for d in drafts])
    passed = [
        v is not None and v.satisfaction == matrices[d] and SEVERAL in v.label.lower()
        for d, v in zip(drafts, verdicts, strict=True)
    ]
    return author.kept(drafts, passed, "matrix and family audit")


def _claims(author: Author, draft: Draft) -> list[str]:
    return [author.frame(draft.persona, fact).normalized_claim for fact in draft.facts]


def _tuples(pool: Sequence[tuple[Fact, Frame]]) -> Iterator[tuple[str, tuple[tuple[Fact, Frame], ...]]]:
    """Two or three facts of one affordance with distinct dimensions and attributes; sizes and affordances in turn."""

    def of(
        name: str, group: Sequence[tuple[Fact, Frame]], size: int
    ) -> Iterator[tuple[str, tuple[tuple[Fact, Frame], ...]]]:
        for chosen in itertools.combinations(group, size):
            frames = [frame for _, frame in chosen]
            if (
                len({frame.constraint_dimension for frame in frames})
                == len({frame.attribute for frame in frames})
                == size
            ):
                yield name, chosen

    return alternating(*(of(name, group, size) for name, group in grouped(pool).items() for size in (2, 3)))


def _well_formed(reply: Composed, facts: int) -> bool:
    """Whether the four options make the truth table, with the gold one the only that meets all."""
    gold = reply.gold_option.strip()
    marks = sorted(OPTIONS)
    return (
        sorted(reply.options) == marks
        and sorted(reply.satisfaction) == marks
        and len({leaks.key(option) for option in reply.options.values()}) == len(marks)
        and all(leaks.key(option) for option in reply.options.values())
        and sorted(map(list, reply.satisfaction.values())) == sorted(truth_table(facts))
        and gold in marks
        and all(reply.satisfaction[gold])
    )
