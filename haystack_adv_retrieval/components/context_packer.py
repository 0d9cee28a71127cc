import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from haystack import Document, component, logging
from haystack.document_stores.types import DocumentStore

from haystack_adv_retrieval.calls import Steps, drive, drive_async
from haystack_adv_retrieval.context.budgets import LengthUnit, length_of
from haystack_adv_retrieval.context.results import best_of_each, by_score, check_at_least, check_choice, hit_spans
from haystack_adv_retrieval.context.slices import fuse
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.packing import Pool, pack, runs, score
from haystack_adv_retrieval.core.spans import Span
from haystack_adv_retrieval.stores import read_by_ids

logger = logging.getLogger(__name__)

Order = Literal["relevance", "source"]


@component
class ContextPacker:
    """
    Chooses the best leaves around all hits under one budget, and fuses them into spans.

    Parents, windows and merging decide by a fixed rule how much context a hit brings. Here the evidence decides, leaf
    by leaf: the hits and their neighbours form a pool; each leaf of it is judged with its surroundings at several
    scales, by the vectors that are in the index and by its words; the best ones are taken until the budget is full.
    Where evidence is long, taken leaves draw in the rest of their section; where it is one sentence, it stays one.
    The formulas are in `haystack_adv_retrieval.core.packing`. One look-up by id reads the neighbours with their
    vectors; no model is called.

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
        reach: int = 8,
        scales: Sequence[int] = (2, 6, 20),
        lexical_weight: float = 1.0,
        adjacency_bonus: float = 0.1,
        section_bonus: float = 1.0,
        floor: float = 0.0,
        order: Order = "relevance",
        top_k: int | None = None,
        raise_on_failure: bool = False,
    ) -> None:
        """
        Create a ContextPacker.

        :param document_store: The store that holds the leaves.
        :param max_length: The budget over all results together. It is never exceeded.
        :param length_unit: Unit of the budget: `"character"`, `"word"` or `"token"`.
        :param reach: How many leaves on each side of a hit can be chosen.
        :param scales: Radii, in leaves, of the surroundings that a leaf is judged with.
        :param lexical_weight: Weight of a leaf's words; its vector weighs 1.
        :param adjacency_bonus: What the neighbour of a taken leaf gains; scores reach from 0 to `1 + lexical_weight`.
        :param section_bonus: What a leaf gains when all else of its section is taken; in proportion before that.
        :param floor: Stop at leaves below this share of the best score, in [0, 1]; from 0.5 on, easy questions get
            fewer characters.
        :param order: `"relevance"`: the span with the best leaf first; `"source"`: by source, as they are read.
        :param top_k: How many spans to return at most.
        :param raise_on_failure: Raise if the store does not hold a hit's neighbours.
        :raises ValueError: If a parameter is out of its range.
        """
        check_at_least(1, max_length=max_length, top_k=top_k)
        check_at_least(0, reach=reach)
        check_choice("length_unit", length_unit, LengthUnit)
        check_choice("order", order, Order)
        if any(isinstance(radius, bool) or not isinstance(radius, int) or radius < 1 for radius in scales):
            raise ValueError(f"scales must be positive whole numbers, got {scales!r}")
        weights = {"lexical_weight": lexical_weight, "adjacency_bonus": adjacency_bonus, "section_bonus": section_bonus}
        for name, value in weights.items():
            if value < 0:
                raise ValueError(f"{name} must be at least 0, got {value!r}")
        if not 0 <= floor <= 1:
            raise ValueError(f"floor must be in [0, 1], got {floor!r}")
        self.document_store = document_store
        self.max_length = max_length
        self.length_unit = length_unit
        self.reach = reach
        self.scales = list(scales)
        self.lexical_weight = float(lexical_weight)
        self.adjacency_bonus = float(adjacency_bonus)
        self.section_bonus = float(section_bonus)
        self.floor = float(floor)
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
        :param documents: Hits of any retriever, or results of another pattern.
        :param query_embedding: The question's vector, from the model of the index. Without it, or where the store gives
            no vectors back, leaves are judged by their words alone.
        :param max_length: Overrides the value of init.
        :param top_k: Overrides the value of init.
        :returns: `documents`: spans of the sources with the scores of their best leaves, from 0 to
            `1 + lexical_weight`; `meta["matched_spans"]` holds `[start, end, score]` of the hits inside each. Hits
            without a place in a source follow, as far as they fit.
        :raises RuntimeError: If the store does not hold a hit's neighbours and `raise_on_failure` is set.
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
        :raises RuntimeError: As `run`.
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
        hits = [hit for hit in best_of_each(documents) if _has_place(hit)]
        stray = [hit for hit in best_of_each(documents) if not _has_place(hit)]
        leaves = yield from self._read(hits)
        pool = self._pool(leaves)
        vector = None if query_embedding is None else np.array(query_embedding)
        scores = score(pool, query, vector, self.scales, self.lexical_weight)
        chosen = pack(
            pool,
            scores,
            budget,
            adjacency_bonus=self.adjacency_bonus,
            section_bonus=self.section_bonus,
            floor=self.floor,
        )
        results = [self._result(leaves, scores, run, hits) for run in runs(pool, chosen)]
        if self.order == "relevance":
            results = by_score(results)
        left = budget - int(sum(pool.lengths[index] for index in chosen))
        for hit in by_score(stray):
            length = length_of(hit.content or "", self.length_unit)
            if length <= left:
                results.append(hit)
                left -= length
        return results[: self.top_k if top_k is None else top_k]

    def _read(self, hits: list[Document]) -> Steps[list[Document]]:
        """Read the leaves of the hits and around them, sorted by source and place, in one look-up."""
        places: dict[str, tuple[str, str, int]] = {}
        for hit in hits:
            meta = hit.meta
            around = range(meta[chunks.LEAF_START] - self.reach, meta[chunks.LEAF_END] + self.reach)
            inside = [ordinal for ordinal in around if 0 <= ordinal < meta[chunks.LEAF_COUNT]]
            for ordinal, id_ in zip(inside, chunks.leaf_ids(meta, inside), strict=True):
                places[id_] = (meta[chunks.SOURCE_ID], meta[chunks.SOURCE_VERSION], ordinal)
        found = yield from read_by_ids(self.document_store, places)
        # A hit that is a leaf itself does not depend on the store.
        found |= {hit.id: hit for hit in hits if hit.id in places and hit.id not in found}
        if missing := len(places) - len(found):
            if self.raise_on_failure:
                raise RuntimeError(f"The store does not hold {missing} of the {len(places)} leaves around the hits")
            logger.warning("{count} leaves around the hits are not in the document store.", count=missing)
        return [found[id_] for id_ in sorted(found, key=places.__getitem__)]

    def _pool(self, leaves: list[Document]) -> Pool:
        sources: dict[tuple[str, str], int] = {}
        sections: dict[str, int] = {}
        for leaf in leaves:
            sources.setdefault((leaf.meta[chunks.SOURCE_ID], leaf.meta[chunks.SOURCE_VERSION]), len(sources))
            sections.setdefault(leaf.meta.get(chunks.PARENT_ID, ""), len(sections))
        texts = [leaf.content or "" for leaf in leaves]
        return Pool(
            sources=np.array(
                [sources[leaf.meta[chunks.SOURCE_ID], leaf.meta[chunks.SOURCE_VERSION]] for leaf in leaves], dtype=int
            ),
            ordinals=np.array([leaf.meta[chunks.SPLIT_ID] for leaf in leaves], dtype=int),
            sections=np.array(
                [sections[parent] if (parent := leaf.meta.get(chunks.PARENT_ID)) else -1 for leaf in leaves], dtype=int
            ),
            # White space between leaves counts too: they are fused.
            lengths=np.array(
                [len(t) if self.length_unit == "character" else length_of(t, self.length_unit) for t in texts],
                dtype=int,
            ),
            texts=texts,
            vectors=np.array([leaf.embedding for leaf in leaves]) if all(leaf.embedding for leaf in leaves) else None,
        )

    def _result(self, leaves: list[Document], scores: np.ndarray, run: list[int], hits: list[Document]) -> Document:
        """Make a document of leaves that follow one another."""
        pieces = [leaves[index] for index in run]
        span = Span(pieces[0].meta[chunks.START], pieces[-1].meta[chunks.END])
        best = leaves[max(run, key=lambda index: scores[index])]
        behind = [hit for hit in hits if _source(hit) == _source(best) and _overlaps(hit, span)]
        document = fuse(pieces, span, replace(best, meta=copy.deepcopy(best.meta)))
        matched = {chunks.MATCHED_SPANS: hit_spans(behind), chunks.EXPANDED_FROM: [hit.id for hit in behind]}
        meta = document.meta | (matched if behind else {})
        return replace(document, meta=meta, score=float(max(scores[index] for index in run)))


def _has_place(hit: Document) -> bool:
    return chunks.LEAF_COUNT in hit.meta and chunks.leaf_range(hit.meta) is not None


def _source(document: Document) -> tuple[str, str]:
    return document.meta[chunks.SOURCE_ID], document.meta[chunks.SOURCE_VERSION]


def _overlaps(hit: Document, span: Span) -> bool:
    own = chunks.span_of(hit.meta)
    return own is not None and own.overlaps(span)
