"""Whatever a YAML file of a user's holds, it is read, or refused with one message, in little time and memory."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from conftest import ROOT
from upkeep import cli
from upkeep.contract import DatasetFamily
from upkeep.errors import UpkeepError
from upkeep.families import read_family
from upkeep.yaml_files import CARD, INPUT, MAX_DEPTH, load, read_yaml

CPU_S = 2.0
MEMORY_BYTES = 200 * 2**20

CHILD = f"""
import contextlib, io, json, resource, sys, time
from upkeep import catalog, cli, yaml_files

pages = int(open("/proc/self/statm").read().split()[0])
most = pages * resource.getpagesize() + {MEMORY_BYTES}
resource.setrlimit(resource.RLIMIT_AS, (most, most))
for path in sys.argv[1:]:
    sys.argv = ["upkeep", "validate", path]
    out, err, begin = io.StringIO(), io.StringIO(), time.process_time()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main()
        except SystemExit as end:
            code = end.code
        except BaseException as error:
            code = repr(error)[:300]
    told = [path, code, out.getvalue(), err.getvalue(), time.process_time() - begin]
    print(json.dumps(told), flush=True)
"""
"""Validates files as the command line does, within the memory that it may take above that of its start."""

Rng = random.Random
FOLDERS = (
    "methods/*/method.yaml",
    "datasets/*/dataset.yaml",
    "models/*/model.yaml",
    "papers/*/prompts/*.yaml",
    "config/suites/*.yaml",
    "config/config.yaml",
)
CARDS = sorted(path for places in FOLDERS for path in ROOT.glob(places))
TOKENS = [
    *(b"&a ", b"*a ", b"&a [*a]", b"<<: *a", b"<<: 1", b"!!python/object:os.system x", b"!!set {a}", b"!!bool x"),
    *(b"\t", b'"', b"'", b"[", b"{", b"[" * 3000, b"{a: " * 3000, b"- " * 3000, b"? ", b": ", b"|\n", b">-\n", b"#"),
    *(b"\x00", b"\x1b[31m", b"\xff\xfe", b"\xe9", b"\xef\xbb\xbf", b"\x85", b"\xe2\x80\xa8", b'"\\0"', b'"\\ud800"'),
    *(b"2024-99-99", b"2024-01-01", b"9" * 5000, b"0x" + b"f" * 5000, b"1:59" * 900, b".nan", b"-.inf", b"1.0e+999"),
    *(b"\n---\n", b"\n...\n", b"\n%TAG ! x\n", b"yes", b"~", b"=", b"<<", b"1: 2", b"? [a]\n: b", b"!!int ''", b"@"),
]  # fmt: skip


def mutated(rng: Rng) -> tuple[Path, bytes]:
    """A card of the repository, damaged, and where it lies."""
    card = rng.choice(CARDS)
    data = card.read_bytes()
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(data)) if data else 0
        end = min(len(data), at + rng.choice((1, 1, 5, 40)))
        lines = data.splitlines(keepends=True) or [b""]
        line = rng.randrange(len(lines))
        match rng.randrange(7):
            case 0:
                data = data[:at]
            case 1:
                data = data[:at] + bytes([rng.randrange(256)]) + data[end:]
            case 2:
                data = b"".join([*lines[: line + 1], *lines[line:]])
            case 3:
                data = b"".join([*lines[:line], b" " * rng.randrange(4) + lines[line], *lines[line + 1 :]])
            case 4:
                head, colon, _ = lines[line].partition(b": ")
                data = b"".join([*lines[:line], head + colon + rng.choice(TOKENS) + b"\n", *lines[line + 1 :]])
            case _:
                data = data[:at] + rng.choice(TOKENS) + data[rng.choice((at, end)) :]
    return card.relative_to(ROOT), data


def many(text: str, most: int) -> Callable[[Rng], str]:
    return lambda rng: text * rng.randrange(most // 2, most)


def laughs(rng: Rng) -> str:
    """Nested aliases, in lists, mappings or merges."""
    wide, form = rng.randrange(3, 12), rng.choice(("[{}]", "{{{}}}", "{{<<: [{}]}}"))
    lines = ["options:", "  a0: &a0 {x: 1}"]
    for n in range(1, 12):
        again = [f"k{k}: *a{n - 1}" if form == "{{{}}}" else f"*a{n - 1}" for k in range(wide)]
        lines.append(f"  a{n}: &a{n} " + form.format(", ".join(again)))
    return "\n".join(lines)


def deep_by_aliases(rng: Rng) -> str:
    levels = rng.randrange(MAX_DEPTH, 5000)
    return "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, levels))


ATTACKS: dict[str, Callable[[Rng], str | bytes]] = {
    "lists": many("[", 200_000),
    "mappings": many("{a: ", 100_000),
    "blocks": many("- ", 200_000),
    "explicit keys": many("? ", 200_000),
    "closed": lambda rng: "options: " + "[" * (n := rng.randrange(60, 100_000)) + "]" * n,
    "laughs": laughs,
    "laughs again": laughs,
    "deep by aliases": deep_by_aliases,
    "itself": lambda _: "options: &a {x: *a}",
    "itself, a list": lambda _: "options: &a [1, [*a]]",
    "itself, a merge": lambda _: "options: &a {<<: *a}",
    "itself, a key": lambda _: "options: &a {? *a : 1}",
    "no such anchor": lambda _: "label: *b",
    "two anchors": lambda _: "label: &a x\nsummary: &a y",
    "merged with no mapping": lambda rng: f"options: {{<<: {rng.choice(('1', '[1]', '~', '[[{a: 1}]]'))}}}",
    "integer": lambda rng: "label: " + "9" * rng.randrange(4301, 100_000),
    "hexadecimal": lambda rng: "label: 0x" + "f" * rng.randrange(4301, 100_000),
    "sexagesimal": lambda rng: "label: 1" + ":59" * rng.randrange(4301, 500_000),
    "float": lambda rng: "label: " + rng.choice((".nan", "-.inf", "1.0e+999", "1" * 100_000 + ".0", "1:59.0")),
    "date": lambda rng: f"label: 2024-{rng.randrange(13, 99)}-{rng.randrange(32, 99)}",
    "time": lambda _: "label: 2001-12-14t21:59:43.10-99:99",
    "tag": lambda rng: f"label: !!{rng.choice(('python/name:os.system', 'set', 'omap', 'binary', 'no'))} x",
    "tagged": lambda rng: f"label: !!{rng.choice(('int', 'bool', 'float', 'timestamp'))} ''",
    "tags": many("!" + "a" * 50, 30_000),
    "directives": lambda rng: "".join(f"%TAG !a{n}! x\n" for n in range(rng.randrange(50_000, 100_000))) + "--- a",
    "documents": many("---\na: 1\n", 100_000),
    "key twice": lambda _: "label: a\nlabel: b",
    "keys": lambda rng: rng.choice(("1", "1.5", "~", "yes", "2024-01-01", "[a]", "{a: 1}", "? [a, b]\n")) + ": x",
    "escapes": lambda rng: 'label: "a\\' + rng.choice(("0", "e[31m", "x07", "u0085", "ud800", "x80")) + '"',
    "control": lambda rng: b"label: a" + bytes([rng.choice([0, 1, 7, 8, 27, 127])]) + b"b",
    "utf-16": lambda rng: "label: x".encode(rng.choice(("utf-16", "utf-16-le", "utf-32"))),
    "latin-1": lambda _: "label: Zoé".encode("latin-1"),
    "long text": many("label: x", 250_000),
    "long value": lambda _: "label: " + "x" * 2_000_000,
    "long key": lambda _: "x" * 1_000_000 + ": 1",
    "unknown long key": lambda _: "? " + "x" * 1_000_000 + "\n: 1",
    "too large": lambda _: "# " + "x" * CARD.bytes,
    "values": many("- x\n", 400_000),
    "lines": many("\n", 2_000_000),
    "empty": lambda _: "",
}
assert len(ATTACKS) == 40


@pytest.mark.timeout(300)
def test_a_hundred_broken_cards_end_in_one_message_each_in_little_time_and_memory(tmp_path: Path) -> None:
    rng, files = Rng(0), dict[Path, bytes]()
    for name, attack in ATTACKS.items():
        path, data = tmp_path / f"attack {name}" / "dataset.yaml", attack(rng)
        files[path] = data.encode() if isinstance(data, str) else data
    for number in range(60):
        card, data = mutated(rng)
        files[tmp_path / str(number) / card] = data
    for path, data in files.items():
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
    command = [sys.executable, "-c", CHILD, *map(str, files)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    told = [json.loads(line) for line in ended.stdout.splitlines()]
    assert len(told) == len(files) == 100, f"it died at {list(files)[len(told)]}: {ended.stderr[-2000:]}"
    accepted = 0
    for path, code, out, err, seconds in told:
        assert seconds < CPU_S, path
        if code == 0:
            assert "attack" not in path and "valid" in out and not err, path
            assert load(Path(path)) == yaml.safe_load(files[Path(path)]), "it is read as YAML is"
            accepted += 1
            continue
        assert code == 1, f"{path}: {code}"
        assert err.startswith(f"upkeep: {path}") and err.count("upkeep: ") == 1 and not out
        assert "expected: " in err and "remedy: " in err and len(err) < 1500 + 2 * len(path), err
        assert err.replace("\n", "").isprintable(), err
    assert 5 < accepted < 40, "both happen: damage that matters, and change that does not"


# ---------------------------------------------------------------- what is no file, and where the limits are


@pytest.mark.timeout(20)
@pytest.mark.parametrize("what", ["a pipe", "a folder", "a device", "nowhere", "itself", "sparse", "missing"])
def test_what_is_no_small_file_is_refused_without_waiting(what: str, tmp_path: Path) -> None:
    path = tmp_path / "dataset.yaml"
    match what:
        case "a pipe":
            os.mkfifo(path)
        case "a folder":
            path.mkdir()
        case "a device":
            path.symlink_to("/dev/zero")
        case "nowhere":
            path.symlink_to(tmp_path / "gone")
        case "itself":
            path.symlink_to(path)
        case "sparse":
            with path.open("wb") as file:
                file.truncate(2**40)
    with pytest.raises(UpkeepError, match=r"dataset\.yaml: ") as error:
        read_yaml(path, DatasetFamily)
    assert error.value.expected and (error.value.found or error.value.problem == "file not found")


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link.yaml").symlink_to(ROOT / "datasets/prelude/dataset.yaml")
    assert {spec.paper for spec in read_family(tmp_path / "link.yaml").values()} == {"prelude"}


def test_every_yaml_file_of_the_repository_is_read_as_yaml_is() -> None:
    found = [
        p for folder in ("methods", "datasets", "models", "config", "papers") for p in ROOT.glob(f"{folder}/**/*.yaml")
    ]
    assert len(found) > 80
    for path in found:
        assert load(path) == yaml.safe_load(path.read_bytes()), path


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("\ufeffa: é\n", {"a": "é"}),
        ("%YAML 1.1\n---\na: 1\n", {"a": 1}),
        ("a: &x [1, 2.5, yes, ~, '2024-99-99']\nb: *x\n", {"a": (v := [1, 2.5, True, None, "2024-99-99"]), "b": v}),
        ("a: &x {k: 1}\nb: {<<: *x, l: 2}\n", {"a": {"k": 1}, "b": {"k": 1, "l": 2}}),
        ("a: !!str 12\nb: '1'\n", {"a": "12", "b": "1"}),
        ("[" * MAX_DEPTH + "]" * MAX_DEPTH, None),
        ("# nothing\n", None),
    ],
)
def test_what_is_harmless_is_read(text: str, value: object, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text, encoding="utf-8")
    assert value is None or load(tmp_path / "a.yaml") == value


def test_limits_are_what_a_file_may_take_and_not_less(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("\n".join(["- x"] * (CARD.nodes - 1)))
    assert len(load(path)) == CARD.nodes - 1
    path.write_text("\n".join(["- x"] * CARD.nodes))
    with pytest.raises(UpkeepError, match=rf"a\.yaml:{CARD.nodes}: too much in one file"):
        load(path)
    assert len(load(path, INPUT)) == CARD.nodes
    path.write_text("a: &a [1, 2, 3]\nb: [" + "*a, " * (CARD.nodes // 4) + "]")
    with pytest.raises(UpkeepError, match="with what aliases stand for"):
        load(path)


@pytest.mark.parametrize(
    "text", ["a:\n  - 1\n  - {b: 2024-02-30}", "a: 1\nb:\n  2: x", "a: 1\n\nb: *c", 'a: 1\n\nb: "\\0"']
)
def test_a_fault_is_told_with_its_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(UpkeepError, match=r"a\.yaml:3: "):
        load(tmp_path / "a.yaml")


def test_versions_and_numbers_stay_the_text_that_they_are_where_texts_are_wanted(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("pandas: {2.10: 2024-99-99, on: 012}")
    assert load(tmp_path / "a.yaml", plain=True) == {"pandas": {"2.10": "2024-99-99", "on": "012"}}


# ---------------------------------------------------------------- the other commands


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "label: 2024-99-99", "options: &a {x: *a}", laughs(Rng(0)), "label: [x"]
)
@pytest.mark.parametrize(
    "command",
    ["list datasets", "dataset build oaks_babi_mini", "plan mini", "run mini", "status mini", "logs x", "list cells"],
)
def test_a_broken_card_ends_every_command_with_one_message(
    command: str, text: str, repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    card = repository / "datasets" / "oaks_babi" / "dataset.yaml"
    card.write_text(text)
    monkeypatch.setattr(sys, "argv", ["upkeep", "--root", str(repository), *command.split()])
    with pytest.raises(SystemExit) as end:
        cli.main()
    told = capsys.readouterr().err
    assert end.value.code == 1 and told.startswith("upkeep: ") and told.count("upkeep: ") == 1
    assert f"{card}:" in told
