"""What an assistant learns of its users: ImprintBench, Personalization (2, D.3, Tables 5, 8 and 9).

Personas of PersonaMem-v2 and HorizonBench give the conversations; their facts, turned into frames by an assistant,
give the questions. A stream is one persona, its documents are the sessions in order, and every question is asked after
the last (spec 13.5).
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Literal

from msgspec import Struct

from upkeep.building import answering, assembling, assistant, tokens
from upkeep.building.assembling import Built, Item, Stream
from upkeep.building.assistant import Assistant
from upkeep.building.context import Context
from upkeep.building.dealing import dealt
from upkeep.building.names import Names
from upkeep.building.tokens import Tokens

from . import families, horizonbench, personamem, program, supervision, synthetic, synthetic_releases
from .author import Author, Draft
from .families import FAMILIES
from .personas import Fact, Persona, Read, best_turn, written

RELEASES = ("personamem_v2", "horizonbench")


class Budget(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Questions of each family that a persona gets at most: Table 9's counts over its 20 personas, rounded up."""

    dir_acq: int = 5
    ref_res: int = 7
    temp_upd: int = 56
    imp_rel: int = 9
    comp_rel: int = 7
    bound_abs: int = 13


class Options(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`options` of `dataset.yaml`."""

    source: Literal["files", "world"] = "files"
    """Releases of your own, or a small seeded world written in their formats."""
    personamem: int = 10
    """Personas of PersonaMem-v2: a seeded choice."""
    personamem_table: str = "benchmark/text/benchmark.csv"
    """The table within the release."""
    horizonbench: int = 10
    """Personas of HorizonBench: a seeded choice."""
    chunks: int = 4
    """K of HorizonBench (Table 8); PersonaMem-v2 has one chunk a persona."""
    chunk_tokens: int = 2048
    """Of a document; a longer session becomes several."""
    longest: int = 400_000
    """Characters of a session; a longer one is a fault."""
    budget: Budget = Budget()
    candidates: int = 3
    """Candidates written for each question of the budget."""
    distractors: int = 3
    """Other facts of the user that an ImpRel question is written among."""
    pairs_per_chunk: int = 100
    """Training pairs (Table 5)."""
    seed: int = 0
    tokenizer: str | None = None
    """A `tokenizer.json`; null for the suite's own."""
    assistant: str | None = None
    """The model of `models/` that writes and audits; a world answers for itself."""


def build(context: Context) -> Built:
    """Read or invent the personas, have the questions written and audited.

    Raises:
        UpkeepError: wrong options or inputs, or no assistant for inputs of one's own.
    """
    options = context.options(Options)
    measure = context.tokenizer(options.tokenizer)
    if options.source == "files":
        paths = {
            source: context.required(source.removesuffix("_v2"), expected)
            for source, expected, count in (
                ("personamem_v2", "the folder of a PersonaMem-v2 release", options.personamem),
                ("horizonbench", "HorizonBench's `mental_state_graphs`, a table or a folder", options.horizonbench),
            )
            if count
        }
        hired = answering.by(context, options.assistant)
        return _built(context, options, measure, _read(context, options, measure, paths), hired)
    world = synthetic.make(
        Random(f"imprint_personal world {options.seed}"),
        Names(Random(f"imprint_personal names {options.seed}")),
        synthetic.Sizes(personamem=options.personamem, horizonbench=options.horizonbench),
    )
    with tempfile.TemporaryDirectory() as folder:
        paths = synthetic_releases.write(world, Path(folder), options.personamem_table)
        read = _read(context, options, measure, paths)
    read.files.clear()
    hired = answering.by(context, options.assistant, program.script(world))
    return _built(context, options, measure, read, hired)


def _read(context: Context, options: Options, measure: Tokens, paths: Mapping[str, Path]) -> Read:
    read = Read()
    for source, path in paths.items():
        if source == "personamem_v2":
            more = personamem.read(
                path, options.personamem_table, options.personamem, options.seed, context.faults, options.longest
            )
        else:
            more = horizonbench.read(
                path, options.horizonbench, options.chunks, options.seed, context.faults, measure, options.longest
            )
        read.personas += more.personas
        read.files += more.files
        read.left_out += more.left_out
    return _distinct_names(read)


def _distinct_names(read: Read) -> Read:
    """Two users of one name are told apart by their ids, in questions only."""
    names = Counter(persona.name for persona in read.personas)
    read.personas = [
        replace(p, name=f"{p.name} ({p.id})") if names[p.name] > 1 and p.name != "the user" else p
        for p in read.personas
    ]
    return read


def _built(
    context: Context,
    options: Options,
    measure: Tokens,
    read: Read,
    hired: AbstractContextManager[Assistant],
) -> Built:
    inputs = context.inputs(read.files) if read.files else {}
    corpora = {p.id: Corpus(p, options.chunk_tokens, measure) for p in read.personas}
    with hired as helper:
        budget = {family: getattr(options.budget, family) for family in FAMILIES}
        author = Author(helper, read.personas, budget, options.candidates, options.distractors, options.seed)
        drafts = families.write(author)
        asked_of = [draft.question for draft in drafts]
        pairs = supervision.write(author, options.pairs_per_chunk, asked_of, lambda p, fact: corpora[p.id].last(fact))
        asked = assistant.statistics(helper)
    numbers: Counter[tuple[str, str]] = Counter()
    items = []
    for draft in drafts:
        number = numbers[draft.persona.id, draft.family]
        numbers[draft.persona.id, draft.family] += 1
        items.append(_item(draft, number, corpora[draft.persona.id]))
    streams = [corpora[p.id].stream for p in read.personas]
    tables = assembling.collect(
        streams, assembling.unlabelled(dealt(items, f"imprint_personal options {options.seed}"), options.seed), measure
    )
    statistics = corpus_statistics(list(corpora.values()))
    statistics |= supervision_statistics(
        [pair.question for pair in pairs], [pair.answer for pair in pairs], statistics, measure
    )
    statistics |= supporting_statistics(drafts, corpora)
    left_out = read.left_out + author.left_out
    statistics |= {f"left out: {reason}": count for reason, count in sorted(left_out.items())}
    return Built(
        *tables,
        pairs=pairs,
        tokenizer=str(measure),
        chunk_tokens=options.chunk_tokens,
        source=context.spec.source,
        statistics=statistics | asked,
        inputs=inputs,
        seed=options.seed,
        notes=[f"questions: written and audited by {answering.named(options.assistant)}"],
    )


# ---------------------------------------------------------------- documents


class Corpus:
    """The documents of a persona: its sessions, a long one in several pieces, and where each piece came from."""

    def __init__(self, persona: Persona, limit: int, measure: Tokens) -> None:
        self.persona = persona
        self.texts = [written(session) for session in persona.sessions]
        self.first: list[int] = []
        """Of each session: the position of its first document."""
        self.spans: list[list[tuple[int, int]]] = []
        """Of each session: where in its text each of its documents lies."""
        documents: list[str] = []
        timestamps: list[str | None] = []
        for session, text, parts in zip(
            persona.sessions, self.texts, tokens.split(self.texts, limit, measure), strict=True
        ):
            self.first.append(len(documents))
            self.spans.append(tokens.spans(text, parts))
            documents += parts
            timestamps += [session.date] * len(parts)
        dated = all(timestamps) and bool(timestamps)
        self.stream = Stream(persona.id, documents, [t or "" for t in timestamps] if dated else None)
        sizes = measure.count(self.texts)
        self.sizes = [0] * (max(persona.chunks, default=-1) + 1)
        """Tokens of each chunk."""
        for chunk, size in zip(persona.chunks, sizes, strict=True):
            self.sizes[chunk] += size

    def evidence(self, fact: Fact) -> list[int]:
        """The positions of the documents that tell a fact: of each of its sessions, those that hold the user's message
        that shares most words with it."""
        found: list[int] = []
        for at in fact.sessions:
            best = best_turn(self.persona, fact, [at])
            start = self.texts[at].find(best)
            found += [self.first[at] + n for n in tokens.holding(self.spans[at], start, start + len(best))]
        return found

    def last(self, fact: Fact) -> str:
        """Id of the last document that tells a fact."""
        return self.stream.document_id(max(self.evidence(fact)))


def _item(draft: Draft, number: int, corpus: Corpus) -> Item:
    evidence = sorted({position for fact in draft.facts for position in corpus.evidence(fact)})
    return Item(
        id=f"{draft.persona.id}_{draft.family}_{number:03d}",
        stream=draft.persona.id,
        text=draft.question,
        answers=draft.answers,
        outdated=draft.outdated,
        evidence=[corpus.stream.document_id(position) for position in evidence],
        options=draft.options or None,
        form="choice" if draft.options else "short",
        slices={
            "family": draft.family,
            "subtype": draft.subtype,
            "persona": draft.persona.id,
            "source": draft.persona.source,
        },
    )


# ---------------------------------------------------------------- statistics


def corpus_statistics(corpora: Sequence[Corpus]) -> dict[str, float]:
    """Chunks ("articles") and their tokens (Table 5), by release too (Table 8)."""
    found: dict[str, float] = {}
    for source in ("", *RELEASES):
        sizes = [size for c in corpora if source in ("", c.persona.source) for size in c.sizes]
        end = f": {source}" if source else ""
        found |= {f"articles{end}": len(sizes), f"corpus_tokens{end}": sum(sizes)}
        found[f"article_tokens_mean{end}"] = _mean(sizes)
    found["sessions_per_persona"] = _mean([len(corpus.texts) for corpus in corpora])
    return found


def supervision_statistics(
    questions: Sequence[str], answers: Sequence[str], corpus: Mapping[str, float], measure: Tokens
) -> dict[str, float]:
    """Training pairs and their tokens, alone and with the corpus (Table 5)."""
    asked, answered = measure.count(questions), measure.count(answers)
    total = corpus["corpus_tokens"] + sum(asked) + sum(answered)
    articles = corpus["articles"] or 1
    return {
        "qa_pairs": len(questions),
        "qa_pairs_per_article": round(len(questions) / articles, 3),
        "question_tokens": sum(asked),
        "answer_tokens": sum(answered),
        "question_tokens_mean": _mean(asked),
        "answer_tokens_mean": _mean(answered),
        "cq_tokens": total,
        "cq_tokens_mean": round(total / articles, 3),
    }


def supporting_statistics(drafts: Sequence[Draft], corpora: Mapping[str, Corpus]) -> dict[str, float]:
    """Mean tokens of the chunk that a question rests on, its last where there are several (Table 9)."""
    sizes: dict[str, list[int]] = {family: [] for family in FAMILIES}
    for draft in drafts:
        corpus = corpora[draft.persona.id]
        last = [draft.persona.chunks[fact.sessions[-1]] for fact in draft.facts if fact.sessions]
        sizes[draft.family].append(corpus.sizes[max(last)] if last else corpus.sizes[-1])
    return {f"supporting_tokens_mean: {family}": _mean(found) for family, found in sizes.items()}


def _mean(values: Sequence[int]) -> float:
    return round(sum(values) / len(values), 3) if values else 0.0
