"""Code Changelogs without an assistant: what release notes tell of several features, and say that one does."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import imprint_code
from code_worlds import NAME, built, found, made, written
from imprint_code import compared, described
from imprint_code.options import ByRule
from test_derived_answers import of_releases
from upkeep.building import store
from upkeep.errors import UpkeepError
from upkeep.grading.graded import read_response

RULES = f"{NAME}_rules"
BY_RULE = set(ByRule.__args__)  # type: ignore[attr-defined]  # of a Literal


def of_world(folder: Path, seed: int, options: dict[str, Any] | None = None, **sizes: int) -> store.Dataset:
    given = {f"{RULES}.{what}": str(path) for what, path in made(seed, **sizes).write(folder / "given").items()}
    return built(folder, RULES, options, data=given)


def of_notes(folder: Path, files: dict[str, str], **options: Any) -> store.Dataset:
    given = {f"{RULES}.notes": str(written(folder / "notes", files))}
    return built(folder, RULES, options, data=given)


def questions(data: store.Dataset, family: str) -> dict[str, str]:
    rows = data.probes.join(data.gold, on="probe_id").filter(slice_family=family)
    return {row["question"]: row["answers"][0] for row in rows.iter_rows(named=True)}


@pytest.mark.parametrize(("seed", "sizes"), [(1, {"releases": 4}), (2, {"libraries": 5}), (3, {"functions": 12})])
def test_a_program_of_its_own_derives_every_answer_of_other_worlds_from_files(
    seed: int, sizes: dict[str, int], tmp_path: Path
) -> None:
    data = of_world(tmp_path, seed, **sizes)
    families: Counter[str] = Counter()
    for row, answers in of_releases(data):
        assert answers == set(row["answers"]), row
        families[row["slice_family"]] += 1
    assert min(families[family] for family in BY_RULE) > 10


def test_every_compared_feature_is_in_the_evidence(tmp_path: Path) -> None:
    data = of_world(tmp_path, 4)
    texts = dict(data.documents.select("document_id", "text").iter_rows())
    for row in data.probes.join(data.gold, on="probe_id").iter_rows(named=True):
        if row["slice_family"] in BY_RULE - {"ref_res_notes"}:
            read = "\n".join(texts[document] for document in row["evidence"])
            names = re.findall(r"the (?:parameter (\w+) of|\w+) ([\w.]+\w)", row["question"].replace("the same", ""))
            assert len(names) == (3 if row["slice_family"] == "comp_rel_count" else 2)
            for parameter, path in names:
                assert f"New parameter: {parameter} of {path}" in read if parameter else f": {path}." in read


def test_each_label_is_right_as_often_as_any_other_of_its_family(tmp_path: Path) -> None:
    data = of_world(tmp_path, 5, {"sample": 24})
    for family in ("comp_rel_same", "comp_rel_order", "comp_rel_count"):
        counts = Counter(questions(data, family).values())
        assert max(counts.values()) - min(counts.values()) <= 2, (family, counts)


@pytest.mark.parametrize("labels", [compared.ALIKE, compared.TURNS, compared.COUNTS])
def test_who_abstains_chooses_no_label_of_a_comparison(labels: tuple[str, ...]) -> None:
    for said in ("no information about it", "unknown", "I do not know."):
        answer, *_ = read_response(f"## Answer: {said}", "label", list(labels), "## Answer:", None)
        assert answer is None
    assert read_response(f"## Answer: {labels[1]}", "label", list(labels), "## Answer:", None)[0] == labels[1]


# ---------------------------------------------------------------- options


def test_the_options_name_the_families_and_without_them_they_are_the_papers(tmp_path: Path) -> None:
    named = of_world(tmp_path / "named", 6, {"families": ["imp_rel", "comp_rel_order"]})
    assert named.card.slices["family"].keys() == {"imp_rel", "comp_rel_order"}
    papers = of_world(tmp_path / "papers", 6, {"families": None})
    assert papers.card.slices["family"].keys() == {"dir_acq", "imp_rel", "bound_abs"}


@pytest.mark.parametrize("families", [["ref_res"], ["dir_acq", "comp_rel"], [], ["temp_upd"]])
def test_families_that_cannot_be_made_are_refused(families: list[str], tmp_path: Path) -> None:
    with pytest.raises(UpkeepError, match="families"):
        of_world(tmp_path, 6, {"families": families})


def test_a_sample_is_seeded_is_part_of_a_larger_one_and_leaves_documents_and_pairs_as_they_are(tmp_path: Path) -> None:
    def all_of(data: store.Dataset) -> set[tuple[str, str]]:
        return {(f, q) for f in data.card.slices["family"] for q in questions(data, f)}

    whole, small, large = (of_world(tmp_path / f"{n}", 7, {"sample": n}) for n in (None, 5, 12))
    assert set(small.card.slices["family"].values()) == {5} and max(large.card.slices["family"].values()) == 12
    assert all_of(small) < all_of(large) < all_of(whole)
    for data in (small, large):
        assert data.documents.equals(whole.documents) and data.pairs == whole.pairs
        left_out = data.card.statistics["left out: not drawn"]
        assert left_out == whole.card.questions - data.card.questions
    other = of_world(tmp_path / "other", 7, {"sample": 5, "seed": 1})
    assert all_of(other) != all_of(small)


# ---------------------------------------------------------------- what is certain


def release(version: str, date: str, *bullets: str) -> str:
    return f"# tool {version} ({date})\n\n## New features\n\n" + "".join(f"- {bullet}\n" for bullet in bullets)


def test_what_the_notes_of_another_release_name_too_is_not_compared(tmp_path: Path) -> None:
    files = {
        "tool/1.0.md": release("1.0", "2031-01-01", "New function `tool.a.first`", "New function `tool.a.bound`"),
        "tool/2.0.md": release("2.0", "2032-01-01", "New function `tool.a.second`, beside `bound`"),
    }
    data = of_notes(tmp_path, files)
    assert "tool.a.bound" in " ".join(questions(data, "dir_acq"))
    asked = " ".join([*questions(data, "comp_rel_order"), *questions(data, "comp_rel_same")])
    assert "tool.a.first" in asked and "tool.a.second" in asked and "tool.a.bound" not in asked
    assert data.card.statistics["left out: named in the notes of another release"] == 1


@pytest.mark.parametrize(
    ("dates", "asked"),
    [(("2031-01-01", "2032-01-01"), 1), (("2032-01-01", "2031-01-01"), 0), (("2031-01-01", "2031-01-01"), 0)],
)
def test_an_order_is_asked_where_dates_and_versions_agree(dates: tuple[str, str], asked: int, tmp_path: Path) -> None:
    files = {
        "tool/1.9.1.md": release("1.9.1", dates[0], "New function `tool.a.first`"),
        "tool/1.10.md": release("1.10", dates[1], "New function `tool.a.second`"),
    }
    data = of_notes(tmp_path, files, families=["dir_acq", "comp_rel_order"])
    assert len(questions(data, "comp_rel_order")) == asked


def test_two_features_of_one_bullet_are_not_asked_about_together(tmp_path: Path) -> None:
    files = {
        "tool/1.0.md": release("1.0", "2031-01-01", "New functions `tool.a.first` and `tool.a.second`"),
        "tool/2.0.md": release("2.0", "2032-01-01", "New function `tool.a.third`"),
    }
    same = questions(of_notes(tmp_path, files, families=["dir_acq", "comp_rel_same"]), "comp_rel_same")
    assert "the same" not in same.values()


@pytest.mark.parametrize(
    ("bullet", "does"),
    [
        ("The new function `tool.a.turn` sorts the rows of a table.", "sorts the rows of a table"),
        ("Add function `tool.a.turn`, which checks the keys of a map (#12)", "checks the keys of a map"),
        ("`tool.a.turn` was added. It copies the cells of a `grid.Grid`.", "copies the cells of a grid.Grid"),
        ("Added `tool.a.turn` function for splitting a text at its blanks", None),
        ("Added `tool.a.turn` function for splitting texts at blanks (gh-7)", "splits texts at blanks"),
        ("Added `tool.a.turn` function for getting hold of rows", "gets hold of rows"),
        ("Added `tool.a.turn` function to identify rows without values.", "identifies rows without values"),
        ("Added `tool.a.turn` function to read rows and drop the last", None),
        ("Added `tool.a.turn` function for reading rows and dropping columns", None),
        ("Added `tool.a.turn` function for reading and writing tables", None),
        ("New function `tool.a.turn` that sorts like the previous one does", None),
        ("New function `tool.a.turn` that returns each turn of a wheel", None),
        ("New function `tool.a.turn` that returns what `turn` gave in the end", None),
        ("New function `tool.a.turn` that does something to all rows", None),
        ("New function `tool.a.turn` that sorts rows", None),
        ("New functions `tool.a.turn` and `tool.a.back` which sort rows of tables", None),
        ("New function `tool.a.turn`", None),
    ],
)
def test_a_description_stands_by_itself_or_is_none(bullet: str, does: str | None, tmp_path: Path) -> None:
    features = found(tmp_path, {"tool/1.0.md": release("1.0", "2031-01-01", bullet)})
    feature = next(feature for feature in features if feature.leaf == "turn")
    told = described.description(feature)
    assert (told and " ".join(told)) == does


def test_a_description_that_fits_another_feature_too_is_left_out_whatever_its_verb(tmp_path: Path) -> None:
    bullets = (
        "New function `tool.a.turn` that sorts the rows of a table",
        "New function `tool.a.back` that rearranges rows of a big table by age",
    )
    data = of_notes(tmp_path, {"tool/1.0.md": release("1.0", "2031-01-01", *bullets)})
    asked = questions(data, "ref_res_notes")
    assert asked == {"What function in tool rearranges rows of a big table by age?": "back"}
    assert data.card.statistics["left out: description of several"] == 1


def test_the_world_without_its_program_asks_what_rules_make_alone(tmp_path: Path) -> None:
    data = built(tmp_path, f"{RULES}_mini")
    assert data.card.slices["family"].keys() == {"dir_acq", "imp_rel", "bound_abs", *BY_RULE}
    assert not set(imprint_code.WITH_ASSISTANT) & data.card.slices["family"].keys()
    assert not any("requests" in name for name in data.card.statistics)
