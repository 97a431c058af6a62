"""What is sent to an endpoint: the body of a chat completion."""

from __future__ import annotations

from typing import Any

import msgspec

from upkeep.cell import toolcalls
from upkeep.cell.endpoint import MESSAGE_TOKENS, Ask, More, estimate
from upkeep.contract import ModelSpec
from upkeep.gateway.endpoints.terms import endpoint_of


def body_of(spec: ModelSpec, ask: Ask) -> dict[str, Any]:
    """The request's body: every parameter explicit, but for those that the provider does not take."""
    endpoint, sampling = endpoint_of(spec), ask.sampling
    body: dict[str, Any] = {
        "model": endpoint.model,
        "messages": _messages(ask),
        endpoint.limit_field: sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "seed": ask.seed & 0x7FFF_FFFF,  # some take 32 bits, with a sign
        "stream": False,
    }
    for name in endpoint.omit:
        del body[name]
    return body | (_more(ask.more) if ask.more is not None else {}) | endpoint.fields


def unfit(spec: ModelSpec, ask: Ask) -> str | None:
    """Why a request is not sent; None where it is."""
    if ask.more is not None:
        try:
            ask.more.check()
        except ValueError as error:
            return str(error)
    tokens = sum(MESSAGE_TOKENS + estimate(text, spec) for _, text in ask.texts)
    if tokens + ask.sampling.max_tokens > spec.context_length:
        return f"about {tokens} prompt tokens and {ask.sampling.max_tokens} to come do not fit into the context"
    given, usual = msgspec.structs.asdict(ask.sampling), msgspec.structs.asdict(spec.sampling)
    lost = [name for name in endpoint_of(spec).omit if name in given and given[name] != usual[name]]
    return f"the endpoint takes no {', '.join(lost)}" if lost else None


def _messages(ask: Ask) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"role": role, "content": text} for role, text in ask.texts]
    for one in ask.about:
        if one.calls:
            found[one.place]["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in one.calls
            ]
        if one.answered is not None:
            found[one.place]["tool_call_id"] = one.answered
    return found


def _more(more: More) -> dict[str, Any]:
    """The options as fields of a request."""
    found: dict[str, Any] = {}
    if more.tools and more.tool_choice != "none":
        named = {"type": "function", "function": {"name": more.tool_choice}}
        found["tools"] = more.tools
        found["tool_choice"] = more.tool_choice if more.tool_choice in toolcalls.CHOICES else named
    if more.schema is not None:
        schema = {"name": "answer", "schema": more.schema, "strict": True}
        found["response_format"] = {"type": "json_schema", "json_schema": schema}
    if more.stop:
        found["stop"] = more.stop
    if more.top_logprobs:
        found |= {"logprobs": True, "top_logprobs": more.top_logprobs}
    return found
