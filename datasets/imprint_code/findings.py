"""The features of all notes of a library, in the order of its releases, each once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from . import patterns
from .change import Change
from .confirmed import ConfirmedReader, renamed
from .features import PARAMETER, Feature
from .notes import MARK, Block, Phrase, phrases
from .paths import Names
from .reader import Reader

# ---------------------------------------------------------------- sections

_SHORT = 6
"""Words of a line that stands for a heading, at most."""


def _heading(title: Phrase) -> str:
    return " ".join(re.findall(r"[\w'-]+", title.marked.lower()))


def is_new_part(block: Block) -> bool:
    """Whether headings lead to the part of the notes that tells of new features.

    A short line with a colon before a list is as good as a heading, a label before an entry better.
    """
    entry = (block.leads or (block.phrase,))[0]
    if block.bullet and (label := patterns.LABEL.match(entry.marked)):
        return label["label"].lower() in patterns.NEW_LABELS
    inside = False
    heads = [lead for lead in block.leads[:1] if lead.marked.endswith(":") and lead.marked.count(" ") < _SHORT]
    for title in (*block.titles, *heads):
        heading = _heading(title)
        plain = not re.search(MARK, title.marked)
        if plain and patterns.OTHER_PART.search(heading):
            return False
        inside = inside or (plain and bool(patterns.NEW_PART.search(heading)))
    return inside


def is_other_part(block: Block) -> bool:
    """Whether a heading, or the label of an entry, says that a block tells of something else than what is new."""
    entry = (block.leads or (block.phrase,))[0]
    if block.bullet and (label := patterns.LABEL.match(entry.marked)):
        return label["label"].lower() not in patterns.NEW_LABELS
    heads = [lead for lead in block.leads[:1] if lead.marked.endswith(":") and lead.marked.count(" ") < _SHORT]
    headings = [_heading(title) for title in (*block.titles, *heads)]
    return any(patterns.OTHER_PART.search(one) or patterns.NO_NEWS_PART.search(one) for one in headings)


def is_plain_part(block: Block) -> bool:
    """Whether a block stands below no heading, or below Changes: where a release has no part for what is new, all of
    its notes are read."""
    return all(_heading(title) == "changes" for title in block.titles)


def with_leads(blocks: Sequence[Block]) -> Iterator[Block]:
    """Blocks, and before those of a list the bullets that it stands in."""
    said = {block.phrase for block in blocks}
    for block in blocks:
        for place, lead in enumerate(block.leads):
            if lead not in said:
                said.add(lead)
                yield Block(block.titles, block.leads[:place], lead, bullet=True, pulls=block.pulls)
        yield block


# ---------------------------------------------------------------- reading


@dataclass
class Findings:
    """The features of all notes, and what was left out and why."""

    features: list[Feature] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    candidates: int = 0
    _taken: set[str] = field(default_factory=set)
    _named: set[str] = field(default_factory=set)

    def read(
        self, library: str, version: str, blocks: Sequence[Block], names: Names, change: Change | None = None
    ) -> None:
        """Read one release's notes; those of a library are read in the order of its releases.

        Args:
            change: the sources of the release and of the one before; without them the notes alone are believed.
        """
        plain = not any(map(is_new_part, blocks))
        old_names = renamed(blocks) if change is not None else set()
        for block in blocks if change is None else with_leads(blocks):
            new = is_new_part(block) or (plain and is_plain_part(block))
            if new or (change is not None and not is_other_part(block)):
                self.candidates += 1
                features = list(Reader(library, version, block, names, self.left_out).features())
                if change is not None:
                    reader = ConfirmedReader(library, version, block, change, features, self.left_out, old_names)
                    features = reader.features()
                for feature in features:
                    self._take(feature, change)
        for phrase in phrases(blocks):
            self._named.update(full for token in phrase.tokens if (full := names.full(token.text)) is not None)

    def _take(self, feature: Feature, change: Change | None) -> None:
        key = f"{feature.kind == PARAMETER} {feature.canonical}"
        if key in self._taken:
            self.left_out["announced before"] += 1
        elif change is None and feature.kind != PARAMETER and feature.canonical in self._named:
            self.left_out["named in earlier notes"] += 1
        else:
            self._taken.add(key)
            self.features.append(feature)
