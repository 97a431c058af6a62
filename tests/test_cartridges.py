"""What a prefix learns of documents: models of a hundred thousand weights are trained, here and now."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file

from method_fakes import PROMPTS, FakeLLM, document, load, text_of
from method_runs import card
from upkeep.cell import LLM, Checkpoints, Context, Document, Message, Reply, Sampling, Tools, Training
from upkeep.cell.adapters import prefix
from upkeep.cell.lockstep import Generate, Generated
from upkeep.cell.runner import _handle
from upkeep.cell.tokens import ChatTokens
from upkeep.contract import EngineSettings, ModelSpec, Pair, Probe
from upkeep.operations.plan.distilling import studying
from upkeep.serving.make_model import tiny_llama
from upkeep.serving.transformers_engine import TransformersEngine

FACTS = {"Mira": "attic", "Zoltan": "cellar", "Anna": "harbour", "Peter": "tower"}
DOCUMENTS = [document(n, f"{name} is in the {place}.") for n, (name, place) in enumerate(FACTS.items())]
PAIRS = [
    Pair(question=f"Where is {name}?", answer=place, document=DOCUMENTS[n].id)
    for n, (name, place) in enumerate(FACTS.items())
]
TINY = ModelSpec(label="tiny", summary="", source="rule", location="tiny_llama", context_length=2048, trained=False)
SMALL = {"prefix": 24, "piece": 64, "studies": 0, "completion": 16, "epochs": 30, "batch": 2, "device_batch": 1}
Cartridges = load("cartridges")
METHOD = sys.modules[Cartridges.__module__]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    tiny_llama(folder, vocabulary=1024)
    return folder


def asked_of(llm: FakeLLM) -> Any:
    """`Training.ask` of a model that is at hand."""

    def ask(study: Callable[[LLM], Awaitable[Any]]) -> Any:
        async def studied() -> Any:
            return await study(llm)

        return asyncio.run(studied())

    return ask


def method(variant: str = "tiny", seed: int = 0, **parameters: Any) -> Any:
    described = {n: v for n, v in card("cartridges").variants[variant].items() if n != "supervision"}
    return Cartridges(described | SMALL | parameters, Tools(PROMPTS["oaks_babi"], seed=seed))


def given(base: Path, output: Path, llm: FakeLLM | None = None, **changes: Any) -> Training:
    output.parent.mkdir(exist_ok=True)
    checkpoints = Checkpoints(output.parent / f"{output.name}.checkpoints")
    ask = asked_of(llm or FakeLLM(TINY.context_length))
    fields = {"spec": TINY, "documents": DOCUMENTS, "pairs": PAIRS} | changes
    return Training(weights=base, output=output, checkpoints=checkpoints, ask=ask, **fields)


def train(base: Path, output: Path, seed: int = 0, **parameters: Any) -> Path:
    method(seed=seed, **parameters).train(given(base, output))
    return output


def network_of(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder).eval()


# ---------------------------------------------------------------- what it is before and after training


def test_before_it_is_trained_a_prefix_gives_the_answers_of_the_text_that_it_is_made_of(
    base: Path, tmp_path: Path
) -> None:
    untrained = train(base, tmp_path / "prefix", learning_rate=0.0, epochs=1)
    tokens, network = ChatTokens(str(base), TINY), network_of(base)
    first = METHOD.beginning(tokens, DOCUMENTS, SMALL["prefix"])
    assert "sentinel0" in tokens.decode(first)
    engine = TransformersEngine(str(base), TINY, EngineSettings(name="transformers"), untrained)
    for question in ("Where is Mira?", "Who is in the cellar?"):
        prompt = tokens.prompt(method()._put(question))
        found = generated(engine, prompt)
        ids = [*first, *prompt.ids()]
        for token in found.ids:
            with torch.inference_mode():
                logits = network(input_ids=torch.tensor([ids])).logits[0, -1]
            assert logits.max() - logits[token] < 1e-4
            ids.append(token)
        alone = generated(TransformersEngine(str(base), TINY, EngineSettings(name="transformers")), prompt)
        assert list(alone.ids) != list(found.ids), "the text makes a difference"


def generated(engine: TransformersEngine, prompt: Any) -> Generated:
    future: asyncio.Future[Generated] = asyncio.new_event_loop().create_future()
    engine.add(Generate(prompt, Sampling(max_tokens=8), 0, future))
    while engine.busy:
        for _, outcome in engine.step():
            assert isinstance(outcome, Generated)
            return outcome
    raise AssertionError("nothing was generated")


def loss_of(base: Path, folder: Path) -> float:
    """Of a prefix on what it was trained on, per token, as PEFT has the model read it."""
    from peft import PeftModel

    tokens, teacher, llm = ChatTokens(str(base), TINY), network_of(base), FakeLLM(TINY.context_length)
    one = method()
    said = asked_of(llm)(partial(one.study, given(base, folder, llm)))
    rows = [one._row(conversation, tokens, teacher) for conversation in said]
    model = PeftModel.from_pretrained(network_of(base), folder).eval()
    batch = METHOD._collated(rows)
    with torch.inference_mode():
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        total = METHOD.distilled(logits, batch["labels"], batch["likeliest"], batch["known"])
    return float(total) / len(batch["known"])


def test_training_brings_a_prefix_near_to_what_the_teacher_says_and_leaves_its_first_token(
    base: Path, tmp_path: Path
) -> None:
    weights = (base / "model.safetensors").read_bytes()
    untrained = train(base, tmp_path / "untrained", learning_rate=0.0, epochs=1)
    trained = train(base, tmp_path / "trained")
    before, after = prefix(untrained), prefix(trained)
    assert before[:, :, :, 0].equal(after[:, :, :, 0])
    assert not any(before[:, :, :, n].equal(after[:, :, :, n]) for n in range(1, SMALL["prefix"]))
    assert loss_of(base, trained) < loss_of(base, untrained) - 0.02, "little of what random weights say is its own"
    assert (base / "model.safetensors").read_bytes() == weights, "the base is left as it was"


def test_a_prefix_depends_on_the_seed_and_not_on_where_its_model_lay(base: Path, tmp_path: Path) -> None:
    elsewhere = shutil.copytree(base, tmp_path / "elsewhere")
    made = [
        train(b, tmp_path / str(n), seed=s, epochs=2) for n, (b, s) in enumerate([(base, 0), (elsewhere, 0), (base, 1)])
    ]
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        assert (made[0] / name).read_bytes() == (made[1] / name).read_bytes(), name
    assert (made[0] / "adapter_model.safetensors").read_bytes() != (made[2] / "adapter_model.safetensors").read_bytes()
    assert sorted(path.name for path in made[0].iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]


def test_a_batch_is_learned_alike_however_it_is_divided(base: Path, tmp_path: Path) -> None:
    whole, divided = (
        load_file(train(base, tmp_path / str(n), epochs=1, batch=4, device_batch=n) / "adapter_model.safetensors")
        for n in (4, 1)
    )
    assert (whole["prompt_embeddings"] - divided["prompt_embeddings"]).abs().max() < 1e-4


# ---------------------------------------------------------------- the loss


def test_the_loss_is_the_cross_entropy_to_the_teachers_likeliest_tokens() -> None:
    logits = torch.tensor([[[0.0, 1.0, 2.0], [3.0, 0.0, 0.0], [0.0, 0.0, 0.0], [9.0, 9.0, 9.0]]])
    labels = torch.tensor([[-100, -100, 2, 0]])  # the second and the third place are asked for these tokens
    likeliest = torch.tensor([[0, 2], [1, 0]])
    known = torch.tensor([[0.6, 0.3], [0.5, 0.25]]).log()
    second = [math.log(math.exp(x) / (math.exp(3.0) + 2)) for x in (3.0, 0.0, 0.0)]
    third = [math.log(1 / 3)] * 3
    expected = -(0.6 * second[0] + 0.3 * second[2] + 0.5 * third[1] + 0.25 * third[0])
    assert float(METHOD.distilled(logits, labels, likeliest, known)) == pytest.approx(expected, rel=1e-5)


def test_the_teacher_reads_the_piece_and_the_student_does_not(base: Path) -> None:
    tokens, network = ChatTokens(str(base), TINY), network_of(base)
    piece, one = DOCUMENTS[1], method()
    row = one._row(METHOD.Conversation(piece, "Where is Zoltan?", "## Answer: cellar", True), tokens, network)
    read = tokens.tokenizer.decode(row["input_ids"])
    assert "Zoltan" in read and "sentinel1" not in read
    reply = [token for token in row["labels"] if token != METHOD.UNTAUGHT]
    assert row["labels"][-len(reply) :] == reply and tokens.decode(reply) == "## Answer: cellar"
    assert reply[-1] in tokens.stop_ids, "it learns where to end"
    seen = tokens.prompt(one.tools.prompt.messages(method_probe("Where is Zoltan?"), Context(recent=[piece]))).ids()
    with torch.inference_mode():
        said = network(input_ids=torch.tensor([[*seen, *reply]])).logits[0, len(seen) - 1 : -1].log_softmax(-1)
    known, likeliest = said.topk(100)
    assert row["likeliest"].equal(likeliest) and torch.allclose(row["known"], known, atol=1e-4)


def method_probe(question: str) -> Any:
    return Probe(id="", question_id="", stream="", position=0, question=question, options=None, form="short")


def test_what_fills_a_batch_up_changes_no_loss(base: Path, tmp_path: Path) -> None:
    tokens, network, one = ChatTokens(str(base), TINY), network_of(base), method()
    rows = [
        one._row(METHOD.Conversation(DOCUMENTS[n], question, reply, True), tokens, network)
        for n, (question, reply) in enumerate(
            [("Who?", "Mira"), ("Where is Zoltan now, of all places?", "In the cellar.")]
        )
    ]
    model = METHOD.prefixed(network, METHOD.beginning(tokens, DOCUMENTS, 8))

    def loss(*some: Any) -> float:
        batch = METHOD._collated(some)
        with torch.inference_mode():
            logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        return float(METHOD.distilled(logits, batch["labels"], batch["likeliest"], batch["known"]))

    assert loss(*rows) == pytest.approx(loss(rows[0]) + loss(rows[1]), rel=1e-4)


# ---------------------------------------------------------------- self-study


def studied(documents: Sequence[Document], pairs: Sequence[Pair], llm: FakeLLM, base: Path, **parameters: Any) -> Any:
    training = given(base, base.parent / "unused", llm, documents=documents, pairs=pairs)
    return asked_of(llm)(partial(method(**parameters).study, training))


def test_each_piece_is_asked_about_in_every_way_and_each_pair_over_its_own_piece(base: Path) -> None:
    llm = FakeLLM(TINY.context_length)
    long = msgspec.structs.replace(DOCUMENTS[0], text=" ".join([DOCUMENTS[0].text, *["and so on"] * 20]))
    said = studied([long, *DOCUMENTS[1:]], PAIRS, llm, base, studies=5, piece=40)
    pieces = {conversation.piece.text for conversation in said}
    assert len(pieces) == 5 and all(len(text.split()) <= 40 for text in pieces)
    assert len(said) == len(PAIRS) + 5 * len(pieces)
    assert len(llm.prompts) == studying(len(pieces), 1, 5, len(PAIRS), 1, 1, 1).requests, "as a plan counts them"
    for conversation, name in zip(said, FACTS, strict=False):
        assert conversation.question == f"Where is {name}?" and name in conversation.piece.text
    for kind in METHOD.KINDS:
        assert sum(kind in prompt for prompt in llm.prompts) == len(pieces)
    for prompt in llm.prompts:
        assert sum(f"sentinel{n}x" in prompt for n in range(len(DOCUMENTS))) <= 1, "one document at a time"
    answered = [prompt for prompt in llm.prompts if "Where is Mira?" in prompt]
    assert len(answered) == 1 and "sentinel0x" in answered[0]


class Mute(FakeLLM):
    """Says nothing."""

    async def chat(self, messages: Sequence[Message], sampling: Sampling | None = None, **options: Any) -> Reply:
        self.prompts.append(text_of(messages))
        return Reply("  ", None, "stop", 1, 1, 0)


@pytest.mark.parametrize("studies", [0, 1])
def test_a_model_that_says_nothing_teaches_nothing(base: Path, studies: int) -> None:
    with pytest.raises(ValueError, match="the model said nothing in"):
        studied(DOCUMENTS, PAIRS, Mute(TINY.context_length), base, studies=studies)


def test_empty_documents_are_refused_before_anything_is_asked(base: Path) -> None:
    empty, llm = [msgspec.structs.replace(one, text=" \n") for one in DOCUMENTS], FakeLLM(TINY.context_length)
    with pytest.raises(ValueError, match="the 4 documents are empty"):
        studied(empty, PAIRS, llm, base, studies=5)
    assert not llm.prompts


def test_a_prefix_that_leaves_no_room_for_a_conversation_is_refused_before_anything_is_asked(
    base: Path, tmp_path: Path
) -> None:
    llm = FakeLLM(TINY.context_length)
    narrow = msgspec.structs.replace(TINY, context_length=100)
    with pytest.raises(ValueError, match=r"a prefix of 24 tokens and a conversation of \d+ do not fit into .* 100;"):
        method().train(given(base, tmp_path / "prefix", llm, spec=narrow))
    assert not llm.prompts and not (tmp_path / "prefix").exists()


# ---------------------------------------------------------------- as it is served


def test_a_method_has_what_the_prefix_leaves_of_the_models_context(base: Path, tmp_path: Path) -> None:
    made = train(base, tmp_path / "prefix", epochs=1)
    engine = TransformersEngine(str(base), TINY, EngineSettings(name="transformers"), made)
    cell: Any = SimpleNamespace(seed=0)
    assert _handle(engine, cell, TINY, "key").context_length == TINY.context_length - SMALL["prefix"]


def test_the_folder_says_what_it_is(base: Path, tmp_path: Path) -> None:
    config = json.loads((train(base, tmp_path / "prefix", epochs=1) / "adapter_config.json").read_text())
    assert (config["peft_type"], config["num_virtual_tokens"], config["num_frozen_tokens"]) == ("CARTRIDGE", 24, 1)
    assert config["base_model_name_or_path"] == "tiny_llama"
