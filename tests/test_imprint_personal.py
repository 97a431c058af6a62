"""ImprintBench, Personalization: what is asked of a user is what the conversations say, and every audit can reject."""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest
import yaml

from conftest import ROOT, put_dataset, spec_of
from imprint_personal import (
    attributes,
    author,
    compositions,
    families,
    frames,
    horizonbench,
    implicit,
    personamem,
    personas,
    program,
    recall,
    supervision,
    synthetic,
    synthetic_releases,
    tables,
    unknown,
    updates,
)
from upkeep import card_numbers
from upkeep.building import annotator, assistant, leaks, reading, store, tokens
from upkeep.building.assistant import Step
from upkeep.building.build import build_dataset
from upkeep.building.names import Names, is_held_out
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError

NAME = "imprint_personal"
TABLE = "benchmark/text/benchmark.csv"
Script = dict[str, Callable[[Any], Any]]


def catalog(
    folder: Path, name: str, options: dict[str, Any], data: dict[str, str], faults: dict[str, str] | None = None
) -> Catalog:
    spec = spec_of(name)
    spec["options"] |= options
    spec["faults"] |= faults or {}
    put_dataset(folder, name, spec)
    (folder / "config").mkdir()
    (folder / "config" / "config.yaml").write_text(yaml.safe_dump({"data": data}))
    return Catalog(folder)


def built(folder: Path, name: str, options: dict[str, Any] | None = None, **how: Any) -> store.Dataset:
    build_dataset(catalog(folder, name, options or {}, how.pop("data", {}), **how), name, folder / "out" / name)
    return store.load(folder / "out" / name)


@pytest.fixture(scope="module")
def mini(tmp_path_factory: pytest.TempPathFactory) -> store.Dataset:
    return built(tmp_path_factory.mktemp("mini"), f"{NAME}_mini")


@pytest.fixture(scope="module")
def asked(mini: store.Dataset) -> list[dict[str, Any]]:
    """Probes with their gold and the texts of their evidence."""
    texts = dict(mini.documents.select("document_id", "text").iter_rows())
    rows = mini.probes.join(mini.gold, on="probe_id", maintain_order="left").to_dicts()
    return [row | {"texts": [texts[id] for id in row["evidence"]]} for row in rows]


def made(personamem: int = 3, horizonbench: int = 2, seed: int = 5) -> synthetic.World:
    sizes = synthetic.Sizes(personamem=personamem, horizonbench=horizonbench)
    return synthetic.make(Random(seed), Names(Random(seed)), sizes)


@pytest.fixture
def releases_on_disk(tmp_path: Path) -> dict[str, Path]:
    return synthetic_releases.write(made(), tmp_path / "data", TABLE)


def from_files(
    folder: Path,
    paths: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    script: Script | None = None,
    options: dict[str, Any] | None = None,
    faults: dict[str, str] | None = None,
) -> store.Dataset:
    """The full dataset out of files, with a program in the model's place."""
    helper = assistant.Scripted({**program.script(made()), **(script or {})})
    monkeypatch.setattr(annotator, "hire", lambda context, model: nullcontext(helper))
    data = {f"{NAME}.personamem": str(paths["personamem_v2"]), f"{NAME}.horizonbench": str(paths["horizonbench"])}
    sizes = {"personamem": 3, "horizonbench": 2, "assistant": "some-model"}
    return built(folder, NAME, sizes | (options or {}), data=data, faults=faults)


# ---------------------------------------------------------------- the small world


def test_the_small_one_has_all_families_and_subtypes_and_keeps_its_limits(mini: store.Dataset) -> None:
    slices = mini.card.slices
    assert set(slices["family"]) == set(families.FAMILIES)
    assert {"new_info", "changed_info", "comp_rel_2", "comp_rel_3"} <= set(slices["subtype"])
    assert len(slices["persona"]) == 8 and set(slices["source"]) == {"personamem_v2", "horizonbench"}
    assert len(mini.probes) < 300
    assert mini.documents["tokens"].max() <= 128  # type: ignore[operator]
    assert mini.documents.group_by("stream").len()["len"].max() <= 60  # type: ignore[operator]


def test_no_answer_is_that_of_most_questions_of_a_form(asked: list[dict[str, Any]]) -> None:
    for form in ("short", "choice"):
        golds = Counter(row["answers"][0] for row in asked if row["form"] == form)
        assert golds.most_common(1)[0][1] < 0.6 * golds.total(), form


def test_a_reader_of_the_conversations_alone_gives_the_same_answers(
    mini: store.Dataset, asked: list[dict[str, Any]]
) -> None:
    last: dict[tuple[str, str], str] = {}
    for stream, text in mini.documents.select("stream", "text").iter_rows():
        for attribute, value in re.findall(r"[Mm]y ([a-z ]+) is (.+?)(?: now)?\.", text):
            last[stream, attribute] = value
    checked = 0
    for row in asked:
        direct = re.fullmatch(r"What is [^']+'s (.+?)(?: now)?\?", row["question"])
        if direct and row["slice_family"] in ("dir_acq", "temp_upd"):
            assert row["answers"][0] == last[row["stream"], direct[1]], row["question"]
            checked += 1
    assert checked > 40


def test_answers_are_in_the_evidence_and_old_ones_are_told_before_it(
    mini: store.Dataset, asked: list[dict[str, Any]]
) -> None:
    before: dict[str, str] = {}
    for stream, text in mini.documents.select("stream", "text").iter_rows():
        before[stream] = before.get(stream, "") + "\n" + text
    for row in asked:
        if row["form"] == "short" and row["slice_family"] != "bound_abs":
            assert any(leaks.tells(text, row["answers"]) for text in row["texts"]), row["probe_id"]
            assert all(row["outdated"][0] in before[row["stream"]] for _ in row["outdated"][:1])
        elif row["form"] == "choice":
            right = row["options"]["ABCD".index(row["answers"][0])].split(", ")
            assert len(row["texts"]) == int(row["slice_subtype"][-1]) == len(right)


def test_changed_questions_know_the_old_answer_and_new_ones_have_none(asked: list[dict[str, Any]]) -> None:
    for row in asked:
        if row["slice_subtype"] == "changed_info":
            assert row["outdated"] and row["outdated"][0] != row["answers"][0]
        if row["slice_subtype"] == "new_info":
            assert not row["outdated"]


def test_what_a_user_wanted_forgotten_or_never_said_is_asked_only_to_be_declined(
    asked: list[dict[str, Any]],
) -> None:
    for row in asked:
        forgotten = any("Please forget what I told you about my" in text for text in row["texts"])
        private = any("My illness" in text for text in row["texts"])
        if forgotten or private:
            assert row["slice_family"] == "bound_abs"
        if row["slice_family"] == "bound_abs":
            assert row["answers"] == list(unknown.ABSTENTIONS) and row["form"] == "short"
    kinds = [row["texts"] for row in asked if row["slice_family"] == "bound_abs"]
    assert any(len(texts) == 2 for texts in kinds) and any(not texts for texts in kinds)


def test_unknown_things_of_other_users_are_unknown_of_this_one(
    mini: store.Dataset, asked: list[dict[str, Any]]
) -> None:
    said = {stream: "\n".join(group["text"]) for (stream,), group in mini.documents.group_by("stream")}
    for row in asked:
        if row["slice_family"] == "bound_abs" and not row["texts"]:
            attribute = re.fullmatch(r"What is [^']+'s (.+)\?", row["question"])[1]  # type: ignore[index]
            assert attribute not in said[row["stream"]]
            known = next(a for a in attributes.ATTRIBUTES if a.name == attribute)
            assert not any(known.implied.format(value) in said[row["stream"]] for value in known.values)


def test_options_realise_the_truth_table_and_the_gold_moves(asked: list[dict[str, Any]]) -> None:
    letters = Counter()
    for row in (row for row in asked if row["form"] == "choice"):
        letters[row["answers"][0]] += 1
        gold = row["options"]["ABCD".index(row["answers"][0])].split(", ")
        met = sorted([offer in option.split(", ") for offer in gold] for option in row["options"])
        assert met == sorted(compositions.truth_table(len(gold)))
    assert set(letters) == set("ABCD")


def test_the_truth_tables_are_those_of_the_paper() -> None:
    t, f = True, False
    assert compositions.truth_table(2) == [[t, t], [f, t], [t, f], [f, f]]
    assert compositions.truth_table(3) == [[t, t, t], [f, t, t], [t, f, t], [t, t, f]]


def test_all_questions_come_after_the_last_session(mini: store.Dataset) -> None:
    ends = mini.documents.group_by("stream").agg(pl.max("position").alias("end"))
    assert mini.probes.join(ends, on="stream").filter(pl.col("position") != pl.col("end")).is_empty()


def test_pairs_are_not_asked_and_teach_only_what_still_holds(mini: store.Dataset, asked: list[dict[str, Any]]) -> None:
    assert not leaks.shared((row["question"] for row in asked), [pair.question for pair in mini.pairs])
    assert len({pair.question for pair in mini.pairs}) == len(mini.pairs) > 200
    changed = {
        re.fullmatch(r"What is (.+'s .+) now\?", row["question"])[1]: row["outdated"][1]  # type: ignore[index]
        for row in asked
        if row["slice_subtype"] == "changed_info"
    }
    answers = {pair.answer.removesuffix(".") for pair in mini.pairs}
    assert changed and not answers & set(changed.values())
    assert all(any(answer.startswith(f"{what} is ") for answer in answers) for what in changed)


def test_a_world_keeps_what_was_true_before_and_uses_names_of_either_half() -> None:
    for held_out in (True, False):
        users = synthetic.make(Random(1), Names(Random(1), held_out=held_out), synthetic.Sizes(2, 1)).personamem
        for user in users:
            assert all(is_held_out(word) == held_out for word in user.name.split())
            changed = [trait for trait in user.traits if trait.before]
            assert len(changed) == 4 and all(trait.before != trait.now for trait in changed)
            assert all({trait.before, trait.now} <= set(trait.attribute.values) for trait in changed)


def test_another_seed_gives_another_world_and_the_same_seed_the_same(tmp_path: Path, mini: store.Dataset) -> None:
    assert built(tmp_path / "a", f"{NAME}_mini").card.content == mini.card.content
    assert built(tmp_path / "b", f"{NAME}_mini", {"seed": 1}).card.content != mini.card.content


def test_the_papers_statistics_are_in_the_card(mini: store.Dataset) -> None:
    own = set(mini.card.statistics) | {f"{s}: {v}" for s, values in mini.card.slices.items() for v in values}
    assert set(spec_of(NAME)["published"]) <= own
    numbers = card_numbers.published(Catalog(ROOT).dataset(NAME), ROOT / "papers")
    assert numbers["corpus_tokens"] == 1_933_409 and numbers["family: temp_upd"] == 1111
    assert numbers["article_tokens_mean: horizonbench"] == 37_710
    statistics = mini.card.statistics
    assert statistics["articles"] == 4 + 4 * 4
    assert statistics["cq_tokens"] == sum(statistics[k] for k in ("corpus_tokens", "question_tokens", "answer_tokens"))


# ---------------------------------------------------------------- audits


def rejecting(
    tmp_path: Path, paths: dict[str, Path], monkeypatch: pytest.MonkeyPatch, step: Step[Any, Any], reply: Any
) -> store.Dataset:
    return from_files(tmp_path / "built", paths, monkeypatch, {step.name: lambda given: reply})


@pytest.mark.parametrize(
    ("step", "reply", "family", "reason"),
    [
        (recall.CONTRACT, recall.ContractVerdict(True, False), "dir_acq", "contract audit"),
        (recall.CONTRACT, None, "ref_res", "contract audit"),
        (implicit.FROM_FACTS, "I don't know", "imp_rel", "fact-list oracle"),
        (implicit.APPLICATION, implicit.ApplicationVerdict(True, True), "imp_rel", "application audit"),
        (implicit.UNIVERSAL, implicit.UniversalVerdict("YES"), "imp_rel", "universality audit"),
        (compositions.CHOOSE, "uncertain", "comp_rel", "fact-list oracle"),
        (
            compositions.MATRIX,
            compositions.MatrixVerdict({}, compositions.SEVERAL),
            "comp_rel",
            "matrix and family audit",
        ),
        (compositions.COMPOSE, None, "comp_rel", "no candidate of the truth table"),
        (author.JUDGED, "MATCH", "temp_upd", "answered blind"),
        (recall.RECALL, author.Candidate("What is it?", " "), "dir_acq", "no candidate"),
    ],
)
def test_an_audit_that_fails_leaves_no_question_of_its_family(
    tmp_path: Path,
    releases_on_disk: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    step: Step[Any, Any],
    reply: Any,
    family: str,
    reason: str,
) -> None:
    data = rejecting(tmp_path, releases_on_disk, monkeypatch, step, reply)
    assert family not in data.card.slices["family"] and "bound_abs" in data.card.slices["family"]
    assert data.card.statistics[f"left out: {family}, {reason}"] > 0


def test_a_matrix_that_differs_in_one_cell_is_rejected(
    tmp_path: Path, releases_on_disk: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def matrix(given: compositions.Choose) -> compositions.MatrixVerdict:
        found = program._matrix(given)
        found["A"][0] = not found["A"][0]
        return compositions.MatrixVerdict(found, compositions.SEVERAL)

    data = from_files(tmp_path / "built", releases_on_disk, monkeypatch, {compositions.MATRIX.name: matrix})
    assert "comp_rel" not in data.card.slices["family"]


def test_options_that_appeal_to_everybody_are_rejected(
    tmp_path: Path, releases_on_disk: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = from_files(tmp_path / "built", releases_on_disk, monkeypatch, {compositions.APPEAL.name: lambda given: "C"})
    golds = data.probes.join(data.gold, on="probe_id").filter(pl.col("form") == "choice")["answers"].list.first()
    assert "C" not in set(golds) and len(golds)


def test_questions_that_hold_their_answer_or_a_fact_are_left_out(
    tmp_path: Path, releases_on_disk: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def telling(given: Any) -> Any:
        name, attribute, value = program.parsed(given.claim)
        return author.Candidate(f"Is {value} the {attribute} of {name}?", value)

    def naming(given: implicit.Apply) -> implicit.Applied:
        return implicit.Applied(f"What should be suggested, with {given.distractors[0].value}?", "the harbour grill")

    script = {updates.NEW_INFO.name: telling, implicit.APPLY.name: naming}
    data = from_files(tmp_path / "built", releases_on_disk, monkeypatch, script)
    assert "new_info" not in data.card.slices["subtype"] and "imp_rel" not in data.card.slices["family"]
    assert data.card.statistics["left out: temp_upd, answer in question"] > 0
    assert data.card.statistics["left out: imp_rel, answer or fact in question"] > 0


def test_a_pair_that_is_asked_is_dropped_and_counted(
    tmp_path: Path, releases_on_disk: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def distil(given: supervision.Distil) -> list[author.Candidate]:
        taken = author.Candidate(f"what is {given.user}'s  {given.frame.attribute}", given.frame.value)
        return [taken, *program._distil(given)[:1]]

    data = from_files(tmp_path / "built", releases_on_disk, monkeypatch, {supervision.DISTIL.name: distil})
    assert data.card.statistics["left out: pairs, asked in the evaluation"] > 0
    assert all(not pair.question.startswith("Which") for pair in data.pairs) and data.pairs


def test_direct_is_by_shared_words_and_else_by_the_explicitness_step(
    tmp_path: Path, releases_on_disk: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[recall.Explicit] = []

    def unrelated(one: recall.Explicit) -> str:
        given.append(one)
        return "D"

    data = from_files(tmp_path / "built", releases_on_disk, monkeypatch, {recall.EXPLICIT.name: unrelated})
    assert given and all(personas.overlap(one.claim, one.turn) < 0.8 for one in given)
    assert data.card.statistics["left out: facts, message does not show it"] == len(given)
    assert personas.overlap("Ada's favourite food is soup", "I am Ada. My favourite food is soup.") == 1
    assert personas.overlap("", "anything") == 0


@pytest.mark.parametrize(
    ("reply", "letter"), [("B", "B"), ("The answer is C.", "C"), ("A or B", None), ("uncertain", None), (None, None)]
)
def test_a_letter_counts_only_where_it_is_the_only_one(reply: str | None, letter: str | None) -> None:
    assert author.letter(reply) == letter


def test_the_judges_last_word_counts() -> None:
    assert author.verdict("It is a MATCH? No: NONMATCH") == "NONMATCH"
    assert author.verdict("nothing") is None


@pytest.mark.parametrize(
    "change",
    [
        {"gold_option": "E"},
        {"gold_option": "B"},
        {"options": {"A": "a", "B": "a", "C": "c", "D": "d"}},
        {"options": {"A": "a", "B": "b", "C": "c"}},
        {"satisfaction": {mark: [True, True] for mark in "ABCD"}},
    ],
)
def test_options_that_break_the_truth_table_are_no_candidates(change: dict[str, Any]) -> None:
    good: dict[str, Any] = {
        "options": {mark: f"option {mark}" for mark in "ABCD"},
        "gold_option": "A",
        "satisfaction": dict(zip("ABCD", compositions.truth_table(2), strict=True)),
    }
    assert compositions._well_formed(compositions.Composed(**good), 2)
    assert not compositions._well_formed(compositions.Composed(**(good | change)), 2)


def test_every_prompt_shows_what_its_step_is_given() -> None:
    frame = program._framed(frames.FactGiven("Ada Byron's usual drink is tea", "k", "t", "Ada Byron"))
    options = ["one", "two", "three", "four"]
    shown: list[tuple[Step[Any, Any], Any, list[str]]] = [
        (
            frames.FRAME,
            frames.FactGiven("a claim", "a kind", "a topic", "Ada"),
            ["a claim", "a kind", "a topic", "Ada"],
        ),
        (recall.EXPLICIT, recall.Explicit("a claim", "a turn"), ["a claim", "a turn"]),
        (recall.RECALL, recall.Recall(frame, "ref_res", "Ada"), ["usual drink", "paraphrase", "Ada"]),
        (recall.CONTRACT, recall.Contract(frame, "dir_acq", "Why?", "so"), ["dir_acq", "Why?", "so", "usual drink"]),
        (updates.CHANGED, updates.Changed("old", "new", "topic", "Ada"), ["old", "new", "topic"]),
        (implicit.APPLY, implicit.Apply(frame, [frame], "meal", ["tea"], "Ada"), ["meal", "usual drink", "Ada"]),
        (
            compositions.COMPOSE,
            compositions.Compose([frame, frame], "meal", "Which?", ["tea"]),
            ["Which?", "['F', 'T']"],
        ),
        (
            compositions.CHOOSE,
            compositions.Choose(["fact"], "Which?", options),
            ["- fact", "A. one", "D. four", "uncertain"],
        ),
        (author.BLIND, author.Blind("Why?"), ["Why?"]),
        (author.FORCED, author.Blind("Why?", options), ["Why?", "B. two"]),
        (supervision.DISTIL, supervision.Distil(frame, 7, "Ada"), ["7", "usual drink"]),
    ]
    for step, given, parts in shown:
        prompt = step.prompt(given)
        assert isinstance(prompt, str) and all(part in prompt for part in parts), step.name


# ---------------------------------------------------------------- the releases


def personamem_table(folder: Path) -> tuple[Path, list[dict[str, str]]]:
    path = folder / TABLE
    with path.open(newline="", encoding="utf-8") as file:
        return path, list(csv.DictReader(file))


def rewrite(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def read_personamem(folder: Path, count: int = 3, **policy: str) -> tuple[personas.Read, reading.Faults]:
    faults = reading.Faults(policy, Path("dataset.yaml"))  # type: ignore[arg-type]
    return personamem.read(folder, TABLE, count, 0, faults, 10_000), faults


def read_horizonbench(folder: Path, count: int = 2, **policy: str) -> tuple[personas.Read, reading.Faults]:
    faults = reading.Faults(policy, Path("dataset.yaml"))  # type: ignore[arg-type]
    return horizonbench.read(folder, count, 4, 0, faults, tokens.load(), 10_000), faults


def test_both_releases_say_what_the_world_says(releases_on_disk: dict[str, Path]) -> None:
    users = made()
    for read, known in (
        (read_personamem(releases_on_disk["personamem_v2"])[0], users.personamem),
        (read_horizonbench(releases_on_disk["horizonbench"])[0], users.horizonbench),
    ):
        assert [persona.name for persona in read.personas] == [user.name for user in known]
        for persona, user in zip(read.personas, known, strict=True):
            text = "\n".join(personas.written(session) for session in persona.sessions)
            assert all(talk.user in text and talk.assistant in text for talk in user.talks)
            assert "You help this user" not in text
            current = {fact.claim for fact in persona.facts if fact.current and not fact.hidden}
            assert {claim.split(", ")[-1] for claim in current} == {
                synthetic.claim(user.name, trait.attribute.name, trait.now) for trait in user.traits
            }
            changed = {f.claim.split("is ")[-1]: f.previous for f in persona.facts if f.previous and f.current}
            assert {t.now: t.before for t in user.traits if t.before} == {
                now: (before or "").split("is ")[-1] for now, before in changed.items()
            }


def test_the_chosen_personas_depend_on_the_seed_alone(releases_on_disk: dict[str, Path]) -> None:
    first = [persona.id for persona in read_personamem(releases_on_disk["personamem_v2"], 2)[0].personas]
    assert first == [persona.id for persona in read_personamem(releases_on_disk["personamem_v2"], 2)[0].personas]
    assert len(first) == 2 and first == sorted(first)
    with pytest.raises(UpkeepError, match="too few personas"):
        read_personamem(releases_on_disk["personamem_v2"], 4)


def test_chunks_are_in_order_and_about_as_large_as_each_other(releases_on_disk: dict[str, Path]) -> None:
    for persona in read_horizonbench(releases_on_disk["horizonbench"])[0].personas:
        assert list(persona.chunks) == sorted(persona.chunks) and set(persona.chunks) == {0, 1, 2, 3}
    assert horizonbench.divided([10] * 8, 4) == (0, 0, 1, 1, 2, 2, 3, 3)
    assert horizonbench.divided([5], 4) == (2,) and horizonbench.divided([], 4) == ()
    assert horizonbench.divided([0, 0], 1) == (0, 0)


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
def test_horizonbench_is_the_same_in_each_form(releases_on_disk: dict[str, Path], tmp_path: Path, suffix: str) -> None:
    folder = releases_on_disk["horizonbench"]
    rows = pl.read_parquet(folder / "mental_state_graphs" / "*.parquet").to_dicts()
    other = tmp_path / f"graphs{suffix}"
    if suffix == ".parquet":
        pl.DataFrame(rows[::-1]).write_parquet(other)
    else:
        lines = [json.dumps({k: json.loads(v) if v[:1] in "[{" else v for k, v in row.items()}) for row in rows]
        other.write_text("[\n" + ",\n".join(lines) + "\n]\n" if suffix == ".json" else "\n".join(lines))
    assert read_horizonbench(other)[0].personas == read_horizonbench(folder)[0].personas


def test_a_table_of_another_form_is_refused_with_the_columns_it_should_have(tmp_path: Path) -> None:
    faults = reading.Faults({}, Path("dataset.yaml"))
    (tmp_path / "table.csv").write_text("persona,query\n1,why\n")
    with pytest.raises(UpkeepError, match=r"no column `persona_id`"):
        list(tables.rows(tmp_path / "table.csv", ["persona_id"], faults))
    (tmp_path / "table.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(UpkeepError, match="not readable as Parquet"):
        list(tables.rows(tmp_path / "table.parquet", ["persona_id"], faults))
    (tmp_path / "table.xlsx").write_bytes(b"")
    with pytest.raises(UpkeepError, match="no table here"):
        tables.files(tmp_path / "table.xlsx")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UpkeepError, match="no table here"):
        tables.files(tmp_path / "empty")


def test_a_broken_row_in_the_middle_is_named_by_its_line_and_the_rest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(b'id,text\n1,"two\nlines"\n2\n3,caf\xe9\n\n4,fine\n')
    faults = reading.Faults({"broken_record": "skip", "encoding": "skip"}, tmp_path / "dataset.yaml")
    assert [row["id"] for row in tables.rows(path, ["id", "text"], faults)] == ["1", "4"]
    assert faults.counts == {"broken_record": 1, "encoding": 1}
    assert f"{path}, line 4" in faults.places["broken_record"][0]
    assert f"{path}, line 5" in faults.places["encoding"][0]
    with pytest.raises(UpkeepError, match="a row of 1 fields"):
        list(tables.rows(path, ["id"], reading.Faults({}, tmp_path / "dataset.yaml")))


def test_faults_of_a_release_are_counted_once_in_the_card(
    tmp_path: Path, releases_on_disk: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, rows = personamem_table(releases_on_disk["personamem_v2"])
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:4], "no row\n", *lines[4:]]))
    table = releases_on_disk["horizonbench"] / "mental_state_graphs" / "test-00000-of-00001.parquet"
    frame = pl.read_parquet(table)
    talks = json.loads(frame["conversations"][0])
    talks[0]["date"], talks[1]["date"], talks[2]["conversation"]["turns"] = "", "05/08/2025", []
    frame[0, "conversations"] = json.dumps(talks)
    pl.concat([frame, frame[:1]]).write_parquet(table)
    data = from_files(tmp_path / "built", releases_on_disk, monkeypatch)
    assert data.card.faults == {
        "bad_date": 1,
        "broken_record": 1,
        "duplicate_id": 1,
        "empty_text": 1,
        "missing_date": 1,
    }
    assert any(f"{path}, line 5" in note for note in data.card.notes) and rows
    for kind in data.card.faults:
        with pytest.raises(UpkeepError):
            from_files(tmp_path / kind, releases_on_disk, monkeypatch, faults={kind: "refuse"})


def test_a_snippet_is_found_whatever_its_white_space_and_one_that_is_not_there_is_counted(
    releases_on_disk: dict[str, Path],
) -> None:
    folder = releases_on_disk["personamem_v2"]
    whole = read_personamem(folder)[0]
    path, rows = personamem_table(folder)
    plain = [n for n, row in enumerate(rows) if row["updated"] == "False" and row["pref_type"] == "neutral_preferences"]
    spaced, lost = plain[0], plain[1]
    rows[spaced]["related_conversation_snippet"] = rows[spaced]["related_conversation_snippet"].replace(". ", ".  ")
    rows[lost]["related_conversation_snippet"] = json.dumps([{"role": "user", "content": "never said"}])
    rewrite(path, rows)
    read = read_personamem(folder)[0]
    assert read.left_out["conversation not in the history"] == 1
    facts = {fact.claim: fact for persona in read.personas for fact in persona.facts}
    assert facts[rows[spaced]["preference"]].sessions and rows[lost]["preference"] not in facts
    assert sum(len(p.facts) for p in whole.personas) == sum(len(p.facts) for p in read.personas) + 1


def test_what_others_prefer_and_what_has_no_claim_is_no_fact_of_the_user(releases_on_disk: dict[str, Path]) -> None:
    folder = releases_on_disk["personamem_v2"]
    path, rows = personamem_table(folder)
    plain = [n for n, row in enumerate(rows) if row["pref_type"] == "neutral_preferences" and not row["prev_pref"]]
    rows[plain[0]]["who"], rows[plain[1]]["preference"] = "mother", ""
    rewrite(path, rows)
    assert read_personamem(folder)[0].left_out == {"not about the user": 1, "no claim": 1}


def test_a_missing_chat_history_is_named(releases_on_disk: dict[str, Path]) -> None:
    link = sorted((releases_on_disk["personamem_v2"] / "data" / "chat_history_32k").iterdir())[0]
    link.unlink()
    with pytest.raises(UpkeepError, match="chat history not found") as caught:
        read_personamem(releases_on_disk["personamem_v2"])
    assert str(link) in str(caught.value)


def test_a_history_may_be_a_bare_list_of_messages(releases_on_disk: dict[str, Path]) -> None:
    folder = releases_on_disk["personamem_v2"]
    before = read_personamem(folder)[0].personas
    for link in (folder / "data" / "chat_history_32k").iterdir():
        link.write_text(json.dumps(json.loads(link.read_text())["chat_history"]))
    assert read_personamem(folder)[0].personas == before


def test_a_change_that_no_session_tells_is_not_asked(releases_on_disk: dict[str, Path]) -> None:
    table = releases_on_disk["horizonbench"] / "mental_state_graphs" / "test-00000-of-00001.parquet"
    frame = pl.read_parquet(table)
    talks = json.loads(frame["conversations"][0])
    silent = [talk for talk in talks if not talk["event_id"].startswith("evolution_event")]
    frame[0, "conversations"] = json.dumps(silent)
    frame.write_parquet(table)
    read = read_horizonbench(releases_on_disk["horizonbench"])[0]
    assert read.left_out["change that no session tells"] == 4
    assert not any(fact.previous for fact in read.personas[0].facts)


def test_a_long_session_becomes_several_documents_and_the_evidence_is_the_right_one(
    tmp_path: Path, releases_on_disk: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = from_files(tmp_path / "built", releases_on_disk, monkeypatch, options={"chunk_tokens": 40})
    assert data.documents["tokens"].max() <= 40  # type: ignore[operator]
    texts = dict(data.documents.select("document_id", "text").iter_rows())
    rows = data.probes.join(data.gold, on="probe_id").filter(pl.col("slice_family").is_in(["dir_acq", "ref_res"]))
    for answers, evidence in rows.select("answers", "evidence").iter_rows():
        assert leaks.tells(" ".join(texts[id] for id in evidence), answers)


def test_files_without_a_model_or_without_a_path_are_refused_with_the_way_out(
    tmp_path: Path, releases_on_disk: dict[str, Path]
) -> None:
    with pytest.raises(UpkeepError, match="built from files of your own") as caught:
        built(tmp_path / "a", NAME)
    assert "imprint_personal.personamem" in str(caught.value)
    data = {f"{NAME}.personamem": str(releases_on_disk["personamem_v2"])}
    with pytest.raises(UpkeepError, match="no assistant"):
        built(tmp_path / "b", NAME, {"personamem": 1, "horizonbench": 0}, data=data)


def test_users_of_one_name_are_told_apart_in_questions(
    tmp_path: Path, releases_on_disk: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, rows = personamem_table(releases_on_disk["personamem_v2"])
    for row in rows:
        row["expanded_persona"] = json.dumps({"name": "Ada Byron"})
    rewrite(path, rows)
    data = from_files(tmp_path / "built", releases_on_disk, monkeypatch, options={"horizonbench": 0})
    for stream, question in data.probes.select("stream", "question").iter_rows():
        assert f"({stream})" in question


def test_a_row_that_lacks_a_field_is_a_fault_and_users_may_have_numbers(
    releases_on_disk: dict[str, Path], tmp_path: Path
) -> None:
    (source,) = tables.files(releases_on_disk["horizonbench"] / "mental_state_graphs")
    given = list(tables.rows(source, horizonbench.HORIZONBENCH_COLUMNS, reading.Faults({}, tmp_path)))
    lines = [
        {name: row[name] for name in horizonbench.HORIZONBENCH_COLUMNS} | {"user_id": n} for n, row in enumerate(given)
    ]
    del lines[1]["conversations"]
    table = tmp_path / "table.jsonl"
    table.write_text("".join(json.dumps(line) + "\n" for line in lines))
    faults = reading.Faults({"broken_record": "skip"}, tmp_path)
    read = horizonbench.read(table, len(lines) - 1, 4, 0, faults, tokens.load(), 10**6)
    assert [one.id for one in read.personas] == [f"horizonbench_{n}" for n in range(len(lines)) if n != 1]
    assert faults.counts == {"broken_record": 1}
    assert "line 2: no field `conversations`" in faults.places["broken_record"][0]


def test_a_paraphrase_with_a_banned_word_is_left_out() -> None:
    frame = frames.Frame("Ann likes tea", "favourite drink", "tea", "positive", [], "taste", [], [], ["leaf brew"])
    fact = personas.Fact("Ann likes tea", "food", "drinks", (0,))
    turn = personas.Turn("user", "I like tea.")
    ann = personas.Persona("ann", "personamem_v2", "Ann", (personas.Session((turn,)),), (fact,), (0,))
    writer = author.Author(assistant.Scripted({}), [ann], dict.fromkeys(families.FAMILIES, 1), 1, 0, 0)
    writer.frames["ann", fact.claim] = frame
    reply = author.Candidate("Which leaf brew does Ann take?", "black tea")
    assert writer.drafted([(ann, fact, "ref_res")], [reply]) == []
    assert writer.left_out == {"ref_res, surface form in question": 1}
    assert len(writer.drafted([(ann, fact, "dir_acq")], [reply])) == 1


def test_a_packed_table_that_ends_early_is_named(tmp_path: Path) -> None:
    table = tmp_path / "table.csv.gz"
    table.write_bytes(gzip.compress(b"user_id\n" + b"ann\n" * 5000)[:-20])
    with pytest.raises(UpkeepError, match=r"table\.csv\.gz: damaged"):
        list(tables._csv(table, ["user_id"], reading.Faults({}, tmp_path), None, ["user_id"]))


def test_neither_ids_nor_their_order_tell_the_family(asked: list[dict[str, Any]]) -> None:
    assert all(re.fullmatch(r"q\d{4}", row["question_id"]) for row in asked)
    first: dict[str, list[str]] = {}
    for row in asked:
        first.setdefault(row["stream"], []).append(row["slice_family"])
    assert len({tuple(dict.fromkeys(found)) for found in first.values()}) > len(first) / 2, "an order of families"
