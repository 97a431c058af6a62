"""CompRel: code of users in which a feature is masked, and a question about it (ImprintBench, D.2)."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from upkeep.building.assembling import Item
from upkeep.building.assistant import Assistant, Step

from . import steps
from .features import PARAMETER, Feature
from .questions import Entry, Writer
from .sources import UsageSnippet
from .steps import MASK

T = TypeVar("T")

SHORTEST, LONGEST = 5, 30
"""Lines of a snippet that is cut out of a file."""


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
