from typing import Any

from hayhooks import BasePipelineWrapper

from haystack_adv_retrieval.pipelines import DEFAULT_PATTERN
from haystack_adv_retrieval.serving.retrieval import Retrieval, plain


class PipelineWrapper(BasePipelineWrapper):
    """Search with any pattern."""

    def setup(self) -> None:
        """Load the default pattern and its model before the first request."""
        self.retrieval = Retrieval()
        self.pipeline = self.retrieval.pipeline(DEFAULT_PATTERN)
        self.pipeline.warm_up()

    async def run_api_async(
        self,
        query: str,
        pattern: str = DEFAULT_PATTERN,
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
        max_length: int | None = None,
    ) -> dict[str, Any]:
        """
        Find passages in the indexed documents that answer a question.

        :param query: The question, in words.
        :param pattern: What comes back: packed (the best evidence under a budget), parent (whole sections), window
            (sentences with their neighbours), merge (sections where several hits meet), summary (sections whose
            summaries fit), self-query (constraints said in words become a filter), compressed (only the sentences that
            answer), reranked and full (ordered by a chat model).
        :param filters: A Haystack filter on metadata, such as {"field": "meta.year", "operator": "==", "value": 2024}.
        :param top_k: How many passages at most.
        :param max_length: Characters of all passages together at most.
        :returns: The documents, best first, with source, span, score and the matched text.
        """
        documents = await self.retrieval.retrieve(query, pattern, filters, top_k, max_length)
        return {"documents": [plain(document) for document in documents]}
