"""Suites, the configuration, and what is particular to a cluster."""

from typing import Annotated, Literal

from msgspec import Meta

from upkeep.contract.base import Count, Positive, Record


class CellChoice(Record, frozen=True, kw_only=True):
    """A rectangle of cells: every combination of the lists."""

    datasets: list[str]
    methods: list[str]
    """`method` (all its variants) or `method/variant`."""
    models: list[str]
    """Model ids; `MODEL+METHOD.VARIANT` is the model that a training method makes of MODEL out of the dataset that is
    asked, `MODEL+METHOD.VARIANT@DATASET` or `...@DATASET.SET` out of that one."""
    judges: list[str] | None = None
    """Models that judge the responses of these; null for those of the suite."""
    trials: Positive | None = None
    """How often each probe of these is asked; null for as often as the suite says."""


class Suite(Record, frozen=True, kw_only=True):
    """A named choice of cells: `papers/<paper>/suite.yaml`, `config/suites/*.yaml`."""

    label: str
    summary: str
    papers: list[str]
    cells: list[CellChoice]
    seed: Count = 0
    trials: Positive = 1
    """How often each probe is asked, where a choice of cells does not say it; and of cells that no choice has."""
    judges: list[str] = []
    """Models that judge responses, each by itself, where a dataset's paper has responses judged; a choice of cells may
    say otherwise."""


class Config(Record, frozen=True, kw_only=True):
    """`config/config.yaml`; a user's own file may override any field."""

    suite: str = "mini"
    model: str | None = None
    """A model that takes the place of every one of the suite."""
    judge: str | None = None
    """A model that judges in place of every judge of the suite; `none` for no judge."""
    runtime: Literal["auto", "docker", "podman", "apptainer", "process"] = "auto"
    cells_per_job: Positive = 10
    """Cells of one model that share a job and a loaded engine."""
    budget: dict[str, Annotated[float, Meta(ge=0)]] = {}
    """Model -> US dollars that its endpoint may cost, over all runs of these results; asked for before any request."""
    base_image: str | None = None
    """Base image of the CPU images in place of the pinned official one."""
    results: str = "results"
    cache: str = "results/cache"
    """Wheels, environments and models; may be shared."""
    data: dict[str, str] = {}
    """Dataset -> local path of an official release."""
    prompts: dict[str, str] = {}
    """Prompt -> a file with a system text of the user's own, taken word for word in place of all of the card's."""
    models: dict[str, str] = {}
    """Model -> local folder of its weights, which are its presets', too."""
    offline: bool = False
    fresh: bool = False
    """Ask models everything again, whatever the record of replies holds."""
    verify: bool = False
    """Hash every file again, also large ones that have not changed since they were hashed on this machine."""
    limit: Positive | None = None
    """Questions of each dataset that are asked, drawn by the suite's seed; null for all. Its results lie apart."""
    probe: str | None = None
    """The one probe that is asked, or the question, at all its positions; null for all."""
    proxy: str | None = None
    """HTTP proxy on the way to endpoints; variables of the environment name none."""


class Cluster(Record, frozen=True, kw_only=True):
    """`cluster` in `profiles/slurm/cluster.yaml`: what is particular to a SLURM cluster. Null is its own default."""

    account: str | None = None
    qos: str | None = None
    partition: str | None = None
    """For jobs without GPUs."""
    gpu_partition: str | None = None
    """For jobs with GPUs; null: as `partition`."""
    gpu_types: dict[str, str] = {}
    """The cards' kinds of GPUs -> the cluster's names of them."""
    constraints: bool = True
    """Whether nodes have the features that cards ask for."""
    max_minutes: Positive = 1440
    """Longest time limit of a job."""
    runtime: Literal["auto", "docker", "podman", "apptainer", "process"] = "apptainer"
    options: str = ""
    """Further options of sbatch."""
