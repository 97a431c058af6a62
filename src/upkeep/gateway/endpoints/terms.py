"""On which terms an endpoint is asked: its address, its key, its price and the budget."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from upkeep.catalog import Catalog
from upkeep.contract import Endpoint, ModelSpec, Price
from upkeep.errors import UpkeepError
from upkeep.gateway.endpoints import ledger
from upkeep.layout import Layout

SHORTEST_KEY = 8
"""A key is taken out of all that an endpoint answers; a short one might be a word."""
HIDDEN = "[key]"
"""What stands where an endpoint repeated the key."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a model's endpoint is asked by."""

    model: str
    spec: ModelSpec
    endpoint: Endpoint
    card: str
    """The model's, for messages."""
    key: str | None
    """None where it asks for none, or is not asked."""

    @property
    def url(self) -> str:
        """Where chat completions are asked for."""
        return f"{self.spec.location.rstrip('/')}/chat/completions"

    @property
    def host(self) -> str:
        """Host, and port where one is named."""
        return host_of(self.spec)

    def hide(self, text: str) -> str:
        """A text without the key."""
        return text.replace(self.key, HIDDEN) if self.key is not None else text

    def usd(self, prompt: int, completion: int, cached: int = 0) -> float:
        """US dollars for so many tokens; `cached` are among those of the prompt."""
        price = self.endpoint.price
        of_cached = price.prompt if price.cached is None else price.cached
        return ((prompt - cached) * price.prompt + cached * of_cached + completion * price.completion) / 1e6

    def failure(self, problem: str, found: str, remedy: str) -> UpkeepError:
        """The error that ends a job which cannot be answered."""
        return UpkeepError(problem, where=self.host, found=found, remedy=remedy, kind="endpoint")


def terms_of(catalog: Catalog, model: str, *, with_key: bool) -> Terms:
    """The terms of a model.

    Raises:
        UpkeepError: it is behind no endpoint, or there is no key in the environment.
    """
    spec = catalog.model(model)
    endpoint = endpoint_of(spec)
    key = key_of(endpoint, model) if with_key else None
    return Terms(model, spec, endpoint, catalog.model_card(model), key)


def require_endpoint(catalog: Catalog, model: str) -> None:
    """Refuse a model behind an endpoint whose key or budget is missing, before anything starts.

    Raises:
        UpkeepError: there is no key, or no budget for a model that costs something.
    """
    endpoint = endpoint_of(catalog.model(model))
    key_of(endpoint, model)
    if costs(endpoint.price) and model not in catalog.config.budget:
        raise UpkeepError(
            f"the model {model!r} costs money, and no budget is set for it",
            expected="US dollars that it may cost, over all runs of these results",
            remedy=f"add `budget: {{{model}: 10.0}}` to your configuration",
            kind="budget",
        )


def endpoint_of(spec: ModelSpec) -> Endpoint:
    """Raises UpkeepError where the model is behind none."""
    if spec.endpoint is None:
        raise UpkeepError(f"the model {spec.label!r} is behind no endpoint")
    return spec.endpoint


def key_of(endpoint: Endpoint, model: str) -> str | None:
    """The endpoint's key; None where it asks for none. It is in no message, whatever is wrong with it.

    Raises:
        UpkeepError: there is none in the environment.
    """
    if endpoint.key is None:
        return None
    key = os.environ.get(endpoint.key, "").strip()
    if len(key) < SHORTEST_KEY or not key.isascii() or not key.isprintable() or " " in key:
        raise UpkeepError(
            f"the model {model!r} needs a key",
            where=f"${endpoint.key}",
            expected=f"the provider's API key in this environment variable, {SHORTEST_KEY} visible characters or more",
            found="something else" if key else "nothing",
            remedy=f"export {endpoint.key}=...",
            kind="endpoint",
        )
    return key


def costs(price: Price) -> bool:
    """Whether an endpoint costs anything."""
    return price.prompt > 0 or price.completion > 0


def host_of(spec: ModelSpec) -> str:
    """Host, and port where one is named."""
    return urlsplit(spec.location).netloc


def is_local(spec: ModelSpec) -> bool:
    """Whether an endpoint is on this machine."""
    return urlsplit(spec.location).hostname in ("localhost", "127.0.0.1", "::1")


def endpoint_version(spec: ModelSpec) -> str:
    """What stands for an engine's version in a manifest."""
    return f"{endpoint_of(spec).model} at {host_of(spec)}"


def spent(results: Path, model: str) -> ledger.Spent:
    """What a model's endpoint has cost so far, over all runs of these results.

    Raises:
        UpkeepError: the ledger is damaged.
    """
    return ledger.read(Layout(results).ledger(model))
