"""Release notes in reStructuredText and Markdown, read into blocks: leaf bullets and paragraphs with their headings.

Both readers give the same form. Whatever a library marks as code (literals, roles of its documentation system, the
default role) becomes a token; the rest is text.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from docutils import nodes
from docutils.core import publish_doctree
from docutils.parsers.rst import Directive, directives, roles
from docutils.parsers.rst.languages import en as english
from docutils.parsers.rst.states import Inliner
from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

FIRST, LAST = 0xE000, 0xF8FF
"""Code points of the private use area: in `Phrase.marked`, one stands for each token."""
MARK = f"[{chr(FIRST)}-{chr(LAST)}]"

CODE_ROLES = frozenset({"any", "attr", "class", "code", "data", "exc", "func", "meth", "mod", "obj", "literal"})
_LONG_ROLES = {"attribute": "attr", "exception": "exc", "function": "func", "method": "meth", "module": "mod"}
"""Roles that name an identifier, by the last part of their name (`py:func` is `func`)."""
PULL_ROLES = frozenset({"gh", "issue", "pr", "pull", "ghpull", "ghissue"})
"""Roles that name a pull request or an issue by its number."""
_CALLABLE_ROLES = CODE_ROLES - {"any", "code", "literal", "obj"}

_PULL = re.compile(r"(?:\bgh-|(?<![\w&])#)(\d{2,6})\b|/(?:pull|issues)/(\d+)")
_REFERENCE = r"(?:(?i:gh|pr|issue)?[-\s]*#?\d+|by|@[\w-]+|https?://[^\s)]+)"
_REFERENCES = re.compile(rf"\s*\({_REFERENCE}(?:[\s,;]+{_REFERENCE})*[\s,;]*\)(?:[\s,]*(?:by )?@[\w-]+)*\s*\Z")
"""References at the end of a bullet, and whoever is thanked behind them."""
_TITLED = re.compile(r"(?s).*<(?P<target>[^<>]+)>\s*\Z")
_BRACED = re.compile(r"(?:[\w.]|\{\s*\w+(?:\s*,\s*\w+)*\s*\})+(?:\(\))?\Z")
_MOST_BRACED = 64
"""Names that one token may stand for; groups multiply."""
_GROUP = re.compile(r"\{([^{}]*)\}")
_ROLE = re.compile(r":([A-Za-z][\w.+:-]*?):`|`:([A-Za-z][\w.+:-]*?):(?!`)")
_DIRECTIVE = re.compile(r"(?m)^[ \t]*\.\.[ \t]+(?:\|[^|\n]+\|[ \t]+)?([A-Za-z][\w.+:-]*?)[ \t]?::")


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
class _Writer:
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

    def phrase(self) -> Phrase:
        return Phrase(" ".join("".join(self.parts).split()), tuple(self.tokens))


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


# ---------------------------------------------------------------- common


@dataclass
class _Section:
    """The blocks of one section before its end is known."""

    titles: tuple[Phrase, ...]
    before: Phrase | None = None
    """The paragraph that was read last."""
    paragraphs: list[tuple[Phrase, tuple[int, ...]]] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    order: list[int | Block] = field(default_factory=list)

    def paragraph(self, written: _Writer) -> None:
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


# ---------------------------------------------------------------- reStructuredText


class _Role:
    """A role that docutils does not know: a token, a number of a pull request, or plain text."""

    def __init__(self, name: str) -> None:
        kind = name.rsplit(":", 1)[-1].lower()
        self.kind = _LONG_ROLES.get(kind, kind)

    def __call__(
        self,
        name: str,
        rawtext: str,
        text: str,
        lineno: int,
        inliner: Inliner,
        options: object = None,
        content: object = None,
    ) -> tuple[list[nodes.Node], list[nodes.Node]]:
        body = nodes.unescape(text)
        if self.kind in CODE_ROLES:
            titled = _TITLED.match(body)
            return [nodes.literal(rawtext, titled["target"] if titled else body, role=self.kind)], []
        if self.kind in PULL_ROLES:
            return [nodes.inline(rawtext, f"#{body}")], []
        return [nodes.inline(rawtext, re.sub(r"\s*<[^<>]*>\s*\Z", "", body))], []


class _Passage(Directive):  # type: ignore[misc]  # docutils is untyped
    """A directive that docutils does not know: its content is read as text."""

    optional_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec = None

    def run(self) -> list[nodes.Node]:
        container = nodes.container()
        self.state.nested_parse(self.content, self.content_offset, container)
        return [container]


class _Ignored(_Passage):
    """A directive with code or with settings: it says nothing that is read here."""

    def run(self) -> list[nodes.Node]:
        return []


_IGNORED = ("code-block", "sourcecode", "code", "ipython", "plot", "toctree", "contents", "currentmodule", "module")


def _register(text: str) -> None:
    """Make docutils know every role and directive of a text, so that none breaks the sentence that it stands in."""
    for name in _IGNORED:
        directives.register_directive(name, _Ignored)
    for name in sorted({name.lower() for name in _DIRECTIVE.findall(text)} - english.directives.keys() - {*_IGNORED}):
        directives.register_directive(name, _Passage)
    for name in sorted({(a or b).lower() for a, b in _ROLE.findall(text)} - english.roles.keys()):
        roles.register_canonical_role(name, _Role(name))


_SETTINGS = {
    "report_level": 5,
    "halt_level": 5,
    "file_insertion_enabled": False,
    "raw_enabled": False,
    "_disable_config": True,
    "input_encoding": "unicode",
    "doctitle_xform": False,
    "smart_quotes": False,
    "syntax_highlight": "none",
}


def read_rst(text: str) -> list[Block]:
    """The blocks of notes in reStructuredText, in order. Files that a note wants to include are not read."""
    _register(text)
    document = publish_doctree(text, settings_overrides=_SETTINGS)
    return list(_rst_section(document, ()))


def _rst_section(node: nodes.Element, titles: tuple[Phrase, ...]) -> Iterator[Block]:
    section = _Section(titles)
    inner: list[nodes.section] = []

    def walk(parent: nodes.Element) -> None:
        for child in parent.children:
            if isinstance(child, nodes.section):
                inner.append(child)
            elif isinstance(child, nodes.paragraph):
                section.paragraph(_rst_written(child))
            elif isinstance(child, nodes.bullet_list | nodes.enumerated_list):
                _rst_list(child, section, (section.before,) if section.before else ())
            elif isinstance(child, nodes.container | nodes.block_quote | nodes.compound | nodes.Admonition):
                walk(child)

    walk(node)
    yield from section.finish()
    for child in inner:
        title = next((_rst_written(c).phrase() for c in child.children if isinstance(c, nodes.title)), Phrase())
        yield from _rst_section(child, (*titles, title))


def _rst_list(items: nodes.Element, section: _Section, leads: tuple[Phrase, ...]) -> None:
    for item in items.children:
        written = _Writer()
        nested: list[nodes.Element] = []
        for child in item.children:
            if isinstance(child, nodes.bullet_list | nodes.enumerated_list):
                nested.append(child)
            elif isinstance(child, nodes.paragraph):
                written.text(" ")
                _rst_write(child, written)
        if not nested:
            section.item(*_item(written), leads)
        for child in nested:
            _rst_list(child, section, (*leads, written.phrase()))


def _rst_written(node: nodes.Element) -> _Writer:
    written = _Writer()
    _rst_write(node, written)
    return written


def _rst_write(node: nodes.Element, written: _Writer) -> None:
    for child in node.children:
        if isinstance(child, nodes.literal | nodes.title_reference):
            role = child.get("role", "")
            written.code(child.astext(), role if role in _CALLABLE_ROLES else "")
        elif isinstance(child, nodes.Text):
            written.text(child.astext())
        elif isinstance(child, nodes.Element) and not isinstance(child, nodes.system_message | nodes.target):
            if isinstance(child, nodes.reference):
                written.link(child.get("refuri", ""))
            _rst_write(child, written)


def _item(written: _Writer) -> tuple[Phrase, list[int]]:
    """A bullet without the references at its end."""
    phrase = written.phrase()
    end = _REFERENCES.search(phrase.marked)
    return (Phrase(phrase.marked[: end.start()], phrase.tokens) if end else phrase), written.pulls


# ---------------------------------------------------------------- Markdown


def read_md(text: str) -> list[Block]:
    """The blocks of notes in Markdown, in order."""
    root = SyntaxTreeNode(MarkdownIt("commonmark").parse(text))
    titles: list[tuple[int, Phrase]] = []
    section = _Section(())
    blocks: list[Block] = []
    for node in root.children:
        if node.type == "heading":
            blocks += section.finish()
            level = int(node.tag[1:])
            titles = [*((n, title) for n, title in titles if n < level), (level, _md_written(node).phrase())]
            section = _Section(tuple(title for _, title in titles))
        else:
            _md_body(node, section)
    return [*blocks, *section.finish()]


def _md_body(node: SyntaxTreeNode, section: _Section) -> None:
    if node.type == "paragraph":
        section.paragraph(_md_written(node))
    elif node.type in ("bullet_list", "ordered_list"):
        _md_list(node, section, (section.before,) if section.before else ())
    elif node.type == "blockquote":
        for child in node.children:
            _md_body(child, section)


def _md_list(items: SyntaxTreeNode, section: _Section, leads: tuple[Phrase, ...]) -> None:
    for item in items.children:
        written = _Writer()
        nested: list[SyntaxTreeNode] = []
        for child in item.children:
            if child.type in ("bullet_list", "ordered_list"):
                nested.append(child)
            elif child.type in ("paragraph", "heading"):
                written.text(" ")
                _md_write(child, written)
        if not nested:
            section.item(*_item(written), leads)
        for child in nested:
            _md_list(child, section, (*leads, written.phrase()))


def _md_written(node: SyntaxTreeNode) -> _Writer:
    written = _Writer()
    _md_write(node, written)
    return written


def _md_write(node: SyntaxTreeNode, written: _Writer) -> None:
    for child in node.children:
        if child.type == "code_inline":
            written.code(child.content)
        elif child.type == "text":
            written.text(child.content)
        elif child.type in ("softbreak", "hardbreak"):
            written.text(" ")
        elif child.type != "html_inline":
            if child.type == "link":
                written.link(str(child.attrs.get("href", "")))
            _md_write(child, written)


READERS = {".rst": read_rst, ".md": read_md}


def phrases(blocks: Iterable[Block]) -> Iterator[Phrase]:
    """Everything that is said in blocks: headings, leads, bullets, paragraphs; a heading once a block."""
    for block in blocks:
        yield from block.titles
        yield from block.leads
        yield block.phrase
