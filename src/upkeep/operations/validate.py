"""`./upkeep validate`: is this file or folder what it claims to be?"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from upkeep import inputs
from upkeep.catalog import Catalog
from upkeep.contract import BOUNDARY, Baselines, CellDescription, Pair, Prediction, Record, Round, Sealed
from upkeep.errors import UpkeepError, unknown
from upkeep.families import read_family
from upkeep.files import open_regular
from upkeep.integrity import read_record, read_sealed, verify_folder
from upkeep.judges import judges_of
from upkeep.layout import Layout
from upkeep.lines import Refused, decode, read_lines
from upkeep.model_cards import CARD, read_card
from upkeep.record_files import check_file
from upkeep.samples import asked_in

R = TypeVar("R", bound=Record)
JUDGES, TABLES, FIGURES, METRICS = "judges.yaml", "tables.yaml", "figures.yaml", "metrics.py"
CHECKED = "predictions (.jsonl), manifest.json, card.json, cell.json, a YAML card, or a folder with one of them"
_PAPER = ("suite.yaml", TABLES, "claims/*.yaml", JUDGES, METRICS, "prompts/*.yaml")


def validate_path(path: Path, results: Path | None = None) -> str:
    """Check predictions, a manifest, a cell, a dataset, a card or a paper, whichever the path is, and say what it is.

    Args:
        results: where the built datasets lie; by default the folder that holds `cells/`, found from the path itself.

    Raises:
        UpkeepError: for the first thing that is wrong.
    """
    path = path.absolute()
    if not os.path.lexists(path):
        near = difflib.get_close_matches(path.name, os.listdir(path.parent) if path.parent.is_dir() else [])  # noqa: PTH208
        raise UpkeepError(
            "no such file or folder",
            where=path,
            expected=CHECKED,
            remedy=f"did you mean {path.with_name(near[0])}?" if near else "give the path of one that there is",
        )
    if (path / TABLES).exists():
        return "\n".join(validate_path(file, results) for files in _PAPER for file in sorted(path.glob(files)))
    if path.is_dir():
        for name, check in _FOLDERS.items():
            if (path / name).exists():
                return check(path / name, results)
        raise UpkeepError(
            "nothing that can be checked in this folder",
            where=path,
            expected=f"one of {', '.join(_FOLDERS)}",
            remedy="give the path of a folder that holds one, or of a file",
        )
    if known := _FOLDERS.get(path.name) or _NAMES.get(path.name):
        return known(path, results)
    if path.suffix in {".yaml", ".yml"}:
        return _check_yaml(path)
    if path.suffix == ".jsonl":
        return _check_predictions(path, results)
    raise UpkeepError(
        "do not know how to check this", where=path, expected=CHECKED, remedy="give the path of one of these"
    )


def _check_predictions(path: Path, results: Path | None) -> str:
    manifest = path.with_name("manifest.json")
    if manifest.is_file():
        return _check_cell(manifest, results)
    return _check_lines(path, Prediction, "predictions") + "; which probes there must be is unknown (no manifest.json)"


def _check_cell(path: Path, results: Path | None) -> str:
    """A published folder: hashes, and for a cell every prediction, against its dataset where that is built."""
    folder, manifest = path.parent, verify_folder(path.parent)
    if "predictions.jsonl" not in manifest.files:
        return f"{manifest.cell}: {len(manifest.files)} files as in the manifest"
    dataset = Layout(results or folder.parents[4]).dataset(manifest.cell.split("/")[0])
    predictions = folder / "predictions.jsonl"
    if not (dataset / "probes.parquet").is_file():
        text = _check_lines(predictions, Prediction, "predictions")
        return f"{manifest.cell}: {text}; completeness unchecked, for the dataset is not built ({dataset})"
    from upkeep.execution.rounds import BuiltDataset

    inputs.verify_dataset(dataset)
    corpus = BuiltDataset.read(dataset)
    sampled = asked_in(manifest, [(probe.id, probe.question_id) for probe in corpus.probes])
    if sampled is not None:
        corpus = replace(corpus, probes=[probe for probe in corpus.probes if probe.id in sampled])
    index = check_file(predictions, Prediction, corpus.after(manifest.cutoff).answers(manifest.trials))
    index.require_complete()
    if (found := sum(manifest.outcomes.values())) != index.lines or manifest.predictions != index.lines:
        raise UpkeepError(
            "the manifest's counts are not those of the predictions", where=path, expected=index.lines, found=found
        )
    return f"{manifest.cell}: {index.lines:,} predictions, complete, as in the manifest"


def _check_lines(path: Path, record: type[R], what: str) -> str:
    count, seen = 0, set()
    decoder = msgspec.json.Decoder(record)
    with open_regular(path) as file:
        try:
            for line in read_lines(file):
                value = decode(line, decoder)
                match value:
                    case Prediction():
                        key: object = (value.probe_id, value.trial)
                    case _:
                        key = count
                if key in seen:
                    raise Refused(f"a second line for {key}", expected="each exactly once")
                seen.add(key)
                count += 1
        except Refused as refused:
            raise refused.fault.error(f"{path}:{count + 1}") from None
    return f"{count:,} {what}"


def _check_dataset(path: Path, results: Path | None) -> str:
    from upkeep.building.store import validate

    card = validate(path.parent)
    if (beside := path.with_name("baselines.json")).exists():
        _check_sealed(Baselines, beside, results)
    return f"{card.dataset}: {card.documents:,} documents, {card.probes:,} probes, files as in the card"


def _check_metrics(path: Path) -> str:
    from upkeep.grading.metric_families import read_family  # with polars

    read_family(path)
    return f"{path.name}: metrics that can be imported"


def _check_yaml(path: Path) -> str:
    from upkeep.yaml_files import read_yaml

    if path.parent.name == "claims":
        from upkeep.report.claims import check_published, claims_in  # with duckdb
        from upkeep.report.naming import check_claims

        check_claims(path.parents[1], claims_in(path))
        return f"{path.name}: {len(check_published(path))} claims; the published numbers give what each says"
    names = {"method.yaml": "method", "dataset.yaml": "dataset", "suite.yaml": "suite", "config.yaml": "config"}
    kind = names.get(path.name) or {"prompts": "prompt", "suites": "suite"}.get(path.parent.name)
    if path.name == CARD:
        return f"{path.name}: a valid card of {', '.join(read_card(path))}"
    if path.name == JUDGES:
        from upkeep.grading.judgements import read_lists  # with polars

        return f"{path.name}: valid judgements {', '.join(read_lists(path))}"
    if path.name in (TABLES, FIGURES):
        return _check_tables(path)
    if kind is None:
        raise UpkeepError(
            "do not know how to check this",
            where=path,
            expected=f"{', '.join((*names, CARD, TABLES, FIGURES, JUDGES))}, "
            "papers/*/claims/*.yaml, papers/*/prompts/*.yaml or config/suites/*.yaml",
        )
    if kind == "dataset":
        read_family(path)
    else:
        read_yaml(path, BOUNDARY[kind])
    above = path.parents[2] if len(path.parents) > 2 else path.parent
    if (above / "Snakefile").is_file():
        _check_names(Catalog(above), kind, path)
    return f"{path.name}: a valid {kind}"


def _check_tables(path: Path) -> str:
    """A paper's tables and figures, and the published numbers that each names."""
    from upkeep.report.naming import check_tables
    from upkeep.report.reference import read_reference  # with polars
    from upkeep.report.specs import read_paper

    paper = read_paper(path.parent)
    named = [table.file for table in paper.tables]
    named += [f"{name}.csv" for figure in paper.figures for name in figure.published]
    rows = sum(len(read_reference(path.parent / "reference" / name)) for name in dict.fromkeys(named))
    check_tables(path.parent, paper)
    counted = f"{len(paper.tables)} tables and {len(paper.figures)} figures"
    return f"{path.name}: {counted}, with {rows:,} published numbers"


def _check_names(catalog: Catalog, kind: str, path: Path) -> None:
    """Refuse a card in its place in the suite that names what there is not.

    Raises:
        UpkeepError: a suite's papers, cells or judges, a dataset's prompt, metrics or judges, a method's models.
    """
    from upkeep.grading.judgements import judgements_of  # with polars
    from upkeep.grading.metric_families import family_of

    match kind:
        case "suite":
            suite = catalog.suite(path.parent.name if path.name == "suite.yaml" else path.stem)
            catalog.cells(suite)
            judges_of(catalog, suite)
        case "dataset":
            for name in catalog.family(path.parent.name):
                catalog.prompt_of(name)
                if (paper := catalog.dataset(name).paper) not in (papers := [*catalog.papers, "none"]):
                    raise unknown("paper", paper, papers, f"no papers/{paper}").at(f"{path}: paper")
                family_of(catalog, name)
                judgements_of(catalog, name)
        case "method":
            method = path.parent.name
            for variant in catalog.method(method).variants:
                catalog.check_variant(method, variant)


def _check_record(record: type[Record], path: Path, _: Path | None) -> str:
    read_record(path, record)
    return f"{path.name}: a valid {record.__name__}"


def _check_sealed(record: type[Sealed], path: Path, _: Path | None) -> str:
    read_sealed(path, record, "delete it; it is worked out anew")
    return f"{path.name}: a valid {record.__name__}"


def _check_jsonl(record: type[Record], what: str, path: Path, _: Path | None) -> str:
    return _check_lines(path, record, what)


_FOLDERS: dict[str, Callable[[Path, Path | None], str]] = {
    "manifest.json": _check_cell,
    "card.json": _check_dataset,
    "predictions.jsonl": _check_predictions,
    "method.yaml": lambda path, _: _check_yaml(path),
    "dataset.yaml": lambda path, _: _check_yaml(path),
    "suite.yaml": lambda path, _: _check_yaml(path),
    CARD: lambda path, _: _check_yaml(path),
    JUDGES: lambda path, _: _check_yaml(path),
}
_NAMES: dict[str, Callable[[Path, Path | None], str]] = {
    "cell.json": partial(_check_record, CellDescription),
    "baselines.json": partial(_check_sealed, Baselines),
    METRICS: lambda path, _: _check_metrics(path),
    "pairs.jsonl": partial(_check_jsonl, Pair, "pairs"),
    "rounds.jsonl": partial(_check_jsonl, Round, "rounds"),
}
