"""What it saves to decode answers in lanes: `python benchmarks/lanes.py`, from an environment with the transformers
engine.

The same questions, each over a context of its own, are answered by `pico` on one core, one sequence after the other and
in lanes; prompts are computed alike. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path

from upkeep.catalog import Catalog
from upkeep.cell.lockstep import Generate, Generated, lockstep
from upkeep.contract import EngineSettings, Sampling
from upkeep.serving import transformers_engine
from upkeep.serving.lanes import LANES

ROOT = Path(__file__).resolve().parents[1]
SPEC = Catalog(ROOT).model("pico")
LANE_TOKENS = transformers_engine.LANE_TOKENS


def answer(requests: int, context: int, reply: int, lanes: bool) -> tuple[float, int]:
    """Seconds, and tokens of the answers."""
    transformers_engine.LANE_TOKENS = LANE_TOKENS if lanes else 0
    engine = transformers_engine.TransformersEngine(
        str(ROOT / "models" / "pico"), SPEC, EngineSettings(name="transformers")
    )
    if engine.lanes == 1:
        raise SystemExit("rows of a step depend on each other on this machine: nothing is decoded in lanes")
    engine.chat_tokens.stop_ids = frozenset()

    async def main() -> list[Generated]:
        loop = asyncio.get_running_loop()
        asked = []
        for n in range(requests):
            text = f"{n}. " + "The director of the firm lives in the town. " * (context // 9)
            future: asyncio.Future[Generated] = loop.create_future()
            engine.add(
                Generate(
                    engine.chat_tokens.prompt([{"role": "user", "parts": [text]}]),
                    Sampling(max_tokens=reply),
                    0,
                    future,
                )
            )
            asked.append(future)
        return [await future for future in asked]

    begin = time.perf_counter()
    with lockstep(engine) as loop:
        found = loop.run(main())
    return time.perf_counter() - begin, sum(len(one.ids) for one in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--context", type=int, default=300, help="tokens of a prompt, about")
    parser.add_argument("--reply", type=int, default=32, help="tokens of an answer")
    arguments = parser.parse_args()
    print("| decoded | tokens of answers | seconds | ratio |\n| --- | ---: | ---: | ---: |")
    alone = 0.0
    answer(8, arguments.context, arguments.reply, lanes=True)  # the first products of a process take longer
    for name, lanes in (("one by one", False), (f"in {LANES} lanes", True)):
        seconds, tokens = answer(arguments.requests, arguments.context, arguments.reply, lanes)
        alone = alone or seconds
        print(f"| {name} | {tokens:,} | {seconds:.2f} | {alone / seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
