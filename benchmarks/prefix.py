"""How many prompt tokens the order of requests saves: `python benchmarks/prefix.py --engine transformers`.

N questions are asked at each of T intervals of one growing stream, with the tiny model, three times: in the suite's
own order (interval by interval, documents shared, question last), in random order, and with the prefix cache off.
Unavoidable are each document once and each question's own tokens once an interval.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from upkeep.catalog import Catalog
from upkeep.cell.interface import Context
from upkeep.cell.prompts import Prompt
from upkeep.cell.tokens import ChatTokens
from upkeep.contract import CellDescription, Document, EngineSettings, ModelSpec, Prediction, Probe, Round, Sampling
from upkeep.serving.make_model import WORDS, tiny_llama

METHOD = """
from upkeep.cell import Method
from upkeep.cell.method import Context

class LongContext(Method):
    async def answer(self, probe, seen, llm):
        return await self.read(probe, llm, Context(recent=seen.documents))
"""


class Result(NamedTuple):
    order: str
    prompt: int
    computed: int
    seconds: float


def work(intervals: int, questions: int, chunk_tokens: int) -> tuple[list[Document], list[list[Probe]]]:
    """Documents of about `chunk_tokens` tokens, and the probes of each interval."""
    rng = random.Random(0)
    documents = [
        Document(
            id=str(t), stream="s", position=t, timestamp=None, text=" ".join(rng.choices(WORDS, k=chunk_tokens)) + "."
        )
        for t in range(intervals)
    ]
    asked = [f"Where was {' '.join(rng.choices(WORDS, k=8))} before the {rng.choice(WORDS)}?" for _ in range(questions)]
    probes = [
        [
            Probe(
                id=f"{j}@{t}",
                question_id=str(j),
                stream="s",
                position=t,
                question=question,
                options=None,
                form="short",
            )
            for j, question in enumerate(asked)
        ]
        for t in range(intervals)
    ]
    return documents, probes


def unavoidable(cell: CellDescription, documents: list[Document], probes: list[list[Probe]]) -> int:
    """Tokens of the longest shared prefix once, and of each question, with the template's end, once an interval."""
    assert cell.model_spec is not None
    assert cell.model_path is not None
    tokens, prompt = ChatTokens(cell.model_path, cell.model_spec), Prompt(cell.prompt)

    def ids(probe: Probe, count: int) -> list[int]:
        return tokens.prompt(prompt.messages(probe, Context(recent=documents[:count]))).ids()

    def own(probe: Probe) -> int:
        """Tokens after the place where another document would stand."""
        short, long = ids(probe, 1), ids(probe, 2)
        return len(short) - next(i for i, (a, b) in enumerate(zip(short, long, strict=False)) if a != b)

    questions = [own(probe) for probe in probes[0]]
    return len(ids(probes[0][0], len(documents))) - questions[0] + len(probes) * sum(questions)


def measure(
    order: str, cell: CellDescription, folder: Path, documents: list[Document], probes: list[list[Probe]]
) -> Result:
    """Run the cell once, in a process of its own, as a container would. The engine's start is not in the time."""
    output = folder / order.replace(" ", "-")
    output.mkdir()
    settings = msgspec.structs.replace(
        cell.engine, shuffle=order == "random order", prefix_cache=order != "no prefix cache"
    )
    if settings.shuffle:  # across all intervals
        rounds = [Round(documents=documents, probes=[p for at_t in probes for p in at_t])]
    else:
        rounds = [Round(documents=[d], probes=p) for d, p in zip(documents, probes, strict=True)]
    description = output / "cell.json"
    description.write_bytes(msgspec.json.encode(msgspec.structs.replace(cell, engine=settings, output=str(output))))
    command = [sys.executable, "-m", "upkeep.serving.alone", str(description), str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        while not (output / "engine.json").exists() and process.poll() is None:
            time.sleep(0.05)
        start = time.monotonic()
        process.stdin.writelines(msgspec.json.encode(r) + b"\n" for r in rounds)
        process.stdin.close()
        if process.wait():
            sys.exit(f"{order}: the runner ended with {process.returncode}")
        seconds = time.monotonic() - start
    decoder = msgspec.json.Decoder(Prediction)
    found = [decoder.decode(line) for line in (output / "predictions.jsonl").read_bytes().splitlines()]
    assert len(found) == sum(map(len, probes))
    assert all(p.error is None for p in found), next(p.error for p in found if p.error)
    prompt = sum(p.usage.prompt for p in found)
    return Result(order, prompt, prompt - sum(p.measured.cached for p in found if p.measured), seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=["transformers", "vllm"], default="transformers")
    parser.add_argument("--intervals", type=int, default=12)
    parser.add_argument("--questions", type=int, default=20)
    parser.add_argument("--chunk-tokens", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--orders", nargs="*", default=["the suite's order", "random order", "no prefix cache"])
    parser.add_argument("--options", default="{}", help="engine options, as JSON")
    given = parser.parse_args()
    documents, probes = work(given.intervals, given.questions, given.chunk_tokens)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tiny_llama(folder / "tiny")
        (folder / "long").mkdir()
        (folder / "long" / "method.py").write_text(METHOD)
        spec = ModelSpec(
            label="tiny",
            summary="",
            source="rule",
            location="tiny_llama",
            context_length=262144,
            engine=given.engine,
            sampling=Sampling(max_tokens=8),
        )
        cell = CellDescription(
            task="answer",
            dataset="benchmark",
            method="long",
            variant="v",
            model="tiny",
            parameters={},
            model_spec=spec,
            model_path=str(folder / "tiny"),
            engine=EngineSettings(name=given.engine, threads=given.threads, options=json.loads(given.options)),
            chunk_tokens=given.chunk_tokens,
            prompt=Catalog(Path(__file__).resolve().parents[1]).prompt("oaks_babi"),
            output=name,
        )
        floor = unavoidable(cell, documents, probes)
        results = [measure(order, cell, folder, documents, probes) for order in given.orders]
    print(
        f"\n{given.engine}, {given.threads} threads: {given.intervals} intervals of {given.chunk_tokens} words, "
        f"{given.questions} questions, {floor:,} unavoidable prompt tokens\n"
    )
    print("| order | prompt tokens | computed | computed / unavoidable | seconds |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for r in results:
        print(f"| {r.order} | {r.prompt:,} | {r.computed:,} | {r.computed / floor:.2f} | {r.seconds:.2f} |")


if __name__ == "__main__":
    main()
