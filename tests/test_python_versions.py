"""The same input gives the same dataset under another minor version of Python."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT, copy_repository
from upkeep.catalog import Catalog

SMALL = [name for name in Catalog(ROOT).datasets if name.endswith("_mini")]

BUILD = """
import json, sys
from pathlib import Path
from upkeep.catalog import Catalog
from upkeep.building.build import build_dataset
catalog = Catalog(Path(sys.argv[1]))
found = {name: build_dataset(catalog, name, Path(sys.argv[2]) / name).content for name in sys.argv[3:]}
print(json.dumps([sys.version_info[:2], found]))
"""


def run(*command: str | Path, **options: object) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=900, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return str(done.stdout)


@pytest.mark.other_python
def test_every_small_dataset_is_the_same_under_another_python(tmp_path: Path) -> None:
    other = Path(os.environ["UPKEEP_OTHER_ROOT"])
    inside = ("unshare", "--mount", "sh", "-c", f'mount -t proc proc {other}/proc && exec chroot {other} "$@"', "sh")
    place = other / "tmp" / f"upkeep-{os.getpid()}"
    try:
        place.mkdir(parents=True)
        copy_repository(place)
        here = f"/tmp/{place.name}"
        built = run(
            *(*inside, "env", f"PYTHONPATH={here}/upkeep/src", "/opt/upkeep/bin/python", "-c", BUILD),
            *(f"{here}/upkeep", f"{here}/built", *SMALL),
        )
    finally:
        shutil.rmtree(place, ignore_errors=True)
    mine = run(sys.executable, "-c", BUILD, copy_repository(tmp_path), tmp_path / "built", *SMALL)
    (my_version, my_hashes), (its_version, its_hashes) = (
        json.loads(mine.splitlines()[-1]),
        json.loads(built.splitlines()[-1]),
    )
    assert my_version != its_version
    assert my_hashes == its_hashes and my_hashes.keys() == set(SMALL)
