"""The page of a review, which can be handed in: Markdown, which any program shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from upkeep.catalog import Catalog
from upkeep.files import write_atomically
from upkeep.layout import Layout
from upkeep.machine.checkout import told, version
from upkeep.operations.doctor.examination import Report
from upkeep.operations.review.comparing import Difference, Review
from upkeep.operations.review.release import Release
from upkeep.text import duration, one_line

FREE = (
    "Of a cell whose answers may differ, a number must lie within the recorded 95% interval; one that was recorded "
    "without an interval must be there, whatever it is. Of a model that the run trained, which is another "
    "one on another kind of processor, the recorded and the found interval must overlap, but for one in twenty of a "
    "cell's numbers: those may lie apart by no more than half the wider interval, and the cell's accuracy may not."
)
LISTED = 400
"""Differences of a kind that the page lists."""


def write(catalog: Catalog, release: Release, review: Review, machine: Report, seconds: float | None) -> Path:
    """Write `results/review/<suite>.md`.

    Args:
        seconds: what the run before took; None where there was none.
    """
    path = Layout(catalog.results).review(review.suite)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, ("\n".join(_lines(catalog, release, review, machine, seconds)) + "\n").encode())
    return path


def verdict(review: Review) -> str:
    """What came out, in one line."""
    count = len(review.failures)
    if not count:
        others = sum(not cell.same_answers for cell in review.cells)
        beside = f"; the answers of {others:,} cells differ, as they may on another processor" if others else ""
        return f"passed: {len(review.cells):,} cells and {review.numbers:,} numbers are as recorded{beside}"
    things = "thing is" if count == 1 else "things are"
    return f"failed: {count:,} {things} not as recorded"


def _lines(catalog: Catalog, release: Release, review: Review, machine: Report, seconds: float | None) -> Iterator[str]:
    yield from (f"# Review of suite `{review.suite}`", "", f"The review {verdict(review)}.", "")
    at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    same, must = sum(c.same_answers for c in review.cells), sum(c.must_be_same for c in review.cells)
    by = f", commit {told(release.checkout)}" if release.checkout else ""
    which = "no model, or the same packages on the same kind of processor, without GPUs"
    predictions = sum(cell.predictions for cell in review.cells)
    yield from _table(
        ("", ""),
        [
            ("when", f"{at}; " + ("nothing was run" if seconds is None else f"the run took {duration(seconds)}")),
            ("code", version(catalog.root)),
            ("recorded by", f"upkeep {release.upkeep}{by}"),
            ("cells", f"{len(review.cells):,} of {len(release.cells):,}, {predictions:,} predictions"),
            ("answers", f"the very bytes in {same:,} cells; {must:,} must have them here ({which})"),
            ("numbers", f"{review.numbers:,} compared, each with its interval"),
            ("runtime", machine.runtime),
        ],
    )
    yield from ("", "## This machine", "")
    found = [(f.group, f.name, f.state, f.found) for f in machine.findings]
    yield from _table(("", "", "", "found"), found)
    yield from _differences("What is not as it was recorded, and must be", review.failures)
    rest = [one for one in review.differences if not one.fails]
    yield from _differences("What differs and may", rest)
    yield from ("", FREE)
    yield from ("", "## Cells", "", "Accuracy in percent, recorded and found.", "")
    said = {True: "the same", False: "others"}
    rows = [
        (c.cell, f"{c.predictions:,}", said[c.same_answers], _number(c.recorded), _number(c.found))
        for c in review.cells
    ]
    yield from _table(("cell", "predictions", "answers", "recorded", "found"), rows)


def _differences(title: str, found: list[Difference]) -> Iterator[str]:
    yield from ("", f"## {title}", "")
    if not found:
        yield "Nothing."
        return
    rows = [(one.kind, one.what, one.recorded, one.found) for one in found[:LISTED]]
    yield from _table(("", "what", "recorded", "found"), rows)
    if len(found) > LISTED:
        yield from ("", f"And {len(found) - LISTED:,} more.")


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    names = list(head)
    yield f"| {' | '.join(names)} |"
    yield f"| {' | '.join('---' for _ in names)} |"
    for row in rows:
        yield f"| {' | '.join(one_line(cell).replace('|', chr(92) + '|') for cell in row)} |"
