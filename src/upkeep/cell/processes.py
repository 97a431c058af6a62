"""A training on several GPUs: a process for each, among which batches are dealt out."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from upkeep.contract import ModelSpec

FIRST = "0"


def processes_of(spec: ModelSpec, recipes: Sequence[Mapping[str, Any]]) -> int:
    """How many train together: one a GPU; or one for all, each of which has a share of the layers, where a batch cannot
    be dealt out, or where whole layers are merged into a model that would then be nowhere whole."""
    divided = all(one["batch"] % max(1, spec.gpus) == 0 and not one.get("train_whole") for one in recipes)
    return spec.gpus if spec.gpus > 1 and divided else 1


def shares(batch: int, device_batch: int, devices: int = 1) -> tuple[int, int]:
    """How a batch is learnt from: samples at once on each device, and parts that are accumulated.

    Their product with the devices is the batch, exactly.

    Raises:
        ValueError: the batch cannot be dealt out evenly.
    """
    if batch % devices:
        raise ValueError(f"a batch of {batch} samples cannot be dealt out evenly to {devices} devices; choose another")
    own = batch // devices
    at_once = max(n for n in range(1, min(device_batch, own) + 1) if own % n == 0)
    return at_once, own // at_once


def on_each(processes: int, run: Callable[[], None]) -> None:
    """Have so many processes run something, as `torchrun` starts them; one is this one.

    Raises:
        RuntimeError: one of several has failed, for the reason that is told; `run` alone raises what it raises.
    """
    if processes == 1:
        run()
        return
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    def each() -> None:
        run()

    # Forked, for what is run cannot be sent. Nothing here may have used a GPU or a second thread of torch before, of
    # which a forked process has neither: whoever computes before this has set one thread.
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id="training",
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        local_addr="127.0.0.1",
        start_method="fork",
        max_restarts=0,
    )
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # a container has no other
    try:
        elastic_launch(config, each)()
    except ChildFailedError as failed:
        rank, failure = failed.get_first_failure()
        told: Any = failure.message  # text, or of an exception what torch has written down
        reason = told["message"] if isinstance(told, dict) else told
        raise RuntimeError(f"process {rank} of {processes} has failed: {reason}") from None


def is_first() -> bool:
    """Whether this is the process that writes: of several the first, else the only one."""
    return os.environ.get("RANK", FIRST) == FIRST


def together(decided: bool) -> bool:
    """What the first process has decided, for all."""
    import torch

    if not torch.distributed.is_initialized():
        return decided
    told: list[object] = [decided]
    torch.distributed.broadcast_object_list(told, src=0)
    return bool(told[0])


def wait() -> None:
    """Until all processes are here."""
    import torch

    if torch.distributed.is_initialized():
        torch.distributed.barrier()
