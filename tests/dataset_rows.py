"""Catalogs and rows of small datasets, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from conftest import put_dataset
from upkeep.catalog import Catalog


def catalog(
    folder: Path, spec: dict[str, Any], data: dict[str, str] | None = None, family: str = "oaks_novel", **config: Any
) -> Catalog:
    """A repository with one dataset, `d`, that has the code of one of the suite's families."""
    put_dataset(folder, "d", spec, family)
    (folder / "config").mkdir()
    (folder / "config" / "config.yaml").write_text(yaml.safe_dump({"data": data or {}} | config))
    return Catalog(folder)


def spec(**fields: Any) -> dict[str, Any]:
    base = {
        "label": "D",
        "summary": "s",
        "paper": "oaks",
        "source": "here",
        "licence": "none",
        "builder": "oaks_release",
    }
    return base | {"prompt": "oaks_babi", "equivalence": "short_answer", "metrics": "oaks"} | fields


BABI: list[dict[str, Any]] = [
    {
        "meta": {"bid": "P1", "num_chunks": 4, "num_qas": 2},
        "data": {
            "chunks": {"0": "Once.", "1": "Mary went to the hall.", "2": "Mary moved to the attic.", "3": "The end."},
            "facts": {"1": ["Mary went to the hall."], "2": ["Mary moved to the attic."]},
            "qas": {
                "Where is Mary?": {
                    "question_id": "P1_q0",
                    "question_type": "simple_facts",
                    "chunk_to_answer": {"0": ["Unknown"], "1": ["hall"], "2": ["attic"], "3": ["attic"]},
                },
                "How many times has Mary moved?": {
                    "question_id": "P1_q1",
                    "question_type": "counting",
                    "chunk_to_answer": {
                        "0": ["Unknown", "0"],
                        "1": ["1", "once"],
                        "2": ["2", "twice"],
                        "3": ["2", "twice"],
                    },
                },
            },
        },
    }
]
NONE = "We cannot answer this question at this point."
