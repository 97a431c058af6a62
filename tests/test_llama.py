"""Claims about the forward pass of Llama and its kin: the numbers of transformers, and rows that do not feel each
other."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from conftest import ROOT
from engine_models import tiny
from upkeep.serving import llama

__all__ = ["tiny"]


@pytest.mark.parametrize("steps", [True, False], ids=["steps", "passes"])
@pytest.mark.parametrize("why", ["", "place", "number", "activation"])
def test_which_numbers_of_rows_agree_is_seen_whatever_the_first_word_is(
    why: str, steps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many models the first word has no numbers. Which agree where nothing is made to differ is the machine's."""
    theirs, sizes = random_model("qwen2", torch.float32), (4, 8, 16)
    with torch.inference_mode():
        usual = llama.of(theirs, 200)
        assert usual is not None and (agreeing := usual.agreeing(sizes, steps))
        theirs.get_input_embeddings().weight[0] = 0
        model = llama.of(theirs, 200)
        assert model is not None
        plain, activation = llama.Linear.__call__, model._activation

        def differing(self: llama.Linear, x: torch.Tensor) -> torch.Tensor:
            rows = x.shape[0] * x.shape[1]
            there = torch.arange(rows).view(*x.shape[:2], 1) if why == "place" else rows
            return plain(self, x) * (1 + 1e-6 * there)

        if why in ("place", "number"):
            monkeypatch.setattr(llama.Linear, "__call__", differing)
        if why == "activation":  # as where a thread's last numbers are in the middle of a row
            last = lambda x: torch.cat((activation(x).flatten()[:-1], x.flatten()[-1:])).view_as(x)  # noqa: E731
            monkeypatch.setattr(model, "_activation", last)
        found = model.agreeing(sizes, steps)
    assert found == {"": agreeing, "place": [], "number": [4], "activation": []}[why]


@pytest.mark.parametrize("heads", [1, 3, 4])
def test_attention_to_two_places_is_that_to_all(heads: int) -> None:
    rows, ratio = [1, 3, 1, 2, 4], 12 // heads
    asked = torch.randn(sum(rows), 12, 16)
    first = torch.randn(2, 1, heads, 40, 16)
    whole, found, sums = list[torch.Tensor](), list[torch.Tensor](), list[torch.Tensor]()
    for query in asked.split(rows):
        new, own = len(query), torch.randn(2, 1, heads, 3 + len(query), 16)
        joined, later = torch.cat((first, own), 3), (new, torch.float32, torch.device("cpu"))
        together = llama.attention(query.transpose(0, 1)[None], *joined, llama.causal_mask(43, *later))
        whole.append(together[0].transpose(0, 1))
        for n in range(new):
            one = llama.attention(query[n, None, :, None], *joined[:, :, :, : 43 + n + 1])
            assert torch.allclose(whole[-1][n], one[0, :, 0], atol=1e-6)
        mask = llama.causal_mask(3, *later)
        mask = None if mask is None else mask.repeat(ratio, 1)
        theirs, of_theirs = llama.attention_with_sums(llama.by_heads(query[None], heads), *own, mask)
        found.append(llama.by_tokens(theirs, ratio)[0])
        sums.append(llama.by_tokens(of_theirs[..., None], ratio)[0, ..., 0])
    for size in (11, 16):
        divided = llama.attention_divided(asked, torch.cat(found), torch.cat(sums), *first, size)
        assert torch.allclose(divided, torch.cat(whole), atol=1e-6)


def random_model(kind: str, dtype: torch.dtype, **more: Any) -> Any:
    """Of transformers."""
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 300}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes, **heads, **more), dtype=dtype).eval()
    with torch.inference_mode():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("tied", [False, True], ids=["two matrices", "one matrix"])
def test_a_model_that_is_read_from_its_files_is_the_one_that_transformers_loads(
    tmp_path: Path, kind: str, dtype: torch.dtype, tied: bool
) -> None:
    from upkeep.serving import llama_files

    theirs = random_model(kind, dtype, tie_word_embeddings=tied)
    theirs.save_pretrained(tmp_path, max_shard_size="100KB" if tied else "1GB")
    assert (tmp_path / "model.safetensors.index.json").is_file() == tied
    with torch.inference_mode():
        loaded, read = llama.of(theirs, 200), llama_files.read(tmp_path, dtype, theirs.device, 200)
        assert loaded is not None
        assert read is not None

        def attend(_: int, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
            return llama.attention(query, keys, values, llama.causal_mask(0, 150, dtype, theirs.device))

        tokens, places = torch.randint(300, (1, 150)), torch.arange(50, 200)[None]
        assert torch.equal(loaded(tokens, places, attend, 0), read(tokens, places, attend, 0))


LEFT: dict[str, dict[str, Any]] = {
    "scaled positions": {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    "scaled positions in both places": {
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
        "rope_scaling": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0},
    },
    "another base of positions by layer": {"rope_parameters": {"full_attention": {"rope_theta": 10000.0}}},
    "a part of each head turned": {"rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.5}},
    "another function": {"hidden_act": "gelu"},
    "numbers of a few bits": {"quantization_config": {"quant_method": "awq"}},
    "a window": {"model_type": "qwen2", "use_sliding_window": True},
    "windows in some layers": {"layer_types": ["sliding_attention", "full_attention"]},
    "another kind": {"model_type": "mistral"},
    "no word of heads": {"num_key_value_heads": ...},
    "no word of positions": {"rope_theta": ..., "rope_parameters": ...},
    "more words than there are rows": {"vocab_size": 100_000},
    "a bias that is not there": {"attention_bias": True},
    "a head of its own beside a tie": {"tie_word_embeddings": True},
    "fewer layers than there are": {"num_hidden_layers": 1},
    "an adapter beside it": {},
}


@pytest.mark.parametrize("why", LEFT)
def test_what_is_not_plainly_such_a_model_is_left_to_transformers(tiny: Path, tmp_path: Path, why: str) -> None:
    from upkeep.serving import llama_files

    shutil.copytree(tiny, tmp_path, dirs_exist_ok=True)
    cpu = torch.device("cpu")
    assert llama_files.read(tmp_path, torch.float32, cpu, 200) is not None
    config = json.loads((tmp_path / "config.json").read_text())
    if "tie" in why:
        weights = load_file(tmp_path / "model.safetensors")
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"] + 1
        save_file(weights, tmp_path / "model.safetensors")
    if "adapter" in why:
        (tmp_path / "adapter_config.json").write_text("{}")
    (tmp_path / "config.json").write_text(
        json.dumps({name: v for name, v in {**config, **LEFT[why]}.items() if v is not ...})
    )
    assert llama_files.read(tmp_path, torch.float32, cpu, 200) is None


def test_an_engine_of_a_plain_model_starts_without_the_models_of_transformers(tiny: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from engine_models import engine; engine(Path(sys.argv[1])); "
        "print(sorted({'sympy', 'torch._dynamo', 'transformers.modeling_utils'} & sys.modules.keys()))"
    )
    paths = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"}
    run = subprocess.run([sys.executable, "-c", code, str(tiny)], capture_output=True, text=True, check=True, env=paths)
    assert run.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("by_onednn", [False, True], ids=["", "oneDNN"])
def test_the_step_for_llama_and_its_kin_gives_what_transformers_does_and_the_very_bits_but_for_onednn(
    kind: str, dtype: torch.dtype, by_onednn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not by_onednn:
        monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    from upkeep.serving.keys import Held, as_cache

    theirs = random_model(kind, dtype)
    held, kept = [Held(), Held()], as_cache([Held(), Held()])
    with torch.inference_mode():
        ours = llama.of(theirs, 200)
        assert ours is not None
        for before, new in ((0, 20), (20, 1), (21, 30), (51, 1)):
            tokens, places = torch.randint(300, (1, new)), torch.arange(before, before + new)[None]
            mask = llama.causal_mask(before, new, dtype, tokens.device)

            def attend(n: int, query: torch.Tensor, *new: torch.Tensor, mask: Any = mask) -> torch.Tensor:
                return llama.attention(query, *held[n].update(*new), mask)

            wanted = theirs(input_ids=tokens, past_key_values=kept, use_cache=True).logits
            found = ours(tokens, places, attend, 0)
            assert torch.allclose(found, wanted, atol=1e-4) if by_onednn else torch.equal(found, wanted)
