"""What the suite's own small model is taught of what methods and judges ask: in their very form, right, and without
anything that it is asked later."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from tokenizers import Tokenizer

from recipe import groups, measured, passages, playing, renaming, tokenizer
from recipe import inputs as inputs_of
from recipe.batches import Encoder
from recipe.extraction import ENTITIES, TRIPLES
from recipe.lessons import Lesson
from recipe.memories import NOTHING, REWRITTEN, SUMMED
from recipe.passages import OF, by_dataset
from recipe.searching import CALL, CRITIQUE, LINE
from recipe.settings import Given
from recipe.stages import STAGES
from recipe.teacher import ASKED, Teacher, invented_in
from recipe.worlds import World
from upkeep.building import names, synthetic
from upkeep.building.build import code
from upkeep.catalog import Catalog
from upkeep.cell import searching, toolcalls
from upkeep.cell.interface import Message, ToolCall
from upkeep.grading.judgements import verdict

ROOT = Path(__file__).parent.parent
SHIPPED = ROOT / "models" / "pico"
WORD = re.compile(r"[A-Za-z]{3,}")
DRAWN = 700
"""Times that each kind of lesson is drawn from, which gives thousands of texts: a lesson is many."""


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog(ROOT)


@pytest.fixture(scope="module")
def given(catalog: Catalog) -> Given:
    return msgspec.structs.replace(inputs_of.given(catalog, STAGES[-1], STAGES[:-1]), known=[])


@pytest.fixture(scope="module")
def size() -> Encoder:
    return Encoder(Tokenizer.from_file(str(SHIPPED / "tokenizer.json")))


@pytest.fixture(scope="module")
def room(catalog: Catalog, given: Given, size: Encoder) -> playing.Room:
    """Of whose texts every second one is a small dataset's."""
    small = (
        "evowiki_mini",
        "evolveqa_aws_mini",
        "imprint_news_mini",
        "oaks_babi_mini",
        "oaks_novel_mini",
        "prelude_mini",
    )
    found = [inputs_of.build_world(catalog, name, seed) for name in small for seed in inputs_of.SEEDS[:3]]
    named = by_dataset(group for world in found for group in groups.groups(world, given.prompts))
    assert len(named) == len(small)
    names = invented_in(found, given.prompts)
    return playing.Room(given.names, given.prompts, given.rubrics, ROOT / "methods", size.size, named, names, 0.5)


@pytest.fixture(scope="module")
def asked(room: playing.Room) -> dict[str, list[Lesson]]:
    """Lessons of what methods and judges ask, by skill."""
    found: dict[str, list[Lesson]] = {}
    for make in ASKED.values():
        for seed in range(80):
            for lesson in make(Random(seed), room):
                found.setdefault(lesson.skill, []).append(lesson)
    return found


def _reply(lesson: Lesson) -> str:
    return lesson.turns[0][1].removesuffix("<|end|>")


def test_every_floor_is_of_a_skill_that_is_asked(asked: dict[str, list[Lesson]]) -> None:
    elsewhere = {"judging", measured.PARSES, measured.IN_FORMAT}
    for skill in (skill for stage in STAGES[1:] for skill in stage.floors):
        assert skill in asked or skill in elsewhere or skill.startswith(("a label", "a count", "an answer from")), skill
    assert all(len(lessons) >= 3 for lessons in asked.values())


def test_a_right_reply_is_found_right_and_another_lesson_s_wrong(
    asked: dict[str, list[Lesson]], tmp_path: Path
) -> None:
    def measure(replies: list[tuple[Lesson, str]]) -> dict[str, dict[str, float]]:
        rows: list[dict[str, Any]] = [
            {"skill": lesson.skill, "accepted": list(lesson.accepted), "outdated": [], "read": lesson.read,
             "form": "short", "options": None, "exact": True, "also": "", "marker": "",
             "structured": "{" in _reply(lesson), "reply": reply}
            for lesson, reply in replies
        ]  # fmt: skip
        (tmp_path / "replies").write_bytes(msgspec.json.Encoder().encode_lines(rows))
        return measured.measure(tmp_path / "replies")

    every = [lesson for lessons in asked.values() for lesson in lessons]
    lists = [skill + measured.ITEMS for skill, lessons in asked.items() if lessons[0].read == "json"]
    right = measure([(lesson, _reply(lesson)) for lesson in every])
    assert {skill: value["right"] for skill, value in right.items()} == dict.fromkeys(
        [*asked, *lists, measured.PARSES], 1.0
    )
    nothing = measure([(lesson, "{ what") for lesson in every])
    assert all(value["right"] == 0 for value in nothing.values()) and len(nothing) == len(right)
    # One is left out and another invented: the list is wrong, the others of its items are right.
    lesson = next(lesson for lesson in asked[ENTITIES] if len(json.loads(_reply(lesson))["entities"]) == 4)
    found = measure([(lesson, json.dumps({"entities": [*json.loads(_reply(lesson))["entities"][1:], "Nobody"]}))])
    assert (found[ENTITIES]["right"], found[ENTITIES + measured.ITEMS]["right"]) == (0, 0.75)


def test_a_reply_is_what_the_method_reads(asked: dict[str, list[Lesson]], given: Given, room: playing.Room) -> None:
    critique = room.method("self_critique")
    for lesson in asked[CALL] + asked[CALL + OF]:
        _, (call,) = toolcalls.read(_reply(lesson), "hermes", [searching.SEARCH], 1)
        assert json.loads(call.arguments)["query"] == lesson.accepted[0]
    for lesson in asked[LINE] + asked[LINE + OF]:
        assert searching.queries(_said(_reply(lesson)), native=False) == [(None, lesson.accepted[0], "")]
    for lesson in asked[CRITIQUE] + asked[CRITIQUE + OF]:
        told, corrected = critique.VERDICT.search(_reply(lesson)), critique.CORRECTED.findall(_reply(lesson))
        assert told and f"{told[1]} {corrected[-1]}" == lesson.accepted[0]
    read = 0
    for _, rubric in given.rubrics:
        for lessons in asked.values():
            for lesson in lessons:
                if rubric.system.strip() in lesson.prefix:
                    assert verdict(rubric, _reply(lesson)) == lesson.accepted[0]
                    read += 1
    assert read >= 40


def _said(text: str) -> Any:
    from upkeep.cell import Reply

    return Reply(text, None, "stop", 0, 0, 0)


def test_what_is_taken_out_of_a_text_stands_in_it(asked: dict[str, list[Lesson]]) -> None:
    for lesson in asked[ENTITIES] + asked[ENTITIES + OF]:
        assert all(name in lesson.prefix for name in json.loads(_reply(lesson))["entities"])
    for lesson in asked[TRIPLES] + asked[TRIPLES + OF]:
        assert all(part in lesson.prefix for triple in json.loads(_reply(lesson))["triples"] for part in triple)


def test_names_and_words_are_found_at_the_ends_of_a_text_and_within_brackets() -> None:
    assert passages._names("Zorbel Kim met Zorbel ", frozenset({"zorbel", "kim"})) == ["Zorbel Kim", "Zorbel"]
    plain, bracketed = playing.Words().documents(["Zorbel met Kim", "(Zorbel) met Kim."])
    assert np.array_equal(plain, bracketed)


def test_memories_and_summaries_are_within_their_budgets(asked: dict[str, list[Lesson]], size: Encoder) -> None:
    for skill in (REWRITTEN, SUMMED, REWRITTEN + OF, SUMMED + OF):
        for lesson in asked[skill]:
            (budget,) = re.findall(r"(?:about|below) (\d+) tokens", lesson.prefix)
            assert size.size(_reply(lesson)) <= int(budget)
            assert all(line in lesson.prefix for line in lesson.accepted if line != NOTHING)


def test_what_tells_an_answer_stands_in_the_documents_and_the_answer_rests_on_it(room: playing.Room) -> None:
    small = playing.replace(room, share=1.0)
    seen = set[str]()
    for seed in range(400):
        told = small.text(Random(seed), 3, 5, questions=2)
        text = "\n".join(document.text for document in told.documents)
        seen.add(told.prompt)
        for question in told.questions:
            assert question.told_in(text) and question.reply.endswith(question.answer)
            lines = " ".join(sentence.line for sentence in question.told_by)
            written, *_ = question.reply.removeprefix("Think:").strip().split("\n")
            counted = re.sub(r"(^|\s)\d+\. | \w+: \d+\.$", r"\1", written).strip()
            assert question.answer in lines or written in lines or counted in lines, (lines, question.reply)
            assert all(word in question.probe.question for word in question.words[0].split())
    assert len(seen) == len(room.groups)


def test_a_lesson_s_chat_is_the_one_of_the_tokenizers_template(tmp_path: Path, room: playing.Room) -> None:
    from transformers import AutoTokenizer

    tokenizer.save(Tokenizer.from_file(str(SHIPPED / "tokenizer.json")), tmp_path)
    reader = AutoTokenizer.from_pretrained(tmp_path)
    call = ToolCall("c0", "search", '{"query": "Zorbel\'s \\"größe\\" <b>"}')
    chat = [
        Message(role="system", parts=["Rules.", " More."]),
        Message(role="user", parts=["# Question\nWho?"]),
        Message(role="assistant", parts=[""], tool_calls=[call]),
        Message(role="tool", parts=["# chunk index : 1"], tool_call_id="c0"),
    ]
    plain = [{"role": m["role"], "content": "".join(m["parts"])} for m in chat[:2]]
    whole = [toolcalls.templated(m["role"], m["parts"], m.get("tool_calls", ()), m.get("tool_call_id")) for m in chat]
    tools = [searching.SEARCH]
    for messages, mine, given in ((plain, chat[:2], []), (whole, chat, tools)):
        told = reader.apply_chat_template(messages, tools=given or None, tokenize=False, add_generation_prompt=True)
        assert told == playing.rendered(mine, given)


@pytest.fixture(scope="module")
def held_out(catalog: Catalog) -> tuple[list[World], set[str]]:
    """The worlds of `mini` and some that the evaluation alone sees, and the invented names in them."""
    drawn = set[str]()
    half, made = names.is_held_out, synthetic.Cast

    def noted(word: str) -> bool:
        if half(word):
            drawn.add(word.lower())
        return half(word)

    def cast(*people_places_objects: Any) -> synthetic.Cast:
        drawn.update(name.lower() for some in people_places_objects for name in some)
        return made(*people_places_objects)

    with pytest.MonkeyPatch.context() as patch:
        for module in (names, code(catalog, "prelude", "languages")):
            patch.setattr(module, "is_held_out", noted)
        patch.setattr(synthetic, "Cast", cast)
        found = [
            inputs_of.build_world(catalog, name, int(catalog.dataset(name).options["seed"]))
            for name in inputs_of.DATASETS
        ]
        # OAKS's builders draw from both halves of the names.
        oaks = ("oaks_babi_mini", "oaks_novel_mini")
        found += [inputs_of.build_world(catalog, name, seed) for name in oaks for seed in inputs_of.UNSEEN]
    return found, drawn & renaming.words_of(found)


@pytest.fixture(scope="module")
def teacher(catalog: Catalog, held_out: tuple[list[World], set[str]], size: Encoder) -> Teacher:
    worlds = [
        inputs_of.build_world(catalog, name, seed)
        for name in ("evowiki_mini", "oaks_babi_mini", "prelude_mini")
        for seed in inputs_of.SEEDS[:3]
    ]
    given = inputs_of.given(catalog, STAGES[-1], STAGES[:-1], held_out[0])
    return Teacher(worlds, msgspec.structs.replace(given, known=[]), size, ROOT / "methods")


@pytest.mark.parametrize("kind", sorted({kind for stage in STAGES for kind in stage.lessons}))
def test_no_name_of_a_world_that_is_asked_about_is_in_a_lesson(
    kind: str, teacher: Teacher, held_out: tuple[list[World], set[str]], given: Given
) -> None:
    """And so no sentence or value that has one. What is known by heart is left out: that it is told is its purpose."""
    worlds, invented = held_out
    assert len(invented) > 300
    chinese = renaming.chinese_names(given.held_out)
    own = {name for world in worlds for text in renaming.texts(world) for name in chinese(text)}
    assert len(own) > 5
    texts = 0
    for seed in range(DRAWN):
        for lesson in teacher.draws[kind](Random(seed), 4, 1.0):
            for text in (lesson.prefix, *(part for turn in lesson.turns for part in turn)):
                texts += 1
                assert invented.isdisjoint(map(str.lower, WORD.findall(text))), (lesson.skill, text)
                assert own.isdisjoint(chinese(text)), (lesson.skill, text)
    assert texts >= 2000
