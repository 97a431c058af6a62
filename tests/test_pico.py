"""How the suite's own small model is made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

import msgspec
import pytest

from upkeep import pico
from upkeep.catalog import Catalog
from upkeep.cell.pico import lessons, renaming, worlds
from upkeep.cell.prompts import get_prompt

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def small() -> list[worlds.World]:
    catalog = Catalog(ROOT)
    return [pico.build_world(catalog, name, seed) for name in ("evowiki_mini", "oaks_novel_mini") for seed in (7, 8, 9)]


@pytest.fixture(scope="module")
def names() -> renaming.Pools:
    return pico.pools(held_out=False)


@pytest.fixture(scope="module")
def inputs(small: list[worlds.World], names: renaming.Pools, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    worlds.write(folder / "worlds.jsonl", small)
    recipe = {"steps": 4, "batch_tokens": 256, "hidden": 32, "layers": 2, "feed_forward": 32, "warmup": 2}
    memory_system = pico.memory_system(Catalog(ROOT))
    given = {"recipe": recipe, "memory_system": memory_system, "known": [], "names": names, "held_out": names}
    (folder / "given.json").write_bytes(msgspec.json.encode(given))
    return folder


def test_the_halves_of_the_names_share_none(names: renaming.Pools) -> None:
    held_out = pico.pools(held_out=True)
    mine, theirs = (
        {*pools.plain, *(w for words in pools.ended.values() for w in words)} for pools in (names, held_out)
    )
    assert len(mine) > 1000 and len(theirs) > 1000
    assert not mine & theirs


def test_worlds_come_back_from_their_file(small: list[worlds.World], tmp_path: Path) -> None:
    worlds.write(tmp_path / "worlds", small)
    assert worlds.read(tmp_path / "worlds") == small


def test_every_invented_name_of_a_lesson_is_replaced_and_each_always_by_the_same(
    small: list[worlds.World], names: renaming.Pools
) -> None:
    invented = renaming.invented(small, lessons.wording())
    rename = renaming.renamer(names, invented, Random(0))
    text = next(d.text for d in small[0].documents if "works for" in d.text)
    new = rename(text)
    assert new == rename(text) != text
    assert "works for" in new
    subject = text.split("\n")[0].split()[0]
    assert subject.lower() in invented
    assert subject not in new
    assert new.count(new.split()[0]) == text.count(subject)


def test_a_lesson_asks_as_the_prompt_asks(small: list[worlds.World], names: renaming.Pools) -> None:
    lesson = lessons.facts(Random(3), names, 4, 0.5, 0.0)
    systems = [get_prompt(p.name).system for p in lessons.get_prompts()]
    assert any(lesson.prefix.startswith(f"<|system|>{system}") for system in systems)
    assert all(reply.endswith("<|end|>") and ":" in reply for _, reply in lesson.turns)


def test_answers_of_facts_at_large_stand_in_the_context_and_are_the_latest(names: renaming.Pools) -> None:
    checked = 0
    for seed in range(120):
        lesson = lessons.facts(Random(seed), names, 8, 0.5, 0.0)
        if lesson.skill != "facts short" or "Retrieved" in lesson.prefix:
            continue
        for question, reply in lesson.turns:
            answer = reply.partition(": ")[2].removesuffix("<|end|>")
            if "lives" in lesson.prefix and "home town" in question:
                who = question.partition(" of ")[2].partition("?")[0]
                told = [s for s in lesson.prefix.replace("\n", " ").split(". ") if f"{who} lives in " in s]
                assert told[-1].rstrip(".").endswith(answer)
                checked += 1
    assert checked > 5


def _trained(inputs: Path, folder: Path) -> bytes:
    call = [sys.executable, "-m", "upkeep.cell.pico.train", str(inputs), str(folder)]
    subprocess.run(call, check=True, cwd=ROOT / "src", capture_output=True)
    return (folder / "model.safetensors").read_bytes()


def test_the_same_seed_gives_the_same_weights(inputs: Path, tmp_path: Path) -> None:
    first = _trained(inputs, tmp_path / "a")
    assert first == _trained(inputs, tmp_path / "b")
    assert (tmp_path / "a" / "tokenizer.json").read_bytes() == (tmp_path / "b" / "tokenizer.json").read_bytes()
