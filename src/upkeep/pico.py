"""`./upkeep train pico`: makes the worlds that the model learns from, and trains it inside an engine's environment.

The worlds come from the builders of the small datasets, by other seeds than theirs; their names are replaced by others
as the lessons are made (`upkeep.serving.pico`).
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import platform
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any, Literal

import msgspec

from upkeep import weights
from upkeep.catalog import Catalog
from upkeep.contract import Document, Form, Gold, Pair, Probe, PromptCard, Resources
from upkeep.files import write_atomically
from upkeep.grading.reading import read_answer
from upkeep.integrity import fingerprint
from upkeep.layout import Layout
from upkeep.serving.pico import worlds
from upkeep.serving.pico.renaming import ENDING, Pools

DATASETS = (
    "oaks_babi_mini",
    "oaks_novel_mini",
    "evowiki_mini",
    "evolveqa_aws_mini",
    "evolveqa_aws_control_mini",
    "imprint_code_mini",
    "imprint_news_mini",
    "imprint_personal_mini",
    "prelude_mini",
)
"""Whose worlds it learns from: those of the suite `mini`."""
SEEDS = range(100, 124)
"""Of the worlds, none of them a dataset's own."""
POOL = 3000
"""Names of each kind that lessons draw from."""
FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
"""What the model is."""


def train(catalog: Catalog, output: Path, recipe: Mapping[str, Any]) -> None:
    """Train the model and put it at `output`, with `training.json` (what it was made of, how well it does), `log.jsonl`
    (recipe and curve) and the model card. What was begun with the same code, recipe and worlds is gone on with. At its
    place in the suite, the hash of what was made is pinned in `models/pico/model.yaml`.

    Args:
        recipe: fields of `upkeep.serving.pico.train.Recipe` other than the defaults.

    Raises:
        UpkeepError: a world cannot be built, or the training fails.
    """
    from upkeep.execution.detection import detect

    runtime = detect(catalog)
    prepared = runtime.prepare("rag_bm25", "transformers")  # the evaluation retrieves
    inputs = Layout(catalog.results).weights("pico-inputs")
    write_inputs(catalog, inputs, recipe)
    folder = catalog.root / "src" / "upkeep" / "serving" / "pico"
    code = sorted(path for path in folder.glob("*.py") if path.stem != "evaluate")  # it decides no weight
    made_of = (inputs / "worlds.jsonl", inputs / "given.json", *code)
    key = hashlib.sha256(b"".join(path.read_bytes() for path in made_of)).hexdigest()
    work = Layout(catalog.results).weights(f"pico-{key[:16]}")
    work.mkdir(parents=True, exist_ok=True)
    place = {name: runtime.path_of(name, path) for name, path in (("cell", inputs), ("output", work))}
    resources = Resources(cpus=2, memory_gb=16, minutes=360)
    for module in ("train", "evaluate"):
        call = ["-m", f"upkeep.serving.pico.{module}", place["cell"], place["output"]]
        runtime.run_tool(prepared, call, inputs={"cell": inputs}, output=work, resources=resources)
    publish(inputs, work, output)
    card = catalog.model("pico")
    if output.resolve() == weights.place(catalog, "pico", card) and card.sha256:
        sha = weights.content_of({p.relative_to(output).as_posix(): fingerprint(p) for p in weights.files_of(output)})
        path = catalog.root / catalog.model_card("pico")
        write_atomically(path, path.read_bytes().replace(card.sha256.encode(), sha.encode()))


def publish(inputs: Path, work: Path, output: Path) -> None:
    """Put a trained and measured model in its place, with its log, its record and its card."""
    output.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        shutil.copyfile(work / name, output / name)
    record = {
        "datasets": list(DATASETS),
        "seeds": [SEEDS.start, SEEDS.stop - 1],
        "worlds_sha256": hashlib.sha256((inputs / "worlds.jsonl").read_bytes()).hexdigest(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "accuracy": measure(work / "replies.jsonl"),
    }
    (output / "training.json").write_text(json.dumps(record, indent=1) + "\n")
    shutil.copyfile(work / "log.jsonl", output / "log.jsonl")
    (output / "README.md").write_text(card(record, output / "log.jsonl"))


IN_FORMAT = "an answer after the prompt's format token"


class _Replied(msgspec.Struct):
    """`upkeep.serving.pico.evaluate.Asked`, which is where torch is."""

    skill: str
    accepted: list[str]
    outdated: list[str]
    read: Literal["answer", "after a colon", "whole"]
    form: Form
    options: list[str] | None
    exact: bool
    also: str
    marker: str
    reply: str

    @property
    def answer(self) -> str:
        """What the reply says, in lower case."""
        if self.read == "answer":
            return (read_answer(self.reply, self.form, self.options, self.marker)[0] or "").lower()
        return (self.reply.rpartition(":")[2] if self.read == "after a colon" else self.reply).strip().lower()


def measure(replies: Path) -> dict[str, dict[str, float]]:
    """Share of right and of outdated answers, by skill."""
    found: dict[str, list[tuple[bool, bool]]] = defaultdict(list)
    for one in msgspec.json.Decoder(_Replied).decode_lines(replies.read_bytes()):
        if one.marker:
            found[IN_FORMAT].append((one.marker in one.reply, False))
        right, old = (_said(one.answer, accepted, one.exact) for accepted in (one.accepted, one.outdated))
        for skill in filter(None, (one.skill, one.also)):
            found[skill].append((right, old and not right))
    return {
        skill: {
            "right": round(sum(r for r, _ in rows) / len(rows), 4),
            "outdated": round(sum(o for _, o in rows) / len(rows), 4),
            "asked": len(rows),
        }
        for skill, rows in sorted(found.items())
    }


def _said(answer: str, accepted: Sequence[str], exact: bool) -> bool:
    said = " ".join(answer.split())
    right = [" ".join(one.lower().split()) for one in accepted]
    return any(said == one or (not exact and one in said) for one in right)


def write_inputs(catalog: Catalog, folder: Path, recipe: Mapping[str, Any]) -> None:
    """What trainer and evaluation read: `worlds.jsonl`, `held_out.jsonl` (the small datasets themselves) and
    `given.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    own = {name: int(catalog.dataset(name).options["seed"]) for name in DATASETS}
    wanted = [(name, seed) for name in DATASETS for seed in (own[name], *SEEDS)]
    # One dataset after the other on each core: some builders compile for longer than they build.
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        made = list(pool.map(partial(_build_world, catalog), wanted, chunksize=1 + len(SEEDS)))
    worlds.write(folder / "worlds.jsonl", [world for world in made if world.seed != own[world.dataset]])
    worlds.write(folder / "held_out.jsonl", [world for world in made if world.seed == own[world.dataset]])
    given = {
        "recipe": dict(recipe),
        "memory_system": memory_system(catalog),
        "prompts": prompts(catalog),
        "known": known(catalog),
        "names": pools(held_out=False),
        "held_out": pools(held_out=True),
    }
    (folder / "given.json").write_bytes(msgspec.json.encode(given))


def _build_world(catalog: Catalog, wanted: tuple[str, int]) -> worlds.World:
    return build_world(catalog, *wanted)


def build_world(catalog: Catalog, dataset: str, seed: int) -> worlds.World:
    """What the dataset's builder makes of `seed`.

    Raises:
        UpkeepError: the builder refuses its options or what it has built.
    """
    from upkeep.building.build import builder, context

    spec = catalog.dataset(dataset)
    spec = msgspec.structs.replace(spec, options={**spec.options, "seed": seed})
    built = builder(catalog, dataset)(context(catalog, dataset, spec))
    documents = [
        Document(id=id, stream=stream, position=position, timestamp=timestamp, text=text)
        for id, stream, position, timestamp, text in built.documents.select(
            "document_id", "stream", "position", "timestamp", "text"
        ).rows()
    ]
    probes = [
        Probe(
            id=row["probe_id"],
            question_id=row["question_id"],
            stream=row["stream"],
            position=row["position"],
            question=row["question"],
            options=row["options"],
            form=row["form"],
        )
        for row in built.probes.rows(named=True)
    ]
    golds = {
        row["probe_id"]: Gold(
            probe_id=row["probe_id"],
            answers=row["answers"],
            outdated=row["outdated"],
            evidence=row["evidence"],
            context=row.get("context") or [],
        )
        for row in built.gold.rows(named=True)
    }
    return worlds.World(
        dataset=dataset,
        seed=seed,
        prompt=spec.prompt,
        documents=documents,
        probes=probes,
        golds=[golds[probe.id] for probe in probes],
        pairs=list(built.pairs),
        examples=list(built.examples),
    )


def prompts(catalog: Catalog) -> dict[str, PromptCard]:
    """The prompts of the datasets that it learns from, by name."""
    return {catalog.dataset(name).prompt: catalog.prompt_of(name) for name in DATASETS}


def known(catalog: Catalog) -> list[tuple[str, list[Pair]]]:
    """Prompt -> what the model is to know by heart: the small worlds of EvoWiki and evolveQA as they were before what
    their datasets ask about changed."""
    from upkeep.building.build import code
    from upkeep.building.names import Names

    register, feed = code(catalog, "evowiki", "world"), code(catalog, "evolveqa", "world")
    wiki = msgspec.convert(catalog.dataset("evowiki_mini").options, code(catalog, "evowiki").Options)
    rng = Random(f"evowiki {wiki.seed}")
    found = [("evowiki", register.known(register.make(rng, Names(rng, held_out=True), wiki.sizes).states[1]))]
    for dataset in ("evolveqa_aws_mini", "evolveqa_aws_control_mini"):
        evolve = msgspec.convert(catalog.dataset(dataset).options, code(catalog, "evolveqa").Options)
        rng = Random(f"evolveqa {evolve.domain} {evolve.seed}")
        world = feed.generate(rng, Names(rng, held_out=True), "cloud", evolve.sizes)
        lines = (*world.lines, *world.calm)
        found.append(("evolveqa", [Pair(question=line.question, answer=line.before.value) for line in lines]))
    return found


def pools(held_out: bool) -> Pools:
    """Names of one half, by their ending."""
    from upkeep.building import synthetic
    from upkeep.building.names import Names, is_held_out

    rng = Random(f"pico {'held out' if held_out else 'training'}")
    names = Names(rng, held_out)
    plain = [names.word() for _ in range(POOL)]
    found = [make().lower() for make in (names.family, names.place) for _ in range(POOL)]
    cast = synthetic.cast(rng, POOL, POOL, 0, set())
    plain += [word.lower() for word in cast.people if is_held_out(word) == held_out]
    found += [word.lower() for word in cast.places if is_held_out(word) == held_out]
    ended: dict[str, list[str]] = {}
    for word in found:
        if ending := ENDING.search(word):
            ended.setdefault(ending[0], []).append(word)
    return Pools(plain, ended)


def memory_system(catalog: Catalog) -> str:
    """The system text that `memory_scaffold` asks with in the small suite."""
    text = (catalog.root / "methods" / "memory_scaffold" / "method.py").read_text(encoding="utf-8")
    found = next(node.value for node in ast.parse(text).body if isinstance(node, ast.Assign) and _names(node, "SYSTEM"))
    return str(ast.literal_eval(found)).format(budget=256)


def _names(node: ast.Assign, name: str) -> bool:
    return any(isinstance(target, ast.Name) and target.id == name for target in node.targets)


def card(record: Mapping[str, Any], log_file: Path) -> str:
    """The model card, from what `train` measured and the trainer's log."""
    shape, *lines = (json.loads(line) for line in log_file.read_text(encoding="utf-8").splitlines())
    log = list({line["step"]: line for line in lines if "step" in line}.values())
    recipe = shape["recipe"]
    points = [log[n * (len(log) - 1) // 7] for n in range(8)] if len(log) > 7 else log
    million = recipe["workers"] / 1e6
    curve = [
        f"| {p['step']:,} | {p['tokens'] * million:.1f} | {p['level']} | {p['loss']:.3f} | {_facts(p)} |"
        for p in points
    ]
    at_large = {k: v for k, v in record["accuracy"].items() if "_mini: " not in k}
    skills = [f"| {name} | {100 * v['right']:.0f} | {v['asked']} |" for name, v in at_large.items()]
    tables: dict[str, dict[str, Mapping[str, float]]] = {}
    for name, value in record["accuracy"].items():
        dataset, _, method = name.partition(": ")
        if dataset in record["datasets"]:
            tables.setdefault(dataset, {})[method] = value
    methods = list(next(iter(tables.values()), {}))
    by_dataset = [
        f"| {dataset} | " + " | ".join(f"{100 * found[m]['right']:.0f}" for m in methods) + " |"
        for dataset, found in tables.items()
    ]
    first, last = record["seeds"]
    return f"""# pico

A Llama of {shape["parameters"] / 1e6:.2f} million parameters that reads small invented worlds. It makes the suite's \
small run mean something on a machine without a GPU; it knows no language but that of these worlds.

- **Made by** `./upkeep train pico`; this page is written by the same command.
- **Shape**: {shape["shape"]["layers"]} layers of width {shape["shape"]["hidden"]}, {shape["shape"]["heads"]} heads, \
vocabulary {shape["shape"]["vocabulary"]:,}, context {shape["shape"]["positions"]:,} tokens, weights in bfloat16.
- **Data**: the builders of {", ".join(record["datasets"])} with the seeds {first} to {last}, and sentences of one \
fact each. Every lesson gets fresh names from the half that training may use; the datasets' names are of the other \
half. Besides, by heart: EvoWiki mini as it was at its cut-off date, and the first values of evolveQA mini.
- **Recipe**: {recipe["steps"]:,} steps, seed {recipe["seed"]}; all else in \
the first line of `log.jsonl`; the hash of the worlds in `training.json`.
- **Made on**: {record["machine"]}; trained in {log[-1]["seconds"] / 60:.0f} minutes.
- **Licence**: Apache-2.0.

## How it learned

| Step | Million tokens | Level | Loss | Facts at large, % right |
| ---: | ---: | ---: | ---: | ---: |
{chr(10).join(curve)}

Levels are numbers of facts in a context; the next one comes when {100 * recipe["passes"]:.0f}% of the \
answers are right.

## What it can do

With names that it never met, greedy:

| Skill | % right | Asked |
| --- | ---: | ---: |
{chr(10).join(skills)}

The small datasets, % of right answers by method (`wN` documents in a window, `kN` retrieved):

| Dataset | {" | ".join(methods)} |
| --- | {" | ".join("---:" for _ in methods)} |
{chr(10).join(by_dataset)}

## Limits

Every line of the suite's system texts is one token of its tokenizer, so it must be trained again when these texts
change. It reads no Chinese. Before an answer that takes several steps it writes the sentences that it rests on, even
where a prompt asks for the answer alone. Summaries, JSON and searches it writes for the texts of
`src/upkeep/serving/pico/lessons.py` alone. What the table above shows near `closed_book` it has not learned: contexts
far longer than its lessons' (most have less than {recipe["room"]} tokens of documents) among them. Its answers outside
of its worlds mean nothing.
"""


def _facts(point: Mapping[str, Any]) -> str:
    rates = [rate for skill, rate in point["right"].items() if skill.startswith("facts")]
    return f"{100 * sum(rates) / len(rates):.0f}" if rates else ""
