"""ImprintBench, Code Changelogs: what releases add is read from notes of any library, and what is asked is in them."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest
import yaml

import imprint_code
from conftest import DATA, put_dataset, spec_of
from imprint_code import __main__ as command
from imprint_code import notes, program, questions, rst, snippets, sources, steps, synthetic
from imprint_code.features import Feature
from imprint_code.pairs import distinct
from upkeep.building import annotator, checking, leaks, reading, store, tokens
from upkeep.building.assistant import Scripted
from upkeep.building.build import build_dataset
from upkeep.building.names import Names, is_held_out
from upkeep.catalog import Catalog
from upkeep.contract import Pair
from upkeep.errors import UpkeepError

REAL = DATA / "changelogs"
NAME = "imprint_code"
Script = dict[str, Callable[[Any], Any]]


def catalog(
    folder: Path, name: str, options: dict[str, Any], data: dict[str, str], faults: dict[str, str] | None = None
) -> Catalog:
    spec = spec_of(name)
    spec["options"] |= options
    spec["faults"] = spec.get("faults", {}) | (faults or {})
    put_dataset(folder, name, spec)
    (folder / "config").mkdir()
    (folder / "config" / "config.yaml").write_text(yaml.safe_dump({"data": data}))
    return Catalog(folder)


def built(folder: Path, name: str, options: dict[str, Any] | None = None, **how: Any) -> store.Dataset:
    build_dataset(catalog(folder, name, options or {}, how.pop("data", {}), **how), name, folder / "out" / name)
    return store.load(folder / "out" / name)


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def found(folder: Path, files: dict[str, str]) -> list[Feature]:
    given = {"notes": written(folder, files)}
    return imprint_code.find(sources.read(given, reading.Faults({}, Path("test")))).features


def said(features: list[Feature]) -> set[str]:
    return {f"{feature.kind} {feature.canonical}" for feature in features}


def made(seed: int = 5, **sizes: int) -> synthetic.World:
    rng = Random(seed)
    return synthetic.make(rng, Names(rng), synthetic.Sizes(**sizes))


def on_disk(folder: Path, its: synthetic.World) -> dict[str, str]:
    return {f"{NAME}.{what}": str(path) for what, path in its.write(folder).items()}


@contextlib.contextmanager
def lent(helper: Scripted) -> Iterator[Scripted]:
    yield helper


def hiring(monkeypatch: pytest.MonkeyPatch, **helpers: Scripted) -> None:
    """Let `hire` lend these programs, by the model's name."""
    monkeypatch.setattr(annotator, "hire", lambda context, model: lent(helpers[model]))


@pytest.fixture(scope="module")
def mini(tmp_path_factory: pytest.TempPathFactory) -> store.Dataset:
    return built(tmp_path_factory.mktemp("mini"), f"{NAME}_mini")


@pytest.fixture(scope="module")
def asked(mini: store.Dataset) -> list[dict[str, Any]]:
    """Probes with their gold and the texts of their evidence."""
    texts = dict(mini.documents.select("document_id", "text").iter_rows())
    rows = mini.probes.join(mini.gold, on="probe_id", maintain_order="left").to_dicts()
    return [row | {"texts": [texts[id] for id in row["evidence"]]} for row in rows]


# ---------------------------------------------------------------- notes of libraries never seen

POLARS = """# Python Polars 1.40.0

## 🏆 Highlights
- Add `pl.show_off` (#1)

## 🚀 Performance improvements
- Speed up `DataFrame.unpivot` (#2)
- Add a new fast path `fast_path` for strings (#3)

## ✨ Enhancements
- Add `DataFrame.fold_rows` (#20101)
- feat(python): Add `Expr.str.unscramble` and `Series.str.unscramble` (#20102)
- Add `strict` parameter to `pl.concat_all` (#20103, #20104)
- Support `by` in `rolling_*` functions (#20105)
- Expose `polars.selectors.by_weight` publicly ([#20106](https://github.com/pola-rs/polars/pull/20106))
- Add `POLARS_FORCE_SPEED` environment variable (#20107)
- perf: Add `DataFrame.no_feature` cache (#20108)
- Implement `Enum.union` for categories (#20109) @somebody

## 🐞 Bug fixes
- Add missing `Series.not_new` check (#20110)

## 📖 Documentation
- Add `DataFrame.only_docs` example (#20111)
"""

PYTORCH = """# Highlights
- Added `torch.highlighted`

# Backwards Incompatible Changes
## Python Frontend
- Added `torch.not_this_one` in place of `torch.older`

# New Features
## Python Frontend
- Add `torch.compiler.set_pace` to change the pace ([#131](https://github.com/pytorch/pytorch/pull/131))
- Added `weights_first` parameter to `torch.load` ([#132](https://github.com/pytorch/pytorch/pull/132))
- Introduced `TORCH_PACE` environment variable
- Introduce the `-DUSE_PACE` build flag
## torch.nn
- Added a new module `torch.nn.pace`
- A new class `torch.nn.PaceNorm` was added
- New `PaceBuffer` class for buffers

# Improvements
## torch.nn
- Added `dim` argument to `torch.nn.OldNorm`
"""

PANDAS = """.. _whatsnew_990:

What's new in 9.9.0 (May 8, 2031)
---------------------------------

{{ header }}

Enhancements
~~~~~~~~~~~~

.. versionadded:: 9.9.0

Other enhancements
^^^^^^^^^^^^^^^^^^
- Added :meth:`Series.pick_when` to pick values (:issue:`56059`)
- New method :meth:`DataFrame.fold_rows` folds rows (:issue:`56060`, :issue:`56061`)
- :func:`read_tables` now supports ``on_odd_lines`` parameter with ``engine="quick"`` (:issue:`54480`)
- :func:`pandas.api.tools.guess_it` is now available, see :ref:`the guide <guess>` (:issue:`54727`)
- Added :attr:`Index.not_a_callable` (:issue:`1`)
- :meth:`Series.old` is now faster and has a :strange:`role` in it

.. ipython:: python

    new_function = "no note, but code"

Bug fixes
~~~~~~~~~
- Added a check to :meth:`DataFrame.wrong` (:issue:`2`)
"""

KEPT = """# Changelog

Release date: 2031-03-09

### Added
- Function `brush.paint_wall` paints, function `brush.dry` waits.
- Add paint_fence and PaintBox
- Add brush.tools.sharpen, see README.md and e.g. PyTorch

### Fixed
- Add `brush.never`
"""


def test_notes_of_a_data_frame_library_in_markdown(tmp_path: Path) -> None:
    features = found(tmp_path, {"polars/1.40.0-notes.md": POLARS})
    assert said(features) == {
        "method polars.DataFrame.fold_rows",
        "method polars.Expr.str.unscramble",
        "method polars.Series.str.unscramble",
        "parameter polars.concat_all.strict",
        "function polars.selectors.by_weight",
        "method polars.Enum.union",
    }
    pulls = {feature.leaf: feature.block.pulls for feature in features}
    assert pulls["strict"] == (20103, 20104)
    assert pulls["by_weight"] == (20106,)
    assert next(f for f in features if f.leaf == "union").block.text == "Implement `Enum.union` for categories"


def test_notes_of_a_tensor_library_in_markdown(tmp_path: Path) -> None:
    assert said(found(tmp_path, {"pytorch/2.99.0-notes.md": PYTORCH})) == {
        "function torch.compiler.set_pace",
        "parameter torch.load.weights_first",
        "class torch.nn.PaceNorm",
        "class torch.nn.PaceBuffer",
    }


def test_notes_with_roles_and_directives_that_docutils_does_not_know(tmp_path: Path) -> None:
    features = found(tmp_path, {"pandas/9.9.0-notes.rst": PANDAS})
    assert said(features) == {
        "method pandas.Series.pick_when",
        "method pandas.DataFrame.fold_rows",
        "parameter pandas.read_tables.on_odd_lines",
        "function pandas.api.tools.guess_it",
    }
    text = next(f for f in features if f.leaf == "guess_it").block.text
    assert text == "`pandas.api.tools.guess_it` is now available, see the guide"
    assert next(f for f in features if f.leaf == "fold_rows").block.pulls == (56060, 56061)


def test_identifiers_that_are_not_marked_as_code_are_found_by_their_form(tmp_path: Path) -> None:
    features = found(tmp_path, {"brush/3.1-notes.md": KEPT})
    assert {"function brush.paint_fence", "class brush.PaintBox", "function brush.tools.sharpen"} <= said(features)
    assert not {"README", "PyTorch", "never"} & {feature.leaf for feature in features}


def test_a_role_does_not_break_the_sentence_it_stands_in() -> None:
    text = "A new :py:func:`~lib.fold` and :class:`lib.Box <lib.tools.Box>` as :doc:`told <page>` in :gh:`123`."
    (block,) = rst.read(text)
    assert block.phrase.plain == "A new `lib.fold` and `lib.tools.Box` as told in #123."
    assert [token.role for token in block.phrase.tokens] == ["func", "class"]
    assert block.pulls == (123,)


@pytest.mark.parametrize("end", ["(" + "1" * 5000, "(#1 " * 2000, "`lib.a`, " * 2000, "new " * 3000, "`x` and " * 7000])
def test_odd_bullets_are_read_in_no_time(end: str, tmp_path: Path) -> None:
    text = f"## New features\n- Added `lib.good`\n- New {end}\n"
    assert "lib.good" in {feature.canonical for feature in found(tmp_path, {"lib/1.0-notes.md": text})}


def test_notes_cannot_read_other_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret.rst"
    secret.write_text("New features\n============\n\n- Added `lib.secret`\n")
    reads = f".. include:: {secret}\n\n.. raw:: html\n   :file: {secret}\n"
    text = f"New features\n============\n\n{reads}\n- Added `lib.open`\n"
    assert said(found(tmp_path / "notes", {"lib/1.0-notes.rst": text})) == {"function lib.open"}


@pytest.mark.parametrize(
    ("bullet", "expected"),
    [
        ("Added ``size`` and ``shape`` parameters to `lib.a` and `lib.b`, respectively", ["lib.a.size", "lib.b.shape"]),
        ("`lib.a` now accepts the new arguments ``x`` and ``y``", ["lib.a.x", "lib.a.y"]),
        ("`lib.a` has a new argument ``half``, which halves", ["lib.a.half"]),
        ("The ``cut`` method of `lib.Box` now accepts a ``deep`` parameter", ["lib.Box.cut.deep"]),
        ("`lib.Box` now has ``cut`` and ``glue`` methods", ["lib.Box.cut", "lib.Box.glue"]),
        ("`lib.a` supports several new values for the ``mode`` argument", []),
        ("`lib.a` is faster now", []),
        ("Added a tutorial for `lib.a`", []),
        ("Added ``__matmul__`` to `lib.Box`", []),
        ("The new function `lib.c` replaces `lib.other.c`", []),
        ("`lib.d` - An alias for `lib.a`", []),
        ("New functions ``p``, ``q`` and ``r`` are available", ["lib.p", "lib.q", "lib.r"]),
        ("Added the ``LIB_DEBUG`` environment variable and ``--fast``", []),
    ],
)
def test_a_bullet_announces_exactly(bullet: str, expected: list[str], tmp_path: Path) -> None:
    known = "`lib.a` `lib.b` `lib.Box` are old."
    text = f"{known}\n\nNew features\n============\n\n- {bullet}\n"
    assert [feature.canonical for feature in found(tmp_path, {"lib/1.0-notes.rst": text})] == expected


def test_only_the_part_of_new_features_is_read(tmp_path: Path) -> None:
    parts = ["Highlights", "Deprecated features", "Performance improvements", "Bug fixes", "C API changes", "Authors"]
    text = "".join(f"## {part}\n\n- Added `lib.wrong_{n}`\n\n" for n, part in enumerate(parts))
    assert found(tmp_path, {"lib/1.0-notes.md": text}) == []


def test_a_name_is_new_once_and_not_where_earlier_notes_have_it(tmp_path: Path) -> None:
    files = {
        "lib/1.9-notes.md": "## New features\n- Added `lib.once`\n\n## Other\n- `lib.there` is slow\n",
        "lib/1.10-notes.md": "## New features\n- Added `lib.once`\n- Added `lib.there`\n- Added `lib.late`\n",
    }
    features = found(tmp_path, files)
    assert [(feature.leaf, feature.version) for feature in features] == [("once", "1.9"), ("late", "1.10")]


def test_versions_are_in_the_order_of_numbers() -> None:
    assert sorted(["1.10", "1.9", "2.0", "2.0rc1", "1.9.1", "v1.9.0"], key=sources.version_key) == [
        "1.9", "v1.9.0", "1.9.1", "1.10", "2.0rc1", "2.0",
    ]  # fmt: skip


# ---------------------------------------------------------------- the real notes


@functools.cache
def real() -> list[Feature]:
    return imprint_code.find(sources.read({"notes": REAL}, reading.Faults({}, Path("test")))).features


@pytest.mark.data
def test_real_notes_give_more_than_150_features() -> None:
    features = real()
    paths = said(features)
    assert len(paths) >= 150
    assert {
        "function scipy.stats.quantile",
        "class scipy.interpolate.AAA",
        "function scipy.sparse.linalg.is_sptriangular",
        "function scipy.optimize.elementwise.find_root",
        "distribution scipy.stats.landau",
        "method scipy.interpolate.BSpline.insert_knot",
        "parameter scipy.spatial.transform.Rotation.from_quat.scalar_first",
        "function numpy.strings.slice",
        "function numpy.bitwise_count",
        "parameter numpy.linalg.pinv.rtol",
    } <= paths
    wrong = {"scipy.optimize.linprog", "scipy.linalg.solve", "numpy.linalg.outer", "scipy.datasets", "scipy.linalg.det"}
    assert not wrong & {feature.canonical for feature in features}


def at(path: str) -> Any:
    """What an import path leads to, in the libraries that are installed here; None where there is nothing."""
    module, _, rest = path.partition(".")
    here = importlib.import_module(module)
    for part in rest.split("."):
        with contextlib.suppress(ImportError):
            importlib.import_module(module := f"{module}.{part}")
        here = getattr(here, part, None)
    return here


@pytest.mark.filterwarnings("ignore")
@pytest.mark.data
def test_nearly_all_real_features_are_in_the_installed_libraries() -> None:
    features = real()
    callables = [feature for feature in features if feature.kind != "parameter"]
    wrong = [f.canonical for f in callables if not callable(at(f.canonical))]
    wrong += [f.canonical for f in callables if (f.kind == "class") != inspect.isclass(at(f.canonical))]
    for feature in features:
        if feature.kind == "parameter" and not all(callable(at(parent)) for parent in feature.parents):
            wrong.append(feature.canonical)
    assert len(set(wrong)) <= 0.02 * len(features), wrong


@pytest.mark.data
def test_without_an_assistant_the_families_by_rule_are_built_from_real_notes(tmp_path: Path) -> None:
    data = built(tmp_path, NAME, data={f"{NAME}.notes": str(REAL)})
    assert data.card.slices["family"].keys() == {"dir_acq", "imp_rel", "imp_rel_unmerged", "bound_abs"}
    assert any("ref_res, comp_rel" in note for note in data.card.notes)
    assert data.card.statistics["articles"] >= 150
    assert data.card.inputs.keys() >= {"notes/numpy/2.3.0-notes.rst", "notes/scipy/1.16.0-notes.rst"}
    everything = set(re.findall(r"\w+", "\n".join(path.read_text() for path in REAL.glob("*/*.rst"))))
    for question in data.probes.join(data.gold.filter(pl.col("slice_family") == "bound_abs"), on="probe_id")[
        "question"
    ]:
        assert question.removesuffix("?").rpartition(".")[2] not in everything


def test_the_sample_for_readers_is_the_same_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made().write(tmp_path)
    shown = []
    for seed in ("1", "1", "2"):
        monkeypatch.setattr("sys.argv", ["x", str(tmp_path / "notes"), "--sample", "5", "--seed", seed])
        command.main()
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] != shown[2]
    assert "\n5. " in shown[0]
    assert "\n6. " not in shown[0]


# ---------------------------------------------------------------- the world


@pytest.mark.parametrize("seed", range(4))
def test_the_rules_find_all_that_a_world_adds_and_nothing_else(seed: int, tmp_path: Path) -> None:
    its = made(seed)
    given = its.write(tmp_path)
    features = imprint_code.find(sources.read(given, reading.Faults({}, Path("test")))).features
    assert said(features) == {f"{fact.kind} {fact.path}" for fact in its.new}
    assert {feature.version for feature in features} == {fact.version for fact in its.new}


def test_a_world_keeps_what_was_there_before_apart() -> None:
    its = made()
    assert its.old
    assert not {fact.path for fact in its.old} & {fact.path for fact in its.new}
    assert all(fact.version == "" for fact in its.old)


def test_a_world_is_held_out_or_not_as_its_names_are() -> None:
    for held_out in (True, False):
        rng = Random(3)
        its = synthetic.make(rng, Names(rng, held_out=held_out), synthetic.Sizes())
        words = {part for fact in its.new for part in fact.path.split(".")}
        assert {is_held_out(word) for word in words} == {held_out}


def test_mini_is_small_and_has_all_families(mini: store.Dataset) -> None:
    assert len(mini.probes) < 300
    assert len(mini.documents) <= 60
    assert mini.documents["tokens"].max() <= 128
    assert mini.card.slices["family"].keys() == {*imprint_code.FAMILIES, "imp_rel_unmerged", "comp_rel_no_import"}
    assert mini.card.stands_for == NAME
    checking.check(mini, mini.card.chunk_tokens, "mini")


def test_no_answer_of_mini_is_the_usual_one(asked: list[dict[str, Any]]) -> None:
    for form in ("label", "short"):
        answers = Counter(row["answers"][0] for row in asked if row["form"] == form)
        assert answers.most_common(1)[0][1] <= 0.6 * answers.total()


def test_answers_of_mini_can_be_read_in_their_evidence(asked: list[dict[str, Any]]) -> None:
    for row in asked:
        told = "\n".join(row["texts"])
        if row["slice_family"] == "bound_abs":
            assert row["answers"] == ["No"]
            assert row["evidence"] == []
        elif row["slice_family"] == "dir_acq":
            assert row["question"].split(" at ")[1].removesuffix("?") in told
        else:
            assert all(answer in told for answer in row["answers"])


def test_documents_are_in_the_order_of_releases(mini: store.Dataset) -> None:
    dates = mini.documents["timestamp"].to_list()
    assert None not in dates
    assert dates == sorted(dates)


def test_questions_that_are_merged_accept_every_name_and_are_asked_one_by_one_too(asked: list[dict[str, Any]]) -> None:
    merged = {row["question"]: row["answers"] for row in asked if row["slice_family"] == "imp_rel"}
    alone: dict[str, list[str]] = {}
    for row in asked:
        if row["slice_family"] == "imp_rel_unmerged":
            alone.setdefault(row["question"], []).extend(row["answers"])
    assert len(merged) == sum(row["slice_family"] == "imp_rel" for row in asked)
    several = {question: sorted(answers) for question, answers in merged.items() if len(answers) > 1}
    assert {question: sorted(answers) for question, answers in alone.items()} == several
    assert alone


def test_invented_names_are_new_and_look_like_the_others(mini: store.Dataset, asked: list[dict[str, Any]]) -> None:
    everything = "\n".join(mini.documents["text"]).lower()
    real = [row for row in asked if row["slice_family"] == "dir_acq"]
    invented = [row for row in asked if row["slice_family"] == "bound_abs"]
    assert len(invented) == len(real)
    for row in invented:
        assert row["question"].removesuffix("?").rpartition(".")[2].lower() not in everything
    lengths = [[len(row["question"]) for row in rows] for rows in (real, invented)]
    assert abs(sum(lengths[0]) - sum(lengths[1])) < 3 * len(real)


def test_masked_code_holds_no_name_and_no_import_variant_is_harder(asked: list[dict[str, Any]]) -> None:
    def about(row: dict[str, Any]) -> str:
        return str(row["question"]).partition("\n")[0]

    whole = {about(row): row for row in asked if row["slice_family"] == "comp_rel"}
    bare = [row for row in asked if row["slice_family"] == "comp_rel_no_import"]
    assert bare
    for row in [*whole.values(), *bare]:
        assert "<MASK>" in row["question"]
        assert not leaks.tells(row["question"], row["answers"])
    for row in bare:
        other = whole[about(row)]
        assert row["answers"] == other["answers"]
        assert len(row["question"]) < len(other["question"])
        assert "<MASK>" not in "".join(line for line in row["question"].splitlines() if "import" in line)


def test_training_pairs_ask_nothing_of_the_evaluation(mini: store.Dataset) -> None:
    asked = {leaks.key(question) for question in mini.probes["question"]}
    keys = [leaks.key(pair.question) for pair in mini.pairs]
    assert not asked & set(keys)
    assert len(set(keys)) == len(keys)
    assert mini.card.statistics["left out: pairs that are evaluation questions"] > 0


def test_building_twice_gives_the_same_content(tmp_path: Path, mini: store.Dataset) -> None:
    again = built(tmp_path, f"{NAME}_mini")
    assert again.card.content == mini.card.content
    assert built(tmp_path / "other", f"{NAME}_mini", {"seed": 1}).card.content != mini.card.content


# ---------------------------------------------------------------- options and inputs


def test_a_stream_a_library(tmp_path: Path) -> None:
    data = built(tmp_path, f"{NAME}_mini", {"streams": "library"})
    assert data.card.streams == 3
    joined = data.probes.join(data.gold, on="probe_id")
    assert (joined["stream"] == joined["slice_library"]).all()


def test_a_long_feature_is_split_and_all_its_pieces_are_evidence(tmp_path: Path) -> None:
    its = made()
    fact = next(fact for fact in its.new if fact.kind == "function")
    its.docs[f"{fact.library}/{fact.path}.md"] = "word " * 400
    data = built(tmp_path, NAME, {"chunk_tokens": 128}, data=on_disk(tmp_path / "in", its))
    asked = data.probes.filter(pl.col("question") == questions.there(fact.library, fact.kind, fact.path))
    gold = data.gold.filter(pl.col("probe_id") == asked["probe_id"].item())
    evidence = gold["evidence"].to_list()[0]
    assert len(evidence) > 3
    assert data.documents["tokens"].max() <= 128
    texts = dict(data.documents.select("document_id", "text").iter_rows())
    assert fact.path in "".join(texts[id] for id in evidence)
    assert gold["context"].to_list()[0] == list(dict.fromkeys(texts[id] for id in evidence))


def test_dates_come_from_the_notes_or_a_file_and_notes_without_one_follow_their_library(tmp_path: Path) -> None:
    files = {
        "a/1.0-notes.md": "# a 1.0 (2031-05-01)\n\n## New features\n- Added `a.one`\n",
        "a/2.0-notes.md": "# a\n\n## New features\n- Added `a.two`\n",
        "b/1.0-notes.rst": "b\n=\n\nReleased on 8 May 2031.\n\nNew features\n------------\n\n- Added `b.one`\n",
        "b/2.0-notes.md": "## New features\n- Added `b.two`\n",
        "dates.yaml": "b: {'2.0': 2031-04-02}\n",
    }
    data = built(tmp_path, NAME, data={f"{NAME}.notes": str(written(tmp_path / "notes", files))})
    order = [(text.split(".")[0], date) for text, date in data.documents.select("text", "timestamp").iter_rows()]
    assert order == [("b 2", "2031-04-02"), ("a 1", "2031-05-01"), ("a 2", None), ("b 1", "2031-05-08")]
    assert data.card.statistics["releases without a date"] == 1


def test_what_is_wrong_with_the_inputs_is_named_and_counted(tmp_path: Path) -> None:
    its = made()
    data = on_disk(tmp_path / "in", its)
    library = its.new[0].library
    folder = tmp_path / "in" / "notes" / library
    (folder / "7.0-notes.md").write_text(" \n")
    (folder / "8.0-notes.md").write_bytes(b"## New features\n- Added `x.\xff`\n")
    (folder / f"{its.new[0].version}-notes.txt").write_text("not read")
    twin = next(folder.glob(f"{its.new[0].version}-notes.*t"))
    (folder / f"{its.new[0].version}-notes.md").write_text(twin.read_text())
    (tmp_path / "in" / "notes" / "dates.yaml").write_text(f"{library}: {{'2.0': 05/08/2031, '3.0': ''}}\n")
    snippets = tmp_path / "in" / "snippets.jsonl"
    lines = snippets.read_text().splitlines()
    snippets.write_text("\n".join([lines[0], '{"library": 3', *lines[1:], json.dumps({"library": library}), ""]))
    card = built(tmp_path, NAME, data=data).card
    wanted = {"bad_date": 1, "broken_record": 2, "duplicate_id": 1, "empty_text": 1, "encoding": 1, "missing_date": 1}
    assert card.faults == wanted
    noted = "\n".join(card.notes)
    assert "snippets.jsonl, line 2" in noted
    assert "8.0-notes.md, byte" in noted
    with pytest.raises(UpkeepError, match="line 2"):
        built(tmp_path / "strict", NAME, data=data, faults={"broken_record": "refuse"})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[1, 2]", "Expected `object`"),
        ("a: [", "not readable as YAML"),
        ("a: {b: {c: d}}", r"Expected `str`.*\n.*<date>"),
    ],
)
def test_dates_of_another_form_are_refused(text: str, problem: str, tmp_path: Path) -> None:
    files = {"a/1.0-notes.md": "## New features\n- Added `a.one`\n", "dates.yaml": text}
    with pytest.raises(UpkeepError, match=rf"dates\.yaml.*{problem}"):
        found(tmp_path, files)


def test_notes_must_be_named_and_hold_something_new(tmp_path: Path) -> None:
    with pytest.raises(UpkeepError, match="files of your own"):
        built(tmp_path / "a", NAME)
    empty = written(tmp_path / "notes", {"a/README.md": "no notes"})
    with pytest.raises(UpkeepError, match="no release notes here"):
        built(tmp_path / "b", NAME, data={f"{NAME}.notes": str(empty)})
    dull = written(tmp_path / "dull", {"a/1.0-notes.md": "## New features\n- Everything is faster\n"})
    with pytest.raises(UpkeepError, match="no new feature"):
        built(tmp_path / "c", NAME, data={f"{NAME}.notes": str(dull)})


# ---------------------------------------------------------------- the assistant


def test_the_same_world_from_files_with_an_assistant_gives_the_same_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    its = made()
    hiring(monkeypatch, helper=Scripted(program.script(its)))
    data = built(tmp_path, NAME, {"assistant": "helper", "pairs": 4}, data=on_disk(tmp_path / "in", its))
    assert data.card.slices["family"].keys() >= set(imprint_code.FAMILIES)
    assert data.card.statistics["asked: imprint_code.canonical"] == 3 * len(its.new)
    assert data.card.statistics["asked: imprint_code.novel"] == 5 * len(its.new)
    assert data.card.statistics["features with a pull request"] > 0
    assert data.card.statistics["left out: snippet: defines the name itself"] > 0


def test_judges_can_reject_and_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    its = made()
    functions = [fact.path for fact in its.new if fact.kind == "function"]
    rejected, wavering, moved, stale, astray = functions[:5]
    script: Script = dict(program.script(its))
    calls: Counter[str] = Counter()

    def canonical(given: steps.About) -> steps.Verdict:
        calls[given.path] += 1
        paths = {moved: f"{given.library}.{moved.rpartition('.')[2]}", astray: f"{given.library}.another"}
        new = given.path != rejected and not (given.path == wavering and calls[given.path] == 2)
        return steps.Verdict(new, paths.get(given.path, given.path), given.kind)

    script[steps.CANONICAL.name] = canonical
    script[steps.NOVEL.name] = lambda given: steps.Novelty(given.path != stale)
    for step in (steps.DESCRIBE, steps.ASK, steps.PAIRS):
        old = script[step.name]
        script[step.name] = lambda given, old=old: None if given.path not in functions else old(given)
    hiring(monkeypatch, helper=Scripted(script))
    data = built(tmp_path, NAME, {"assistant": "helper"}, data=on_disk(tmp_path / "in", its))
    texts = "\n".join(data.probes["question"])
    library = moved.partition(".")[0]
    assert f"at {library}.{moved.rpartition('.')[2]}?" in texts
    for path in (rejected, wavering, stale, astray):
        assert f"at {path}?" not in texts
    assert data.card.statistics["left out: judge 1"] == 3
    assert data.card.statistics["left out: judge 2"] == 1
    assert data.card.statistics["left out: no description"] > 0


@pytest.mark.parametrize(
    ("step", "reply", "reason"),
    [
        (steps.AUDIT, steps.Audit(True, False), "snippet: audit"),
        (steps.QUALITY, steps.Quality(True, True, False), "snippet: quality"),
        (steps.VALIDATE, steps.Faithful(True, True, True), "snippet: validator"),
        (steps.VALIDATE, None, "snippet: validator"),
        (steps.ASK, None, "snippet: no question"),
    ],
)
def test_every_judge_of_snippets_can_reject(
    step: Any, reply: Any, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    its = made(libraries=1, releases=1)
    hiring(monkeypatch, helper=Scripted(dict(program.script(its)) | {step.name: lambda given: reply}))
    data = built(tmp_path, NAME, {"assistant": "helper"}, data=on_disk(tmp_path / "in", its))
    assert "comp_rel" not in data.card.slices["family"]
    assert data.card.statistics[f"left out: {reason}"] > 0


def test_a_question_that_tells_its_answer_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    its = made(libraries=1, releases=1)
    tell = {
        steps.DESCRIBE.name: lambda given: steps.Description(f"is {given.path.rpartition('.')[2]}"),
        steps.ASK.name: lambda given: steps.Question(f"What is {given.path.rpartition('.')[2]}?"),
    }
    hiring(monkeypatch, helper=Scripted(dict(program.script(its)) | tell))
    data = built(tmp_path, NAME, {"assistant": "helper"}, data=on_disk(tmp_path / "in", its))
    assert not {"ref_res", "comp_rel"} & data.card.slices["family"].keys()
    assert data.card.statistics["left out: answer in question"] > 0


def test_the_golden_subset_is_what_the_base_model_never_and_the_solver_always_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    its = made(libraries=1, releases=1)
    by_question = {f"{fact.does} in this code?": fact for fact in its.new}

    def answer(text: str) -> synthetic.Fact:
        return next(fact for end, fact in by_question.items() if end in text)

    known, hard = sorted(fact.path for fact in its.new if fact.kind == "function")[:2]
    tries: Counter[str] = Counter()

    def base(given: steps.Trial) -> str:
        fact = answer(given.question)
        tries[fact.path] += 1
        return f"`{fact.path}()`" if fact.path == known and tries[fact.path] == 8 else "sorted"

    def solver(given: steps.Trial) -> str:
        fact = answer(given.question)
        return "no idea" if fact.path == hard else fact.path

    hiring(
        monkeypatch,
        helper=Scripted(program.script(its)),
        base=Scripted({steps.ATTEMPT.name: base}),
        solver=Scripted({steps.ATTEMPT.name: solver}),
    )
    models = {"assistant": "helper", "base": "base", "solver": "solver"}
    data = built(tmp_path, NAME, models, data=on_disk(tmp_path / "in", its))
    left = {
        family: sorted(data.gold.filter(pl.col("slice_family") == family)["answers"].list.first())
        for family in ("comp_rel", "comp_rel_no_import")
    }
    assert left["comp_rel"] == sorted(fact.leaf for fact in its.new if fact.path not in (known, hard))
    assert left["comp_rel_no_import"]
    assert set(left["comp_rel_no_import"]) <= set(left["comp_rel"])
    assert data.card.statistics["left out: known to the base model"] == 1
    assert data.card.statistics["left out: not solved"] == 1


def test_a_long_file_is_cut_and_its_calls_stay_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    its = made(libraries=1, releases=1)
    long = sources.UsageSnippet(its.new[0].library, its.new[0].path, "\n".join(["pass"] * 30 + [its.snippets[0].code]))
    good, bad = long.code.splitlines()[-6:], ["pass"] * 6
    fact = its.new[0]
    its.snippets = [sources.UsageSnippet(fact.library, fact.path, "\n".join(["pass"] * 30 + good))]
    for piece, expected in ((good, 1), (bad, 0), (good[:2], 0)):
        script = dict(program.script(its)) | {steps.CUT.name: lambda given, piece=piece: steps.Cut("\n".join(piece))}
        hiring(monkeypatch, helper=Scripted(script))
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        data = built(folder, NAME, {"assistant": "helper"}, data=on_disk(folder / "in", its))
        assert data.card.slices["family"].get("comp_rel", 0) == expected
        assert data.card.statistics.get("left out: snippet: badly cut", 0) == 1 - expected


def test_summaries_are_part_of_the_documents(tmp_path: Path) -> None:
    plain = built(tmp_path / "a", f"{NAME}_mini")
    told = built(tmp_path / "b", f"{NAME}_mini", {"summaries": True})
    assert sum(told.documents["tokens"]) > sum(plain.documents["tokens"])
    assert told.card.statistics["asked: imprint_code.summary"] == told.card.statistics["articles"]


def test_every_prompt_holds_what_is_known_of_the_feature() -> None:
    about = steps.About(
        library="lib", version="1.0", path="lib.x.fold", kind="function", heading="New", bullet="It folds.",
        pulls=["#7: Fold"], documentation="Folds things.",
    )  # fmt: skip
    snippet = steps.Snippet(
        library="lib", path="lib.x.fold", kind="function", code="fold(1)", masked="<MASK>(1)", documentation="Folds.",
        question="Which?",
    )  # fmt: skip
    for step in (steps.CANONICAL, steps.NOVEL, steps.DESCRIBE, steps.SUMMARY):
        assert all(part in step.prompt(about) for part in ("lib.x.fold", "It folds.", "#7: Fold", "Folds things."))
    assert "<MASK>(1)" in steps.ASK.prompt(snippet)
    assert "Which?" in steps.VALIDATE.prompt(snippet)
    for judge in (steps.ASK, steps.VALIDATE):
        assert "fold(1)" not in str(judge.prompt(snippet)).replace("<MASK>(1)", "")


# ---------------------------------------------------------------- code


def feature(path: str, kind: Any = "function") -> Feature:
    block = notes.Block((), (), notes.Phrase("x"), True, ())
    return Feature("lib", "1.0", path, kind, block, (path.rpartition(".")[0],) if kind == "parameter" else ())


def test_a_callable_is_masked_as_a_word_and_a_parameter_where_it_is_given() -> None:
    code = "fold(x, fold_size=3)\nunfold(fold)"
    assert snippets.mask(code, feature("lib.fold")) == "<MASK>(x, fold_size=3)\nunfold(<MASK>)"
    assert snippets.mask("f(size = 3, b=size == 3)", feature("lib.f.size", "parameter")) == "f(<MASK> = 3, b=size == 3)"
    assert snippets.mask("other(1)", feature("lib.fold")) is None
    assert snippets.mask("f(size)", feature("lib.f.size", "parameter")) is None


@pytest.mark.parametrize(
    ("code", "bare"),
    [
        ("import lib.x as l\nimport os\n\nl.<MASK>(os.name)", "<MASK>(name)"),
        ("from lib import <MASK>\n\ny = <MASK>(1)", "y = <MASK>(1)"),
        ("from lib import Box\n\nBox().<MASK>()", "from lib import Box\n\nBox().<MASK>()"),
        ("import lib\n\ndef f(a):\n    return lib.<MASK>(é='ü', b=lib.y)", "def f(a):\n    return <MASK>(é='ü', b=y)"),
        ("from lib import (\n    a,\n    b,\n)\n\n<MASK>(1)", "<MASK>(1)"),
    ],
)  # fmt: skip
def test_prefixes_and_dead_imports_are_taken_out(code: str, bare: str) -> None:
    assert snippets.without_imports(code) == bare


def test_code_that_is_no_python_has_no_variant() -> None:
    assert snippets.without_imports("lib.<MASK>(") is None


@pytest.mark.parametrize(
    ("reply", "right"),
    [("fold", True), ("`l.x.fold`", True), ("fold(a, b)", True), ("fold=", True), ("unfold", False), ("a fold", False)],
)  # fmt: skip
def test_a_reply_is_right_where_its_last_part_is_the_name(reply: str, right: bool) -> None:
    assert snippets.is_name(reply, "fold") == right


def test_pairs_with_several_answers_or_given_twice_are_left_out() -> None:
    pairs = [Pair(question=q, answer=a) for q, a in [("A?", "1"), ("a", "1"), ("B?", "1"), ("b?", "2"), ("C?", "3")]]
    kept, dropped = distinct(pairs, [])
    assert [pair.question for pair in kept] == ["A?", "C?"]
    assert dropped == {"pairs given twice": 1, "pairs with several answers": 2}


def test_the_boundary_has_as_many_questions_as_are_wanted(tmp_path: Path) -> None:
    for count in (3, 100):
        data = built(tmp_path / str(count), f"{NAME}_mini", {"boundary": count})
        assert data.card.slices["family"]["bound_abs"] == count
    assert tokens.load().count(["x"]) == [1]


def test_a_token_of_many_groups_stays_one() -> None:
    writer = notes.Written()
    writer.code("lib.{a,b}.{c,d}")
    assert [token.text for token in writer.tokens] == ["lib.a.c", "lib.a.d", "lib.b.c", "lib.b.d"]
    writer.code("lib." + "{a,b}" * 60)
    assert len(writer.tokens) == 5


def test_neither_ids_nor_their_order_tell_name_or_family(asked: list[dict[str, Any]]) -> None:
    assert all(re.fullmatch(r"q\d{4}", row["question_id"]) for row in asked)
    half = [row["slice_family"] for row in asked[: len(asked) // 2]]
    assert {"dir_acq", "bound_abs"} <= set(half)
    assert 0.3 < half.count("dir_acq") / (half.count("dir_acq") + half.count("bound_abs")) < 0.7
