import asyncio
import copy
import logging
from dataclasses import replace

import pytest
from haystack import Document, Pipeline
from haystack.components.preprocessors import DocumentSplitter, HierarchicalDocumentSplitter
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.document_stores.in_memory import InMemoryDocumentStore
from hypothesis import given
from hypothesis import strategies as st
from trees import (
    TEXTS,
    characters_of,
    edge_store_of,
    hits_of,
    scored,
    spans_of,
    store_of,
    summary_of,
    through_yaml,
    tree_of,
    trees,
)

from haystack_adv_retrieval import ParentExpander, SentenceWindowExpander
from haystack_adv_retrieval.context.budgets import length_of
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.sentences import sentence_spans
from haystack_adv_retrieval.core.spans import Span

SENTENCES = [
    "Refunds are possible within 30 days. ",
    "A receipt is needed. ",
    "Shipping costs are not refunded. ",
    "The money arrives within 14 days. ",
    "Sale items are exempt.",
]
TEXT = "".join(SENTENCES)
PAGES = "One starts here. Two follows.\fThree is on page two. Four too.\n\n# Five\n\nSix is in a section."


@pytest.fixture
def tree():
    return tree_of(TEXT, block_sizes=[16, 8])


def leaf(tree, words):
    return next(one for one in tree.leaves if words in one.content)


def contents(results):
    return [result.content for result in results]


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("window_size", -1),
        ("unit", "word"),
        ("within", "chapter"),
        ("top_k", 0),
        ("max_length", True),
        ("length_unit", "page"),
    ],
)
def test_a_parameter_out_of_range_is_refused_by_name_and_value(parameter, value):
    with pytest.raises(ValueError, match=f"{parameter} .*{value!r}"):
        SentenceWindowExpander(InMemoryDocumentStore(), **{parameter: value})


@pytest.mark.parametrize(("parameter", "value"), [("window_size", -1), ("top_k", 0), ("max_length", 0)])
def test_a_run_argument_out_of_range_is_refused(tree, parameter, value):
    with pytest.raises(ValueError, match=parameter):
        SentenceWindowExpander(store_of(tree.all)).run(documents=tree.leaves[:1], **{parameter: value})


def test_settings_survive_yaml():
    settings = {
        "window_size": 3,
        "unit": "sentence",
        "within": "page",
        "top_k": 2,
        "max_length": 70,
        "length_unit": "token",
        "language": "de",
        "source_id_meta_key": "file",
        "split_id_meta_key": "ord",
        "raise_on_failure": True,
    }
    restored = through_yaml(SentenceWindowExpander(InMemoryDocumentStore(), **settings))
    assert {name: getattr(restored, name) for name in settings} == settings


def test_no_hits_give_no_results_and_no_store_call():
    store = store_of([])
    assert SentenceWindowExpander(store).run(documents=[]) == {"documents": []}
    assert store.calls == []


@pytest.mark.parametrize(("size", "first", "last"), [(0, 2, 2), (1, 1, 3), (2, 0, 4), (9, 0, 4)])
@pytest.mark.parametrize("unit", ["leaf", "sentence"])
def test_a_hit_comes_with_its_neighbours(tree, size, first, last, unit):
    store = store_of(tree.all)
    [hit] = scored(leaf(tree, "not refunded"))
    expander = SentenceWindowExpander(store, window_size=size, unit=unit)
    [result] = expander.run(documents=[hit])["documents"]
    assert result.content == "".join(SENTENCES[first : last + 1])
    assert result.score == 0.9
    assert result.meta[chunks.MATCHED_SPANS] == [[*spans_of([hit])[0], 0.9]]
    assert result.meta[chunks.PART_IDS] == [one.id for one in tree.leaves[first : last + 1]]
    assert (result.meta[chunks.LEAF_START], result.meta[chunks.LEAF_END]) == (first, last + 1)
    assert len(store.calls) == (1 if size else 0)


def test_the_size_of_a_run_overrides_that_of_init(tree):
    expander = SentenceWindowExpander(store_of(tree.all), window_size=1)
    [result] = expander.run(documents=[leaf(tree, "not refunded")], window_size=0)["documents"]
    assert result.content == SENTENCES[2]


def test_windows_that_overlap_or_touch_fuse_and_keep_the_best_score():
    tree = tree_of(" ".join(f"This is number {number}." for number in range(12)))
    hits = scored(*(tree.leaves[number] for number in (8, 2, 5)))
    store = store_of(tree.all)
    [result] = SentenceWindowExpander(store, window_size=1).run(documents=hits)["documents"]
    assert result.content == "".join(contents(tree.leaves[1:10]))
    assert result.score == 0.9
    assert [score for *_, score in result.meta[chunks.MATCHED_SPANS]] == [0.9, 0.8, 0.7]
    assert set(result.meta[chunks.EXPANDED_FROM]) == {hit.id for hit in hits}
    apart = [tree.leaves[2], tree.leaves[9]]
    results = SentenceWindowExpander(store, window_size=1).run(documents=scored(*apart[::-1]))["documents"]
    assert [spans_of([result])[0].start for result in results] == [
        tree.leaves[8].meta[chunks.START],
        tree.leaves[1].meta[chunks.START],
    ]


def test_the_metadata_is_that_of_the_best_hit():
    tree = tree_of(PAGES)
    six, four = scored(leaf(tree, "Six"), leaf(tree, "Four"))
    store = store_of(tree.all)
    [result] = SentenceWindowExpander(store, window_size=1).run(documents=[four, six])["documents"]
    assert result.meta[chunks.HEADINGS] == "Five"
    assert result.meta[chunks.PAGE] == 2


def test_windows_cross_sections_but_not_sources():
    one, other = tree_of(PAGES, "one"), tree_of(PAGES, "other")
    hits = scored(leaf(one, "Six"), leaf(other, "Six"))
    results = SentenceWindowExpander(store_of([*one.all, *other.all]), window_size=2).run(documents=hits)["documents"]
    assert contents(results) == ["Four too.\n\n# Five\n\nSix is in a section."] * 2
    assert [result.meta[chunks.SOURCE_ID] for result in results] == ["one", "other"]
    assert results[0].id != results[1].id


def test_a_window_can_be_kept_within_the_parent_or_the_page():
    tree = tree_of(PAGES, block_sizes=[16, 8])
    store = store_of(tree.all)
    four = leaf(tree, "Four")
    for within, expected in (
        ("source", PAGES),
        ("parent", tree.parent_of(four).content),
        ("page", PAGES[PAGES.index("Three") :]),
    ):
        [result] = SentenceWindowExpander(store, 9, within=within).run(documents=[four])["documents"]
        assert result.content == expected
        assert chunks.MISSING not in result.meta


def test_a_block_is_widened_within_its_own_parent():
    tree = tree_of(PAGES + " " + TEXT, block_sizes=[40, 16, 5])
    block = next(one for one in tree.level(2) if chunks.PARENT_ID in one.meta and one.meta[chunks.SPLIT_ID] == 1)
    [result] = SentenceWindowExpander(store_of(tree.all), 99, within="parent").run(documents=[block])["documents"]
    assert result.content == tree.parent_of(block).content


def test_sentences_are_counted_where_leaves_hold_several():
    tree = tree_of(TEXT, block_sizes=[60, 12], leaf="chunk")
    assert len(tree.leaves) < len(SENTENCES)
    hit = leaf(tree, "arrives")
    [result] = SentenceWindowExpander(store_of(tree.all), 1, unit="sentence").run(documents=[hit])["documents"]
    sentences = sentence_spans(TEXT)
    touched = [number for number, span in enumerate(sentences) if span.overlaps(spans_of([hit])[0])]
    first, last = max(0, touched[0] - 1), min(len(sentences), touched[-1] + 2)
    assert result.content == "".join(SENTENCES[first:last])
    assert TEXT[slice(*spans_of([result])[0])] == result.content


def test_a_missing_neighbour_ends_the_window_on_its_side_and_is_named(tree, caplog):
    gone = tree.leaves[1].id
    store = store_of(one for one in tree.all if one.id != gone)
    with caplog.at_level(logging.WARNING):
        [result] = SentenceWindowExpander(store, 2).run(documents=[tree.leaves[2]])["documents"]
    assert result.content == "".join(SENTENCES[2:])
    assert result.meta[chunks.MISSING] == [gone]
    assert len(caplog.records) == 1
    assert gone in caplog.text


def test_the_end_of_a_source_is_no_missing_neighbour(tree, caplog):
    [result] = SentenceWindowExpander(store_of(tree.all), 3).run(documents=[tree.leaves[0]])["documents"]
    assert chunks.MISSING not in result.meta
    assert not caplog.records


def test_a_hit_without_a_place_passes_through_with_one_warning(tree, caplog):
    plain = Document(id="plain", content="On its own.", meta={"tags": ["a"]})
    empty = replace(leaf(tree, "receipt"), id="empty", content=None)
    hits = scored(plain, leaf(tree, "exempt"), empty)
    with caplog.at_level(logging.WARNING):
        results = SentenceWindowExpander(store_of(tree.all)).run(documents=hits)["documents"]
    assert [result.id for result in results][::2] == ["plain", "empty"]
    assert contents(results) == ["On its own.", "".join(SENTENCES[3:]), None]
    assert len(caplog.records) == 1


def test_failures_are_raised_on_request(tree):
    strict = SentenceWindowExpander(store_of(tree.leaves[2:]), raise_on_failure=True)
    with pytest.raises(ValueError, match=tree.leaves[1].id):
        strict.run(documents=[tree.leaves[2]])
    with pytest.raises(ValueError, match="plain"):
        strict.run(documents=[Document(id="plain", content="On its own.")])


def test_top_k_counts_fused_windows():
    tree = tree_of(" ".join(f"This is number {number}." for number in range(30)))
    hits = scored(*(tree.leaves[number] for number in (5, 6, 20, 28)))
    expander = SentenceWindowExpander(store_of(tree.all), top_k=2)
    assert len(expander.run(documents=hits)["documents"]) == 2
    assert len(expander.run(documents=hits, top_k=9)["documents"]) == 3


def test_windows_without_scores_come_in_the_order_of_their_hits():
    tree = tree_of(" ".join(f"This is number {number}." for number in range(30)))
    hits = [tree.leaves[number] for number in (20, 5, 28)]
    results = SentenceWindowExpander(store_of(tree.all)).run(documents=hits)["documents"]
    assert [result.meta[chunks.EXPANDED_FROM] for result in results] == [[hit.id] for hit in hits]


def test_a_window_that_is_too_large_by_itself_is_cut_around_its_best_hit(tree):
    hits = scored(tree.leaves[2], tree.leaves[1])
    [result] = SentenceWindowExpander(store_of(tree.all), 2, max_length=40).run(documents=hits)["documents"]
    assert result.content == SENTENCES[2].strip()


def test_a_budget_goes_to_the_best_hits_and_not_to_the_longest_chain_of_them():
    tree = tree_of(" ".join(f"This is number {number}." for number in range(10, 40)))
    chain, elsewhere = tree.leaves[2:12], tree.leaves[25]
    hits = [replace(chain[5], score=0.9), replace(elsewhere, score=0.8)]
    hits += [replace(hit, score=0.5) for hit in chain if hit.id != chain[5].id]
    expander = SentenceWindowExpander(store_of(tree.all))
    whole, *_ = expander.run(documents=hits)["documents"]
    assert len(whole.content) == 12 * 19
    results = expander.run(documents=hits, max_length=7 * 19)["documents"]
    assert spans_of(results) == [(6 * 19, 9 * 19), (24 * 19, 27 * 19), (2 * 19, 3 * 19)]


def test_leaves_that_repeat_a_sentence_are_fused_without_repetition():
    tree = tree_of(" ".join(f"This is number {number}." for number in range(20)), leaf="chunk", split_overlap=1)
    assert sum(len(one.content) for one in tree.leaves) > len(tree.text)
    [result] = SentenceWindowExpander(store_of(tree.all), 2).run(documents=[tree.leaves[3]])["documents"]
    assert result.content == tree.text[slice(*spans_of([result])[0])]


def test_a_summary_passes_through_whatever_its_length(tree):
    section = tree.parents[0]
    summary = summary_of(section, "x" * len(section.content))
    [result] = SentenceWindowExpander(store_of(tree.all)).run(documents=[summary])["documents"]
    assert (result.id, result.content) == (summary.id, summary.content)


def test_windows_can_be_widened_again(tree):
    store = store_of(tree.all)
    expander = SentenceWindowExpander(store)
    once = expander.run(documents=scored(tree.leaves[2]))["documents"]
    [twice] = expander.run(documents=once)["documents"]
    [at_once] = expander.run(documents=scored(tree.leaves[2]), window_size=2)["documents"]
    assert twice == at_once


def test_a_block_that_was_cut_does_not_jump_over_what_was_cut_off(tree):
    store = store_of(tree.all)
    cut = ParentExpander(store, max_length=21).run(documents=[leaf(tree, "receipt")])["documents"]
    [result] = SentenceWindowExpander(store).run(documents=cut)["documents"]
    assert result.content == "A receipt is needed."


@pytest.mark.parametrize("split_by", ["word", "period"])
def test_chunks_of_haystacks_splitter_are_widened_with_one_call(split_by):
    splitter = DocumentSplitter(split_by=split_by, split_length=2, split_overlap=1)
    split = splitter.run(documents=[Document(id="terms", content=TEXT), Document(id="more", content=PAGES)])[
        "documents"
    ]
    store = store_of(split)
    terms = [one for one in split if one.meta["source_id"] == "terms"]
    more = [one for one in split if one.meta["source_id"] == "more"]
    results = SentenceWindowExpander(store).run(documents=scored(terms[1], more[1]))["documents"]
    assert store.calls == ["filter_documents"]
    for result, found, text in zip(results, (terms, more), (TEXT, PAGES), strict=True):
        start, end = found[0].meta["split_idx_start"], found[2].meta["split_idx_start"] + len(found[2].content)
        assert result.content == text[start:end]
        assert spans_of([result]) == [(start, end)]
        assert result.meta[chunks.PART_IDS] == [one.id for one in found[:3]]
        assert not {chunks.LEAF_START, chunks.LEAF_COUNT, chunks.SPLIT_ID, "_split_overlap"} & result.meta.keys()
    hit = terms[1].meta["split_idx_start"]
    assert results[0].meta[chunks.MATCHED_SPANS] == [[hit, hit + len(terms[1].content), 0.9]]


def test_leaves_of_haystacks_hierarchical_splitter_are_widened_within_their_block():
    splitter = HierarchicalDocumentSplitter(block_sizes={12, 4}, split_overlap=0, split_by="word")
    found = {one.id: one for one in splitter.run(documents=[Document(content=TEXT)])["documents"]}
    hit = next(one for one in found.values() if one.meta["__level"] == 2 and one.meta["split_id"] == 1)
    [result] = SentenceWindowExpander(store_of(found.values()), 5).run(documents=[hit])["documents"]
    assert result.content == found[hit.meta["__parent_id"]].content


def test_two_hits_that_claim_one_place_do_not_disturb_each_other():
    one, other = (
        Document(id=name, content=f"{name}. ", meta={"source_id": "s", "split_id": 0}) for name in ("one", "other")
    )
    following = Document(id="next", content="Next.", meta={"source_id": "s", "split_id": 1})
    results = SentenceWindowExpander(store_of([one, other, following])).run(documents=scored(one, other))["documents"]
    assert contents(results) == ["one. Next.", "other. "]


def test_our_chunks_and_those_of_others_mix(tree):
    foreign = [
        Document(
            id=f"k{number}",
            content=f"S{number}. ",
            meta={"source_id": tree.leaves[0].meta["source_id"], "split_id": number},
        )
        for number in range(4)
    ]
    store = store_of([*tree.all, *foreign])
    results = SentenceWindowExpander(store).run(documents=scored(foreign[2], tree.leaves[2]))["documents"]
    assert contents(results) == ["S1. S2. S3. ", "".join(SENTENCES[1:4])]
    assert store.calls == ["filter_documents", "filter_documents"]


def test_the_embedded_store_gives_the_same(tree, tmp_path):
    foreign = [
        Document(id=f"k{number}", content=f"S{number}. ", meta={"source_id": "f", "split_id": number})
        for number in range(4)
    ]
    everything = [*tree.all, *foreign]
    edge = edge_store_of(everything, tmp_path)
    hits = scored(tree.leaves[2], foreign[1])
    results = SentenceWindowExpander(edge).run(documents=hits)
    assert results == SentenceWindowExpander(store_of(everything)).run(documents=hits)
    assert edge.calls == ["get_documents_by_id", "filter_documents"]
    edge.close()


SIZES = st.integers(0, 3)


@given(trees(), st.data(), SIZES, st.sampled_from(["source", "parent", "page"]))
def test_windows_are_what_their_hits_and_neighbours_cover_and_never_repeat_text(tree, data, size, within):
    hits = data.draw(hits_of(tree.leaves))
    before = copy.deepcopy(hits)
    store = store_of(tree.all)
    results = SentenceWindowExpander(store, size, within=within).run(documents=hits)["documents"]
    assert hits == before
    assert len(store.calls) <= 1

    expected: set[int] = set()
    limiting = {"parent": chunks.PARENT_ID, "page": chunks.PAGE, "source": chunks.SOURCE_ID}[within]
    for hit in hits:
        for step in (-1, 1):
            place = hit.meta[chunks.SPLIT_ID]
            for _ in range(size + 1):
                if not 0 <= place < len(tree.leaves):
                    break
                neighbour = tree.leaves[place]
                if neighbour.meta.get(limiting) != hit.meta.get(limiting):
                    break
                expected |= characters_of(spans_of([neighbour]))
                place += step
    spans = spans_of(results)
    assert characters_of(spans) == expected
    assert sum(span.length for span in spans) == len(expected)
    assert not any(one.end == other.start for one in spans for other in spans)
    scores = {}
    for hit in hits:
        scores.setdefault(hit.id, []).append(hit.score)
    for result, span in zip(results, spans, strict=True):
        assert result.content == tree.text[slice(*span)]
        inside = {hit.id for hit, own in zip(hits, spans_of(hits), strict=True) if span.contains(own)}
        assert set(result.meta[chunks.EXPANDED_FROM]) == inside
        known = [score for id_ in inside for score in scores[id_] if score is not None]
        assert result.score == max(known, default=None)
        assert {tuple(one[:2]) for one in result.meta[chunks.MATCHED_SPANS]} == {
            own for own in spans_of(hits) if span.contains(own)
        }
    ranks = [(result.score is None, -(result.score or 0)) for result in results]
    assert ranks == sorted(ranks)


@given(TEXTS, st.data(), SIZES, st.sampled_from(["leaf", "sentence"]), st.integers(0, 1))
def test_texts_stay_slices_whatever_is_missing_and_whatever_is_hit(text, data, size, unit, overlap):
    tree = tree_of(text, block_sizes=[16, 6, 3], leaf="chunk", split_overlap=overlap)
    stored = [one for one in tree.all if data.draw(st.booleans())]
    hits = data.draw(hits_of(tree.all))
    results = SentenceWindowExpander(store_of(stored), size, unit=unit).run(documents=hits)["documents"]
    spans = spans_of(results)
    assert sum(span.length for span in spans) == len(characters_of(spans))
    assert characters_of(spans) >= characters_of(spans_of(hits))
    absent = {leaf.id for leaf in tree.leaves} - {one.id for one in stored}
    for result, span in zip(results, spans, strict=True):
        assert result.content == text[slice(*span)]
        assert set(result.meta.get(chunks.MISSING, [])) <= absent
    again = SentenceWindowExpander(store_of(tree.all), size, unit=unit).run(documents=results)["documents"]
    for result in again:
        assert result.content == text[slice(*spans_of([result])[0])]


@given(TEXTS, st.data(), st.integers(1, 3))
def test_windows_of_sentences_hold_whole_sentences_of_the_text_they_are_cut_out_of(text, data, size):
    tree = tree_of(text, block_sizes=[30, 12], leaf="chunk")
    hit = data.draw(st.sampled_from(tree.leaves))
    store = store_of(tree.all)
    [narrow] = spans_of(SentenceWindowExpander(store, size, unit="sentence").run(documents=[hit])["documents"])
    [wide] = spans_of(SentenceWindowExpander(store, size).run(documents=[hit])["documents"])
    assert wide.contains(narrow)
    sentences = [Span(wide.start + start, wide.start + end) for start, end in sentence_spans(text[slice(*wide)])]
    touched = [number for number, span in enumerate(sentences) if span.overlaps(spans_of([hit])[0])]
    first, last = max(0, touched[0] - size), min(len(sentences) - 1, touched[-1] + size)
    assert narrow == (sentences[first].start, sentences[last].end)


@given(trees(), st.data(), st.integers(1, 120), st.sampled_from(["character", "word", "token"]), st.integers(1, 4))
def test_budgets_hold_and_texts_stay_slices(tree, data, max_length, unit, top_k):
    hits = data.draw(hits_of(tree.leaves))
    expander = SentenceWindowExpander(store_of(tree.all), max_length=max_length, length_unit=unit, top_k=top_k)
    results = expander.run(documents=hits)["documents"]
    assert len(results) <= top_k
    assert sum(length_of(result.content, unit) for result in results) <= max_length
    assert bool(results) == bool(hits)
    for result in results:
        assert result.content == tree.text[slice(*spans_of([result])[0])]


@given(trees(), st.data(), SIZES)
def test_async_gives_the_same(tree, data, size):
    hits = data.draw(hits_of(tree.all))
    expander = SentenceWindowExpander(store_of(tree.all), unit="sentence", top_k=3)
    settings = {"documents": hits, "window_size": size, "max_length": 99}
    assert asyncio.run(expander.run_async(**settings)) == expander.run(**settings)


def test_it_works_in_a_pipeline_and_through_yaml(tree):
    store = InMemoryDocumentStore(index="sentence-window-expander")
    store.write_documents(tree.all)
    pipeline = Pipeline()
    only_leaves = {"field": "meta.unit", "operator": "==", "value": "leaf"}
    pipeline.add_component("retriever", InMemoryBM25Retriever(store, filters=only_leaves, top_k=1))
    pipeline.add_component("expander", SentenceWindowExpander(store))
    pipeline.connect("retriever.documents", "expander.documents")
    restored = Pipeline.loads(pipeline.dumps(), allowed_modules=["haystack_adv_retrieval"])
    for one in (pipeline, restored):
        [result] = one.run({"retriever": {"query": "shipping costs"}})["expander"]["documents"]
        assert result.content == "".join(SENTENCES[1:4])
        [result] = asyncio.run(one.run_async({"retriever": {"query": "shipping costs"}}))["expander"]["documents"]
        assert result.content == "".join(SENTENCES[1:4])
