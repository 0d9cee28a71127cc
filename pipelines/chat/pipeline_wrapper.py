from collections.abc import AsyncGenerator
from typing import Any

from hayhooks import BasePipelineWrapper

from haystack_adv_retrieval.serving.chat import Chat


class PipelineWrapper(BasePipelineWrapper):
    """Chat about the indexed documents, with citations."""

    def setup(self) -> None:
        """Make the chat; its pipeline is loaded with the first question."""
        self.chat = Chat()

    async def run_chat_completion_async(
        self, model: str, messages: list[dict[str, Any]], body: dict[str, Any]
    ) -> str | AsyncGenerator[str, None]:
        """Answer the last question of a conversation from the indexed documents, and cite them."""
        pieces = await self.chat.answer(messages)
        return pieces if body.get("stream") else "".join([piece async for piece in pieces])

    async def close_async(self) -> None:
        """Close the chat model's connections."""
        await self.chat.close_async()
