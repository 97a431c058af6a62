"""Code Changelogs with the sources of two releases: the notes say what is told, the sources what is new."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

import imprint_code
from conftest import DATA  # noqa: F401  # puts the datasets on the path
from imprint_code import interface, sources
from imprint_code.features import Feature
from upkeep.building.reading import Faults
from upkeep.errors import UpkeepError

OLD = {
    "lib/__init__.py": "from ._core import *\nfrom .shapes import Shape\nfrom .moved import twist\n",
    "lib/_core.py": "__all__ = ['press', 'hidden']\n__all__ += ['Box']\ndef press(a): ...\ndef hidden(): ...\n"
    "class Box:\n    def __init__(self, size): ...\n    def open(self): ...\n",
    "lib/moved.py": "def twist(): ...\n",
    "lib/shapes.py": "class Shape:\n    def area(self): ...\nclass Circle(Shape): ...\n",
}
NEW = OLD | {
    "lib/_core.py": "__all__ = ['press', 'hidden', 'knead', 'spread']\n__all__ += ['Box']\n"
    "def press(a, *, force=1, old_force=2): ...\ndef hidden(): ...\n@njit\ndef spread(x): ...\n"
    "def knead(dough, speed=1): ...\nclass Box:\n    def __init__(self, size, lid=None): ...\n    def open(self): ...\n"
    "    def shut(self): ...\n    @property\n    def width(self): ...\n    def _lock(self): ...\n",
    "lib/shapes.py": "class Shape:\n    def area(self): ...\n    def hull(self): ...\nclass Circle(Shape): ...\n"
    "class Square(Shape):\n    def turn(self): ...\n",
    "lib/fast.pyx": "cpdef double whirl(double x, int times=3) except -1:\n    return x\ncdef int secret(): pass\n",
    "lib/stub.pyi": "def from_stub(x: int, *, deep: bool = ...) -> int: ...\n",
    "lib/tests/test_it.py": "def only_tested(): ...\n",
    "lib/template.py": "def {{name}}(): ...\n",
}


def packed(path: Path, files: dict[str, str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".whl":
        with zipfile.ZipFile(path, "w") as wheel:
            for name, text in files.items():
                wheel.writestr(name, text)
        return path
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(f"{path.name.removesuffix('.tar.gz')}/src/{name}")
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    return path


def read(folder: Path, notes: str, version: str = "1.2") -> list[Feature]:
    (folder / "notes/lib").mkdir(parents=True)
    (folder / f"notes/lib/{version}.rst").write_text(notes)
    packed(folder / "packages/lib/lib-1.1.3.tar.gz", OLD)
    packed(folder / "packages/lib/lib-1.2.0-py3-none-any.whl", NEW)
    given = {"notes": folder / "notes", "packages": folder / "packages"}
    return imprint_code.find(sources.read(given, Faults({}, folder))).features


def told(features: list[Feature]) -> set[str]:
    return {f"{feature.kind} {feature.canonical}" for feature in features}


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("``knead`` for those who bake.", {"function lib.knead"}),
        ("Bakers will like the knead() function.", {"function lib.knead"}),
        ("Much can be done by ``Box.shut`` now.", {"method lib.Box.shut"}),
        ("The ``Box`` got ``shut``, at last.", {"method lib.Box.shut"}),
        ("``press`` learned about ``force``.", {"parameter lib.press.force"}),
        ("``press(force=...)`` is there.", {"parameter lib.press.force"}),
        ("Pass ``lid`` to ``Box``.", {"parameter lib.Box.lid"}),
        ("``Circle.hull`` is inherited.", {"method lib.shapes.Circle.hull"}),
        ("Add ``hull`` to ``Shape`` and ``Circle``.", {"method lib.Shape.hull", "method lib.shapes.Circle.hull"}),
        ("Add the ``shut`` method to boxes.", {"method lib.Box.shut"}),
        ("Add a ``hull`` method.", {"method lib.Shape.hull"}),  # not of each class that inherits it
        ("The new function ``knead`` can now be used.", {"function lib.knead"}),
        ("Deprecate ``a`` of ``press`` in favor of the new ``force``.", {"parameter lib.press.force"}),
        ("Add ``force`` to ``press``, for renaming.", {"parameter lib.press.force"}),
        ("Renamed ``old`` to ``old_force`` in ``press``. Add ``force``.", {"parameter lib.press.force"}),
        ("A ``Square`` that can ``Square.turn``.", {"class lib.shapes.Square"}),
        ("``lib.fast.whirl`` spins.", {"function lib.fast.whirl"}),
        ("``from_stub`` reads stubs.", {"function lib.stub.from_stub"}),
    ],
)
def test_what_the_sources_confirm_is_found_in_whatever_words(tmp_path: Path, entry: str, expected: set[str]) -> None:
    assert told(read(tmp_path, f"New features\n============\n\n- {entry}\n")) == expected


@pytest.mark.parametrize(
    "entry",
    [
        "Added a new function ``hidden``.",  # it was there
        "Added a new function ``unheard_of``.",  # it is nowhere
        "Added a new function ``only_tested``.",
        "Added a new function ``secret`` in C.",
        "Added the ``Box.width`` property.",
        "Added ``Box._lock``.",
        "``press`` was renamed to ``knead``.",
        "Added an ``a`` argument to ``press``.",  # it was there
        "Added a ``pressure`` argument to ``press``.",  # it is not there
        "``knead`` now supports dough.",  # told of as if it were old
        "``hidden`` is deprecated, use ``knead`` instead.",
        "Deprecate ``a`` of ``press``; use ``force`` instead.",
        "Renamed the ``old`` parameter of ``press`` to ``force``.",
        "The ``old`` argument of ``press`` has been renamed to ``force``. Set ``force=0`` for none.",
        "The ``old`` keyword of ``press`` is now deprecated. Use ``force=1`` instead. Set ``force=0`` for none.",
        "``press(a=1)`` is deprecated, write ``press(force=1)``.",
        "Vendor ``knead`` from a bakery.",
    ],
)
def test_what_the_sources_refute_is_left_out_whatever_the_words(tmp_path: Path, entry: str) -> None:
    assert told(read(tmp_path, f"New features\n============\n\n- {entry}\n")) == set()


def between(folder: Path, old: str, new: str, entry: str) -> set[str]:
    """What is found in one entry of a release whose package is one module."""
    for version, source in (("1.0", old), ("1.1", new)):
        packed(folder / f"packages/lib/lib-{version}.tar.gz", {"lib/__init__.py": source})
    (folder / "notes/lib").mkdir(parents=True)
    (folder / "notes/lib/1.1.md").write_text(f"# New features\n\n- {entry}\n")
    given = {"notes": folder / "notes", "packages": folder / "packages"}
    return told(imprint_code.find(sources.read(given, Faults({}, folder))).features)


_OPEN = 'def spin(*args, **kwargs):\n    """Turn.{}"""\n    return kwargs.get("axis"){}\n'


@pytest.mark.parametrize(
    ("documented", "body", "is_found"),
    [
        ("\n\n    Parameters\n    ----------\n    speed : int\n        How fast.\n    ", "", True),
        ("\n\n    Args:\n        speed (int): how fast.\n    ", "", True),
        ("\n\n    :param int speed: how fast\n    ", "", True),
        ("", " + kwargs.pop('speed', 1)", True),
        ("", "", False),  # nothing bears it out
        ("\n\n    Returns\n    -------\n    speed : int\n    ", "", False),
    ],
)
def test_a_parameter_that_no_signature_has_is_one_if_the_source_takes_or_documents_it(
    tmp_path: Path, documented: str, body: str, is_found: bool
) -> None:
    old, new = _OPEN.format("", ""), _OPEN.format(documented, body)
    found = between(tmp_path, old, new, "`lib.spin` now accepts a `speed` argument.")
    assert found == ({"parameter lib.spin.speed"} if is_found else set())


_BAKE = "def {}(dough, {}=None):\n    warm = heat(dough, 200)\n    return [crust(one) for one in warm]\n"
_WARN = "    if {0} is not None:\n        warn('{0} is deprecated')\n        {1} = {0}\n"


@pytest.mark.parametrize(
    ("old", "new", "entry"),
    [
        (_BAKE.format("bake", "hours"), _BAKE.format("bake", "time"), "New argument `time` of `lib.bake`."),
        (
            _BAKE.format("bake", "hours"),
            "@deprecated_renamed('hours', 'time')\ndef bake(time, dough): ...\n",
            "Added `time` to `lib.bake`.",
        ),
        (
            "def bake(dough, hours=1): ...\n",
            "def bake(dough, time=2, hours=None):\n" + _WARN.format("hours", "time"),
            "Added `time` to `lib.bake`.",
        ),
        (_BAKE.format("bake", "t"), _BAKE.format("roast", "t"), "Added the function `lib.roast`."),
        (
            _BAKE.format("bake", "t"),
            _BAKE.format("roast", "t") + "def bake(dough, t=None):\n    'Deprecated.'\n    return roast(dough, t)\n",
            "Added the function `lib.roast`.",
        ),
        ("class A: ...\n", "class A:\n    @lazyproperty\n    def size(self): ...\n", "New `size` in `lib.A`."),
        (
            "class A: ...\n",
            "class once:\n    def __get__(self, of, kind): ...\nclass A:\n    @once\n    def size(self): ...\n",
            "Added `A.size`.",
        ),
    ],
    ids=["in its place", "by a decorator", "by its value", "renamed", "deprecated", "a property", "a descriptor"],
)
def test_what_the_sources_show_to_be_old_or_no_callable_is_left_out_though_the_notes_say_new(
    tmp_path: Path, old: str, new: str, entry: str
) -> None:
    assert between(tmp_path, old, new, entry) == set()


def test_a_class_that_moved_to_another_module_is_not_new(tmp_path: Path) -> None:
    window = "class Window:\n    def __init__(self, alpha, beta): ...\n    def __call__(self, shape, size): ...\n"
    for version, files in (
        ("1.0", {"lib/__init__.py": "", "lib/old.py": window}),
        ("1.1", {"lib/__init__.py": "", "lib/new.py": window + "    def __repr__(self): ...\n"}),
    ):
        packed(tmp_path / f"packages/lib/lib-{version}.tar.gz", files)
    (tmp_path / "notes/lib").mkdir(parents=True)
    (tmp_path / "notes/lib/1.1.md").write_text("# New features\n\n- Added a `repr` to `lib.new.Window`.\n")
    given = {"notes": tmp_path / "notes", "packages": tmp_path / "packages"}
    assert told(imprint_code.find(sources.read(given, Faults({}, tmp_path))).features) == set()


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("Added a `time` argument for bakers.", {"parameter lib.bake.time"}),  # only one callable got it
        ("Added a `lid` argument to the box that we open.", {"parameter lib.open.lid"}),
        ("Added a `lid` argument for bakers.", set()),  # of `open` or `shut`
        ("Bakers gave us `time`.", set()),  # nothing says that this is a parameter
        ("Added `lib.open` a bit.\n  - even `lib.knead`", {"function lib.knead"}),
        ("`lib.knead` is new:\n  - it is fast", {"function lib.knead"}),
    ],
)
def test_what_a_block_names_loosely_is_found_where_the_sources_leave_one_reading(
    tmp_path: Path, entry: str, expected: set[str]
) -> None:
    old = "def bake(dough): ...\ndef open(box): ...\ndef shut(box): ...\n"
    new = "def bake(dough, time=1): ...\ndef open(box, lid=1): ...\ndef shut(box, lid=1): ...\ndef knead(d): ...\n"
    assert between(tmp_path, old, new, entry) == expected


def test_a_method_of_what_an_attribute_gives_is_found(tmp_path: Path) -> None:
    accessor = "class Text:\n    def low(self): ...\n"
    held = "class Row:\n    text = Accessor('text', Text)\n"
    for version, more in (("1.0", ""), ("1.1", "    def high(self): ...\n")):
        packed(tmp_path / f"packages/lib/lib-{version}.tar.gz", {"lib/__init__.py": accessor + more + held})
    (tmp_path / "notes/lib").mkdir(parents=True)
    (tmp_path / "notes/lib/1.1.md").write_text("# New features\n\n- Add the `high` method to `Text` and `Row.text`.\n")
    given = {"notes": tmp_path / "notes", "packages": tmp_path / "packages"}
    found = told(imprint_code.find(sources.read(given, Faults({}, tmp_path))).features)
    assert "method lib.Text.high" in found


def test_a_new_name_of_something_old_is_no_news_in_any_entry(tmp_path: Path) -> None:
    notes = "New features\n============\n\n- Added ``knead``.\n- Functions have been renamed.\n\n"
    notes += "  - ``knead`` replaces ``it``.\n"
    assert told(read(tmp_path, notes)) == set()


def test_parts_for_fixes_are_not_read(tmp_path: Path) -> None:
    notes = "New features\n============\n\n- ``knead``\n\nBug fixes\n=========\n\n- ``Box.shut`` was missing.\n"
    assert told(read(tmp_path, notes)) == {"function lib.knead"}


def test_without_the_release_before_the_notes_alone_are_believed(tmp_path: Path) -> None:
    notes = "New features\n============\n\n- Added a new function ``lib.unheard_of``.\n"
    assert told(read(tmp_path, notes, version="1.1")) == {"function lib.unheard_of"}


def test_a_release_is_compared_with_the_last_one_below_it() -> None:
    given = {version: Path(version) for version in ("1.9.0", "1.10.0", "1.10.1", "1.11.0")}
    read = sources.Sources(packages={"lib": given})
    assert read.distributions("lib", "1.10") == (Path("1.10.0"), Path("1.9.0"))
    assert read.distributions("lib", "1.11.0") == (Path("1.11.0"), Path("1.10.1"))
    assert read.distributions("lib", "1.9.0") is None
    assert read.distributions("other", "1.11.0") is None


def test_no_code_of_a_package_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    code = {"lib/__init__.py": f"open({str(mark)!r}, 'w')\ndef f(): ...\n"}
    assert set(interface.read(packed(tmp_path / "lib-1.0.tar.gz", code), "lib").members) == {"lib.f"}
    assert not mark.exists()


def test_modules_that_import_each_other_are_read(tmp_path: Path) -> None:
    code = {
        "lib/__init__.py": "from .a import *\nfrom .b import g as h\n",
        "lib/a.py": "from .b import *\nfrom .b import g\nclass A(A): ...\ndef f(): ...\n",
        "lib/b.py": "from .a import *\nfrom .a import g\n",
    }
    assert "lib.a.f" in interface.read(packed(tmp_path / "lib-1.0.tar.gz", code), "lib").members


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8b\x08\x00broken"])
def test_what_is_no_package_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "lib-1.0.tar.gz"
    path.write_bytes(content)
    with pytest.raises(UpkeepError, match=r"lib-1\.0\.tar\.gz"):
        interface.read(path, "lib")
