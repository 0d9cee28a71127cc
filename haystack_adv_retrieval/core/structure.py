"""The blocks of a text (headings, paragraphs, list items, tables, code) as spans."""

import re
from bisect import bisect_left
from typing import Literal, NamedTuple

from markdown_it import MarkdownIt

from haystack_adv_retrieval.core.sentences import paragraph_spans, tile, unwrapped_lines
from haystack_adv_retrieval.core.spans import Span

Structure = Literal["auto", "markdown", "plain"]
Kind = Literal["heading", "paragraph", "item", "table", "code", "front_matter"]

_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(?:.*\n)*?(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)")
# As Markdown knows it, or a new page, which Markdown does not know.
_NEWLINE = re.compile(r"(?:\r\n?|\n|\f)\f*")
# Searched for in a text with a newline in front of it: a pattern that begins with a fixed character is found fast.
_LOOKS_LIKE_MARKDOWN = re.compile(r"\n(?:#{1,6}[ \t]+\S|```|~~~|\|?[ \t]*:?-{3,}:?[ \t]*\|)")

# Only the block structure is needed. Indented code and reference definitions are left out: converted texts are full of
# accidental ones.
_MARKDOWN = MarkdownIt("commonmark").enable("table").disable(["code", "reference", "html_block"])
_MARKDOWN.core.ruler.enableOnly(["normalize", "block"])

_KINDS: dict[str, Kind] = {
    "heading_open": "heading",
    "paragraph_open": "paragraph",
    "blockquote_open": "paragraph",
    "hr": "paragraph",
    "list_item_open": "item",
    "table_open": "table",
    "fence": "code",
}
# Never cut inside while they fit.
ATOMIC: frozenset[Kind] = frozenset({"table", "code", "front_matter"})


class Block(NamedTuple):
    """
    One block of a text.

    :param kind: What the block is.
    :param span: Where it is, with the blank lines behind it.
    :param depth: Depth of a heading, 1 to 6; 0 for other kinds.
    :param title: Text of a heading, the header row of a table; empty for other kinds.
    """

    kind: Kind
    span: Span
    depth: int = 0
    title: str = ""


def find_blocks(text: str, structure: Structure = "auto") -> list[Block]:
    """
    Find the blocks of a text.

    :param text: Any text.
    :param structure: `"markdown"` (CommonMark with tables and front matter), `"plain"` (blank lines), or `"auto"`:
        Markdown if a line of the text looks like a heading, a fence or a table's rule.
    :returns: Blocks that tile the text, in ascending order; none for a blank text.
    """
    if structure == "auto":
        lines = f"\n{text}".replace("\f", "\n")
        structure = "markdown" if _LOOKS_LIKE_MARKDOWN.search(lines) or _FRONT_MATTER.match(text) else "plain"
    if structure == "plain":
        return [Block("paragraph", span) for span in paragraph_spans(text)]
    found = _markdown_blocks(text)
    starts = sorted(found)
    blocks: list[Block] = []
    for span in tile(text, starts, Span(0, len(text))):
        # The first piece may begin before its block, with blank lines that no block owns.
        kind, depth, title = found[starts[bisect_left(starts, span.start)]]
        if kind == "paragraph":
            blocks.extend(Block(kind, line) for line in unwrapped_lines(text, span))
        else:
            blocks.append(Block(kind, span, depth, title))
    return blocks


def _markdown_blocks(text: str) -> dict[int, tuple[Kind, int, str]]:
    """Find the kind, depth and title of each Markdown block, by the position where its first line starts."""
    found: dict[int, tuple[Kind, int, str]] = {}
    offset = 0
    if front_matter := _FRONT_MATTER.match(text):
        found[0] = ("front_matter", 0, "")
        offset = front_matter.end()
    lines = [offset, *(match.end() for match in _NEWLINE.finditer(text, offset))]
    tokens = _MARKDOWN.parse(_NEWLINE.sub("\n", text[offset:]))
    for index, token in enumerate(tokens):
        kind = _KINDS.get(token.type)
        if kind is None or token.map is None:
            continue
        if kind == "heading" and token.level > 0:  # quoted, or part of a list: no section of this text
            kind = "paragraph"
        start = lines[token.map[0]]
        depth, title = 0, ""
        if kind == "heading":
            depth, title = int(token.tag[1:]), tokens[index + 1].content.strip()
        elif kind == "table":
            title = text[start : lines[token.map[0] + 1]].strip()
        found.setdefault(start, (kind, depth, title))  # a list item starts where its first paragraph does
    return found or {0: ("paragraph", 0, "")}
