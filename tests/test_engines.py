"""Claims about the engines: lock-step order, what is split and counted, prefixes, and what is refused."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from array import array
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine_models import CHATS, Recorder, answers, ask, chat, engine, families, spec, tiny
from upkeep.cell.interface import Message, PromptTooLong
from upkeep.cell.lockstep import (
    Engine,
    EngineDied,
    Generate,
    Generated,
    Handle,
    call_seed,
    lockstep,
    split_reasoning,
)
from upkeep.cell.tokens import ChatTokens, TokenPrompt, shared_segments
from upkeep.contract import EngineSettings, Sampling
from upkeep.serving.make_model import tiny_llama
from upkeep.serving.transformers_engine import TransformersEngine

__all__ = ["families", "tiny"]


@pytest.fixture
def recorder(families: dict[str, ChatTokens]) -> Recorder:
    return Recorder(families["tiny"])


# ---------------------------------------------------------------- lock-step


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


def test_greedy_replies_do_not_wait_for_what_draws_to_load() -> None:
    program = """
import sys, torch
from upkeep.contract import Sampling
from upkeep.serving.sampling import Sampler
for temperature in (0.0, 1.0):
    Sampler(Sampling(temperature=temperature), 0, [1], torch.device("cpu")).pick(torch.tensor([0.0, 1.0]))
    print("transformers" in sys.modules)
"""
    told = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert told.split() == ["False", "True"]


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


# ---------------------------------------------------------------- a prefix


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
