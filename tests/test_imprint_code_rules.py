"""Release notes of any library: where a name belongs, and the forms in which a library keeps its notes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import imprint_code
from conftest import DATA
from imprint_code import forms, sources
from imprint_code.pairs import without_name
from upkeep.building.reading import Faults
from upkeep.contract import FaultPolicy
from upkeep.errors import UpkeepError

REAL = DATA / "changelogs" / "scipy"


def read(folder: Path, files: dict[str, str], faults: Faults | None = None) -> sources.Sources:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return sources.read({"notes": folder}, faults or Faults({}, Path("test")))


def said(folder: Path, files: dict[str, str]) -> set[str]:
    return {f"{one.kind} {one.canonical}" for one in imprint_code.find(read(folder, files)).features}


def of_bullets(folder: Path, bullets: str, heading: str = "``lib.stats`` improvements") -> set[str]:
    text = f"New features\n============\n\n{heading}\n{'-' * len(heading)}\n\n{bullets}\n"
    return said(folder, {"lib/2.0-notes.rst": text})


@pytest.mark.parametrize(
    ("bullet", "expected"),
    [
        ("- The ``trim`` function has gained a ``policy`` parameter.", ["parameter lib.stats.trim.policy"]),
        (
            "- In ``lib.sparse`` the ``eigs`` function now accepts a new ``rng`` parameter.",
            ["parameter lib.sparse.eigs.rng"],
        ),
        ("- ``dok_array`` now supports an ``update`` method for dicts.", ["method lib.stats.dok_array.update"]),
        ("- ``minimize`` now supports the ``cobyqa`` method.", []),
        ("- The ``minimize`` function has a new ``cobyqa`` method.", []),
        (
            "- The ``wide`` and ``tall`` distributions have gained a new ``marginal`` method.",
            ["method lib.stats.wide.marginal", "method lib.stats.tall.marginal"],
        ),
        (
            "- Additional construction functions include ``expand``, ``swap``, and support for ``kron``.",
            ["function lib.stats.expand", "function lib.stats.swap"],
        ),
        (
            "- `lib.stats.matrix_t` has been added to represent the matrix t distribution.",
            ["distribution lib.stats.matrix_t"],
        ),
        ("- The new ``PyUFunc_AddLoops`` function registers loops.", []),
        ("- A new function ``BarySum`` was added.", ["function lib.stats.BarySum"]),
        (
            "- A new ``derivative`` method has been added to the ``NdCurve`` class, as ``Curve.derivative``.",
            ["method lib.stats.NdCurve.derivative"],
        ),
        ("- The new ``expand`` function works as ``np.expand``.", ["function lib.stats.expand"]),
        ("- The new ``expand`` function works as `lib.core.expand`.", []),
        (
            "- ``transform.Turn.__init__`` has gained an optional ``first`` parameter.",
            ["parameter lib.stats.transform.Turn.first"],
        ),
        ("- ``CurveFit`` added support for batches.", []),
        (
            "- ``CurveFit.bend`` and ``CurveFit.turn`` added, as well as checks.",
            ["method lib.stats.CurveFit.bend", "method lib.stats.CurveFit.turn"],
        ),
        ("- Added ``weekday`` (alias ``day``) property to ``Stamp``.", []),
    ],
)  # fmt: skip
def test_what_a_bullet_adds_stands_below_the_module_of_its_heading(
    bullet: str, expected: list[str], tmp_path: Path
) -> None:
    assert of_bullets(tmp_path, bullet) == set(expected)


def test_without_a_module_in_the_heading_a_bare_function_is_no_parent(tmp_path: Path) -> None:
    bullet = "- The ``trim`` function has gained a ``policy`` parameter."
    assert of_bullets(tmp_path, bullet, "Other things") == set()


@pytest.mark.parametrize(
    ("lead", "entries", "expected"),
    [
        (
            "- The following functions gained ``policy``:",
            ["``trim``", "``mean``"],
            ["parameter lib.stats.trim.policy", "parameter lib.stats.mean.policy"],
        ),
        ("- The following functions got faster:", ["``trim``", "``mean``"], []),
        (
            "- The following methods of ``Curve`` are new:",
            ["``bend``", "``turn``, which turns it."],
            ["method lib.stats.Curve.bend", "method lib.stats.Curve.turn"],
        ),
        (
            "- ``Curve`` and ``Line`` now have the following additions:",
            ["A ``shape`` argument to their ``make()`` constructors.", "A ``shape`` property."],
            ["parameter lib.stats.Curve.make.shape"],
        ),
        (
            "- The `lib.stats.inv` routine has been changed:",
            ["A new ``assume`` keyword allows to skip checks, where ``assume`` is given."],
            ["parameter lib.stats.inv.assume"],
        ),
        ("- New attributes:", ["``left``", "``right``"], []),
    ],
)
def test_the_lead_of_a_list_says_what_its_entries_are(
    lead: str, entries: list[str], expected: list[str], tmp_path: Path
) -> None:
    listed = "\n".join(f"  - {entry}" for entry in entries)
    assert of_bullets(tmp_path, f"{lead}\n\n{listed}") == set(expected)


KEPT = """# Changelog

The format is based on [Keep a Changelog](https://keepachangelog.com/).

## [Unreleased]

### Added
- Added `lib.ghost`.

## [1.10.0] - 2031-05-08

### Added
- Added `lib.mend`. [#12]
- `lib.Patch`, a patch.

```
## 0.0.1
```

### Fixed
- Added `lib.hidden` to the build.

## 1.9.0 (May 1, 2031)
### Added
- Added `lib.sew` function.

[#12]: https://example.org/pull/12
[1.10.0]: https://example.org/1.10.0
"""
RENDERED = """Release history
===============

.. towncrier release notes start

lib 1.10.0 (2031-05-08)
-----------------------

Features
~~~~~~~~

- Add :func:`lib.mend`, which mends. (`#12 <https://example.org/issues/12>`__)
- :class:`lib.Patch` was added. (#13)

Bugfixes
~~~~~~~~

- Added :func:`lib.hidden` to the build. (#14)


lib 1.9.0 (2031-05-01)
----------------------

Features
~~~~~~~~

- Added ``lib.sew`` function. (#11)
"""
LISTED = json.dumps(
    [
        {"tag_name": "py-1.10.0", "published_at": "2031-05-08T10:00:00Z", "author": {"login": "x"},
         "body": "## Enhancements\r\n\r\n- Add `lib.mend` (#12)\r\n- Add `lib.Patch` class (#13)\r\n"},
        {"tag_name": "v1.9.0", "published_at": "2031-05-01T10:00:00Z",
         "body": "## New features\n- Added `lib.sew` function (#11)"},
        {"tag_name": "rs-1.11.0", "body": "## Enhancements\n- Add `lib.crate`"},
        {"tag_name": "v2.0.0", "body": "## Enhancements\n- Add `lib.ghost`", "draft": True},
    ]
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text"), [("CHANGELOG.md", KEPT), ("history.rst", RENDERED), ("releases.json", LISTED)]
)
def test_one_file_of_all_releases_is_read_release_by_release(name: str, text: str, tmp_path: Path) -> None:
    given = read(tmp_path, {f"lib/{name}": text})
    assert [(one.version, one.date) for one in given.releases] == [("1.9.0", "2031-05-01"), ("1.10.0", "2031-05-08")]
    features = imprint_code.find(given).features
    assert [(one.version, one.kind, one.canonical) for one in features] == [
        ("1.9.0", "function", "lib.sew"),
        ("1.10.0", "function", "lib.mend"),
        ("1.10.0", "class", "lib.Patch"),
    ]
    assert "hidden" in given.releases[1].text or name == "releases.json"
    assert "sew" not in given.releases[1].text


def test_a_link_at_the_end_of_a_changelog_is_a_pull_request_of_its_release(tmp_path: Path) -> None:
    (mend,) = [
        one for one in imprint_code.find(read(tmp_path, {"lib/CHANGELOG.md": KEPT})).features if one.leaf == "mend"
    ]
    assert mend.block.pulls == (12,)


def test_notes_named_by_their_version_alone_are_read(tmp_path: Path) -> None:
    title = f"What's new in 1.2.0 (May 8, 2031)\n{'-' * 40}\n\n"
    text = f"{title}Enhancements\n~~~~~~~~~~~~\n\n- Added :meth:`Frame.compare` (:issue:`1`)\n"
    given = read(tmp_path, {"lib/v1.2.0.rst": text, "lib/index.rst": "no notes", "lib/README.md": "x"})
    assert [one.version for one in given.releases] == ["1.2.0"]
    assert {one.canonical for one in imprint_code.find(given).features} == {"lib.Frame.compare"}


@pytest.mark.parametrize("text", ["{}", "[{}]", '[{"tag_name": 1}]', "[", '[{"tag_name": "nightly", "body": "x"}]'])
def test_a_list_of_releases_of_another_form_is_refused_or_counted(text: str, tmp_path: Path) -> None:
    path = tmp_path / "releases.json"
    path.write_text(text)
    with pytest.raises(UpkeepError, match=r"releases\.json"):
        list(forms.read(path, "lib", Faults({}, Path("test"))))
    skip: dict[str, FaultPolicy] = {"broken_record": "skip"}
    counted = Faults(skip, Path("test"))  # type: ignore[arg-type]
    assert list(forms.read(path, "lib", counted)) == []
    assert counted.counts["broken_record"] == 1


@pytest.mark.data
def test_real_notes_in_one_file_give_what_they_give_in_two(tmp_path: Path) -> None:
    texts = {version: (REAL / f"{version}-notes.rst").read_text() for version in ("1.13.0", "1.15.0")}
    apart = read(tmp_path / "a", {f"scipy/{version}-notes.rst": text for version, text in texts.items()})
    joined = read(tmp_path / "b", {"scipy/CHANGES.rst": texts["1.15.0"] + "\n\n" + texts["1.13.0"]})
    assert [one.version for one in joined.releases] == [one.version for one in apart.releases]
    one, other = (imprint_code.find(given).features for given in (apart, joined))
    assert [(f.version, f.kind, f.canonical) for f in one] == [(f.version, f.kind, f.canonical) for f in other]
    assert len(one) > 50


@pytest.mark.parametrize(
    ("told", "left"),
    [
        ("The new function lib.mend mends.", "The new function mends."),
        ("The new mend function mends.", "The new function mends."),
        ("mend was added. It mends.", "it was added. It mends."),
        ("A class called mend, which mends.", "A class, which mends."),
        ("Use lib.mend() for mending.", "Use it for mending."),
    ],
)
def test_a_name_is_left_out_beside_its_noun_and_is_it_elsewhere(told: str, left: str) -> None:
    assert without_name(told, "mend") == left
