"""A cell: its container is fed round by round, and what it answers is taken over line by line.

What a container writes is taken over as soon as it is checked, into a file of the host's own, which no container ever
has. So whenever either of the two is killed, what the host has accepted is good in itself. The next attempt is fed all
documents again, and asked for what is missing alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from upkeep.catalog import Catalog
from upkeep.contract import Prediction
from upkeep.errors import UpkeepError
from upkeep.execution import publish
from upkeep.execution.collected import Collected
from upkeep.execution.job import Runtime, SupervisedJob
from upkeep.execution.order import order
from upkeep.execution.rounds import BuiltDataset, Task, stranded, tasks
from upkeep.execution.share import SharedEngines
from upkeep.execution.steps import Steps
from upkeep.execution.trained_on import cutoff, members, members_of, require_apart, with_pairs
from upkeep.execution.watch import Failed, Limits
from upkeep.gateway.record import Asking
from upkeep.inputs import command_of
from upkeep.jobs import Cell
from upkeep.method_cards import sees_of
from upkeep.samples import asked, of_config, told

Portion = tuple[str, int]
"""What a container is asked: the questions for a member of a set of models, in a pass."""
TOLD = 20
"""Answers that differ from those before, of a cell, which are named."""


class CellJob(SupervisedJob):
    """One cell."""

    kind = "cells"
    job: Cell

    def __init__(
        self,
        catalog: Catalog,
        job: Cell,
        shared: SharedEngines | None = None,
        ask: Asking = "unknown",
        sweep: Sequence[Cell] = (),
    ) -> None:
        """Args: `sweep`: cells that can be asked side by side, this one among them (`upkeep.sweeps`)."""
        catalog.check(job)
        super().__init__(catalog, job, shared, ask)
        self.sweep, self.beside, self.waited = sweep, False, 0.0

    @property
    def traces(self) -> list[Path]:
        return [self.work / "predictions.jsonl"]

    def _produce(self, force: bool, runtime: Runtime, limits: Limits, retries: int) -> Steps:
        self.corpus, self.cutoff = with_pairs(self.catalog, self.job, self._asked())
        self.members: list[str] = []
        if taught := [(one, members(self.catalog, one)) for one in self.catalog.trainings_of(self.job)]:
            require_apart(self.catalog, self.job, self.corpus, taught)
            known = cutoff(self.catalog, self.job, self.corpus, taught)
            self.cutoff |= {stream: max(last, self.cutoff.get(stream, 0)) for stream, last in known.items()}
        self.corpus = self.corpus.after(self.cutoff)
        self._require_probes()
        if taught:
            self.members = members_of(self.catalog, self.job, self.corpus)
        return (yield from super()._produce(force, runtime, limits, retries))

    def _asked(self) -> BuiltDataset:
        """The dataset with the probes that this cell is asked."""
        whole, sample = BuiltDataset.read(self.dataset), of_config(self.catalog.config)
        if sample is None:
            return whole
        ids = asked(sample, self.job.dataset, self.description.seed, ((p.id, p.question_id) for p in whole.probes))
        return replace(whole, probes=[probe for probe in whole.probes if probe.id in ids])

    def _require_probes(self) -> None:
        """Refuse a sample of which nothing is left to be asked.

        Raises:
            UpkeepError: all of it is asked before what the model was trained on ends.
        """
        if not self.corpus.probes and (sample := of_config(self.catalog.config)) is not None:
            raise UpkeepError(
                f"{told(sample)}: the model was trained on all that was known then",
                where=self.job,
                expected="a probe that is asked after that",
                remedy="take a larger sample, or another probe",
            )

    def _made(self, retries: int) -> Steps:
        corpus, trials = self.corpus, self.description.trials
        answers, gold = corpus.answers(trials), corpus.gold(sees_of(self.card, self.job.variant))
        path = self.work / "predictions.jsonl"
        with self._engines() as shared, Collected(path, Prediction, answers, self.state.key) as results:
            portions, strands = self._portions()
            rounds = stranded(corpus, strands, min_streams=self.card.streams)
            for member in dict.fromkeys(member for member, _ in portions):
                with self._models(shared, member):
                    for portion in sorted({one for one in portions if one[0] == member}):
                        mine = _Mine(results.done, portions, portion, trials)
                        again = self._again(portions, portion)
                        feed = partial(tasks, corpus, rounds, trials, mine, gold, again)
                        for number in self._complete(results, mine, feed, retries):
                            yield portion, number
        measured = self._compared(path) if self.ask == "everything" else {}
        if (passes := len({number for _, number in portions})) > 1:
            measured["passes"] = float(passes)
        if self.beside:
            measured["waited_s"] = self.waited
        if len(rounds) > 1:
            measured["strands"] = float(len(rounds))
        draft = self._draft(cutoff=self.cutoff, sample=of_config(self.catalog.config), measured=measured)
        self.report.end("publishing")
        return publish.publish_cell(path, answers, draft, self.work / "staging", self.target, self._disk)

    def _portions(self) -> tuple[list[Portion], int]:
        """Of each probe, what it is asked with: the member of a set of models, and the pass; and the strands."""
        numbers, strands = [0] * len(self.corpus.probes), 1
        if self.ask != "nothing":
            # One pass where an engine has little to do, for a cell that was published is on record; and where nothing
            # on record counts, so that every pass would ask anew what arriving documents ask.
            new = self.ask == "unknown" and not (self.target / "manifest.json").exists()
            sweep = self.sweep if new else ()
            found = order(self.catalog, self.job, self.corpus, self.description.trials, sweep)
            strands, self.beside = found.strands, found.sweep
            if new:
                numbers = [*found.numbers]
        return list(zip(self.members or [""] * len(numbers), numbers, strict=True)), strands

    def _again(self, portions: Sequence[Portion], portion: Portion) -> Container[int]:
        """Places of the probes that a container is asked though they are done: what the method keeps of a question is
        made of all that it was asked."""
        if not self.card.per_question:
            return ()
        return {place for place, one in enumerate(portions) if one == portion}

    def _accepted(self) -> int:
        """Whole lines that an earlier supervisor had accepted."""
        path = self.work / "predictions.jsonl"
        if not path.is_file():
            return 0
        with path.open("rb") as file:
            return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))

    def _complete(
        self,
        collected: Collected[Prediction],
        done: Sequence[int],
        feed: Callable[[], list[Iterator[Task]]],
        retries: int,
    ) -> Iterator[int]:
        """Make attempts until every record is there. Gives the number of each round before it is sent, where other
        cells are asked side by side with this one.

        Args:
            done: of each record, whether it is there or not wanted now.
        """
        for attempt in range(retries + 1):
            if all(done):
                return
            before = collected.count
            try:
                with self._started(collected) as watch:
                    for number in watch.feed(feed()):
                        if self.beside:
                            self.report.end("starting", "waits for those that are asked side by side with it")
                            begun = time.monotonic()
                            yield number
                            waited = time.monotonic() - begun
                            self.waited += waited
                            self.deadline += waited
            except Failed as failed:
                lost = any(way.lost for way in self.ways.values())
                refused = any(way.refused for way in self.ways.values())
                if attempt < retries and not refused and (collected.count > before or lost):
                    self.say(collected, f"continuing after: {failed}")
                    continue
                raise UpkeepError(
                    f"{self.job}: ended early, with {collected.count:,} of {collected.scope.size:,} records done",
                    where=self.log,
                    expected="all of them",
                    found=failed,
                    remedy=f"see the log; `{command_of(self.job)}` continues",
                    kind="engine" if lost else failed.kind,
                ) from None

    def _compared(self, source: Path) -> dict[str, float]:
        """How many answers differ from those that were published before, where the model was asked everything again."""
        try:
            before = answers_of(self.target / source.name)
        except FileNotFoundError:
            return {}
        now = answers_of(source)
        other = [key for key, answer in now.items() if key in before and before[key] != answer]
        both = len(before.keys() & now.keys())
        print(f"{self.job}: {len(other)} of {both} answers differ from those before", flush=True)
        for probe, trial in other[:TOLD]:
            print(f"  {probe}, trial {trial}", flush=True)
        return {"compared_answers": float(both), "other_answers": float(len(other))}


class _Mine(Sequence[int]):
    """Which records of a portion need not be asked for: those that are there, and those of other portions.

    Args:
        done: grows while the cell is answered.
        portions: of each probe.
    """

    def __init__(self, done: Sequence[int], portions: Sequence[Portion], portion: Portion, trials: int) -> None:
        self._done = done
        self._other = [other != portion for other in portions for _ in range(trials)]

    def __len__(self) -> int:
        return len(self._other)

    def __getitem__(self, key):  # type: ignore[no-untyped-def]
        return self._other[key] or self._done[key]


def answers_of(path: Path) -> dict[tuple[str, int], tuple[str | None, str | None]]:
    """Response and reasoning of each prediction in a file, by probe and trial.

    Raises:
        FileNotFoundError: there is no such file.
        msgspec.DecodeError: a line is no prediction.
    """
    lines = map(msgspec.json.Decoder(Prediction).decode, path.read_bytes().splitlines())
    return {(p.probe_id, p.trial): (p.response, p.reasoning) for p in lines}
