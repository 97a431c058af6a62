"""Datasets as users describe them, and as they are when they are built."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType, defstruct
from msgspec.structs import fields as fields_of

from upkeep.contract.base import Count, Fingerprint, Name, Positive, Record, Sealed, Sha256
from upkeep.contract.predictions import Form

FaultKind = Literal[
    "broken_record",
    "encoding",
    "missing_date",
    "bad_date",
    "duplicate_id",
    "empty_text",
    "too_long",
    "unread_reply",
]
"""What can be wrong with an item of a dataset's inputs; the last is a model's reply in another form than demanded."""
Share = Annotated[float, Meta(ge=0, le=100)]
"""Percent."""
FaultPolicy = Literal["skip", "refuse"]
Provenance = Literal["release", "rebuild", "stand_in", "own"]
"""What a dataset is to the paper's dataset that tables and claims know by its name: the paper's own, as its authors
published it; built anew by the paper's rules from other or newly collected inputs; a small or invented one that stands
for it; or none of any paper's."""


class Published(Record, frozen=True, kw_only=True):
    """Where a paper prints a number: the one line of `papers/<paper>/reference/<table>.csv` with these values."""

    table: str
    where: dict[str, str] = {}
    """Column -> value."""


Baseline = Literal["most_common", "longest", "last_mentioned", "option_overlap"]
"""A way to answer without a model and without reading (`grading.baselines`)."""


class Implied(Record, frozen=True, kw_only=True):
    """A baseline that a paper's own construction lets exceed chance."""

    baseline: Baseline
    where: Annotated[dict[str, str], Meta(min_length=1, max_length=1)]
    """The kind of question: `form`, or a slice -> its value."""
    reason: Annotated[str, Meta(min_length=1)]


class Kind(Record, frozen=True, kw_only=True):
    """What the baselines score on one kind of question: all of a form, or those of a form in a slice."""

    form: Form
    slice: str = ""
    """Name of a slice; empty for all of the form."""
    value: str = ""
    probes: Positive
    chance: Share
    """Expectation of the baseline `random`: one of the options, or of the dataset's distinct answers where it gives
    none, each as likely."""
    exact: bool
    """Whether `chance`, and what ties are worth, are computed whole; else from seeded draws."""
    found: dict[Baseline, Share]
    """Percent of right answers; without a baseline that the form does not have."""


class Baselines(Sealed, frozen=True, kw_only=True):
    """`baselines.json` beside a built dataset: what answers that use no model and no reading score on it."""

    dataset: Name
    made_of: dict[str, str]
    """The dataset's parts, what decides a verdict, and code, each with its hash."""
    kinds: list[Kind]
    """A form, then its slices."""


class DatasetCard(Sealed, frozen=True, kw_only=True):
    """`card.json` beside a built dataset."""

    version: Literal[1] = 1
    dataset: Name
    label: str
    source: str
    licence: str
    tokenizer: str
    chunk_tokens: Positive
    streams: Count
    documents: Count
    probes: Count
    questions: Count
    pairs: Count = 0
    slices: dict[str, dict[str, Count]]
    """Slice name -> value -> number of questions."""
    statistics: dict[str, float]
    dataset_version: Positive = 1
    """Version of the dataset's rules (`DatasetSpec.changes`)."""
    provenance: Provenance = "own"
    """As it was built: a builder may have loaded the release in the place of a rebuild."""
    stands_for: str | None
    """The paper's dataset that a stand-in stands for."""
    content: dict[str, Sha256]
    """Hash of each part of the rows, independent of the files' encoding (`building.content`): a job is stale by those
    that it reads, alone."""
    files: dict[str, Fingerprint]
    examples: Count = 0
    """Worked examples for few-shot prompts; none of them is asked."""
    faults: dict[FaultKind, Count] = {}
    """Items of the inputs that were left out, by what is wrong with them; `notes` names the first of each."""
    inputs: dict[str, Sha256] = {}
    """Files that it was built from."""
    plan: str = ""
    """Hash of the options, code and inputs that it was built from: another one now, and the dataset is stale."""
    seed: int | None = None
    notes: list[str] = []


STREAM = "stream"
"""What a set of models is keyed by where each stream has its own; anything else is a slice of the documents."""


class TrainingSet(Record, frozen=True, kw_only=True):
    """What of a dataset a model is trained on: a name under `training` in `dataset.yaml`."""

    until: Annotated[str, Meta(pattern=r"^\d{4}-\d{2}-\d{2}")] | Annotated[float, Meta(gt=0, lt=1)] | None = None
    """A date (ISO 8601, in quotes): documents that are older. A number: this share of each stream's documents, from its
    start. Pairs come with their documents. Null for all of them."""
    by: Name | None = None
    """`stream`, or a slice of the documents: a model of its own for each value, which answers the probes of that value.
    Null for one model."""


class DatasetSpec(Record, frozen=True, kw_only=True):
    """A dataset: what a family's `datasets/<family>/dataset.yaml` says of a variant, and of all variants."""

    label: str
    summary: str
    paper: str
    source: str
    licence: str
    builder: str | None = None
    """A builder of `upkeep.building.builders`; where none is named, the family's folder is its builder."""
    options: dict[str, Any] = {}
    url: str | None = None
    revision: str | None = None
    sha256: dict[str, Sha256] = {}
    """Pins of the files that a loader reads, by name."""
    faults: dict[FaultKind, FaultPolicy] = {}
    """What is done about items of the inputs that have something wrong with them: `refuse` where it is not said."""
    published: dict[str, float | Published] = {}
    """Statistic of the card -> what the paper prints for it: a place in its tables, or a number from its text."""
    changes: list[Annotated[str, Meta(min_length=1)]] = []
    """What changed in the rules that it is made by, and why: the first makes version 2, and so on. Results of another
    version than the last one are in no number."""
    provenance: Provenance = "own"
    """What scores are about: only those on a paper's release speak of the paper's findings."""
    stands_for: str | None = None
    """The paper's dataset that a stand-in stands for; given for a `stand_in`, and for nothing else."""
    part_of: str | None = None
    """The paper's dataset that tables print its scores under, where it asks that one's questions in another way or over
    other documents."""
    prompt: str
    """Name of the prompt, a file of `papers/*/prompts/`."""
    equivalence: str
    """Name of the answer equivalence in `upkeep.grading.matching`."""
    metrics: str
    """The paper whose `metrics.py` scores it; or `answers`, the metrics of papers that have none."""
    judges: Name | None = None
    """Who judges responses, beside the answer key: a list in its paper's `judges.yaml`."""
    implied: list[Implied] = []
    """Baselines that exceed chance by the paper's own construction: a build remarks on them and does not warn."""
    training: dict[Name, TrainingSet] = {}
    """Sets to train models on, beside the one of all documents and pairs."""

    def __post_init__(self) -> None:
        if (self.provenance == "stand_in") != (self.stands_for is not None):
            raise ValueError(
                "`provenance: stand_in` and `stands_for` belong together: "
                f"found `provenance: {self.provenance}` and `stands_for: {self.stands_for or 'null'}`"
            )

    @property
    def version(self) -> int:
        """Of its rules: 1 before the first change."""
        return 1 + len(self.changes)


DatasetFields = defstruct(
    "DatasetFields",
    [(field.name, field.type | UnsetType, UNSET) for field in fields_of(DatasetSpec)],
    bases=(Record,),
    namespace={"__doc__": "Fields of a dataset, any of them."},
    module=__name__,
    frozen=True,
    kw_only=True,
)
"""What a family says of all its variants, and what a variant says in its place."""
_Variants = Annotated[dict[Name, DatasetFields | None], Meta(min_length=1)]  # type: ignore[valid-type]
DatasetFamily = defstruct(
    "DatasetFamily",
    [("variants", _Variants | UnsetType, UNSET)],
    bases=(DatasetFields,),
    namespace={"__doc__": "`datasets/<family>/dataset.yaml`: the fields of a variant take the place of its own."},
    module=__name__,
    frozen=True,
    kw_only=True,
)
"""Read by `upkeep.families`."""
