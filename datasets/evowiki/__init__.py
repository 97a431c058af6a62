"""Stable, evolved and uncharted facts, from three dated snapshots of a fact base with a page of text for each entity.

The rules are those of EvoWiki (3.1, 3.2, Appendix B and E): `levels` says which facts have a level, `questions` asks
about them, and this module puts the pages that name them into a corpus. What a fact base is, `facts` says; its readers
are `wikidata` (with `wikipedia` for the pages), `legislators`, and `synthetic` for a small invented one.
"""

from __future__ import annotations

import itertools
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from msgspec import Struct

from upkeep.building import answering, assembling, assistant, tokens
from upkeep.building.assembling import Built
from upkeep.building.context import Context
from upkeep.contract import Pair
from upkeep.errors import UpkeepError

from . import program, synthetic, wikidata
from . import questions as asking
from .facts import Snapshot
from .levels import LEVELS, Levels, levels
from .questions import MAX_HOPS, Asked, Passage
from .synthetic import Sizes

STREAM = "corpus"


class Options(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`options` of `dataset.yaml`."""

    source: Literal["wikidata", "legislators", "world"] = "wikidata"
    init: str = "2021-09-01"
    """Facts that are older are taken as known to every model."""
    cutoff: str = "2024-01-01"
    """The models' knowledge ends."""
    current: str = "2024-05-01"
    """The evaluation."""
    hops: int = MAX_HOPS
    """Of a question, at most."""
    humans: bool = True
    """Whether a question has to begin with a person, as in the paper."""
    replaced: bool = False
    """Whether a statement that took another's place counts as the same one (see `levels`)."""
    apart: bool = False
    """Whether a question is left out that has an answer within the name of another object of its last relation."""
    most: dict[str, list[int]] = {}
    """Level -> at most so many questions of 1, 2 and 3 hops; a level without has no limit."""
    chunk_tokens: int = 256
    distractors: int = 0
    """Pages beside the golden ones, drawn at random from `data: {<dataset>.distractors: PATH}`."""
    rewrite: bool = False
    """Whether the assistant puts the questions into its own words."""
    pairs: bool = False
    """Whether it writes pairs to train on."""
    pairs_per_chunk: int = 6
    pairs_chunk_tokens: int = 512
    assistant: str | None = None
    """A model of `models/`; the small world has a program for it, and legislators for their pairs."""
    seed: int = 0
    tokenizer: str | None = None
    """A `tokenizer.json`; null for the suite's own."""
    wikidata: wikidata.Options = wikidata.Options()
    sizes: Sizes = Sizes()
    """Of the small world."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """The documents, and where the golden sentences are in them."""

    texts: list[str] = field(default_factory=list)
    places: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """(title, sentence) -> the documents that it lies in."""
    ends: dict[str, int] = field(default_factory=dict)
    """Title -> the last document of a golden page."""
    lengths: dict[str, int] = field(default_factory=dict)
    """Golden page -> characters."""
    golden: list[tuple[str, str]] = field(default_factory=list)
    """(title, text) of the golden pages, where they are asked for."""
    added: list[str] = field(default_factory=list)
    """Titles of the other pages."""


def build(context: Context) -> Built:
    """Read three snapshots, level their facts, ask about them, and make a corpus of the pages that name them.

    Raises:
        UpkeepError: wrong options or inputs, or no question comes out.
    """
    options = context.options(Options)
    _check(options, context)
    # The large corpus is a part of the whole: the same inputs and replies, hence the same questions.
    whole = replace(context, name=context.spec.part_of or context.name)
    scripts = {"world": program.of_world, "legislators": program.of_congress}
    script = scripts[options.source]() if options.source in scripts else None
    asks = options.rewrite or options.pairs
    hired = answering.by(whole, options.assistant, script) if asks else None
    measure = context.tokenizer(options.tokenizer)
    snapshots, inputs = _read(options, whole)
    current = snapshots[-1]
    found = levels(snapshots, options.replaced)
    asked, counts = asking.questions(
        found, current, options.hops, options.humans, options.most, options.seed, options.apart
    )
    if not asked:
        raise UpkeepError(
            "no question comes out",
            where=context.where,
            expected="facts that the pages of all three times support",
            found=", ".join(f"{name}: {n}" for name, n in (found.statistics | counts).items()),
        )
    support = _support(found)
    wanted: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for one in asked:
        for title, sentence in _golden(one, found, support):
            wanted[title].setdefault(sentence)
    corpus = _corpus(current, wanted, options, measure, _distractors(options, whole, wanted))
    stream = assembling.Stream(STREAM, corpus.texts, [current.date] * len(corpus.texts))
    made: Sequence[Pair] = ()
    if hired is not None:
        with hired as helper:
            if options.rewrite:
                asked, more = asking.rewrite(asked, found, current, helper)
                counts |= more
            if options.pairs:
                passages = list(_passages(corpus, stream, options, measure))
                made, more = asking.pairs(passages, [one.text for one in asked], helper)
                counts |= more
            counts |= assistant.statistics(helper)
    views = {entity: n for entity, n in current.entities.select("entity", "views").iter_rows() if n is not None}
    items = [_item(n, one, _golden(one, found, support), corpus, stream, views) for n, one in enumerate(asked)]
    return Built(
        *assembling.collect([stream], assembling.unlabelled(items, options.seed), measure),
        pairs=made,
        tokenizer=str(measure),
        chunk_tokens=options.chunk_tokens,
        source=context.spec.source,
        statistics=_statistics(asked, found, support, corpus, views) | found.statistics | counts,
        inputs=inputs,
        seed=options.seed,
        notes=[f"init-time {snapshots[0].date}, cutoff-time {snapshots[1].date}, current-time {current.date}"],
    )


# ---------------------------------------------------------------- inputs


def _check(options: Options, context: Context) -> None:
    if not 1 <= options.hops <= MAX_HOPS:
        raise UpkeepError(
            "wrong number of hops", where=f"{context.where}: options", expected=f"1 to {MAX_HOPS}", found=options.hops
        )
    if not options.init < options.cutoff < options.current:
        raise UpkeepError(
            "dates out of order",
            where=f"{context.where}: options",
            expected="init before cutoff before current",
            found=f"{options.init}, {options.cutoff}, {options.current}",
        )
    for level, limits in options.most.items():
        if level not in LEVELS or len(limits) < options.hops or min(limits) < 0:
            raise UpkeepError(
                "wrong limits",
                where=f"{context.where}: options.most",
                expected=f"{', '.join(LEVELS)}, each with {options.hops} numbers",
                found=f"{level}: {limits}",
            )


def _read(options: Options, context: Context) -> tuple[Sequence[Snapshot], Mapping[str, str]]:
    """The snapshots at the three times, and the hashes of what they were read from."""
    dates = {"init": options.init, "cutoff": options.cutoff, "current": options.current}
    if options.source == "world":
        return synthetic.snapshots(options.sizes, list(dates.values()), options.seed), {}
    given = context.given("views")
    views = {"current": given} if given else {}
    if options.source == "legislators":
        from . import legislators

        folder = context.required("snapshots", "a folder of legislators-DATE.yaml and its two companions for each date")
        files = [file for date in dates.values() for file in legislators.files(folder, date)]
        inputs = context.inputs([*files, *views.values()])
        return [legislators.read(folder, date, context.faults, views.get(time)) for time, date in dates.items()], inputs
    from . import wikipedia

    dumps, places = {}, {}
    for time, date in dates.items():
        dumps[time] = context.required(f"wikidata_{time}", f"Wikidata's JSON dump of {date}")
        places[time] = context.required(f"wikipedia_{time}", f"English Wikipedia of {date}: XML, JSON lines or Parquet")
    files = [file for time in dates for file in (dumps[time], *wikipedia.files(places[time]))]
    more = wikipedia.files(_articles(context)) if options.distractors else []
    inputs = context.inputs(list(dict.fromkeys([*files, *more, *views.values()])))
    scratch = context.catalog.cache / "wikidata"
    return [
        wikidata.read(
            dumps[time],
            date,
            wikipedia.Wikipedia(places[time], context.faults),
            options.wikidata,
            context.faults,
            scratch,
            views.get(time),
        )
        for time, date in dates.items()
    ], inputs


def _distractors(options: Options, context: Context, golden: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """(title, text) of further pages, none of them golden."""
    if not options.distractors:
        return iter(())
    from .wikipedia import Wikipedia

    return Wikipedia(_articles(context), context.faults).sample(options.distractors, options.seed, golden)


def _articles(context: Context) -> Path:
    return context.required("distractors", "articles of English Wikipedia: XML, JSON lines or Parquet")


# ---------------------------------------------------------------- corpus

Support = Mapping[tuple[str, str], Sequence[tuple[str, str]]]
"""(subject, relation) -> (title, sentence) of each of its objects, at the current time."""


def _support(found: Levels) -> Support:
    support: defaultdict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    columns = found.support.select("subject", "relation", "title", "sentence")
    for subject, relation, title, sentence in columns.iter_rows():
        support[subject, relation].append((title, sentence))
    return support


def _golden(one: Asked, found: Levels, support: Support) -> list[tuple[str, str]]:
    """(title, sentence) of all hops, in their order, each once (spec: the open book of a multi-hop question)."""
    return list(dict.fromkeys(place for hop in one.hops for place in support[hop]))


def _corpus(
    current: Snapshot,
    wanted: Mapping[str, Iterable[str]],
    options: Options,
    measure: tokens.Tokens,
    others: Iterable[tuple[str, str]],
) -> Corpus:
    """The golden pages and then the others, title first, in pieces of `chunk_tokens` (4.1)."""
    corpus = Corpus()
    ahead, pages = itertools.tee(itertools.chain(current.pages.read(wanted), others))
    split = tokens.split((f"{title}\n{text}" for title, text in ahead), options.chunk_tokens, measure)
    for (title, text), pieces in zip(pages, split, strict=True):
        if title in wanted:
            corpus.lengths[title] = len(text)
            corpus.ends[title] = len(corpus.texts) + len(pieces) - 1
            _locate(title, f"{title}\n{text}", wanted[title], pieces, corpus)
            if options.pairs:
                corpus.golden.append((title, text))
        else:
            corpus.added.append(title)
        corpus.texts.extend(pieces)
    return corpus


def _locate(title: str, text: str, sentences: Iterable[str], pieces: Sequence[str], corpus: Corpus) -> None:
    """Take note of the pieces that each sentence lies in: of one, or of more where it was cut."""
    places = tokens.spans(text, pieces)
    first = len(corpus.texts)
    for sentence in sentences:
        start = text.index(sentence, len(title))
        corpus.places[title, sentence] = [first + n for n in tokens.holding(places, start, start + len(sentence))]


def _passages(corpus: Corpus, stream: assembling.Stream, options: Options, measure: tokens.Tokens) -> Iterator[Passage]:
    split = tokens.split((text for _, text in corpus.golden), options.pairs_chunk_tokens, measure)
    for (title, _), pieces in zip(corpus.golden, split, strict=True):
        for piece in pieces:
            yield Passage(title, piece, options.pairs_per_chunk, stream.document_id(corpus.ends[title]))


# ---------------------------------------------------------------- questions


def popularity(views: int | None) -> str:
    """The paper's group of a page: the floor of log10 of its views, 0 and 1 as well as 5 and more taken together."""
    if views is None:
        return "popularity_unknown"
    magnitude = len(str(views)) - 1
    return "popularity_" + ("0_1" if magnitude < 2 else "5_6" if magnitude > 4 else str(magnitude))


def _item(
    n: int,
    one: Asked,
    golden: Sequence[tuple[str, str]],
    corpus: Corpus,
    stream: assembling.Stream,
    views: Mapping[str, int],
) -> assembling.Item:
    places = sorted({place for found in golden for place in corpus.places[found]})
    slices = {
        "level": one.level,
        "hops": "single_hop" if len(one.hops) == 1 else "multi_hop",
        "hop_number": str(len(one.hops)),
        "changed": one.changed,
    }
    if views:
        slices["popularity"] = popularity(views.get(one.hops[0][0]))
    return assembling.Item(
        id=f"q{n:05}",
        stream=stream.id,
        text=one.text,
        answers=one.answers,
        outdated=one.outdated,
        evidence=[stream.document_id(place) for place in places],
        context=list(dict.fromkeys(sentence for _, sentence in golden)),
        slices=slices,
    )


def _statistics(
    asked: Sequence[Asked], found: Levels, support: Support, corpus: Corpus, views: Mapping[str, int]
) -> dict[str, float]:
    """Table 2 and more: characters of a golden page and views of the first subject's page, means over questions."""
    lengths: defaultdict[str, list[int]] = defaultdict(list)
    seen: defaultdict[str, list[int]] = defaultdict(list)
    for one in asked:
        titles = dict.fromkeys(title for title, _ in _golden(one, found, support))
        lengths[one.level] += [corpus.lengths[title] for title in titles]
        if one.hops[0][0] in views:
            seen[one.level].append(views[one.hops[0][0]])
    counted = Counter((one.level, len(one.hops)) for one in asked)
    return {
        "pages": len(corpus.lengths),
        "pages added": len(corpus.added),
        **{f"context_length_mean: {level}": round(statistics.fmean(n), 2) for level, n in lengths.items()},
        **{f"popularity_mean: {level}": round(statistics.fmean(n), 2) for level, n in seen.items()},
        **{f"{level}, {hops} hops": counted[level, hops] for level in LEVELS for hops in range(1, MAX_HOPS + 1)},
        "questions with several answers": sum(len(one.answers) > 1 for one in asked),
    }
