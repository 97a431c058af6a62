"""Asks a model behind an OpenAI-compatible endpoint: within limits and budget, again where it fails, never twice where
the answer is known.

What may be wrong with an answer, and what follows:

- The endpoint's fault (HTTP 408, 409, 429, 5xx, no or half an answer, nonsense, another model's name, impossible
  counts): the request is sent again, after a pause that doubles each time or that the endpoint names. Where that does
  not help, the *cell* fails and can be continued: a fault of the endpoint is never published as a wrong answer.
- The request's own (HTTP 400, 413, 422, a content filter): the model's failure to answer, one error line. But as long
  as the endpoint has answered nothing at all, it is the card that asks for something wrong, and the cell fails.
- Key, address or model are refused (other statuses): the cell fails at once.

What an attempt costs is what the answer says. An attempt without a readable answer, after the request was sent, counts
as the most that it can have cost; a status that is an error's costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import re
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import certifi
import httpx
import msgspec
import tenacity
from msgspec import Meta, Struct

from upkeep.catalog import Catalog
from upkeep.cell import toolcalls
from upkeep.cell.endpoint import MESSAGE_TOKENS, Ask, More, estimate
from upkeep.cell.wire import Call, Token
from upkeep.contract import Count
from upkeep.errors import UpkeepError
from upkeep.gateway.endpoints import terms
from upkeep.gateway.endpoints.ledger import Ledger
from upkeep.gateway.endpoints.record import Record, Try
from upkeep.gateway.endpoints.replies import Replies, Reply, key_of
from upkeep.gateway.endpoints.terms import costs, endpoint_of, host_of, is_local, require_endpoint
from upkeep.gateway.record import Asking, NotRecorded
from upkeep.layout import Layout
from upkeep.machine.clock import now

MAX_REPLY_BYTES = 32 * 2**20
HIDDEN = "[key]"
"""What stands where an endpoint repeated the key."""
BACKOFF_S = 1.0
"""The first pause; it doubles up to LONGEST_BACKOFF_S and is drawn at random below that."""
LONGEST_BACKOFF_S = 60.0
LONGEST_PAUSE_S = 600.0
"""An endpoint that asks for a longer pause is given up; the cell can be continued later."""
PATIENCE_S = 2100.0
"""After so long, a request is not sent again, whatever the card allows: so it ends before a supervisor takes its cell
for one that stands still (`watch.Limits.stall_s`), and the reason is named."""
CONNECT_S = 30.0
WAIT_S = 0.25
"""Between two looks at a budget that requests in flight hold."""
GRACE_S = 2.0
"""How long a first refusal waits for other requests to be answered."""
TEMPLATE_TOKENS = 1024
"""What a provider may add to a prompt at most: above that, its count is taken for nonsense."""
END_TOKENS = 16
"""What it may count beyond the tokens that were asked for (the end of the answer)."""

AGAIN = frozenset({408, 409, 425, 429})
OWN_FAULT = frozenset({400, 413, 422})
_ABOUT_THE_KEY = re.compile(r"api.?key", re.IGNORECASE)
"""Some providers refuse a key with status 400."""


# ---------------------------------------------------------------- what an endpoint answers


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


_DECODER = msgspec.json.Decoder(_Completion)


class Again(Exception):
    """An attempt that failed by the endpoint's fault."""

    def __init__(self, reason: str, pause_s: float | None = None) -> None:
        super().__init__(reason)
        self.pause_s = pause_s


# ---------------------------------------------------------------- limits


class Pace:
    """Holds what is sent to so many a minute, evenly spaced, and to the pauses that the endpoint asks for."""

    def __init__(self, per_minute: int | None) -> None:
        self._interval = 60.0 / per_minute if per_minute else 0.0
        self._free = 0.0

    async def take(self, amount: int = 1) -> None:
        """Wait for one's turn."""
        moment = asyncio.get_running_loop().time()
        start = max(moment, self._free)
        self._free = start + amount * self._interval
        await asyncio.sleep(start - moment)

    def pause(self, seconds: float) -> None:
        """Let nobody begin for so long."""
        self._free = max(self._free, asyncio.get_running_loop().time() + seconds)


# ---------------------------------------------------------------- the client


class Client:
    """One job's way to one model's endpoint. To be used in one event loop.

    Args:
        record: file that takes a line for every request.
        ask: what is sent: requests whose replies are not kept, all, or none.
    """

    def __init__(self, catalog: Catalog, model: str, record: Path, ask: Asking = "unknown") -> None:
        if ask != "nothing":
            require_endpoint(catalog, model)
        self._ask_for = ask
        layout = Layout(catalog.results)
        self.model, self.spec, self._card = model, catalog.model(model), catalog.model_card(model)
        self.endpoint = endpoint_of(self.spec)
        self.url = f"{self.spec.location.rstrip('/')}/chat/completions"
        self.host = host_of(self.spec)
        self._key = terms.key_of(self.endpoint, model) if ask != "nothing" else None
        self._offline = catalog.config.offline and not is_local(self.spec)
        self._replies, self._record = Replies(layout.record, model), Record(record)
        self._ledger: Ledger | None = None
        if costs(self.endpoint.price) and ask != "nothing":
            patience = self.endpoint.timeout_s + 60.0
            self._ledger = Ledger(layout.ledger(model), model, catalog.config.budget[model], patience)
        self._slots = asyncio.Semaphore(self.endpoint.max_in_flight)
        self._requests, self._tokens = Pace(self.endpoint.requests_per_minute), Pace(self.endpoint.tokens_per_minute)
        self._running: dict[str, asyncio.Future[Reply]] = {}
        self._active = self._held = 0
        self._answered = asyncio.Event()
        if self._record.answered:
            self._answered.set()
        self.sending: set[asyncio.Task[Any] | None] = set()
        """The tasks whose request is on its way: they are paid for."""
        self._closed = False
        self._proxy = catalog.config.proxy

    async def __aenter__(self) -> Client:
        context = ssl.create_default_context()  # the machine's certificates, and those that come with httpx
        context.load_verify_locations(certifi.where())
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        self._http = httpx.AsyncClient(
            headers=headers,
            verify=context,
            trust_env=False,
            proxy=self._proxy,
            follow_redirects=False,
            timeout=httpx.Timeout(max(self.endpoint.timeout_s, 0.001), connect=CONNECT_S, pool=None),
            limits=httpx.Limits(max_connections=self.endpoint.max_in_flight),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._record.close()
        self._replies.close()
        await self._http.aclose()

    def close(self) -> None:
        """Send nothing more; what is on its way may still be answered."""
        self._closed = True

    def hide(self, text: str) -> str:
        """A text without the key."""
        return text.replace(self._key, HIDDEN) if self._key is not None else text

    # ------------------------------------------------------------ one request

    async def answer(self, ask: Ask) -> Reply:
        """The answer to a request: the one that is kept, or a new one.

        Raises:
            UpkeepError: the endpoint does not answer as it should, or the budget has no room: the job must end.
        """
        body = self._body(ask)
        encoded = msgspec.json.encode(body)
        key = key_of(self.url, encoded, ask.seed)
        del body["messages"]
        blank = Reply(key=key, model=self.endpoint.model, parameters=body)
        if (refused := self._unfit(ask)) is not None:
            return msgspec.structs.replace(blank, refused=refused)
        if (running := self._running.get(key)) is not None:  # two probes may ask the very same
            reply = await asyncio.shield(running)
            self._record.note(reply, ask.seed, source="cache")
            return reply
        done = self._running[key] = asyncio.get_running_loop().create_future()
        try:
            known = None
            if self._ask_for != "everything":
                known = self._replies.get(key)
            if known is not None or self._ask_for != "nothing":
                self._replies.keep_request(key, ask)
            if known is not None:
                self._record.note(known, ask.seed, source="cache")
                if known.refused is None:
                    self._answered.set()
            reply = known if known is not None else await self._ask(ask, encoded, blank)
            done.set_result(reply)
            return reply
        except UpkeepError as error:
            done.set_exception(error)
            done.exception()  # nobody may be waiting for it
            raise
        finally:
            done.cancel()
            del self._running[key]

    async def _ask(self, ask: Ask, body: bytes, blank: Reply) -> Reply:
        """Get an answer from the endpoint, and keep it."""
        tries: list[Try] = []
        begun = time.monotonic()
        self._active += 1
        try:
            async with self._slots:
                reply = await self._insist(ask, body, blank, tries)
            if reply.refused is not None:
                await self._hold(reply.refused)
                self._replies.put(reply)
        except BaseException:
            seconds = time.monotonic() - begun
            self._record.note(blank, ask.seed, source="endpoint", outcome="failed", tries=tries, seconds=seconds)
            raise
        finally:
            self._active -= 1
        self._record.note(reply, ask.seed, source="endpoint", tries=tries, seconds=time.monotonic() - begun)
        return reply

    async def _insist(self, ask: Ask, body: bytes, blank: Reply, tries: list[Try]) -> Reply:
        """Send a request until it is answered, as often as the card allows."""
        try:
            async for attempt in tenacity.AsyncRetrying(
                stop=tenacity.stop_after_attempt(self.endpoint.retries + 1) | tenacity.stop_after_delay(PATIENCE_S),
                wait=_pause,
                retry=tenacity.retry_if_exception_type(Again),
                reraise=True,
            ):
                with attempt:
                    tries.append(Try())
                    return await self._try(ask, body, blank, tries[-1])
        except Again as last:
            raise self._failure(
                f"no good answer from the endpoint of the model {self.model!r}",
                f"{len(tries)} attempts; the last one: {last}",
                "see to the endpoint; the same command continues",
            ) from None
        raise AssertionError("tenacity tries at least once")

    async def _hold(self, refused: str) -> None:
        """Wait, as long as nothing has been answered, to see whether a refusal is this request's own fault.

        Raises:
            UpkeepError: all requests are refused.
        """
        self._held += 1
        try:
            while not self._answered.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._answered.wait(), GRACE_S)
                    return
                if self._held >= self._active:
                    raise self._failure(
                        f"the endpoint of the model {self.model!r} refuses every request",
                        refused,
                        f"mend `location` or `endpoint` (`omit`, `fields`) in {self._card}",
                    )
        finally:
            self._held -= 1

    # ------------------------------------------------------------ one attempt

    async def _try(self, ask: Ask, body: bytes, blank: Reply, this: Try) -> Reply:
        if self._ask_for == "nothing":
            raise NotRecorded(self.model, f"request {blank.key}")
        if self._offline:
            raise self._failure(
                f"an answer of the model {self.model!r} is not kept, and the suite is set to stay offline",
                f"request {blank.key}",
                "set `offline: false`",
            )
        await self._requests.take()
        await self._tokens.take(sum(estimate(text, self.spec) for _, text in ask.texts))
        # No tokenizer makes more tokens of a text than it has bytes.
        most = min(len(body) + TEMPLATE_TOKENS, self.spec.context_length), ask.sampling.max_tokens + END_TOKENS
        worst = self._price(*most)
        number = await self._reserve(worst)
        # Until something else is known, it may have cost as much as it can.
        this.usd, begun, task = worst, time.monotonic(), asyncio.current_task()
        self.sending.add(task)
        try:
            status, headers, data = await self._post(body, this)
            if status == 200:
                reply = self._read(data, blank, most, this, ask.more)
                self._answered.set()
                # The answer is kept before it is paid for: killed in between, it is not asked for again.
                self._replies.put(reply)
                return reply
            this.usd = 0.0
            return self._refusal(status, headers, data, blank)
        except Again as again:
            this.problem = str(again)
            if again.pause_s is not None:
                self._requests.pause(again.pause_s)
            raise
        finally:
            self.sending.discard(task)
            this.seconds = time.monotonic() - begun
            if number is not None and self._ledger is not None:
                await asyncio.shield(asyncio.to_thread(self._ledger.settle, number, this.usd))

    async def _reserve(self, usd: float) -> str | None:
        self._require_open()
        if self._ledger is None:
            return None
        while (number := await asyncio.to_thread(self._ledger.reserve, usd)) is None:
            await asyncio.sleep(WAIT_S)
            self._require_open()
        return number

    def _require_open(self) -> None:
        if self._closed:
            raise UpkeepError("the job has ended", kind="interrupted")

    async def _post(self, body: bytes, this: Try) -> tuple[int, httpx.Headers, bytes]:
        """Send a request and read the whole answer, the key taken out of it.

        Raises:
            Again: there is none, or half of one, or too much of it.
        """
        data = bytearray()
        try:
            async with (
                asyncio.timeout(self.endpoint.timeout_s),
                self._http.stream("POST", self.url, content=body, headers={"Content-Type": "application/json"}) as got,
            ):
                this.status = status = got.status_code
                this.request_id = self._request_id(got.headers)
                async for block in got.aiter_bytes():
                    data += block
                    if len(data) > MAX_REPLY_BYTES:
                        raise Again(f"an answer of more than {MAX_REPLY_BYTES:,} bytes")
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError, httpx.UnsupportedProtocol) as error:
            this.usd = 0.0  # nothing was sent
            raise Again(f"no connection to {self.host}: {self.hide(str(error)) or type(error).__name__}") from None
        except (TimeoutError, httpx.TimeoutException):
            raise Again(f"no whole answer within {self.endpoint.timeout_s:g} s") from None
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise Again(f"the answer broke off: {self.hide(str(error)) or type(error).__name__}") from None
        secret = self._key.encode() if self._key is not None else None
        return status, got.headers, bytes(data).replace(secret, HIDDEN.encode()) if secret else bytes(data)

    def _request_id(self, headers: Mapping[str, str]) -> str | None:
        for name in ("x-request-id", "request-id", "x-goog-request-id", "cf-ray"):
            if name in headers:
                return self.hide(headers[name])[:200]
        return None

    # ------------------------------------------------------------ reading answers

    def _read(self, data: bytes, blank: Reply, most: tuple[int, int], this: Try, more: More | None) -> Reply:
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
            raise Again(f"not a chat completion: {self.hide(str(error))}") from None
        usage = found.usage
        # Where the total says more, the rest is reasoning that is charged and not among `completion_tokens`.
        completion = max(usage.completion_tokens, (usage.total_tokens or 0) - usage.prompt_tokens)
        cached = (usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else None) or 0
        if usage.prompt_tokens > most[0] or completion > most[1] or cached > usage.prompt_tokens:
            # Should it be true all the same, the ledger knows of it.
            limit = self.spec.context_length
            this.usd = max(this.usd, self._price(min(usage.prompt_tokens, limit), min(completion, limit)))
            raise Again(
                f"an impossible usage: {usage.prompt_tokens} tokens in, of which {cached} cached, {completion} out; "
                f"at most {most[0]} in and {most[1]} out are possible"
            )
        this.usd = self._price(usage.prompt_tokens, completion, cached)
        # A dated snapshot is another name, too: which ones are meant is for the card to say.
        if found.model not in (self.endpoint.model, *self.endpoint.answers_as):
            raise Again(
                f"answered by the model {self.hide(found.model)[:100]!r}, asked was {self.endpoint.model!r}; if it is "
                f"meant, add it under `endpoint.answers_as` in {self._card}"
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
            request_id=this.request_id or (self.hide(found.id)[:200] if found.id else None),
            at=now(),
        )
        called = bool(more and more.tools) and choice.finish_reason == "tool_calls"
        if choice.finish_reason not in ("stop", "length") and not called:
            return msgspec.structs.replace(reply, refused=f"ended by {self.hide(choice.finish_reason)[:100]!r}")
        calls = [
            Call(self.hide(call.id), self.hide(call.function.name), self.hide(call.function.arguments))
            for call in (message.tool_calls or () if more and more.tools else ())
        ]
        if not all(toolcalls.is_object(call.arguments) for call in calls):
            return msgspec.structs.replace(reply, refused="a call of a tool whose arguments are no JSON object")
        told = choice.logprobs.content if choice.logprobs else None
        if more and more.top_logprobs and told is None:
            return msgspec.structs.replace(reply, refused="the endpoint gives no log-probabilities")
        return msgspec.structs.replace(
            reply,
            text=self.hide(message.content or message.refusal or ""),
            reasoning=self.hide(reasoning) if reasoning else None,
            finish_reason="stop" if called else choice.finish_reason,
            tool_calls=calls,
            tokens=[
                Token(self.hide(t.token), t.logprob, [(self.hide(o.token), o.logprob) for o in t.top_logprobs])
                for t in (told or () if more and more.top_logprobs else ())
            ],
        )

    def _refusal(self, status: int, headers: Mapping[str, str], data: bytes, blank: Reply) -> Reply:
        """What an answer with another status means.

        Raises:
            Again: to be sent again.
            UpkeepError: the endpoint will not answer anything.
        """
        said = self.hide(data[:2000].decode(errors="replace")).strip()[:500]
        reason = f"HTTP {status}" + (f": {said}" if said else "")
        if status in AGAIN or status >= 500:
            pause = _retry_after(headers.get("retry-after"))
            if pause is not None and pause > LONGEST_PAUSE_S:
                raise self._failure(
                    f"the endpoint of the model {self.model!r} asks for a long pause",
                    f"{reason}; Retry-After: {pause:,.0f} s",
                    "the same command continues, after that",
                )
            raise Again(reason, pause)
        if status in (401, 403) or (status == 400 and _ABOUT_THE_KEY.search(said)):
            raise self._failure(
                f"the endpoint of the model {self.model!r} refuses the key", reason, f"see to ${self.endpoint.key}"
            )
        if status in OWN_FAULT:
            return msgspec.structs.replace(blank, refused=reason, at=now())
        raise self._failure(
            f"the endpoint of the model {self.model!r} does not know what it is asked for",
            reason,
            f"mend `location` or `endpoint.model` in {self._card}",
        )

    def _failure(self, problem: str, found: str, remedy: str) -> UpkeepError:
        return UpkeepError(problem, where=self.host, found=found, remedy=remedy, kind="endpoint")

    # ------------------------------------------------------------ what is sent

    def _body(self, ask: Ask) -> dict[str, Any]:
        """The request's body: every parameter explicit, but for those that the provider does not take."""
        sampling = ask.sampling
        body: dict[str, Any] = {
            "model": self.endpoint.model,
            "messages": _messages(ask),
            self.endpoint.limit_field: sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "min_p": sampling.min_p,
            "repetition_penalty": sampling.repetition_penalty,
            "presence_penalty": sampling.presence_penalty,
            "seed": ask.seed & 0x7FFF_FFFF,  # some take 32 bits, with a sign
            "stream": False,
        }
        for name in self.endpoint.omit:
            del body[name]
        return body | (_more(ask.more) if ask.more is not None else {}) | self.endpoint.fields

    def _unfit(self, ask: Ask) -> str | None:
        """Why a request is not sent; None where it is."""
        if ask.more is not None:
            try:
                ask.more.check()
            except ValueError as error:
                return str(error)
        tokens = sum(MESSAGE_TOKENS + estimate(text, self.spec) for _, text in ask.texts)
        if tokens + ask.sampling.max_tokens > self.spec.context_length:
            return f"about {tokens} prompt tokens and {ask.sampling.max_tokens} to come do not fit into the context"
        given, usual = msgspec.structs.asdict(ask.sampling), msgspec.structs.asdict(self.spec.sampling)
        lost = [name for name in self.endpoint.omit if name in given and given[name] != usual[name]]
        return f"the endpoint takes no {', '.join(lost)}" if lost else None

    def _price(self, prompt: int, completion: int, cached: int = 0) -> float:
        """US dollars."""
        price = self.endpoint.price
        of_cached = price.prompt if price.cached is None else price.cached
        return ((prompt - cached) * price.prompt + cached * of_cached + completion * price.completion) / 1e6


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


def _pause(state: tenacity.RetryCallState) -> float:
    """Seconds until a request is sent again: what the endpoint asks for, and a random time that grows."""
    asked = error.pause_s if state.outcome and isinstance(error := state.outcome.exception(), Again) else None
    drawn = tenacity.wait_random_exponential(multiplier=BACKOFF_S, max=LONGEST_BACKOFF_S)(state)
    return (asked or 0.0) + drawn


def _retry_after(value: str | None) -> float | None:
    """Seconds, of a header that gives seconds or a date; None where it gives neither."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if seconds == seconds else None
