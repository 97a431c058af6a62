"""What an endpoint was asked, kept in its parts beside what it answered (`upkeep.gateway.prompts`)."""

from __future__ import annotations

import msgspec

from upkeep.cell.engines import wire
from upkeep.cell.engines.endpoint import Ask
from upkeep.gateway.prompts import Keeper, prompt_key
from upkeep.gateway.record import Replies
from upkeep.paths import Layout


def kept(layout: Layout, model: str) -> Replies:
    """Where the requests to a model's endpoint are kept, by the keys of their answers (`replies.key_of`)."""
    return Replies(layout.prompts(model), {"endpoint": model}, model)


class Prompts:
    """Keeps requests. For one thread of one process."""

    def __init__(self, layout: Layout, model: str) -> None:
        self._kept = kept(layout, model)
        self._keeper = Keeper(self._kept.get, self._kept.put)

    def keep(self, key: str, ask: Ask) -> None:
        """Keep a request, unless it is.

        Raises:
            UpkeepError: there is no room.
        """
        beside = [] if not ask.about and ask.more is None else [ask.about, ask.more or []]
        contents = [msgspec.msgpack.encode(one) for one in (ask.messages, *beside)]
        request = wire.Generate(0, 0, ask.sampling, ask.seed)
        self._keeper.keep_prompt(prompt := prompt_key("chat", *contents), "chat", contents)
        self._keeper.keep(bytes.fromhex(key), prompt, request)

    def close(self) -> None:
        """Bring everything to disk."""
        self._kept.close()
