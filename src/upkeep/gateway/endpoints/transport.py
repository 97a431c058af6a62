"""HTTP to an endpoint, bounded in time and size; the key is in nothing that comes back."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping

import certifi
import httpx

from upkeep.gateway.endpoints.pace import Again
from upkeep.gateway.endpoints.record import Try
from upkeep.gateway.endpoints.terms import HIDDEN, Terms

MAX_REPLY_BYTES = 32 * 2**20
CONNECT_S = 30.0
JSON = {"Content-Type": "application/json"}


class Transport:
    """The connections to one endpoint. Use as an asynchronous context manager."""

    def __init__(self, terms: Terms, proxy: str | None) -> None:
        self._terms, self._proxy = terms, proxy

    async def __aenter__(self) -> Transport:
        context = ssl.create_default_context()  # the machine's certificates, and those that come with httpx
        context.load_verify_locations(certifi.where())
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if self._terms.key is not None:
            headers["Authorization"] = f"Bearer {self._terms.key}"
        self._client = httpx.AsyncClient(
            headers=headers,
            verify=context,
            trust_env=False,
            proxy=self._proxy,
            follow_redirects=False,
            timeout=httpx.Timeout(max(self._terms.endpoint.timeout_s, 0.001), connect=CONNECT_S, pool=None),
            limits=httpx.Limits(max_connections=self._terms.endpoint.max_in_flight),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def post(self, body: bytes, this: Try) -> tuple[int, httpx.Headers, bytes]:
        """Send a request and read the whole answer, the key taken out of it.

        Raises:
            Again: there is none, or half of one, or too much of it.
        """
        data = bytearray()
        try:
            async with (
                asyncio.timeout(self._terms.endpoint.timeout_s),
                self._client.stream("POST", self._terms.url, content=body, headers=JSON) as got,
            ):
                this.status = status = got.status_code
                this.request_id = self._request_id(got.headers)
                async for block in got.aiter_bytes():
                    data += block
                    if len(data) > MAX_REPLY_BYTES:
                        raise Again(f"an answer of more than {MAX_REPLY_BYTES:,} bytes")
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError, httpx.UnsupportedProtocol) as error:
            this.usd = 0.0  # nothing was sent
            raise Again(f"no connection to {self._terms.host}: {self._told(error)}") from None
        except (TimeoutError, httpx.TimeoutException):
            raise Again(f"no whole answer within {self._terms.endpoint.timeout_s:g} s") from None
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise Again(f"the answer broke off: {self._told(error)}") from None
        key = self._terms.key
        return status, got.headers, bytes(data).replace(key.encode(), HIDDEN.encode()) if key else bytes(data)

    def _told(self, error: Exception) -> str:
        return self._terms.hide(str(error)) or type(error).__name__

    def _request_id(self, headers: Mapping[str, str]) -> str | None:
        for name in ("x-request-id", "request-id", "x-goog-request-id", "cf-ray"):
            if name in headers:
                return self._terms.hide(headers[name])[:200]
        return None
