"""What complete jobs took, as their manifests say."""

from __future__ import annotations

from upkeep.catalog import Catalog
from upkeep.contract import Manifest
from upkeep.errors import UpkeepError
from upkeep.inputs import command_of
from upkeep.integrity import read_sealed
from upkeep.jobs import Job, Training
from upkeep.machine.clock import age
from upkeep.needs import gpus_of
from upkeep.operations.plan.amounts import Amounts
from upkeep.published import arrival, asked, folder_of


def read_manifest(catalog: Catalog, job: Job) -> Manifest | None:
    """The manifest of a job that is complete."""
    try:
        return read_sealed(folder_of(catalog, job) / "manifest.json", Manifest, command_of(job))
    except UpkeepError:
        return None  # not there, or damaged: then it is made again


def took(catalog: Catalog, job: Job, manifest: Manifest, *, arrivals: bool = True) -> Amounts:
    """What a complete job took, as its manifest says.

    Args:
        arrivals: count what it asked as documents arrived; another cell has, where that is in its plan.
    """
    measured, hours = manifest.measured, worked_s(manifest) / 3600
    none = job.model == "none"
    spec = None if none else catalog.spec(job.model)
    facts = manifest.environment.job
    nodes = 1 if spec is None else spec.nodes
    gpus = (len(facts.gpus) if facts and facts.gpus else gpus_of(catalog, job)) * nodes
    used = asked(manifest) if arrivals else manifest.usage
    # How much of what is asked as documents arrive is in the engine's cache is not told.
    told = used.calls == manifest.usage.calls
    paid = spec is not None and spec.engine == "endpoint"
    computed = measured.get("computed_prompt_tokens", None if used.calls else 0.0) if told else None
    trains = isinstance(job, Training) and catalog.method(job.method).asks  # it counts its requests alone
    replies = measured.get("recorded_replies", 0.0) + measured.get("new_replies", 0.0) if _whole(manifest) else None
    return Amounts(
        requests=replies if trains else float(used.calls),
        prompt_tokens=None if trains else float(used.prompt),
        computed_tokens=None if trains else computed,
        output_tokens=None if trains else float(used.completion),
        gpu_hours=hours * gpus,
        cpu_hours=0.0 if gpus or paid or none else hours,
        usd=measured.get("cost_usd") if paid else 0.0,
        usd_at_most=measured.get("cost_usd") if paid else 0.0,
    )


def _whole(manifest: Manifest) -> bool:
    """Whether its counts of replies are of all that it asked: those of attempts that were killed are told nowhere."""
    return all(attempt.outcome == "complete" for attempt in manifest.attempts)


def worked_s(manifest: Manifest) -> float:
    """Seconds in which a job was being worked on, over all its attempts: without those in which others were asked that
    are asked side by side with it, as far as the process knows that has published it."""
    seconds = sum(age(attempt.start, attempt.end) for attempt in manifest.attempts if attempt.end is not None)
    return seconds - manifest.measured.get("waited_s", 0.0)


def speeds(catalog: Catalog) -> dict[str, float]:
    """Model -> tokens a second (computed prompt and generated ones), over all its cells that were run here; by an
    engine of a method's own, method/model. What the record answered took no time, and does not count."""
    tokens: dict[str, float] = {}
    seconds: dict[str, float] = {}
    for path in (catalog.results / "cells").glob("*/*/*/*/manifest.json"):
        try:
            manifest = read_sealed(path, Manifest, "")
        except UpkeepError:
            continue  # it is not scored either, and the report says why
        model = path.parent.name
        if "own_code" in manifest.identity_parts:
            model = f"{path.parents[2].name}/{model}"
        new, recorded = (manifest.measured.get(f"{kind}_replies", 0.0) for kind in ("new", "recorded"))
        # After a killed attempt the record answers what that one had computed.
        replayed = recorded / (new + recorded) if recorded and _whole(manifest) else 0.0
        if replayed == 1:
            continue
        used = manifest.measured.get("computed_prompt_tokens", 0.0) + arrival(manifest).prompt
        made = used + asked(manifest).completion
        tokens[model] = tokens.get(model, 0.0) + made * (1 - replayed)
        seconds[model] = seconds.get(model, 0.0) + worked_s(manifest)
    return {model: tokens[model] / spent for model, spent in seconds.items() if spent and tokens[model]}
