"""The same greedy answers from vLLM and from transformers: `python benchmarks/engines.py [--runtime R]`.

Asks `pico` all probes of five small datasets as the oracle does, in whole cells, once with each engine. Prints how many
replies are the same, and of each other one the two tokens at which they part, with the difference of their logits in
float32: where it is small, the engines' kernels have only rounded differently.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import torch
from transformers import AutoModelForCausalLM

from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.cell.prompts import Prompt, fit
from upkeep.contract import Prediction
from upkeep.execution.fetch import fetch
from upkeep.execution.supervise import run_cell
from upkeep.jobs import Cell
from upkeep.layout import Layout

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "models" / "pico"))
from recipe.evaluate import Model, evidence  # noqa: E402
from recipe.inputs import build_world  # noqa: E402

DATASETS = ("evowiki_mini", "imprint_code_mini", "imprint_news_mini", "evolveqa_aws_mini", "evolveqa_aws_control_mini")
MODELS = ("pico", "pico-vllm")


def replies(catalog: Catalog, dataset: str, model: str) -> dict[str, str]:
    """By probe, the reply of a cell that is run where it was not yet."""
    cell = Cell(dataset, "oracle", "default", model)
    run_cell(catalog, cell)
    lines = (Layout(catalog.results).cell(cell) / "predictions.jsonl").read_bytes().splitlines()
    return {p.probe_id: p.response or "" for p in (msgspec.json.decode(line, type=Prediction) for line in lines)}


def prompts(catalog: Catalog, dataset: str, model: Any, wanted: set[str]) -> dict[str, str]:
    """By probe, what the oracle asks."""
    world = build_world(catalog, dataset, int(catalog.dataset(dataset).options["seed"]))
    prompt = Prompt(catalog.prompt_of(dataset), world.examples)
    found = {}
    for probe, gold in zip(world.probes, world.golds, strict=True):
        if probe.id not in wanted:
            continue
        messages, _ = fit(prompt, probe, evidence(gold, world.documents), model)
        found[probe.id] = model.render(messages)
    return found


@torch.inference_mode()  # type: ignore[untyped-decorator]
def parting(model: Model, plain: Any, prompt: str, one: str, other: str) -> tuple[str, str, float]:
    """The first tokens in which two replies differ, and how much more logit the first one has.

    Args:
        plain: the model as transformers has it.
    """
    tokenizer = model.tokens.tokenizer

    def ids(text: str) -> list[int]:
        return [*model.tokens.encode(text), tokenizer.eos_token_id]

    a, b = ids(one), ids(other)
    same = next(n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
    given = model.tokens.encode(prompt) + a[:same]
    logits = plain(torch.tensor([given])).logits[0, -1]
    names = (tokenizer.decode([token]) for token in (a[same], b[same]))
    return *names, float(logits[a[same]] - logits[b[same]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runtime", default="auto")
    parser.add_argument("--datasets", nargs="+", default=DATASETS)
    parser.add_argument("--root", type=Path, default=ROOT, help="a clone of the suite, whose results are used")
    arguments = parser.parse_args()
    os.environ["UPKEEP_RUNTIME"] = arguments.runtime
    catalog = Catalog(arguments.root)
    for name in MODELS:
        fetch(catalog, name)
    weights = arguments.root / "models" / "pico"
    model = Model(weights, catalog.model("pico").sampling)
    plain = AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32)
    print("| dataset | probes | same replies |\n| --- | ---: | ---: |")
    differences: list[str] = []
    for dataset in arguments.datasets:
        build_dataset(catalog, dataset, Layout(catalog.results).dataset(dataset))
        first, second = (replies(catalog, dataset, name) for name in MODELS)
        unlike = {id for id, reply in first.items() if reply != second[id]}
        print(f"| {dataset} | {len(first):,} | {100 * (1 - len(unlike) / len(first)):.1f}% |", flush=True)
        for id, prompt in sorted(prompts(catalog, dataset, model, unlike).items()):
            a, b, gap = parting(model, plain, prompt, first[id], second[id])
            differences.append(f"| {id} | {a!r} | {b!r} | {gap:.5f} |")
    print(
        "\n| probe | transformers | vLLM | difference of logits |\n| --- | --- | --- | ---: |", *differences, sep="\n"
    )


if __name__ == "__main__":
    main()
