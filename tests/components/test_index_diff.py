import copy

import pytest
from haystack import Document
from haystack.components.embedders import MockDocumentEmbedder
from haystack.document_stores.in_memory import InMemoryDocumentStore
from index_states import state_of
from trees import summary_of, through_yaml

from haystack_adv_retrieval import HierarchicalSplitter, LeafEmbedder
from haystack_adv_retrieval.components.index_diff import IndexDiff
from haystack_adv_retrieval.components.index_writer import IndexWriter
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.models import DEFAULT_EMBEDDING_MODEL

TEXT = "# Refunds\n\nRefunds take 14 days. A receipt is needed.\n\n# Shipping\n\nShipping is free. It takes two days.\n"


@pytest.fixture
def store():
    return InMemoryDocumentStore(shared=False)


def split(text=TEXT, source_id="terms", sizes=(16, 6), **meta):
    splitter = HierarchicalSplitter(sizes, leaf="sentence")
    return splitter.run(documents=[Document(content=text, meta={"source_id": source_id, **meta})])


def embedder_of(**options):
    return MockDocumentEmbedder(dimension=4, **options)


def index(store, given, embedder, **options):
    """Compare and write; return what was embedded."""
    changes = IndexDiff(store, embedder, **options).run(**given)
    embedded = embedder.run(documents=changes["to_embed"])["documents"]
    IndexWriter(store).run(documents=embedded, plan=changes["plan"])
    return contents(embedded)


def contents(documents):
    return [document.content.strip() for document in documents]


def test_everything_of_a_new_source_is_to_be_embedded_and_written(store):
    given = split()
    changes = IndexDiff(store, embedder_of()).run(**given)
    assert changes["to_embed"] == given["documents"]
    assert changes["plan"]["parents"] == given["parents"]
    assert [record.meta["embedding_model"] for record in changes["plan"]["records"]] == ["mock-model"]
    assert changes["plan"]["reused"] == []
    assert store.count_documents() == 0


def test_no_documents_are_no_work(store):
    assert IndexDiff(store, embedder_of()).run(documents=[], parents=[], sources=[])["to_embed"] == []


def test_an_unchanged_source_is_no_work(store):
    index(store, split(), embedder_of())
    changes = IndexDiff(store, embedder_of()).run(**split())
    assert changes["to_embed"] == []
    assert changes["plan"] == {
        "records": [],
        "stored": {},
        "parents": [],
        "reused": [],
        "embedding_ids": {},
        "obsolete": {},
        "skipped": 1,
        "reembed": False,
    }


def test_only_leaves_with_new_text_are_embedded_wherever_the_others_went(store):
    index(store, split(), embedder_of())
    refunds, shipping = TEXT.split("\n\n# ")
    moved = f"# {shipping.replace('two', 'three')}\n{refunds}\n\n"
    changes = IndexDiff(store, embedder_of()).run(**split(moved))
    assert contents(changes["to_embed"]) == ["It takes three days."]
    assert len(changes["plan"]["reused"]) == len(split(moved)["documents"]) - 1
    assert all(document.embedding is None for document in changes["plan"]["reused"])
    old = {document.id: document.content for document in split()["documents"]}
    for leaf in changes["plan"]["reused"]:
        assert old[changes["plan"]["embedding_ids"][leaf.id]] == leaf.content


def test_embedded_metadata_is_part_of_the_text(store):
    embedder = embedder_of(meta_fields_to_embed=["headings"])
    index(store, split(), embedder)
    renamed = TEXT.replace("# Shipping", "# Delivery")
    assert index(store, split(renamed), embedder) == ["# Delivery", "Shipping is free.", "It takes two days."]


def test_other_metadata_is_not(store):
    index(store, split(color="red"), embedder_of(meta_fields_to_embed=["headings"]))
    assert index(store, split(color="blue"), embedder_of(meta_fields_to_embed=["headings"])) == []
    assert {document.meta["color"] for document in store.filter_documents()} == {"blue"}


def test_the_same_text_in_another_source_is_embedded_for_itself(store):
    index(store, split(), embedder_of())
    assert len(index(store, split(source_id="copy"), embedder_of())) == len(split()["documents"])


@pytest.mark.parametrize(
    "options",
    [{"prefix": "passage: "}, {"suffix": "!"}, {"embedding_separator": " "}, {"meta_fields_to_embed": ["headings"]}],
)
def test_another_way_to_make_the_embedded_text_embeds_everything_again(store, options):
    index(store, split(), embedder_of())
    assert len(index(store, split(), embedder_of(**options))) == len(split()["documents"])
    fresh = InMemoryDocumentStore(shared=False)
    index(fresh, split(), embedder_of(**options))
    assert state_of(store) == state_of(fresh)


def test_embeddings_of_another_model_are_refused_by_both_names_also_for_other_sources(store):
    index(store, split(), embedder_of(model="small"))
    for source_id in ("terms", "another"):
        with pytest.raises(ValueError, match=r"'small' \(1 sources\), not of 'large'.*reembed=True"):
            IndexDiff(store, embedder_of(model="large")).run(**split(source_id=source_id))


def test_embeddings_of_another_model_are_replaced_on_demand(store):
    index(store, split(), embedder_of(model="small"))
    large = embedder_of(model="large", prefix="L")
    changes = IndexDiff(store, large).run(**split(), reembed=True)
    assert len(changes["to_embed"]) == len(split()["documents"])
    assert len(index(store, split(), large, reembed=True)) == len(split()["documents"])
    assert index(store, split(), large) == []


def test_the_name_of_the_model_can_be_given(store):
    index(store, split(), embedder_of(), embedding_model="house blend")
    record = store.filter_documents({"field": "meta.unit", "operator": "==", "value": "source"})[0]
    assert record.meta["embedding_model"] == "house blend"
    assert record.meta["embedding_dim"] == 4


def test_the_default_model_has_the_same_name_wherever_its_weights_are():
    assert IndexDiff(InMemoryDocumentStore(), LeafEmbedder()).settings.model == DEFAULT_EMBEDDING_MODEL


def test_an_embedder_that_does_not_say_its_model_is_refused():
    class Nameless:
        def run(self, documents):
            return {"documents": documents}

    with pytest.raises(ValueError, match=r"embedding_model must be given, as Nameless"):
        IndexDiff(InMemoryDocumentStore(), Nameless())


def with_summaries(given, words):
    sections = [parent for parent in given["parents"] if parent.meta[chunks.LEVEL] == 1]
    return given | {"summaries": [summary_of(section, f"{words} {section.content[:12]}") for section in sections]}


def test_summaries_are_embedded_once_and_go_with_their_section(store):
    count = len(with_summaries(split(), "About")["summaries"])
    assert len(index(store, with_summaries(split(), "About"), embedder_of())) == len(split()["documents"]) + count
    edited = split(TEXT.replace("free", "cheap"))
    assert index(store, with_summaries(edited, "About"), embedder_of()) == ["Shipping is cheap."]
    assert len(store.filter_documents({"field": "meta.unit", "operator": "==", "value": "summary"})) == count


def test_a_source_without_summaries_is_not_current_once_there_are_to_be_some(store):
    index(store, split(), embedder_of())
    assert index(store, with_summaries(split(), "About"), embedder_of()) == [
        summary.content.strip() for summary in with_summaries(split(), "About")["summaries"]
    ]
    assert index(store, split(), embedder_of()) == []


def test_a_summary_whose_id_does_not_follow_from_its_section_is_refused(store):
    given = split()
    stray = Document(content="About.", meta=given["parents"][0].meta | {"unit": "summary"})
    with pytest.raises(ValueError, match="The id of a summary"):
        IndexDiff(store, embedder_of()).run(**given, summaries=[stray])


def test_inputs_and_store_stay_as_they_are(store):
    index(store, split(), embedder_of())
    given = with_summaries(split("New text here."), "About")
    before, stored = copy.deepcopy(given), copy.deepcopy(store.filter_documents())
    IndexDiff(store, embedder_of()).run(**given)
    assert given == before
    assert store.filter_documents() == stored


async def test_async_is_as_sync(store):
    index(store, split(), embedder_of())
    diff = IndexDiff(store, embedder_of())
    given = split(TEXT.replace("free", "cheap"))
    assert await diff.run_async(**given) == diff.run(**given)
    with pytest.raises(ValueError, match="reembed"):
        await IndexDiff(store, embedder_of(model="large")).run_async(**given)


def test_an_embedder_survives_yaml_that_cannot_serialize_itself():
    loaded = through_yaml(IndexDiff(InMemoryDocumentStore(), LeafEmbedder(meta_fields_to_embed=["headings"])))
    assert loaded.embedder.meta_fields_to_embed == ["headings"]


def test_parameters_survive_yaml():
    embedder = embedder_of(model="small", prefix="p: ", meta_fields_to_embed=["headings"])
    diff = IndexDiff(InMemoryDocumentStore(index="yaml"), embedder, embedding_model="house blend", reembed=True)
    loaded = through_yaml(diff)
    assert (loaded.document_store.index, loaded.reembed, loaded.settings) == ("yaml", True, diff.settings)
