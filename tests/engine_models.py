"""What tests of engines share: tiny models of several families, chats, and an engine that records its batches."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from upkeep.cell.interface import Message
from upkeep.cell.lockstep import (
    Engine,
    Generated,
    Handle,
    Request,
    lockstep,
)
from upkeep.cell.tokens import ChatTokens
from upkeep.contract import EngineSettings, ModelSpec, Sampling
from upkeep.serving import llama
from upkeep.serving.make_model import tiny_llama
from upkeep.serving.transformers_engine import TransformersEngine


def spec(**changes: object) -> ModelSpec:
    fields = {
        "label": "tiny",
        "summary": "",
        "source": "rule",
        "location": "tiny_llama",
        "context_length": 20_000,
        "sampling": Sampling(max_tokens=8),
    }
    return ModelSpec(**(fields | changes))  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tiny_llama(folder)
    return folder


WORDS = "the captain took a coin and went to the harbour while nobody in the old house was looking at him".split()  # noqa: SIM905


def document(n: int, words: int = 300) -> str:
    """Prose of about `words` words, different for each n."""
    return " ".join(WORDS[(i * (n + 3) + i // 7) % len(WORDS)] for i in range(words)) + f". Part {n} ends here."


def chat(documents: int, question: str, words: int = 300) -> list[Message]:
    parts = ["## Context:\n", *(("\n" if i else "") + document(i, words) for i in range(documents))]
    return [
        Message(role="system", parts=["Read the text and answer. " * 8]),
        Message(role="user", parts=[*parts, f"\n\n## Question:\n{question}"]),
    ]


def _tokenizer(kind: str) -> object:
    """Small BPE tokenizers of the families in use: they differ in what they split before merging."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(unk_token="?"))
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    if kind == "gpt2":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    elif kind == "qwen":
        pattern = (
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
            r"\s*[\r\n]+|\s+(?!\S)|\s+"
        )
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(pattern), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    elif kind == "metaspace":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        alphabet = [chr(c) for c in range(32, 127)]
    elif kind == "unsplit":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<|end|>", "?"], initial_alphabet=sorted(alphabet), show_progress=False
    )
    tokenizer.train_from_iterator([document(i) + "\n\n" for i in range(20)], trainer)
    return tokenizer


@pytest.fixture(scope="session")
def families(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, ChatTokens]:
    found = {"tiny": ChatTokens(str(tiny), spec())}
    for kind in ("gpt2", "qwen", "metaspace", "unsplit"):
        folder = tmp_path_factory.mktemp(kind)
        shutil.copytree(tiny, folder, dirs_exist_ok=True)
        _tokenizer(kind).save(str(folder / "tokenizer.json"))  # type: ignore[attr-defined]
        found[kind] = ChatTokens(str(folder), spec())
    return found


class Recorder(Engine):
    """Answers everything that is queued in one step; remembers its batches."""

    name, version = "recorder", "1"

    def __init__(self, tokens: ChatTokens, fail: bool = False) -> None:
        super().__init__(tokens, 20_000)
        self.queue: list[Request] = []
        self.batches: list[list[str]] = []
        self.fail = fail

    def add(self, request: Request) -> None:
        self.queue.append(request)

    @property
    def busy(self) -> bool:
        return bool(self.queue)

    def reset(self) -> None:
        self.queue.clear()

    def step(self) -> list[tuple[Request, Generated | list[float] | Exception]]:
        if self.fail:
            raise RuntimeError("out of memory")
        batch, self.queue = self.queue, []
        self.batches.append([self.tokens.decode(r.prompt.ids()) for r in batch])
        return [(r, Generated(self.tokens.encode("yes"), "stop", 0)) for r in batch]


def ask(engine: Engine, text: str) -> asyncio.Future[object]:
    handle = Handle(engine, spec(), 0, text)
    return asyncio.ensure_future(handle.chat([Message(role="user", parts=[text])]))


def engine(tiny: Path, **changes: object) -> Engine:
    return TransformersEngine(str(tiny), spec(), EngineSettings(name="transformers", **changes))  # type: ignore[arg-type]


def moving(tiny: Path, folder: Path) -> Path:
    """A copy of `tiny` whose positions depend on the longest sequence of a step."""
    shutil.copytree(tiny, folder, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text())
    config["rope_parameters"] = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10_000.0}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def let_rows_differ(monkeypatch: pytest.MonkeyPatch, steps: bool) -> None:
    """Have products differ by the place of a row, as on a machine whose threads divide rows: of steps or of passes."""
    plain = llama.Linear.__call__

    def differing(self: llama.Linear, x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(x.shape[0 if steps else 1])
        return plain(self, x) + 1e-6 * (places[:, None, None] if steps else places[:, None])

    monkeypatch.setattr(llama.Linear, "__call__", differing)


def answers(
    model: Engine, chats: Sequence[Sequence[Message]], sampling: Sampling | None = None
) -> list[tuple[str, int, int]]:
    """(text, prompt tokens, cached tokens) of each chat, asked one after the other."""

    async def main() -> list[tuple[str, int, int]]:
        found = []
        for messages in chats:
            reply = await Handle(model, spec(), 0, messages[-1]["parts"][-1]).chat(messages, sampling)
            found.append((reply.text, reply.prompt_tokens, reply.cached_tokens))
        return found

    with lockstep(model) as loop:
        return loop.run(main())


QUESTIONS = ["Where is the coin?", "Who went to the harbour with the captain?", "Was the house old?"]
CHATS = [chat(n, q) for n in (1, 2, 5) for q in QUESTIONS]
SAMPLED = Sampling(temperature=0.9, top_p=0.9, top_k=50, max_tokens=12)


def together(
    model: Engine, chats: Sequence[Sequence[Message]], sampling: Sampling | None, given_up: int = 0
) -> list[str]:
    """Texts of chats that are asked all at once; the first `given_up` of them are cancelled while they are answered."""

    async def main() -> list[str]:
        short = asyncio.ensure_future(Handle(model, spec(), 0, "short").chat(chats[0], Sampling(max_tokens=2)))
        asked = [
            asyncio.ensure_future(Handle(model, spec(), 0, messages[-1]["parts"][-1]).chat(messages, sampling))
            for messages in chats
        ]
        if given_up:
            await short
            assert not any(task.done() for task in asked)
        for task in asked[:given_up]:
            task.cancel()
        return [(await task).text for task in asked[given_up:]]

    with lockstep(model) as loop:
        return loop.run(main())
