"""The folders that users write (methods/, models/, datasets/, papers/, config/), read into typed records.

Nothing else lists what exists: a method is there because its folder is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from upkeep import choices, families, method_cards
from upkeep.configuration import read_config
from upkeep.contract import CellChoice, DatasetSpec, MethodCard, ModelSpec, PromptCard, Record, Role, Suite, TrainingSet
from upkeep.errors import UpkeepError, unknown
from upkeep.files import folders_with
from upkeep.integrity import Hashes
from upkeep.jobs import Cell, Job, TrainedModel, Training, untrained
from upkeep.method_cards import CHOSEN, MODELS, check_method, embedder_of
from upkeep.model_cards import CARD, ModelCards
from upkeep.yaml_files import read_yaml

R = TypeVar("R", bound=Record)
T = TypeVar("T")

CONTROLS = ("null", "gold")
EMBEDDERS = {"embedder-cpu": "transformers", "embedder-gpu": "vllm-gpu"}
"""The images of embedders, and the engines whose packages they add theirs to."""
BESIDE_CODE = frozenset({"README.md", "method.yaml", "requirements.in", "overrides.in", "requirements.lock"})
"""What a method's folder holds beside its code."""


class Catalog:
    """All that this copy of the suite knows, by id. Files are read once, when first asked for."""

    def __init__(self, root: Path, config_file: Path | None = None, chosen: Mapping[str, str] | None = None) -> None:
        """`chosen` has the fields of the configuration that a command line decides."""
        self.root = root
        self.config = read_config(root, config_file, chosen or {})
        self.results = root / self.config.results
        self.cache = root / self.config.cache
        self._cards: dict[tuple[str, str], tuple[Path, Record]] = {}
        self._model_cards = ModelCards(root)
        self._family_of: dict[str, str] = {}
        self._once: dict[tuple[Any, ...], Any] = {}
        self.hashes = Hashes(None if self.config.verify else self.cache / "hashes")
        """Of what lies under results and cache."""

    def once(self, what: Callable[..., T], *of: Any) -> T:
        """What follows from this snapshot alone: worked out when it is first asked for."""
        if (key := (what, *of)) not in self._once:
            self._once[key] = what(*of)
        return self._once[key]  # type: ignore[no-any-return]

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

    def release(self, suite: str) -> Path:
        """Folder of what a release recorded of a suite."""
        return self.root / "releases" / suite

    # ------------------------------------------------------------ cards

    def _card(
        self,
        kind: str,
        name: str,
        known: Collection[str],
        place: str | Path,
        record: type[R],
        check: Callable[[Path, R], None] = lambda path, card: None,
    ) -> R:
        if (read := self._cards.get((kind, name))) is None:
            path = self.root / place
            if name not in known:
                raise unknown(kind, name, known, f"no {path.relative_to(self.root)}")
            card = read_yaml(path, record)
            check(path, card)
            read = self._cards[kind, name] = path, card
        return read[1]  # type: ignore[return-value]

    def method(self, name: str) -> MethodCard:
        return self._card("method", name, self.methods, f"methods/{name}/method.yaml", MethodCard, check_method)

    def model(self, name: str) -> ModelSpec:
        return self._model_cards.spec(self._model_file(name), name)

    def _model_file(self, name: str) -> Path:
        if (path := self.once(self._model_cards.find, name)) is None:
            raise unknown("model", name, self.models, f"no models/{name}/{CARD}")
        return path

    def spec(self, model: str) -> ModelSpec:
        """The card of a model, or, of a trained one, that of the model it was made of in the beginning."""
        return self.model(untrained(model))

    def model_card(self, model: str) -> str:
        """The file that `spec` is read from, relative to the repository."""
        return str(self._model_file(untrained(model)).relative_to(self.root))

    def own_weights(self, model: str) -> str | None:
        """Where the user has a model's weights, as the configuration says of the model itself, or of its card: presets
        share them."""
        own = self.config.models
        return own.get(model) or (own.get(self._model_file(model).parent.name) if own else None)

    def family(self, name: str) -> dict[str, DatasetSpec]:
        """The datasets of a family, by id."""
        return self.once(self._read_family, name)

    def _read_family(self, name: str) -> dict[str, DatasetSpec]:
        return families.read_family(self.family_card(name))

    def family_card(self, name: str) -> Path:
        """The file that says what a family's datasets are made of; their builder's code is beside it."""
        return self.root / "datasets" / name / families.CARD

    def family_of(self, dataset: str) -> str:
        """The family that a dataset is a variant of.

        Raises:
            UpkeepError: there is no such dataset, two families have it, or the file of one that may have it is wrong.
        """
        if dataset not in self._family_of:
            named = families.that_may_have(dataset, self.families)
            owners = [name for name in named if dataset in self.family(name)]
            if not owners:
                place = self.family_card(max(named, key=len, default=dataset)).relative_to(self.root)
                raise unknown(
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

    def has_dataset(self, name: str) -> bool:
        """Whether there is such a dataset: no file is read of a family that by its name cannot have it."""
        return any(name in self.family(one) for one in families.that_may_have(name, self.families))

    def dataset(self, name: str) -> DatasetSpec:
        return self.family(self.family_of(name))[name]

    def prompt(self, name: str, paper: str = "*") -> PromptCard:
        """A prompt of any paper; `paper` says whose folder it is missed in, where there is none."""
        path = self.prompts.get(name, f"papers/{paper}/prompts/{name}.yaml")
        return self._card("prompt", name, self.prompts, path, PromptCard)

    def prompt_of(self, dataset: str) -> PromptCard:
        """The prompt that a dataset's card names.

        Raises:
            UpkeepError: there is none of that name, with the dataset's card; or the prompt's own is wrong; or the
                configuration has a text for one that there is not.
        """
        if lost := sorted(self.config.prompts.keys() - self.prompts.keys()):
            raise unknown("prompt", lost[0], self.prompts, "a text for it under `prompts:` in your configuration")
        spec = self.dataset(dataset)
        try:
            return self.prompt(spec.prompt, spec.paper)
        except UpkeepError as error:
            if error.where is not None:
                raise
            raise error.at(self.family_card(self.family_of(dataset))) from None

    def suite(self, name: str) -> Suite:
        path = self.suites.get(name, f"config/suites/{name}.yaml")
        return self._card("suite", name, self.suites, path, Suite)

    # ------------------------------------------------------------ cells

    def check(self, cell: Cell) -> None:
        """Refuse a cell that names anything unknown, or that answers nothing, before anything starts."""
        if self.trains(cell.method):
            raise method_cards.answers_nothing(cell)
        self._check(cell)

    def _check(self, cell: Cell) -> None:
        self.prompt_of(cell.dataset)
        card = self.method(cell.method)
        if cell.variant not in card.variants:
            raise UpkeepError(
                f"method {cell.method!r} has no variant {cell.variant!r}",
                expected=f"one of {', '.join(card.variants)}",
                remedy=f"choose another, or add it under `variants:` in methods/{cell.method}/method.yaml",
            )
        if not card.model:
            method_cards.check_none(cell)
            return
        self.once(self.check_variant, cell.method, cell.variant)
        below = [self.method(one.method) for one in self.trainings_of(cell)]
        method_cards.check_weights(cell, card, below, self.spec)
        if (trained := TrainedModel.parse(cell.model)) is None:
            method_cards.check_reader(cell, self.model)
            return
        if not self.trains(trained.method):
            raise UpkeepError(f"method {trained.method!r} trains no model", found=cell.model)
        if self.spec(trained.base).source == "endpoint":
            raise UpkeepError(
                "a model behind an endpoint cannot be trained here",
                expected="a model whose weights are at hand",
                found=cell.model,
            )
        training = self.made_by(cell.model, cell.dataset)
        assert training is not None  # its name has been read
        self.check_training(training)

    def check_variant(self, method: str, variant: str) -> None:
        """Refuse a variant with models that there are not, or that cannot play the role which it gives them."""
        card = self.method(method)
        own = {"embedder": card.embedder, "embedder_gpu": card.embedder_gpu} | card.variants[variant]
        chosen = {name: str(own[name]) for name in sorted(MODELS & own.keys()) if own[name] is not None}
        method_cards.check_models(self.root / "methods" / method / "method.yaml", variant, chosen, self.model)

    def check_training(self, training: Training) -> None:
        """As `check`, for a training."""
        if not self.trains(training.method):
            raise UpkeepError(f"method {training.method!r} trains no model", remedy=f"./upkeep cell {training}")
        self.training_set(training)
        self._check(Cell(training.dataset, training.method, training.variant, training.model))
        below = [self.method(one.method) for one in self.trainings_of(training)]
        method_cards.check_prefix(training, self.method(training.method), below, self.spec)

    def training_set(self, training: Training) -> TrainingSet:
        """What of its dataset a model is trained on.

        Raises:
            UpkeepError: the dataset's card names no such set.
        """
        sets = self.dataset(training.dataset).training
        if training.set and training.set not in sets:
            raise UpkeepError(
                f"dataset {training.dataset!r} has no training set {training.set!r}",
                where=self.family_card(self.family_of(training.dataset)),
                expected=f"one of {', '.join(sets)}" if sets else "a name under `training`",
                remedy="choose another, or add it there",
            )
        return sets[training.set] if training.set else TrainingSet()

    def cells(self, suite: Suite) -> list[Cell]:
        """The cells of a suite, checked, each once, in the order of the file.

        Raises:
            UpkeepError: with the suite's file, it names what there is not; or a card is wrong.
        """
        if self.config.model is not None:
            self.spec(self.config.model)
        try:
            for paper in suite.papers:
                if paper not in self.papers:
                    raise unknown("paper", paper, self.papers, f"no papers/{paper}/tables.yaml")
            choices.require_one_number(suite, self.method)
            return list(dict.fromkeys(cell for choice in suite.cells for cell in self.cells_of(choice)))
        except UpkeepError as error:
            if error.where is not None:
                raise
            raise error.at(next((path for path, card in self._cards.values() if card is suite), None)) from None

    def cells_of(self, choice: CellChoice) -> Iterator[Cell]:
        """The cells of one choice of a suite, checked, in its order; raises as `check`."""
        for cell in choices.each(choice, self.method, self._models):
            self.check(cell)
            yield cell

    def trials(self, cell: Cell, suite: Suite) -> int:
        """How often each probe of a cell is asked: as the suite's choices have it, the largest number where one model
        takes the place of several; of a cell that it has not, as the suite itself says."""
        of = [choice for choice in suite.cells if choices.has(choice, cell, self.method, self._models)]
        return max((choices.asked_by(choice, suite) for choice in of), default=suite.trials)

    def _models(self, choice: CellChoice, method: MethodCard) -> Iterable[str]:
        """The models of a choice; where one takes their place, that one, trained as they are. What is behind an
        endpoint is not trained, gives no method its weights, and no probabilities of it are measured."""
        if self.config.model is None:
            return choice.models
        trainings = dict.fromkeys(model.partition("+")[1:] for model in choice.models)
        if self.spec(self.config.model).source == "endpoint":
            return [self.config.model for one in trainings if not (any(one) or method.measures or method.holds_model)]
        return [self.config.model + "".join(training) for training in trainings]

    def below(self, method: str, model: str) -> str:
        """What a method's image is built on, a folder of `containers/`: the slim base, without any engine; of a method
        that holds its model, what its model runs with."""
        if model == "none" or not self.method(method).holds_model:
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
        return [(job.method, self.below(job.method, job.model)), *((None, engine) for engine in self.engines(job))]

    def trains(self, method: str) -> bool:
        """Whether a method makes a model in place of answering."""
        return self.method(method).trains

    def parameters(self, job: Job) -> dict[str, Any]:
        """The parameters of a job's variant."""
        return {name: v for name, v in self.method(job.method).variants[job.variant].items() if name not in CHOSEN}

    def asked(self, job: Job) -> Mapping[Role, str]:
        """The models that a job asks, by role: not the one in its own container, but for a training that asks it first.

        A variant chooses its writer, which is the reader where it does not, and its embedder, which is the method's
        where it does not (`embedder_of`).
        """
        return self.once(self._asked, job)

    def _asked(self, job: Job) -> Mapping[Role, str]:
        card = self.method(job.method)
        if not card.model or (card.holds_model and not card.asks):
            return {}
        roles: dict[Role, str] = {"reader": job.model}
        if (writer := card.variants[job.variant].get("writer", job.model)) != job.model:
            roles["writer"] = writer
        if embedder := embedder_of(card, job.variant, self.spec(job.model), lambda: self.dataset(job.dataset)):
            roles["embedder"] = embedder
        return roles

    def training_of(self, job: Job) -> Training | None:
        """The training job that makes a job's model, if it is a trained one."""
        return self.made_by(job.model, job.dataset)

    def made_by(self, model: str, dataset: str) -> Training | None:
        """The training job that makes a model which is asked about a dataset; None where it is not trained here."""
        made = TrainedModel.parse(model)
        return (
            None if made is None else Training(made.dataset or dataset, made.method, made.variant, made.base, made.set)
        )

    def trainings_of(self, job: Job) -> Iterator[Training]:
        """The trainings behind a job's model, the latest first."""
        training = self.training_of(job)
        while training is not None:
            yield training
            training = self.training_of(training)
