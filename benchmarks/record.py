"""The record of replies: its size, a look-up, and the replay of a long stream: `python benchmarks/record.py`.

The first table fills a record with short replies, closes it, opens it and looks replies up in random order. The second
one plays a stream as a `long_context` cell asks it: each question after all documents that have arrived. An engine that
only counts answers the first time; the second time the record does, with no engine to ask. What the record has grown to
is for the most part prompts (`upkeep.gateway.prompts`), which are kept in their parts.
"""

from __future__ import annotations

import argparse
import random
import resource
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from upkeep.cell import wire
from upkeep.contract import Sampling
from upkeep.errors import UpkeepError
from upkeep.gateway.cells import Gateway
from upkeep.gateway.record import Replies, key_of
from upkeep.gateway.upstream import SOCKET, Load

ENGINE = {"weights": "benchmark"}
READY = wire.Ready("counting", "1", 10**9, {"engine": "counting"})
SAMPLING = Sampling(max_tokens=32)
REPLY = wire.Finished(0, ids=list(range(1000, 1024)), cached=100_000)
BESIDE_BYTES = 104
"""Of an entry beside its value: its head, and its row of the index."""
WORDS = ("harbour", "captain", "ledger", "winter", "copper", "signal", "garden", "railway", "mirror", "lantern")


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


class Counting:
    """An engine that counts words and says always the same."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(folder / SOCKET))
        self.listener.listen()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self) -> None:
        connection, _ = self.listener.accept()
        wire.send(connection, READY)
        questions = wire.Question
        while True:
            try:
                question = wire.receive(connection, questions)  # type: ignore[arg-type]
            except EOFError:
                return
            if isinstance(question, wire.Step):
                value: object = [msgspec.structs.replace(REPLY, number=one.number) for one in question.requests]
            else:
                value = 1
            wire.send(connection, wire.Answer(msgspec.Raw(msgspec.msgpack.encode(value)), 0))


def stream(intervals: int, words: int) -> list[str]:
    rng = random.Random(0)
    return [" ".join(rng.choices(WORDS, k=words)) for _ in range(intervals)]


def play(replies: Path, engine: Load, documents: list[str], probes: int) -> tuple[float, int, int]:
    """Seconds, characters sent, and requests that the engine answered."""
    kept = Replies(replies, ENGINE, "benchmark")
    gateway = Gateway("reader", kept, engine)
    sent, begin = 0, time.perf_counter()
    with gateway as folder, socket.socket(socket.AF_UNIX) as cell:
        cell.connect(str(folder / SOCKET))
        wire.receive(cell, wire.Ready)
        for number in range(probes):
            seen = documents[: 1 + number * len(documents) // probes]
            wire.send(cell, wire.Chat(number, [("user", [*seen, f"Question {number}?"])]))
            wire.receive(cell, wire.Answer)
            wire.send(cell, wire.Step([wire.Generate(number, number, SAMPLING, 0)], [number - 1] if number else []))
            answer = wire.receive(cell, wire.Answer)
            assert msgspec.msgpack.decode(answer.value, type=list[wire.Finished])[0].ids == REPLY.ids
            sent += sum(map(len, seen))
    kept.close()
    return time.perf_counter() - begin, sent, gateway.tally.asked


def grown(folder: Path) -> str:
    """Millions of bytes: all of a record, logs and indices; and what of it are prompts and requests."""
    whole = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    others = {msgspec.msgpack.encode(one) for one in (REPLY, 1)}
    values = [value for _, _, value in Replies(folder, ENGINE, "benchmark").entries()]
    prompts = sum(len(value) + BESIDE_BYTES for value in values if value not in others)
    return f"{whole / 1e6:,.1f} | {prompts / 1e6:,.1f}"


def nobody(given_up: Callable[[], bool]) -> Path:
    raise UpkeepError("no engine may be asked")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replies", type=int, default=1_000_000)
    parser.add_argument("--probes", type=int, default=6630)
    parser.add_argument("--intervals", type=int, default=65)
    parser.add_argument("--words", type=int, default=1500, help="of a document")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        fill(Path(place) / "filled", arguments.replies)
        documents = stream(arguments.intervals, arguments.words)
        engine = Counting(Path(place))
        print("\n| probes | prompts, MB | how | requests asked | seconds | ratio | record, MB | prompts in it |")
        print("| ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: |")
        record = Path(place) / "record"
        taken: list[float] = []
        ways: dict[str, Load] = {"first": lambda given_up: engine.folder, "replay": nobody}
        for how, load in ways.items():
            seconds, sent, asked = play(record, load, documents, arguments.probes)
            ratio = f"{taken[0] / seconds:.1f}" if taken else ""
            taken.append(seconds)
            row = f"| {arguments.probes:,} | {sent / 1e6:,.0f} | {how} | {asked:,} | {seconds:.1f} | {ratio} |"
            print(f"{row} {grown(record)} |")
    print(f"\nPeak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")


if __name__ == "__main__":
    main()
