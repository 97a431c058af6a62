"""`upkeep new method|dataset|model|paper|suite NAME`: what works at once, to be made one's own; `upkeep new model
PLACE`: the card of weights or of a server that there are."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from upkeep.catalog import Catalog
from upkeep.contract import ModelSpec
from upkeep.errors import UpkeepError
from upkeep.model_cards import CARD, ModelCards, read_card

TEMPLATES = Path(__file__).parent / "template"
NAMED = "lower-case letters, digits and _, a letter first; no keyword of Python or YAML"
RESERVED = frozenset({"answer", "context", "document", "llm", "method", "probe", "seen"})
"""What a method's file imports or speaks of, in lower case: a class of such a name would shadow it."""
SHARED_METRICS = frozenset({"answers"})
"""Metrics of no paper (`upkeep.grading.metric_families`): a paper of such a name could have none of its own."""
NO_NAMES = frozenset({"any", "none"})
"""What tables and suites say where they mean every model, or that there is none."""


def new_method(root: Path, name: str) -> list[Path]:
    """Write `methods/NAME/`: a method that reads the latest documents and passes all tests.

    Args:
        root: the repository.

    Returns:
        The files that were written.

    Raises:
        UpkeepError: the name is no lower-case identifier, means something else in Python, YAML or a method's file, or
            something of that name is there already.
    """
    class_name = "".join(word.capitalize() for word in name.split("_"))
    if not _may_be_named(name) or keyword.iskeyword(class_name) or class_name.lower() in RESERVED:
        raise UpkeepError(
            f"{name!r} is no name for a method",
            expected=f"{NAMED} (my_method), and none of {', '.join(sorted(RESERVED))}",
            remedy="choose another name",
        )
    folder = root / "methods" / name
    _refuse_taken(name, folder, root / "containers" / name)
    return _write("method", folder, {"new_method": name, "NewMethod": class_name})


def new_dataset(root: Path, name: str) -> list[Path]:
    """Write `datasets/NAME/`: five documents and ten questions, which a cell can answer at once.

    Args:
        root: the repository.

    Returns:
        The files that were written.

    Raises:
        UpkeepError: the name is no lower-case identifier, means something else in Python or YAML, or a dataset has it.
    """
    if not _may_be_named(name):
        raise UpkeepError(
            f"{name!r} is no name for a dataset", expected=f"{NAMED} (my_dataset)", remedy="choose another name"
        )
    catalog = Catalog(root)
    folder = catalog.family_card(name).parent
    _refuse_taken(name, folder, *([catalog.family_card(catalog.family_of(name))] if name in catalog.datasets else []))
    return _write("dataset", folder, {"new_dataset": name})


def _may_be_named(name: str) -> bool:
    # `on`, `yes`: the card's label would be no text.
    words = {name, name.capitalize()}
    fits = re.fullmatch(r"[a-z][a-z0-9_]{0,59}", name) and not keyword.iskeyword(name)
    return bool(fits) and all(yaml.safe_load(word) == word for word in words)


def _refuse_taken(name: str, *places: Path) -> None:
    for place in places:
        if place.exists():
            raise UpkeepError(f"{name!r} is there already", where=place, remedy="choose another name")


def new_paper(root: Path, name: str) -> list[Path]:
    """Write `papers/NAME/`: a paper with a table, a finding, a prompt and a metric of its own, whose suite NAME runs on
    a small dataset.

    Args:
        root: the repository.

    Returns:
        The files that were written.

    Raises:
        UpkeepError: the name is no lower-case identifier, means something else in YAML or as metrics, or a paper, a
            suite or a prompt of that name is there already.
    """
    if not _may_be_named(name) or name in SHARED_METRICS:
        raise UpkeepError(
            f"{name!r} is no name for a paper", expected=f"{NAMED} (my_paper)", remedy="choose another name"
        )
    folder, catalog = root / "papers" / name, Catalog(root)
    _refuse_taken(name, *filter(None, (folder, catalog.suites.get(name), catalog.prompts.get(name))))
    return _write("paper", folder, {"new_paper": name, "NewPaper": "".join(w.capitalize() for w in name.split("_"))})


def _write(kind: str, folder: Path, names: Mapping[str, str]) -> list[Path]:
    """Write a template's files into a new folder, with these names in place of the template's; the paths written."""
    start, any_of_them = TEMPLATES / kind, re.compile("|".join(names))

    def named(text: str) -> str:
        return any_of_them.sub(lambda found: names[found[0]], text)

    found = [path for path in sorted(start.rglob("*")) if path.is_file() and path.suffix != ".pyc"]
    texts = {folder / named(path.relative_to(start).as_posix()): named(path.read_text("utf-8")) for path in found}
    folder.mkdir(parents=True)
    for path, text in texts.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    return list(texts)


def new_model(root: Path, name: str) -> Path:
    """Write `models/NAME/model.yaml`: a model with weights that are made on the spot, which runs at once.

    Returns:
        The card.

    Raises:
        UpkeepError: the name is none for a model, or something of that name is there already.
    """
    _check_name(name, "model")
    card = _new_card(root, name)
    card.parent.mkdir(parents=True, exist_ok=True)
    card.write_text((TEMPLATES / "model" / CARD).read_text().replace("new-model", name))
    return card


def new_suite(root: Path, name: str) -> Path:
    """Write `config/suites/NAME.yaml`: a suite of a few small cells, which runs at once.

    Returns:
        The file.

    Raises:
        UpkeepError: the name is none for a suite, or a suite of that name is there already.
    """
    _check_name(name, "suite")
    path = root / "config" / "suites" / f"{name}.yaml"
    _refuse_taken(name, path, root / "papers" / name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text((TEMPLATES / "suite.yaml").read_text().replace("new-suite", name))
    return path


def _check_name(name: str, kind: str) -> None:
    plain = re.fullmatch(r"[a-z0-9]([a-z0-9._-]{0,58}[a-z0-9])?", name)
    if not plain or name in NO_NAMES or yaml.safe_load(name) != name:  # `on`, `1.5`: no text in a suite's file
        raise UpkeepError(
            f"{name!r} is no name for a {kind}",
            expected="lower-case letters, digits, dots and dashes, no number (my-model-7b)",
            remedy="choose another name",
        )


def _new_card(root: Path, model: str) -> Path:
    """The place of a model's card, which is not there yet."""
    card = root / "models" / model / CARD
    if taken := card if card.exists() else ModelCards(root).find(model):
        remedy = "use it, or choose another name, or delete it"
        raise UpkeepError(f"a model {model!r} is there already", where=taken, remedy=remedy)
    return card


def card_of(root: Path, model: str) -> str:
    """The id of a model that is named by it or by its place; the card of a place is written where there is none.

    Raises:
        UpkeepError: neither; or as `add_model`.
    """
    if "/" not in model:
        return model
    card, name = root / "models" / _id(model) / CARD, _id(model)
    if card.is_file() and (known := read_card(card).get(name)) and _place(root, known) == _named(model):
        return name
    add_model(root, model, 0)
    return name


def add_model(root: Path, place: str, gpus: int) -> Path:
    """Write `models/ID/model.yaml` of a model: its weights' context length and number type from their `config.json`, a
    server's from what it says of itself.

    Args:
        root: the repository.
        place: a folder with weights in the transformers format, `ORG/NAME` or `ORG/NAME@REVISION` of the hub, or the
            URL of an OpenAI-compatible server that asks for no key (`http://localhost:8000/v1`).
        gpus: GPUs that the model needs; with any vLLM runs it, with none transformers.

    Returns:
        The card.

    Raises:
        UpkeepError: nothing is there, it does not say what a card needs, or a model of that name is there already.
    """
    card = _new_card(root, _id(place))
    if place.startswith(("http://", "https://")):
        fields = _server(place)
    elif Path(place).expanduser().is_dir():
        folder = Path(place).expanduser().resolve()
        fields = {"source": "path", "location": str(folder)} | _weights(_config(folder / "config.json"), place, gpus)
    elif re.fullmatch(r"[\w.-]+/[\w.-]+(@[\w.-]+)?", place):
        fields = _hub(place, gpus)
    else:
        raise UpkeepError(
            "no model there",
            where=place,
            expected="a folder of weights, ORG/NAME or ORG/NAME@REVISION of a hub, or the URL of a server",
        )
    named = fields["endpoint"]["model"] if "endpoint" in fields else place.partition("@")[0]
    head = {"label": Path(named).name, "summary": f"The model at {place}."}
    sampling = {"temperature": 0.0, "max_tokens": 256}
    text = yaml.safe_dump(head | fields | {"sampling": sampling}, sort_keys=False, allow_unicode=True)
    card.parent.mkdir(parents=True, exist_ok=True)
    card.write_text(f"# Written by `upkeep new model`. Read it: how it is decoded is yours to say.\n{text}", "utf-8")
    return card


def _id(place: str) -> str:
    """A model's id from its place."""
    last = re.sub(r"^https?://|/v1/?$", "", place).rstrip("/").rpartition("/")[2].partition("@")[0]
    return re.sub(r"[^a-z0-9.]+", "-", last.lower()).strip("-.") or "model"


def _place(root: Path, card: ModelSpec) -> str:
    """Where a card says that its model is."""
    return str(root / card.location) if card.source == "path" else card.location


def _named(place: str) -> str:
    """The same, as a user names it."""
    if (folder := Path(place).expanduser()).is_dir():
        return str(folder.resolve())
    return place.rstrip("/") if "://" in place else place.partition("@")[0]


def _config(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise UpkeepError("no weights in the transformers format", where=path, expected="a config.json") from None
    except ValueError as error:
        raise UpkeepError(f"not JSON: {error}", where=path) from None
    return dict(found.get("text_config") or found)


def _weights(config: dict[str, Any], place: str, gpus: int) -> dict[str, Any]:
    length = config.get("max_position_embeddings")
    if not isinstance(length, int):
        raise UpkeepError(
            "the weights do not say how many tokens they take",
            where=f"{place}/config.json",
            expected="max_position_embeddings",
            remedy="write the card yourself: models/README.md",
        )
    given = str(config.get("dtype") or config.get("torch_dtype") or "float32")
    dtype = given if gpus and given in ("bfloat16", "float16") else "float32"
    engine = "vllm" if gpus else "transformers"
    return {"context_length": length, "engine": engine, "dtype": dtype, "gpus": gpus}


def _hub(place: str, gpus: int) -> dict[str, Any]:
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError

    name, _, revision = place.partition("@")
    try:
        commit = HfApi().model_info(name, revision=revision or None).sha
        config = _config(Path(hf_hub_download(name, "config.json", revision=commit)))
    except (HfHubHTTPError, OSError) as error:
        raise UpkeepError(
            f"could not ask the hub for {name}: {error}",
            where=place,
            remedy="try again with a network, or give the folder of its weights",
        ) from None
    return {"source": "hub", "location": name, "revision": commit} | _weights(config, place, gpus)


def _server(url: str) -> dict[str, Any]:
    import httpx

    url = url.rstrip("/")
    write_it = "write the card yourself: docs/endpoints.md"
    try:
        answer = httpx.get(f"{url}/models", timeout=30, trust_env=False)
        answer.raise_for_status()
        served = answer.json()["data"]
        (model,) = [one for one in served if not one.get("parent")]
        name, length = str(model["id"]), int(model["max_model_len"])
    except httpx.HTTPError as error:
        raise UpkeepError(
            f"no answer from the server: {error}", where=f"{url}/models", remedy=f"start it; with a key, {write_it}"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UpkeepError(
            "the server does not say of one model what a card needs",
            where=f"{url}/models",
            expected="one model with id and max_model_len",
            remedy=write_it,
        ) from None
    endpoint = {"model": name, "key": None, "price": {"prompt": 0.0, "completion": 0.0}}
    return {
        "source": "endpoint",
        "engine": "endpoint",
        "location": url,
        "context_length": length,
        "endpoint": endpoint,
    }
