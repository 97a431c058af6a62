"""A SLURM cluster of two nodes on this machine: real daemons on ports of their own, all in one folder, gone at the end.

Root starts it; jobs are an ordinary user's. `python -m tests.cluster start FOLDER` and `stop FOLDER` keep one between
commands. Each node has two pretend GPUs; jobs of the partition `low` (the default) make room for those of `high` and
are put back into the queue. With accounting there are MariaDB and slurmdbd as well, and jobs need the account
`research`; without it, nothing outlives the controller's memory.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import psutil
from tests.cluster_files import SLURM_CONF, SLURMDBD_CONF, WITH_ACCOUNTING

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue")
ACCOUNTING_PROGRAMS = ("slurmdbd", "mariadbd", "mariadb-install-db")
NODES = ("n1", "n2")
ACCOUNT = "research"
ACTIVE = ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "REQUEUED")
"""States of jobs that have not ended for good."""


def missing(accounting: bool = False) -> str | None:
    """Why no cluster can be started here; None where one can."""
    programs = (*PROGRAMS, *(ACCOUNTING_PROGRAMS if accounting else ()))
    absent = [name for name in programs if shutil.which(name, path=_path()) is None]
    if absent:
        return f"no SLURM cluster can be started: {', '.join(absent)} not installed"
    return "no SLURM cluster can be started: that takes root" if os.getuid() else None


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


@dataclass(frozen=True, slots=True)
class Queued:
    """A job as `squeue` shows it."""

    id: str
    state: str
    """In full, as in `RUNNING`."""
    node: str
    name: str
    comment: str
    partition: str
    reason: str


class Cluster:
    """The daemons and what tests do to them. Use `running` for one that ends with a block."""

    def __init__(self, folder: Path, *, accounting: bool = False, cpus: int = 4) -> None:
        """Args:
        folder: made anew by `start`; short, for it holds sockets.
        cpus: of each node, as SLURM counts them.
        """
        self.folder, self.accounting, self.cpus = folder.resolve(), accounting, cpus
        self._children: list[subprocess.Popen[bytes]] = []

    @property
    def environment(self) -> dict[str, str]:
        """What a command needs to talk to this cluster; `path` comes first on its PATH."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    @property
    def path(self) -> Path:
        """Folder of an `srun` of this cluster: Snakemake's job steps do not keep SLURM_CONF, for a cluster has one."""
        return self.folder / "bin"

    # ------------------------------------------------------------ start and stop

    def start(self, user: str) -> None:
        """Start everything and wait until both nodes are idle; `user` may submit jobs.

        Raises:
            TimeoutError: a daemon does not get ready; with the end of its log.
        """
        for name in ("munge", "state", "spool", "logs", "pids", "bin"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        for path in (self.folder, *self.folder.iterdir()):
            path.chmod(0o755)
        self._configure()
        munge = self.folder / "munge"
        files = [f"--{name}-file={munge / name}" for name in ("key", "pid", "log", "seed")]
        self._daemon("munged", "--foreground", f"--socket={munge / 'socket'}", *files)
        self.wait(lambda: (munge / "socket").exists(), "munged", 20)
        if self.accounting:
            self._start_accounting(user)
        self.start_controller()
        for node in NODES:
            self.start_node(node)
        self.wait(lambda: all(self.node_state(node) == "idle" for node in NODES), "slurmctld", 60)

    def _configure(self) -> None:
        ports = _free_ports(5)
        values = {
            "folder": self.folder,
            "host": socket.gethostname(),
            "nodes": f"n[1-{len(NODES)}]",
            "cpus": self.cpus,
            "features": "Gres=gpu:pretend:2 Feature=small",
            "first": ports[0],
            "last": ports[0] + len(NODES) - 1,
            "controller": ports[2],
            "database": ports[3],
            "database_daemon": ports[4],
        }
        text = SLURM_CONF + (WITH_ACCOUNTING if self.accounting else "")
        (self.folder / "slurm.conf").write_text(text.format(**values))
        (self.folder / "slurm.conf").chmod(0o644)
        gpus = "NodeName={} Name=gpu Type=pretend File=/dev/tty[{}-{}]\n"
        lines = [gpus.format(node, 2 * i, 2 * i + 1) for i, node in enumerate(NODES)]
        (self.folder / "gres.conf").write_text("".join(lines))
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (self.folder / "slurmdbd.conf").write_text(SLURMDBD_CONF.format(**values))
        (self.folder / "slurmdbd.conf").chmod(0o600)
        (self.folder / "ports.json").write_text(json.dumps({k: values[k] for k in ("database", "database_daemon")}))
        srun = self.path / "srun"
        srun.write_text(f'#!/bin/sh\nSLURM_CONF={self.folder}/slurm.conf exec {shutil.which("srun")} "$@"\n')
        srun.chmod(0o755)
        key = self.folder / "munge" / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)

    def _start_accounting(self, user: str) -> None:
        data = self.folder / "database"
        data.mkdir()
        account = pwd.getpwnam("mysql")
        os.chown(data, account.pw_uid, account.pw_gid)
        self._run("mariadb-install-db", "--no-defaults", f"--datadir={data}", "--user=mysql", "--skip-test-db")
        first = self.folder / "first.sql"
        first.write_text(
            "CREATE DATABASE slurm;\nCREATE USER slurm@'127.0.0.1' IDENTIFIED BY 'slurm';\n"
            "GRANT ALL ON slurm.* TO slurm@'127.0.0.1';\n"
        )
        first.chmod(0o644)
        ports = json.loads((self.folder / "ports.json").read_text())
        self._daemon(
            "mariadbd",
            "--no-defaults",
            "--user=mysql",
            f"--datadir={data}",
            f"--socket={data / 'socket'}",
            f"--port={ports['database']}",
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
            f"--init-file={first}",
            "--innodb-buffer-pool-size=64M",
        )
        self.wait(lambda: _answers(ports["database"]), "mariadbd", 60)
        self._daemon("slurmdbd", "-D")
        self.wait(lambda: _answers(ports["database_daemon"]), "slurmdbd", 60)
        for words in (
            ("cluster", "upkeep"),
            ("account", ACCOUNT, "Description=tests", "Organization=tests"),
            ("user", user, f"Account={ACCOUNT}"),
        ):
            self._run("sacctmgr", "--immediate", "add", *words)

    def stop(self) -> None:
        """End all jobs and daemons, and whatever they left running, and remove the folder."""
        with contextlib.suppress(subprocess.SubprocessError):
            if waiting := [job.id for job in self.jobs() if job.state in ACTIVE]:
                self._run("scancel", "--signal=KILL", "--full", *waiting, check=False)
                self._run("scancel", *waiting, check=False)
        for name in ("slurmctld", *(f"slurmd.{node}" for node in NODES), "slurmdbd"):
            self.kill(name, signal.SIGTERM)
        self._sweep()
        for name in ("mariadbd", "munged"):
            self.kill(name, signal.SIGTERM)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _sweep(self) -> None:
        """Kill what jobs left running: what has this cluster's configuration in its environment, or its sockets."""
        mine = str(self.folder / "slurm.conf")
        for process in psutil.process_iter(["pid"]):
            with contextlib.suppress(psutil.Error):
                if process.name() == "slurmstepd":  # its name is written over its environment
                    sockets = [str(c.laddr) for c in process.net_connections(kind="unix")]
                    ours = any(name.startswith(str(self.folder)) for name in sockets)
                else:
                    environment = process.environ()
                    ours = environment.get("SLURM_CONF") == mine and "SLURM_JOB_ID" in environment
                if ours:
                    process.kill()

    # ------------------------------------------------------------ daemons

    def start_controller(self) -> None:
        self._daemon("slurmctld", "-D")
        self.wait(lambda: self._run("scontrol", "ping", check=False).returncode == 0, "slurmctld", 60)

    def start_node(self, node: str) -> None:
        (self.folder / "spool" / node).mkdir(exist_ok=True)
        self._daemon("slurmd", "-D", "-N", node, name=f"slurmd.{node}")

    def restart_controller(self) -> None:
        """As an administrator does: jobs go on meanwhile."""
        self.kill("slurmctld", signal.SIGTERM)
        self.start_controller()

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """End a daemon (`slurmctld`, `slurmd.n1`, ...) and wait for its end; jobs on its node are not touched."""
        file = self.folder / "pids" / name
        with contextlib.suppress(FileNotFoundError, psutil.NoSuchProcess):
            process = psutil.Process(int(file.read_text()))
            process.send_signal(number)
            deadline = time.monotonic() + 20
            while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                if time.monotonic() > deadline:
                    process.kill()
                time.sleep(0.05)
        self._children = [child for child in self._children if child.poll() is None]
        file.unlink(missing_ok=True)

    def kill_machine(self, node: str) -> None:
        """End everything on a node at once, as when its power fails."""
        self.kill(f"slurmd.{node}")
        place = str(self.folder / "spool" / node)
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.name() != "slurmstepd":
                    continue
                if any(str(c.laddr).startswith(place) for c in process.net_connections(kind="unix")):
                    for one in (*process.children(recursive=True), process):
                        with contextlib.suppress(psutil.NoSuchProcess):
                            one.kill()
        for left in Path(place).glob(f"{node}_*"):
            left.unlink(missing_ok=True)

    def _daemon(self, program: str, *options: str, name: str = "") -> None:
        name = name or program
        with (self.folder / "logs" / name).open("ab") as log:
            process = subprocess.Popen(
                [program, *options],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd="/",
            )
        (self.folder / "pids" / name).write_text(str(process.pid))
        self._children.append(process)

    def _environment(self) -> Mapping[str, str]:
        return {"PATH": _path(), "HOME": "/root", "LC_ALL": "C", **self.environment}

    def _run(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, env=self._environment(), capture_output=True, text=True, check=check, timeout=120)

    # ------------------------------------------------------------ looking and waiting

    def jobs(self) -> list[Queued]:
        """All jobs that the controller remembers, in order of their ids; none while it does not answer."""
        form = "%i|%T|%N|%j|%k|%P|%r"
        listed = self._run("squeue", "--all", "--states=all", "--noheader", f"--format={form}", check=False)
        jobs = [Queued(*line.split("|", 6)) for line in listed.stdout.splitlines() if line.count("|") >= 6]
        return sorted(jobs, key=lambda job: int(job.id.split("_")[0]))

    def node_state(self, node: str) -> str:
        """As `sinfo` names it (`idle`, `mixed`, `down*`, ...); empty while the controller does not answer."""
        listed = self._run("sinfo", "--noheader", "--nodes", node, "--partition=low", "--format=%T", check=False)
        return listed.stdout.strip()

    def wait(self, condition: Callable[[], object], what: str, seconds: float = 120) -> None:
        """Wait for a condition.

        Args:
            what: is waited for; the name of a daemon adds the end of its log to the message.

        Raises:
            TimeoutError: it did not come.
        """
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                log = self.folder / "logs" / what
                tail = log.read_text(errors="replace")[-3000:] if log.exists() else ""
                raise TimeoutError(f"{what}: not there in {seconds:g} s\n{tail}\n{self.jobs()}")
            time.sleep(0.2)

    def steps(self, job: str) -> list[Path]:
        """What of a job is on the nodes, whatever the controller knows of it: the sockets of its steps."""
        return list((self.folder / "spool").glob(f"*/n*_{job}.*"))

    # ------------------------------------------------------------ what happens to jobs

    def cancel(self, job: str) -> None:
        self._run("scancel", job)

    def shorten(self, seconds: int) -> None:
        """Give the jobs that have just started a time limit below SLURM's own least, which is a minute."""
        listed = self._run("squeue", "--noheader", "--states=RUNNING", "--format=%i|%S|%e", check=False)
        for line in listed.stdout.splitlines():
            number, start, end = line.split("|")
            limit = datetime.fromisoformat(start) + timedelta(seconds=seconds)
            if end != "NONE" and limit < datetime.fromisoformat(end):
                self._run("scontrol", "update", f"JobId={number}", f"EndTime={limit.isoformat()}", check=False)

    def hurry(self) -> None:
        """Let jobs that were put back into the queue start at once, where SLURM makes them wait for two minutes.

        What it waits for has to be over: a node that is to start a job beside what is left of it is drained.
        """
        for job in self.jobs():
            if job.state == "PENDING" and job.reason == "BeginTime" and not self.steps(job.id):
                self._run("scontrol", "update", f"JobId={job.id}", "StartTime=now", check=False)


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on; the first two of them follow one another."""
    while True:
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            second = stack.enter_context(socket.socket())
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            others = [stack.enter_context(socket.socket()) for _ in range(count - 2)]
            for other in others:
                other.bind(("127.0.0.1", 0))
            return [port, port + 1, *(other.getsockname()[1] for other in others)]


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def running(folder: Path, user: str, *, accounting: bool = False, cpus: int = 4) -> Iterator[Cluster]:
    """A cluster for a block of code; nothing of it is left afterwards."""
    cluster = Cluster(folder, accounting=accounting, cpus=cpus)
    try:
        cluster.start(user)
        yield cluster
    finally:
        cluster.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("what", choices=["start", "stop"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--user", default="nobody", help="who may submit jobs")
    parser.add_argument("--accounting", action="store_true")
    parser.add_argument("--cpus", type=int, default=4)
    arguments = parser.parse_args()
    cluster = Cluster(arguments.folder, accounting=arguments.accounting, cpus=arguments.cpus)
    if arguments.what == "stop":
        cluster.stop()
    elif reason := missing(arguments.accounting):
        parser.error(reason)
    else:
        cluster.start(arguments.user)
        print(f"export SLURM_CONF={cluster.environment['SLURM_CONF']}")


if __name__ == "__main__":
    main()
