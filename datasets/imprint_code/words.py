"""A block's phrase as it is read: with the heading that announces something, and with names that are no code."""

from __future__ import annotations

import re

from . import patterns
from .notes import FIRST, MARK, Block, Phrase, Token


def with_title(block: Block) -> Phrase:
    """A paragraph after its heading, where the heading announces something itself."""
    if block.bullet or not block.opens or not block.titles or not re.search(MARK, block.titles[-1].marked):
        return block.phrase
    title = block.titles[-1]
    moved = re.sub(MARK, lambda mark: chr(ord(mark[0]) + len(title.tokens)), block.phrase.marked)
    return Phrase(f"{title.marked.rstrip('.')}. {moved}", title.tokens + block.phrase.tokens)


def with_plain_names(phrase: Phrase) -> Phrase:
    """A phrase with words that look like identifiers as tokens too: dotted, snake_case and CamelCase where it has no
    token, else CamelCase alone, and only where it says what something is added to."""
    tokens = list(phrase.tokens)

    def mark(found: re.Match[str]) -> str:
        name = found["name"]
        if name in patterns.PRODUCTS or patterns.FILE_NAME.fullmatch(name):
            return found[0]
        tokens.append(Token(name))
        return f"{found[0][: -len(name)]}{chr(FIRST + len(tokens) - 1)}"

    pattern = patterns.OWNER if phrase.tokens else patterns.PLAIN_NAME
    marked = pattern.sub(mark, phrase.marked)
    if found := patterns.PLAIN_PARAMETER.match(marked):
        tokens.append(Token(found["name"], "param"))
        start, end = found.span("name")
        marked = f"{marked[:start]}{chr(FIRST + len(tokens) - 1)}{marked[end:]}"
    return Phrase(marked, tuple(tokens))
