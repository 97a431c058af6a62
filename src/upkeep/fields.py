"""Which fields of the records enter an identity, and how."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from upkeep.contract import ModelSpec
from upkeep.files import digest

Fields = dict[str, Literal["in", "out", "content"]]
"""How a record's fields enter an identity: as they are; not at all; or by the content that they lead to."""

DESCRIPTION: Fields = {
    "task": "in",
    "dataset": "in",
    "method": "in",
    "variant": "in",
    "model": "in",
    "parameters": "in",
    "command": "in",
    "aliases": "in",
    "one_at_a_time": "in",
    "per_question": "in",
    "max_calls": "in",
    "model_spec": "content",
    "model_path": "content",
    "adapters": "content",
    "writer_spec": "content",
    "writer_socket": "out",
    "embedder_spec": "content",
    "embedder_socket": "out",
    "engine": "in",
    "trials": "in",
    "seed": "in",
    "chunk_tokens": "in",
    "prompt": "content",
    "examples": "content",
    "output": "out",
    "documents": "content",
    "pairs": "content",
    "socket": "out",
}
PROMPT: Fields = {
    "system": "in",
    "closed": "in",
    "form": "in",
    "marker": "in",
    "headings": "in",
    "asks": "in",
    "chinese": "in",
    "indexed": "in",
}
MODEL: Fields = {
    "label": "out",
    "summary": "out",
    "role": "in",
    "source": "content",
    "location": "content",
    "revision": "content",
    "sha256": "content",
    "context_length": "in",
    "engine": "in",
    "dtype": "in",
    "endpoint": "content",
    "gpus": "in",
    "nodes": "in",
    "parameters_b": "out",
    "active_b": "out",
    "attention": "out",
    "widths": "out",
    "resources": "out",
    "sampling": "in",
    "chat_template": "in",
    "thinking": "in",
    "thinking_tags": "in",
    "template_options": "in",
    "tool_calls": "in",
    "rope_scaling": "in",
    "query_prefix": "in",
    "document_prefix": "in",
    "cutoff": "out",
    "licence": "out",
    "trained": "out",
    "extra": "content",
}
ENDPOINT: Fields = {
    "model": "in",
    "key": "out",
    "price": "out",
    "requests_per_minute": "out",
    "tokens_per_minute": "out",
    "max_in_flight": "out",
    "timeout_s": "out",
    "retries": "out",
    "tokens_per_byte": "in",
    "fields": "in",
    "omit": "in",
    "limit_field": "in",
    "answers_as": "in",
}
CONFIG: Fields = {
    "suite": "content",
    "model": "out",
    "judge": "out",
    "runtime": "out",
    "cells_per_job": "out",
    "budget": "out",
    "base_image": "out",
    "results": "out",
    "cache": "out",
    "data": "content",
    "prompts": "content",
    "models": "content",
    "offline": "out",
    "fresh": "out",
    "verify": "out",
    "proxy": "out",
    "limit": "content",
    "probe": "content",
}
METHOD: Fields = {
    "label": "out",
    "papers": "out",
    "summary": "out",
    "reference": "out",
    "variants": "content",
    "settings": "out",
    "supervision": "content",
    "command": "content",
    "aliases": "content",
    "one_at_a_time": "content",
    "per_question": "content",
    "max_calls": "content",
    "model": "content",
    "engine": "content",
    "passes": "out",
    "embedder": "content",
    "embedder_gpu": "content",
    "sees": "in",
    "measures": "out",
    "trains": "content",
    "asks": "content",
    "prefix": "out",
    "shows": "out",
    "streams": "in",
    "resources": "content",
}
DATASET: Fields = {
    "label": "out",
    "summary": "out",
    "paper": "out",
    "source": "out",
    "licence": "out",
    "builder": "in",
    "options": "in",
    "url": "in",
    "revision": "in",
    "sha256": "in",
    "faults": "in",
    "published": "out",
    "changes": "content",
    "provenance": "in",
    "stands_for": "out",
    "part_of": "out",
    "prompt": "content",
    "equivalence": "out",
    "metrics": "out",
    "judges": "out",
    "implied": "out",
    "training": "out",
}

LATER: Mapping[str, Mapping[str, Any]] = {
    "DatasetCard": {"dataset_version": 1},
    "Manifest": {"courses": {}, "sample": None, "checkout": None},
}
"""Record -> field that it was given when others had been hashed without it -> the value that says what was so before.
Of that value a field is in no hash and no seal: no cell is stale, no reply is lost and no card broken for its sake. An
entry is history: it stays as it is, whatever the field's default becomes."""


def hashed(value: Any) -> Any:
    """A record as plain values, all of its records', but for fields of LATER that say what was so before them."""
    if value is None or isinstance(value, str | int | float):  # most are
        return value
    if isinstance(value, msgspec.Struct):
        return _hashed(value, value.__struct_fields__)
    if isinstance(value, dict):
        return {name: hashed(v) for name, v in value.items()}
    if isinstance(value, list | tuple):
        return [hashed(v) for v in value]
    return msgspec.to_builtins(value)


def _hashed(record: msgspec.Struct, names: Iterable[str]) -> dict[str, Any]:
    """Some of a record's fields, `hashed`."""
    before = LATER.get(type(record).__name__, {})
    fields = {name: getattr(record, name) for name in names}
    return {name: hashed(v) for name, v in fields.items() if name not in before or v != before[name]}


def part(record: msgspec.Struct | None, fields: Fields, *kinds: str) -> dict[str, Any] | None:
    """A record's fields of some kinds, as plain values (`hashed`)."""
    if record is None:
        return None
    values = _hashed(record, [name for name, kind in fields.items() if kind in kinds])
    if isinstance(record, ModelSpec) and record.endpoint is not None and "endpoint" in values:
        values["endpoint"] = part(record.endpoint, ENDPOINT, "in")
    return values


def plain(value: object) -> str:
    """A value as text, the same whatever the order of keys."""
    return msgspec.json.encode(value, order="sorted").decode()


def endpoint_content(spec: ModelSpec) -> str:
    """Hash of what stands for the weights of a model behind an endpoint: where it is and how it is asked."""
    return digest(part(spec, MODEL, "content"))
