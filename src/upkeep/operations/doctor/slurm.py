"""The check of a cluster's batch system, and of what the profile asks of it."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator

from upkeep.catalog import Catalog
from upkeep.contract import Cluster, Record
from upkeep.machine.ask import ask
from upkeep.operations.doctor.findings import Facts, Finding, Nodes, missing, ok, warning
from upkeep.yaml_files import read_yaml


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
