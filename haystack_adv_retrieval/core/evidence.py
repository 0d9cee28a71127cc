"""
How well the leaves around some hits answer a query.

A leaf is judged with its surroundings, at several scales, by its vector and by its words, and with the best leaf of its
section. All is computed over a pool of a few hundred leaves: no model, no corpus statistics.
"""

import itertools
import re
import struct
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

# Constants of BM25 (Robertson and Zaragoza, The Probabilistic Relevance Framework, 2009). Lengths count a little less
# than usual: of a few leaves around hits the short ones are mostly headings and fragments.
K1, B = 1.2, 0.6

# A leaf with fewer words counts in proportion.
FULL_SENTENCE = 4

# Weight of the hits' order where there are no vectors.
STAND_IN_WEIGHT = 0.4

# The surroundings of so many leaves at once are summed up, so that long runs need no huge matrix.
LARGEST_PIECE = 512

# Chinese and Japanese characters are words of their own.
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+")
# What is no part of a word in ASCII. Most texts need no more, and are split faster than by the expression.
_GAPS = {code: " " for code in range(128) if not _WORD.match(chr(code))}
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
        those after it, 0 for what is no hit. Or how relevant a ranker finds each leaf, on any scale.
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

    @cached_property
    def words(self) -> list[list[str]]:
        """The words of each leaf."""
        return [words_of(text) for text in self.texts]

    def neighbors(self, index: int) -> list[int]:
        """Find the leaves, two at most, that touch a leaf."""
        before, after = self.follows[index], self.follows[index + 1 : index + 2].any()
        return [index - 1] * bool(before) + [index + 1] * bool(after)

    def around(self, values: np.ndarray, radius: int) -> np.ndarray:
        """
        Sum values over the surroundings of each leaf: its own, and less of its neighbours' the farther they are.

        A leaf counts by `1 - distance / (radius + 1)`, where there is no gap in between.

        :param values: One entry, or row, a leaf.
        :param radius: How far the farthest leaf is that counts.
        :returns: One entry, or row, a leaf.
        """
        rows = min(LARGEST_PIECE, max(map(len, self.runs), default=0))
        places = np.arange(-radius, rows + radius, dtype=values.dtype)
        weights = np.maximum(0, 1 - np.abs(places[radius : radius + rows, None] - places) / (radius + 1))
        sums = []
        for run in self.runs:
            for start in run[::LARGEST_PIECE]:
                stop = min(start + LARGEST_PIECE, run.stop)
                low, high = max(start - radius, run.start), min(stop + radius, run.stop)
                shift = radius - start
                sums.append(weights[: stop - start, low + shift : high + shift] @ values[low:high])
        return np.concatenate(sums) if sums else np.zeros_like(values)


def score(
    pool: Pool,
    query: str,
    query_vector: np.ndarray | None = None,
    *,
    scales: Sequence[int] = (2, 6, 20),
    lexical_weight: float = 0.8,
    rank_weight: float = 0.0,
    section_weight: float = 3.0,
) -> np.ndarray:
    """
    Judge the leaves of a pool.

    `evidence = dense + lexical_weight * lexical + rank_weight * rank`, and
    `score = evidence + section_weight * (the best evidence in the leaf's section)`. Parts, evidence and score are each
    scaled to 0..1 over the pool; the evidence of a fragment of a few words is reduced. The section decides where
    evidence is long, the leaf decides within it.

    :param pool: The leaves.
    :param query: The query.
    :param query_vector: Its vector. Without it, or without vectors in the pool, the ranks stand in for the dense part.
    :param scales: Radii of the surroundings, in leaves.
    :param lexical_weight: Weight of the words; the vectors weigh 1.
    :param rank_weight: Weight of the order in which the hits came.
    :param section_weight: Weight of the best leaf of the section.
    :returns: A score a leaf: 1 for the best one, 0 for the worst.
    """
    evidence = lexical_weight * spread(lexical_scores(query, pool, scales))
    if query_vector is not None and pool.vectors is not None:
        evidence += spread(dense_scores(query_vector, pool, pool.vectors, scales))
    else:
        rank_weight = max(rank_weight, STAND_IN_WEIGHT)
    if pool.ranks is not None and rank_weight:
        ones = np.ones_like(pool.ranks)
        means = sum(pool.around(pool.ranks, radius) / pool.around(ones, radius) for radius in scales)
        evidence += rank_weight * spread(pool.ranks + means)
    # A fragment such as "3." is as near to the evidence as what stands around it, and says nothing by itself.
    evidence = spread(evidence, flat=1.0) * np.minimum(1, np.array([len(leaf) for leaf in pool.words]) / FULL_SENTENCE)
    best = np.zeros(pool.sections.max(initial=-1) + 1)
    np.maximum.at(best, pool.sections, evidence)
    return spread(evidence + section_weight * best[pool.sections], flat=1.0)


def dense_scores(query: np.ndarray, pool: Pool, vectors: np.ndarray, scales: Sequence[int]) -> np.ndarray:
    """
    Compare a query with each leaf in its surroundings: `cos(query, v + sum over scales of unit(around(v)))`.

    :param query: The query's vector.
    :param pool: The leaves.
    :param vectors: Their vectors, shape (leaves, dimension).
    :param scales: Radii of the surroundings.
    :returns: A similarity a leaf.
    """
    vectors, query = unit(vectors), query.astype(vectors.dtype)
    blended = unit(sum((unit(pool.around(vectors, radius)) for radius in scales), start=vectors))
    similarities: np.ndarray = blended @ unit(query[None, :])[0]
    return similarities


def lexical_scores(query: str, pool: Pool, scales: Sequence[int]) -> np.ndarray:
    """
    Add up the BM25 scores of each leaf and of its surroundings, with document frequencies of the pool.

    :param query: The query.
    :param pool: The leaves.
    :param scales: Radii of the surroundings.
    :returns: A score a leaf.
    """
    columns = {term: column for column, term in enumerate(dict.fromkeys(words_of(query)))}
    size = len(pool.texts)
    lengths = np.array([len(leaf) for leaf in pool.words], dtype=float)
    counts = np.zeros((size, len(columns)))
    for row, leaf in enumerate(pool.words):
        for word in leaf:
            if word in columns:
                counts[row, columns[word]] += 1
    frequencies = (counts > 0).sum(axis=0)
    weights = np.log(1 + (size - frequencies + 0.5) / (frequencies + 0.5))
    scores = np.zeros(size)
    both = np.column_stack([counts, lengths])
    for sums in [both, *(pool.around(both, radius) for radius in scales)]:
        near, length = sums[:, :-1], sums[:, -1]
        norm = K1 * (1 - B + B * length / max(length.sum() / max(size, 1), 1.0))
        scores += (weights * near * (K1 + 1) / (near + norm[:, None])).sum(axis=1)
    return scores


def words_of(text: str) -> list[str]:
    """List the words of a text, case folded, and behind them the parts of names such as `max_length` or `maxLength`."""
    folded = text.casefold()
    words: list[str] = folded.translate(_GAPS).split() if folded.isascii() else _WORD.findall(folded)
    if "_" in text or _HUMP.search(text):
        for name in _WORD.findall(text):
            if name.islower() and "_" not in name:
                continue
            parts = _JOINT.split(name)
            words += [part.casefold() for part in parts if part and len(parts) > 1]
    return words


def numbered(keys: Iterable[Hashable], numbers: dict[Hashable, int] | None = None) -> np.ndarray:
    """
    Number keys in order of first use, as a pool needs its sources and sections.

    :param keys: The keys.
    :param numbers: Filled with the number of each key.
    :returns: The number of each key, from 0.
    """
    numbers = {} if numbers is None else numbers
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=int)


def matrix(rows: Sequence[Sequence[float]]) -> np.ndarray:
    """Make an array of vectors of the same length. NumPy, which looks at each number, takes three times as long."""
    row = struct.Struct(f"{len(rows[0])}d")
    numbers = b"".join([row.pack(*numbers) for numbers in rows])
    return np.frombuffer(numbers).astype(np.float32).reshape(len(rows), -1)


def unit(vectors: np.ndarray) -> np.ndarray:
    """Scale each row to length 1; a row of zeros stays one."""
    rows: np.ndarray = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return rows


def spread(values: np.ndarray, flat: float = 0.0) -> np.ndarray:
    """Scale values to 0..1; equal ones become `flat`."""
    low, high = values.min(initial=np.inf), values.max(initial=-np.inf)
    scaled: np.ndarray = (values - low) / (high - low) if high > low else np.full(len(values), flat)
    return scaled
