"""Release notes in reStructuredText, read into blocks. Roles and directives of a documentation system are read too."""

from __future__ import annotations

import re
from collections.abc import Iterator

from docutils import nodes
from docutils.core import publish_doctree
from docutils.parsers.rst import Directive, directives, roles
from docutils.parsers.rst.languages import en as english
from docutils.parsers.rst.states import Inliner

from .notes import CALLABLE_ROLES, CODE_ROLES, LONG_ROLES, PULL_ROLES, TITLED, Block, Phrase, Section, Written, bullet

_ROLE = re.compile(r":([A-Za-z][\w.+:-]*?):`|`:([A-Za-z][\w.+:-]*?):(?!`)")
_DIRECTIVE = re.compile(r"(?m)^[ \t]*\.\.[ \t]+(?:\|[^|\n]+\|[ \t]+)?([A-Za-z][\w.+:-]*?)[ \t]?::")


class _Role:
    """A role that docutils does not know: a token, a number of a pull request, or plain text."""

    def __init__(self, name: str) -> None:
        kind = name.rsplit(":", 1)[-1].lower()
        self.kind = LONG_ROLES.get(kind, kind)

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
            titled = TITLED.match(body)
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


_UNDERLINED = re.compile(r"(?m)^(?P<title>[^\s=-].*\n)(?P<line>(?P<mark>[=-])(?P=mark){3,})[ \t]*$")


def _ranked(text: str) -> str:
    """A text whose headings over `=` lie above those over `-`, where the first of these come before, too.

    SciPy's older notes have Highlights over `-` before New features over `=`; docutils would put these into that.
    """
    heads = [head for head in _UNDERLINED.finditer(text) if not re.search(r"={4,}[ \t]*\n\Z", text[: head.start()])]
    first = next((head.start() for head in heads if head["mark"] == "="), None)
    if first is None or not any(head["mark"] == "-" for head in heads if head.start() > first):
        return text
    for head in heads:
        if head.start() < first:
            start, end = head.span("line")
            text = text[:start] + "=" * (end - start) + text[end:]
    return text


def read(text: str) -> list[Block]:
    """The blocks of notes in reStructuredText, in order. Files that a note wants to include are not read."""
    _register(text)
    text = _ranked(text)
    document = publish_doctree(text, settings_overrides=_SETTINGS)
    return list(_section(document, ()))


def _section(node: nodes.Element, titles: tuple[Phrase, ...]) -> Iterator[Block]:
    section = Section(titles)
    inner: list[nodes.section] = []

    def walk(parent: nodes.Element) -> None:
        for child in parent.children:
            if isinstance(child, nodes.section):
                inner.append(child)
            elif isinstance(child, nodes.paragraph):
                section.paragraph(_written(child))
            elif isinstance(child, nodes.bullet_list | nodes.enumerated_list):
                _list(child, section, (section.before,) if section.before else ())
            elif isinstance(child, nodes.container | nodes.block_quote | nodes.compound | nodes.Admonition):
                walk(child)

    walk(node)
    yield from section.finish()
    for child in inner:
        title = next((_written(c).phrase() for c in child.children if isinstance(c, nodes.title)), Phrase())
        yield from _section(child, (*titles, title))


def _list(items: nodes.Element, section: Section, leads: tuple[Phrase, ...]) -> None:
    for item in items.children:
        written = Written()
        nested: list[nodes.Element] = []
        for child in item.children:
            if isinstance(child, nodes.bullet_list | nodes.enumerated_list):
                nested.append(child)
            elif isinstance(child, nodes.paragraph):
                written.text(" ")
                _write(child, written)
        if not nested:
            section.item(*bullet(written), leads)
        for child in nested:
            _list(child, section, (*leads, written.phrase()))


def _written(node: nodes.Element) -> Written:
    written = Written()
    _write(node, written)
    return written


def _write(node: nodes.Element, written: Written) -> None:
    for child in node.children:
        if isinstance(child, nodes.literal | nodes.title_reference):
            role = child.get("role", "")
            written.code(child.astext(), role if role in CALLABLE_ROLES else "")
        elif isinstance(child, nodes.emphasis):
            written.stressed(child.astext())
        elif isinstance(child, nodes.Text):
            written.text(child.astext())
        elif isinstance(child, nodes.Element) and not isinstance(child, nodes.system_message | nodes.target):
            if isinstance(child, nodes.reference):
                written.link(child.get("refuri", ""))
            _write(child, written)
