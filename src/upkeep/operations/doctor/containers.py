"""Checks of what runs containers: Docker, Podman, Apptainer, and the namespaces that the last two need."""

from __future__ import annotations

import os
import pwd
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from upkeep.catalog import Catalog
from upkeep.images.debian import made_reference
from upkeep.images.docker import find_client
from upkeep.images.plans import pinned_base
from upkeep.machine.ask import ask
from upkeep.operations.doctor.findings import Check, Facts, Finding, missing, ok, warning
from upkeep.text import printable


def container(name: Literal["docker", "podman"]) -> Check:
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


def apptainer(catalog: Catalog, suite: str, facts: Facts) -> Iterator[Finding]:
    from upkeep.images.apptainer import find_apptainer
    from upkeep.images.sif_bases import base_at_hand

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
