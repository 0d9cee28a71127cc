"""Where a position lies in its text: under which headings, on which page, in which table."""

import re
from bisect import bisect_left, bisect_right
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
        self._page_ends = [match.start() for match in re.finditer("\f", text)]
        self._starts: list[int] = []
        self._trails = [""]
        trail: list[Block] = []
        for block in blocks:
            if block.kind == "heading":
                trail = [*(above for above in trail if above.depth < block.depth), block]
                self._starts.append(block.span.start)
                self._trails.append(chunks.HEADING_SEPARATOR.join(heading.title for heading in trail if heading.title))
        self._tables = [block for block in blocks if block.kind == "table"]
        self._table_starts = [table.span.start for table in self._tables]

    def at(self, position: int) -> dict[str, Any]:
        """
        Describe a position in the words of the data contract.

        :param position: A position in the text.
        :returns: `page_number` and `headings`, and `table_header` behind the header row of a table.
        """
        meta = {
            chunks.PAGE: 1 + bisect_left(self._page_ends, position),
            chunks.HEADINGS: self._trails[bisect_right(self._starts, position)],
        }
        index = bisect_left(self._table_starts, position) - 1
        if index >= 0 and position < self._tables[index].span.end:
            meta[chunks.TABLE_HEADER] = self._tables[index].title
        return meta
