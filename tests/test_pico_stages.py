"""How a stage of the suite's own small model is trained: from what, to what, and whatever happens on the way."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
import torch
from tokenizers import Tokenizer

from conftest import copy_repository
from recipe import growth, make, measured, network, optimizers, tokenizer, worlds
from recipe import inputs as inputs_of
from recipe.batches import Encoder
from recipe.lessons import Read
from recipe.network import Llama, Shape
from recipe.optimizers import Muon
from recipe.settings import Given, Stage
from recipe.stages import METHODS, STAGES, WORLDS
from recipe.teacher import Teacher
from upkeep.catalog import Catalog
from upkeep.cli import main
from upkeep.errors import UpkeepError
from upkeep.execution.fetch import fetch
from upkeep.file_locks import Held, locked

ROOT = Path(__file__).parent.parent
SHIPPED = ROOT / "models" / "pico"
BEFORE = make.TRAINED / "worlds"
"""The model that a stage goes on from."""
STEPS = 7
TINY = {"steps": STEPS, "batch_tokens": 512, "warmup": 2, "workers": 1}
KILLED = """
import os, signal, sys
from pathlib import Path
from recipe import train
inputs, folder, last, meeting = sys.argv[1:]
saw = train.Log.saw
seen = []
def dying(self, *arguments):
    seen.append(1)
    if len(seen) == int(last):
        os.kill(os.getpid(), signal.SIGKILL)
    saw(self, *arguments)
train.Log.saw = dying
train.growth.DRAWN = 30
inputs, folder = Path(inputs), Path(folder)
train.prepare(train.worlds.read(inputs / "worlds.jsonl"), train.given_of(inputs), inputs, folder)
train.work(0, f"file://{meeting}", inputs, folder)
"""


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog(ROOT)


@pytest.fixture(scope="module")
def given(catalog: Catalog) -> Given:
    tiny = msgspec.structs.replace(METHODS, **TINY, layers=5)
    return msgspec.structs.replace(inputs_of.given(catalog, tiny, [WORLDS]), checkpoint=2)


@pytest.fixture(scope="module")
def inputs(catalog: Catalog, given: Given, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a stage."""
    folder = tmp_path_factory.mktemp("inputs")
    made = [inputs_of.build_world(catalog, name, 7) for name in ("evowiki_mini", "oaks_babi_mini", "prelude_mini")]
    worlds.write(folder / "worlds.jsonl", made)
    (folder / "given.json").write_bytes(msgspec.json.encode(given))
    for name in inputs_of.METHODS:
        (folder / "methods" / name).mkdir(parents=True)
        shutil.copyfile(ROOT / "methods" / name / "method.py", folder / "methods" / name / "method.py")
    (folder / "base").mkdir()
    for name in inputs_of.BASE:
        shutil.copyfile(BEFORE / name, folder / "base" / name)
    return folder


@pytest.fixture(scope="module")
def teacher(inputs: Path, given: Given) -> Iterator[Teacher]:
    tokens = Tokenizer.from_file(str(BEFORE / "tokenizer.json"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growth, "DRAWN", 100)
        yield Teacher(worlds.read(inputs / "worlds.jsonl"), given, Encoder(tokens), inputs / "methods")


def _program(inputs: Path, folder: Path, last: int) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    meeting = folder / f"meeting-{last}"
    call = [sys.executable, "-c", KILLED, str(inputs), str(folder), str(last), str(meeting)]
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{SHIPPED}", "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    return subprocess.run(call, capture_output=True, text=True, env=environment)


def test_a_stage_gives_the_same_weights_twice_and_when_it_was_killed_at_three_moments(
    inputs: Path, tmp_path: Path
) -> None:
    whole = _program(inputs, tmp_path / "whole", STEPS + 1)
    assert whole.returncode == 0, whole.stderr[-2000:]
    for moment in (2, 4, 2):  # before any checkpoint, after one, after another
        assert _program(inputs, tmp_path / "parts", moment).returncode == -signal.SIGKILL
        (tmp_path / "parts" / f"meeting-{moment}").unlink()
    rest = _program(inputs, tmp_path / "parts", STEPS + 1)
    assert rest.returncode == 0, rest.stderr[-2000:]
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes(), name
    assert (tmp_path / "whole" / "model.safetensors").read_bytes() != (BEFORE / "model.safetensors").read_bytes()


def test_a_stage_begins_with_what_the_stage_before_could_do(teacher: Teacher) -> None:
    tokens = Tokenizer.from_file(str(BEFORE / "tokenizer.json"))
    before = Llama(Shape(tokens.get_vocab_size()))
    growth.begin(before, BEFORE, tokens)
    ids = torch.tensor([tokens.encode("<|user|>Zorbel lives in Pemburg.", add_special_tokens=False).ids])
    growth.extend(tokens, teacher, Random(0))
    assert tokens.get_vocab_size() > len(before.embed_tokens.weight)
    after = Llama(Shape(tokens.get_vocab_size(), layers=6))
    growth.begin(after, BEFORE, tokens)
    n = ids.shape[1]
    arguments = (ids, torch.arange(n)[None], torch.ones(1, 1, n, n, dtype=torch.bool).tril())
    at = (torch.zeros(n, dtype=torch.long), torch.arange(n))
    told, grown = (network(*arguments, at) for network in (before, after))
    assert torch.equal(told, grown[:, : told.shape[1]])


def test_new_pieces_of_the_vocabulary_hold_long_lines_keys_of_json_and_chinese_and_leave_the_old_ones(
    teacher: Teacher,
) -> None:
    tokens = Tokenizer.from_file(str(BEFORE / "tokenizer.json"))
    old = tokens.get_vocab()
    growth.extend(tokens, teacher, Random(0))
    new = tokens.get_vocab()
    assert {word: new[word] for word in old} == old
    added = set(new) - set(old)
    keys = {word for word in added if re.fullmatch(r'"\w+":', word)}
    assert all(len(word) == 1 or len(word) > growth.FIXED for word in added - keys) and len(added) < 1000
    assert "矛" in added and {'"entities":', '"links":'} <= keys


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"entities": ["Douklun Veasel", "the web console"], "query": "Zea sos", "n": [1, ""]}),
        'She said "Foo bar" to me. "Baz" and he went on; (see "Nov").',
        'One mark "alone, and a "closing" one.',
    ],
)
def test_what_is_quoted_has_the_pieces_of_what_is_not_and_becomes_the_same_text(text: str) -> None:
    tokens = Tokenizer.from_file(str(BEFORE / "tokenizer.json"))
    plain = tokens.encode("a Douklun", add_special_tokens=False).ids[-3:]
    assert tokens.encode('a "Douklun', add_special_tokens=False).ids[-3:] != plain
    tokenizer.quote(tokens)
    assert tokens.encode('a "Douklun', add_special_tokens=False).ids[-3:] == plain
    assert tokens.decode(tokens.encode(text, add_special_tokens=False).ids) == text


def test_stages_name_lessons_that_there_are_and_go_on_from_the_one_before(teacher: Teacher) -> None:
    assert [stage.after for stage in STAGES] == [None, *(stage.name for stage in STAGES[:-1])]
    for before, stage in pairwise(STAGES):
        assert stage.hidden == before.hidden and stage.layers >= before.layers and 0 < stage.replay < 1
    for stage in STAGES:
        assert set(stage.lessons) <= set(teacher.draws) and all(0 < floor <= 1 for floor in stage.floors.values())


def test_lessons_of_earlier_stages_come_back_as_often_as_the_stage_says(
    teacher: Teacher, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = Counter[str]()
    monkeypatch.setattr(teacher, "draws", {kind: lambda *_, kind=kind: drawn.update([kind]) for kind in teacher.draws})
    rng = Random(0)
    for _ in range(4000):
        teacher.lessons(rng, 4, 1.0)
    assert abs(drawn["worlds"] / 4000 - METHODS.replay) < 0.03
    assert set(drawn) == {"worlds", *METHODS.lessons}


def _replies(path: Path, right: str, count: int = 100, *, read: Read = "whole", skill: str = "a skill") -> Path:
    """`right`: a character an item, `+` where it is right."""
    rows: list[dict[str, Any]] = [
        {"skill": skill, "accepted": ["yes"], "outdated": [], "read": read, "form": "short", "options": None,
         "exact": True, "also": "", "marker": "", "structured": False, "reply": "yes" if one == "+" else "no"}
        for one in (right * count)[:count]
    ]  # fmt: skip
    path.write_bytes(msgspec.json.Encoder().encode_lines(rows))
    return path


@pytest.mark.parametrize(
    ("before", "after", "costly"),
    [
        pytest.param("+", "+", False, id="the same"),
        pytest.param("+" * 99 + "-", "+" * 98 + "--", False, id="one item"),
        pytest.param("+" * 90 + "-" * 10, "-" * 10 + "+" * 90, False, id="as many won as lost"),
        pytest.param("+" * 100, "+" * 94 + "-" * 6, False, id="more than a hundred items can show"),
        pytest.param("+" * 100, "+" * 80 + "-" * 20, True, id="twenty points"),
        pytest.param("+" * 90 + "-" * 10, "+" * 70 + "-" * 30, True, id="twenty of ninety"),
    ],
)
def test_a_skill_is_lost_where_the_same_items_show_more_than_two_points(
    before: str, after: str, costly: bool, tmp_path: Path
) -> None:
    files = _replies(tmp_path / "before", before), _replies(tmp_path / "after", after)
    assert bool(measured.costs(*files, ["a skill"])) is costly
    assert not measured.costs(*files, ["another skill"])


def test_a_stage_that_costs_a_skill_is_refused_with_both_figures(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skill = next(iter(WORLDS.floors))
    base, work = tmp_path / "base", tmp_path / "work"
    for folder in (base, work):
        folder.mkdir()
        for name in (*inputs_of.BASE, "training.json", "log.jsonl"):
            shutil.copyfile(BEFORE / name, folder / name)

    class Runtime:
        name = "none"

        def path_of(self, role: str, path: Path) -> str:
            return str(path)

        def run_tool(self, prepared: Any, call: Any, **given: Any) -> str:
            if call[1] == "evaluate":
                _replies(Path(call[4]), "+" if "before" in call[4] else "++-", skill=skill)
            return ""

    def write_inputs(catalog: Catalog, folder: Path, *rest: Any) -> None:
        (folder / "base").mkdir(parents=True, exist_ok=True)
        for name in ("worlds.jsonl", "given.json", "held_out.jsonl", "unseen.jsonl"):
            (folder / name).write_text("{}")

    monkeypatch.setattr(make, "write_inputs", write_inputs)
    monkeypatch.setattr(make, "SHIPPED", tmp_path / "none")
    monkeypatch.setattr(
        make.Layout, "weights", lambda self, name: tmp_path / ("i" if name == "pico-inputs" else "work")
    )
    with pytest.raises(UpkeepError) as error:
        make._trained(catalog, Runtime(), None, METHODS, [WORLDS], base)  # type: ignore[arg-type]
    assert f"{skill}: 100% before, 67% after" in str(error.value) and "replay" in str(error.value)
    line = json.loads((work / "training.json").read_text())["stages"][-1]
    assert line["stage"] == "methods" and line["before"][skill] == 1 and line["right"][skill] == 0.67
    assert set(METHODS.floors) <= set(line["below_floors"])


def test_what_another_seed_of_the_shipped_stage_reaches_stands_on_the_shipped_card(
    inputs: Path, given: Given, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert make._key(inputs) == make._key(inputs, given.stage.seed) != make._key(inputs, 1)
    shipped, work = tmp_path / "shipped", tmp_path / "work"
    monkeypatch.setattr(make, "SHIPPED", shipped)
    monkeypatch.setattr(make, "OTHERS", tmp_path / "others.json")
    record = json.loads((BEFORE / "training.json").read_text())
    right = {skill: value["right"] for skill, value in record["accuracy"].items()}
    line = {"stage": "worlds", "steps": 1, "tokens": 1, "below_floors": [], "seconds": 60, "loss": 0.5}

    def left(folder: Path, seed: int, made_of: str, accuracy: Any) -> Path:
        folder.mkdir(exist_ok=True)
        told = {"stages": [line | {"seed": seed, "data_sha256": made_of}], "accuracy": accuracy}
        (folder / "training.json").write_text(json.dumps(record | told))
        return folder

    def told() -> str:
        return (shipped / "README.md").read_text()

    def row(skill: str) -> list[str]:
        return next(row for row in told().splitlines() if row.startswith(f"| {skill} |")).split(" | ")[1:]

    make._note_other_seed(inputs, left(work, 1, make._key(inputs, 1), record["accuracy"]), [])
    assert not make.OTHERS.exists(), "no model is shipped"
    left(shipped, given.stage.seed, make._key(inputs, given.stage.seed), record["accuracy"])
    shutil.copyfile(BEFORE / "log.jsonl", shipped / "log.jsonl")
    make._note_other_seed(inputs, left(work, given.stage.seed, make._key(inputs), record["accuracy"]), [])
    assert not make.OTHERS.exists(), "it is no other seed"
    worse = {"right": right["short JSON"] - 0.06, "outdated": 0, "asked": 30}
    lacking = {skill: value for skill, value in record["accuracy"].items() if skill != "a chain of 1 hop"}
    make._note_other_seed(inputs, left(work, 1, make._key(inputs, 1), lacking | {"short JSON": worse}), [])
    assert row("short JSON")[:2] == [f"{100 * share:.0f}" for share in (right["short JSON"], worse["right"])]
    assert row("a chain of 1 hop")[1] == "", "it was not measured then"
    assert "1 differ by more than 5 points (short JSON), none of them by more than 5 points and what" in told()
    nothing = {skill: {"right": 0.0, "outdated": 0, "asked": 30} for skill in record["accuracy"]}
    make._note_other_seed(inputs, left(work, 3, make._key(inputs, 3), nothing), ["judging; and more"])
    assert "costs earlier skills more than two points: judging; and more." in told()
    assert ": a chain of 1 hop; " in told() and len(row("short JSON")) == 6
    make._write_card(shipped)
    assert len(row("short JSON")) == 6, "it stays"
    # Other weights are shipped: these seeds were of something else.
    left(shipped, 0, "another", record["accuracy"])
    make._write_card(shipped)
    assert "differ by more" not in told() and len(row("short JSON")) == 4
    make._note_other_seed(inputs, left(work, 2, make._key(inputs, 2), record["accuracy"]), [])
    assert [one["seed"] for one in json.loads(make.OTHERS.read_text())] == [1, 3]


def test_the_record_of_the_shipped_model_tells_of_itself_alone() -> None:
    """It is part of what the model is known by."""
    told = json.loads((SHIPPED / "training.json").read_text())
    assert set(told) == {"datasets", "seeds", "worlds_sha256", "machine", "accuracy", "stages"}


def test_a_stage_that_there_is_not_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["upkeep", "--root", str(ROOT), "train", "pico", "--from", "wurlds"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 1
    assert "did you mean worlds?" in capsys.readouterr().err


def test_two_trainings_do_not_write_into_one_folder(catalog: Catalog, tmp_path: Path) -> None:
    elsewhere = Catalog(ROOT, chosen={"results": str(tmp_path / "results")})
    with locked(make._inputs(elsewhere)), pytest.raises(Held, match=f"process {os.getpid()} on"):
        make.train(elsewhere, tmp_path / "made", "worlds", {})
    assert not (tmp_path / "made").exists()


def test_a_model_in_its_place_is_pinned_and_the_one_that_it_went_on_from_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = copy_repository(tmp_path)
    place, kept = root / "models" / "pico", tmp_path / "trained"
    monkeypatch.setattr(make, "TRAINED", kept)
    there = (place / "model.safetensors").read_bytes()
    make._put(Catalog(root), {"methods": place, "a later one": BEFORE}, place)
    assert (kept / "methods" / "model.safetensors").read_bytes() == there
    assert (place / "model.safetensors").read_bytes() == (BEFORE / "model.safetensors").read_bytes() != there
    fetch(Catalog(root), "pico")  # whose hash is the pinned one
    (place / "model.safetensors").write_bytes(there)
    with pytest.raises(UpkeepError, match="pinned"):
        fetch(Catalog(root), "pico")


def test_the_shipped_weights_are_of_the_last_stage_and_those_of_each_before_are_kept() -> None:
    names = [stage.name for stage in STAGES]
    assert make.stages_of(SHIPPED) == names
    assert {folder.name for folder in make.TRAINED.iterdir()} == {*names[:-1]}
    assert all(make.stages_of(make.TRAINED / name) == names[: n + 1] for n, name in enumerate(names[:-1]))


def test_an_interval_is_wilsons() -> None:
    low, high = measured.interval(0.8, 100)  # Wilson 1927; the usual worked example
    assert (round(low, 4), round(high, 4)) == (0.7112, 0.8666)
    assert measured.interval(0.0, 30)[0] == 0 and 0.1 < measured.interval(0.0, 30)[1] < 0.12


def test_a_stage_is_told_by_all_that_decides_its_weights(given: Given) -> None:
    assert msgspec.json.decode(msgspec.json.encode(given), type=Given) == given
    assert isinstance(given.stage, Stage)


def test_matrices_are_changed_as_by_torchs_muon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose products are in bfloat16: to its rounding. Ours are where the processor is quick at them."""
    monkeypatch.setattr(optimizers, "PRECISION", torch.float32)
    torch.manual_seed(0)
    shapes = [(32, 32), (96, 32), (32, 32), (32, 96)]
    ours, theirs = ([torch.nn.Parameter(torch.ones(shape)) for shape in shapes] for _ in range(2))
    one = Muon(ours, lr=0.02, weight_decay=0.05)
    other = torch.optim.Muon(theirs, lr=0.02, weight_decay=0.05)
    for _ in range(3):
        for mine, its in zip(ours, theirs, strict=True):
            mine.grad = its.grad = torch.randn(mine.shape)
        one.step()
        other.step()
    for mine, its in zip(ours, theirs, strict=True):
        assert (mine - its).abs().max() < 0.02 * (its - 1).abs().max()


def test_tokens_attend_in_blocks_as_all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "PRECISION", torch.float32)
    torch.manual_seed(0)
    llama = Llama(Shape(vocabulary=50, hidden=32, layers=2, heads=2, feed_forward=64))
    ids, positions = torch.randint(50, (2, 40)), torch.arange(40).expand(2, 40)
    mask = torch.ones(2, 1, 40, 40, dtype=torch.bool).tril() & (torch.rand(2, 1, 1, 40) < 0.8)
    mask[..., 0] = True
    found = []
    for block in (7, 40, 1000):
        monkeypatch.setattr(network, "BLOCK", block)
        llama.zero_grad()
        logits = llama(ids, positions, mask, (torch.tensor([0, 1, 1]), torch.tensor([39, 3, 25])))
        logits.square().sum().backward()
        found.append((logits.detach(), llama.embed_tokens.weight.grad))
    for ours in found[:2]:
        torch.testing.assert_close(ours, found[2], rtol=1e-2, atol=1e-3)
