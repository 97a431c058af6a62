"""What it saves to decode answers in lanes, and to draft tokens of them: `python benchmarks/lanes.py`, from an
environment with the transformers engine.

`pico` answers questions about the latest documents of a small dataset on one core, one sequence after the other and in
lanes, without drafts, with those from a sequence's own prompt and answer, and with those from earlier answers, too.
Prompts are computed alike. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from upkeep.catalog import Catalog
from upkeep.cell.interface import Context
from upkeep.cell.lockstep import Generate, Generated, lockstep
from upkeep.cell.prompts import Prompt
from upkeep.cell.tokens import TokenPrompt
from upkeep.contract import EngineSettings
from upkeep.serving import transformers_engine
from upkeep.serving.lanes import DRAFTED, LANES

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "models" / "pico"))
from recipe.inputs import build_world  # noqa: E402

CATALOG = Catalog(ROOT)
SPEC = CATALOG.model("pico")
LANE_TOKENS = transformers_engine.LANE_TOKENS


def prompts(dataset: str, requests: int, documents: int) -> list[TokenPrompt]:
    """Of the first probes that have so many documents before them."""
    world = build_world(CATALOG, dataset, int(CATALOG.dataset(dataset).options["seed"]))
    prompt, tokens = Prompt(CATALOG.prompt_of(dataset), world.examples), engine().chat_tokens
    found: list[TokenPrompt] = []
    for probe in world.probes:
        if len(found) == requests:
            break
        before = [d for d in world.documents if d.stream == probe.stream and d.position <= probe.position]
        if len(before) >= documents:
            found.append(tokens.prompt(prompt.messages(probe, Context(recent=before[-documents:]))))
    return found


def engine() -> transformers_engine.TransformersEngine:
    return transformers_engine.TransformersEngine(
        str(ROOT / "models" / "pico"), SPEC, EngineSettings(name="transformers")
    )


def answer(asked: Sequence[TokenPrompt], lanes: bool, drafted: int, earlier: bool) -> tuple[float, list[list[int]]]:
    """Seconds, and the tokens of the answers.

    Args:
        drafted: tokens, at most.
        earlier: whether they may be those of earlier answers.
    """
    transformers_engine.LANE_TOKENS = LANE_TOKENS if lanes else 0
    model = engine()
    model._drafted = drafted
    if not earlier:
        model._answers = None
    if model.lanes == 1:
        raise SystemExit("rows of a step depend on each other on this machine: nothing is decoded in lanes")

    async def main() -> list[Generated]:
        loop = asyncio.get_running_loop()
        requests = [Generate(prompt, SPEC.sampling, 0, loop.create_future()) for prompt in asked]
        for request in requests:
            model.add(request)
        return [await request.future for request in requests]

    begin = time.perf_counter()
    with lockstep(model) as loop:
        found = loop.run(main())
    return time.perf_counter() - begin, [one.ids for one in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="oaks_babi_mini")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--documents", type=int, default=5, help="of a prompt")
    arguments = parser.parse_args()
    asked = prompts(arguments.dataset, arguments.requests, arguments.documents)
    print("| decoded | drafted | from | tokens of answers | seconds | ratio | same answers |")
    print("| --- | ---: | --- | ---: | ---: | ---: | ---: |")
    answer(asked[:8], lanes=True, drafted=DRAFTED, earlier=True)  # the first products of a process take longer
    first, expected = 0.0, list[list[int]]()
    ways = ((False, 0, False), (False, DRAFTED, False), (True, 0, False), (True, DRAFTED, False), (True, DRAFTED, True))
    for lanes, drafted, earlier in ways:
        seconds, found = answer(asked, lanes, drafted, earlier)
        first, expected = first or seconds, expected or found
        same = sum(one == other for one, other in zip(found, expected, strict=True)) / len(asked)
        name = f"in {LANES} lanes" if lanes else "one by one"
        source = "earlier answers, too" if earlier else "itself" if drafted else ""
        tokens = sum(map(len, found))
        print(
            f"| {name} | {drafted} | {source} | {tokens:,} | {seconds:.2f} | {first / seconds:.1f} | {same:.0%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
