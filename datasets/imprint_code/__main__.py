"""What the rules find in a folder of release notes, to be read beside the notes.

In the folder `datasets`: python -m imprint_code NOTES [--packages PACKAGES] [--sample 50] [--seed 1]
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from random import Random

from upkeep.building.reading import Faults

from . import find, sources


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m imprint_code", description=__doc__)
    parser.add_argument("notes", type=Path, help=sources.FORM)
    parser.add_argument("--packages", type=Path, help="a folder with <library>/<name>-<version>.tar.gz")
    parser.add_argument("--sample", type=int, help="so many features, drawn at random; all without it")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    findings = find(
        sources.read(
            {"notes": arguments.notes} | ({"packages": arguments.packages} if arguments.packages else {}),
            Faults({"duplicate_id": "skip", "empty_text": "skip", "bad_date": "skip"}, Path("the command line")),
        )
    )
    features = findings.features
    print(f"{len(features)} features in {findings.candidates} candidates")
    print(", ".join(f"{kind} {n}" for kind, n in sorted(Counter(feature.kind for feature in features).items())))
    print(", ".join(f"{reason} {n}" for reason, n in sorted(findings.left_out.items())))
    if arguments.sample is not None:
        places = sorted(Random(f"sample {arguments.seed}").sample(range(len(features)), arguments.sample))
        features = [features[place] for place in places]
    for number, feature in enumerate(features, 1):
        also = f", also of {', '.join(feature.parents[1:])}" if feature.parents[1:] else ""
        heading = feature.block.titles[-1].plain if feature.block.titles else ""
        print(f"\n{number}. {feature.library} {feature.version}: {feature.kind} {feature.canonical}{also}")
        print(f"   [{heading}] {feature.block.phrase.plain}")


if __name__ == "__main__":
    main()
