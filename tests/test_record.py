"""Claims about the record of replies: never a wrong reply, never a torn one, at most the last one lost."""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from conftest import ROOT
from upkeep.errors import UpkeepError
from upkeep.gateway.record import Replies, engines, key_of
from upkeep.integrity import Damaged

ENGINE = {"weights": "a", "code": "b"}
READY = {"name": "transformers", "version": "1"}


def key(number: int) -> bytes:
    return key_of("generate", str(number).encode())


def value(number: int) -> bytes:
    return str(number).encode() * (1 + number % 50)


def filled(folder: Path, numbers: range = range(100), parts: dict[str, str] = ENGINE) -> Path:
    """A record with some replies; its log."""
    replies = Replies(folder, parts, "m")
    replies.say_ready(READY)
    for number in numbers:
        replies.put(key(number), value(number))
    assert replies._writer is not None
    path = replies._writer.path
    replies.close()
    return path


def held(folder: Path, numbers: range = range(100), parts: dict[str, str] = ENGINE) -> set[int]:
    """Which replies are there; one that is there is right."""
    replies = Replies(folder, parts, "m")
    found = {number: replies.get(key(number)) for number in numbers}
    assert all(kept in (None, value(number)) for number, kept in found.items())
    return {number for number, kept in found.items() if kept is not None}


def repeated(record: Path) -> int:
    """How many replies were given to a request that had one."""
    entries = [key for one in engines(record) for _, key, _ in Replies(record, one.parts, one.model).entries()]
    return len(entries) - len(set(entries))


def test_what_is_kept_is_given_again_in_the_same_process_and_in_another(tmp_path: Path) -> None:
    replies = Replies(tmp_path, ENGINE, "m")
    assert replies.get(key(0)) is None
    replies.put(key(0), b"yes")
    assert replies.get(key(0)) == b"yes" and len(replies) == 1
    assert Replies(tmp_path, ENGINE, "m").get(key(0)) == b"yes"
    replies.close()
    assert replies.get(key(0)) == b"yes" and replies.get(key(1)) is None


def test_the_later_of_two_replies_counts_and_the_earlier_is_kept(tmp_path: Path) -> None:
    for said in (b"first", b"second", b"third"):
        replies = Replies(tmp_path, ENGINE, "m")
        replies.put(key(0), said)
        assert replies.get(key(0)) == said
        replies.close()
    again = Replies(tmp_path, ENGINE, "m")
    assert again.get(key(0)) == b"third"
    assert sorted(kept for _, _, kept in again.entries()) == [b"first", b"second", b"third"]


@pytest.mark.parametrize("name", ["weights", "code", "another"])
def test_another_engine_never_answers(tmp_path: Path, name: str) -> None:
    filled(tmp_path)
    assert held(tmp_path, parts=ENGINE | {name: "other"}) == set()


def test_a_key_is_of_the_kind_and_of_every_part() -> None:
    keys = [key_of("a", b"bc"), key_of("ab", b"c"), key_of("a", b"b", b"c"), key_of("a", b"bc", b""), key_of("abc")]
    assert len(set(keys)) == len(keys)


# ---------------------------------------------------------------- damage


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("suffix", [".log", ".index"])
def test_a_flipped_bit_costs_one_reply_at_most_and_never_gives_a_wrong_one(
    tmp_path: Path, suffix: str, seed: int
) -> None:
    path = filled(tmp_path).with_suffix(suffix)
    data = bytearray(path.read_bytes())
    place = random.Random(seed).randrange(len(data))
    data[place] ^= 1 << random.Random(seed).randrange(8)
    path.write_bytes(data)
    assert len(held(tmp_path)) >= 99


@pytest.mark.parametrize("suffix", [".log", ".index"])
def test_a_torn_end_costs_the_last_reply_alone(tmp_path: Path, suffix: str) -> None:
    path = filled(tmp_path).with_suffix(suffix)
    data = path.read_bytes()
    for cut in (1, 7, 20, 39):
        path.write_bytes(data[:-cut])
        assert held(tmp_path) >= set(range(99))
        path.write_bytes(data)


def test_the_index_may_be_thrown_away(tmp_path: Path) -> None:
    filled(tmp_path).with_suffix(".index").unlink()
    assert held(tmp_path) == set(range(100))


def test_an_index_of_another_log_costs_nothing(tmp_path: Path) -> None:
    one, other = filled(tmp_path), filled(tmp_path, range(100, 200))
    shutil.copyfile(one.with_suffix(".index"), other.with_suffix(".index"))
    found = held(tmp_path, range(200))
    assert found >= set(range(100)) and Replies(tmp_path, ENGINE, "m").get(key(150)) in (None, value(150))


def test_an_entry_of_another_engine_is_passed_over(tmp_path: Path) -> None:
    mine = Replies(tmp_path, ENGINE, "m").folder
    filled(tmp_path)
    foreign = filled(tmp_path, range(200, 300), {"weights": "z"})
    for path in (foreign, foreign.with_suffix(".index")):
        shutil.copyfile(path, mine / path.name)
    assert held(tmp_path, range(300)) == set(range(100))


def test_rubbish_between_entries_is_passed_over(tmp_path: Path) -> None:
    path = filled(tmp_path)
    path.with_suffix(".index").unlink()
    data = path.read_bytes()
    rubbish = random.Random(0).randbytes(3000) + b"\xf1upk" + b"\xff" * 200
    path.write_bytes(rubbish + data + rubbish)
    assert held(tmp_path) == set(range(100))


def test_which_engine_it_is_of_is_verified(tmp_path: Path) -> None:
    replies = Replies(tmp_path, ENGINE, "m")
    assert replies.ready() is None
    replies.say_ready(READY)
    assert replies.ready() == READY and [one.parts for one in engines(tmp_path)] == [ENGINE]
    path = replies.folder / "engine.json"
    path.write_bytes(path.read_bytes().replace(b'"transformers"', b'"vllm"'))
    assert replies.ready() is None  # so the engine is loaded, and says it itself
    with pytest.raises(Damaged, match=r"engine\.json"):
        engines(tmp_path)
    other = Replies(tmp_path, {"weights": "z"}, "m")
    other.say_ready(READY)
    shutil.copyfile(other.folder / "engine.json", path)
    assert replies.ready() is None
    with pytest.raises(Damaged, match="another engine"):
        engines(tmp_path)
    replies.say_ready(READY)
    assert replies.ready() == READY


@pytest.mark.parametrize("suffix", [".log", ".index"])
@pytest.mark.parametrize("kind", ["pipe", "folder", "link", "empty"])
def test_what_is_no_file_of_the_record_is_named_or_passed_over_and_waited_for_by_nobody(
    tmp_path: Path, kind: str, suffix: str
) -> None:
    filled(tmp_path, range(100, 200))
    path = filled(tmp_path).with_suffix(suffix)
    path.unlink()
    make = {
        "pipe": lambda: os.mkfifo(path),
        "folder": path.mkdir,
        "link": lambda: path.symlink_to("/dev/zero"),
        "empty": path.touch,
    }
    make[kind]()
    try:
        found = held(tmp_path, range(200))
        assert found >= set(range(100, 200)) and (found >= set(range(100)) or suffix == ".log")
    except UpkeepError as error:
        assert path.name in str(error) and error.remedy


# ---------------------------------------------------------------- several at once, and ends


def _write(folder: Path, start: int) -> None:
    replies = Replies(folder, ENGINE, "m")
    for number in range(start, start + 500):
        replies.put(key(number), value(number))
    replies.close()


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write, args=(tmp_path, 500 * n)) for n in range(4)]
    for one in writers:
        one.start()
    reader = Replies(tmp_path, ENGINE, "m")
    while any(one.is_alive() for one in writers):
        reader.refresh()
        for number in range(0, 2000, 97):
            assert reader.get(key(number)) in (None, value(number))
    for one in writers:
        one.join()
        assert one.exitcode == 0
    assert held(tmp_path, range(2000)) == set(range(2000))


def test_folders_of_two_machines_put_together_are_one_record(tmp_path: Path) -> None:
    filled(tmp_path / "a", range(100))
    filled(tmp_path / "b", range(50, 150))
    shutil.copytree(tmp_path / "b", tmp_path / "a", dirs_exist_ok=True)
    assert held(tmp_path / "a", range(150)) == set(range(150))


def test_killed_a_hundred_times_while_writing_at_most_the_last_reply_is_lost(tmp_path: Path) -> None:
    rng, told = random.Random(0), -1
    (tmp_path / "reached").touch()  # where the first is killed before it has begun
    killed = 0
    while killed < 100 or (told <= 100 and killed < 1000):  # beside other work few come far
        killed += 1
        child = os.fork()
        if not child:
            file = os.open(tmp_path / "reached", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            replies = Replies(tmp_path / "record", ENGINE, "m")
            number = told + 1
            while True:
                replies.put(key(number), value(number))
                os.pwrite(file, number.to_bytes(8, "little"), 0)
                number += 1
        time.sleep(0.01 + rng.random() * 0.03)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        reached = (tmp_path / "reached").read_bytes()
        if len(reached) == 8:
            told = max(told, int.from_bytes(reached, "little"))
    assert told > 100
    assert held(tmp_path / "record", range(told + 1)) == set(range(told + 1))


def test_without_room_nothing_is_torn_and_it_goes_on_afterwards(tmp_path: Path) -> None:
    replies = Replies(tmp_path, ENGINE, "m")
    for number in range(100):
        replies.put(key(number), value(number))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    assert replies._writer is not None
    end = replies._writer.path.stat().st_size
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (end + 30, before[1]))
        with pytest.raises((UpkeepError, OSError)):
            replies.put(key(100), value(100))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert replies._writer.path.stat().st_size == end
    replies.put(key(101), value(101))
    replies.close()
    assert held(tmp_path, range(102)) == set(range(102)) - {100}


def test_threads_are_not_what_it_is_for_but_a_reader_beside_a_writer_is_right(tmp_path: Path) -> None:
    writer = threading.Thread(target=_write, args=(tmp_path, 0))
    writer.start()
    while writer.is_alive():
        held(tmp_path, range(0, 500, 50))
    writer.join()
    assert held(tmp_path, range(500)) == set(range(500))


def test_starting_is_quick(tmp_path: Path) -> None:
    """The command line does not load it."""
    command = [sys.executable, "-X", "importtime", "-m", "upkeep", "--root", ROOT, "list", "methods"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT / "src")}, capture_output=True)
    assert done.returncode == 0 and b"upkeep.gateway" not in done.stderr and b"numpy" not in done.stderr
