"""The check of what a suite's models need: weights at hand, keys of endpoints."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from upkeep import weights
from upkeep.catalog import Catalog
from upkeep.contract import ModelSpec
from upkeep.execution.roofline import weight_bytes
from upkeep.judges import judges_of
from upkeep.layout import Layout
from upkeep.operations.doctor.findings import Facts, Finding, missing, ok, warning
from upkeep.operations.needs import models_of


def models(catalog: Catalog, suite: str, facts: Facts) -> Iterator[Finding]:
    """Weights of the suite's models and judges, at hand or not; keys of all endpoints, present or not."""
    needed = set(judges_of(catalog, catalog.suite(suite)))
    for cell in catalog.cells(catalog.suite(suite)):
        needed.update(models_of(catalog, cell))
    keys: dict[str, list[str]] = {}
    for model in catalog.models:
        spec = catalog.model(model)
        if spec.endpoint is not None and (key := spec.endpoint.key) is not None:
            keys.setdefault(key, []).append(model)
        elif spec.source != "endpoint":
            finding = _weights(catalog, model, spec)
            if finding.state == "missing":
                facts.models[model] = f"the weights of {model}"
            if model in needed:
                yield finding
    for key, owners in keys.items():
        if os.environ.get(key):
            yield ok("Keys", key, "present")
        else:
            facts.models |= dict.fromkeys(owners, f"the key {key}")
            yield missing("Keys", key, "not in the environment", ", ".join(owners), f"export {key}=...")


def _weights(catalog: Catalog, model: str, spec: ModelSpec) -> Finding:
    group = "Weights"
    place = weights.place(catalog, model, spec)
    if Layout(catalog.results).weights_record(model).is_file() and (place is None or place.is_dir()):
        return ok(group, model, str(place) if place else "in the image")
    if local := catalog.own_weights(model) or (spec.location if spec.source == "path" else None):
        if (catalog.root / Path(local).expanduser()).is_dir():
            return ok(group, model, f"{local}; ./upkeep setup takes them in")
        remedy = "put them there, or name another folder under `models:` in your configuration"
        return missing(group, model, f"{local}: no such folder", f"the model {model}", remedy)
    if spec.source != "hub":
        return ok(group, model, "./upkeep setup makes them on the spot" if spec.source == "rule" else "in the image")
    if catalog.config.offline or os.environ.get("HF_HUB_OFFLINE") == "1":
        remedy = "fetch them where there is a network, or name their folder under `models:` in your configuration"
        return missing(group, model, "not at hand, and set to stay offline", f"the model {model}", remedy)
    room = weight_bytes(spec)
    size = f", about {room / 1e9:,.0f} GB" if room else ""
    found = f"not at hand: {spec.location}{size}"
    return warning(group, model, found, "running it without a network", f"./upkeep model fetch {model}")
