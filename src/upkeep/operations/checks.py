"""What `upkeep.operations.doctor` looks at. Each check is a function that yields findings, and fills in its part of the
facts.

A check may raise and may hang: the doctor makes a finding of that, too.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import os
import platform
import pwd
import re
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import psutil
from packaging.requirements import Requirement

from upkeep import weights
from upkeep.catalog import Catalog, Cell, TrainedModel
from upkeep.contract import Cluster, ModelSpec, Record
from upkeep.images.images import find_client, made_reference, pinned_base
from upkeep.layout import Layout
from upkeep.machine.ask import ask
from upkeep.machine.gpus import visible_gpus
from upkeep.text import printable
from upkeep.yaml_files import read_yaml

GB = 10**9
GIB = 2**30
NETWORKED = re.compile(r"nfs|lustre|gpfs|beegfs|ceph|cifs|smb|panfs|orangefs|afs|9p|fuse\.", re.I)
EVERY_SUITE = "every suite"
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
RESULTS_GB, CACHE_GB, TMP_GB = 5, 20, 1
"""Free space below which a suite may come to an end before its time: predictions and logs; images and
wheels; scratch."""


class Finding(Record, frozen=True):
    """One thing about this machine."""

    group: str
    name: str
    state: Literal["ok", "warning", "missing"]
    found: str
    rules_out: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Nodes:
    """Nodes of a kind in a partition that takes jobs."""

    count: int
    gpus: int
    """Of each."""
    memory_gb: float


@dataclass(slots=True)
class Facts:
    """What the checks found, for what can run. Each field is one check's own."""

    runtimes: dict[str, str | None] = field(default_factory=dict)
    """Runtime -> why it does not work."""
    gpus: int = 0
    memory_gb: float | None = None
    """What a job may use, in GiB as cards count it."""
    cluster: list[Nodes] = field(default_factory=list)
    models: dict[str, str] = field(default_factory=dict)
    """Model -> what its cells lack, here and anywhere."""


Check = Callable[[Catalog, str, Facts], Iterable[Finding]]
"""Of a catalog, and of the suite whose needs are looked at."""


def ok(group: str, name: str, found: str) -> Finding:
    return Finding(group, name, "ok", found)


def warning(group: str, name: str, found: str, rules_out: str, remedy: str) -> Finding:
    return Finding(group, name, "warning", found, rules_out, remedy)


def missing(group: str, name: str, found: str, rules_out: str, remedy: str) -> Finding:
    return Finding(group, name, "missing", found, rules_out, remedy)


# ---------------------------------------------------------------- Python


def python(catalog: Catalog, suite: str, facts: Facts) -> Iterator[Finding]:
    group, version = "Python", f"{platform.python_version()} in {sys.prefix}"
    anew = "remove .venv; ./upkeep makes it anew"
    if (3, 11) <= sys.version_info[:2] <= (3, 13):
        facts.runtimes["process"] = None
        yield ok(group, "interpreter", version)
    else:
        facts.runtimes["process"] = f"Python {version}"
        yield missing(group, "interpreter", version, EVERY_SUITE, f"install Python 3.11, 3.12 or 3.13; {anew}")
    pins = re.findall(r"^([A-Za-z0-9][^\\\n]*?)\s*\\?$", (catalog.root / "requirements.lock").read_text(), re.M)
    locked = [pin for pin in map(Requirement, pins) if pin.marker is None or pin.marker.evaluate()]
    wrong = [pin.name for pin in locked if not pin.specifier.contains(_installed(pin.name) or "0", prereleases=True)]
    if wrong:
        found = f"{len(wrong)} of {len(locked)} not installed as locked: {', '.join(wrong[:5])}"
        yield warning(group, "packages", found, "saying which versions made a result", anew)
    else:
        yield ok(group, "packages", f"{len(locked)}, as locked")


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


# ---------------------------------------------------------------- container engines


def _container(name: Literal["docker", "podman"]) -> Check:
    def check(catalog: Catalog, suite: str, facts: Facts) -> Iterator[Finding]:
        group, what = "Container engines", f"the runtime {name}"
        facts.runtimes[name] = "it did not answer"
        client = find_client(name)
        problem = "not installed" if client is None else client.answers()
        facts.runtimes[name] = printable(problem) if problem else None
        if client is None:
            yield missing(group, name, "not installed", what, f"install {name}")
            return
        if problem:
            remedy = f"start its service, and be allowed to use it ({client.path} info)"
            yield missing(group, name, printable(problem), what, remedy)
            return
        version = (ask(client.path, "--version").out.splitlines() or ["answers"])[0]
        yield ok(group, name, f"{version} at {client.path}")
        if name == "docker":
            yield _buildkit(group, client.path, version)
        reference = pinned_base(catalog, "base")
        there = [one for one in (reference, made_reference()) if ask(client.path, "image", "inspect", one)]
        yield _base(group, f"{name}: base image", there[0] if there else None, reference)
        if there:
            # A slow start is no broken one: how long is waited for it is the doctor's to say.
            command = ("run", "--rm", "--network", "none", "--log-driver", "none", there[0], "true")
            trial = ask(client.path, *command, timeout_s=30)
            if trial:
                yield ok(group, f"{name}: a container", "runs, without network")
            else:
                facts.runtimes[name] = str(trial.problem)
                remedy = "see what the engine says: its cgroups, its storage, the rights of this user"
                yield missing(group, f"{name}: a container", str(trial.problem), what, remedy)

    return check


def _buildkit(group: str, path: str, version: str) -> Finding:
    number = re.search(r"version (\d+)", version)
    if number is not None and int(number[1]) < 23:
        return ok(group, "docker: BuildKit", "in the client")
    if buildx := ask(path, "buildx", "version"):
        return ok(group, "docker: BuildKit", buildx.out.strip())
    remedy = "install the buildx plug-in, or name an older client in UPKEEP_DOCKER"
    return missing(group, "docker: BuildKit", str(buildx.problem), "building images; those that exist run", remedy)


def _base(group: str, name: str, there: str | None, wanted: str) -> Finding:
    if there is not None:
        return ok(group, name, there)
    make = "makes one with mmdebstrap" if shutil.which("mmdebstrap") else "makes one, where mmdebstrap is installed"
    remedy = f"./upkeep setup pulls it once, or {make}"
    return warning(group, name, f"{wanted} is not on this machine", "building images without a registry", remedy)


# ---------------------------------------------------------------- Apptainer


def apptainer(catalog: Catalog, suite: str, facts: Facts) -> Iterator[Finding]:
    from upkeep.images.sif import base_at_hand, find_apptainer

    group, what = "Apptainer", "the runtime apptainer, which clusters use"
    facts.runtimes["apptainer"] = "it did not answer"
    client = find_apptainer()
    version = ask(client.path, "--version") if client is not None else None
    if client is None or version is None or not version:
        facts.runtimes["apptainer"] = problem = str(version.problem) if version is not None else "not installed"
        yield missing(group, "apptainer", problem, what, "install apptainer, or load its module")
        return
    yield ok(group, "apptainer", f"{version.out.strip()} at {client.path}")
    problem = printable(client.answers() or "")
    facts.runtimes["apptainer"] = problem or None
    if problem:
        yield missing(group, "runs a container", problem, what, "the lines below say what may be wrong")
    else:
        yield ok(group, "runs a container", "contained, without network, from a squashed file, as this user")
        if client.delegated:
            yield ok(group, "limits by cgroup", "delegated to this user")
        else:
            lost = "the kernel's own bound on the sum of a cell's memory and processes; a watchdog watches it instead"
            remedy = "a session of systemd with cgroups v2 (Delegate=yes), or leave it to SLURM"
            yield warning(group, "limits by cgroup", "not delegated to this user", lost, remedy)
    base = base_at_hand(catalog, "base")
    yield _base(group, "base image", base.reference if base else None, pinned_base(catalog, "base"))


def namespaces(catalog: Catalog, suite: str, facts: Facts) -> Iterator[Finding]:
    group = "Apptainer"
    remedy = "allow them: sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, AppArmor's restriction"
    for name, options, what in (
        ("user namespaces", ("--user", "--map-root-user"), "Apptainer and rootless Podman"),
        ("network namespaces", ("--user", "--map-root-user", "--net"), "cells without network in Apptainer"),
    ):
        answer = ask("unshare", *options, "true")
        if answer:
            yield ok(group, name, "this user may make them")
        else:
            yield missing(group, name, str(answer.problem), what, remedy)
    if os.access("/dev/fuse", os.R_OK | os.W_OK):
        squashfuse = shutil.which("squashfuse_ll") or shutil.which("squashfuse")
        yield ok(group, "mounting SIF files", f"/dev/fuse may be used{f', {squashfuse}' if squashfuse else ''}")
    else:
        lost = "quick starts: an image is unpacked at every start, and takes its size in memory or on disk"
        remedy = "chmod 666 /dev/fuse, and install squashfuse"
        yield warning(group, "mounting SIF files", "/dev/fuse is not there, or may not be used", lost, remedy)
    user, ranges = _user(), Path("/etc/subuid")
    names = {user, str(os.getuid())}
    if ranges.is_file() and any(line.partition(":")[0] in names for line in ranges.read_text().splitlines()):
        yield ok(group, "subordinate ids", f"/etc/subuid has a range for {user}")
    elif os.getuid():
        remedy = f"usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}"
        found, lost = f"/etc/subuid has none for {user}", "rootless Podman; Apptainer does without"
        yield warning(group, "subordinate ids", found, lost, remedy)


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


# ---------------------------------------------------------------- SLURM


def slurm(catalog: Catalog, suite: str, facts: Facts) -> Iterator[Finding]:
    group, what = "SLURM", "running as jobs of a cluster (profiles/slurm)"
    absent = [name for name in ("sbatch", "squeue", "sinfo", "scontrol", "scancel") if shutil.which(name) is None]
    if absent:
        found = f"not on the PATH: {', '.join(absent)}"
        yield missing(group, "commands", found, what, "run on a machine that submits jobs (a login node)")
        return
    yield ok(group, "commands", str(shutil.which("sbatch")))
    listed = ask("sinfo", "--noheader", "--format", "%R|%a|%l|%D|%T|%c|%m|%G")
    if not listed:
        remedy = "see that slurmctld runs and that slurm.conf names it (scontrol ping)"
        yield missing(group, "controller", str(listed.problem), what, remedy)
        return
    config = dict(re.findall(r"^(\w+)[ \t]*=[ \t]*(\S+)", ask("scontrol", "show", "config").out, re.M))
    yield ok(group, "controller", f"answers, version {config.get('SLURM_VERSION', 'unknown')}")
    yield from _partitions(listed.out, facts)
    accounting = config.get("AccountingStorageType", "").endswith("slurmdbd")
    without = "none: states of jobs are asked of squeue, as the profile does"
    yield ok(group, "accounting", "with a database (sacct)" if accounting else without)
    preempts = config.get("PreemptType", "preempt/none") != "preempt/none"
    yield ok(group, "preemption", config.get("PreemptMode", "unknown") if preempts else "none")
    profile = _profile(catalog)
    default = profile.partition or "default"
    used = {"partition": default, "with GPUs": profile.gpu_partition or default, "account": profile.account}
    used |= {"QoS": profile.qos, "runtime": profile.runtime}
    yield ok(group, "the profile takes", ", ".join(f"{name} {value or 'default'}" for name, value in used.items()))
    known = sorted({line.partition("|")[0] for line in listed.out.splitlines()})
    for name in sorted({profile.partition, profile.gpu_partition} - {None, *known}, key=str):
        remedy = f"name one of {', '.join(known)} in profiles/slurm/cluster.yaml"
        yield missing(group, "the profile takes", f"no partition {name!r}", what, remedy)


class _Profile(Record, frozen=True):
    cluster: Cluster


def _profile(catalog: Catalog) -> Cluster:
    path = catalog.root / "profiles" / "slurm" / "cluster.yaml"
    return read_yaml(path, _Profile).cluster if path.is_file() else Cluster()


def _partitions(text: str, facts: Facts) -> Iterator[Finding]:
    """A finding for each partition, out of sinfo's lines: one for each kind and state of its nodes."""
    group = "SLURM"
    partitions: dict[str, list[list[str]]] = {}
    for line in text.splitlines():
        row = line.strip().split("|")
        if len(row) == 8 and row[3].isdigit():
            partitions.setdefault(row[0], []).append(row)
    if not partitions:
        yield missing(group, "partitions", "sinfo lists none", "running as jobs of a cluster", "see sinfo")
    kinds: Counter[tuple[str, int, float]] = Counter()
    for name, rows in partitions.items():
        nodes = up = gpus = 0
        for _, available, _, count, state, _, memory, gres in rows:
            each = sum(int(n) for n in re.findall(r"gpu(?::[^:,()]+)?:(\d+)", gres))
            nodes, gpus = nodes + int(count), gpus + int(count) * each
            if available == "up" and not re.search(r"down|drain|fail|unk|maint|\*", state):
                up += int(count)
                kinds[name, each, int(re.sub(r"\D", "", memory) or 0) / 1024] += int(count)
        found = f"{up} of {nodes} nodes take jobs, {gpus} GPUs, time limit {rows[0][2]}"
        if up:
            yield ok(group, f"partition {name}", found)
        else:
            yield warning(group, f"partition {name}", found, f"jobs in {name}", "see sinfo --list-reasons")
    facts.cluster = [Nodes(count, each, memory) for (_, each, memory), count in kinds.items()]


# ---------------------------------------------------------------- GPUs


def gpus(catalog: Catalog, suite: str, facts: Facts) -> Iterator[Finding]:
    group, what = "GPUs", "models with `gpus` above 0 on this machine; those on the CPU run"
    fields = "index,name,memory.total,driver_version,mig.mode.current"
    answer = ask("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits")
    if not answer:
        there = shutil.which("nvidia-smi") is not None
        remedy = "see to the driver (nvidia-smi)" if there else "a machine with an NVIDIA GPU and its driver"
        yield missing(group, "nvidia-smi", str(answer.problem), what, remedy)
        return
    rows = [[part.strip() for part in line.split(",")] for line in answer.out.splitlines()]
    rows = [row for row in rows if len(row) == 5 and row[0].isdigit()]
    if not rows:
        found = (answer.out.strip().splitlines() or ["lists none"])[0][:200]
        yield missing(group, "nvidia-smi", found, what, "see to the driver (nvidia-smi)")
        return
    cuda = re.search(r"CUDA Version:\s*([\d.]+)", ask("nvidia-smi").out)
    yield ok(group, "driver", f"{rows[0][3]}{f', CUDA {cuda[1]}' if cuda else ''}")
    for index, name, memory, _, mig in rows:
        size = f"{int(memory) / 1024:,.0f} GiB" if memory.isdigit() else memory
        shared = ", MIG on: jobs get its parts" if mig.lower() == "enabled" else ""
        yield ok(group, f"GPU {index}", f"{name}, {size}{shared}")
    facts.gpus = len(rows)
    if (chosen := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        facts.gpus = visible_gpus()
        found = f"{chosen!r}: {facts.gpus} of them"
        if facts.gpus:
            yield ok(group, "visible", found)
        else:
            yield warning(group, "visible", found, what, "unset CUDA_VISIBLE_DEVICES")


# ---------------------------------------------------------------- memory, processors, limits


def machine(catalog: Catalog, suite: str, facts: Facts) -> Iterator[Finding]:
    group, limits, memory = "Machine", cgroup(), psutil.virtual_memory()
    bound = min(memory.total, limits.get("memory.max", memory.total))
    facts.memory_gb = bound / GIB * 1.05  # a machine of 16 GiB shows somewhat less, and is meant by `memory_gb: 16`
    text = f"{memory.total / GIB:,.1f} GiB, {memory.available / GIB:,.1f} free"
    if bound < memory.total:
        text += f"; this process may use {bound / GIB:,.1f} GiB (cgroup)"
        yield warning(group, "memory", text, "cells that ask for more", "ask your batch system for more")
    else:
        yield ok(group, "memory", text)
    cores = os.cpu_count() or 1
    mine = min(len(os.sched_getaffinity(0)), limits.get("cpu.max", cores))
    yield ok(group, "processors", f"{cores}" if mine >= cores else f"{cores}, of which this process may use {mine:g}")
    if (pids := limits.get("pids.max")) is not None:
        found = f"{pids:,.0f} at most (cgroup)"
        remedy = "raise pids.max of this session"
        yield (
            ok(group, "processes", found)
            if pids >= 1024
            else warning(group, "processes", found, "several cells at a time", remedy)
        )
    shm = shutil.disk_usage("/dev/shm").total if Path("/dev/shm").is_dir() else 0
    remedy = "make it larger (--shm-size, where this is a container)"
    what = "vLLM over several GPUs as a plain process"
    found = f"{shm / GIB:,.1f} GiB"
    yield ok(group, "/dev/shm", found) if shm >= GIB else warning(group, "/dev/shm", found, what, remedy)
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY or files >= 1024:
        yield ok(group, "open files", "no limit" if files == resource.RLIM_INFINITY else f"{files:,}")
    else:
        yield warning(group, "open files", f"{files:,}", "many jobs at a time", "ulimit -n 4096")
    size, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if size != resource.RLIM_INFINITY:
        yield warning(group, "size of a file", f"{size:,} bytes", "images and weights", "ulimit -f unlimited")
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    if time.time() < (catalog.root / "requirements.lock").stat().st_mtime - 60:
        what, remedy = "knowing what is newer: jobs run again, or not", "set it (timedatectl set-ntp true)"
        yield warning(group, "clock", f"{shown}, before this copy of the suite was made", what, remedy)
    else:
        yield ok(group, "clock", shown)


def cgroup() -> dict[str, float]:
    """Limits of this process's control groups (version 2) and of those above: memory.max in bytes, pids.max, and
    cpu.max in processors."""
    top, found = Path("/sys/fs/cgroup"), dict[str, float]()
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, _, place = line.split(":", 2)
        folder = top / place.strip("/")
        while number == "0" and folder.is_relative_to(top):
            for name in ("memory.max", "pids.max", "cpu.max"):
                file = folder / name
                words = file.read_text().split() if file.is_file() else []
                if words and words[0].isdigit():
                    value = int(words[0]) / (int(words[1]) if len(words) == 2 else 1)
                    found[name] = min(value, found.get(name, value))
            folder = folder.parent
    return found


# ---------------------------------------------------------------- disk


def _folder(name: str, place: Callable[[Catalog], Path], wanted_gb: float) -> Check:
    def check(catalog: Catalog, suite: str, facts: Facts) -> Iterator[Finding]:
        group, path = "Disk", place(catalog)
        folder = next(p for p in (path, *path.parents) if os.path.lexists(p))
        if not folder.is_dir():
            yield missing(group, name, f"{folder} is no folder", EVERY_SUITE, "move it away, or name another place")
            return
        space, kind = os.statvfs(folder), file_system(folder)
        free = space.f_bavail * space.f_frsize
        found = f"{path}: {free / GB:,.1f} GB free, {kind}{' (network)' if NETWORKED.search(kind) else ''}"
        other = "name another place (TMPDIR)" if name == "TMPDIR" else f"name another place (`{name}`)"
        if free < wanted_gb * GB:
            yield warning(group, name, found, f"what needs more; {wanted_gb:g} GB are wanted", f"make room, or {other}")
        else:
            yield ok(group, name, found)
        if space.f_files and space.f_favail < 10_000:
            found = f"{space.f_favail:,} free"
            yield warning(
                group, f"{name}: inodes", found, "new files", f"remove files, whatever their size, or {other}"
            )
        yield from _works(group, name, folder, other)

    return check


def _works(group: str, name: str, folder: Path, other: str) -> Iterator[Finding]:
    """Whether files can be written, locked and replaced in a folder, and whether its clock is this machine's."""
    try:
        with tempfile.TemporaryDirectory(prefix=".upkeep-doctor-", dir=folder) as inside:
            one, two = Path(inside) / "one", Path(inside) / "two"
            before = time.time()
            one.write_bytes(b"1" * 65536)
            written, after = one.stat().st_mtime, time.time()
            two.write_bytes(b"2")
            one.replace(two)
            replaced, locks = two.read_bytes()[:1] == b"1", _locks(two)
    except OSError as error:
        remedy = f"see to permissions, quota (quota -s) and mount options, or {other}"
        yield missing(group, f"{name}: writing", f"{folder}: {error.strerror}", EVERY_SUITE, remedy)
        return
    remedy = f"mount it with locks (NFS: without nolock; Lustre: with flock), or {other}"
    if locks or not replaced:
        found = locks or "a replaced file is read as it was"
        yield missing(group, f"{name}: locks", found, "two jobs at a time that share a folder", remedy)
    else:
        yield ok(group, f"{name}: locks", "files are written, locked and replaced as they should be")
    if (off := max(before - written, written - after)) > 2:
        found = f"{off:,.0f} s from this machine's"
        yield warning(group, f"{name}: clock", found, "knowing what is newer", "set both clocks (NTP)")


def _locks(path: Path) -> str:
    """Why locks do not work; empty where they do."""
    with path.open("rb") as first, path.open("rb") as second:
        try:
            fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return f"no lock can be had: {error.strerror}"
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return ""
    return "two hold one lock at the same time"


def file_system(path: Path) -> str:
    """The kind of file system that a path is on (`ext4`, `nfs4`)."""
    path, best, kind = path.resolve(), "", "unknown"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        mount = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), left.split()[4])
        if path.is_relative_to(mount) and len(mount) >= len(best):
            best, kind = mount, right.split()[0]
    return kind


def quota(catalog: Catalog, suite: str, facts: Facts) -> Iterator[Finding]:
    if shutil.which("quota") is None:
        return
    lines = ask("quota", "--no-wrap", "--human-readable").out.splitlines()
    for row in (line.split() for line in lines if "*" in line):
        yield warning("Disk", "quota", f"used up on {row[0]}: {' '.join(row[1:])}", "new files there", "make room")


# ---------------------------------------------------------------- what the suite needs


def models(catalog: Catalog, suite: str, facts: Facts) -> Iterator[Finding]:
    """Weights of the suite's models, at hand or not; keys of all endpoints, present or not."""
    needed: set[str] = set()
    for cell in catalog.cells(catalog.suite(suite)):
        needed.update(models_of(catalog, cell))
    keys: dict[str, list[str]] = {}
    for model in catalog.models:
        spec = catalog.model(model)
        if spec.endpoint is not None and (key := spec.endpoint.key) is not None:
            keys.setdefault(key, []).append(model)
        elif spec.source != "endpoint":
            finding = _weights(catalog, model, spec)
            if finding.state == "missing":
                facts.models[model] = f"the weights of {model}"
            if model in needed:
                yield finding
    for key, owners in keys.items():
        if os.environ.get(key):
            yield ok("Keys", key, "present")
        else:
            facts.models |= dict.fromkeys(owners, f"the key {key}")
            yield missing("Keys", key, "not in the environment", ", ".join(owners), f"export {key}=...")


def models_of(catalog: Catalog, cell: Cell) -> Iterator[str]:
    """The models whose weights or keys a cell needs, of a trained one those that it was trained from."""
    for model in catalog.asked(cell).values():
        while trained := TrainedModel.parse(model):
            model = trained.base
        yield model


def _weights(catalog: Catalog, model: str, spec: ModelSpec) -> Finding:
    group = "Weights"
    place = weights.place(catalog, model, spec)
    if Layout(catalog.results).weights_record(model).is_file() and (place is None or place.is_dir()):
        return ok(group, model, str(place) if place else "in the image")
    if local := catalog.own_weights(model) or (spec.location if spec.source == "path" else None):
        if (catalog.root / Path(local).expanduser()).is_dir():
            return ok(group, model, f"{local}; ./upkeep setup takes them in")
        remedy = "put them there, or name another folder under `models:` in your configuration"
        return missing(group, model, f"{local}: no such folder", f"the model {model}", remedy)
    if spec.source != "hub":
        return ok(group, model, "./upkeep setup makes them on the spot" if spec.source == "rule" else "in the image")
    if catalog.config.offline or os.environ.get("HF_HUB_OFFLINE") == "1":
        remedy = "fetch them where there is a network, or name their folder under `models:` in your configuration"
        return missing(group, model, "not at hand, and set to stay offline", f"the model {model}", remedy)
    size = f", about {spec.parameters_b * BYTES[spec.dtype]:,.0f} GB" if spec.parameters_b else ""
    found = f"not at hand: {spec.location}{size}"
    return warning(group, model, found, "running it without a network", f"./upkeep model fetch {model}")


# ---------------------------------------------------------------- all of them


CHECKS: tuple[tuple[str, str, Check], ...] = (
    ("Python", "packages", python),
    ("Container engines", "docker", _container("docker")),
    ("Container engines", "podman", _container("podman")),
    ("Apptainer", "apptainer", apptainer),
    ("Apptainer", "namespaces", namespaces),
    ("SLURM", "slurm", slurm),
    ("GPUs", "nvidia-smi", gpus),
    ("Machine", "limits", machine),
    ("Disk", "results", _folder("results", lambda catalog: catalog.results, RESULTS_GB)),
    ("Disk", "cache", _folder("cache", lambda catalog: catalog.cache, CACHE_GB)),
    ("Disk", "TMPDIR", _folder("TMPDIR", lambda _: Path(tempfile.gettempdir()), TMP_GB)),
    ("Disk", "quota", quota),
    ("Weights", "models", models),
)
"""(group, name, check) each."""
