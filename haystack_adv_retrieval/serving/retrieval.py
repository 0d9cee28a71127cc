"""Searching with any pattern, for many callers at a time."""

import asyncio
import json
from pathlib import Path
from typing import Any

from fastapi import HTTPException
from hayhooks.settings import settings
from haystack import Document, Pipeline
from haystack.core.errors import PipelineRuntimeError
from haystack.errors import FilterError

from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.llm.chat_model import NO_KEY
from haystack_adv_retrieval.pipelines import (
    DEFAULT_PATTERN,
    PATTERNS,
    last_documents,
    load_pipeline,
    run_pipeline_async,
)
from haystack_adv_retrieval.serving.limits import (
    MAX_LENGTH,
    MAX_TOP_K,
    TIMEOUT,
    check_encodable,
    check_query,
    discreet,
)


def served_pipeline(name: str) -> Pipeline:
    """
    Load a pipeline of the folder that is served or, where it holds none of that name, of the package.

    :param name: Its name.
    :returns: The pipeline.
    """
    file = Path(settings.pipelines_dir) / f"{name}.yml"
    return load_pipeline(file if file.is_file() else name)


class Retrieval:
    """
    The patterns over one index, for many callers at a time.

    Pipelines are loaded when first used; they share the index and the embedding model.
    """

    def __init__(self) -> None:
        self._pipelines: dict[str, Pipeline] = {}

    def pipeline(self, pattern: str) -> Pipeline:
        """
        Load the pipeline of a pattern, once.

        :param pattern: One of `PATTERNS`.
        :returns: The pipeline.
        :raises HTTPException: 422, if there is no such pattern.
        """
        if pattern not in PATTERNS:
            raise HTTPException(422, f"pattern must be one of {', '.join(PATTERNS)}, got {pattern!r}")
        if pattern not in self._pipelines:
            self._pipelines[pattern] = served_pipeline(PATTERNS[pattern])
        return self._pipelines[pattern]

    async def retrieve(
        self,
        query: str,
        pattern: str = DEFAULT_PATTERN,
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
        max_length: int | None = None,
    ) -> list[Document]:
        """
        Find the documents for a query.

        :param query: The query.
        :param pattern: One of `PATTERNS`.
        :param filters: A Haystack filter.
        :param top_k: How many documents to return at most.
        :param max_length: Budget over all documents together, in characters.
        :returns: The documents, best first.
        :raises HTTPException: 422 for what the caller can mend, 503 if the pattern needs a chat model and none is
            configured, 504 after `TIMEOUT` seconds, 500 for what else fails.
        """
        check_query(query)
        for name, value, most in (("top_k", top_k, MAX_TOP_K), ("max_length", max_length, MAX_LENGTH)):
            if value is not None and not 1 <= value <= most:
                raise HTTPException(422, f"{name} must be from 1 to {most}, got {value}")
        check_encodable([query, filters], "query and filters")
        with discreet():
            pipeline = self.pipeline(pattern)
            run = run_pipeline_async(pipeline, query, filters=filters, top_k=top_k, max_length=max_length)
            try:
                return last_documents(pipeline, await asyncio.wait_for(run, TIMEOUT))
            except TimeoutError:
                raise HTTPException(504, f"The search took longer than {TIMEOUT:g} seconds") from None
            except PipelineRuntimeError as error:
                if isinstance(error.__cause__, FilterError):
                    raise HTTPException(422, f"filters: {error.__cause__}") from None
                raise
            except ValueError as error:
                if str(error) == NO_KEY:
                    raise HTTPException(503, f"The pattern {pattern!r} needs a chat model. {NO_KEY}") from None
                raise HTTPException(422, str(error)) from None  # an input that the pattern has no use for


def plain(document: Document) -> dict[str, Any]:
    """
    Make a document ready for JSON.

    :param document: A result.
    :returns: `content`, `score`, `source`, `span`, `matched` (the text of the hits inside it) and all of its metadata.
    """
    span, content = chunks.span_of(document.meta), document.content or ""
    matched = document.meta.get(chunks.MATCHED_SPANS, [])
    is_slice = span is not None and span.length == len(content)
    return {
        "id": document.id,
        "content": content,
        "score": document.score,
        "source": document.meta.get(chunks.SOURCE_ID),
        "span": list(span) if span else None,
        "matched": [content[start - span.start : end - span.start] for start, end, _ in matched]
        if span and is_slice
        else [],
        "meta": json.loads(json.dumps(document.meta, default=str), parse_constant=lambda _: None),
    }
