"""The cards of `models/`: which models each holds.

`models/<model>/model.yaml` is the model of that name and its presets. A preset is a model of its own,
`<model>-<preset>`: the same weights, decoded or served otherwise. Where each field comes from is `merged`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from upkeep.contract import ModelCard, ModelSpec
from upkeep.errors import UpkeepError
from upkeep.files import folders_with
from upkeep.yaml_files import convert, load

CARD = "model.yaml"
RECIPE = "recipe"
"""The folder beside the card of a model of the suite's own: a package whose `make` has `train`."""
FORM = "fields as in schema/model.schema.json"
WEIGHTS = ("source", "location", "revision")
"""What a preset has from its card: other weights are another model."""
RESERVED_FIELDS = frozenset(
    {"model", "messages", "n", "stream", "stream_options", "max_tokens", "max_completion_tokens", "seed", "temperature"}
    | {"top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty"}
)
"""Fields of a request to an endpoint that have a place of their own in the card."""


class ModelCards:
    """All cards of a repository, each read once, when first asked for."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "models"
        self._read: dict[Path, dict[str, ModelSpec]] = {}

    @functools.cached_property
    def _folders(self) -> list[str]:
        return folders_with(self.folder, CARD)

    @property
    def names(self) -> list[str]:
        """Every model.

        Raises:
            UpkeepError: a card is wrong.
        """
        return sorted({model for name in self._folders for model in self._models(self.folder / name / CARD)})

    def find(self, model: str) -> Path | None:
        """The file that says what a model is; None where none does.

        Raises:
            UpkeepError: two files do; it is a card that has presets alone; or such a card is wrong.
        """
        words = model.split("-")
        heads = ("-".join(words[: n + 1]) for n in range(len(words)))
        paths = [self.folder / head / CARD for head in heads if head in self._folders]
        found = [path for path in paths if model in self._models(path)]
        if len(found) > 1:
            raise UpkeepError(
                f"two cards have the model {model!r}",
                where=found[0],
                found=f"{found[1]}, too",
                expected="a model in one card",
                remedy="rename the preset, or the folder",
            )
        if not found and model in self._folders:
            path = self.folder / model / CARD
            raise UpkeepError(
                f"{model!r} is no model by itself",
                expected=f"one of {', '.join(self._models(path))}",
                found=f"no `sampling` in {path} but that of presets",
                remedy="name one of these, or give the card a `sampling` of its own",
            )
        return found[0] if found else None

    def spec(self, path: Path, model: str) -> ModelSpec:
        """A model of the card that `find` gave."""
        return self._models(path)[model]

    def _models(self, path: Path) -> dict[str, ModelSpec]:
        if path not in self._read:
            self._read[path] = read_card(path)
        return self._read[path]


def read_card(path: Path) -> dict[str, ModelSpec]:
    """The models of one card, by name.

    Raises:
        UpkeepError: a field is missing, unknown, of a wrong type, or not one that a preset may give.
    """
    given = load(path, expected="a model's card in YAML")
    presets = convert(given, ModelCard, path, expected=FORM).presets
    own = {name: value for name, value in given.items() if name != "presets"}
    alone = bool(presets) and "sampling" not in own and own.get("role") != "embedder"
    models = {} if alone else {path.parent.name: _spec(own, path)}
    for name, changes in presets.items():
        where = f"{path}, preset {name}"
        if fixed := [field for field in WEIGHTS if field in changes]:
            raise UpkeepError(
                "a preset has the weights of its card",
                where=where,
                expected=f"none of {', '.join(WEIGHTS)}",
                found=", ".join(fixed),
                remedy="other weights are another model: give them a folder of their own",
            )
        if alone and "sampling" not in changes:
            raise UpkeepError(
                "nothing says how this preset is decoded",
                where=where,
                expected="`sampling`, for its card has none",
                remedy="add it here, or to the card",
            )
        models[f"{path.parent.name}-{name}"] = _spec(merged(own, changes), where)
    return models


def merged(card: Mapping[str, Any], preset: Mapping[str, Any]) -> dict[str, Any]:
    """A preset's fields: what it gives takes the place of what the card gives, whole; of `endpoint`, field by field."""
    fields = {**card, **preset}
    if isinstance(one := card.get("endpoint"), dict) and isinstance(other := preset.get("endpoint"), dict):
        fields["endpoint"] = one | other
    return fields


def _spec(fields: Mapping[str, Any], where: Path | str) -> ModelSpec:
    spec = convert(fields, ModelSpec, where, expected=FORM)
    _check_endpoint(where, spec)
    return spec


def _check_endpoint(where: Path | str, spec: ModelSpec) -> None:
    """Refuse a card that is half an endpoint's."""
    is_one = (spec.source == "endpoint", spec.engine == "endpoint", spec.endpoint is not None)
    if any(is_one) != all(is_one):
        raise UpkeepError(
            "half an endpoint",
            where=where,
            expected="`source: endpoint`, `engine: endpoint` and `endpoint: ...`, or none of them",
            remedy="add what is missing, or remove the others",
        )
    if spec.endpoint is None:
        return
    if spec.role != "generator" or spec.gpus:
        raise UpkeepError(
            "an endpoint generates, on no GPU of ours",
            where=where,
            expected="no `role`, no `gpus`",
            remedy="remove these",
        )
    url = urlsplit(spec.location)
    local = url.hostname in ("localhost", "127.0.0.1", "::1")
    plain = url.scheme == "http" and (local or spec.endpoint.key is None)
    if not url.hostname or not (url.scheme == "https" or plain) or url.username or url.query or url.fragment:
        raise UpkeepError(
            "not the base URL of an endpoint",
            where=where,
            expected="https://host/path (http:// on this machine, or where no key is sent), nothing secret in it",
            found=url.hostname or spec.location,
            remedy="mend `location`; a key is named by `endpoint.key`",
        )
    if taken := sorted(RESERVED_FIELDS & spec.endpoint.fields.keys()):
        raise UpkeepError(
            f"`endpoint.fields` may not hold {', '.join(taken)}",
            where=where,
            expected="what has no field of its own in the card",
            remedy="set these by the card's own fields",
        )
