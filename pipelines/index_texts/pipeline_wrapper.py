from typing import Any

from fastapi import HTTPException
from hayhooks import BasePipelineWrapper
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from haystack_adv_retrieval.serving.indexing import Indexing


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
        """
        Add texts to the index, or replace them.

        :param texts: Each with a source_id that stays the same when the text changes, its content, and metadata.
        :returns: The index report.
        """
        try:
            checked = TypeAdapter(list[Text]).validate_python(texts)  # as a tool it is called with anything
        except ValidationError as error:
            raise HTTPException(422, error.errors(include_url=False, include_context=False)) from None
        return await self.indexing.index_texts([text.model_dump() for text in checked])
