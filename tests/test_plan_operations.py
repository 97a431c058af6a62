"""What trainings that learn from a model's own words compute is what a plan says: each matrix product is counted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch

from finetunings import given
from method_fakes import PROMPTS, load
from shaped_models import DOCUMENTS, LORA, PAIRS, PARTS, Base, base
from upkeep.cell import Tools
from upkeep.operations.plan.distilling import answering, distilled, studied

__all__ = ["base"]


def counted(train: Callable[[], object], between_tokens: bool) -> float:
    """Floating-point operations of the matrix products of a training.

    Args:
        between_tokens: those of attention, too.
    """
    from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

    # The only kind of attention that the counter does not know of itself.
    forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    of = {
        forward: lambda *shapes, **_: sdpa_flop_count(*shapes[:3]),
        backward: lambda *shapes, **_: sdpa_backward_flop_count(*shapes[:4]),
    }
    with FlopCounterMode(display=False, custom_mapping=of if between_tokens else None) as counter:
        train()
    return float(counter.get_total_flops())


# The layers of this one have most of its weights, as those have whose training takes long.
@pytest.mark.parametrize("base", ["deep"], indirect=True)
@pytest.mark.parametrize("kind", [{}, LORA], ids=["full", "lora"])
def test_the_operations_of_self_distillation_are_within_15_percent_of_those_counted(
    kind: dict[str, Any], base: Base, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    answer = 24
    method = load("sdft")(PARTS | kind | {"completion_tokens": answer}, Tools(PROMPTS["oaks_babi"], seed=1))
    training = given(base.folder, tmp_path / "model", base.spec, DOCUMENTS, PAIRS)
    tokenizer = AutoTokenizer.from_pretrained(base.folder)
    asked, shown = (
        fmean(
            len(tokenizer.apply_chat_template(row[of], add_generation_prompt=True)["input_ids"])
            for row in method._examples(training, tokenizer)
        )
        for of in ("prompt", "privileged_context")
    )
    said = answering(len(PAIRS), asked, answer)
    planned = distilled(base.spec, method.parameters, len(PAIRS), asked, shown, answer)
    planned += 2e9 * (base.spec.parameters_b or 0) * (said.computed + said.output)
    assert planned == pytest.approx(counted(lambda: method.train(training), False), rel=0.15)


@pytest.mark.parametrize("base", ["deep"], indirect=True)
def test_the_operations_of_a_prefix_are_within_15_percent_of_those_counted(
    base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = load("cartridges")(PARTS | {"prefix": 256, "epochs": 3}, Tools(PROMPTS["oaks_babi"], seed=1))
    module, rows, read = sys.modules[type(method).__module__], list[Any](), list[int]()
    real_trainer, real_likely = module._trainer, module.likely

    def likely(network: Any, prompt: list[int], *rest: Any) -> Any:
        read.append(len(prompt))
        return real_likely(network, prompt, *rest)

    def trainer(model: Any, given: Any, *rest: Any) -> Any:
        rows.extend(given)
        return real_trainer(model, given, *rest)

    monkeypatch.setattr(module, "likely", likely)
    monkeypatch.setattr(module, "_trainer", trainer)
    training = given(base.folder, tmp_path / "model", base.spec, DOCUMENTS, PAIRS)
    found = counted(lambda: method.train(training), True)
    said = fmean(len(row["known"]) for row in rows)
    asked = fmean(len(row["input_ids"]) for row in rows) - said
    planned = studied(base.spec, 3, len(rows), fmean(read) - asked, asked, said, 256)
    assert planned == pytest.approx(found, rel=0.15)
