"""What the assistant is asked: typed inputs, replies and prompts, by the rules of the paper's E.3 in our own words."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from upkeep.building.assistant import Step

AFFORDANCES = ("meal", "schedule", "trip", "writing", "support")
"""Tasks that facts bear on: choosing a meal, a time, a journey, help with writing, a way to support somebody."""
OPTIONS = "ABCD"
STEM = "Which option is the best fit for {user}?"

# ---------------------------------------------------------------- fact frames


class FactGiven(Struct, frozen=True):
    claim: str
    kind: str
    topic: str
    user: str


class Frame(Struct, frozen=True):
    """A fact as the generators of questions take it (D.3)."""

    normalized_claim: str
    attribute: str
    value: str
    polarity: str
    domains: list[str]
    constraint_dimension: str
    task_affordances: list[str]
    decision_levers: list[str]
    surface_forms: list[str]
    """Wording that questions must not use."""
    rejected_value: str | None = None


def _frame(given: FactGiven) -> str:
    return f"""Turn a fact about a user into a compact frame, from which questions that recall the fact and
questions that apply it can be written.

User: {given.user}
Fact: {given.claim}
Category: {given.kind}
Topic: {given.topic}

Give one JSON object with the keys
- normalized_claim: the fact as one plain sentence that names the user as above
- attribute: what is described, in two to four words ("favourite breakfast")
- value: what it is, in a few words
- rejected_value: what the user turned down, or null
- polarity: "positive" or "negative"
- domains: a list of areas of life
- constraint_dimension: the one kind of constraint that it puts on a decision ("budget", "time", "taste", ...)
- task_affordances: a list of the tasks it bears on, out of {", ".join(AFFORDANCES)}; empty where it bears on none
- decision_levers: a list of what it changes about a decision
- surface_forms: a list of words and phrases that would give the value away"""


FRAME = Step("imprint_personal.frame", Frame, _frame)

# ---------------------------------------------------------------- direct acquisition and referential resolution


class Explicit(Struct, frozen=True):
    claim: str
    turn: str


def _explicit(given: Explicit) -> str:
    return f"""A fact about a user is paired with the message in which it first comes up. How does the message show
it?

Fact: {given.claim}
Message: {given.turn}

A: the user says it, or says it in nearly the same words, about themselves
B: the message is about the subject, without saying that it is so
C: it can only be inferred, from what the user does, how they write, or what they wrote
D: the message does not show it

Answer with one letter."""


EXPLICIT = Step("imprint_personal.explicitness", str, _explicit)


class Recall(Struct, frozen=True):
    frame: Frame
    family: str
    user: str


class Candidate(Struct, frozen=True):
    question: str
    expected_answer: str


_CONTRACTS = {
    "dir_acq": "It names the attribute or its area plainly and asks what is true of the user.",
    "ref_res": "It refers to the attribute by a paraphrase, a description or a role, uses none of the surface forms, "
    "and asks what is true of the user.",
    "imp_rel": "It asks for what follows for a decision, not for the fact itself.",
    "comp_rel": "It asks for a decision that several facts have to be combined for.",
}


def _recall(given: Recall) -> str:
    return f"""Write one question about a user, out of the frame of a fact.

{_json(given.frame)}

What the question must be: {_CONTRACTS[given.family]} It never asks what to recommend or to do. It does not contain
the value. It is one natural sentence that calls the user "{given.user}". The expected answer says the same as the
normalized claim, in a few words.

Give one JSON object: {{"question": "...", "expected_answer": "..."}}"""


RECALL = Step("imprint_personal.recall", Candidate, _recall)


class Contract(Struct, frozen=True):
    frame: Frame
    family: str
    question: str
    answer: str


class ContractVerdict(Struct, frozen=True):
    passes: bool
    answer_matches_fact: bool
    label: str = ""
    question_intent: str = ""
    reason: str = ""


def _contract(given: Contract) -> str:
    families = "\n".join(f"- {family}: {rule}" for family, rule in _CONTRACTS.items())
    return f"""Check a question that was written out of the frame of a fact about a user.

{_json(given.frame)}

Families:
{families}

Wanted family: {given.family}
Question: {given.question}
Expected answer: {given.answer}

Does the question keep to what its family must be, and does the answer say what the fact says? Give one JSON object
with the keys passes (true or false), label (the family that it really is), question_intent, answer_matches_fact
(true or false), reason."""


CONTRACT = Step("imprint_personal.contract_audit", ContractVerdict, _contract)

# ---------------------------------------------------------------- temporal update


class NewInfo(Struct, frozen=True):
    claim: str
    kind: str
    topic: str
    user: str


def _new_info(given: NewInfo) -> str:
    return f"""Something is newly known of {given.user}:

{given.claim}
Category: {given.kind}
Topic: {given.topic}

Write one short, natural question about {given.user} that can be answered from this alone and gives no hint at the
answer, and its answer in a few words. Give one JSON object: {{"question": "...", "expected_answer": "..."}}"""


NEW_INFO = Step("imprint_personal.new_info", Candidate, _new_info)


class Changed(Struct, frozen=True):
    old: str
    new: str
    topic: str
    user: str


def _changed(given: Changed) -> str:
    return f"""What was known of {given.user} has changed.

Before: {given.old}
Now: {given.new}
Topic: {given.topic}

Write one short, natural question about how it is now with {given.user}. Before and after the change its answer
must differ clearly, and it must hint at neither. The answer, in a few words, is the one that is right now. Give
one JSON object: {{"question": "...", "expected_answer": "..."}}"""


CHANGED = Step("imprint_personal.changed_info", Candidate, _changed)

# ---------------------------------------------------------------- bounded abstention


class Unknown(Struct, frozen=True):
    claim: str
    user: str


class Asked(Struct, frozen=True):
    question: str


def _unknown(given: Unknown) -> str:
    return f"""The assistant of {given.user} does not know this about them:

{given.claim}

Write one short, natural question about {given.user} that needs it. An assistant without it has to say that it does
not know. Do not give the fact away. Give one JSON object: {{"question": "..."}}"""


UNKNOWN = Step("imprint_personal.bound_abs", Asked, _unknown)

# ---------------------------------------------------------------- implicit relevance


class Apply(Struct, frozen=True):
    target: Frame
    distractors: list[Frame]
    affordance: str
    banned: list[str]
    user: str


class Applied(Struct, frozen=True):
    question: str
    gold_answer: str
    scenario: str = ""
    decision: str = ""
    explanation: str = ""


def _apply(given: Apply) -> str:
    return f"""Write a question in which one fact about a user matters without being mentioned.

The fact that decides it:
{_json(given.target)}

Facts about the same user that do not matter here:
{_frames(given.distractors)}

Task: {given.affordance}
Not to be used in the question: {", ".join(given.banned)}

Invent a realistic situation in which an assistant should act otherwise because of the fact. Ask one natural
question on what to suggest, choose, plan, avoid or keep in mind for "{given.user}". The question gives away
nothing about the user (no trait, health, pastime, timetable, identity or taste) and does not begin with a remark
that points to what is known of them. The gold answer is the recommendation in a few words, not the fact.

Give one JSON object with the keys scenario, decision, question, gold_answer, explanation."""


APPLY = Step("imprint_personal.imp_rel", Applied, _apply)


class FromFacts(Struct, frozen=True):
    facts: list[str]
    question: str


def _from_facts(given: FromFacts) -> str:
    return f"""What is known of a user:
{_list(given.facts)}

Question: {given.question}

Answer in a few words, from these facts. Where they do not decide it, answer "I don't know"."""


FROM_FACTS = Step("imprint_personal.imp_rel_oracle", str, _from_facts)


class Application(Struct, frozen=True):
    facts: list[str]
    question: str
    answer: str


class ApplicationVerdict(Struct, frozen=True):
    passes: bool
    answer_is_fact: bool
    label: str = ""
    question_intent: str = ""
    reason: str = ""


def _application(given: Application) -> str:
    return f"""Check a question in which a fact about a user is to be applied.

Fact:
{_list(given.facts)}
Question: {given.question}
Gold answer: {given.answer}

It passes where the question is about what to suggest, choose, plan, avoid or keep in mind, not about what is true
of the user; where the gold answer is something to do or a judgement of fit, not the fact in other words; and where
exactly this one fact is enough. Give one JSON object with the keys passes (true or false), label, question_intent,
answer_is_fact (true or false), reason."""


APPLICATION = Step("imprint_personal.imp_rel_application_audit", ApplicationVerdict, _application)


class Universal(Struct, frozen=True):
    question: str
    answer: str


class UniversalVerdict(Struct, frozen=True):
    universal: str
    reason: str = ""


def _universal(given: Universal) -> str:
    return f"""A question should need knowledge of one particular user.

Question: {given.question}
Gold answer: {given.answer}

Would an assistant that knows nothing of the user give most people this same advice, as good practice or common
sense? Give one JSON object: {{"universal": "YES" or "NO", "reason": "..."}}"""


UNIVERSAL = Step("imprint_personal.imp_rel_universality_audit", UniversalVerdict, _universal)

# ---------------------------------------------------------------- compositional relevance


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
{_frames(given.frames)}

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
{_list(given.facts)}

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
{_list(given.facts)}

Question: {given.question}
{lettered(given.options)}

Say for each option and each fact whether the option clearly meets the fact. Then say what makes the question hard:
"one fact", "{SEVERAL}", "temporal update", "paraphrased recall", "direct recall" or "abstention". Give one JSON
object with the keys satisfaction (for each letter from A to D a list of true and false, one a fact, in order)
and label."""


MATRIX = Step("imprint_personal.comp_rel_matrix_audit", MatrixVerdict, _matrix)

# ---------------------------------------------------------------- without the user


class Blind(Struct, frozen=True):
    question: str
    options: list[str] = []


def _blind(given: Blind) -> str:
    return f"""Answer this question about a user, shortly. Where you lack information, say so.

Question: {given.question}{_offered(given.options)}"""


BLIND = Step("imprint_personal.blind", str, _blind)


def _forced(given: Blind) -> str:
    return f"""Nothing is known of a user. Answer this question about them all the same: one concrete guess, in a
few words. Do not decline, and do not say that you do not know.

Question: {given.question}{_offered(given.options)}"""


FORCED = Step("imprint_personal.forced_commit", str, _forced)


class Judged(Struct, frozen=True):
    question: str
    expected: str
    response: str


def _judged(given: Judged) -> str:
    return f"""Compare an answer with the reference.

Question: {given.question}
Reference: {given.expected}
Answer: {given.response}

MATCH: the answer holds the reference's main claim and it is right; wording may differ, a part of it does not count.
NONMATCH: the answer is wrong, vague, about something else, or lacks the claim.
REFUSAL: the answer declines, or says that it does not know.

End with one of the three words."""


JUDGED = Step("imprint_personal.judge", str, _judged)

# ---------------------------------------------------------------- supervision


class Distil(Struct, frozen=True):
    frame: Frame
    count: int
    user: str


def _distil(given: Distil) -> str:
    return f"""Write {given.count} pairs of a question about {given.user} and its answer, for training, all out of
this fact. The questions differ in wording, name the user and do not contain the answer. The answers are short
sentences.

{_json(given.frame)}

Give one JSON list of objects: [{{"question": "...", "expected_answer": "..."}}]"""


DISTIL = Step("imprint_personal.supervision", list[Candidate], _distil)

# ---------------------------------------------------------------- replies and texts

_LETTER = re.compile(r"(?<![A-Za-z])[A-D](?![A-Za-z])")


def letter(reply: str | None) -> str | None:
    """The one letter from A to D in a reply; None where there is none or are several."""
    found = set(_LETTER.findall(reply or ""))
    return found.pop() if len(found) == 1 else None


def verdict(reply: str | None) -> str | None:
    """The last of MATCH, NONMATCH and REFUSAL in a reply."""
    found = re.findall(r"\b(?:NONMATCH|MATCH|REFUSAL)\b", reply or "")
    return found[-1] if found else None


def lettered(options: Sequence[str]) -> str:
    """Options, one a line, each after its letter."""
    return "\n".join(f"{mark}. {option}" for mark, option in zip(OPTIONS, options, strict=True))


def _offered(options: Sequence[str]) -> str:
    return f"\n{lettered(options)}" if options else ""


def _json(frame: Frame) -> str:
    return msgspec.json.format(msgspec.json.encode(frame)).decode()


def _frames(frames: Sequence[Frame]) -> str:
    return "\n".join(_json(frame) for frame in frames)


def _list(facts: Sequence[str]) -> str:
    return "\n".join(f"- {fact}" for fact in facts)
