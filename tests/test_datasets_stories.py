"""The small stories of OAKS-Novel: their questions have the answers that the text gives."""

from __future__ import annotations

import re

import polars as pl
import pytest

import oaks_novel
from conftest import spec_of
from dataset_rows import NONE, catalog
from upkeep.building import store
from upkeep.building.build import build_dataset
from upkeep.building.store import validate


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> store.Dataset:
    folder = tmp_path_factory.mktemp("stories")
    fields = spec_of("oaks_novel_mini")
    build_dataset(catalog(folder, fields), "d", folder / "out")
    validate(folder / "out")
    return store.load(folder / "out")


def asked(data: store.Dataset) -> pl.DataFrame:
    return data.probes.join(data.gold, on="probe_id")


def test_stories_are_small_and_have_every_bin(stories: store.Dataset) -> None:
    assert len(stories.probes) <= 320 and stories.documents["tokens"].max() <= stories.card.chunk_tokens  # type: ignore[operator]
    assert stories.card.slices["changes"].keys() == {"sparse", "moderate", "frequent"}
    for _, rows in asked(stories).group_by("question_id"):
        phases = rows["phase"].max() + 1  # type: ignore[operator]
        assert rows["slice_changes"][0] == ("sparse" if phases <= 3 else "moderate" if phases <= 4 else "frequent")


def test_cannot_answer_is_right_only_before_the_first_answer(stories: store.Dataset) -> None:
    places = set()
    for _, rows in asked(stories).group_by("question_id"):
        options = rows["options"][0].to_list()
        none = oaks_novel.LETTERS[options.index(NONE)]
        places.add(none)
        assert 5 <= len(options) <= 6
        right = [answers[0] == none for answers in rows.sort("position")["answers"].to_list()]
        assert right == sorted(right, reverse=True) and not right[-1]
        assert all(len(answers) == 1 for answers in rows["answers"].to_list())
    assert len(places) > 2


def test_a_story_tells_of_its_states_and_asides_change_none(stories: store.Dataset) -> None:
    """A second reading: the last sentence of an aspect, in the words in which changes are told, gives the answer."""
    recalled = 0
    for _, rows in asked(stories).group_by("question_id"):
        question = rows["question"][0]
        for aspect in oaks_novel.ASPECTS:
            match = re.fullmatch(re.escape(aspect.question).replace(r"\{0\}", "(\\w+)"), question)
            if match is None:
                continue
            hero = match[1] if match.groups() else r"\w+"
            told = [re.escape(t).replace(r"\{0\}", hero).replace(r"\{1\}", "(.+?)") for t in aspect.told]
            for row in rows.iter_rows(named=True):
                seen = stories.documents.filter(
                    (pl.col("stream") == row["stream"]) & (pl.col("position") <= row["position"])
                )
                found = [next(filter(None, m.groups())) for m in re.finditer("|".join(told), "\n".join(seen["text"]))]
                right = row["options"][oaks_novel.LETTERS.index(row["answers"][0])]
                assert right == (found[-1] if found else NONE), (row["probe_id"], question)
            for aside in aspect.recalled:
                past = re.escape(aside).replace(r"\{0\}", hero).replace(r"\{1\}", ".+?")
                recalled += len(re.findall(past, "\n".join(stories.documents["text"])))
    assert recalled > len(stories.documents)


def test_the_town_of_the_last_handing_over_follows_the_order_of_the_text() -> None:
    def event(chunk: int, aspect: oaks_novel.Aspect, state: str) -> oaks_novel.Event:
        return oaks_novel.Event(chunk, aspect, state, "")

    events = [
        event(0, oaks_novel.LETTER, "x"),
        event(1, oaks_novel.TOWN, "A"),
        event(2, oaks_novel.LETTER, "y"),
        event(2, oaks_novel.TOWN, "B"),
        event(4, oaks_novel.LETTER, "z"),
    ]
    line = dict(oaks_novel.timelines(events, 5))[None]
    assert [state.value for state in line] == [None, None, "A", "A", "B"]
    assert [state.evidence for state in line] == [(), (), (1, 2), (1, 2), (2, 4)]
