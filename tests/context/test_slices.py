from trees import scored, tree_of

from haystack_adv_retrieval.context.slices import fuse, page_at, slice_of
from haystack_adv_retrieval.core import chunks
from haystack_adv_retrieval.core.spans import Span

TEXT = "# Refunds\n\nThey take 14 days. They need a receipt.\f\n# Shipping\n\nWe ship daily. It is free.\n"


def span_of(chunk):
    return Span(chunk.meta[chunks.START], chunk.meta[chunks.END])


def test_a_slice_is_cut_out_of_chunks_that_overlap():
    tree = tree_of(TEXT, split_overlap=1)
    pieces = sorted([*tree.leaves, tree.parents[0]], key=span_of)
    assert slice_of(pieces, Span(0, len(TEXT))) == TEXT
    assert slice_of(pieces, Span(14, 70)) == TEXT[14:70]


def test_a_fused_span_has_the_metadata_of_the_best_hit_and_its_own_place():
    tree = tree_of(TEXT)
    pieces = tree.leaves[1:5]
    [best] = scored(pieces[3])
    span = Span(span_of(pieces[0]).start + 5, span_of(pieces[3]).end)
    fused = fuse(pieces, span, best)
    assert fused.content == TEXT[span.start : span.end]
    assert fused.meta[chunks.HEADINGS] == "Shipping"
    assert fused.meta[chunks.PAGE] == 1
    assert (fused.meta[chunks.LEAF_START], fused.meta[chunks.LEAF_END]) == (1, 5)
    assert fused.meta[chunks.PART_IDS] == [piece.id for piece in pieces]
    assert not {chunks.UNIT, chunks.LEVEL, chunks.SPLIT_ID, chunks.PARENT_ID, chunks.PARENT_START} & fused.meta.keys()


def test_a_fused_span_inside_of_one_parent_still_has_it():
    tree = tree_of(TEXT)
    pieces = tree.leaves[1:3]
    fused = fuse(pieces, Span(span_of(pieces[0]).start, span_of(pieces[1]).end), pieces[0])
    parent = tree.parent_of(pieces[0])
    assert fused.meta[chunks.PARENT_ID] == parent.id
    assert chunks.parent_span_of(fused.meta) == span_of(parent)


def test_the_same_span_has_the_same_id_and_another_one_another():
    pieces = tree_of(TEXT).leaves[1:3]
    start, end = span_of(pieces[0]).start, span_of(pieces[1]).end
    one = fuse(pieces, Span(start, end), pieces[0])
    assert one.id == fuse(pieces, Span(start, end), pieces[1]).id
    assert one.id != fuse(pieces, Span(start, end - 1), pieces[0]).id
    assert one.id not in {piece.id for piece in pieces}


def test_a_fused_span_that_is_fused_again_names_the_stored_chunks():
    pieces = tree_of(TEXT).leaves[1:3]
    span = Span(span_of(pieces[0]).start, span_of(pieces[1]).end)
    again = fuse([fuse(pieces, span, pieces[0])], span, pieces[0])
    assert again.meta[chunks.PART_IDS] == [piece.id for piece in pieces]


def test_the_page_of_a_position_counts_form_feeds():
    block = tree_of(TEXT, block_sizes=[90, 8]).parents[0]
    assert page_at(block, TEXT.index("\f")) == 1
    assert page_at(block, TEXT.index("\f") + 1) == 2


def test_a_table_header_belongs_to_a_span_that_starts_inside_the_table():
    rows = "".join(f"| row {number} | {number} euros |\n" for number in range(12))
    tree = tree_of("Prices are listed here.\n\n| name | price |\n|---|---|\n" + rows, leaf="chunk", block_sizes=[12])
    inside = next(leaf for leaf in tree.leaves if chunks.TABLE_HEADER in leaf.meta)
    following = tree.leaves[inside.meta[chunks.SPLIT_ID] + 1]
    span = Span(inside.meta[chunks.START], following.meta[chunks.END])
    assert chunks.TABLE_HEADER in fuse([inside, following], span, following).meta
    whole = Span(0, len(tree.text))
    assert chunks.TABLE_HEADER not in fuse(tree.leaves, whole, following).meta
