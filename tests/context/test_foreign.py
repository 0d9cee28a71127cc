import pytest
from haystack import Document
from haystack.components.preprocessors import DocumentSplitter
from hypothesis import given
from hypothesis import strategies as st

from haystack_adv_retrieval.context.foreign import Place, PlaceKeys, adopt, fuse_adopted
from haystack_adv_retrieval.core.spans import Span

KEYS = PlaceKeys("source_id", "split_id")


def leaves_of(*contents: str, starts: list[int] | None = None) -> dict[int, Document]:
    metas = [{"split_idx_start": start} for start in starts] if starts else [{} for _ in contents]
    return {
        number: Document(id=f"k{number}", content=content, meta={"source_id": "s", "split_id": number} | meta)
        for number, (content, meta) in enumerate(zip(contents, metas, strict=True))
    }


@pytest.mark.parametrize(
    ("meta", "place"),
    [
        ({"source_id": "s", "split_id": 0}, Place("s", 0)),
        ({"source_id": 7, "split_id": 3}, Place(7, 3)),
        ({"source_id": "s"}, None),
        ({"split_id": 1}, None),
        ({"source_id": ["s"], "split_id": 1}, None),
        ({"source_id": "s", "split_id": "1"}, None),
        ({"source_id": "s", "split_id": 1, "source_version": "v"}, None),
    ],
)
def test_the_place_of_a_chunk_is_read_if_it_says_one(meta, place):
    assert KEYS.place_of(Document(content="Text", meta=meta)) == place


def test_one_filter_asks_for_all_neighbours_and_joins_what_overlaps():
    filters = PlaceKeys("file", "ord").filter_around({"a": [3, 4, 9], "b": [0]}, 1)
    asked = [[part["value"] for part in one["conditions"]] for one in filters["conditions"]]
    assert asked == [["a", 2, 5], ["a", 8, 10], ["b", -1, 1]]
    assert [part["field"] for part in filters["conditions"][0]["conditions"]] == ["meta.file", "meta.ord", "meta.ord"]


@given(st.text(min_size=1, max_size=300), st.integers(1, 9), st.integers(0, 8), st.sampled_from(["word", "passage"]))
def test_chunks_of_haystacks_splitter_are_adopted_where_they_say_if_the_text_agrees(text, length, overlap, split_by):
    splitter = DocumentSplitter(split_by=split_by, split_length=length, split_overlap=min(overlap, length - 1))
    found = splitter.run(documents=[Document(content=text)])["documents"]
    leaves, is_known = adopt({chunk.meta["split_id"]: chunk for chunk in found})
    assert is_known or overlap
    for number, leaf in leaves.items():
        start, end = leaf.meta["split_idx_start"], leaf.meta["split_idx_end"]
        if is_known:
            assert text[start:end] == leaf.content == found[number].content
        assert end - start == len(leaf.content)


def test_chunks_that_do_not_say_where_they_start_follow_one_another_with_a_space_between_words():
    leaves, is_known = adopt(leaves_of("One.", "Two. ", "Three."))
    assert not is_known
    assert [leaf.content for leaf in leaves.values()] == ["One. ", "Two. ", "Three."]
    assert [leaf.meta["split_idx_start"] for leaf in leaves.values()] == [0, 5, 10]


@pytest.mark.parametrize("starts", [[0, 6], [0, 3], [5, 0], [0, "4"]])
def test_starts_that_the_texts_contradict_are_not_believed(starts):
    assert not adopt(leaves_of("One.", "Two.", starts=starts))[1]


def test_starts_of_chunks_that_overlap_are_believed_if_the_texts_agree():
    assert adopt(leaves_of("One. Two.", "Two. Three.", starts=[0, 5]))[1]


def test_a_chunk_that_was_not_found_leaves_a_gap():
    found = leaves_of("One.", "Two.", "Three.")
    leaves, _ = adopt({0: found[0], 2: found[2]})
    assert leaves[0].meta["split_idx_end"] < leaves[2].meta["split_idx_start"]


def test_a_fused_document_says_what_is_known_and_nothing_that_was_made_up():
    leaves, _ = adopt(leaves_of("One.", "Two."))
    best = Document(id="k1", content="Two.", meta={"source_id": "s", "split_id": 1, "page": 4})
    fused = fuse_adopted(list(leaves.values()), Span(0, 9), best, "split_id", is_known=False)
    assert (fused.content, fused.meta) == ("One. Two.", {"source_id": "s", "page": 4, "part_ids": ["k0", "k1"]})


def test_a_fused_document_of_known_place_says_it():
    found = leaves_of("One.\f", "Two.", starts=[10, 15])
    found[0].meta["page_number"] = 2
    leaves, is_known = adopt(found)
    fused = fuse_adopted(list(leaves.values()), Span(15, 19), found[1], "split_id", is_known=is_known)
    assert (fused.content, fused.meta["split_idx_start"], fused.meta["split_idx_end"]) == ("Two.", 15, 19)
    assert fused.meta["page_number"] == 3
