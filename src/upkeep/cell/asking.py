"""What methods that have a model write JSON about a text share: the chat that asks for it, and how a reply is read."""

from __future__ import annotations

import json
from typing import Any

from upkeep.cell.interface import Message


def instructed(rules: str, text: str) -> list[Message]:
    """The chat that has a model follow rules on a text."""
    return [Message(role="system", parts=[rules]), Message(role="user", parts=[text])]


def json_object(reply: str) -> dict[str, Any] | None:
    """The JSON object in a reply, from its first brace to its last; None where there is none."""
    try:
        found: dict[str, Any] = json.loads(reply[reply.index("{") : reply.rindex("}") + 1])
    except ValueError:
        return None
    return found
