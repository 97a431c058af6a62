"""What each method asks of its models, a document and a probe, and what a plan says of it.

    ./upkeep dataset build oaks_babi_mini
    python benchmarks/costs.py [--dataset oaks_babi_mini] [--cells a_mem/default]

Each method that asks a model is run over a built dataset with a model that follows a script: it writes the JSON that it
is asked for out of the text that it is given, calls a tool as long as it is offered one, keeps to the length that it is
told, and answers in a line. Tokens are counted by bytes. Beside it stands the count of `./upkeep plan` for the same
cell, made by its own engine, whose words have no meaning, divided by what the script's model was asked.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from upkeep.catalog import Catalog
from upkeep.cell.interface import Context, Message
from upkeep.cell.lockstep import Generate
from upkeep.cell.prompts import Prompt
from upkeep.cell.tokens import TokenPrompt
from upkeep.contract import Round
from upkeep.execution.rounds import worked_examples
from upkeep.identity import describe
from upkeep.jobs import Cell
from upkeep.method_cards import supervision_of
from upkeep.operations.plan.counts.dataset import CountedDataset
from upkeep.serving.counting import cells as counting
from upkeep.serving.counting.byte_tokens import ByteTokens
from upkeep.serving.counting.engine import CountingEngine
from upkeep.serving.counting.forms import FormTokens, called
from upkeep.serving.counting.records import Assumed, CountJob, Counts

ROOT = Path(__file__).resolve().parents[1]
RATE = 0.25
"""Tokens a byte."""
CONTEXT = 8192
ASSUMED = Assumed(reply=60, thinking=0)
"""Tokens of a reply in the plan; the script's answers have as many."""
CELLS = (
    "a_mem/default", "chunked_summary/budget128", "chunked_summary/budget128_cq", "chunked_summary/budget128_q",
    "closed_book/default", "deep_research/k3", "document_summary/budget128", "few_shot/five", "hipporag2/k2",
    "kvzip/default", "long_context/default", "many_shot/all", "memagent/budget64", "memory_scaffold/budget256",
    "rag_agentic/k3", "rag_bm25/k3", "rag_dense/k3", "rag_hybrid/k3", "rag_rolling_window/k2w2", "rolling_window/w3",
    "self_critique/bm25_bm25",
)  # fmt: skip


class Scripted(FormTokens):
    """Remembers what a prompt says in place of the form that it asks for."""

    def prompt(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()) -> TokenPrompt:
        prompt: TokenPrompt = self._tokens.prompt(messages, tools)
        self._forms[id(prompt)] = said(messages, tools, self._tool_calls)
        return prompt


class ScriptedEngine(CountingEngine):
    """Says what the script says."""

    def _reply(self, request: Generate) -> list[int]:
        text = self._forms.form(request.prompt) or ""
        return list(self._forms.encode(text))[: request.sampling.max_tokens]


def said(messages: Sequence[Message], tools: Sequence[dict[str, Any]], form: str | None) -> str:
    """A reply that does what it is told, of what it is given."""
    rules, *rest = ("".join(m["parts"]) for m in messages)
    given = rest[-1] if rest else rules
    words = re.findall(r"\w+", given.rpartition("# Text")[2] or given)
    if tools:
        return called(tools[0], form).replace("...", " ".join(words[-8:]))
    if '"entities"' in rules:
        return json.dumps({"entities": sorted(set(re.findall(r"\b[A-Z]\w+", given)))[:12]})
    if '"triples"' in rules:
        sentences = [re.findall(r"\w+", one) for one in given.split("# Entities")[0].split(".")]
        return json.dumps({"triples": [[s[0], " ".join(s[1:-1]), s[-1]] for s in sentences if len(s) > 2][-15:]})
    if '"facts"' in rules:
        return json.dumps({"facts": [1, 3]})
    if '"neighbours"' in rules:
        return json.dumps(
            {"links": [0], "tags": words[:3], "neighbours": [{"note": 0, "context": " ".join(words[:9])}]}
        )
    if '"keywords"' in rules:
        return json.dumps({"keywords": words[:6], "context": " ".join(words[:12]), "tags": words[6:9]})
    if (budget := re.search(r"(?:about|below) (\d+) tokens", rules)) or "memory anew" in rules + given:
        return " ".join(words)[-int(4 * int(budget[1]) * 0.9 if budget else 200) :]
    searched = sum(m["role"] == "assistant" for m in messages)
    if (more := re.search(r"up to (\d+) times.*`Search:", rules, re.DOTALL)) and searched < int(more[1]):
        return f"Search: {' '.join(words[-8:])}"
    return " ".join(words[:40]) + "\n## Answer: nobody"


@dataclass(frozen=True)
class Row:
    """What a method's cell asked."""

    documents: int
    probes: int
    arriving: tuple[int, int, int]
    """Calls, prompt tokens, reply tokens while documents arrived."""
    asking: tuple[int, int, int]
    seconds: float

    @classmethod
    def of(cls, found: Counts, rounds: Sequence[Round], seconds: float) -> Row:
        failed = [line.error for line in found.lines if line.error]
        if found.error or failed:
            raise ValueError(found.error or failed[0])
        sums = [
            (sum(u.calls for u in of), sum(u.prompt for u in of), sum(u.completion for u in of))
            for of in ([line.usage for line in found.arrivals], [line.usage for line in found.lines])
        ]
        documents = sum(len(one.documents) for one in rounds)
        return cls(documents, len(found.lines), sums[0], sums[1], seconds)


def run(job: CountJob, rounds: Sequence[Round], *, scripted: bool) -> Row:
    """Run a cell's method with the script's model, or with the plan's."""
    kinds = counting.FormTokens, counting.CountingEngine
    if scripted:
        counting.FormTokens, counting.CountingEngine = Scripted, ScriptedEngine  # type: ignore[misc]
    try:
        begin = time.perf_counter()
        (found,) = counting.count([job], ROOT / "methods")
        return Row.of(found, rounds, time.perf_counter() - begin)
    finally:
        counting.FormTokens, counting.CountingEngine = kinds  # type: ignore[misc]


def rows(catalog: Catalog, dataset: CountedDataset, name: str, cells: Sequence[str]) -> Iterator[tuple[str, Row, Row]]:
    """Each method's variant, with the script's numbers and the plan's."""
    for one in cells:
        method, variant = one.split("/")
        card = catalog.method(method)
        if "Q" in supervision_of(card, variant) and not dataset.card.pairs:
            continue
        told = describe(catalog, Cell(name, method, variant, "pico"), dataset.card.chunk_tokens)
        assert told.model_spec is not None
        spec = msgspec.structs.replace(told.model_spec, context_length=CONTEXT, tool_calls="hermes")
        rounds = list(dataset.rounds(card, variant, dataset.sample(1, None)))
        found = []
        for scripted in (True, False):
            with tempfile.TemporaryDirectory() as scratch:
                path = Path(scratch) / "rounds.jsonl"
                path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in rounds))
                cell = msgspec.structs.replace(
                    told,
                    model_spec=spec,
                    trials=1,
                    examples=worked_examples(dataset.folder, dataset.card),
                    output=str(Path(scratch) / "out"),
                )
                job = CountJob(cell=cell, tokens_per_byte=RATE, passes=[str(path)], assumed=ASSUMED)
                found.append(run(job, rounds, scripted=scripted))
        yield one, found[0], found[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="oaks_babi_mini")
    parser.add_argument("--cells", nargs="*", default=CELLS, help="METHOD/VARIANT")
    parser.add_argument("--results", default=str(ROOT / "results"), help="where the dataset is, or is built")
    options = parser.parse_args()
    catalog = Catalog(ROOT, chosen={"results": options.results})
    dataset = CountedDataset(catalog, options.dataset, lambda text: print(text, flush=True))
    corpus = dataset.corpus
    sizes = [RATE * len(document.text.encode()) for document in corpus.documents]
    arrived = sum(sum(sizes[slice(*corpus.arrived(probe.stream, probe.position))]) for probe in corpus.probes)
    print(
        "| method | calls a document | tokens read | written | calls a probe | tokens read | written | compression "
        "| ms a document and probe | plan: calls | tokens read |\n|---" + " | ---:" * 10 + " |"
    )
    prompt, tokens = Prompt(catalog.prompt_of(options.dataset)), ByteTokens(RATE)
    bare = sum(tokens.prompt(prompt.messages(probe, Context(memory=""))).length for probe in corpus.probes)
    for name, row, plan in rows(catalog, dataset, options.dataset, options.cells):
        calls, read, written = (one / row.documents for one in row.arriving)
        asks, reads, writes = (one / row.probes for one in row.asking)
        shown = reads - bare / row.probes * asks
        ratio = f"{arrived / row.probes / shown:.1f}" if shown > 1 else ""
        both = [
            (p + q) / (r + s) for p, q, r, s in zip(plan.arriving, plan.asking, row.arriving, row.asking, strict=True)
        ]
        own = 1000 * row.seconds / (row.documents + row.probes)
        print(
            f"| {name} | {calls:.2f} | {read:.0f} | {written:.0f} | {asks:.2f} | {reads:.0f} | {writes:.0f} | {ratio} "
            f"| {own:.1f} | {both[0]:.2f} | {both[1]:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
