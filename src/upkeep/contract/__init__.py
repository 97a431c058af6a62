"""Every file that crosses a boundary, as a typed record, by subject.

These records are the single definition of the contracts: the library decodes files straight into them (fast, strict,
with the field named on error) and `schema/*.schema.json` is generated from them (`upkeep schema`).

The package imports nothing but msgspec and the standard library, for it travels into every container.
"""

from msgspec import Struct

from upkeep.contract.base import (
    MAX_LINE_BYTES,
    Count,
    Fingerprint,
    Measurement,
    Name,
    Positive,
    Record,
    Sealed,
    Seconds,
    Sha256,
    Text,
)
from upkeep.contract.cells import Aliases, CellDescription, DoorRole, EngineSettings, Role
from upkeep.contract.datasets import (
    STREAM,
    Baseline,
    Baselines,
    DatasetCard,
    DatasetFamily,
    DatasetFields,
    DatasetSpec,
    FaultKind,
    FaultPolicy,
    Implied,
    Kind,
    Provenance,
    Published,
    TrainingSet,
)
from upkeep.contract.judges import SLOTS, Judgement, Meaning, Pattern, Rubric
from upkeep.contract.manifests import Attempt, Course, Environment, Fact, Job, Manifest, Reported, Served, Spent
from upkeep.contract.methods import MethodCard, Sees, Supervision
from upkeep.contract.models import Attention, Endpoint, ModelCard, ModelSpec, Price, Resources, Sampling
from upkeep.contract.predictions import (
    MAX_VALUES,
    ContextUse,
    Finish,
    Form,
    Measured,
    Prediction,
    Retrieved,
    Usage,
)
from upkeep.contract.prompts import Headings, PromptCard, Rules
from upkeep.contract.rounds import Document, Gold, Pair, Probe, Round
from upkeep.contract.suites import CellChoice, Cluster, Config, Suite

__all__ = [
    "BOUNDARY",
    "MAX_LINE_BYTES",
    "MAX_VALUES",
    "SLOTS",
    "STREAM",
    "Aliases",
    "Attempt",
    "Attention",
    "Baseline",
    "Baselines",
    "CellChoice",
    "CellDescription",
    "Cluster",
    "Config",
    "ContextUse",
    "Count",
    "Course",
    "DatasetCard",
    "DatasetFamily",
    "DatasetFields",
    "DatasetSpec",
    "Document",
    "DoorRole",
    "Endpoint",
    "EngineSettings",
    "Environment",
    "Fact",
    "FaultKind",
    "FaultPolicy",
    "Fingerprint",
    "Finish",
    "Form",
    "Gold",
    "Headings",
    "Implied",
    "Job",
    "Judgement",
    "Kind",
    "Manifest",
    "Meaning",
    "Measured",
    "Measurement",
    "MethodCard",
    "ModelCard",
    "ModelSpec",
    "Name",
    "Pair",
    "Pattern",
    "Positive",
    "Prediction",
    "Price",
    "Probe",
    "PromptCard",
    "Provenance",
    "Published",
    "Record",
    "Reported",
    "Resources",
    "Retrieved",
    "Role",
    "Round",
    "Rubric",
    "Rules",
    "Sampling",
    "Sealed",
    "Seconds",
    "Sees",
    "Served",
    "Sha256",
    "Spent",
    "Suite",
    "Supervision",
    "Text",
    "TrainingSet",
    "Usage",
]

BOUNDARY: dict[str, type[Struct]] = {
    "prediction": Prediction,
    "pair": Pair,
    "round": Round,
    "cell": CellDescription,
    "manifest": Manifest,
    "card": DatasetCard,
    "baselines": Baselines,
    "dataset": DatasetFamily,
    "method": MethodCard,
    "model": ModelCard,
    "prompt": PromptCard,
    "suite": Suite,
    "config": Config,
    "cluster": Cluster,
}
"""Every record that has a file `schema/<name>.schema.json`."""
