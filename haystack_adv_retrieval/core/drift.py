"""What keeps an index in step with its sources: what has changed, what can be reused, what has to go."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from haystack_adv_retrieval.core import chunks

T = TypeVar("T")
Meta = Mapping[str, Any]


@dataclass(frozen=True)
class EmbeddingSettings:
    """
    What an embedding depends on, besides the document.

    :param model: Name of the model. Embeddings of different models cannot be compared.
    :param meta_fields: Metadata fields that are embedded in front of the content.
    :param joined_by: The other strings that the embedded text is made with, such as separator and prefix.
    """

    model: str
    meta_fields: tuple[str, ...] = ()
    joined_by: tuple[str, ...] = ()

    @property
    def text_hash(self) -> str:
        """Identifies how the embedded text is made."""
        return chunks.digest(*self.joined_by, len(self.meta_fields), *self.meta_fields)

    def text_key(self, content: str, meta: Meta) -> str:
        """Compute a key that two documents share exactly if they are embedded as the same text."""
        values = [str(meta[name]) for name in self.meta_fields if meta.get(name) is not None]
        return chunks.digest(*values, content)

    def made(self, stored: Meta) -> bool:
        """Tell whether the embeddings under a stored source record were made with these settings."""
        return (stored.get(chunks.EMBEDDING_MODEL), stored.get(chunks.EMBEDDING_TEXT)) == (self.model, self.text_hash)


def is_settled(stored: Meta) -> bool:
    """Tell whether a stored source record is that of a finished write."""
    return chunks.SOURCE_VERSION in stored and not stored.get(chunks.PENDING)


def is_current(
    record: Meta,
    stored: Meta | None,
    settings: EmbeddingSettings,
    *,
    summarized: bool,
    summary_settings: str | None = None,
) -> bool:
    """
    Tell whether the index already holds a source as it is now.

    :param record: Metadata of the source's record as it is now.
    :param stored: Metadata of the record in the index, if there is one.
    :param settings: How embeddings are made now.
    :param summarized: Whether the source is to have summaries.
    :param summary_settings: How they are made now, see `summary_settings`; None if that is not known.
    :returns: Whether nothing has to be done.
    """
    return (
        stored is not None
        and is_settled(stored)
        and stored[chunks.SOURCE_VERSION] == record[chunks.SOURCE_VERSION]
        and settings.made(stored)
        and (chunks.SUMMARY_COUNT in stored or not summarized)
        # where there is no text, there is nothing to summarise, however it is done
        and (summary_settings in (None, stored.get(chunks.SUMMARY_SETTINGS)) or not stored.get(chunks.LEAF_COUNT, 1))
    )


def summary_settings(summaries: Iterable[Meta]) -> str:
    """
    Compute what the record of a source says of how its summaries were made.

    :param summaries: Metadata of the summaries, in order.
    :returns: What all of them say, or a hash of what each of them says where they differ or there are none.
    """
    each = [summary.get(chunks.SUMMARY_SETTINGS, "") for summary in summaries]
    return each[0] if len(set(each)) == 1 else chunks.digest(*each)


def tombstone(record: Meta) -> dict[str, Any]:
    """Make the metadata of a record which says that no version of its source is whole."""
    kept = {
        key: record[key] for key in (chunks.UNIT, chunks.SOURCE_ID, chunks.LEVEL, chunks.NAMESPACE) if key in record
    }
    return {**kept, chunks.PENDING: True}


def pending(record: Meta, stored: Meta | None) -> dict[str, Any]:
    """
    Make the metadata that a source's record has while a version of it is written.

    :param record: Metadata of the record that is to be.
    :param stored: Metadata of the record in the index, if there is one.
    :returns: The stored metadata, marked. Without the embedding model if a version is rewritten in place with
        embeddings of another kind, since until that is done nobody knows which chunk has which.
    """
    if stored is None:
        return tombstone(record)
    marked = {**stored, chunks.PENDING: True}
    kind = (chunks.EMBEDDING_MODEL, chunks.EMBEDDING_TEXT)
    if stored.get(chunks.SOURCE_VERSION) == record[chunks.SOURCE_VERSION] and any(
        stored.get(key) != record.get(key) for key in kind
    ):
        marked.pop(chunks.EMBEDDING_MODEL, None)
    return marked


def same_record(stored: Meta | None, other: Meta | None) -> bool:
    """Tell whether two readings of a source's record are of one and the same writing of it."""
    keys = (chunks.SOURCE_VERSION, chunks.PENDING, chunks.INDEXED_AT, chunks.EMBEDDING_MODEL)
    return [(stored or {}).get(key) for key in keys] == [(other or {}).get(key) for key in keys]


@dataclass
class Audit:
    """
    What differs between an index and what its source records say.

    :param stale: Ids of chunks of no current version, blocks last.
    :param damaged: Ids of sources of whose current version something is missing, or there is too much.
    :param pending: Ids of sources whose writing or deletion was begun and not finished.
    :param counts: How many chunks of each unit there are, the stale ones among them.
    :param versions: How many versions there are, of all sources together.
    """

    stale: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    versions: int = 0


def audit(records: Iterable[Meta], stored_chunks: Iterable[tuple[str, Meta]]) -> Audit:
    """
    Compare the chunks in an index with its source records.

    :param records: Metadata of all source records.
    :param stored_chunks: Ids and metadata of all other chunks, in any order.
    :returns: What differs.
    """
    found = Audit()
    by_source = {record[chunks.SOURCE_ID]: record for record in records}
    seen: Counter[tuple[str, str | int]] = Counter()
    versions = {
        (source_id, record[chunks.SOURCE_VERSION])
        for source_id, record in by_source.items()
        if chunks.SOURCE_VERSION in record
    }
    stale_blocks: list[str] = []
    for chunk_id, meta in stored_chunks:
        source_id, version = meta[chunks.SOURCE_ID], meta[chunks.SOURCE_VERSION]
        found.counts[meta[chunks.UNIT]] += 1
        versions.add((source_id, version))
        if by_source.get(source_id, {}).get(chunks.SOURCE_VERSION) != version:
            (stale_blocks if meta[chunks.UNIT] == "block" else found.stale).append(chunk_id)
        else:
            summary = meta[chunks.UNIT] == "summary"
            seen[source_id, "summary" if summary else meta[chunks.LEVEL]] += 1
    found.stale += stale_blocks
    for source_id, record in by_source.items():
        if record.get(chunks.PENDING):
            found.pending.append(source_id)
        if chunks.SOURCE_VERSION in record:
            expected: dict[str | int, int] = dict(enumerate(map(int, record[chunks.LEVEL_COUNTS].split(",")), start=1))
            expected["summary"] = record.get(chunks.SUMMARY_COUNT, 0)
            if any(seen[source_id, key] != count for key, count in expected.items()):
                found.damaged.append(source_id)
    found.versions = len(versions)
    return found


def orphans(stored_chunks: Sequence[tuple[str, Meta]]) -> list[str]:
    """
    Find the chunks of one version of a source whose parents, or summarised sections, are missing.

    :param stored_chunks: Ids and metadata of the chunks.
    :returns: The ids of those without a parent, and of what is below them.
    """
    present = {chunk_id for chunk_id, _ in stored_chunks}
    lost: list[str] = []
    # Coarse to fine, and a section before its summary, so that what hangs on a lost chunk is lost too.
    for chunk_id, meta in sorted(stored_chunks, key=lambda chunk: (chunk[1][chunks.LEVEL], chunk[1][chunks.UNIT])):
        parent = meta.get(chunks.PARENT_ID)
        if meta[chunks.UNIT] == "summary":
            address = (meta[key] for key in (chunks.SOURCE_ID, chunks.SOURCE_VERSION, chunks.LEVEL, chunks.SPLIT_ID))
            parent = chunks.chunk_id(*address) if meta[chunks.LEVEL] else None
        if parent is not None and parent not in present:
            present.discard(chunk_id)
            lost.append(chunk_id)
    return lost


def batches(items: Iterable[T], weight: Callable[[T], int], max_weight: int, max_count: int) -> Iterator[list[T]]:
    """
    Group items in order.

    :param items: The items, read as they are needed.
    :param weight: Weighs an item.
    :param max_weight: A group ends before it gets heavier than this, unless a single item is.
    :param max_count: A group ends after so many items.
    :returns: The groups; none is empty.
    """
    group: list[T] = []
    total = 0
    for item in items:
        heavier = total + weight(item)
        if group and (heavier > max_weight or len(group) == max_count):
            yield group
            group, heavier = [], weight(item)
        group.append(item)
        total = heavier
    if group:
        yield group
