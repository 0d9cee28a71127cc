"""Answering questions from the index, with citations."""

import asyncio
import os
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

from fastapi import HTTPException
from haystack import Document, logging
from haystack.dataclasses import ChatMessage, StreamingChunk

from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.llm.asking import helper_model
from haystack_adv_retrieval.serving.limits import MAX_QUERY_LENGTH, TIMEOUT
from haystack_adv_retrieval.serving.retrieval import Retrieval

logger = logging.getLogger(__name__)

PASSAGES = "these are the passages that answer the question best:"
NO_MODEL_NOTE = (
    "No chat model is configured (set OPENAI_API_KEY, and OPENAI_BASE_URL for a local server), so " + PASSAGES
)
NOTHING = "None, as nothing was found in the index."
FAILED_NOTE = "The chat model failed; " + PASSAGES
ANSWER_PROMPT = """Answer the question from the numbered passages alone. Put the number of the passage that you rely \
on behind each statement, like this: [1]. If the passages do not hold the answer, say so.

{passages}

Question: {question}"""


class Chat:
    """Answers questions from the index, with citations."""

    def __init__(self, retrieval: Retrieval | None = None) -> None:
        self._retrieval = retrieval or Retrieval()

    async def answer(self, messages: Sequence[Mapping[str, Any]]) -> AsyncGenerator[str, None]:
        """
        Search for the last question of a conversation, and start to answer it.

        :param messages: The conversation, in OpenAI's form.
        :returns: The answer, piece by piece, and then the passages that it cites. Where there is no chat model, or it
            fails, the passages themselves, with a note.
        :raises HTTPException: As `Retrieval.retrieve`.
        """
        history = [(str(message.get("role")), _text(message)) for message in messages]
        while history and history[-1][0] != "user":
            history.pop()
        if not history:
            raise HTTPException(422, "messages must hold a question of the user")
        _, question = history.pop()
        has_model = bool(os.environ.get("OPENAI_API_KEY"))
        pattern = "full" if has_model else "compressed"
        documents = await self._retrieval.retrieve(question[:MAX_QUERY_LENGTH], pattern=pattern)
        passages = "\n\n".join(f"[{n}] {document.content}" for n, document in enumerate(documents, start=1))
        listed = f"{passages}\n\n{_sources(documents, range(1, len(documents) + 1))}" if documents else NOTHING
        prompt = ChatMessage.from_user(ANSWER_PROMPT.format(passages=passages, question=question))
        return _pieces([*_said(history), prompt] if has_model else None, documents, listed)


async def _pieces(
    messages: list[ChatMessage] | None, documents: Sequence[Document], passages: str
) -> AsyncGenerator[str, None]:
    if messages is None:
        yield f"{NO_MODEL_NOTE}\n\n{passages}"
        return
    reply = ""
    try:
        async for piece in _stream(messages):
            reply += piece
            yield piece
    except Exception as error:
        logger.exception("The chat model failed: {error}", error=error)
        yield "\n\n" * bool(reply) + f"{FAILED_NOTE}\n\n{passages}"
        return
    cited = sorted({int(number) for number in re.findall(r"\[(\d+)\]", reply) if 0 < int(number) <= len(documents)})
    if cited:
        yield "\n\n" + _sources(documents, cited)


async def _stream(messages: list[ChatMessage]) -> AsyncGenerator[str, None]:
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


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if part.get("type") == "text")
    return str(content)


def _said(history: Sequence[tuple[str, str]]) -> list[ChatMessage]:
    make: dict[str, Callable[[str], ChatMessage]] = {
        "user": ChatMessage.from_user,
        "assistant": ChatMessage.from_assistant,
    }
    return [make[role](text) for role, text in history if role in make]


def _sources(documents: Sequence[Document], numbers: Sequence[int]) -> str:
    lines = ["Sources:"]
    for number in numbers:
        meta = documents[number - 1].meta
        spans = meta.get(chunks.KEPT_SPANS) or [[meta.get(chunks.START), meta.get(chunks.END)]]
        places = ", ".join(f"{start}-{end}" for start, end in spans)
        name = meta.get(chunks.SOURCE_ID)
        lines.append(f"[{number}] {name}, page {meta.get(chunks.PAGE, 1)}, characters {places}")
    return "\n".join(lines)
