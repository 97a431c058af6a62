"""From chat messages to tokens, cut into segments that prompts are likely to share.

Both engines use this module, so a model reads the same tokens whichever of them runs it.

A stream's prompts at interval t and t+1 differ only after the documents of t, and there may be thousands of them, each
of 100,000 tokens. So a prompt is tokenised in pieces that are remembered, and the pieces are cut where the tokens of
the whole text are the tokens of the pieces put together; where no such place is found, two pieces are read as one.
"""

from __future__ import annotations

import functools
import itertools
import json
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from upkeep.cell.interface import Message, ToolCall
from upkeep.cell.toolcalls import templated
from upkeep.contract import ModelSpec

Frozen = tuple[str, tuple[str, ...], tuple[ToolCall, ...], str | None]
"""A message's role, parts, calls, and the call that it is the result of."""
SEGMENT_TOKENS = 1024
"""The longest segment: bounds the memory of one forward pass."""
SHORT_PIECE = 64
"""Characters; a part shorter than this is read together with the next one."""
WINDOW = 64
"""Characters on each side of a cut, at least, that are tokenised to prove it harmless: as many as the longest token has
that was added to a vocabulary, for of that a shorter window would show a part."""

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
        return [*itertools.chain.from_iterable(self.segments)]


@dataclass(frozen=True, slots=True)
class Scorable:
    """A given text after a prompt, tokenised together with it."""

    prompt: TokenPrompt
    """The tokens before the first one whose probability is wanted; one at least, but for an empty text."""
    ids: Segment[int]
    """The tokens whose probability is wanted."""
    spans: list[tuple[int, int]]
    """The characters of the text that each covers, from `upkeep.cell.interface.ScoredToken`. There is one more than
    `ids` where the first token has no probability, for nothing is before it."""


def shared_segments(a: Sequence[Segment[int]], b: Sequence[Segment[int]]) -> int:
    """How many leading segments are equal."""
    n = 0
    for x, y in zip(a, b, strict=False):
        if x is not y and x != y:
            break
        n += 1
    return n


def nearest(held: Sequence[Segment[int]], waiting: Iterable[TokenPrompt]) -> int:
    """The place of the prompt that has most leading segments in common with one that is held, the first of such.

    Prompts that are taken so follow those that begin as they do, and what they share is computed once.
    """
    shared = [shared_segments(held, prompt.segments) for prompt in waiting]
    return shared.index(max(shared))


class ChatTokens:
    """The tokenizer and chat template of one model.

    Args:
        path: folder with the tokenizer's files.
        spec: gives the template (where it replaces the tokenizer's) and the template's options.
    """

    def __init__(self, path: str, spec: ModelSpec) -> None:
        self.tokenizer = _tokenizer(Path(path))
        self._fast: Any = self.tokenizer.backend_tokenizer if self.tokenizer.is_fast else None
        """What it has the work done by; asked by itself it is about twice as quick with a short text."""
        if self._fast is not None:
            self._fast.no_truncation()
            self._fast.no_padding()
        self.template = spec.chat_template or self.tokenizer.chat_template
        if self.template is None:
            raise ValueError(f"{spec.label}: neither the tokenizer nor the model's YAML file has a chat template")
        self.template_options = spec.template_options
        self.stop_ids = _stop_ids(self.tokenizer, Path(path))
        # Where the tags around the reasoning are made of special tokens, these must stay in the text.
        added = self.tokenizer.added_tokens_decoder.values()
        self._window = max([WINDOW, *(len(token.content) for token in added)])
        special = {token.content for token in added if token.special}
        special.update(self.tokenizer.all_special_tokens)
        self._before = self._put_before_a_text()
        self._skip_special = not any(token in tag for tag in spec.thinking_tags or () for token in special)
        # Keys are texts: the same document in many prompts is hashed again, but tokenised once.
        self._piece = functools.lru_cache(maxsize=4096)(self._piece_uncached)
        self._harmless = functools.lru_cache(maxsize=16384)(self._harmless_uncached)
        self._count = functools.lru_cache(maxsize=4096)(lambda text: len(self.encode(text)))
        self._prompt = functools.lru_cache(maxsize=16)(self._prompt_uncached)

    def encode(self, text: str) -> list[int]:
        """Tokens of a text; no special token is added."""
        if self._fast is None:
            return self.tokenizer.encode(text, add_special_tokens=False)  # type: ignore[no-any-return]
        return self._fast.encode(text, add_special_tokens=False).ids  # type: ignore[no-any-return]

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

    def prompt(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()) -> TokenPrompt:
        """A chat as the model reads it, with the generation prompt of the template.

        Args:
            tools: functions that the template shows to the model.

        Raises:
            ValueError: the template passes over tools, calls or their results, or calls are malformed.
        """
        return self._prompt(_frozen(messages), json.dumps(list(tools)) if tools else "")

    def token(self, id: int) -> str:
        """The text of one token by itself."""
        return str(self.tokenizer.decode([id], skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def stops(self, stop: Sequence[str]) -> Callable[[Sequence[int]], bool]:
        """Tells of growing lists of generated tokens whether one of some strings has come at the end.

        Only the last tokens are decoded, as many as can have to do with such a string: each has a byte at least.
        """
        window = max((len(one.encode()) for one in stop), default=0) + 8

        def met(ids: Sequence[int]) -> bool:
            text = self.decode(ids[-window:])
            return any(one in text for one in stop)

        return met

    def scorable(self, prompt: str | Sequence[Message], continuation: str) -> Scorable:
        """A text after a prompt, as `upkeep.cell.interface.LLM.logprobs` says it.

        Raises:
            ValueError: the tokenizer does not say which characters a token covers.
        """
        if isinstance(prompt, str):
            before, text, ends = self._before, prompt, [len(prompt)]
        else:
            before, (text, ends) = [], self._render(_frozen(prompt), "")
        boundary, text = len(text), text + continuation
        *cuts, last = self._cuts(text, ends)
        pieces = [piece for a, b in itertools.pairwise([*cuts, last]) for piece in self._piece(text[a:b])]
        found = self._offsets.encode(text[last:], add_special_tokens=False)
        ids, boundary = found.ids, boundary - last
        first = next((n for n, (_, end) in enumerate(found.offsets) if end > boundary), len(ids))
        spans = [(start - boundary, end - boundary) for start, end in found.offsets[first:]]
        if not (before or pieces or first):
            first = 1
        rest = array("i", ids[:first])
        segments = [
            array("i", before),
            *pieces,
            *(rest[i : i + SEGMENT_TOKENS] for i in range(0, first, SEGMENT_TOKENS)),
        ]
        return Scorable(TokenPrompt.of([*filter(len, segments)]), array("i", ids[first:]), spans)

    def _put_before_a_text(self) -> list[int]:
        """The special tokens that the tokenizer puts before a text, such as the one that says that a text begins."""
        bare = self.encode("a")
        whole: list[int] = self.tokenizer.encode("a", add_special_tokens=True)
        return next((whole[:n] for n in range(len(whole)) if whole[n : n + len(bare)] == bare), [])

    @functools.cached_property
    def _offsets(self) -> Any:
        """The tokenizer as it tells which characters a token covers, spaces before it included."""
        if self._fast is None:
            raise ValueError("the model's tokenizer does not say which characters a token covers (no tokenizer.json)")
        from tokenizers import Tokenizer

        found = Tokenizer.from_str(self._fast.to_str())
        found.post_processor = None  # what it adds is added here; and it may leave spaces out of what it says
        return found

    # ------------------------------------------------------------ pieces

    def _prompt_uncached(self, messages: tuple[Frozen, ...], tools: str) -> TokenPrompt:
        text, ends = self._render(messages, tools)
        cuts = itertools.pairwise([*self._cuts(text, ends), len(text)])
        return TokenPrompt.of([segment for a, b in cuts for segment in self._piece(text[a:b])])

    def _cuts(self, text: str, ends: Sequence[int]) -> list[int]:
        """Where the pieces of a text begin, none of them after the last of `ends`, where its parts end."""
        cuts = [0]
        for end in ends:
            if (cut := self._cut(text, cuts[-1], end)) is not None:
                cuts.append(cut)
        return cuts

    def _render(self, messages: tuple[Frozen, ...], tools: str) -> tuple[str, list[int]]:
        """The templated text, and where in it each part ends. A part that the template alters gives no such place."""
        contents = ["".join(parts) for _, parts, _, _ in messages]
        text = self._template(messages, tools)
        self._require_heard(messages, tools, text)
        ends: list[int] = []
        start = 0
        for (_, parts, _, _), content in zip(messages, contents, strict=True):
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

    def _template(self, messages: tuple[Frozen, ...], tools: str) -> str:
        text: str = self.tokenizer.apply_chat_template(
            [templated(*message) for message in messages],
            chat_template=self.template,
            tokenize=False,
            add_generation_prompt=True,
            **({"tools": json.loads(tools)} if tools else {}),
            **self.template_options,
        )
        return text

    def _require_heard(self, messages: tuple[Frozen, ...], tools: str, text: str) -> None:
        """See whether the template shows the model all that is said of tools.

        Raises:
            ValueError: it does not.
        """
        silent = tuple((role, parts, (), answered) for role, parts, _, answered in messages)
        unanswered = tuple(message for message in messages if message[0] != "tool")
        for what, there, other in (
            ("tools", bool(tools), (messages, "")),
            ("calls of tools", silent != messages, (silent, tools)),
            ("what calls of tools gave", unanswered != messages, (unanswered, tools)),
        ):
            if there and self._template(*other) == text:
                raise ValueError(f"the model's chat template passes over {what}: it has to be asked without")

    def _cut(self, text: str, start: int, end: int) -> int | None:
        """A harmless place to cut, at `end` or a little before it.

        Before the last word comes first: it does not depend on what follows, so a document is cut at the same place
        whether the question comes after it or the next document.
        """
        if end - start < SHORT_PIECE:
            return None
        tail = end - SHORT_PIECE // 2
        for cut in (text.rfind(" ", tail, end - 1), end, tail + len(text[tail:end].rstrip())):
            wide = self._window
            if cut >= tail and self._harmless(text[max(cut - wide, 0) : cut], text[cut : cut + wide]):
                return cut
        return None

    def _harmless_uncached(self, left: str, right: str) -> bool:
        return self.encode(left + right) == self.encode(left) + self.encode(right)

    def _piece_uncached(self, text: str) -> tuple[Segment[int], ...]:
        ids = array("i", self.encode(text))
        return tuple(ids[i : i + SEGMENT_TOKENS] for i in range(0, len(ids), SEGMENT_TOKENS))


def _frozen(messages: Sequence[Message]) -> tuple[Frozen, ...]:
    return tuple(
        (m["role"], tuple(m["parts"]), tuple(m.get("tool_calls", ())), m.get("tool_call_id")) for m in messages
    )


def _tokenizer(folder: Path) -> Any:
    """What transformers reads with. Of a Llama that names the plain class it is that one; transformers' index of all
    models, which for others puts right what they name, takes longer to import than all else."""
    import transformers

    model, names = _read(folder / "config.json"), _read(folder / "tokenizer_config.json")
    if model.get("model_type") == "llama" and names.get("tokenizer_class") == "PreTrainedTokenizerFast":
        return transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    return transformers.AutoTokenizer.from_pretrained(folder)


def _read(file: Path) -> dict[str, Any]:
    return json.loads(file.read_bytes()) if file.is_file() else {}


def _stop_ids(tokenizer: Any, path: Path) -> frozenset[int]:
    """Tokens that end an answer: all that the tokenizer or any configuration of the model names.

    A chat model's end of turn is often in `generation_config.json` alone. End tokens are part of the format that the
    model was trained on, so they are read from there, and nothing else is: no sampling parameter is taken from a
    model's own files.
    """
    named = [tokenizer.eos_token_id]
    config = _read(path / "config.json")
    if "eos_token_id" in config and not any(
        isinstance(part, dict) and "model_type" in part for part in config.values()
    ):
        named.append(config["eos_token_id"])
    else:  # what a kind of model has where nothing is said
        from transformers import AutoConfig

        known = AutoConfig.from_pretrained(path)
        named += [getattr(part, "eos_token_id", None) for part in (known, known.get_text_config())]
    named.append(_read(path / "generation_config.json").get("eos_token_id"))
    lists = (ids if isinstance(ids, list) else [ids] for ids in named)
    return frozenset(token for ids in lists for token in ids if token is not None)
