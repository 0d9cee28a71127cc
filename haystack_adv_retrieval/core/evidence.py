"""
How well the leaves around some hits answer a query.

A leaf is judged with its surroundings, at several scales, by its vector and by its words, and with the best leaf of its
section. All is computed over a pool of a few hundred leaves: no model, no corpus statistics.
"""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

# The usual constants of BM25 (Robertson and Zaragoza, The Probabilistic Relevance Framework, 2009).
K1, B = 1.2, 0.75

# Weight of the hits' order where there are no vectors.
STAND_IN_WEIGHT = 0.5

# Chinese and Japanese characters are words of their own.
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+")
# A capital inside of a word, and what ends a part of a name such as max_length or maxLength.
_HUMP = re.compile(r"[a-z0-9][A-Z]")
_JOINT = re.compile(r"_+|(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True)
class Pool:
    """
    Leaves to choose from, sorted by source and ordinal. All arrays have one entry, or row, a leaf.

    :param sources: Numbers of the sources.
    :param ordinals: Places of the leaves in their sources.
    :param sections: Numbers, from 0, of the sections: what has the same headings in the same source.
    :param lengths: What a leaf takes from the budget.
    :param texts: The texts.
    :param vectors: The vectors, shape (leaves, dimension); None if the index holds none.
    :param ranks: How early the retriever or ranker had the hit that a leaf belongs to: 1 for the first one, less for
        those after it, 0 for what is no hit.
    """

    sources: np.ndarray
    ordinals: np.ndarray
    sections: np.ndarray
    lengths: np.ndarray
    texts: Sequence[str]
    vectors: np.ndarray | None = None
    ranks: np.ndarray | None = None

    @cached_property
    def follows(self) -> np.ndarray:
        """Whether a leaf follows the one before it in the pool without a gap."""
        follows = np.zeros(len(self.ordinals), dtype=bool)
        follows[1:] = (np.diff(self.ordinals) == 1) & (np.diff(self.sources) == 0)
        return follows

    @cached_property
    def runs(self) -> list[range]:
        """The longest runs of leaves without a gap."""
        starts = [*np.flatnonzero(~self.follows).tolist(), len(self.ordinals)]
        return [range(start, end) for start, end in itertools.pairwise(starts)]

    def windows(self, radius: int) -> tuple[np.ndarray, np.ndarray]:
        """
        Find what surrounds each leaf without a gap in between.

        :param radius: How many leaves on each side.
        :returns: The first index of each leaf's window, and the one after its last.
        """
        indices = np.arange(len(self.ordinals))
        bounds = [(run.start, run.stop) for run in self.runs for _ in run]
        starts, ends = np.array(bounds, dtype=int).reshape(-1, 2).T
        return np.maximum(starts, indices - radius), np.minimum(ends, indices + radius + 1)


def score(
    pool: Pool,
    query: str,
    query_vector: np.ndarray | None = None,
    *,
    scales: Sequence[int] = (1, 6),
    lexical_weight: float = 1.0,
    rank_weight: float = 0.0,
    section_weight: float = 2.0,
) -> np.ndarray:
    """
    Judge the leaves of a pool.

    `evidence = dense + lexical_weight * lexical + rank_weight * rank`, each part scaled to 0..1 over the pool, and
    `score = evidence + section_weight * (the best evidence in the leaf's section)`, scaled to 0..1 again. The section
    decides where evidence is long, the leaf decides within it.

    :param pool: The leaves.
    :param query: The query.
    :param query_vector: Its vector. Without it, or without vectors in the pool, the ranks stand in for the dense part.
    :param scales: Radii of the surroundings, in leaves.
    :param lexical_weight: Weight of the words; the vectors weigh 1.
    :param rank_weight: Weight of the order in which the hits came.
    :param section_weight: Weight of the best leaf of the section.
    :returns: A score a leaf: 1 for the best one, 0 for the worst.
    """
    windows = [pool.windows(radius) for radius in scales]
    evidence = lexical_weight * spread(lexical_scores(query, pool.texts, windows))
    if query_vector is not None and pool.vectors is not None:
        evidence += spread(dense_scores(query_vector, pool.vectors, windows))
    else:
        rank_weight = max(rank_weight, STAND_IN_WEIGHT)
    if pool.ranks is not None and rank_weight:
        means = sum(window_sums(pool.ranks, window) / (window[1] - window[0]) for window in windows)
        evidence += rank_weight * spread(pool.ranks + means)
    best = np.zeros(pool.sections.max(initial=-1) + 1)
    np.maximum.at(best, pool.sections, evidence)
    return spread(evidence + section_weight * best[pool.sections], flat=1.0)


def dense_scores(
    query: np.ndarray, vectors: np.ndarray, windows: Sequence[tuple[np.ndarray, np.ndarray]]
) -> np.ndarray:
    """
    Compare a query with each leaf in its surroundings: `cos(query, v + the sum over windows of unit(sum of v))`.

    :param query: The query's vector.
    :param vectors: Vectors of the leaves, shape (leaves, dimension).
    :param windows: The surroundings, from `Pool.windows`.
    :returns: A similarity a leaf.
    """
    vectors = unit(vectors)
    blended = unit(sum((unit(window_sums(vectors, window)) for window in windows), start=vectors))
    similarities: np.ndarray = blended @ unit(query[None, :])[0]
    return similarities


def lexical_scores(query: str, texts: Sequence[str], windows: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """
    Add up the BM25 scores of each leaf and of its surroundings, with document frequencies of the pool.

    :param query: The query.
    :param texts: Texts of the leaves.
    :param windows: The surroundings, from `Pool.windows`.
    :returns: A score a leaf.
    """
    terms = list(dict.fromkeys(words_of(query)))
    words = [words_of(text) for text in texts]
    lengths = np.array([len(leaf) for leaf in words], dtype=float)
    counts = np.array([[leaf.count(term) for term in terms] for leaf in words], dtype=float)
    counts = counts.reshape(len(texts), len(terms))
    frequencies = (counts > 0).sum(axis=0)
    weights = np.log(1 + (len(texts) - frequencies + 0.5) / (frequencies + 0.5))
    scores = np.zeros(len(texts))
    around = [(window_sums(counts, window), window_sums(lengths, window)) for window in windows]
    for near, length in [(counts, lengths), *around]:
        norm = K1 * (1 - B + B * length / max(length.sum() / max(len(texts), 1), 1.0))
        scores += (weights * near * (K1 + 1) / (near + norm[:, None])).sum(axis=1)
    return scores


def window_sums(values: np.ndarray, window: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """
    Sum rows over windows, in time that does not depend on their size.

    :param values: One entry, or row, a leaf.
    :param window: The first row of each window, and the one after its last.
    :returns: One entry, or row, a window.
    """
    totals = np.concatenate([np.zeros((1, *values.shape[1:])), np.cumsum(values, axis=0)])
    sums: np.ndarray = totals[window[1]] - totals[window[0]]
    return sums


def words_of(text: str) -> list[str]:
    """List the words of a text, case folded, and behind them the parts of names such as `max_length` or `maxLength`."""
    words: list[str] = _WORD.findall(text.casefold())
    if "_" in text or _HUMP.search(text):
        for name in _WORD.findall(text):
            parts = _JOINT.split(name)
            words += [part.casefold() for part in parts if part and len(parts) > 1]
    return words


def unit(vectors: np.ndarray) -> np.ndarray:
    """Scale each row to length 1; a row of zeros stays one."""
    rows: np.ndarray = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return rows


def spread(values: np.ndarray, flat: float = 0.0) -> np.ndarray:
    """Scale values to 0..1; equal ones become `flat`."""
    low, high = values.min(initial=np.inf), values.max(initial=-np.inf)
    scaled: np.ndarray = (values - low) / (high - low) if high > low else np.full(len(values), flat)
    return scaled
