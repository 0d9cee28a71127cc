from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, Literal

from haystack import Document, component, logging
from haystack.document_stores.types import DocumentStore

from haystack_adv_retrieval.calls import Call, Steps, drive, drive_async
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.sentences import sentence_spans
from haystack_adv_retrieval.core.spans import Span, merge
from haystack_adv_retrieval.results import (
    LengthUnit,
    aggregate,
    best_of_each,
    by_score,
    check_at_least,
    check_choice,
    limit,
    result,
    slice_of,
    span_result,
)
from haystack_adv_retrieval.stores import read_by_ids

logger = logging.getLogger(__name__)

WindowUnit = Literal["leaf", "sentence"]
Within = Literal["source", "parent", "page"]


@component
class SentenceWindowExpander:
    """
    Widens hits by their neighbours: search sentences, read them with what stands around them.

    A sentence is found best, but often needs the one before it to be understood. Neighbours are read by their
    computable ids in one look-up. Windows of one source that overlap or touch fuse into one result, so no text is
    returned twice, and the text of a result is the exact slice of its source. A window may cross the border of a
    section, never that of a source. It ends at a neighbour that the store does not hold, whose id is then in
    `meta["missing"]`; a hit without a source and a position passes through.

    ### Usage example
    ```python
    from haystack import Document
    from haystack.document_stores.in_memory import InMemoryDocumentStore
    from haystack_adv_retrieval import HierarchicalSplitter, SentenceWindowExpander

    text = "Refunds need a receipt. They take 14 days. Shipping is never refunded. Call us."
    splitter = HierarchicalSplitter(block_sizes=[50, 20], leaf="sentence")
    leaves = splitter.run(documents=[Document(content=text)])["documents"]
    store = InMemoryDocumentStore()
    store.write_documents(leaves)
    expander = SentenceWindowExpander(document_store=store, window_size=1)
    print(expander.run(documents=[leaves[1]])["documents"][0].content)
    ```
    """

    def __init__(
        self,
        document_store: DocumentStore,
        window_size: int = 1,
        *,
        unit: WindowUnit = "leaf",
        within: Within = "source",
        top_k: int | None = None,
        max_length: int | None = None,
        length_unit: LengthUnit = "character",
        language: str = "en",
        source_id_meta_key: str = chunks.SOURCE_ID,
        split_id_meta_key: str = chunks.SPLIT_ID,
        raise_on_failure: bool = False,
    ) -> None:
        """
        Create a SentenceWindowExpander.

        :param document_store: The store that holds the leaves.
        :param window_size: How many units to add on each side.
        :param unit: `"leaf"`, or `"sentence"` to count sentences where leaves hold several; they are cut out of the
            neighbouring leaves.
        :param within: What a window must not leave: the hit's `"source"`, `"parent"` or `"page"`.
        :param top_k: How many results to return at most, counted after windows have fused.
        :param max_length: Budget over all results together. Results are taken whole, best first; only if the best one
            exceeds the budget by itself is it cut, to whole sentences around its best hit.
        :param length_unit: Unit of `max_length`: `"character"`, `"word"` or `"token"`.
        :param language: ISO 639 code of the texts' language, for counting sentences.
        :param source_id_meta_key: Metadata key of the source, for chunks made elsewhere. Their neighbours are found
            with a filter instead of by id.
        :param split_id_meta_key: Metadata key of the ordinal within the source, for chunks made elsewhere.
        :param raise_on_failure: Raise if a neighbour is missing or a hit has no position.
        :raises ValueError: If a parameter is out of its range.
        """
        check_at_least(0, window_size=window_size)
        check_at_least(1, top_k=top_k, max_length=max_length)
        check_choice("unit", unit, WindowUnit)
        check_choice("within", within, Within)
        check_choice("length_unit", length_unit, LengthUnit)
        self.document_store = document_store
        self.window_size = window_size
        self.unit = unit
        self.within = within
        self.top_k = top_k
        self.max_length = max_length
        self.length_unit = length_unit
        self.language = language
        self.source_id_meta_key = source_id_meta_key
        self.split_id_meta_key = split_id_meta_key
        self.raise_on_failure = raise_on_failure

    @component.output_types(documents=list[Document])
    def run(
        self,
        documents: list[Document],
        window_size: int | None = None,
        top_k: int | None = None,
        max_length: int | None = None,
    ) -> dict[str, list[Document]]:
        """
        Widen hits by their neighbours.

        :param documents: Hits of any retriever, or blocks, which are widened by leaves on both sides.
        :param window_size: Overrides the value of init.
        :param top_k: Overrides the value of init.
        :param max_length: Overrides the value of init.
        :returns: `documents`: fused windows, best score first, each with the score and the metadata of its best hit;
            `meta["matched_spans"]` holds `[start, end, score]` of the hits behind each.
        :raises ValueError: If a neighbour is missing or a hit has no position, and `raise_on_failure` is set.
        """
        return {"documents": drive(self._widen(documents, window_size, top_k, max_length))}

    @component.output_types(documents=list[Document])
    async def run_async(
        self,
        documents: list[Document],
        window_size: int | None = None,
        top_k: int | None = None,
        max_length: int | None = None,
    ) -> dict[str, list[Document]]:
        """
        Widen hits by their neighbours, asynchronously.

        :param documents: Hits of any retriever, or blocks, which are widened by leaves on both sides.
        :param window_size: Overrides the value of init.
        :param top_k: Overrides the value of init.
        :param max_length: Overrides the value of init.
        :returns: As `run`.
        :raises ValueError: As `run`.
        """
        return {"documents": await drive_async(self._widen(documents, window_size, top_k, max_length))}

    def _widen(
        self, documents: list[Document], window_size: int | None, top_k: int | None, max_length: int | None
    ) -> Steps[list[Document]]:
        check_at_least(0, window_size=window_size)
        check_at_least(1, top_k=top_k, max_length=max_length)
        size = self.window_size if window_size is None else window_size
        sources, stray = self._by_source(best_of_each(documents))
        yield from self._read_neighbours(sources, size)
        results = [result(hit, [hit], hit.score) for hit in stray]
        for source in sources:
            if source.is_foreign:
                source.adopt(self.source_id_meta_key)
            windows = [(hit, *self._window(source, hit, size)) for hit in by_score(source.hits)]
            for fused in merge(span for _, span, _ in windows):
                behind = [hit for hit, span, _ in windows if fused.contains(span)]
                missing = sorted({id_ for _, span, ids in windows if fused.contains(span) for id_ in ids})
                score = aggregate(hit.score for hit in behind)
                document = span_result(source.pieces_of(fused), behind, score, fused, missing)
                results.append(source.release(document) if source.is_foreign else document)
        self._report(stray, results)
        return limit(by_score(results), top_k or self.top_k, max_length or self.max_length, self.length_unit)

    def _by_source(self, hits: list[Document]) -> tuple[list["_Source"], list[Document]]:
        """Group hits by their source; those without a position in one come apart."""
        sources: dict[Hashable, _Source] = {}
        stray: list[Document] = []
        for hit in hits:
            source_id, ordinal = hit.meta.get(self.source_id_meta_key), hit.meta.get(self.split_id_meta_key)
            if chunks.is_slice(hit.meta, hit.content):
                key = (hit.meta[chunks.SOURCE_ID], hit.meta[chunks.SOURCE_VERSION])
                sources.setdefault(key, _Source()).hits.append(hit)
            elif source_id is not None and isinstance(ordinal, int) and chunks.SOURCE_VERSION not in hit.meta:
                source = sources.setdefault(source_id, _Source(is_foreign=True))
                source.hits.append(hit)
                source.leaves[ordinal] = hit
            else:
                stray.append(hit)
        return list(sources.values()), stray

    def _read_neighbours(self, sources: list["_Source"], size: int) -> Steps[None]:
        """Read the neighbours of all hits: by id in one look-up, those of chunks made elsewhere with one filter."""
        addresses: dict[str, tuple[_Source, int]] = {}
        foreign: dict[Hashable, _Source] = {}
        conditions: list[dict[str, Any]] = []
        for source in sources:
            first = source.hits[0].meta
            if not source.is_foreign:
                for hit in source.hits:
                    leaves = hit.meta[chunks.LEAF_START], hit.meta[chunks.LEAF_END]
                    for ordinal in (*range(leaves[0] - size, leaves[0]), *range(leaves[1], leaves[1] + size)):
                        addresses |= dict.fromkeys(chunks.leaf_ids(first, [ordinal]), (source, ordinal))
            elif size:
                foreign[first[self.source_id_meta_key]] = source
                reach = merge(Span(ordinal - size, ordinal + size) for ordinal in source.leaves)
                conditions += [self._between(first[self.source_id_meta_key], *ordinals) for ordinals in reach]
        hits = {hit.id: hit for source in sources for hit in source.hits}
        found = yield from read_by_ids(self.document_store, [id_ for id_ in addresses if id_ not in hits])
        for id_, (source, ordinal) in addresses.items():
            if leaf := hits.get(id_) or found.get(id_):
                source.leaves[ordinal] = leaf
        if conditions:
            filters = {"operator": "OR", "conditions": conditions}
            for chunk in (yield Call(self.document_store, "filter_documents", {"filters": filters})):
                source = foreign[chunk.meta[self.source_id_meta_key]]
                source.leaves.setdefault(chunk.meta[self.split_id_meta_key], chunk)

    def _between(self, source_id: Any, first: int, last: int) -> dict[str, Any]:
        position = f"meta.{self.split_id_meta_key}"
        return {
            "operator": "AND",
            "conditions": [
                {"field": f"meta.{self.source_id_meta_key}", "operator": "==", "value": source_id},
                {"field": position, "operator": ">=", "value": first},
                {"field": position, "operator": "<=", "value": last},
            ],
        }

    def _window(self, source: "_Source", hit: Document, size: int) -> tuple[Span, list[str]]:
        """Find the span of a hit's window, and the ids of neighbours that are missing."""
        first, end = hit.meta[chunks.LEAF_START], hit.meta[chunks.LEAF_END]
        before, missing_before = self._walk(source, hit, range(first - 1, first - 1 - size, -1))
        after, missing_after = self._walk(source, hit, range(end, end + size))
        own = Span(hit.meta[chunks.START], hit.meta[chunks.END])
        window = merge([own, *before, *after])[0]
        if self.unit == "sentence" and size:
            text = slice_of(source.pieces_of(window), window)
            sentences = [Span(window.start + a, window.start + b) for a, b in sentence_spans(text, self.language)]
            inside = [index for index, sentence in enumerate(sentences) if sentence.overlaps(own)]
            first, last = max(0, inside[0] - size), min(len(sentences) - 1, inside[-1] + size)
            window = Span(sentences[first].start, sentences[last].end)
        return window, missing_before + missing_after

    def _walk(self, source: "_Source", hit: Document, ordinals: range) -> tuple[list[Span], list[str]]:
        """Collect neighbours in one direction until one is missing or lies outside of what limits the window."""
        spans: list[Span] = []
        limiting = {"parent": chunks.PARENT_ID, "page": chunks.PAGE}.get(self.within)
        for ordinal in ordinals:
            leaf = source.leaves.get(ordinal)
            if leaf is None:
                return spans, [] if source.is_foreign else chunks.leaf_ids(hit.meta, [ordinal])
            if limiting and leaf.meta.get(limiting) != hit.meta.get(limiting):
                break
            spans.append(Span(leaf.meta[chunks.START], leaf.meta[chunks.END]))
        return spans, []

    def _report(self, stray: list[Document], results: list[Document]) -> None:
        missing = [id_ for document in results for id_ in document.meta.get(chunks.MISSING, [])]
        if self.raise_on_failure and stray:
            raise ValueError(f"The hit {stray[0].id!r} has no position in a source")
        if self.raise_on_failure and missing:
            raise ValueError(f"The store does not hold the neighbours {missing}")
        if stray or missing:
            logger.warning(
                "{stray} hits have no position in a source and {missing} neighbours are not in the document store; "
                "their windows are smaller.",
                stray=len(stray),
                missing=len(missing),
            )


@dataclass
class _Source:
    """
    The hits and leaves of one source.

    :param is_foreign: Whether its chunks were made by another splitter, so that their ids can not be computed.
    """

    is_foreign: bool = False
    hits: list[Document] = field(default_factory=list)
    leaves: dict[int, Document] = field(default_factory=dict)  # by ordinal
    has_spans: bool = True

    def pieces_of(self, span: Span) -> list[Document]:
        """List the leaves and hits that share text with a span, in source order."""
        known = {piece.id: piece for piece in (*self.leaves.values(), *self.hits)}
        spans = ((chunks.span_of(piece.meta) or Span(0, 0), piece) for piece in known.values())
        return [piece for own, piece in sorted(spans, key=itemgetter(0)) if own.overlaps(span)]

    def adopt(self, source_id_meta_key: str) -> None:
        """Describe chunks made elsewhere in the data contract's words; without spans, they follow one another."""
        self.has_spans = all(chunks.START in leaf.meta for leaf in self.leaves.values())
        adopted: dict[str, Document] = {}
        position, previous = 0, -1
        for ordinal, leaf in sorted(self.leaves.items()):
            position += ordinal > previous + 1  # a chunk that was not found leaves a gap
            start = leaf.meta[chunks.START] if self.has_spans else position
            position, previous = start + len(leaf.content or ""), ordinal
            described = {
                chunks.SOURCE_ID: str(leaf.meta[source_id_meta_key]),
                chunks.SOURCE_VERSION: "",
                chunks.START: start,
                chunks.END: position,
                chunks.PAGE: leaf.meta.get(chunks.PAGE, 1),
                chunks.LEAF_START: ordinal,
                chunks.LEAF_END: ordinal + 1,
            }
            adopted[leaf.id] = self.leaves[ordinal] = replace(leaf, meta=leaf.meta | described)
        self.hits = [replace(adopted[hit.id], score=hit.score) for hit in self.hits]

    def release(self, document: Document) -> Document:
        """Take back what `adopt` made up, and keep what the chunks said themselves."""
        made_up = {chunks.SOURCE_VERSION, chunks.LEAF_START, chunks.LEAF_END}
        if not self.has_spans:
            made_up |= {chunks.START, chunks.END, chunks.PAGE, chunks.MATCHED_SPANS}
        return replace(document, meta={key: value for key, value in document.meta.items() if key not in made_up})
