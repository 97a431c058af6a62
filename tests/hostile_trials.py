"""Lets the hostile method attack a cell's host, one attack at a time, and tells what came of it.

`python hostile_trials.py ROOT RUNTIME` makes a repository of the folder ROOT (a copy of this one), then reads names of
attacks, a line each, and answers each with a line of JSON: a `Trial`. A process of its own, so that who tests need not
be who is attacked.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psutil

from host_fakes import ScriptedRuntime, write_toy
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.execution import job as supervised
from upkeep.execution.detection import detect
from upkeep.execution.supervise import run_cell
from upkeep.execution.watch import Limits
from upkeep.files import hash_file
from upkeep.integrity import verify_folder
from upkeep.jobs import Cell
from upkeep.layout import Layout

HOSTILE = Path(__file__).resolve().parent / "hostile"
HONEST = Cell("toy", "honest", "default", "none")
PROGRAM = {"search_by_a_program"}
"""Attacks of a method that is a program: `hostile/program.py`."""
TEXT = "What is to come"
LAST = f"{TEXT} a5. "
"""The last document of a stream of `toy`."""
MINUTES = 60
PROBES = 30
DATASET = (
    "{label: Toy, summary: s, paper: p, source: ours, licence: CC0, prompt: oaks_babi,"
    " equivalence: short_answer, metrics: oaks}"
)
CANARY = "UPKEEP_CANARY"


class Trial(msgspec.Struct, kw_only=True):
    """What came of one attack."""

    attack: str
    published: bool
    text: str
    """The error's text; of a published cell, what its attempts and its log say."""
    said: dict[str, str] = {}
    """Of attempts that are made together, what each said."""
    kind: str | None = None
    """The error's kind, where errors have one."""
    crash: str | None = None
    """An exception that no user could make anything of."""
    harm: list[str] = []
    """What is not as it was: files of the host, the cell that ran beside it, the next run of the same cell."""
    left: list[str] = []
    """Processes and containers that are still there."""
    seconds: float = 0.0


class Repository:
    """A copy of the suite with the hostile method, the dataset `toy`, a published cell and things to protect."""

    def __init__(self, root: Path, runtime: str, attacks: list[str]) -> None:
        os.environ["UPKEEP_RUNTIME"] = runtime
        self.root, self.name = root, runtime
        self.home = root / "home"
        self.home.mkdir()
        (self.home / "secret").write_text("host")
        with socket.create_server(("0.0.0.0", 0)) as free:
            self.listen = free.getsockname()[1]
        self.server = socket.create_server(("0.0.0.0", 0))
        self.victim = subprocess.Popen(["sleep", "3600"], env=os.environ | {CANARY: "1"})
        self._write(attacks)
        self.catalog = Catalog(root)
        write_toy(self.catalog, TEXT)
        self.layout = Layout(self.catalog.results)
        self.runtime = detect(self.catalog)
        run_cell(self.catalog, HONEST, runtime=self.runtime)
        self.before = self._state()

    def _write(self, attacks: list[str]) -> None:
        layout = Layout(self.root / "results")
        private = [
            layout.dataset("toy") / "gold.parquet",
            layout.cell(HONEST) / "predictions.jsonl",
            layout.record / "planted",
            self.home / "secret",
        ]
        planted = layout.record / "planted"
        planted.parent.mkdir(parents=True)
        planted.write_text(LAST)
        places: dict[str, Any] = {
            "isolated": self.name != "process",
            "port": self.server.getsockname()[1],
            "listen": self.listen,
            "victim": self.victim.pid,
            "private": [str(path) for path in private],
            "writable": [str(layout.cell(HONEST)), str(self.home)],
            "heartbeat": str(self.root / "heartbeat"),
            "future": LAST.strip()[::-1],
            "search": ["/"] if self.name != "process" else [str(layout.results)],
            "processes": "/proc" if self.name != "process" else str(self.home),
        }
        card = {
            "label": "Hostile",
            "papers": [],
            "summary": "s",
            "reference": "r",
            "model": False,
            "resources": {"cpus": 1, "memory_gb": 1, "pids": 64, "disk_gb": 1, "minutes": MINUTES},
        }
        variants = {name: {"attack": name} | places for name in attacks}
        programs = {name: variants.pop(name) for name in PROGRAM}
        longer = card["resources"] | {"minutes": 24 * MINUTES}
        for name, file, more in (
            ("honest", "method.py", {"variants": {"default": {"attack": None}}, "resources": longer}),
            ("hostile", "method.py", {"variants": variants}),
            ("hostile_program", "program.py", {"variants": programs, "command": ["python3", "program.py"]}),
        ):
            method = self.root / "methods" / name
            shutil.copytree(HOSTILE / "attacks", method / "attacks", ignore=shutil.ignore_patterns("__pycache__"))
            shutil.copy(HOSTILE / file, method)
            (method / "method.yaml").write_text(json.dumps(card | more))
        (self.root / "datasets" / "toy").mkdir()
        (self.root / "datasets" / "toy" / "dataset.yaml").write_text(DATASET)

    def _state(self) -> dict[str, str]:
        """What no attack may change."""
        folders = (self.home, self.layout.cell(HONEST), self.layout.dataset("toy"))
        state = {str(path): hash_file(path) for folder in folders for path in folder.rglob("*")}
        return state | {"victim": str(self.victim.poll())}

    def close(self) -> None:
        self.victim.kill()
        self.victim.wait()
        self.server.close()

    # ------------------------------------------------------------ one attack

    def trial(self, attack: str, *, stall_s: float, minutes_s: float, beside: bool) -> Trial:
        """Let it attack, with an honest cell beside it, where asked for.

        Args:
            stall_s: patience without a new line, in seconds.
            minutes_s: what the cell's MINUTES last, in seconds.
        """
        cell = Cell("toy", "hostile_program" if attack in PROGRAM else "hostile", attack, "none")
        log = self.layout.log("cells", cell)
        log = log.with_name(f"{log.stem}.container.log")
        supervised.MINUTE_S = minutes_s / MINUTES
        found = Trial(attack=attack, published=False, text="")
        clock = time.monotonic()
        with self._listened(found), self._beside(found) if beside else _nothing():
            try:
                manifest = run_cell(
                    self.catalog, cell, runtime=self.runtime, limits=Limits(stall_s=stall_s, exit_s=1.0), retries=0
                )
                found.published = True
                said = log.read_text(errors="replace")[:1000]
                found.text = f"{[a.reason for a in manifest.attempts]}\n{said}"
                verify_folder(self.layout.cell(cell))
                shutil.rmtree(self.layout.cell(cell))
            except UpkeepError as error:
                found.text, found.kind = str(error), getattr(error, "kind", None)
                if self.layout.cell(cell).exists():
                    found.harm.append("a refused cell is published")
            except BaseException as error:
                found.crash = f"{type(error).__name__}: {error}"
        if attack == "together" and log.is_file():
            told = [line.removeprefix("TOLD ") for line in log.read_text().splitlines() if line.startswith("TOLD ")]
            found.said = dict(line.split(": ", 1) for line in told)
        found.seconds = round(time.monotonic() - clock, 1)
        found.left = self._left()
        self._check(cell, found)
        return found

    def _check(self, cell: Cell, found: Trial) -> None:
        now = self._state()
        found.harm += [
            f"changed: {name}" for name in self.before.keys() | now if self.before.get(name) != now.get(name)
        ]
        supervised.MINUTE_S = 60.0
        try:
            manifest = run_cell(self.catalog, cell, force=True, runtime=ScriptedRuntime(), retries=0)
        except BaseException as error:
            found.harm.append(f"the next run: {type(error).__name__}: {error}")
            return
        if manifest.usage.calls != PROBES or self.layout.work("cells", cell).exists():
            found.harm.append("the next run is not whole")
        shutil.rmtree(self.layout.cell(cell))

    @contextmanager
    def _listened(self, found: Trial) -> Iterator[None]:
        """Knock, all the time, where a cell might listen."""
        over = threading.Event()

        def knock() -> None:
            while not over.wait(0.05):
                try:
                    socket.create_connection(("127.0.0.1", self.listen), timeout=1).close()
                except OSError:
                    continue
                found.harm.append("a cell was reached from outside")
                return

        thread = threading.Thread(target=knock)
        thread.start()
        yield
        over.set()
        thread.join()

    @contextmanager
    def _beside(self, found: Trial) -> Iterator[None]:
        expected = hash_file(self.layout.cell(HONEST) / "predictions.jsonl")

        def run() -> None:
            try:
                run_cell(self.catalog, HONEST, force=True, runtime=self.runtime, retries=0)
                if hash_file(self.layout.cell(HONEST) / "predictions.jsonl") != expected:
                    found.harm.append("the cell beside it has other predictions")
            except BaseException as error:
                found.harm.append(f"the cell beside it: {type(error).__name__}: {error}")

        thread = threading.Thread(target=run)
        thread.start()
        yield
        thread.join()
        self.before = self._state() if not found.harm else self.before

    def _left(self) -> list[str]:
        """Processes that were started for a cell of this repository, in a container or not."""
        ours = {os.getpid(), self.victim.pid}
        left = []
        for process in psutil.process_iter():
            if process.pid in ours:
                continue
            try:
                mounts = Path(f"/proc/{process.pid}/mountinfo").read_text(errors="replace")
                words = " ".join(process.cmdline())
            except (OSError, psutil.Error):
                continue
            if process.status() != psutil.STATUS_ZOMBIE and self.root.name in mounts + words:
                left.append(f"{process.pid} {words[:200]}")
        if self.name in ("docker", "podman"):
            command = [self.runtime.client.path, "ps", "--all", "--format", "{{.Names}}"]  # type: ignore[attr-defined]
            names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
            left += [name for name in names if "toy-hostile" in name]
        return left


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def main(root: Path, runtime: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    attacks = json.loads(sys.stdin.readline())
    repository = Repository(root, runtime, attacks)
    print("ready", file=answers, flush=True)
    try:
        for line in sys.stdin:
            trial = repository.trial(**json.loads(line))
            print(msgspec.json.encode(trial).decode(), file=answers, flush=True)
            for process in trial.left:
                if process.split()[0].isdigit():
                    os.kill(int(process.split()[0]), signal.SIGKILL)
    finally:
        repository.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
