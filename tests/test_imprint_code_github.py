"""GitHub's list of releases, as its interface documents it: every field, null where it may be, CRLF, pages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import imprint_code
from code_worlds import written
from imprint_code import sources
from upkeep.building.reading import Faults
from upkeep.errors import UpkeepError

HOST = "https://api.github.example/repos/owner/lib"
SKIP: Any = dict.fromkeys(("broken_record", "empty_text", "duplicate_id", "missing_date", "bad_date"), "skip")


def release(number: int, tag: str, body: str | None, **changed: Any) -> dict[str, Any]:
    """A record with all fields that the documentation lists for "List releases"."""
    return {
        "url": f"{HOST}/releases/{number}",
        "html_url": f"https://github.example/owner/lib/releases/{tag}",
        "assets_url": f"{HOST}/releases/{number}/assets",
        "upload_url": f"{HOST}/releases/{number}/assets{{?name,label}}",
        "tarball_url": None,
        "zipball_url": None,
        "discussion_url": "https://github.example/owner/lib/discussions/9",
        "id": number,
        "node_id": "MDc6UmVsZWFzZTE=",
        "tag_name": tag,
        "target_commitish": "main",
        "name": None,
        "body": body,
        "body_html": "<ul><li>Add <code>lib.html</code></li></ul>",
        "body_text": "Add lib.text",
        "draft": False,
        "immutable": False,
        "prerelease": False,
        "created_at": "2030-12-31T23:00:00Z",
        "published_at": f"2031-05-0{number}T19:35:32Z",
        "author": {"login": "someone", "id": 1, "type": "User", "site_admin": False},
        "assets": [{"id": 1, "name": "lib.zip", "label": None, "size": 1024, "uploader": None}],
        "reactions": {"+1": 3, "total_count": 3},
        "mentions_count": 1,
        **changed,
    }


def added(*names: str, end: str = "\r\n") -> str:
    return end.join(["## What's new", "", "### Features", "", *(f"* Add `lib.{name}` function" for name in names), ""])


ALL = [
    release(3, "v1.2.0", added("third")),
    release(2, "v1.1.0", added("second", "other")),
    release(1, "v1.0.0", added("first", end="\n")),
]
FOUND = [("1.0.0", "first"), ("1.1.0", "second"), ("1.1.0", "other"), ("1.2.0", "third")]


def read(folder: Path, text: str, faults: Faults | None = None) -> sources.Sources:
    given = {"notes": written(folder, {"lib/releases.json": text})}
    return sources.read(given, faults or Faults({}, Path("test")))


def features(given: sources.Sources) -> list[tuple[str, str]]:
    return [(feature.version, feature.leaf) for feature in imprint_code.find(given).features]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(ALL),
        json.dumps([ALL[:2], ALL[2:]]),
        json.dumps([[*ALL], []]),
        json.dumps(ALL[:1]) + json.dumps(ALL[1:]),
        f"\ufeff{json.dumps(ALL[:2], indent=2)}\n\n{json.dumps(ALL[2:], indent=2)}\r\n",
    ],
    ids=["a list", "a list of pages", "an empty page", "pages behind each other", "the same with blanks and a mark"],
)
def test_a_list_and_its_pages_give_the_same_releases(text: str, tmp_path: Path) -> None:
    given = read(tmp_path, text)
    assert [one.date for one in given.releases] == ["2031-05-01", "2031-05-02", "2031-05-03"]
    assert features(given) == FOUND


def test_a_body_with_carriage_returns_says_what_it_says_without(tmp_path: Path) -> None:
    one, other = (
        imprint_code.find(read(tmp_path / name, json.dumps([release(1, "v1.0.0", added("first", end=end))]))).features
        for name, end in (("crlf", "\r\n"), ("lf", "\n"))
    )
    assert one == other and len(one) == 1


def test_drafts_are_passed_over_and_pre_releases_are_releases(tmp_path: Path) -> None:
    listed = [
        *ALL,
        release(9, "v2.0.0", added("ghost"), draft=True, published_at=None),
        release(4, "v1.3.0rc1", added("early"), prerelease=True),
        release(5, "v1.3.0", added("early", "late")),
    ]
    assert features(read(tmp_path, json.dumps(listed))) == [*FOUND, ("1.3.0rc1", "early"), ("1.3.0", "late")]


def test_what_is_null_is_counted_and_costs_no_other_release(tmp_path: Path) -> None:
    listed = [
        *ALL,
        release(4, "v1.3.0", None),
        release(5, "v1.4.0", "\r\n"),
        release(6, "v1.5.0", added("undated"), published_at=None),
        {"message": "Not Found", "status": "404"},
        release(3, "v1.2.0", added("third")),
        release(7, "nightly", added("night")),
    ]
    faults = Faults(SKIP, Path("test"))
    given = read(tmp_path, json.dumps(listed), faults)
    assert features(given) == [*FOUND, ("1.5.0", "undated")]
    assert given.releases[-1].date is None
    assert {name: n for name, n in faults.counts.items() if n} == {
        "empty_text": 2,
        "broken_record": 2,
        "duplicate_id": 1,
    }


@pytest.mark.parametrize(
    "text",
    [
        '{"message": "Not Found", "status": "404"}',
        json.dumps(ALL[0]),
        json.dumps(ALL)[:-1],
        json.dumps(ALL) + "x",
        "[" * 100_000,
        '[{"tag_name": "v1.0.0", "body": "\\ud800"}]',
        '"releases"',
    ],
    ids=["an error", "one release", "cut off", "something behind it", "deep", "half a character", "a text"],
)
def test_what_is_no_list_of_releases_is_refused_with_its_file(text: str, tmp_path: Path) -> None:
    with pytest.raises(UpkeepError, match=r"releases\.json"):
        read(tmp_path, text)
