import copy
from dataclasses import replace

import pytest
from haystack import Document, Pipeline, component
from haystack.components.embedders import MockDocumentEmbedder
from haystack.core.errors import PipelineRuntimeError
from haystack.document_stores.in_memory import InMemoryDocumentStore
from index_states import check_trees, sources_in, state_of, texts_in
from trees import CountingStore, through_yaml

from haystack_adv_retrieval import HierarchicalSplitter, QdrantEdgeDocumentStore
from haystack_adv_retrieval.components.index_diff import IndexDiff
from haystack_adv_retrieval.components.index_writer import IndexWriter
from haystack_adv_retrieval.indexing.maintenance import PruneReport, prune

EMBEDDER = MockDocumentEmbedder(dimension=4)


@pytest.fixture(params=["memory", "embedded"])
def store(request, memory_path):
    store = (
        InMemoryDocumentStore(shared=False)
        if request.param == "memory"
        else QdrantEdgeDocumentStore(str(memory_path / "index"))
    )
    yield store
    if hasattr(store, "close"):
        store.close()


def split(*texts, sizes=(12, 6)):
    documents = [Document(content=text, meta={"source_id": f"s{number}"}) for number, text in enumerate(texts)]
    return HierarchicalSplitter(sizes).run(documents=documents)


def compare(store, *texts, **options):
    """Everything that the writer gets."""
    changes = IndexDiff(store, EMBEDDER).run(**split(*texts, **options))
    return {"documents": EMBEDDER.run(documents=changes["to_embed"])["documents"], "plan": changes["plan"]}


def test_what_is_written_is_reported_and_in_the_store(store):
    report = IndexWriter(store).run(**compare(store, "One two three. Four five six seven.", "Other."))["report"]
    assert report == {
        "added": 2,
        "updated": 0,
        "skipped": 0,
        "leaves_embedded": 3,
        "leaves_reused": 0,
        "failures": {},
    }
    check_trees(store)
    assert texts_in(store, "s0") == ["One two three.", "Four five six seven."]
    report = IndexWriter(store).run(**compare(store, "One two three. Four five seven eight.", "Other."))["report"]
    assert report == {
        "added": 0,
        "updated": 1,
        "skipped": 1,
        "leaves_embedded": 1,
        "leaves_reused": 1,
        "failures": {},
    }
    check_trees(store)
    assert prune(store) == PruneReport()


def test_nothing_to_write_is_no_call_of_the_store(store):
    IndexWriter(store).run(**compare(store, "One."))
    counting = CountingStore(store)
    IndexWriter(counting).run(**compare(store, "One."))
    assert counting.calls == []


def test_other_settings_of_the_splitter_replace_all_levels(store):
    IndexWriter(store).run(**compare(store, "One two three. Four five six seven."))
    IndexWriter(store).run(**compare(store, "One two three. Four five six seven.", sizes=(12, 2)))
    assert texts_in(store) == ["One two", "three.", "Four five", "six seven."]
    check_trees(store)
    assert prune(store) == PruneReport()


def test_a_source_that_became_blank_has_no_chunks_left(store):
    IndexWriter(store).run(**compare(store, "One two three.", "Other."))
    IndexWriter(store).run(**compare(store, " \n ", "Other."))
    assert texts_in(store) == ["Other."]
    assert sources_in(store) == ["s0", "s1"]
    assert prune(store) == PruneReport()


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda documents: documents[1:], id="left out"),
        pytest.param(lambda documents: [replace(documents[0], embedding=None), *documents[1:]], id="not embedded"),
    ],
)
def test_a_source_without_all_its_embeddings_fails_alone(store, spoil):
    IndexWriter(store).run(**compare(store, "Old."))
    given = compare(store, "New one. And another of six words here.", "Other.")
    report = IndexWriter(store).run(documents=spoil(given["documents"]), plan=given["plan"])["report"]
    assert report["failures"] == {"s0": "the embedder gave no embedding"}
    assert report["added"] == 1
    assert texts_in(store) == ["Old.", "Other."]
    assert prune(store) == PruneReport()


def test_a_plan_that_another_run_has_overtaken_is_refused(store):
    mine, other = compare(store, "Mine."), compare(store, "Other.")
    IndexWriter(store).run(**other)
    before = state_of(store)
    with pytest.raises(RuntimeError, match="'s0' was changed in the index by another run"):
        IndexWriter(store).run(**mine)
    assert state_of(store) == before


def test_embeddings_of_another_dimension_are_refused(store):
    IndexWriter(store).run(**compare(store, "One."))
    changes = IndexDiff(store, EMBEDDER).run(**split("One.", "Two."))
    embedded = MockDocumentEmbedder(dimension=5).run(documents=changes["to_embed"])["documents"]
    with pytest.raises(ValueError, match=r"dimensions \[4, 5\]"):
        IndexWriter(store).run(documents=embedded, plan=changes["plan"])
    assert sources_in(store) == ["s0"]


def test_inputs_stay_as_they_are(store):
    IndexWriter(store).run(**compare(store, "One two three. Four five six seven."))
    given = compare(store, "One two three. Four five six eight.")
    before = copy.deepcopy(given)
    IndexWriter(store).run(**given)
    assert given == before


async def test_async_is_as_sync(store):
    fresh = InMemoryDocumentStore(shared=False)
    for text in ("One two three. Four five six seven.", "One two three. Four five six eight."):
        assert await IndexWriter(store).run_async(**compare(store, text)) == IndexWriter(fresh).run(
            **compare(fresh, text)
        )
    assert state_of(store) == state_of(fresh)


@component
class ColdEmbedder:
    """A model that has to be warmed up first, and counts how often it was."""

    model = "cold"
    warm_ups = 0

    def warm_up(self):
        self.warm_ups += 1

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]):
        if not self.warm_ups:
            raise RuntimeError("not warmed up")
        return {"documents": EMBEDDER.run(documents=documents)["documents"]}


def pipeline_of(store, embedder):
    pipeline = Pipeline()
    pipeline.add_component("splitter", HierarchicalSplitter([12, 6]))
    pipeline.add_component("diff", IndexDiff(store, embedder))
    pipeline.add_component("embedder", embedder)
    pipeline.add_component("writer", IndexWriter(store))
    pipeline.connect("splitter.documents", "diff.documents")
    pipeline.connect("splitter.parents", "diff.parents")
    pipeline.connect("splitter.sources", "diff.sources")
    pipeline.connect("diff.to_embed", "embedder.documents")
    pipeline.connect("diff.plan", "writer.plan")
    pipeline.connect("embedder.documents", "writer.documents")
    return pipeline


def test_a_pipeline_loaded_from_yaml_indexes_and_warms_its_embedder_up_once():
    store = InMemoryDocumentStore(index="pipeline from yaml")
    text = pipeline_of(store, ColdEmbedder()).dumps()
    pipeline = Pipeline.loads(text, allowed_modules=["haystack_adv_retrieval", __name__])
    document = Document(content="One two three. Four five six seven.", meta={"source_id": "s"})
    assert pipeline.run({"documents": [document]})["writer"]["report"]["added"] == 1
    assert pipeline.get_component("embedder").warm_ups == 1
    assert pipeline.get_component("diff").embedder.warm_ups == 0
    assert pipeline.run({"documents": [document]})["writer"]["report"]["skipped"] == 1
    check_trees(store)
    store.delete_all_documents()


async def test_a_pipeline_indexes_asynchronously(store):
    pipeline = pipeline_of(store, MockDocumentEmbedder(dimension=4))
    document = Document(content="One two three.", meta={"source_id": "s"})
    assert (await pipeline.run_async({"documents": [document]}))["writer"]["report"]["added"] == 1
    changed = replace(document, content="One two four.")
    assert (await pipeline.run_async({"documents": [changed]}))["writer"]["report"]["updated"] == 1
    assert texts_in(store) == ["One two four."]


def test_a_failing_embedder_fails_the_pipeline_before_anything_is_written():
    store = InMemoryDocumentStore(shared=False)
    embedder = ColdEmbedder()
    embedder.warm_up = lambda: None
    with pytest.raises(PipelineRuntimeError, match="not warmed up"):
        pipeline_of(store, embedder).run({"documents": [Document(content="One.", meta={"source_id": "s"})]})
    assert store.count_documents() == 0


def test_parameters_survive_yaml():
    assert through_yaml(IndexWriter(InMemoryDocumentStore(index="yaml"))).document_store.index == "yaml"
