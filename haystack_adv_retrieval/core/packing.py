"""
Choosing the best leaves around some hits under a budget.

A leaf is judged with its surroundings, at several scales, by its vector and by its words; then leaves are taken best
first until the budget is full. All is computed over a pool of a few hundred leaves: no model, no corpus statistics.
"""

import heapq
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# The usual constants of BM25 (Robertson and Zaragoza, The Probabilistic Relevance Framework, 2009).
K1, B = 1.2, 0.75

# A leaf with fewer words counts in proportion.
FULL_SENTENCE = 4

_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class Pool:
    """
    Leaves to choose from, sorted by source and ordinal. All arrays have one entry, or row, a leaf.

    :param sources: Numbers of the sources.
    :param ordinals: Places of the leaves in their sources.
    :param sections: Numbers of the blocks one level up, -1 for none.
    :param lengths: What a leaf takes from the budget.
    :param texts: The texts.
    :param vectors: The vectors, shape (leaves, dimension); None if the index holds none.
    """

    sources: np.ndarray
    ordinals: np.ndarray
    sections: np.ndarray
    lengths: np.ndarray
    texts: Sequence[str]
    vectors: np.ndarray | None = None


def surroundings(pool: Pool, radius: int) -> np.ndarray:
    """
    Weigh the neighbours of each leaf: `max(0, 1 - distance / (radius + 1))` within its source.

    :param pool: The leaves.
    :param radius: How many leaves away the last neighbour with a weight is.
    :returns: Weights, shape (leaves, leaves); a leaf's own is 1.
    """
    distance = np.abs(pool.ordinals[:, None] - pool.ordinals[None, :])
    weights: np.ndarray = np.maximum(0.0, 1 - distance / (radius + 1))
    weights[pool.sources[:, None] != pool.sources[None, :]] = 0.0
    return weights


def dense_scores(query: np.ndarray, vectors: np.ndarray, scales: Sequence[np.ndarray]) -> np.ndarray:
    """
    Compare a query with each leaf in its surroundings: `cos(q, v + sum over scales of unit(W v))`.

    :param query: The query's vector.
    :param vectors: Vectors of the leaves, shape (leaves, dimension).
    :param scales: Weights W of `surroundings`, one matrix a scale.
    :returns: A similarity a leaf.
    """
    vectors = unit(vectors)
    blended = unit(vectors + sum(unit(weights @ vectors) for weights in scales))
    similarities: np.ndarray = blended @ unit(query[None, :])[0]
    return similarities


def lexical_scores(query: str, texts: Sequence[str], scales: Sequence[np.ndarray]) -> np.ndarray:
    """
    Add up the BM25 scores of each leaf and of its surroundings, with document frequencies of the pool.

    :param query: The query.
    :param texts: Texts of the leaves.
    :param scales: Weights of `surroundings`, one matrix a scale; they weigh word counts and lengths.
    :returns: A score a leaf.
    """
    words = [Counter(words_of(text)) for text in texts]
    terms = list(dict.fromkeys(words_of(query)))
    counts = np.array([[leaf[term] for term in terms] for leaf in words], dtype=float).reshape(len(texts), len(terms))
    lengths = np.array([leaf.total() for leaf in words], dtype=float)
    frequencies = (counts > 0).sum(axis=0)
    weights = np.log(1 + (len(texts) - frequencies + 0.5) / (frequencies + 0.5))
    scores = np.zeros(len(texts))
    for near, length in [(counts, lengths), *((scale @ counts, scale @ lengths) for scale in scales)]:
        norm = K1 * (1 - B + B * length / max(length.mean(), 1e-9))
        scores += (weights * near * (K1 + 1) / (near + norm[:, None] + 1e-9)).sum(axis=1)
    return scores


def score(
    pool: Pool, query: str, query_vector: np.ndarray | None, scales: Sequence[int], lexical_weight: float
) -> np.ndarray:
    """
    Judge the leaves of a pool: dense and lexical scores, each scaled to 0..1 over the pool, added up.

    :param pool: The leaves.
    :param query: The query.
    :param query_vector: Its vector; None, or a pool without vectors, leaves the words alone.
    :param scales: Radii of the surroundings, in leaves.
    :param lexical_weight: Weight of the words; the vectors weigh 1.
    :returns: A score a leaf, at least 0.
    """
    weights = [surroundings(pool, radius) for radius in scales]
    scores = spread(lexical_scores(query, pool.texts, weights))
    if query_vector is not None and pool.vectors is not None:
        scores = lexical_weight * scores + spread(dense_scores(query_vector, pool.vectors, weights))
    # A fragment such as "3." is as near to the evidence as what stands around it, and says nothing by itself.
    words = np.array([len(_WORD.findall(text)) for text in pool.texts])
    scaled: np.ndarray = scores * np.minimum(1.0, words / FULL_SENTENCE)
    return scaled


def pack(
    pool: Pool,
    scores: np.ndarray,
    max_length: int,
    *,
    adjacency_bonus: float = 0.1,
    section_bonus: float = 0.0,
    floor: float = 0.0,
) -> list[int]:
    """
    Take leaves, best first, until the budget is full. One that does not fit is passed over.

    A taken leaf makes what stands around it more attractive: each neighbour gains `adjacency_bonus` (twice, where it
    closes a gap between two taken leaves), and each leaf of its section `section_bonus` times the share of the
    section's text that is taken. So evidence that is long grows into whole sections, and a single sentence stays one.

    :param pool: The leaves.
    :param scores: Their scores.
    :param max_length: The budget.
    :param adjacency_bonus: See above.
    :param section_bonus: See above.
    :param floor: Leaves below this share of the best score are not taken.
    :returns: Indices of the taken leaves, in the order of the pool.
    """
    if not len(scores):
        return []
    lowest = floor * scores.max()
    _, sections = np.unique(np.stack([pool.sources, pool.sections]), axis=1, return_inverse=True)
    sections = sections.reshape(-1)
    totals = np.bincount(sections, weights=pool.lengths)
    covered = np.zeros(len(totals))
    members = [np.flatnonzero(sections == section) for section in range(len(totals))]
    taken = np.zeros(len(scores), dtype=bool)
    gains = np.zeros(len(scores))
    left = max_length
    heap = [(-value, index) for index, value in enumerate(scores)]
    heapq.heapify(heap)
    while heap:
        value, index = heapq.heappop(heap)
        if taken[index] or -value < scores[index] + gains[index] - 1e-12:
            continue  # an entry that a better one replaced
        if scores[index] < lowest or pool.lengths[index] > left:
            continue
        taken[index] = True
        left -= pool.lengths[index]
        raised = {neighbor: adjacency_bonus for neighbor in (index - 1, index + 1) if _touch(pool, index, neighbor)}
        section = sections[index]
        if section_bonus and pool.sections[index] >= 0:
            covered[section] += pool.lengths[index]
            share = section_bonus * pool.lengths[index] / max(totals[section], 1)
            for member in members[section]:
                raised[member] = raised.get(member, 0.0) + share
        for other, gain in raised.items():
            if not taken[other]:
                gains[other] += gain
                heapq.heappush(heap, (-(scores[other] + gains[other]), other))
    return [int(index) for index in np.flatnonzero(taken)]


def runs(pool: Pool, indices: Sequence[int]) -> list[list[int]]:
    """
    Join leaves that follow one another in their source.

    :param pool: The leaves.
    :param indices: Indices of some of them, ascending.
    :returns: Runs of indices.
    """
    joined: list[list[int]] = []
    for index in indices:
        if joined and joined[-1][-1] == index - 1 and _touch(pool, index, index - 1):
            joined[-1].append(index)
        else:
            joined.append([index])
    return joined


def words_of(text: str) -> list[str]:
    """List the words of a text, case folded, a plural ending of English cut off."""
    return [word[:-1] if len(word) > 3 and word.endswith("s") else word for word in _WORD.findall(text.casefold())]


def unit(vectors: np.ndarray) -> np.ndarray:
    """Scale each row to length 1; a row of zeros stays one."""
    rows: np.ndarray = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return rows


def spread(values: np.ndarray) -> np.ndarray:
    """Scale values to 0..1; equal ones become 0."""
    low, high = values.min(initial=np.inf), values.max(initial=-np.inf)
    scaled: np.ndarray = (values - low) / (high - low) if high > low else np.zeros_like(values, dtype=float)
    return scaled


def _touch(pool: Pool, index: int, other: int) -> bool:
    return (
        0 <= other < len(pool.ordinals)
        and pool.sources[index] == pool.sources[other]
        and abs(int(pool.ordinals[index]) - int(pool.ordinals[other])) == 1
    )
