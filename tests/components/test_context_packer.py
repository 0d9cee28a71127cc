import copy
from dataclasses import replace

import pytest
from haystack import Document, Pipeline
from haystack.document_stores.in_memory import InMemoryDocumentStore
from trees import CountingStore

from haystack_adv_retrieval import ContextPacker, HierarchicalSplitter, LeafEmbedder, QueryEmbedder
from haystack_adv_retrieval.core.chunks import MATCHED_SPANS, SOURCE_ID, span_of

TEXTS = {
    "refunds": "# Refunds\n\nRefunds need a receipt. They are paid within 14 days. This starts when it arrives. "
    + "Shipping is never refunded.\n\n# Weir\n\nOur weir was built in 1911. It holds back the river. Moss grows on it.",
    "tea": "Black tea needs four minutes. Green tea needs two. Water for it must not boil.",
}
QUESTION = "How long do refunds take?"


@pytest.fixture(scope="module")
def leaves() -> list[Document]:
    splitter = HierarchicalSplitter(block_sizes=[40, 20], leaf="sentence")
    documents = [Document(content=text, meta={"source_id": name}) for name, text in TEXTS.items()]
    return LeafEmbedder().run(splitter.run(documents)["documents"])["documents"]


@pytest.fixture
def store(leaves: list[Document]) -> InMemoryDocumentStore:
    made = InMemoryDocumentStore()
    made.write_documents(leaves)
    return made


@pytest.fixture(scope="module")
def vector() -> list[float]:
    return QueryEmbedder().run(QUESTION)["embedding"]


def hit(leaves: list[Document], text: str, score: float = 0.5) -> Document:
    return replace(next(leaf for leaf in leaves if text in leaf.content), score=score, embedding=None)


@pytest.mark.parametrize(
    "wrong",
    [{"max_length": 0}, {"reach": -1}, {"scales": [0]}, {"floor": 1.5}, {"order": "best"}, {"section_bonus": -0.1}],
)
def test_wrong_settings_are_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ContextPacker(InMemoryDocumentStore(), **wrong)


def test_it_survives_yaml(store):
    packer = ContextPacker(
        store, 900, length_unit="word", reach=3, scales=(1, 4), lexical_weight=0.5, adjacency_bonus=0.2,
        section_bonus=0.3, floor=0.1, order="source", top_k=4, raise_on_failure=True,
    )  # fmt: skip
    pipeline = Pipeline()
    pipeline.add_component("packer", packer)
    loaded = Pipeline.loads(pipeline.dumps(), allowed_modules=["haystack_adv_retrieval"]).get_component("packer")
    for name in ("max_length", "length_unit", "reach", "scales", "lexical_weight", "adjacency_bonus", "section_bonus"):
        assert getattr(loaded, name) == getattr(packer, name)
    assert (loaded.floor, loaded.order, loaded.top_k, loaded.raise_on_failure) == (0.1, "source", 4, True)


def test_nothing_in_nothing_out(store):
    assert ContextPacker(store).run(query=QUESTION, documents=[])["documents"] == []


@pytest.mark.parametrize("budget", [30, 60, 120, 1000])
def test_spans_are_exact_disjoint_and_within_the_budget(store, leaves, vector, budget):
    hits = [hit(leaves, "14 days", 0.9), hit(leaves, "1911", 0.3), hit(leaves, "Green tea", 0.2)]
    documents = ContextPacker(store, budget).run(QUESTION, hits, vector)["documents"]
    assert sum(len(document.content) for document in documents) <= budget
    seen: set[tuple[str, int]] = set()
    for document in documents:
        span, source = span_of(document.meta), document.meta[SOURCE_ID]
        assert TEXTS[source][span.start : span.end] == document.content
        places = {(source, position) for position in range(*span)}
        assert not places & seen
        seen |= places
    assert [document.score for document in documents] == sorted((d.score for d in documents), reverse=True)


def test_the_evidence_comes_with_what_stands_around_it(store, leaves, vector):
    best = ContextPacker(store, 110).run(QUESTION, [hit(leaves, "14 days")], vector)["documents"][0]
    assert "paid within 14 days" in best.content
    assert "starts when it arrives" in best.content or "receipt" in best.content
    assert best.meta[MATCHED_SPANS][0][2] == 0.5


def test_in_source_order_spans_come_as_they_are_read(store, leaves, vector):
    hits = [hit(leaves, "1911", 0.3), hit(leaves, "receipt", 0.2)]
    packer = ContextPacker(store, 90, order="source", reach=0)
    starts = [span_of(document.meta).start for document in packer.run(QUESTION, hits, vector)["documents"]]
    assert starts == sorted(starts)


def test_one_look_up_serves_all_hits(store, leaves, vector):
    counting = CountingStore(store)
    ContextPacker(counting).run(QUESTION, [hit(leaves, "14 days"), hit(leaves, "Green")], vector)
    assert counting.calls == ["filter_documents"]


def test_words_decide_where_there_are_no_vectors(leaves):
    bare = InMemoryDocumentStore()
    bare.write_documents([replace(leaf, embedding=None) for leaf in leaves])
    documents = ContextPacker(bare, 60).run("weir built", [hit(leaves, "14 days")])["documents"]
    assert "weir was built in 1911" in documents[0].content


def test_hits_without_a_place_follow_as_far_as_they_fit(store, leaves, vector):
    foreign = [Document(content="Foreign. " * 50, score=0.9), Document(content="Short.", score=0.1)]
    documents = ContextPacker(store, 100).run(QUESTION, [*foreign, hit(leaves, "14 days")], vector)["documents"]
    assert foreign[0].id not in {document.id for document in documents}


def test_missing_neighbours_are_skipped_and_told(leaves, vector, caplog):
    lonely = InMemoryDocumentStore()
    found = hit(leaves, "14 days")
    documents = ContextPacker(lonely).run(QUESTION, [found], vector)["documents"]
    assert [document.content for document in documents] == [found.content]
    assert "not in the document store" in caplog.text
    with pytest.raises(RuntimeError, match="does not hold"):
        ContextPacker(lonely, raise_on_failure=True).run(QUESTION, [found], vector)


async def test_async_gives_the_same_and_inputs_stay_as_they_were(store, leaves, vector):
    hits = [hit(leaves, "14 days"), hit(leaves, "Green")]
    before = copy.deepcopy(hits)
    packer = ContextPacker(store)
    sync = packer.run(QUESTION, hits, vector)
    assert await packer.run_async(QUESTION, hits, vector) == sync
    assert hits == before
