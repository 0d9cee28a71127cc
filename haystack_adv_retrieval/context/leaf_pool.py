"""The leaves around hits: which they are, and what packing has to know of them."""

from collections import Counter
from collections.abc import Hashable, Sequence
from collections.abc import Set as AbstractSet

import numpy as np
from haystack import Document

from haystack_adv_retrieval.context.budgets import LengthUnit, length_of
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.evidence import Pool, matrix, numbered


def has_leaves(hit: Document) -> bool:
    """Tell whether a hit says which leaves it consists of."""
    return chunks.LEAF_COUNT in hit.meta and chunks.leaf_range(hit.meta) is not None


def source_of(chunk: Document) -> tuple[str, str]:
    """Read the source of a chunk, and its version."""
    return chunk.meta[chunks.SOURCE_ID], chunk.meta[chunks.SOURCE_VERSION]


def ids_around(hits: Sequence[Document], reach: int, pool_size: int) -> list[str]:
    """
    Compute the ids of the leaves of hits and of those around them.

    :param hits: Hits with leaves, the most promising first.
    :param reach: How many leaves on each side of the first hit; fewer of later ones, as `reach_of` tells.
    :param pool_size: How many ids at most.
    :returns: Distinct ids, those of the first hit first, its own before those around it.
    """
    ids: dict[str, None] = {}
    for rank, hit in enumerate(hits):
        near = reach_of(rank, len(hits), reach)
        start, end = hit.meta[chunks.LEAF_START], hit.meta[chunks.LEAF_END]
        own, around = range(start, end), range(start - near, end + near)
        # Where the pool ends, the hit itself is in it.
        ordinals = dict.fromkeys([*own[:pool_size], *around[: near + pool_size]])
        ids |= dict.fromkeys(chunks.leaf_ids(hit.meta, ordinals))
        if len(ids) >= pool_size:
            break
    return list(ids)[:pool_size]


def reach_of(rank: int, count: int, reach: int) -> int:
    """
    Tell how many leaves on each side a hit brings: the earlier it comes, the more may be worth reading.

    :param rank: The place of the hit, from 0.
    :param count: How many hits there are.
    :param reach: The reach of the first hit.
    :returns: Its own reach. It falls with the square of the rest of the list, but not below one leaf on each side.
    """
    least = min(reach, 1)
    return least + round((reach - least) * (1 - rank / count) ** 2)


def lost_leaves(hit: Document, missing: AbstractSet[str], pool_size: int) -> list[str]:
    """
    Find out whether nothing is left of a hit because the store does not hold its leaves.

    :param hit: A hit with leaves.
    :param missing: Ids that were looked for in vain.
    :param pool_size: How many ids were looked for at most.
    :returns: The ids of its leaves if they are all missing; none if there are leaves, or if it is a leaf itself.
    """
    own = chunks.leaf_ids(hit.meta, (chunks.leaf_range(hit.meta) or range(0))[:pool_size])
    return own if missing >= set(own) and hit.id not in own else []


def pool_of(leaves: Sequence[Document], hits: Sequence[Document], length_unit: LengthUnit) -> Pool:
    """
    Gather what packing has to know.

    :param leaves: The leaves, sorted by source and place.
    :param hits: The hits with leaves that they are around, the most promising first.
    :param length_unit: What the budget counts.
    :returns: The pool, with vectors of the dimension that most leaves have; without if they have none.
    """
    texts = [leaf.content or "" for leaf in leaves]
    numbers: dict[Hashable, int] = {}
    sources = numbered([source_of(leaf) for leaf in leaves], numbers)
    ordinals = np.array([leaf.meta[chunks.SPLIT_ID] for leaf in leaves], dtype=int)
    ranks = np.zeros(len(leaves))
    for rank, hit in enumerate(hits):
        start, end = hit.meta[chunks.LEAF_START], hit.meta[chunks.LEAF_END]
        inside = (sources == numbers.get(source_of(hit), -1)) & (ordinals >= start) & (ordinals < end)
        ranks[inside] = np.maximum(ranks[inside], 1 - rank / len(hits))
    return Pool(
        sources=sources,
        ordinals=ordinals,
        sections=numbered([(*source_of(leaf), leaf.meta.get(chunks.HEADINGS)) for leaf in leaves]),
        lengths=np.array([length_of(text, length_unit) for text in texts], dtype=int),
        texts=texts,
        vectors=_vectors(leaves),
        ranks=ranks,
    )


def _vectors(leaves: Sequence[Document]) -> np.ndarray | None:
    """Read the vectors of one dimension. What has none of it gets zeros, so that what is around it says where it is."""
    rows = [leaf.embedding or [] for leaf in leaves]
    numbers = Counter(map(len, rows))
    del numbers[0]
    if not numbers:
        return None
    [(dimension, number)] = numbers.most_common(1)
    if number < len(rows):
        rows = [row if len(row) == dimension else [0.0] * dimension for row in rows]
    return matrix(rows)
