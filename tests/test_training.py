"""Claims about training: on what a model is trained, what it may then be asked, and that no kill changes what it
learns."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import polars as pl
import pytest
import yaml

from host_fakes import STREAMS, TRAINED_FILES, ScriptedRuntime, make_repository, training
from upkeep import files, weights
from upkeep.building.assembling import Built
from upkeep.building.store import write
from upkeep.catalog import Catalog
from upkeep.contract import DatasetSpec, Pair, Prediction
from upkeep.errors import UpkeepError
from upkeep.execution.fetch import fetch
from upkeep.execution.rounds import BuiltDataset
from upkeep.execution.supervise import run_cell, traces
from upkeep.execution.trained_on import Member, cutoff, members
from upkeep.identity import identity, plan_dataset
from upkeep.integrity import Damaged
from upkeep.jobs import Cell, TrainedModel, Training
from upkeep.layout import Layout
from upkeep.normal_form import read_table

TRAINING = Training("toy", "trainer", "a", "none")
SETS = {
    "half": {"until": 0.5},
    "early": {"until": "2024-03-01"},
    "streams": {"by": "stream"},
    "kinds": {"by": "kind"},
    "odd": {"by": "nothing"},
}


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


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    make_repository(tmp_path)
    return with_sets(tmp_path)


def with_sets(root: Path, supervision: str = "C+Q") -> Catalog:
    """The dataset `toy` with training sets, documents that have dates and are of two kinds, and two pairs of each."""
    card = root / "datasets/toy/dataset.yaml"
    given = yaml.safe_load(card.read_text()) | {"training": SETS, "variants": {"full": None, "later": None}}
    card.write_text(yaml.safe_dump(given))
    method = root / "methods/trainer/method.yaml"
    method.write_text(re.sub("supervision: .*", f"supervision: {supervision}", method.read_text()))
    for name in ("toy", "toy_later"):
        built(Catalog(root), name)
    return Catalog(root)


def built(catalog: Catalog, name: str, change: Callable[[Built], Built] = lambda one: one, toy: str = "toy") -> None:
    """Build a dataset with the rows of `toy`, with dates, kinds of documents, and two pairs of each document."""
    folder = Layout(catalog.results).dataset(toy)
    documents, probes, gold = (read_table(folder, table) for table in ("documents", "probes", "gold"))
    if name != toy:
        documents = documents.with_columns(text=pl.lit(f"{name}: ") + pl.col("text"))
        probes = probes.with_columns(question=pl.lit(f"{name}: ") + pl.col("question"))
    dated = documents.with_columns(timestamp=pl.format("2024-0{}-01", pl.col("position") + 1))
    kind = pl.when(pl.col("stream") == "a").then(pl.lit("first")).otherwise(pl.lit("second"))
    pairs = [
        Pair(question=f"{name}, {n} of {document}", answer="a", document=document)
        for document in documents["document_id"]
        for n in range(2)
    ]
    made = Built(
        dated.with_columns(slice_kind=kind), probes, gold.with_columns(slice_kind=_kind(probes)), pairs, "words", 3,
        "ours", {},
    )  # fmt: skip
    target = Layout(catalog.results).dataset(name)
    target.mkdir(parents=True, exist_ok=True)
    (target / "pairs.jsonl").unlink(missing_ok=True)
    spec: DatasetSpec = catalog.dataset(name)
    write(target, change(made), name, spec, plan_dataset(catalog, name))


def _kind(probes: pl.DataFrame) -> pl.Series:
    return pl.Series(["first" if stream == "a" else "second" for stream in probes["stream"]])


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


@pytest.fixture
def with_model(catalog: Catalog) -> Catalog:
    """With the model `m` of a folder, which `echo` and `trainer` use."""
    root = catalog.root
    (root / "models/m").mkdir(parents=True)
    (root / "models/m/model.yaml").write_text(
        "{label: M, summary: s, source: path, location: weights, context_length: 100}"
    )
    (root / "weights").mkdir()
    (root / "weights/config.json").write_text("{}")
    (root / "containers/transformers").mkdir(exist_ok=True)
    (root / "containers/transformers/requirements.lock").write_text("")
    for method in ("echo", "trainer"):
        card = root / f"methods/{method}/method.yaml"
        card.write_text(card.read_text().replace("model: false", "model: true"))
    catalog = Catalog(root)
    fetch(catalog, "m")
    return catalog


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


def predictions_of(catalog: Catalog, cell: Cell) -> list[Prediction]:
    lines = (Layout(catalog.results).cell(cell) / "predictions.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Prediction) for line in lines]


# ---------------------------------------------------------------- attempts

STEPS = """
folder = os.path.join(cell["output"], "checkpoints")
os.makedirs(folder, exist_ok=True)
first = 1 + max([int(name) for name in os.listdir(folder)] or [0])
for step in range(first, 6):
    os.mkdir(os.path.join(folder, str(step)))
    if step == DIES:
        os.kill(os.getpid(), signal.SIGKILL)
open(os.path.join(model, "tokenizer.json"), "w").write(str(first))
"""


def steps(dies: int = 0) -> ScriptedRuntime:
    return training(TRAINED_FILES, STEPS.replace("DIES", str(dies)))


def test_a_training_goes_on_from_where_it_was_killed(catalog: Catalog) -> None:
    for dies in (2, 4):
        with pytest.raises(UpkeepError, match="the training failed") as caught:
            run_cell(catalog, TRAINING, runtime=steps(dies))
        assert "goes on from its last checkpoint" in str(caught.value.remedy)
    manifest = run_cell(catalog, TRAINING, runtime=steps())
    assert [one.outcome for one in manifest.attempts] == ["failed", "failed", "complete"]
    assert (Layout(catalog.results).trained(TRAINING) / "model/tokenizer.json").read_text() == "5"


def test_force_begins_at_the_beginning_and_so_does_another_identity(catalog: Catalog) -> None:
    for again in ("force", "identity"):
        with pytest.raises(UpkeepError):
            run_cell(catalog, TRAINING, runtime=steps(4), force=True)
        if again == "identity":
            (catalog.root / "methods/trainer/method.py").write_text("# edited")
            catalog = Catalog(catalog.root)
        run_cell(catalog, TRAINING, runtime=steps(), force=again == "force")
        assert (Layout(catalog.results).trained(TRAINING) / "model/tokenizer.json").read_text() == "1"


def test_what_a_training_has_reached_shows_and_one_that_gets_nowhere_too(catalog: Catalog) -> None:
    mark = traces(catalog, TRAINING)[0]
    with pytest.raises(UpkeepError):
        run_cell(catalog, TRAINING, runtime=training(TRAINED_FILES, "os.kill(os.getpid(), signal.SIGKILL)"))
    assert not mark.exists()
    marks = []
    for dies in (2, 4):
        with pytest.raises(UpkeepError):
            run_cell(catalog, TRAINING, runtime=steps(dies))
        marks.append((mark.stat().st_ino, mark.read_text()))
    assert len(set(marks)) == 2


def test_a_link_in_place_of_checkpoints_is_not_handed_on(catalog: Catalog) -> None:
    link = 'os.symlink("/etc", os.path.join(cell["output"], "checkpoints")); os.kill(os.getpid(), signal.SIGKILL)'
    with pytest.raises(UpkeepError):
        run_cell(catalog, TRAINING, runtime=training(TRAINED_FILES, link))
    run_cell(catalog, TRAINING, runtime=steps())
    assert (Layout(catalog.results).trained(TRAINING) / "model/tokenizer.json").read_text() == "1"


NAMED = 'open(os.path.join(model, "config.json"), "w").write(open(cell["documents"]).read()[:40])\n'


def test_members_that_are_done_are_not_trained_again(catalog: Catalog) -> None:
    job = Training("toy", "trainer", "a", "none", "streams")
    second = 'if "b_c0" in open(cell["documents"]).read(): os.kill(os.getpid(), signal.SIGKILL)'
    broken = training(TRAINED_FILES, f"{NAMED}\n{second}")
    with pytest.raises(UpkeepError, match="the training of 'b' failed"):
        run_cell(catalog, job, runtime=broken)
    assert broken.starts == 2
    whole = training(TRAINED_FILES, NAMED)
    manifest = run_cell(catalog, job, runtime=whole)
    assert whole.starts == 2, "the first member was there"
    assert {name.split("/")[1] for name in manifest.files} == {"a", "b", "c"}
    for name in "abc":
        assert f"{name}_c0" in (Layout(catalog.results).trained(job) / f"model/{name}/config.json").read_text()


def test_no_member_goes_on_from_anothers_checkpoint(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Training("toy", "trainer", "a", "none", "streams")

    def killed(path: Path) -> None:
        if path.name == "checkpoints":
            raise KeyboardInterrupt
        files.remove(path)

    with monkeypatch.context() as patched:
        patched.setattr("upkeep.execution.training_job.remove", killed)
        with pytest.raises(KeyboardInterrupt):
            run_cell(catalog, job, runtime=steps())
    run_cell(catalog, job, runtime=steps())
    begun = {
        name: (Layout(catalog.results).trained(job) / f"model/{name}/tokenizer.json").read_text() for name in "abc"
    }
    assert begun == {"a": "6", "b": "1", "c": "1"}


def test_an_adapter_is_published_and_found_on_what_it_was_trained_on(with_model: Catalog) -> None:
    job = Training("toy", "trainer", "a", "m")
    run_cell(with_model, job, runtime=training({"adapter_config.json": "{}", "adapter_model.safetensors": "w"}))
    over = Training("toy", "trainer", "a", "m+trainer.a")
    run_cell(with_model, over, runtime=training({"adapter_config.json": "{1}", "adapter_model.safetensors": "v"}))
    layout = Layout(with_model.results)
    found = weights.find(with_model, "m+trainer.a+trainer.a", "toy")[1]
    assert found.path == with_model.root / "weights"
    assert found.adapters == (layout.trained(job) / "model", layout.trained(over) / "model")
    first = weights.find(with_model, "m+trainer.a", "toy")[1]
    assert len({found.sha256, first.sha256, weights.find(with_model, "m", "toy")[1].sha256}) == 3
    (layout.trained(job) / "model/adapter_model.safetensors").write_text("x")
    with pytest.raises(Damaged):
        weights.find(with_model, "m+trainer.a+trainer.a", "toy")


def test_a_set_is_answered_member_by_member(with_model: Catalog) -> None:
    job = Training("toy", "trainer", "a", "m", "streams")
    run_cell(with_model, job, runtime=training(TRAINED_FILES, NAMED))
    runtime = ScriptedRuntime()
    cell = Cell("toy", "echo", "a", "m+trainer.a@toy.streams")
    manifest = run_cell(with_model, cell, runtime=runtime)
    assert manifest.probes == 6 == len(predictions_of(with_model, cell)), "each stream is asked at its end"
    assert [launch.inputs["model"].name for launch in runtime.engines] == ["a", "b", "c"]
    assert runtime.starts == 3, "a container of its own for each: none knows what another's model says"


def test_a_probe_that_no_member_answers_is_named(with_model: Catalog) -> None:
    run_cell(with_model, Training("toy", "trainer", "a", "m", "kinds"), runtime=training(TRAINED_FILES))

    def third(one: Built) -> Built:
        return replace(one, gold=one.gold.with_columns(slice_kind=pl.lit("third")))

    built(with_model, "toy_later", third)
    with pytest.raises(UpkeepError, match=r"no member of .m[+]trainer.a@toy.kinds. answers probe") as caught:
        run_cell(with_model, Cell("toy_later", "echo", "a", "m+trainer.a@toy.kinds"), runtime=ScriptedRuntime())
    assert caught.value.found == "third" and "first, second" in str(caught.value.expected)


@pytest.mark.parametrize("until", ["soon", "01.03.2025", 1.5, 0])
def test_a_set_until_no_date_and_no_share_is_refused(catalog: Catalog, until: object) -> None:
    card = catalog.root / "datasets/toy/dataset.yaml"
    given = yaml.safe_load(card.read_text()) | {"training": {"half": {"until": until}}}
    card.write_text(yaml.safe_dump(given))
    with pytest.raises(UpkeepError, match="until"):
        Catalog(catalog.root).check_training(Training.parse("toy.half/trainer/a/none"))
