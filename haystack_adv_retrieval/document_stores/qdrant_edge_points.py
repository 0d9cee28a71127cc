"""Documents as points of the engine and back, without loss."""

import json
import unicodedata
from base64 import b64decode, b64encode
from typing import Any

import numpy as np
import qdrant_edge as engine
import regex
from haystack import Document
from haystack.dataclasses import ByteStream, SparseEmbedding

from haystack_adv_retrieval.document_stores.qdrant_edge_filters import filterable, point_id
from haystack_adv_retrieval.document_stores.qdrant_edge_shards import CONTENT, DENSE

# All of a document but its content and embedding, as JSON text: the engine's own values cannot be lone surrogates, NaN
# or large integers. The content and the embedding are here too if the engine would change them.
REST = "rest"
ORDER = "order"  # place in the order of writing
STORED = engine.PayloadSelector.Include([CONTENT, REST, ORDER])

_UNSPACED = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]+", regex.VERSION1
)


def searchable(text: str) -> str:
    """
    Prepare a text or a query for the text index, which makes a term of each run of letters or digits.

    Scripts that do not put spaces between words become overlapping pairs of characters.

    :param text: The text.
    :returns: The text to index.
    """
    text = unicodedata.normalize("NFKC", text.encode("utf-8", "replace").decode())
    return text if text.isascii() else _UNSPACED.sub(_pairs, text)


def to_point(document: Document, order: int, *, normalized: bool) -> engine.Point:
    """
    Make the point of a document.

    :param document: The document.
    :param order: Its place in the order of writing.
    :param normalized: Whether the engine scales embeddings to length 1.
    :returns: The point.
    :raises ValueError: If the embedding is not a list of finite numbers.
    """
    rest: dict[str, Any] = {"id": document.id, "meta": document.meta}
    vectors: dict[str, Any] = {}
    if document.embedding is not None:
        exact = np.asarray(document.embedding, dtype=np.float64)
        with np.errstate(over="ignore"):
            held = exact.astype(np.float32)
        if exact.ndim != 1 or not exact.size or not np.isfinite(held).all():
            raise ValueError(f"The embedding of document '{document.id}' must be a list of finite numbers")
        vectors[DENSE] = held.tolist()
        if (held != exact).any() or (normalized and abs(float(held @ held) - 1) > 1e-6):
            rest["embedding"] = _ascii(exact.tobytes())
    if document.blob is not None:
        rest["blob"] = {**vars(document.blob), "data": _ascii(document.blob.data)}
    if document.sparse_embedding is not None:
        rest["sparse_embedding"] = document.sparse_embedding.to_dict()
    if document.score is not None:
        rest["score"] = document.score
    payload: dict[str, Any] = {ORDER: order}
    if document.content is not None:
        payload[CONTENT] = searchable(document.content)
        if payload[CONTENT] != document.content:
            rest["content"] = document.content
    text = json.dumps(rest, ensure_ascii=False, separators=(",", ":"), default=_plain)
    payload[REST] = _encodable(text)
    return engine.Point(point_id(document.id), vectors, payload | filterable(json.loads(text)["meta"]))


def to_document(record: engine.Record | engine.ScoredPoint) -> Document:
    """
    Restore a document.

    :param record: What the engine returned, with the payload `STORED`, and with the vector if the embedding is wanted.
    :returns: The document; its score is that of the search, or else the one it was written with.
    """
    payload: dict[str, Any] = record.payload or {}
    vectors: Any = record.vector
    rest = json.loads(_decoded(payload[REST]))
    exact = rest.pop("embedding", None)
    if vectors:
        rest["embedding"] = np.frombuffer(b64decode(exact)).tolist() if exact else vectors[DENSE]
    if "content" not in rest:
        rest["content"] = payload.get(CONTENT)
    if "blob" in rest:
        rest["blob"] = ByteStream(**{**rest["blob"], "data": b64decode(rest["blob"]["data"])})
    if "sparse_embedding" in rest:
        rest["sparse_embedding"] = SparseEmbedding.from_dict(rest["sparse_embedding"])
    if isinstance(record, engine.ScoredPoint):
        rest["score"] = record.score
    return Document(**rest)


def _pairs(match: regex.Match[str]) -> str:
    run = match[0]
    pairs = [run[start : start + 2] for start in range(len(run) - 1)] or [run]
    return f" {' '.join(pairs)} "


def _plain(value: Any) -> Any:
    """Turn what JSON does not know into what it does: dates into ISO text, NumPy's values into Python's."""
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "tolist"):
        return value.tolist()
    return sorted(value, key=str) if isinstance(value, set | frozenset) else str(value)


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate: the bytes, spelled out
        return "\0" + text.encode("utf-8", "surrogatepass").decode("latin-1")
    return text


def _decoded(text: str) -> str:
    return text[1:].encode("latin-1").decode("utf-8", "surrogatepass") if text.startswith("\0") else text


def _ascii(data: bytes) -> str:
    return b64encode(data).decode()
