"""Claims about training: on what a model is trained, what it may then be asked, and that no kill changes what it
learns."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import polars as pl
import pytest

from host_fakes import STREAMS, TRAINED_FILES, ScriptedRuntime, make_repository, training
from trainings import TRAINING, built, catalog, predictions_of, with_model, with_sets
from upkeep.building.assembling import Built
from upkeep.catalog import Catalog
from upkeep.contract import Pair
from upkeep.errors import UpkeepError
from upkeep.execution.rounds import BuiltDataset
from upkeep.execution.supervise import run_cell
from upkeep.execution.trained_on import Member, cutoff, members
from upkeep.identity import identity
from upkeep.jobs import Cell, TrainedModel, Training
from upkeep.layout import Layout

__all__ = ["catalog", "with_model"]


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("tiny+sft.lora", TrainedModel("tiny", "sft", "lora")),
        ("tiny+sft.lora@news", TrainedModel("tiny", "sft", "lora", "news")),
        ("tiny+sft.lora@news.half", TrainedModel("tiny", "sft", "lora", "news", "half")),
        ("tiny+cpt.full@news.half+sft.lora", TrainedModel("tiny+cpt.full@news.half", "sft", "lora")),
        ("tiny", None),
    ],
)
def test_a_models_name_says_what_it_was_trained_on(name: str, found: TrainedModel | None) -> None:
    assert TrainedModel.parse(name) == found


def test_a_training_is_called_by_what_its_path_says() -> None:
    for text in ("toy/trainer/a/none", "toy.half/trainer/a/none"):
        assert str(Training.parse(text)) == text
    assert Training.parse("toy.half/trainer/a/m").set == "half"


def test_each_stage_of_a_model_is_of_its_own_dataset(catalog: Catalog) -> None:
    cell = Cell("toy", "echo", "a", "m+trainer.a@other+trainer.a+trainer.a@toy.half")
    assert [str(one) for one in catalog.trainings_of(cell)] == [
        "toy.half/trainer/a/m+trainer.a@other+trainer.a",
        "toy/trainer/a/m+trainer.a@other",
        "other/trainer/a/m",
    ]


@pytest.mark.parametrize(
    ("name", "problem", "remedy"),
    [
        ("toy.thirds/trainer/a/none", "no training set 'thirds'", "choose another"),
        ("nowhere/trainer/a/none", "unknown dataset 'nowhere'", ""),
        ("toy/echo/a/none", "trains no model", "./upkeep cell toy/echo/a/none"),
    ],
)
def test_what_cannot_be_trained_is_named(catalog: Catalog, name: str, problem: str, remedy: str) -> None:
    with pytest.raises(UpkeepError, match=problem) as caught:
        catalog.check_training(Training.parse(name))
    assert remedy in (caught.value.remedy or "")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("supervision: C+Q", "", "says what on"),
        ("trains: true", "asks: true", "`asks` is for methods that train"),
    ],
)
def test_a_card_of_a_training_method_is_checked(catalog: Catalog, old: str, new: str, problem: str) -> None:
    card = catalog.root / "methods/trainer/method.yaml"
    card.write_text(card.read_text().replace(old, new))
    with pytest.raises(UpkeepError, match=problem):
        Catalog(catalog.root).method("trainer")


# ---------------------------------------------------------------- what it is trained on


def cutoff_of(catalog: Catalog, cell: Cell, corpus: BuiltDataset) -> dict[str, int]:
    return cutoff(catalog, cell, corpus, [(one, members(catalog, one)) for one in catalog.trainings_of(cell)])


def of(catalog: Catalog, chosen: str = "") -> dict[str, Member]:
    return {one.name: one for one in members(catalog, Training("toy", "trainer", "a", "none", chosen))}


def test_a_model_is_trained_on_all_documents_and_pairs_where_no_set_is_named(catalog: Catalog) -> None:
    (whole,) = of(catalog).values()
    assert whole.name == ""
    assert len(whole.documents) == sum(length for length, _ in STREAMS.values())
    assert len(whole.pairs) == 2 * len(whole.documents)


def test_a_share_is_of_each_streams_beginning_and_a_date_is_the_first_that_is_out(catalog: Catalog) -> None:
    (half,), (early,) = of(catalog, "half").values(), of(catalog, "early").values()
    assert {s: sum(d.stream == s for d in half.documents) for s in STREAMS} == {"a": 3, "b": 2, "c": 2}
    assert {d.position for d in early.documents} == {0, 1}
    for chosen in (half, early):
        assert {pair.document for pair in chosen.pairs} == {document.id for document in chosen.documents}


@pytest.mark.parametrize(("chosen", "names"), [("streams", ["a", "b", "c"]), ("kinds", ["first", "second"])])
def test_members_of_a_set_share_nothing_and_leave_nothing_out(
    catalog: Catalog, chosen: str, names: Sequence[str]
) -> None:
    whole, found = of(catalog)[""], of(catalog, chosen)
    assert list(found) == names
    ids = [document.id for member in found.values() for document in member.documents]
    assert sorted(ids) == sorted(document.id for document in whole.documents)
    for member in found.values():
        assert {pair.document for pair in member.pairs} == {document.id for document in member.documents}


def without_dates(one: Built) -> Built:
    return replace(one, documents=one.documents.with_columns(timestamp=pl.lit(None, pl.String)))


def without_sources(one: Built) -> Built:
    return replace(one, pairs=[msgspec.structs.replace(pair, document=None) for pair in one.pairs])


def without_pairs(one: Built) -> Built:
    return replace(one, pairs=[])


@pytest.mark.parametrize(
    ("chosen", "change", "problem"),
    [
        ("early", without_dates, "'a_c0' has no date"),
        ("half", without_sources, "does not say which document"),
        ("streams", without_sources, "does not say which document"),
        ("odd", lambda one: one, "no slice 'nothing'"),
        ("", without_pairs, "there are no pairs to train on"),
    ],
)
def test_what_cannot_be_chosen_is_refused(
    catalog: Catalog, chosen: str, change: Callable[[Built], Built], problem: str
) -> None:
    built(catalog, "toy", change)
    with pytest.raises(UpkeepError, match=problem):
        of(catalog, chosen)


def test_a_container_is_given_what_its_methods_supervision_names_and_no_more(tmp_path: Path) -> None:
    make_repository(tmp_path)
    counts = {}
    for supervision in ("C", "Q", "C+Q"):
        catalog = with_sets(tmp_path, supervision)
        runtime = training(TRAINED_FILES, 'open(os.path.join(model, "tokenizer.json"), "w").write(json.dumps('
                           '[len(open(cell[n]).readlines()) for n in ("documents", "pairs")]))')  # fmt: skip
        run_cell(catalog, TRAINING, runtime=runtime)
        counts[supervision] = json.loads(
            (Layout(catalog.results).trained(TRAINING) / "model/tokenizer.json").read_text()
        )
    assert counts == {"C": [15, 0], "Q": [0, 30], "C+Q": [15, 30]}


def test_a_training_is_stale_by_what_it_reads_alone(tmp_path: Path) -> None:
    make_repository(tmp_path)

    def changed(supervision: str, chosen: str, change: Callable[[Built], Built]) -> bool:
        catalog = with_sets(tmp_path, supervision)
        job = Training("toy", "trainer", "a", "none", chosen)
        before = identity(catalog, job)[0]
        built(catalog, "toy", change)
        return before != identity(Catalog(tmp_path), job)[0]

    def another_text(one: Built) -> Built:
        return replace(one, documents=one.documents.with_columns(text=pl.col("text") + "."))

    def another_question(one: Built) -> Built:
        return replace(one, probes=one.probes.with_columns(question=pl.col("question") + "!"))

    assert changed("C", "", another_text) and not changed("Q", "", another_text)
    assert changed("Q", "half", another_text), "which pairs are in it depends on the documents"
    assert changed("Q", "", without_pairs) and not changed("C", "", without_pairs)
    assert not changed("C+Q", "", another_question)


# ---------------------------------------------------------------- what it may be asked


@pytest.mark.parametrize(
    ("supervision", "chosen", "expected"),
    [
        ("C", "", {"a": 5, "b": 3, "c": 4}),
        ("C", ".half", {"a": 2, "b": 1, "c": 1}),
        ("C", ".early", {"a": 1, "b": 1, "c": 1}),
        ("Q", ".half", {"a": 2, "b": 1, "c": 1}),
        ("C", ".streams", {"a": 5, "b": 3, "c": 4}),
    ],
)
def test_a_model_is_asked_about_what_it_was_trained_on_from_its_last_document_on(
    tmp_path: Path, supervision: str, chosen: str, expected: dict[str, int]
) -> None:
    make_repository(tmp_path)
    catalog = with_sets(tmp_path, supervision)
    corpus = BuiltDataset.read(Layout(catalog.results).dataset("toy"))
    found = cutoff_of(catalog, Cell("toy", "echo", "a", f"none+trainer.a@toy{chosen}"), corpus)
    assert found == expected
    left = corpus.after(found).probes
    assert left and all(probe.position >= expected[probe.stream] for probe in left)


def test_a_model_that_was_trained_on_other_documents_is_asked_everything(catalog: Catalog) -> None:
    corpus = BuiltDataset.read(Layout(catalog.results).dataset("toy"))
    assert cutoff_of(catalog, Cell("toy", "echo", "a", "none+trainer.a@toy_later"), corpus) == {}
    assert cutoff_of(catalog, Cell("toy", "echo", "a", "none"), corpus) == {}


def test_documents_are_known_again_in_another_dataset_by_their_text(catalog: Catalog) -> None:
    built(catalog, "toy_later", toy="toy")
    again = BuiltDataset.read(Layout(catalog.results).dataset("toy_later"))
    copied = [msgspec.structs.replace(d, text=d.text.removeprefix("toy_later: ")) for d in again.documents]
    corpus = replace(again, documents=copied)  # type: ignore[type-var]
    assert cutoff_of(catalog, Cell("toy_later", "echo", "a", "none+trainer.a@toy.half"), corpus) == {
        "a": 2,
        "b": 1,
        "c": 1,
    }


def test_a_cell_asks_a_trained_model_nothing_that_is_before_its_cutoff(with_model: Catalog) -> None:
    run_cell(with_model, Training("toy", "trainer", "a", "m", "half"), runtime=training(TRAINED_FILES))
    cell = Cell("toy", "echo", "a", "m+trainer.a@toy.half")
    manifest = run_cell(with_model, cell, runtime=ScriptedRuntime())
    assert manifest.cutoff == {"a": 2, "b": 1, "c": 1}
    assert {int(p.probe_id.partition("@")[2]) for p in predictions_of(with_model, cell) if p.probe_id[0] == "a"} == {
        2, 3, 4, 5,
    }  # fmt: skip
    assert manifest.probes == 4 * 3 + 3 * 2 + 4 * 1


def test_a_cell_whose_every_probe_is_before_the_cutoff_is_refused(with_model: Catalog) -> None:
    def asked_early(one: Built) -> Built:
        kept = one.probes["position"] < 2
        return replace(one, probes=one.probes.filter(kept), gold=one.gold.filter(kept))

    built(with_model, "toy", asked_early)
    run_cell(with_model, Training("toy", "trainer", "a", "m"), runtime=training(TRAINED_FILES))
    with pytest.raises(UpkeepError, match="every probe of 'toy' is asked before the last document") as caught:
        run_cell(with_model, Cell("toy", "echo", "a", "m+trainer.a"), runtime=ScriptedRuntime())
    assert "until: 0.5" in str(caught.value.remedy)


@pytest.mark.parametrize("written", ["Question 0?", "  question 0"])
def test_a_cell_that_asks_what_its_model_was_taught_is_refused(with_model: Catalog, written: str) -> None:
    def teaches(one: Built) -> Built:
        return replace(one, pairs=[*one.pairs, Pair(question=written, answer="x", document="a_c0")])

    built(with_model, "toy_later", teaches)
    taught = Training("toy_later", "trainer", "a", "m")
    run_cell(with_model, taught, runtime=training(TRAINED_FILES))
    with pytest.raises(UpkeepError, match=r"1 training pairs of toy_later/trainer/a/m are questions") as caught:
        run_cell(with_model, Cell("toy", "echo", "a", "m+trainer.a@toy_later"), runtime=ScriptedRuntime())
    assert "line 31" in str(caught.value.found)
