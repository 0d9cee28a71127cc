from typing import Any

from hayhooks import BasePipelineWrapper

from haystack_adv_retrieval.serving import Retrieval, plain


class PipelineWrapper(BasePipelineWrapper):
    """Search with any pattern."""

    def setup(self) -> None:
        """Load the default pattern and its model before the first request."""
        self.retrieval = Retrieval()
        self.pipeline = self.retrieval.pipeline("parent")
        self.pipeline.warm_up()

    async def run_api_async(
        self,
        query: str,
        pattern: str = "parent",
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
        max_length: int | None = None,
    ) -> dict[str, Any]:
        """
        Find passages in the indexed documents that answer a question.

        Patterns: parent (whole sections), window (sentences with their neighbours), merge (sections where several hits
        meet), packed (the best evidence under a budget), summary, self-query (constraints said in words), compressed,
        reranked, full. Filters are Haystack's. Returns documents with source, span, score and the matched text.
        """
        documents = await self.retrieval.retrieve(query, pattern, filters, top_k, max_length)
        return {"documents": [plain(document) for document in documents]}
