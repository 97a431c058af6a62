"""The datasets' prompts, and how documents are laid out in them.

One prompt a dataset, the same for every method (OAKS, C.1.5). The wording is ours and follows the rules that the papers
give; headings and answer forms are theirs where they print them. A paper's own text can be put in its place by a file
of the user's (`prompts:` in `config/config.yaml`).
"""

from __future__ import annotations

import bisect
import itertools
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from upkeep.cell.interface import LLM, Context, Message
from upkeep.contract import Document, Form, Pair, Probe

SLACK = 2
"""Tokens that joining two parts may add at most: a tokenizer can split differently where they meet."""

_READING = """\
You are given a text that grows as time goes by, and a question about it.
- Rely on the text alone; set aside whatever you know from elsewhere.
- What the text once said still holds until a later passage changes it.
- Answer for how things stand where the text ends now.
"""

_BABI = (
    _READING
    + """\
- Where the text does not tell, the answer is `Unknown`. Where a comparison comes out even, the answer is `Same`. \
In all other cases give one or two words.
- You may reason first. End with a line `## Answer: <short answer>`; that answer is compared word for word.

An example of the form, for the question "Where is the lamp?":
Mira put the lamp down in the attic, and nobody has touched it since.
## Answer: attic"""
)

_NOVEL = (
    _READING
    + """\
- Choose exactly one of the options. Where the text does not tell, choose the option that says that the question \
cannot be answered at this point.
- You may reason first. End with a line `## Answer: <letter>` that holds the letter of your option and no more.

An example of the form:
Mira has put the lamp down in the attic, which is option C.
## Answer: C"""
)

_BABI_CLOSED = """\
Answer from what you know, in one or two words, or `Unknown`. End with a line `## Answer: <short answer>`."""

_NOVEL_CLOSED = """\
Choose one of the options from what you know. End with a line `## Answer: <letter>`."""

# EvoWiki, E.3 and E.4: a word or a short phrase, the most recent answer, after `The correct answer:`.
_WIKI = """\
Answer the question from the context. Where the context gives several answers of different times, take the latest.
- One word or a short phrase, nothing else.
- Give it in this form: `The correct answer: <answer>`"""

_WIKI_CLOSED = """\
Answer the question from what you know. Where the answer has changed over time, give the most recent one.
- One word or a short phrase, nothing else.
- Give it in this form: `The correct answer: <answer>`"""

# ImprintBench and evolveQA print no answering prompts but that of Code CompRel: these are ours.
_RECORDS = """\
Answer the question from the texts that you are given. Later texts replace what earlier ones say.
Where they do not tell, say so: `no information about it`.
"""
_RECORDS_CLOSED = """\
Answer the question from what you know. Where you do not know, say so: `no information about it`.
"""
_CODE = """\
Answer the question about a Python library from the release notes and documentation that you are given.
Where the question shows code with `<MASK>`, the answer is the identifier that stands there, as it stands in the code.
Where the texts do not tell, say so: `no information about it`.
"""
_CODE_CLOSED = """\
Answer the question about a Python library from what you know.
Where the question shows code with `<MASK>`, the answer is the identifier that stands there, as it stands in the code.
Where you do not know, say so: `no information about it`.
"""
_PERSON = """\
Answer the question about the user from the conversations that you are given. What the user said later holds.
Where they do not tell, say so: `no information about it`.
"""
_PERSON_CLOSED = """\
Answer the question about the user from what you know of them. Where you do not know, say so: `no information about it`.
"""
_ASKS: Mapping[Form, str] = {
    "short": "Be brief. End with a line `## Answer: <answer>`.",
    "choice": "Choose exactly one of the options. End with a line `## Answer: <letter>`.",
    "label": "Choose exactly one of the labels. End with a line `## Answer: <label>`.",
}

# PRELUDE, C.2: nine rules, in the order of the paper, and its form of the answer.
_PRELUDE = """\
You know literature well. You are given a plot point of an invented prequel: something that a character of a novel is \
said to have lived through before the novel begins. Decide whether it is consistent with the novel.
1. Contradict: a detail of the novel is at odds with it.
2. Contradict: it makes part of the plot, or of what drives a character, implausible.
3. Contradict: nothing clashes, but it is foreign to the novel's tone or style.
4. Consistent: none of these is the case.
5. State your judgement and a short reason.
6. Excerpts may be incomplete: use them, and what you know of the novel yourself.
7. The novel alone counts: no adaptations, no sequels, no history.
8. The novel follows the prequel at once: nothing happens in between.
9. What a character says is a fact, unless the novel later shows it to be a lie.
Answer in this form:
[Output]
Think: <your reason>
Answer: <Consistent or Contradict>"""

_PRELUDE_ZH = """\
你熟悉文学作品。下面给出一条虚构的前传情节：某部小说里的一个人物在小说开始之前的经历。请判断它与小说是否一致。
1. 矛盾：小说中有细节与它冲突。
2. 矛盾：它使部分情节或人物动机变得不合理。
3. 矛盾：没有直接冲突，但与小说的基调或风格不符。
4. 一致：以上情况都不存在。
5. 写出判断和简短理由。
6. 给出的原文可能不全：可以同时依靠你自己对小说的了解。
7. 只看小说本身，不看改编、续作和史实。
8. 前传结束后小说立即开始，中间没有别的事情。
9. 人物说的话视为事实，除非小说后来说明那是谎话。
按以下格式回答：
[输出]
Think: <理由>
Answer: <一致 或 矛盾>"""


@dataclass(frozen=True, slots=True)
class Prompt:
    """How a dataset's probes are put to a model."""

    name: str
    form: Form
    """The usual form of an answer, and that of training pairs."""
    system: str
    """The system text where the model reads a context."""
    closed: str
    """The system text where it is asked without one: a rule to rely on the text alone would forbid any answer."""
    asks: Mapping[Form, str] = field(default_factory=dict)
    """What is added for each form of answer, where the dataset has several."""
    marker: str = "## Answer:"
    """What the reply is to put before the answer."""
    headings: tuple[str, str] = ("## Context:", "## Question:")
    """Of the context and of the question; an empty one is left out."""
    chinese: tuple[str, str] | None = None
    """`system` and `closed` for questions in Chinese."""
    examples: Sequence[Pair] = ()
    """Worked examples, shown in the order given to questions of their language (PRELUDE, C.2)."""

    def messages(self, probe: Probe, context: Context) -> list[Message]:
        """The chat that asks `probe` over `context`.

        The user message has the heading, then one part a document, then the question: prompts of one interval differ
        in the last part alone, and those of the next interval extend the documents.
        """
        question = self._question(probe, head_index=context.retrieved is not None)
        if not context:
            return [_message("system", self._rules(probe, closed=True)), _message("user", question)]
        heading = f"{self.headings[0]}\n" if self.headings[0] else ""
        return [
            _message("system", self._rules(probe, closed=False)),
            _message("user", heading, *_parts(context), f"\n\n{question}"),
        ]

    def target(self, answer: str) -> str:
        """The reply that gives `answer` in the form the prompt asks for."""
        return f"{self.marker} {answer}"

    def _rules(self, probe: Probe, *, closed: bool) -> str:
        chinese = _is_chinese(probe.question)
        reading, alone = self.chinese if self.chinese and chinese else (self.system, self.closed)
        shown = [e for e in self.examples if _is_chinese(e.question) == chinese]
        examples = (
            f"\n\n<example_{n}>\n{e.question}\n{e.answer}\n</example_{n}>" for n, e in enumerate(shown, start=1)
        )
        return "".join([alone if closed else reading, self.asks.get(probe.form, ""), *examples])

    def _question(self, probe: Probe, head_index: bool) -> str:
        # The paper names the index of the present chunk wherever chunks are shown with theirs (OAKS, C.1.3).
        head = f"Current Head Index : {probe.position}, question: " if head_index and self.name in _INDEXED else ""
        heading = f"{self.headings[1]}\n" if self.headings[1] else ""
        text = f"{heading}{head}{probe.question}"
        if probe.options is None:
            return text
        if probe.form == "label":
            return f"{text}\n\n## Labels:\n{', '.join(probe.options)}" if "label" in self.asks else text
        if len(probe.options) > len(string.ascii_uppercase):
            raise ValueError(f"{probe.id}: {len(probe.options)} options, at most 26 have a letter")
        lettered = zip(string.ascii_uppercase, probe.options, strict=False)
        options = "\n".join(f"{letter}. {option}" for letter, option in lettered)
        return f"{text}\n\n## Options:\n{options}"


_CHINESE = re.compile(r"[\u4e00-\u9fff]")


def _is_chinese(text: str) -> bool:
    """Whether most of a text's letters are Chinese; a Chinese name in an English question is not enough."""
    return 2 * len(_CHINESE.findall(text)) > sum(map(str.isalpha, text))


_INDEXED = frozenset({"oaks_babi", "oaks_novel"})
"""Prompts that name the newest document's index (OAKS, C.1.3)."""

PROMPTS = {
    prompt.name: prompt
    for prompt in (
        Prompt("oaks_babi", "short", _BABI, _BABI_CLOSED),
        # OAKS prints two answer forms for OAKS-N; we always demand the marked line and read both (open point 6).
        Prompt("oaks_novel", "choice", _NOVEL, _NOVEL_CLOSED),
        Prompt(
            "evowiki",
            "short",
            _WIKI,
            _WIKI_CLOSED,
            marker="The correct answer:",
            headings=("# Context", "# Question"),
        ),
        Prompt("imprint_news", "short", _RECORDS, _RECORDS_CLOSED, _ASKS),
        Prompt("imprint_code", "short", _CODE, _CODE_CLOSED, _ASKS),
        Prompt("imprint_personal", "short", _PERSON, _PERSON_CLOSED, _ASKS),
        Prompt("evolveqa", "short", _RECORDS, _RECORDS_CLOSED, _ASKS),
        # The paper puts the excerpt between character and title of the item; here it stands before the whole item, so
        # that prompts over the same text share it.
        Prompt(
            "prelude",
            "label",
            _PRELUDE,
            _PRELUDE,
            marker="Answer:",
            headings=("Original Excerpt:", ""),
            chinese=(_PRELUDE_ZH, _PRELUDE_ZH),
        ),
    )
}


def get_prompt(name: str, text: str | None = None, examples: Sequence[Pair] = ()) -> Prompt:
    """The prompt of that name.

    Args:
        text: a system text of the user's, taken word for word in place of ours, with and without context.
        examples: the dataset's worked examples.

    Raises:
        ValueError: there is no such prompt.
    """
    if name not in PROMPTS:
        raise ValueError(f"unknown prompt {name!r}; there are {', '.join(PROMPTS)}")
    prompt = replace(PROMPTS[name], examples=tuple(examples))
    return prompt if text is None else replace(prompt, system=text, closed=text, asks={}, chinese=None)


def entry(document: Document) -> str:
    """A document with its index, as it is indexed and shown (OAKS, C.1.3)."""
    return f"# chunk index : {document.position}, context: {document.text}"


def fit(prompt: Prompt, probe: Probe, context: Context, llm: LLM) -> tuple[list[Message], Context]:
    """The chat over as many documents as the model can read, with room for `max_tokens` of answer.

    Documents are left out whole, in this order: retrieved ones from the lowest rank up, then recent ones from the
    oldest on (OAKS, 4 and C.1.3). Question and memory are never cut.

    Returns:
        The messages, and the context that they show.
    """
    budget = llm.context_length - llm.sampling.max_tokens
    bare = llm.count_prompt(prompt.messages(probe, _without(context, len(context))))
    sizes = [llm.count(entry(document)) for document in reversed(context.retrieved or ())]
    sizes += [llm.count(document.text) for document in context.recent or ()]
    if bare + sum(sizes) + SLACK * len(sizes) <= budget:
        return prompt.messages(probe, context), context

    # Between the bounds of what joining can add or save, count exactly: how rough the bounds are must not show.
    first = _first_fit(bare, [max(0, size - SLACK) for size in sizes], budget)
    last = _first_fit(bare, [size + SLACK for size in sizes], budget)
    n = bisect.bisect_left(
        range(last),
        True,
        lo=first,
        key=lambda n: llm.count_prompt(prompt.messages(probe, _without(context, n))) <= budget,
    )
    shown = _without(context, n)
    return prompt.messages(probe, shown), shown


def _first_fit(bare: int, sizes: list[int], budget: int) -> int:
    """The least number of leading `sizes` to leave out so that `bare` and the others are within `budget`."""
    total = itertools.accumulate(reversed(sizes), initial=bare)
    return len(sizes) - max(0, sum(tokens <= budget for tokens in total) - 1)


def _without(context: Context, n: int) -> Context:
    """The context with `n` documents left out, in the order that `fit` gives."""
    ranked = len(context.retrieved or ())
    return replace(
        context,
        retrieved=None if context.retrieved is None else context.retrieved[: max(0, ranked - n)],
        recent=None if context.recent is None else context.recent[max(0, n - ranked) :],
    )


def _parts(context: Context) -> Iterator[str]:
    """The context, a part a document. Separators lead a part, so that a longer context extends a shorter one."""
    gap = ""
    if context.memory is not None:
        yield f"- Memory:\n{context.memory}"
        gap = "\n\n"
    if context.retrieved is not None:
        yield f"{gap}- Retrieved context:"
        yield from (f"\n{entry(document)}" for document in context.retrieved)
        if context.recent is not None:
            yield "\n\n# Recent Chunks: "
            gap = ""
    for document in context.recent or ():
        yield f"{gap}{document.text}"
        gap = "\n"


def _message(role: str, *parts: str) -> Message:
    return Message(role=role, parts=list(parts))
