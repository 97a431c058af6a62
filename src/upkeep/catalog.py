"""The folders that users write (methods/, models/, datasets/, papers/, config/), read into typed records.

Nothing else lists what exists: a method is there because its folder is.
"""

from __future__ import annotations

import difflib
import functools
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from upkeep.contract import CellChoice, Config, DatasetSpec, MethodCard, ModelSpec, Record, Suite
from upkeep.errors import UpkeepError
from upkeep.integrity import Hashes
from upkeep.yaml_files import convert, load, read_yaml

R = TypeVar("R", bound=Record)

CONTROLS = ("null", "gold")
RESERVED_FIELDS = frozenset(
    {"model", "messages", "n", "stream", "stream_options", "max_tokens", "max_completion_tokens", "seed", "temperature"}
    | {"top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty"}
)
"""Fields of a request to an endpoint that have a place of their own in the card."""


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """The name of a model that a training method makes: `<base>+<method>.<variant>`."""

    base: str
    method: str
    variant: str

    @classmethod
    def parse(cls, name: str) -> TrainedModel | None:
        """None where the name is that of a plain model."""
        base, plus, rest = name.rpartition("+")
        method, dot, variant = rest.partition(".")
        return cls(base, method, variant) if plus and dot else None


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """What one job runs and one command re-runs."""

    dataset: str
    method: str
    variant: str
    model: str

    @classmethod
    def parse(cls, text: str) -> Cell:
        parts = text.strip("/").split("/")
        if len(parts) != 4 or not all(parts):
            raise UpkeepError(
                "not the name of a cell",
                expected="DATASET/METHOD/VARIANT/MODEL, as in oaks_babi/rag_dense/k30/qwen3-4b",
                found=repr(text),
            )
        return cls(*parts)

    def __str__(self) -> str:
        return f"{self.dataset}/{self.method}/{self.variant}/{self.model}"


@dataclass(frozen=True, slots=True, order=True)
class ArtifactCell:
    """The job that prepares an artifact: a memory that several cells read, or a model."""

    dataset: str
    method: str
    key: str
    """The first variant, by name, of those that share the artifact."""
    model: str

    def __str__(self) -> str:
        return f"{self.dataset}/{self.method}/{self.key}/{self.model}"


Job = Cell | ArtifactCell
"""What has results of its own."""


class Catalog:
    """All that this copy of the suite knows, by id. Files are read once, when first asked for."""

    def __init__(self, root: Path, config_file: Path | None = None, chosen: Mapping[str, str] | None = None) -> None:
        """`chosen` has the fields of the configuration that a command line decides."""
        self.root = root
        self.config = self._read_config(config_file, chosen or {})
        self.results = root / self.config.results
        self.cache = root / self.config.cache
        self._cards: dict[Path, Record] = {}
        self.hashes = Hashes(None if self.config.verify else self.cache / "hashes")
        """Of what lies under results and cache."""

    def _read_config(self, config_file: Path | None, chosen: Mapping[str, str]) -> Config:
        """Defaults, a user's file (`UPKEEP_CONFIG` or `--config`), `UPKEEP_<FIELD>` in the environment, `chosen`."""
        own = config_file or (Path(p) if (p := os.environ.get("UPKEEP_CONFIG")) else None)
        config = read_yaml(self.root / "config" / "config.yaml", Config)
        if own is not None:
            config = msgspec.structs.replace(config, **_given(own))
        overrides = {
            name: value
            for name in ("suite", "model", "runtime", "base_image", "results", "cache", "fresh", "verify")
            if (value := os.environ.get(f"UPKEEP_{name.upper()}"))
        }
        try:
            return msgspec.convert(msgspec.to_builtins(config) | overrides | chosen, Config, strict=False)
        except msgspec.ValidationError as error:
            raise UpkeepError(str(error), where="UPKEEP_... in the environment", found=overrides) from None

    # ------------------------------------------------------------ names

    @functools.cached_property
    def methods(self) -> list[str]:
        return _folders(self.root / "methods", "method.yaml")

    @functools.cached_property
    def datasets(self) -> list[str]:
        return _folders(self.root / "datasets", "dataset.yaml")

    @functools.cached_property
    def models(self) -> list[str]:
        return sorted(p.stem for p in (self.root / "models").glob("*.yaml"))

    @functools.cached_property
    def papers(self) -> list[str]:
        return sorted(p.parent.name for p in (self.root / "papers").glob("*/tables.yaml"))

    @functools.cached_property
    def suites(self) -> dict[str, Path]:
        named = {p.stem: p for p in (self.root / "config" / "suites").glob("*.yaml")}
        return named | {p.parent.name: p for p in (self.root / "papers").glob("*/suite.yaml")}

    # ------------------------------------------------------------ cards

    def _card(self, kind: str, name: str, known: Iterable[str], path: Path, record: type[R]) -> R:
        known = list(known)
        if name not in known:
            close = difflib.get_close_matches(name, known, n=3)
            raise UpkeepError(
                f"unknown {kind} {name!r}",
                expected=f"one of {', '.join(sorted(known))}",
                found=f"no {path.relative_to(self.root)}",
                remedy=f"did you mean {' or '.join(close)}?" if close else f"`./upkeep list {kind}s` shows them all",
            )
        if path not in self._cards:
            self._cards[path] = read_yaml(path, record)
        return self._cards[path]  # type: ignore[return-value]

    def method(self, name: str) -> MethodCard:
        return self._card("method", name, self.methods, self.root / "methods" / name / "method.yaml", MethodCard)

    def model(self, name: str) -> ModelSpec:
        path = self.root / "models" / f"{name}.yaml"
        spec = self._card("model", name, self.models, path, ModelSpec)
        _check_endpoint(path, spec)
        return spec

    def spec(self, model: str) -> ModelSpec:
        """The card of a model, or, of a trained one, that of the model it was made of in the beginning."""
        trained = TrainedModel.parse(model)
        return self.spec(trained.base) if trained else self.model(model)

    def dataset(self, name: str) -> DatasetSpec:
        return self._card("dataset", name, self.datasets, self.root / "datasets" / name / "dataset.yaml", DatasetSpec)

    def suite(self, name: str) -> Suite:
        return self._card("suite", name, self.suites, self.suites.get(name, self._own_suite(name)), Suite)

    def _own_suite(self, name: str) -> Path:
        return self.root / "config" / "suites" / f"{name}.yaml"

    # ------------------------------------------------------------ cells

    def check(self, cell: Cell) -> None:
        """Refuse a cell that names anything unknown, before anything starts."""
        self.dataset(cell.dataset)
        card = self.method(cell.method)
        if cell.variant not in card.variants:
            raise UpkeepError(
                f"method {cell.method!r} has no variant {cell.variant!r}",
                expected=f"one of {', '.join(card.variants)}",
                remedy=f"choose another, or add it under `variants:` in methods/{cell.method}/method.yaml",
            )
        if not card.model:
            if cell.model != "none":
                raise UpkeepError(
                    f"method {cell.method!r} calls no model", expected="the model `none`", found=cell.model
                )
            return
        trained = TrainedModel.parse(cell.model)
        if trained is None:
            self.model(cell.model)
            return
        if not self.trains(trained.method):
            raise UpkeepError(f"method {trained.method!r} trains no model", found=cell.model)
        if self.spec(trained.base).source == "endpoint":
            raise UpkeepError(
                "a model behind an endpoint cannot be trained here",
                expected="a model whose weights are at hand",
                found=cell.model,
            )
        self.check(Cell(cell.dataset, trained.method, trained.variant, trained.base))

    def cells(self, suite: Suite) -> list[Cell]:
        """The cells of a suite, checked, each once, in the order of the file.

        Raises:
            UpkeepError: with the suite's file, it names what there is not; or a card is wrong.
        """
        if self.config.model is not None:
            self.spec(self.config.model)
        try:
            return list(dict.fromkeys(cell for choice in suite.cells for cell in self._expand(choice)))
        except UpkeepError as error:
            if error.where is not None:
                raise
            where = next((path for path, card in self._cards.items() if card is suite), None)
            raise UpkeepError(
                error.problem, where=where, expected=error.expected, found=error.found, remedy=error.remedy
            ) from None

    def _expand(self, choice: CellChoice) -> Iterator[Cell]:
        for dataset in choice.datasets:
            for method_and_variant in choice.methods:
                method, _, variant = method_and_variant.partition("/")
                card = self.method(method)
                for v in [variant] if variant else card.variants:
                    for model in self._models(choice) if card.model else ["none"]:
                        cell = Cell(dataset, method, v, model)
                        self.check(cell)
                        yield cell

    def _models(self, choice: CellChoice) -> Iterable[str]:
        """The models of a choice; where one takes their place, that one, trained as they are. What is behind an
        endpoint is not trained."""
        if self.config.model is None:
            return choice.models
        trainings = dict.fromkeys(model.partition("+")[1:] for model in choice.models)
        untrained = self.spec(self.config.model).source == "endpoint"
        return [self.config.model + "".join(training) for training in trainings if not (untrained and any(training))]

    def artifact_of(self, job: Job) -> ArtifactCell | None:
        """The memory that a cell reads, if its method keeps one; the making of a memory or a model reads none."""
        card = self.method(job.method)
        if isinstance(job, ArtifactCell) or card.artifact is None or card.artifact.kind != "memory":
            return None
        return ArtifactCell(job.dataset, job.method, self.artifact_key(job.method, job.variant), job.model)

    def engine(self, method: str, model: str) -> str:
        """The engine image that a method needs to run a model: a folder of `containers/`."""
        if not self.method(method).model:
            return "base"
        spec = self.spec(model)
        if spec.gpus:
            return "vllm-gpu"  # the one image with CUDA; transformers is in it, too
        return "vllm-cpu" if spec.engine == "vllm" and not self.trains(method) else "transformers"

    def trains(self, method: str) -> bool:
        """Whether a method's artifact is a model."""
        artifact = self.method(method).artifact
        return artifact is not None and artifact.kind == "model"

    def embedder(self, method: str, model: str) -> str | None:
        """The embedder that a method retrieves with; beside a model on GPUs the one on GPUs, where the card has one."""
        card = self.method(method)
        return card.embedder_gpu if card.embedder_gpu and self.spec(model).gpus else card.embedder

    def artifact_key(self, method: str, variant: str) -> str:
        """The name under which a variant's artifact is shared: the first variant with the same artifact parameters."""
        card = self.method(method)
        wanted = card.artifact.parameters if card.artifact else []
        mine = [card.variants[variant].get(p) for p in wanted]
        return min(v for v, values in card.variants.items() if [values.get(p) for p in wanted] == mine)

    def training_of(self, job: Job) -> ArtifactCell | None:
        """The training job that makes a job's model, if it is a trained one."""
        trained = TrainedModel.parse(job.model)
        return ArtifactCell(job.dataset, trained.method, trained.variant, trained.base) if trained else None


def _check_endpoint(path: Path, spec: ModelSpec) -> None:
    """Refuse a card that is half an endpoint's."""
    is_one = (spec.source == "endpoint", spec.engine == "endpoint", spec.endpoint is not None)
    if any(is_one) != all(is_one):
        raise UpkeepError(
            "half an endpoint",
            where=path,
            expected="`source: endpoint`, `engine: endpoint` and `endpoint: ...`, or none of them",
        )
    if spec.endpoint is None:
        return
    if spec.role != "generator" or spec.gpus:
        raise UpkeepError("an endpoint generates, on no GPU of ours", where=path, expected="no `role`, no `gpus`")
    url = urlsplit(spec.location)
    local = url.hostname in ("localhost", "127.0.0.1", "::1")
    plain = url.scheme == "http" and (local or spec.endpoint.key is None)
    if not url.hostname or not (url.scheme == "https" or plain) or url.username or url.query or url.fragment:
        raise UpkeepError(
            "not the base URL of an endpoint",
            where=path,
            expected="https://host/path (http:// on this machine, or where no key is sent), nothing secret in it",
            found=url.hostname or spec.location,
        )
    if taken := sorted(RESERVED_FIELDS & spec.endpoint.fields.keys()):
        raise UpkeepError(
            f"`endpoint.fields` may not hold {', '.join(taken)}",
            where=path,
            remedy="set these by the card's own fields",
        )


def _folders(parent: Path, card: str) -> list[str]:
    # A card that cannot be read, as a link to nowhere, is told when it is read.
    return sorted(p.name for p in parent.glob("*") if os.path.lexists(p / card))


def _given(path: Path) -> dict[str, object]:
    """The fields that a partial configuration file sets, checked."""
    given = load(path, expected="a Config in YAML")
    checked = convert(given, Config, path, expected="fields as in schema/ (Config)")
    return {name: getattr(checked, name) for name in given}
