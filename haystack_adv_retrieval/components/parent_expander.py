from collections.abc import Sequence

from haystack import Document, component
from haystack.document_stores.types import DocumentStore

from haystack_adv_retrieval.calls import Steps, drive, drive_async
from haystack_adv_retrieval.context.budgets import LengthUnit
from haystack_adv_retrieval.context.results import (
    Passage,
    ScoreAggregation,
    best_of_each,
    best_passages,
    report_problems,
)
from haystack_adv_retrieval.core.lineage import PARENT_ID_KEYS, is_summary, level_of, parent_id_of
from haystack_adv_retrieval.parameters import check_at_least, check_choice
from haystack_adv_retrieval.stores import read_by_ids


@component
class ParentExpander:
    """
    Replaces hits by their parents: search small chunks, read the large ones around them.

    A small chunk is found best, but often lacks the condition or the exception next to it. Hits with the same parent
    collapse into one result. Parents are read in one look-up a level. A hit without a parent passes through; where the
    store does not hold a parent, what is below it comes back, with the parent's id in `meta["missing"]`.

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
        parent_id_meta_key: str | Sequence[str] = PARENT_ID_KEYS,
        raise_on_failure: bool = False,
    ) -> None:
        """
        Create a ParentExpander.

        :param document_store: The store that holds the parents.
        :param level: The level to return, 1 being the coarsest. None means one level up. A hit at that level or above
            passes through, but a summary always becomes its section.
        :param score_aggregation: How the scores of the hits under a parent make its score: `"max"`, `"sum"` or
            `"mean"`.
        :param top_k: How many results to return at most, counted after hits have collapsed into parents.
        :param max_length: Budget over all results together. Results are taken whole, best first; one that does not fit
            makes way for smaller ones. Only if the best one exceeds the budget by itself is it cut, to whole sentences
            around its best hit.
        :param length_unit: Unit of `max_length`: `"character"`, `"word"` or `"token"`.
        :param parent_id_meta_key: Metadata key, or keys in order of preference, that hold the parent's id; by default
            those of this package and of Haystack's `HierarchicalDocumentSplitter`.
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
        self.parent_id_meta_key = [parent_id_meta_key] if isinstance(parent_id_meta_key, str) else [*parent_id_meta_key]
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
        passages = [Passage(hit, [hit]) for hit in hits]
        climbing = [(passage, above) for passage in passages if (above := self._above(passage.chunk, is_hit=True))]
        problems = self._without_parent(hits) if self.raise_on_failure else []
        while climbing:
            parents = yield from read_by_ids(self.document_store, (parent_id for _, parent_id in climbing))
            climbed = []
            for passage, parent_id in climbing:
                if parent := parents.get(parent_id):
                    passage.chunk = parent
                    climbed += [(passage, above)] if (above := self._above(parent, is_hit=False)) else []
                else:
                    passage.missing.append(parent_id)
                    problems.append(
                        f"The store does not hold the parent {parent_id!r} of the hit {passage.hits[0].id!r}"
                    )
            climbing = climbed
        report_problems(problems, self.raise_on_failure)
        return best_passages(
            passages,
            hits,
            score_aggregation=self.score_aggregation,
            top_k=top_k or self.top_k,
            max_length=max_length or self.max_length,
            length_unit=self.length_unit,
        )

    def _above(self, chunk: Document, *, is_hit: bool) -> str | None:
        """Find the id to climb to from a chunk, None where the way ends."""
        level = level_of(chunk.meta)
        climbs = (level > self.level or is_summary(chunk.meta)) if self.level and level else is_hit
        return parent_id_of(chunk.meta, self.parent_id_meta_key) if climbs else None

    def _without_parent(self, hits: list[Document]) -> list[str]:
        stray = (hit for hit in hits if not parent_id_of(hit.meta, self.parent_id_meta_key))
        keys = self.parent_id_meta_key
        lowest = self.level or 1
        return [f"The hit {hit.id!r} has no parent in {keys}" for hit in stray if not 1 <= level_of(hit.meta) <= lowest]
