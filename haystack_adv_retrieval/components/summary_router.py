from typing import Any

from haystack import Document, component, logging

from haystack_adv_retrieval.context.results import best_of_each, by_score
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.parameters import check_at_least
from haystack_adv_retrieval.stores import both

logger = logging.getLogger(__name__)

LEAVES = {"field": f"meta.{chunks.UNIT}", "operator": "==", "value": "leaf"}


@component
class SummaryRouter:
    """
    Turns hits among summaries into a filter for the search of details.

    Hierarchical indexing searches summaries first and then only the sections behind them: the search of details is
    smaller and meets less noise. The filter works with any retriever. `RoutedRetriever` adds a safety net for what a
    summary left out.

    ### Usage example
    ```python
    from haystack import Document
    from haystack_adv_retrieval import SummaryRouter

    summary = Document(
        content="Refunds take 14 days.",
        score=0.8,
        meta={"unit": "summary", "parent_id": "s1", "level": 1, "leaf_level": 2},
    )
    print(SummaryRouter().run(documents=[summary])["filters"])
    ```
    """

    def __init__(self, top_k: int = 3, *, min_score: float | None = None) -> None:
        """
        Create a SummaryRouter.

        :param top_k: How many sections to search at most; several summaries of one section count once.
        :param min_score: Summaries with a lower score lead nowhere. None takes all.
        :raises ValueError: If a parameter is out of its range.
        """
        check_at_least(1, top_k=top_k)
        self.top_k = top_k
        self.min_score = min_score

    @component.output_types(filters=dict[str, Any], unrouted_filters=dict[str, Any], sections=list[Document])
    def run(
        self, documents: list[Document], filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, Any]:
        """
        Choose sections.

        :param documents: Hits of a search among summaries; others are ignored.
        :param filters: The user's filter, or that of `SelfQueryFilterBuilder`; details have to satisfy it too.
        :param top_k: Overrides the value of init.
        :returns: `filters`: the leaves of the chosen sections that satisfy the user's filter; where no summary leads
            anywhere, all leaves that do. `unrouted_filters`: the latter in any case. `sections`: the best summary of
            each chosen section, best first.
        """
        check_at_least(1, top_k=top_k)
        hits = [hit for hit in documents if hit.meta.get(chunks.UNIT) == "summary"]
        if self.min_score is not None:
            hits = [hit for hit in hits if hit.score is not None and hit.score >= self.min_score]
        best: dict[str, Document] = {}
        for hit in by_score(best_of_each(hits)):
            best.setdefault(hit.meta[chunks.PARENT_ID], hit)
        sections = list(best.values())[: top_k or self.top_k]
        unrouted = both(LEAVES, filters) or {}
        if not sections:
            logger.warning("No summary leads to a section; details are searched everywhere.")
        route = _route(sections)
        return {"filters": both(route, unrouted) or {}, "unrouted_filters": unrouted, "sections": sections}

    @component.output_types(filters=dict[str, Any], unrouted_filters=dict[str, Any], sections=list[Document])
    async def run_async(
        self, documents: list[Document], filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, Any]:
        """
        Choose sections; nothing is waited for.

        :param documents: As for `run`.
        :param filters: As for `run`.
        :param top_k: As for `run`.
        :returns: As `run`.
        """
        return self.run(documents, filters, top_k)


def _route(sections: list[Document]) -> dict[str, Any] | None:
    """Describe the leaves of sections: by their parent, or by their place where there are levels in between."""
    parents: list[str] = []
    conditions: list[dict[str, Any]] = []
    for meta in (section.meta for section in sections):
        if meta.get(chunks.LEVEL, 0) == meta.get(chunks.LEAF_LEVEL, 1) - 1:
            parents.append(meta[chunks.PARENT_ID])
        else:
            place = [
                (chunks.SOURCE_ID, "==", meta[chunks.SOURCE_ID]),
                (chunks.SOURCE_VERSION, "==", meta[chunks.SOURCE_VERSION]),
                (chunks.SPLIT_ID, ">=", meta[chunks.LEAF_START]),
                (chunks.SPLIT_ID, "<", meta[chunks.LEAF_END]),
            ]
            within = [{"field": f"meta.{key}", "operator": operator, "value": value} for key, operator, value in place]
            conditions.append({"operator": "AND", "conditions": within})
    if parents:
        conditions.append({"field": f"meta.{chunks.PARENT_ID}", "operator": "in", "value": parents})
    return {"operator": "OR", "conditions": conditions} if len(conditions) > 1 else next(iter(conditions), None)
