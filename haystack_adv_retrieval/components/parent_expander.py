from collections import defaultdict

from haystack import Document, component, logging
from haystack.document_stores.types import DocumentStore

from haystack_adv_retrieval.calls import Steps, drive, drive_async
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.results import (
    LengthUnit,
    ScoreAggregation,
    aggregate,
    best_of_each,
    by_score,
    check_at_least,
    check_choice,
    limit,
    result,
)
from haystack_adv_retrieval.stores import read_by_ids

logger = logging.getLogger(__name__)


@component
class ParentExpander:
    """
    Replaces hits by their parents: search small chunks, read the large ones around them.

    A small chunk is found best, but often lacks the condition or the exception next to it. Hits with the same parent
    collapse into one result. Parents are read in one look-up a level. A hit without a parent passes through; one whose
    parent the store does not hold comes back as it is, with the parent's id in `meta["missing"]`.

    ### Usage example
    ```python
    from haystack import Document
    from haystack.document_stores.in_memory import InMemoryDocumentStore
    from haystack_adv_retrieval import HierarchicalSplitter, ParentExpander

    text = "Refunds need a receipt. They take 14 days. Shipping is never refunded."
    chunks = HierarchicalSplitter(block_sizes=[50, 5]).run(documents=[Document(content=text)])
    store = InMemoryDocumentStore()
    store.write_documents(chunks["documents"] + chunks["parents"])
    hit = chunks["documents"][1]  # "They take 14 days. "
    print(ParentExpander(document_store=store).run(documents=[hit])["documents"][0].content)
    ```
    """

    def __init__(
        self,
        document_store: DocumentStore,
        level: int | None = None,
        *,
        score_aggregation: ScoreAggregation = "max",
        top_k: int | None = None,
        max_length: int | None = None,
        length_unit: LengthUnit = "character",
        parent_id_meta_key: str = chunks.PARENT_ID,
        raise_on_failure: bool = False,
    ) -> None:
        """
        Create a ParentExpander.

        :param document_store: The store that holds the parents.
        :param level: The level to return, 1 being the coarsest. None means one level up. A hit at that level or above
            passes through.
        :param score_aggregation: How the scores of the hits under a parent make its score: `"max"`, `"sum"` or
            `"mean"`.
        :param top_k: How many results to return at most, counted after hits have collapsed into parents.
        :param max_length: Budget over all results together. Results are taken whole, best first; only if the best one
            exceeds the budget by itself is it cut, to whole sentences around its best hit.
        :param length_unit: Unit of `max_length`: `"character"`, `"word"` or `"token"`.
        :param parent_id_meta_key: Metadata key that holds the parent's id, for chunks made elsewhere.
        :param raise_on_failure: Raise if a hit has no parent or the store does not hold it.
        :raises ValueError: If a parameter is out of its range.
        """
        check_at_least(1, level=level, top_k=top_k, max_length=max_length)
        check_choice("score_aggregation", score_aggregation, ScoreAggregation)
        check_choice("length_unit", length_unit, LengthUnit)
        self.document_store = document_store
        self.level = level
        self.score_aggregation = score_aggregation
        self.top_k = top_k
        self.max_length = max_length
        self.length_unit = length_unit
        self.parent_id_meta_key = parent_id_meta_key
        self.raise_on_failure = raise_on_failure

    @component.output_types(documents=list[Document])
    def run(
        self, documents: list[Document], top_k: int | None = None, max_length: int | None = None
    ) -> dict[str, list[Document]]:
        """
        Replace hits by their parents.

        :param documents: Hits of any retriever.
        :param top_k: Overrides the value of init.
        :param max_length: Overrides the value of init.
        :returns: `documents`: parents and hits without one, best score first; `meta["matched_spans"]` holds
            `[start, end, score]` of the hits behind each, `meta["expanded_from"]` their ids.
        :raises ValueError: If a hit's parent can not be found and `raise_on_failure` is set.
        """
        return {"documents": drive(self._expand(documents, top_k, max_length))}

    @component.output_types(documents=list[Document])
    async def run_async(
        self, documents: list[Document], top_k: int | None = None, max_length: int | None = None
    ) -> dict[str, list[Document]]:
        """
        Replace hits by their parents, asynchronously.

        :param documents: Hits of any retriever.
        :param top_k: Overrides the value of init.
        :param max_length: Overrides the value of init.
        :returns: As `run`.
        :raises ValueError: As `run`.
        """
        return {"documents": await drive_async(self._expand(documents, top_k, max_length))}

    def _expand(self, documents: list[Document], top_k: int | None, max_length: int | None) -> Steps[list[Document]]:
        check_at_least(1, top_k=top_k, max_length=max_length)
        hits = best_of_each(documents)
        reached = {hit.id: hit for hit in hits}  # where the way up from each hit has come to
        missing: dict[str, str] = {}
        climbing = {hit.id: parent_id for hit in hits if (parent_id := self._next(hit, first=True))}
        while climbing:
            parents = yield from read_by_ids(self.document_store, climbing.values())
            missing |= {hit_id: parent_id for hit_id, parent_id in climbing.items() if parent_id not in parents}
            found = {hit_id: parents[parent_id] for hit_id, parent_id in climbing.items() if parent_id in parents}
            reached |= found
            climbing = {hit_id: above for hit_id, parent in found.items() if (above := self._next(parent, first=False))}
        self._report(hits, reached, missing)

        families: dict[str, list[Document]] = defaultdict(list)
        for hit in hits:
            families[reached[hit.id].id].append(hit)
        results = [
            result(
                reached[family[0].id],
                family,
                aggregate((hit.score for hit in family), self.score_aggregation),
                missing=sorted({missing[hit.id] for hit in family if hit.id in missing}),
            )
            for family in families.values()
        ]
        return limit(by_score(results), top_k or self.top_k, max_length or self.max_length, self.length_unit)

    def _next(self, chunk: Document, *, first: bool) -> str | None:
        """Find the id to climb to from a chunk, None where the way ends."""
        if self.level is None:
            return chunk.meta.get(self.parent_id_meta_key) if first else None
        level = chunk.meta.get(chunks.LEVEL)
        return chunk.meta.get(self.parent_id_meta_key) if level is None or level > self.level else None

    def _report(self, hits: list[Document], reached: dict[str, Document], missing: dict[str, str]) -> None:
        if self.raise_on_failure:
            for hit in hits:
                if hit.id in missing:
                    raise ValueError(f"The store does not hold the parent {missing[hit.id]!r} of the hit {hit.id!r}")
                if reached[hit.id] is hit and self._next(hit, first=True) is None and self._is_stray(hit):
                    raise ValueError(f"The hit {hit.id!r} has no {self.parent_id_meta_key!r} in its metadata")
        if missing:
            logger.warning(
                "{count} parents are not in the document store, e.g. {parent_id}; their hits are returned as they are.",
                count=len(set(missing.values())),
                parent_id=next(iter(missing.values())),
            )

    def _is_stray(self, hit: Document) -> bool:
        level = hit.meta.get(chunks.LEVEL)
        return level is None or level > (self.level or 1)
