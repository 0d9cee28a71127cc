import asyncio
import threading
import time

import pytest
from haystack import Document
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.utils import Secret
from haystack_integrations.document_stores.qdrant import QdrantDocumentStore

from haystack_adv_retrieval import QdrantEdgeDocumentStore, stores
from haystack_adv_retrieval.calls import drive, drive_async
from haystack_adv_retrieval.stores import delete_by_ids, exclusive, overwrite, scan

DOCUMENTS = [Document(id=str(number), content=f"Note {number}.", meta={"number": number}) for number in range(7)]


@pytest.fixture
def store():
    store = InMemoryDocumentStore(shared=False)
    store.write_documents(DOCUMENTS)
    return store


def test_writing_and_deleting_go_in_batches_and_in_order(store, monkeypatch):
    monkeypatch.setattr(stores, "BATCH_SIZE", 3)
    steps = overwrite(store, DOCUMENTS)
    assert [[document.id for document in call.kwargs["documents"]] for call in steps] == [
        ["0", "1", "2"],
        ["3", "4", "5"],
        ["6"],
    ]
    drive(overwrite(store, DOCUMENTS))
    drive(delete_by_ids(store, ["1", "unknown", "2", "5"]))
    assert [document.id for document in store.filter_documents()] == ["0", "3", "4", "6"]
    assert [*overwrite(store, []), *delete_by_ids(store, [])] == []


def test_a_scan_finds_what_a_filter_finds_without_its_embeddings_where_it_is_in_pages(store, memory_path, monkeypatch):
    monkeypatch.setattr("haystack_adv_retrieval.document_stores.qdrant_edge_document_store.SCAN_SIZE", 2)
    embedded = QdrantEdgeDocumentStore(str(memory_path))
    embedded.write_documents([Document(id="v", content="Embedded.", embedding=[0.0, 1.0]), *DOCUMENTS])
    big = {"field": "meta.number", "operator": ">", "value": 2}
    for some in (store, embedded):
        assert {document.id for document in scan(some, big)} == {"3", "4", "5", "6"}
        assert list(scan(some, {"field": "meta.number", "operator": ">", "value": 9})) == []
    assert len(list(scan(embedded, None))) == 8
    assert all(document.embedding is None for document in scan(embedded, None))
    embedded.close()


def test_one_at_a_time_changes_an_index(store):
    inside, most = [], []

    def change():
        def steps():
            with (yield from exclusive(store)):
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.01)
                inside.pop()

        drive(steps())

    threads = [threading.Thread(target=change) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 5


async def test_whoever_came_first_is_next_and_who_gives_up_is_no_hindrance(store):
    entered = []

    async def change(number):
        with await drive_async(exclusive(store)):
            entered.append(number)

    with await drive_async(exclusive(store)):
        waiting = []
        for number in range(6):
            waiting.append(asyncio.create_task(change(number)))
            await asyncio.sleep(0)
        waiting[2].cancel()
        await asyncio.sleep(0.05)
        assert entered == []
    await asyncio.wait(waiting)
    assert entered == [0, 1, 3, 4, 5]


def test_an_error_lets_the_next_one_in(store):
    def steps():
        with (yield from exclusive(store)):
            raise ValueError("inside")

    for _ in range(2):
        with pytest.raises(ValueError, match="inside"):
            drive(steps())


async def test_a_store_with_a_secret_has_a_lock_of_its_own():
    def store():
        return QdrantDocumentStore(":memory:", api_key=Secret.from_token("secret"))

    one, other = store(), store()
    with (
        await drive_async(exclusive(one)),
        await asyncio.wait_for(drive_async(exclusive(other)), 5),
        pytest.raises(asyncio.TimeoutError),
    ):
        await asyncio.wait_for(drive_async(exclusive(one)), 0.1)


async def test_stores_of_one_folder_share_a_lock_and_others_do_not(memory_path):
    one, same, other = (QdrantEdgeDocumentStore(str(memory_path / name)) for name in ("one", "./one", "other"))
    with await drive_async(exclusive(one)):
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(drive_async(exclusive(same)), 0.1)
        with await asyncio.wait_for(drive_async(exclusive(other)), 5):
            pass
    with await asyncio.wait_for(drive_async(exclusive(same)), 5):
        pass
    for store in (one, same, other):
        store.close()
