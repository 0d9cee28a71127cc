"""Slices of a source, cut out of the stored chunks that cover them."""

from collections.abc import Iterable, Sequence

from haystack import Document

from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.spans import Span

# What describes one stored chunk and not the span that it becomes a part of.
_CHUNK_ONLY = frozenset(
    {chunks.UNIT, chunks.LEVEL, chunks.SPLIT_ID, chunks.PARENT_ID, chunks.PARENT_START, chunks.PARENT_END}
    | {chunks.TABLE_HEADER}
)


def fuse(pieces: Sequence[Document], span: Span, best: Document) -> Document:
    """
    Make one document out of consecutive chunks of a source.

    :param pieces: Chunks that touch or overlap, in source order.
    :param span: The part of their common span to keep; it starts inside of the first piece.
    :param best: The hit that lends its metadata.
    :returns: A document with an id of its own, whose content is the exact slice of the source.
    """
    first = pieces[0].meta
    meta = {key: value for key, value in best.meta.items() if key not in _CHUNK_ONLY}
    if len({piece.meta.get(chunks.PARENT_ID) for piece in pieces}) == 1:  # still inside of one parent
        keys = (chunks.PARENT_ID, chunks.PARENT_START, chunks.PARENT_END)
        meta |= {key: first[key] for key in keys if key in first}
    if span.start == first[chunks.START] and chunks.TABLE_HEADER in first:
        meta[chunks.TABLE_HEADER] = first[chunks.TABLE_HEADER]
    meta |= {
        chunks.START: span.start,
        chunks.END: span.end,
        chunks.PAGE: page_at(pieces[0], span.start),
        chunks.LEAF_START: min(piece.meta[chunks.LEAF_START] for piece in pieces),
        chunks.LEAF_END: max(piece.meta[chunks.LEAF_END] for piece in pieces),
        chunks.PART_IDS: part_ids(pieces),
    }
    address = chunks.digest(meta[chunks.SOURCE_ID], meta[chunks.SOURCE_VERSION], "span", *span)
    return Document(id=address, content=slice_of(pieces, span), meta=meta)


def part_ids(pieces: Iterable[Document]) -> list[str]:
    """List the stored chunks that pieces consist of, some of which may be fused already."""
    return list(dict.fromkeys(part for piece in pieces for part in piece.meta.get(chunks.PART_IDS, [piece.id])))


def page_at(chunk: Document, position: int) -> int:
    """Find the page of a position of the source inside of a chunk, from 1."""
    page: int = chunk.meta.get(chunks.PAGE, 1)
    return page + (chunk.content or "").count("\f", 0, position - chunk.meta[chunks.START])


def slice_of(pieces: Iterable[Document], span: Span) -> str:
    """
    Cut a span of a source out of the chunks that cover it.

    :param pieces: Chunks in source order; they may overlap.
    :param span: The span in the source.
    :returns: Its text.
    """
    parts, position = [], span.start
    for piece in pieces:
        start, end = piece.meta[chunks.START], min(piece.meta[chunks.END], span.end)
        if end > position:
            parts.append((piece.content or "")[position - start : end - start])
            position = end
    return "".join(parts)
