"""FilteredRetriever: a filter that is relaxed when it leaves too little."""

from typing import Any

from haystack import Document, component, logging

from haystack_adv_retrieval.calls import Call, Steps, drive, drive_async
from haystack_adv_retrieval.parameters import check_at_least
from haystack_adv_retrieval.wrapped_retriever import WrappedRetriever

logger = logging.getLogger(__name__)


@component
class FilteredRetriever(WrappedRetriever):
    """
    Runs a retriever with a filter, and with looser ones if that leaves too few documents.

    A filter made from a question can be wrong, or right and too strict for what the store holds. Either would hide an
    answer that a plain search finds. So if fewer than `min_results` documents come back, or the store refuses the
    filter, the next of `relaxations` is tried. What the stricter filters found stays in front.

    The component takes whatever inputs the retriever takes. `filters` and `relaxations` come from
    `SelfQueryFilterBuilder`, which knows what must never be relaxed; without `relaxations` nothing is.

    ### Usage example
    ```python
    from haystack import Document
    from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
    from haystack.document_stores.in_memory import InMemoryDocumentStore
    from haystack_adv_retrieval import FilteredRetriever

    store = InMemoryDocumentStore()
    store.write_documents([Document(content="Margins rose.", meta={"year": 2022})])
    retriever = FilteredRetriever(InMemoryBM25Retriever(store))
    filters = {"field": "meta.year", "operator": "==", "value": 2023}
    result = retriever.run(query="margins", filters=filters, relaxations=[{}])
    assert result["documents"][0].content == "Margins rose."
    assert result["report"]["relaxed"] == 1
    ```
    """

    def __init__(self, retriever: Any, min_results: int = 1, *, raise_on_failure: bool = False) -> None:
        """
        Create the component.

        :param retriever: Any component with an input `filters` and an output `documents`.
        :param min_results: How many documents are enough.
        :param raise_on_failure: Whether to raise what the retriever raises, instead of trying the next filter.
        :raises ValueError: If the retriever is no such component, or `min_results` no whole number of at least 1.
        """
        check_at_least(1, min_results=min_results)
        WrappedRetriever.__init__(self, retriever)  # the decorator makes a new class, which super() does not know
        self.min_results = min_results
        self.raise_on_failure = raise_on_failure

    @component.output_types(documents=list[Document], report=dict[str, Any])
    def run(
        self,
        filters: dict[str, Any] | None = None,
        relaxations: list[dict[str, Any]] | None = None,
        **inputs: Any,
    ) -> dict[str, Any]:
        """
        Retrieve documents.

        :param filters: The filter to begin with.
        :param relaxations: Ever looser filters to go on with.
        :param inputs: The other inputs of the retriever.
        :returns:
            - `documents`: At most as many as one run of the retriever gave; what a stricter filter found comes first.
            - `report`: `filters` (the last that was used), `relaxed` (how many steps it was relaxed) and `attempts`
              (each with `filters`, the number of documents `found`, and `error`).
        :raises Exception: What the retriever raises, if no filter worked or with `raise_on_failure`.
        """
        return drive(self._retrieve(filters, relaxations, inputs))

    @component.output_types(documents=list[Document], report=dict[str, Any])
    async def run_async(
        self,
        filters: dict[str, Any] | None = None,
        relaxations: list[dict[str, Any]] | None = None,
        **inputs: Any,
    ) -> dict[str, Any]:
        """
        Retrieve documents, asynchronously.

        :param filters: As for `run`.
        :param relaxations: As for `run`.
        :param inputs: As for `run`.
        :returns: As for `run`.
        :raises Exception: As for `run`.
        """
        return await drive_async(self._retrieve(filters, relaxations, inputs))

    def _retrieve(
        self, filters: dict[str, Any] | None, relaxations: list[dict[str, Any]] | None, inputs: dict[str, Any]
    ) -> Steps[dict[str, Any]]:
        documents: dict[str, Document] = {}
        attempts: list[dict[str, Any]] = []
        failure: Exception | None = None
        for current in [filters or {}, *(relaxations or [])]:
            attempts.append({"filters": current, "found": None, "error": None})
            try:
                result = yield Call(self.retriever, "run", {**inputs, "filters": current or None})
            except Exception as error:
                if self.raise_on_failure:
                    raise
                failure = error
                attempts[-1]["error"] = str(error)
                logger.warning("The retriever refused a filter: {error}", error=error)
                continue
            attempts[-1]["found"] = len(result["documents"])
            for document in result["documents"]:
                documents.setdefault(document.id, document)
            if len(documents) >= self.min_results:
                break
        found = [attempt["found"] for attempt in attempts if attempt["found"] is not None]
        if failure and not found:
            raise failure
        report = {"filters": attempts[-1]["filters"], "relaxed": len(attempts) - 1, "attempts": attempts}
        return {"documents": list(documents.values())[: max(found)], "report": report}
