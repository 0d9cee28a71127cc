"""Documents as points of the engine and back, without loss."""

import json
from base64 import b64decode, b64encode
from typing import Any

import numpy as np
import qdrant_edge as engine
from haystack import Document
from haystack.dataclasses import ByteStream, SparseEmbedding

from haystack_adv_retrieval.document_stores.qdrant_edge_filters import filterable, point_id
from haystack_adv_retrieval.document_stores.qdrant_edge_shards import CONTENT, DENSE

# Everything of a document but its content and, usually, its embedding, as JSON: the engine's own payload has no lone
# surrogates, no NaN and no large integers, and reads slower.
REST = "rest"
STORED = engine.PayloadSelector.Include([CONTENT, REST])


def to_point(document: Document, order: int, normalized: bool) -> engine.Point:
    """
    Make the point of a document.

    :param document: The document.
    :param order: Its place in the order of writing.
    :param normalized: Whether the engine scales vectors to length 1.
    :returns: The point.
    :raises ValueError: If the embedding holds something else than finite numbers.
    """
    rest: dict[str, Any] = {"id": document.id, "order": order, "meta": document.meta}
    vectors: dict[str, Any] = {}
    if document.embedding is not None:
        exact = np.asarray(document.embedding, dtype=np.float64)
        held = exact.astype(np.float32)
        if exact.ndim != 1 or not np.isfinite(held).all():
            raise ValueError(f"The embedding of document '{document.id}' has to be a list of finite numbers")
        vectors[DENSE] = held.tolist()
        if not np.array_equal(held, exact) or (normalized and abs(float(held @ held) - 1) > 1e-6):
            rest["embedding"] = b64encode(exact.tobytes()).decode()
    if document.blob is not None:
        blob = document.blob
        rest["blob"] = {"data": b64encode(blob.data).decode(), "meta": blob.meta, "mime_type": blob.mime_type}
    if document.sparse_embedding is not None:
        rest["sparse_embedding"] = document.sparse_embedding.to_dict()
    if document.score is not None:
        rest["score"] = document.score
    payload: dict[str, Any] = {}
    if document.content is not None:
        payload[CONTENT] = document.content.encode("utf-8", "replace").decode()
        if payload[CONTENT] != document.content:
            rest["content"] = document.content
    text = json.dumps(rest, ensure_ascii=False, separators=(",", ":"), default=_plain)
    payload[REST] = _encodable(text)
    return engine.Point(point_id(document.id), vectors, payload | filterable(json.loads(text)["meta"]))


def to_document(record: engine.Record | engine.ScoredPoint) -> tuple[int, Document]:
    """
    Restore a document.

    :param record: What the engine returned, with the payload `STORED`, and the vector if the embedding is wanted.
    :returns: The document's place in the order of writing, and the document, with the score that it was written with.
    """
    payload, vectors = record.payload, record.vector
    rest = json.loads(_decoded(payload[REST]))
    order = rest.pop("order")
    embedding = rest.pop("embedding", None)
    rest.setdefault("content", payload.get(CONTENT))
    if vectors:
        embedding = np.frombuffer(b64decode(embedding)).tolist() if embedding else vectors[DENSE]
    if "blob" in rest:
        rest["blob"] = ByteStream(**rest["blob"] | {"data": b64decode(rest["blob"]["data"])})
    if "sparse_embedding" in rest:
        rest["sparse_embedding"] = SparseEmbedding.from_dict(rest["sparse_embedding"])
    return order, Document(**rest, embedding=embedding if vectors else None)


def _plain(value: Any) -> Any:
    """Turn what JSON does not know into what it does: dates into ISO text, NumPy values into Python's, sets to lists."""
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return sorted(value, key=str) if isinstance(value, set | frozenset) else str(value)


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate: spell the bytes out
        return "\0" + text.encode("utf-8", "surrogatepass").decode("latin-1")
    return text


def _decoded(text: str) -> str:
    return text[1:].encode("latin-1").decode("utf-8", "surrogatepass") if text[0] == "\0" else text
