"""Cells of which a sample of the questions is asked alone: to try something before all of it is paid for.

A sample of N questions is the same for every cell of a dataset and a seed, and part of every larger one; a question is
asked at all of its positions, and documents arrive as ever. What comes of it lies apart (`layout.SAMPLES`), in no
score, table or report of the whole. Replies are on record, so a cell that is run whole afterwards asks only the rest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from upkeep.catalog import Catalog
from upkeep.contract import Config, Manifest, Sample, Suite
from upkeep.errors import UpkeepError, nearest
from upkeep.jobs import Cell
from upkeep.layout import Layout

Named = tuple[str, str]
"""A probe's id and its question's."""


def of_config(config: Config) -> Sample | None:
    """The sample that the configuration asks for; None for all of every dataset."""
    sample = Sample(limit=config.limit, probe=config.probe)
    return None if sample == Sample() else sample


def told(sample: Sample) -> str:
    """A sample in words."""
    if sample.probe is not None:
        return f"a sample: {sample.probe} alone"
    return f"a sample: {sample.limit:,} {'question' if sample.limit == 1 else 'questions'} of each dataset"


def asked_in(manifest: Manifest, probes: Sequence[Named]) -> set[str] | None:
    """As `asked`, of a cell that was run; None where that was asked all."""
    if manifest.sample is None:
        return None
    return asked(manifest.sample, manifest.cell.partition("/")[0], manifest.seed, probes)


def asked(sample: Sample, dataset: str, seed: int, probes: Iterable[Named]) -> set[str]:
    """The ids of the probes that are asked.

    Args:
        probes: all of the dataset's.

    Raises:
        UpkeepError: no probe and no question is called so.
    """
    probes = list(probes)
    if sample.probe is not None:
        found = {probe for probe, question in probes if sample.probe in (probe, question)}
        if not found:
            raise no_probe(sample.probe, dataset, (name for one in probes for name in one))
        return found
    questions = sorted(dict.fromkeys(question for _, question in probes), key=lambda one: _drawn(dataset, seed, one))
    chosen = {*questions[: sample.limit]}
    return {probe for probe, question in probes if question in chosen}


def _drawn(dataset: str, seed: int, question: str) -> bytes:
    """Where a question stands in the order in which a seed draws them."""
    return hashlib.blake2b(f"{seed}\n{dataset}\n{question}".encode(), digest_size=16).digest()


def no_probe(name: str, where: str, known: Iterable[str]) -> UpkeepError:
    close = nearest(name, dict.fromkeys(known))
    return UpkeepError(
        f"no probe or question {name!r}",
        where=where,
        expected="the id of a probe, or of a question for all its probes",
        found="none of this name",
        remedy=f"did you mean {' or '.join(close)}?" if close else "`./upkeep show CELL` lists those of a cell",
    )


def cells(catalog: Catalog, suite: Suite) -> list[Cell]:
    """The cells of a suite; where one probe alone is asked, those on datasets that have it.

    Raises:
        UpkeepError: as `Catalog.cells`; or no dataset of the suite that is built has the probe.
    """
    found = catalog.cells(suite)
    if (probe := catalog.config.probe) is None:
        return found
    ids = {name: _ids(catalog, name) for name in dict.fromkeys(cell.dataset for cell in found)}
    if having := [cell for cell in found if probe in ids[cell.dataset]]:
        return having
    raise no_probe(probe, "the suite's built datasets", (one for names in ids.values() for one in names))


def _ids(catalog: Catalog, dataset: str) -> set[str]:
    """Ids of a dataset's probes and questions; none while it is not built."""
    import polars as pl

    path = Layout(catalog.results).dataset(dataset) / "probes.parquet"
    if not path.is_file():
        return set()
    frame = pl.read_parquet(path, columns=["probe_id", "question_id"])
    return {*frame["probe_id"], *frame["question_id"]}
