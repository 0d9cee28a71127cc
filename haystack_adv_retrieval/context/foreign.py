"""Chunks of other splitters, which say what source they are of and where in it, but keep no data contract of ours."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from haystack import Document

from haystack_adv_retrieval.context.slices import page_at, part_ids, slice_of
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.spans import Span, merge

# Haystack's note of what a chunk repeats of its neighbours.
_SPLIT_OVERLAP = "_split_overlap"


class Place(NamedTuple):
    """
    Where a chunk belongs.

    :param source: Its source.
    :param ordinal: Its number within the source.
    """

    source: str | int
    ordinal: int


class PlaceKeys(NamedTuple):
    """
    How the chunks of a splitter say where they belong.

    :param source: Metadata key of the source.
    :param ordinal: Metadata key of the number within the source.
    """

    source: str
    ordinal: str

    def place_of(self, chunk: Document) -> Place | None:
        """Read where a chunk belongs; None if it does not say, or keeps our own data contract."""
        source, ordinal = chunk.meta.get(self.source), chunk.meta.get(self.ordinal)
        if isinstance(source, str | int) and isinstance(ordinal, int) and chunks.SOURCE_VERSION not in chunk.meta:
            return Place(source, ordinal)
        return None

    def filter_around(self, hits: Mapping[str | int, Iterable[int]], size: int) -> dict[str, Any]:
        """
        Make one filter for chunks and their neighbours.

        :param hits: Ordinals of the chunks by source; at least one.
        :param size: How many neighbours on each side.
        :returns: A Haystack filter.
        """
        source, ordinal = f"meta.{self.source}", f"meta.{self.ordinal}"
        conditions = [
            {
                "operator": "AND",
                "conditions": [
                    {"field": source, "operator": "==", "value": source_id},
                    {"field": ordinal, "operator": ">=", "value": first},
                    {"field": ordinal, "operator": "<=", "value": last},
                ],
            }
            for source_id, ordinals in hits.items()
            for first, last in merge(Span(number - size, number + size) for number in ordinals)
        ]
        return {"operator": "OR", "conditions": conditions}


def adopt(leaves: Mapping[int, Document]) -> tuple[dict[int, Document], bool]:
    """
    Describe chunks of one source in the data contract's words.

    :param leaves: The chunks by their ordinals.
    :returns: Copies with a span and the place among the leaves, and whether the spans are those of the source. Where
        chunks do not say where they start, or say what their texts contradict, the spans are made up: chunks follow one
        another, with a space between two words.
    """
    ordered = sorted(leaves.items())
    is_known = all(isinstance(leaf.meta.get(chunks.START), int) for leaf in leaves.values()) and all(
        _follows(leaf, following, next_to=number + 1 == other)
        for (number, leaf), (other, following) in pairwise(ordered)
    )
    adopted: dict[int, Document] = {}
    position = 0
    for number, leaf in ordered:
        content = leaf.content or ""
        if is_known:
            position = leaf.meta[chunks.START]
        else:
            if adopted and number - 1 not in leaves:
                position += 1  # what was not found leaves a gap
            following = leaves.get(number + 1)
            if following and not any(map(str.isspace, content[-1:] + (following.content or "")[:1])):
                content += " "
        described = {
            chunks.START: position,
            chunks.END: position + len(content),
            chunks.LEAF_START: number,
            chunks.LEAF_END: number + 1,
            chunks.LEAF_COUNT: 0,  # no id of theirs can be computed
        }
        adopted[number] = replace(leaf, content=content, meta=leaf.meta | described)
        position += len(content)
    return adopted, is_known


def _follows(leaf: Document, following: Document, *, next_to: bool) -> bool:
    """Tell whether two chunks are where they say, as far as their texts show."""
    offset = following.meta[chunks.START] - leaf.meta[chunks.START]
    content = leaf.content or ""
    if next_to and 0 <= offset <= len(content):
        return (following.content or "").startswith(content[offset:])
    return not next_to and offset >= len(content)


def fuse_adopted(
    pieces: Sequence[Document], span: Span, best: Document, ordinal_key: str, *, is_known: bool
) -> Document:
    """
    Make one document out of consecutive chunks made elsewhere.

    :param pieces: Adopted chunks that touch or overlap, in order.
    :param span: The part of their common span to keep; it starts inside of the first piece.
    :param best: The hit, as it was retrieved, that lends its metadata.
    :param ordinal_key: Metadata key of the number within the source, which the document has no longer.
    :param is_known: Whether the spans are those of the source; made-up ones do not get into the result.
    :returns: A document with an id of its own.
    """
    content, parts = slice_of(pieces, span), part_ids(pieces)
    of_one_chunk = {ordinal_key, _SPLIT_OVERLAP, chunks.START}
    meta = {key: value for key, value in best.meta.items() if key not in of_one_chunk} | {chunks.PART_IDS: parts}
    if is_known:
        meta |= {chunks.START: span.start, chunks.END: span.end}
    if chunks.PAGE in pieces[0].meta:
        meta[chunks.PAGE] = page_at(pieces[0], span.start)
    return Document(id=chunks.digest("span", *parts, content), content=content, meta=meta)
