"""
The data contract: what the metadata of a chunk is called, and what can be computed from it.

Every chunk is a span of its source, and its id is a computable address, `sha256(source_id, source_version, level,
split_id)`. So the id of a neighbour, a parent or a leaf follows from metadata alone, and reading it is a look-up by id,
never a search.
"""

import hashlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from haystack_adv_retrieval.core.spans import Span

# Stored on every chunk. Flat scalars only: some stores drop lists and nested values.
UNIT = "unit"  # "source", "block" (every level that is not the finest), "leaf" or "summary"
NAMESPACE = "namespace"  # the collection that the source belongs to; absent in the default one
SOURCE_ID = "source_id"  # stable identity of the source, the same at every level and across edits
SOURCE_VERSION = "source_version"  # hash of the source's text, user metadata and the splitter's settings
LEVEL = "level"  # 0 = the source record, 1 = the coarsest block, ... n = leaf
SPLIT_ID = "split_id"  # ordinal of the chunk within its source and level, from 0
START, END = "split_idx_start", "split_idx_end"  # the span in the source text
PARENT_ID = "parent_id"  # id of the chunk one level up; absent at levels 0 and 1
PARENT_START, PARENT_END = "parent_idx_start", "parent_idx_end"  # the parent's span; absent at levels 0 and 1
PAGE = "page_number"  # page of the span's start, from 1; pages end with a form feed
HEADINGS = "headings"  # heading trail, outermost first, joined by HEADING_SEPARATOR; "" where there is none
TABLE_HEADER = "table_header"  # header row of the table that the chunk starts inside of; absent elsewhere
# The leaves below a chunk, as a half-open range of their split_ids; the level they are on; how many the source has.
LEAF_LEVEL, LEAF_START, LEAF_END, LEAF_COUNT = "leaf_level", "leaf_start", "leaf_end", "leaf_count"

# Stored on summaries alone.
SUMMARY_METHOD = "summary_method"  # "llm", "extractive" (sentences of the section), "verbatim" (all of a short one)
SUMMARY_KEY = "summary_key"  # hash of the section's text and of all else that decides what its summary says
# Hash of how summaries are made; absent where the model failed, so that the summary is made again. The source record
# has that of its summaries, or where they differ a hash of them all.
SUMMARY_SETTINGS = "summary_settings"

# Stored on the source record alone.
LEVEL_COUNTS = "level_counts"  # how many chunks each level has, coarse to fine, joined by ","
SUMMARY_COUNT = "summary_count"  # how many summaries the source has; absent where none were made
EMBEDDING_MODEL = "embedding_model"  # name of the model behind the embeddings; absent while they are being replaced
EMBEDDING_DIM = "embedding_dim"  # dimension of the embeddings; absent where the source has none
EMBEDDING_TEXT = "embedding_text"  # hash of how content and metadata are joined to the text that is embedded
INDEXED_AT = "indexed_at"  # when the record was written: UTC, ISO 8601
# True while the source is written or deleted, so that there may be chunks of other versions. A record without a version
# says that none is whole: the source is new, or about to go.
PENDING = "index_pending"

# Put on results only, never stored.
MATCHED_SPANS = "matched_spans"  # [[start, end, score], ...]: the hits behind a result
KEPT_SPANS = "kept_spans"  # [[start, end], ...]: what compression kept of the source
EXPANDED_FROM = "expanded_from"  # ids of the hits that a result replaces
PART_IDS = "part_ids"  # ids of the stored chunks that a fused span was cut out of
INITIAL_RANK, RANK = "initial_rank", "rank"  # position before and after reranking, from 1
RETRIEVAL_SCORE = "retrieval_score"  # the score before reranking
COMPRESSION = "compression"  # how a document was compressed: a method of the Compressor, or "none"
MISSING = "missing"  # ids of chunks that a pattern looked for and that the store does not hold

HEADING_SEPARATOR = " > "

RESULT_KEYS = frozenset(
    {MATCHED_SPANS, KEPT_SPANS, EXPANDED_FROM, INITIAL_RANK, RANK, RETRIEVAL_SCORE} | {COMPRESSION, MISSING, PART_IDS}
)
CHUNK_KEYS = frozenset(
    {UNIT, NAMESPACE, SOURCE_ID, SOURCE_VERSION, LEVEL, SPLIT_ID, START, END, PARENT_ID, PARENT_START, PARENT_END}
    | {PAGE, HEADINGS, TABLE_HEADER, LEAF_LEVEL, LEAF_START, LEAF_END, LEAF_COUNT, LEVEL_COUNTS, SUMMARY_COUNT}
    | {SUMMARY_METHOD, SUMMARY_KEY, SUMMARY_SETTINGS}
    | {EMBEDDING_MODEL, EMBEDDING_DIM, EMBEDDING_TEXT, INDEXED_AT, PENDING}
)
# Keys that cannot be the user's: those above, and what is read off a result where one step follows another.
RESERVED_KEYS = CHUNK_KEYS | {MATCHED_SPANS, KEPT_SPANS, EXPANDED_FROM, PART_IDS, INITIAL_RANK}
# Those of them that mean the same in Haystack, whose converters and splitters write them.
HAYSTACK_KEYS = frozenset({SOURCE_ID, SPLIT_ID, START, PAGE})


def digest(*parts: str | int) -> str:
    """Hash strings and numbers to 64 hexadecimal digits, unambiguously and the same on every machine."""
    return hashlib.sha256(_framed(*parts)).hexdigest()


def _framed(*parts: str | int) -> bytes:
    return "".join([f"{len(text)}:{text}" for text in map(str, parts)]).encode("utf-8", "surrogatepass")


@lru_cache(maxsize=64)
def _begun(source_id: str, source_version: str, level: int) -> Any:
    """Hash what the addresses of a source's chunks have in common, once for all of them."""
    return hashlib.sha256(_framed(source_id, source_version, level))


def source_record_id(source_id: str) -> str:
    """Compute the id of a source's level-0 record; it stays the same across versions."""
    return digest(source_id)


def chunk_ids(source_id: str, source_version: str, level: int, split_ids: Iterable[int]) -> list[str]:
    """Compute the ids of chunks of one level of a source from their addresses."""
    begun = _begun(source_id, source_version, level)
    ids: list[str] = []
    for split_id in split_ids:
        address = begun.copy()
        address.update(b"%d:%d" % (len(str(split_id)), split_id))
        ids.append(address.hexdigest())
    return ids


def chunk_id(source_id: str, source_version: str, level: int, split_id: int) -> str:
    """Compute the id of one chunk from its address."""
    return chunk_ids(source_id, source_version, level, [split_id])[0]


def summary_id(section_id: str) -> str:
    """Compute the id of the summary of a chunk. Its `level` and `split_id` are those of the chunk."""
    return digest(section_id, "summary")


def version_ids(record: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """
    Compute the ids of all that belongs to a version of a source.

    :param record: Metadata of the source record.
    :returns: The ids of what is searched (summaries, as many as there can be, and leaves), and those of the blocks,
        fine to coarse. Both empty if the record names no version.
    """
    if SOURCE_VERSION not in record:
        return [], []
    levels = [
        chunk_ids(record[SOURCE_ID], record[SOURCE_VERSION], level, range(count))
        for level, count in enumerate([1, *map(int, record[LEVEL_COUNTS].split(","))])
    ]
    sections = [section for level in levels[:-1] for section in level] if SUMMARY_COUNT in record else []
    blocks = [block for level in reversed(levels[1:-1]) for block in level]
    return [*map(summary_id, sections), *levels[-1]], blocks


def span_of(meta: Mapping[str, Any]) -> Span | None:
    """Read a chunk's span in its source, or None if the metadata holds none."""
    start, end = meta.get(START), meta.get(END)
    return Span(start, end) if isinstance(start, int) and isinstance(end, int) else None


def parent_span_of(meta: Mapping[str, Any]) -> Span | None:
    """Read the span of a chunk's parent, or None if it has none."""
    start, end = meta.get(PARENT_START), meta.get(PARENT_END)
    return Span(start, end) if isinstance(start, int) and isinstance(end, int) else None


def leaf_range(meta: Mapping[str, Any]) -> range | None:
    """Read the ordinals of the leaves that a chunk or a result consists of, or None outside of the data contract."""
    start, end = meta.get(LEAF_START), meta.get(LEAF_END)
    return range(start, end) if isinstance(start, int) and isinstance(end, int) else None


def is_slice(meta: Mapping[str, Any], content: str | None) -> bool:
    """Tell whether a document is an exact slice of its source that the data contract describes."""
    span = span_of(meta)
    return LEAF_COUNT in meta and span is not None and len(content or "") == span.length


def leaf_ids(meta: Mapping[str, Any], ordinals: Iterable[int]) -> list[str]:
    """
    Compute the ids of leaves of a chunk's source.

    :param meta: Metadata of any chunk of that source; where there are no ordinals, of anything.
    :param ordinals: The leaves' `split_id`s; those outside of the source are skipped.
    :returns: One id per ordinal in the source.
    """
    inside = [ordinal for ordinal in ordinals if 0 <= ordinal < meta[LEAF_COUNT]]
    return chunk_ids(meta[SOURCE_ID], meta[SOURCE_VERSION], meta[LEAF_LEVEL], inside) if inside else []


def user_meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the metadata of a stored chunk that the user brought: everything that the data contract does not define."""
    return {key: value for key, value in meta.items() if key not in RESERVED_KEYS}


def meta_of_source(meta: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """
    Choose what a document's metadata brings into an index.

    :param meta: The metadata. That of a chunk or a result says more than the user did, and loses what search put there.
    :returns: What is the user's, and the user's keys that cannot be kept, as the data contract has them.
    """
    if {SOURCE_VERSION, LEAF_LEVEL} <= meta.keys():
        return {key: value for key, value in user_meta(meta).items() if key not in RESULT_KEYS}, set()
    return user_meta(meta), {*meta} & (RESERVED_KEYS - HAYSTACK_KEYS)
