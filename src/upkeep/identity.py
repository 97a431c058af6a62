"""What determines the answers of a cell, and its hash.

A cell's identity is the hash of all that its container is told (`describe`), but for paths, and of the contents behind
it: dataset, code, locked requirements, weights. Same identity: reuse. Anything else: run again. Machine,
runtime and places are no part of it. Planning (`plan_*`) hashes what those contents are made from, so that the DAG is
known before anything is built.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from upkeep import inputs, weights
from upkeep.catalog import BESIDE_CODE, EMBEDDERS, Catalog
from upkeep.contract import STREAM, CellDescription, EngineSettings, PromptCard, Resources, Role, Sampling, TrainingSet
from upkeep.errors import UpkeepError
from upkeep.fields import DATASET, DESCRIPTION, MODEL, PROMPT, hashed, part, plain
from upkeep.files import digest
from upkeep.jobs import Cell, Job, Training
from upkeep.method_cards import sees_of, supervision_of
from upkeep.samples import of_config
from upkeep.sources import listing, meaning, tree, wordless

METHOD_CODE = ("src/upkeep/cell", "src/upkeep/contract")
"""The suite's own code in a method's container."""
IMAGE_CODE = (*METHOD_CODE, "src/upkeep/serving")
"""The same in one that has the packages of an engine."""
CELL_CODE = (*METHOD_CODE, "src/upkeep/execution/rounds.py")
"""What a cell's own container runs, and what decides which probes are answered together."""
BUILDERS_CODE = (
    "src/upkeep/building",
    "src/upkeep/grading/matching.py",
    "src/upkeep/normal_form.py",
    "src/upkeep/questions.py",
)
"""What all builders share; which model annotates them is an option, and its replies are on record."""
ENGINE_CODE = (
    "cell/lockstep.py",
    "cell/tokens.py",
    "cell/toolcalls.py",
    "serving/drafts.py",
    "serving/keys.py",
    "serving/lanes.py",
    "serving/llama.py",
    "serving/llama_files.py",
    "serving/loading.py",
    "serving/sampling.py",
    "serving/segments.py",
    "serving/serve.py",
    "serving/transformers_engine.py",
    "serving/vllm_attention.py",
    "serving/vllm_engine.py",
    "serving/vllm_prefixes.py",
)
"""What lies between a request and a language model's reply, and what an engine of a method's own may use of it."""
ADAPTER_CODE = ("cell/adapters.py",)
"""What besides lies there for a model with adapters."""
SET_CODE = ("serving/several.py",)
"""What besides lies there for a member of a set that shares its engine with the others."""
EMBEDDER_CODE = ("cell/embedder.py", "serving/embedder.py", "serving/embedding.py")
"""What lies between a text and its vector."""
TRAINING_CODE = (
    "cell/adapters.py",
    "cell/budget.py",
    "cell/finetuning.py",
    "cell/interface.py",
    "cell/loading.py",
    "cell/method.py",
    "cell/processes.py",
    "cell/prompts.py",
    "cell/samples.py",
    "cell/training.py",
)
"""What a training runs: it is not replayed, so nothing else makes a trained model stale."""


# ---------------------------------------------------------------- what a container is told


def describe(catalog: Catalog, job: Job, chunk_tokens: int) -> CellDescription:
    """A job's description but for its paths.

    Args:
        chunk_tokens: the dataset's, from its card; 1 while it is not built.
    """
    training = isinstance(job, Training)
    card, suite = catalog.method(job.method), catalog.suite(catalog.config.suite)
    spec = catalog.spec(job.model) if card.model else None
    asked = catalog.asked(job)
    if training and spec is not None and not asked:
        spec = msgspec.structs.replace(spec, sampling=Sampling())  # nobody decodes: how is not told
    return CellDescription(
        task="train" if training else "answer",
        dataset=job.dataset,
        method=job.method,
        variant=job.variant,
        model=job.model,
        parameters=catalog.parameters(job),
        command=card.command,
        aliases=card.aliases,
        one_at_a_time=card.one_at_a_time,
        per_question=card.per_question,
        max_calls=card.max_calls,
        model_spec=spec,
        model_path=None,
        writer_spec=catalog.spec(asked["writer"]) if "writer" in asked else None,
        embedder_spec=catalog.model(asked["embedder"]) if "embedder" in asked else None,
        engine=engine_settings(catalog, job, job.model),
        trials=1 if isinstance(job, Training) else catalog.trials(job, suite),
        seed=suite.seed,
        chunk_tokens=chunk_tokens,
        prompt=_prompt(catalog, job.dataset),
        output="/output",
    )


def engine_settings(catalog: Catalog, job: Job, model: str) -> EngineSettings:
    """How a language model of a job is served; of a method that asks none, what its own container has."""
    card = catalog.method(job.method)
    name = "own" if card.engine == "own" else catalog.spec(model).engine if card.model else "none"
    return EngineSettings(name=name, threads=resources(catalog, job.method, model).cpus)


def resources(catalog: Catalog, method: str, model: str) -> Resources:
    """What a job may use: the larger of what its method and its model ask for, field by field."""
    return catalog.once(_resources, catalog, method, model)


def _resources(catalog: Catalog, method: str, model: str) -> Resources:
    card = catalog.method(method)
    asked = [card.resources]
    if card.model and (of_model := catalog.spec(model).resources):
        asked.append(of_model)
    given = {n: [v for one in asked if (v := getattr(one, n)) is not None] for n in Resources.__struct_fields__}
    # A kind of node is named, not counted: the model's word rules.
    chosen = {n: v[-1] if isinstance(v[0], str) else max(v) for n, v in given.items() if v}
    return msgspec.convert(chosen, Resources)


def _prompt(catalog: Catalog, dataset: str) -> PromptCard:
    """A dataset's prompt; the user's own text, where the configuration names one, stands for all of its texts."""
    card, name = catalog.prompt_of(dataset), catalog.dataset(dataset).prompt
    if (file := catalog.config.prompts.get(name)) is None:
        return card
    path = catalog.root / Path(file).expanduser()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UpkeepError(
            f"the text for prompt {name!r} cannot be read: {error}",
            where=path,
            remedy="mend `prompts:` in your configuration",
        ) from None
    return msgspec.structs.replace(card, system=text, closed=text, asks={}, chinese=None)


def _told(catalog: Catalog, description: CellDescription) -> dict[str, str]:
    """The parts of an identity that are what the container is told."""
    values = part(description, DESCRIPTION, "in") or {}
    if description.model_spec is not None and description.model_spec.gpus:
        # Beside a GPU, threads decide how fast it is fed; on a CPU, in which order numbers are added.
        del values["engine"]["threads"]
    parts = {name: value if isinstance(value, str) else plain(value) for name, value in values.items()}
    parts["prompt"] = catalog.once(_told_of_prompt, catalog, description.dataset)
    parts["model_spec"] = plain(part(description.model_spec, MODEL, "in"))
    parts["writer_spec"] = plain(part(description.writer_spec, MODEL, "in"))
    parts["embedder_spec"] = plain(part(description.embedder_spec, MODEL, "in"))
    return parts


def _told_of_prompt(catalog: Catalog, dataset: str) -> str:
    return digest(part(_prompt(catalog, dataset), PROMPT, "in"))


def _code(catalog: Catalog, job: Job) -> dict[str, str]:
    """The parts that are code and locked requirements: of the method's own container, and of those that serve it."""
    trains, asked = isinstance(job, Training), tuple(catalog.asked(job).items())
    return catalog.once(_code_of, catalog, trains, job.method, job.variant, job.model, asked)


def _code_of(
    catalog: Catalog, trains: bool, method: str, variant: str, model: str, asked: tuple[tuple[Role, str], ...]
) -> dict[str, str]:
    """Of all jobs that differ in their datasets alone, if they ask the same models."""
    card = catalog.method(method)
    engines = [(role, engine) for role, name in asked if (engine := catalog.engine(name)) is not None]
    return {
        "sees": sees_of(card, variant),
        "streams": str(card.streams),
        "method_code": _method_code(catalog, method),
        "cell_code": meaning(catalog, TRAINING_CODE) if trains else wordless(catalog, *CELL_CODE),
        "requirements": _requirements(catalog, method, catalog.below(method, model)),
        **({"engine_requirements": digest([_requirements(catalog, None, e) for _, e in engines])} if engines else {}),
        **({"own_code": meaning(catalog, ENGINE_CODE)} if card.engine == "own" else {}),
        # A comment in the code that serves a model makes no cell stale.
        **{f"{r}_code": meaning(catalog, EMBEDDER_CODE if r == "embedder" else ENGINE_CODE) for r, _ in engines},
    }


# ---------------------------------------------------------------- identities


def identity(catalog: Catalog, job: Job) -> tuple[str, dict[str, str]]:
    """The hash of all that determines a job's answers, and its parts by name.

    Raises:
        Missing, Damaged: the dataset or the weights are not there, or not what was written.
    """
    card = inputs.dataset(catalog, job.dataset)
    description = describe(catalog, job, card.chunk_tokens)
    parts = {**_told(catalog, description), **_code(catalog, job)}
    parts |= {name: card.content[name] for name in _read_of_dataset(catalog, job)} | _trained_on(catalog, job)
    if description.model_spec is not None:
        parts["weights"] = weights.find(catalog, job.model, job.dataset)[1].sha256
    for role, model in catalog.asked(job).items():
        if role != "reader":
            parts[f"{role}_weights"] = weights.find(catalog, model, job.dataset)[1].sha256
    parts |= _sampled(catalog, job)
    if isinstance(job, Cell):  # a model is trained again where what it is trained on has changed
        parts |= _version(card.dataset_version)
    return digest(parts), parts


def _version(number: int) -> dict[str, str]:
    """The part of an identity that says a dataset's version. The first is in none: older results have no such part."""
    return {DATASET_VERSION: str(number)} if number > 1 else {}


DATASET_VERSION = "dataset_version"


BY_SUITE = ("seed", "trials")
"""The parts of an identity that a suite decides, and no card, code or data."""
READ = {
    "documents": ("documents", "probes", "examples"),
    "evidence": ("documents", "probes", "examples", "evidence"),
    "answers": ("documents", "probes", "examples", "evidence", "answers", "outdated"),
}
"""Parts of a dataset that a cell reads, by what its method sees; slices are read by none."""


def _read_of_dataset(catalog: Catalog, job: Job) -> tuple[str, ...]:
    """Parts of a dataset that a job reads (`DatasetCard.content`)."""
    card = catalog.method(job.method)
    given = supervision_of(card, job.variant)
    if not isinstance(job, Training):
        training = catalog.training_of(job)
        by = catalog.training_set(training).by if training is not None else None
        sliced = () if by in (None, STREAM) else ("slices",)
        return (*READ[sees_of(card, job.variant)], *(("pairs",) if "Q" in given else ()), *sliced)
    chosen = catalog.training_set(job)
    parts = ["pairs"] if "Q" in given else []
    if "C" in given or chosen != TrainingSet():
        parts.append("documents")
    return (*parts, "examples")


def _trained_on(catalog: Catalog, job: Job) -> dict[str, str]:
    """The parts of an identity that say what a model is trained on: nothing where that is all of a dataset."""
    chosen = catalog.training_set(job) if isinstance(job, Training) else TrainingSet()
    return {} if chosen == TrainingSet() else {"training_set": plain(hashed(chosen))}


def _sampled(catalog: Catalog, job: Job) -> dict[str, str]:
    """The part of an identity that says which questions a cell is asked; of one that is asked all there is none."""
    sample = of_config(catalog.config)
    return {} if sample is None or not isinstance(job, Cell) else {"sample": plain(hashed(sample))}


def plan_identity(catalog: Catalog, cell: Cell) -> str:
    """What determines a cell's answers, as far as it is known before anything is built."""
    return digest(_planned(catalog, cell))


def plan_training(catalog: Catalog, training: Training) -> str:
    """As `plan_identity`, for a training."""
    return digest(_planned(catalog, training))


def _planned(catalog: Catalog, job: Job) -> dict[str, str]:
    description = describe(catalog, job, chunk_tokens=1)
    parts = {
        **_told(catalog, description),
        **_code(catalog, job),
        **_trained_on(catalog, job),
        **_sampled(catalog, job),
    }
    parts["dataset_content"] = plan_dataset(catalog, job.dataset)
    if description.model_spec is not None:
        parts["weights"] = _plan_model(catalog, job.model, job.dataset)
    for role, model in catalog.asked(job).items():
        if role != "reader":
            parts[f"{role}_weights"] = _plan_model(catalog, model, job.dataset)
    return parts


def _plan_model(catalog: Catalog, model: str, dataset: str) -> str:
    training = catalog.made_by(model, dataset)
    return plan_weights(catalog, model) if training is None else plan_training(catalog, training)


def plan_dataset(catalog: Catalog, dataset: str) -> str:
    """What a dataset is made from: its options and pins, its family's code and files, what builders share, and the
    user's own files.

    A dataset may be made of another's files if its name begins with the other's: a control set of the same feed.
    As in `tree`, that is worked out once for a catalog.
    """
    return catalog.once(_plan_dataset, catalog, dataset)


def _plan_dataset(catalog: Catalog, dataset: str) -> str:
    own = {k: v for k, v in catalog.config.data.items() if f"{dataset}_".startswith(f"{k.partition('.')[0]}_")}
    parts = {
        "spec": plain(part(catalog.dataset(dataset), DATASET, "in")),
        "code": tree(catalog, *BUILDERS_CODE, without=("annotator.py",)),
        "files": tree(catalog, f"datasets/{catalog.family_of(dataset)}", without=("dataset.yaml", "README.md")),
        "paths": plain({k: listing(catalog, v) for k, v in own.items()}),
        **_version(catalog.dataset(dataset).version),
    }
    return digest(parts)


def plan_image(catalog: Catalog, method: str | None, engine: str) -> str:
    """What an image or environment is made from: its requirements, and the code in it; None is an engine's own."""
    code = _method_code(catalog, method) if method is not None else ""
    return digest([_requirements(catalog, method, engine), code, tree(catalog, *image_code(engine))])


def image_code(engine: str) -> tuple[str, ...]:
    """The suite's own code in an image: that of engines is where their packages are."""
    return METHOD_CODE if engine == "base" else IMAGE_CODE


def _requirements(catalog: Catalog, method: str | None, engine: str) -> str:
    """Locked requirements and build instructions of an image."""
    folders = dict.fromkeys(["method", EMBEDDERS.get(engine, engine), engine])
    places = [f"containers/{name}" for name in (*folders, "install", "inventory.py")]
    if method is not None:
        places += [f"methods/{method}/requirements.{end}" for end in ("in", "lock")]
    return tree(catalog, *places)


def _method_code(catalog: Catalog, method: str) -> str:
    return tree(catalog, f"methods/{method}", without=BESIDE_CODE)


def plan_weights(catalog: Catalog, model: str) -> str:
    """What a model's weights are: where they come from, at which revision, or how they are made."""
    return catalog.once(_plan_weights, catalog, model)


def _plan_weights(catalog: Catalog, model: str) -> str:
    spec, own = catalog.model(model), catalog.own_weights(model)
    parts = {
        "spec": plain(part(spec, MODEL, "content")),
        "recipe": tree(catalog, "src/upkeep/serving/make_model.py") if spec.source == "rule" else "",
        "path": listing(catalog, own) if own else "",
    }
    return digest(parts)
