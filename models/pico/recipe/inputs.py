"""What trainer and evaluation are given: worlds of the small datasets' own builders, names, prompts.

The worlds are of other seeds than the datasets' own; their names are replaced by others as the lessons are made.
"""

from __future__ import annotations

import ast
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from recipe import worlds
from recipe.renaming import ENDING, Pools, words_of
from recipe.settings import Given, Stage
from upkeep.catalog import Catalog
from upkeep.contract import Document, Gold, Pair, Probe, PromptCard, Rubric

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
UNSEEN = range(200, 206)
"""Seeds of worlds that the evaluation alone sees, beside the datasets' own; they have held-out names, too. OAKS's
builders draw from both halves: lessons leave out the names of these worlds, but for those of `worlds`, which left out
none, and those of `methods` and `texts`, which knew of the first two worlds alone."""
POOL = 10_000
"""Names of each kind that lessons draw from."""
CHINESE = (1000, 60)
"""Chinese persons and places; there are not many more of the latter."""
METHODS = (
    "a_mem",
    "chunked_summary",
    "deep_research",
    "document_summary",
    "hipporag2",
    "memagent",
    "memory_scaffold",
    "rag_agentic",
    "self_critique",
)
"""Whose questions to a model are lessons."""
JUDGED = ("evolveqa", "imprintbench", "oaks", "prelude")
"""Papers with judges."""
BASE = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
"""What a model is."""


def write_inputs(catalog: Catalog, folder: Path, stage: Stage, earlier: Sequence[Stage], base: Path | None) -> None:
    """What trainer and evaluation read: `worlds.jsonl`, `held_out.jsonl` (the small datasets themselves),
    `unseen.jsonl`, `given.json`, `methods/` and `base/`.

    Args:
        base: the model that the stage goes on from.
    """
    folder.mkdir(parents=True, exist_ok=True)
    own = {name: int(catalog.dataset(name).options["seed"]) for name in DATASETS}
    seeds = [*SEEDS, *UNSEEN]
    wanted = [(name, seed) for name in DATASETS for seed in (own[name], *seeds)]
    # One dataset after the other on each core: some builders compile for longer than they build.
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        made = list(pool.map(partial(_build_world, catalog), wanted, chunksize=1 + len(seeds)))
    asked = {
        "held_out.jsonl": [world for world in made if world.seed == own[world.dataset]],
        "unseen.jsonl": [world for world in made if world.seed in UNSEEN],
    }
    worlds.write(folder / "worlds.jsonl", [world for world in made if world.seed in SEEDS])
    for name, some in asked.items():
        worlds.write(folder / name, some)
    told = given(catalog, stage, earlier, [world for some in asked.values() for world in some])
    (folder / "given.json").write_bytes(msgspec.json.encode(told))
    for name in METHODS:
        (folder / "methods" / name).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(catalog.root / "methods" / name / "method.py", folder / "methods" / name / "method.py")
    (folder / "base").mkdir(exist_ok=True)
    for name in BASE if base else ():
        assert base is not None
        shutil.copyfile(base / name, folder / "base" / name)


def given(catalog: Catalog, stage: Stage, earlier: Sequence[Stage], asked: Sequence[worlds.World] = ()) -> Given:
    """What a stage is given besides worlds.

    Args:
        asked: worlds that are asked about later. No word of theirs is a name of lessons: OAKS's builders draw from both
            halves of the names.
    """
    return Given(
        stage=stage,
        earlier=list(earlier),
        memory_system=memory_system(catalog),
        prompts=prompts(catalog),
        rubrics=rubrics(catalog),
        known=known(catalog),
        names=pools(catalog, held_out=False).without(words_of(asked)),
        held_out=pools(catalog, held_out=True),
    )


def rubrics(catalog: Catalog) -> list[tuple[str, Rubric]]:
    """What the papers' judges are asked, each question once."""
    from upkeep.grading.judgements import FILE, read_lists

    found: dict[tuple[str, str], Rubric] = {}
    for paper in JUDGED:
        for judged in read_lists(catalog.root / "papers" / paper / FILE).values():
            found |= {(paper, one.rubric.system): one.rubric for one in judged if one.rubric is not None}
    return [(paper, rubric) for (paper, _), rubric in found.items()]


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

    register = code(catalog, "evowiki", "synthetic")
    wiki = msgspec.convert(catalog.dataset("evowiki_mini").options, code(catalog, "evowiki").Options)
    rng = Random(f"evowiki {wiki.seed}")
    found = [("evowiki", register.known(register.make(rng, Names(rng, held_out=True), wiki.sizes).states[1]))]
    return found + [
        ("evolveqa", [Pair(question=line.question, answer=line.before.value) for line in lines])
        for lines in announced(catalog)
    ]


def announced(catalog: Catalog) -> list[list[Any]]:
    """Of each of evolveQA's small worlds that the model knows, its facts (`Line` of datasets/evolveqa/synthetic.py)."""
    from upkeep.building.build import code
    from upkeep.building.names import Names

    feed, found = code(catalog, "evolveqa", "synthetic"), []
    for dataset in ("evolveqa_aws_mini", "evolveqa_aws_control_mini"):
        evolve = msgspec.convert(catalog.dataset(dataset).options, code(catalog, "evolveqa").Options)
        rng = Random(f"evolveqa {evolve.domain} {evolve.seed}")
        world = feed.generate(rng, Names(rng, held_out=True), "cloud", evolve.sizes)
        found.append([*world.lines, *world.calm])
    return found


def pools(catalog: Catalog, held_out: bool) -> Pools:
    """Names of one half, by their ending."""
    from upkeep.building import synthetic
    from upkeep.building.build import code
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
    chinese = code(catalog, "prelude", "languages").ChineseNames(rng, held_out)
    persons, places = (
        [make() for _ in range(n)] for make, n in zip((chinese.person, chinese.place), CHINESE, strict=True)
    )
    return Pools(plain, ended, [persons, places])


def memory_system(catalog: Catalog) -> str:
    """The system text that `memory_scaffold` asks with in the small suite."""
    text = (catalog.root / "methods" / "memory_scaffold" / "method.py").read_text(encoding="utf-8")
    found = next(node.value for node in ast.parse(text).body if isinstance(node, ast.Assign) and _names(node, "SYSTEM"))
    return str(ast.literal_eval(found)).format(budget=256)


def _names(node: ast.Assign, name: str) -> bool:
    return any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
