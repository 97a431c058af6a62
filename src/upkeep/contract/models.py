"""Models: where weights are or how an endpoint is asked, and how they are decoded."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from upkeep.contract.base import Count, Name, Positive, Record, Seconds, Sha256


class Sampling(Record, frozen=True, kw_only=True):
    """Every sampling parameter, explicit. Nothing is taken from a model's own files."""

    temperature: Annotated[float, Meta(ge=0)] = 0.0
    """0 is greedy."""
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    top_k: Count = 0
    """0 switches it off."""
    min_p: Annotated[float, Meta(ge=0, le=1)] = 0.0
    repetition_penalty: Annotated[float, Meta(gt=0)] = 1.0
    presence_penalty: float = 0.0
    max_tokens: Positive = 4096


class Resources(Record, frozen=True, kw_only=True):
    """What a job may use: the larger of what its method and its model ask for, field by field."""

    cpus: Positive = 1
    memory_gb: Positive = 4
    pids: Positive = 512
    minutes: Positive = 240
    disk_gb: Positive = 10
    gpu_type: str | None = None
    """Kind of GPU, in a cluster's own word (`h100`); null for any."""
    constraint: str | None = None
    """Feature that a cluster's node must have (SLURM's `--constraint`)."""


class Price(Record, frozen=True, kw_only=True):
    """What an endpoint charges, in US dollars for a million tokens."""

    prompt: Annotated[float, Meta(ge=0)]
    completion: Annotated[float, Meta(ge=0)]
    """Reasoning included."""
    cached: Annotated[float, Meta(ge=0)] | None = None
    """Prompt tokens from the provider's prefix cache; null where they cost what the others cost."""


class Endpoint(Record, frozen=True, kw_only=True):
    """How an OpenAI-compatible endpoint (the model's `location`, up to `/v1`) is asked."""

    model: str
    """The model's name there; an answer that names another one is refused."""
    key: str | None
    """Name of the environment variable with the API key; null where none is asked for."""
    price: Price
    requests_per_minute: Positive | None = None
    tokens_per_minute: Positive | None = None
    max_in_flight: Positive = 16
    timeout_s: Seconds = 600.0
    """From sending a request to the last byte of its answer."""
    retries: Count = 6
    tokens_per_byte: Annotated[float, Meta(gt=0, le=4)] = 0.35
    """An upper estimate of prompt tokens, where the provider's tokenizer is not public."""
    fields: dict[str, Any] = {}
    """Further fields of the request's body (`reasoning_effort: low`)."""
    omit: list[Literal["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "seed"]] = []
    """Parameters that the provider does not take. They are not sent; all others always are."""
    limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """What the provider calls the greatest number of tokens to generate, reasoning included."""
    answers_as: list[str] = []
    """Further names that answers may give the model, such as the dated snapshot behind `model`."""


class Attention(Record, frozen=True, kw_only=True):
    """The layers of a model that attend to the whole context; layers with a window or a fixed state are not among them.

    Over long contexts they decide what a token costs.
    """

    layers: Positive
    heads: Positive
    kv_heads: Positive
    """Heads whose keys and values are kept."""
    head_size: Positive


class Widths(Record, frozen=True, kw_only=True):
    """What decides how much memory a token takes in a training."""

    layers: Positive
    hidden: Positive
    feed_forward: Positive
    """Of a mixture of experts, that of all the experts of a token together."""
    vocabulary: Positive


class ModelSpec(Record, frozen=True, kw_only=True):
    """A model: weights or an endpoint, and how it is decoded."""

    label: str
    """The printed name, as in the papers' tables (`Qwen3-30B`)."""
    summary: str
    role: Literal["generator", "embedder"] = "generator"
    source: Literal["hub", "path", "rule", "package", "endpoint"]
    """`hub`: a hub id at a revision; `path`: a local folder; `rule`: made on the spot by a recipe of ours;
    `package`: carried by an installed Python package; `endpoint`: behind an OpenAI-compatible API."""
    location: str
    """Hub id, folder (relative to the repository), recipe name, package name or base URL."""
    revision: str | None = None
    """Commit of the hub repository; required for `hub`."""
    sha256: Sha256 | None = None
    """Content hash of the weights' folder, where it is pinned."""
    context_length: Positive
    """Tokens, prompt and answer together."""
    engine: Literal["transformers", "vllm", "endpoint"] = "transformers"
    endpoint: Endpoint | None = None
    """For the source `endpoint`."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    gpus: Count = 0
    """GPUs needed on each node; 0 runs on the CPU."""
    nodes: Positive = 1
    """Nodes that the model is spread over."""
    parameters_b: Annotated[float, Meta(gt=0)] | None = None
    """Parameters in billions, for estimates; null where they are not public."""
    active_b: Annotated[float, Meta(gt=0)] | None = None
    """Parameters that a token passes, in billions (mixture of experts); null where all are."""
    attention: Attention | None = None
    """For estimates; null where it is not known."""
    widths: Widths | None = None
    """For estimates of trainings; null where it is not known."""
    resources: Resources | None = None
    """What it needs; a method that needs more of something gets that."""
    sampling: Sampling = Sampling()
    chat_template: str | None = None
    """Jinja text that replaces the tokenizer's chat template."""
    thinking: Literal["on", "off"] = "off"
    """Whether the model reasons before it answers; explicit for hybrid models."""
    thinking_tags: tuple[str, str] | None = None
    """The strings around the reasoning (`<think>`, `</think>`)."""
    template_options: dict[str, Any] = {}
    """Passed to the chat template (`enable_thinking: false`)."""
    tool_calls: Literal["hermes", "json"] | None = None
    """How the model writes calls of tools: `hermes` (a JSON object between `<tool_call>` and `</tool_call>`), `json`
    (the answer is the JSON object, or a list of them); null where it cannot. Endpoints need none."""
    rope_scaling: dict[str, Any] | None = None
    """YaRN, where the context is extended (OAKS, C.1.4)."""
    query_prefix: str = ""
    """Embedders: put before a query."""
    document_prefix: str = ""
    """Embedders: put before a document."""
    cutoff: str | None = None
    """Knowledge cut-off date, ISO 8601."""
    licence: str = ""
    trained: bool = True
    """False for a model with random weights; the report says so."""
    extra: dict[str, Any] = {}
    """Parameters of a `rule`."""


class ModelCard(ModelSpec, frozen=True, kw_only=True):
    """`models/<model>/model.yaml`: a model, and models of the same weights that differ in some fields."""

    presets: dict[Name, dict[str, Any]] = {}
    """Name -> the fields in which the model `<model>-<name>` differs. What is given takes the place of what the card
    gives, whole; of `endpoint`, field by field. A generator's card that has presets and no `sampling` of its own is no
    model by itself: its presets are."""
