from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field

from haystack import Document, component, logging
from haystack.document_stores.types import DocumentStore

from haystack_adv_retrieval.calls import Steps, drive, drive_async
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.spans import Span, covered
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

# Names of Haystack's HierarchicalDocumentSplitter, whose chunks have no span in a common source.
_HAYSTACK_PARENT_ID, _HAYSTACK_CHILDREN_IDS, _HAYSTACK_LEVEL = "__parent_id", "__children_ids", "__level"


@dataclass
class _Node:
    """A chunk on its way into the result, the hits behind it, and parents that the store should hold and does not."""

    chunk: Document
    hits: list[Document]
    missing: list[str] = field(default_factory=list)


@component
class AutoMerger:
    """
    Replaces hits by their common parent once they cover enough of it.

    Small chunks are found best, but several hits in one section mean that the section itself is the answer. Coverage
    is the share of the parent's characters that lie in a hit, so uneven, repeated or already widened hits count for
    exactly the text they contain. A parent with a share of at least `threshold` takes the place of its hits, level by
    level, with one look-up for all parents of a level. Nothing in the result is contained in anything else.

    Chunks of Haystack's `HierarchicalDocumentSplitter` have no span in their source; for them the share of distinct
    children counts.

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
        :param max_length: Budget over all results together. Results are taken whole, best first; only if the best one
            exceeds the budget by itself is it cut, to whole sentences around its best hit.
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
        nodes = {hit.id: _Node(hit, [hit]) for hit in best_of_each(documents)}
        absent: set[str] = set()
        merging = True
        while merging:
            merging = False
            families: dict[str, list[_Node]] = defaultdict(list)
            for node in nodes.values():
                parent_id = _parent_id(node.chunk)
                if parent_id and parent_id not in absent and _level(node.chunk) > self.max_level:
                    families[parent_id].append(node)
            # A parent that was itself a hit needs no look-up, and takes its children in whatever they cover.
            candidates = {id_: family for id_, family in families.items() if id_ in nodes or self._may_pass(family)}
            unknown = [parent_id for parent_id in candidates if parent_id not in nodes]
            parents = yield from read_by_ids(self.document_store, unknown)
            for parent_id, family in candidates.items():
                known = nodes.get(parent_id)
                parent = known.chunk if known else parents.get(parent_id)
                if parent is None:
                    absent.add(parent_id)
                    for node in family:
                        node.missing.append(parent_id)
                elif known or self._passes(family, parent):
                    for node in family:
                        del nodes[node.chunk.id]
                    hits = [*(known.hits if known else []), *(hit for node in family for hit in node.hits)]
                    nodes[parent_id] = _Node(parent, best_of_each(hits))
                    merging = True
        self._report(absent)
        results = [
            result(
                node.chunk, node.hits, aggregate((hit.score for hit in node.hits), self.score_aggregation), node.missing
            )
            for node in _outermost(nodes.values())
        ]
        return limit(by_score(results), top_k or self.top_k, max_length or self.max_length, self.length_unit)

    def _may_pass(self, family: list[_Node]) -> bool:
        """Tell whether the hits under a parent could merge, as far as their own metadata tells."""
        span = chunks.parent_span_of(family[0].chunk.meta)
        if span is None:
            return len(family) >= self.min_hits
        return len(family) >= self.min_hits and self._covers(family, span)

    def _passes(self, family: list[_Node], parent: Document) -> bool:
        """Tell whether the hits under a parent merge, now that it has been read."""
        if chunks.span_of(parent.meta) is not None and chunks.span_of(family[0].chunk.meta) is not None:
            return True
        children = parent.meta.get(_HAYSTACK_CHILDREN_IDS) or []
        return bool(children) and len(family) >= self.threshold * len(children) - 1e-9

    def _covers(self, family: list[_Node], parent: Span) -> bool:
        spans = [span for node in family if (span := chunks.span_of(node.chunk.meta))]
        return covered(spans, parent) >= self.threshold * parent.length - 1e-9

    def _report(self, absent: set[str]) -> None:
        if not absent:
            return
        if self.raise_on_failure:
            raise ValueError(f"The store does not hold the parents {sorted(absent)}")
        logger.warning(
            "{count} parents are not in the document store, e.g. {parent_id}; their hits are returned as they are.",
            count=len(absent),
            parent_id=min(absent),
        )


def _parent_id(chunk: Document) -> str | None:
    return chunk.meta.get(chunks.PARENT_ID) or chunk.meta.get(_HAYSTACK_PARENT_ID)


def _level(chunk: Document) -> float:
    """Read a chunk's level; a fused span, which has none, lies below every block."""
    level = chunk.meta.get(chunks.LEVEL, chunk.meta.get(_HAYSTACK_LEVEL))
    return float("inf") if level is None else level


def _outermost(nodes: Collection[_Node]) -> list[_Node]:
    """Let a chunk that contains others of its source take their hits, so that no text is returned twice."""
    spanned = [(span, node) for node in nodes if (span := chunks.span_of(node.chunk.meta)) and _source(node)]
    around: dict[tuple[str, str] | None, tuple[Span, _Node]] = {}
    inside: set[int] = set()
    for span, node in sorted(spanned, key=lambda item: (item[0].start, -item[0].end)):
        container_span, container = around.get(_source(node), (Span(0, 0), node))
        if container_span.contains(span):
            container.hits = best_of_each([*container.hits, *node.hits])
            inside.add(id(node))
        else:
            around[_source(node)] = (span, node)
    return [node for node in nodes if id(node) not in inside]


def _source(node: _Node) -> tuple[str, str] | None:
    meta = node.chunk.meta
    return (meta[chunks.SOURCE_ID], meta[chunks.SOURCE_VERSION]) if chunks.SOURCE_VERSION in meta else None
