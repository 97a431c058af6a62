"""Questions about features: whether they exist (DirAcq), what a namespace has (ImpRel), which is described (RefRes).

ImprintBench, D.2. The other families: `invented` (BoundAbs), `snippets` (CompRel), `described` and
`compared` (by rule alone).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from upkeep.building import leaks
from upkeep.building.assembling import Item
from upkeep.building.assistant import Assistant

from . import steps
from .features import PARAMETER, PLURALS, Feature

LABELS = ("Yes", "No")


@dataclass(frozen=True)
class Entry:
    """A feature with its place among the documents."""

    feature: Feature
    stream: str
    documents: tuple[str, ...]
    """Ids of the documents that hold it, in order."""
    texts: tuple[str, ...]
    about: steps.About
    date: str | None = None
    """Of its release, YYYY-MM-DD."""

    @property
    def body(self) -> str:
        return "\n".join(self.texts)


@dataclass
class Writer:
    """Makes items, and counts what it leaves out."""

    left_out: Counter[str]

    def item(
        self,
        family: str,
        name: str,
        text: str,
        answers: Sequence[str],
        about: Sequence[Entry],
        labels: Sequence[str] = LABELS,
    ) -> Item | None:
        """An item about features of one library; None where the question holds its answer.

        Args:
            labels: that are to choose from, where the family is not of OPEN answers.
        """
        first = about[0]
        if family in OPEN and leaks.tells(text, answers):
            self.left_out["answer in question"] += 1
            return None
        gold = family != "bound_abs"
        return Item(
            id=f"{family}_{name}",
            stream=first.stream,
            text=text,
            answers=answers,
            form="short" if family in OPEN else "label",
            options=None if family in OPEN else labels,
            slices={"family": family, "library": first.feature.library, "kind": first.feature.kind},
            evidence=list(dict.fromkeys(d for entry in about for d in entry.documents)) if gold else (),
            context=list(dict.fromkeys(t for entry in about for t in entry.texts)) if gold else (),
        )


NOTES = "ref_res_notes"
OPEN = frozenset({"ref_res", NOTES, "imp_rel", "imp_rel_unmerged", "comp_rel", "comp_rel_no_import"})
"""Families with open answers; the others choose one of a few labels, mostly Yes or No."""


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
