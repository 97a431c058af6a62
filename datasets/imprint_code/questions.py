"""The question families of Code Changelogs (ImprintBench, D.2), made from features."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from upkeep.building import leaks
from upkeep.building.assistant import Assistant, Step
from upkeep.building.store import Item
from upkeep.contract import Pair

from . import steps
from .features import PARAMETER, PLURALS, Feature
from .sources import UsageSnippet
from .steps import MASK

T = TypeVar("T")

LABELS = ("Yes", "No")
SHORTEST, LONGEST = 5, 30
"""Lines of a snippet that is cut out of a file."""


@dataclass(frozen=True)
class Entry:
    """A feature with its place among the documents."""

    feature: Feature
    stream: str
    documents: tuple[str, ...]
    """Ids of the documents that hold it, in order."""
    texts: tuple[str, ...]
    about: steps.About

    @property
    def body(self) -> str:
        return "\n".join(self.texts)


@dataclass
class Writer:
    """Makes items, and counts what it leaves out."""

    left_out: Counter[str]

    def item(self, family: str, name: str, text: str, answers: Sequence[str], about: Sequence[Entry]) -> Item | None:
        """An item about features of one library; None where the question holds its answer."""
        first = about[0]
        if family in OPEN and leaks.tells(text, answers):
            self.left_out["answer in question"] += 1
            return None
        labels = family not in OPEN
        gold = family != "bound_abs"
        return Item(
            id=f"{family}_{name}",
            stream=first.stream,
            text=text,
            answers=answers,
            form="label" if labels else "short",
            options=LABELS if labels else None,
            slices={"family": family, "library": first.feature.library, "kind": first.feature.kind},
            evidence=list(dict.fromkeys(d for entry in about for d in entry.documents)) if gold else (),
            context=list(dict.fromkeys(t for entry in about for t in entry.texts)) if gold else (),
        )


OPEN = frozenset({"ref_res", "imp_rel", "imp_rel_unmerged", "comp_rel", "comp_rel_no_import"})
"""Families with open answers; the others are answered Yes or No."""


def there(library: str, kind: str, path: str) -> str:
    """The template of DirAcq and BoundAbs."""
    return f"Does {library} have a {kind} at {path}?"


def direct(entries: Sequence[Entry], writer: Writer) -> list[Item]:
    """DirAcq: whether a feature exists; every feature that is no parameter."""
    found = []
    for entry in entries:
        feature = entry.feature
        if feature.kind != PARAMETER:
            text = there(feature.library, feature.kind, feature.canonical)
            found.append(writer.item("dir_acq", feature.canonical, text, ["Yes"], [entry]))
    return [item for item in found if item is not None]


def implicit(entries: Sequence[Entry], writer: Writer, unmerged: bool) -> list[Item]:
    """ImpRel: what is in a namespace. Features that share question and stream are one item, any of them is right.

    Args:
        unmerged: give each feature of a shared question an item of its own too, of the family `imp_rel_unmerged`.
    """
    groups: dict[tuple[str, str, str], list[Entry]] = {}
    for entry in entries:
        if entry.feature.kind != PARAMETER and entry.feature.namespace:
            groups.setdefault((entry.stream, entry.feature.namespace, entry.feature.kind), []).append(entry)
    found = []
    for (_, namespace, kind), members in groups.items():
        text = f"What {PLURALS[kind]} are in {namespace}?"
        asked = [entry for entry in members if not leaks.tells(text, [entry.feature.leaf])]
        writer.left_out["answer in question"] += len(members) - len(asked)
        if not asked:
            continue
        leaves = [entry.feature.leaf for entry in asked]
        found.append(writer.item("imp_rel", f"{namespace}_{kind}", text, leaves, asked))
        if unmerged and len(asked) > 1:
            for entry in asked:
                name = f"{entry.feature.canonical}_{kind}"
                found.append(writer.item("imp_rel_unmerged", name, text, [entry.feature.leaf], [entry]))
    return [item for item in found if item is not None]


# ---------------------------------------------------------------- BoundAbs


def boundary(entries: Sequence[Entry], writer: Writer, said: str, count: int | None, rng: Random) -> list[Item]:
    """BoundAbs: leaves that are made up of parts of the library's own and occur nowhere in what was given.

    Args:
        said: all texts of all libraries.
        count: of questions; None for as many as DirAcq has. A library has its share of DirAcq's.
    """
    known = {word.lower() for word in re.findall(r"\w+", said)}
    real = [entry for entry in entries if entry.feature.kind != PARAMETER]
    if count is not None and real:
        real = (
            [real[n * len(real) // count] for n in range(count)] if count <= len(real) else rng.choices(real, k=count)
        )
    parts: dict[tuple[str, str], list[list[str]]] = {}
    for entry in entries:
        key = entry.feature.library, entry.feature.kind
        parts.setdefault(key, []).append(split_name(entry.feature.leaf))
    found = []
    for entry in real:
        feature = entry.feature
        leaf = _invented(parts[feature.library, feature.kind], feature.leaf, known, rng)
        if leaf is None:
            writer.left_out["no name to invent"] += 1
            continue
        known.add(leaf.lower())
        path = f"{feature.namespace}.{leaf}"
        found.append(writer.item("bound_abs", path, there(feature.library, feature.kind, path), ["No"], [entry]))
    return [item for item in found if item is not None]


def split_name(leaf: str) -> list[str]:
    """The words of an identifier, with what joins them: `make_splrep` is `make`, `_splrep`."""
    return re.findall(r"_+[^_A-Z]+|[A-Z]+(?![a-z])|[A-Z][^_A-Z]*|[^_A-Z]+", leaf)


_ADDITIONS = (
    "batch",
    "pair",
    "mask",
    "weight",
    "window",
    "chunk",
    "index",
    "local",
    "joint",
    "sparse",
    "robust",
    "lazy",
)
_TRIES = 200
_PIECE = 3
"""Letters of the last word of a name that is used for others, at least."""


def _invented(parts: Sequence[list[str]], near: str, known: set[str], rng: Random) -> str | None:
    """A name in the manner of `near` that is not known: the beginning of it and the end of another, by whole words;
    by half words where no name has two."""
    several = [words for words in parts if len(words) > 1 and len(words[-1].strip("_")) >= _PIECE]
    for attempt in range(_TRIES):
        begin, end = split_name(near), rng.choice(several or parts)
        if several and attempt < _TRIES // 2:
            begin = begin if len(begin) > 1 else rng.choice(several)
            words = [*begin[:-1], end[-1]]
        elif attempt < _TRIES // 2:
            words = [near[: (len(near) + 1) // 2], end[0][(len(end[0]) + 1) // 2 :].lower()]
        else:
            addition = rng.choice(_ADDITIONS)
            words = [*begin, addition.capitalize() if near[:1].isupper() else f"_{addition}"]
        name = "".join(words)
        if name.lower() not in known:
            return name
    return None


# ---------------------------------------------------------------- RefRes


def referential(entries: Sequence[Entry], writer: Writer, helper: Assistant) -> list[Item]:
    """RefRes: a description for which the name is to be found; every feature that is no parameter."""
    described = [entry for entry in entries if entry.feature.kind != PARAMETER]
    replies = helper.ask(steps.DESCRIBE, [entry.about for entry in described])
    found = []
    for entry, reply in zip(described, replies, strict=True):
        if reply is None:
            writer.left_out["no description"] += 1
            continue
        feature = entry.feature
        text = f"What {feature.kind} in {feature.library} {reply.description.strip().rstrip('.?')}?"
        found.append(writer.item("ref_res", feature.canonical, text, [feature.leaf], [entry]))
    return [item for item in found if item is not None]


# ---------------------------------------------------------------- CompRel


@dataclass(frozen=True)
class Trials:
    """How often judges are asked, and who tries the questions."""

    quality: int
    golden: int
    base: Assistant | None
    solver: Assistant | None
    no_import: bool


def compositional(
    entries: Sequence[Entry],
    snippets: Sequence[UsageSnippet],
    writer: Writer,
    helper: Assistant,
    trials: Trials,
) -> list[Item]:
    """CompRel: code in which the feature is masked, and a question about it."""
    by_path = {entry.feature.canonical: entry for entry in entries}
    work: list[tuple[Entry, steps.Snippet]] = []
    for given in snippets:
        entry = by_path.get(given.identifier)
        if entry is None or entry.feature.library != given.library:
            writer.left_out["snippet: of no feature"] += 1
        elif reason := _unusable(given, entry.feature):
            writer.left_out[f"snippet: {reason}"] += 1
        else:
            feature = entry.feature
            about = steps.Snippet(
                library=feature.library,
                path=feature.canonical,
                kind=feature.kind,
                code=given.code.strip("\n"),
                documentation=entry.about.documentation,
            )
            work.append((entry, about))
    work = _judged(work, helper, steps.AUDIT, 1, lambda r: r.uses and r.self_contained, "audit", writer)
    work = _cut(work, helper, writer)
    work = _masked(work, writer)
    accept: Callable[[steps.Quality], bool] = lambda r: r.library_used and r.right_name and r.name_hidden  # noqa: E731
    work = _judged(work, helper, steps.QUALITY, trials.quality, accept, "quality", writer)
    asked = []
    replies = helper.ask(steps.ASK, [about for _, about in work])
    for (entry, about), reply in zip(work, replies, strict=True):
        if reply is None:
            writer.left_out["snippet: no question"] += 1
        else:
            asked.append((entry, _with(about, question=" ".join(reply.question.split()))))
    accepted: Callable[[steps.Faithful], bool] = lambda r: r.operations_are_there and not r.gives_away and r.fits  # noqa: E731
    work = _judged(asked, helper, steps.VALIDATE, 1, accepted, "validator", writer)
    items: list[Item] = []
    numbers: Counter[str] = Counter()
    for entry, about in work:
        path = entry.feature.canonical
        numbers[path] += 1
        name = f"{path}_{numbers[path]}"
        text = coded(about.question, about.masked)
        item = writer.item("comp_rel", name, text, [entry.feature.leaf], [entry])
        if item is None:
            continue
        items.append(item)
        bare = without_imports(about.masked) if trials.no_import else about.masked
        if bare is None or bare == about.masked:
            writer.left_out["no variant without imports"] += trials.no_import
            continue
        variant = writer.item("comp_rel_no_import", name, coded(about.question, bare), [entry.feature.leaf], [entry])
        items += [variant] if variant is not None else []
    return _golden(items, writer, trials)


def _with(about: steps.Snippet, **changes: Any) -> steps.Snippet:
    return steps.Snippet(**{name: getattr(about, name) for name in about.__struct_fields__} | changes)


def coded(question: str, code: str) -> str:
    """A question with its code, as it is asked."""
    return f"{question}\n\n```python\n{code}\n```"


def _unusable(given: UsageSnippet, feature: Feature) -> str:
    """Why a snippet is none by rule: where it comes from, or that it only defines a name of its own."""
    repository = re.search(r"(?:github\.com|githubusercontent\.com)/[^/]+/([^/]+)", given.url.lower())
    if repository and repository[1] in (feature.library, feature.canonical.partition(".")[0]):
        return "of the library itself"
    if re.search(r"/(?:site-packages|vendor(?:ed)?|_vendor|third[-_]party|extern(?:al)?s?)/", given.url.lower()):
        return "vendored"
    leaf = re.escape(feature.leaf)
    if re.search(rf"\b{leaf}\b", given.code) and not re.search(rf"(?<!def )(?<!class )\b{leaf}\b", given.code):
        return "defines the name itself"
    return ""


def _judged(
    work: Sequence[tuple[Entry, steps.Snippet]],
    helper: Assistant,
    step: Step[steps.Snippet, T],
    times: int,
    accept: Callable[[T], bool],
    name: str,
    writer: Writer,
) -> list[tuple[Entry, steps.Snippet]]:
    """Those that are accepted every time."""
    left = list(work)
    for trial in range(times):
        replies = helper.ask(step, [about for _, about in left], trial)
        kept = [one for one, reply in zip(left, replies, strict=True) if reply is not None and accept(reply)]
        writer.left_out[f"snippet: {name}"] += len(left) - len(kept)
        left = kept
    return left


def _cut(
    work: Sequence[tuple[Entry, steps.Snippet]], helper: Assistant, writer: Writer
) -> list[tuple[Entry, steps.Snippet]]:
    """A short piece of each file that is longer; the lines with the identifier must be in it as they were."""
    long = [n for n, (_, about) in enumerate(work) if len(about.code.splitlines()) > LONGEST]
    replies = helper.ask(steps.CUT, [work[n][1] for n in long]) if long else []
    pieces = dict(zip(long, replies, strict=True))
    found = []
    for n, (entry, about) in enumerate(work):
        if n not in pieces:
            found.append((entry, about))
            continue
        reply = pieces[n]
        lines = reply.snippet.strip("\n").splitlines() if reply is not None else []
        of_file = {line.strip() for line in about.code.splitlines()}
        used = [line for line in lines if re.search(rf"\b{re.escape(entry.feature.leaf)}\b", line)]
        if SHORTEST <= len(lines) <= LONGEST and used and all(line.strip() in of_file for line in used):
            found.append((entry, _with(about, code="\n".join(lines))))
        else:
            writer.left_out["snippet: badly cut"] += 1
    return found


def mask(code: str, feature: Feature) -> str | None:
    """The code without the feature's name, that of a parameter where `=` follows; None where it is not there (D.2)."""
    leaf = re.escape(feature.leaf)
    pattern = rf"\b{leaf}(\s*=)(?!=)" if feature.kind == PARAMETER else rf"\b{leaf}\b()"
    masked, times = re.subn(pattern, rf"{MASK}\1", code)
    return masked if times else None


def _masked(work: Sequence[tuple[Entry, steps.Snippet]], writer: Writer) -> list[tuple[Entry, steps.Snippet]]:
    found = []
    for entry, about in work:
        masked = mask(about.code, entry.feature)
        if masked is None:
            writer.left_out["snippet: nothing to mask"] += 1
        else:
            found.append((entry, _with(about, masked=masked)))
    return found


_STAND_IN = "_masked_identifier_"


def without_imports(masked: str) -> str | None:
    """Masked code without the prefixes of imported modules and without the imports that are then unused, or that name
    the masked identifier; None where it is no Python (D.2, "no-import")."""
    code = masked.replace(MASK, _STAND_IN)
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return None
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {
        (name.asname or name.name).split(".")[0]
        for node in imports
        if isinstance(node, ast.Import)
        for name in node.names
    }
    spans: list[tuple[int, int, int]] = []  # line from 0, bytes from, to
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            base: ast.expr = node.value
            while isinstance(base, ast.Attribute):
                base = base.value
            if isinstance(base, ast.Name) and base.id in modules and node.end_lineno == base.lineno:
                end = (node.end_col_offset or 0) - len(node.attr.encode())
                spans.append((base.lineno - 1, base.col_offset, end))
    lines = [line.encode() for line in code.splitlines()]
    longest: dict[tuple[int, int], int] = {}
    for line, start, end in spans:
        longest[line, start] = max(end, longest.get((line, start), 0))
    for (line, start), end in sorted(longest.items(), reverse=True):
        lines[line] = lines[line][:start] + lines[line][end:]
    dead: set[int] = set()
    places = [(node.lineno - 1, node.end_lineno or node.lineno) for node in imports]
    rest = b"\n".join(line for n, line in enumerate(lines) if not any(a <= n < b for a, b in places)).decode()
    for node, (start, end) in zip(imports, places, strict=True):
        bound = [(name.asname or name.name).split(".")[0] for name in node.names]
        hidden = any(name.name.endswith(_STAND_IN) for name in node.names)
        if hidden or not any(re.search(rf"\b{re.escape(name)}\b", rest) for name in bound):
            dead.update(range(start, end))
    bare = b"\n".join(line for n, line in enumerate(lines) if n not in dead).decode()
    return bare.replace(_STAND_IN, MASK).strip("\n")


def _golden(items: Sequence[Item], writer: Writer, trials: Trials) -> list[Item]:
    """Those that the base model never gets right, and the solver always does, where these are named."""
    plain = [item for item in items if item.id.startswith("comp_rel_")]
    main = [item for item in plain if item.slices["family"] == "comp_rel"]
    kept = {item.id for item in main}
    for who, wanted, name in (
        (trials.base, 0, "known to the base model"),
        (trials.solver, trials.golden, "not solved"),
    ):
        if who is None:
            continue
        asked = [item for item in main if item.id in kept]
        right = Counter[str]()
        for trial in range(trials.golden):
            replies = who.ask(steps.ATTEMPT, [steps.Trial(question=item.text) for item in asked], trial)
            for item, reply in zip(asked, replies, strict=True):
                right[item.id] += reply is not None and is_name(reply, item.answers[0])
        dropped = [item.id for item in asked if right[item.id] != wanted]
        writer.left_out[name] += len(dropped)
        kept -= set(dropped)
    return [item for item in items if f"comp_rel_{_name(item)}" in kept]


def _name(item: Item) -> str:
    return item.id.removeprefix("comp_rel_no_import_").removeprefix("comp_rel_")


def is_name(reply: str, leaf: str) -> bool:
    """Whether a reply is an identifier that ends in `leaf` (D.2: equal last components)."""
    written = re.sub(r"\(.*\)\Z|=\Z", "", reply.strip().strip("`'\" ."), flags=re.DOTALL).strip()
    return written.rpartition(".")[2] == leaf


# ---------------------------------------------------------------- training pairs


def pairs_by_rule(entries: Sequence[Entry]) -> list[Pair]:
    """Direct recall of each feature, and what the notes say of it without its name."""
    found: list[Pair] = []
    for entry in entries:
        feature, library = entry.feature, entry.feature.library
        name = feature.canonical
        if feature.kind == PARAMETER:
            owners = ", ".join(feature.parents)
            name = f"parameter {feature.leaf} of {feature.parents[0]}"
            found.append(
                Pair(
                    question=f"To what did {library} {feature.version} add the parameter {feature.leaf}?", answer=owners
                )
            )
        else:
            found += [
                Pair(question=f"Is there a {feature.kind} {name} in {library}?", answer="Yes"),
                Pair(question=f"What is the import path of {feature.leaf} in {library}?", answer=name),
                Pair(question=f"Which new {feature.kind} is at {name} in {library}?", answer=feature.leaf),
            ]
        found.append(Pair(question=f"Which version of {library} added the {name}?", answer=feature.version))
        told = " ".join(feature.block.phrase.plain.replace("`", "").split())
        hidden = re.sub(rf"[\w.]*\b{re.escape(feature.leaf)}\b", "it", told)
        if hidden != told and not leaks.tells(hidden, [feature.leaf]) and feature.kind != PARAMETER:
            found.append(
                Pair(
                    question=f"What {feature.kind} do the notes of {library} {feature.version} announce so: {hidden}",
                    answer=name,
                )
            )
    return found


def pairs_asked(entries: Sequence[Entry], helper: Assistant, count: int) -> list[Pair]:
    """Recall, reference resolution and usage, as the assistant writes them from a feature's document."""
    given = [
        steps.PairsOf(
            library=entry.feature.library,
            path=entry.feature.canonical,
            kind=entry.feature.kind,
            document=entry.body,
            count=count,
        )
        for entry in entries
    ]
    return [
        Pair(question=pair.question.strip(), answer=pair.answer.strip())
        for reply in helper.ask(steps.PAIRS, given)
        for pair in reply or ()
        if pair.question.strip() and pair.answer.strip()
    ]


def distinct_pairs(pairs: Sequence[Pair], items: Sequence[Item]) -> tuple[list[Pair], Mapping[str, int]]:
    """Pairs that are not asked in the evaluation, each question once.

    A question with several answers would teach none, so all of it goes.
    """
    answers: dict[str, set[str]] = {}
    for pair in pairs:
        answers.setdefault(leaks.key(pair.question), set()).add(pair.answer)
    asked = {leaks.key(item.text) for item in items}
    kept: dict[str, Pair] = {}
    left_out: Counter[str] = Counter()
    for pair in pairs:
        key = leaks.key(pair.question)
        if key in asked:
            left_out["pairs that are evaluation questions"] += 1
        elif len(answers[key]) > 1:
            left_out["pairs with several answers"] += 1
        elif key in kept:
            left_out["pairs given twice"] += 1
        else:
            kept[key] = pair
    return list(kept.values()), left_out
