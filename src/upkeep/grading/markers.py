"""Where a response comes to its answer, and whether it says more.

Apart from the reading of answers: which responses a judge is asked about must not depend on how answers are read.
"""

from __future__ import annotations

import re

# In any dress: `## Answer:`, `**Final Answer**:`, `"answer": `. Bounded, so that it cannot backtrack.
MARKER = re.compile(r"(?<![^\W_])answer[*_\"'`#” \t]{0,8}[:：]", re.IGNORECASE)
REASONS = 5
"""So many words are taken for reasons, and not for a heading or an option that is told again. Ours."""


def has_reasons(response: str) -> bool:
    """Whether a response says more than an answer: at least REASONS words before its last answer marker, or in all."""
    found = None
    for found in MARKER.finditer(response):  # noqa: B007 (the last one is wanted)
        pass
    return len(response[: found.start() if found else None].split()) >= REASONS
