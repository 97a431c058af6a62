"""Claims about the engines: lock-step order, exact tokens, and answers that do not depend on the cache."""

from __future__ import annotations

import asyncio
import json
import shutil
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from upkeep.cell.interface import Message, PromptTooLong
from upkeep.cell.lockstep import (
    Engine,
    EngineDied,
    Generate,
    Generated,
    Handle,
    Request,
    Score,
    call_seed,
    lockstep,
    split_reasoning,
)
from upkeep.cell.tokens import SEGMENT_TOKENS, ChatTokens, TokenPrompt, shared_segments
from upkeep.contract import EngineSettings, ModelSpec, Sampling
from upkeep.serving.lanes import LANES
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


# ---------------------------------------------------------------- models made by rule


def test_a_rule_makes_the_same_bytes_each_time(tiny: Path, tmp_path: Path) -> None:
    tiny_llama(tmp_path)
    assert {p.name: p.read_bytes() for p in tiny.iterdir()} == {p.name: p.read_bytes() for p in tmp_path.iterdir()}


def test_another_seed_makes_another_model(tiny: Path, tmp_path: Path) -> None:
    tiny_llama(tmp_path, seed=1)
    assert (tiny / "model.safetensors").read_bytes() != (tmp_path / "model.safetensors").read_bytes()


def test_every_user_may_read_a_made_model(tiny: Path) -> None:
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in tiny.iterdir())


# ---------------------------------------------------------------- tokens


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


def whole(tokens: ChatTokens, messages: Sequence[Message]) -> list[int]:
    """The reference: the whole templated text tokenised at once."""
    text = tokens.tokenizer.apply_chat_template(
        [{"role": m["role"], "content": "".join(m["parts"])} for m in messages],
        tokenize=False,
        add_generation_prompt=True,
    )
    return tokens.encode(text)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    parts=st.lists(
        st.builds(
            lambda head, n, tail: head + document(n, 20) * (n % 3) + tail,
            st.text(alphabet="ab é\u0301\n\t .,'s<|end>1中", max_size=12),
            st.integers(0, 20),
            st.text(alphabet="ab é\u0301\n\t .,'s<|end>1中", max_size=12),
        ),
        max_size=8,
    )
)
@pytest.mark.parametrize("kind", ["tiny", "gpt2", "qwen", "metaspace", "unsplit"])
def test_tokens_of_the_pieces_are_the_tokens_of_the_whole(
    families: dict[str, ChatTokens], kind: str, parts: list[str]
) -> None:
    messages = [Message(role="user", parts=parts)]
    assert families[kind].prompt(messages).ids() == whole(families[kind], messages)


@pytest.mark.parametrize("kind", ["tiny", "gpt2", "qwen"])
def test_prompts_of_one_interval_share_all_but_the_question(families: dict[str, ChatTokens], kind: str) -> None:
    a, b = (families[kind].prompt(chat(3, q)) for q in ("Where is the coin?", "Who left?"))
    shared = shared_segments(a.segments, b.segments)
    assert shared == len(a.segments) - 1 == len(b.segments) - 1
    assert len(a.segments[-1]) < len(families[kind].encode("\n\n## Question:\nWhere is the coin?")) + 20


@pytest.mark.parametrize("kind", ["tiny", "gpt2", "qwen"])
def test_the_next_interval_shares_all_earlier_documents(families: dict[str, ChatTokens], kind: str) -> None:
    a, b = (families[kind].prompt(chat(n, "Where is the coin?")) for n in (3, 4))
    assert shared_segments(a.segments, b.segments) == len(a.segments) - 1


def test_no_segment_is_longer_than_the_bound(families: dict[str, ChatTokens]) -> None:
    prompt = families["tiny"].prompt(chat(1, "?", words=5000))
    assert max(map(len, prompt.segments)) == SEGMENT_TOKENS


def test_a_template_that_trims_still_gives_exact_tokens(tiny: Path) -> None:
    template = "{% for m in messages %}[{{ m.role }}] {{ m.content | trim }}\n{% endfor %}"
    tokens = ChatTokens(str(tiny), spec(chat_template=template))
    messages = [Message(role="user", parts=["  \n", document(1), "\n" + document(2), "  "])]
    text = "[user] " + "".join(messages[0]["parts"]).strip() + "\n"
    assert tokens.prompt(messages).ids() == tokens.encode(text)


def test_decoding_leaves_the_stop_token_out(tiny: Path) -> None:
    tokens = ChatTokens(str(tiny), spec())
    (stop,) = tokens.stop_ids
    assert tokens.decode([*tokens.encode("the house"), stop]) == "the house"


def test_every_end_token_that_the_models_files_name_stops_it(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path, dirs_exist_ok=True)
    (of_tokenizer,) = ChatTokens(str(tiny), spec()).stop_ids
    config = json.loads((tmp_path / "config.json").read_bytes()) | {"eos_token_id": [of_tokenizer, 7]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for named, ids in (([8, 9], {8, 9}), (8, {8}), (None, set())):
        (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": named, "temperature": 0.1}))
        assert ChatTokens(str(tmp_path), spec()).stop_ids == {of_tokenizer, 7, *ids}
    (tmp_path / "generation_config.json").unlink()
    assert ChatTokens(str(tmp_path), spec()).stop_ids == {of_tokenizer, 7}


def test_special_tokens_stay_in_the_text_only_where_the_reasoning_tags_are_made_of_them(
    tiny: Path, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|channel|>", "<|message|>"]})
    shutil.copytree(tiny, tmp_path, dirs_exist_ok=True)
    tokenizer.save_pretrained(tmp_path)
    tags = ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>")
    kept = ChatTokens(str(tmp_path), spec(thinking_tags=tags))
    text = f"{tags[0]}the analysis{tags[1]}the house"
    ids = kept.encode(text)
    assert split_reasoning(kept.decode(ids), tags, thinks=False) == ("the house", "the analysis")
    straight = kept.decode(kept.encode(f"{tags[1]}the analysis"))
    assert split_reasoning(straight, tags, thinks=False) == ("the analysis", "")
    plain = ChatTokens(str(tmp_path), spec(thinking_tags=("<think>", "</think>")))
    assert "<|" not in plain.decode(ids)


# ---------------------------------------------------------------- lock-step


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


@pytest.fixture
def recorder(families: dict[str, ChatTokens]) -> Recorder:
    return Recorder(families["tiny"])


def ask(engine: Engine, text: str) -> asyncio.Future[object]:
    handle = Handle(engine, spec(), 0, text)
    return asyncio.ensure_future(handle.chat([Message(role="user", parts=[text])]))


def asked(batch: list[str]) -> list[str]:
    return [text.strip().removeprefix("\n") for text in batch]


def test_a_step_waits_until_no_coroutine_can_go_on(recorder: Recorder) -> None:
    async def probe(name: str, hops: int) -> None:
        for _ in range(hops):  # some coroutines take longer to come to their question
            await asyncio.sleep(0)
        await asyncio.gather(ask(recorder, f"{name}1"), ask(recorder, f"{name}2"))
        await ask(recorder, f"{name}3")

    async def main() -> None:
        await asyncio.gather(probe("a", 0), probe("b", 50), probe("c", 7))

    with lockstep(recorder) as loop:
        loop.run(main())
    assert [len(batch) for batch in recorder.batches] == [6, 3]


def test_batches_are_the_same_in_every_run(families: dict[str, ChatTokens]) -> None:
    def batches() -> list[list[str]]:
        engine = Recorder(families["tiny"])

        async def probe(n: int) -> None:
            for i in range(n % 4):
                await ask(engine, f"{n}.{i}")

        async def main() -> None:
            await asyncio.gather(*(probe(n) for n in range(30)))

        with lockstep(engine) as loop:
            loop.run(main())
        return engine.batches

    assert batches() == batches()


def test_a_dying_engine_ends_the_run(families: dict[str, ChatTokens]) -> None:
    engine = Recorder(families["tiny"], fail=True)

    async def main() -> None:
        try:
            await ask(engine, "hello")
        except Exception:  # a method that catches everything does not hide it
            return

    with pytest.raises(EngineDied, match="out of memory"), lockstep(engine) as loop:
        loop.run(main())


def test_a_prompt_that_does_not_fit_is_refused_before_it_is_sent(recorder: Recorder) -> None:
    async def main() -> None:
        handle = Handle(recorder, spec(context_length=40), 0, "p")
        fits = handle.count_prompt([Message(role="user", parts=["hello"])])
        handle.context_length = fits + handle.sampling.max_tokens
        await handle.chat([Message(role="user", parts=["hello"])])
        handle.context_length -= 1
        with pytest.raises(PromptTooLong):
            await handle.chat([Message(role="user", parts=["hello"])])
        assert handle.usage.calls == 1

    with lockstep(recorder) as loop:
        loop.run(main())
    assert len(recorder.batches) == 1


def test_a_request_that_its_coroutine_gave_up_disturbs_nothing(recorder: Recorder) -> None:
    async def main() -> None:
        given_up = ask(recorder, "never mind")
        await asyncio.sleep(0)
        given_up.cancel()
        await ask(recorder, "hello")

    with lockstep(recorder) as loop:
        loop.run(main())


def test_a_method_that_calls_no_model_is_told_so() -> None:
    with pytest.raises(TypeError, match="no model"):
        asyncio.run(Handle(None, None, 0, "p").chat([]))


def test_seeds_differ_by_cell_probe_trial_and_call() -> None:
    seeds = {call_seed(*key) for key in ((0, "q@1", 0, 0), (1, "q@1", 0, 0), (0, "q@2", 0, 0), (0, "q@1", 1, 0))}
    seeds |= {call_seed(0, "q@1", 0, 1), call_seed(0, "q@1", 0, 0)}
    assert len(seeds) == 5
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.parametrize(
    ("text", "answer", "reasoning"),
    [
        ("plain", "plain", None),
        ("<think>why</think>\n\nso", "so", "why"),
        ("why</think>\n\nso", "so", "why"),
        ("<think></think>so", "so", ""),
        ("<think>never closed", "", "never closed"),
        ("a</think>b</think>c", "b</think>c", "a"),
    ],
)
def test_reasoning_is_split_from_the_answer(text: str, answer: str, reasoning: str | None) -> None:
    assert split_reasoning(text, ("<think>", "</think>"), thinks=False) == (answer, reasoning)
    for thinks in (False, True):
        assert split_reasoning(text, None, thinks=thinks) == (text, None)


@pytest.mark.parametrize(
    ("text", "answer", "reasoning"),
    [
        ("why, and no end", "", "why, and no end"),
        ("\n<think>why, and no end", "", "why, and no end"),
        ("## Answer: 3", "", "## Answer: 3"),
        ("", "", ""),
        ("why</think>\n\nso", "so", "why"),
        ("<think>why</think>so", "so", "why"),
    ],
)
def test_what_a_thinking_model_writes_before_the_closing_tag_is_never_an_answer(
    text: str, answer: str, reasoning: str
) -> None:
    assert split_reasoning(text, ("<think>", "</think>"), thinks=True) == (answer, reasoning)


# ---------------------------------------------------------------- transformers


def engine(tiny: Path, **changes: object) -> Engine:
    return TransformersEngine(str(tiny), spec(), EngineSettings(name="transformers", **changes))  # type: ignore[arg-type]


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


@pytest.mark.parametrize(
    "sampling", [None, SAMPLED, Sampling(repetition_penalty=1.3, presence_penalty=0.5, max_tokens=8)]
)
def test_an_answer_is_the_same_whatever_was_asked_before(tiny: Path, sampling: Sampling | None) -> None:
    warm = engine(tiny)
    forward = [text for text, _, _ in answers(warm, CHATS, sampling)]
    backward = [text for text, _, _ in answers(warm, CHATS[::-1], sampling)][::-1]
    cold = [text for text, _, _ in answers(engine(tiny, prefix_cache=False), CHATS, sampling)]
    assert forward == backward == cold
    assert len(set(forward)) > 3


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


@pytest.mark.parametrize(
    "sampling", [None, SAMPLED, Sampling(repetition_penalty=1.3, presence_penalty=0.5, max_tokens=8)]
)
def test_an_answer_is_the_same_whatever_is_decoded_beside_it(tiny: Path, sampling: Sampling | None) -> None:
    chats = [chat(n, q) for n in (1, 2, 3, 4, 5, 6, 7) for q in QUESTIONS]
    model: Any = engine(tiny)
    assert model.lanes == LANES
    single = [text for text, _, _ in answers(model, chats, sampling)]
    assert together(model, chats, sampling) == single
    assert all(model._held_in_lanes.lengths)
    assert together(engine(tiny), chats[::-1], sampling) == single[::-1]
    assert together(model, chats, sampling, given_up=5) == single[5:]
    assert not model.busy
    assert len(set(single)) > 3


def test_what_waiting_prompts_share_is_computed_once_in_whatever_order_they_come(tiny: Path) -> None:
    mixed = [CHATS[n] for n in (4, 0, 6, 1, 3, 7, 2, 8, 5)]
    waiting, grouped, one_by_one = engine(tiny), engine(tiny), engine(tiny)

    async def at_once() -> list[str]:
        asked = [Handle(waiting, spec(), 0, messages[-1]["parts"][-1]).chat(messages) for messages in mixed]
        return [reply.text for reply in await asyncio.gather(*asked)]

    with lockstep(waiting) as loop:
        found = loop.run(at_once())
    assert found == [text for text, _, _ in answers(one_by_one, mixed)]
    answers(grouped, CHATS)
    assert waiting.computed == grouped.computed < one_by_one.computed


def test_rows_of_a_step_do_not_depend_on_each_other(tiny: Path) -> None:
    model: Any = engine(tiny)
    with torch.inference_mode():
        alike = model._step([(7, 0)] * LANES)
        model._held_in_lanes.empty()
        mixed = model._step([(7, 0) if n % 3 else (n, 0) for n in range(LANES)])
    assert all(torch.equal(alike[0], mixed[n]) for n in range(LANES) if n % 3)
    assert not torch.equal(alike[0], mixed[3])


def test_lanes_continue_as_the_plain_model_does(tiny: Path) -> None:
    from transformers import AutoModelForCausalLM

    model: Any = engine(tiny)
    prompts = [model.tokens.encode(text) for text in ("the captain took", "nobody in the old house", "a coin")]
    plain = AutoModelForCausalLM.from_pretrained(tiny)
    with torch.inference_mode():
        for n, ids in enumerate(prompts):
            model._crop(0)
            model._forward(ids, keep=1)
            model._held_in_lanes.fill(n, model._layers)
        for step in range(3):
            rows = [(50 + n + step, len(ids)) for n, ids in enumerate(prompts)]
            logits = model._step([*rows, *[None] * (LANES - len(rows))])
            for n, (token, _) in enumerate(rows):
                prompts[n].append(token)
                assert torch.allclose(logits[n], plain(torch.tensor([prompts[n]])).logits[0, -1], atol=1e-3)


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_the_step_for_llama_and_its_kin_gives_the_very_bits_of_transformers(kind: str, dtype: torch.dtype) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.cache_utils import Cache

    from upkeep.serving import llama
    from upkeep.serving.keys import GrowingLayer

    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 300}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    torch.manual_seed(3)
    theirs: Any = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes, **heads), dtype=dtype).eval()
    held, kept = [GrowingLayer(), GrowingLayer()], Cache(layers=[GrowingLayer(), GrowingLayer()])
    with torch.inference_mode():
        for parameter in theirs.parameters():
            parameter.normal_(std=0.3)
        ours = llama.Llama(theirs, 200)
        for before, new in ((0, 20), (20, 1), (21, 30), (51, 1)):
            tokens, places = torch.randint(300, (1, new)), torch.arange(before, before + new)[None]
            mask = llama.causal_mask(before, new, dtype, tokens.device)

            def attend(n: int, query: torch.Tensor, *new: torch.Tensor, mask: Any = mask) -> torch.Tensor:
                return llama.attention(query, *held[n].update(*new), mask)

            wanted = theirs(input_ids=tokens, past_key_values=kept, use_cache=True).logits
            assert torch.equal(ours(tokens, places, attend, 0), wanted)


@pytest.mark.parametrize("why", ["long", "a machine whose rows differ"])
def test_what_takes_no_lane_is_answered_alone(tiny: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    from upkeep.serving import transformers_engine

    if why == "long":
        monkeypatch.setattr(transformers_engine, "LANE_TOKENS", 100)
    else:
        monkeypatch.setattr(
            transformers_engine.TransformersEngine,
            "_step",
            lambda self, rows: torch.arange(len(rows) * 3.0).reshape(len(rows), 3),
        )
    model: Any = engine(tiny)
    assert together(model, CHATS, None) == [text for text, _, _ in answers(engine(tiny), CHATS)]
    assert not model.busy
    assert not any(model._held_in_lanes.lengths)


@pytest.mark.parametrize("why", ["long", "scores"])
def test_what_takes_no_lane_is_answered_request_by_request(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    from upkeep.serving import transformers_engine

    if why == "long":
        monkeypatch.setattr(transformers_engine, "LANE_TOKENS", 100)
    model = engine(tiny)

    async def main() -> None:
        future = asyncio.get_running_loop().create_future
        prompt = model.tokens.prompt(CHATS[0])
        for _ in range(3):
            if why == "long":
                model.add(Generate(prompt, Sampling(max_tokens=4), 0, future()))
            else:
                model.add(Score(prompt, array("i", [1, 2]), future()))
        assert [len(list(model.step())) for _ in range(3)] == [1, 1, 1]

    asyncio.run(main())
    assert not model.busy


def test_a_queue_of_all_kinds_gives_what_each_gives_alone(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from upkeep.serving import transformers_engine

    monkeypatch.setattr(transformers_engine, "LANE_TOKENS", 1000)
    model = engine(tiny)
    lengths = {model.tokens.prompt(messages).length > 1000 for messages in CHATS}
    assert lengths == {True, False}

    async def ask(n: int) -> object:
        if n % 3 == 2:
            return await Handle(model, spec(), 0, str(n)).logprobs("the captain took", f" a coin and {n} more")
        return (await Handle(model, spec(), 0, str(n)).chat(CHATS[n % len(CHATS)], SAMPLED)).text

    async def at_once() -> list[object]:
        return list(await asyncio.gather(*map(ask, range(24))))

    async def one_by_one() -> list[object]:
        return [await ask(n) for n in range(24)]

    with lockstep(model) as loop:
        assert loop.run(at_once()) == loop.run(one_by_one())


def test_an_engine_that_is_reset_in_mid_answer_is_as_new(tiny: Path) -> None:
    model = engine(tiny)

    async def begin() -> None:
        future = asyncio.get_running_loop().create_future
        for n in range(12):
            prompt = model.tokens.prompt(CHATS[n % len(CHATS)])
            model.add(Generate(prompt, Sampling(max_tokens=2 + 5 * n), 0, future()))
        assert len(list(model.step())) == 1

    asyncio.run(begin())
    assert model.busy
    model.reset()
    assert not model.busy
    assert answers(model, CHATS) == answers(engine(tiny), CHATS)
    assert model.computed == sum(prompt - cached for _, prompt, cached in answers(engine(tiny), CHATS))


def test_positions_that_depend_on_the_longest_sequence_take_no_lanes(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    config["rope_parameters"] = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10_000.0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert (engine(tiny).lanes, engine(tmp_path).lanes) == (LANES, 1)


def test_log_probabilities_are_equal_to_the_last_bit_with_a_cold_and_a_warm_cache(tiny: Path) -> None:
    text = " ".join(document(n) for n in range(8))
    model = engine(tiny)

    async def score() -> list[Any]:
        return await Handle(model, spec(), 0, "p").logprobs(text, " and went to the harbour")

    with lockstep(model) as loop:
        first = loop.run(score())
    answers(model, CHATS[:2])
    with lockstep(model) as loop:
        again, warm = loop.run(score()), loop.run(score())
    assert first == again == warm
    assert all(one.logprob < 0 for one in first)


def test_segmented_logits_are_those_of_one_pass_over_the_whole_prompt(tiny: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = engine(tiny)
    prompt = model.tokens.prompt(CHATS[-1])
    assert len(prompt.segments) > 4
    with torch.inference_mode():
        logits, _ = model._prefill(prompt.segments)  # type: ignore[attr-defined]
        reference = AutoModelForCausalLM.from_pretrained(tiny)(torch.tensor([prompt.ids()])).logits[0, -1:]
    assert torch.allclose(logits, reference, atol=1e-3)


@pytest.fixture(scope="session")
def begun(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`tiny` with a tokenizer that puts a token before each text."""
    from tokenizers import Tokenizer, processors

    folder = tmp_path_factory.mktemp("begun")
    shutil.copytree(tiny, folder, dirs_exist_ok=True)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    begin = ("<|system|>", tokenizer.token_to_id("<|system|>"))
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=True),
            processors.TemplateProcessing(single=f"{begin[0]} $A", special_tokens=[begin]),
        ]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"bos_token": begin[0]}))
    return folder


SCORED_TEXTS = [
    ("the captain took", " a coin and went"),
    ("the captain took ", "a coin"),  # the space is part of the first token
    ("the capt", "ain took"),
    ("", "The house was old.\n\n Nobody  looked é 日本"),
    ("x", "y"),
    ("the captain took", ""),
    (document(1), " " + document(2)),
]


@pytest.mark.parametrize("kind", ["tiny", "begun"])
@pytest.mark.parametrize("shape", ["text", "chat"])
def test_log_probabilities_are_those_of_the_plain_model_over_the_whole_text(
    tiny: Path, begun: Path, kind: str, shape: str
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = {"tiny": tiny, "begun": begun}[kind]
    model = engine(folder)
    plain, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    prompts: list[tuple[Any, str, str]] = [(prompt, prompt, text) for prompt, text in SCORED_TEXTS]
    if shape == "chat":
        chats = [chat(n, "Who?", 60) for n in (1, 3, 3)]
        prompts = [
            (one, tokenizer.decode(model.tokens.prompt(one).ids()), text)
            for one, (_, text) in zip(chats, SCORED_TEXTS, strict=False)
        ]

    async def score() -> list[Any]:
        return [await Handle(model, spec(), 0, "p").logprobs(prompt, text) for prompt, _, text in prompts]

    with lockstep(model) as loop:
        found, again = loop.run(score()), loop.run(score())
    assert found == again, "warm"
    for scored, (_, before, text) in zip(found, prompts, strict=True):
        ids = tokenizer.encode(before + text, add_special_tokens=shape == "text")
        with torch.inference_mode():
            logits = plain(torch.tensor([ids])).logits[0].log_softmax(-1)
        wanted = [None, *(logits[i, token].item() for i, token in enumerate(ids[1:]))][len(ids) - len(scored) :]
        if not scored:
            assert not text
            continue
        assert [(one.logprob is None) for one in scored] == [value is None for value in wanted]
        assert [v.logprob or 0.0 for v in scored] == pytest.approx([value or 0.0 for value in wanted], abs=1e-4)
        whole = before + text
        pieces = [whole[len(before) + one.start : len(before) + one.end] for one in scored]
        assert scored[0].start <= 0 < scored[0].end and scored[-1].end == len(text)
        if text.isascii():
            assert [tokenizer.decode([i]) for i in ids[len(ids) - len(scored) :]] == pieces


def test_only_a_text_that_nothing_stands_before_has_a_token_without_probability(tiny: Path, begun: Path) -> None:
    async def score(model: Engine, prompt: str) -> list[object]:
        return [one.logprob for one in await Handle(model, spec(), 0, "p").logprobs(prompt, "coin")]

    for folder, prompt, unknown in ((tiny, "", True), (tiny, "a ", False), (begun, "", False)):
        model = engine(folder)
        with lockstep(model) as loop:
            found = loop.run(score(model, prompt))
        assert (found[0] is None) == unknown and None not in found[1:], (folder, prompt)


def test_a_token_that_begins_in_the_prompt_is_given_whole(tiny: Path) -> None:
    model = engine(tiny)

    async def score() -> list[Any]:
        return [
            await Handle(model, spec(), 0, "p").logprobs(*text)
            for text in (("He took a ", "coin"), ("He took a", " coin"))
        ]

    with lockstep(model) as loop:
        (inside,), (whole,) = loop.run(score())
    assert (inside.start, inside.end, whole.start, whole.end) == (-1, 4, 0, 5) and inside.logprob == whole.logprob


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(prompt=st.text(alphabet="ab é\n\t .,'s1中", max_size=90), text=st.text(alphabet="ab é\n\t .,'s1中", max_size=90))
@pytest.mark.parametrize("kind", ["tiny", "gpt2", "qwen", "metaspace", "unsplit"])
def test_prompt_and_text_are_tokenised_together(
    families: dict[str, ChatTokens], kind: str, prompt: str, text: str
) -> None:
    tokens = families[kind]
    for before in (prompt, document(1, 40) + prompt):
        found = tokens.scorable(before, text)
        assert [*found.prompt.ids(), *found.ids] == tokens.encode(before + text)
        assert all(start <= end for start, end in found.spans)
        if text and tokens.encode(before + text) and found.spans:
            assert found.spans[0][0] <= 0 < found.spans[0][1] and found.spans[-1][1] == len(text)


def test_each_interval_computes_its_new_document_and_its_questions_alone(tiny: Path) -> None:
    model = engine(tiny)
    found = answers(model, CHATS)
    assert found[0][2] == 0
    assert model.computed == sum(prompt - cached for _, prompt, cached in found)
    once = found[-1][1] + sum(
        len(model.tokens.encode(f"\n\n## Question:\n{messages[-1]['parts'][-1]}")) + 20 for messages in CHATS
    )
    assert model.computed <= once


def test_without_prefix_cache_everything_is_computed(tiny: Path) -> None:
    model = engine(tiny, prefix_cache=False)
    assert all(cached == 0 for _, _, cached in answers(model, CHATS[:3]))


def test_asking_the_same_again_computes_only_the_last_segment(tiny: Path) -> None:
    (first, length, _), (second, _, cached) = answers(engine(tiny), [CHATS[-1], CHATS[-1]])
    assert first == second
    assert length - 60 < cached < length


def test_generation_stops_at_the_stop_token_and_counts_it(tiny: Path) -> None:
    model = engine(tiny)
    prompt = model.tokens.prompt(CHATS[0])
    ids = list(_generate(model, prompt).ids)
    assert len(ids) == 4
    model.tokens.stop_ids = frozenset({ids[2]})
    stopped = _generate(model, prompt)
    assert (list(stopped.ids), stopped.finish_reason) == (ids[: ids.index(ids[2]) + 1], "stop")
    assert ids[2] not in model.tokens.encode(model.tokens.decode(stopped.ids))


def _generate(model: Engine, prompt: TokenPrompt) -> Generated:
    async def main() -> Generated:
        future: asyncio.Future[Generated] = asyncio.get_running_loop().create_future()
        model.add(Generate(prompt, Sampling(max_tokens=4), 0, future))
        return await future

    with lockstep(model) as loop:
        return loop.run(main())


def test_sampling_parameters_do_what_they_say() -> None:
    from upkeep.serving.sampling import Sampler

    logits = torch.tensor([0.0, 3.0, 2.9, -1.0])
    cpu = torch.device("cpu")

    def draws(sampling: Sampling, prompt: Sequence[int] = ()) -> set[int]:
        return {Sampler(sampling, seed, prompt, cpu).pick(logits) for seed in range(60)}

    assert draws(Sampling()) == {1}
    assert draws(Sampling(repetition_penalty=2.0), prompt=[1]) == {2}
    assert draws(Sampling(temperature=1.0, top_k=1)) == {1}
    assert draws(Sampling(temperature=1.0, min_p=0.5)) == {1, 2}
    assert draws(Sampling(temperature=1.0, top_p=0.9)) == {1, 2}
    assert draws(Sampling(temperature=5.0)) == {0, 1, 2, 3}
    presence = Sampler(Sampling(presence_penalty=1.0), 0, [1], cpu)
    assert [presence.pick(logits), presence.pick(logits)] == [1, 2]


def test_a_model_whose_state_cannot_be_cut_back_is_refused(tiny: Path, tmp_path: Path) -> None:
    from transformers import AutoConfig

    from upkeep.serving.transformers_engine import TransformersEngine

    shutil.copytree(tiny, tmp_path, dirs_exist_ok=True)
    config = AutoConfig.for_model("qwen3_next", num_hidden_layers=4, hidden_size=64, vocab_size=100)
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict(), default=str))
    with pytest.raises(ValueError, match="linear_attention"):
        TransformersEngine(str(tmp_path), spec(), EngineSettings(name="transformers"))


def test_segments_compare_by_content() -> None:
    a, b, c = array("i", [1, 2]), array("i", [1, 2]), array("i", [3])
    assert shared_segments([a, c], [b, a]) == 1
    assert shared_segments([], [a]) == 0


# ---------------------------------------------------------------- a prefix


@pytest.fixture(scope="module")
def prefixed(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prefix of seven tokens for the model `tiny`, as PEFT writes it."""
    from peft import PrefixTuningConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    folder = tmp_path_factory.mktemp("prefix")
    torch.manual_seed(5)
    network = get_peft_model(
        AutoModelForCausalLM.from_pretrained(tiny), PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=7)
    )
    network.save_pretrained(folder)
    file = folder / "adapter_model.safetensors"
    save_file({name: 20 * tensor for name, tensor in load_file(file).items()}, file)  # so that it shows
    return folder


@pytest.mark.parametrize("laned", [True, False], ids=["lanes", "alone"])
def test_a_prefix_stands_before_every_prompt_and_answer(
    tiny: Path, prefixed: Path, monkeypatch: pytest.MonkeyPatch, laned: bool
) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    theirs = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tiny), prefixed).eval()
    if not laned:
        monkeypatch.setattr("upkeep.serving.transformers_engine.LANE_TOKENS", 0)
    model = TransformersEngine(str(tiny), spec(), EngineSettings(name="transformers"), prefixed)
    assert model.context_length == spec().context_length - 7
    for question in ("Who?", "Where did they go?", "Who?"):
        prompt = model.tokens.prompt(chat(2, question, words=40))
        found = _generate(model, prompt)
        ids = torch.tensor([prompt.ids()])
        for token in found.ids:
            with torch.inference_mode():
                logits = theirs(input_ids=ids).logits[0, -1]
            assert logits.max() - logits[token] < 1e-4
            ids = torch.cat([ids, torch.tensor([[token]])], dim=1)
    plain = _generate(engine(tiny), engine(tiny).tokens.prompt(chat(2, "Who?", words=40)))
    assert list(plain.ids) != list(_generate(model, model.tokens.prompt(chat(2, "Who?", words=40))).ids)


def test_a_prefix_of_another_model_is_refused(prefixed: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    tiny_llama(tmp_path / "other", layers=3)
    with pytest.raises(ValueError, match="a prefix of another model"):
        TransformersEngine(str(tmp_path / "other"), spec(), EngineSettings(name="transformers"), prefixed)
