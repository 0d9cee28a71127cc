import asyncio
import threading
from dataclasses import replace

import pytest
from haystack import Document
from haystack.components.embedders import MockDocumentEmbedder
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack_integrations.document_stores.qdrant import QdrantDocumentStore
from hypothesis import given, settings
from hypothesis import strategies as st
from index_states import check_trees, sources_in, state_of, texts_in, units_in
from killed_indexer import SectionTitles
from trees import CountingStore

from haystack_adv_retrieval import HierarchicalSplitter, LeafEmbedder, QdrantEdgeDocumentStore, SectionSummarizer
from haystack_adv_retrieval.components import index_diff, index_writer
from haystack_adv_retrieval.components.index_diff import EmbeddingMismatchError
from haystack_adv_retrieval.indexing import run as index_run
from haystack_adv_retrieval.indexing.documents import (
    IndexReport,
    delete_sources,
    index_documents,
    index_documents_async,
)
from haystack_adv_retrieval.indexing.maintenance import PruneReport, prune, status

SPLITTER = HierarchicalSplitter([24, 8])


class Embedder:
    """Embeds without a model, notes what, and fails on demand."""

    model = "noted"

    def __init__(self, fails_on=lambda _text: False):
        self.batches = []
        self.warm_ups = 0
        self.fails_on = fails_on

    def warm_up(self):
        self.warm_ups += 1

    def run(self, documents):
        self.batches.append([document.content for document in documents])
        if any(self.fails_on(document.content) for document in documents):
            raise ConnectionError("no answer")
        return MockDocumentEmbedder(dimension=4).run(documents)


class PlainStore:
    """Has what Haystack's protocol asks for, and nothing else."""

    def __init__(self):
        self._store = InMemoryDocumentStore(shared=False)
        self.count_documents = self._store.count_documents
        self.filter_documents = self._store.filter_documents
        self.write_documents = self._store.write_documents
        self.delete_documents = self._store.delete_documents

    def to_dict(self):
        return {"type": "PlainStore", "init_parameters": {"id": id(self)}}


@pytest.fixture
def store():
    return InMemoryDocumentStore(shared=False)


def documents(**texts):
    return [Document(content=text, meta={"source_id": name.replace("__", "/")}) for name, text in texts.items()]


def numbered(count):
    return [Document(content=f"Note {number}.", meta={"source_id": f"n{number:03}"}) for number in range(count)]


def index(store, given, embedder=None, splitter=SPLITTER, **options):
    return index_documents(given, store, embedder or Embedder(), splitter, **options)


EDITS = st.lists(
    st.dictionaries(
        st.sampled_from("abc"),
        st.lists(st.sampled_from(["One.", "Two and two.", "Three.\n\n", "# Four\n\n", "Five.", " "]), max_size=6).map(
            " ".join
        ),
        min_size=1,
    ),
    min_size=1,
    max_size=4,
)


@given(EDITS)
@settings(max_examples=30)
def test_an_index_that_was_updated_is_as_one_made_afresh(versions):
    updated, fresh = InMemoryDocumentStore(shared=False), InMemoryDocumentStore(shared=False)
    for version in versions:
        index(updated, documents(**version), summarizer=SectionTitles(), delete_missing=True)
        check_trees(updated)
    index(fresh, documents(**versions[-1]), summarizer=SectionTitles())
    assert state_of(updated) == state_of(fresh)
    assert not status(updated).drift
    assert index(updated, documents(**versions[-1]), summarizer=SectionTitles()).skipped == len(versions[-1])


@pytest.mark.parametrize(
    "make", [PlainStore, lambda: QdrantDocumentStore(":memory:", embedding_dim=4)], ids=["protocol only", "Qdrant"]
)
def test_any_document_store_will_do(make):
    store = make()
    report = index(store, documents(a="One two. Three four.", b="Five."), summarizer=SectionTitles())
    assert (report.added, report.failures) == (2, {})
    report = index(store, documents(a="One two. Three five."), summarizer=SectionTitles(), delete_missing=True)
    assert (report.updated, report.deleted, report.failures) == (1, 1, {})
    assert (texts_in(store), sources_in(store)) == (["One two. Three five."], ["a"])
    assert prune(store) == PruneReport()
    assert delete_sources(store, ["a"]) == ["a"]
    assert store.count_documents() == 0


def test_real_embeddings_are_reused_in_the_embedded_store(memory_path):
    store = QdrantEdgeDocumentStore(str(memory_path))
    text = "# Refunds\n\nRefunds take 14 days. A receipt is needed.\n\n# Shipping\n\nShipping is free.\n"
    splitter = HierarchicalSplitter([24, 12], leaf="sentence")
    embedder = LeafEmbedder(meta_fields_to_embed=["headings"])
    index(store, documents(terms=text), embedder, splitter)
    edited = documents(terms=text.replace("free", "cheap"))
    report = index(store, edited, embedder, splitter)
    assert (report.leaves_embedded, report.leaves_reused) == (1, 4)
    leaves = units_in(store, "leaf")
    embedded = {leaf.id: leaf.embedding for leaf in embedder.run(documents=leaves)["documents"]}
    for leaf in leaves:
        assert leaf.embedding == pytest.approx(embedded[leaf.id], abs=1e-5)
    store.close()


def test_what_is_unchanged_is_not_written_and_loads_no_model(store):
    index(store, numbered(5))
    before, counting, embedder = state_of(store), CountingStore(store), Embedder()
    assert index(counting, numbered(5), embedder) == IndexReport(skipped=5)
    assert (embedder.warm_ups, embedder.batches) == (0, [])
    assert set(counting.calls) == {"filter_documents"}
    assert state_of(store) == before


def test_batches_of_the_embedder_span_sources_and_end_at_a_limit(store, monkeypatch):
    monkeypatch.setattr(index_writer, "BATCH_SIZE", 20)
    embedder = Embedder()
    report = index(store, numbered(50), embedder)
    assert (embedder.warm_ups, [len(batch) for batch in embedder.batches]) == (1, [20, 20, 10])
    assert report.leaves_embedded == 50


def test_a_few_changed_sources_among_many_are_embedded_together(store, monkeypatch):
    monkeypatch.setattr(index_run, "MAX_SOURCES", 10)
    index(store, numbered(50))
    changed = [
        replace(document, content="New.") if number % 10 == 0 else document
        for number, document in enumerate(numbered(50))
    ]
    embedder = Embedder()
    assert index(store, changed, embedder).updated == 5
    assert len(embedder.batches) == 1


def test_documents_are_read_as_they_are_needed(store, monkeypatch):
    monkeypatch.setattr(index_run, "MAX_SOURCES", 4)
    read = []

    def stream():
        for document in numbered(40):
            read.append(document)
            yield document

    ahead = []
    index(store, stream(), progress=lambda report: ahead.append(len(read) - report.added))
    assert max(ahead) <= 9


def test_one_long_source_is_embedded_in_parts(store, monkeypatch):
    monkeypatch.setattr(index_writer, "BATCH_SIZE", 10)
    embedder = Embedder()
    index(store, documents(long="\n\n".join(f"Sentence {number}." for number in range(100))), embedder)
    assert max(map(len, embedder.batches)) == 10
    check_trees(store)


def test_progress_is_reported_while_a_run_goes_on(store, monkeypatch):
    monkeypatch.setattr(index_run, "MAX_SOURCES", 2)
    done = []
    index(store, numbered(6), progress=lambda report: done.append((report.added, report.leaves_embedded)))
    assert done == sorted(done)
    assert done[-1] == (6, 6)
    assert len(set(done)) > 3


def test_a_source_that_the_store_refuses_fails_alone_and_keeps_what_was_there(store):
    index(store, documents(a="Old a.", b="Old b."))

    class Picky(CountingStore):
        def write_documents(self, documents, policy):
            if any("refused" in (document.content or "") for document in documents):
                raise ValueError("refused")
            return self.store.write_documents(documents, policy)

    report = index(Picky(store), documents(a="refused", b="New b.", c="New c."))
    assert report.failures == {"a": "ValueError: refused"}
    assert (report.added, report.updated) == (1, 1)
    assert texts_in(store) == ["Old a.", "New b.", "New c."]
    assert index(store, documents(a="New a.", b="New b.", c="New c.")).updated == 1
    assert prune(store) == PruneReport()


def test_a_bad_document_costs_the_others_few_calls_and_nothing_is_counted_twice(store, monkeypatch):
    monkeypatch.setattr(index_writer, "BATCH_SIZE", 50)
    embedder = Embedder("Note 77.".__eq__)
    report = index(store, numbered(200), embedder)
    assert report == IndexReport(added=199, leaves_embedded=199, failures={"n077": "ConnectionError: no answer"})
    assert len(embedder.batches) <= 2 * 8 + 4  # the half with it and the other one, eight times, in batches of 50
    assert len(texts_in(store)) == 199


def test_a_document_that_cannot_be_identified_costs_few_calls_of_the_store(store):
    class Odd:
        def __str__(self):
            raise ValueError("odd")

    given = numbered(200)
    given[77].meta["odd"] = Odd()
    counting = CountingStore(store)
    assert len(index(counting, given).failures) == 1
    assert counting.calls.count("filter_documents") < 40


def test_failures_go_on_as_long_as_the_store_and_the_embedder_work(store):
    report = index(store, numbered(30), Embedder(lambda text: "Note 1" in text or "Note 2" in text))
    assert len(report.failures) == 22
    assert (report.added, report.notes) == (8, [])


def test_a_run_gives_up_when_nothing_works_any_more_and_deletes_nothing(store):
    index(store, documents(old="Old."))
    embedder = Embedder(lambda _text: True)
    report = index(store, numbered(200), embedder, delete_missing=True)
    assert len(report.failures) == 10
    assert [note.split(",")[0] for note in report.notes] == ["Gave up"]
    assert len(embedder.batches) == 25  # halves down to the first source, ten sources and what is between, a probe
    assert sources_in(store) == ["old"]
    assert index(store, numbered(200)).added == 200


def test_a_failure_can_be_raised_instead(store):
    with pytest.raises(ConnectionError):
        index(store, documents(a="Bad.", b="Good."), Embedder("Bad.".__eq__), raise_on_failure=True)
    assert index(store, documents(a="Bad.", b="Good.")).failures == {}


def test_an_embedder_that_leaves_out_what_it_cannot_do_is_noticed(store):
    class Quiet(Embedder):
        def run(self, documents):
            return {"documents": [replace(d, embedding=[1.0] if d.content != "Bad." else None) for d in documents]}

    report = index(store, documents(a="Bad.", b="Good."), Quiet())
    assert report.failures == {"a": "ValueError: There is no embedding for a leaf of 'a'"}
    assert texts_in(store) == ["Good."]


def test_of_two_documents_with_one_identity_the_second_is_reported(store, monkeypatch):
    monkeypatch.setattr(index_run, "MAX_SOURCES", 2)
    given = [*documents(a="First.", b="Other."), *documents(a="Second.")]
    report = index(store, given)
    assert report.failures == {"a": "Several documents have this source_id; only the first was indexed."}
    assert texts_in(store) == ["First.", "Other."]


def test_a_blank_document_takes_the_place_of_what_it_held_before(store):
    index(store, documents(a="Old.", b="Other."))
    assert index(store, documents(a="", b="Other.")).updated == 1
    assert (texts_in(store), sources_in(store)) == (["Other."], ["a", "b"])
    assert index(store, documents(a="", b="Other.")).skipped == 2


def test_metadata_that_is_volatile_makes_no_new_version(store):
    splitter = HierarchicalSplitter([24, 8], volatile_meta_keys=["fetched"])
    given = [Document(content="Plan.", meta={"source_id": "a", "fetched": moment}) for moment in (1, 2)]
    assert index(store, given[:1], splitter=splitter).added == 1
    assert index(store, given[1:], splitter=splitter).skipped == 1


def test_other_settings_of_the_splitter_split_anew_and_embed_only_other_leaves(store):
    index(store, documents(a="One two. Three four five six seven eight nine ten."))
    report = index(
        store,
        documents(a="One two. Three four five six seven eight nine ten."),
        splitter=HierarchicalSplitter([10, 8]),
    )
    assert (report.updated, report.leaves_embedded) == (1, 0)


def test_summaries_are_made_of_changed_sources_alone(store):
    class Summarizer(SectionTitles):
        seen = ()

        def run(self, parents, documents):
            self.seen = [*self.seen, *(parent.meta["source_id"] for parent in parents)]
            assert all(leaf.embedding for leaf in documents)
            return super().run(parents, documents)

    summarizer = Summarizer()
    index(store, documents(a="One.", b="Two."), summarizer=summarizer)
    index(store, documents(a="One.", b="Three."), summarizer=summarizer)
    assert summarizer.seen == ["a", "b", "b"]
    assert [summary.content for summary in units_in(store, "summary")] == ["One.", "Three."]


def test_a_blank_source_is_not_looked_at_again_for_its_summaries(store):
    for summarizer, expected in [
        (SectionSummarizer(), (2, 0, 0)),
        (SectionSummarizer(), (0, 0, 2)),
        (SectionSummarizer(sentences=1), (0, 1, 1)),
    ]:
        report = index(store, documents(a="One.", blank=" "), summarizer=summarizer)
        assert (report.added, report.updated, report.skipped) == expected


def test_other_models_are_refused_before_anything_is_done(store):
    index(store, documents(a="One."))
    before = state_of(store)
    with pytest.raises(ValueError, match="reembed"):
        index(store, documents(b="Two."), MockDocumentEmbedder(dimension=4, model="other"))
    assert state_of(store) == before
    report = index(store, documents(a="One."), MockDocumentEmbedder(dimension=4, model="other"), reembed=True)
    assert (report.updated, report.leaves_embedded) == (1, 1)


def test_another_dimension_of_the_same_model_stops_the_run_at_once(store):
    class Larger(Embedder):
        def run(self, documents):
            return MockDocumentEmbedder(dimension=5).run(documents)

    splitter = HierarchicalSplitter([24, 8], leaf="sentence")
    index(store, documents(a="One. Two."), splitter=splitter)
    for reembed in (False, True):
        with pytest.raises(EmbeddingMismatchError, match=r"\[4, 5\]"):
            index(store, documents(a="One. Three.", b="Four."), Larger(), splitter, reembed=reembed)
        assert sources_in(store) == ["a"]
    assert index(store, documents(a="One. Two."), splitter=splitter).failures == {}
    assert prune(store) == PruneReport()


def test_what_is_missing_is_deleted_within_the_scope_alone(store):
    index(store, documents(x__a="1", x__b="2", y__c="3"))
    report = index(store, documents(x__a="1"), delete_missing=True, scope=["x/"])
    assert (report.deleted, sources_in(store)) == (1, ["x/a", "y/c"])
    assert index(store, documents(x__a="1")).deleted == 0


def test_where_no_document_came_from_nothing_is_deleted_and_the_report_says_so(store):
    index(store, documents(x__a="1", x__b="2", y__c="3"))
    report = index(store, documents(x__a="1"), delete_missing=True, scope=["x/", "y/"])
    assert sources_in(store) == ["x/a", "y/c"]
    assert report.notes == ["There was no document under 'y/': nothing was deleted there."]
    assert index(store, [], delete_missing=True).deleted == 0
    assert index(store, documents(x__a="1"), delete_missing=True, scope=[]).deleted == 0
    assert sources_in(store) == ["x/a", "y/c"]


def test_documents_of_someone_else_are_never_deleted(store):
    foreign = [Document(id="x", meta={"unit": "source"}), Document(id="y", meta={"unit": "source", "source_id": "y"})]
    store.write_documents(foreign)
    index(store, documents(a="1", b="2"))
    assert index(store, documents(a="1"), delete_missing=True).deleted == 1
    assert prune(store) == PruneReport()
    assert {"x", "y"} <= {document.id for document in store.filter_documents()}


def test_what_could_not_be_read_is_kept(store):
    index(store, documents(a="1", b="2", c="3"))
    unreadable = set()

    def stream():
        yield from documents(a="1")
        unreadable.add("b")

    assert index(store, stream(), delete_missing=True, keep=unreadable).deleted == 1
    assert sources_in(store) == ["a", "b"]


def test_sources_that_fail_are_not_missing(store):
    index(store, documents(a="1", b="2"))
    report = index(store, documents(a="Bad.", b="2"), Embedder("Bad.".__eq__), delete_missing=True)
    assert ([*report.failures], report.deleted, texts_in(store)) == (["a"], 0, ["1", "2"])


def test_documents_that_cannot_be_read_on_delete_nothing(store):
    index(store, documents(a="1", b="2"))

    def stream():
        yield from documents(a="changed")
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        index(store, stream(), delete_missing=True)
    assert sources_in(store) == ["a", "b"]
    assert index(store, documents(a="changed", b="2")).failures == {}


def test_deleting_names_what_was_there_and_takes_all_of_it(store):
    index(store, documents(a="One.", b="Two."), summarizer=SectionTitles())
    index(store, documents(a="Red."), splitter=HierarchicalSplitter([24, 8], namespace="red"))
    assert delete_sources(store, ["a", "unknown", "red::a"]) == ["a", "red::a"]
    assert {document.meta["source_id"] for document in store.filter_documents()} == {"b"}
    assert delete_sources(store, []) == []


async def test_async_is_as_sync(store):
    other = InMemoryDocumentStore(shared=False)
    for texts in ({"a": "One.", "b": "Two."}, {"a": "One.", "b": "Three."}, {"b": "Three."}):
        report = await index_documents_async(documents(**texts), other, Embedder(), SPLITTER, delete_missing=True)
        assert report == index(store, documents(**texts), delete_missing=True)
    assert state_of(other) == state_of(store)


async def test_documents_are_read_in_a_thread_by_async_code(store):
    threads = set()

    def stream():
        for document in documents(a="One.", b="Two."):
            threads.add(threading.current_thread())
            yield document

    assert (await index_documents_async(stream(), store, Embedder(), SPLITTER)).added == 2
    assert threading.main_thread() not in threads


async def test_async_runs_on_one_index_take_turns_and_leave_the_event_loop_free(memory_path):
    stores = [QdrantEdgeDocumentStore(str(memory_path)) for _ in range(4)]
    runs = [
        index_documents_async(numbered(20)[: number * 5 + 5], store, Embedder(), SPLITTER, delete_missing=True)
        for number, store in enumerate(stores)
    ]
    reports = await asyncio.gather(*runs)
    assert [report.failures for report in reports] == [{}] * 4
    assert len(sources_in(stores[0])) in (5, 10, 15, 20)
    assert prune(stores[0]) == PruneReport()
    for store in stores:
        store.close()


async def test_a_cancelled_run_lets_the_next_one_in(store):
    class Slow(Embedder):
        async def run_async(self, documents):
            await asyncio.sleep(30)
            return self.run(documents)

    running = asyncio.create_task(index_documents_async(documents(a="One."), store, Slow(), SPLITTER))
    waiting = asyncio.create_task(index_documents_async(documents(a="Two."), store, Slow(), SPLITTER))
    await asyncio.sleep(0.1)
    waiting.cancel()
    running.cancel()
    await asyncio.gather(running, waiting, return_exceptions=True)
    report = await asyncio.wait_for(index_documents_async(documents(a="Three."), store, Embedder(), SPLITTER), 5)
    assert report.added == 1


def test_batches_of_reading_are_bounded(store, monkeypatch):
    for module in (index_diff, index_writer):
        monkeypatch.setattr(module, "BATCH_SIZE", 7)
    text = "\n\n".join(f"Sentence {number}." for number in range(60))
    splitter = HierarchicalSplitter([24, 8], leaf="sentence")
    index(store, documents(a=text), splitter=splitter)
    assert index(store, documents(a=text + " More."), splitter=splitter).leaves_reused == 59
    check_trees(store)
