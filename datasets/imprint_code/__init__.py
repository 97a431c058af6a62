"""What libraries' releases add to their interfaces, and questions about it: Code Changelogs of ImprintBench (D.2).

Release notes are read by rule (`rst`, `markdown`, `features`); a language model, where one is named, judges what was
found and writes the families that need one (`steps`, `questions`, `snippets`). Without one, DirAcq, ImpRel and BoundAbs
are built and, where `families` names them, those of `described` and `compared`, which the paper does not have.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random

from upkeep.building import answering, assembling, tokens
from upkeep.building import assistant as assistants
from upkeep.building.assembling import Built, Item, Stream
from upkeep.building.assistant import Assistant
from upkeep.building.context import Context
from upkeep.building.names import Names
from upkeep.building.tokens import Tokens
from upkeep.contract import Pair
from upkeep.errors import UpkeepError

from . import (
    compared,
    described,
    interface,
    invented,
    judges,
    pairs,
    paths,
    program,
    questions,
    snippets,
    sources,
    steps,
    synthetic,
)
from .change import Change
from .features import PARAMETER, Feature
from .findings import Findings
from .interface import Interface
from .options import FAMILIES, WITH_ASSISTANT, Options
from .questions import Entry, Writer
from .snippets import Trials
from .sources import Sources


def build(context: Context) -> Built:
    """Read the notes, find what is new, write documents, questions and training pairs.

    Raises:
        UpkeepError: wrong options or inputs, or no feature at all.
    """
    options = context.options(Options)
    with ExitStack() as stack:
        helper: Assistant | None = None
        base: Assistant | None = None
        solver: Assistant | None = None
        if options.source == "world":
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            rng = Random(f"imprint_code world {options.seed}")
            sizes = synthetic.Sizes(options.libraries, options.releases)
            world = synthetic.make(rng, Names(rng), sizes)
            given = world.write(folder)
            if options.program or options.assistant is not None:
                helper = stack.enter_context(answering.by(context, options.assistant, program.script(world)))
            if options.base is not None or options.solver is not None:
                raise UpkeepError(
                    "a world has no base model and no solver", where=context.where, remedy="set them to null"
                )
        else:
            given = _given(context)
            hired = {
                model: stack.enter_context(answering.by(context, model))
                for model in dict.fromkeys((options.assistant, options.base, options.solver))
                if model is not None
            }
            helper, base, solver = (
                hired.get(model) if model else None for model in (options.assistant, options.base, options.solver)
            )
        read = sources.read(given, context.faults)
        inputs = context.inputs(read.files) if options.source == "files" else {}
        return _assemble(context, options, read, helper, base, solver, inputs)


def _given(context: Context) -> dict[str, Path]:
    notes = context.required("notes", sources.FORM)
    if not notes.is_dir():
        raise UpkeepError("no folder", where=notes, expected=sources.FORM)
    given = {"notes": notes}
    for what in ("dates", "docs", "snippets", "pulls", "packages"):
        if context.given(what) is not None:
            given[what] = context.required(what, "a file or folder as documented in README.md")
    return given


def find(read: Sources) -> Findings:
    """The features of all notes, by rule, in the order of libraries and their versions."""
    findings = Findings()
    interfaces: dict[Path, Interface] = {}
    for library in dict.fromkeys(release.library for release in read.releases):
        mine = [release for release in read.releases if release.library == library]
        pages = [path for of, path in read.docs if of == library]
        names = paths.Names(library, [block for release in mine for block in release.blocks], pages)
        for release in mine:
            change = None
            if both := read.distributions(library, release.version):
                for path in both:
                    if path not in interfaces:
                        interfaces[path] = interface.read(path, names.root)
                change = Change(*(interfaces[path] for path in both))
            findings.read(library, release.version, release.blocks, names, change)
    return findings


def _assemble(
    context: Context,
    options: Options,
    read: Sources,
    helper: Assistant | None,
    base: Assistant | None,
    solver: Assistant | None,
    inputs: Mapping[str, str],
) -> Built:
    findings = find(read)
    left_out = findings.left_out
    features = findings.features
    if helper is not None:
        features = judges.accepted(features, read, helper, options.judge_trials, options.novelty_trials, left_out)
    if not features:
        raise UpkeepError(
            "no new feature in the notes", where=context.where, expected="at least one", found=dict(left_out)
        )
    measure = context.tokenizer(options.tokenizer)
    streams, entries = _documents(_in_order(features, read), read, helper, options, measure)

    writer = Writer(left_out)
    said = "\n".join([*(release.text for release in read.releases), *read.docs.values()])
    said += "\n".join(snippet.code for snippet in read.snippets)
    wanted = _families(context, options, helper)
    items = questions.direct(entries, writer) if "dir_acq" in wanted else []
    if helper is not None:
        trials = Trials(options.quality_trials, options.golden_trials, base, solver, options.no_import)
        if "ref_res" in wanted:
            items += questions.referential(entries, writer, helper)
        if "comp_rel" in wanted:
            items += snippets.compositional(entries, read.snippets, writer, helper, trials)
    if "imp_rel" in wanted:
        items += questions.implicit(entries, writer, options.unmerged)
    if "bound_abs" in wanted:
        items += invented.boundary(entries, writer, said, options.boundary, Random(f"imprint_code {options.seed}"))
    items += _by_rule(entries, writer, wanted, options.seed)
    items = _kept(items, writer)

    taught = pairs.by_rule(entries)
    if helper is not None and options.pairs:
        taught += pairs.asked(entries, helper, options.pairs)
    taught, dropped = pairs.distinct(taught, items)
    left_out.update(dropped)
    items = _sampled(items, options, writer)

    tables = assembling.collect(streams, assembling.unlabelled(items, options.seed), measure)
    statistics = _statistics(entries, items, taught, read, measure)
    statistics["candidates"] = findings.candidates
    statistics |= {f"left out: {reason}": count for reason, count in sorted(left_out.items()) if count}
    statistics |= _costs([helper, base, solver])
    return Built(
        *tables,
        pairs=taught,
        tokenizer=str(measure),
        chunk_tokens=options.chunk_tokens,
        source=context.spec.source,
        statistics=statistics,
        inputs=inputs,
        seed=options.seed,
        notes=_notes(options, read, helper, items),
    )


def _families(context: Context, options: Options, helper: Assistant | None) -> Sequence[str]:
    """What is to be asked.

    Raises:
        UpkeepError: a family is named that needs an assistant, and there is none.
    """
    if options.families is None:
        return FAMILIES
    lacking = [family for family in WITH_ASSISTANT if family in options.families]
    if lacking and helper is None:
        raise UpkeepError(
            "families that an assistant writes, and no assistant",
            where=f"{context.where}: options.families",
            found=lacking,
            remedy="name a model of models/ in options.assistant, or leave them out",
        )
    return options.families


def _by_rule(entries: Sequence[Entry], writer: Writer, wanted: Sequence[str], seed: int) -> list[Item]:
    items = described.referential(entries, writer) if questions.NOTES in wanted else []
    settled = compared.settled(entries)
    for family, make in (
        (compared.SAME, compared.same),
        (compared.ORDER, compared.order),
        (compared.COUNT, compared.count),
    ):
        if family in wanted:
            writer.left_out["named in the notes of another release"] = len(entries) - len(settled)
            items += make(settled, writer, Random(f"imprint_code {family} {seed}"))
    return items


def _sampled(items: Sequence[Item], options: Options, writer: Writer) -> list[Item]:
    """So many of each family, in the order in which they were; of labels each as often as they allow."""
    if options.sample is None:
        return list(items)
    places: dict[str, list[int]] = {}
    for place, item in enumerate(items):
        places.setdefault(item.slices["family"], []).append(place)
    kept: set[int] = set()
    for family, mine in places.items():
        Random(f"imprint_code sample {family} {options.seed}").shuffle(mine)
        turns: Counter[str] = Counter()
        turn: dict[int, int] = {}
        for place in mine:
            label = items[place].answers[0] if items[place].options else ""
            turn[place] = turns[label] if label else 0
            turns[label] += 1
        kept.update(sorted(mine, key=turn.__getitem__)[: options.sample])
    writer.left_out["not drawn"] += len(items) - len(kept)
    return [item for place, item in enumerate(items) if place in kept]


def _costs(asked: Sequence[Assistant | None]) -> dict[str, float]:
    """What all assistants were asked, each counted once."""
    total: dict[str, float] = {}
    for one in {id(one): one for one in asked if one is not None}.values():
        for name, count in assistants.statistics(one).items():
            total[name] = total.get(name, 0) + count
    return total


# ---------------------------------------------------------------- documents


def _in_order(features: Sequence[Feature], read: Sources) -> list[tuple[Feature, str | None]]:
    """Features with their release's date, in order of dates; notes without a date follow the library's ones before."""
    place: dict[tuple[str, str], tuple[str, str, int]] = {}
    dates = {(release.library, release.version): release.date for release in read.releases}
    latest: dict[str, str] = {}
    for number, release in enumerate(read.releases):
        latest[release.library] = max(release.date or "", latest.get(release.library, ""))
        place[release.library, release.version] = (release.date or latest[release.library], release.library, number)
    ordered = sorted(features, key=lambda feature: place[feature.library, feature.version])
    return [(feature, dates[feature.library, feature.version]) for feature in ordered]


def document(feature: Feature, date: str | None, about: steps.About, summary: str | None) -> str:
    """All of a feature as text (5, "C"): release, what is new, the notes' words, documentation, pull requests."""
    block = feature.block
    released = f", released on {date}" if date else ""
    if feature.kind == PARAMETER:
        what = f"New parameter: {feature.leaf} of {', '.join(feature.parents)}"
    else:
        what = f"New {feature.kind}: {feature.canonical}"
    heading = block.titles[-1].plain if block.titles else ""
    parts = [f"{feature.library} {feature.version}{released}.", f"{what}.", f"{heading}: {block.text}".lstrip(": ")]
    if about.documentation:
        parts.append(about.documentation)
    parts += [f"Pull request {pull}" for pull in about.pulls]
    if summary:
        parts.append(summary)
    return "\n".join(parts)


def _documents(
    features: Sequence[tuple[Feature, str | None]],
    read: Sources,
    helper: Assistant | None,
    options: Options,
    measure: Tokens,
) -> tuple[list[Stream], list[Entry]]:
    abouts = [judges.about(feature, read) for feature, _ in features]
    summaries: Sequence[str | None] = [None] * len(features)
    if helper is not None and options.summaries:
        written = helper.ask(steps.SUMMARY, abouts)
        summaries = written
    texts = [
        document(feature, date, about, summary)
        for (feature, date), about, summary in zip(features, abouts, summaries, strict=True)
    ]
    streams: dict[str, tuple[list[str], list[str | None]]] = {}
    entries: list[Entry] = []
    split = tokens.split(texts, options.chunk_tokens, measure)
    for (feature, date), about, pieces in zip(features, abouts, split, strict=True):
        name = feature.library if options.streams == "library" else "releases"
        held, dates = streams.setdefault(name, ([], []))
        ids = tuple(Stream(name, ()).document_id(len(held) + n) for n in range(len(pieces)))
        held += pieces
        dates += [date] * len(pieces)
        entries.append(Entry(feature, name, ids, tuple(pieces), about, date))
    slices: dict[str, list[str]] = {}
    for entry in entries:
        slices.setdefault(entry.stream, []).extend([entry.feature.library] * len(entry.documents))
    made = [Stream(name, held, dates, slices={"library": slices[name]}) for name, (held, dates) in streams.items()]
    return made, entries


def _kept(items: Sequence[Item], writer: Writer) -> list[Item]:
    """Each id once: paths that differ in case or kind alone can make the same question."""
    kept: dict[str, Item] = {}
    for item in items:
        if item.id in kept:
            writer.left_out["question asked twice"] += 1
        else:
            kept[item.id] = item
    return list(kept.values())


# ---------------------------------------------------------------- the card


def _statistics(
    entries: Sequence[Entry], items: Sequence[Item], pairs: Sequence[Pair], read: Sources, measure: Tokens
) -> dict[str, float]:
    """Counts and tokens as in the paper's Tables 5, 7 and 9."""
    sizes = dict(
        zip((id(e) for e in entries), (sum(s) for s in (measure.count(e.texts) for e in entries)), strict=True)
    )
    corpus = sum(sizes.values())
    asked = sum(measure.count([pair.question for pair in pairs]))
    answered = sum(measure.count([pair.answer for pair in pairs]))
    n = len(entries)
    found: dict[str, float] = {
        "articles": n,
        "corpus_tokens": corpus,
        "article_tokens_mean": round(corpus / n, 1),
        "qa_pairs": len(pairs),
        "qa_pairs_per_article": round(len(pairs) / n, 1),
        "question_tokens": asked,
        "answer_tokens": answered,
        "question_tokens_mean": round(asked / max(1, len(pairs)), 1),
        "answer_tokens_mean": round(answered / max(1, len(pairs)), 1),
        "cq_tokens": corpus + asked + answered,
        "cq_tokens_mean": round((corpus + asked + answered) / n, 1),
    }
    for library in sorted({entry.feature.library for entry in entries}):
        mine = [sizes[id(entry)] for entry in entries if entry.feature.library == library]
        found[f"articles: {library}"] = len(mine)
        found[f"article_tokens: {library}"] = sum(mine)
        found[f"article_tokens_mean: {library}"] = round(sum(mine) / len(mine), 1)
    for kind, count in sorted(Counter(entry.feature.kind for entry in entries).items()):
        found[f"features of kind {kind}"] = count
    for family in dict.fromkeys(item.slices["family"] for item in items):
        mine = [sum(measure.count(list(item.context))) for item in items if item.slices["family"] == family]
        if family != "bound_abs":
            found[f"supporting_tokens_mean: {family}"] = round(sum(mine) / len(mine), 1)
    found["releases"] = len(read.releases)
    found["releases without a date"] = sum(release.date is None for release in read.releases)
    found["features with a page of documentation"] = sum(bool(entry.about.documentation) for entry in entries)
    found["features with a pull request"] = sum(bool(entry.about.pulls) for entry in entries)
    found["snippets given"] = len(read.snippets)
    return found


def _notes(options: Options, read: Sources, helper: Assistant | None, items: Sequence[Item]) -> list[str]:
    notes = []
    have = {item.slices["family"] for item in items}
    missing = [family for family in options.families or FAMILIES if family not in have]
    if options.families is not None and (unnamed := [one for one in FAMILIES if one not in options.families]):
        notes.append(f"families that the options do not name: {', '.join(unnamed)}")
    if missing and helper is None and options.families is None:
        notes.append(
            f"families missing for want of an assistant: {', '.join(f for f in missing if f in WITH_ASSISTANT)}"
        )
    elif missing:
        notes.append(f"families without a question: {', '.join(missing)}")
    if helper is None:
        notes.append("features: by rule, not judged")
    if options.unmerged and "imp_rel" in have:
        notes.append(
            "imp_rel merges identical questions and accepts any of their names; its value unmerged is that over"
            " imp_rel_unmerged and those of imp_rel with one accepted name"
        )
    if "comp_rel" in have and options.base is None:
        notes.append("comp_rel: passed by the validator; not filtered to what a base model gets wrong 8 of 8 times")
    if undated := sum(release.date is None for release in read.releases):
        notes.append(f"{undated} releases without a date stand after their library's last dated one")
    return notes
