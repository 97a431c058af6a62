"""The folders that users write (methods/, models/, datasets/, papers/, config/), read into typed records.

Nothing else lists what exists: a method is there because its folder is.
"""

from __future__ import annotations

import difflib
import functools
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec

from upkeep import families
from upkeep.contract import (
    CellChoice,
    Config,
    DatasetSpec,
    DoorRole,
    MethodCard,
    ModelSpec,
    PromptCard,
    Record,
    Role,
    Suite,
)
from upkeep.errors import UpkeepError
from upkeep.files import folders_with
from upkeep.integrity import Hashes
from upkeep.model_cards import CARD, ModelCards
from upkeep.yaml_files import convert, load, read_yaml

R = TypeVar("R", bound=Record)

CONTROLS = ("null", "gold")
EMBEDDERS = {"embedder-cpu": "transformers", "embedder-gpu": "vllm-gpu"}
"""The images of embedders, and the engines whose packages they add theirs to."""
BESIDE_CODE = frozenset({"README.md", "method.yaml", "requirements.in", "requirements.lock"})
"""What a method's folder holds beside its code."""
CHOSEN = frozenset({"writer", "embedder", "embedder_gpu"})
"""What a variant says beside its parameters: its models by role."""


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
class Training:
    """The job that trains a model, which other cells then use."""

    dataset: str
    method: str
    variant: str
    model: str

    def __str__(self) -> str:
        return f"{self.dataset}/{self.method}/{self.variant}/{self.model}"


Job = Cell | Training
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
        self._model_cards = ModelCards(root)
        self._families: dict[str, dict[str, DatasetSpec]] = {}
        self._family_of: dict[str, str] = {}
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
        return folders_with(self.root / "methods", "method.yaml")

    @functools.cached_property
    def families(self) -> list[str]:
        """Families of datasets, each with its folder."""
        return folders_with(self.root / "datasets", families.CARD)

    @functools.cached_property
    def datasets(self) -> list[str]:
        return sorted(name for family in self.families for name in self.family(family))

    @functools.cached_property
    def models(self) -> list[str]:
        return self._model_cards.names

    @functools.cached_property
    def papers(self) -> list[str]:
        return sorted(p.parent.name for p in (self.root / "papers").glob("*/tables.yaml"))

    @functools.cached_property
    def prompts(self) -> dict[str, Path]:
        """Each prompt's file, in its paper's folder.

        Raises:
            UpkeepError: two papers have prompts of one name.
        """
        found: dict[str, Path] = {}
        for path in sorted((self.root / "papers").glob("*/prompts/*.yaml")):
            if (other := found.setdefault(path.stem, path)) != path:
                raise UpkeepError(
                    f"two prompts with the name {path.stem!r}",
                    where=path,
                    expected="a name that no prompt of another paper has",
                    found=other.relative_to(self.root),
                    remedy="rename one of them, and in the datasets that use it",
                )
        return found

    @functools.cached_property
    def suites(self) -> dict[str, Path]:
        named = {p.stem: p for p in (self.root / "config" / "suites").glob("*.yaml")}
        return named | {p.parent.name: p for p in (self.root / "papers").glob("*/suite.yaml")}

    # ------------------------------------------------------------ cards

    def _card(self, kind: str, name: str, known: Collection[str], path: Path, record: type[R]) -> R:
        if name not in known:
            raise _unknown(kind, name, known, f"no {path.relative_to(self.root)}")
        if path not in self._cards:
            self._cards[path] = read_yaml(path, record)
        return self._cards[path]  # type: ignore[return-value]

    def method(self, name: str) -> MethodCard:
        path = self.root / "methods" / name / "method.yaml"
        card = self._card("method", name, self.methods, path, MethodCard)
        _check_method(path, card)
        return card

    def model(self, name: str) -> ModelSpec:
        return self._model_cards.spec(self._model_file(name), name)

    def _model_file(self, name: str) -> Path:
        if (path := self._model_cards.find(name)) is None:
            raise _unknown("model", name, self.models, f"no models/{name}/{CARD}")
        return path

    def spec(self, model: str) -> ModelSpec:
        """The card of a model, or, of a trained one, that of the model it was made of in the beginning."""
        trained = TrainedModel.parse(model)
        return self.spec(trained.base) if trained else self.model(model)

    def model_card(self, model: str) -> str:
        """The file that `spec` is read from, relative to the repository."""
        trained = TrainedModel.parse(model)
        return self.model_card(trained.base) if trained else str(self._model_file(model).relative_to(self.root))

    def own_weights(self, model: str) -> str | None:
        """Where the user has a model's weights, as the configuration says of the model itself, or of its card: presets
        share them."""
        own = self.config.models
        return own.get(model) or (own.get(self._model_file(model).parent.name) if own else None)

    def family(self, name: str) -> dict[str, DatasetSpec]:
        """The datasets of a family, by id."""
        if name not in self._families:
            self._families[name] = families.read_family(self.family_card(name))
        return self._families[name]

    def family_card(self, name: str) -> Path:
        """The file that says what a family's datasets are made of; their builder's code is beside it."""
        return self.root / "datasets" / name / families.CARD

    def family_of(self, dataset: str) -> str:
        """The family that a dataset is a variant of.

        Raises:
            UpkeepError: there is no such dataset, two families have it, or the file of one that may have it is wrong.
        """
        if dataset not in self._family_of:
            named = [name for name in self.families if dataset == name or dataset.startswith(f"{name}_")]
            owners = [name for name in named if dataset in self.family(name)]
            if not owners:
                place = self.family_card(max(named, key=len, default=dataset)).relative_to(self.root)
                raise _unknown(
                    "dataset", dataset, self.datasets, f"no such variant in {place}" if named else f"no {place}"
                )
            if len(owners) > 1:
                raise UpkeepError(
                    f"two families have a dataset {dataset!r}",
                    where=f"{self.family_card(owners[0])}: variants",
                    found=f"another in {self.family_card(owners[1])}",
                    remedy="rename one of the variants",
                )
            self._family_of[dataset] = owners[0]
        return self._family_of[dataset]

    def dataset(self, name: str) -> DatasetSpec:
        return self.family(self.family_of(name))[name]

    def prompt(self, name: str, paper: str = "*") -> PromptCard:
        """A prompt of any paper; `paper` says whose folder it is missed in, where there is none."""
        path = self.prompts.get(name, self.root / "papers" / paper / "prompts" / f"{name}.yaml")
        return self._card("prompt", name, self.prompts, path, PromptCard)

    def prompt_of(self, dataset: str) -> PromptCard:
        """The prompt that a dataset's card names.

        Raises:
            UpkeepError: there is none of that name, with the dataset's card; or the prompt's own is wrong.
        """
        spec = self.dataset(dataset)
        try:
            return self.prompt(spec.prompt, spec.paper)
        except UpkeepError as error:
            if error.where is not None:
                raise
            where = self.family_card(self.family_of(dataset))
            raise UpkeepError(
                error.problem, where=where, expected=error.expected, found=error.found, remedy=error.remedy
            ) from None

    def suite(self, name: str) -> Suite:
        return self._card("suite", name, self.suites, self.suites.get(name, self._own_suite(name)), Suite)

    def _own_suite(self, name: str) -> Path:
        return self.root / "config" / "suites" / f"{name}.yaml"

    # ------------------------------------------------------------ cells

    def check(self, cell: Cell) -> None:
        """Refuse a cell that names anything unknown, before anything starts."""
        self.prompt_of(cell.dataset)
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
        self._check_chosen(cell)
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

    def _check_chosen(self, cell: Cell) -> None:
        """Refuse models that a variant gives a role which they cannot play."""
        chosen = self.method(cell.method).variants[cell.variant]
        where = self.root / "methods" / cell.method / "method.yaml"
        for name in CHOSEN & chosen.keys():
            spec, role = self.model(chosen[name]), "generator" if name == "writer" else "embedder"
            if spec.role != role:
                expected = f"a model whose card says `role: {role}`"
                raise UpkeepError(
                    f"variant {cell.variant!r}: {name} {chosen[name]!r}",
                    where=where,
                    expected=expected,
                    found=spec.role,
                )
            if name == "writer" and spec.gpus:
                raise UpkeepError(
                    f"variant {cell.variant!r}: the writer {chosen[name]!r} is on GPUs; only one model of a job is",
                    where=where,
                    expected="a model on the CPU or behind an endpoint",
                    remedy="start a server of it yourself, and name that as an endpoint (docs/endpoints.md)",
                )

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

    def below(self, method: str, model: str) -> str:
        """What a method's image is built on, a folder of `containers/`: the slim base, without any engine; of a method
        that trains, which has its model in its own container, the engine that it trains with."""
        if model == "none" or not self.trains(method):
            return "base"
        return "vllm-gpu" if self.spec(model).gpus else "transformers"

    def engine(self, model: str) -> str | None:
        """The image that serves a model or an embedder, a folder of `containers/`; None where none of ours does."""
        spec = None if model == "none" else self.spec(model)
        if spec is None or spec.engine == "endpoint":
            return None
        if spec.role == "embedder":
            return "embedder-gpu" if spec.gpus else "embedder-cpu"
        if spec.gpus:
            return "vllm-gpu"  # the one image with CUDA; transformers is in it, too
        return "vllm-cpu" if spec.engine == "vllm" else "transformers"

    def engines(self, job: Job) -> list[str]:
        """The images that serve a job's models."""
        return [engine for model in self.asked(job).values() if (engine := self.engine(model)) is not None]

    def images(self, job: Job) -> list[tuple[str | None, str]]:
        """All images that a job needs, as method and folder of `containers/`; engines have no method in theirs."""
        own = (job.method, self.below(job.method, job.model))
        return [own, *((None, engine) for engine in self.engines(job))]

    def trains(self, method: str) -> bool:
        """Whether a method makes a model in place of answering."""
        return self.method(method).trains

    def parameters(self, job: Job) -> dict[str, Any]:
        """The parameters of a job's variant."""
        return {name: v for name, v in self.method(job.method).variants[job.variant].items() if name not in CHOSEN}

    def asked(self, job: Job) -> dict[Role, str]:
        """The models that a job asks, by role; none for a training, which has its model in its own container.

        A variant chooses its writer, which is the reader where it does not, and its embedder, which is the method's
        where it does not. Beside a model on GPUs the embedder is the one on GPUs, where one is named.
        """
        card = self.method(job.method)
        if not card.model or isinstance(job, Training):
            return {}
        roles: dict[Role, str] = {"reader": job.model}
        chosen = card.variants[job.variant]
        if (writer := chosen.get("writer", job.model)) != job.model:
            roles["writer"] = writer
        small, large = chosen.get("embedder"), chosen.get("embedder_gpu")
        if small is None and large is None:
            small, large = card.embedder, card.embedder_gpu
        if embedder := (large or small) if self.spec(job.model).gpus else small:
            roles["embedder"] = embedder
        return roles

    def training_of(self, job: Job) -> Training | None:
        """The training job that makes a job's model, if it is a trained one."""
        trained = TrainedModel.parse(job.model)
        return Training(job.dataset, trained.method, trained.variant, trained.base) if trained else None


def _check_method(path: Path, card: MethodCard) -> None:
    """Refuse a program that is to do what only Python can, and names that stand for nothing."""
    if card.command and (card.trains or card.sees != "documents"):
        raise UpkeepError(
            "a program answers probes over documents, and nothing else",
            where=path,
            expected="`command` without `trains` and `sees`",
            remedy="keep what it knows in the program, or write `method.py`",
        )
    if card.command and path.with_name("method.py").exists():
        raise UpkeepError(
            "two methods in one folder", where=path, expected="`command` or `method.py`", remedy="remove one of them"
        )
    if own := sorted(name for name, role in card.aliases.items() if name in get_args(DoorRole) and name != role):
        raise UpkeepError("a model's own name cannot stand for another", where=path, found=", ".join(own))
    embeds = card.embedder is not None or any("embedder" in chosen for chosen in card.variants.values())
    if not embeds and (lost := sorted(n for n, role in card.aliases.items() if role != "reader")):
        raise UpkeepError(
            f"`aliases` of an embedder, but the method has none: {', '.join(lost)}",
            where=path,
            remedy="name one by `embedder`",
        )


def _unknown(kind: str, name: str, known: Iterable[str], found: str) -> UpkeepError:
    close = difflib.get_close_matches(name, list(known), n=3)
    return UpkeepError(
        f"unknown {kind} {name!r}",
        expected=f"one of {', '.join(sorted(known))}",
        found=found,
        remedy=f"did you mean {' or '.join(close)}?" if close else f"`./upkeep list {kind}s` shows them all",
    )


def _given(path: Path) -> dict[str, object]:
    """The fields that a partial configuration file sets, checked."""
    given = load(path, expected="a Config in YAML")
    checked = convert(given, Config, path, expected="fields as in schema/ (Config)")
    return {name: getattr(checked, name) for name in given}
