"""Asks a model behind an OpenAI-compatible endpoint: within limits and budget, again where it fails, never twice where
the answer is known.

- Where the endpoint is at fault (`completions` says when), the request is sent again, after a pause. Where that does
  not help, the *cell* fails and can be continued: a fault of the endpoint is never published as a wrong answer.
- Where the request itself is refused, that is the model's failure to answer, one error line. But as long as the
  endpoint has answered nothing at all, it is the card that asks for something wrong, and the cell fails.
- Where key, address or model are refused, the cell fails at once.

What an attempt costs is what the answer says. An attempt without a readable answer, after the request was sent, counts
as the most that it can have cost; a status that is an error's costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any

import msgspec
import tenacity

from upkeep.catalog import Catalog
from upkeep.cell.endpoint import Ask, estimate
from upkeep.errors import UpkeepError
from upkeep.gateway.endpoints.body import body_of, unfit
from upkeep.gateway.endpoints.completions import refusal_of, reply_of
from upkeep.gateway.endpoints.ledger import Ledger
from upkeep.gateway.endpoints.pace import Again, Pace, pause_before_next
from upkeep.gateway.endpoints.record import Record, Try
from upkeep.gateway.endpoints.replies import Replies, Reply, key_of
from upkeep.gateway.endpoints.terms import costs, is_local, require_endpoint, terms_of
from upkeep.gateway.endpoints.transport import Transport
from upkeep.gateway.record import Asking, NotRecorded
from upkeep.layout import Layout

PATIENCE_S = 2100.0
"""After so long, a request is not sent again, whatever the card allows: so it ends before a supervisor takes its cell
for one that stands still (`watch.Limits.stall_s`), and the reason is named."""
WAIT_S = 0.25
"""Between two looks at a budget that requests in flight hold."""
GRACE_S = 2.0
"""How long a first refusal waits for other requests to be answered."""
TEMPLATE_TOKENS = 1024
"""What a provider may add to a prompt at most: above that, its count is taken for nonsense."""
END_TOKENS = 16
"""What it may count beyond the tokens that were asked for (the end of the answer)."""


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
        self._terms = terms = terms_of(catalog, model, with_key=ask != "nothing")
        self._offline = catalog.config.offline and not is_local(terms.spec)
        self._replies, self._record = Replies(layout.record, model), Record(record)
        self._ledger: Ledger | None = None
        if costs(terms.endpoint.price) and ask != "nothing":
            patience = terms.endpoint.timeout_s + 60.0
            self._ledger = Ledger(layout.ledger(model), model, catalog.config.budget[model], patience)
        self._slots = asyncio.Semaphore(terms.endpoint.max_in_flight)
        self._requests, self._tokens = Pace(terms.endpoint.requests_per_minute), Pace(terms.endpoint.tokens_per_minute)
        self._running: dict[str, asyncio.Future[Reply]] = {}
        self._active = self._held = 0
        self._answered = asyncio.Event()
        if self._record.answered:
            self._answered.set()
        self.sending: set[asyncio.Task[Any] | None] = set()
        """The tasks whose request is on its way: they are paid for."""
        self._closed = False
        self._transport = Transport(terms, catalog.config.proxy)

    async def __aenter__(self) -> Client:
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._record.close()
        self._replies.close()
        await self._transport.__aexit__()

    def close(self) -> None:
        """Send nothing more; what is on its way may still be answered."""
        self._closed = True

    def hide(self, text: str) -> str:
        """A text without the key."""
        return self._terms.hide(text)

    # ------------------------------------------------------------ one request

    async def answer(self, ask: Ask) -> Reply:
        """The answer to a request: the one that is kept, or a new one.

        Raises:
            UpkeepError: the endpoint does not answer as it should, or the budget has no room: the job must end.
        """
        body = body_of(self._terms.spec, ask)
        encoded = msgspec.json.encode(body)
        key = key_of(self._terms.url, encoded, ask.seed)
        del body["messages"]
        blank = Reply(key=key, model=self._terms.endpoint.model, parameters=body)
        if (refused := unfit(self._terms.spec, ask)) is not None:
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
        attempts = self._terms.endpoint.retries + 1
        try:
            async for attempt in tenacity.AsyncRetrying(
                stop=tenacity.stop_after_attempt(attempts) | tenacity.stop_after_delay(PATIENCE_S),
                wait=pause_before_next,
                retry=tenacity.retry_if_exception_type(Again),
                reraise=True,
            ):
                with attempt:
                    tries.append(Try())
                    return await self._try(ask, body, blank, tries[-1])
        except Again as last:
            raise self._terms.failure(
                f"no good answer from the endpoint of the model {self._terms.model!r}",
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
                    raise self._terms.failure(
                        f"the endpoint of the model {self._terms.model!r} refuses every request",
                        refused,
                        f"mend `location` or `endpoint` (`omit`, `fields`) in {self._terms.card}",
                    )
        finally:
            self._held -= 1

    # ------------------------------------------------------------ one attempt

    async def _try(self, ask: Ask, body: bytes, blank: Reply, this: Try) -> Reply:
        if self._ask_for == "nothing":
            raise NotRecorded(self._terms.model, f"request {blank.key}")
        if self._offline:
            raise self._terms.failure(
                f"an answer of the model {self._terms.model!r} is not kept, and the suite is set to stay offline",
                f"request {blank.key}",
                "set `offline: false`",
            )
        await self._requests.take()
        await self._tokens.take(sum(estimate(text, self._terms.spec) for _, text in ask.texts))
        # No tokenizer makes more tokens of a text than it has bytes.
        most = min(len(body) + TEMPLATE_TOKENS, self._terms.spec.context_length), ask.sampling.max_tokens + END_TOKENS
        worst = self._terms.usd(*most)
        number = await self._reserve(worst)
        # Until something else is known, it may have cost as much as it can.
        this.usd, begun, task = worst, time.monotonic(), asyncio.current_task()
        self.sending.add(task)
        try:
            status, headers, data = await self._transport.post(body, this)
            if status == 200:
                reply = reply_of(self._terms, data, blank, most, this, ask.more)
                self._answered.set()
                # The answer is kept before it is paid for: killed in between, it is not asked for again.
                self._replies.put(reply)
                return reply
            this.usd = 0.0
            return refusal_of(self._terms, status, headers, data, blank)
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
