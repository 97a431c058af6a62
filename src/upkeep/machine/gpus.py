"""The GPUs of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess

from upkeep.errors import UpkeepError


def visible_gpus() -> int:
    """GPUs that a job may use: those of CUDA_VISIBLE_DEVICES where it is set, else all that nvidia-smi lists."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return len([device for device in chosen.split(",") if device.strip() not in {"", "-1"}])
    if (program := shutil.which("nvidia-smi")) is None:
        return 0
    listed = subprocess.run([program, "--list-gpus"], capture_output=True, text=True, check=False)
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines()) if listed.returncode == 0 else 0


def require_gpus(needed: int, what: str) -> None:
    """Refuse what needs more GPUs than there are; asks nothing of the machine where none is needed.

    Args:
        what: the job or model that needs them, for the message.

    Raises:
        UpkeepError: there are fewer.
    """
    if needed and needed > (there := visible_gpus()):
        raise UpkeepError(
            f"{what} needs {needed} GPU{'s' if needed > 1 else ''}",
            expected=f"{needed} of nvidia-smi's list (of CUDA_VISIBLE_DEVICES, where it is set)",
            found=there,
            remedy="run it where they are, or choose a model that runs on the CPU",
            kind="machine",
        )
