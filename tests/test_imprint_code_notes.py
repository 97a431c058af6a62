"""Code Changelogs: what releases add is read from notes of any library, those never seen and the real ones."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import imprint_code
from code_worlds import NAME, built, found, made, said
from conftest import DATA
from imprint_code import __main__ as command
from imprint_code import rst, sources
from imprint_code.features import Feature
from upkeep.building import reading

REAL = DATA / "changelogs"


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
