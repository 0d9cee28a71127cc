from collections.abc import Hashable, Iterable

from haystack import Document, component
from haystack.document_stores.types import DocumentStore

from haystack_adv_retrieval.calls import Call, Steps, drive, drive_async
from haystack_adv_retrieval.context.budgets import LengthUnit
from haystack_adv_retrieval.context.foreign import PlaceKeys, adopt, fuse_adopted
from haystack_adv_retrieval.context.leaf_pool import source_of
from haystack_adv_retrieval.context.results import Passage, best_of_each, best_passages, by_score, report_problems
from haystack_adv_retrieval.context.slices import fuse
from haystack_adv_retrieval.context.source_windows import Source, Window, WindowRule, WindowUnit, Within, fused_windows
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.lineage import is_summary
from haystack_adv_retrieval.parameters import check_at_least, check_choice
from haystack_adv_retrieval.stores import read_by_ids


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
        :param within: What a window must not leave: the hit's `"source"`, `"parent"` or `"page"`. A leaf belongs to the
            page that it starts on.
        :param top_k: How many results to return at most, counted after windows have fused.
        :param max_length: Budget over all results together. Hits are widened best first; one whose window does not fit
            any more comes alone, or not at all. Only if the best window exceeds the budget by itself is it cut, to
            whole sentences around its hit.
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
        self._keys = PlaceKeys(source_id_meta_key, split_id_meta_key)

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
        rule = WindowRule(size, self.unit, self.within, self.language)
        hits = best_of_each(documents)
        own, foreign, stray = self._by_source(hits)
        yield from self._read_leaves(own, size)
        found = yield from self._read_foreign(foreign, size)
        adopted = [adopt(source.leaves) for source in foreign.values()]
        sources = [*own.values(), *(_source_of_adopted(leaves, hits) for leaves, _ in adopted)]
        limit = self.max_length if max_length is None else max_length
        windows = fused_windows(sources, hits, rule, limit, self.length_unit)
        passages = [Passage(hit, [hit]) for hit in stray]
        for source, some in zip(own.values(), windows, strict=False):
            for window in some:
                chunk = fuse(source.pieces_of(window.span), window.span, window.hits[0])
                passages.append(Passage(chunk, window.hits, window.missing))
        elsewhere = zip(sources[len(own) :], windows[len(own) :], (is_known for _, is_known in adopted), strict=True)
        for source, some, is_known in elsewhere:
            passages += [self._foreign_passage(source, window, hits, found, is_known) for window in some]
        missing = [id_ for passage in passages for id_ in passage.missing]
        problems = [f"The hit {hit.id!r} has no position in a source" for hit in stray]
        problems += [f"The store does not hold the chunk {id_!r}" for id_ in missing]
        report_problems(problems, self.raise_on_failure)
        return best_passages(
            passages,
            hits,
            top_k=top_k or self.top_k,
            max_length=limit,
            length_unit=self.length_unit,
        )

    def _by_source(
        self, hits: list[Document]
    ) -> tuple[dict[Hashable, Source], dict[str | int, Source], list[Document]]:
        """Group hits by their source: those of the data contract, those made elsewhere, and those without a place."""
        own: dict[Hashable, Source] = {}
        foreign: dict[str | int, Source] = {}
        stray: list[Document] = []
        for hit in hits:
            place = self._keys.place_of(hit) if hit.content else None
            if chunks.is_slice(hit.meta, hit.content) and hit.content and not is_summary(hit.meta):
                own.setdefault(source_of(hit), Source()).hits.append(hit)
            elif place and place.ordinal not in foreign.setdefault(place.source, Source()).leaves:
                foreign[place.source].hits.append(hit)
                foreign[place.source].leaves[place.ordinal] = hit
            else:
                stray.append(hit)
        return own, foreign, stray

    def _read_leaves(self, sources: dict[Hashable, Source], size: int) -> Steps[None]:
        """Read the neighbours of all hits by their computed ids, in one look-up."""
        known = {hit.id: hit for source in sources.values() for hit in source.hits}
        wanted: dict[str, None] = {}
        for hit in known.values():
            first, end = hit.meta[chunks.LEAF_START], hit.meta[chunks.LEAF_END]
            around = (*range(first - size, first), *range(end, end + size))
            wanted |= dict.fromkeys(chunks.leaf_ids(hit.meta, around))
        unknown = (id_ for id_ in wanted if id_ not in known)
        found = yield from read_by_ids(self.document_store, unknown, embeddings=False)
        for leaf in (*known.values(), *found.values()):
            if leaf.meta.get(chunks.LEVEL) == leaf.meta[chunks.LEAF_LEVEL]:
                sources[source_of(leaf)].leaves[leaf.meta[chunks.SPLIT_ID]] = leaf

    def _read_foreign(self, sources: dict[str | int, Source], size: int) -> Steps[set[str]]:
        """Read hits made elsewhere and their neighbours, with one filter, and tell which chunks there are."""
        if not sources or not size:
            return {hit.id for source in sources.values() for hit in source.hits}
        filters = self._keys.filter_around({source_id: source.leaves for source_id, source in sources.items()}, size)
        found: list[Document] = yield Call(self.document_store, "filter_documents", {"filters": filters})
        for chunk in found:
            if place := self._keys.place_of(chunk):
                sources[place.source].leaves.setdefault(place.ordinal, chunk)
        return {chunk.id for chunk in found}

    def _foreign_passage(
        self, source: Source, window: Window, hits: Iterable[Document], found: set[str], is_known: bool
    ) -> Passage:
        ids = {hit.id for hit in window.hits}
        own = by_score(hit for hit in hits if hit.id in ids)
        chunk = fuse_adopted(
            source.pieces_of(window.span), window.span, own[0], self.split_id_meta_key, is_known=is_known
        )
        # What their neighbours would be called is not known, but a store without the hit is not the right one.
        missing = [hit.id for hit in own if hit.id not in found]
        return Passage(chunk, window.hits if is_known else own, missing)


def _source_of_adopted(leaves: dict[int, Document], hits: Iterable[Document]) -> Source:
    retrieved = {hit.id for hit in hits}
    return Source([leaf for leaf in leaves.values() if leaf.id in retrieved], leaves)
