"""Release notes of any library: sentences, headings and italics that say what is new, and those that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

import imprint_code
from imprint_code import sources
from upkeep.building.reading import Faults


def said(folder: Path, text: str, name: str = "2.0-notes.rst") -> set[str]:
    (folder / "lib").mkdir(exist_ok=True)
    (folder / "lib" / name).write_text(text, encoding="utf-8")
    given = sources.read({"notes": folder}, Faults({}, Path("test")))
    return {f"{one.kind} {one.canonical}" for one in imprint_code.find(given).features}


def of_bullet(folder: Path, bullet: str) -> set[str]:
    heading = "``lib.stats`` improvements"
    return said(folder, f"New features\n============\n\n{heading}\n{'-' * len(heading)}\n\n{bullet}\n")


@pytest.mark.parametrize(
    ("bullet", "expected"),
    [
        ("- ``lib.trim`` now supports passing ``kwargs`` to its callback.", ["parameter lib.trim.kwargs"]),
        ("- ``lib.trim`` now accepts ``keep_index`` to keep it.", ["parameter lib.trim.keep_index"]),
        ("- ``lib.trim`` now accepts ``datetime`` to trim it.", []),
        ("- ``lib.trim`` will now accept parameter ``part``.", ["parameter lib.trim.part"]),
        ("- ``lib.trim`` has gained an ``edge`` (default ``True``) argument.", ["parameter lib.trim.edge"]),
        ("- ``lib.trim`` now includes a ``part`` keyword.", ["parameter lib.trim.part"]),
        ("- Users can now pass the ``down=True`` keyword argument to ``lib.sort``.", ["parameter lib.sort.down"]),
        ("- With groups, we've added a ``drop`` keyword to ``Frame.group``.", ["parameter lib.stats.Frame.group.drop"]),
        (
            "- We've added a ``key`` argument to the ``Frame`` sorting methods, including ``Frame.sort``.",
            ["parameter lib.stats.Frame.sort.key"],
        ),
        ("- We've added a ``key`` argument to the ``Frame`` sorting methods.", []),
        ("- Functions in ``lib.each`` now support passing ``kwargs`` to the callable.", []),
        ("- The ``rank`` function is exact now. The function has a new ``mode`` parameter.",
         ["parameter lib.stats.rank.mode"]),
        ("- ``Frame.count`` now accepts *top* and *low* arguments.",
         ["parameter lib.stats.Frame.count.top", "parameter lib.stats.Frame.count.low"]),
        ("- Added *careful* support to ``lib.trim``.", []),
        ("- ``score`` has been added to the result object of ``lib.stats.test``.", []),
        ("- ``Line`` and ``Curve`` now have a ``bend`` helper method.",
         ["method lib.stats.Line.bend", "method lib.stats.Curve.bend"]),
        ("- ``Frame`` now implements the ``sample`` method.", ["method lib.stats.Frame.sample"]),
        ("- :class:`Frame.text` now has a ``match`` method, as ``re.match``.", ["method lib.Frame.text.match"]),
        ("- Added :class:`Frame.equals` to the interface.", ["method lib.Frame.equals"]),
        ("- Added ``lib.Window`` for non-fixed offsets.", ["class lib.Window"]),
        ("- ``Frame`` has gained the new ``ndim`` class attribute.", []),
        ("- The function ``lib.stats.rao``, which multiplies, was added.", ["function lib.stats.rao"]),
        ("- The test distribution (``lib.stats.two``) was added.", ["distribution lib.stats.two"]),
        ("- The new function ``mad`` replaces the deprecated ``mid``.", ["function lib.stats.mad"]),
        ("- A solver for matching has been added in ``lib.stats.match``.", ["function lib.stats.match"]),
        ("- An option for matching has been added in ``lib.stats.match``.", []),
        ("- Added ``limit`` config option", []),
        ("- #11387: Added ``lib.stats.trim`` for ends.", ["function lib.stats.trim"]),
        ("- Added a hook, which is called by nodes, such as ``lib.Session``.", []),
        ("- New functions ``one`` and ``two`` were added to the polynomial package.", []),
        ("- ``FirstError`` and ``LastError`` are now exposed in ``lib.errors``.",
         ["class lib.errors.FirstError", "class lib.errors.LastError"]),
        ("- A new method, ``coba``, has been added to ``lib.stats.minimize``.", []),
        ("- A new optimizer, ``lib.stats.direct`` (of rectangles), was added.", ["function lib.stats.direct"]),
        ("- Add a handler type alias ``lib.types.Handler``.", []),
        ("- Implemented ``read_on`` in ``StreamReader``", ["method lib.stats.StreamReader.read_on"]),
        ("- Added ``read_on`` in ``StreamReader``", []),
        ("- Added ``base`` parameter to the constructor of ``Session``.", ["parameter lib.stats.Session.base"]),
        ("- Add method argument to ``Session.connect``.", ["parameter lib.stats.Session.connect.method"]),
        ("- Add missing argument to ``Session.connect``.", []),
        ("- Exported ``Moved`` which catches moves.", ["class lib.stats.Moved"]),
        ("- ``Curve`` subclasses have a new method ``bend`` which bends.", ["method lib.stats.Curve.bend"]),
        ("- There is an alternative output method `Curve.to_text`.", ["method lib.stats.Curve.to_text"]),
        ("- Add ``send_it`` function to serve a file.", ["function lib.stats.send_it"]),
        ("- Add ``send_it`` function to the tests.", []),
        ("- Add ``MarkedSafe`` as a dependency.", []),
        ("- ``lib.quad`` introduces a new optional keyword-only argument, ``args``.", ["parameter lib.quad.args"]),
        ("- ``lib.mean`` now supports fast execution with the ``engine`` keyword.", ["parameter lib.mean.engine"]),
        ("- Added optional parameters ``rate`` and ``factor`` for adaptive steps in ``hopping``.",
         ["parameter lib.stats.hopping.rate", "parameter lib.stats.hopping.factor"]),
        ("- Added ``rank`` function to ``Rolling`` and ``Expanding``.",
         ["method lib.stats.Rolling.rank", "method lib.stats.Expanding.rank"]),
        ("- A new method ``of_cubic`` in ``Spline`` class converts.", ["method lib.stats.Spline.of_cubic"]),
        ("- The masked versions of ``skew`` now also have a ``side`` parameter.", []),
        ("- Styling of indexes has been added, with ``Styler.index`` and ``Styler.format``.",
         ["method lib.stats.Styler.index", "method lib.stats.Styler.format"]),
        ("- Plots are now available with the ``Frame.old`` method.", []),
        ("- The new method ``Styler.hide`` deprecates ``Styler.hide_index``.", ["method lib.stats.Styler.hide"]),
        ("- The keyword ``level`` has been added to ``Styler.hide`` (and to the deprecated ``Styler.hide_index``).",
         ["parameter lib.stats.Styler.hide.level"]),
        ("- Add ``lib.stats.kulc`` in favour of ``lib.stats.kuls`` which will be deprecated.",
         ["function lib.stats.kulc"]),
        ("- ``halt`` was added as a ``kind`` in ``lib.stats.shgo``.", []),
        ("- ``halt`` and ``stop`` were added as ``init`` methods in ``lib.stats.evolve``.", []),
        ("- ``Frame.between`` can now accept ``left`` or ``right`` as arguments to ``inclusive``.", []),
        ("- An option, ``runs``, has been added in ``lib.stats.ttest``.", ["parameter lib.stats.ttest.runs"]),
        ("- The two-sample version is implemented in ``lib.stats.two``.", ["function lib.stats.two"]),
        ("- A masked form is now available as ``lib.stats.masked``.", ["function lib.stats.masked"]),
        ("- The range distribution was added in ``lib.stats.range_``.", ["distribution lib.stats.range_"]),
        ("- Add class method ``of_rows`` to ``Frame``.", ["method lib.stats.Frame.of_rows"]),
        ("- Added a new function to convolve in pieces, named ``lib.stats.pieces``.", ["function lib.stats.pieces"]),
        ("- ``lib.stats.quad`` provides better feedback.", []),
        ("- The integral (``lib.stats.ell``) is now available in ``lib.stats.fast``.", []),
        ("- ``lib.stats.Table`` has been added, a subscriptable alias for ``lib.Frame``.", []),
        ("- ``Line`` has gained the ``Frame.explode`` method.", ["method lib.stats.Frame.explode"]),
        ("- Add ``analog`` argument, default ``False``, to ``zpk``.", ["parameter lib.stats.zpk.analog"]),
        ("- Add ``lib.stats.pager``, a ``less`` option of sorts, for output.", ["function lib.stats.pager"]),
    ],
)  # fmt: skip
def test_what_a_sentence_adds(bullet: str, expected: list[str], tmp_path: Path) -> None:
    if "polynomial" in bullet:  # the heading's module would be the place
        assert said(tmp_path, f"New features\n============\n\n{bullet}\n") == set(expected)
    else:
        assert of_bullet(tmp_path, bullet) == set(expected)


def test_roles_in_markdown_are_read_as_in_restructuredtext(tmp_path: Path) -> None:
    text = "### Added\n- Add {func}`mend`. {issue}`12`\n- Add `edge` parameter to {class}`Patch`.\n"
    assert said(tmp_path, text, "2.0.md") == {"function lib.mend", "parameter lib.Patch.edge"}


def test_an_option_below_a_lead_that_names_one_callable_belongs_to_it(tmp_path: Path) -> None:
    text = "### Added\n- Restore parity of `lib.trace.Former`:\n  - Add `limit` config option\n"
    assert said(tmp_path, text, "2.0.md") == {"parameter lib.trace.Former.limit"}


def test_where_notes_write_names_in_full_a_bare_function_has_no_place(tmp_path: Path) -> None:
    full = "".join(f"- Speed of `lib.part.name{n}()` is as it was.\n" for n in range(20))
    added = "### Added\n- Added `mend()`.\n- Added `lib.part.sew()`.\n"
    assert said(tmp_path, f"{added}{full}", "2.0.md") == {"function lib.part.sew"}
    assert said(tmp_path, added, "2.0.md") == {"function lib.mend", "function lib.part.sew"}


@pytest.mark.parametrize(
    ("heading", "text", "expected"),
    [
        ("``where`` keyword for ``lib.all`` and ``lib.any`` functions", "It limits the rows.", ["lib.all.where"]),
        ("The random.Maker class has a new ``mix`` function", "It mixes.", ["lib.random.Maker.mix"]),
        ("Short captions in ``lib.to_text``", "The keyword ``place`` has been added to set it.",
         ["lib.to_text.place"]),
        ("``norm`` keyword options for ``lib.fft`` functions", "See there.", []),
    ],
)  # fmt: skip
def test_a_heading_says_what_is_new_or_what_its_section_is_about(
    heading: str, text: str, expected: list[str], tmp_path: Path
) -> None:
    notes = f"New Features\n============\n\n{heading}\n{'-' * len(heading)}\n{text}\n"
    assert {one.split()[1] for one in said(tmp_path, notes)} == set(expected)


def test_entries_of_a_new_module_lie_in_it(tmp_path: Path) -> None:
    text = "There is a new ``lib.hints`` module. The types that are new are"
    notes = f"New Features\n============\n\n{text}\n\n- ``Shape``: a shape\n"
    assert said(tmp_path, notes) == {"class lib.hints.Shape"}


def test_headings_over_a_double_line_stand_above_those_over_a_single_one(tmp_path: Path) -> None:
    title = "=========\nLib notes\n=========\n\nHighlights\n----------\n\n- Speed\n\n"
    text = "New features\n============\n\n``lib.odr`` news\n----------------\n\n``lib.odr.fit`` was added.\n"
    old = "\nDeprecated\n==========\n\n``lib.io`` things\n-----------------\n\n``lib.io.load`` was added.\n"
    assert said(tmp_path, f"{title}{text}{old}") == {"function lib.odr.fit"}


@pytest.mark.parametrize("headed", ["", "### Changes\n\n"])
def test_a_release_without_a_part_for_what_is_new_is_read_whole(headed: str, tmp_path: Path) -> None:
    text = f"## 1.1.0 - 2031-05-08\n\n{headed}- Add `lib.mend`.\n- Fix `lib.sew`.\n"
    assert said(tmp_path, text, "CHANGELOG.md") == {"function lib.mend"}
    parted = f"{text}\n### Added\n\n- Add `lib.patch`.\n"
    assert said(tmp_path, parted, "CHANGELOG.md") == {"function lib.patch"}


def test_a_label_before_an_entry_says_more_than_headings(tmp_path: Path) -> None:
    entries = "- |Feature| ``lib.fit.mend`` was added.\n- |Fix| ``lib.fit.sew`` was added.\n"
    text = f"Version 2\n=========\n\n``lib.fit``\n-----------\n\n{entries}"
    assert said(tmp_path, text) == {"function lib.fit.mend"}


def test_what_is_listed_below_the_heading_of_a_new_module_is_new(tmp_path: Path) -> None:
    heading = "New `lib.qmc` module"
    lists = "Base samplers are:\n\n- `lib.qmc.Halt`: a sequence.\n\nHelpers are:\n\n- `lib.qmc.scale`: scales.\n"
    text = f"New features\n============\n\n{heading}\n{'-' * len(heading)}\n\n{lists}"
    assert said(tmp_path, text) == {"class lib.qmc.Halt", "function lib.qmc.scale"}
