"""Release notes in Markdown, read into blocks."""

from __future__ import annotations

import re

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from .notes import Block, Phrase, Section, Written, bullet

_ROLE = re.compile(r"\{([A-Za-z][\w.:+-]*)\}\Z")
"""A role as MyST writes it before what it marks."""


def read(text: str) -> list[Block]:
    """The blocks of notes in Markdown, in order."""
    root = SyntaxTreeNode(MarkdownIt("commonmark").parse(text))
    titles: list[tuple[int, Phrase]] = []
    section = Section(())
    blocks: list[Block] = []
    for node in root.children:
        if node.type == "heading":
            blocks += section.finish()
            level = int(node.tag[1:])
            titles = [*((n, title) for n, title in titles if n < level), (level, _written(node).phrase())]
            section = Section(tuple(title for _, title in titles))
        else:
            _body(node, section)
    return [*blocks, *section.finish()]


def _body(node: SyntaxTreeNode, section: Section) -> None:
    if node.type == "paragraph":
        section.paragraph(_written(node))
    elif node.type in ("bullet_list", "ordered_list"):
        _list(node, section, (section.before,) if section.before else ())
    elif node.type == "blockquote":
        for child in node.children:
            _body(child, section)


def _list(items: SyntaxTreeNode, section: Section, leads: tuple[Phrase, ...]) -> None:
    for item in items.children:
        written = Written()
        nested: list[SyntaxTreeNode] = []
        for child in item.children:
            if child.type in ("bullet_list", "ordered_list"):
                nested.append(child)
            elif child.type in ("paragraph", "heading"):
                written.text(" ")
                _write(child, written)
        if not nested:
            section.item(*bullet(written), leads)
        for child in nested:
            _list(child, section, (*leads, written.phrase()))


def _written(node: SyntaxTreeNode) -> Written:
    written = Written()
    _write(node, written)
    return written


def _write(node: SyntaxTreeNode, written: Written) -> None:
    role = ""
    for child in node.children:
        before, role = role, ""
        if child.type == "code_inline":
            written.marked(before, child.content)
        elif child.type == "text" and (named := _ROLE.search(child.content)):
            written.text(child.content[: named.start()])
            role = named[1]
        elif child.type == "em" and len(child.children) == 1:
            written.stressed(child.children[0].content)
        elif child.type == "text":
            written.text(child.content)
        elif child.type in ("softbreak", "hardbreak"):
            written.text(" ")
        elif child.type != "html_inline":
            if child.type == "link":
                written.link(str(child.attrs.get("href", "")))
            _write(child, written)
