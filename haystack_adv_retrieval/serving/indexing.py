"""Adding what callers send to the index."""

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import PurePosixPath
from typing import Any

from fastapi import HTTPException
from haystack import Document
from haystack.dataclasses import ByteStream

from haystack_adv_retrieval.components.file_reader import FileReader
from haystack_adv_retrieval.components.section_summarizer import SectionSummarizer
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.document_stores.qdrant_edge_document_store import QdrantEdgeDocumentStore
from haystack_adv_retrieval.indexing.documents import index_documents_async
from haystack_adv_retrieval.indexing.maintenance import prune
from haystack_adv_retrieval.indexing.run import TWICE
from haystack_adv_retrieval.serving.limits import (
    INDEXING_TIMEOUT,
    MAX_FILES,
    MAX_TEXTS,
    SUMMARIES_VARIABLE,
    WENT_WRONG,
    check_encodable,
    discreet,
)
from haystack_adv_retrieval.serving.retrieval import served_pipeline


class Indexing:
    """
    Adds what callers send to the index; runs take turns.

    What a server that was killed had begun to index is removed first, so that nobody finds half a source. Summaries of
    sections are made as the environment variable `ADV_RETRIEVAL_SUMMARIES` says: "extractive", "llm", or none.
    """

    def __init__(self) -> None:
        pipeline = served_pipeline("indexing")
        self._reader: FileReader = pipeline.get_component("reader")  # type: ignore[assignment]
        self._splitter: Any = pipeline.get_component("splitter")
        self._embedder: Any = pipeline.get_component("embedder")
        self._store: Any = pipeline.get_component("writer").document_store  # type: ignore[attr-defined]
        method: Any = os.environ.get(SUMMARIES_VARIABLE)
        self._summarizer = SectionSummarizer(method=method, document_store=self._store) if method else None
        if isinstance(self._store, QdrantEdgeDocumentStore):  # in other stores another process may be at work
            prune(self._store, unfinished_only=True)

    async def index_files(self, files: Sequence[tuple[str, bytes]], meta: str = "{}") -> dict[str, Any]:
        """
        Index files.

        :param files: Name and content of each. The last part of the name becomes the `source_id`.
        :param meta: Metadata for all of them, as a JSON object.
        :returns: The index report.
        :raises HTTPException: 422 for what the caller can mend, with the reason for each file if none could be indexed;
            504 after `INDEXING_TIMEOUT` seconds, 500 for what else fails.
        """
        with discreet():
            try:
                shared = json.loads(meta)
            except ValueError:
                shared = None
            if not isinstance(shared, dict):
                raise HTTPException(422, "meta must be a JSON object")
            check_encodable(shared, "meta")
            _check_number("files", files, MAX_FILES)
            streams: list[Any] = []
            for name, data in files:
                safe = PurePosixPath(name.replace("\\", "/")).name
                if safe in {"", ".", ".."}:
                    raise HTTPException(422, f"{name!r} is no name of a file")
                streams.append(ByteStream(data=data, meta={chunks.SOURCE_ID: safe, "file_path": safe}))
            read = await self._reader.run_async(sources=streams, meta=[shared] * len(streams))
            failures = {failure["source"]: failure["reason"] for failure in read["failed"]}
            return await self._index(read["documents"], failures)

    async def index_texts(self, texts: list[dict[str, Any]]) -> dict[str, Any]:
        """
        Index texts.

        :param texts: The `source_id`, `content` and `meta` of each.
        :returns: The index report.
        :raises HTTPException: As `index_files`.
        """
        with discreet():
            _check_number("texts", texts, MAX_TEXTS)
            check_encodable(texts, "texts")
            documents = [
                Document(content=text["content"], meta=text["meta"] | {chunks.SOURCE_ID: text["source_id"]})
                for text in texts
            ]
            return await self._index(documents, {})

    async def _index(self, documents: Sequence[Document], failures: dict[str, str]) -> dict[str, Any]:
        run = index_documents_async(documents, self._store, self._embedder, self._splitter, summarizer=self._summarizer)
        try:
            report = await asyncio.wait_for(run, INDEXING_TIMEOUT)
        except TimeoutError:
            raise HTTPException(504, f"Indexing took longer than {INDEXING_TIMEOUT:g} seconds; send it again") from None
        failed = {source: TWICE if reason == TWICE else WENT_WRONG for source, reason in report.failures.items()}
        report.failures = failures | failed
        if report.failures and not (report.added or report.updated or report.skipped):
            raise HTTPException(500 if failed else 422, {"failures": report.failures})
        return asdict(report)


def _check_number(name: str, items: Sequence[Any], most: int) -> None:
    if not 1 <= len(items) <= most:
        raise HTTPException(422, f"{name} must be 1 to {most}, got {len(items)}")
