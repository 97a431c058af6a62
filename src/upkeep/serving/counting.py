"""An engine that runs no model: it counts what methods ask for. Plans are made with it, before anything is spent.

The method itself runs, over some of a dataset's rounds; its prompts are tokenised as for a real engine, and of each
one it is noted how much an engine of the model's kind would have computed anew. An answer comes at once: words without
meaning, as many tokens as are assumed. No weights are read, and dense retrieval works with hashed words in place of an
embedder.

    python -m upkeep.serving.counting JOBS.JSON COUNTS.JSON [METHODS-FOLDER]
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import math
import os
import random
import sys
import traceback
import zlib
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from upkeep.cell.interface import Message
from upkeep.cell.loading import make_method
from upkeep.cell.lockstep import Engine, Generate, Generated, Handle, Outcome, Request, Score, Tokens, lockstep
from upkeep.cell.runner import AnswerTask, describe
from upkeep.cell.tokens import ChatTokens, Scorable, Segment, TokenPrompt, shared_segments
from upkeep.contract import CellDescription, Count, ModelSpec, Prediction, Record, Round, Usage

if TYPE_CHECKING:
    import numpy as np

BLOCK = 16
"""Tokens that vLLM shares at a time (`upkeep.serving.vllm_engine.BLOCK`)."""
ENDPOINT_BLOCK = 1024
"""Tokens that an endpoint shares at a time, at least: providers' caches begin at some thousand tokens."""
CALLS_A_RECORD = 1000
"""Calls for one probe or document, on average, after which a method is taken to go round in circles."""
FEATURES = 256
FILLER = (
    " the harbour was quiet when she came back from the market and nobody had seen where he went with an old letter"
    " before they closed all doors of that house which stood near their bridge for many years under grey stone"
)


# ---------------------------------------------------------------- what an engine would reuse


class Reuse(Protocol):
    """What an engine keeps of earlier prompts."""

    def reused(self, prompt: TokenPrompt) -> int:
        """Leading tokens of a prompt that need not be computed, given all prompts before."""
        ...

    def generated(self, prompt: TokenPrompt, ids: Sequence[int]) -> None:
        """Take notice of what was generated after a prompt."""
        ...

    def forget(self) -> None:
        """Drop everything."""


class Nothing:
    """The prefix cache is off."""

    def reused(self, prompt: TokenPrompt) -> int:
        return 0

    def generated(self, prompt: TokenPrompt, ids: Sequence[int]) -> None:
        pass

    def forget(self) -> None:
        pass


class Latest:
    """The transformers engine: whole segments of the latest prompt; the last segment is always computed."""

    def __init__(self) -> None:
        self._held: Sequence[Segment[int]] = ()

    def reused(self, prompt: TokenPrompt) -> int:
        n = min(shared_segments(self._held, prompt.segments), len(prompt.segments) - 1)
        self._held = prompt.segments
        return sum(map(len, prompt.segments[:n]))

    def generated(self, prompt: TokenPrompt, ids: Sequence[int]) -> None:
        pass

    def forget(self) -> None:
        self._held = ()


class Blocks:
    """vLLM and endpoints: whole blocks of every earlier prompt and answer, for as long as the engine runs.

    A block is known by the hash of all tokens up to its end, so a lookup takes time linear in the prompt.
    """

    def __init__(self, size: int) -> None:
        self._bytes = size * array("i").itemsize
        self._size = size
        self._known: set[int] = set()

    def reused(self, prompt: TokenPrompt) -> int:
        hits, known, counting = 0, self._known, True
        for key in self._keys(prompt, ()):
            counting = counting and key in known
            hits += counting
            known.add(key)
        # The last token is always computed, for its logits are not kept.
        return min(hits, (prompt.length - 1) // self._size) * self._size

    def generated(self, prompt: TokenPrompt, ids: Sequence[int]) -> None:
        self._known.update(self._keys(prompt, ids))

    def forget(self) -> None:
        self._known.clear()

    def _keys(self, prompt: TokenPrompt, ids: Sequence[int]) -> Iterator[int]:
        data = b"".join(segment.tobytes() for segment in prompt.segments) + array("i", ids).tobytes()
        key = 0
        for start in range(0, len(data) - self._bytes + 1, self._bytes):
            key = hash((key, data[start : start + self._bytes]))
            yield key


def reuse(cell: CellDescription) -> Reuse:
    """What the engine that a cell names keeps."""
    if not cell.engine.prefix_cache:
        return Nothing()
    match cell.engine.name:
        case "transformers":
            return Latest()
        case "vllm":
            return Blocks(int(cell.engine.options.get("block_size", BLOCK)))
        case _:
            return Blocks(ENDPOINT_BLOCK)


# ---------------------------------------------------------------- tokens


class CountTokens(Tokens, Protocol):
    """What the engine asks of a tokenizer, in addition: to make up replies."""

    def encode(self, text: str) -> Sequence[int]: ...


class ByteTokens:
    """Stands in for a tokenizer that is not at hand, or too slow for a large dataset: tokens of equal length.

    A prompt has a segment for each part of its messages, so it shares tokens with others as far as it shares parts.

    Args:
        rate: tokens a byte (UTF-8).
    """

    HEADER = Segment("i", [-1, -2, -3, -4])
    """What a chat template puts around a message, about."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._texts: list[str] = []
        self.segment = functools.lru_cache(maxsize=4096)(self._segment)

    def _segment(self, text: str) -> Segment[int]:
        import numpy as np

        data = np.frombuffer(text.encode("utf-8", "surrogatepass") + b"\0\0", dtype=np.uint8).astype(np.int32)
        places = (np.arange(self.count(text)) / self._rate).astype(np.int64)
        ids = data[places] << 16 | data[places + 1] << 8 | data[places + 2]
        return Segment("i", ids.tobytes())

    def prompt(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()) -> TokenPrompt:
        shown = [self.segment(json.dumps(list(tools)))] if tools else []
        parts = (segment for m in messages for segment in (self.HEADER, *map(self.segment, m["parts"])))
        return TokenPrompt.of([*shown, *filter(len, parts), self.HEADER])

    def scorable(self, prompt: str | Sequence[Message], continuation: str) -> Scorable:
        before = TokenPrompt.of([self.segment(prompt)]) if isinstance(prompt, str) else self.prompt(prompt)
        ids = self.segment(continuation)
        cuts = [n * len(continuation) // len(ids) for n in range(len(ids) + 1)] if ids else []
        return Scorable(before, ids, list(itertools.pairwise(cuts)))

    def count(self, text: str) -> int:
        return math.ceil(len(text.encode("utf-8", "surrogatepass")) * self._rate)

    def encode(self, text: str) -> Sequence[int]:
        """A short text as tokens that `decode` knows."""
        cuts = [math.floor(i / self._rate) for i in range(math.ceil(len(text) * self._rate))]
        first = len(self._texts)
        self._texts += [text[a:b] for a, b in itertools.pairwise([*cuts, len(text)])]
        return [-5 - place for place in range(first, len(self._texts))]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self._texts[-5 - i] for i in ids)


# ---------------------------------------------------------------- the engine


class Assumed(Record, frozen=True, kw_only=True):
    """How long replies are taken to be, in tokens."""

    reply: Count
    """Of a reply without its reasoning. Where a method bounds a reply itself, it is half of that bound."""
    thinking: Count
    """Reasoning before it, of a model that thinks."""


class CountingEngine(Engine):
    """Answers each request at once, in order, with words without meaning.

    Args:
        tokens: of the model, or of what stands in for it.
        calls: requests after which the method is taken to go round in circles.

    Raises (from `step`):
        RuntimeError: there are more requests than that.
    """

    name = "counting"
    version = "1"

    def __init__(self, tokens: CountTokens, spec: ModelSpec, reuse: Reuse, assumed: Assumed, calls: int) -> None:
        super().__init__(tokens, spec.context_length)
        self._spec, self._reuse, self._assumed, self._left = spec, reuse, assumed, calls
        self._queue: deque[Request] = deque()
        self._words = tokens.encode(FILLER)
        self._closing = tokens.encode(f"\n{spec.thinking_tags[1]}\n") if spec.thinking_tags else []

    def add(self, request: Request) -> None:
        self._queue.append(request)

    @property
    def busy(self) -> bool:
        return bool(self._queue)

    def reset(self) -> None:
        self._queue.clear()
        self._reuse.forget()

    def step(self) -> Iterable[tuple[Request, Outcome]]:
        request = self._queue.popleft()
        if request.future.cancelled():
            return []
        if not self._left:
            raise RuntimeError("the method makes more and more calls: its number cannot be counted without a model")
        self._left -= 1
        cached = self._reuse.reused(request.prompt)
        if isinstance(request, Score):
            # vLLM computes a prompt anew where it is to give log-probabilities.
            self.computed += request.prompt.length - (cached if isinstance(self._reuse, Latest) else 0)
            return [(request, [-1.0] * len(request.continuation))]
        ids = self._reply(request)
        self._reuse.generated(request.prompt, ids)
        reason = "length" if len(ids) == request.sampling.max_tokens else "stop"
        return [(request, Generated(ids, reason, cached))]  # type: ignore[arg-type]

    def _reply(self, request: Generate) -> list[int]:
        limit, spec = request.sampling.max_tokens, self._spec
        length = self._assumed.reply if limit == spec.sampling.max_tokens else limit // 2
        reasoning: list[int] = []
        # No two replies are alike, so that a memory made of one shares no prefix with another.
        draw = random.Random(request.seed).choices
        if not spec.trained:
            length = limit
        elif spec.thinking == "on":
            length = min(length, limit)
            room = max(0, limit - length - len(self._closing))
            reasoning = [*draw(self._words, k=min(self._assumed.thinking, room)), *self._closing]
        return [*reasoning, *draw(self._words, k=length)][:limit]


class HashedWords:
    """Stands in for an embedder: a text's vector has one feature for each of its words, by hash."""

    def documents(self, texts: Sequence[str]) -> np.ndarray:
        """(n, 256) float32, each row of length 1."""
        import numpy as np

        vectors = np.full((len(texts), FEATURES), 1e-3, dtype=np.float32)
        for row, text in zip(vectors, texts, strict=True):
            for word in text.lower().split():
                row[zlib.crc32(word.encode("utf-8", "surrogatepass")) % FEATURES] += 1
        unit: np.ndarray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit

    queries = documents

    def windows(self, text: str) -> list[str]:
        return [text]


# ---------------------------------------------------------------- counting cells


class CountJob(Record, frozen=True, kw_only=True):
    """One cell to count."""

    cell: CellDescription
    """`model_path` leads to a tokenizer, weights beside it are not read; null where `tokens_per_byte` is given."""
    tokens_per_byte: float | None
    rounds: str
    """File of rounds (JSON Lines)."""
    assumed: Assumed


class Line(Record, frozen=True, kw_only=True):
    """What one probe in one trial, or the arrival of one stream's documents, asked of the model."""

    key: str
    """Id of the probe, or the stream."""
    trial: Count = 0
    usage: Usage
    cached: Count
    error: str | None = None
    """Why there is no answer; what was asked up to then counts."""


class Counts(Record, frozen=True, kw_only=True):
    """What was counted of one job."""

    lines: list[Line]
    """Of the probes."""
    arrivals: list[Line] = msgspec.field(default_factory=list)
    """Of the streams in which anything was asked as documents arrived."""
    arrival: str = ""
    """Hash of all that was asked then: cells in which it is equal ask it once."""
    error: str | None = None
    """Why it cannot be counted."""


def _asked(arrivals: Mapping[str, Handle]) -> str:
    """Hash of what was asked as documents arrived, by stream: a handle of arrivals counts it, for its seeds."""
    asked = [[stream, sorted((llm.asked_before or {}).items())] for stream, llm in sorted(arrivals.items())]
    return hashlib.sha256(msgspec.json.encode(asked)).hexdigest()


def count(jobs: Sequence[CountJob], methods: Path) -> list[Counts]:
    """Run each job's method against the counting engine. One that fails as a whole says why; the others go on."""
    found = []
    for job in jobs:
        try:
            found.append(_count(job, methods))
        except Exception as error:
            traceback.print_exc()
            found.append(Counts(lines=[], error=describe(error)))
    return found


def _count(job: CountJob, methods: Path) -> Counts:
    cell, spec = job.cell, job.cell.model_spec
    if spec is None:
        raise ValueError("a cell without a model has nothing to count")
    output = Path(cell.output)
    output.mkdir(parents=True)
    rounds = [msgspec.json.decode(line, type=Round) for line in Path(job.rounds).read_bytes().splitlines()]
    records = sum(len(round.probes) * cell.trials + len(round.documents) for round in rounds)
    method = make_method(cell, methods, HashedWords() if cell.embedder_spec is not None else None, threads=1)
    tokens = ByteTokens(job.tokens_per_byte) if job.tokens_per_byte else ChatTokens(cell.model_path or "", spec)
    engine = CountingEngine(tokens, spec, reuse(cell), job.assumed, CALLS_A_RECORD * max(1, records))
    task = AnswerTask(cell, method, engine, output)
    with lockstep(engine) as loop:
        for round in rounds:
            loop.run(task.round(round))
        loop.run(method.close())
    return Counts(
        lines=list(_answered(output / "predictions.jsonl")),
        arrivals=[
            Line(key=stream, usage=llm.usage, cached=llm.cached_tokens)
            for stream, llm in task.arrivals.items()
            if llm.calls
        ],
        arrival=_asked(task.arrivals),
    )


def _answered(path: Path) -> Iterator[Line]:
    for line in path.read_bytes().splitlines():
        found = msgspec.json.decode(line, type=Prediction)
        cached = found.measured.cached if found.measured else 0
        yield Line(key=found.probe_id, trial=found.trial, usage=found.usage, cached=cached, error=found.error)


def main(arguments: list[str]) -> int:
    if not 2 <= len(arguments) <= 3:
        print("usage: python -m upkeep.serving.counting JOBS.JSON COUNTS.JSON [METHODS-FOLDER]", file=sys.stderr)
        return 2
    jobs = msgspec.json.decode(Path(arguments[0]).read_bytes(), type=list[CountJob])
    methods = Path(arguments[2] if len(arguments) == 3 else os.environ.get("UPKEEP_METHODS", "/methods"))
    Path(arguments[1]).write_bytes(msgspec.json.encode(count(jobs, methods)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
