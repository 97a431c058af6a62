"""Cards of models and their presets: which models there are, and what each is."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
import yaml

from conftest import ROOT
from upkeep.catalog import Catalog
from upkeep.contract import Sampling
from upkeep.errors import UpkeepError
from upkeep.fields import MODEL, part
from upkeep.model_cards import ModelCards, read_card
from upkeep.operations.validate import validate_path

OWN = {"label": "M", "summary": "s", "source": "hub", "location": "o/m", "revision": "r", "context_length": 100}
CLOUD = {
    "label": "C",
    "summary": "s",
    "source": "endpoint",
    "engine": "endpoint",
    "location": "https://api.example.org/v1",
    "context_length": 100,
    "sampling": {"max_tokens": 7},
    "endpoint": {
        "model": "c",
        "key": "KEY",
        "price": {"prompt": 1, "completion": 2},
        "fields": {"a": 1, "b": {"c": 2}},
    },
}


def write(root: Path, name: str, card: object) -> Path:
    path = root / "models" / name / "model.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(card if isinstance(card, str) else yaml.safe_dump(card))
    return path


def find(root: Path, model: str) -> Path | None:
    return ModelCards(root).find(model)


# ---------------------------------------------------------------- what a preset is


def test_a_preset_is_its_card_but_for_what_it_gives(tmp_path: Path) -> None:
    own = OWN | {"sampling": {"temperature": 0.5, "top_k": 20}, "rope_scaling": {"factor": 4.0}}
    presets = {"hot": {"label": "H", "sampling": {"temperature": 2.0}, "rope_scaling": None}}
    models = read_card(write(tmp_path, "m", own | {"presets": presets}))
    assert list(models) == ["m", "m-hot"]
    changed = {"label": "H", "sampling": Sampling(temperature=2.0), "rope_scaling": None}
    assert models["m-hot"] == msgspec.structs.replace(models["m"], **changed), "sampling is replaced whole"
    assert models["m"] == next(iter(read_card(write(tmp_path, "plain", own)).values()))


def test_of_an_endpoint_a_preset_gives_the_fields_that_differ(tmp_path: Path) -> None:
    presets = {"think": {"endpoint": {"fields": {"b": {"d": 3}}}}}
    models = read_card(write(tmp_path, "c", CLOUD | {"presets": presets}))
    assert (one := models["c"].endpoint) and (other := models["c-think"].endpoint)
    assert other == msgspec.structs.replace(one, fields={"b": {"d": 3}})


def test_a_card_whose_presets_alone_are_decoded_is_no_model(tmp_path: Path) -> None:
    sampled = {"sampling": {"temperature": 1.0}}
    path = write(tmp_path, "m", OWN | {"presets": {"a": sampled, "b": sampled | {"label": "B"}}})
    assert ModelCards(tmp_path).names == ["m-a", "m-b"]
    with pytest.raises(UpkeepError, match="no model by itself") as error:
        find(tmp_path, "m")
    assert str(path) in str(error.value) and "m-a, m-b" in str(error.value)
    write(tmp_path, "e", OWN | {"role": "embedder", "presets": {"asking": {"query_prefix": "Q: "}}})
    assert ModelCards(tmp_path).names == ["e", "e-asking", "m-a", "m-b"], "an embedder is not decoded"


def test_a_preset_may_be_trained() -> None:
    catalog = Catalog(ROOT)
    assert catalog.spec("tiny-vllm+sft.lora") == catalog.model("tiny-vllm")
    assert catalog.model_card("tiny-vllm+sft.lora") == catalog.model_card("tiny") == "models/tiny/model.yaml"


def test_presets_share_the_folder_that_a_user_names_for_their_weights(repository: Path) -> None:
    own = repository / "own.yaml"
    own.write_text("models: {qwen3-4b: here, qwen3-32b-thinking: there}")
    catalog = Catalog(repository, own)
    found = {name: catalog.own_weights(name) for name in ("qwen3-4b", "qwen3-4b-imprintbench", "qwen3-8b")}
    assert found == {"qwen3-4b": "here", "qwen3-4b-imprintbench": "here", "qwen3-8b": None}
    assert [catalog.own_weights(name) for name in ("qwen3-32b", "qwen3-32b-thinking")] == [None, "there"]


# ---------------------------------------------------------------- one card a model


@pytest.mark.parametrize(
    ("first", "second", "model"),
    [(("a", {"b": {}}), ("a-b", {}), "a-b"), (("a", {"b-c": {}}), ("a-b", {"c": {}}), "a-b-c")],
    ids=["a folder", "a preset"],
)
def test_a_model_of_two_cards_is_refused_with_both_files(
    tmp_path: Path, first: tuple[str, object], second: tuple[str, object], model: str
) -> None:
    sampled = OWN | {"sampling": {}}
    paths = [write(tmp_path, name, sampled | {"presets": presets}) for name, presets in (first, second)]
    with pytest.raises(UpkeepError, match="two cards") as error:
        find(tmp_path, model)
    assert all(str(path) in str(error.value) for path in paths)
    assert find(tmp_path, "a") == paths[0], "other models are as they were"


def test_a_name_with_dashes_is_not_taken_for_a_preset(tmp_path: Path) -> None:
    paths = {name: write(tmp_path, name, OWN) for name in ("a", "a-b", "a-b-c")}
    assert {name: find(tmp_path, name) for name in paths} == paths
    for nothing in ("a-c", "a-", "-a", "", "a-b-c-d", ".", "..", "../models/a", "none"):
        assert find(tmp_path, nothing) is None, nothing


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize("field", ["source", "location", "revision"])
def test_a_preset_has_no_weights_of_its_own(tmp_path: Path, field: str) -> None:
    path = write(tmp_path, "m", OWN | {"sampling": {}, "presets": {"x": {field: "path"}}})
    with pytest.raises(UpkeepError, match="the weights of its card") as error:
        read_card(path)
    assert f"{path}, preset x" in str(error.value) and field in str(error.value)


@pytest.mark.parametrize(
    ("presets", "words"),
    [
        ({"x": {"samplingg": {}}}, ["preset x", "samplingg"]),
        ({"x": {"sampling": {"top_p": 3}}}, ["preset x", "$.sampling.top_p"]),
        ({"x": {"presets": {}}}, ["preset x", "presets"]),
        ({"x": {"endpoint": {"omit": ["top_pp"]}}}, ["preset x", "$.endpoint.omit"]),
        ({"x": {"endpoint": {"fields": {"seed": 1}}}}, ["preset x", "may not hold seed"]),
        ({"x": {"endpoint": None}}, ["preset x", "half an endpoint"]),
        ({"x": None}, ["$.presets"]),
        ({"x y": {}}, ["$.presets"]),
        ({"": {}}, ["$.presets"]),
        (["x"], ["$.presets"]),
        ("x", ["$.presets"]),
    ],
)
def test_a_malformed_preset_is_refused_with_file_preset_and_field(
    tmp_path: Path, presets: object, words: list[str]
) -> None:
    path = write(tmp_path, "c", CLOUD | {"presets": presets})
    with pytest.raises(UpkeepError) as error:
        read_card(path)
    assert str(error.value).startswith(str(path)) and all(word in str(error.value) for word in words)


@pytest.mark.parametrize("text", ["", "[]", "x", "presets: {}", "presets: {a: {label: l}}"])
def test_what_is_no_card_is_refused(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, "m", text)
    with pytest.raises(UpkeepError, match=re.escape(str(path))):
        read_card(path)


def test_a_preset_that_nothing_decodes_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "m", OWN | {"presets": {"a": {"sampling": {}}, "b": {"label": "B"}}})
    with pytest.raises(UpkeepError, match="nothing says how") as error:
        read_card(path)
    assert f"{path}, preset b" in str(error.value)


# ---------------------------------------------------------------- the repository's own


def test_no_two_models_of_a_card_are_the_same() -> None:
    for path in (ROOT / "models").glob("*/model.yaml"):
        told = [part(spec, MODEL, "in", "content") for spec in read_card(path).values()]
        assert all(told.count(one) == 1 for one in told), path


@pytest.mark.parametrize("model", ["gpt-oss-20b", "gpt-oss-120b"])
def test_where_oaks_and_its_release_set_no_effort_the_models_default_applies(model: str) -> None:
    spec = Catalog(ROOT).model(model)
    assert (spec.template_options, spec.thinking) == ({"reasoning_effort": "medium"}, "off")


def test_qwen3_8b_is_there_as_oaks_and_as_its_release_have_it_and_the_suite_runs_the_papers() -> None:
    catalog = Catalog(ROOT)
    paper, release = catalog.model("qwen3-8b"), catalog.model("qwen3-8b-thinking")
    changed = {"thinking": "on", "template_options": {"enable_thinking": True}, "summary": release.summary}
    assert release == msgspec.structs.replace(paper, **changed) and paper.thinking == "off"
    asked = {cell.model for cell in catalog.cells(catalog.suite("oaks"))}
    assert {"qwen3-8b", "qwen3-8b-thinking"} & asked == {"qwen3-8b"}


def test_a_card_is_checked_with_all_its_presets() -> None:
    for place in ("models/gpt-4o", "models/gpt-4o/model.yaml"):
        assert validate_path(ROOT / place).endswith("gpt-4o-evowiki, gpt-4o-prelude")
