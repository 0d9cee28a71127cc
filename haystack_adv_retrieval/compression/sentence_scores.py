"""How well each sentence of the texts of a job answers its question: by the index, by embeddings or by a ranker."""

import inspect
from collections.abc import Sequence

import numpy as np
from haystack import Document
from haystack.document_stores.types import DocumentStore

from haystack_adv_retrieval.calls import Steps
from haystack_adv_retrieval.compression.texts import Job, Text
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.nested import Nested
from haystack_adv_retrieval.stores import read_by_ids


def query_vector(job: Job, text_embedder: Nested) -> Steps[np.ndarray]:
    """
    Embed the question, unless its vector is given.

    :param job: The job, which remembers the vector.
    :param text_embedder: A Haystack text embedder.
    :returns: The vector, of length 1.
    """
    if job.query_embedding is None:
        job.query_embedding = (yield from text_embedder.run(text=job.query))["embedding"]
    vector: np.ndarray = _of_length_1(np.array([job.query_embedding]))[0]
    return vector


def by_index(texts: Sequence[Text], query: np.ndarray, document_store: DocumentStore) -> Steps[list[np.ndarray | None]]:
    """
    Score sentences by the vectors of the leaves that they stand in, in one look-up.

    :param texts: The texts.
    :param query: From `query_vector`.
    :param document_store: The index.
    :returns: Scores for each text; None where the index does not know all of it.
    """
    wanted = [chunks.leaf_ids(text.document.meta, _leaves(text)) for text in texts]
    found = yield from read_by_ids(document_store, [each for ids in wanted for each in ids])
    return [
        _from_leaves(text, [found[each] for each in ids if each in found and found[each].embedding], query)
        for text, ids in zip(texts, wanted, strict=True)
    ]


def by_embedding(texts: Sequence[Text], query: np.ndarray, document_embedder: Nested) -> Steps[list[np.ndarray]]:
    """
    Score sentences by their own vectors, in one batch.

    :param texts: The texts.
    :param query: From `query_vector`.
    :param document_embedder: A Haystack document embedder.
    :returns: Scores for each text.
    """
    outputs = yield from document_embedder.run(documents=_sentences(texts))
    return _for_each(texts, _of_length_1(np.array([sentence.embedding for sentence in outputs["documents"]])) @ query)


def by_ranker(texts: Sequence[Text], query: str, ranker: Nested) -> Steps[list[np.ndarray]]:
    """
    Score sentences by a ranker.

    :param texts: The texts.
    :param query: The question.
    :param ranker: A Haystack ranker. What it leaves out scores 0, or as low as the worst of the others.
    :returns: Scores for each text.
    """
    sentences = _sentences(texts)
    every = {"top_k": len(sentences)} if "top_k" in inspect.signature(ranker.part.run).parameters else {}
    outputs = yield from ranker.run(query=query, documents=sentences, **every)
    scored = {int(sentence.id): sentence.score for sentence in outputs["documents"] if sentence.score is not None}
    if not scored:
        raise ValueError("the ranker gives no scores")
    lowest = min(0.0, *scored.values())
    return _for_each(texts, np.array([scored.get(number, lowest) for number in range(len(sentences))]))


def _sentences(texts: Sequence[Text]) -> list[Document]:
    sentences = [sentence for text in texts for sentence in text.sentences]
    return [Document(id=str(number), content=sentence) for number, sentence in enumerate(sentences)]


def _for_each(texts: Sequence[Text], scores: np.ndarray) -> list[np.ndarray]:
    return np.split(scores, np.cumsum([len(text.units) for text in texts])[:-1])


def _of_length_1(vectors: np.ndarray) -> np.ndarray:
    rows: np.ndarray = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return rows


def _leaves(text: Text) -> range:
    return (chunks.leaf_range(text.document.meta) if text.is_slice else None) or range(0)


def _from_leaves(text: Text, leaves: Sequence[Document], query: np.ndarray) -> np.ndarray | None:
    """Give each unit the similarities of the leaves that it overlaps, in proportion; None if one overlaps none."""
    if not leaves:
        return None
    spans = np.array([chunks.span_of(leaf.meta) for leaf in leaves]) - text.start
    similarities = _of_length_1(np.array([leaf.embedding for leaf in leaves])) @ query
    units = np.array([unit.span for unit in text.units])
    ends = np.minimum(units[:, None, 1], spans[None, :, 1])
    overlaps = np.maximum(ends - np.maximum(units[:, None, 0], spans[None, :, 0]), 0)
    totals = overlaps.sum(axis=1)
    scores: np.ndarray | None = overlaps @ similarities / totals if totals.all() else None
    return scores
