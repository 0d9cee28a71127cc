from dataclasses import replace
from typing import Any

from haystack import Document, component

from haystack_adv_retrieval.calls import Call, Parallel, Steps, drive, drive_async
from haystack_adv_retrieval.core.fusion import fused_scores
from haystack_adv_retrieval.wrapped_retriever import WrappedRetriever


@component
class RoutedRetriever(WrappedRetriever):
    """
    Searches details inside the routed sections, with a safety net over the whole index.

    A summary leaves things out, and what it leaves out hides its section. So a share of the results, however few of
    them are read, comes from a search without the route: both lists are fused by weighted reciprocal rank, and the
    net's best hit is never far from the top. With `safety_net=0` only the route counts.

    ### Usage example
    ```python
    from haystack import Document
    from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
    from haystack.document_stores.in_memory import InMemoryDocumentStore
    from haystack_adv_retrieval import RoutedRetriever

    store = InMemoryDocumentStore()
    store.write_documents([
        Document(content="Refunds take days.", meta={"parent_id": "a"}),
        Document(content="Refunds of deposits take weeks.", meta={"parent_id": "b"}),
    ])
    retriever = RoutedRetriever(InMemoryBM25Retriever(store), safety_net=0.3)
    route = {"field": "meta.parent_id", "operator": "==", "value": "b"}
    print([found.content for found in retriever.run(query="refunds", filters=route)["documents"]])
    ```
    """

    def __init__(self, retriever: Any, safety_net: float = 0.3) -> None:
        """
        Create a RoutedRetriever.

        :param retriever: Any component with an input `filters` and an output `documents`.
        :param safety_net: Weight of the search over the whole index, in [0, 1); the routed one has the rest. Where the
            two have nothing in common, this is its share of the results, at any depth.
        :raises ValueError: If a parameter does not fit.
        """
        if not 0 <= safety_net < 1:
            raise ValueError(f"safety_net must be in [0, 1), got {safety_net!r}")
        WrappedRetriever.__init__(self, retriever)  # the decorator makes a new class, which super() does not know
        self.safety_net = safety_net

    @component.output_types(documents=list[Document])
    def run(
        self,
        filters: dict[str, Any] | None = None,
        unrouted_filters: dict[str, Any] | None = None,
        **inputs: Any,
    ) -> dict[str, list[Document]]:
        """
        Search in the routed sections and beside them.

        :param filters: The route, from `SummaryRouter`.
        :param unrouted_filters: What holds without the route too, such as the user's own filter.
        :param inputs: The other inputs of the retriever.
        :returns: `documents`: as many as one run of the retriever gives, best first, with the fused score.
        """
        return {"documents": drive(self._search(filters, unrouted_filters, inputs))}

    @component.output_types(documents=list[Document])
    async def run_async(
        self,
        filters: dict[str, Any] | None = None,
        unrouted_filters: dict[str, Any] | None = None,
        **inputs: Any,
    ) -> dict[str, list[Document]]:
        """
        Search in the routed sections and beside them, asynchronously.

        :param filters: As for `run`.
        :param unrouted_filters: As for `run`.
        :param inputs: As for `run`.
        :returns: As `run`.
        """
        return {"documents": await drive_async(self._search(filters, unrouted_filters, inputs))}

    def _search(
        self, filters: dict[str, Any] | None, unrouted_filters: dict[str, Any] | None, inputs: dict[str, Any]
    ) -> Steps[list[Document]]:
        routes = [(1 - self.safety_net, filters or None)]
        if self.safety_net and filters != unrouted_filters:
            routes.append((self.safety_net, unrouted_filters or None))
        calls = [Call(self.retriever, "run", {**inputs, "filters": route}) for _, route in routes]
        found: list[list[Document]] = []
        for answer in (yield Parallel(calls, max_workers=2)):
            if isinstance(answer, BaseException):
                raise answer
            found.append(answer["documents"])
        if len(found) == 1:
            return found[0]
        documents = {document.id: document for ranked in reversed(found) for document in ranked}
        rankings = [[document.id for document in ranked] for ranked in found]
        scores = fused_scores(rankings, [weight for weight, _ in routes])
        best = sorted(scores, key=lambda each: -scores[each])[: max(map(len, found))]
        return [replace(documents[each], score=scores[each]) for each in best]
