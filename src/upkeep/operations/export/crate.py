"""A suite's run as a Workflow Run RO-Crate: https://w3id.org/ro/wfrun/workflow/0.5, with the files that it gave."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from upkeep import __version__
from upkeep.files import hash_file
from upkeep.operations.export.files import to_parquet, written
from upkeep.operations.export.rows import Exported

METADATA = "ro-crate-metadata.json"
WORKFLOW = "Snakefile"
CONTEXT = ["https://w3id.org/ro/crate/1.1/context", "https://w3id.org/ro/terms/workflow-run/context"]
PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": ("Process Run Crate", "0.5"),
    "https://w3id.org/ro/wfrun/workflow/0.5": ("Workflow Run Crate", "0.5"),
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": ("Workflow RO-Crate", "1.0"),
}
LANGUAGE = "https://w3id.org/workflowhub/workflow-ro-crate#snakemake"
LICENCE = "https://spdx.org/licenses/Apache-2.0"
TERMS = "Of the suite's code; texts of datasets stand under their own licences."
PARAMETER = "https://bioschemas.org/profiles/FormalParameter/1.0-RELEASE"
TYPES = {".parquet": "application/vnd.apache.parquet", ".smk": "text/plain", "": "text/plain"}

Entity = dict[str, Any]


def to_crate(exported: Exported, folder: Path) -> Iterator[Path]:
    """Scores and predictions as Parquet, the workflow that made them, and what says so."""
    results = list(to_parquet(exported, folder))
    yield from results
    sources = []
    for name in (WORKFLOW, *(str(path.relative_to(exported.catalog.root)) for path in _rules(exported))):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(exported.catalog.root / name, folder / name)
        sources.append(folder / name)
    yield from sources
    graph = _graph(exported, folder, [path.relative_to(folder).as_posix() for path in results], sources)
    content = msgspec.json.format(msgspec.json.encode({"@context": CONTEXT, "@graph": graph}), indent=2)
    yield written(folder / METADATA, content + b"\n")


def _rules(exported: Exported) -> list[Path]:
    return sorted((exported.catalog.root / "rules").glob("*.smk"))


def _graph(exported: Exported, folder: Path, results: list[str], sources: list[Path]) -> list[Entity]:
    suite, manifests = exported.catalog.suite(exported.suite), list(exported.cells.values())
    begin, end = min(one.start for one in manifests), max(one.end for one in manifests)
    own = [path.relative_to(folder).as_posix() for path in sources]
    name = f"upkeep {__version__}, suite {exported.suite}"
    many = sum(manifest.predictions for manifest in manifests)
    return [
        {
            "@id": METADATA,
            "@type": "CreativeWork",
            "about": _to("./"),
            "conformsTo": [_to("https://w3id.org/ro/crate/1.1"), _to("https://w3id.org/workflowhub/workflow-ro-crate/1.0")],
        },
        {
            "@id": "./",
            "@type": "Dataset",
            "name": name,
            "description": f"{suite.summary} {len(manifests):,} cells, {many:,} predictions.",
            "datePublished": end,
            "license": _to(LICENCE),
            "conformsTo": [_to(profile) for profile in PROFILES],
            "hasPart": [_to(one) for one in (*own, *results)],
            "mainEntity": _to(WORKFLOW),
            "mentions": _to("#run"),
        },
        *(
            {"@id": profile, "@type": "CreativeWork", "name": title, "version": version}
            for profile, (title, version) in PROFILES.items()
        ),
        {"@id": LICENCE, "@type": "CreativeWork", "name": "Apache-2.0", "url": LICENCE, "description": TERMS},
        {
            "@id": WORKFLOW,
            "@type": ["File", "SoftwareSourceCode", "ComputationalWorkflow"],
            "name": f"upkeep {__version__}",
            "version": __version__,
            "license": _to(LICENCE),
            "programmingLanguage": _to(LANGUAGE),
            "input": [_to("#suite"), _to("#seed")],
            "output": [_to("#scores")],
        },
        {
            "@id": LANGUAGE,
            "@type": "ComputerLanguage",
            "name": "Snakemake",
            "identifier": _to("https://doi.org/10.1093/bioinformatics/bts480"),
            "url": _to("https://snakemake.github.io"),
        },
        _parameter("#suite", "suite", "Text"),
        _parameter("#seed", "seed", "Integer"),
        _parameter("#scores", "scores", "File"),
        {
            "@id": "#run",
            "@type": "CreateAction",
            "name": f"run of suite {exported.suite}",
            "instrument": _to(WORKFLOW),
            "object": [_to("#suite-value"), _to("#seed-value")],
            "result": [_to(one) for one in results],
            "startTime": begin,
            "endTime": end,
            "actionStatus": "http://schema.org/CompletedActionStatus",
        },
        _value("#suite-value", "#suite", "suite", exported.suite),
        _value("#seed-value", "#seed", "seed", suite.seed),
        *(_file(folder, one) for one in (*own, *results) if one != WORKFLOW),
    ]  # fmt: skip


def _to(name: str) -> Entity:
    return {"@id": name}


def _parameter(name: str, title: str, kind: str) -> Entity:
    """What the workflow takes or gives."""
    return {
        "@id": name,
        "@type": "FormalParameter",
        "name": title,
        "additionalType": kind,
        "conformsTo": _to(PARAMETER),
    }


def _value(name: str, of: str, title: str, value: object) -> Entity:
    return {"@id": name, "@type": "PropertyValue", "name": title, "value": value, "exampleOfWork": _to(of)}


def _file(folder: Path, name: str) -> Entity:
    path = folder / name
    more = {"exampleOfWork": _to("#scores")} if name == "scores.parquet" else {}
    return {
        "@id": name,
        "@type": "File",
        "name": name,
        "encodingFormat": TYPES[path.suffix],
        "contentSize": str(path.stat().st_size),
        "sha256": hash_file(path),
        **more,
    }
