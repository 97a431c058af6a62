"""What the scores of a suite rest on: its cells and those beside them, their datasets, and what judges said of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from upkeep import inputs
from upkeep.card_numbers import Read, files_read_once, numbers, places
from upkeep.catalog import Catalog
from upkeep.contract import DatasetCard, Manifest
from upkeep.errors import UpkeepError
from upkeep.fields import plain
from upkeep.files import digest
from upkeep.grading import counted
from upkeep.grading.graded import READING
from upkeep.grading.judged import Judged, has_say, judged, questions_of
from upkeep.grading.key import GRADED_ON
from upkeep.grading.metric_families import code_of, family_of, second_of
from upkeep.grading.metrics import Family, Second
from upkeep.grading.score import Identity, identify, printed_as
from upkeep.integrity import Missing
from upkeep.jobs import Cell
from upkeep.judges import called, each_of, judges_by_cell
from upkeep.layout import Layout
from upkeep.published import Standing, standing
from upkeep.sources import meaning, tree


@dataclass(frozen=True)
class Basis:
    """What the scores of a suite rest on, as it is now."""

    catalog: Catalog
    suite: str

    @cached_property
    def cells(self) -> dict[Cell, Standing]:
        """Every cell of the suite, in its order."""
        with self.catalog.hashes.at_once():
            return {cell: standing(self.catalog, cell) for cell in self.catalog.cells(self.catalog.suite(self.suite))}

    @cached_property
    def beside(self) -> dict[Cell, Standing]:
        """Complete cells that are not of the suite, on datasets of its papers: tables have them too. They are verified
        as the suite's are, but may have been asked by another seed, and another number of times."""
        found: dict[Cell, Standing] = {}
        with self.catalog.hashes.at_once():
            for dataset in self._of_papers:
                for cell in Layout(self.catalog.results).cells_of(dataset):
                    if cell not in self.cells and self._is_one(cell):
                        one = standing(self.catalog, cell, as_asked=True)
                        if one.manifest is not None:
                            found[cell] = one
        return found

    @cached_property
    def all(self) -> dict[Cell, Standing]:
        """The suite's cells, then those beside them."""
        return self.cells | self.beside

    def _is_one(self, cell: Cell) -> bool:
        """Whether there is such a cell: what is published may be older than the cards."""
        try:
            self.catalog.check(cell)
        except UpkeepError:
            return False
        return True

    @cached_property
    def _of_papers(self) -> list[str]:
        """Datasets that the suite's papers ran or print numbers of, whichever suite has them; of small ones that stand
        for these, those that the suite has. Of a family whose card cannot be read, none."""
        own, papers, found = {cell.dataset for cell in self.cells}, self.catalog.suite(self.suite).papers, []
        for family in self.catalog.families:
            with contextlib.suppress(UpkeepError):
                for name, spec in self.catalog.family(family).items():
                    theirs = name in own | self._named or spec.provenance in ("release", "rebuild")
                    if theirs and (spec.paper in papers or printed_as(self.catalog, name) in self._named):
                        found.append(name)
        return found

    @cached_property
    def datasets(self) -> dict[str, DatasetCard | UpkeepError]:
        """Every dataset of the suite; of one that is not there or damaged, the reason. Then those that its papers ran
        and that are there, whole."""
        found: dict[str, DatasetCard | UpkeepError] = {}
        for name in dict.fromkeys(cell.dataset for cell in self.cells):
            try:
                found[name] = inputs.dataset(self.catalog, name)
            except UpkeepError as error:
                found[name] = error
        for name in self._of_papers:
            if name not in found:
                with contextlib.suppress(UpkeepError):
                    found[name] = inputs.dataset(self.catalog, name)
        return found

    @cached_property
    def judges(self) -> dict[Cell, list[str]]:
        """The models that judge each cell of the suite; of one beside these, those that have judged it."""
        beside = {
            cell: list(filter(self._judges, Layout(self.catalog.results).judges_of(cell))) for cell in self.beside
        }
        return judges_by_cell(self.catalog, self.catalog.suite(self.suite)) | beside

    def _judges(self, judge: str) -> bool:
        """Whether what a judge has said counts: there is such a model, and the user has no other one judge."""
        with contextlib.suppress(UpkeepError):
            return self.catalog.config.judge in (None, judge) and self.catalog.model(judge).role == "generator"
        return False

    @cached_property
    def called(self) -> dict[str, str]:
        """What tables call each judge."""
        return called(self.catalog, each_of(self.judges))

    @cached_property
    def judged(self) -> dict[Cell, dict[str, Judged | UpkeepError]]:
        """What each judge that has a say said of each cell that counts, or, of one of the suite's, why nothing."""
        found: dict[Cell, dict[str, Judged | UpkeepError]] = {}
        for cell, one in self.all.items():
            found[cell] = {}
            for judge in self.judges[cell] if one.manifest is not None else ():
                try:
                    if one.manifest is not None and has_say(self.catalog, cell, judge):
                        found[cell][judge] = judged(self.catalog, cell, judge, one.manifest)
                except UpkeepError as error:
                    if cell in self.cells:
                        found[cell][judge] = error
        return found

    @property
    def unjudged(self) -> dict[Cell, dict[str, str]]:
        """What judges have not judged: cell -> judge, as tables call it -> why."""
        found: dict[Cell, dict[str, str]] = {}
        for cell, said in self.judged.items():
            errors = {judge: one for judge, one in said.items() if isinstance(one, UpkeepError)}
            if errors:
                found[cell] = {self.called[judge]: error.problem for judge, error in errors.items()}
        return found

    @property
    def refused(self) -> dict[str, UpkeepError]:
        """What is there and does not count, by name."""
        cells = {str(cell): found.problem for cell, found in self.cells.items()}
        datasets = {name: found for name, found in self.datasets.items() if not isinstance(found, Missing)}
        return {name: found for name, found in (datasets | cells).items() if isinstance(found, UpkeepError)}

    @cached_property
    def printed(self) -> Read:
        """Gives a file of published numbers, each read once for all datasets."""
        return files_read_once()

    @cached_property
    def _named(self) -> set[str]:
        """The names of datasets that the suite's papers print numbers of."""
        return counted.printed_names(self.catalog, self.catalog.suite(self.suite).papers, self.printed)

    @cached_property
    def joined(self) -> list[str]:
        """Datasets that the suite's papers print the sums of, by their names joined by `+`."""
        return counted.joined(self.catalog, self.catalog.suite(self.suite).papers, self.printed)

    def made_of(self) -> dict[str, str]:
        """`ScoresRecord.made_of`."""
        parts: dict[str, Any] = {name: str(error) for name, error in self.refused.items()}
        for name, card in self.datasets.items():
            if isinstance(card, DatasetCard):
                graded_on = [card.content[part] for part in (*GRADED_ON, "slices", "documents")]
                parts[name] = [
                    graded_on,
                    card.provenance,
                    plain(self.catalog.dataset(name)),
                    code_of(self.catalog, name),
                    self._judgements(name),
                    numbers(card),
                    self._printed(name),
                ]
        for cell, found in self.all.items():
            if found.manifest:
                said = {name: getattr(one, "seal", "") for name, one in self.judged[cell].items()}
                parts[str(cell)] = [answered(found.manifest), plain(self.identify(cell)), *([said] if said else [])]
        parts["sums"] = self.joined
        parts["code"] = tree(self.catalog, "src/upkeep/grading", without=[Path(name).name for name in READING])
        parts["reading"] = meaning(self.catalog, READING)
        return {name: digest(part) for name, part in sorted(parts.items())}

    def identify(self, cell: Cell) -> Identity:
        """What tables call a cell."""
        card = self.datasets[cell.dataset]
        return identify(self.catalog, cell, card if isinstance(card, DatasetCard) else None)

    def _judgements(self, dataset: str) -> object:
        """How a dataset's responses are judged; where that cannot be read, why."""
        try:
            return questions_of(self.catalog, dataset)
        except UpkeepError as error:
            return str(error)

    def _printed(self, dataset: str) -> object:
        """Where its paper prints a dataset's numbers; where they cannot be read, why."""
        try:
            return places(self.catalog.dataset(dataset), self.catalog.root / "papers", self.printed)
        except UpkeepError as error:
            return str(error)

    def seconds(self, family: Family, cell: Cell) -> dict[Second, tuple[Cell, str]]:
        """The cells that a cell's metrics set beside it, each with why it cannot be; empty where it can."""
        named = {second: other for second, _ in family.of_two if (other := second_of(second, cell)) is not None}
        return {second: (other, self._unfit(cell, other)) for second, other in named.items()}

    def wanted(self, cells: Iterable[str]) -> dict[Cell, Cell]:
        """Of these cells, those that lack another beside them which the suite has not; and that one."""
        found = {}
        for cell in map(Cell.parse, cells):
            for other, unfit in self.seconds(family_of(self.catalog, cell.dataset), cell).values():
                if unfit and other not in self.cells:
                    found[cell] = other
        return found

    def _unfit(self, cell: Cell, other: Cell) -> str:
        own, found = self.all[cell].manifest, self.all.get(other)
        if found is None:
            return "not in this suite"
        if found.manifest is None:
            return "not run" if found.problem is None else found.problem.problem
        if own is not None and own.trials != found.manifest.trials:
            return f"asked {found.manifest.trials} times, and not {own.trials}"
        return ""


def answered(manifest: Manifest) -> list[object]:
    """What scores read of a cell: its predictions' file, and which probes were asked how often.

    A cell that ran again to the same answers keeps its scores, whatever it was that made it run.
    """
    predictions = manifest.files.get("predictions.jsonl")
    return [predictions and predictions.sha256, manifest.trials, manifest.cutoff]
