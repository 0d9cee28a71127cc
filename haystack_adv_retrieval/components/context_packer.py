import copy
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from haystack import Document, component, logging
from haystack.document_stores.types import DocumentStore

from haystack_adv_retrieval.calls import Steps, drive, drive_async
from haystack_adv_retrieval.context.budgets import LengthUnit, cut, length_of
from haystack_adv_retrieval.context.leaf_pool import has_leaves, ids_around, lost_leaves, pool_of, reach_of, source_of
from haystack_adv_retrieval.context.results import best_of_each, by_score, focus_of, hit_spans, report_problems
from haystack_adv_retrieval.context.slices import fuse
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.evidence import Pool, score
from haystack_adv_retrieval.core.leaf_needs import Respect, leaf_needs
from haystack_adv_retrieval.core.lineage import extent_of
from haystack_adv_retrieval.core.packing import pack, parts, runs
from haystack_adv_retrieval.core.spans import Span
from haystack_adv_retrieval.parameters import check_at_least, check_choice, check_scoring
from haystack_adv_retrieval.stores import read_by_ids

logger = logging.getLogger(__name__)

Order = Literal["relevance", "source"]


@component
class ContextPacker:
    """
    Chooses the best leaves around all hits under one budget, and fuses them into spans.

    Parents, windows and merging decide by a fixed rule how much context a hit brings. Here the evidence decides, leaf
    by leaf: the hits and their neighbours form a pool; each leaf of it is judged with its surroundings at several
    scales, by the vectors that are in the index and by its words, and with the best leaf of its section; then the best
    ones are taken until the budget is full. So where evidence is long whole sections come together, and where it is one
    sentence, it stays one. The formulas are in `haystack_adv_retrieval.core.evidence`. One look-up by id reads the
    neighbours with their vectors; no model is called, and the size of the index or of a source does not matter.

    The budget need not be known exactly: results come best first, and the first 500 characters of a context of 4,000
    are about what a budget of 500 would have chosen.

    ### Usage example
    ```python
    from haystack import Document
    from haystack.document_stores.in_memory import InMemoryDocumentStore
    from haystack_adv_retrieval import ContextPacker, HierarchicalSplitter

    text = "Refunds need a receipt. They take 14 days. Shipping is never refunded. Our weir was built in 1911."
    splitter = HierarchicalSplitter(block_sizes=[50, 20], leaf="sentence")
    leaves = splitter.run(documents=[Document(content=text)])["documents"]
    store = InMemoryDocumentStore()
    store.write_documents(leaves)
    packer = ContextPacker(document_store=store, max_length=50)
    print(packer.run(query="How long do refunds take?", documents=leaves[:1])["documents"][0].content)
    ```
    """

    def __init__(
        self,
        document_store: DocumentStore,
        max_length: int = 4000,
        *,
        length_unit: LengthUnit = "character",
        reach: int = 12,
        pool_size: int = 400,
        scales: Sequence[int] = (2, 6, 20),
        lexical_weight: float = 0.8,
        rank_weight: float = 0.0,
        section_weight: float = 3.0,
        adjacency_bonus: float = 0.0,
        floor: float = 0.5,
        respect: Respect = "leaf",
        language: str = "en",
        order: Order = "relevance",
        top_k: int | None = None,
        raise_on_failure: bool = False,
    ) -> None:
        """
        Create a ContextPacker.

        :param document_store: The store that holds the leaves.
        :param max_length: The budget over all results together. It is never exceeded; a first leaf that is longer by
            itself is cut to whole sentences.
        :param length_unit: Unit of the budget: `"character"`, `"word"` or `"token"`.
        :param reach: How many leaves on each side of the first hit can be chosen. Later hits bring fewer, the last one
            one on each side.
        :param pool_size: How many leaves are looked at, at most: those around the first hits, until there are so many.
        :param scales: Radii, in leaves, of the surroundings that a leaf is judged with.
        :param lexical_weight: Weight of a leaf's words; its vector weighs 1.
        :param rank_weight: Weight of the order of the hits. With 0, right after a search, they are judged anew; above 0
            the order of a ranker is trusted. Where there are no vectors it is at least 0.4.
        :param section_weight: Weight of the best leaf under the same headings of the same source. The more, the more
            whole sections are chosen.
        :param adjacency_bonus: What the neighbour of a taken leaf gains; scores reach from 0 to 1.
        :param floor: Leaves below this share of the best score, in [0, 1], are not chosen, so that easy questions get
            less than the budget. 0 fills the budget.
        :param respect: What is not torn apart, as far as it is in the pool and fits. `"leaf"`: nothing but leaves.
            `"paragraph"`: paragraphs. `"table"`: a row comes with the header of its table, a list item with its
            lead-in, a sentence with its heading and with the one it leans on.
        :param language: ISO 639 code of the texts' language, for `respect`.
        :param order: `"relevance"`: the best evidence first, so that the context may be cut anywhere. What fills the
            first half of the budget comes before the rest, what fills the first quarter before that, and so on; leaves
            that touch are one span within such a part. `"source"`: all leaves that touch are one span; the source with
            the best leaf first, its spans as they are read.
        :param top_k: How many spans to return at most.
        :param raise_on_failure: Raise if the store does not hold a leaf around the hits.
        :raises ValueError: If a parameter is out of its range.
        """
        check_at_least(1, max_length=max_length, pool_size=pool_size, top_k=top_k)
        check_at_least(0, reach=reach)
        check_choice("length_unit", length_unit, LengthUnit)
        check_choice("respect", respect, Respect)
        check_choice("order", order, Order)
        check_scoring(
            scales,
            lexical_weight=lexical_weight,
            rank_weight=rank_weight,
            section_weight=section_weight,
            adjacency_bonus=adjacency_bonus,
        )
        if not 0 <= floor <= 1:
            raise ValueError(f"floor must be in [0, 1], got {floor!r}")
        self.document_store = document_store
        self.max_length = max_length
        self.length_unit = length_unit
        self.reach = reach
        self.pool_size = pool_size
        self.scales = list(scales)
        self.lexical_weight = float(lexical_weight)
        self.rank_weight = float(rank_weight)
        self.section_weight = float(section_weight)
        self.adjacency_bonus = float(adjacency_bonus)
        self.floor = float(floor)
        self.respect = respect
        self.language = language
        self.order = order
        self.top_k = top_k
        self.raise_on_failure = raise_on_failure

    @component.output_types(documents=list[Document])
    def run(
        self,
        query: str,
        documents: list[Document],
        query_embedding: list[float] | None = None,
        max_length: int | None = None,
        top_k: int | None = None,
    ) -> dict[str, list[Document]]:
        """
        Pack a context.

        :param query: The question.
        :param documents: Hits of any retriever, or results of another pattern, the most promising first.
        :param query_embedding: The question's vector, from the model of the index. Without it, or where the store gives
            no vectors of its dimension back, leaves are judged by their words and the order of the hits. A single leaf
            without such a vector is judged by what stands around it, and by its words.
        :param max_length: Overrides the value of init.
        :param top_k: Overrides the value of init.
        :returns: `documents`: spans of the sources with the scores of their best leaves, from 0 to 1 within one answer;
            `meta["matched_spans"]` holds `[start, end, score]` of the hits inside each, or of its best leaf where it
            has none. Hits without a place in a source follow as they are, as far as they fit.
        :raises ValueError: If `max_length` or `top_k` is out of its range, or if the store does not hold a leaf around
            the hits and `raise_on_failure` is set.
        """
        return {"documents": drive(self._pack(query, documents, query_embedding, max_length, top_k))}

    @component.output_types(documents=list[Document])
    async def run_async(
        self,
        query: str,
        documents: list[Document],
        query_embedding: list[float] | None = None,
        max_length: int | None = None,
        top_k: int | None = None,
    ) -> dict[str, list[Document]]:
        """
        Pack a context, asynchronously.

        :param query: As for `run`.
        :param documents: As for `run`.
        :param query_embedding: As for `run`.
        :param max_length: As for `run`.
        :param top_k: As for `run`.
        :returns: As `run`.
        :raises ValueError: As `run`.
        """
        return {"documents": await drive_async(self._pack(query, documents, query_embedding, max_length, top_k))}

    def _pack(
        self,
        query: str,
        documents: list[Document],
        query_embedding: list[float] | None,
        max_length: int | None,
        top_k: int | None,
    ) -> Steps[list[Document]]:
        check_at_least(1, max_length=max_length, top_k=top_k)
        budget = self.max_length if max_length is None else max_length
        found = best_of_each(documents)
        hits = [hit for hit in found if has_leaves(hit)]
        wanted = ids_around(hits, self.reach, self.pool_size)
        stored = yield from read_by_ids(self.document_store, wanted)
        missing = {id_ for id_ in wanted if id_ not in stored}
        report_problems([f"The store does not hold the leaf {id_!r}" for id_ in sorted(missing)], self.raise_on_failure)
        stored |= {hit.id: hit for hit in hits if hit.id in missing}  # a leaf that is at hand need not be stored
        leaves = sorted(stored.values(), key=lambda leaf: (source_of(leaf), leaf.meta[chunks.SPLIT_ID]))
        results = by_score(self._choose(query, query_embedding, leaves, hits, budget))
        left = budget - sum(length_of(result.content or "", self.length_unit) for result in results)
        for hit in found:
            lost = lost_leaves(hit, missing, self.pool_size) if has_leaves(hit) else []
            length = length_of(hit.content or "", self.length_unit)
            if length <= left and (lost or not has_leaves(hit)):
                marked = {chunks.MISSING: lost} if lost else {}
                results.append(replace(hit, meta=copy.deepcopy(hit.meta) | marked))
                left -= length
        results = results[: self.top_k if top_k is None else top_k]
        return results if self.order == "relevance" else _as_read(results)

    def _choose(
        self,
        query: str,
        query_embedding: list[float] | None,
        leaves: list[Document],
        hits: list[Document],
        budget: int,
    ) -> list[Document]:
        """Choose leaves, and fuse those that follow one another."""
        if not leaves:
            return []
        pool = pool_of(leaves, hits, self.length_unit)
        scores = score(
            pool,
            query,
            self._vector(query_embedding, pool),
            scales=self.scales,
            lexical_weight=self.lexical_weight,
            rank_weight=self.rank_weight,
            section_weight=self.section_weight,
        )
        groups = pack(
            pool,
            scores,
            budget,
            adjacency_bonus=self.adjacency_bonus,
            floor=self.floor,
            needs=leaf_needs(pool.texts, pool.runs, self.respect, self.language),
        )
        if groups:
            together = [sorted(index for group in groups for index in group)]
            chosen = together if self.order == "source" else parts(pool, groups, budget)
            return [self._result(leaves, scores, run, hits) for part in chosen for run in runs(pool, part)]
        best = self._result(leaves, scores, [int(scores.argmax())], hits)
        return [cut(best, focus_of(best), budget, self.length_unit)]

    def _vector(self, query_embedding: list[float] | None, pool: Pool) -> np.ndarray | None:
        """Take the question's vector, if the index holds such vectors."""
        if query_embedding is None or pool.vectors is None:
            return None
        if len(query_embedding) != pool.vectors.shape[1]:
            logger.warning(
                "The question's vector has {given} dimensions, those of the index have {held}. Words and the order of "
                "the hits decide alone.",
                given=len(query_embedding),
                held=pool.vectors.shape[1],
            )
            return None
        return np.array(query_embedding)

    def _result(self, leaves: list[Document], scores: np.ndarray, run: list[int], hits: list[Document]) -> Document:
        """Make a document of leaves that follow one another."""
        pieces = [leaves[index] for index in run]
        span = Span(pieces[0].meta[chunks.START], pieces[-1].meta[chunks.END])
        best = max(run, key=lambda index: scores[index])
        document = fuse(pieces, span, leaves[best])
        near = [hit for rank, hit in enumerate(hits) if _reaches(hit, reach_of(rank, len(hits), self.reach), document)]
        inside = [hit for hit in near if (own := extent_of(hit.meta)) and own.overlaps(span)]
        meta = copy.deepcopy(document.meta) | {
            chunks.MATCHED_SPANS: hit_spans(inside or [replace(leaves[best], score=float(scores[best]))]),
            chunks.EXPANDED_FROM: [hit.id for hit in inside or near],
        }
        return replace(document, meta=meta, score=float(scores[best]))


def _reaches(hit: Document, reach: int, document: Document) -> bool:
    start, end = hit.meta[chunks.LEAF_START] - reach, hit.meta[chunks.LEAF_END] + reach
    touches = start < document.meta[chunks.LEAF_END] and document.meta[chunks.LEAF_START] < end
    return touches and source_of(hit) == source_of(document)


def _as_read(documents: list[Document]) -> list[Document]:
    """Sort spans by their sources, the one that comes first now first, and by their place there."""
    sources: dict[Hashable, int] = {}
    for document in documents:
        sources.setdefault(_source_or_id(document), len(sources))
    return sorted(documents, key=lambda each: (sources[_source_or_id(each)], each.meta.get(chunks.START) or 0))


def _source_or_id(document: Document) -> Hashable:
    return source_of(document) if has_leaves(document) else document.id
