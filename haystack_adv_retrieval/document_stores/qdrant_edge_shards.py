"""
The engine's shards: one open shard per folder and process, shared by everyone who asks for that folder.

The engine writes ahead to a log, so what an update returned from survives the process. A folder holds the shard itself
in `shard` and a lock file; a new shard is built beside it and moved into place, so an interrupted start leaves nothing
that cannot be opened.
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

Similarity = Literal["cosine", "dot_product", "euclidean"]
SIMILARITIES: dict[str, engine.Distance] = {
    "cosine": engine.Distance.Cosine,
    "dot_product": engine.Distance.Dot,
    "euclidean": engine.Distance.Euclid,
}
_NAMES = {"Cosine": "cosine", "Dot": "dot_product", "Euclid": "euclidean"}  # as the engine spells them in its files
CONTENT, FACTS, DENSE = "content", "facts", "dense"

# Created with every shard. The text index of the content ranks by BM25; that of the facts answers filters.
INDEXES = {
    CONTENT: engine.TextIndexParams(tokenizer=engine.TokenizerType.Multilingual, lowercase=True, scoring=True),
    FACTS: engine.TextIndexParams(tokenizer=engine.TokenizerType.Whitespace, lowercase=False),
}

_shards: dict[tuple[int, str], "SharedShard"] = {}
_registry_lock = threading.RLock()


class IndexInUseError(DocumentStoreError):
    """Another process has the folder open."""


class SharedShard:
    """
    An open shard with what its users have to share: a write lock, the order of writes, the indexes for ranges.

    Reads need no lock. Get one from `acquire`, and `release` it once.
    """

    def __init__(self, folder: Path) -> None:
        """
        Open the shard of a folder, and create both where they are missing.

        :param folder: The folder.
        :raises IndexInUseError: If another process has it open.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.process = os.getpid()
        self.users = 0
        self.write_lock = threading.RLock()
        self.order = count(time_ns())
        self._lock = FileLock(folder / "lock", thread_local=False)
        try:
            self._lock.acquire(blocking=False)
        except Timeout:
            raise IndexInUseError(
                f"The index folder '{folder}' is open in another process, and only one at a time can have it open. "
                f"Close it there, or let one process serve all with `adv-retrieval serve`."
            ) from None
        try:
            if not (folder / "shard").exists():
                _create(folder)
            self.engine = engine.EdgeShard.load(str(folder / "shard"))
            self._indexed = set(self.engine.info().payload_schema)
            self._vectors = self._read_vectors()
        except BaseException:
            self._lock.release()
            raise

    def _read_vectors(self) -> tuple[int, str] | None:
        config = json.loads((self.folder / "shard" / "edge_config.json").read_text("utf-8"))
        dense = config.get("vectors", {}).get(DENSE)
        return (dense["size"], _NAMES[dense["distance"]]) if dense else None

    def check(self, dimension: int | None, similarity: str) -> None:
        """
        Check that a store's parameters are those of the folder.

        :param dimension: Dimension of the embeddings; None: any.
        :param similarity: The similarity.
        :raises ValueError: If they are not.
        """
        if not self._vectors:
            return
        if dimension is not None and dimension != self._vectors[0]:
            raise ValueError(
                f"embedding_dim is {self._vectors[0]} in the index folder '{self.folder}', got {dimension}"
            )
        if similarity != self._vectors[1]:
            raise ValueError(
                f"similarity is {self._vectors[1]!r} in the index folder '{self.folder}', got {similarity!r}"
            )

    def fits(self, dimension: int) -> bool:
        """
        Tell whether there are embeddings to compare one with.

        :param dimension: Dimension of the embedding.
        :raises ValueError: If those in the folder have another dimension.
        """
        self.check(dimension, self._vectors[1] if self._vectors else "")
        return self._vectors is not None

    def fix_dimension(self, dimension: int, similarity: str) -> None:
        """
        Make room for embeddings, or check that the room there is fits.

        :param dimension: Dimension of the embeddings.
        :param similarity: The similarity.
        :raises ValueError: If those in the folder are of another kind.
        """
        if self._vectors:
            self.check(dimension, similarity)
            return
        self.engine.update(engine.UpdateOperation.create_dense_vector(DENSE, dimension, SIMILARITIES[similarity]))
        self._vectors = (dimension, similarity)

    def index_range(self, key: str) -> None:
        """
        Index the numbers under a payload key, if they are not yet; this costs about one scan of the shard.

        :param key: The payload key.
        """
        if key not in self._indexed:
            with self.write_lock:
                self.engine.update(engine.UpdateOperation.create_field_index(key, engine.PayloadSchemaType.Float))
                self._indexed.add(key)

    def release(self) -> None:
        """Give the shard back; the last user closes it."""
        if self.process != os.getpid():  # a forked child has none of the engine's threads
            return
        with _registry_lock:
            self.users -= 1
            if not self.users:
                del _shards[self.process, str(self.folder)]
                self.engine.close()
                self._lock.release()


def acquire(path: str) -> SharedShard:
    """
    Get the shard of a folder, opened at most once per process.

    :param path: The folder; it is created if missing.
    :returns: The shard, to be released once.
    :raises IndexInUseError: If another process has it open.
    """
    folder = Path(os.path.realpath(path))
    with _registry_lock:
        shard = _shards.get((os.getpid(), str(folder)))
        if shard is None:
            shard = _shards[os.getpid(), str(folder)] = SharedShard(folder)
        shard.users += 1
        return shard


def _create(folder: Path) -> None:
    unfinished = folder / "shard.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    # The engine wants at least one vector; the dense one is added when its dimension is known.
    config = engine.EdgeConfig(sparse_vectors={"unused": engine.EdgeSparseVectorParams()})
    shard = engine.EdgeShard.create(str(unfinished), config)
    for field, params in INDEXES.items():
        shard.update(engine.UpdateOperation.create_field_index(field, params))
    shard.flush()
    shard.close()
    unfinished.rename(folder / "shard")
