"""evolveQA: questions about facts that change, with the right answer at each of several cut-off dates (2 to 4).

Out of time-stamped documents: `feeds` reads them, `facts` finds entity, concept and attribute (E-C-A), `questions` asks
and answers, `fact_steps`, `question_steps` and `format_steps` word what the assistant is asked. `synthetic` makes a
small feed, whose `program` replies in the assistant's place. `membership` draws documents instead, about which nothing
is asked but whether they were trained on.

A question is asked at each cut-off date T at which it exists, at the position of the last document dated up to T; later
documents have not arrived. Ids: `aws_q0007` (open), `aws_q0007.mcq1`, `aws_q0007.pair1a` and `aws_q0007.pair1b` (which
of them is right to affirm is drawn), where the number grows with each new gold answer; `.context`, `.date.<T>`,
`.both.<T>` with hints. A cut-off with no document since the one before adds `.at.<T>`, for a question is asked once at
a position.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from random import Random

from upkeep.building import answering, assembling, assistant, leaks, tokens
from upkeep.building.assembling import LETTERS, Built, Item, Stream
from upkeep.building.context import Context
from upkeep.building.dealing import dealt
from upkeep.building.names import Names
from upkeep.errors import UpkeepError

from . import facts, feeds, membership, program, questions, synthetic
from .facts import Corpus
from .membership import Membership
from .questions import Forms, Question, State
from .workshop import Domain, Hint, Options, Workshop

_FLAVOURS: dict[Domain, synthetic.Flavour] = {"aws": "cloud", "azure": "cloud", "who": "outbreak"}


@dataclass(frozen=True, slots=True)
class Layout:
    """The stream, and where each document's pieces lie in it."""

    stream: Stream
    first: Sequence[int]
    """The position of each document's first piece, and the length of the stream."""
    spans: Sequence[Sequence[tuple[int, int]]]
    """Of each document: where in it each of its pieces lies."""
    dates: Sequence[str]

    def position(self, cutoff: str) -> int:
        """The last position with a document dated up to `cutoff`; -1 where there is none."""
        return self.first[bisect.bisect_right(self.dates, cutoff)] - 1

    def pieces(self, document: int, start: int, end: int) -> list[int]:
        """Positions of the pieces that hold characters `start` to `end` of a document."""
        return [self.first[document] + n for n in tokens.holding(self.spans[document], start, end)]


def build(context: Context) -> Built:
    """Make the questions out of the feed that the config names, or out of a generated world.

    Raises:
        UpkeepError: wrong options, no feed or no assistant, or a fault of the inputs that is refused.
    """
    options = context.options(Options)
    _check_cutoffs(context, options.cutoffs)
    measure = context.tokenizer(options.tokenizer)
    # All datasets of one domain share the feed and the replies: the control set asks again for what it leaves out.
    family = replace(context, name=f"evolveqa_{options.domain}")
    most, by_section = options.max_characters, options.domain == "who" and options.membership is None
    files: list[Path] = []
    script: assistant.Script | None = None
    if options.source == "world":
        rng = Random(f"evolveqa {options.domain} {options.seed}")
        small = synthetic.generate(rng, Names(rng, held_out=True), _FLAVOURS[options.domain], options.sizes)
        entries = ((f"entry {n}", entry) for n, entry in enumerate(small.entries(), 1))
        documents = feeds.documents(entries, by_section, most, context.faults)
        script = program.script(small, options.seed)
    else:
        path = family.required("feed", "a feed in JSON, CSV, RSS or Atom, or a folder of such files")
        documents, files = feeds.read(path, by_section, most, context.faults)
    if not documents:
        raise UpkeepError("no document left", where=context.where, expected="a feed with dated texts")
    if options.membership is not None:
        return _drawn(documents, options.membership, options, context, files)
    layout = _laid_out(documents, options, measure)
    with answering.by(family, options.assistant, script) as helper:
        shop = Workshop(context, options, helper)
        corpus = facts.survey(documents, shop)
        found, conflicts = questions.evolving(corpus, shop)
        if options.control:
            found = questions.static(corpus, found, conflicts, shop)
        made = questions.forms(corpus, found, shop)
        statistics = assistant.statistics(helper)
    items = _items(found, made, layout, corpus, options)
    tables = assembling.collect([layout.stream], items, measure)
    return Built(
        *tables,
        pairs=[],
        tokenizer=str(measure),
        chunk_tokens=options.chunk_tokens,
        source=context.spec.source,
        statistics={**dict(sorted(shop.counts.items())), "questions kept": len(found), **_counted(items), **statistics},
        inputs=context.inputs(files),
        seed=options.seed,
        notes=[
            f"assistant: {answering.named(options.assistant)}; embedder: {options.embedder}",
            "`clustering ...: runs with fewer than N neighbours`: UMAP runs on too few points for the paper's number",
        ],
    )


def _drawn(
    documents: Sequence[feeds.Document], wanted: Membership, options: Options, context: Context, files: Sequence[Path]
) -> Built:
    """Documents of before and after one cut-off date, each a stream of its own."""
    _check_cutoffs(context, [wanted.cutoff], "membership.cutoff")
    measure = context.tokenizer(options.tokenizer)
    streams, items, counts = membership.drawn(documents, wanted, options.domain, options.seed, str(context.where))
    tables = assembling.collect(streams, items, measure)
    return Built(
        *tables,
        pairs=[],
        tokenizer=str(measure),
        chunk_tokens=max(tables[0]["tokens"]),
        source=context.spec.source,
        statistics=counts,
        inputs=context.inputs(files),
        seed=options.seed,
        notes=[
            f"cut-off: {wanted.cutoff}; wanted were {wanted.documents} documents from before it, {wanted.held_out} "
            f"more to set the threshold, and {wanted.documents} from after it"
        ],
    )


def _check_cutoffs(context: Context, cutoffs: Sequence[str], option: str = "cutoffs") -> None:
    try:
        dates = [date.fromisoformat(cutoff).isoformat() for cutoff in cutoffs]
    except ValueError:
        dates = []
    if not dates or dates != sorted(set(cutoffs)):
        raise UpkeepError(
            "wrong cut-offs",
            where=f"{context.where}: options.{option}",
            expected="dates as 2023-08-31, ascending, each once",
            found=list(cutoffs),
        )


def _laid_out(documents: Sequence[feeds.Document], options: Options, measure: tokens.Tokens) -> Layout:
    """The documents as one stream, in order of time, split where they are longer than `chunk_tokens`."""
    texts: list[str] = []
    stamps: list[str] = []
    first, spans = [0], []
    pieces = tokens.split((document.text for document in documents), options.chunk_tokens, measure)
    for document, parts in zip(documents, pieces, strict=True):
        texts += parts
        stamps += [document.date] * len(parts)
        spans.append(tokens.spans(document.text, parts))
        first.append(len(texts))
    return Layout(Stream(options.domain, texts, stamps), first, spans, [document.date for document in documents])


# ---------------------------------------------------------------- probes


def _items(
    found: Sequence[Question],
    made: dict[tuple[int, str], Forms],
    layout: Layout,
    corpus: Corpus,
    options: Options,
) -> list[Item]:
    """Every question in its formats at each of its cut-offs."""
    at = {cutoff: layout.position(cutoff) for cutoff in options.cutoffs}
    before: dict[str, int] = dict(zip(options.cutoffs[1:], at.values(), strict=False))
    suffix = {cutoff: f".at.{cutoff}" if before.get(cutoff) == at[cutoff] else "" for cutoff in options.cutoffs}
    items: list[Item] = []
    for n, question in enumerate(found):
        id = f"{options.domain}_q{n:04d}"
        versions: dict[str, int] = {}
        for state in question.states:
            key = leaks.key(state.answer)
            number = versions.setdefault(key, len(versions) + 1)
            common = Item(
                id=f"{id}{suffix[state.cutoff]}",
                stream=layout.stream.id,
                text=question.text,
                answers=[state.answer],
                slices=_slices(state, "open_ended", options),
                outdated=state.outdated,
                evidence=_evidence(state, layout, corpus),
                context=_known(question, state, corpus),
                position=at[state.cutoff],
            )
            if "open_ended" in options.formats:
                items += [
                    item for hint in options.hints if (item := _hinted(common, hint, id, question, state, options))
                ]
            forms = made[n, key]
            if forms.choice is not None:
                text, choices, right = forms.choice
                items.append(
                    replace(
                        common,
                        id=f"{id}.mcq{number}{suffix[state.cutoff]}",
                        text=text,
                        options=choices,
                        form="choice",
                        answers=[LETTERS[right]],
                        outdated=[
                            LETTERS[place]
                            for place, option in enumerate(choices)
                            if leaks.key(option) in {leaks.key(old) for old in state.outdated}
                        ],
                        slices=_slices(state, "mcq", options),
                    )
                )
            if forms.pair is not None:
                halves = Random(f"evolveqa pair {options.seed} {id} {number}").sample("ab", 2)
                texts = {"yes": forms.pair.yes_question, "no": forms.pair.no_question}
                for half, (polarity, text) in sorted(zip(halves, texts.items(), strict=True)):
                    items.append(
                        replace(
                            common,
                            id=f"{id}.pair{number}{half}{suffix[state.cutoff]}",
                            text=text,
                            options=["yes", "no"],
                            form="label",
                            answers=[polarity],
                            outdated=[],
                            slices=_slices(state, "verifiable", options) | {"polarity": polarity},
                        )
                    )
    return dealt(items, f"evolveqa options {options.seed}")


def _slices(state: State, format: str, options: Options) -> dict[str, str]:
    kind = "static" if options.control else "superseding" if state.outdated else "additive"
    return {
        "format": format,
        "cutoff": state.cutoff,
        "change": f"{format}_{kind}",
        "polarity": "no_polarity",
        "hints": "none",
    }


def _known(question: Question, state: State, corpus: Corpus) -> list[str]:
    """What a judge is told of the question (Figure 10): the tuple, and the dated answers up to the cut-off, each with
    the words that it was found by: `<date>: <answer> | <words>`."""
    topic = question.topic
    return [
        f"Entity: {topic.entity}",
        f"Concept: {topic.concept}",
        f"Attribute: {topic.attribute}",
        *(f"{answer.date}: {answer.text} | {corpus.chunks[answer.chunk].text}" for answer in state.history),
    ]


def _evidence(state: State, layout: Layout, corpus: Corpus) -> list[str]:
    """The pieces that hold the chunks which the gold answer comes from; where such a chunk does not hold its answer,
    the pieces of its document that do as well."""
    found: set[int] = set()
    for answer in state.used:
        chunk = corpus.chunks[answer.chunk]
        found.update(layout.pieces(answer.document, chunk.start, chunk.end))
        if not leaks.tells(chunk.text, [answer.text]):
            whole = range(layout.first[answer.document], layout.first[answer.document + 1])
            found.update(p for p in whole if leaks.tells(layout.stream.texts[p], [answer.text]))
    return [layout.stream.document_id(position) for position in sorted(found)]


def _hinted(item: Item, hint: Hint, id: str, question: Question, state: State, options: Options) -> Item | None:
    """The open question with what it is told besides (C.3); None where that would hold the answer.

    The date is drawn evenly from that of the newest document behind the gold answer to the cut-off.
    """
    if hint == "none":
        return item
    told = []
    if hint in ("context", "both"):
        topic = question.topic
        told.append(f"Entity: {topic.entity}. Concept: {topic.concept}. Attribute: {topic.attribute}.")
    if hint in ("date", "both"):
        newest, last = date.fromisoformat(state.used[-1].date), date.fromisoformat(state.cutoff)
        rng = Random(f"evolveqa date {options.seed} {id} {state.cutoff}")
        told.append(f"Current date: {newest + timedelta(days=rng.randint(0, (last - newest).days))}.")
        id = f"{id}.{hint}.{state.cutoff}"
    else:
        id = f"{id}.{hint}{item.id.removeprefix(id)}"
    text = "\n".join([*told, item.text])
    return (
        None
        if leaks.tells(text, item.answers)
        else replace(item, id=id, text=text, slices={**item.slices, "hints": hint})
    )


def _counted(items: Sequence[Item]) -> dict[str, float]:
    """Questions by format and cut-off (Tables 1, 3 and 4), pairs counted once; and those of superseded facts."""
    counts: Counter[str] = Counter()
    for item in items:
        slices = item.slices
        if slices["polarity"] != "no":
            hints = "" if slices["hints"] == "none" else f", hints {slices['hints']}"
            counts[f"{slices['format']}, {slices['cutoff']}{hints}"] += 1
            if slices["change"].endswith("_superseding"):
                counts[f"{slices['change']}, {slices['cutoff']}{hints}"] += 1
    return dict(sorted(counts.items()))
