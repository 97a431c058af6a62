"""How published tables and figures are laid out: `tables.yaml` and `figures.yaml` (papers/FORMAT.md, "Layout").

A spec says which fields tell one row from another and which fields' values make up the columns. A field is a column of
papers/FORMAT.md, or `setting.<key>` for one setting.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from upkeep.contract import Name, Record
from upkeep.errors import UpkeepError
from upkeep.yaml_files import read_yaml

TABLES, FIGURES = "tables.yaml", "figures.yaml"

Match = dict[str, str | list[str]]
"""Field -> the value that it must have, or one of several."""


def several(value: str | list[str]) -> list[str]:
    """The values that a match allows a field."""
    return [value] if isinstance(value, str) else value


class Stub(Record, frozen=True, kw_only=True):
    """A column at the left that says what a row is."""

    field: str
    heading: str


class Fact(Record, frozen=True, kw_only=True):
    """A column of published facts about a row (a model's size), which no run of ours can change."""

    heading: str
    match: Match
    by: list[str]
    """The row fields that it hangs on."""


class Unfilled(Record, frozen=True, kw_only=True):
    """Places of a table that no run of ours fills."""

    match: Match = msgspec.field(default_factory=dict)
    why: str


class CardField(Record, frozen=True, kw_only=True):
    """Places of a table that print what a paper's runs were set to: ours is what cards say. One of `models`, `methods`
    and `datasets` is given; cards that do not all say the same give no number."""

    match: Match = msgspec.field(default_factory=dict)
    """Of the published line."""
    field: str
    """Of a model's or a dataset's card, one within another after a dot (`sampling.max_tokens`); of a method's, a
    parameter."""
    models: list[str] = msgspec.field(default_factory=list)
    """A place is of those of them that are called as the line's model is, and think as it does."""
    methods: dict[str, Annotated[list[str], Meta(min_length=1)]] = msgspec.field(default_factory=dict)
    """Method -> variants."""
    datasets: list[str] = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        if [bool(self.models), bool(self.methods), bool(self.datasets)].count(True) != 1:
            raise ValueError("one of `models`, `methods` and `datasets` says whose `field` it is")


class TableSpec(Record, frozen=True, kw_only=True):
    """One published table."""

    id: Name
    """As the paper numbers it."""
    reference: Name | None = None
    """File name in `reference/`, where that is not the id: several tables may share one file."""
    title: str
    caption: str
    where: Match = msgspec.field(default_factory=dict)
    """What all its numbers have in common."""
    rows: list[str]
    """Fields that tell one row from another."""
    stub: list[Stub]
    facts: list[Fact] = msgspec.field(default_factory=list)
    columns: list[dict[str, Match]]
    """Axes, the outermost first, each from heading to match; the table's columns are their product. `|` in a heading
    parts two lines of the head."""
    average: Match | None = None
    """The row that is the mean of the others."""
    digits: int = 1
    """Decimals of our own numbers; published ones stay as printed."""
    cards: list[CardField] = msgspec.field(default_factory=list)
    """Places that no run fills, but what our own runs are set to."""
    unfilled: list[Unfilled] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)

    @property
    def file(self) -> str:
        """Where its published numbers are, in `reference/`."""
        return f"{self.reference or self.id}.csv"


Kind = Literal["lines", "bars", "scatter", "box", "histogram"]


class Series(Record, frozen=True, kw_only=True):
    """One kind of line, bar or point in a figure; there is one for each model and set of data."""

    name: str
    match: Match
    """Of a field that the panel names as well, only what both allow."""
    x: str = ""
    """Field on the horizontal axis: a number, but for bars and boxes, whose place `FigureSpec.places` says. `model`
    makes one series of all models, each at its place; the last places are of our own ones."""
    at: Match | None = None
    """In place of a field, another score of the same cell: what it has otherwise than `match` (`metric: tokens`)."""
    level: bool = False
    """Whether it has no place there: a dashed line across the panel, as that of the closed book beside a sweep."""
    largest: str | None = None
    """Of several runs of a line, only the one with the largest value of this field."""
    quantiles: list[str] = msgspec.field(default_factory=list)
    """Of a box: the metrics that are its lower whisker, lower edge, middle line, upper edge and upper whisker."""
    own: bool = False
    """Whether the paper's figure lacks it: it is drawn among our own alone."""


class Panel(Record, frozen=True, kw_only=True):
    title: str
    match: Match


class FigureSpec(Record, frozen=True, kw_only=True):
    """One published figure."""

    id: Name
    title: str
    caption: str
    kind: Kind = "lines"
    xlabel: str
    ylabel: str
    places: dict[str, str] = msgspec.field(default_factory=dict)
    """Of bars and boxes: value of the series' field -> what is written below it, from left to right."""
    models: list[str] = msgspec.field(default_factory=list)
    """The printed names of the models that the paper draws; other models are drawn among our own. Empty: any, and
    where models are the places, those of `places`."""
    published: list[str] = msgspec.field(default_factory=list)
    """Files of `reference/` whose numbers are drawn beside ours, found by the same matches."""
    spread: Literal["band", "bars"] = "band"
    """How lines show their intervals; bars and points have error bars."""
    log: bool = False
    """Whether the axis of numbers is logarithmic: the horizontal one, where it has places the vertical one."""
    bottom: float | None = 0
    """Where the vertical axis begins, if it is not logarithmic; null: where the numbers do."""
    top: float | None = 100
    """Where the vertical axis ends; null: where the numbers do."""
    panels: list[Panel]
    series: list[Series]
    notes: list[str] = msgspec.field(default_factory=list)


class Called(Record, frozen=True, kw_only=True):
    """Scores of our own that a paper's numbers call otherwise."""

    where: Match
    instead: dict[str, str]
    """Field -> what it is called; a setting that is empty is left out."""


class PaperSpec(Record, frozen=True, kw_only=True):
    """`papers/<paper>/tables.yaml`, with the figures of the file beside it."""

    label: str
    citation: str
    names: dict[str, str] = msgspec.field(default_factory=dict)
    """Printed names of ids."""
    called: list[Called] = msgspec.field(default_factory=list)
    """Applied one after the other (`report.fields.as_printed`)."""
    stand_in: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)
    """Field -> value on a stand-in -> the published value that it stands for."""
    judge: str = ""
    """The model that judged the responses behind the paper's numbers. A score of ours that a judge decides stands
    beside them only if that one did; on a stand-in, the one by the answer key's words does."""
    best: Match | None = None
    """Of cells that tables call the same (they differ in their learning rate), the one with the highest of this score
    is the one that is shown."""
    tables: list[TableSpec]
    figures: list[FigureSpec] = msgspec.field(default_factory=list)
    """`figures.yaml`, where the paper has any."""


def read_paper(folder: Path) -> PaperSpec:
    """Read `tables.yaml` of a paper's folder, and `figures.yaml` where it is there.

    Raises:
        UpkeepError: one of them is not as papers/FORMAT.md has it, or figures stand among the tables.
    """
    paper = read_yaml(folder / TABLES, PaperSpec)
    if paper.figures:
        raise UpkeepError(
            "figures among the tables",
            where=f"{folder / TABLES}: figures",
            expected=f"the list of figures in {FIGURES}, beside {TABLES}",
            remedy=f"move the list, without the key `figures`, to {folder / FIGURES}",
        )
    if not (folder / FIGURES).exists():
        return paper
    figures = read_yaml(folder / FIGURES, list[FigureSpec], expected="figures as in papers/FORMAT.md")
    return msgspec.structs.replace(paper, figures=figures)
