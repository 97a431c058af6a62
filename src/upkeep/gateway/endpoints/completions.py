"""What an endpoint answers, and what follows from it.

- The endpoint's fault (HTTP 408, 409, 429, 5xx, no or half an answer, nonsense, another model's name, impossible
  counts): `Again`.
- The request's own (HTTP 400, 413, 422, a content filter): a reply that is refused.
- Key, address or model are refused (other statuses): an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from upkeep.cell import toolcalls
from upkeep.cell.endpoint import More
from upkeep.cell.wire import Call, Token
from upkeep.contract import Count
from upkeep.gateway.endpoints.pace import LONGEST_PAUSE_S, Again, retry_after
from upkeep.gateway.endpoints.record import Try
from upkeep.gateway.endpoints.replies import Reply
from upkeep.gateway.endpoints.terms import Terms
from upkeep.machine.clock import now

AGAIN = frozenset({408, 409, 425, 429})
OWN_FAULT = frozenset({400, 413, 422})
_ABOUT_THE_KEY = re.compile(r"api.?key", re.IGNORECASE)
"""Some providers refuse a key with status 400."""


class _Details(Struct, frozen=True):
    cached_tokens: Count | None = None


class _Usage(Struct, frozen=True):
    prompt_tokens: Count
    completion_tokens: Count = 0
    total_tokens: Count | None = None
    prompt_tokens_details: _Details | None = None


class _Function(Struct, frozen=True):
    name: str
    arguments: str


class _Call(Struct, frozen=True):
    id: str
    function: _Function


class _Likely(Struct, frozen=True):
    token: str
    logprob: float


class _Token(_Likely, frozen=True):
    top_logprobs: list[_Likely] = []


class _Logprobs(Struct, frozen=True):
    content: list[_Token] | None = None


class _Message(Struct, frozen=True):
    content: str | None = None
    tool_calls: list[_Call] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(Struct, frozen=True):
    message: _Message
    finish_reason: str
    logprobs: _Logprobs | None = None


class _Completion(Struct, frozen=True):
    """A chat completion, as far as it is read; other fields are passed over."""

    model: str
    choices: Annotated[list[_Choice], Meta(min_length=1)]
    usage: _Usage
    id: str | None = None
    system_fingerprint: str | None = None


_DECODER = msgspec.json.Decoder(_Completion)


def reply_of(terms: Terms, data: bytes, blank: Reply, most: tuple[int, int], this: Try, more: More | None) -> Reply:
    """A reply of an answer with status 200.

    Args:
        most: tokens that there can have been, in and out.
        more: what was asked for beside the text.

    Raises:
        Again: it is no answer to what was asked.
    """
    try:
        found = _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Again(f"not a chat completion: {terms.hide(str(error))}") from None
    usage = found.usage
    # Where the total says more, the rest is reasoning that is charged and not among `completion_tokens`.
    completion = max(usage.completion_tokens, (usage.total_tokens or 0) - usage.prompt_tokens)
    cached = (usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else None) or 0
    if usage.prompt_tokens > most[0] or completion > most[1] or cached > usage.prompt_tokens:
        # Should it be true all the same, the ledger knows of it.
        limit = terms.spec.context_length
        this.usd = max(this.usd, terms.usd(min(usage.prompt_tokens, limit), min(completion, limit)))
        raise Again(
            f"an impossible usage: {usage.prompt_tokens} tokens in, of which {cached} cached, {completion} out; "
            f"at most {most[0]} in and {most[1]} out are possible"
        )
    this.usd = terms.usd(usage.prompt_tokens, completion, cached)
    # A dated snapshot is another name, too: which ones are meant is for the card to say.
    if found.model not in (terms.endpoint.model, *terms.endpoint.answers_as):
        raise Again(
            f"answered by the model {terms.hide(found.model)[:100]!r}, asked was {terms.endpoint.model!r}; if it is "
            f"meant, add it under `endpoint.answers_as` in {terms.card}"
        )
    choice = found.choices[0]
    message, reasoning = choice.message, choice.message.reasoning_content or choice.message.reasoning
    reply = msgspec.structs.replace(
        blank,
        model=found.model,
        prompt=usage.prompt_tokens,
        completion=completion,
        cached=cached,
        usd=this.usd,
        request_id=this.request_id or (terms.hide(found.id)[:200] if found.id else None),
        version=terms.hide(found.system_fingerprint)[:200] if found.system_fingerprint else None,
        at=now(),
    )
    called = bool(more and more.tools) and choice.finish_reason == "tool_calls"
    if choice.finish_reason not in ("stop", "length") and not called:
        return msgspec.structs.replace(reply, refused=f"ended by {terms.hide(choice.finish_reason)[:100]!r}")
    calls = [
        Call(terms.hide(call.id), terms.hide(call.function.name), terms.hide(call.function.arguments))
        for call in (message.tool_calls or () if more and more.tools else ())
    ]
    if not all(toolcalls.is_object(call.arguments) for call in calls):
        return msgspec.structs.replace(reply, refused="a call of a tool whose arguments are no JSON object")
    told = choice.logprobs.content if choice.logprobs else None
    if more and more.top_logprobs and told is None:
        return msgspec.structs.replace(reply, refused="the endpoint gives no log-probabilities")
    return msgspec.structs.replace(
        reply,
        text=terms.hide(message.content or message.refusal or ""),
        reasoning=terms.hide(reasoning) if reasoning else None,
        finish_reason="stop" if called else choice.finish_reason,
        tool_calls=calls,
        tokens=[
            Token(terms.hide(t.token), t.logprob, [(terms.hide(o.token), o.logprob) for o in t.top_logprobs])
            for t in (told or () if more and more.top_logprobs else ())
        ],
    )


def refusal_of(terms: Terms, status: int, headers: Mapping[str, str], data: bytes, blank: Reply) -> Reply:
    """What an answer with another status means.

    Raises:
        Again: to be sent again.
        UpkeepError: the endpoint will not answer anything.
    """
    said = terms.hide(data[:2000].decode(errors="replace")).strip()[:500]
    reason = f"HTTP {status}" + (f": {said}" if said else "")
    if status in AGAIN or status >= 500:
        pause = retry_after(headers.get("retry-after"))
        if pause is not None and pause > LONGEST_PAUSE_S:
            raise terms.failure(
                f"the endpoint of the model {terms.model!r} asks for a long pause",
                f"{reason}; Retry-After: {pause:,.0f} s",
                "the same command continues, after that",
            )
        raise Again(reason, pause)
    if status in (401, 403) or (status == 400 and _ABOUT_THE_KEY.search(said)):
        raise terms.failure(
            f"the endpoint of the model {terms.model!r} refuses the key", reason, f"see to ${terms.endpoint.key}"
        )
    if status in OWN_FAULT:
        return msgspec.structs.replace(blank, refused=reason, at=now())
    raise terms.failure(
        f"the endpoint of the model {terms.model!r} does not know what it is asked for",
        reason,
        f"mend `location` or `endpoint.model` in {terms.card}",
    )
