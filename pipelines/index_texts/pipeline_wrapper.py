from typing import Any

from hayhooks import BasePipelineWrapper
from haystack import Document
from pydantic import BaseModel, Field

from haystack_adv_retrieval.serving import Indexing


class Text(BaseModel):
    """A text to index; `source_id` stays the same when the text changes."""

    source_id: str = Field(min_length=1)
    content: str
    meta: dict[str, Any] = {}


class PipelineWrapper(BasePipelineWrapper):
    """Index texts."""

    def setup(self) -> None:
        """Load the indexing pipeline."""
        self.indexing = Indexing()

    async def run_api_async(self, texts: list[Text]) -> dict[str, Any]:
        """Add texts to the index, or replace them: each with a source_id, its content, and metadata."""
        parsed = [Text.model_validate(text) for text in texts]
        documents = [Document(content=text.content, meta=text.meta | {"source_id": text.source_id}) for text in parsed]
        return await self.indexing.index_documents(documents)
