"""From chat messages to tokens, cut into segments that prompts are likely to share.

Both engines use this module, so a model reads the same tokens whichever of them runs it.

A stream's prompts at interval t and t+1 differ only after the documents of t, and there may be thousands of them, each
of 100,000 tokens. So a prompt is tokenised in pieces that are remembered, and the pieces are cut where the tokens of
the whole text are the tokens of the pieces put together; where no such place is found, two pieces are read as one.
"""

from __future__ import annotations

import functools
import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from upkeep.cell.method import Message
from upkeep.contract import ModelSpec

SEGMENT_TOKENS = 1024
"""The longest segment: bounds the memory of one forward pass."""
SHORT_PIECE = 64
"""Characters; a part shorter than this is read together with the next one."""
WINDOW = 64
"""Characters on each side of a cut that are tokenised to prove it harmless."""

Segment = array  # of C ints, token ids


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """A prompt as tokens. Where segments begin depends on the prompt's text alone, never on what was cached."""

    segments: tuple[Segment[int], ...]
    length: int

    @classmethod
    def of(cls, segments: Sequence[Segment[int]]) -> TokenPrompt:
        return cls(tuple(segments), sum(map(len, segments)))

    def ids(self) -> list[int]:
        return [token for segment in self.segments for token in segment]


def shared_segments(a: Sequence[Segment[int]], b: Sequence[Segment[int]]) -> int:
    """How many leading segments are equal."""
    n = 0
    for x, y in zip(a, b, strict=False):
        if x is not y and x != y:
            break
        n += 1
    return n


class ChatTokens:
    """The tokenizer and chat template of one model.

    Args:
        path: folder with the tokenizer's files.
        spec: gives the template (where it replaces the tokenizer's) and the template's options.
    """

    def __init__(self, path: str, spec: ModelSpec) -> None:
        from transformers import AutoTokenizer

        self.tokenizer: Any = AutoTokenizer.from_pretrained(path)
        self.template = spec.chat_template or self.tokenizer.chat_template
        if self.template is None:
            raise ValueError(f"{spec.label}: neither the tokenizer nor the model's YAML file has a chat template")
        self.template_options = spec.template_options
        self.stop_ids = _stop_ids(self.tokenizer, Path(path))
        # Where the tags around the reasoning are made of special tokens, these must stay in the text.
        special = {token.content for token in self.tokenizer.added_tokens_decoder.values() if token.special}
        special.update(self.tokenizer.all_special_tokens)
        self._skip_special = not any(token in tag for tag in spec.thinking_tags or () for token in special)
        # Keys are texts: the same document in many prompts is hashed again, but tokenised once.
        self._piece = functools.lru_cache(maxsize=4096)(self._piece_uncached)
        self._harmless = functools.lru_cache(maxsize=16384)(self._harmless_uncached)
        self._count = functools.lru_cache(maxsize=4096)(lambda text: len(self.encode(text)))
        self._prompt = functools.lru_cache(maxsize=16)(self._prompt_uncached)

    def encode(self, text: str) -> list[int]:
        """Tokens of a text; no special token is added."""
        return self.tokenizer.encode(text, add_special_tokens=False)  # type: ignore[no-any-return]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of generated tokens, special ones left out."""
        kept = list(ids)
        while kept and kept[-1] in self.stop_ids:
            kept.pop()
        text = self.tokenizer.decode(kept, skip_special_tokens=self._skip_special, clean_up_tokenization_spaces=False)
        return str(text)

    def count(self, text: str) -> int:
        """Tokens of a text, special tokens not counted."""
        return self._count(text)

    def prompt(self, messages: Sequence[Message]) -> TokenPrompt:
        """A chat as the model reads it, with the generation prompt of the template."""
        return self._prompt(tuple((m["role"], tuple(m["parts"])) for m in messages))

    def plain(self, text: str) -> TokenPrompt:
        """A text without a template."""
        return TokenPrompt.of(self._piece(text))

    def segment(self, text: str) -> Segment[int]:
        """A text, tokenised by itself, in one piece."""
        return array("i", self.encode(text))

    # ------------------------------------------------------------ pieces

    def _prompt_uncached(self, messages: tuple[tuple[str, tuple[str, ...]], ...]) -> TokenPrompt:
        text, ends = self._render(messages)
        segments: list[Segment[int]] = []
        start = 0
        for end in ends:
            cut = self._cut(text, start, end)
            if cut is not None:
                segments.extend(self._piece(text[start:cut]))
                start = cut
        segments.extend(self._piece(text[start:]))
        return TokenPrompt.of(segments)

    def _render(self, messages: tuple[tuple[str, tuple[str, ...]], ...]) -> tuple[str, list[int]]:
        """The templated text, and where in it each part ends. A part that the template alters gives no such place."""
        contents = ["".join(parts) for _, parts in messages]
        text: str = self.tokenizer.apply_chat_template(
            [{"role": role, "content": content} for (role, _), content in zip(messages, contents, strict=True)],
            chat_template=self.template,
            tokenize=False,
            add_generation_prompt=True,
            **self.template_options,
        )
        ends: list[int] = []
        start = 0
        for (_, parts), content in zip(messages, contents, strict=True):
            at = text.find(content, start)
            if at < 0:  # templates may trim
                at = text.find(content.strip(), start) - (len(content) - len(content.lstrip()))
            if at < start:
                continue
            ends.append(at)
            for part in parts:
                at += len(part)
                ends.append(min(at, len(text)))
            start = ends[-1]
        return text, ends

    def _cut(self, text: str, start: int, end: int) -> int | None:
        """A harmless place to cut, at `end` or a little before it.

        Before the last word comes first: it does not depend on what follows, so a document is cut at the same place
        whether the question comes after it or the next document.
        """
        if end - start < SHORT_PIECE:
            return None
        tail = end - SHORT_PIECE // 2
        for cut in (text.rfind(" ", tail, end - 1), end, tail + len(text[tail:end].rstrip())):
            if cut >= tail and self._harmless(text[max(cut - WINDOW, 0) : cut], text[cut : cut + WINDOW]):
                return cut
        return None

    def _harmless_uncached(self, left: str, right: str) -> bool:
        return self.encode(left + right) == self.encode(left) + self.encode(right)

    def _piece_uncached(self, text: str) -> tuple[Segment[int], ...]:
        ids = array("i", self.encode(text))
        return tuple(ids[i : i + SEGMENT_TOKENS] for i in range(0, len(ids), SEGMENT_TOKENS))


def _stop_ids(tokenizer: Any, path: Path) -> frozenset[int]:
    """Tokens that end an answer: all that the tokenizer or any configuration of the model names.

    A chat model's end of turn is often in `generation_config.json` alone. End tokens are part of the format that the
    model was trained on, so they are read from there, and nothing else is: no sampling parameter is taken from a
    model's own files.
    """
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(path)
    named = [tokenizer.eos_token_id]
    named += [getattr(part, "eos_token_id", None) for part in (config, config.get_text_config())]
    generation = path / "generation_config.json"
    if generation.is_file():
        named.append(json.loads(generation.read_bytes()).get("eos_token_id"))
    lists = (ids if isinstance(ids, list) else [ids] for ids in named)
    return frozenset(token for ids in lists for token in ids if token is not None)
