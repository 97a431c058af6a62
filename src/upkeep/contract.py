"""Every file that crosses a boundary, as a typed record.

These records are the single definition of the contracts: the library decodes files straight into them (fast, strict,
with the field named on error) and `schema/*.schema.json` is generated from them (`upkeep schema`).

The module imports nothing but msgspec and the standard library, for it travels into every container.
"""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, defstruct
from msgspec.structs import fields as fields_of

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$", max_length=120)]
"""An id that is also a folder's name."""
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Meta(ge=0, le=2**53 - 1)]
"""Bounded to what every JSON reader holds exactly."""
Positive = Annotated[int, Meta(ge=1, le=2**53 - 1)]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
Text = Annotated[str, Meta(max_length=1_000_000)]
Measurement = Annotated[float, Meta(ge=-1e300, le=1e300)]
"""A finite number."""

MAX_LINE_BYTES = 8 * 1024 * 1024
"""The longest line that is read from a container; a longer one is refused without being held in memory."""


class Record(Struct, forbid_unknown_fields=True, frozen=True):
    """Base of all records: immutable, and an unknown field is an error."""


class Sealed(Record, frozen=True, kw_only=True):
    """A record that shows when it has been changed after it was written (`upkeep.integrity`)."""

    seal: Sha256 | None = None
    """Hash of all that the record says besides; null only before it is written."""


class Fingerprint(Record, frozen=True, kw_only=True):
    """What a file is, so that another one in its place shows."""

    size: Count
    """Bytes: another size is noticed without reading the file."""
    sha256: Sha256


# ---------------------------------------------------------------- predictions


class Retrieved(Record, frozen=True, kw_only=True):
    """One retrieved document."""

    id: str
    """Document id."""
    score: float
    """The retriever's score; comparable within one prediction only."""
    rank: Positive
    """1 for the best."""


class Usage(Record, frozen=True, kw_only=True):
    """Tokens of all model calls behind one prediction."""

    prompt: Count = 0
    """Prompt tokens sent."""
    completion: Count = 0
    """Tokens generated, reasoning included."""
    calls: Count = 0
    """Model calls."""


class ContextUse(Record, frozen=True, kw_only=True):
    """What of the arrived documents reached the prompt."""

    documents: Count = 0
    """Documents in the prompt."""
    dropped: Count = 0
    """Documents left out because the model's limit was reached, oldest first (OAKS, 4 and C.1.3)."""


class Measured(Record, frozen=True, kw_only=True):
    """What a machine measured. It differs from run to run, so it is kept apart from the predictions when published."""

    latency_s: Seconds = 0.0
    """From the first model call to the response."""
    cached: Count = 0
    """Prompt tokens whose keys and values came from the prefix cache."""


Form = Literal["short", "choice", "label"]
"""How an answer is asked for: in a few words; as an option's letter; as one of the options themselves (`yes`, `no`)."""

Finish = Literal["stop", "length", "none"]
"""Why generation ended; `none` where no model was called or the call failed."""


class Prediction(Record, frozen=True, kw_only=True):
    """One answer to one probe in one trial: a line of `predictions.jsonl`. A failure is a line with `error` set."""

    probe_id: Annotated[str, Meta(min_length=1, max_length=400)]
    trial: Count
    response: Text | None
    """The model's raw text, reasoning removed; null where there is none."""
    reasoning: Text | None
    """The thinking text of a reasoning model; null where there is none."""
    finish_reason: Finish
    retrieved: list[Retrieved]
    usage: Usage
    context: ContextUse
    error: Annotated[str, Meta(max_length=10_000)] | None
    """Why there is no answer; null where there was no failure."""
    values: Annotated[
        dict[Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._%+-]*$", max_length=60)], Measurement],
        Meta(max_length=64),
    ] = {}
    """Numbers that the method measured, by name."""
    calls: list[Sha256] = []
    """What the host keeps each call of a model by, in order: `upkeep show` finds prompt and reply by it. None of a call
    that nothing was said to, nor where no gateway stands between."""
    measured: Measured | None = None
    """Only in the container's own output; published predictions have none."""


# ---------------------------------------------------------------- what a container is given


class Document(Record, frozen=True, kw_only=True):
    """A unit of a corpus."""

    id: str
    stream: str
    position: Count
    """Place in its stream, from 0."""
    timestamp: str | None
    """ISO 8601, where the stream has dates."""
    text: str


class Probe(Record, frozen=True, kw_only=True):
    """One question at one point of a stream, as a method sees it: nothing in it tells the answer."""

    id: str
    question_id: str
    stream: str
    position: Count
    """The last document that has arrived when the question is asked."""
    question: str
    options: list[str] | None
    """Multiple choice: the options in order, A first; the permitted labels; null for open questions."""
    form: Form
    """How the answer is asked for."""


class Gold(Record, frozen=True, kw_only=True):
    """The answer key of a probe; a container gets it only for the control `gold` or, without answers, for `oracle`."""

    probe_id: str
    answers: list[str]
    """Every accepted answer (an option's letter for multiple choice)."""
    outdated: list[str]
    """Answers that were right before and no longer are."""
    evidence: list[str]
    """Ids of the documents that hold the evidence; the last one is where the present answer began."""
    context: list[str] = []
    """The words that the question was made from, where the paper's oracle reads them in place of whole documents."""


class Pair(Record, frozen=True, kw_only=True):
    """A question with its answer, to train on or to show as an example."""

    question: str
    answer: str


class Round(Record, frozen=True, kw_only=True):
    """A line that the host writes to the container: documents that arrive now, then the probes to answer.

    The next round is sent when every probe of this one is answered, so what has not arrived is not in the container.
    """

    documents: list[Document]
    probes: list[Probe]
    gold: list[Gold] = []
    done: list[tuple[str, Count]] = []
    """Probes of this round, by id and trial, that an earlier container has answered: they are not asked again."""


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


class Rules(Record, frozen=True, kw_only=True):
    """System texts, word for word."""

    system: str
    """Where the model reads a context."""
    closed: str
    """Where it is asked without one: a rule to rely on the text alone would forbid any answer."""


class Headings(Record, frozen=True, kw_only=True):
    """Lines above the parts of what the user says; an empty one is left out."""

    context: str
    question: str


class PromptCard(Rules, frozen=True, kw_only=True):
    """`papers/<paper>/prompts/<prompt>.yaml`: how a dataset's probes are put to a model (`upkeep.cell.prompts`)."""

    form: Form
    """The usual form of an answer, and that of training pairs."""
    marker: Annotated[str, Meta(min_length=1)]
    """What the reply is to put before the answer."""
    headings: Headings
    asks: dict[Form, str] = {}
    """What follows the system text for each form of answer, where the dataset has several."""
    chinese: Rules | None = None
    """The system texts for questions in Chinese, where they are others."""
    indexed: bool = False
    """Whether the question names the newest document's index where documents are shown with theirs."""


Role = Literal["reader", "writer", "embedder"]
"""What a model is to a cell: it answers; it writes what a method keeps as documents arrive; it makes vectors."""


class EngineSettings(Record, frozen=True, kw_only=True):
    """How the engine of a cell is started."""

    name: Literal["transformers", "vllm", "endpoint", "none"]
    threads: Positive = 1
    max_in_flight: Positive = 256
    """Probes that are answered at the same time."""
    prefix_cache: bool = True
    shuffle: bool = False
    """Benchmarks only: send requests in random order."""
    options: dict[str, Any] = {}


DoorRole = Literal["reader", "embedder", "embedder_query"]
"""What code from elsewhere may ask for (`upkeep.cell.door`): the language model; the embedder, of documents, of
queries. What the embedder's card puts before each is put there."""

Aliases = dict[Annotated[str, Meta(min_length=1, max_length=200)], DoorRole]


class CellDescription(Record, frozen=True, kw_only=True):
    """`cell.json`: all that a container is told. Paths are as the container sees them."""

    task: Literal["answer", "train"]
    dataset: Name
    method: Name
    variant: Name
    model: Name
    parameters: dict[str, Any]
    """The variant's parameters."""
    command: list[str] = []
    """The method's program, where it is none of Python's."""
    aliases: Aliases = {}
    one_at_a_time: bool = False
    max_calls: Positive = 10_000
    """Of a unit through the door."""
    model_spec: ModelSpec | None
    """None for a method that calls no model."""
    model_path: str | None
    writer_spec: ModelSpec | None = None
    """Of the model that is asked as documents arrive; null where that is the reader."""
    writer_socket: str | None = None
    """Unix socket of the way to it."""
    embedder_spec: ModelSpec | None = None
    embedder_socket: str | None = None
    """Unix socket of the embedder, which is outside this container."""
    engine: EngineSettings
    trials: Positive = 1
    seed: Count = 0
    chunk_tokens: Positive
    """Tokens of a document at most, by the dataset's tokenizer."""
    prompt: PromptCard
    """The dataset's, with the user's own text where there is one."""
    examples: list[Pair] = []
    """The dataset's worked examples, for the prompt."""
    output: str
    """The writable folder."""
    pairs: str | None = None
    """`train`: file of training pairs (JSON Lines of Pair)."""
    socket: str | None = None
    """Unix socket of the way to the model; null for a method that calls none, and for training. In an engine's own
    container, where it listens."""


# ---------------------------------------------------------------- manifests and cards


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
    outcomes: dict[str, Count]
    """Predictions by outcome: answered, error."""
    usage: Usage
    measured: dict[str, float]
    """Sums over the cell: cached prompt tokens, computed prompt tokens, seconds."""
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
FaultPolicy = Literal["skip", "refuse"]


class Published(Record, frozen=True, kw_only=True):
    """Where a paper prints a number: the one line of `papers/<paper>/reference/<table>.csv` with these values."""

    table: str
    where: dict[str, str] = {}
    """Column -> value."""


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
    stands_for: str | None
    """The paper's dataset that it is a small stand-in of."""
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


# ---------------------------------------------------------------- what users write (YAML)


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
    stands_for: str | None = None
    prompt: str
    """Name of the prompt, a file of `papers/*/prompts/`."""
    equivalence: str
    """Name of the answer equivalence in `upkeep.grading.matching`."""
    metrics: str
    """Name of the metric family in `upkeep.grading`."""


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


class MethodCard(Record, frozen=True, kw_only=True):
    """`methods/<method>/method.yaml`."""

    label: str
    papers: list[str]
    summary: str
    reference: str
    """Paper and section, or the publication that it comes from."""
    variants: dict[Name, dict[str, Any]]
    """Parameters of each named setting. `writer`, `embedder` and `embedder_gpu` are none, but the models of these roles
    in this setting."""
    settings: list[str] = []
    """The parameters that tables print in their `setting` column, in order."""
    supervision: Literal["", "C", "Q", "C+Q"] = ""
    command: list[str] = []
    """A program to be run in the method's folder in place of `method.py`, in words: `[sh, answer.sh]`."""
    aliases: Aliases = {}
    """Names that upstream code gives to models: `gpt-4o-mini: reader`."""
    one_at_a_time: bool = False
    """Whether one probe, or one stream at one position, is worked on at a time: for code with one client or with
    state of its own."""
    max_calls: Positive = 10_000
    """Model calls through the door that one probe in one trial, or one stream at one position, may make."""
    model: bool = True
    """Whether it talks to a model."""
    embedder: str | None = None
    """The embedder, for methods with dense retrieval: a small one where the model runs on the CPU."""
    embedder_gpu: str | None = None
    """The embedder beside a model on GPUs: the paper's."""
    sees: Literal["documents", "evidence", "answers"] = "documents"
    """What of the answer key it is given: only `oracle` and `gold` see any."""
    trains: bool = False
    """Whether it makes a model of another one, in place of answering."""
    streams: Positive = 1
    """Streams that are fed side by side at least, where there are so many: more than one for a method that asks a model
    about documents one after the other, which would keep an engine waiting."""
    resources: Resources = Resources()


class CellChoice(Record, frozen=True, kw_only=True):
    """A rectangle of cells: every combination of the lists."""

    datasets: list[str]
    methods: list[str]
    """`method` (all its variants) or `method/variant`."""
    models: list[str]
    """Model ids; `MODEL+METHOD.VARIANT` is the model that a training method makes of MODEL."""


class Suite(Record, frozen=True, kw_only=True):
    """A named choice of cells: `papers/<paper>/suite.yaml`, `config/suites/*.yaml`."""

    label: str
    summary: str
    papers: list[str]
    cells: list[CellChoice]
    seed: Count = 0
    trials: Positive = 1


class Config(Record, frozen=True, kw_only=True):
    """`config/config.yaml`; a user's own file may override any field."""

    suite: str = "mini"
    model: str | None = None
    """A model that takes the place of every one of the suite."""
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


BOUNDARY: dict[str, type[Struct]] = {
    "prediction": Prediction,
    "pair": Pair,
    "round": Round,
    "cell": CellDescription,
    "manifest": Manifest,
    "card": DatasetCard,
    "dataset": DatasetFamily,
    "method": MethodCard,
    "model": ModelCard,
    "prompt": PromptCard,
    "suite": Suite,
    "config": Config,
    "cluster": Cluster,
}
"""Every record that has a file `schema/<name>.schema.json`."""
