"""Plans: GPU hours and money follow from counts, sums are sums, and what a job took is read from its manifest."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import ROOT
from planning import TALLY, add_model, cell, publish, root, suite, text
from upkeep.catalog import Catalog
from upkeep.contract import (
    Manifest,
    ModelSpec,
    Usage,
)
from upkeep.errors import UpkeepError
from upkeep.execution.roofline import Assumptions
from upkeep.layout import Layout
from upkeep.operations.plan.amounts import AMOUNTS, NONE, Amounts, JobPlan, Plan, sum_of
from upkeep.operations.plan.assumptions import Options
from upkeep.operations.plan.counts.tally import Tally
from upkeep.operations.plan.estimate import Estimate, dollars, make_plan
from upkeep.operations.plan.taken import took
from upkeep.operations.plan.terminal import render
from upkeep.operations.plan.trainings import Trainings
from upkeep.yaml_files import read_yaml

__all__ = ["root"]


# ---------------------------------------------------------------- estimates


def planned(root: Path, model: str, found: Tally, method: str = "closed_book", **assumptions: Any) -> Plan:
    """A plan over one cell with these counts."""
    which = cell(method, model)
    catalog = suite(root, "estimate", which)
    told = read_yaml(root / "config" / "gpus.yaml", Assumptions)
    told = msgspec.structs.replace(told, **assumptions)
    trainings = Trainings(catalog, told, lambda _: None)
    return Estimate(catalog, told, None, {which: "cell"}, {which: found}, {}, {}, {}, trainings).plan("estimate")


SHAPE = {"layers": 10, "heads": 8, "kv_heads": 2, "head_size": 64}


def test_gpu_hours_are_the_roofline(root: Path) -> None:
    add_model(root, "dense", gpus=2, engine="vllm", dtype="bfloat16", parameters_b=5, attention=SHAPE)
    share = {"prefill_share": 0.5, "decode_share": 0.25, "start_s": 100, "load_gb_s": 2.0}
    plan = planned(root, "dense", TALLY, **share)
    prefill = (2 * 5e9 * 4e5 + 4 * 10 * 8 * 64 * 5e9) / (2 * 989e12 * 0.5)
    decode = (2e4 / 10 * 10e9 + 2 * 10 * 2 * 64 * 2 * 2e8) / (2 * 3350e9 * 0.25)
    start = 100 + 10e9 / 2e9
    assert plan.jobs[0].plan.gpu_hours == pytest.approx(2 * (prefill + decode + start) / 3600)
    # An engine of a method's own answers one after the other, and reads a new context as often as its card says.
    (own,) = planned(root, "dense", TALLY, "kvzip", **share).jobs
    alone = (2e4 * 10e9 + 2 * 10 * 2 * 64 * 2 * 2e8) / (2 * 3350e9 * 0.25)
    assert own.plan.gpu_hours == pytest.approx(2 * (2 * prefill + alone + start) / 3600)
    assert own.plan.computed_tokens == plan.jobs[0].plan.computed_tokens


def test_the_transformers_engine_decodes_few_sequences_at_a_time_and_long_ones_alone(root: Path) -> None:
    common = {"gpus": 2, "dtype": "bfloat16", "parameters_b": 50, "attention": SHAPE}
    add_model(root, "batched", **common, engine="vllm")
    add_model(root, "laned", **common, engine="transformers")
    many = msgspec.structs.replace(TALLY, together=100, prompt=1e5, computed=1e5)
    hours = [
        planned(root, model, tally, start_s=0, load_gb_s=1e9).jobs[0].plan.gpu_hours or 0
        for tally in (many, msgspec.structs.replace(many, prompt=1e6))
        for model in ("batched", "laned")
    ]
    batched, laned, batched_long, alone = hours
    assert batched < laned < alone
    assert batched == batched_long


def test_fewer_active_parameters_take_less_time_and_as_much_room(root: Path) -> None:
    common = {"gpus": 2, "engine": "vllm", "dtype": "bfloat16", "parameters_b": 50, "attention": SHAPE}
    add_model(root, "dense", **common)
    add_model(root, "sparse", **common, active_b=3)
    dense, sparse = planned(root, "dense", TALLY), planned(root, "sparse", TALLY)
    assert (sparse.jobs[0].plan.gpu_hours or 0) < (dense.jobs[0].plan.gpu_hours or 0)
    sizes = [next(d.bytes for d in plan.disk if d.what == "weights") for plan in (dense, sparse)]
    assert sizes == [100e9, 100e9]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"attention": SHAPE}, "has no parameters_b"),
        ({"parameters_b": 5}, "has no attention"),
        ({}, "has no parameters_b and attention"),
        ({"parameters_b": 500, "attention": SHAPE}, "do not fit into 1 h100"),
    ],
)
def test_gpu_hours_that_cannot_be_known_are_unknown_and_say_why(
    root: Path, fields: dict[str, Any], reason: str
) -> None:
    add_model(root, "vague", gpus=1, engine="vllm", dtype="bfloat16", **fields)
    plan = planned(root, "vague", TALLY)
    (job,) = plan.jobs
    assert job.plan.gpu_hours is None and plan.total.plan.gpu_hours is None
    assert reason in job.unknown[0]
    assert job.plan.requests == 100, "what is known is said all the same"
    assert "unknown" in text(render(plan))


def test_an_unknown_gpu_is_refused_with_those_that_are_known(root: Path) -> None:
    with pytest.raises(UpkeepError, match="h100"):
        make_plan(suite(root, "controls", cell("null", "none")), "controls", Options(gpu="h1000"))


@settings(deadline=None)
@given(
    st.floats(0, 100), st.floats(0, 100), st.none() | st.floats(0, 1), st.floats(0.01, 4), st.floats(0, 1),
    st.integers(0, 4096),
)  # fmt: skip
def test_money_is_never_more_than_at_most(
    price: float, completion: float, discount: float | None, rate: float, reused: float, reply: int
) -> None:
    spec = msgspec.convert(
        {
            **{"label": "x", "summary": "", "source": "endpoint", "location": "x", "context_length": 1000},
            "engine": "endpoint",
            "endpoint": {
                "model": "x",
                "key": None,
                "tokens_per_byte": rate,
                "price": {"prompt": price, "completion": completion, "cached": discount and discount * price},
            },
        },
        ModelSpec,
    )
    found = msgspec.structs.replace(TALLY, computed=TALLY.prompt * (1 - reused), output=TALLY.requests * reply)
    estimate, most = dollars(spec, found)
    assert estimate is not None and most is not None
    assert 0 <= estimate <= most * (1 + 1e-9)


def test_money_counts_what_is_reused_at_its_own_price(root: Path) -> None:
    price = {"prompt": 2.0, "completion": 8.0, "cached": 0.5}
    endpoint = {"model": "x", "key": "KEY", "price": price}
    place = "https://nowhere.invalid/v1"
    add_model(root, "paid", source="endpoint", engine="endpoint", location=place, revision=None, endpoint=endpoint)
    plan = planned(root, "paid", TALLY)
    assert plan.jobs[0].plan.usd == pytest.approx(0.4 * 2 + 0.6 * 0.5 + 0.02 * 8)
    # 0.35 tokens a byte at most, against 0.25 that were counted; 4,096 tokens of each reply.
    assert plan.jobs[0].plan.usd_at_most == pytest.approx(1.4 * 2 + 100 * 4096 / 1e6 * 8)
    assert plan.jobs[0].plan.gpu_hours == plan.jobs[0].plan.cpu_hours == 0


AMOUNT = st.none() | st.floats(0, 1e9)


@given(st.lists(st.builds(Amounts, **dict.fromkeys(AMOUNTS, AMOUNT)), max_size=8))
def test_totals_are_the_sums_of_what_is_known_and_say_what_is_not(amounts: list[Amounts]) -> None:
    jobs = [JobPlan(job=str(n), kind="cell", model="m", plan=plan, counted="") for n, plan in enumerate(amounts)]
    total = sum_of("total", jobs)
    for field in AMOUNTS:
        values = [getattr(plan, field) for plan in amounts]
        known = [value for value in values if value is not None]
        assert getattr(total.plan, field) == (pytest.approx(sum(known)) if known or not values else None)
        assert total.incomplete.get(field, 0) == len(values) - len(known)


# ---------------------------------------------------------------- afterwards


def test_what_a_job_took_is_read_from_its_manifest(root: Path) -> None:
    add_model(root, "onfour", gpus=4, engine="vllm")
    which = cell("closed_book", "onfour")
    publish(root, which, 1800, Usage(prompt=10, completion=5, calls=2), cached=4)
    manifest = msgspec.json.decode((Layout(root / "results").cell(which) / "manifest.json").read_bytes(), type=Manifest)
    shutil.rmtree(root / "results" / "cells")
    found = took(Catalog(root), which, manifest)
    assert found == msgspec.structs.replace(
        NONE, requests=2.0, prompt_tokens=10.0, computed_tokens=6.0, output_tokens=5.0, gpu_hours=2.0
    )


# ---------------------------------------------------------------- cards, command line


LATENT_ATTENTION = {"deepseek-r1", "deepseek-v3"}
"""Models whose cost the record `Attention` cannot say: the plan calls their GPU hours unknown."""


def test_every_model_on_gpus_has_what_an_estimate_needs_and_fits() -> None:
    catalog = Catalog(ROOT)
    told = read_yaml(ROOT / "config" / "gpus.yaml", Assumptions)
    assert told.default in told.gpus
    assert all("data sheet" in gpu.source for gpu in told.gpus.values())
    for name in catalog.models:
        spec = catalog.model(name)
        if spec.role == "generator" and spec.gpus:
            assert spec.parameters_b is not None, name
            assert spec.active_b is None or spec.active_b < spec.parameters_b
            if name in LATENT_ATTENTION:
                continue
            assert spec.attention is not None, name
            gpu = told.gpus[(spec.resources.gpu_type if spec.resources else None) or told.default]
            assert spec.parameters_b * 2 < spec.gpus * spec.nodes * gpu.memory_gb * told.memory_share, name
