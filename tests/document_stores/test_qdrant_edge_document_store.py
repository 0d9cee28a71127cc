"""The embedded store: documents come back as they were, one folder serves all who name it, nothing is lost."""

import asyncio
import math
import os
import subprocess
import sys
import textwrap
import threading
from datetime import UTC, date, datetime

import numpy as np
import pytest
import qdrant_edge as engine
from haystack import Document
from haystack.core.serialization import component_from_dict
from haystack.dataclasses import ByteStream, SparseEmbedding
from haystack.document_stores.errors import DocumentStoreError, DuplicateDocumentError
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.document_stores.types import DuplicatePolicy

from haystack_adv_retrieval.document_stores import qdrant_edge_shards
from haystack_adv_retrieval.document_stores.qdrant_edge_document_store import QdrantEdgeDocumentStore

ScrollRequest = engine.ScrollRequest
YEAR_2020 = {"field": "meta.year", "operator": "==", "value": 2020}


@pytest.fixture(scope="module")
def module_store(tmp_path_factory):
    store = QdrantEdgeDocumentStore(str(tmp_path_factory.mktemp("index")))
    yield store
    store.close()


@pytest.fixture
def store(module_store):
    """An empty store of three-dimensional embeddings, compared by cosine."""
    module_store.delete_all_documents()
    return module_store


def run_child(code, *arguments):
    command = [sys.executable, "-c", PRELUDE + textwrap.dedent(code), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


PRELUDE = """
import os, signal, sys
from haystack import Document
from haystack_adv_retrieval.document_stores.qdrant_edge_document_store import QdrantEdgeDocumentStore
store = QdrantEdgeDocumentStore(sys.argv[1])
"""


# --- what is written is what is read


def test_documents_read_back_as_they_were_written(store):
    documents = [
        Document(content="plain"),
        Document(content="raw numbers", embedding=[0.1, -2.0, 3.3]),
        Document(content="of length one", embedding=[1.0, 0.0, 0.0]),
        Document(content="zeros", embedding=[0.0, 0.0, 0.0]),
        Document(content=None, meta={"only": "meta"}),
        Document(content="", meta={}),
        Document(blob=ByteStream(b"\x00\xff", meta={"a": [1]}, mime_type="x/y")),
        Document(content="sparse", sparse_embedding=SparseEmbedding(indices=[5, 1], values=[0.1, 2.0]), score=0.3),
        Document(content="meta", meta={"n": None, "l": [1, 1.0, True, {"d": []}], "big": 2**70, "f": 1.0, "e": {}}),
        Document(
            id="odd keys", content="keys", meta={"a.b": 1, "": 2, 'q"[]': 3, " ": {"x\0": "\0"}, "ключ": "значение"}
        ),
        Document(
            id="\ud800 id", content="lone \udc00 and split \ud83d\ude00 surrogates \0", meta={"k\ud800": "v\udfff"}
        ),
        Document(content="wide ﬁ 日本語 Ａ e\u0301 \x85\u2028\r\n\t\f"),
    ]
    assert store.write_documents(documents) == len(documents)
    assert store.filter_documents() == documents
    assert store.get_documents_by_id([document.id for document in documents]) == documents
    assert [document.embedding for document in documents[3:5]] == [[0.0, 0.0, 0.0], None]


def test_values_that_json_does_not_know_read_back_as_plain_ones(store):
    meta = {
        "when": datetime(2024, 3, 2, 1, tzinfo=UTC),
        "day": date(2024, 3, 2),
        "float": np.float32(0.5),
        "int": np.int64(7),
        "array": np.array([1, 2]),
        "tuple": (1, "a"),
        "set": {"b", "a"},
    }
    store.write_documents([Document(id="1", meta=meta)])
    assert store.filter_documents({"field": "meta.int", "operator": "==", "value": 7})[0].meta == {
        "when": "2024-03-02T01:00:00+00:00",
        "day": "2024-03-02",
        "float": 0.5,
        "int": 7,
        "array": [1, 2],
        "tuple": [1, "a"],
        "set": ["a", "b"],
    }
    earlier = {"field": "meta.when", "operator": "<", "value": datetime(2024, 3, 2, 2, tzinfo=UTC)}
    assert store.count_documents_by_filter(earlier) == 1


def test_documents_come_in_the_order_of_writing(store):
    ids = [f"{n * 7 % 40}" for n in range(40)]
    store.write_documents([Document(id=name, content=name) for name in ids[:20]])
    store.write_documents([Document(id=name, content=name) for name in ids[20:]])
    assert [document.id for document in store.filter_documents()] == ids


def test_reading_by_id_follows_the_ids(store):
    store.write_documents([Document(id=name, content=name, embedding=[1.0, 0.0, 0.0]) for name in "abc"])
    found = store.get_documents_by_id(["c", "unknown", "a", "c"])
    assert [document.id for document in found] == ["c", "a", "c"]
    assert found[0].embedding == [1.0, 0.0, 0.0]
    assert store.get_documents_by_id(["a"], return_embedding=False)[0].embedding is None
    assert store.get_documents_by_id([]) == []


def test_writing_and_reading_leave_the_caller_s_objects_alone(store):
    document = Document(id="1", content="x", meta={"list": [1]}, embedding=[1.0, 2.0, 3.0])
    before = document.to_dict(flatten=False)
    store.write_documents([document])
    store.filter_documents()[0].meta["list"].append(2)
    assert document.to_dict(flatten=False) == before
    assert store.filter_documents() == [document]


# --- duplicates


@pytest.mark.parametrize("policy", DuplicatePolicy)
@pytest.mark.parametrize("ids", ["ab", "ax", "xx", "aba", ""])
def test_duplicates_are_treated_as_in_memory(store, policy, ids):
    memory = InMemoryDocumentStore(shared=False)
    outcomes = []
    for each in (memory, store):
        each.write_documents([Document(id="x", content="old")])
        try:
            outcome = each.write_documents([Document(id=i, content=f"new {n}") for n, i in enumerate(ids)], policy)
        except DuplicateDocumentError:
            outcome = DuplicateDocumentError
        outcomes.append(outcome)
    assert outcomes[0] == outcomes[1]
    if outcomes[0] is not DuplicateDocumentError:
        assert store.filter_documents() == memory.filter_documents()


def test_nothing_is_written_if_there_is_a_duplicate(store):
    store.write_documents([Document(id="old", content="old")])
    with pytest.raises(DuplicateDocumentError, match="old"):
        store.write_documents([Document(id="new", content="new"), Document(id="old", content="again")])
    assert [document.content for document in store.filter_documents()] == ["old"]


def test_overwriting_replaces_all_of_a_document(store):
    store.write_documents([Document(id="1", content="apple", meta={"year": 2020}, embedding=[1.0, 0.0, 0.0])])
    store.write_documents([Document(id="1", content="pear")], DuplicatePolicy.OVERWRITE)
    assert store.filter_documents() == [Document(id="1", content="pear")]
    assert store.count_documents_by_filter(YEAR_2020) == 0
    assert store.search("apple") == []
    assert store.search(query_embedding=[1.0, 0.0, 0.0]) == []


@pytest.mark.parametrize(
    ("filters", "read"),
    [
        ({"field": "content", "operator": "!=", "value": "b"}, [False, True]),
        ({"field": "embedding", "operator": "==", "value": [3.0, 4.0, 0.0]}, [True, True]),
        (
            {
                "operator": "NOT",
                "conditions": [
                    {"field": "content", "operator": "==", "value": "b"},
                    {"field": "embedding", "operator": "==", "value": None},
                ],
            },
            [True, True],
        ),
        (YEAR_2020, [True]),
    ],
)
def test_embeddings_are_read_of_what_matches_and_else_only_if_the_filter_asks(store, monkeypatch, filters, read):
    store.write_documents(
        [
            Document(id="1", content="a", meta={"year": 2020}, embedding=[3.0, 4.0, 0.0]),
            Document(id="2", content="b", meta={"year": 2021}),
        ]
    )
    asked = []

    def request(*args, **kwargs):
        asked.append(kwargs["with_vector"])
        return ScrollRequest(*args, **kwargs)

    monkeypatch.setattr(engine, "ScrollRequest", request)
    assert [document.embedding for document in store.filter_documents(filters)] == [[3.0, 4.0, 0.0]]
    assert asked == read


# --- changes by filter


def test_updating_merges_metadata_and_keeps_the_rest(store):
    document = Document(id="1", content="apple", meta={"year": 2020, "n": {"a": 1}}, embedding=[3.0, 4.0, 0.0])
    store.write_documents([document, Document(id="2", content="pear", meta={"year": 2021})])
    assert store.update_by_filter(YEAR_2020, {"year": 2022, "seen": True}) == 1
    assert store.get_documents_by_id(["1"]) == [
        Document(id="1", content="apple", meta={"year": 2022, "n": {"a": 1}, "seen": True}, embedding=[3.0, 4.0, 0.0])
    ]
    assert store.count_documents_by_filter(YEAR_2020) == 0
    assert store.search("apple", filters={"field": "meta.seen", "operator": "==", "value": True})[0].id == "1"


def test_updating_leaves_documents_in_their_order(store):
    years = [2020, 2021, 2020, 2021]
    store.write_documents([Document(id=str(n), content="x", meta={"year": year}) for n, year in enumerate(years)])
    store.update_by_filter(YEAR_2020, {"seen": True})
    store.write_documents([Document(id="4", content="x")])
    assert [document.id for document in store.filter_documents()] == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize(
    "nothing", [{}, {"field": "meta.year", "operator": "in", "value": []}, {"operator": "OR", "conditions": []}]
)
def test_an_empty_filter_deletes_nothing(store, nothing):
    store.write_documents([Document(content="a", meta={"year": 2020})])
    assert store.delete_by_filter(nothing) == 0
    assert store.count_documents() == 1


def test_deleting_by_filter_counts(store):
    store.write_documents([Document(content=str(n), meta={"year": 2020 + n % 2}) for n in range(5)])
    assert store.delete_by_filter(YEAR_2020) == 3
    assert store.count_documents() == 2


# --- search


def test_both_searches_are_fused_by_rank(store):
    store.write_documents(
        [
            Document(id="both", content="refund", embedding=[1.0, 0.0, 0.0]),
            Document(id="word", content="refund and other words"),
            Document(id="near", content="nothing", embedding=[0.9, 0.1, 0.0]),
        ]
    )
    hits = store.search("refund", [1.0, 0.0, 0.0], return_embedding=True)
    assert hits[0].id == "both"
    assert [hit.id for hit in hits] == ["both", "near", "word"]
    assert [hit.score for hit in hits] == pytest.approx([2 / 60, 1 / 61, 1 / 61], rel=1e-3)
    assert hits[0].embedding == [1.0, 0.0, 0.0]
    assert store.search("refund", [1.0, 0.0, 0.0], top_k=1)[0].embedding is None


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("4711", ["de"]),
        ("haus", []),
        ("hauser", ["de"]),
        ("HÄUSER", ["de"]),
        ("ha\u0308user", ["de"]),
        ("paying", ["en"]),
        ("東京", ["ja"]),
        ("タワー", ["ja"]),
        ("A-17", ["ja"]),
        ("กรุงเทพ", ["th"]),
        ("the", []),
        ("", []),
        ("?!", []),
        ("\ud800", []),
    ],
)
def test_words_numbers_and_unspaced_scripts_are_found(store, query, found):
    texts = {
        "de": "Die Häuser Nr. 4711",
        "en": "who pays the bill",
        "ja": "東京タワーのＡ−17階",
        "th": "อยู่ที่กรุงเทพมหานคร",
    }
    store.write_documents([Document(id=name, content=text) for name, text in texts.items()])
    assert [hit.id for hit in store.search(query)] == found


def test_scores_are_those_of_the_similarity(tmp_path):
    for similarity, scores in {
        "cosine": {"long": 1.0, "short": 0.6},
        "dot_product": {"long": 10.0, "short": 0.6},
        "euclidean": {"short": np.hypot(0.4, 0.8), "long": 9.0},
    }.items():
        store = QdrantEdgeDocumentStore(str(tmp_path / similarity), similarity=similarity)
        store.write_documents([Document(id="long", embedding=[10.0, 0.0]), Document(id="short", embedding=[0.6, 0.8])])
        hits = store.search(query_embedding=[1.0, 0.0])
        assert {hit.id: pytest.approx(hit.score) for hit in hits} == scores
        assert [hit.id for hit in hits] == list(scores)
        store.close()


def test_searches_see_only_what_the_filter_matches(store):
    store.write_documents(
        [Document(id=str(n), content="word", meta={"year": n}, embedding=[1.0, float(n), 0.0]) for n in range(30)]
    )
    late = {"field": "meta.year", "operator": ">=", "value": 28}
    for query in ({"query": "word"}, {"query_embedding": [1.0, 0.0, 0.0]}):
        assert {hit.id for hit in store.search(**query, filters=late)} == {"28", "29"}
    assert {hit.id for hit in store.search("word", [1.0, 0.0, 0.0], filters=late)} == {"28", "29"}


def test_equal_scores_are_always_ordered_the_same_way(tmp_path):
    documents = [Document(id=f"{n * 7919 % 300}", content="equal", embedding=[1.0, 2.0]) for n in range(300)]
    queries = [{"query": "equal"}, {"query_embedding": [1.0, 2.0]}, {"query": "equal", "query_embedding": [1.0, 2.0]}]
    answers = []
    for name in "ab":
        store = QdrantEdgeDocumentStore(str(tmp_path / name))
        store.write_documents(documents)
        answers += [[[hit.id for hit in store.search(**query)] for query in queries] for _ in range(20)]
        store.close()
    assert all(answer == answers[0] for answer in answers)
    assert all(len(hits) == 10 for hits in answers[0])


def test_search_without_embeddings_in_the_folder(tmp_path):
    store = QdrantEdgeDocumentStore(str(tmp_path))
    assert store.search(query_embedding=[1.0]) == []
    assert store.search("word", [1.0]) == []
    store.write_documents([Document(content="word")])
    assert len(store.search("word", [1.0])) == 1
    store.close()


def test_search_refuses_what_it_cannot_answer(store):
    store.write_documents([Document(content="x", embedding=[1.0, 0.0, 0.0])])
    with pytest.raises(ValueError, match=r"embedding_dim is 3 .* got 2"):
        store.search(query_embedding=[1.0, 0.0])
    with pytest.raises(ValueError, match="query or query_embedding"):
        store.search()
    with pytest.raises(ValueError, match="top_k must be a whole number of at least 1, got 0"):
        store.search("x", top_k=0)


@pytest.mark.parametrize("embedding", [[1.0], [], [float("nan")] * 3, [1e300] * 3])
def test_a_bad_embedding_is_refused_before_anything_is_written(store, embedding):
    store.write_documents([Document(id="0", embedding=[1.0, 0.0, 0.0])])
    with pytest.raises(ValueError, match="embedding"):
        store.write_documents([Document(id="1", content="good"), Document(id="2", embedding=embedding)])
    assert store.count_documents() == 1


# --- the folder


def test_stores_of_one_folder_share_it(tmp_path):
    first, second = QdrantEdgeDocumentStore(str(tmp_path)), QdrantEdgeDocumentStore(f"{tmp_path}/./")
    first.write_documents([Document(content="a")])
    assert second.count_documents() == 1
    first.close()
    first.close()
    second.write_documents([Document(content="b")])
    second.close()
    assert first.count_documents() == 2
    first.close()


def test_a_folder_is_free_again_once_the_last_store_is_closed_or_gone(tmp_path):
    store = QdrantEdgeDocumentStore(str(tmp_path))
    store.write_documents([Document(content="a")])
    other = QdrantEdgeDocumentStore(str(tmp_path))
    other.count_documents()
    busy = run_child("store.count_documents()", tmp_path)
    assert "IndexInUseError" in busy.stderr
    assert f"'{os.path.realpath(tmp_path)}' is open in another process" in busy.stderr
    assert "adv-retrieval serve" in busy.stderr
    store.close()
    del other
    assert run_child("print(store.count_documents())", tmp_path).stdout == "1\n"


def test_the_path_is_looked_up_when_the_folder_is_opened(tmp_path, monkeypatch):
    store = QdrantEdgeDocumentStore()
    monkeypatch.setenv("ADV_RETRIEVAL_INDEX", str(tmp_path / "of environment"))
    store.write_documents([Document(content="a")])
    store.close()
    assert (tmp_path / "of environment" / "shard").is_dir()
    monkeypatch.delenv("ADV_RETRIEVAL_INDEX")
    monkeypatch.chdir(tmp_path)
    assert store.count_documents() == 0
    store.close()
    assert (tmp_path / "index" / "shard").is_dir()


def test_serialization_round_trip_does_not_open_the_folder(tmp_path):
    store = QdrantEdgeDocumentStore(str(tmp_path / "new"), embedding_dim=8, similarity="dot_product", language=None)
    again = QdrantEdgeDocumentStore.from_dict(store.to_dict())
    assert vars(again) == vars(store)
    assert QdrantEdgeDocumentStore().to_dict()["init_parameters"]["path"] is None
    assert component_from_dict(QdrantEdgeDocumentStore, store.to_dict(), "store").similarity == "dot_product"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("parameter", "value"), [("embedding_dim", 0), ("similarity", "manhattan"), ("language", "tlh")]
)
def test_parameters_out_of_range_are_refused(parameter, value):
    with pytest.raises(ValueError, match=rf"{parameter} must be .* got '?{value}"):
        QdrantEdgeDocumentStore(**{parameter: value})


def test_parameters_have_to_agree_with_the_folder(tmp_path):
    QdrantEdgeDocumentStore(str(tmp_path)).write_documents([Document(embedding=[1.0, 0.0])])
    with pytest.raises(ValueError, match=r"embedding_dim is 2 in the index folder .* got 3"):
        QdrantEdgeDocumentStore(str(tmp_path), embedding_dim=3).count_documents()
    with pytest.raises(ValueError, match=r"similarity is 'cosine' in the index folder .* got 'euclidean'"):
        QdrantEdgeDocumentStore(str(tmp_path), similarity="euclidean").count_documents()
    fitting = QdrantEdgeDocumentStore(str(tmp_path), embedding_dim=2)
    assert fitting.count_documents() == 1
    with pytest.raises(ValueError, match="must have one dimension"):
        fitting.write_documents([Document(id="a", embedding=[1.0]), Document(id="b", embedding=[1.0, 0.0])])


def test_a_dimension_given_at_init_holds_from_the_start(tmp_path):
    store = QdrantEdgeDocumentStore(str(tmp_path), embedding_dim=3)
    with pytest.raises(ValueError, match=r"embedding_dim is 3 .* got 2"):
        store.write_documents([Document(embedding=[1.0, 0.0])])
    with pytest.raises(ValueError, match=r"embedding_dim is 3 .* got 2"):
        store.search(query_embedding=[1.0, 0.0])
    store.close()


def test_a_recreated_folder_takes_embeddings_of_another_dimension(tmp_path):
    store, other = QdrantEdgeDocumentStore(str(tmp_path)), QdrantEdgeDocumentStore(str(tmp_path))
    store.write_documents([Document(embedding=[1.0, 0.0])])
    assert other.count_documents() == 1
    store.delete_all_documents(recreate_index=True)
    store.write_documents([Document(id="1", content="word", embedding=[1.0, 0.0, 0.0])])
    assert [hit.id for hit in other.search("word", [1.0, 0.0, 0.0])] == ["1"]
    store.close()
    other.close()


def test_the_folder_remembers_its_language(tmp_path):
    german = QdrantEdgeDocumentStore(str(tmp_path), language="de")
    german.write_documents([Document(id="1", content="Die Häuser am See")])
    german.close()
    store = QdrantEdgeDocumentStore(str(tmp_path))
    assert [hit.id for hit in store.search("haus")] == ["1"]
    store.close()


def test_a_broken_folder_is_named(tmp_path):
    (tmp_path / "shard").mkdir()
    with pytest.raises(DocumentStoreError, match=f"'{tmp_path}' cannot be opened"):
        QdrantEdgeDocumentStore(str(tmp_path)).count_documents()


# --- processes


def test_what_was_written_survives_kill(tmp_path):
    child = run_child(
        """
        from math import cos, sin
        documents = [
            Document(id=str(n), content=f"word{n}", meta={"n": n}, embedding=[cos(n / 900), sin(n / 900)])
            for n in range(900)
        ]
        store.write_documents(documents)
        store.delete_documents(["0"])
        store.update_by_filter({"field": "meta.n", "operator": ">", "value": 890}, {"late": True})
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        tmp_path,
    )
    assert child.returncode == -9, child.stderr
    store = QdrantEdgeDocumentStore(str(tmp_path))
    assert store.count_documents() == 899
    assert [hit.id for hit in store.search("word7")] == ["7"]
    assert store.search(query_embedding=[math.cos(899 / 900), math.sin(899 / 900)], top_k=1)[0].meta == {
        "n": 899,
        "late": True,
    }
    assert store.count_documents_by_filter({"field": "meta.late", "operator": "==", "value": True}) == 9
    store.close()


def test_a_first_open_that_was_killed_leaves_a_folder_that_opens(tmp_path):
    child = run_child(
        """
        import pathlib
        pathlib.Path.rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        store.count_documents()
        """,
        tmp_path,
    )
    assert child.returncode == -9, child.stderr
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["lock", "shard.unfinished"]
    store = QdrantEdgeDocumentStore(str(tmp_path))
    store.write_documents([Document(content="a")])
    assert store.count_documents() == 1
    store.close()


def test_a_forked_child_is_told_that_the_folder_is_in_use(tmp_path):
    child = run_child(
        """
        store.write_documents([Document(content="a")])
        if not (forked := os.fork()):
            try:
                store.count_documents()
            except Exception as error:
                print(type(error).__name__, flush=True)
            store.close()
            os._exit(0)
        os.waitpid(forked, 0)
        print(store.count_documents())
        """,
        tmp_path,
    )
    assert child.stdout == "IndexInUseError\n1\n", child.stderr


# --- threads and tasks


def test_readers_always_see_whole_documents_while_others_write(store):
    def version(number):
        return [
            Document(id=str(n), content=f"version {number}", meta={"version": number}, embedding=[1.0, float(n), 0.0])
            for n in range(50)
        ]

    store.write_documents(version(0))
    failures = []
    done = threading.Event()

    def read():
        while not done.is_set():
            for found in (
                store.get_documents_by_id([str(n) for n in range(50)]),
                store.search("version", [1.0, 0.0, 0.0], top_k=50),
            ):
                if len(found) != 50 or any(hit.content != f"version {hit.meta['version']}" for hit in found):
                    failures.append(found)

    def write(first):
        for number in range(first, first + 10):
            store.write_documents(version(number), DuplicatePolicy.OVERWRITE)

    readers = [threading.Thread(target=read) for _ in range(2)]
    writers = [threading.Thread(target=write, args=(first,)) for first in (1, 100)]
    for thread in readers + writers:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in readers:
        thread.join()
    assert failures == []
    assert store.count_documents() == 50


def test_first_use_by_many_threads_opens_the_folder_once(tmp_path):
    stores = [QdrantEdgeDocumentStore(str(tmp_path)) for _ in range(4)] * 4
    threads = [
        threading.Thread(target=store.write_documents, args=([Document(id=str(n), embedding=[1.0, 0.0])],))
        for n, store in enumerate(stores)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stores[0].count_documents() == len(threads)
    for store in set(stores):
        store.close()
    assert not [folder for _, folder in qdrant_edge_shards._shards if folder == tmp_path]


async def test_concurrent_async_writes_and_searches(store):
    await asyncio.gather(
        *(store.write_documents_async([Document(id=str(n), content=f"word{n}")]) for n in range(20)),
        *(store.search_async("word1") for _ in range(5)),
    )
    assert await store.count_documents_async() == 20
    assert [hit.id for hit in await store.search_async("word7")] == ["7"]
    assert await store.get_documents_by_id_async(["3"]) == store.get_documents_by_id(["3"])


def test_every_method_has_an_async_twin():
    names = {name for name in vars(QdrantEdgeDocumentStore) if not name.startswith("_")}
    sync = {name for name in names if not name.endswith("_async")}
    sync -= {"to_dict", "from_dict", "folder", "scan_documents", "optimize"}
    assert {name for name in sync if f"{name}_async" not in names} == set()


def test_optimizing_changes_nothing_but_speed(tmp_path):
    store = QdrantEdgeDocumentStore(str(tmp_path))
    documents = [Document(id=str(n), content=f"word{n}", meta={"n": n}, embedding=[1.0, float(n)]) for n in range(50)]
    store.write_documents(documents)
    store.delete_documents(["49"])
    store.optimize()
    assert store.filter_documents() == documents[:49]
    assert [hit.id for hit in store.search("word7", filters={"field": "meta.n", "operator": "<", "value": 8})] == ["7"]
    store.close()
