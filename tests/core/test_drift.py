from hypothesis import given
from hypothesis import strategies as st

from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.drift import (
    EmbeddingSettings,
    audit,
    batches,
    is_current,
    orphans,
    pending,
    same_record,
    tombstone,
)

SETTINGS = EmbeddingSettings("small", ("headings",), ("", "", "\n"))


def record(version: str = "v1", settings: EmbeddingSettings = SETTINGS, **meta):
    return {
        "unit": "source",
        "level": 0,
        "source_id": "terms",
        "source_version": version,
        "level_counts": "1,2",
        "embedding_model": settings.model,
        "embedding_text": settings.text_hash,
        **meta,
    }


def chunk(level: int, split_id: int, version: str = "v1", unit: str | None = None, **meta):
    address = chunks.chunk_id("terms", version, level, split_id)
    common = {"source_id": "terms", "source_version": version, "level": level, "split_id": split_id}
    if unit == "summary":
        return chunks.summary_id(address), common | {"unit": unit}
    parent = {"parent_id": chunks.chunk_id("terms", version, 1, 0)} if level == 2 else {}
    return address, common | {"unit": "leaf" if level == 2 else "block"} | parent | meta


WHOLE = [chunk(1, 0), chunk(2, 0), chunk(2, 1)]


def test_documents_share_a_text_key_exactly_if_they_are_embedded_as_the_same_text():
    def key(content, **meta):
        return SETTINGS.text_key(content, meta)

    assert key("a", headings="h", other=1) == key("a", headings="h", other=2)
    assert key("a", headings="h") != key("a", headings="i")
    assert key("a", headings="h") != key("b", headings="h")
    assert key("a") == key("a", headings=None)
    assert key("ha", headings="") != key("a", headings="h")


def test_settings_differ_in_how_the_text_is_made_by_fields_and_strings():
    different = [
        SETTINGS,
        EmbeddingSettings("small", (), ("", "", "\n")),
        EmbeddingSettings("small", ("headings", "title"), ("", "", "\n")),
        EmbeddingSettings("small", ("headings",), ("query: ", "", "\n")),
        EmbeddingSettings("small", ("headings",), ("", "query: ", "\n")),
        EmbeddingSettings("small", ("headings",), ("", "", " ")),
    ]
    assert len({settings.text_hash for settings in different}) == len(different)
    assert EmbeddingSettings("large", ("headings",), ("", "", "\n")).text_hash == SETTINGS.text_hash


def test_a_source_is_current_only_if_version_embeddings_and_summaries_are_and_nothing_was_interrupted():
    new = record()
    assert is_current(new, record(), SETTINGS, summarized=False)
    assert is_current(new, record(summary_count=0), SETTINGS, summarized=True)
    assert is_current(new, record(summary_count=3), SETTINGS, summarized=False)
    for stored in (None, record("v2"), record(index_pending=True), tombstone(record()), record(settings=OTHER_MODEL)):
        assert not is_current(new, stored, SETTINGS, summarized=False)
    assert not is_current(new, record(), SETTINGS, summarized=True)


OTHER_MODEL = EmbeddingSettings("large", ("headings",), ("", "", "\n"))
OTHER_TEXT = EmbeddingSettings("small", (), ("", "", "\n"))


def test_a_pending_record_still_names_the_version_that_is_whole():
    assert pending(record("v2"), record("v1")) == record("v1", index_pending=True)
    assert pending(record("v2", namespace="red"), None) == {
        "unit": "source",
        "level": 0,
        "source_id": "terms",
        "namespace": "red",
        "index_pending": True,
    }


def test_a_record_whose_embeddings_are_replaced_in_place_names_no_model_meanwhile():
    for settings in (OTHER_MODEL, OTHER_TEXT):
        assert "embedding_model" not in pending(record(settings=settings), record())
    assert pending(record(), record())["embedding_model"] == "small"
    assert pending(record("v2", OTHER_MODEL), record())["embedding_model"] == "small"


def test_records_are_the_same_if_nobody_wrote_in_between():
    assert same_record(None, None)
    assert same_record(record(indexed_at="1"), record(indexed_at="1", color="red"))
    for other in (None, record("v2"), record(indexed_at="2"), record(indexed_at="1", index_pending=True)):
        assert not same_record(record(indexed_at="1"), other)


def test_an_index_in_order_passes_the_audit():
    found = audit([record(summary_count=1)], [*WHOLE, chunk(1, 0, unit="summary")])
    assert (found.stale, found.damaged, found.pending, found.versions) == ([], [], [], 1)
    assert found.counts == {"block": 1, "leaf": 2, "summary": 1}


def test_chunks_of_other_versions_and_of_no_source_are_stale_what_is_searched_first():
    old = [chunk(1, 0, "v0"), chunk(2, 0, "v0"), chunk(1, 0, "v0", unit="summary")]
    found = audit([record()], [*old, *WHOLE])
    assert found.stale == [old[1][0], old[2][0], old[0][0]]
    assert found.versions == 2
    assert audit([tombstone(record())], WHOLE).stale == [WHOLE[1][0], WHOLE[2][0], WHOLE[0][0]]
    assert len(audit([], WHOLE).stale) == 3


def test_sources_that_lack_chunks_or_have_too_many_are_damaged():
    for present in (WHOLE[:2], WHOLE[1:], [*WHOLE, chunk(2, 2)], [*WHOLE, chunk(1, 0, unit="summary")], []):
        assert audit([record()], present).damaged == ["terms"]
    assert audit([record(summary_count=1)], WHOLE).damaged == ["terms"]


def test_interrupted_sources_are_pending():
    assert audit([record(index_pending=True)], WHOLE).pending == ["terms"]
    assert audit([tombstone(record())], []).pending == ["terms"]


def test_what_hangs_on_a_missing_block_is_orphaned_down_to_the_leaves():
    top, middle = chunk(1, 0), chunk(2, 0)
    leaf = ("leaf", {**chunk(3, 0)[1], "unit": "leaf", "parent_id": middle[0]})
    middle[1]["unit"] = "block"
    summaries = [chunk(1, 0, unit="summary"), chunk(2, 0, unit="summary")]
    assert orphans([leaf, middle, top, *summaries]) == []
    assert orphans([leaf, middle, *summaries]) == [summaries[0][0], middle[0], summaries[1][0], "leaf"]
    assert orphans([leaf, top]) == ["leaf"]
    assert orphans([chunk(0, 0, unit="summary")]) == []


@given(st.lists(st.integers(0, 20)), st.integers(1, 30), st.integers(1, 5))
def test_batches_keep_order_and_limits(items, max_weight, max_count):
    grouped = list(batches(items, lambda item: item, max_weight, max_count))
    assert [item for group in grouped for item in group] == items
    for group in grouped:
        assert 1 <= len(group) <= max_count
        assert len(group) == 1 or sum(group) <= max_weight


def test_batches_read_no_further_than_needed():
    read = []
    groups = batches(iter(lambda: read.append(len(read)) or len(read), 100), lambda _: 1, 3, 10)
    assert next(groups) == [1, 2, 3]
    assert len(read) == 4
