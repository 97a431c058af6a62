"""Where facts may be put into prose: between its sentences, and never into one."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import DATA
from upkeep.building import prose

NOVELS = sorted((DATA / "novels").glob("*.txt"))


@pytest.mark.parametrize("end", [",", ":", ";", "—", ",”", ":—"])
def test_a_paragraph_that_ends_within_a_sentence_is_one_piece_with_what_follows_it(end: str) -> None:
    book = f"It began. He said{end}\n\n“Come here.” So she came.\n\nAll was well."
    assert prose.read_sentences(book) == [
        "\n\nIt began.",
        f" He said{end}\n\n“Come here.”",
        " So she came.",
        "\n\nAll was well.",
    ]


def test_a_sentence_may_go_on_over_several_paragraphs() -> None:
    assert prose.read_sentences("One,\n\ntwo,\n\nthree. Four.") == ["\n\nOne,\n\ntwo,\n\nthree.", " Four."]


@pytest.mark.data
@pytest.mark.parametrize("novel", NOVELS, ids=lambda path: path.stem)
def test_every_piece_of_a_novel_ends_as_a_sentence_does_and_no_word_is_lost(novel: Path) -> None:
    text = prose.read_text(novel)
    pieces = prose.read_sentences(text)
    assert len(pieces) > 1500
    assert {piece.rstrip("\"'”’)]_")[-1] for piece in pieces} == {".", "?", "!"}
    assert len("".join(pieces).split()) > 0.95 * len(prose.strip_boilerplate(text).split())
