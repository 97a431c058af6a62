"""Which baselines of a dataset score above chance, and what is told of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from upkeep.contract import Baseline, Baselines, Implied, Kind
from upkeep.errors import unknown

MARGIN = 10.0
"""Points above chance from which on a baseline is told."""
FEWEST, RARE = 10, 0.001
"""A slice is told that has so many probes, and where guessing does as well no more often than this: of many small ones
some are above MARGIN by luck."""


@dataclass(frozen=True, slots=True)
class Excess:
    """A baseline that scores above chance on a kind of question."""

    kind: Kind
    baseline: Baseline
    reason: str
    """Why the paper's own construction implies it, as the dataset's card says; empty where it does not."""

    def told(self) -> str:
        """As a sentence."""
        kind, value = self.kind, self.kind.found[self.baseline]
        head = f"{words(self.baseline)} scores {value:.1f} on {asked(kind)}"
        head += f", chance {kind.chance:.1f} (n = {kind.probes:,})"
        if self.reason:
            return f"{head}; by the paper's construction: {self.reason}"
        return f"{head}: {_MEANS[self.baseline]}, so a score near that shows no knowledge"


_MEANS: Mapping[Baseline, str] = {
    "most_common": "who always gives one answer is right so often",
    "longest": "who takes the longest option is right so often",
    "last_mentioned": "who takes what the documents mention last, whatever they say of it, is right so often",
    "option_overlap": "who takes the option that shares most with the others is right so often",
}
ORDER = tuple(_MEANS)
"""The baselines, as tables have them."""


def words(baseline: str) -> str:
    """Its name for readers."""
    return baseline.replace("_", " ")


def asked(kind: Kind) -> str:
    """A kind of question for readers."""
    return kind.form + (f", {kind.slice} {kind.value}" if kind.slice else "")


def excesses(found: Baselines, implied: Sequence[Implied], where: object) -> list[Excess]:
    """The baselines that score more than MARGIN points above chance, kind by kind.

    A slice is told where its form as a whole is not; or where the card gives a reason for it.

    Args:
        implied: what the dataset's card says of them.
        where: the card, for messages.

    Raises:
        UpkeepError: the card gives a reason for a slice that the dataset does not have.
    """
    names = sorted({"form", *(kind.slice for kind in found.kinds if kind.slice)})
    reasons = {}
    for one in implied:
        ((name, value),) = one.where.items()
        if name not in names:
            raise unknown(
                "slice", name, names, f"`implied` in {where} names a slice that {found.dataset} does not have"
            )
        reasons[one.baseline, name, value] = one.reason
    told, whole = [], set[tuple[str, str]]()
    for kind in found.kinds:
        for baseline in kind.found:
            name, value = (kind.slice, kind.value) if kind.slice else ("form", kind.form)
            reason = reasons.get((baseline, name, value), "")
            if not exceeds(kind, baseline) or ((kind.form, baseline) in whole and not reason):
                continue
            if not kind.slice:
                whole.add((kind.form, baseline))
            told.append(Excess(kind, baseline, reason))
    return told


def exceeds(kind: Kind, baseline: Baseline) -> bool:
    """Whether a baseline scores above chance by more than MARGIN; in a slice by more than luck would, too."""
    share, chance = kind.found[baseline] / 100, kind.chance / 100
    if 100 * (share - chance) <= MARGIN:
        return False
    return not kind.slice or (kind.probes >= FEWEST and by_luck(share, chance, kind.probes) < RARE)


def by_luck(share: float, chance: float, n: int) -> float:
    """A bound on the probability that guessing gets at least this share of `n` right, which is above chance
    (Hoeffding 1963, Theorem 1)."""
    if chance == 0:
        return 0.0
    wrong = (1 - share) * math.log((1 - share) / (1 - chance)) if share < 1 else 0.0
    return math.exp(-n * (share * math.log(share / chance) + wrong))
