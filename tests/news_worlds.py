"""Small datasets of World News and what is made of them, for tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, get_args

import msgspec
import pytest
import yaml

from conftest import put_dataset, spec_of
from imprint_news import corpus, program, synthetic
from imprint_news.papers import Paper, pages, press
from upkeep.building import assistant, names, store, tokens
from upkeep.building.build import build_dataset
from upkeep.building.reading import Faults
from upkeep.catalog import Catalog
from upkeep.contract import FaultKind

FORGIVING = Faults(dict.fromkeys(get_args(FaultKind), "skip"), Path())
MINI = "imprint_news_mini"
FULL = "imprint_news"


def catalog(folder: Path, name: str, *, options: dict[str, Any] | None = None, **changes: Any) -> Catalog:
    """A repository with one dataset, that of the suite with some things changed."""
    spec = spec_of(name)
    data = changes.pop("data", {})
    spec |= changes
    spec["options"] |= options or {}
    put_dataset(folder, name, spec)
    (folder / "config").mkdir()
    (folder / "config" / "config.yaml").write_text(yaml.safe_dump({"data": data}))
    return Catalog(folder)


def build(folder: Path, name: str, **how: Any) -> store.Dataset:
    build_dataset(catalog(folder, name, **how), name, folder / "out" / name)
    return store.load(folder / "out" / name)


def mini_again(seed: int = 0) -> tuple[synthetic.World, list[Paper]]:
    """The small world with its papers, made again."""
    rng = Random(f"imprint_news {seed}")
    world = synthetic.make(rng, names.Names(rng), 10)
    return world, press(world, rng)


def mini_program() -> assistant.Scripted:
    return assistant.Scripted(program.script(*mini_again()))


@pytest.fixture(scope="module")
def mini(tmp_path_factory: pytest.TempPathFactory) -> store.Dataset:
    return build(tmp_path_factory.mktemp("mini"), MINI)


def tiny_corpus(*texts: str, chunk_tokens: int = 100) -> corpus.Corpus:
    articles = [
        corpus.Article(f"a{n}", "", f"2026-02-{n + 1:02d}", text, "", f"2026-02-{n + 1:02d}", f"line {n}")
        for n, text in enumerate(texts)
    ]
    return corpus.Corpus(articles, chunk_tokens, tokens.load())


def scripted(**script: Callable[[Any], Any]) -> assistant.Scripted:
    return assistant.Scripted({f"imprint_news.{name}": answer for name, answer in script.items()})


def articles_file(path: Path, faulty: Sequence[bytes] = ()) -> Path:
    """The small world's pages as a user would have them, with dates in three forms and faults in the middle."""
    lines: list[bytes] = []
    for n, (_, raw) in enumerate(pages(mini_again()[1])):
        row = {key: value for key, value in msgspec.to_builtins(raw).items() if value is not None}
        year, month, day = row["date"].split("-")
        row["date"] = [
            row["date"],
            f"{row['date']}T08:30:00Z",
            f"{int(day)} {'Feb' if month == '02' else 'March'} {year}",
        ][n % 3]
        lines.append(json.dumps(row, ensure_ascii=False).encode())
    path.write_bytes(b"\n".join([*lines[:20], *faulty, *lines[20:]]))
    return path
