"""How well each sentence of several texts answers a question: by the index, by embeddings or by a ranker."""

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
from haystack import Document
from haystack.document_stores.types import DocumentStore

from haystack_adv_retrieval.calls import Steps
from haystack_adv_retrieval.compression.texts import Text
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.evidence import Pool, numbered, score, unit
from haystack_adv_retrieval.nested import Nested
from haystack_adv_retrieval.stores import read_by_ids


def read_vectors(texts: Sequence[Text], document_store: DocumentStore) -> Steps[None]:
    """
    Give units the vectors of the leaves that they stand in, in one look-up.

    :param texts: The texts; those of which the index does not know all stay without vectors.
    :param document_store: The index.
    """
    wanted = [chunks.leaf_ids(text.document.meta, _leaves(text)) for text in texts]
    found = yield from read_by_ids(document_store, [each for ids in wanted for each in ids])
    for text, ids in zip(texts, wanted, strict=True):
        _take_vectors(text, [found[each] for each in ids if each in found and found[each].embedding])


def embed(texts: Sequence[Text], document_embedder: Nested) -> Steps[None]:
    """
    Give units their own vectors, in one batch.

    :param texts: The texts.
    :param document_embedder: A Haystack document embedder.
    """
    outputs = yield from document_embedder.run(documents=_sentences(texts))
    vectors = unit(np.array([sentence.embedding for sentence in outputs["documents"]]))
    for text, own in zip(texts, _for_each(texts, vectors), strict=True):
        text.vectors = own


def ask_ranker(texts: Sequence[Text], query: str, ranker: Nested) -> Steps[None]:
    """
    Let a ranker say how relevant units are.

    :param texts: The texts.
    :param query: The question.
    :param ranker: A Haystack ranker. What it leaves out scores 0, or as low as the worst of the others.
    """
    sentences = _sentences(texts)
    every = {"top_k": len(sentences)} if "top_k" in inspect.signature(ranker.part.run).parameters else {}
    outputs = yield from ranker.run(query=query, documents=sentences, **every)
    scored = {int(sentence.id): sentence.score for sentence in outputs["documents"] if sentence.score is not None}
    if not scored:
        raise ValueError("the ranker gives no scores")
    lowest = min(0.0, *scored.values())
    relevance = np.array([scored.get(number, lowest) for number in range(len(sentences))])
    for text, own in zip(texts, _for_each(texts, relevance), strict=True):
        text.relevance = own


def weigh(texts: Sequence[Text], query: str, query_vector: np.ndarray | None, **weights: Any) -> None:
    """
    Score the units of all texts beside each other, each in its surroundings.

    Headings and headers, which answer nothing, come last.

    :param texts: The texts, with vectors or, where a ranker judged, with relevance. Those that touch in their source
        are read as one.
    :param query: The question.
    :param query_vector: Its vector; None where a ranker judged.
    :param weights: As for `haystack_adv_retrieval.core.evidence.score`.
    """
    if query_vector is not None:
        for text in texts:
            text.relevance = text.vectors @ unit(query_vector[None, :])[0]
    ordered = sorted(texts, key=lambda text: (text.source, text.start))
    ordinals: list[int] = []
    for before, text in zip([None, *ordered], ordered, strict=False):
        touches = before and (before.source, before.start + len(before.content)) == (text.source, text.start)
        first = ordinals[-1] + (1 if touches else 2) if ordinals else 0
        ordinals += range(first, first + len(text.units))
    pool = Pool(
        sources=numbered(text.source for text in ordered for _ in text.units),
        ordinals=np.array(ordinals),
        sections=numbered((text.source, section) for text in ordered for section in text.sections),
        lengths=np.zeros(len(ordinals)),
        texts=[sentence for text in ordered for sentence in text.sentences],
        vectors=None if query_vector is None else np.concatenate([text.vectors for text in ordered]),
        ranks=np.concatenate([text.relevance for text in ordered]) if query_vector is None else None,
    )
    scores = score(pool, query, query_vector, rank_weight=1.0, **weights)
    for text, own in zip(ordered, _for_each(ordered, scores), strict=True):
        labels = np.array([unit.is_label for unit in text.units])
        answers = ~labels | labels.all()
        text.scores, text.relevance = (np.where(answers, values, -np.inf) for values in (own, text.relevance))


def _sentences(texts: Sequence[Text]) -> list[Document]:
    sentences = [sentence for text in texts for sentence in text.sentences]
    return [Document(id=str(number), content=sentence) for number, sentence in enumerate(sentences)]


def _for_each(texts: Sequence[Text], values: np.ndarray) -> list[np.ndarray]:
    return np.split(values, np.cumsum([len(text.units) for text in texts])[:-1])


def _leaves(text: Text) -> range:
    return (chunks.leaf_range(text.document.meta) if text.is_slice else None) or range(0)


def _take_vectors(text: Text, leaves: Sequence[Document]) -> None:
    """Average the vectors of the leaves that each unit overlaps, in proportion, unless one overlaps none."""
    if not leaves:
        return
    spans = np.array([chunks.span_of(leaf.meta) for leaf in leaves]) - text.start
    units = np.array([unit.span for unit in text.units])
    ends = np.minimum(units[:, None, 1], spans[None, :, 1])
    overlaps = np.maximum(ends - np.maximum(units[:, None, 0], spans[None, :, 0]), 0)
    if overlaps.any(axis=1).all():
        text.vectors = unit(overlaps @ unit(np.array([leaf.embedding for leaf in leaves])))
