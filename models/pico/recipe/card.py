"""The model card, `models/pico/README.md`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recipe.measured import ITEMS, difference, interval
from recipe.stages import STAGES

SEEDS_APART = 0.05
"""Share right by which no skill should differ between two seeds."""


def card(record: Mapping[str, Any], log_file: Path, other_seeds: Sequence[Mapping[str, Any]] = ()) -> str:
    """The model card, from what `train` measured and the trainer's log.

    Args:
        other_seeds: what came of the last stage with other seeds (`recipe.make`).
    """
    shape, *lines = (json.loads(line) for line in log_file.read_text(encoding="utf-8").splitlines())
    log = list({line["step"]: line for line in lines if "step" in line}.values())
    recipe = shape["recipe"]
    points = [log[n * (len(log) - 1) // 7] for n in range(8)] if len(log) > 7 else log
    million = recipe["workers"] / 1e6
    curve = [
        f"| {p['step']:,} | {p['tokens'] * million:.1f} | {p['level']} | {p['loss']:.3f} | {_facts(p)} |"
        for p in points
    ]
    done = record.get("stages", [{"stage": STAGES[0].name}])
    first, last = record["seeds"]
    return f"""# pico

A Llama of {shape["parameters"] / 1e6:.2f} million parameters that reads small invented worlds. It makes the suite's \
small run mean something on a machine without a GPU; it knows no language but that of these worlds.

- **Made by** `./upkeep train pico`; this page is written by the same command.
- **Stages**: {"; ".join(_stage(one) for one in done)}.
- **Shape**: {shape["shape"]["layers"]} layers of width {shape["shape"]["hidden"]}, {shape["shape"]["heads"]} heads, \
vocabulary {shape["shape"]["vocabulary"]:,}, context {shape["shape"]["positions"]:,} tokens, weights in bfloat16.
- **Data**: the builders of {", ".join(record["datasets"])} with the seeds {first} to {last}, and sentences of one \
fact each. Every lesson gets fresh names from the half that training may use; the datasets' names are of the other \
half. Besides, by heart: EvoWiki mini as it was at its cut-off date, and of evolveQA AWS mini the first value of what \
changes and all that stays, up to the `cutoff` in `model.yaml`; of no change there was it told.
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

{skills(record["accuracy"], [one["stage"] for one in done], record["datasets"], other_seeds)}
## Limits

Every line of the suite's system texts is one token of its tokenizer, so it must be trained again when these texts
change. {_chinese(done)} Before an answer that takes several steps it writes the sentences that it rests on, even
where a prompt asks for the answer alone. {_asked(done)} What the table above shows near `closed_book` it has not
learned: contexts far longer than its lessons' (most have less than {recipe["room"]} tokens of documents) among them.
Its answers outside of its worlds mean nothing.
"""


def _seed(other: Mapping[str, Any], accuracy: Mapping[str, Mapping[str, float]], floors: Mapping[str, float]) -> str:
    """What differs with another seed, of the skills that both were measured in. Lists count once, not their items too.

    Args:
        accuracy: of each skill, with the shipped seed.
    """
    found: Mapping[str, float] = other["right"]
    skills = [name for name in accuracy if name in found and not name.endswith(ITEMS)]
    apart = {name: abs(found[name] - accuracy[name]["right"]) for name in skills}
    apart = {name: by for name, by in apart.items() if by > SEEDS_APART}
    sure = [
        name
        for name, by in apart.items()
        if by - difference(found[name], accuracy[name]["right"], accuracy[name]["asked"]) > SEEDS_APART
    ]
    missed = [name for name, floor in floors.items() if found.get(name, 0.0) < floor]
    points = f"{100 * SEEDS_APART:.0f} points"
    lost = f" It costs earlier skills more than two points: {'; '.join(other['lost'])}." if other["lost"] else ""
    return f"""
The last stage with seed {other["seed"]}, which draws other lessons ({other["seconds"] / 60:.0f} minutes, loss \
{other["loss"]}): of {len(skills)} skills {len(apart)} differ by more than {points}\
{" (" + "; ".join(apart) + ")" if apart else ""}, {len(sure) or "none"} of them by more than {points} and what as few \
questions leave open (1.96 standard errors){": " + "; ".join(sure) if sure else ""}. Of {len(floors)} floors it does \
not reach {len(missed)}.{lost}
"""


def _facts(point: Mapping[str, Any]) -> str:
    rates = [rate for skill, rate in point["right"].items() if skill.startswith("facts")]
    return f"{100 * sum(rates) / len(rates):.0f}" if rates else ""


def _stage(one: Mapping[str, Any]) -> str:
    if "steps" not in one:
        return f"`{one['stage']}`"
    missed = ", ".join(one["below_floors"]) or "none"
    return (
        f"`{one['stage']}` ({one['steps']:,} steps, {one['tokens'] / 1e6:.1f} million tokens, "
        f"{one['seconds'] / 60:.0f} minutes, seed {one['seed']}, loss {one['loss']}; floors not reached: {missed})"
    )


def _chinese(done: Sequence[Mapping[str, Any]]) -> str:
    return "It reads no Chinese." if len(done) == 1 else "Of Chinese it reads the words of PRELUDE's small books."


def _asked(done: Sequence[Mapping[str, Any]]) -> str:
    if len(done) > 2:
        return (
            "Memories, summaries, JSON and searches it was taught to write of sentences of one fact each, and of\n"
            "those small datasets' texts that name somebody in most sentences; how often it does stands above."
        )
    if len(done) > 1:
        return "Memories, summaries, JSON and searches it writes of sentences of one fact each alone."
    return "Summaries, JSON and searches it writes for the texts of\n`models/pico/recipe/chores.py` alone."


def skills(
    accuracy: Mapping[str, Mapping[str, float]],
    stages: Sequence[str],
    datasets: Sequence[str],
    other_seeds: Sequence[Mapping[str, Any]] = (),
) -> str:
    """What it can do, as Markdown.

    Args:
        stages: whose floors count.
        other_seeds: what came of the last stage with other seeds (`recipe.make`).
    """
    floors = {skill: floor for stage in STAGES if stage.name in stages for skill, floor in stage.floors.items()}
    rows, table = [], dict[str, Mapping[str, float]]()
    tables: dict[str, dict[str, Mapping[str, float]]] = {}
    for name, value in accuracy.items():
        dataset, _, method = name.partition(": ")
        if dataset in datasets:
            tables.setdefault(dataset, {})[method] = value
            continue
        # Items of one list are right or wrong together: their interval would be too narrow.
        low, high = (100 * bound for bound in interval(value["right"], value["asked"]))
        between = "" if name.endswith(ITEMS) else f"{low:.0f} to {high:.0f}"
        floor = f"{100 * floors[name]:.0f}" if name in floors else ""
        missed = " (not reached)" if name in floors and value["right"] < floors[name] else ""
        table[name] = value
        right = [value["right"], *(other["right"].get(name) for other in other_seeds)]
        shares = " | ".join("" if share is None else f"{100 * share:.0f}" for share in right)
        rows.append(f"| {name} | {shares} | {between} | {floor}{missed} | {value['asked']} |")
    methods = list(next(iter(tables.values()), {}))
    by_dataset = [
        f"| {dataset} | " + " | ".join(f"{100 * found[m]['right']:.0f}" for m in methods) + " |"
        for dataset, found in tables.items()
    ]
    return f"""\
With names and worlds that it never met, greedy; the interval is Wilson's at 95%; floors are what a stage was to reach
(`recipe/stages.py`):

| Skill | % right |{"".join(f" seed {other['seed']} |" for other in other_seeds)} 95% | Floor | Asked |
| --- | ---: |{" ---: |" * len(other_seeds)} ---: | ---: | ---: |
{chr(10).join(rows)}
{"".join(_seed(other, table, floors) for other in other_seeds)}
The small datasets, % of right answers by method (`wN` documents in a window, `kN` retrieved):

| Dataset | {" | ".join(methods)} |
| --- | {" | ".join("---:" for _ in methods)} |
{chr(10).join(by_dataset)}
"""
