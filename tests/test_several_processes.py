"""Several processes learn what one learns: under FSDP, with gloo on the CPU."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
import torch
from safetensors.torch import load_file

from finetunings import DOCUMENTS, LORA, SMALL, TINY, given, trained
from upkeep.cell import finetuning
from upkeep.cell.processes import on_each, processes_of
from upkeep.cell.training import train

RECIPE = SMALL | {"piece_tokens": 12, "batch": 4, "device_batch": 2, "epochs": 1, "learning_rate": 1e-3}
RECIPE |= {"checkpoint_minutes": 10}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from upkeep.serving.make_model import tiny_llama

    folder = tmp_path_factory.mktemp("base")
    tiny_llama(folder, vocabulary=512)
    return folder


@pytest.fixture
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two processes without a GPU. accelerate has its FSDP for GPUs alone: here it is told that a CPU may as well, and
    all that follows is its own and PyTorch's."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, PartialState
    from accelerate.utils import DistributedType
    from torch.distributed.tensor import DTensor

    first = AcceleratorState.__init__

    def begun(self: Any, *told: Any, fsdp_plugin: Any = None, **more: Any) -> None:
        first(self, *told, fsdp_plugin=fsdp_plugin, **more)
        if fsdp_plugin is not None and self.distributed_type == DistributedType.MULTI_CPU:
            AcceleratorState._shared_state["distributed_type"] = DistributedType.FSDP
            PartialState._shared_state["distributed_type"] = DistributedType.FSDP
            AcceleratorState._shared_state["fsdp_plugin"] = fsdp_plugin

    collected = Accelerator.get_state_dict

    def whole(self: Any, model: Any, *more: Any, **given: Any) -> Any:
        shards = [one for one in model.parameters() if isinstance(one, DTensor)]
        assert len(shards) == len(list(model.parameters())), "every weight is divided"
        assert sum(one.to_local().numel() for one in shards) < 0.6 * sum(one.numel() for one in shards)
        return collected(self, model, *more, **given)

    monkeypatch.setattr(Accelerator, "get_state_dict", whole)
    monkeypatch.setattr(AcceleratorState, "__init__", begun)
    monkeypatch.setattr(finetuning, "processes_of", lambda spec, recipes: 2)
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


def weights(base: Path, folder: Path, recipe: dict[str, Any]) -> dict[str, torch.Tensor]:
    made = given(base, folder / "model", documents=DOCUMENTS[:4])
    trained("cpt", recipe, made, seed=1)
    (file,) = made.output.glob("*.safetensors")
    return dict(load_file(file))


@pytest.mark.parametrize("kind", [{}, LORA | {"lora_dropout": 0.0}], ids=["full", "lora"])
def test_two_processes_give_the_weights_of_one(
    kind: dict[str, Any], base: Path, tmp_path: Path, on_the_cpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = weights(base, tmp_path / "two", RECIPE | kind)
    monkeypatch.undo()
    one = weights(base, tmp_path / "one", RECIPE | kind)
    none = weights(base, tmp_path / "none", RECIPE | kind | {"learning_rate": 0.0})
    assert one.keys() == two.keys() == none.keys()
    moved = max((one[name] - none[name]).abs().max() for name in one)
    apart = max((one[name] - two[name]).abs().max() for name in one)
    assert moved > 1e-4 and apart < moved / 1000


def test_two_processes_that_were_ended_go_on_to_the_same_weights(
    base: Path, tmp_path: Path, on_the_cpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import TrainerCallback

    class Ends(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == 3:
                raise ValueError("ended")

    recipe = RECIPE | {"epochs": 2}
    undisturbed = weights(base, tmp_path / "undisturbed", recipe)
    with monkeypatch.context() as ended:
        ended.setattr(finetuning, "_watching", lambda checkpoints, recipe: Ends())
        with pytest.raises(RuntimeError, match="ended"):
            weights(base, tmp_path / "ended", recipe | {"checkpoint_minutes": 0})
    assert [path.name for path in (tmp_path / "ended/model.kept").iterdir()] == ["step-000000000002"]
    found = weights(base, tmp_path / "ended", recipe)
    assert all(found[name].equal(undisturbed[name]) for name in undisturbed)


def test_a_process_that_fails_ends_all_and_is_named() -> None:
    def fails() -> None:
        raise ValueError("the reason")

    with pytest.raises(RuntimeError, match=r"^process \d of 2 has failed: ValueError: the reason$"):
        on_each(2, fails)


def test_a_disk_that_is_full_for_a_process_is_named(
    base: Path, tmp_path: Path, on_the_cpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Any, *_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(finetuning._Run, "fit", full)
    with pytest.raises(RuntimeError, match=r"failed: OSError: .*no space left to keep what is trained \(there"):
        weights(base, tmp_path / "full", RECIPE)


@pytest.mark.parametrize(("gpus", "threads"), [(2, 1), (1, 2)])
def test_adapters_are_merged_in_one_thread_where_processes_may_be_forked_afterwards(
    gpus: int, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []
    for name in ("documents", "pairs"):
        (tmp_path / name).touch()
    monkeypatch.setattr("upkeep.cell.adapters.merge", lambda *_: found.append(torch.get_num_threads()))
    cell = SimpleNamespace(
        model_spec=msgspec.structs.replace(TINY, gpus=gpus), model_path="base", adapters=["adapter"],
        documents=str(tmp_path / "documents"), pairs=str(tmp_path / "pairs"), output=str(tmp_path),
    )  # fmt: skip
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        train(cast("Any", cell), SimpleNamespace(train=lambda _: None), cast("Any", None))
    finally:
        torch.set_num_threads(before)
    assert found == [threads]


@pytest.mark.parametrize(
    ("gpus", "recipes", "processes"),
    [
        (0, [{"batch": 64}], 1),
        (1, [{"batch": 64}], 1),
        (4, [{"batch": 64}], 4),
        (2, [{"batch": 1}], 1),
        (8, [{"batch": 4}, {"batch": 32}], 1),
        (4, [{"batch": 64, "train_whole": ["lm_head"]}], 1),
    ],
)
def test_there_is_a_process_for_each_gpu_where_batches_can_be_dealt_out(
    gpus: int, recipes: list[dict[str, Any]], processes: int
) -> None:
    assert processes_of(msgspec.structs.replace(TINY, gpus=gpus), recipes) == processes
