import itertools

from hypothesis import given
from hypothesis import strategies as st

from haystack_adv_retrieval.core.spans import Span, clip, covered, merge

spans = st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda pair: Span(pair[0], sum(pair)))
span_lists = st.lists(spans, max_size=8)


def characters(given):
    return {position for span in given for position in range(span.start, span.end)}


def test_a_span_is_a_half_open_range_of_a_text():
    span = Span(1, 4)
    assert (span.length, span.text("abcdef")) == (3, "bcd")
    assert span.contains(Span(1, 4))
    assert not span.contains(Span(3, 5))
    assert span.overlaps(Span(3, 9))
    assert not span.overlaps(Span(4, 9))


def test_touching_spans_fuse_and_a_gap_can_be_bridged():
    assert merge([Span(5, 9), Span(0, 3), Span(3, 4)]) == [Span(0, 4), Span(5, 9)]
    assert merge([Span(5, 9), Span(0, 4)], gap=1) == [Span(0, 9)]


def test_a_span_inside_of_another_does_not_shorten_it():
    assert merge([Span(0, 9), Span(2, 4), Span(6, 7)]) == [Span(0, 9)]


@given(span_lists)
def test_merged_spans_hold_the_same_characters_and_do_not_touch(given):
    merged = merge(given)
    assert characters(merged) == characters(given)
    assert all(one.end < other.start for one, other in itertools.pairwise(merged))


@given(span_lists, spans)
def test_clipped_spans_hold_the_characters_inside(given, whole):
    inside = characters(given) & characters([whole])
    assert characters(clip(given, whole)) == inside
    assert covered(given, whole) == len(inside)
