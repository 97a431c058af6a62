"""How long the engine of a small model takes to start: `python benchmarks/loading.py [--repeats 3]`, from an
environment with the transformers engine.

`pico` is read from its own files, and loaded by transformers as every model is whose configuration leaves something to
it: here positions that are scaled by 1, so that the numbers are the same. Each start is a process of its own, the two
take turns, and the median of the processor's seconds counts. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from upkeep.catalog import Catalog
from upkeep.contract import EngineSettings

ROOT = Path(__file__).resolve().parents[1]
SCALED = {"rope_scaling": {"rope_type": "linear", "factor": 1.0}}


def start(weights: Path) -> None:
    """Start the engine; print the processor's seconds, and the most memory in MiB."""
    import resource

    from upkeep.serving.transformers_engine import TransformersEngine

    TransformersEngine(str(weights), Catalog(ROOT).model("pico"), EngineSettings(name="transformers"))
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--start", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.start:
        start(arguments.start)
        return
    with tempfile.TemporaryDirectory() as folder:
        plain, scaled = (Path(folder) / name for name in ("plain", "scaled"))
        for copy, changes in ((plain, {}), (scaled, SCALED)):
            shutil.copytree(ROOT / "models" / "pico", copy, ignore=shutil.ignore_patterns("recipe"))
            config = json.loads((copy / "config.json").read_text()) | changes
            (copy / "config.json").write_text(json.dumps(config))
        taken: dict[Path, list[list[float]]] = {scaled: [], plain: []}
        for _ in range(arguments.repeats):
            for weights, found in taken.items():
                command = [sys.executable, __file__, "--start", weights]
                said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
                found.append([*map(float, said)])
    print("| loaded | seconds of a processor | MiB | ratio |\n| --- | ---: | ---: | ---: |")
    slow = statistics.median(seconds for seconds, _ in taken[scaled])
    for name, found in zip(("by transformers", "from its own files"), taken.values(), strict=True):
        seconds, memory = (statistics.median(column) for column in zip(*found, strict=True))
        print(f"| {name} | {seconds:.2f} | {memory:.0f} | {slow / seconds:.1f} |")


if __name__ == "__main__":
    main()
