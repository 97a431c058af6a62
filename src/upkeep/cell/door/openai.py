"""Requests and replies as OpenAI-compatible clients write and read them, and what they mean to a model here.

Every field that is not read is an error that names it, unless it changes no answer: a package that asks for something
is either given it or told that it is not.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from upkeep.cell.door.http import Refusal, Response
from upkeep.cell.interface import GeneratedToken, Message, Reply, ToolCall
from upkeep.contract import Sampling

if TYPE_CHECKING:
    import numpy as np

T = TypeVar("T", bound=Struct)

Zero = Annotated[float, Meta(ge=0, le=0)]
"""A parameter that no engine here has, switched off."""
Nothing = Annotated[list[Any], Meta(max_length=0)]


class _Asked(Struct, forbid_unknown_fields=True, frozen=True):
    """Base of what is asked."""


class TextPart(_Asked, frozen=True, tag="text"):
    """A piece of a message."""

    text: str


class SystemMessage(_Asked, frozen=True, tag_field="role", tag="system"):
    content: str | list[TextPart]


class DeveloperMessage(_Asked, frozen=True, tag_field="role", tag="developer"):
    """As `system`."""

    content: str | list[TextPart]


class UserMessage(_Asked, frozen=True, tag_field="role", tag="user"):
    content: str | list[TextPart]


class CalledFunction(_Asked, frozen=True):
    name: str
    arguments: str


class Call(_Asked, frozen=True, tag_field="type", tag="function"):
    """A call of a tool that the model asked for."""

    id: str
    function: CalledFunction
    index: int | None = None


class AssistantMessage(_Asked, frozen=True, tag_field="role", tag="assistant"):
    """Also as a client gets it from us and sends it back."""

    content: str | list[TextPart] | None = None
    tool_calls: list[Call] | None = None
    reasoning_content: str | None = None
    """Not shown to the model again."""
    refusal: None = None
    audio: None = None
    function_call: None = None
    annotations: Nothing | None = None


class ToolMessage(_Asked, frozen=True, tag_field="role", tag="tool"):
    """What a call gave."""

    content: str | list[TextPart]
    tool_call_id: str


ChatMessage = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage


class Function(_Asked, frozen=True):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    """JSON schema of an object; null for a function without parameters."""
    strict: Literal[False] | None = None


class Tool(_Asked, frozen=True, tag_field="type", tag="function"):
    function: Function


class NamedFunction(_Asked, frozen=True):
    name: str


class NamedTool(_Asked, frozen=True, tag_field="type", tag="function"):
    function: NamedFunction


class AnyText(_Asked, frozen=True, tag_field="type", tag="text"):
    """No form is demanded."""


class AnyObject(_Asked, frozen=True, tag_field="type", tag="json_object"):
    """A JSON object, whatever is in it."""


class Schema(_Asked, frozen=True):
    """`name` and `description` are not shown to the model."""

    name: str
    schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None
    """The answer keeps to the schema either way."""


class Schematic(_Asked, frozen=True, tag_field="type", tag="json_schema"):
    json_schema: Schema


class StreamOptions(_Asked, frozen=True):
    include_usage: bool = False
    include_obfuscation: bool = False


class ChatRequest(_Asked, frozen=True, kw_only=True):
    """The body of `chat/completions`. Null is as if it were not there."""

    model: str
    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    # What the model decodes with, in place of its card's.
    temperature: Annotated[float, Meta(ge=0)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=0)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0)] | None = None
    presence_penalty: float | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    seed: int | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    stop: str | Annotated[list[str], Meta(max_length=16)] | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["auto", "none", "required"] | NamedTool | None = None
    response_format: AnyText | AnyObject | Schematic | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    # Switched off, or empty.
    frequency_penalty: Zero | None = None
    logit_bias: Annotated[dict[str, Any], Meta(max_length=0)] | None = None
    parallel_tool_calls: Literal[True] | None = None
    modalities: list[Literal["text"]] | None = None
    # No answer depends on them.
    user: Any = None
    metadata: Any = None
    store: Any = None
    service_tier: Any = None
    safety_identifier: Any = None
    prompt_cache_key: Any = None
    prompt_cache_retention: Any = None

    def sampling(self, default: Sampling) -> Sampling:
        """What is decoded with: the card's, and what the request says explicitly."""
        names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        if (room := self.max_completion_tokens or self.max_tokens) is not None:
            given["max_tokens"] = room
        return msgspec.structs.replace(default, **given)

    def chat(self) -> list[Message]:
        """The messages as a model here takes them.

        Raises:
            Refusal: an assistant said nothing.
        """
        return [_message(message) for message in self.messages]

    def options(self) -> dict[str, Any]:
        """What else the request demands of `llm.chat`.

        Raises:
            Refusal: its fields contradict each other.
        """
        options: dict[str, Any] = {}
        if self.stop:
            options["stop"] = [self.stop] if isinstance(self.stop, str) else self.stop
        if self.tools:
            options["tools"] = [_tool(tool.function) for tool in self.tools]
            if self.tool_choice is not None:
                choice = self.tool_choice
                options["tool_choice"] = choice.function.name if isinstance(choice, NamedTool) else choice
        elif self.tool_choice not in (None, "none", "auto"):
            raise Refusal(HTTPStatus.BAD_REQUEST, "a choice of tools without tools", param="tool_choice")
        if isinstance(self.response_format, Schematic):
            options["schema"] = self.response_format.json_schema.schema
        elif isinstance(self.response_format, AnyObject):
            options["schema"] = {"type": "object"}
        if self.logprobs:
            # The chosen token alone is asked for by one alternative, which is then left out.
            options["top_logprobs"] = self.top_logprobs or 1
        elif self.top_logprobs:
            raise Refusal(HTTPStatus.BAD_REQUEST, "`top_logprobs` without `logprobs`", param="top_logprobs")
        return options


class EmbeddingRequest(_Asked, frozen=True, kw_only=True):
    """The body of `embeddings`."""

    model: str
    input: str | Annotated[list[str], Meta(min_length=1, max_length=2048)]
    encoding_format: Literal["float", "base64"] | None = None
    user: Any = None

    @property
    def texts(self) -> list[str]:
        return [self.input] if isinstance(self.input, str) else self.input


def _message(message: ChatMessage) -> Message:
    role = "system" if isinstance(message, DeveloperMessage) else str(message.__struct_config__.tag)
    content = message.content or ""
    made = Message(role=role, parts=[content] if isinstance(content, str) else [part.text for part in content])
    if isinstance(message, ToolMessage):
        made["tool_call_id"] = message.tool_call_id
    if isinstance(message, AssistantMessage):
        if message.content is None and not message.tool_calls:
            raise Refusal(HTTPStatus.BAD_REQUEST, "an assistant's message with neither content nor calls", "messages")
        if message.tool_calls:
            calls = [ToolCall(call.id, call.function.name, call.function.arguments) for call in message.tool_calls]
            made["tool_calls"] = calls
    return made


def _tool(function: Function) -> dict[str, Any]:
    described = {"name": function.name}
    if function.description is not None:
        described["description"] = function.description
    return {"type": "function", "function": described | {"parameters": function.parameters or {"type": "object"}}}


def read(body: bytes, kind: type[T]) -> T:
    """A request's body.

    Raises:
        Refusal: it is no such request; the message names the field.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        problem, _, place = str(error).partition(" - at ")
        message = f"{problem} (at {place.strip('`')})" if place else problem
        raise Refusal(HTTPStatus.BAD_REQUEST, message, param=place.strip("`$.") or None) from None


# ---------------------------------------------------------------- replies


def completion(asked: ChatRequest, replies: Sequence[Reply], number: int) -> Response:
    """The answer to a chat, whole or as a stream of events with the whole of each choice in one of them.

    Nothing in it tells the time, so that code which puts a reply's id into a prompt asks the same when it runs again.

    Args:
        replies: one a choice.
        number: of the request in its unit.
    """
    head = {"id": f"chatcmpl-{number}", "created": 0, "model": asked.model}
    prompt, generated = replies[0].prompt_tokens, sum(reply.completion_tokens for reply in replies)
    usage = {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}
    if not asked.stream:
        choices = [
            {
                "index": place,
                "message": _said(reply) | {"refusal": None},
                "logprobs": _logprobs(asked, reply),
                "finish_reason": _end(reply),
            }
            for place, reply in enumerate(replies)
        ]
        whole = head | {"object": "chat.completion", "choices": choices, "usage": usage}
        return Response(msgspec.json.encode(whole))
    head["object"] = "chat.completion.chunk"
    events = []
    for place, reply in enumerate(replies):
        said = {"index": place, "delta": _said(reply), "logprobs": _logprobs(asked, reply), "finish_reason": None}
        end = {"index": place, "delta": {}, "logprobs": None, "finish_reason": _end(reply)}
        events += [head | {"choices": [said]}, head | {"choices": [end]}]
    if asked.stream_options is not None and asked.stream_options.include_usage:
        events.append(head | {"choices": [], "usage": usage})
    data = [msgspec.json.encode(event) for event in events]
    return Response(b"".join(b"data: %s\n\n" % line for line in [*data, b"[DONE]"]), content_type="text/event-stream")


def _said(reply: Reply) -> dict[str, Any]:
    said: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.reasoning is not None:
        said["reasoning_content"] = reply.reasoning
    if reply.tool_calls:
        said["content"] = reply.text or None
        said["tool_calls"] = [
            {
                "index": place,
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for place, call in enumerate(reply.tool_calls)
        ]
    return said


def _end(reply: Reply) -> str:
    return "tool_calls" if reply.tool_calls else reply.finish_reason


def _logprobs(asked: ChatRequest, reply: Reply) -> dict[str, Any] | None:
    if not asked.logprobs:
        return None
    return {"content": [_token(token, asked.top_logprobs or 0) for token in reply.logprobs], "refusal": None}


def _token(token: GeneratedToken, alternatives: int) -> dict[str, Any]:
    top = [_probability(text, logprob) for text, logprob in token.top[:alternatives]]
    return _probability(token.text, token.logprob) | {"top_logprobs": top}


def _probability(text: str, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, "bytes": list(text.encode(errors="surrogatepass"))}


def embeddings(asked: EmbeddingRequest, vectors: np.ndarray) -> Response:
    """The answer to a request for embeddings. Tokens of embedded texts are not counted: `usage` is 0."""
    packed = asked.encoding_format == "base64"
    rows = vectors.astype("<f4")
    data = [
        {
            "object": "embedding",
            "index": place,
            "embedding": base64.b64encode(row.tobytes()).decode() if packed else row.tolist(),
        }
        for place, row in enumerate(rows)
    ]
    usage = {"prompt_tokens": 0, "total_tokens": 0}
    return Response(msgspec.json.encode({"object": "list", "data": data, "model": asked.model, "usage": usage}))


def models(names: Sequence[str]) -> Response:
    """The answer to what models there are."""
    data = [{"id": name, "object": "model", "created": 0, "owned_by": "upkeep"} for name in names]
    return Response(msgspec.json.encode({"object": "list", "data": data}))
