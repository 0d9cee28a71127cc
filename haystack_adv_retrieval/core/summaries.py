"""Extractive summaries: the sentences that say most of what a text says."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from zlib import crc32

import numpy as np

from haystack_adv_retrieval.core.evidence import unit

_WORD = re.compile(r"\w+")
_COLUMNS = 4096  # words are hashed, so that the size does not grow with the vocabulary


def central_sentences(sentences: Sequence[str], vectors: np.ndarray, count: int) -> list[int]:
    """
    Choose the sentences nearest to the centre of a text, each of which adds something to those before it.

    A sentence scores `cos(v, c) - max cos(v, chosen) / 2`, with the centre `c` the mean of all vectors weighted by
    the number of words: centroid summarisation (Radev et al., Centroid-based summarization, 2004) with the redundancy
    penalty of maximal marginal relevance (Carbonell and Goldstein, 1998).

    :param sentences: The sentences, in order.
    :param vectors: Their vectors of length 1 or 0, one a row.
    :param count: How many to choose.
    :returns: Indices of the chosen sentences, ascending.
    """
    weights = np.array([len(_WORD.findall(sentence)) for sentence in sentences], dtype=float)
    centre = weights @ vectors
    centre /= np.linalg.norm(centre) or 1.0
    # A heading or a fragment is near to everything and says little.
    scores = vectors @ centre * np.minimum(1.0, weights / 8)
    chosen: list[int] = []
    while len(chosen) < min(count, len(sentences)):
        redundancy = (vectors @ vectors[chosen].T).max(axis=1) if chosen else np.zeros(len(sentences))
        gains = scores - redundancy / 2
        gains[chosen] = -np.inf
        chosen.append(int(gains.argmax()))
    return sorted(chosen)


def word_vectors(sentences: Sequence[str]) -> np.ndarray:
    """
    Make vectors of sentences out of their words, for texts that have not been embedded.

    :param sentences: The sentences.
    :returns: A row of term frequency times inverse sentence frequency for each, of length 1 (0 without words).
    """
    counts = [Counter(_WORD.findall(sentence.casefold())) for sentence in sentences]
    spread = Counter(word for words in counts for word in words)
    vectors = np.zeros((len(sentences), _COLUMNS), dtype=np.float32)
    for row, words in enumerate(counts):
        for word, frequency in words.items():
            vectors[row, crc32(word.encode()) % _COLUMNS] += frequency * math.log(1 + len(sentences) / spread[word])
    return unit(vectors)
