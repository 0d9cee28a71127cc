"""Where a chunk stands in its tree, read off its metadata: our own, a summary's, or that of Haystack's splitters."""

from collections.abc import Mapping, Sequence
from typing import Any

from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.spans import Span

# What Haystack's HierarchicalDocumentSplitter calls it. Its root, the whole text, is on level 0.
HAYSTACK_PARENT_ID, HAYSTACK_LEVEL, HAYSTACK_CHILDREN_IDS = "__parent_id", "__level", "__children_ids"
PARENT_ID_KEYS = (chunks.PARENT_ID, HAYSTACK_PARENT_ID)


def parent_id_of(meta: Mapping[str, Any], keys: Sequence[str] = PARENT_ID_KEYS) -> str | None:
    """
    Read the id of a chunk's parent.

    :param meta: The chunk's metadata.
    :param keys: Keys that may hold it, in order of preference.
    :returns: The id, or None if there is no parent.
    """
    return next((value for key in keys if isinstance(value := meta.get(key), str) and value), None)


def level_of(meta: Mapping[str, Any]) -> int:
    """
    Read the level of a chunk, 1 being the coarsest.

    A summary lies one level below its section, and a fused span where the leaves are.

    :param meta: The chunk's metadata.
    :returns: The level; 0 for a source record, and for a chunk that does not know its level.
    """
    if chunks.SOURCE_VERSION in meta:
        return int(meta.get(chunks.LEVEL, meta.get(chunks.LEAF_LEVEL, 0))) + is_summary(meta)
    level = meta.get(HAYSTACK_LEVEL)
    return level + 1 if isinstance(level, int) else 0


def extent_of(meta: Mapping[str, Any]) -> Span | None:
    """Read the span that a chunk stands for: its own, or that of the section that it sums up."""
    return chunks.parent_span_of(meta) if is_summary(meta) else chunks.span_of(meta)


def is_summary(meta: Mapping[str, Any]) -> bool:
    """Tell whether a chunk is the summary of a section, whose text is no part of the source."""
    return chunks.SOURCE_VERSION in meta and meta.get(chunks.UNIT) == "summary"
