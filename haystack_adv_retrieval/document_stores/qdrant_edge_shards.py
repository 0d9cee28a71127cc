"""
The engine's shards: one open shard per folder and process, shared by everyone who asks for that folder.

The engine logs every update before it returns, so what was written survives the process. A folder holds the shard
itself in `shard`, and a lock file; a new shard is built beside it and moved into place, so that an interrupted start
leaves nothing that cannot be opened.
"""

import json
import os
import shutil
import threading
from itertools import count
from pathlib import Path
from time import time_ns
from typing import Literal

import qdrant_edge as engine
from filelock import FileLock, Timeout
from haystack.document_stores.errors import DocumentStoreError

CONTENT, FACTS, DENSE = "content", "facts", "dense"  # names of payload fields and of the vector

Similarity = Literal["cosine", "dot_product", "euclidean"]
# Haystack's names, and how the engine spells its own in its configuration file.
SIMILARITIES = {"cosine": "Cosine", "dot_product": "Dot", "euclidean": "Euclid"}

# Languages for which the engine has both a stemmer and stop words.
LANGUAGES = {
    "ar": "Arabic",
    "da": "Danish",
    "de": "German",
    "el": "Greek",
    "en": "English",
    "es": "Spanish",
    "fi": "Finnish",
    "fr": "French",
    "hu": "Hungarian",
    "it": "Italian",
    "nl": "Dutch",
    "no": "Norwegian",
    "pt": "Portuguese",
    "ro": "Romanian",
    "ru": "Russian",
    "sv": "Swedish",
    "tr": "Turkish",
}

LOCK = "lock"  # name of the lock file
FLUSH_EVERY = 10_000  # points; what is not flushed is read from the log again when the shard is opened

OPENING = threading.RLock()  # held while shards are opened and closed
_shards: dict[tuple[int, Path], "SharedShard"] = {}


class IndexInUseError(DocumentStoreError):
    """Another process has the index folder open."""


class SharedShard:
    """
    An open shard and what its users have to share: the write lock, the order of writes, the range indexes.

    Reads need no lock. Get one from `acquire`, and `release` it once.
    """

    def __init__(self, folder: Path, language: str | None) -> None:
        """
        Open the shard of a folder; create what is missing of the two.

        :param folder: The folder.
        :param language: Language of the texts, for a new shard.
        :raises IndexInUseError: If another process has it open.
        :raises DocumentStoreError: If the folder cannot be opened.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.process = os.getpid()
        self.users = 0
        self.write_lock = threading.RLock()
        self.order = count(time_ns())
        self._unflushed = 0
        self._lock = FileLock(folder / LOCK, thread_local=False)
        try:
            self._lock.acquire(blocking=False)
        except Timeout:
            raise IndexInUseError(
                f"The index folder '{folder}' is open in another process, and only one at a time can have it open. "
                "Close it there, or let one process serve all the others: `adv-retrieval serve`."
            ) from None
        try:
            self._open(language)
        except Exception as error:
            self._lock.release()
            raise DocumentStoreError(f"The index folder '{folder}' cannot be opened: {error}") from error

    def _open(self, language: str | None) -> None:
        if not (self.folder / "shard").exists():
            _create(self.folder, language)
        self.engine = engine.EdgeShard.load(str(self.folder / "shard"))
        self._indexed = set(self.engine.info().payload_schema)
        config = json.loads((self.folder / "shard" / "edge_config.json").read_text("utf-8"))
        dense = config["vectors"].get(DENSE)
        self.embedding_dim: int | None = dense and dense["size"]
        self.similarity = dense and next(ours for ours, its in SIMILARITIES.items() if its == dense["distance"])

    def recreate(self, language: str | None) -> None:
        """
        Replace the shard by an empty one, holding the write lock.

        :param language: Language of the texts.
        """
        self.engine.close()
        shutil.rmtree(self.folder / "shard.unfinished", ignore_errors=True)
        (self.folder / "shard").rename(self.folder / "shard.unfinished")
        self._open(language)

    def check(self, **parameters: int | str | None) -> None:
        """
        Check a store's parameters against what the folder holds already.

        :param parameters: Values of `embedding_dim` and `similarity`.
        :raises ValueError: If one of them is another one in the folder.
        """
        for name, value in parameters.items():
            present = getattr(self, name)
            if present is not None and value != present:
                raise ValueError(f"{name} is {present!r} in the index folder '{self.folder}', got {value!r}")

    def add_embeddings(self, embedding_dim: int, similarity: str) -> None:
        """
        Make room for embeddings where there is none yet.

        :param embedding_dim: Their dimension.
        :param similarity: How they are compared.
        :raises ValueError: If the folder has room for others.
        """
        with self.write_lock:
            self.check(embedding_dim=embedding_dim, similarity=similarity)
            if self.embedding_dim is None:
                distance = getattr(engine.Distance, SIMILARITIES[similarity])
                self.update(engine.UpdateOperation.create_dense_vector(DENSE, embedding_dim, distance))
                self.embedding_dim, self.similarity = embedding_dim, similarity

    def index_range(self, key: str) -> None:
        """
        Index the numbers under a payload key where they are not yet; it costs about as much as one scan.

        :param key: The payload key.
        """
        if key not in self._indexed:
            with self.write_lock:
                self.update(engine.UpdateOperation.create_field_index(key, engine.PayloadSchemaType.Float))
                self._indexed.add(key)

    def update(self, operation: engine.UpdateOperation, points: int = 0) -> None:
        """
        Change the shard, holding the write lock.

        :param operation: The change.
        :param points: How many points it writes.
        """
        self.engine.update(operation)
        self._unflushed += points
        if self._unflushed >= FLUSH_EVERY:
            self.engine.flush()
            self._unflushed = 0

    def any(self, matching: engine.Filter) -> bool:
        """
        Tell whether any point matches.

        :param matching: What to match.
        :returns: Whether there is one.
        """
        request = engine.ScrollRequest(limit=1, filter=matching, with_payload=False, with_vector=False)
        return bool(self.engine.scroll(request)[0])

    def release(self) -> None:
        """Give the shard back; the last user closes it."""
        if self.process != os.getpid():  # forked: the engine's threads did not come along, so leave it alone
            return
        with OPENING:
            self.users -= 1
            if not self.users:
                if _shards.get((self.process, self.folder)) is self:
                    del _shards[self.process, self.folder]
                self.engine.close()
                self._lock.release()


def acquire(path: str, language: str | None) -> SharedShard:
    """
    Get the shard of a folder, which is opened once per process.

    :param path: The folder; it is created if missing.
    :param language: Language of the texts, for a new shard.
    :returns: The shard, to be released once.
    :raises IndexInUseError: If another process has it open.
    :raises DocumentStoreError: If the folder cannot be opened.
    """
    folder = Path(os.path.realpath(path))
    key = (os.getpid(), folder)
    with OPENING:
        # A folder that was deleted may still be open, in a store that waits to be collected.
        if key not in _shards or not (folder / LOCK).exists():
            _shards[key] = SharedShard(folder, language)
        shard = _shards[key]
        shard.users += 1
        return shard


def _create(folder: Path, language: str | None) -> None:
    unfinished = folder / "shard.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    # The engine wants at least one vector; the dense one is added when its dimension is known.
    config = engine.EdgeConfig(sparse_vectors={"unused": engine.EdgeSparseVectorParams()})
    shard = engine.EdgeShard.create(str(unfinished), config)
    name = LANGUAGES[language] if language else ""
    # The text index of the content ranks by BM25; that of the facts answers filters.
    indexes = {
        # Not the tokenizer "multilingual": it drops numbers.
        CONTENT: engine.TextIndexParams(
            tokenizer=engine.TokenizerType.Word,
            lowercase=True,
            ascii_folding=True,
            stopwords=getattr(engine.Language, name) if name else None,
            stemmer=engine.SnowballParams(getattr(engine.SnowballLanguage, name)) if name else None,
            scoring=True,
        ),
        FACTS: engine.TextIndexParams(tokenizer=engine.TokenizerType.Whitespace, lowercase=False),
    }
    for field, params in indexes.items():
        shard.update(engine.UpdateOperation.create_field_index(field, params))
    shard.close()
    unfinished.rename(folder / "shard")
