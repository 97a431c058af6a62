"""The rounds that a container is sent, by strand."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterator

from upkeep.contract import Round


class Strands:
    """Of each strand the next round, which is waited for.

    All work waits with it, for what is worked on together is to depend on no time. So it is asked for only when the
    host needs no further answer to send it: first of all strands, then of those of which a round has ended.

    Args:
        rounds: in the order in which they come; of a strand there may be several before another one's first.
    """

    def __init__(self, rounds: Iterator[Round]) -> None:
        self._rounds = rounds
        self._ahead: dict[int, deque[Round]] = defaultdict(deque)

    def first(self) -> list[Round]:
        """The first rounds of all; none where nothing is sent."""
        if (round := next(self._rounds, None)) is None:
            return []
        self._ahead[round.strand].append(round)
        return self.next(range(round.strands))

    def next(self, strands: Collection[int]) -> list[Round]:
        """A round of each of these, but for those that end with the input, in the order of their numbers."""
        while not all(self._ahead[strand] for strand in strands):
            if (round := next(self._rounds, None)) is None:
                break
            self._ahead[round.strand].append(round)
        return [self._ahead[strand].popleft() for strand in sorted(strands) if self._ahead[strand]]
