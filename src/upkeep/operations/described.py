"""A built dataset for programs: what `./upkeep dataset describe` says of it."""

from __future__ import annotations

from upkeep.card_numbers import numbers, published
from upkeep.catalog import Catalog
from upkeep.contract import Baselines, DatasetCard, Record
from upkeep.files import digest
from upkeep.grading.audited import Aspect, audit_of, precision
from upkeep.layout import Layout


class Number(Record, frozen=True, kw_only=True):
    """A count or statistic of a dataset."""

    name: str
    own: float | None
    """Of what is built; null where only the paper has it."""
    paper: float | None
    """As the paper prints it; null where it does not."""


class Share(Record, frozen=True, kw_only=True):
    """How many of the probes that people have read are as they should be in one aspect, in percent."""

    metric: Aspect
    value: float
    low: float | None
    """Of the 95% interval, clustered by question; null where few questions give none."""
    high: float | None
    n: int
    """Probes."""
    questions: int


class Described(Record, frozen=True, kw_only=True):
    """What `./upkeep dataset describe NAME --json` prints of a built dataset, and `build` of the one it made."""

    dataset: str
    label: str
    source: str
    tokenizer: str
    provenance: str
    """`release`, `rebuild`, `stand_in` or `own`."""
    stands_for: str | None
    version: int
    changed: str
    """What changed with this version; empty of the first."""
    content: str
    """Hash of the hashes of its parts."""
    numbers: list[Number]
    notes: list[str]
    audit: list[Share]
    """Empty where nobody has read a sample."""
    baselines: Baselines
    """What answers without a model and without reading score."""


def described(catalog: Catalog, card: DatasetCard, baselines: Baselines) -> Described:
    """What is said of a built dataset.

    Raises:
        UpkeepError: its audit is not what was written, or is of another build.
    """
    spec, own = catalog.dataset(card.dataset), numbers(card)
    paper = published(spec, catalog.root / "papers")
    audit = audit_of(Layout(catalog.results).dataset(card.dataset), card)
    read = [] if audit is None else precision(audit.marks.marks).to_dicts()
    return Described(
        dataset=card.dataset,
        label=card.label,
        source=card.source,
        tokenizer=card.tokenizer,
        provenance=card.provenance,
        stands_for=card.stands_for,
        version=card.dataset_version,
        changed=next(iter(["", *spec.changes][card.dataset_version - 1 :]), ""),
        content=digest(card.content),
        numbers=[Number(name=name, own=own.get(name), paper=paper.get(name)) for name in own | paper],
        notes=list(card.notes),
        audit=[Share(**{name: row[name] for name in Share.__struct_fields__}) for row in read],
        baselines=baselines,
    )
