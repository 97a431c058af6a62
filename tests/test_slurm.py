"""The profile for clusters on a real SLURM cluster: an ordinary user's jobs, in Apptainer, and whatever goes wrong.

`UPKEEP_CHAOS=20` has everything go wrong twenty times instead of once, which takes an hour.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from tests import cluster as clusters
from tests.cluster import ACCOUNT, ACTIVE, Cluster

from conftest import ROOT, make_smaller
from ordinary_user import OrdinaryUser, ordinary_user
from slurm_repository import DATASET, Repository

__all__ = ["ordinary_user"]

pytestmark = pytest.mark.slurm

TIMES = int(os.environ.get("UPKEEP_CHAOS", "1"))
"""How often each thing goes wrong."""
SLOW = """import time

from upkeep.cell import LLM, Answer, Method, Probe, Seen


class Slow(Method):
    async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
        time.sleep(self.parameters["seconds"])
        return Answer(f"## Answer: {probe.id}, after {len(seen.documents)} documents")
"""
LIMIT_S = 40
"""Time limit of the jobs to which things happen."""
QUICK = "slow/quick"
"""Its predictions are those of all variants of the method."""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Short and open to all, for sockets and for another user."""
    made = Path(tempfile.mkdtemp(prefix="upkeep-slurm-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster(folder: Path, ordinary_user: OrdinaryUser) -> Iterator[Cluster]:
    with clusters.running(folder / "cluster", ordinary_user.name, cpus=2) as cluster:
        yield cluster


# ---------------------------------------------------------------- a suite


@pytest.mark.apptainer
def test_suite_on_a_cluster_gives_the_bytes_of_a_local_run_and_says_where_it_ran(
    cluster: Cluster, ordinary_user: OrdinaryUser, folder: Path
) -> None:
    repository = Repository(ordinary_user, folder / "suite", cluster, "apptainer")
    make_smaller(repository.folder)
    # A model that asks for a GPU: here a GPU is what SLURM says is one, and the engine is that for the processor.
    card = yaml.safe_load((ROOT / "models/tiny/model.yaml").read_text())
    on_gpu = {"gpus": 1, "resources": {"gpu_type": "h", "constraint": "small"}}
    repository.write("models/tiny-gpu/model.yaml", card | on_gpu)
    for name, old, new in (
        ("src/upkeep/catalog.py", 'return "vllm-gpu"  #', 'return "transformers"  #'),
        ("src/upkeep/serving/transformers_engine.py", '"cuda" if spec.gpus else "cpu"', '"cpu"'),
    ):
        source = (ROOT / name).read_text()
        assert source.count(old) == 1
        repository.write(name, source.replace(old, new))
    repository.write_cluster(gpu_types={"h": "pretend"}, gpu_partition="high", partition="low")
    methods = ["closed_book/default"]
    repository.write_suite((["null", "gold"], ["none"]), (methods, ["tiny", "tiny-gpu"]))

    repository.user.run(*repository.command(), env=repository.environment)

    manifests = repository.manifests()
    assert len(manifests) == 4
    jobs = {cell: manifest["environment"]["job"] for cell, manifest in manifests.items()}
    assert len({job["id"] for job in jobs.values()}) == 4, "each batch is a job of its own"
    nodes = {job.id: job.node for job in cluster.jobs()}
    assert {job["id"]: job["node"] for job in jobs.values()}.items() <= nodes.items(), "where SLURM says that it ran"
    partitions = {cell.rpartition("/")[2]: job["partition"] for cell, job in jobs.items()}
    assert partitions == {"none": "low", "tiny": "low", "tiny-gpu": "high"}
    gpus = {cell.rpartition("/")[2]: job["gpus"] for cell, job in jobs.items()}
    assert gpus["none"] == gpus["tiny"] == [] and len(gpus["tiny-gpu"]) == 1
    for manifest in manifests.values():
        assert manifest["environment"]["runtime"] == "apptainer" and manifest["environment"]["isolated"]
        assert manifest["environment"]["digest"].startswith("sha256:")
        assert manifest["measured"]["wall_s"] > 0 < manifest["measured"]["cpu_s"]
        assert 1 < manifest["measured"]["peak_memory_mb"] < 100_000

    cells = [cell for cell in manifests if not cell.endswith("tiny-gpu")]
    local = repository.run_locally(cells, folder / "local")
    for cell, expected in local.items():
        assert repository.predictions(cell) == expected
    assert (
        repository.predictions(f"{DATASET}/closed_book/default/tiny-gpu")
        == local[f"{DATASET}/closed_book/default/tiny"]
    ), "the same weights on a GPU that is none"

    before = {cell: (manifest["identity"], repository.predictions(cell)) for cell, manifest in manifests.items()}
    jobs_before = {job.id for job in cluster.jobs()}
    runner = repository.folder / "src/upkeep/cell/runner.py"
    runner.write_text(runner.read_text() + "UNUSED = 1\n")
    repository.user.run(*repository.command(), env=repository.environment)
    after = repository.manifests()
    asking = [cell for cell in after if not cell.endswith("/none")]
    for cell, (identity, predictions) in before.items():
        assert after[cell]["identity"] != identity and repository.predictions(cell) == predictions
    for cell in asking:
        assert after[cell]["measured"]["new_replies"] == 0 and after[cell]["environment"]["job"] is None
    submitted = [job for job in cluster.jobs() if job.id not in jobs_before]
    assert len(submitted) == 2, "those that call no model; what the record answers takes no job"


@pytest.mark.apptainer
def test_suite_runs_with_accounting_and_an_account(ordinary_user: OrdinaryUser, folder: Path) -> None:
    with clusters.running(folder / "accounts", ordinary_user.name, accounting=True) as cluster:
        repository = Repository(ordinary_user, folder / "accounted", cluster, "apptainer")
        repository.write_suite((["null", "gold"], ["none"]), cells_per_job=10)
        repository.write_cluster(account="another")
        refused = repository.user.run(*repository.command(), env=repository.environment, check=False)
        assert refused.returncode and "account another appears to be invalid" in refused.stderr
        repository.write_cluster(account=ACCOUNT)
        repository.user.run(*repository.command(), env=repository.environment)
        manifests = repository.manifests()
        assert len(manifests) == 2
        assert len({m["environment"]["job"]["id"] for m in manifests.values()}) == 1, "they share a job"
        (number,) = {m["environment"]["job"]["id"] for m in manifests.values()}
        fields = "--format=Account,State"
        listed = repository.user.run(
            "sacct", "-X", "--noheader", "--parsable2", "-j", number, fields, env=repository.environment
        )
        assert listed.stdout.strip() == f"{ACCOUNT}|COMPLETED"


# ---------------------------------------------------------------- whatever goes wrong


class Chaos:
    """A suite that is run to its end, while things go wrong."""

    def __init__(self, repository: Repository, seed: int) -> None:
        self.repository, self.cluster = repository, repository.cluster
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.published: dict[Path, int] = {}
        """Manifests by the file that they were when they were first seen."""
        self.starts = 0
        self.log = repository.folder / "snakemake.log"
        self.log.touch()
        self._start()

    def _start(self) -> None:
        self.starts += 1
        with self.log.open("ab") as log:
            self.snakemake = self.repository.user.start(
                *self.repository.command(),
                env=self.repository.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def look(self) -> None:
        """Take note of what is published, and keep things going as an administrator would."""
        for path in self.repository.folder.glob("results/cells/*/slow/*/*/manifest.json"):
            with contextlib.suppress(FileNotFoundError):
                self.published.setdefault(path, path.stat().st_ino)
        self.cluster.hurry()
        self.cluster.shorten(LIMIT_S)
        if self.snakemake.poll() not in (None, 0):
            self.counts["Snakemake gave up"] += 1
            self._start()

    @property
    def ended(self) -> bool:
        return self.snakemake.poll() == 0

    def wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.ended:
            self.look()
            time.sleep(0.5)

    def until(self, condition: Callable[[], object], seconds: float = 90) -> bool:
        """Whether it came before the suite ended."""
        deadline = time.monotonic() + seconds
        while not (met := condition()) and not self.ended:
            self.wait(0.3)
            if time.monotonic() > deadline:
                active = [job for job in self.cluster.jobs() if job.state in ACTIVE]
                nodes = {node: self.cluster.node_state(node) for node in clusters.NODES}
                said = (self.cluster.folder / "logs/slurmctld").read_text()[-3000:]
                raise TimeoutError(f"{nodes}\n{active}\n{said}\n{self.log.read_text()[-2000:]}")
        return bool(met)

    def running(self) -> list[clusters.Queued]:
        return [job for job in self.cluster.jobs() if job.state == "RUNNING" and job.comment.startswith("rule_")]

    def a_job(self) -> clusters.Queued | None:
        """One that has been running for a random time; None at the end of the suite."""
        while self.until(self.running, 120):
            self.wait(self.random.uniform(0, 12))
            if running := self.running():  # it may have ended meanwhile, and the next one not begun
                return self.random.choice(running)
        return None

    # ------------------------------------------------------------ what goes wrong; whether it did

    def cancelled(self) -> bool:
        if (job := self.a_job()) is None:
            return False
        self.cluster.cancel(job.id)
        return True

    def preempted(self) -> bool:
        if (job := self.a_job()) is None:
            return False
        options = ["--partition=high", "--exclusive", f"--nodelist={job.node}", "--output=/dev/null", "--parsable"]
        environment = self.repository.environment
        place = self.repository.user.run("sbatch", *options, "--wrap=sleep 2", env=environment).stdout.strip()

        def state(number: str) -> str:
            return next((queued.state for queued in self.cluster.jobs() if queued.id == number), "")

        self.until(lambda: state(place) == "COMPLETED")
        return True

    def node_failed(self) -> bool:
        """A machine fails, or its daemon alone: then what runs there goes on until SLURM sees it again."""
        if (job := self.a_job()) is None:
            return False
        if self.random.random() < 0.5:
            self.cluster.kill_machine(job.node)
        else:
            self.cluster.kill(f"slurmd.{job.node}", signal.SIGKILL)
        self.until(lambda: self.cluster.node_state(job.node).startswith("down"), 60)
        self.wait(self.random.uniform(0, 5))
        self.cluster.start_node(job.node)
        self.until(lambda: self.cluster.node_state(job.node) in ("idle", "mixed", "allocated"), 60)
        return True

    def controller_restarted(self) -> bool:
        if self.a_job() is None:
            return False
        self.cluster.kill("slurmctld", signal.SIGTERM)
        time.sleep(self.random.uniform(0, 6))
        self.cluster.start_controller()
        return True

    def snakemake_killed(self) -> bool:
        if self.a_job() is None or self.ended:
            return False
        os.killpg(self.snakemake.pid, signal.SIGKILL)
        self.snakemake.wait()
        time.sleep(self.random.uniform(0, 5))
        self._start()
        return True


KINDS = [Chaos.cancelled, Chaos.preempted, Chaos.node_failed, Chaos.controller_restarted, Chaos.snakemake_killed]


def test_suite_is_completed_whatever_goes_wrong_and_nothing_is_done_twice(
    cluster: Cluster, ordinary_user: OrdinaryUser, folder: Path
) -> None:
    repository = Repository(ordinary_user, folder / "chaos", cluster, os.environ.get("UPKEEP_CHAOS_RUNTIME", "process"))
    # One that takes more than three time limits, and enough to last as long as things go wrong.
    long = {f"long{i}": {"seconds": s} for i, s in enumerate([0.38] * TIMES)}
    short = {f"short{i}": {"seconds": 0.06} for i in range(5 * TIMES)}
    repository.write("methods/slow/method.py", SLOW)
    repository.write(
        "methods/slow/method.yaml",
        yaml.safe_load((ROOT / "methods/null/method.yaml").read_text())
        | {"variants": {"quick": {"seconds": 0}} | long | short},
    )
    repository.write_cluster(partition="low")
    repository.write_suite((["slow"], ["none"]), cells_per_job=2)
    repository.user.run("python", "-m", "upkeep", "dataset", "build", DATASET, env=repository.environment)

    chaos = Chaos(repository, seed=11)
    plan = KINDS * TIMES
    chaos.random.shuffle(plan)
    try:
        for kind in plan:
            chaos.counts[kind.__name__.replace("_", " ")] += kind(chaos)
            print(
                f"{time.strftime('%X')} {kind.__name__}: {dict(chaos.counts)}, {len(chaos.published)} done", flush=True
            )
        chaos.until(lambda: chaos.ended, 240 + 120 * TIMES)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(chaos.snakemake.pid, signal.SIGKILL)
    chaos.look()

    manifests = repository.manifests()
    reasons = Counter(a["reason"] for m in manifests.values() for a in m["attempts"] if a["outcome"] != "complete")
    chaos.counts["time limit"] = reasons["the time limit of its job was near"]
    print(dict(chaos.counts), dict(reasons), f"Snakemake was started {chaos.starts} times", flush=True)
    assert set(manifests) == {f"{DATASET}/slow/{variant}/none" for variant in ("quick", *long, *short)}
    assert all(chaos.counts[kind.__name__.replace("_", " ")] for kind in KINDS), "the suite outlasted what went wrong"
    assert chaos.counts["time limit"] >= 2
    expected = repository.predictions(f"{DATASET}/{QUICK}/none")
    lines = [json.loads(line) for line in expected.splitlines()]
    assert len({(line["probe_id"], line["trial"]) for line in lines}) == len(lines) == 320
    for cell, manifest in manifests.items():
        assert repository.predictions(cell) == expected
        assert manifest["attempts"][-1]["outcome"] == "complete"
        # A supervisor that was killed did not get to say how far it was.
        counts = [attempt["lines"] for attempt in manifest["attempts"] if attempt["end"] is not None]
        assert [a["outcome"] for a in manifest["attempts"]].count("complete") == 1
        assert counts == sorted(counts), "nothing that was done is lost"
    assert all(path.stat().st_ino == number for path, number in chaos.published.items()), "no finished cell runs again"
    assert not [job for job in cluster.jobs() if job.state in ACTIVE], "no job is left over"
    assert chaos.counts["Snakemake gave up"] == 0


# It takes more than two time limits: 25 steps of 3 seconds, where a job ends a tenth of its time before its limit.
COUNTING = '''"""A training that takes its time."""
import time

from upkeep.cell import Method, Training


class Counting(Method):
    def train(self, training: Training) -> None:
        latest = training.checkpoints.latest
        done = (latest / "steps").read_text() if latest else ""
        for step in range(len(done.split()), 25):
            time.sleep(3)
            done += f"{step} "
            training.checkpoints.save(step, lambda folder: (folder / "steps").write_text(done))
        training.output.mkdir()
        for name, text in {"config.json": "{}", "model.safetensors": done}.items():
            (training.output / name).write_text(text)
'''


def test_a_training_goes_on_from_its_checkpoint_when_its_time_is_up(
    cluster: Cluster, ordinary_user: OrdinaryUser, folder: Path
) -> None:
    repository = Repository(ordinary_user, folder / "counting", cluster, "process")
    card = yaml.safe_load((ROOT / "methods/sft/method.yaml").read_text())
    repository.write(
        "methods/counting/method.yaml", card | {"settings": [], "variants": {"slow": {}}, "supervision": "C"}
    )
    repository.write("methods/counting/method.py", COUNTING)
    repository.write_cluster(partition="low")
    repository.write_suite((["closed_book"], ["tiny+counting.slow"]))
    place = f"results/trained/{DATASET}/counting/slow/tiny"
    made, command = repository.folder / place, [*repository.command()[:-1], f"{place}/manifest.json"]
    with repository.user.start(*command, env=repository.environment) as process:
        while process.poll() is None:
            cluster.hurry()
            cluster.shorten(LIMIT_S)
            time.sleep(0.5)
    assert process.returncode == 0
    manifest = json.loads((made / "manifest.json").read_bytes())
    reasons = [attempt["reason"] for attempt in manifest["attempts"]]
    assert reasons.count("the time limit of its job was near") >= 2, reasons
    assert manifest["attempts"][-1]["outcome"] == "complete"
    assert (made / "model/model.safetensors").read_text().split() == [str(step) for step in range(25)]
