"""Serving the pipelines with Hayhooks: what the wrappers in `pipelines/` do, and a server that is safe to start."""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any

from fastapi import FastAPI, HTTPException
from haystack import Document, Pipeline
from haystack.core.errors import PipelineRuntimeError
from haystack.dataclasses import ByteStream, ChatMessage, StreamingChunk
from haystack.errors import FilterError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from haystack_adv_retrieval.components.file_reader import FileReader
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.indexing.documents import index_documents_async
from haystack_adv_retrieval.llm.asking import helper_model
from haystack_adv_retrieval.pipelines import PATTERNS, last_documents, load_pipeline, pipeline_path, run_pipeline_async

MAX_QUERY_LENGTH = 4_000  # characters
MAX_TOP_K = 100
MAX_LENGTH = 100_000  # characters of all results together
MAX_REQUEST_BYTES = 50_000_000
MAX_FILES = 100
TIMEOUT = float(os.environ.get("ADV_RETRIEVAL_TIMEOUT", "120"))  # seconds

NO_MODEL_NOTE = (
    "No chat model is configured (set OPENAI_API_KEY, or OPENAI_BASE_URL for a local server), so these are the "
    "passages that answer the question best:"
)
ANSWER_PROMPT = """Answer the question from the numbered passages alone. Put the number of the passage that you rely \
on behind each statement, like this: [1]. If the passages do not hold the answer, say so.

{passages}

Question: {question}"""


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
            self._pipelines[pattern] = load_pipeline(pipeline_path(pattern))
        return self._pipelines[pattern]

    async def retrieve(
        self,
        query: str,
        pattern: str = "parent",
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
        :raises HTTPException: 422 for what the caller can mend, 504 after `TIMEOUT` seconds.
        """
        if not query.strip() or len(query) > MAX_QUERY_LENGTH:
            raise HTTPException(422, f"query must have 1 to {MAX_QUERY_LENGTH} characters, got {len(query)}")
        for name, value, most in (("top_k", top_k, MAX_TOP_K), ("max_length", max_length, MAX_LENGTH)):
            if value is not None and not 1 <= value <= most:
                raise HTTPException(422, f"{name} must be from 1 to {most}, got {value}")
        pipeline = self.pipeline(pattern)
        run = run_pipeline_async(pipeline, query, filters=filters, top_k=top_k, max_length=max_length)
        try:
            return last_documents(pipeline, await asyncio.wait_for(run, TIMEOUT))
        except TimeoutError:
            raise HTTPException(504, f"The search took longer than {TIMEOUT:g} seconds") from None
        except ValueError as error:  # an input that this pattern has no use for
            raise HTTPException(422, str(error)) from None
        except PipelineRuntimeError as error:
            if isinstance(error.__cause__, FilterError):
                raise HTTPException(422, f"filters: {error.__cause__}") from None
            raise


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
        "meta": json.loads(json.dumps(document.meta, default=str)),
    }


class Indexing:
    """Adds what callers send to the index; runs take turns."""

    def __init__(self) -> None:
        pipeline = load_pipeline("indexing")
        self._reader: FileReader = pipeline.get_component("reader")  # type: ignore[assignment]
        self._splitter: Any = pipeline.get_component("splitter")
        self._embedder: Any = pipeline.get_component("embedder")
        self._writer: Any = pipeline.get_component("writer")

    async def index_files(self, files: Sequence[tuple[str, bytes]], meta: Mapping[str, Any]) -> dict[str, Any]:
        """
        Index files.

        :param files: Name and content of each. The last part of the name becomes the `source_id`.
        :param meta: Metadata for all of them.
        :returns: The index report.
        :raises HTTPException: 422, with the reasons by file, if none of them could be read.
        """
        if not 1 <= len(files) <= MAX_FILES:
            raise HTTPException(422, f"files must be 1 to {MAX_FILES}, got {len(files)}")
        streams: list[Any] = []
        for name, data in files:
            safe = PurePosixPath(name.replace("\\", "/")).name
            if safe in {"", ".", ".."}:
                raise HTTPException(422, f"{name!r} is no name of a file")
            streams.append(ByteStream(data=data, meta={chunks.SOURCE_ID: safe, "file_path": safe}))
        read = await self._reader.run_async(sources=streams, meta=[dict(meta)] * len(streams))
        failed = {failure["source"]: failure["reason"] for failure in read["failed"]}
        if not read["documents"]:
            raise HTTPException(422, {"failures": failed})
        report = await self.index_documents(read["documents"])
        report["failures"] |= failed
        return report

    async def index_documents(self, documents: Sequence[Document]) -> dict[str, Any]:
        """
        Index documents.

        :param documents: The sources.
        :returns: The index report.
        """
        report = await index_documents_async(documents, self._writer.document_store, self._embedder, self._splitter)
        return asdict(report)


class Chat:
    """Answers questions from the index, with citations."""

    def __init__(self, retrieval: Retrieval | None = None) -> None:
        self._retrieval = retrieval or Retrieval()

    async def answer(self, messages: Sequence[Mapping[str, Any]]) -> AsyncIterator[str]:
        """
        Answer the last question of a conversation.

        :param messages: The conversation, in OpenAI's form.
        :returns: The answer, piece by piece, and then the passages that it cites. Without a chat model, the passages
            themselves, with a note.
        :raises HTTPException: As `Retrieval.retrieve`.
        """
        question = _last_question(messages)
        has_model = bool(os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL"))
        documents = await self._retrieval.retrieve(question, pattern="full" if has_model else "compressed")
        passages = "\n\n".join(f"[{n}] {document.content}" for n, document in enumerate(documents, start=1))
        if not has_model:
            yield f"{NO_MODEL_NOTE}\n\n{passages}\n\n{_sources(documents, range(1, len(documents) + 1))}"
            return
        prompt = ANSWER_PROMPT.format(passages=passages, question=question)
        reply = ""
        async for piece in _stream([*_history(messages), ChatMessage.from_user(prompt)]):
            reply += piece
            yield piece
        cited = sorted({int(number) for number in re.findall(r"\[(\d+)\]", reply) if 0 < int(number) <= len(documents)})
        yield "\n\n" + _sources(documents, cited) if cited else ""


def _last_question(messages: Sequence[Mapping[str, Any]]) -> str:
    for message in reversed(messages):
        if message.get("role") == "user":
            content = message.get("content") or ""
            if isinstance(content, list):
                content = "\n".join(part.get("text", "") for part in content if part.get("type") == "text")
            return str(content)
    raise HTTPException(422, "messages must hold a question of the user")


def _history(messages: Sequence[Mapping[str, Any]]) -> list[ChatMessage]:
    """Keep what was said before the last question."""
    said = [message for message in messages if message.get("role") in {"user", "assistant"}]
    make: dict[str, Callable[[str], ChatMessage]] = {
        "user": ChatMessage.from_user,
        "assistant": ChatMessage.from_assistant,
    }
    return [make[message["role"]](_last_question([{**message, "role": "user"}])) for message in said[:-1]]


async def _stream(messages: list[ChatMessage]) -> AsyncIterator[str]:
    """Pass the model's words on as they come."""
    pieces: asyncio.Queue[str | None] = asyncio.Queue()

    async def take(chunk: StreamingChunk) -> None:
        await pieces.put(chunk.content)

    async def generate() -> None:
        try:
            model: Any = helper_model()
            await model.run_async(messages=messages, streaming_callback=take)
        finally:
            await pieces.put(None)

    task = asyncio.create_task(asyncio.wait_for(generate(), TIMEOUT))
    try:
        while (piece := await pieces.get()) is not None:
            yield piece
        await task
    finally:
        task.cancel()


def _sources(documents: Sequence[Document], numbers: Sequence[int]) -> str:
    lines = ["Sources:"]
    for number in numbers:
        meta = documents[number - 1].meta
        spans = meta.get(chunks.KEPT_SPANS) or [[meta.get(chunks.START), meta.get(chunks.END)]]
        places = ", ".join(f"{start}-{end}" for start, end in spans)
        name = meta.get(chunks.SOURCE_ID)
        lines.append(f"[{number}] {name}, page {meta.get(chunks.PAGE, 1)}, characters {places}")
    return "\n".join(lines)


class Guard:
    """
    ASGI middleware that keeps a server within limits.

    Refuses requests that are too large, and the deployment of code; keeps what went wrong inside the server's log.
    """

    def __init__(self, app: ASGIApp, max_bytes: int = MAX_REQUEST_BYTES, allow_deploy: bool = False) -> None:
        self.app = app
        self.max_bytes = max_bytes
        self.allow_deploy = allow_deploy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = scope["path"].rstrip("/")
        if not self.allow_deploy and (path.startswith(("/deploy", "/undeploy"))):
            await _reply(send, 403, "Pipelines cannot be deployed here")
            return
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.max_bytes:
            await _reply(send, 413, f"A request must not be larger than {self.max_bytes} bytes")
            return
        received = 0
        hidden = False

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.max_bytes:
                raise HTTPException(413, f"A request must not be larger than {self.max_bytes} bytes")
            return message

        async def discreet(message: Message) -> None:
            nonlocal hidden
            if message["type"] == "http.response.start" and message["status"] == 500:
                hidden = True
                await _reply(send, 500, "Something went wrong; the server's log says what")
            elif not hidden:
                await send(message)

        await self.app(scope, limited, discreet)


async def _reply(send: Send, status: int, detail: str) -> None:
    body = json.dumps({"detail": detail}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def make_app(index: str | Path, pipelines: str | Path, *, allow_deploy: bool = False) -> FastAPI:
    """
    Make the server's application.

    Sets the environment that Hayhooks and the pipelines read, so it has to be called before Hayhooks is imported.

    :param index: Folder of the index.
    :param pipelines: Folder with pipelines: YAML files, and folders with a `pipeline_wrapper.py`.
    :param allow_deploy: Whether callers may deploy pipelines, which means to run code.
    :returns: The application. It refuses to start if one of the pipelines does not.
    """
    allowed = os.environ.get("HAYSTACK_DESERIALIZATION_ALLOWLIST", "").split(",")
    os.environ["HAYSTACK_DESERIALIZATION_ALLOWLIST"] = ",".join(filter(None, {*allowed, "haystack_adv_retrieval"}))
    os.environ["ADV_RETRIEVAL_INDEX"] = str(Path(index).resolve())
    os.environ["HAYHOOKS_PIPELINES_DIR"] = str(Path(pipelines).resolve())
    os.environ["HAYHOOKS_STARTUP_DEPLOY_STRATEGY"] = "sequential"  # wrappers and YAML race for lazy imports otherwise
    os.environ.setdefault("HAYHOOKS_CORS_ALLOW_ORIGINS", "[]")

    from hayhooks.server.app import create_app  # noqa: PLC0415 (reads the environment)
    from hayhooks.server.pipelines.registry import registry  # noqa: PLC0415

    app: FastAPI = create_app()
    start = app.router.lifespan_context
    wanted = {file.stem for file in Path(pipelines).glob("*.y*ml")}
    wanted |= {file.parent.name for file in Path(pipelines).glob("*/pipeline_wrapper.py")}

    @asynccontextmanager
    async def start_all(app: FastAPI) -> AsyncIterator[Any]:
        async with start(app) as state:
            if missing := wanted - set(registry.get_names()):
                raise RuntimeError(f"These pipelines did not start, see above: {', '.join(sorted(missing))}")
            yield state

    app.router.lifespan_context = start_all
    app.add_middleware(Guard, allow_deploy=allow_deploy)
    return app
