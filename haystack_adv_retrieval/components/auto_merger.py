from collections import defaultdict
from collections.abc import Collection, Sequence

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
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.lineage import HAYSTACK_CHILDREN_IDS, extent_of, is_summary, level_of, parent_id_of
from haystack_adv_retrieval.core.spans import Span, covered
from haystack_adv_retrieval.parameters import check_at_least, check_choice
from haystack_adv_retrieval.stores import read_by_ids

# A threshold such as 1/3 times a length may come out a little too large.
_ROUNDING = 1 - 1e-9


@component
class AutoMerger:
    """
    Replaces hits by their common parent once they cover enough of it.

    Small chunks are found best, but several hits in one section mean that the section itself is the answer. Coverage
    is the share of the parent's characters that lie in a hit, so uneven, repeated or already widened hits count for
    exactly the text they contain. A parent with a share of at least `threshold` takes the place of its hits, level by
    level, with one look-up for all parents of a level. Nothing in the result is contained in anything else.

    Chunks of Haystack's `HierarchicalDocumentSplitter` have no span in their source; for them the share of distinct
    children counts, and the whole text, their coarsest chunk, is level 1. A section's summary stands for all of it.

    ### Usage example
    ```python
    from haystack import Document
    from haystack.document_stores.in_memory import InMemoryDocumentStore
    from haystack_adv_retrieval import AutoMerger, HierarchicalSplitter

    text = "Refunds need a receipt. They take 14 days. Shipping is never refunded."
    chunks = HierarchicalSplitter(block_sizes=[50, 5]).run(documents=[Document(content=text)])
    store = InMemoryDocumentStore()
    store.write_documents(chunks["documents"] + chunks["parents"])
    merger = AutoMerger(document_store=store, threshold=0.5)
    print(merger.run(documents=chunks["documents"][:2])["documents"][0].content)
    ```
    """

    def __init__(
        self,
        document_store: DocumentStore,
        threshold: float = 0.5,
        *,
        min_hits: int = 1,
        max_level: int = 1,
        score_aggregation: ScoreAggregation = "max",
        top_k: int | None = None,
        max_length: int | None = None,
        length_unit: LengthUnit = "character",
        raise_on_failure: bool = False,
    ) -> None:
        """
        Create an AutoMerger.

        :param document_store: The store that holds the parents.
        :param threshold: Share of the parent's characters, in (0, 1], that hits must cover, that share included; 1.0
            asks for every child.
        :param min_hits: How many distinct children must be hit, so that a large one cannot lift its parent alone.
        :param max_level: The coarsest level to merge into; 1 is the coarsest there is.
        :param score_aggregation: How the scores of the hits make the score of what they merge into: `"max"`, `"sum"`
            or `"mean"`.
        :param top_k: How many results to return at most, counted after merging.
        :param max_length: Budget over all results together. Results are taken whole, best first; one that does not fit
            makes way for smaller ones. Only if the best one exceeds the budget by itself is it cut, to whole sentences
            around its best hit.
        :param length_unit: Unit of `max_length`: `"character"`, `"word"` or `"token"`.
        :param raise_on_failure: Raise if the store does not hold a parent, instead of returning its hits as they are.
        :raises ValueError: If a parameter is out of its range.
        """
        if not 0 < threshold <= 1:
            raise ValueError(f"threshold must be in (0, 1], got {threshold!r}")
        check_at_least(1, min_hits=min_hits, max_level=max_level, top_k=top_k, max_length=max_length)
        check_choice("score_aggregation", score_aggregation, ScoreAggregation)
        check_choice("length_unit", length_unit, LengthUnit)
        self.document_store = document_store
        self.threshold = float(threshold)
        self.min_hits = min_hits
        self.max_level = max_level
        self.score_aggregation = score_aggregation
        self.top_k = top_k
        self.max_length = max_length
        self.length_unit = length_unit
        self.raise_on_failure = raise_on_failure

    @component.output_types(documents=list[Document])
    def run(
        self, documents: list[Document], top_k: int | None = None, max_length: int | None = None
    ) -> dict[str, list[Document]]:
        """
        Merge hits into their parents.

        :param documents: Hits of any retriever, at any level.
        :param top_k: Overrides the value of init.
        :param max_length: Overrides the value of init.
        :returns: `documents`: parents and the hits that were not merged, best score first, none contained in another;
            `meta["matched_spans"]` holds `[start, end, score]` of the hits behind each.
        :raises ValueError: If a parent is not in the store and `raise_on_failure` is set.
        """
        return {"documents": drive(self._merge(documents, top_k, max_length))}

    @component.output_types(documents=list[Document])
    async def run_async(
        self, documents: list[Document], top_k: int | None = None, max_length: int | None = None
    ) -> dict[str, list[Document]]:
        """
        Merge hits into their parents, asynchronously.

        :param documents: Hits of any retriever, at any level.
        :param top_k: Overrides the value of init.
        :param max_length: Overrides the value of init.
        :returns: As `run`.
        :raises ValueError: As `run`.
        """
        return {"documents": await drive_async(self._merge(documents, top_k, max_length))}

    def _merge(self, documents: list[Document], top_k: int | None, max_length: int | None) -> Steps[list[Document]]:
        check_at_least(1, top_k=top_k, max_length=max_length)
        hits = best_of_each(documents)
        passages = {hit.id: Passage(hit, [hit]) for hit in hits}
        problems: list[str] = []
        deepest = max((level_of(hit.meta) for hit in hits), default=0)
        for level in range(deepest, self.max_level, -1):
            families = _families(passages.values(), level)
            # A parent that was itself a hit is there already, and takes its children in whatever they cover of it.
            known = {
                id_: passages[id_].chunk for id_, family in families.items() if _is_whole(passages.get(id_), family)
            }
            wanted = [id_ for id_, family in families.items() if id_ not in known and self._merges(family)]
            parents = known | (yield from read_by_ids(self.document_store, wanted))
            for parent_id, family in families.items():
                if parent_id in wanted and parent_id not in parents:
                    problems += [f"The store does not hold the parent {parent_id!r} of {len(family)} hits"]
                    for passage in family:
                        passage.missing.append(parent_id)
                elif parent_id in known or (parent_id in parents and self._merges(family, parents[parent_id])):
                    ids = [parent_id, *(passage.chunk.id for passage in family)]
                    together = [hit for id_ in ids if id_ in passages for hit in passages.pop(id_).hits]
                    passages[parent_id] = Passage(parents[parent_id], together)
        report_problems(problems, self.raise_on_failure)
        return best_passages(
            _outermost(passages.values()),
            hits,
            score_aggregation=self.score_aggregation,
            top_k=top_k or self.top_k,
            max_length=max_length or self.max_length,
            length_unit=self.length_unit,
        )

    def _merges(self, family: Sequence[Passage], parent: Document | None = None) -> bool:
        """
        Tell whether the hits under a parent merge.

        :param family: What lies under the parent.
        :param parent: The parent. None asks whether it has to be read, as far as the family's metadata tells.
        :returns: Whether enough children were hit and they cover enough of the parent.
        """
        metas = [passage.chunk.meta for passage in family]
        if any(map(is_summary, metas)):
            return True
        if len(_children(family)) < self.min_hits:
            return False
        if whole := chunks.parent_span_of(metas[0]):
            part = covered([span for meta in metas if (span := chunks.span_of(meta))], whole)
            return part >= self.threshold * whole.length * _ROUNDING
        if parent is None:
            return True
        children = parent.meta.get(HAYSTACK_CHILDREN_IDS) or []
        return bool(children) and len(family) >= self.threshold * len(children) * _ROUNDING


def _families(passages: Collection[Passage], level: int) -> dict[str, list[Passage]]:
    """Group what lies on a level by its parent."""
    families: dict[str, list[Passage]] = defaultdict(list)
    for passage in passages:
        if level_of(passage.chunk.meta) == level and (parent_id := parent_id_of(passage.chunk.meta)):
            families[parent_id].append(passage)
    return families


def _is_whole(parent: Passage | None, family: Sequence[Passage]) -> bool:
    """Tell whether a parent is among the hits, and not just a part that was cut out of it."""
    span = chunks.parent_span_of(family[0].chunk.meta)
    return parent is not None and span in (None, chunks.span_of(parent.chunk.meta))


def _children(family: Sequence[Passage]) -> set[str]:
    """Collect the ids of the children that were hit; a span fused out of several counts for its hits."""
    children: set[str] = set()
    for passage in family:
        meta = passage.chunk.meta
        children.update(meta[chunks.EXPANDED_FROM] if chunks.PART_IDS in meta else [passage.chunk.id])
    return children


def _outermost(passages: Collection[Passage]) -> list[Passage]:
    """Let a slice that contains others of its source take their hits, so that no text is returned twice."""
    spanned = [
        (span, passage)
        for passage in passages
        if chunks.SOURCE_VERSION in passage.chunk.meta and (span := extent_of(passage.chunk.meta))
    ]
    around: dict[tuple[str, str], tuple[Span, Passage]] = {}
    inside: set[str] = set()
    for span, passage in sorted(spanned, key=lambda item: (item[0].start, -item[0].end, level_of(item[1].chunk.meta))):
        meta = passage.chunk.meta
        source = (meta[chunks.SOURCE_ID], meta[chunks.SOURCE_VERSION])
        container_span, container = around.get(source, (Span(0, 0), passage))
        if container_span.contains(span):
            container.hits += passage.hits
            inside.add(passage.chunk.id)
        elif chunks.is_slice(meta, passage.chunk.content) and not is_summary(meta):
            around[source] = (span, passage)
    return [passage for passage in passages if passage.chunk.id not in inside]
