"""A base image of Debian 12 with Python 3.11, made on a machine that no registry can be reached from."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from upkeep.errors import UpkeepError
from upkeep.files import digest
from upkeep.images.plans import EPOCH

MADE_BASE = "upkeep/base-os"
MADE_PACKAGES = ("python3", "python3-venv", "libgomp1", "libnuma1", "libstdc++6")


def made_reference() -> str:
    """Name of the base image that is made on a machine itself."""
    return f"{MADE_BASE}:{digest(MADE_PACKAGES)[:12]}"


def debian(archive: Path) -> None:
    """Write a root file system of Debian 12 with Python 3.11 as a tar file; root is not needed.

    Raises:
        UpkeepError: mmdebstrap fails.
    """
    command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(MADE_PACKAGES)}"]
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(EPOCH)}
    done = subprocess.run(
        [*command, "bookworm", str(archive)], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise UpkeepError("the base image cannot be made", found=done.stderr.strip()[-2000:])
