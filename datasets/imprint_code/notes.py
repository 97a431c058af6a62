"""What release notes are read into: blocks, which are leaf bullets and paragraphs with their headings.

Both readers (`rst`, `markdown`) put blocks together by `Written` and `Section`. Whatever a library marks as code
(literals, roles of its documentation system, the default role) becomes a token; the rest is text.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

FIRST, LAST = 0xE000, 0xF8FF
"""Code points of the private use area: in `Phrase.marked`, one stands for each token."""
MARK = f"[{chr(FIRST)}-{chr(LAST)}]"

_PULL = re.compile(r"(?:\bgh-|(?<![\w&])#)(\d{2,6})\b|/(?:pull|issues)/(\d+)")
_REFERENCE = r"(?:(?i:gh|pr|issue)?[-\s]*#?\d+|by|@[\w-]+|https?://[^\s)]+)"
_REFERENCES = re.compile(rf"\s*\({_REFERENCE}(?:[\s,;]+{_REFERENCE})*[\s,;]*\)(?:[\s,]*(?:by )?@[\w-]+)*\s*\Z")
"""References at the end of a bullet, and whoever is thanked behind them."""
_BRACED = re.compile(r"(?:[\w.]|\{\s*\w+(?:\s*,\s*\w+)*\s*\})+(?:\(\))?\Z")
_MOST_BRACED = 64
"""Names that one token may stand for; groups multiply."""
_GROUP = re.compile(r"\{([^{}]*)\}")


CODE_ROLES = frozenset({"any", "attr", "class", "code", "data", "exc", "func", "meth", "mod", "obj", "literal"})
LONG_ROLES = {"attribute": "attr", "exception": "exc", "function": "func", "method": "meth", "module": "mod"}
"""Roles that name an identifier, by the last part of their name (`py:func` is `func`)."""
PULL_ROLES = frozenset({"gh", "issue", "pr", "pull", "ghpull", "ghissue"})
"""Roles that name a pull request or an issue by its number."""
CALLABLE_ROLES = CODE_ROLES - {"any", "code", "literal", "obj"}
TITLED = re.compile(r"(?s).*<(?P<target>[^<>]+)>\s*\Z")
_STRESS = "\x02\x03"
"""Around a word in italics, until its phrase is known."""
_WORD = f"{_STRESS[0]}([^{_STRESS}]*){_STRESS[1]}"
_WORDS = f"{_WORD}(?:(?:, and |, | and | or ){_WORD})*"
_STRESSED = tuple(
    re.compile(pattern)
    for pattern in (
        rf"{_WORDS}(?= (?:[\w-]+ )?(?:arguments?|parameters?|options?|keywords?|kwargs?)\b)",
        rf"(?<=argument ){_WORDS}",
        rf"(?<=parameter ){_WORDS}",
        rf"(?<=accepts ){_WORDS}",
        f"{_STRESS[0]}([a-z]+_[a-z_]*\\w){_STRESS[1]}",
    )
)
"""Where words in italics name parameters."""


@dataclass(frozen=True, slots=True)
class Token:
    """What is marked as code."""

    text: str
    role: str = ""
    """The role that names its kind (`func`, `meth`, `class`, ...); empty where there is none."""


@dataclass(frozen=True)
class Phrase:
    """A text in which every token is one character of the private use area."""

    marked: str = ""
    tokens: tuple[Token, ...] = ()

    def token(self, mark: str) -> Token:
        return self.tokens[ord(mark) - FIRST]

    @cached_property
    def plain(self) -> str:
        """The text as a reader sees it, tokens in backticks."""
        return re.sub(MARK, lambda found: f"`{self.token(found[0]).text.lstrip('~!')}`", self.marked)


@dataclass
class Written:
    """Puts a phrase together."""

    parts: list[str] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    pulls: list[int] = field(default_factory=list)

    def text(self, text: str) -> None:
        self.parts.append(re.sub(MARK, " ", text))
        self.pulls += [int(a or b) for a, b in _PULL.findall(text)]

    def link(self, address: str) -> None:
        self.pulls += [int(a or b) for a, b in _PULL.findall(address) if b]

    def code(self, text: str, role: str = "") -> None:
        """A token; `a.{b,c}` is two."""
        text = " ".join(text.split())
        names = [text]
        if "{" in text and _BRACED.match(text):
            parts = _GROUP.split(text)  # what stands between the groups, and what they hold, in turn
            choices = [part.split(",") if n % 2 else [part] for n, part in enumerate(parts)]
            if math.prod(map(len, choices)) <= _MOST_BRACED:
                names = ["".join(one.strip() for one in chosen) for chosen in itertools.product(*choices)]
        for n, name in enumerate(names):
            if len(self.tokens) > LAST - FIRST:  # more than there are marks: no sentence of notes has so many
                self.text(f" {name} ")
                continue
            self.parts.append((", " if n else "") + chr(FIRST + len(self.tokens)))
            self.tokens.append(Token(name, role))

    def marked(self, role: str, text: str) -> None:
        """What a role marks: a token, a number of a pull request, or text; a token, too, without a role."""
        kind = role.rsplit(":", 1)[-1].lower()
        kind = LONG_ROLES.get(kind, kind)
        if kind in PULL_ROLES:
            self.text(f"#{text}")
        elif kind in CODE_ROLES or not kind:
            titled = TITLED.match(text)
            self.code(titled["target"] if titled and kind else text, kind if kind in CALLABLE_ROLES else "")
        else:
            self.text(text)

    def stressed(self, text: str) -> None:
        """Words in italics: a token where they name a parameter, as some libraries write it, else text."""
        self.parts.append(f"{_STRESS[0]}{text}{_STRESS[1]}" if re.fullmatch(r"[a-z]\w*=?", text) else text)

    def phrase(self) -> Phrase:
        text = " ".join("".join(self.parts).split())
        for pattern in _STRESSED:
            text = pattern.sub(lambda found: re.sub(_WORD, self._parameter, found[0]), text)
        return Phrase(re.sub(f"[{_STRESS}]", "", text), tuple(self.tokens))

    def _parameter(self, word: re.Match[str]) -> str:
        self.tokens.append(Token(word[1], "param"))
        return chr(FIRST + len(self.tokens) - 1)


@dataclass(frozen=True)
class Block:
    """A leaf bullet, or a paragraph of a section."""

    titles: tuple[Phrase, ...]
    """Headings above it, the outermost first."""
    leads: tuple[Phrase, ...]
    """What introduces it, the outermost first: the paragraph before its list, the bullets that it is nested in."""
    phrase: Phrase
    bullet: bool
    pulls: tuple[int, ...]
    section: str = ""
    """Of a paragraph: the text of all paragraphs of its section."""
    opens: bool = False
    """Whether it is the first paragraph of its section."""

    @property
    def text(self) -> str:
        """What the notes say: the bullet, or the whole section of a paragraph."""
        return self.section or self.phrase.plain


@dataclass
class Section:
    """The blocks of one section before its end is known.

    What stands in it is given in order: `paragraph`, `item` for a leaf bullet; `finish` gives its blocks.
    """

    titles: tuple[Phrase, ...]
    before: Phrase | None = None
    """The paragraph that was read last."""
    paragraphs: list[tuple[Phrase, tuple[int, ...]]] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    order: list[int | Block] = field(default_factory=list)

    def paragraph(self, written: Written) -> None:
        phrase = written.phrase()
        if is_reference(phrase):  # `(gh-12345)` belongs to what stands before it
            self._give(tuple(written.pulls))
            self.before = None
        elif phrase.marked:
            self.order.append(len(self.paragraphs))
            self.paragraphs.append((phrase, tuple(written.pulls)))
            self.before = phrase

    def _give(self, pulls: tuple[int, ...]) -> None:
        if self.order and isinstance(last := self.order[-1], int):
            for n in range(last, -1, -1):  # all paragraphs since the last reference
                phrase, own = self.paragraphs[n]
                if own:
                    break
                self.paragraphs[n] = phrase, pulls
        elif self.order and isinstance(last := self.order[-1], Block) and not last.pulls:
            self.order[-1] = Block(last.titles, last.leads, last.phrase, last.bullet, pulls)

    def item(self, phrase: Phrase, pulls: Sequence[int], leads: tuple[Phrase, ...]) -> None:
        if phrase.marked:
            self.order.append(Block(self.titles, leads, phrase, True, tuple(dict.fromkeys(pulls))))

    def finish(self) -> Iterator[Block]:
        whole = "\n\n".join(phrase.plain for phrase, _ in self.paragraphs)
        for entry in self.order:
            if isinstance(entry, Block):
                yield entry
            else:
                phrase, pulls = self.paragraphs[entry]
                yield Block(self.titles, (), phrase, False, tuple(dict.fromkeys(pulls)), whole, entry == 0)


def is_reference(phrase: Phrase) -> bool:
    """Whether a paragraph is nothing but references to pull requests."""
    rest = re.sub(r"(?i)\b(?:gh|pr|issue)?-?\s*#?\d+\b|https?://\S+", "", phrase.marked)
    return bool(phrase.marked) and not re.search(r"[^\W_]", re.sub(MARK, "x", rest))


def bullet(written: Written) -> tuple[Phrase, list[int]]:
    """A bullet without the references at its end."""
    phrase = written.phrase()
    end = _REFERENCES.search(phrase.marked)
    return (Phrase(phrase.marked[: end.start()], phrase.tokens) if end else phrase), written.pulls


def phrases(blocks: Iterable[Block]) -> Iterator[Phrase]:
    """Everything that is said in blocks: headings, leads, bullets, paragraphs; a heading once a block."""
    for block in blocks:
        yield from block.titles
        yield from block.leads
        yield block.phrase
