"""What is published beside results: who made them, where, in which attempts."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from upkeep.contract.base import Count, Fingerprint, Positive, Record, Sealed, Seconds, Sha256
from upkeep.contract.predictions import Usage


class Attempt(Record, frozen=True, kw_only=True):
    """One start of a cell's container."""

    start: str
    end: str | None
    outcome: Literal["complete", "failed", "killed", "running"]
    reason: str | None = None
    lines: Count = 0
    """Predictions on disk when it ended."""


class Spent(Record, frozen=True, kw_only=True):
    """`usage.json`: what a cell's container has used when it ends, its engine included where that is its own."""

    cpu_s: Seconds
    """Processor seconds of all its processes that have ended, and its own."""
    wall_s: Seconds
    peak_memory_mb: Seconds
    """Of its largest process, in units of 2**20 bytes."""
    arrival: Usage = Usage()
    """Tokens of the model calls that were made as documents arrived: they are no single prediction's."""


class Course(Record, frozen=True, kw_only=True):
    """`course.json`: how a training went, as its method tells it."""

    steps: Count
    """Of the optimizer."""
    tokens: Count
    """That were read, in all epochs together."""
    losses: Annotated[list[tuple[Count, float]], Meta(max_length=1000)] = []
    """The mean loss up to each of some steps, from the one before on."""


class Job(Record, frozen=True, kw_only=True):
    """The batch system's job that a cell ran in."""

    scheduler: Literal["slurm"]
    id: str
    node: str
    partition: str | None
    gpus: list[str]
    """As the batch system gave them to the job (`CUDA_VISIBLE_DEVICES`)."""
    restarts: Count
    """How often it had been put back into the queue."""


Fact = Annotated[str, Meta(max_length=1000)] | Count | bool | list[Annotated[str, Meta(max_length=1000)]] | None
"""What a container may say of its machine."""


class Reported(Record, frozen=True, kw_only=True):
    """`engine.json`, as a container reports what it runs with."""

    engine: str
    engine_version: str
    packages: dict[str, str]
    hardware: dict[str, Fact]


class Served(Record, frozen=True, kw_only=True):
    """An engine of the suite's, in a container of its own, that answered a cell or whose recorded replies did."""

    record: Sha256
    """Hash of all that determines its replies: the folder of `results/record/` that holds them."""
    image: str | None
    digest: str | None
    """Id of what it ran in, as a method's; null where the record answered everything, so that none was started."""
    engine: str
    engine_version: str
    packages: dict[str, str]
    """As it reported when it was last started."""
    hardware: dict[str, Any]
    """The same."""


class Environment(Record, frozen=True, kw_only=True):
    """Where a cell ran."""

    runtime: Literal["docker", "podman", "apptainer", "process"]
    isolated: bool
    """False for a plain process: no network, file or memory isolation."""
    image: str | None
    digest: str | None
    """Image id (sha256), or the hash of the locked requirements for a plain process."""
    engine: str
    engine_version: str
    """The package that answered: of a method that trains in its own container, of any other in its engine's."""
    packages: dict[str, str]
    """In the method's own container."""
    hardware: dict[str, Any]
    """As the method's own container reports it."""
    served: dict[str, Served] = {}
    """What answered the method's questions, by role: `reader`, `embedder`."""
    job: Job | None = None


class Checkout(Record, frozen=True, kw_only=True):
    """The suite's own code, as git knows it."""

    commit: Annotated[str, Meta(pattern=r"^[0-9a-f]{40,64}$")]
    changed: bool | None
    """Whether any file is not as it was committed, or is not committed; null where git did not say."""


class Sample(Record, frozen=True, kw_only=True):
    """Which of a dataset's questions a cell was asked, where that was not all: one of the two."""

    limit: Positive | None = None
    """So many questions, drawn by the cell's seed."""
    probe: str | None = None
    """A probe, or a question at all its positions."""


class Manifest(Sealed, frozen=True, kw_only=True):
    """`manifest.json`, one a cell. A cell whose manifest and files do not agree is not scored."""

    version: Literal[1] = 1
    cell: str
    """dataset/method/variant/model"""
    identity: Sha256
    """Hash of all that determines the answers."""
    identity_parts: dict[str, str]
    """What went into it, each part with its own hash or value."""
    environment: Environment
    seed: Count
    start: str
    end: str
    attempts: list[Attempt]
    probes: Count
    trials: Positive
    cutoff: dict[str, Count] = {}
    """Of a model that was trained on a stream's documents: the position of the last of them. What is asked about that
    stream is asked there or later."""
    sample: Sample | None = None
    """Null for a cell that was asked all."""
    checkout: Checkout | None = None
    """What made it; null where the suite was no clone. It is no part of the identity: contents decide that."""
    outcomes: dict[str, Count]
    """Predictions by outcome: answered, error."""
    usage: Usage
    measured: dict[str, float]
    """Sums over the cell: cached prompt tokens, computed prompt tokens, seconds."""
    courses: dict[str, Course] = {}
    """Of a training: how it went, where its method tells it; of a set by member, else under `model`."""
    files: dict[str, Fingerprint]
    """Each published file, by name."""

    @property
    def predictions(self) -> int:
        """How many a cell has."""
        return self.probes * self.trials

    @property
    def failed(self) -> int:
        """Predictions that failed; they are counted as wrong."""
        return self.outcomes.get("error", 0)

    @property
    def mostly_failed(self) -> bool:
        """Whether more than half of them did: then a cell's scores say nothing about its method."""
        return 2 * self.failed > self.predictions
