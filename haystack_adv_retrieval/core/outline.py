"""Where a position lies in its text: under which headings, on which page, in which table."""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.structure import Block


class Outline:
    """
    The headings, pages and tables of one text.

    :param text: The text.
    :param blocks: Its blocks.
    """

    def __init__(self, text: str, blocks: Sequence[Block]) -> None:
        changes: defaultdict[int, dict[str, Any]] = defaultdict(dict, {0: {chunks.PAGE: 1, chunks.HEADINGS: ""}})
        for page, match in enumerate(re.finditer("\f", text), start=2):
            changes[match.end()][chunks.PAGE] = page
        trail: list[Block] = []
        for block in blocks:
            if block.kind == "heading":
                trail = [*(above for above in trail if above.depth < block.depth), block]
                titles = (heading.title for heading in trail if heading.title)
                changes[block.span.start][chunks.HEADINGS] = chunks.HEADING_SEPARATOR.join(titles)
            elif block.kind == "table":
                changes[block.span.start + 1][chunks.TABLE_HEADER] = block.title
                changes[block.span.end][chunks.TABLE_HEADER] = None
        # There are far more positions to describe than places where the description changes.
        self._borders = sorted(changes)
        self._descriptions: list[dict[str, Any]] = []
        described: dict[str, Any] = {}
        for border in self._borders:
            described = {key: value for key, value in (described | changes[border]).items() if value is not None}
            self._descriptions.append(described)

    def at(self, position: int) -> dict[str, Any]:
        """
        Describe a position in the words of the data contract.

        :param position: A position in the text.
        :returns: `page_number` and `headings`, and `table_header` behind the header row of a table; not to be changed.
        """
        return self._descriptions[bisect_right(self._borders, position) - 1]
