"""The record of replies: its size and a look-up: `python benchmarks/record.py`.

Fills a record with short replies, closes it, opens it and looks replies up in random order. What a whole cell takes
that the record answers is shown by `replay.py`.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

import msgspec

from upkeep.cell import wire
from upkeep.gateway.record import Replies, key_of

ENGINE = {"weights": "benchmark"}
REPLY = wire.Finished(0, ids=list(range(1000, 1024)), cached=100_000)


def fill(folder: Path, entries: int) -> None:
    replies = Replies(folder, ENGINE, "benchmark")
    value = msgspec.msgpack.encode(REPLY)
    begin = time.perf_counter()
    for number in range(entries):
        replies.put(key_of("generate", number.to_bytes(8, "little")), value)
    replies.close()
    wrote = time.perf_counter() - begin
    size = sum(path.stat().st_size for path in replies.folder.iterdir())
    begin = time.perf_counter()
    opened = Replies(folder, ENGINE, "benchmark")
    opening = time.perf_counter() - begin
    order = random.Random(0).choices(range(entries), k=min(entries, 100_000))
    begin = time.perf_counter()
    for number in order:
        assert opened.get(key_of("generate", number.to_bytes(8, "little"))) == value
    look = (time.perf_counter() - begin) / len(order)
    opened.close()
    print("| replies | MB | write, us each | open, s | look-up, us |\n| ---: | ---: | ---: | ---: | ---: |")
    print(f"| {entries:,} | {size / 1e6:,.0f} | {wrote / entries * 1e6:.1f} | {opening:.2f} | {look * 1e6:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replies", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        fill(Path(place), arguments.replies)


if __name__ == "__main__":
    main()
