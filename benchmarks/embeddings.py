"""One embedding model for all that is compared, with every vector kept on disk, so that a second run is quick."""

import hashlib
import os
import sqlite3
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import nltk
import numpy as np
from sentence_transformers import SentenceTransformer

from haystack_adv_retrieval.models import embedding_model


class Encoder:
    """Embeds texts with vectors of length 1."""

    def __init__(self, cache: Path) -> None:
        cache.mkdir(parents=True, exist_ok=True)
        self.model = embedding_model()
        self._database = sqlite3.connect(cache / "embeddings.sqlite")
        self._database.execute("CREATE TABLE IF NOT EXISTS vectors (key TEXT PRIMARY KEY, vector BLOB)")
        self._encoder: SentenceTransformer | None = None

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        # The model's tokenizer takes all white space alike, so texts that differ in nothing else share a vector.
        texts = [" ".join(text.split()) for text in texts]
        keys = [hashlib.sha256(f"{Path(self.model).name}\0{text}".encode()).hexdigest() for text in texts]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if self._read(key) is None}
        if missing:
            self._encoder = self._encoder or SentenceTransformer(self.model, device="cpu")
        # In batches of like lengths, each kept at once, so that an interrupted run goes on where it was.
        ordered = sorted(missing, key=lambda key: len(missing[key]))
        for start in range(0, len(ordered), 512):
            batch = ordered[start : start + 512]
            vectors = self._encoder.encode([missing[key] for key in batch], normalize_embeddings=True)
            rows = ((key, vector.astype(np.float32).tobytes()) for key, vector in zip(batch, vectors, strict=True))
            self._database.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", rows)
            self._database.commit()
        return np.stack([self._read(key) for key in keys])

    def _read(self, key: str) -> np.ndarray | None:
        row = self._database.execute("SELECT vector FROM vectors WHERE key = ?", (key,)).fetchone()
        return None if row is None else np.frombuffer(row[0], dtype=np.float32)


class BruteForce:
    """Exact search by cosine similarity."""

    def __init__(self, encoder: Encoder, texts: Sequence[str]) -> None:
        self._encoder = encoder
        self._vectors = encoder.encode(texts)

    def search(self, query: str, k: int) -> list[tuple[int, float]]:
        """Find the places and scores of the `k` nearest texts, best first."""
        scores = self._vectors @ self._encoder.encode([query])[0]
        return [(int(place), float(scores[place])) for place in np.argsort(-scores, kind="stable")[:k]]


def use_bundled_data() -> None:
    """Let sentence splitters and tokenizers find the data files that LlamaIndex brings, instead of downloading them."""
    folder = Path(str(find_spec("llama_index.core").origin)).parent / "_static"
    nltk.data.path.insert(0, str(folder / "nltk_cache"))
    os.environ.setdefault("TIKTOKEN_CACHE_DIR", str(folder / "tiktoken_cache"))
